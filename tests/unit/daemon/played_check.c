/* SPDX-License-Identifier: Apache-2.0 */
/* What must hold after every turn, and in the end; see played.h. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "daemon/exchange.h"
#include "tests/unit/daemon/played.h"
#include "tests/unit/daemon/toy_engine.h"

/* Sums over the connections there are. */
struct sums {
    uint64_t charged, backlog_bytes, backlog_charge;
    uint32_t connections, requests, unpacking, backlogs, waiting, fresh, busy;
};

#define HOLDS  PLAYED_HOLDS
#define LLU(n) ((unsigned long long)(n))

/* ---- one connection ---- */

/* Whoever is stopped is stopped for a reason that will end, and is watched meanwhile. */
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

/* Nothing that could go on is left lying. */
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

static void check_connections(const struct played *p, struct sums *sums)
{
    const struct loop *loop = p->loop;
    *sums = (struct sums){0};
    for (uint32_t i = 0; i < loop->n_slots; i++) {
        const struct connection *c = loop->slots[i].connection;
        if (!c)
            continue;
        check_stops(p, c);
        check_goes_on(p, c);
        add_requests(p, c, sums);
        add_backlog(p, c, sums);
        sums->connections++;
        sums->charged += c->charged;
        sums->waiting += c->in_waiting;
        sums->fresh += c->queue == QUEUE_FRESH;
        sums->busy += c->queue == QUEUE_BUSY;
    }
}

/* ---- the loop's queues ---- */

static uint32_t length(const struct played *p, const struct connection *first, bool waiting)
{
    uint32_t n = 0;
    for (const struct connection *c = first; c; c = waiting ? c->next_waiting : c->next_ready)
        HOLDS(p, n++ < PLAYED_PEERS + 8, "a queue without an end");
    return n;
}

static void check_queues(const struct played *p, const struct sums *sums)
{
    const struct loop *loop = p->loop;
    HOLDS(p, length(p, loop->fresh, false) == sums->fresh, "the queue of those that were idle");
    HOLDS(p, length(p, loop->busy, false) == sums->busy, "the queue of those that are busy");
    HOLDS(p, length(p, loop->waiting, true) == sums->waiting, "the queue for memory");
    HOLDS(p, !loop->dirty && !loop->dying && !loop->held && !loop->submit_first,
          "a turn ended too early");
    HOLDS(p, loop->n_backlogs == sums->backlogs, "%u backlogs, not %u", sums->backlogs,
          loop->n_backlogs);
    uint64_t unread = atomic_load(&loop->backlog_bytes);
    HOLDS(p, unread == sums->backlog_bytes, "backlogs of %llu bytes, not of %llu",
          LLU(sums->backlog_bytes), LLU(unread));
    uint32_t all = atomic_load(&p->shared.connections);
    HOLDS(p,
          all == sums->connections && loop->n_connections == all && atomic_load(&loop->load) == all,
          "%u connections, not %u", sums->connections, all);
}

/* ---- memory ---- */

/* Requests that a connection left behind keep their payloads, which are nobody's then. */
static void check_memory(struct played *p, const struct sums *sums)
{
    const struct budget *budget = &p->shared.budget;
    uint64_t used = budget_used(budget), held = budget_held(budget);
    uint64_t limit = atomic_load(&budget->limit), owned = sums->charged + sums->backlog_charge;
    uint32_t left_behind = p->loop->n_inflight - sums->requests - sums->unpacking;
    HOLDS(p, left_behind <= p->loop->n_inflight, "%u requests, and %u of connections",
          p->loop->n_inflight, sums->requests + sums->unpacking);
    HOLDS(p, used >= owned, "%llu bytes used, and %llu by connections", LLU(used), LLU(owned));
    HOLDS(p, used == owned || left_behind, "%llu bytes used, and only %llu by connections",
          LLU(used), LLU(owned));
    HOLDS(p, used <= held, "%llu bytes used, of %llu", LLU(used), LLU(held));
    HOLDS(p, held <= p->held_most, "%llu bytes held, at most %llu", LLU(held), LLU(p->held_most));
    p->held_most = MAX(held, limit); /* after a limit fell it may only become less */
    uint64_t frames = atomic_load(&toy.frame_bytes);
    HOLDS(p, frames <= held, "%llu bytes of the device's for frames, and %llu held", LLU(frames),
          LLU(held));
    if (!atomic_load(&toy.apart))
        HOLDS(p, frames == held, "%llu bytes for frames, and %llu held", LLU(frames), LLU(held));
}

