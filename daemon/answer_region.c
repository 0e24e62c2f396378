/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions of shared memory, see answer.h. Where the operator offers none, asking and unregistering
 * are answered all the same, as clients do so before they register anything.
 */
#include "daemon/answer.h"
#include "daemon/exchange.h"
#include "daemon/regions.h"

enum { REGIONS_ARENA = 64 << 20 };

static enum status off(const char *what, struct error *err)
{
    return error_set(err, STATUS_UNIMPLEMENTED, "%s is not offered here", what);
}

static enum status list(struct regions *regions, const struct regions_owner *owner,
                        const struct request *request, struct arena *arena,
                        struct body_regions *out, struct error *err)
{
    *out = (struct body_regions){0};
    if (regions && request->kind == REQUEST_MEMORY_STATUS)
        return regions_list(regions, owner, request->region.name, arena, out, err);
    if (!request->region.name.len)
        return STATUS_OK;
    return error_set(err, STATUS_NOT_FOUND, "there is no region '%.*s'",
                     MESSAGE_TEXT(request->region.name));
}

static enum status list_send(struct connection *c, const struct request *request,
                             const struct regions_owner *owner, struct arena *arena,
                             struct error *err)
{
    struct body body = {.kind = request->kind};
    struct message_text wire = {0};
    if (!arena)
        return error_no_memory(err, "a description");
    TRY(list(c->loop->shared->regions, owner, request, arena, &body.is.regions, err));
    TRY(c->ops->encode(&body, arena, &wire, err));
    struct response *response = exchange_begin(c, request->id, request->kind);
    response->body = wire;
    connection_reply(c, response);
    connection_flush(c); /* the body is in the arena */
    return STATUS_OK;
}

static enum status change(struct regions *regions, const struct request *request,
                          const struct regions_owner *owner, struct error *err)
{
    switch (request->kind) {
    case REQUEST_MEMORY_REGISTER:
        return regions ? regions_register(regions, owner, &request->region, err)
                       : off("shared memory", err);
    case REQUEST_MEMORY_UNREGISTER:
        if (regions)
            regions_unregister(regions, owner, request->region.name);
        return STATUS_OK;
    case REQUEST_CUDA_REGISTER:
        return off("shared memory of a GPU", err);
    default:
        return STATUS_OK;
    }
}

static enum status answer(struct connection *c, const struct request *request,
                          const struct regions_owner *owner, struct error *err)
{
    if (request->kind == REQUEST_MEMORY_STATUS || request->kind == REQUEST_CUDA_STATUS) {
        struct arena *arena = arena_new(REGIONS_ARENA);
        enum status status = list_send(c, request, owner, arena, err);
        arena_free(arena);
        return status;
    }
    TRY(change(c->loop->shared->regions, request, owner, err));
    connection_reply(c, exchange_begin(c, request->id, request->kind));
    return STATUS_OK;
}

void answer_region(struct connection *c, const struct request *request, const struct identity *who)
{
    struct regions_owner owner;
    struct error err;
    regions_owner_of(who, c->fd, &owner);
    if (answer(c, request, &owner, &err))
        exchange_error(c, request->id, &err);
}
