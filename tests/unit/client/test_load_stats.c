/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>

#include "client/load/load_stats.h"
#include "tests/test.h"

static struct inferd_response ok(uint32_t batch, uint64_t queue_ns)
{
    return (struct inferd_response){.status = INFERD_OK,
                                    .timing = {.queue_ns = queue_ns, .batch = batch}};
}

static void a_batch_counts_once_however_many_share_it(void **state)
{
    (void)state;
    static struct load_stats s;
    load_stats_init(&s);
    assert_true(load_stats_mean_batch(&s) == 0);
    struct inferd_response r = ok(8, 1000);
    for (int i = 0; i < 8; i++) /* one batch of eight, */
        load_stats_record(&s, &r, 1, 5000);
    r = ok(2, 3000);
    load_stats_record(&s, &r, 2, 5000); /* one of two in one request, */
    r = ok(1, 0);
    for (int i = 0; i < 2; i++) /* and two of one: four batches of 12 instances */
        load_stats_record(&s, &r, 1, 7000);
    assert_true(fabs(load_stats_mean_batch(&s) - 3) < 1e-9);
    assert_int_equal(s.requests, 11);
    assert_int_equal(s.instances, 12);
    assert_int_equal(s.queue_ns, 11000);
    assert_int_equal(s.latency.max, 7000);
}

static void errors_are_counted_by_code_and_have_no_latency(void **state)
{
    (void)state;
    static struct load_stats s;
    load_stats_init(&s);
    struct inferd_response r = {.status = INFERD_RESOURCE_EXHAUSTED};
    for (int i = 0; i < 3; i++)
        load_stats_record(&s, &r, 1, 5000);
    r.status = (enum inferd_status)77;
    load_stats_record(&s, &r, 1, 5000);
    assert_int_equal(load_stats_errors(&s), 4);
    assert_int_equal(s.by_status[STATUS_RESOURCE_EXHAUSTED], 3);
    assert_int_equal(s.by_status[STATUS_UNKNOWN], 1);
    assert_int_equal(s.latency.count, 0);
    assert_int_equal(s.requests, 0);
    assert_true(load_stats_throughput(&s) == 0);
}

static void refusals_and_answers_in_time_are_told_apart(void **state)
{
    (void)state;
    static struct load_stats s, sum;
    load_stats_init(&s);
    load_stats_init(&sum);
    s.deadline_ns = 5000;
    struct inferd_response r = ok(1, 0);
    load_stats_record(&s, &r, 1, 5000);
    load_stats_record(&s, &r, 1, 5001);
    r.status = INFERD_RESOURCE_EXHAUSTED;
    load_stats_record(&s, &r, 1, 70);
    r.status = INFERD_UNAVAILABLE;
    load_stats_record(&s, &r, 1, 80);
    r.status = INFERD_DEADLINE_EXCEEDED; /* the server took it in, but too late */
    load_stats_record(&s, &r, 1, 90);
    load_stats_merge(&sum, &s);
    load_stats_merge(&sum, &s);
    assert_int_equal(sum.requests, 4);
    assert_int_equal(sum.in_time, 2);
    assert_int_equal(sum.deadline_ns, 5000);
    assert_int_equal(sum.refused.count, 4);
    assert_int_equal(sum.refused.max, 80);
}

static void window(struct load_stats *s, int requests, uint64_t latency_ns)
{
    struct inferd_response r = ok(1, 0);
    load_stats_init(s);
    s->seconds = 1;
    for (int i = 0; i < requests; i++)
        load_stats_record(s, &r, 1, latency_ns);
}

static void windows_are_stable_within_ten_percent(void **state)
{
    (void)state;
    static struct load_stats w[3];
    window(&w[0], 100, 1000);
    window(&w[1], 109, 1000);
    window(&w[2], 91, 1000);
    assert_true(load_stats_stable(w, 3, 0.1));
    window(&w[2], 80, 1000); /* throughput */
    assert_false(load_stats_stable(w, 3, 0.1));
    window(&w[2], 100, 1500); /* latency */
    assert_false(load_stats_stable(w, 3, 0.1));
    for (int i = 0; i < 3; i++) /* a run without answers is not steady */
        window(&w[i], 0, 0);
    assert_false(load_stats_stable(w, 3, 0.1));
}

static void merging_adds(void **state)
{
    (void)state;
    static struct load_stats a, b;
    window(&a, 10, 1000);
    window(&b, 30, 3000);
    struct inferd_response r = {.status = INFERD_CANCELLED};
    load_stats_record(&b, &r, 1, 1);
    load_stats_merge(&a, &b);
    assert_int_equal(a.requests, 40);
    assert_int_equal(load_stats_errors(&a), 1);
    assert_true(fabs(load_stats_throughput(&a) - 20) < 1e-9);
    assert_true(fabs(load_stats_mean_batch(&a) - 1) < 1e-9);
    assert_int_equal(a.latency.count, 40);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_counts_once_however_many_share_it),
        cmocka_unit_test(errors_are_counted_by_code_and_have_no_latency),
        cmocka_unit_test(refusals_and_answers_in_time_are_told_apart),
        cmocka_unit_test(windows_are_stable_within_ten_percent),
        cmocka_unit_test(merging_adds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
