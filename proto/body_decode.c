/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes the bodies of body.h into an arena, whose limit bounds what a server can make a client
 * keep. A list's array doubles as it grows; the arrays it outgrew stay in the arena.
 */
#include <pb_decode.h>

#include "inferd.pb.h"
#include "proto/body.h"
#include "proto/walk.h"

/* The arena, and whether it was full: nanopb only says that a callback failed. */
struct decoding {
    struct arena *arena;
    bool full;
};

struct string {
    struct decoding *d;
    const char **out;
};

struct list {
    struct decoding *d;
    size_t stride;
    bool (*get)(pb_istream_t *stream, struct decoding *d, void *item);
    uint32_t cap, n;
    char *items;
};

static bool string_read(pb_istream_t *stream, struct decoding *d, const char **out)
{
    size_t len = stream->bytes_left;
    char *text = arena_alloc(d->arena, len + 1);
    if (!text) {
        d->full = true;
        return false;
    }
    if (!pb_read(stream, (pb_byte_t *)text, len))
        return false;
    *out = text;
    return true;
}

static bool string_decode(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    const struct string *s = *arg;
    return string_read(stream, s->d, s->out);
}

static pb_callback_t string_get(struct string *s)
{
    *s->out = "";
    return (pb_callback_t){.funcs.decode = string_decode, .arg = s};
}

static bool list_decode(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    struct list *list = *arg;
    if (list->n == list->cap) {
        uint32_t cap = list->cap ? 2 * list->cap : 8;
        char *items = arena_array(list->d->arena, cap, list->stride);
        if (!items) {
            list->d->full = true;
            return false;
        }
        if (list->n)
            memcpy(items, list->items, list->n * list->stride);
        list->items = items;
        list->cap = cap;
    }
    return list->get(stream, list->d, list->items + list->n++ * list->stride);
}

static pb_callback_t list_get(struct list *list)
{
    return (pb_callback_t){.funcs.decode = list_decode, .arg = list};
}

static bool name_get(pb_istream_t *stream, struct decoding *d, void *item)
{
    return string_read(stream, d, item);
}

static bool dim_decode(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    struct shape *shape = *arg;
    while (stream->bytes_left) {
        uint64_t dim;
        if (shape->rank == SHAPE_MAX_RANK || !pb_decode_varint(stream, &dim))
            return false;
        shape->dim[shape->rank++] = (int64_t)dim;
    }
    return true;
}

static bool tensor_get(pb_istream_t *stream, struct decoding *d, void *item)
{
    struct body_tensor *t = item;
    struct string name = {d, &t->name}, datatype = {d, &t->datatype};
    inference_ModelMetadataResponse_TensorMetadata m = {
        .name = string_get(&name),
        .datatype = string_get(&datatype),
        .shape = {.funcs.decode = dim_decode, .arg = &t->shape}};
    return pb_decode(stream, inference_ModelMetadataResponse_TensorMetadata_fields, &m);
}

static struct body_duration duration(inference_StatisticDuration d)
{
    return (struct body_duration){.count = d.count, .ns = d.ns};
}

static bool batch_get(pb_istream_t *stream, struct decoding *d UNUSED, void *item)
{
    struct body_batch_statistics *b = item;
    inference_InferBatchStatistics m = {0};
    if (!pb_decode(stream, inference_InferBatchStatistics_fields, &m))
        return false;
    *b = (struct body_batch_statistics){.batch_size = m.batch_size,
                                        .compute_input = duration(m.compute_input),
                                        .compute_infer = duration(m.compute_infer),
                                        .compute_output = duration(m.compute_output)};
    return true;
}

static bool statistics_get(pb_istream_t *stream, struct decoding *d, void *item)
{
    struct body_model_statistics *s = item;
    struct string name = {d, &s->name}, version = {d, &s->version};
    struct list batches = {.d = d, .stride = sizeof(*s->batches), .get = batch_get};
    inference_ModelStatistics m = {.name = string_get(&name),
                                   .version = string_get(&version),
                                   .batch_stats = list_get(&batches)};
    if (!pb_decode(stream, inference_ModelStatistics_fields, &m))
        return false;
    s->last_inference = m.last_inference;
    s->inference_count = m.inference_count;
    s->execution_count = m.execution_count;
    s->success = duration(m.inference_stats.success);
    s->fail = duration(m.inference_stats.fail);
    s->queue = duration(m.inference_stats.queue);
    s->compute_input = duration(m.inference_stats.compute_input);
    s->compute_infer = duration(m.inference_stats.compute_infer);
    s->compute_output = duration(m.inference_stats.compute_output);
    s->n_batches = batches.n;
    s->batches = (const void *)batches.items;
    return true;
}

