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
    /* server_live, server_ready, model_ready: the answer; cancel: it was still waiting */
    bool yes;
    /* infer */
    struct message_text model, version, infer_id;
    uint32_t n_outputs;
    struct message_tensor outputs[MESSAGE_MAX_TENSORS];
    /* server_metadata, model_metadata, statistics, repository_index, server_status: the encoded
     * message; proto/body.h has its encoders and decoders */
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

/*
 * Decodes the message of one frame, with the caps and checks of request_decode. Texts and payloads
 * of `out` point into the message. Outputs that came typed are marked so.
 */
enum status response_decode(const void *message, size_t size, struct response *out,
                            struct error *err);

#endif
