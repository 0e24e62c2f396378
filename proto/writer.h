/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds a frame: encoded parts go into one head buffer, while payloads stay where they are and are
 * woven in between as iovecs. Private to proto/.
 */
#ifndef INFERD_PROTO_WRITER_H
#define INFERD_PROTO_WRITER_H

#include <pb_encode.h>
#include <sys/uio.h>

#include "proto/message.h"
#include "proto/response.h"

struct proto_writer {
    uint8_t *head; /* MESSAGE_HEAD_MAX bytes, the frame's length first */
    size_t used;
    size_t cut;   /* where the head's piece now growing began */
    size_t total; /* of the finished pieces */
    struct iovec *iov;
    uint32_t n_iov;
};

void proto_writer_init(struct proto_writer *w, void *head, struct iovec *iov);

/* Encodes a message's fields, flat. */
enum status proto_writer_put(struct proto_writer *w, const pb_msgdesc_t *fields,
                             const void *message, struct error *err);

/*
 * Encodes `message` as field `tag` of the message that was put before, or with `tag` 0 flat, as
 * that message itself. Within it the tensors' payloads follow as the repeated bytes field
 * `raw_tag`. It must be the frame's last field.
 */
enum status proto_writer_put_tensors(struct proto_writer *w, uint32_t tag,
                                     const pb_msgdesc_t *fields, const void *message,
                                     uint32_t raw_tag, const struct message_tensor *tensors,
                                     uint32_t n, struct error *err);

/* Puts the answer to an inference as field `tag`, or with `tag` 0 flat, in the same way. */
enum status proto_writer_put_infer(struct proto_writer *w, uint32_t tag,
                                   const struct response *response, struct error *err);

/* Puts an encoded message, by reference, as field `tag`. Must be the frame's last field. */
enum status proto_writer_put_payload(struct proto_writer *w, uint32_t tag,
                                     struct message_text payload, struct error *err);

/* Takes an encoded message, by reference, as the frame's whole content. */
void proto_writer_put_whole(struct proto_writer *w, struct message_text message);

/* Writes the frame's length and closes the last piece. */
enum status proto_writer_finish(struct proto_writer *w, uint32_t *n_iov, struct error *err);

/* nanopb callbacks. A text: arg is a const struct message_text. */
pb_callback_t proto_text_put(const struct message_text *text);

/* Tensors' names, dtypes and shapes; for inputs and outputs, whose messages are alike. */
struct proto_tensor_list {
    const struct message_tensor *items;
    uint32_t n;
};
pb_callback_t proto_tensors_put(const struct proto_tensor_list *list);

#endif
