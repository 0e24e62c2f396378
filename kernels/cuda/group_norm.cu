/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Normalisations of images: over groups of channels (or each channel alone), and over neighbouring
 * channels of each pixel (LRN: a thread a number, which reads its window through the caches).
 *
 * Group and instance normalisation run in three launches that each use the whole device:
 *
 *   sums_*    for each channel of each image, and each of `splits` parts of its pixels, the sums of
 *             x - k and of (x - k)^2, where k is the channel's first pixel: numbers near the mean,
 *             so that the variance keeps its digits
 *   factors   for each group, mean and variance from these sums; for each channel a factor and a
 *             shift
 *   kernel_map multiplies, adds and does the epilogue
 *
 * Pixels are side by side (plain) or channels are (channels-last). Refused: other strides, types
 * other than F16, BF16, F32, more than 2^31 elements.
 */
#include <math.h>

#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/reduce.cuh"

namespace
{

enum { THREADS = 256, SPLITS_MAX = 64, SMALL = 2048 /* pixels of a channel for a warp alone */ };

struct sums {
    float ones, squares;
};

struct job {
    const void *x;
    int32_t images, channels, pixels, splits, part; /* pixels of a part */
    int32_t in_group;
    bool last;         /* channels-last */
    struct sums *sums; /* [images][splits][channels] */
    float *factors;    /* [images][channels], and behind them shifts */
};

__device__ __forceinline__ void add(struct sums &s, float v)
{
    s.ones += v;
    s.squares += v * v;
}

/* --- sums --- */

/* Block (32, 8): a warp a channel. Block (256, 1): all of it works on one channel. Blocks run along
 * the channels, then the parts. */
template <class T, int V>
__global__ void __launch_bounds__(THREADS) sums_plain(const __grid_constant__ struct job j)
{
    KERNEL_SHARED(float, scratch);
    int64_t plane = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    int split = (int)blockIdx.y;
    bool there = plane < (int64_t)j.images * j.channels;
    const T *x = static_cast<const T *>(j.x) + (there ? plane : 0) * j.pixels;
    int end = there ? min(j.pixels, (split + 1) * j.part) : 0;
    float k = number_float(x[0]);
    struct sums s = {0, 0};
    for (int i = split * j.part + (int)threadIdx.x * V; i < end; i += (int)blockDim.x * V) {
        float v[V];
        vector_read<V>(x + i, v);
#pragma unroll
        for (int c = 0; c < V; c++)
            add(s, v[c] - k);
    }
    if (blockDim.x > KERNEL_WARP) {
        s.ones = reduce_block(s.ones, 0.0f, scratch, reduce_sum());
        s.squares = reduce_block(s.squares, 0.0f, scratch, reduce_sum());
    } else {
        s.ones = reduce_warp(s.ones, reduce_sum());
        s.squares = reduce_warp(s.squares, reduce_sum());
    }
    if (there && threadIdx.x == 0) {
        int64_t image = plane / j.channels;
        j.sums[(image * j.splits + split) * j.channels + plane % j.channels] = s;
    }
}

/* Block (32, 8): a thread sums V channels of every 8th pixel of the part. */
template <class T, int V>
__global__ void __launch_bounds__(THREADS) sums_last(const __grid_constant__ struct job j)
{
    KERNEL_SHARED(struct sums, scratch); /* [8][32 * V] */
    int c = (int)(blockIdx.x * KERNEL_WARP + threadIdx.x) * V, split = (int)blockIdx.y;
    int image = (int)blockIdx.z, end = min(j.pixels, (split + 1) * j.part);
    bool there = c < j.channels;
    const T *x =
        static_cast<const T *>(j.x) + (int64_t)image * j.pixels * j.channels + (there ? c : 0);
    float k[V];
    struct sums s[V] = {};
    vector_read<V>(x, k);
    for (int i = split * j.part + (int)threadIdx.y; there && i < end; i += (int)blockDim.y) {
        float v[V];
        vector_read<V>(x + (int64_t)i * j.channels, v);
#pragma unroll
        for (int n = 0; n < V; n++)
            add(s[n], v[n] - k[n]);
    }
#pragma unroll
    for (int n = 0; n < V; n++)
        scratch[(threadIdx.y * V + n) * KERNEL_WARP + threadIdx.x] = s[n];
    __syncthreads();
    for (int n = (int)threadIdx.y; there && n < V; n += (int)blockDim.y) {
        struct sums all = {0, 0};
        for (int row = 0; row < (int)blockDim.y; row++) {
            struct sums one = scratch[(row * V + n) * KERNEL_WARP + (int)threadIdx.x];
            all.ones += one.ones;
            all.squares += one.squares;
        }
        j.sums[((int64_t)image * j.splits + split) * j.channels + c + n] = all;
    }
}

/* --- factors --- */

/* The mean of a channel, and the sum of its squared deviations from it. */
template <class T>
__device__ __forceinline__ void channel_of(const struct job &j, int image, int c, float *mean,
                                           float *squares)
{
    struct sums all = {0, 0};
    for (int split = 0; split < j.splits; split++) {
        struct sums one = j.sums[((int64_t)image * j.splits + split) * j.channels + c];
        all.ones += one.ones;
        all.squares += one.squares;
    }
    const T *x = static_cast<const T *>(j.x) + (int64_t)image * j.channels * j.pixels;
    float off = all.ones / (float)j.pixels;
    *mean = number_float(x[j.last ? c : (int64_t)c * j.pixels]) + off;
    *squares = fmaxf(all.squares - all.ones * off, 0.0f);
    *squares = all.squares != all.squares ? all.squares : *squares; /* fmaxf drops NaN */
}

/* A block of one warp a group. */
template <class T>
__global__ void __launch_bounds__(KERNEL_WARP)
    factors(const __grid_constant__ struct job j, const void *scale, int32_t scale_type,
            const void *bias, int32_t bias_type, float epsilon)
{
    int groups = j.channels / j.in_group, image = (int)blockIdx.x / groups;
    int first = (int)blockIdx.x % groups * j.in_group;
    float total = 0, squares = 0, mean, own;
    for (int c = (int)threadIdx.x; c < j.in_group; c += KERNEL_WARP) {
        channel_of<T>(j, image, first + c, &mean, &own);
        total += mean;
        squares += own;
    }
    float middle = reduce_warp(total, reduce_sum()) / (float)j.in_group;
    for (int c = (int)threadIdx.x; c < j.in_group; c += KERNEL_WARP) {
        channel_of<T>(j, image, first + c, &mean, &own);
        squares += (mean - middle) * (mean - middle) * (float)j.pixels;
    }
    squares = reduce_warp(squares, reduce_sum()) / ((float)j.in_group * (float)j.pixels);
    float inverse = 1.0f / sqrtf(squares + epsilon);
    float *shifts = j.factors + (int64_t)j.images * j.channels;
    for (int c = first + (int)threadIdx.x; c < first + j.in_group; c += KERNEL_WARP) {
        float factor = number_load(scale_type, scale, c) * inverse;
        j.factors[(int64_t)image * j.channels + c] = factor;
        shifts[(int64_t)image * j.channels + c] = number_load(bias_type, bias, c) - middle * factor;
    }
}

/* --- LRN --- */

struct lrn_job {
    const void *x;
    void *y;
    uint32_t total;
    struct divider channels, pixels;
    int32_t below, above, step; /* channels of the window; from one channel to the next */
    bool last;
    float factor, beta, bias;
};

template <class T>
__global__ void __launch_bounds__(THREADS)
    lrn(const __grid_constant__ struct lrn_job j, const __grid_constant__ struct epilogue e)
{
    uint32_t i = blockIdx.x * THREADS + threadIdx.x, c;
    if (i >= j.total)
        return;
    divider_split(j.channels, j.last ? i : divider_quotient(j.pixels, i), &c);
    const T *x = static_cast<const T *>(j.x) + i;
    int first = -min((int)c, j.below), last = min((int)j.channels.by - 1 - (int)c, j.above);
    float squares = 0;
    for (int k = first; k <= last; k++) {
        float v = number_float(x[(int64_t)k * j.step]);
        squares += v * v;
    }
    float v = number_float(*x) / powf(j.bias + j.factor * squares, j.beta);
    static_cast<T *>(j.y)[i] = number_from<T>(epilogue_apply_one<EPILOGUE_ANY>(e, v, i));
}

/* --- launching --- */

/* Whether the dims from 2 on lie like one dim of `pixels` with this stride. */
bool is_line(const struct kernel_view *v, int64_t stride)
{
    for (int d = v->rank - 1; d >= 2; d--) {
        if (v->dim[d] != 1 && v->stride[d] != stride)
            return false;
        stride *= v->dim[d];
    }
    return true;
}

bool job_make(const struct kernel_call *call, int64_t groups, const struct kernel_view *x,
              struct job *j)
{
    int64_t pixels = 1, channels = x->rank > 1 ? x->dim[1] : 0;
    for (int d = 2; d < x->rank; d++)
        pixels *= x->dim[d];
    *j = job();
    if (x->rank < 2 || kernel_elements(x) >= INT32_MAX || kernel_elements(x) == 0 || groups < 0 ||
        (groups > 0 && channels % groups))
        return false;
    bool image = x->dim[0] == 1 || x->stride[0] == channels * pixels;
    bool plain = (channels == 1 || x->stride[1] == pixels) && is_line(x, 1);
    j->last = !plain;
    if (!image || (!plain && (x->stride[1] != 1 || !is_line(x, channels))))
        return false;
    j->x = x->data;
    j->images = (int32_t)x->dim[0];
    j->channels = (int32_t)channels;
    j->pixels = (int32_t)pixels;
    j->in_group = (int32_t)(groups ? channels / groups : 1);
    int64_t least = j->last ? 64 : 8 * SMALL; /* pixels of a part */
    int64_t planes = (int64_t)j->images * (j->last ? kernel_ceil_div(channels, 256) : channels);
    int64_t splits = kernel_multiprocessors(call) * 8 / planes;
    splits = splits > pixels / least ? pixels / least : splits;
    splits = splits < 1 ? 1 : splits > SPLITS_MAX ? (int64_t)SPLITS_MAX : splits;
    j->part = (int32_t)(kernel_ceil_div(kernel_ceil_div(pixels, splits), 16) * 16);
    j->splits = (int32_t)kernel_ceil_div(pixels, j->part);
    return j->images <= 65535;
}

template <class T, int V>
cudaError_t launch_sums(const struct kernel_call *call, const struct job &j)
{
    int64_t planes = (int64_t)j.images * j.channels;
    if (j.last) {
        dim3 grid((unsigned)kernel_ceil_div(j.channels, KERNEL_WARP * V), (unsigned)j.splits,
                  (unsigned)j.images);
        return KERNEL_LAUNCH((sums_last<T, V>), grid, dim3(KERNEL_WARP, THREADS / KERNEL_WARP),
                             THREADS * V * sizeof(struct sums), call, j);
    }
    bool small = j.pixels <= SMALL;
    dim3 block = small ? dim3(KERNEL_WARP, THREADS / KERNEL_WARP) : dim3(THREADS);
    dim3 grid((unsigned)kernel_ceil_div(planes, block.y), (unsigned)j.splits);
    return KERNEL_LAUNCH((sums_plain<T, V>), grid, block, KERNEL_WARP * sizeof(float), call, j);
}

template <class T>
cudaError_t launch(const struct kernel_call *call, const struct job &j, float epsilon,
                   const struct kernel_view *scale, const struct kernel_view *bias)
{
    constexpr int V = 16 / sizeof(T);
    bool wide = (j.last ? j.channels : j.pixels) % V == 0 && (uintptr_t)j.x % 16 == 0;
    cudaError_t code = wide ? launch_sums<T, V>(call, j) : launch_sums<T, 1>(call, j);
    if (code != cudaSuccess)
        return code;
    unsigned groups = (unsigned)(j.images * (j.channels / j.in_group));
    return KERNEL_LAUNCH(factors<T>, groups, KERNEL_WARP, 0, call, j, scale->data, scale->dtype,
                         bias->data, bias->dtype, epsilon);
}

bool is_channels(const struct kernel_view *v, int64_t channels)
{
    return v->rank == 1 && v->dim[0] == channels && (channels == 1 || v->stride[0] == 1) &&
           number_is_short_float(v->dtype);
}

struct kernel_step channel_step(const struct kernel_view *y, enum ir_binary func, float *data)
{
    struct kernel_step step = {};
    step.binary = 1;
    step.func = (int32_t)func;
    step.operand = *y;
    for (int d = 0; d < y->rank; d++)
        step.operand.stride[d] = d == 0 ? y->dim[1] : d == 1;
    step.operand.dtype = DTYPE_F32;
    step.operand.data = data;
    return step;
}

size_t round_up(size_t size)
{
    return (size + 15) / 16 * 16;
}

} // namespace

