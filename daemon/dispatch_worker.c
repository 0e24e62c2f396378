/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workers' side of the dispatcher: a batch is gathered, run and counted without the lock; with
 * it the worker says that it is idle, and hears what to do next.
 */
#include <time.h>

#include "base/clock.h"
#include "daemon/dispatch.h"
#include "daemon/dispatch_internal.h"

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
        struct inflight *i = dispatch_inflight_of(item);
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

/* Tells the loops of payloads that the device has a copy of; the batch still runs. */
static enum status payloads_spent(struct dispatch *d, struct batch *batch, struct model_lane *lane)
{
    struct inflight *first[DISPATCH_MAX_LOOPS], *last[DISPATCH_MAX_LOOPS];
    uint64_t used = 0;
    enum status s = context_wait_inputs(lane->context, &batch->err);
    if (s != STATUS_OK)
        return s;
    for (struct batcher_item *item = batch->items; item; item = item->next) {
        struct inflight *i = dispatch_inflight_of(item);
        if (!i->batch)
            continue;
        i->next_spent = used >> i->loop & 1 ? first[i->loop] : NULL;
        if (!i->next_spent)
            last[i->loop] = i;
        first[i->loop] = i;
        used |= UINT64_C(1) << i->loop;
    }
    for (; used; used &= used - 1) {
        uint32_t loop = (uint32_t)__builtin_ctzll(used);
        d->config.spent(d->config.user, loop, first[loop], last[loop]);
    }
    return STATUS_OK;
}

static enum status batch_wait(struct dispatch *d, struct batch *batch, struct model_lane *lane)
{
    enum status s = STATUS_OK;
    if (engine_device_apart(d->config.device))
        s = payloads_spent(d, batch, lane);
    /* Waited for in any case: nothing of the batch may run on. */
    struct error *err = s == STATUS_OK ? &batch->err : NULL;
    enum status ended = context_wait(lane->context, &batch->times, err);
    return s == STATUS_OK ? ended : s;
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
        s = batch_wait(d, batch, lane);
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
        if (!dispatch_inflight_of(item)->batch)
            continue;
        requests++;
        queue_ns += dispatch_inflight_of(item)->queue_ns;
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
                if (dispatch_inflight_of(item)->batch)
                    dispatch_inflight_of(item)->status = s;
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
    struct dispatch_decided decided;
    struct dispatch_chains chains = {.used = 0};
    void *old = NULL;
    worker->finished = NULL;
    if (finished)
        for (struct batcher_item *item = finished->items, *next; item; item = next) {
            next = item->next;
            dispatch_chains_add(&chains, dispatch_inflight_of(item));
        }

    pthread_mutex_lock(&d->lock);
    worker->running = NULL;
    if (finished && !atomic_load_explicit(&finished->refs, memory_order_relaxed))
        old = dispatch_batch_recycle(worker, finished); /* everything in it had expired */
    if (worker->free)
        batcher_worker_idle(d->batcher, index);
    else
        worker->starved = true;
    dispatch_decide(d, clock_now_ns(), &decided);
    pthread_mutex_unlock(&d->lock);

    dispatch_chains_deliver(d, &chains);
    dispatch_carry_out(d, &decided);
    if (old)
        engine_buffer_free(d->config.device, old);
}

const struct pool_ops dispatch_pool_ops = {
    .start = worker_start,
    .work = worker_work,
    .idle = worker_idle,
    .stop = worker_stop,
};
