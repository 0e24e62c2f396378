/* SPDX-License-Identifier: Apache-2.0 */
/* A list of chunks of 64 KiB. An allocation larger than a quarter of that gets its own chunk. */
#include "base/arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"

enum { CHUNK_SIZE = 64 * 1024, LARGE = CHUNK_SIZE / 4, CHUNK_ALIGN = 64 };

struct chunk {
    struct chunk *next;
    size_t used; /* from the chunk's start, this header included */
    size_t size;
};

struct arena {
    struct chunk *chunks; /* the first one is being filled */
    size_t used;
    size_t limit;
};

struct arena *arena_new(size_t limit)
{
    struct arena *arena = calloc(1, sizeof(*arena));
    if (arena)
        arena->limit = limit ? limit : SIZE_MAX;
    return arena;
}

void arena_free(struct arena *arena)
{
    if (!arena)
        return;
    for (struct chunk *c = arena->chunks, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    free(arena);
}

static struct chunk *chunk_new(size_t payload)
{
    size_t size;
    if (!checked_add(payload, CHUNK_ALIGN, &size) || !checked_round_up(size, CHUNK_ALIGN, &size))
        return NULL;
    struct chunk *c = aligned_alloc(CHUNK_ALIGN, size);
    if (!c)
        return NULL;
    *c = (struct chunk){.used = CHUNK_ALIGN, .size = size};
    return c;
}

void *arena_alloc(struct arena *arena, size_t size)
{
    size_t need;
    size_t align = size >= CHUNK_ALIGN ? CHUNK_ALIGN : 16;
    if (!checked_round_up(MAX(size, 1), align, &need) || need > arena->limit - arena->used)
        return NULL;
    struct chunk *c = arena->chunks;
    size_t at = c ? (c->used + align - 1) & ~(align - 1) : 0;
    if (need > LARGE) {
        struct chunk *own = chunk_new(need);
        if (!own)
            return NULL;
        if (c) { /* behind the one being filled, which stays first */
            own->next = c->next;
            c->next = own;
        } else {
            arena->chunks = own;
        }
        c = own;
        at = c->used;
    } else if (!c || at + need > c->size) {
        c = chunk_new(CHUNK_SIZE);
        if (!c)
            return NULL;
        c->next = arena->chunks;
        arena->chunks = c;
        at = c->used;
    }
    c->used = at + need;
    arena->used += need;
    return memset((char *)c + at, 0, need);
}

/* A chunk that is larger than the usual ones holds a single allocation, which fills it. */
bool arena_take(struct arena *arena, const void *data, void **block)
{
    for (struct chunk **at = &arena->chunks; *at; at = &(*at)->next) {
        struct chunk *c = *at;
        if ((const char *)c + CHUNK_ALIGN != data)
            continue;
        if (c->size <= CHUNK_SIZE + CHUNK_ALIGN)
            return false;
        *at = c->next;
        arena->used -= c->used - CHUNK_ALIGN;
        *block = c;
        return true;
    }
    return false;
}

void *arena_array(struct arena *arena, size_t count, size_t size)
{
    size_t bytes;
    return checked_mul(count, size, &bytes) ? arena_alloc(arena, bytes) : NULL;
}

char *arena_strndup(struct arena *arena, const char *text, size_t len)
{
    size_t size = len ? strnlen(text, len) : 0;
    char *copy = arena_alloc(arena, size + 1);
    if (copy && size)
        memcpy(copy, text, size);
    return copy;
}

char *arena_printf(struct arena *arena, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *text = len < 0 ? NULL : arena_alloc(arena, (size_t)len + 1);
    if (!text)
        return NULL;
    va_start(args, fmt);
    vsnprintf(text, (size_t)len + 1, fmt, args);
    va_end(args);
    return text;
}

size_t arena_used(const struct arena *arena)
{
    return arena->used;
}
