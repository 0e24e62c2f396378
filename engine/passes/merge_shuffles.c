/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Merges reshape after reshape, transpose after transpose, slice after slice into one. A transpose
 * that moves only dimensions of size 1 becomes a reshape, which costs nothing.
 *
 * If the first of the two has other readers, it stays, and the second one reads past it.
 */
#include "engine/passes/rewrite.h"

static void tell(struct rewrite *rw, uint32_t node, uint32_t first)
{
    const struct ir_graph *g = rw->graph;
    rw_done(rw, "%s reads past %s", ir_node(g, node)->name, ir_node(g, first)->name);
}

static void merge_reshape(struct rewrite *rw, uint32_t node)
{
    uint32_t first = rw_made_by(rw, rw_input(rw, node, 0), IR_OP_RESHAPE);
    if (first == IR_NONE)
        return;
    tell(rw, node, first);
    rw_set_input(rw, node, 0, rw_input(rw, first, 0));
}

static void merge_transpose(struct rewrite *rw, uint32_t node)
{
    uint32_t first = rw_made_by(rw, rw_input(rw, node, 0), IR_OP_TRANSPOSE);
    if (first == IR_NONE)
        return;
    const struct ir_attr *outer = ir_attr(ir_node(rw->graph, node), IR_ATTR_PERM);
    const struct ir_attr *inner = ir_attr(ir_node(rw->graph, first), IR_ATTR_PERM);
    int64_t perm[SHAPE_MAX_RANK];
    for (uint32_t i = 0; i < outer->count; i++)
        perm[i] = inner->i[outer->i[i]];
    rw_set_ints(rw, node, IR_ATTR_PERM, outer->count, perm);
    tell(rw, node, first);
    rw_set_input(rw, node, 0, rw_input(rw, first, 0));
}

static void transpose_to_reshape(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    const struct ir_attr *perm = ir_attr(n, IR_ATTR_PERM);
    uint32_t x = rw_input(rw, node, 0);
    const struct shape *from = &ir_tensor(rw->graph, x)->shape;
    int64_t last = -1;
    for (uint32_t i = 0; i < perm->count; i++) {
        if (from->dim[perm->i[i]] == 1)
            continue;
        if (perm->i[i] < last)
            return;
        last = perm->i[i];
    }
    struct shape to = ir_tensor(rw->graph, n->outputs[0])->shape;
    if (shape_equal(from, &to))
        return; /* left to erase_noops */
    rw_become_reshape(rw, node, x, to.rank, to.dim);
    rw_done(rw, "%s is a reshape", ir_node(rw->graph, node)->name);
}

static bool steps_are_positive(const struct ir_node *node)
{
    const struct ir_attr *steps = ir_attr(node, IR_ATTR_STEPS);
    for (uint32_t i = 0; i < steps->count; i++)
        if (steps->i[i] < 1 || steps->i[i] > IR_MAX_DIM)
            return false;
    return true;
}

static void merge_slice(struct rewrite *rw, uint32_t node)
{
    uint32_t first = rw_made_by(rw, rw_input(rw, node, 0), IR_OP_SLICE);
    const struct ir_node *outer = ir_node(rw->graph, node);
    if (first == IR_NONE || !steps_are_positive(outer) ||
        !steps_are_positive(ir_node(rw->graph, first)))
        return;
    const struct ir_node *inner = ir_node(rw->graph, first);
    const struct shape *to = &ir_tensor(rw->graph, outer->outputs[0])->shape;
    int64_t starts[SHAPE_MAX_RANK], ends[SHAPE_MAX_RANK], steps[SHAPE_MAX_RANK];
    for (uint32_t i = 0; i < to->rank; i++) {
        int64_t step = ir_attr_at(inner, IR_ATTR_STEPS, i);
        int64_t outer_step = ir_attr_at(outer, IR_ATTR_STEPS, i);
        starts[i] =
            ir_attr_at(inner, IR_ATTR_STARTS, i) + step * ir_attr_at(outer, IR_ATTR_STARTS, i);
        if (to->dim[i] == 0)
            starts[i] = 0;
        /* If one element is left, any step is right, but a large one could overflow. */
        steps[i] = to->dim[i] > 1 ? step * outer_step : 1;
        ends[i] = to->dim[i] ? starts[i] + (to->dim[i] - 1) * steps[i] + 1 : 0;
    }
    uint32_t rank = to->rank;
    rw_set_ints(rw, node, IR_ATTR_STARTS, rank, starts);
    rw_set_ints(rw, node, IR_ATTR_ENDS, rank, ends);
    rw_set_ints(rw, node, IR_ATTR_STEPS, rank, steps);
    tell(rw, node, first);
    rw_set_input(rw, node, 0, rw_input(rw, first, 0));
}

static void visit(struct rewrite *rw, uint32_t node)
{
    switch (ir_node(rw->graph, node)->op) {
    case IR_OP_RESHAPE:
        merge_reshape(rw, node);
        break;
    case IR_OP_TRANSPOSE:
        merge_transpose(rw, node);
        if (!rw->status)
            transpose_to_reshape(rw, node);
        break;
    case IR_OP_SLICE:
        merge_slice(rw, node);
        break;
    default:
        break;
    }
}

PASS(merge_shuffles)
{
    return rewrite_run(graph, ctx, visit, err);
}
