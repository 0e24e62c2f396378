/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What reads x at steps of its own, or repeats it: SLICE with other steps than 1, EXPAND, TILE of
 * dims of one element, and each TRANSPOSE that is no series of matrices (native_move.c).
 */
#include <string.h>

#include "engine/cpu/native_op.h"

#define COPY(type)                                                                                 \
    do {                                                                                           \
        const type *x = (const type *)from;                                                        \
        type *y = (type *)to;                                                                      \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = x[i * step];                                                                    \
    } while (0)

static void copy_row(void *to, const void *from, int64_t n, int64_t step, int64_t size)
{
    if (step == 1)
        memcpy(to, from, (size_t)(n * size));
    else if (size == 1)
        COPY(uint8_t);
    else if (size == 2)
        COPY(uint16_t);
    else if (size == 4)
        COPY(uint32_t);
    else
        COPY(uint64_t);
}

static void copy_rows(void *user, int64_t first, int64_t end)
{
    const struct native_op *op = user;
    struct ref_walk w = op->walk;
    ref_walk_seek(&w, first);
    for (int64_t unit = first; unit < end; unit++) {
        copy_row((char *)op->output + w.at[0] * op->size,
                 (const char *)op->inputs[0] + (op->start + w.at[1]) * op->size, w.row, w.step[1],
                 op->size);
        ref_walk_next(&w);
    }
}

bool native_strided_make(struct native_op *op, const struct ir_tensor *x, const struct shape *y,
                         int64_t (*strides)[SHAPE_MAX_RANK], int64_t start)
{
    op->size = (int64_t)dtype_size(x->dtype);
    op->start = start;
    if (!ref_walk_init(&op->walk, y, 2, strides) || op->walk.step[0] != 1)
        return false;
    op->units = ref_walk_rows(&op->walk);
    op->work = copy_rows;
    return true;
}

bool native_expand_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node)
{
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    int64_t strides[2][SHAPE_MAX_RANK];
    for (uint32_t d = 0; node->op == IR_OP_TILE && d < y->rank; d++)
        if (x->shape.dim[d] != 1 && x->shape.dim[d] != y->dim[d])
            return false;
    shape_strides(y, strides[0]);
    ref_broadcast_strides(&x->shape, y, strides[1]);
    return native_strided_make(op, x, y, strides, 0);
}

bool native_steps_make(struct native_op *op, const struct ir_graph *graph,
                       const struct ir_node *node)
{
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    int64_t strides[2][SHAPE_MAX_RANK], start = 0;
    if (op->layout != IR_LAYOUT_PLAIN)
        return false;
    shape_strides(y, strides[0]);
    shape_strides(&x->shape, strides[1]);
    for (uint32_t d = 0; d < y->rank; d++) {
        start += ir_attr_at(node, IR_ATTR_STARTS, d) * strides[1][d];
        if (y->dim[d] > 1) /* a lone step may be huge */
            strides[1][d] *= ir_attr_at(node, IR_ATTR_STEPS, d);
    }
    return native_strided_make(op, x, y, strides, start);
}
