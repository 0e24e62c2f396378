/* SPDX-License-Identifier: Apache-2.0 */
/* Every field of Triton's ModelConfig (its model_config.proto), one row each. */
#include "config/model_file_fields.h"

#include "base/dtype.h"
#include "config/model_file.h"

#define AT(owner, member) .offset = offsetof(struct owner, member)

#define TEXT(owner, member)                                                                        \
    {                                                                                              \
        .name = #member, .kind = BIND_TEXT, AT(owner, member)                                      \
    }
#define BOOL(owner, member)                                                                        \
    {                                                                                              \
        .name = #member, .kind = BIND_BOOL, AT(owner, member)                                      \
    }
#define NUMBER(owner, member, from, to)                                                            \
    {                                                                                              \
        .name = #member, .kind = BIND_NUMBER, .least = (from), .most = (to), AT(owner, member)     \
    }
#define NUMBERS(owner, member, from, to, count)                                                    \
    {                                                                                              \
        .name = #member, .kind = BIND_NUMBER, .least = (from), .most = (to), AT(owner, member),    \
        .repeated = true, .most_items = (count)                                                    \
    }
#define WORD(owner, member, list)                                                                  \
    {                                                                                              \
        .name = #member, .kind = BIND_WORD, .words = (list), AT(owner, member)                     \
    }
#define MESSAGE(owner, label, member, seen_member, table)                                          \
    {                                                                                              \
        .name = (label), .kind = BIND_MESSAGE, .rows = (table), AT(owner, member),                 \
        .seen = offsetof(struct owner, seen_member)                                                \
    }
#define MESSAGES(owner, member, item, table, count)                                                \
    {                                                                                              \
        .name = #member, .kind = BIND_MESSAGE, .rows = (table), AT(owner, member),                 \
        .repeated = true, .item_size = sizeof(struct item), .most_items = (count)                  \
    }
#define UNUSED_FIELD(label, reason)                                                                \
    {                                                                                              \
        .name = (label), .kind = BIND_UNUSED, .why = (reason)                                      \
    }
#define REFUSED(label, reason)                                                                     \
    {                                                                                              \
        .name = (label), .kind = BIND_REFUSED, .why = (reason)                                     \
    }

enum { TIMES_MOST = 1 << 20, GPUS_MOST = 64, GROUPS_MOST = 64, PARAMETERS_MOST = 256 };

#define A_MINUTE_US INT64_C(60000000)
#define AN_HOUR_US  INT64_C(3600000000)

static const char *const types[] = {
    "TYPE_INVALID", "TYPE_BOOL",   "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64",
    "TYPE_INT8",    "TYPE_INT16",  "TYPE_INT32", "TYPE_INT64",  "TYPE_FP16",   "TYPE_FP32",
    "TYPE_FP64",    "TYPE_STRING", "TYPE_BF16",  NULL,
};

enum dtype written_dtype(int data_type)
{
    static const enum dtype dtypes[] = {
        DTYPE_NONE, DTYPE_BOOL, DTYPE_U8,  DTYPE_U16, DTYPE_U32, DTYPE_U64,  DTYPE_I8,   DTYPE_I16,
        DTYPE_I32,  DTYPE_I64,  DTYPE_F16, DTYPE_F32, DTYPE_F64, DTYPE_NONE, DTYPE_BF16,
    };
    return dtypes[data_type];
}

static const char *const formats[] = {"FORMAT_NONE", "FORMAT_NHWC", "FORMAT_NCHW", NULL};
static const char *const timeout_actions[] = {"REJECT", "DELAY", NULL};
static const char *const group_kinds[] = {"KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL", NULL};

static const char no_reshape[] = "clients send the shapes that the model has";

#define TENSOR_ROWS                                                                                \
    TEXT(written_tensor, name), WORD(written_tensor, data_type, types),                            \
        NUMBERS(written_tensor, dims, -1, INT64_MAX, SHAPE_MAX_RANK),                              \
        BOOL(written_tensor, is_shape_tensor), BOOL(written_tensor, is_non_linear_format_io),      \
        REFUSED("reshape", no_reshape)

