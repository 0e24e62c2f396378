/* SPDX-License-Identifier: Apache-2.0 */
/* From spellings to values, see bind.h. The tree's depth bounds the recursion. */
#include "config/bind.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"

enum status bind_refuse(const struct binding *b, const struct pbtxt_field *field,
                        const char *expected, ...)
{
    char want[160];
    va_list args;
    va_start(args, expected);
    vsnprintf(want, sizeof(want), expected, args);
    va_end(args);
    return error_set(b->err, STATUS_INVALID_ARGUMENT, "%s:%zu: %s: expected %s, got \"%.60s\"",
                     b->name, field->line, field->name, want,
                     field->spelling ? field->spelling : "a message");
}

/* --- scalars --- */

static bool is_kind(const struct binding *b, const struct pbtxt_field *field, enum pbtxt_kind kind)
{
    return field->kind == kind || (b->quoted && field->kind == PBTXT_STRING);
}

static bool number_parse(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    *out = strtoll(text, &end, 0);
    return !errno && end != text && !*end;
}

static enum status number_take(const struct binding *b, const struct pbtxt_field *field,
                               const struct bind_row *row, void *at)
{
    int64_t n;
    if (!is_kind(b, field, PBTXT_NUMBER) || !number_parse(field->spelling, &n) || n < row->least ||
        n > row->most)
        return bind_refuse(b, field, "a whole number from %" PRId64 " to %" PRId64, row->least,
                           row->most);
    memcpy(at, &n, sizeof(n));
    return STATUS_OK;
}

static enum status bool_take(const struct binding *b, const struct pbtxt_field *field,
                             const struct bind_row *row UNUSED, void *at)
{
    static const char *const yes[] = {"true", "True", "t", "1"}, *const no[] = {"false", "False",
                                                                                "f", "0"};
    bool scalar = is_kind(b, field, PBTXT_WORD) || field->kind == PBTXT_NUMBER;
    for (size_t i = 0; scalar && i < ARRAY_LEN(yes); i++) {
        bool is = strcmp(field->spelling, yes[i]) == 0;
        if (is || strcmp(field->spelling, no[i]) == 0) {
            memcpy(at, &is, sizeof(is));
            return STATUS_OK;
        }
    }
    return bind_refuse(b, field, "true or false");
}

static enum status text_take(const struct binding *b, const struct pbtxt_field *field,
                             const struct bind_row *row UNUSED, void *at)
{
    if (field->kind != PBTXT_STRING)
        return bind_refuse(b, field, "a string in quotes");
    memcpy(at, &field->spelling, sizeof(field->spelling));
    return STATUS_OK;
}

static enum status word_take(const struct binding *b, const struct pbtxt_field *field,
                             const struct bind_row *row, void *at)
{
    struct names names;
    int64_t number;
    names_init(&names, field->spelling ? field->spelling : "",
               field->spelling ? strlen(field->spelling) : 0);
    bool numeric = field->kind == PBTXT_NUMBER && number_parse(field->spelling, &number);
    for (int i = 0; row->words[i]; i++) {
        names_add(&names, row->words[i]);
        if (numeric
                ? number == i
                : is_kind(b, field, PBTXT_WORD) && strcmp(field->spelling, row->words[i]) == 0) {
            memcpy(at, &i, sizeof(i));
            return STATUS_OK;
        }
    }
    return bind_refuse(b, field, "%s", names_text(&names));
}

static enum status message_take(const struct binding *b, const struct pbtxt_field *field,
                                const struct bind_row *row, void *at)
{
    if (field->kind != PBTXT_MESSAGE)
        return bind_refuse(b, field, "{ ... }");
    return bind_message(b, field, row->rows, at);
}

