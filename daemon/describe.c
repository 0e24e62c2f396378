/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptions, see describe.h. Each is built in an arena that is gone when the function returns.
 * Its bytes are copied to the loop's heads if they fit there; otherwise they go through the
 * connection's backlog, like any reply that the socket does not take at once.
 *
 * A description of the whole server costs more the more models there are, and takes the
 * dispatcher's lock. A loop spends at most 1/SHARE of its time on such descriptions: a peer that
 * asks more often gets what was said a moment ago.
 */
#include "daemon/describe.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/exchange.h"
#include "daemon/loop.h"
#include "proto/body.h"

enum { ARENA_LIMIT = 64 << 20 };
enum { SHARE = 20 };
#define BURST_NS (200 * NS_PER_MS) /* the share of so much time may be spent at once */

static void yes_or_no(struct connection *c, const struct request *request, bool yes)
{
    struct response *response = exchange_begin(c, request->id, request->kind);
    response->yes = yes;
    connection_reply(c, response);
}

/* Sends an encoded body, or the reason why there is none, and frees the arena. */
static void body_send(struct connection *c, const struct request *request, enum status status,
                      struct message_text body, const struct error *err, struct arena *arena)
{
    if (status) {
        exchange_error(c, request->id, err);
    } else {
        struct response *response = exchange_begin(c, request->id, request->kind);
        response->body = body;
        connection_reply(c, response);
        connection_flush(c); /* the body is in the arena */
    }
    arena_free(arena);
}

/* Builds a body in the arena. */
typedef enum status describe_fn(struct loop *loop, const struct request *request,
                                struct arena *arena, struct message_text *wire, struct error *err);

static void describe(struct connection *c, const struct request *request, describe_fn *build)
{
    struct arena *arena = arena_new(ARENA_LIMIT);
    struct message_text wire = {0};
    struct error err;
    enum status status = arena ? build(c->loop, request, arena, &wire, &err)
                               : error_no_memory(&err, "a description");
    body_send(c, request, status, wire, &err, arena);
}

/* --- the whole server --- */

static void snapshot_keep(struct loop_snapshot *snapshot, struct message_text wire)
{
    snapshot->size = 0;
    if (wire.len > snapshot->capacity) {
        free(snapshot->data);
        snapshot->data = malloc(wire.len);
        snapshot->capacity = snapshot->data ? wire.len : 0;
    }
    if (!wire.data || wire.len > snapshot->capacity)
        return; /* nothing to keep, or no memory: it is built anew the next time */
    memcpy(snapshot->data, wire.data, wire.len);
    snapshot->size = wire.len;
}

static void describe_all(struct connection *c, const struct request *request, uint32_t which,
                         describe_fn *build)
{
    struct loop *loop = c->loop;
    struct loop_snapshot *snapshot = &loop->snapshots[which];
    uint64_t begin_ns = clock_now_ns();
    if (snapshot->size && loop->describe_ns > begin_ns) {
        const struct message_text kept = {(const char *)snapshot->data, snapshot->size};
        body_send(c, request, STATUS_OK, kept, NULL, NULL);
        return;
    }
    struct arena *arena = arena_new(ARENA_LIMIT);
    struct message_text wire = {0};
    struct error err;
    enum status status =
        arena ? build(loop, request, arena, &wire, &err) : error_no_memory(&err, "a description");
    if (!status)
        snapshot_keep(snapshot, wire);
    uint64_t end_ns = clock_now_ns();
    loop->describe_ns =
        MAX(loop->describe_ns, end_ns - MIN(end_ns, BURST_NS)) + SHARE * (end_ns - begin_ns);
    body_send(c, request, status, wire, &err, arena);
}

static bool going_on(const struct shared *shared)
{
    return !atomic_load_explicit(&shared->draining, memory_order_relaxed) &&
           !atomic_load_explicit(&shared->lost, memory_order_relaxed);
}

static bool server_ready(const struct shared *shared)
{
    return atomic_load_explicit(&shared->ready, memory_order_relaxed) && going_on(shared);
}

static bool model_ready(const struct shared *shared, const struct table_entry *entry)
{
    return entry->state == MODEL_READY && going_on(shared) &&
           atomic_load_explicit(&shared->healthy, memory_order_relaxed);
}

