/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of ranges in memory, and their writer; see table.h. parse.c reads the text. */
#include "engine/quant/table.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"

#define HASH_FUNCTION(key, len, hash) ((hash) = hash_fnv1a((key), (len)))
#include "base/hash.h"

struct item {
    struct quant_row row;
    uint32_t index;
    UT_hash_handle hh;
};

struct quant_table {
    struct arena *arena;
    char model[QUANT_DIGEST_MAX];
    struct item *items; /* hash table by name */
    struct item **list;
    uint32_t n, cap;
};

struct quant_table *quant_table_new(const char *model)
{
    struct quant_table *t = calloc(1, sizeof(*t));
    if (!t || !(t->arena = arena_new(0))) {
        free(t);
        return NULL;
    }
    snprintf(t->model, sizeof(t->model), "%s", model);
    return t;
}

void quant_table_free(struct quant_table *t)
{
    if (!t)
        return;
    HASH_CLEAR(hh, t->items);
    arena_free(t->arena);
    free(t->list);
    free(t);
}

void quant_table_cleanup(struct quant_table **at)
{
    quant_table_free(*at);
}

const char *quant_table_model(const struct quant_table *t)
{
    return t->model;
}

uint32_t quant_table_size(const struct quant_table *t)
{
    return t->n;
}

const struct quant_row *quant_table_at(const struct quant_table *t, uint32_t index)
{
    return &t->list[index]->row;
}

static struct item *find(const struct quant_table *t, const char *name)
{
    struct item *item;
    HASH_FIND(hh, t->items, name, strlen(name), item);
    return item;
}

const struct quant_row *quant_table_find(const struct quant_table *t, const char *name,
                                         uint32_t *index)
{
    const struct item *item = find(t, name);
    if (item && index)
        *index = item->index;
    return item ? &item->row : NULL;
}

bool quant_row_set_range(struct quant_row *row, float low, float high)
{
    bool has_sign = low < 0;
    float step = has_sign ? fmaxf(-low, high) / 127 : high / 255;
    if (!isfinite(low) || !isfinite(high) || low > high || !(step >= FLT_MIN))
        return false;
    row->is_range = true;
    row->low = low;
    row->high = high;
    row->dtype = has_sign ? DTYPE_I8 : DTYPE_U8;
    row->step = step;
    row->zero = 0;
    return true;
}

/* --- adding --- */

static bool grow(struct quant_table *t)
{
    uint32_t cap = t->cap ? 2 * t->cap : 64;
    if (t->n < t->cap)
        return true;
    struct item **list = realloc(t->list, cap * sizeof(struct item *));
    if (!list)
        return false;
    t->list = list;
    t->cap = cap;
    return true;
}

static enum status add(struct quant_table *t, const struct quant_row *row, struct error *err)
{
    struct item *item = arena_alloc(t->arena, sizeof(*item));
    char *name = arena_strndup(t->arena, row->name, strlen(row->name));
    if (t->n == QUANT_ROWS_MAX)
        return error_set(err, STATUS_OUT_OF_RANGE, "ranges: more than %d tensors", QUANT_ROWS_MAX);
    if (!item || !name || !grow(t))
        return error_no_memory(err, "ranges");
    *item = (struct item){.row = *row, .index = t->n};
    item->row.name = name;
    HASH_ADD_KEYPTR(hh, t->items, name, strlen(name), item);
    if (!HASH_ADDED(item))
        return error_no_memory(err, "ranges");
    t->list[t->n++] = item;
    return STATUS_OK;
}

enum status quant_table_add(struct quant_table *t, const struct quant_row *row, struct error *err)
{
    const struct item *there = find(t, row->name);
    if (!there)
        return add(t, row, err);
    char where[32] = "";
    if (there->row.line)
        snprintf(where, sizeof(where), " in line %u", there->row.line);
    return error_set(err, STATUS_ALREADY_EXISTS, "tensor '%.80s' has a range already%s", row->name,
                     where);
}

