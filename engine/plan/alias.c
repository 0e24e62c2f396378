/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors that lie in others; see plan.h. */
#include "engine/ir/ops.h"
#include "engine/plan/plan.h"

uint32_t plan_tensor_root(const struct ir_graph *graph, uint32_t tensor)
{
    uint64_t at;
    return plan_tensor_at(graph, tensor, &at);
}

uint32_t plan_tensor_at(const struct ir_graph *graph, uint32_t tensor, uint64_t *at)
{
    const struct ir_tensor *t = ir_tensor(graph, tensor);
    for (*at = 0; t->alias_of != IR_NONE; t = ir_tensor(graph, tensor)) {
        *at += t->part;
        tensor = t->alias_of;
    }
    return tensor;
}

/* Whether the node's output is its input, or a part of it, by name of that tensor. */
static bool reads_in_place(const struct ir_graph *graph, const struct ir_node *node)
{
    return node->n_inputs && node->n_outputs == 1 && node->inputs[0] != IR_NONE &&
           ir_tensor(graph, node->outputs[0])->alias_of == node->inputs[0];
}

/* Whether the node's inputs lie in its output: the first one then begins where the output does. */
static bool joins_in_place(const struct ir_graph *graph, const struct ir_node *node)
{
    uint64_t x, y;
    return node->n_inputs && node->n_outputs == 1 && node->inputs[0] != IR_NONE &&
           plan_tensor_root(graph, node->inputs[0]) == plan_tensor_root(graph, node->outputs[0]) &&
           (plan_tensor_at(graph, node->inputs[0], &x), plan_tensor_at(graph, node->outputs[0], &y),
            x == y);
}

bool plan_node_is_alias(const struct ir_graph *graph, const struct ir_node *node)
{
    if (ir_op_has(node->op, IR_TRAIT_JOINS))
        return joins_in_place(graph, node);
    return (ir_op_has(node->op, IR_TRAIT_RENAMES) || ir_op_has(node->op, IR_TRAIT_CUTS)) &&
           reads_in_place(graph, node);
}

uint32_t plan_tensor_carrier(const struct ir_graph *graph, uint32_t tensor)
{
    for (;;) {
        const struct ir_tensor *t = ir_tensor(graph, tensor);
        const struct ir_node *node = t->producer == IR_NONE ? NULL : ir_node(graph, t->producer);
        if (!node || !ir_op_has(node->op, IR_TRAIT_RENAMES) || !reads_in_place(graph, node))
            return tensor;
        tensor = t->alias_of;
    }
}

bool plan_node_joins_at(const struct ir_graph *graph, const struct ir_node *node, uint32_t root,
                        uint64_t at)
{
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        uint64_t offset, begin;
        if (!ir_node_part(graph, node, i, &offset) || offset % BACKEND_ALIGN ||
            plan_tensor_at(graph, node->inputs[i], &begin) != root || begin != at + offset)
            return false;
    }
    return node->n_inputs > 0;
}
