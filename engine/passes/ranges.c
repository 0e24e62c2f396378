/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is quantised anyway may be stored in 8 bits before: the tensor that a QUANTIZE alone reads
 * gets its scale as range, and so do tensors from which that one is only moved. This comes after
 * the passes, since it holds for the readers that the tensor has now.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "engine/passes/pass.h"

static void count_uses(const struct ir_graph *graph, uint32_t *uses)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        for (uint32_t k = 0; k < ir_node(graph, i)->n_inputs; k++)
            if (ir_node(graph, i)->inputs[k] != IR_NONE)
                uses[ir_node(graph, i)->inputs[k]]++;
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        uses[graph->outputs[i]]++;
}

/* Forwards: results of DEQUANTIZE, and what is moved from there. */
static void follow(struct ir_graph *graph, const struct ir_node *node)
{
    struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    if (node->op == IR_OP_DEQUANTIZE || y->range == IR_NO_SCALE) {
        uint32_t range = ir_range_follows(graph, node);
        y->range = range != IR_NO_SCALE ? range : y->range;
    }
}

/* Backwards: gives the range to an input that only this node reads. */
static void lead(struct ir_graph *graph, const struct ir_node *node, const uint32_t *uses,
                 uint32_t input, uint32_t range, bool always)
{
    uint32_t id = input < node->n_inputs ? node->inputs[input] : IR_NONE;
    if (id == IR_NONE || uses[id] != 1 || range == IR_NO_SCALE)
        return;
    struct ir_tensor *x = ir_tensor(graph, id);
    if (!ir_tensor_is_constant(x) && dtype_is_float(x->dtype) &&
        (always || x->range == IR_NO_SCALE))
        x->range = range;
}

/* Tries the range on the inputs: it leads to them if it would follow from them. */
static void lead_moved(struct ir_graph *graph, const struct ir_node *node, const uint32_t *uses)
{
    uint32_t range = ir_tensor(graph, node->outputs[0])->range;
    const struct ir_scale *scale = ir_scale(graph, range);
    if (!scale || scale->n > 1 || !ir_range_passes(node, scale))
        return;
    bool all = node->op == IR_OP_CONCAT || node->op == IR_OP_SELECT;
    uint32_t first = node->op == IR_OP_SELECT, end = all ? node->n_inputs : 1;
    for (uint32_t i = first; i < end; i++)
        lead(graph, node, uses, i, range, false);
}

enum status passes_ranges(struct ir_graph *graph, struct error *err)
{
    CLEANUP(cleanup_free) uint32_t *uses = calloc(MAX(graph->n_tensors, 1), sizeof(*uses));
    if (!uses)
        return error_no_memory(err, "the ranges of %u tensors", graph->n_tensors);
    count_uses(graph, uses);
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        follow(graph, ir_node(graph, i));
    for (uint32_t i = graph->n_nodes; i-- > 0;) {
        const struct ir_node *node = ir_node(graph, i);
        if (node->op == IR_OP_QUANTIZE)
            lead(graph, node, uses, 0, ir_quant_scale(graph, node), true);
        else
            lead_moved(graph, node, uses);
    }
    return STATUS_OK;
}
