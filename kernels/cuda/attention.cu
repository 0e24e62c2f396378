/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention: y = softmax(scale q k' + mask) v, head by head, without ever storing the scores.
 *
 * flash_kernel (F16, BF16; head sizes that are multiples of 8, up to 128): a warp owns 16 queries,
 * whose fragments stay in registers. Tiles of keys and values come through cp.async into two stages
 * of swizzled shared memory. Scores, running maximum, running sum and the output accumulators are
 * fp32 fragments of m16n8k16. A block has one of two shapes:
 *   KW = 1  each warp has 16 queries of its own and sees every key (2, 4 or 8 warps)
 *   KW > 1  all warps have the same 16 queries and share out the keys of each tile; their partial
 *           results meet in shared memory. For small batches, whose queries alone do not fill a
 *           device.
 *
 * plain_kernel does everything else up to head sizes of 128, in fp32 from shared memory, with 4
 * queries per warp: lanes are keys for the scores and columns of v for the output.
 *
 * Scores stay in natural units until the maximum is subtracted: masks go down to the type's lowest
 * number, which a factor of log2(e) would make infinite. A row of nothing but -inf gives NaN.
 * Refused: strides along D other than 1, head sizes beyond 128.
 */
#include <string.h>

#include "kernels/cuda/mma.cuh"
#include "kernels/cuda/reduce.cuh"

namespace
{

constexpr int QUERIES = 16; /* of a warp: the m of m16n8k16 */

struct operand {
    const void *data;
    int64_t n, h, s; /* strides */
};

struct problem {
    struct operand q, k, v, y;
    const void *mask; /* NULL: none */
    int64_t mask_n, mask_h, mask_q, mask_k;
    int32_t heads, sq, sk, d, e; /* e: columns of v */
    int32_t q_tiles;
    float scale;
};

template <typename T> __device__ const T *head_of(const struct operand &x, int64_t n, int64_t h)
{
    return static_cast<const T *>(x.data) + n * x.n + h * x.h;
}

/* Where the 8 elements of chunk `c` of a row lie in a tile of DP columns. The same chunk of 8 rows,
 * which ldmatrix reads at a time, lies in different banks. */
template <int DP> __device__ int swizzled(int row, int c)
{
    constexpr int CHUNKS = DP / 8;
    return (row * CHUNKS + (CHUNKS == 4 ? c ^ (row >> 1 & 3) : c ^ (row & 7))) * 8;
}

/* Starts the copy of rows first..first+ROWS-1 of a head's keys or values; elements beyond `rows`
 * and `columns` become zero. */
template <typename T, int DP, int ROWS>
__device__ void tile_load(T *to, const T *from, int64_t stride, int first, int rows, int columns)
{
    constexpr int CHUNKS = DP / 8;
    for (int i = threadIdx.x; i < ROWS * CHUNKS; i += blockDim.x) {
        int row = i / CHUNKS, c = i % CHUNKS;
        bool inside = first + row < rows && c * 8 < columns;
        const T *chunk = inside ? from + (first + row) * stride + c * 8 : from;
        copy_async_16(to + swizzled<DP>(row, c), chunk, inside);
    }
}

/* Reads the 16 queries of a warp as fragments of the first operand; zero beyond the tensor. */
template <typename T, int DP>
__device__ void queries_load(uint32_t (*a)[4], const T *q, int64_t stride, int first, int rows,
                             int columns)
{
    int lane = threadIdx.x % 32, row = first + lane / 4;
#pragma unroll
    for (int ks = 0; ks < DP / 16; ks++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            int r = row + (i & 1) * 8, c = ks * 16 + (i >> 1) * 8 + lane % 4 * 2;
            bool inside = r < rows && c < columns;
            a[ks][i] = inside ? *reinterpret_cast<const uint32_t *>(q + r * stride + c) : 0;
        }
}

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

template <typename T> __device__ __forceinline__ uint32_t pair_bits(T low, T high)
{
    uint16_t bits[2];
    memcpy(&bits[0], &low, sizeof(low));
    memcpy(&bits[1], &high, sizeof(high));
    return bits[0] | (uint32_t)bits[1] << 16;
}

template <typename T> __device__ __forceinline__ float half_of(uint32_t pair, int high)
{
    uint16_t bits = (uint16_t)(high ? pair >> 16 : pair);
    return number_float(*reinterpret_cast<const T *>(&bits));
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

/* A warp's running state for its 16 queries: this lane has rows lane/4 and lane/4 + 8. */
template <int DP> struct running {
    float o[DP / 8][4];
    float highest[2], sum[2]; /* sum: of this lane's columns only */
};

template <typename T, int DP, int KEYS>
__device__ void scores(float (*s)[4], const uint32_t (*a)[4], const T *k, int key)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int ks = 0; ks < DP / 16; ks++)
#pragma unroll
        for (int j = 0; j < KEYS / 16; j++) {
            uint32_t b[4];
            int row = key + j * 16 + (lane >> 4) * 8 + (lane & 7);
            ldmatrix_x4(b, k + swizzled<DP>(row, ks * 2 + (lane >> 3 & 1)));
            multiply<T>(s[2 * j], s[2 * j + 1], a[ks], b);
        }
}

/* o += p v, where p still has the form of the scores' fragments. */
template <typename T, int DP, int KEYS>
__device__ void values(float (*o)[4], const float (*p)[4], const T *v, int key)
{
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int kk = 0; kk < KEYS / 16; kk++) {
        const float *low = p[2 * kk], *high = p[2 * kk + 1];
        uint32_t a[4] = {pack2(T(), low[0], low[1]), pack2(T(), low[2], low[3]),
                         pack2(T(), high[0], high[1]), pack2(T(), high[2], high[3])};
#pragma unroll
        for (int j = 0; j < DP / 16; j++) {
            uint32_t b[4];
            int row = key + kk * 16 + (lane >> 3 & 1) * 8 + (lane & 7);
            ldmatrix_x4_trans(b, v + swizzled<DP>(row, j * 2 + (lane >> 4)));
            multiply<T>(o[2 * j], o[2 * j + 1], a, b);
        }
    }
}

