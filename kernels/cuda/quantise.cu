/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantisation and its inverse. Scales and zero points are views that broadcast to the output. If
 * they repeat along runs of neighbours, as one pair for all or for each plane does, the runs are
 * read and written 8 elements at a time; all other cases go element by element. Refused: more than
 * 2^31 elements, and 64-bit types.
 */
#include "kernels/cuda/kernels.h"

#include "kernels/cuda/device.cuh"
#include "kernels/cuda/number.cuh"
#include "kernels/cuda/walk.cuh"

enum { THREADS = 256, RESIDENT = 8, WIDE = 8 };

/* Saturates before it rounds, because the bounds are whole numbers; of NaN the least is made. */
struct to_integers {
    float least, most;

    __device__ __forceinline__ float operator()(float x, float scale, float zero) const
    {
        return rintf(fminf(fmaxf(x / scale, least - zero), most - zero)) + zero;
    }
};

/* Rounding and saturating are the conversion's. */
struct to_short_floats {
    __device__ __forceinline__ float operator()(float x, float scale, float) const
    {
        return x / scale;
    }
};

struct to_reals {
    __device__ __forceinline__ float operator()(float x, float scale, float zero) const
    {
        return __fmul_rn(x - zero, scale);
    }
};

struct job {
    const struct kernel_call *call;
    const struct kernel_view *x, *y, *scale, *zero; /* zero may be NULL */
    walk<4> w;                                      /* y, x, scale, zero */
};

struct types {
    int32_t x, y, scale, zero;
};

static __device__ __forceinline__ float zero_at(const void *zero, int32_t type, int32_t at)
{
    return zero ? number_get<float>(type, zero, at) : 0;
}

template <class OP>
static __global__ void __launch_bounds__(THREADS)
    scaled_any(const void *x, const void *scale, const void *zero, void *y, const types t,
               const OP op, const __grid_constant__ walk<4> w)
{
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < w.total; i += gridDim.x * THREADS) {
        int32_t at[4];
        walk_at(w, i, at);
        float v = op(number_get<float>(t.x, x, at[1]), number_get<float>(t.scale, scale, at[2]),
                     zero_at(zero, t.zero, at[3]));
        number_put<float>(t.y, y, at[0], v);
    }
}

/* fp32 does not hold all 32-bit integers, but double holds their differences. */
static __global__ void __launch_bounds__(THREADS)
    scaled_long(const void *x, const void *scale, const void *zero, void *y, const types t,
                const __grid_constant__ walk<4> w)
{
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < w.total; i += gridDim.x * THREADS) {
        int32_t at[4];
        walk_at(w, i, at);
        double start = zero ? number_get<double>(t.zero, zero, at[3]) : 0;
        float v = (float)(number_get<double>(t.x, x, at[1]) - start);
        number_put<float>(t.y, y, at[0], __fmul_rn(v, number_get<float>(t.scale, scale, at[2])));
    }
}

template <class OP, class TX, class TY>
static __global__ void __launch_bounds__(THREADS)
    scaled_wide(const TX *x, const void *scale, const void *zero, TY *y, const types t, const OP op,
                const __grid_constant__ walk<4> w)
{
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < w.total; i += gridDim.x * THREADS) {
        int32_t at[4];
        walk_at(w, i, at);
        float s = number_get<float>(t.scale, scale, at[2]), z = zero_at(zero, t.zero, at[3]);
        vector<TX, WIDE> from = vector_load<TX, WIDE>(x + at[1]);
        vector<TY, WIDE> to;
#pragma unroll
        for (int k = 0; k < WIDE; k++)
            to.v[k] = number_from<TY>(op(number_to<float, TX>(from.v[k]), s, z));
        vector_store<TY, WIDE>(y + at[0], to);
    }
}

static types types_of(const job &j)
{
    return {j.x->dtype, j.y->dtype, j.scale->dtype, j.zero ? j.zero->dtype : (int32_t)DTYPE_NONE};
}

static unsigned grid_of(const job &j, uint32_t total)
{
    return kernel_grid(j.call, kernel_ceil_div(total, THREADS), RESIDENT);
}

template <class OP, class TX, class TY> static cudaError_t launch_wide(const job &j, const OP &op)
{
    walk<4> w = j.w;
    int last = w.rank - 1;
    if (!walk_is_wide(&w, 0, WIDE, j.y) || !walk_is_wide(&w, 1, WIDE, j.x) ||
        w.stride[1][last] == 0 || w.stride[2][last] || w.stride[3][last])
        return cudaErrorNotSupported;
    walk_widen(&w, WIDE);
    return KERNEL_LAUNCH((scaled_wide<OP, TX, TY>), grid_of(j, w.total), THREADS, 0, j.call,
                         static_cast<const TX *>(j.x->data), j.scale->data,
                         j.zero ? j.zero->data : NULL, static_cast<TY *>(j.y->data), types_of(j),
                         op, w);
}

