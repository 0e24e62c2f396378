/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes responses as messages of gRPC; see response.h. A frame of ours begins with a length of
 * four bytes, and so does a message of gRPC behind its first byte.
 */
#include "inference.pb.h"
#include "proto/frame.h"
#include "proto/response.h"
#include "proto/writer.h"

static enum status streamed_error_put(struct proto_writer *w, const struct response *r,
                                      struct error *err)
{
    struct message_text text = r->message;
    text.len = utf8_prefix(text.data, text.len, ERROR_TEXT_MAX);
    inference_ModelStreamInferResponse m = {.error_message = proto_text_put(&text),
                                            .has_infer_response = true,
                                            .infer_response = {.id = proto_text_put(&r->infer_id)}};
    return proto_writer_put(w, inference_ModelStreamInferResponse_fields, &m, err);
}

/* The answer to one of these three questions is a message of one bool. */
static enum status yes_put(struct proto_writer *w, const struct response *r, struct error *err)
{
    const inference_ModelReadyResponse m = {.ready = r->yes};
    return proto_writer_put(w, inference_ModelReadyResponse_fields, &m, err);
}

static enum status message_put(struct proto_writer *w, const struct response *r, bool streamed,
                               struct error *err)
{
    switch (r->kind) {
    case REQUEST_INFER:
        return proto_writer_put_infer(
            w, streamed ? inference_ModelStreamInferResponse_infer_response_tag : 0, r, err);
    case REQUEST_SERVER_LIVE:
    case REQUEST_SERVER_READY:
    case REQUEST_MODEL_READY:
        return yes_put(w, r, err);
    default:
        if (r->body.len)
            proto_writer_put_whole(w, r->body);
        return STATUS_OK;
    }
}

enum status response_encode_open(const struct response *response, bool streamed, void *head,
                                 struct iovec *iov, uint32_t *n_iov, struct error *err)
{
    uint8_t *flag = head;
    struct proto_writer w;
    proto_writer_init(&w, flag + 1, iov);
    if (response->status)
        TRY(streamed_error_put(&w, response, err));
    else
        TRY(message_put(&w, response, streamed, err));
    TRY(proto_writer_finish(&w, n_iov, err));
    *flag = 0; /* not compressed */
    iov[0] = (struct iovec){flag, iov[0].iov_len + 1};
    return STATUS_OK;
}
