/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.pbtxt as it is written: a struct for each message of Triton's ModelConfig, filled by the
 * rows of model_file_fields.c. model_file.c makes a struct model_file of it.
 */
#ifndef INFERD_CONFIG_MODEL_FILE_FIELDS_H
#define INFERD_CONFIG_MODEL_FILE_FIELDS_H

#include "base/dtype.h"
#include "config/bind.h"

/* An entry of a map; of some, the value is a message. */
struct written_pair {
    const char *key, *value;
};

struct written_parameter {
    const char *key;
    bool has_value;
    struct {
        const char *string_value;
    } value;
};

struct written_tensor {
    const char *name;
    int data_type, format;
    struct bind_list dims; /* int64_t */
    bool is_shape_tensor, allow_ragged_batch, optional, is_non_linear_format_io;
};

struct written_queue_policy {
    int timeout_action;
    int64_t default_timeout_microseconds, max_queue_size;
    bool allow_timeout_override;
};

struct written_priority_policy {
    int64_t key;
    bool has_value;
    struct written_queue_policy value;
};

struct written_batching {
    struct bind_list preferred_batch_size; /* int64_t */
    int64_t max_queue_delay_microseconds, priority_levels, default_priority_level;
    bool preserve_ordering, has_policy;
    struct written_queue_policy policy;
    struct bind_list priority_queue_policy;
};

struct written_group {
    const char *name;
    int kind;
    int64_t count;
    struct bind_list gpus; /* int64_t */
    bool passive;
};

struct written_policy {
    bool has_latest, has_all, has_specific;
    struct {
        int64_t num_versions;
    } latest;
    struct {
        struct bind_list versions; /* int64_t */
    } specific;
    char all;
};

struct written_warm_input {
    const char *key;
    bool has_value;
    struct {
        int data_type;
        struct bind_list dims; /* int64_t */
        bool zero_data, random_data;
        const char *input_data_file;
    } value;
};

struct written_warmup {
    const char *name;
    int64_t batch_size, count;
    struct bind_list inputs;
};

struct written_step {
    const char *model_name;
    int64_t model_version;
    struct bind_list input_map, output_map; /* struct written_pair */
};

struct written_model {
    const char *name, *platform, *backend, *default_model_filename;
    int64_t max_batch_size;
    bool has_policy, has_batching, has_pipeline, has_transactions, has_cache;
    struct written_policy version_policy;
    struct bind_list input, output;
    struct written_batching batching;
    struct bind_list instance_group;
    struct bind_list parameters;
    struct bind_list model_warmup;
    struct {
        struct bind_list step;
    } pipeline;
    struct {
        bool decoupled;
    } transactions;
    struct {
        bool enable;
    } cache;
};

extern const struct bind_row model_file_rows[]; /* for a struct written_model */

/* The index of a word in `data_type`'s row as a type; DTYPE_NONE: TYPE_INVALID or TYPE_STRING. */
enum dtype written_dtype(int data_type);

#endif
