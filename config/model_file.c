/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From config.pbtxt to what the daemon does, see model_file.h. Each function here turns one message
 * into plain data, and says what of it has no effect.
 */
#include "config/model_file.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/model_file_fields.h"
#include "config/schema.h"

enum { ARENA_BYTES = 16 << 20 };

struct making {
    struct binding binding;
    struct arena *arena;
    struct model_file *file;
    const struct written_model *written;
    const struct log_sink *log;
    struct error *err;
};

PRINTF(2, 3) static void note(const struct making *m, const char *fmt, ...)
{
    char line[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    log_write(m->log, LOG_WARNING, "%s: %s", m->binding.name, line);
}

PRINTF(2, 3) static enum status refuse(const struct making *m, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    error_setv(m->err, STATUS_INVALID_ARGUMENT, fmt, args);
    va_end(args);
    error_prefix(m->err, "%s", m->binding.name);
    return STATUS_INVALID_ARGUMENT;
}

static enum status array_make(const struct making *m, size_t n, size_t size, void **out)
{
    *out = arena_array(m->arena, n, size);
    return *out ? STATUS_OK : error_no_memory(m->err, "%s", m->binding.name);
}

/* --- what it is --- */

static bool is_one_of(const char *text, const char *const *list)
{
    for (; *list; list++)
        if (strcmp(text, *list) == 0)
            return true;
    return false;
}

static enum status kind_check(const struct making *m, const char *folder)
{
    static const char *const platforms[] = {
        "onnxruntime_onnx", "tensorrt_plan", "inferd", "inferd_plan", "ensemble", "", NULL};
    static const char *const backends[] = {"onnxruntime", "tensorrt", "inferd", "", NULL};
    const struct written_model *w = m->written;
    if (w->name && *w->name && strcmp(w->name, folder) != 0)
        return refuse(m, "name: expected \"%s\", as the folder is called, got \"%s\"", folder,
                      w->name);
    if (w->platform && !is_one_of(w->platform, platforms))
        return refuse(m,
                      "platform: expected onnxruntime_onnx, tensorrt_plan or ensemble, got \"%s\"",
                      w->platform);
    if (w->backend && !is_one_of(w->backend, backends))
        return refuse(m, "backend: expected onnxruntime, tensorrt or inferd, got \"%s\"",
                      w->backend);
    if (w->transactions.decoupled)
        return refuse(m, "decoupled: expected false: each request has one answer");
    if (w->cache.enable)
        note(m, "response_cache has no effect: every request is computed");
    return STATUS_OK;
}

static enum status file_name_make(const struct making *m)
{
    const char *name = m->written->default_model_filename;
    size_t len = name ? strlen(name) : 0;
    if (!len)
        return STATUS_OK;
    bool ends = len > 5 && (!strcmp(name + len - 5, ".onnx") || !strcmp(name + len - 5, ".plan"));
    if (!config_name_ok(name) || !ends)
        return refuse(m,
                      "default_model_filename: expected the plain name of a file .onnx or "
                      ".plan, got \"%s\"",
                      name);
    m->file->file = name;
    return STATUS_OK;
}

static enum status policy_make(const struct making *m)
{
    const struct written_policy *p = &m->written->version_policy;
    if (p->has_all + p->has_latest + p->has_specific > 1)
        return refuse(m, "version_policy: expected one of latest, all and specific");
    m->file->policy = p->has_all ? POLICY_ALL : p->has_specific ? POLICY_SPECIFIC : POLICY_LATEST;
    m->file->latest = p->latest.num_versions ? (uint32_t)p->latest.num_versions : 1;
    m->file->specific = p->specific.versions.items;
    m->file->n_specific = p->specific.versions.n;
    if (p->has_specific && !m->file->n_specific)
        return refuse(m, "version_policy: specific: expected versions");
    return STATUS_OK;
}

/* --- tensors --- */

static enum status shape_make(const struct making *m, const struct bind_list *dims,
                              const char *name, struct shape *out)
{
    const int64_t *list = dims->items;
    out->rank = dims->n;
    for (uint32_t i = 0; i < dims->n; i++) {
        if (list[i] == 0)
            return refuse(m, "tensor '%s': expected dims of -1 or at least 1, got 0", name);
        out->dim[i] = list[i];
    }
    return STATUS_OK;
}

static enum status tensor_make(const struct making *m, const struct written_tensor *from,
                               struct model_file_tensor *out)
{
    if (!from->name || !*from->name)
        return refuse(m, "an input or output: expected a name");
    *out = (struct model_file_tensor){.name = from->name,
                                      .dtype = written_dtype(from->data_type),
                                      .dims_given = from->dims.n > 0};
    if (from->data_type && !out->dtype)
        return refuse(m, "tensor '%s': expected a type of numbers, got TYPE_STRING", from->name);
    if (from->is_shape_tensor || from->allow_ragged_batch)
        return refuse(m, "tensor '%s': %s is not supported", from->name,
                      from->is_shape_tensor ? "is_shape_tensor" : "allow_ragged_batch");
    if (from->optional)
        note(m, "tensor '%s': 'optional' has no effect: requests must carry it", from->name);
    if (from->is_non_linear_format_io)
        note(m, "tensor '%s': 'is_non_linear_format_io' has no effect: tensors are dense",
             from->name);
    return shape_make(m, &from->dims, from->name, &out->shape);
}

static enum status tensors_make(const struct making *m, const struct bind_list *from,
                                const struct model_file_tensor **out, uint32_t *n)
{
    const struct written_tensor *written = from->items;
    void *made;
    TRY(array_make(m, from->n, sizeof(struct model_file_tensor), &made));
    struct model_file_tensor *list = made;
    for (uint32_t i = 0; i < from->n; i++) {
        TRY(tensor_make(m, &written[i], &list[i]));
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(list[k].name, list[i].name) == 0)
                return refuse(m, "tensor '%s': expected once, got twice", list[i].name);
    }
    *out = list;
    *n = from->n;
    return STATUS_OK;
}

