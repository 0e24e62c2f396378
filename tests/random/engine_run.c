/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/random/engine_run.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/build/build.h"
#include "engine/cpu/eval.h"
#include "engine/engine.h"
#include "tests/random/force.h"

enum { PIECES_MAX = 16 };

/* In the order in which they are made. */
struct run {
    struct device *device;
    struct plan *plan;
    char path[96]; /* "" while there is no file */
    struct engine *engine;
    struct lane *lane;
    struct context *context;
    void *buffer;
    char *pieces; /* copies of inputs that are handed over in pieces */
};

static void run_deinit(struct run *r)
{
    free(r->pieces);
    engine_buffer_free(r->device, r->buffer);
    context_free(r->context);
    lane_free(r->lane);
    engine_unref(r->engine);
    if (r->path[0])
        unlink(r->path);
    plan_free(r->plan);
    engine_device_close(r->device);
}

static enum status make_plan(struct run *r, const struct graph_case *c,
                             const struct engine_choice *choice, struct error *err)
{
    const struct device_options device = {.threads = choice->threads};
    const uint32_t one = 1;
    enum status status = engine_device_open("cpu", &device, &r->device, err);
    if (status)
        return status;
    force_device(r->device);
    force_turn(choice->turn, choice->names);
    const struct build_options options = {
        .device = r->device,
        .evaluator = {.eval = cpu_eval_node},
        .batches = c->n_profiles ? c->profiles : &one,
        .n_batches = c->n_profiles ? c->n_profiles : 1,
        .no_timing = !choice->timed,
    };
    status = build_plan(c->model, &options, &r->plan, err);
    if (!status && r->plan->batched != (c->n_profiles > 0))
        return error_set(err, STATUS_INTERNAL, "the plan is %sbatched",
                         r->plan->batched ? "" : "not ");
    return status;
}

static enum status load_plan(struct run *r, struct error *err)
{
    const char *folder = getenv("TMPDIR");
    snprintf(r->path, sizeof(r->path), "%.60s/inferd_random_%d.plan", folder ? folder : "/tmp",
             (int)getpid());
    enum status status = plan_write(r->path, r->plan, err);
    if (!status)
        status = engine_load(r->device, r->path, &r->engine, err);
    if (!status)
        status = lane_new(r->device, &r->lane, err);
    if (!status)
        status = context_new(r->engine, r->lane, &r->context, err);
    if (!status)
        status = engine_buffer_alloc(r->device, engine_describe(r->engine)->out_bytes_max,
                                     "outputs", &r->buffer, err);
    return status;
}

/* --- one data set --- */

static struct shape bound(const struct engine_binding *binding, bool batched, uint32_t batch)
{
    struct shape shape = binding->shape;
    if (batched && shape.rank)
        shape.dim[0] = batch;
    return shape;
}

/* One span, or one for each instance, each at an odd address. */
static uint32_t cut(struct run *r, const struct engine_binding *in, uint32_t batch,
                    const char *data, bool pieces, struct engine_span *spans, size_t *used)
{
    if (!pieces || batch > PIECES_MAX || !r->pieces) {
        spans[0] = (struct engine_span){data, in->instance_bytes * batch};
        return 1;
    }
    for (uint32_t i = 0; i < batch; i++) {
        char *to = r->pieces + (*used | 1);
        memcpy(to, data + i * in->instance_bytes, in->instance_bytes);
        *used = (*used | 1) + in->instance_bytes;
        spans[i] = (struct engine_span){to, in->instance_bytes};
    }
    return batch;
}

static enum status enqueue(struct run *r, const struct case_set *set, bool pieces,
                           struct error *err)
{
    static struct engine_span spans[IR_MAX_IO][PIECES_MAX];
    struct engine_input inputs[IR_MAX_IO];
    const struct engine_info *info = engine_describe(r->engine);
    size_t used = 0, need = 0;
    for (uint32_t i = 0; i < info->n_inputs; i++)
        need += (info->inputs[i].instance_bytes + 2) * set->batch;
    free(r->pieces);
    r->pieces = malloc(need + 1);
    for (uint32_t i = 0; i < info->n_inputs; i++) {
        const struct engine_binding *in = &info->inputs[i];
        struct shape shape = bound(in, info->batched, set->batch);
        const void *data = case_set_input(set, in->name, in->dtype, &shape);
        if (!data)
            return error_set(err, STATUS_INTERNAL, "no data for the plan's input '%s'", in->name);
        inputs[i].spans = spans[i];
        inputs[i].n_spans = cut(r, in, set->batch, data, pieces, spans[i], &used);
    }
    return context_enqueue(r->context, set->batch, inputs, r->buffer, err);
}

static enum status run_set(struct run *r, const struct case_set *set, bool pieces,
                           struct error *err)
{
    const struct engine_info *info = engine_describe(r->engine);
    const struct engine_profile *profile = engine_profile_for(r->engine, 0, set->batch);
    if (!profile)
        return error_set(err, STATUS_INTERNAL, "no profile for a batch of %u", set->batch);
    memset(r->buffer, 0xff, info->out_bytes_max);
    enum status status = enqueue(r, set, pieces, err);
    if (!status)
        status = context_wait(r->context, NULL, err);
    if (!status && info->n_outputs != set->n_outputs)
        return error_set(err, STATUS_INTERNAL, "the plan has %u outputs, expected %u",
                         info->n_outputs, set->n_outputs);
    for (uint32_t i = 0; i < info->n_outputs && !status; i++) {
        struct shape shape = bound(&info->outputs[i], info->batched, set->batch);
        status = case_set_check(set, info->outputs[i].name, info->outputs[i].dtype, &shape,
                                (char *)r->buffer + profile->out_offset[i], err);
    }
    if (status)
        error_prefix(err, "batch %u%s", set->batch, pieces ? ", again, in pieces" : "");
    return status;
}

enum status engine_run_case(const struct graph_case *c, const struct engine_choice *choice,
                            uint32_t *most, struct error *err)
{
    struct run r = {.device = NULL};
    enum status status = make_plan(&r, c, choice, err);
    *most = force_most();
    if (!status)
        status = load_plan(&r, err);
    for (uint32_t k = 0; k < c->n_sets && !status; k++)
        status = run_set(&r, &c->sets[k], false, err);
    if (!status)
        status = run_set(&r, &c->sets[0], true, err);
    run_deinit(&r);
    return status;
}
