/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the public request and encodes it as a frame: head and payloads as iovecs. Also makes
 * prepared requests: only their id is written anew for each send.
 */
#ifndef INFERD_CLIENT_ENCODER_H
#define INFERD_CLIENT_ENCODER_H

#include <sys/uio.h>

#include "client/client.h"
#include "proto/request.h"

/* About 35 KB; one for each connection. */
struct encoder {
    struct request request;
    uint8_t head[MESSAGE_HEAD_MAX];
    struct iovec iov[MESSAGE_MAX_IOV];
    uint32_t n_iov;
};

/* Encode into encoder->iov, which points into the encoder and at the tensors' data. */
enum status encoder_request(struct encoder *encoder, const struct inferd_request *request,
                            uint64_t id, struct error *err);
enum status encoder_cancel(struct encoder *encoder, uint64_t id, uint64_t target,
                           struct error *err);

/* The id of the request that cancels `target`: ids in flight never have that bit. */
#define CANCEL_ID(target) ((target) | UINT64_C(1) << 62)

struct inferd_prepared {
    enum inferd_kind kind;
    uint64_t timeout_us;
    uint32_t n_iov;
    struct iovec iov[MESSAGE_MAX_IOV]; /* iov[0] is the head's first piece, in `head` */
    size_t head_size;
    uint8_t head[]; /* the pieces of the head one after the other */
};

/* Writes the id into `head`, a copy of a prepared request's first piece. */
void prepared_set_id(uint8_t *head, uint64_t id);

/* The protocol's kind for a public one. */
enum request_kind kind_to_wire(enum inferd_kind kind);

/* Copies an internal error to the user's, which may be NULL, and returns its code. */
enum inferd_status error_to_user(const struct error *from, struct inferd_error *to);

#endif
