/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The schema of all services that are offered over gRPC, as protoc describes it (a
 * FileDescriptorSet, made when the program is built), and what server reflection asks of it.
 */
#ifndef INFERD_PROTO_SCHEMA_H
#define INFERD_PROTO_SCHEMA_H

#include "proto/message.h"

extern const unsigned char schema_data[];
extern const size_t schema_data_size;

/* The encoded description of a file, by its name, or by the full name of something in it (a
 * message, an enumeration, a service, a method). Empty: there is none. */
struct message_text schema_file_named(struct message_text name);
struct message_text schema_file_of(struct message_text symbol);

/* The full name of the service of that number, from 0 on. False: there are no more. */
enum { SCHEMA_NAME_MAX = 128 };
bool schema_service(uint32_t number, char out[SCHEMA_NAME_MAX]);

/* Answers a ServerReflectionRequest of either version: writes the response to `out`. What there is
 * not is an answer, too. INVALID_ARGUMENT: malformed, or too long; INTERNAL: there is no room. */
enum { SCHEMA_REQUEST_MAX = 4096, SCHEMA_ANSWER_MAX = 64 * 1024 };
enum status schema_reflect(const void *request, size_t size, uint8_t *out, size_t *used,
                           struct error *err);

#endif
