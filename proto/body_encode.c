/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encodes the bodies of body.h. Each list of messages is a `struct list`: nanopb's callback walks
 * it and has one item at a time written by the item's own function.
 */
#include <pb_encode.h>

#include "inferd.pb.h"
#include "proto/body.h"

struct list {
    const void *items;
    uint32_t n;
    size_t stride;
    bool (*put)(pb_ostream_t *stream, const void *item); /* encodes it as a sub-message */
};

static bool list_encode(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct list *list = *arg;
    const char *item = list->items;
    for (uint32_t i = 0; i < list->n; i++, item += list->stride)
        if (!pb_encode_tag_for_field(stream, field) || !list->put(stream, item))
            return false;
    return true;
}

static pb_callback_t list_put(struct list *list)
{
    return (pb_callback_t){.funcs.encode = list_encode, .arg = list};
}

/* Cuts the text where it stops being UTF-8, which readers of protobuf strings may insist on. */
static bool text_encode(pb_ostream_t *stream, const char *text)
{
    size_t len = strlen(text);
    return pb_encode_string(stream, (const pb_byte_t *)text, utf8_prefix(text, len, len));
}

static bool string_encode(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const char *text = *arg;
    if (!text || !*text)
        return true;
    return pb_encode_tag_for_field(stream, field) && text_encode(stream, text);
}

static pb_callback_t string_put(const char *text)
{
    return (pb_callback_t){.funcs.encode = string_encode, .arg = (void *)(uintptr_t)text};
}

/* An item of a list of strings. */
static bool name_put(pb_ostream_t *stream, const void *item)
{
    const char *const *text = item;
    return text_encode(stream, *text);
}

static bool shape_encode(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct shape *shape = *arg;
    pb_byte_t packed[SHAPE_MAX_RANK * 10];
    pb_ostream_t dims = pb_ostream_from_buffer(packed, sizeof(packed));
    for (uint32_t i = 0; i < shape->rank; i++)
        if (!pb_encode_varint(&dims, (uint64_t)shape->dim[i]))
            return false;
    return !shape->rank || (pb_encode_tag(stream, PB_WT_STRING, field->tag) &&
                            pb_encode_string(stream, packed, dims.bytes_written));
}

static bool tensor_put(pb_ostream_t *stream, const void *item)
{
    const struct body_tensor *t = item;
    inference_ModelMetadataResponse_TensorMetadata m = {
        .name = string_put(t->name),
        .datatype = string_put(t->datatype),
        .shape = {.funcs.encode = shape_encode, .arg = (void *)(uintptr_t)&t->shape}};
    return pb_encode_submessage(stream, inference_ModelMetadataResponse_TensorMetadata_fields, &m);
}

static inference_StatisticDuration duration(struct body_duration d)
{
    return (inference_StatisticDuration){.count = d.count, .ns = d.ns};
}

static bool batch_put(pb_ostream_t *stream, const void *item)
{
    const struct body_batch_statistics *b = item;
    inference_InferBatchStatistics m = {.batch_size = b->batch_size,
                                        .has_compute_input = true,
                                        .compute_input = duration(b->compute_input),
                                        .has_compute_infer = true,
                                        .compute_infer = duration(b->compute_infer),
                                        .has_compute_output = true,
                                        .compute_output = duration(b->compute_output)};
    return pb_encode_submessage(stream, inference_InferBatchStatistics_fields, &m);
}

static bool statistics_put(pb_ostream_t *stream, const void *item)
{
    const struct body_model_statistics *s = item;
    struct list batches = {s->batches, s->n_batches, sizeof(*s->batches), batch_put};
    inference_ModelStatistics m = {.name = string_put(s->name),
                                   .version = string_put(s->version),
                                   .last_inference = s->last_inference,
                                   .inference_count = s->inference_count,
                                   .execution_count = s->execution_count,
                                   .has_inference_stats = true,
                                   .batch_stats = list_put(&batches)};
    /* All eight members, the caches' too: clients of the field read them unasked. */
    m.inference_stats = (inference_InferStatistics){.has_success = true,
                                                    .success = duration(s->success),
                                                    .has_fail = true,
                                                    .fail = duration(s->fail),
                                                    .has_queue = true,
                                                    .queue = duration(s->queue),
                                                    .has_compute_input = true,
                                                    .compute_input = duration(s->compute_input),
                                                    .has_compute_infer = true,
                                                    .compute_infer = duration(s->compute_infer),
                                                    .has_compute_output = true,
                                                    .compute_output = duration(s->compute_output),
                                                    .has_cache_hit = true,
                                                    .has_cache_miss = true};
    return pb_encode_submessage(stream, inference_ModelStatistics_fields, &m);
}

