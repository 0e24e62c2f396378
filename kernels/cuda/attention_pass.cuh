/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of 16-bit floats on Hopper: wgmma and tensor copies. docs/kernels.md has a drawing.
 *
 * A tile is 128 queries of a head (PAIR: 64 queries of each of two heads), 64 for each of two
 * consumer warpgroups; a third warpgroup has the thread that loads. Scores of BLOCK keys are one
 * product and stay in registers; their exponentials, packed, are the A of the second product as
 * they lie, and values are its transposed B. If BLOCK covers all keys there is no running maximum;
 * else (ONLINE) blocks of keys follow one another with one. CHUNKED: exponentials of 64 keys at a
 * time, while the product with the values of the 64 before takes place, for want of registers.
 *
 * Rings: queries, keys and values, the last two with mbarriers of their own, so that products begin
 * before the values are there, and keys make room before values. An item is one or more tiles of a
 * head (or pair); blocks walk items grid by grid. Scores are in units of log2.
 */
#ifndef INFERD_KERNELS_CUDA_ATTENTION_PASS_CUH
#define INFERD_KERNELS_CUDA_ATTENTION_PASS_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/hopper_map.cuh"
#include "kernels/cuda/hopper_mma.cuh"

namespace attention
{

constexpr int PASS_QUERIES = 64; /* of a warpgroup: the rows of a product */
constexpr int PASS_THREADS = 3 * HOPPER_WARPGROUP;

struct pass_job {
    int heads, shared_by, total; /* total: heads of all batches */
    int sq, sk;
    int tiles, parts, a_part; /* tiles of a head; an item has `a_part`, a head `parts` items */
    int items;
    int ahead; /* causal: query i sees keys up to i + ahead */
    bool causal, mask_bool;
    bool mask_words; /* pairs of neighbouring keys are words */
    float scale;     /* times log2(e) */
    const void *mask;
    int64_t mask_n, mask_h, mask_q, mask_batches;
    int mask_k; /* 0 or 1 */
};

template <class T_, int COLUMNS_, int BLOCK_, mask_kind MASK_, bool ONLINE_, bool PAIR_,
          bool CHUNKED_, int Q_STAGES_, int STAGES_>
struct pass_shape {
    typedef T_ T;
    static constexpr int COLUMNS = COLUMNS_, BLOCK = BLOCK_, Q_STAGES = Q_STAGES_, STAGES = STAGES_;
    static constexpr mask_kind MASK = MASK_;
    static constexpr bool ONLINE = ONLINE_, PAIR = PAIR_, CHUNKED = CHUNKED_;
    static constexpr int TILE = PAIR ? PASS_QUERIES : 2 * PASS_QUERIES; /* queries of a head */
    /* a box has WIDE columns of a head: lines as long as the swizzle */
    static constexpr int LINE = COLUMNS % 64 == 0 ? 128 : 64, WIDE = LINE / 2,
                         BOXES = COLUMNS / WIDE;
    static constexpr int K_ROWS = PAIR ? 2 * BLOCK : BLOCK;
    static constexpr int Q_BOX = 2 * PASS_QUERIES * LINE, K_BOX = K_ROWS * LINE,
                         Y_BOX = PASS_QUERIES * LINE;
    static constexpr int Q = BOXES * Q_BOX, K = BOXES * K_BOX, Y = BOXES * Y_BOX;
    static constexpr int BARRIERS = 2 * Q_STAGES + 4 * STAGES;
    static constexpr int SHARED =
        HOPPER_ALIGN + Q_STAGES * Q + 2 * STAGES * K + 2 * Y + BARRIERS * 8;
    static constexpr int MANY = BLOCK > 208 ? 240 : 232, FEW = BLOCK > 208 ? 24 : 40;
    static constexpr int SCORES = BLOCK / 2; /* of a thread */
    /* rows of the mask that a thread reads */
    static constexpr int MASK_ROWS = MASK == MASK_KEYS ? 1 : MASK == MASK_FULL ? 2 : 0;
    static constexpr int MASK_WORDS = MASK_ROWS ? SCORES / 4 : 1;
    static_assert(SHARED <= HOPPER_SHARED_MAX, "shared memory");
    static_assert(!CHUNKED || (!ONLINE && !PAIR && BLOCK % 64 == 0), "chunks");
};

template <class S> struct pass_shared {
    unsigned char *q, *k, *v, *y;
    uint64_t *q_full, *q_empty, *k_full, *k_empty, *v_full, *v_empty;
    __device__ explicit pass_shared(unsigned char *raw)
    {
        q = shared_aligned(raw);
        k = q + S::Q_STAGES * S::Q;
        v = k + S::STAGES * S::K;
        y = v + S::STAGES * S::K;
        q_full = reinterpret_cast<uint64_t *>(y + 2 * S::Y);
        q_empty = q_full + S::Q_STAGES;
        k_full = q_empty + S::Q_STAGES;
        k_empty = k_full + S::STAGES;
        v_full = k_empty + S::STAGES;
        v_empty = v_full + S::STAGES;
    }
};

/* What an item is, for the loading thread and for the consumers. */
template <class S> struct pass_item {
    int first, last; /* tiles */
    int head[2];     /* of the two halves of a tile, counted over all batches; total: none */
    __device__ pass_item(const pass_job &j, int at)
    {
        int who = at / j.parts, part = at - who * j.parts;
        part = j.causal ? j.parts - 1 - part : part; /* the long ones first */
        first = part * j.a_part;
        last = min(first + j.a_part, j.tiles);
        head[0] = S::PAIR ? 2 * who : who;
        head[1] = S::PAIR ? min(2 * who + 1, j.total) : who;
    }
};

/* Blocks of keys that some query of the tile sees; at least one. */
template <class S> __device__ __forceinline__ int pass_blocks(const pass_job &j, int tile)
{
    int keys = j.causal ? min(j.sk, (tile + 1) * S::TILE + j.ahead) : j.sk;
    return S::ONLINE ? max(1, (keys + S::BLOCK - 1) / S::BLOCK) : 1;
}

/* --- the thread that loads --- */

/* The rows of one head that a box has, all columns. */
template <class S>
__device__ __forceinline__ void pass_load(unsigned char *to, const CUtensorMap *map, uint64_t *full,
                                          int box, int head, int n, int row)
{
#pragma unroll
    for (int i = 0; i < S::BOXES; i++)
        tensor_load_4d(to + i * box, map, full, i * S::WIDE, head, row, n);
}

/* Keys, or values. */
template <class S>
__device__ __forceinline__ void pass_load_block(const pass_job &j, unsigned char *to,
                                                const CUtensorMap *map, uint64_t *full,
                                                const int (&head)[2], int row)
{
    mbarrier_expect(full, S::K);
#pragma unroll
    for (int i = 0; i < (S::PAIR ? 2 : 1); i++) {
        int n = head[i] / j.heads, h = (head[i] - n * j.heads) / j.shared_by;
        pass_load<S>(to + i * S::BLOCK * S::LINE, map, full, S::K_BOX, h, n, row);
    }
}

template <class S>
__device__ __forceinline__ void pass_load_queries(const pass_job &j, unsigned char *to,
                                                  const CUtensorMap *map, uint64_t *full,
                                                  const int (&head)[2], int row)
{
    mbarrier_expect(full, S::Q);
#pragma unroll
    for (int i = 0; i < 2; i++) {
        int n = head[i] / j.heads, h = head[i] - n * j.heads;
        pass_load<S>(to + i * PASS_QUERIES * S::LINE, map, full, S::Q_BOX, h, n,
                     S::PAIR ? row : row + i * PASS_QUERIES);
    }
}

template <class S>
__device__ __forceinline__ void pass_produce(const pass_shared<S> &sm, const CUtensorMap *q,
                                             const CUtensorMap *k, const CUtensorMap *v,
                                             const pass_job &j)
{
    hopper_turn tq = {0, 0}, tk = {0, 0};
    for (int at = (int)blockIdx.x; at < j.items; at += (int)gridDim.x) {
        pass_item<S> it(j, at);
        int head[2] = {it.head[0], it.head[1] < j.total ? it.head[1] : it.head[0]};
        for (int tile = it.first; tile < it.last; tile++) {
            mbarrier_wait(sm.q_empty + tq.at, tq.parity ^ 1);
            pass_load_queries<S>(j, sm.q + tq.at * S::Q, q, sm.q_full + tq.at, head,
                                 tile * S::TILE);
            tq.next(S::Q_STAGES);
            if (!S::ONLINE && tile > it.first)
                continue; /* keys and values are there */
            for (int b = 0, n = pass_blocks<S>(j, tile); b < n; b++) {
                mbarrier_wait(sm.k_empty + tk.at, tk.parity ^ 1);
                pass_load_block<S>(j, sm.k + tk.at * S::K, k, sm.k_full + tk.at, head,
                                   b * S::BLOCK);
                mbarrier_wait(sm.v_empty + tk.at, tk.parity ^ 1);
                pass_load_block<S>(j, sm.v + tk.at * S::K, v, sm.v_full + tk.at, head,
                                   b * S::BLOCK);
                tk.next(S::STAGES);
            }
        }
    }
}

/* --- the mask --- */

template <class T>
__device__ __forceinline__ uint32_t pass_mask_at(const pass_job &j, int64_t row, int key)
{
    const uint32_t hidden = number_of<T>::dtype == DTYPE_F16 ? 0xfc00u : 0xff80u;
    if (key >= j.sk)
        return hidden;
    int64_t at = row + (j.mask_k ? key : 0);
    if (j.mask_bool)
        return static_cast<const unsigned char *>(j.mask)[at] ? 0 : hidden;
    return __ldg(static_cast<const uint16_t *>(j.mask) + at);
}

/* The lowest numbers of BF16, below -1.7e38, become that one, which stays finite in units of log2:
 * a key that is hidden by such a number is seen if all are. */
template <class T> __device__ __forceinline__ uint32_t pass_finite(uint32_t pair)
{
    if (number_of<T>::dtype != DTYPE_BF16)
        return pair;
    pair &= (pair & 0xff800000u) == 0xff000000u ? 0xff80ffffu : 0xffffffffu;
    return pair & ((pair & 0xff80u) == 0xff00u ? 0xffffff80u : 0xffffffffu);
}

/* What is added to the scores of keys key0 + 8i + 2q and the next, for one row of the mask. */
template <class S>
__device__ __forceinline__ void pass_mask_row(const pass_job &j, int64_t row, int key0,
                                              uint32_t (&words)[S::MASK_WORDS])
{
    typedef typename S::T T;
    const uint32_t hidden = number_of<T>::dtype == DTYPE_F16 ? 0xfc00fc00u : 0xff80ff80u;
    const uint16_t *line = static_cast<const uint16_t *>(j.mask) + row;
    int q = (int)threadIdx.x % 4 * 2;
    if (j.mask_words) { /* an even number of keys */
#pragma unroll
        for (int i = 0; i < S::MASK_WORDS; i++) {
            int key = key0 + 8 * i + q;
            words[i] = pass_finite<T>(
                key < j.sk ? __ldg(reinterpret_cast<const unsigned *>(line + key)) : hidden);
        }
        return;
    }
#pragma unroll
    for (int i = 0; i < S::MASK_WORDS; i++) {
        int key = key0 + 8 * i + q;
        words[i] =
            pass_finite<T>(pass_mask_at<T>(j, row, key) | pass_mask_at<T>(j, row, key + 1) << 16);
    }
}

template <class S>
__device__ __forceinline__ void pass_mask_load(
    const pass_job &j, int who, int query, int key0,
    uint32_t (&words)[S::MASK_ROWS ? S::MASK_ROWS : 1][S::MASK_WORDS])
{
    int n = who / j.heads, h = who - n * j.heads;
    int64_t from = n % j.mask_batches * j.mask_n + h * j.mask_h;
#pragma unroll
    for (int up = 0; up < S::MASK_ROWS; up++)
        pass_mask_row<S>(j, from + min(query + 8 * up, j.sq - 1) * j.mask_q, key0, words[up]);
}

/* Scores become logarithms of weights: scaled, masked, without keys that are not there. `query` is
 * that of the thread's upper row. */
template <class S>
__device__ __forceinline__ void pass_mask_scores(
    const pass_job &j, int query, int key0, float (&s)[S::SCORES],
    const uint32_t (&words)[S::MASK_ROWS ? S::MASK_ROWS : 1][S::MASK_WORDS])
{
    if (S::MASK == MASK_NONE) {
#pragma unroll
        for (int i = 0; i < S::SCORES; i++)
            s[i] *= j.scale;
    } else {
#pragma unroll
        for (int i = 0; i < S::SCORES; i += 2) {
            const int up = S::MASK == MASK_FULL ? i / 2 % 2 : 0;
            float2 add = pair_floats<typename S::T>(words[up][S::MASK_ROWS ? i / 4 : 0]);
            s[i] = fmaf(s[i], j.scale, add.x * LOG2_E);
            s[i + 1] = fmaf(s[i + 1], j.scale, add.y * LOG2_E);
        }
    }
    if (!j.causal && (S::MASK != MASK_NONE || key0 + S::BLOCK <= j.sk))
        return;
    int limit[2], q = (int)threadIdx.x % 4 * 2; /* the last key that is seen */
#pragma unroll
    for (int up = 0; up < 2; up++)
        limit[up] = (j.causal ? min(j.sk - 1, query + 8 * up + j.ahead) : j.sk - 1) - key0;
#pragma unroll
    for (int i = 0; i < S::SCORES; i++)
        if (i / 4 * 8 + q + i % 2 > limit[i / 2 % 2])
            s[i] = -INFINITY;
}

/* --- a consumer --- */

/* Of the two rows that a thread has. */
struct pass_rows {
    float top[2], base[2], sum[2];
};

template <class S>
__device__ __forceinline__ void pass_scores(uint32_t q, uint32_t k, float (&s)[S::SCORES])
{
    wgmma_hold(s);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < S::COLUMNS / 16; c++) {
        const int box = c * 32 / S::LINE, in = c * 32 % S::LINE;
        wgmma<typename S::T>(s, descriptor_rows<S::LINE>(q + box * S::Q_BOX + in),
                             descriptor_rows<S::LINE>(k + box * S::K_BOX + in), c > 0);
    }
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(s);
}

