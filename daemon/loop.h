/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An event loop: a thread, its connections, and what they share.
 *
 * A loop works in turns: a turn is what it does between two waits. libuv polls, and its callbacks
 * only put things on queues: connections with something to read, results that came back. Then the
 * turn works the queues off, for about LOOP_TURN_NS, and what is left waits for the next turn,
 * after another poll. In a turn
 *
 *   - results come first, for they free workers' buffers; classes in the place of large outputs
 *     are found in a slice of their own;
 *   - connections that wait for memory are woken, in their order, while there is enough for them;
 *   - connections get slices of about LOOP_SLICE_NS: first those that were idle before they became
 *     readable, then, one after the other, those that used up their last slice (Shreedhar and
 *     Varghese's deficit round robin as fq_codel has it, RFC 8290 section 4.2; time is the unit).
 *     Whatever a busy peer sends, an idle peer waits for a slice or two, not for all of that;
 *   - at the end all requests gathered are submitted under one lock, and every connection's pieces
 *     go out in one system call each: what comes in together travels together.
 *
 * Other threads push completions, spent payloads and messages onto three stacks, which the loop
 * empties at once, and wake it through one uv_async_t. Everything else belongs to the loop's thread
 * alone.
 */
#ifndef INFERD_DAEMON_LOOP_H
#define INFERD_DAEMON_LOOP_H

#include <uv.h>

#include "base/arena.h"
#include "daemon/connection.h"
#include "daemon/session.h"
#include "daemon/shared.h"

enum {
    LOOP_STAGING = 128 * 1024,  /* bytes read at once if the session has no place of its own */
    LOOP_HEADS = 256 * 1024,    /* bytes of heads encoded between two flushes */
    LOOP_SLABS_KEPT = 64 << 20, /* memory kept for the next frames, if it is not pinned */
    LOOP_PIECES = 64,           /* of a connection's output before it must be flushed */
    LOOP_INFLIGHT_CHUNK = 64,   /* requests allocated at a time */
    LOOP_GATHERED = 128,        /* requests that are not left to wait for the end of the turn; */
    LOOP_GATHERED_BYTES = 8192, /* each so many bytes of a request's own slab count as one more */
    LOOP_IDS = 4096,            /* buckets of requests in flight, by id */
    LOOP_TURN_NS = 4000000,
    LOOP_SLICE_NS = 1000000,
    LOOP_POUR = 16 * 1024,     /* bytes read at once that are much */
    LOOP_POUR_NS = 50000,      /* so soon after the last ones they are a part of something large, */
    LOOP_LOOK_NS = 25000,      /* and the next ones are looked for so long; */
    LOOP_SEVERAL_NS = 1000000, /* where two connections pour within so long, */
    LOOP_MARK = 128 * 1024,    /* so many bytes wake the loop, */
    LOOP_MOMENT_MS = 1,        /* if they come within one or two of these */
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
struct answer_order; /* answer.h */
struct exchange_classes;

struct loop {
    struct shared *shared;
    uint32_t index;
    uv_loop_t uv;
    uv_async_t wake;
    uv_check_t turn_end;
    uint64_t poured_ns;  /* when much was read at once last, */
    uint64_t pourer;     /* and of which connection; */
    uint64_t several_ns; /* when it was another one than before */
    uint64_t look_ns;    /* until then the poll does not block */
    uv_idle_t again; /* active while something waits for the next turn: the poll does not block */
    uv_timer_t tick;
    uv_timer_t moment; /* active while connections are marked */
    uv_thread_t thread;
    bool started, stopping;

    /* From any thread. The pusher releases and the loop acquires, so that it sees what they
     * hold. */
    _Atomic(struct inflight *) completions;
    _Atomic(struct inflight *) spent; /* through next_spent */
    _Atomic(struct loop_message *) messages;
    /* Relaxed: a sign of life for the watchdog (R39 of docs/operations.md). */
    _Atomic uint64_t beats;
    /* The loop releases at the end of a turn, so that a reader sees what the loop did before. */
    _Atomic uint64_t pending;
    _Atomic bool drain_noted;
    _Atomic bool shapes_news; /* released by who has news for the parked */
    /* Relaxed: dealt connections that have not closed; bytes that peers have not read. */
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
    uint32_t n_backlogs; /* connections that have a backlog */
    struct inflight *by_id[LOOP_IDS];
    uint64_t seed; /* of the hash of ids, so that nobody can choose ids that share a bucket */

    struct inflight *results, **results_tail; /* came back, not yet answered */
    struct exchange_classes *classes;         /* wait for classes (exchange_classes.c); utlist DL */
    bool result_costly; /* answering one took time: a look at the clock is due */
    struct inflight *submit_first, **submit_tail;
    uint32_t n_gathered;     /* since the last submission */
    struct inflight *parked; /* wait for an engine for their sizes (exchange_shape.c) */
    uint64_t turn_ns;        /* when the present turn began */
    uint64_t drain_ms;       /* when it took note of LOOP_DRAIN */
    struct inflight *held;   /* replied to; their outputs may be read until the flush */

    struct connection *fresh, *busy; /* utlist DL, by next_ready */
    uint64_t slice_end_ns;
    uint32_t slice_looks; /* calls of loop_slice_over */
    bool slice_over;
    struct connection *waiting; /* for memory; utlist DL */
    struct turns turns;         /* of large messages */
    uint64_t kept_bytes;        /* of slabs in which sessions keep replies */
    uint64_t stale_bytes;       /* of replies that peers were slow to take, at the last tick */
    struct connection *marked;  /* wait for much (connection_pour.c); utlist DL, by next_marked */
    struct connection *dirty;   /* have pieces to write */
    struct connection *dying;   /* to be closed at the end of the turn */
    struct loop_pieces *free_pieces;
    uint8_t *heads;
    size_t heads_used;

    struct loop_snapshot snapshots[SESSION_FORMATS][SNAPSHOTS];
    uint64_t describe_ns; /* until when descriptions of the whole server have used their share */

    struct request request;   /* scratch: decoded into */
    struct response response; /* scratch: encoded from */
    uint8_t staging[LOOP_STAGING];
};

/* Makes loop `index`; takes a reference to the table. Not running yet. */
enum status loop_new(struct shared *shared, uint32_t index, struct table *table, struct loop **out,
                     struct error *err);
/* The loop's thread must have ended, or never have begun. NULL is fine. */
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
    LOOP_FAIL_QUEUED, /* take back requests that still wait, and answer them UNAVAILABLE */
    LOOP_FAIL_ALL,    /* and answer those that run, which may have been executed */
    LOOP_EVICT,       /* close the connection that has been of no use for longest */
    LOOP_STOP,        /* flush, close everything, end */
};
void loop_order(struct loop *loop, enum loop_order order);
/* The same, but false if there is no memory for the order. */
bool loop_order_try(struct loop *loop, enum loop_order order);
/* Answers the requests of these serials, which hang in a worker and may have been executed. */
void loop_abandon(struct loop *loop, const uint64_t *serials, size_t n);
/* Hands over an order that was carried out, or failed: its answer (answer.h). */
void loop_answered(struct loop *loop, struct answer_order *order);
/* Hands over a chain of completed requests. */
void loop_complete(struct loop *loop, struct inflight *first, struct inflight *last);
/* Hands over a chain, linked by next_spent, of requests whose payloads have been read. The requests
 * are completed later. */
void loop_spent(struct loop *loop, struct inflight *first, struct inflight *last);
/* What parked requests wait for may be there, or may never be. */
void loop_shapes_news(struct loop *loop);
/* Whether there are requests not yet answered, or replies not yet written. Until the loop has
 * taken note of LOOP_DRAIN the answer is yes. */
bool loop_pending(const struct loop *loop);

/* --- on its thread --- */

/* loop_head gives MESSAGE_HEAD_MAX bytes that stay until the end of the turn; loop_head_used says
 * how many of them were used. */
uint8_t *loop_head(struct loop *loop);
void loop_head_used(struct loop *loop, size_t size);
/* The same for `size` bytes (at most SESSION_ROOM_MAX), which are used from now on. */
uint8_t *loop_room(struct loop *loop, size_t size);

/* Registers the descriptor of a handle that was just started with libuv's epoll; false: no kernel
 * memory. libuv itself would register the descriptor before its next poll, and abort for want of
 * memory; a descriptor that is registered already it only changes, which takes no memory. */
bool loop_watch(uv_loop_t *uv, int fd);
/* Makes the table of watchers as large as descriptors can get, once (R37). */
enum status loop_watchers_grow(uv_loop_t *uv, struct error *err);

/* NULL: no memory. */
struct inflight *loop_inflight_take(struct loop *loop);
/* Releases its payload and its model; its batch must have been released. */
void loop_inflight_give(struct loop *loop, struct inflight *inflight);
void loop_submit(struct loop *loop, struct inflight *inflight);
/* Gives a request that has been answered back at the end of the turn: until the flush the reply
 * points into its batch's outputs. */
void loop_hold(struct loop *loop, struct inflight *inflight);
/* Hands back a request, or a step, that has its result or a cause why there is none. */
void loop_result(struct loop *loop, struct inflight *inflight);
/* The same of one that nobody waits for any more, and that was not submitted. */
void loop_unsubmitted(struct loop *loop, struct inflight *inflight);
/* The bucket that holds a connection's requests of this id. */
struct inflight **loop_bucket(struct loop *loop, uint64_t connection, uint64_t id);
/* Called between two reads: if much has gathered, does the work of the turn's end now. Under
 * overload a turn is long, and workers would wait for the requests that it gathers and for the
 * buffers that it holds. */
void loop_breathe(struct loop *loop);

/* Queues the connection for a slice. If it was idle (`again` false) it comes after the idle ones
 * that wait already; if it has used up a slice (true) it comes after all. */
void loop_ready(struct loop *loop, struct connection *connection, bool again);
/* Whether the present slice is over. */
bool loop_slice_over(struct loop *loop);
/* Sets a slab aside for leftovers of the staging buffer, unless there is one; false: no room. */
bool loop_aside(struct loop *loop);
/* Lets the connection wait for `need` bytes of memory; and ends the wait. */
void loop_wait_memory(struct loop *loop, struct connection *connection, size_t need);
void loop_unwait(struct loop *loop, struct connection *connection);
/* turns_join, by what is on its way now. */
bool loop_turns_join(struct loop *loop, struct turn *turn, struct slab **slab, uint64_t bytes);

struct connection *loop_connection(const struct loop *loop, uint64_t id);
/* Gives the connection its id; false: no memory. And takes it back. */
bool loop_connection_came(struct loop *loop, struct connection *connection) MUST_USE;
void loop_connection_gone(struct loop *loop, struct connection *connection);
/* Uncounts a connection that was dealt to the loop and has gone, or never came to be. */
void loop_connection_uncount(struct loop *loop);

/* Handles what other threads have sent (loop_messages.c). */
void loop_messages_take(struct loop *loop);
/* Flushes and closes everything. */
void loop_stop(struct loop *loop);

#endif
