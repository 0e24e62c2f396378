/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions of any dims, in fp32. Dims are first brought into the order of memory and merged; then
 *
 *   rows_kernel      the reduced elements are neighbours: a warp or a block an output
 *   columns_kernel   the kept ones are, such as channels in channels-last: a thread has 16 bytes of
 *                    them, the threads of a block share out what is reduced and meet in shared
 *                    memory
 *   general_kernel   everything else: a warp an output
 *
 * Refused: reductions over no elements. Types other than F16, BF16, F32 go to scan.cu.
 */
#include <math.h>

#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/reduce.cuh"

namespace
{

constexpr int BLOCK = 256;

/* Dims in the order of memory, innermost first. */
struct walk {
    int32_t rank;
    struct divider dim[KERNEL_RANK_MAX];
    int64_t x[KERNEL_RANK_MAX];
    uint32_t y[KERNEL_RANK_MAX]; /* of kept dims */
};

struct problem {
    const void *x;
    void *y;
    int32_t func;
    uint32_t outputs, count; /* count: elements that make one output */
    struct walk kept, reduced;
};

__device__ __forceinline__ int64_t walk_x(const struct walk &w, uint32_t index)
{
    int64_t at = 0;
    uint32_t i;
    for (int d = 0; d < w.rank; d++) {
        index = divider_split(w.dim[d], index, &i);
        at += i * w.x[d];
    }
    return at;
}

__device__ __forceinline__ uint32_t walk_y(const struct walk &w, uint32_t index)
{
    uint32_t at = 0, i;
    for (int d = 0; d < w.rank; d++) {
        index = divider_split(w.dim[d], index, &i);
        at += i * w.y[d];
    }
    return at;
}

/* --- sums of all kinds --- */

/* `highest` is for LOG_SUM_EXP: the maximum so far, to which `value` is relative. */
__device__ __forceinline__ float initial_of(int func)
{
    return func == IR_REDUCE_MAX    ? -INFINITY
           : func == IR_REDUCE_MIN  ? INFINITY
           : func == IR_REDUCE_PROD ? 1.0f
                                    : 0.0f;
}

__device__ __forceinline__ float shrink_of(float from, float to)
{
    return from == to ? 1.0f : expf(from - to);
}

__device__ __forceinline__ void fold_exp(float &value, float &highest, float x)
{
    float most = x > highest ? x : highest;
    value *= shrink_of(highest, most);
    highest = most;
    value += x == most ? (x == -INFINITY ? 0.0f : 1.0f) : expf(x - most);
}

/* Takes N values with one branch for all of them. */
template <int N>
__device__ __forceinline__ void fold(int func, float (&value)[N], float (&highest)[N],
                                     const float (&x)[N])
{
#define EACH(expr)                                                                                 \
    _Pragma("unroll") for (int i = 0; i < N; i++)                                                  \
    {                                                                                              \
        expr;                                                                                      \
    }                                                                                              \
    break
    switch (func) {
    case IR_REDUCE_MAX:
        EACH(value[i] = reduce_max()(value[i], x[i]));
    case IR_REDUCE_MIN:
        EACH(value[i] = reduce_min()(value[i], x[i]));
    case IR_REDUCE_PROD:
        EACH(value[i] *= x[i]);
    case IR_REDUCE_L1:
        EACH(value[i] += fabsf(x[i]));
    case IR_REDUCE_L2:
    case IR_REDUCE_SUM_SQUARE:
        EACH(value[i] += x[i] * x[i]);
    case IR_REDUCE_LOG_SUM_EXP:
        EACH(fold_exp(value[i], highest[i], x[i]));
    default:
        EACH(value[i] += x[i]);
    }
#undef EACH
}

/* Combines two partial results into one. */
__device__ __forceinline__ void combine(int func, float &value, float &highest, float value2,
                                        float highest2)
{
    if (func == IR_REDUCE_MAX) {
        value = reduce_max()(value, value2);
    } else if (func == IR_REDUCE_MIN) {
        value = reduce_min()(value, value2);
    } else if (func == IR_REDUCE_PROD) {
        value *= value2;
    } else if (func == IR_REDUCE_LOG_SUM_EXP) {
        float most = highest > highest2 ? highest : highest2;
        value = value * shrink_of(highest, most) + value2 * shrink_of(highest2, most);
        highest = most;
    } else {
        value += value2;
    }
}

__device__ __forceinline__ float finish(int func, float value, float highest, uint32_t count)
{
    switch (func) {
    case IR_REDUCE_MEAN:
        return value / (float)count;
    case IR_REDUCE_L2:
        return sqrtf(value);
    case IR_REDUCE_LOG_SUM:
        return logf(value);
    case IR_REDUCE_LOG_SUM_EXP:
        return value != value ? value : isinf(highest) ? highest : highest + logf(value);
    default:
        return value;
    }
}

__device__ __forceinline__ void combine_warp(int func, float &value, float &highest)
{
#pragma unroll
    for (int offset = KERNEL_WARP / 2; offset > 0; offset /= 2) {
        float value2 = __shfl_xor_sync(0xffffffffu, value, offset);
        float highest2 = __shfl_xor_sync(0xffffffffu, highest, offset);
        combine(func, value, highest, value2, highest2);
    }
}

/* --- kernels --- */

/* Stores one value to y; called by the thread that has it. */
template <class T>
__device__ __forceinline__ void store_one(const struct problem &p, const struct epilogue &epilogue,
                                          uint32_t output, float value)
{
    uint32_t to = walk_y(p.kept, output);
    static_cast<T *>(p.y)[to] =
        number_from<T>(epilogue_apply_one<EPILOGUE_ANY>(epilogue, value, to));
}

/* THREADS: the threads of an output, 32 or the block. V: elements that are read together. */
template <class T, int V, int THREADS>
__global__ void __launch_bounds__(BLOCK)
    rows_kernel(const __grid_constant__ struct problem p,
                const __grid_constant__ struct epilogue epilogue)
{
    KERNEL_SHARED(float, scratch); /* a value and a maximum a warp */
    constexpr int WARPS = BLOCK / KERNEL_WARP;
    int lane = (int)threadIdx.x % KERNEL_WARP, warp = (int)threadIdx.x / KERNEL_WARP;
    uint32_t output = blockIdx.x * (BLOCK / THREADS) + threadIdx.x / THREADS;
    if (output >= p.outputs)
        return;
    const T *x = static_cast<const T *>(p.x) + walk_x(p.kept, output);
    float value[V], highest[V], part[V];
#pragma unroll
    for (int j = 0; j < V; j++) {
        value[j] = initial_of(p.func);
        highest[j] = -INFINITY;
    }
    for (uint32_t i = threadIdx.x % THREADS * V; i < p.count; i += THREADS * V) {
        vector_read<V>(x + i, part);
        fold<V>(p.func, value, highest, part);
    }
#pragma unroll
    for (int j = 1; j < V; j++)
        combine(p.func, value[0], highest[0], value[j], highest[j]);
    combine_warp(p.func, value[0], highest[0]);
    if (THREADS > KERNEL_WARP) {
        if (lane == 0) {
            scratch[warp] = value[0];
            scratch[WARPS + warp] = highest[0];
        }
        __syncthreads();
        for (int w = 1; threadIdx.x == 0 && w < WARPS; w++)
            combine(p.func, value[0], highest[0], scratch[w], scratch[WARPS + w]);
    }
    if (threadIdx.x % THREADS == 0)
        store_one<T>(p, epilogue, output, finish(p.func, value[0], highest[0], p.count));
}

/* `lanes`: threads side by side along the kept dims, a power of two; the other threads of the block
 * split the reduced elements. */
template <class T>
__global__ void __launch_bounds__(BLOCK)
    columns_kernel(const __grid_constant__ struct problem p, int lanes,
                   const __grid_constant__ struct epilogue epilogue)
{
    constexpr int V = 16 / sizeof(T);
    KERNEL_SHARED(float, scratch); /* [values, maxima][V][BLOCK] */
    int lane = (int)threadIdx.x % lanes, split = (int)threadIdx.x / lanes;
    uint32_t output = (blockIdx.x * (uint32_t)lanes + (uint32_t)lane) * V;
    bool inside = output < p.outputs;
    const T *x = static_cast<const T *>(p.x) + (inside ? walk_x(p.kept, output) : 0);
    float value[V], highest[V], part[V];
#pragma unroll
    for (int j = 0; j < V; j++) {
        value[j] = initial_of(p.func);
        highest[j] = -INFINITY;
    }
    uint32_t count = inside ? p.count : 0; /* unrolled: several loads are underway at once */
#pragma unroll 4
    for (uint32_t i = (uint32_t)split; i < count; i += (uint32_t)(BLOCK / lanes)) {
        vector_read<V>(x + walk_x(p.reduced, i), part);
        fold<V>(p.func, value, highest, part);
    }
#pragma unroll
    for (int j = 0; j < V; j++) {
        scratch[j * BLOCK + threadIdx.x] = value[j];
        scratch[(V + j) * BLOCK + threadIdx.x] = highest[j];
    }
    for (int half = BLOCK / 2; half >= lanes; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x >= half)
            continue;
#pragma unroll
        for (int j = 0; j < V; j++) {
            combine(p.func, value[j], highest[j], scratch[j * BLOCK + threadIdx.x + half],
                    scratch[(V + j) * BLOCK + threadIdx.x + half]);
            scratch[j * BLOCK + threadIdx.x] = value[j];
            scratch[(V + j) * BLOCK + threadIdx.x] = highest[j];
        }
    }
    if (split != 0 || !inside)
        return;
#pragma unroll
    for (int j = 0; j < V; j++)
        value[j] = finish(p.func, value[j], highest[j], p.count);
    uint32_t to = walk_y(p.kept, output);
    epilogue_apply<EPILOGUE_ANY, V>(epilogue, value, to);
    vector_write<V>(static_cast<T *>(p.y) + to, value);
}

