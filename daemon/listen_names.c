/* SPDX-License-Identifier: Apache-2.0 */
/* Names to listen on, see listen_names.h. */
#include "daemon/listen_names.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/resolve.h"

/* Whether the kernel knows the address as one of this machine's. Port 0 is never taken. */
static bool is_here(const struct address *address)
{
    struct address free_port = *address;
    if (address->storage.ss_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)&free_port.storage)->sin6_port = 0;
    else
        ((struct sockaddr_in *)(void *)&free_port.storage)->sin_port = 0;
    int fd = socket(address->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return errno != EAFNOSUPPORT;
    bool here =
        bind(fd, address_sockaddr(&free_port), address->length) == 0 || errno != EADDRNOTAVAIL;
    close(fd);
    return here;
}

/* Drops the addresses that this machine does not have. If it has none of them the first one stays,
 * because binding to it will say what is wrong. */
static void keep_here(struct resolved *list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < list->n; i++)
        if (is_here(&list->items[i]))
            list->items[n++] = list->items[i];
    list->n = n ? n : 1;
}

static enum status address_add(struct config_listen *out, const char *text, struct error *err)
{
    for (uint32_t i = 0; i < out->framed_count; i++) /* "localhost:1" beside "127.0.0.1:1" */
        if (strcmp(out->framed[i], text) == 0 && strcmp(strrchr(text, ':'), ":0") != 0)
            return STATUS_OK;
    char *copy = strdup(text);
    if (!copy)
        return error_no_memory(err, "addresses");
    out->framed[out->framed_count++] = copy;
    return STATUS_OK;
}

static enum status entry_resolve(const char *text, struct config_listen *out, struct error *err)
{
    struct resolved list;
    struct resolve_name name;
    char number[ADDRESS_TEXT_MAX];
    TRY(resolve_text(text, &list, &name, err));
    if (list.n == 1) /* spelled as it was */
        return address_add(out, text, err);
    TRY(resolve_wait(text, &list, err));
    keep_here(&list);
    for (uint32_t i = 0; i < list.n; i++)
        TRY(address_add(out, address_format(&list.items[i], number), err));
    return STATUS_OK;
}

enum status listen_names_resolve(const struct config_listen *config, struct config_listen *out,
                                 struct error *err)
{
    CLEANUP(listen_names_free) struct config_listen list = *config;
    list.framed_count = 0;
    list.framed = calloc((size_t)config->framed_count * RESOLVE_MOST + 1, sizeof(*list.framed));
    if (!list.framed)
        return error_no_memory(err, "addresses");
    for (uint32_t i = 0; i < config->framed_count; i++)
        TRY(entry_resolve(config->framed[i], &list, err));
    *out = list;
    list = (struct config_listen){0};
    return STATUS_OK;
}

void listen_names_free(struct config_listen *resolved)
{
    for (uint32_t i = 0; i < resolved->framed_count; i++)
        free(resolved->framed[i]);
    free(resolved->framed);
    resolved->framed = NULL;
    resolved->framed_count = 0;
}
