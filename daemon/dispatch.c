/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dispatcher, see dispatch.h. Its lock is held for list operations alone: batches run, results
 * are delivered and workers woken without it. Decisions are collected under the lock and carried
 * out after it.
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

static struct inflight *inflight_of(struct batcher_item *item)
{
    return CONTAINER_OF(item, struct inflight, item);
}

/* ---- deliveries ---- */

struct chains {
    uint64_t used; /* a bit for each loop; there are at most 64 */
    struct inflight *first[DISPATCH_MAX_LOOPS], *last[DISPATCH_MAX_LOOPS];
};

static void chains_add(struct chains *chains, struct inflight *i)
{
    uint32_t loop = i->loop;
    i->next = NULL;
    if (chains->used >> loop & 1)
        chains->last[loop]->next = i;
    else
        chains->first[loop] = i;
    chains->last[loop] = i;
    chains->used |= UINT64_C(1) << loop;
}

static void chains_deliver(struct dispatch *d, const struct chains *chains)
{
    for (uint64_t left = chains->used; left; left &= left - 1) {
        uint32_t loop = (uint32_t)__builtin_ctzll(left);
        d->config.deliver(d->config.user, loop, chains->first[loop], chains->last[loop]);
    }
}

/* ---- decisions ---- */

/* What is to be done once the lock has been let go. */
struct decided {
    uint32_t n_jobs;
    struct batch *jobs[BATCHER_MAX_WORKERS];
    struct batcher_item *expired;
};

static struct batch *batch_form(struct dispatch *d, const struct batcher_decision *decision)
{
    struct dispatch_worker *worker = &d->workers[decision->worker];
    struct batch *batch = worker->free;
    assert(batch && !worker->running); /* else it was not idle */
    worker->free = batch->next;
    worker->running = batch;
    batch->model = batcher_model_user(decision->model);
    batch->items = decision->batch;
    batch->instances = decision->instances;
    return batch;
}

static void timer_arm(struct dispatch *d, uint64_t when_ns)
{
    if (when_ns >= d->armed_ns)
        return; /* it goes off earlier, finds nothing to do and is armed again */
    d->armed_ns = when_ns;
    when_ns = MAX(when_ns, UINT64_C(1)); /* 0 would disarm it */
    const struct itimerspec at = {.it_value = {.tv_sec = (time_t)(when_ns / NS_PER_S),
                                               .tv_nsec = (long)(when_ns % NS_PER_S)}};
    int r = timerfd_settime(d->timer_fd, TFD_TIMER_ABSTIME, &at, NULL);
    assert(r == 0);
    (void)r;
}

/* Under the lock. */
static void decide(struct dispatch *d, uint64_t now_ns, struct decided *out)
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
            out->jobs[out->n_jobs++] = batch_form(d, &decision);
    } while (decision.model);
    if (decision.wake_ns != BATCHER_NEVER)
        timer_arm(d, decision.wake_ns);
}

static void expired_deliver(struct dispatch *d, struct batcher_item *expired)
{
    struct chains chains = {.used = 0};
    uint64_t n = 0;
    for (struct batcher_item *item = expired, *next; item; item = next) {
        next = item->next;
        struct inflight *i = inflight_of(item);
        i->status = STATUS_DEADLINE_EXCEEDED;
        i->batch = NULL;
        chains_add(&chains, i);
        n++;
    }
    counter_add(d->config.counters, COUNTER_EXPIRED, n);
    chains_deliver(d, &chains);
}

static void carry_out(struct dispatch *d, const struct decided *decided)
{
    for (uint32_t i = 0; i < decided->n_jobs; i++)
        pool_give(d->pool, decided->jobs[i]->worker, decided->jobs[i]);
    if (decided->expired)
        expired_deliver(d, decided->expired);
}

/* ---- loops ---- */

struct inflight *dispatch_submit(struct dispatch *d, struct inflight *first)
{
    struct inflight *refused = NULL, **tail = &refused;
    struct decided decided;
    pthread_mutex_lock(&d->lock);
    uint64_t now_ns = clock_now_ns();
    for (struct inflight *i = first, *next; i; i = next) {
        next = i->next;
        i->submitted = true;
        i->cancelled = false;
        i->batch = NULL;
        i->status = batcher_submit(i->model->queue, &i->item, now_ns, NULL);
        if (i->status != STATUS_OK) {
            i->submitted = false;
            i->next = NULL;
            *tail = i;
            tail = &i->next;
        }
    }
    decide(d, now_ns, &decided);
    pthread_mutex_unlock(&d->lock);
    carry_out(d, &decided);
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
    for (struct inflight *i = first; i; i = i->next_of_connection)
        i->cancelled = i->submitted && batcher_cancel(&i->item);
    pthread_mutex_unlock(&d->lock);
}

