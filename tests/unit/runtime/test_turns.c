/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs that take turns: which graphs are marked, where the mark is, and that no graph waits for
 * ever. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/runtime/layer_times.h"
#include "tests/test.h"
#include "tests/unit/mock/mock.h"
#include "tests/unit/runtime/rig.h"

enum { PROFILES = 3, CAPTURES = 16 };

/* --- marks --- */

/* Checks `n` captures from number `first` on: each has `ops` ops and a mark behind `at` of them; 0:
 * no mark. */
static void check_marks(const struct device *mock, uint32_t first, uint32_t n, uint32_t ops,
                        uint32_t at)
{
    struct mock_capture captures[CAPTURES];
    uint32_t all = mock_read_captures(mock, captures, CAPTURES);
    assert_int_equal(all, first + n);
    for (uint32_t i = first; i < all; i++)
        if (captures[i].ops != ops || captures[i].marks != (at != 0) || captures[i].marked_at != at)
            fail_msg("capture %u: %u ops, %u marks, behind op %u; expected: %u, %d, %u", i,
                     captures[i].ops, captures[i].marks, captures[i].marked_at, ops, at != 0, at);
}

static void marked_once_where_half_of_the_time_is_over(void **state)
{
    static const struct {
        uint64_t times[RIG_NODES];
        uint32_t at;
    } cases[] = {
        {{0, 0, 0, 0}, 2}, /* no times, as if not tuned: half of the number of ops */
        {{97, 1, 1, 1}, 1},
        {{1, 1, 1, 97}, 4},
        {{30, 20, 25, 25}, 2},
        {{30, 19, 26, 25}, 3},
        {{49, 1, 50, 1}, 3}, /* 50 of 101 is not yet half */
        {{5, 0, 0, 5}, 2},   /* a node without a time counts as 1: 5, 6, 7, 12 */
        {{UINT64_MAX, UINT64_MAX, 7, 9}, 1},
        {{1, UINT64_MAX, 1, 1}, 1}, /* the sum wraps: marked once, somewhere */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct rig r;
        struct rig_plan plan = {.host = 0};
        memcpy(plan.times, cases[i].times, sizeof(plan.times));
        rig_make_with(&r, *state, &plan, &(struct context_options){0});
        check_marks(r.mock, 0, PROFILES, RIG_NODES, cases[i].at);
        rig_run_all(&r);
        check_marks(r.mock, 0, PROFILES, RIG_NODES, cases[i].at);
        rig_deinit(&r);
    }
}

static void profiles_with_cpu_parts_are_not_marked(void **state)
{
    for (unsigned host = 1; host < 1U << RIG_NODES; host++) {
        struct rig r;
        struct mock_capture captures[CAPTURES];
        struct mock_counts counts;
        rig_make(&r, *state, host, &(struct context_options){0});
        uint32_t n = mock_read_captures(r.mock, captures, CAPTURES);
        assert_int_equal(n == 0, host == (1U << RIG_NODES) - 1);
        for (uint32_t i = 0; i < n; i++)
            if (captures[i].marks)
                fail_msg("host %x: capture %u is marked", host, i);
        rig_run_all(&r);
        mock_read(r.mock, &counts);
        assert_int_equal(counts.turns, 0);
        rig_deinit(&r);
    }
}

static void stamped_captures_and_plain_runs_are_not_marked(void **state)
{
    struct rig r;
    struct error err;
    struct mock_capture captures[CAPTURES];
    rig_make(&r, *state, 0, &(struct context_options){0});
    rig_must(context_layer_times_start(r.ctx, &err), &err);
    rig_run_all(&r);
    check_marks(r.mock, PROFILES, PROFILES, RIG_NODES, 0);
    assert_int_equal(mock_read_captures(r.mock, captures, CAPTURES), 2 * PROFILES);
    for (uint32_t i = 0; i < 2 * PROFILES; i++)
        assert_int_equal(captures[i].events, i < PROFILES ? 0 : RIG_NODES + 1);
    rig_deinit(&r);

    rig_make(&r, *state, 0, &(struct context_options){.no_capture = true});
    rig_run_all(&r); /* the mock refuses a mark outside of a capture */
    check_marks(r.mock, 0, 0, 0, 0);
    rig_deinit(&r);
}

/* --- through the fault backend --- */

/* `marking` is the mock, `plain` the mock without marks. Their devices are kept in `wrapped`. */
static struct backend marking, plain;
static struct device *wrapped;

static enum status open_marking(const struct device_options *options, struct device **out,
                                struct error *err)
{
    enum status status = backend_mock.device_open(options, out, err);
    if (!status)
        wrapped = *out;
    return status;
}

static enum status open_plain(const struct device_options *options, struct device **out,
                              struct error *err)
{
    enum status status = open_marking(options, out, err);
    if (!status)
        wrapped->backend = &plain;
    return status;
}

static struct device *faulty(const struct backend *backend, const char *script)
{
    struct device *device;
    struct error err;
    const struct device_options options = {
        .reference_only = true, .script = script, .wrap = backend};
    rig_must(engine_device_open("fault", &options, &device, &err), &err);
    return device;
}

static void the_fault_backend_marks_what_the_wrapped_one_marks(void **state)
{
    for (int marks = 0; marks < 2; marks++) {
        struct rig r;
        struct error err;
        struct device *device = faulty(marks ? &marking : &plain, NULL);
        assert_int_equal(device->backend->capture_half != NULL, marks);
        assert_non_null(device->backend->capture_begin);
        rig_must(rig_init(&r, *state, device, device, &(struct rig_plan){.host = 0},
                          &(struct context_options){0}, &err),
                 &err);
        check_marks(wrapped, 0, PROFILES, RIG_NODES, marks ? 2 : 0);
        rig_run_all(&r);
        rig_deinit(&r);
    }
}

