/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An execution context: profiles of an engine made ready on one lane (a stream and an arena, shared
 * by the lane's contexts). A batch is the copies of its inputs, the launches, and the copies of its
 * outputs, put onto the lane's stream with an event behind each of the three. Only the wait
 * functions wait for an event. Nothing is allocated after context_new.
 */
#include "engine/runtime/context.h"

#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "engine/runtime/memory.h"

/* --- life --- */

enum status context_new(struct engine *engine, struct lane *lane, struct context **out,
                        struct error *err)
{
    return context_new_with(engine, lane, &(struct context_options){0}, out, err);
}

enum status context_new_with(struct engine *engine, struct lane *lane,
                             const struct context_options *options, struct context **out,
                             struct error *err)
{
    if (engine->device != lane->device)
        return error_set(err, STATUS_INVALID_ARGUMENT, "context: engine and lane of two devices");
    if (atomic_load_explicit(&engine->settled, memory_order_relaxed))
        return error_set(err, STATUS_FAILED_PRECONDITION, "context: the engine has been settled");
    if (options->batch && !engine_profile_for(engine, 0, options->batch))
        return error_set(err, STATUS_INVALID_ARGUMENT, "a batch of %u: the engine takes 1 to %u",
                         options->batch, engine->info.max_batch);
    struct context *ctx = calloc(1, sizeof(*ctx));
    if (!ctx || !(ctx->memory = arena_new(0))) {
        free(ctx);
        return error_no_memory(err, "a context");
    }
    ctx->engine = engine_ref(engine);
    ctx->lane = lane;
    ctx->backend = lane->device->backend;
    ctx->options = *options;
    ctx->half_step = CONTEXT_NO_STEP;
    enum status status = context_make_ready(ctx, err);
    if (status) {
        context_free(ctx);
        return status;
    }
    *out = ctx;
    return STATUS_OK;
}

static void free_profile(struct context *ctx, struct profile *p)
{
    for (uint32_t i = 0; i < p->n_parts; i++) {
        if (p->parts[i].graph)
            ctx->backend->graph_free(p->parts[i].graph);
        if (p->parts[i].timed_graph)
            ctx->backend->graph_free(p->parts[i].timed_graph);
    }
    for (uint32_t i = 0; i < p->n_steps; i++)
        p->steps[i].backend->op_free(p->steps[i].op);
}

void context_free(struct context *ctx)
{
    if (!ctx)
        return;
    ctx->output = NULL; /* the caller may have freed it */
    if (ctx->running)
        context_wait(ctx, NULL, NULL);
    else if (ctx->events[EVENT_OUTPUT])
        context_settle(ctx, NULL); /* launches before a failure may still run */
    for (uint32_t i = 0; ctx->profiles && i < ctx->engine->info.n_profiles; i++)
        free_profile(ctx, &ctx->profiles[i]);
    for (uint32_t i = 0; i < N_EVENTS; i++)
        if (ctx->events[i])
            ctx->backend->event_free(ctx->events[i]);
    for (uint32_t i = 0; i < ctx->n_layer_events; i++)
        ctx->backend->event_free(ctx->layer_events[i]);
    if (ctx->host_stream)
        ctx->engine->host->backend->stream_free(ctx->host_stream);
    memory_free(ctx->lane->device, MEMORY_PINNED, ctx->base[SIDE_HOST]);
    memory_free(ctx->lane->device, MEMORY_PINNED, ctx->staging);
    memory_free(ctx->lane->device, MEMORY_PINNED, ctx->boxes);
    context_tail_free(ctx);
    context_ragged_free(ctx);
    if (ctx->values)
        memory_free(ctx->lane->device, MEMORY_PINNED, ctx->values->buffer);
    engine_unref(ctx->engine);
    arena_free(ctx->memory);
    free(ctx);
}

/* --- running it --- */

static enum status check_input(const struct engine_binding *b, uint32_t count,
                               const struct engine_input *input, struct error *err)
{
    size_t total = 0;
    for (uint32_t i = 0; i < input->n_spans; i++) {
        size_t size = input->spans[i].size;
        if ((b->instance_bytes ? size % b->instance_bytes : size) ||
            !checked_add(total, size, &total))
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "input '%s': %zu bytes are not a multiple of an instance's %zu",
                             b->name, size, b->instance_bytes);
    }
    if (total != (size_t)count * b->instance_bytes)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input '%s': %zu bytes, a batch of %u needs %zu", b->name, total, count,
                         (size_t)count * b->instance_bytes);
    return STATUS_OK;
}

