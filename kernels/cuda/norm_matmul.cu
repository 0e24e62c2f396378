/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of few rows that are normalised first, on Hopper: split.cuh, whose blocks see all
 * numbers of their tile's rows, together. While the products of a step are made, the threads that
 * wait for them take the mean of its numbers and the squares of their deviations from it, two
 * threads a row. At the end blocks send each other what they have, and merge it (Chan, Golub,
 * LeVeque, "Algorithms for Computing the Sample Variance", 1983). The sums are those of rows as
 * they lie; what a mean has added to them is taken away by the sums of the weights' columns, so
 * rows whose mean is a thousand deviations lose three digits of FP32's seven.
 *
 * The normalised rows, if others read them, are stored by all these blocks, each its share.
 */
#include "kernels/cuda/matmul_split.cuh"

namespace norm_matmul
{

using matmul::LANE;
using matmul::STEP;
using split::SLAB;

constexpr int SEEN = STEP / 2; /* numbers of a step that a thread sees: half of a row's */
constexpr int CHUNK = LANE;    /* numbers of 16 bytes */
constexpr int PLACE = SLAB * 2 * sizeof(float); /* a block's statistics, those of each row */
constexpr int BLOCKS_MAX = 8;

struct job : matmul::job {
    const void *a;
    const float *slope, *offset, *scale, *shift;
    void *h;
    int depth;
    struct divider chunks;   /* of a row of h */
    float share[BLOCKS_MAX]; /* of the depth that a block sees */
    float epsilon, one;      /* one: 1 / depth */
    bool rms, h_whole;
};

typedef split::todo<job> todo;

__device__ __forceinline__ void read_floats(const float *from, float (&to)[LANE])
{
#pragma unroll
    for (int i = 0; i < LANE; i += 4) {
        float4 v = __ldg(reinterpret_cast<const float4 *>(from + i));
        to[i] = v.x, to[i + 1] = v.y, to[i + 2] = v.z, to[i + 3] = v.w;
    }
}

/* --- what is added to sums --- */

template <class T> struct operands : matmul::split_operands<T> {
    float slope[LANE], offset[LANE];
    __device__ __forceinline__ operands(const job &j, int row, int column)
        : matmul::split_operands<T>(j, row, column), slope{}, offset{}
    {
        if (this->left <= 0)
            return;
        read_floats(j.slope + column, slope);
        read_floats(j.offset + column, offset);
    }
    __device__ __forceinline__ void settle(float mean, float inverse)
    {
#pragma unroll
        for (int i = 0; i < LANE; i++)
            this->v[i] = fmaf(fmaf(-mean, slope[i], this->v[i]), inverse, offset[i]);
    }
};

/* --- rows' statistics --- */

/* The mean of so many numbers, and the squares of their deviations from it. */
struct moments {
    float mean, squares;
};

/* Where deviations are so small beside the mean, sums of squares have lost too many digits. */
constexpr float SMALL = 1.0f / 1024; /* a square */

/* Sums of numbers and of their squares, in four chains that do not wait for each other: three
 * instructions a number, for which the products' threads have time while products are made. */
struct chains {
    float sum[4], squares[4];
    int n;

    /* Half of a row's numbers of a step, from where tensor copies have put them; behind the `left`
     * that are there are zeros. */
    template <class T>
    __device__ __forceinline__ void take(const unsigned char *row, int in_eight, int half, int left)
    {
        n += left;
#pragma unroll
        for (int i = 0; i < SEEN; i += CHUNK) {
            float v[CHUNK];
            int chunk = (half * SEEN + i) / CHUNK ^ in_eight;
            matmul::unpack<T>(*reinterpret_cast<const uint4 *>(row + 16 * chunk), v);
#pragma unroll
            for (int c = 0; c < CHUNK; c++) {
                sum[c % 4] += v[c];
                squares[c % 4] = fmaf(v[c], v[c], squares[c % 4]);
            }
        }
    }

