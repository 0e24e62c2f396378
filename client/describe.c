/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Server, metadata, statistics, index and status; see describe.h. The public structs are nearly
 * those of proto/body.h. But they are an installed interface, which proto/body.h is not, so members
 * are copied one by one; that happens rarely and costs little. The texts are shared.
 */
#include "client/describe.h"

#include <string.h>

#include "base/histogram.h"
#include "proto/body.h"

static enum status too_large(struct error *err)
{
    return error_set(err, STATUS_RESOURCE_EXHAUSTED, "the server's description is too large");
}

static enum status describe_server(struct reply *reply, struct error *err)
{
    struct body_server_metadata b;
    TRY(body_server_metadata_decode(reply->wire.body, reply->arena, &b, err));
    reply->body.server = (struct inferd_server){.name = b.name,
                                                .version = b.version,
                                                .n_extensions = b.n_extensions,
                                                .extensions = b.extensions};
    reply->response.server = &reply->body.server;
    return STATUS_OK;
}

static struct inferd_metadata_tensor *tensors(struct arena *arena, const struct body_tensor *from,
                                              uint32_t n)
{
    struct inferd_metadata_tensor *to = arena_array(arena, n, sizeof(*to));
    for (uint32_t i = 0; to && i < n; i++) {
        const char *datatype = from[i].datatype;
        to[i] = (struct inferd_metadata_tensor){
            .name = from[i].name,
            .datatype = datatype,
            .dtype = (enum inferd_dtype)dtype_parse(datatype, strlen(datatype)),
            .rank = from[i].shape.rank};
        memcpy(to[i].dim, from[i].shape.dim, sizeof(to[i].dim));
    }
    return to;
}

static enum status describe_metadata(struct reply *reply, struct error *err)
{
    struct body_model_metadata b;
    TRY(body_model_metadata_decode(reply->wire.body, reply->arena, &b, err));
    struct inferd_metadata m = {.name = b.name,
                                .platform = b.platform,
                                .n_versions = b.n_versions,
                                .n_inputs = b.n_inputs,
                                .n_outputs = b.n_outputs,
                                .versions = b.versions,
                                .inputs = tensors(reply->arena, b.inputs, b.n_inputs),
                                .outputs = tensors(reply->arena, b.outputs, b.n_outputs)};
    if (!m.inputs || !m.outputs)
        return too_large(err);
    reply->body.metadata = m;
    reply->response.metadata = &reply->body.metadata;
    return STATUS_OK;
}

static struct inferd_duration duration(struct body_duration from)
{
    return (struct inferd_duration){from.count, from.ns};
}

static enum status describe_statistics(struct reply *reply, struct error *err)
{
    struct body_statistics b;
    TRY(body_statistics_decode(reply->wire.body, reply->arena, &b, err));
    struct inferd_model_statistics *to = arena_array(reply->arena, b.n_models, sizeof(*to));
    if (!to)
        return too_large(err);
    for (uint32_t i = 0; i < b.n_models; i++) {
        const struct body_model_statistics *from = &b.models[i];
        to[i] = (struct inferd_model_statistics){.name = from->name,
                                                 .version = from->version,
                                                 .last_inference_ms = from->last_inference,
                                                 .inferences = from->inference_count,
                                                 .executions = from->execution_count,
                                                 .success = duration(from->success),
                                                 .fail = duration(from->fail),
                                                 .queue = duration(from->queue),
                                                 .input = duration(from->compute_input),
                                                 .compute = duration(from->compute_infer),
                                                 .output = duration(from->compute_output)};
    }
    reply->body.statistics = (struct inferd_statistics){b.n_models, to};
    reply->response.statistics = &reply->body.statistics;
    return STATUS_OK;
}

static enum status describe_index(struct reply *reply, struct error *err)
{
    struct body_index b;
    TRY(body_index_decode(reply->wire.body, reply->arena, &b, err));
    struct inferd_index_entry *to = arena_array(reply->arena, b.n_models, sizeof(*to));
    if (!to)
        return too_large(err);
    for (uint32_t i = 0; i < b.n_models; i++)
        to[i] = (struct inferd_index_entry){b.models[i].name, b.models[i].version,
                                            b.models[i].state, b.models[i].reason};
    reply->body.index = (struct inferd_index){b.n_models, to};
    reply->response.index = &reply->body.index;
    return STATUS_OK;
}

