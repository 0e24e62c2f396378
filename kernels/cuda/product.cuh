/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tiles of products of bytes by INT8 weights on tensor cores, which product.cu and conv_bytes.cu
 * share. A block of WM x WN warps computes (16 WM MI) rows by (8 WN NI) columns. Tiles of 64 bytes
 * of depth go through STAGES buffers in shared memory; its rows are four chunks of 16 bytes,
 * swapped by the row's number so that the eight rows of a matrix lie in different banks.
 */
#ifndef INFERD_KERNELS_CUDA_PRODUCT_CUH
#define INFERD_KERNELS_CUDA_PRODUCT_CUH

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/mma.cuh"

namespace
{

enum { DEPTH = 64, CHUNK = 16, CHUNKS = DEPTH / CHUNK, STAGES = 3 };

/* The place of a chunk in a tile. */
__device__ __forceinline__ uint8_t *tile_at(uint8_t *tile, int row, int chunk)
{
    return tile + row * DEPTH + (chunk ^ (row >> 1 & 3)) * CHUNK;
}

template <int WM, int WN, int MI, int NI> struct tile_shape {
    static const int warps_n = WN, tiles_m = MI, tiles_n = NI;
    static const int rows = WM * MI * 16, cols = WN * NI * 8, threads = WM * WN * KERNEL_WARP;
    static const int bytes = (rows + cols) * DEPTH, shared = STAGES * bytes;
    static const int slots = rows * CHUNKS / threads; /* chunks of x that a thread loads */
    static_assert(NI % 2 == 0 && shared <= KERNEL_SHARED_DEFAULT, "fragments, and shared memory");
    static_assert(rows * CHUNKS % threads == 0, "threads load alike");
};

typedef tile_shape<2, 4, 4, 4> large_tile;  /* 128 x 128 */
typedef tile_shape<2, 2, 2, 4> middle_tile; /* 64 x 64 */
typedef tile_shape<2, 2, 1, 2> small_tile;  /* 32 x 32 */

/* Starts loading a tile of weights [cols, packed] from depth k on, into the stage at `to`. */
template <class S>
__device__ __forceinline__ void load_weights(const int8_t *w, int cols, int packed, int first_col,
                                             int k, uint8_t *to)
{
    to += S::rows * DEPTH;
    for (int i = (int)threadIdx.x; i < S::cols * CHUNKS; i += S::threads) {
        int col = i / CHUNKS, chunk = i % CHUNKS, at = k + chunk * CHUNK;
        bool valid = first_col + col < cols && at < packed;
        copy_async_16(tile_at(to, col, chunk),
                      w + (valid ? (int64_t)(first_col + col) * packed + at : 0), valid);
    }
}

/* sums += what a stage holds, for the warp's part of the tile that begins at `row` and `col`. */
template <class S, bool SIGNED>
__device__ __forceinline__ void multiply_tiles(uint8_t *stage, int row, int col,
                                               int32_t (&sums)[S::tiles_m][S::tiles_n][4])
{
    int lane = (int)threadIdx.x % KERNEL_WARP;
    uint8_t *weights = stage + S::rows * DEPTH;
#pragma unroll
    for (int half = 0; half < DEPTH; half += 32) {
        uint32_t a[S::tiles_m][4], b[S::tiles_n / 2][4];
#pragma unroll
        for (int i = 0; i < S::tiles_m; i++)
            ldmatrix_x4(a[i], tile_at(stage, row + i * 16 + lane % 16, half / CHUNK + lane / 16));
#pragma unroll
        for (int j = 0; j < S::tiles_n / 2; j++)
            ldmatrix_x4(b[j], tile_at(weights, col + j * 16 + lane % 8 + lane / 16 * 8,
                                      half / CHUNK + lane / 8 % 2));
#pragma unroll
        for (int i = 0; i < S::tiles_m; i++)
#pragma unroll
            for (int j = 0; j < S::tiles_n; j++) {
                uint32_t pair[2] = {b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]};
                mma_m16n8k32<SIGNED>(sums[i][j], a[i], pair);
            }
    }
}

} // namespace

#endif
