/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event loop: a thread, its connections, and what they share.
 *
 * A loop is turns and queues. libuv polls; what it reports is only put on queues: connections with
 * something to read, results that came back. Then the turn works them off, for about LOOP_TURN_NS,
 * and what is left waits for the next turn, behind another poll. In a turn
 *
 *   - results come first, for they free workers' buffers;
 *   - connections that wait for memory are woken, in their order, while there is what they need;
 *   - connections get slices of about LOOP_SLICE_NS: first those that were idle before they became
 *     readable, then, in turns, those that used up a slice the last time (Shreedhar and Varghese's
 *     deficit round robin as fq_codel has it, RFC 8290 section 4.2; time is the unit). Whatever a
 *     busy peer sends, an idle one waits for a slice or two, not for all that is there;
 *   - at the end all requests gathered are submitted under one lock, and every connection's pieces
 *     go out in one system call each: what comes in together travels together.
 *
 * Completions and messages come from other threads through two stacks that are emptied at once, and
 * one uv_async_t. Everything else is the loop's thread's alone.
 */
#ifndef INFERD_DAEMON_LOOP_H
#define INFERD_DAEMON_LOOP_H

#include <uv.h>

#include "base/arena.h"
#include "daemon/connection.h"
#include "daemon/session.h"
#include "daemon/shared.h"

enum {
    LOOP_STAGING = 128 * 1024,  /* read at once where no session has a place of its own */
    LOOP_HEADS = 256 * 1024,    /* encoded between two flushes */
    LOOP_SLABS_KEPT = 64 << 20, /* memory kept for the next frames, if it is not pinned */
    LOOP_PIECES = 64,           /* of a connection's output before it must be flushed */
    LOOP_INFLIGHT_CHUNK = 64,   /* requests allocated at a time */
    LOOP_GATHERED = 128,        /* requests, before they are submitted in the middle of a turn; */
    LOOP_GATHERED_BYTES = 8192, /* so many bytes of a slab of its own make one more */
    LOOP_IDS = 4096,            /* buckets of requests in flight, by id */
    LOOP_TURN_NS = 4000000,
    LOOP_SLICE_NS = 1000000,
    LOOP_MEMORY_WAIT_MS = 100,
};

/* What is to be written for one connection at the end of the turn. */
struct loop_pieces {
    struct loop_pieces *next; /* free list */
    uint32_t n;
    size_t bytes;
    struct iovec v[LOOP_PIECES];
};

struct loop_slot {
    struct connection *connection; /* NULL: free */
    uint32_t generation;
    uint32_t next_free;
};

/* A description of the whole server, kept for a moment (describe.c). */
struct loop_snapshot {
    uint8_t *data;
    size_t size, capacity;
};
enum {
    SNAPSHOT_STATUS,
    SNAPSHOT_STATISTICS,
    SNAPSHOT_INDEX,
    SNAPSHOT_INDEX_READY,
    SNAPSHOTS,
};

struct loop_message; /* loop_messages.c */

struct loop {
    struct shared *shared;
    uint32_t index;
    uv_loop_t uv;
    uv_async_t wake;
    uv_check_t turn_end;
    uv_idle_t again; /* active while something waits for the next turn: the poll does not block */
    uv_timer_t tick;
    uv_thread_t thread;
    bool started, stopping;

    /* From any thread. Release by the pusher, acquire by the loop: what they point to is seen. */
    _Atomic(struct inflight *) completions;
    _Atomic(struct inflight *) spent; /* through next_spent */
    _Atomic(struct loop_message *) messages;
    /* Relaxed: a sign of life for the watchdog (R39 of docs/operations.md). */
    _Atomic uint64_t beats;
    /* Release by the loop at the end of a turn: what it did before is seen by who reads this. */
    _Atomic uint64_t pending;
    _Atomic bool drain_noted;
    /* Relaxed: connections dealt to it that have not closed; bytes that peers have not read. */
    _Atomic uint32_t load;
    _Atomic uint64_t backlog_bytes;

    struct table *table; /* a reference */
    struct counters counters;
    struct slabs *slabs;
    struct slab *aside; /* for what is left of the staging buffer; NULL: there is no room now */
    uint64_t now_ns;    /* when the bytes now being handled were read */

    struct loop_slot *slots;
    uint32_t n_slots, free_slot, n_connections;
    uint64_t next_serial;

    struct inflight *free_inflight;
    struct inflight_chunk *chunks;
    uint32_t n_inflight; /* taken, not given back */
    uint32_t n_backlogs; /* connections that have one */
    struct inflight *by_id[LOOP_IDS];
    uint64_t seed; /* of the hash of ids, so that nobody can choose ids that share a bucket */

    struct inflight *results, **results_tail; /* came back, not yet answered */
    struct inflight *submit_first, **submit_tail;
    uint32_t n_gathered;   /* since the last submission */
    struct inflight *held; /* replied to; their outputs may be read until the flush */

