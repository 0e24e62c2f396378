/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of 16-bit floats by constant weights on Hopper, and convolutions, whose windows tensor
 * copies read: wgmma, with bias, residual and activation inside. docs/kernels.md has a drawing.
 *
 * A block has two warpgroups that multiply, and a third whose first thread loads. Stages of shared
 * memory form a ring; a stage has 64 columns (128 bytes) of A's rows and of the weights' rows of
 * one tile. Blocks walk the tiles grid by grid. The warpgroups either share a tile, each with half
 * of its rows, or (APART) take the block's tiles in turn: then one stores while the other
 * multiplies. Each lets the other begin when its own last products are under way: only then have
 * all stages before the other's been filled, which the parity of an mbarrier cannot tell.
 *
 * Results go from registers to memory. Within 32 columns the weights' rows are packed in an order
 * (kernel_matmul_packed_row) that gives a thread 8 neighbouring columns of a row, 16 bytes, and the
 * four threads of a row 64 bytes. So there are no stages for results, no waiting for them, and
 * edges are only conditions; memory beyond an edge is read as 0 by tensor copies.
 */
#ifndef INFERD_KERNELS_CUDA_MATMUL_CUH
#define INFERD_KERNELS_CUDA_MATMUL_CUH

#include "kernels/cuda/activate.cuh"
#include "kernels/cuda/hopper_mma.cuh"
#include "kernels/cuda/hopper_window.cuh"

