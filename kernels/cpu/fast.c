/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The rows of fast.h for one instruction set. The build compiles this file several times, with
 * FAST_TABLE as the table's name. Loops are simple enough to vectorise; `omp simd` says that their
 * iterations are independent, and is all that is used of OpenMP.
 *
 * exp, erf and tanh are polynomials fitted to a relative error of 5e-8 or less on their ranges. No
 * float is converted to an integer that might not hold it, so NaN and infinity take the same path
 * as numbers.
 */
#include "kernels/cpu/fast.h"

#include "kernels/cpu/bytes.h"
#include "kernels/cpu/fast_inner.h"
#include "kernels/cpu/typed.h"

/* exp(a^2) erfc(a) as a polynomial in 1 / (1 + 0.4 a), for a >= 0. */
static inline float erfc_scaled(float a)
{
    float t = 1.0F / (1.0F + 0.4F * a);
    float p = 0.0286956668F;
    p = p * t - 0.0747484984F;
    p = p * t - 0.0636874904F;
    p = p * t + 0.275789878F;
    p = p * t - 0.0685681385F;
    p = p * t + 0.268638335F;
    p = p * t + 0.177416115F;
    p = p * t + 0.231355184F;
    p = p * t + 0.225082573F;
    return p * t + 2.64053479e-5F;
}

static inline float erf_of(float x)
{
    float s = x * x, a = fabsf(x);
    float p = 7.85385945e-5F; /* erf(x) / x for |x| < 1 */
    p = p * s - 8.01019319e-4F;
    p = p * s + 0.00518832766F;
    p = p * s - 0.0268538119F;
    p = p * s + 0.112835851F;
    p = p * s - 0.376126258F;
    p = p * s + 1.12837917F;
    float tail = copysignf(1.0F - exp_of(-s) * erfc_scaled(a), x);
    return a < 1.0F ? x * p : tail;
}

/* x/2 (1 + erf(x / sqrt 2)), through erfc so that the negative tail keeps its digits. */
static inline float gelu_of(float x)
{
    float a = fabsf(x) * 0.707106781F;
    float tail = 0.5F * x * exp_of(-a * a) * erfc_scaled(a);
    return x < 0 ? tail : x - (x > 1e30F ? 0.0F : tail); /* infinity times 0 is NaN */
}

static inline float sigmoid_of(float x)
{
    return 1.0F / (1.0F + exp_of(-x));
}

static inline float tanh_of(float x)
{
    float s = x * x;
    float p = -0.00560273828F; /* tanh(x) / x for |x| < 0.63 */
    p = p * s + 0.0205399365F;
    p = p * s - 0.0537053201F;
    p = p * s + 0.133309322F;
    p = p * s - 0.333332522F;
    p = p * s + 1.0F;
    float tail = copysignf(1.0F - 2.0F / (exp_of(2.0F * fabsf(x)) + 1.0F), x);
    return fabsf(x) < 0.63F ? x * p : tail;
}

static inline float clip_of(float x, float low, float high)
{
    x = x < low ? low : x;
    return x > high ? high : x;
}

/* --- elementwise --- */

#define UNARY(name, expr)                                                                          \
    static void name(const float *x, float *y, size_t n, float a UNUSED, float b UNUSED)           \
    {                                                                                              \
        VECTOR                                                                                     \
        for (size_t i = 0; i < n; i++) {                                                           \
            float v = x[i];                                                                        \
            y[i] = (expr);                                                                         \
        }                                                                                          \
    }

/* clang-format off */
UNARY(u_relu, v < 0 ? 0 : v)
UNARY(u_leaky_relu, v < 0 ? a * v : v)
UNARY(u_sigmoid, sigmoid_of(v))
UNARY(u_hard_sigmoid, clip_of(a * v + b, 0, 1))
UNARY(u_hard_swish, v * clip_of(v * (1.0F / 6) + 0.5F, 0, 1))
UNARY(u_swish, v * sigmoid_of(a * v))
UNARY(u_tanh, tanh_of(v))
UNARY(u_gelu, gelu_of(v))
/* (1 + tanh u) / 2 is sigmoid 2u, which keeps its digits where it is small. */
UNARY(u_gelu_tanh, v * sigmoid_of(1.59576912F * (v + 0.044715F * v * v * v)))
UNARY(u_clip, clip_of(v, a, b))
UNARY(u_linear, a * v + b)
UNARY(u_abs, fabsf(v))
UNARY(u_neg, -v)
UNARY(u_exp, exp_of(v))
UNARY(u_sqrt, sqrtf(v))
UNARY(u_reciprocal, 1.0F / v)
UNARY(u_erf, erf_of(v))
/* clang-format on */

