/* SPDX-License-Identifier: Apache-2.0 */
/* Until engine/tune is linked: every node gets the backend's last plain candidate, untimed. */
#include <stdlib.h>
#include <string.h>

#include "engine/tune/tune.h"

struct choice {
    struct tactic tactic;
    bool found;
};

static enum status keep_plain(void *user, const struct tactic *tactic, struct error *err)
{
    struct choice *choice = user;
    (void)err;
    for (uint32_t i = 0; i < tactic->n_in; i++)
        if (tactic->in[i].layout != IR_LAYOUT_PLAIN || tactic->in[i].packed_bytes)
            return STATUS_OK;
    for (uint32_t i = 0; i < tactic->n_out; i++)
        if (tactic->out[i].layout != IR_LAYOUT_PLAIN)
            return STATUS_OK;
    choice->tactic = *tactic;
    choice->found = true;
    return STATUS_OK;
}

enum status tune_graph(struct ir_graph *graph, const struct tune_options *options,
                       struct tune_report *report, struct error *err)
{
    const struct backend *backend = options->device->backend;
    struct backend_stream *stream;
    enum status status = backend->stream_new(options->device, &stream, err);
    for (uint32_t i = 0; i < graph->n_nodes && !status; i++) {
        struct ir_node *node = ir_node(graph, i);
        struct choice choice = {.found = false};
        struct backend_op *op;
        status = backend->candidates(options->device, graph, node, options->precision, keep_plain,
                                     &choice, err);
        if (!status && !choice.found)
            status = error_set(err, STATUS_UNIMPLEMENTED, "layer '%s': unsupported", node->name);
        if (status)
            break;
        struct tactic *copy = arena_alloc(graph->arena, sizeof(*copy));
        if (!copy)
            return error_set(err, STATUS_RESOURCE_EXHAUSTED, "out of memory");
        *copy = choice.tactic;
        node->tactic = copy;
        status = backend->op_prepare(stream, graph, node, copy, &op, err);
        if (!status) {
            node->workspace_bytes = backend->op_workspace(op);
            backend->op_free(op);
        }
    }
    backend->stream_free(stream);
    report->nodes = graph->n_nodes;
    return status;
}

enum status tune_cache_load(const char *path, struct device *device, const struct log_sink *log,
                            struct tune_cache **out, struct error *err)
{
    (void)path;
    (void)log;
    return tune_cache_new(device, out, err);
}

enum status tune_cache_new(struct device *device, struct tune_cache **out, struct error *err)
{
    (void)device;
    (void)err;
    *out = NULL;
    return STATUS_OK;
}

enum status tune_cache_save(const struct tune_cache *cache, const char *path, struct error *err)
{
    (void)cache;
    (void)path;
    (void)err;
    return STATUS_OK;
}

void tune_cache_free(struct tune_cache *cache)
{
    (void)cache;
}