/* The value that exponents are relative to: the maximum, or 0 while all scores are -inf. */
__device__ float base_of(float highest)
{
    return highest == -INFINITY ? 0.0f : highest;
}

__device__ float exp_above(float x, float base)
{
    float y, exponent = (x - base) * 1.4426950408889634f;
#ifdef INFERD_EMULATE
    y = exp2f(exponent);
#else
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(exponent));
#endif
    return y;
}

/* Turns scores into exp(score - maximum) and brings the state to the new maximum. */
template <int DP, int KEYS> __device__ void soften(struct running<DP> &state, float (*s)[4])
{
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float highest = state.highest[r];
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++)
            highest = fmaxf(highest, fmaxf(s[j][2 * r], s[j][2 * r + 1]));
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, 1));
        highest = fmaxf(highest, __shfl_xor_sync(0xffffffff, highest, 2));
        float base = base_of(highest), shrink = exp_above(state.highest[r], base), sum = 0;
        state.highest[r] = highest;
#pragma unroll
        for (int j = 0; j < KEYS / 8; j++) {
            s[j][2 * r] = exp_above(s[j][2 * r], base);
            s[j][2 * r + 1] = exp_above(s[j][2 * r + 1], base);
            sum += s[j][2 * r] + s[j][2 * r + 1];
        }
        state.sum[r] = state.sum[r] * shrink + sum;
#pragma unroll
        for (int j = 0; j < DP / 8; j++) {
            state.o[j][2 * r] *= shrink;
            state.o[j][2 * r + 1] *= shrink;
        }
    }
}

/* The mask under a lane's scores: rows lane/4 and lane/4 + 8. Rows and columns beyond the tensor
 * read the last one: such scores are overwritten or never stored. */
template <typename T> struct mask_rows {
    const T *head;
    int32_t row[2], step; /* offsets */
};

template <typename T>
__device__ struct mask_rows<T> mask_rows_of(const struct problem &p, const T *head, int first) {
    struct mask_rows<T> m;
    int row = first + (int)threadIdx.x % 32 / 4;
    m.head = head;
    m.row[0] = min(row, p.sq - 1) * (int32_t)p.mask_q;
    m.row[1] = min(row + 8, p.sq - 1) * (int32_t)p.mask_q;
    m.step = (int32_t)p.mask_k;
    return m;
}

