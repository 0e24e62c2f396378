/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests in, results out; see intake.h. Small payloads are copied from the staging buffer into a
 * slab, each aligned, so that a lone request can be read in place; those of a large frame stay in
 * the slab they were read into.
 */
#include "daemon/intake.h"

#include <stdio.h>

#include "base/clock.h"
#include "daemon/admission.h"
#include "daemon/describe.h"
#include "daemon/loop.h"

/* ---- inference ---- */

/* The entry, if it is ready; else the request has been answered with the reason. */
static const struct table_entry *model_find(struct connection *c, const struct request *r)
{
    struct loop *loop = c->loop;
    const struct table_entry *entry = table_find(loop->table, r->model, r->version);
    struct error err;
    if (!entry) {
        if (r->version.len)
            error_set(&err, STATUS_NOT_FOUND, "there is no model '%.*s' version '%.*s'",
                      MESSAGE_TEXT(r->model), MESSAGE_TEXT(r->version));
        else
            error_set(&err, STATUS_NOT_FOUND, "there is no model '%.*s'", MESSAGE_TEXT(r->model));
        counter_add(&loop->counters, COUNTER_REQUESTS_NOT_FOUND, 1);
        connection_reply_error(c, r->id, err.status, err.text, 0);
        return NULL;
    }
    if (entry->state == MODEL_READY)
        return entry;
    error_set(&err, STATUS_UNAVAILABLE, "model '%s' version '%s' is %s%s%s", entry->name,
              entry->version, model_state_name(entry->state), *entry->reason ? ": " : "",
              entry->reason);
    counter_add(&loop->counters, COUNTER_REJECTED_UNAVAILABLE, 1);
    connection_reply_error(c, r->id, err.status, err.text, INTAKE_RETRY_LATER_US);
    return NULL;
}

/* Puts the payloads where the workers will read them. */
static enum status payload_place(struct connection *c, const struct request *r,
                                 const struct model *model, const struct admission *a,
                                 struct inflight *i, struct slab **frame, struct error *err)
{
    const struct engine_info *info = model->info;
    bool typed = false;
    for (uint32_t k = 0; k < r->n_inputs; k++)
        typed |= r->inputs[k].typed;
    if (*frame && !typed) {
        i->slab = STEAL(*frame);
        for (uint32_t k = 0; k < info->n_inputs; k++)
            i->spans[k] =
                (struct engine_span){r->inputs[a->input[k]].data, r->inputs[a->input[k]].size};
        return STATUS_OK;
    }
    i->slab = connection_slab_take(c, a->payload_bytes, false);
    if (!i->slab)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "no memory for the inputs now");
    uint8_t *to = i->slab->data;
    for (uint32_t k = 0; k < info->n_inputs; k++) {
        const struct message_tensor *t = &r->inputs[a->input[k]];
        size_t size = t->size;
        if (t->typed) {
            if (!shape_bytes(&t->shape, t->dtype, &size))
                return error_set(err, STATUS_INVALID_ARGUMENT, "input too large");
            enum status s = message_unpack(t, to, size, err);
            if (s != STATUS_OK)
                return s;
        } else if (size) {
            memcpy(to, t->data, size);
        }
        i->spans[k] = (struct engine_span){to, size};
        to += (size + ADMISSION_ALIGN - 1) & ~(size_t)(ADMISSION_ALIGN - 1);
    }
    return STATUS_OK;
}

static uint64_t deadline_of(const struct loop *loop, const struct request *r)
{
    uint64_t timeout_ns = loop->table->default_timeout_ns;
    if (r->timeout_us && __builtin_mul_overflow(r->timeout_us, NS_PER_US, &timeout_ns))
        return BATCHER_NEVER;
    uint64_t deadline_ns;
    if (!timeout_ns || __builtin_add_overflow(loop->now_ns, timeout_ns, &deadline_ns))
        return BATCHER_NEVER;
    return deadline_ns;
}

static void inflight_fill(struct inflight *i, const struct loop *loop, const struct request *r,
                          const struct identity *who, struct model *model,
                          const struct admission *a)
{
    i->item.instances = a->instances;
    i->item.priority = identity_priority(who, r->priority);
    i->item.shape_key = a->shape_key;
    i->item.deadline_ns = deadline_of(loop, r);
    i->id = r->id;
    i->model = model_ref(model);
    i->n_outputs = a->n_outputs;
    memcpy(i->output, a->output, a->n_outputs);
    i->infer_id_len = (uint32_t)r->infer_id.len;
    if (i->infer_id_len)
        memcpy(i->infer_id, r->infer_id.data, i->infer_id_len);
}

