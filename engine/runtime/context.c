/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An execution context: every profile of an engine made ready on one lane.
 *
 * Addresses are resolved once. Those of graph inputs and outputs may differ from batch to batch
 * where the device reads host memory: the slots that hold them are listed and patched. A device
 * that wants stable addresses gets them gathered into, and copied out of, its arena.
 *
 * Nothing is allocated after context_new.
 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "engine/runtime/internal.h"
#include "engine/runtime/memory.h"
#include "engine/runtime/profiler.h"

/* A launch. */
struct step {
    const struct ir_node *node;
    struct backend_op *op;
    void **inputs, **outputs;
    void *workspace;
};

/* A pointer that follows the address of a graph input or output. */
struct patch {
    void **slot;
    uint32_t index;
    bool output;
};

struct profile {
    const struct engine_profile *info;
    uint32_t n_steps, n_patches;
    struct step *steps;
    struct patch *patches;
    void **in_arena, **out_arena; /* where inputs are gathered, and outputs made if not in place */
    void **in_now, **out_now;     /* what the slots hold */
    void **out_from;              /* output i's bytes after the launches */
    struct layer_time *layers;    /* of the profiler, one a step; NULL: off */
};

enum { EVENT_BEGIN, EVENT_INPUT, EVENT_COMPUTE, EVENT_OUTPUT, N_EVENTS };

struct context {
    struct engine *engine;
    struct lane *lane;
    const struct backend *backend;
    struct arena *memory; /* everything below */
    struct profile *profiles;
    struct backend_copy *copies; /* enough for one span an instance of each input */
    struct backend_event *events[N_EVENTS];
    struct backend_event **layer_events; /* of the profiler: as many as the longest profile */
    uint32_t n_layer_events;
    const struct profile *running; /* between enqueue and wait */
};

/* --- making it ready --- */

static bool in_place(const struct context *ctx)
{
    return ctx->backend->host_memory && !ctx->backend->stable_addresses;
}

static void *take(struct context *ctx, size_t count, size_t size)
{
    return arena_array(ctx->memory, count ? count : 1, size);
}

/* Writes the tensor's address to *slot, and remembers the slot if the address may change. */
static void bind(struct context *ctx, struct profile *p, const struct ir_graph *graph,
                 uint32_t tensor, void **slot)
{
    const struct ir_tensor *t = ir_tensor(graph, plan_tensor_root(graph, tensor));
    char *base = ctx->backend->arena_base(ctx->lane->arena);
    const char *weights = ctx->engine->weights;
    switch (t->place) {
    case IR_PLACE_CONSTANT:
        *slot = (void *)(uintptr_t)(weights + t->offset);
        break;
    case IR_PLACE_ARENA:
        *slot = base + t->offset;
        break;
    case IR_PLACE_INPUT:
    case IR_PLACE_OUTPUT:
        *slot = t->place == IR_PLACE_INPUT ? p->in_arena[t->offset] : p->out_arena[t->offset];
        p->patches[p->n_patches++] =
            (struct patch){slot, (uint32_t)t->offset, t->place == IR_PLACE_OUTPUT};
        break;
    case IR_PLACE_NONE:
        break;
    }
}

static enum status make_step(struct context *ctx, struct profile *p, const struct ir_graph *graph,
                             const struct ir_node *node, struct error *err)
{
    struct step *step = &p->steps[p->n_steps];
    step->node = node;
    step->inputs = take(ctx, node->n_inputs, sizeof(void *));
    step->outputs = take(ctx, node->n_outputs, sizeof(void *));
    if (!step->inputs || !step->outputs)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "context: out of memory");
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] != IR_NONE)
            bind(ctx, p, graph, node->inputs[i], &step->inputs[i]);
    for (uint32_t i = 0; i < node->n_outputs; i++)
        bind(ctx, p, graph, node->outputs[i], &step->outputs[i]);
    char *base = ctx->backend->arena_base(ctx->lane->arena);
    step->workspace = base + node->workspace_offset;
    enum status status =
        ctx->backend->op_prepare(ctx->lane->stream, graph, node, node->tactic, &step->op, err);
    if (status) {
        error_prefix(err, "layer '%s'", node->name);
        return status;
    }
    p->n_steps++; /* from here on its op is freed with the context */
    if (ctx->backend->op_workspace(step->op) > node->workspace_bytes)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "layer '%s': needs more workspace than the plan gives it: build it again",
                         node->name);
    return STATUS_OK;
}

static size_t count_slots(const struct ir_graph *graph)
{
    size_t n = graph->n_outputs;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        n += ir_node(graph, i)->n_inputs + ir_node(graph, i)->n_outputs;
    return n;
}

