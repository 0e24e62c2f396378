/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Listening sockets: bound from the configuration, or taken over from the service manager. The
 * control thread watches them, and deals each connection to the loop that has the fewest. A
 * listener knows the protocol that is spoken to it.
 *
 * accept(2) is called here rather than by libuv, so that a shortage can be met (R23 of
 * docs/operations.md). When no descriptor is left, a spare one is given up to take a connection and
 * close it, so that its peer learns of the shortage at once; then accepting pauses for a while. At
 * the limit of connections the idlest one is closed, and accepting pauses until there is a place;
 * new connections wait in the kernel's backlog. A connection beyond those that its address may have
 * (daemon/peer.h) is closed at once.
 */
#ifndef INFERD_DAEMON_LISTENER_H
#define INFERD_DAEMON_LISTENER_H

#include <uv.h>

#include "config/config.h"
#include "daemon/shared.h"

struct listeners;

/* Binds what is configured, or takes `n_fds` descriptors from 3 on instead. Nothing is accepted
 * yet. Errors name the address. `uv` is the control thread's loop. */
enum status listeners_new(struct shared *shared, uv_loop_t *uv, const struct config_listen *listen,
                          uint32_t n_fds, struct listeners **out, struct error *err);
/* Whether the open sockets may stay open with this configuration (config_listen_check): a reload
 * that takes the tokens away must not leave a socket that other machines reach. Any thread. */
enum status listeners_check(const struct listeners *listeners, const struct config *config,
                            struct error *err);
/* Begins to accept, and writes "ready ADDRESS" for each to stderr; the name of the door follows in
 * brackets if it is not the first. */
void listeners_start(struct listeners *listeners);
/* Closes everything; idempotent. Unix sockets that were made here are removed. */
void listeners_stop(struct listeners *listeners);
/* Called after the loop has run once more since the stop. NULL is fine. */
void listeners_free(struct listeners *listeners);

#endif
