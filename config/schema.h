/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every key of the configuration, once: the YAML schema, the conversion into struct config, the
 * range checks and the test of the reference file are all made from these lists.
 *
 *   X(key = member, kind, least, most)      for text the bounds are on its length
 *
 * Scalars come out of YAML as text and are converted here, not by libcyaml: it knows no ranges and
 * no sizes with a suffix, and cannot tell "0" from "not given".
 */
#ifndef INFERD_CONFIG_SCHEMA_H
#define INFERD_CONFIG_SCHEMA_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "config/config.h"

enum {
    CONFIG_FILE_MAX = 1 << 20,
    CONFIG_TEXT_MAX = 4096,
    CONFIG_NAME_MAX = 64,
    CONFIG_LISTEN_MAX = 16,
    CONFIG_MODELS_MAX = 1024,
    CONFIG_PLUGINS_MAX = 16,
    CONFIG_BATCHES_MAX = 32,
    CONFIG_SIZES_MAX = 64, /* of one kind */
    CONFIG_PREFERRED_MAX = 8,
    CONFIG_INPUTS_MAX = 64,
    CONFIG_NUMBERS_MAX = 4096, /* of one scale or bias */
    CONFIG_BATCH_MOST = 65536,
    CONFIG_IDENTITIES_MAX = 1024,
    CONFIG_PATTERNS_MAX = 32,
    CONFIG_RIGHTS_MAX = 16,
    CONFIG_PRIORITY_MOST = 3,
};

#define HOUR_MS   3600000
#define HOUR_S    3600
#define MINUTE_US 60000000
#define TERABYTE  (1ULL << 40)

#define CONFIG_SERVER_FIELDS(X)                                                                    \
    X(device, TEXT, 1, CONFIG_NAME_MAX)                                                            \
    X(workers, U32, 0, 256)                                                                        \
    X(threads, U32, 0, 1024)                                                                       \
    X(io_threads, U32, 1, 64)                                                                      \
    X(max_delay_us, U64, 0, MINUTE_US)                                                             \
    X(max_batch, U32, 0, CONFIG_BATCH_MOST)                                                        \
    X(default_timeout_ms, U32, 0, HOUR_MS)                                                         \
    X(drain_timeout_ms, U32, 0, HOUR_MS)                                                           \
    X(drain_delay_ms, U32, 0, HOUR_MS)                                                             \
    X(build_timeout_s, U32, 1, 24 * HOUR_S)                                                        \
    X(build_memory_bytes, BYTES, 0, 64 * TERABYTE)                                                 \
    X(hang_timeout_ms, U32, 10, HOUR_MS)                                                           \
    X(repository, TEXT, 1, CONFIG_TEXT_MAX)                                                        \
    X(repository_mode, TEXT, 1, CONFIG_NAME_MAX)                                                   \
    X(repository_poll_ms, U32, 100, HOUR_MS)                                                       \
    X(readiness, TEXT, 1, CONFIG_NAME_MAX)                                                         \
    X(cache, TEXT, 1, CONFIG_TEXT_MAX)                                                             \
    X(cache_insecure, BOOL, 0, 1)                                                                  \
    X(tokens, TEXT, 1, CONFIG_TEXT_MAX)                                                            \
    X(cache_bytes, BYTES, 0, TERABYTE)                                                             \
    X(shape_engines, U32, 1, 4096)                                                                 \
    X(shape_bytes, BYTES, 1, 64 * TERABYTE)                                                        \
    X(shape_cache_bytes, BYTES, 1, 64 * TERABYTE)                                                  \
    X(plan_keys, TEXT, 1, CONFIG_TEXT_MAX)                                                         \
    X(log_level, TEXT, 1, CONFIG_NAME_MAX)                                                         \
    X(log_components, TEXT, 1, CONFIG_TEXT_MAX)                                                    \
    X(log_format, TEXT, 1, CONFIG_NAME_MAX)                                                        \
    X(shared_memory, TEXT, 1, CONFIG_NAME_MAX)                                                     \
    X(cuda_shared_memory, BOOL, 0, 1)                                                              \
    X(trace_rate, U32, 0, 1000000000)                                                              \
    X(trace_file, TEXT, 1, CONFIG_TEXT_MAX)                                                        \
    X(trace_collector, TEXT, 1, CONFIG_TEXT_MAX)

#define CONFIG_LISTEN_FIELDS(X)                                                                    \
    X(insecure, BOOL, 0, 1)                                                                        \
    X(certificate, TEXT, 1, CONFIG_TEXT_MAX)                                                       \
    X(certificate_key, TEXT, 1, CONFIG_TEXT_MAX)                                                   \
    X(client_ca, TEXT, 1, CONFIG_TEXT_MAX)

