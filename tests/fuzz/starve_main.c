/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Feeds a fuzz target each file of its arguments again and again; each time another allocation
 * fails, from the first to the last. It is linked with --wrap for the allocating functions. An
 * arena takes memory in large blocks, so allocations from arenas are made to fail separately.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "tests/fuzz/files.h"

enum { MAX_FAILED = 2000 }; /* allocations of one file */

static bool armed;
static uint32_t calls, failing, n_inputs;

static bool fails(void)
{
    return armed && ++calls == failing;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
void *__real_arena_alloc(struct arena *arena, size_t size);
void *__real_arena_array(struct arena *arena, size_t count, size_t size);
char *__real_arena_strndup(struct arena *arena, const char *text, size_t len);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void *__wrap_arena_alloc(struct arena *arena, size_t size);
void *__wrap_arena_array(struct arena *arena, size_t count, size_t size);
char *__wrap_arena_strndup(struct arena *arena, const char *text, size_t len);

void *__wrap_malloc(size_t size)
{
    return fails() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails() ? NULL : __real_realloc(old, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    return fails() ? NULL : __real_aligned_alloc(align, size);
}

void *__wrap_arena_alloc(struct arena *arena, size_t size)
{
    return fails() ? NULL : __real_arena_alloc(arena, size);
}

void *__wrap_arena_array(struct arena *arena, size_t count, size_t size)
{
    return fails() ? NULL : __real_arena_array(arena, count, size);
}

char *__wrap_arena_strndup(struct arena *arena, const char *text, size_t len)
{
    return fails() ? NULL : __real_arena_strndup(arena, text, len);
}

static void each(uint8_t *data, size_t size)
{
    uint8_t *exact = __real_malloc(size ? size : 1);
    if (!exact)
        abort();
    memcpy(exact, data, size);
    bool failed = true;
    for (failing = 1; failed && failing <= MAX_FAILED; failing++) {
        calls = 0;
        armed = true;
        LLVMFuzzerTestOneInput(exact, size);
        armed = false;
        failed = calls >= failing;
        n_inputs++;
    }
    free(exact);
}

int main(int argc, char **argv)
{
    uint32_t n = files_walk(argc, argv, each);
    printf("%u failures in %u files\n", n_inputs, n);
    return n_inputs ? 0 : 1;
}
