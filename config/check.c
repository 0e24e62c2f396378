/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks what the ranges of single keys cannot say: addresses, names, devices, and keys that must
 * fit together. Hosts may have names, but nothing is looked up here (R17 of docs/operations.md): a
 * configuration is checked at each reload.
 */
#include "config/schema.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/resolve.h"

bool config_name_ok(const char *text)
{
    static const char allowed[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t len = strlen(text);
    return len >= 1 && len <= CONFIG_NAME_MAX && text[0] != '.' && strspn(text, allowed) == len;
}

static bool ends_with(const char *text, const char *end)
{
    size_t len = strlen(text), n = strlen(end);
    return len > n && strcmp(text + len - n, end) == 0;
}

static bool is_model_file(const char *path)
{
    return ends_with(path, ".onnx") || ends_with(path, ".plan") || ends_with(path, ".pbtxt");
}

static bool is_device(const char *text)
{
    if (strcmp(text, "cpu") == 0 || strcmp(text, "cuda") == 0)
        return true;
    if (strncmp(text, "cuda:", 5) == 0)
        return strlen(text + 5) >= 1 && strlen(text + 5) <= 3 &&
               strspn(text + 5, "0123456789") == strlen(text + 5);
    return strcmp(text, "fault") == 0;
}

/* Whether the text is one of the words up to NULL. */
static bool is_word(const char *text, const char *const *words)
{
    for (; text && *words; words++)
        if (strcmp(text, *words) == 0)
            return true;
    return false;
}

static bool is_log_level(const char *text)
{
    enum log_level level;
    return log_level_parse(text, strlen(text), &level);
}

static bool is_log_format(const char *text)
{
    return !strcmp(text, "text") || !strcmp(text, "json") || !strcmp(text, "journal");
}

static enum status check_log(const struct config *config, struct report *report)
{
    int levels[LOG_COMPONENT_COUNT_];
    if (!config->log_level || !is_log_level(config->log_level))
        return report_set(report, "", "log_level", config->log_level,
                          "error, warning, info or verbose");
    if (config->log_components && !log_components_parse(config->log_components, levels))
        return report_set(report, "", "log_components", config->log_components,
                          "such as \"peers=verbose, engine=warning\"; the components are server, "
                          "peers, models and engine");
    if (!config->log_format || !is_log_format(config->log_format))
        return report_set(report, "", "log_format", config->log_format, "text, json or journal");
    return STATUS_OK;
}

enum status config_listen_check(const struct config *config, enum config_door door,
                                const struct address *address, struct error *err)
{
    char text[ADDRESS_TEXT_MAX];
    bool mutual = config->listen.client_ca && config_tls_doors(&config->listen) >> door & 1;
    if (address_is_local(address) || config->tokens || mutual || config->listen.insecure)
        return STATUS_OK;
    return error_set(
        err, STATUS_INVALID_ARGUMENT,
        "listen: %s is reachable by others and no tokens are configured; set `tokens`, "
        "`listen.client_ca`, or `listen.insecure: true` (--insecure) to insist",
        address_format(address, text));
}

static bool is_free_port(const char *text)
{
    return ends_with(text, ":0");
}

/* Whether a door before `door`, or an earlier entry of it, has this address already. */
static bool address_taken(const struct config_listen *listen, uint32_t door, uint32_t i)
{
    const char *text = listen->doors[door].items[i];
    for (uint32_t d = 0; d <= door && !is_free_port(text); d++)
        for (uint32_t k = 0; k < (d < door ? listen->doors[d].count : i); k++)
            if (strcmp(text, listen->doors[d].items[k]) == 0)
                return true;
    return false;
}

static enum status check_door(const struct config_listen *listen, uint32_t door,
                              struct report *report)
{
    const struct config_addresses *addresses = &listen->doors[door];
    for (uint32_t i = 0; i < addresses->count; i++) {
        struct resolved resolved;
        struct resolve_name name;
        char key[32];
        snprintf(key, sizeof(key), "%s[%" PRIu32 "]", config_door_names[door], i);
        bool no_unix = door == DOOR_metrics && !strncmp(addresses->items[i], "unix:", 5);
        if (no_unix || resolve_text(addresses->items[i], &resolved, &name, NULL))
            return report_set(report, "listen.", key, addresses->items[i],
                              door == DOOR_metrics ? "HOST:PORT or [IPV6]:PORT"
                                                   : "HOST:PORT, [IPV6]:PORT or unix:/PATH");
        if (address_taken(listen, door, i))
            return report_set(report, "listen.", key, addresses->items[i], "each address once");
    }
    return STATUS_OK;
}

static enum status check_tls(const struct config_listen *listen, struct report *report)
{
    static const char expected[] = "listen.certificate beside it";
    if (!listen->certificate && listen->certificate_key)
        return report_set(report, "listen.", "certificate_key", listen->certificate_key, expected);
    if (!listen->certificate && listen->client_ca)
        return report_set(report, "listen.", "client_ca", listen->client_ca, expected);
    for (uint32_t k = 0; k < listen->tls_count; k++) {
        const struct config_listen one = {
            .certificate = listen->tls[k], .tls = &listen->tls[k], .tls_count = 1};
        if (!config_tls_doors(&one))
            return report_set(report, "listen.", "tls", listen->tls[k],
                              "framed, http, grpc or metrics");
    }
    if (!listen->certificate && listen->tls_count)
        return report_set(report, "listen.", "tls", listen->tls[0], expected);
    return STATUS_OK;
}

static enum status check_listen(const struct config_listen *listen, struct report *report)
{
    TRY(check_tls(listen, report));
    for (uint32_t door = 0; door < CONFIG_DOOR_COUNT_; door++)
        TRY(check_door(listen, door, report));
    return STATUS_OK;
}

static enum status check_rising(const uint32_t *list, uint32_t count, const char *section,
                                const char *key, struct report *report)
{
    for (uint32_t i = 0; i < count; i++) {
        char entry[32], got[16];
        snprintf(entry, sizeof(entry), "%s[%" PRIu32 "]", key, i);
        snprintf(got, sizeof(got), "%" PRIu32, list[i]);
        if (list[i] < 1 || list[i] > CONFIG_BATCH_MOST)
            return report_set(report, section, entry, got, "a whole number from 1 to %d",
                              CONFIG_BATCH_MOST);
        if (i > 0 && list[i] <= list[i - 1])
            return report_set(report, section, entry, got, "rising numbers");
    }
    return STATUS_OK;
}

static enum status check_model_text(const struct config_model *model, const char *section,
                                    struct report *report)
{
    if (!model->name || !config_name_ok(model->name))
        return report_set(report, section, "name", model->name,
                          "1 to %d of A-Z a-z 0-9 . _ - and no leading dot", CONFIG_NAME_MAX);
    if (!model->version || !config_name_ok(model->version))
        return report_set(report, section, "version", model->version,
                          "1 to %d of A-Z a-z 0-9 . _ - and no leading dot", CONFIG_NAME_MAX);
    if (!model->path || !is_model_file(model->path))
        return report_set(report, section, "path", model->path, "a file .onnx, .plan or .pbtxt");
    return STATUS_OK;
}

/* Names are passed to the builder as NAME=VALUE, so they contain no "=". */
static enum status check_inputs(const struct config_model *model, const char *section,
                                struct report *report)
{
    if (model->inputs_count > 0 && !ends_with(model->path, ".onnx"))
        return report_set(report, section, "inputs", model->path,
                          "no inputs: only an .onnx is built with them");
    for (uint32_t i = 0; i < model->inputs_count; i++) {
        const struct config_input *input = &model->inputs[i];
        char place[64];
        snprintf(place, sizeof(place), "%sinputs[%" PRIu32 "].", section, i);
        if (!input->name || !*input->name || strchr(input->name, '='))
            return report_set(report, place, "name", input->name, "the name of an input");
        if (input->type && strcmp(input->type, "uint8") != 0 && strcmp(input->type, "fp16") != 0)
            return report_set(report, place, "type", input->type, "uint8 or fp16");
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(model->inputs[k].name, input->name) == 0)
                return report_set(report, place, "name", input->name, "each input once");
        TRY(fields_check(config_input_fields, place, input, report));
    }
    return STATUS_OK;
}

