/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/passes/host.h"

const uint8_t host_routines[IR_UNARY_COUNT_] = {
    [IR_UNARY_RELU] = HOST_RECTIFIER, [IR_UNARY_LEAKY_RELU] = HOST_RECTIFIER,
    [IR_UNARY_LINEAR] = HOST_AFFINE,  [IR_UNARY_HARD_SIGMOID] = HOST_AFFINE | HOST_CLAMP,
    [IR_UNARY_CLIP] = HOST_CLAMP,     [IR_UNARY_ELU] = HOST_OTHER,
    [IR_UNARY_SIGMOID] = HOST_OTHER,  [IR_UNARY_HARD_SWISH] = HOST_OTHER,
    [IR_UNARY_SWISH] = HOST_OTHER,    [IR_UNARY_TANH] = HOST_OTHER,
    [IR_UNARY_GELU] = HOST_OTHER,     [IR_UNARY_GELU_TANH] = HOST_OTHER,
    [IR_UNARY_MISH] = HOST_OTHER,     [IR_UNARY_ABS] = HOST_OTHER,
    [IR_UNARY_EXP] = HOST_OTHER,      [IR_UNARY_SQRT] = HOST_OTHER,
};

/* Says whether the node's kernels can apply further steps before they store. An elementwise node of
 * one operand is no host: that would only trade a pass over memory for a slower kernel. A cast to
 * fp32 is a host, because an input of another type begins with it, and a scale and a shift cost
 * nothing there. */
static bool is_host(const struct rewrite *rw, const struct ir_node *node)
{
    if (ir_op_has(node->op, IR_TRAIT_PRODUCT))
        return true;
    switch (node->op) {
    case IR_OP_CAST:
        return ir_tensor(rw->graph, node->outputs[0])->dtype == DTYPE_F32 &&
               ir_tensor(rw->graph, node->inputs[0])->dtype != DTYPE_F64;
    case IR_OP_BINARY:
        return ir_attr_int(node, IR_ATTR_FUNC) <= IR_BINARY_MIN;
    default:
        return false;
    }
}

bool host_is_heavy(const struct rewrite *rw, uint32_t node)
{
    return ir_op_has(ir_node(rw->graph, node)->op, IR_TRAIT_PRODUCT);
}

uint32_t host_find(struct rewrite *rw, uint32_t tensor, uint32_t last)
{
    uint32_t node = ir_tensor(rw->graph, tensor)->producer;
    if (node == IR_NONE || !is_host(rw, ir_node(rw->graph, node)) || !rw_is_float(rw, tensor))
        return IR_NONE;
    const struct ir_node *n = ir_node(rw->graph, node), *l = ir_node(rw->graph, last);
    if (n->n_epilogue >= IR_MAX_EPILOGUE || n->n_inputs >= IR_MAX_INPUTS) {
        rw_near_miss(rw, "%s + %s: the epilogue is full", n->name, l->name);
        return IR_NONE;
    }
    if (rw_uses(rw, tensor) != 1) {
        rw_near_miss(rw, "%s + %s: %s has %u readers", n->name, l->name,
                     ir_tensor(rw->graph, tensor)->name, rw_uses(rw, tensor));
        return IR_NONE;
    }
    return node;
}

bool host_commutes(int64_t func)
{
    return func == IR_BINARY_ADD || func == IR_BINARY_MUL || func == IR_BINARY_MAX ||
           func == IR_BINARY_MIN;
}