void dispatch_release(struct inflight *inflight, struct batch **done)
{
    struct batch *batch = inflight->batch;
    inflight->batch = NULL;
    if (batch && atomic_fetch_sub_explicit(&batch->refs, 1, memory_order_acq_rel) == 1) {
        batch->next = *done;
        *done = batch;
    }
}

/* Under the lock: the batch can be used again. Returns a buffer that is too small by now. */
static void *batch_recycle(struct dispatch_worker *worker, struct batch *batch)
{
    void *old = NULL;
    if (batch->output_size < worker->output_size && worker->n_spare) {
        old = batch->output;
        batch->output = worker->spare[--worker->n_spare];
        batch->output_size = worker->output_size;
    }
    batch->next = worker->free;
    worker->free = batch;
    return old;
}

void dispatch_recycle(struct dispatch *d, struct batch *done)
{
    struct decided decided;
    while (done) {
        bool wake = false;
        void *old = NULL;
        pthread_mutex_lock(&d->lock);
        while (done && !old) {
            struct batch *batch = done;
            struct dispatch_worker *worker = &d->workers[batch->worker];
            done = batch->next;
            old = batch_recycle(worker, batch);
            if (worker->starved) {
                worker->starved = false;
                batcher_worker_idle(d->batcher, batch->worker);
                wake = true;
            }
        }
        if (wake)
            decide(d, clock_now_ns(), &decided);
        pthread_mutex_unlock(&d->lock);
        if (old)
            engine_buffer_free(d->config.device, old);
        if (wake)
            carry_out(d, &decided);
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
    struct decided decided;
    pthread_mutex_lock(&d->lock);
    d->armed_ns = BATCHER_NEVER;
    decide(d, clock_now_ns(), &decided);
    pthread_mutex_unlock(&d->lock);
    carry_out(d, &decided);
}

void dispatch_drain(struct dispatch *d)
{
    struct decided decided;
    pthread_mutex_lock(&d->lock);
    batcher_drain(d->batcher);
    decide(d, clock_now_ns(), &decided);
    pthread_mutex_unlock(&d->lock);
    carry_out(d, &decided);
}

void dispatch_fail(struct dispatch *d)
{
    atomic_store_explicit(&d->failed, true, memory_order_relaxed);
    dispatch_drain(d);
}

/* ---- workers ---- */

static enum status worker_start(void *user, uint32_t worker, void **state, struct error *err)
{
    (void)worker;
    struct dispatch *d = user;
    struct lane *lane;
    enum status s = lane_new(d->config.device, &lane, err);
    if (s == STATUS_OK)
        *state = lane;
    return s;
}

static void worker_stop(void *user, uint32_t worker, void *state)
{
    (void)user;
    (void)worker;
    lane_free(state);
}

/* Right before the launch: leaves out what has expired, and lines up the payloads of the rest.
 * Returns how many instances are left. */
static uint32_t batch_gather(struct dispatch *d, struct batch *batch, struct model_lane *lane,
                             uint64_t now_ns)
{
    const struct engine_info *info = batch->model->info;
    uint32_t instances = 0, n = 0;
    uint64_t expired = 0;
    for (struct batcher_item *item = batch->items; item; item = item->next) {
        struct inflight *i = inflight_of(item);
        i->queue_ns = now_ns - MIN(now_ns, item->arrival_ns);
        if (item->deadline_ns <= now_ns) {
            i->status = STATUS_DEADLINE_EXCEEDED;
            expired++;
            continue;
        }
        for (uint32_t k = 0; k < info->n_inputs; k++)
            lane->spans[(size_t)k * batch->model->max_items + n] = i->spans[k];
        i->status = STATUS_OK;
        i->batch = batch;
        i->first = instances;
        instances += item->instances;
        n++;
    }
    for (uint32_t k = 0; k < info->n_inputs; k++)
        lane->inputs[k] =
            (struct engine_input){&lane->spans[(size_t)k * batch->model->max_items], n};
    if (expired)
        counter_add(d->config.counters, COUNTER_EXPIRED, expired);
    atomic_store_explicit(&batch->refs, n, memory_order_relaxed);
    return instances;
}

static enum status batch_run(struct dispatch *d, struct batch *batch, struct model_lane *lane,
                             uint32_t instances)
{
    batch->times = (struct engine_times){0};
    if (atomic_load_explicit(&d->failed, memory_order_relaxed))
        return error_set(&batch->err, STATUS_UNAVAILABLE,
                         "the device was lost; the request was not executed");
    batch->profile = engine_profile_for(batch->model->engine, instances);
    enum status s =
        context_enqueue(lane->context, instances, lane->inputs, batch->output, &batch->err);
    if (s == STATUS_OK)
        s = context_wait(lane->context, &batch->times, &batch->err);
    if (s == STATUS_OK || batch->err.scope != ERROR_DEVICE)
        return s;
    if (!atomic_exchange_explicit(&d->failed, true, memory_order_relaxed))
        d->config.lost(d->config.user, &batch->err);
    return error_set(&batch->err, STATUS_UNAVAILABLE,
                     "the device was lost; the request may have been executed");
}

static void stat_add(_Atomic uint64_t *stat, uint64_t n)
{
    atomic_fetch_add_explicit(stat, n, memory_order_relaxed);
}

static void batch_count(struct model_stats *stats, const struct batch *batch, uint32_t instances,
                        enum status status, uint64_t run_ns)
{
    uint64_t requests = 0, queue_ns = 0;
    for (struct batcher_item *item = batch->items; item; item = item->next) {
        if (!inflight_of(item)->batch)
            continue;
        requests++;
        queue_ns += inflight_of(item)->queue_ns;
    }
    uint64_t total_ns = queue_ns + requests * run_ns;
    if (status != STATUS_OK) {
        stat_add(&stats->failed, requests);
        stat_add(&stats->failed_ns, total_ns);
        return;
    }
    const struct engine_times *t = &batch->times;
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME_COARSE, &wall);
    atomic_store_explicit(&stats->last_ms,
                          (uint64_t)wall.tv_sec * 1000 + (uint64_t)wall.tv_nsec / NS_PER_MS,
                          memory_order_relaxed);
    stat_add(&stats->ok, requests);
    stat_add(&stats->instances, instances);
    stat_add(&stats->batches, 1);
    stat_add(&stats->total_ns, total_ns);
    stat_add(&stats->queue_ns, queue_ns);
    stat_add(&stats->input_ns, requests * t->input_ns);
    stat_add(&stats->compute_ns, requests * t->compute_ns);
    stat_add(&stats->output_ns, requests * t->output_ns);
    struct model_batch_stats *by_batch = &stats->by_batch[instances];
    stat_add(&by_batch->count, 1);
    stat_add(&by_batch->input_ns, t->input_ns);
    stat_add(&by_batch->compute_ns, t->compute_ns);
    stat_add(&by_batch->output_ns, t->output_ns);
}

