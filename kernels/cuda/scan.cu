/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes along one axis and compares or accumulates: positions of extremes, sums so far, the k
 * largest; and reductions of the types that reduce.cu does not take.
 *
 * Elements of any type are compared as 64-bit keys that are ordered like them, with NaN above all.
 * Floats are added in double, as in the reference. An axis whose elements are not neighbours is
 * gone along by a thread for each of its lines if there are many; else a block has a line.
 *
 * The k largest of a short line are found by sorting it in shared memory. Of a longer one, the key
 * of the k-th is found digit by digit, then (if several elements have this key) the position of the
 * last one that belongs to them, and only these k are sorted.
 */
#include <math.h>

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/reduce.cuh"

namespace
{

constexpr int THREADS = 256, WARPS = THREADS / KERNEL_WARP;
constexpr int TOPK_THREADS = 512, SORTED = 4096, TOPK_MAX = 16384, DIGITS = 256;
constexpr int64_t LIMIT = INT64_C(1) << 31;

struct line {
    int32_t dim, inner;
    uint32_t outer; /* lines: outer * inner */
};

/* The first element of line i. */
__device__ __forceinline__ int64_t line_first(const line &l, uint32_t i)
{
    return (int64_t)(i / (uint32_t)l.inner) * l.dim * l.inner + i % (uint32_t)l.inner;
}

__device__ inline uint64_t key_of(int dtype, const void *x, int64_t i)
{
    const uint64_t sign = UINT64_C(1) << 63;
    if (!number_is_float(dtype)) {
        uint64_t bits = (uint64_t)number_get<int64_t>(dtype, x, i);
        return dtype == DTYPE_U64 ? bits : bits ^ sign;
    }
    double v = number_get<double>(dtype, x, i);
    if (v != v)
        return UINT64_MAX;
    v = v == 0 ? 0 : v; /* -0 is like 0 */
    uint64_t bits;
    memcpy(&bits, &v, sizeof(bits));
    return bits & sign ? ~bits : bits | sign;
}

/* --- positions of extremes --- */

struct best {
    uint64_t key;
    int64_t at;
};

/* The first NaN wins either way. */
__device__ __forceinline__ best best_of(bool min, int dtype, const void *x, int64_t i, int64_t at)
{
    uint64_t key = key_of(dtype, x, i);
    bool nan = number_is_float(dtype) && key == UINT64_MAX;
    return {min && !nan ? ~key : key, at};
}

__device__ __forceinline__ best better(best a, best b, bool last)
{
    bool second = a.key != b.key ? b.key > a.key : last ? b.at > a.at : b.at < a.at;
    return second ? b : a;
}

/* A thread a line. */
__global__ void __launch_bounds__(THREADS)
    arg_lines(bool min, bool last, int dtype, const void *x, int64_t *y, line l)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= l.outer * (uint32_t)l.inner)
        return;
    int64_t first = line_first(l, i);
    best found = best_of(min, dtype, x, first, 0);
    for (int d = 1; d < l.dim; d++)
        found = better(found, best_of(min, dtype, x, first + (int64_t)d * l.inner, d), last);
    y[i] = found.at;
}

/* A block a line; blockDim.x threads. */
__global__ void __launch_bounds__(THREADS)
    arg_block(bool min, bool last, int dtype, const void *x, int64_t *y, line l)
{
    __shared__ best of_warp[WARPS];
    int thread = (int)threadIdx.x, warps = (int)blockDim.x / KERNEL_WARP;
    int64_t first = line_first(l, blockIdx.x);
    best found = best_of(min, dtype, x, first, 0); /* every thread begins with the first one */
    for (int d = thread; d < l.dim; d += (int)blockDim.x)
        found = better(found, best_of(min, dtype, x, first + (int64_t)d * l.inner, d), last);
    for (int offset = KERNEL_WARP / 2; offset > 0; offset /= 2) {
        best other = {__shfl_xor_sync(0xffffffffu, found.key, offset),
                      __shfl_xor_sync(0xffffffffu, found.at, offset)};
        found = better(found, other, last);
    }
    if (thread % KERNEL_WARP == 0)
        of_warp[thread / KERNEL_WARP] = found;
    __syncthreads();
    for (int w = 0; w < warps && thread == 0; w++)
        found = better(found, of_warp[w], last);
    if (thread == 0)
        y[blockIdx.x] = found.at;
}