static bool is_any(const char *model)
{
    return strcmp(model, "any") == 0;
}

enum status quant_table_merge(struct quant_table *t, const struct quant_table *other,
                              struct error *err)
{
    if (!is_any(t->model) && !is_any(other->model) && strcmp(t->model, other->model) != 0)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "ranges of two models: one table is of model %s, the other of %s",
                         t->model, other->model);
    if (is_any(t->model))
        memcpy(t->model, other->model, sizeof(t->model));
    for (uint32_t i = 0; i < other->n; i++) {
        const struct quant_row *row = &other->list[i]->row;
        struct item *there = find(t, row->name);
        if (!there) {
            TRY(add(t, row, err));
            continue;
        }
        const char *name = there->row.name;
        there->row = *row;
        there->row.name = name;
    }
    return STATUS_OK;
}

/* --- writing --- */

static void drop_arena(struct arena **arena)
{
    arena_free(*arena);
}

static bool is_plain(const char *name)
{
    for (const char *c = name; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f || strchr("\"#\\", *c))
            return false;
    return *name;
}

/* The name as it stands in the text; NULL: no memory. */
static char *quoted(struct arena *arena, const char *name)
{
    size_t n = 0, len = strlen(name);
    char *text = arena_alloc(arena, 4 * len + 3);
    if (!text || is_plain(name))
        return text ? memcpy(text, name, len + 1) : NULL;
    text[n++] = '"';
    for (const char *c = name; *c; c++) {
        if ((unsigned char)*c < ' ' || *c == 0x7f) {
            n += (size_t)snprintf(text + n, 5, "\\x%02x", (unsigned char)*c);
            continue;
        }
        if (*c == '"' || *c == '\\')
            text[n++] = '\\';
        text[n++] = *c;
    }
    text[n++] = '"';
    text[n] = '\0';
    return text;
}

static void format_what(const struct quant_row *row, char text[64])
{
    if (row->dtype == DTYPE_NONE)
        snprintf(text, 64, "keep");
    else if (row->is_range)
        snprintf(text, 64, "range %.9g %.9g", (double)row->low, (double)row->high);
    else
        snprintf(text, 64, "%s %.9g %d", row->dtype == DTYPE_I8 ? "int8" : "uint8",
                 (double)row->step, row->zero);
}

static enum status put(struct file_writer *writer, const char *text, struct error *err)
{
    if (!text)
        return error_no_memory(err, "ranges");
    return file_writer_put(writer, text, strlen(text), err);
}

static enum status put_row(struct file_writer *writer, struct arena *arena,
                           const struct quant_row *row, struct error *err)
{
    char what[64], samples[24] = "-";
    char *name = quoted(arena, row->name);
    format_what(row, what);
    if (row->samples)
        snprintf(samples, sizeof(samples), "%llu", (unsigned long long)row->samples);
    if (!name)
        return error_no_memory(err, "ranges");
    return put(writer,
               arena_printf(arena, row->source[0] ? "%-40s %-32s %-16s %s\n" : "%-40s %s\n", name,
                            what, row->source, samples),
               err);
}

enum status quant_table_write(struct file_writer *writer, const struct quant_table *t,
                              const char *remark, struct error *err)
{
    CLEANUP(drop_arena) struct arena *arena = arena_new(0);
    if (!arena)
        return error_no_memory(err, "ranges");
    TRY(put(writer, "inferd ranges 1\n", err));
    TRY(put(writer, arena_printf(arena, "model %s\n", t->model), err));
    if (remark)
        TRY(put(writer, arena_printf(arena, "# %s\n", remark), err));
    TRY(put(writer,
            arena_printf(arena, "%-40s %-32s %-16s %s\n", "# tensor", "what", "method", "samples"),
            err));
    for (uint32_t i = 0; i < t->n; i++)
        TRY(put_row(writer, arena, &t->list[i]->row, err));
    return file_writer_commit(writer, err);
}