/* Reads, of the 8 columns from `key` on, a pair of neighbours per row. */
template <typename T>
__device__ __forceinline__ void mask_load(uint32_t (&to)[2], const struct mask_rows<T> &m, int key,
                                          int sk)
{
    int c = key + (int)threadIdx.x % 4 * 2;
    int c0 = min(c, sk - 1) * m.step, c1 = min(c + 1, sk - 1) * m.step;
    to[0] = pair_bits(m.head[m.row[0] + c0], m.head[m.row[0] + c1]);
    to[1] = to[0];
    if (m.row[1] != m.row[0])
        to[1] = pair_bits(m.head[m.row[1] + c0], m.head[m.row[1] + c1]);
}

template <typename T>
__device__ __forceinline__ void mask_add(float (&s)[4], const uint32_t (&m)[2])
{
#pragma unroll
    for (int i = 0; i < 4; i++)
        s[i] += half_of<T>(m[i >> 1], i & 1);
}

/* Sets the scores of keys beyond the tensor to -inf. */
template <int KEYS> __device__ void cut(float (*s)[4], int key, int sk)
{
    if (key + KEYS <= sk)
        return;
#pragma unroll
    for (int j = 0; j < KEYS / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            if (key + j * 8 + (int)threadIdx.x % 4 * 2 + (i & 1) >= sk)
                s[j][i] = -INFINITY;
}

/* The warp's rows go through shared memory, so that each lane stores 16 bytes. */
template <typename T, int DP>
__device__ void store_rows(struct running<DP> &state, T *tile, T *y, int64_t stride, int first,
                           int rows, int columns)
{
    constexpr int CHUNKS = DP / 8;
    int lane = threadIdx.x % 32;
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float inverse = 1.0f / state.sum[r];
#pragma unroll
        for (int j = 0; j < DP / 8; j++)
            *reinterpret_cast<uint32_t *>(tile + swizzled<DP>(lane / 4 + r * 8, j) + lane % 4 * 2) =
                pack2(T(), state.o[j][2 * r] * inverse, state.o[j][2 * r + 1] * inverse);
    }
    __syncwarp();
    for (int i = lane; i < QUERIES * CHUNKS; i += 32) {
        int row = i / CHUNKS, c = i % CHUNKS;
        if (first + row < rows && c * 8 < columns)
            *reinterpret_cast<uint4 *>(y + (first + row) * stride + c * 8) =
                *reinterpret_cast<const uint4 *>(tile + swizzled<DP>(row, c));
    }
}

/* Adds up the results of warps that had different keys for the same queries, each brought to the
 * maximum of all. `stats`: maxima and sums, [2][KW][16]; `parts`: [KW][16][DP + 8]. */
template <typename T, int DP, int KW>
__device__ void merge_and_store(struct running<DP> &state, float *stats, float *parts, T *y,
                                int64_t stride, int first, int rows, int columns)
{
    constexpr int CHUNKS = DP / 8, PITCH = DP + 8; /* 8: rows of a fragment in different banks */
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
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
        float shrink = exp_above(state.highest[r], base_of(highest));
#pragma unroll
        for (int j = 0; j < DP / 8; j++) {
            float *to = parts + (warp * QUERIES + row) * PITCH + j * 8 + lane % 4 * 2;
            to[0] = state.o[j][2 * r] * shrink;
            to[1] = state.o[j][2 * r + 1] * shrink;
        }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < QUERIES * CHUNKS; i += KW * 32) {
        int row = i / CHUNKS, c = i % CHUNKS;
        if (first + row >= rows || c * 8 >= columns)
            continue;
        float highest = -INFINITY, sum = 0, total[8] = {0};
        for (int w = 0; w < KW; w++)
            highest = fmaxf(highest, maxima[w * QUERIES + row]);
        for (int w = 0; w < KW; w++) {
            sum += sums[w * QUERIES + row] * exp_above(maxima[w * QUERIES + row], base_of(highest));
            const float *part = parts + (w * QUERIES + row) * PITCH + c * 8;
#pragma unroll
            for (int x = 0; x < 8; x++)
                total[x] += part[x];
        }
        float inverse = 1.0f / sum;
        uint4 out;
        out.x = pack2(T(), total[0] * inverse, total[1] * inverse);
        out.y = pack2(T(), total[2] * inverse, total[3] * inverse);
        out.z = pack2(T(), total[4] * inverse, total[5] * inverse);
        out.w = pack2(T(), total[6] * inverse, total[7] * inverse);
        *reinterpret_cast<uint4 *>(y + (first + row) * stride + c * 8) = out;
    }
}

