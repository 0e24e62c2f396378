/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The load runner against a server whose answers are known (fake_server.h). The machine may be
 * busy, so the tests check what holds however slow it is. The exception is what a stall of the
 * machine moves from one window to the next: one run of several has to show that.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tests/test.h"
#include "tests/unit/client/fake_server.h"
#include "client/load/load_run.h"

struct fixture {
    struct fake_server *server;
    struct inferd_prepared *request;
    struct load_plan plan;
    struct load_point point;
    struct error err;
};

static const float numbers[4] = {1, 2, 3, 4};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->server = fake_server_start(false);
    f->plan = (struct load_plan){.address = fake_server_address(f->server),
                                 .connections = 2,
                                 .requests = &f->request,
                                 .n_requests = 1,
                                 .instances = 1,
                                 .outstanding = 100,
                                 .warm_up_s = 0.02,
                                 .window_s = 0.1,
                                 .max_windows = 4};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    inferd_prepared_free(f->request);
    fake_server_stop(f->server);
    free(f);
    return 0;
}

static void prepare(struct fixture *f, const char *model)
{
    struct inferd_tensor input = {.name = "x",
                                  .dtype = INFERD_FP32,
                                  .rank = 2,
                                  .dim = {1, 4},
                                  .data = numbers,
                                  .size = sizeof(numbers)};
    struct inferd_request request = {.model = model, .n_inputs = 1, .inputs = &input};
    assert_int_equal(inferd_prepared_new(&request, &f->request, NULL), INFERD_OK);
}

static void run(struct fixture *f, const char *model)
{
    prepare(f, model);
    if (load_run(&f->plan, &f->point, &f->err))
        fail_msg("%s", f->err.text);
}

static void a_closed_loop_keeps_its_clients_busy(void **state)
{
    struct fixture *f = *state;
    f->plan.concurrency = 3;
    f->plan.instances = 2;
    run(f, "slow");
    const struct load_stats *s = &f->point.stats;
    assert_int_equal(f->point.concurrency, 3);
    assert_int_equal(load_stats_errors(s), 0);
    /* Two connections get an answer every 20 ms each, and one more at the edges of the windows; the
     * third client's answer may wait there too. */
    double most = 2 * (s->seconds / 0.02 + 1) + 1;
    if (s->requests == 0 || (double)s->requests > most)
        fail_msg("%llu requests, at most %g", (unsigned long long)s->requests, most);
    assert_int_equal(s->instances, 2 * s->requests);
    assert_true(s->latency.min >= 19 * NS_PER_MS);
    assert_int_equal(s->compute_ns, 3000 * s->requests);
    assert_true(fabs(load_stats_mean_batch(s) - 8) < 1e-9);
}

/* Runs until `measure` of a run is between the limits, and that within ten runs. */
static void run_until(struct fixture *f, double (*measure)(const struct load_stats *), double least,
                      double most)
{
    double found = 0;
    for (int i = 0; i < 10; i++) {
        if (load_run(&f->plan, &f->point, &f->err))
            fail_msg("%s", f->err.text);
        found = measure(&f->point.stats);
        if (found > least && found < most)
            return;
    }
    fail_msg("%g, expected %g to %g", found, least, most);
}

static double rate_of(const struct load_stats *s)
{
    return (double)s->requests / s->seconds;
}

static void an_open_loop_sends_at_its_rate(void **state)
{
    struct fixture *f = *state;
    f->plan.rate = 500;
    prepare(f, "echo");
    run_until(f, rate_of, 250, 750);
    assert_int_equal(f->point.concurrency, 0);
    assert_true(f->point.rate == 500);
}

static void poisson_times_keep_the_mean_and_differ(void **state)
{
    struct fixture *f = *state;
    f->plan.rate = 1000;
    f->plan.poisson = true;
    prepare(f, "echo");
    run_until(f, rate_of, 500, 1500);
}

/* 200 a second are offered to a server of 50. With one unanswered request at a time each answer
 * takes 20 ms from its send, but ever longer from the time when it should have been sent. */
static void latency_counts_from_the_intended_time(void **state)
{
    struct fixture *f = *state;
    f->plan.rate = 200;
    f->plan.connections = 1;
    f->plan.outstanding = 1;
    f->plan.window_s = 0.3;
    run(f, "slow");
    const struct load_stats *s = &f->point.stats;
    assert_true(s->requests > 3);
    uint64_t median = histogram_quantile(&s->latency, 0.5);
    if (median < 60 * NS_PER_MS)
        fail_msg("median %llu us: counted from the send", (unsigned long long)median / 1000);
    assert_true(s->late > 0);
    assert_false(f->point.stable);
    assert_true((double)s->requests / s->seconds < 60);
}

