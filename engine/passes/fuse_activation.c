/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An activation joins the convolution, matrix product, scale or sum before it: conv+activation,
 * fully-connected+activation, scale+activation. Functions that no kernel library applies on the way
 * out stay nodes of their own.
 */
#include "engine/passes/host.h"
#include "engine/passes/table.h"

static bool is_activation(int64_t func)
{
    switch (func) {
    case IR_UNARY_RELU:
    case IR_UNARY_LEAKY_RELU:
    case IR_UNARY_ELU:
    case IR_UNARY_SIGMOID:
    case IR_UNARY_HARD_SIGMOID:
    case IR_UNARY_HARD_SWISH:
    case IR_UNARY_SWISH:
    case IR_UNARY_TANH:
    case IR_UNARY_SOFTPLUS:
    case IR_UNARY_GELU:
    case IR_UNARY_GELU_TANH:
    case IR_UNARY_MISH:
    case IR_UNARY_CLIP:
    case IR_UNARY_LINEAR:
    case IR_UNARY_ABS:
    case IR_UNARY_EXP:
    case IR_UNARY_SQRT:
        return true;
    default:
        return false;
    }
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op != IR_OP_UNARY || n->n_epilogue)
        return;
    int64_t func = ir_attr_int(n, IR_ATTR_FUNC, -1);
    uint32_t host = host_find(rw, n->inputs[0], node);
    if (host == IR_NONE)
        return;
    if (!is_activation(func)) {
        rw_near_miss(rw, "%s + %s: %s is no step of an epilogue", ir_node(rw->graph, host)->name,
                     n->name, ir_unary_name((enum ir_unary)func));
        return;
    }
    struct unary_args args = rw_unary_args(n);
    rw_done(rw, "%s + %s", ir_node(rw->graph, host)->name, n->name);
    rw_add_epilogue(rw, host,
                    (struct ir_epilogue){.kind = IR_EPILOGUE_UNARY,
                                         .func = (uint32_t)func,
                                         .alpha = args.alpha,
                                         .beta = args.beta,
                                         .gamma = args.gamma},
                    IR_NONE);
    rw_absorb(rw, host, node);
}

PASS(fuse_activation)
{
    return rewrite_run(graph, ctx, "fuse-activation", visit, err);
}
