/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A transpose before a product of rows and one behind it that undoes it both go. The product
 * computes each row for itself, so the rows' order does not matter to it. The MultiheadAttention of
 * torch swaps batch and sequence for its products and back.
 *
 *   transpose(X) W + b, transposed back   =   X W + b
 *
 * Reshapes may stand between, as where a product has two dimensions. Two reshapes that undo each
 * other go in the same way.
 */
#include "engine/passes/rewrite.h"

#include <string.h>

/* The node of this op that makes the tensor for one reader, past a reshape that keeps the last
 * dimension. */
static uint32_t before(const struct rewrite *rw, uint32_t tensor, enum ir_op op, bool sole)
{
    if (sole && rw_uses(rw, tensor) != 1)
        return IR_NONE;
    uint32_t reshape = rw_made_by(rw, tensor, IR_OP_RESHAPE);
    if (reshape != IR_NONE) {
        const struct shape *to = &ir_tensor(rw->graph, tensor)->shape;
        tensor = rw_input(rw, reshape, 0);
        const struct shape *from = &ir_tensor(rw->graph, tensor)->shape;
        if (!from->rank || !to->rank || from->dim[from->rank - 1] != to->dim[to->rank - 1] ||
            (sole && rw_uses(rw, tensor) != 1))
            return IR_NONE;
    }
    return rw_made_by(rw, tensor, op);
}

/* Says whether the second transpose puts the rows back into the order before the first. */
static bool undoes(const struct rewrite *rw, uint32_t first, uint32_t second)
{
    const struct ir_attr *p1 = ir_attr(ir_node(rw->graph, first), IR_ATTR_PERM);
    const struct ir_attr *p2 = ir_attr(ir_node(rw->graph, second), IR_ATTR_PERM);
    const struct shape *x = &ir_tensor(rw->graph, rw_input(rw, first, 0))->shape;
    const struct shape *y = &ir_tensor(rw->graph, rw_output(rw, second))->shape;
    if (p1->count != p2->count || p1->i[p1->count - 1] != p1->count - 1)
        return false;
    for (uint32_t i = 0; i < p2->count; i++)
        if (p1->i[p2->i[i]] != i || (i + 1 < p2->count && x->dim[i] != y->dim[i]))
            return false;
    return true;
}

static bool is_of_rows(const struct rewrite *rw, uint32_t product)
{
    const struct ir_node *n = ir_node(rw->graph, product);
    return ir_tensor(rw->graph, n->inputs[1])->shape.rank == 2 && !ir_attr_int(n, IR_ATTR_TRANS_A);
}

/* Says whether the second reshape puts rows as they were before the first. */
static bool restores(const struct rewrite *rw, uint32_t first, uint32_t second)
{
    const struct shape *x = &ir_tensor(rw->graph, rw_input(rw, first, 0))->shape;
    const struct shape *rows = &ir_tensor(rw->graph, rw_output(rw, first))->shape;
    const struct shape *product = &ir_tensor(rw->graph, rw_input(rw, second, 0))->shape;
    const struct shape *y = &ir_tensor(rw->graph, rw_output(rw, second))->shape;
    if (x->rank < 2 || x->rank != y->rank || x->dim[x->rank - 1] != rows->dim[rows->rank - 1] ||
        y->dim[y->rank - 1] != product->dim[product->rank - 1])
        return false;
    return memcmp(x->dim, y->dim, (x->rank - 1) * sizeof(x->dim[0])) == 0;
}

/* Finds the product before the node, and the node before the product that this one undoes. */
static bool find(const struct rewrite *rw, uint32_t node, uint32_t *product, uint32_t *first)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    bool turns = n->op == IR_OP_TRANSPOSE;
    if (!turns && (n->op != IR_OP_RESHAPE || rw_uses(rw, n->inputs[0]) != 1))
        return false;
    *product = turns ? before(rw, n->inputs[0], IR_OP_MATMUL, true)
                     : rw_made_by(rw, n->inputs[0], IR_OP_MATMUL);
    if (*product == IR_NONE || !is_of_rows(rw, *product))
        return false;
    uint32_t x = rw_input(rw, *product, 0);
    *first = turns ? before(rw, x, IR_OP_TRANSPOSE, false) : rw_made_by(rw, x, IR_OP_RESHAPE);
    return *first != IR_NONE && (turns ? undoes(rw, *first, node) : restores(rw, *first, node));
}

static void visit(struct rewrite *rw, uint32_t node)
{
    uint32_t product, first;
    if (!find(rw, node, &product, &first))
        return;
    const struct ir_node *old = ir_node(rw->graph, product);
    const uint32_t inputs[3] = {rw_input(rw, first, 0), old->inputs[1], rw_input(rw, product, 2)};
    int64_t trans_b = ir_attr_int(old, IR_ATTR_TRANS_B);
    float alpha = ir_attr_float(old, IR_ATTR_ALPHA);
    uint32_t made = rw_add_node(rw, IR_OP_MATMUL, old->name, inputs[2] == IR_NONE ? 2 : 3, inputs);
    rw_set_int(rw, made, IR_ATTR_TRANS_B, trans_b);
    rw_set_float(rw, made, IR_ATTR_ALPHA, alpha);
    uint32_t y = rw_finish(rw, made);
    if (y == IR_NONE)
        return;
    struct shape shape = ir_tensor(rw->graph, rw_output(rw, node))->shape;
    rw_done(rw, "%s and %s undo each other", ir_node(rw->graph, first)->name,
            ir_node(rw->graph, node)->name);
    rw_become_reshape(rw, node, y, shape.rank, shape.dim);
}

PASS(cancel_transposes)
{
    return rewrite_run(graph, ctx, visit, err);
}
