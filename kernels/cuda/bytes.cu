/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real numbers that are stored in 8 bits by a scale: chains of functions over them (kernel_bytes),
 * which also turn them into floats and back, and pooling (kernel_bytes_pool).
 *
 * One thread reads 8 neighbours of each tensor, if all tensors have runs of 8 neighbours in the
 * same order, or stand still along them; else one element. Types are chosen at run time, except
 * where numbers only change their type (bytes_flat). Refused: 64-bit types, more than 2^31
 * elements, more operands than BYTES_OPERANDS.
 */
#include "kernels/cuda/kernels.h"

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/math.cuh"
#include "kernels/cuda/side.cuh"
#include "kernels/cuda/walk.cuh"

enum {
    BYTES_THREADS = 256,
    BYTES_RESIDENT = 8,
    BYTES_WIDE = 8,
    BYTES_FLAT = 16,
    BYTES_OPERANDS = 6,
};

/* --- chains --- */

struct bytes_step {
    int32_t func, operand; /* operand: of the job's tensors; 0: a unary function */
    float alpha, beta, gamma;
};

/* Tensor 0 is y, 1 is x, and operands follow. */
struct bytes_job {
    walk<2 + BYTES_OPERANDS> w;
    bytes_side side[2 + BYTES_OPERANDS];
    bytes_step step[KERNEL_STEPS_MAX];
    int32_t n;
};

template <int N>
static __global__ void __launch_bounds__(BYTES_THREADS)
    bytes_chain(const __grid_constant__ bytes_job j)
{
    for (uint32_t i = blockIdx.x * BYTES_THREADS + threadIdx.x; i < j.w.total;
         i += gridDim.x * BYTES_THREADS) {
        int32_t at[2 + BYTES_OPERANDS];
        int last = j.w.rank - 1;
        float v[N];
        walk_at(j.w, i, at);
        side_load<N>(j.side[1], at[1], j.w.stride[1][last] == 0, v);
        for (int k = 0; k < j.n; k++) {
            const bytes_step &s = j.step[k];
            if (s.operand == 0) {
                math_unary_row<N>(s.func, v, s.alpha, s.beta, s.gamma);
                continue;
            }
            float o[N];
            int32_t from = 0;
            bool repeats = false;
#pragma unroll
            for (int t = 2; t < 2 + BYTES_OPERANDS; t++) /* at[] stays in registers */
                if (t == s.operand) {
                    from = at[t];
                    repeats = j.w.stride[t][last] == 0;
                }
            side_load<N>(j.side[s.operand], from, repeats, o);
            math_binary_row<N>(s.func, v, o);
        }
        side_store<N>(j.side[0], at[0], v);
    }
}

/* Without steps, and with x as dense as y: BYTES_FLAT neighbours a thread, so that enough reads are
 * under way at a time to keep the memory busy. */
template <class TX, class TY>
static __global__ void __launch_bounds__(BYTES_THREADS)
    bytes_flat(const bytes_side x, const bytes_side y, uint32_t total)
{
    uint32_t at = (blockIdx.x * BYTES_THREADS + threadIdx.x) * BYTES_FLAT;
    if (at + BYTES_FLAT <= total) {
        float v[BYTES_FLAT];
        side_read<TX, BYTES_FLAT>(x, (int32_t)at, v);
        side_scale<BYTES_FLAT>(x, v);
        side_write<TY, BYTES_FLAT>(y, (int32_t)at, v);
        return;
    }
    for (; at < total; at++) {
        float v[1];
        side_read<TX, 1>(x, (int32_t)at, v);
        side_scale<1>(x, v);
        side_write<TY, 1>(y, (int32_t)at, v);
    }
}

/* Fills steps and sides; views[k] becomes tensor k. False: a step or an operand too many. */
static bool job_steps(const struct kernel_epilogue *epilogue, const struct kernel_view **views,
                      bytes_job *j)
{
    int used = 2;
    for (int i = 0; epilogue && i < epilogue->n; i++) {
        const struct kernel_step *from = &epilogue->step[i];
        bytes_step to = {from->func, 0, from->alpha, from->beta, from->gamma};
        if (from->binary) {
            if (used == 2 + BYTES_OPERANDS || !side_known(&from->operand))
                return false;
            views[used] = &from->operand;
            j->side[used] = side_of(&from->operand);
            to.operand = used++;
        }
        j->step[j->n++] = to;
    }
    return true;
}

template <int N> static cudaError_t chain_launch(const struct kernel_call *call, const bytes_job &j)
{
    int64_t blocks = kernel_ceil_div(j.w.total, BYTES_THREADS);
    return KERNEL_LAUNCH(bytes_chain<N>, kernel_grid(call, blocks, BYTES_RESIDENT), BYTES_THREADS,
                         0, call, j);
}