static void place_io(struct context *ctx, struct profile *p, const struct profile_layout *layout)
{
    char *base = ctx->backend->arena_base(ctx->lane->arena);
    for (uint32_t i = 0; i < ctx->engine->info.n_inputs; i++)
        p->in_now[i] = p->in_arena[i] = base + layout->in_offset[i];
    for (uint32_t i = 0; i < ctx->engine->info.n_outputs; i++)
        p->out_now[i] = p->out_arena[i] = base + layout->out_base + p->info->out_offset[i];
}

static enum status make_profile(struct context *ctx, uint32_t index, struct error *err)
{
    const struct engine *engine = ctx->engine;
    const struct ir_graph *graph = engine->plan->profiles[index].graph;
    struct profile *p = &ctx->profiles[index];
    p->info = &engine->profiles[index];
    p->steps = take(ctx, graph->n_nodes, sizeof(*p->steps));
    p->patches = take(ctx, count_slots(graph), sizeof(*p->patches));
    p->in_arena = take(ctx, graph->n_inputs, sizeof(void *));
    p->in_now = take(ctx, graph->n_inputs, sizeof(void *));
    p->out_arena = take(ctx, graph->n_outputs, sizeof(void *));
    p->out_now = take(ctx, graph->n_outputs, sizeof(void *));
    p->out_from = take(ctx, graph->n_outputs, sizeof(void *));
    if (!p->steps || !p->patches || !p->in_arena || !p->in_now || !p->out_arena || !p->out_now ||
        !p->out_from)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "context: out of memory");
    place_io(ctx, p, &engine->layouts[index]);
    for (uint32_t s = 0; s < graph->n_segments; s++) {
        const struct ir_segment *segment = &graph->segments[s];
        for (uint32_t i = segment->first; i < segment->first + segment->count; i++) {
            const struct ir_node *node = ir_node(graph, i);
            enum status status =
                plan_node_is_alias(graph, node) ? STATUS_OK : make_step(ctx, p, graph, node, err);
            if (status)
                return status;
        }
    }
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        bind(ctx, p, graph, graph->outputs[i], &p->out_from[i]);
    return STATUS_OK;
}

static enum status make_ready(struct context *ctx, struct error *err)
{
    const struct engine_info *info = &ctx->engine->info;
    size_t arena = 0, n_copies;
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < info->n_profiles; i++)
        arena = MAX(arena, ctx->engine->layouts[i].total);
    status = lane_grow(ctx->lane, MAX(arena, (size_t)BACKEND_ALIGN), err);
    for (uint32_t i = 0; i < N_EVENTS && !status; i++)
        status = ctx->backend->event_new(ctx->lane->device, true, &ctx->events[i], err);
    if (status)
        return status;
    ctx->profiles = take(ctx, info->n_profiles, sizeof(*ctx->profiles));
    if (!checked_mul(info->n_inputs, info->max_batch, &n_copies) || !ctx->profiles ||
        !(ctx->copies = take(ctx, MAX(n_copies, (size_t)info->n_outputs), sizeof(*ctx->copies))))
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "context: out of memory");
    for (uint32_t i = 0; i < info->n_profiles && !status; i++)
        status = make_profile(ctx, i, err);
    return status;
}

enum status context_new(struct engine *engine, struct lane *lane, struct context **out,
                        struct error *err)
{
    if (engine->device != lane->device)
        return error_set(err, STATUS_INVALID_ARGUMENT, "context: engine and lane of two devices");
    struct context *ctx = calloc(1, sizeof(*ctx));
    if (!ctx || !(ctx->memory = arena_new(0))) {
        free(ctx);
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "context: out of memory");
    }
    ctx->engine = engine_ref(engine);
    ctx->lane = lane;
    ctx->backend = lane->device->backend;
    enum status status = make_ready(ctx, err);
    if (status) {
        context_free(ctx);
        return status;
    }
    *out = ctx;
    return STATUS_OK;
}

void context_free(struct context *ctx)
{
    if (!ctx)
        return;
    if (ctx->running)
        context_wait(ctx, NULL, NULL);
    for (uint32_t i = 0; ctx->profiles && i < ctx->engine->info.n_profiles; i++)
        for (uint32_t k = 0; k < ctx->profiles[i].n_steps; k++)
            ctx->backend->op_free(ctx->profiles[i].steps[k].op);
    for (uint32_t i = 0; i < N_EVENTS; i++)
        if (ctx->events[i])
            ctx->backend->event_free(ctx->events[i]);
    for (uint32_t i = 0; i < ctx->n_layer_events; i++)
        ctx->backend->event_free(ctx->layer_events[i]);
    engine_unref(ctx->engine);
    arena_free(ctx->memory);
    free(ctx);
}

/* --- running it --- */

