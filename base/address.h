/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Socket addresses as text: "127.0.0.1:8003", "[::1]:8003", "unix:/run/inferd/inferd.sock".
 *
 * Hosts are numbers here; base/resolve.h takes hosts with names. Parsing makes no socket and asks
 * no resolver.
 */
#ifndef INFERD_BASE_ADDRESS_H
#define INFERD_BASE_ADDRESS_H

#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/error.h"

enum { ADDRESS_TEXT_MAX = sizeof("unix:") + sizeof(((struct sockaddr_un *)0)->sun_path) };

struct address {
    struct sockaddr_storage storage;
    socklen_t length;
};

/* INVALID_ARGUMENT says what was expected. */
enum status address_parse(const char *text, struct address *out, struct error *err);

/* Writes the text that address_parse takes, or "?" for another family; returns `out`. */
const char *address_format(const struct address *address, char out[ADDRESS_TEXT_MAX]);

bool address_is_unix(const struct address *address);
/* Whether nobody outside this machine reaches the address: a unix socket, 127.0.0.0/8, ::1. */
bool address_is_local(const struct address *address);

static inline const struct sockaddr *address_sockaddr(const struct address *address)
{
    return (const struct sockaddr *)&address->storage;
}

#endif