template <typename T, int DP, int KW, bool MASKED>
__global__ void __launch_bounds__(KW > 1 ? KW * 32 : 256, DP == 128 ? 1 : 2)
    flash_kernel(struct problem p)
{
    /* Keys of a step. The registers of a mask leave room for only half a tile of scores. */
    constexpr int TILE = DP == 128 ? 32 : 64,
                  KEYS = TILE / (KW == 1 && MASKED && DP == 64 ? 2 : KW);
    constexpr bool EARLY = KW > 1; /* the mask is read ahead of its use where registers allow it */
    KERNEL_SHARED(T, shared); /* [stage][keys, values][TILE][DP]; behind it the warps' statistics */
    int warp = threadIdx.x / 32, rows = (KW > 1 ? 1 : blockDim.x / 32) * QUERIES;
    int64_t pair = blockIdx.x / p.q_tiles, n = pair / p.heads, h = pair % p.heads;
    int first = (int)(blockIdx.x % p.q_tiles) * rows + (KW > 1 ? 0 : warp * QUERIES);
    const T *k = head_of<T>(p.k, n, h), *v = head_of<T>(p.v, n, h);
    const struct mask_rows<T> mask =
        mask_rows_of(p, static_cast<const T *>(p.mask) + n * p.mask_n + h * p.mask_h, first);
    int tiles = (p.sk + TILE - 1) / TILE;

    tile_load<T, DP, TILE>(shared, k, p.k.s, 0, p.sk, p.d);
    tile_load<T, DP, TILE>(shared + TILE * DP, v, p.v.s, 0, p.sk, p.e);
    copy_async_commit();
    uint32_t a[DP / 16][4];
    queries_load<T, DP>(a, head_of<T>(p.q, n, h), p.q.s, first, p.sq, p.d);
    struct running<DP> state;
#pragma unroll
    for (int j = 0; j < DP / 8; j++)
#pragma unroll
        for (int i = 0; i < 4; i++)
            state.o[j][i] = 0;
    state.highest[0] = state.highest[1] = -INFINITY;
    state.sum[0] = state.sum[1] = 0;

    for (int t = 0; t < tiles; t++) {
        const T *stage = shared + (t & 1) * 2 * TILE * DP;
        T *next = shared + (~t & 1) * 2 * TILE * DP;
        if (t + 1 < tiles) {
            tile_load<T, DP, TILE>(next, k, p.k.s, (t + 1) * TILE, p.sk, p.d);
            tile_load<T, DP, TILE>(next + TILE * DP, v, p.v.s, (t + 1) * TILE, p.sk, p.e);
        }
        copy_async_commit(); /* maybe empty: then the group before is waited for, too */
        int in_tile = KW > 1 ? warp * KEYS : 0, key = t * TILE + in_tile;
        uint32_t m[KEYS / 8][2];
        if (EARLY && MASKED && key < p.sk)
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++)
                mask_load(m[j], mask, key + j * 8, p.sk);
        copy_async_wait<1>();
        __syncthreads();
#pragma unroll 1
        for (; in_tile < TILE && key < p.sk; in_tile += KEYS * KW, key += KEYS * KW) {
            float s[KEYS / 8][4] = {};
            scores<T, DP, KEYS>(s, a, stage, in_tile);
#pragma unroll
            for (int j = 0; j < KEYS / 8; j++) {
#pragma unroll
                for (int i = 0; i < 4; i++)
                    s[j][i] *= p.scale;
                if (!EARLY && MASKED)
                    mask_load(m[j], mask, key + j * 8, p.sk);
                if (MASKED)
                    mask_add<T>(s[j], m[j]);
            }
            cut<KEYS>(s, key, p.sk);
            soften<DP, KEYS>(state, s);
            values<T, DP, KEYS>(state.o, s, stage + TILE * DP, in_tile);
        }
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        state.sum[r] += __shfl_xor_sync(0xffffffff, state.sum[r], 1);
        state.sum[r] += __shfl_xor_sync(0xffffffff, state.sum[r], 2);
    }
    T *y = const_cast<T *>(head_of<T>(p.y, n, h));
    if (KW > 1)
        merge_and_store<T, DP, KW>(state, reinterpret_cast<float *>(shared + 4 * TILE * DP),
                                   reinterpret_cast<float *>(shared), y, p.y.s, first, p.sq, p.e);
    else
        store_rows<T, DP>(state, shared + warp * QUERIES * DP, y, p.y.s, first, p.sq, p.e);
}