    struct connection *fresh, *busy; /* utlist DL, by next_ready */
    uint64_t slice_end_ns;
    uint32_t slice_looks; /* how often was asked whether the slice is over */
    bool slice_over;
    struct connection *waiting; /* for memory; utlist DL */
    struct connection *dirty;   /* have pieces to write */
    struct connection *dying;   /* to be closed at the end of the turn */
    struct loop_pieces *free_pieces;
    uint8_t *heads;
    size_t heads_used;

    struct loop_snapshot snapshots[SNAPSHOTS];
    uint64_t describe_ns; /* up to when descriptions of the whole server have used their share */

    struct request request;   /* scratch: decoded into */
    struct response response; /* scratch: encoded from */
    uint8_t staging[LOOP_STAGING];
};

/* Makes loop `index`; takes a reference to the table. Not running yet. */
enum status loop_new(struct shared *shared, uint32_t index, struct table *table, struct loop **out,
                     struct error *err);
/* Its thread must have ended, or never have begun. NULL is fine. */
void loop_free(struct loop *loop);

/* Starts its thread. */
enum status loop_start(struct loop *loop, struct error *err);
void loop_join(struct loop *loop);

/* --- from any thread --- */

/* Hands over a connected socket; closed if there is no memory. */
void loop_adopt(struct loop *loop, const struct arrival *arrival);
/* The loop changes to the table, then `done` is posted. Takes a reference. */
enum status loop_set_table(struct loop *loop, struct table *table, uv_sem_t *done);
/* What the loop is to do; each is idempotent. */
enum loop_order {
    LOOP_DRAIN,       /* take note that shared->draining is set: nothing is admitted any more */
    LOOP_FAIL_QUEUED, /* take back what still waits, answer it UNAVAILABLE */
    LOOP_FAIL_ALL,    /* and answer what is running: it may have been executed */
    LOOP_EVICT,       /* close the connection that has been of no use for longest */
    LOOP_STOP,        /* flush, close everything, end */
};
void loop_order(struct loop *loop, enum loop_order order);
/* The same, unless there is no memory for it: false then. */
bool loop_order_try(struct loop *loop, enum loop_order order);
/* Answers the requests of those serials, which hang in a worker: they may have been executed. */
void loop_abandon(struct loop *loop, const uint64_t *serials, size_t n);
/* A chain of completions. */
void loop_complete(struct loop *loop, struct inflight *first, struct inflight *last);
/* A chain, linked by next_spent, of requests whose payloads have been read; they are completed
 * later. */
void loop_spent(struct loop *loop, struct inflight *first, struct inflight *last);
/* Whether there are requests not yet answered, or replies not yet written. Until the loop has
 * taken note of LOOP_DRAIN the answer is yes. */
bool loop_pending(const struct loop *loop);

/* --- on its thread --- */

/* MESSAGE_HEAD_MAX bytes that stay until the end of the turn; then tell how many were used. */
uint8_t *loop_head(struct loop *loop);
void loop_head_used(struct loop *loop, size_t size);

/* Registers a descriptor with an epoll before libuv does so in its next turn, where it would abort
 * for want of kernel memory; what is registered already it only changes, which takes none. For a
 * handle that was just started. */
bool loop_watch(uv_loop_t *uv, int fd);
/* Makes the table of watchers as large as descriptors can get, once (R37). */
enum status loop_watchers_grow(uv_loop_t *uv, struct error *err);

/* NULL: no memory. */
struct inflight *loop_inflight_take(struct loop *loop);
/* Releases its payload and its model; its batch must have been released. */
void loop_inflight_give(struct loop *loop, struct inflight *inflight);
void loop_submit(struct loop *loop, struct inflight *inflight);
/* The bucket of a connection's requests with that id. */
struct inflight **loop_bucket(struct loop *loop, uint64_t connection, uint64_t id);
/* Between two reads: if much has gathered, the work of the turn's end is done now. Under overload a
 * turn is long, and workers would wait for what it gathers, and for the buffers that it holds. */
void loop_breathe(struct loop *loop);

/* The connection is to have a turn: behind those that wait already if it was idle (`again` false),
 * or behind all (true). */
void loop_ready(struct loop *loop, struct connection *connection, bool again);
/* Whether the present slice is over. */
bool loop_slice_over(struct loop *loop);
/* Whether there is a slab set aside for leftovers of the staging buffer; tries to get one. */
bool loop_aside(struct loop *loop);
/* The connection waits for `need` bytes of memory; and no longer does. */
void loop_wait_memory(struct loop *loop, struct connection *connection, size_t need);
void loop_unwait(struct loop *loop, struct connection *connection);

struct connection *loop_connection(const struct loop *loop, uint64_t id);
/* Gives the connection its id; false: no memory. And takes it back. */
bool loop_connection_came(struct loop *loop, struct connection *connection) MUST_USE;
void loop_connection_gone(struct loop *loop, struct connection *connection);
/* One that was dealt to the loop is no more, or never came to be. */
void loop_connection_uncount(struct loop *loop);

/* Handles what other threads have sent (loop_messages.c). */
void loop_messages_take(struct loop *loop);
/* Flushes and closes everything. */
void loop_stop(struct loop *loop);

#endif
