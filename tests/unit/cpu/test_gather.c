/* SPDX-License-Identifier: Apache-2.0 */
/* A team of two comes together on two processors, also beside threads that keep all processors
 * busy, and is let go again. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "base/compiler.h"
#include "engine/cpu/cores.h"
#include "engine/cpu/gather.h"
#include "engine/cpu/team.h"
#include "tests/test.h"

enum { THREADS = 2, PATIENCE_S = 60 };

struct seen {
    int cpu[THREADS];
    cpu_set_t allowed[THREADS];
};

static void look(void *user, int64_t first, int64_t end)
{
    struct seen *seen = user;
    (void)first, (void)end;
    seen->cpu[team_thread()] = sched_getcpu();
    sched_getaffinity(0, sizeof(cpu_set_t), &seen->allowed[team_thread()]);
}

/* Gathers until it succeeds: other tests may use the machine as well. */
static void gather_at_last(struct gather *g)
{
    uint64_t until = clock_now_ns() + PATIENCE_S * NS_PER_S;
    while (!gather_team(g, THREADS))
        if (clock_now_ns() > until)
            fail_msg("two threads did not meet in %d seconds", PATIENCE_S);
}

static void check_team(void)
{
    struct gather g = {0};
    cpu_set_t before, after;
    struct seen bound, free;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    for (int i = 0; i < 20; i++)
        gather_at_last(&g);
    team_run(THREADS, THREADS, look, &bound);
    assert_int_not_equal(g.cpus[0], g.cpus[1]);
    assert_int_equal(bound.cpu[1], g.cpus[1]);
    assert_int_equal(CPU_COUNT(&bound.allowed[1]), 1);
    assert_true(CPU_EQUAL(&bound.allowed[0], &before)); /* the caller is free between the calls */
    gather_release(&g);
    team_run(THREADS, THREADS, look, &free);
    assert_true(CPU_EQUAL(&free.allowed[1], &before));
    assert_int_equal(sched_getaffinity(0, sizeof(after), &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

static void a_team_comes_together(void **state)
{
    (void)state;
    if (cores_count() < THREADS)
        skip();
    check_team();
}

static atomic_bool stop;

static void *be_busy(void *unused)
{
    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        ;
    return unused;
}

static void a_team_comes_together_beside_other_work(void **state)
{
    (void)state;
    pthread_t others[8];
    uint32_t n = cores_count();
    if (n < THREADS || n > ARRAY_LEN(others))
        skip();
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(pthread_create(&others[i], NULL, be_busy, NULL), 0);
    check_team();
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    for (uint32_t i = 0; i < n; i++)
        pthread_join(others[i], NULL);
}

/* Two threads that have but one processor may take turns; each call ends all the same. */
static void one_processor_for_two_is_no_trap(void **state)
{
    (void)state;
    struct gather g = {0};
    cpu_set_t before, one;
    struct seen seen;
    assert_int_equal(sched_getaffinity(0, sizeof(before), &before), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)cores_cpu(0), &one);
    assert_int_equal(cores_cpu(cores_count()), -1);
    team_run(THREADS, THREADS, look, &seen); /* so that the second thread is there, and free */
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    for (int i = 0; i < 8; i++)
        gather_team(&g, THREADS);
    gather_release(&g);
    assert_int_equal(sched_setaffinity(0, sizeof(before), &before), 0);
    team_run(THREADS, THREADS, look, &seen);
    assert_true(CPU_EQUAL(&seen.allowed[0], &before));
    assert_true(CPU_EQUAL(&seen.allowed[1], &before));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_team_comes_together),
        cmocka_unit_test(a_team_comes_together_beside_other_work),
        cmocka_unit_test(one_processor_for_two_is_no_trap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