#define CONFIG_IDENTITY_FIELDS(X)                                                                  \
    X(name, TEXT, 1, CONFIG_NAME_MAX)                                                              \
    X(user, TEXT, 1, CONFIG_NAME_MAX)                                                              \
    X(group, TEXT, 1, CONFIG_NAME_MAX)                                                             \
    X(priority, U32, 0, CONFIG_PRIORITY_MOST)                                                      \
    X(requests, U32, 0, 1 << 20)                                                                   \
    X(bytes, BYTES, 0, TERABYTE)

#define CONFIG_MODEL_FIELDS(X)                                                                     \
    X(name, TEXT, 1, CONFIG_NAME_MAX)                                                              \
    X(path, TEXT, 1, CONFIG_TEXT_MAX)                                                              \
    X(version, TEXT, 1, CONFIG_NAME_MAX)                                                           \
    X(max_batch, U32, 0, CONFIG_BATCH_MOST)                                                        \
    X(max_delay_us, I64, -1, MINUTE_US)                                                            \
    X(queue_limit, U32, 0, 1 << 20)                                                                \
    X(instances, U32, 0, 256)                                                                      \
    X(precision, TEXT, 1, CONFIG_NAME_MAX)                                                         \
    X(max_bytes, BYTES, 0, 64 * TERABYTE)                                                          \
    X(memory_percent, U32, 0, 100)                                                                 \
    X(workspace, BYTES, 0, 64 * TERABYTE)                                                          \
    X(on_new_shape, TEXT, 1, CONFIG_NAME_MAX)

#define CONFIG_INPUT_FIELDS(X)                                                                     \
    X(name, TEXT, 1, CONFIG_NAME_MAX)                                                              \
    X(type, TEXT, 1, CONFIG_NAME_MAX)

#define CONFIG_LIMIT_FIELDS(X)                                                                     \
    X(frame_bytes, BYTES, 1024, INT32_MAX)                                                         \
    X(inflight_bytes, BYTES, 1024, TERABYTE)                                                       \
    X(connection_inflight_bytes, BYTES, 1024, TERABYTE)                                            \
    X(queue_requests, U32, 1, 1 << 20)                                                             \
    X(connections, U32, 1, 1 << 20)                                                                \
    X(output_bytes, BYTES, 1024, TERABYTE)                                                         \
    X(model_bytes, BYTES, 0, TERABYTE)                                                             \
    X(tail_bytes, BYTES, 1024, TERABYTE)                                                           \
    X(header_timeout_ms, U32, 1, HOUR_MS)                                                          \
    X(frame_timeout_ms, U32, 1, HOUR_MS)                                                           \
    X(idle_timeout_ms, U32, 1, 24 * HOUR_MS)                                                       \
    X(connection_requests, U32, 1, 1 << 20)                                                        \
    X(address_connections, U32, 0, 1 << 20)                                                        \
    X(address_requests, U32, 0, 1 << 30)                                                           \
    X(address_inflight_bytes, BYTES, 0, TERABYTE)                                                  \
    X(large_inflight_bytes, BYTES, 0, TERABYTE)                                                    \
    X(receive_rate, U32, 0, 1 << 30)                                                               \
    X(regions, U32, 1, 1 << 16)                                                                    \
    X(region_bytes, BYTES, 1, 64 * TERABYTE)                                                       \
    X(shape_builds, U32, 1, 4096)                                                                  \
    X(shape_requests, U32, 1, 1 << 20)                                                             \
    X(shape_request_bytes, BYTES, 1, TERABYTE)

/* The keys that are lists or sections. */
#define CONFIG_OTHER_KEYS(X)                                                                       \
    X(listen)                                                                                      \
    CONFIG_DOORS(X)                                                                                \
    X(tls)                                                                                         \
    X(models)                                                                                      \
    X(identities)                                                                                  \
    X(rights)                                                                                      \
    X(preferred)                                                                                   \
    X(batches)                                                                                     \
    X(dims)                                                                                        \
    X(shapes)                                                                                      \
    X(profiles)                                                                                    \
    X(values)                                                                                      \
    X(ragged)                                                                                      \
    X(output_types)                                                                                \
    X(pin)                                                                                         \
    X(keep)                                                                                        \
    X(inputs)                                                                                      \
    X(scale)                                                                                       \
    X(bias)                                                                                        \
    X(plugins)                                                                                     \
    X(repository_load)                                                                             \
    X(limits)

