/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Outputs that stay on the device from one request to the next, over a made-up engine, which adds
 * one to numbers. What it leaves on a shelf alone is rubbish on the host, and the host's copy of
 * what was on a shelf is rubbish here: whoever reads from the wrong place gets another number.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "config/config.h"
#include "daemon/dispatch.h"
#include "tests/test.h"
#include "tests/unit/daemon/toy_engine.h"

enum { LOOPS = 2, REQUESTS = 32, BYTES = 8 * 16 };

struct loop {
    uint32_t index;
    _Atomic(struct inflight *) arrived;
    struct inflight items[REQUESTS], whole;
    uint64_t values[REQUESTS];
    uint64_t ok, failed, stayed; /* of chains, and of first steps whose outputs had no copy */
};

static struct dispatch *dispatch;
static struct counters counters;
static struct loop loops[LOOPS];
static struct config *config;
static struct model *model;

static void deliver(void *user, uint32_t loop, struct inflight *first, struct inflight *last)
{
    (void)user;
    last->next = atomic_load(&loops[loop].arrived);
    while (!atomic_compare_exchange_weak(&loops[loop].arrived, &last->next, first))
        ;
}

static void spent(void *user, uint32_t loop, struct inflight *first, struct inflight *last)
{
    (void)user, (void)loop, (void)first, (void)last;
}

static void on_lost(void *user, const struct error *err)
{
    (void)user, (void)err;
}

static void on_retire(void *user, struct model *gone)
{
    (void)user, (void)gone;
}

static int setup_workers(uint32_t workers)
{
    static char name[] = "toy";
    struct error err;
    const struct config_model model_config = {.name = name, .max_delay_us = -1};
    const struct dispatch_config c = {.device = toy_device(),
                                      .workers = workers,
                                      .counters = &counters,
                                      .deliver = deliver,
                                      .spent = spent,
                                      .lost = on_lost,
                                      .retire = on_retire};
    toy_reset();
    atomic_store(&toy.apart, true);
    memset(loops, 0, sizeof(loops));
    for (uint32_t i = 0; i < LOOPS; i++)
        loops[i].index = i;
    config = config_new();
    config->max_delay_us = 0;
    must(dispatch_new(&c, &dispatch, &err), &err);
    must(dispatch_model_load(dispatch, config, &model_config, "1", toy_engine_new(BYTES), &model,
                             &err),
         &err);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return setup_workers(1);
}

static int setup_two(void **state)
{
    (void)state;
    return setup_workers(2);
}

static int teardown(void **state)
{
    (void)state;
    model_unref(model);
    dispatch_model_unload(dispatch, model);
    dispatch_free(dispatch);
    config_free(config);
    return atomic_load(&toy.buffers) || atomic_load(&toy.contexts) || atomic_load(&toy.lanes) ||
           atomic_load(&toy.engines) || atomic_load(&toy.shelves);
}

static void shelves_make(void)
{
    struct error err;
    must(dispatch_shelves_grow(dispatch, BYTES, &err), &err);
}

/* --- a loop's side --- */

/* A step whose output others take, of which they read the host's copy if `read`. */
static struct inflight *step(struct loop *loop, uint32_t k, uint64_t value, bool read)
{
    struct inflight *i = &loop->items[k];
    *i = (struct inflight){.loop = loop->index, .serial = k, .id = k, .model = model};
    i->item.instances = 1;
    i->item.deadline_ns = BATCHER_NEVER;
    i->item.flow = loop->index;
    i->whole = &loop->whole;
    i->shelve = 1;
    i->unread = !read;
    loop->values[k] = value;
    i->spans[0] = (struct engine_span){&loop->values[k], 8};
    return i;
}

/* The step that takes the output of another one, which is kept. */
static struct inflight *next(struct loop *loop, uint32_t k, const struct inflight *before)
{
    struct inflight *i = step(loop, k, ~0u, true);
    i->shelve = i->unread = 0;
    i->shelved[0] = inflight_output_shelved(before, 0);
    if (!i->shelved[0])
        i->spans[0].data = inflight_output(before, 0);
    return i;
}

static struct inflight *wait_one(struct loop *loop)
{
    uint64_t end_ns = clock_now_ns() + 20 * NS_PER_S;
    struct inflight *got;
    while (!(got = atomic_exchange(&loop->arrived, NULL))) {
        assert_true(clock_now_ns() < end_ns);
        usleep(100);
    }
    return got;
}

static struct inflight *run(struct loop *loop, struct inflight *one)
{
    one->next = NULL;
    assert_null(dispatch_submit(dispatch, one));
    struct inflight *got = wait_one(loop);
    assert_ptr_equal(got, one);
    dispatch_settle(dispatch); /* the worker is ready for the next one */
    return got;
}

