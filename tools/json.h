/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes one JSON value to a file, key by key, indented. `key` is NULL within a list. Strings are
 * escaped, and each byte that is not UTF-8 becomes U+FFFD; numbers that JSON has no word for (nan,
 * inf) become null.
 *
 *   struct json j;
 *   json_init(&j, stdout);
 *   json_object(&j, NULL);
 *   json_text(&j, "name", "x");
 *   json_list(&j, "dims");
 *   json_int(&j, NULL, 3);
 *   json_end(&j);
 *   json_end(&j);
 */
#ifndef INFERD_TOOLS_JSON_H
#define INFERD_TOOLS_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/shape.h"

enum { JSON_DEPTH_MAX = 16 };

struct json {
    FILE *file;
    unsigned depth;
    bool compact;                  /* one line; set it after json_init */
    bool some[JSON_DEPTH_MAX + 1]; /* this level has an entry already */
    char close[JSON_DEPTH_MAX + 1];
};

void json_init(struct json *json, FILE *file);
void json_object(struct json *json, const char *key);
void json_list(struct json *json, const char *key);
void json_end(struct json *json); /* of the innermost object or list; the last one ends the line */
void json_text(struct json *json, const char *key, const char *value);
void json_int(struct json *json, const char *key, int64_t value);
void json_uint(struct json *json, const char *key, uint64_t value);
void json_real(struct json *json, const char *key, double value);
void json_bool(struct json *json, const char *key, bool value);
void json_shape(struct json *json, const char *key, const struct shape *shape);

#endif
