/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loop's turn, see loop.h: results, connections in slices, and what goes out together at the end.
 * Everything that peers can make long is cut by the clock; what is left stays on its queue.
 */
#include <utlist.h>

#include "base/clock.h"
#include "daemon/exchange.h"
#include "daemon/loop.h"
#include "daemon/loop_internal.h"
#include "daemon/pipeline.h"

enum {
    LOOKS = 4,         /* so many calls of loop_slice_over share a look at the clock */
    RESULTS_LOOK = 16, /* so many small results are answered between two looks */
};

/* --- queues --- */

void loop_ready(struct loop *loop, struct connection *c, bool again)
{
    if (c->queue != QUEUE_NONE || c->phase >= CONNECTION_DYING)
        return;
    c->queue = again ? QUEUE_BUSY : QUEUE_FRESH;
    DL_APPEND2(*(again ? &loop->busy : &loop->fresh), c, prev_ready, next_ready);
}

static void unready(struct loop *loop, struct connection *c)
{
    if (c->queue != QUEUE_NONE)
        DL_DELETE2(*(c->queue == QUEUE_BUSY ? &loop->busy : &loop->fresh), c, prev_ready,
                   next_ready);
    c->queue = QUEUE_NONE;
}

bool loop_slice_over(struct loop *loop)
{
    if (!loop->slice_over && ++loop->slice_looks % LOOKS == 0)
        loop->slice_over = clock_now_ns() >= loop->slice_end_ns;
    return loop->slice_over;
}

/* --- memory --- */

bool loop_aside(struct loop *loop)
{
    if (!loop->aside && (loop->aside = slabs_take(loop->slabs, LOOP_STAGING, SLAB_REQUEST)))
        slabs_set_aside(loop->slabs, loop->aside);
    return loop->aside != NULL;
}

void loop_aside_drop(struct loop *loop)
{
    struct slab *slab = STEAL(loop->aside);
    if (!slab)
        return;
    slabs_claim(loop->slabs, slab);
    slabs_give(loop->slabs, slab);
}

/* Wakes the other loops, which give back the slabs they keep in their next turn; without this it
 * might be long in coming. */
static void others_wake(const struct loop *loop)
{
    const struct shared *shared = loop->shared;
    for (uint32_t i = 0; i < shared->n_loops; i++)
        if (shared->loops[i] != loop)
            uv_async_send(&shared->loops[i]->wake);
}

void loop_wait_memory(struct loop *loop, struct connection *c, size_t need)
{
    loop_unwait(loop, c);
    c->need = need;
    c->waiting_ms = uv_now(&loop->uv);
    if (!loop->waiting) {
        loop_tick_soon(loop);
        others_wake(loop);
    }
    DL_APPEND2(loop->waiting, c, prev_waiting, next_waiting);
    c->in_waiting = true;
}

void loop_unwait(struct loop *loop, struct connection *c)
{
    if (c->in_waiting)
        DL_DELETE2(loop->waiting, c, prev_waiting, next_waiting);
    c->in_waiting = false;
}

/* Wakes connections in the order in which they began to wait, while there is room for what all of
 * them need; and any that has waited long enough to try again. */
static void wake_waiting(struct loop *loop)
{
    uint64_t now_ms = uv_now(&loop->uv);
    size_t woken = 0;
    while (loop->waiting) {
        struct connection *c = loop->waiting;
        bool room = c->need <= SIZE_MAX - woken && slabs_room(loop->slabs, woken + c->need);
        if (!room && now_ms - c->waiting_ms < LOOP_MEMORY_WAIT_MS)
            return;
        woken += room ? c->need : 0;
        c->in_vain = !room;
        loop_unwait(loop, c);
        connection_resume(c, STOP_MEMORY);
    }
}

