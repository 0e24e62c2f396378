/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Numbers of any type, chosen at run time, through float, double or int64; for kernels that take
 * all types. Conversions are those of kernels/cpu/number.c, and integer functions those of
 * kernels/cpu/unary.c and binary.c. uint64 travels in int64 bit for bit.
 */
#ifndef INFERD_KERNELS_CUDA_NUMBER_CUH
#define INFERD_KERNELS_CUDA_NUMBER_CUH

#include "base/op_enums.h"
#include "kernels/cuda/device.cuh"

__host__ __device__ inline bool number_is_float(int dtype)
{
    return (dtype >= DTYPE_F16 && dtype <= DTYPE_F64) || dtype == DTYPE_F8;
}

#define NUMBER_CASES(CASE)                                                                         \
    CASE(DTYPE_BOOL, boolean)                                                                      \
    CASE(DTYPE_U8, uint8_t)                                                                        \
    CASE(DTYPE_U16, uint16_t)                                                                      \
    CASE(DTYPE_U32, uint32_t)                                                                      \
    CASE(DTYPE_U64, uint64_t)                                                                      \
    CASE(DTYPE_I8, int8_t)                                                                         \
    CASE(DTYPE_I16, int16_t)                                                                       \
    CASE(DTYPE_I32, int32_t)                                                                       \
    CASE(DTYPE_I64, int64_t)                                                                       \
    CASE(DTYPE_F8, f8_t)                                                                           \
    CASE(DTYPE_F16, half_t)                                                                        \
    CASE(DTYPE_BF16, bf16_t)                                                                       \
    CASE(DTYPE_F32, float)                                                                         \
    CASE(DTYPE_F64, double)

/* C is float or double. */
template <class C> __device__ inline C number_get(int dtype, const void *data, int64_t i)
{
    switch (dtype) {
#define CASE(number, type)                                                                         \
    case number:                                                                                   \
        return number_to<C, type>(static_cast<const type *>(data)[i]);
        NUMBER_CASES(CASE)
#undef CASE
    default:
        return 0;
    }
}

template <class C> __device__ inline void number_put(int dtype, void *data, int64_t i, C value)
{
    switch (dtype) {
#define CASE(number, type)                                                                         \
    case number:                                                                                   \
        static_cast<type *>(data)[i] = number_from<type>(value);                                   \
        break;
        NUMBER_CASES(CASE)
#undef CASE
    default:
        break;
    }
}

/* Floats are converted as a cast to int64 does it. */
template <> __device__ inline int64_t number_get<int64_t>(int dtype, const void *data, int64_t i)
{
    switch (dtype) {
    case DTYPE_BOOL:
        return static_cast<const uint8_t *>(data)[i] != 0;
    case DTYPE_U8:
        return static_cast<const uint8_t *>(data)[i];
    case DTYPE_U16:
        return static_cast<const uint16_t *>(data)[i];
    case DTYPE_U32:
        return static_cast<const uint32_t *>(data)[i];
    case DTYPE_U64:
    case DTYPE_I64:
        return static_cast<const int64_t *>(data)[i];
    case DTYPE_I8:
        return static_cast<const int8_t *>(data)[i];
    case DTYPE_I16:
        return static_cast<const int16_t *>(data)[i];
    case DTYPE_I32:
        return static_cast<const int32_t *>(data)[i];
    default:
        return number_truncate_64(number_get<double>(dtype, data, i));
    }
}

template <> __device__ inline void number_put<int64_t>(int dtype, void *data, int64_t i, int64_t v)
{
    switch (dtype) {
    case DTYPE_BOOL:
        static_cast<uint8_t *>(data)[i] = v != 0;
        break;
    case DTYPE_U8:
    case DTYPE_I8:
        static_cast<uint8_t *>(data)[i] = (uint8_t)(uint64_t)v;
        break;
    case DTYPE_U16:
    case DTYPE_I16:
        static_cast<uint16_t *>(data)[i] = (uint16_t)(uint64_t)v;
        break;
    case DTYPE_U32:
    case DTYPE_I32:
        static_cast<uint32_t *>(data)[i] = (uint32_t)(uint64_t)v;
        break;
    case DTYPE_U64:
    case DTYPE_I64:
        static_cast<int64_t *>(data)[i] = v;
        break;
    case DTYPE_F32:
        static_cast<float *>(data)[i] = (float)v;
        break;
    default:
        number_put<double>(dtype, data, i, (double)v);
    }
}

/* --- integer functions --- */

/* Whether a unary function is computed on integers; others go through floats. */
inline bool number_int_unary_known(int func)
{
    switch (func) {
    case IR_UNARY_IDENTITY:
    case IR_UNARY_RELU:
    case IR_UNARY_CLIP:
    case IR_UNARY_ABS:
    case IR_UNARY_NEG:
    case IR_UNARY_SIGN:
    case IR_UNARY_FLOOR:
    case IR_UNARY_CEIL:
    case IR_UNARY_ROUND:
    case IR_UNARY_NOT:
    case IR_UNARY_BITWISE_NOT:
        return true;
    default:
        return false;
    }
}

