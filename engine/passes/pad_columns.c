/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A product by weights gets columns of zeros up to a multiple of 8, and a slice cuts them off
 * again. Rows of an odd length begin at odd addresses, where a GPU's matrix units cannot load or
 * store whole vectors: a language model's head of 50,257 words costs several times the product of
 * 50,264.
 */
#include <string.h>

#include "engine/passes/weights.h"

enum { LANES = 8, COLUMNS_MIN = 1024 /* fewer are not worth a slice */ };

static bool is_ragged(const struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op != IR_OP_MATMUL || n->n_epilogue || !rw_is_float(rw, n->outputs[0]) ||
        !weighted_has_constants(rw, node) || ir_tensor(rw->graph, n->inputs[1])->shape.rank != 2)
        return false;
    const struct shape *y = &ir_tensor(rw->graph, n->outputs[0])->shape;
    int64_t columns = y->dim[y->rank - 1];
    return columns >= COLUMNS_MIN && columns % LANES != 0;
}

/* A copy of the constant with dimension `axis` filled up with zeros. */
static uint32_t widen(struct rewrite *rw, uint32_t constant, uint32_t axis)
{
    const struct ir_tensor t = *ir_tensor(rw->graph, constant);
    struct shape wide = t.shape;
    void *to;
    wide.dim[axis] = (wide.dim[axis] + LANES - 1) / LANES * LANES;
    uint32_t made = rw_add_constant(rw, t.name, t.dtype, &wide, &to);
    if (made == IR_NONE)
        return IR_NONE;
    bool last = axis + 1 == wide.rank;
    size_t size = dtype_size(t.dtype), rows = last && axis ? (size_t)wide.dim[0] : 1;
    size_t from_row = size * (size_t)t.shape.dim[axis], to_row = size * (size_t)wide.dim[axis];
    if (!last) {
        from_row *= (size_t)wide.dim[1];
        to_row *= (size_t)wide.dim[1];
    }
    for (size_t i = 0; i < rows; i++) {
        memcpy((char *)to + i * to_row, (const char *)t.data + i * from_row, from_row);
        memset((char *)to + i * to_row + from_row, 0, to_row - from_row);
    }
    return made;
}

static void cut_off(struct rewrite *rw, uint32_t node, uint32_t y, const struct shape *to)
{
    int64_t starts[SHAPE_MAX_RANK] = {0}, steps[SHAPE_MAX_RANK];
    for (uint32_t i = 0; i < to->rank; i++)
        steps[i] = 1;
    rw_become(rw, node, IR_OP_SLICE, 1, &y);
    rw_set_ints(rw, node, IR_ATTR_STARTS, to->rank, starts);
    rw_set_ints(rw, node, IR_ATTR_ENDS, to->rank, to->dim);
    rw_set_ints(rw, node, IR_ATTR_STEPS, to->rank, steps);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (!is_ragged(rw, node))
        return;
    const char *name = n->name;
    const struct shape shape = ir_tensor(rw->graph, n->outputs[0])->shape;
    uint32_t in[3] = {n->inputs[0], IR_NONE, rw_input(rw, node, 2)};
    in[1] = widen(rw, n->inputs[1], ir_attr_int(n, IR_ATTR_TRANS_B) ? 0 : 1);
    if (in[2] != IR_NONE)
        in[2] = widen(rw, in[2], ir_tensor(rw->graph, in[2])->shape.rank - 1);
    if (rw->status)
        return;
    uint32_t wide = rw_add_node(rw, IR_OP_MATMUL, name, in[2] == IR_NONE ? 2 : 3, in);
    rw_copy_attrs(rw, wide, node);
    uint32_t y = rw_finish(rw, wide);
    if (y == IR_NONE)
        return;
    rw_done(rw, "%s: %lld columns of zeros", name,
            (long long)(LANES - shape.dim[shape.rank - 1] % LANES));
    cut_off(rw, node, y, &shape);
}

PASS(pad_columns)
{
    return ctx->lanes ? rewrite_run(graph, ctx, visit, err) : STATUS_OK;
}
