/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The functions of sweep.h for one instruction set. The build compiles this file several times,
 * with SWEEP_TABLE as the table's name.
 */
#include "kernels/cpu/sweep.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"

#define VECTOR _Pragma("omp simd")

/* Sums in fp32 are taken over this many numbers at most, so that their error does not grow with the
 * length of what is summed. */
enum { PART = 256, LANES = 16 };

/* --- statistics --- */

/* What is known of some numbers. */
struct moments {
    double n, mean, squares;
};

/* Adds n numbers whose differences from `base` have this sum and this sum of squares. (Chan, Golub,
 * LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979.) */
static void add_part(struct moments *m, double n, double base, double sum, double squares)
{
    double mean = base + sum / n, own = squares - sum * sum / n, apart = mean - m->mean;
    double total = m->n + n;
    m->squares += (own > 0 || own != own ? own : 0) + apart * apart * m->n * n / total;
    m->mean += apart * n / total;
    m->n = total;
}

static void moments_row(const float *x, int64_t n, double *mean, double *squares)
{
    struct moments m = {0};
    for (int64_t at = 0; at < n; at += PART) {
        int64_t part = MIN(n - at, (int64_t)PART);
        float base = x[at], sum = 0, square = 0;
#pragma omp simd reduction(+ : sum, square)
        for (int64_t i = 0; i < part; i++) {
            float d = x[at + i] - base;
            sum += d;
            square += d * d;
        }
        add_part(&m, (double)part, (double)base, (double)sum, (double)square);
    }
    *mean = m.mean;
    *squares = m.squares;
}

/* Sums of the differences from row 0 in `n` <= LANES columns. */
static inline void sum_lanes(const float *x, int64_t rows, int64_t step, size_t n, float *sums,
                             float *squares)
{
    float sum[LANES] = {0}, square[LANES] = {0}, base[LANES] = {0};
    memcpy(base, x, n * sizeof(*x));
    for (int64_t r = 0; r < rows; r++) {
        const float *row = x + r * step;
        VECTOR
        for (size_t l = 0; l < n; l++) {
            float d = row[l] - base[l];
            sum[l] += d;
            square[l] += d * d;
        }
    }
    for (size_t l = 0; l < n; l++) {
        sums[l] = sum[l];
        squares[l] = square[l];
    }
}

static void moments_lanes(const float *x, int64_t rows, int64_t step, size_t n, double *mean,
                          double *squares)
{
    struct moments m[LANES] = {{0}};
    float sum[LANES] = {0}, square[LANES] = {0};
    for (int64_t at = 0; at < rows; at += PART) {
        int64_t part = MIN(rows - at, (int64_t)PART);
        const float *from = x + at * step;
        if (n == LANES) /* a constant number makes vectors of the arrays */
            sum_lanes(from, part, step, LANES, sum, square);
        else
            sum_lanes(from, part, step, n, sum, square);
        for (size_t l = 0; l < n; l++)
            add_part(&m[l], (double)part, (double)from[l], (double)sum[l], (double)square[l]);
    }
    for (size_t l = 0; l < n; l++) {
        mean[l] = m[l].mean;
        squares[l] = m[l].squares;
    }
}

static void moments(const float *x, int64_t rows, size_t lanes, double *mean, double *squares)
{
    if (lanes == 1)
        moments_row(x, rows, mean, squares);
    else
        for (size_t l = 0; l < lanes; l += LANES)
            moments_lanes(x + l, rows, (int64_t)lanes, MIN(lanes - l, (size_t)LANES), mean + l,
                          squares + l);
}

static void affine_rows(const float *x, float *y, int64_t rows, size_t lanes, const float *mean,
                        const float *factor, const float *shift)
{
    for (int64_t r = 0; r < rows; r++, x += lanes, y += lanes) {
        VECTOR
        for (size_t l = 0; l < lanes; l++)
            y[l] = (x[l] - mean[l]) * factor[l] + shift[l];
    }
}

static void affine(const float *x, float *y, int64_t rows, size_t lanes, const float *mean,
                   const float *factor, const float *shift)
{
    if (lanes == LANES) {
        affine_rows(x, y, rows, LANES, mean, factor, shift);
    } else if (lanes > 1) {
        affine_rows(x, y, rows, lanes, mean, factor, shift);
    } else {
        float m = *mean, f = *factor, s = *shift;
        VECTOR
        for (int64_t i = 0; i < rows; i++)
            y[i] = (x[i] - m) * f + s;
    }
}

/* --- folds --- */

#define FOLD(name, expr)                                                                           \
    static void name(float *sums, const float *x, int64_t rows, int64_t step, size_t n)            \
    {                                                                                              \
        for (int64_t r = 0; r < rows; r++, x += step) {                                            \
            VECTOR                                                                                 \
            for (size_t i = 0; i < n; i++) {                                                       \
                float s = sums[i], v = x[i];                                                       \
                sums[i] = (expr);                                                                  \
            }                                                                                      \
        }                                                                                          \
    }

/* clang-format off */
FOLD(fold_add, s + v)
FOLD(fold_abs, s + fabsf(v))
FOLD(fold_square, s + v * v)
FOLD(fold_max, s != s || s > v ? s : v)
FOLD(fold_min, s != s || s < v ? s : v)
/* clang-format on */

