/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Responses: the server's encoder, and the client's decoder, which works in place. No I/O, no
 * allocation.
 */
#ifndef INFERD_PROTO_RESPONSE_H
#define INFERD_PROTO_RESPONSE_H

#include <sys/uio.h>

#include "proto/message.h"
#include "proto/request.h"

struct response_timing {
    uint64_t queue_ns, input_ns, compute_ns, output_ns;
    uint32_t batch; /* instances in the batch it ran in; 0: it did not run, the rest is not sent */
};

/* About 10 KiB: keep one for each thread, not one for each response. */
struct response {
    uint64_t id;
    enum status status;
    struct message_text message; /* the reason, if status is not OK */
    uint64_t retry_after_us;     /* 0: no hint */
    struct response_timing timing;
    enum request_kind kind; /* of the body; NONE: there is none (errors) */
    /* server_live, server_ready, model_ready: the answer; cancel: it was still waiting; a load or
     * unload: it is done (only JSON says so) */
    bool yes;
    /* infer */
    struct message_text model, version, infer_id;
    uint32_t n_outputs;
    struct message_tensor outputs[MESSAGE_MAX_TENSORS];
    /* server_metadata and all else that proto/body.h has: the encoded message */
    struct message_text body;
};

/*
 * Encodes a frame, its 4-byte head included, for the server's side. Encoded parts go to `head`
 * (MESSAGE_HEAD_MAX bytes); outputs' payloads and `body` stay where they are: `iov` gets at most
 * MESSAGE_MAX_IOV pieces. Every output has one entry in raw_output_contents. An error text is cut
 * at ERROR_TEXT_MAX bytes, or where it stops being UTF-8. INTERNAL: the frame would have 4 GiB or
 * more.
 */
enum status response_encode(const struct response *response, void *head, struct iovec *iov,
                            uint32_t *n_iov, struct error *err);

/* The bytes in front of a message of gRPC: whether it is compressed, and its length. */
enum { RESPONSE_OPEN_HEAD = 5, RESPONSE_OPEN_MAX = MESSAGE_HEAD_MAX + 8 };

/*
 * Encodes a response as a message of gRPC, its head of 5 bytes included, for the server's side; it
 * is the message that answers `response->kind` in the Open Inference Protocol. With `streamed` it
 * is a ModelStreamInferResponse, which may hold an error; otherwise errors are not encoded here.
 * `head` has RESPONSE_OPEN_MAX bytes; the rest is as for response_encode.
 */
enum status response_encode_open(const struct response *response, bool streamed, void *head,
                                 struct iovec *iov, uint32_t *n_iov, struct error *err);

/*
 * Decodes the message of one frame, with the caps and checks of request_decode. Texts and payloads
 * of `out` point into the message. Outputs that came typed are marked so.
 */
enum status response_decode(const void *message, size_t size, struct response *out,
                            struct error *err);

#endif