/* Functions of the C library, and those that only some instruction sets have vectors for. */
#define SCALAR(name, expr)                                                                         \
    static void name(const float *x, float *y, size_t n, float a UNUSED, float b UNUSED)           \
    {                                                                                              \
        for (size_t i = 0; i < n; i++) {                                                           \
            float v = x[i];                                                                        \
            y[i] = (expr);                                                                         \
        }                                                                                          \
    }

/* clang-format off */
SCALAR(u_floor, floorf(v))
SCALAR(u_ceil, ceilf(v))
SCALAR(u_round, nearbyintf(v))
SCALAR(u_sign, v > 0 ? 1 : v < 0 ? -1 : v)
SCALAR(u_log, logf(v))
SCALAR(u_sin, sinf(v))
SCALAR(u_cos, cosf(v))
SCALAR(u_softplus, (v > 0 ? v : 0) + log1pf(expf(-fabsf(v))))
/* clang-format on */

#define BINARY(name, expr)                                                                         \
    static void name(const float *as, const float *bs, float *y, size_t n)                         \
    {                                                                                              \
        VECTOR                                                                                     \
        for (size_t i = 0; i < n; i++) {                                                           \
            float a = as[i], b = bs[i];                                                            \
            y[i] = (expr);                                                                         \
        }                                                                                          \
    }

/* clang-format off */
BINARY(b_add, a + b)
BINARY(b_sub, a - b)
BINARY(b_mul, a * b)
BINARY(b_div, a / b)
BINARY(b_max, a != a || a > b ? a : b)
BINARY(b_min, a != a || a < b ? a : b)
BINARY(b_prelu, a < 0 ? a * b : a)
/* clang-format on */

/* The exponent is nearly always one small number for the whole row; squares are quickest as
 * products. */
static void b_pow(const float *a, const float *b, float *y, size_t n)
{
    bool square = true;
    for (size_t i = 0; i < n && square; i++)
        square = b[i] == 2.0F;
    if (square)
        b_mul(a, a, y, n);
    else
        for (size_t i = 0; i < n; i++)
            y[i] = powf(a[i], b[i]);
}

/* --- rows as a whole --- */

static void log_softmax(const float *x, float *y, size_t n, float highest)
{
    float unused[PART]; /* y may be x, which is still needed */
    double total = 0;
    for (size_t at = 0; at < n; at += PART)
        total += (double)exp_part(x + at, unused, MIN(n - at, (size_t)PART), highest);
    float shift = (float)log(total);
    VECTOR
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] - highest - shift;
}

static void softmax(const float *x, float *y, size_t n, bool log_of)
{
    float highest = highest_of(x, n);
    if (log_of) {
        log_softmax(x, y, n, highest);
        return;
    }
    double total = 0;
    for (size_t at = 0; at < n; at += PART)
        total += (double)exp_part(x + at, y + at, MIN(n - at, (size_t)PART), highest);
    float factor = (float)(1 / total);
    VECTOR
    for (size_t i = 0; i < n; i++)
        y[i] *= factor;
}

/* Adds exp(x - high) of some rows to the totals; unless `log_of`, y becomes these numbers. */
static void add_rows(const float *x, float *y, int64_t rows, int64_t step, size_t n,
                     const float *high, double *total, bool log_of)
{
    float sum[FAST_ACROSS] = {0};
    for (int64_t r = 0; r < rows; r++, x += step, y += step) {
        if (log_of) {
            VECTOR
            for (size_t i = 0; i < n; i++)
                sum[i] += exp_of_negative(x[i] - high[i]);
        } else {
            VECTOR
            for (size_t i = 0; i < n; i++) {
                float e = exp_of_negative(x[i] - high[i]);
                y[i] = e;
                sum[i] += e;
            }
        }
    }
    for (size_t i = 0; i < n; i++)
        total[i] += (double)sum[i];
}

