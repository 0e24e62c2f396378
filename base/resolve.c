/* SPDX-License-Identifier: Apache-2.0 */
/* Names of hosts, see resolve.h. */
#include "base/resolve.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Whether `host` is made of letters, digits, '-', '.' and '_', with a letter among them. Forms that
 * inet_aton(3) takes for a number ("0x7f.1") are refused, because they are addresses that do not
 * look like one. */
static bool host_ok(const char *host)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    static const char others[] = "0123456789-._";
    struct in_addr number;
    size_t len = 0, in_letters = 0;
    for (; host[len]; len++)
        if (strchr(letters, host[len]))
            in_letters++;
        else if (!strchr(others, host[len]))
            return false;
    return in_letters > 0 && host[0] != '-' && host[0] != '.' && inet_aton(host, &number) == 0;
}

static bool name_parse(const char *text, struct resolve_name *out)
{
    const char *colon = strrchr(text, ':');
    size_t host = colon ? (size_t)(colon - text) : 0;
    size_t port = colon ? strlen(colon + 1) : 0;
    if (!host || host >= sizeof(out->host) || !port || port >= sizeof(out->port) ||
        strspn(colon + 1, "0123456789") != port || strtol(colon + 1, NULL, 10) > 65535)
        return false;
    memcpy(out->host, text, host);
    out->host[host] = '\0';
    memcpy(out->port, colon + 1, port + 1);
    return host_ok(out->host);
}

static void loopback_add(const char *host, const char *port, struct resolved *out)
{
    char text[32];
    snprintf(text, sizeof(text), "%s:%s", host, port);
    if (!address_parse(text, &out->items[out->n], NULL))
        out->n++;
}

enum status resolve_text(const char *text, struct resolved *out, struct resolve_name *name,
                         struct error *err)
{
    struct address address;
    struct resolve_name own;
    if (strncmp(text, "unix:", 5) == 0 || !name_parse(text, &own)) {
        struct error why;
        if (address_parse(text, &address, &why))
            return strncmp(text, "unix:", 5) == 0
                       ? error_copy(err, &why)
                       : error_set(err, STATUS_INVALID_ARGUMENT,
                                   "address \"%.80s\": expected HOST:PORT, [IPV6]:PORT or "
                                   "unix:/PATH",
                                   text);
        *out = (struct resolved){.n = 1, .items = {address}};
        return STATUS_OK;
    }
    out->n = 0;
    if (strcasecmp(own.host, "localhost") == 0) {
        loopback_add("127.0.0.1", own.port, out);
        loopback_add("[::1]", own.port, out);
    }
    *name = own;
    return STATUS_OK;
}

struct addrinfo resolve_hints(void)
{
    return (struct addrinfo){
        .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
}

void resolve_take(const struct addrinfo *list, struct resolved *out)
{
    out->n = 0;
    for (; list && out->n < RESOLVE_MOST; list = list->ai_next) {
        struct address a = {.length = list->ai_addrlen};
        if ((list->ai_family != AF_INET && list->ai_family != AF_INET6) ||
            list->ai_addrlen > sizeof(a.storage))
            continue;
        memcpy(&a.storage, list->ai_addr, list->ai_addrlen);
        bool known = false;
        for (uint32_t i = 0; i < out->n; i++)
            known |= out->items[i].length == a.length &&
                     memcmp(&out->items[i].storage, &a.storage, a.length) == 0;
        if (!known)
            out->items[out->n++] = a;
    }
}

enum status resolve_wait(const char *text, struct resolved *out, struct error *err)
{
    struct resolve_name name;
    struct addrinfo *list = NULL;
    const struct addrinfo hints = resolve_hints();
    TRY(resolve_text(text, out, &name, err));
    if (out->n > 0)
        return STATUS_OK;
    int code = getaddrinfo(name.host, name.port, &hints, &list);
    if (code == EAI_SYSTEM)
        return error_errno(err, errno, "address \"%.80s\"", text);
    if (code != 0)
        return error_set(err, code == EAI_NONAME ? STATUS_NOT_FOUND : STATUS_UNAVAILABLE,
                         "address \"%.80s\": %s", text, gai_strerror(code));
    resolve_take(list, out);
    freeaddrinfo(list);
    if (out->n == 0)
        return error_set(err, STATUS_NOT_FOUND, "address \"%.80s\": the host has no address", text);
    return STATUS_OK;
}
