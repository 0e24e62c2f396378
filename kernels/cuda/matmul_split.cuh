/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of few rows on Hopper: few tiles, but much depth and many weights. So a cluster of 2, 4
 * or 8 blocks has a tile of 64 rows, and block s takes steps s, s + blocks, .. of its depth: many
 * multiprocessors read weights at the same time.
 *
 * A tile's sums are units of 8 rows by 32 columns. Unit u is finished by block u % blocks: every
 * block sends it its part (peer_push), its own as well, so that parts are added in the order of the
 * blocks, and a result is the same every time. Units of rows that are not there are left out.
 *
 * A block has one warpgroup that multiplies, and a warp whose first thread loads; two blocks fit
 * into a multiprocessor. Weights are packed as for matmul.cuh.
 */
#ifndef INFERD_KERNELS_CUDA_MATMUL_SPLIT_CUH
#define INFERD_KERNELS_CUDA_MATMUL_SPLIT_CUH

#include "kernels/cuda/matmul.cuh"

namespace matmul
{

constexpr int SPLIT_THREADS = HOPPER_WARPGROUP + 32;
constexpr int OCTET = 8;                    /* rows of a unit; it has PART columns */
constexpr int HALF_UNIT = 32 * 16;          /* bytes: 16 of each lane */
constexpr int UNIT = 2 * HALF_UNIT;         /* a block's part of it */
constexpr int SPLIT_SHARED_MAX = 113 << 10; /* so that two blocks fit */

template <class T_, int COLUMNS_, int STAGES_> struct split_shape {
    typedef T_ T;
    static constexpr int COLUMNS = COLUMNS_, STAGES = STAGES_;
    static constexpr int A = SLAB * LINE, B = COLUMNS * LINE, STAGE = A + B;
    static constexpr int PARTS = COLUMNS / PART, UNITS = SLAB / OCTET * PARTS;
    static constexpr int SHARED =
        HOPPER_ALIGN + STAGES * STAGE + UNITS * UNIT + (2 * STAGES + 1) * 8;
    static_assert(SHARED <= SPLIT_SHARED_MAX, "shared memory");
};

struct split_job {
    struct job job;
    int blocks; /* of a cluster */
    int tall;   /* rows of A that are loaded; the rest of a stage is not read for any result */
};

template <class S> struct split_ring {
    unsigned char *stages, *units; /* units: [blocks][units to finish here][2][32 lanes] 16 bytes */
    uint64_t *full, *empty, *come;
    __device__ explicit split_ring(unsigned char *raw)
    {
        stages = shared_aligned(raw);
        units = stages + S::STAGES * S::STAGE;
        full = reinterpret_cast<uint64_t *>(units + S::UNITS * UNIT);
        empty = full + S::STAGES;
        come = empty + S::STAGES;
    }
};

/* A block's place: its tile, and which of the tile's units it finishes. */
struct split_place {
    int rank, units, mine;
    tile_at tile;
    template <class S>
    __device__ __forceinline__ split_place(const split_job &j, const S &)
        : rank(cluster_rank()), tile(j.job, (int)blockIdx.x / j.blocks)
    {
        int octets = (min(SLAB, j.job.rows - tile.m * SLAB) + OCTET - 1) / OCTET;
        units = octets * S::PARTS;
        mine = (units - rank + j.blocks - 1) / j.blocks; /* 0 if rank >= units */
    }
};

/* The first stages' weights are asked for before the kernel in front has ended. */
template <class S>
__device__ __forceinline__ int split_load_early(const split_ring<S> &r, const hopper_maps &m,
                                                const split_job &j, const split_place &at)
{
    int early = 0;
    for (int k = at.rank; k < j.job.deep.steps && early < S::STAGES; k += j.blocks, early++) {
        mbarrier_expect(r.full + early, (uint32_t)(j.tall * LINE + S::B));
        hopper_load_weights(r.stages + early * S::STAGE + S::A, r.full + early, m, j.job.deep, k,
                            at.tile.n * S::COLUMNS);
    }
    return early;
}

template <class S>
__device__ __forceinline__ void split_load(const split_ring<S> &r, const hopper_maps &m,
                                           const split_job &j, const split_place &at)
{
    hopper_turn t = {0, 0};
    int early = split_load_early(r, m, j, at);
    grid_wait();
    grid_fence();
    hopper_rows rows(j.job.deep, at.tile.m * SLAB);
    for (int k = at.rank; k < j.job.deep.steps; k += j.blocks) {
        unsigned char *to = r.stages + t.at * S::STAGE;
        if (early > 0) {
            early--;
        } else {
            mbarrier_wait(r.empty + t.at, t.parity ^ 1);
            mbarrier_expect(r.full + t.at, (uint32_t)(j.tall * LINE + S::B));
            hopper_load_weights(to + S::A, r.full + t.at, m, j.job.deep, k, at.tile.n * S::COLUMNS);
        }
        rows.load(to, r.full + t.at, m, j.job.deep, k);
        t.next(S::STAGES);
    }
}

/* The products of the block's steps. */
template <class S>
__device__ __forceinline__ void split_multiply(const split_ring<S> &r, const split_job &j, int rank,
                                               float (&sum)[S::COLUMNS / 2])
{
    hopper_turn t = {0, 0};
    int before = -1;
#pragma unroll 1
    for (int k = rank; k < j.job.deep.steps; k += j.blocks) {
        mbarrier_wait(r.full + t.at, t.parity);
        uint32_t a = shared_address(r.stages + t.at * S::STAGE), b = a + S::A;
        wgmma_hold(sum);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < LINE; i += 32)
            wgmma<typename S::T>(sum, descriptor_rows<LINE>(a + i), descriptor_rows<LINE>(b + i),
                                 k != rank || i > 0);
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

/* Where a block's part of a unit lies in the shared memory of the block that finishes it. */
template <class S>
__device__ __forceinline__ unsigned char *unit_at(const split_ring<S> &r, const split_job &j,
                                                  int from, int unit)
{
    int each = S::UNITS / j.blocks;
    return r.units + (from * each + unit / j.blocks) * UNIT + (int)threadIdx.x % 32 * 16;
}

template <class S>
__device__ __forceinline__ void split_send(const split_ring<S> &r, const split_job &j,
                                           const split_place &at,
                                           const float (&sum)[S::COLUMNS / 2])
{
    int octet = (int)threadIdx.x / 32 * 2;
#pragma unroll
    for (int part = 0; part < S::PARTS; part++)
#pragma unroll
        for (int up = 0; up < 2; up++) {
            int unit = (octet + up) * S::PARTS + part;
            if (unit >= at.units)
                continue;
            unsigned char *to = unit_at(r, j, at.rank, unit);
#pragma unroll
            for (int half = 0; half < 2; half++) {
                int i = 4 * (4 * part + 2 * half) + 2 * up;
                peer_push(to + half * HALF_UNIT, sum[i], sum[i + 1], sum[i + 4], sum[i + 5], r.come,
                          unit % j.blocks);
            }
        }
}

/* One row's 8 columns. */
template <class T>
__device__ __forceinline__ void split_store(const job &j, float (&v)[LANE], const uint4 &bias_bits,
                                            const uint4 &residual_bits, int row, int column)
{
    float bias[LANE], residual[LANE];
    unpack<T>(bias_bits, bias);
    unpack<T>(residual_bits, residual);
#pragma unroll
    for (int i = 0; i < LANE; i++)
        v[i] = fmaf(v[i], j.scale, bias[i]) + (j.late ? 0 : residual[i]);
    activate(j, v);
#pragma unroll
    for (int i = 0; i < LANE; i++)
        v[i] += j.late ? residual[i] : 0;
    put<T>(j.y, (int64_t)row * j.cols + column, j.cols - column, j.whole, v, 0);
}

template <class S>
__device__ __forceinline__ void split_finish(const split_ring<S> &r, const split_job &j,
                                             const split_place &at)
{
    int lane = (int)threadIdx.x % 32;
    bool waited = false;
    for (int i = (int)threadIdx.x / 32; i < at.mine; i += WARPS) {
        int unit = i * j.blocks + at.rank;
        int row = at.tile.m * SLAB + unit / S::PARTS * OCTET + lane / 4;
        int column = at.tile.n * S::COLUMNS + unit % S::PARTS * PART + lane % 4 * LANE;
        int left = row < j.job.rows ? j.job.cols - column : 0;
        uint4 bias = make_uint4(0, 0, 0, 0), residual = bias;
        if (left > 0 && j.job.bias)
            bias = fetch(j.job.bias, column, left, j.job.whole);
        if (left > 0 && j.job.residual)
            residual = fetch(j.job.residual, (int64_t)row * j.job.cols + column, left, j.job.whole);
        if (!waited)
            mbarrier_wait_cluster(r.come, 0);
        waited = true;
        float v[LANE] = {};
        for (int from = 0; from < j.blocks; from++) {
            const unsigned char *part = unit_at(r, j, from, unit);
            float4 low = *reinterpret_cast<const float4 *>(part);
            float4 high = *reinterpret_cast<const float4 *>(part + HALF_UNIT);
            v[0] += low.x, v[1] += low.y, v[2] += low.z, v[3] += low.w;
            v[4] += high.x, v[5] += high.y, v[6] += high.z, v[7] += high.w;
        }
        if (left > 0)
            split_store<typename S::T>(j.job, v, bias, residual, row, column);
    }
}

/* A block to which nothing is sent may end when it has sent; the others wait for all parts. */
template <class S>
__global__ void __launch_bounds__(SPLIT_THREADS, 2)
    split_kernel(const __grid_constant__ hopper_maps m, const __grid_constant__ split_job j)
{
    KERNEL_SHARED(unsigned char, raw);
    split_ring<S> r(raw);
    split_place at(j, S());
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++) {
            mbarrier_init(r.full + i, 1);
            mbarrier_init(r.empty + i, WARPS);
        }
        mbarrier_init(r.come, 1);
        mbarrier_fence();
        if (at.mine > 0)
            mbarrier_expect(r.come, (uint32_t)(at.mine * j.blocks * UNIT));
    }
    __syncthreads();
    cluster_arrive();
    grid_go();
    if (threadIdx.x >= HOPPER_WARPGROUP) {
        if (threadIdx.x == HOPPER_WARPGROUP)
            split_load<S>(r, m, j, at);
        else
            grid_wait();
        return;
    }
    grid_wait();
    float sum[S::COLUMNS / 2];
    split_multiply<S>(r, j, at.rank, sum);
    cluster_wait(); /* the others' mbarriers are there */
    split_send<S>(r, j, at, sum);
    split_finish<S>(r, j, at);
}

