/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two products of 8-bit numbers in a row on Hopper, both in one launch: the end of a residual block
 * and the 1x1 convolution behind it. The result of the first one goes to memory, since others read
 * it as well, and from shared memory into the second one.
 *
 * Each of two or three warpgroups has tiles of 64 rows, a ring of x, slots for results, and a
 * thread that loads for it; all weights stay. A tile's results are made chunk by chunk, 128 columns
 * at a time: a residual comes into a slot, a chunk's results take its place, and the slot, whose
 * lines are swizzled as tensor copies and products want them, is written to memory and is an
 * operand of the second product, whose sums stay in registers until the tile's end.
 *
 *   slots        |z0|z1|z0'|z1'| ..                                        loader
 *   consumer     |x w0|y0 -> slot|y0 v0, x w1|y1 -> slot|y1 v1|t -> slot|  next tile
 *                      | copy of y0 to memory |    | of y1 |     | of t |
 *
 * A slot is free when all warps have seen the product that read it done, and its copy has been
 * read: one chunk later.
 */
#ifndef INFERD_KERNELS_CUDA_CHAIN_CUH
#define INFERD_KERNELS_CUDA_CHAIN_CUH

#include "kernels/cuda/tile.cuh"

namespace tile
{

struct chain_job {
    job first, next;
    int chunks; /* of the first product's columns */
};

enum {
    CHAIN_STEP = 64,   /* bytes of a step of the first product's depth */
    CHAIN_STEPS = 2,   /* that there may be, of both sources */
    CHAIN_CHUNK = 128, /* columns, and bytes of a slot's line */
    CHAIN_CHUNKS = 2,  /* that there may be */
    CHAIN_STAGES = 4,  /* of x */
};

/* Up to NEXT columns of the second product. AHEAD: quads of scales and biases that are read while a
 * chunk's sums are made; residuals are then, too, unless it is 0, for want of registers. */
template <class X_, int NEXT_, int SLOTS_, int CONSUMERS_, int AHEAD_> struct chain_shape {
    typedef X_ X;
    typedef kind<X> K;
    typedef typename K::Sum Sum;
    static constexpr int NEXT = NEXT_, SLOTS = SLOTS_, CONSUMERS = CONSUMERS_, AHEAD = AHEAD_;
    static constexpr int THREADS = (CONSUMERS + 1) * HOPPER_WARPGROUP;
    static constexpr int FIRST_LOADER = CONSUMERS * WARPS;
    static constexpr int REGISTERS = CONSUMERS == 2 ? 232 : 152;
    /* what results_by() reads of a shape */
    typedef shape<X, CHAIN_CHUNK, 1, 2, 2, CHAIN_STEP> Chunk;
    typedef shape<X, NEXT, 1, 2, 2, 128> Next;
    static constexpr int A = SLAB * CHAIN_STEP, W = CHAIN_CHUNK * CHAIN_STEP,
                         V = NEXT * CHAIN_CHUNK;
    static constexpr int SLOT = SLAB * CHAIN_CHUNK, T = SLAB * NEXT;
    static constexpr int BARRIERS = CONSUMERS * (CHAIN_STAGES + SLOTS) * 2 + CHAIN_CHUNKS;
    static constexpr int SHARED = HOPPER_ALIGN + CHAIN_CHUNKS * (CHAIN_STEPS * W + V) +
                                  CONSUMERS * (CHAIN_STAGES * A + SLOTS * SLOT + T) + BARRIERS * 8;
    static_assert(SHARED <= HOPPER_SHARED_MAX, "shared memory");
    static_assert(CHAIN_STAGES >= 2 * CHAIN_STEPS, "a tile's x stays until its last chunk");
    static_assert(SLOTS >= 2, "a slot is free one chunk later");
};

template <class S> struct chain_room { /* shared memory */
    unsigned char *w, *v, *x, *slots, *t;
    uint64_t *full, *empty, *come, *gone, *there; /* there: a chunk's weights, of both products */
    __device__ explicit chain_room(unsigned char *raw)
    {
        w = shared_kept(raw);
        v = w + CHAIN_STEPS * CHAIN_CHUNKS * S::W;
        x = v + CHAIN_CHUNKS * S::V;
        slots = x + S::CONSUMERS * CHAIN_STAGES * S::A;
        t = slots + S::CONSUMERS * S::SLOTS * S::SLOT;
        full = reinterpret_cast<uint64_t *>(t + S::CONSUMERS * S::T);
        empty = full + S::CONSUMERS * CHAIN_STAGES;
        come = empty + S::CONSUMERS * CHAIN_STAGES;
        gone = come + S::CONSUMERS * S::SLOTS;
        there = gone + S::CONSUMERS * S::SLOTS;
    }
};

struct chain_maps {
    hopper_maps m; /* of x and w */
    CUtensorMap z, y, v, t;
};

/* A consumer's first tile: of few tiles each block gets one before any gets a second. */
__device__ __forceinline__ int chain_first(int consumer)
{
    return (int)blockIdx.x + consumer * (int)gridDim.x;
}

/* --- threads that load --- */

template <class S>
__device__ __forceinline__ void chain_load_staying(const chain_room<S> &r, const chain_maps &m,
                                                   const chain_job &j)
{
    const hopper_depth &deep = j.first.deep;
    for (int c = 0; c < j.chunks; c++) {
        mbarrier_expect(r.there + c, deep.steps * S::W + S::V);
        for (int k = 0; k < deep.steps; k++)
            hopper_load_weights(r.w + (k * CHAIN_CHUNKS + c) * S::W, r.there + c, m.m, deep, k,
                                c * CHAIN_CHUNK);
        tensor_load_2d(r.v + c * S::V, &m.v, r.there + c, c * CHAIN_CHUNK, 0);
    }
}

/* For one consumer: x of a tile, from both sources. */
template <class S>
__device__ __forceinline__ void chain_load_rows(const chain_room<S> &r, const chain_maps &m,
                                                const chain_job &j, int consumer, int row,
                                                hopper_turn &t)
{
    int k = 0;
#pragma unroll 1
    for (int source = 0; source < 2; source++) {
        const hopper_window &of = j.first.deep.of[source];
        int first = k, end = source ? j.first.deep.steps : j.first.deep.first;
        hopper_place place(of, row);
#pragma unroll 1
        for (; k < end; k++) {
            int stage = consumer * CHAIN_STAGES + t.at;
            mbarrier_wait(r.empty + stage, t.parity ^ 1);
            mbarrier_expect(r.full + stage, S::A);
            hopper_load_rows(r.x + stage * S::A, &m.m.a[source], r.full + stage, of, place,
                             k - first);
            t.next(CHAIN_STAGES);
        }
    }
}

template <class S>
__device__ __forceinline__ void chain_load_residual(const chain_room<S> &r, const chain_maps &m,
                                                    const chain_job &j, int consumer, int row,
                                                    hopper_turn &t)
{
#pragma unroll 1
    for (int c = 0; c < j.chunks; c++) {
        int slot = consumer * S::SLOTS + t.at;
        mbarrier_wait(r.gone + slot, t.parity ^ 1);
        mbarrier_expect(r.come + slot, S::SLOT);
        tensor_load_2d(r.slots + slot * S::SLOT, &m.z, r.come + slot, c * CHAIN_CHUNK, row);
        t.next(S::SLOTS);
    }
}

/* x is a tile ahead: slots are free late. */
template <class S>
__device__ __forceinline__ void chain_load(const chain_room<S> &r, const chain_maps &m,
                                           const chain_job &j, int consumer)
{
    hopper_turn t = {0, 0}, slot = {0, 0};
    int step = (int)gridDim.x * S::CONSUMERS;
    int at = chain_first(consumer), ahead = at;
    for (; at < j.first.m_tiles; at += step) {
        for (; ahead <= at + step && ahead < j.first.m_tiles; ahead += step)
            chain_load_rows(r, m, j, consumer, ahead * SLAB, t);
        if (j.first.residual)
            chain_load_residual(r, m, j, consumer, at * SLAB, slot);
    }
}

/* --- a consumer --- */

/* What makes results of a chunk's sums, read while they are made: residuals, and the scales and
 * biases of the first quads. */
template <class S> struct chain_ahead {
    static constexpr int PIECES = S::Chunk::BOXES * S::Chunk::ROW / 64;
    static constexpr int ROOM = S::AHEAD > 0 ? S::AHEAD : 1;
    uint4 z[PIECES][2];
    float4 scale[ROOM], bias[ROOM];
    const float4 *scales, *biases;

    __device__ __forceinline__ void read_factors(const job &j, int column)
    {
        own_path(column); /* addresses would be kept in registers from chunk to chunk */
        scales = quads_of(j.scale, column);
        biases = quads_of(j.bias, column);
#pragma unroll
        for (int q = 0; q < S::AHEAD; q++) {
            scale[q] = __ldg(scales + 4 * q);
            bias[q] = __ldg(biases + 4 * q);
        }
    }

    __device__ __forceinline__ void read_residual(unsigned char *slot)
    {
        const places<typename S::Chunk> mine;
#pragma unroll
        for (int piece = 0; piece < PIECES && S::AHEAD > 0; piece++)
#pragma unroll
            for (int up = 0; up < 2; up++)
                z[piece][up] = *reinterpret_cast<const uint4 *>(mine.at(slot, piece, up));
    }

    template <bool RESIDUAL>
    __device__ __forceinline__ void results(const job &j,
                                            const typename S::Sum (&sum)[CHAIN_CHUNK / 2],
                                            unsigned char *slot) const
    {
        results_by<typename S::Chunk, RESIDUAL, false>(
            j, sum, slot,
            [&](int piece, int up, const unsigned char *at) {
                return S::AHEAD > 0 ? z[piece][up] : *reinterpret_cast<const uint4 *>(at);
            },
            [&](int q, float4 &s, float4 &b) {
                s = q < S::AHEAD ? scale[q % ROOM] : __ldg(scales + 4 * q);
                b = q < S::AHEAD ? bias[q % ROOM] : __ldg(biases + 4 * q);
            });
    }
};

template <class S> struct chain_consumer {
    typedef typename S::Sum Sum;
    const chain_room<S> &r;
    const chain_job &j;
    const chain_maps &m;
    int group;
    hopper_turn t, slot;
    bool leads, again; /* again: it has all weights */
    bool near;         /* see kind::converted */

    __device__ chain_consumer(const chain_room<S> &shared, const chain_job &todo,
                              const chain_maps &maps, int warpgroup)
        : r(shared), j(todo), m(maps), group(warpgroup), t({0, 0}), slot({0, 0}),
          leads(threadIdx.x % HOPPER_WARPGROUP == 0), again(false),
          near(todo.first.most && __ldg(todo.first.most) < NEAR_MOST)
    {
    }

    /* Step k of chunk c, x's stage being at `at`. */
    __device__ __forceinline__ void step(Sum (&sum)[CHAIN_CHUNK / 2], int c, int k, int at)
    {
        wgmma_hold(sum);
        wgmma_fence();
        multiply_lines<typename S::K, CHAIN_STEP>(
            sum, shared_address(r.x + (group * CHAIN_STAGES + at) * S::A),
            shared_address(r.w + (k * CHAIN_CHUNKS + c) * S::W), k == 0);
        wgmma_commit();
        wgmma_hold(sum);
    }

    template <bool NEAR>
    __device__ __forceinline__ void convert(Sum (&sum)[CHAIN_CHUNK / 2], int column)
    {
        each_ratio<CHAIN_CHUNK / 2>(j.first, column, [&](int i, float ratio) {
            sum[i] = S::K::template converted<NEAR>((float)sum[i], ratio);
        });
    }

    /* The first product of chunk c, and the second one of the chunk before are done then. The last
     * chunk lets x go. */
    __device__ __forceinline__ void multiply(Sum (&sum)[CHAIN_CHUNK / 2], Sum (&next)[S::NEXT / 2],
                                             int c, chain_ahead<S> &ahead)
    {
        hopper_turn at = t;
        ahead.read_factors(j.first, c * CHAIN_CHUNK);
        if (!again)
            mbarrier_wait(r.there + c, 0);
#pragma unroll 1
        for (int k = 0; k < j.first.deep.steps; k++) {
            if (k == j.first.deep.first) {
                wgmma_wait<0>();
                wgmma_hold(sum);
                if (near)
                    convert<true>(sum, c * CHAIN_CHUNK);
                else
                    convert<false>(sum, c * CHAIN_CHUNK);
            }
            mbarrier_wait(r.full + group * CHAIN_STAGES + at.at, at.parity);
            step(sum, c, k, at.at);
            at.next(CHAIN_STAGES);
        }
        if (j.first.residual) {
            const int place = group * S::SLOTS + slot.at;
            mbarrier_wait(r.come + place, slot.parity);
            ahead.read_residual(r.slots + place * S::SLOT);
        }
        wgmma_wait<0>();
        wgmma_hold(sum);
        wgmma_hold(next);
        if (c + 1 < j.chunks)
            return;
#pragma unroll 1
        for (int k = 0; k < j.first.deep.steps; k++) {
            if (threadIdx.x % 32 == 0)
                mbarrier_arrive(r.empty + group * CHAIN_STAGES + t.at);
            t.next(CHAIN_STAGES);
        }
    }

    /* Makes a chunk's results in its slot. Behind the barrier all earlier slots have been read. */
    __device__ __forceinline__ void store(const Sum (&sum)[CHAIN_CHUNK / 2],
                                          const chain_ahead<S> &ahead, int c, int row)
    {
        const int first = group * S::SLOTS;
        unsigned char *to = r.slots + (first + slot.at) * S::SLOT;
        if (j.first.residual)
            ahead.template results<true>(j.first, sum, to);
        else
            ahead.template results<false>(j.first, sum, to);
        proxy_fence();
        if (leads)
            store_wait_read<0>();
        named_sync(1 + group, HOPPER_WARPGROUP);
        if (!leads)
            return;
        if (j.first.residual && (again || c > 0))
            mbarrier_arrive(r.gone + first + (slot.at + S::SLOTS - 1) % S::SLOTS);
        tensor_store_2d(&m.y, to, c * CHAIN_CHUNK, row);
        store_commit();
    }

    /* Asks for the second product of the chunk in the slot. */
    __device__ __forceinline__ void ask_next(Sum (&next)[S::NEXT / 2], int c)
    {
        wgmma_hold(next);
        wgmma_fence();
        multiply_lines<typename S::K, CHAIN_CHUNK>(
            next, shared_address(r.slots + (group * S::SLOTS + slot.at) * S::SLOT),
            shared_address(r.v + c * S::V), c == 0);
        wgmma_commit();
        wgmma_hold(next);
    }

    __device__ __forceinline__ void store_next(const Sum (&next)[S::NEXT / 2], int row)
    {
        unsigned char *to = r.t + group * S::T;
        results<typename S::Next, false, false>(j.next, next, to, 0);
        proxy_fence();
        named_sync(1 + group, HOPPER_WARPGROUP);
        if (leads) {
            tensor_store_2d(&m.t, to, 0, row);
            store_commit();
        }
    }

    __device__ __forceinline__ void run(void)
    {
        for (int at = chain_first(group); at < j.first.m_tiles;
             at += (int)gridDim.x * S::CONSUMERS) {
            Sum next[S::NEXT / 2];
#pragma unroll 1
            for (int c = 0; c < j.chunks; c++) {
                Sum sum[CHAIN_CHUNK / 2];
                chain_ahead<S> ahead;
                multiply(sum, next, c, ahead);
                store(sum, ahead, c, at * SLAB);
                ask_next(next, c);
                slot.next(S::SLOTS);
            }
            wgmma_wait<0>();
            wgmma_hold(next);
            store_next(next, at * SLAB);
            again = true;
        }
        if (leads)
            store_wait_all();
    }
};

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1)
    chain_kernel(const __grid_constant__ chain_maps m, const __grid_constant__ chain_job j)
{
    KERNEL_SHARED(unsigned char, raw);
    chain_room<S> r(raw);
    int group = (int)threadIdx.x / HOPPER_WARPGROUP;
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::CONSUMERS * CHAIN_STAGES; i++) {
            mbarrier_init(r.full + i, 1);
            mbarrier_init(r.empty + i, WARPS);
        }
        for (int i = 0; i < S::CONSUMERS * S::SLOTS; i++) {
            mbarrier_init(r.come + i, 1);
            mbarrier_init(r.gone + i, 1);
        }
        for (int i = 0; i < CHAIN_CHUNKS; i++)
            mbarrier_init(r.there + i, 1);
        mbarrier_fence();
    }
    __syncthreads();
    grid_go();
    if (group < S::CONSUMERS) {
        registers_more<S::REGISTERS>();
        grid_wait();
        chain_consumer<S>(r, j, m, group).run();
        return;
    }
    registers_fewer<40>();
    int loader = (int)threadIdx.x / 32 - S::FIRST_LOADER;
    bool loads = threadIdx.x % 32 == 0 && loader < S::CONSUMERS;
    if (loads && loader == 0)
        chain_load_staying(r, m, j); /* no kernel writes weights */
    grid_wait();
    if (loads) {
        grid_fence();
        chain_load(r, m, j, loader);
    }
}

