/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bodies of responses that describe the server: plain structs, encoded by the server and
 * decoded by the client. They are rare and small, so they are built in an arena; inference never
 * comes here. Texts are terminated strings; NULL is written as "", and what is no UTF-8 is cut off.
 */
#ifndef INFERD_PROTO_BODY_H
#define INFERD_PROTO_BODY_H

#include "base/arena.h"
#include "proto/message.h"
#include "proto/request.h"

struct body_server_metadata {
    const char *name, *version;
    uint32_t n_extensions;
    const char *const *extensions;
};

struct body_tensor {
    const char *name;
    const char *datatype;
    struct shape shape; /* -1: any number of instances */
};

struct body_model_metadata {
    const char *name, *platform;
    uint32_t n_versions, n_inputs, n_outputs;
    const char *const *versions;
    const struct body_tensor *inputs, *outputs;
};

/* A step of a pipeline: what its model calls a tensor, and what the pipeline calls it. */
struct body_link {
    const char *inner, *outer;
};

struct body_step {
    const char *model;
    int64_t version; /* -1: the latest */
    uint32_t n_inputs, n_outputs;
    const struct body_link *inputs, *outputs;
};

/* A model's configuration, in the words of the field's clients. Where the model is batched
 * (max_batch is not 0) the shapes leave the number of instances out. */
struct body_model_config {
    const char *name, *version, *platform, *backend;
    uint32_t max_batch, n_inputs, n_outputs;
    const struct body_tensor *inputs, *outputs;
    bool dynamic; /* requests share batches */
    uint32_t n_preferred;
    const uint32_t *preferred;
    uint64_t max_delay_us;
    uint32_t priority_levels, default_priority; /* 0: there are none */
    uint32_t instances;                         /* batches that may run at a time; 0: its steps' */
    uint32_t n_steps;                           /* of a pipeline; 0: it is none */
    const struct body_step *steps;
    const char *device; /* "cpu", "cuda:0" */
};

/* A setting of traces or of the log, by the name that the field's clients know. */
struct body_setting {
    const char *key;
    enum request_setting_kind kind; /* TEXT, BOOL or NUMBER; several TEXT of one key are a list */
    const char *text;
    uint64_t number; /* of a BOOL: 0 or 1 */
};

struct body_settings {
    uint32_t n;
    const struct body_setting *items;
};

/* A region of shared memory. */
struct body_region {
    const char *name;
    const char *key; /* of the system's */
    uint64_t offset, size, device;
};

struct body_regions {
    uint32_t n;
    const struct body_region *items;
};

struct body_duration {
    uint64_t count, ns;
};

struct body_batch_statistics {
    uint64_t batch_size;
    struct body_duration compute_input, compute_infer, compute_output;
};

struct body_model_statistics {
    const char *name, *version;
    uint64_t last_inference; /* ms since 1970 */
    uint64_t inference_count, execution_count;
    struct body_duration success, fail, queue, compute_input, compute_infer, compute_output;
    uint32_t n_batches;
    const struct body_batch_statistics *batches;
};

struct body_statistics {
    uint32_t n_models;
    const struct body_model_statistics *models;
};

struct body_index_entry {
    const char *name, *version, *state, *reason;
};

struct body_index {
    uint32_t n_models;
    const struct body_index_entry *models;
};

/* The stages of an answered request; the last one is the sum of the others. */
enum body_stage_name { BODY_QUEUE, BODY_INPUT, BODY_COMPUTE, BODY_OUTPUT, BODY_TOTAL, BODY_STAGES };

/* A bucket of base/histogram.h that is not empty; `skip` empty ones lie between it and the bucket
 * before it in the list. */
struct body_bucket {
    uint64_t skip, count;
};

struct body_stage {
    uint64_t ns; /* sum over requests */
    uint32_t n_buckets;
    const struct body_bucket *buckets;
};

