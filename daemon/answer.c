/* SPDX-License-Identifier: Apache-2.0 */
/* Readiness, metadata, configuration, statistics and the index of models; see answer.h. */
#include "daemon/answer.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon/regions.h"
#include "daemon/pipeline.h"

/* --- readiness --- */

static bool going_on(const struct shared *shared)
{
    return !atomic_load_explicit(&shared->draining, memory_order_relaxed) &&
           !atomic_load_explicit(&shared->lost, memory_order_relaxed);
}

bool answer_server_ready(const struct shared *shared)
{
    return atomic_load_explicit(&shared->ready, memory_order_relaxed) && going_on(shared);
}

bool answer_model_ready(const struct shared *shared, const struct table_entry *entry)
{
    return entry->state == MODEL_READY && going_on(shared) &&
           atomic_load_explicit(&shared->healthy, memory_order_relaxed);
}

/* --- metadata --- */

/* The extensions of the protocol that are served in full. Those of regions are if these are
 * offered. */
static const char *const extensions[] = {
    "classification", "model_configuration", "model_repository", "statistics", "logging",
};

static enum status server_metadata(const struct shared *shared, struct arena *arena,
                                   struct body_server_metadata *out, struct error *err)
{
    const char **list = arena_array(arena, ARRAY_LEN(extensions) + 2, sizeof(*list));
    if (!list)
        return error_no_memory(err, "a description");
    uint32_t n = ARRAY_LEN(extensions);
    memcpy(list, extensions, sizeof(extensions));
    if (regions_offered(shared->regions, REGION_SYSTEM))
        list[n++] = "system_shared_memory";
    if (regions_offered(shared->regions, REGION_CUDA))
        list[n++] = "cuda_shared_memory";
    *out = (struct body_server_metadata){"inferd", INFERD_VERSION, n, list};
    return STATUS_OK;
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

static const char *platform_of(const struct table_entry *entry)
{
    return entry->pipeline ? "ensemble" : "inferd_plan";
}

static enum status model_metadata(struct loop *loop, const struct request *request,
                                  struct arena *arena, struct body_model_metadata *out,
                                  struct error *err)
{
    const struct table *table = loop->table;
    const struct table_entry *entry = table_find(table, request->model, request->version);
    const char **versions = arena_array(arena, table->n, sizeof(*versions));
    if (!versions)
        return error_no_memory(err, "a description");
    *out = (struct body_model_metadata){
        .name = entry->name, .platform = platform_of(entry), .versions = versions};
    for (uint32_t i = 0; i < table->n; i++)
        if (strcmp(table->entries[i].name, entry->name) == 0)
            versions[out->n_versions++] = table->entries[i].version;
    if (!entry->model)
        return STATUS_OK;
    const struct engine_info *info = entry->model->info;
    out->n_inputs = info->n_inputs;
    out->inputs = tensors(arena, info->inputs, info->n_inputs);
    out->n_outputs = info->n_outputs;
    out->outputs = tensors(arena, info->outputs, info->n_outputs);
    return out->inputs && out->outputs ? STATUS_OK : error_no_memory(err, "a description");
}

/* --- configuration --- */

/* Leaves the number of instances out of the shapes. */
static const struct body_tensor *instance_tensors(struct arena *arena,
                                                  const struct engine_info *info,
                                                  const struct engine_binding *bindings, uint32_t n)
{
    struct body_tensor *out = arena_array(arena, n, sizeof(*out));
    for (uint32_t i = 0; out && i < n; i++) {
        struct shape shape = bindings[i].shape;
        if (info->batched && engine_counts_first(info) && shape.rank) {
            shape.rank--;
            memmove(shape.dim, shape.dim + 1, shape.rank * sizeof(shape.dim[0]));
        }
        out[i] = (struct body_tensor){bindings[i].name, dtype_name(bindings[i].dtype), shape};
    }
    return out;
}

static const struct body_link *links_of(const struct model_file_link *links, uint32_t n,
                                        struct arena *arena)
{
    struct body_link *out = arena_array(arena, n, sizeof(*out));
    for (uint32_t i = 0; out && i < n; i++)
        out[i] = (struct body_link){links[i].inner, links[i].outer};
    return out;
}

/* The steps as they were written. */
static const struct body_step *steps_of(const struct model_file *file, struct arena *arena)
{
    struct body_step *out = arena_array(arena, file->n_steps, sizeof(*out));
    for (uint32_t i = 0; out && i < file->n_steps; i++) {
        const struct model_file_step *step = &file->steps[i];
        out[i] = (struct body_step){step->model,
                                    step->version ? strtoll(step->version, NULL, 10) : -1,
                                    step->n_inputs,
                                    step->n_outputs,
                                    links_of(step->inputs, step->n_inputs, arena),
                                    links_of(step->outputs, step->n_outputs, arena)};
        if (!out[i].inputs || !out[i].outputs)
            return NULL;
    }
    return out;
}

/* What its configuration says, which a reload may change meanwhile. */
static enum status scheduling(const struct model *model, struct arena *arena,
                              struct body_model_config *out, struct error *err)
{
    uint32_t *preferred = arena_array(arena, BATCHER_MAX_PREFERRED, sizeof(*preferred));
    uint32_t instances = atomic_load_explicit(&model->instances, memory_order_relaxed);
    if (!preferred)
        return error_no_memory(err, "a description");
    out->n_preferred = atomic_load_explicit(&model->n_preferred, memory_order_relaxed);
    for (uint32_t i = 0; i < out->n_preferred; i++)
        preferred[i] = atomic_load_explicit(&model->preferred[i], memory_order_relaxed);
    out->preferred = preferred;
    out->instances = instances ? MIN(instances, out->instances) : out->instances;
    out->max_delay_us =
        atomic_load_explicit(&model->max_delay_ns, memory_order_relaxed) / NS_PER_US;
    out->priority_levels = atomic_load_explicit(&model->priority_levels, memory_order_relaxed);
    out->default_priority = atomic_load_explicit(&model->default_priority, memory_order_relaxed);
    return STATUS_OK;
}

static enum status model_config(struct loop *loop, const struct request *request,
                                struct arena *arena, struct body_model_config *out,
                                struct error *err)
{
    const struct table_entry *entry = table_find(loop->table, request->model, request->version);
    const struct model *model = entry->model;
    *out = (struct body_model_config){.name = entry->name,
                                      .version = entry->version,
                                      .platform = platform_of(entry),
                                      .backend = entry->pipeline ? "" : "inferd",
                                      .device = loop->shared->device_name,
                                      .instances = dispatch_workers(loop->shared->dispatch)};
    if (!model)
        return STATUS_OK;
    const struct engine_info *info = model->info;
    /* max_batch_size is for a first dimension that counts instances. */
    out->max_batch = info->batched && engine_counts_first(info) ? model->max_batch : 0;
    out->dynamic = out->max_batch > 1 && !model->pipeline;
    if (model->pipeline) {
        out->instances = 0;
        out->n_steps = model->pipeline->file->n_steps;
        out->steps = steps_of(model->pipeline->file, arena);
        if (!out->steps)
            return error_no_memory(err, "a description");
    }
    TRY(scheduling(model, arena, out, err));
    out->n_inputs = info->n_inputs;
    out->inputs = instance_tensors(arena, info, info->inputs, info->n_inputs);
    out->n_outputs = info->n_outputs;
    out->outputs = instance_tensors(arena, info, info->outputs, info->n_outputs);
    return out->inputs && out->outputs ? STATUS_OK : error_no_memory(err, "a description");
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

static bool statistics_wanted(const struct request *request, const struct table_entry *entry)
{
    if (request->model.len && !message_text_equal(request->model, message_text_of(entry->name)))
        return false;
    return !request->model.len || !request->version.len ||
           message_text_equal(request->version, message_text_of(entry->version));
}

static enum status statistics(struct loop *loop, const struct request *request, struct arena *arena,
                              struct body_statistics *out, struct error *err)
{
    const struct table *table = loop->table;
    struct body_model_statistics *models = arena_array(arena, table->n, sizeof(*models));
    *out = (struct body_statistics){.models = models};
    for (uint32_t i = 0; models && i < table->n; i++) {
        const struct table_entry *entry = &table->entries[i];
        if (entry->model && statistics_wanted(request, entry) &&
            !statistics_fill(entry, arena, &models[out->n_models++]))
            models = NULL;
    }
    return models ? STATUS_OK : error_no_memory(err, "a description");
}

/* --- the index --- */

static enum status repository_index(struct loop *loop, const struct request *request,
                                    struct arena *arena, struct body_index *out, struct error *err)
{
    const struct table *table = loop->table;
    struct body_index_entry *models = arena_array(arena, table->n, sizeof(*models));
    *out = (struct body_index){.models = models};
    if (!models)
        return error_no_memory(err, "a description");
    for (uint32_t i = 0; i < table->n; i++) {
        const struct table_entry *entry = &table->entries[i];
        if (!request->ready_only || entry->state == MODEL_READY)
            models[out->n_models++] = (struct body_index_entry){
                entry->name, entry->version, model_state_name(entry->state), entry->reason};
    }
    return STATUS_OK;
}

/* --- */

enum status answer_make(struct loop *loop, const struct request *request, struct arena *arena,
                        struct body *out, struct error *err)
{
    out->kind = request->kind;
    switch (request->kind) {
    case REQUEST_SERVER_METADATA:
        return server_metadata(loop->shared, arena, &out->is.server_metadata, err);
    case REQUEST_MODEL_METADATA:
        return model_metadata(loop, request, arena, &out->is.model_metadata, err);
    case REQUEST_MODEL_CONFIG:
        return model_config(loop, request, arena, &out->is.model_config, err);
    case REQUEST_STATISTICS:
        return statistics(loop, request, arena, &out->is.statistics, err);
    case REQUEST_REPOSITORY_INDEX:
        return repository_index(loop, request, arena, &out->is.index, err);
    case REQUEST_TRACE_SETTING:
    case REQUEST_LOG_SETTING:
        return answer_settings(loop, request, arena, &out->is.settings, err);
    case REQUEST_SERVER_STATUS:
        return answer_status(loop, arena, &out->is.server_status, err);
    default:
        return error_set(err, STATUS_INTERNAL, "a request of kind %d has no answer",
                         (int)request->kind);
    }
}