static const struct bind_row input_rows[] = {
    TENSOR_ROWS,
    WORD(written_tensor, format, formats),
    BOOL(written_tensor, allow_ragged_batch),
    BOOL(written_tensor, optional),
    {0},
};

static const struct bind_row output_rows[] = {
    TENSOR_ROWS,
    UNUSED_FIELD("label_filename", "classifications carry indices, not labels"),
    {0},
};

static const struct bind_row latest_rows[] = {
    {.name = "num_versions", .kind = BIND_NUMBER, .least = 1, .most = 65536},
    {0},
};

static const struct bind_row specific_rows[] = {
    {.name = "versions",
     .kind = BIND_NUMBER,
     .least = 0,
     .most = INT64_MAX,
     .repeated = true,
     .most_items = 1024},
    {0},
};

static const struct bind_row no_rows[] = {{0}};

static const struct bind_row policy_rows[] = {
    MESSAGE(written_policy, "latest", latest, has_latest, latest_rows),
    MESSAGE(written_policy, "all", all, has_all, no_rows),
    MESSAGE(written_policy, "specific", specific, has_specific, specific_rows),
    {0},
};

static const struct bind_row queue_policy_rows[] = {
    WORD(written_queue_policy, timeout_action, timeout_actions),
    NUMBER(written_queue_policy, default_timeout_microseconds, 0, AN_HOUR_US),
    BOOL(written_queue_policy, allow_timeout_override),
    NUMBER(written_queue_policy, max_queue_size, 0, TIMES_MOST),
    {0},
};

static const struct bind_row priority_policy_rows[] = {
    NUMBER(written_priority_policy, key, 1, TIMES_MOST),
    MESSAGE(written_priority_policy, "value", value, has_value, queue_policy_rows),
    {0},
};

static const struct bind_row batching_rows[] = {
    NUMBERS(written_batching, preferred_batch_size, 1, 65536, 64),
    NUMBER(written_batching, max_queue_delay_microseconds, 0, A_MINUTE_US),
    BOOL(written_batching, preserve_ordering),
    NUMBER(written_batching, priority_levels, 0, TIMES_MOST),
    NUMBER(written_batching, default_priority_level, 0, TIMES_MOST),
    MESSAGE(written_batching, "default_queue_policy", policy, has_policy, queue_policy_rows),
    MESSAGES(written_batching, priority_queue_policy, written_priority_policy, priority_policy_rows,
             64),
    {0},
};

static const char one_device[] = "a daemon has one device; run one daemon for each";

static const struct bind_row group_rows[] = {
    TEXT(written_group, name),
    WORD(written_group, kind, group_kinds),
    NUMBER(written_group, count, 0, 256),
    NUMBERS(written_group, gpus, 0, 255, GPUS_MOST),
    BOOL(written_group, passive),
    UNUSED_FIELD("secondary_devices", one_device),
    UNUSED_FIELD("profile", "a batch runs on the smallest profile that holds it"),
    UNUSED_FIELD("rate_limiter", "workers take turns by the age of what waits"),
    UNUSED_FIELD("host_policy", one_device),
    {0},
};

static const struct bind_row parameter_value_rows[] = {
    {.name = "string_value", .kind = BIND_TEXT},
    {0},
};

static const struct bind_row parameter_rows[] = {
    TEXT(written_parameter, key),
    MESSAGE(written_parameter, "value", value, has_value, parameter_value_rows),
    {0},
};

static const struct bind_row pair_rows[] = {
    TEXT(written_pair, key),
    TEXT(written_pair, value),
    {0},
};

#define WARM_OFFSET(member)                                                                        \
    (offsetof(struct written_warm_input, value.member) - offsetof(struct written_warm_input, value))

