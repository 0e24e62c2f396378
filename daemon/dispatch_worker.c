/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The workers' side of the dispatcher. A worker gathers and runs a batch (dispatch_run.c) without
 * the lock; with the lock it says that it is idle, and learns what to do next.
 */
#include <string.h>

#include "base/clock.h"
#include "daemon/dispatch.h"
#include "daemon/dispatch_internal.h"

static enum status worker_start(void *user, uint32_t worker UNUSED, void **state, struct error *err)
{
    struct dispatch *d = user;
    struct lane *lane;
    TRY(lane_new(d->config.device, &lane, err));
    *state = lane;
    return STATUS_OK;
}

static void worker_stop(void *user UNUSED, uint32_t worker UNUSED, void *state)
{
    lane_free(state);
}

/* Right before the launch: leaves out requests that have expired, and lines up the payloads of the
 * others. Returns how many instances are left. */
static uint32_t batch_gather(struct batch *batch, struct model_lane *lane, uint64_t now_ns)
{
    const struct engine_info *info = batch->model->info;
    uint32_t instances = 0, n = 0;
    for (struct batcher_item *item = batch->items; item; item = item->next) {
        struct inflight *inflight = dispatch_inflight_of(item);
        inflight->queue_ns = now_ns - MIN(now_ns, item->arrival_ns);
        if (item->deadline_ns <= now_ns) {
            inflight->cause = CAUSE_EXPIRED;
            continue;
        }
        for (uint32_t k = 0; k < info->n_inputs; k++)
            lane->spans[(size_t)k * batch->model->max_items + n] = inflight->spans[k];
        lane->requests[n].instances = item->instances;
        lane->requests[n].shelved = inflight->whole ? inflight->shelved : NULL;
        memcpy(lane->requests[n].values, inflight->values,
               info->n_free * sizeof(inflight->values[0]));
        inflight->cause = CAUSE_OK;
        inflight->expired = false;
        inflight->batch = batch;
        inflight->first = instances;
        instances += item->instances;
        n++;
    }
    atomic_store_explicit(&batch->refs, n, memory_order_relaxed);
    return instances;
}

static void worker_work(void *user, uint32_t worker, void *state UNUSED, void *job)
{
    struct dispatch *d = user;
    struct batch *batch = job;
    struct model_lane *lane = &batch->model->lanes[worker];
    uint32_t instances = batch_gather(batch, lane, clock_now_ns());
    batch->instances = instances;
    if (instances)
        dispatch_batch_run(d, batch, lane, instances);
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
    uint64_t now_ns = clock_now_ns();
    worker->running = NULL;
    if (finished && finished->run_ns)
        dispatch_pace_note(finished->model, finished->profile, finished->run_ns);
    if (finished) {
        worker->ran = finished->instances;
        worker->formed_ns = finished->formed_ns;
    }
    if (finished && !atomic_load_explicit(&finished->refs, memory_order_relaxed))
        old = dispatch_batch_recycle(worker, finished); /* everything in it had expired */
    if (worker->free)
        dispatch_worker_idle(d, index, now_ns);
    else
        worker->starved = true;
    dispatch_decide(d, now_ns, &decided);
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
