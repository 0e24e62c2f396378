/* SPDX-License-Identifier: Apache-2.0 */
/* Replies, results and failures; see exchange.h. */
#include "daemon/exchange.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/names.h"
#include "daemon/answer.h"
#include "daemon/describe.h"
#include "daemon/exchange_internal.h"
#include "daemon/loop.h"
#include "daemon/permit.h"
#include "daemon/pipeline.h"
#include "daemon/regions.h"
#include "daemon/trace.h"

enum {
    SAY_AGAIN_S = 60,   /* between two lines in the log about the same matter */
    COSTLY = 64 * 1024, /* bytes of outputs that take time to answer with */
};

/* --- replies --- */

struct response *exchange_begin(struct connection *c, uint64_t id, enum request_kind kind)
{
    struct response *response = &c->loop->response;
    response->id = id;
    response->status = STATUS_OK;
    response->message = response->model = response->version = response->infer_id = response->body =
        (struct message_text){0};
    response->retry_after_us = 0;
    response->timing = (struct response_timing){0};
    response->kind = kind;
    response->yes = false;
    response->n_outputs = 0;
    return response;
}

static void error_reply(struct connection *c, uint64_t id, struct message_text infer_id,
                        const struct error *err, uint64_t retry_us)
{
    struct response *response = exchange_begin(c, id, REQUEST_NONE);
    response->infer_id = infer_id;
    response->status = err->status;
    response->message = message_text_of(err->text);
    response->retry_after_us = retry_us;
    connection_reply(c, response);
}

void exchange_error(struct connection *c, uint64_t id, const struct error *err)
{
    counter_add(&c->loop->counters, counter_of_cause(err->cause), 1);
    const struct message_text none = {0};
    error_reply(c, id, none, err, cause_row(err->cause)->retry_us);
}

void exchange_session_end(struct connection *c, enum session_end why)
{
    struct shared *shared = c->loop->shared;
    if (why == SESSION_TOO_LARGE)
        counter_add(&c->loop->counters, COUNTER_FRAMES_TOO_LARGE, 1);
    if (why == SESSION_FLOOD)
        counter_add(&c->loop->counters, COUNTER_FLOODS, 1);
    if (why != SESSION_FOREIGN)
        return;
    counter_add(&c->loop->counters, COUNTER_FOREIGN, 1);
    /* Peers must not be able to fill the log. */
    uint64_t now_ns = clock_now_ns();
    uint64_t before = atomic_load_explicit(&shared->foreign_ns, memory_order_relaxed);
    if (before && now_ns - before < SAY_AGAIN_S * NS_PER_S)
        return;
    if (atomic_compare_exchange_strong_explicit(&shared->foreign_ns, &before, now_ns,
                                                memory_order_relaxed, memory_order_relaxed))
        log_write(&shared->log, LOG_WARNING,
                  "a client speaks HTTP, HTTP/2 (gRPC) or TLS to a port of another protocol, "
                  "and was disconnected; the counter foreign_protocol tells how often");
}

/* --- models --- */

enum { COMPARED_MOST = 256 }; /* a name that was mistyped costs the loop no more than these */

/* Names come in order, so versions of one model stand together. */
static void names_gather(const struct connection *c, const struct request *request,
                         struct names *names)
{
    const struct table *table = c->loop->table;
    const char *before = "";
    for (uint32_t i = 0; i < MIN(table->n, (uint32_t)COMPARED_MOST); i++) {
        const char *name = table->entries[i].name;
        if (strcmp(name, before) && permit_sees(&c->caller, table->identities, request, name))
            names_add(names, name);
        before = name;
    }
}

