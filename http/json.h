/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads JSON as a row of events, a slice at a time, and writes it. The grammar, strings and UTF-8
 * are yajl's. It was chosen because it hands numbers over as they are written, so that nothing of
 * an INT64, a UINT64 or an FP64 is lost on the way; because it builds no tree, whose size a peer
 * would choose; and because it can be fed in pieces.
 *
 * All memory is bounded: yajl takes it from a pool inside struct json_reader, which has a place for
 * every text of at most JSON_TEXT_MOST bytes; longer texts and numbers are refused, and so is what
 * is nested more than JSON_DEPTH_MOST deep. Nothing is allocated elsewhere.
 */
#ifndef INFERD_HTTP_JSON_H
#define INFERD_HTTP_JSON_H

#include "base/dtype.h"
#include "proto/message.h"

enum {
    JSON_DEPTH_MOST = 16,
    JSON_TEXT_MOST = 16 * 1024,
    JSON_STEP = 8 * 1024, /* bytes that yajl is given at a time */
};

enum json_kind {
    JSON_NULL,
    JSON_FALSE,
    JSON_TRUE,
    JSON_NUMBER, /* the text of the number, as it came */
    JSON_STRING, /* decoded; valid during the event only */
    JSON_KEY,    /* likewise */
    JSON_OBJECT,
    JSON_OBJECT_END,
    JSON_ARRAY,
    JSON_ARRAY_END,
};

struct json_event {
    enum json_kind kind;
    struct message_text text;
    size_t end;     /* where the input goes on behind this event */
    uint32_t depth; /* of objects and arrays around it; for one that begins or ends, itself not
                     * counted */
};

/* Takes an event. An error ends the reading. */
typedef enum status json_take_fn(void *user, const struct json_event *event, struct error *err);

struct json_reader;

/* Bytes of a reader, for input of `size` bytes in all; and a reader made in such memory, aligned as
 * malloc does. */
size_t json_reader_size(size_t size);
struct json_reader *json_reader_init(void *memory, size_t memory_size, json_take_fn *take,
                                     void *user);
/* Gives the next bytes of the input, at most JSON_STEP. INVALID_ARGUMENT: they are no JSON, or
 * break a limit; else what `take` says. */
enum status json_reader_feed(struct json_reader *reader, const void *data, size_t size,
                             struct error *err);
/* The input is over: it must have been one whole value. */
enum status json_reader_end(struct json_reader *reader, struct error *err);

/* --- elements of tensors --- */

/* Writes a JSON number (or true, false, for BOOL) as an element of that type; `name` is the
 * tensor's, for errors. Integers must be written as integers and be within the type's range; floats
 * are rounded once, to the nearest. */
enum status json_element_read(enum json_kind kind, struct message_text text, enum dtype dtype,
                              void *to, struct message_text name, struct error *err);

/* The most bytes that json_element_write writes. */
enum { JSON_ELEMENT_MOST = 32 };

/* Writes an element as text; returns the length. The text of a float has as few digits as bring
 * back the same value and is never taken for an integer; what is no number is written NaN, Infinity
 * and -Infinity, as Triton and Python do. */
size_t json_element_write(enum dtype dtype, const void *from, char *out);

/* --- writing --- */

/* Writes into memory of a fixed size; `full` is set when something did not fit, and nothing is
 * written from then on. */
struct json_writer {
    char *at, *end;
    bool full;
};

void json_raw(struct json_writer *w, const char *text, size_t len);
void json_text(struct json_writer *w, const char *text);           /* as it is */
void json_string(struct json_writer *w, struct message_text text); /* in quotes, escaped */
void json_uint(struct json_writer *w, uint64_t value);
void json_int(struct json_writer *w, int64_t value);

#endif
