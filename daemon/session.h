/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A session is one protocol spoken over one connection: it turns bytes into requests and replies
 * into bytes. It knows no socket. What it needs of its surroundings it asks of a host: the daemon's
 * connection (daemon/connection.c), or a test.
 *
 * The framed protocol (session_framed.c) is the first; others join as further tables.
 *
 * Bytes are decoded where they were read. Bytes that cannot be used at once stay with the session,
 * in slabs of the host; a host that is `paused` gets no more requests until session_ops.resume.
 *
 * Threads: a session, its host and all they hold belong to one loop's thread.
 */
#ifndef INFERD_DAEMON_SESSION_H
#define INFERD_DAEMON_SESSION_H

#include <sys/uio.h>

#include "daemon/slab.h"
#include "daemon/turns.h"
#include "proto/body.h"
#include "proto/request.h"
#include "proto/response.h"

struct session;

/* Why a session cannot go on; the host closes once what was written has gone out. */
enum session_end {
    SESSION_TOO_LARGE, /* a length beyond the limit: the stream cannot be followed */
    SESSION_FOREIGN,   /* the same, and the bytes begin another protocol */
    SESSION_STRANGER,  /* the same, and the peer has shown no token */
    SESSION_NO_MEMORY, /* not even for the bytes already here */
    SESSION_FLOOD,     /* it breaks the protocol, or works without an end */
    SESSION_DONE,      /* both sides have said their goodbyes */
};

struct session_host {
    const struct session_host_ops *ops;
};

struct session_ops;

/* What a request may bring along that not every host has a use for. */
enum session_need { SESSION_TOKEN, SESSION_TRACEPARENT };

struct session_host_ops {
    /*
     * Takes a whole request, which session_ops.reply answers now or later, exactly once unless the
     * connection goes first. Payloads lie in `frame` if that is not NULL (the host owns it from now
     * on), else in memory that is valid during the call only.
     */
    void (*request)(struct session_host *host, const struct request *request, struct slab *frame);
    /* Takes a message that is no request, and answers it at once through reply; `id` is 0 if it had
     * none. */
    void (*malformed)(struct session_host *host, uint64_t id, const struct error *err);
    /* Whether the host takes no more requests now, because of a limit (R20 of docs/operations.md)
     * or because it is the turn of others; the session keeps what follows until session_ops.resume.
     * A pause begins within `request`, `malformed` or a failed slab_take, and never between them:
     * the session begins with whatever comes while the host is not paused. */
    bool (*paused)(struct session_host *host);
    /* MESSAGE_HEAD_MAX bytes to encode into; then `write` what is to go out, of which the first
     * piece begins there. Both the head and the pieces must stay until they are flushed. */
    void *(*head)(struct session_host *host);
    void (*write)(struct session_host *host, const struct iovec *iov, uint32_t n);
    /* NULL: no memory, or none within the budget. */
    struct slab *(*slab_take)(struct session_host *host, size_t size);
    /* A slab for what is left of the bytes that `input` was given, which would be lost otherwise.
     * It was set aside before the bytes were read, so there is always one, once for each input.
     * NULL: no memory. */
    struct slab *(*slab_left)(struct session_host *host, size_t size);
    /* Gives the slab `size` usable bytes in its place, or at another address. NULL: it cannot grow
     * so, and stays as it was. May itself be NULL. */
    struct slab *(*slab_grow)(struct session_host *host, struct slab *slab, size_t size);
    void (*slab_give)(struct session_host *host, struct slab *slab);
    /* Whether the large message of `bytes` bytes that lies in *slab may come on (turns.h). False:
     * the host reads nothing more of the connection until it may, or, if `turn` is not NULL, tells
     * that turn, which must leave if the message goes first. May itself be NULL: always. */
    bool (*turn)(struct session_host *host, struct slab **slab, size_t bytes, struct turn *turn);
    void (*turn_leave)(struct session_host *host, struct turn *turn);
    /* Bytes that have come for this session and have not been read. */
    size_t (*queued)(struct session_host *host);
    /* The scratch that requests are decoded into; one for the loop. */
    struct request *(*scratch)(struct session_host *host);
    /* The largest message that is accepted, now. */
    size_t (*frame_limit)(struct session_host *host);
    /* Called when a message of `whole` bytes, which is over the limit, begins with these `size`
     * bytes. OK: the limit is another one now; UNAVAILABLE: more bytes may raise it; else why it
     * stays. */
    enum status (*introduce)(struct session_host *host, const void *message, size_t size,
                             size_t whole, struct error *err);
    /* For protocols that answer in order: with `on` the host gives the session nothing more, until
     * it is called without, which is to be when the request in hand has been answered. */
    void (*hold)(struct session_host *host, bool on);
    /* The bytes that came, `begin` and then `rest`, are those of another protocol, which takes the
     * connection over from here; this session is told nothing more. From `input` only. */
    void (*become)(struct session_host *host, const struct session_ops *protocol,
                   struct message_text begin, struct message_text rest);
    void (*end)(struct session_host *host, enum session_end why);