/* The same of an input whose spans are those of requests. */
static enum status check_spans(const struct engine_info *info, const struct profile *p,
                               const struct engine_batch *batch, uint32_t index,
                               const struct engine_input *input, struct error *err)
{
    const struct engine_axes *axes = engine_input_axes(info, index);
    uint32_t n = axes && axes->shared ? 1 : batch->n_requests;
    if (input->n_spans < n)
        return error_set(err, STATUS_INVALID_ARGUMENT, "input '%s': %u spans for %u requests",
                         p->in[index].name, input->n_spans, n);
    for (uint32_t r = 0; r < n; r++) {
        const struct engine_request *request = &batch->requests[r];
        struct shape shape =
            engine_shape_of(info, axes, &p->info->in[index], request->instances, request->values);
        size_t bytes;
        if (!shape_bytes(&shape, p->in[index].dtype, &bytes) || input->spans[r].size != bytes)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "input '%s': %zu bytes of request %u, which is not what its shape has",
                             p->in[index].name, input->spans[r].size, r);
    }
    return STATUS_OK;
}

/* Checks that the requests are what the point takes, and as many instances as is said. */
static enum status check_requests(const struct engine_info *info, const struct engine_batch *batch,
                                  struct error *err)
{
    uint64_t sum = 0;
    for (uint32_t r = 0; r < batch->n_requests; r++) {
        sum += batch->requests[r].instances;
        if (info->n_free && !engine_point_holds(info, batch->point, batch->requests[r].values))
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "request %u of a batch has sizes that are not those of its point", r);
    }
    if (batch->requests && sum != batch->instances)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "a batch of %u, whose requests have %llu instances", batch->instances,
                         (unsigned long long)sum);
    return STATUS_OK;
}

static enum status check(const struct context *ctx, const struct engine_batch *batch,
                         const struct engine_input *inputs, struct profile **out, struct error *err)
{
    const struct engine_info *model = &ctx->engine->info;
    uint32_t index = engine_profile_index(ctx->engine, batch->point, batch->instances);
    if (index == model->n_profiles)
        return error_set(err, STATUS_INVALID_ARGUMENT, "a batch of %u: the engine takes 1 to %u",
                         batch->instances, model->max_batch);
    struct profile *p = &ctx->profiles[index];
    if (!p->ready)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "a batch of %u: the context was made for batches of %u", batch->instances,
                         ctx->options.batch);
    if (ctx->running)
        return error_set(err, STATUS_FAILED_PRECONDITION, "the context is running a batch");
    TRY(check_requests(model, batch, err));
    for (uint32_t i = 0; inputs && i < model->n_inputs; i++)
        if (batch->requests)
            TRY(check_spans(model, p, batch, i, &inputs[i], err));
        else
            TRY(check_input(&p->in[i],
                            engine_count_of(model, engine_input_axes(model, i), batch->instances),
                            &inputs[i], err));
    *out = p;
    return STATUS_OK;
}

static enum status start(struct context *ctx, struct profile *p, bool named,
                         const struct engine_input *inputs, struct error *err)
{
    context_bind_outputs(ctx, p);
    TRY(context_record(ctx, EVENT_BEGIN, err));
    if (inputs)
        TRY(context_bind_inputs(ctx, p, named, inputs, err));
    TRY(context_record(ctx, EVENT_INPUT, err));
    TRY(context_run(ctx, p, false, err));
    TRY(context_record(ctx, EVENT_COMPUTE, err));
    if (ctx->output)
        TRY(context_collect(ctx, p, err));
    return context_record(ctx, EVENT_OUTPUT, err);
}

enum status context_enqueue(struct context *ctx, uint32_t batch, const struct engine_input *inputs,
                            void *output, struct error *err)
{
    return context_enqueue_at(ctx, 0, batch, inputs, output, err);
}

