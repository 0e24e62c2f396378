/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A concatenation of slices of one tensor along the axis in which they were cut is one gather by
 * constant indices: a roll, as Swin's shifted windows have it, is one copy instead of three. Two
 * gathers over neighbouring axes, as of a roll over both axes of an image, are one over their
 * product. Of other operands of a concatenation, slices that are neighbours in one tensor are one
 * slice, or the tensor itself: YOLO splits an image, changes one part and puts all together.
 */
#include <string.h>

#include "engine/passes/rewrite.h"

enum { INDICES_MAX = 1 << 18 };

/* Says whether the tensor is a slice of `x` with steps of 1 along `axis`, and whole elsewhere;
 * gives its first index. */
static bool is_slice(const struct rewrite *rw, uint32_t tensor, uint32_t axis, uint32_t *x,
                     int64_t *first)
{
    uint32_t slice = rw_made_by(rw, tensor, IR_OP_SLICE);
    if (slice == IR_NONE)
        return false;
    const struct ir_node *n = ir_node(rw->graph, slice);
    const struct shape *from = &ir_tensor(rw->graph, n->inputs[0])->shape;
    const struct shape *to = &ir_tensor(rw->graph, tensor)->shape;
    for (uint32_t d = 0; d < from->rank; d++)
        if (ir_attr_at(n, IR_ATTR_STEPS, d) != 1 || (d != axis && from->dim[d] != to->dim[d]))
            return false;
    *x = n->inputs[0];
    *first = ir_attr_at(n, IR_ATTR_STARTS, axis);
    return true;
}

/* The same of a slice that nobody else reads. */
static bool is_part(const struct rewrite *rw, uint32_t tensor, uint32_t axis, uint32_t *x,
                    int64_t *first)
{
    return rw_uses(rw, tensor) == 1 && is_slice(rw, tensor, axis, x, first);
}

/* Whether operand i of a concatenation ends where operand i + 1 begins, in one tensor `x`. */
static bool are_neighbours(const struct rewrite *rw, const struct ir_node *n, uint32_t i,
                           uint32_t axis, uint32_t *x, int64_t *first)
{
    uint32_t other;
    int64_t second;
    return is_slice(rw, n->inputs[i], axis, x, first) &&
           is_slice(rw, n->inputs[i + 1], axis, &other, &second) && other == *x &&
           *first + ir_tensor(rw->graph, n->inputs[i])->shape.dim[axis] == second;
}

/* Makes one operand of two neighbours. */
static void join_neighbours(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    uint32_t axis = (uint32_t)ir_attr_int(n, IR_ATTR_AXIS), x = IR_NONE, i = 0,
             inputs[IR_MAX_INPUTS];
    int64_t first = 0;
    while (i + 1 < n->n_inputs && !are_neighbours(rw, n, i, axis, &x, &first))
        i++;
    if (n->n_inputs < 3 || i + 1 >= n->n_inputs)
        return;
    int64_t size = ir_tensor(rw->graph, n->inputs[i])->shape.dim[axis] +
                   ir_tensor(rw->graph, n->inputs[i + 1])->shape.dim[axis];
    bool again = rw_uses(rw, n->inputs[i]) > 1 || rw_uses(rw, n->inputs[i + 1]) > 1;
    if (again && size < ir_tensor(rw->graph, x)->shape.dim[axis])
        return; /* it would be one slice more */
    const char *name = ir_node(rw->graph, ir_tensor(rw->graph, n->inputs[i])->producer)->name;
    uint32_t both = rw_add_slice(rw, name, x, axis, first, first + size);
    if (both == IR_NONE)
        return;
    n = ir_node(rw->graph, node);
    memcpy(inputs, n->inputs, n->n_inputs * sizeof(*inputs));
    memmove(&inputs[i + 1], &inputs[i + 2], (n->n_inputs - i - 2) * sizeof(*inputs));
    inputs[i] = both;
    rw_done(rw, "%s takes neighbouring slices of %s as one", n->name,
            ir_tensor(rw->graph, x)->name);
    rw_become(rw, node, IR_OP_CONCAT, n->n_inputs - 1, inputs);
    rw_set_int(rw, node, IR_ATTR_AXIS, axis);
}

/* A constant of indices with this shape, which the caller fills. */
static uint32_t add_indices(struct rewrite *rw, uint32_t node, const struct shape *shape,
                            int64_t **out)
{
    void *data = NULL;
    uint32_t made = rw_add_constant(rw, ir_node(rw->graph, node)->name, DTYPE_I64, shape, &data);
    *out = data;
    return made;
}

