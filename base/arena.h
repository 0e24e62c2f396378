/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bump allocator: many small allocations with one lifetime, freed together. Not thread-safe.
 * Allocations are zeroed and aligned to 64 bytes if at least that large, else to 16.
 */
#ifndef INFERD_BASE_ARENA_H
#define INFERD_BASE_ARENA_H

#include <stdbool.h>
#include <stddef.h>

#include "base/compiler.h"

struct arena;

/* `limit`: the most bytes it may hold, 0 for no limit. NULL if there is no memory. */
struct arena *arena_new(size_t limit);
void arena_free(struct arena *arena);

static inline void arena_cleanup(struct arena **at) /* for CLEANUP (base/compiler.h) */
{
    arena_free(*at);
}

/* NULL if there is no memory or the limit is reached. size 0 gives a unique pointer. */
void *arena_alloc(struct arena *arena, size_t size) MUST_USE;

/* `count` elements of `size`; NULL on overflow too. */
void *arena_array(struct arena *arena, size_t count, size_t size) MUST_USE;

/* A terminated copy of the first `len` bytes, or fewer if the text ends before. */
char *arena_strndup(struct arena *arena, const char *text, size_t len) MUST_USE;
char *arena_printf(struct arena *arena, const char *fmt, ...) PRINTF(2, 3) MUST_USE;

/* Takes an allocation of more than 64 KiB out of the arena. It keeps its place and its contents,
 * and is the caller's: free(*block) frees it. False: `data` is no such allocation of this arena.
 * Takes time in proportion to the number of chunks. */
bool arena_take(struct arena *arena, const void *data, void **block) MUST_USE;

/* Bytes handed out so far, padding included. */
size_t arena_used(const struct arena *arena);

#endif