/* --- plain --- */

constexpr int PLAIN_WARPS = 4, PLAIN_QUERIES = 4; /* of a warp */
constexpr int PLAIN_MOST = 128;                   /* columns of q, k and v */
constexpr int PLAIN_PITCH = PLAIN_MOST + 1;       /* lanes read down a column of keys */

/* Reads `rows` rows of a head from `first` on as floats; zero beyond the tensor. */
template <typename T>
__device__ void plain_load(float *to, int pitch, const T *from, int64_t stride, int n, int first,
                           int rows, int columns)
{
    for (int i = (int)threadIdx.x; i < n * PLAIN_MOST; i += (int)blockDim.x) {
        int row = i / PLAIN_MOST, c = i % PLAIN_MOST;
        bool inside = first + row < rows && c < columns;
        to[row * pitch + c] = inside ? number_float(from[(first + row) * stride + c]) : 0.0f;
    }
}

/* Does one query's part of a tile: the lane's score becomes its weight, and o is brought to the new
 * maximum. */
__device__ __forceinline__ float plain_soften(float score, float &highest, float &sum,
                                              float (&o)[4])
{
    float before = highest, weight, shrink;
    highest = reduce_warp(score > highest ? score : highest, reduce_max());
    weight = expf(score - base_of(highest));
    shrink = expf(before - base_of(highest));
    sum = sum * shrink + reduce_warp(weight, reduce_sum());
#pragma unroll
    for (int c = 0; c < 4; c++)
        o[c] *= shrink;
    return weight;
}

template <typename T>
__global__ void __launch_bounds__(PLAIN_WARPS * 32) plain_kernel(struct problem p)
{
    KERNEL_SHARED(float, k_tile);
    float *v_tile = k_tile + 32 * PLAIN_PITCH, *q_tile = v_tile + 32 * PLAIN_MOST;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int64_t pair = blockIdx.x / p.q_tiles, n = pair / p.heads, h = pair % p.heads;
    int first = (int)(blockIdx.x % p.q_tiles) * PLAIN_WARPS * PLAIN_QUERIES;
    const T *mask = static_cast<const T *>(p.mask) + n * p.mask_n + h * p.mask_h;
    const float *q = q_tile + warp * PLAIN_QUERIES * PLAIN_MOST;
    float o[PLAIN_QUERIES][4] = {}, highest[PLAIN_QUERIES], sum[PLAIN_QUERIES] = {};
    for (int i = 0; i < PLAIN_QUERIES; i++)
        highest[i] = -INFINITY;

    plain_load(q_tile, PLAIN_MOST, head_of<T>(p.q, n, h), p.q.s, PLAIN_WARPS * PLAIN_QUERIES, first,
               p.sq, p.d);
    first += warp * PLAIN_QUERIES;
    for (int t = 0; t < p.sk; t += 32) {
        __syncthreads();
        plain_load(k_tile, PLAIN_PITCH, head_of<T>(p.k, n, h), p.k.s, 32, t, p.sk, p.d);
        plain_load(v_tile, PLAIN_MOST, head_of<T>(p.v, n, h), p.v.s, 32, t, p.sk, p.e);
        __syncthreads();
        float s[PLAIN_QUERIES] = {};
        for (int c = 0; c < p.d; c++)
#pragma unroll
            for (int i = 0; i < PLAIN_QUERIES; i++)
                s[i] += q[i * PLAIN_MOST + c] * k_tile[lane * PLAIN_PITCH + c];
        int key = t + lane;
#pragma unroll
        for (int i = 0; i < PLAIN_QUERIES; i++) {
            s[i] *= p.scale;
            if (p.mask && key < p.sk)
                s[i] += number_float(mask[min(first + i, p.sq - 1) * p.mask_q + key * p.mask_k]);
            s[i] = plain_soften(key < p.sk ? s[i] : -INFINITY, highest[i], sum[i], o[i]);
        }
        for (int j = 0; j < min(32, p.sk - t); j++)
#pragma unroll
            for (int i = 0; i < PLAIN_QUERIES; i++) {
                float weight = __shfl_sync(0xffffffffu, s[i], j);
#pragma unroll
                for (int c = 0; c < 4; c++)
                    o[i][c] += weight * v_tile[j * PLAIN_MOST + c * 32 + lane];
            }
    }
    T *y = const_cast<T *>(head_of<T>(p.y, n, h));
    for (int i = 0; i < PLAIN_QUERIES; i++)
        for (int c = 0; c < 4; c++)
            if (first + i < p.sq && c * 32 + lane < p.e)
                y[(first + i) * p.y.s + c * 32 + lane] = number_from<T>(o[i][c] / sum[i]);
}