static bool index_put(pb_ostream_t *stream, const void *item)
{
    const struct body_index_entry *e = item;
    inference_RepositoryIndexResponse_ModelIndex m = {.name = string_put(e->name),
                                                      .version = string_put(e->version),
                                                      .state = string_put(e->state),
                                                      .reason = string_put(e->reason)};
    return pb_encode_submessage(stream, inference_RepositoryIndexResponse_ModelIndex_fields, &m);
}

static bool buckets_write(pb_ostream_t *stream, const struct body_stage *stage)
{
    for (uint32_t i = 0; i < stage->n_buckets; i++)
        if (!pb_encode_varint(stream, stage->buckets[i].skip) ||
            !pb_encode_varint(stream, stage->buckets[i].count))
            return false;
    return true;
}

static bool stage_encode(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct body_stage *stage = *arg;
    pb_ostream_t size = PB_OSTREAM_SIZING;
    return !stage->n_buckets ||
           (pb_encode_tag(stream, PB_WT_STRING, field->tag) && buckets_write(&size, stage) &&
            pb_encode_varint(stream, size.bytes_written) && buckets_write(stream, stage));
}

static pb_callback_t buckets_put(const struct body_stage *stage)
{
    return (pb_callback_t){.funcs.encode = stage_encode, .arg = (void *)(uintptr_t)stage};
}

static bool status_model_put(pb_ostream_t *stream, const void *item)
{
    const struct body_status_model *s = item;
    const struct body_stage *stage = s->stages;
    inferd_ServerStatusResponse_Model m = {.name = string_put(s->name),
                                           .version = string_put(s->version),
                                           .state = string_put(s->state),
                                           .reason = string_put(s->reason),
                                           .max_batch = s->max_batch,
                                           .max_delay_us = s->max_delay_us,
                                           .queued = s->queued,
                                           .oldest_us = s->oldest_us,
                                           .requests = s->requests,
                                           .failures = s->failures,
                                           .instances = s->instances,
                                           .batches = s->batches,
                                           .since_ms = s->since_ms,
                                           .queue_ns = stage[BODY_QUEUE].ns,
                                           .input_ns = stage[BODY_INPUT].ns,
                                           .compute_ns = stage[BODY_COMPUTE].ns,
                                           .output_ns = stage[BODY_OUTPUT].ns,
                                           .total_ns = stage[BODY_TOTAL].ns,
                                           .queue_buckets = buckets_put(&stage[BODY_QUEUE]),
                                           .input_buckets = buckets_put(&stage[BODY_INPUT]),
                                           .compute_buckets = buckets_put(&stage[BODY_COMPUTE]),
                                           .output_buckets = buckets_put(&stage[BODY_OUTPUT]),
                                           .total_buckets = buckets_put(&stage[BODY_TOTAL])};
    return pb_encode_submessage(stream, inferd_ServerStatusResponse_Model_fields, &m);
}

static bool counter_put(pb_ostream_t *stream, const void *item)
{
    const struct body_counter *c = item;
    inferd_ServerStatusResponse_Counter m = {.name = string_put(c->name), .value = c->value};
    return pb_encode_submessage(stream, inferd_ServerStatusResponse_Counter_fields, &m);
}

static bool memory_put(pb_ostream_t *stream, const void *item)
{
    const struct body_memory *b = item;
    inferd_ServerStatusResponse_Memory m = {
        .name = string_put(b->name), .bytes = b->bytes, .limit = b->limit};
    return pb_encode_submessage(stream, inferd_ServerStatusResponse_Memory_fields, &m);
}

