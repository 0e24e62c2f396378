/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Contexts: each has a lane of its own, and a buffer that all its outputs are written to. Inputs
 * are bound as one span each. Nothing is allocated between two batches.
 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/clock.h"
#include "engine/ir/ops.h"
#include "engine/library/internal.h"
#include "engine/runtime/layer_times.h"

struct bound {
    struct engine_span span;
    uint32_t instances; /* 0: any number, of a tensor without elements or one that all share */
    bool set;
    struct shape shape; /* as it was given; rank 0 if it was not */
};

struct target {
    void *data; /* NULL: nobody wants a copy */
    size_t room;
};

struct inferd_engine_context {
    struct inferd_engine_plan *plan;
    const struct engine_info *info;
    struct lane *lane;
    struct context *ctx;
    char *output;
    struct bound *bound;         /* n_inputs */
    struct engine_input *inputs; /* n_inputs, each the span of `bound` */
    struct target *targets;      /* n_outputs */
    uint32_t running, last;      /* instances of the batch that runs, and of the one before; or 0 */
    uint32_t point;              /* of that batch */
    struct engine_request request; /* of that batch */
    inferd_engine_profiler profiler;
    void *profiler_user;
};

/* --- life --- */

static void drop(struct inferd_engine_context *c)
{
    context_free(c->ctx);
    lane_free(c->lane);
    if (c->plan)
        engine_buffer_free(c->plan->device->device, c->output);
    inferd_engine_plan_free(c->plan);
    free(c->bound);
    free(c->inputs);
    free(c->targets);
    free(c);
}

static void context_cleanup(struct inferd_engine_context **at)
{
    if (*at)
        drop(*at);
}

static bool take_lists(struct inferd_engine_context *c)
{
    uint32_t n_in = c->info->n_inputs, n_out = c->info->n_outputs;
    c->bound = calloc(MAX(n_in, 1U), sizeof(*c->bound));
    c->inputs = calloc(MAX(n_in, 1U), sizeof(*c->inputs));
    c->targets = calloc(MAX(n_out, 1U), sizeof(*c->targets));
    if (!c->bound || !c->inputs || !c->targets)
        return false;
    for (uint32_t i = 0; i < n_in; i++)
        c->inputs[i] = (struct engine_input){&c->bound[i].span, 1};
    return true;
}

static enum status make_ready(struct inferd_engine_context *c,
                              const struct inferd_engine_context_options *options,
                              struct error *err)
{
    struct device *device = c->plan->device->device;
    const struct context_options wanted = {.batch = options->batch,
                                           .no_capture = options->no_capture};
    uint64_t begin = clock_now_ns();
    void *output;
    TRY(lane_new(device, &c->lane, err));
    TRY(context_new_with(c->plan->engine, c->lane, &wanted, &c->ctx, err));
    bool one = options->batch && c->info->n_points <= 1;
    const struct engine_profile *p =
        one ? engine_profile_for(c->plan->engine, 0, options->batch) : NULL;
    size_t bytes = p ? p->out_bytes : c->info->out_bytes_max;
    TRY(engine_buffer_alloc(device, MAX(bytes, (size_t)BACKEND_ALIGN), "output", &output, err));
    c->output = output;
    log_write(&c->plan->device->log, LOG_INFO, "plan %s: a context was made ready in %.1f ms",
              c->info->name, (double)(clock_now_ns() - begin) / NS_PER_MS);
    return STATUS_OK;
}

static enum status new_context(struct inferd_engine_plan *plan,
                               const struct inferd_engine_context_options *theirs,
                               struct inferd_engine_context **out, struct error *err)
{
    struct inferd_engine_context_options options;
    TRY(library_read(&options, sizeof(options), theirs, err));
    CLEANUP(context_cleanup) struct inferd_engine_context *c = calloc(1, sizeof(*c));
    if (!c)
        return error_no_memory(err, "a context");
    c->plan = library_plan_ref(plan);
    c->info = engine_describe(plan->engine);
    if (!take_lists(c))
        return error_no_memory(err, "a context");
    TRY(make_ready(c, &options, err));
    *out = STEAL(c);
    return STATUS_OK;
}