/* Leaves out buckets beyond the last one that can exist. */
static bool stage(struct arena *arena, const struct body_stage *from, struct inferd_histogram *out)
{
    struct inferd_bucket *to = arena_array(arena, from->n_buckets, sizeof(*to));
    uint64_t next = 0;
    uint32_t n = 0;
    for (; to && n < from->n_buckets; n++) {
        if (from->buckets[n].skip >= HISTOGRAM_SHARED_BUCKETS - next)
            break;
        uint32_t at = (uint32_t)(next + from->buckets[n].skip);
        to[n] = (struct inferd_bucket){histogram_shared_low(at), histogram_shared_low(at + 1),
                                       from->buckets[n].count};
        next = at + 1;
    }
    *out = (struct inferd_histogram){n, to};
    return to;
}

static bool status_model(struct arena *arena, const struct body_status_model *from,
                         struct inferd_status_model *out)
{
    *out = (struct inferd_status_model){.name = from->name,
                                        .version = from->version,
                                        .state = from->state,
                                        .reason = from->reason,
                                        .max_batch = from->max_batch,
                                        .queued = from->queued,
                                        .max_delay_us = from->max_delay_us,
                                        .oldest_us = from->oldest_us,
                                        .requests = from->requests,
                                        .failures = from->failures,
                                        .instances = from->instances,
                                        .batches = from->batches,
                                        .queue_ns = from->stages[BODY_QUEUE].ns,
                                        .input_ns = from->stages[BODY_INPUT].ns,
                                        .compute_ns = from->stages[BODY_COMPUTE].ns,
                                        .output_ns = from->stages[BODY_OUTPUT].ns,
                                        .total_ns = from->stages[BODY_TOTAL].ns,
                                        .since_ms = from->since_ms};
    for (int k = 0; k < INFERD_STAGES; k++)
        if (!stage(arena, &from->stages[k], &out->stages[k]))
            return false;
    return true;
}

static enum status describe_status(struct reply *reply, struct error *err)
{
    struct body_server_status b;
    TRY(body_server_status_decode(reply->wire.body, reply->arena, &b, err));
    struct inferd_status_model *models = arena_array(reply->arena, b.n_models, sizeof(*models));
    struct inferd_counter *counters = arena_array(reply->arena, b.n_counters, sizeof(*counters));
    struct inferd_memory *memory = arena_array(reply->arena, b.n_memory, sizeof(*memory));
    if (!models || !counters || !memory)
        return too_large(err);
    for (uint32_t i = 0; i < b.n_models; i++)
        if (!status_model(reply->arena, &b.models[i], &models[i]))
            return too_large(err);
    for (uint32_t i = 0; i < b.n_counters; i++)
        counters[i] = (struct inferd_counter){b.counters[i].name, b.counters[i].value};
    for (uint32_t i = 0; i < b.n_memory; i++)
        memory[i] = (struct inferd_memory){b.memory[i].name, b.memory[i].bytes, b.memory[i].limit};
    reply->body.status_page = (struct inferd_status_page){.version = b.version,
                                                          .device = b.device,
                                                          .uptime_s = b.uptime_s,
                                                          .uptime_ns = b.uptime_ns,
                                                          .started_ms = b.started_ms,
                                                          .ready = b.ready,
                                                          .workers = b.workers,
                                                          .workers_busy = b.workers_busy,
                                                          .connections = b.connections,
                                                          .inflight_bytes = b.inflight_bytes,
                                                          .inflight_requests = b.inflight_requests,
                                                          .n_models = b.n_models,
                                                          .n_counters = b.n_counters,
                                                          .models = models,
                                                          .counters = counters,
                                                          .n_memory = b.n_memory,
                                                          .memory = memory};
    reply->response.status_page = &reply->body.status_page;
    return STATUS_OK;
}

enum status describe(struct reply *reply, struct error *err)
{
    static const struct {
        enum request_kind kind;
        enum status (*decode)(struct reply *reply, struct error *err);
    } table[] = {
        {REQUEST_SERVER_METADATA, describe_server}, {REQUEST_MODEL_METADATA, describe_metadata},
        {REQUEST_STATISTICS, describe_statistics},  {REQUEST_REPOSITORY_INDEX, describe_index},
        {REQUEST_SERVER_STATUS, describe_status},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (table[i].kind == reply->wire.kind)
            return table[i].decode(reply, err);
    }
    return STATUS_OK;
}
