/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention on tensor cores: y = softmax(scale q k' + mask) v, head by head, without ever storing
 * the scores. F16 and BF16, heads up to 256 columns; attention_f16.cu and attention_bf16.cu
 * instantiate this for their type, attention.cu has the entry.
 *
 * A warp owns 16 or 32 queries (MT tiles of 16). Tiles of 64 keys and values (and of the mask, if
 * it depends on the query) come through cp.async into a ring of stages in swizzled shared memory,
 * as far ahead as the ring is long. Scores, running maximum, running sum and the output
 * accumulators are fp32 fragments of m16n8k16. A block has one of two shapes:
 *   KW = 1  each warp has queries of its own and sees every key (2, 4 or 8 warps)
 *   KW > 1  all warps have the same 16 queries and share out the keys of each tile; their partial
 *           results meet in shared memory. The 16 rows may belong to several heads that read the
 *           same keys. For small batches, whose queries alone do not fill a device; with `splits`
 *           the keys of a head are shared out among blocks, too, and combine_kernel adds up.
 *
 * Keys lie permuted in the fragments: of the KEYS keys of a step, lane l has the KEYS / 4 in a row
 * from (l % 4) * KEYS / 4 on, which makes 16-byte loads of its mask. Softmax does not care, and the
 * values are read by the same permutation.
 *
 * With spans each query sees a range of keys. A block reads the tiles that its queries see
 * together, and a warp does the steps that its own do: sequences that lie one behind the other cost
 * what they would cost alone, but for the blocks that lie across two.
 *
 * Scores with a mask stay in natural units until the maximum is subtracted: masks go down to the
 * type's lowest number, which a factor of log2(e) would make infinite. A row of nothing but -inf
 * gives zeros.
 */
#ifndef INFERD_KERNELS_CUDA_ATTENTION_FLASH_CUH
#define INFERD_KERNELS_CUDA_ATTENTION_FLASH_CUH

#include <string.h>

#include "kernels/cuda/attention_load.cuh"

namespace attention
{

/* --- arithmetic --- */

/* Packs two neighbours of a fragment into one register, the lower index in the low half. */
__device__ __forceinline__ uint32_t pack2(half_t, float low, float high)
{
    __half2 pair = __floats2half2_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof(bits));
    return bits;
}

__device__ __forceinline__ uint32_t pack2(bf16_t, float low, float high)
{
    __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    uint32_t bits;
    memcpy(&bits, &pair, sizeof(bits));
    return bits;
}

/* Adds to two neighbouring 16x8 tiles of d, from the four matrices that one ldmatrix brought. */
template <typename T>
__device__ __forceinline__ void multiply(float (&d0)[4], float (&d1)[4], const uint32_t (&a)[4],
                                         const uint32_t (&b)[4])
{
    const uint32_t b0[2] = {b[0], b[1]}, b1[2] = {b[2], b[3]};
    mma_m16n8k16(T(), d0, a, b0);
    mma_m16n8k16(T(), d1, a, b1);
}

/* The value that exponents are relative to: the maximum, or 0 while all scores are -inf. */
__device__ __forceinline__ float base_of(float highest)
{
    return highest == -INFINITY ? 0.0f : highest;
}

__device__ __forceinline__ float exp_2(float x)
{
#ifdef INFERD_EMULATE
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* 2^(unit (x - base)). In bf16 a mask may be so low that unit * base overflows. */
template <bool WIDE> __device__ __forceinline__ float exp_above(float x, float base, float unit)
{
    return WIDE ? exp_2((x - base) * unit) : exp_2(__fmaf_rn(x, unit, -base * unit));
}

/* A warp's running state for 16 queries: this lane has rows lane/4 and lane/4 + 8. */
template <int DP> struct running {
    float o[DP / 8][4];
    float highest[2], sum[2]; /* sum: of this lane's keys only */
};

/* Turns scores into 2^(unit (score - maximum)) and brings the state to the new maximum. */
template <int DP, int KEYS, bool WIDE>
__device__ __forceinline__ void soften(struct running<DP> &state, float (*s)[4], float unit)
{
    float shrink[2];
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float highest = state.highest[r];
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
            highest = fmaxf(highest, fmaxf(s[j][2 * r], s[j][2 * r + 1]));
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, 2));
        float base = base_of(highest), sum = 0;
        shrink[r] = exp_above<WIDE>(state.highest[r], base, unit);
        state.highest[r] = highest;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
            s[j][2 * r] = exp_above<WIDE>(s[j][2 * r], base, unit);
            s[j][2 * r + 1] = exp_above<WIDE>(s[j][2 * r + 1], base, unit);
            sum += s[j][2 * r] + s[j][2 * r + 1];
        }
        state.sum[r] = state.sum[r] * shrink[r] + sum;
    }
    if (!__any_sync(0xffffffff, shrink[0] != 1.0f || shrink[1] != 1.0f))
        return;
