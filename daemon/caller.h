/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a connection remembers about the identity of its peer, so that a token is hashed only once,
 * and the kernel asked only once, for each snapshot of identities.
 *
 * A struct caller belongs to its connection and so to that loop's thread. All zeros stand for a
 * peer whose identity nobody has asked for yet.
 */
#ifndef INFERD_DAEMON_CALLER_H
#define INFERD_DAEMON_CALLER_H

#include "daemon/identity.h"

enum {
    /* Limits of a connection whose peer has shown nothing that gives it a right: the largest
     * message, the time to show a token, and how many unknown tokens it may try. */
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
 * Says who sent a request, by the snapshot `now`: whom the request's token stands for or, without a
 * token, the peer that the kernel shows for the socket `fd`. A token counts for its own request
 * alone.
 *
 * UNAUTHENTICATED: the token is not known. RESOURCE_EXHAUSTED: no memory to hash it. *out lives as
 * long as `now`.
 */
enum status caller_identify(struct caller *caller, struct identities *now, int fd,
                            struct message_text token, const struct identity **out,
                            struct error *err);

/* Says whether the peer is a stranger, to whom the limits above apply: nothing that it has shown so
 * far gives it a right. */
bool caller_is_stranger(struct caller *caller, struct identities *now, int fd);

/* Asks the kernel for the process at the other end of a connected socket. */
void credentials_read(int fd, struct credentials *out);

#endif