/* Submits all of them as one batch, and waits until they are back. */
static void run_batch(struct loop *loop, uint32_t n)
{
    for (uint32_t k = 0; k < n; k++)
        loop->items[k].next = k + 1 < n ? &loop->items[k + 1] : NULL;
    assert_null(dispatch_submit(dispatch, &loop->items[0]));
    for (uint32_t back = 0; back < n;)
        for (struct inflight *i = wait_one(loop); i; i = i->next)
            back++;
    dispatch_settle(dispatch);
}

static void release(struct inflight *inflight)
{
    struct batch *done = NULL;
    dispatch_release(inflight, &done);
    dispatch_recycle(dispatch, done);
}

static uint64_t number(const struct inflight *inflight)
{
    assert_int_equal(inflight->cause, CAUSE_OK);
    return *(const uint64_t *)inflight_output(inflight, 0);
}

/* The output is on the shelf alone. */
static void stays(const struct inflight *inflight, uint64_t value)
{
    assert_int_equal(inflight->cause, CAUSE_OK);
    assert_null(inflight_output(inflight, 0));
    assert_int_equal(*(const uint64_t *)inflight_output_shelved(inflight, 0), value);
}

/* --- tests --- */

static void the_next_step_takes_it_from_the_shelf(void **state)
{
    (void)state;
    shelves_make();
    for (int i = 0; i < 20; i++) {
        struct inflight *first = run(&loops[0], step(&loops[0], 0, 40, false));
        stays(first, 41);
        assert_true(dispatch_keep(first));
        struct inflight *second = run(&loops[0], next(&loops[0], 1, first));
        assert_int_equal(number(second), 42);
        release(first);
        release(second);
    }
    assert_int_equal(atomic_load(&toy.fetched), 20);
}

/* One request of a batch is enough. */
static void who_reads_on_the_host_gets_a_copy(void **state)
{
    (void)state;
    shelves_make();
    for (uint32_t k = 0; k < 8; k++)
        step(&loops[0], k, k, k == 5);
    run_batch(&loops[0], 8);
    for (uint32_t k = 0; k < 8; k++) {
        assert_ptr_equal(loops[0].items[k].batch, loops[0].items[0].batch);
        assert_int_equal(number(&loops[0].items[k]), k + 1);
        assert_non_null(inflight_output_shelved(&loops[0].items[k], 0));
    }
    for (uint32_t k = 0; k < 8; k++)
        release(&loops[0].items[k]);
}

/* Whoever asks for nothing takes no shelf, and none is there at first. */
static void without_a_wish_or_a_shelf_all_is_on_the_host(void **state)
{
    (void)state;
    struct error err;
    struct inflight *i = run(&loops[0], step(&loops[0], 0, 1, false));
    assert_int_equal(number(i), 2);
    assert_null(inflight_output_shelved(i, 0));
    release(i);
    atomic_store(&toy.shelves_allowed, 1); /* too few */
    assert_int_equal(dispatch_shelves_grow(dispatch, BYTES, &err), STATUS_RESOURCE_EXHAUSTED);
    i = run(&loops[0], step(&loops[0], 0, 1, false));
    assert_int_equal(number(i), 2);
    release(i);
    atomic_store(&toy.shelves_allowed, -1);
    must(dispatch_shelves_grow(dispatch, BYTES - 8, &err), &err); /* too small */
    i = run(&loops[0], step(&loops[0], 0, 1, false));
    assert_int_equal(number(i), 2);
    release(i);
    shelves_make();
    i = step(&loops[0], 0, 1, true);
    i->shelve = 0;
    i = run(&loops[0], i);
    assert_null(i->batch->shelf);
    release(i);
    stays(run(&loops[0], step(&loops[0], 0, 1, false)), 2);
    release(&loops[0].items[0]);
}

/* A batch with a shelf is kept from the beginning. So as many as there are shelves may be, and what
 * comes then is on the host; the worker goes on all the time. */
static void shelves_are_as_many_as_may_be_kept(void **state)
{
    (void)state;
    shelves_make();
    for (uint32_t k = 0; k < DISPATCH_KEPT; k++)
        stays(run(&loops[0], step(&loops[0], k, k, false)), k + 1);
    for (uint32_t n = 0; n < 8; n++) {
        struct inflight *late = run(&loops[0], step(&loops[0], 9, 100 + n, false));
        assert_int_equal(number(late), 101 + n);
        assert_false(dispatch_keep(late));
        release(late);
    }
    for (uint32_t k = 0; k < DISPATCH_KEPT; k++) {
        stays(&loops[0].items[k], k + 1); /* nobody has written over it */
        assert_true(dispatch_keep(&loops[0].items[k]));
        release(&loops[0].items[k]);
        struct inflight *again = run(&loops[0], step(&loops[0], 9, 7, false));
        stays(again, 8);
        release(again);
    }
}