#pragma unroll
    for (int j = 0; j < DP / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            state.o[j][i] *= shrink[i >> 1];
}

/* What `n` rows from the first one on see together; all lanes of a warp get it. */
__device__ __forceinline__ struct span spans_of(const struct problem &p, int first, int n)
{
    struct span all = {0, 0};
    for (int row = first + (int)threadIdx.x % 32; row < min(first + n, p.rows); row += 32)
        all = span_join(all, span_of(p, place_of(p, row).i));
    return span_join_warp(all);
}

/* --- a warp's step --- */

template <typename T, int DP, int MT, int KW, int MASK> struct warp_work {
    using S = shape<DP, MT, KW, MASK>;
    static constexpr int KEYS = S::KEYS, PER = KEYS / 4;
    static constexpr bool ADDS = MASK == MASK_KEYS || MASK == MASK_FULL;
    static constexpr bool WIDE = ADDS && number_of<T>::dtype == DTYPE_BF16;

    struct running<DP> state[MT];
    uint32_t a[S::HELD ? MT : 1][S::HELD ? DP / 16 : 1][4]; /* fragments of the queries */
    const T *queries;                                       /* this warp's, in shared memory */
    int seen[MT][2];                                        /* how many keys the lane's rows see */
    int since[MT][2];                                       /* of spans: the first one */
    int seen_least;                                         /* by any row */
    struct span all;                                        /* of spans: of all the warp's rows */
    float scale, unit;

    __device__ __forceinline__ void query_fragment(uint32_t (&to)[4], int m, int ks) const
    {
        int lane = (int)threadIdx.x % 32;
        ldmatrix_x4(to, queries + row_at<DP>(m * QUERIES + (lane & 15), ks * 2 + (lane >> 4)));
    }

    __device__ __forceinline__ void begin(const struct problem &p, const T *from, int first)
    {
        int lane = (int)threadIdx.x % 32;
        queries = from;
        scale = p.scale;
        unit = ADDS ? LOG2_E : p.scale * LOG2_E;
        seen_least = !p.causal ? p.sk : p.group > 1 ? 0 : max(0, first + p.sk - p.sq + 1);
#pragma unroll
        for (int m = 0; m < MT; m++) {
#pragma unroll
            for (int r = 0; r < 2; r++) {
                int i = place_of(p, first + m * QUERIES + r * 8 + lane / 4).i;
                seen[m][r] = p.causal ? min(p.sk, i + p.sk - p.sq + 1) : p.sk;
                if constexpr (MASK == MASK_SPANS) {
                    struct span own = span_of(p, i);
                    since[m][r] = own.begin;
                    seen[m][r] = own.end;
                }
                state[m].highest[r] = -INFINITY;
                state[m].sum[r] = 0;
            }
#pragma unroll
            for (int j = 0; j < DP / 8; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    state[m].o[j][i] = 0;
            if constexpr (S::HELD)
#pragma unroll
                for (int ks = 0; ks < DP / 16; ks++)
                    query_fragment(a[m][ks], m, ks);
        }
        if constexpr (MASK == MASK_SPANS)
            all = spans_of(p, first, MT * QUERIES);
    }

    __device__ __forceinline__ void scores(float (&s)[MT][KEYS / 8][4], const T *k) const
    {
        int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int ks = 0; ks < DP / 16; ks++) {
            uint32_t now[MT][4];
#pragma unroll
            for (int m = 0; m < MT; m++)
                if constexpr (S::HELD)
                    memcpy(now[m], a[m][ks], sizeof(now[m]));
                else
                    query_fragment(now[m], m, ks);
#pragma unroll
            for (int j = 0; j < KEYS / 16; j++) {
                uint32_t b[4];
                int row = key_of<KEYS>(2 * j + (lane >> 4), lane & 7);
                ldmatrix_x4(b, k + key_at<DP, KEYS>(row, ks * 2 + (lane >> 3 & 1)));
#pragma unroll
                for (int m = 0; m < MT; m++)
                    multiply<T>(s[m][2 * j], s[m][2 * j + 1], now[m], b);
            }
        }
    }

    /* Adds the row of mask that all queries share; `mask` begins with the lane's keys. */
    __device__ __forceinline__ void add_key_mask(float (&s)[MT][KEYS / 8][4], const float *mask,
                                                 int key) const
    {
#pragma unroll
        for (int j = 0; j < KEYS / 8; j += 2) {
            vector<float, 4> x =
                vector_load<float, 4>(mask + key_mask_at(key + (int)threadIdx.x % 4 * PER + 2 * j));
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int i = 0; i < 8; i++) {
                    float &score = s[m][j + (i & 1)][(i >> 1 & 1) + (i >> 2) * 2];
                    score = __fmaf_rn(score, scale, x.v[(i & 1) * 2 + (i >> 1 & 1)]);
                }
        }
    }

    /* Adds each query's own row; `mask` is the warp's first row in shared memory. */
    __device__ __forceinline__ void add_mask(float (&s)[MT][KEYS / 8][4], const T *mask) const
    {
        int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                const T *row =
                    mask + (m * QUERIES + r * 8 + lane / 4) * S::MASK_PITCH + lane % 4 * PER;
                vector<T, PER> x = vector_load<T, PER>(row);
#pragma unroll
                for (int i = 0; i < PER; i++) {
                    float &score = s[m][i >> 1][2 * r + (i & 1)];
                    score = __fmaf_rn(score, scale, number_float(x.v[i]));
                }
            }
    }

    /* Sets the scores of keys that a row does not see to -inf. */
    __device__ __forceinline__ void hide(float (&s)[MT][KEYS / 8][4], int key) const
    {
        if (MASK != MASK_SPANS && key + KEYS <= seen_least)
            return;
        key += (int)threadIdx.x % 4 * PER;
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int i = 0; i < KEYS / 2; i++)
                if (key + (i >> 2) * 2 + (i & 1) >= seen[m][i >> 1 & 1] ||
                    (MASK == MASK_SPANS && key + (i >> 2) * 2 + (i & 1) < since[m][i >> 1 & 1]))
                    s[m][i >> 2][i & 3] = -INFINITY;
    }

    /* o += p v, where p still has the form of the scores' fragments. */
    __device__ __forceinline__ void values(const float (&s)[MT][KEYS / 8][4], const T *v)
    {
        int lane = (int)threadIdx.x % 32;
#pragma unroll
        for (int kk = 0; kk < KEYS / 16; kk++) {
            uint32_t w[MT][4];
            int row = key_of<KEYS>(2 * kk + (lane >> 3 & 1), lane & 7);
#pragma unroll
            for (int m = 0; m < MT; m++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    w[m][i] = pack2(T(), s[m][2 * kk + (i >> 1)][(i & 1) * 2],
                                    s[m][2 * kk + (i >> 1)][(i & 1) * 2 + 1]);
#pragma unroll
            for (int j = 0; j < DP / 16; j++) {
                uint32_t b[4];
                ldmatrix_x4_trans(b, v + key_at<DP, KEYS>(row, j * 2 + (lane >> 4)));
#pragma unroll
                for (int m = 0; m < MT; m++)
                    multiply<T>(state[m].o[2 * j], state[m].o[2 * j + 1], w[m], b);
            }
        }
    }

    /* Does the KEYS keys from `key` on, whose rows begin at k and v. */
    __device__ __forceinline__ void step(const T *k, const T *v, const T *mask,
                                         const float *key_mask, int key_in_mask, int key)
    {
        float s[MT][KEYS / 8][4];
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    s[m][j][i] = 0;
        scores(s, k);
        if (MASK == MASK_KEYS)
            add_key_mask(s, key_mask, key_in_mask);
        if (MASK == MASK_FULL)
            add_mask(s, mask);
        hide(s, key);
#pragma unroll
        for (int m = 0; m < MT; m++)
            soften<DP, KEYS, WIDE>(state[m], s[m], unit);
        values(s, v);
    }

    __device__ __forceinline__ void add_sums()
    {
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int r = 0; r < 2; r++) {
                state[m].sum[r] += __shfl_xor_sync(0xffffffff, state[m].sum[r], 1);
                state[m].sum[r] += __shfl_xor_sync(0xffffffff, state[m].sum[r], 2);
            }
    }
};

