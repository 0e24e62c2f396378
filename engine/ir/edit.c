/* SPDX-License-Identifier: Apache-2.0 */
/* Finds readers, and edits the graph so that producers and readers stay consistent. */
#include "engine/ir/ir.h"

bool ir_tensor_is_constant(const struct ir_tensor *tensor)
{
    return tensor->data != NULL || tensor->place == IR_PLACE_CONSTANT;
}

bool ir_tensor_is_output(const struct ir_graph *graph, uint32_t tensor)
{
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        if (graph->outputs[i] == tensor)
            return true;
    return false;
}

static uint32_t reads(const struct ir_node *node, uint32_t tensor)
{
    uint32_t n = 0;
    if (node->op == IR_OP_NONE)
        return 0;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        n += node->inputs[i] == tensor;
    return n;
}

uint32_t ir_tensor_uses(const struct ir_graph *graph, uint32_t tensor)
{
    uint32_t uses = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        uses += reads(ir_node(graph, i), tensor);
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        uses += graph->outputs[i] == tensor;
    return uses;
}

uint32_t ir_tensor_sole_reader(const struct ir_graph *graph, uint32_t tensor)
{
    uint32_t reader = IR_NONE;
    if (ir_tensor_is_output(graph, tensor))
        return IR_NONE;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        if (!reads(ir_node(graph, i), tensor))
            continue;
        if (reader != IR_NONE)
            return IR_NONE;
        reader = i;
    }
    return reader;
}

bool ir_node_jumps(const struct ir_node *node)
{
    switch (node->op) {
    case IR_OP_UNARY:
        return ir_unary_row((enum ir_unary)ir_attr_int(node, IR_ATTR_FUNC))->flags & IR_FUNC_JUMPS;
    case IR_OP_BINARY:
        return ir_binary_row((enum ir_binary)ir_attr_int(node, IR_ATTR_FUNC))->flags &
               IR_FUNC_JUMPS;
    case IR_OP_CAST:
        return !dtype_is_float((enum dtype)ir_attr_int(node, IR_ATTR_TO));
    default:
        return false;
    }
}

void ir_replace_uses(struct ir_graph *graph, uint32_t from, uint32_t to)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        struct ir_node *node = ir_node(graph, i);
        if (node->op == IR_OP_NONE)
            continue;
        for (uint32_t j = 0; j < node->n_inputs; j++)
            if (node->inputs[j] == from)
                node->inputs[j] = to;
    }
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        if (graph->outputs[i] == from)
            graph->outputs[i] = to;
}

void ir_node_remove(struct ir_graph *graph, uint32_t node)
{
    struct ir_node *n = ir_node(graph, node);
    for (uint32_t i = 0; i < n->n_outputs; i++)
        if (ir_tensor(graph, n->outputs[i])->producer == node)
            ir_tensor(graph, n->outputs[i])->producer = IR_NONE;
    n->op = IR_OP_NONE;
    n->n_inputs = n->n_outputs = n->n_attrs = n->n_epilogue = 0;
}

void ir_node_set_output(struct ir_graph *graph, uint32_t node, uint32_t index, uint32_t tensor)
{
    struct ir_node *n = ir_node(graph, node);
    struct ir_tensor *old = ir_tensor(graph, n->outputs[index]);
    if (old->producer == node)
        old->producer = IR_NONE;
    n->outputs[index] = tensor;
    ir_tensor(graph, tensor)->producer = node;
}