/* What runs again in parts is on the host; what has failed takes no shelf with it. */
static void a_batch_that_runs_in_parts_is_on_the_host(void **state)
{
    (void)state;
    shelves_make();
    atomic_store(&toy.poison, 1000);
    for (int i = 0; i < 8; i++) {
        for (uint32_t k = 0; k < 4; k++)
            step(&loops[0], k, k == 2 ? 1 : 10 + k, false);
        run_batch(&loops[0], 4);
        for (uint32_t k = 0; k < 4; k++) {
            struct inflight *one = &loops[0].items[k];
            assert_int_equal(one->cause, k == 2 ? CAUSE_INVALID_ARGUMENT : CAUSE_OK);
            assert_null(inflight_output_shelved(one, 0));
            if (k != 2)
                assert_int_equal(number(one), 11 + k);
            release(one);
        }
        struct inflight *alone = run(&loops[0], step(&loops[0], 0, 1, false));
        assert_int_equal(alone->cause, CAUSE_INVALID_ARGUMENT);
        release(alone);
        stays(run(&loops[0], step(&loops[0], 0, 5, false)), 6);
        release(&loops[0].items[0]);
    }
}

/* Its deadline passes while the batch before it runs. */
static void a_batch_that_expires_takes_no_shelf(void **state)
{
    (void)state;
    shelves_make();
    for (int n = 0; n < 2 * DISPATCH_KEPT; n++) {
        atomic_store(&toy.delay_ns, 20 * NS_PER_MS);
        struct inflight *one = step(&loops[0], 0, 1, false), *two = step(&loops[0], 1, 2, false);
        assert_null(dispatch_submit(dispatch, one));
        two->item.deadline_ns = clock_now_ns() + NS_PER_MS;
        struct inflight *refused = dispatch_submit(dispatch, two);
        uint32_t back = refused != NULL;
        while (back < 2)
            for (struct inflight *i = wait_one(&loops[0]); i; i = i->next)
                back++;
        dispatch_settle(dispatch);
        atomic_store(&toy.delay_ns, 0);
        assert_int_not_equal(two->cause, CAUSE_OK);
        stays(one, 2);
        release(one);
        release(two);
    }
}

/* --- all at once --- */

static void chain(struct loop *loop, uint64_t value)
{
    struct inflight *first = step(loop, 0, value, value % 5 == 0), *second;
    bool kept = false;
    uint64_t copy;
    assert_null(dispatch_submit(dispatch, first));
    wait_one(loop);
    if (first->cause) {
        loop->failed++;
        release(first);
        return;
    }
    kept = dispatch_keep(first);
    loop->stayed += !inflight_output(first, 0);
    assert_true(kept || inflight_output(first, 0));
    second = kept ? next(loop, 1, first) : step(loop, 1, 0, true);
    if (!kept) {
        copy = number(first);
        second->spans[0].data = &copy;
    }
    if (!kept)
        release(first);
    if (value % 7 == 0) { /* the pipeline is given up, and its step taken back if it still waits */
        assert_null(dispatch_submit(dispatch, second));
        if (!dispatch_cancel(dispatch, second)) {
            wait_one(loop);
            release(second);
        }
    } else {
        assert_null(dispatch_submit(dispatch, second));
        wait_one(loop);
        if (!second->cause)
            assert_int_equal(number(second), value + 2);
        loop->ok += !second->cause;
        release(second);
    }
    if (kept)
        release(first);
}

static void *chains(void *arg)
{
    struct loop *loop = arg;
    for (uint64_t i = 0; i < 2000; i++)
        chain(loop, i * LOOPS + loop->index);
    return NULL;
}

static void loops_workers_and_loads_at_once(void **state)
{
    (void)state;
    pthread_t threads[LOOPS];
    struct error err;
    uint64_t stayed = 0;
    atomic_store(&toy.poison, 50);
    atomic_store(&toy.fail_every, 97);
    for (uint32_t i = 0; i < LOOPS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, chains, &loops[i]), 0);
    for (size_t size = BYTES; size < BYTES + 20 * 64; size += 64) {
        must(dispatch_shelves_grow(dispatch, size, &err), &err);
        usleep(1000);
    }
    for (uint32_t i = 0; i < LOOPS; i++) {
        pthread_join(threads[i], NULL);
        assert_true(loops[i].ok > 1000);
        assert_true(loops[i].failed > 0);
        stayed += loops[i].stayed;
    }
    assert_true(stayed > 0);
    assert_true(atomic_load(&toy.fetched) > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(the_next_step_takes_it_from_the_shelf, setup, teardown),
        cmocka_unit_test_setup_teardown(who_reads_on_the_host_gets_a_copy, setup, teardown),
        cmocka_unit_test_setup_teardown(without_a_wish_or_a_shelf_all_is_on_the_host, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(shelves_are_as_many_as_may_be_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(a_batch_that_runs_in_parts_is_on_the_host, setup, teardown),
        cmocka_unit_test_setup_teardown(a_batch_that_expires_takes_no_shelf, setup, teardown),
        cmocka_unit_test_setup_teardown(loops_workers_and_loads_at_once, setup_two, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
