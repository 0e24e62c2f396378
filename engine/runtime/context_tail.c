/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a batch of a model some of whose sizes only a request tells: once the layers have run,
 * the tail computes the model's outputs of theirs, on the caller's thread. What it takes for that
 * is given back at once; the outputs are copied into a block of their own.
 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "engine/import/onnx.h"
#include "engine/runtime/context.h"
#include "engine/runtime/memory.h"
#include "engine/runtime/tail_eval.h"

enum { TAIL_BYTES = 1 << 30 /* where nobody sets a limit */ };

static size_t memory_max(const struct context *ctx)
{
    uint64_t most = ctx->lane->device->tail_bytes;
    return most ? (size_t)MIN(most, SIZE_MAX) : TAIL_BYTES;
}

enum status context_tail_new(struct context *ctx, struct error *err)
{
    size_t size = BACKEND_ALIGN;
    void *buffer;
    if (!ctx->engine->tails)
        return STATUS_OK;
    for (uint32_t i = 0; i < ctx->engine->info.n_profiles; i++)
        size = MAX(size, ctx->engine->profiles[i].out_bytes);
    TRY(memory_alloc(ctx->lane->device, MEMORY_PINNED, size, "tail", &buffer, err));
    ctx->tail_input = buffer;
    ctx->tail_memory = onnx_memory_new();
    if (!ctx->tail_memory)
        return error_no_memory(err, "a tail");
    struct device *device = ctx->engine->tail_device;
    TRY(device->backend->stream_new(device, &ctx->tail_stream, err));
    ctx->tail_kernels = tail_kernels_new(device, ctx->tail_stream);
    if (!ctx->tail_kernels)
        return error_no_memory(err, "a tail");
    return context_bodies_new(ctx, err);
}

void context_tail_free(struct context *ctx)
{
    context_bodies_free(ctx->bodies);
    tail_kernels_free(ctx->tail_kernels);
    if (ctx->tail_stream)
        ctx->engine->tail_device->backend->stream_free(ctx->tail_stream);
    onnx_memory_free(ctx->tail_memory);
    memory_free(ctx->lane->device, MEMORY_PINNED, ctx->tail_input);
    free(ctx->results);
}

/* Copies the outputs into one block. */
static enum status pack(const struct tensor_view *views, uint32_t n, size_t most,
                        struct engine_results **out, struct error *err)
{
    size_t total = sizeof(struct engine_results) + n * sizeof(*views), sizes[IR_MAX_IO];
    bool fits = checked_round_up(total, BACKEND_ALIGN, &total);
    for (uint32_t i = 0; i < n && fits; i++)
        fits = shape_bytes(&views[i].shape, views[i].dtype, &sizes[i]) &&
               checked_add(total, sizes[i], &total) &&
               checked_round_up(total, BACKEND_ALIGN, &total);
    if (!fits || total > most)
        return error_cause(err, CAUSE_TAIL_OVER_LIMIT,
                           "the outputs need more memory than one request may take");
    struct engine_results *results = aligned_alloc(BACKEND_ALIGN, total);
    if (!results)
        return error_no_memory(err, "outputs of %zu bytes", total);
    size_t at = sizeof(*results) + n * sizeof(*views);
    results->n = n;
    for (uint32_t i = 0; i < n; i++) {
        at = (at + BACKEND_ALIGN - 1) / BACKEND_ALIGN * BACKEND_ALIGN;
        results->outputs[i] = views[i];
        results->outputs[i].data = (char *)results + at;
        if (sizes[i])
            memcpy(results->outputs[i].data, views[i].data, sizes[i]);
        at += sizes[i];
    }
    *out = results;
    return STATUS_OK;
}

static void rest(struct onnx_memory **memory)
{
    onnx_memory_rest(*memory);
}

enum status context_tail_run(struct context *ctx, const struct profile *p, struct error *err)
{
    const struct engine *engine = ctx->engine;
    uint32_t profile = (uint32_t)(p->info - engine->profiles), n_bodies;
    const struct ir_graph *graph = engine->plan->profiles[profile].graph;
    const struct onnx_body *bodies = context_bodies_of(ctx, profile, &n_bodies);
    struct tensor_view inputs[IR_MAX_IO], outputs[IR_MAX_IO];
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        inputs[i] = (struct tensor_view){ir_tensor(graph, graph->outputs[i])->dtype,
                                         p->info->out[i], ctx->tail_input + p->info->out_offset[i]};
    CLEANUP(rest) struct onnx_memory *memory = ctx->tail_memory;
    const struct onnx_computing how = {.inputs = inputs,
                                       .evaluator = {.eval = tail_eval, .user = ctx->tail_kernels},
                                       .memory = memory,
                                       .memory_max = memory_max(ctx),
                                       .bodies = bodies,
                                       .n_bodies = n_bodies};
    CLEANUP(ir_graph_cleanup) struct ir_graph *computed = NULL;
    struct error why;
    if (onnx_compute(engine->tails[profile], &how, outputs, &computed, &why))
        return why.cause == CAUSE_RESOURCE_EXHAUSTED
                   ? error_cause(err, CAUSE_TAIL_OVER_LIMIT, "%s", why.text)
                   : error_copy(err, &why);
    free(ctx->results);
    ctx->results = NULL;
    return pack(outputs, engine->plan->n_late, memory_max(ctx), &ctx->results, err);
}

struct engine_results *context_results(struct context *ctx)
{
    return STEAL(ctx->results);
}
