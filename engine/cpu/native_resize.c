/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RESIZE, in plain, channels-last and blocked layouts. Each dim that changes has a table of what
 * its positions are interpolated from. A unit of work is a row of the last such dim: the input's
 * rows that it needs are added up by their weights first, if that takes less, and then
 * interpolated along the row. Numbers that are stored as bytes are only picked.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/cpu/call.h"
#include "engine/cpu/native_op.h"

enum { ROW_MAX = 4096, ROWS_MAX = 64 };

/* What the rows of one output row are. */
struct rows {
    uint32_t n;
    int64_t at[ROWS_MAX]; /* the row's number in the input */
    float weight[ROWS_MAX];
};

static void find_rows(const struct native_resize *r, int64_t row, struct rows *rows)
{
    int64_t step = 1;
    *rows = (struct rows){.n = 1, .weight = {1}};
    for (uint32_t d = r->rank - 1; d-- > 0;) {
        const struct sweep_table *t = &r->table[d];
        int64_t i = row % r->out[d];
        uint32_t n = rows->n, found = 0;
        struct rows before = *rows;
        row /= r->out[d];
        for (int64_t k = 0; k < t->taps; k++) {
            float weight = t->weight[k * t->stride + i];
            for (uint32_t b = 0; b < n && weight != 0; b++) {
                rows->at[found] = before.at[b] + t->at[k * t->stride + i] * step;
                rows->weight[found++] = before.weight[b] * weight;
            }
        }
        rows->n = found;
        step *= r->in[d];
    }
}

/* Interpolates one row of the output from rows of the input. */
static void resize_row(const struct native_op *op, const struct rows *rows, float *y)
{
    const struct native_resize *r = &op->resize;
    const struct sweep_kernels *sweep = op->fast->sweep;
    const struct sweep_table *t = &r->table[r->rank - 1];
    const float *x = op->inputs[0];
    int64_t width = r->in[r->rank - 1] * r->inner;
    float mixed[ROW_MAX];
    if (rows->n > 1 && r->inner == 1 && width <= ROW_MAX) {
        memset(mixed, 0, (size_t)width * sizeof(*mixed));
        for (uint32_t i = 0; i < rows->n; i++)
            sweep->add_weighted(mixed, x + rows->at[i] * width, rows->weight[i], (size_t)width);
        sweep->pick(y, mixed, t, 1, 1, false);
        return;
    }
    if (rows->n == 0)
        memset(y, 0, (size_t)(t->places * r->inner) * sizeof(*y));
    for (uint32_t i = 0; i < rows->n; i++)
        sweep->pick(y, x + rows->at[i] * width, t, (size_t)r->inner, rows->weight[i], i > 0);
}

static void run_resize(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const struct native_resize *r = &op->resize;
    int64_t width = r->out[r->rank - 1] * r->inner;
    struct rows rows;
    for (int64_t row = first; row < end; row++) {
        find_rows(r, row, &rows);
        resize_row(op, &rows, (float *)op->output + row * width);
        native_after(op, row * width, width);
    }
}

/* Each place has one tap of weight 1, whose bytes are copied. */
static void run_nearest(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const struct native_resize *r = &op->resize;
    const int32_t *at = r->table[r->rank - 1].at;
    int64_t places = r->out[r->rank - 1], width = r->in[r->rank - 1] * r->inner;
    struct rows rows;
    for (int64_t row = first; row < end; row++) {
        find_rows(r, row, &rows);
        const uint8_t *x = (const uint8_t *)op->inputs[0] + rows.at[0] * width;
        uint8_t *y = (uint8_t *)op->output + row * places * r->inner;
        for (int64_t p = 0; p < places; p++)
            if (r->inner == 1)
                y[p] = x[at[p]];
            else
                memcpy(y + p * r->inner, x + at[p] * r->inner, (size_t)r->inner);
    }
}

/* --- tables --- */

struct list {
    int64_t *at;
    double *weight;
};

static int64_t table_size(const struct native_resize *r, uint32_t d)
{
    return r->most[d] * r->out[d];
}

