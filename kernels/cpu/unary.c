/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of one number, element by element. NaN goes through every one of them as in numpy. */
#include <math.h>

#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"

/* Each works in place on a row. a, b, g: alpha, beta, gamma. */
typedef void (*float_row)(double *row, size_t n, double a, double b, double g);
typedef void (*int_row)(int64_t *row, size_t n, double a, double b);

#define FLOAT(name, expr)                                                                          \
    static void name(double *row, size_t n, double a UNUSED, double b UNUSED, double g UNUSED)     \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            double x = row[i];                                                                     \
            row[i] = (expr);                                                                       \
        }                                                                                          \
    }

#define INT(name, expr)                                                                            \
    static void name(int64_t *row, size_t n, double a UNUSED, double b UNUSED)                     \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            int64_t x = row[i];                                                                    \
            row[i] = (expr);                                                                       \
        }                                                                                          \
    }

static double clip(double x, double low, double high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double sign(double x)
{
    return x > 0 ? 1 : x < 0 ? -1 : x; /* zeros and NaN stay as they are */
}

static double shrink(double x, double bias, double lambda)
{
    return x < -lambda ? x + bias : x > lambda ? x - bias : isnan(x) ? x : 0;
}

/* clang-format off */
FLOAT(f_identity, x)
FLOAT(f_relu, x < 0 ? 0 : x)
FLOAT(f_leaky_relu, x < 0 ? a * x : x)
FLOAT(f_elu, x < 0 ? a * expm1(x) : x)
FLOAT(f_selu, g * (x < 0 ? a * expm1(x) : x))
FLOAT(f_celu, x < 0 ? a * expm1(x / a) : x)
FLOAT(f_sigmoid, sigmoid(x))
FLOAT(f_hard_sigmoid, clip(a * x + b, 0, 1))
FLOAT(f_hard_swish, x * clip(x / 6 + 0.5, 0, 1))
FLOAT(f_swish, x * sigmoid(a * x))
FLOAT(f_tanh, tanh(x))
FLOAT(f_softplus, softplus(x))
FLOAT(f_softsign, x / (1 + fabs(x)))
FLOAT(f_thresholded_relu, x > a || isnan(x) ? x : 0)
FLOAT(f_gelu, 0.5 * x * (1 + erf(x * M_SQRT1_2)))
FLOAT(f_gelu_tanh, 0.5 * x * (1 + tanh(sqrt(M_2_PI) * (x + 0.044715 * x * x * x))))
FLOAT(f_mish, x * tanh(softplus(x)))
FLOAT(f_clip, clip(x, a, b))
FLOAT(f_linear, a * x + b)
FLOAT(f_abs, fabs(x))
FLOAT(f_neg, -x)
FLOAT(f_exp, exp(x))
FLOAT(f_log, log(x))
FLOAT(f_sqrt, sqrt(x))
FLOAT(f_reciprocal, 1 / x)
FLOAT(f_erf, erf(x))
FLOAT(f_floor, floor(x))
FLOAT(f_ceil, ceil(x))
FLOAT(f_round, nearbyint(x)) /* the default rounding mode: half to even */
FLOAT(f_sign, sign(x))
FLOAT(f_not, x == 0)
FLOAT(f_sin, sin(x))
FLOAT(f_cos, cos(x))
FLOAT(f_tan, tan(x))
FLOAT(f_asin, asin(x))
FLOAT(f_acos, acos(x))
FLOAT(f_atan, atan(x))
FLOAT(f_sinh, sinh(x))
FLOAT(f_cosh, cosh(x))
FLOAT(f_asinh, asinh(x))
FLOAT(f_acosh, acosh(x))
FLOAT(f_atanh, atanh(x))
FLOAT(f_is_nan, isnan(x) ? 1 : 0)
FLOAT(f_is_inf, isinf(x) && (x < 0 ? a : b) != 0)
FLOAT(f_shrink, shrink(x, a, b))
/* clang-format on */

static const float_row float_rows[IR_UNARY_COUNT_] = {
    [IR_UNARY_IDENTITY] = f_identity,
    [IR_UNARY_RELU] = f_relu,
    [IR_UNARY_LEAKY_RELU] = f_leaky_relu,
    [IR_UNARY_ELU] = f_elu,
    [IR_UNARY_SELU] = f_selu,
    [IR_UNARY_CELU] = f_celu,
    [IR_UNARY_SIGMOID] = f_sigmoid,
    [IR_UNARY_HARD_SIGMOID] = f_hard_sigmoid,
    [IR_UNARY_HARD_SWISH] = f_hard_swish,
    [IR_UNARY_SWISH] = f_swish,
    [IR_UNARY_TANH] = f_tanh,
    [IR_UNARY_SOFTPLUS] = f_softplus,
    [IR_UNARY_SOFTSIGN] = f_softsign,
    [IR_UNARY_THRESHOLDED_RELU] = f_thresholded_relu,
    [IR_UNARY_GELU] = f_gelu,
    [IR_UNARY_GELU_TANH] = f_gelu_tanh,
    [IR_UNARY_MISH] = f_mish,
    [IR_UNARY_CLIP] = f_clip,
    [IR_UNARY_LINEAR] = f_linear,
    [IR_UNARY_ABS] = f_abs,
    [IR_UNARY_NEG] = f_neg,
    [IR_UNARY_EXP] = f_exp,
    [IR_UNARY_LOG] = f_log,
    [IR_UNARY_SQRT] = f_sqrt,
    [IR_UNARY_RECIPROCAL] = f_reciprocal,
    [IR_UNARY_ERF] = f_erf,
    [IR_UNARY_FLOOR] = f_floor,
    [IR_UNARY_CEIL] = f_ceil,
    [IR_UNARY_ROUND] = f_round,
    [IR_UNARY_SIGN] = f_sign,
    [IR_UNARY_NOT] = f_not,
    [IR_UNARY_SIN] = f_sin,
    [IR_UNARY_COS] = f_cos,
    [IR_UNARY_TAN] = f_tan,
    [IR_UNARY_ASIN] = f_asin,
    [IR_UNARY_ACOS] = f_acos,
    [IR_UNARY_ATAN] = f_atan,
    [IR_UNARY_SINH] = f_sinh,
    [IR_UNARY_COSH] = f_cosh,
    [IR_UNARY_ASINH] = f_asinh,
    [IR_UNARY_ACOSH] = f_acosh,
    [IR_UNARY_ATANH] = f_atanh,
    [IR_UNARY_IS_NAN] = f_is_nan,
    [IR_UNARY_IS_INF] = f_is_inf,
    [IR_UNARY_SHRINK] = f_shrink,
    [IR_UNARY_BITWISE_NOT] = f_identity, /* integers only */
};

/* The int64 nearest to a bound that was given as a float. */
static int64_t bound(double value)
{
    return !(value > -0x1p63) ? INT64_MIN : value >= 0x1p63 ? INT64_MAX : (int64_t)value;
}

static void i_clip(int64_t *row, size_t n, double a, double b)
{
    int64_t low = bound(ceil(a)), high = bound(floor(b));
    for (size_t i = 0; i < n; i++) {
        int64_t x = row[i] < low ? low : row[i];
        row[i] = x > high ? high : x;
    }
}

INT(i_identity, x)
INT(i_relu, x < 0 ? 0 : x)
INT(i_abs, x < 0 ? (int64_t)(0 - (uint64_t)x) : x)
INT(i_neg, (int64_t)(0 - (uint64_t)x))
INT(i_sign, (x > 0) - (x < 0))
INT(i_not, x == 0)
INT(i_bitwise_not, ~x)

/* Functions without a row here are computed in double. */
static const int_row int_rows[IR_UNARY_COUNT_] = {
    [IR_UNARY_IDENTITY] = i_identity,
    [IR_UNARY_RELU] = i_relu,
    [IR_UNARY_CLIP] = i_clip,
    [IR_UNARY_ABS] = i_abs,
    [IR_UNARY_NEG] = i_neg,
    [IR_UNARY_SIGN] = i_sign,
    [IR_UNARY_FLOOR] = i_identity,
    [IR_UNARY_CEIL] = i_identity,
    [IR_UNARY_ROUND] = i_identity,
    [IR_UNARY_NOT] = i_not,
    [IR_UNARY_BITWISE_NOT] = i_bitwise_not,
};

/* From 2^63 on a uint64 looks negative in an int64 row, so these functions have versions for
 * uint64. */
INT(u_sign, x != 0)

static void u_clip(int64_t *row, size_t n, double a, double b)
{
    uint64_t low = !(a > 0) ? 0 : a >= 0x1p64 ? UINT64_MAX : (uint64_t)ceil(a);
    uint64_t high = !(b > 0) ? 0 : b >= 0x1p64 ? UINT64_MAX : (uint64_t)b;
    for (size_t i = 0; i < n; i++) {
        uint64_t x = (uint64_t)row[i] < low ? low : (uint64_t)row[i];
        row[i] = (int64_t)(x > high ? high : x);
    }
}

static int_row int_row_for(enum ir_unary func, enum dtype dtype)
{
    if (dtype_is_float(dtype))
        return NULL;
    if (dtype == DTYPE_U64 && (func == IR_UNARY_RELU || func == IR_UNARY_ABS))
        return i_identity;
    if (dtype == DTYPE_U64 && func == IR_UNARY_SIGN)
        return u_sign;
    if (dtype == DTYPE_U64 && func == IR_UNARY_CLIP)
        return u_clip;
    return int_rows[func];
}

void ref_unary(enum ir_unary func, double alpha, double beta, double gamma,
               const struct tensor_view *x, const struct tensor_view *y)
{
    int64_t n = 0;
    size_t total;
    if (func == IR_UNARY_IDENTITY && x->dtype == y->dtype) { /* bit for bit */
        ref_copy(x, y);
        return;
    }
    if (shape_elements(&x->shape, &total))
        n = (int64_t)total;
    int_row ints = int_row_for(func, x->dtype);
    union {
        double f[REF_ROW];
        int64_t i[REF_ROW];
    } row;
    for (int64_t at = 0; at < n; at += REF_ROW) {
        size_t part = (size_t)MIN(n - at, REF_ROW);
        if (ints) {
            ref_read_i64(x->dtype, x->data, at, 1, part, row.i);
            ints(row.i, part, alpha, beta);
            ref_write_i64(y->dtype, y->data, at, 1, part, row.i);
        } else {
            ref_read_f64(x->dtype, x->data, at, 1, part, row.f);
            float_rows[func](row.f, part, alpha, beta, gamma);
            ref_write_f64(y->dtype, y->data, at, 1, part, row.f);
        }
    }
}
