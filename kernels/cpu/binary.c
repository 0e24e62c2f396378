/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of two numbers with broadcasting, and SELECT. */
#include <math.h>

#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

/* y[i] = f(a[i], b[i]); y may be a. Comparisons give 0 or 1. */
typedef void (*float_row)(const double *a, const double *b, double *y, size_t n);
typedef void (*int_row)(const int64_t *a, const int64_t *b, int64_t *y, size_t n);

#define FLOAT(name, expr)                                                                          \
    static void name(const double *as, const double *bs, double *ys, size_t n)                     \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            double a = as[i], b = bs[i];                                                           \
            ys[i] = (expr);                                                                        \
        }                                                                                          \
    }

#define INT_OF(type, name, expr)                                                                   \
    static void name(const int64_t *as, const int64_t *bs, int64_t *ys, size_t n)                  \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            type a UNUSED = (type)as[i], b UNUSED = (type)bs[i];                                   \
            ys[i] = (int64_t)(expr);                                                               \
        }                                                                                          \
    }
#define SIGNED(name, expr)   INT_OF(int64_t, name, expr)
#define UNSIGNED(name, expr) INT_OF(uint64_t, name, expr)

static double maximum(double a, double b)
{
    return isnan(a) || a > b ? a : b;
}

static double minimum(double a, double b)
{
    return isnan(a) || a < b ? a : b;
}

