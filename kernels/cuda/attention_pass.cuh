/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention of 16-bit floats on Hopper: wgmma and tensor copies. docs/kernels.md has a drawing.
 *
 * A tile is 64 queries of a head for each of GROUPS consumer warpgroups (PAIR: 64 queries of each
 * of two heads); one warpgroup more has the thread that loads. Scores of BLOCK keys are one
 * product and stay in registers; their exponentials, packed, are the A of the second product as
 * they lie, and values are its transposed B. If BLOCK covers all keys there is no running maximum;
 * else (ONLINE) blocks of keys follow one another with one. CHUNKED: exponentials of 64 keys at a
 * time, while the product with the values of the 64 before takes place, for want of registers.
 *
 * Of two TEAMS each has consumers, rings, mbarriers, a loading thread and items of its own, as two
 * blocks of one multiprocessor would. One team multiplies while the other one makes weights.
 *
 * With SPANS each query sees a range of keys. A warp of its own finds what a tile's queries see
 * together and leaves that beside the queries; other blocks are not loaded, and a warpgroup passes
 * over blocks that none of its 64 queries sees.
 *
 * Rings: queries, keys and values, the last two with mbarriers of their own, so that products begin
 * before the values are there, and keys make room before values. An item is one or more tiles of a
 * head (or pair); teams walk items grid by grid.
 */
#ifndef INFERD_KERNELS_CUDA_ATTENTION_PASS_CUH
#define INFERD_KERNELS_CUDA_ATTENTION_PASS_CUH

#include "kernels/cuda/attention_pass_load.cuh"

namespace attention
{

/* --- a consumer --- */

/* Of the two rows that a thread has. */
struct pass_rows {
    float top[2], base[2], sum[2];
};

/* What a score counts in units of log2. */
template <class S> __device__ __forceinline__ float pass_unit(const pass_job &j)
{
    return S::RAW ? j.scale : 1.0f;
}

/* Asks for the scores of a block; they are there after a wait, when s is held. */
template <class S>
__device__ __forceinline__ void pass_scores(uint32_t q, uint32_t k, float (&s)[S::SCORES])
{
    const uint64_t of_q = descriptor_rows<S::LINE>(q), of_k = descriptor_rows<S::LINE>(k);
    wgmma_hold(s);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < S::COLUMNS / 16; c++) {
        const int box = c * 32 / S::LINE, in = c * 32 % S::LINE;
        wgmma<typename S::T>(s, descriptor_beyond(of_q, box * S::Q_BOX + in),
                             descriptor_beyond(of_k, box * S::K_BOX + in), c > 0);
    }
    wgmma_commit();
}

/* The maximum so far, and the same in units of log2; a row that sees no key has base 0, so that its
 * weights are 0. */
template <class S>
__device__ __forceinline__ void pass_maximum(const pass_job &j, const float (&s)[S::SCORES],
                                             pass_rows &r)
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
        r.base[up] = r.top[up] == -INFINITY ? 0.0f : r.top[up] * pass_unit<S>(j);
    }
}

/* The weights of scores s[i], s[i + 1], packed; their sum is that of what is not rounded yet. */
template <class S>
__device__ __forceinline__ uint32_t pass_weights(const pass_job &j, const float (&s)[S::SCORES],
                                                 int i, const pass_rows &r, float (&part)[2])
{
    float a = exp2_fast(fmaf(s[i], pass_unit<S>(j), -r.base[i / 2 % 2])),
          b = exp2_fast(fmaf(s[i + 1], pass_unit<S>(j), -r.base[i / 2 % 2]));
    part[i / 2 % 2] += a + b;
    return pair_of<typename S::T>(a, b);
}

