/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Exporters compute a part of a network with channels last, as rows for a norm or a product, and
 * transpose the result back before the sum with what went around that part (ConvNeXt's blocks).
 *
 *   transpose(x) + y  becomes  transpose(x + transpose'(y))
 *
 * The scale and the sum then stand behind the product and can join it. The transpose of y undoes
 * one that made y, and both go; or y has the same bytes in the layouts before and behind it, and it
 * costs nothing.
 */
#include "engine/passes/rewrite.h"

#include <string.h>

/* Says whether the permutation moves dim 1 to the end, or (`*back`) the last dim to dim 1. */
static bool moves_channels(const struct ir_attr *perm, bool *back)
{
    uint32_t rank = perm->count;
    bool to_end = rank >= 3, from_end = rank >= 3;
    for (uint32_t i = 1; i < rank; i++) {
        to_end = to_end && perm->i[i] == (i + 1 < rank ? i + 1 : 1);
        from_end = from_end && perm->i[i] == (i == 1 ? rank - 1 : i - 1);
    }
    *back = from_end;
    return rank >= 3 && perm->i[0] == 0 && (to_end || from_end);
}

static void inverse(const struct ir_attr *perm, int64_t *out)
{
    for (uint32_t i = 0; i < perm->count; i++)
        out[perm->i[i]] = i;
}

/* The transpose that makes operand i and moves channels, for this reader alone; or IR_NONE. */
static uint32_t find_transpose(const struct rewrite *rw, uint32_t node, uint32_t i)
{
    uint32_t x = rw_input(rw, node, i), transpose = rw_made_by(rw, x, IR_OP_TRANSPOSE);
    bool back;
    if (transpose == IR_NONE || rw_uses(rw, x) != 1 ||
        !shape_equal(&ir_tensor(rw->graph, x)->shape,
                     &ir_tensor(rw->graph, rw_output(rw, node))->shape) ||
        !moves_channels(ir_attr(ir_node(rw->graph, transpose), IR_ATTR_PERM), &back))
        return IR_NONE;
    return transpose;
}

/* The constant varies along one dim at most, so it has the same bytes in every order of dims. */
static uint32_t turn_constant(struct rewrite *rw, uint32_t constant, uint32_t rank,
                              const int64_t *perm)
{
    const struct shape *from = &ir_tensor(rw->graph, constant)->shape;
    struct shape to = {.rank = rank};
    for (uint32_t i = 0; i < rank; i++) {
        int64_t at = perm[i] - (int64_t)(rank - from->rank);
        to.dim[i] = at < 0 ? 1 : from->dim[at];
    }
    return rw_share_constant(rw, constant, &to);
}

static bool is_same(const struct ir_attr *a, const struct ir_attr *b)
{
    return a->count == b->count && memcmp(a->i, b->i, a->count * sizeof(a->i[0])) == 0;
}

static bool is_behind_product(const struct rewrite *rw, uint32_t tensor)
{
    uint32_t node = ir_tensor(rw->graph, tensor)->producer;
    return node != IR_NONE && ir_op_has(ir_node(rw->graph, node)->op, IR_TRAIT_PRODUCT);
}

/* Says whether operand y can be read with its dims in the order of x, and at no cost. A transpose
 * that this adds must not be the next to sink, or the two would change places for ever: it moves
 * the channels the other way, or, where both ways are the same, it is not behind a product as x is.
 */
static bool can_turn(const struct rewrite *rw, uint32_t y, uint32_t node, uint32_t transpose)
{
    const struct ir_tensor *t = ir_tensor(rw->graph, y);
    uint32_t longer = 0;
    for (uint32_t i = 0; i < t->shape.rank; i++)
        longer += t->shape.dim[i] != 1;
    if (ir_tensor_is_constant(t))
        return longer <= 1;
    if (!shape_equal(&t->shape, &ir_tensor(rw->graph, rw_output(rw, node))->shape))
        return false;
    const struct ir_attr *perm = ir_attr(ir_node(rw->graph, transpose), IR_ATTR_PERM);
    uint32_t other = rw_made_by(rw, y, IR_OP_TRANSPOSE);
    if (other != IR_NONE && is_same(ir_attr(ir_node(rw->graph, other), IR_ATTR_PERM), perm))
        return true;
    bool back;
    moves_channels(perm, &back);
    if (perm->count > 3)
        return back;
    return is_behind_product(rw, rw_input(rw, transpose, 0)) && !is_behind_product(rw, y);
}

static uint32_t turn(struct rewrite *rw, uint32_t y, uint32_t rank, const int64_t *perm)
{
    if (ir_tensor_is_constant(ir_tensor(rw->graph, y)))
        return turn_constant(rw, y, rank, perm);
    return rw_add_transpose(rw, ir_tensor(rw->graph, y)->name, y, rank, perm);
}

/* Makes the same operation on x and the other operand turned, and `node` the transpose of it. */
static void sink(struct rewrite *rw, uint32_t node, uint32_t i, uint32_t transpose)
{
    const struct ir_attr perm = *ir_attr(ir_node(rw->graph, transpose), IR_ATTR_PERM);
    int64_t back[SHAPE_MAX_RANK] = {0};
    const char *name = ir_node(rw->graph, node)->name;
    uint32_t in[2], rank = perm.count;
    inverse(&perm, back);
    in[i] = rw_input(rw, transpose, 0);
    in[1 - i] = turn(rw, rw_input(rw, node, 1 - i), rank, back);
    if (in[1 - i] == IR_NONE)
        return;
    uint32_t made = rw_add_node(rw, IR_OP_BINARY, name, 2, in);
    rw_copy_attrs(rw, made, node);
    uint32_t y = rw_finish(rw, made);
    if (y == IR_NONE)
        return;
    rw_done(rw, "%s before %s", name, ir_node(rw->graph, transpose)->name);
    rw_become_transpose(rw, node, y, rank, perm.i);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op != IR_OP_BINARY || n->n_epilogue || !rw_is_float(rw, n->outputs[0]))
        return;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t transpose = find_transpose(rw, node, i);
        if (transpose == IR_NONE || !can_turn(rw, rw_input(rw, node, 1 - i), node, transpose))
            continue;
        sink(rw, node, i, transpose);
        return;
    }
}

PASS(sink_transposes)
{
    return rewrite_run(graph, ctx, visit, err);
}