/* --- batching --- */

/* Preferred sizes in rising order, each once, as many as there are places. */
static enum status preferred_make(const struct making *m, const struct bind_list *from)
{
    struct config_model *c = &m->file->config;
    const int64_t *sizes = from->items;
    void *made;
    TRY(array_make(m, CONFIG_PREFERRED_MAX, sizeof(uint32_t), &made));
    c->preferred = made;
    for (int64_t last = 0; c->preferred_count < CONFIG_PREFERRED_MAX;) {
        int64_t next = INT64_MAX;
        for (uint32_t i = 0; i < from->n; i++)
            if (sizes[i] > last && sizes[i] < next)
                next = sizes[i];
        if (next == INT64_MAX)
            return STATUS_OK;
        if (c->max_batch && next > c->max_batch)
            return refuse(m,
                          "preferred_batch_size: expected at most max_batch_size, %" PRIu32
                          ", got %" PRId64,
                          c->max_batch, next);
        c->preferred[c->preferred_count++] = (uint32_t)next;
        last = next;
    }
    note(m, "preferred_batch_size: only the first %d sizes have an effect", CONFIG_PREFERRED_MAX);
    return STATUS_OK;
}

static void queue_policy_make(const struct making *m, const struct written_queue_policy *p)
{
    struct config_model *c = &m->file->config;
    c->queue_limit = (uint32_t)p->max_queue_size;
    c->timeout_us = (uint64_t)p->default_timeout_microseconds;
    if (p->timeout_action)
        note(m, "timeout_action: DELAY has no effect: requests that are too late are refused");
    if (c->timeout_us && !p->allow_timeout_override)
        note(m, "allow_timeout_override: false has no effect on shorter timeouts: the earlier "
                "deadline of the two counts");
}

static enum status batching_make(const struct making *m)
{
    const struct written_batching *b = &m->written->batching;
    struct config_model *c = &m->file->config;
    c->max_delay_us = b->max_queue_delay_microseconds; /* 0 where there is no such section */
    if (!m->written->has_batching)
        return STATUS_OK;
    if (b->default_priority_level > b->priority_levels ||
        (b->priority_levels && !b->default_priority_level))
        return refuse(
            m, "default_priority_level: expected 1 to priority_levels, %" PRId64 ", got %" PRId64,
            b->priority_levels, b->default_priority_level);
    c->priority_levels = (uint32_t)b->priority_levels;
    c->default_priority = (uint32_t)b->default_priority_level;
    if (b->priority_levels > MODEL_FILE_PRIORITIES)
        note(m, "priority_levels: there are %d; the model's %" PRId64 " share them",
             MODEL_FILE_PRIORITIES, b->priority_levels);
    if (b->preserve_ordering)
        note(m, "preserve_ordering has no effect: answers come when they are ready, each with "
                "its request's id");
    if (b->priority_queue_policy.n)
        note(m, "priority_queue_policy has no effect: default_queue_policy holds for all "
                "priorities");
    queue_policy_make(m, &b->policy);
    return preferred_make(m, &b->preferred_batch_size);
}