const struct table_entry *exchange_model(struct connection *c, const struct request *request)
{
    const struct table_entry *entry = table_find(c->loop->table, request->model, request->version);
    const struct message_text none = {0};
    struct error err;
    struct names names;
    if (entry)
        return entry;
    if (table_find(c->loop->table, request->model, none)) {
        error_cause(&err, CAUSE_MODEL_MISSING, "model '%.*s' has no version '%.*s'",
                    MESSAGE_TEXT(request->model), MESSAGE_TEXT(request->version));
    } else {
        names_init(&names, request->model.data, request->model.len);
        names_gather(c, request, &names);
        error_cause(&err, CAUSE_MODEL_MISSING, "there is no model '%.*s'; there are %s",
                    MESSAGE_TEXT(request->model), names_text(&names));
    }
    exchange_error(c, request->id, &err);
    return NULL;
}

/* --- requests --- */

/* Returns the identity of who asks. NULL: the request has been refused and answered. */
static const struct identity *permit(struct connection *c, const struct request *request)
{
    struct identities *identities = c->loop->table->identities;
    const struct identity *who = NULL;
    struct error err;
    enum status status = permit_request(&c->caller, identities, c->fd, request, &who, &err);
    if (c->caller.refused >= CALLER_REFUSED_MOST && c->phase < CONNECTION_ENDING)
        c->phase = CONNECTION_ENDING; /* the peer still hears of this refusal */
    if (!status)
        return who;
    if (err.cause != CAUSE_OUT_OF_MEMORY &&
        permit_refusal_is_news(&c->caller, identities, request, status))
        log_write(&c->loop->shared->log, LOG_WARNING, "refused: %s", err.text);
    exchange_error(c, request->id, &err);
    return NULL;
}

/* What became of a request that is to be taken back. */
enum taken {
    TAKEN_NOT,   /* it runs, and will be answered */
    TAKEN_OURS,  /* nobody else has it */
    TAKEN_LATER, /* it comes back to nobody: to be booked out, and left to the loop */
};

static enum taken take_back(struct connection *c, struct inflight *inflight)
{
    if (inflight->run)
        return pipeline_run_stop(c->loop, inflight) ? TAKEN_OURS : TAKEN_LATER;
    if (!inflight->submitted)
        return TAKEN_LATER;
    return dispatch_cancel(c->loop->shared->dispatch, inflight) ? TAKEN_OURS : TAKEN_NOT;
}

/* Books out a request that was taken back. */
static void leave(struct connection *c, struct inflight *inflight, enum taken taken)
{
    if (taken == TAKEN_LATER && inflight->run) {
        connection_inflight_orphan(c, inflight); /* steps may still read its payload */
        connection_cap_ease(c);
        connection_dirty(c);
    } else {
        connection_inflight_out(c, inflight);
    }
    if (taken == TAKEN_OURS)
        loop_inflight_give(c->loop, inflight);
}

static void cancel(struct connection *c, const struct request *request)
{
    struct inflight *inflight = connection_inflight_find(c, request->target);
    struct error err;
    uint64_t id = request->id;
    enum taken taken = inflight ? take_back(c, inflight) : TAKEN_NOT;
    if (taken) {
        error_plain(&err, CAUSE_CLIENT_CANCELLED);
        exchange_error(c, inflight->id, &err);
        model_unrun(inflight->model, CAUSE_CLIENT_CANCELLED);
        leave(c, inflight, taken);
    }
    struct response *out = exchange_begin(c, id, REQUEST_CANCEL);
    out->yes = taken != TAKEN_NOT;
    connection_reply(c, out);
}

void exchange_withdraw(struct connection *c, uint64_t id)
{
    struct inflight *inflight = connection_inflight_find(c, id);
    exchange_unpack_withdraw(c, id);
    enum taken taken = inflight ? take_back(c, inflight) : TAKEN_NOT;
    if (!taken)
        return;
    counter_add(&c->loop->counters, COUNTER_CANCELLED, 1);
    leave(c, inflight, taken);
}