/* --- launching --- */

template <class S> struct hopper_sources chain_sources(const struct kernel_tile &p)
{
    const void *weights[2] = {p.weights, p.second.weights};
    struct hopper_sources s = {
        p.second.depth ? 2 : 1,
        {{p.x, p.x_dtype, p.rows, p.depth, &p.image, SLAB, CHAIN_STEP},
         {p.second.x, p.x_dtype, p.rows, p.second.depth, &p.second.image, SLAB, CHAIN_STEP}},
        {}};
    for (int i = 0; i < s.n; i++) {
        int64_t deep = kernel_tile_depth(s.a[i].image, s.a[i].depth, CHAIN_STEP);
        s.b[i] = hopper_matrix(weights[i], DTYPE_I8, deep, deep, kernel_tile_rows(p.cols),
                               CHAIN_CHUNK, CHAIN_STEP);
    }
    return s;
}

/* What happens to the sums of the second product, as finish_of reads it. */
inline struct kernel_tile chain_next(const struct kernel_chain &p)
{
    struct kernel_tile t = {};
    t.x_dtype = p.first.y_dtype;
    t.y_dtype = p.next.t_dtype;
    t.scale = p.next.scale;
    t.bias = p.next.bias;
    t.low = p.next.low;
    t.high = p.next.high;
    t.to = p.next.to;
    t.func = IR_UNARY_IDENTITY;
    return t;
}