enum status context_enqueue_at(struct context *ctx, uint32_t point, uint32_t batch,
                               const struct engine_input *inputs, void *output, struct error *err)
{
    return context_enqueue_batch(ctx, &(struct engine_batch){.point = point, .instances = batch},
                                 inputs, output, err);
}

/* A batch without requests is one of all instances. */
static void note_batch(struct context *ctx, const struct engine_batch *batch, void *output)
{
    const struct engine_info *info = &ctx->engine->info;
    ctx->batch = *batch;
    ctx->output = output;
    ctx->shelved = 0;
    if (batch->requests)
        return;
    ctx->lone = (struct engine_request){.instances = batch->instances};
    memcpy(ctx->lone.values, info->points[batch->point].values, sizeof(ctx->lone.values));
    ctx->batch.requests = &ctx->lone;
    ctx->batch.n_requests = 1;
}

enum status context_enqueue_batch(struct context *ctx, const struct engine_batch *batch,
                                  const struct engine_input *inputs, void *output,
                                  struct error *err)
{
    return ctx->ragged ? context_ragged_enqueue(ctx, batch, inputs, output, err)
                       : context_enqueue_layers(ctx, batch, inputs, output, err);
}

enum status context_enqueue_layers(struct context *ctx, const struct engine_batch *batch,
                                   const struct engine_input *inputs, void *output,
                                   struct error *err)
{
    struct profile *p = NULL;
    TRY(check(ctx, batch, inputs, &p, err));
    ctx->last = NULL;
    note_batch(ctx, batch, ctx->tail_input ? ctx->tail_input : output);
    if (ctx->backend->range_begin)
        ctx->backend->range_begin(p->range);
    enum status status = start(ctx, p, batch->requests != NULL, inputs, err);
    if (!status) {
        ctx->running = p;
        return STATUS_OK;
    }
    /* Copies and launches that are on the stream still read the caller's bytes: let them end. */
    context_settle(ctx, NULL);
    if (ctx->backend->range_end)
        ctx->backend->range_end();
    return status;
}

enum status context_wait_inputs(struct context *ctx, struct error *err)
{
    if (!ctx->running)
        return error_set(err, STATUS_FAILED_PRECONDITION, "the context is not running a batch");
    int event = context_in_place(ctx) ? EVENT_OUTPUT : EVENT_INPUT;
    return ctx->backend->event_wait(ctx->events[event], err);
}

enum status context_wait(struct context *ctx, struct engine_times *times, struct error *err)
{
    struct profile *p = ctx->running;
    struct engine_times t;
    uint64_t tail_ns = 0;
    if (!p)
        return error_set(err, STATUS_FAILED_PRECONDITION, "the context is not running a batch");
    ctx->running = NULL;
    enum status status = ctx->backend->event_wait(ctx->events[EVENT_OUTPUT], err);
    if (ctx->backend->range_end)
        ctx->backend->range_end();
    ctx->last = status ? NULL : p;
    if (status)
        return status;
    if (ctx->tail_input) {
        uint64_t begin_ns = clock_now_ns();
        TRY(context_tail_run(ctx, p, err));
        tail_ns = clock_now_ns() - begin_ns;
        ctx->tail_ns += tail_ns;
        ctx->tail_runs++;
    } else if (ctx->output) {
        context_box_outputs(ctx, p);
        if (ctx->ragged)
            context_ragged_outputs(ctx, p);
    }
    if (p->layers)
        TRY(context_layer_times_add(ctx, p, err));
    if (!times)
        return STATUS_OK;
    uint64_t *const parts[] = {&t.input_ns, &t.compute_ns, &t.output_ns};
    for (uint32_t i = 0; i < ARRAY_LEN(parts); i++)
        TRY(ctx->backend->event_elapsed(ctx->events[i], ctx->events[i + 1], parts[i], err));
    t.compute_ns += tail_ns;
    *times = t;
    return STATUS_OK;
}

uint64_t context_shelved(const struct context *ctx)
{
    return ctx->last ? ctx->shelved : 0;
}
