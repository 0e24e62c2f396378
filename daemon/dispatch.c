/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dispatcher, see dispatch.h. Its lock is held for list operations only: batches run, results
 * are delivered and workers are woken without it. Decisions are collected under the lock and
 * carried out after it.
 */
#include "daemon/dispatch.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "daemon/dispatch_internal.h"

enum { SPIN_NS = 200000 }; /* that a device's workers spin between two batches */

/* --- deliveries --- */

void dispatch_chains_add(struct dispatch_chains *chains, struct inflight *inflight)
{
    uint32_t loop = inflight->loop;
    inflight->next = NULL;
    if (chains->used >> loop & 1)
        chains->last[loop]->next = inflight;
    else
        chains->first[loop] = inflight;
    chains->last[loop] = inflight;
    chains->used |= UINT64_C(1) << loop;
}

void dispatch_chains_deliver(struct dispatch *d, const struct dispatch_chains *chains)
{
    for (uint64_t left = chains->used; left; left &= left - 1) {
        uint32_t loop = (uint32_t)__builtin_ctzll(left);
        d->config.deliver(d->config.user, loop, chains->first[loop], chains->last[loop]);
    }
}

/* --- decisions --- */

static struct batch *batch_form(struct dispatch *d, const struct batcher_decision *decision,
                                uint64_t now_ns)
{
    struct dispatch_worker *worker = &d->workers[decision->worker];
    struct batch *batch = worker->free;
    assert(batch && !worker->running); /* else it was not idle */
    worker->free = batch->next;
    worker->running = batch;
    batch->model = batcher_model_user(decision->model);
    batch->items = decision->batch;
    batch->instances = decision->instances;
    batch->run_ns = 0;
    batch->point = dispatch_inflight_of(batch->items)->point; /* the same for all: the shape key */
    batch->limit_ns = dispatch_pace_limit(batch->model, batch->point, batch->instances);
    batch->formed_ns = now_ns;
    return batch;
}

