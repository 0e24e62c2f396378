/* SPDX-License-Identifier: Apache-2.0 */
/* Which right a request takes, and whether the identity that asks has it. */
#ifndef INFERD_DAEMON_PERMIT_H
#define INFERD_DAEMON_PERMIT_H

#include "daemon/caller.h"
#include "proto/request.h"

/*
 * Whether a decoded request may be answered; called before anything of it is looked at. On success
 * *out is the identity that asks (identity_priority is for its inferences).
 *
 * UNAUTHENTICATED: the token is not known, or there is none and one would be needed.
 * PERMISSION_DENIED: the identity is known and has no right to this. RESOURCE_EXHAUSTED: no memory
 * to look at the token. The text is for the peer and does not depend on which models there are.
 */
enum status permit_request(struct caller *caller, struct identities *now, int fd,
                           const struct request *request, const struct identity **out,
                           struct error *err);
/* Whether a request that is permitted might have been about `model` as well, so that the answer may
 * name that model. */
bool permit_sees(const struct caller *caller, const struct identities *now,
                 const struct request *request, const char *model);
/* After a refusal with `status`: whether this identity is refused this right for the first time
 * since the last reload. Only then does the log get a line; the counters count all refusals. */
bool permit_refusal_is_news(const struct caller *caller, struct identities *now,
                            const struct request *request, enum status status);

/*
 * Called when a message larger than CALLER_FRAME_MOST begins on a connection that
 * caller_is_stranger. OK: the bytes that are there hold a token that gives the caller a right.
 * UNAVAILABLE: more bytes may show one. UNAUTHENTICATED: neither.
 */
enum status permit_large(struct caller *caller, struct identities *now, int fd, const void *message,
                         size_t size, struct error *err);

#endif