extern "C" cudaError_t kernel_lrn(const struct kernel_call *call, int64_t size, float alpha,
                                  float beta, float bias, const struct kernel_view *x,
                                  const struct kernel_view *y,
                                  const struct kernel_epilogue *epilogue)
{
    struct job like, to;
    struct epilogue e;
    if (kernel_elements(x) == 0)
        return cudaSuccess;
    if (x->dtype != y->dtype || size < 1 || size > INT32_MAX || !job_make(call, 0, x, &like) ||
        !job_make(call, 0, y, &to) || like.last != to.last || !epilogue_make(epilogue, y, &e))
        return cudaErrorNotSupported;
    struct lrn_job j = {x->data,
                        y->data,
                        (uint32_t)kernel_elements(y),
                        divider_make((uint32_t)like.channels),
                        divider_make((uint32_t)like.pixels),
                        (int32_t)((size - 1) / 2),
                        (int32_t)(size - 1 - (size - 1) / 2),
                        like.last ? 1 : like.pixels,
                        like.last,
                        alpha / (float)size,
                        beta,
                        bias};
    unsigned grid = (unsigned)kernel_ceil_div(j.total, THREADS);
    switch (x->dtype) {
    case DTYPE_F16:
        return KERNEL_LAUNCH(lrn<half_t>, grid, THREADS, 0, call, j, e);
    case DTYPE_BF16:
        return KERNEL_LAUNCH(lrn<bf16_t>, grid, THREADS, 0, call, j, e);
    case DTYPE_F32:
        return KERNEL_LAUNCH(lrn<float>, grid, THREADS, 0, call, j, e);
    default:
        return cudaErrorNotSupported;
    }
}

