/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request's way through the steps of its pipeline; see pipeline.h. All of it happens on the
 * request's loop: a step that came back gives what others wait for, and those that have all their
 * inputs are submitted at the end of the turn, with whatever else the loop has.
 *
 * A step is a struct inflight that no connection knows. It has its request's flow, priority and
 * deadline, and the request's serial, by which a worker that hangs is reported. A request that
 * fails, or that nobody wants any more, ends when the last of its steps has come back, because
 * workers read its payload until then.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "daemon/admission.h"
#include "daemon/exchange.h"
#include "daemon/exchange_internal.h"
#include "daemon/fits.h"
#include "daemon/loop.h"
#include "daemon/pipeline.h"
#include "daemon/trace.h"

struct run_value {
    const void *data;    /* NULL: not made yet, or on the device alone */
    const void *shelved; /* where it is on the device; NULL: nowhere */
    struct shape shape;  /* once it is made */
    void *room;          /* for a copy; NULL: none was set aside */
    size_t room_bytes;
};

struct run_step {
    struct inflight *kept; /* whose outputs are read where they are */
    uint32_t waits, uses;  /* of inputs that are not made yet; of outputs by steps not done yet */
};

struct run_group {
    uint64_t begin_ns, queue_ns; /* begin 0: none of its steps has begun */
    struct engine_times times;
    uint32_t left;      /* steps */
    uint32_t instances; /* 0: none of its steps has begun */
};

struct pipeline_run {
    struct inflight *request;
    const struct pipeline *pipeline;
    struct inflight *away; /* steps on their way, by next_of_connection */
    uint32_t left;         /* steps that are not done */
    uint32_t batch;        /* the largest that a step was in */
    bool stopped, failed;
    bool ran, failed_in_run; /* a step of it */
    struct run_group *groups;
    struct run_step *steps;
    struct run_value *values;
};

static struct pipeline_run *run_of(const struct inflight *request)
{
    return (void *)request->run->data;
}

/* The bytes of a tensor that a step makes, as far as the request's sizes tell. 0: a run tells. */
static size_t value_bytes(const struct pipeline *p, const struct pipeline_value *value,
                          uint32_t instances, const int64_t *values)
{
    struct shape shape = engine_shape_of(&p->info, &value->axes, &value->shape, instances, values);
    size_t bytes;
    if (value->open)
        return 0;
    return shape_bytes(&shape, value->dtype, &bytes) ? bytes : SIZE_MAX;
}

/* --- memory --- */

static bool room_add(size_t *sum, size_t n, size_t size)
{
    size_t bytes;
    return checked_mul(n, size, &bytes) && checked_round_up(bytes, ADMISSION_ALIGN, &bytes) &&
           checked_add(*sum, bytes, sum);
}

static bool needs_room(const struct pipeline_value *value)
{
    return value->maker != PIPELINE_NONE && value->users;
}

size_t pipeline_run_bytes(const struct pipeline *p, uint32_t instances, const int64_t *values)
{
    size_t sum = 0;
    bool fits = room_add(&sum, 1, sizeof(struct pipeline_run)) &&
                room_add(&sum, p->n_groups, sizeof(struct run_group)) &&
                room_add(&sum, p->n_steps, sizeof(struct run_step)) &&
                room_add(&sum, p->n_values, sizeof(struct run_value));
    for (uint32_t v = 0; fits && v < p->n_values; v++)
        if (needs_room(&p->values[v]))
            fits = room_add(&sum, 1, value_bytes(p, &p->values[v], instances, values));
    return fits ? sum : SIZE_MAX;
}

/* The next part of the slab. */
static void *room_cut(uint8_t **at, size_t size)
{
    void *room = *at;
    *at += (size + ADMISSION_ALIGN - 1) & ~(size_t)(ADMISSION_ALIGN - 1);
    return room;
}

static void *zeros_cut(uint8_t **at, size_t n, size_t size)
{
    return memset(room_cut(at, n * size), 0, n * size);
}