    /* With those of the thread that has the other half of the row, which is `a` in memory; `first`
     * and `step`: of the steps that the block sees. */
    template <class T>
    __device__ __forceinline__ moments done(const void *a, const todo &j, int first) const
    {
        float s = sum[0] + sum[1] + (sum[2] + sum[3]);
        float q = squares[0] + squares[1] + (squares[2] + squares[3]);
        s += __shfl_xor_sync(UINT32_MAX, s, 1);
        q += __shfl_xor_sync(UINT32_MAX, q, 1);
        int all = n + __shfl_xor_sync(UINT32_MAX, n, 1);
        float mean = all > 0 ? __fdividef(s, (float)all) : 0;
        moments m = {mean, fmaxf(fmaf(-mean, s, q), 0)};
        if (m.squares < SMALL * mean * s && !j.job.rms)
            again<T>(a, j, first, mean, m);
        return m;
    }

    /* Takes the squares again, of deviations, from memory. */
    template <class T>
    __device__ __noinline__ static void again(const void *a, const todo &j, int first, float mean,
                                              moments &m)
    {
        const T *row = static_cast<const T *>(a);
        m.squares = 0;
        for (int k = first; k < j.job.deep.steps; k += j.blocks)
            for (int i = k * STEP; i < min(k * STEP + STEP, j.job.depth); i++) {
                float off = number_float(row[i]) - mean;
                m.squares = fmaf(off, off, m.squares);
            }
    }
};

/* A row's mean, and 1 / its deviation: of what all blocks have sent, and of a block's own. */
__device__ __forceinline__ float2 statistics_of(const unsigned char *sent, const todo &j, int row)
{
    float mean = 0, squares = 0;
    moments of[BLOCKS_MAX];
#pragma unroll
    for (int b = 0; b < BLOCKS_MAX; b++) {
        of[b] =
            b < j.blocks
                ? *reinterpret_cast<const moments *>(sent + b * PLACE + row * (int)sizeof(moments))
                : moments{0, 0};
        mean = fmaf(j.job.share[b], of[b].mean, mean);
    }
#pragma unroll
    for (int b = 0; b < BLOCKS_MAX; b++) {
        float off = of[b].mean - (j.job.rms ? 0 : mean);
        squares = fmaf(of[b].squares, j.job.one, fmaf(j.job.share[b], off * off, squares));
    }
    return make_float2(j.job.rms ? 0 : mean, rsqrtf(squares + j.job.epsilon));
}

__device__ __forceinline__ float2 statistics_alone(const job &j, const moments &m)
{
    float squares = fmaf(m.squares, j.one, j.rms ? m.mean * m.mean : 0);
    return make_float2(j.rms ? 0 : m.mean, rsqrtf(squares + j.epsilon));
}

/* --- h --- */

/* The block's share of the tile's rows of h: of all chunks, those that begin with its threads'
 * first ones. Only blocks that finish units know the statistics. */
struct share {
    int at, step, end; /* in chunks */
    uint32_t row, column;
    __device__ __forceinline__ share(const todo &j, const split::place &place)
        : at(0), step(0), end(0), row(0), column(0)
    {
        int blocks = min(j.blocks, place.units);
        if (!j.job.h || place.rank >= blocks)
            return;
        at = (place.n * blocks + place.rank) * HOPPER_WARPGROUP +
             (int)threadIdx.x % HOPPER_WARPGROUP;
        step = j.job.n_tiles * blocks * HOPPER_WARPGROUP;
        end = min(SLAB, j.job.rows - place.row) * (j.job.depth / CHUNK);
        find(j.job);
    }
    __device__ __forceinline__ void find(const job &j)
    {
        row = divider_split(j.chunks, (uint32_t)at, &column);
        column *= CHUNK;
    }
};

/* A chunk before it is normalised, and what makes it h. */
struct chunk {
    uint4 a;
    float scale[CHUNK], shift[CHUNK];
    __device__ __forceinline__ void fetch(const job &j, int64_t row, int column)
    {
        a = *reinterpret_cast<const uint4 *>(static_cast<const uint16_t *>(j.a) + row * j.depth +
                                             column);
        read_floats(j.scale + column, scale);
        if (j.shift)
            read_floats(j.shift + column, shift);
    }
    template <class T>
    __device__ __forceinline__ void store(const job &j, int64_t row, int column, float2 is) const
    {
        float v[CHUNK];
        matmul::unpack<T>(a, v);
#pragma unroll
        for (int i = 0; i < CHUNK; i++)
            v[i] = fmaf((v[i] - is.x) * is.y, scale[i], shift[i]);
        matmul::put<T, matmul::any_results>(j.h, row * j.depth + column, CHUNK, j.h_whole, v, 0);
    }
};

/* --- the watch of split.cuh --- */

template <class T, bool ALONE> struct watch {
    /* The thread's number in its warpgroup. */
    __device__ static __forceinline__ int rank(void)
    {
        return (int)threadIdx.x % HOPPER_WARPGROUP;
    }

    chains seen;
    share mine;
    chunk first; /* comes while products are made */

    __device__ static __forceinline__ int bytes(const todo &j)
    {
        return j.blocks * PLACE;
    }

    __device__ __forceinline__ watch(const todo &j, const split::place &at)
        : seen{}, mine(j, at), first{}
    {
        if (mine.at < mine.end)
            first.fetch(j.job, at.row + (int)mine.row, (int)mine.column);
    }

    __device__ __forceinline__ void step(const todo &j, const unsigned char *stage, int k)
    {
        int row = rank() / 2, half = rank() % 2;
        int left = min(SEEN, j.job.depth - k * STEP - half * SEEN); /* whole chunks */
        if (row < j.tall && left > 0)
            seen.template take<T>(stage + row * matmul::LINE, row % 8, half, left);
    }

    __device__ __forceinline__ moments done(const todo &j, const split::place &at) const
    {
        int there = min(at.row + rank() / 2, j.job.rows - 1);
        return seen.template done<T>(static_cast<const T *>(j.job.a) + (int64_t)there * j.job.depth,
                                     j, at.rank);
    }

    /* The four threads of two rows send both to all blocks that finish units. */
    template <class Ring>
    __device__ __forceinline__ void send(const Ring &r, const todo &j, const split::place &at)
    {
        int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 4 * 2;
        moments mine = done(j, at);
        float mean = __shfl_xor_sync(UINT32_MAX, mine.mean, 2);
        float squares = __shfl_xor_sync(UINT32_MAX, mine.squares, 2);
        bool second = lane % 4 >= 2; /* of the two rows */
        float4 two = second ? make_float4(mean, squares, mine.mean, mine.squares)
                            : make_float4(mine.mean, mine.squares, mean, squares);
        for (int block = lane % 4; block < min(j.blocks, at.units); block += 4)
            peer_push(r.beside + at.rank * PLACE + row * (int)sizeof(moments),
                      make_uint4(__float_as_uint(two.x), __float_as_uint(two.y),
                                 __float_as_uint(two.z), __float_as_uint(two.w)),
                      r.come, block);
    }

    /* Leaves statistics for the block's other threads. */
    template <class Ring>
    __device__ __forceinline__ void keep(const Ring &r, const todo &j, const split::place &at)
    {
        float2 is = statistics_alone(j.job, done(j, at));
        if (threadIdx.x % 2 == 0)
            reinterpret_cast<float2 *>(r.beside)[rank() / 2] = is;
    }

    template <class Ring>
    __device__ static __forceinline__ float2 of(const Ring &r, const todo &j, int row)
    {
        return ALONE ? reinterpret_cast<const float2 *>(r.beside)[row]
                     : statistics_of(r.beside, j, row);
    }

    template <class Ring>
    __device__ __forceinline__ void settle(const Ring &r, const todo &j, int row, operands<T> &with)
    {
        float2 is = of(r, j, row);
        with.settle(is.x, is.y);
    }

    template <class Ring>
    __device__ __forceinline__ void leave(const Ring &r, const todo &j, const split::place &at)
    {
        while (mine.at < mine.end) {
            int row = (int)mine.row, column = (int)mine.column;
            chunk now = first;
            mine.at += mine.step;
            if (mine.at < mine.end) {
                mine.find(j.job);
                first.fetch(j.job, at.row + (int)mine.row, (int)mine.column);
            }
            now.template store<T>(j.job, at.row + row, column, of(r, j, row));
        }
    }
};

/* Results: whether all columns are there, 16 bytes at a time, so that there is no code for others. */
template <class T_, int COLUMNS, int STAGES, bool ALONE, class RESULTS_ = matmul::any_results>
struct shape : split::shape<COLUMNS, STAGES, matmul::LINE,
                            ALONE ? PLACE + 2 * COLUMNS * 4 : BLOCKS_MAX * PLACE, ALONE> {
    typedef T_ T;
    typedef float Sum;
    typedef struct job job;
    typedef norm_matmul::operands<T> operands;
    typedef norm_matmul::watch<T, ALONE> watch;
    typedef RESULTS_ results;
    __device__ static __forceinline__ void product(Sum (&sum)[COLUMNS / 2], uint64_t a, uint64_t b,
                                                   int keep)
    {
        wgmma<T>(sum, a, b, keep);
    }
    __device__ static __forceinline__ void multiply(split::work<shape> &steps, int,
                                                    Sum (&sum)[COLUMNS / 2])
    {
        steps.until(steps.j.job.deep.steps, sum);
    }
};

/* --- blocks that have all of a tile's depth --- */

/* What a thread adds to its sums: to 8 columns of each part, of two rows. */
template <class S> struct added {
    typedef typename S::T T;
    static constexpr int PARTS = S::PARTS;
    int row, column; /* the first ones; the second row is 8 below */
    uint4 bias[PARTS], residual[PARTS][2];

    __device__ __forceinline__ added(const job &j, const split::place &at)
        : row(at.row + (int)threadIdx.x / 32 * 16 + (int)threadIdx.x % 32 / 4),
          column(at.column + (int)threadIdx.x % 4 * LANE), bias{}, residual{}
    {
#pragma unroll
        for (int i = 0; i < PARTS; i++) {
            int c = column + i * split::PART, left = j.cols - c;
            if (left <= 0)
                continue;
            if (j.bias)
                bias[i] = matmul::fetch<typename S::results>(j.bias, c, left, j.whole);
#pragma unroll
            for (int up = 0; up < 2; up++)
                if (j.residual && row + 8 * up < j.rows)
                    residual[i][up] = matmul::fetch<typename S::results>(
                        j.residual, (int64_t)(row + 8 * up) * j.cols + c, left, j.whole);
        }
    }

    /* A part's sums of a row, which lie as split::send has them. */
    __device__ __forceinline__ void finish(const job &j, const float *sums,
                                           const float (&sum)[S::SUMS], int part, int up,
                                           float2 is) const
    {
        int c = column + part * split::PART, at = row + 8 * up;
        float slope[LANE], offset[LANE], v[LANE];
        if (c >= j.cols || at >= j.rows)
            return;
        vector_read<LANE>(sums + c % S::COLUMNS, slope);
        vector_read<LANE>(sums + S::COLUMNS + c % S::COLUMNS, offset);
#pragma unroll
        for (int i = 0; i < LANE; i++)
            v[i] = fmaf(fmaf(-is.x, slope[i], sum[4 * (4 * part + i / 2) + 2 * up + i % 2]), is.y,
                        offset[i]);
        matmul::row_steps<T>(j, bias[part], residual[part][up], v);
        matmul::put<T, typename S::results>(j.y, (int64_t)at * j.cols + c, j.cols - c, j.whole, v,
                                            0);
    }
};

/* Slopes and offsets of the tile's columns, behind the rows' statistics. */
template <class S> __device__ __forceinline__ float *column_sums(const split::ring<S> &r)
{
    return reinterpret_cast<float *>(r.beside + PLACE);
}

template <class S>
__device__ __forceinline__ void bring_columns(const split::ring<S> &r, const todo &j,
                                              const split::place &at)
{
    constexpr int FOURS = S::COLUMNS / 4; /* of each */
    int i = (int)threadIdx.x % HOPPER_WARPGROUP, c = at.column + i % FOURS * 4;
    if (i < 2 * FOURS && c < (j.job.cols + split::PART - 1) / split::PART * split::PART)
        reinterpret_cast<float4 *>(column_sums(r))[i] =
            __ldg(reinterpret_cast<const float4 *>((i < FOURS ? j.job.slope : j.job.offset) + c));
}

constexpr int WATCHED =
    2 * HOPPER_WARPGROUP + 32; /* threads: that multiply, that watch, a loader */

/* The threads that watch, beside those that multiply. */
template <class S>
__device__ __forceinline__ void observe(const split::ring<S> &r, const todo &j,
                                        const split::place &at)
{
    typename S::watch watch(j, at);
    hopper_turn t = {0, 0};
#pragma unroll 1
    for (int k = 0; k < j.job.deep.steps; k++) {
        mbarrier_wait(r.full + t.at, t.parity);
        watch.step(j, r.stages + t.at * S::STAGE, k);
        __syncwarp();
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive(r.empty + t.at);
        t.next(S::STAGES);
    }
    watch.keep(r, j, at);
    named_sync(1, 2 * HOPPER_WARPGROUP);
    watch.leave(r, j, at);
}

template <class S>
__device__ __forceinline__ void make(const split::ring<S> &r, const todo &j, const split::place &at)
{
    float sum[S::SUMS];
    added<S> with(j.job, at); /* comes while products are made */
    split::no_watch none(j, at);
    split::work<S, split::no_watch> steps(r, j, 0, none);
    steps.until(j.job.deep.steps, sum);
    named_sync(1, 2 * HOPPER_WARPGROUP);
#pragma unroll
    for (int up = 0; up < 2; up++) {
        float2 is = S::watch::of(r, j, with.row - at.row + 8 * up);
#pragma unroll
        for (int part = 0; part < S::PARTS; part++)
            with.finish(j.job, column_sums(r), sum, part, up, is);
    }
}

template <class S>
__global__ void __launch_bounds__(WATCHED, 2)
    kernel(const __grid_constant__ hopper_maps m, const __grid_constant__ todo j)
{
    KERNEL_SHARED(unsigned char, raw);
    split::ring<S> r(raw);
    split::place at(j, S());
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            mbarrier_init(r.full + i, 1);
            mbarrier_init(r.empty + i, 2 * split::WARPS);
        }
        mbarrier_fence();
    }
    __syncthreads();
    grid_go();
    if (threadIdx.x == 2 * HOPPER_WARPGROUP) {
        split::load<S>(r, m, j, at);
        return;
    }
    if (threadIdx.x / HOPPER_WARPGROUP == 1)
        bring_columns(r, j, at);
    grid_wait();
    if (threadIdx.x < HOPPER_WARPGROUP)
        make<S>(r, j, at);
    else if (threadIdx.x < 2 * HOPPER_WARPGROUP)
        observe<S>(r, j, at);
}

