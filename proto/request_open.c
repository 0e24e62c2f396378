/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decodes the questions of the Open Inference Protocol that are no inference; see request.h. They
 * are a few texts, numbers and a map, so they are read field by field in place: at most
 * MESSAGE_MAX_FIELDS fields, of known wire types, each text within its message.
 */
#include "inference.pb.h"
#include "proto/request.h"
#include "proto/wire.h"

struct reading {
    struct request *out;
    uint32_t fields; /* so far */
    struct error *err;
};

static enum status broken(struct reading *r)
{
    return error_set(r->err, STATUS_INVALID_ARGUMENT,
                     "malformed request: field %u is not a whole "
                     "field of a known wire type",
                     r->fields + 1);
}

/* Reads the next field; `*more` is false at the end. */
static enum status field_next(struct reading *r, struct wire *w, struct wire_field *field,
                              bool *more)
{
    *more = w->at < w->end;
    if (!*more)
        return STATUS_OK;
    if (r->fields == MESSAGE_MAX_FIELDS)
        return error_set(r->err, STATUS_INVALID_ARGUMENT, "more than %d fields in a request",
                         MESSAGE_MAX_FIELDS);
    if (!wire_next(w, field))
        return broken(r);
    r->fields++;
    return STATUS_OK;
}

static struct message_text text_of(const struct wire_field *field)
{
    return (struct message_text){(const char *)field->value.at, wire_left(&field->value)};
}

static uint64_t number_of(const struct wire_field *field)
{
    struct wire value = field->value;
    uint64_t number = 0;
    if (field->type == WIRE_VARINT)
        wire_varint(&value, &number);
    return number;
}

/* --- settings: the entries of a map --- */

/* What the numbers of a value's fields mean. */
enum meaning { MEANS_NOTHING, MEANS_BOOL, MEANS_NUMBER, MEANS_TEXT };
enum { MEANINGS = 5 };
static const enum meaning load_values[MEANINGS] = {
    [inference_ModelRepositoryParameter_bool_param_tag] = MEANS_BOOL,
    [inference_ModelRepositoryParameter_int64_param_tag] = MEANS_NUMBER,
    [inference_ModelRepositoryParameter_string_param_tag] = MEANS_TEXT,
    [inference_ModelRepositoryParameter_bytes_param_tag] = MEANS_TEXT,
};
static const enum meaning log_values[MEANINGS] = {
    [inference_LogSettingsRequest_SettingValue_bool_param_tag] = MEANS_BOOL,
    [inference_LogSettingsRequest_SettingValue_uint32_param_tag] = MEANS_NUMBER,
    [inference_LogSettingsRequest_SettingValue_string_param_tag] = MEANS_TEXT,
};
static const enum meaning trace_values[MEANINGS] = {
    [inference_TraceSettingRequest_SettingValue_value_tag] = MEANS_TEXT,
};

static struct request_setting *setting_add(struct reading *r)
{
    if (r->out->n_settings < REQUEST_MAX_SETTINGS)
        return &r->out->settings[r->out->n_settings++];
    error_set(r->err, STATUS_INVALID_ARGUMENT, "more than %d settings", REQUEST_MAX_SETTINGS);
    return NULL;
}

static void value_set(struct request_setting *s, enum meaning meaning,
                      const struct wire_field *field)
{
    static const enum request_setting_kind kinds[] = {[MEANS_BOOL] = REQUEST_SETTING_BOOL,
                                                      [MEANS_NUMBER] = REQUEST_SETTING_NUMBER,
                                                      [MEANS_TEXT] = REQUEST_SETTING_TEXT};
    s->kind = kinds[meaning];
    if (meaning == MEANS_TEXT)
        s->text = text_of(field);
    else
        s->number = meaning == MEANS_BOOL ? number_of(field) != 0 : number_of(field);
}

/* A value without fields clears the setting; each further one is a further row. */
static enum status value_read(struct reading *r, struct message_text key, struct wire w,
                              const enum meaning *values)
{
    struct request_setting *s = NULL;
    struct wire_field field = {0};
    bool more;
    while (true) {
        TRY(field_next(r, &w, &field, &more));
        if (!more)
            break;
        enum meaning meaning = field.number < MEANINGS ? values[field.number] : MEANS_NOTHING;
        bool fits = (field.type == WIRE_BYTES) == (meaning == MEANS_TEXT);
        if (!meaning || !fits)
            continue;
        if (!(s = setting_add(r)))
            return r->err->status;
        *s = (struct request_setting){.key = key};
        value_set(s, meaning, &field);
    }
    if (s)
        return STATUS_OK;
    if (!(s = setting_add(r)))
        return r->err->status;
    *s = (struct request_setting){.key = key};
    return STATUS_OK;
}

/* An entry: key = 1, value = 2. */
static enum status setting_read(struct reading *r, struct wire w, const enum meaning *values)
{
    struct message_text key = {0};
    struct wire value = {0};
    struct wire_field field = {0};
    bool more = true;
    while (more) {
        TRY(field_next(r, &w, &field, &more));
        if (more && field.type == WIRE_BYTES && field.number == 1)
            key = text_of(&field);
        else if (more && field.type == WIRE_BYTES && field.number == 2)
            value = field.value;
    }
    return value_read(r, key, value, values);
}