/* --- instances --- */

/* The sum over the groups: so many batches of the model run at a time. */
static enum status groups_make(const struct making *m)
{
    const struct written_group *groups = m->written->instance_group.items;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < m->written->instance_group.n; i++) {
        const struct written_group *g = &groups[i];
        if (g->passive)
            return refuse(m, "instance_group: 'passive' is not supported");
        if (g->gpus.n)
            note(m, "instance_group: 'gpus' has no effect: `device` of inferd.yaml says which");
        sum += MAX((uint32_t)g->count, 1u);
    }
    m->file->config.instances = sum;
    return STATUS_OK;
}

/* --- parameters --- */

/* "1,8,32" */
static enum status profiles_take(const struct making *m, const char *key UNUSED, const char *text)
{
    struct config_model *c = &m->file->config;
    void *made;
    TRY(array_make(m, CONFIG_BATCHES_MAX, sizeof(uint32_t), &made));
    c->batches = made;
    for (const char *at = text; c->batches_count < CONFIG_BATCHES_MAX; at++) {
        char *end;
        unsigned long n = *at >= '0' && *at <= '9' ? strtoul(at, &end, 10) : 0;
        uint32_t last = c->batches_count ? c->batches[c->batches_count - 1] : 0;
        if (n <= last || n > CONFIG_BATCH_MOST)
            break;
        c->batches[c->batches_count++] = (uint32_t)n;
        at = end;
        if (!*at)
            return STATUS_OK;
        if (*at != ',')
            break;
    }
    return refuse(m,
                  "parameter 'profiles': expected rising batch sizes such as \"1,8,32\", at "
                  "most %d, got \"%s\"",
                  CONFIG_BATCHES_MAX, text);
}

/* A plan for each power of two up to max_batch_size, which is a size too. */
static enum status profiles_default(const struct making *m)
{
    struct config_model *c = &m->file->config;
    void *made;
    if (c->batches_count || !c->max_batch)
        return STATUS_OK;
    TRY(array_make(m, CONFIG_BATCHES_MAX, sizeof(uint32_t), &made));
    c->batches = made;
    for (uint32_t n = 1; n < c->max_batch; n *= 2)
        c->batches[c->batches_count++] = n;
    c->batches[c->batches_count++] = c->max_batch;
    return STATUS_OK;
}

static enum status precision_take(const struct making *m, const char *key UNUSED, const char *text)
{
    static const char *const known[] = {CONFIG_PRECISIONS, NULL};
    if (!is_one_of(text, known))
        return refuse(m,
                      "parameter 'precision': expected fp32, tf32, fp16 or bf16 (8 bits take a "
                      "plan of inferctl build --ranges), got "
                      "\"%s\"",
                      text);
    m->file->config.precision = (char *)(uintptr_t)text;
    return STATUS_OK;
}

static enum status new_shape_take(const struct making *m, const char *key UNUSED, const char *text)
{
    static const char *const known[] = {CONFIG_NEW_SHAPES, NULL};
    if (!is_one_of(text, known))
        return refuse(m, "parameter 'on_new_shape': expected wait, refuse or fallback, got \"%s\"",
                      text);
    m->file->config.on_new_shape = (char *)(uintptr_t)text;
    return STATUS_OK;
}

/* Calibrated plans are made by hand: to find ranges takes data, and to judge them takes a look. */
static enum status ranges_take(const struct making *m, const char *key, const char *text UNUSED)
{
    return error_set(m->err, STATUS_UNIMPLEMENTED,
                     "%s: parameter '%s' is not supported: make the plan with inferctl build "
                     "--precision int8 --ranges FILE, and serve that",
                     m->binding.name, key);
}