static const struct {
    enum request_kind kind;
    void (*answer)(struct connection *c, const struct request *request);
} answers[] = {
    {REQUEST_SERVER_LIVE, describe_server_live},
    {REQUEST_SERVER_READY, describe_server_ready},
    {REQUEST_MODEL_READY, describe_model_ready},
    {REQUEST_SERVER_METADATA, describe_server},
    {REQUEST_MODEL_METADATA, describe_model},
    {REQUEST_MODEL_CONFIG, describe_model},
    {REQUEST_STATISTICS, describe_statistics},
    {REQUEST_REPOSITORY_INDEX, describe_all},
    {REQUEST_CANCEL, cancel},
    {REQUEST_SERVER_STATUS, describe_all},
    {REQUEST_MODEL_LOAD, answer_order},
    {REQUEST_MODEL_UNLOAD, answer_order},
    {REQUEST_TRACE_SETTING, describe_server},
    {REQUEST_LOG_SETTING, describe_server},
};

static bool is_of_region(enum request_kind kind)
{
    return kind >= REQUEST_MEMORY_STATUS && kind <= REQUEST_CUDA_UNREGISTER;
}

static void describe_or_cancel(struct connection *c, const struct request *request)
{
    for (size_t k = 0; k < ARRAY_LEN(answers); k++)
        if (answers[k].kind == request->kind)
            answers[k].answer(c, request);
}

void exchange_request(struct connection *c, const struct request *request, struct slab *frame)
{
    const struct identity *who = permit(c, request);
    if (who && request->kind == REQUEST_INFER)
        exchange_infer(c, request, who, &frame);
    else if (who && is_of_region(request->kind))
        answer_region(c, request, who);
    else if (who)
        describe_or_cancel(c, request);
    connection_slab_give(c, frame);
}

/* --- results --- */

static void outputs_fill(struct response *response, const struct inflight *inflight)
{
    const struct engine_info *info = inflight->model->info;
    response->n_outputs = inflight->n_outputs;
    for (uint32_t k = 0; k < inflight->n_outputs; k++) {
        uint32_t at = inflight->output[k];
        const struct engine_binding *b = &engine_point_outputs(info, inflight->point)[at];
        struct message_tensor *t = &response->outputs[k];
        t->name = message_text_of(b->name);
        t->dtype = b->dtype;
        t->shape =
            inflight->run ? pipeline_run_shape(inflight, at) : inflight_output_shape(inflight, at);
        if (!shape_bytes(&t->shape, t->dtype, &t->size))
            t->size = 0; /* it has been made, so it has a size */
        t->data = inflight->run ? pipeline_run_output(inflight, at) : inflight_output(inflight, at);
        t->region = (struct message_region){0};
    }
}

/* Writes outputs to the regions that were named for them, whence the reply holds none of their
 * bytes. */
static enum status regions_fill(struct response *response, const struct inflight *inflight,
                                struct error *err)
{
    for (uint32_t k = 0; inflight->regions && k < inflight->n_outputs; k++) {
        struct message_tensor *t = &response->outputs[k];
        const struct inflight_region *to = &inflight->regions[k];
        if (!to->region)
            continue;
        if (t->size > to->room)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "output '%.*s': shared_memory_byte_size is %" PRIu64
                             ", and it has %zu bytes",
                             MESSAGE_TEXT(t->name), to->room, t->size);
        TRY(region_write(to->region, to->offset, t->data, t->size, err));
        t->region = (struct message_region){message_text_of(region_name(to->region)), to->offset,
                                            t->size, true};
        t->data = NULL;
        t->size = 0;
    }
    return STATUS_OK;
}

static struct response_timing timing_of(const struct inflight *inflight)
{
    struct response_timing timing;
    if (inflight->run) {
        pipeline_run_timing(inflight, &timing);
        return timing;
    }
    const struct engine_times *times = &inflight->batch->times;
    return (struct response_timing){inflight->queue_ns, times->input_ns, times->compute_ns,
                                    times->output_ns, inflight->batch->instances};
}

/* Fills in what the worker left, or what was made of it meanwhile. False: classes were asked for,
 * and there was no memory to find them. */
static bool result_fill(struct response *response, const struct inflight *inflight)
{
    if (inflight->found) {
        exchange_classes_fill(response, inflight);
        return true;
    }
    response->timing = timing_of(inflight);
    outputs_fill(response, inflight);
    return !exchange_classes_room(response, inflight);
}

