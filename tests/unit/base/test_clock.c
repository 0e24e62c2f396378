/* SPDX-License-Identifier: Apache-2.0 */
#include "base/clock.h"
#include "tests/test.h"

static void a_thread_that_sleeps_uses_no_processor(void **state)
{
    (void)state;
    uint64_t begun = clock_now_ns(), used = clock_thread_ns();
    clock_sleep_until(begun + 100 * NS_PER_MS);
    assert_true(clock_now_ns() >= begun + 100 * NS_PER_MS);
    assert_true(clock_thread_ns() - used < 50 * NS_PER_MS);
}

static void a_thread_that_works_uses_it(void **state)
{
    (void)state;
    uint64_t begun = clock_now_ns(), used = clock_thread_ns();
    while (clock_thread_ns() < used + 5 * NS_PER_MS)
        assert_true(clock_now_ns() < begun + 60 * NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_thread_that_sleeps_uses_no_processor),
        cmocka_unit_test(a_thread_that_works_uses_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
