/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What ops have in common that run in several layouts: the order of dims in memory, and the
 * epilogue, which runs over each stretch of the output as soon as it is written.
 */
#include "base/compiler.h"
#include "engine/cpu/native_op.h"

static void add_dim(struct native_stored *s, uint32_t axis, int64_t dim, int64_t unit)
{
    uint32_t d = s->dims.rank++;
    s->dims.dim[d] = dim;
    s->axis[d] = axis;
    s->unit[d] = unit;
}

bool native_stored_make(const struct shape *shape, enum ir_layout layout, struct native_stored *out)
{
    int64_t block = ir_layout_block(layout);
    bool plain = layout == IR_LAYOUT_PLAIN;
    *out = (struct native_stored){.dims.rank = 0};
    if (!plain &&
        (shape->rank < 3 || shape->rank > 5 || ir_layouts_agree(shape, IR_LAYOUT_PLAIN, layout) ||
         (block ? shape->dim[1] % block != 0 : layout != IR_LAYOUT_CHANNELS_LAST)))
        return false;
    for (uint32_t d = 0; d < shape->rank; d++)
        if (plain || d != 1)
            add_dim(out, d, shape->dim[d], 1);
        else if (block)
            add_dim(out, d, shape->dim[d] / block, block);
    if (!plain)
        add_dim(out, 1, block ? block : shape->dim[1], 1);
    return true;
}

bool native_follows(const struct ir_graph *graph, const struct ir_node *node,
                    const struct native_op *op, uint32_t tensor)
{
    if (op->layout == IR_LAYOUT_PLAIN || tensor == IR_NONE)
        return false;
    return op->inputs_follow || (tensor == node->inputs[0] && node->op != IR_OP_BINARY) ||
           shape_equal(&ir_tensor(graph, tensor)->shape,
                       &ir_tensor(graph, node->outputs[0])->shape);
}

bool native_stored_read(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++) {
        uint32_t tensor = k ? node->inputs[op->input[k]] : node->outputs[0];
        if (!stored_read(graph, tensor, &op->stored[k]))
            return false;
        enum dtype dtype = ir_tensor(graph, tensor)->dtype;
        if (op->stored[k].dtype != DTYPE_NONE || dtype == DTYPE_F32)
            continue;
        if (k == 0 || (dtype != DTYPE_U8 && dtype != DTYPE_I8))
            return false;
        op->stored[k] = (struct stored){dtype, 1, 0};
    }
    return true;
}

bool native_walk_make(struct native_op *op, const struct ir_graph *graph,
                      const struct ir_node *node, uint32_t n, struct ref_walk *walk)
{
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    int64_t strides[REF_WALK_MAX][SHAPE_MAX_RANK], logical[SHAPE_MAX_RANK];
    struct native_stored stored;
    if (!native_stored_make(y, op->layout, &stored))
        return false;
    shape_strides(&stored.dims, strides[0]);
    for (uint32_t k = 1; k < n; k++) {
        uint32_t tensor = node->inputs[op->input[k]];
        ref_broadcast_strides(&ir_tensor(graph, tensor)->shape, y, logical);
        for (uint32_t d = 0; d < stored.dims.rank; d++)
            strides[k][d] = native_follows(graph, node, op, tensor)
                                ? strides[0][d]
                                : logical[stored.axis[d]] * stored.unit[d];
    }
    return ref_walk_init(walk, &stored.dims, n, strides);
}

bool native_after_make(struct native_op *op, const struct ir_graph *graph,
                       const struct ir_node *node)
{
    uint32_t n = 1;
    return native_steps_add(op, node, &n) && native_stored_read(op, graph, node, n) &&
           native_walk_make(op, graph, node, n, &op->after);
}

void native_after(const struct native_op *op, int64_t at, int64_t n)
{
    native_after_on(op, at, (float *)op->output + at, n);
}

void native_after_on(const struct native_op *op, int64_t at, float *y, int64_t n)
{
    if (op->n_steps == 0)
        return;
    struct ref_walk w = op->after;
    ref_walk_seek(&w, at / w.row);
    for (int64_t in_row = at % w.row, end = at + n; at < end;) {
        int64_t part = MIN(MIN(end - at, w.row - in_row), NATIVE_CHUNK);
        native_steps_run(op, w.at, w.step, in_row, y, y, (size_t)part);
        at += part;
        y += part;
        in_row += part;
        if (in_row == w.row) {
            in_row = 0;
            ref_walk_next(&w);
        }
    }
}
