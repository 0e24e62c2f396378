/* SPDX-License-Identifier: Apache-2.0 */
/* Activations of sums, quick enough to stand behind every product of a tile. */
#ifndef INFERD_KERNELS_CUDA_ACTIVATE_CUH
#define INFERD_KERNELS_CUDA_ACTIVATE_CUH

#include "base/op_enums.h"
#include "kernels/cuda/hopper.cuh"

namespace activate
{

/* x times the normal distribution, which is 1/2 + x p(x^2), saturated: to |x| = 4.2 within 1.4e-5,
 * beyond within 5e-5, where p keeps growing. No exponential: those units do 16 a clock, and a tile
 * has 32,768 values. Infinities and NaN as in math_gelu. */
__device__ __forceinline__ float gelu(float x)
{
    float w = x * x, p = 4.92382052e-11f;
    p = fmaf(p, w, -4.79566326e-09f);
    p = fmaf(p, w, 2.07247675e-07f);
    p = fmaf(p, w, -5.2895653e-06f);
    p = fmaf(p, w, 8.9835952e-05f);
    p = fmaf(p, w, -0.00108645907f);
    p = fmaf(p, w, 0.00974094036f);
    p = fmaf(p, w, -0.066222077f);
    p = fmaf(p, w, 0.398834578f);
    return x * fma_saturated(x, p, 0.5f);
}

__device__ __forceinline__ float gelu_tanh(float x)
{
    float t = tanh_fast(x * fmaf(x * x, 0.0356774081f, 0.797884561f)), half = 0.5f * x;
    return fmaf(half, t, half);
}

__device__ __forceinline__ float swish(float x, float alpha)
{
    return x * __fdividef(1.0f, 1.0f + exp2_fast(x * alpha * -1.44269504f));
}

/* Whether `func`, an enum ir_unary, is one of these. */
inline bool knows(int32_t func)
{
    return func == IR_UNARY_IDENTITY || func == IR_UNARY_RELU || func == IR_UNARY_GELU ||
           func == IR_UNARY_GELU_TANH || func == IR_UNARY_SWISH;
}

/* One branch for all values, which is the same in all threads. alpha: of SWISH. */
template <int N> __device__ __forceinline__ void values(int func, float alpha, float (&v)[N])
{
    if (func == IR_UNARY_RELU) {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = v[i] < 0 ? 0 : v[i];
    } else if (func == IR_UNARY_GELU) {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = gelu(v[i]);
    } else if (func == IR_UNARY_GELU_TANH) {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = gelu_tanh(v[i]);
    } else if (func == IR_UNARY_SWISH) {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] = swish(v[i], alpha);
    }
}

} // namespace activate

#endif
