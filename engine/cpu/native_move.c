/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TRANSPOSE, GATHER and GATHER_ELEMENTS. A transpose of elements of four bytes that does not keep
 * rows whole becomes a series of matrix transposes over the two dims that are dense in x and in y.
 * Any other one is a strided copy (native_strided.c).
 */
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/native_op.h"
#include "kernels/cpu/index.h"

enum {
    BLOCK = 64,           /* columns of x (rows of y) in one unit */
    COPY_BYTES = 1 << 15, /* bytes in one unit of a long copy */
};

/* --- matrices --- */

static void transpose_blocks(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    struct ref_walk w = op->walk;
    ref_walk_seek(&w, first / op->blocks);
    int64_t block = first % op->blocks;
    for (int64_t unit = first; unit < end; unit++) {
        int64_t col = block * BLOCK;
        op->fast->transpose_32((const uint32_t *)op->inputs[0] + w.at[1] + col, op->x_row,
                               (uint32_t *)op->output + w.at[0] + col * op->y_row, op->y_row,
                               op->rows, MIN(op->cols - col, BLOCK));
        if (++block == op->blocks) {
            block = 0;
            ref_walk_next(&w);
        }
    }
}

/* Takes the dim along which x is dense out of the walk, if there is one, and makes it the matrix's
 * columns. */
static void take_matrix(struct native_op *op)
{
    struct ref_walk *w = &op->walk;
    uint32_t d = 0;
    while (d < w->rank && w->stride[1][d] != 1)
        d++;
    if (d == w->rank)
        return;
    op->rows = w->row;
    op->x_row = w->step[1];
    op->cols = w->dim[d];
    op->y_row = w->stride[0][d];
    op->blocks = (op->cols + BLOCK - 1) / BLOCK;
    for (w->rank--; d < w->rank; d++) {
        w->dim[d] = w->dim[d + 1];
        w->stride[0][d] = w->stride[0][d + 1];
        w->stride[1][d] = w->stride[1][d + 1];
    }
    op->units = ref_walk_rows(w) * op->blocks;
    op->work = transpose_blocks;
}

bool native_transpose_make(struct native_op *op, const struct ir_graph *graph,
                           const struct ir_node *node)
{
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    int64_t from[SHAPE_MAX_RANK], strides[2][SHAPE_MAX_RANK];
    shape_strides(y, strides[0]);
    shape_strides(&x->shape, from);
    for (uint32_t d = 0; d < y->rank; d++)
        strides[1][d] = from[ir_attr_at(node, IR_ATTR_PERM, d)];
    if (!native_strided_make(op, x, y, strides, 0))
        return false;
    if (op->walk.step[1] != 1 && op->size == 4)
        take_matrix(op);
    return true;
}

/* --- gather: each pick copies a run of `row` bytes, in blocks --- */

static struct tensor_view picks_of(const struct native_op *op)
{
    struct tensor_view view = {.dtype = op->index_dtype, .data = op->inputs[1]};
    view.shape = (struct shape){.rank = 1, .dim = {op->picks}};
    return view;
}

/* Whether all of many indices are in range, without a branch for each. */
static bool all_in_range(const struct native_op *op, const void *picks)
{
    int64_t least = 0, most = 0;
    if (op->index_dtype != DTYPE_I64)
        return false; /* the caller looks at each */
    for (int64_t i = 0; i < op->picks; i++) {
        int64_t pick;
        memcpy(&pick, (const char *)picks + i * (int64_t)sizeof(pick), sizeof(pick));
        least = MIN(least, pick);
        most = MAX(most, pick);
    }
    return least >= -op->table && most < op->table;
}

static enum status check_picks(const struct native_op *op, struct error *err)
{
    struct tensor_view picks = picks_of(op);
    if (all_in_range(op, op->inputs[1]))
        return STATUS_OK;
    for (int64_t i = 0; i < op->picks; i++) {
        int64_t index;
        enum status status = ref_index(&picks, i, op->table, &index, err);
        if (status) {
            error_prefix(err, "%s '%s'", op->along ? "gather_elements" : "gather", op->name);
            return status;
        }
    }
    return STATUS_OK;
}

/* Each launch checks the indices, unless they are a constant that is here, and right. */
static void set_check(struct native_op *op, const struct ir_tensor *picks)
{
    if (!picks->data || !all_in_range(op, picks->data))
        op->check = check_picks;
}

