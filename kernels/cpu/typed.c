/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of typed.h for one instruction set. The build compiles this file several times,
 * with TYPED_TABLE as the table's name. Integers are computed unsigned, so that they wrap around.
 */
#include "kernels/cpu/typed.h"

#include <stdbool.h>

#include "kernels/cpu/fast_inner.h"

/* The C type of each element type. BOOL is a type of its own because any byte but 0 is true. */
typedef uint8_t c_bool, c_u8;
typedef int8_t c_i8;
typedef uint16_t c_u16, c_f16, c_bf16;
typedef int16_t c_i16;
typedef uint32_t c_u32;
typedef int32_t c_i32;
typedef uint64_t c_u64;
typedef int64_t c_i64;
typedef float c_f32;
typedef double c_f64;

#define ROW_OF_1(name, x_type, y_type, expr)                                                       \
    static void name(const void *const operands[TYPED_OPERANDS], void *to, size_t n)               \
    {                                                                                              \
        const x_type *xs = operands[0];                                                            \
        y_type *y = to;                                                                            \
        VECTOR                                                                                     \
        for (size_t i = 0; i < n; i++) {                                                           \
            x_type x = xs[i];                                                                      \
            y[i] = (y_type)(expr);                                                                 \
        }                                                                                          \
    }

#define ROW_OF_2(name, x_type, y_type, expr)                                                       \
    static void name(const void *const operands[TYPED_OPERANDS], void *to, size_t n)               \
    {                                                                                              \
        const x_type *as = operands[0], *bs = operands[1];                                         \
        y_type *y = to;                                                                            \
        VECTOR                                                                                     \
        for (size_t i = 0; i < n; i++) {                                                           \
            x_type a = as[i], b = bs[i];                                                           \
            y[i] = (y_type)(expr);                                                                 \
        }                                                                                          \
    }

/* --- casts --- */

/* A product with 2^112 corrects the exponent, for subnormal numbers too; infinity and NaN keep the
 * highest exponent. */
static inline float wide_of(uint16_t h)
{
    uint32_t bits = (uint32_t)(h & 0x7fff) << 13, sign = (uint32_t)(h & 0x8000) << 16;
    uint32_t scaled = bits_of(float_of(bits) * float_of(0x77800000)); /* 2^112 */
    return float_of(sign | (bits >= 0x0f800000 ? bits | 0x7f800000 : scaled));
}

