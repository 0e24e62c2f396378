/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two products of 8 or 16 bits in a row on Hopper, both in one launch: the end of a residual block
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

/* Floats of 16 bits, whose results are wide ones. */
template <class X> struct halves {
    typedef float Sum;
    template <int R>
    __device__ static __forceinline__ void multiply(Sum (&sum)[R], uint64_t x, uint64_t weights,
                                                    int keep)
    {
        wgmma<X>(sum, x, weights, keep);
    }
};
template <> struct kind<half_t> : halves<half_t> {
};
template <> struct kind<bf16_t> : halves<bf16_t> {
};

enum {
    CHAIN_CHUNK = 128, /* columns */
    CHAIN_CHUNKS = 2,  /* that there may be */
    CHAIN_LINE = 128,  /* bytes of a line in a slot */
};

/* Up to NEXT columns of the second product. AHEAD: quads of scales and biases that are read while a
 * chunk's sums are made; residuals are then, too, unless it is 0, for want of registers. Bytes may
 * come from two sources. */
template <class X_, int NEXT_, int SLOTS_, int CONSUMERS_, int AHEAD_> struct chain_shape {
    typedef X_ X;
    typedef kind<X> K;
    typedef typename K::Sum Sum;
    static constexpr int NEXT = NEXT_, SLOTS = SLOTS_, CONSUMERS = CONSUMERS_, AHEAD = AHEAD_;
    static constexpr int SIZE = sizeof(X), STEP = 64 * SIZE; /* bytes of 64 channels */
    static constexpr int STEPS = SIZE == 1 ? 2 : 1;          /* that there may be, in all */
    static constexpr int STAGES = 2 * STEPS;                 /* a tile's x, and the next one's */
    static constexpr int THREADS = (CONSUMERS + 1) * HOPPER_WARPGROUP;
    static constexpr int FIRST_LOADER = CONSUMERS * WARPS;
    static constexpr int REGISTERS = CONSUMERS == 2 ? 232 : 152;
    /* what results_by() reads of a shape */
    typedef shape<X, CHAIN_CHUNK, 1, 2, 2, STEP, SIZE> Chunk;
    typedef shape<X, NEXT, 1, 2, 2, 128, SIZE> Next;
    static constexpr int A = SLAB * STEP, W = CHAIN_CHUNK * STEP;
    static constexpr int BOXES = Chunk::BOXES, BOX = Chunk::BOX; /* of a chunk: lines; columns */
    static constexpr int SLOT_BOX = Chunk::PIECE, SLOT = BOXES * SLOT_BOX;
    static constexpr int V_BOX = NEXT * CHAIN_LINE, V = BOXES * V_BOX, T = Next::SLOT;
    static constexpr int BARRIERS = CONSUMERS * (STAGES + SLOTS) * 2 + CHAIN_CHUNKS;
    static constexpr int SHARED = HOPPER_ALIGN + CHAIN_CHUNKS * (STEPS * W + V) +
                                  CONSUMERS * (STAGES * A + SLOTS * SLOT + T) + BARRIERS * 8;
    static_assert(SHARED <= HOPPER_SHARED_MAX, "shared memory");
    static_assert(Chunk::ROW == CHAIN_LINE, "a slot's lines are what the second product reads");
    static_assert(SLOTS >= 2, "a slot is free one chunk later");
};

