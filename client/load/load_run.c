/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The runner of a load test; see load_run.h. Everything is allocated before the first request. Each
 * request that can be unanswered has a "shot", with the time from which its latency counts.
 *
 * A timerfd wakes open-loop sends: it is exact to microseconds. libuv's own timers are exact to
 * milliseconds only, which is more than many answers take.
 */
#include "client/load/load_run.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <uv.h>

#include "base/clock.h"
#include "base/compiler.h"

enum { PAUSE_MS = 5, DRAIN_MS = 2000 };

#define LATE_NS NS_PER_MS

enum phase { CONNECTING, WARMING, MEASURING, DRAINING, CLOSED };

struct load;

struct connection {
    struct load *load;
    struct inferd_async *async;
    bool alive;
};

struct shot {
    struct load *load;
    uint64_t counts_from_ns;
    uint32_t connection; /* closed loop: that of its client */
    struct shot *next;   /* on the list of free or of pausing ones */
};

struct load {
    const struct load_plan *plan;
    struct error *err;
    enum status status;
    enum phase phase;
    uv_loop_t loop;
    uv_timer_t tick;  /* ends the warm-up, each window and the drain */
    uv_timer_t pause; /* wakes the pausing clients */
    uv_poll_t due;    /* of `due_fd`: the next open-loop send */
    int due_fd;
    struct connection *connections;
    uint32_t n_alive, n_connected, next_connection;
    struct shot *shots, *free, *pausing;
    uint32_t n_shots, outstanding, next_request;
    uint64_t began_ns; /* open loop, as are the next two */
    bool stuck;        /* a send is due but not possible: the next answer makes room */
    double due_ns; /* the next send, after `began_ns`; a double, so that no part of a gap is lost */
    uint64_t rng;
    uint64_t window_began_ns;
    struct load_stats window;             /* the one under way */
    struct load_stats last[LOAD_WINDOWS]; /* the latest, in turn */
    uint32_t n_windows;
};

/* --- ending --- */

static void close_all(struct load *l)
{
    if (l->phase == CLOSED)
        return;
    l->phase = CLOSED;
    uv_close((uv_handle_t *)&l->tick, NULL);
    uv_close((uv_handle_t *)&l->pause, NULL);
    uv_close((uv_handle_t *)&l->due, NULL);
    for (uint32_t i = 0; i < l->plan->connections; i++)
        inferd_async_close(l->connections[i].async, NULL, NULL);
}

static void end_window(struct load *l)
{
    l->window.seconds = (double)(clock_now_ns() - l->window_began_ns) / (double)NS_PER_S;
    l->last[l->n_windows++ % LOAD_WINDOWS] = l->window;
}

static void give_up(struct load *l, enum status status, const char *reason)
{
    if (l->phase == CLOSED)
        return;
    l->status = error_set(l->err, status, "%.120s: %s", l->plan->address, reason);
    if (l->phase == MEASURING)
        end_window(l);
    close_all(l);
}

static void on_drained(uv_timer_t *timer)
{
    close_all(timer->data);
}

static void drain(struct load *l)
{
    l->phase = DRAINING;
    uv_poll_stop(&l->due);
    uv_timer_stop(&l->pause);
    if (l->outstanding == 0)
        close_all(l);
    else
        uv_timer_start(&l->tick, on_drained, DRAIN_MS, 0);
}

/* --- sending --- */

static void on_answer(void *user, const struct inferd_response *response);

/* Sends by the first living connection from number `from` on. False: none can send now, and the
 * shot stays the caller's. */
static bool fire(struct load *l, struct shot *shot, uint32_t from)
{
    const struct inferd_prepared *request = l->plan->requests[l->next_request];
    for (uint32_t i = 0; i < l->plan->connections; i++) {
        struct connection *c = &l->connections[(from + i) % l->plan->connections];
        if (!c->alive || inferd_async_send_prepared(c->async, request, on_answer, shot, NULL, NULL))
            continue;
        l->next_request = (l->next_request + 1) % l->plan->n_requests;
        l->outstanding++;
        return true;
    }
    return false;
}

/* A client of the closed loop sends its next request. */
static void client_next(struct load *l, struct shot *shot)
{
    shot->counts_from_ns = clock_now_ns();
    if (!fire(l, shot, shot->connection)) {
        shot->next = l->pausing;
        l->pausing = shot;
    }
}

