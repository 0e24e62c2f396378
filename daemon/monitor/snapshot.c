/* SPDX-License-Identifier: Apache-2.0 */
/* Gathers what there is to tell, see snapshot.h. */
#include "daemon/monitor/snapshot.h"

#include <ctype.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/answer.h"
#include "daemon/figures.h"
#include "daemon/regions.h"
#include "daemon/shapes.h"

/* Wide enough for a small network on a GPU (100 us) and for a batch that hangs. */
const uint64_t snapshot_bounds[SNAPSHOT_BOUNDS] = {
    50000,      100000,     250000,      500000,      1000000,     2500000,   5000000,
    10000000,   25000000,   50000000,    100000000,   250000000,   500000000, 1000000000,
    2500000000, 5000000000, 10000000000, 30000000000, 60000000000,
};

const uint32_t snapshot_sizes[SNAPSHOT_SIZES] = {1,   2,   4,   8,    16,   32,  64,
                                                 128, 256, 512, 1024, 2048, 4096};

uint32_t snapshot_bound(uint64_t ns)
{
    uint32_t bound = 0;
    while (bound < SNAPSHOT_BOUNDS && ns > snapshot_bounds[bound])
        bound++;
    return bound;
}

static uint32_t size_bound(uint32_t instances)
{
    uint32_t bound = 0;
    while (bound < SNAPSHOT_SIZES && instances > snapshot_sizes[bound])
        bound++;
    return bound;
}

const char *snapshot_stage_name(enum body_stage_name stage)
{
    static const char *const names[] = {"queue", "input", "compute", "output", "total"};
    return names[stage];
}

#define STATUS_ROW(id, retry, counter, sentence)        [CAUSE_##id] = {#id, sentence},
#define CAUSE_ROW(id, status, retry, counter, sentence) [CAUSE_##id] = {#id, sentence},
static const struct {
    const char *name, *sentence;
} causes[] = {CAUSE_STATUSES(STATUS_ROW) CAUSES(CAUSE_ROW)};
#undef STATUS_ROW
#undef CAUSE_ROW

const char *snapshot_cause_name(enum cause cause, char out[SNAPSHOT_CAUSE])
{
    size_t n = 0;
    for (const char *c = causes[cause].name; *c && n < SNAPSHOT_CAUSE - 1; c++)
        out[n++] = (char)tolower((unsigned char)*c);
    out[n] = '\0';
    return out;
}

const char *snapshot_cause_sentence(enum cause cause)
{
    return causes[cause].sentence;
}

static uint64_t load(const _Atomic uint64_t *number)
{
    return atomic_load_explicit(number, memory_order_relaxed);
}

/* A bucket counts for the bound in whose range its middle lies. */
static void times_take(const struct histogram_shared *from, uint64_t sum_ns,
                       struct snapshot_times *out)
{
    uint32_t bound = 0;
    out->sum_ns = sum_ns;
    for (uint32_t i = 0; i < HISTOGRAM_SHARED_BUCKETS; i++) {
        uint64_t middle = (histogram_shared_low(i) + histogram_shared_low(i + 1)) / 2;
        while (bound < SNAPSHOT_BOUNDS && middle > snapshot_bounds[bound])
            bound++;
        out->count[bound] += load(&from->bucket[i]);
    }
}

static void model_take(const struct model *model, struct snapshot_model *out)
{
    const struct model_stats *stats = &model->stats;
    out->loaded = true;
    out->max_batch = model->max_batch;
    out->max_delay_ns = load(&model->max_delay_ns);
    out->weight_bytes = model->info->weight_bytes;
    out->load_ns = model->load_ns;
    out->queued = load(&model->waiting.requests);
    out->queue_limit = load(&model->waiting.limit);
    out->queue_age_ns = load(&model->waiting.age_ns);
    out->ok = load(&stats->ok);
    out->failed = load(&stats->failed);
    out->failed_ns = load(&stats->failed_ns);
    out->instances = load(&stats->instances);
    out->batches = load(&stats->batches);
    out->last_ms = load(&stats->last_ms);
    out->since_ms = stats->since_ms;
    for (uint32_t k = 0; k < CAUSE_COUNT_; k++)
        out->unrun[k] = load(&stats->unrun[k]);
    for (uint32_t k = 0; k < BODY_STAGES; k++)
        times_take(&stats->stage_times[k], load(&stats->stage_ns[k]), &out->times[k]);
    for (uint32_t n = 1; n <= model->max_batch; n++)
        out->sizes[size_bound(n)] += load(&stats->by_batch[n].count);
}

static bool models_take(const struct shared *shared, const struct table *table, struct arena *arena,
                        struct snapshot *out)
{
    out->n_models = MIN(table->n, (uint32_t)SNAPSHOT_MODELS);
    out->models_left_out = table->n - out->n_models;
    struct snapshot_model *models = arena_array(arena, out->n_models, sizeof(*models));
    for (uint32_t i = 0; models && i < out->n_models; i++) {
        const struct table_entry *entry = &table->entries[i];
        models[i] = (struct snapshot_model){.name = entry->name,
                                            .version = entry->version,
                                            .state = model_state_name(entry->state),
                                            .reason = entry->reason,
                                            .ready = answer_model_ready(shared, entry)};
        if (entry->model)
            model_take(entry->model, &models[i]);
    }
    out->models = models;
    return models != NULL;
}

bool snapshot_take(struct snapshot_sources *sources, const struct table *table, struct arena *arena,
                   struct snapshot *out)
{
    const struct shared *shared = sources->shared;
    uint64_t now_ns = clock_now_ns();
    *out = (struct snapshot){
        .wall_ms = clock_wall_ms(),
        .started_ms = shared->started_ms,
        .uptime_ns = now_ns - shared->started_ns,
        .device = shared->device_name,
        .ready = answer_server_ready(shared),
        .draining = atomic_load_explicit(&shared->draining, memory_order_relaxed),
        .lost = atomic_load_explicit(&shared->lost, memory_order_relaxed),
        .apart = engine_device_apart(shared->device),
        .workers = dispatch_workers(shared->dispatch),
        .workers_busy = dispatch_workers_busy(shared->dispatch),
        .loops = shared->n_loops,
        .connections = atomic_load_explicit(&shared->connections, memory_order_relaxed),
        .connections_limit = atomic_load_explicit(&shared->max_connections, memory_order_relaxed),
        .in_flight = figures_in_flight(shared),
        .inflight_bytes = budget_used(&shared->budget),
        .inflight_limit = load(&shared->budget.limit),
        .limits = &table->limits,
    };
    const struct shapes_figures shapes =
        shapes_look(atomic_load_explicit(&shared->shapes, memory_order_acquire));
    out->shape_engines = shapes.engines;
    out->shape_bytes = shapes.bytes;
    out->shape_waiting = shapes.waiting;
    if (shared->regions)
        regions_count(shared->regions, &out->regions, &out->region_bytes);
    for (uint32_t k = 0; k < COUNTER_COUNT_; k++)
        out->counters[k] = figures_counter(shared, k);
    _Static_assert(ARRAY_LEN(out->memory) == FIGURES_MEMORY, "rows of memory");
    figures_memory(shared, table, dispatch_output_bytes_seen(shared->dispatch), out->memory);
    host_read(&sources->ticks, &out->host);
    out->n_gpus = gpus_read(sources->gpus, out->gpus);
    return models_take(shared, table, arena, out);
}

uint64_t snapshot_failures(const struct snapshot_model *model)
{
    uint64_t n = model->failed;
    for (uint32_t k = 0; k < CAUSE_COUNT_; k++)
        n += model->unrun[k];
    return n;
}