    /* --- for protocols that have several requests of a connection on their way at once, whose
     * replies wait for the peer's leave (HTTP/2) --- */

    /* `size` bytes (at most SESSION_ROOM_MAX) that stay until they are flushed, to write into; what
     * was got so before and not written yet is lost. The last `unused` of them can be given back
     * before the next call. */
    void *(*room)(struct session_host *host, size_t size);
    void (*room_give)(struct session_host *host, size_t unused);
    /* Sends what was written, or takes a copy: what the pieces point to is free after that. */
    void (*flush)(struct session_host *host);
    /* Memory for what the peer does not take yet. NULL: none, or more than may wait for a peer. */
    struct slab *(*reply_take)(struct session_host *host, size_t size);
    void (*reply_give)(struct session_host *host, struct slab *slab);
    /* The peer no longer wants an answer to that request. If it runs already, its answer comes and
     * is to be dropped. */
    void (*forget)(struct session_host *host, uint64_t id);
    /* The peer has shown a token, outside of a message; frame_limit may be another one now. */
    void (*token)(struct session_host *host, struct message_text token);
    /* To be called in long work: says whether to let others go on. Once it does, so does `paused`.
     */
    bool (*tired)(struct session_host *host);
    /* Charges memory of open calls; false: there is no room, and they are to be refused. */
    bool (*book)(struct session_host *host, size_t bytes);
    void (*unbook)(struct session_host *host, size_t bytes);
    /* Whether to keep this of a call, until a message of it is handed over. */
    bool (*needs)(struct session_host *host, enum session_need what);
};

/* Copies what is left of an input to the host's slab for it. NULL: no memory. */
struct slab *session_left_keep(struct session_host *host, const void *data, size_t size);

/* Makes *slab (NULL: there is none) one of at least `size` usable bytes that begins with its first
 * `have`. False: there is no memory, and it stays as it was. */
bool session_slab_move(struct session_host *host, struct slab **slab, size_t have, size_t size);

/* To be called when the message in *slab, of which `have` of `need` bytes are here, has been given
 * more room: whether it may come on now, see session_host_ops.turn. */
bool session_turn(struct session_host *host, struct slab **slab, size_t have, size_t need,
                  struct turn *turn);

enum {
    SESSION_ROOM_MAX = 128 * 1024,
    SESSION_LARGE = 64 * 1024, /* messages beyond this are handed over in their slab */
};

/* What the peer owes, for the timeouts. */
enum session_wait {
    SESSION_WAIT_NOTHING, /* between messages */
    SESSION_WAIT_HEAD,    /* in a head */
    SESSION_WAIT_BODY,    /* in a message */
    SESSION_WAIT_OPEN,    /* between messages, but in a call that may take long */
};

struct session_state {
    enum session_wait wait;
    uint64_t message; /* changes with each message */
    size_t received;  /* bytes of the present message */
};

/* A tick, and how long messages may take. */
struct session_pace {
    uint64_t now_ms, passed_ms; /* passed: since the last tick */
    bool stopped;               /* the host reads nothing now, so that the peer is not to blame */
    uint32_t timeout_ms;        /* for a whole message, */
    uint32_t rate;              /* and bytes a second of a large one */
};

/* The time of one message, as far as ticks have seen it; zeroed when the message begins. */
struct session_clock {
    uint64_t begin_ms; /* later by the times in which it could not come; 0: no tick has seen it */
    size_t begin;      /* bytes that had come by then */
    uint32_t sharers;  /* most messages that shared the connection at one tick */
};