/* An inference that is refused before it was queued. */
static void refuse(struct connection *c, const struct request *r, const struct error *err)
{
    bool memory = err->status == STATUS_RESOURCE_EXHAUSTED;
    counter_add(&c->loop->counters, memory ? COUNTER_REJECTED_MEMORY : COUNTER_REQUESTS_INVALID, 1);
    connection_reply_error(c, r->id, err->status, err->text, memory ? INTAKE_RETRY_US : 0);
}

static enum status charge(struct connection *c, const struct identity *who, uint64_t bytes,
                          struct inflight *i, struct error *err)
{
    enum status s = identity_charge(who, bytes, &i->use, err);
    i->use_bytes = bytes;
    if (s != STATUS_OK)
        counter_add(&c->loop->counters, COUNTER_REJECTED_IDENTITY, 1);
    return s;
}

static bool serving(struct connection *c, const struct request *r)
{
    const struct shared *shared = c->loop->shared;
    const char *why = NULL;
    if (atomic_load_explicit(&shared->lost, memory_order_relaxed))
        why = "the device was lost; the request was not executed";
    else if (atomic_load_explicit(&shared->draining, memory_order_relaxed))
        why = "the server is shutting down";
    if (!why)
        return true;
    counter_add(&c->loop->counters, COUNTER_REJECTED_UNAVAILABLE, 1);
    connection_reply_error(c, r->id, STATUS_UNAVAILABLE, why, INTAKE_RETRY_LATER_US);
    return false;
}

static void infer(struct connection *c, const struct request *r, const struct identity *who,
                  struct slab **frame)
{
    struct loop *loop = c->loop;
    struct error err;
    counter_add(&loop->counters, COUNTER_REQUESTS, 1);
    const struct table_entry *entry = serving(c, r) ? model_find(c, r) : NULL;
    if (!entry)
        return;
    struct model *model = entry->model;
    struct admission admission;
    enum status s = admission_check(model->info, model->max_batch, r, &admission, &err);
    if (s == STATUS_OK && r->priority >= BATCHER_PRIORITIES)
        s = error_set(&err, STATUS_INVALID_ARGUMENT, "priority %u; they are 0 (first) to %d",
                      r->priority, BATCHER_PRIORITIES - 1);
    struct inflight *i = s == STATUS_OK ? loop_inflight_take(loop) : NULL;
    if (s == STATUS_OK && !i)
        s = error_set(&err, STATUS_RESOURCE_EXHAUSTED, "no memory for a request now");
    if (s == STATUS_OK)
        s = charge(c, who, admission.payload_bytes, i, &err);
    if (s == STATUS_OK)
        s = payload_place(c, r, model, &admission, i, frame, &err);
    if (s != STATUS_OK) {
        if (i) {
            connection_slab_give(c, STEAL(i->slab));
            loop_inflight_give(loop, i);
        }
        refuse(c, r, &err);
        return;
    }
    inflight_fill(i, loop, r, who, model, &admission);
    connection_inflight_in(c, i);
    loop_submit(loop, i);
}

/* ---- cancel ---- */

static void cancel(struct connection *c, const struct request *r)
{
    struct inflight *i = c->inflight;
    while (i && i->id != r->target)
        i = i->next_of_connection;
    bool found = i != NULL;
    bool submitted = found && i->submitted;
    if (submitted)
        found = dispatch_cancel(c->loop->shared->dispatch, i);
    uint64_t id = r->id;
    if (found) {
        counter_add(&c->loop->counters, COUNTER_CANCELLED, 1);
        connection_reply_error(c, i->id, STATUS_CANCELLED, "cancelled by the client", 0);
        connection_inflight_out(c, i); /* what was not submitted the loop drops */
        if (submitted)
            loop_inflight_give(c->loop, i);
    }
    struct response *out = &c->loop->response;
    *out = (struct response){.id = id, .kind = REQUEST_CANCEL, .yes = found};
    connection_reply(c, out);
}

static const struct {
    enum request_kind kind;
    void (*answer)(struct connection *c, const struct request *request);
} answers[] = {
    {REQUEST_SERVER_LIVE, describe_server_live},
    {REQUEST_SERVER_READY, describe_server_ready},
    {REQUEST_MODEL_READY, describe_model_ready},
    {REQUEST_SERVER_METADATA, describe_server_metadata},
    {REQUEST_MODEL_METADATA, describe_model_metadata},
    {REQUEST_STATISTICS, describe_statistics},
    {REQUEST_REPOSITORY_INDEX, describe_repository_index},
    {REQUEST_CANCEL, cancel},
    {REQUEST_SERVER_STATUS, describe_server_status},
};

