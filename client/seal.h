/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS of a client's connection, by OpenSSL, without I/O: what came from the socket goes in at one
 * side, what was sealed is taken from it and sent. Both halves of the client use it.
 *
 * A server is asked for by an address such as
 *
 *   tls://serving.example.org:8003?ca=/etc/ssl/ours.pem&cert=me.pem&key=me.key
 *
 *   ca     PEM file of the authorities that may have signed the server's certificate (default:
 *          those of the system)
 *   cert   PEM file of the client's certificate and what leads from it to an authority; key: its
 *          key (default: it is in the same file)
 *   name   what the server's certificate must be for (default: the host of the address)
 *
 * Values are taken as they stand, up to the next '&'. There is no way to do without verification.
 * UNAUTHENTICATED says that one side's certificate does not satisfy the other.
 */
#ifndef INFERD_CLIENT_SEAL_H
#define INFERD_CLIENT_SEAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* An address taken apart. */
struct seal_target {
    char *copy;          /* what the others point into; NULL: the text that was given */
    const char *address; /* as base/resolve.h takes it */
    const char *ca, *certificate, *key, *name;
    bool tls;
};

enum status seal_target_parse(const char *text, struct seal_target *out, struct error *err);
void seal_target_cleanup(struct seal_target *target);

struct seal;

/* *out stays NULL for an address in the clear. Errors name the file. */
enum status seal_new(const struct seal_target *target, struct seal **out, struct error *err);
void seal_free(struct seal *seal); /* NULL is fine */

/* Room for bytes from the socket, and how many came into it. All that came must be taken by
 * seal_shake or seal_read before there is room again. */
void seal_room(struct seal *seal, void **at, size_t *size);
enum status seal_filled(struct seal *seal, size_t size, struct error *err);

/* Goes on with the handshake as far as what has come lets it. After a failure the alert that tells
 * the server why may still be sent. */
enum status seal_shake(struct seal *seal, struct error *err);
bool seal_is_open(const struct seal *seal);

/* Takes what the server wrote. *got is 0 if there is no more of it now. UNAVAILABLE: the server has
 * closed the connection. */
enum status seal_read(struct seal *seal, void *at, size_t size, size_t *got, struct error *err);

/* Tells the server that this side sends no more, so that it knows the end from a connection that
 * was cut: what is to be sent for that is unsent then. False: nothing can be said any more. */
bool seal_goodbye(struct seal *seal);

enum { SEAL_RECORD = 16 * 1024 }; /* bytes of one write, at most */

/* Seals what the server shall read. May be called once nothing is unsent. */
enum status seal_write(struct seal *seal, const void *data, size_t size, struct error *err);
/* What is to be sent now, if anything, and how much of it was. It stays where it is until all of it
 * was sent. */
size_t seal_unsent(struct seal *seal, const void **at);
void seal_sent(struct seal *seal, size_t size);

#endif
