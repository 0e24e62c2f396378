/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic with constants behind a concatenation of channels, and the activation behind it,
 * become steps of the concatenation's epilogue: the scale of DenseNet, whose layers put everything
 * before them together and normalise that, and each of them by other numbers. Written on its own,
 * the whole would be stored, and read and stored once more.
 *
 * Only concatenations of floats along dimension 1 of three or more are hosts: where backends say
 * that they are (pass_context.joins), a concatenation that is not in place copies all the same.
 */
#include "engine/passes/constant.h"
#include "engine/passes/host.h"

enum { INPUTS_MAX = 48 }; /* operands and constants: ports of a tactic (backend.h) */

/* The concatenation that makes the tensor for this reader alone; or IR_NONE. */
static uint32_t find_concat(struct rewrite *rw, uint32_t tensor, uint32_t reader)
{
    uint32_t node = tensor == IR_NONE ? IR_NONE : rw_made_by(rw, tensor, IR_OP_CONCAT);
    if (node == IR_NONE || !rw_is_float(rw, tensor) ||
        ir_tensor(rw->graph, tensor)->shape.rank < 3 ||
        ir_attr_int(ir_node(rw->graph, node), IR_ATTR_AXIS) != 1)
        return IR_NONE;
    const struct ir_node *n = ir_node(rw->graph, node), *r = ir_node(rw->graph, reader);
    if (rw_uses(rw, tensor) != 1) {
        rw_near_miss(rw, "%s + %s: %s has %u readers", n->name, r->name,
                     ir_tensor(rw->graph, tensor)->name, rw_uses(rw, tensor));
        return IR_NONE;
    }
    if (n->n_inputs + r->n_inputs > INPUTS_MAX || r->n_epilogue >= IR_MAX_EPILOGUE) {
        rw_near_miss(rw, "%s + %s: too many operands", n->name, r->name);
        return IR_NONE;
    }
    return node;
}

/* Says whether the operand is a constant that broadcasts to the shape. */
static bool is_constant_for(const struct rewrite *rw, uint32_t tensor, const struct shape *shape)
{
    struct shape all;
    return constant_is_float(rw, tensor) &&
           shape_broadcast(&ir_tensor(rw->graph, tensor)->shape, shape, &all) &&
           shape_equal(&all, shape);
}

/* Says whether a step of the node's epilogue needs more than constants. */
static bool has_plain_steps(const struct rewrite *rw, const struct ir_node *n,
                            const struct shape *shape)
{
    for (uint32_t i = 0; i < n->n_epilogue; i++)
        if (n->epilogue[i].kind == IR_EPILOGUE_BINARY &&
            !is_constant_for(rw, n->inputs[n->epilogue[i].input], shape))
            return false;
    return true;
}

/* Gives the concatenation the function of the node as a step, and then the node's own steps. */
static void join(struct rewrite *rw, uint32_t concat, uint32_t node, struct ir_epilogue step,
                 uint32_t operand)
{
    const struct ir_node n = *ir_node(rw->graph, node);
    rw_done(rw, "%s + %s", ir_node(rw->graph, concat)->name, n.name);
    rw_add_epilogue(rw, concat, step, operand);
    for (uint32_t i = 0; i < n.n_epilogue && !rw->status; i++)
        rw_add_epilogue(rw, concat, n.epilogue[i],
                        n.epilogue[i].kind == IR_EPILOGUE_BINARY ? n.inputs[n.epilogue[i].input]
                                                                 : IR_NONE);
    rw_absorb(rw, concat, node);
}

static void visit_binary(struct rewrite *rw, uint32_t node)
{
    int64_t func = ir_attr_int(ir_node(rw->graph, node), IR_ATTR_FUNC);
    const struct shape *y = &ir_tensor(rw->graph, rw_output(rw, node))->shape;
    for (uint32_t i = 0; i < (host_commutes(func) ? 2 : 1) && func <= IR_BINARY_MIN; i++) {
        uint32_t operand = rw_input(rw, node, 1 - i);
        uint32_t concat = find_concat(rw, rw_input(rw, node, i), node);
        if (concat == IR_NONE ||
            !shape_equal(y, &ir_tensor(rw->graph, rw_input(rw, node, i))->shape))
            continue;
        if (!is_constant_for(rw, operand, y) || !has_plain_steps(rw, ir_node(rw->graph, node), y)) {
            rw_near_miss(rw, "%s + %s: its operands are computed", ir_node(rw->graph, concat)->name,
                         ir_node(rw->graph, node)->name);
            continue;
        }
        join(rw, concat, node,
             (struct ir_epilogue){.kind = IR_EPILOGUE_BINARY, .func = (uint32_t)func}, operand);
        return;
    }
}

static void visit_unary(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    int64_t func = ir_attr_int(n, IR_ATTR_FUNC);
    const struct shape *y = &ir_tensor(rw->graph, rw_output(rw, node))->shape;
    if (func < 0 || func >= IR_UNARY_COUNT_ || !host_routines[func] || !has_plain_steps(rw, n, y))
        return;
    uint32_t concat = find_concat(rw, n->inputs[0], node);
    struct unary_args args = rw_unary_args(n);
    if (concat != IR_NONE)
        join(rw, concat, node,
             (struct ir_epilogue){.kind = IR_EPILOGUE_UNARY,
                                  .func = (uint32_t)func,
                                  .alpha = args.alpha,
                                  .beta = args.beta,
                                  .gamma = args.gamma},
             IR_NONE);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    if (ir_node(rw->graph, node)->op == IR_OP_BINARY)
        visit_binary(rw, node);
    else if (ir_node(rw->graph, node)->op == IR_OP_UNARY)
        visit_unary(rw, node);
}

PASS(fuse_concat)
{
    return ctx->joins ? rewrite_run(graph, ctx, visit, err) : STATUS_OK;
}
