/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS 1.2 and 1.3 under any session, by OpenSSL: the connection sends and receives through a struct
 * tls_peer instead of its socket, and the session sees no difference.
 *
 * Certificate, key and the authorities of clients' certificates are an immutable snapshot. It is
 * read again with each reload and travels with the table of models, as identities do: connections
 * that are open keep what they began with, and a reload whose files do not fit together changes
 * nothing. With authorities, clients without a certificate by one of them do not get in (mutual
 * TLS).
 *
 * Nothing waits. What is sent is encrypted a record (16 KiB) at a time into memory of the peer, and
 * the next record only once the socket has taken the last one: a reader that is slow costs one
 * record, and what comes behind it stays the connection's backlog.
 *
 * Threads: a snapshot is read and made on the loader's thread, and used on any; a struct tls_peer
 * belongs to its connection's.
 */
#ifndef INFERD_DAEMON_TLS_H
#define INFERD_DAEMON_TLS_H

#include <sys/types.h>
#include <sys/uio.h>

#include "config/config.h"

struct tls;
struct tls_peer;

/* *out is NULL if the configuration has no certificate. Errors name the file. */
enum status tls_new(const struct config *config, struct tls **out, struct error *err);
struct tls *tls_ref(struct tls *tls); /* NULL is fine */
void tls_unref(struct tls *tls);      /* NULL is fine */
/* Whether connections of this door speak TLS; false for NULL. */
bool tls_covers(const struct tls *tls, enum config_door door);

/* The server's side of a connection. NULL: no memory. */
struct tls_peer *tls_peer_new(struct tls *tls, int fd, enum config_door door);
void tls_peer_free(struct tls_peer *peer); /* NULL is fine */

/* Goes on with the handshake as far as the peer lets it. */
enum tls_step { TLS_DONE, TLS_WAITS, TLS_FAILED };
enum tls_step tls_handshake(struct tls_peer *peer);
/* Whether the handshake is over. */
bool tls_is_open(const struct tls_peer *peer);

/* As recv(2) and sendmsg(2) on a socket that does not block: -1 with errno EAGAIN if there is
 * nothing, or no room, now. What tls_send took is on its way, even if not all of it has left. */
ssize_t tls_recv(struct tls_peer *peer, void *at, size_t size);
ssize_t tls_send(struct tls_peer *peer, const struct iovec *iov, uint32_t n);
/* Whether bytes were received that no poll will tell of. */
bool tls_pending(const struct tls_peer *peer);
/* Whether something still has to be sent once the socket takes it; and sends it. False: the socket
 * has failed. */
bool tls_unsent(const struct tls_peer *peer);
bool tls_flush(struct tls_peer *peer);
/* Tells the peer that nothing more will be sent, if that can be done at once. */
void tls_goodbye(struct tls_peer *peer);

#endif