__device__ inline int64_t number_clip(int64_t x, float a, float b)
{
    double l = ceil((double)a), h = floor((double)b);
    int64_t low = !(l > -0x1p63) ? INT64_MIN : l >= 0x1p63 ? INT64_MAX : (int64_t)l;
    int64_t high = !(h > -0x1p63) ? INT64_MIN : h >= 0x1p63 ? INT64_MAX : (int64_t)h;
    x = x < low ? low : x;
    return x > high ? high : x;
}

__device__ inline uint64_t number_clip_u64(uint64_t x, float a, float b)
{
    uint64_t low = !(a > 0) ? 0 : a >= 0x1p64f ? UINT64_MAX : (uint64_t)ceil((double)a);
    uint64_t high = !(b > 0) ? 0 : b >= 0x1p64f ? UINT64_MAX : (uint64_t)b;
    x = x < low ? low : x;
    return x > high ? high : x;
}

__device__ inline int64_t number_int_unary(int func, bool u64, int64_t x, float a, float b)
{
    switch (func) {
    case IR_UNARY_RELU:
        return u64 || x > 0 ? x : 0;
    case IR_UNARY_CLIP:
        return u64 ? (int64_t)number_clip_u64((uint64_t)x, a, b) : number_clip(x, a, b);
    case IR_UNARY_ABS:
        return u64 || x > 0 ? x : (int64_t)(0 - (uint64_t)x);
    case IR_UNARY_NEG:
        return (int64_t)(0 - (uint64_t)x);
    case IR_UNARY_SIGN:
        return u64 ? x != 0 : (x > 0) - (x < 0);
    case IR_UNARY_NOT:
        return x == 0;
    case IR_UNARY_BITWISE_NOT:
        return ~x;
    default:
        return x;
    }
}

/* Wraps around; a negative exponent gives the truncated quotient. */
__device__ inline int64_t number_int_pow(int64_t a, int64_t b)
{
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    uint64_t base = (uint64_t)a, r = 1;
    for (; b; b >>= 1, base *= base)
        if (b & 1)
            r *= base;
    return (int64_t)r;
}

__device__ inline int64_t number_int_mod(bool fmod, int64_t a, int64_t b)
{
    int64_t r = b == 0 || b == -1 ? 0 : a % b;
    return !fmod && r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* Computes the functions in which uint64 differs from int64. */
__device__ inline bool number_u64_binary(int func, uint64_t a, uint64_t b, int64_t *out)
{
    switch (func) {
    case IR_BINARY_DIV:
        *out = (int64_t)(b ? a / b : 0);
        return true;
    case IR_BINARY_MAX:
        *out = (int64_t)(a > b ? a : b);
        return true;
    case IR_BINARY_MIN:
        *out = (int64_t)(a < b ? a : b);
        return true;
    case IR_BINARY_PRELU:
        *out = (int64_t)a;
        return true;
    case IR_BINARY_MOD:
        *out = (int64_t)(b ? a % b : 0);
        return true;
    case IR_BINARY_LESS:
        *out = a < b;
        return true;
    case IR_BINARY_LESS_EQUAL:
        *out = a <= b;
        return true;
    case IR_BINARY_GREATER:
        *out = a > b;
        return true;
    case IR_BINARY_GREATER_EQUAL:
        *out = a >= b;
        return true;
    default:
        return false;
    }
}

__device__ inline int64_t number_int_binary(int func, bool fmod, bool u64, int64_t a, int64_t b)
{
    uint64_t ua = (uint64_t)a, ub = (uint64_t)b;
    int64_t out;
    if (u64 && number_u64_binary(func, ua, ub, &out))
        return out;
    switch (func) {
    case IR_BINARY_ADD:
        return (int64_t)(ua + ub);
    case IR_BINARY_SUB:
        return (int64_t)(ua - ub);
    case IR_BINARY_MUL:
        return (int64_t)(ua * ub);
    case IR_BINARY_DIV:
        return b == 0 ? 0 : b == -1 ? (int64_t)(0 - ua) : a / b;
    case IR_BINARY_MAX:
        return a > b ? a : b;
    case IR_BINARY_MIN:
        return a < b ? a : b;
    case IR_BINARY_POW:
        return number_int_pow(a, b);
    case IR_BINARY_PRELU:
        return a < 0 ? (int64_t)(ua * ub) : a;
    case IR_BINARY_MOD:
        return number_int_mod(fmod, a, b);
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
        return a && b;
    case IR_BINARY_OR:
        return a || b;
    case IR_BINARY_XOR:
        return !a != !b;
    case IR_BINARY_SHIFT_LEFT:
        return ub < 64 ? (int64_t)(ua << ub) : 0;
    case IR_BINARY_SHIFT_RIGHT:
        return ub < 64 ? (int64_t)(ua >> ub) : 0;
    case IR_BINARY_BITWISE_AND:
        return a & b;
    case IR_BINARY_BITWISE_OR:
        return a | b;
    case IR_BINARY_BITWISE_XOR:
        return a ^ b;
    default:
        return a;
    }
}

#endif