template <class TX, class TY>
static cudaError_t flat_launch(const struct kernel_call *call, const bytes_job &j)
{
    int64_t blocks = kernel_ceil_div(j.w.total, (int64_t)BYTES_THREADS * BYTES_FLAT);
    return KERNEL_LAUNCH((bytes_flat<TX, TY>), (unsigned)blocks, BYTES_THREADS, 0, call, j.side[1],
                         j.side[0], j.w.total);
}

template <class TX> static cudaError_t flat_to(const struct kernel_call *call, const bytes_job &j)
{
    switch (j.side[0].type) {
    case DTYPE_U8:
        return flat_launch<TX, uint8_t>(call, j);
    case DTYPE_I8:
        return flat_launch<TX, int8_t>(call, j);
    case DTYPE_F8:
        return flat_launch<TX, f8_t>(call, j);
    case DTYPE_F16:
        return flat_launch<TX, half_t>(call, j);
    case DTYPE_BF16:
        return flat_launch<TX, bf16_t>(call, j);
    default:
        return flat_launch<TX, float>(call, j);
    }
}

static cudaError_t flat_from(const struct kernel_call *call, const bytes_job &j)
{
    switch (j.side[1].type) {
    case DTYPE_U8:
        return flat_to<uint8_t>(call, j);
    case DTYPE_I8:
        return flat_to<int8_t>(call, j);
    case DTYPE_F8:
        return flat_to<f8_t>(call, j);
    case DTYPE_F16:
        return flat_to<half_t>(call, j);
    case DTYPE_BF16:
        return flat_to<bf16_t>(call, j);
    default:
        return flat_to<float>(call, j);
    }
}

static bool is_flat(const bytes_job &j, const struct kernel_view *x, const struct kernel_view *y)
{
    return j.n == 0 && j.w.rank == 1 && j.w.stride[0][0] == 1 && j.w.stride[1][0] == 1 &&
           x->dtype != DTYPE_I32 && (uintptr_t)x->data % 16 == 0 && (uintptr_t)y->data % 16 == 0;
}

cudaError_t kernel_bytes(const struct kernel_call *call, const struct kernel_view *x,
                         const struct kernel_view *y, const struct kernel_epilogue *epilogue)
{
    const int K = 2 + BYTES_OPERANDS;
    bytes_job j = bytes_job();
    const struct kernel_view *views[K] = {y, x, x, x, x, x, x, x}; /* unused ones change nothing */
    j.side[0] = side_of(y);
    j.side[1] = side_of(x);
    bool wide = true;
    if (!side_known(x) || !side_known(y) || y->dtype == DTYPE_I32 ||
        (epilogue && (epilogue->n < 0 || epilogue->n > KERNEL_STEPS_MAX)) ||
        !job_steps(epilogue, views, &j))
        return cudaErrorNotSupported;
    const struct kernel_view *const all[K] = {views[0], views[1], views[2], views[3],
                                              views[4], views[5], views[6], views[7]};
    if (!walk_make(all, &j.w))
        return cudaErrorNotSupported;
    if (j.w.total == 0)
        return cudaSuccess;
    if (is_flat(j, x, y))
        return flat_from(call, j);
    for (int k = 0; k < K; k++)
        wide = wide && walk_is_wide(&j.w, k, BYTES_WIDE, all[k]);
    if (!wide)
        return chain_launch<1>(call, j);
    walk_widen(&j.w, BYTES_WIDE);
    return chain_launch<BYTES_WIDE>(call, j);
}

/* --- pooling --- */

/* Images of up to 3 spatial dims; absent ones come first and have one element. */
struct bytes_pool {
    bytes_side x, y;
    struct divider channels, out[3]; /* by which a thread's number is taken apart */
    uint32_t total;
    int32_t x_n, x_c, x_s[3], y_n, y_c, y_s[3]; /* strides */
    int32_t in[3], kernel[3], stride[3], dilation[3], pad[3], end[3];
    bool average, count_pad;
};

/* Positions along a dim that count: those inside of the image, or of its padding. */
__device__ __forceinline__ int pool_counted(const bytes_pool &p, int d, int first)
{
    int n = 0;
    for (int k = 0; k < p.kernel[d]; k++) {
        int at = first + k * p.dilation[d];
        n += at < p.in[d] + (p.count_pad ? p.end[d] : 0) && (p.count_pad || at >= 0);
    }
    return n;
}

template <int N>
__device__ __forceinline__ void pool_add(const bytes_pool &p, int32_t at, float (&sum)[N])
{
    float v[N];
    side_load<N>(p.x, at, v);
#pragma unroll
    for (int i = 0; i < N; i++)
        sum[i] = p.average ? sum[i] + v[i] : v[i] != v[i] || v[i] > sum[i] ? v[i] : sum[i];
}