enum status pipeline_run_new(struct connection *c, struct inflight *request, struct error *err)
{
    const struct pipeline *p = request->model->pipeline;
    uint32_t instances = request->item.instances;
    request->run = connection_slab_take(c, pipeline_run_bytes(p, instances, request->values));
    if (!request->run)
        return error_plain(err, CAUSE_OVER_BUDGET);
    uint8_t *at = request->run->data;
    struct pipeline_run *run = zeros_cut(&at, 1, sizeof(*run));
    run->request = request;
    run->pipeline = p;
    run->left = p->n_steps;
    run->groups = zeros_cut(&at, p->n_groups, sizeof(*run->groups));
    run->steps = zeros_cut(&at, p->n_steps, sizeof(*run->steps));
    run->values = zeros_cut(&at, p->n_values, sizeof(*run->values));
    for (uint32_t g = 0; g < p->n_groups; g++)
        run->groups[g].left = p->groups[g].n_steps;
    for (uint32_t s = 0; s < p->n_steps; s++)
        run->steps[s].waits = p->steps[s].waits;
    for (uint32_t v = 0; v < p->n_values; v++) {
        struct run_value *value = &run->values[v];
        if (!needs_room(&p->values[v]) || p->values[v].open)
            continue;
        value->room_bytes = value_bytes(p, &p->values[v], instances, request->values);
        value->room = room_cut(&at, value->room_bytes);
    }
    return STATUS_OK;
}

/* The place of a tensor that has to be copied. NULL: there is no memory. */
static void *room_of(struct loop *loop, struct pipeline_run *run, uint32_t v, size_t bytes)
{
    struct inflight *request = run->request;
    struct connection *c = loop_connection(loop, request->connection);
    if (run->values[v].room && bytes <= run->values[v].room_bytes)
        return run->values[v].room;
    struct slab *slab = c ? connection_slab_take(c, MAX(bytes, (size_t)1)) : NULL;
    if (!slab)
        return NULL;
    slab->next = request->rooms;
    request->rooms = slab;
    return slab->data;
}

/* --- numbers --- */

static void stat_add(_Atomic uint64_t *stat, uint64_t n)
{
    atomic_fetch_add_explicit(stat, n, memory_order_relaxed);
}

static void success_count(struct model *model, const struct run_group *group, uint32_t instances,
                          uint64_t now_ns)
{
    const uint64_t stages[BODY_STAGES] = {
        [BODY_QUEUE] = group->queue_ns,           [BODY_INPUT] = group->times.input_ns,
        [BODY_COMPUTE] = group->times.compute_ns, [BODY_OUTPUT] = group->times.output_ns,
        [BODY_TOTAL] = now_ns - group->begin_ns,
    };
    struct model_stats *stats = &model->stats;
    struct model_batch_stats *by_batch = &stats->by_batch[MIN(instances, model->max_batch)];
    for (uint32_t i = 0; i < BODY_STAGES; i++) {
        stat_add(&stats->stage_ns[i], stages[i]);
        histogram_shared_add(&stats->stage_times[i], histogram_shared_bucket(stages[i]), 1);
    }
    stat_add(&stats->ok, 1);
    stat_add(&stats->instances, instances);
    stat_add(&stats->batches, 1);
    stat_add(&by_batch->count, 1);
    stat_add(&by_batch->input_ns, group->times.input_ns);
    stat_add(&by_batch->compute_ns, group->times.compute_ns);
    stat_add(&by_batch->output_ns, group->times.output_ns);
    atomic_store_explicit(&stats->last_ms, clock_wall_ms(), memory_order_relaxed);
}

static struct model *group_model(const struct pipeline_run *run, uint32_t g)
{
    return g ? run->pipeline->groups[g].model : run->request->model;
}

static void group_add(struct pipeline_run *run, uint32_t g, const struct inflight *step,
                      uint64_t now_ns)
{
    const struct engine_times *times = &step->batch->times;
    struct run_group *group = &run->groups[g];
    group->queue_ns += step->queue_ns;
    group->times.input_ns += times->input_ns;
    group->times.compute_ns += times->compute_ns;
    group->times.output_ns += times->output_ns;
    if (--group->left == 0)
        success_count(group_model(run, g), group, group->instances, now_ns);
}

