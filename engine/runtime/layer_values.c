/* SPDX-License-Identifier: Apache-2.0 */
/* See layer_values.h. What lies in a device's memory is copied to a buffer of the context first. */
#include "engine/runtime/layer_values.h"

#include "engine/runtime/context.h"
#include "engine/runtime/memory.h"

static uint64_t largest(const struct ir_graph *graph)
{
    uint64_t most = 0;
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        if (ir_tensor(graph, i)->producer != IR_NONE)
            most = MAX(most, ir_tensor(graph, i)->bytes);
    return most;
}

static const struct ir_graph *graph_of(const struct context *ctx, const struct profile *p)
{
    return ctx->engine->plan->profiles[p - ctx->profiles].graph;
}

enum status context_values_start(struct context *ctx, layer_seen seen, void *user,
                                 struct error *err)
{
    if (context_captures(ctx))
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "the values of layers: the context runs captured graphs");
    struct layer_values *values = context_take(ctx, 1, sizeof(*values));
    if (!values)
        return error_no_memory(err, "the values of layers");
    *values = (struct layer_values){.seen = seen, .user = user};
    uint64_t most = 0;
    for (uint32_t i = 0; i < ctx->engine->info.n_profiles; i++)
        if (ctx->profiles[i].ready)
            most = MAX(most, largest(graph_of(ctx, &ctx->profiles[i])));
    if (!ctx->backend->host_memory && most)
        TRY(memory_alloc(ctx->lane->device, MEMORY_PINNED, most, "values", &values->buffer, err));
    ctx->values = values;
    return STATUS_OK;
}

/* Waits for the layer, and for the copy of its output. */
static enum status fetch(struct context *ctx, const struct part *part, const void *at,
                         uint64_t bytes, const void **out, struct error *err)
{
    *out = at;
    if (part->side == SIDE_HOST)
        return STATUS_OK;
    if (!ctx->backend->host_memory && bytes) {
        const struct backend_copy copy = {ctx->values->buffer, at, bytes};
        TRY(ctx->backend->copy(ctx->lane->stream, COPY_TO_HOST, &copy, 1, err));
        *out = ctx->values->buffer;
    }
    TRY(context_record(ctx, EVENT_BORDER, err));
    return ctx->backend->event_wait(ctx->events[EVENT_BORDER], err);
}

enum status context_show_values(struct context *ctx, const struct profile *p,
                                const struct part *part, const struct step *step, struct error *err)
{
    struct layer_value value = {.graph = graph_of(ctx, p), .node = step->node};
    for (uint32_t i = 0; i < step->node->n_outputs; i++) {
        value.tensor = step->node->outputs[i];
        uint64_t bytes = ir_tensor(value.graph, value.tensor)->bytes;
        TRY(fetch(ctx, part, step->outputs[i], bytes, &value.data, err));
        TRY(ctx->values->seen(ctx->values->user, &value, err));
    }
    return STATUS_OK;
}