enum inferd_engine_status inferd_engine_context_new(
    struct inferd_engine_plan *plan, const struct inferd_engine_context_options *options,
    struct inferd_engine_context **out, struct inferd_engine_error *err)
{
    struct error why;
    return library_tell(new_context(plan, options, out, &why), &why, err);
}

void inferd_engine_context_free(struct inferd_engine_context *ctx)
{
    if (ctx)
        drop(ctx);
}

/* --- bindings --- */

/* Compares a caller's shape with the plan's. */
static enum status check_shape(const struct engine_binding *b, uint32_t rank, const int64_t *dim,
                               struct error *err)
{
    struct shape given = {.rank = rank > SHAPE_MAX_RANK ? 0 : rank};
    char text[SHAPE_TEXT_MAX], wanted[SHAPE_TEXT_MAX];
    bool fits = rank == b->shape.rank;
    memcpy(given.dim, dim, given.rank * sizeof(*dim));
    for (uint32_t i = 0; i < given.rank && fits; i++)
        fits = dim[i] >= 0 && (b->shape.dim[i] < 0 || dim[i] == b->shape.dim[i]);
    if (fits)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID_ARGUMENT, "input '%s': shape %s, expected %s", b->name,
                     shape_format(&given, text), shape_format(&b->shape, wanted));
}

/* Takes an input whose shape was given: its bytes, and how many instances it has. */
static enum status take_shape(const struct inferd_engine_context *c, uint32_t index, size_t bytes,
                              const int64_t *dim, struct bound *out, struct error *err)
{
    const struct engine_binding *b = &c->info->inputs[index];
    const struct engine_axes *axes = engine_input_axes(c->info, index);
    struct shape shape = {.rank = b->shape.rank};
    size_t needed;
    memcpy(shape.dim, dim, shape.rank * sizeof(*dim));
    if (!shape_bytes(&shape, b->dtype, &needed) || needed != bytes)
        return error_set(err, STATUS_INVALID_ARGUMENT, "input '%s': %zu bytes, its shape has %zu",
                         b->name, bytes, needed);
    out->shape = shape;
    out->instances = 1;
    if (c->info->ragged) /* tokens are counted once all inputs are there */
        return STATUS_OK;
    int64_t n = c->info->batched && !(axes && axes->shared) ? dim[axes ? axes->batch : 0] : 0;
    if (n < 0 || n > c->info->max_batch || (!n && engine_count_of(c->info, axes, 2) == 2))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input '%s': %lld instances, the plan takes 1 to %u", b->name,
                         (long long)n, c->info->max_batch);
    out->instances = c->info->batched ? (uint32_t)n : 1;
    return STATUS_OK;
}

static bool is_free(const struct inferd_engine_context *c, uint32_t index)
{
    const struct engine_axes *axes = engine_input_axes(c->info, index);
    for (uint32_t d = 0; axes && d < c->info->inputs[index].shape.rank; d++)
        if (axes->free[d])
            return true;
    return false;
}

/* *out: how many instances that is. */
static enum status count_instances(const struct inferd_engine_context *c, uint32_t index,
                                   size_t bytes, int64_t first, uint32_t *out, struct error *err)
{
    size_t n = 1;
    bool counts = engine_count_of(c->info, engine_input_axes(c->info, index), 2) == 2;
    const struct engine_binding *b = &c->info->inputs[index];
    if (counts && first >= 0)
        n = (size_t)first;
    else if (counts)
        n = b->instance_bytes ? bytes / b->instance_bytes : 0;
    bool any = counts && first < 0 && !b->instance_bytes;
    if ((!n && !any) || n > c->info->max_batch)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input '%s': %zu instances, the plan takes 1 to %u", b->name, n,
                         c->info->max_batch);
    if (n * b->instance_bytes != bytes)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input '%s': %zu bytes, expected %zu for each of %zu instances", b->name,
                         bytes, b->instance_bytes, n);
    *out = counts ? (uint32_t)n : c->info->batched ? 0 : 1;
    return STATUS_OK;
}

