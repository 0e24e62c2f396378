/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A mark stands behind each launch: an event on the device, a reading of the clock on the CPU. The
 * time of a layer is the time between two marks. Between two parts there are copies, so each part
 * begins with a mark of its own.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "engine/runtime/context.h"

/* --- layers --- */

/* Nanoseconds from the mark before the step to the mark behind it. */
static enum status step_time(const struct context *ctx, const struct part *part, uint32_t at,
                             uint64_t *ns, struct error *err)
{
    if (part->side == SIDE_DEVICE)
        return ctx->backend->event_elapsed(ctx->layer_events[at], ctx->layer_events[at + 1], ns,
                                           err);
    *ns = ctx->layer_clock[at + 1] - ctx->layer_clock[at];
    return STATUS_OK;
}

enum status context_layer_times_add(struct context *ctx, struct profile *p, struct error *err)
{
    for (uint32_t k = 0; k < p->n_parts; k++) {
        const struct part *part = &p->parts[k];
        for (uint32_t i = part->first; i < part->first + part->count; i++) {
            struct layer_time *layer = &p->layers[i];
            uint64_t ns;
            TRY(step_time(ctx, part, i + k, &ns, err));
            layer->min_ns = layer->runs ? MIN(layer->min_ns, ns) : ns;
            layer->total_ns += ns;
            layer->last_ns = ns;
            layer->runs++;
        }
    }
    return STATUS_OK;
}

static enum status take_marks(struct context *ctx, struct error *err)
{
    uint32_t most = 0;
    for (uint32_t i = 0; i < ctx->engine->info.n_profiles; i++)
        most = MAX(most, ctx->profiles[i].n_steps + ctx->profiles[i].n_parts);
    ctx->layer_events = context_take(ctx, most, sizeof(struct backend_event *));
    ctx->layer_clock = context_take(ctx, most, sizeof(*ctx->layer_clock));
    if (!ctx->layer_events || !ctx->layer_clock)
        return error_no_memory(err, "the times of layers");
    for (; ctx->n_layer_events < most; ctx->n_layer_events++)
        TRY(ctx->backend->event_new(ctx->lane->device, true,
                                    &ctx->layer_events[ctx->n_layer_events], err));
    return STATUS_OK;
}

enum status context_layer_times_start(struct context *ctx, struct error *err)
{
    if (ctx->layer_events)
        return STATUS_OK;
    TRY(take_marks(ctx, err));
    ctx->tail_runs = ctx->tail_ns = 0;
    TRY(context_bodies_time(ctx, err));
    for (uint32_t i = 0; i < ctx->engine->info.n_profiles; i++) {
        struct profile *p = &ctx->profiles[i];
        if (!p->ready)
            continue;
        struct layer_time *layers = context_take(ctx, p->n_steps, sizeof(*layers));
        if (!layers)
            return error_no_memory(err, "the times of layers");
        for (uint32_t k = 0; k < p->n_steps; k++)
            layers[k].node = p->steps[k].node;
        p->layers = layers;
        enum status status = context_captures(ctx) ? context_capture(ctx, p, err) : STATUS_OK;
        if (status) {
            p->layers = NULL; /* the profile goes on serving as before */
            return status;
        }
    }
    return STATUS_OK;
}

const struct layer_time *context_layer_times(const struct context *ctx, uint32_t point,
                                             uint32_t batch, uint32_t *n)
{
    uint32_t index = engine_profile_index(ctx->engine, point, batch);
    if (index == ctx->engine->info.n_profiles)
        return NULL;
    const struct profile *p = &ctx->profiles[index];
    if (p->layers)
        *n = p->n_steps;
    return p->layers;
}

uint64_t context_tail_runs(const struct context *ctx, uint64_t *total_ns)
{
    *total_ns = ctx->tail_ns;
    return ctx->tail_runs;
}

const struct context *context_loop(const struct context *ctx, uint32_t point, uint32_t batch,
                                   uint32_t index, const struct engine **engine)
{
    uint32_t profile = engine_profile_index(ctx->engine, point, batch), n = 0;
    const struct context *loop = NULL;
    if (profile < ctx->engine->info.n_profiles)
        (void)context_bodies_of(ctx, profile, &n);
    if (index < n) {
        loop = context_body(ctx, profile, index);
        *engine = loop->engine;
    }
    return loop;
}

const struct ir_graph *engine_graph_for(const struct engine *engine, uint32_t point, uint32_t batch)
{
    uint32_t index = engine_profile_index(engine, point, batch);
    return index < engine->info.n_profiles ? engine->plan->profiles[index].graph : NULL;
}

