/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes a configuration: the defaults, and what a file sets over them. A file that is not regular,
 * or is larger than 1 MiB, is refused before it is parsed.
 */
#include "config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "config/schema.h"

#define MIB (1ULL << 20)

static const struct config_limits default_limits = {
    .frame_bytes = 64 * MIB,
    .inflight_bytes = 1024 * MIB,
    .connection_inflight_bytes = 256 * MIB,
    .large_inflight_bytes = 128 * MIB,
    .queue_requests = 1024,
    .connections = 4096,
    .output_bytes = 64 * MIB,
    .tail_bytes = 1024 * MIB,
    .header_timeout_ms = 10000,
    .frame_timeout_ms = 30000,
    .idle_timeout_ms = 300000,
    .connection_requests = 1024,
    .receive_rate = 65536,
    .regions = 1024,
    .region_bytes = 1024 * MIB,
    .shape_builds = 16,
    .shape_requests = 256,
    .shape_request_bytes = 64 * MIB,
};

const char *const config_door_names[] = {
#define X(name) #name,
    CONFIG_DOORS(X)
#undef X
};

uint32_t config_tls_doors(const struct config_listen *listen)
{
    const uint32_t usual = UINT32_C(1) << DOOR_http | UINT32_C(1) << DOOR_grpc;
    uint32_t named = 0;
    for (uint32_t k = 0; k < listen->tls_count; k++)
        for (uint32_t door = 0; door < CONFIG_DOOR_COUNT_; door++)
            named |= strcmp(listen->tls[k], config_door_names[door]) ? 0 : UINT32_C(1) << door;
    if (!listen->certificate)
        return 0;
    return listen->tls_count ? named : usual;
}

void config_texts_free(char **items, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        free(items[i]);
    free(items);
}

char **config_texts_copy(char *const *items, uint32_t count)
{
    char **copy = calloc(count, sizeof(*copy));
    if (!copy)
        return NULL;
    for (uint32_t i = 0; i < count; i++) {
        copy[i] = strdup(items[i]);
        if (!copy[i]) {
            config_texts_free(copy, i);
            return NULL;
        }
    }
    return copy;
}

struct config *config_new(void)
{
    char address[] = "127.0.0.1:8003";
    char *framed[] = {address};
    struct config *config = malloc(sizeof(*config));
    if (!config)
        return NULL;
    *config = (struct config){
        .device = strdup("cpu"),
        .io_threads = 1,
        .max_delay_us = 1000,
        .drain_timeout_ms = 30000,
        .build_timeout_s = 600,
        .hang_timeout_ms = 30000,
        .repository_mode = strdup("reload"),
        .repository_poll_ms = 15000,
        .readiness = strdup("strict"),
        .cache_bytes = 16 * 1024 * MIB,
        .shape_engines = 64,
        .shape_bytes = 4 * 1024 * MIB,
        .shape_cache_bytes = 4 * 1024 * MIB,
        .log_level = strdup("info"),
        .log_format = strdup("text"),
        .trace_rate = 1000,
        .limits = default_limits,
        .listen = {.framed = config_texts_copy(framed, 1), .framed_count = 1},
    };
    if (!config->device || !config->repository_mode || !config->readiness || !config->log_level ||
        !config->log_format || !config->listen.framed) {
        config->listen.framed_count = config->listen.framed ? 1 : 0;
        config_free(config);
        return NULL;
    }
    return config;
}

static void deinit_model(struct config_model *model)
{
    for (uint32_t i = 0; i < model->inputs_count; i++) {
        free(model->inputs[i].name);
        free(model->inputs[i].type);
        free(model->inputs[i].scale);
        free(model->inputs[i].bias);
    }
    free(model->inputs);
    free(model->name);
    free(model->path);
    free(model->version);
    free(model->precision);
    free(model->on_new_shape);
    free(model->preferred);
    free(model->batches);
    for (uint32_t k = 0; k < CONFIG_SIZE_COUNT_; k++)
        config_texts_free(model->sizes[k].items, model->sizes[k].count);
}

