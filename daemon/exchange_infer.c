/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inferences, see exchange.h. Small payloads are copied from the staging buffer into a slab, each
 * aligned, so that a lone request can be read in place. Payloads of a large frame stay in the slab
 * that they were read into. Typed contents are unpacked into a slab; those of a large frame in
 * slices (exchange_unpack.c), because they can be millions of elements. What lies in regions of
 * shared memory is read in such slices, too.
 */
#include "daemon/exchange.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "daemon/admission.h"
#include "daemon/classify.h"
#include "daemon/exchange_internal.h"
#include "daemon/loop.h"
#include "daemon/pipeline.h"
#include "daemon/regions.h"
#include "daemon/trace.h"

/* --- inference --- */

/* The model's entry if the model is ready. NULL: the request has been answered with the reason. */
static const struct table_entry *model_find(struct connection *c, const struct request *request)
{
    const struct table_entry *entry = exchange_model(c, request);
    struct error err;
    if (!entry || entry->state == MODEL_READY)
        return entry;
    error_cause(&err, CAUSE_MODEL_NOT_READY, "model '%s' version '%s' is %s%s%s", entry->name,
                entry->version, model_state_name(entry->state), *entry->reason ? ": " : "",
                entry->reason);
    exchange_error(c, request->id, &err);
    return NULL;
}

static bool is_typed(const struct request *request)
{
    bool typed = false;
    for (uint32_t k = 0; k < request->n_inputs; k++)
        typed |= request->inputs[k].typed;
    return typed;
}

static bool is_in_region(const struct request *request)
{
    bool any = false;
    for (uint32_t k = 0; k < request->n_inputs; k++)
        any |= request->inputs[k].region.sized;
    return any;
}

/* Copies or unpacks the payloads into a slab, one behind the other. */
static enum status payload_copy(const struct request *request, const struct model *model,
                                const struct admission *admission, struct inflight *inflight,
                                struct error *err)
{
    uint8_t *to = inflight->slab->data;
    for (uint32_t k = 0; k < model->info->n_inputs; k++) {
        const struct message_tensor *t = &request->inputs[admission->input[k]];
        size_t size = t->size;
        if (t->typed) {
            if (!shape_bytes(&t->shape, t->dtype, &size))
                return error_set(err, STATUS_INVALID_ARGUMENT, "input too large");
            TRY(message_unpack(t, to, size, err));
        } else if (size) {
            memcpy(to, t->data, size);
        }
        inflight->spans[k] = (struct engine_span){to, size};
        to += (size + ADMISSION_ALIGN - 1) & ~(size_t)(ADMISSION_ALIGN - 1);
    }
    return STATUS_OK;
}

/* Puts the payloads where the workers will read them. Takes `*frame` if they stay there. Typed
 * contents that have a frame of their own, and what lies in regions, are left to be unpacked. */
static enum status payload_place(struct connection *c, const struct request *request,
                                 const struct model *model, const struct admission *admission,
                                 struct inflight *inflight, struct slab **frame, struct error *err)
{
    bool in_region = is_in_region(request), apart = in_region || is_typed(request);
    if (*frame && !apart) {
        inflight->slab = STEAL(*frame);
        for (uint32_t k = 0; k < model->info->n_inputs; k++)
            inflight->spans[k] = (struct engine_span){request->inputs[admission->input[k]].data,
                                                      request->inputs[admission->input[k]].size};
        return STATUS_OK;
    }
    inflight->slab = connection_slab_take(c, admission->payload_bytes);
    if (!inflight->slab)
        return error_plain(err, CAUSE_OVER_BUDGET);
    if (*frame || in_region)
        return STATUS_OK;
    return payload_copy(request, model, admission, inflight, err);
}

/* The model's own time bounds a request's. */
static uint64_t deadline_of(const struct loop *loop, const struct model *model,
                            const struct request *request)
{
    uint64_t own_ns = atomic_load_explicit(&model->timeout_ns, memory_order_relaxed);
    uint64_t timeout_ns = own_ns ? own_ns : loop->table->default_timeout_ns;
    if (request->timeout_us && __builtin_mul_overflow(request->timeout_us, NS_PER_US, &timeout_ns))
        timeout_ns = UINT64_MAX;
    if (own_ns)
        timeout_ns = MIN(timeout_ns, own_ns);
    uint64_t deadline_ns;
    if (!timeout_ns || __builtin_add_overflow(loop->now_ns, timeout_ns, &deadline_ns))
        return BATCHER_NEVER;
    return deadline_ns;
}

/* Makes a number that is unique among the connections of all loops, whose ids are unique in their
 * loop only. */
static uint64_t flow_of(const struct connection *c)
{
    return c->id ^ (uint64_t)c->loop->index << 26;
}

/* A model with levels of its own has a default among them. */
static uint32_t priority_of(const struct model *model, const struct request *request)
{
    bool levels = atomic_load_explicit(&model->priority_levels, memory_order_relaxed) > 0;
    return levels && (request->level || !request->priority) ? model_priority(model, request->level)
                                                            : request->priority;
}

