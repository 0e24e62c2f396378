/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads share one processor, so each waits for it, and the waits are noticed. */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "base/clock.h"
#include "engine/cpu/waits.h"
#include "tests/test.h"

enum { BUSY_NS = 60 * NS_PER_MS };

/* Binds the thread to the lowest processor that this process may use. */
static void stay_on_one(void)
{
    cpu_set_t set, one;
    int cpu = 0;
    assert_int_equal(sched_getaffinity(0, sizeof(set), &set), 0);
    while (!CPU_ISSET(cpu, &set))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
}

/* Relaxed is enough: no other data depend on them. */
static atomic_bool started, stop;

static void *be_busy(void *unused)
{
    stay_on_one();
    atomic_store_explicit(&started, true, memory_order_relaxed);
    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        ;
    return unused;
}

static void other_work_is_seen(void **state)
{
    (void)state;
    pthread_t other;
    struct waits *waits = waits_new();
    assert_non_null(waits);
    assert_int_equal(pthread_create(&other, NULL, be_busy, NULL), 0);
    while (!atomic_load_explicit(&started, memory_order_relaxed))
        sched_yield();
    stay_on_one();
    waits_longest(waits); /* waits count from here on */
    for (uint64_t begin = clock_now_ns(); clock_now_ns() - begin < BUSY_NS;)
        ;
    uint64_t waited = waits_longest(waits);
    atomic_store_explicit(&stop, true, memory_order_relaxed);
    pthread_join(other, NULL);
    if (waited < BUSY_NS / 10)
        fail_msg("%llu ns", (unsigned long long)waited);
    waits_longest(waits); /* once more, now that a thread has ended */
    waits_free(waits);
    waits_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(other_work_is_seen)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
