/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads protobuf's wire format in place, a field at a time, where something must be known of a
 * message before or besides its decoding by nanopb. Each call costs the same whatever the field
 * holds.
 * Private to proto/. The format: https://protobuf.dev/programming-guides/encoding/
 */
#ifndef INFERD_PROTO_WIRE_H
#define INFERD_PROTO_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum wire_type {
    WIRE_VARINT = 0,
    WIRE_64 = 1,
    WIRE_BYTES = 2,
    WIRE_32 = 5,
};

enum { WIRE_VARINT_MAX = 10 }; /* bytes */

/* What is left of a message. */
struct wire {
    const uint8_t *at, *end;
};

struct wire_field {
    uint32_t number; /* not 0 */
    enum wire_type type;
    struct wire value; /* the encoded number; of WIRE_BYTES the bytes behind the length */
};

static inline struct wire wire_of(const void *data, size_t size)
{
    const uint8_t *at = data;
    return (struct wire){.at = at, .end = size ? at + size : at};
}

static inline size_t wire_left(const struct wire *w)
{
    return (size_t)(w->end - w->at);
}

/* wire_varint for numbers of any length. */
bool wire_varint_long(struct wire *w, uint64_t *value);

/* Reads a number; false if it has more than ten bytes or 64 bits, or is not whole. */
static inline bool wire_varint(struct wire *w, uint64_t *value)
{
    if (w->at < w->end && *w->at < 0x80) {
        *value = *w->at++;
        return true;
    }
    if (w->end - w->at >= 2 && w->at[1] < 0x80) { /* the length of a payload of a few KiB */
        *value = (uint64_t)(w->at[0] & 0x7f) | (uint64_t)w->at[1] << 7;
        w->at += 2;
        return true;
    }
    return wire_varint_long(w, value);
}

/* The next `size` bytes as a field's value. */
static inline bool wire_take(struct wire *w, uint64_t size, struct wire *value)
{
    if (size > wire_left(w))
        return false;
    *value = (struct wire){.at = w->at, .end = w->at + size};
    w->at += size;
    return true;
}

/* Steps over the next field; false if nothing is left, or no whole field follows. A group does not
 * count as a field (R6 of docs/operations.md). */
static inline bool wire_next(struct wire *w, struct wire_field *field)
{
    uint64_t key, number;
    if (!wire_varint(w, &key) || key > UINT32_MAX || key >> 3 == 0)
        return false;
    field->number = (uint32_t)(key >> 3);
    field->type = (enum wire_type)(key & 7);
    if (field->type == WIRE_BYTES)
        return wire_varint(w, &number) && wire_take(w, number, &field->value);
    if (field->type == WIRE_VARINT) {
        field->value.at = w->at;
        bool whole = wire_varint(w, &number);
        field->value.end = w->at;
        return whole;
    }
    return (field->type == WIRE_64 || field->type == WIRE_32) &&
           wire_take(w, field->type == WIRE_64 ? 8 : 4, &field->value);
}

#endif
