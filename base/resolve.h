/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Addresses with a name for the host: "localhost:8003", "serving-2.example.org:8003".
 *
 * Only what an operator or user typed comes here: command line, configuration, the argument of a
 * client's open. Nothing that a peer, a model or a reload brings is ever looked up (R17 of
 * docs/operations.md): asking blocks, tells a third party, and may be answered differently each
 * time.
 *
 * "localhost" is this machine's two loopback addresses, whatever a resolver would say (RFC 6761,
 * section 6.3), and so needs no resolver.
 */
#ifndef INFERD_BASE_RESOLVE_H
#define INFERD_BASE_RESOLVE_H

#include <netdb.h>

#include "base/address.h"

enum {
    RESOLVE_HOST_MAX = 254,
    RESOLVE_PORT_MAX = 6,
    RESOLVE_MOST = 16, /* addresses of one name; further ones are left out */
};

struct resolve_name {
    char host[RESOLVE_HOST_MAX], port[RESOLVE_PORT_MAX]; /* the port has digits only */
};

struct resolved {
    uint32_t n;
    struct address items[RESOLVE_MOST]; /* in the order in which to try them */
};

/* Resolves what needs no resolver: a number, a unix socket and "localhost" give addresses. For any
 * other name out->n is 0, and `name` is what to ask for. INVALID_ARGUMENT says what was
 * expected. */
enum status resolve_text(const char *text, struct resolved *out, struct resolve_name *name,
                         struct error *err);

/* What to ask getaddrinfo(3) for. */
struct addrinfo resolve_hints(void);
/* Takes the internet addresses of getaddrinfo's answer, each once. */
void resolve_take(const struct addrinfo *list, struct resolved *out);

/* Resolves any address; for a name it calls getaddrinfo, and blocks as long as the system's
 * resolver does. NOT_FOUND: there is no such host; UNAVAILABLE: nobody answered. */
enum status resolve_wait(const char *text, struct resolved *out, struct error *err);

#endif