extern "C" size_t kernel_group_norm_workspace(const struct kernel_call *call,
                                              const struct kernel_view *x)
{
    struct job j;
    if (!job_make(call, 0, x, &j))
        return 0;
    size_t each = (size_t)j.images * (size_t)j.channels;
    return round_up(each * (size_t)j.splits * sizeof(struct sums)) + 2 * each * sizeof(float);
}

extern "C" cudaError_t kernel_group_norm(const struct kernel_call *call, int64_t groups,
                                         float epsilon, const struct kernel_view *x,
                                         const struct kernel_view *scale,
                                         const struct kernel_view *bias,
                                         const struct kernel_view *y,
                                         const struct kernel_epilogue *epilogue, void *workspace)
{
    struct job j;
    struct kernel_epilogue steps = {};
    int own = epilogue ? epilogue->n : 0;
    if (x->dtype != y->dtype || own + 2 > KERNEL_STEPS_MAX || !job_make(call, groups, x, &j) ||
        !is_channels(scale, j.channels) || !is_channels(bias, j.channels))
        return cudaErrorNotSupported;
    size_t each = (size_t)j.images * (size_t)j.channels;
    size_t partial = round_up(each * (size_t)j.splits * sizeof(struct sums));
    j.sums = static_cast<struct sums *>(workspace);
    j.factors = workspace ? (float *)(static_cast<char *>(workspace) + partial) : nullptr;
    cudaError_t code = x->dtype == DTYPE_F16    ? launch<half_t>(call, j, epsilon, scale, bias)
                       : x->dtype == DTYPE_BF16 ? launch<bf16_t>(call, j, epsilon, scale, bias)
                       : x->dtype == DTYPE_F32  ? launch<float>(call, j, epsilon, scale, bias)
                                                : cudaErrorNotSupported;
    if (code != cudaSuccess)
        return code;
    steps.n = own + 2;
    steps.step[0] = channel_step(y, IR_BINARY_MUL, j.factors);
    steps.step[1] = channel_step(y, IR_BINARY_ADD, j.factors ? j.factors + each : nullptr);
    for (int i = 0; i < own; i++)
        steps.step[2 + i] = epilogue->step[i];
    return kernel_map(call, x, y, 0, &steps);
}