/* --- launching --- */

bool takes(const struct kernel_norm_matmul &p)
{
    const struct kernel_matmul &m = p.product;
    return !m.wide && !m.second.depth && !m.image.kernel[0] && m.scale == 1 &&
           m.depth % CHUNK == 0 && p.epsilon >= 0;
}

template <class S> struct job job_of(const struct kernel_norm_matmul &p)
{
    struct job j = {};
    static_cast<matmul::job &>(j) = matmul::job_of(p.product, SLAB, S::COLUMNS);
    j.a = p.product.a;
    j.slope = p.slope;
    j.offset = p.offset;
    j.scale = p.scale;
    j.shift = p.shift;
    j.h = p.h;
    j.h_whole = (uintptr_t)p.h % 16 == 0;
    j.depth = (int)p.product.depth;
    j.epsilon = p.epsilon;
    j.chunks = divider_make((uint32_t)(p.product.depth / CHUNK));
    j.one = 1.0f / (float)p.product.depth;
    j.rms = p.rms;
    return j;
}

/* Block b sees steps b, b + blocks, .. of the depth; the last step of all may be a part of one. */
void share_depth(struct job *j, int blocks)
{
    for (int b = 0; b < blocks; b++) {
        int steps = (j->deep.steps - b + blocks - 1) / blocks;
        bool last = (j->deep.steps - 1) % blocks == b;
        int numbers = steps * STEP - (last ? j->deep.steps * STEP - j->depth : 0);
        j->share[b] = (float)numbers / (float)j->depth;
    }
}

