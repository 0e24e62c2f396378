/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An elementwise operation broadcasts by itself, so it reads past an EXPAND if its result keeps its
 * shape. Exporters write such expands for masks and position tables.
 */
#include "engine/passes/rewrite.h"

/* The shape to which all inputs broadcast, with `x` in the place of input `i`. */
static bool broadcast_with(const struct rewrite *rw, uint32_t node, uint32_t i, uint32_t x,
                           struct shape *out)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    struct shape all = {0};
    for (uint32_t j = 0; j < ir_node_own_inputs(n); j++) {
        uint32_t tensor = j == i ? x : n->inputs[j];
        if (!shape_broadcast(&all, &ir_tensor(rw->graph, tensor)->shape, &all))
            return false;
    }
    *out = all;
    return true;
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op != IR_OP_BINARY && n->op != IR_OP_SELECT)
        return;
    for (uint32_t i = 0; i < ir_node_own_inputs(n) && !rw->status; i++) {
        uint32_t expand = rw_made_by(rw, n->inputs[i], IR_OP_EXPAND);
        struct shape shape;
        if (expand == IR_NONE || !broadcast_with(rw, node, i, rw_input(rw, expand, 0), &shape))
            continue;
        if (!shape_equal(&shape, &ir_tensor(rw->graph, n->outputs[0])->shape)) {
            rw_near_miss(rw, "%s needs the shape that %s gives", n->name,
                         ir_node(rw->graph, expand)->name);
            continue;
        }
        rw_done(rw, "%s reads past %s", n->name, ir_node(rw->graph, expand)->name);
        rw_set_input(rw, node, i, rw_input(rw, expand, 0));
    }
}

PASS(skip_expand)
{
    return rewrite_run(graph, ctx, visit, err);
}