static void on_pause(uv_timer_t *timer)
{
    struct load *l = timer->data;
    struct shot *shot = l->pausing;
    l->pausing = NULL;
    while (shot) {
        struct shot *next = shot->next;
        client_next(l, shot);
        shot = next;
    }
}

/* Uniform in (0, 1]. */
static double uniform(struct load *l)
{
    l->rng ^= l->rng << 13;
    l->rng ^= l->rng >> 7;
    l->rng ^= l->rng << 17;
    return ((double)(l->rng >> 11) + 1) / 9007199254740992.0;
}

static double next_gap_ns(struct load *l)
{
    double mean = (double)NS_PER_S / l->plan->rate;
    return l->plan->poisson ? -log(uniform(l)) * mean : mean;
}

/* Sends all requests that are due, as far as shots are free, and sets the alarm for the next one.
 * If no shot is free or nothing can be sent, the next answer calls this again. */
static void pump(struct load *l)
{
    uint64_t now = clock_now_ns();
    bool sent = true;
    while (l->free && l->began_ns + (uint64_t)l->due_ns <= now) {
        struct shot *shot = l->free;
        shot->counts_from_ns = l->began_ns + (uint64_t)l->due_ns;
        sent = fire(l, shot, l->next_connection);
        if (!sent)
            break;
        l->free = shot->next;
        l->next_connection = (l->next_connection + 1) % l->plan->connections;
        l->window.late += now - shot->counts_from_ns > LATE_NS;
        l->due_ns += next_gap_ns(l);
    }
    struct itimerspec at = {{0}, {0}}; /* no alarm */
    uint64_t due = l->began_ns + (uint64_t)l->due_ns;
    l->stuck = !sent || !l->free;
    if (!l->stuck) {
        at.it_value.tv_sec = (time_t)(due / NS_PER_S);
        at.it_value.tv_nsec = (long)(due % NS_PER_S);
    }
    timerfd_settime(l->due_fd, TFD_TIMER_ABSTIME, &at, NULL); /* also makes it unreadable */
}

static void on_due(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
    struct load *l = poll->data;
    if (l->phase < DRAINING)
        pump(l);
}

/* --- answers --- */

static void on_answer(void *user, const struct inferd_response *response)
{
    struct shot *shot = user;
    struct load *l = shot->load;
    bool open = l->plan->concurrency == 0;
    l->outstanding--;
    if (l->phase == MEASURING)
        load_stats_record(&l->window, response, l->plan->instances,
                          clock_now_ns() - shot->counts_from_ns);
    if (l->phase == DRAINING && l->outstanding == 0)
        close_all(l);
    if (l->phase >= DRAINING)
        return;
    if (open) {
        shot->next = l->free;
        l->free = shot;
        if (l->stuck)
            pump(l);
    } else if (response->status == INFERD_OK) {
        client_next(l, shot);
    } else {
        shot->next = l->pausing;
        l->pausing = shot;
    }
}

/* --- time --- */

static void on_window(uv_timer_t *timer);

static void begin_window(struct load *l)
{
    load_stats_init(&l->window);
    l->window.deadline_ns = l->plan->deadline_ns;
    l->window_began_ns = clock_now_ns();
}

static void on_warm(uv_timer_t *timer)
{
    struct load *l = timer->data;
    uint64_t ms = (uint64_t)(l->plan->window_s * 1000);
    l->phase = MEASURING;
    begin_window(l);
    uv_timer_start(&l->tick, on_window, MAX(ms, 1), MAX(ms, 1));
}

static void on_window(uv_timer_t *timer)
{
    struct load *l = timer->data;
    end_window(l);
    begin_window(l);
    if (l->n_windows >= l->plan->max_windows ||
        (l->n_windows >= LOAD_WINDOWS && load_stats_stable(l->last, LOAD_WINDOWS, LOAD_STABLE)))
        drain(l);
}

static void start(struct load *l)
{
    l->phase = WARMING;
    uv_timer_start(&l->tick, on_warm, (uint64_t)(l->plan->warm_up_s * 1000), 0);
    uv_timer_start(&l->pause, on_pause, PAUSE_MS, PAUSE_MS);
    l->began_ns = clock_now_ns();
    if (l->plan->concurrency == 0) {
        uv_poll_start(&l->due, UV_READABLE, on_due);
        pump(l);
        return;
    }
    while (l->free) {
        struct shot *shot = l->free;
        l->free = shot->next;
        client_next(l, shot);
    }
}