/* --- launching --- */

bool operand_of(const struct kernel_view *x, const struct kernel_view *q, struct operand *out)
{
    *out = {x->data, x->stride[0], x->stride[1], x->stride[2]};
    return x->rank == 4 && x->dtype == q->dtype && x->dim[0] == q->dim[0] &&
           x->dim[1] == q->dim[1] && (x->stride[3] == 1 || x->dim[3] == 1) &&
           x->dim[2] <= INT32_MAX - 256;
}

/* Whether rows allow 16-byte loads and stores. */
bool in_chunks(const struct operand &x, int64_t columns)
{
    return columns % 8 == 0 && x.n % 8 == 0 && x.h % 8 == 0 && x.s % 8 == 0 &&
           (uintptr_t)x.data % 16 == 0;
}

template <typename F>
cudaError_t launch(const struct kernel_call *call, F kernel, struct problem p, int64_t heads,
                   int rows, int threads, size_t shared)
{
    p.q_tiles = (int32_t)kernel_ceil_div(p.sq, rows);
    int64_t blocks = heads * p.q_tiles;
    if (blocks > INT32_MAX)
        return cudaErrorNotSupported;
    return KERNEL_LAUNCH(kernel, dim3((unsigned)blocks), dim3((unsigned)threads), shared, call, p);
}

template <typename T, int DP, bool MASKED>
cudaError_t launch_flash(const struct kernel_call *call, const struct problem &p, int64_t heads,
                         int warps)
{
    constexpr int TILE = DP == 128 ? 32 : 64, SPLIT = DP == 128 ? 2 : 4;
    size_t shared = 4 * TILE * DP * sizeof(T);
    if (warps)
        return launch(call, flash_kernel<T, DP, 1, MASKED>, p, heads, warps * QUERIES, warps * 32,
                      shared);
    shared += 2 * SPLIT * QUERIES * sizeof(float);
    return launch(call, flash_kernel<T, DP, SPLIT, MASKED>, p, heads, QUERIES, SPLIT * 32, shared);
}

template <typename T, bool MASKED>
cudaError_t launch_flash_of(const struct kernel_call *call, const struct problem &p, int64_t heads,
                            int warps)
{
    int32_t columns = p.d > p.e ? p.d : p.e;
    if (columns <= 32)
        return launch_flash<T, 32, MASKED>(call, p, heads, warps);
    if (columns <= 64)
        return launch_flash<T, 64, MASKED>(call, p, heads, warps);
    return launch_flash<T, 128, MASKED>(call, p, heads, warps);
}

template <typename T>
cudaError_t launch_16(const struct kernel_call *call, const struct problem &p, int64_t heads,
                      int warps)
{
    return p.mask ? launch_flash_of<T, true>(call, p, heads, warps)
                  : launch_flash_of<T, false>(call, p, heads, warps);
}

