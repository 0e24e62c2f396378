/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A function of one operand changes each element where it stands, so it may as well stand before
 * the reshapes and transposes between it and a product or a convolution, which it can then join:
 *
 *   gelu(transpose(reshape(conv(x))))  becomes  transpose(reshape(gelu(conv(x))))
 *
 * as SegFormer's MLP has it. A sum behind a reshape of a product stands before it too, if the other
 * operand is as large, because a reshape of that one costs nothing.
 */
#include "engine/passes/host.h"

enum { SHUFFLES_MAX = 8 };

/* The tensor in front of the single reshapes (and transposes) that make the tensor, if a product
 * makes it; else IR_NONE. `*first` gets the shuffle that reads it. */
static uint32_t before_shuffles(struct rewrite *rw, uint32_t tensor, bool transposes, uint32_t last,
                                uint32_t *first)
{
    *first = IR_NONE;
    for (uint32_t i = 0; i < SHUFFLES_MAX; i++) {
        uint32_t node = rw_made_by(rw, tensor, IR_OP_RESHAPE);
        if (node == IR_NONE && transposes)
            node = rw_made_by(rw, tensor, IR_OP_TRANSPOSE);
        if (node == IR_NONE)
            break;
        if (rw_uses(rw, tensor) != 1) {
            rw_near_miss(rw, "%s stays behind %s, which has %u readers",
                         ir_node(rw->graph, last)->name, ir_node(rw->graph, node)->name,
                         rw_uses(rw, tensor));
            return IR_NONE;
        }
        *first = node;
        tensor = rw_input(rw, node, 0);
    }
    uint32_t made_by = ir_tensor(rw->graph, tensor)->producer;
    return *first != IR_NONE && made_by != IR_NONE && host_is_heavy(rw, made_by) &&
                   host_find(rw, tensor, last) != IR_NONE
               ? tensor
               : IR_NONE;
}

/* Lets the shuffles read what was made in front of them, and their last make the node's output. */
static void finish(struct rewrite *rw, uint32_t node, uint32_t shuffled, uint32_t first,
                   uint32_t made)
{
    rw_done(rw, "%s before %s", ir_node(rw->graph, node)->name, ir_node(rw->graph, first)->name);
    uint32_t last = ir_tensor(rw->graph, shuffled)->producer;
    rw_set_input(rw, first, 0, made);
    rw_absorb(rw, last, node);
}

static void visit_unary(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    enum ir_unary func = (enum ir_unary)ir_attr_int(n, IR_ATTR_FUNC);
    uint32_t y = rw_input(rw, node, 0), first;
    if (!host_routines[func])
        return;
    uint32_t x = before_shuffles(rw, y, true, node, &first);
    if (x == IR_NONE)
        return;
    struct unary_args args = rw_unary_args(n);
    uint32_t made = rw_add_node(rw, IR_OP_UNARY, n->name, 1, &x);
    if (made == IR_NONE)
        return;
    rw_become_unary(rw, made, x, func, args);
    uint32_t z = rw_finish(rw, made);
    if (z != IR_NONE)
        finish(rw, node, y, first, z);
}

/* Says whether the tensor is a product by constant weights. A convolution may want another layout
 * than the other operand has, and scores wait to become attention. */
static bool is_by_weights(const struct rewrite *rw, uint32_t tensor)
{
    const struct ir_node *n = ir_node(rw->graph, ir_tensor(rw->graph, tensor)->producer);
    return n->op == IR_OP_MATMUL && ir_tensor(rw->graph, n->inputs[1])->data;
}

/* Makes the operand a tensor of that shape. */
static uint32_t reshaped(struct rewrite *rw, uint32_t tensor, const struct shape *shape)
{
    if (ir_tensor(rw->graph, tensor)->data)
        return rw_share_constant(rw, tensor, shape);
    return rw_add_reshape(rw, ir_tensor(rw->graph, tensor)->name, tensor, shape->rank, shape->dim);
}

static void visit_binary(struct rewrite *rw, uint32_t node)
{
    int64_t func = ir_attr_int(ir_node(rw->graph, node), IR_ATTR_FUNC);
    const char *name = ir_node(rw->graph, node)->name;
    if (func > IR_BINARY_MIN)
        return;
    for (uint32_t i = 0; i < (host_commutes(func) ? 2 : 1); i++) {
        uint32_t y = rw_input(rw, node, i), other = rw_input(rw, node, 1 - i), first, in[2];
        const struct shape *out = &ir_tensor(rw->graph, rw_output(rw, node))->shape;
        if (!shape_equal(&ir_tensor(rw->graph, y)->shape, out) ||
            !shape_equal(&ir_tensor(rw->graph, other)->shape, out))
            continue;
        in[i] = before_shuffles(rw, y, false, node, &first);
        if (in[i] == IR_NONE || !is_by_weights(rw, in[i]))
            continue;
        const struct shape shape = ir_tensor(rw->graph, in[i])->shape;
        in[1 - i] = reshaped(rw, other, &shape);
        if (in[1 - i] == IR_NONE)
            return;
        uint32_t made = rw_add_node(rw, IR_OP_BINARY, name, 2, in);
        rw_set_int(rw, made, IR_ATTR_FUNC, func);
        uint32_t z = rw_finish(rw, made);
        if (z != IR_NONE)
            finish(rw, node, y, first, z);
        return;
    }
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->n_epilogue || !rw_is_float(rw, n->outputs[0]) ||
        ir_tensor(rw->graph, n->inputs[0])->dtype != ir_tensor(rw->graph, n->outputs[0])->dtype)
        return;
    if (n->op == IR_OP_UNARY)
        visit_unary(rw, node);
    else if (n->op == IR_OP_BINARY)
        visit_binary(rw, node);
}

PASS(hoist_activations)
{
    return rewrite_run(graph, ctx, visit, err);
}
