/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Max, average and LP pooling.
 *
 *   tile_*_kernel   channels-last, 2x2 and 3x3 windows: a thread makes 8 channels (4 of fp32) of a
 *                   tile of outputs, two wide, so that what windows share is read once and 16 bytes
 *                   at a time. Maxima stay in the tensor's own type, two at a time.
 *   single_kernel   channels-last, any window of up to 3 dims: 8 channels of one output a thread
 *   general_kernel  any strides: one output a thread, in the order of y's memory; all LP pooling
 *
 * Refused: types other than F16, BF16, F32, epilogues that epilogue.cuh refuses.
 */
#include <math.h>

#include "kernels/cuda/epilogue.cuh"

namespace
{

constexpr int THREADS = 128;

/* A batch of images of up to 3 spatial dims; absent ones come first and have one element. */
struct problem {
    const void *x;
    void *y;
    int64_t x_n, x_c, x_s[3]; /* strides */
    uint32_t y_n, y_c, y_s[3];
    int32_t n, c, in[3], out[3];
    int32_t kernel[3], stride[3], dilation[3], pad[3], end[3];
    bool average, count_pad, channels_last;
    float power; /* p of LP pooling; 0: not this */
};

/* The first position of the window of output `o` along dim d. */
__device__ __forceinline__ int first_of(const struct problem &p, int d, int o)
{
    return o * p.stride[d] - p.pad[d];
}

/* The number of positions of the window along a dim that count: those inside of the image, or of
 * its padding. */
__device__ __forceinline__ int counted(const struct problem &p, int d, int first)
{
    int n = 0;
    for (int k = 0; k < p.kernel[d]; k++) {
        int at = first + k * p.dilation[d];
        n += at < p.in[d] + (p.count_pad ? p.end[d] : 0) && (p.count_pad || at >= 0);
    }
    return n;
}

/* 1 / the number of elements in an average; 0 if there are none. */
__device__ __forceinline__ float weight_of(const struct problem &p, const int (&first)[3])
{
    int n = 1;
    for (int d = 0; d < 3; d++)
        n *= counted(p, d, first[d]);
    return n ? 1.0f / (float)n : 0.0f;
}

/* --- maxima of vectors --- */

template <class T> struct chunk {
    static const int size = 16 / sizeof(T);
    vector<T, size> v;
};

__device__ __forceinline__ float max_nan(float a, float b)
{
    return a != a || a > b ? a : b;
}

__device__ __forceinline__ void max_into(struct chunk<float> &a, const struct chunk<float> &b)
{
#pragma unroll
    for (int i = 0; i < chunk<float>::size; i++)
        a.v.v[i] = max_nan(a.v.v[i], b.v.v[i]);
}

__device__ __forceinline__ void max_into(struct chunk<half_t> &a, const struct chunk<half_t> &b)
{
    __half2 *to = reinterpret_cast<__half2 *>(&a);
    const __half2 *from = reinterpret_cast<const __half2 *>(&b);
#pragma unroll
    for (int i = 0; i < 4; i++)
        to[i] = __hmax2_nan(to[i], from[i]);
}

__device__ __forceinline__ void max_into(struct chunk<bf16_t> &a, const struct chunk<bf16_t> &b)
{
    __nv_bfloat162 *to = reinterpret_cast<__nv_bfloat162 *>(&a);
    const __nv_bfloat162 *from = reinterpret_cast<const __nv_bfloat162 *>(&b);
#pragma unroll
    for (int i = 0; i < 4; i++)
        to[i] = __hmax2_nan(to[i], from[i]);
}

template <class T> __device__ __forceinline__ struct chunk<T> chunk_load(const T *from) {
    struct chunk<T> c;
    c.v = vector_load<T, chunk<T>::size>(from);
    return c;
}

/* --- tiles --- */

/* Where a thread's tile is: 8 channels, two columns from `ox` on and some rows from `oy` on. */
struct tile {
    int c, ox, oy;
    bool inside;
};

__device__ __forceinline__ struct tile tile_of(const struct problem &p, struct divider chunks,
                                               int size, int rows)
{
    struct tile t;
    uint32_t c, column = divider_split(chunks, blockIdx.x * THREADS + threadIdx.x, &c);
    t.c = (int)c * size;
    t.ox = (int)column * 2;
    t.oy = (int)blockIdx.y * rows;
    t.inside = t.ox < p.out[2];
    return t;
}

/* Rows and columns outside of the image are read as the nearest ones inside. The launcher sees to
 * it that those belong to the same windows, so no maximum changes. */
template <class T, int K, int S, int ROWS>
__global__ void __launch_bounds__(THREADS) tile_max_kernel(struct problem p, struct divider chunks)
{
    constexpr int WIDE = S + K, HIGH = (ROWS - 1) * S + K;
    struct tile t = tile_of(p, chunks, chunk<T>::size, ROWS);
    if (!t.inside)
        return;
    int x0 = first_of(p, 2, t.ox), y0 = first_of(p, 1, t.oy);
    int64_t column[WIDE];
#pragma unroll
    for (int i = 0; i < WIDE; i++)
        column[i] = (int64_t)min(max(x0 + i, 0), p.in[2] - 1) * p.x_s[2];
    for (int n = (int)blockIdx.z; n < p.n; n += (int)gridDim.z) {
        const T *x = static_cast<const T *>(p.x) + n * p.x_n + t.c;
        struct chunk<T> best[ROWS][2];
#pragma unroll
        for (int r = 0; r < HIGH; r++) {
            const T *row = x + (int64_t)min(max(y0 + r, 0), p.in[1] - 1) * p.x_s[1];
            struct chunk<T> at[WIDE];
#pragma unroll
            for (int i = 0; i < WIDE; i++)
                at[i] = chunk_load(row + column[i]);
#pragma unroll
            for (int o = 0; o < 2; o++) {
                struct chunk<T> most = at[o * S];
#pragma unroll
                for (int k = 1; k < K; k++)
                    max_into(most, at[o * S + k]);
#pragma unroll
                for (int i = 0; i < ROWS; i++)
                    if (r == i * S)
                        best[i][o] = most;
                    else if (r > i * S && r < i * S + K)
                        max_into(best[i][o], most);
            }
        }
        T *y = static_cast<T *>(p.y) + (int64_t)n * p.y_n + t.c;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (int o = 0; o < 2; o++)
                if (t.oy + i < p.out[1] && t.ox + o < p.out[2])
                    vector_store<T, chunk<T>::size>(
                        y + (t.oy + i) * p.y_s[1] + (t.ox + o) * p.y_s[2], best[i][o].v);
    }
}

template <class T, int K, int S, int ROWS>
__global__ void __launch_bounds__(THREADS)
    tile_average_kernel(struct problem p, struct divider chunks)
{
    constexpr int N = chunk<T>::size, WIDE = S + K, HIGH = (ROWS - 1) * S + K;
    struct tile t = tile_of(p, chunks, N, ROWS);
    if (!t.inside)
        return;
    int x0 = first_of(p, 2, t.ox), y0 = first_of(p, 1, t.oy);
    for (int n = (int)blockIdx.z; n < p.n; n += (int)gridDim.z) {
        const T *x = static_cast<const T *>(p.x) + n * p.x_n + t.c;
        float sum[ROWS][2][N] = {};
#pragma unroll
        for (int r = 0; r < HIGH; r++) {
            if (y0 + r < 0 || y0 + r >= p.in[1])
                continue;
#pragma unroll
            for (int i = 0; i < WIDE; i++) {
                if (x0 + i < 0 || x0 + i >= p.in[2])
                    continue;
                float v[N];
                vector_read<N>(x + (y0 + r) * p.x_s[1] + (x0 + i) * p.x_s[2], v);
#pragma unroll
                for (int o = 0; o < ROWS * 2; o++)
                    if (r >= o / 2 * S && r < o / 2 * S + K && i >= o % 2 * S && i < o % 2 * S + K)
#pragma unroll
                        for (int j = 0; j < N; j++)
                            sum[o / 2][o % 2][j] += v[j];
            }
        }
        T *y = static_cast<T *>(p.y) + (int64_t)n * p.y_n + t.c;
#pragma unroll
        for (int o = 0; o < ROWS * 2; o++) {
            int oy = t.oy + o / 2, ox = t.ox + o % 2;
            const int first[3] = {0, y0 + o / 2 * S, x0 + o % 2 * S};
            float weight = weight_of(p, first);
#pragma unroll
            for (int j = 0; j < N; j++)
                sum[o / 2][o % 2][j] *= weight;
            if (oy < p.out[1] && ox < p.out[2])
                vector_write<N>(y + oy * p.y_s[1] + ox * p.y_s[2], sum[o / 2][o % 2]);
        }
    }
}

/* --- any window --- */

/* Computes the N channels of an output whose window begins at `first`. */
template <class T, int N>
__device__ __forceinline__ void window_value(const struct problem &p, const T *x,
                                             const int (&first)[3], float (&v)[N])
{
#pragma unroll
    for (int j = 0; j < N; j++)
        v[j] = p.average || p.power != 0 ? 0.0f : -INFINITY;
    for (int k0 = 0; k0 < p.kernel[0]; k0++) {
        int i0 = first[0] + k0 * p.dilation[0];
        for (int k1 = 0; i0 >= 0 && i0 < p.in[0] && k1 < p.kernel[1]; k1++) {
            int i1 = first[1] + k1 * p.dilation[1];
            for (int k2 = 0; i1 >= 0 && i1 < p.in[1] && k2 < p.kernel[2]; k2++) {
                int i2 = first[2] + k2 * p.dilation[2];
                if (i2 < 0 || i2 >= p.in[2])
                    continue;
                float at[N];
                vector_read<N>(x + i0 * p.x_s[0] + i1 * p.x_s[1] + i2 * p.x_s[2], at);
                if constexpr (N == 1)
                    if (p.power != 0) {
                        v[0] += powf(fabsf(at[0]), p.power);
                        continue;
                    }
#pragma unroll
                for (int j = 0; j < N; j++)
                    v[j] = p.average ? v[j] + at[j] : max_nan(v[j], at[j]);
            }
        }
    }
    if constexpr (N == 1)
        v[0] = p.power != 0 ? powf(v[0], 1 / p.power) : v[0];
    if (!p.average)
        return;
    float weight = weight_of(p, first);
#pragma unroll
    for (int j = 0; j < N; j++)
        v[j] *= weight;
}

struct dims { /* of y, for taking an index apart: innermost first */
    struct divider inner, d2, d1, d0;
};

/* N channels of one output per thread; N = 1 with channels where they are in y's memory. */
template <class T, int N, int MODE>
__global__ void __launch_bounds__(THREADS)
    window_kernel(struct problem p, struct dims dims, uint32_t total,
                  const __grid_constant__ struct epilogue epilogue)
{
    uint32_t at = blockIdx.x * THREADS + threadIdx.x, c, o[3], rest;
    if (at >= total)
        return;
    rest = at;
    if (p.channels_last)
        rest = divider_split(dims.inner, rest, &c);
    rest = divider_split(dims.d2, rest, &o[2]);
    rest = divider_split(dims.d1, rest, &o[1]);
    rest = divider_split(dims.d0, rest, &o[0]);
    if (!p.channels_last)
        rest = divider_split(dims.inner, rest, &c);
    c *= N;
    int first[3];
#pragma unroll
    for (int d = 0; d < 3; d++)
        first[d] = first_of(p, d, (int)o[d]);
    float v[N];
    window_value<T, N>(p, static_cast<const T *>(p.x) + rest * p.x_n + c * p.x_c, first, v);
    uint32_t to = rest * p.y_n + c * p.y_c;
#pragma unroll
    for (int d = 0; d < 3; d++)
        to += o[d] * p.y_s[d];
    epilogue_apply<MODE, N>(epilogue, v, to);
    vector_write<N>(static_cast<T *>(p.y) + to, v);
}

/* --- launching --- */

bool problem_make(enum ir_pool func, float power, bool count_pad, const struct kernel_window *w,
                  const struct kernel_view *x, const struct kernel_view *y, struct problem *p)
{
    int absent = 3 - w->spatial;
    *p = problem();
    if (w->spatial < 1 || w->spatial > 3 || x->rank != w->spatial + 2 || y->rank != x->rank ||
        x->dtype != y->dtype || x->dim[0] != y->dim[0] || x->dim[1] != y->dim[1] ||
        (func == IR_POOL_LP && !(power > 0)))
        return false;
    p->power = func == IR_POOL_LP ? power : 0;
    p->average = func == IR_POOL_AVERAGE;
    p->count_pad = count_pad;
    p->x = x->data;
    p->y = y->data;
    p->x_n = x->stride[0];
    p->x_c = x->stride[1];
    p->y_n = (uint32_t)y->stride[0];
    p->y_c = (uint32_t)y->stride[1];
    p->channels_last = y->stride[1] == 1 && y->dim[1] > 1;
    for (int d = 0; d < 3; d++) {
        int i = d - absent;
        p->in[d] = p->out[d] = p->kernel[d] = p->stride[d] = p->dilation[d] = 1;
        if (i < 0)
            continue;
        if (x->dim[i + 2] > (1 << 30) || w->kernel[i] < 1 || w->stride[i] < 1 ||
            w->dilation[i] < 1 || w->pad[i] < 0 || w->end[i] < 0 ||
            x->dim[i + 2] + w->end[i] > (1 << 30) ||
            (int64_t)w->kernel[i] * w->dilation[i] + y->dim[i + 2] * w->stride[i] > (1 << 30))
            return false;
        p->in[d] = (int32_t)x->dim[i + 2];
        p->out[d] = (int32_t)y->dim[i + 2];
        p->kernel[d] = w->kernel[i];
        p->stride[d] = w->stride[i];
        p->dilation[d] = w->dilation[i];
        p->pad[d] = w->pad[i];
        p->end[d] = w->end[i];
        p->x_s[d] = x->stride[i + 2];
        p->y_s[d] = (uint32_t)y->stride[i + 2];
    }
    if (kernel_elements(y) >= INT32_MAX || x->dim[0] > INT32_MAX || x->dim[1] > INT32_MAX)
        return false;
    p->n = (int32_t)x->dim[0];
    p->c = (int32_t)x->dim[1];
    return true;
}

/* Whether all chunks of channels begin at multiples of their size. */
bool in_chunks(const struct problem *p, int size)
{
    bool fits = p->channels_last && p->x_c == 1 && p->c % size == 0 && p->x_n % size == 0 &&
                p->y_n % (uint32_t)size == 0 && ((uintptr_t)p->x | (uintptr_t)p->y) % 16 == 0;
    for (int d = 0; d < 3; d++)
        fits = fits && p->x_s[d] % size == 0 && p->y_s[d] % (uint32_t)size == 0;
    return fits;
}

/* Whether windows are KxK with steps of S, and each is partly inside of the image. */
bool is_square(const struct problem *p, int k, int s)
{
    bool fits = p->in[0] == 1 && p->kernel[0] == 1 && p->pad[0] == 0 && p->out[0] == 1;
    for (int d = 1; d < 3; d++)
        fits = fits && p->kernel[d] == k && p->stride[d] == s && p->dilation[d] == 1 &&
               p->pad[d] < k && (p->out[d] - 1) * s - p->pad[d] < p->in[d] && p->in[d] > 0;
    return fits;
}

template <class T, class F>
cudaError_t launch_tiles(const struct kernel_call *call, F kernel, const struct problem *p,
                         int rows)
{
    int chunks = p->c / chunk<T>::size;
    int64_t columns = kernel_ceil_div(p->out[2], 2) * chunks;
    dim3 grid((unsigned)kernel_ceil_div(columns, THREADS),
              (unsigned)kernel_ceil_div(p->out[1], rows), (unsigned)(p->n < 65535 ? p->n : 65535));
    if (grid.y > 65535)
        return cudaErrorNotSupported;
    return KERNEL_LAUNCH(kernel, grid, THREADS, 0, call, *p, divider_make((uint32_t)chunks));
}

template <class T, int K, int S>
cudaError_t launch_square(const struct kernel_call *call, const struct problem *p, int rows)
{
    if (p->average)
        return rows == 2 ? launch_tiles<T>(call, tile_average_kernel<T, K, S, 2>, p, rows)
                         : cudaErrorNotSupported;
    return rows == 2 ? launch_tiles<T>(call, tile_max_kernel<T, K, S, 2>, p, rows)
                     : launch_tiles<T>(call, tile_max_kernel<T, K, S, 4>, p, rows);
}

template <class T>
cudaError_t launch_tiled(const struct kernel_call *call, const struct problem *p, int rows)
{
    if (is_square(p, 3, 2))
        return launch_square<T, 3, 2>(call, p, rows);
    if (is_square(p, 2, 2))
        return launch_square<T, 2, 2>(call, p, rows);
    if (is_square(p, 3, 1))
        return launch_square<T, 3, 1>(call, p, rows);
    return cudaErrorNotSupported;
}

template <class T, int N>
cudaError_t launch_windows(const struct kernel_call *call, const struct problem *p,
                           const struct epilogue &e)
{
    struct dims dims = {divider_make((uint32_t)(p->c / N)), divider_make((uint32_t)p->out[2]),
                        divider_make((uint32_t)p->out[1]), divider_make((uint32_t)p->out[0])};
    int64_t total = (int64_t)p->n * (p->c / N) * p->out[0] * p->out[1] * p->out[2];
    dim3 grid((unsigned)kernel_ceil_div(total, THREADS));
    return epilogue_dispatch(e, [&](auto mode) {
        return KERNEL_LAUNCH((window_kernel<T, N, decltype(mode)::value>), grid, THREADS, 0, call,
                             *p, dims, (uint32_t)total, e);
    });
}

template <class T>
cudaError_t launch_any(const struct kernel_call *call, const struct problem *p,
                       const struct epilogue &e)
{
    int32_t variant = call->variant;
    bool chunks = p->power == 0 && in_chunks(p, chunk<T>::size);
    cudaError_t code = cudaErrorNotSupported;
    if (chunks && e.mode == EPILOGUE_NONE && (variant == 0 || variant == KERNEL_POOL_TILE_2))
        code = launch_tiled<T>(call, p, 2);
    if (chunks && e.mode == EPILOGUE_NONE && variant == KERNEL_POOL_TILE_4)
        code = launch_tiled<T>(call, p, 4);
    if (code == cudaErrorNotSupported && chunks && (variant == 0 || variant == KERNEL_POOL_SINGLE))
        code = launch_windows<T, chunk<T>::size>(call, p, e);
    if (code == cudaErrorNotSupported && (variant == 0 || variant == KERNEL_POOL_GENERAL))
        code = launch_windows<T, 1>(call, p, e);
    return code;
}

} // namespace

extern "C" cudaError_t kernel_pool(const struct kernel_call *call, enum ir_pool func, float power,
                                   bool count_include_pad, const struct kernel_window *window,
                                   const struct kernel_view *x, const struct kernel_view *y,
                                   const struct kernel_epilogue *epilogue)
{
    struct problem p;
    struct epilogue e;
    if (!problem_make(func, power, count_include_pad, window, x, y, &p) ||
        !epilogue_make(epilogue, y, &e))
        return cudaErrorNotSupported;
    if (kernel_elements(y) == 0)
        return cudaSuccess;
    switch (x->dtype) {
    case DTYPE_F16:
        return launch_any<half_t>(call, &p, e);
    case DTYPE_BF16:
        return launch_any<bf16_t>(call, &p, e);
    case DTYPE_F32:
        return launch_any<float>(call, &p, e);
    default:
        return cudaErrorNotSupported;
    }
}