/* --- results --- */

__device__ __forceinline__ float inverse_of(float sum)
{
    return sum == 0.0f ? 0.0f : 1.0f / sum;
}

/* Stores 8 columns of the row of y that begins at an offset. */
template <typename T>
__device__ __forceinline__ void chunk_store(const struct problem &p, int64_t row, int c,
                                            const T *from)
{
    T *y = static_cast<T *>(const_cast<void *>(p.y.data));
    int64_t at = row + c * 8;
    int columns = min(p.e - c * 8, 8);
    if (p.to.step != 0) {
        if (p.chunks && columns == 8)
            store_bytes<T, 8>(p, at, from);
        for (int e = 0; !p.chunks && e < columns; e++)
            store_bytes<T, 1>(p, at + e, from + e);
    } else if (p.chunks) {
        if (columns > 0)
            *reinterpret_cast<uint4 *>(y + at) = *reinterpret_cast<const uint4 *>(from);
    } else {
        for (int e = 0; e < columns; e++)
            y[at + e] = from[e];
    }
}

/* By a warp: the rows of a head from `first` on of which a lane has found that they are not finite.
 * Lane l has rows l / 4 and 8 further on. */
template <typename T>
__device__ __forceinline__ void mend_rows(const struct problem &p, int h, int first, float probe0,
                                          float probe1)
{
    uint32_t upper = __ballot_sync(0xffffffffu, probe0 != 0),
             lower = __ballot_sync(0xffffffffu, probe1 != 0);
#pragma unroll 1
    for (int row = 0; row < QUERIES && first + row < p.sq; row++)
        if ((row < 8 ? upper : lower) >> row % 8 * 4 & 15)
            mend_row<T>(p, h, first + row);
}

