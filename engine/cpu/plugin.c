/* SPDX-License-Identifier: Apache-2.0 */
/* A tactic's blob is the kernel's name, by which a stored one is found again. */
#include "engine/cpu/plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/ir/plugin_node.h"

struct plugin_op {
    const struct inferd_plugin_kernel *kernel;
    uint32_t threads;
    struct plugin_node node;
};

static void fill(struct tactic *tactic, const struct ir_graph *graph, const struct ir_node *node,
                 const struct plugin_node *read, const struct inferd_plugin_kernel *kernel)
{
    *tactic = (struct tactic){.backend = backend_cpu.name, .id = PLUGIN_TACTIC};
    snprintf(tactic->name, sizeof(tactic->name), "plugin %.40s.%s", read->plugin->table->name,
             kernel->name);
    tactic->blob_size = (uint32_t)strlen(kernel->name);
    memcpy(tactic->blob, kernel->name, tactic->blob_size);
    tactic->n_in = MIN(node->n_inputs, TACTIC_PORTS_MAX);
    tactic->n_out = node->n_outputs;
    tactic_set_types(tactic, graph, node, DTYPE_NONE);
}

enum status plugin_candidates(const struct ir_graph *graph, const struct ir_node *node,
                              tactic_visit visit, void *user, struct error *err)
{
    struct plugin_node read;
    struct tactic tactic;
    if (node->op != IR_OP_PLUGIN)
        return STATUS_OK;
    TRY(ir_plugin_read(graph, node, DTYPE_NONE, &read, err));
    for (uint32_t i = 1; i < read.op->n_kernels; i++) {
        if (!plugin_kernel_takes(&read.op->kernels[i], INFERD_PLUGIN_CPU, &read))
            continue;
        fill(&tactic, graph, node, &read, &read.op->kernels[i]);
        TRY(visit(user, &tactic, err));
    }
    return STATUS_OK;
}

static bool is_plain(const struct ir_graph *graph, const struct ir_node *node,
                     const struct tactic *tactic)
{
    for (uint32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
        uint32_t id = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
        const struct ir_tensor *t = ir_tensor(graph, id);
        if (t->layout != IR_LAYOUT_PLAIN || t->dtype != ir_tensor_type(t))
            return false;
    }
    for (uint32_t i = 0; i < tactic->n_in; i++)
        if (tactic->in[i].packed_bytes)
            return false;
    return !node->n_epilogue;
}

/* Checks the node, then finds the kernel that the tactic names. */
static enum status read_tactic(const struct ir_graph *graph, const struct ir_node *node,
                               const struct tactic *tactic, struct plugin_op *op, struct error *err)
{
    char name[PLUGIN_KERNEL_NAME_MAX] = "";
    struct ir_type types[IR_MAX_OUTPUTS];
    uint32_t n = 0;
    TRY(ir_infer_node(graph, node, types, &n, err));
    if (node->op != IR_OP_PLUGIN || node->n_outputs > n || !is_plain(graph, node, tactic) ||
        tactic->n_in != MIN(node->n_inputs, TACTIC_PORTS_MAX) || tactic->n_out != node->n_outputs ||
        tactic->blob_size >= sizeof(name))
        return error_set(err, STATUS_INVALID_ARGUMENT, "the tactic is not a plugin's");
    memcpy(name, tactic->blob, tactic->blob_size);
    TRY(ir_plugin_read(graph, node, DTYPE_NONE, &op->node, err));
    op->kernel = plugin_kernel_find(op->node.op, name);
    if (!op->kernel || !plugin_kernel_takes(op->kernel, INFERD_PLUGIN_CPU, &op->node))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "plugin '%s' has no kernel '%s' for the CPU that takes this node",
                         op->node.plugin->table->name, name);
    return STATUS_OK;
}

enum status plugin_op_prepare(uint32_t threads, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct plugin_op **out, struct error *err)
{
    CLEANUP(cleanup_free) struct plugin_op *op = calloc(1, sizeof(*op));
    if (!op)
        return error_no_memory(err, "an op");
    op->threads = threads;
    TRY(read_tactic(graph, node, tactic, op, err));
    *out = STEAL(op);
    return STATUS_OK;
}

uint64_t plugin_op_workspace(const struct plugin_op *op)
{
    return plugin_kernel_workspace(op->kernel, &op->node);
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
    return plugin_kernel_run(op->kernel, &op->node, &run, err);
}
