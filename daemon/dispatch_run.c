/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a batch runs, on its worker's thread.
 *
 * A batch of several requests that fails with an error of scope ERROR_REQUEST (such as an index out
 * of range in one of them) is run again in halves, and a half that fails again in halves, until
 * each failing request fails alone: only the guilty get the error, and nobody sees another one's.
 * So a request runs at most once more for each time its batch can be halved. Each part begins at
 * the front of an output buffer, so parts run into a buffer of the worker, made when it is first
 * needed, and their results are moved to their places in the batch's buffer. A failure that
 * concerns more than a request (ERROR_MODEL, ERROR_DEVICE) is not tried again, and neither is a
 * batch whose payloads have gone back to their loops.
 *
 * Requests that differ in an input which all instances of a batch share run in parts, too, each of
 * requests that agree. Their keys keep them apart (dispatch_key.c), unless two keys happen to be
 * equal.
 *
 * A batch that runs as a whole leaves on its shelf what pipelines' next steps take from there
 * (dispatch_shelf.c); one that runs in parts leaves everything on the host.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/dispatch.h"
#include "daemon/dispatch_internal.h"

enum { HALVINGS = 16 }; /* more than BATCHER_MAX_ITEMS can take */
_Static_assert(1 << HALVINGS > BATCHER_MAX_ITEMS, "a batch may need more halvings");

/* Consecutive requests of a batch. */
struct part {
    struct batcher_item *items; /* its first request */
    uint32_t first, n;          /* the first one's number among those gathered, and how many */
    uint32_t instance, instances;
};

static bool was_gathered(const struct batch *batch, struct batcher_item *item)
{
    return dispatch_inflight_of(item)->batch == batch;
}

/* The first request from `item` on that was gathered; NULL: none. */
static struct batcher_item *gathered(const struct batch *batch, struct batcher_item *item)
{
    while (item && !was_gathered(batch, item))
        item = item->next;
    return item;
}

/* --- one run --- */

/* Tells the loops that the device has a copy of the payloads. The batch still runs. */
static void payloads_spent(struct dispatch *d, const struct batch *batch, const struct part *part)
{
    struct inflight *first[DISPATCH_MAX_LOOPS], *last[DISPATCH_MAX_LOOPS];
    uint64_t used = 0;
    struct batcher_item *item = part->items;
    for (uint32_t n = 0; n < part->n; n++, item = gathered(batch, item->next)) {
        struct inflight *inflight = dispatch_inflight_of(item);
        inflight->next_spent = used >> inflight->loop & 1 ? first[inflight->loop] : NULL;
        if (!inflight->next_spent)
            last[inflight->loop] = inflight;
        first[inflight->loop] = inflight;
        used |= UINT64_C(1) << inflight->loop;
    }
    for (; used; used &= used - 1) {
        uint32_t loop = (uint32_t)__builtin_ctzll(used);
        d->config.spent(d->config.user, loop, first[loop], last[loop]);
    }
}

/* Takes what a run made whose sizes are only known now. A reply must be able to carry it. */
static enum status results_take(struct batch *batch, struct context *context)
{
    struct engine_results *results = context_results(context);
    uint64_t sum = 0;
    free(batch->results);
    batch->results = results;
    for (uint32_t k = 0; results && k < results->n; k++) {
        size_t size = 0;
        bool ok UNUSED = shape_bytes(&results->outputs[k].shape, results->outputs[k].dtype, &size);
        assert(ok);
        sum += size;
    }
    if (sum <= batch->model->max_output_bytes)
        return STATUS_OK;
    return error_cause(&batch->err, CAUSE_TAIL_OVER_LIMIT,
                       "the outputs have %" PRIu64 " bytes; a reply carries %" PRIu64
                       " (limits.output_bytes)",
                       sum, batch->model->max_output_bytes);
}

/* Sets *spent when the payloads are the loops' again. */
static enum status part_execute(struct dispatch *d, struct batch *batch, struct model_lane *lane,
                                const struct part *part, void *output, struct engine_times *times,
                                bool *spent)
{
    enum status status = STATUS_OK;
    const struct engine_batch what = {.point = batch->point,
                                      .instances = part->instances,
                                      .requests = &lane->requests[part->first],
                                      .n_requests = part->n,
                                      .shelf = output == batch->output ? batch->shelf : NULL,
                                      .shelve = batch->shelve,
                                      .unread = batch->unread};
    TRY(context_enqueue_batch(lane->context, &what, lane->inputs, output, &batch->err));
    if (engine_device_apart(d->config.device)) {
        status = context_wait_inputs(lane->context, &batch->err);
        *spent = !status;
        if (*spent)
            payloads_spent(d, batch, part);
    }
    /* The run is waited for in any case, so that nothing of the batch goes on running. */
    enum status run_status = context_wait(lane->context, times, status ? NULL : &batch->err);
    if (!status && !run_status && batch->model->info->late)
        return results_take(batch, lane->context);
    return status ? status : run_status;
}

