/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counts the fields of a message. nanopb silently steps over unknown fields, and silently takes a
 * thousand values of a field that should come once: a frame made of nothing else would cost its
 * decoder seconds. So the fields of every message that is long enough to hold more than are allowed
 * are counted before it is decoded, with those of all messages within it that the decoder walks.
 * Private to proto/.
 */
#ifndef INFERD_PROTO_WALK_H
#define INFERD_PROTO_WALK_H

#include "proto/message.h"

enum { PROTO_WALK_NUMBERS = 20, PROTO_WALK_BYTES_MIN = 2 };

/* The messages within a message that the decoder walks, by field number. A field whose position a
 * callback only notes is not among them. */
struct proto_walk {
    const struct proto_walk *of[PROTO_WALK_NUMBERS];
};

extern const struct proto_walk proto_walk_request, proto_walk_infer, proto_walk_response;
extern const struct proto_walk proto_walk_server_metadata, proto_walk_model_metadata,
    proto_walk_statistics, proto_walk_index, proto_walk_server_status;

/*
 * INVALID_ARGUMENT: the message has more than `max` fields in all, or is malformed; a number of
 * more than ten bytes counts as malformed, because nanopb would step over one of any length, byte
 * by byte. `what` names the message in the error. A message of at most PROTO_WALK_BYTES_MIN * max
 * bytes is not looked at, as it cannot hold more fields. At most `max` fields are walked.
 */
enum status proto_walk_check(const struct proto_walk *message, struct message_text wire,
                             uint32_t max, const char *what, struct error *err);

#endif