static enum status message_encode(const pb_msgdesc_t *fields, const void *message,
                                  struct arena *arena, struct message_text *out, struct error *err)
{
    size_t size;
    if (!pb_get_encoded_size(&size, fields, message))
        return error_set(err, STATUS_INTERNAL, "a description could not be encoded");
    void *data = arena_alloc(arena, size);
    if (!data)
        return error_no_memory(err, "a description");
    pb_ostream_t stream = pb_ostream_from_buffer(data, size);
    if (!pb_encode(&stream, fields, message))
        return error_set(err, STATUS_INTERNAL, "a description could not be encoded");
    *out = (struct message_text){.data = data, .len = stream.bytes_written};
    return STATUS_OK;
}

enum status body_server_metadata_encode(const struct body_server_metadata *body,
                                        struct arena *arena, struct message_text *out,
                                        struct error *err)
{
    struct list extensions = {body->extensions, body->n_extensions, sizeof(char *), name_put};
    inference_ServerMetadataResponse m = {.name = string_put(body->name),
                                          .version = string_put(body->version),
                                          .extensions = list_put(&extensions)};
    return message_encode(inference_ServerMetadataResponse_fields, &m, arena, out, err);
}

enum status body_model_metadata_encode(const struct body_model_metadata *body, struct arena *arena,
                                       struct message_text *out, struct error *err)
{
    struct list versions = {body->versions, body->n_versions, sizeof(char *), name_put};
    struct list inputs = {body->inputs, body->n_inputs, sizeof(*body->inputs), tensor_put};
    struct list outputs = {body->outputs, body->n_outputs, sizeof(*body->outputs), tensor_put};
    inference_ModelMetadataResponse m = {.name = string_put(body->name),
                                         .versions = list_put(&versions),
                                         .platform = string_put(body->platform),
                                         .inputs = list_put(&inputs),
                                         .outputs = list_put(&outputs)};
    return message_encode(inference_ModelMetadataResponse_fields, &m, arena, out, err);
}

/* --- a model's configuration --- */

static inference_DataType data_type(const char *datatype)
{
    static const inference_DataType types[DTYPE_COUNT_] = {
        [DTYPE_BOOL] = inference_DataType_TYPE_BOOL,  [DTYPE_U8] = inference_DataType_TYPE_UINT8,
        [DTYPE_U16] = inference_DataType_TYPE_UINT16, [DTYPE_U32] = inference_DataType_TYPE_UINT32,
        [DTYPE_U64] = inference_DataType_TYPE_UINT64, [DTYPE_I8] = inference_DataType_TYPE_INT8,
        [DTYPE_I16] = inference_DataType_TYPE_INT16,  [DTYPE_I32] = inference_DataType_TYPE_INT32,
        [DTYPE_I64] = inference_DataType_TYPE_INT64,  [DTYPE_F16] = inference_DataType_TYPE_FP16,
        [DTYPE_BF16] = inference_DataType_TYPE_BF16,  [DTYPE_F32] = inference_DataType_TYPE_FP32,
        [DTYPE_F64] = inference_DataType_TYPE_FP64,
    };
    return types[dtype_parse(datatype, strlen(datatype))];
}

static bool config_input_put(pb_ostream_t *stream, const void *item)
{
    const struct body_tensor *t = item;
    inference_ModelInput m = {
        .name = string_put(t->name),
        .data_type = data_type(t->datatype),
        .dims = {.funcs.encode = shape_encode, .arg = (void *)(uintptr_t)&t->shape}};
    return pb_encode_submessage(stream, inference_ModelInput_fields, &m);
}

static bool config_output_put(pb_ostream_t *stream, const void *item)
{
    const struct body_tensor *t = item;
    inference_ModelOutput m = {
        .name = string_put(t->name),
        .data_type = data_type(t->datatype),
        .dims = {.funcs.encode = shape_encode, .arg = (void *)(uintptr_t)&t->shape}};
    return pb_encode_submessage(stream, inference_ModelOutput_fields, &m);
}

