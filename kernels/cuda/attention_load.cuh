/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on tensor cores: sizes, and how operands and masks come into shared memory. */
#ifndef INFERD_KERNELS_CUDA_ATTENTION_LOAD_CUH
#define INFERD_KERNELS_CUDA_ATTENTION_LOAD_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/mma.cuh"

namespace attention
{

/* Sizes that follow from columns (padded to DP), tiles of queries a warp, warps that share keys. */
template <int DP, int MT, int KW, int MASK> struct shape {
    static constexpr int TILE = DP == 256 && KW == 1 ? 32 : 64;              /* keys of a stage */
    static constexpr int KEYS = KW > 1 ? 16 : MT == 1 && DP <= 64 ? 64 : 32; /* of a warp's step */
    static constexpr int STAGES = DP >= 128 || MASK == MASK_FULL ? 2 : 3;
    static constexpr int MASK_PITCH = TILE + 8;  /* rows of a fragment in different banks */
    static constexpr bool HELD = DP * MT <= 128; /* queries stay in registers */
    static constexpr int THREADS = KW > 1 ? KW * 32 : MT == 1 ? 256 : 128;
    /* Blocks of THREADS that share a multiprocessor: this bounds their registers. */
    static constexpr int FEW = DP == 32 ? 3 : DP == 64 ? 2 : 1;
    static constexpr int BLOCKS = KW > 1 || DP == 256 ? 1 : FEW + MT - 1;

    static __host__ __device__ constexpr int slot(int rows)
    {
        return 2 * TILE * DP + (MASK == MASK_FULL ? rows * MASK_PITCH : 0);
    }
};

/* --- shared memory --- */

/* Where the 8 elements of chunk `c` of a row of queries lie in a tile of DP columns. The same chunk
 * of 8 rows, which ldmatrix reads at a time, lies in different banks. */
template <int DP> __device__ __forceinline__ int row_at(int row, int c)
{
    constexpr int CHUNKS = DP / 8;
    return (row * CHUNKS + (CHUNKS == 4 ? c ^ (row >> 1 & 3) : c ^ (row & 7))) * 8;
}

/* The same for keys and values, whose 8 rows are 2 neighbours from each of 4 lanes' keys. */
template <int DP, int KEYS> __device__ __forceinline__ int key_at(int row, int c)
{
    constexpr int CHUNKS = DP / 8, PER = KEYS / 4;
    int lane = row / PER & 3;
    return (row * CHUNKS + (CHUNKS == 4 ? c ^ lane : c ^ (lane << 1 | (row & 1)))) * 8;
}

/* Row `r` of tile `j` of 8 keys, as fragments have them. */
template <int KEYS> __device__ __forceinline__ int key_of(int j, int r)
{
    return (r >> 1) * (KEYS / 4) + 2 * j + (r & 1);
}

/* Starts the copy of a chunk of 8 elements from column `c * 8` on; elements beyond `columns` become
 * zero. Without `chunks` the chunk is there when the call returns. */
template <typename T>
__device__ __forceinline__ void chunk_load(T *to, const T *row, int c, bool inside, int columns,
                                           bool chunks)
{
    if (chunks) {
        bool valid = inside && c * 8 < columns;
        copy_async_16(to, valid ? row + c * 8 : row, valid);
        return;
    }
    vector<T, 8> x;
#pragma unroll
    for (int e = 0; e < 8; e++)
        x.v[e] = inside && c * 8 + e < columns ? row[c * 8 + e] : number_from<T>(0.0f);
    vector_store<T, 8>(to, x);
}

/* Keys or values first..first+ROWS-1 of a head. */
template <typename T, int DP, int ROWS, int KEYS>
__device__ __forceinline__ void tile_load(T *to, const T *from, int64_t stride, int first, int rows,
                                          int columns, bool chunks)
{
    constexpr int CHUNKS = DP / 8;
    for (int i = (int)threadIdx.x; i < ROWS * CHUNKS; i += (int)blockDim.x) {
        int row = i / CHUNKS, c = i % CHUNKS;
        bool inside = first + row < rows;
        chunk_load(to + key_at<DP, KEYS>(row, c), inside ? from + (first + row) * stride : from, c,
                   inside, columns, chunks);
    }
}

template <typename T, int DP>
__device__ __forceinline__ void queries_load(T *to, const struct problem &p, const T *q, int first,
                                             int n)
{
    constexpr int CHUNKS = DP / 8;
    for (int i = (int)threadIdx.x; i < n * CHUNKS; i += (int)blockDim.x) {
        int row = i / CHUNKS, c = i % CHUNKS;
        bool inside = first + row < p.rows;
        struct place at = place_of(p, inside ? first + row : 0);
        chunk_load(to + row_at<DP>(row, c), q + at.h * p.q.h + at.i * p.q.s, c, inside, p.d,
                   p.chunks);
    }
}

/* --- masks --- */

/* An element as a number of T: false hides. */
template <typename T> __device__ __forceinline__ T mask_element(const struct problem &p, int64_t at)
{
    if (p.mask_bool)
        return number_from<T>(static_cast<const unsigned char *>(p.mask)[at] ? 0.0f : -INFINITY);
    return static_cast<const T *>(p.mask)[at];
}

/* Where the mask of key `key` lies in the row that all queries share: the rows of 4 lanes begin in
 * different banks. */
__device__ __forceinline__ int key_mask_at(int key)
{
    return key + (key >> 4) * 4;
}

/* Keys first..last-1 of one row; -inf beyond the tensor. */
template <typename T>
__device__ __forceinline__ void key_mask_load(float *to, const struct problem &p, int64_t from,
                                              int first, int last)
{
    for (int key = first + (int)threadIdx.x; key < last; key += (int)blockDim.x)
        to[key_mask_at(key - first)] =
            key < p.sk ? number_float(mask_element<T>(p, from + key * p.mask_k)) : -INFINITY;
}

/* `n` rows of a tile of keys; what lies beyond the tensor is anything. */
template <typename T, int TILE>
__device__ __forceinline__ void mask_load(T *to, const struct problem &p, int64_t from, int first,
                                          int n, int key)
{
    constexpr int PITCH = TILE + 8;
    if (p.mask_chunks) {
        for (int i = (int)threadIdx.x; i < n * (TILE / 8); i += (int)blockDim.x) {
            int row = i / (TILE / 8), c = i % (TILE / 8);
            bool inside = first + row < p.rows && key + c * 8 < p.sk;
            struct place at = place_of(p, inside ? first + row : 0);
            const T *x = static_cast<const T *>(p.mask) + from + at.h * p.mask_h + at.i * p.mask_q +
                         (inside ? key + c * 8 : 0);
            copy_async_16(to + row * PITCH + c * 8, x, inside);
        }
        return;
    }
    /* A thread stays in its column. */
    int c = (int)threadIdx.x % TILE, step = (int)blockDim.x / TILE;
    if (key + c >= p.sk)
        return;
    from += (key + c) * p.mask_k;
    n = min(n, p.rows - first);
#pragma unroll 8
    for (int row = (int)threadIdx.x / TILE; row < n; row += step) {
        struct place at = place_of(p, first + row);
        to[row * PITCH + c] = mask_element<T>(p, from + at.h * p.mask_h + at.i * p.mask_q);
    }
}

} // namespace attention

#endif