namespace matmul
{

constexpr int LINE = HOPPER_LINE, STEP = LINE / 2; /* bytes and columns of a stage's rows */
constexpr int SLAB = 64;                           /* rows of a product */
constexpr int PART = 32, LANE = 8;                 /* columns of a part; of them, a thread's */
constexpr int CONSUMERS = 2, THREADS = (CONSUMERS + 1) * HOPPER_WARPGROUP;
constexpr int WARPS = HOPPER_WARPGROUP / 32;

struct job {
    int rows, cols;
    int m_tiles, n_tiles;
    float scale, alpha;
    int func;               /* enum ir_unary */
    bool late, whole, wide; /* wide: results are FP32 */
    const void *bias, *residual;
    void *y;
    struct hopper_depth deep;
};

template <class T_, int SLABS_, int COLUMNS_, bool APART_, int STAGES_> struct shape {
    typedef T_ T;
    static constexpr int SLABS = SLABS_, COLUMNS = COLUMNS_, STAGES = STAGES_;
    static constexpr bool APART = APART_;
    static constexpr int ROWS = SLABS * SLAB; /* of a warpgroup */
    static constexpr int TILE = APART ? ROWS : CONSUMERS * ROWS;
    static constexpr int A = TILE * LINE, B = COLUMNS * LINE, STAGE = A + B;
    static constexpr int SHARED = HOPPER_ALIGN + STAGES * STAGE + (2 * STAGES + CONSUMERS) * 8;
    static constexpr int READERS = (APART ? 1 : CONSUMERS) * WARPS; /* of a stage */
    static constexpr int PARTS = COLUMNS / PART;
    static_assert(SHARED <= HOPPER_SHARED_MAX, "shared memory");
    static_assert(SLABS * COLUMNS <= 256, "sums in registers");
};

template <class S> struct ring {
    unsigned char *stages;
    uint64_t *full, *empty;
    uint64_t *turn; /* of each consumer, if they are apart */
    __device__ explicit ring(unsigned char *raw)
    {
        stages = shared_kept(raw);
        full = reinterpret_cast<uint64_t *>(stages + S::STAGES * S::STAGE);
        empty = full + S::STAGES;
        turn = empty + S::STAGES;
    }
};

/* --- the thread that loads --- */

/* The first stages' weights are asked for before the kernel in front has ended. */
template <class S>
__device__ __forceinline__ int produce_early(const ring<S> &r, const hopper_maps &m, const job &j)
{
    hopper_tile tile(j.m_tiles, j.n_tiles, (int)blockIdx.x);
    int early = min(S::STAGES, j.deep.steps);
    for (int k = 0; k < early; k++) {
        mbarrier_expect(r.full + k, S::STAGE);
        hopper_load_weights(r.stages + k * S::STAGE + S::A, r.full + k, m, j.deep, k,
                            tile.n * S::COLUMNS);
    }
    return early;
}

template <class S>
__device__ __forceinline__ void produce(const ring<S> &r, const hopper_maps &m, const job &j)
{
    hopper_turn t = {0, 0};
    int early = produce_early(r, m, j);
    grid_wait();
    grid_fence();
    for (int at = (int)blockIdx.x; at < j.m_tiles * j.n_tiles; at += (int)gridDim.x) {
        hopper_tile tile(j.m_tiles, j.n_tiles, at);
        hopper_rows rows(j.deep, tile.m * S::TILE);
        for (int k = 0; k < j.deep.steps; k++) {
            unsigned char *to = r.stages + t.at * S::STAGE;
            if (early > 0) {
                early--;
            } else {
                mbarrier_wait(r.empty + t.at, t.parity ^ 1);
                mbarrier_expect(r.full + t.at, S::STAGE);
                hopper_load_weights(to + S::A, r.full + t.at, m, j.deep, k, tile.n * S::COLUMNS);
            }
            rows.load(to, r.full + t.at, m, j.deep, k);
            t.next(S::STAGES);
        }
    }
}

/* --- what happens to sums --- */

/* What is known of a tile's results: nothing, or that all columns are there, 16 bytes at a time,
 * and what happens to them. The code for whatever a job may ask for is so long that it does not
 * stay in the instructions' cache: on an H200 a sum of two convolutions of 64 channels waited for
 * instructions more than for anything else. AHEAD: parts whose operands are under way. */
struct any_results {
    static constexpr bool KNOWN = false, RESIDUAL = true, PLAIN = false;
    static constexpr int AHEAD = 1;
};
/* PLAIN: the activation is ReLU or none. The residual comes before it. */
template <bool PLAIN_, bool RESIDUAL_> struct whole_results {
    static constexpr bool KNOWN = true, RESIDUAL = RESIDUAL_, PLAIN = PLAIN_;
    static constexpr int AHEAD = RESIDUAL ? 2 : 3;
};

/* LANE numbers of 16 bits at element `at`, of which `left` are there. */
template <class W>
__device__ __forceinline__ uint4 fetch(const void *from, int64_t at, int left, bool whole)
{
    const uint16_t *p = static_cast<const uint16_t *>(from) + at;
    if constexpr (!W::KNOWN)
        if (!whole || left < LANE) {
            uint32_t w[LANE / 2];
#pragma unroll
            for (int i = 0; i < LANE / 2; i++)
                w[i] = (2 * i < left ? (uint32_t)__ldg(p + 2 * i) : 0) |
                       (2 * i + 1 < left ? (uint32_t)__ldg(p + 2 * i + 1) << 16 : 0);
            return make_uint4(w[0], w[1], w[2], w[3]);
        }
    return *reinterpret_cast<const uint4 *>(p); /* __ldg: all would be moved to the front */
}

template <class T> __device__ __forceinline__ void unpack(const uint4 &from, float (&v)[LANE])
{
    const uint32_t w[LANE / 2] = {from.x, from.y, from.z, from.w};
#pragma unroll
    for (int i = 0; i < LANE / 2; i++) {
        float2 two = pair_floats<T>(w[i]);
        v[2 * i] = two.x;
        v[2 * i + 1] = two.y;
    }
}

template <class T, class W, int N>
__device__ __forceinline__ void put(void *to, int64_t at, int left, bool whole, const float (&v)[N],
                                    int from)
{
    uint16_t *p = static_cast<uint16_t *>(to) + at;
    uint32_t w[LANE / 2];
#pragma unroll
    for (int i = 0; i < LANE / 2; i++)
        w[i] = pair_of<T>(v[from + 2 * i], v[from + 2 * i + 1]);
    if constexpr (!W::KNOWN)
        if (!whole || left < LANE) {
#pragma unroll
            for (int i = 0; i < LANE; i++)
                if (i < left)
                    p[i] = (uint16_t)(w[i / 2] >> i % 2 * 16);
            return;
        }
    *reinterpret_cast<uint4 *>(p) = make_uint4(w[0], w[1], w[2], w[3]);
}

/* What is added to a thread's values of a part: 8 columns of rows `row` and `row` + 8. */
template <class W> struct operands {
    uint4 bias, residual[2];
    __device__ __forceinline__ void load(const job &j, int row, int column)
    {
        int left = j.cols - column;
        bias = residual[0] = residual[1] = make_uint4(0, 0, 0, 0);
        if (!W::KNOWN && left <= 0)
            return;
        if (j.bias)
            bias = fetch<W>(j.bias, column, left, j.whole);
#pragma unroll
        for (int up = 0; up < 2 && W::RESIDUAL; up++)
            if ((W::KNOWN || j.residual) && row + 8 * up < j.rows)
                residual[up] =
                    fetch<W>(j.residual, (int64_t)(row + 8 * up) * j.cols + column, left, j.whole);
    }
    template <class T> __device__ __forceinline__ void add_residual(float (&v)[2 * LANE]) const
    {
#pragma unroll
        for (int up = 0; up < 2; up++) {
            float z[LANE];
            unpack<T>(residual[up], z);
#pragma unroll
            for (int i = 0; i < LANE; i++)
                v[up * LANE + i] += z[i];
        }
    }
};

/* floor: 0 with ReLU, minus infinity without. */
template <class T, class W>
__device__ __forceinline__ void steps(const job &j, const operands<W> &with, float floor,
                                      float (&v)[2 * LANE])
{
    if (W::KNOWN ? W::RESIDUAL : j.residual && !j.late)
        with.template add_residual<T>(v);
    if (W::PLAIN) {
#pragma unroll
        for (int i = 0; i < 2 * LANE; i++)
            v[i] = max_or_nan(v[i], floor);
    } else {
        activate::values(j.func, j.alpha, v);
    }
    if (!W::KNOWN && j.residual && j.late)
        with.template add_residual<T>(v);
}

/* What happens to LANE sums of one row. */
template <class T>
__device__ __forceinline__ void row_steps(const job &j, const uint4 &bias, const uint4 &residual,
                                          float (&v)[LANE])
{
    float with[LANE], z[LANE];
    unpack<T>(bias, with);
    unpack<T>(residual, z);
#pragma unroll
    for (int i = 0; i < LANE; i++)
        v[i] = fmaf(v[i], j.scale, with[i]) + (j.late ? 0 : z[i]);
    activate::values(j.func, j.alpha, v);
#pragma unroll
    for (int i = 0; i < LANE; i++)
        v[i] += j.late ? z[i] : 0;
}

/* Sums of a part, in the order of its columns: see kernel_matmul_packed_row. */
template <class S, class W>
__device__ __forceinline__ void finish(const job &j, const float (&sum)[S::COLUMNS / 2], int part,
                                       const operands<W> &with, float floor, int row, int column)
{
    typedef typename S::T T;
    float v[2 * LANE], bias[LANE];
    unpack<T>(with.bias, bias);
#pragma unroll
    for (int up = 0; up < 2; up++)
#pragma unroll
        for (int i = 0; i < LANE; i++)
            v[up * LANE + i] = fmaf(sum[4 * (4 * part + i / 2) + 2 * up + i % 2], j.scale, bias[i]);
    steps<T>(j, with, floor, v);
#pragma unroll
    for (int up = 0; up < 2; up++)
        if (row + 8 * up < j.rows)
            put<T, W>(j.y, (int64_t)(row + 8 * up) * j.cols + column, j.cols - column, j.whole, v,
                      up * LANE);
}

/* --- results of FP32 --- */

/* Rows of FP32 may have an odd number of columns, and begin at any address then; stores of single
 * numbers would take longer than the products. So a thread stores the 8 numbers from its first one
 * on that begins 16 bytes: its own, and up to three of the next thread's, or of the next part's,
 * which the last thread of a row gets from the first one. What is in front of the tile's first 16
 * bytes, and behind its last ones, is stored by itself. */

__device__ __forceinline__ void put_four(float *to, int left, const float *v)
{
    if (left >= 4) {
        *reinterpret_cast<float4 *>(to) = make_float4(v[0], v[1], v[2], v[3]);
        return;
    }
#pragma unroll
    for (int i = 0; i < 3; i++)
        if (i < left)
            to[i] = v[i];
}

constexpr int BESIDE = 3; /* numbers of the next thread */

/* One of a thread's two rows of a part. `next`: this thread's first numbers of the next part, which
 * are replaced by those of this one. `end`: where the tile's columns end. */
__device__ __forceinline__ void put_row(const job &j, const float (&v)[LANE], float (&next)[BESIDE],
                                        bool first, int row, int column, int end)
{
    const int thread = (int)threadIdx.x % 4;
    float t[LANE + BESIDE];
#pragma unroll
    for (int i = 0; i < LANE; i++)
        t[i] = v[i];
#pragma unroll
    for (int i = 0; i < BESIDE; i++) {
        t[LANE + i] = __shfl_sync(UINT32_MAX, thread ? t[i] : next[i],
                                  (int)threadIdx.x % 32 - thread + (thread + 1) % 4);
        next[i] = t[i];
    }
    if (row >= j.rows)
        return;
    float *to = static_cast<float *>(j.y) + (int64_t)row * j.cols + column;
    const int skip = (int)(-(reinterpret_cast<uintptr_t>(to) / sizeof(float)) % 4);
    if (first && thread == 0)
        put_four(to, min(skip, end - column), t);
#pragma unroll
    for (int i = 0; i < LANE + BESIDE - 1; i++)
        t[i] = skip & 1 ? t[i + 1] : t[i];
#pragma unroll
    for (int i = 0; i < LANE; i++)
        t[i] = skip & 2 ? t[i + 2] : t[i];
    put_four(to + skip, end - column - skip, t);
    put_four(to + skip + 4, end - column - skip - 4, t + 4);
}

/* A row's numbers of a part: `sum` are all of a thread's. */
template <class S>
__device__ __forceinline__ void wide_row(const job &j, const float (&sum)[S::COLUMNS / 2], int part,
                                         int up, int row, int column, float (&v)[LANE])
{
    const int left = row < j.rows ? j.cols - column : 0;
    uint4 bias = make_uint4(0, 0, 0, 0), residual = bias;
    if (j.bias && left > 0)
        bias = fetch<any_results>(j.bias, column, left, j.whole);
    if (j.residual && left > 0)
        residual = fetch<any_results>(j.residual, (int64_t)row * j.cols + column, left, j.whole);
#pragma unroll
    for (int i = 0; i < LANE; i++)
        v[i] = sum[4 * (4 * part + i / 2) + 2 * up + i % 2];
    row_steps<typename S::T>(j, bias, residual, v);
}

/* The last part comes first: the others need numbers of the part behind them. `from`: the tile's
 * first column. */
template <class S>
__device__ __forceinline__ void put_wide(const job &j, const float (&sum)[S::COLUMNS / 2], int from,
                                         int row, int column)
{
    const int end = min(from + S::COLUMNS, j.cols);
    float next[2][BESIDE] = {};
#pragma unroll
    for (int i = S::PARTS - 1; i >= 0; i--) {
        if (from + i * PART >= end)
            continue;
#pragma unroll
        for (int up = 0; up < 2; up++) {
            float v[LANE];
            wide_row<S>(j, sum, i, up, row + 8 * up, column + i * PART, v);
            put_row(j, v, next[up], i == 0, row + 8 * up, column + i * PART, end);
        }
    }
}

/* --- a consumer --- */

template <class S> struct consumer {
    typedef typename S::T T;
    const ring<S> &r;
    const job &j;
    int group;
    hopper_turn t;
    uint32_t mine; /* parity of r.turn: the first consumer's first turn has come */

    __device__ consumer(const ring<S> &shared, const job &todo, int warpgroup)
        : r(shared), j(todo), group(warpgroup), t({0, 0}), mine(warpgroup == 0)
    {
    }

    /* Passes over stages that the other warpgroup reads. */
    __device__ __forceinline__ void skip(int stages)
    {
        int at = t.at + stages, rounds = at / S::STAGES;
        t.at = at - rounds * S::STAGES;
        t.parity ^= (uint32_t)rounds & 1;
    }

    __device__ __forceinline__ void free_stage(int at)
    {
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive(r.empty + at);
    }

    /* The products of the stage at t. */
    __device__ __forceinline__ void step(float (&sum)[S::SLABS][S::COLUMNS / 2], bool keep)
    {
        uint32_t a = shared_address(r.stages + t.at * S::STAGE), b = a + S::A;
        if (!S::APART)
            a += (uint32_t)(group * S::ROWS * LINE);
        const uint64_t of_a = descriptor_rows<LINE>(a), of_b = descriptor_rows<LINE>(b);
#pragma unroll
        for (int s = 0; s < S::SLABS; s++)
            wgmma_hold(sum[s]);
        wgmma_fence();
#pragma unroll
        for (int k = 0; k < LINE; k += 32)
#pragma unroll
            for (int s = 0; s < S::SLABS; s++)
                wgmma<T>(sum[s], descriptor_beyond(of_a, s * SLAB * LINE + k),
                         descriptor_beyond(of_b, k), keep || k > 0);
        wgmma_commit();
#pragma unroll
        for (int s = 0; s < S::SLABS; s++)
            wgmma_hold(sum[s]);
    }

    /* All products of a tile. A stage is free when the products behind it are under way. */
    __device__ __forceinline__ void multiply(float (&sum)[S::SLABS][S::COLUMNS / 2])
    {
        int before = -1;
        if (S::APART) {
            mbarrier_wait(r.turn + group, mine);
            mine ^= 1;
        }
#pragma unroll 1
        for (int k = 0; k < j.deep.steps; k++) {
            mbarrier_wait(r.full + t.at, t.parity);
            step(sum, k > 0);
            if (k > 0) {
                wgmma_wait<1>();
                free_stage(before);
            }
            before = t.at;
            t.next(S::STAGES);
        }
        if (S::APART && threadIdx.x % 32 == 0)
            mbarrier_arrive(r.turn + (CONSUMERS - 1 - group));
        wgmma_wait<0>();
#pragma unroll
        for (int s = 0; s < S::SLABS; s++)
            wgmma_hold(sum[s]);
        free_stage(before);
    }

    /* Operands are asked for some parts ahead, since they may come from far. */
    template <class W>
    __device__ __forceinline__ void store_slab(const float (&sum)[S::COLUMNS / 2], int row,
                                               int column)
    {
        const float floor = j.func == IR_UNARY_RELU ? 0 : -INFINITY;
        constexpr int AHEAD = W::AHEAD < S::PARTS ? W::AHEAD : S::PARTS;
        operands<W> with[AHEAD];
#pragma unroll
        for (int i = 0; i < AHEAD; i++)
            with[i].load(j, row, column + i * PART);
#pragma unroll
        for (int i = 0; i < S::PARTS; i++) {
            if (W::KNOWN || column + i * PART < j.cols)
                finish<S>(j, sum, i, with[i % AHEAD], floor, row, column + i * PART);
            if (i + AHEAD < S::PARTS)
                with[i % AHEAD].load(j, row, column + (i + AHEAD) * PART);
        }
    }

    template <class W>
    __device__ __forceinline__ void store_as(const float (&sum)[S::SLABS][S::COLUMNS / 2], int row,
                                             int column)
    {
        own_path(row); /* or addresses of all ways would be computed before the choice, and held */
        own_path(column);
#pragma unroll
        for (int s = 0; s < S::SLABS; s++)
            store_slab<W>(sum[s], row + s * SLAB, column);
    }

    /* `first`: the tile's first column; the thread's own first row and column. */
    __device__ __forceinline__ void store(const float (&sum)[S::SLABS][S::COLUMNS / 2], int first,
                                          int row, int column)
    {
        if constexpr (S::APART)
            if (j.wide) {
#pragma unroll
                for (int s = 0; s < S::SLABS; s++)
                    put_wide<S>(j, sum[s], first, row + s * SLAB, column);
                return;
            }
        bool whole = j.whole && first + S::COLUMNS <= j.cols && !j.late;
        bool plain = j.func == IR_UNARY_IDENTITY || j.func == IR_UNARY_RELU;
        if (whole && plain && !j.residual)
            store_as<whole_results<true, false>>(sum, row, column);
        else if (whole && plain)
            store_as<whole_results<true, true>>(sum, row, column);
        else if (whole && !j.residual)
            store_as<whole_results<false, false>>(sum, row, column);
        else
            store_as<any_results>(sum, row, column);
    }

    __device__ __forceinline__ void run(void)
    {
        int thread = (int)threadIdx.x % HOPPER_WARPGROUP, turn = 0;
        int row = thread / 32 * 16 + thread % 32 / 4 + (S::APART ? 0 : group * S::ROWS);
        for (int at = (int)blockIdx.x; at < j.m_tiles * j.n_tiles; at += (int)gridDim.x, turn++) {
            if (S::APART && turn % CONSUMERS != group) {
                skip(j.deep.steps);
                continue;
            }
            float sum[S::SLABS][S::COLUMNS / 2];
            multiply(sum);
            hopper_tile tile(j.m_tiles, j.n_tiles, at);
            store(sum, tile.n * S::COLUMNS, tile.m * S::TILE + row,
                  tile.n * S::COLUMNS + thread % 4 * LANE);
        }
    }
};

template <class S>
__global__ void __launch_bounds__(THREADS, 1)
    kernel(const __grid_constant__ hopper_maps m, const __grid_constant__ job j)
{
    KERNEL_SHARED(unsigned char, raw);
    ring<S> r(raw);
    int group = (int)threadIdx.x / HOPPER_WARPGROUP;
    if (threadIdx.x == 0) {
        tensor_prefetch(&m.a[0]);
        tensor_prefetch(&m.b[0]);
        for (int i = 0; i < S::STAGES; i++) {
            mbarrier_init(r.full + i, 1);
            mbarrier_init(r.empty + i, S::READERS);
        }
        for (int i = 0; i < CONSUMERS && S::APART; i++)
            mbarrier_init(r.turn + i, WARPS);
        mbarrier_fence();
    }
    __syncthreads();
    grid_go();
    if (group == CONSUMERS) {
        registers_fewer<40>();
        if (threadIdx.x == CONSUMERS * HOPPER_WARPGROUP)
            produce<S>(r, m, j);
        else
            grid_wait();
    } else {
        registers_more<232>();
        grid_wait();
        consumer<S>(r, j, group).run();
    }
}

/* --- launching --- */

inline struct job job_of(const struct kernel_matmul &p, int tile, int columns)
{
    struct job j = {};
    j.rows = (int)p.rows;
    j.cols = (int)p.cols;
    j.m_tiles = (j.rows + tile - 1) / tile;
    j.n_tiles = (j.cols + columns - 1) / columns;
    j.scale = p.scale;
    j.alpha = p.alpha;
    j.func = p.func;
    j.late = p.late;
    j.wide = p.wide;
    j.whole = p.cols % LANE == 0 && (uintptr_t)p.y % 16 == 0 && (uintptr_t)p.residual % 16 == 0 &&
              (uintptr_t)p.bias % 16 == 0;
    j.bias = p.bias;
    j.residual = p.residual;
    j.y = p.y;
    return j;
}

/* Where the sources and their weights lie, and boxes of so many of their rows. */
inline struct hopper_sources sources_of(const struct kernel_matmul &p, int dtype, int tall,
                                        int columns)
{
    const void *weights[2] = {p.b, p.second.b};
    struct hopper_sources s = {
        p.second.depth ? 2 : 1,
        {{p.a, dtype, p.rows, p.depth, &p.image, tall, LINE},
         {p.second.a, dtype, p.rows, p.second.depth, &p.second.image, tall, LINE}},
        {}};
    for (int i = 0; i < s.n; i++) {
        int64_t deep = kernel_matmul_packed_depth(s.a[i].image, s.a[i].depth);
        s.b[i] =
            hopper_matrix(weights[i], dtype, hopper_source_is_images(&s.a[i]) ? deep : s.a[i].depth,
                          deep, kernel_matmul_packed_rows(p.cols), columns, LINE);
    }
    return s;
}

/* Numbers that the kernel counts in. */
inline bool counts(const struct kernel_matmul &p, int tile, int columns)
{
    const int64_t most = INT32_MAX / 4;
    return p.rows >= 1 && p.cols >= 1 && p.depth >= 1 && p.second.depth >= 0 && p.rows <= most &&
           p.cols <= most && p.depth <= most && p.second.depth <= most &&
           kernel_matmul_packed_depth(&p.image, p.depth) <= most &&
           kernel_matmul_packed_depth(&p.second.image, p.second.depth) <= most &&
           kernel_ceil_div(p.rows, tile) * kernel_ceil_div(p.cols, columns) <= most;
}

template <class S>
cudaError_t launch_of(const struct kernel_call *call, const struct kernel_matmul &p)
{
    const int dtype = number_of<typename S::T>::dtype;
    int multiprocessors = kernel_multiprocessors(call);
    if ((p.wide && !S::APART) || !counts(p, S::TILE, S::COLUMNS))
        return cudaErrorNotSupported;
    struct hopper_sources from = sources_of(p, dtype, S::TILE, S::COLUMNS);
    if (!hopper_sources_fit(&from))
        return cudaErrorNotSupported;
    if (call->dry)
        return cudaSuccess;
    struct hopper_maps m = {};
    struct job j = job_of(p, S::TILE, S::COLUMNS);
    j.deep = hopper_sources_depth(&from);
    cudaError_t code = hopper_sources_open(&from, &m, &j.deep);
    if (code != cudaSuccess)
        return code;
    const int tiles = j.m_tiles * j.n_tiles;
    j.deep.once = tiles <= multiprocessors;
    return hopper_launch(kernel<S>, (unsigned)min(multiprocessors, tiles), 1, THREADS, S::SHARED,
                         call, m, j);
}

} // namespace matmul

#endif