static enum status check_input(const struct context *ctx, uint32_t index, uint32_t batch,
                               const struct engine_input *input, struct error *err)
{
    const struct engine_binding *b = &ctx->engine->info.inputs[index];
    size_t total = 0;
    for (uint32_t i = 0; i < input->n_spans; i++) {
        size_t size = input->spans[i].size;
        if ((b->instance_bytes ? size % b->instance_bytes : size) ||
            !checked_add(total, size, &total))
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "input '%s': %zu bytes are not a multiple of an instance's %zu",
                             b->name, size, b->instance_bytes);
    }
    if (total != (size_t)batch * b->instance_bytes)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input '%s': %zu bytes, a batch of %u needs %zu", b->name, total, batch,
                         (size_t)batch * b->instance_bytes);
    return STATUS_OK;
}

static const void *whole_span(const struct context *ctx, const struct profile *p, uint32_t batch,
                              const struct engine_input *input)
{
    if (!in_place(ctx) || input->n_spans != 1 || batch != p->info->batch ||
        (uintptr_t)input->spans[0].data % BACKEND_ALIGN)
        return NULL;
    return input->spans[0].data;
}

/* Adds the copies that put the input at `to`; what the batch leaves empty becomes zero. */
static uint32_t gather(struct context *ctx, const struct profile *p, uint32_t index, uint32_t batch,
                       const struct engine_input *input, uint32_t n)
{
    size_t instance = ctx->engine->info.inputs[index].instance_bytes;
    char *to = p->in_arena[index];
    for (uint32_t i = 0; i < input->n_spans; i++) {
        size_t size = input->spans[i].size;
        if (size)
            ctx->copies[n++] = (struct backend_copy){to, input->spans[i].data, size};
        to += size;
    }
    for (uint32_t i = batch; i < p->info->batch && instance; i++, to += instance)
        ctx->copies[n++] = (struct backend_copy){to, ctx->engine->zeros, instance};
    return n;
}

static enum status bind_inputs(struct context *ctx, struct profile *p, uint32_t batch,
                               const struct engine_input *inputs, struct error *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ctx->engine->info.n_inputs; i++) {
        const void *whole = whole_span(ctx, p, batch, &inputs[i]);
        p->in_now[i] = whole ? (void *)(uintptr_t)whole : p->in_arena[i];
        if (!whole)
            n = gather(ctx, p, i, batch, &inputs[i], n);
    }
    return n ? ctx->backend->copy(ctx->lane->stream, COPY_TO_DEVICE, ctx->copies, n, err)
             : STATUS_OK;
}

static enum status launch(struct context *ctx, struct profile *p, struct error *err)
{
    for (uint32_t i = 0; i < p->n_patches; i++) {
        const struct patch *patch = &p->patches[i];
        *patch->slot = patch->output ? p->out_now[patch->index] : p->in_now[patch->index];
    }
    for (uint32_t i = 0; i < p->n_steps; i++) {
        const struct step *s = &p->steps[i];
        enum status status = ctx->backend->op_launch(s->op, ctx->lane->stream, s->inputs,
                                                     s->outputs, s->workspace, err);
        if (!status && p->layers)
            status = ctx->backend->event_record(ctx->layer_events[i], ctx->lane->stream, err);
        if (status) {
            error_prefix(err, "layer '%s'", s->node->name);
            return status;
        }
    }
    return STATUS_OK;
}

/* Copies to `output` what was not made there: everything, if the device cannot write there, else
 * outputs that are inputs, constants or other outputs. */
static enum status collect(struct context *ctx, struct profile *p, uint32_t batch, char *output,
                           struct error *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ctx->engine->info.n_outputs; i++) {
        size_t size = batch * ctx->engine->info.outputs[i].instance_bytes;
        char *to = output + p->info->out_offset[i];
        if (size && p->out_from[i] != to)
            ctx->copies[n++] = (struct backend_copy){to, p->out_from[i], size};
    }
    return n ? ctx->backend->copy(ctx->lane->stream, COPY_TO_HOST, ctx->copies, n, err) : STATUS_OK;
}

static enum status record(struct context *ctx, int event, struct error *err)
{
    return ctx->backend->event_record(ctx->events[event], ctx->lane->stream, err);
}

static enum status start(struct context *ctx, struct profile *p, uint32_t batch,
                         const struct engine_input *inputs, char *output, struct error *err)
{
    for (uint32_t i = 0; i < ctx->engine->info.n_outputs; i++)
        p->out_now[i] = in_place(ctx) ? output + p->info->out_offset[i] : p->out_arena[i];
    enum status status = record(ctx, EVENT_BEGIN, err);
    if (!status)
        status = bind_inputs(ctx, p, batch, inputs, err);
    if (!status)
        status = record(ctx, EVENT_INPUT, err);
    if (!status)
        status = launch(ctx, p, err);
    if (!status)
        status = record(ctx, EVENT_COMPUTE, err);
    if (!status)
        status = collect(ctx, p, batch, output, err);
    return status ? status : record(ctx, EVENT_OUTPUT, err);
}