static bool group_put(pb_ostream_t *stream, const void *item)
{
    const struct body_model_config *b = item;
    bool gpu = strncmp(b->device, "cuda", 4) == 0;
    inference_ModelInstanceGroup m = {.name = string_put(b->name),
                                      .count = (int32_t)b->instances,
                                      .kind = gpu ? inference_ModelInstanceGroup_Kind_KIND_GPU
                                                  : inference_ModelInstanceGroup_Kind_KIND_CPU};
    return pb_encode_submessage(stream, inference_ModelInstanceGroup_fields, &m);
}

static bool input_link_put(pb_ostream_t *stream, const void *item)
{
    const struct body_link *link = item;
    inference_ModelEnsembling_Step_InputMapEntry m = {.key = string_put(link->inner),
                                                      .value = string_put(link->outer)};
    return pb_encode_submessage(stream, inference_ModelEnsembling_Step_InputMapEntry_fields, &m);
}

static bool output_link_put(pb_ostream_t *stream, const void *item)
{
    const struct body_link *link = item;
    inference_ModelEnsembling_Step_OutputMapEntry m = {.key = string_put(link->inner),
                                                       .value = string_put(link->outer)};
    return pb_encode_submessage(stream, inference_ModelEnsembling_Step_OutputMapEntry_fields, &m);
}

static bool step_put(pb_ostream_t *stream, const void *item)
{
    const struct body_step *step = item;
    struct list inputs = {step->inputs, step->n_inputs, sizeof(*step->inputs), input_link_put};
    struct list outputs = {step->outputs, step->n_outputs, sizeof(*step->outputs), output_link_put};
    inference_ModelEnsembling_Step m = {.model_name = string_put(step->model),
                                        .model_version = step->version,
                                        .input_map = list_put(&inputs),
                                        .output_map = list_put(&outputs)};
    return pb_encode_submessage(stream, inference_ModelEnsembling_Step_fields, &m);
}

static bool preferred_encode(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    const struct body_model_config *b = *arg;
    for (uint32_t i = 0; i < b->n_preferred; i++)
        if (!pb_encode_tag(stream, PB_WT_VARINT, field->tag) ||
            !pb_encode_varint(stream, b->preferred[i]))
            return false;
    return true;
}

enum status body_model_config_encode(const struct body_model_config *body, struct arena *arena,
                                     struct message_text *out, struct error *err)
{
    struct list inputs = {body->inputs, body->n_inputs, sizeof(*body->inputs), config_input_put};
    struct list outputs = {body->outputs, body->n_outputs, sizeof(*body->outputs),
                           config_output_put};
    struct list groups = {body, body->instances ? 1 : 0, sizeof(*body), group_put};
    struct list steps = {body->steps, body->n_steps, sizeof(*body->steps), step_put};
    inference_ModelConfigResponse m = {.has_config = true};
    m.config = (inference_ModelConfig){.name = string_put(body->name),
                                       .platform = string_put(body->platform),
                                       .backend = string_put(body->backend),
                                       .max_batch_size = (int32_t)body->max_batch,
                                       .input = list_put(&inputs),
                                       .output = list_put(&outputs),
                                       .instance_group = list_put(&groups),
                                       .has_dynamic_batching = body->dynamic,
                                       .has_ensemble_scheduling = body->n_steps > 0,
                                       .ensemble_scheduling = {.step = list_put(&steps)}};
    m.config.dynamic_batching = (inference_ModelDynamicBatching){
        .preferred_batch_size = {.funcs.encode = preferred_encode, .arg = (void *)(uintptr_t)body},
        .max_queue_delay_microseconds = body->max_delay_us,
        .priority_levels = body->priority_levels,
        .default_priority_level = body->default_priority};
    return message_encode(inference_ModelConfigResponse_fields, &m, arena, out, err);
}

/* --- settings: the entries of a map --- */

static bool log_value_write(pb_ostream_t *stream, const struct body_setting *s)
{
    bool is_bool = s->kind == REQUEST_SETTING_BOOL;
    uint32_t tag = is_bool ? inference_LogSettingsResponse_SettingValue_bool_param_tag
                           : inference_LogSettingsResponse_SettingValue_uint32_param_tag;
    if (s->kind == REQUEST_SETTING_TEXT)
        return pb_encode_tag(stream, PB_WT_STRING,
                             inference_LogSettingsResponse_SettingValue_string_param_tag) &&
               text_encode(stream, s->text ? s->text : "");
    return pb_encode_tag(stream, PB_WT_VARINT, tag) && pb_encode_varint(stream, s->number);
}

