/* SPDX-License-Identifier: Apache-2.0 */
/* A JSON writer; see json.h. */
#include "tools/json.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "base/utf8.h"

void json_init(struct json *json, FILE *file)
{
    *json = (struct json){.file = file};
}

/* JSON takes DEL and C1 as they are, but terminals obey them. */
static void put_text(struct json *json, const char *text)
{
    fputc('"', json->file);
    for (size_t left = strlen(text), len; left; text += len, left -= len) {
        const unsigned char *c = (const unsigned char *)text;
        len = utf8_char(text, left);
        if (!len)
            fputs("\\ufffd", json->file);
        else if (utf8_is_control(text, len))
            fprintf(json->file, "\\u%04x", c[len - 1]);
        else if (*c == '"' || *c == '\\')
            fprintf(json->file, "\\%c", *c);
        else
            fwrite(text, 1, len, json->file);
        len = MAX(len, (size_t)1);
    }
    fputc('"', json->file);
}

static void begin_entry(struct json *json, const char *key)
{
    if (json->some[json->depth])
        fputc(',', json->file);
    if (json->depth && json->compact && json->some[json->depth])
        fputc(' ', json->file);
    if (json->depth && !json->compact)
        fprintf(json->file, "\n%*s", (int)(2 * json->depth), "");
    json->some[json->depth] = true;
    if (key) {
        put_text(json, key);
        fputs(": ", json->file);
    }
}

static void open_level(struct json *json, const char *key, char open, char close)
{
    assert(json->depth < JSON_DEPTH_MAX);
    begin_entry(json, key);
    fputc(open, json->file);
    json->depth++;
    json->some[json->depth] = false;
    json->close[json->depth] = close;
}

void json_object(struct json *json, const char *key)
{
    open_level(json, key, '{', '}');
}

void json_list(struct json *json, const char *key)
{
    open_level(json, key, '[', ']');
}

void json_end(struct json *json)
{
    assert(json->depth > 0);
    bool some = json->some[json->depth];
    char close = json->close[json->depth];
    json->depth--;
    if (some && !json->compact)
        fprintf(json->file, "\n%*s", (int)(2 * json->depth), "");
    fputc(close, json->file);
    if (json->depth == 0)
        fputc('\n', json->file);
}

void json_text(struct json *json, const char *key, const char *value)
{
    begin_entry(json, key);
    put_text(json, value);
}

void json_int(struct json *json, const char *key, int64_t value)
{
    begin_entry(json, key);
    fprintf(json->file, "%" PRId64, value);
}

void json_uint(struct json *json, const char *key, uint64_t value)
{
    begin_entry(json, key);
    fprintf(json->file, "%" PRIu64, value);
}

void json_real(struct json *json, const char *key, double value)
{
    begin_entry(json, key);
    if (isfinite(value))
        fprintf(json->file, "%.9g", value);
    else
        fputs("null", json->file);
}

void json_bool(struct json *json, const char *key, bool value)
{
    begin_entry(json, key);
    fputs(value ? "true" : "false", json->file);
}

void json_shape(struct json *json, const char *key, const struct shape *shape)
{
    begin_entry(json, key);
    fputc('[', json->file);
    for (uint32_t i = 0; i < shape->rank; i++)
        fprintf(json->file, "%s%" PRId64, i ? ", " : "", shape->dim[i]);
    fputc(']', json->file);
}