/* The entry of the input that a key such as "input_type:x" names; NULL: there is no room. */
static struct config_input *input_of(const struct making *m, const char *key)
{
    struct config_model *c = &m->file->config;
    const char *name = strchr(key, ':') + 1;
    for (uint32_t i = 0; i < c->inputs_count; i++)
        if (strcmp(c->inputs[i].name, name) == 0)
            return &c->inputs[i];
    if (c->inputs_count == CONFIG_INPUTS_MAX || !*name || strchr(name, '='))
        return NULL;
    if (!c->inputs)
        c->inputs = arena_array(m->arena, CONFIG_INPUTS_MAX, sizeof(*c->inputs));
    if (!c->inputs)
        return NULL;
    struct config_input *in = &c->inputs[c->inputs_count++];
    in->name = (char *)(uintptr_t)name;
    return in;
}

static enum status type_take(const struct making *m, const char *key, const char *text)
{
    struct config_input *in = input_of(m, key);
    if (!in || (strcmp(text, "uint8") != 0 && strcmp(text, "fp16") != 0))
        return refuse(m, "parameter '%s': expected uint8 or fp16, got \"%s\"", key, text);
    in->type = (char *)(uintptr_t)text;
    return STATUS_OK;
}

/* "0.017,0.018": one for all or one a channel. */
static bool numbers_parse(const struct making *m, const char *text, float **out, uint32_t *n)
{
    uint32_t most = 1;
    for (const char *at = text; (at = strchr(at, ',')); at++)
        most++;
    *out = most <= CONFIG_NUMBERS_MAX ? arena_array(m->arena, most, sizeof(**out)) : NULL;
    for (*n = 0; *out && *n < most; text++) {
        char *end;
        if (strspn(text, "0123456789+-.eE") == 0)
            return false;
        (*out)[(*n)++] = strtof(text, &end);
        text = end;
        if (!*text)
            return *n == most;
        if (*text != ',')
            return false;
    }
    return false;
}

static enum status numbers_take(const struct making *m, const char *key, const char *text)
{
    struct config_input *in = input_of(m, key);
    float *list;
    uint32_t n;
    if (!in || !numbers_parse(m, text, &list, &n))
        return refuse(m, "parameter '%s': expected numbers such as \"0.5,1\", got \"%s\"", key,
                      text);
    bool scale = strncmp(key, "input_scale", strlen("input_scale")) == 0;
    *(scale ? &in->scale : &in->bias) = list;
    *(scale ? &in->scale_count : &in->bias_count) = n;
    return STATUS_OK;
}

/* "NAME=TEXT", or the name alone. */
static enum status size_add(const struct making *m, enum config_size kind, const char *key,
                            const char *name, const char *text)
{
    struct config_texts *list = &m->file->config.sizes[kind];
    if (list->count == CONFIG_SIZES_MAX)
        return refuse(m, "parameter '%s': expected at most %d of its kind", key, CONFIG_SIZES_MAX);
    void *made = list->items;
    if (!made)
        TRY(array_make(m, CONFIG_SIZES_MAX, sizeof(char *), &made));
    list->items = made;
    list->items[list->count] =
        arena_printf(m->arena, "%s%s%s", name, text ? "=" : "", text ? text : "");
    if (!list->items[list->count])
        return error_no_memory(m->err, "%s", m->binding.name);
    list->count++;
    return STATUS_OK;
}

/* "shape:ids" with "*x1..512" is the builder's --shape ids=*x1..512. */
static enum status size_take(const struct making *m, const char *key, const char *text)
{
    static const char *const known[CONFIG_SIZE_COUNT_] = {[CONFIG_DIMS] = "dim",
                                                          [CONFIG_SHAPES] = "shape",
                                                          [CONFIG_PROFILES] = "profiles",
                                                          [CONFIG_VALUES] = "value"};
    const char *name = strchr(key, ':') + 1;
    enum config_size kind = CONFIG_DIMS;
    for (uint32_t k = 0; k < CONFIG_SIZE_COUNT_; k++)
        if (known[k] && strlen(known[k]) == (size_t)(name - 1 - key) &&
            strncmp(known[k], key, strlen(known[k])) == 0)
            kind = (enum config_size)k;
    if (!*name || *name == '-' || !*text || strspn(text, "0123456789.,x*+-eE") != strlen(text))
        return refuse(m, "parameter '%s': expected sizes such as \"1..8x1..512\", got \"%s\"", key,
                      text);
    return size_add(m, kind, key, name, text);
}