static void worker_work(void *user, uint32_t worker, void *state, void *job)
{
    (void)state;
    struct dispatch *d = user;
    struct batch *batch = job;
    struct model_lane *lane = &batch->model->lanes[worker];
    uint64_t start_ns = clock_now_ns();
    uint32_t instances = batch_gather(d, batch, lane, start_ns);
    if (instances) {
        enum status s = batch_run(d, batch, lane, instances);
        if (s != STATUS_OK) {
            for (struct batcher_item *item = batch->items; item; item = item->next)
                if (inflight_of(item)->batch)
                    inflight_of(item)->status = s;
        }
        batch->instances = instances;
        batch_count(&batch->model->stats, batch, instances, s, clock_now_ns() - start_ns);
    }
    d->workers[worker].finished = batch;
}

static void worker_idle(void *user, uint32_t index)
{
    struct dispatch *d = user;
    struct dispatch_worker *worker = &d->workers[index];
    struct batch *finished = worker->finished;
    struct decided decided;
    struct chains chains = {.used = 0};
    void *old = NULL;
    worker->finished = NULL;
    if (finished)
        for (struct batcher_item *item = finished->items, *next; item; item = next) {
            next = item->next;
            chains_add(&chains, inflight_of(item));
        }

    pthread_mutex_lock(&d->lock);
    worker->running = NULL;
    if (finished && !atomic_load_explicit(&finished->refs, memory_order_relaxed))
        old = batch_recycle(worker, finished); /* everything in it had expired */
    if (worker->free)
        batcher_worker_idle(d->batcher, index);
    else
        worker->starved = true;
    decide(d, clock_now_ns(), &decided);
    pthread_mutex_unlock(&d->lock);

    chains_deliver(d, &chains);
    carry_out(d, &decided);
    if (old)
        engine_buffer_free(d->config.device, old);
}