static void softmax_across(const float *x, float *y, int64_t rows, int64_t step, size_t n,
                           bool log_of)
{
    float high[FAST_ACROSS], last[FAST_ACROSS];
    double total[FAST_ACROSS] = {0};
    for (size_t i = 0; i < n; i++)
        high[i] = -INFINITY;
    for (int64_t r = 0; r < rows; r++) {
        const float *row = x + r * step;
        VECTOR
        for (size_t i = 0; i < n; i++)
            high[i] = row[i] > high[i] ? row[i] : high[i];
    }
    for (int64_t r = 0; r < rows; r += PART)
        add_rows(x + r * step, y + r * step, MIN(rows - r, PART), step, n, high, total, log_of);
    for (size_t i = 0; i < n; i++)
        last[i] = (float)(log_of ? log(total[i]) : 1 / total[i]);
    for (int64_t r = 0; r < rows; r++) {
        const float *from = x + r * step;
        float *to = y + r * step;
        VECTOR
        for (size_t i = 0; i < n; i++)
            to[i] = log_of ? from[i] - high[i] - last[i] : to[i] * last[i];
    }
}

/* The mean. It is computed from the differences to the first element, so that large numbers that
 * are close to each other keep their digits. */
static float mean_of(const float *x, size_t n)
{
    double total = 0;
    float base = x[0];
    for (size_t at = 0; at < n; at += PART) {
        float sum = 0;
        size_t part = MIN(n - at, (size_t)PART);
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < part; i++)
            sum += x[at + i] - base;
        total += (double)sum;
    }
    return (float)((double)base + total / (double)n);
}

static double sum_of_squares(const float *x, size_t n, float mean)
{
    double total = 0;
    for (size_t at = 0; at < n; at += PART) {
        float sum = 0;
        size_t part = MIN(n - at, (size_t)PART);
#pragma omp simd reduction(+ : sum)
        for (size_t i = 0; i < part; i++)
            sum += (x[at + i] - mean) * (x[at + i] - mean);
        total += (double)sum;
    }
    return total;
}

