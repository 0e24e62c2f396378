/* SPDX-License-Identifier: Apache-2.0 */
/* Removes dead nodes. The walk goes from the last node to the first, so that a node that only dead
 * nodes read is found dead when the walk comes to it. */

#include "engine/passes/pass.h"

#include <stdlib.h>

static bool is_read(const struct ir_node *node, const uint8_t *read)
{
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (read[node->outputs[i]])
            return true;
    return false;
}

enum status pass_erase_unused(struct ir_graph *graph, struct pass_context *ctx, struct error *err)
{
    uint8_t *read = calloc(MAX(graph->n_tensors, 1), 1);
    if (!read)
        return error_no_memory(err, "pass %s", ctx->pass->name);
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        read[graph->outputs[i]] = 1;
    for (uint32_t i = graph->n_nodes; i-- > 0;) {
        struct ir_node *node = ir_node(graph, i);
        if (node->op == IR_OP_NONE)
            continue;
        if (!is_read(node, read)) {
            ctx->rewrites++;
            log_write(ctx->log, LOG_INFO, "%s: %s (%s) is read by nobody", ctx->pass->name,
                      node->name, ir_op_name(node->op));
            ir_node_remove(graph, i);
            continue;
        }
        for (uint32_t j = 0; j < node->n_inputs; j++)
            if (node->inputs[j] != IR_NONE)
                read[node->inputs[j]] = 1;
    }
    free(read);
    return STATUS_OK;
}
