/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes responses in place, for clients; see response.h. */
#include "inferd.pb.h"
#include "proto/response.h"
#include "proto/tensor.h"

struct decoding {
    struct proto_decoder decoder;
    struct response *out;
    struct proto_raw raw;
    struct proto_text message, model, version, infer_id;
};

static bool output_decode(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    struct decoding *d = *arg;
    if (d->out->n_outputs == MESSAGE_MAX_TENSORS)
        return proto_refuse(&d->decoder, "more than %d outputs", MESSAGE_MAX_TENSORS);
    struct proto_tensor tensor;
    inference_ModelInferResponse_InferOutputTensor m = {0};
    proto_tensor_bind(&tensor, &d->decoder, &d->out->outputs[d->out->n_outputs++], &m.name,
                      &m.datatype, &m.shape, &m.contents);
    return pb_decode(stream, inference_ModelInferResponse_InferOutputTensor_fields, &m);
}

static pb_callback_t text_callback(struct proto_text *text)
{
    return (pb_callback_t){.funcs.decode = proto_text_decode, .arg = text};
}

/* Called when a member of the oneof begins. A body that body.h decodes is kept as encoded bytes. */
static bool body_begin(pb_istream_t *stream, const pb_field_t *field, void **arg)
{
    struct decoding *d = *arg;
    if (d->out->kind != REQUEST_NONE)
        return proto_refuse(&d->decoder, "a response has one body, this one has two");
    d->out->kind = (enum request_kind)field->tag;
    switch (field->tag) {
    case inferd_Response_infer_tag: {
        inference_ModelInferResponse *m = field->pData;
        m->model_name = text_callback(&d->model);
        m->model_version = text_callback(&d->version);
        m->id = text_callback(&d->infer_id);
        m->outputs = (pb_callback_t){.funcs.decode = output_decode, .arg = d};
        m->raw_output_contents = (pb_callback_t){.funcs.decode = proto_raw_decode, .arg = &d->raw};
        return true;
    }
    case inferd_Response_server_live_tag:
    case inferd_Response_server_ready_tag:
    case inferd_Response_model_ready_tag:
    case inferd_Response_cancel_tag:
        return true;
    default:
        return proto_take(stream, &d->decoder, &d->out->body);
    }
}

static void response_clear(struct response *r)
{
    const struct message_text none = {0};
    r->id = r->retry_after_us = 0;
    r->status = STATUS_OK;
    r->timing = (struct response_timing){0};
    r->kind = REQUEST_NONE;
    r->yes = false;
    r->n_outputs = 0;
    r->message = r->model = r->version = r->infer_id = r->body = none;
}

enum status response_decode(const void *message, size_t size, struct response *out,
                            struct error *err)
{
    response_clear(out);
    struct decoding d;
    d.decoder.err = err;
    d.out = out;
    d.raw.decoder = &d.decoder;
    d.raw.n = 0;
    d.message = (struct proto_text){&d.decoder, &out->message};
    d.model = (struct proto_text){&d.decoder, &out->model};
    d.version = (struct proto_text){&d.decoder, &out->version};
    d.infer_id = (struct proto_text){&d.decoder, &out->infer_id};
    inferd_Response m = {.message = text_callback(&d.message),
                         .cb_body = {.funcs.decode = body_begin, .arg = &d}};

    TRY(proto_decode(&d.decoder, message, size, &proto_walk_response, inferd_Response_fields, &m,
                     "response"));
    out->id = m.id;
    out->status = m.status < STATUS_COUNT_ ? (enum status)m.status : STATUS_UNKNOWN;
    out->retry_after_us = m.retry_after_us;
    if (m.has_timing)
        out->timing =
            (struct response_timing){m.timing.queue_ns, m.timing.input_ns, m.timing.compute_ns,
                                     m.timing.output_ns, m.timing.batch};
    /* These four messages are alike: one bool. */
    if (out->kind == REQUEST_SERVER_LIVE || out->kind == REQUEST_SERVER_READY ||
        out->kind == REQUEST_MODEL_READY || out->kind == REQUEST_CANCEL)
        out->yes = m.body.model_ready.ready;
    if (out->kind != REQUEST_INFER)
        return STATUS_OK;
    return proto_tensors_finish(out->outputs, out->n_outputs, &d.raw, "output", err);
}
