/* SPDX-License-Identifier: Apache-2.0 */
/* Frames become public responses; see reply.h. describe.c has the bodies that describe the
 * server. */
#include "client/reply.h"

#include <string.h>

#include "client/describe.h"
#include "client/encoder.h"

void reply_deinit(struct reply *reply)
{
    arena_free(reply->arena);
    reply->arena = NULL;
}

static void reset(struct reply *reply)
{
    reply_deinit(reply);
    reply->text_used = 0;
    reply->response = (struct inferd_response){.message = "", .model = "", .version = ""};
}

/* A terminated copy, cut at `max` bytes. There is room for all texts that the decoder lets pass. */
static const char *keep(struct reply *reply, struct message_text text, size_t max)
{
    size_t room = sizeof(reply->text) - reply->text_used;
    size_t len = text.data ? utf8_cut(text.data, text.len, max) : 0;
    if (len + 1 > room || len == 0)
        return "";
    char *copy = reply->text + reply->text_used;
    memcpy(copy, text.data, len);
    copy[len] = '\0';
    reply->text_used += len + 1;
    return copy;
}

static enum status outputs_decode(struct reply *reply, struct error *err)
{
    const struct response *wire = &reply->wire;
    struct inferd_response *r = &reply->response;
    r->model = keep(reply, wire->model, MESSAGE_MAX_NAME);
    r->version = keep(reply, wire->version, MESSAGE_MAX_NAME);
    for (uint32_t i = 0; i < wire->n_outputs; i++) {
        const struct message_tensor *from = &wire->outputs[i];
        struct inferd_tensor *to = &reply->outputs[i];
        if (from->typed)
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "the server sent output %u element by element, not as raw bytes", i);
        *to = (struct inferd_tensor){.name = keep(reply, from->name, MESSAGE_MAX_NAME),
                                     .dtype = (enum inferd_dtype)from->dtype,
                                     .rank = from->shape.rank,
                                     .data = from->data,
                                     .size = from->size};
        memcpy(to->dim, from->shape.dim, sizeof(to->dim));
    }
    r->n_outputs = wire->n_outputs;
    r->outputs = reply->outputs;
    return STATUS_OK;
}

enum status reply_decode(struct reply *reply, const void *message, size_t size, struct error *err)
{
    const struct response *wire = &reply->wire;
    struct inferd_response *r = &reply->response;
    reset(reply);
    TRY(response_decode(message, size, &reply->wire, err));
    r->id = wire->id;
    r->status = (enum inferd_status)wire->status;
    r->message = keep(reply, wire->message, ERROR_TEXT_MAX - 1);
    r->retry_after_us = wire->retry_after_us;
    r->timing =
        (struct inferd_timing){wire->timing.queue_ns, wire->timing.input_ns,
                               wire->timing.compute_ns, wire->timing.output_ns, wire->timing.batch};
    r->yes = wire->yes;
    if (wire->kind == REQUEST_INFER)
        return outputs_decode(reply, err);
    if (!wire->body.data)
        return STATUS_OK;
    reply->arena = arena_new(REPLY_BODY_MAX);
    if (!reply->arena)
        return error_no_memory(err, "a response");
    return describe(reply, err);
}

bool reply_fits(struct reply *reply, enum inferd_kind kind)
{
    reply->response.kind = kind;
    return reply->wire.kind == kind_to_wire(kind) ||
           (reply->wire.kind == REQUEST_NONE && reply->response.status != INFERD_OK);
}

void reply_make(struct reply *reply, uint64_t id, enum inferd_kind kind, enum status status,
                const char *reason)
{
    reset(reply);
    reply->response.id = id;
    reply->response.kind = kind;
    reply->response.status = (enum inferd_status)status;
    reply->response.message = keep(reply, message_text_of(reason), ERROR_TEXT_MAX - 1);
}