enum session_lateness {
    SESSION_IN_TIME,
    SESSION_LATE, /* beyond timeout_ms */
    SESSION_SLOW, /* below `rate` */
    SESSION_LATENESSES,
};

/* A tick for a message of which `received` bytes have come, and which is one of `sharers` that come
 * side by side. `held`: it cannot come now. Returns its age in milliseconds. */
uint64_t session_clock_tick(struct session_clock *clock, size_t received, uint32_t sharers,
                            bool held, const struct session_pace *pace);
/* Says how the message does, at a tick; messages side by side need only reach the rate together. */
enum session_lateness session_lateness(const struct session_clock *clock, size_t received,
                                       const struct session_pace *pace);

/* How a protocol writes descriptions: what was made for one session is good for all of a format. */
enum session_format { SESSION_PROTOBUF, SESSION_JSON, SESSION_FORMATS };

struct session_ops {
    const char *name;
    enum session_format format;
    /* Encodes an answer that is no inference as response.body, in the arena. */
    enum status (*encode)(const struct body *body, struct arena *arena, struct message_text *out,
                          struct error *err);
    /* NULL: no memory. */
    struct session *(*create)(struct session_host *host);
    void (*destroy)(struct session *session); /* NULL is fine */
    /* A place for the peer's next bytes, if the session has one: large payloads are read there
     * directly, and input is given nothing else. Else `*size` is 0 and any buffer will do. */
    void (*buffer)(struct session *session, void **at, size_t *size);
    /* Whether bytes behind those that `buffer` asks for may be read in the same call, and are then
     * given to input after them: the session goes on taking input. NULL: no. */
    bool (*goes_on)(const struct session *session);
    /* Bytes to the end of what has begun, at least 1. A host that has nothing set aside for
     * leftovers reads no more than that, so that there are none. */
    size_t (*wants)(const struct session *session);
    /* Bytes that are to come at least until a message is whole; 0: nobody knows. */
    size_t (*due)(const struct session *session);
    /* Bytes came, in the place that `buffer` gave or elsewhere. All are taken. Not while paused. */
    void (*input)(struct session *session, const void *data, size_t size);
    /* Whether messages were kept because the host was paused; resume goes on with them. */
    bool (*waiting)(const struct session *session);
    void (*resume)(struct session *session);
    /* Encodes a response and writes it. */
    void (*reply)(struct session *session, const struct response *response);
    void (*state)(const struct session *session, struct session_state *out);
    /* The server is about to go: no new requests will be admitted. NULL: the protocol has no word
     * for it. */
    void (*drain)(struct session *session);
    /* Bytes of replies that the session itself still keeps, in slabs of the host: the connection
     * stays until they are written. NULL: never any. */
    size_t (*unsent)(const struct session *session);
    /* After `drain`: whether the goodbye is still under way, or a request that came whole is still
     * to be handed on or its answer to be written. The server waits for that, so it must have an
     * end, whatever the peer does. NULL: it never takes any time. */
    bool (*parting)(const struct session *session);
    /* Now and then; NULL: there is nothing to do. */
    void (*tick)(struct session *session, uint64_t now_ms);
    /* At each tick, for protocols whose messages come side by side, each in a time of its own:
     * gives up those that take too long, and counts them by lateness; `state` then tells of heads
     * alone. NULL: messages come one by one, and one that is late ends the connection. */
    void (*expire)(struct session *session, const struct session_pace *pace,
                   uint32_t late[SESSION_LATENESSES]);
};

/* The size of a slab for a message of `need` bytes of which `have` are here: there is room for the
 * bytes that have come, here and in the socket, and the message's word is taken for three times as
 * many again as are here, in such steps that half of it moves at most while it grows; or for as
 * many again if it is so large that it grows in its place. A large message gets some bytes more, so
 * that its payload can be aligned (slab_shift). */
size_t session_slab_size(struct session_host *host, size_t have, size_t need);

extern const struct session_ops session_framed;
extern const struct session_ops session_http; /* HTTP/1.1 */
extern const struct session_ops session_h2;   /* HTTP/2 with gRPC */

#endif
