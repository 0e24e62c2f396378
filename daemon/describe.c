/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptions, see describe.h: what answer.h makes, encoded by the session that asks. Each is
 * built in an arena that is gone when the function returns.
 * Its bytes are copied to the loop's heads if they fit there; otherwise they go through the
 * connection's backlog, like any reply that the socket does not take at once.
 *
 * A description of the whole server costs more the more models there are, and takes the
 * dispatcher's lock. A loop spends at most 1/SHARE of its time on such descriptions: a peer that
 * asks more often gets what was said a moment ago. The processor's time counts, else a machine that
 * does much else would make a description cost a hundred times as much, and each of them old.
 */
#include "daemon/describe.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/answer.h"
#include "daemon/exchange.h"

enum { ARENA_LIMIT = 64 << 20 };
enum { SHARE = 20 };
#define BURST_NS (200 * NS_PER_MS) /* the share of so much time may be spent at once */

static void yes_or_no(struct connection *c, const struct request *request, bool yes)
{
    struct response *response = exchange_begin(c, request->id, request->kind);
    response->yes = yes;
    connection_reply(c, response);
}

void describe_server_live(struct connection *c, const struct request *request)
{
    yes_or_no(c, request, true);
}

void describe_server_ready(struct connection *c, const struct request *request)
{
    yes_or_no(c, request, answer_server_ready(c->loop->shared));
}

void describe_model_ready(struct connection *c, const struct request *request)
{
    const struct table_entry *entry = exchange_model(c, request);
    if (entry)
        yes_or_no(c, request, answer_model_ready(c->loop->shared, entry));
}

/* Sends an encoded body, or the reason why there is none, and frees the arena. */
static void body_send(struct connection *c, const struct request *request, enum status status,
                      struct message_text body, const struct error *err, struct arena *arena)
{
    if (status) {
        exchange_error(c, request->id, err);
    } else {
        struct response *response = exchange_begin(c, request->id, request->kind);
        response->body = body;
        connection_reply(c, response);
        connection_flush(c); /* the body is in the arena */
    }
    arena_free(arena);
}

static enum status body_build(struct connection *c, const struct request *request,
                              struct arena *arena, struct message_text *wire, struct error *err)
{
    struct body body;
    if (!arena)
        return error_no_memory(err, "a description");
    TRY(answer_make(c->loop, request, arena, &body, err));
    return c->ops->encode(&body, arena, wire, err);
}

static void describe(struct connection *c, const struct request *request)
{
    struct arena *arena = arena_new(ARENA_LIMIT);
    struct message_text wire = {0};
    struct error err;
    enum status status = body_build(c, request, arena, &wire, &err);
    body_send(c, request, status, wire, &err, arena);
}

void describe_server(struct connection *c, const struct request *request)
{
    describe(c, request);
}

void describe_model(struct connection *c, const struct request *request)
{
    if (exchange_model(c, request))
        describe(c, request);
}

/* --- the whole server --- */

static void snapshot_keep(struct loop_snapshot *snapshot, struct message_text wire)
{
    snapshot->size = 0;
    if (wire.len > snapshot->capacity) {
        free(snapshot->data);
        snapshot->data = malloc(wire.len);
        snapshot->capacity = snapshot->data ? wire.len : 0;
    }
    if (!wire.data || !snapshot->data || wire.len > snapshot->capacity)
        return; /* nothing to keep, or no memory: it is built anew the next time */
    memcpy(snapshot->data, wire.data, wire.len);
    snapshot->size = wire.len;
}

/* Which of the kept descriptions answers a request. */
static uint32_t snapshot_of(const struct request *request)
{
    if (request->kind == REQUEST_STATISTICS)
        return SNAPSHOT_STATISTICS;
    if (request->kind == REQUEST_REPOSITORY_INDEX)
        return request->ready_only ? SNAPSHOT_INDEX_READY : SNAPSHOT_INDEX;
    return SNAPSHOT_STATUS;
}

void describe_all(struct connection *c, const struct request *request)
{
    struct loop *loop = c->loop;
    struct loop_snapshot *snapshot = &loop->snapshots[c->ops->format][snapshot_of(request)];
    if (snapshot->size && loop->describe_ns > clock_now_ns()) {
        const struct message_text kept = {(const char *)snapshot->data, snapshot->size};
        body_send(c, request, STATUS_OK, kept, NULL, NULL);
        return;
    }
    struct arena *arena = arena_new(ARENA_LIMIT);
    struct message_text wire = {0};
    struct error err;
    uint64_t begin_ns = clock_thread_ns();
    enum status status = body_build(c, request, arena, &wire, &err);
    if (!status)
        snapshot_keep(snapshot, wire);
    uint64_t now_ns = clock_now_ns(), cost_ns = clock_thread_ns() - begin_ns;
    loop->describe_ns = MAX(loop->describe_ns, now_ns - MIN(now_ns, BURST_NS)) + SHARE * cost_ns;
    body_send(c, request, status, wire, &err, arena);
}

void describe_statistics(struct connection *c, const struct request *request)
{
    if (request->model.len)
        describe_model(c, request);
    else
        describe_all(c, request);
}