template <class T>
__global__ void __launch_bounds__(BLOCK)
    general_kernel(const __grid_constant__ struct problem p,
                   const __grid_constant__ struct epilogue epilogue)
{
    uint32_t output = blockIdx.x * (BLOCK / KERNEL_WARP) + threadIdx.x / KERNEL_WARP;
    if (output >= p.outputs)
        return;
    const T *x = static_cast<const T *>(p.x) + walk_x(p.kept, output);
    float value[1] = {initial_of(p.func)}, highest[1] = {-INFINITY}, part[1];
    for (uint32_t i = threadIdx.x % KERNEL_WARP; i < p.count; i += KERNEL_WARP) {
        part[0] = number_float(x[walk_x(p.reduced, i)]);
        fold<1>(p.func, value, highest, part);
    }
    combine_warp(p.func, value[0], highest[0]);
    if (threadIdx.x % KERNEL_WARP == 0)
        store_one<T>(p, epilogue, output, finish(p.func, value[0], highest[0], p.count));
}

/* --- launching --- */

/* Makes a walk over the dims of x for which `pick` has a bit, sorted by the strides of `by` and
 * merged where strides allow. */
void walk_make(const struct kernel_view *x, const struct kernel_view *y,
               const struct kernel_view *by, uint32_t pick, struct walk *w)
{
    int64_t dim[KERNEL_RANK_MAX];
    int order[KERNEL_RANK_MAX], n = 0;
    *w = walk();
    for (int d = 0; d < x->rank; d++) {
        if (!(pick >> d & 1) || x->dim[d] == 1)
            continue;
        int at = n++;
        for (; at > 0 && by->stride[order[at - 1]] > by->stride[d]; at--)
            order[at] = order[at - 1];
        order[at] = d;
    }
    for (int i = 0; i < n; i++) {
        int d = order[i], last = w->rank - 1;
        if (last >= 0 && x->stride[d] == w->x[last] * dim[last] &&
            y->stride[d] == (int64_t)w->y[last] * dim[last]) {
            dim[last] *= x->dim[d];
            continue;
        }
        w->x[w->rank] = x->stride[d];
        w->y[w->rank] = (uint32_t)y->stride[d];
        dim[w->rank++] = x->dim[d];
    }
    for (int i = 0; i < w->rank; i++)
        w->dim[i] = divider_make((uint32_t)dim[i]);
}