/* --- sums so far: A is double, or int64 for all integers --- */

/* Signed numbers must not overflow in C++. */
__device__ __forceinline__ double add(double a, double b)
{
    return a + b;
}
__device__ __forceinline__ int64_t add(int64_t a, int64_t b)
{
    return (int64_t)((uint64_t)a + (uint64_t)b);
}

template <class A>
__global__ void __launch_bounds__(THREADS)
    sum_lines(bool exclusive, bool reverse, int dtype, const void *x, void *y, line l)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= l.outer * (uint32_t)l.inner)
        return;
    int64_t first = line_first(l, i);
    A sum = 0;
    for (int d = 0; d < l.dim; d++) {
        int64_t at = first + (int64_t)(reverse ? l.dim - 1 - d : d) * l.inner;
        A before = sum;
        sum = add(sum, number_get<A>(dtype, x, at));
        number_put<A>(dtype, y, at, exclusive ? before : sum);
    }
}

template <class A>
__global__ void __launch_bounds__(THREADS)
    sum_block(bool exclusive, bool reverse, int dtype, const void *x, void *y, line l)
{
    __shared__ A of_warp[2][WARPS];
    int lane = (int)threadIdx.x % KERNEL_WARP, warp = (int)threadIdx.x / KERNEL_WARP, turn = 0;
    int64_t first = line_first(l, blockIdx.x);
    A carry = 0;
    for (int base = 0; base < l.dim; base += THREADS, turn ^= 1) {
        int d = base + (int)threadIdx.x;
        int64_t at = first + (int64_t)(reverse ? l.dim - 1 - d : d) * l.inner;
        A own = d < l.dim ? number_get<A>(dtype, x, at) : 0, sum = own, before = carry;
        for (int offset = 1; offset < KERNEL_WARP; offset *= 2) {
            A other = __shfl_up_sync(0xffffffffu, sum, (unsigned)offset);
            sum = lane >= offset ? add(other, sum) : sum;
        }
        if (lane == KERNEL_WARP - 1)
            of_warp[turn][warp] = sum;
        __syncthreads();
        for (int w = 0; w < WARPS; w++) {
            before = w < warp ? add(before, of_warp[turn][w]) : before;
            carry = add(carry, of_warp[turn][w]);
        }
        A up = __shfl_up_sync(0xffffffffu, sum, 1u);
        A without = lane > 0 ? add(before, up) : before;
        if (d < l.dim)
            number_put<A>(dtype, y, at, exclusive ? without : add(before, sum));
    }
}

/* --- the k largest --- */

struct topk {
    int32_t k, room; /* room: of the arrays in shared memory, a power of 2 */
    int32_t dtype, size;
    bool largest;
    const void *x;
    void *values;
    int64_t *indices;
    line l;
};

__device__ __forceinline__ uint64_t topk_key(const topk &t, int64_t first, int at)
{
    uint64_t key = key_of(t.dtype, t.x, first + (int64_t)at * t.l.inner);
    return t.largest ? key : ~key;
}

/* Sorts by falling keys, then by rising positions. */
__device__ void topk_sort(uint64_t *keys, int32_t *at, int room)
{
    for (int size = 2; size <= room; size *= 2)
        for (int stride = size / 2; stride > 0; stride /= 2) {
            __syncthreads();
            for (int i = (int)threadIdx.x; i < room / 2; i += TOPK_THREADS) {
                int a = 2 * i - (i & (stride - 1)), b = a + stride;
                bool before = keys[b] != keys[a] ? keys[b] > keys[a] : at[b] < at[a];
                if (before == ((a & size) == 0)) {
                    uint64_t key = keys[a];
                    int32_t position = at[a];
                    keys[a] = keys[b], at[a] = at[b];
                    keys[b] = key, at[b] = position;
                }
            }
        }
    __syncthreads();
}

