/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of few rows on Hopper: few tiles, but much depth and many weights. So a cluster of 2, 4
 * or 8 blocks has a tile of 64 rows, and block s takes steps s, s + blocks, .. of its depth: many
 * multiprocessors read weights at the same time. There is no variant of one block: what sends parts
 * (peer_push) is an illegal instruction outside of a cluster.
 *
 * A tile's sums are units of 8 rows by 32 columns. Unit u is finished by block u % blocks: every
 * other block sends it its part (peer_push), and its own stands among them, so that parts are added
 * in the order of the blocks, and a result is the same every time. Units of rows that are not there
 * are left out.
 *
 * A block has one warpgroup that multiplies, and a warp whose first thread loads; two blocks fit
 * into a multiprocessor. Within 32 columns weights are packed in an order that gives a thread 8
 * neighbouring columns (kernel_matmul_packed_row, kernel_tile_row).
 *
 * What is multiplied and what happens to sums is the product's: matmul_split.cuh has it for floats
 * of 16 bits, tile_split.cuh for bytes.
 */
#ifndef INFERD_KERNELS_CUDA_SPLIT_CUH
#define INFERD_KERNELS_CUDA_SPLIT_CUH

#include "kernels/cuda/hopper_mma.cuh"
#include "kernels/cuda/hopper_window.cuh"