/* ---- addresses ---- */

static void check_records(const struct played *p)
{
    const struct loop *loop = p->loop;
    for (uint32_t i = 0; i < loop->n_slots; i++) {
        const struct connection *one = loop->slots[i].connection;
        uint64_t bytes = 0, requests = 0, connections = 0;
        for (uint32_t k = 0; one && k < loop->n_slots; k++) {
            const struct connection *c = loop->slots[k].connection;
            if (!c || c->peer != one->peer)
                continue;
            bytes += c->charged;
            requests += c->n_inflight + (c->unpack != NULL);
            connections++;
        }
        if (!one || !one->peer)
            continue;
        HOLDS(p, atomic_load(&one->peer->bytes) == bytes, "an address has %llu bytes, not %llu",
              LLU(bytes), LLU(atomic_load(&one->peer->bytes)));
        HOLDS(p, atomic_load(&one->peer->requests) == requests,
              "an address has %llu requests, not %u", LLU(requests),
              atomic_load(&one->peer->requests));
        HOLDS(p, atomic_load(&one->peer->connections) == connections,
              "an address has %llu connections", LLU(connections));
    }
}

/* ---- both ---- */

void played_check(struct played *p)
{
    struct sums sums;
    check_connections(p, &sums);
    check_queues(p, &sums);
    check_memory(p, &sums);
    check_records(p);
    const struct counters *counters = &p->loop->counters;
    HOLDS(p,
          counter_get(counters, COUNTER_READS_PAUSED) >=
              counter_get(counters, COUNTER_READS_RESUMED),
          "reading was resumed more often than stopped");
}

void played_check_empty(struct played *p)
{
    const struct loop *loop = p->loop;
    HOLDS(p, !loop->n_connections, "%u connections are left", loop->n_connections);
    HOLDS(p, !loop->n_inflight, "%u requests are left", loop->n_inflight);
    HOLDS(p, !budget_used(&p->shared.budget), "%llu bytes of the budget are used",
          LLU(budget_used(&p->shared.budget)));
    HOLDS(p, !loop->results && !loop->fresh && !loop->busy && !loop->waiting,
          "something is left on a queue");
    for (uint32_t i = 0; i < LOOP_IDS; i++)
        HOLDS(p, !loop->by_id[i], "a request is left among the ids");
    uint32_t descriptors = played_descriptors();
    HOLDS(p, descriptors == p->descriptors, "%u descriptors, and %u before", descriptors,
          p->descriptors);
}

void played_show(const struct played *p)
{
    const struct loop *loop = p->loop;
    const struct budget *budget = &p->shared.budget;
    fprintf(stderr, "budget: %llu used, %llu held, limit %llu; %u requests; time %llu ms\n",
            LLU(budget_used(budget)), LLU(budget_held(budget)), LLU(atomic_load(&budget->limit)),
            loop->n_inflight, LLU(uv_now(&loop->uv)));
    for (uint32_t i = 0; i < loop->n_slots; i++) {
        const struct connection *c = loop->slots[i].connection;
        struct session_state state;
        if (!c)
            continue;
        c->ops->state(c->session, &state);
        fprintf(stderr,
                "connection %u: phase %d, stops %x, queue %d, %u in flight, %u replies, %llu "
                "charged, backlog %zu, session %s%d, received %zu, active %llu, write %llu\n",
                i, (int)c->phase, c->stops, (int)c->queue, c->n_inflight, c->n_told,
                LLU(c->charged), c->backlog_bytes, c->ops->waiting(c->session) ? "waits " : "",
                (int)state.wait, state.received, LLU(c->active_ms), LLU(c->write_ms));
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