static size_t outputs_bytes(const struct response *response)
{
    size_t sum = 0;
    for (uint32_t k = 0; k < response->n_outputs; k++)
        sum += response->outputs[k].size;
    return sum;
}

static void result_reply(struct connection *c, struct inflight *inflight)
{
    struct response *response = exchange_begin(c, inflight->id, REQUEST_INFER);
    struct error err;
    response->model = message_text_of(inflight->model->name);
    response->version = message_text_of(inflight->model->version);
    response->infer_id = (struct message_text){inflight->infer_id, inflight->infer_id_len};
    bool filled = result_fill(response, inflight);
    c->loop->result_costly |= outputs_bytes(response) >= COSTLY;
    if (!filled) {
        error_plain(&err, CAUSE_OVER_BUDGET);
        exchange_error(c, inflight->id, &err);
    } else if (regions_fill(response, inflight, &err)) {
        exchange_error(c, inflight->id, &err);
    } else {
        connection_reply(c, response);
    }
}

void exchange_tell(struct inflight *inflight, const struct error *err)
{
    inflight->cause = err->cause;
    snprintf(inflight->why, sizeof(inflight->why), "%.*s", (int)sizeof(inflight->why) - 1,
             err->text);
    inflight->told = true;
}

/* A request that ran has an error of its own. One that never ran gets its cause's sentence. */
static void failure_reply(struct connection *c, const struct inflight *inflight)
{
    const struct cause_row *row = cause_row(inflight->cause);
    struct error err;
    if (inflight->batch || inflight->run || inflight->told)
        error_cause(&err, inflight->cause, "%s", inflight->why);
    else
        error_cause(&err, inflight->cause, "model '%s': %s", inflight->model->name, row->sentence);
    const struct message_text infer_id = {inflight->infer_id, inflight->infer_id_len};
    error_reply(c, inflight->id, infer_id, &err,
                MAX(row->retry_us, inflight->item.late_ns / NS_PER_US));
}

/* Counts a failure, whether or not anybody still hears of it. */
static void failure_count(struct loop *loop, const struct inflight *inflight)
{
    bool in_run = inflight->run ? pipeline_run_failed(inflight) : inflight->batch != NULL;
    counter_add(&loop->counters, in_run ? COUNTER_FAILED : counter_of_cause(inflight->cause), 1);
    if (!in_run)
        model_unrun(inflight->model, inflight->cause);
}

static void answer(struct loop *loop, struct inflight *inflight)
{
    if (inflight->trace)
        trace_answered(inflight->trace, inflight);
    struct connection *c = loop_connection(loop, inflight->connection);
    if (inflight->cause)
        failure_count(loop, inflight);
    if (!c) {
        counter_add(&loop->counters, COUNTER_REPLIES_DROPPED, 1);
        slabs_give(loop->slabs, STEAL(inflight->slab));
        return;
    }
    connection_payload_spent(c, inflight); /* now: the reply may need the room */
    if (c->phase == CONNECTION_DYING) {
        counter_add(&loop->counters, COUNTER_REPLIES_DROPPED, 1);
    } else if (!inflight->cause) {
        counter_add(&loop->counters, COUNTER_REQUESTS_OK, 1);
        result_reply(c, inflight);
    } else {
        failure_reply(c, inflight);
    }
    connection_inflight_out(c, inflight);
}

/* Whether the answer is to wait for classes. */
static bool classes_begin(struct loop *loop, struct inflight *inflight)
{
    struct connection *c = loop_connection(loop, inflight->connection);
    bool asked = false;
    for (uint32_t k = 0; k < inflight->n_outputs; k++)
        asked |= inflight->classes[k] != 0;
    if (!asked || inflight->cause || !c || c->phase >= CONNECTION_DYING)
        return false;
    if (inflight->trace) /* its batch may go back before the answer */
        trace_answered(inflight->trace, inflight);
    connection_payload_spent(c, inflight); /* now: the classes may need the room */
    struct response *response = exchange_begin(c, inflight->id, REQUEST_INFER);
    response->timing = timing_of(inflight);
    outputs_fill(response, inflight);
    return exchange_classes_begin(c, response, inflight);
}