static void become_gather(struct rewrite *rw, uint32_t node, uint32_t x, uint32_t indices,
                          int64_t axis)
{
    rw_become(rw, node, IR_OP_GATHER, 2, (const uint32_t[]){x, indices});
    rw_set_int(rw, node, IR_ATTR_AXIS, axis);
}

static void visit_concat(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    uint32_t axis = (uint32_t)ir_attr_int(n, IR_ATTR_AXIS), x = IR_NONE, part = IR_NONE;
    const struct shape *y = &ir_tensor(rw->graph, n->outputs[0])->shape;
    const struct shape shape = {.rank = 1, .dim = {y->dim[axis]}};
    int64_t first, *to;
    /* Along the last axis elements would be gathered one by one, which costs more than slices. */
    if (n->n_inputs < 2 || axis + 1 >= y->rank || shape.dim[0] > INDICES_MAX)
        return;
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        if (!is_part(rw, n->inputs[i], axis, &part, &first) || (i && part != x))
            return;
        x = part;
    }
    uint32_t indices = add_indices(rw, node, &shape, &to);
    if (indices == IR_NONE)
        return;
    n = ir_node(rw->graph, node);
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        is_part(rw, n->inputs[i], axis, &part, &first);
        int64_t size = ir_tensor(rw->graph, n->inputs[i])->shape.dim[axis];
        for (int64_t k = 0; k < size; k++)
            *to++ = first + k;
    }
    rw_done(rw, "%s is a gather of %u slices", n->name, n->n_inputs);
    become_gather(rw, node, x, indices, axis);
}

/* The constant indices along one axis of a gather, or NULL. */
static const int64_t *indices_of(const struct rewrite *rw, uint32_t node, int64_t *count)
{
    const struct ir_tensor *t = ir_tensor(rw->graph, rw_input(rw, node, 1));
    if (!t->data || t->dtype != DTYPE_I64 || t->shape.rank != 1)
        return NULL;
    *count = t->shape.dim[0];
    return t->data;
}

static void visit_gather(struct rewrite *rw, uint32_t node)
{
    uint32_t x = rw_input(rw, node, 0), first = rw_made_by(rw, x, IR_OP_GATHER);
    if (first == IR_NONE || rw_uses(rw, x) != 1)
        return;
    int64_t axis = ir_attr_int(ir_node(rw->graph, node), IR_ATTR_AXIS), n[2] = {0, 0}, *to;
    int64_t other = ir_attr_int(ir_node(rw->graph, first), IR_ATTR_AXIS);
    uint32_t low = (uint32_t)MIN(axis, other), source = rw_input(rw, first, 0);
    bool node_is_high = axis > other;
    const int64_t *high_indices = indices_of(rw, node_is_high ? node : first, &n[1]);
    const int64_t *low_indices = indices_of(rw, node_is_high ? first : node, &n[0]);
    const struct shape from = ir_tensor(rw->graph, source)->shape;
    if (axis - other != (node_is_high ? 1 : -1) || !high_indices || !low_indices ||
        n[0] * n[1] > INDICES_MAX || n[0] > INDICES_MAX)
        return;
    struct shape joined = {.rank = from.rank - 1}, shape = {.rank = 2, .dim = {n[0], n[1]}};
    for (uint32_t d = 0; d < joined.rank; d++)
        joined.dim[d] = from.dim[d + (d > low)] * (d == low ? from.dim[d + 1] : 1);
    const char *name = ir_node(rw->graph, first)->name;
    uint32_t flat = rw_add_reshape(rw, name, source, joined.rank, joined.dim);
    uint32_t indices = add_indices(rw, node, &shape, &to);
    if (flat == IR_NONE || indices == IR_NONE)
        return;
    int64_t rows = from.dim[low], columns = from.dim[low + 1];
    for (int64_t i = 0; i < n[0]; i++)
        for (int64_t k = 0; k < n[1]; k++)
            *to++ = (low_indices[i] < 0 ? low_indices[i] + rows : low_indices[i]) * columns +
                    (high_indices[k] < 0 ? high_indices[k] + columns : high_indices[k]);
    rw_done(rw, "%s and %s are one gather", name, ir_node(rw->graph, node)->name);
    become_gather(rw, node, flat, indices, low);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    if (ir_node(rw->graph, node)->n_epilogue)
        return;
    if (ir_node(rw->graph, node)->op == IR_OP_CONCAT)
        visit_concat(rw, node);
    if (ir_node(rw->graph, node)->op == IR_OP_CONCAT)
        join_neighbours(rw, node);
    else if (ir_node(rw->graph, node)->op == IR_OP_GATHER)
        visit_gather(rw, node);
}

PASS(gather_slices)
{
    return rewrite_run(graph, ctx, visit, err);
}
