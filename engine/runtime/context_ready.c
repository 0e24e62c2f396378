/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes profiles ready. Addresses are resolved once. If the device reads host memory, the addresses
 * of graph inputs and outputs may differ from batch to batch: the slots that hold them are listed
 * here and patched before each batch.
 *
 * Where the backend captures, each profile runs once step by step, on inputs of zeros, so that code
 * that is loaded on first use is loaded. Then each device part is captured, and the whole profile
 * runs once more as it will serve. Offsets, and which node reads which tensor, were checked when
 * the plan was read.
 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/runtime/context.h"
#include "engine/runtime/memory.h"

/* What is needed while one profile is made ready. */
struct making {
    struct context *ctx;
    struct profile *p;
    const struct ir_graph *graph;
    unsigned char *where; /* by tensor: a bit for each side that has its bytes by now; or NULL */
    struct backend_copy *copies; /* of the part that is being made, before it has memory for them */
};

/* --- addresses --- */

static int side_of(const struct making *m, uint32_t node)
{
    const struct ir_segment *segment = &m->graph->segments[ir_node(m->graph, node)->segment];
    return engine_segment_on_host(m->ctx->engine, segment) ? SIDE_HOST : SIDE_DEVICE;
}

/* Where the bytes of a root (plan_tensor_root) are on one side. */
static void *address(const struct making *m, const struct ir_tensor *t, int side)
{
    const struct engine *engine = m->ctx->engine;
    const char *weights = side == SIDE_HOST ? engine->plan->weights : engine->weights;
    const struct weights *parts = side == SIDE_HOST ? NULL : engine->parts;
    char *base = m->ctx->base[side];
    switch (t->place) {
    case IR_PLACE_CONSTANT:
        return (void *)(uintptr_t)(parts ? weights_at(parts, t->offset) : weights + t->offset);
    case IR_PLACE_ARENA:
        return base + t->offset;
    case IR_PLACE_INPUT:
        return base + m->p->inputs[t->offset].offset;
    case IR_PLACE_OUTPUT:
        return base + ((char *)m->p->outputs[t->offset].arena - m->ctx->base[SIDE_DEVICE]);
    case IR_PLACE_NONE:
        break;
    }
    return NULL;
}

/* Writes the tensor's address on one side to *slot, and returns its root. *at: where it begins. */
static const struct ir_tensor *locate(const struct making *m, uint32_t tensor, int side,
                                      void **slot, uint64_t *at)
{
    const struct ir_tensor *t = ir_tensor(m->graph, plan_tensor_at(m->graph, tensor, at));
    *slot = (char *)address(m, t, side) + *at;
    return t;
}

/* Writes the tensor's address to *slot, and remembers the slot if the address may change. */
static void bind(const struct making *m, uint32_t tensor, int side, void **slot)
{
    uint64_t at;
    const struct ir_tensor *t = locate(m, tensor, side, slot, &at);
    if (t->place == IR_PLACE_INPUT)
        m->p->inputs[t->offset].used[side] = true;
    if (context_in_place(m->ctx) && (t->place == IR_PLACE_INPUT || t->place == IR_PLACE_OUTPUT))
        m->p->patches[m->p->n_patches++] =
            (struct patch){slot, (uint32_t)t->offset, t->place == IR_PLACE_OUTPUT, at};
}

/* --- parts --- */

/* A tensor that the part reads and the other side made crosses once, before the first part that
 * reads it. An alias has the bytes of what its node reads: each of these tensors crosses for
 * itself, since they may have been made on different sides. plan_check has seen that nodes that
 * are aliases form no long rows. */
static void cross(struct making *m, struct part *part, uint32_t tensor)
{
    const struct ir_tensor *t = ir_tensor(m->graph, tensor);
    if (t->producer == IR_NONE || !t->bytes || m->where[tensor] >> part->side & 1)
        return; /* both sides have constants and the gathered inputs */
    const struct ir_node *node = ir_node(m->graph, t->producer);
    bool alias = plan_node_is_alias(m->graph, node);
    if (!m->where[tensor] && !alias)
        m->where[tensor] = (unsigned char)(1 << side_of(m, t->producer));
    bool there = m->where[tensor] >> part->side & 1;
    m->where[tensor] |= (unsigned char)(1 << part->side);
    for (uint32_t i = 0; alias && i < node->n_inputs; i++)
        cross(m, part, node->inputs[i]);
    if (alias || there)
        return;
    void *to, *from;
    uint64_t at;
    locate(m, tensor, part->side, &to, &at);
    locate(m, tensor, SIDE_HOST + SIDE_DEVICE - part->side, &from, &at);
    m->copies[part->n_copies++] = (struct backend_copy){to, from, t->bytes};
}

