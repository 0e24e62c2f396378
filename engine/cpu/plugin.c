/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/plugin.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "engine/plugged.h"

struct plugin_op {
    struct plugged of;
    uint32_t threads;
};

enum status plugin_candidates(const struct ir_graph *graph, const struct ir_node *node,
                              tactic_visit visit, void *user, struct error *err)
{
    const struct plugged_wish wish = {
        .where = INFERD_PLUGIN_CPU, .backend = backend_cpu.name, .id = PLUGIN_TACTIC};
    if (node->op != IR_OP_PLUGIN)
        return STATUS_OK;
    return plugged_candidates(graph, node, &wish, visit, user, err);
}

enum status plugin_op_prepare(uint32_t threads, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct plugin_op **out, struct error *err)
{
    CLEANUP(cleanup_free) struct plugin_op *op = calloc(1, sizeof(*op));
    if (!op)
        return error_no_memory(err, "an op");
    op->threads = threads;
    TRY(plugged_read(graph, node, tactic, INFERD_PLUGIN_CPU, &op->of, err));
    *out = STEAL(op);
    return STATUS_OK;
}

uint64_t plugin_op_workspace(const struct plugin_op *op)
{
    return plugin_kernel_workspace(op->of.kernel, &op->of.node);
}

uint32_t plugin_op_threads(const struct plugin_op *op)
{
    return op->threads;
}

void plugin_op_free(struct plugin_op *op)
{
    free(op);
}

enum status plugin_op_launch(struct plugin_op *op, void *const *inputs, void *const *outputs,
                             void *workspace, struct error *err)
{
    const struct plugin_run run = {.inputs = (const void *const *)inputs,
                                   .outputs = outputs,
                                   .workspace = workspace,
                                   .threads = op->threads};
    return plugin_kernel_run(op->of.kernel, &op->of.node, &run, err);
}