/* The maximum so far; a row that sees no key has base 0, so that its weights are 0. */
template <class S>
__device__ __forceinline__ void pass_maximum(const float (&s)[S::SCORES], pass_rows &r)
{
#pragma unroll
    for (int up = 0; up < 2; up++) {
        float a = s[2 * up], b = s[2 * up + 1];
#pragma unroll
        for (int i = 4 + 2 * up; i < S::SCORES; i += 4) {
            a = fmaxf(a, s[i]);
            b = fmaxf(b, s[i + 1]);
        }
        r.top[up] = fmaxf(r.top[up], quad_max(fmaxf(a, b)));
        r.base[up] = r.top[up] == -INFINITY ? 0.0f : r.top[up];
    }
}

/* The weights of scores s[i], s[i + 1], packed; their sum is that of what is not rounded yet. */
template <class S>
__device__ __forceinline__ uint32_t pass_weights(const float (&s)[S::SCORES], int i,
                                                 const pass_rows &r, float (&part)[2])
{
    float a = exp2_fast(s[i] - r.base[i / 2 % 2]), b = exp2_fast(s[i + 1] - r.base[i / 2 % 2]);
    part[i / 2 % 2] += a + b;
    return pair_of<typename S::T>(a, b);
}

/* Weights times values, 64 keys at a time, in two buffers. */
template <class S>
__device__ __forceinline__ void pass_chunks(uint32_t v, const float (&s)[S::SCORES], pass_rows &r,
                                            float (&y)[S::COLUMNS / 2])
{
    uint32_t p[2][16];
#pragma unroll
    for (int chunk = 0; chunk < S::BLOCK / 64; chunk++) {
#pragma unroll
        for (int i = 0; i < 32; i += 2)
            p[chunk % 2][i / 2] = pass_weights<S>(s, 32 * chunk + i, r, r.sum);
        wgmma_hold(p[chunk % 2]);
        if (chunk == 0)
            wgmma_hold(y);
        wgmma_fence();
#pragma unroll
        for (int c = 0; c < 4; c++)
            wgmma_registers<typename S::T>(
                y, p[chunk % 2], 4 * c,
                descriptor_columns<S::LINE>(v + (chunk * 4 + c) * 16 * S::LINE, S::K_BOX),
                chunk > 0 || c > 0);
        wgmma_commit();
        if (chunk > 0) {
            wgmma_wait<1>();
            wgmma_hold(p[(chunk + 1) % 2]);
        }
    }
    wgmma_wait<0>();
    wgmma_hold(y);
}