static enum status check_precision(const struct config_model *model, const char *section,
                                   struct report *report)
{
    static const char *const known[] = {CONFIG_PRECISIONS, NULL};
    if (!model->precision)
        return STATUS_OK;
    if (!ends_with(model->path, ".onnx"))
        return report_set(report, section, "precision", model->precision,
                          "nothing: a plan has its precision");
    return is_word(model->precision, known)
               ? STATUS_OK
               : report_set(report, section, "precision", model->precision,
                            "fp32, tf32, fp16 or bf16");
}

static enum status check_build_limits(const struct config_model *model, const char *section,
                                      struct report *report)
{
    const char *key = model->max_bytes        ? "max_bytes"
                      : model->memory_percent ? "memory_percent"
                      : model->workspace      ? "workspace"
                                              : NULL;
    return !key || ends_with(model->path, ".onnx")
               ? STATUS_OK
               : report_set(report, section, key, model->path,
                            "no such key: only an .onnx is built with it");
}

static enum status check_new_shape(const struct config_model *model, const char *section,
                                   struct report *report)
{
    static const char *const known[] = {CONFIG_NEW_SHAPES, NULL};
    if (!model->on_new_shape)
        return STATUS_OK;
    if (!ends_with(model->path, ".onnx"))
        return report_set(report, section, "on_new_shape", model->on_new_shape,
                          "nothing: engines are built from an .onnx");
    return is_word(model->on_new_shape, known)
               ? STATUS_OK
               : report_set(report, section, "on_new_shape", model->on_new_shape,
                            "wait, refuse or fallback");
}

