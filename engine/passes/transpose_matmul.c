/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A matrix product reads its operand transposed, so that no node need transpose it before.
 *
 * A transpose before an operand and the operand's flag together are one permutation, which can be
 * split in two ways: with the flag and without it. The best way leaves no transpose at all. The
 * next best keeps the last dimension, because the transpose then moves whole rows (the keys of
 * attention: 0,2,3,1 becomes 0,2,1,3 and a flag).
 */
#include "engine/passes/rewrite.h"

static bool is_identity(const int64_t *perm, uint32_t rank)
{
    for (uint32_t i = 0; i < rank; i++)
        if (perm[i] != i)
            return false;
    return true;
}

/* Visits operand i of the product, which `flag` transposes. */
static void visit_operand(struct rewrite *rw, uint32_t node, uint32_t i, enum ir_attr_key flag)
{
    uint32_t operand = rw_input(rw, node, i), first = rw_made_by(rw, operand, IR_OP_TRANSPOSE);
    if (first == IR_NONE)
        return;
    const struct ir_attr *attr = ir_attr(ir_node(rw->graph, first), IR_ATTR_PERM);
    uint32_t rank = attr->count, x = rw_input(rw, first, 0);
    int64_t now = ir_attr_int(ir_node(rw->graph, node), flag);
    int64_t swapped[SHAPE_MAX_RANK];
    bool rows_now = attr->i[rank - 1] == rank - 1;
    for (uint32_t j = 0; j < rank; j++)
        swapped[j] = attr->i[j];
    swapped[rank - 2] = attr->i[rank - 1];
    swapped[rank - 1] = attr->i[rank - 2];

    if (is_identity(swapped, rank)) {
        rw_set_int(rw, node, flag, !now);
        rw_done(rw, "%s reads the input of %s", ir_node(rw->graph, node)->name,
                ir_node(rw->graph, first)->name);
        rw_set_input(rw, node, i, x);
    } else if (!rows_now && swapped[rank - 1] == rank - 1 && rw_uses(rw, operand) == 1) {
        uint32_t made = rw_add_transpose(rw, ir_node(rw->graph, first)->name, x, rank, swapped);
        if (made == IR_NONE)
            return;
        rw_set_int(rw, node, flag, !now);
        rw_done(rw, "%s moves rows for %s", ir_node(rw->graph, first)->name,
                ir_node(rw->graph, node)->name);
        rw_set_input(rw, node, i, made);
    }
}

static void visit(struct rewrite *rw, uint32_t node)
{
    if (ir_node(rw->graph, node)->op != IR_OP_MATMUL)
        return;
    visit_operand(rw, node, 0, IR_ATTR_TRANS_A);
    if (!rw->status)
        visit_operand(rw, node, 1, IR_ATTR_TRANS_B);
}

PASS(transpose_matmul)
{
    return rewrite_run(graph, ctx, visit, err);
}