static bool index_get(pb_istream_t *stream, struct decoding *d, void *item)
{
    struct body_index_entry *e = item;
    struct string name = {d, &e->name}, version = {d, &e->version}, state = {d, &e->state},
                  reason = {d, &e->reason};
    inference_RepositoryIndexResponse_ModelIndex m = {.name = string_get(&name),
                                                      .version = string_get(&version),
                                                      .state = string_get(&state),
                                                      .reason = string_get(&reason)};
    return pb_decode(stream, inference_RepositoryIndexResponse_ModelIndex_fields, &m);
}

static bool bucket_get(pb_istream_t *stream, struct decoding *d UNUSED, void *item)
{
    struct body_bucket *b = item;
    return pb_decode_varint(stream, &b->skip) && pb_decode_varint(stream, &b->count);
}

static bool status_model_get(pb_istream_t *stream, struct decoding *d, void *item)
{
    struct body_status_model *s = item;
    struct string name = {d, &s->name}, version = {d, &s->version}, state = {d, &s->state},
                  reason = {d, &s->reason};
    struct list buckets[BODY_STAGES];
    for (int k = 0; k < BODY_STAGES; k++)
        buckets[k] = (struct list){.d = d, .stride = sizeof(struct body_bucket), .get = bucket_get};
    inferd_ServerStatusResponse_Model m = {.name = string_get(&name),
                                           .version = string_get(&version),
                                           .state = string_get(&state),
                                           .reason = string_get(&reason),
                                           .queue_buckets = list_get(&buckets[BODY_QUEUE]),
                                           .input_buckets = list_get(&buckets[BODY_INPUT]),
                                           .compute_buckets = list_get(&buckets[BODY_COMPUTE]),
                                           .output_buckets = list_get(&buckets[BODY_OUTPUT]),
                                           .total_buckets = list_get(&buckets[BODY_TOTAL])};
    if (!pb_decode(stream, inferd_ServerStatusResponse_Model_fields, &m))
        return false;
    const uint64_t ns[BODY_STAGES] = {m.queue_ns, m.input_ns, m.compute_ns, m.output_ns,
                                      m.total_ns};
    for (int k = 0; k < BODY_STAGES; k++)
        s->stages[k] = (struct body_stage){ns[k], buckets[k].n, (const void *)buckets[k].items};
    s->max_batch = m.max_batch;
    s->max_delay_us = m.max_delay_us;
    s->queued = m.queued;
    s->oldest_us = m.oldest_us;
    s->requests = m.requests;
    s->failures = m.failures;
    s->instances = m.instances;
    s->batches = m.batches;
    s->since_ms = m.since_ms;
    return true;
}

static bool counter_get(pb_istream_t *stream, struct decoding *d, void *item)
{
    struct body_counter *c = item;
    struct string name = {d, &c->name};
    inferd_ServerStatusResponse_Counter m = {.name = string_get(&name)};
    if (!pb_decode(stream, inferd_ServerStatusResponse_Counter_fields, &m))
        return false;
    c->value = m.value;
    return true;
}

static bool memory_get(pb_istream_t *stream, struct decoding *d, void *item)
{
    struct body_memory *b = item;
    struct string name = {d, &b->name};
    inferd_ServerStatusResponse_Memory m = {.name = string_get(&name)};
    if (!pb_decode(stream, inferd_ServerStatusResponse_Memory_fields, &m))
        return false;
    b->bytes = m.bytes;
    b->limit = m.limit;
    return true;
}

static enum status message_decode(struct decoding *d, struct message_text wire,
                                  const struct proto_walk *within, const pb_msgdesc_t *fields,
                                  void *message, struct error *err)
{
    TRY(proto_walk_check(within, wire, BODY_MAX_FIELDS, "description", err));
    pb_istream_t stream = pb_istream_from_buffer((const pb_byte_t *)wire.data, wire.len);
    if (pb_decode(&stream, fields, message))
        return STATUS_OK;
    if (d->full)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "the server's answer is too large");
    return error_set(err, STATUS_INVALID_ARGUMENT, "malformed answer: %s", PB_GET_ERROR(&stream));
}