/* Brings what was summed up to the new maximum. */
template <class S>
__device__ __forceinline__ void pass_rescale(const float (&before)[2], pass_rows &r,
                                             float (&y)[S::COLUMNS / 2])
{
#pragma unroll
    for (int up = 0; up < 2; up++) {
        float f = exp2_fast(before[up] - r.base[up]);
        r.sum[up] *= f;
#pragma unroll
        for (int i = 2 * up; i < S::COLUMNS / 2; i += 4) {
            y[i] *= f;
            y[i + 1] *= f;
        }
    }
}

template <class S>
__device__ __forceinline__ void pass_values(uint32_t v, uint32_t (&p)[S::SCORES / 2], bool keep,
                                            float (&y)[S::COLUMNS / 2])
{
    wgmma_hold(p);
    wgmma_hold(y);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < S::BLOCK / 16; c++)
        wgmma_registers<typename S::T>(y, p, 4 * c,
                                       descriptor_columns<S::LINE>(v + c * 16 * S::LINE, S::K_BOX),
                                       keep || c > 0);
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(y);
    wgmma_hold(p);
}

/* Four bytes a store: eight rows lie in eight chunks of a line, so that no bank is met twice. */
template <class S>
__device__ __forceinline__ void pass_put(unsigned char *out, int row, pass_rows &r,
                                         const float (&y)[S::COLUMNS / 2])
{
    float inverse[2];
#pragma unroll
    for (int up = 0; up < 2; up++) {
        float sum = quad_sum(r.sum[up]);
        inverse[up] = sum == 0.0f ? 0.0f : 1.0f / sum; /* NaN stays NaN */
    }
#pragma unroll
    for (int i = 0; i < S::COLUMNS / 2; i += 2) {
        const int up = i / 2 % 2;
        int column = i / 4 * 8 + (int)threadIdx.x % 4 * 2;
        int at = (row + 8 * up) * S::LINE + column % S::WIDE * 2;
        at ^= (at >> 7 & (S::LINE == 128 ? 7 : 3)) << 4;
        uint32_t pair = pair_of<typename S::T>(y[i] * inverse[up], y[i + 1] * inverse[up]);
        shared_put(out + column / S::WIDE * S::Y_BOX + at, pair);
    }
}