/* The remainder with the divisor's sign. */
static double modulo(double a, double b)
{
    double r = fmod(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* clang-format off */
FLOAT(f_add, a + b)
FLOAT(f_sub, a - b)
FLOAT(f_mul, a * b)
FLOAT(f_div, a / b)
FLOAT(f_max, maximum(a, b))
FLOAT(f_min, minimum(a, b))
FLOAT(f_pow, pow(a, b))
FLOAT(f_prelu, a < 0 ? a * b : a)
FLOAT(f_mod, modulo(a, b))
FLOAT(f_fmod, fmod(a, b))
FLOAT(f_equal, a == b)
FLOAT(f_less, a < b)
FLOAT(f_less_equal, a <= b)
FLOAT(f_greater, a > b)
FLOAT(f_greater_equal, a >= b)
/* clang-format on */

/* Functions without a row here work on integers only. */
static const float_row float_rows[IR_BINARY_COUNT_] = {
    [IR_BINARY_ADD] = f_add,         [IR_BINARY_SUB] = f_sub,
    [IR_BINARY_MUL] = f_mul,         [IR_BINARY_DIV] = f_div,
    [IR_BINARY_MAX] = f_max,         [IR_BINARY_MIN] = f_min,
    [IR_BINARY_POW] = f_pow,         [IR_BINARY_PRELU] = f_prelu,
    [IR_BINARY_MOD] = f_mod,         [IR_BINARY_EQUAL] = f_equal,
    [IR_BINARY_LESS] = f_less,       [IR_BINARY_LESS_EQUAL] = f_less_equal,
    [IR_BINARY_GREATER] = f_greater, [IR_BINARY_GREATER_EQUAL] = f_greater_equal,
};

static int64_t divide(int64_t a, int64_t b)
{
    if (b == 0)
        return 0;
    return b == -1 ? (int64_t)(0 - (uint64_t)a) : a / b;
}

static int64_t remainder_of(int64_t a, int64_t b)
{
    return b == 0 || b == -1 ? 0 : a % b;
}

static int64_t modulo_int(int64_t a, int64_t b)
{
    int64_t r = remainder_of(a, b);
    return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

/* An integer power, which wraps around. A negative exponent gives the truncated quotient. */
static int64_t power(int64_t a, int64_t b)
{
    if (b < 0)
        return a == 1 ? 1 : a == -1 ? (b % 2 ? -1 : 1) : 0;
    uint64_t base = (uint64_t)a, r = 1;
    for (; b; b >>= 1, base *= base)
        if (b & 1)
            r *= base;
    return (int64_t)r;
}

/* clang-format off */
UNSIGNED(i_add, a + b)
UNSIGNED(i_sub, a - b)
UNSIGNED(i_mul, a * b)
UNSIGNED(i_equal, a == b)
UNSIGNED(i_and, a && b)
UNSIGNED(i_or, a || b)
UNSIGNED(i_xor, !a != !b)
UNSIGNED(i_shift_left, b < 64 ? a << b : 0)
UNSIGNED(i_shift_right, b < 64 ? a >> b : 0)
UNSIGNED(i_bitwise_and, a & b)
UNSIGNED(i_bitwise_or, a | b)
UNSIGNED(i_bitwise_xor, a ^ b)
SIGNED(i_div, divide(a, b))
SIGNED(i_max, a > b ? a : b)
SIGNED(i_min, a < b ? a : b)
SIGNED(i_pow, power(a, b))
SIGNED(i_prelu, a < 0 ? (int64_t)((uint64_t)a * (uint64_t)b) : a)
SIGNED(i_mod, modulo_int(a, b))
SIGNED(i_fmod, remainder_of(a, b))
SIGNED(i_less, a < b)
SIGNED(i_less_equal, a <= b)
SIGNED(i_greater, a > b)
SIGNED(i_greater_equal, a >= b)
UNSIGNED(u_div, b ? a / b : 0)
UNSIGNED(u_max, a > b ? a : b)
UNSIGNED(u_min, a < b ? a : b)
UNSIGNED(u_prelu, a)
UNSIGNED(u_mod, b ? a % b : 0)
UNSIGNED(u_less, a < b)
UNSIGNED(u_less_equal, a <= b)
UNSIGNED(u_greater, a > b)
UNSIGNED(u_greater_equal, a >= b)
/* clang-format on */

static const int_row int_rows[IR_BINARY_COUNT_] = {
    [IR_BINARY_ADD] = i_add,
    [IR_BINARY_SUB] = i_sub,
    [IR_BINARY_MUL] = i_mul,
    [IR_BINARY_DIV] = i_div,
    [IR_BINARY_MAX] = i_max,
    [IR_BINARY_MIN] = i_min,
    [IR_BINARY_POW] = i_pow,
    [IR_BINARY_PRELU] = i_prelu,
    [IR_BINARY_MOD] = i_mod,
    [IR_BINARY_EQUAL] = i_equal,
    [IR_BINARY_LESS] = i_less,
    [IR_BINARY_LESS_EQUAL] = i_less_equal,
    [IR_BINARY_GREATER] = i_greater,
    [IR_BINARY_GREATER_EQUAL] = i_greater_equal,
    [IR_BINARY_AND] = i_and,
    [IR_BINARY_OR] = i_or,
    [IR_BINARY_XOR] = i_xor,
    [IR_BINARY_SHIFT_LEFT] = i_shift_left,
    [IR_BINARY_SHIFT_RIGHT] = i_shift_right,
    [IR_BINARY_BITWISE_AND] = i_bitwise_and,
    [IR_BINARY_BITWISE_OR] = i_bitwise_or,
    [IR_BINARY_BITWISE_XOR] = i_bitwise_xor,
};

/* Functions that differ for uint64. */
static const int_row u64_rows[IR_BINARY_COUNT_] = {
    [IR_BINARY_DIV] = u_div,
    [IR_BINARY_MAX] = u_max,
    [IR_BINARY_MIN] = u_min,
    [IR_BINARY_PRELU] = u_prelu,
    [IR_BINARY_MOD] = u_mod,
    [IR_BINARY_LESS] = u_less,
    [IR_BINARY_LESS_EQUAL] = u_less_equal,
    [IR_BINARY_GREATER] = u_greater,
    [IR_BINARY_GREATER_EQUAL] = u_greater_equal,
};

static float_row float_row_for(enum ir_binary func, bool truncate)
{
    return func == IR_BINARY_MOD && truncate ? f_fmod : float_rows[func];
}

static int_row int_row_for(enum ir_binary func, bool truncate, enum dtype dtype)
{
    if (dtype == DTYPE_U64 && u64_rows[func])
        return u64_rows[func];
    return func == IR_BINARY_MOD && truncate ? i_fmod : int_rows[func];
}

void ref_binary(enum ir_binary func, bool truncate, const struct tensor_view *a,
                const struct tensor_view *b, const struct tensor_view *y)
{
    bool floats = (dtype_is_float(a->dtype) || dtype_is_float(b->dtype)) && float_rows[func];
    float_row in_f64 = float_row_for(func, truncate);
    int_row in_i64 = int_row_for(func, truncate, a->dtype);
    int64_t strides[3][SHAPE_MAX_RANK];
    shape_strides(&y->shape, strides[0]);
    ref_broadcast_strides(&a->shape, &y->shape, strides[1]);
    ref_broadcast_strides(&b->shape, &y->shape, strides[2]);
    union {
        double f[REF_ROW];
        int64_t i[REF_ROW];
    } ra, rb;

    struct ref_walk w;
    for (bool row = ref_walk_init(&w, &y->shape, 3, strides); row; row = ref_walk_next(&w))
        for (int64_t at = 0; at < w.row; at += REF_ROW) {
            size_t n = (size_t)MIN(w.row - at, REF_ROW);
            int64_t ya = w.at[0] + at, aa = w.at[1] + at * w.step[1];
            int64_t ba = w.at[2] + at * w.step[2];
            if (floats) {
                ref_read_f64(a->dtype, a->data, aa, w.step[1], n, ra.f);
                ref_read_f64(b->dtype, b->data, ba, w.step[2], n, rb.f);
                in_f64(ra.f, rb.f, ra.f, n);
                ref_write_f64(y->dtype, y->data, ya, 1, n, ra.f);
            } else {
                ref_read_i64(a->dtype, a->data, aa, w.step[1], n, ra.i);
                ref_read_i64(b->dtype, b->data, ba, w.step[2], n, rb.i);
                in_i64(ra.i, rb.i, ra.i, n);
                ref_write_i64(y->dtype, y->data, ya, 1, n, ra.i);
            }
        }
}

void ref_select(const struct tensor_view *cond, const struct tensor_view *a,
                const struct tensor_view *b, const struct tensor_view *y)
{
    int64_t strides[4][SHAPE_MAX_RANK];
    shape_strides(&y->shape, strides[0]);
    ref_broadcast_strides(&cond->shape, &y->shape, strides[1]);
    ref_broadcast_strides(&a->shape, &y->shape, strides[2]);
    ref_broadcast_strides(&b->shape, &y->shape, strides[3]);
    int64_t size = (int64_t)dtype_size(y->dtype);
    const char *pick = cond->data, *from_a = a->data, *from_b = b->data;
    char *to = y->data;

    struct ref_walk w;
    for (bool row = ref_walk_init(&w, &y->shape, 4, strides); row; row = ref_walk_next(&w))
        for (int64_t i = 0; i < w.row; i++) {
            const char *from = pick[w.at[1] + i * w.step[1]]
                                   ? from_a + (w.at[2] + i * w.step[2]) * size
                                   : from_b + (w.at[3] + i * w.step[3]) * size;
            memcpy(to + (w.at[0] + i) * size, from, (size_t)size);
        }
}
