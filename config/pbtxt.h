/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Protobuf's text format, read into a tree without a schema: what config.pbtxt is written in. The
 * grammar is that of protobuf's own parser, less what no file of ours needs: extensions, Any, and
 * fields by their numbers are refused. Depth, number of fields and memory are bounded.
 *
 * The tree lies in the caller's arena. A value knows its spelling only; config/bind.h gives it a
 * type.
 */
#ifndef INFERD_CONFIG_PBTXT_H
#define INFERD_CONFIG_PBTXT_H

#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"

enum { PBTXT_DEPTH_MAX = 16, PBTXT_FIELDS_MAX = 65536, PBTXT_NAME_MAX = 64 };

enum pbtxt_kind {
    PBTXT_MESSAGE,
    PBTXT_STRING, /* quoted; its bytes are UTF-8 without NUL */
    PBTXT_NUMBER, /* digits, with a '-' if it is negative; maybe a fraction or an exponent */
    PBTXT_WORD,   /* true, KIND_GPU, inf */
};

struct pbtxt_field {
    const char *name; /* NULL for the root */
    size_t line;      /* from 1 */
    enum pbtxt_kind kind;
    const char *spelling;      /* of a scalar; terminated */
    struct pbtxt_field *first; /* of a message: its fields in the file's order */
    struct pbtxt_field *next;
};

/* `name` stands for the file in errors, which say "NAME:LINE: expected ..., got ...". A list
 * [a, b] becomes a field for each of its values. */
enum status pbtxt_parse(const char *name, const void *data, size_t size, struct arena *arena,
                        struct pbtxt_field **out, struct error *err);

#endif
