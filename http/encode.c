/* SPDX-License-Identifier: Apache-2.0 */
/* Answers as JSON, see encode.h. */
#include "http/encode.h"

enum { TEXT_FIRST = 4 * 1024, TEXT_MOST = 32 << 20 };

/* --- parts --- */

/* Puts a comma before a member or an element, unless the object or array begins with it. The writer
 * has text before it. */
static void next(struct json_writer *w)
{
    if (!w->full && !strchr("{[:,", w->at[-1]))
        json_text(w, ",");
}

static void key(struct json_writer *w, const char *name)
{
    next(w);
    json_string(w, message_text_of(name));
    json_text(w, ":");
}

static void list(struct json_writer *w, const char *name)
{
    key(w, name);
    json_text(w, "[");
}

static void object(struct json_writer *w)
{
    next(w);
    json_text(w, "{");
}

static void string(struct json_writer *w, const char *name, const char *value)
{
    key(w, name);
    json_string(w, message_text_of(value));
}

static void number(struct json_writer *w, const char *name, uint64_t value)
{
    key(w, name);
    json_uint(w, value);
}

static void shape(struct json_writer *w, const struct shape *shape)
{
    json_text(w, "[");
    for (uint32_t i = 0; i < shape->rank; i++) {
        next(w);
        json_int(w, shape->dim[i]);
    }
    json_text(w, "]");
}

static void strings(struct json_writer *w, const char *name, const char *const *items, uint32_t n)
{
    list(w, name);
    for (uint32_t i = 0; i < n; i++) {
        next(w);
        json_string(w, message_text_of(items[i]));
    }
    json_text(w, "]");
}

/* --- metadata and configuration --- */

static void server_metadata(struct json_writer *w, const struct body_server_metadata *b)
{
    json_text(w, "{");
    string(w, "name", b->name);
    string(w, "version", b->version);
    strings(w, "extensions", b->extensions, b->n_extensions);
    json_text(w, "}");
}

static void tensors(struct json_writer *w, const char *name, const struct body_tensor *items,
                    uint32_t n)
{
    list(w, name);
    for (uint32_t i = 0; i < n; i++) {
        object(w);
        string(w, "name", items[i].name);
        string(w, "datatype", items[i].datatype);
        key(w, "shape");
        shape(w, &items[i].shape);
        json_text(w, "}");
    }
    json_text(w, "]");
}

static void model_metadata(struct json_writer *w, const struct body_model_metadata *b)
{
    json_text(w, "{");
    string(w, "name", b->name);
    strings(w, "versions", b->versions, b->n_versions);
    string(w, "platform", b->platform);
    tensors(w, "inputs", b->inputs, b->n_inputs);
    tensors(w, "outputs", b->outputs, b->n_outputs);
    json_text(w, "}");
}

static void config_tensors(struct json_writer *w, const char *name, const struct body_tensor *items,
                           uint32_t n, bool input)
{
    list(w, name);
    for (uint32_t i = 0; i < n; i++) {
        char type[32] = "TYPE_";
        strncat(type, items[i].datatype, sizeof(type) - 6);
        object(w);
        string(w, "name", items[i].name);
        string(w, "data_type", type);
        if (input)
            string(w, "format", "FORMAT_NONE");
        key(w, "dims");
        shape(w, &items[i].shape);
        json_text(w, input ? ",\"is_shape_tensor\":false,\"optional\":false}"
                           : ",\"label_filename\":\"\",\"is_shape_tensor\":false}");
    }
    json_text(w, "]");
}

static void dynamic_batching(struct json_writer *w, const struct body_model_config *b)
{
    key(w, "dynamic_batching");
    object(w);
    list(w, "preferred_batch_size");
    for (uint32_t i = 0; i < b->n_preferred; i++) {
        next(w);
        json_uint(w, b->preferred[i]);
    }
    json_text(w, "]");
    number(w, "max_queue_delay_microseconds", b->max_delay_us);
    number(w, "priority_levels", b->priority_levels);
    number(w, "default_priority_level", b->default_priority);
    json_text(w, "}");
}

static void links(struct json_writer *w, const char *name, const struct body_link *items,
                  uint32_t n)
{
    key(w, name);
    json_text(w, "{");
    for (uint32_t i = 0; i < n; i++) {
        string(w, items[i].inner, items[i].outer);
    }
    json_text(w, "}");
}