void config_free(struct config *config)
{
    if (!config)
        return;
    for (uint32_t i = 0; i < config->models_count; i++)
        deinit_model(&config->models[i]);
    free(config->models);
    for (uint32_t k = 0; k < CONFIG_DOOR_COUNT_; k++)
        config_texts_free(config->listen.doors[k].items, config->listen.doors[k].count);
    config_texts_free(config->listen.tls, config->listen.tls_count);
    free(config->listen.certificate);
    free(config->listen.certificate_key);
    free(config->listen.client_ca);
    free(config->device);
    free(config->repository);
    free(config->repository_mode);
    config_texts_free(config->repository_load, config->repository_load_count);
    config_texts_free(config->plugins, config->plugins_count);
    free(config->readiness);
    free(config->cache);
    free(config->tokens);
    config_identities_deinit(config);
    free(config->plan_keys);
    free(config->log_level);
    free(config->log_components);
    free(config->log_format);
    free(config->shared_memory);
    free(config->trace_file);
    free(config->trace_collector);
    free(config);
}

static enum status read_listen(const struct raw_config *whole, struct config_listen *listen,
                               struct report *report)
{
    TRY(fields_read(config_listen_fields, "listen.", whole, listen, report));
    for (uint32_t k = 0; k < CONFIG_DOOR_COUNT_; k++) {
        const struct raw_list *raw = &whole->doors[k];
        struct config_addresses *door = &listen->doors[k];
        if (!raw->items)
            continue;
        char **items = config_texts_copy(raw->items, raw->items_count);
        if (!items)
            return error_no_memory(report->err, "the configuration");
        config_texts_free(door->items, door->count);
        *door = (struct config_addresses){items, raw->items_count};
    }
    if (!whole->tls.items_count)
        return STATUS_OK;
    listen->tls = config_texts_copy(whole->tls.items, whole->tls.items_count);
    if (!listen->tls)
        return error_no_memory(report->err, "the configuration");
    listen->tls_count = whole->tls.items_count;
    return STATUS_OK;
}

static enum status read_load(const struct raw_list *raw, struct config *config,
                             struct report *report)
{
    if (!raw->items_count)
        return STATUS_OK;
    config->repository_load = config_texts_copy(raw->items, raw->items_count);
    if (!config->repository_load)
        return error_no_memory(report->err, "the configuration");
    config->repository_load_count = raw->items_count;
    return STATUS_OK;
}

static enum status read_plugins(const struct raw_list *raw, struct config *config,
                                struct report *report)
{
    if (!raw->items_count)
        return STATUS_OK;
    config->plugins = config_texts_copy(raw->items, raw->items_count);
    if (!config->plugins)
        return error_no_memory(report->err, "the configuration");
    config->plugins_count = raw->items_count;
    return STATUS_OK;
}

static enum status read_inputs(const struct raw_model *raw, const char *section,
                               struct config_model *model, struct report *report)
{
    if (raw->inputs_count == 0)
        return STATUS_OK;
    model->inputs = calloc(raw->inputs_count, sizeof(*model->inputs));
    if (!model->inputs)
        return error_no_memory(report->err, "the configuration");
    model->inputs_count = raw->inputs_count;
    for (uint32_t i = 0; i < raw->inputs_count; i++) {
        const struct raw_input *from = &raw->inputs[i];
        struct config_input *to = &model->inputs[i];
        char place[64];
        snprintf(place, sizeof(place), "%sinputs[%" PRIu32 "].", section, i);
        TRY(fields_read(config_input_fields, place, from, to, report));
        TRY(field_read_floats(&from->scale, place, "scale", &to->scale, &to->scale_count, report));
        TRY(field_read_floats(&from->bias, place, "bias", &to->bias, &to->bias_count, report));
    }
    return STATUS_OK;
}

static enum status read_sizes(const struct raw_model *raw, struct config_model *model,
                              struct report *report)
{
#define SIZE_LIST(number, key, option) &raw->key,
    const struct raw_list *const lists[] = {CONFIG_SIZES(SIZE_LIST)};
#undef SIZE_LIST
    for (uint32_t k = 0; k < CONFIG_SIZE_COUNT_; k++) {
        if (!lists[k]->items_count)
            continue;
        model->sizes[k].items = config_texts_copy(lists[k]->items, lists[k]->items_count);
        if (!model->sizes[k].items)
            return error_no_memory(report->err, "the configuration");
        model->sizes[k].count = lists[k]->items_count;
    }
    return STATUS_OK;
}