/* The request as a whole is counted where it is answered, unless a step of it failed in a run. */
static void failure_count(struct pipeline_run *run, const struct inflight *step, bool in_run)
{
    uint64_t now_ns = clock_now_ns();
    if (!in_run)
        model_unrun(step->model, step->cause);
    for (uint32_t g = run->pipeline->steps[step->step].group; g != PIPELINE_NONE;
         g = run->pipeline->groups[g].parent) {
        struct model *model = group_model(run, g);
        if (in_run) {
            stat_add(&model->stats.failed, 1);
            stat_add(&model->stats.failed_ns, now_ns - run->groups[g].begin_ns);
        } else if (g) {
            model_unrun(model, step->cause);
        }
    }
}

/* --- the list of steps on their way --- */

static void away_add(struct pipeline_run *run, struct inflight *step)
{
    step->prev_of_connection = NULL;
    step->next_of_connection = run->away;
    if (run->away)
        run->away->prev_of_connection = step;
    run->away = step;
}

static void away_remove(struct pipeline_run *run, struct inflight *step)
{
    if (step->prev_of_connection)
        step->prev_of_connection->next_of_connection = step->next_of_connection;
    else
        run->away = step->next_of_connection;
    if (step->next_of_connection)
        step->next_of_connection->prev_of_connection = step->prev_of_connection;
}

/* --- a failure --- */

/* Takes back what waits. What was not submitted yet, or runs, comes back by itself. */
static void away_cancel(struct loop *loop, struct pipeline_run *run)
{
    dispatch_cancel_all(loop->shared->dispatch, run->away);
    for (struct inflight *step = run->away, *next; step; step = next) {
        next = step->next_of_connection;
        if (!step->submitted) {
            step->connection = 0; /* the loop brings it back instead of submitting it */
            step->cause = CAUSE_CANCELLED;
        } else if (step->cancelled) {
            away_remove(run, step);
            model_unrun(step->model, CAUSE_CANCELLED);
            loop_inflight_give(loop, step);
        }
    }
}

/* Says in which step it went wrong; what does not fit is cut. */
static void why_put(struct inflight *request, const char *step, const char *why)
{
    char text[2 * DISPATCH_WHY];
    snprintf(text, sizeof(text), "%s: %s", step, why);
    snprintf(request->why, sizeof(request->why), "%.*s", (int)sizeof(request->why) - 1, text);
}

/* Why a step that has come back, or never went, failed. */
static void run_fail(struct loop *loop, struct pipeline_run *run, const struct inflight *step)
{
    struct inflight *request = run->request;
    run->failed = true;
    run->failed_in_run = step->batch != NULL;
    run->ran |= run->failed_in_run;
    request->cause = step->cause;
    request->item.late_ns = step->item.late_ns;
    why_put(request, run->pipeline->steps[step->step].name,
            step->batch || step->told ? step->why : cause_row(step->cause)->sentence);
    failure_count(run, step, step->batch != NULL);
    away_cancel(loop, run);
}

/* --- a step --- */

/* The step's own time bounds the request's. */
static uint64_t deadline_of(const struct inflight *request, const struct model *model,
                            uint64_t now_ns)
{
    uint64_t own_ns = atomic_load_explicit(&model->timeout_ns, memory_order_relaxed), until_ns;
    if (!own_ns || __builtin_add_overflow(now_ns, own_ns, &until_ns))
        return request->item.deadline_ns;
    return MIN(request->item.deadline_ns, until_ns);
}

static void step_trace(struct loop *loop, struct inflight *step, const char *name)
{
    bool dropped = false;
    step->trace = trace_begin_step(loop->shared->traces, step->whole->trace, &dropped);
    if (dropped)
        counter_add(&loop->counters, COUNTER_TRACES_DROPPED, 1);
    if (!step->trace)
        return;
    snprintf(step->trace->model, sizeof(step->trace->model), "%s", step->model->name);
    snprintf(step->trace->version, sizeof(step->trace->version), "%s", step->model->version);
    snprintf(step->trace->id, sizeof(step->trace->id), "%s", name);
}

