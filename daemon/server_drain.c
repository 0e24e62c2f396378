/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the server comes to an end. While it drains nothing new is admitted, and admitted requests
 * are answered. At the deadline requests that still run are answered "may have been executed", and
 * the process ends without taking itself apart, because a worker that hangs cannot be joined.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/server.h"
#include "daemon/server_internal.h"

enum {
    DRAIN_STEP_MS = 5,
    LAST_WORDS_MS = 100, /* for answers at a deadline to go out */
    AGAIN_MS = 1000,     /* signals to stop within this time count as one */
};

void server_handles_close(struct server *s)
{
    if (!s->handles)
        return;
    s->handles = false;
    server_signals_hold(); /* the process is about to end, and must not die of another signal */
    uv_handle_t *const handles[] = {
        (uv_handle_t *)&s->term,        (uv_handle_t *)&s->interrupt, (uv_handle_t *)&s->hangup,
        (uv_handle_t *)&s->news,        (uv_handle_t *)&s->beat,      (uv_handle_t *)&s->step,
        (uv_handle_t *)&s->batch_timer,
    };
    for (size_t i = 0; i < ARRAY_LEN(handles); i++)
        uv_close(handles[i], NULL);
}

static uint32_t pending_loops(const struct server *s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->shared.n_loops; i++)
        n += loop_pending(s->shared.loops[i]);
    return n;
}

static void order_all(struct server *s, enum loop_order order)
{
    for (uint32_t i = 0; i < s->shared.n_loops; i++)
        loop_order(s->shared.loops[i], order);
}

static bool loader_ended(struct server *s)
{
    pthread_mutex_lock(&s->lock);
    bool ended = s->told.ended;
    pthread_mutex_unlock(&s->lock);
    return ended;
}

/* Every few milliseconds while draining. */
static void on_step(uv_timer_t *timer)
{
    struct server *s = timer->data;
    uint64_t now_ms = uv_now(server_loop(s));
    bool noted = true;
    for (uint32_t i = 0; i < s->shared.n_loops; i++)
        noted &= atomic_load_explicit(&s->shared.loops[i]->drain_noted, memory_order_acquire);
    if (s->phase == PHASE_DRAINING && noted && !s->drain_sent) {
        s->drain_sent = true;
        dispatch_drain(s->shared.dispatch);
    }
    if (s->phase == PHASE_DRAINING && !pending_loops(s) && loader_ended(s)) {
        server_handles_close(s);
        order_all(s, LOOP_STOP);
        return;
    }
    if (now_ms < s->phase_end_ms)
        return;
    if (s->phase == PHASE_LAST_WORDS)
        _exit(EXIT_FAILURE);
    log_write(&s->shared.log, LOG_ERROR, "not everything could be answered in time");
    s->phase = PHASE_LAST_WORDS;
    s->phase_end_ms = now_ms + LAST_WORDS_MS;
    order_all(s, LOOP_FAIL_ALL);
}

void server_drain(struct server *s, int exit_code, uint64_t within_ms)
{
    uint64_t end_ms = uv_now(server_loop(s)) + within_ms;
    if (s->phase >= PHASE_DRAINING) { /* a loss while draining shortens it */
        s->phase_end_ms = MIN(s->phase_end_ms, end_ms);
        s->exit_code = MAX(s->exit_code, exit_code);
        return;
    }
    s->phase = PHASE_DRAINING;
    s->exit_code = exit_code;
    s->phase_end_ms = end_ms;
    server_ready_update(s);
    atomic_store_explicit(&s->shared.draining, true, memory_order_relaxed);
    notify_send(&s->notify, "STOPPING=1");
    listeners_stop(s->listeners);
    models_stop(s->models);
    order_all(s, LOOP_DRAIN);
    uv_timer_start(&s->step, on_step, 0, DRAIN_STEP_MS);
}

void server_device_lost(struct server *s, const char *why)
{
    if (atomic_exchange_explicit(&s->shared.lost, true, memory_order_relaxed))
        return;
    server_ready_update(s);
    counter_add(&s->shared.counters, COUNTER_DEVICE_LOST, 1);
    log_write(&s->shared.log, LOG_ERROR, "device lost: %s", why);
    notify_send(&s->notify, "STATUS=device lost");
    dispatch_fail(s->shared.dispatch);
    order_all(s, LOOP_FAIL_QUEUED);
    server_drain(s, EXIT_FAILURE, SERVER_LOST_MS);
}

/* --- signals --- */

static void drain_now(struct server *s)
{
    server_drain(s, EXIT_SUCCESS, atomic_load_explicit(&s->drain_ms, memory_order_relaxed));
}

static void on_leave(uv_timer_t *timer)
{
    drain_now(timer->data);
}

void server_on_stop_signal(uv_signal_t *signal, int number)
{
    struct server *s = signal->data;
    uint64_t now_ns = clock_now_ns();
    /* timeout(1) signals its child and then the child's group; a terminal and a shell do so too. */
    if (s->stop_ns && now_ns - s->stop_ns < AGAIN_MS * NS_PER_MS)
        return;
    s->stop_ns = now_ns;
    if (s->phase >= PHASE_DRAINING) {
        log_write(&s->shared.log, LOG_WARNING, "signal %d again: ending at once", number);
        _exit(EXIT_FAILURE);
    }
    uint64_t delay_ms = atomic_load_explicit(&s->drain_delay_ms, memory_order_relaxed);
    if (delay_ms && s->phase == PHASE_SERVING) {
        log_write(&s->shared.log, LOG_INFO, "signal %d: not ready any more; stopping in %llu ms",
                  number, (unsigned long long)delay_ms);
        s->phase = PHASE_LEAVING;
        server_ready_update(s);
        uv_timer_start(&s->step, on_leave, delay_ms, 0);
        return;
    }
    log_write(&s->shared.log, LOG_INFO, "signal %d: stopping", number);
    drain_now(s);
}

void server_on_reload_signal(uv_signal_t *signal, int number UNUSED)
{
    struct server *s = signal->data;
    if (s->phase >= PHASE_DRAINING)
        return;
    log_write(&s->shared.log, LOG_INFO, "reloading");
    notify_send(&s->notify, "RELOADING=1\nMONOTONIC_USEC=%llu",
                (unsigned long long)(clock_now_ns() / NS_PER_US));
    models_reload(s->models);
}