static enum status bind_input(struct inferd_engine_context *c, uint32_t index, const void *data,
                              size_t bytes, uint32_t rank, const int64_t *dim, struct error *err)
{
    if (index >= c->info->n_inputs)
        return error_set(err, STATUS_NOT_FOUND, "input %u: the plan has %u, counted from 0", index,
                         c->info->n_inputs);
    if (c->running)
        return error_set(err, STATUS_FAILED_PRECONDITION, "a batch runs: wait for it first");
    const struct engine_binding *b = &c->info->inputs[index];
    struct bound now = {.span = {data, bytes}, .set = true};
    if (!data && bytes)
        return error_set(err, STATUS_INVALID_ARGUMENT, "input '%s': no data", b->name);
    if (dim)
        TRY(check_shape(b, rank, dim, err));
    if (is_free(c, index) && !dim)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input '%s' has dimensions that are not fixed: bind it with its shape",
                         b->name);
    if (dim && (is_free(c, index) || !engine_counts_first(c->info)))
        TRY(take_shape(c, index, bytes, dim, &now, err));
    else
        TRY(count_instances(c, index, bytes, dim && b->shape.rank ? dim[0] : -1, &now.instances,
                            err));
    c->bound[index] = now;
    return STATUS_OK;
}

enum inferd_engine_status inferd_engine_bind_input(struct inferd_engine_context *ctx,
                                                   uint32_t index, const void *data, size_t bytes,
                                                   uint32_t rank, const int64_t *dim,
                                                   struct inferd_engine_error *err)
{
    struct error why;
    return library_tell(bind_input(ctx, index, data, bytes, rank, dim, &why), &why, err);
}

static enum status check_output(const struct inferd_engine_context *c, uint32_t index,
                                struct error *err)
{
    if (index < c->info->n_outputs)
        return STATUS_OK;
    return error_set(err, STATUS_NOT_FOUND, "output %u: the plan has %u, counted from 0", index,
                     c->info->n_outputs);
}

static enum status bind_output(struct inferd_engine_context *c, uint32_t index, void *data,
                               size_t bytes, struct error *err)
{
    TRY(check_output(c, index, err));
    if (c->running)
        return error_set(err, STATUS_FAILED_PRECONDITION, "a batch runs: wait for it first");
    c->targets[index] = (struct target){data, bytes};
    return STATUS_OK;
}

enum inferd_engine_status inferd_engine_bind_output(struct inferd_engine_context *ctx,
                                                    uint32_t index, void *data, size_t bytes,
                                                    struct inferd_engine_error *err)
{
    struct error why;
    return library_tell(bind_output(ctx, index, data, bytes, &why), &why, err);
}

/* --- batches --- */

/* *out: the instances that all inputs are bound to. */
static enum status agree(const struct inferd_engine_context *c, uint32_t *out, struct error *err)
{
    uint32_t n = 0, whose = 0;
    for (uint32_t i = 0; i < c->info->n_inputs; i++) {
        const struct bound *b = &c->bound[i];
        if (!b->set)
            return error_set(err, STATUS_FAILED_PRECONDITION, "input '%s' is not bound",
                             c->info->inputs[i].name);
        if (n && b->instances && b->instances != n)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "input '%s' has %u instances, input '%s' has %u",
                             c->info->inputs[i].name, b->instances, c->info->inputs[whose].name, n);
        if (!n && b->instances) {
            n = b->instances;
            whose = i;
        }
    }
    *out = MAX(n, 1U);
    return STATUS_OK;
}

