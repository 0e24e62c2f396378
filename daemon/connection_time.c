/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time limits of a connection (R21 of docs/operations.md), checked at every tick. A pause is
 * not the peer's fault: while a connection is stopped, the time of the messages that are coming in
 * does not run. Every reason to stop has a bound of its own: requests in flight end, a wait for
 * memory takes at most LOOP_MEMORY_WAIT_MS, and a backlog has the limits of tick_write.
 */
#include "daemon/connection.h"
#include "daemon/loop.h"
#include "daemon/tls.h"

enum {
    LINGER_MS = 1000,     /* for a peer to read why it is disconnected */
    DRAIN_READ_MS = 1000, /* that a drain waits for requests which came whole to be read; */
    COMING_MS = 200,      /* of silence, after which they did not */
};

static void timed_out(struct connection *c, enum counter which)
{
    counter_add(&c->loop->counters, which, 1);
    connection_die(c);
}

/* Disconnects a reader that takes nothing, or next to nothing. */
static void tick_write(struct connection *c, uint64_t now_ms, const struct config_limits *limits)
{
    if (!c->backlog)
        return;
    size_t left = connection_unread(c);
    if (left != c->write_left) {
        c->write_left = left;
        c->write_ms = now_ms;
    }
    uint64_t age_ms = now_ms - c->backlog_ms;
    bool slow = age_ms > limits->frame_timeout_ms &&
                c->backlog_taken * 1000 < age_ms * limits->receive_rate;
    if (slow || now_ms - c->write_ms > limits->frame_timeout_ms)
        timed_out(c, COUNTER_TIMEOUT_WRITE);
}

/* The same for replies that wait in the session for the peer's leave. */
static void tick_unsent(struct connection *c, uint64_t now_ms, const struct config_limits *limits)
{
    size_t left = c->ops->unsent ? c->ops->unsent(c->session) : 0;
    if (!left || !c->unsent_ms) {
        c->unsent_ms = left ? now_ms : 0;
        c->unsent_taken = 0;
        c->unsent_left = left;
        return;
    }
    c->unsent_taken += c->unsent_left - MIN(left, c->unsent_left);
    c->unsent_left = left;
    uint64_t age_ms = now_ms - c->unsent_ms;
    uint64_t rate = MAX(limits->receive_rate, 1u);
    if (age_ms > limits->frame_timeout_ms && c->unsent_taken * 1000 < age_ms * rate)
        timed_out(c, COUNTER_TIMEOUT_WRITE);
}

/* Has the session give up those of its messages that take too long. */
static void tick_messages(struct connection *c, const struct session_pace *pace)
{
    uint32_t late[SESSION_LATENESSES] = {0};
    c->ops->expire(c->session, pace, late);
    counter_add(&c->loop->counters, COUNTER_TIMEOUT_FRAME, late[SESSION_LATE]);
    counter_add(&c->loop->counters, COUNTER_SLOW_SENDERS, late[SESSION_SLOW]);
}

/* The message that is in, where they come one by one. */
static void tick_body(struct connection *c, size_t received, const struct session_pace *pace)
{
    enum session_lateness lateness = session_lateness(&c->clock, received, pace);
    if (lateness)
        timed_out(c, lateness == SESSION_LATE ? COUNTER_TIMEOUT_FRAME : COUNTER_SLOW_SENDERS);
}

static void tick_read(struct connection *c, uint64_t now_ms, const struct config_limits *limits)
{
    struct session_state state;
    const struct session_pace pace = {now_ms, now_ms - c->tick_ms, c->stops != 0,
                                      limits->frame_timeout_ms, limits->receive_rate};
    if (c->ops->expire)
        tick_messages(c, &pace);
    c->ops->state(c->session, &state);
    bool other = state.wait != c->state.wait || state.message != c->state.message;
    if (other) {
        c->state = state;
        c->clock = (struct session_clock){0};
    }
    uint64_t age_ms = session_clock_tick(&c->clock, state.received, 1, pace.stopped, &pace);
    if (other)
        return;
    if (state.wait == SESSION_WAIT_HEAD && age_ms > limits->header_timeout_ms)
        timed_out(c, COUNTER_TIMEOUT_HEADER);
    else if (state.wait == SESSION_WAIT_BODY)
        tick_body(c, state.received, &pace);
    else if (state.wait == SESSION_WAIT_NOTHING && !c->n_inflight && !c->n_orders && !c->backlog &&
             now_ms - c->active_ms > limits->idle_timeout_ms)
        timed_out(c, COUNTER_TIMEOUT_IDLE);
}

/* Disconnects a peer that has shown nothing which gives it a right for CALLER_WAIT_MS. */
static void tick_stranger(struct connection *c, uint64_t now_ms)
{
    if (!connection_is_stranger(c)) {
        c->stranger_ms = 0;
        return;
    }
    if (!c->stranger_ms)
        c->stranger_ms = now_ms;
    if (now_ms - c->stranger_ms > CALLER_WAIT_MS)
        timed_out(c, COUNTER_TIMEOUT_TOKEN);
}

bool connection_is_served(const struct connection *c)
{
    return c->n_inflight || c->n_orders || c->unpack || c->backlog || c->kept_bytes ||
           c->queue != QUEUE_NONE || c->ops->waiting(c->session);
}

/* Its bytes are in the kernel, from where they come without a pause: a message that comes slowly
 * has not been sent as a whole. */
static bool is_read(const struct connection *c, uint64_t now_ms)
{
    struct session_state state;
    c->ops->state(c->session, &state);
    bool begun = state.wait == SESSION_WAIT_HEAD || state.wait == SESSION_WAIT_BODY;
    return c->phase == CONNECTION_OPEN && begun && now_ms - c->active_ms < COMING_MS;
}

bool connection_is_parting(const struct connection *c, uint64_t now_ms)
{
    bool early = now_ms - c->loop->drain_ms < DRAIN_READ_MS;
    if (c->phase >= CONNECTION_ENDING)
        return false;
    if (early && (c->ops->waiting(c->session) || is_read(c, now_ms)))
        return true;
    return c->ops->parting && c->ops->parting(c->session);
}

void connection_tick(struct connection *c, uint64_t now_ms)
{
    const struct config_limits *limits = &c->loop->table->limits;
    if (c->phase == CONNECTION_LINGERING && now_ms - c->active_ms > LINGER_MS)
        connection_die(c);
    if (c->tls && !tls_is_open(c->tls)) {
        if (now_ms - c->served_ms > limits->header_timeout_ms)
            timed_out(c, COUNTER_TIMEOUT_TLS);
        return;
    }
    if (c->phase < CONNECTION_LINGERING)
        tick_stranger(c, now_ms);
    if (c->phase < CONNECTION_LINGERING)
        tick_write(c, now_ms, limits);
    if (c->phase < CONNECTION_LINGERING)
        tick_unsent(c, now_ms, limits);
    if (c->phase < CONNECTION_LINGERING && c->ops->tick)
        c->ops->tick(c->session, now_ms);
    if (c->phase < CONNECTION_LINGERING)
        tick_read(c, now_ms, limits);
    c->tick_ms = now_ms;
}

size_t connection_stale(const struct connection *c, uint64_t now_ms, uint64_t long_ms)
{
    size_t stale = c->backlog && now_ms - c->backlog_ms >= long_ms ? c->backlog_bytes : 0;
    if (c->unsent_ms && now_ms - c->unsent_ms >= long_ms)
        stale += c->kept_bytes;
    return stale;
}