/* The warp's rows go through shared memory, so that each lane stores 16 bytes. `h`: their head,
 * with spans. */
template <typename T, int DP, int MASK>
__device__ __forceinline__ void store_rows(const struct running<DP> &state, T *tile,
                                           const struct problem &p, int64_t y, int h, int first)
{
    constexpr int CHUNKS = DP / 8;
    int lane = (int)threadIdx.x % 32;
    float probe[2] = {0, 0};
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float inverse = inverse_of(state.sum[r]);
#pragma unroll
        for (int j = 0; j < DP / 8; j++) {
            float low = state.o[j][2 * r] * inverse, high = state.o[j][2 * r + 1] * inverse;
            if (state.sum[r] == 0.0f) /* an infinite value times a weight of 0 is not 0 */
                low = high = 0.0f;
            if (MASK == MASK_SPANS)
                probe[r] = not_finite(not_finite(probe[r], low), high);
            *reinterpret_cast<uint32_t *>(tile + row_at<DP>(lane / 4 + r * 8, j) + lane % 4 * 2) =
                pack2(T(), low, high);
        }
    }
    __syncwarp();
    for (int i = lane; i < QUERIES * CHUNKS; i += 32) {
        int row = i / CHUNKS, c = i % CHUNKS;
        if (first + row >= p.rows)
            continue;
        struct place at = place_of(p, first + row);
        chunk_store(p, y + at.h * p.y.h + at.i * p.y.s, c, tile + row_at<DP>(row, c));
    }
    __syncwarp();
    if (MASK == MASK_SPANS && __any_sync(0xffffffffu, probe[0] != 0 || probe[1] != 0))
        mend_rows<T>(p, h, first, probe[0], probe[1]);
}

