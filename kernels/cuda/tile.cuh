/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products and convolutions of 8-bit numbers on Hopper, from windows of x to results of 8 bits in
 * one launch: wgmma, and tensor copies for everything that is large, results and residuals too.
 * docs/kernels.md has a drawing.
 *
 * A block has two warpgroups that multiply, or up to four, and one more, whose warps each have one
 * thread that loads. What is multiplied is bytes by bytes, so that memory is the limit of most
 * layers: results go out and residuals come in by tensor copies, tiles ahead of their use. A
 * residual is loaded into the very slot of shared memory that takes the result.
 *
 *   shared    the warpgroups share a tile of 128 rows and a ring of stages with x's and the
 *             weights' lines: for much depth
 *   staying   the weights of a block's columns are loaded once and stay (STAY steps of depth), and
 *             each warpgroup has tiles of 64 rows and a ring of x of its own: while one finishes
 *             results, the other multiplies. For little depth and many rows. There may be three
 *             or four of them: results are many short steps that wait for each other, and more of
 *             them are under way then; but each has fewer registers
 *
 * Packed weights give a thread neighbouring columns (kernel_tile_row), 32 or 16 bytes of a line.
 * Lines of 128 bytes are swizzled, so that the eight rows which a quarter of a warp writes at a
 * time lie in different banks.
 *
 * tile_kind.cuh has what differs between integers and floats.
 *
 * Sums of two sources count in other units. When all of the first source has been added, sums are
 * brought to the units of the second one and rounded, and the rest is added to them.
 */
#ifndef INFERD_KERNELS_CUDA_TILE_CUH
#define INFERD_KERNELS_CUDA_TILE_CUH

#include "kernels/cuda/tile_kind.cuh"

