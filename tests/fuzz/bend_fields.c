/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See bend_fields.h. The code has no schema that says which fields are messages. A field whose
 * bytes read as fields up to its end is taken for a message, and a list of packed numbers is
 * changed as such a list. If the guess is wrong, the result is only accepted less often.
 */
#include "tests/fuzz/bend_fields.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { FIELDS_MAX = 4096, DEPTH_MAX = 12, VARINT_MAX = 10 };

struct field {
    size_t begin, end; /* of the whole field */
    size_t value;      /* where the value begins: behind the tag and, if there is one, the length */
    uint32_t wire, number;
};

struct bend {
    uint64_t random;
    uint8_t *out; /* as large as `max` */
    size_t max;
};

static uint64_t draw(struct bend *b)
{
    b->random ^= b->random << 13;
    b->random ^= b->random >> 7;
    b->random ^= b->random << 17;
    return b->random;
}

static bool varint_get(const uint8_t *data, size_t size, size_t *at, uint64_t *out)
{
    uint64_t value = 0;
    for (unsigned shift = 0; *at < size && shift < 64; shift += 7) {
        uint8_t byte = data[(*at)++];
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = value;
            return true;
        }
    }
    return false;
}

static size_t varint_put(uint8_t *to, uint64_t value)
{
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        to[n++] = (uint8_t)(value | 0x80);
    to[n++] = (uint8_t)value;
    return n;
}

static bool field_get(const uint8_t *data, size_t size, size_t *at, struct field *f)
{
    uint64_t tag, value;
    f->begin = *at;
    if (!varint_get(data, size, at, &tag) || tag >> 3 == 0 || tag >> 3 > 1000)
        return false;
    f->wire = tag & 7;
    f->number = (uint32_t)(tag >> 3);
    f->value = *at;
    if (f->wire == 0 && !varint_get(data, size, at, &value))
        return false;
    if (f->wire == 1 || f->wire == 5)
        *at += f->wire == 1 ? 8 : 4;
    if (f->wire == 2) {
        if (!varint_get(data, size, at, &value) || value > size - *at)
            return false;
        f->value = *at;
        *at += value;
    }
    f->end = *at;
    return f->wire <= 5 && f->wire != 3 && f->wire != 4 && *at <= size;
}

static uint32_t fields_get(const uint8_t *data, size_t size, struct field *list)
{
    uint32_t n = 0;
    for (size_t at = 0; at < size;)
        if (n == FIELDS_MAX || !field_get(data, size, &at, &list[n++]))
            return 0;
    return n;
}

/* Changes a number by a step, to the end of a range, or in some bits. */
static uint64_t other_number(struct bend *b, uint64_t value)
{
    static const uint64_t ends[] = {0,          1,         2,          8,         64,
                                    255,        256,       65535,      65536,     INT32_MAX,
                                    UINT32_MAX, INT64_MAX, UINT64_MAX, 1ULL << 40};
    switch (draw(b) % 6) {
    case 0:
        return value + 1;
    case 1:
        return value - 1;
    case 2:
        return value * 2;
    case 3:
        return ends[draw(b) % (sizeof(ends) / sizeof(*ends))];
    case 4:
        return draw(b) % 8;
    default:
        return value ^ (uint64_t)1 << draw(b) % 16;
    }
}

/* Puts head, middle and tail one behind the other as the result. */
static size_t join(struct bend *b, const uint8_t *data, size_t head, const uint8_t *middle,
                   size_t n, size_t from, size_t size)
{
    if (head + n + (size - from) > b->max)
        return 0;
    memmove(b->out + head + n, data + from, size - from);
    if (n)
        memmove(b->out + head, middle, n);
    memmove(b->out, data, head);
    return head + n + (size - from);
}

/* Replaces the number at data[begin..end) by another one. */
static size_t bend_number(struct bend *b, const uint8_t *data, size_t size, size_t begin,
                          size_t end)
{
    uint8_t fresh[VARINT_MAX];
    uint64_t value = 0;
    size_t at = begin;
    if (!varint_get(data, end, &at, &value))
        return 0;
    size_t n = varint_put(fresh, other_number(b, value));
    return join(b, data, begin, fresh, n, at, size);
}

static size_t bend_list(struct bend *b, const uint8_t *data, size_t size)
{
    size_t at = 0, begin = 0;
    uint64_t value;
    uint32_t n = 0;
    while (at < size) { /* picks each number with the same chance */
        size_t here = at;
        if (!varint_get(data, size, &at, &value))
            return 0;
        if (draw(b) % ++n == 0)
            begin = here;
    }
    return n ? bend_number(b, data, size, begin, size) : 0;
}

static size_t bend_message(struct bend *b, const uint8_t *data, size_t size, uint32_t depth);

/* Changes something within the value of a field that has a length. */
static size_t bend_inner(struct bend *b, const uint8_t *data, size_t size, const struct field *f,
                         uint32_t depth)
{
    uint8_t *inner = malloc(b->max), *outer = b->out;
    size_t n, head, len = f->end - f->value;
    if (!inner)
        return 0;
    b->out = inner;
    n = depth < DEPTH_MAX ? bend_message(b, data + f->value, len, depth + 1) : 0;
    if (!n)
        n = bend_list(b, data + f->value, len);
    b->out = outer;
    uint8_t *fresh = n ? malloc(n + 2 * VARINT_MAX) : NULL;
    if (fresh) {
        head = varint_put(fresh, f->number << 3 | 2);
        head += varint_put(fresh + head, n);
        memcpy(fresh + head, inner, n);
        n = join(b, data, f->begin, fresh, head + n, f->end, size);
    }
    free(fresh);
    free(inner);
    return fresh ? n : 0;
}

/* Exchanges two neighbouring fields. */
static size_t exchange(struct bend *b, const uint8_t *data, size_t size, const struct field *f)
{
    size_t first = f[0].end - f[0].begin, second = f[1].end - f[1].begin;
    if (size > b->max)
        return 0;
    memcpy(b->out, data, size);
    memcpy(b->out + f->begin, data + f[1].begin, second);
    memcpy(b->out + f->begin + second, data + f->begin, first);
    return size;
}

static size_t bend_message(struct bend *b, const uint8_t *data, size_t size, uint32_t depth)
{
    struct field *list = malloc(FIELDS_MAX * sizeof(*list));
    uint32_t n = list ? fields_get(data, size, list) : 0;
    size_t made = 0;
    if (n) {
        uint32_t at = (uint32_t)(draw(b) % n);
        const struct field *f = &list[at];
        uint64_t how = draw(b) % 16;
        if (how == 0)
            made = join(b, data, f->begin, NULL, 0, f->end, size);
        else if (how == 1)
            made = join(b, data, f->end, data + f->begin, f->end - f->begin, f->end, size);
        else if (how == 2 && at + 1 < n)
            made = exchange(b, data, size, f);
        else if (f->wire == 0)
            made = bend_number(b, data, size, f->value, f->end);
        else if (f->wire == 2)
            made = bend_inner(b, data, size, f, depth);
    }
    free(list);
    return made;
}

size_t bend_fields(uint8_t *message, size_t size, size_t max, unsigned seed)
{
    struct bend b = {.random = seed * 2654435761u + 88172645463325252u, .max = max};
    b.out = malloc(max ? max : 1);
    size_t made = b.out ? bend_message(&b, message, size, 0) : 0;
    if (made)
        memcpy(message, b.out, made);
    free(b.out);
    return made;
}