template <class S>
bool chain_job_of(const struct kernel_chain &p, const struct hopper_sources &from,
                  struct chain_job *j)
{
    *j = {};
    j->first = finish_of(p.first);
    j->next = finish_of(chain_next(p));
    j->first.m_tiles = (int)kernel_ceil_div(p.first.rows, SLAB);
    j->first.deep = hopper_sources_depth(&from);
    j->chunks = (int)kernel_ceil_div(p.first.cols, CHAIN_CHUNK);
    return !j->first.bent && !j->next.bent && j->first.deep.steps <= CHAIN_STEPS;
}

template <class S>
cudaError_t launch_chain(const struct kernel_call *call, const struct kernel_chain &p)
{
    const struct kernel_tile &f = p.first;
    int multiprocessors = kernel_multiprocessors(call);
    if (!counts(f, CHAIN_STEP, CHAIN_CHUNK) || f.cols > CHAIN_CHUNKS * CHAIN_CHUNK ||
        p.next.cols < 1 || p.next.cols > S::NEXT)
        return cudaErrorNotSupported;
    struct hopper_sources from = chain_sources<S>(f);
    struct hopper_tensor y = hopper_matrix(f.y, f.y_dtype, f.cols, f.cols, f.rows, SLAB,
                                           CHAIN_CHUNK),
                         z = y,
                         t = hopper_matrix(p.next.t, p.next.t_dtype, p.next.cols, p.next.cols,
                                           f.rows, SLAB, S::NEXT);
    int64_t deep = kernel_chain_depth(f.cols);
    struct hopper_tensor v = hopper_matrix(p.next.weights, DTYPE_I8, deep, deep,
                                           kernel_tile_rows(p.next.cols), S::NEXT, CHAIN_CHUNK);
    struct chain_job j;
    z.data = f.residual ? f.residual : f.y;
    if (!hopper_sources_fit(&from) || !hopper_tensor_fits(&y) || !hopper_tensor_fits(&z) ||
        !hopper_tensor_fits(&t) || !hopper_tensor_fits(&v) || !chain_job_of<S>(p, from, &j))
        return cudaErrorNotSupported;
    if (call->dry)
        return cudaSuccess;
    struct chain_maps m = {};
    cudaError_t code = hopper_sources_open(&from, &m.m, &j.first.deep);
    const struct hopper_tensor *tensors[4] = {&z, &y, &v, &t};
    CUtensorMap *maps[4] = {&m.z, &m.y, &m.v, &m.t};
    for (int i = 0; i < 4 && code == cudaSuccess; i++)
        code = hopper_map(tensors[i], maps[i]);
    if (code != cudaSuccess)
        return code;
    int blocks = min(multiprocessors, j.first.m_tiles);
    return hopper_launch(chain_kernel<S>, (unsigned)blocks, 1, S::THREADS, S::SHARED, call, m, j);
}