/* Takes the values of free dimensions from an input. */
static enum status take_values(const struct inferd_engine_context *c, uint32_t index,
                               int64_t *values, struct error *err)
{
    const struct engine_axes *axes = engine_input_axes(c->info, index);
    const struct shape *shape = &c->bound[index].shape;
    for (uint32_t d = 0; axes && d < shape->rank; d++) {
        int64_t *known = axes->free[d] ? &values[axes->free[d] - 1] : NULL;
        if (known && *known && *known != shape->dim[d])
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "input '%s': dimension %u ('%s') is %lld, but %lld elsewhere",
                             c->info->inputs[index].name, d, c->info->free[axes->free[d] - 1].name,
                             (long long)shape->dim[d], (long long)*known);
        if (known)
            *known = shape->dim[d];
    }
    return STATUS_OK;
}

/* *point: the one that runs these sizes. */
static enum status choose_point(const struct inferd_engine_context *c, const int64_t *values,
                                uint32_t *point, struct error *err)
{
    *point = 0;
    if (!c->info->n_free || engine_fit_of(c->info, values, point) != ENGINE_FIT_NEW)
        return STATUS_OK;
    return error_set(err, STATUS_FAILED_PRECONDITION,
                     "no profile of the plan is for %s=%lld%s: build one by --profiles",
                     c->info->free[0].name, (long long)values[0],
                     c->info->n_free > 1 ? " and the others" : "");
}

static struct shape output_shape(const struct inferd_engine_context *c, uint32_t i)
{
    return engine_shape_of(c->info, engine_output_axes(c->info, i),
                           &engine_point_outputs(c->info, c->point)[i].shape, c->request.instances,
                           c->request.values);
}

static size_t output_bytes(const struct inferd_engine_context *c, uint32_t i)
{
    struct shape shape = output_shape(c, i);
    size_t bytes;
    return shape_bytes(&shape, c->info->outputs[i].dtype, &bytes) ? bytes : 0; /* it has a place */
}

static enum status check_room(const struct inferd_engine_context *c, struct error *err)
{
    for (uint32_t i = 0; i < c->info->n_outputs; i++)
        if (c->targets[i].data && c->targets[i].room < output_bytes(c, i))
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "output '%s': bound to %zu bytes, the batch of %u has %zu",
                             c->info->outputs[i].name, c->targets[i].room, c->request.instances,
                             output_bytes(c, i));
    return STATUS_OK;
}

/* What only numbers tell: whether masks hide padding, and how many tokens there are. */
static enum status check_masks(struct inferd_engine_context *c, struct error *err)
{
    struct engine_span spans[IR_MAX_IO];
    for (uint32_t i = 0; i < c->info->n_inputs; i++)
        spans[i] = c->inputs[i].spans[0];
    if (c->info->ragged)
        return engine_ragged_instances(c->info, c->request.values, spans, &c->request.instances,
                                       err);
    return engine_masks_check(c->info, c->point, c->request.values, c->request.instances, spans,
                              err);
}

static enum status enqueue(struct inferd_engine_context *c, struct error *err)
{
    uint32_t n = 1;
    if (c->running)
        return error_set(err, STATUS_FAILED_PRECONDITION, "a batch runs: wait for it first");
    TRY(agree(c, &n, err));
    struct engine_request request = {.instances = n};
    for (uint32_t i = 0; c->info->n_free && i < c->info->n_inputs; i++)
        TRY(take_values(c, i, request.values, err));
    c->last = 0;
    TRY(choose_point(c, request.values, &c->point, err));
    c->request = request;
    TRY(check_masks(c, err));
    TRY(check_room(c, err));
    const struct engine_batch batch = {.point = c->point,
                                       .instances = c->request.instances,
                                       .requests = &c->request,
                                       .n_requests = 1};
    TRY(context_enqueue_batch(c->ctx, &batch, c->inputs, c->output, err));
    c->running = c->request.instances;
    return STATUS_OK;
}

enum inferd_engine_status inferd_engine_enqueue(struct inferd_engine_context *ctx,
                                                struct inferd_engine_error *err)
{
    struct error why;
    return library_tell(enqueue(ctx, &why), &why, err);
}

