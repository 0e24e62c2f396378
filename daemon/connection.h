/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection is the socket's side of a session. It reads into the session's own memory or the
 * loop's staging buffer, gathers what it writes and writes it once a turn, and keeps the accounts:
 * bytes and requests in flight (R20 of docs/operations.md), what the peer has not taken yet (R22),
 * and time (R21).
 *
 * A connection that may not read stays watched: the loop's poll sees its peer leave, and the loop's
 * tick enforces the time limits. Each reason to stop reading has its own end:
 *
 *   STOP_CAP      too much of it is in flight: until half of that has been answered
 *   STOP_UNREAD   its peer does not read: until half of what waits has been taken
 *   STOP_MEMORY   the budget had no room: until there is room for what it needs, in the order in
 *                 which connections began to wait, and for at most LOOP_MEMORY_WAIT_MS; then every
 *                 request that it keeps is answered, served or refused, before it may wait again
 *   STOP_HOLD     its protocol answers in order: until the request in hand has been answered
 *   STOP_TURN     several large messages are on their way: until others are done with (turns.h)
 *
 * A connection belongs to its loop's thread. Others refer to it by id, because it may be gone
 * before they answer.
 */
#ifndef INFERD_DAEMON_CONNECTION_H
#define INFERD_DAEMON_CONNECTION_H

#include <uv.h>

#include "daemon/caller.h"
#include "daemon/dispatch.h"
#include "daemon/peer.h"
#include "daemon/session.h"

struct loop;
struct loop_pieces;
struct exchange_unpack;
struct tls_peer;

/* The phases of a connection's life, in order; some may be skipped. */
enum connection_phase {
    CONNECTION_OPEN,      /* takes requests */
    CONNECTION_HALF,      /* the peer sends no more; what it asked is still answered */
    CONNECTION_ENDING,    /* the session gave up: the connection ends when all is written */
    CONNECTION_LINGERING, /* all is written; input is thrown away for a while */
    CONNECTION_DYING,     /* is closed at the end of the turn; until then replies are dropped */
    CONNECTION_CLOSED,    /* closed; in memory until libuv has let go of its handle */
};

enum { STOP_CAP = 1, STOP_UNREAD = 2, STOP_MEMORY = 4, STOP_HOLD = 8, STOP_TURN = 16 };

/* Which of the loop's queues a connection is on. */
enum connection_queue { QUEUE_NONE, QUEUE_FRESH, QUEUE_BUSY };

struct connection {
    struct session_host host;
    uv_poll_t poll;
    int fd;
    int events; /* what `poll` watches for */
    struct loop *loop;
    uint64_t id;
    struct peer *peer; /* its address; NULL: unknown */
    struct caller caller;
    uint64_t stranger_ms; /* since when its peer is a stranger (caller.h); 0: it is none */
    const struct session_ops *ops;
    struct session *session;
    const struct session_ops *former_ops; /* of a session that another one has followed */
    struct session *former;               /* it; NULL: there is none */
    struct tls_peer *tls;                 /* NULL: it speaks in the clear */

    enum connection_phase phase;
    uint32_t stops; /* STOP_... bits; 0: it reads */
    bool left;      /* the peer was seen to send no more while nothing is read */
    bool early;     /* something came while the session is held */

    /* The loop's queues. */
    enum connection_queue queue;
    struct connection *prev_ready, *next_ready;
    struct connection *prev_waiting, *next_waiting; /* for memory */
    size_t need;                                    /* bytes that it waits for */
    uint64_t waiting_ms;                            /* since when it waits */
    struct connection *prev_marked, *next_marked;   /* those with a mark */
    size_t mark;           /* bytes that the kernel wakes the loop for; 1: any */
    bool mark_seen, pours; /* the timer has seen the mark; much came in this turn */
    struct turn turn;      /* for STOP_TURN */
    bool in_vain; /* it has waited in vain: what it keeps is refused now, and waits no more */
    bool in_waiting, in_dirty, in_dying;
    struct connection *next_dirty, *next_dying;

    struct inflight *inflight;      /* by next_of_connection, the latest first */
    uint32_t n_inflight;            /* inferences that have not been answered */
    uint32_t n_orders;              /* to load and unload models, not answered yet */
    uint32_t n_told;                /* other replies that the kernel has not taken yet */
    size_t told_bytes;              /* the bytes of those replies */
    bool telling;                   /* such a reply is being written */
    uint64_t charged;               /* bytes of slabs for what came in */
    struct exchange_unpack *unpack; /* a request whose typed contents are being unpacked */

    struct loop_pieces *out;             /* NULL: nothing to write this turn */
    struct slab *backlog, *backlog_last; /* copies of what the socket did not take */
    size_t backlog_bytes;
    size_t kept_bytes; /* of slabs in which its session keeps replies */

    /* Milliseconds of the loop's clock. */
    uint64_t active_ms;  /* last byte in, last reply out */
    uint64_t served_ms;  /* when an answer went out last; else when it was opened */
    uint64_t tick_ms;    /* the last tick */
    uint64_t message_ns; /* clock_now_ns when the present message began; only with traces */
    struct session_state state;
    struct session_clock clock; /* of `state`, since it was first seen */
    uint64_t write_ms;          /* when the peer was last seen to take something of the backlog */
    size_t write_left;          /* how much was left then */
    uint64_t backlog_ms;        /* when the backlog began */
    uint64_t backlog_taken;     /* bytes of it that have gone since */
    uint64_t unsent_ms;         /* since when the session keeps replies; 0: it keeps none */
    uint64_t unsent_taken;      /* what has gone since, */
    size_t unsent_left;         /* and what was left at the last tick */
};

