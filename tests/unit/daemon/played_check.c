/* SPDX-License-Identifier: Apache-2.0 */
/* Checks what must hold after every turn, and in the end; see played.h. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "daemon/exchange.h"
#include "tests/unit/daemon/played.h"
#include "tests/unit/daemon/toy_engine.h"

/* Sums over the connections that are open. */
struct sums {
    uint64_t charged, backlog_bytes, backlog_charge;
    uint32_t connections, requests, unpacking, backlogs, waiting, fresh, busy;
    uint32_t inflight; /* requests of its loop, also those whose peer has gone */
};

#define HOLDS  PLAYED_HOLDS
#define LLU(n) ((unsigned long long)(n))

/* --- one connection --- */

/* A connection is stopped only for a reason that will end, and is watched meanwhile. */
static void check_stops(const struct played *p, const struct connection *c)
{
    HOLDS(p, !!(c->stops & STOP_MEMORY) == c->in_waiting,
          "a connection stopped for memory does not wait for it, or the other way round: %x",
          c->stops);
    HOLDS(p, !(c->stops & STOP_CAP) || c->n_inflight + c->n_told,
          "stopped at its cap, with nothing in flight");
    HOLDS(p, !(c->stops & STOP_UNREAD) || c->backlog, "stopped for a backlog that is not there");
    if (c->phase == CONNECTION_OPEN && !c->stops && c->queue == QUEUE_NONE)
        HOLDS(p, c->events & UV_READABLE, "an open connection is not watched for input");
    if (c->phase == CONNECTION_OPEN && c->stops)
        HOLDS(p, c->left || c->events & UV_DISCONNECT, "a stopped connection is not watched");
    HOLDS(p, c->events, "a connection is not watched at all");
    HOLDS(p, !c->backlog || c->events & UV_WRITABLE, "nobody waits for the backlog to be taken");
}

/* No connection that could go on is left waiting. */
static void check_goes_on(const struct played *p, const struct connection *c)
{
    bool quiet = !c->stops && c->queue == QUEUE_NONE;
    if (c->phase <= CONNECTION_HALF && quiet)
        HOLDS(p, !c->unpack && !c->ops->waiting(c->session), "what a session kept is forgotten");
    bool owes = c->n_inflight || c->backlog || c->unpack;
    HOLDS(p, !(c->phase == CONNECTION_HALF && quiet && !owes), "a finished connection stays");
    HOLDS(p, !(c->phase == CONNECTION_ENDING && !c->n_inflight && !c->backlog),
          "a connection that ended stays");
    HOLDS(p, c->phase < CONNECTION_DYING, "a connection in phase %d after the turn", (int)c->phase);
    HOLDS(p, !c->out && !c->in_dirty, "something is left to be written after the turn");
    HOLDS(p, !c->n_told || c->backlog, "%u replies are on their way, without a backlog", c->n_told);
}

static void add_requests(const struct played *p, const struct connection *c, struct sums *sums)
{
    uint32_t n = 0;
    for (const struct inflight *i = c->inflight; i; i = i->next_of_connection, n++)
        HOLDS(p, i->connection == c->id && i->model, "a request of another connection");
    HOLDS(p, n == c->n_inflight, "%u requests in flight, %u in the list", c->n_inflight, n);
    sums->requests += n;
    sums->unpacking += c->unpack != NULL;
}

/* R1 of docs/operations.md: a session keeps no more than what has come, whatever was announced, and
 * a place that was set aside for leftovers. */
static void check_kept(const struct played *p, const struct connection *c)
{
    struct session_state state;
    uint64_t kept = c->charged;
    int queued = 0;
    for (const struct inflight *i = c->inflight; i; i = i->next_of_connection)
        kept -= i->slab ? i->slab->charge : 0;
    c->ops->state(c->session, &state);
    ioctl(c->fd, FIONREAD, &queued);
    uint64_t came = state.received + (uint64_t)MAX(queued, 0);
    if (!c->unpack)
        HOLDS(p, kept <= 3 * came + slab_charge(LOOP_STAGING),
              "%llu bytes are kept of a message of which %llu have come", LLU(kept), LLU(came));
}

static void add_backlog(const struct played *p, const struct connection *c, struct sums *sums)
{
    struct backlog {
        size_t sent, used;
    };
    size_t bytes = 0;
    for (const struct slab *slab = c->backlog; slab; slab = slab->next) {
        const struct backlog *b = (const struct backlog *)(const void *)slab->data;
        bytes += b->used - b->sent;
        sums->backlog_charge += slab->charge;
    }
    HOLDS(p, bytes == c->backlog_bytes, "a backlog of %zu bytes, not of %zu", bytes,
          c->backlog_bytes);
    sums->backlog_bytes += bytes;
    sums->backlogs += c->backlog != NULL;
}