static const struct bind_row warm_value_rows[] = {
    {.name = "data_type", .kind = BIND_WORD, .words = types, .offset = WARM_OFFSET(data_type)},
    {.name = "dims",
     .kind = BIND_NUMBER,
     .least = 0,
     .most = INT32_MAX,
     .repeated = true,
     .most_items = SHAPE_MAX_RANK,
     .offset = WARM_OFFSET(dims)},
    {.name = "zero_data", .kind = BIND_BOOL, .offset = WARM_OFFSET(zero_data)},
    {.name = "random_data", .kind = BIND_BOOL, .offset = WARM_OFFSET(random_data)},
    {.name = "input_data_file", .kind = BIND_TEXT, .offset = WARM_OFFSET(input_data_file)},
    {0},
};

static const struct bind_row warm_input_rows[] = {
    TEXT(written_warm_input, key),
    MESSAGE(written_warm_input, "value", value, has_value, warm_value_rows),
    {0},
};

static const struct bind_row warmup_rows[] = {
    TEXT(written_warmup, name),
    NUMBER(written_warmup, batch_size, 0, 65536),
    NUMBER(written_warmup, count, 0, 1000),
    MESSAGES(written_warmup, inputs, written_warm_input, warm_input_rows, MODEL_FILE_TENSORS),
    {0},
};

static const struct bind_row step_rows[] = {
    TEXT(written_step, model_name),
    NUMBER(written_step, model_version, -1, INT64_MAX),
    MESSAGES(written_step, input_map, written_pair, pair_rows, MODEL_FILE_TENSORS),
    MESSAGES(written_step, output_map, written_pair, pair_rows, MODEL_FILE_TENSORS),
    UNUSED_FIELD("model_namespace", "there is one repository, so names are enough"),
    {0},
};

static const struct bind_row pipeline_rows[] = {
    {.name = "step",
     .kind = BIND_MESSAGE,
     .rows = step_rows,
     .repeated = true,
     .item_size = sizeof(struct written_step),
     .most_items = MODEL_FILE_STEPS},
    {0},
};

static const struct bind_row transaction_rows[] = {
    {.name = "decoupled", .kind = BIND_BOOL},
    {0},
};

static const struct bind_row cache_rows[] = {
    {.name = "enable", .kind = BIND_BOOL},
    {0},
};

const struct bind_row model_file_rows[] = {
    TEXT(written_model, name),
    TEXT(written_model, platform),
    TEXT(written_model, backend),
    UNUSED_FIELD("runtime", "the engine is inferd's own"),
    MESSAGE(written_model, "version_policy", version_policy, has_policy, policy_rows),
    NUMBER(written_model, max_batch_size, 0, 65536),
    MESSAGES(written_model, input, written_tensor, input_rows, MODEL_FILE_TENSORS),
    MESSAGES(written_model, output, written_tensor, output_rows, MODEL_FILE_TENSORS),
    REFUSED("batch_input", "no tensors are made beside those that clients send"),
    REFUSED("batch_output", "outputs are cut by instances alone"),
    UNUSED_FIELD("optimization", "inferctl build decides all this when it makes the plan"),
    MESSAGE(written_model, "dynamic_batching", batching, has_batching, batching_rows),
    REFUSED("sequence_batching", "requests carry no state from one to the next"),
    MESSAGE(written_model, "ensemble_scheduling", pipeline, has_pipeline, pipeline_rows),
    MESSAGES(written_model, instance_group, written_group, group_rows, GROUPS_MOST),
    TEXT(written_model, default_model_filename),
    UNUSED_FIELD("cc_model_filenames", "a plan is for one device"),
    UNUSED_FIELD("metric_tags", "metrics carry model and version"),
    MESSAGES(written_model, parameters, written_parameter, parameter_rows, PARAMETERS_MOST),
    MESSAGES(written_model, model_warmup, written_warmup, warmup_rows, 64),
    REFUSED("model_operations", "libraries with operators of their own are not loaded"),
    MESSAGE(written_model, "model_transaction_policy", transactions, has_transactions,
            transaction_rows),
    REFUSED("model_repository_agents", "nothing but inferd handles a model's files"),
    MESSAGE(written_model, "response_cache", cache, has_cache, cache_rows),
    UNUSED_FIELD("model_metrics", "histograms have the same buckets for all models"),
    {0},
};
