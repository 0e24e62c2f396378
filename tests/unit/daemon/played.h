/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One or two real event loops that a script plays with: bytes say who connects, sends, reads or
 * leaves, which batches end, how time goes by, and which orders and new limits come
 * (played_script.c). Everything is the daemon's own (loop, connections, session, slabs, exchange,
 * dispatcher) but the engine, which is the toy, and the clock, which is virtual. Sockets are real.
 */
#ifndef INFERD_TESTS_UNIT_DAEMON_PLAYED_H
#define INFERD_TESTS_UNIT_DAEMON_PLAYED_H

#include <stdarg.h>

#include "daemon/loop.h"
#include "daemon/peer.h"

enum {
    PLAYED_PEERS = 40,
    PLAYED_LOOPS = 2,
    PLAYED_BATCH = 16,         /* instances a request, at most */
    PLAYED_ADDRESSES = 3,      /* 127.0.0.1 and on; and the user at the unix sockets */
    PLAYED_OUT_MOST = 4 << 20, /* bytes that a peer has yet to send, at most */
};

/* The models: numbers an instance, in and out. */
enum played_model { PLAYED_SMALL, PLAYED_WIDE, PLAYED_TALL, PLAYED_MODELS };
struct played_shape {
    const char *name;
    uint32_t in, out;
};
extern const struct played_shape played_shapes[PLAYED_MODELS];

/* What a peer asked for. */
enum played_kind {
    ASK_INFER,
    ASK_WRONG,    /* an inference that no model accepts */
    ASK_DESCRIBE, /* any other question, which is answered OK */
    ASK_CANCEL,
};

struct played_ask {
    uint64_t id, value;
    uint64_t end; /* where the request ends in all that the peer sends */
    enum played_kind kind;
    enum played_model model;
    uint32_t instances;
    bool timed;     /* it has a deadline */
    bool cancelled; /* a cancel for it was sent */
    bool answered;
};

struct played_peer {
    int fd; /* -1: the peer is gone */
    bool tcp;
    bool half;        /* it said that it will send no more */
    bool broken;      /* it broke the protocol: its answers are no longer checked */
    bool closed;      /* the server closed it */
    bool paused_once; /* it held back the rest of a begun message at some time */

    uint8_t *out; /* all that it sends, in order, without the first `out_gone` bytes */
    size_t out_have, out_room;
    uint64_t out_gone, out_sent, out_allowed; /* counted from the first byte of all */

    uint8_t *in; /* bytes read that are no whole message yet */
    size_t in_have, in_room;

    uint64_t next_id;
    struct played_ask *asks;
    uint32_t n_asks, asks_room, first_open; /* all requests before this one are answered */
    uint32_t nameless;                      /* answers without an id, because memory was short */
};

struct played {
    struct shared shared;
    struct config *config;
    struct table *table;
    struct model *models[PLAYED_MODELS]; /* each is a reference */
    struct model *retired;
    uint32_t dealt; /* connections dealt out to loops so far */
    bool asleep[PLAYED_LOOPS];
    struct peers *records;
    int listener; /* for TCP */
    uint16_t port;
    uint64_t jobs; /* jobs that the worker had done when it was last quiet */

    struct played_peer peers[PLAYED_PEERS];
    /* the most that may be held: the limit, or what was held when the limit fell */
    uint64_t held_most;
    uint64_t frame_least, frame_most; /* least and greatest limit so far */
    bool draining, failed_queued, failed_all, evicted;
    uint32_t descriptors; /* open before any peer came */
    uint32_t cut_off;     /* peers that the server closed while it owed them answers */

    char refusal[160]; /* the last refusal that was read */
    const char *event; /* what is being played */
    uint32_t n_events;
};

/* --- played.c --- */

/* `config` has the limits; `apart`: the toy is a device apart; then how long batches are
 * collected. */
struct played *played_new(const struct config_limits *limits, uint32_t n_loops, bool apart,
                          uint32_t max_delay_us);
void played_free(struct played *p);

/* Runs one turn of each loop that has something to do, then waits for the worker and checks
 * everything. */
void played_turn(struct played *p);
void played_turns(struct played *p, uint32_t n);
/* Lets time go by, with turns at each timer that is due. */
void played_pass_ms(struct played *p, uint64_t ms);
/* Sets other limits, as a reload does. */
void played_limits(struct played *p, const struct config_limits *limits);
/* Waits until the worker has nothing to do, or stands at the toy's gate. */
void played_settle(struct played *p);

/* Sums up over all loops. */
uint64_t played_count(const struct played *p, enum counter which);

/* Ends the process. */
void played_fail(const struct played *p, const char *format, ...)
    __attribute__((format(printf, 2, 3), noreturn));
#define PLAYED_HOLDS(p, holds, ...)                                                                \
    do {                                                                                           \
        if (!(holds))                                                                              \
            played_fail(p, __VA_ARGS__);                                                           \
    } while (0)
/* A player sets it: the text that is printed before a failure, to find the script again. */
extern char played_title[160];
/* Print each event. */
extern bool played_loud;

/* --- played_peer.c --- */

/* Addresses 0 to PLAYED_ADDRESSES - 1 are TCP; a larger one is a pair of unix sockets. NULL: no
 * place. */
struct played_peer *played_connect(struct played *p, uint32_t address);
/* Appends a request to the bytes that the peer will send. False: too many bytes wait already. */
bool played_ask_infer(struct played *p, struct played_peer *peer, enum played_model model,
                      uint32_t instances, bool typed, uint64_t timeout_us);
bool played_ask_wrong(struct played *p, struct played_peer *peer, uint32_t how);
bool played_ask_describe(struct played *p, struct played_peer *peer, uint32_t which);
bool played_ask_cancel(struct played *p, struct played_peer *peer, uint32_t which);
/* Appends bytes that are no request. */
bool played_raw(struct played *p, struct played_peer *peer, const void *data, size_t size);
/* Lets the peer send its bytes up to there. It sends as many as the socket takes. */
void played_allow(struct played_peer *peer, uint64_t upto);
void played_send(struct played_peer *peer);
static inline uint64_t played_end(const struct played_peer *peer)
{
    return peer->out_gone + peer->out_have;
}
/* Reads up to so many bytes, and checks the answers in them. Returns how many came. */
size_t played_read(struct played *p, struct played_peer *peer, size_t most);
void played_half_close(struct played_peer *peer);
void played_leave(struct played_peer *peer, bool reset);
/* Requests that were sent whole and are not answered. */
uint32_t played_owed(const struct played_peer *peer);
void played_peer_free(struct played_peer *peer);

/* --- played_check.c --- */

void played_check(struct played *p);
/* Checks that no peer is there and nothing is used. */
void played_check_empty(struct played *p);
uint32_t played_descriptors(void);
/* Prints the state of everything, after a failure. */
void played_show(const struct played *p);

/* --- played_script.c --- */

/* Plays a whole script, its end included. */
void played_run(const uint8_t *data, size_t size);

#endif