enum inferd_engine_status inferd_engine_wait_inputs(struct inferd_engine_context *ctx,
                                                    struct inferd_engine_error *err)
{
    struct error why;
    return library_tell(context_wait_inputs(ctx->ctx, &why), &why, err);
}

/* Where output `i` of a batch of `n` instances lies. */
static const char *output_at(const struct inferd_engine_context *c, uint32_t n, uint32_t i)
{
    return c->output + engine_profile_for(c->plan->engine, c->point, n)->out_offset[i];
}

static void report_layers(const struct inferd_engine_context *c, uint32_t batch)
{
    uint32_t n = 0;
    const struct layer_time *times = context_layer_times(c->ctx, c->point, batch, &n);
    for (uint32_t i = 0; i < n; i++) {
        const struct ir_node *node = times[i].node;
        struct inferd_engine_layer layer = inferd_engine_layer_init();
        layer.name = node->name;
        layer.op = ir_op_name(node->op);
        layer.tactic = node->tactic->name;
        layer.time_ns = times[i].last_ns;
        c->profiler(c->profiler_user, i, &layer);
    }
}

static enum status wait(struct inferd_engine_context *c, struct inferd_engine_times *theirs,
                        struct error *err)
{
    struct engine_times times;
    uint32_t n = c->running;
    c->running = 0;
    TRY(context_wait(c->ctx, theirs ? &times : NULL, err));
    c->last = n;
    for (uint32_t i = 0; i < c->info->n_outputs; i++)
        if (c->targets[i].data)
            memcpy(c->targets[i].data, output_at(c, n, i), output_bytes(c, i));
    if (c->profiler)
        report_layers(c, n);
    if (!theirs)
        return STATUS_OK;
    struct inferd_engine_times own = {
        .input_ns = times.input_ns, .compute_ns = times.compute_ns, .output_ns = times.output_ns};
    return library_write(theirs, &own, sizeof(own), err);
}

enum inferd_engine_status inferd_engine_wait(struct inferd_engine_context *ctx,
                                             struct inferd_engine_times *times,
                                             struct inferd_engine_error *err)
{
    struct error why;
    return library_tell(wait(ctx, times, &why), &why, err);
}

static enum status view_output(const struct inferd_engine_context *c, uint32_t index,
                               struct inferd_engine_view *out, struct error *err)
{
    TRY(check_output(c, index, err));
    if (!c->last)
        return error_set(err, STATUS_FAILED_PRECONDITION, "output: no batch has ended");
    const struct engine_binding *b = &c->info->outputs[index];
    struct inferd_engine_view own = {
        .data = output_at(c, c->last, index),
        .bytes = output_bytes(c, index),
        .dtype = (enum inferd_engine_dtype)b->dtype,
    };
    struct shape shape = output_shape(c, index);
    library_shape(&shape, &own.rank, own.dim);
    return library_write(out, &own, sizeof(own), err);
}

enum inferd_engine_status inferd_engine_output(const struct inferd_engine_context *ctx,
                                               uint32_t index, struct inferd_engine_view *out,
                                               struct inferd_engine_error *err)
{
    struct error why;
    return library_tell(view_output(ctx, index, out, &why), &why, err);
}

static enum status profile_layers(struct inferd_engine_context *c, inferd_engine_profiler profiler,
                                  void *user, struct error *err)
{
    if (c->running)
        return error_set(err, STATUS_FAILED_PRECONDITION, "a batch runs: wait for it first");
    TRY(context_layer_times_start(c->ctx, err));
    c->profiler = profiler;
    c->profiler_user = user;
    return STATUS_OK;
}

enum inferd_engine_status inferd_engine_profile_layers(struct inferd_engine_context *ctx,
                                                       inferd_engine_profiler profiler, void *user,
                                                       struct inferd_engine_error *err)
{
    struct error why;
    return library_tell(profile_layers(ctx, profiler, user, &why), &why, err);
}
