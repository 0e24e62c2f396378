/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may do what: an immutable snapshot made from a configuration and its token file. The snapshot
 * travels with the table of models (daemon/model.h): a reload makes the next one, or fails as a
 * whole.
 *
 * Without tokens and identities in the configuration everybody may do everything but administer.
 * As soon as there are some:
 *
 *   a token that is sent decides, on every socket; an unknown token is refused
 *   a unix socket's peer without a token is the first entry whose user and group fit; if no entry
 *     names a user or group, whoever the socket's mode lets in may do everything but administer
 *   everybody else is anonymous, and may ask for server_live and server_ready, and for what an
 *     entry of that name adds
 *
 * Nothing here waits or allocates while requests are answered, except for libcrypto's context of a
 * hash: once for each token that its connection has not just sent before (daemon/caller.h).
 */
#ifndef INFERD_DAEMON_IDENTITY_H
#define INFERD_DAEMON_IDENTITY_H

#include <sys/types.h>

#include "base/right.h"
#include "base/token.h"
#include "config/config.h"
#include "daemon/identity_use.h"
#include "proto/message.h"

struct identity;
struct identities;

/* The process at the other end of a unix socket, as it was when it connected. */
enum { CREDENTIAL_GROUPS_MOST = 1024 };

struct credentials {
    bool known;   /* false: the rest means nothing (TCP, or the kernel does not say) */
    bool by_mode; /* the socket has a file, whose mode has let the peer in */
    uid_t uid;
    gid_t gid;
    uint32_t n_groups; /* further groups; 0 also for a process that has too many */
    gid_t groups[CREDENTIAL_GROUPS_MOST];
};

/* Reads the token file and looks up users and groups, so not on a loop's thread. Returns one
 * reference. `before` is the snapshot that this one follows, NULL for the first: names that stay
 * keep what they have in flight. */
enum status identities_new(const struct config *config, const struct identities *before,
                           struct identities **out, struct error *err);
struct identities *identities_ref(struct identities *identities);
void identities_unref(struct identities *identities); /* NULL is fine */

/* Says whether the identity of a peer makes a difference at all. */
bool identities_required(const struct identities *identities);

/* The pointers that the next three functions give live as long as the snapshot. */

/* UNAUTHENTICATED: no such token. Every token of the snapshot is compared, in constant time. */
enum status identities_by_token(const struct identities *identities, struct message_text token,
                                const struct identity **out, struct error *err);
/* Returns who a peer is without a token; never NULL. */
const struct identity *identities_by_peer(const struct identities *identities,
                                          const struct credentials *peer);
const struct identity *identities_anonymous(const struct identities *identities);

/* The name in configuration or token file; "anonymous"; "local" where nobody had to say. */
const char *identity_name(const struct identity *identity);
/* Says whether it has the right on this model; with an empty name, on any model at all. */
bool identity_may(const struct identity *identity, enum right right, struct message_text model);
/* It has some right. Whoever has none gets little memory and time to show a token (caller.h). */
bool identity_has_rights(const struct identity *identity);
/* Says whether this is the first refusal of that right to it in this snapshot, and takes note, so
 * that the log has one line for each however often it happens. Any thread. */
bool identities_refusal_is_news(struct identities *identities, const struct identity *identity,
                                enum right right);
/* The priority of a request that asks for `asked`: that, or the best that is allowed. */
uint32_t identity_priority(const struct identity *identity, uint32_t asked);
/* Books an inference with `size` bytes of inputs. RESOURCE_EXHAUSTED: the identity's limits are
 * reached for now. When the request has been answered, *out must be given back with
 * identity_use_give(*out, size). It is NULL if the identity has no limits. */
enum status identity_charge(const struct identity *identity, uint64_t size,
                            struct identity_use **out, struct error *err);

#endif
