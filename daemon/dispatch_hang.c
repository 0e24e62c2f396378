/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long batches take, and which take too long (R30 of docs/operations.md). The limit follows the
 * times that a profile was seen to take, so a slow model needs no configured time of its own. It is
 * computed every hundred batches, because quantiles cost too much for every batch under the lock.
 */
#include "base/clock.h"
#include "daemon/dispatch.h"
#include "daemon/dispatch_internal.h"

enum { PACE_BATCHES = 100, PACE_TIMES = 10 };

void dispatch_pace_note(struct model *model, const struct engine_profile *profile, uint64_t run_ns)
{
    struct model_pace *pace = &model->paces[profile - model->info->profiles];
    histogram_record(&pace->run_ns, run_ns);
    if (pace->run_ns.count % PACE_BATCHES == 0)
        pace->limit_ns = PACE_TIMES * histogram_quantile(&pace->run_ns, 0.99);
}

uint64_t dispatch_pace_limit(const struct model *model, uint32_t point, uint32_t instances)
{
    const struct engine_profile *profile = engine_profile_for(model->engine, point, instances);
    return profile ? model->paces[profile - model->info->profiles].limit_ns : 0;
}

/* Under the lock. Returns the limit that the worker's batch has exceeded; 0: none. */
static uint64_t exceeded(const struct dispatch_worker *worker, uint64_t now_ns, uint64_t floor_ns)
{
    const struct batch *batch = worker->running;
    uint64_t since_ns = batch ? atomic_load_explicit(&batch->since_ns, memory_order_relaxed) : 0;
    if (!since_ns || since_ns >= now_ns)
        return 0;
    uint64_t limit_ns = MAX(floor_ns, batch->limit_ns);
    return now_ns - since_ns > limit_ns ? limit_ns : 0;
}

uint64_t dispatch_hung(struct dispatch *d, uint64_t now_ns, uint64_t floor_ns)
{
    uint64_t least_ns = 0;
    pthread_mutex_lock(&d->lock);
    for (uint32_t w = 0; w < d->config.workers; w++) {
        uint64_t limit_ns = exceeded(&d->workers[w], now_ns, floor_ns);
        if (limit_ns && (!least_ns || limit_ns < least_ns))
            least_ns = limit_ns;
    }
    pthread_mutex_unlock(&d->lock);
    return least_ns;
}

size_t dispatch_stuck(struct dispatch *d, uint64_t now_ns, uint64_t floor_ns,
                      struct dispatch_stuck *out, size_t max)
{
    size_t n = 0;
    pthread_mutex_lock(&d->lock);
    for (uint32_t w = 0; w < d->config.workers; w++) {
        if (!exceeded(&d->workers[w], now_ns, floor_ns))
            continue;
        for (struct batcher_item *item = d->workers[w].running->items; item && n < max;
             item = item->next)
            out[n++] = (struct dispatch_stuck){dispatch_inflight_of(item)->loop,
                                               dispatch_inflight_of(item)->serial};
    }
    pthread_mutex_unlock(&d->lock);
    return n;
}