static void copy_picks(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    struct tensor_view picks = picks_of(op);
    for (int64_t unit = first; unit < end; unit++) {
        int64_t run = unit / op->blocks, at = unit % op->blocks * COPY_BYTES, index = 0;
        if (ref_index(&picks, run % op->picks, op->table, &index, NULL))
            continue; /* check_picks passed, so somebody writes to the indices meanwhile */
        int64_t from = run / op->picks * op->table + index;
        memcpy((char *)op->output + run * op->row + at,
               (const char *)op->inputs[0] + from * op->row + at,
               (size_t)MIN(op->row - at, COPY_BYTES));
    }
}

/* The same for single numbers. */
static void copy_numbers(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    struct tensor_view picks = picks_of(op);
    int64_t outer = first / op->picks, pick = first % op->picks, index = 0;
    size_t size = (size_t)op->row;
    for (int64_t unit = first; unit < end; unit++) {
        if (!ref_index(&picks, pick, op->table, &index, NULL))
            ref_put((char *)op->output + unit * op->row,
                    (const char *)op->inputs[0] + (outer * op->table + index) * op->row, size);
        if (++pick == op->picks) {
            pick = 0;
            outer++;
        }
    }
}

bool native_gather_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node)
{
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    const struct ir_tensor *picks = ir_tensor(graph, node->inputs[1]);
    uint32_t axis = (uint32_t)ir_attr_int(node, IR_ATTR_AXIS);
    op->name = node->name;
    op->index_dtype = picks->dtype;
    op->picks = ref_extent(&picks->shape, 0, picks->shape.rank);
    op->table = x->shape.dim[axis];
    op->row = ref_extent(&x->shape, axis + 1, x->shape.rank) * (int64_t)dtype_size(x->dtype);
    op->blocks = (op->row + COPY_BYTES - 1) / COPY_BYTES;
    op->units = ref_extent(&x->shape, 0, axis) * op->picks * op->blocks;
    op->work = op->row == 4 || op->row == 8 ? copy_numbers : copy_picks;
    set_check(op, picks);
    return true;
}

/* --- gather_elements: each index picks a number of its own row --- */

static void copy_elements(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    struct tensor_view picks = picks_of(op);
    struct ref_walk w = op->walk;
    ref_walk_seek(&w, first);
    for (int64_t unit = first; unit < end; unit++) {
        for (int64_t i = 0; i < w.row; i++) {
            int64_t to = w.at[0] + i, index = 0;
            if (ref_index(&picks, to, op->table, &index, NULL))
                continue; /* as in copy_picks */
            int64_t from = w.at[1] + i * w.step[1] + index * op->along;
            ref_put((char *)op->output + to * op->size,
                    (const char *)op->inputs[0] + from * op->size, (size_t)op->size);
        }
        ref_walk_next(&w);
    }
}

/* Numbers of four bytes by indices of eight, with which most models come. */
static void copy_elements_4(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    const int64_t *picks = op->inputs[1], dim = op->table, along = op->along;
    const uint32_t *x = op->inputs[0];
    uint32_t *y = op->output;
    struct ref_walk w = op->walk;
    ref_walk_seek(&w, first);
    for (int64_t unit = first; unit < end; unit++) {
        int64_t at = w.at[1], step = w.step[1];
        for (int64_t to = w.at[0]; to < w.at[0] + w.row; to++, at += step) {
            int64_t index = picks[to] + (picks[to] < 0 ? dim : 0);
            if ((uint64_t)index < (uint64_t)dim) /* as in copy_picks */
                y[to] = x[at + index * along];
        }
        ref_walk_next(&w);
    }
}

bool native_gather_elements_make(struct native_op *op, const struct ir_graph *graph,
                                 const struct ir_node *node)
{
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    const struct ir_tensor *picks = ir_tensor(graph, node->inputs[1]);
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    uint32_t axis = (uint32_t)ir_attr_int(node, IR_ATTR_AXIS);
    int64_t strides[2][SHAPE_MAX_RANK];
    shape_strides(y, strides[0]);
    shape_strides(&x->shape, strides[1]);
    op->along = strides[1][axis];
    strides[1][axis] = 0;
    if (!ref_walk_init(&op->walk, y, 2, strides) || op->walk.step[0] != 1)
        return false;
    op->name = node->name;
    op->index_dtype = picks->dtype;
    op->picks = ref_extent(&picks->shape, 0, picks->shape.rank);
    op->table = x->shape.dim[axis];
    op->size = (int64_t)dtype_size(x->dtype);
    op->units = ref_walk_rows(&op->walk);
    op->work = op->size == 4 && picks->dtype == DTYPE_I64 ? copy_elements_4 : copy_elements;
    set_check(op, picks);
    return true;
}