static void layer_norm(const float *x, const float *scale, const float *bias, bool rms,
                       float epsilon, float *y, size_t n)
{
    float mean = rms ? 0 : mean_of(x, n);
    double variance = sum_of_squares(x, n, mean) / (double)n;
    float inverse = (float)(1 / sqrt(variance + (double)epsilon));
    if (bias) {
        VECTOR
        for (size_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * inverse * scale[i] + bias[i];
    } else {
        VECTOR
        for (size_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * inverse * scale[i];
    }
}

/* Matrices are transposed through tiles that stay in registers, so that both sides are touched in
 * whole vectors. */
static void transpose_tile(const uint32_t *x, int64_t x_row, uint32_t *y, int64_t y_row)
{
    const float *from[LANES];
    float *to[LANES];
    for (int i = 0; i < LANES; i++) {
        from[i] = (const float *)(const void *)(x + i * x_row);
        to[i] = (float *)(void *)(y + i * y_row);
    }
    turn_block(from, to);
}

static void transpose_32(const uint32_t *x, int64_t x_row, uint32_t *y, int64_t y_row, int64_t rows,
                         int64_t cols)
{
    int64_t whole_rows = rows - rows % LANES, whole_cols = cols - cols % LANES;
    for (int64_t r = 0; r < whole_rows; r += LANES)
        for (int64_t c = 0; c < whole_cols; c += LANES)
            transpose_tile(x + r * x_row + c, x_row, y + c * y_row + r, y_row);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = r < whole_rows ? whole_cols : 0; c < cols; c++)
            y[c * y_row + r] = x[r * x_row + c];
}

/* --- products of a few rows with a packed matrix, which is read once for all of them --- */

#ifdef __AVX512F__
enum { ROWS = 4 };
#else
enum { ROWS = 2 };
#endif
enum { TILE_COLS = 4 * LANES };

/* The sums are variables of their own, because compilers keep arrays of vectors in memory. Row r of
 * a tile has four sums; m0 to m3 are four vectors of the matrix. */
#define ROW_LOAD(r, from)                                                                          \
    vec s##r##0 = VEC_AT(from, 0), s##r##1 = VEC_AT(from, 1), s##r##2 = VEC_AT(from, 2),           \
        s##r##3 = VEC_AT(from, 3)
#define MATRIX_LOAD(from)                                                                          \
    vec m0 = VEC_AT(from, 0), m1 = VEC_AT(from, 1), m2 = VEC_AT(from, 2), m3 = VEC_AT(from, 3)
#define ROW_ADD(r, number)                                                                         \
    do {                                                                                           \
        float x_ = (number);                                                                       \
        s##r##0 += x_ * m0;                                                                        \
        s##r##1 += x_ * m1;                                                                        \
        s##r##2 += x_ * m2;                                                                        \
        s##r##3 += x_ * m3;                                                                        \
    } while (0)
#define ROW_STORE(r, to)                                                                           \
    do {                                                                                           \
        VEC_AT(to, 0) = s##r##0;                                                                   \
        VEC_AT(to, 1) = s##r##1;                                                                   \
        VEC_AT(to, 2) = s##r##2;                                                                   \
        VEC_AT(to, 3) = s##r##3;                                                                   \
    } while (0)

/* sums[r][..] += x[r][k] panel[k][..] for some rows, over TILE_COLS columns of the panel. */
#ifdef __AVX512F__
static void add_4(const float *panel, int64_t depth, const float *x, int64_t x_row, float *sums)
{
    ROW_LOAD(0, sums);
    ROW_LOAD(1, sums + FAST_PANEL);
    ROW_LOAD(2, sums + 2 * FAST_PANEL);
    ROW_LOAD(3, sums + 3 * FAST_PANEL);
    for (int64_t k = 0; k < depth; k++) {
        MATRIX_LOAD(panel + k * FAST_PANEL);
        ROW_ADD(0, x[k]);
        ROW_ADD(1, x[x_row + k]);
        ROW_ADD(2, x[2 * x_row + k]);
        ROW_ADD(3, x[3 * x_row + k]);
    }
    ROW_STORE(0, sums);
    ROW_STORE(1, sums + FAST_PANEL);
    ROW_STORE(2, sums + 2 * FAST_PANEL);
    ROW_STORE(3, sums + 3 * FAST_PANEL);
}
#endif

static void add_2(const float *panel, int64_t depth, const float *x, int64_t x_row, float *sums)
{
    ROW_LOAD(0, sums);
    ROW_LOAD(1, sums + FAST_PANEL);
    for (int64_t k = 0; k < depth; k++) {
        MATRIX_LOAD(panel + k * FAST_PANEL);
        ROW_ADD(0, x[k]);
        ROW_ADD(1, x[x_row + k]);
    }
    ROW_STORE(0, sums);
    ROW_STORE(1, sums + FAST_PANEL);
}

/* One row. Even and odd k have sums of their own, so that an addition need not wait for the one
 * before. */
static void add_1(const float *panel, int64_t depth, const float *x, float *sums)
{
    const float zeros[TILE_COLS] = {0};
    ROW_LOAD(0, sums);
    ROW_LOAD(1, zeros);
    for (int64_t k = 0; k + 1 < depth; k += 2) {
        {
            MATRIX_LOAD(panel + k * FAST_PANEL);
            ROW_ADD(0, x[k]);
        }
        {
            MATRIX_LOAD(panel + (k + 1) * FAST_PANEL);
            ROW_ADD(1, x[k + 1]);
        }
    }
    if (depth % 2) {
        MATRIX_LOAD(panel + (depth - 1) * FAST_PANEL);
        ROW_ADD(0, x[depth - 1]);
    }
    s00 += s10;
    s01 += s11;
    s02 += s12;
    s03 += s13;
    ROW_STORE(0, sums);
}

/* Adds the products of `rows` rows, ROWS at most, with one panel. */
static void add_panel(const float *panel, int64_t depth, int64_t rows, const float *x,
                      int64_t x_row, float *sums)
{
    for (int64_t at = 0; at < FAST_PANEL; at += TILE_COLS) {
        int64_t r = 0;
#ifdef __AVX512F__
        for (; r + 4 <= rows; r += 4)
            add_4(panel + at, depth, x + r * x_row, x_row, sums + r * FAST_PANEL + at);
#endif
        for (; r + 2 <= rows; r += 2)
            add_2(panel + at, depth, x + r * x_row, x_row, sums + r * FAST_PANEL + at);
        for (; r < rows; r++)
            add_1(panel + at, depth, x + r * x_row, sums + r * FAST_PANEL + at);
    }
}

static void product(const float *packed, int64_t depth, int64_t cols, int64_t rows, const float *x,
                    int64_t x_row, const float *start, int64_t start_row, float *y, int64_t y_row)
{
    float sums[ROWS][FAST_PANEL] = {{0}};
    for (int64_t c = 0; c < cols; c += FAST_PANEL) {
        const float *panel = packed + c * depth;
        size_t bytes = (size_t)MIN(cols - c, FAST_PANEL) * sizeof(float);
        for (int64_t r = 0; r < rows; r += ROWS) {
            int64_t part = MIN(rows - r, ROWS);
            for (int64_t i = 0; i < part; i++)
                memcpy(sums[i], start + (r + i) * start_row + c, bytes);
            add_panel(panel, depth, part, x + r * x_row, x_row, sums[0]);
            for (int64_t i = 0; i < part; i++)
                memcpy(y + (r + i) * y_row + c, sums[i], bytes);
        }
    }
}

extern const struct fast_kernels FAST_TABLE;
extern const struct sweep_kernels SWEEP_TABLE;
extern const struct typed_kernels TYPED_TABLE;
extern const struct byte_kernels BYTES_TABLE;
extern const struct box_kernels BOXES_TABLE;

const struct fast_kernels FAST_TABLE = {
    .isa = FAST_ISA,
    .sweep = &SWEEP_TABLE,
    .typed = &TYPED_TABLE,
    .bytes = &BYTES_TABLE,
    .boxes = &BOXES_TABLE,
    .blocked = LANES == 16 ? IR_LAYOUT_BLOCKED_16 : IR_LAYOUT_BLOCKED_8,
    .unary = {[IR_UNARY_RELU] = u_relu,
              [IR_UNARY_LEAKY_RELU] = u_leaky_relu,
              [IR_UNARY_SIGMOID] = u_sigmoid,
              [IR_UNARY_HARD_SIGMOID] = u_hard_sigmoid,
              [IR_UNARY_HARD_SWISH] = u_hard_swish,
              [IR_UNARY_SWISH] = u_swish,
              [IR_UNARY_TANH] = u_tanh,
              [IR_UNARY_GELU] = u_gelu,
              [IR_UNARY_GELU_TANH] = u_gelu_tanh,
              [IR_UNARY_CLIP] = u_clip,
              [IR_UNARY_LINEAR] = u_linear,
              [IR_UNARY_ABS] = u_abs,
              [IR_UNARY_NEG] = u_neg,
              [IR_UNARY_EXP] = u_exp,
              [IR_UNARY_SQRT] = u_sqrt,
              [IR_UNARY_RECIPROCAL] = u_reciprocal,
              [IR_UNARY_ERF] = u_erf,
              [IR_UNARY_FLOOR] = u_floor,
              [IR_UNARY_CEIL] = u_ceil,
              [IR_UNARY_ROUND] = u_round,
              [IR_UNARY_SIGN] = u_sign,
              [IR_UNARY_LOG] = u_log,
              [IR_UNARY_SIN] = u_sin,
              [IR_UNARY_COS] = u_cos,
              [IR_UNARY_SOFTPLUS] = u_softplus},
    .binary = {[IR_BINARY_ADD] = b_add,
               [IR_BINARY_SUB] = b_sub,
               [IR_BINARY_MUL] = b_mul,
               [IR_BINARY_DIV] = b_div,
               [IR_BINARY_MAX] = b_max,
               [IR_BINARY_MIN] = b_min,
               [IR_BINARY_POW] = b_pow,
               [IR_BINARY_PRELU] = b_prelu},
    .softmax = softmax,
    .softmax_across = softmax_across,
    .layer_norm = layer_norm,
    .transpose_32 = transpose_32,
    .product = product,
    .attend = FAST_ATTEND,
};
