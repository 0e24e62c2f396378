/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ops/runner.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/build/build.h"
#include "engine/cpu/eval.h"
#include "engine/engine.h"

/* Node by node with the reference kernels. */
static enum status run_reference(void *user, const struct case_source *source,
                                 const void *const *inputs, void *const *outputs, struct error *err)
{
    const struct ir_graph *graph = source->graph;
    struct tensor_view in[IR_MAX_IO], out[IR_MAX_IO];
    (void)user;
    for (uint32_t i = 0; i < graph->n_inputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->inputs[i]);
        in[i] = (struct tensor_view){t->dtype, t->shape, (void *)(uintptr_t)inputs[i]};
    }
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->outputs[i]);
        out[i] = (struct tensor_view){t->dtype, t->shape, outputs[i]};
    }
    return cpu_eval_graph(graph, in, out, err);
}

/* What a run through the engine holds, in the order in which it is made. */
struct engine_run {
    struct plan *plan;
    char path[64]; /* "" while there is no file */
    struct engine *engine;
    struct lane *lane;
    struct context *context;
    void *buffer;
};

static void engine_run_deinit(struct engine_run *r, struct device *device)
{
    engine_buffer_free(device, r->buffer);
    context_free(r->context);
    lane_free(r->lane);
    engine_unref(r->engine);
    if (r->path[0])
        unlink(r->path);
    plan_free(r->plan);
}

/* Model -> plan -> file -> engine -> context. */
static enum status engine_run_init(struct engine_run *r, struct device *device,
                                   const struct case_source *source, struct error *err)
{
    const uint32_t one = 1;
    const struct build_options options = {
        .device = device,
        .evaluator = {.eval = cpu_eval_node},
        .batches = &one,
        .n_batches = 1,
        .values = source->values,
        .n_values = source->n_values,
        .no_timing = true,
    };
    enum status status = build_plan(source->model, &options, &r->plan, err);
    if (status)
        return status;
    snprintf(r->path, sizeof(r->path), "/tmp/inferd_case_%d.plan", (int)getpid());
    status = plan_write(r->path, r->plan, err);
    if (!status)
        status = engine_load(device, r->path, &r->engine, err);
    if (!status)
        status = lane_new(device, &r->lane, err);
    if (!status)
        status = context_new(r->engine, r->lane, &r->context, err);
    if (!status)
        status = engine_buffer_alloc(device, engine_describe(r->engine)->out_bytes_max, "outputs",
                                     &r->buffer, err);
    return status;
}

static enum status engine_run_batch(struct engine_run *r, const struct ir_graph *graph,
                                    const void *const *inputs, void *const *outputs,
                                    struct error *err)
{
    struct engine_span spans[IR_MAX_IO];
    struct engine_input bound[IR_MAX_IO];
    const struct engine_info *info = engine_describe(r->engine);
    if (info->n_inputs != graph->n_inputs || info->n_outputs != graph->n_outputs)
        return error_set(err, STATUS_INTERNAL, "the plan has %u inputs and %u outputs, not %u, %u",
                         info->n_inputs, info->n_outputs, graph->n_inputs, graph->n_outputs);
    for (uint32_t i = 0; i < graph->n_inputs; i++) {
        spans[i] = (struct engine_span){inputs[i], ir_tensor(graph, graph->inputs[i])->bytes};
        bound[i] = (struct engine_input){&spans[i], 1};
    }
    enum status status = context_enqueue(r->context, 1, bound, r->buffer, err);
    if (!status)
        status = context_wait(r->context, NULL, err);
    for (uint32_t i = 0; i < graph->n_outputs && !status; i++)
        memcpy(outputs[i], (char *)r->buffer + info->profiles[0].out_offset[i],
               ir_tensor(graph, graph->outputs[i])->bytes);
    return status;
}

static enum status run_engine(void *user, const struct case_source *source,
                              const void *const *inputs, void *const *outputs, struct error *err)
{
    struct device *device = user;
    struct engine_run r = {.plan = NULL};
    enum status status = engine_run_init(&r, device, source, err);
    if (!status)
        status = engine_run_batch(&r, source->graph, inputs, outputs, err);
    engine_run_deinit(&r, device);
    return status;
}

bool runner_init(struct case_runner *runner, bool engine)
{
    const struct device_options options = {.threads = 1};
    struct device *device = NULL;
    struct error err;
    *runner = (struct case_runner){.run = run_reference, .evaluator = {.eval = cpu_eval_node}};
    if (!engine)
        return true;
    if (engine_device_open("cpu", &options, &device, &err)) {
        fprintf(stderr, "cpu: %s\n", err.text);
        return false;
    }
    runner->run = run_engine;
    runner->user = device;
    return true;
}

void runner_deinit(struct case_runner *runner)
{
    engine_device_close(runner->user);
}
