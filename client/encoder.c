/* SPDX-License-Identifier: Apache-2.0 */
/* Public requests to frames; see encoder.h. */
#include "client/encoder.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "proto/frame.h"

/* client.h repeats these numbers so that it needs no other header; they must stay the same. */
_Static_assert((int)INFERD_UNAUTHENTICATED == (int)STATUS_UNAUTHENTICATED, "codes");
_Static_assert((int)INFERD_INTERNAL == (int)STATUS_INTERNAL, "codes");
_Static_assert((int)INFERD_BOOL == (int)DTYPE_BOOL && (int)INFERD_INT8 == (int)DTYPE_I8 &&
                   (int)INFERD_FP16 == (int)DTYPE_F16 && (int)INFERD_FP64 == (int)DTYPE_F64,
               "types");
_Static_assert((int)INFERD_MAX_RANK == (int)SHAPE_MAX_RANK, "rank");
_Static_assert((int)INFERD_MAX_TENSORS == (int)MESSAGE_MAX_TENSORS, "tensors");
_Static_assert((int)INFERD_ERROR_TEXT == (int)ERROR_TEXT_MAX, "error text");

static const enum request_kind wire_kinds[] = {
    [INFERD_INFER] = REQUEST_INFER,
    [INFERD_SERVER_LIVE] = REQUEST_SERVER_LIVE,
    [INFERD_SERVER_READY] = REQUEST_SERVER_READY,
    [INFERD_MODEL_READY] = REQUEST_MODEL_READY,
    [INFERD_SERVER_METADATA] = REQUEST_SERVER_METADATA,
    [INFERD_MODEL_METADATA] = REQUEST_MODEL_METADATA,
    [INFERD_STATISTICS] = REQUEST_STATISTICS,
    [INFERD_INDEX] = REQUEST_REPOSITORY_INDEX,
    [INFERD_STATUS] = REQUEST_SERVER_STATUS,
};

enum request_kind kind_to_wire(enum inferd_kind kind)
{
    return (size_t)kind < ARRAY_LEN(wire_kinds) ? wire_kinds[kind] : REQUEST_NONE;
}

enum inferd_status error_to_user(const struct error *from, struct inferd_error *to)
{
    if (to) {
        to->status = (enum inferd_status)from->status;
        memcpy(to->text, from->text, sizeof(to->text));
    }
    return (enum inferd_status)from->status;
}

const char *inferd_status_name(enum inferd_status status)
{
    return status_name((enum status)status);
}

const char *inferd_dtype_name(enum inferd_dtype dtype)
{
    return dtype_name((enum dtype)dtype);
}

size_t inferd_dtype_size(enum inferd_dtype dtype)
{
    return dtype_size((enum dtype)dtype);
}

static enum status tensor_to_wire(const struct inferd_tensor *from, struct message_tensor *to,
                                  struct error *err)
{
    const char *name = from->name ? from->name : "";
    size_t bytes;
    if (from->rank > SHAPE_MAX_RANK)
        return error_set(err, STATUS_INVALID_ARGUMENT, "input \"%s\": rank %u, at most %d", name,
                         from->rank, SHAPE_MAX_RANK);
    *to = (struct message_tensor){.name = message_text_of(from->name),
                                  .dtype = (enum dtype)from->dtype,
                                  .shape.rank = from->rank,
                                  .data = from->data,
                                  .size = from->size};
    memcpy(to->shape.dim, from->dim, from->rank * sizeof(from->dim[0]));
    if (!shape_bytes(&to->shape, to->dtype, &bytes))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input \"%s\": a negative dimension, too large a shape, or no type", name);
    if (bytes != from->size || (bytes && !from->data))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input \"%s\": its type and shape take %zu bytes, %zu are given", name,
                         bytes, from->data ? from->size : 0);
    return STATUS_OK;
}

static enum status tensors_to_wire(struct request *r, const struct inferd_request *request,
                                   struct error *err)
{
    if (request->n_inputs > MESSAGE_MAX_TENSORS || request->n_outputs > MESSAGE_MAX_TENSORS)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%u inputs, %u outputs; at most %d",
                         request->n_inputs, request->n_outputs, MESSAGE_MAX_TENSORS);
    r->n_inputs = request->n_inputs;
    r->n_outputs = request->n_outputs;
    for (uint32_t i = 0; i < r->n_inputs; i++)
        TRY(tensor_to_wire(&request->inputs[i], &r->inputs[i], err));
    for (uint32_t i = 0; i < r->n_outputs; i++)
        r->outputs[i] = message_text_of(request->outputs[i]);
    return STATUS_OK;
}