/* --- messages --- */

/* What a message's fields are, by their numbers. */
enum member {
    IS_UNKNOWN,
    IS_MODEL,
    IS_VERSION,
    IS_REPOSITORY,
    IS_READY,
    IS_SETTING,
    IS_REGION,
    IS_KEY,
    IS_OFFSET,
    IS_SIZE,
    IS_DEVICE,
};
enum { MEMBERS = 5 };

static const struct message {
    enum request_kind kind;
    enum member members[MEMBERS];
    const enum meaning *values;
} messages[] = {
    {REQUEST_SERVER_LIVE, {0}, NULL},
    {REQUEST_SERVER_READY, {0}, NULL},
    {REQUEST_SERVER_METADATA, {0}, NULL},
    {REQUEST_MODEL_READY, {0, IS_MODEL, IS_VERSION}, NULL},
    {REQUEST_MODEL_METADATA, {0, IS_MODEL, IS_VERSION}, NULL},
    {REQUEST_MODEL_CONFIG, {0, IS_MODEL, IS_VERSION}, NULL},
    {REQUEST_STATISTICS, {0, IS_MODEL, IS_VERSION}, NULL},
    {REQUEST_REPOSITORY_INDEX, {0, IS_REPOSITORY, IS_READY}, NULL},
    {REQUEST_MODEL_LOAD, {0, IS_REPOSITORY, IS_MODEL, IS_SETTING}, load_values},
    {REQUEST_MODEL_UNLOAD, {0, IS_REPOSITORY, IS_MODEL, IS_SETTING}, load_values},
    {REQUEST_TRACE_SETTING, {0, IS_SETTING, IS_MODEL}, trace_values},
    {REQUEST_LOG_SETTING, {0, IS_SETTING}, log_values},
    {REQUEST_MEMORY_STATUS, {0, IS_REGION}, NULL},
    {REQUEST_MEMORY_REGISTER, {0, IS_REGION, IS_KEY, IS_OFFSET, IS_SIZE}, NULL},
    {REQUEST_MEMORY_UNREGISTER, {0, IS_REGION}, NULL},
    {REQUEST_CUDA_STATUS, {0, IS_REGION}, NULL},
    {REQUEST_CUDA_REGISTER, {0, IS_REGION, IS_KEY, IS_DEVICE, IS_SIZE}, NULL},
    {REQUEST_CUDA_UNREGISTER, {0, IS_REGION}, NULL},
};

static void number_read(struct request *out, enum member member, uint64_t number)
{
    switch (member) {
    case IS_READY:
        out->ready_only = number != 0;
        return;
    case IS_OFFSET:
        out->region.offset = number;
        return;
    case IS_SIZE:
        out->region.size = number;
        return;
    case IS_DEVICE:
        out->region.device = number;
        return;
    default:
        return;
    }
}

static enum status member_read(struct reading *r, const struct message *message,
                               const struct wire_field *field, struct message_text *repository)
{
    enum member member = field->number < MEMBERS ? message->members[field->number] : IS_UNKNOWN;
    if (field->type == WIRE_VARINT)
        number_read(r->out, member, number_of(field));
    if (field->type != WIRE_BYTES)
        return STATUS_OK;
    switch (member) {
    case IS_MODEL:
        r->out->model = text_of(field);
        return STATUS_OK;
    case IS_VERSION:
        r->out->version = text_of(field);
        return STATUS_OK;
    case IS_REPOSITORY:
        *repository = text_of(field);
        return STATUS_OK;
    case IS_SETTING:
        return setting_read(r, field->value, message->values);
    case IS_REGION:
        r->out->region.name = text_of(field);
        return STATUS_OK;
    case IS_KEY:
        r->out->region.key = text_of(field);
        return STATUS_OK;
    default:
        return STATUS_OK;
    }
}

/* In the other layout of these two messages, the model's name stands where the repository's does in
 * this one. */
static void model_settle(struct request *out, struct message_text repository)
{
    bool orders = out->kind == REQUEST_MODEL_LOAD || out->kind == REQUEST_MODEL_UNLOAD;
    if (orders && !out->model.len)
        out->model = repository;
    for (uint32_t i = 0; orders && i < out->n_settings; i++)
        if (message_text_equal(out->settings[i].key, message_text_of("unload_dependents")))
            out->dependents |= out->settings[i].number != 0;
}

static const struct message *message_of(enum request_kind kind)
{
    for (size_t i = 0; i < ARRAY_LEN(messages); i++)
        if (messages[i].kind == kind)
            return &messages[i];
    return NULL;
}

enum status request_decode_open(enum request_kind kind, const void *data, size_t size,
                                struct request *out, struct error *err)
{
    struct reading r = {out, 0, err};
    struct wire w = wire_of(data, size);
    struct message_text repository = {0};
    struct wire_field field = {0};
    bool more = true;
    request_clear(out);
    out->kind = kind;
    const struct message *message = message_of(kind);
    if (!message)
        return error_set(err, STATUS_INTERNAL, "kind %d is no such question", (int)kind);
    while (more) {
        TRY(field_next(&r, &w, &field, &more));
        if (more)
            TRY(member_read(&r, message, &field, &repository));
    }
    model_settle(out, repository);
    return request_texts_check(out, err);
}
