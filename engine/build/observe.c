/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See observe.h. A copy of the graph is tuned without timing, placed, and run by the runtime, which
 * shows each layer's outputs. In the copy a tensor's name is its number in the caller's graph: so
 * tensors are found again that the tuner has renumbered.
 */
#include "engine/build/observe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "engine/build/build.h"
#include "engine/engine.h"
#include "engine/runtime/layer_values.h"
#include "kernels/cpu/ref.h"

struct observer {
    const struct ir_graph *graph; /* the caller's */
    void *weights;
    struct engine *engine;
    struct lane *lane;
    struct context *ctx;
    void *output; /* of a batch; nobody reads it */
    struct device *device;
    float *values;  /* of the largest tensor */
    uint32_t *next; /* by the caller's number: the tensor that is shown after it, or IR_NONE */
    bool *shown;    /* in this run */
    observer_seen seen;
    void *user;
};

/* --- the plan --- */

/* Without a range a float is stored as one, also where the model says how to quantise it. */
static bool number_tensors(struct ir_graph *graph)
{
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        ir_tensor(graph, i)->range = IR_NO_SCALE;
        if (!(ir_tensor(graph, i)->name = arena_printf(graph->arena, "%u", i)))
            return false;
    }
    return true;
}

/* Puts all constants into one piece of memory, as the reader of plans would. */
static enum status place_weights(struct observer *o, struct plan *plan, struct error *err)
{
    struct ir_graph *g = plan->profiles[0].graph;
    size_t size = 0;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        struct ir_tensor *t = ir_tensor(g, i);
        if (t->place != IR_PLACE_CONSTANT)
            continue;
        t->offset = size;
        if (!checked_add(size, t->bytes, &size) || !checked_round_up(size, BACKEND_ALIGN, &size))
            return error_set(err, STATUS_OUT_OF_RANGE, "weights: too large");
    }
    char *at = o->weights = aligned_alloc(BACKEND_ALIGN, MAX(size, (size_t)BACKEND_ALIGN));
    if (!at)
        return error_no_memory(err, "weights");
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (ir_tensor(g, i)->place == IR_PLACE_CONSTANT)
            memcpy(at + ir_tensor(g, i)->offset, ir_tensor(g, i)->data, ir_tensor(g, i)->bytes);
    plan->weights = at;
    plan->weight_bytes = size;
    return STATUS_OK;
}

static bool bind(struct plan *plan, const char *kind, const uint32_t *ids, uint32_t n,
                 struct plan_binding *list, uint32_t *n_list)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct ir_tensor *t = ir_tensor(plan->profiles[0].graph, ids[i]);
        const char *name = arena_printf(plan->arena, "%s%u", kind, i);
        if (!name)
            return false;
        list[i] = (struct plan_binding){name, t->dtype, t->shape};
    }
    *n_list = n;
    return true;
}

static enum status make_plan(struct observer *o, struct device *host, const struct log_sink *log,
                             struct plan *plan, struct error *err)
{
    const struct tune_options tune = {
        .device = o->device, .host = host, .no_timing = true, .seed = 1, .log = log};
    struct plan_profile *profile = &plan->profiles[0];
    TRY(ir_graph_copy(o->graph, &profile->graph, err));
    struct ir_graph *g = profile->graph;
    plan->n_profiles = profile->batch = 1;
    plan->name = "observed";
    if (!number_tensors(g))
        return error_no_memory(err, "a graph");
    TRY(tune_graph(g, &tune, NULL, err));
    TRY(build_place_apart(g, &profile->tensor_bytes, err));
    if (!bind(plan, "in", g->inputs, g->n_inputs, plan->inputs, &plan->n_inputs) ||
        !bind(plan, "out", g->outputs, g->n_outputs, plan->outputs, &plan->n_outputs))
        return error_no_memory(err, "a plan");
    build_put_device(plan, o->device, host);
    TRY(plan_check(plan, err));
    return place_weights(o, plan, err);
}

/* --- what is shown --- */

/* The number of the tensor in the caller's graph. */
static uint32_t number_of(const struct ir_tensor *t)
{
    return (uint32_t)strtoul(t->name, NULL, 10);
}

/* Lists aliases behind the tensors whose bytes they have. */
static void list_aliases(struct observer *o, const struct ir_graph *g)
{
    for (uint32_t i = 0; i < o->graph->n_tensors; i++)
        o->next[i] = IR_NONE;
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        if (ir_tensor(g, i)->alias_of == IR_NONE)
            continue;
        uint32_t root = number_of(ir_tensor(g, plan_tensor_root(g, i)));
        uint32_t alias = number_of(ir_tensor(g, i));
        uint32_t at = root;
        while (o->next[at] != IR_NONE && at != alias)
            at = o->next[at];
        if (at != alias) /* a reformat of the root has the root's number */
            o->next[at] = alias;
    }
}

