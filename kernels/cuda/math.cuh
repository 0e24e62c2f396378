/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The IR's unary and binary functions, by number, on float or double: the formulas of
 * kernels/cpu/unary.c and binary.c, which say where NaN and infinity go. Their numbers are the
 * IR's, as in the reference.
 *
 * Functions that networks use often are inlined. The rest is one function that is called, so that a
 * kernel with an epilogue does not carry a libm of its own.
 */
#ifndef INFERD_KERNELS_CUDA_MATH_CUH
#define INFERD_KERNELS_CUDA_MATH_CUH

#include "base/op_enums.h"
#include "kernels/cuda/device.cuh"

/* Overloads the functions of libm, also where the emulator's <cmath> is all there is. */
#define MATH_LIFT(name)                                                                            \
    __device__ __forceinline__ float math_##name(float x)                                          \
    {                                                                                              \
        return name##f(x);                                                                         \
    }                                                                                              \
    __device__ __forceinline__ double math_##name(double x)                                        \
    {                                                                                              \
        return name(x);                                                                            \
    }
MATH_LIFT(exp)
MATH_LIFT(expm1)
MATH_LIFT(log)
MATH_LIFT(log1p)
MATH_LIFT(sqrt)
MATH_LIFT(fabs)
MATH_LIFT(floor)
MATH_LIFT(ceil)
MATH_LIFT(rint)
MATH_LIFT(erf)
MATH_LIFT(sin)
MATH_LIFT(cos)
MATH_LIFT(tan)
MATH_LIFT(asin)
MATH_LIFT(acos)
MATH_LIFT(atan)
MATH_LIFT(sinh)
MATH_LIFT(cosh)
MATH_LIFT(tanh)
MATH_LIFT(asinh)
MATH_LIFT(acosh)
MATH_LIFT(atanh)
#undef MATH_LIFT

__device__ __forceinline__ float math_pow(float x, float y)
{
    return powf(x, y);
}
__device__ __forceinline__ double math_pow(double x, double y)
{
    return pow(x, y);
}
__device__ __forceinline__ float math_fmod(float x, float y)
{
    return fmodf(x, y);
}
__device__ __forceinline__ double math_fmod(double x, double y)
{
    return fmod(x, y);
}

template <class F> __device__ __forceinline__ F math_clip(F x, F low, F high)
{
    x = x < low ? low : x; /* NaN stays */
    return x > high ? high : x;
}

/* 1 / (1 + e^-x). In fp32 the quick division is used: it is within 2 ulp, and gives 0 where e^-x
 * overflows. */
__device__ __forceinline__ float math_sigmoid(float x)
{
    return __fdividef(1.0f, 1.0f + expf(-x));
}
__device__ __forceinline__ double math_sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

template <class F> __device__ __forceinline__ F math_softplus(F x)
{
    return (x > 0 ? x : 0) + math_log1p(math_exp(-math_fabs(x)));
}

/* x times the normal distribution. Its tail is erfc's form 7.1.26 in Abramowitz and Stegun: one
 * exponential, one reciprocal, no branch, and no cancellation on the negative side. */
__device__ __forceinline__ float math_gelu(float x)
{
    float a = fabsf(x) * 0.70710678f, t = __fdividef(1.0f, fmaf(0.3275911f, a, 1.0f));
    float p = fmaf(t, 1.061405429f, -1.453152027f);
    p = fmaf(t, p, 1.421413741f);
    p = fmaf(t, p, -0.284496736f);
    p = fmaf(t, p, 0.254829592f);
    float tail = 0.5f * t * p * __expf(-a * a);
    return x * (x < 0 ? tail : 1.0f - tail);
}
__device__ __forceinline__ double math_gelu(double x)
{
    return 0.5 * x * (1 + erf(x * 0.70710678118654752440));
}

template <class F> __device__ __forceinline__ F math_gelu_tanh(F x)
{
    return (F)0.5 * x * (1 + math_tanh((F)0.79788456080286535588 * (x + (F)0.044715 * x * x * x)));
}