static void check_connections(const struct played *p, const struct loop *loop, struct sums *sums)
{
    *sums = (struct sums){.inflight = loop->n_inflight};
    for (uint32_t i = 0; i < loop->n_slots; i++) {
        const struct connection *c = loop->slots[i].connection;
        if (!c)
            continue;
        check_stops(p, c);
        check_goes_on(p, c);
        check_kept(p, c);
        add_requests(p, c, sums);
        add_backlog(p, c, sums);
        sums->connections++;
        sums->charged += c->charged;
        sums->waiting += c->in_waiting;
        sums->fresh += c->queue == QUEUE_FRESH;
        sums->busy += c->queue == QUEUE_BUSY;
    }
}

/* --- the loop's queues --- */

static uint32_t length(const struct played *p, const struct loop *loop,
                       const struct connection *first, bool waiting)
{
    uint32_t n = 0;
    for (const struct connection *c = first; c; c = waiting ? c->next_waiting : c->next_ready)
        HOLDS(p, n++ < loop->n_connections, "a queue without an end");
    return n;
}

static void check_queues(const struct played *p, const struct loop *loop, const struct sums *sums)
{
    HOLDS(p, length(p, loop, loop->fresh, false) == sums->fresh,
          "the queue of those that were idle");
    HOLDS(p, length(p, loop, loop->busy, false) == sums->busy, "the queue of those that are busy");
    HOLDS(p, length(p, loop, loop->waiting, true) == sums->waiting, "the queue for memory");
    HOLDS(p, !loop->dirty && !loop->dying && !loop->held && !loop->submit_first,
          "a turn ended too early");
    HOLDS(p, loop->n_backlogs == sums->backlogs, "%u backlogs, not %u", sums->backlogs,
          loop->n_backlogs);
    uint64_t unread = atomic_load(&loop->backlog_bytes);
    HOLDS(p, unread == sums->backlog_bytes, "backlogs of %llu bytes, not of %llu",
          LLU(sums->backlog_bytes), LLU(unread));
    HOLDS(p,
          loop->n_connections == sums->connections && atomic_load(&loop->load) == sums->connections,
          "%u connections, not %u", sums->connections, loop->n_connections);
    const struct counters *counters = &loop->counters;
    HOLDS(p,
          counter_get(counters, COUNTER_READS_PAUSED) >=
              counter_get(counters, COUNTER_READS_RESUMED),
          "reading was resumed more often than stopped");
}

/* --- memory --- */

/* Requests whose connection has gone keep their payloads, which then count for no connection. */
static void check_memory(struct played *p, const struct sums *sums)
{
    const struct budget *budget = &p->shared.budget;
    uint64_t used = budget_used(budget), held = budget_held(budget);
    uint64_t limit = atomic_load(&budget->limit), owned = sums->charged + sums->backlog_charge;
    uint32_t left_behind = sums->inflight - sums->requests - sums->unpacking;
    HOLDS(p, left_behind <= sums->inflight, "%u requests, and %u of connections", sums->inflight,
          sums->requests + sums->unpacking);
    uint32_t connections = atomic_load(&p->shared.connections);
    HOLDS(p, connections == sums->connections, "%u connections, not %u", sums->connections,
          connections);
    HOLDS(p, used >= owned, "%llu bytes used, and %llu by connections", LLU(used), LLU(owned));
    HOLDS(p, used == owned || left_behind, "%llu bytes used, and only %llu by connections",
          LLU(used), LLU(owned));
    HOLDS(p, used <= held, "%llu bytes used, of %llu", LLU(used), LLU(held));
    HOLDS(p, held <= p->held_most, "%llu bytes held, at most %llu", LLU(held), LLU(p->held_most));
    p->held_most = MAX(held, limit); /* after a limit fell, `held` may only become less */
    uint64_t frames = atomic_load(&toy.frame_bytes);
    HOLDS(p, frames <= held, "%llu bytes of the device's for frames, and %llu held", LLU(frames),
          LLU(held));
    if (!atomic_load(&toy.apart))
        HOLDS(p, frames == held, "%llu bytes for frames, and %llu held", LLU(frames), LLU(held));
}

/* --- addresses --- */