/* R(columns of t, slots, consumers, quads read early). Three consumers are quicker for many images,
 * two for few; of 128 columns there are registers for two alone. */
#define TILE_CHAINS(R)                                                                             \
    R(64, 4, 3, 0)                                                                                 \
    R(64, 6, 2, 8)                                                                                 \
    R(128, 6, 2, 3)

template <class X>
cudaError_t launch_chains(const struct kernel_call *call, const struct kernel_chain &p)
{
#define ROW(...) launch_chain<chain_shape<X, __VA_ARGS__>>,
    typedef cudaError_t (*launch)(const struct kernel_call *call, const struct kernel_chain &p);
    static const launch rows[] = {TILE_CHAINS(ROW)};
#undef ROW
    static_assert(sizeof(rows) / sizeof(*rows) == KERNEL_CHAIN_VARIANTS, "each has its number");
    return call->variant < 1 || call->variant > KERNEL_CHAIN_VARIANTS
               ? cudaErrorNotSupported
               : rows[call->variant - 1](call, p);
}

/* chain.cu, chain_f8.cu, chain_i8.cu: by the type of x */
cudaError_t launch_chains_f8(const struct kernel_call *call, const struct kernel_chain &p);
cudaError_t launch_chains_i8(const struct kernel_call *call, const struct kernel_chain &p);

} // namespace tile

#endif