uint32_t engine_layers(const struct engine *engine, uint32_t point, uint32_t batch, uint32_t first,
                       struct engine_layer *out, uint32_t max)
{
    const struct ir_graph *graph = engine_graph_for(engine, point, batch);
    uint32_t n = 0;
    for (uint32_t i = 0; graph && i < graph->n_nodes; i++) {
        const struct ir_node *node = &graph->nodes[i];
        if (node->op == IR_OP_NONE || !node->tactic)
            continue;
        if (n >= first && n - first < max)
            out[n - first] = (struct engine_layer){node->name, ir_op_name(node->op),
                                                   node->tactic->name, node->time_ns};
        n++;
    }
    return n;
}

/* --- traces --- */

struct trace_base {
    struct device *device;
    struct backend_stream *stream;
    struct backend_event *event;
    uint64_t clock_ns; /* right after the event */
};

static void base_cleanup(struct trace_base **base)
{
    trace_base_free(*base);
}

/* Where the thread loses its core between the two clocks, the moment is noted anew. */
static enum status note_moment(struct trace_base *base, struct error *err)
{
    enum { TRIES = 8, CLOSE_NS = 100 * NS_PER_US };
    const struct backend *backend = base->device->backend;
    uint64_t before = 0;
    for (int i = 0; i < TRIES && (i == 0 || base->clock_ns - before > CLOSE_NS); i++) {
        before = clock_now_ns();
        TRY(backend->event_record(base->event, base->stream, err));
        TRY(backend->event_wait(base->event, err));
        base->clock_ns = clock_now_ns();
    }
    return STATUS_OK;
}

enum status trace_base_new(struct device *device, struct trace_base **out, struct error *err)
{
    const struct backend *backend = device->backend;
    CLEANUP(base_cleanup) struct trace_base *base = calloc(1, sizeof(*base));
    if (!base)
        return error_no_memory(err, "a trace");
    base->device = device;
    TRY(backend->stream_new(device, &base->stream, err));
    TRY(backend->event_new(device, true, &base->event, err));
    TRY(note_moment(base, err));
    *out = STEAL(base);
    return STATUS_OK;
}

void trace_base_free(struct trace_base *base)
{
    if (!base)
        return;
    if (base->event)
        base->device->backend->event_free(base->event);
    if (base->stream)
        base->device->backend->stream_free(base->stream);
    free(base);
}

uint64_t trace_base_clock(const struct trace_base *base)
{
    return base->clock_ns;
}

/* *ns: when the mark was passed, since the base. */
static enum status mark_at(const struct context *ctx, const struct trace_base *base,
                           const struct part *part, uint32_t at, uint64_t *ns, struct error *err)
{
    if (part->side == SIDE_DEVICE)
        return ctx->backend->event_elapsed(base->event, ctx->layer_events[at], ns, err);
    *ns = ctx->layer_clock[at] - base->clock_ns;
    return STATUS_OK;
}

static enum status trace_layers(const struct context *ctx, const struct profile *p,
                                const struct trace_base *base, struct trace_span *spans,
                                uint32_t max, uint32_t *n, struct error *err)
{
    for (uint32_t k = 0; k < p->n_parts; k++) {
        const struct part *part = &p->parts[k];
        uint64_t before, after;
        TRY(mark_at(ctx, base, part, part->first + k, &before, err));
        for (uint32_t i = part->first; i < part->first + part->count; i++) {
            TRY(mark_at(ctx, base, part, i + k + 1, &after, err));
            if (*n < max)
                spans[(*n)++] = (struct trace_span){TRACE_LAYER, p->steps[i].node, before, after};
            before = after;
        }
    }
    return STATUS_OK;
}

enum status context_trace(struct context *ctx, const struct trace_base *base,
                          struct trace_span *spans, uint32_t max, uint32_t *n, struct error *err)
{
    static const enum trace_kind kinds[] = {TRACE_INPUT, TRACE_COMPUTE, TRACE_OUTPUT};
    uint64_t at[EVENT_OUTPUT + 1];
    uint32_t count = 0;
    if (ctx->running || !ctx->last)
        return error_set(err, STATUS_FAILED_PRECONDITION, "trace: no batch has ended");
    for (int i = EVENT_BEGIN; i <= EVENT_OUTPUT; i++)
        TRY(ctx->backend->event_elapsed(base->event, ctx->events[i], &at[i], err));
    for (uint32_t i = 0; i < ARRAY_LEN(kinds) && count < max; i++)
        spans[count++] = (struct trace_span){kinds[i], NULL, at[i], at[i + 1]};
    if (ctx->last->layers)
        TRY(trace_layers(ctx, ctx->last, base, spans, max, &count, err));
    *n = count;
    return STATUS_OK;
}