enum field_kind { FIELD_TEXT, FIELD_BOOL, FIELD_U32, FIELD_U64, FIELD_I64, FIELD_BYTES };

/* One scalar: where its text lies in the struct as read, and its value in struct config. */
struct field {
    const char *key;
    enum field_kind kind;
    size_t raw;
    size_t value;
    int64_t least, most;
};

/* The file as libcyaml reads it; NULL: not given. */
struct raw_list {
    char **items;
    uint32_t items_count;
};

#define CONFIG_RAW_MEMBER(member, kind, least, most) char *member;

struct raw_input {
    CONFIG_INPUT_FIELDS(CONFIG_RAW_MEMBER)
    struct raw_list scale, bias;
};

struct raw_model {
    CONFIG_MODEL_FIELDS(CONFIG_RAW_MEMBER)
    struct raw_list preferred, batches, dims, shapes, profiles, values, ragged, output_types;
    struct raw_list pin, keep;
    struct raw_input *inputs;
    uint32_t inputs_count;
};

struct raw_identity {
    CONFIG_IDENTITY_FIELDS(CONFIG_RAW_MEMBER)
    struct raw_list models, rights;
};

struct raw_limits {
    CONFIG_LIMIT_FIELDS(CONFIG_RAW_MEMBER)
};

struct raw_config {
    CONFIG_SERVER_FIELDS(CONFIG_RAW_MEMBER)
    CONFIG_LISTEN_FIELDS(CONFIG_RAW_MEMBER)
    struct raw_list doors[CONFIG_DOOR_COUNT_];
    struct raw_list tls;
    struct raw_list repository_load, plugins;
    struct raw_identity *identities;
    uint32_t identities_count;
    struct raw_model *models;
    uint32_t models_count;
    struct raw_limits limits;
};

/* End with a NULL key. */
extern const struct field config_server_fields[];
extern const struct field config_listen_fields[];
extern const struct field config_identity_fields[];
extern const struct field config_model_fields[];
extern const struct field config_input_fields[];
extern const struct field config_limit_fields[];

/* Where a configuration is wrong: the key's path ("limits.frame_bytes", "models[2].path"), so that
 * its line can be found, and the error to fill. */
struct report {
    struct error *err;
    char key[128];
};

/* "KEY: expected EXPECTED, got GOT"; returns INVALID_ARGUMENT. GOT may be NULL: nothing came. */
enum status report_set(struct report *report, const char *section, const char *key, const char *got,
                       const char *expected, ...) PRINTF(5, 6);

/* The text of a YAML file, checked against the schema, as text. *out is NULL for an empty file. */
enum status schema_load(const char *name, const void *data, size_t size, struct raw_config **out,
                        struct error *err);
void schema_free(struct raw_config *raw);

/* The line (from 1) on which the value of `key` stands, or, for `key` NULL, on which the text stops
 * being YAML; 0 if that is not known. */
size_t schema_line(const void *data, size_t size, const char *key);

/* Converts the text of one field and puts it into `target`. Text is copied. */
enum status field_read(const struct field *field, const char *section, const char *text,
                       void *target, struct report *report);
/* Converts all the fields given in `raw` into `target`. Text is copied. */
enum status fields_read(const struct field *fields, const char *section, const void *raw,
                        void *target, struct report *report);
/* The ranges again, for values that did not come from a file. */
enum status fields_check(const struct field *fields, const char *section, const void *target,
                         struct report *report);
/* A list of counts, each 1..most. *out belongs to the caller; NULL for an empty list. */
enum status field_read_list(const struct raw_list *raw, const char *section, const char *key,
                            uint32_t most, uint32_t **out, uint32_t *count, struct report *report);

/* A list of finite numbers, in the same way. */
enum status field_read_floats(const struct raw_list *raw, const char *section, const char *key,
                              float **out, uint32_t *count, struct report *report);

/* config_check, with the place. */
enum status config_check_report(const struct config *config, struct report *report);

/* The section `identities` (identities.c): from the file, what is wrong with it, and its end. */
enum status config_identities_read(const struct raw_config *raw, struct config *config,
                                   struct report *report);
enum status config_identities_check(const struct config *config, struct report *report);
void config_identities_deinit(struct config *config);

/* Copies `count` texts, none of which is NULL. NULL: no memory. And frees them. */
char **config_texts_copy(char *const *items, uint32_t count);
void config_texts_free(char **items, uint32_t count);

/* [A-Za-z0-9._-]{1,64}, no leading dot: models, versions, identities. */
bool config_name_ok(const char *text);

#endif