static void inflight_fill(struct inflight *inflight, const struct connection *c,
                          const struct request *request, const struct identity *who,
                          struct model *model, const struct admission *admission)
{
    inflight->item.instances = admission->instances;
    inflight->item.priority = identity_priority(who, priority_of(model, request));
    inflight->item.flow = flow_of(c);
    inflight->item.deadline_ns = deadline_of(c->loop, model, request);
    inflight->id = request->id;
    inflight->model = model_ref(model);
    inflight->point = admission->point;
    memcpy(inflight->values, admission->values, sizeof(inflight->values));
    inflight->n_outputs = admission->n_outputs;
    memcpy(inflight->output, admission->output, admission->n_outputs);
    for (uint32_t k = 0; k < admission->n_outputs; k++)
        inflight->classes[k] = k < request->n_outputs ? (uint16_t)request->classes[k] : 0;
    inflight->infer_id_len = (uint32_t)request->infer_id.len;
    if (inflight->infer_id_len)
        memcpy(inflight->infer_id, request->infer_id.data, inflight->infer_id_len);
}

/* Has the request traced, if it is its turn or its client asks for it. */
static void trace(struct connection *c, const struct request *request, struct inflight *inflight)
{
    struct loop *loop = c->loop;
    bool dropped;
    struct trace *t =
        trace_begin(loop->shared->traces, loop->index, request->traceparent, &dropped);
    if (dropped)
        counter_add(&loop->counters, COUNTER_TRACES_DROPPED, 1);
    if (!t)
        return;
    t->read_ns = MIN(c->message_ns, loop->now_ns);
    snprintf(t->model, sizeof(t->model), "%s", inflight->model->name);
    snprintf(t->version, sizeof(t->version), "%s", inflight->model->version);
    memcpy(t->id, inflight->infer_id, inflight->infer_id_len);
    inflight->trace = t;
}

/* Answers a request whose payloads show that it cannot run. */
static void submit_refuse(struct connection *c, struct inflight *inflight, const struct error *err)
{
    uint64_t id = inflight->id;
    model_unrun(inflight->model, err->cause);
    exchange_drop(c, inflight);
    exchange_error(c, id, err);
}

/* What only payloads tell: whether masks hide padding, and how many tokens there are. */
static enum status payload_check(struct inflight *inflight, struct error *err)
{
    const struct model *model = inflight->model;
    uint32_t instances = 0;
    if (!model->info->ragged)
        return engine_masks_check(model->info, inflight->point, inflight->values,
                                  inflight->item.instances, inflight->spans, err);
    TRY(engine_ragged_instances(model->info, inflight->values, inflight->spans, &instances, err));
    if (instances > model->max_instances)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "the request counts %u tokens; this model takes 1 to %u", instances,
                         model->max_instances);
    inflight->item.instances = instances;
    return STATUS_OK;
}

void exchange_submit(struct connection *c, struct inflight *inflight)
{
    struct error err;
    if (payload_check(inflight, &err)) {
        submit_refuse(c, inflight, &err);
        return;
    }
    if (inflight->trace)
        trace_decoded(inflight->trace);
    if (!inflight->run)
        inflight_key(inflight);
    connection_inflight_in(c, inflight);
    if (inflight->run)
        pipeline_run_begin(c->loop, inflight);
    else if (inflight->parked)
        exchange_shape_park(c->loop, inflight);
    else
        loop_submit(c->loop, inflight);
}

void exchange_drop(struct connection *c, struct inflight *inflight)
{
    exchange_shape_give(inflight);
    connection_slab_give(c, STEAL(inflight->slab));
    connection_slab_give(c, STEAL(inflight->run));
    loop_inflight_give(c->loop, inflight);
}

/* Books the request for the peer's address, which may have only so much in flight. */
static enum status address_check(struct connection *c, struct error *err)
{
    if (!c->peer)
        return STATUS_OK;
    uint64_t most = peer_most(c->peer, c->loop->table->limits.address_requests, UINT64_MAX);
    if (peer_requests_in(c->peer, most))
        return STATUS_OK;
    return error_cause(err, CAUSE_ADDRESS_FULL,
                       "%llu requests of this address are in flight, which is its limit",
                       (unsigned long long)most);
}

static bool serving(struct connection *c, const struct request *request)
{
    enum cause cause = exchange_stopped(c->loop->shared);
    struct error err;
    if (!cause)
        return true;
    dispatch_undone(&err, cause, false);
    exchange_error(c, request->id, &err);
    return false;
}

static bool is_known(const struct shape *shape)
{
    bool known = true;
    for (uint32_t d = 0; d < shape->rank; d++)
        known = known && shape->dim[d] >= 0;
    return known;
}

enum status exchange_regions_fit(const struct inflight *inflight, struct error *err)
{
    const struct engine_info *info = inflight->model->info;
    for (uint32_t k = 0; inflight->regions && k < inflight->n_outputs; k++) {
        const struct inflight_region *place = &inflight->regions[k];
        const struct engine_binding *b =
            &engine_point_outputs(info, inflight->point)[inflight->output[k]];
        struct shape shape = inflight_output_shape(inflight, inflight->output[k]);
        size_t bytes;
        if (!is_known(&shape)) /* only a run tells */
            continue;
        if (place->region && (!shape_bytes(&shape, b->dtype, &bytes) || place->room < bytes))
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "output '%s': shared_memory_byte_size is %llu, and it has %llu bytes",
                             b->name, (unsigned long long)place->room, (unsigned long long)bytes);
    }
    return STATUS_OK;
}