enum status context_enqueue(struct context *ctx, uint32_t batch, const struct engine_input *inputs,
                            void *output, struct error *err)
{
    const struct engine_profile *info = engine_profile_for(ctx->engine, batch);
    if (!info)
        return error_set(err, STATUS_INVALID_ARGUMENT, "a batch of %u: the engine takes 1 to %u",
                         batch, ctx->engine->info.max_batch);
    if (ctx->running)
        return error_set(err, STATUS_FAILED_PRECONDITION, "the context is running a batch");
    enum status status = STATUS_OK;
    for (uint32_t i = 0; i < ctx->engine->info.n_inputs && !status; i++)
        status = check_input(ctx, i, batch, &inputs[i], err);
    if (status)
        return status;
    struct profile *p = &ctx->profiles[info - ctx->engine->profiles];
    status = start(ctx, p, batch, inputs, output, err);
    if (!status) {
        ctx->running = p;
        return STATUS_OK;
    }
    /* What was put onto the stream still reads the caller's bytes: let it end. */
    if (!record(ctx, EVENT_OUTPUT, NULL))
        ctx->backend->event_wait(ctx->events[EVENT_OUTPUT], NULL);
    return status;
}

static enum status add_layer_times(struct context *ctx, const struct profile *p, struct error *err)
{
    struct backend_event *before = ctx->events[EVENT_INPUT];
    for (uint32_t i = 0; i < p->n_steps; i++) {
        struct layer_time *layer = &p->layers[i];
        uint64_t ns;
        enum status status = ctx->backend->event_elapsed(before, ctx->layer_events[i], &ns, err);
        if (status)
            return status;
        layer->min_ns = layer->runs ? MIN(layer->min_ns, ns) : ns;
        layer->total_ns += ns;
        layer->runs++;
        before = ctx->layer_events[i];
    }
    return STATUS_OK;
}

enum status context_wait(struct context *ctx, struct engine_times *times, struct error *err)
{
    const struct profile *p = ctx->running;
    struct engine_times t;
    if (!p)
        return error_set(err, STATUS_FAILED_PRECONDITION, "the context is not running a batch");
    ctx->running = NULL;
    enum status status = ctx->backend->event_wait(ctx->events[EVENT_OUTPUT], err);
    if (!status && p->layers)
        status = add_layer_times(ctx, p, err);
    if (status || !times)
        return status;
    uint64_t *const parts[] = {&t.input_ns, &t.compute_ns, &t.output_ns};
    for (uint32_t i = 0; i < ARRAY_LEN(parts) && !status; i++)
        status = ctx->backend->event_elapsed(ctx->events[i], ctx->events[i + 1], parts[i], err);
    if (!status)
        *times = t;
    return status;
}

/* --- the profiler --- */

enum status context_profile_start(struct context *ctx, struct error *err)
{
    uint32_t longest = 0;
    if (ctx->layer_events)
        return STATUS_OK;
    for (uint32_t i = 0; i < ctx->engine->info.n_profiles; i++)
        longest = MAX(longest, ctx->profiles[i].n_steps);
    ctx->layer_events = take(ctx, longest, sizeof(struct backend_event *));
    if (!ctx->layer_events)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "profiler: out of memory");
    for (; ctx->n_layer_events < longest; ctx->n_layer_events++) {
        enum status status = ctx->backend->event_new(ctx->lane->device, true,
                                                     &ctx->layer_events[ctx->n_layer_events], err);
        if (status)
            return status;
    }
    for (uint32_t i = 0; i < ctx->engine->info.n_profiles; i++) {
        struct profile *p = &ctx->profiles[i];
        p->layers = take(ctx, p->n_steps, sizeof(*p->layers));
        if (!p->layers)
            return error_set(err, STATUS_RESOURCE_EXHAUSTED, "profiler: out of memory");
        for (uint32_t k = 0; k < p->n_steps; k++)
            p->layers[k].node = p->steps[k].node;
    }
    return STATUS_OK;
}

const struct layer_time *context_profile_layers(const struct context *ctx, uint32_t batch,
                                                uint32_t *n)
{
    const struct engine_profile *info = engine_profile_for(ctx->engine, batch);
    if (!info)
        return NULL;
    const struct profile *p = &ctx->profiles[info - ctx->engine->profiles];
    if (p->layers)
        *n = p->n_steps;
    return p->layers;
}

const struct ir_graph *engine_graph_for(const struct engine *engine, uint32_t batch)
{
    const struct engine_profile *info = engine_profile_for(engine, batch);
    return info ? engine->plan->profiles[info - engine->profiles].graph : NULL;
}
