/* SPDX-License-Identifier: Apache-2.0 */
/*
 * REDUCE over any dims. If the innermost dim is kept, whole rows are folded into a row of sums. If
 * it is reduced, a row is folded into LANES sums, which are joined at the end. Where that leaves
 * few outputs, pieces of their long rows are folded apart, so that each thread has work. Sums in
 * fp32 take FLUSH numbers at most and are then added to sums in double.
 */
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/native_op.h"

enum {
    LANES = 64,
    SHORT_LANES = 16, /* of rows of so many times FLUSH: joining more would take longer */
    COLS = 512,
    FLUSH = 64,
    PIECE = 8192,
    FEW = 16,
};

static double as_it_is(double value, double count UNUSED)
{
    return value;
}

static double mean(double value, double count)
{
    return value / count;
}

static double root(double value, double count UNUSED)
{
    return sqrt(value);
}

static double logarithm(double value, double count UNUSED)
{
    return log(value);
}

/* LOG_SUM_EXP folds twice: first the maximum, then exponentials relative to it. What has no row is
 * not computed here. */
static const struct {
    enum sweep_fold fold;
    double (*finish)(double value, double count);
} reductions[IR_REDUCE_COUNT_] = {
    [IR_REDUCE_SUM] = {SWEEP_ADD, as_it_is},
    [IR_REDUCE_MEAN] = {SWEEP_ADD, mean},
    [IR_REDUCE_MAX] = {SWEEP_MAX, as_it_is},
    [IR_REDUCE_MIN] = {SWEEP_MIN, as_it_is},
    [IR_REDUCE_L1] = {SWEEP_ADD_ABS, as_it_is},
    [IR_REDUCE_L2] = {SWEEP_ADD_SQUARE, root},
    [IR_REDUCE_SUM_SQUARE] = {SWEEP_ADD_SQUARE, as_it_is},
    [IR_REDUCE_LOG_SUM] = {SWEEP_ADD, logarithm},
    [IR_REDUCE_LOG_SUM_EXP] = {SWEEP_MAX, logarithm},
};

/* A row of sums. */
struct sums {
    enum sweep_fold fold;
    const float *shift; /* not NULL: exp(x - shift) is folded instead of x */
    double *total;
};

static double initial_of(enum sweep_fold fold)
{
    return fold == SWEEP_MAX ? (double)-INFINITY : fold == SWEEP_MIN ? (double)INFINITY : 0;
}

static double joined(enum sweep_fold fold, double a, double b)
{
    if (fold == SWEEP_MAX)
        return a != a || a > b ? a : b;
    if (fold == SWEEP_MIN)
        return a != a || a < b ? a : b;
    return a + b;
}

static void sums_begin(struct sums *s, enum sweep_fold fold, const float *shift, size_t n)
{
    s->fold = fold;
    s->shift = shift;
    for (size_t i = 0; i < n; i++)
        s->total[i] = initial_of(fold);
}

static void fold_exp(const struct fast_kernels *fast, const float *shift, const float *x,
                     int64_t rows, int64_t step, size_t n, float *sums)
{
    float row[COLS];
    for (int64_t r = 0; r < rows; r++) {
        fast->binary[IR_BINARY_SUB](x + r * step, shift, row, n);
        fast->unary[IR_UNARY_EXP](row, row, n, 0, 0);
        fast->sweep->fold[SWEEP_ADD](sums, row, 1, 0, n);
    }
}

/* Folds rows of n columns into the sums. */
static void sums_add(const struct native_op *op, struct sums *s, const float *x, int64_t rows,
                     int64_t step, size_t n)
{
    float part[COLS];
    for (int64_t at = 0; at < rows; at += FLUSH) {
        for (size_t i = 0; i < n; i++)
            part[i] = (float)initial_of(s->fold);
        if (s->shift)
            fold_exp(op->fast, s->shift, x + at * step, MIN(rows - at, FLUSH), step, n, part);
        else
            op->fast->sweep->fold[s->fold](part, x + at * step, MIN(rows - at, FLUSH), step, n);
        for (size_t i = 0; i < n; i++)
            s->total[i] = joined(s->fold, s->total[i], (double)part[i]);
    }
}