template <class S> struct chain_room { /* shared memory */
    unsigned char *w, *v, *x, *slots, *t;
    uint64_t *full, *empty, *come, *gone, *there; /* there: a chunk's weights, of both products */
    __device__ explicit chain_room(unsigned char *raw)
    {
        w = shared_kept(raw);
        v = w + S::STEPS * CHAIN_CHUNKS * S::W;
        x = v + CHAIN_CHUNKS * S::V;
        slots = x + S::CONSUMERS * S::STAGES * S::A;
        t = slots + S::CONSUMERS * S::SLOTS * S::SLOT;
        full = reinterpret_cast<uint64_t *>(t + S::CONSUMERS * S::T);
        empty = full + S::CONSUMERS * S::STAGES;
        come = empty + S::CONSUMERS * S::STAGES;
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
        for (int i = 0; i < S::BOXES; i++)
            tensor_load_2d(r.v + c * S::V + i * S::V_BOX, &m.v, r.there + c,
                           c * CHAIN_CHUNK + i * S::BOX, 0);
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
            int stage = consumer * S::STAGES + t.at;
            mbarrier_wait(r.empty + stage, t.parity ^ 1);
            mbarrier_expect(r.full + stage, S::A);
            hopper_load_rows(r.x + stage * S::A, &m.m.a[source], r.full + stage, of, place,
                             k - first);
            t.next(S::STAGES);
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
        for (int i = 0; i < S::BOXES; i++)
            tensor_load_2d(r.slots + slot * S::SLOT + i * S::SLOT_BOX, &m.z, r.come + slot,
                           c * CHAIN_CHUNK + i * S::BOX, row);
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
        multiply_lines<typename S::K, S::STEP>(
            sum, shared_address(r.x + (group * S::STAGES + at) * S::A),
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
            if constexpr (S::STEPS > 1) {
                if (k == j.first.deep.first) {
                    wgmma_wait<0>();
                    wgmma_hold(sum);
                    if (near)
                        convert<true>(sum, c * CHAIN_CHUNK);
                    else
                        convert<false>(sum, c * CHAIN_CHUNK);
                }
            }
            mbarrier_wait(r.full + group * S::STAGES + at.at, at.parity);
            step(sum, c, k, at.at);
            at.next(S::STAGES);
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
                mbarrier_arrive(r.empty + group * S::STAGES + t.at);
            t.next(S::STAGES);
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
        for (int i = 0; i < S::BOXES; i++)
            tensor_store_2d(&m.y, to + i * S::SLOT_BOX, c * CHAIN_CHUNK + i * S::BOX, row);
        store_commit();
    }

    /* Asks for the second product of the chunk in the slot. */
    __device__ __forceinline__ void ask_next(Sum (&next)[S::NEXT / 2], int c)
    {
        const uint32_t y = shared_address(r.slots + (group * S::SLOTS + slot.at) * S::SLOT),
                       v = shared_address(r.v + c * S::V);
        wgmma_hold(next);
        wgmma_fence();
#pragma unroll
        for (int box = 0; box < S::BOXES; box++)
            multiply_lines<typename S::K, CHAIN_LINE>(next, y + box * S::SLOT_BOX,
                                                      v + box * S::V_BOX, c == 0 && box == 0);
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
            for (int i = 0; i < S::Next::BOXES; i++)
                tensor_store_2d(&m.t, to + i * S::Next::PIECE, i * S::Next::BOX, row);
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
        for (int i = 0; i < S::CONSUMERS * S::STAGES; i++) {
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

/* The type that tensor copies move weights as. */
template <class S> constexpr int chain_weights(void)
{
    return S::SIZE == 1 ? (int)DTYPE_I8 : (int)number_of<typename S::X>::dtype;
}

template <class S> struct hopper_sources chain_sources(const struct kernel_tile &p)
{
    const void *weights[2] = {p.weights, p.second.weights};
    struct hopper_sources s = {
        p.second.depth ? 2 : 1,
        {{p.x, p.x_dtype, p.rows, p.depth, &p.image, SLAB, S::STEP},
         {p.second.x, p.x_dtype, p.rows, p.second.depth, &p.second.image, SLAB, S::STEP}},
        {}};
    for (int i = 0; i < s.n; i++) {
        int64_t deep = kernel_tile_depth(s.a[i].image, s.a[i].depth, S::STEP);
        s.b[i] = hopper_matrix(weights[i], chain_weights<S>(), deep, deep, kernel_tile_rows(p.cols),
                               CHAIN_CHUNK, S::STEP);
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
    return !j->first.bent && !j->next.bent && j->first.deep.steps <= S::STEPS;
}

template <class S>
cudaError_t launch_chain(const struct kernel_call *call, const struct kernel_chain &p)
{
    const struct kernel_tile &f = p.first;
    int multiprocessors = call->multiprocessors > 0 ? call->multiprocessors : 132;
    if (!counts(f, S::STEP, CHAIN_CHUNK) || f.cols > CHAIN_CHUNKS * CHAIN_CHUNK ||
        p.next.cols < 1 || p.next.cols > S::NEXT)
        return cudaErrorNotSupported;
    struct hopper_sources from = chain_sources<S>(f);
    const int64_t deep = kernel_chain_depth(f.cols), cols = p.next.cols;
    struct hopper_tensor y = hopper_matrix(f.y, f.y_dtype, f.cols, f.cols, f.rows, SLAB,
                                           CHAIN_LINE),
                         z = y,
                         t = hopper_matrix(p.next.t, p.next.t_dtype, cols, cols, f.rows, SLAB,
                                           S::Next::ROW),
                         v = hopper_matrix(p.next.weights, chain_weights<S>(), deep, deep,
                                           kernel_tile_rows(cols), S::NEXT, CHAIN_LINE);
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

/* R(columns of t, slots, consumers, quads read early). Of bytes: three consumers are quicker for
 * many images, two for few; of 128 columns there are registers for two alone. */
#define CHAIN_BYTES(R)                                                                             \
    R(64, 4, 3, 0)                                                                                 \
    R(64, 6, 2, 8)                                                                                 \
    R(128, 6, 2, 3)

/* Behind them, of 16 bits. */
#define CHAIN_HALVES(R)                                                                            \
    R(64, 3, 2, 4)                                                                                 \
    R(128, 2, 2, 2)

enum { CHAIN_FIRST_HALF = 4 };

template <class X>
cudaError_t launch_chains(const struct kernel_call *call, const struct kernel_chain &p)
{
#define ROW(...) launch_chain<chain_shape<X, __VA_ARGS__>>,
    typedef cudaError_t (*launch)(const struct kernel_call *call, const struct kernel_chain &p);
    if constexpr (sizeof(X) == 1) {
        static const launch rows[] = {CHAIN_BYTES(ROW)};
        static_assert(sizeof(rows) / sizeof(*rows) == CHAIN_FIRST_HALF - 1, "numbers of variants");
        return call->variant < 1 || call->variant >= CHAIN_FIRST_HALF
                   ? cudaErrorNotSupported
                   : rows[call->variant - 1](call, p);
    } else {
        static const launch rows[] = {CHAIN_HALVES(ROW)};
        static_assert(sizeof(rows) / sizeof(*rows) == KERNEL_CHAIN_VARIANTS - CHAIN_FIRST_HALF + 1,
                      "numbers of variants");
        return call->variant < CHAIN_FIRST_HALF || call->variant > KERNEL_CHAIN_VARIANTS
                   ? cudaErrorNotSupported
                   : rows[call->variant - CHAIN_FIRST_HALF](call, p);
    }
#undef ROW
}

/* chain.cu and the others: by the type of x */
cudaError_t launch_chains_bf16(const struct kernel_call *call, const struct kernel_chain &p);
cudaError_t launch_chains_f16(const struct kernel_call *call, const struct kernel_chain &p);
cudaError_t launch_chains_f8(const struct kernel_call *call, const struct kernel_chain &p);
cudaError_t launch_chains_i8(const struct kernel_call *call, const struct kernel_chain &p);

} // namespace tile

#endif
