/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reductions of a function, and functions of a reduction:
 *
 *   sum(|x|)  L1      sum(x * x)  SUM_SQUARE     sqrt(sum(x * x))  L2
 *   log(sum(x))  LOG_SUM      log(sum(exp(x)))  LOG_SUM_EXP
 *
 * and a transpose before a reduction, if what remains keeps its order (shuffle + reduce).
 */
#include "engine/passes/rewrite.h"
#include "engine/passes/table.h"

static bool is_reduce(const struct rewrite *rw, uint32_t node, enum ir_reduce func)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    return n->op == IR_OP_REDUCE && !n->n_epilogue && ir_attr_int(n, IR_ATTR_FUNC, -1) == func;
}

/* The node that makes the reduction's input, if it is that function and nobody else reads it. */
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

/* sqrt or log of a reduction that only it reads. */
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

static void visit_transpose(struct rewrite *rw, uint32_t node)
{
    uint32_t x = rw_input(rw, node, 0), first = rw_made_by(rw, x, IR_OP_TRANSPOSE);
    const struct ir_node *n = ir_node(rw->graph, node);
    if (first == IR_NONE || rw_uses(rw, x) != 1 || ir_attr_int(n, IR_ATTR_KEEPDIMS, 1))
        return;
    const struct ir_attr *perm = ir_attr(ir_node(rw->graph, first), IR_ATTR_PERM);
    const struct ir_attr *axes = ir_attr(n, IR_ATTR_AXES);
    uint32_t mask = 0, count = axes->count;
    int64_t last = -1, moved[SHAPE_MAX_RANK];
    for (uint32_t i = 0; i < count; i++)
        mask |= 1u << axes->i[i];
    uint32_t from = 0;
    for (uint32_t i = 0; i < perm->count; i++) {
        if (mask >> i & 1) {
            from |= 1u << perm->i[i];
        } else if (perm->i[i] < last) {
            rw_near_miss(rw, "%s: %s changes the order of what remains", n->name,
                         ir_node(rw->graph, first)->name);
            return;
        } else {
            last = perm->i[i];
        }
    }
    for (uint32_t i = 0, j = 0; i < perm->count; i++)
        if (from >> i & 1)
            moved[j++] = i;
    rw_done(rw, "%s + %s", ir_node(rw->graph, first)->name, n->name);
    rw_set_name(rw, node, ir_node(rw->graph, first)->name, n->name);
    rw_set_ints(rw, node, IR_ATTR_AXES, count, moved);
    rw_set_input(rw, node, 0, rw_input(rw, first, 0));
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
    if (rw->status == STATUS_OK)
        visit_transpose(rw, node);
}

PASS(fuse_reduce)
{
    return rewrite_run(graph, ctx, "fuse-reduce", visit, err);
}