static enum status part_run(struct dispatch *d, struct batch *batch, struct model_lane *lane,
                            const struct part *part, void *output, struct engine_times *times,
                            bool *spent)
{
    const struct model *model = batch->model;
    if (atomic_load_explicit(&d->failed, memory_order_relaxed))
        return dispatch_undone(&batch->err, CAUSE_DEVICE_LOST, false);
    batch->err.cause = CAUSE_UNKNOWN; /* if an engine names no cause, it is still a failure */
    for (uint32_t k = 0; k < model->info->n_inputs; k++)
        lane->inputs[k] = (struct engine_input){
            &lane->spans[(size_t)k * model->max_items + part->first], part->n};
    atomic_store_explicit(&batch->since_ns, clock_now_ns(), memory_order_relaxed);
    enum status status = part_execute(d, batch, lane, part, output, times, spent);
    atomic_store_explicit(&batch->since_ns, 0, memory_order_relaxed);
    if (!status || batch->err.scope != ERROR_DEVICE)
        return status;
    if (!atomic_exchange_explicit(&d->failed, true, memory_order_relaxed))
        d->config.lost(d->config.user, &batch->err);
    return dispatch_undone(&batch->err, CAUSE_DEVICE_LOST, true);
}

/* --- numbers --- */

static void stat_add(_Atomic uint64_t *stat, uint64_t n)
{
    atomic_fetch_add_explicit(stat, n, memory_order_relaxed);
}

/* Counts `n` requests that took so long in that stage. */
static void stage_add(struct model_stats *stats, enum body_stage_name stage, uint64_t ns,
                      uint64_t n)
{
    stat_add(&stats->stage_ns[stage], n * ns);
    histogram_shared_add(&stats->stage_times[stage], histogram_shared_bucket(ns), n);
}

static void run_count(struct model_stats *stats, const struct part *part,
                      const struct engine_times *times)
{
    atomic_store_explicit(&stats->last_ms, clock_wall_ms(), memory_order_relaxed);
    stat_add(&stats->instances, part->instances);
    stat_add(&stats->batches, 1);
    stage_add(stats, BODY_INPUT, times->input_ns, part->n);
    stage_add(stats, BODY_COMPUTE, times->compute_ns, part->n);
    stage_add(stats, BODY_OUTPUT, times->output_ns, part->n);
    struct model_batch_stats *by_batch = &stats->by_batch[part->instances];
    stat_add(&by_batch->count, 1);
    stat_add(&by_batch->input_ns, times->input_ns);
    stat_add(&by_batch->compute_ns, times->compute_ns);
    stat_add(&by_batch->output_ns, times->output_ns);
}

/* Requests in a row whose times lie in one bucket are counted at once: those of a batch have mostly
 * come together. */
struct same_bucket {
    struct histogram_shared *times;
    uint32_t bucket;
    uint64_t n;
};

static void same_bucket_add(struct same_bucket *same, uint64_t ns)
{
    uint32_t bucket = histogram_shared_bucket(ns);
    if (same->n && bucket != same->bucket) {
        histogram_shared_add(same->times, same->bucket, same->n);
        same->n = 0;
    }
    same->bucket = bucket;
    same->n++;
}

static void requests_count(struct model_stats *stats, const struct batch *batch, uint64_t run_ns)
{
    uint64_t ok = 0, failed = 0, ok_queue_ns = 0, failed_queue_ns = 0;
    struct same_bucket queues = {.times = &stats->stage_times[BODY_QUEUE]};
    struct same_bucket totals = {.times = &stats->stage_times[BODY_TOTAL]};
    for (struct batcher_item *item = batch->items; item; item = item->next) {
        const struct inflight *inflight = dispatch_inflight_of(item);
        if (!was_gathered(batch, item))
            continue;
        if (!inflight->cause) {
            same_bucket_add(&queues, inflight->queue_ns);
            same_bucket_add(&totals, inflight->queue_ns + run_ns);
            ok_queue_ns += inflight->queue_ns;
            ok++;
        } else {
            failed_queue_ns += inflight->queue_ns;
            failed++;
        }
    }
    histogram_shared_add(queues.times, queues.bucket, queues.n);
    histogram_shared_add(totals.times, totals.bucket, totals.n);
    stat_add(&stats->ok, ok);
    stat_add(&stats->stage_ns[BODY_TOTAL], ok_queue_ns + ok * run_ns);
    stat_add(&stats->stage_ns[BODY_QUEUE], ok_queue_ns);
    stat_add(&stats->failed, failed);
    stat_add(&stats->failed_ns, failed_queue_ns + failed * run_ns);
}

