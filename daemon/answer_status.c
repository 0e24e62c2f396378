/* SPDX-License-Identifier: Apache-2.0 */
/* The server's status, see answer.h. */
#include <string.h>

#include "base/clock.h"
#include "daemon/answer.h"

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

static void counters_fill(const struct shared *shared, struct body_counter *out)
{
    for (uint32_t k = 0; k < COUNTER_COUNT_; k++) {
        out[k] = (struct body_counter){counter_name(k), counter_get(&shared->counters, k)};
        for (uint32_t i = 0; i < shared->n_loops; i++)
            out[k].value += counter_get(&shared->loops[i]->counters, k);
    }
}

enum { MEMORY_ROWS = 7 };

/* Says where the memory is that grows with peers, models and workers. */
static uint32_t memory_fill(struct loop *loop, struct body_memory *out)
{
    struct shared *shared = loop->shared;
    uint64_t used = budget_used(&shared->budget), held = budget_held(&shared->budget);
    uint64_t limit = atomic_load_explicit(&shared->budget.limit, memory_order_relaxed);
    uint64_t unread = 0, weights = 0, arena = 0;
    for (uint32_t i = 0; i < shared->n_loops; i++)
        unread += atomic_load_explicit(&shared->loops[i]->backlog_bytes, memory_order_relaxed);
    for (uint32_t i = 0; i < loop->table->n; i++) {
        const struct model *model = loop->table->entries[i].model;
        weights += model ? model->info->weight_bytes : 0;
        for (uint32_t p = 0; model && p < model->info->n_profiles; p++)
            arena = MAX(arena, (uint64_t)model->info->profiles[p].arena_bytes);
    }
    const struct body_memory rows[MEMORY_ROWS] = {
        {"requests and replies", used, limit},
        {"of these, replies not read", unread, 0},
        {"kept for the next ones", held - MIN(held, used), limit},
        {"event loops", shared->n_loops * (sizeof(struct loop) + LOOP_HEADS), 0},
        {"output buffers", dispatch_output_bytes(shared->dispatch), 0},
        {"arenas", arena * dispatch_workers(shared->dispatch), 0},
        {"weights", weights, 0},
    };
    memcpy(out, rows, sizeof(rows));
    return MEMORY_ROWS;
}

enum status answer_status(struct loop *loop, struct arena *arena, struct body_server_status *out,
                          struct error *err)
{
    struct shared *shared = loop->shared;
    const struct table *table = loop->table;
    struct body_status_model *models = arena_array(arena, table->n, sizeof(*models));
    struct body_counter *counters = arena_array(arena, COUNTER_COUNT_, sizeof(*counters));
    struct body_memory *memory = arena_array(arena, MEMORY_ROWS, sizeof(*memory));
    bool whole = models && counters && memory;
    for (uint32_t i = 0; whole && i < table->n; i++)
        whole = status_model(shared, &table->entries[i], arena, &models[i]);
    if (!whole)
        return error_no_memory(err, "a description");
    counters_fill(shared, counters);
    uint64_t uptime_ns = clock_now_ns() - shared->started_ns;
    *out = (struct body_server_status){
        .n_memory = memory_fill(loop, memory),
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
    };
    for (uint32_t i = 0; i < shared->n_loops; i++)
        out->inflight_requests +=
            atomic_load_explicit(&shared->loops[i]->pending, memory_order_relaxed);
    return STATUS_OK;
}