/* --- interpolation --- */

static void add_weighted(float *sums, const float *x, float weight, size_t n)
{
    VECTOR
    for (size_t i = 0; i < n; i++)
        sums[i] += weight * x[i];
}

/* The inner dimension is 1: places are neighbours in y. An infinity times 0 would be NaN. */
static void pick_elements(float *y, const float *x, const struct sweep_table *t, float factor,
                          bool add)
{
    for (int64_t k = 0; k < t->taps; k++, add = true) {
        const int32_t *at = t->at + k * t->stride;
        const float *weight = t->weight + k * t->stride;
        if (add) {
            VECTOR
            for (int64_t p = 0; p < t->places; p++) {
                float v = x[at[p]], w = factor * weight[p];
                y[p] += w == 0.0F ? 0.0F : w * v;
            }
        } else {
            VECTOR
            for (int64_t p = 0; p < t->places; p++) {
                float v = x[at[p]], w = factor * weight[p];
                y[p] = w == 0.0F ? 0.0F : w * v;
            }
        }
    }
}

static void pick(float *y, const float *x, const struct sweep_table *t, size_t inner, float factor,
                 bool add)
{
    if (inner == 1) {
        pick_elements(y, x, t, factor, add);
        return;
    }
    for (int64_t p = 0; p < t->places; p++, y += inner) {
        if (!add)
            memset(y, 0, inner * sizeof(*y));
        for (int64_t k = 0; k < t->taps; k++) {
            float w = factor * t->weight[k * t->stride + p];
            if (w != 0.0F)
                add_weighted(y, x + (size_t)t->at[k * t->stride + p] * inner, w, inner);
        }
    }
}

/* A position within reach of 0..n-1, so that it may become an integer. */
static inline double near(double at, double n, bool edge)
{
    double low = edge ? 0.0 : -2.0, high = edge ? n - 1 : n + 1;
    at = at >= low ? at : low; /* NaN, too */
    return at <= high ? at : high;
}

static inline int32_t inside(int32_t at, int32_t n)
{
    at = at < 0 ? 0 : at;
    return at < n ? at : n - 1;
}

static void bilinear(const float *grid, int64_t places, int64_t height, int64_t width,
                     const double a[2], const double b[2], bool edge, int64_t stride, int32_t *at,
                     float *weight)
{
    int32_t w = (int32_t)width, h = (int32_t)height;
    double ax = a[0], ay = a[1], bx = b[0], by = b[1];
    VECTOR
    for (int64_t p = 0; p < places; p++) {
        double x = near(ax * (double)grid[2 * p] + bx, (double)w, edge);
        double y = near(ay * (double)grid[2 * p + 1] + by, (double)h, edge);
        double left = floor(x), top = floor(y), s = x - left, t = y - top;
        int32_t l = (int32_t)left, u = (int32_t)top;
        double w0 = (edge | ((l >= 0) & (l < w))) ? 1 - s : 0;
        double w1 = (edge | ((l >= -1) & (l < w - 1))) ? s : 0;
        double h0 = (edge | ((u >= 0) & (u < h))) ? 1 - t : 0;
        double h1 = (edge | ((u >= -1) & (u < h - 1))) ? t : 0;
        int32_t x0 = inside(l, w), x1 = inside(l + 1, w);
        int32_t y0 = inside(u, h) * w, y1 = inside(u + 1, h) * w;
        at[p] = y0 + x0;
        at[stride + p] = y0 + x1;
        at[2 * stride + p] = y1 + x0;
        at[3 * stride + p] = y1 + x1;
        weight[p] = (float)(w0 * h0);
        weight[stride + p] = (float)(w1 * h0);
        weight[2 * stride + p] = (float)(w0 * h1);
        weight[3 * stride + p] = (float)(w1 * h1);
    }
}

/* --- places of extremes --- */

/* The smallest element is the largest after a change of all signs. */
static void arg_begin(const float *x, float *best, int32_t *at, size_t n, bool smallest)
{
    float sign = smallest ? -1 : 1;
    for (size_t i = 0; i < n; i++) {
        best[i] = sign * x[i];
        at[i] = 0;
    }
}

static void arg_next(const float *x, float *best, int32_t *at, size_t n, int32_t row, bool smallest,
                     bool last)
{
    float sign = smallest ? -1 : 1;
    int equal = last;
    VECTOR
    for (size_t i = 0; i < n; i++) {
        float v = sign * x[i], b = best[i];
        int v_nan = v != v, b_nan = b != b;
        int wins = (v > b) | (v_nan & !b_nan) | (equal & ((v == b) | (v_nan & b_nan)));
        best[i] = wins ? v : b;
        at[i] = wins ? row : at[i];
    }
}

extern const struct sweep_kernels SWEEP_TABLE;

const struct sweep_kernels SWEEP_TABLE = {
    .fold = {[SWEEP_ADD] = fold_add,
             [SWEEP_ADD_ABS] = fold_abs,
             [SWEEP_ADD_SQUARE] = fold_square,
             [SWEEP_MAX] = fold_max,
             [SWEEP_MIN] = fold_min},
    .add_weighted = add_weighted,
    .pick = pick,
    .bilinear = bilinear,
    .arg_begin = arg_begin,
    .arg_next = arg_next,
    .moments = moments,
    .affine = affine,
};