namespace tile
{

constexpr int SLAB = 64; /* rows of a product */
constexpr int WARPS = HOPPER_WARPGROUP / 32;

/* STAY 0: shared. */
template <class X, int COLUMNS_, int STAY_, int STAGES_, int SLOTS_, int LINE_, int SIZE_ = 1,
          int CONSUMERS_ = 2>
struct shape {
    typedef kind<X> K;
    typedef typename K::Sum Sum;
    static constexpr int LINE = LINE_; /* bytes of a step */
    static constexpr int SIZE = SIZE_; /* of a result; 2: wide */
    static constexpr int CONSUMERS = CONSUMERS_, THREADS = (CONSUMERS + 1) * HOPPER_WARPGROUP;
    static constexpr int FIRST_LOADER = CONSUMERS * WARPS; /* the first warp that loads */
    static constexpr bool MANY = CONSUMERS > 2;            /* has no BENT results */
    static constexpr int REGISTERS = CONSUMERS == 2 ? 232 : CONSUMERS == 3 ? 152 : 104;
    static constexpr int COLUMNS = COLUMNS_, STAY = STAY_, STAGES = STAGES_, SLOTS = SLOTS_;
    static constexpr bool SHARES = STAY == 0;
    static constexpr int RINGS = SHARES ? 1 : CONSUMERS, TALL = SHARES ? CONSUMERS * SLAB : SLAB;
    static constexpr int A = TALL * LINE, B = COLUMNS * LINE, STAGE = A + (SHARES ? B : 0);
    static constexpr int BOX = COLUMNS * SIZE < 128 ? COLUMNS : 128 / SIZE; /* columns */
    static constexpr int BOXES = COLUMNS / BOX;
    static constexpr int ROW = BOX * SIZE, PIECE = SLAB * ROW; /* bytes of a box's line, of a box */
    static constexpr int SLOT = BOXES * PIECE;
    static constexpr int READERS = (SHARES ? CONSUMERS : 1) * WARPS; /* of a stage */
    static constexpr int BARRIERS = RINGS * STAGES * 2 + CONSUMERS * SLOTS * 2 + STAY;
    static constexpr int SHARED =
        HOPPER_ALIGN + STAY * B + RINGS * STAGES * STAGE + CONSUMERS * SLOTS * SLOT + BARRIERS * 8;
    static_assert(SHARED <= HOPPER_SHARED_MAX, "shared memory");
    static_assert(!(MANY && SHARES), "loaders for each consumer");
    static_assert(ROW == 128 || ROW == 64, "lines that a thread has a quarter of");
    static_assert(COLUMNS <= KERNEL_TILE_ROOM, "scales and biases");
};

template <class S> struct room { /* shared memory */
    unsigned char *weights, *stages, *slots;
    uint64_t *full, *empty, *come, *gone, *there; /* come, gone: of slots; there: of weights */
    __device__ explicit room(unsigned char *raw)
    {
        weights = shared_kept(raw);
        stages = weights + S::STAY * S::B;
        slots = stages + S::RINGS * S::STAGES * S::STAGE;
        full = reinterpret_cast<uint64_t *>(slots + S::CONSUMERS * S::SLOTS * S::SLOT);
        empty = full + S::RINGS * S::STAGES;
        come = empty + S::RINGS * S::STAGES;
        gone = come + S::CONSUMERS * S::SLOTS;
        there = gone + S::CONSUMERS * S::SLOTS;
    }
};

/* The tiles of a ring, in order. Staying weights: the grid is a multiple of the columns' tiles, and
 * a block keeps its own. */
template <class S> struct walk {
    const job &j;
    int at, step, fixed;
    __device__ __forceinline__ walk(const job &todo, int ring) : j(todo)
    {
        fixed = S::SHARES ? 0 : (int)blockIdx.x % j.n_tiles;
        at = S::SHARES ? (int)blockIdx.x : (int)blockIdx.x / j.n_tiles * S::CONSUMERS + ring;
        step = S::SHARES ? (int)gridDim.x : (int)gridDim.x / j.n_tiles * S::CONSUMERS;
    }
    __device__ __forceinline__ bool more(void) const
    {
        return at < (S::SHARES ? j.m_tiles * j.n_tiles : j.m_tiles);
    }
    __device__ __forceinline__ int row(void) const
    {
        return (S::SHARES ? at / j.n_tiles : at) * S::TALL;
    }
    __device__ __forceinline__ int column(void) const
    {
        return (S::SHARES ? at % j.n_tiles : fixed) * S::COLUMNS;
    }
};

/* --- threads that load --- */

template <class S>
__device__ __forceinline__ void load_staying(const room<S> &r, const hopper_maps &m, const job &j)
{
    int column = walk<S>(j, 0).column();
    for (int k = 0; k < j.deep.steps; k++) {
        mbarrier_expect(r.there + k, S::B);
        hopper_load_weights(r.weights + k * S::B, r.there + k, m, j.deep, k, column);
    }
}

/* A tile's residual, when the consumer's slot is free. */
template <class S>
__device__ __forceinline__ void load_slot(const room<S> &r, const CUtensorMap *z, int consumer,
                                          const walk<S> &w, hopper_turn &t)
{
    int slot = consumer * S::SLOTS + t.at;
    mbarrier_wait(r.gone + slot, t.parity ^ 1);
    mbarrier_expect(r.come + slot, S::SLOT);
    for (int i = 0; i < S::BOXES; i++)
        tensor_load_2d(r.slots + slot * S::SLOT + i * S::PIECE, z, r.come + slot,
                       w.column() + i * S::BOX, w.row() + (S::SHARES ? consumer * SLAB : 0));
    t.next(S::SLOTS);
}

/* One source after the other: a thread that loads has few registers, enough for one place. Of more
 * than two consumers each has a loader that brings residuals, too. */
template <class S>
__device__ __forceinline__ void load_steps(const room<S> &r, const hopper_maps &m,
                                           const CUtensorMap *z, const job &j, int ring)
{
    hopper_turn t = {0, 0}, slot = {0, 0};
    for (walk<S> w(j, ring); w.more(); w.at += w.step) {
        int k = 0;
#pragma unroll 1
        for (int source = 0; source < 2; source++) {
            const hopper_window &of = j.deep.of[source];
            hopper_place place(of, w.row());
            int first = k;
            int end = source ? j.deep.steps : j.deep.first;
#pragma unroll 1
            for (; k < end; k++) {
                int stage = ring * S::STAGES + t.at;
                unsigned char *to = r.stages + stage * S::STAGE;
                mbarrier_wait(r.empty + stage, t.parity ^ 1);
                mbarrier_expect(r.full + stage, S::STAGE);
                hopper_load_rows(to, &m.a[source], r.full + stage, of, place, k - first);
                if (S::SHARES)
                    hopper_load_weights(to + S::A, r.full + stage, m, j.deep, k, w.column());
                t.next(S::STAGES);
            }
        }
        if (S::MANY && j.residual)
            load_slot(r, z, ring, w, slot);
    }
}

template <class S>
__device__ __forceinline__ void load_residual(const room<S> &r, const CUtensorMap *z, const job &j,
                                              int consumer)
{
    hopper_turn t = {0, 0};
    for (walk<S> w(j, S::SHARES ? 0 : consumer); w.more(); w.at += w.step)
        load_slot(r, z, consumer, w, t);
}

/* --- results --- */

/* Where a thread's quarter of a line lies in a slot of boxes of 64 lines: 16 bytes of a piece. */
template <class S> struct places {
    int thread, t, row;
    __device__ __forceinline__ places(void)
        : thread((int)threadIdx.x % HOPPER_WARPGROUP), t(thread % 4),
          row(thread / 32 * 16 + thread % 32 / 4)
    {
    }
    __device__ __forceinline__ unsigned char *at(unsigned char *slot, int piece, int up) const
    {
        constexpr int CHUNKS = S::ROW / 64;
        int line = row + 8 * up, chunk = CHUNKS * t + piece % CHUNKS;
        chunk ^= S::ROW == 128 ? line % 8 : line / 2 % 4;
        return slot + piece / CHUNKS * S::PIECE + line * S::ROW + chunk * 16;
    }
};

/* A thread's sums of rows g and g + 8 of its warp's 16 -> its places in a slot. `residual` gives
 * what lies at a place, `factors` a quad's scales and biases. Without BENT there is no code for
 * activations, which would not stay in the instructions' cache. */
template <class S, bool RESIDUAL, bool BENT, class Z, class F>
__device__ __forceinline__ void results_by(const job &j,
                                           const typename S::Sum (&sum)[S::COLUMNS / 2],
                                           unsigned char *slot, const Z &residual, const F &factors)
{
    constexpr int CHUNKS = S::ROW / 64, QUADS = 4 / S::SIZE; /* of a thread's line, of 16 bytes */
    const places<S> mine;
#pragma unroll
    for (int piece = 0; piece < S::BOXES * CHUNKS; piece++) {
        unsigned char *at[2];
        uint32_t z[2][4], out[2][4];
#pragma unroll
        for (int up = 0; up < 2; up++) {
            at[up] = mine.at(slot, piece, up);
            if (RESIDUAL) {
                uint4 v = residual(piece, up, at[up]);
                z[up][0] = v.x, z[up][1] = v.y, z[up][2] = v.z, z[up][3] = v.w;
            }
        }
#pragma unroll
        for (int i = 0; i < QUADS; i++) {
            const int q = piece * QUADS + i; /* of 16 columns, of which the thread has 4 */
            float4 s, b;
            factors(q, s, b);
#pragma unroll
            for (int up = 0; up < 2; up++) {
                const int first = 8 * q + 2 * up;
                const float four[4] = {(float)sum[first], (float)sum[first + 1],
                                       (float)sum[first + 4], (float)sum[first + 5]};
                if constexpr (S::SIZE == 1) {
                    out[up][i] = S::K::template finish<RESIDUAL, BENT>(j, four, s, b,
                                                                       RESIDUAL ? z[up][i] : 0);
                } else {
                    uint2 with = make_uint2(0, 0);
                    if (RESIDUAL)
                        with = make_uint2(z[up][2 * i], z[up][2 * i + 1]);
                    uint2 two = finish_wide<RESIDUAL, BENT>(j, four, s, b, with);
                    out[up][2 * i] = two.x, out[up][2 * i + 1] = two.y;
                }
            }
        }
#pragma unroll
        for (int up = 0; up < 2; up++)
            shared_put(at[up], make_uint4(out[up][0], out[up][1], out[up][2], out[up][3]));
    }
}

/* The scales or biases of a thread's columns: quad q is 4 q numbers further on. */
__device__ __forceinline__ const float4 *quads_of(const float *numbers, int column)
{
    int t = (int)threadIdx.x % HOPPER_WARPGROUP % 4;
    return reinterpret_cast<const float4 *>(numbers + column + t * 4);
}

/* With all read where it is needed. With BENT, a residual that is not there is 0. */
template <class S, bool RESIDUAL, bool BENT>
__device__ __forceinline__ void results(const job &j, const typename S::Sum (&sum)[S::COLUMNS / 2],
                                        unsigned char *slot, int column)
{
    const float4 *scale = quads_of(j.scale, column), *bias = quads_of(j.bias, column);
    results_by<S, RESIDUAL, BENT>(
        j, sum, slot,
        [&](int, int, const unsigned char *at) {
            return !BENT || j.residual ? *reinterpret_cast<const uint4 *>(at)
                                       : make_uint4(0, 0, 0, 0);
        },
        [&](int q, float4 &s, float4 &b) { s = __ldg(scale + 4 * q), b = __ldg(bias + 4 * q); });
}

/* Calls `put` with the number of each of a thread's sums, and its channel's ratio. */
template <int N, class F>
__device__ __forceinline__ void each_ratio(const job &j, int column, const F &put)
{
    const int t4 = (int)threadIdx.x % 4 * 4;
    const float4 *ratio = reinterpret_cast<const float4 *>(j.ratio + column + t4);
#pragma unroll
    for (int q = 0; q < N / 8; q++) {
        float4 by = __ldg(ratio + q * 4);
        const float each[4] = {by.x, by.y, by.z, by.w};
#pragma unroll
        for (int i = 0; i < 8; i++) /* two columns, of rows g and g + 8, and two more */
            put(8 * q + i, each[i / 4 * 2 + i % 2]);
    }
}

/* Adds the products of a step of LINE bytes, of lines at a and b in shared memory, to sums, unless
 * they are the first. */
template <class K, int LINE, int R>
__device__ __forceinline__ void multiply_lines(typename K::Sum (&sum)[R], uint32_t a, uint32_t b,
                                               bool first)
{
    const uint64_t of_a = descriptor_rows<LINE>(a), of_b = descriptor_rows<LINE>(b);
#pragma unroll
    for (int i = 0; i < LINE; i += 32)
        K::multiply(sum, descriptor_beyond(of_a, i), descriptor_beyond(of_b, i), !first || i > 0);
}

/* --- a consumer --- */

/* Waits until the consumer's slot is its tile's: the residual has come, or what was in the slot is
 * gone. A slot is given to the next residual when its result has been read, one tile later.
 * `leads`: this thread stores; `again`: it has stored before. */
template <int SLOTS, class R>
__device__ __forceinline__ void take_slot(const R &r, int consumer, const hopper_turn &slot,
                                          bool residual, bool leads, bool again)
{
    int first = consumer * SLOTS;
    if (!residual) {
        if (leads)
            store_wait_read<SLOTS - 1>();
        named_sync(1 + consumer, HOPPER_WARPGROUP);
        return;
    }
    if (leads && again) {
        store_wait_read<0>();
        mbarrier_arrive(r.gone + first + (slot.at + SLOTS - 1) % SLOTS);
    }
    mbarrier_wait(r.come + first + slot.at, slot.parity);
}

template <class S> struct consumer {
    typedef typename S::Sum Sum;
    const room<S> &r;
    const job &j;
    const CUtensorMap *y;
    int group, ring;
    hopper_turn t, slot;
    bool leads, again; /* again: it has stored before */
    bool near;         /* see kind::converted */

    __device__ consumer(const room<S> &shared, const job &todo, const CUtensorMap *to,
                        int warpgroup)
        : r(shared), j(todo), y(to), group(warpgroup), ring(S::SHARES ? 0 : warpgroup), t({0, 0}),
          slot({0, 0}), leads(threadIdx.x % HOPPER_WARPGROUP == 0), again(false),
          near(todo.most && __ldg(todo.most) < NEAR_MOST)
    {
    }

    __device__ __forceinline__ void free_stage(int at)
    {
        if (threadIdx.x % 32 == 0)
            mbarrier_arrive(r.empty + ring * S::STAGES + at);
    }

    /* The products of the stage at t. */
    __device__ __forceinline__ void step(Sum (&sum)[S::COLUMNS / 2], int k)
    {
        uint32_t a = shared_address(r.stages + (ring * S::STAGES + t.at) * S::STAGE);
        uint32_t b = S::SHARES ? a + S::A : shared_address(r.weights + k * S::B);
        if (S::SHARES)
            a += (uint32_t)(group * SLAB * S::LINE);
        wgmma_hold(sum);
        wgmma_fence();
        multiply_lines<typename S::K, S::LINE>(sum, a, b, k == 0);
        wgmma_commit();
        wgmma_hold(sum);
    }

    /* All products are done. */
    __device__ __forceinline__ void settle(Sum (&sum)[S::COLUMNS / 2], int before)
    {
        wgmma_wait<0>();
        wgmma_hold(sum);
        free_stage(before);
    }

    /* Sums of the first source become those that the second one's are added to. */
    template <bool NEAR>
    __device__ __forceinline__ void convert(Sum (&sum)[S::COLUMNS / 2], int column)
    {
        each_ratio<S::COLUMNS / 2>(j, column, [&](int i, float ratio) {
            sum[i] = S::K::template converted<NEAR>((float)sum[i], ratio);
        });
    }

    /* All products of a tile. A stage is free when the products behind it are under way. */
    __device__ __forceinline__ void multiply(Sum (&sum)[S::COLUMNS / 2], int column)
    {
        int before = -1;
#pragma unroll 1
        for (int k = 0; k < j.deep.steps; k++) {
            if (k == j.deep.first) {
                settle(sum, before);
                if (near)
                    convert<true>(sum, column);
                else
                    convert<false>(sum, column);
                before = -1;
            }
            if (!S::SHARES && !again)
                mbarrier_wait(r.there + k, 0);
            mbarrier_wait(r.full + ring * S::STAGES + t.at, t.parity);
            step(sum, k);
            if (before >= 0) {
                wgmma_wait<1>();
                free_stage(before);
            }
            before = t.at;
            t.next(S::STAGES);
        }
        settle(sum, before);
    }

    __device__ __forceinline__ void store(const Sum (&sum)[S::COLUMNS / 2], int row, int column)
    {
        unsigned char *to = r.slots + (group * S::SLOTS + slot.at) * S::SLOT;
        take_slot<S::SLOTS>(r, group, slot, j.residual, leads, again);
        if (!S::MANY && j.bent)
            results<S, true, !S::MANY>(j, sum, to, column);
        else if (j.residual)
            results<S, true, false>(j, sum, to, column);
        else
            results<S, false, false>(j, sum, to, column);
        proxy_fence();
        named_sync(1 + group, HOPPER_WARPGROUP);
        if (leads) {
            for (int i = 0; i < S::BOXES; i++)
                tensor_store_2d(y, to + i * S::PIECE, column + i * S::BOX, row);
            store_commit();
        }
        again = true;
        slot.next(S::SLOTS);
    }

    __device__ __forceinline__ void run(void)
    {
        for (walk<S> w(j, ring); w.more(); w.at += w.step) {
            Sum sum[S::COLUMNS / 2];
            multiply(sum, w.column());
            store(sum, w.row() + (S::SHARES ? group * SLAB : 0), w.column());
        }
        if (leads)
            store_wait_all();
    }
};

template <class S>
__device__ __forceinline__ void load(const room<S> &r, const hopper_maps &m, const CUtensorMap *z,
                                     const job &j)
{
    int loader = (int)threadIdx.x / 32 - S::FIRST_LOADER;
    if (!S::SHARES && loader == 0)
        load_staying(r, m, j); /* no kernel writes weights */
    grid_wait();
    grid_fence();
    if (loader < S::RINGS)
        load_steps(r, m, z, j, loader);
    else if (!S::MANY && loader >= S::CONSUMERS && j.residual)
        load_residual(r, z, j, loader - S::CONSUMERS);
}

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1)
    kernel(const __grid_constant__ hopper_maps m, const __grid_constant__ CUtensorMap z,
           const __grid_constant__ CUtensorMap y, const __grid_constant__ job j)
{
    KERNEL_SHARED(unsigned char, raw);
    room<S> r(raw);
    int group = (int)threadIdx.x / HOPPER_WARPGROUP;
    if (threadIdx.x == 0) {
        tensor_prefetch(&m.a[0]);
        tensor_prefetch(&m.b[0]);
        tensor_prefetch(&y);
        for (int i = 0; i < S::RINGS * S::STAGES; i++) {
            mbarrier_init(r.full + i, 1);
            mbarrier_init(r.empty + i, S::READERS);
        }
        for (int i = 0; i < S::CONSUMERS * S::SLOTS; i++) {
            mbarrier_init(r.come + i, 1);
            mbarrier_init(r.gone + i, 1);
        }
        for (int i = 0; i < S::STAY; i++)
            mbarrier_init(r.there + i, 1);
        mbarrier_fence();
    }
    __syncthreads();
    grid_go();
    if (group == S::CONSUMERS) {
        registers_fewer<40>();
        if (threadIdx.x % 32 == 0)
            load<S>(r, m, &z, j);
        else
            grid_wait();
    } else {
        registers_more<S::REGISTERS>();
        grid_wait();
        consumer<S>(r, j, &y, group).run();
    }
}