/* What of the line still counts while digits are chosen: keys (or positions of the elements with
 * key `equal`) that agree with `prefix` where `mask` has ones. */
struct choice {
    uint64_t prefix, mask, equal;
    int32_t left; /* how many more are to be taken */
};

/* Chooses the next digit, the highest (of positions: the lowest) with which enough are taken. */
__device__ void choose_digit(const topk &t, int64_t first, bool positions, int shift,
                             uint32_t *hist, choice *c)
{
    for (int i = (int)threadIdx.x; i < DIGITS; i += TOPK_THREADS)
        hist[i] = 0;
    __syncthreads();
    for (int d = (int)threadIdx.x; d < t.l.dim; d += TOPK_THREADS) {
        uint64_t key = topk_key(t, first, d), number = positions ? (uint64_t)d : key;
        if ((!positions || key == c->equal) && (number & c->mask) == c->prefix)
            atomicAdd(&hist[number >> shift & (DIGITS - 1)], 1u);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        int digit = positions ? 0 : DIGITS - 1;
        for (; hist[digit] < (uint32_t)c->left; digit += positions ? 1 : -1)
            c->left -= (int32_t)hist[digit];
        c->prefix |= (uint64_t)digit << shift;
        c->mask |= (uint64_t)(DIGITS - 1) << shift;
    }
    __syncthreads();
}

/* Puts the k elements of a long line into the arrays, in any order. */
__device__ void topk_select(const topk &t, int64_t first, uint64_t *keys, int32_t *at)
{
    __shared__ uint32_t hist[DIGITS];
    __shared__ choice c;
    __shared__ uint32_t taken;
    if (threadIdx.x == 0) {
        c = {0, 0, 0, t.k};
        taken = 0;
    }
    __syncthreads();
    for (int shift = 56; shift >= 0; shift -= 8)
        choose_digit(t, first, false, shift, hist, &c);
    if (threadIdx.x == 0)
        c = {0, 0, c.prefix, c.left};
    __syncthreads();
    for (int shift = 24; shift >= 0; shift -= 8)
        choose_digit(t, first, true, shift, hist, &c);
    for (int d = (int)threadIdx.x; d < t.l.dim; d += TOPK_THREADS) {
        uint64_t key = topk_key(t, first, d);
        if (key > c.equal || (key == c.equal && (uint64_t)d <= c.prefix)) {
            uint32_t to = atomicAdd(&taken, 1u);
            keys[to] = key;
            at[to] = d;
        }
    }
}

__device__ __forceinline__ void copy_element(int size, const void *x, int64_t from, void *y,
                                             int64_t to)
{
    if (size == 8)
        static_cast<uint2 *>(y)[to] = static_cast<const uint2 *>(x)[from];
    else if (size == 4)
        static_cast<uint32_t *>(y)[to] = static_cast<const uint32_t *>(x)[from];
    else if (size == 2)
        static_cast<uint16_t *>(y)[to] = static_cast<const uint16_t *>(x)[from];
    else
        static_cast<uint8_t *>(y)[to] = static_cast<const uint8_t *>(x)[from];
}

