/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions. The kept dims are walked outside, the reduced dims inside. Partial results stay in
 * double, or in int64 if the answer is exact there.
 */
#include <math.h>

#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

/* What the elements of one output add up to. */
struct sums {
    double value;
    double highest; /* LOG_SUM_EXP: the maximum so far, to which `value` is relative */
    double count;
};

typedef void (*fold)(struct sums *s, const double *row, size_t n);

static void fold_sum(struct sums *s, const double *row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s->value += row[i];
}

static void fold_max(struct sums *s, const double *row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s->value = isnan(s->value) || s->value > row[i] ? s->value : row[i];
}

static void fold_min(struct sums *s, const double *row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s->value = isnan(s->value) || s->value < row[i] ? s->value : row[i];
}

static void fold_prod(struct sums *s, const double *row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s->value *= row[i];
}

static void fold_abs(struct sums *s, const double *row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s->value += fabs(row[i]);
}

static void fold_square(struct sums *s, const double *row, size_t n)
{
    for (size_t i = 0; i < n; i++)
        s->value += row[i] * row[i];
}

/* Adds exp(x - highest). The sum is scaled down whenever a new maximum turns up. */
static void fold_exp(struct sums *s, const double *row, size_t n)
{
    double highest = s->highest;
    for (size_t i = 0; i < n; i++)
        highest = row[i] > highest ? row[i] : highest;
    if (highest > s->highest)
        s->value *= exp(s->highest - highest);
    s->highest = highest;
    for (size_t i = 0; i < n; i++)
        s->value += isinf(row[i]) && row[i] == highest ? row[i] > 0 : exp(row[i] - highest);
}

static double finish_value(const struct sums *s)
{
    return s->value;
}

static double finish_mean(const struct sums *s)
{
    return s->value / s->count;
}

static double finish_sqrt(const struct sums *s)
{
    return sqrt(s->value);
}

static double finish_log(const struct sums *s)
{
    return log(s->value);
}

static double finish_log_exp(const struct sums *s)
{
    return isnan(s->value) ? s->value : isinf(s->highest) ? s->highest : s->highest + log(s->value);
}

static const struct {
    double initial;
    fold fold;
    double (*finish)(const struct sums *s);
} rows[IR_REDUCE_COUNT_] = {
    [IR_REDUCE_SUM] = {0, fold_sum, finish_value},
    [IR_REDUCE_MEAN] = {0, fold_sum, finish_mean},
    [IR_REDUCE_MAX] = {-INFINITY, fold_max, finish_value},
    [IR_REDUCE_MIN] = {INFINITY, fold_min, finish_value},
    [IR_REDUCE_PROD] = {1, fold_prod, finish_value},
    [IR_REDUCE_L1] = {0, fold_abs, finish_value},
    [IR_REDUCE_L2] = {0, fold_square, finish_sqrt},
    [IR_REDUCE_SUM_SQUARE] = {0, fold_square, finish_value},
    [IR_REDUCE_LOG_SUM] = {0, fold_sum, finish_log},
    [IR_REDUCE_LOG_SUM_EXP] = {0, fold_exp, finish_log_exp},
};

/* Folds one integer into a result; functions without a case here are computed in double. */
static uint64_t fold_int(enum ir_reduce func, enum dtype dtype, uint64_t so_far, uint64_t x)
{
    bool above = dtype == DTYPE_U64 ? x > so_far : (int64_t)x > (int64_t)so_far;
    switch (func) {
    case IR_REDUCE_SUM:
        return so_far + x;
    case IR_REDUCE_PROD:
        return so_far * x;
    case IR_REDUCE_SUM_SQUARE:
        return so_far + x * x;
    case IR_REDUCE_L1:
        return so_far + (dtype_is_signed(dtype) && (int64_t)x < 0 ? 0 - x : x);
    case IR_REDUCE_MAX:
        return above ? x : so_far;
    case IR_REDUCE_MIN:
        return above ? so_far : x;
    default:
        return so_far;
    }
}

static bool in_int64(enum ir_reduce func, enum dtype dtype)
{
    return !dtype_is_float(dtype) && func != IR_REDUCE_MEAN && func != IR_REDUCE_L2 &&
           func != IR_REDUCE_LOG_SUM && func != IR_REDUCE_LOG_SUM_EXP;
}

