/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Drops nodes that hand their input on as it is: identities (what is left of Dropout), reshapes to
 * the same shape, casts to the same type, slices of everything, padding by nothing, x + 0, x * 1,
 * ...
 *
 * A node between a graph input (or a constant) and a graph output stays, because a node must make
 * each output.
 */
#include "engine/passes/constant.h"

#include <float.h>

static bool all_ints(const struct ir_node *node, enum ir_attr_key key, int64_t value)
{
    const struct ir_attr *attr = ir_attr(node, key);
    for (uint32_t i = 0; attr && i < attr->count; i++)
        if (attr->i[i] != value)
            return false;
    return true;
}

/* True if only dimensions of size 1 change places: then no element moves. */
static bool keeps_order(const struct ir_node *node, const struct shape *shape)
{
    const struct ir_attr *perm = ir_attr(node, IR_ATTR_PERM);
    int64_t last = -1;
    for (uint32_t i = 0; i < perm->count; i++) {
        if (shape->dim[perm->i[i]] == 1)
            continue;
        if (perm->i[i] < last)
            return false;
        last = perm->i[i];
    }
    return true;
}

static bool keeps_values(struct rewrite *rw, uint32_t node, uint32_t x)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    struct unary_args args = n->op == IR_OP_UNARY ? rw_unary_args(n) : (struct unary_args){0};
    switch (n->op) {
    case IR_OP_RESHAPE:
    case IR_OP_CAST:
    case IR_OP_EXPAND:
    case IR_OP_TILE:
        return true; /* the caller checks that type and shape are the same */
    case IR_OP_TRANSPOSE:
        return keeps_order(n, &ir_tensor(rw->graph, x)->shape);
    case IR_OP_SLICE:
        return all_ints(n, IR_ATTR_STEPS, 1);
    case IR_OP_PAD:
        return all_ints(n, IR_ATTR_PADS, 0);
    case IR_OP_CONCAT:
        return n->n_inputs == 1;
    case IR_OP_POOL:
        return n->n_outputs == 1 && ir_attr_int(n, IR_ATTR_FUNC) != IR_POOL_LP &&
               all_ints(n, IR_ATTR_KERNEL, 1) && all_ints(n, IR_ATTR_PADS, 0);
    case IR_OP_UNARY:
        return rw_is_unary(rw, node, IR_UNARY_IDENTITY) ||
               (rw_is_unary(rw, node, IR_UNARY_LINEAR) && args.alpha == 1 && args.beta == 0) ||
               (rw_is_unary(rw, node, IR_UNARY_CLIP) && rw_is_float(rw, x) &&
                args.alpha <= -FLT_MAX && args.beta >= FLT_MAX);
    default:
        return false;
    }
}

/* A RELU of something that is never negative. */
static bool is_repeated(struct rewrite *rw, uint32_t node, uint32_t x)
{
    return rw_is_unary(rw, node, IR_UNARY_RELU) &&
           (rw_made_by_unary(rw, x, IR_UNARY_RELU) != IR_NONE ||
            rw_made_by_unary(rw, x, IR_UNARY_SIGMOID) != IR_NONE);
}

/* The operand that a BINARY node only hands on, or IR_NONE. */
static uint32_t neutral_operand(struct rewrite *rw, uint32_t node)
{
    static const struct {
        enum ir_binary func;
        float neutral;
        bool commutes;
    } rows[] = {
        {IR_BINARY_ADD, 0, true},  {IR_BINARY_SUB, 0, false}, {IR_BINARY_MUL, 1, true},
        {IR_BINARY_DIV, 1, false}, {IR_BINARY_POW, 1, false},
    };
    float value;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (!rw_is_binary(rw, node, rows[i].func))
            continue;
        if (constant_uniform(rw, rw_input(rw, node, 1), &value) && value == rows[i].neutral)
            return rw_input(rw, node, 0);
        if (rows[i].commutes && constant_uniform(rw, rw_input(rw, node, 0), &value) &&
            value == rows[i].neutral)
            return rw_input(rw, node, 1);
    }
    return IR_NONE;
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    uint32_t x = rw_input(rw, node, 0);
    if (n->n_epilogue || x == IR_NONE)
        return;
    if (n->op == IR_OP_BINARY)
        x = neutral_operand(rw, node);
    else if (!keeps_values(rw, node, x) && !is_repeated(rw, node, x))
        return;
    if (x == IR_NONE)
        return;
    uint32_t y = rw_output(rw, node);
    if (!rw_replace(rw, y, x)) {
        const struct ir_tensor *a = ir_tensor(rw->graph, x), *b = ir_tensor(rw->graph, y);
        if (a->dtype == b->dtype && shape_equal(&a->shape, &b->shape) && !rw->status)
            rw_near_miss(rw, "%s (%s) stays: output %s is made by a node", n->name,
                         ir_op_name(n->op), b->name);
        return;
    }
    rw_done(rw, "%s (%s)", n->name, ir_op_name(n->op));
    rw_remove(rw, node);
}

PASS(erase_noops)
{
    return rewrite_run(graph, ctx, visit, err);
}