__global__ void __launch_bounds__(TOPK_THREADS) topk_line(const __grid_constant__ topk t)
{
    KERNEL_SHARED(uint64_t, keys);
    int32_t *at = reinterpret_cast<int32_t *>(keys + t.room);
    int64_t first = line_first(t.l, blockIdx.x);
    bool whole = t.l.dim <= t.room;
    for (int i = (int)threadIdx.x; i < t.room; i += TOPK_THREADS) {
        bool real = whole && i < t.l.dim;
        keys[i] = real ? topk_key(t, first, i) : 0;
        at[i] = real ? i : INT32_MAX; /* behind all others */
    }
    __syncthreads();
    if (!whole)
        topk_select(t, first, keys, at);
    topk_sort(keys, at, t.room);
    int64_t to = (int64_t)(blockIdx.x / (uint32_t)t.l.inner) * t.k * t.l.inner +
                 blockIdx.x % (uint32_t)t.l.inner;
    for (int i = (int)threadIdx.x; i < t.k; i += TOPK_THREADS) {
        int64_t put = to + (int64_t)i * t.l.inner;
        t.indices[put] = at[i];
        copy_element(t.size, t.x, first + (int64_t)at[i] * t.l.inner, t.values, put);
    }
}

/* --- reductions of any type: a warp an output --- */

struct any_reduce {
    int32_t func, x_type, y_type;
    const void *x;
    void *y;
    uint32_t outputs, count;
    int32_t kept, reduced; /* numbers of dims, innermost first */
    struct divider kept_dim[KERNEL_RANK_MAX], reduced_dim[KERNEL_RANK_MAX];
    int64_t kept_x[KERNEL_RANK_MAX], kept_y[KERNEL_RANK_MAX], reduced_x[KERNEL_RANK_MAX];
};

__device__ __forceinline__ int64_t reduced_at(const any_reduce &r, int64_t first, uint32_t i)
{
    uint32_t index;
    for (int d = 0; d < r.reduced; d++) {
        i = divider_split(r.reduced_dim[d], i, &index);
        first += index * r.reduced_x[d];
    }
    return first;
}

__device__ inline double fold_double(int func, double a, double b)
{
    return func == IR_REDUCE_MAX    ? reduce_max()(a, b)
           : func == IR_REDUCE_MIN  ? reduce_min()(a, b)
           : func == IR_REDUCE_PROD ? a * b
                                    : a + b;
}

__device__ inline double reduce_double(const any_reduce &r, int64_t first, int lane)
{
    int func = r.func == IR_REDUCE_LOG_SUM_EXP ? IR_REDUCE_MAX : r.func;
    double highest = 0, value = 0;
    for (int pass = func != r.func ? 0 : 1; pass < 2; pass++) {
        value = func == IR_REDUCE_MAX    ? -INFINITY
                : func == IR_REDUCE_MIN  ? INFINITY
                : func == IR_REDUCE_PROD ? 1
                                         : 0;
        for (uint32_t i = (uint32_t)lane; i < r.count; i += KERNEL_WARP) {
            double x = number_get<double>(r.x_type, r.x, reduced_at(r, first, i));
            x = func == IR_REDUCE_L1                                   ? fabs(x)
                : func == IR_REDUCE_L2 || func == IR_REDUCE_SUM_SQUARE ? x * x
                : func == IR_REDUCE_LOG_SUM_EXP ? (x == highest ? 1.0 : exp(x - highest))
                                                : x;
            value = fold_double(func, value, x);
        }
        value = reduce_warp(value, [&](double a, double b) { return fold_double(func, a, b); });
        if (pass == 0) {
            highest = value;
            func = IR_REDUCE_LOG_SUM_EXP;
        }
    }
    if (func == IR_REDUCE_LOG_SUM_EXP)
        return isinf(highest) || highest != highest ? highest : highest + log(value);
    return func == IR_REDUCE_MEAN      ? value / r.count
           : func == IR_REDUCE_L2      ? sqrt(value)
           : func == IR_REDUCE_LOG_SUM ? log(value)
                                       : value;
}

__device__ inline uint64_t fold_int(const any_reduce &r, uint64_t a, uint64_t b)
{
    bool above = r.x_type == DTYPE_U64 ? b > a : (int64_t)b > (int64_t)a;
    return r.func == IR_REDUCE_MAX    ? (above ? b : a)
           : r.func == IR_REDUCE_MIN  ? (above ? a : b)
           : r.func == IR_REDUCE_PROD ? a * b
                                      : a + b;
}

