/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes requests in place; see request.h. Recursion is as deep as the schema: five messages. */
#include "inferd.pb.h"
#include "proto/request.h"
#include "proto/tensor.h"
#include "proto/wire.h"

_Static_assert(REQUEST_INFER == inferd_Request_infer_tag, "kinds are field numbers");
_Static_assert(REQUEST_SERVER_LIVE == inferd_Request_server_live_tag, "kinds are field numbers");
_Static_assert(REQUEST_SERVER_READY == inferd_Request_server_ready_tag, "kinds are field numbers");
_Static_assert(REQUEST_MODEL_READY == inferd_Request_model_ready_tag, "kinds are field numbers");
_Static_assert(REQUEST_SERVER_METADATA == inferd_Request_server_metadata_tag, "as above");
_Static_assert(REQUEST_MODEL_METADATA == inferd_Request_model_metadata_tag, "as above");
_Static_assert(REQUEST_STATISTICS == inferd_Request_statistics_tag, "kinds are field numbers");
_Static_assert(REQUEST_REPOSITORY_INDEX == inferd_Request_repository_index_tag, "as above");
_Static_assert(REQUEST_CANCEL == inferd_Request_cancel_tag, "kinds are field numbers");
_Static_assert(REQUEST_SERVER_STATUS == inferd_Request_server_status_tag, "as above");

struct decoding {
    struct proto_decoder decoder;
    struct request *out;
    bool open; /* at a door where parameters say what the frame's own fields say at ours */
    struct proto_raw raw;
    struct proto_text token, traceparent, model, version, infer_id;
    uint32_t n_parameters; /* of the request, its inputs and its outputs */
};

/* Reads a parameter's value: of several, the last counts. */
static void value_take(struct message_text value, struct request_parameter *out)
{
    struct wire w = wire_of(value.data, value.len);
    struct wire_field field;
    out->kind = REQUEST_VALUE_TEXT;
    for (int n = 0; n < MESSAGE_MAX_FIELDS && wire_next(&w, &field); n++) {
        uint64_t number = 0;
        if (field.number == inference_InferParameter_string_param_tag && field.type == WIRE_BYTES) {
            out->kind = REQUEST_VALUE_TEXT;
            out->text =
                (struct message_text){(const char *)field.value.at, wire_left(&field.value)};
        } else if (field.number == inference_InferParameter_double_param_tag &&
                   field.type == WIRE_64) {
            out->kind = REQUEST_VALUE_DOUBLE;
            memcpy(&out->real, field.value.at, sizeof(out->real));
        } else if (field.type == WIRE_VARINT && wire_varint(&field.value, &number)) {
            bool large =
                field.number == inference_InferParameter_uint64_param_tag && number > INT64_MAX;
            out->kind = field.number == inference_InferParameter_bool_param_tag ? REQUEST_VALUE_BOOL
                                                                                : REQUEST_VALUE_INT;
            out->number = large ? INT64_MAX : (int64_t)number;
        }
    }
}

static bool parameter_decode(pb_istream_t *stream, enum request_place place, struct decoding *d)
{
    struct request_parameter parameter = {0};
    struct message_text value = {0};
    struct proto_text key = {&d->decoder, &parameter.key}, text = {&d->decoder, &value};
    struct error err;
    if (d->n_parameters++ == MESSAGE_MAX_PARAMETERS)
        return proto_refuse(&d->decoder, "more than %d parameters", MESSAGE_MAX_PARAMETERS);
    /* the entries of the three maps are alike: key = 1, value = 2 */
    inference_ModelInferRequest_ParametersEntry m = {
        .key = {.funcs.decode = proto_text_decode, .arg = &key},
        .value = {.funcs.decode = proto_text_decode, .arg = &text}};
    if (!pb_decode(stream, inference_ModelInferRequest_ParametersEntry_fields, &m))
        return false;
    value_take(value, &parameter);
    if (!request_parameter(d->out, place, &parameter, d->open, &err))
        return true;
    return proto_refuse(&d->decoder, "%s", err.text);
}

static bool parameter_of_request(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    return parameter_decode(stream, REQUEST_PLACE_REQUEST, *arg);
}

static bool parameter_of_input(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    return parameter_decode(stream, REQUEST_PLACE_INPUT, *arg);
}

static bool parameter_of_output(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    return parameter_decode(stream, REQUEST_PLACE_OUTPUT, *arg);
}

static bool input_decode(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    struct decoding *d = *arg;
    if (d->out->n_inputs == MESSAGE_MAX_TENSORS)
        return proto_refuse(&d->decoder, "more than %d inputs", MESSAGE_MAX_TENSORS);
    struct proto_tensor tensor;
    inference_ModelInferRequest_InferInputTensor m = {
        .parameters = {.funcs.decode = parameter_of_input, .arg = d}};
    proto_tensor_bind(&tensor, &d->decoder, &d->out->inputs[d->out->n_inputs++], &m.name,
                      &m.datatype, &m.shape, &m.contents);
    return pb_decode_ex(stream, inference_ModelInferRequest_InferInputTensor_fields, &m,
                        PB_DECODE_NOINIT);
}

