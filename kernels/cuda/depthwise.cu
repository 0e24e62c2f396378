/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Depthwise convolution over channels-last images.
 *
 * The kernels only wait for memory: there are 9 or 25 multiplications for each element read and
 * written. A thread takes 16 bytes of channels of TILE output columns in one row, so that inputs
 * shared by neighbouring columns are in registers. A block is a patch of columns and rows of at
 * most 128 bytes of channels, so that inputs shared by neighbouring rows are in L1. 3x3 and 5x5
 * with stride 1 and 2, and 7x7 with stride 1, are compiled with their loops unrolled; other windows
 * run one column per thread.
 *
 * Bytes and the time they take at 4.2 TB/s, fp16, 32 images (x read and y written once):
 *
 *   MobileNet v2      C    side  stride    MB     us   |    C   side  stride    MB     us
 *                    32    112      1     51.4   12.2  |   384    14      1      9.6    2.3
 *                    96    112      2     96.3   22.9  |   576    14      1     14.5    3.4
 *                   144     56      1     57.8   13.8  |   576    14      2      9.0    2.1
 *                   144     56      2     36.1    8.6  |   960     7      1      6.0    1.4
 *                   192     28      1     19.3    4.6  |
 *                   192     28      2     12.0    2.9  |   whole network: 17 layers, about 85 us
 *
 * Arithmetic for the first of them: 12.8 million outputs x 9 = 0.12 G fused multiply-adds, 4 us of
 * the device's fp32 rate, and as many instructions again for conversions and addresses.
 *
 * Refused: channels that are not innermost, more than 2^31 elements, x and y of different types.
 *
 * kernel_conv_direct is the last resort for every convolution, transposed or not: one thread per
 * output, one product at a time, any strides. It is right, and slow.
 */
#include "kernels/cuda/depthwise.cuh"
#include "kernels/cuda/epilogue.cuh"

