/* SPDX-License-Identifier: Apache-2.0 */
/* Which call is which question, and health checks; see h2.h. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "daemon/h2.h"
#include "proto/health.h"
#include "proto/schema.h"

#define SERVICE "/inference.GRPCInferenceService/"
#define HEALTH  "/grpc.health.v1.Health/"

/* By how often they are called. */
static const struct h2_method methods[] = {
    {SERVICE "ModelInfer", H2_CALL_INFER, REQUEST_INFER, false},
    {SERVICE "ModelStreamInfer", H2_CALL_STREAM_INFER, REQUEST_INFER, true},
    {SERVICE "ServerLive", H2_CALL_QUESTION, REQUEST_SERVER_LIVE, false},
    {SERVICE "ServerReady", H2_CALL_QUESTION, REQUEST_SERVER_READY, false},
    {SERVICE "ModelReady", H2_CALL_QUESTION, REQUEST_MODEL_READY, false},
    {SERVICE "ServerMetadata", H2_CALL_QUESTION, REQUEST_SERVER_METADATA, false},
    {SERVICE "ModelMetadata", H2_CALL_QUESTION, REQUEST_MODEL_METADATA, false},
    {SERVICE "ModelConfig", H2_CALL_QUESTION, REQUEST_MODEL_CONFIG, false},
    {SERVICE "ModelStatistics", H2_CALL_QUESTION, REQUEST_STATISTICS, false},
    {SERVICE "RepositoryIndex", H2_CALL_QUESTION, REQUEST_REPOSITORY_INDEX, false},
    {SERVICE "RepositoryModelLoad", H2_CALL_QUESTION, REQUEST_MODEL_LOAD, false},
    {SERVICE "RepositoryModelUnload", H2_CALL_QUESTION, REQUEST_MODEL_UNLOAD, false},
    {SERVICE "TraceSetting", H2_CALL_QUESTION, REQUEST_TRACE_SETTING, false},
    {SERVICE "LogSettings", H2_CALL_QUESTION, REQUEST_LOG_SETTING, false},
    {SERVICE "SystemSharedMemoryStatus", H2_CALL_QUESTION, REQUEST_MEMORY_STATUS, false},
    {SERVICE "SystemSharedMemoryRegister", H2_CALL_QUESTION, REQUEST_MEMORY_REGISTER, false},
    {SERVICE "SystemSharedMemoryUnregister", H2_CALL_QUESTION, REQUEST_MEMORY_UNREGISTER, false},
    {SERVICE "CudaSharedMemoryStatus", H2_CALL_QUESTION, REQUEST_CUDA_STATUS, false},
    {SERVICE "CudaSharedMemoryRegister", H2_CALL_QUESTION, REQUEST_CUDA_REGISTER, false},
    {SERVICE "CudaSharedMemoryUnregister", H2_CALL_QUESTION, REQUEST_CUDA_UNREGISTER, false},
    {HEALTH "Check", H2_CALL_HEALTH, REQUEST_SERVER_READY, false},
    {HEALTH "Watch", H2_CALL_WATCH, REQUEST_SERVER_READY, false},
    {"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", H2_CALL_REFLECTION, REQUEST_NONE,
     true},
    {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", H2_CALL_REFLECTION,
     REQUEST_NONE, true},
};

const struct h2_method *h2_method_find(struct message_text path)
{
    for (size_t i = 0; i < ARRAY_LEN(methods); i++)
        if (message_text_equal(path, message_text_of(methods[i].path)))
            return &methods[i];
    return NULL;
}

/* --- health --- */

static void health_send(struct h2_stream *stream, uint32_t number, enum health_state state)
{
    char bytes[HEALTH_MAX];
    struct session *s = stream->session;
    h2_begin(stream);
    stream->finished = stream->method->call == H2_CALL_HEALTH;
    h2_bytes_send(stream, number, (struct message_text){bytes, health_encode(state, bytes)});
    s->host->ops->flush(s->host);
}

void h2_health_reply(struct h2_stream *stream, uint32_t number, bool yes)
{
    enum health_state state = yes ? HEALTH_SERVING : HEALTH_NOT_SERVING;
    if (stream->watched == (int)state) { /* nothing new to say */
        stream->next_out = number + 1;
        return;
    }
    stream->watched = stream->method->call == H2_CALL_WATCH ? (int)state : -1;
    health_send(stream, number, state);
}

static bool service_known(struct message_text name)
{
    return !name.len || message_text_equal(name, message_text_of("inference.GRPCInferenceService"));
}

static enum status health_ask(struct h2_stream *stream, const void *message, size_t size,
                              struct request *out, bool *done, struct error *err)
{
    struct message_text service;
    TRY(health_decode(message, size, &service, err));
    request_clear(out);
    out->kind = REQUEST_SERVER_READY;
    if (service_known(service))
        return STATUS_OK;
    if (stream->method->call == H2_CALL_HEALTH)
        return error_set(err, STATUS_NOT_FOUND, "there is no service '%.*s'",
                         MESSAGE_TEXT(service));
    *done = true;
    stream->n_open--;
    stream->watched = HEALTH_SERVICE_UNKNOWN;
    health_send(stream, stream->next_in - 1, HEALTH_SERVICE_UNKNOWN);
    return STATUS_OK;
}

void h2_watch(struct session *s)
{
    struct request *request = s->host->ops->scratch(s->host);
    for (struct h2_stream *stream = s->streams, *next; stream; stream = next) {
        next = stream->next;
        bool watches = stream->method && stream->method->call == H2_CALL_WATCH &&
                       stream->watched >= 0 && stream->watched != HEALTH_SERVICE_UNKNOWN;
        if (!watches || stream->finished)
            continue;
        request_clear(request);
        request->kind = REQUEST_SERVER_READY;
        request->id = (uint64_t)stream->next_in++ << 32 | (uint32_t)stream->id;
        stream->n_open++;
        s->host->ops->request(s->host, request, NULL);
    }
}

/* --- reflection --- */

static enum status reflect(struct h2_stream *stream, const void *message, size_t size, bool *done,
                           struct error *err)
{
    struct session *s = stream->session;
    CLEANUP(cleanup_free) uint8_t *answer = malloc(SCHEMA_ANSWER_MAX);
    size_t used;
    if (!answer)
        return error_plain(err, CAUSE_OVER_BUDGET);
    TRY(schema_reflect(message, size, answer, &used, err));
    *done = true;
    stream->n_open--;
    h2_begin(stream);
    h2_bytes_send(stream, stream->next_in - 1, (struct message_text){(const char *)answer, used});
    s->host->ops->flush(s->host);
    return STATUS_OK;
}

/* --- */

enum status h2_method_decode(struct h2_stream *stream, const void *message, size_t size,
                             struct request *out, bool *done, struct error *err)
{
    const struct h2_method *method = stream->method;
    switch (method->call) {
    case H2_CALL_INFER:
    case H2_CALL_STREAM_INFER:
        return request_decode_infer(message, size, out, err);
    case H2_CALL_HEALTH:
    case H2_CALL_WATCH:
        return health_ask(stream, message, size, out, done, err);
    case H2_CALL_REFLECTION:
        request_clear(out);
        return reflect(stream, message, size, done, err);
    default:
        return request_decode_open(method->kind, message, size, out, err);
    }
}
