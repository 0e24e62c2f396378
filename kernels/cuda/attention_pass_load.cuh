/* SPDX-License-Identifier: Apache-2.0 */
/* Attention on Hopper: what a row of the table is, what a tile is, the warps that load, and masks.
 * See attention_pass.cuh. */
#ifndef INFERD_KERNELS_CUDA_ATTENTION_PASS_LOAD_CUH
#define INFERD_KERNELS_CUDA_ATTENTION_PASS_LOAD_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/hopper_map.cuh"
#include "kernels/cuda/hopper_mma.cuh"

namespace attention
{

constexpr int PASS_QUERIES = 64; /* of a warpgroup: the rows of a product */

struct pass_job {
    struct divider heads, parts, mask_batches;
    int shared_by, total; /* total: heads of all batches */
    int sq, sk;
    int tiles, a_part; /* tiles of a head; an item has `a_part`, a head `parts` items */
    int items;
    int ahead; /* causal: query i sees keys up to i + ahead */
    bool causal, mask_bool;
    bool mask_words; /* pairs of neighbouring keys are words */
    float scale;     /* times log2(e) */
    float unscale;   /* 1 / the scale itself */
    const void *mask;
    int64_t mask_n, mask_h, mask_q;
    int mask_k; /* 0 or 1 */
};

/* The batch of a head that is counted over all batches, and which of its heads that is. */
struct pass_head {
    int n, h;
    __device__ __forceinline__ pass_head(const pass_job &j, int who)
    {
        uint32_t rest;
        n = (int)divider_split(j.heads, (uint32_t)who, &rest);
        h = (int)rest;
    }
};

template <class T_, int COLUMNS_, int BLOCK_, mask_kind MASK_, int GROUPS_, bool ONLINE_,
          bool PAIR_, bool CHUNKED_, int Q_STAGES_, int STAGES_>
struct pass_shape {
    typedef T_ T;
    static constexpr int TEAMS = GROUPS_ == 4 ? 2 : 1, CONSUMERS = GROUPS_;
    static constexpr int GROUPS = CONSUMERS / TEAMS, COLUMNS = COLUMNS_, BLOCK = BLOCK_,
                         Q_STAGES = Q_STAGES_, STAGES = STAGES_;
    static constexpr mask_kind MASK = MASK_;
    static constexpr bool ONLINE = ONLINE_, PAIR = PAIR_, CHUNKED = CHUNKED_;
    static constexpr bool SPANS = MASK == MASK_SPANS;
    static constexpr int TILE = PAIR ? PASS_QUERIES : GROUPS * PASS_QUERIES; /* queries of a head */
    /* a box has WIDE columns of a head: lines as long as the swizzle */
    static constexpr int LINE = COLUMNS % 64 == 0 ? 128 : 64, WIDE = LINE / 2,
                         BOXES = COLUMNS / WIDE;
    static constexpr int K_ROWS = PAIR ? 2 * BLOCK : BLOCK;
    static constexpr int Q_BOX = GROUPS * PASS_QUERIES * LINE, K_BOX = K_ROWS * LINE,
                         Y_BOX = PASS_QUERIES * LINE;
    static constexpr int Q = BOXES * Q_BOX, K = BOXES * K_BOX, Y = BOXES * Y_BOX;
    static constexpr int BARRIERS = (SPANS ? 3 : 2) * Q_STAGES + 4 * STAGES;
    /* those of a tile's queries, of each warpgroup's, and of all */
    static constexpr int RANGES = SPANS ? TILE + GROUPS + 1 : 0;
    static constexpr int OWN = /* bytes of a team; the next one begins NEXT bytes further on */
        Q_STAGES * (Q + RANGES * (int)sizeof(struct span)) + 2 * STAGES * K + GROUPS * Y +
        BARRIERS * 8 + (SPANS ? GROUPS * 8 * (int)sizeof(uint32_t) : 0);
    static constexpr int NEXT = (OWN + HOPPER_ALIGN - 1) / HOPPER_ALIGN * HOPPER_ALIGN;
    static constexpr int SHARED = HOPPER_ALIGN + (TEAMS - 1) * NEXT + OWN;
    static constexpr int THREADS = (CONSUMERS + 1) * HOPPER_WARPGROUP;
    /* registers: together not more than the block starts with, 96 in each of 640 threads */
    static constexpr int MANY = CONSUMERS == 4                              ? 112
                                : GROUPS == 3                               ? 160
                                : BLOCK > 208 || (COLUMNS == 128 && !SPANS) ? 240
                                                                            : 232;
    static constexpr int FEW = MANY <= 160 ? 32 : MANY == 232 ? 40 : 24;
    static constexpr int SCORES = BLOCK / 2; /* of a thread */
    /* rows of the mask that a thread reads */
    static constexpr int MASK_ROWS = MASK == MASK_KEYS ? 1 : MASK == MASK_FULL ? 2 : 0;
    static constexpr int MASK_WORDS = MASK_ROWS ? SCORES / 4 : 1;
    static_assert(SHARED <= HOPPER_SHARED_MAX, "shared memory");
    /* Scores stay as the product gives them. A mask is brought to their unit, which BF16's lowest
     * numbers do not survive. */
    static constexpr bool RAW = !CHUNKED && (MASK_ROWS == 0 || number_of<T>::dtype == DTYPE_F16);
    static_assert(!SPANS || (ONLINE && !PAIR && TEAMS == 1), "spans");
    static_assert(!ONLINE || SCORES <= 64, "a row's keys have a bit each");
    static_assert(!CHUNKED || (!ONLINE && !PAIR && BLOCK % 64 == 0), "chunks");
};

/* The team that the thread belongs to; warps that load, too, belong to one each. */
template <class S> __device__ __forceinline__ int pass_team(void)
{
    unsigned warp = threadIdx.x / 32, consumers = S::CONSUMERS * HOPPER_WARPGROUP / 32;
    if (S::TEAMS == 1)
        return 0;
    return (int)(warp < consumers ? warp * S::TEAMS / consumers : warp % S::TEAMS);
}

/* The team's first item, and that behind another one. */
template <class S> __device__ __forceinline__ int pass_first(void)
{
    return (int)blockIdx.x + pass_team<S>() * (int)gridDim.x;
}

template <class S> __device__ __forceinline__ int pass_next(int item)
{
    return item + S::TEAMS * (int)gridDim.x;
}

template <class S> struct pass_shared {
    unsigned char *q, *k, *v, *y;
    struct span *ranges; /* S::RANGES a stage of queries */
    uint64_t *q_full, *q_empty, *k_full, *k_empty, *v_full, *v_empty, *r_full;
    uint32_t *broken; /* of spans, two words a consumer's warp: lanes that have rows not finite */
    __device__ explicit pass_shared(unsigned char *raw)
    {
        q = shared_kept(raw + pass_team<S>() * S::NEXT);
        k = q + S::Q_STAGES * S::Q;
        v = k + S::STAGES * S::K;
        y = v + S::STAGES * S::K;
        ranges = reinterpret_cast<struct span *>(y + S::GROUPS * S::Y);
        q_full = reinterpret_cast<uint64_t *>(ranges + S::Q_STAGES * S::RANGES);
        q_empty = q_full + S::Q_STAGES;
        k_full = q_empty + S::Q_STAGES;
        k_empty = k_full + S::STAGES;
        v_full = k_empty + S::STAGES;
        v_empty = v_full + S::STAGES;
        r_full = v_empty + S::STAGES;
        broken = reinterpret_cast<uint32_t *>(r_full + (S::SPANS ? S::Q_STAGES : 0));
    }
};

/* What an item is, for the loading thread and for the consumers. */
template <class S> struct pass_item {
    int first, last; /* tiles */
    int head[2];     /* of the two halves of a tile, counted over all batches; total: none */
    __device__ pass_item(const pass_job &j, int at)
    {
        uint32_t rest;
        int who = (int)divider_split(j.parts, (uint32_t)at, &rest);
        int part = j.causal ? (int)(j.parts.by - 1 - rest) : (int)rest; /* the long ones first */
        first = part * j.a_part;
        last = min(first + j.a_part, j.tiles);
        head[0] = S::PAIR ? 2 * who : who;
        head[1] = S::PAIR ? min(2 * who + 1, j.total) : who;
    }
};

/* The blocks of keys that some query of the tile sees; at least one. */
template <class S> struct pass_blocks {
    int first, n; /* a key, of which the first block begins */
    __device__ __forceinline__ pass_blocks(const pass_job &j, int tile)
    {
        int keys = j.causal ? min(j.sk, (tile + 1) * S::TILE + j.ahead) : j.sk;
        first = 0;
        n = S::ONLINE ? max(1, (keys + S::BLOCK - 1) / S::BLOCK) : 1;
    }
    __device__ __forceinline__ explicit pass_blocks(struct span seen)
    {
        first = seen.begin;
        n = max(1, (seen.end - seen.begin + S::BLOCK - 1) / S::BLOCK);
    }
};

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
        pass_head at(j, head[i]);
        pass_load<S>(to + i * S::BLOCK * S::LINE, map, full, S::K_BOX, at.h / j.shared_by, at.n,
                     row);
    }
}

