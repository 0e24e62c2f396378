/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise arithmetic of two tensors joins the node that made one of them: the residual sum of
 * ResNet, a product with a gate, a scale per channel that could not be folded.
 *
 * The other operand must have the full shape, or a number for each channel, or one number for all.
 * Any other broadcast, even over the batch, would cost the node its fast kernels. In a function
 * that does not commute, the node's own value must stand on the left. The operand may be computed
 * after the node, because nodes are sorted again afterwards. It cannot depend on the node, whose
 * only reader is the function that joins it.
 */
#include "engine/passes/constant.h"
#include "engine/passes/host.h"
#include "engine/passes/weights.h"

/* Says whether the operand has one number for each index of dimension `axis`, or one for all. */
static bool is_vector(const struct shape *operand, const struct shape *out, uint32_t axis)
{
    struct shape r;
    if (!shape_broadcast(operand, out, &r) || !shape_equal(&r, out))
        return false;
    for (uint32_t i = 0; i < operand->rank; i++)
        if (operand->dim[i] != 1 && i + out->rank - operand->rank != axis)
            return false;
    return true;
}

static bool fits(const struct rewrite *rw, uint32_t host, uint32_t operand)
{
    const struct shape *shape = &ir_tensor(rw->graph, operand)->shape;
    const struct shape *out = &ir_tensor(rw->graph, rw_output(rw, host))->shape;
    uint32_t channel = ir_node(rw->graph, host)->op == IR_OP_MATMUL ? out->rank - 1 : 1;
    return shape_equal(shape, out) || (out->rank > channel && is_vector(shape, out, channel));
}

/* The host among the operands. It stands on the left, or on either side if the function
 * commutes. */
static uint32_t choose(struct rewrite *rw, uint32_t node, int64_t func, uint32_t *operand)
{
    uint32_t best = IR_NONE;
    for (uint32_t i = 0; i < (host_commutes(func) ? 2 : 1); i++) {
        uint32_t y = rw_input(rw, node, i), other = rw_input(rw, node, 1 - i);
        if (!shape_equal(&ir_tensor(rw->graph, y)->shape,
                         &ir_tensor(rw->graph, rw_output(rw, node))->shape))
            continue;
        uint32_t host = host_find(rw, y, node);
        if (host == IR_NONE)
            continue;
        if (!fits(rw, host, other)) {
            rw_near_miss(rw, "%s + %s: %s is broadcast", ir_node(rw->graph, host)->name,
                         ir_node(rw->graph, node)->name, ir_tensor(rw->graph, other)->name);
            continue;
        }
        /* Of two hosts the later is better: the other operand is already there when it runs. */
        if (best == IR_NONE || host_is_heavy(rw, host) > host_is_heavy(rw, best) ||
            (host_is_heavy(rw, host) == host_is_heavy(rw, best) && host > best)) {
            best = host;
            *operand = other;
        }
    }
    return best;
}

/* Says whether the node scales the channels of a product that has taken its bias just now: in the
 * next round fold_scale moves the scale into the weights, where it costs nothing. */
static bool is_for_weights(struct rewrite *rw, uint32_t node)
{
    struct weighted w;
    if (!rw_is_binary(rw, node, IR_BINARY_MUL))
        return false;
    for (uint32_t i = 0; i < 2; i++)
        if (constant_is_float(rw, rw_input(rw, node, i)) &&
            weighted_find(rw, rw_input(rw, node, 1 - i), &w) && weighted_has_constants(rw, w.node))
            return true;
    return false;
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    uint32_t operand = IR_NONE;
    if (n->op != IR_OP_BINARY || n->n_epilogue)
        return;
    int64_t func = ir_attr_int(n, IR_ATTR_FUNC);
    if (func > IR_BINARY_MIN)
        return;
    uint32_t host = choose(rw, node, func, &operand);
    if (host == IR_NONE || is_for_weights(rw, node) || is_for_weights(rw, host))
        return;
    rw_done(rw, "%s + %s", ir_node(rw->graph, host)->name, n->name);
    rw_add_epilogue(rw, host,
                    (struct ir_epilogue){.kind = IR_EPILOGUE_BINARY, .func = (uint32_t)func},
                    operand);
    rw_absorb(rw, host, node);
}

PASS(fuse_sum)
{
    return rewrite_run(graph, ctx, visit, err);
}
