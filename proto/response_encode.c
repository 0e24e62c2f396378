/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes responses for the server; see response.h. */
#include "inferd.pb.h"
#include "proto/response.h"
#include "proto/writer.h"

enum status proto_writer_put_infer(struct proto_writer *w, uint32_t tag, const struct response *r,
                                   struct error *err)
{
    const struct proto_tensor_list outputs = {r->outputs, r->n_outputs};
    inference_ModelInferResponse m = {
        .model_name = proto_text_put(&r->model),
        .model_version = proto_text_put(&r->version),
        .id = proto_text_put(&r->infer_id),
        .outputs = proto_tensors_put(&outputs),
    };
    return proto_writer_put_tensors(w, tag, inference_ModelInferResponse_fields, &m,
                                    inference_ModelInferResponse_raw_output_contents_tag,
                                    r->outputs, r->n_outputs, err);
}

static void prefix_fill(inferd_Response *m, const struct response *r)
{
    m->id = r->id;
    m->status = (uint32_t)r->status;
    m->retry_after_us = r->retry_after_us;
    m->has_timing = r->timing.batch != 0;
    m->timing = (inferd_Timing){.queue_ns = r->timing.queue_ns,
                                .input_ns = r->timing.input_ns,
                                .compute_ns = r->timing.compute_ns,
                                .output_ns = r->timing.output_ns,
                                .batch = r->timing.batch};
    switch (r->kind) {
    case REQUEST_SERVER_LIVE:
    case REQUEST_SERVER_READY:
    case REQUEST_MODEL_READY:
    case REQUEST_CANCEL: /* four messages of one bool */
        m->which_body = (pb_size_t)r->kind;
        m->body.model_ready.ready = r->yes;
        break;
    default:
        break;
    }
}

enum status response_encode(const struct response *response, void *head, struct iovec *iov,
                            uint32_t *n_iov, struct error *err)
{
    if (response->n_outputs > MESSAGE_MAX_TENSORS)
        return error_set(err, STATUS_INTERNAL, "more than %d outputs", MESSAGE_MAX_TENSORS);
    struct proto_writer w;
    proto_writer_init(&w, head, iov);
    struct message_text message = response->message;
    /* A protobuf string is UTF-8, and the text may have been cut within a character before. */
    message.len = utf8_prefix(message.data, message.len, ERROR_TEXT_MAX);
    inferd_Response m = {.message = proto_text_put(&message)};
    prefix_fill(&m, response);
    TRY(proto_writer_put(&w, inferd_Response_fields, &m, err));
    if (response->kind == REQUEST_INFER)
        TRY(proto_writer_put_infer(&w, inferd_Response_infer_tag, response, err));
    else if (response->body.len)
        TRY(proto_writer_put_payload(&w, (uint32_t)response->kind, response->body, err));
    return proto_writer_finish(&w, n_iov, err);
}
