/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may do what: an immutable snapshot made from a configuration and its token file. It travels
 * with the table of models (daemon/model.h): a reload makes the next one, or fails as a whole.
 *
 * Without tokens and identities in the configuration everybody may do everything but administer.
 * As soon as there are some:
 *
 *   a token that is sent decides, on every socket; one that is not known is refused
 *   a unix socket's peer without a token is the first entry whose user and group fit; if no entry
 *     names a user or group, whoever the socket's mode lets in may do everything but administer
 *   everybody else is anonymous: server_live and server_ready, and what an entry of that name adds
 *
 * Nothing here waits or is allocated while requests are answered, but for libcrypto's context of a
 * hash: once for each token that a connection has not just sent (daemon/caller.h).
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
    bool known;   /* else nothing below means anything: TCP, or the kernel does not say */
    bool by_mode; /* the socket has a file, whose mode has let the peer in */
    uid_t uid;
    gid_t gid;
    uint32_t n_groups; /* further ones; those of a process with more than there is room for: 0 */
    gid_t groups[CREDENTIAL_GROUPS_MOST];
};

/* Reads the token file and looks up users and groups, so not on a loop's thread. One reference.
 * `before` is the snapshot that this one follows, NULL for the first: names that stay go on with
 * what they have in flight. */
enum status identities_new(const struct config *config, const struct identities *before,
                           struct identities **out, struct error *err);
struct identities *identities_ref(struct identities *identities);
void identities_unref(struct identities *identities); /* NULL is fine */

/* Whether who a peer is makes a difference at all. */
bool identities_required(const struct identities *identities);

/* The pointers that these give live as long as the snapshot. */

/* UNAUTHENTICATED: no such token. Every token of the snapshot is compared, in constant time. */
enum status identities_by_token(const struct identities *identities, struct message_text token,
                                const struct identity **out, struct error *err);
/* Who a peer is without a token: never NULL. */
const struct identity *identities_by_peer(const struct identities *identities,
                                          const struct credentials *peer);
const struct identity *identities_anonymous(const struct identities *identities);

/* The name in configuration or token file; "anonymous"; "local" where nobody had to say. */
const char *identity_name(const struct identity *identity);
/* With a model: the right and this model. An empty one: the right, whatever the model. */
bool identity_may(const struct identity *identity, enum right right, struct message_text model);
/* It has some right. Who has none gets little memory and time to show a token (caller.h). */
bool identity_has_rights(const struct identity *identity);
/* Whether this is the first refusal of that right to it in this snapshot, and takes note: so that a
 * log has a line for each, and no more however often it happens. Any thread. */
bool identities_refusal_is_news(struct identities *identities, const struct identity *identity,
                                enum right right);
/* The priority of its request that asks for `asked`: that, or the best it may have. */
uint32_t identity_priority(const struct identity *identity, uint32_t asked);
/* Books an inference with `size` bytes of inputs. RESOURCE_EXHAUSTED: its limits are reached, for a
 * while. *out is to be given back with identity_use_give(*out, size) when the request has been
 * answered; NULL if the identity has no limits. */
enum status identity_charge(const struct identity *identity, uint64_t size,
                            struct identity_use **out, struct error *err);

#endif
