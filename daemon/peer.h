/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where connections come from, and what each place uses: one record for each address (an IPv6
 * network of 64 bits, which is what one host can have, counts as one) and for each user at a unix
 * socket. So a peer gains nothing by opening more connections.
 *
 * A limit of 0 in the configuration means half of the total for addresses of other machines, and no
 * limit for this machine's own: a proxy in front of the daemon speaks for many.
 *
 * The control thread finds and forgets records; loops change their sums from any thread.
 */
#ifndef INFERD_DAEMON_PEER_H
#define INFERD_DAEMON_PEER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "base/compiler.h"
#include "config/config.h"

enum { PEER_KEY = 20 };

struct peer {
    uint8_t key[PEER_KEY]; /* kind, then address or user */
    bool local;            /* this machine's */
    /* Relaxed: sums that guard no other data. But `connections` is released on the way down, so
     * that the thread that forgets a record sees that nobody uses it. */
    _Atomic uint32_t connections, requests;
    _Atomic uint64_t bytes;
    struct peer *next; /* of its bucket */
};

struct peers;

/* NULL: no memory. */
struct peers *peers_new(void);
void peers_free(struct peers *peers); /* NULL is fine; all must have left */

/* The record for the other end of `fd`, which counts one more connection. NULL: no memory. Now and
 * then it forgets records that nobody uses. The control thread. */
struct peer *peers_meet(struct peers *peers, int fd);
/* Any thread. NULL is fine. */
void peer_leave(struct peer *peer);

/* What a peer may use: the configured limit, or what 0 means where all have `total` together. */
uint64_t peer_most(const struct peer *peer, uint64_t configured, uint64_t total);
static inline uint32_t peer_connections(const struct peer *peer)
{
    return atomic_load_explicit(&peer->connections, memory_order_relaxed);
}

/* Books a request or `n` bytes. False, and nothing is booked: that would be more than `most`. A
 * peer of NULL has no limit. */
bool peer_requests_in(struct peer *peer, uint64_t most) MUST_USE;
void peer_requests_out(struct peer *peer);
bool peer_bytes_in(struct peer *peer, uint64_t n, uint64_t most) MUST_USE;
void peer_bytes_force(struct peer *peer, uint64_t n); /* what cannot be refused */
void peer_bytes_out(struct peer *peer, uint64_t n);

#endif
