/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts the scalars of the configuration from text to values, and checks their ranges.
 *
 * Numbers are plain decimal; sizes may end in KiB, MiB or GiB. Everything else ("1e3", "0x10",
 * "1.5", "64MB", a sign on what cannot be negative) is refused rather than guessed at.
 */
#include "config/schema.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(owner, raw_owner, member, kind, least, most)                                         \
    {#member, FIELD_##kind, offsetof(raw_owner, member), offsetof(owner, member), least, most},
#define SERVER_FIELD(member, kind, least, most)                                                    \
    FIELD(struct config, struct raw_config, member, kind, least, most)
#define LISTEN_FIELD(member, kind, least, most)                                                    \
    FIELD(struct config_listen, struct raw_config, member, kind, least, most)
#define IDENTITY_FIELD(member, kind, least, most)                                                  \
    FIELD(struct config_identity, struct raw_identity, member, kind, least, most)
#define MODEL_FIELD(member, kind, least, most)                                                     \
    FIELD(struct config_model, struct raw_model, member, kind, least, most)
#define INPUT_FIELD(member, kind, least, most)                                                     \
    FIELD(struct config_input, struct raw_input, member, kind, least, most)
#define LIMIT_FIELD(member, kind, least, most)                                                     \
    FIELD(struct config_limits, struct raw_limits, member, kind, least, most)

const struct field config_server_fields[] = {CONFIG_SERVER_FIELDS(SERVER_FIELD){0}};
const struct field config_listen_fields[] = {CONFIG_LISTEN_FIELDS(LISTEN_FIELD){0}};
const struct field config_identity_fields[] = {CONFIG_IDENTITY_FIELDS(IDENTITY_FIELD){0}};
const struct field config_model_fields[] = {CONFIG_MODEL_FIELDS(MODEL_FIELD){0}};
const struct field config_input_fields[] = {CONFIG_INPUT_FIELDS(INPUT_FIELD){0}};
const struct field config_limit_fields[] = {CONFIG_LIMIT_FIELDS(LIMIT_FIELD){0}};

enum status report_set(struct report *report, const char *section, const char *key, const char *got,
                       const char *expected, ...)
{
    char want[256];
    va_list args;
    va_start(args, expected);
    vsnprintf(want, sizeof(want), expected, args);
    va_end(args);

    snprintf(report->key, sizeof(report->key), "%s%s", section, key);
    if (!got)
        return error_set(report->err, STATUS_INVALID_ARGUMENT, "%s: expected %s, got nothing",
                         report->key, want);
    return error_set(report->err, STATUS_INVALID_ARGUMENT, "%s: expected %s, got \"%.100s\"%s",
                     report->key, want, got, strlen(got) > 100 ? "..." : "");
}

static const struct {
    const char *suffix;
    unsigned shift;
} units[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}};

/* Refuses magnitudes beyond int64_t, which holds the bounds of every field. */
static bool parse_number(const char *text, bool is_bytes, int64_t *out)
{
    bool negative = *text == '-';
    const char *p = text + negative;
    int64_t n = 0;
    if (*p < '0' || *p > '9')
        return false;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *p - '0', &n))
            return false;
    for (size_t i = 0; is_bytes && i < ARRAY_LEN(units); i++) {
        if (strcmp(p, units[i].suffix) == 0) {
            if (__builtin_mul_overflow(n, (int64_t)1 << units[i].shift, &n))
                return false;
            p += strlen(p);
        }
    }
    if (*p)
        return false;
    *out = negative ? -n : n;
    return true;
}

/* Takes the two words of YAML 1.2 alone: "no" means false in YAML 1.1 and a text in YAML 1.2. */
static bool parse_bool(const char *text, int64_t *out)
{
    *out = strcmp(text, "true") == 0;
    return *out || strcmp(text, "false") == 0;
}

static bool parse_value(const struct field *field, const char *text, int64_t *out)
{
    return field->kind == FIELD_BOOL ? parse_bool(text, out)
                                     : parse_number(text, field->kind == FIELD_BYTES, out);
}

static enum status refuse_number(const struct field *field, const char *section, const char *got,
                                 struct report *report)
{
    if (field->kind == FIELD_BOOL)
        return report_set(report, section, field->key, got, "true or false");
    return report_set(report, section, field->key, got, "%s from %" PRId64 " to %" PRId64 "%s",
                      field->kind == FIELD_BYTES ? "a size" : "a whole number", field->least,
                      field->most,
                      field->kind == FIELD_BYTES ? " bytes (KiB, MiB, GiB are known)" : "");
}

static enum status check_text(const struct field *field, const char *section, const char *text,
                              struct report *report)
{
    size_t len = strlen(text);
    if (len < (size_t)field->least || len > (size_t)field->most)
        return report_set(report, section, field->key, text, "%" PRId64 " to %" PRId64 " bytes",
                          field->least, field->most);
    return STATUS_OK;
}

