/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many fields a message has. nanopb steps over unknown fields, and takes each of a thousand
 * values of a field that has one, without a word: a frame made of nothing else would cost its
 * decoder seconds. So whatever could hold more fields than are allowed is counted before it is
 * decoded, in all the messages within it that the decoder walks. Private to proto/.
 */
#ifndef INFERD_PROTO_WALK_H
#define INFERD_PROTO_WALK_H

#include "proto/message.h"

enum { PROTO_WALK_NUMBERS = 20, PROTO_WALK_BYTES_MIN = 2 };

/* The messages within a message that the decoder walks, by field number; what a callback takes as
 * a place and leaves as it is, is not among them. */
struct proto_walk {
    const struct proto_walk *of[PROTO_WALK_NUMBERS];
};

extern const struct proto_walk proto_walk_request, proto_walk_response;
extern const struct proto_walk proto_walk_server_metadata, proto_walk_model_metadata,
    proto_walk_statistics, proto_walk_index, proto_walk_server_status;

/*
 * INVALID_ARGUMENT: there are more than `max` fields in all, or what is walked is no message, which
 * includes numbers of more than ten bytes: nanopb would step over one of any length, byte by byte.
 * `what` names the message in the error. A message of PROTO_WALK_BYTES_MIN * max bytes is not
 * looked at: its fields cannot be more. At most `max` fields are walked.
 */
enum status proto_walk_check(const struct proto_walk *message, struct message_text wire,
                             uint32_t max, const char *what, struct error *err);

#endif