template <class S>
__device__ __forceinline__ void pass_store(const CUtensorMap *map, unsigned char *out, int group,
                                           int row, pass_rows &r, const float (&y)[S::COLUMNS / 2],
                                           int h, int query, int n)
{
    bool leader = threadIdx.x % HOPPER_WARPGROUP == 0;
    if (leader)
        store_wait_read<0>();
    named_sync(1 + group, HOPPER_WARPGROUP);
    pass_put<S>(out, row, r, y);
    proxy_fence();
    named_sync(1 + group, HOPPER_WARPGROUP);
    if (!leader)
        return;
#pragma unroll
    for (int i = 0; i < S::BOXES; i++)
        tensor_store_4d(map, out + i * S::Y_BOX, i * S::WIDE, h, query, n);
    store_commit();
}

/* A warpgroup that computes. */
template <class S> struct pass_consumer {
    typedef typename S::T T;
    const pass_shared<S> &sm;
    const pass_job &j;
    int group, row;
    hopper_turn tq, tk;

    __device__ pass_consumer(const pass_shared<S> &shared, const pass_job &job, int warpgroup)
        : sm(shared), j(job), group(warpgroup), tq({0, 0}), tk({0, 0})
    {
        int t = (int)threadIdx.x % HOPPER_WARPGROUP;
        row = t / 32 * 16 + t % 32 / 4;
    }

    /* Weights of a block, before its values are there; its keys' stage is free then. */
    __device__ __forceinline__ void soften(float (&s)[S::SCORES], pass_rows &r, bool first,
                                           float (&y)[S::COLUMNS / 2],
                                           uint32_t (&p)[S::CHUNKED ? 1 : S::SCORES / 2])
    {
        float before[2] = {r.top[0], r.top[1]}, part[2] = {0, 0};
        pass_maximum<S>(s, r);
        if constexpr (S::CHUNKED) {
            mbarrier_wait(sm.v_full + tk.at, tk.parity);
            pass_chunks<S>(shared_address(sm.v + tk.at * S::K), s, r, y);
        } else {
#pragma unroll
            for (int i = 0; i < S::SCORES; i += 2)
                p[i / 2] = pass_weights<S>(s, i, r, part);
        }
        if (S::ONLINE && !first)
            pass_rescale<S>(before, r, y);
        r.sum[0] += part[0];
        r.sum[1] += part[1];
    }

    /* Lets a stage go that this warp has read. */
    __device__ __forceinline__ void free_stage(uint64_t *empty, bool last_use)
    {
        if (threadIdx.x % 32 == 0 && last_use)
            mbarrier_arrive(empty);
    }

    /* What `block` does with the mbarriers, for a warpgroup without queries. */
    __device__ __forceinline__ void idle(int b, int blocks, bool last_use)
    {
        if (b == 0)
            mbarrier_wait(sm.q_full + tq.at, tq.parity);
        mbarrier_wait(sm.k_full + tk.at, tk.parity);
        free_stage(sm.k_empty + tk.at, last_use);
        free_stage(sm.q_empty + tq.at, b + 1 == blocks);
        mbarrier_wait(sm.v_full + tk.at, tk.parity);
        free_stage(sm.v_empty + tk.at, last_use);
    }

    __device__ __forceinline__ void block(int b, int blocks, int who, int query, bool last_use,
                                          pass_rows &r, float (&y)[S::COLUMNS / 2])
    {
        float s[S::SCORES];
        uint32_t words[S::MASK_ROWS ? S::MASK_ROWS : 1][S::MASK_WORDS];
        uint32_t p[S::CHUNKED ? 1 : S::SCORES / 2];
        int key0 = S::ONLINE ? b * S::BLOCK : 0;
        int half = S::PAIR ? group * S::BLOCK * S::LINE : 0;
        if (S::MASK_ROWS) /* while keys are under way */
            pass_mask_load<S>(j, who, query + row, key0, words);
        if (b == 0)
            mbarrier_wait(sm.q_full + tq.at, tq.parity);
        mbarrier_wait(sm.k_full + tk.at, tk.parity);
        pass_scores<S>(shared_address(sm.q + tq.at * S::Q) + group * PASS_QUERIES * S::LINE,
                       shared_address(sm.k + tk.at * S::K) + half, s);
        free_stage(sm.k_empty + tk.at, last_use);
        free_stage(sm.q_empty + tq.at, b + 1 == blocks);
        pass_mask_scores<S>(j, query + row, key0, s, words);
        soften(s, r, b == 0, y, p);
        mbarrier_wait(sm.v_full + tk.at, tk.parity);
        if constexpr (!S::CHUNKED)
            pass_values<S>(shared_address(sm.v + tk.at * S::K) + half, p, S::ONLINE && b > 0, y);
        free_stage(sm.v_empty + tk.at, last_use);
    }

    /* One tile of the item; the turns go on. */
    __device__ __forceinline__ void tile(const CUtensorMap *map, int who, int at, bool last)
    {
        int query = at * S::TILE + (S::PAIR ? 0 : group * PASS_QUERIES);
        int blocks = pass_blocks<S>(j, at);
        bool busy = who < j.total && query < j.sq;
        if (busy) {
            float y[S::COLUMNS / 2];
            pass_rows r = {{-INFINITY, -INFINITY}, {0, 0}, {0, 0}};
#pragma unroll 1
            for (int b = 0; b < blocks; b++) {
                block(b, blocks, who, query, S::ONLINE || last, r, y);
                if (S::ONLINE || last)
                    tk.next(S::STAGES);
            }
            pass_store<S>(map, sm.y + group * S::Y, group, row, r, y, who % j.heads, query,
                          who / j.heads);
        } else {
#pragma unroll 1
            for (int b = 0; b < blocks; b++) {
                idle(b, blocks, S::ONLINE || last);
                if (S::ONLINE || last)
                    tk.next(S::STAGES);
            }
        }
        tq.next(S::Q_STAGES);
    }

    __device__ __forceinline__ void run(const CUtensorMap *map)
    {
        for (int at = (int)blockIdx.x; at < j.items; at += (int)gridDim.x) {
            pass_item<S> it(j, at);
#pragma unroll 1
            for (int i = it.first; i < it.last; i++)
                tile(map, group == 0 ? it.head[0] : it.head[1], i, i + 1 == it.last);
        }
        if (threadIdx.x % HOPPER_WARPGROUP == 0)
            store_wait_all();
    }
};