/* The builder looks closer. */
static enum status check_sizes(const struct config_model *model, const char *section,
                               struct report *report)
{
#define SIZE_KEY(number, key, option) #key,
    static const char *const keys[] = {CONFIG_SIZES(SIZE_KEY)};
#undef SIZE_KEY
    for (uint32_t k = 0; k < CONFIG_SIZE_COUNT_; k++)
        for (uint32_t i = 0; i < model->sizes[k].count; i++) {
            char key[40];
            const char *text = model->sizes[k].items[i], *at = strrchr(text, '=');
            bool name = k == CONFIG_KEEP || k == CONFIG_RAGGED;
            snprintf(key, sizeof(key), "%s[%" PRIu32 "]", keys[k], i);
            if (!ends_with(model->path, ".onnx"))
                return report_set(report, section, key, text, "nothing: that is for an .onnx");
            if (name ? !*text || text[0] == '-' : !at || at == text || !at[1] || text[0] == '-')
                return report_set(report, section, key, text, name ? "a NAME" : "NAME=WHAT");
        }
    return STATUS_OK;
}

/* A pipeline is described by its file alone, and its steps have settings of their own. */
static enum status check_pipeline(const struct config_model *model, const char *section,
                                  struct report *report)
{
    const struct {
        const char *key;
        bool given;
    } keys[] = {
        {"max_batch", model->max_batch > 0},       {"max_delay_us", model->max_delay_us >= 0},
        {"preferred", model->preferred_count > 0}, {"queue_limit", model->queue_limit > 0},
        {"instances", model->instances > 0},       {"batches", model->batches_count > 0},
    };
    if (!ends_with(model->path, ".pbtxt"))
        return STATUS_OK;
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        if (keys[i].given)
            return report_set(report, section, keys[i].key, NULL,
                              "nothing: a pipeline's settings are in its .pbtxt");
    return STATUS_OK;
}

static enum status check_repository(const struct config *config, struct report *report)
{
    static const char *const modes[] = {"reload", "poll", "explicit", NULL};
    if (!is_word(config->repository_mode, modes))
        return report_set(report, "", "repository_mode", config->repository_mode,
                          "reload, poll or explicit");
    for (uint32_t i = 0; i < config->repository_load_count; i++) {
        char key[40];
        const char *name = config->repository_load[i];
        snprintf(key, sizeof(key), "repository_load[%" PRIu32 "]", i);
        if (!config_name_ok(name) && strcmp(name, "*") != 0)
            return report_set(report, "", key, name, "a model's name, or *");
    }
    return STATUS_OK;
}

static enum status check_model(const struct config *config, uint32_t index, struct report *report)
{
    const struct config_model *model = &config->models[index];
    char section[32], got[16];
    snprintf(section, sizeof(section), "models[%" PRIu32 "].", index);