static void step_fill(struct inflight *step, const struct pipeline_run *run, uint32_t s,
                      uint64_t now_ns)
{
    const struct pipeline_step *what = &run->pipeline->steps[s];
    struct inflight *request = run->request;
    step->whole = request;
    step->step = s;
    step->connection = request->connection;
    step->serial = request->serial;
    step->model = model_ref(what->model);
    step->item.priority = request->item.priority;
    step->asker = request->asker;
    step->item.flow = request->item.flow;
    step->item.deadline_ns = deadline_of(request, what->model, now_ns);
    step->item.admitted = true;
    step->use_bytes = 0;
    for (uint32_t k = 0; k < what->model->info->n_inputs; k++) {
        const struct run_value *value = &run->values[what->inputs[k]];
        size_t bytes = 0;
        bool sized UNUSED =
            shape_bytes(&value->shape, run->pipeline->values[what->inputs[k]].dtype, &bytes);
        assert(sized); /* it has been made, or has come */
        step->spans[k] = (struct engine_span){value->data, bytes};
        step->shelved[k] = value->shelved;
        step->use_bytes += bytes;
    }
    step->shelve = what->shelve;
    step->unread = what->unread;
}

/* Finds out what the step asks of its model, as admission does of a request. */
static enum status step_admit(struct loop *loop, struct inflight *step,
                              const struct pipeline_run *run, struct error *err)
{
    const struct pipeline_step *what = &run->pipeline->steps[step->step];
    struct admission_sizes sizes;
    struct shape shapes[MESSAGE_MAX_TENSORS];
    for (uint32_t k = 0; k < what->model->info->n_inputs; k++)
        shapes[k] = run->values[what->inputs[k]].shape;
    TRY(admission_sizes_check(step->model->info, step->model->max_instances, shapes, &sizes, err));
    step->item.instances = sizes.instances;
    step->point = sizes.point;
    memcpy(step->values, sizes.values, sizeof(step->values));
    if (sizes.fit == ENGINE_FIT_NEW)
        return exchange_shape_ask(loop, step, err);
    return engine_masks_check(step->model->info, step->point, step->values, step->item.instances,
                              step->spans, err);
}

static void step_groups_begin(struct pipeline_run *run, const struct inflight *step,
                              uint64_t now_ns)
{
    const struct pipeline *p = run->pipeline;
    for (uint32_t g = p->steps[step->step].group; g != PIPELINE_NONE; g = p->groups[g].parent) {
        struct run_group *group = &run->groups[g];
        if (!group->begin_ns)
            group->begin_ns = now_ns;
        if (!group->instances)
            group->instances = !g                                   ? run->request->item.instances
                               : group_model(run, g)->info->batched ? step->item.instances
                                                                    : 1;
    }
}

static void step_begin(struct loop *loop, struct pipeline_run *run, uint32_t s)
{
    const struct pipeline *p = run->pipeline;
    struct inflight *step = loop_inflight_take(loop);
    uint64_t now_ns = clock_now_ns();
    struct error err;
    if (!step) {
        run->failed = true;
        run->request->cause = CAUSE_OUT_OF_MEMORY;
        why_put(run->request, p->steps[s].name, "no memory");
        away_cancel(loop, run);
        return;
    }
    step_fill(step, run, s, now_ns);
    enum status status = step_admit(loop, step, run, &err);
    step_groups_begin(run, step, now_ns);
    if (status) {
        exchange_tell(step, &err);
        run_fail(loop, run, step);
        loop_inflight_give(loop, step);
        return;
    }
    if (run->request->trace)
        step_trace(loop, step, p->steps[s].name);
    away_add(run, step);
    if (step->parked) {
        exchange_shape_park(loop, step);
    } else {
        inflight_key(step);
        loop_submit(loop, step);
    }
}

/* Begins all steps that wait for nothing more. `maker` is the one that is done; none: these are the
 * first. */