/* One row's 8 columns, from the sums of all warps, or of all blocks. */
template <typename T>
__device__ __forceinline__ void store_total(const struct problem &p, int64_t y, int r, int c,
                                            const float (&total)[8], float sum)
{
    struct place at = place_of(p, r);
    float inverse = inverse_of(sum);
    vector<T, 8> out;
#pragma unroll
    for (int x = 0; x < 8; x++)
        out.v[x] = number_from<T>(sum == 0.0f ? 0.0f : total[x] * inverse);
    chunk_store(p, y + at.h * p.y.h + at.i * p.y.s, c, out.v);
}

/* The partial results of a block: rows of [16][DP], then maxima and sums of all rows. */
__device__ __forceinline__ float *part_stats(const struct problem &p, int columns)
{
    return p.parts + (int64_t)p.items * p.q_tiles * p.splits * QUERIES * columns;
}

/* Adds up the results of warps that had different keys for the same queries, each brought to the
 * maximum of all. `stats`: maxima and sums, [2][KW][16]; `shares`: [KW][16][DP + 8]. */
template <typename T, int DP, int KW, bool WIDE>
__device__ void merge(const struct running<DP> &state, float unit, float *stats, float *shares,
                      const struct problem &p, int64_t y, int first)
{
    constexpr int CHUNKS = DP / 8, PITCH = DP + 8; /* 8: rows of a fragment in different banks */
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    float *maxima = stats, *sums = stats + KW * QUERIES;
#pragma unroll
    for (int r = 0; r < 2; r++)
        if (lane % 4 == 0) {
            maxima[warp * QUERIES + lane / 4 + r * 8] = state.highest[r];
            sums[warp * QUERIES + lane / 4 + r * 8] = state.sum[r];
        }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        int row = lane / 4 + r * 8;
        float highest = -INFINITY;
        for (int w = 0; w < KW; w++)
            highest = fmaxf(highest, maxima[w * QUERIES + row]);
        float shrink = exp_above<WIDE>(state.highest[r], base_of(highest), unit);
#pragma unroll
        for (int j = 0; j < DP / 8; j++) {
            float *to = shares + (warp * QUERIES + row) * PITCH + j * 8 + lane % 4 * 2;
            to[0] = state.o[j][2 * r] * shrink;
            to[1] = state.o[j][2 * r + 1] * shrink;
        }
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < QUERIES * CHUNKS; i += KW * 32) {
        int row = i / CHUNKS, c = i % CHUNKS;
        if (first + row >= p.rows)
            continue;
        float highest = -INFINITY, sum = 0, total[8] = {0};
        for (int w = 0; w < KW; w++)
            highest = fmaxf(highest, maxima[w * QUERIES + row]);
        for (int w = 0; w < KW; w++) {
            sum += sums[w * QUERIES + row] *
                   exp_above<WIDE>(maxima[w * QUERIES + row], base_of(highest), unit);
            const float *share = shares + (w * QUERIES + row) * PITCH + c * 8;
#pragma unroll
            for (int x = 0; x < 8; x++)
                total[x] += share[x];
        }
        if (p.splits == 1) {
            store_total<T>(p, y, first + row, c, total, sum);
            continue;
        }
        int64_t at = (int64_t)blockIdx.x * QUERIES + row;
        vector<float, 8> part;
        memcpy(part.v, total, sizeof(total));
        vector_store<float, 8>(p.parts + at * DP + c * 8, part);
        if (c == 0) {
            part_stats(p, DP)[2 * at] = highest;
            part_stats(p, DP)[2 * at + 1] = sum;
        }
    }
}