/* Reduces one output; `inner` walks the reduced dims of x from `first` on. */
static int64_t reduce_ints(enum ir_reduce func, const struct tensor_view *x, int64_t first,
                           struct ref_walk *inner)
{
    uint64_t result = func == IR_REDUCE_PROD;
    int64_t row[REF_ROW];
    if (func == IR_REDUCE_MAX || func == IR_REDUCE_MIN)
        result = (uint64_t)ref_get_i64(x->dtype, x->data, first);
    bool more = true;
    while (more) {
        for (int64_t at = 0; at < inner->row; at += REF_ROW) {
            size_t n = (size_t)MIN(inner->row - at, REF_ROW);
            ref_read_i64(x->dtype, x->data, first + inner->at[0] + at * inner->step[0],
                         inner->step[0], n, row);
            for (size_t i = 0; i < n; i++)
                result = fold_int(func, x->dtype, result, (uint64_t)row[i]);
        }
        more = ref_walk_next(inner);
    }
    return (int64_t)result;
}

static double reduce_floats(enum ir_reduce func, const struct tensor_view *x, int64_t first,
                            struct ref_walk *inner)
{
    struct sums sums = {.value = rows[func].initial, .highest = -INFINITY};
    double row[REF_ROW];
    bool more = true;
    while (more) {
        for (int64_t at = 0; at < inner->row; at += REF_ROW) {
            size_t n = (size_t)MIN(inner->row - at, REF_ROW);
            ref_read_f64(x->dtype, x->data, first + inner->at[0] + at * inner->step[0],
                         inner->step[0], n, row);
            rows[func].fold(&sums, row, n);
            sums.count += (double)n;
        }
        more = ref_walk_next(inner);
    }
    return rows[func].finish(&sums);
}

/* The largest number of an integer type, or the smallest one. */
static int64_t extreme(enum dtype dtype, bool largest)
{
    uint32_t unused = 64 - 8 * (uint32_t)dtype_size(dtype);
    if (!dtype_is_signed(dtype))
        return largest ? (int64_t)(UINT64_MAX >> unused) : 0;
    return largest ? INT64_MAX >> unused : INT64_MIN >> unused;
}

/* Writes every output of a reduction over no elements. */
static void reduce_nothing(enum ir_reduce func, const struct tensor_view *y)
{
    struct sums none = {.value = rows[func].initial, .highest = -INFINITY};
    double value = rows[func].finish(&none);
    int64_t n = ref_extent(&y->shape, 0, y->shape.rank);
    bool integer = !dtype_is_float(y->dtype) && (func == IR_REDUCE_MIN || func == IR_REDUCE_MAX);
    int64_t bound = integer ? extreme(y->dtype, func == IR_REDUCE_MIN) : 0;
    for (int64_t i = 0; i < n; i++) {
        if (integer)
            ref_write_i64(y->dtype, y->data, i, 1, 1, &bound);
        else
            ref_write_f64(y->dtype, y->data, i, 1, 1, &value);
    }
}

void ref_reduce(enum ir_reduce func, const int64_t *axes, uint32_t n_axes,
                const struct tensor_view *x, const struct tensor_view *y)
{
    struct shape kept = x->shape, reduced = x->shape;
    for (uint32_t d = 0; d < x->shape.rank; d++)
        reduced.dim[d] = 1;
    for (uint32_t i = 0; i < n_axes; i++) {
        reduced.dim[axes[i]] = x->shape.dim[axes[i]];
        kept.dim[axes[i]] = 1;
    }
    int64_t strides[2][SHAPE_MAX_RANK];
    shape_strides(&x->shape, strides[0]);
    shape_strides(&kept, strides[1]);
    struct ref_walk outer, inner;
    if (!ref_walk_init(&inner, &reduced, 1, strides)) {
        reduce_nothing(func, y);
        return;
    }
    bool ints = in_int64(func, x->dtype);
    for (bool row = ref_walk_init(&outer, &kept, 2, strides); row; row = ref_walk_next(&outer))
        for (int64_t i = 0; i < outer.row; i++) {
            int64_t first = outer.at[0] + i * outer.step[0];
            int64_t to = outer.at[1] + i * outer.step[1];
            if (ints) {
                int64_t value = reduce_ints(func, x, first, &inner);
                ref_write_i64(y->dtype, y->data, to, 1, 1, &value);
            } else {
                double value = reduce_floats(func, x, first, &inner);
                ref_write_f64(y->dtype, y->data, to, 1, 1, &value);
            }
        }
}
