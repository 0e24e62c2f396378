/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "tests/test.h"
#include "tools/samples.h"

static struct error err;

static struct samples *fresh(uint32_t capacity)
{
    static struct samples all[8];
    static uint32_t next;
    struct samples *s = &all[next++ % ARRAY_LEN(all)];
    samples_deinit(s);
    assert_int_equal(samples_init(s, capacity, &err), STATUS_OK);
    return s;
}

static void quantiles_are_values_that_were_measured(void **state)
{
    (void)state;
    struct samples *s = fresh(100);
    for (uint64_t i = 100; i > 0; i--)
        samples_add(s, 1000003 * i);
    samples_sort(s);
    assert_int_equal(samples_quantile(s, 0), 1000003);
    assert_int_equal(samples_quantile(s, 0.01), 1000003);
    assert_int_equal(samples_quantile(s, 0.5), 50 * 1000003);
    assert_int_equal(samples_quantile(s, 0.501), 51 * 1000003);
    assert_int_equal(samples_quantile(s, 0.99), 99 * 1000003);
    assert_int_equal(samples_quantile(s, 1), 100 * 1000003);
    assert_true(fabs(samples_mean(s) - 50.5 * 1000003) < 1e-3);
}

static void none_at_all(void **state)
{
    (void)state;
    struct samples *s = fresh(2);
    samples_sort(s);
    assert_int_equal(samples_quantile(s, 0.5), 0);
    assert_true(samples_mean(s) == 0);
    static struct samples zeros;
    samples_deinit(&zeros);
}

/* Beyond its capacity every second measurement goes, so the rest is spread over all of the time. */
static void a_full_one_keeps_an_even_share(void **state)
{
    (void)state;
    enum { N = 1000000 };
    struct samples *s = fresh(1000);
    for (uint64_t i = 1; i <= N; i++)
        samples_add(s, i);
    assert_int_equal(s->stride, 1024);
    assert_int_equal(s->n, (N + 1023) / 1024);
    for (uint32_t i = 0; i < s->n; i++)
        assert_int_equal(s->kept[i], 1 + 1024 * i);
    samples_sort(s);
    assert_int_equal(s->count, N);
    assert_int_equal(s->min, 1);
    assert_int_equal(s->max, N);
    assert_true(fabs((double)samples_quantile(s, 0.5) / N - 0.5) < 0.002);
    assert_true(fabs((double)samples_quantile(s, 0.99) / N - 0.99) < 0.002);
}

/* One set measured four times as many as the other, so its samples weigh four times as much. */
static void merged_ones_weigh_as_much_as_was_measured(void **state)
{
    (void)state;
    struct samples *a = fresh(1024), *b = fresh(1024), *sum = fresh(2048), *small = fresh(512);
    for (uint64_t i = 0; i < 4000; i++)
        samples_add(a, 10);
    for (uint64_t i = 0; i < 1000; i++)
        samples_add(b, 20);
    samples_merge(sum, a);
    samples_merge(sum, b);
    assert_int_equal(sum->count, 5000);
    assert_int_equal(sum->n, 1250);
    samples_sort(sum);
    assert_int_equal(samples_quantile(sum, 0.79), 10);
    assert_int_equal(samples_quantile(sum, 0.81), 20);
    samples_merge(small, sum); /* has no room for all of them */
    assert_true(small->n <= 512 && small->n > 256);
    assert_int_equal(small->count, 5000);
    assert_int_equal(small->max, 20);
}

static int end(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++)
        samples_deinit(fresh(2));
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantiles_are_values_that_were_measured),
        cmocka_unit_test(none_at_all),
        cmocka_unit_test(a_full_one_keeps_an_even_share),
        cmocka_unit_test(merged_ones_weigh_as_much_as_was_measured),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