template <class S>
__global__ void __launch_bounds__(PASS_THREADS, 1)
    pass_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                const __grid_constant__ CUtensorMap v, const __grid_constant__ CUtensorMap y,
                const __grid_constant__ pass_job j)
{
    KERNEL_SHARED(unsigned char, raw);
    pass_shared<S> sm(raw);
    int group = (int)threadIdx.x / HOPPER_WARPGROUP;
    if (threadIdx.x == 0) {
        const int consumers = 2 * HOPPER_WARPGROUP / 32; /* warps */
        for (int i = 0; i < S::Q_STAGES; i++) {
            mbarrier_init(sm.q_full + i, 1);
            mbarrier_init(sm.q_empty + i, consumers);
        }
        for (int i = 0; i < S::STAGES; i++) {
            mbarrier_init(sm.k_full + i, 1);
            mbarrier_init(sm.k_empty + i, consumers);
            mbarrier_init(sm.v_full + i, 1);
            mbarrier_init(sm.v_empty + i, consumers);
        }
        mbarrier_fence();
    }
    __syncthreads();
    grid_go();
    grid_wait();
    if (group == 2) {
        registers_fewer<S::FEW>();
        if (threadIdx.x == 2 * HOPPER_WARPGROUP) {
            grid_fence();
            pass_produce<S>(sm, &q, &k, &v, j);
        }
    } else {
        registers_more<S::MANY>();
        pass_consumer<S>(sm, j, group).run(&y);
    }
}