static int64_t number_get(const struct field *field, const void *slot)
{
    uint64_t wide;
    switch (field->kind) {
    case FIELD_BOOL:
        return *(const bool *)slot;
    case FIELD_U32:
        return *(const uint32_t *)slot;
    case FIELD_I64:
        return *(const int64_t *)slot;
    case FIELD_U64:
    case FIELD_BYTES:
        wide = *(const uint64_t *)slot;
        return wide > INT64_MAX ? INT64_MAX : (int64_t)wide;
    case FIELD_TEXT:
        break;
    }
    return 0;
}

static void number_put(const struct field *field, void *slot, int64_t n)
{
    switch (field->kind) {
    case FIELD_BOOL:
        *(bool *)slot = n != 0;
        break;
    case FIELD_U32:
        *(uint32_t *)slot = (uint32_t)n;
        break;
    case FIELD_I64:
        *(int64_t *)slot = n;
        break;
    case FIELD_U64:
    case FIELD_BYTES:
        *(uint64_t *)slot = (uint64_t)n;
        break;
    case FIELD_TEXT:
        break;
    }
}

static enum status text_read(const struct field *field, const char *section, const char *text,
                             char **slot, struct report *report)
{
    TRY(check_text(field, section, text, report));
    char *copy = strdup(text);
    if (!copy)
        return error_no_memory(report->err, "the configuration");
    free(*slot);
    *slot = copy;
    return STATUS_OK;
}

enum status field_read(const struct field *f, const char *section, const char *text, void *target,
                       struct report *report)
{
    void *slot = (char *)target + f->value;
    int64_t n;
    if (f->kind == FIELD_TEXT)
        return text_read(f, section, text, slot, report);
    if (!parse_value(f, text, &n) || n < f->least || n > f->most)
        return refuse_number(f, section, text, report);
    number_put(f, slot, n);
    return STATUS_OK;
}

enum status fields_read(const struct field *fields, const char *section, const void *raw,
                        void *target, struct report *report)
{
    for (const struct field *f = fields; f->key; f++) {
        const char *text = *(char *const *)(const void *)((const char *)raw + f->raw);
        if (text)
            TRY(field_read(f, section, text, target, report));
    }
    return STATUS_OK;
}

enum status fields_check(const struct field *fields, const char *section, const void *target,
                         struct report *report)
{
    for (const struct field *f = fields; f->key; f++) {
        const void *slot = (const char *)target + f->value;
        if (f->kind == FIELD_TEXT) {
            const char *text = *(char *const *)slot;
            if (text)
                TRY(check_text(f, section, text, report));
        } else {
            int64_t n = number_get(f, slot);
            char got[24];
            snprintf(got, sizeof(got), "%" PRId64, n);
            if (n < f->least || n > f->most)
                return refuse_number(f, section, got, report);
        }
    }
    return STATUS_OK;
}

enum status field_read_list(const struct raw_list *raw, const char *section, const char *key,
                            uint32_t most, uint32_t **out, uint32_t *count, struct report *report)
{
    if (raw->items_count == 0)
        return STATUS_OK;
    uint32_t *list = calloc(raw->items_count, sizeof(*list));
    if (!list)
        return error_no_memory(report->err, "the configuration");
    for (uint32_t i = 0; i < raw->items_count; i++) {
        int64_t n;
        if (!parse_number(raw->items[i], false, &n) || n < 1 || n > most) {
            char entry[64];
            snprintf(entry, sizeof(entry), "%s[%" PRIu32 "]", key, i);
            free(list);
            return report_set(report, section, entry, raw->items[i],
                              "a whole number from 1 to %" PRIu32, most);
        }
        list[i] = (uint32_t)n;
    }
    *out = list;
    *count = raw->items_count;
    return STATUS_OK;
}

/* Takes plain decimal numbers, with or without an exponent: what strtof(3) takes, without names and
 * hexadecimal. */
static bool parse_float(const char *text, float *out)
{
    char *end;
    if (!*text || strspn(text, "0123456789+-.eE") != strlen(text))
        return false;
    *out = strtof(text, &end);
    return !*end && isfinite(*out);
}

enum status field_read_floats(const struct raw_list *raw, const char *section, const char *key,
                              float **out, uint32_t *count, struct report *report)
{
    if (raw->items_count == 0)
        return STATUS_OK;
    float *list = calloc(raw->items_count, sizeof(*list));
    if (!list)
        return error_no_memory(report->err, "the configuration");
    for (uint32_t i = 0; i < raw->items_count; i++) {
        char entry[64];
        if (parse_float(raw->items[i], &list[i]))
            continue;
        snprintf(entry, sizeof(entry), "%s[%" PRIu32 "]", key, i);
        free(list);
        return report_set(report, section, entry, raw->items[i], "a number");
    }
    *out = list;
    *count = raw->items_count;
    return STATUS_OK;
}
