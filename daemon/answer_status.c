/* SPDX-License-Identifier: Apache-2.0 */
/* The server's status, see answer.h. */
#include "base/clock.h"
#include "daemon/answer.h"
#include "daemon/figures.h"

static uint64_t load(const _Atomic uint64_t *stat)
{
    return atomic_load_explicit(stat, memory_order_relaxed);
}

/* Lists the buckets that are not empty. */
static bool stage_fill(const struct histogram_shared *from, struct arena *arena,
                       struct body_stage *out)
{
    uint64_t counts[HISTOGRAM_SHARED_BUCKETS];
    uint32_t n = 0, skip = 0;
    for (uint32_t i = 0; i < HISTOGRAM_SHARED_BUCKETS; i++)
        n += (counts[i] = load(&from->bucket[i])) > 0;
    struct body_bucket *buckets = arena_array(arena, n, sizeof(*buckets));
    if (!buckets)
        return false;
    *out = (struct body_stage){.buckets = buckets};
    for (uint32_t i = 0; i < HISTOGRAM_SHARED_BUCKETS; i++, skip++) {
        if (!counts[i])
            continue;
        buckets[out->n_buckets++] = (struct body_bucket){skip, counts[i]};
        skip = UINT32_MAX; /* 0 for the next one */
    }
    return true;
}

static bool status_model(struct shared *shared, const struct table_entry *entry,
                         struct arena *arena, struct body_status_model *out)
{
    *out = (struct body_status_model){.name = entry->name,
                                      .version = entry->version,
                                      .state = model_state_name(entry->state),
                                      .reason = entry->reason};
    if (!entry->model)
        return true;
    const struct model_stats *stats = &entry->model->stats;
    struct batcher_model_stats queue;
    dispatch_model_stats(shared->dispatch, entry->model, &queue);
    uint64_t now_ns = clock_now_ns();
    out->max_batch = entry->model->max_batch;
    out->max_delay_us = load(&entry->model->max_delay_ns) / NS_PER_US;
    out->queued = queue.queued_items;
    if (queue.oldest_arrival_ns < now_ns)
        out->oldest_us = (now_ns - queue.oldest_arrival_ns) / NS_PER_US;
    out->requests = load(&stats->ok);
    out->failures = load(&stats->failed) + queue.expired + queue.refused;
    out->instances = load(&stats->instances);
    out->batches = load(&stats->batches);
    out->since_ms = stats->since_ms;
    for (uint32_t k = 0; k < BODY_STAGES; k++) {
        if (!stage_fill(&stats->stage_times[k], arena, &out->stages[k]))
            return false;
        out->stages[k].ns = load(&stats->stage_ns[k]);
    }
    return true;
}

enum status answer_status(struct loop *loop, struct arena *arena, struct body_server_status *out,
                          struct error *err)
{
    struct shared *shared = loop->shared;
    const struct table *table = loop->table;
    struct body_status_model *models = arena_array(arena, table->n, sizeof(*models));
    struct body_counter *counters = arena_array(arena, COUNTER_COUNT_, sizeof(*counters));
    struct body_memory *memory = arena_array(arena, FIGURES_MEMORY, sizeof(*memory));
    bool whole = models && counters && memory;
    for (uint32_t i = 0; whole && i < table->n; i++)
        whole = status_model(shared, &table->entries[i], arena, &models[i]);
    if (!whole)
        return error_no_memory(err, "a description");
    for (uint32_t k = 0; k < COUNTER_COUNT_; k++)
        counters[k] = (struct body_counter){counter_name(k), figures_counter(shared, k)};
    figures_memory(shared, table, dispatch_output_bytes(shared->dispatch), memory);
    uint64_t uptime_ns = clock_now_ns() - shared->started_ns;
    *out = (struct body_server_status){
        .n_memory = FIGURES_MEMORY,
        .memory = memory,
        .version = INFERD_VERSION,
        .device = shared->device_name,
        .uptime_s = uptime_ns / NS_PER_S,
        .uptime_ns = uptime_ns,
        .started_ms = shared->started_ms,
        .ready = answer_server_ready(shared),
        .workers = dispatch_workers(shared->dispatch),
        .workers_busy = dispatch_workers_busy(shared->dispatch),
        .connections = atomic_load_explicit(&shared->connections, memory_order_relaxed),
        .inflight_bytes = budget_used(&shared->budget),
        .n_models = table->n,
        .models = models,
        .n_counters = COUNTER_COUNT_,
        .counters = counters,
        .inflight_requests = figures_in_flight(shared),
    };
    return STATUS_OK;
}
