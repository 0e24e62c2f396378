/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A table of ranges: what 8 bits should stand for in each tensor of a model. It is a text that
 * calibration writes, people read and edit, and builds use:
 *
 *     inferd ranges 1
 *     model 5fbd6e1c0a7c4c2f9c1d3a7b8e90f142
 *     # tensor       what               method           samples
 *     input          range -2.12 2.64   entropy          500
 *     "a b"          range 0 6          percentile=99.9  500
 *     relu3          uint8 0.0235 0     user             -
 *     scores         keep
 *
 * `#` begins a comment. The digest is that of the model's file, or the word any for a table by
 * hand. A tensor's name stands in quotes if it holds spaces, quotes, `#` or a backslash; there,
 * \" \\ and \x0a stand for one byte. Behind the name:
 *
 *     range LOW HIGH     from 0 to HIGH in 255 steps (UINT8) if LOW is not below 0, otherwise the
 *                        larger magnitude of the two in 127 steps to either side (INT8); ranges.h
 *                        has what devices may make of it
 *     int8 STEP ZERO     a stored q stands for STEP * (q - ZERO)
 *     uint8 STEP ZERO
 *     keep               the tensor stays a float
 *
 * then, if one likes, where the numbers are from and how many samples were seen (-: not known).
 */
#ifndef INFERD_ENGINE_QUANT_TABLE_H
#define INFERD_ENGINE_QUANT_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/file.h"
#include "engine/quant/histogram.h"

enum {
    QUANT_TABLE_MAX_BYTES = 64 << 20,
    QUANT_ROWS_MAX = 1 << 20,
    QUANT_NAME_MAX = 4096, /* bytes */
    QUANT_DIGEST_MAX = 33,
    QUANT_SOURCE_MAX = 32,
};

struct quant_row {
    const char *name;
    enum dtype dtype; /* INT8, UINT8; NONE: keep */
    bool is_range;    /* `low` and `high` say what step is */
    float low, high;
    float step;                    /* finite, above 0 */
    int32_t zero;                  /* within the type */
    char source[QUANT_SOURCE_MAX]; /* "entropy", "percentile=99.9", "user" */
    uint64_t samples;              /* 0: not known */
    uint32_t line;                 /* of the text; 0: not from a text */
};

struct quant_table;

/* `model`: the digest in hex, or "any". NULL: no memory. */
struct quant_table *quant_table_new(const char *model);
void quant_table_free(struct quant_table *table); /* NULL is fine */
void quant_table_cleanup(struct quant_table **at);

const char *quant_table_model(const struct quant_table *table);
uint32_t quant_table_size(const struct quant_table *table);
/* Rows in the order in which they came. */
const struct quant_row *quant_table_at(const struct quant_table *table, uint32_t index);
/* *index: of the row; may be NULL. NULL: there is no row of this name. */
const struct quant_row *quant_table_find(const struct quant_table *table, const char *name,
                                         uint32_t *index);

/* Sets dtype, step and zero of a row from `low` and `high`. False: the two are not finite, are in
 * the wrong order, or leave no step. */
bool quant_row_set_range(struct quant_row *row, float low, float high) MUST_USE;

/* Copies the row and its name. ALREADY_EXISTS: there is one of this name. */
enum status quant_table_add(struct quant_table *table, const struct quant_row *row,
                            struct error *err);
/* Adds the rows of another table; where both have a row, the other's replaces it. INVALID_ARGUMENT:
 * the tables are of different models. */
enum status quant_table_merge(struct quant_table *table, const struct quant_table *other,
                              struct error *err);

/* `name` stands for the text in errors, which name the line. */
enum status quant_table_parse(const char *name, const void *data, size_t size,
                              struct quant_table **out, struct error *err);
enum status quant_table_read(const char *path, struct quant_table **out, struct error *err);
/* Writes the text and commits the writer. `remark`: a comment in the head; may be NULL. */
enum status quant_table_write(struct file_writer *writer, const struct quant_table *table,
                              const char *remark, struct error *err);

#endif