namespace
{

enum depthwise_mode { MODE_RANGE, MODE_ANY }; /* y is clipped to [low, high], or anything at all */

/* --- kernels --- */

template <int MODE, int V>
__device__ __forceinline__ void finish(const struct geometry &g, const struct epilogue &e,
                                       float (&v)[V], int at)
{
    if (MODE == MODE_RANGE) {
#pragma unroll
        for (int i = 0; i < V; i++) {
            v[i] = v[i] < g.low ? g.low : v[i];
            v[i] = v[i] > g.high ? g.high : v[i];
        }
    } else {
        epilogue_apply<EPILOGUE_ANY, V>(e, v, (uint32_t)at);
    }
}

template <int V>
__device__ __forceinline__ void load_bias(const float *bias, int channel, float (&v)[V])
{
#pragma unroll
    for (int i = 0; i < V; i++)
        v[i] = bias ? bias[channel + i] : 0.0f;
}

template <class T, int V, int K, int S, int TILE, int MODE>
__global__ void __launch_bounds__(THREADS)
    depthwise_tile(const __grid_constant__ struct geometry g, const T *__restrict__ x,
                   const T *__restrict__ weights, const float *__restrict__ bias, T *y,
                   const __grid_constant__ struct epilogue e)
{
    const int INPUTS = (TILE - 1) * S + K; /* columns of a row that the tile reads */
    struct place p;
    if (!find_place<V, TILE>(g, &p))
        return;
    float acc[TILE][V];
#pragma unroll
    for (int t = 0; t < TILE; t++)
        load_bias<V>(bias, p.channel, acc[t]);
    int first_row = p.row * S - g.pad[0], first = p.column * S - g.pad[1];
    const T *from = x + p.image * g.x[0] + p.channel;
    constexpr int ROWS = K <= 5 ? K : 1; /* rows of 7 are code enough for one turn of a loop */
#pragma unroll ROWS
    for (int r = 0; r < K; r++) {
        int row = first_row + r;
        if ((unsigned)row >= (unsigned)g.height)
            continue;
        vector<T, V> raw[INPUTS];
        float w[K][V];
#pragma unroll
        for (int i = 0; i < INPUTS; i++) {
            raw[i] = vector<T, V>();
            /* By vector_load it would take half as many registers again for 7x7. */
            if ((unsigned)(first + i) < (unsigned)g.width)
                raw[i] = *reinterpret_cast<const vector<T, V> *>(from + row * g.x[1] +
                                                                 (first + i) * g.x[2]);
        }
#pragma unroll
        for (int k = 0; k < K; k++)
            vector_read<V>(weights + (r * K + k) * g.channels + p.channel, w[k]);
#pragma unroll
        for (int i = 0; i < INPUTS; i++)
#pragma unroll
            for (int c = 0; c < V; c++) {
                float value = number_float(raw[i].v[c]);
#pragma unroll
                for (int t = 0; t < TILE; t++)
                    if (i - t * S >= 0 && i - t * S < K)
                        acc[t][c] += value * w[i - t * S][c];
            }
    }
    int at = p.image * g.y[0] + p.row * g.y[1] + p.column * g.y[2] + p.channel;
    if constexpr (MODE == MODE_ANY) {
#pragma unroll 1
        for (int t = 0; t < TILE && p.column + t < g.out_width; t++) {
            float v[V];
            vector_pick(acc, t, v);
            finish<MODE, V>(g, e, v, at + t * g.y[2]);
            vector_write<V>(y + at + t * g.y[2], v);
        }
        return;
    }
#pragma unroll
    for (int t = 0; t < TILE; t++) {
        if (p.column + t >= g.out_width)
            break;
        finish<MODE, V>(g, e, acc[t], at + t * g.y[2]);
        vector_write<V>(y + at + t * g.y[2], acc[t]);
    }
}

template <class T, int V, int MODE>
__global__ void __launch_bounds__(THREADS)
    depthwise_any(const __grid_constant__ struct geometry g, const T *__restrict__ x,
                  const T *__restrict__ weights, const float *__restrict__ bias, T *y,
                  const __grid_constant__ struct epilogue e)
{
    struct place p;
    if (!find_place<V, 1>(g, &p))
        return;
    float acc[V];
    load_bias<V>(bias, p.channel, acc);
    int first_row = p.row * g.stride[0] - g.pad[0], first = p.column * g.stride[1] - g.pad[1];
    const T *from = x + p.image * g.x[0] + p.channel;
    for (int r = 0; r < g.kernel[0]; r++) {
        int row = first_row + r * g.dilation[0];
        if ((unsigned)row >= (unsigned)g.height)
            continue;
        for (int k = 0; k < g.kernel[1]; k++) {
            int column = first + k * g.dilation[1];
            if ((unsigned)column >= (unsigned)g.width)
                continue;
            float value[V], w[V];
            vector_read<V>(from + row * g.x[1] + column * g.x[2], value);
            vector_read<V>(weights + (r * g.kernel[1] + k) * g.channels + p.channel, w);
#pragma unroll
            for (int c = 0; c < V; c++)
                acc[c] += value[c] * w[c];
        }
    }
    int at = p.image * g.y[0] + p.row * g.y[1] + p.column * g.y[2] + p.channel;
    finish<MODE, V>(g, e, acc, at);
    vector_write<V>(y + at, acc);
}

/* --- launching --- */

struct job {
    const struct kernel_call *call;
    struct geometry g;
    struct epilogue e;
    const void *x, *weights;
    const float *bias;
    void *y;
};

/* A thread has 16 bytes of channels, or one of them. */
int threads_wanted(int vector)
{
    return vector == 1 ? KERNEL_WARP : LINE_BYTES / 16;
}

template <class T, int V, int K, int S, int TILE, int MODE> cudaError_t launch_tile(struct job *j)
{
    struct shape_of_launch s;
    if (!plan_launch(&j->g, V, TILE, threads_wanted(V), &s))
        return cudaErrorNotSupported;
    return KERNEL_LAUNCH((depthwise_tile<T, V, K, S, TILE, MODE>), s.grid, s.block, 0, j->call,
                         j->g, static_cast<const T *>(j->x), static_cast<const T *>(j->weights),
                         j->bias, static_cast<T *>(j->y), j->e);
}

template <class T, int V, int MODE> cudaError_t launch_any(struct job *j)
{
    struct shape_of_launch s;
    if (!plan_launch(&j->g, V, 1, threads_wanted(V), &s))
        return cudaErrorNotSupported;
    return KERNEL_LAUNCH((depthwise_any<T, V, MODE>), s.grid, s.block, 0, j->call, j->g,
                         static_cast<const T *>(j->x), static_cast<const T *>(j->weights), j->bias,
                         static_cast<T *>(j->y), j->e);
}

/* Four columns per thread fill the device only if there are enough columns. */
bool is_wide(const struct job *j, int vector)
{
    if (j->call->variant == 1 || j->call->variant == 2)
        return j->call->variant == 1;
    int64_t threads =
        (int64_t)j->g.images * j->g.out_height * (j->g.out_width / 4) * (j->g.channels / vector);
    int processors = kernel_multiprocessors(j->call);
    return threads >= (int64_t)processors * 2 * THREADS;
}

/* Columns take turns at an epilogue of any kind, so a thread has only two of them. */
template <class T, int V, int K, int S, int MODE> cudaError_t launch_columns(struct job *j)
{
    if constexpr (MODE == MODE_RANGE)
        if (is_wide(j, V))
            return launch_tile<T, V, K, S, 4, MODE>(j);
    return launch_tile<T, V, K, S, 2, MODE>(j);
}

template <class T, int V, int MODE> cudaError_t launch_window(struct job *j)
{
    const struct geometry *g = &j->g;
    int k = g->kernel[0], s = g->stride[0];
    bool known = g->kernel[1] == k && g->stride[1] == s && g->dilation[0] == 1 &&
                 g->dilation[1] == 1 &&
                 (((k == 3 || k == 5) && (s == 1 || s == 2)) || (k == 7 && s == 1));
    if (!known || j->call->variant == 3)
        return launch_any<T, V, MODE>(j);
    if (k == 7)
        return launch_columns<T, V, 7, 1, MODE>(j);
    if (k == 3)
        return s == 1 ? launch_columns<T, V, 3, 1, MODE>(j) : launch_columns<T, V, 3, 2, MODE>(j);
    return s == 1 ? launch_columns<T, V, 5, 1, MODE>(j) : launch_columns<T, V, 5, 2, MODE>(j);
}

/* Takes 16 bytes of channels at a time, if all addresses allow it. */
template <class T, int MODE> cudaError_t launch_vectors(struct job *j)
{
    const int V = 16 / sizeof(T);
    const struct geometry *g = &j->g;
    bool fits =
        g->channels % V == 0 && is_aligned(j->x) && is_aligned(j->y) && is_aligned(j->weights);
    for (int i = 0; i < 3; i++)
        fits = fits && g->x[i] % V == 0 && g->y[i] % V == 0;
    return fits ? launch_window<T, V, MODE>(j) : launch_any<T, 1, MODE>(j);
}

template <class T> cudaError_t launch_type(struct job *j, bool range)
{
    return range ? launch_vectors<T, MODE_RANGE>(j) : launch_vectors<T, MODE_ANY>(j);
}

/* --- any convolution --- */

/* Windows and views with three spatial dims; a dim that the tensor lacks is 1. */
struct direct {
    int64_t dim[5], y[5], x[5]; /* of y; strides of y and x */
    int32_t order[5];           /* of y's dims in memory, innermost first */
    int64_t inputs[3];          /* extents of x */
    int32_t kernel[3], stride[3], dilation[3], pad[3];
    int64_t per_group, out_per_group; /* channels */
    int64_t w_next;                   /* from a filter's channel to the next, in windows */
    bool transposed;
    int64_t elements;
};

/* The sum over the window and the group's channels for the output at `at`. */
template <class T>
__device__ __forceinline__ float direct_sum(const struct direct &d, const int64_t (&at)[5],
                                            const T *__restrict__ x, const T *__restrict__ weights)
{
    int64_t window = (int64_t)d.kernel[0] * d.kernel[1] * d.kernel[2];
    int64_t group = at[1] / d.out_per_group, inner = at[1] % d.out_per_group;
    const T *w = weights + (d.transposed ? group * d.per_group * d.out_per_group + inner
                                         : at[1] * d.per_group) *
                               window;
    const T *from = x + at[0] * d.x[0] + group * d.per_group * d.x[1];
    float sum = 0;
    for (int64_t k = 0; k < window; k++) {
        int64_t rest = k, offset = 0;
        bool inside = true;
        for (int i = 2; i >= 0; i--) {
            int64_t tap = rest % d.kernel[i] * d.dilation[i], in;
            if (d.transposed) { /* only every stride-th position met this tap */
                in = at[2 + i] + d.pad[i] - tap;
                inside = inside && in >= 0 && in % d.stride[i] == 0;
                in /= d.stride[i];
            } else {
                in = at[2 + i] * d.stride[i] - d.pad[i] + tap;
            }
            rest /= d.kernel[i];
            inside = inside && in >= 0 && in < d.inputs[i];
            offset += in * d.x[2 + i];
        }
        for (int64_t c = 0; inside && c < d.per_group; c++)
            sum += number_float(from[offset + c * d.x[1]]) *
                   number_float(w[c * d.w_next * window + k]);
    }
    return sum;
}

/* One thread per output; neighbouring threads are neighbours in y's memory. */
template <class T, int MODE>
__global__ void __launch_bounds__(THREADS)
    conv_direct(const __grid_constant__ struct direct d, const T *__restrict__ x,
                const T *__restrict__ weights, const float *__restrict__ bias, T *y,
                const __grid_constant__ struct epilogue e)
{
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < d.elements;
         i += (int64_t)gridDim.x * blockDim.x) {
        int64_t at[5], rest = i, to = 0;
        for (int k = 0; k < 5; k++) {
            int dim = d.order[k];
            int64_t index = rest % d.dim[dim];
            rest /= d.dim[dim];
            to += index * d.y[dim];
#pragma unroll
            /* The compiler knows every index, so `at` stays in registers. */
            for (int j = 0; j < 5; j++)
                at[j] = j == dim ? index : at[j];
        }
        float sum = direct_sum<T>(d, at, x, weights) + (bias ? bias[at[1]] : 0.0f);
        y[to] = number_from<T>(epilogue_apply_one<MODE>(e, sum, (uint32_t)to));
    }
}

