/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/plugged.h"

#include <stdio.h>
#include <string.h>

#include "base/compiler.h"

/* Whether the kernel is offered nodes with a shorter type in place of FP32. */
static bool looks_at_types(const struct inferd_plugin_op *op,
                           const struct inferd_plugin_kernel *kernel)
{
    return op->flags & INFERD_PLUGIN_TYPES && kernel->takes;
}

static bool is_short(enum dtype real)
{
    return real != DTYPE_NONE && real != DTYPE_F32;
}

static void fill(struct tactic *tactic, const struct ir_graph *graph, const struct ir_node *node,
                 const struct plugged *of, const struct plugged_wish *wish)
{
    *tactic = (struct tactic){.backend = wish->backend, .id = wish->id};
    snprintf(tactic->name, sizeof(tactic->name), "plugin %.40s.%.32s", of->node.plugin->table->name,
             of->kernel->name);
    tactic->blob_size = (uint32_t)strlen(of->kernel->name);
    memcpy(tactic->blob, of->kernel->name, tactic->blob_size);
    tactic->n_in = MIN(node->n_inputs, TACTIC_PORTS_MAX);
    tactic->n_out = node->n_outputs;
    tactic_set_types(tactic, graph, node, wish->real);
}

enum status plugged_candidates(const struct ir_graph *graph, const struct ir_node *node,
                               const struct plugged_wish *wish, tactic_visit visit, void *user,
                               struct error *err)
{
    struct plugged of;
    struct tactic tactic;
    TRY(ir_plugin_read(graph, node, wish->real, &of.node, err));
    for (uint32_t i = 1; i < of.node.op->n_kernels; i++) {
        of.kernel = &of.node.op->kernels[i];
        if ((is_short(wish->real) && !looks_at_types(of.node.op, of.kernel)) ||
            !plugin_kernel_takes(of.kernel, wish->where, &of.node))
            continue;
        fill(&tactic, graph, node, &of, wish);
        TRY(visit(user, &tactic, err));
    }
    return STATUS_OK;
}

/* --- stored tactics --- */

/* Whether all tensors are plain and have their own types, or one other in place of FP32: *real. */
static bool is_plain(const struct ir_graph *graph, const struct ir_node *node,
                     const struct tactic *tactic, enum dtype *real)
{
    *real = DTYPE_NONE;
    for (uint32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
        uint32_t id = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
        const struct ir_tensor *t = ir_tensor(graph, id);
        enum dtype own = ir_tensor_type(t);
        if (own == DTYPE_F32 && *real == DTYPE_NONE && dtype_is_float(t->dtype))
            *real = t->dtype;
        if (t->layout != IR_LAYOUT_PLAIN || t->scale != IR_NO_SCALE ||
            t->dtype != (own == DTYPE_F32 ? *real : own))
            return false;
    }
    for (uint32_t i = 0; i < tactic->n_in; i++)
        if (tactic->in[i].packed_bytes)
            return false;
    return !node->n_epilogue;
}

static enum status check(const struct ir_graph *graph, const struct ir_node *node,
                         const struct tactic *tactic, enum dtype *real, struct error *err)
{
    struct ir_type types[IR_MAX_OUTPUTS];
    uint32_t n = 0;
    TRY(ir_infer_node(graph, node, types, &n, err));
    if (node->op != IR_OP_PLUGIN || node->n_outputs > n || !is_plain(graph, node, tactic, real) ||
        tactic->n_in != MIN(node->n_inputs, TACTIC_PORTS_MAX) || tactic->n_out != node->n_outputs ||
        tactic->blob_size >= PLUGIN_KERNEL_NAME_MAX)
        return error_set(err, STATUS_INVALID_ARGUMENT, "the tactic is not a plugin's");
    return STATUS_OK;
}

enum status plugged_read(const struct ir_graph *graph, const struct ir_node *node,
                         const struct tactic *tactic, enum inferd_plugin_where where,
                         struct plugged *out, struct error *err)
{
    char name[PLUGIN_KERNEL_NAME_MAX] = "";
    enum dtype real = DTYPE_NONE;
    TRY(check(graph, node, tactic, &real, err));
    memcpy(name, tactic->blob, tactic->blob_size);
    TRY(ir_plugin_read(graph, node, real, &out->node, err));
    out->kernel = plugin_kernel_find(out->node.op, name);
    if (!out->kernel || !plugin_kernel_takes(out->kernel, where, &out->node) ||
        (is_short(real) && !looks_at_types(out->node.op, out->kernel)))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "plugin '%s' has no kernel '%s' for the %s that takes this node",
                         out->node.plugin->table->name, name,
                         where == INFERD_PLUGIN_CPU ? "CPU" : "GPU");
    return STATUS_OK;
}
