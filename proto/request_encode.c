/* SPDX-License-Identifier: Apache-2.0 */
/* Encodes requests for clients; see request.h. */
#include "inferd.pb.h"
#include "proto/request.h"
#include "proto/writer.h"

static bool names_encode(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct request *r = *arg;
    for (uint32_t i = 0; i < r->n_outputs; i++) {
        inference_ModelInferRequest_InferRequestedOutputTensor m = {
            .name = proto_text_put(&r->outputs[i])};
        if (!pb_encode_tag_for_field(stream, field) ||
            !pb_encode_submessage(
                stream, inference_ModelInferRequest_InferRequestedOutputTensor_fields, &m))
            return false;
    }
    return true;
}

static enum status infer_put(struct proto_writer *w, const struct request *r, struct error *err)
{
    const struct proto_tensor_list inputs = {r->inputs, r->n_inputs};
    inference_ModelInferRequest m = {
        .model_name = proto_text_put(&r->model),
        .model_version = proto_text_put(&r->version),
        .id = proto_text_put(&r->infer_id),
        .inputs = proto_tensors_put(&inputs),
        .outputs = {.funcs.encode = names_encode, .arg = (void *)(uintptr_t)r},
    };
    return proto_writer_put_tensors(w, inferd_Request_infer_tag, inference_ModelInferRequest_fields,
                                    &m, inference_ModelInferRequest_raw_input_contents_tag,
                                    r->inputs, r->n_inputs, err);
}

/* Fills in a body without payloads, which nanopb encodes together with the fields above it. */
static void body_fill(inferd_Request *m, const struct request *r)
{
    m->which_body = (pb_size_t)r->kind;
    switch (r->kind) {
    case REQUEST_MODEL_READY:
    case REQUEST_MODEL_METADATA:
    case REQUEST_STATISTICS: /* alike, see request_decode.c */
        m->body.model_ready.name = proto_text_put(&r->model);
        m->body.model_ready.version = proto_text_put(&r->version);
        break;
    case REQUEST_REPOSITORY_INDEX:
        m->body.repository_index.ready = r->ready_only;
        break;
    case REQUEST_CANCEL:
        m->body.cancel.target = r->target;
        break;
    default:
        break;
    }
}

enum status request_encode(const struct request *request, void *head, struct iovec *iov,
                           uint32_t *n_iov, struct error *err)
{
    if (request->n_inputs > MESSAGE_MAX_TENSORS || request->n_outputs > MESSAGE_MAX_TENSORS)
        return error_set(err, STATUS_INVALID_ARGUMENT, "more than %d tensors", MESSAGE_MAX_TENSORS);
    struct proto_writer w;
    proto_writer_init(&w, head, iov);
    inferd_Request m = {.id = request->id,
                        .timeout_us = request->timeout_us,
                        .priority = request->priority,
                        .token = proto_text_put(&request->token),
                        .traceparent = proto_text_put(&request->traceparent)};
    if (request->kind != REQUEST_INFER)
        body_fill(&m, request);
    TRY(proto_writer_put(&w, inferd_Request_fields, &m, err));
    if (request->kind == REQUEST_INFER)
        TRY(infer_put(&w, request, err));
    return proto_writer_finish(&w, n_iov, err);
}