/* --- launching --- */

/* Where the sources and their weights lie, as boxes of so many rows and the shape's columns. */
template <class S> struct hopper_sources sources_of(const struct kernel_tile &p, int tall)
{
    const void *weights[2] = {p.weights, p.second.weights};
    struct hopper_sources s = {
        p.second.depth ? 2 : 1,
        {{p.x, p.x_dtype, p.rows, p.depth, &p.image, tall, S::LINE},
         {p.second.x, p.x_dtype, p.rows, p.second.depth, &p.second.image, tall, S::LINE}},
        {}};
    for (int i = 0; i < s.n; i++) {
        int64_t deep = kernel_tile_depth(s.a[i].image, s.a[i].depth, S::LINE);
        s.b[i] = hopper_matrix(weights[i], DTYPE_I8, deep, deep, kernel_tile_rows(p.cols),
                               S::COLUMNS, S::LINE);
    }
    return s;
}

/* Results; `data` may be residuals, which lie like them. */
template <class S> struct hopper_tensor results_of(const struct kernel_tile &p, const void *data)
{
    return hopper_matrix(data, p.y_dtype, p.cols, p.cols, p.rows, SLAB, S::ROW);
}

inline bool is_wide(const struct kernel_tile &p)
{
    return p.y_dtype == DTYPE_F16 || p.y_dtype == DTYPE_BF16;
}

