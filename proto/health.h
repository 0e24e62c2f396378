/* SPDX-License-Identifier: Apache-2.0 */
/* gRPC's health checks, grpc.health.v1: the question, and the answer. */
#ifndef INFERD_PROTO_HEALTH_H
#define INFERD_PROTO_HEALTH_H

#include "proto/message.h"

/* The protocol's numbers. */
enum health_state { HEALTH_SERVING = 1, HEALTH_NOT_SERVING = 2, HEALTH_SERVICE_UNKNOWN = 3 };

enum { HEALTH_MAX = 8 }; /* bytes of an answer */

/* *service lies in the message; empty: the whole server. INVALID_ARGUMENT: malformed. */
enum status health_decode(const void *message, size_t size, struct message_text *service,
                          struct error *err);
/* Writes an answer; returns its size. */
size_t health_encode(enum health_state state, char out[HEALTH_MAX]);

#endif
