/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gives the fields of a text (config/pbtxt.h) their types, by tables: one row says what a field is
 * called, what it may be, and where it goes in a plain struct. Nothing is swallowed: a field that
 * no row knows, and one whose row says that it has no effect here, is named in a warning; one that
 * would change what a model computes, and is not supported, is an error.
 */
#ifndef INFERD_CONFIG_BIND_H
#define INFERD_CONFIG_BIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/log.h"
#include "config/pbtxt.h"

enum bind_kind {
    BIND_TEXT,    /* const char * */
    BIND_BOOL,    /* bool */
    BIND_NUMBER,  /* int64_t, least to most */
    BIND_WORD,    /* int: one of `words` */
    BIND_MESSAGE, /* a struct by `rows`, and a bool `seen` that it is there */
    BIND_UNUSED,  /* has no effect; `why` */
    BIND_REFUSED, /* `why` */
};

/* Values of a field that may come several times; in the arena. */
struct bind_list {
    uint32_t n;
    void *items; /* of the row's type; messages of item_size bytes */
};

struct bind_row {
    const char *name; /* NULL ends the table */
    enum bind_kind kind;
    bool repeated; /* into a struct bind_list of at most `most_items` */
    size_t offset;
    int64_t least, most;
    const char *const *words; /* up to NULL; the value is the index */
    const struct bind_row *rows;
    size_t item_size;
    size_t seen; /* offset in the owner of the bool; not for repeated ones */
    uint32_t most_items;
    const char *why;
};

struct binding {
    const char *name; /* the file's, for errors and warnings */
    struct arena *arena;
    const struct log_sink *log; /* gets the warnings */
    struct error *err;
    bool quoted; /* words and numbers may stand in quotes */
};

/* Fills `target`, which is zero, or has the defaults. */
enum status bind_message(const struct binding *b, const struct pbtxt_field *message,
                         const struct bind_row *rows, void *target);

/* The error "FILE:LINE: FIELD: expected ..., got ...". */
enum status bind_refuse(const struct binding *b, const struct pbtxt_field *field,
                        const char *expected, ...) PRINTF(3, 4);

#endif