template <int N>
static __global__ void __launch_bounds__(BYTES_THREADS)
    bytes_pooling(const __grid_constant__ bytes_pool p)
{
    for (uint32_t i = blockIdx.x * BYTES_THREADS + threadIdx.x; i < p.total;
         i += gridDim.x * BYTES_THREADS) {
        uint32_t c, o[3], n = divider_split(p.channels, i, &c);
        int first[3], count = 1;
        for (int d = 2; d >= 0; d--) {
            n = divider_split(p.out[d], n, &o[d]);
            first[d] = (int)o[d] * p.stride[d] - p.pad[d];
            count *= p.average ? pool_counted(p, d, first[d]) : 1;
        }
        float v[N];
#pragma unroll
        for (int k = 0; k < N; k++)
            v[k] = p.average ? 0.0f : -INFINITY;
        int32_t from = (int32_t)n * p.x_n + (int32_t)c * N * p.x_c;
        for (int a = 0; a < p.kernel[0]; a++)
            for (int b = 0; b < p.kernel[1]; b++)
                for (int e = 0; e < p.kernel[2]; e++) {
                    int at[3] = {first[0] + a * p.dilation[0], first[1] + b * p.dilation[1],
                                 first[2] + e * p.dilation[2]};
                    bool inside = true;
                    int32_t place = from;
                    for (int d = 0; d < 3; d++) {
                        inside = inside && at[d] >= 0 && at[d] < p.in[d];
                        place += at[d] * p.x_s[d];
                    }
                    if (inside)
                        pool_add<N>(p, place, v);
                }
        if (p.average) {
#pragma unroll
            for (int k = 0; k < N; k++)
                v[k] = count ? v[k] / (float)count : 0.0f;
        }
        int32_t to = (int32_t)n * p.y_n + (int32_t)c * N * p.y_c;
        for (int d = 0; d < 3; d++)
            to += (int32_t)o[d] * p.y_s[d];
        side_store<N>(p.y, to, v);
    }
}

/* Fills all but what depends on the channels of a thread. */
static bytes_pool pool_make(bool average, bool count_pad, const struct kernel_window *w,
                            const struct kernel_view *x, const struct kernel_view *y)
{
    bytes_pool p = bytes_pool();
    p.x = side_of(x);
    p.y = side_of(y);
    p.average = average;
    p.count_pad = count_pad;
    p.x_n = (int32_t)x->stride[0];
    p.x_c = (int32_t)x->stride[1];
    p.y_n = (int32_t)y->stride[0];
    p.y_c = (int32_t)y->stride[1];
    for (int d = 0; d < 3; d++) {
        int k = d - (3 - w->spatial);
        p.in[d] = p.kernel[d] = p.stride[d] = p.dilation[d] = 1;
        p.out[d] = divider_make(1);
        if (k < 0)
            continue;
        p.in[d] = (int32_t)x->dim[2 + k];
        p.out[d] = divider_make((uint32_t)y->dim[2 + k]);
        p.x_s[d] = (int32_t)x->stride[2 + k];
        p.y_s[d] = (int32_t)y->stride[2 + k];
        p.kernel[d] = w->kernel[k];
        p.stride[d] = w->stride[k];
        p.dilation[d] = w->dilation[k];
        p.pad[d] = w->pad[k];
        p.end[d] = w->end[k];
    }
    return p;
}

template <int N>
static cudaError_t pool_launch(const struct kernel_call *call, bytes_pool p, int64_t elements,
                               int64_t channels)
{
    p.channels = divider_make((uint32_t)(channels / N));
    p.total = (uint32_t)(elements / N);
    int64_t blocks = kernel_ceil_div(p.total, BYTES_THREADS);
    return KERNEL_LAUNCH(bytes_pooling<N>, kernel_grid(call, blocks, BYTES_RESIDENT), BYTES_THREADS,
                         0, call, p);
}

static bool pool_is_wide(const struct kernel_view *v)
{
    bool wide = v->dim[1] % BYTES_WIDE == 0 && v->stride[1] == 1 && (uintptr_t)v->data % 16 == 0;
    for (int d = 0; d < v->rank; d++)
        wide = wide && (d == 1 || v->stride[d] % BYTES_WIDE == 0);
    return wide;
}

cudaError_t kernel_bytes_pool(const struct kernel_call *call, bool average, bool count_include_pad,
                              const struct kernel_window *window, const struct kernel_view *x,
                              const struct kernel_view *y)
{
    const int64_t limit = INT64_C(1) << 31;
    int64_t n = kernel_elements(y);
    if (!side_known(x) || !side_known(y) || y->dtype == DTYPE_I32 || window->spatial < 1 ||
        window->spatial > 3 || x->rank != window->spatial + 2 || y->rank != x->rank ||
        kernel_span(x) >= limit || kernel_span(y) >= limit)
        return cudaErrorNotSupported;
    if (n == 0)
        return cudaSuccess;
    bytes_pool p = pool_make(average, count_include_pad, window, x, y);
    return pool_is_wide(x) && pool_is_wide(y) ? pool_launch<BYTES_WIDE>(call, p, n, y->dim[1])
                                              : pool_launch<1>(call, p, n, y->dim[1]);
}
