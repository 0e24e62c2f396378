/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the decoders of requests and responses; private to proto/. */
#ifndef INFERD_PROTO_TENSOR_H
#define INFERD_PROTO_TENSOR_H

#include <pb_decode.h>

#include "proto/walk.h"

/*
 * One frame being decoded. nanopb hands a callback a field of the wrong wire type in a small buffer
 * on its own stack, so whoever records a position checks that it lies in the frame.
 */
struct proto_decoder {
    const uint8_t *begin, *end;
    struct error *err; /* if `failed`: a better reason than nanopb's */
    bool failed;
};

/* Fails the decoding with a reason for the peer; always false. */
bool proto_refuse(struct proto_decoder *decoder, const char *fmt, ...) PRINTF(2, 3);

/* Takes the rest of the stream as a place in the frame. */
bool proto_take(pb_istream_t *stream, struct proto_decoder *decoder, struct message_text *out);

/* A nanopb callback for one string or bytes field; arg is a struct proto_text. */
struct proto_text {
    struct proto_decoder *decoder;
    struct message_text *out;
};
bool proto_text_decode(pb_istream_t *stream, const pb_field_t *field, void **arg);

/* The callbacks of an input's or output's message: both have the same fields. */
struct proto_tensor {
    struct proto_decoder *decoder;
    struct message_tensor *out;
    struct proto_text name, datatype;
};
void proto_tensor_bind(struct proto_tensor *tensor, struct proto_decoder *decoder,
                       struct message_tensor *out, pb_callback_t *name, pb_callback_t *datatype,
                       pb_callback_t *shape, pb_callback_t *contents);

/* The entries of raw_input_contents or raw_output_contents, in order. */
struct proto_raw {
    struct proto_decoder *decoder;
    uint32_t n;
    struct message_text items[MESSAGE_MAX_TENSORS];
};
bool proto_raw_decode(pb_istream_t *stream, const pb_field_t *field, void **arg);

/* Called after decoding: joins the raw contents to the `n` tensors and checks their names, dtypes
 * and sizes. `what` is "input" or "output". */
enum status proto_tensors_finish(struct message_tensor *tensors, uint32_t n,
                                 const struct proto_raw *raw, const char *what, struct error *err);

/* Decodes a whole frame of at most MESSAGE_MAX_FIELDS fields, in it and in the messages of
 * `within`; on failure the reason is in `decoder->err`, and the status is returned. */
enum status proto_decode(struct proto_decoder *decoder, const void *frame, size_t size,
                         const struct proto_walk *within, const pb_msgdesc_t *fields, void *message,
                         const char *what);

#endif