enum status body_server_metadata_decode(struct message_text wire, struct arena *arena,
                                        struct body_server_metadata *out, struct error *err)
{
    struct decoding d = {.arena = arena};
    struct body_server_metadata body = {0};
    struct string name = {&d, &body.name}, version = {&d, &body.version};
    struct list extensions = {.d = &d, .stride = sizeof(char *), .get = name_get};
    inference_ServerMetadataResponse m = {.name = string_get(&name),
                                          .version = string_get(&version),
                                          .extensions = list_get(&extensions)};
    TRY(message_decode(&d, wire, &proto_walk_server_metadata,
                       inference_ServerMetadataResponse_fields, &m, err));
    body.n_extensions = extensions.n;
    body.extensions = (const void *)extensions.items;
    *out = body;
    return STATUS_OK;
}

enum status body_model_metadata_decode(struct message_text wire, struct arena *arena,
                                       struct body_model_metadata *out, struct error *err)
{
    struct decoding d = {.arena = arena};
    struct body_model_metadata body = {0};
    struct string name = {&d, &body.name}, platform = {&d, &body.platform};
    struct list versions = {.d = &d, .stride = sizeof(char *), .get = name_get};
    struct list inputs = {.d = &d, .stride = sizeof(*body.inputs), .get = tensor_get};
    struct list outputs = {.d = &d, .stride = sizeof(*body.outputs), .get = tensor_get};
    inference_ModelMetadataResponse m = {.name = string_get(&name),
                                         .versions = list_get(&versions),
                                         .platform = string_get(&platform),
                                         .inputs = list_get(&inputs),
                                         .outputs = list_get(&outputs)};
    TRY(message_decode(&d, wire, &proto_walk_model_metadata, inference_ModelMetadataResponse_fields,
                       &m, err));
    body.n_versions = versions.n;
    body.versions = (const void *)versions.items;
    body.n_inputs = inputs.n;
    body.inputs = (const void *)inputs.items;
    body.n_outputs = outputs.n;
    body.outputs = (const void *)outputs.items;
    *out = body;
    return STATUS_OK;
}

enum status body_statistics_decode(struct message_text wire, struct arena *arena,
                                   struct body_statistics *out, struct error *err)
{
    struct decoding d = {.arena = arena};
    struct list models = {.d = &d, .stride = sizeof(*out->models), .get = statistics_get};
    inference_ModelStatisticsResponse m = {.model_stats = list_get(&models)};
    TRY(message_decode(&d, wire, &proto_walk_statistics, inference_ModelStatisticsResponse_fields,
                       &m, err));
    *out = (struct body_statistics){models.n, (const void *)models.items};
    return STATUS_OK;
}

enum status body_index_decode(struct message_text wire, struct arena *arena, struct body_index *out,
                              struct error *err)
{
    struct decoding d = {.arena = arena};
    struct list models = {.d = &d, .stride = sizeof(*out->models), .get = index_get};
    inference_RepositoryIndexResponse m = {.models = list_get(&models)};
    TRY(message_decode(&d, wire, &proto_walk_index, inference_RepositoryIndexResponse_fields, &m,
                       err));
    *out = (struct body_index){models.n, (const void *)models.items};
    return STATUS_OK;
}

enum status body_server_status_decode(struct message_text wire, struct arena *arena,
                                      struct body_server_status *out, struct error *err)
{
    struct decoding d = {.arena = arena};
    struct body_server_status body = {0};
    struct string version = {&d, &body.version}, device = {&d, &body.device};
    struct list models = {.d = &d, .stride = sizeof(*body.models), .get = status_model_get};
    struct list counters = {.d = &d, .stride = sizeof(*body.counters), .get = counter_get};
    struct list memory = {.d = &d, .stride = sizeof(*body.memory), .get = memory_get};
    inferd_ServerStatusResponse m = {.version = string_get(&version),
                                     .device = string_get(&device),
                                     .models = list_get(&models),
                                     .counters = list_get(&counters),
                                     .memory = list_get(&memory)};
    TRY(message_decode(&d, wire, &proto_walk_server_status, inferd_ServerStatusResponse_fields, &m,
                       err));
    body.uptime_s = m.uptime_s;
    body.uptime_ns = m.uptime_ns;
    body.started_ms = m.started_ms;
    body.ready = m.ready;
    body.workers = m.workers;
    body.workers_busy = m.workers_busy;
    body.connections = m.connections;
    body.inflight_bytes = m.inflight_bytes;
    body.inflight_requests = m.inflight_requests;
    body.n_models = models.n;
    body.models = (const void *)models.items;
    body.n_counters = counters.n;
    body.counters = (const void *)counters.items;
    body.n_memory = memory.n;
    body.memory = (const void *)memory.items;
    *out = body;
    return STATUS_OK;
}