/* All that happens to sums. */
inline struct job finish_of(const struct kernel_tile &p)
{
    const bool real = p.x_dtype == DTYPE_F8 || is_wide(p);
    struct job j = {};
    j.scale = p.scale;
    j.bias = p.bias;
    j.ratio = p.second.ratio;
    j.most = p.second.most;
    j.residual = p.residual != nullptr;
    j.residual_step = p.residual_step;
    j.low = p.low;
    j.high = p.high;
    j.func = p.func;
    j.alpha = p.alpha;
    j.to = p.to;
    j.zero = p.zero;
    j.late = p.late;
    j.bf16 = p.y_dtype == DTYPE_BF16;
    j.limited =
        real ? p.low > -FLT_MAX || p.high < FLT_MAX : (p.low > -128 && p.low != 0) || p.high < 127;
    j.cut = p.low == 0 ? UINT32_MAX : 0;
    j.bent = p.func != IR_UNARY_IDENTITY || (j.limited && !real);
    j.residual_turn = p.residual_dtype == DTYPE_U8 ? 0x80808080u : 0;
    j.turn = p.y_dtype == DTYPE_U8 ? 0x80808080u : 0;
    return j;
}

template <class S> struct job job_of(const struct kernel_tile &p, const struct hopper_sources &from)
{
    struct job j = finish_of(p);
    j.m_tiles = (int)kernel_ceil_div(p.rows, S::TALL);
    j.n_tiles = (int)kernel_ceil_div(p.cols, S::COLUMNS);
    j.deep = hopper_sources_depth(&from);
    return j;
}