/* Folds everything that belongs to n neighbouring outputs; x is where the first one's begins. */
static void add_across(const struct native_op *op, struct sums *s, const float *x, size_t n)
{
    struct ref_walk w = op->reduce.inner;
    do
        sums_add(op, s, x + w.at[0], w.row, w.step[0], n);
    while (ref_walk_next(&w));
}

/* Folds n neighbours into `lanes` sums. */
static void add_row(const struct native_op *op, struct sums *s, const float *x, int64_t n,
                    size_t lanes)
{
    int64_t width = (int64_t)lanes, rows = n / width;
    sums_add(op, s, x, rows, width, lanes);
    if (n % width)
        sums_add(op, s, x + rows * width, 1, 0, (size_t)(n % width));
}

/* Folds everything that belongs to one output into `lanes` sums. */
static void add_along(const struct native_op *op, struct sums *s, const float *x, size_t lanes)
{
    if (op->reduce.inner.rank == 0) { /* one row, which may be short: a walk is large */
        add_row(op, s, x, op->reduce.inner.row, lanes);
        return;
    }
    struct ref_walk w = op->reduce.inner;
    do
        add_row(op, s, x + w.at[0], w.row, lanes);
    while (ref_walk_next(&w));
}

static double join_lanes(const struct sums *s, size_t lanes)
{
    double value = s->total[0];
    for (size_t i = 1; i < lanes; i++)
        value = joined(s->fold, value, s->total[i]);
    return value;
}

/* What exponentials are taken relative to: a maximum, if it is a number that can be subtracted. */
static float shift_of(double highest)
{
    return isfinite(highest) ? (float)highest : 0;
}

static void reduce_across(const struct native_op *op, struct sums *s, const float *x, float *y,
                          size_t n)
{
    float shift[COLS];
    bool exp_of = op->reduce.func == IR_REDUCE_LOG_SUM_EXP;
    sums_begin(s, reductions[op->reduce.func].fold, NULL, n);
    add_across(op, s, x, n);
    for (size_t i = 0; i < n; i++)
        shift[i] = exp_of ? shift_of(s->total[i]) : 0;
    if (exp_of) {
        sums_begin(s, SWEEP_ADD, shift, n);
        add_across(op, s, x, n);
    }
    for (size_t i = 0; i < n; i++)
        y[i] = (float)(reductions[op->reduce.func].finish(s->total[i], op->reduce.count) +
                       (double)shift[i]);
}

static float reduce_along(const struct native_op *op, struct sums *s, const float *x)
{
    float shift[LANES] = {0};
    int64_t row = op->reduce.inner.row;
    size_t lanes = (size_t)MIN(row, row <= SHORT_LANES * FLUSH ? SHORT_LANES : LANES);
    sums_begin(s, reductions[op->reduce.func].fold, NULL, lanes);
    add_along(op, s, x, lanes);
    double value = join_lanes(s, lanes);
    if (op->reduce.func == IR_REDUCE_LOG_SUM_EXP) {
        for (size_t i = 0; i < lanes; i++)
            shift[i] = shift_of(value);
        sums_begin(s, SWEEP_ADD, shift, lanes);
        add_along(op, s, x, lanes);
        value = join_lanes(s, lanes);
    }
    return (float)(reductions[op->reduce.func].finish(value, op->reduce.count) + (double)shift[0]);
}

static void run_across(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    struct ref_walk w = op->walk;
    double total[COLS] = {0};
    struct sums s = {.total = total};
    int64_t per_row = (w.row + COLS - 1) / COLS;
    for (int64_t unit = first; unit < end; unit++) {
        int64_t col = unit % per_row * COLS, n = MIN(w.row - col, COLS);
        ref_walk_seek(&w, unit / per_row);
        reduce_across(op, &s, (const float *)op->inputs[0] + w.at[1] + col,
                      (float *)op->output + w.at[0] + col, (size_t)n);
        native_after(op, w.at[0] + col, n);
    }
}