static void errors_are_counted_and_do_not_storm(void **state)
{
    struct fixture *f = *state;
    f->plan.concurrency = 2;
    uint64_t before = clock_now_ns();
    run(f, "refuse");
    const struct load_stats *s = &f->point.stats;
    assert_int_equal(s->requests, 0);
    assert_true(s->by_status[STATUS_RESOURCE_EXHAUSTED] > 0);
    /* two clients, each waits 5 ms */
    uint64_t most = 2 * (clock_now_ns() - before) / (5 * NS_PER_MS) + 4;
    if (fake_server_requests(f->server) > most)
        fail_msg("%llu requests, at most %llu", (unsigned long long)fake_server_requests(f->server),
                 (unsigned long long)most);
}

static double share_of_good(const struct load_stats *s)
{
    return (double)s->requests / (double)(s->requests + load_stats_errors(s));
}

static void requests_are_sent_in_turn(void **state)
{
    struct fixture *f = *state;
    struct inferd_prepared *both[2];
    prepare(f, "echo");
    both[0] = f->request;
    prepare(f, "refuse");
    both[1] = f->request;
    f->plan.requests = both;
    f->plan.n_requests = 2;
    f->plan.rate = 300;
    run_until(f, share_of_good, 0.4, 0.6);
    inferd_prepared_free(both[0]);
}

static void a_server_that_goes_away_ends_the_test(void **state)
{
    struct fixture *f = *state;
    f->plan.concurrency = 2;
    f->plan.warm_up_s = 60; /* a window that had begun would be kept */
    prepare(f, "die");
    assert_int_equal(load_run(&f->plan, &f->point, &f->err), STATUS_UNAVAILABLE);
    assert_non_null(strstr(f->err.text, fake_server_address(f->server)));
}

static void what_was_measured_before_it_went_away_is_kept(void **state)
{
    struct fixture *f = *state;
    f->plan.concurrency = 2;
    f->plan.window_s = 60;
    run(f, "mortal");
    const struct load_stats *s = &f->point.stats;
    assert_true(f->point.cut);
    assert_false(f->point.stable);
    assert_int_equal(f->err.status, STATUS_UNAVAILABLE);
    assert_non_null(strstr(f->err.text, fake_server_address(f->server)));
    if (s->requests < 2 || s->requests > 40 || s->seconds < 0.1 || s->seconds > 30)
        fail_msg("%llu requests in %g s", (unsigned long long)s->requests, s->seconds);
}

static void nobody_there_ends_the_test(void **state)
{
    struct fixture *f = *state;
    char address[64];
    strcpy(address, fake_server_address(f->server));
    fake_server_stop(f->server);
    f->plan.address = address;
    f->plan.concurrency = 2;
    prepare(f, "echo");
    assert_int_equal(load_run(&f->plan, &f->point, &f->err), STATUS_UNAVAILABLE);
    f->plan.address = "nowhere";
    assert_int_equal(load_run(&f->plan, &f->point, &f->err), STATUS_INVALID_ARGUMENT);
    f->server = fake_server_start(false);
}

static void answers_that_never_come_do_not_hold_it_up(void **state)
{
    struct fixture *f = *state;
    f->plan.concurrency = 2;
    uint64_t before = clock_now_ns();
    run(f, "mute"); /* the drain gives up after two seconds */
    assert_true(clock_now_ns() - before < 20 * NS_PER_S);
    assert_int_equal(f->point.stats.requests, 0);
    assert_false(f->point.stable);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_closed_loop_keeps_its_clients_busy),
        CASE(an_open_loop_sends_at_its_rate),
        CASE(poisson_times_keep_the_mean_and_differ),
        CASE(latency_counts_from_the_intended_time),
        CASE(errors_are_counted_and_do_not_storm),
        CASE(requests_are_sent_in_turn),
        CASE(a_server_that_goes_away_ends_the_test),
        CASE(what_was_measured_before_it_went_away_is_kept),
        CASE(nobody_there_ends_the_test),
        CASE(answers_that_never_come_do_not_hold_it_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