static bool has_scale(const struct ir_graph *graph, const struct ir_node *node)
{
    bool has = false;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        has = has || (node->inputs[i] != IR_NONE && ir_tensor(graph, node->inputs[i])->scale);
    for (uint32_t i = 0; i < node->n_outputs; i++)
        has = has || ir_tensor(graph, node->outputs[i])->scale;
    return has;
}

static enum status make_step(struct making *m, struct part *part, const struct ir_node *node,
                             struct error *err)
{
    struct context *ctx = m->ctx;
    struct step *step = &m->p->steps[m->p->n_steps];
    bool host = part->side == SIDE_HOST;
    step->node = node;
    step->backend = host ? ctx->engine->host->backend : ctx->backend;
    step->inputs = context_take(ctx, node->n_inputs, sizeof(void *));
    step->outputs = context_take(ctx, node->n_outputs, sizeof(void *));
    if (!step->inputs || !step->outputs)
        return error_no_memory(err, "a context");
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i] == IR_NONE)
            continue;
        bind(m, node->inputs[i], part->side, &step->inputs[i]);
        if (m->where)
            cross(m, part, node->inputs[i]);
    }
    for (uint32_t i = 0; i < node->n_outputs; i++)
        bind(m, node->outputs[i], part->side, &step->outputs[i]);
    step->workspace = ctx->base[part->side] + node->workspace_offset;
    if (!(step->backend->features & BACKEND_SCALES) && has_scale(m->graph, node))
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "layer '%s': the %s backend has no kernels for 8 bits with a scale",
                         node->name, step->backend->name);
    enum status status = step->backend->op_prepare(host ? ctx->host_stream : ctx->lane->stream,
                                                   m->graph, node, node->tactic, &step->op, err);
    if (status) {
        error_prefix(err, "layer '%s'", node->name);
        return status;
    }
    m->p->n_steps++; /* from here on the step's op is freed with the context */
    part->count++;
    if (step->backend->op_workspace(step->op) > node->workspace_bytes)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "layer '%s': needs more workspace than the plan gives it: build it again",
                         node->name);
    return STATUS_OK;
}

/* The copies of a part are known: they move to the context's memory. */
static enum status end_part(struct making *m, struct error *err)
{
    struct part *part = m->p->n_parts ? &m->p->parts[m->p->n_parts - 1] : NULL;
    if (!part || !part->n_copies)
        return STATUS_OK;
    part->copies = context_take(m->ctx, part->n_copies, sizeof(*part->copies));
    if (!part->copies)
        return error_no_memory(err, "a context");
    memcpy(part->copies, m->copies, part->n_copies * sizeof(*part->copies));
    return STATUS_OK;
}

/* The part that the node belongs to: the last one, or a new one. */
static enum status find_part(struct making *m, uint32_t node, struct part **out, struct error *err)
{
    struct profile *p = m->p;
    int side = side_of(m, node);
    if (p->n_parts == 0 || p->parts[p->n_parts - 1].side != side) {
        TRY(end_part(m, err));
        p->parts[p->n_parts++] = (struct part){.side = side, .first = p->n_steps};
    }
    *out = &p->parts[p->n_parts - 1];
    return STATUS_OK;
}

static enum status make_steps(struct making *m, struct error *err)
{
    for (uint32_t i = 0; i < m->graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(m->graph, i);
        struct part *part = NULL;
        if (plan_node_is_alias(m->graph, node))
            continue;
        TRY(find_part(m, i, &part, err));
        TRY(make_step(m, part, node, err));
    }
    return end_part(m, err);
}

/* The side that writes a root; parts of an output that is joined in place all come from one. */
static int side_made(const struct making *m, uint32_t root)
{
    const struct ir_tensor *t = ir_tensor(m->graph, root);
    while (t->producer != IR_NONE && plan_node_is_alias(m->graph, ir_node(m->graph, t->producer)))
        t = ir_tensor(m->graph, ir_node(m->graph, t->producer)->inputs[0]);
    return t->producer == IR_NONE ? SIDE_DEVICE : side_of(m, t->producer);
}

/* Finds where the outputs' bytes are after the launches. */
static void find_outputs(struct making *m)
{
    for (uint32_t i = 0; i < m->graph->n_outputs; i++) {
        uint32_t root = plan_tensor_root(m->graph, m->graph->outputs[i]);
        int side = side_made(m, root);
        bind(m, root, side, &m->p->outputs[i].made);
        m->p->outputs[i].on_host = side == SIDE_HOST;
    }
}

/* --- profiles --- */

static size_t count_slots(const struct ir_graph *graph)
{
    size_t n = graph->n_outputs;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        n += ir_node(graph, i)->n_inputs + ir_node(graph, i)->n_outputs;
    return n;
}