static void steps_begin(struct loop *loop, struct pipeline_run *run, uint32_t maker)
{
    const struct pipeline *p = run->pipeline;
    for (uint32_t s = 0; s < p->n_steps && !run->failed; s++) {
        bool due = maker == PIPELINE_NONE && !run->steps[s].waits;
        for (uint32_t k = 0; maker != PIPELINE_NONE && k < p->steps[s].model->info->n_inputs; k++)
            if (p->values[p->steps[s].inputs[k]].maker == maker)
                due = --run->steps[s].waits == 0;
        if (due)
            step_begin(loop, run, s);
    }
}

/* The step's inputs are not read any more. */
static void inputs_release(struct loop *loop, struct pipeline_run *run, uint32_t s)
{
    const struct pipeline *p = run->pipeline;
    for (uint32_t k = 0; k < p->steps[s].model->info->n_inputs; k++) {
        uint32_t maker = p->values[p->steps[s].inputs[k]].maker;
        if (maker != PIPELINE_NONE && --run->steps[maker].uses == 0 && run->steps[maker].kept)
            loop_hold(loop, STEAL(run->steps[maker].kept));
    }
}

/* Puts the step's outputs where others find them. *kept: they are where they were made, and the
 * step is kept. */
static enum status outputs_place(struct loop *loop, struct pipeline_run *run, struct inflight *step,
                                 bool *kept, struct error *err)
{
    const struct pipeline *p = run->pipeline;
    const struct pipeline_step *what = &p->steps[step->step];
    uint32_t uses = 0;
    for (uint32_t k = 0; k < what->model->info->n_outputs; k++)
        if (what->outputs[k] != PIPELINE_NONE)
            uses += p->values[what->outputs[k]].users;
    run->steps[step->step].uses = uses;
    bool keep = uses && dispatch_keep(step);
    for (uint32_t k = 0; k < what->model->info->n_outputs; k++) {
        uint32_t v = what->outputs[k];
        if (v == PIPELINE_NONE)
            continue;
        const void *made = inflight_output(step, k);
        struct run_value *value = &run->values[v];
        size_t bytes = 0;
        value->shape = inflight_output_shape(step, k);
        bool sized UNUSED = shape_bytes(&value->shape, p->values[v].dtype, &bytes);
        assert(sized);
        void *room = keep ? NULL : room_of(loop, run, v, bytes);
        if (!keep && !room)
            return error_plain(err, CAUSE_OVER_BUDGET);
        assert(keep || made); /* what is on a shelf alone is kept: see dispatch_keep */
        if (!keep && bytes)
            memcpy(room, made, bytes);
        value->data = keep ? made : room;
        value->shelved = keep ? inflight_output_shelved(step, k) : NULL;
    }
    if (keep)
        run->steps[step->step].kept = step;
    *kept = keep;
    return STATUS_OK;
}

/* True: the step is kept. */
static bool step_done(struct loop *loop, struct pipeline_run *run, struct inflight *step)
{
    const struct pipeline *p = run->pipeline;
    uint64_t now_ns = clock_now_ns();
    bool kept = false;
    struct error err;
    run->ran = true;
    if (outputs_place(loop, run, step, &kept, &err)) {
        exchange_tell(step, &err);
        run_fail(loop, run, step);
        return false;
    }
    run->batch = MAX(run->batch, step->batch->instances);
    run->left--;
    for (uint32_t g = p->steps[step->step].group; g != PIPELINE_NONE; g = p->groups[g].parent)
        group_add(run, g, step, now_ns);
    inputs_release(loop, run, step->step);
    steps_begin(loop, run, step->step);
    return kept;
}

/* --- the whole --- */