static enum status output_take(const struct making *m, const char *key, const char *text)
{
    static const char *const known[] = {"fp16", "uint8", "int8", NULL};
    const char *name = strchr(key, ':') + 1;
    if (!is_one_of(text, known) || !*name || *name == '-')
        return refuse(m, "parameter '%s': expected fp16, uint8 or int8, got \"%s\"", key, text);
    return size_add(m, CONFIG_OUTPUT_TYPES, key, name, text);
}

/* A number that inferd.yaml has under the same key. */
static enum status number_take(const struct making *m, const char *key, const char *text)
{
    struct report report = {.err = m->err};
    const struct field *field = config_model_fields;
    while (strcmp(field->key, key) != 0)
        field++;
    assert(field->kind != FIELD_TEXT); /* its copy would be nobody's */
    enum status status = field_read(field, "", text, &m->file->config, &report);
    if (status)
        error_prefix(m->err, "%s: parameter", m->binding.name);
    return status;
}

static enum status pin_take(const struct making *m, const char *key, const char *text)
{
    const char *name = strchr(key, ':') + 1;
    if (!*name || *name == '-' || !*text)
        return refuse(m, "parameter '%s': expected a tactic or a precision, got \"%s\"", key, text);
    return size_add(m, CONFIG_PIN, key, name, text);
}

/* What is a list of names: a name that is true is in it. */
static enum status name_take(const struct making *m, const char *key, const char *text)
{
    enum config_size kind = strncmp(key, "keep", strlen("keep")) ? CONFIG_RAGGED : CONFIG_KEEP;
    const char *name = strchr(key, ':') + 1;
    if (!*name || *name == '-' || strcmp(text, "true") != 0)
        return refuse(m, "parameter '%s': expected true, got \"%s\"", key, text);
    return size_add(m, kind, key, name, NULL);
}

static const struct {
    const char *name;
    bool of_input; /* "NAME:INPUT", or the name of a dimension or a layer */
    enum status (*take)(const struct making *m, const char *key, const char *text);
} parameters[] = {
    {"profiles", false, profiles_take},
    {"precision", false, precision_take},
    {"on_new_shape", false, new_shape_take},
    {"input_type", true, type_take},
    {"input_scale", true, numbers_take},
    {"input_bias", true, numbers_take},
    {"ranges", false, ranges_take},
    {"dim", true, size_take},
    {"shape", true, size_take},
    {"profiles", true, size_take},
    {"value", true, size_take},
    {"output_type", true, output_take},
    {"max_bytes", false, number_take},
    {"memory_percent", false, number_take},
    {"workspace", false, number_take},
    {"pin", true, pin_take},
    {"keep", true, name_take},
    {"ragged", true, name_take},
};

static enum status parameter_make(const struct making *m, const struct written_parameter *p)
{
    const char *key = p->key ? p->key : "", *text = p->value.string_value;
    size_t len = strcspn(key, ":");
    for (size_t i = 0; i < ARRAY_LEN(parameters); i++)
        if (strlen(parameters[i].name) == len && !strncmp(key, parameters[i].name, len) &&
            parameters[i].of_input == (key[len] == ':'))
            return text ? parameters[i].take(m, key, text)
                        : refuse(m, "parameter '%s': expected a string_value", key);
    note(m, "unknown parameter '%s': it has no effect", key);
    return STATUS_OK;
}

static enum status parameters_make(const struct making *m)
{
    const struct written_parameter *list = m->written->parameters.items;
    for (uint32_t i = 0; i < m->written->parameters.n; i++) {
        for (uint32_t k = 0; k < i; k++)
            if (list[i].key && list[k].key && strcmp(list[i].key, list[k].key) == 0)
                return refuse(m, "parameter '%s': expected once, got twice", list[i].key);
        TRY(parameter_make(m, &list[i]));
    }
    return STATUS_OK;
}

/* --- warm-up --- */