static bool take_arrays(struct context *ctx, struct profile *p, const struct ir_graph *graph)
{
    p->steps = context_take(ctx, graph->n_nodes, sizeof(*p->steps));
    p->parts = context_take(ctx, graph->n_segments, sizeof(*p->parts));
    p->patches =
        context_take(ctx, context_in_place(ctx) ? count_slots(graph) : 0, sizeof(*p->patches));
    p->inputs = context_take(ctx, graph->n_inputs, sizeof(*p->inputs));
    p->outputs = context_take(ctx, graph->n_outputs, sizeof(*p->outputs));
    p->range = arena_printf(ctx->memory, "%s batch %u", ctx->engine->info.name, p->info->batch);
    return p->steps && p->parts && p->patches && p->inputs && p->outputs && p->range;
}

static void place_io(struct context *ctx, struct profile *p, const struct profile_layout *layout)
{
    char *base = ctx->base[SIDE_DEVICE];
    for (uint32_t i = 0; i < ctx->engine->info.n_inputs; i++) {
        p->inputs[i].offset = layout->in_offset[i];
        p->inputs[i].now = base + layout->in_offset[i];
    }
    for (uint32_t i = 0; i < ctx->engine->info.n_outputs; i++)
        p->outputs[i].now = p->outputs[i].arena = base + layout->out_base + p->info->out_offset[i];
}

static enum status make_profile(struct context *ctx, uint32_t index, struct error *err)
{
    struct engine *engine = ctx->engine;
    struct profile *p = &ctx->profiles[index];
    CLEANUP(cleanup_free) unsigned char *where = NULL;
    struct making m = {.ctx = ctx, .p = p, .graph = engine->plan->profiles[index].graph};
    p->info = &engine->profiles[index];
    p->in = engine_point_inputs(&engine->info, p->info->point);
    p->out = engine_point_outputs(&engine->info, p->info->point);
    CLEANUP(cleanup_free) struct backend_copy *copies = NULL;
    if (!take_arrays(ctx, p, m.graph) ||
        (engine->host && (!(m.where = where = calloc(m.graph->n_tensors, sizeof(*where))) ||
                          !(m.copies = copies = calloc(m.graph->n_tensors, sizeof(*copies))))))
        return error_no_memory(err, "a context");
    place_io(ctx, p, &engine->layouts[index]);
    engine_compile(engine, index);
    TRY(make_steps(&m, err));
    find_outputs(&m);
    return STATUS_OK;
}

/* --- warm-up and capture --- */

/* The step at whose end half of the profile's time has passed (capture_half). A profile of several
 * parts needs none: its batches wait between the parts. */
static uint32_t find_half(const struct context *ctx, const struct profile *p, bool stamp)
{
    uint64_t total = 0, sum = 0;
    if (p->n_parts != 1 || stamp || !ctx->backend->capture_half)
        return CONTEXT_NO_STEP;
    for (uint32_t i = 0; i < p->n_steps; i++)
        total += MAX(p->steps[i].node->time_ns, (uint64_t)1);
    for (uint32_t i = 0; i < p->n_steps; i++) {
        sum += MAX(p->steps[i].node->time_ns, (uint64_t)1);
        if (sum >= total - sum) /* true at the last step at the latest, even if the sums wrap */
            return i;
    }
    return CONTEXT_NO_STEP;
}

static enum status capture_part(struct context *ctx, struct profile *p, uint32_t index, bool stamp,
                                struct backend_graph **out, struct error *err)
{
    struct backend_graph *graph = NULL;
    TRY(ctx->backend->capture_begin(ctx->lane->stream, err));
    ctx->half_step = find_half(ctx, p, stamp);
    enum status status = context_launch(ctx, p, index, stamp, err);
    ctx->half_step = CONTEXT_NO_STEP;
    enum status end_status =
        ctx->backend->capture_end(ctx->lane->stream, &graph, status ? NULL : err);
    if (!status && !end_status) {
        *out = graph;
        return STATUS_OK;
    }
    if (!end_status && graph)
        ctx->backend->graph_free(graph);
    return status ? status : end_status;
}

enum status context_capture(struct context *ctx, struct profile *p, struct error *err)
{
    for (uint32_t i = 0; i < p->n_parts; i++) {
        struct part *part = &p->parts[i];
        struct backend_graph **graph = p->layers ? &part->timed_graph : &part->graph;
        if (part->side != SIDE_DEVICE || *graph)
            continue;
        enum status status = capture_part(ctx, p, i, p->layers != NULL, graph, err);
        if (status) {
            error_prefix(err, "capture of batch %u", p->info->batch);
            return status;
        }
    }
    return STATUS_OK;
}

static enum status run_once(struct context *ctx, struct profile *p, bool plain, struct error *err)
{
    enum status status = context_run(ctx, p, plain, err);
    enum status end_status = context_settle(ctx, status ? NULL : err);
    return status ? status : end_status;
}