bool read_direct(const struct kernel_window *window, int32_t groups, bool transposed,
                 const struct kernel_view *x, const struct kernel_view *y, struct direct *d)
{
    int spatial = window->spatial;
    if (spatial < 1 || spatial > 3 || x->rank != spatial + 2 || y->rank != spatial + 2 ||
        groups < 1 || x->dtype != y->dtype || x->dim[0] != y->dim[0] || x->dim[1] % groups ||
        y->dim[1] % groups || y->dim[1] == 0)
        return false;
    for (int i = 0; i < 5; i++) {
        int from = i < 2 ? i : i - (3 - spatial); /* spatial dims stand at the end */
        bool there = i < 2 || from >= 2;
        d->dim[i] = there ? y->dim[from] : 1;
        d->y[i] = there ? y->stride[from] : 0;
        d->x[i] = there ? x->stride[from] : 0;
        if (i < 2)
            continue;
        d->inputs[i - 2] = there ? x->dim[from] : 1;
        d->kernel[i - 2] = there ? window->kernel[from - 2] : 1;
        d->stride[i - 2] = there ? window->stride[from - 2] : 1;
        d->dilation[i - 2] = there ? window->dilation[from - 2] : 1;
        d->pad[i - 2] = there ? window->pad[from - 2] : 0;
    }
    for (int i = 0; i < 5; i++) {
        int at = i;
        for (; at > 0 && d->y[d->order[at - 1]] > d->y[i]; at--)
            d->order[at] = d->order[at - 1];
        d->order[at] = i;
    }
    d->per_group = x->dim[1] / groups;
    d->out_per_group = y->dim[1] / groups;
    d->transposed = transposed;
    d->w_next = transposed ? d->out_per_group : 1;
    d->elements = kernel_elements(y);
    return true;
}

