/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensors whose type is known at run time: short floats, INT32, or 8 bits by a scale. Kernels read
 * and write N neighbours of them as real numbers.
 */
#ifndef INFERD_KERNELS_CUDA_SIDE_CUH
#define INFERD_KERNELS_CUDA_SIDE_CUH

#include "kernels/cuda/device.cuh"

/* Integers or short floats q that stand for step (q - zero), or with step 0 numbers as they are. */
struct bytes_side {
    void *data;
    int32_t type;
    float step, zero, inverse; /* inverse: 1 / step */
};

inline bytes_side side_of(const struct kernel_view *view)
{
    bytes_side s = {view->data, view->dtype, view->step, view->zero,
                    view->step != 0 ? 1 / view->step : 0};
    return s;
}

/* Whether kernels read the tensor. Steps so large or small that quotients by them have to be made
 * with care are left to others. */
inline bool side_known(const struct kernel_view *view)
{
    bool byte = view->dtype == DTYPE_I8 || view->dtype == DTYPE_U8 || view->dtype == DTYPE_F8;
    bool usual = view->step == 0 || (view->step > 1e-30f && view->step < 1e30f);
    return usual && (byte || (view->step == 0 &&
                              (view->dtype == DTYPE_I32 || number_is_short_float(view->dtype))));
}

/* Whether it is a tensor of 8 bits by a scale. */
inline bool side_scaled(const struct kernel_view *view)
{
    return view->step != 0 && side_known(view);
}

template <class T, int N>
__device__ __forceinline__ void side_read(const bytes_side &s, int32_t at, float (&to)[N])
{
    vector_read<N>(static_cast<const T *>(s.data) + at, to);
}

template <int N> __device__ __forceinline__ void side_scale(const bytes_side &s, float (&v)[N])
{
    if (s.step != 0) {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = __fmul_rn(v[i] - s.zero, s.step);
    }
}

/* Reads N neighbours from offset `at` on. */
template <int N>
__device__ __forceinline__ void side_load(const bytes_side &s, int32_t at, float (&to)[N])
{
    switch (s.type) {
    case DTYPE_U8:
        side_read<uint8_t, N>(s, at, to);
        break;
    case DTYPE_I8:
        side_read<int8_t, N>(s, at, to);
        break;
    case DTYPE_F8:
        side_read<f8_t, N>(s, at, to);
        break;
    case DTYPE_I32:
        side_read<int32_t, N>(s, at, to);
        break;
    case DTYPE_F16:
        side_read<half_t, N>(s, at, to);
        break;
    case DTYPE_BF16:
        side_read<bf16_t, N>(s, at, to);
        break;
    default:
        side_read<float, N>(s, at, to);
    }
    side_scale<N>(s, to);
}

/* The same, or the one element that stands for all N. */
template <int N>
__device__ __forceinline__ void side_load(const bytes_side &s, int32_t at, bool repeats,
                                          float (&to)[N])
{
    if (!repeats) {
        side_load<N>(s, at, to);
        return;
    }
    float one[1];
    side_load<1>(s, at, one);
#pragma unroll
    for (int i = 0; i < N; i++)
        to[i] = one[0];
}

/* v / step, rounded as a division rounds it (Markstein, "Computation of elementary functions on
 * the IBM RISC System/6000", 1990), where the quotient is one that 8 bits may hold; larger ones
 * stay beyond `most`, and NaN stays NaN. */
__device__ __forceinline__ float side_quotient(const bytes_side &s, float v, float most)
{
    float q = fminf(fmaxf(v * s.inverse, -most), most);
    return fmaf(fmaf(-q, s.step, v), s.inverse, q);
}

/* Writes INT8 or UINT8, which differ in their bounds alone, as QUANTIZE rounds them: the bounds are
 * whole numbers, so that saturating may come before rounding; of NaN the least is made. */
template <int N>
__device__ __forceinline__ void side_integers(const bytes_side &s, int32_t at, const float (&v)[N])
{
    float least = s.type == DTYPE_I8 ? -128.0f : 0.0f;
    float low = least - s.zero, high = least + 255.0f - s.zero;
    vector<uint8_t, N> raw;
#pragma unroll
    for (int i = 0; i < N; i++)
        raw.v[i] =
            (uint8_t)(int32_t)(rintf(fminf(fmaxf(side_quotient(s, v[i], 1024.0f), low), high)) +
                               s.zero);
    vector_store<uint8_t, N>(static_cast<uint8_t *>(s.data) + at, raw);
}

/* Writes numbers of FP8, which its conversion rounds and saturates, two at a time. */
template <int N>
__device__ __forceinline__ void side_floats(const bytes_side &s, int32_t at, const float (&v)[N])
{
    float q[N];
#pragma unroll
    for (int i = 0; i < N; i++)
        q[i] = s.step != 0 ? side_quotient(s, v[i], 1024.0f) : v[i];
#ifdef __CUDA_ARCH__
    if constexpr (N % 2 == 0) {
        vector<unsigned short, N / 2> raw;
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            raw.v[i] = __nv_cvt_float2_to_fp8x2(make_float2(q[2 * i], q[2 * i + 1]), __NV_SATFINITE,
                                                __NV_E4M3);
        vector_store<unsigned short, N / 2>(
            reinterpret_cast<unsigned short *>(static_cast<char *>(s.data) + at), raw);
        return;
    }
#endif
    vector_write<N>(static_cast<f8_t *>(s.data) + at, q);
}

/* Writes to a tensor of FP8, or of integers of 8 bits by a scale. */
template <int N>
__device__ __forceinline__ void side_store_scaled(const bytes_side &s, int32_t at,
                                                  const float (&v)[N])
{
    if (s.type == DTYPE_F8)
        side_floats<N>(s, at, v);
    else
        side_integers<N>(s, at, v);
}

template <class T, int N>
__device__ __forceinline__ void side_write(const bytes_side &s, int32_t at, const float (&from)[N])
{
    if constexpr (number_of<T>::dtype == DTYPE_F8)
        side_floats<N>(s, at, from);
    else if (sizeof(T) == 1 && s.step != 0)
        side_integers<N>(s, at, from);
    else
        vector_write<N>(static_cast<T *>(s.data) + at, from);
}

/* Writes to a tensor of 8 bits. */
template <int N>
__device__ __forceinline__ void side_store_byte(const bytes_side &s, int32_t at,
                                                const float (&v)[N])
{
    if (s.step != 0 || s.type == DTYPE_F8)
        side_store_scaled<N>(s, at, v);
    else if (s.type == DTYPE_U8)
        side_write<uint8_t, N>(s, at, v);
    else
        side_write<int8_t, N>(s, at, v);
}

template <int N>
__device__ __forceinline__ void side_store(const bytes_side &s, int32_t at, const float (&v)[N])
{
    switch (s.type) {
    case DTYPE_F16:
        side_write<half_t, N>(s, at, v);
        break;
    case DTYPE_BF16:
        side_write<bf16_t, N>(s, at, v);
        break;
    case DTYPE_F32:
        side_write<float, N>(s, at, v);
        break;
    default:
        side_store_byte<N>(s, at, v);
    }
}

#endif