/* f32_to_f16 of base/dtype.h, without branches. */
static inline uint16_t half_of(float x)
{
    uint32_t bits = bits_of(x), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    uint32_t large = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
    uint32_t small = bits_of(float_of(magnitude) + 0.5F) - bits_of(0.5F);
    uint32_t usual = (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13;
    uint32_t half = magnitude < 0x38800000 ? small : usual;
    return (uint16_t)(sign | (magnitude >= 0x477ff000 ? large : half));
}

static inline uint16_t brain_of(float x)
{
    uint32_t bits = bits_of(x), rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

/* A number that does not fit becomes the smallest one. */
static inline int32_t whole_32(float x)
{
    bool fits = x >= -2147483648.0F && x < 2147483648.0F;
    int32_t whole = (int32_t)(fits ? x : 0);
    return fits ? whole : INT32_MIN;
}

static inline int64_t whole_64(float x)
{
    bool fits = x >= -9223372036854775808.0F && x < 9223372036854775808.0F;
    int64_t whole = (int64_t)(fits ? x : 0);
    return fits ? whole : INT64_MIN;
}

/* Casts from one type to all that it has. Each is CAST(from, to, expression of x). */
#define CAST_INT(CAST, from)                                                                       \
    CAST(from, bool, x != 0)                                                                       \
    CAST(from, u8, x)                                                                              \
    CAST(from, i8, x)                                                                              \
    CAST(from, u16, x)                                                                             \
    CAST(from, i16, x)                                                                             \
    CAST(from, u32, x)                                                                             \
    CAST(from, i32, x)                                                                             \
    CAST(from, u64, x)                                                                             \
    CAST(from, i64, x)                                                                             \
    CAST(from, f32, x)                                                                             \
    CAST(from, f64, x)
#define CAST_BOOL(CAST)                                                                            \
    CAST(bool, bool, x != 0)                                                                       \
    CAST(bool, u8, x != 0)                                                                         \
    CAST(bool, i8, x != 0)                                                                         \
    CAST(bool, u16, x != 0)                                                                        \
    CAST(bool, i16, x != 0)                                                                        \
    CAST(bool, u32, x != 0)                                                                        \
    CAST(bool, i32, x != 0)                                                                        \
    CAST(bool, u64, x != 0)                                                                        \
    CAST(bool, i64, x != 0)                                                                        \
    CAST(bool, f16, x != 0 ? 0x3c00 : 0)                                                           \
    CAST(bool, bf16, x != 0 ? 0x3f80 : 0)                                                          \
    CAST(bool, f32, x != 0 ? 1.0F : 0.0F)                                                          \
    CAST(bool, f64, x != 0 ? 1.0 : 0.0)
/* From a float whose value in fp32 is `value`. */
#define CAST_FLOAT(CAST, from, value)                                                              \
    CAST(from, bool, (value) != 0)                                                                 \
    CAST(from, u8, whole_32(value))                                                                \
    CAST(from, i8, whole_32(value))                                                                \
    CAST(from, u16, whole_32(value))                                                               \
    CAST(from, i16, whole_32(value))                                                               \
    CAST(from, u32, whole_64(value))                                                               \
    CAST(from, i32, whole_32(value))                                                               \
    CAST(from, i64, whole_64(value))                                                               \
    CAST(from, f64, value)
/* Small integers are exact in fp32, so that halves of them are rounded once. */
#define CAST_HALVES(CAST, from, value)                                                             \
    CAST(from, f16, half_of(value))                                                                \
    CAST(from, bf16, brain_of(value))

#define EACH_CAST(CAST)                                                                            \
    CAST_BOOL(CAST)                                                                                \
    CAST_INT(CAST, u8)                                                                             \
    CAST_INT(CAST, i8)                                                                             \
    CAST_INT(CAST, u16)                                                                            \
    CAST_INT(CAST, i16)                                                                            \
    CAST_INT(CAST, i32)                                                                            \
    CAST_INT(CAST, i64)                                                                            \
    CAST_HALVES(CAST, u8, (float)x)                                                                \
    CAST_HALVES(CAST, i8, (float)x)                                                                \
    CAST_HALVES(CAST, u16, (float)x)                                                               \
    CAST_HALVES(CAST, i16, (float)x)                                                               \
    CAST_FLOAT(CAST, f32, x)                                                                       \
    CAST_HALVES(CAST, f32, x)                                                                      \
    CAST_FLOAT(CAST, f16, wide_of(x))                                                              \
    CAST(f16, f32, wide_of(x))                                                                     \
    CAST(f16, bf16, brain_of(wide_of(x)))                                                          \
    CAST_FLOAT(CAST, bf16, float_of((uint32_t)x << 16))                                            \
    CAST(bf16, f32, float_of((uint32_t)x << 16))                                                   \
    CAST(bf16, f16, half_of(float_of((uint32_t)x << 16)))                                          \
    CAST(f64, f32, x)

#define CAST_ROW(from, to, expr) ROW_OF_1(cast_##from##_##to, c_##from, c_##to, expr)
EACH_CAST(CAST_ROW)

/* --- functions of one operand --- */

ROW_OF_1(not_bool, c_bool, c_bool, x == 0)
ROW_OF_1(is_nan_f32, c_f32, c_bool, x != x)
ROW_OF_1(is_inf_f32, c_f32, c_bool, x == INFINITY || x == -INFINITY)
ROW_OF_1(abs_i32, c_i32, c_i32, x < 0 ? 0 - (c_u32)x : (c_u32)x)
ROW_OF_1(abs_i64, c_i64, c_i64, x < 0 ? 0 - (c_u64)x : (c_u64)x)
ROW_OF_1(neg_i32, c_i32, c_i32, 0 - (c_u32)x)
ROW_OF_1(neg_i64, c_i64, c_i64, 0 - (c_u64)x)

/* --- functions of two operands --- */

#define COMPARISONS(type)                                                                          \
    ROW_OF_2(equal_##type, c_##type, c_bool, a == b)                                               \
    ROW_OF_2(less_##type, c_##type, c_bool, a < b)                                                 \
    ROW_OF_2(less_equal_##type, c_##type, c_bool, a <= b)                                          \
    ROW_OF_2(greater_##type, c_##type, c_bool, a > b)                                              \
    ROW_OF_2(greater_equal_##type, c_##type, c_bool, a >= b)
COMPARISONS(u8)
COMPARISONS(i8)
COMPARISONS(i32)
COMPARISONS(i64)
COMPARISONS(f32)
COMPARISONS(f64)

ROW_OF_2(equal_bool, c_bool, c_bool, (a != 0) == (b != 0))
ROW_OF_2(and_bool, c_bool, c_bool, (a != 0) & (b != 0))
ROW_OF_2(or_bool, c_bool, c_bool, (a | b) != 0)
ROW_OF_2(xor_bool, c_bool, c_bool, (a != 0) != (b != 0))

/* `wide` is the unsigned type. x / 0 is 0, and x / -1 wraps around. */
#define ARITHMETIC(type, wide)                                                                     \
    static inline c_##type divide_##type(c_##type a, c_##type b)                                   \
    {                                                                                              \
        return b == 0 ? 0 : b == -1 ? (c_##type)(0 - (wide)a) : a / b;                             \
    }                                                                                              \
    static inline c_##type modulo_##type(c_##type a, c_##type b)                                   \
    {                                                                                              \
        c_##type r = b == 0 || b == -1 ? 0 : a % b;                                                \
        return r != 0 && (r < 0) != (b < 0) ? r + b : r;                                           \
    }                                                                                              \
    ROW_OF_2(add_##type, c_##type, c_##type, (wide)a + (wide)b)                                    \
    ROW_OF_2(sub_##type, c_##type, c_##type, (wide)a - (wide)b)                                    \
    ROW_OF_2(mul_##type, c_##type, c_##type, (wide)a *(wide)b)                                     \
    ROW_OF_2(div_##type, c_##type, c_##type, divide_##type(a, b))                                  \
    ROW_OF_2(mod_##type, c_##type, c_##type, modulo_##type(a, b))                                  \
    ROW_OF_2(max_##type, c_##type, c_##type, a > b ? a : b)                                        \
    ROW_OF_2(min_##type, c_##type, c_##type, a < b ? a : b)
ARITHMETIC(i32, uint32_t)
ARITHMETIC(i64, uint64_t)

/* --- selection --- */

#define SELECT(size, type)                                                                         \
    static void select_##size(const void *const operands[TYPED_OPERANDS], void *to, size_t n)      \
    {                                                                                              \
        const uint8_t *cond = operands[0];                                                         \
        const type *a = operands[1], *b = operands[2];                                             \
        type *y = to;                                                                              \
        VECTOR                                                                                     \
        for (size_t i = 0; i < n; i++)                                                             \
            y[i] = cond[i] ? a[i] : b[i];                                                          \
    }
SELECT(1, uint8_t)
SELECT(2, uint16_t)
SELECT(4, uint32_t)
SELECT(8, uint64_t)

/* --- the table --- */

#define IN_bool DTYPE_BOOL
#define IN_u8   DTYPE_U8
#define IN_i8   DTYPE_I8
#define IN_u16  DTYPE_U16
#define IN_i16  DTYPE_I16
#define IN_u32  DTYPE_U32
#define IN_i32  DTYPE_I32
#define IN_u64  DTYPE_U64
#define IN_i64  DTYPE_I64
#define IN_f16  DTYPE_F16
#define IN_bf16 DTYPE_BF16
#define IN_f32  DTYPE_F32
#define IN_f64  DTYPE_F64

#define CAST_ENTRY(from, to, expr) [IN_##from][IN_##to] = cast_##from##_##to,
#define COMPARED(name)                                                                             \
    [DTYPE_U8] = name##_u8, [DTYPE_I8] = name##_i8, [DTYPE_I32] = name##_i32,                      \
    [DTYPE_I64] = name##_i64, [DTYPE_F32] = name##_f32, [DTYPE_F64] = name##_f64
#define OF_INTS(name)                                                                              \
    {                                                                                              \
        [DTYPE_I32] = name##_i32, [DTYPE_I64] = name##_i64                                         \
    }

extern const struct typed_kernels TYPED_TABLE;

const struct typed_kernels TYPED_TABLE = {
    .unary =
        {
            [IR_UNARY_NOT] = {[DTYPE_BOOL] = not_bool},
            [IR_UNARY_IS_NAN] = {[DTYPE_F32] = is_nan_f32},
            [IR_UNARY_IS_INF] = {[DTYPE_F32] = is_inf_f32},
            [IR_UNARY_ABS] = OF_INTS(abs),
            [IR_UNARY_NEG] = OF_INTS(neg),
        },
    .binary =
        {
            [IR_BINARY_EQUAL] = {COMPARED(equal), [DTYPE_BOOL] = equal_bool},
            [IR_BINARY_LESS] = {COMPARED(less)},
            [IR_BINARY_LESS_EQUAL] = {COMPARED(less_equal)},
            [IR_BINARY_GREATER] = {COMPARED(greater)},
            [IR_BINARY_GREATER_EQUAL] = {COMPARED(greater_equal)},
            [IR_BINARY_AND] = {[DTYPE_BOOL] = and_bool},
            [IR_BINARY_OR] = {[DTYPE_BOOL] = or_bool},
            [IR_BINARY_XOR] = {[DTYPE_BOOL] = xor_bool},
            [IR_BINARY_ADD] = OF_INTS(add),
            [IR_BINARY_SUB] = OF_INTS(sub),
            [IR_BINARY_MUL] = OF_INTS(mul),
            [IR_BINARY_DIV] = OF_INTS(div),
            [IR_BINARY_MOD] = OF_INTS(mod),
            [IR_BINARY_MAX] = OF_INTS(max),
            [IR_BINARY_MIN] = OF_INTS(min),
        },
    .cast = {EACH_CAST(CAST_ENTRY)},
    .select = {[1] = select_1, [2] = select_2, [4] = select_4, [8] = select_8},
};
