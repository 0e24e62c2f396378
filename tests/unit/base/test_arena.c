/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "tests/test.h"

static void allocations_are_zeroed_aligned_and_apart(void **state)
{
    (void)state;
    struct arena *arena = arena_new(0);
    unsigned char *last = NULL;
    for (size_t size = 1; size < 200000; size = size * 2 + 3) {
        unsigned char *p = arena_alloc(arena, size);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % (size >= 64 ? 64 : 16), 0);
        for (size_t i = 0; i < size; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, size);
        if (last)
            assert_int_equal(*last, 0xff);
        last = p;
    }
    arena_free(arena);
}

static void the_limit_holds(void **state)
{
    (void)state;
    struct arena *arena = arena_new(1000);
    assert_non_null(arena_alloc(arena, 512));
    assert_null(arena_alloc(arena, 512));
    assert_non_null(arena_alloc(arena, 128));
    assert_int_equal(arena_used(arena), 640);
    assert_null(arena_alloc(arena, SIZE_MAX));
    assert_null(arena_array(arena, SIZE_MAX / 2, 4));
    arena_free(arena);
    arena_free(NULL);
}

static void strings(void **state)
{
    (void)state;
    struct arena *arena = arena_new(0);
    assert_string_equal(arena_strndup(arena, "conv1xyz", 5), "conv1");
    char *name = malloc(4); /* nothing behind the terminator is read */
    memcpy(name, "abc", 4);
    assert_string_equal(arena_strndup(arena, name, 4096), "abc");
    free(name);
    assert_string_equal(arena_strndup(arena, NULL, 0), "");
    assert_string_equal(arena_printf(arena, "%s + %s", "conv1", "relu1"), "conv1 + relu1");
    arena_free(arena);
}

/* A large allocation outlives its arena once it is taken; what lies among others cannot be. */
static void large_allocations_can_be_taken(void **state)
{
    (void)state;
    struct arena *arena = arena_new(0);
    char *before = arena_alloc(arena, 100), *large = arena_alloc(arena, 1 << 20);
    char *after = arena_alloc(arena, 1 << 16), elsewhere[64];
    void *block = NULL, *other = NULL;
    size_t used = arena_used(arena);
    assert_false(arena_take(arena, before, &other));
    assert_false(arena_take(arena, large + 64, &other));
    assert_false(arena_take(arena, elsewhere, &other));
    memset(large, 7, 1 << 20);
    assert_true(arena_take(arena, large, &block));
    assert_false(arena_take(arena, large, &other));
    assert_null(other);
    assert_int_equal(arena_used(arena), used - (1 << 20));
    memset(after, 1, 1 << 16);
    memset(before, 1, 100);
    arena_free(arena);
    assert_int_equal(large[(1 << 20) - 1], 7);
    free(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(allocations_are_zeroed_aligned_and_apart),
        cmocka_unit_test(the_limit_holds),
        cmocka_unit_test(strings),
        cmocka_unit_test(large_allocations_can_be_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