/* Whether a reply carries the outputs, some of whose sizes are only known now. */
static enum status outputs_fit(const struct loop *loop, const struct pipeline_run *run,
                               struct error *err)
{
    const struct pipeline *p = run->pipeline;
    uint64_t most = fits_reply_bytes(&p->info, &loop->table->limits), sum = 0;
    for (uint32_t i = 0; i < run->request->n_outputs; i++) {
        uint32_t v = p->outputs[run->request->output[i]];
        size_t bytes = 0;
        bool sized UNUSED = shape_bytes(&run->values[v].shape, p->values[v].dtype, &bytes);
        assert(sized);
        sum += bytes;
    }
    if (sum <= most)
        return STATUS_OK;
    return error_cause(err, CAUSE_TAIL_OVER_LIMIT,
                       "the outputs have %" PRIu64 " bytes; a reply carries %" PRIu64
                       " (limits.output_bytes)",
                       sum, most);
}

static void kept_release(struct loop *loop, struct pipeline_run *run)
{
    for (uint32_t s = 0; s < run->pipeline->n_steps; s++)
        if (run->steps[s].kept)
            loop_hold(loop, STEAL(run->steps[s].kept));
}

void pipeline_run_release(struct loop *loop, struct inflight *request)
{
    kept_release(loop, run_of(request));
    loop_hold(loop, request);
}

static void run_end(struct loop *loop, struct pipeline_run *run)
{
    struct inflight *request = run->request;
    struct error err;
    if (!run->failed && !run->stopped && outputs_fit(loop, run, &err)) {
        run->failed = true;
        exchange_tell(request, &err);
    }
    if (run->stopped)
        pipeline_run_release(loop, request);
    else
        exchange_result(loop, request); /* which releases it */
}

static void run_end_if_over(struct loop *loop, struct pipeline_run *run)
{
    if (!run->away && (run->stopped || run->failed || !run->left))
        run_end(loop, run);
}

void pipeline_run_begin(struct loop *loop, struct inflight *request)
{
    struct pipeline_run *run = run_of(request);
    const struct engine_info *info = &run->pipeline->info;
    for (uint32_t k = 0; k < info->n_inputs; k++) {
        run->values[k].data = request->spans[k].data;
        run->values[k].shape = engine_shape_of(info, &info->input_axes[k], &info->inputs[k].shape,
                                               request->item.instances, request->values);
    }
    request->cause = CAUSE_OK;
    request->item.arrival_ns = clock_now_ns();
    request->item.late_ns = 0;
    steps_begin(loop, run, PIPELINE_NONE);
    run_end_if_over(loop, run);
}

void pipeline_run_step_end(struct loop *loop, struct inflight *step)
{
    struct pipeline_run *run = run_of(step->whole);
    bool kept = false;
    away_remove(run, step);
    if (step->trace)
        trace_answered(step->trace, step);
    if (step->cause && (run->stopped || run->failed) && !step->batch)
        model_unrun(step->model, step->cause);
    else if (step->cause && !run->stopped && !run->failed)
        run_fail(loop, run, step);
    else if (!run->stopped && !run->failed)
        kept = step_done(loop, run, step);
    if (!kept)
        loop_hold(loop, step);
    run_end_if_over(loop, run);
}

bool pipeline_run_stop(struct loop *loop, struct inflight *request)
{
    struct pipeline_run *run = run_of(request);
    if (!run->stopped)
        away_cancel(loop, run);
    run->stopped = true;
    if (run->away)
        return false;
    kept_release(loop, run);
    return true;
}

bool pipeline_run_ran(const struct inflight *request)
{
    return run_of(request)->ran;
}

const void *pipeline_run_output(const struct inflight *request, uint32_t output)
{
    const struct pipeline_run *run = run_of(request);
    return run->values[run->pipeline->outputs[output]].data;
}

struct shape pipeline_run_shape(const struct inflight *request, uint32_t output)
{
    const struct pipeline_run *run = run_of(request);
    return run->values[run->pipeline->outputs[output]].shape;
}

bool pipeline_run_failed(const struct inflight *request)
{
    return run_of(request)->failed_in_run;
}

void pipeline_run_timing(const struct inflight *request, struct response_timing *out)
{
    const struct pipeline_run *run = run_of(request);
    const struct run_group *all = &run->groups[0];
    *out = (struct response_timing){all->queue_ns, all->times.input_ns, all->times.compute_ns,
                                    all->times.output_ns, run->batch};
}