/* --- launching --- */

/* A box of `columns` columns and `rows` rows of one head. */
inline struct hopper_tensor pass_tensor(const struct operand &x, int dtype, int64_t columns,
                                        int64_t heads, int64_t rows, int64_t batch, int wide,
                                        int tall)
{
    struct hopper_tensor t = {};
    const int64_t dim[4] = {columns, heads, rows, batch}, stride[4] = {1, x.h, x.s, x.n};
    const int32_t box[4] = {wide, 1, tall, 1};
    t.data = x.data;
    t.dtype = dtype;
    t.rank = 4;
    for (int i = 0; i < 4; i++) {
        t.dim[i] = dim[i];
        t.stride[i] = stride[i];
        t.box[i] = box[i];
    }
    return t;
}

/* Few items: a tile each; many: all tiles of a head, so that keys and values come once. */
template <class S> void pass_cut(int heads, int multiprocessors, struct pass_job *j)
{
    int64_t best = INT64_MAX;
    j->a_part = 1;
    j->parts = j->tiles;
    for (int a = j->tiles; a >= 1 && !S::ONLINE; a--) {
        int64_t parts = kernel_ceil_div(j->tiles, a);
        int64_t cost = kernel_ceil_div(heads * parts, multiprocessors) * (a * 4 + 1);
        if (cost < best) {
            best = cost;
            j->a_part = a;
            j->parts = (int)parts;
        }
    }
}