/* --- several at once --- */

struct beside {
    struct rig rig; /* lane, context and buffer of its own */
    pthread_t thread;
    atomic_bool *stop; /* relaxed: the thread ends sooner or later */
    unsigned lives, failed;
};

static void beside_init(struct beside *b, const struct rig *first)
{
    struct error err;
    void *buffer;
    b->rig = *first;
    rig_must(lane_new(b->rig.device, &b->rig.lane, &err), &err);
    rig_must(context_new(b->rig.engine, b->rig.lane, &b->rig.ctx, &err), &err);
    rig_must(engine_buffer_alloc(b->rig.device, engine_describe(b->rig.engine)->out_bytes_max,
                                 "output", &buffer, &err),
             &err);
    b->rig.buffer = buffer;
}

static void beside_deinit(struct beside *b)
{
    engine_buffer_free(b->rig.device, b->rig.buffer);
    context_free(b->rig.ctx);
    lane_free(b->rig.lane);
}

/* Streams, contexts and graphs come and go; sometimes a batch is left running. */
static void *live_again_and_again(void *arg)
{
    struct beside *b = arg;
    const struct rig first = b->rig;
    struct error err;
    do {
        beside_init(b, &first);
        struct engine_span span = {first.world->in, 2 * RIG_INSTANCE};
        struct engine_input input = {&span, 1};
        rig_must(rig_run(&b->rig, &span, 1, 0, 2, &err), &err);
        if (++b->lives % 2)
            rig_must(context_enqueue(b->rig.ctx, 2, &input, b->rig.buffer, &err), &err);
        context_free(b->rig.ctx);
        b->rig.ctx = NULL;
        beside_deinit(b);
    } while (!atomic_load_explicit(b->stop, memory_order_relaxed));
    return NULL;
}

static void contexts_come_and_go_beside_one_that_serves(void **state)
{
    struct rig r;
    struct mock_counts counts;
    atomic_bool stop = false;
    rig_make(&r, *state, 0, &(struct context_options){0});
    struct beside others[2] = {{.rig = r, .stop = &stop}, {.rig = r, .stop = &stop}};
    for (size_t i = 0; i < ARRAY_LEN(others); i++)
        assert_int_equal(pthread_create(&others[i].thread, NULL, live_again_and_again, &others[i]),
                         0);
    for (int k = 0; k < 20; k++)
        rig_run_all(&r);
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    for (size_t i = 0; i < ARRAY_LEN(others); i++) {
        pthread_join(others[i].thread, NULL);
        assert_true(others[i].lives > 0);
    }
    mock_read(r.mock, &counts);
    if (counts.turns < 2)
        fail_msg("%llu turns in %llu launches", (unsigned long long)counts.turns,
                 (unsigned long long)counts.graphs);
    rig_deinit(&r);
}

enum { ROUNDS = 60 };

static void *run_and_fail(void *arg)
{
    struct beside *b = arg;
    struct error err;
    struct engine_span span = {b->rig.world->in, 3 * RIG_INSTANCE};
    for (unsigned i = 0; i < ROUNDS; i++) {
        if (rig_run(&b->rig, &span, 1, 0, 3, &err) == STATUS_OK)
            continue;
        b->failed++;
        (void)context_wait(b->rig.ctx, NULL, &err);
    }
    return NULL;
}

/* Two contexts are ready after 2 x 3 x 9 launches; from then on each launch is a graph's. */
static void one_fails_beside_one_that_serves(void **state)
{
    struct rig r;
    struct error err;
    struct mock_counts counts;
    struct device *device = faulty(&marking, "launch#60:fail;launch#61:fail;launch#90:fail;"
                                             "launch#120+:delay=50us;launch#130:oom");
    mock_set_delay(wrapped, 20 * NS_PER_US);
    rig_must(rig_init(&r, *state, device, device, &(struct rig_plan){.host = 0},
                      &(struct context_options){0}, &err),
             &err);
    struct beside both[2] = {{.rig = r}, {.failed = 0}};
    beside_init(&both[1], &r);
    for (size_t i = 0; i < ARRAY_LEN(both); i++)
        assert_int_equal(pthread_create(&both[i].thread, NULL, run_and_fail, &both[i]), 0);
    for (size_t i = 0; i < ARRAY_LEN(both); i++)
        pthread_join(both[i].thread, NULL);
    assert_int_equal(both[0].failed + both[1].failed, 4);
    mock_read(wrapped, &counts);
    assert_int_equal(counts.graphs, 2 * (PROFILES + ROUNDS) - 4);
    assert_true(counts.turns > 0);
    beside_deinit(&both[1]);
    rig_deinit(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(marked_once_where_half_of_the_time_is_over),
        cmocka_unit_test(profiles_with_cpu_parts_are_not_marked),
        cmocka_unit_test(stamped_captures_and_plain_runs_are_not_marked),
        cmocka_unit_test(the_fault_backend_marks_what_the_wrapped_one_marks),
        cmocka_unit_test(contexts_come_and_go_beside_one_that_serves),
        cmocka_unit_test(one_fails_beside_one_that_serves),
    };
    marking = plain = backend_mock;
    marking.device_open = open_marking;
    plain.device_open = open_plain;
    plain.capture_half = NULL;
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