void exchange_result_end(struct loop *loop, struct inflight *inflight)
{
    answer(loop, inflight);
    if (inflight->run)
        pipeline_run_release(loop, inflight);
    else
        loop_hold(loop, inflight);
}

void exchange_result(struct loop *loop, struct inflight *inflight)
{
    if (!classes_begin(loop, inflight))
        exchange_result_end(loop, inflight);
}

/* --- taking back --- */

void exchange_forget(struct connection *c)
{
    exchange_unpack_drop(c);
    dispatch_cancel_all(c->loop->shared->dispatch, c->inflight);
    while (c->inflight) {
        struct inflight *inflight = c->inflight;
        bool ours = inflight->run ? pipeline_run_stop(c->loop, inflight) : inflight->cancelled;
        connection_inflight_orphan(c, inflight);
        if (ours || inflight->run) {
            counter_add(&c->loop->counters, COUNTER_CANCELLED, 1);
            model_unrun(inflight->model, CAUSE_CLIENT_CANCELLED);
        }
        if (ours)
            loop_inflight_give(c->loop, inflight);
    }
}

static void undone_reply(struct connection *c, const struct inflight *inflight, enum cause cause,
                         bool may_have_run)
{
    struct error err;
    dispatch_undone(&err, cause, may_have_run);
    exchange_error(c, inflight->id, &err);
    model_unrun(inflight->model, cause);
}

enum cause exchange_stopped(const struct shared *shared)
{
    if (atomic_load_explicit(&shared->lost, memory_order_relaxed))
        return CAUSE_DEVICE_LOST;
    if (atomic_load_explicit(&shared->draining, memory_order_relaxed))
        return CAUSE_DRAINING;
    return CAUSE_OK;
}

void exchange_fail(struct connection *c, bool all)
{
    bool lost = exchange_stopped(c->loop->shared) == CAUSE_DEVICE_LOST;
    enum cause cause = lost ? CAUSE_DEVICE_LOST : CAUSE_DRAINING;
    dispatch_cancel_all(c->loop->shared->dispatch, c->inflight);
    for (struct inflight *inflight = c->inflight, *next; inflight; inflight = next) {
        next = inflight->next_of_connection;
        if (inflight->run) {
            enum taken taken = take_back(c, inflight);
            undone_reply(c, inflight, cause, taken == TAKEN_LATER || pipeline_run_ran(inflight));
            leave(c, inflight, taken);
        } else if (inflight->cancelled) {
            undone_reply(c, inflight, cause, false);
            connection_inflight_out(c, inflight);
            loop_inflight_give(c->loop, inflight);
        } else if (inflight->parked) { /* left to the loop */
            undone_reply(c, inflight, cause, false);
            connection_inflight_out(c, inflight);
        } else if (all && inflight->submitted) {
            undone_reply(c, inflight, cause, true);
            connection_inflight_orphan(c, inflight);
        }
    }
    connection_cap_ease(c);
    connection_dirty(c);
}

void exchange_abandon(struct connection *c, const uint64_t *serials, size_t n)
{
    for (struct inflight *inflight = c->inflight, *next; inflight; inflight = next) {
        next = inflight->next_of_connection;
        for (size_t k = 0; k < n; k++)
            if (serials[k] == inflight->serial) {
                enum taken taken = inflight->run ? take_back(c, inflight) : TAKEN_LATER;
                undone_reply(c, inflight, CAUSE_WORKER_HANGS, true);
                connection_inflight_orphan(c, inflight);
                if (taken == TAKEN_OURS)
                    loop_inflight_give(c->loop, inflight);
                break;
            }
    }
    connection_cap_ease(c);
    connection_dirty(c);
}