/* False: sizes beyond what the kernel counts in. */
template <class S>
bool pass_job_of(const struct problem &p, int multiprocessors, struct pass_job *j)
{
    int64_t total = p.batch * p.heads, heads = S::PAIR ? kernel_ceil_div(total, 2) : total;
    int64_t tiles = kernel_ceil_div(p.sq, S::TILE);
    if ((p.mask && p.mask_k != 0 && p.mask_k != 1) || heads * tiles > INT32_MAX / 4 ||
        p.sk > INT32_MAX / 4 || p.sq > INT32_MAX / 4)
        return false;
    *j = {};
    j->heads = p.heads;
    j->shared_by = p.shared_by;
    j->total = (int)total;
    j->sq = p.sq;
    j->sk = p.sk;
    j->tiles = (int)tiles;
    pass_cut<S>((int)heads, multiprocessors, j);
    j->items = (int)heads * j->parts;
    j->ahead = p.sk - p.sq;
    j->causal = p.causal;
    j->scale = p.scale * LOG2_E;
    j->mask = p.mask;
    j->mask_bool = p.mask_bool;
    j->mask_n = p.mask_n;
    j->mask_h = p.mask_h;
    j->mask_q = p.mask_q;
    j->mask_k = (int)p.mask_k;
    j->mask_batches = p.mask_batches;
    j->mask_words = p.mask && !p.mask_bool && p.mask_k == 1 && p.sk % 2 == 0 && p.mask_n % 2 == 0 &&
                    p.mask_h % 2 == 0 && p.mask_q % 2 == 0 && (uintptr_t)p.mask % 4 == 0;
    return true;
}