static enum status warm_input_make(const struct making *m, const struct written_warm_input *from,
                                   struct model_file_warm_input *out)
{
    if (!from->key || !from->has_value)
        return refuse(m, "model_warmup: an input: expected a key and a value");
    const char *file = from->value.input_data_file;
    *out = (struct model_file_warm_input){.name = from->key,
                                          .dtype = written_dtype(from->value.data_type),
                                          .file = file,
                                          .data = file                      ? WARM_FILE
                                                  : from->value.random_data ? WARM_RANDOM
                                                                            : WARM_ZERO};
    if (from->value.zero_data + from->value.random_data + (file != NULL) != 1)
        return refuse(m,
                      "model_warmup: input '%s': expected one of zero_data, random_data and "
                      "input_data_file",
                      from->key);
    if (file && !config_name_ok(file))
        return refuse(m,
                      "model_warmup: input '%s': expected the plain name of a file in warmup/, "
                      "got \"%s\"",
                      from->key, file);
    return shape_make(m, &from->value.dims, from->key, &out->shape);
}

static enum status warmup_make(const struct making *m, const struct written_warmup *from,
                               struct model_file_warmup *out)
{
    const struct written_warm_input *inputs = from->inputs.items;
    void *made;
    TRY(array_make(m, from->inputs.n, sizeof(struct model_file_warm_input), &made));
    struct model_file_warm_input *list = made;
    for (uint32_t i = 0; i < from->inputs.n; i++)
        TRY(warm_input_make(m, &inputs[i], &list[i]));
    *out = (struct model_file_warmup){.name = from->name ? from->name : "",
                                      .batch = MAX((uint32_t)from->batch_size, 1u),
                                      .count = MAX((uint32_t)from->count, 1u),
                                      .n_inputs = from->inputs.n,
                                      .inputs = list};
    return STATUS_OK;
}

static enum status warmups_make(const struct making *m)
{
    const struct written_warmup *written = m->written->model_warmup.items;
    void *made;
    TRY(array_make(m, m->written->model_warmup.n, sizeof(struct model_file_warmup), &made));
    struct model_file_warmup *list = made;
    for (uint32_t i = 0; i < m->written->model_warmup.n; i++)
        TRY(warmup_make(m, &written[i], &list[i]));
    m->file->warmups = list;
    m->file->n_warmups = m->written->model_warmup.n;
    return STATUS_OK;
}

/* --- a pipeline --- */

/* A map's keys come once each. */
static enum status links_make(const struct making *m, const struct bind_list *from,
                              const char *what, const char *model,
                              const struct model_file_link **out, uint32_t *n)
{
    const struct written_pair *pairs = from->items;
    void *made;
    TRY(array_make(m, from->n, sizeof(struct model_file_link), &made));
    struct model_file_link *list = made;
    for (uint32_t i = 0; i < from->n; i++) {
        if (!pairs[i].key || !*pairs[i].key || !pairs[i].value || !*pairs[i].value)
            return refuse(m, "%s of '%s': expected a key and a value", what, model);
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(list[k].inner, pairs[i].key) == 0)
                return refuse(m, "%s of '%s': expected '%s' once, got it twice", what, model,
                              pairs[i].key);
        list[i] = (struct model_file_link){pairs[i].key, pairs[i].value};
    }
    *out = list;
    *n = from->n;
    return STATUS_OK;
}

static enum status step_make(const struct making *m, const struct written_step *from,
                             struct model_file_step *out)
{
    if (!from->model_name || !config_name_ok(from->model_name))
        return refuse(m, "ensemble_scheduling: a step: expected the name of a model, got \"%.80s\"",
                      from->model_name ? from->model_name : "");
    *out = (struct model_file_step){.model = from->model_name};
    if (from->model_version > 0) {
        out->version = arena_printf(m->arena, "%" PRId64, from->model_version);
        if (!out->version)
            return error_no_memory(m->err, "%s", m->binding.name);
    }
    TRY(links_make(m, &from->input_map, "input_map", out->model, &out->inputs, &out->n_inputs));
    return links_make(m, &from->output_map, "output_map", out->model, &out->outputs,
                      &out->n_outputs);
}