/* --- kernels --- */

/* What a block does: queries of an item (a head, or the heads that share keys), and its keys. */
struct block_work {
    int64_t n;
    int32_t h, first;   /* the item's first head; the first row */
    int32_t begin, end; /* tiles of keys */
};

template <int TILE, int MASK>
__device__ __forceinline__ struct block_work block_work_of(const struct problem &p, int rows)
{
    struct block_work w;
    int index = (int)blockIdx.x, split = 0;
    if (p.splits > 1) {
        split = index % p.splits;
        index /= p.splits;
    }
    int item = index / p.q_tiles, items = p.heads / p.group;
    w.n = item / items;
    w.h = item % items * p.group;
    w.first = (p.q_tiles - 1 - index % p.q_tiles) * rows; /* causal: the longest first */
    int keys = p.sk;
    if (p.causal && p.group == 1)
        keys = max(0, min(w.first + rows, p.sq) + p.sk - p.sq);
    w.begin = 0;
    w.end = (keys + TILE - 1) / TILE;
    if constexpr (MASK == MASK_SPANS) {
        struct span all = spans_of(p, w.first, rows);
        w.begin = all.begin / TILE;
        w.end = (all.end + TILE - 1) / TILE;
    }
    if (p.splits > 1) {
        int share = (w.end + p.splits - 1) / p.splits;
        w.begin = min(w.end, split * share);
        w.end = min(w.end, w.begin + share);
    }
    return w;
}

