/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses from text and back; see address.h. */
#include "base/address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum status parse_unix(const char *path, struct address *out, struct error *err)
{
    struct sockaddr_un *sun = (struct sockaddr_un *)&out->storage;
    size_t len = strlen(path);
    if (path[0] != '/' || len >= sizeof(sun->sun_path))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "address \"unix:%.80s\": expected an absolute path of at most %zu bytes",
                         path, sizeof(sun->sun_path) - 1);
    *out =
        (struct address){.length = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1)};
    sun->sun_family = AF_UNIX;
    memcpy(sun->sun_path, path, len + 1);
    return STATUS_OK;
}

/* 0 to 65535; -1 if `text` is no port. */
static int parse_port(const char *text)
{
    size_t len = strlen(text);
    if (len < 1 || len > 5 || strspn(text, "0123456789") != len)
        return -1;
    long port = strtol(text, NULL, 10);
    return port <= 65535 ? (int)port : -1;
}

static bool parse_host(const char *host, bool v6, int port, struct address *out)
{
    struct address a = {.length = v6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in)};
    if (v6) {
        struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)&a.storage;
        sin6->sin6_family = AF_INET6;
        sin6->sin6_port = htons((uint16_t)port);
        if (inet_pton(AF_INET6, host, &sin6->sin6_addr) != 1)
            return false;
    } else {
        struct sockaddr_in *sin = (struct sockaddr_in *)&a.storage;
        sin->sin_family = AF_INET;
        sin->sin_port = htons((uint16_t)port);
        if (inet_pton(AF_INET, host, &sin->sin_addr) != 1)
            return false;
    }
    *out = a;
    return true;
}

enum status address_parse(const char *text, struct address *out, struct error *err)
{
    if (strncmp(text, "unix:", 5) == 0)
        return parse_unix(text + 5, out, err);
    const char *colon = strrchr(text, ':');
    int port = colon ? parse_port(colon + 1) : -1;
    bool v6 = colon && colon > text + 1 && text[0] == '[' && colon[-1] == ']';
    size_t len = colon ? (size_t)(colon - text) - (v6 ? 2 : 0) : 0;
    char host[INET6_ADDRSTRLEN] = "";
    if (len < sizeof(host))
        memcpy(host, text + v6, len);
    if (port < 0 || len >= sizeof(host) || !parse_host(host, v6, port, out))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "address \"%.80s\": expected IPV4:PORT, [IPV6]:PORT or unix:/PATH", text);
    return STATUS_OK;
}

const char *address_format(const struct address *address, char out[ADDRESS_TEXT_MAX])
{
    char host[INET6_ADDRSTRLEN] = "?";
    switch (address->storage.ss_family) {
    case AF_INET: {
        const struct sockaddr_in *sin = (const struct sockaddr_in *)&address->storage;
        inet_ntop(AF_INET, &sin->sin_addr, host, sizeof(host));
        snprintf(out, ADDRESS_TEXT_MAX, "%s:%u", host, ntohs(sin->sin_port));
        break;
    }
    case AF_INET6: {
        const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)&address->storage;
        inet_ntop(AF_INET6, &sin6->sin6_addr, host, sizeof(host));
        snprintf(out, ADDRESS_TEXT_MAX, "[%s]:%u", host, ntohs(sin6->sin6_port));
        break;
    }
    case AF_UNIX: {
        const struct sockaddr_un *sun = (const struct sockaddr_un *)&address->storage;
        snprintf(out, ADDRESS_TEXT_MAX, "unix:%s", sun->sun_path);
        break;
    }
    default:
        snprintf(out, ADDRESS_TEXT_MAX, "?");
    }
    return out;
}

bool address_is_unix(const struct address *address)
{
    return address->storage.ss_family == AF_UNIX;
}

bool address_is_local(const struct address *address)
{
    const struct sockaddr_in *sin = (const struct sockaddr_in *)&address->storage;
    const struct sockaddr_in6 *sin6 = (const struct sockaddr_in6 *)&address->storage;
    switch (address->storage.ss_family) {
    case AF_UNIX:
        return true;
    case AF_INET:
        return ntohl(sin->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
    case AF_INET6:
        return IN6_IS_ADDR_LOOPBACK(&sin6->sin6_addr) ||
               (IN6_IS_ADDR_V4MAPPED(&sin6->sin6_addr) &&
                sin6->sin6_addr.s6_addr[12] == IN_LOOPBACKNET);
    default:
        return false;
    }
}
