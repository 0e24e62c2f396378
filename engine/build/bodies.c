/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/build/bodies.h"

#include <string.h>

#include "engine/build/fuse.h"

/* Gives the plan its one profile, which is the graph. */
static enum status fill(struct plan *plan, struct device *device, struct ir_graph *graph,
                        struct error *err)
{
    plan->profiles[0] = (struct plan_profile){.batch = 1, .graph = graph};
    plan->n_profiles = 1;
    plan->n_inputs = graph->n_inputs;
    plan->n_outputs = graph->n_outputs;
    for (uint32_t i = 0; i < graph->n_inputs + graph->n_outputs; i++) {
        bool input = i < graph->n_inputs;
        uint32_t at = input ? i : i - graph->n_inputs;
        const struct ir_tensor *t =
            ir_tensor(graph, input ? graph->inputs[at] : graph->outputs[at]);
        struct plan_binding *to = input ? &plan->inputs[at] : &plan->outputs[at];
        *to = (struct plan_binding){.dtype = t->dtype, .shape = t->shape};
        to->name = arena_strndup(plan->arena, t->name, PLAN_NAME_MAX);
        if (!to->name)
            return error_no_memory(err, "the builder");
    }
    plan->name = arena_strndup(plan->arena, graph->name, strlen(graph->name));
    if (!plan->name)
        return error_no_memory(err, "the builder");
    build_put_device(plan, device, NULL);
    return build_place(graph, &plan->profiles[0].tensor_bytes, err);
}

static enum status make_plan(const struct build_options *options, struct ir_graph *graph,
                             struct plan **out, struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *owned = graph;
    struct build_report report = {0};
    struct tune_report tuned = {0};
    TRY(build_fuse(graph, options, &report, err));
    struct tune_options tune = {
        .device = options->device,
        .precision = options->precision,
        .no_timing = options->no_timing,
        .retune = options->retune,
        .thorough = options->thorough,
        .cache = options->cache,
        .seed = 1,
        .log = options->log,
    };
    TRY(tune_graph(graph, &tune, &tuned, err));
    CLEANUP(plan_cleanup) struct plan *plan = plan_new();
    if (!plan)
        return error_no_memory(err, "the builder");
    TRY(fill(plan, options->device, STEAL(owned), err));
    log_write(options->log, LOG_INFO,
              "the body of loop '%s' runs as a plan of its own: %u layers, arena of %.1f MiB",
              graph->name, tuned.nodes,
              graph->n_segments ? (double)graph->segments[0].arena_bytes / (1 << 20) : 0.0);
    *out = STEAL(plan);
    return STATUS_OK;
}

/* The device that runs tails; NULL: there is none here. */
static struct device *tail_device(const struct build_options *options)
{
    struct device *device = options->device;
    return !device || device->backend == &backend_cpu ? device : options->host;
}

/* Makes the bytes, and looks whether they can be read. */
static enum status write_plan(const struct plan *plan, struct plan_bytes *out, struct error *err)
{
    CLEANUP(plan_cleanup) struct plan *read = NULL;
    TRY(plan_write_body(plan, out, err));
    return plan_read_body(out->head, out->head_size, out->weights, out->weights_size, &read, err);
}

bool build_body(const struct build_options *options, struct ir_graph *graph, struct plan_bytes *out)
{
    struct build_options own = {
        .device = tail_device(options),
        .evaluator = options->evaluator,
        .precision = PRECISION_F32,
        .no_timing = options->no_timing,
        .retune = options->retune,
        .thorough = options->thorough,
        .log = options->log,
    };
    struct error why;
    CLEANUP(plan_cleanup) struct plan *plan = NULL;
    if (!own.device) {
        ir_graph_free(graph);
        return false;
    }
    if (own.device == options->device)
        own.cache = options->cache;
    if (!make_plan(&own, graph, &plan, &why) && !write_plan(plan, out, &why))
        return true;
    plan_bytes_deinit(out);
    log_write(options->log, LOG_VERBOSE, "a loop's body runs node by node: %s", why.text);
    return false;
}