static void turns_now(const struct loop *loop, struct turns_now *out)
{
    uint64_t backlog =
        atomic_load_explicit(&loop->backlog_bytes, memory_order_relaxed) + loop->kept_bytes;
    backlog -= MIN(backlog, loop->stale_bytes);
    *out = (struct turns_now){.most = loop->table->limits.large_inflight_bytes,
                              .backlog = backlog >= SLAB_GROWN ? backlog : 0,
                              .ms = uv_now(&loop->uv)};
}

bool loop_turns_join(struct loop *loop, struct turn *turn, struct slab **slab, uint64_t bytes)
{
    struct turns_now now;
    turns_now(loop, &now);
    if (turns_join(&loop->turns, turn, slab, bytes, &now))
        return true;
    counter_add(&loop->counters, COUNTER_LARGE_WAITED, 1);
    loop_tick_soon(loop);
    return false;
}

static bool turns_take(struct loop *loop)
{
    struct turns_now now;
    if (!loop->turns.waiting)
        return false;
    turns_now(loop, &now);
    return turns_look(&loop->turns, &now);
}

/* Gives way to loops that find no memory. */
static void heed(struct loop *loop)
{
    if (slabs_heed(loop->slabs))
        loop_aside_drop(loop);
}

uint8_t *loop_head(struct loop *loop)
{
    if (LOOP_HEADS - loop->heads_used < MESSAGE_HEAD_MAX)
        loop_flush(loop);
    return loop->heads + loop->heads_used;
}

void loop_head_used(struct loop *loop, size_t size)
{
    loop->heads_used += size;
}

uint8_t *loop_room(struct loop *loop, size_t size)
{
    if (LOOP_HEADS - loop->heads_used < size)
        loop_flush(loop);
    uint8_t *room = loop->heads + loop->heads_used;
    loop->heads_used += size;
    return room;
}

/* --- results --- */

/* Gives back payloads that the device has a copy of. */
static void spent_take(struct loop *loop)
{
    struct inflight *inflight = atomic_exchange_explicit(&loop->spent, NULL, memory_order_acquire);
    for (struct inflight *next; inflight; inflight = next) {
        struct connection *c = loop_connection(loop, inflight->connection);
        next = inflight->next_spent;
        if (c)
            connection_payload_spent(c, inflight);
        else
            slabs_give(loop->slabs, STEAL(inflight->slab));
    }
}

void loop_results_take(struct loop *loop)
{
    /* Chains lie on the stack latest first; within a chain the order is that of the batch. Replies
     * may go in any order, so this order is left as it is. */
    *loop->results_tail = atomic_exchange_explicit(&loop->completions, NULL, memory_order_acquire);
    while (*loop->results_tail)
        loop->results_tail = &(*loop->results_tail)->next;
    /* A worker reports a payload as spent before it completes the request. The reports are taken
     * after the completions, so that none is left for a request that was completed, whose struct
     * may soon be another request's. */
    spent_take(loop);
}

void loop_hold(struct loop *loop, struct inflight *inflight)
{
    inflight->next = loop->held;
    loop->held = inflight;
}

void loop_result(struct loop *loop, struct inflight *inflight)
{
    if (inflight->whole) {
        pipeline_run_step_end(loop, inflight);
        return;
    }
    exchange_result(loop, inflight);
}

void loop_unsubmitted(struct loop *loop, struct inflight *inflight)
{
    if (inflight->whole)
        pipeline_run_step_end(loop, inflight);
    else
        loop_inflight_give(loop, inflight);
}

void loop_results_answer(struct loop *loop, uint64_t end_ns)
{
    for (uint32_t n = 1; loop->results; n++) {
        struct inflight *inflight = loop->results;
        loop->results = inflight->next;
        if (!loop->results)
            loop->results_tail = &loop->results;
        loop->result_costly = false;
        loop_result(loop, inflight);
        if ((loop->result_costly || n % RESULTS_LOOK == 0) && clock_now_ns() >= end_ns)
            return;
    }
}

/* --- the end of a turn --- */