    TRY(check_model_text(model, section, report));
    TRY(fields_check(config_model_fields, section, model, report));
    TRY(check_rising(model->preferred, model->preferred_count, section, "preferred", report));
    TRY(check_rising(model->batches, model->batches_count, section, "batches", report));
    TRY(check_inputs(model, section, report));
    TRY(check_precision(model, section, report));
    TRY(check_build_limits(model, section, report));
    TRY(check_new_shape(model, section, report));
    TRY(check_pipeline(model, section, report));
    TRY(check_sizes(model, section, report));

    if (model->preferred_count > CONFIG_PREFERRED_MAX) {
        snprintf(got, sizeof(got), "%" PRIu32, model->preferred_count);
        return report_set(report, section, "preferred", got, "at most %d sizes",
                          CONFIG_PREFERRED_MAX);
    }
    if (model->preferred_count > 0 && model->max_batch > 0 &&
        model->preferred[model->preferred_count - 1] > model->max_batch) {
        snprintf(got, sizeof(got), "%" PRIu32, model->preferred[model->preferred_count - 1]);
        return report_set(report, section, "preferred", got, "sizes up to max_batch, %" PRIu32,
                          model->max_batch);
    }
    for (uint32_t i = 0; i < index; i++)
        if (strcmp(config->models[i].name, model->name) == 0 &&
            strcmp(config->models[i].version, model->version) == 0)
            return report_set(report, section, "name", model->name,
                              "each name and version once (models[%" PRIu32 "] has them too)", i);
    return STATUS_OK;
}

/* A frame must fit into the bytes that one connection may have in flight, and those into the bytes
 * that all may have. */
static enum status check_limits(const struct config_limits *limits, struct report *report)
{
    char got[24];
    TRY(fields_check(config_limit_fields, "limits.", limits, report));
    if (limits->connection_inflight_bytes < limits->frame_bytes) {
        snprintf(got, sizeof(got), "%" PRIu64, limits->connection_inflight_bytes);
        return report_set(report, "limits.", "connection_inflight_bytes", got,
                          "at least limits.frame_bytes, %" PRIu64, limits->frame_bytes);
    }
    if (limits->inflight_bytes < limits->connection_inflight_bytes) {
        snprintf(got, sizeof(got), "%" PRIu64, limits->inflight_bytes);
        return report_set(report, "limits.", "inflight_bytes", got,
                          "at least limits.connection_inflight_bytes, %" PRIu64,
                          limits->connection_inflight_bytes);
    }
    return STATUS_OK;
}

static enum status check_traces(const struct config *config, struct report *report)
{
    static const char scheme[] = "http://";
    const char *url = config->trace_collector;
    struct resolved resolved;
    struct resolve_name name;
    char host[RESOLVE_HOST_MAX + RESOLVE_PORT_MAX];
    size_t skip = sizeof(scheme) - 1, len;
    if (!url)
        return STATUS_OK;
    len = strncmp(url, scheme, skip) ? sizeof(host) : strcspn(url + skip, "/");
    if (len < sizeof(host)) {
        snprintf(host, sizeof(host), "%.*s", (int)len, url + skip);
        if (host[0] && strncmp(host, "unix:", 5) && !strpbrk(url, " \r\n\t") &&
            !resolve_text(host, &resolved, &name, NULL))
            return STATUS_OK;
    }
    return report_set(report, "", "trace_collector", url,
                      "http://HOST:PORT or http://HOST:PORT/PATH");
}

/* A prefix of names in /dev/shm. */
static enum status check_shared_memory(const struct config *config, struct report *report)
{
    const char *prefix = config->shared_memory;
    if (!prefix)
        return STATUS_OK;
    const char *name = prefix + strspn(prefix, "/");
    if (*name && *name != '.' && !strchr(name, '/'))
        return STATUS_OK;
    return report_set(report, "", "shared_memory", prefix,
                      "what names of regions begin with, such as inferd-");
}

