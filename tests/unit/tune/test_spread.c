/* SPDX-License-Identifier: Apache-2.0 */
#include <stdatomic.h>

#include "base/compiler.h"
#include "engine/tune/spread.h"
#include "tests/test.h"

enum { MOST = 1000 };

static atomic_uint calls[MOST];

static void count(void *user, uint32_t i)
{
    atomic_fetch_add((atomic_uint *)user + i, 1);
}

static void each_part_is_done_once(void **state UNUSED)
{
    static const uint32_t sizes[] = {0, 1, 2, 7, MOST};
    for (size_t r = 0; r < ARRAY_LEN(sizes); r++) {
        for (int i = 0; i < MOST; i++)
            atomic_store(&calls[i], 0);
        spread(sizes[r], count, calls);
        for (uint32_t i = 0; i < MOST; i++)
            assert_int_equal(atomic_load(&calls[i]), i < sizes[r]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_part_is_done_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
