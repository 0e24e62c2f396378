/* SPDX-License-Identifier: Apache-2.0 */
/* The responses' bodies that describe the server, as public structs in the reply's arena. */
#ifndef INFERD_CLIENT_DESCRIBE_H
#define INFERD_CLIENT_DESCRIBE_H

#include "client/reply.h"

/* Decodes reply->wire.body as its kind says, and sets the response's pointer to it. */
enum status describe(struct reply *reply, struct error *err);

#endif