/* A socket that was accepted, to make a connection of. */
struct arrival {
    int fd;
    bool tcp;
    enum config_door door;
    const struct session_ops *protocol;
    struct peer *peer; /* may be NULL */
};

/* Takes over the arrival; if there is no memory, its socket is closed and no longer counted. */
void connection_open(struct loop *loop, const struct arrival *arrival);
/* Has the connection closed at the end of the turn, when what was not written is lost. Any function
 * of the loop's thread may call this. */
void connection_die(struct connection *c);
/* Closes it and takes back what is queued for it. Only the end of the turn calls this. */
void connection_close(struct connection *c);

/* Takes one turn (see loop.h): goes on with what the session kept, then with the socket, for about
 * LOOP_SLICE_NS. */
void connection_turn(struct connection *c);

/* Says whether the connection may take requests now. */
static inline bool connection_takes(const struct connection *c)
{
    return c->phase <= CONNECTION_HALF && !c->stops;
}

/* Says whether the peer is a stranger (caller.h). */
bool connection_is_stranger(struct connection *c);

/* Sends a response through its session. */
void connection_reply(struct connection *c, const struct response *response);

/* Add a reason to stop reading, and remove it. */
void connection_stop(struct connection *c, uint32_t why);
void connection_resume(struct connection *c, uint32_t why);
/* Watches for the events that its state asks for; dies if they cannot be watched. */
void connection_watch(struct connection *c);
/* Ends the connection if the peer sends no more and everything has been answered. */
void connection_finish(struct connection *c);

/* --- connection_accounts.c --- */

/* Book a request in, and out when its reply has been written; after `out` reading may go on. */
void connection_inflight_in(struct connection *c, struct inflight *inflight);
void connection_inflight_out(struct connection *c, struct inflight *inflight);
/* Books out a request whose payload, which stays with it, a worker may still be reading. */
void connection_inflight_orphan(struct connection *c, struct inflight *inflight);
/* Finds the latest request of that id which is in flight; NULL: none. */
struct inflight *connection_inflight_find(const struct connection *c, uint64_t id);

/* Slabs that are charged to this connection and to its peer. NULL: there is no memory, and reading
 * stops; or the peer's address has all that it may have. */
struct slab *connection_slab_take(struct connection *c, size_t size);
/* Has it grow in its place; NULL: it cannot, or may not. */
struct slab *connection_slab_grow(struct connection *c, struct slab *slab, size_t size);
void connection_slab_give(struct connection *c, struct slab *slab);
/* Charge memory of open calls, which is no slab. False: there is no room. */
bool connection_book(struct connection *c, size_t bytes);
void connection_unbook(struct connection *c, size_t bytes);
/* Gives back the payload of a request that still runs. */
void connection_payload_spent(struct connection *c, struct inflight *inflight);

/* To be called when more is in flight: begins STOP_CAP if that is too much. */
void connection_cap_check(struct connection *c);
/* To be called when less is in flight: ends STOP_CAP if that is little enough. */
void connection_cap_ease(struct connection *c);

/* --- connection_write.c --- */

/* Takes pieces to be written this turn; the first one begins at loop_head. The pieces must stay in
 * place until they are flushed. */
void connection_write(struct connection *c, const struct iovec *iov, uint32_t n);
/* Has the end of the turn look at the connection, even if nothing is written. */
void connection_dirty(struct connection *c);
/* Writes the pieces: at the end of the turn, or when there is no room for more. */
void connection_flush(struct connection *c);
/* Writes more of the backlog, since the socket takes it now. */
void connection_writable(struct connection *c);
/* Bytes that the peer has not taken yet, including those in the kernel. Only with a backlog. */
size_t connection_unread(const struct connection *c);
void connection_backlog_drop(struct connection *c);

/* --- connection_pour.c --- */

/* Much was read at once: a message pours in. */
void connection_poured(struct connection *c);
/* Says how many bytes are to wake the loop. At the end of a connection's turn. */
void connection_mark(struct connection *c);
/* The socket is about to go. */
void connection_mark_drop(struct connection *c);

/* --- connection_time.c --- */

/* Says whether the server does something for the peer, or has yet to: a request that came whole is
 * decoded, runs, or waits for its turn, or an answer is being written. None of this lasts without
 * an end, whatever the peer does: work ends, and who does not read has the limits of tick_write. */
bool connection_is_served(const struct connection *c);
/* After the server began to drain: whether its session has not finished its goodbye, or a request
 * that may have come whole has not been read yet. The latter lasts for a moment only, so that no
 * peer can hold up the drain by going on to send. */
bool connection_is_parting(const struct connection *c, uint64_t now_ms);
void connection_tick(struct connection *c, uint64_t now_ms);
/* Bytes that its peer has not taken for so long, at the last tick. */
size_t connection_stale(const struct connection *c, uint64_t now_ms, uint64_t long_ms);

#endif