/* Numbers that the kernel counts in. */
inline bool counts(const struct kernel_tile &p, int line, int columns)
{
    const int64_t most = INT32_MAX / 4;
    return p.cols >= 1 && p.cols <= most && p.second.depth >= 0 &&
           kernel_tile_depth(&p.image, p.depth, line) <= most &&
           kernel_tile_depth(&p.second.image, p.second.depth, line) <= most &&
           kernel_ceil_div(p.rows, SLAB) * kernel_ceil_div(p.cols, columns) <= most;
}

template <class S>
cudaError_t launch_of(const struct kernel_call *call, const struct kernel_tile &p)
{
    int multiprocessors = kernel_multiprocessors(call);
    if (!counts(p, S::LINE, S::COLUMNS) || is_wide(p) != (S::SIZE == 2))
        return cudaErrorNotSupported;
    struct hopper_sources from = sources_of<S>(p, S::TALL);
    struct hopper_tensor y = results_of<S>(p, p.y);
    struct hopper_tensor residual = results_of<S>(p, p.residual ? p.residual : p.y);
    if (!hopper_sources_fit(&from) || !hopper_tensor_fits(&y) || !hopper_tensor_fits(&residual))
        return cudaErrorNotSupported;
    struct job j = job_of<S>(p, from);
    if ((!S::SHARES && j.deep.steps > S::STAY) || (S::MANY && j.bent))
        return cudaErrorNotSupported;
    if (call->dry)
        return cudaSuccess;
    struct hopper_maps m = {};
    CUtensorMap to_y, to_residual;
    cudaError_t code = hopper_sources_open(&from, &m, &j.deep);
    if (code == cudaSuccess)
        code = hopper_map(&residual, &to_residual);
    if (code == cudaSuccess)
        code = hopper_map(&y, &to_y);
    if (code != cudaSuccess)
        return code;
    int blocks = S::SHARES ? min(multiprocessors, j.m_tiles * j.n_tiles)
                           : min(max(multiprocessors / j.n_tiles, 1),
                                 (j.m_tiles + S::CONSUMERS - 1) / S::CONSUMERS) *
                                 j.n_tiles;
    j.deep.once = j.m_tiles * j.n_tiles <= blocks * (S::SHARES ? 1 : S::CONSUMERS);
    return hopper_launch(kernel<S>, (unsigned)blocks, 1, S::THREADS, S::SHARED, call, m,
                         to_residual, to_y, j);
}

} // namespace tile

#endif