struct body_status_model {
    const char *name, *version, *state, *reason;
    uint32_t max_batch, queued;
    uint64_t max_delay_us, oldest_us, requests, failures, instances, batches;
    uint64_t since_ms; /* since 1970: when they were zero */
    struct body_stage stages[BODY_STAGES];
};

struct body_counter {
    const char *name;
    uint64_t value;
};

/* How many bytes the server has in one place. */
struct body_memory {
    const char *name;
    uint64_t bytes, limit; /* limit 0: none */
};

struct body_server_status {
    const char *version, *device;
    uint64_t uptime_s, uptime_ns, started_ms; /* started_ms since 1970 */
    bool ready;
    uint32_t workers, workers_busy, connections;
    uint64_t inflight_bytes, inflight_requests;
    uint32_t n_models, n_counters, n_memory;
    const struct body_status_model *models;
    const struct body_counter *counters;
    const struct body_memory *memory;
};

/* Any of these, by the kind of the request that it answers. */
struct body {
    enum request_kind kind;
    union {
        struct body_server_metadata server_metadata;
        struct body_model_metadata model_metadata;
        struct body_model_config model_config;
        struct body_statistics statistics;
        struct body_index index;
        struct body_settings settings; /* TRACE_SETTING, LOG_SETTING */
        struct body_regions regions;   /* MEMORY_STATUS, CUDA_STATUS */
        struct body_server_status server_status;
    } is;
};

/* Encodes a body as protobuf, by the encoder of its kind. */
enum status body_encode(const struct body *body, struct arena *arena, struct message_text *out,
                        struct error *err);

/* Encoders: the message lies in the arena. RESOURCE_EXHAUSTED: no memory. */
enum status body_server_metadata_encode(const struct body_server_metadata *body,
                                        struct arena *arena, struct message_text *out,
                                        struct error *err);
enum status body_model_metadata_encode(const struct body_model_metadata *body, struct arena *arena,
                                       struct message_text *out, struct error *err);
enum status body_model_config_encode(const struct body_model_config *body, struct arena *arena,
                                     struct message_text *out, struct error *err);
enum status body_trace_settings_encode(const struct body_settings *body, struct arena *arena,
                                       struct message_text *out, struct error *err);
enum status body_log_settings_encode(const struct body_settings *body, struct arena *arena,
                                     struct message_text *out, struct error *err);
enum status body_memory_encode(const struct body_regions *body, struct arena *arena,
                               struct message_text *out, struct error *err);
enum status body_cuda_encode(const struct body_regions *body, struct arena *arena,
                             struct message_text *out, struct error *err);
enum status body_statistics_encode(const struct body_statistics *body, struct arena *arena,
                                   struct message_text *out, struct error *err);
enum status body_index_encode(const struct body_index *body, struct arena *arena,
                              struct message_text *out, struct error *err);
enum status body_server_status_encode(const struct body_server_status *body, struct arena *arena,
                                      struct message_text *out, struct error *err);

/* A limit on the fields of a body. It suffices for 1,024 models that ran batches of 370 different
 * sizes each. */
enum { BODY_MAX_FIELDS = 4 * 1024 * 1024 };

/* Decoders: what `out` points to lies in the arena, which bounds it (give it a limit).
 * INVALID_ARGUMENT: malformed, or more than BODY_MAX_FIELDS; RESOURCE_EXHAUSTED: the arena is full.
 */
enum status body_server_metadata_decode(struct message_text wire, struct arena *arena,
                                        struct body_server_metadata *out, struct error *err);
enum status body_model_metadata_decode(struct message_text wire, struct arena *arena,
                                       struct body_model_metadata *out, struct error *err);
enum status body_statistics_decode(struct message_text wire, struct arena *arena,
                                   struct body_statistics *out, struct error *err);
enum status body_index_decode(struct message_text wire, struct arena *arena, struct body_index *out,
                              struct error *err);
enum status body_server_status_decode(struct message_text wire, struct arena *arena,
                                      struct body_server_status *out, struct error *err);

#endif