static void ensemble_scheduling(struct json_writer *w, const struct body_model_config *b)
{
    key(w, "ensemble_scheduling");
    object(w);
    list(w, "step");
    for (uint32_t i = 0; i < b->n_steps; i++) {
        const struct body_step *step = &b->steps[i];
        object(w);
        string(w, "model_name", step->model);
        key(w, "model_version");
        json_int(w, step->version);
        links(w, "input_map", step->inputs, step->n_inputs);
        links(w, "output_map", step->outputs, step->n_outputs);
        json_text(w, "}");
    }
    json_text(w, "]}");
}

static void model_config(struct json_writer *w, const struct body_model_config *b)
{
    bool gpu = strncmp(b->device, "cuda", 4) == 0;
    json_text(w, "{");
    string(w, "name", b->name);
    string(w, "platform", b->platform);
    string(w, "backend", b->backend);
    number(w, "max_batch_size", b->max_batch);
    config_tensors(w, "input", b->inputs, b->n_inputs, true);
    config_tensors(w, "output", b->outputs, b->n_outputs, false);
    list(w, "instance_group");
    if (b->instances) {
        object(w);
        string(w, "name", b->name);
        string(w, "kind", gpu ? "KIND_GPU" : "KIND_CPU");
        number(w, "count", b->instances);
        json_text(w, "}");
    }
    json_text(w, "]");
    if (b->n_steps)
        ensemble_scheduling(w, b);
    if (b->dynamic)
        dynamic_batching(w, b);
    json_text(w, "}");
}

/* --- statistics --- */

static void duration(struct json_writer *w, const char *name, const struct body_duration *d)
{
    key(w, name);
    json_text(w, "{");
    number(w, "count", d->count);
    number(w, "ns", d->ns);
    json_text(w, "}");
}

/* There is no cache of replies; clients look its times up all the same. */
static void inference_stats(struct json_writer *w, const struct body_model_statistics *m)
{
    static const struct body_duration none = {0, 0};
    const struct {
        const char *name;
        const struct body_duration *duration;
    } rows[] = {
        {"success", &m->success},
        {"fail", &m->fail},
        {"queue", &m->queue},
        {"compute_input", &m->compute_input},
        {"compute_infer", &m->compute_infer},
        {"compute_output", &m->compute_output},
        {"cache_hit", &none},
        {"cache_miss", &none},
    };
    key(w, "inference_stats");
    json_text(w, "{");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        duration(w, rows[i].name, rows[i].duration);
    }
    json_text(w, "}");
}

static void batch_stats(struct json_writer *w, const struct body_model_statistics *m)
{
    list(w, "batch_stats");
    for (uint32_t i = 0; i < m->n_batches; i++) {
        object(w);
        number(w, "batch_size", m->batches[i].batch_size);
        duration(w, "compute_input", &m->batches[i].compute_input);
        duration(w, "compute_infer", &m->batches[i].compute_infer);
        duration(w, "compute_output", &m->batches[i].compute_output);
        json_text(w, "}");
    }
    json_text(w, "]");
}

static void statistics(struct json_writer *w, const struct body_statistics *b)
{
    json_text(w, "{\"model_stats\":[");
    for (uint32_t i = 0; i < b->n_models && !w->full; i++) {
        const struct body_model_statistics *m = &b->models[i];
        object(w);
        string(w, "name", m->name);
        string(w, "version", m->version);
        number(w, "last_inference", m->last_inference);
        number(w, "inference_count", m->inference_count);
        number(w, "execution_count", m->execution_count);
        inference_stats(w, m);
        batch_stats(w, m);
        list(w, "memory_usage");
        json_text(w, "]}");
    }
    json_text(w, "]}");
}

static void repository_index(struct json_writer *w, const struct body_index *b)
{
    json_text(w, "[");
    for (uint32_t i = 0; i < b->n_models && !w->full; i++) {
        object(w);
        string(w, "name", b->models[i].name);
        string(w, "version", b->models[i].version);
        string(w, "state", b->models[i].state);
        string(w, "reason", b->models[i].reason);
        json_text(w, "}");
    }
    json_text(w, "]");
}

/* --- settings --- */

static bool key_goes_on(const struct body_settings *b, uint32_t i)
{
    return i + 1 < b->n && strcmp(b->items[i].key, b->items[i + 1].key) == 0;
}

/* A value that is several rows is a list, and so is that of trace_level with one. */
static void settings(struct json_writer *w, const struct body_settings *b)
{
    bool in_list = false;
    json_text(w, "{");
    for (uint32_t i = 0; i < b->n; i++) {
        const struct body_setting *s = &b->items[i];
        if (!in_list) {
            key(w, s->key);
            in_list = key_goes_on(b, i) || strcmp(s->key, "trace_level") == 0;
            json_text(w, in_list ? "[" : "");
        }
        next(w);
        if (s->kind == REQUEST_SETTING_BOOL)
            json_text(w, s->number ? "true" : "false");
        else if (s->kind == REQUEST_SETTING_NUMBER)
            json_uint(w, s->number);
        else
            json_string(w, message_text_of(s->text));
        if (in_list && !key_goes_on(b, i)) {
            json_text(w, "]");
            in_list = false;
        }
    }
    json_text(w, "}");
}