template <class S>
__device__ __forceinline__ void pass_load_queries(const pass_job &j, unsigned char *to,
                                                  const CUtensorMap *map, uint64_t *full,
                                                  const int (&head)[2], int row)
{
    mbarrier_expect(full, S::Q);
#pragma unroll
    for (int i = 0; i < S::GROUPS; i++) {
        pass_head at(j, head[S::PAIR ? i : 0]);
        pass_load<S>(to + i * PASS_QUERIES * S::LINE, map, full, S::Q_BOX, at.h, at.n,
                     S::PAIR ? row : row + i * PASS_QUERIES);
    }
}

/* By a warp: the ranges of the tile's queries, of each warpgroup's, and of all. */
template <class S>
__device__ __forceinline__ void pass_put_ranges(const struct problem &p, struct span *to, int tile)
{
    int lane = (int)threadIdx.x % 32;
    struct span all = {0, 0};
#pragma unroll 1
    for (int group = 0; group < S::GROUPS; group++) {
        struct span together = {0, 0};
#pragma unroll 1
        for (int at = group * PASS_QUERIES + lane; at < (group + 1) * PASS_QUERIES; at += 32) {
            int query = tile * S::TILE + at;
            to[at] = query < p.sq ? span_of(p, query) : span{0, 0};
            together = span_join(together, to[at]);
        }
        together = span_join_warp(together);
        if (lane == 0)
            to[S::TILE + group] = together;
        all = span_join(all, together);
    }
    if (lane == 0)
        to[S::TILE + S::GROUPS] = all;
    __syncwarp();
}