template <typename T, int DP, int MT, int KW, int MASK>
__global__ void __launch_bounds__(shape<DP, MT, KW, MASK>::THREADS, shape<DP, MT, KW, MASK>::BLOCKS)
    flash_kernel(struct problem p)
{
    using S = shape<DP, MT, KW, MASK>;
    constexpr int TILE = S::TILE, KEYS = S::KEYS, STAGES = S::STAGES;
    KERNEL_SHARED(T, shared); /* stages, queries, the mask of all keys, the warps' statistics */
    int warp = (int)threadIdx.x / 32, rows = (KW > 1 ? 1 : (int)blockDim.x / 32) * MT * QUERIES;
    int slot = S::slot(rows);
    T *queries = shared + p.region;
    float *key_mask = reinterpret_cast<float *>(queries + rows * DP);
    struct block_work b = block_work_of<TILE, MASK>(p, rows);
    const T *k = head_of<T>(p.k, b.n, b.h / p.shared_by);
    const T *v = head_of<T>(p.v, b.n, b.h / p.shared_by);
    int64_t mask_from = b.n % p.mask_batches * p.mask_n + b.h * p.mask_h;
    int mine = KW > 1 ? 0 : warp * MT * QUERIES; /* the warp's first row */

    auto load = [&](int t) {
        if (t < b.end) {
            T *stage = shared + (t - b.begin) % p.slots * slot;
            tile_load<T, DP, TILE, KEYS>(stage, k, p.k.s, t * TILE, p.sk, p.d, p.chunks);
            tile_load<T, DP, TILE, KEYS>(stage + TILE * DP, v, p.v.s, t * TILE, p.sk, p.e,
                                         p.chunks);
            if (MASK == MASK_FULL)
                mask_load<T, TILE>(stage + 2 * TILE * DP, p, mask_from, b.first, rows, t * TILE);
        }
        copy_async_commit(); /* maybe empty: then the group before is waited for, too */
    };
    queries_load<T, DP>(queries, p, head_of<T>(p.q, b.n, b.h), b.first, rows);
    for (int t = 0; t < STAGES - 1; t++)
        load(b.begin + t);
    if (MASK == MASK_KEYS)
        key_mask_load<T>(key_mask, p, mask_from, b.begin * TILE, b.end * TILE);
    copy_async_wait<STAGES - 2>();
    __syncthreads();

    warp_work<T, DP, MT, KW, MASK> work;
    work.begin(p, queries + mine * DP, b.first + mine);
    int last = b.first + mine + MT * QUERIES; /* keys that any of the warp's rows sees */
    int seen_most = p.causal && p.group == 1 ? last + p.sk - p.sq : p.sk, seen_first = 0;
    if constexpr (MASK == MASK_SPANS) {
        seen_first = work.all.begin;
        seen_most = work.all.end;
    }
    for (int t = b.begin; t < b.end; t++) {
        const T *stage = shared + (t - b.begin) % p.slots * slot;
        copy_async_wait<STAGES - 2>();
        __syncthreads();
        load(t + STAGES - 1);
#pragma unroll 1
        for (int in_tile = KW > 1 ? warp * KEYS : 0; in_tile < TILE; in_tile += KEYS * KW) {
            int key = t * TILE + in_tile;
            if (key >= p.sk || key >= seen_most)
                break;
            if (MASK == MASK_SPANS && key + KEYS <= seen_first)
                continue;
            work.step(stage + in_tile * DP, stage + (TILE + in_tile) * DP,
                      stage + 2 * TILE * DP + mine * S::MASK_PITCH + in_tile, key_mask,
                      key - b.begin * TILE, key);
        }
    }
    work.add_sums();
    int64_t y = b.n * p.y.n + b.h * p.y.h;
    if (KW > 1) {
        __syncthreads(); /* the stages are free */
        merge<T, DP, KW, warp_work<T, DP, MT, KW, MASK>::WIDE>(
            work.state[0], work.unit, reinterpret_cast<float *>(queries),
            reinterpret_cast<float *>(shared), p, y, b.first);
        return;
    }
#pragma unroll
    for (int m = 0; m < MT; m++)
        store_rows<T, DP, MASK>(work.state[m], queries + (mine + m * QUERIES) * DP, p, y, b.h,
                                b.first + mine + m * QUERIES);
}

/* Adds up what the blocks of a split found; a thread has 8 columns of a row. */
template <typename T, int DP, bool WIDE>
__global__ void __launch_bounds__(256) combine_kernel(struct problem p, float unit)
{
    constexpr int CHUNKS = DP / 8;
    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, row = i / CHUNKS;
    int c = (int)(i % CHUNKS), r = (int)(row % (p.q_tiles * QUERIES)), tile = r / QUERIES;
    int64_t item = row / (p.q_tiles * QUERIES), items = p.heads / p.group;
    if (item >= p.items || r >= p.rows)
        return;
    /* Blocks count their tiles from the last. */
    int64_t block = (item * p.q_tiles + p.q_tiles - 1 - tile) * p.splits;
    const float *stats = part_stats(p, DP);
    float highest = -INFINITY, sum = 0, total[8] = {0};
    for (int s = 0; s < p.splits; s++)
        highest = fmaxf(highest, stats[2 * ((block + s) * QUERIES + r % QUERIES)]);
    for (int s = 0; s < p.splits; s++) {
        int64_t at = (block + s) * QUERIES + r % QUERIES;
        float shrink = exp_above<WIDE>(stats[2 * at], base_of(highest), unit);
        vector<float, 8> part = vector_load<float, 8>(p.parts + at * DP + c * 8);
        sum += stats[2 * at + 1] * shrink;
#pragma unroll
        for (int x = 0; x < 8; x++)
            total[x] += part.v[x] * shrink;
    }
    int64_t y = item / items * p.y.n + item % items * p.group * p.y.h;
    store_total<T>(p, y, r, c, total, sum);
}