static void submit_all(struct loop *loop)
{
    struct inflight *first = NULL, **tail = &first, *gathered = STEAL(loop->submit_first);
    loop->submit_tail = &loop->submit_first;
    loop->n_gathered = 0;
    for (struct inflight *inflight = gathered, *next; inflight; inflight = next) {
        next = inflight->next;
        inflight->next = NULL;
        if (!inflight->connection) { /* cancelled, or its connection has gone */
            loop_unsubmitted(loop, inflight);
            continue;
        }
        *tail = inflight;
        tail = &inflight->next;
    }
    struct inflight *refused = first ? dispatch_submit(loop->shared->dispatch, first) : NULL;
    for (struct inflight *next; refused; refused = next) {
        next = refused->next;
        loop_result(loop, refused);
    }
}

void loop_flush(struct loop *loop)
{
    for (struct connection *c = loop->dirty; c; c = c->next_dirty)
        connection_flush(c);
    loop->heads_used = 0;
}

void loop_held_release(struct loop *loop)
{
    struct batch *done = NULL;
    while (loop->held) {
        struct inflight *inflight = loop->held;
        loop->held = inflight->next;
        dispatch_release(inflight, &done);
        loop_inflight_give(loop, inflight);
    }
    if (done)
        dispatch_recycle(loop->shared->dispatch, done);
}

static void wrap_up(struct loop *loop)
{
    if (loop->submit_first)
        submit_all(loop);
    while (loop->dirty) {
        struct connection *c = loop->dirty;
        loop->dirty = c->next_dirty;
        c->in_dirty = false;
        connection_flush(c);
        connection_finish(c);
        connection_watch(c);
    }
    loop->heads_used = 0;
    if (loop->held)
        loop_held_release(loop);
}

void loop_breathe(struct loop *loop)
{
    if (loop->n_gathered < LOOP_GATHERED)
        return;
    loop_results_take(loop);
    loop_results_answer(loop, loop->slice_end_ns);
    wrap_up(loop);
}

static void bury(struct loop *loop)
{
    while (loop->dying) {
        struct connection *c = loop->dying;
        loop->dying = c->next_dying;
        unready(loop, c);
        loop_unwait(loop, c);
        connection_flush(c); /* drops the pieces */
        connection_close(c);
    }
}

/* --- a turn --- */

static uint64_t slice(struct loop *loop, struct connection *c, uint64_t now_ns)
{
    unready(loop, c);
    loop->slice_end_ns = now_ns + LOOP_SLICE_NS;
    loop->slice_over = false;
    connection_turn(c);
    return clock_now_ns();
}

static void serve(struct loop *loop, uint64_t now_ns, uint64_t end_ns)
{
    if (loop->busy) /* one busy connection at least, however many fresh ones come */
        now_ns = slice(loop, loop->busy, now_ns);
    if (loop->fresh) /* and one fresh one at least, however long that took */
        now_ns = slice(loop, loop->fresh, now_ns);
    while (now_ns < end_ns && (loop->fresh || loop->busy))
        now_ns = slice(loop, loop->fresh ? loop->fresh : loop->busy, now_ns);
}

void loop_turn(struct loop *loop)
{
    uint64_t now_ns = loop->turn_ns = clock_now_ns();
    heed(loop);
    loop_results_take(loop);
    loop_results_answer(loop, now_ns + LOOP_TURN_NS / 2);
    if (loop->classes)
        exchange_classes_turn(loop);
    if (loop->waiting)
        wake_waiting(loop);
    if (loop->parked)
        exchange_shapes_turn(loop);
    turns_take(loop);
    if (loop->fresh || loop->busy)
        serve(loop, clock_now_ns(), now_ns + LOOP_TURN_NS);
    wrap_up(loop);
    while (turns_take(loop)) /* what was written now makes room, too */
        wrap_up(loop);
    bury(loop);
    if (loop->held) /* what connections that ended have kept */
        loop_held_release(loop);
}