static void on_state(void *user, enum inferd_status status, const char *reason)
{
    struct connection *c = user;
    struct load *l = c->load;
    if (status == INFERD_OK) {
        c->alive = true;
        l->n_alive++;
        if (++l->n_connected == l->plan->connections)
            start(l);
        return;
    }
    l->n_alive -= c->alive;
    c->alive = false;
    if (l->phase == DRAINING && l->n_alive == 0)
        close_all(l); /* all is measured */
    else if (l->phase == CONNECTING || l->n_alive == 0)
        give_up(l, (enum status)status, reason);
}

/* --- life --- */

static enum status make_shots(struct load *l, struct error *err)
{
    const struct load_plan *p = l->plan;
    l->n_shots = p->concurrency ? p->concurrency : p->outstanding;
    l->shots = calloc(l->n_shots, sizeof(*l->shots));
    l->connections = calloc(p->connections, sizeof(*l->connections));
    if (!l->shots || !l->connections)
        return error_no_memory(err, "%u requests", l->n_shots);
    for (uint32_t i = l->n_shots; i > 0; i--) {
        struct shot *shot = &l->shots[i - 1];
        *shot = (struct shot){.load = l, .connection = (i - 1) % p->connections, .next = l->free};
        l->free = shot;
    }
    return STATUS_OK;
}

static enum status make_loop(struct load *l, struct error *err)
{
    int code = uv_loop_init(&l->loop);
    if (code)
        return error_set(err, STATUS_INTERNAL, "event loop: %s", uv_strerror(code));
    uv_timer_init(&l->loop, &l->tick);
    uv_timer_init(&l->loop, &l->pause);
    uv_poll_init(&l->loop, &l->due, l->due_fd);
    l->tick.data = l->pause.data = l->due.data = l;
    return STATUS_OK;
}

static void open_connections(struct load *l)
{
    /* A few times a connection's share, because the others take over when one is lost. */
    uint32_t most = l->n_shots / l->plan->connections * 4 + 64;
    struct inferd_options options = {.max_in_flight = MIN(most, l->n_shots)};
    for (uint32_t i = 0; i < l->plan->connections; i++) {
        struct connection *c = &l->connections[i];
        struct inferd_error err;
        c->load = l;
        enum inferd_status status =
            inferd_async_open(&l->loop, l->plan->address, &options, on_state, c, &c->async, &err);
        if (status) {
            give_up(l, (enum status)status, err.text);
            return;
        }
    }
}

static void result(const struct load *l, struct load_point *out)
{
    uint32_t n = MIN(l->n_windows, (uint32_t)LOAD_WINDOWS);
    out->concurrency = l->plan->concurrency;
    out->connections = l->plan->connections;
    out->rate = l->plan->concurrency ? 0 : l->plan->rate;
    out->cut = l->status;
    out->stable = !out->cut && n == LOAD_WINDOWS && load_stats_stable(l->last, n, LOAD_STABLE);
    load_stats_init(&out->stats);
    for (uint32_t i = 0; i < n; i++)
        load_stats_merge(&out->stats, &l->last[i]);
}

static enum status run_load(struct load *l, struct load_point *out, struct error *err)
{
    TRY(make_shots(l, err));
    TRY(make_loop(l, err));
    open_connections(l);
    uv_run(&l->loop, UV_RUN_DEFAULT);
    uv_loop_close(&l->loop);
    if (l->n_windows == 0)
        TRY(l->status);
    result(l, out);
    return STATUS_OK;
}

enum status load_run(const struct load_plan *plan, struct load_point *out, struct error *err)
{
    struct load *l = calloc(1, sizeof(*l)); /* too large for the stack: eight histograms */
    if (!l)
        return error_no_memory(err, "a load test");
    l->plan = plan;
    l->err = err;
    l->rng = UINT64_C(0x9e3779b97f4a7c15);
    l->due_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    enum status status =
        l->due_fd < 0 ? error_errno(err, errno, "timerfd_create") : run_load(l, out, err);
    if (l->due_fd >= 0)
        close(l->due_fd);
    free(l->connections);
    free(l->shots);
    free(l);
    return status;
}
