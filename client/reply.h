/* SPDX-License-Identifier: Apache-2.0 */
/* A response's frame as the public struct: payloads in place, texts copied to terminate them. */
#ifndef INFERD_CLIENT_REPLY_H
#define INFERD_CLIENT_REPLY_H

#include "base/arena.h"
#include "client/client.h"
#include "proto/response.h"

enum {
    /* Every text of a response at its greatest length: names, model, version, message. */
    REPLY_TEXT = (MESSAGE_MAX_TENSORS + 2) * (MESSAGE_MAX_NAME + 1) + ERROR_TEXT_MAX,
    /* The most bytes of its description that a server can make us keep. */
    REPLY_BODY_MAX = 64 * 1024 * 1024,
};

/* About 25 KB; one for each connection. */
struct reply {
    struct response wire;
    struct inferd_response response;
    struct inferd_tensor outputs[MESSAGE_MAX_TENSORS];
    char text[REPLY_TEXT];
    size_t text_used;
    struct arena *arena; /* of the body, if there is one */
    union {
        struct inferd_server server;
        struct inferd_metadata metadata;
        struct inferd_statistics statistics;
        struct inferd_index index;
        struct inferd_status_page status_page;
    } body;
};

void reply_deinit(struct reply *reply);

/* Decodes into reply->response, but for its `kind`. */
enum status reply_decode(struct reply *reply, const void *message, size_t size, struct error *err);

/* Sets the kind, and says whether the decoded body is what a request of `kind` asks for. An error
 * fits every kind. */
bool reply_fits(struct reply *reply, enum inferd_kind kind);

/* A response that the library itself gives; `reason` is copied. */
void reply_make(struct reply *reply, uint64_t id, enum inferd_kind kind, enum status status,
                const char *reason);

#endif
