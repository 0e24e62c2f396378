/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plugins' kernels for the device. A plugin launches on the stream that it is given, with a CUDA
 * runtime of its own, or with this process's; both use the device's one primary context.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "engine/cuda/device.h"
#include "engine/plugged.h"

struct plugin_op {
    struct backend_op base;
    struct plugged of;
};

static enum status candidates(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    for (uint32_t d = 0; d < n; d++) {
        const struct plugged_wish wish = {.where = INFERD_PLUGIN_CUDA,
                                          .real = dtypes[d],
                                          .backend = "cuda",
                                          .id = cuda_tactic_id(CUDA_FAMILY_PLUGIN, 0)};
        TRY(plugged_candidates(graph, node, &wish, visit, user, err));
    }
    return STATUS_OK;
}

/* Whether what the plugin did could be captured, if that was asked for; and whether the device is
 * there still, if the plugin failed. */
static enum status look_behind(const struct plugin_op *op, struct backend_stream *stream,
                               enum status status, struct error *err)
{
    enum cudaStreamCaptureStatus capture;
    if (!status && !stream->capturing)
        return STATUS_OK;
    cudaError_t code = cudaStreamIsCapturing(stream->stream, &capture);
    if (code)
        return cuda_error(err, code, "a plugin's kernel");
    if (status || capture == cudaStreamCaptureStatusActive)
        return status;
    return error_set(err, STATUS_FAILED_PRECONDITION,
                     "plugin '%s': its kernel '%s' does what cannot be captured: it waits, takes "
                     "memory, or uses another stream",
                     op->of.node.plugin->table->name, op->of.kernel->name);
}

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace,
                          struct error *err)
{
    const struct plugin_op *op = CONTAINER_OF(base, struct plugin_op, base);
    const struct plugin_run run = {.inputs = (const void *const *)inputs,
                                   .outputs = outputs,
                                   .workspace = workspace,
                                   .stream = stream->stream,
                                   .threads = 1};
    enum status status = plugin_kernel_run(op->of.kernel, &op->of.node, &run, err);
    return look_behind(op, stream, status, err);
}

static void op_free(struct backend_op *base)
{
    free(CONTAINER_OF(base, struct plugin_op, base));
}

static enum status prepare(struct backend_stream *stream UNUSED, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    CLEANUP(cleanup_free) struct plugin_op *op = calloc(1, sizeof(*op));
    if (!op)
        return error_no_memory(err, "an op");
    if (cuda_tactic_variant(tactic) != 0)
        return cuda_refuse(node, tactic, err);
    TRY(plugged_read(graph, node, tactic, INFERD_PLUGIN_CUDA, &op->of, err));
    op->base.launch = launch;
    op->base.free = op_free;
    op->base.workspace = plugin_kernel_workspace(op->of.kernel, &op->of.node);
    *out = &STEAL(op)->base;
    return STATUS_OK;
}

const struct cuda_family cuda_family_plugin = {
    .id = CUDA_FAMILY_PLUGIN,
    .candidates = candidates,
    .prepare = prepare,
};