static void timer_arm(struct dispatch *d, uint64_t when_ns)
{
    if (when_ns >= d->armed_ns)
        return; /* the timer goes off earlier, and is armed again if there is nothing to do */
    d->armed_ns = when_ns;
    when_ns = MAX(when_ns, UINT64_C(1)); /* 0 would disarm it */
    const struct itimerspec at = {.it_value = {.tv_sec = (time_t)(when_ns / NS_PER_S),
                                               .tv_nsec = (long)(when_ns % NS_PER_S)}};
    int failed UNUSED = timerfd_settime(d->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
    assert(!failed);
}

static void waiting_write(const struct batcher_model *queue, uint64_t now_ns)
{
    struct batcher_model_stats stats;
    struct model *model = batcher_model_user(queue);
    batcher_model_stats(queue, &stats);
    atomic_store_explicit(&model->waiting.requests, stats.queued_items, memory_order_relaxed);
    atomic_store_explicit(&model->waiting.instances, stats.queued_instances, memory_order_relaxed);
    atomic_store_explicit(&model->waiting.age_ns, now_ns - MIN(now_ns, stats.oldest_arrival_ns),
                          memory_order_relaxed);
}

/* Under the lock. */
static uint64_t output_bytes(const struct dispatch *d)
{
    uint64_t bytes = 0;
    for (uint32_t w = 0; w < d->config.workers; w++) {
        const struct dispatch_worker *worker = &d->workers[w];
        for (uint32_t i = 0; i < DISPATCH_OUTPUTS; i++)
            bytes += worker->batches[i].output_size;
        bytes += (uint64_t)worker->n_spare * worker->output_size;
    }
    return bytes;
}

/* Under the lock. */
static void look_take(struct dispatch *d)
{
    atomic_store_explicit(&d->looked_for, false, memory_order_relaxed);
    atomic_store_explicit(&d->output_bytes, output_bytes(d), memory_order_relaxed);
    batcher_models_visit(d->batcher, waiting_write, clock_now_ns());
}

void dispatch_look(struct dispatch *d)
{
    bool nobody_came = atomic_exchange_explicit(&d->looked_for, true, memory_order_relaxed);
    if (!nobody_came || pthread_mutex_trylock(&d->lock) != 0)
        return;
    look_take(d);
    pthread_mutex_unlock(&d->lock);
}

void dispatch_decide(struct dispatch *d, uint64_t now_ns, struct dispatch_decided *out)
{
    struct batcher_decision decision;
    struct batcher_item **tail = &out->expired;
    out->n_jobs = 0;
    out->expired = NULL;
    do {
        batcher_step(d->batcher, now_ns, &decision);
        for (*tail = decision.expired; *tail; tail = &(*tail)->next)
            ;
        if (decision.model)
            out->jobs[out->n_jobs++] = batch_form(d, &decision, now_ns);
    } while (decision.model);
    if (decision.wake_ns != BATCHER_NEVER)
        timer_arm(d, decision.wake_ns);
    if (atomic_load_explicit(&d->looked_for, memory_order_relaxed))
        look_take(d);
}

/* Returns to their loops the requests that left the queue for another reason than a batch. */
static void unrun_deliver(struct dispatch *d, struct batcher_item *list, enum cause cause)
{
    struct dispatch_chains chains = {.used = 0};
    for (struct batcher_item *item = list, *next; item; item = next) {
        next = item->next;
        struct inflight *inflight = dispatch_inflight_of(item);
        inflight->cause = cause;
        inflight->batch = NULL;
        dispatch_chains_add(&chains, inflight);
    }
    dispatch_chains_deliver(d, &chains);
}

void dispatch_carry_out(struct dispatch *d, const struct dispatch_decided *decided)
{
    for (uint32_t i = 0; i < decided->n_jobs; i++)
        pool_give(d->pool, decided->jobs[i]->worker, decided->jobs[i]);
    if (decided->expired)
        unrun_deliver(d, decided->expired, CAUSE_EXPIRED);
}

/* --- loops --- */

struct inflight *dispatch_submit(struct dispatch *d, struct inflight *first)
{
    struct inflight *refused = NULL, **tail = &refused;
    struct batcher_item *evicted = NULL;
    struct dispatch_decided decided;
    pthread_mutex_lock(&d->lock);
    uint64_t now_ns = clock_now_ns();
    for (struct inflight *inflight = first, *next; inflight; inflight = next) {
        next = inflight->next;
        inflight->submitted = true;
        inflight->cancelled = false;
        inflight->batch = NULL;
        struct batcher_item *out = NULL;
        inflight->cause = batcher_submit(inflight->model->queue, &inflight->item, now_ns, &out);
        if (out) {
            out->next = evicted;
            evicted = out;
        }
        if (inflight->cause) {
            inflight->submitted = false;
            inflight->next = NULL;
            *tail = inflight;
            tail = &inflight->next;
        }
    }
    dispatch_decide(d, now_ns, &decided);
    pthread_mutex_unlock(&d->lock);
    dispatch_carry_out(d, &decided);
    if (evicted)
        unrun_deliver(d, evicted, CAUSE_QUEUE_FULL);
    return refused;
}

bool dispatch_cancel(struct dispatch *d, struct inflight *inflight)
{
    pthread_mutex_lock(&d->lock);
    bool cancelled = batcher_cancel(&inflight->item);
    pthread_mutex_unlock(&d->lock);
    return cancelled;
}

void dispatch_cancel_all(struct dispatch *d, struct inflight *first)
{
    if (!first)
        return;
    pthread_mutex_lock(&d->lock);
    for (struct inflight *inflight = first; inflight; inflight = inflight->next_of_connection)
        inflight->cancelled = inflight->submitted && batcher_cancel(&inflight->item);
    pthread_mutex_unlock(&d->lock);
}

bool dispatch_keep(struct inflight *inflight)
{
    struct batch *batch = inflight->batch;
    struct dispatch *d = inflight->model->dispatch;
    struct dispatch_worker *worker = &d->workers[batch->worker];
    pthread_mutex_lock(&d->lock);
    inflight->kept = batch->keepers || worker->kept < DISPATCH_KEPT;
    if (inflight->kept && batch->keepers++ == 0)
        worker->kept++;
    pthread_mutex_unlock(&d->lock);
    return inflight->kept;
}

static void unkeep(struct inflight *inflight, struct batch *batch)
{
    struct dispatch *d = inflight->model->dispatch;
    inflight->kept = false;
    pthread_mutex_lock(&d->lock);
    if (--batch->keepers == 0)
        d->workers[batch->worker].kept--;
    pthread_mutex_unlock(&d->lock);
}

void dispatch_release(struct inflight *inflight, struct batch **done)
{
    struct batch *batch = inflight->batch;
    inflight->batch = NULL;
    if (inflight->kept)
        unkeep(inflight, batch);
    if (batch && atomic_fetch_sub_explicit(&batch->refs, 1, memory_order_acq_rel) == 1) {
        batch->next = *done;
        *done = batch;
    }
}

void *dispatch_batch_recycle(struct dispatch_worker *worker, struct batch *batch)
{
    void *old = NULL;
    dispatch_shelf_give(worker, batch);
    if (batch->output_size < worker->output_size && worker->n_spare) {
        old = batch->output;
        batch->output = worker->spare[--worker->n_spare];
        batch->output_size = worker->output_size;
    }
    batch->next = worker->free;
    worker->free = batch;
    return old;
}

void dispatch_worker_idle(struct dispatch *d, uint32_t index, uint64_t now_ns)
{
    const struct dispatch_worker *worker = &d->workers[index];
    batcher_worker_ran(d->batcher, index, worker->ran, now_ns - MIN(now_ns, worker->formed_ns));
    batcher_worker_idle(d->batcher, index);
}

void dispatch_recycle(struct dispatch *d, struct batch *done)
{
    struct dispatch_decided decided;
    for (struct batch *batch = done; batch; batch = batch->next)
        free(STEAL(batch->results));
    while (done) {
        bool wake = false;
        void *old = NULL;
        uint64_t now_ns = 0;
        pthread_mutex_lock(&d->lock);
        while (done && !old) {
            struct batch *batch = done;
            struct dispatch_worker *worker = &d->workers[batch->worker];
            done = batch->next;
            old = dispatch_batch_recycle(worker, batch);
            if (worker->starved) {
                worker->starved = false;
                now_ns = clock_now_ns();
                dispatch_worker_idle(d, batch->worker, now_ns);
                wake = true;
            }
        }
        if (wake)
            dispatch_decide(d, now_ns, &decided);
        pthread_mutex_unlock(&d->lock);
        if (old)
            engine_buffer_free(d->config.device, old);
        if (wake)
            dispatch_carry_out(d, &decided);
    }
}

int dispatch_timer_fd(const struct dispatch *d)
{
    return d->timer_fd;
}

void dispatch_timer(struct dispatch *d)
{
    uint64_t times;
    if (read(d->timer_fd, &times, sizeof(times)) < 0 && errno != EAGAIN)
        assert(errno == EINTR);
    struct dispatch_decided decided;
    pthread_mutex_lock(&d->lock);
    d->armed_ns = BATCHER_NEVER;
    dispatch_decide(d, clock_now_ns(), &decided);
    pthread_mutex_unlock(&d->lock);
    dispatch_carry_out(d, &decided);
}

void dispatch_drain(struct dispatch *d)
{
    struct dispatch_decided decided;
    pthread_mutex_lock(&d->lock);
    batcher_drain(d->batcher);
    dispatch_decide(d, clock_now_ns(), &decided);
    pthread_mutex_unlock(&d->lock);
    dispatch_carry_out(d, &decided);
}

static enum status nothing(void *arg UNUSED, uint32_t worker UNUSED, void *state UNUSED,
                           struct error *err UNUSED)
{
    return STATUS_OK;
}

/* The pool calls a worker between jobs, after what it does at the end of one. */
void dispatch_settle(struct dispatch *d)
{
    if (d)
        pool_call_each(d->pool, nothing, NULL, NULL);
}

void dispatch_fail(struct dispatch *d)
{
    atomic_store_explicit(&d->failed, true, memory_order_relaxed);
    dispatch_drain(d);
}

enum status dispatch_undone(struct error *err, enum cause cause, bool may_have_run)
{
    return error_cause(err, cause, "%s; the request %s executed", cause_row(cause)->sentence,
                       may_have_run ? "may have been" : "was not");
}

/* --- looking at it --- */

void dispatch_model_stats(struct dispatch *d, const struct model *model,
                          struct batcher_model_stats *out)
{
    *out = (struct batcher_model_stats){.oldest_arrival_ns = BATCHER_NEVER};
    if (!model->queue)
        return;
    pthread_mutex_lock(&d->lock);
    batcher_model_stats(model->queue, out);
    pthread_mutex_unlock(&d->lock);
}

uint32_t dispatch_workers(const struct dispatch *d)
{
    return d->config.workers;
}

uint32_t dispatch_workers_busy(const struct dispatch *d)
{
    uint32_t busy = 0;
    for (uint32_t i = 0; i < d->config.workers; i++)
        busy += pool_busy_since(d->pool, i) != 0;
    return busy;
}

uint64_t dispatch_output_bytes(struct dispatch *d)
{
    pthread_mutex_lock(&d->lock);
    uint64_t bytes = output_bytes(d);
    pthread_mutex_unlock(&d->lock);
    return bytes;
}

uint64_t dispatch_output_bytes_seen(const struct dispatch *d)
{
    return atomic_load_explicit(&d->output_bytes, memory_order_relaxed);
}

/* --- life --- */

static void dispatch_destroy(struct dispatch *d)
{
    for (uint32_t w = 0; w < d->config.workers; w++) {
        struct dispatch_worker *worker = &d->workers[w];
        for (uint32_t i = 0; i < DISPATCH_OUTPUTS; i++) {
            engine_buffer_free(d->config.device, worker->batches[i].output);
            free(worker->batches[i].results);
        }
        for (uint32_t i = 0; i < worker->n_spare; i++)
            engine_buffer_free(d->config.device, worker->spare[i]);
        engine_buffer_free(d->config.device, worker->scratch);
        dispatch_shelves_free(worker);
    }
    batcher_free(d->batcher);
    if (d->timer_fd >= 0)
        close(d->timer_fd);
    pthread_mutex_destroy(&d->lock);
    pthread_mutex_destroy(&d->loading);
    free(d);
}

static enum status dispatch_start(struct dispatch *d, struct error *err)
{
    struct pool_ops ops = dispatch_pool_ops;
    d->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (d->timer_fd < 0)
        return error_errno(err, errno, "timerfd_create");
    d->batcher = batcher_new();
    if (!d->batcher)
        return error_no_memory(err, "the batcher");
    if (engine_device_apart(d->config.device))
        ops.spin_ns = SPIN_NS; /* the device computes, not these cores */
    return pool_new(d->config.workers, &ops, d, &d->pool, err);
}

enum status dispatch_new(const struct dispatch_config *config, struct dispatch **out,
                         struct error *err)
{
    struct dispatch *d = calloc(1, sizeof(*d) + config->workers * sizeof(d->workers[0]));
    if (!d)
        return error_no_memory(err, "the workers");
    d->config = *config;
    pthread_mutex_init(&d->lock, NULL);
    pthread_mutex_init(&d->loading, NULL);
    d->armed_ns = BATCHER_NEVER;
    for (uint32_t w = 0; w < config->workers; w++)
        for (uint32_t i = 0; i < DISPATCH_OUTPUTS; i++) {
            d->workers[w].batches[i].worker = w;
            dispatch_batch_recycle(&d->workers[w], &d->workers[w].batches[i]);
        }
    enum status status = dispatch_start(d, err);
    if (status)
        dispatch_destroy(d);
    else
        *out = d;
    return status;
}

void dispatch_free(struct dispatch *d)
{
    if (!d)
        return;
    pool_free(d->pool);
    dispatch_destroy(d);
}