static bool output_decode(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    struct decoding *d = *arg;
    if (d->out->n_outputs == MESSAGE_MAX_TENSORS)
        return proto_refuse(&d->decoder, "more than %d outputs", MESSAGE_MAX_TENSORS);
    d->out->classes[d->out->n_outputs] = 0;
    d->out->regions[d->out->n_outputs] = (struct message_region){0};
    struct message_text *out = &d->out->outputs[d->out->n_outputs++];
    *out = (struct message_text){0};
    struct proto_text name = {&d->decoder, out};
    inference_ModelInferRequest_InferRequestedOutputTensor m = {
        .name = {.funcs.decode = proto_text_decode, .arg = &name},
        .parameters = {.funcs.decode = parameter_of_output, .arg = d}};
    return pb_decode(stream, inference_ModelInferRequest_InferRequestedOutputTensor_fields, &m);
}

static pb_callback_t text_callback(struct proto_text *text)
{
    return (pb_callback_t){.funcs.decode = proto_text_decode, .arg = text};
}

static void infer_bind(struct decoding *d, inference_ModelInferRequest *m)
{
    m->model_name = text_callback(&d->model);
    m->model_version = text_callback(&d->version);
    m->id = text_callback(&d->infer_id);
    m->parameters = (pb_callback_t){.funcs.decode = parameter_of_request, .arg = d};
    m->inputs = (pb_callback_t){.funcs.decode = input_decode, .arg = d};
    m->outputs = (pb_callback_t){.funcs.decode = output_decode, .arg = d};
    m->raw_input_contents = (pb_callback_t){.funcs.decode = proto_raw_decode, .arg = &d->raw};
}

/* Called when a member of the oneof begins, with the member zeroed: sets its callbacks. */
static bool body_begin(pb_istream_t *stream UNUSED, const pb_field_t *field, void **arg)
{
    struct decoding *d = *arg;
    if (d->out->kind != REQUEST_NONE)
        return proto_refuse(&d->decoder, "a request has one body, this one has two");
    d->out->kind = (enum request_kind)field->tag;
    switch (field->tag) {
    case inferd_Request_infer_tag:
        infer_bind(d, field->pData);
        break;
    case inferd_Request_model_ready_tag:
    case inferd_Request_model_metadata_tag:
    case inferd_Request_statistics_tag: {
        /* The three messages are alike: name = 1, version = 2. */
        inference_ModelReadyRequest *m = field->pData;
        m->name = text_callback(&d->model);
        m->version = text_callback(&d->version);
        break;
    }
    default:
        break;
    }
    return true;
}

_Static_assert(sizeof(inference_ModelReadyRequest) == sizeof(inference_ModelMetadataRequest) &&
                   sizeof(inference_ModelReadyRequest) == sizeof(inference_ModelStatisticsRequest),
               "bound as one above");

/* Walks the top level alone, so that a message which cannot be decoded still gets its reply. */
uint64_t request_id_find(const void *message, size_t size)
{
    struct wire w = wire_of(message, size);
    struct wire_field field;
    uint64_t id = 0;
    for (int n = 0; n < MESSAGE_MAX_FIELDS && wire_next(&w, &field); n++)
        if (field.number == inferd_Request_id_tag && field.type == WIRE_VARINT)
            wire_varint(&field.value, &id);
    return id;
}

/* Says why a request has no body that this server knows. A newer client's question is another
 * member of the oneof: a message, whose number is that of the first body or higher. */
static enum status no_body(const void *message, size_t size, struct error *err)
{
    struct wire w = wire_of(message, size);
    struct wire_field field;
    for (int n = 0; n < MESSAGE_MAX_FIELDS && wire_next(&w, &field); n++)
        if (field.number >= inferd_Request_infer_tag && field.type == WIRE_BYTES)
            return error_set(err, STATUS_UNIMPLEMENTED,
                             "this server does not know the body of field %u", field.number);
    return error_set(err, STATUS_INVALID_ARGUMENT, "the request has no body");
}

enum status request_texts_check(const struct request *r, struct error *err)
{
    if (r->token.len > MESSAGE_MAX_TOKEN)
        return error_set(err, STATUS_INVALID_ARGUMENT, "the token is longer than %d bytes",
                         MESSAGE_MAX_TOKEN);
    if (r->infer_id.len > MESSAGE_MAX_ID)
        return error_set(err, STATUS_INVALID_ARGUMENT, "the id is longer than %d bytes",
                         MESSAGE_MAX_ID);
    if (r->infer_id.len && !utf8_ok(r->infer_id.data, r->infer_id.len))
        return error_set(err, STATUS_INVALID_ARGUMENT, "the id '%.*s' is not UTF-8",
                         MESSAGE_TEXT(r->infer_id));
    if (r->model.len && !message_name_ok(r->model))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "'%.*s' is no model name: 1 to %d of [A-Za-z0-9._-], no leading dot",
                         MESSAGE_TEXT(r->model), MESSAGE_MAX_NAME);
    if (r->version.len && !message_name_ok(r->version))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "'%.*s' is no version: 1 to %d of [A-Za-z0-9._-], no leading dot",
                         MESSAGE_TEXT(r->version), MESSAGE_MAX_NAME);
    return STATUS_OK;
}

