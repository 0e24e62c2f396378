/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The main thread's eye on loops and workers (R30, R39 of docs/operations.md): the watchdog is fed
 * only while all of them make progress, and a batch that hangs makes the server unready.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "daemon/server_internal.h"

enum {
    BEAT_MOST_MS = 1000,
    LOOP_SILENCE_MS = 5000,
    STUCK_MAX = 4096,
};

void server_on_batch_timer(uv_poll_t *poll, int status UNUSED, int events UNUSED)
{
    struct server *s = poll->data;
    dispatch_timer(s->shared.dispatch);
}

/* Answers those who wait for a batch that hangs. */
static void stuck_abandon(struct server *s, uint64_t now_ns, uint64_t age_ns)
{
    struct dispatch_stuck *stuck = calloc(STUCK_MAX, sizeof(*stuck));
    uint64_t *serials = calloc(STUCK_MAX, sizeof(*serials));
    size_t n = stuck ? dispatch_stuck(s->shared.dispatch, now_ns, age_ns, stuck, STUCK_MAX) : 0;
    for (uint32_t loop = 0; serials && loop < s->shared.n_loops; loop++) {
        size_t k = 0;
        for (size_t i = 0; i < n; i++)
            if (stuck[i].loop == loop)
                serials[k++] = stuck[i].serial;
        if (k)
            loop_abandon(s->shared.loops[loop], serials, k);
    }
    free(stuck);
    free(serials);
}

/* While a batch runs far too long the server is unready, the watchdog is not fed, and the batch's
 * requests are answered. If the batch ends after all, serving goes on; if no service manager
 * watches, the process ends by itself. A device with memory of its own that takes so long does not
 * come back: it is lost (R29, R30). */
static void hang_check(struct server *s, uint64_t now_ns)
{
    uint64_t floor_ns = atomic_load_explicit(&s->hang_ns, memory_order_relaxed);
    uint64_t limit_ns = dispatch_hung(s->shared.dispatch, now_ns, floor_ns);
    bool hung = limit_ns != 0;
    if (hung && !s->hung) {
        log_write(&s->shared.log, LOG_ERROR, "a worker hangs: a batch has run for over %llu ms",
                  (unsigned long long)(limit_ns / NS_PER_MS));
        counter_add(&s->shared.counters, COUNTER_WORKER_HANGS, 1);
        s->hang_exit_ns = now_ns + limit_ns;
    } else if (!hung && s->hung) {
        log_write(&s->shared.log, LOG_WARNING, "no worker hangs any more");
    }
    bool changed = hung != s->hung;
    s->hung = hung;
    if (changed)
        server_ready_update(s);
    if (hung)
        stuck_abandon(s, now_ns, floor_ns);
    if (hung && engine_device_apart(s->shared.device))
        server_device_lost(s, "a batch hangs");
    else if (hung && !s->notify.watchdog_ns && now_ns > s->hang_exit_ns)
        server_device_lost(s, "a worker still hangs");
}

static bool loops_alive(struct server *s, uint64_t now_ms)
{
    bool alive = true;
    for (uint32_t i = 0; i < s->shared.n_loops; i++) {
        uint64_t beats = atomic_load_explicit(&s->shared.loops[i]->beats, memory_order_relaxed);
        if (beats != s->loop_beats[i]) {
            s->loop_beats[i] = beats;
            s->loop_beat_ms[i] = now_ms;
        }
        alive &= now_ms - s->loop_beat_ms[i] < LOOP_SILENCE_MS;
    }
    return alive;
}

static uint64_t beat_ms(const struct server *s)
{
    uint64_t ms = BEAT_MOST_MS;
    ms = MIN(ms, atomic_load_explicit(&s->hang_ns, memory_order_relaxed) / NS_PER_MS / 2);
    if (s->notify.watchdog_ns)
        ms = MIN(ms, s->notify.watchdog_ns / NS_PER_MS / 3);
    return MAX(ms, UINT64_C(1));
}

void server_on_beat(uv_timer_t *timer)
{
    struct server *s = timer->data;
    hang_check(s, clock_now_ns());
    if (loops_alive(s, uv_now(server_loop(s))) && !s->hung && s->notify.watchdog_ns)
        notify_send(&s->notify, "WATCHDOG=1");
    uv_timer_start(timer, server_on_beat, beat_ms(s), 0);
}
