/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON to protobuf's text format, see config_text.h. A list becomes a field for each of its values,
 * and a map an entry with `key` and `value` for each of its members.
 */
#include "http/config_text.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/cleanup.h"

enum { DEPTH = 20, NAME = 64 };

enum level_kind { LEVEL_MESSAGE, LEVEL_LIST, LEVEL_MAP };

/* An object or a list that has begun. */
struct level {
    enum level_kind kind;
    bool of_map;         /* a message that is the value of a map's entry */
    char name[NAME + 1]; /* of the list's or the map's fields */
};

struct reading {
    struct text *out;
    uint32_t n;
    struct level levels[DEPTH];
    char name[NAME + 1]; /* of the member whose value comes next */
};

/* Fields that are maps; JSON writes these as it writes messages. */
static bool is_map(const char *name)
{
    static const char *const maps[] = {"parameters", "input_map",   "output_map",
                                       "inputs",     "metric_tags", "cc_model_filenames"};
    for (size_t i = 0; i < ARRAY_LEN(maps); i++)
        if (strcmp(name, maps[i]) == 0)
            return true;
    return false;
}

static void string_put(struct text *out, struct message_text s)
{
    text_put(out, "\"");
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.data[i];
        if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f)
            text_printf(out, "\\%03o", c);
        else
            text_bytes(out, &c, 1);
    }
    text_put(out, "\"");
}

/* Both spellings of a name are JSON's: maxBatchSize and max_batch_size. */
static enum status name_take(struct reading *r, struct message_text key, struct error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < key.len && n < NAME; i++) {
        char c = key.data[i];
        bool upper = c >= 'A' && c <= 'Z';
        bool plain = (c >= 'a' && c <= 'z') || (i && c >= '0' && c <= '9') || c == '_' || upper;
        if (!plain)
            break;
        if (upper)
            r->name[n++] = '_';
        if (n < NAME)
            r->name[n++] = (char)(upper ? c - 'A' + 'a' : c);
        r->name[n] = '\0';
        if (i + 1 == key.len)
            return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     "config: '%.*s': expected the name of a field of ModelConfig",
                     MESSAGE_TEXT(key));
}

static struct level *top(struct reading *r)
{
    return r->n ? &r->levels[r->n - 1] : NULL;
}

/* The name of the field that a value belongs to. */
static const char *field_of(struct reading *r)
{
    const struct level *level = top(r);
    return level && level->kind == LEVEL_LIST ? level->name : r->name;
}

static enum status level_add(struct reading *r, enum level_kind kind, bool of_map, const char *name,
                             struct error *err)
{
    if (r->n == DEPTH)
        return error_set(err, STATUS_INVALID_ARGUMENT, "config: more than %d levels", DEPTH);
    struct level *level = &r->levels[r->n++];
    level->kind = kind;
    level->of_map = of_map;
    snprintf(level->name, sizeof(level->name), "%s", name);
    return STATUS_OK;
}

static enum status container_begin(struct reading *r, enum json_kind kind, struct error *err)
{
    bool list = kind == JSON_ARRAY;
    if (!r->n)
        return list ? error_set(err, STATUS_INVALID_ARGUMENT, "config: expected an object")
                    : level_add(r, LEVEL_MESSAGE, false, "", err);
    if (list && top(r)->kind != LEVEL_MESSAGE)
        return error_set(err, STATUS_INVALID_ARGUMENT, "config: %s: a list in a list or map",
                         top(r)->name);
    if (list)
        return level_add(r, LEVEL_LIST, false, r->name, err);
    if (top(r)->kind == LEVEL_MAP) {
        text_put(r->out, "value {");
        return level_add(r, LEVEL_MESSAGE, true, "", err);
    }
    if (top(r)->kind == LEVEL_MESSAGE && is_map(r->name))
        return level_add(r, LEVEL_MAP, false, r->name, err);
    text_printf(r->out, "%s {", field_of(r));
    return level_add(r, LEVEL_MESSAGE, false, "", err);
}

static void container_end(struct reading *r)
{
    const struct level *level = &r->levels[--r->n];
    if (level->kind == LEVEL_MESSAGE && r->n)
        text_put(r->out, level->of_map ? "}}\n" : "}\n");
}

static enum status key_take(struct reading *r, struct message_text key, struct error *err)
{
    const struct level *level = top(r);
    if (!level || level->kind != LEVEL_MAP)
        return name_take(r, key, err);
    text_printf(r->out, "%s { key: ", level->name);
    string_put(r->out, key);
    text_put(r->out, " ");
    return STATUS_OK;
}

static enum status scalar_take(struct reading *r, const struct json_event *e, struct error *err)
{
    if (!r->n)
        return error_set(err, STATUS_INVALID_ARGUMENT, "config: expected an object");
    bool map = top(r)->kind == LEVEL_MAP;
    if (e->kind == JSON_NULL && !map) /* as if it were not there */
        return STATUS_OK;
    text_printf(r->out, "%s: ", map ? "value" : field_of(r));
    if (e->kind == JSON_STRING)
        string_put(r->out, e->text);
    else if (e->kind == JSON_NUMBER)
        text_bytes(r->out, e->text.data, e->text.len);
    else
        text_put(r->out, e->kind == JSON_TRUE ? "true" : e->kind == JSON_FALSE ? "false" : "\"\"");
    text_put(r->out, map ? "}\n" : "\n");
    return STATUS_OK;
}

static enum status take(void *user, const struct json_event *e, struct error *err)
{
    struct reading *r = user;
    switch (e->kind) {
    case JSON_KEY:
        return key_take(r, e->text, err);
    case JSON_OBJECT:
    case JSON_ARRAY:
        return container_begin(r, e->kind, err);
    case JSON_OBJECT_END:
    case JSON_ARRAY_END:
        container_end(r);
        return STATUS_OK;
    default:
        return scalar_take(r, e, err);
    }
}

enum status config_text_of_json(struct message_text json, struct text *out, struct error *err)
{
    struct reading reading = {.out = out};
    size_t size = json_reader_size(json.len);
    CLEANUP(cleanup_free) void *memory = malloc(size);
    if (!memory)
        return error_no_memory(err, "a configuration");
    struct json_reader *reader = json_reader_init(memory, size, take, &reading);
    for (size_t at = 0; at < json.len; at += JSON_STEP)
        TRY(json_reader_feed(reader, json.data + at, MIN(json.len - at, (size_t)JSON_STEP), err));
    TRY(json_reader_end(reader, err));
    if (out->failed)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "config: too long, or no memory for it");
    return STATUS_OK;
}