/* A region says where, and how much. */
static enum status region_check(const struct message_region *region, const char *what,
                                struct message_text name, struct error *err)
{
    bool named = region->name.len > 0;
    if (named == region->sized && (named || !region->offset))
        return STATUS_OK;
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     "%s '%.*s': expected shared_memory_region and shared_memory_byte_size "
                     "together",
                     what, MESSAGE_TEXT(name));
}

static enum status regions_check(const struct request *r, struct error *err)
{
    for (uint32_t i = 0; i < r->n_inputs; i++)
        TRY(region_check(&r->inputs[i].region, "input", r->inputs[i].name, err));
    for (uint32_t i = 0; i < r->n_outputs; i++) {
        TRY(region_check(&r->regions[i], "output", r->outputs[i], err));
        if (r->regions[i].sized && r->classes[i])
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "output '%.*s': classes are texts, which go into no region",
                             MESSAGE_TEXT(r->outputs[i]));
    }
    return STATUS_OK;
}

enum status request_outputs_check(const struct request *r, struct error *err)
{
    TRY(regions_check(r, err));
    for (uint32_t i = 0; i < r->n_outputs; i++) {
        if (!message_tensor_name_ok(r->outputs[i]))
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "requested output %u: the name '%.*s' is not 1 to %d printable "
                             "characters",
                             i, MESSAGE_TEXT(r->outputs[i]), MESSAGE_MAX_NAME);
        for (uint32_t k = 0; k < i; k++)
            if (message_text_equal(r->outputs[i], r->outputs[k]))
                return error_set(err, STATUS_INVALID_ARGUMENT,
                                 "requested output '%.*s' is there twice",
                                 MESSAGE_TEXT(r->outputs[i]));
    }
    return STATUS_OK;
}

static enum status request_check(struct request *r, const struct proto_raw *raw, struct error *err)
{
    TRY(request_texts_check(r, err));
    if (r->kind != REQUEST_INFER)
        return STATUS_OK;
    if (!r->model.len)
        return error_set(err, STATUS_INVALID_ARGUMENT, "the request names no model");
    TRY(request_outputs_check(r, err));
    return proto_tensors_finish(r->inputs, r->n_inputs, raw, "input", err);
}

void request_clear(struct request *r)
{
    const struct message_text none = {0};
    r->id = r->timeout_us = r->target = 0;
    r->priority = r->n_inputs = r->n_outputs = r->n_settings = 0;
    r->kind = REQUEST_NONE;
    r->ready_only = r->dependents = false;
    r->token = r->traceparent = r->model = r->version = r->infer_id = none;
    r->region = (struct request_region){0};
}

static void decoding_begin(struct decoding *d, struct request *out, bool open, struct error *err)
{
    request_clear(out);
    d->decoder.err = err;
    d->out = out;
    d->open = open;
    d->raw.decoder = &d->decoder;
    d->raw.n = 0;
    d->n_parameters = 0;
    d->token = (struct proto_text){&d->decoder, &out->token};
    d->traceparent = (struct proto_text){&d->decoder, &out->traceparent};
    d->model = (struct proto_text){&d->decoder, &out->model};
    d->version = (struct proto_text){&d->decoder, &out->version};
    d->infer_id = (struct proto_text){&d->decoder, &out->infer_id};
}

enum status request_decode_infer(const void *message, size_t size, struct request *out,
                                 struct error *err)
{
    struct decoding d;
    decoding_begin(&d, out, true, err);
    out->kind = REQUEST_INFER;
    inference_ModelInferRequest m = {0};
    infer_bind(&d, &m);
    TRY(proto_decode(&d.decoder, message, size, &proto_walk_infer,
                     inference_ModelInferRequest_fields, &m, "request"));
    return request_check(out, &d.raw, err);
}

enum status request_decode(const void *message, size_t size, struct request *out, struct error *err)
{
    struct decoding d;
    decoding_begin(&d, out, false, err);
    inferd_Request m = {.token = text_callback(&d.token),
                        .traceparent = text_callback(&d.traceparent),
                        .cb_body = {.funcs.decode = body_begin, .arg = &d}};

    enum status status = proto_decode(&d.decoder, message, size, &proto_walk_request,
                                      inferd_Request_fields, &m, "request");
    if (status) {
        out->id = request_id_find(message, size);
        return status;
    }
    out->id = m.id;
    out->timeout_us = m.timeout_us;
    out->priority = m.priority;
    if (out->kind == REQUEST_REPOSITORY_INDEX)
        out->ready_only = m.body.repository_index.ready;
    if (out->kind == REQUEST_CANCEL)
        out->target = m.body.cancel.target;
    if (out->kind == REQUEST_NONE)
        return no_body(message, size, err);
    return request_check(out, &d.raw, err);
}