/* --- regions --- */

static void regions(struct json_writer *w, const struct body_regions *b, bool cuda)
{
    json_text(w, "[");
    for (uint32_t i = 0; i < b->n && !w->full; i++) {
        const struct body_region *r = &b->items[i];
        object(w);
        string(w, "name", r->name);
        if (cuda) {
            number(w, "device_id", r->device);
        } else {
            string(w, "key", r->key);
            number(w, "offset", r->offset);
        }
        number(w, "byte_size", r->size);
        json_text(w, "}");
    }
    json_text(w, "]");
}

/* --- bodies --- */

static bool body_write(const struct body *body, struct json_writer *w)
{
    switch (body->kind) {
    case REQUEST_SERVER_METADATA:
        server_metadata(w, &body->is.server_metadata);
        return true;
    case REQUEST_MODEL_METADATA:
        model_metadata(w, &body->is.model_metadata);
        return true;
    case REQUEST_MODEL_CONFIG:
        model_config(w, &body->is.model_config);
        return true;
    case REQUEST_STATISTICS:
        statistics(w, &body->is.statistics);
        return true;
    case REQUEST_REPOSITORY_INDEX:
        repository_index(w, &body->is.index);
        return true;
    case REQUEST_TRACE_SETTING:
    case REQUEST_LOG_SETTING:
        settings(w, &body->is.settings);
        return true;
    case REQUEST_MEMORY_STATUS:
    case REQUEST_CUDA_STATUS:
        regions(w, &body->is.regions, body->kind == REQUEST_CUDA_STATUS);
        return true;
    default:
        return false;
    }
}

enum status http_body_encode(const struct body *body, struct arena *arena, struct message_text *out,
                             struct error *err)
{
    for (size_t size = TEXT_FIRST; size <= TEXT_MOST; size *= 4) {
        char *text = arena_alloc(arena, size);
        if (!text)
            break;
        struct json_writer w = {text, text + size, false};
        if (!body_write(body, &w))
            return error_set(err, STATUS_UNIMPLEMENTED, "this is not described as JSON");
        if (!w.full) {
            *out = (struct message_text){text, (size_t)(w.at - text)};
            return STATUS_OK;
        }
    }
    return error_no_memory(err, "a description");
}

/* --- small answers --- */

void http_answer_write(struct json_writer *w, enum request_kind kind, struct message_text model,
                       bool yes)
{
    if (kind >= REQUEST_MEMORY_STATUS) { /* registered, or not any more */
        json_text(w, "{}");
        return;
    }
    const char *word = kind == REQUEST_SERVER_LIVE    ? "live"
                       : kind == REQUEST_MODEL_LOAD   ? "load"
                       : kind == REQUEST_MODEL_UNLOAD ? "unload"
                                                      : "ready";
    json_text(w, "{");
    if (model.len) {
        key(w, "name");
        json_string(w, model);
    }
    key(w, word);
    json_text(w, yes ? "true}" : "false}");
}

void http_error_write(struct json_writer *w, struct message_text message)
{
    json_text(w, "{\"error\":");
    json_string(w, message);
    json_text(w, "}");
}

/* --- inferences --- */

enum { PHASE_BEGIN, PHASE_OUTPUT, PHASE_ELEMENTS, PHASE_END, PHASE_DONE };

static bool is_binary(uint64_t binary, uint32_t output)
{
    return binary >> output & 1;
}

/* Texts, of which each stands behind its length of four bytes. */
static bool is_bytes(const struct message_tensor *t)
{
    return t->dtype == DTYPE_NONE;
}

static size_t elements(const struct message_tensor *t)
{
    size_t width = dtype_size(t->dtype);
    return width ? t->size / width : 0;
}

size_t http_infer_text_most(const struct response *response, uint64_t binary)
{
    /* Each byte of a name may be written as six. */
    size_t most = 6 * (2 * MESSAGE_MAX_NAME + MESSAGE_MAX_ID) + 128;
    for (uint32_t k = 0; k < response->n_outputs; k++) {
        most += 6 * MESSAGE_MAX_NAME + 24 * SHAPE_MAX_RANK + 128;
        most += 6 * response->outputs[k].region.name.len + 128;
        if (!is_binary(binary, k) && is_bytes(&response->outputs[k]))
            most += response->outputs[k].size * 6;
        else if (!is_binary(binary, k))
            most += elements(&response->outputs[k]) * (JSON_ELEMENT_MOST + 1);
    }
    return MAX(most, (size_t)HTTP_TEXT_STEP);
}