/* The functions that kernels carry inline; false: math_unary_rare has it. */
/* clang-format off */
#define MATH_UNARY_COMMON(CASE)                                                                    \
    CASE(IR_UNARY_IDENTITY, x)                                                                     \
    CASE(IR_UNARY_RELU, x < 0 ? 0 : x)                                                             \
    CASE(IR_UNARY_LEAKY_RELU, x < 0 ? a * x : x)                                                   \
    CASE(IR_UNARY_SIGMOID, math_sigmoid(x))                                                        \
    CASE(IR_UNARY_HARD_SIGMOID, math_clip<F>(a * x + b, 0, 1))                                     \
    CASE(IR_UNARY_HARD_SWISH, x * math_clip<F>(x * (F)(1.0 / 6) + (F)0.5, 0, 1))                   \
    CASE(IR_UNARY_SWISH, x * math_sigmoid(a * x))                                                  \
    CASE(IR_UNARY_TANH, math_tanh(x))                                                              \
    CASE(IR_UNARY_GELU, math_gelu(x))                                                              \
    CASE(IR_UNARY_CLIP, math_clip<F>(x, a, b))                                                     \
    CASE(IR_UNARY_LINEAR, a * x + b)                                                               \
    CASE(IR_UNARY_EXP, math_exp(x))                                                                \
    CASE(IR_UNARY_SQRT, math_sqrt(x))                                                              \
    CASE(IR_UNARY_NEG, -x)                                                                         \
    CASE(IR_UNARY_ABS, math_fabs(x))
/* clang-format on */

template <class F> __device__ __noinline__ F math_unary_rare(int func, F x, F a, F b, F g)
{
    F soft;
    switch (func) {
    /* Functions that share another one stand together, or each would have a copy of it. */
    case IR_UNARY_ELU:
    case IR_UNARY_SELU:
    case IR_UNARY_CELU:
        x = x < 0 ? a * math_expm1(func == IR_UNARY_CELU ? x / a : x) : x;
        return func == IR_UNARY_SELU ? g * x : x;
    case IR_UNARY_SOFTPLUS:
    case IR_UNARY_MISH:
        soft = math_softplus(x);
        return func == IR_UNARY_MISH ? x * math_tanh(soft) : soft;
    case IR_UNARY_SOFTSIGN:
        return x / (1 + math_fabs(x));
    case IR_UNARY_THRESHOLDED_RELU:
        return x > a || x != x ? x : 0;
    case IR_UNARY_GELU_TANH:
        return math_gelu_tanh(x);
    case IR_UNARY_LOG:
        return math_log(x);
    case IR_UNARY_RECIPROCAL:
        return 1 / x;
    case IR_UNARY_ERF:
        return math_erf(x);
    case IR_UNARY_FLOOR:
        return math_floor(x);
    case IR_UNARY_CEIL:
        return math_ceil(x);
    case IR_UNARY_ROUND:
        return math_rint(x);
    case IR_UNARY_SIGN:
        return x > 0 ? 1 : x < 0 ? -1 : x;
    case IR_UNARY_NOT:
        return x == 0;
    case IR_UNARY_SIN:
        return math_sin(x);
    case IR_UNARY_COS:
        return math_cos(x);
    case IR_UNARY_TAN:
        return math_tan(x);
    case IR_UNARY_ASIN:
        return math_asin(x);
    case IR_UNARY_ACOS:
        return math_acos(x);
    case IR_UNARY_ATAN:
        return math_atan(x);
    case IR_UNARY_SINH:
        return math_sinh(x);
    case IR_UNARY_COSH:
        return math_cosh(x);
    case IR_UNARY_ASINH:
        return math_asinh(x);
    case IR_UNARY_ACOSH:
        return math_acosh(x);
    case IR_UNARY_ATANH:
        return math_atanh(x);
    case IR_UNARY_IS_NAN:
        return x != x;
    case IR_UNARY_IS_INF:
        return x == x && x - x != x - x && (x < 0 ? a : b) != 0;
    case IR_UNARY_SHRINK:
        return x < -b ? x + a : x > b ? x - a : x != x ? x : 0;
    default:
        return x;
    }
}

/* Computes the function on N values with one branch for all of them. A function of more than an
 * instruction or two is called, with its arguments in registers, so kernels stay small and do not
 * pay for functions that they do not use. */
template <int N, class F> struct math_row {
    F v[N];
};

template <int N, class F>
__device__ __noinline__ math_row<N, F> math_unary_call(int func, math_row<N, F> row, float alpha,
                                                       float beta, float gamma)
{
    F a = alpha, b = beta;
    switch (func) {
#define CASE(number, expr)                                                                         \
    case number:                                                                                   \
        _Pragma("unroll") for (int i = 0; i < N; i++)                                              \
        {                                                                                          \
            F x = row.v[i];                                                                        \
            row.v[i] = expr;                                                                       \
        }                                                                                          \
        break;
        MATH_UNARY_COMMON(CASE)
#undef CASE
    default:
#pragma unroll
        for (int i = 0; i < N; i++)
            row.v[i] = math_unary_rare<F>(func, row.v[i], a, b, (F)gamma);
    }
    return row;
}