__device__ inline uint64_t reduce_int(const any_reduce &r, int64_t first, int lane)
{
    bool extreme = r.func == IR_REDUCE_MAX || r.func == IR_REDUCE_MIN;
    uint64_t value =
        extreme ? (uint64_t)number_get<int64_t>(r.x_type, r.x, first) : r.func == IR_REDUCE_PROD;
    for (uint32_t i = (uint32_t)lane; i < r.count; i += KERNEL_WARP) {
        int64_t x = number_get<int64_t>(r.x_type, r.x, reduced_at(r, first, i));
        uint64_t part = (uint64_t)x;
        if (r.func == IR_REDUCE_SUM_SQUARE)
            part *= part;
        if (r.func == IR_REDUCE_L1 && x < 0 && r.x_type != DTYPE_U64)
            part = 0 - part;
        value = fold_int(r, value, part);
    }
    return reduce_warp(value, [&](uint64_t a, uint64_t b) { return fold_int(r, a, b); });
}

__host__ __device__ inline bool in_int64(int func, int dtype)
{
    return !number_is_float(dtype) && func != IR_REDUCE_MEAN && func != IR_REDUCE_L2 &&
           func != IR_REDUCE_LOG_SUM && func != IR_REDUCE_LOG_SUM_EXP;
}

__global__ void __launch_bounds__(THREADS) reduce_any(const __grid_constant__ any_reduce r)
{
    uint32_t output = blockIdx.x * WARPS + threadIdx.x / KERNEL_WARP, rest = output, index;
    int lane = (int)threadIdx.x % KERNEL_WARP;
    if (output >= r.outputs)
        return;
    int64_t first = 0, to = 0;
    for (int d = 0; d < r.kept; d++) {
        rest = divider_split(r.kept_dim[d], rest, &index);
        first += index * r.kept_x[d];
        to += index * r.kept_y[d];
    }
    if (in_int64(r.func, r.x_type)) {
        int64_t value = (int64_t)reduce_int(r, first, lane);
        if (lane == 0)
            number_put<int64_t>(r.y_type, r.y, to, value);
    } else {
        double value = reduce_double(r, first, lane);
        if (lane == 0)
            number_put<double>(r.y_type, r.y, to, value);
    }
}

/* --- launching --- */

/* False: too large, or there is nothing to go along. */
bool line_make(const struct kernel_axis *axis, line *out)
{
    if (axis->dim < 1 || axis->dim >= LIMIT || axis->inner < 1 || axis->inner >= LIMIT ||
        axis->outer * axis->inner >= LIMIT || axis->outer * axis->inner * axis->dim >= LIMIT)
        return false;
    *out = {(int32_t)axis->dim, (int32_t)axis->inner, (uint32_t)axis->outer};
    return true;
}

/* Whether each line is better gone along by one thread: lines are neighbours, or short. */
bool by_thread(const struct kernel_axis *axis)
{
    return axis->dim <= 16 || (axis->inner >= 8 && axis->outer * axis->inner >= 4096);
}

unsigned blocks_for(int64_t n)
{
    return (unsigned)kernel_ceil_div(n, THREADS);
}

int power_of_2(int64_t n)
{
    int power = 1;
    while (power < n)
        power *= 2;
    return power;
}

} // namespace

cudaError_t kernel_arg_reduce(const struct kernel_call *call, const struct kernel_axis *axis,
                              bool min, bool last, int32_t dtype, const void *x, int64_t *y)
{
    line l;
    if (!line_make(axis, &l) || number_size(dtype) == 0)
        return cudaErrorNotSupported;
    int64_t lines = axis->outer * axis->inner;
    if (by_thread(axis))
        return KERNEL_LAUNCH(arg_lines, blocks_for(lines), THREADS, 0, call, min, last, dtype, x, y,
                             l);
    return KERNEL_LAUNCH(arg_block, (unsigned)lines, axis->dim <= 128 ? KERNEL_WARP : THREADS, 0,
                         call, min, last, dtype, x, y, l);
}