void intake_request(struct connection *c, const struct request *request, struct slab *frame)
{
    const struct identity *who = connection_permit(c, request);
    if (who && request->kind == REQUEST_INFER)
        infer(c, request, who, &frame);
    for (size_t k = 0; who && k < ARRAY_LEN(answers); k++)
        if (answers[k].kind == request->kind)
            answers[k].answer(c, request);
    connection_slab_give(c, frame);
}

/* ---- results ---- */

static void outputs_fill(struct response *r, const struct inflight *i)
{
    const struct engine_info *info = i->model->info;
    r->n_outputs = i->n_outputs;
    for (uint32_t k = 0; k < i->n_outputs; k++) {
        const struct engine_binding *b = &info->outputs[i->output[k]];
        struct message_tensor *t = &r->outputs[k];
        const uint8_t *base = i->batch->output;
        t->name = message_text_of(b->name);
        t->dtype = b->dtype;
        t->shape = b->shape;
        t->size = b->instance_bytes;
        if (info->batched) {
            t->shape.dim[0] = i->item.instances;
            t->size *= i->item.instances;
        }
        t->data = base + i->batch->profile->out_offset[i->output[k]] + i->first * b->instance_bytes;
    }
}

static void result_reply(struct connection *c, const struct inflight *i)
{
    struct response *r = &c->loop->response;
    const struct engine_times *times = &i->batch->times;
    r->id = i->id;
    r->status = STATUS_OK;
    r->message = (struct message_text){0};
    r->retry_after_us = 0;
    r->timing = (struct response_timing){i->queue_ns, times->input_ns, times->compute_ns,
                                         times->output_ns, i->batch->instances};
    r->kind = REQUEST_INFER;
    r->model = message_text_of(i->model->name);
    r->version = message_text_of(i->model->version);
    r->infer_id = (struct message_text){i->infer_id, i->infer_id_len};
    r->body = (struct message_text){0};
    outputs_fill(r, i);
    connection_reply(c, r);
}

/* Texts of failures that have none of their own. */
static void failure_reply(struct connection *c, const struct inflight *i)
{
    struct counters *counters = &c->loop->counters;
    const char *text = i->batch ? i->why : "the request was refused";
    uint64_t retry_us = 0;
    char buffer[160];
    if (i->batch) {
        counter_add(counters, COUNTER_FAILED, 1);
        retry_us = i->status == STATUS_UNAVAILABLE ? INTAKE_RETRY_LATER_US : 0;
    } else if (i->status == STATUS_DEADLINE_EXCEEDED) { /* counted where it was found */
        text = "the deadline passed before the request could run";
    } else if (i->status == STATUS_RESOURCE_EXHAUSTED && i->item.late_ns) {
        counter_add(counters, COUNTER_REJECTED_DEADLINE, 1);
        snprintf(buffer, sizeof(buffer),
                 "the queue of model '%s' is too long for the request's deadline", i->model->name);
        text = buffer;
        retry_us = MAX((uint64_t)INTAKE_RETRY_US, i->item.late_ns / NS_PER_US);
    } else if (i->status == STATUS_RESOURCE_EXHAUSTED) {
        counter_add(counters, COUNTER_REJECTED_QUEUE, 1);
        snprintf(buffer, sizeof(buffer), "the queue of model '%s' is full", i->model->name);
        text = buffer;
        retry_us = INTAKE_RETRY_US;
    } else if (i->status == STATUS_UNAVAILABLE) {
        counter_add(counters, COUNTER_REJECTED_UNAVAILABLE, 1);
        text = "the server is shutting down";
        retry_us = INTAKE_RETRY_LATER_US;
    }
    connection_reply_error(c, i->id, i->status, text, retry_us);
}

void intake_result(struct loop *loop, struct inflight *i)
{
    struct connection *c = loop_connection(loop, i->connection);
    if (!c) {
        counter_add(&loop->counters, COUNTER_REPLIES_DROPPED, 1);
        slabs_give(loop->slabs, STEAL(i->slab));
        return;
    }
    if (i->status == STATUS_OK) {
        counter_add(&loop->counters, COUNTER_REQUESTS_OK, 1);
        result_reply(c, i);
    } else {
        failure_reply(c, i);
    }
    connection_inflight_out(c, i);
}
