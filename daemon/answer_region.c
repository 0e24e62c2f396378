/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions of shared memory, see answer.h. Where the operator offers none, asking and unregistering
 * are answered all the same, as clients do so before they register anything.
 */
#include "daemon/answer.h"
#include "daemon/exchange.h"
#include "daemon/regions.h"

enum { ARENA_LIMIT = 64 << 20 };

static enum region_kind kind_of(enum request_kind kind)
{
    return kind >= REQUEST_CUDA_STATUS ? REGION_CUDA : REGION_SYSTEM;
}

static enum status list(struct regions *regions, const struct regions_owner *owner,
                        const struct request *request, struct arena *arena,
                        struct body_regions *out, struct error *err)
{
    enum region_kind kind = kind_of(request->kind);
    *out = (struct body_regions){0};
    if (regions_offered(regions, kind))
        return regions_list(regions, kind, owner, request->region.name, arena, out, err);
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
    enum region_kind kind = kind_of(request->kind);
    bool registers =
        request->kind == REQUEST_MEMORY_REGISTER || request->kind == REQUEST_CUDA_REGISTER;
    if (registers && !regions_offered(regions, kind))
        return error_set(err, STATUS_UNIMPLEMENTED, "%s is not offered here",
                         kind == REGION_CUDA ? "shared memory of a GPU" : "shared memory");
    if (registers)
        return regions_register(regions, kind, owner, &request->region, err);
    if (regions)
        regions_unregister(regions, kind, owner, request->region.name);
    return STATUS_OK;
}

static enum status answer(struct connection *c, const struct request *request,
                          const struct regions_owner *owner, struct error *err)
{
    if (request->kind == REQUEST_MEMORY_STATUS || request->kind == REQUEST_CUDA_STATUS) {
        struct arena *arena = arena_new(ARENA_LIMIT);
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
    regions_owner_of(c->loop->table->identities, who, c->fd, c->peer, &owner);
    if (answer(c, request, &owner, &err))
        exchange_error(c, request->id, &err);
}