template <typename T>
cudaError_t launch_plain(const struct kernel_call *call, const struct problem &p, int64_t heads)
{
    size_t floats = 32 * PLAIN_PITCH + 32 * PLAIN_MOST + PLAIN_WARPS * PLAIN_QUERIES * PLAIN_MOST;
    return launch(call, plain_kernel<T>, p, heads, PLAIN_WARPS * PLAIN_QUERIES, PLAIN_WARPS * 32,
                  floats * sizeof(float));
}

/* As many queries per block as still give every multiprocessor a block. */
int32_t variant_of(const struct kernel_call *call, int64_t heads, int64_t sq)
{
    int64_t most = call->multiprocessors > 0 ? call->multiprocessors : 132;
    if (heads * kernel_ceil_div(sq, 128) >= 2 * most)
        return KERNEL_ATTENTION_128;
    if (heads * kernel_ceil_div(sq, 64) >= most)
        return KERNEL_ATTENTION_64;
    if (heads * kernel_ceil_div(sq, 32) >= 2 * most)
        return KERNEL_ATTENTION_32;
    return KERNEL_ATTENTION_SPLIT;
}

} // namespace

extern "C" cudaError_t kernel_attention(const struct kernel_call *call, float scale,
                                        const struct kernel_view *q, const struct kernel_view *k,
                                        const struct kernel_view *v, const struct kernel_view *mask,
                                        const struct kernel_view *y)
{
    static const int warps[] = {0, 8, 4, 2, 0};
    struct problem p = {};
    bool fits = operand_of(q, q, &p.q) && operand_of(k, q, &p.k) && operand_of(v, q, &p.v) &&
                operand_of(y, q, &p.y) && k->dim[3] == q->dim[3] && v->dim[2] == k->dim[2] &&
                y->dim[2] == q->dim[2] && y->dim[3] == v->dim[3] && q->dim[3] <= PLAIN_MOST &&
                v->dim[3] <= PLAIN_MOST && q->dim[1] <= INT32_MAX && k->dim[2] > 0;
    if (!fits || (mask && mask->data && (mask->rank != 4 || mask->dtype != q->dtype)))
        return cudaErrorNotSupported;
    p.heads = (int32_t)q->dim[1];
    p.sq = (int32_t)q->dim[2];
    p.sk = (int32_t)k->dim[2];
    p.d = (int32_t)q->dim[3];
    p.e = (int32_t)v->dim[3];
    p.scale = scale;
    if (mask && mask->data) {
        p.mask = mask->data;
        p.mask_n = mask->stride[0];
        p.mask_h = mask->stride[1];
        p.mask_q = mask->stride[2];
        p.mask_k = mask->stride[3];
        if (p.sq * p.mask_q + p.sk * p.mask_k > INT32_MAX)
            return cudaErrorNotSupported;
    }
    int64_t heads = q->dim[0] * q->dim[1];
    if (heads == 0 || p.sq == 0 || p.e == 0)
        return cudaSuccess;
    bool chunks = (q->dtype == DTYPE_F16 || q->dtype == DTYPE_BF16) && in_chunks(p.q, p.d) &&
                  in_chunks(p.k, p.d) && in_chunks(p.v, p.e) && in_chunks(p.y, p.e);
    int32_t variant = call->variant;
    if (variant == 0)
        variant = chunks ? variant_of(call, heads, p.sq) : KERNEL_ATTENTION_PLAIN;
    if (variant == KERNEL_ATTENTION_PLAIN && q->dtype == DTYPE_F32)
        return launch_plain<float>(call, p, heads);
    if (variant == KERNEL_ATTENTION_PLAIN && q->dtype == DTYPE_F16)
        return launch_plain<half_t>(call, p, heads);
    if (variant == KERNEL_ATTENTION_PLAIN && q->dtype == DTYPE_BF16)
        return launch_plain<bf16_t>(call, p, heads);
    if (!chunks || variant < 0 || variant > KERNEL_ATTENTION_SPLIT)
        return cudaErrorNotSupported;
    return q->dtype == DTYPE_F16 ? launch_16<half_t>(call, p, heads, warps[variant])
                                 : launch_16<bf16_t>(call, p, heads, warps[variant]);
}