/* A value has its field even if that is zero or empty. */
static bool log_value_encode(pb_ostream_t *stream, const pb_field_t *field, void *const *arg)
{
    pb_ostream_t size = PB_OSTREAM_SIZING;
    return pb_encode_tag(stream, PB_WT_STRING, field->tag) && log_value_write(&size, *arg) &&
           pb_encode_varint(stream, size.bytes_written) && log_value_write(stream, *arg);
}

static bool log_setting_put(pb_ostream_t *stream, const void *item)
{
    const struct body_setting *s = item;
    inference_LogSettingsResponse_SettingsEntry m = {
        .key = string_put(s->key),
        .value = {.funcs.encode = log_value_encode, .arg = (void *)(uintptr_t)s}};
    return pb_encode_submessage(stream, inference_LogSettingsResponse_SettingsEntry_fields, &m);
}

enum status body_log_settings_encode(const struct body_settings *body, struct arena *arena,
                                     struct message_text *out, struct error *err)
{
    struct list settings = {body->items, body->n, sizeof(*body->items), log_setting_put};
    inference_LogSettingsResponse m = {.settings = list_put(&settings)};
    return message_encode(inference_LogSettingsResponse_fields, &m, arena, out, err);
}

/* The rows of one key, which stand together, are one entry: a list of texts. */
struct trace_entry {
    const struct body_setting *first;
    uint32_t n;
};

static bool trace_value_put(pb_ostream_t *stream, const void *item)
{
    const struct body_setting *s = item;
    return text_encode(stream, s->text ? s->text : "");
}

static bool trace_setting_put(pb_ostream_t *stream, const void *item)
{
    const struct trace_entry *entry = item;
    struct list values = {entry->first, entry->n, sizeof(*entry->first), trace_value_put};
    inference_TraceSettingResponse_SettingsEntry m = {.key = string_put(entry->first->key),
                                                      .has_value = true,
                                                      .value = {.value = list_put(&values)}};
    return pb_encode_submessage(stream, inference_TraceSettingResponse_SettingsEntry_fields, &m);
}

enum status body_trace_settings_encode(const struct body_settings *body, struct arena *arena,
                                       struct message_text *out, struct error *err)
{
    struct trace_entry *entries = arena_array(arena, body->n, sizeof(*entries));
    uint32_t n = 0;
    if (!entries)
        return error_no_memory(err, "a description");
    for (uint32_t i = 0; i < body->n; i++) {
        if (!n || strcmp(entries[n - 1].first->key, body->items[i].key) != 0)
            entries[n++] = (struct trace_entry){&body->items[i], 0};
        entries[n - 1].n++;
    }
    struct list settings = {entries, n, sizeof(*entries), trace_setting_put};
    inference_TraceSettingResponse m = {.settings = list_put(&settings)};
    return message_encode(inference_TraceSettingResponse_fields, &m, arena, out, err);
}

/* --- regions: the entries of a map --- */

static bool memory_region_put(pb_ostream_t *stream, const void *item)
{
    const struct body_region *r = item;
    inference_SystemSharedMemoryStatusResponse_RegionsEntry m = {
        .key = string_put(r->name),
        .has_value = true,
        .value = {.name = string_put(r->name),
                  .key = string_put(r->key),
                  .offset = r->offset,
                  .byte_size = r->size}};
    return pb_encode_submessage(stream,
                                inference_SystemSharedMemoryStatusResponse_RegionsEntry_fields, &m);
}

static bool cuda_region_put(pb_ostream_t *stream, const void *item)
{
    const struct body_region *r = item;
    inference_CudaSharedMemoryStatusResponse_RegionsEntry m = {
        .key = string_put(r->name),
        .has_value = true,
        .value = {.name = string_put(r->name), .device_id = r->device, .byte_size = r->size}};
    return pb_encode_submessage(stream,
                                inference_CudaSharedMemoryStatusResponse_RegionsEntry_fields, &m);
}

