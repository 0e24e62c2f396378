/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a connection remembers of who its peer is: so that a token is hashed once, and the kernel is
 * asked once, for each snapshot of identities.
 *
 * It belongs to the connection and so to its loop's thread; zero is a peer that was not asked yet.
 */
#ifndef INFERD_DAEMON_CALLER_H
#define INFERD_DAEMON_CALLER_H

#include "daemon/identity.h"

enum {
    /* Of a connection that has shown nothing which gives it a right: the largest message, the time
     * to show something, and how many unknown tokens it may try. */
    CALLER_FRAME_MOST = 64 * 1024,
    CALLER_WAIT_MS = 2000,
    CALLER_REFUSED_MOST = 8,
};

struct caller {
    struct identities *from;         /* a reference; NULL: not asked yet */
    const struct identity *silent;   /* who it is without a token */
    const struct identity *by_token; /* who the token says it is; NULL: unknown */
    uint32_t refused;                /* unknown tokens */
    bool accepted;                   /* it has shown something that gives it a right */
    uint32_t token_len;              /* 0: none */
    char token[TOKEN_MOST];
};

void caller_deinit(struct caller *caller);

/*
 * Who asks, as of `now`: whom the token of the request stands for, or who the socket `fd` says it
 * is if the request has none. A token counts for its own request alone.
 *
 * UNAUTHENTICATED: the token is not known. RESOURCE_EXHAUSTED: no memory to hash it. *out lives as
 * long as `now`.
 */
enum status caller_identify(struct caller *caller, struct identities *now, int fd,
                            struct message_text token, const struct identity **out,
                            struct error *err);

/* The small limits hold for it: nothing that it has shown so far gives it a right. */
bool caller_is_stranger(struct caller *caller, struct identities *now, int fd);

/* The process at the other end of a connected socket. */
void credentials_read(int fd, struct credentials *out);

#endif
