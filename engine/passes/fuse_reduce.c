/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Joins a function and a reduction, whichever comes first:
 *
 *   sum(|x|)  L1      sum(x * x)  SUM_SQUARE     sqrt(sum(x * x))  L2
 *   log(sum(x))  LOG_SUM      log(sum(exp(x)))  LOG_SUM_EXP
 *
 * and a transpose and the reduction behind it, whether or not the reduction keeps its dimensions.
 */
#include "engine/passes/rewrite.h"

static bool is_reduce(const struct rewrite *rw, uint32_t node, enum ir_reduce func)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    return n->op == IR_OP_REDUCE && !n->n_epilogue && ir_attr_int(n, IR_ATTR_FUNC) == func;
}

/* Joins the node that makes the reduction's input. The caller has checked its function, and that
 * only the reduction reads it. */
static void join_input(struct rewrite *rw, uint32_t node, uint32_t first, enum ir_reduce func)
{
    const char *name = ir_node(rw->graph, first)->name;
    rw_done(rw, "%s + %s", name, ir_node(rw->graph, node)->name);
    rw_set_name(rw, node, name, ir_node(rw->graph, node)->name);
    rw_set_int(rw, node, IR_ATTR_FUNC, func);
    rw_set_input(rw, node, 0, rw_input(rw, first, 0));
}

static void visit_sum(struct rewrite *rw, uint32_t node)
{
    uint32_t x = rw_input(rw, node, 0), first = rw_made_by_unary(rw, x, IR_UNARY_ABS);
    if (rw_uses(rw, x) != 1 || !rw_is_float(rw, x))
        return;
    if (first != IR_NONE)
        join_input(rw, node, first, IR_REDUCE_L1);
    first = rw_made_by_binary(rw, x, IR_BINARY_MUL);
    if (first != IR_NONE && rw_input(rw, first, 0) == rw_input(rw, first, 1))
        join_input(rw, node, first, IR_REDUCE_SUM_SQUARE);
}

static void visit_log_sum(struct rewrite *rw, uint32_t node)
{
    uint32_t x = rw_input(rw, node, 0), first = rw_made_by_unary(rw, x, IR_UNARY_EXP);
    if (first != IR_NONE && rw_uses(rw, x) == 1)
        join_input(rw, node, first, IR_REDUCE_LOG_SUM_EXP);
}

/* Joins a sqrt or log to a reduction that only it reads. */
static void visit_unary(struct rewrite *rw, uint32_t node)
{
    static const struct {
        enum ir_unary func;
        enum ir_reduce from, to;
    } rows[] = {
        {IR_UNARY_SQRT, IR_REDUCE_SUM_SQUARE, IR_REDUCE_L2},
        {IR_UNARY_LOG, IR_REDUCE_SUM, IR_REDUCE_LOG_SUM},
    };
    uint32_t x = rw_input(rw, node, 0), reduce = rw_made_by(rw, x, IR_OP_REDUCE);
    if (reduce == IR_NONE || rw_uses(rw, x) != 1 || !rw_is_float(rw, x))
        return;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (!rw_is_unary(rw, node, rows[i].func) || !is_reduce(rw, reduce, rows[i].from))
            continue;
        rw_done(rw, "%s + %s", ir_node(rw->graph, reduce)->name, ir_node(rw->graph, node)->name);
        rw_set_int(rw, reduce, IR_ATTR_FUNC, rows[i].to);
        rw_absorb(rw, reduce, node);
        if (rows[i].to == IR_REDUCE_LOG_SUM)
            visit_log_sum(rw, reduce);
        return;
    }
}

/* A reduction behind a transpose, as it is written before the transpose. */
struct turned {
    uint32_t n_axes, n_perm;
    int64_t axes[SHAPE_MAX_RANK]; /* of the transpose's input */
    int64_t perm[SHAPE_MAX_RANK]; /* the transpose that the result still needs */
};

static struct turned turn(const struct ir_attr *perm, const struct ir_attr *axes, bool keepdims)
{
    struct turned t = {0};
    bool reduced[SHAPE_MAX_RANK] = {false};
    int64_t place[SHAPE_MAX_RANK]; /* in the result, of each input dimension */
    for (uint32_t i = 0; i < axes->count; i++)
        reduced[perm->i[axes->i[i]]] = true;
    for (uint32_t i = 0, n = 0; i < perm->count; i++) {
        if (reduced[i])
            t.axes[t.n_axes++] = i;
        if (keepdims || !reduced[i])
            place[i] = n++;
    }
    for (uint32_t i = 0; i < perm->count; i++)
        if (keepdims || !reduced[perm->i[i]])
            t.perm[t.n_perm++] = place[perm->i[i]];
    /* Dimensions of one element may stand in any order, so they are put into their own. */
    for (uint32_t i = 0; keepdims && i < t.n_perm; i++)
        for (uint32_t k = i + 1; reduced[t.perm[i]] && k < t.n_perm; k++)
            if (reduced[t.perm[k]] && t.perm[k] < t.perm[i]) {
                int64_t larger = t.perm[i];
                t.perm[i] = t.perm[k];
                t.perm[k] = larger;
            }
    return t;
}

static bool in_order(const struct turned *t)
{
    for (uint32_t i = 0; i < t->n_perm; i++)
        if (t->perm[i] != i)
            return false;
    return true;
}

/* Makes the reduction read the transpose's input. What the transpose still has to do moves behind
 * the reduction, where there is less to move: often only dimensions of one element. */
static void visit_transpose(struct rewrite *rw, uint32_t node)
{
    uint32_t x = rw_input(rw, node, 0), first = rw_made_by(rw, x, IR_OP_TRANSPOSE);
    const struct ir_node *n = ir_node(rw->graph, node);
    if (first == IR_NONE || rw_uses(rw, x) != 1)
        return;
    bool keepdims = ir_attr_int(n, IR_ATTR_KEEPDIMS);
    int64_t func = ir_attr_int(n, IR_ATTR_FUNC);
    const char *name = n->name, *moved = ir_node(rw->graph, first)->name;
    struct turned t =
        turn(ir_attr(ir_node(rw->graph, first), IR_ATTR_PERM), ir_attr(n, IR_ATTR_AXES), keepdims);
    uint32_t from = rw_input(rw, first, 0);
    rw_done(rw, "%s + %s", moved, name);
    if (in_order(&t)) {
        rw_set_name(rw, node, moved, name);
        rw_set_ints(rw, node, IR_ATTR_AXES, t.n_axes, t.axes);
        rw_set_input(rw, node, 0, from);
        return;
    }
    uint32_t reduce = rw_add_node(rw, IR_OP_REDUCE, name, 1, &from);
    rw_set_int(rw, reduce, IR_ATTR_FUNC, func);
    rw_set_ints(rw, reduce, IR_ATTR_AXES, t.n_axes, t.axes);
    rw_set_int(rw, reduce, IR_ATTR_KEEPDIMS, keepdims);
    uint32_t y = rw_finish(rw, reduce);
    rw_become_transpose(rw, node, y, t.n_perm, t.perm);
    rw_set_name(rw, node, moved, "");
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op == IR_OP_UNARY) {
        visit_unary(rw, node);
        return;
    }
    if (n->op != IR_OP_REDUCE || n->n_epilogue)
        return;
    if (is_reduce(rw, node, IR_REDUCE_SUM))
        visit_sum(rw, node);
    else if (is_reduce(rw, node, IR_REDUCE_LOG_SUM))
        visit_log_sum(rw, node);
    if (!rw->status)
        visit_transpose(rw, node);
}

PASS(fuse_reduce)
{
    return rewrite_run(graph, ctx, visit, err);
}