static enum status show(struct observer *o, uint32_t tensor, const float *values, size_t n,
                        struct error *err)
{
    for (uint32_t at = tensor; at != IR_NONE; at = o->next[at]) {
        const struct observed value = {at, values, n};
        if (o->shown[at] || !dtype_is_float(ir_tensor_type(ir_tensor(o->graph, at))))
            continue;
        o->shown[at] = true;
        TRY(o->seen(o->user, &value, err));
    }
    return STATUS_OK;
}

/* Shows a tensor that is stored as `format` says. */
static enum status show_stored(struct observer *o, uint32_t tensor, struct ir_format format,
                               const void *data, struct error *err)
{
    const struct ir_tensor *t = ir_tensor(o->graph, tensor);
    size_t n = 0;
    if (!dtype_is_float(format.dtype) || format.layout == IR_LAYOUT_OPAQUE || o->shown[tensor] ||
        !shape_elements(&t->shape, &n))
        return STATUS_OK;
    const struct tensor_view from = {format.dtype, t->shape, (void *)(uintptr_t)data};
    const struct tensor_view to = {DTYPE_F32, t->shape, o->values};
    if (!ir_layouts_agree(&t->shape, format.layout, IR_LAYOUT_PLAIN))
        ref_reformat(format.layout, IR_LAYOUT_PLAIN, &from, &to);
    else if (format.dtype == DTYPE_F32)
        return show(o, tensor, data, n, err);
    else
        ref_cast(&from, &to);
    return show(o, tensor, o->values, n, err);
}

static enum status on_layer(void *user, const struct layer_value *value, struct error *err)
{
    struct observer *o = user;
    const struct ir_tensor *t = ir_tensor(value->graph, value->tensor);
    return show_stored(o, number_of(t), t->format, value->data, err);
}

/* --- life --- */

static enum status take_memory(struct observer *o, struct error *err)
{
    size_t most = 1, n;
    for (uint32_t i = 0; i < o->graph->n_tensors; i++)
        if (shape_elements(&ir_tensor(o->graph, i)->shape, &n))
            most = MAX(most, n);
    o->values = calloc(most, sizeof(*o->values));
    o->next = calloc((size_t)o->graph->n_tensors + 1, sizeof(*o->next));
    o->shown = calloc((size_t)o->graph->n_tensors + 1, sizeof(*o->shown));
    return o->values && o->next && o->shown ? STATUS_OK : error_no_memory(err, "an observer");
}

static enum status make(struct observer *o, struct device *host, const struct log_sink *log,
                        struct error *err)
{
    const struct context_options options = {.no_capture = true};
    CLEANUP(plan_cleanup) struct plan *plan = plan_new();
    if (!plan)
        return error_no_memory(err, "a plan");
    TRY(take_memory(o, err));
    TRY(make_plan(o, host, log, plan, err));
    list_aliases(o, plan->profiles[0].graph);
    TRY(engine_from_plan(o->device, STEAL(plan), "the observed graph", &o->engine, err));
    TRY(lane_new(o->device, &o->lane, err));
    TRY(context_new_with(o->engine, o->lane, &options, &o->ctx, err));
    TRY(context_values_start(o->ctx, on_layer, o, err));
    return engine_buffer_alloc(o->device, MAX(engine_describe(o->engine)->out_bytes_max, (size_t)1),
                               "output", &o->output, err);
}

enum status observer_new(const struct ir_graph *graph, struct device *device, struct device *host,
                         const struct log_sink *log, struct observer **out, struct error *err)
{
    CLEANUP(observer_cleanup) struct observer *o = calloc(1, sizeof(*o));
    if (!o)
        return error_no_memory(err, "an observer");
    o->graph = graph;
    o->device = device;
    TRY(make(o, host, log, err));
    *out = STEAL(o);
    return STATUS_OK;
}

void observer_free(struct observer *o)
{
    if (!o)
        return;
    if (o->output)
        engine_buffer_free(o->device, o->output);
    context_free(o->ctx);
    lane_free(o->lane);
    engine_unref(o->engine);
    free(o->weights);
    free(o->values);
    free(o->next);
    free(o->shown);
    free(o);
}

void observer_cleanup(struct observer **at)
{
    observer_free(*at);
}

/* --- running --- */

static enum status run(struct observer *o, const void *const *inputs, struct error *err)
{
    struct engine_span spans[IR_MAX_IO];
    struct engine_input list[IR_MAX_IO];
    for (uint32_t i = 0; i < o->graph->n_inputs; i++) {
        const struct ir_tensor *t = ir_tensor(o->graph, o->graph->inputs[i]);
        TRY(show_stored(o, o->graph->inputs[i], t->format, inputs[i], err));
        spans[i] = (struct engine_span){inputs[i], t->bytes};
        list[i] = (struct engine_input){&spans[i], 1};
    }
    TRY(context_enqueue(o->ctx, 1, list, o->output, err));
    return context_wait(o->ctx, NULL, err);
}

enum status observer_run(struct observer *o, const void *const *inputs, observer_seen seen,
                         void *user, struct error *err)
{
    o->seen = seen;
    o->user = user;
    memset(o->shown, 0, o->graph->n_tensors * sizeof(*o->shown));
    return run(o, inputs, err);
}