/* By a warp, for the tiles of the block; it is ahead of the thread that loads. */
template <class S>
__device__ __forceinline__ void pass_produce_ranges(const pass_shared<S> &sm, const pass_job &j,
                                                    const struct problem &p)
{
    hopper_turn t = {0, 0};
    for (int at = pass_first<S>(); at < j.items; at = pass_next<S>(at)) {
        pass_item<S> it(j, at);
        for (int tile = it.first; tile < it.last; tile++) {
            mbarrier_wait(sm.q_empty + t.at, t.parity ^ 1);
            __syncwarp();
            pass_put_ranges<S>(p, sm.ranges + t.at * S::RANGES, tile);
            if (threadIdx.x % 32 == 0)
                mbarrier_arrive(sm.r_full + t.at);
            t.next(S::Q_STAGES);
        }
    }
}

template <class S>
__device__ __forceinline__ void pass_produce(const pass_shared<S> &sm, const CUtensorMap *q,
                                             const CUtensorMap *k, const CUtensorMap *v,
                                             const pass_job &j)
{
    hopper_turn tq = {0, 0}, tk = {0, 0};
    for (int at = pass_first<S>(); at < j.items; at = pass_next<S>(at)) {
        pass_item<S> it(j, at);
        int head[2] = {it.head[0], it.head[1] < j.total ? it.head[1] : it.head[0]};
        for (int tile = it.first; tile < it.last; tile++) {
            pass_blocks<S> blocks(j, tile);
            mbarrier_wait(sm.q_empty + tq.at, tq.parity ^ 1);
            if constexpr (S::SPANS) {
                mbarrier_wait(sm.r_full + tq.at, tq.parity);
                blocks = pass_blocks<S>(sm.ranges[tq.at * S::RANGES + S::TILE + S::GROUPS]);
            }
            pass_load_queries<S>(j, sm.q + tq.at * S::Q, q, sm.q_full + tq.at, head,
                                 tile * S::TILE);
            tq.next(S::Q_STAGES);
            if (!S::ONLINE && tile > it.first)
                continue; /* keys and values are there */
#pragma unroll 1
            for (int b = 0; b < blocks.n; b++) {
                int row = blocks.first + b * S::BLOCK;
                mbarrier_wait(sm.k_empty + tk.at, tk.parity ^ 1);
                pass_load_block<S>(j, sm.k + tk.at * S::K, k, sm.k_full + tk.at, head, row);
                mbarrier_wait(sm.v_empty + tk.at, tk.parity ^ 1);
                pass_load_block<S>(j, sm.v + tk.at * S::K, v, sm.v_full + tk.at, head, row);
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
    if (j.mask_words && key0 + S::BLOCK <= j.sk) {
        const unsigned *from = reinterpret_cast<const unsigned *>(line + key0 + q);
#pragma unroll
        for (int i = 0; i < S::MASK_WORDS; i++)
            words[i] = pass_finite<T>(__ldg(from + 4 * i));
        return;
    }
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
    pass_head at(j, who);
    uint32_t n;
    divider_split(j.mask_batches, (uint32_t)at.n, &n);
    int64_t from = n * j.mask_n + at.h * j.mask_h;
#pragma unroll
    for (int up = 0; up < S::MASK_ROWS; up++)
        pass_mask_row<S>(j, from + min(query + 8 * up, j.sq - 1) * j.mask_q, key0, words[up]);
}

/* What a thread's two rows see. */
struct pass_seen {
    int first[2], last[2]; /* keys */
    /* `query` is that of the upper row. */
    __device__ __forceinline__ pass_seen(const pass_job &j, int query)
    {
#pragma unroll
        for (int up = 0; up < 2; up++) {
            first[up] = 0;
            last[up] = j.causal ? min(j.sk - 1, query + 8 * up + j.ahead) : j.sk - 1;
        }
    }
};

/* Whether the words of a warp's masks are all zeros, as they are where nothing is padded. */
template <class S>
__device__ __forceinline__ bool pass_mask_is_zero(
    const uint32_t (&words)[S::MASK_ROWS ? S::MASK_ROWS : 1][S::MASK_WORDS])
{
    uint32_t any = 0;
#pragma unroll
    for (int up = 0; up < S::MASK_ROWS; up++)
#pragma unroll
        for (int i = 0; i < S::MASK_WORDS; i++)
            any |= words[up][i];
    return !__any_sync(0xffffffffu, (any & 0x7fff7fffu) != 0); /* -0 adds nothing either */
}

/* How many of the keys that a thread has of a row are below `key`: of each eight neighbours it has
 * two. */
__device__ __forceinline__ int pass_keys_below(int key)
{
    int at = max(key - (int)threadIdx.x % 4 * 2, 0);
    return at / 8 * 2 + min(at % 8, 2);
}

__device__ __forceinline__ uint32_t low_bits(int n)
{
    return n <= 0 ? 0 : n >= 32 ? UINT32_MAX : (1u << n) - 1;
}

/* Keys that are not seen, or not there, get -inf: those behind a row's last one. */
template <class S>
__device__ __forceinline__ void pass_hide(const pass_seen &seen, float (&s)[S::SCORES])
{
    int q = (int)threadIdx.x % 4 * 2;
#pragma unroll
    for (int i = 0; i < S::SCORES; i++)
        if (i / 4 * 8 + q + i % 2 > seen.last[i / 2 % 2])
            s[i] = -INFINITY;
}

/* The same for a block from key0 on, of which a row may see a part in the middle. */
template <class S>
__device__ __forceinline__ void pass_hide_by_bits(const pass_seen &seen, int key0,
                                                  float (&s)[S::SCORES])
{
    uint32_t there[2]; /* a bit for each key of a row */
#pragma unroll
    for (int up = 0; up < 2; up++) {
        there[up] = low_bits(pass_keys_below(seen.last[up] + 1 - key0));
        if (S::SPANS)
            there[up] &= ~low_bits(pass_keys_below(seen.first[up] - key0));
    }
#pragma unroll
    for (int i = 0; i < S::SCORES; i++)
        if (!(there[i / 2 % 2] >> (i / 4 * 2 + i % 2) & 1))
            s[i] = -INFINITY;
}

/* Scores with their mask; where S::RAW is not, in units of log2. Keys that are not seen, or not
 * there, have -inf. */
template <class S>
__device__ __forceinline__ void pass_mask_scores(
    const pass_job &j, const pass_seen &seen, int key0, float (&s)[S::SCORES],
    const uint32_t (&words)[S::MASK_ROWS ? S::MASK_ROWS : 1][S::MASK_WORDS])
{
    if (S::CHUNKED && S::MASK_ROWS == 0) { /* it has no register for the unit */
#pragma unroll
        for (int i = 0; i < S::SCORES; i++)
            s[i] *= j.scale;
    }
    if (S::MASK_ROWS > 0 && !(S::RAW && pass_mask_is_zero<S>(words))) {
#pragma unroll
        for (int i = 0; i < S::SCORES; i += 2) {
            const int up = S::MASK == MASK_FULL ? i / 2 % 2 : 0;
            float2 add = pair_floats<typename S::T>(words[up][S::MASK_ROWS ? i / 4 : 0]);
            if (S::RAW) {
                s[i] = fmaf(add.x, j.unscale, s[i]);
                s[i + 1] = fmaf(add.y, j.unscale, s[i + 1]);
            } else {
                s[i] = fmaf(s[i], j.scale, add.x * LOG2_E);
                s[i + 1] = fmaf(s[i + 1], j.scale, add.y * LOG2_E);
            }
        }
    }
    bool whole = S::SPANS ? key0 >= max(seen.first[0], seen.first[1]) &&
                                key0 + S::BLOCK - 1 <= min(seen.last[0], seen.last[1])
                          : !j.causal && (S::MASK_ROWS > 0 || key0 + S::BLOCK <= j.sk);
    if (whole)
        return;
    if constexpr (S::ONLINE)
        pass_hide_by_bits<S>(seen, key0, s);
    else
        pass_hide<S>(seen, s);
}

} // namespace attention

#endif
