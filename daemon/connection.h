/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection: the socket's side of a session. Reads into the session's place or the loop's
 * staging buffer; gathers what is to be written and writes it once a turn; keeps the accounts
 * (bytes and requests in flight, R20; what the peer has not taken yet, R22) and the timeouts (R21).
 *
 * It belongs to its loop's thread. Others refer to it by id: it may be gone before they answer.
 */
#ifndef INFERD_DAEMON_CONNECTION_H
#define INFERD_DAEMON_CONNECTION_H

#include <uv.h>

#include "daemon/caller.h"
#include "daemon/dispatch.h"
#include "daemon/session.h"

struct loop;
struct loop_pieces;

struct connection {
    struct session_host host;
    union {
        uv_handle_t handle;
        uv_stream_t stream;
        uv_tcp_t tcp;
        uv_pipe_t pipe;
    } io;
    struct loop *loop;
    uint64_t id;
    const struct session_ops *ops;
    struct session *session;

    bool reading;
    bool eof;       /* the peer sends no more; what it asked is still answered */
    bool ending;    /* the session gave up: close when all is written */
    bool lingering; /* that is done; the peer may still be sending */
    bool closing;   /* nothing of it may be used but by the loop's lists */
    bool over;      /* at a cap: nothing is read until it is at half */
    bool starved;   /* there was no budget for it: nothing is read until that is at half */
    bool in_starved, in_dirty; /* the loop's lists */
    struct connection *next_starved, *next_dirty;

    struct inflight *inflight; /* by next_of_connection, the latest first */
    uint32_t n_inflight;
    uint64_t charged; /* bytes of slabs that came in */

    struct caller caller;
    uint64_t stranger_ms; /* since when the small limits hold for it; 0: they do not */

    struct loop_pieces *out;             /* NULL: nothing to write this turn */
    struct slab *backlog, *backlog_last; /* copies of what the socket did not take */
    size_t backlog_bytes;
    uv_write_t write;
    uv_shutdown_t shutdown;
    bool writing;

    /* Milliseconds of the loop's clock. */
    uint64_t active_ms;   /* last byte in, last reply out */
    uint64_t message_ms;  /* when `state` was first seen */
    size_t message_begin; /* and how much had come by then */
    struct session_state state;
    uint64_t write_ms; /* when the backlog last shrank */
    size_t write_left; /* to this */
};

/* Takes over the descriptor. False (and it is closed): no memory. */
bool connection_open(struct loop *loop, int fd, bool tcp, const struct session_ops *ops) MUST_USE;
/* At once; what was not written is lost, what is queued for it is taken back. */
void connection_close(struct connection *c);

/* Books a request in and out: its reply has been written. After `out` reading may go on. */
void connection_inflight_in(struct connection *c, struct inflight *inflight);
void connection_inflight_out(struct connection *c, struct inflight *inflight);
/* Out, but a worker may still be reading its payload: that stays with the request. */
void connection_inflight_orphan(struct connection *c, struct inflight *inflight);

/* Who asks (its priority is identity_priority's); NULL: it has been answered that it may not. */
const struct identity *connection_permit(struct connection *c, const struct request *request);
/* Sends a response through its session. */
void connection_reply(struct connection *c, const struct response *response);
/* The same for a request that was answered at once with an error. */
void connection_reply_error(struct connection *c, uint64_t id, enum status status, const char *text,
                            uint64_t retry_after_us);

/* Slabs that are charged to this connection too. */
struct slab *connection_slab_take(struct connection *c, size_t size, bool force);
void connection_slab_give(struct connection *c, struct slab *slab);
/* The request's payload is no longer needed, though it is still running. */
void connection_payload_spent(struct connection *c, struct inflight *inflight);

/* Takes pieces to be written this turn; the first one begins at loop_head. They must stay until
 * they are flushed. */
void connection_write(struct connection *c, const struct iovec *iov, uint32_t n);
/* The end of the turn is to look at it, even if nothing is written. */
void connection_dirty(struct connection *c);
/* Writes the pieces: at the end of the turn, or when there is no room for more. */
void connection_flush(struct connection *c);
/* Closes it if all is done: the peer sends no more, and everything has been answered. */
void connection_finish(struct connection *c);
/* Bytes the peer has not taken yet, those in the kernel too. Only with a backlog. */
/* Of a handle that was just started, see loop_watch. */
bool connection_watch(const struct connection *c);
size_t connection_unread(const struct connection *c);
void connection_backlog_drop(struct connection *c);
/* The budget is at half: reads again. */
void connection_unstarve(struct connection *c);
/* Looks at the timeouts. */
void connection_tick(struct connection *c, uint64_t now_ms);

#endif