static enum status read_model(const struct raw_model *raw, uint32_t index,
                              struct config_model *model, struct report *report)
{
    char section[32];
    snprintf(section, sizeof(section), "models[%" PRIu32 "].", index);
    model->max_delay_us = -1;
    model->version = strdup("1");
    if (!model->version)
        return error_no_memory(report->err, "the configuration");

    TRY(fields_read(config_model_fields, section, raw, model, report));
    TRY(field_read_list(&raw->preferred, section, "preferred", CONFIG_BATCH_MOST, &model->preferred,
                        &model->preferred_count, report));
    TRY(field_read_list(&raw->batches, section, "batches", CONFIG_BATCH_MOST, &model->batches,
                        &model->batches_count, report));
    TRY(read_sizes(raw, model, report));
    return read_inputs(raw, section, model, report);
}

static enum status read_models(const struct raw_config *raw, struct config *config,
                               struct report *report)
{
    if (raw->models_count == 0)
        return STATUS_OK;
    config->models = calloc(raw->models_count, sizeof(*config->models));
    if (!config->models)
        return error_no_memory(report->err, "the configuration");
    config->models_count = raw->models_count;
    for (uint32_t i = 0; i < raw->models_count; i++)
        TRY(read_model(&raw->models[i], i, &config->models[i], report));
    return STATUS_OK;
}

static enum status read_all(const struct raw_config *raw, struct config *config,
                            struct report *report)
{
    TRY(fields_read(config_server_fields, "", raw, config, report));
    TRY(read_listen(raw, &config->listen, report));
    TRY(read_load(&raw->repository_load, config, report));
    TRY(read_plugins(&raw->plugins, config, report));
    TRY(read_models(raw, config, report));
    TRY(config_identities_read(raw, config, report));
    TRY(fields_read(config_limit_fields, "limits.", &raw->limits, &config->limits, report));
    return config_check_report(config, report);
}

static void raw_cleanup(struct raw_config **raw)
{
    schema_free(*raw);
}

void config_cleanup(struct config **config)
{
    config_free(*config);
}

enum status config_parse(const char *name, const void *data, size_t size, struct config **out,
                         struct error *err)
{
    struct report report = {.err = err};
    CLEANUP(raw_cleanup) struct raw_config *raw = NULL;
    CLEANUP(config_cleanup) struct config *config = config_new();
    if (!config)
        return error_no_memory(err, "%s", name);
    TRY(schema_load(name, data, size, &raw, err));
    enum status status = raw ? read_all(raw, config, &report) : STATUS_OK;
    if (status) {
        size_t line = report.key[0] ? schema_line(data, size, report.key) : 0;
        if (line > 0)
            error_prefix(err, "%s:%zu", name, line);
        else
            error_prefix(err, "%s", name);
        return status;
    }
    *out = STEAL(config);
    return STATUS_OK;
}

/* Reads at most CONFIG_FILE_MAX bytes, and asks for one more to see whether the file is longer. */
static enum status read_file(int fd, const char *path, char **out, size_t *size, struct error *err)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return error_errno(err, errno, "%s", path);
    if (!S_ISREG(st.st_mode))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: expected a regular file", path);

    CLEANUP(cleanup_free) char *text = malloc(CONFIG_FILE_MAX + 1);
    if (!text)
        return error_no_memory(err, "%s", path);
    size_t have = 0;
    ssize_t n = 1;
    while (n > 0 && have <= CONFIG_FILE_MAX) {
        n = read(fd, text + have, CONFIG_FILE_MAX + 1 - have);
        if (n < 0 && errno == EINTR)
            n = 1;
        else if (n > 0)
            have += (size_t)n;
    }
    if (n < 0)
        return error_errno(err, errno, "%s", path);
    if (have > CONFIG_FILE_MAX)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: expected at most %d bytes", path,
                         CONFIG_FILE_MAX);
    *out = STEAL(text);
    *size = have;
    return STATUS_OK;
}

enum status config_read(const char *path, struct config **out, struct error *err)
{
    CLEANUP(cleanup_free) char *text = NULL;
    size_t size = 0;
    CLEANUP(cleanup_close) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return error_errno(err, errno, "%s", path);
    TRY(read_file(fd, path, &text, &size, err));
    return config_parse(path, text, size, out, err);
}