/* The bytes and requests of the connections of an address, over all loops. */
static void check_record(const struct played *p, const struct peer *peer)
{
    uint64_t bytes = 0, requests = 0, connections = 0;
    for (uint32_t l = 0; l < p->shared.n_loops; l++)
        for (uint32_t i = 0; i < p->shared.loops[l]->n_slots; i++) {
            const struct connection *c = p->shared.loops[l]->slots[i].connection;
            if (!c || c->peer != peer)
                continue;
            bytes += c->charged;
            requests += c->n_inflight + (c->unpack != NULL);
            connections++;
        }
    HOLDS(p, atomic_load(&peer->bytes) == bytes, "an address has %llu bytes, not %llu", LLU(bytes),
          LLU(atomic_load(&peer->bytes)));
    HOLDS(p, atomic_load(&peer->requests) == requests, "an address has %llu requests, not %u",
          LLU(requests), atomic_load(&peer->requests));
    HOLDS(p, atomic_load(&peer->connections) == connections, "an address has %llu connections",
          LLU(connections));
}

static void check_records(const struct played *p, const struct loop *loop)
{
    const struct peer *last = NULL;
    for (uint32_t i = 0; i < loop->n_slots; i++) {
        const struct connection *c = loop->slots[i].connection;
        if (c && c->peer && c->peer != last)
            check_record(p, last = c->peer);
    }
}

/* --- all of it --- */

void played_check(struct played *p)
{
    struct sums all = {0}, sums;
    for (uint32_t i = 0; i < p->shared.n_loops; i++) {
        const struct loop *loop = p->shared.loops[i];
        check_connections(p, loop, &sums);
        check_queues(p, loop, &sums);
        check_records(p, loop);
        all.charged += sums.charged;
        all.backlog_charge += sums.backlog_charge;
        all.connections += sums.connections;
        all.requests += sums.requests;
        all.unpacking += sums.unpacking;
        all.inflight += sums.inflight;
    }
    check_memory(p, &all);
}

void played_check_empty(struct played *p)
{
    for (uint32_t i = 0; i < p->shared.n_loops; i++) {
        const struct loop *loop = p->shared.loops[i];
        HOLDS(p, !loop->n_connections, "%u connections are left", loop->n_connections);
        HOLDS(p, !loop->n_inflight, "%u requests are left", loop->n_inflight);
        HOLDS(p, !loop->results && !loop->fresh && !loop->busy && !loop->waiting,
              "something is left on a queue");
        for (uint32_t k = 0; k < LOOP_IDS; k++)
            HOLDS(p, !loop->by_id[k], "a request is left among the ids");
    }
    HOLDS(p, !budget_used(&p->shared.budget), "%llu bytes of the budget are used",
          LLU(budget_used(&p->shared.budget)));
    uint32_t descriptors = played_descriptors();
    HOLDS(p, descriptors == p->descriptors, "%u descriptors, and %u before", descriptors,
          p->descriptors);
}

static void show_connection(const struct connection *c)
{
    struct session_state state;
    c->ops->state(c->session, &state);
    fprintf(stderr,
            "connection %u of loop %u: phase %d, stops %x, queue %d, %u in flight, %u told, %llu "
            "charged, backlog %zu, session %s%d, received %zu, active %llu, write %llu\n",
            (uint32_t)c->id, c->loop->index, (int)c->phase, c->stops, (int)c->queue, c->n_inflight,
            c->n_told, LLU(c->charged), c->backlog_bytes,
            c->ops->waiting(c->session) ? "waits " : "", (int)state.wait, state.received,
            LLU(c->active_ms), LLU(c->write_ms));
}

void played_show(const struct played *p)
{
    const struct budget *budget = &p->shared.budget;
    fprintf(stderr, "last refusal: %s\nbudget: %llu used, %llu held, limit %llu, pressure %u\n",
            p->refusal, LLU(budget_used(budget)), LLU(budget_held(budget)),
            LLU(atomic_load(&budget->limit)), atomic_load(&budget->pressure));
    for (uint32_t l = 0; l < p->shared.n_loops; l++) {
        const struct loop *loop = p->shared.loops[l];
        fprintf(stderr, "loop %u: %u requests, %zu bytes kept, %llu ms\n", l, loop->n_inflight,
                slabs_kept(loop->slabs), LLU(uv_now(&loop->uv)));
        for (uint32_t i = 0; i < loop->n_slots; i++)
            if (loop->slots[i].connection)
                show_connection(loop->slots[i].connection);
    }
}

uint32_t played_descriptors(void)
{
    DIR *folder = opendir("/proc/self/fd");
    uint32_t n = 0;
    while (folder && readdir(folder))
        n++;
    if (folder)
        closedir(folder);
    return n;
}
