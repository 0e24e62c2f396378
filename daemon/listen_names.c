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

/* Whether the port is 0, which stands for any. */
static bool ends_in_any(const char *text)
{
    const char *port = strrchr(text, ':');
    return port && strcmp(port, ":0") == 0;
}

static enum status address_add(struct config_addresses *out, const char *text, struct error *err)
{
    for (uint32_t i = 0; i < out->count; i++) /* "localhost:1" beside "127.0.0.1:1" */
        if (out->items[i] && strcmp(out->items[i], text) == 0 && !ends_in_any(text))
            return STATUS_OK;
    char *copy = strdup(text);
    if (!copy)
        return error_no_memory(err, "addresses");
    out->items[out->count++] = copy;
    return STATUS_OK;
}

static enum status entry_resolve(const char *text, struct config_addresses *out, struct error *err)
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

static enum status door_resolve(const struct config_addresses *door, struct config_addresses *out,
                                struct error *err)
{
    out->items = calloc((size_t)door->count * RESOLVE_MOST + 1, sizeof(*out->items));
    if (!out->items)
        return error_no_memory(err, "addresses");
    for (uint32_t i = 0; i < door->count; i++)
        TRY(entry_resolve(door->items[i], out, err));
    return STATUS_OK;
}

enum status listen_names_resolve(const struct config_listen *config, struct config_listen *out,
                                 struct error *err)
{
    enum status status = STATUS_OK;
    *out = (struct config_listen){.insecure = config->insecure};
    for (uint32_t door = 0; door < CONFIG_DOOR_COUNT_ && !status; door++)
        status = door_resolve(&config->doors[door], &out->doors[door], err);
    if (status)
        listen_names_free(out);
    return status;
}

void listen_names_free(struct config_listen *resolved)
{
    for (uint32_t door = 0; door < CONFIG_DOOR_COUNT_; door++) {
        struct config_addresses *addresses = &resolved->doors[door];
        for (uint32_t i = 0; i < addresses->count; i++)
            free(addresses->items[i]);
        free(addresses->items);
        *addresses = (struct config_addresses){0};
    }
}
