/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An activation joins the convolution, matrix product, scale or sum before it. Functions that no
 * kernel library applies before it stores stay nodes of their own.
 */
#include "engine/passes/host.h"

/* Says whether a step of the epilogue already uses a routine that `func` needs. */
static bool is_taken(const struct ir_node *host, uint32_t func)
{
    for (uint32_t i = 0; i < host->n_epilogue; i++) {
        const struct ir_epilogue *step = &host->epilogue[i];
        if (step->kind != IR_EPILOGUE_UNARY)
            continue;
        if (step->func == func || (host_routines[step->func] & host_routines[func] & ~HOST_OTHER))
            return true;
    }
    return false;
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op != IR_OP_UNARY || n->n_epilogue)
        return;
    int64_t func = ir_attr_int(n, IR_ATTR_FUNC);
    uint32_t host = host_find(rw, n->inputs[0], node);
    if (host == IR_NONE)
        return;
    if (func < 0 || !host_routines[func] ||
        (ir_node(rw->graph, host)->op == IR_OP_CAST && func != IR_UNARY_LINEAR)) {
        rw_near_miss(rw, "%s + %s: %s is no step of an epilogue", ir_node(rw->graph, host)->name,
                     n->name, ir_unary_name((enum ir_unary)func));
        return;
    }
    if (is_taken(ir_node(rw->graph, host), (uint32_t)func)) {
        rw_near_miss(rw, "%s + %s: a step like it is there already", ir_node(rw->graph, host)->name,
                     n->name);
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
    return rewrite_run(graph, ctx, visit, err);
}