template <class OP> static cudaError_t launch_any(const job &j, const OP &op)
{
    return KERNEL_LAUNCH(scaled_any<OP>, grid_of(j, j.w.total), THREADS, 0, j.call, j.x->data,
                         j.scale->data, j.zero ? j.zero->data : NULL, j.y->data, types_of(j), op,
                         j.w);
}

/* Pairs of a float type and an 8-bit one. */
template <class TX> static cudaError_t quantise_wide(const job &j, const to_integers &op)
{
    if (j.y->dtype == DTYPE_U8)
        return launch_wide<to_integers, TX, uint8_t>(j, op);
    return j.y->dtype == DTYPE_I8 ? launch_wide<to_integers, TX, int8_t>(j, op)
                                  : cudaErrorNotSupported;
}

template <class TX> static cudaError_t shorten(const job &j)
{
    cudaError_t code = launch_wide<to_short_floats, TX, f8_t>(j, to_short_floats());
    return code == cudaErrorNotSupported ? launch_any(j, to_short_floats()) : code;
}

template <class TY> static cudaError_t dequantise_wide(const job &j)
{
    if (j.x->dtype == DTYPE_U8)
        return launch_wide<to_reals, uint8_t, TY>(j, to_reals());
    if (j.x->dtype == DTYPE_F8)
        return launch_wide<to_reals, f8_t, TY>(j, to_reals());
    return j.x->dtype == DTYPE_I8 ? launch_wide<to_reals, int8_t, TY>(j, to_reals())
                                  : cudaErrorNotSupported;
}

static bool is_short_float(int dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

static bool job_make(const struct kernel_call *call, const struct kernel_view *x,
                     const struct kernel_view *scale, const struct kernel_view *zero,
                     const struct kernel_view *y, job *out)
{
    const struct kernel_view *const views[4] = {y, x, scale, zero ? zero : scale};
    *out = {call, x, y, scale, zero, {}};
    return is_short_float(scale->dtype) && walk_make(views, &out->w);
}

cudaError_t kernel_quantise(const struct kernel_call *call, const struct kernel_view *x,
                            const struct kernel_view *scale, const struct kernel_view *zero,
                            const struct kernel_view *y)
{
    job j;
    bool sign = y->dtype == DTYPE_I8 || y->dtype == DTYPE_I16;
    float count = number_size(y->dtype) == 1 ? 256 : 65536;
    float least = sign ? -count / 2 : 0;
    const to_integers op = {least, least + count - 1};
    if (!is_short_float(x->dtype) || number_size(y->dtype) > 2 ||
        !job_make(call, x, scale, zero, y, &j))
        return cudaErrorNotSupported;
    if (j.w.total == 0)
        return cudaSuccess;
    if (y->dtype == DTYPE_F8)
        return x->dtype == DTYPE_F32   ? shorten<float>(j)
               : x->dtype == DTYPE_F16 ? shorten<half_t>(j)
                                       : shorten<bf16_t>(j);
    cudaError_t code = x->dtype == DTYPE_F32   ? quantise_wide<float>(j, op)
                       : x->dtype == DTYPE_F16 ? quantise_wide<half_t>(j, op)
                                               : quantise_wide<bf16_t>(j, op);
    return code == cudaErrorNotSupported ? launch_any(j, op) : code;
}

cudaError_t kernel_dequantise(const struct kernel_call *call, const struct kernel_view *x,
                              const struct kernel_view *scale, const struct kernel_view *zero,
                              const struct kernel_view *y)
{
    job j;
    if (!is_short_float(y->dtype) || number_size(x->dtype) > 4 ||
        !job_make(call, x, scale, zero, y, &j))
        return cudaErrorNotSupported;
    if (j.w.total == 0)
        return cudaSuccess;
    if (number_size(x->dtype) == 4)
        return KERNEL_LAUNCH(scaled_long, grid_of(j, j.w.total), THREADS, 0, call, x->data,
                             scale->data, zero ? zero->data : NULL, y->data, types_of(j), j.w);
    cudaError_t code = y->dtype == DTYPE_F32   ? dequantise_wide<float>(j)
                       : y->dtype == DTYPE_F16 ? dequantise_wide<half_t>(j)
                                               : dequantise_wide<bf16_t>(j);
    return code == cudaErrorNotSupported ? launch_any(j, to_reals()) : code;
}