template <class S, int BLOCKS>
cudaError_t launch_split(const struct kernel_call *call, const struct kernel_norm_matmul &p)
{
    if (!takes(p) || !matmul::counts(p.product, SLAB, S::COLUMNS))
        return cudaErrorNotSupported;
    todo j = {job_of<S>(p), BLOCKS, (int)min(p.product.rows, (int64_t)SLAB)};
    struct hopper_sources from =
        matmul::sources_of(p.product, number_of<typename S::T>::dtype, j.tall, S::COLUMNS);
    if (!hopper_sources_fit(&from))
        return cudaErrorNotSupported;
    j.job.deep = hopper_sources_depth(&from);
    if (!split::is_for(call, BLOCKS, (int64_t)j.job.m_tiles * j.job.n_tiles, j.job.deep.steps))
        return cudaErrorNotSupported;
    share_depth(&j.job, BLOCKS);
    if (call->dry)
        return cudaSuccess;
    if constexpr (!S::ALONE) {
        return split::launch<S>(call, from, j);
    } else {
        struct hopper_maps m = {};
        cudaError_t code = hopper_sources_open(&from, &m, &j.job.deep);
        if (code != cudaSuccess)
            return code;
        return hopper_launch(kernel<S>, (unsigned)(j.job.m_tiles * j.job.n_tiles), 1, WATCHED,
                             S::SHARED, call, m, j);
    }
}