/* Whether all strides but the innermost are multiples of n. */
bool strides_fit(const struct walk *w, int from, int n)
{
    bool fit = true;
    for (int d = from; d < w->rank; d++)
        fit = fit && w->x[d] % n == 0 && w->y[d] % (uint32_t)n == 0;
    return fit;
}

template <class T, int V>
cudaError_t launch_rows(const struct kernel_call *call, const struct problem &p,
                        const struct epilogue &e)
{
    if (p.count > 1024)
        return KERNEL_LAUNCH((rows_kernel<T, V, BLOCK>), p.outputs, BLOCK,
                             2 * (BLOCK / KERNEL_WARP) * sizeof(float), call, p, e);
    return KERNEL_LAUNCH((rows_kernel<T, V, KERNEL_WARP>),
                         (unsigned)kernel_ceil_div(p.outputs, BLOCK / KERNEL_WARP), BLOCK, 0, call,
                         p, e);
}

/* Wide enough for whole lines of memory, but with blocks for all multiprocessors. */
int lanes_of(const struct kernel_call *call, uint32_t chunks)
{
    int most = kernel_multiprocessors(call);
    int lanes = 32;
    while (lanes > 4 && kernel_ceil_div(chunks, lanes) < 2 * most)
        lanes /= 2;
    return lanes;
}