namespace split
{

constexpr int SLAB = 64;           /* rows of a tile */
constexpr int PART = 32, LANE = 8; /* columns of a unit; of them, a thread's */
constexpr int WARPS = HOPPER_WARPGROUP / 32, THREADS = HOPPER_WARPGROUP + 32;
constexpr int OCTET = 8;              /* rows of a unit */
constexpr int HALF_UNIT = 32 * 16;    /* bytes: 16 of each lane */
constexpr int UNIT = 2 * HALF_UNIT;   /* a block's part of it */
constexpr int SHARED_MAX = 113 << 10; /* so that two blocks fit */
constexpr int TOGETHER = 2;           /* blocks of a multiprocessor */
constexpr int WAVES = 4;              /* of so many blocks, at most */

/* LINE: bytes of a step. A product's shape adds
 *   Sum                                         the type of its sums, of 4 bytes
 *   job                                         what its kernel is told; it has rows, m_tiles,
 *                                               n_tiles and deep
 *   step(Sum (&sum)[], a, b, keep)              the products of a step
 *   multiply(work<S> &, column, Sum (&sum)[])   those of a block, by work::until
 *   operands(job, row, column)                  what is added to 8 columns of a row
 *   operands::add(job, low, high)               adds one block's part of them
 *   operands::store(job, row, column)           when all are there */
template <int COLUMNS_, int STAGES_, int LINE_> struct shape {
    static constexpr int COLUMNS = COLUMNS_, STAGES = STAGES_, LINE = LINE_;
    static constexpr int A = SLAB * LINE, B = COLUMNS * LINE, STAGE = A + B;
    static constexpr int PARTS = COLUMNS / PART, UNITS = SLAB / OCTET * PARTS;
    static constexpr int SUMS = COLUMNS / 2; /* of a thread */
    static constexpr int SHARED =
        HOPPER_ALIGN + STAGES * STAGE + UNITS * UNIT + (2 * STAGES + 1) * 8;
    static_assert(SHARED <= SHARED_MAX, "shared memory");
};

template <class Job> struct todo {
    Job job;
    int blocks;    /* of a cluster */
    int tall;      /* rows of A that are loaded; the rest of a stage is not read for any result */
    int shift = 0; /* the logarithm of `blocks`; launch() sets it */
};

template <class S> struct ring {
    unsigned char *stages, *units; /* units: [blocks][units to finish here][2][32 lanes] 16 bytes */
    uint64_t *full, *empty, *come;
    __device__ explicit ring(unsigned char *raw)
    {
        stages = shared_kept(raw);
        units = stages + S::STAGES * S::STAGE;
        full = reinterpret_cast<uint64_t *>(units + S::UNITS * UNIT);
        empty = full + S::STAGES;
        come = empty + S::STAGES;
    }
};

/* A block's place: its tile, and which of the tile's units it finishes. */
struct place {
    int rank, units, mine, row, column;
    template <class S>
    __device__ __forceinline__ place(const todo<typename S::job> &j, const S &)
        : rank(cluster_rank())
    {
        hopper_tile tile(j.job.m_tiles, j.job.n_tiles, (int)blockIdx.x >> j.shift);
        row = tile.m * SLAB;
        column = tile.n * S::COLUMNS;
        int octets = (min(SLAB, j.job.rows - row) + OCTET - 1) / OCTET;
        units = octets * S::PARTS;
        mine = (units - rank + j.blocks - 1) >> j.shift; /* 0 if rank >= units */
    }
};

/* The first stages' weights are asked for before the kernel in front has ended. */
template <class S>
__device__ __forceinline__ int load_early(const ring<S> &r, const hopper_maps &m,
                                          const todo<typename S::job> &j, const place &at)
{
    int early = 0;
    for (int k = at.rank; k < j.job.deep.steps && early < S::STAGES; k += j.blocks, early++) {
        mbarrier_expect(r.full + early, (uint32_t)(j.tall * S::LINE + S::B));
        hopper_load_weights(r.stages + early * S::STAGE + S::A, r.full + early, m, j.job.deep, k,
                            at.column);
    }
    return early;
}

template <class S>
__device__ __forceinline__ void load(const ring<S> &r, const hopper_maps &m,
                                     const todo<typename S::job> &j, const place &at)
{
    hopper_turn t = {0, 0};
    int early = load_early(r, m, j, at);
    grid_wait();
    grid_fence();
    hopper_rows rows(j.job.deep, at.row);
    for (int k = at.rank; k < j.job.deep.steps; k += j.blocks) {
        unsigned char *to = r.stages + t.at * S::STAGE;
        if (early > 0) {
            early--;
        } else {
            mbarrier_wait(r.empty + t.at, t.parity ^ 1);
            mbarrier_expect(r.full + t.at, (uint32_t)(j.tall * S::LINE + S::B));
            hopper_load_weights(to + S::A, r.full + t.at, m, j.job.deep, k, at.column);
        }
        rows.load(to, r.full + t.at, m, j.job.deep, k);
        t.next(S::STAGES);
    }
}

/* A block's walk along the depth, by those who multiply. */
template <class S> struct work {
    const ring<S> &r;
    const todo<typename S::job> &j;
    int k, before; /* the next step; the stage of the one before it */
    hopper_turn t;

    __device__ __forceinline__ work(const ring<S> &shared, const todo<typename S::job> &todo,
                                    int rank)
        : r(shared), j(todo), k(rank), before(-1), t({0, 0})
    {
    }

    /* The products of the block's steps before `end`, of which there is one, into new sums. */
    __device__ __forceinline__ void until(int end, typename S::Sum (&sum)[S::SUMS])
    {
        int first = k;
#pragma unroll 1
        for (; k < end; k += j.blocks) {
            mbarrier_wait(r.full + t.at, t.parity);
            uint32_t a = shared_address(r.stages + t.at * S::STAGE), b = a + S::A;
            const uint64_t of_a = descriptor_rows<S::LINE>(a), of_b = descriptor_rows<S::LINE>(b);
            wgmma_hold(sum);
            wgmma_fence();
#pragma unroll
            for (int i = 0; i < S::LINE; i += 32)
                S::product(sum, descriptor_beyond(of_a, i), descriptor_beyond(of_b, i),
                           k != first || i > 0);
            wgmma_commit();
            wgmma_hold(sum);
            if (before >= 0) {
                wgmma_wait<1>();
                if (threadIdx.x % 32 == 0)
                    mbarrier_arrive(r.empty + before);
            }
            before = t.at;
            t.next(S::STAGES);
        }
        wgmma_wait<0>();
        wgmma_hold(sum);
    }
};

/* Where a block's part lies of number i of the units that a block finishes. */
template <class S>
__device__ __forceinline__ unsigned char *unit_at(const ring<S> &r, const todo<typename S::job> &j,
                                                  int from, int i)
{
    return r.units + ((from * S::UNITS >> j.shift) + i) * UNIT + (int)threadIdx.x % 32 * 16;
}

/* What a block finishes itself need not go through the cluster's network, which is slow. */
template <class S>
__device__ __forceinline__ void send_half(const ring<S> &r, unsigned char *to, const uint4 &part,
                                          int rank, int own)
{
    if (rank == own)
        *reinterpret_cast<uint4 *>(to) = part;
    else
        peer_push(to, part, r.come, rank);
}

template <class S>
__device__ __forceinline__ void send(const ring<S> &r, const todo<typename S::job> &j,
                                     const place &at, const typename S::Sum (&sum)[S::SUMS])
{
    int octet = (int)threadIdx.x / 32 * 2;
#pragma unroll
    for (int part = 0; part < S::PARTS; part++)
#pragma unroll
        for (int up = 0; up < 2; up++) {
            int unit = (octet + up) * S::PARTS + part;
            if (unit >= at.units)
                continue;
            unsigned char *to = unit_at(r, j, at.rank, unit >> j.shift);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int i = 4 * (4 * part + 2 * half) + 2 * up;
                send_half(r, to + half * HALF_UNIT,
                          make_uint4(word_of(sum[i]), word_of(sum[i + 1]), word_of(sum[i + 4]),
                                     word_of(sum[i + 5])),
                          unit & (j.blocks - 1), at.rank);
            }
        }
    named_sync(1, HOPPER_WARPGROUP); /* own parts are there */
}