/* What each kind takes, and how many bytes it fills; messages say this in their rows. */
static const struct {
    enum status (*take)(const struct binding *b, const struct pbtxt_field *field,
                        const struct bind_row *row, void *at);
    size_t size;
} kinds[] = {
    [BIND_TEXT] = {text_take, sizeof(const char *)},
    [BIND_BOOL] = {bool_take, sizeof(bool)},
    [BIND_NUMBER] = {number_take, sizeof(int64_t)},
    [BIND_WORD] = {word_take, sizeof(int)},
    [BIND_MESSAGE] = {message_take, 0},
};

/* --- fields --- */

static uint32_t count(const struct pbtxt_field *first, const char *name)
{
    uint32_t n = 0;
    for (; first; first = first->next)
        n += strcmp(first->name, name) == 0;
    return n;
}

/* Takes all fields of this name at the first of them. */
static enum status repeated_take(const struct binding *b, const struct pbtxt_field *message,
                                 const struct pbtxt_field *field, const struct bind_row *row,
                                 void *target)
{
    struct bind_list *list = (void *)((char *)target + row->offset);
    size_t size = row->item_size ? row->item_size : kinds[row->kind].size;
    if (list->items)
        return STATUS_OK;
    uint32_t n = count(message->first, field->name);
    if (n > row->most_items)
        return error_set(b->err, STATUS_INVALID_ARGUMENT,
                         "%s:%zu: %s: expected at most %" PRIu32 " of these, got %" PRIu32, b->name,
                         field->line, field->name, row->most_items, n);
    list->items = arena_array(b->arena, n, size);
    if (!list->items)
        return error_no_memory(b->err, "%s", b->name);
    for (; field; field = field->next)
        if (strcmp(field->name, row->name) == 0)
            TRY(kinds[row->kind].take(b, field, row, (char *)list->items + list->n++ * size));
    return STATUS_OK;
}

static enum status single_take(const struct binding *b, const struct pbtxt_field *message,
                               const struct pbtxt_field *field, const struct bind_row *row,
                               void *target)
{
    if (count(message->first, field->name) > 1)
        return error_set(b->err, STATUS_INVALID_ARGUMENT, "%s:%zu: %s: expected once, got twice",
                         b->name, field->line, field->name);
    if (row->kind == BIND_MESSAGE)
        *(bool *)((char *)target + row->seen) = true;
    return kinds[row->kind].take(b, field, row, (char *)target + row->offset);
}

static const struct bind_row *row_find(const struct bind_row *rows, const char *name)
{
    for (; rows->name; rows++)
        if (strcmp(rows->name, name) == 0)
            return rows;
    return NULL;
}

static void unknown_warn(const struct binding *b, const struct pbtxt_field *field,
                         const struct bind_row *rows)
{
    struct names names;
    names_init(&names, field->name, strlen(field->name));
    for (; rows->name; rows++)
        names_add(&names, rows->name);
    log_write(b->log, LOG_WARNING, "%s:%zu: unknown field '%s'%s: it has no effect", b->name,
              field->line, field->name, names_hint(&names));
}

static enum status field_take(const struct binding *b, const struct pbtxt_field *message,
                              const struct pbtxt_field *field, const struct bind_row *rows,
                              void *target)
{
    const struct bind_row *row = row_find(rows, field->name);
    if (!row) {
        unknown_warn(b, field, rows);
        return STATUS_OK;
    }
    if (row->kind == BIND_UNUSED) {
        log_write(b->log, LOG_WARNING, "%s:%zu: '%s' has no effect: %s", b->name, field->line,
                  field->name, row->why);
        return STATUS_OK;
    }
    if (row->kind == BIND_REFUSED)
        return error_set(b->err, STATUS_UNIMPLEMENTED, "%s:%zu: '%s' is not supported: %s", b->name,
                         field->line, field->name, row->why);
    return row->repeated ? repeated_take(b, message, field, row, target)
                         : single_take(b, message, field, row, target);
}

enum status bind_message(const struct binding *b, const struct pbtxt_field *message,
                         const struct bind_row *rows, void *target)
{
    for (const struct pbtxt_field *field = message->first; field; field = field->next)
        TRY(field_take(b, message, field, rows, target));
    return STATUS_OK;
}