/* Weights times values, 64 keys at a time, in two buffers. */
template <class S>
__device__ __forceinline__ void pass_chunks(const pass_job &j, uint32_t v,
                                            const float (&s)[S::SCORES], pass_rows &r,
                                            float (&y)[S::COLUMNS / 2])
{
    const uint64_t of_v = descriptor_columns<S::LINE>(v, S::K_BOX);
    uint32_t p[2][16];
#pragma unroll
    for (int chunk = 0; chunk < S::BLOCK / 64; chunk++) {
#pragma unroll
        for (int i = 0; i < 32; i += 2)
            p[chunk % 2][i / 2] = pass_weights<S>(j, s, 32 * chunk + i, r, r.sum);
        wgmma_hold(p[chunk % 2]);
        if (chunk == 0)
            wgmma_hold(y);
        wgmma_fence();
#pragma unroll
        for (int c = 0; c < 4; c++)
            wgmma_registers<typename S::T>(y, p[chunk % 2], 4 * c,
                                           descriptor_beyond(of_v, (chunk * 4 + c) * 16 * S::LINE),
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
__device__ __forceinline__ void pass_rescale(const pass_job &j, const float (&before)[2],
                                             pass_rows &r, float (&y)[S::COLUMNS / 2])
{
#pragma unroll
    for (int up = 0; up < 2; up++) {
        float f = exp2_fast(fmaf(before[up], pass_unit<S>(j), -r.base[up]));
        r.sum[up] *= f;
#pragma unroll
        for (int i = 2 * up; i < S::COLUMNS / 2; i += 4) {
            y[i] *= f;
            y[i + 1] *= f;
        }
    }
}

/* Asks for weights times values, which are added to y if it is kept. */
template <class S>
__device__ __forceinline__ void pass_values(uint32_t v, uint32_t (&p)[S::SCORES / 2], bool keep,
                                            float (&y)[S::COLUMNS / 2])
{
    const uint64_t of_v = descriptor_columns<S::LINE>(v, S::K_BOX);
    wgmma_hold(p);
    wgmma_hold(y);
    wgmma_fence();
#pragma unroll
    for (int c = 0; c < S::BLOCK / 16; c++)
        wgmma_registers<typename S::T>(y, p, 4 * c, descriptor_beyond(of_v, c * 16 * S::LINE),
                                       keep || c > 0);
    wgmma_commit();
}

/* Two numbers, in steps of y, as bytes. Integers are rounded by a sum whose lowest bits they are;
 * of NaN the least is made. */
template <bool F8>
__device__ __forceinline__ uint16_t pass_bytes(const bytes_side &to, float a, float b)
{
    if constexpr (F8) {
        uint16_t word;
        const float pair[2] = {a, b};
        side_floats<2>(bytes_side{&word, DTYPE_F8, 0, 0, 0}, 0, pair); /* as they are: step 0 */
        return word;
    }
    const float least = to.type == DTYPE_I8 ? -128.0f : 0.0f, round = 12582912.0f; /* 1.5 2^23 */
    a = fminf(fmaxf(a + to.zero, least), least + 255.0f) + round;
    b = fminf(fmaxf(b + to.zero, least), least + 255.0f) + round;
    return (uint16_t)((__float_as_uint(a) & 255) | (__float_as_uint(b) & 255) << 8);
}

enum pass_type { PASS_WORDS, PASS_INTEGERS, PASS_F8 };

/* Four bytes a store: eight rows lie in eight chunks of a line, so that no bank is met twice. Of y
 * in 8 bits two bytes a store, in lines half as long. */
template <class S, pass_type TYPE>
__device__ __forceinline__ void pass_put(const bytes_side &to, unsigned char *out, int row,
                                         pass_rows &r, const float (&y)[S::COLUMNS / 2],
                                         float (&probe)[2])
{
    constexpr int LINE = TYPE == PASS_WORDS ? S::LINE : S::WIDE, NUMBER = LINE / S::WIDE;
    float scale[2];
    if (!S::CHUNKED) /* addresses would be kept in registers from tile to tile */
        own_path(row);
    /* Swizzled; the row 8 further on has its chunks in the same places. */
    int first = row * LINE + (int)threadIdx.x % 4 * 2 * NUMBER;
    first ^= (first >> 7 & (LINE / 16 - 1)) << 4;
#pragma unroll
    for (int up = 0; up < 2; up++) {
        float sum = quad_sum(r.sum[up]);
        scale[up] = sum == 0.0f ? 0.0f : 1.0f / sum; /* NaN stays NaN */
        if (TYPE != PASS_WORDS)
            scale[up] *= to.inverse;
    }
#pragma unroll
    for (int i = 0; i < S::COLUMNS / 2; i += 2) {
        const int up = i / 2 % 2, column = i / 4 * 8;
        unsigned char *at = out + column / S::WIDE * (PASS_QUERIES * LINE) + up * 8 * LINE +
                            (first ^ column % S::WIDE * NUMBER);
        float a = y[i] * scale[up], b = y[i + 1] * scale[up];
        if (S::SPANS)
            probe[up] = not_finite(not_finite(probe[up], a), b);
        if constexpr (TYPE == PASS_WORDS)
            shared_put(at, pair_of<typename S::T>(a, b));
        else
            shared_put(at, pass_bytes<TYPE == PASS_F8>(to, a, b));
    }
}

/* Makes rows anew that are not finite, when all of the warpgroup's are stored. `broken`: of each of
 * its warps, lanes that have found it in their upper row, and in their lower one. */
template <class S>
__device__ __forceinline__ void pass_mend(const struct problem &p, const uint32_t *broken,
                                          int group, int h, int query)
{
    uint32_t any = 0;
#pragma unroll
    for (int i = 0; i < 8; i++)
        any |= broken[i];
    if (any == 0)
        return;
    if (threadIdx.x % HOPPER_WARPGROUP == 0)
        store_wait_all();
    named_sync(1 + group, HOPPER_WARPGROUP);
    int warp = (int)threadIdx.x % HOPPER_WARPGROUP / 32;
#pragma unroll 1
    for (int r = 0; r < 16; r++) {
        int at = query + warp * 16 + r;
        if (at < p.sq && (broken[2 * warp + r / 8] >> r % 8 * 4 & 15))
            mend_row<typename S::T>(p, h, at);
    }
}

template <class S>
__device__ __forceinline__ void pass_store(const CUtensorMap *map, const struct problem &p,
                                           uint32_t *broken, unsigned char *out, int group, int row,
                                           pass_rows &r, const float (&y)[S::COLUMNS / 2], int h,
                                           int query, int n)
{
    bool leader = threadIdx.x % HOPPER_WARPGROUP == 0;
    float probe[2] = {0, 0};
    if (leader)
        store_wait_read<0>();
    named_sync(1 + group, HOPPER_WARPGROUP);
    if (S::CHUNKED || p.to.step == 0)
        pass_put<S, PASS_WORDS>(p.to, out, row, r, y, probe);
    else if (p.to.type == DTYPE_F8)
        pass_put<S, PASS_F8>(p.to, out, row, r, y, probe);
    else
        pass_put<S, PASS_INTEGERS>(p.to, out, row, r, y, probe);
    if constexpr (S::SPANS) {
#pragma unroll
        for (int up = 0; up < 2; up++) {
            uint32_t lanes = __ballot_sync(0xffffffffu, probe[up] != 0);
            if (threadIdx.x % 32 == 0)
                broken[threadIdx.x % HOPPER_WARPGROUP / 32 * 2 + up] = lanes;
        }
    }
    proxy_fence();
    named_sync(1 + group, HOPPER_WARPGROUP);
    if (leader) {
#pragma unroll
        for (int i = 0; i < S::BOXES; i++)
            tensor_store_4d(map, out + i * (p.to.step == 0 ? S::Y_BOX : S::Y_BOX / 2), i * S::WIDE,
                            h, query, n);
        store_commit();
    }
    if constexpr (S::SPANS)
        pass_mend<S>(p, broken, group, h, query);
}

/* A warpgroup that computes. */
template <class S> struct pass_consumer {
    typedef typename S::T T;
    const pass_shared<S> &sm;
    const pass_job &j;
    const struct problem &p;
    int group;
    hopper_turn tq, tk;

    __device__ pass_consumer(const pass_shared<S> &shared, const pass_job &job,
                             const struct problem &problem, int warpgroup)
        : sm(shared), j(job), p(problem), group(warpgroup), tq({0, 0}), tk({0, 0})
    {
    }

    /* Which warpgroup of its team this is, and which the upper row of a thread: found anew for each
     * use, since two teams have no registers to keep them in. */
    __device__ __forceinline__ int part(void) const
    {
        return S::TEAMS == 1 ? group : (int)(threadIdx.x / HOPPER_WARPGROUP % S::GROUPS);
    }

    __device__ __forceinline__ int row(void) const
    {
        unsigned t = threadIdx.x % HOPPER_WARPGROUP;
        return (int)(t / 32 * 16 + t % 32 / 4);
    }

    /* Lets a stage go that this warp has read. */
    __device__ __forceinline__ void free_stage(uint64_t *empty, bool last_use)
    {
        if (threadIdx.x % 32 == 0 && last_use)
            mbarrier_arrive(empty);
    }

    /* Waits for a stage and lets it go unread. The whole warp has to see it: it might be filled
     * twice before a lane that comes late looks. */
    __device__ __forceinline__ void skip_stage(uint64_t *full, uint64_t *empty,
                                               const hopper_turn &at, bool last_use)
    {
        mbarrier_wait(full + at.at, at.parity);
        __syncwarp();
        free_stage(empty + at.at, last_use);
    }

    __device__ __forceinline__ void ask_scores(float (&s)[S::SCORES])
    {
        int half = S::PAIR ? part() * S::BLOCK * S::LINE : 0;
        mbarrier_wait(sm.k_full + tk.at, tk.parity);
        pass_scores<S>(shared_address(sm.q + tq.at * S::Q) + part() * PASS_QUERIES * S::LINE,
                       shared_address(sm.k + tk.at * S::K) + half, s);
    }

    /* Where a stage's values are, when they have come. */
    __device__ __forceinline__ uint32_t wait_values(const hopper_turn &at)
    {
        int half = S::PAIR ? part() * S::BLOCK * S::LINE : 0;
        mbarrier_wait(sm.v_full + at.at, at.parity);
        return shared_address(sm.v + at.at * S::K) + half;
    }

    /* --- all keys in one block --- */

    /* The mask is asked for before queries are waited for, and comes while scores are made. (Words
     * of a later tile would be waited for by proxy_fence.) Values are waited for before weights are
     * made: in between, registers are fewest. */
    __device__ __forceinline__ void block(int who, int query, const pass_seen &seen, bool last_use,
                                          pass_rows &r, float (&y)[S::COLUMNS / 2])
    {
        float s[S::SCORES];
        uint32_t words[S::MASK_ROWS ? S::MASK_ROWS : 1][S::MASK_WORDS];
        if (S::MASK_ROWS)
            pass_mask_load<S>(j, who, query + row(), 0, words);
        mbarrier_wait(sm.q_full + tq.at, tq.parity);
        ask_scores(s);
        wgmma_wait<0>();
        wgmma_hold(s);
        free_stage(sm.k_empty + tk.at, last_use);
        free_stage(sm.q_empty + tq.at, true);
        pass_mask_scores<S>(j, seen, 0, s, words);
        uint32_t v = wait_values(tk);
        pass_maximum<S>(j, s, r);
        if constexpr (S::CHUNKED) {
            pass_chunks<S>(j, v, s, r, y);
        } else {
            uint32_t p[S::SCORES / 2];
#pragma unroll
            for (int i = 0; i < S::SCORES; i += 2)
                p[i / 2] = pass_weights<S>(j, s, i, r, r.sum);
            pass_values<S>(v, p, false, y);
            wgmma_wait<0>();
            wgmma_hold(y);
            wgmma_hold(p);
        }
        free_stage(sm.v_empty + tk.at, last_use);
    }

    /* --- blocks of keys --- */

    /* The weights p of the block of keys from key0 on; meanwhile the weights before, if there were
     * any, meet their values, which are at `tv`. `last`: the queries are not needed any more. */
    template <bool FIRST>
    __device__ __forceinline__ void step(int key0, int who, int query, const pass_seen &seen,
                                         bool last, hopper_turn &tv, pass_rows &r,
                                         uint32_t (&p)[S::SCORES / 2], float (&y)[S::COLUMNS / 2])
    {
        float s[S::SCORES];
        uint32_t words[S::MASK_ROWS ? S::MASK_ROWS : 1][S::MASK_WORDS];
        if (S::MASK_ROWS)
            pass_mask_load<S>(j, who, query + row(), key0, words);
        ask_scores(s);
        if constexpr (FIRST) {
            wgmma_wait<0>();
        } else {
            pass_values<S>(wait_values(tv), p, true, y);
            wgmma_wait<1>();
        }
        wgmma_hold(s);
        free_stage(sm.k_empty + tk.at, true);
        free_stage(sm.q_empty + tq.at, last);
        pass_mask_scores<S>(j, seen, key0, s, words);
        float before[2] = {r.top[0], r.top[1]}, part[2] = {0, 0};
        pass_maximum<S>(j, s, r);
#pragma unroll
        for (int i = 0; i < S::SCORES; i++) {
            s[i] = exp2_fast(fmaf(s[i], pass_unit<S>(j), -r.base[i / 2 % 2]));
            part[i / 2 % 2] += s[i];
        }
        if constexpr (!FIRST) {
            wgmma_wait<0>();
            wgmma_hold(y);
            wgmma_hold(p);
            free_stage(sm.v_empty + tv.at, true);
            tv.next(S::STAGES);
            pass_rescale<S>(j, before, r, y);
        }
        r.sum[0] += part[0];
        r.sum[1] += part[1];
#pragma unroll
        for (int i = 0; i < S::SCORES; i += 2)
            p[i / 2] = pair_of<T>(s[i], s[i + 1]);
        tk.next(S::STAGES);
    }

    /* Blocks, of which this warpgroup's queries see none. */
    __device__ __forceinline__ void pass_over(int blocks)
    {
#pragma unroll 1
        for (int b = 0; b < blocks; b++) {
            skip_stage(sm.k_full, sm.k_empty, tk, true);
            skip_stage(sm.v_full, sm.v_empty, tk, true);
            tk.next(S::STAGES);
        }
    }

    /* `own`: the keys that this warpgroup's queries see. */
    __device__ __forceinline__ void stream(const pass_blocks<S> &blocks, struct span own, int who,
                                           int query, const pass_seen &seen, pass_rows &r,
                                           float (&y)[S::COLUMNS / 2])
    {
        int from = max(own.begin - blocks.first, 0) / S::BLOCK;
        int to = min((own.end - blocks.first + S::BLOCK - 1) / S::BLOCK, blocks.n);
        uint32_t p[S::SCORES / 2];
        if (own.begin >= own.end) {
            skip_stage(sm.q_full, sm.q_empty, tq, true);
            pass_over(blocks.n);
            return;
        }
        pass_over(from);
        hopper_turn tv = tk;
        int key0 = blocks.first + from * S::BLOCK;
        step<true>(key0, who, query, seen, from + 1 == to, tv, r, p, y);
#pragma unroll 1
        for (int b = from + 1; b < to; b++) {
            key0 += S::BLOCK;
            step<false>(key0, who, query, seen, b + 1 == to, tv, r, p, y);
        }
        pass_values<S>(wait_values(tv), p, true, y);
        wgmma_wait<0>();
        wgmma_hold(y);
        wgmma_hold(p);
        free_stage(sm.v_empty + tv.at, true);
        pass_over(blocks.n - to);
    }

    /* What the tile's queries see, as the loading warp left it, and what this warpgroup's do. */
    __device__ __forceinline__ pass_blocks<S> ranges(int query, pass_seen &seen, struct span &own)
    {
        const struct span *at = sm.ranges + tq.at * S::RANGES;
        struct span all = at[S::TILE + S::GROUPS];
        own = at[S::TILE + part()];
#pragma unroll
        for (int up = 0; up < 2; up++) {
            struct span one = at[query % S::TILE + row() + 8 * up];
            seen.first[up] = one.begin;
            seen.last[up] = one.end - 1;
        }
        __syncwarp();
        return pass_blocks<S>(all);
    }

    /* One tile of the item; the turns go on. */
    __device__ __forceinline__ void tile(const CUtensorMap *map, const pass_item<S> &it, int at)
    {
        int who = S::PAIR && part() == 1 ? it.head[1] : it.head[0];
        int query = at * S::TILE + (S::PAIR ? 0 : part() * PASS_QUERIES);
        bool last = at + 1 == it.last;
        bool busy = who < j.total && query < j.sq;
        float y[S::COLUMNS / 2];
        pass_rows r = {{-INFINITY, -INFINITY}, {0, 0}, {0, 0}};
        pass_seen seen(j, query + row());
        if constexpr (S::ONLINE) {
            pass_blocks<S> blocks(j, at);
            struct span own = {0, j.causal ? min(j.sk, query + PASS_QUERIES + j.ahead) : j.sk};
            mbarrier_wait(sm.q_full + tq.at, tq.parity);
            if constexpr (S::SPANS)
                blocks = ranges(query, seen, own);
            if (!busy)
                own = {0, 0};
#pragma unroll
            for (int i = 0; i < S::COLUMNS / 2; i++)
                y[i] = 0;
            stream(blocks, own, who, query, seen, r, y);
        } else if (busy) {
            block(who, query, seen, last, r, y);
        } else {
            skip_stage(sm.q_full, sm.q_empty, tq, true);
            skip_stage(sm.k_full, sm.k_empty, tk, last);
            skip_stage(sm.v_full, sm.v_empty, tk, last);
        }
        if (!S::ONLINE && last)
            tk.next(S::STAGES);
        if (busy) {
            pass_head head(j, who);
            pass_store<S>(map, p, sm.broken + 8 * part(), sm.y + part() * S::Y, group, row(), r, y,
                          head.h, query, head.n);
        }
        tq.next(S::Q_STAGES);
    }

    __device__ __forceinline__ void run(const CUtensorMap *map)
    {
        for (int at = pass_first<S>(); at < j.items; at = pass_next<S>(at)) {
            pass_item<S> it(j, at);
#pragma unroll 1
            for (int i = it.first; i < it.last; i++)
                tile(map, it, i);
        }
        if (threadIdx.x % HOPPER_WARPGROUP == 0)
            store_wait_all();
    }
};

template <class S>
__global__ void __launch_bounds__(S::THREADS, 1)
    pass_kernel(const __grid_constant__ CUtensorMap q, const __grid_constant__ CUtensorMap k,
                const __grid_constant__ CUtensorMap v, const __grid_constant__ CUtensorMap y,
                const __grid_constant__ pass_job j, const __grid_constant__ struct problem p)
{
    KERNEL_SHARED(unsigned char, raw);
    const int consumers = S::GROUPS * HOPPER_WARPGROUP / 32; /* warps of a team */
    int group = (int)threadIdx.x / HOPPER_WARPGROUP;
    int warp = (int)threadIdx.x / 32 - S::TEAMS * consumers; /* of those that load; else below 0 */
    pass_shared<S> sm(raw);
    if (threadIdx.x == 0) {
        tensor_prefetch(&q);
        tensor_prefetch(&k);
        tensor_prefetch(&v);
        tensor_prefetch(&y);
    }
    if (warp < 0 && (int)threadIdx.x % (consumers * 32) == 0) {
        for (int i = 0; i < S::Q_STAGES; i++) {
            mbarrier_init(sm.q_full + i, 1);
            mbarrier_init(sm.q_empty + i, consumers);
            if (S::SPANS)
                mbarrier_init(sm.r_full + i, 1);
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
    if (warp >= 0) {
        registers_fewer<S::FEW>();
        if (warp < S::TEAMS && threadIdx.x % 32 == 0) {
            grid_fence();
            pass_produce<S>(sm, &q, &k, &v, j);
        }
        if (S::SPANS && warp == 1)
            pass_produce_ranges<S>(sm, j, p);
    } else {
        registers_more<S::MANY>();
        pass_consumer<S>(sm, j, p, group).run(&y);
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
template <class S> void pass_cut(int heads, int teams, struct pass_job *j)
{
    int64_t best = INT64_MAX;
    j->a_part = 1;
    j->parts = divider_make((uint32_t)j->tiles);
    for (int a = j->tiles; a >= 1 && !S::ONLINE; a--) {
        int64_t parts = kernel_ceil_div(j->tiles, a);
        int64_t cost = kernel_ceil_div(heads * parts, teams) * (a * 4 + 1);
        if (cost < best) {
            best = cost;
            j->a_part = a;
            j->parts = divider_make((uint32_t)parts);
        }
    }
}

/* False: sizes beyond what the kernel counts in, or a scale that masks cannot be divided by. */
template <class S> bool pass_job_of(const struct problem &p, int teams, struct pass_job *j)
{
    int64_t total = p.batch * p.heads, heads = S::PAIR ? kernel_ceil_div(total, 2) : total;
    int64_t tiles = kernel_ceil_div(p.sq, S::TILE);
    if ((p.mask && p.mask_k != 0 && p.mask_k != 1) || heads * tiles > INT32_MAX / 4 ||
        p.sk > INT32_MAX / 4 || p.sq > INT32_MAX / 4 || !(p.scale > 1e-6f))
        return false;
    *j = {};
    j->heads = divider_make((uint32_t)p.heads);
    j->mask_batches = divider_make((uint32_t)p.mask_batches);
    j->shared_by = p.shared_by;
    j->total = (int)total;
    j->sq = p.sq;
    j->sk = p.sk;
    j->tiles = (int)tiles;
    pass_cut<S>((int)heads, teams, j);
    j->items = (int)heads * (int)j->parts.by;
    j->ahead = p.sk - p.sq;
    j->causal = p.causal;
    j->scale = p.scale * LOG2_E;
    j->unscale = 1 / p.scale;
    j->mask = p.mask;
    j->mask_bool = p.mask_bool;
    j->mask_n = p.mask_n;
    j->mask_h = p.mask_h;
    j->mask_q = p.mask_q;
    j->mask_k = (int)p.mask_k;
    j->mask_words = p.mask && !p.mask_bool && p.mask_k == 1 && p.sk % 2 == 0 && p.mask_n % 2 == 0 &&
                    p.mask_h % 2 == 0 && p.mask_q % 2 == 0 && (uintptr_t)p.mask % 4 == 0;
    return true;
}

template <class S>
cudaError_t pass_launch_of(const struct kernel_call *call, const struct problem &p)
{
    const int dtype = number_of<typename S::T>::dtype;
    int heads_k = p.heads / p.shared_by;
    int multiprocessors = kernel_multiprocessors(call);
    int teams = multiprocessors * S::TEAMS;
    struct pass_job job;
    struct hopper_tensor t[4] = {
        pass_tensor(p.q, dtype, p.d, p.heads, p.sq, p.batch, S::WIDE, PASS_QUERIES),
        pass_tensor(p.k, dtype, p.d, heads_k, p.sk, p.batch, S::WIDE, S::BLOCK),
        pass_tensor(p.v, dtype, p.e, heads_k, p.sk, p.batch, S::WIDE, S::BLOCK),
        pass_tensor(p.y, p.to.step == 0 ? dtype : p.to.type, p.e, p.heads, p.sq, p.batch, S::WIDE,
                    PASS_QUERIES)};
    bool fits = (!S::CHUNKED || p.to.step == 0) && (S::ONLINE || p.sk <= S::BLOCK) &&
                (!S::PAIR || p.sq <= S::TILE) && pass_job_of<S>(p, teams, &job);
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
    return hopper_launch(pass_kernel<S>, (unsigned)min(multiprocessors, job.items), 1, S::THREADS,
                         S::SHARED, call, map[0], map[1], map[2], map[3], job, p);
}

/* --- the table --- */

typedef cudaError_t (*pass_fn)(const struct kernel_call *call, const struct problem &p);

/* One way to cut heads of up to `columns` columns and more than `keys` keys (for so many another
 * row is quicker); `by_mask` NULL: not for such masks. */
struct pass_row {
    int32_t variant;
    int columns, keys;
    pass_fn by_mask[4]; /* enum mask_kind */
};

#define PASS_FN(mask, columns, block, groups, online, pair, chunked, q_stages, stages)             \
    pass_launch_of<                                                                                \
        pass_shape<T, columns, block, mask, groups, online, pair, chunked, q_stages, stages>>
#define PASS_ROW(name, columns, ...)                                                               \
    {                                                                                              \
        KERNEL_ATTENTION_PASS_##name, columns, 0,                                                  \
        {                                                                                          \
            PASS_FN(MASK_NONE, columns, __VA_ARGS__), PASS_FN(MASK_KEYS, columns, __VA_ARGS__),    \
                PASS_FN(MASK_FULL, columns, __VA_ARGS__), nullptr                                  \
        }                                                                                          \
    }
#define PASS_BLOCKS(columns, spans, ...)                                                           \
    {                                                                                              \
        KERNEL_ATTENTION_PASS_BLOCKS, columns, 0,                                                  \
        {                                                                                          \
            PASS_FN(MASK_NONE, columns, __VA_ARGS__), PASS_FN(MASK_KEYS, columns, __VA_ARGS__),    \
                PASS_FN(MASK_FULL, columns, __VA_ARGS__), spans                                    \
        }                                                                                          \
    }

template <class T> cudaError_t pass_launch(const struct kernel_call *call, const struct problem &p)
{
    /* columns, keys of a block, consumers (four are two teams), online, pair, chunked, stages of
     * queries, of keys. Two teams have no registers for a mask of each query with 128 keys. */
    static const struct pass_row rows[] = {
        PASS_ROW(PAIR, 32, 64, 4, false, true, false, 4, 4),
        PASS_ROW(PAIR, 64, 64, 4, false, true, false, 2, 2),
        {KERNEL_ATTENTION_PASS_128,
         64,
         0,
         {PASS_FN(MASK_NONE, 64, 128, 4, false, false, false, 2, 2),
          PASS_FN(MASK_KEYS, 64, 128, 4, false, false, false, 2, 2),
          PASS_FN(MASK_FULL, 64, 128, 2, false, false, false, 3, 4), nullptr}},
        {KERNEL_ATTENTION_PASS_208,
         64,
         128,
         {PASS_FN(MASK_NONE, 64, 208, 2, false, false, false, 3, 3),
          PASS_FN(MASK_KEYS, 64, 208, 2, false, false, false, 3, 3), nullptr, nullptr}},
        {KERNEL_ATTENTION_PASS_256,
         64,
         208,
         {PASS_FN(MASK_NONE, 64, 256, 2, false, false, true, 3, 2), nullptr, nullptr, nullptr}},
        PASS_BLOCKS(32, PASS_FN(MASK_SPANS, 32, 64, 3, true, false, false, 3, 4), 128, 2, true,
                    false, false, 4, 4),
        PASS_BLOCKS(64, PASS_FN(MASK_SPANS, 64, 64, 3, true, false, false, 3, 6), 128, 2, true,
                    false, false, 3, 4),
        PASS_BLOCKS(96, PASS_FN(MASK_SPANS, 96, 128, 2, true, false, false, 2, 3), 128, 2, true,
                    false, false, 2, 3),
        PASS_BLOCKS(128, PASS_FN(MASK_SPANS, 128, 64, 2, true, false, false, 2, 2), 96, 2, true,
                    false, false, 2, 2),
        {KERNEL_ATTENTION_PASS_STREAM,
         64,
         256,
         {PASS_FN(MASK_NONE, 64, 64, 3, true, false, false, 3, 6),
          PASS_FN(MASK_KEYS, 64, 64, 3, true, false, false, 3, 6), nullptr, nullptr}},
    };
    int columns = p.d > p.e ? p.d : p.e;
    enum mask_kind mask = p.spans         ? MASK_SPANS
                          : !p.mask       ? MASK_NONE
                          : p.mask_q == 0 ? MASK_KEYS
                                          : MASK_FULL;
    for (const struct pass_row &r : rows)
        if (r.variant == call->variant && columns <= r.columns && columns > r.columns - 32 &&
            p.sk > r.keys)
            return r.by_mask[mask] ? r.by_mask[mask](call, p) : cudaErrorNotSupported;
    return cudaErrorNotSupported;
}

#undef PASS_FN
#undef PASS_ROW
#undef PASS_BLOCKS

} // namespace attention

#endif
