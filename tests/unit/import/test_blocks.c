/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/import/blocks.h"

#include <stdint.h>
#include <string.h>

#include "base/compiler.h"
#include "tests/test.h"

static void a_block_goes_when_its_last_name_goes(void **state UNUSED)
{
    struct blocks *b = blocks_new();
    assert_non_null(b);
    char *at = blocks_take(b, 20000);
    assert_non_null(at);
    assert_int_equal((uintptr_t)at % 64, 0);
    memset(at, 1, 20000);
    assert_true(blocks_hold(b, at));
    assert_true(blocks_hold(b, at + 19999)); /* a part of it under another name */
    blocks_drop(b, at);
    assert_int_equal(blocks_sweep(b), 0);
    blocks_drop(b, at + 5);
    assert_int_equal(blocks_sweep(b), 20000);
    assert_int_equal(blocks_sweep(b), 0);
    assert_ptr_equal(blocks_take(b, 19000), at);
    assert_int_equal(blocks_sweep(b), 19000); /* no name ever had it */
    blocks_free(b);
}

static void what_lies_elsewhere_is_in_no_block(void **state UNUSED)
{
    static const char elsewhere[64];
    struct blocks *b = blocks_new();
    assert_non_null(b);
    assert_false(blocks_hold(b, NULL));
    assert_false(blocks_hold(b, elsewhere));
    char *at = blocks_take(b, 1 << 14);
    assert_non_null(at);
    assert_false(blocks_hold(b, elsewhere));
    assert_false(blocks_hold(b, at - 1));
    assert_true(blocks_hold(b, at));
    assert_false(blocks_hold(b, at + (1 << 14)));
    blocks_free(b);
}

/* Blocks of many sizes, some of which live on: none may overlap. */
static void blocks_of_many_sizes_are_apart(void **state UNUSED)
{
    enum { N = 64 };
    struct blocks *b = blocks_new();
    unsigned char *at[N];
    size_t size[N];
    assert_non_null(b);
    for (uint32_t round = 0; round < 20; round++) {
        for (uint32_t i = 0; i < N; i++) {
            size[i] = 1 + (i * 7919 + round * 104729) % 100000;
            at[i] = blocks_take(b, size[i]);
            assert_non_null(at[i]);
            memset(at[i], (int)i, size[i]);
            if (i % 3) {
                assert_true(blocks_hold(b, at[i]));
            } else {
                assert_int_equal(blocks_sweep(b), size[i]);
            }
        }
        for (uint32_t i = 0; i < N; i++)
            for (size_t k = 0; i % 3 && k < size[i]; k += 97)
                assert_int_equal(at[i][k], i);
        blocks_rest(b);
    }
    blocks_free(b);
}

static void what_is_not_used_for_long_is_freed(void **state UNUSED)
{
    struct blocks *b = blocks_new();
    assert_non_null(b);
    char *first = blocks_take(b, 1 << 20);
    assert_non_null(first);
    blocks_rest(b);
    for (int i = 0; i < 100; i++) { /* the sanitizer would say if it were used after that */
        char *small = blocks_take(b, 1 << 13);
        assert_non_null(small);
        assert_ptr_not_equal(small, first);
        blocks_rest(b);
    }
    /* more than is kept from one request to the next */
    for (int i = 0; i < 3; i++)
        assert_non_null(blocks_take(b, 1 << 25));
    blocks_rest(b);
    blocks_free(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_block_goes_when_its_last_name_goes),
        cmocka_unit_test(what_lies_elsewhere_is_in_no_block),
        cmocka_unit_test(blocks_of_many_sizes_are_apart),
        cmocka_unit_test(what_is_not_used_for_long_is_freed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