enum status body_memory_encode(const struct body_regions *body, struct arena *arena,
                               struct message_text *out, struct error *err)
{
    struct list regions = {body->items, body->n, sizeof(*body->items), memory_region_put};
    inference_SystemSharedMemoryStatusResponse m = {.regions = list_put(&regions)};
    return message_encode(inference_SystemSharedMemoryStatusResponse_fields, &m, arena, out, err);
}

enum status body_cuda_encode(const struct body_regions *body, struct arena *arena,
                             struct message_text *out, struct error *err)
{
    struct list regions = {body->items, body->n, sizeof(*body->items), cuda_region_put};
    inference_CudaSharedMemoryStatusResponse m = {.regions = list_put(&regions)};
    return message_encode(inference_CudaSharedMemoryStatusResponse_fields, &m, arena, out, err);
}

/* --- */

enum status body_statistics_encode(const struct body_statistics *body, struct arena *arena,
                                   struct message_text *out, struct error *err)
{
    struct list models = {body->models, body->n_models, sizeof(*body->models), statistics_put};
    inference_ModelStatisticsResponse m = {.model_stats = list_put(&models)};
    return message_encode(inference_ModelStatisticsResponse_fields, &m, arena, out, err);
}

enum status body_index_encode(const struct body_index *body, struct arena *arena,
                              struct message_text *out, struct error *err)
{
    struct list models = {body->models, body->n_models, sizeof(*body->models), index_put};
    inference_RepositoryIndexResponse m = {.models = list_put(&models)};
    return message_encode(inference_RepositoryIndexResponse_fields, &m, arena, out, err);
}

enum status body_server_status_encode(const struct body_server_status *body, struct arena *arena,
                                      struct message_text *out, struct error *err)
{
    struct list models = {body->models, body->n_models, sizeof(*body->models), status_model_put};
    struct list counters = {body->counters, body->n_counters, sizeof(*body->counters), counter_put};
    struct list memory = {body->memory, body->n_memory, sizeof(*body->memory), memory_put};
    inferd_ServerStatusResponse m = {.version = string_put(body->version),
                                     .device = string_put(body->device),
                                     .uptime_s = body->uptime_s,
                                     .uptime_ns = body->uptime_ns,
                                     .started_ms = body->started_ms,
                                     .ready = body->ready,
                                     .workers = body->workers,
                                     .workers_busy = body->workers_busy,
                                     .connections = body->connections,
                                     .inflight_bytes = body->inflight_bytes,
                                     .inflight_requests = body->inflight_requests,
                                     .models = list_put(&models),
                                     .counters = list_put(&counters),
                                     .memory = list_put(&memory)};
    return message_encode(inferd_ServerStatusResponse_fields, &m, arena, out, err);
}

enum status body_encode(const struct body *body, struct arena *arena, struct message_text *out,
                        struct error *err)
{
    switch (body->kind) {
    case REQUEST_SERVER_METADATA:
        return body_server_metadata_encode(&body->is.server_metadata, arena, out, err);
    case REQUEST_MODEL_METADATA:
        return body_model_metadata_encode(&body->is.model_metadata, arena, out, err);
    case REQUEST_MODEL_CONFIG:
        return body_model_config_encode(&body->is.model_config, arena, out, err);
    case REQUEST_STATISTICS:
        return body_statistics_encode(&body->is.statistics, arena, out, err);
    case REQUEST_REPOSITORY_INDEX:
        return body_index_encode(&body->is.index, arena, out, err);
    case REQUEST_TRACE_SETTING:
        return body_trace_settings_encode(&body->is.settings, arena, out, err);
    case REQUEST_LOG_SETTING:
        return body_log_settings_encode(&body->is.settings, arena, out, err);
    case REQUEST_MEMORY_STATUS:
        return body_memory_encode(&body->is.regions, arena, out, err);
    case REQUEST_CUDA_STATUS:
        return body_cuda_encode(&body->is.regions, arena, out, err);
    case REQUEST_SERVER_STATUS:
        return body_server_status_encode(&body->is.server_status, arena, out, err);
    default:
        return error_set(err, STATUS_INTERNAL, "a request of kind %d has no body", (int)body->kind);
    }
}
