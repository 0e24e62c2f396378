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

/* Sums of numbers, less a number near their mean, and of the squares of that: of four chains, which
 * do not wait for each other. */
struct chains {
    float near, sum[4], squares[4];
    int n;

    /* Half of a row's numbers of a step, `left` of them, from where tensor copies have put them;
     * there are zeros behind. The first ones' mean is what is near. */
    template <class T>
    __device__ __forceinline__ void take(const unsigned char *row, int in_eight, int half, int left)
    {
        float v[SEEN];
#pragma unroll
        for (int i = 0; i < SEEN; i += CHUNK) {
            float part[CHUNK];
            int chunk = (half * SEEN + i) / CHUNK ^ in_eight;
            matmul::unpack<T>(*reinterpret_cast<const uint4 *>(row + 16 * chunk), part);
#pragma unroll
            for (int c = 0; c < CHUNK; c++)
                v[i + c] = part[c];
        }
        if (n == 0) {
            float all[4] = {};
#pragma unroll
            for (int i = 0; i < SEEN; i++)
                all[i % 4] += v[i];
            near = __fdividef(all[0] + all[1] + (all[2] + all[3]), (float)left);
        }
        n += left;
#pragma unroll
        for (int i = 0; i < SEEN; i++) {
            float off = i / CHUNK * CHUNK < left ? v[i] - near : 0;
            sum[i % 4] += off;
            squares[i % 4] = fmaf(off, off, squares[i % 4]);
        }
    }

    /* With those of the thread that has the other half of the row. */
    __device__ __forceinline__ moments done() const
    {
        float s = sum[0] + sum[1] + (sum[2] + sum[3]);
        float q = squares[0] + squares[1] + (squares[2] + squares[3]);
        float mean = n > 0 ? near + __fdividef(s, (float)n) : 0;
        q = n > 0 ? fmaxf(q - __fdividef(s * s, (float)n), 0) : 0;
        float others = (float)__shfl_xor_sync(UINT32_MAX, n, 1), all = (float)n + others;
        float off = __shfl_xor_sync(UINT32_MAX, mean, 1) - mean;
        float part = all > 0 ? __fdividef(others, all) : 0;
        q += __shfl_xor_sync(UINT32_MAX, q, 1) + off * off * (float)n * part;
        return {fmaf(off, part, mean), q};
    }
};

/* A row's mean, and 1 / its deviation, of what all blocks have sent. */
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
        at = (place.n * blocks + place.rank) * HOPPER_WARPGROUP + (int)threadIdx.x;
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

template <class T> struct watch {
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
        int row = (int)threadIdx.x / 2, half = (int)threadIdx.x % 2;
        int left = min(SEEN, j.job.depth - k * STEP - half * SEEN); /* whole chunks */
        if (row < j.tall && left > 0)
            seen.template take<T>(stage + row * matmul::LINE, row % 8, half, left);
    }

    /* The four threads of two rows send both to all blocks that finish units. */
    template <class Ring>
    __device__ __forceinline__ void send(const Ring &r, const todo &j, const split::place &at)
    {
        int lane = (int)threadIdx.x % 32, row = (int)threadIdx.x / 4 * 2;
        moments mine = seen.done();
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

    template <class Ring>
    __device__ __forceinline__ void settle(const Ring &r, const todo &j, int row, operands<T> &with)
    {
        float2 is = statistics_of(r.beside, j, row);
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
            now.template store<T>(j.job, at.row + row, column, statistics_of(r.beside, j, row));
        }
    }
};

template <class T_, int COLUMNS, int STAGES>
struct shape : split::shape<COLUMNS, STAGES, matmul::LINE, BLOCKS_MAX * PLACE> {
    typedef T_ T;
    typedef float Sum;
    typedef struct job job;
    typedef norm_matmul::operands<T> operands;
    typedef norm_matmul::watch<T> watch;
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
    return call->dry ? cudaSuccess : split::launch<S>(call, from, j);
}

typedef cudaError_t (*launch_fn)(const struct kernel_call *call,
                                 const struct kernel_norm_matmul &p);

template <class T>
cudaError_t launch(const struct kernel_call *call, const struct kernel_norm_matmul &p)
{
    /* columns and stages of a block, blocks that share a tile's depth */
    static const launch_fn rows[KERNEL_NORM_MATMUL_VARIANTS] = {
        launch_split<shape<T, 32, 7>, 2>, launch_split<shape<T, 32, 7>, 4>,
        launch_split<shape<T, 32, 7>, 8>, launch_split<shape<T, 64, 5>, 2>,
        launch_split<shape<T, 64, 5>, 4>, launch_split<shape<T, 64, 5>, 8>,
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