void describe_server_live(struct connection *c, const struct request *request)
{
    yes_or_no(c, request, true);
}

void describe_server_ready(struct connection *c, const struct request *request)
{
    yes_or_no(c, request, server_ready(c->loop->shared));
}

void describe_model_ready(struct connection *c, const struct request *request)
{
    const struct table_entry *entry = exchange_model(c, request);
    if (entry)
        yes_or_no(c, request, model_ready(c->loop->shared, entry));
}

static enum status server_metadata(struct loop *loop UNUSED, const struct request *request UNUSED,
                                   struct arena *arena, struct message_text *wire,
                                   struct error *err)
{
    static const char *const extensions[] = {"statistics", "model_repository"};
    const struct body_server_metadata body = {"inferd", INFERD_VERSION, ARRAY_LEN(extensions),
                                              extensions};
    return body_server_metadata_encode(&body, arena, wire, err);
}

void describe_server_metadata(struct connection *c, const struct request *request)
{
    describe(c, request, server_metadata);
}

static const struct body_tensor *tensors(struct arena *arena, const struct engine_binding *bindings,
                                         uint32_t n)
{
    struct body_tensor *out = arena_array(arena, n, sizeof(*out));
    for (uint32_t i = 0; out && i < n; i++)
        out[i] = (struct body_tensor){bindings[i].name, dtype_name(bindings[i].dtype),
                                      bindings[i].shape};
    return out;
}

static enum status model_metadata(struct loop *loop, const struct request *request,
                                  struct arena *arena, struct message_text *wire, struct error *err)
{
    const struct table *table = loop->table;
    const struct table_entry *entry = table_find(table, request->model, request->version);
    const char **versions = arena_array(arena, table->n, sizeof(*versions));
    struct body_model_metadata body = {
        .name = entry->name, .platform = "inferd_plan", .versions = versions};
    if (!versions)
        return error_no_memory(err, "a description");
    for (uint32_t i = 0; i < table->n; i++)
        if (strcmp(table->entries[i].name, entry->name) == 0)
            versions[body.n_versions++] = table->entries[i].version;
    if (entry->model) {
        const struct engine_info *info = entry->model->info;
        body.n_inputs = info->n_inputs;
        body.inputs = tensors(arena, info->inputs, info->n_inputs);
        body.n_outputs = info->n_outputs;
        body.outputs = tensors(arena, info->outputs, info->n_outputs);
        if (!body.inputs || !body.outputs)
            return error_no_memory(err, "a description");
    }
    return body_model_metadata_encode(&body, arena, wire, err);
}

void describe_model_metadata(struct connection *c, const struct request *request)
{
    if (exchange_model(c, request))
        describe(c, request, model_metadata);
}

/* --- statistics --- */

static uint64_t load(const _Atomic uint64_t *stat)
{
    return atomic_load_explicit(stat, memory_order_relaxed);
}

static bool batches_fill(const struct model *model, struct arena *arena,
                         struct body_model_statistics *out)
{
    struct body_batch_statistics *batches =
        arena_array(arena, (size_t)model->max_batch + 1, sizeof(*batches));
    if (!batches)
        return false;
    out->batches = batches;
    for (uint32_t n = 1; n <= model->max_batch; n++) {
        const struct model_batch_stats *stats = &model->stats.by_batch[n];
        uint64_t count = load(&stats->count);
        if (count)
            batches[out->n_batches++] =
                (struct body_batch_statistics){.batch_size = n,
                                               .compute_input = {count, load(&stats->input_ns)},
                                               .compute_infer = {count, load(&stats->compute_ns)},
                                               .compute_output = {count, load(&stats->output_ns)}};
    }
    return true;
}

static bool statistics_fill(const struct table_entry *entry, struct arena *arena,
                            struct body_model_statistics *out)
{
    const struct model_stats *stats = &entry->model->stats;
    uint64_t ok = load(&stats->ok);
    *out = (struct body_model_statistics){
        .name = entry->name,
        .version = entry->version,
        .last_inference = load(&stats->last_ms),
        .inference_count = load(&stats->instances),
        .execution_count = load(&stats->batches),
        .success = {ok, load(&stats->stage_ns[BODY_TOTAL])},
        .fail = {load(&stats->failed), load(&stats->failed_ns)},
        .queue = {ok, load(&stats->stage_ns[BODY_QUEUE])},
        .compute_input = {ok, load(&stats->stage_ns[BODY_INPUT])},
        .compute_infer = {ok, load(&stats->stage_ns[BODY_COMPUTE])},
        .compute_output = {ok, load(&stats->stage_ns[BODY_OUTPUT])},
    };
    return batches_fill(entry->model, arena, out);
}