enum status config_check_report(const struct config *config, struct report *report)
{
    TRY(fields_check(config_server_fields, "", config, report));
    if (!config->device || !is_device(config->device))
        return report_set(report, "", "device", config->device, "cpu, cuda, cuda:N or fault");
    if (!config->readiness ||
        (strcmp(config->readiness, "strict") != 0 && strcmp(config->readiness, "any") != 0))
        return report_set(report, "", "readiness", config->readiness, "strict or any");
    TRY(check_repository(config, report));
    TRY(check_log(config, report));
    TRY(check_traces(config, report));
    TRY(check_shared_memory(config, report));
    TRY(check_listen(&config->listen, report));
    for (uint32_t i = 0; i < config->models_count; i++)
        TRY(check_model(config, i, report));
    TRY(config_identities_check(config, report));
    return check_limits(&config->limits, report);
}

/* Not while the file is read: an option may still name another device. */
static enum status check_shared_device(const struct config *config, struct report *report)
{
    if (!config->cuda_shared_memory || strncmp(config->device, "cuda", 4) == 0)
        return STATUS_OK;
    return report_set(report, "", "cuda_shared_memory", "true", "false, as the device is %s",
                      config->device);
}

/* The addresses of a host's name are checked later, when the name has been looked up. */
static enum status check_reach(const struct config *config, enum config_door door, const char *text,
                               struct error *err)
{
    struct resolved addresses;
    struct resolve_name name;
    TRY(resolve_text(text, &addresses, &name, err));
    for (uint32_t k = 0; k < addresses.n; k++)
        TRY(config_listen_check(config, door, &addresses.items[k], err));
    return STATUS_OK;
}

enum status config_check(const struct config *config, struct error *err)
{
    struct report report = {.err = err};
    TRY(config_check_report(config, &report));
    TRY(check_shared_device(config, &report));
    for (uint32_t door = 0; door < CONFIG_DOOR_COUNT_; door++)
        for (uint32_t i = 0; i < config->listen.doors[door].count; i++)
            TRY(check_reach(config, door, config->listen.doors[door].items[i], err));
    return STATUS_OK;
}

static enum status append_model(struct config *config, char *name, char *path, char *version)
{
    struct config_model *grown =
        reallocarray(config->models, config->models_count + 1, sizeof(*grown));
    if (!grown)
        return STATUS_RESOURCE_EXHAUSTED;
    config->models = grown;
    grown[config->models_count++] =
        (struct config_model){.name = name, .path = path, .version = version, .max_delay_us = -1};
    return STATUS_OK;
}

static enum status add_model(struct config *config, const char *name, size_t name_len,
                             const char *path, struct error *err)
{
    char *own_name = strndup(name, name_len);
    char *own_path = strdup(path);
    char *version = strdup("1");
    if (!own_name || !own_path || !version ||
        append_model(config, own_name, own_path, version) != STATUS_OK) {
        free(own_name);
        free(own_path);
        free(version);
        return error_no_memory(err, "the configuration");
    }
    return STATUS_OK;
}

enum status config_model_argument(struct config *config, const char *argument, struct error *err)
{
    const char *equals = strchr(argument, '=');
    if (equals) {
        char name[CONFIG_NAME_MAX + 2];
        size_t len = (size_t)(equals - argument);
        snprintf(name, sizeof(name), "%.*s", (int)MIN(len, sizeof(name) - 1), argument);
        if (!config_name_ok(name))
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "model \"%s\": expected NAME=FILE with a name of 1 to %d of "
                             "A-Z a-z 0-9 . _ - and no leading dot",
                             argument, CONFIG_NAME_MAX);
        if (!is_model_file(equals + 1))
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "model \"%s\": expected NAME=FILE with a file .onnx, .plan or .pbtxt",
                             argument);
        return add_model(config, argument, len, equals + 1, err);
    }
    if (!*argument || is_model_file(argument))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "model \"%s\": expected NAME=FILE.onnx, NAME=FILE.plan, NAME=FILE.pbtxt "
                         "or a repository folder",
                         argument);
    if (config->repository && strcmp(config->repository, argument) != 0)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "repository \"%s\": expected one repository, and \"%s\" is set already",
                         argument, config->repository);
    char *copy = strdup(argument);
    if (!copy)
        return error_no_memory(err, "the configuration");
    free(config->repository);
    config->repository = copy;
    return STATUS_OK;
}
