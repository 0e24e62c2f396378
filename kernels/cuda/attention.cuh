/* SPDX-License-Identifier: Apache-2.0 */
/* What attention.cu and the kernels on tensor cores (attention_flash.cuh) share. */
#ifndef INFERD_KERNELS_CUDA_ATTENTION_CUH
#define INFERD_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/side.cuh"

namespace attention
{

constexpr int QUERIES = 16;        /* of a fragment: the m of m16n8k16 */
constexpr int KEY_MASK_MAX = 4096; /* keys whose mask is kept in shared memory as a whole */
constexpr int SPLITS_MAX = 32;
constexpr float LOG2_E = 1.4426950408889634f;

/* NONE; one row for all queries of a block; a row for each query; a range of keys for each. */
enum mask_kind { MASK_NONE, MASK_KEYS, MASK_FULL, MASK_SPANS };

struct operand {
    const void *data;
    int64_t n, h, s; /* strides */
};

struct problem {
    struct operand q, k, v, y;
    struct bytes_side to; /* y, if it is stored in 8 bits by a scale; else its step is 0 */
    const void *mask;     /* NULL: none */
    const int32_t *spans; /* [sq][2]; NULL: none */
    int64_t mask_n, mask_h, mask_q, mask_k;
    int64_t mask_batches; /* they repeat */
    int64_t batch;
    int32_t heads, shared_by; /* heads of q; how many of them read one head of k */
    int32_t sq, sk, d, e;     /* e: columns of v */
    float scale;
    bool causal, mask_bool;
    bool chunks;      /* rows allow loads and stores of 16 bytes */
    bool mask_chunks; /* so do those of the mask */
    /* Of tensor cores: */
    int32_t group;       /* heads whose queries are rows of one item */
    int32_t rows, items; /* rows of an item: group * sq */
    int32_t q_tiles, splits;
    int32_t slots;  /* stages in shared memory */
    int32_t region; /* elements that the stages have together */
    float *parts;   /* [items, q_tiles, splits, 16, columns], then 2 statistics a row */
};

/* Stores N neighbours of y from offset `at` on in 8 bits. */
template <typename T, int N>
__device__ __forceinline__ void store_bytes(const struct problem &p, int64_t at, const T *from)
{
    struct bytes_side to = p.to;
    float v[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        v[i] = number_float(from[i]);
    to.data = static_cast<char *>(to.data) + at;
    side_store_byte<N>(to, 0, v);
}

template <typename T> __device__ const T *head_of(const struct operand &x, int64_t n, int64_t h)
{
    return static_cast<const T *>(x.data) + n * x.n + h * x.h;
}

/* The keys that a query sees; begin is 0 and end too if there are none. */
struct span {
    int32_t begin, end;
};

__device__ __forceinline__ struct span span_of(const struct problem &p, int query)
{
    query = min(query, p.sq - 1);
    struct span s = {max(p.spans[2 * query], 0), min(p.spans[2 * query + 1], p.sk)};
    if (p.causal)
        s.end = min(s.end, query + 1);
    if (s.begin >= s.end)
        s = {0, 0};
    return s;
}

/* What both see together. */
__device__ __forceinline__ struct span span_join(struct span a, struct span b)
{
    if (a.begin == a.end)
        return b;
    if (b.begin == b.end)
        return a;
    return {min(a.begin, b.begin), max(a.end, b.end)};
}

/* The same of what all lanes of a warp have. */
__device__ __forceinline__ struct span span_join_warp(struct span all)
{
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        struct span other = {__shfl_xor_sync(0xffffffffu, all.begin, step),
                             __shfl_xor_sync(0xffffffffu, all.end, step)};
        all = span_join(all, other);
    }
    return all;
}

/* --- sequences apart --- */

/* Products on tensor cores meet the values of neighbouring sequences with weights of 0, and an
 * infinite value times 0 is NaN. So with spans the rows that are not finite are made anew, from
 * what they see alone: then one request's infinity does not reach the others of its batch. */

/* Whether a number is infinite or NaN: what is added up is 0, or NaN. */
__device__ __forceinline__ float not_finite(float so_far, float v)
{
    return fmaf(v, 0.0f, so_far);
}

template <typename T>
__device__ __forceinline__ float mend_score(const struct problem &p, const T *q, const T *k)
{
    float s = 0;
#pragma unroll 1
    for (int c = 0; c < p.d; c++)
        s = fmaf(number_float(q[c]), number_float(k[c]), s);
    return s * p.scale;
}

/* By a warp: one row of the only batch. */
template <typename T>
__device__ __forceinline__ void mend_row(const struct problem &p, int h, int query)
{
    constexpr int PARTS = 8; /* 32 columns each: all that heads have */
    int lane = (int)threadIdx.x % 32;
    const T *q = head_of<T>(p.q, 0, h) + query * p.q.s;
    const T *k = head_of<T>(p.k, 0, h / p.shared_by), *v = head_of<T>(p.v, 0, h / p.shared_by);
    struct span own = span_of(p, query);
    float highest = -INFINITY, sum = 0, o[PARTS] = {};
#pragma unroll 1
    for (int key = own.begin + lane; key < own.end; key += 32)
        highest = fmaxf(highest, mend_score(p, q, k + key * p.k.s));
    highest = reduce_warp(highest, reduce_max());
    float base = highest == -INFINITY ? 0.0f : highest;
#pragma unroll 1
    for (int first = own.begin; first < own.end; first += 32) {
        int key = first + lane;
        float weight = key < own.end ? expf(mend_score(p, q, k + key * p.k.s) - base) : 0.0f;
        sum += weight;
#pragma unroll 1
        for (int i = 0; i < min(32, own.end - first); i++) {
            float w = __shfl_sync(0xffffffffu, weight, i);
            const T *row = v + (first + i) * p.v.s;
#pragma unroll
            for (int c = 0; c < PARTS; c++)
                if (c * 32 + lane < p.e)
                    o[c] = fmaf(w, number_float(row[c * 32 + lane]), o[c]);
        }
    }
    sum = reduce_warp(sum, reduce_sum());
    int64_t at = h * p.y.h + query * p.y.s + lane;
#pragma unroll
    for (int c = 0; c < PARTS; c++) {
        T value = number_from<T>(sum == 0.0f ? 0.0f : o[c] / sum);
        if (c * 32 + lane >= p.e)
            continue;
        if (p.to.step != 0)
            store_bytes<T, 1>(p, at + c * 32, &value);
        else
            static_cast<T *>(const_cast<void *>(p.y.data))[at + c * 32] = value;
    }
}

/* Row `r` of an item is query `i` of its head `h`. */
struct place {
    int32_t h, i;
};

__device__ __forceinline__ struct place place_of(const struct problem &p, int r)
{
    struct place at = {0, r};
    if (p.group > 1) {
        at.h = r / p.sq;
        at.i = r - at.h * p.sq;
    }
    return at;
}

/* --- launching --- */

/* How an item is cut; attention.cu decides. */
struct cut {
    int warps, tiles; /* of 16 queries a warp; warps 0: four warps share the keys */
};

/* Columns that the fragments have. */
inline int padded(const struct problem &p)
{
    int columns = p.d > p.e ? p.d : p.e;
    return columns <= 32 ? 32 : columns <= 64 ? 64 : columns <= 128 ? 128 : 256;
}

/* As many blocks for each item as give every multiprocessor two, if there are tiles for them. */
inline int splits_of(const struct kernel_call *call, const struct problem &p)
{
    int64_t blocks = (int64_t)p.items * p.q_tiles, tiles = kernel_ceil_div(p.sk, 64);
    int64_t most = kernel_multiprocessors(call);
    int64_t splits = kernel_ceil_div(2 * most, blocks > 0 ? blocks : 1);
    splits = splits < tiles ? splits : tiles;
    splits = splits < SPLITS_MAX ? splits : SPLITS_MAX;
    return (int)kernel_ceil_div(tiles, kernel_ceil_div(tiles, splits));
}

cudaError_t launch_f16(const struct kernel_call *call, const struct problem &p, struct cut cut);
cudaError_t launch_bf16(const struct kernel_call *call, const struct problem &p, struct cut cut);
/* The PASS variants. */
cudaError_t pass_launch_f16(const struct kernel_call *call, const struct problem &p);
cudaError_t pass_launch_bf16(const struct kernel_call *call, const struct problem &p);

} // namespace attention

#endif