template <int N, class F>
__device__ __forceinline__ void math_unary_row(int func, F (&row)[N], float alpha, float beta,
                                               float gamma)
{
    F a = alpha, b = beta;
    if (func == IR_UNARY_RELU) {
#pragma unroll
        for (int i = 0; i < N; i++)
            row[i] = row[i] < 0 ? 0 : row[i];
    } else if (func == IR_UNARY_CLIP) {
#pragma unroll
        for (int i = 0; i < N; i++)
            row[i] = math_clip<F>(row[i], a, b);
    } else if (func == IR_UNARY_LINEAR) {
#pragma unroll
        for (int i = 0; i < N; i++)
            row[i] = a * row[i] + b;
    } else {
        math_row<N, F> all;
#pragma unroll
        for (int i = 0; i < N; i++)
            all.v[i] = row[i];
        all = math_unary_call<N, F>(func, all, alpha, beta, gamma);
#pragma unroll
        for (int i = 0; i < N; i++)
            row[i] = all.v[i];
    }
}

template <class F> __device__ __noinline__ F math_binary_rare(int func, F a, F b)
{
    switch (func) {
    case IR_BINARY_DIV:
        return a / b;
    case IR_BINARY_POW:
        return math_pow(a, b);
    case IR_BINARY_MOD: {
        F r = math_fmod(a, b);
        return r != 0 && (r < 0) != (b < 0) ? r + b : r;
    }
    case IR_BINARY_EQUAL:
        return a == b;
    case IR_BINARY_LESS:
        return a < b;
    case IR_BINARY_LESS_EQUAL:
        return a <= b;
    case IR_BINARY_GREATER:
        return a > b;
    case IR_BINARY_GREATER_EQUAL:
        return a >= b;
    case IR_BINARY_AND:
        return a != 0 && b != 0;
    case IR_BINARY_OR:
        return a != 0 || b != 0;
    case IR_BINARY_XOR:
        return (a != 0) != (b != 0);
    default:
        return a;
    }
}

#define MATH_BINARY_COMMON(CASE)                                                                   \
    CASE(IR_BINARY_ADD, a + b)                                                                     \
    CASE(IR_BINARY_SUB, a - b)                                                                     \
    CASE(IR_BINARY_MUL, a *b)                                                                      \
    CASE(IR_BINARY_MAX, a != a || a > b ? a : b)                                                   \
    CASE(IR_BINARY_MIN, a != a || a < b ? a : b)                                                   \
    CASE(IR_BINARY_PRELU, a < 0 ? a * b : a)

/* The binary functions of floats. Comparisons and logic give 0 or 1; the result of MOD has the
 * divisor's sign. */
template <class F> __device__ __forceinline__ F math_binary(int func, F a, F b)
{
    switch (func) {
#define CASE(number, expr)                                                                         \
    case number:                                                                                   \
        return expr;
        MATH_BINARY_COMMON(CASE)
#undef CASE
    default:
        return math_binary_rare<F>(func, a, b);
    }
}

template <int N, class F>
__device__ __noinline__ math_row<N, F> math_binary_call(int func, math_row<N, F> a,
                                                        math_row<N, F> b)
{
#pragma unroll
    for (int i = 0; i < N; i++)
        a.v[i] = math_binary_rare<F>(func, a.v[i], b.v[i]);
    return a;
}

/* as[i] = func(as[i], bs[i]). */
template <int N, class F>
__device__ __forceinline__ void math_binary_row(int func, F (&as)[N], const F (&bs)[N])
{
    switch (func) {
#define CASE(number, expr)                                                                         \
    case number:                                                                                   \
        _Pragma("unroll") for (int i = 0; i < N; i++)                                              \
        {                                                                                          \
            F a = as[i], b = bs[i];                                                                \
            as[i] = expr;                                                                          \
        }                                                                                          \
        break;
        MATH_BINARY_COMMON(CASE)
#undef CASE
    default: {
        math_row<N, F> a, b;
#pragma unroll
        for (int i = 0; i < N; i++) {
            a.v[i] = as[i];
            b.v[i] = bs[i];
        }
        a = math_binary_call<N, F>(func, a, b);
#pragma unroll
        for (int i = 0; i < N; i++)
            as[i] = a.v[i];
    }
    }
}

#endif
