/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An average (or maximum) over all spatial dimensions becomes a pooling with one window. Backends
 * have kernels of it for every layout, so that the tensor before it need not be brought into plain
 * order.
 *
 * Only tensors of rank 4 and 5 qualify: an average over the last dimension of a tensor of rank 3 is
 * a statistic of a sequence model.
 */
#include "engine/passes/rewrite.h"

enum { KERNEL_LIMIT = 1 << 20 }; /* what type inference accepts */

static bool is_spatial(const struct ir_node *node, const struct shape *shape)
{
    const struct ir_attr *axes = ir_attr(node, IR_ATTR_AXES);
    if (shape->rank < 4 || shape->rank > 5 || axes->count != shape->rank - 2)
        return false;
    for (uint32_t i = 0; i < axes->count; i++)
        if (axes->i[i] != i + 2 || shape->dim[i + 2] < 1 || shape->dim[i + 2] > KERNEL_LIMIT)
            return false;
    return true;
}

static void set_window(struct rewrite *rw, uint32_t node, int64_t func, const struct shape *shape)
{
    rw_set_int(rw, node, IR_ATTR_FUNC, func);
    rw_set_ints(rw, node, IR_ATTR_KERNEL, shape->rank - 2, &shape->dim[2]);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op != IR_OP_REDUCE || n->n_epilogue)
        return;
    int64_t func = ir_attr_int(n, IR_ATTR_FUNC);
    bool keep = ir_attr_int(n, IR_ATTR_KEEPDIMS);
    uint32_t x = n->inputs[0];
    struct shape shape = ir_tensor(rw->graph, x)->shape;
    struct shape out = ir_tensor(rw->graph, n->outputs[0])->shape;
    if ((func != IR_REDUCE_MEAN && func != IR_REDUCE_MAX) || !is_spatial(n, &shape) ||
        !rw_is_float(rw, x))
        return;
    func = func == IR_REDUCE_MEAN ? IR_POOL_AVERAGE : IR_POOL_MAX;
    rw_done(rw, "%s", n->name);
    if (keep) {
        rw_become(rw, node, IR_OP_POOL, 1, &x);
        set_window(rw, node, func, &shape);
        return;
    }
    uint32_t pool = rw_add_node(rw, IR_OP_POOL, n->name, 1, &x);
    if (pool == IR_NONE)
        return;
    set_window(rw, pool, func, &shape);
    uint32_t made = rw_finish(rw, pool);
    if (made == IR_NONE)
        return;
    rw_become_reshape(rw, node, made, out.rank, out.dim);
}

PASS(reduce_to_pool)
{
    return rewrite_run(graph, ctx, visit, err);
}