/* Fills the table of stored dim d; `list` is room for the longest lists of places and weights. */
static void fill_table(const struct native_resize *r, const struct ref_resize *how, uint32_t d,
                       const struct shape *x, const struct shape *y, int32_t *at, float *weight,
                       struct list list)
{
    for (int64_t i = 0; i < r->out[d]; i++) {
        int64_t n = 1;
        list.at[0] = i;
        list.weight[0] = 1;
        if (r->changes[d])
            n = ref_resize_taps(how, r->axis[d], i, x, y, list.at, list.weight);
        for (int64_t k = 0; k < n; k++) {
            at[k * r->out[d] + i] = (int32_t)list.at[k];
            weight[k * r->out[d] + i] = (float)list.weight[k];
        }
    }
}

static enum status keep_tables(struct native_op *op, const struct ir_graph *graph,
                               const struct ir_node *node, struct error *err)
{
    struct native_resize *r = &op->resize;
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    const struct ref_resize how = call_resize(node, x->rank);
    size_t total = 0, most = 0;
    for (uint32_t d = 0; d < r->rank; d++) {
        total += (size_t)table_size(r, d);
        most = MAX(most, (size_t)ref_resize_most_taps(&how, r->axis[d]));
    }
    CLEANUP(cleanup_free) double *lists = calloc(2 * most, sizeof(*lists));
    char *tables = calloc(total, sizeof(int32_t) + sizeof(float));
    op->owned = tables;
    if (!lists || !tables)
        return error_no_memory(err, "the tables of '%s'", node->name);
    int32_t *at = (int32_t *)(void *)tables;
    float *weight = (float *)(void *)(at + total);
    struct list list = {(int64_t *)(void *)(lists + most), lists};
    for (uint32_t d = 0; d < r->rank; d++) {
        r->table[d] = (struct sweep_table){.places = r->out[d],
                                           .taps = r->most[d],
                                           .stride = r->out[d],
                                           .at = at,
                                           .weight = weight};
        fill_table(r, &how, d, x, y, at, weight, list);
        at += table_size(r, d);
        weight += table_size(r, d);
    }
    return STATUS_OK;
}

/* Whether positions of the dim are something else than themselves. */
static bool changes(const struct ref_resize *how, uint32_t d, const struct shape *x,
                    const struct shape *y)
{
    return x->dim[d] != y->dim[d] || how->scales[d] != 1;
}

/* The taps of a dim; a nearest neighbour is one. */
static int64_t most_taps(const struct ref_resize *how, uint32_t d, bool changed)
{
    if (!changed || how->mode == IR_RESIZE_NEAREST)
        return 1;
    return how->mode == IR_RESIZE_LINEAR && !how->antialias ? 2 : ref_resize_most_taps(how, d);
}

/* Fills in the dims up to the last one that changes; those behind it become `inner`. */
static bool set_dims(struct native_op *op, const struct ref_resize *how, const struct shape *x,
                     const struct shape *y)
{
    struct native_resize *r = &op->resize;
    struct native_stored from, to;
    int64_t rows = 1;
    if (!native_stored_make(x, op->layout, &from) || !native_stored_make(y, op->layout, &to))
        return false;
    r->inner = 1;
    for (uint32_t d = 0; d < from.dims.rank; d++) {
        bool changed = changes(how, from.axis[d], x, y);
        if (changed && from.axis[d] < 2 && op->layout != IR_LAYOUT_PLAIN)
            return false;
        r->axis[d] = from.axis[d];
        r->changes[d] = changed;
        r->in[d] = from.dims.dim[d];
        r->out[d] = to.dims.dim[d];
        r->most[d] = most_taps(how, from.axis[d], changed);
        r->rank = changed ? d + 1 : r->rank;
        if (r->in[d] > INT32_MAX || r->out[d] > INT32_MAX)
            return false;
    }
    if (r->rank == 0)
        return false; /* nothing changes */
    for (uint32_t d = r->rank; d < from.dims.rank; d++)
        r->inner *= r->in[d];
    for (uint32_t d = 0; d + 1 < r->rank; d++)
        if (__builtin_mul_overflow(rows, r->most[d], &rows))
            return false;
    op->units = ref_extent(&to.dims, 0, r->rank - 1);
    return rows <= ROWS_MAX;
}

bool native_resize_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node)
{
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    const struct ref_resize how = call_resize(node, x->rank);
    op->work = run_resize;
    op->keep = keep_tables;
    if (stored_moves(graph, node)) {
        op->work = run_nearest;
        return set_dims(op, &how, x, y);
    }
    return native_all_f32(graph, node, 0) && how.coord != IR_COORD_TF_CROP &&
           native_after_make(op, graph, node) && set_dims(op, &how, x, y);
}