/* The thread's row and first column of one of the units that the block finishes. */
struct spot {
    int row, column;
    template <class S>
    __device__ __forceinline__ spot(const todo<typename S::job> &j, const place &at, int i,
                                    const S &)
    {
        int lane = (int)threadIdx.x % 32, unit = (i << j.shift) + at.rank;
        row = at.row + unit / S::PARTS * OCTET + lane / 4;
        column = at.column + unit % S::PARTS * PART + lane % 4 * LANE;
    }
};

/* What is added to the warp's first unit. A warp without units reads what it does not use. */
template <class S>
__device__ __forceinline__ typename S::operands first_operands(const todo<typename S::job> &j,
                                                               const place &at)
{
    spot to(j, at, (int)threadIdx.x / 32, S());
    return typename S::operands(j.job, to.row, to.column);
}

template <class S>
__device__ __forceinline__ void finish(const ring<S> &r, const todo<typename S::job> &j,
                                       const place &at, typename S::operands &with)
{
    int i = (int)threadIdx.x / 32;
    if (i < at.mine)
        mbarrier_wait_cluster(r.come, 0);
    while (i < at.mine) {
        spot to(j, at, i, S());
        for (int from = 0; from < j.blocks; from++) {
            const unsigned char *part = unit_at(r, j, from, i);
            with.add(j.job, *reinterpret_cast<const uint4 *>(part),
                     *reinterpret_cast<const uint4 *>(part + HALF_UNIT));
        }
        with.store(j.job, to.row, to.column);
        i += WARPS;
        if (i < at.mine) {
            spot next(j, at, i, S());
            with = typename S::operands(j.job, next.row, next.column);
        }
    }
}

/* A block to which nothing is sent may end when it has sent; the others wait for all parts. */
template <class S>
__global__ void __launch_bounds__(THREADS, TOGETHER)
    kernel(const __grid_constant__ hopper_maps m, const __grid_constant__ todo<typename S::job> j)
{
    KERNEL_SHARED(unsigned char, raw);
    ring<S> r(raw);
    place at(j, S());
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            mbarrier_init(r.full + i, 1);
            mbarrier_init(r.empty + i, WARPS);
        }
        mbarrier_init(r.come, 1);
        mbarrier_fence();
        mbarrier_expect(r.come, (uint32_t)(at.mine * (j.blocks - 1) * UNIT));
    }
    __syncthreads();
    cluster_arrive();
    grid_go();
    if (threadIdx.x >= HOPPER_WARPGROUP) {
        if (threadIdx.x == HOPPER_WARPGROUP)
            load<S>(r, m, j, at);
        else
            grid_wait();
        return;
    }
    grid_wait();
    typename S::Sum sum[S::SUMS];
    typename S::operands with = first_operands<S>(j, at); /* come while products are made */
    work<S> steps(r, j, at.rank);
    S::multiply(steps, at.column, sum);
    cluster_wait(); /* the others' mbarriers are there */
    send<S>(r, j, at, sum);
    finish<S>(r, j, at, with);
}

/* --- launching --- */

/* Blocks that run at the same time. */
inline int64_t wave_of(const struct kernel_call *call)
{
    return TOGETHER * kernel_multiprocessors(call);
}

/* Whether a tile's depth is a step for each block at least, and there are few tiles: for many the
 * other kernels are there. `tiles` and steps are not negative. */
inline bool is_for(const struct kernel_call *call, int blocks, int64_t tiles, int steps)
{
    return steps >= blocks && tiles * blocks <= WAVES * wave_of(call);
}

/* Sources that fit. */
template <class S>
cudaError_t launch(const struct kernel_call *call, const struct hopper_sources &from,
                   struct todo<typename S::job> &j)
{
    struct hopper_maps m = {};
    cudaError_t code = hopper_sources_open(&from, &m, &j.job.deep);
    if (code != cudaSuccess)
        return code;
    const int blocks = j.job.m_tiles * j.job.n_tiles * j.blocks;
    j.shift = j.blocks == 2 ? 1 : j.blocks == 4 ? 2 : 3;
    j.job.deep.once = blocks <= wave_of(call);
    return hopper_launch(kernel<S>, (unsigned)blocks, j.blocks, THREADS, S::SHARED, call, m, j);
}

} // namespace split

#endif