template <class T>
cudaError_t launch(const struct kernel_call *call, const struct problem &p,
                   const struct epilogue &e)
{
    constexpr int V = 16 / sizeof(T);
    bool aligned = ((uintptr_t)p.x | (uintptr_t)p.y) % 16 == 0;
    const struct walk &k = p.kept, &r = p.reduced;
    if (r.rank == 0 || (r.rank == 1 && r.x[0] == 1)) {
        bool wide = (uintptr_t)p.x % 16 == 0 && p.count % V == 0;
        for (int d = 0; d < k.rank; d++)
            wide = wide && k.x[d] % V == 0;
        return wide ? launch_rows<T, V>(call, p, e) : launch_rows<T, 1>(call, p, e);
    }
    if (k.rank > 0 && aligned && k.x[0] == 1 && k.y[0] == 1 && k.dim[0].by % V == 0 &&
        strides_fit(&k, 1, V) && strides_fit(&r, 0, V)) {
        int lanes = lanes_of(call, p.outputs / V);
        return KERNEL_LAUNCH(columns_kernel<T>, (unsigned)kernel_ceil_div(p.outputs / V, lanes),
                             BLOCK, 2 * V * BLOCK * sizeof(float), call, p, lanes, e);
    }
    return KERNEL_LAUNCH(general_kernel<T>,
                         (unsigned)kernel_ceil_div(p.outputs, BLOCK / KERNEL_WARP), BLOCK, 0, call,
                         p, e);
}

bool problem_make(enum ir_reduce func, const int32_t *axes, int32_t n_axes,
                  const struct kernel_view *x, const struct kernel_view *y, struct problem *p)
{
    uint32_t reduced = 0;
    for (int i = 0; i < n_axes; i++) {
        if (axes[i] < 0 || axes[i] >= x->rank)
            return false;
        reduced |= 1u << axes[i];
    }
    *p = problem();
    int64_t outputs = 1, count = 1;
    if (func >= IR_REDUCE_COUNT_ || x->rank != y->rank || x->dtype != y->dtype)
        return false;
    for (int d = 0; d < x->rank; d++) {
        bool is_reduced = reduced >> d & 1;
        if (y->dim[d] != (is_reduced ? 1 : x->dim[d]))
            return false;
        *(is_reduced ? &count : &outputs) *= x->dim[d];
    }
    if (count < 1 || count >= INT32_MAX || outputs >= INT32_MAX)
        return false;
    p->x = x->data;
    p->y = y->data;
    p->func = func;
    p->count = (uint32_t)count;
    p->outputs = (uint32_t)outputs;
    struct kernel_view flat = *y; /* reduced dims do not move y */
    for (int d = 0; d < x->rank; d++)
        flat.stride[d] = reduced >> d & 1 ? 0 : y->stride[d];
    walk_make(x, &flat, &flat, ~reduced, &p->kept);
    walk_make(x, &flat, x, reduced, &p->reduced);
    return true;
}

} // namespace

extern "C" cudaError_t kernel_reduce(const struct kernel_call *call, enum ir_reduce func,
                                     const int32_t *axes, int32_t n_axes,
                                     const struct kernel_view *x, const struct kernel_view *y,
                                     const struct kernel_epilogue *epilogue)
{
    struct problem p;
    struct epilogue e;
    if (!problem_make(func, axes, n_axes, x, y, &p) || !epilogue_make(epilogue, y, &e))
        return cudaErrorNotSupported;
    if (p.outputs == 0)
        return cudaSuccess;
    switch (x->dtype) {
    case DTYPE_F16:
        return launch<half_t>(call, p, e);
    case DTYPE_BF16:
        return launch<bf16_t>(call, p, e);
    case DTYPE_F32:
        return launch<float>(call, p, e);
    default:
        return epilogue->n ? cudaErrorNotSupported
                           : kernel_reduce_any(call, func, axes, n_axes, x, y);
    }
}
