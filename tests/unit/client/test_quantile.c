/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "base/histogram.h"
#include "client/client.h"
#include "tests/test.h"

enum { N = 30000 };

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* The buckets that a server would send for these values. */
static struct inferd_histogram of(const uint64_t *values, uint32_t n, struct inferd_bucket *buckets)
{
    static uint64_t counts[HISTOGRAM_SHARED_BUCKETS];
    struct inferd_histogram h = {0, buckets};
    for (uint32_t i = 0; i < HISTOGRAM_SHARED_BUCKETS; i++)
        counts[i] = 0;
    for (uint32_t i = 0; i < n; i++)
        counts[histogram_shared_bucket(values[i])]++;
    for (uint32_t i = 0; i < HISTOGRAM_SHARED_BUCKETS; i++)
        if (counts[i])
            buckets[h.n_buckets++] = (struct inferd_bucket){histogram_shared_low(i),
                                                            histogram_shared_low(i + 1), counts[i]};
    return h;
}

static void expect(const struct inferd_histogram *now, const struct inferd_histogram *before,
                   uint64_t *values, uint32_t n)
{
    static const double q[] = {0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 1};
    qsort(values, n, sizeof(*values), by_value);
    for (size_t i = 0; i < ARRAY_LEN(q); i++) {
        uint64_t rank = (uint64_t)ceil(q[i] * n - 1e-6), got;
        uint64_t right = values[rank ? rank - 1 : 0];
        got = inferd_histogram_quantile(now, before, q[i]);
        if (fabs((double)got - (double)right) > 2 + (double)right / 32)
            fail_msg("quantile %g: %llu, not %llu", q[i], (unsigned long long)got,
                     (unsigned long long)right);
    }
}

/* The first third is fast, the rest slow: an interval shows nothing of the time before it. */
static void an_interval_is_the_difference_of_two_looks(void **state)
{
    (void)state;
    static uint64_t values[N];
    static struct inferd_bucket early[HISTOGRAM_SHARED_BUCKETS], late[HISTOGRAM_SHARED_BUCKETS];
    srand(7);
    for (int i = 0; i < N; i++)
        values[i] = (uint64_t)exp((i < N / 3 ? 3 : 9) + (double)rand() / RAND_MAX * 8);
    struct inferd_histogram before = of(values, N / 3, early), now = of(values, N, late);
    expect(&now, &before, values + N / 3, N - N / 3);
    expect(&now, NULL, values, N);
}

static void nothing_came(void **state)
{
    (void)state;
    const struct inferd_bucket bucket = {32, 34, 5}, more = {32, 34, 9};
    const struct inferd_histogram none = {0, NULL}, some = {1, &bucket}, later = {1, &more};
    assert_int_equal(inferd_histogram_quantile(&none, NULL, 0.5), 0);
    assert_int_equal(inferd_histogram_quantile(&some, &some, 0.5), 0);
    /* the counts are of different runs of the server */
    assert_int_equal(inferd_histogram_quantile(&some, &later, 0.99), 0);
    assert_int_equal(inferd_histogram_quantile(&later, &some, 1), 33);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_interval_is_the_difference_of_two_looks),
        cmocka_unit_test(nothing_came),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
