/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention: y = softmax(scale q k' + mask) v, head by head. Two 16-bit types go to tensor cores
 * (attention_flash.cuh; on Hopper also attention_pass.cuh). plain_kernel does everything else with
 * heads up to 256 columns, in fp32 from shared memory, with 4 queries per warp: lanes are keys for
 * the scores and columns of v for the output.
 *
 * Refused: strides along D other than 1, head sizes beyond 256.
 */
#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/reduce.cuh"

namespace
{

using attention::cut;
using attention::problem;

/* --- plain --- */

constexpr int PLAIN_WARPS = 4, PLAIN_QUERIES = 4; /* of a warp */
constexpr int HEAD_MAX = 256;                     /* columns of q, k and v */
constexpr int QUERIES_IDLE = 16;

/* Reads `rows` rows of a head from `first` on as floats; zero beyond the tensor. Rows have MOST
 * columns; keys one more, because lanes read down a column of theirs. */
template <typename T, int MOST>
__device__ void plain_load(float *to, int pitch, const T *from, int64_t stride, int n, int first,
                           int rows, int columns)
{
    for (int i = (int)threadIdx.x; i < n * MOST; i += (int)blockDim.x) {
        int row = i / MOST, c = i % MOST;
        bool inside = first + row < rows && c < columns;
        to[row * pitch + c] = inside ? number_float(from[(first + row) * stride + c]) : 0.0f;
    }
}

/* The score with the mask; -inf: the query does not see the key. */
template <typename T>
__device__ __forceinline__ float plain_mask(const struct problem &p, float score, int64_t mask,
                                            int query, int key)
{
    query = min(query, p.sq - 1);
    if (key >= p.sk || (p.causal && key > query + p.sk - p.sq))
        return -INFINITY;
    int64_t at = mask + query * p.mask_q + key * p.mask_k;
    if (p.spans) {
        struct attention::span s = attention::span_of(p, query);
        return key >= s.begin && key < s.end ? score : -INFINITY;
    }
    if (!p.mask)
        return score;
    if (p.mask_bool)
        return static_cast<const unsigned char *>(p.mask)[at] ? score : -INFINITY;
    return score + number_float(static_cast<const T *>(p.mask)[at]);
}

/* Does one query's part of a tile: the lane's score becomes its weight, and o is brought to the new
 * maximum. */
template <int COLUMNS>
__device__ __forceinline__ float plain_soften(float score, float &highest, float &sum,
                                              float (&o)[COLUMNS])
{
    float before = highest, weight, shrink;
    highest = reduce_warp(score > highest ? score : highest, reduce_max());
    float base = highest == -INFINITY ? 0.0f : highest;
    weight = expf(score - base);
    shrink = expf(before - base);
    sum = sum * shrink + reduce_warp(weight, reduce_sum());
#pragma unroll
    for (int c = 0; c < COLUMNS; c++)
        o[c] *= shrink;
    return weight;
}

template <typename T, int MOST>
__global__ void __launch_bounds__(PLAIN_WARPS * 32) plain_kernel(struct problem p)
{
    constexpr int COLUMNS = MOST / 32, PITCH = MOST + 1;
    KERNEL_SHARED(float, k_tile);
    float *v_tile = k_tile + 32 * PITCH, *q_tile = v_tile + 32 * MOST;
    int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int64_t pair = blockIdx.x / p.q_tiles, n = pair / p.heads, h = pair % p.heads;
    int first = (int)(blockIdx.x % p.q_tiles) * PLAIN_WARPS * PLAIN_QUERIES;
    int64_t mask = n % p.mask_batches * p.mask_n + h * p.mask_h;
    const T *k = attention::head_of<T>(p.k, n, h / p.shared_by);
    const T *v = attention::head_of<T>(p.v, n, h / p.shared_by);
    const float *q = q_tile + warp * PLAIN_QUERIES * MOST;
    float o[PLAIN_QUERIES][COLUMNS] = {}, highest[PLAIN_QUERIES], sum[PLAIN_QUERIES] = {};
    for (int i = 0; i < PLAIN_QUERIES; i++)
        highest[i] = -INFINITY;

    plain_load<T, MOST>(q_tile, MOST, attention::head_of<T>(p.q, n, h), p.q.s,
                        PLAIN_WARPS * PLAIN_QUERIES, first, p.sq, p.d);
    int seen = p.causal ? min(p.sk, first + PLAIN_WARPS * PLAIN_QUERIES + p.sk - p.sq) : p.sk;
    struct attention::span all = {0, p.spans ? 0 : seen};
    for (int i = 0; p.spans && i < PLAIN_WARPS * PLAIN_QUERIES && first + i < p.sq; i++)
        all = attention::span_join(all, attention::span_of(p, first + i));
    first += warp * PLAIN_QUERIES;
    struct attention::span own[PLAIN_QUERIES];
    for (int i = 0; i < PLAIN_QUERIES; i++)
        own[i] = p.spans ? attention::span_of(p, first + i) : attention::span{0, p.sk};
    for (int t = all.begin; t < all.end; t += 32) {
        __syncthreads();
        plain_load<T, MOST>(k_tile, PITCH, k, p.k.s, 32, t, p.sk, p.d);
        plain_load<T, MOST>(v_tile, MOST, v, p.v.s, 32, t, p.sk, p.e);
        __syncthreads();
        float s[PLAIN_QUERIES] = {};
        for (int c = 0; c < p.d; c++)
#pragma unroll
            for (int i = 0; i < PLAIN_QUERIES; i++)
                s[i] += q[i * MOST + c] * k_tile[lane * PITCH + c];
#pragma unroll
        for (int i = 0; i < PLAIN_QUERIES; i++) {
            s[i] = plain_mask<T>(p, s[i] * p.scale, mask, first + i, t + lane);
            s[i] = plain_soften(s[i], highest[i], sum[i], o[i]);
        }
        for (int j = 0; j < min(32, p.sk - t); j++)
#pragma unroll
            for (int i = 0; i < PLAIN_QUERIES; i++) {
                float weight = __shfl_sync(0xffffffffu, s[i], j);
                if (t + j < own[i].begin || t + j >= own[i].end)
                    continue; /* an infinite value of another sequence is not read */
#pragma unroll
                for (int c = 0; c < COLUMNS; c++)
                    o[i][c] += weight * v_tile[j * MOST + c * 32 + lane];
            }
    }
    T *y = static_cast<T *>(const_cast<void *>(p.y.data));
    for (int i = 0; i < PLAIN_QUERIES; i++)
        for (int c = 0; c < COLUMNS; c++) {
            int64_t at = n * p.y.n + h * p.y.h + (first + i) * p.y.s + c * 32 + lane;
            T value = number_from<T>(sum[i] == 0.0f ? 0.0f : o[i][c] / sum[i]);
            if (first + i >= p.sq || c * 32 + lane >= p.e)
                continue;
            if (p.to.step != 0)
                attention::store_bytes<T, 1>(p, at, &value);
            else
                y[at] = value;
        }
}

template <typename T, int MOST>
cudaError_t launch_plain_of(const struct kernel_call *call, struct problem p)
{
    constexpr int ROWS = PLAIN_WARPS * PLAIN_QUERIES;
    size_t floats = 32 * (MOST + 1) + 32 * MOST + ROWS * MOST;
    p.q_tiles = (int32_t)kernel_ceil_div(p.sq, ROWS);
    int64_t blocks = p.batch * p.heads * p.q_tiles;
    if (blocks > INT32_MAX)
        return cudaErrorNotSupported;
    return KERNEL_LAUNCH((plain_kernel<T, MOST>), (unsigned)blocks, PLAIN_WARPS * 32,
                         floats * sizeof(float), call, p);
}

template <typename T>
cudaError_t launch_plain(const struct kernel_call *call, const struct problem &p)
{
    return p.d <= 128 && p.e <= 128 ? launch_plain_of<T, 128>(call, p)
                                    : launch_plain_of<T, HEAD_MAX>(call, p);
}

/* --- a problem from the views --- */

bool operand_of(const struct kernel_view *x, const struct kernel_view *q,
                struct attention::operand *out)
{
    *out = {x->data, x->stride[0], x->stride[1], x->stride[2]};
    return x->rank == 4 && (x->dtype == q->dtype || x->step != 0) && x->dim[0] == q->dim[0] &&
           (x->stride[3] == 1 || x->dim[3] == 1) && x->dim[2] <= INT32_MAX / 2 &&
           x->dim[3] <= HEAD_MAX && x->dim[1] <= INT32_MAX;
}

/* Whether rows allow 16-byte loads and stores. */
bool in_chunks(const struct attention::operand &x, int64_t columns)
{
    return columns % 8 == 0 && x.n % 8 == 0 && x.h % 8 == 0 && x.s % 8 == 0 &&
           (uintptr_t)x.data % 16 == 0;
}

bool set_mask(const struct kernel_view *mask, const struct kernel_view *q, struct problem *p)
{
    p->mask_batches = 1;
    if (!mask || !mask->data)
        return true;
    p->mask_batches = mask->dim[0];
    p->mask = mask->data;
    p->mask_bool = mask->dtype == DTYPE_BOOL;
    p->mask_n = mask->stride[0];
    p->mask_h = mask->stride[1];
    p->mask_q = mask->stride[2];
    p->mask_k = mask->stride[3];
    p->mask_chunks = !p->mask_bool && p->mask_k == 1 && p->sk % 8 == 0 && p->mask_n % 8 == 0 &&
                     p->mask_h % 8 == 0 && p->mask_q % 8 == 0 && (uintptr_t)mask->data % 16 == 0;
    return mask->rank == 4 && mask->dim[0] > 0 && (p->mask_bool || mask->dtype == q->dtype);
}

bool problem_of(const struct kernel_attention *a, struct problem *p)
{
    const struct kernel_view *q = a->q, *k = a->k, *v = a->v, *y = a->y;
    *p = {};
    if (q->step != 0 || k->step != 0 || v->step != 0 || (y->step != 0 && !side_scaled(y)))
        return false;
    p->to = side_of(y);
    if (!operand_of(q, q, &p->q) || !operand_of(k, q, &p->k) || !operand_of(v, q, &p->v) ||
        !operand_of(y, q, &p->y) || k->dim[3] != q->dim[3] || v->dim[2] != k->dim[2] ||
        v->dim[1] != k->dim[1] || y->dim[1] != q->dim[1] || y->dim[2] != q->dim[2] ||
        y->dim[3] != v->dim[3] || k->dim[1] < 1 || q->dim[1] % k->dim[1] || k->dim[2] < 1)
        return false;
    p->batch = q->dim[0];
    p->heads = (int32_t)q->dim[1];
    p->shared_by = (int32_t)(q->dim[1] / k->dim[1]);
    p->sq = (int32_t)q->dim[2];
    p->sk = (int32_t)k->dim[2];
    p->d = (int32_t)q->dim[3];
    p->e = (int32_t)v->dim[3];
    p->scale = a->scale;
    p->causal = a->causal;
    p->chunks = in_chunks(p->q, p->d) && in_chunks(p->k, p->d) && in_chunks(p->v, p->e) &&
                in_chunks(p->y, p->e);
    p->group = 1;
    p->splits = 1;
    p->spans = a->spans;
    if (a->spans && (p->batch != 1 || p->sq != p->sk || (a->mask && a->mask->data)))
        return false;
    return set_mask(a->mask, q, p);
}

/* --- variants --- */

const struct row {
    int32_t variant;
    struct cut cut;
} rows[] = {
    {KERNEL_ATTENTION_128, {8, 1}},     {KERNEL_ATTENTION_64, {4, 1}},
    {KERNEL_ATTENTION_32, {2, 1}},      {KERNEL_ATTENTION_WIDE_128, {4, 2}},
    {KERNEL_ATTENTION_WIDE_64, {2, 2}}, {KERNEL_ATTENTION_SPLIT, {0, 1}},
    {KERNEL_ATTENTION_PARTS, {0, 1}},
};

/* Cuts the problem for tensor cores. False: it has too few rows or keys for this variant, or a
 * scale that the kernels do not take. */
bool cut_problem(const struct kernel_call *call, int32_t variant, struct problem *p,
                 struct cut *out)
{
    const struct row *r = rows;
    while (r < rows + sizeof(rows) / sizeof(*rows) && r->variant != variant)
        r++;
    if (r == rows + sizeof(rows) / sizeof(*rows) || !(p->scale > 0))
        return false;
    *out = r->cut;
    bool together = r->cut.warps == 0;
    int64_t block =
        together ? attention::QUERIES : r->cut.warps * r->cut.tiles * attention::QUERIES;
    int64_t group = together ? p->shared_by : 1, items = p->batch * (p->heads / group);
    if (group * p->sq > INT32_MAX / 2 || items > INT32_MAX || (block > 32 && p->sq <= block / 2))
        return false;
    p->group = (int32_t)group;
    p->rows = (int32_t)(group * p->sq);
    p->items = (int32_t)items;
    p->q_tiles = (int32_t)kernel_ceil_div(p->rows, block);
    if (together && p->spans)
        return false; /* their rows are summed up by threads that cannot mend them */
    if (variant == KERNEL_ATTENTION_PARTS)
        p->splits = attention::splits_of(call, *p);
    return variant != KERNEL_ATTENTION_PARTS || p->splits > 1;
}

/* Few queries leave most of a product's 64 rows idle. */
cudaError_t launch_pass(const struct kernel_call *call, int32_t dtype, const struct problem &p)
{
    if (call->capability != 90 || p.sq <= QUERIES_IDLE || !(p.scale > 0))
        return cudaErrorNotSupported;
    return dtype == DTYPE_F16 ? attention::pass_launch_f16(call, p)
                              : attention::pass_launch_bf16(call, p);
}

/* Of Hopper's variants the one that usually takes half of the time of others, where there are tiles
 * for half of the multiprocessors and more keys than 64; 0: none. */
int32_t pass_choice(const struct kernel_call *call, const struct kernel_attention *a,
                    const struct problem &p, int64_t multiprocessors)
{
    static const int32_t order[] = {KERNEL_ATTENTION_PASS_128, KERNEL_ATTENTION_PASS_208,
                                    KERNEL_ATTENTION_PASS_256, KERNEL_ATTENTION_PASS_STREAM,
                                    KERNEL_ATTENTION_PASS_BLOCKS};
    struct kernel_call dry = *call;
    dry.dry = true;
    if (p.sk <= 64 || 2 * p.batch * p.heads * kernel_ceil_div(p.sq, 128) < multiprocessors)
        return 0;
    for (int32_t variant : order) {
        dry.variant = variant;
        if (kernel_attention(&dry, a) == cudaSuccess)
            return variant;
    }
    return 0;
}

} // namespace

/* As many queries per block as still give every multiprocessor a block; and for few queries with
 * many keys, parts of the keys. */
extern "C" int32_t kernel_attention_choice(const struct kernel_call *call,
                                           const struct kernel_attention *a)
{
    struct problem p;
    struct cut cut;
    if (!problem_of(a, &p))
        return 0;
    if ((a->q->dtype != DTYPE_F16 && a->q->dtype != DTYPE_BF16) || !(p.scale > 0))
        return KERNEL_ATTENTION_PLAIN;
    int64_t most = kernel_multiprocessors(call);
    int64_t heads = p.batch * p.heads;
    int32_t pass = pass_choice(call, a, p, most);
    if (pass)
        return pass;
    if (p.sq > 64 && heads * kernel_ceil_div(p.sq, 128) >= 2 * most)
        return KERNEL_ATTENTION_128;
    if (p.sq > 32 && heads * kernel_ceil_div(p.sq, 64) >= most)
        return KERNEL_ATTENTION_64;
    if (p.sq > 16 && (p.spans || heads * kernel_ceil_div(p.sq, 32) >= most))
        return KERNEL_ATTENTION_32;
    if (p.spans)
        return KERNEL_ATTENTION_PLAIN;
    bool parts = p.sk >= 512 && cut_problem(call, KERNEL_ATTENTION_PARTS, &p, &cut);
    return parts ? KERNEL_ATTENTION_PARTS : KERNEL_ATTENTION_SPLIT;
}

extern "C" uint64_t kernel_attention_workspace(const struct kernel_call *call,
                                               const struct kernel_attention *a)
{
    struct problem p;
    struct cut cut;
    int32_t variant = call->variant ? call->variant : kernel_attention_choice(call, a);
    if (variant != KERNEL_ATTENTION_PARTS || !problem_of(a, &p) ||
        !cut_problem(call, variant, &p, &cut))
        return 0;
    return (uint64_t)p.items * p.q_tiles * p.splits * attention::QUERIES *
           (attention::padded(p) + 2) * sizeof(float);
}

extern "C" cudaError_t kernel_attention(const struct kernel_call *call,
                                        const struct kernel_attention *a)
{
    struct problem p;
    struct cut cut;
    if (!problem_of(a, &p))
        return cudaErrorNotSupported;
    if (p.batch == 0 || p.heads == 0 || p.sq == 0 || p.e == 0)
        return cudaSuccess;
    int32_t dtype = a->q->dtype, variant = call->variant;
    bool half = dtype == DTYPE_F16 || dtype == DTYPE_BF16;
    if (variant == 0)
        variant = kernel_attention_choice(call, a);
    if (variant == KERNEL_ATTENTION_PLAIN)
        return dtype == DTYPE_F32    ? launch_plain<float>(call, p)
               : dtype == DTYPE_F16  ? launch_plain<half_t>(call, p)
               : dtype == DTYPE_BF16 ? launch_plain<bf16_t>(call, p)
                                     : cudaErrorNotSupported;
    if (half && variant >= KERNEL_ATTENTION_PASS_PAIR) {
        struct kernel_call chosen = *call;
        chosen.variant = variant;
        return launch_pass(&chosen, dtype, p);
    }
    if (!half || !cut_problem(call, variant, &p, &cut))
        return cudaErrorNotSupported;
    p.parts = static_cast<float *>(a->workspace);
    return dtype == DTYPE_F16 ? attention::launch_f16(call, p, cut)
                              : attention::launch_bf16(call, p, cut);
}