cudaError_t kernel_cumsum(const struct kernel_call *call, const struct kernel_axis *axis,
                          bool exclusive, bool reverse, int32_t dtype, const void *x, void *y)
{
    line l;
    if (!line_make(axis, &l) || number_size(dtype) == 0)
        return cudaErrorNotSupported;
    int64_t lines = axis->outer * axis->inner;
    bool floats = number_is_float(dtype);
    if (by_thread(axis))
        return floats ? KERNEL_LAUNCH(sum_lines<double>, blocks_for(lines), THREADS, 0, call,
                                      exclusive, reverse, dtype, x, y, l)
                      : KERNEL_LAUNCH(sum_lines<int64_t>, blocks_for(lines), THREADS, 0, call,
                                      exclusive, reverse, dtype, x, y, l);
    return floats ? KERNEL_LAUNCH(sum_block<double>, (unsigned)lines, THREADS, 0, call, exclusive,
                                  reverse, dtype, x, y, l)
                  : KERNEL_LAUNCH(sum_block<int64_t>, (unsigned)lines, THREADS, 0, call, exclusive,
                                  reverse, dtype, x, y, l);
}

cudaError_t kernel_topk(const struct kernel_call *call, const struct kernel_axis *axis, int64_t k,
                        bool largest, int32_t dtype, const void *x, void *values, int64_t *indices)
{
    topk t = topk();
    if (!line_make(axis, &t.l) || number_size(dtype) == 0 || k > axis->dim || k > TOPK_MAX)
        return cudaErrorNotSupported;
    if (k == 0)
        return cudaSuccess;
    t.k = (int32_t)k;
    t.room = power_of_2(axis->dim <= SORTED ? axis->dim : k);
    t.dtype = dtype;
    t.size = number_size(dtype);
    t.largest = largest;
    t.x = x;
    t.values = values;
    t.indices = indices;
    return KERNEL_LAUNCH(topk_line, (unsigned)(axis->outer * axis->inner), TOPK_THREADS,
                         (size_t)t.room * (sizeof(uint64_t) + sizeof(int32_t)), call, t);
}

cudaError_t kernel_reduce_any(const struct kernel_call *call, enum ir_reduce func,
                              const int32_t *axes, int32_t n_axes, const struct kernel_view *x,
                              const struct kernel_view *y)
{
    any_reduce r = any_reduce();
    uint32_t gone = 0;
    int64_t outputs = 1, count = 1;
    for (int i = 0; i < n_axes; i++)
        gone |= 1u << axes[i];
    for (int d = x->rank - 1; d >= 0; d--) {
        struct divider dim = divider_make((uint32_t)x->dim[d]);
        if (gone >> d & 1) {
            count *= x->dim[d];
            r.reduced_dim[r.reduced] = dim;
            r.reduced_x[r.reduced++] = x->stride[d];
        } else {
            outputs *= x->dim[d];
            r.kept_dim[r.kept] = dim;
            r.kept_x[r.kept] = x->stride[d];
            r.kept_y[r.kept++] = y->stride[d];
        }
    }
    if (number_size(x->dtype) == 0 || count < 1 || kernel_span(x) >= LIMIT || outputs >= LIMIT ||
        count >= LIMIT)
        return cudaErrorNotSupported;
    r.func = (int32_t)func;
    r.x_type = x->dtype;
    r.y_type = y->dtype;
    r.x = x->data;
    r.y = y->data;
    r.outputs = (uint32_t)outputs;
    r.count = (uint32_t)count;
    return KERNEL_LAUNCH(reduce_any, (unsigned)kernel_ceil_div(outputs, WARPS), THREADS, 0, call,
                         r);
}
