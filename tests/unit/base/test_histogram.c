/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/histogram.h"
#include "tests/test.h"

static void expect_near(uint64_t got, uint64_t want, double relative)
{
    double off = fabs((double)got - (double)want);
    if (off > relative * (double)want)
        fail_msg("%llu where %llu should be", (unsigned long long)got, (unsigned long long)want);
}

static void an_empty_one_gives_zeros(void **state)
{
    (void)state;
    static struct histogram h;
    histogram_init(&h);
    assert_int_equal(histogram_quantile(&h, 0.5), 0);
    assert_int_equal(histogram_quantile(&h, 1), 0);
    assert_true(histogram_mean(&h) == 0);
    assert_int_equal(h.max, 0);
}

static void small_values_are_exact(void **state)
{
    (void)state;
    static struct histogram h;
    histogram_init(&h);
    for (uint64_t i = 1; i <= 100; i++)
        histogram_record(&h, i);
    assert_int_equal(histogram_quantile(&h, 0), 1);
    assert_int_equal(histogram_quantile(&h, 0.01), 1);
    assert_int_equal(histogram_quantile(&h, 0.5), 50);
    assert_int_equal(histogram_quantile(&h, 0.501), 51);
    assert_int_equal(histogram_quantile(&h, 0.99), 99);
    assert_int_equal(histogram_quantile(&h, 1), 100);
    assert_true(fabs(histogram_mean(&h) - 50.5) < 1e-9);
}

/* A single value between two others comes back from its bucket within 1%, wherever it lies. */
static void every_magnitude_is_within_one_percent(void **state)
{
    (void)state;
    static struct histogram h;
    srand(7);
    for (uint32_t bit = 0; bit < 64; bit++) {
        for (int k = 0; k < 200; k++) {
            uint64_t low = UINT64_C(1) << bit;
            uint64_t value = low + (((uint64_t)rand() << 33) ^ ((uint64_t)rand() << 11)) % low;
            histogram_init(&h);
            histogram_record(&h, 0);
            histogram_record(&h, value);
            histogram_record(&h, UINT64_MAX);
            expect_near(histogram_quantile(&h, 0.5), value, 0.008);
        }
    }
}

static void the_extremes_are_kept(void **state)
{
    (void)state;
    static struct histogram h;
    histogram_init(&h);
    histogram_record(&h, 123456789);
    for (int q = 0; q <= 10; q++)
        assert_int_equal(histogram_quantile(&h, q / 10.0), 123456789);
    histogram_record(&h, UINT64_MAX);
    assert_true(h.max == UINT64_MAX);
    assert_true(histogram_quantile(&h, 1) == UINT64_MAX);
    assert_int_equal(h.min, 123456789);
}

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void quantiles_are_those_of_the_sorted_values(void **state)
{
    (void)state;
    enum { N = 20000 };
    static struct histogram h, parts[3];
    static uint64_t values[N];
    static const double q[] = {0.001, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999};
    srand(3);
    histogram_init(&h);
    for (int i = 0; i < 3; i++)
        histogram_init(&parts[i]);
    for (int i = 0; i < N; i++) {
        values[i] = (uint64_t)exp((double)rand() / RAND_MAX * 25);
        histogram_record(&parts[i % 3], values[i]);
    }
    for (int i = 0; i < 3; i++)
        histogram_merge(&h, &parts[i]);
    qsort(values, N, sizeof(values[0]), by_value);
    assert_int_equal(h.count, N);
    assert_true(h.min == values[0] && h.max == values[N - 1]);
    for (size_t i = 0; i < ARRAY_LEN(q); i++) {
        uint64_t rank = (uint64_t)ceil(q[i] * N - 1e-6);
        expect_near(histogram_quantile(&h, q[i]), values[rank - 1], 0.008);
    }
}

static void merging_is_recording_in_one(void **state)
{
    (void)state;
    static struct histogram a, b, all;
    histogram_init(&a);
    histogram_init(&b);
    histogram_init(&all);
    for (uint64_t i = 0; i < 5000; i++) {
        histogram_record(i % 2 ? &a : &b, i * i);
        histogram_record(&all, i * i);
    }
    histogram_merge(&a, &b);
    assert_int_equal(a.count, all.count);
    assert_true(a.sum == all.sum && a.min == all.min && a.max == all.max);
    assert_memory_equal(a.bucket, all.bucket, sizeof(a.bucket));
    histogram_init(&b);
    histogram_merge(&a, &b); /* an empty one changes nothing */
    assert_true(a.min == all.min && a.max == all.max && a.count == all.count);
}

static void shared_buckets_have_no_gaps_and_no_more_than_a_32nd(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < HISTOGRAM_SHARED_BUCKETS; i++) {
        uint64_t low = histogram_shared_low(i), end = histogram_shared_low(i + 1);
        assert_int_equal(histogram_shared_bucket(low), i);
        assert_int_equal(histogram_shared_bucket(end - 1), i);
        assert_true(end - low <= MAX(low / 32, (uint64_t)2));
    }
    assert_true(histogram_shared_low(HISTOGRAM_SHARED_BUCKETS) == UINT64_C(1) << 37);
    assert_int_equal(histogram_shared_bucket(UINT64_MAX), HISTOGRAM_SHARED_BUCKETS - 1);
    static struct histogram_shared h;
    histogram_shared_add(&h, histogram_shared_bucket(1000), 3);
    histogram_shared_add(&h, histogram_shared_bucket(1001), 4);
    assert_int_equal(atomic_load(&h.bucket[histogram_shared_bucket(1000)]), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_one_gives_zeros),
        cmocka_unit_test(small_values_are_exact),
        cmocka_unit_test(every_magnitude_is_within_one_percent),
        cmocka_unit_test(the_extremes_are_kept),
        cmocka_unit_test(quantiles_are_those_of_the_sorted_values),
        cmocka_unit_test(merging_is_recording_in_one),
        cmocka_unit_test(shared_buckets_have_no_gaps_and_no_more_than_a_32nd),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