static enum status statistics(struct loop *loop, const struct request *request, struct arena *arena,
                              struct message_text *wire, struct error *err)
{
    const struct table *table = loop->table;
    struct body_model_statistics *models = arena_array(arena, table->n, sizeof(*models));
    struct body_statistics body = {.models = models};
    for (uint32_t i = 0; models && i < table->n; i++) {
        const struct table_entry *entry = &table->entries[i];
        bool wanted =
            !request->model.len || message_text_equal(request->model, message_text_of(entry->name));
        if (request->model.len && request->version.len &&
            !message_text_equal(request->version, message_text_of(entry->version)))
            wanted = false;
        if (!wanted || !entry->model)
            continue;
        if (!statistics_fill(entry, arena, &models[body.n_models++]))
            models = NULL;
    }
    if (!models)
        return error_no_memory(err, "a description");
    return body_statistics_encode(&body, arena, wire, err);
}

void describe_statistics(struct connection *c, const struct request *request)
{
    if (!request->model.len)
        describe_all(c, request, SNAPSHOT_STATISTICS, statistics);
    else if (exchange_model(c, request))
        describe(c, request, statistics);
}

static enum status repository_index(struct loop *loop, const struct request *request,
                                    struct arena *arena, struct message_text *wire,
                                    struct error *err)
{
    const struct table *table = loop->table;
    struct body_index_entry *models = arena_array(arena, table->n, sizeof(*models));
    struct body_index body = {.models = models};
    if (!models)
        return error_no_memory(err, "a description");
    for (uint32_t i = 0; i < table->n; i++) {
        const struct table_entry *entry = &table->entries[i];
        if (!request->ready_only || entry->state == MODEL_READY)
            models[body.n_models++] = (struct body_index_entry){
                entry->name, entry->version, model_state_name(entry->state), entry->reason};
    }
    return body_index_encode(&body, arena, wire, err);
}

void describe_repository_index(struct connection *c, const struct request *request)
{
    describe_all(c, request, request->ready_only ? SNAPSHOT_INDEX_READY : SNAPSHOT_INDEX,
                 repository_index);
}

/* --- status --- */

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
static uint32_t memory_fill(struct loop *loop, struct body_memory out[MEMORY_ROWS])
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

static enum status server_status(struct loop *loop, const struct request *request UNUSED,
                                 struct arena *arena, struct message_text *wire, struct error *err)
{
    struct shared *shared = loop->shared;
    const struct table *table = loop->table;
    struct body_status_model *models = arena_array(arena, table->n, sizeof(*models));
    struct body_counter *counters = arena_array(arena, COUNTER_COUNT_, sizeof(*counters));
    bool whole = models && counters;
    for (uint32_t i = 0; whole && i < table->n; i++)
        whole = status_model(shared, &table->entries[i], arena, &models[i]);
    if (!whole)
        return error_no_memory(err, "a description");
    counters_fill(shared, counters);
    struct body_memory memory[MEMORY_ROWS];
    uint64_t uptime_ns = clock_now_ns() - shared->started_ns;
    struct body_server_status body = {
        .n_memory = memory_fill(loop, memory),
        .memory = memory,
        .version = INFERD_VERSION,
        .device = shared->device_name,
        .uptime_s = uptime_ns / NS_PER_S,
        .uptime_ns = uptime_ns,
        .started_ms = shared->started_ms,
        .ready = server_ready(shared),
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
        body.inflight_requests +=
            atomic_load_explicit(&shared->loops[i]->pending, memory_order_relaxed);
    return body_server_status_encode(&body, arena, wire, err);
}

void describe_server_status(struct connection *c, const struct request *request)
{
    describe_all(c, request, SNAPSHOT_STATUS, server_status);
}