/* Elements come in steps, each with a writer of its own. */
static void comma(struct json_writer *w, bool first)
{
    if (!first)
        json_text(w, ",");
}

static void infer_begin(struct json_writer *w, const struct response *r)
{
    json_text(w, "{\"model_name\":");
    json_string(w, r->model);
    json_text(w, ",\"model_version\":");
    json_string(w, r->version);
    if (r->infer_id.len) {
        json_text(w, ",\"id\":");
        json_string(w, r->infer_id);
    }
    list(w, "outputs");
}

static void output_begin(struct json_writer *w, const struct message_tensor *t, bool first,
                         bool binary)
{
    comma(w, first);
    json_text(w, "{\"name\":");
    json_string(w, t->name);
    string(w, "datatype", is_bytes(t) ? "BYTES" : dtype_name(t->dtype));
    key(w, "shape");
    shape(w, &t->shape);
    if (t->region.name.len) {
        key(w, "parameters");
        json_text(w, "{\"shared_memory_region\":");
        json_string(w, t->region.name);
        number(w, "shared_memory_byte_size", t->region.size);
        if (t->region.offset)
            number(w, "shared_memory_offset", t->region.offset);
        json_text(w, "}}");
    } else if (binary) {
        key(w, "parameters");
        object(w);
        number(w, "binary_data_size", t->size);
        json_text(w, "}}");
    } else {
        list(w, "data");
    }
}

/* Writes elements while there is room for one. True: that were all. */
static bool elements_write(struct http_infer_text *text, const struct message_tensor *t,
                           struct json_writer *w)
{
    size_t n = elements(t), width = dtype_size(t->dtype);
    const uint8_t *at = (const uint8_t *)t->data + text->element * width;
    for (; text->element < n; text->element++, at += width) {
        char number[JSON_ELEMENT_MOST + 1];
        if (w->end - w->at < JSON_ELEMENT_MOST + 1)
            return false;
        comma(w, text->element == 0);
        json_raw(w, number, json_element_write(t->dtype, at, number));
    }
    return true;
}

/* The same of texts; the number of the element is the number of its first byte. */
static bool texts_write(struct http_infer_text *text, const struct message_tensor *t,
                        struct json_writer *w)
{
    const char *data = t->data;
    while (text->element + 4 <= t->size) {
        uint32_t len;
        memcpy(&len, data + text->element, sizeof(len));
        if ((size_t)(w->end - w->at) < 6 * (size_t)len + 3)
            return false;
        comma(w, text->element == 0);
        json_string(w, (struct message_text){data + text->element + 4, len});
        text->element += 4 + len;
    }
    return true;
}

/* Goes one step on. False: the rest of the writer is too small for it. */
static bool infer_step(struct http_infer_text *text, const struct response *r, uint64_t binary,
                       struct json_writer *w)
{
    if (w->end - w->at < HTTP_TEXT_STEP / 2 && text->phase != PHASE_ELEMENTS)
        return false;
    const struct message_tensor *t = &r->outputs[text->output];
    switch (text->phase) {
    case PHASE_BEGIN:
        infer_begin(w, r);
        text->phase = r->n_outputs ? PHASE_OUTPUT : PHASE_END;
        return true;
    case PHASE_OUTPUT:
        output_begin(w, t, text->output == 0, is_binary(binary, text->output));
        text->phase = PHASE_ELEMENTS;
        text->element = 0;
        return true;
    case PHASE_ELEMENTS:
        if (!is_binary(binary, text->output) && !t->region.name.len) {
            bool all = is_bytes(t) ? texts_write(text, t, w) : elements_write(text, t, w);
            if (!all || w->end - w->at < 2)
                return false;
            json_text(w, "]}");
        }
        text->phase = ++text->output < r->n_outputs ? PHASE_OUTPUT : PHASE_END;
        return true;
    default:
        json_text(w, "]}");
        text->phase = PHASE_DONE;
        return true;
    }
}

bool http_infer_text(struct http_infer_text *text, const struct response *response, uint64_t binary,
                     struct json_writer *w)
{
    while (text->phase != PHASE_DONE && infer_step(text, response, binary, w))
        ;
    return text->phase == PHASE_DONE;
}