static enum status warm_up(struct context *ctx, struct profile *p, struct error *err)
{
    TRY(context_zero_inputs(ctx, p, err));
    TRY(run_once(ctx, p, true, err));
    TRY(context_capture(ctx, p, err));
    return run_once(ctx, p, false, err);
}

/* --- the context --- */

static bool wanted(const struct context *ctx, uint32_t index)
{
    const struct engine_profile *it = &ctx->engine->profiles[index];
    return !ctx->options.batch ||
           index == engine_profile_index(ctx->engine, it->point, ctx->options.batch);
}

/* The offset behind the tensor's bytes in the arenas; 0: the tensor is not there. */
static size_t tensor_end(const struct ir_graph *graph, const struct engine_profile *info,
                         const struct profile_layout *layout, uint32_t tensor)
{
    if (tensor == IR_NONE)
        return 0;
    const struct ir_tensor *t = ir_tensor(graph, plan_tensor_root(graph, tensor));
    switch (t->place) {
    case IR_PLACE_ARENA:
        return t->offset + t->bytes;
    case IR_PLACE_INPUT:
        return layout->in_offset[t->offset] + t->bytes;
    case IR_PLACE_OUTPUT:
        return layout->out_base + info->out_offset[t->offset] + t->bytes;
    case IR_PLACE_CONSTANT:
    case IR_PLACE_NONE:
        break;
    }
    return 0;
}

/* The size of the layout's front that CPU segments use. No more is taken: pinned memory is dear. */
static size_t host_bytes(const struct engine *engine, uint32_t index)
{
    const struct ir_graph *graph = engine->plan->profiles[index].graph;
    const struct engine_profile *info = &engine->profiles[index];
    const struct profile_layout *layout = &engine->layouts[index];
    size_t end = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        if (!engine_segment_on_host(engine, &graph->segments[node->segment]))
            continue;
        for (uint32_t k = 0; k < node->n_inputs; k++)
            end = MAX(end, tensor_end(graph, info, layout, node->inputs[k]));
        for (uint32_t k = 0; k < node->n_outputs; k++)
            end = MAX(end, tensor_end(graph, info, layout, node->outputs[k]));
        end = MAX(end, node->workspace_offset + node->workspace_bytes);
    }
    return end;
}

static enum status take_memory(struct context *ctx, struct error *err)
{
    const struct engine *engine = ctx->engine;
    size_t arena = BACKEND_ALIGN, on_host = BACKEND_ALIGN;
    for (uint32_t i = 0; i < engine->info.n_profiles; i++)
        if (wanted(ctx, i)) {
            arena = MAX(arena, engine->layouts[i].total);
            on_host = MAX(on_host, engine->host ? host_bytes(engine, i) : 0);
        }
    TRY(lane_grow(ctx->lane, arena, err));
    ctx->base[SIDE_DEVICE] = lane_base(ctx->lane);
    void *host;
    if (engine->host) {
        TRY(memory_alloc(ctx->lane->device, MEMORY_PINNED, on_host, "host arena", &host, err));
        ctx->base[SIDE_HOST] = host;
        TRY(engine->host->backend->stream_new(engine->host, &ctx->host_stream, err));
    }
    TRY(context_boxes_new(ctx, err));
    return context_staging_new(ctx, err);
}

static enum status take_lists(struct context *ctx, struct error *err)
{
    const struct engine_info *info = &ctx->engine->info;
    ctx->profiles = context_take(ctx, info->n_profiles, sizeof(*ctx->profiles));
    if (!ctx->profiles || !checked_mul(info->n_inputs, info->max_batch, &ctx->n_copies))
        return error_no_memory(err, "a context");
    ctx->n_copies = MAX(ctx->n_copies, 2 * (size_t)info->n_outputs);
    ctx->copies = context_take(ctx, ctx->n_copies, sizeof(*ctx->copies));
    return ctx->copies ? STATUS_OK : error_no_memory(err, "a context");
}

enum status context_make_ready(struct context *ctx, struct error *err)
{
    TRY(engine_padding(ctx->engine, err));
    TRY(take_memory(ctx, err));
    TRY(take_lists(ctx, err));
    TRY(context_tail_new(ctx, err));
    TRY(context_ragged_new(ctx, err));
    for (uint32_t i = 0; i < N_EVENTS; i++)
        TRY(ctx->backend->event_new(ctx->lane->device, i != EVENT_BORDER, &ctx->events[i], err));
    for (uint32_t i = 0; i < ctx->engine->info.n_profiles; i++) {
        if (!wanted(ctx, i))
            continue;
        TRY(make_profile(ctx, i, err));
        if (context_captures(ctx))
            TRY(warm_up(ctx, &ctx->profiles[i], err));
        ctx->profiles[i].ready = true;
    }
    return STATUS_OK;
}