template <class T> cudaError_t launch_direct(const struct job *j, const struct direct &d)
{
    unsigned grid = kernel_grid(j->call, kernel_ceil_div(d.elements, THREADS), 8);
    const T *x = static_cast<const T *>(j->x), *w = static_cast<const T *>(j->weights);
    T *y = static_cast<T *>(j->y);
    return epilogue_dispatch(j->e, [&](auto mode) {
        return KERNEL_LAUNCH((conv_direct<T, decltype(mode)::value>), grid, THREADS, 0, j->call, d,
                             x, w, j->bias, y, j->e);
    });
}

} // namespace

cudaError_t kernel_conv_direct(const struct kernel_call *call, const struct kernel_window *window,
                               int32_t groups, bool transposed, const struct kernel_view *x,
                               const void *weights, const float *bias, const struct kernel_view *y,
                               const struct kernel_epilogue *epilogue)
{
    struct job j = {call, {}, {}, x->data, weights, bias, y->data};
    struct direct d = {};
    if (!read_direct(window, groups, transposed, x, y, &d) || !epilogue_make(epilogue, y, &j.e))
        return cudaErrorNotSupported;
    switch (x->dtype) {
    case DTYPE_F16:
        return launch_direct<half_t>(&j, d);
    case DTYPE_BF16:
        return launch_direct<bf16_t>(&j, d);
    case DTYPE_F32:
        return launch_direct<float>(&j, d);
    default:
        return cudaErrorNotSupported;
    }
}

cudaError_t kernel_depthwise(const struct kernel_call *call, const struct kernel_window *window,
                             const struct kernel_view *x, const void *weights, const float *bias,
                             const struct kernel_view *y, const struct kernel_epilogue *epilogue)
{
    struct job j = {call, {}, {}, x->data, weights, bias, y->data};
    if (x->dtype != y->dtype || !read_geometry(window, x, y, &j.g) ||
        !epilogue_make(epilogue, y, &j.e))
        return cudaErrorNotSupported;
    bool range = epilogue_range(epilogue, &j.g.low, &j.g.high);
    if (kernel_elements(y) == 0)
        return cudaSuccess;
    switch (x->dtype) {
    case DTYPE_F16:
        return launch_type<half_t>(&j, range);
    case DTYPE_BF16:
        return launch_type<bf16_t>(&j, range);
    case DTYPE_F32:
        return launch_type<float>(&j, range);
    default:
        return cudaErrorNotSupported;
    }
}