static void run_along(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    struct ref_walk w = op->walk;
    double total[LANES] = {0};
    struct sums s = {.total = total};
    float *y = op->output;
    int64_t at = first % w.row;
    ref_walk_seek(&w, first / w.row);
    for (int64_t unit = first; unit < end; unit++) {
        y[unit] = reduce_along(op, &s, (const float *)op->inputs[0] + w.at[1] + at * w.step[1]);
        if (++at == w.row) {
            at = 0;
            ref_walk_next(&w);
        }
    }
    native_after(op, first, end - first);
}

/* Folds pieces of rows; what each makes lies in the workspace. */
static void run_pieces(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    struct ref_walk w = op->walk;
    double total[LANES] = {0}, *made = op->workspace;
    struct sums s = {.total = total};
    int64_t pieces = op->reduce.pieces, row = op->reduce.inner.row;
    for (int64_t unit = first; unit < end; unit++) {
        int64_t output = unit / pieces, piece = unit % pieces;
        int64_t from = row * piece / pieces, until = row * (piece + 1) / pieces;
        ref_walk_seek(&w, output / w.row);
        sums_begin(&s, reductions[op->reduce.func].fold, NULL, LANES);
        add_row(op, &s, (const float *)op->inputs[0] + w.at[1] + output % w.row * w.step[1] + from,
                until - from, LANES);
        made[unit] = join_lanes(&s, LANES);
    }
}

static void join_pieces(const struct native_op *op)
{
    int64_t pieces = op->reduce.pieces, outputs = op->units / pieces;
    const double *made = op->workspace;
    float *y = op->output;
    for (int64_t output = 0; output < outputs; output++, made += pieces) {
        double value = made[0];
        for (int64_t i = 1; i < pieces; i++)
            value = joined(reductions[op->reduce.func].fold, value, made[i]);
        y[output] = (float)reductions[op->reduce.func].finish(value, op->reduce.count);
    }
    native_after(op, 0, outputs);
}

static void set_work(struct native_op *op)
{
    bool across = op->walk.step[1] == 1, exp_of = op->reduce.func == IR_REDUCE_LOG_SUM_EXP;
    int64_t rows = ref_walk_rows(&op->walk), outputs = rows * op->walk.row;
    op->units = across ? rows * ((op->walk.row + COLS - 1) / COLS) : outputs;
    op->work = across ? run_across : run_along;
    if (across || exp_of || outputs >= FEW || ref_walk_rows(&op->reduce.inner) > 1 ||
        op->reduce.inner.row < 2 * PIECE)
        return;
    op->reduce.pieces = op->reduce.inner.row / PIECE;
    op->units = outputs * op->reduce.pieces;
    op->workspace_bytes = (uint64_t)op->units * sizeof(double);
    op->work = run_pieces;
    op->middle = join_pieces;
}

bool native_reduce_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node)
{
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    const struct ir_attr *axes = ir_attr(node, IR_ATTR_AXES);
    struct shape kept = *x, reduced = *x;
    int64_t strides[2][SHAPE_MAX_RANK];
    op->reduce.func = (enum ir_reduce)ir_attr_int(node, IR_ATTR_FUNC);
    if (op->reduce.func >= IR_REDUCE_COUNT_ || !reductions[op->reduce.func].finish || !axes ||
        !native_all_f32(graph, node, 0) || !native_after_make(op, graph, node))
        return false;
    for (uint32_t d = 0; d < x->rank; d++)
        reduced.dim[d] = 1;
    for (uint32_t i = 0; i < axes->count; i++) {
        reduced.dim[axes->i[i]] = x->dim[axes->i[i]];
        kept.dim[axes->i[i]] = 1;
    }
    shape_strides(x, strides[1]);
    if (!ref_walk_init(&op->reduce.inner, &reduced, 1, &strides[1]))
        return false;
    shape_strides(&kept, strides[0]);
    if (!ref_walk_init(&op->walk, &kept, 2, strides))
        return false;
    op->reduce.count = (double)ref_extent(&reduced, 0, x->rank);
    set_work(op);
    return true;
}
