/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A text that grows up to a limit, for pages and reports. A step that finds no memory, or no room
 * below the limit, makes the whole text `failed`: later steps then do nothing, and the caller looks
 * once, at the end.
 */
#ifndef INFERD_BASE_TEXT_H
#define INFERD_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

struct text {
    char *data; /* not terminated */
    size_t len, capacity, most;
    bool failed;
};

/* An empty text of at most `most` bytes. */
void text_init(struct text *text, size_t most);
void text_deinit(struct text *text);

void text_bytes(struct text *text, const void *data, size_t size);
void text_put(struct text *text, const char *string);
void text_printf(struct text *text, const char *fmt, ...) PRINTF(2, 3);

/* Writes a string so that it stands for itself: within HTML's text and quoted attributes; within
 * the quotes of JSON, where bytes that are not UTF-8 become U+FFFD; within the quotes of a
 * Prometheus label. */
void text_html(struct text *text, const char *string);
void text_json(struct text *text, const char *string);
void text_label(struct text *text, const char *string);

#endif