/* --- launching --- */

template <typename T, int DP, int MT, int KW, int MASK>
cudaError_t launch_kernel(const struct kernel_call *call, struct problem p, int warps)
{
    using S = shape<DP, MT, KW, MASK>;
    int rows = warps * MT * QUERIES, keys = (int)kernel_ceil_div(p.sk, S::TILE) * S::TILE;
    int64_t blocks = (int64_t)p.items * p.q_tiles * p.splits, shares = KW * QUERIES * (DP + 8);
    p.slots = keys / S::TILE < S::STAGES ? keys / S::TILE : S::STAGES;
    p.region = p.slots * S::slot(rows);
    if (KW > 1 && p.region < shares * 2)
        p.region = (int32_t)(shares * 2); /* floats, in elements of 2 bytes */
    size_t shared = ((size_t)p.region + (size_t)rows * DP) * sizeof(T);
    if (MASK == MASK_KEYS)
        shared += (size_t)(keys + keys / 4) * sizeof(float);
    if (blocks > INT32_MAX || shared > 227 << 10)
        return cudaErrorNotSupported;
    cudaError_t code = KERNEL_LAUNCH((flash_kernel<T, DP, MT, KW, MASK>), (unsigned)blocks,
                                     (unsigned)(KW > 1 ? KW : warps) * 32, shared, call, p);
    if (code != cudaSuccess || p.splits == 1)
        return code;
    constexpr bool WIDE = warp_work<T, DP, MT, KW, MASK>::WIDE;
    int64_t threads = (int64_t)p.items * p.q_tiles * QUERIES * (DP / 8);
    float unit = warp_work<T, DP, MT, KW, MASK>::ADDS ? LOG2_E : p.scale * LOG2_E;
    return KERNEL_LAUNCH((combine_kernel<T, DP, WIDE>), (unsigned)kernel_ceil_div(threads, 256),
                         256, 0, call, p, unit);
}

template <typename T, int DP, int MASK>
cudaError_t launch_cut(const struct kernel_call *call, const struct problem &p, struct cut cut)
{
    if (cut.warps == 0)
        return launch_kernel<T, DP, 1, 4, MASK>(call, p, 1);
    if (cut.tiles == 1)
        return launch_kernel<T, DP, 1, 1, MASK>(call, p, cut.warps);
    if constexpr (DP <= 128)
        return launch_kernel<T, DP, 2, 1, MASK>(call, p, cut.warps);
    return cudaErrorNotSupported;
}

template <typename T, int DP>
cudaError_t launch_columns(const struct kernel_call *call, const struct problem &p, struct cut cut)
{
    bool one_row = p.mask_q == 0 && (p.mask_h == 0 || p.group == 1) && p.sk <= KEY_MASK_MAX;
    if (p.spans)
        return launch_cut<T, DP, MASK_SPANS>(call, p, cut);
    if (!p.mask)
        return launch_cut<T, DP, MASK_NONE>(call, p, cut);
    return one_row ? launch_cut<T, DP, MASK_KEYS>(call, p, cut)
                   : launch_cut<T, DP, MASK_FULL>(call, p, cut);
}

template <typename T>
cudaError_t launch(const struct kernel_call *call, const struct problem &p, struct cut cut)
{
    switch (padded(p)) {
    case 32:
        return launch_columns<T, 32>(call, p, cut);
    case 64:
        return launch_columns<T, 64>(call, p, cut);
    case 128:
        return launch_columns<T, 128>(call, p, cut);
    default:
        return launch_columns<T, 256>(call, p, cut);
    }
}

} // namespace attention

#endif
