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
    bool writes; /* some output has elements */
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

/* Where a capture is: what the next node would wait for. */
struct tail {
    enum cudaStreamCaptureStatus capture;
    size_t n;
    cudaGraphNode_t first;
};

static cudaError_t find_tail(struct backend_stream *stream, struct tail *out)
{
    const cudaGraphNode_t *nodes = NULL;
#if CUDART_VERSION >= 13000 /* before, this function had other parameters */
    const cudaGraphEdgeData *edges = NULL;
    cudaError_t code = cudaStreamGetCaptureInfo(stream->stream, &out->capture, NULL, NULL, &nodes,
                                                &edges, &out->n);
#else
    cudaError_t code =
        cudaStreamGetCaptureInfo_v2(stream->stream, &out->capture, NULL, NULL, &nodes, &out->n);
#endif
    bool some = !code && out->capture == cudaStreamCaptureStatusActive && out->n;
    out->first = some ? nodes[0] : NULL;
    return code;
}

static enum status broken(const struct plugin_op *op, const char *what, struct error *err)
{
    return error_set(err, STATUS_FAILED_PRECONDITION, "plugin '%s': its kernel '%s' %s",
                     op->of.node.plugin->table->name, op->of.kernel->name, what);
}

/* Whether what the plugin did is in the capture. */
static enum status check_capture(const struct plugin_op *op, const struct tail *before,
                                 const struct tail *after, struct error *err)
{
    if (after->capture != cudaStreamCaptureStatusActive)
        return broken(
            op, "does what cannot be captured: it waits, takes memory, or uses another stream",
            err);
    if (op->writes && after->n == before->n && after->first == before->first)
        return broken(op, "puts nothing onto the stream that it is given", err);
    return STATUS_OK;
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
    struct tail before = {.n = 0}, after = {.n = 0};
    cudaError_t code = stream->capturing ? find_tail(stream, &before) : cudaSuccess;
    if (code)
        return cuda_error(err, code, "a plugin's kernel");
    enum status status = plugin_kernel_run(op->of.kernel, &op->of.node, &run, err);
    if (!status && !stream->capturing)
        return STATUS_OK;
    code = find_tail(stream, &after); /* also fails if the device is lost */
    if (code)
        return cuda_error(err, code, "a plugin's kernel");
    return status ? status : check_capture(op, &before, &after, err);
}

static void op_free(struct backend_op *base)
{
    free(CONTAINER_OF(base, struct plugin_op, base));
}

static enum status prepare(struct backend_stream *stream UNUSED, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    if (cuda_tactic_variant(tactic) != 0)
        return cuda_refuse(node, tactic, err);
    CLEANUP(cleanup_free) struct plugin_op *op = calloc(1, sizeof(*op));
    if (!op)
        return error_no_memory(err, "an op");
    TRY(plugged_read(graph, node, tactic, INFERD_PLUGIN_CUDA, &op->of, err));
    op->base.launch = launch;
    op->base.free = op_free;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        op->writes = op->writes || ir_tensor(graph, node->outputs[i])->bytes > 0;
    op->base.workspace = plugin_kernel_workspace(op->of.kernel, &op->of.node);
    *out = &STEAL(op)->base;
    return STATUS_OK;
}

const struct cuda_family cuda_family_plugin = {
    .id = CUDA_FAMILY_PLUGIN,
    .candidates = candidates,
    .prepare = prepare,
};