/* --- in parts --- */

static bool equal(const struct engine_span *a, const struct engine_span *b)
{
    return a->size == b->size && (!a->size || memcmp(a->data, b->data, a->size) == 0);
}

/* Whether two of the gathered requests, by their numbers, may share a batch. */
static bool agree(const struct model *model, const struct model_lane *lane, uint32_t a, uint32_t b)
{
    const struct engine_info *info = model->info;
    for (uint32_t k = 0; info->batched && info->input_axes && k < info->n_inputs; k++) {
        const struct engine_axes *axes = &info->input_axes[k];
        const struct engine_span *spans = &lane->spans[(size_t)k * model->max_items];
        if (!axes->shared)
            continue;
        for (uint32_t d = 0; d < info->inputs[k].shape.rank; d++)
            if (axes->free[d] && lane->requests[a].values[axes->free[d] - 1] !=
                                     lane->requests[b].values[axes->free[d] - 1])
                return false;
        if (!equal(&spans[a], &spans[b]))
            return false;
    }
    return true;
}

static bool all_agree(const struct batch *batch, const struct model_lane *lane, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        if (!agree(batch->model, lane, 0, i))
            return false;
    return true;
}

static bool may_split(const struct dispatch *d, const struct batch *batch)
{
    return batch->err.scope == ERROR_REQUEST &&
           !atomic_load_explicit(&d->failed, memory_order_relaxed);
}

/* Makes sure that the worker has a buffer for parts of that size. False: no memory. */
static bool scratch_ready(struct dispatch *d, struct dispatch_worker *worker, size_t size)
{
    if (size <= worker->scratch_size)
        return true;
    void *fresh;
    if (engine_buffer_alloc(d->config.device, size, "outputs", &fresh, NULL))
        return false;
    engine_buffer_free(d->config.device, worker->scratch);
    worker->scratch = fresh;
    worker->scratch_size = size;
    return true;
}

static void part_move(const struct batch *batch, const struct part *part, const char *from)
{
    const struct engine_info *info = batch->model->info;
    const struct engine_binding *outputs = engine_point_outputs(info, batch->point);
    const struct engine_profile *ran =
        engine_profile_for(batch->model->engine, batch->point, part->instances);
    for (uint32_t k = 0; k < info->n_outputs; k++) {
        size_t instance = outputs[k].instance_bytes, size = part->instances * instance;
        if (size)
            memcpy((char *)batch->output + batch->profile->out_offset[k] +
                       part->instance * instance,
                   from + ran->out_offset[k], size);
    }
}

static void part_fail(const struct batch *batch, const struct part *part)
{
    struct batcher_item *item = part->items;
    for (uint32_t n = 0; n < part->n; n++, item = gathered(batch, item->next)) {
        struct inflight *inflight = dispatch_inflight_of(item);
        inflight->cause = batch->err.cause;
        snprintf(inflight->why, sizeof(inflight->why), "%.*s", (int)sizeof(inflight->why) - 1,
                 batch->err.text);
    }
}

/* Cuts the next part from the requests [at, end) of the batch: all of them up to the first one that
 * has expired, or does not agree with the first one. If the first one (`item`) has itself expired,
 * the part is that request alone, and the function returns true. */
static bool part_cut(const struct batch *batch, const struct model_lane *lane,
                     struct batcher_item *item, uint32_t at, uint32_t end, struct part *out)
{
    uint64_t now_ns = clock_now_ns();
    *out = (struct part){.items = item, .first = at, .instance = dispatch_inflight_of(item)->first};
    for (; at + out->n < end; item = gathered(batch, item->next)) {
        bool expired = item->deadline_ns <= now_ns;
        if (out->n && (expired || !agree(batch->model, lane, at, at + out->n)))
            return false;
        out->n++;
        out->instances += item->instances;
        if (expired)
            return true;
    }
    return false;
}

static struct batcher_item *behind(const struct batch *batch, const struct part *part)
{
    struct batcher_item *item = part->items;
    for (uint32_t n = 0; n < part->n; n++)
        item = gathered(batch, item->next);
    return item;
}

/* The request counts as one that never ran: its time was over before it had a result. */
static void part_expire(const struct part *part)
{
    dispatch_inflight_of(part->items)->cause = CAUSE_EXPIRED;
    dispatch_inflight_of(part->items)->expired = true;
}

