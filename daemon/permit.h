/* SPDX-License-Identifier: Apache-2.0 */
/* Which right a request takes, and whether who asks has it. */
#ifndef INFERD_DAEMON_PERMIT_H
#define INFERD_DAEMON_PERMIT_H

#include "daemon/caller.h"
#include "proto/request.h"

/*
 * Before anything of a decoded request is looked at: whether it may be answered. *out, on success,
 * is who asks (identity_priority is for its inferences).
 *
 * UNAUTHENTICATED: the token is not known, or there is none and one would be needed.
 * PERMISSION_DENIED: who asks is known and has no right to this. RESOURCE_EXHAUSTED: no memory to
 * look at the token. The text is for the peer and does not depend on which models there are.
 */
enum status permit_request(struct caller *caller, struct identities *now, int fd,
                           const struct request *request, const struct identity **out,
                           struct error *err);
/* Of a request that is permitted: it might have been about `model` as well, which may therefore be
 * named to who asks. */
bool permit_sees(const struct caller *caller, const struct identities *now,
                 const struct request *request, const char *model);
/* After a refusal with `status`: whether nobody was refused this before under that name, since the
 * last reload. The log gets a line then; the counters count all. */
bool permit_refusal_is_news(const struct caller *caller, struct identities *now,
                            const struct request *request, enum status status);

/*
 * A message that is larger than CALLER_FRAME_MOST begins on a connection that caller_is_stranger:
 * OK if its token, in the bytes that are there, gives it a right; UNAVAILABLE if more bytes may
 * show one; else UNAUTHENTICATED.
 */
enum status permit_large(struct caller *caller, struct identities *now, int fd, const void *message,
                         size_t size, struct error *err);

#endif