template <class T, int COLUMNS, int STAGES>
cudaError_t launch_alone(const struct kernel_call *call, const struct kernel_norm_matmul &p)
{
    typedef matmul::whole_results<false, true> whole;
    return matmul::job_of(p.product, SLAB, COLUMNS).whole
               ? launch_split<shape<T, COLUMNS, STAGES, true, whole>, 1>(call, p)
               : launch_split<shape<T, COLUMNS, STAGES, true>, 1>(call, p);
}

typedef cudaError_t (*launch_fn)(const struct kernel_call *call,
                                 const struct kernel_norm_matmul &p);

template <class T>
cudaError_t launch(const struct kernel_call *call, const struct kernel_norm_matmul &p)
{
    /* columns and stages of a block, blocks that share a tile's depth */
    static const launch_fn rows[KERNEL_NORM_MATMUL_VARIANTS] = {
        launch_split<shape<T, 32, 7, false>, 2>,
        launch_split<shape<T, 32, 7, false>, 4>,
        launch_split<shape<T, 32, 7, false>, 8>,
        launch_split<shape<T, 64, 5, false>, 2>,
        launch_split<shape<T, 64, 5, false>, 4>,
        launch_split<shape<T, 64, 5, false>, 8>,
        launch_alone<T, 32, 8>,
        launch_alone<T, 64, 6>,
    };
    if (call->variant < 1 || call->variant > KERNEL_NORM_MATMUL_VARIANTS)
        return cudaErrorNotSupported;
    return rows[call->variant - 1](call, p);
}

} // namespace norm_matmul

cudaError_t kernel_norm_matmul(const struct kernel_call *call, const struct kernel_norm_matmul *p)
{
    if (call->capability != 90 || !activate::knows(p->product.func))
        return cudaErrorNotSupported;
    return p->product.dtype == DTYPE_F16    ? norm_matmul::launch<half_t>(call, *p)
           : p->product.dtype == DTYPE_BF16 ? norm_matmul::launch<bf16_t>(call, *p)
                                            : cudaErrorNotSupported;
}