/* Finds the regions that outputs go to. */
static enum status regions_take(struct connection *c, const struct request *request,
                                const struct identity *who, struct inflight *inflight,
                                struct error *err)
{
    struct regions_owner owner = {0};
    for (uint32_t k = 0; k < request->n_outputs; k++) {
        const struct message_region *place = &request->regions[k];
        if (!place->sized)
            continue;
        if (!owner.name[0])
            regions_owner_of(c->loop->table->identities, who, c->fd, c->peer, &owner);
        if (!inflight->regions)
            inflight->regions = calloc(request->n_outputs, sizeof(*inflight->regions));
        if (!inflight->regions)
            return error_plain(err, CAUSE_OVER_BUDGET);
        TRY(region_take(c->loop->shared->regions, &owner, place, &inflight->regions[k].region,
                        err));
        inflight->regions[k].offset = place->offset;
        inflight->regions[k].room = place->size;
    }
    return STATUS_OK;
}

static enum status inflight_prepare(struct connection *c, const struct request *request,
                                    const struct identity *who, struct model *model,
                                    const struct admission *admission, struct inflight *inflight,
                                    struct slab **frame, struct error *err)
{
    inflight->use_bytes = admission->payload_bytes; /* given back with the request */
    if (model->pipeline)
        inflight->use_bytes +=
            pipeline_run_bytes(model->pipeline, admission->instances, admission->values);
    TRY(identity_charge(who, inflight->use_bytes, &inflight->use, err));
    TRY(payload_place(c, request, model, admission, inflight, frame, err));
    inflight_fill(inflight, c, request, who, model, admission);
    TRY(regions_take(c, request, who, inflight, err));
    exchange_shape_asker(c, who, inflight);
    if (admission->fit == ENGINE_FIT_NEW)
        TRY(exchange_shape_ask(c->loop, inflight, err));
    else
        TRY(exchange_regions_fit(inflight, err));
    if (model->pipeline)
        TRY(pipeline_run_new(c, inflight, err));
    if (*frame || is_in_region(request))
        TRY(exchange_unpack_begin(c, request, who, admission->input, inflight, frame, err));
    return address_check(c, err);
}

/* Checks the request against its model, and makes of it what can be submitted. */
static enum status prepare(struct connection *c, const struct request *request,
                           const struct identity *who, struct model *model, struct slab **frame,
                           struct inflight **out, struct error *err)
{
    struct admission admission;
    TRY(admission_check(model->info, model->max_instances, request, &admission, err));
    if (admission.fit == ENGINE_FIT_NEW && !model->shapes)
        return admission_no_point(model->info, admission.values, err);
    if (model->pipeline)
        TRY(pipeline_takes(model->pipeline, &c->loop->table->limits, admission.instances,
                           admission.values, err));
    for (uint32_t k = 0; k < request->n_outputs; k++)
        if (request->classes[k] > CLASSIFY_MOST)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "classification of %u classes; at most %d are told",
                             request->classes[k], CLASSIFY_MOST);
    for (uint32_t k = 0; k < request->n_outputs; k++)
        if (request->classes[k] && model->info->batched && model->info->output_axes &&
            model->info->output_axes[admission.output[k]].batch)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "classification of output '%s', which counts instances in dimension "
                             "%u: only those that do so in dimension 0 have classes",
                             model->info->outputs[admission.output[k]].name,
                             model->info->output_axes[admission.output[k]].batch);
    if (request->priority >= BATCHER_PRIORITIES)
        return error_set(err, STATUS_INVALID_ARGUMENT, "priority %u; they are 0 (first) to %d",
                         request->priority, BATCHER_PRIORITIES - 1);
    struct inflight *inflight = loop_inflight_take(c->loop);
    if (!inflight)
        return error_plain(err, CAUSE_OVER_BUDGET);
    enum status status = inflight_prepare(c, request, who, model, &admission, inflight, frame, err);
    if (status) {
        exchange_unpack_cancel(c, inflight);
        exchange_drop(c, inflight);
    } else {
        *out = inflight;
    }
    return status;
}

void exchange_infer(struct connection *c, const struct request *request, const struct identity *who,
                    struct slab **frame)
{
    struct error err;
    counter_add(&c->loop->counters, COUNTER_REQUESTS, 1);
    const struct table_entry *entry = serving(c, request) ? model_find(c, request) : NULL;
    if (!entry)
        return;
    struct inflight *inflight = NULL;
    if (prepare(c, request, who, entry->model, frame, &inflight, &err)) {
        model_unrun(entry->model, err.cause);
        exchange_error(c, request->id, &err);
        return;
    }
    assert(inflight);
    if (c->loop->shared->traces)
        trace(c, request, inflight);
    if (c->unpack)
        exchange_unpack_go_on(c);
    else
        exchange_submit(c, inflight);
}