template <class S>
cudaError_t pass_launch_of(const struct kernel_call *call, const struct problem &p)
{
    const int dtype = number_of<typename S::T>::dtype;
    int heads_k = p.heads / p.shared_by;
    int multiprocessors = call->multiprocessors > 0 ? call->multiprocessors : 132;
    struct pass_job job;
    struct hopper_tensor t[4] = {
        pass_tensor(p.q, dtype, p.d, p.heads, p.sq, p.batch, S::WIDE, PASS_QUERIES),
        pass_tensor(p.k, dtype, p.d, heads_k, p.sk, p.batch, S::WIDE, S::BLOCK),
        pass_tensor(p.v, dtype, p.e, heads_k, p.sk, p.batch, S::WIDE, S::BLOCK),
        pass_tensor(p.y, dtype, p.e, p.heads, p.sq, p.batch, S::WIDE, PASS_QUERIES)};
    bool fits = (S::ONLINE || p.sk <= S::BLOCK) && (!S::PAIR || p.sq <= S::TILE) &&
                pass_job_of<S>(p, multiprocessors, &job);
    for (int i = 0; fits && i < 4; i++)
        fits = hopper_tensor_fits(&t[i]);
    if (!fits)
        return cudaErrorNotSupported;
    if (call->dry)
        return cudaSuccess;
    CUtensorMap map[4];
    for (int i = 0; i < 4; i++) {
        cudaError_t code = hopper_map(&t[i], &map[i]);
        if (code != cudaSuccess)
            return code;
    }
    return hopper_launch(pass_kernel<S>, (unsigned)min(multiprocessors, job.items), 1, PASS_THREADS,
                         S::SHARED, call, map[0], map[1], map[2], map[3], job);
}

/* --- the table --- */

typedef cudaError_t (*pass_fn)(const struct kernel_call *call, const struct problem &p);

/* One way to cut heads of up to `columns` columns and more than `keys` keys (for so many another
 * row is quicker); `by_mask` NULL: not for such masks. */
struct pass_row {
    int32_t variant;
    int columns, keys;
    pass_fn by_mask[3]; /* enum mask_kind */
};

#define PASS_FN(mask, columns, block, online, pair, chunked, q_stages, stages)                     \
    pass_launch_of<pass_shape<T, columns, block, mask, online, pair, chunked, q_stages, stages>>
#define PASS_ROW(name, columns, ...)                                                               \
    {                                                                                              \
        KERNEL_ATTENTION_PASS_##name, columns, 0,                                                  \
        {                                                                                          \
            PASS_FN(MASK_NONE, columns, __VA_ARGS__), PASS_FN(MASK_KEYS, columns, __VA_ARGS__),    \
                PASS_FN(MASK_FULL, columns, __VA_ARGS__)                                           \
        }                                                                                          \
    }

template <class T> cudaError_t pass_launch(const struct kernel_call *call, const struct problem &p)
{
    /* columns, keys of a block, online, pair, chunked, stages of queries, of keys */
    static const struct pass_row rows[] = {
        PASS_ROW(PAIR, 32, 64, false, true, false, 4, 4),
        PASS_ROW(PAIR, 64, 64, false, true, false, 4, 4),
        PASS_ROW(128, 64, 128, false, false, false, 3, 4),
        {KERNEL_ATTENTION_PASS_208,
         64,
         128,
         {PASS_FN(MASK_NONE, 64, 208, false, false, false, 3, 3),
          PASS_FN(MASK_KEYS, 64, 208, false, false, false, 3, 3), nullptr}},
        {KERNEL_ATTENTION_PASS_256,
         64,
         208,
         {PASS_FN(MASK_NONE, 64, 256, false, false, true, 3, 2), nullptr, nullptr}},
        PASS_ROW(BLOCKS, 32, 128, true, false, false, 4, 4),
        PASS_ROW(BLOCKS, 64, 128, true, false, false, 3, 4),
        PASS_ROW(BLOCKS, 96, 128, true, false, false, 2, 3),
        PASS_ROW(BLOCKS, 128, 128, true, false, false, 2, 2),
    };
    int columns = p.d > p.e ? p.d : p.e;
    enum mask_kind mask = !p.mask ? MASK_NONE : p.mask_q == 0 ? MASK_KEYS : MASK_FULL;
    for (const struct pass_row &r : rows)
        if (r.variant == call->variant && columns <= r.columns && columns > r.columns - 32 &&
            p.sk > r.keys)
            return r.by_mask[mask] ? r.by_mask[mask](call, p) : cudaErrorNotSupported;
    return cudaErrorNotSupported;
}

#undef PASS_FN
#undef PASS_ROW

} // namespace attention

#endif