/* ---- looking at it ---- */

void dispatch_model_stats(struct dispatch *d, const struct model *model,
                          struct batcher_model_stats *out)
{
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

uint64_t dispatch_jobs_done(const struct dispatch *d)
{
    uint64_t done = 0;
    for (uint32_t i = 0; i < d->config.workers; i++)
        done += pool_jobs_done(d->pool, i);
    return done;
}

uint64_t dispatch_longest_ns(const struct dispatch *d, uint64_t now_ns)
{
    uint64_t longest = 0;
    for (uint32_t i = 0; i < d->config.workers; i++) {
        uint64_t since = pool_busy_since(d->pool, i);
        if (since && since < now_ns)
            longest = MAX(longest, now_ns - since);
    }
    return longest;
}

size_t dispatch_stuck(struct dispatch *d, uint64_t now_ns, uint64_t age_ns,
                      struct dispatch_stuck *out, size_t max)
{
    size_t n = 0;
    pthread_mutex_lock(&d->lock);
    for (uint32_t w = 0; w < d->config.workers; w++) {
        uint64_t since = pool_busy_since(d->pool, w);
        if (!d->workers[w].running || !since || since + age_ns > now_ns)
            continue;
        for (struct batcher_item *item = d->workers[w].running->items; item && n < max;
             item = item->next)
            out[n++] = (struct dispatch_stuck){inflight_of(item)->loop, inflight_of(item)->serial};
    }
    pthread_mutex_unlock(&d->lock);
    return n;
}

/* ---- life ---- */

static const struct pool_ops pool_ops = {
    .start = worker_start,
    .work = worker_work,
    .idle = worker_idle,
    .stop = worker_stop,
};

static void dispatch_destroy(struct dispatch *d)
{
    for (uint32_t w = 0; w < d->config.workers; w++) {
        struct dispatch_worker *worker = &d->workers[w];
        for (uint32_t i = 0; i < DISPATCH_OUTPUTS; i++)
            engine_buffer_free(d->config.device, worker->batches[i].output);
        for (uint32_t i = 0; i < worker->n_spare; i++)
            engine_buffer_free(d->config.device, worker->spare[i]);
    }
    batcher_free(d->batcher);
    if (d->timer_fd >= 0)
        close(d->timer_fd);
    pthread_mutex_destroy(&d->lock);
    free(d);
}

enum status dispatch_new(const struct dispatch_config *config, struct dispatch **out,
                         struct error *err)
{
    struct dispatch *d = calloc(1, sizeof(*d) + config->workers * sizeof(d->workers[0]));
    if (!d)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "no memory for the workers");
    d->config = *config;
    pthread_mutex_init(&d->lock, NULL);
    d->armed_ns = BATCHER_NEVER;
    for (uint32_t w = 0; w < config->workers; w++)
        for (uint32_t i = 0; i < DISPATCH_OUTPUTS; i++) {
            d->workers[w].batches[i].worker = w;
            batch_recycle(&d->workers[w], &d->workers[w].batches[i]);
        }
    enum status s = STATUS_OK;
    d->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (d->timer_fd < 0)
        s = error_errno(err, errno, "timerfd_create");
    d->batcher = batcher_new();
    if (s == STATUS_OK && !d->batcher)
        s = error_set(err, STATUS_RESOURCE_EXHAUSTED, "no memory for the batcher");
    if (s == STATUS_OK)
        s = pool_new(config->workers, &pool_ops, d, &d->pool, err);
    if (s == STATUS_OK)
        *out = d;
    else
        dispatch_destroy(d);
    return s;
}

void dispatch_free(struct dispatch *d)
{
    if (!d)
        return;
    pool_free(d->pool);
    dispatch_destroy(d);
}