/* Sets all members except the tensors, which are many bytes and set one by one. */
static void head_to_wire(struct request *r, const struct inferd_request *request, uint64_t id)
{
    r->id = id;
    r->timeout_us = request->timeout_us;
    r->priority = request->priority;
    r->kind = kind_to_wire(request->kind);
    r->token = message_text_of(request->token);
    r->traceparent = message_text_of(request->traceparent);
    r->model = message_text_of(request->model);
    r->version = message_text_of(request->version);
    r->infer_id = message_text_of(NULL);
    r->n_inputs = r->n_outputs = 0;
    r->ready_only = false;
    r->target = 0;
}

enum status encoder_request(struct encoder *encoder, const struct inferd_request *request,
                            uint64_t id, struct error *err)
{
    struct request *r = &encoder->request;
    head_to_wire(r, request, id);
    if (r->kind == REQUEST_NONE)
        return error_set(err, STATUS_INVALID_ARGUMENT, "request kind %d", (int)request->kind);
    if (r->kind == REQUEST_INFER)
        TRY(tensors_to_wire(r, request, err));
    return request_encode(r, encoder->head, encoder->iov, &encoder->n_iov, err);
}

enum status encoder_cancel(struct encoder *encoder, uint64_t id, uint64_t target, struct error *err)
{
    static const struct inferd_request empty;
    struct request *r = &encoder->request;
    head_to_wire(r, &empty, id);
    r->kind = REQUEST_CANCEL;
    r->target = target;
    return request_encode(r, encoder->head, encoder->iov, &encoder->n_iov, err);
}

/* --- prepared requests --- */

/*
 * Request.id is field 1, so its tag and varint come right behind the frame's head. A template is
 * encoded with an id whose varint takes ID_BYTES. Smaller ids are written with as many bytes, the
 * upper ones empty, which a varint may have.
 */
enum { ID_AT = FRAME_HEAD_BYTES + 1, ID_BYTES = 7, ID_TAG = 1 << 3 };
static const uint64_t template_id = UINT64_C(1) << 48;

void prepared_set_id(uint8_t *head, uint64_t id)
{
    for (int i = 0; i < ID_BYTES; i++) {
        head[ID_AT + i] = (uint8_t)((id & 0x7f) | (i + 1 < ID_BYTES ? 0x80 : 0));
        id >>= 7;
    }
}

static bool has_template_id(const struct encoder *encoder)
{
    uint8_t want[ID_AT + ID_BYTES];
    if (encoder->iov[0].iov_base != encoder->head || encoder->iov[0].iov_len < sizeof(want))
        return false;
    memcpy(want, encoder->head, sizeof(want));
    want[ID_AT - 1] = ID_TAG;
    prepared_set_id(want, template_id);
    return memcmp(want, encoder->head, sizeof(want)) == 0;
}

static struct inferd_prepared *prepared_make(const struct encoder *encoder)
{
    const uint8_t *end = encoder->head;
    for (uint32_t i = 0; i < encoder->n_iov; i++) {
        const uint8_t *base = encoder->iov[i].iov_base;
        if (base >= encoder->head && base < encoder->head + sizeof(encoder->head))
            end = base + encoder->iov[i].iov_len;
    }
    size_t size = (size_t)(end - encoder->head);
    struct inferd_prepared *p = malloc(sizeof(*p) + size);
    if (!p)
        return NULL;
    *p = (struct inferd_prepared){.n_iov = encoder->n_iov, .head_size = size};
    memcpy(p->head, encoder->head, size);
    for (uint32_t i = 0; i < p->n_iov; i++) {
        uint8_t *base = encoder->iov[i].iov_base;
        p->iov[i] = encoder->iov[i];
        if (base >= encoder->head && base < end)
            p->iov[i].iov_base = p->head + (base - encoder->head);
    }
    return p;
}

static enum status prepare(const struct inferd_request *request, struct inferd_prepared **out,
                           struct error *err)
{
    CLEANUP(cleanup_free) struct encoder *encoder = malloc(sizeof(*encoder));
    if (!encoder)
        return error_no_memory(err, "a request");
    TRY(encoder_request(encoder, request, template_id, err));
    if (!has_template_id(encoder))
        return error_set(err, STATUS_INTERNAL, "the encoder does not put the id first");
    struct inferd_prepared *prepared = prepared_make(encoder);
    if (!prepared)
        return error_no_memory(err, "a request");
    prepared->kind = request->kind;
    prepared->timeout_us = request->timeout_us;
    *out = prepared;
    return STATUS_OK;
}

enum inferd_status inferd_prepared_new(const struct inferd_request *request,
                                       struct inferd_prepared **out, struct inferd_error *user_err)
{
    struct error err;
    return prepare(request, out, &err) ? error_to_user(&err, user_err) : INFERD_OK;
}

void inferd_prepared_free(struct inferd_prepared *prepared)
{
    free(prepared);
}