/* Runs the parts from left to right: `halved`, or as large as they may be. `ends` are the ends of
 * the parts that are still to come, the nearest last. */
static void split_run(struct dispatch *d, struct batch *batch, struct model_lane *lane,
                      const struct part *whole, bool halved)
{
    void *scratch = d->workers[batch->worker].scratch;
    uint32_t ends[HALVINGS + 1] = {whole->n, whole->n / 2}, n_ends = halved ? 2 : 1, at = 0;
    struct batcher_item *item = whole->items;
    while (at < whole->n) {
        struct part part;
        struct engine_times times = {0};
        bool spent = false;
        if (part_cut(batch, lane, item, at, ends[n_ends - 1], &part)) {
            part_expire(&part);
        } else {
            enum status status = part_run(d, batch, lane, &part, scratch, &times, &spent);
            if (!status) {
                part_move(batch, &part, scratch);
                run_count(model_stats(batch->model), &part, &times);
                batch->times.input_ns += times.input_ns;
                batch->times.compute_ns += times.compute_ns;
                batch->times.output_ns += times.output_ns;
            } else if (!spent && part.n > 1 && may_split(d, batch)) {
                ends[n_ends++] = at + part.n / 2;
                continue;
            } else {
                part_fail(batch, &part);
            }
        }
        at += part.n;
        item = behind(batch, &part);
        while (n_ends && ends[n_ends - 1] <= at)
            n_ends--;
    }
}

/* Releases the batch from the requests that expired between its parts. */
static void expired_drop(struct batch *batch)
{
    uint32_t n = 0;
    for (struct batcher_item *item = batch->items; item; item = item->next) {
        struct inflight *inflight = dispatch_inflight_of(item);
        if (was_gathered(batch, item) && inflight->expired) {
            inflight->batch = NULL;
            n++;
        }
    }
    atomic_fetch_sub_explicit(&batch->refs, n, memory_order_relaxed); /* nobody else has it yet */
}

/* --- a batch --- */

/* Runs requests that do not agree, which must not happen in one part. */
static void disagreed_run(struct dispatch *d, struct batch *batch, struct model_lane *lane,
                          const struct part *whole)
{
    size_t size = batch->model->info->out_bytes_max;
    if (!scratch_ready(d, &d->workers[batch->worker], size)) {
        error_no_memory(&batch->err, "outputs");
        part_fail(batch, whole);
        return;
    }
    split_run(d, batch, lane, whole, false);
    expired_drop(batch);
}

/* What the requests of the batch say of their outputs: what anybody takes from the shelf, and what
 * nobody reads on the host. */
static void wishes_take(struct batch *batch)
{
    batch->shelve = 0;
    batch->unread = UINT64_MAX;
    for (struct batcher_item *item = gathered(batch, batch->items); item;
         item = gathered(batch, item->next)) {
        const struct inflight *inflight = dispatch_inflight_of(item);
        batch->shelve |= inflight->shelve;
        batch->unread &= inflight->unread;
    }
}

void dispatch_batch_run(struct dispatch *d, struct batch *batch, struct model_lane *lane,
                        uint32_t instances)
{
    uint64_t start_ns = clock_now_ns();
    const struct part whole = {.items = gathered(batch, batch->items),
                               .n = atomic_load_explicit(&batch->refs, memory_order_relaxed),
                               .instances = instances};
    bool spent = false;
    wishes_take(batch);
    batch->instances = instances;
    batch->times = (struct engine_times){0};
    batch->profile = engine_profile_for(batch->model->engine, batch->point, instances);
    if (!all_agree(batch, lane, whole.n)) {
        disagreed_run(d, batch, lane, &whole);
        requests_count(&batch->model->stats, batch, clock_now_ns() - start_ns);
        return;
    }
    if (batch->shelve)
        dispatch_shelf_take(d, batch);
    enum status status = part_run(d, batch, lane, &whole, batch->output, &batch->times, &spent);
    if (!status) {
        batch->shelved = batch->shelf ? context_shelved(lane->context) : 0;
        batch->run_ns = clock_now_ns() - start_ns;
        run_count(model_stats(batch->model), &whole, &batch->times);
    } else if (!spent && whole.n > 1 && may_split(d, batch) &&
               scratch_ready(d, &d->workers[batch->worker], batch->model->info->out_bytes_max)) {
        counter_add(d->config.counters, COUNTER_BATCHES_SPLIT, 1);
        batch->times = (struct engine_times){0};
        split_run(d, batch, lane, &whole, true);
        expired_drop(batch);
    } else {
        part_fail(batch, &whole);
    }
    requests_count(model_stats(batch->model), batch, clock_now_ns() - start_ns);
}