static enum status pipeline_make(const struct making *m)
{
    const struct written_model *w = m->written;
    const struct written_step *written = w->pipeline.step.items;
    bool named = w->platform && strcmp(w->platform, "ensemble") == 0;
    void *made;
    if (!named && !w->has_pipeline)
        return STATUS_OK;
    if (!named && w->platform && *w->platform)
        return refuse(m, "ensemble_scheduling: expected platform \"ensemble\", got \"%s\"",
                      w->platform);
    if (w->backend && *w->backend)
        return refuse(m, "backend: expected none: a pipeline is run by its steps' models");
    if (!w->pipeline.step.n || !w->input.n || !w->output.n)
        return refuse(m, "an ensemble: expected %s, got none",
                      !w->pipeline.step.n ? "ensemble_scheduling with a step"
                      : !w->input.n       ? "an input"
                                          : "an output");
    TRY(array_make(m, w->pipeline.step.n, sizeof(struct model_file_step), &made));
    struct model_file_step *steps = made;
    for (uint32_t i = 0; i < w->pipeline.step.n; i++)
        TRY(step_make(m, &written[i], &steps[i]));
    m->file->steps = steps;
    m->file->n_steps = w->pipeline.step.n;
    if (w->has_batching || w->instance_group.n || w->model_warmup.n)
        note(m, "of an ensemble's dynamic_batching only priorities and the default timeout count, "
                "and instance_group and model_warmup have no effect: its steps' models have "
                "their own");
    return STATUS_OK;
}

/* --- the whole --- */

static enum status file_make(const struct making *m, const char *folder)
{
    struct model_file *file = m->file;
    const struct written_model *w = m->written;
    file->batched = w->max_batch_size > 0;
    file->config.max_batch = (uint32_t)w->max_batch_size;
    TRY(kind_check(m, folder));
    TRY(pipeline_make(m));
    TRY(file_name_make(m));
    TRY(policy_make(m));
    TRY(tensors_make(m, &w->input, &file->inputs, &file->n_inputs));
    TRY(tensors_make(m, &w->output, &file->outputs, &file->n_outputs));
    TRY(batching_make(m));
    TRY(groups_make(m));
    TRY(parameters_make(m));
    TRY(profiles_default(m));
    return warmups_make(m);
}

/* A file's text. */
struct model_file_text {
    const void *data;
    size_t size;
    bool quoted;
};

static enum status parse(const char *name, const struct model_file_text *text, const char *folder,
                         const struct log_sink *log, struct model_file **out, struct error *err)
{
    const void *data = text->data;
    size_t size = text->size;
    CLEANUP(arena_cleanup) struct arena *arena = arena_new(ARENA_BYTES);
    struct model_file *file = arena ? arena_alloc(arena, sizeof(*file)) : NULL;
    struct written_model *written = file ? arena_alloc(arena, sizeof(*written)) : NULL;
    if (!written)
        return error_no_memory(err, "%s", name);
    if (size > MODEL_FILE_MAX)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: expected at most %d bytes, got %zu",
                         name, MODEL_FILE_MAX, size);
    const struct binding binding = {
        .name = name, .arena = arena, .log = log, .err = err, .quoted = text->quoted};
    const struct making making = {binding, arena, file, written, log, err};
    struct pbtxt_field *root;
    TRY(pbtxt_parse(name, data, size, arena, &root, err));
    TRY(bind_message(&binding, root, model_file_rows, written));
    TRY(file_make(&making, folder));
    atomic_init(&file->refs, 1);
    file->arena = STEAL(arena);
    *out = file;
    return STATUS_OK;
}

enum status model_file_parse(const char *name, const void *data, size_t size, const char *folder,
                             const struct log_sink *log, struct model_file **out, struct error *err)
{
    const struct model_file_text text = {data, size, false};
    return parse(name, &text, folder, log, out, err);
}

enum status model_file_parse_quoted(const char *name, const void *data, size_t size,
                                    const char *folder, const struct log_sink *log,
                                    struct model_file **out, struct error *err)
{
    const struct model_file_text text = {data, size, true};
    return parse(name, &text, folder, log, out, err);
}

struct model_file *model_file_ref(struct model_file *file)
{
    atomic_fetch_add_explicit(&file->refs, 1, memory_order_relaxed);
    return file;
}

void model_file_free(struct model_file *file)
{
    if (file && atomic_fetch_sub_explicit(&file->refs, 1, memory_order_acq_rel) == 1)
        arena_free(file->arena);
}

void model_file_cleanup(struct model_file **at)
{
    model_file_free(*at);
}