/* Refuses many tiles, for which matmul.cuh is there, and depths that are less than the blocks. */
template <class S, int BLOCKS>
cudaError_t launch_split(const struct kernel_call *call, const struct kernel_matmul &p)
{
    const int dtype = number_of<typename S::T>::dtype, waves = 4;
    int multiprocessors = call->multiprocessors > 0 ? call->multiprocessors : 132;
    if (!counts(p, SLAB, S::COLUMNS))
        return cudaErrorNotSupported;
    struct split_job j = {job_of(p, SLAB, S::COLUMNS), BLOCKS, (int)min(p.rows, (int64_t)SLAB)};
    struct hopper_sources from = sources_of(p, dtype, j.tall, S::COLUMNS);
    if (!hopper_sources_fit(&from))
        return cudaErrorNotSupported;
    j.job.deep = hopper_sources_depth(&from);
    if (j.job.deep.steps < BLOCKS ||
        (int64_t)j.job.m_tiles * j.job.n_tiles * BLOCKS > (int64_t)waves * 2 * multiprocessors)
        return cudaErrorNotSupported;
    if (call->dry)
        return cudaSuccess;
    struct hopper_maps m = {};
    cudaError_t code = hopper_sources_open(&from, &m, &j.job.deep);
    if (code != cudaSuccess)
        return code;
    return hopper_launch(split_kernel<S>, (unsigned)(j.job.m_tiles * j.job.n_tiles * BLOCKS),
                         BLOCKS, SPLIT_THREADS, S::SHARED, call, m, j);
}

} // namespace matmul

#endif
