/* SPDX-License-Identifier: Apache-2.0 */
/* Each rule of batcher.h by itself, in virtual time, whose unit is a millisecond. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "batching/batcher.h"
#include "tests/test.h"

enum { N_ITEMS = 2048, MAX_BATCH = 8, T = 10 };

struct fixture {
    struct batcher *batcher;
    struct batcher_model *model; /* max_batch 8, T 10, queue 64 */
    struct batcher_item items[N_ITEMS];
    struct batcher_decision d;
};

static const struct batcher_model_config defaults = {
    .max_batch = MAX_BATCH, .max_delay_ns = T, .queue_limit = 64};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->batcher = batcher_new();
    assert_non_null(f->batcher);
    assert_int_equal(batcher_model_add(f->batcher, &defaults, &f->model, NULL), STATUS_OK);
    for (uint32_t i = 0; i < N_ITEMS; i++)
        f->items[i] = (struct batcher_item){.instances = 1, .deadline_ns = BATCHER_NEVER};
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < N_ITEMS; i++)
        batcher_cancel(&f->items[i]);
    batcher_free(f->batcher);
    free(f);
    return 0;
}

static void submit_to(struct fixture *f, struct batcher_model *model, uint32_t i, uint64_t now)
{
    struct batcher_item *evicted;
    enum cause cause = batcher_submit(model, &f->items[i], now, &evicted);
    if (cause)
        fail_msg("item %u: %s", i, cause_row(cause)->name);
    if (evicted)
        fail_msg("item %u pushes out item %td", i, evicted - f->items);
}

static enum cause try_to(struct fixture *f, struct batcher_model *model, uint32_t i)
{
    return batcher_submit(model, &f->items[i], 0, &(struct batcher_item *){NULL});
}

static void submit(struct fixture *f, uint32_t i, uint64_t now)
{
    submit_to(f, f->model, i, now);
}

static void add_model(struct fixture *f, uint64_t delay, struct batcher_model **out)
{
    struct batcher_model_config config = defaults;
    config.max_delay_ns = delay;
    assert_int_equal(batcher_model_add(f->batcher, &config, out, NULL), STATUS_OK);
}

/* The list holds exactly these items, in this order; the last argument is -1. */
static void expect_list(struct fixture *f, const struct batcher_item *list, const char *what, ...)
{
    va_list args;
    va_start(args, what);
    for (int want = va_arg(args, int); want >= 0; want = va_arg(args, int)) {
        if (!list)
            fail_msg("%s: ends before item %d", what, want);
        if (list - f->items != want)
            fail_msg("%s: item %td where %d should be", what, list - f->items, want);
        assert_null(list->model);
        list = list->next;
    }
    va_end(args);
    if (list)
        fail_msg("%s: item %td after its end", what, list - f->items);
}

#define expect_batch(f, ...)   expect_list(f, (f)->d.batch, "batch", __VA_ARGS__, -1)
#define expect_expired(f, ...) expect_list(f, (f)->d.expired, "expired", __VA_ARGS__, -1)

static void step(struct fixture *f, uint64_t now)
{
    batcher_step(f->batcher, now, &f->d);
}

static void expect_none(struct fixture *f, uint64_t now, uint64_t wake)
{
    step(f, now);
    assert_null(f->d.model);
    assert_null(f->d.batch);
    assert_null(f->d.expired);
    assert_int_equal(f->d.wake_ns, wake);
}

static void no_batch_without_an_idle_worker(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 20; i++)
        submit(f, i, 0);
    expect_none(f, 1000, BATCHER_NEVER);
    batcher_worker_idle(f->batcher, 3);
    step(f, 1000);
    assert_ptr_equal(f->d.model, f->model);
    assert_int_equal(f->d.worker, 3);
    assert_int_equal(f->d.instances, MAX_BATCH);
    expect_batch(f, 0, 1, 2, 3, 4, 5, 6, 7);
    expect_none(f, 1000, BATCHER_NEVER);
}

static void one_batch_for_each_idle_worker(void **state)
{
    struct fixture *f = *state;
    batcher_worker_idle(f->batcher, 200);
    batcher_worker_idle(f->batcher, 1);
    for (uint32_t i = 0; i < 3 * MAX_BATCH; i++)
        submit(f, i, 0);
    step(f, 0);
    assert_int_equal(f->d.worker, 1);
    assert_int_equal(f->d.wake_ns, 0); /* another batch may start at once */
    step(f, 0);
    assert_int_equal(f->d.worker, 200);
    assert_int_equal(f->d.wake_ns, BATCHER_NEVER);
    expect_none(f, 0, BATCHER_NEVER);
}

static void a_model_runs_no_more_batches_than_it_may(void **state)
{
    struct fixture *f = *state;
    struct batcher_model_config config = defaults;
    struct batcher_model *other;
    config.max_running = 1;
    config.max_delay_ns = 0;
    assert_int_equal(batcher_model_configure(f->model, &config, NULL), STATUS_OK);
    add_model(f, 0, &other);
    for (uint32_t worker = 0; worker < 3; worker++)
        batcher_worker_idle(f->batcher, worker);
    submit(f, 0, 0);
    step(f, 0);
    expect_batch(f, 0);
    submit(f, 1, 1);
    expect_none(f, 1, BATCHER_NEVER);
    submit_to(f, other, 2, 2);
    step(f, 2);
    assert_ptr_equal(f->d.model, other);
    expect_batch(f, 2);
    expect_none(f, 3, BATCHER_NEVER);
    batcher_worker_ran(f->batcher, 0, 1, 4);
    batcher_worker_idle(f->batcher, 0);
    step(f, 4);
    expect_batch(f, 1);
    submit(f, 3, 5);
    expect_none(f, 5, BATCHER_NEVER);
    config.max_running = 0;
    assert_int_equal(batcher_model_configure(f->model, &config, NULL), STATUS_OK);
    step(f, 6);
    expect_batch(f, 3);
}

static void a_worker_that_is_gone_gets_nothing(void **state)
{
    struct fixture *f = *state;
    batcher_worker_idle(f->batcher, 0);
    batcher_worker_gone(f->batcher, 0);
    submit(f, 0, 0);
    expect_none(f, 1000, BATCHER_NEVER);
}

static void the_oldest_waits_at_most_t_for_others(void **state)
{
    struct fixture *f = *state;
    batcher_worker_idle(f->batcher, 0);
    submit(f, 0, 100);
    expect_none(f, 100, 100 + T);
    submit(f, 1, 104);
    expect_none(f, 104, 100 + T);
    expect_none(f, 100 + T - 1, 100 + T);
    step(f, 100 + T);
    expect_batch(f, 0, 1);
}

static void the_wait_counts_from_arrival_not_from_idleness(void **state)
{
    struct fixture *f = *state;
    submit(f, 0, 100);
    expect_none(f, 150, BATCHER_NEVER);
    batcher_worker_idle(f->batcher, 0);
    step(f, 150);
    expect_batch(f, 0);
}

static void a_full_batch_does_not_wait(void **state)
{
    struct fixture *f = *state;
    batcher_worker_idle(f->batcher, 0);
    f->items[0].instances = 5;
    f->items[1].instances = 3;
    submit(f, 0, 0);
    expect_none(f, 0, T);
    submit(f, 1, 1);
    step(f, 1);
    assert_int_equal(f->d.instances, 8);
    expect_batch(f, 0, 1);
}

static void t_of_zero_never_waits(void **state)
{
    struct fixture *f = *state;
    struct batcher_model *model;
    add_model(f, 0, &model);
    batcher_worker_idle(f->batcher, 0);
    submit_to(f, model, 0, 5);
    step(f, 5);
    assert_ptr_equal(f->d.model, model);
    expect_batch(f, 0);
}

static void requests_are_never_split(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 3; i++)
        f->items[i].instances = 5;
    f->items[3].instances = 1;
    for (uint32_t i = 0; i < 4; i++)
        submit(f, i, 0);
    batcher_worker_idle(f->batcher, 0);
    step(f, 0);
    assert_int_equal(f->d.instances, 5);
    expect_batch(f, 0); /* the last item would fit, but does not overtake the one before it */
}

static void what_is_left_over_waits_by_its_own_arrival(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 8; i++)
        submit(f, i, 0);
    submit(f, 8, 7);
    batcher_worker_idle(f->batcher, 0);
    batcher_worker_idle(f->batcher, 1);
    step(f, 8);
    expect_batch(f, 0, 1, 2, 3, 4, 5, 6, 7);
    assert_int_equal(f->d.wake_ns, 7 + T);
    expect_none(f, 8, 7 + T);
    step(f, 7 + T);
    expect_batch(f, 8);
}

static void priorities_go_first_and_order_is_kept_within(void **state)
{
    struct fixture *f = *state;
    static const uint32_t priority[] = {3, 1, 0, 1, 3, 0};
    for (uint32_t i = 0; i < ARRAY_LEN(priority); i++) {
        f->items[i].priority = priority[i];
        submit(f, i, i);
    }
    batcher_worker_idle(f->batcher, 0);
    step(f, 100);
    expect_batch(f, 2, 5, 1, 3, 0, 4);
}

static void a_low_priority_does_not_displace_a_high_one(void **state)
{
    struct fixture *f = *state;
    f->items[0].priority = 2;
    submit(f, 0, 0);
    for (uint32_t i = 1; i <= 8; i++)
        submit(f, i, 1);
    batcher_worker_idle(f->batcher, 0);
    step(f, 50);
    expect_batch(f, 1, 2, 3, 4, 5, 6, 7, 8);
    batcher_worker_idle(f->batcher, 0);
    step(f, 50);
    expect_batch(f, 0);
}

static void a_batch_holds_one_shape_key(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 6; i++) {
        f->items[i].shape_key = i % 2;
        submit(f, i, i);
    }
    batcher_worker_idle(f->batcher, 0);
    step(f, 100);
    expect_batch(f, 0, 2, 4);
    batcher_worker_idle(f->batcher, 0);
    step(f, 100);
    expect_batch(f, 1, 3, 5);
}

static void a_full_shape_goes_before_one_that_waits(void **state)
{
    struct fixture *f = *state;
    batcher_worker_idle(f->batcher, 0);
    submit(f, 0, 0);
    for (uint32_t i = 1; i <= 8; i++) {
        f->items[i].shape_key = 77;
        submit(f, i, 1);
    }
    step(f, 1);
    expect_batch(f, 1, 2, 3, 4, 5, 6, 7, 8);
    batcher_worker_idle(f->batcher, 0);
    expect_none(f, 1, T);
}

static void of_shapes_that_may_go_the_best_priority_goes(void **state)
{
    struct fixture *f = *state;
    f->items[0].priority = 1;
    f->items[1].shape_key = 9;
    submit(f, 0, 0);
    submit(f, 1, 5);
    batcher_worker_idle(f->batcher, 0);
    step(f, 100);
    expect_batch(f, 1);
}

static void a_preferred_size_does_not_wait(void **state)
{
    struct fixture *f = *state;
    struct batcher_model_config config = defaults;
    config.n_preferred = 2;
    config.preferred[0] = 2;
    config.preferred[1] = 4;
    assert_int_equal(batcher_model_configure(f->model, &config, NULL), STATUS_OK);
    batcher_worker_idle(f->batcher, 0);
    submit(f, 0, 0);
    expect_none(f, 0, T);
    submit(f, 1, 1);
    step(f, 1);
    expect_batch(f, 0, 1);

    for (uint32_t i = 10; i < 15; i++)
        submit(f, i, 2);
    batcher_worker_idle(f->batcher, 0);
    step(f, 2);
    expect_batch(f, 10, 11, 12, 13); /* cut at the largest preferred size reached */
    batcher_worker_idle(f->batcher, 0);
    expect_none(f, 2, 2 + T);
}

static void a_request_larger_than_the_preferred_size_goes_alone(void **state)
{
    struct fixture *f = *state;
    struct batcher_model_config config = defaults;
    config.n_preferred = 1;
    config.preferred[0] = 4;
    assert_int_equal(batcher_model_configure(f->model, &config, NULL), STATUS_OK);
    f->items[0].instances = 6;
    submit(f, 0, 0);
    submit(f, 1, 0);
    batcher_worker_idle(f->batcher, 0);
    step(f, 0);
    assert_int_equal(f->d.instances, 6);
    expect_batch(f, 0);
}

static void r19_the_expired_never_run(void **state)
{
    struct fixture *f = *state;
    f->items[0].deadline_ns = 50;
    f->items[1].deadline_ns = 51;
    f->items[2].deadline_ns = 50;
    for (uint32_t i = 0; i < 3; i++)
        submit(f, i, 0);
    batcher_worker_idle(f->batcher, 0);
    step(f, 50);
    expect_batch(f, 1);
    expect_expired(f, 0, 2);
    struct batcher_model_stats stats;
    batcher_model_stats(f->model, &stats);
    assert_int_equal(stats.expired, 2);
    assert_int_equal(stats.queued_items, 0);
}

static void r19_expired_ones_alone_take_no_worker(void **state)
{
    struct fixture *f = *state;
    f->items[0].deadline_ns = 5;
    submit(f, 0, 0);
    batcher_worker_idle(f->batcher, 0);
    step(f, 5);
    assert_null(f->d.model);
    expect_expired(f, 0);
    submit(f, 1, 5);
    step(f, 5 + T);
    assert_int_equal(f->d.worker, 0);
    expect_batch(f, 1);
}

static void the_expired_do_not_make_a_batch_full(void **state)
{
    struct fixture *f = *state;
    f->items[0].instances = 7;
    f->items[0].deadline_ns = 20;
    submit(f, 0, 0);
    submit(f, 1, 19);
    batcher_worker_idle(f->batcher, 0);
    step(f, 20);
    assert_null(f->d.model); /* others may still join the item that is left */
    expect_expired(f, 0);
    assert_int_equal(f->d.wake_ns, 19 + T);
}

static void who_would_expire_waiting_for_others_does_not_wait(void **state)
{
    struct fixture *f = *state;
    batcher_worker_idle(f->batcher, 0);
    submit(f, 0, 0);
    expect_none(f, 0, T);
    f->items[1].deadline_ns = 1 + T;
    submit(f, 1, 1);
    step(f, 1);
    expect_batch(f, 0, 1);
}

static void r18_the_queue_is_bounded(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 64; i++)
        submit(f, i, 0);
    assert_int_equal(try_to(f, f->model, 64), CAUSE_QUEUE_FULL);
    assert_null(f->items[64].model);
    struct batcher_model_stats stats;
    batcher_model_stats(f->model, &stats);
    assert_int_equal(stats.refused, 1);
    assert_int_equal(stats.queued_items, 64);
    assert_true(batcher_cancel(&f->items[10]));
    submit(f, 64, 0);
}

static void bad_items_are_refused(void **state)
{
    struct fixture *f = *state;
    f->items[0].instances = 0;
    f->items[1].instances = MAX_BATCH + 1;
    f->items[2].priority = BATCHER_PRIORITIES;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(try_to(f, f->model, i), CAUSE_INVALID_ARGUMENT);
        assert_null(f->items[i].model);
        assert_false(batcher_cancel(&f->items[i]));
    }
}

static void bad_limits_are_refused(void **state)
{
    struct fixture *f = *state;
    struct batcher_model *model = NULL;
    static const struct batcher_model_config bad[] = {
        {.max_batch = 0, .queue_limit = 1},
        {.max_batch = 1, .queue_limit = 0},
        {.max_batch = 8, .queue_limit = 1, .n_preferred = BATCHER_MAX_PREFERRED + 1},
        {.max_batch = 8, .queue_limit = 1, .n_preferred = 1, .preferred = {9}},
        {.max_batch = 8, .queue_limit = 1, .n_preferred = 1, .preferred = {0}},
        {.max_batch = 8, .queue_limit = 1, .n_preferred = 2, .preferred = {4, 4}},
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(batcher_model_add(f->batcher, &bad[i], &model, NULL),
                         STATUS_INVALID_ARGUMENT);
        assert_null(model);
        assert_int_equal(batcher_model_configure(f->model, &bad[i], NULL), STATUS_INVALID_ARGUMENT);
    }
}

static void a_cancelled_item_is_gone_once(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 3; i++)
        submit(f, i, 0);
    assert_true(batcher_cancel(&f->items[1]));
    assert_false(batcher_cancel(&f->items[1]));
    batcher_worker_idle(f->batcher, 0);
    step(f, T);
    expect_batch(f, 0, 2);
    assert_false(batcher_cancel(&f->items[0])); /* item 0 had left the queue already */
}

static void cancelling_the_head_leaves_the_next_its_own_wait(void **state)
{
    struct fixture *f = *state;
    batcher_worker_idle(f->batcher, 0);
    submit(f, 0, 0);
    submit(f, 1, 4);
    expect_none(f, 4, T);
    assert_true(batcher_cancel(&f->items[0]));
    expect_none(f, 4, 4 + T);
    assert_true(batcher_cancel(&f->items[1]));
    expect_none(f, 4, BATCHER_NEVER);
}

static void among_models_the_longest_wait_against_t_goes_first(void **state)
{
    struct fixture *f = *state;
    struct batcher_model *patient, *hasty;
    add_model(f, 100, &patient);
    add_model(f, 2, &hasty);
    submit_to(f, patient, 0, 0);   /* due at 100 */
    submit_to(f, f->model, 1, 50); /* due at 60 */
    submit_to(f, hasty, 2, 57);    /* due at 59 */
    static const int order[] = {2, 1, 0};
    for (size_t i = 0; i < ARRAY_LEN(order); i++) {
        batcher_worker_idle(f->batcher, 0);
        step(f, 200);
        expect_batch(f, order[i]);
    }
}

static void a_flooded_model_does_not_starve_another(void **state)
{
    struct fixture *f = *state;
    struct batcher_model *other;
    uint32_t next = 1;
    add_model(f, T, &other);
    for (uint32_t i = 0; i < 32; i++)
        submit(f, next++, 0);
    submit_to(f, other, 0, 1);
    for (uint64_t now = 2; now < 20; now++) {
        batcher_worker_idle(f->batcher, 0);
        step(f, 1000 + now);
        assert_non_null(f->d.model);
        if (f->d.model == other)
            return; /* at most the four batches that were there before go first */
        assert_true(now < 6);
        for (uint32_t i = 0; i < 8; i++)
            submit(f, next++, 1000 + now);
    }
    fail_msg("never served");
}

static void a_starved_low_priority_lends_its_model_no_right(void **state)
{
    struct fixture *f = *state;
    struct batcher_model *other;
    add_model(f, T, &other);
    f->items[0].priority = 3;
    f->items[0].shape_key = 1;
    submit(f, 0, 0);
    submit_to(f, other, 1, 10);
    submit(f, 2, 20); /* has its own turn, before item 0, whose shape differs */
    batcher_worker_idle(f->batcher, 0);
    step(f, 100);
    expect_batch(f, 1);
}

static void draining_takes_nothing_and_does_not_wait(void **state)
{
    struct fixture *f = *state;
    submit(f, 0, 0);
    batcher_worker_idle(f->batcher, 0);
    expect_none(f, 0, T);
    batcher_model_drain(f->model);
    assert_int_equal(try_to(f, f->model, 1), CAUSE_DRAINING);
    f->items[2].admitted = true; /* with something that came before */
    assert_int_equal(try_to(f, f->model, 2), CAUSE_OK);
    assert_true(batcher_cancel(&f->items[2]));
    step(f, 0);
    expect_batch(f, 0);
    batcher_model_remove(f->model);
    expect_none(f, 0, BATCHER_NEVER);
}

static void the_whole_batcher_drains(void **state)
{
    struct fixture *f = *state;
    struct batcher_model *other;
    add_model(f, 100, &other);
    submit(f, 0, 0);
    submit_to(f, other, 1, 0);
    batcher_drain(f->batcher);
    assert_int_equal(try_to(f, other, 2), CAUSE_DRAINING);
    batcher_worker_idle(f->batcher, 0);
    batcher_worker_idle(f->batcher, 1);
    step(f, 0);
    expect_batch(f, 0);
    step(f, 0);
    expect_batch(f, 1);
    struct batcher_model *late;
    add_model(f, 100, &late); /* an item that is added now drains too */
    assert_int_equal(try_to(f, late, 2), CAUSE_DRAINING);
}

static void configuring_takes_effect_on_what_is_queued(void **state)
{
    struct fixture *f = *state;
    struct batcher_model_config config = defaults;
    batcher_worker_idle(f->batcher, 0);
    f->items[0].instances = 6;
    submit(f, 0, 0);
    submit(f, 1, 0);
    config.max_delay_ns = 3;
    assert_int_equal(batcher_model_configure(f->model, &config, NULL), STATUS_OK);
    expect_none(f, 0, 3);
    config.max_batch = 4; /* item 0 is larger than that: it runs alone */
    assert_int_equal(batcher_model_configure(f->model, &config, NULL), STATUS_OK);
    step(f, 0);
    expect_batch(f, 0);
    batcher_worker_idle(f->batcher, 0);
    step(f, 3);
    expect_batch(f, 1);
}

static void time_that_goes_backwards_stands_still(void **state)
{
    struct fixture *f = *state;
    batcher_worker_idle(f->batcher, 0);
    submit(f, 0, 100);
    submit(f, 1, 90);
    assert_int_equal(f->items[1].arrival_ns, 100);
    expect_none(f, 80, 100 + T);
}

static void times_near_the_end_do_not_wrap(void **state)
{
    struct fixture *f = *state;
    struct batcher_model *forever;
    add_model(f, BATCHER_NEVER, &forever);
    batcher_worker_idle(f->batcher, 0);
    submit_to(f, forever, 0, 5);
    expect_none(f, 1000, BATCHER_NEVER);
    batcher_model_drain(forever);
    step(f, 1000);
    expect_batch(f, 0);
}

static void a_batch_has_at_most_max_items(void **state)
{
    struct fixture *f = *state;
    struct batcher_model *large;
    struct batcher_model_config config = {
        .max_batch = 100000, .max_delay_ns = T, .queue_limit = N_ITEMS};
    assert_int_equal(batcher_model_add(f->batcher, &config, &large, NULL), STATUS_OK);
    for (uint32_t i = 0; i < BATCHER_MAX_ITEMS + 1; i++)
        submit_to(f, large, i, 0);
    batcher_worker_idle(f->batcher, 0);
    step(f, 0); /* the batch has as many items as it may: it does not wait */
    assert_int_equal(f->d.instances, BATCHER_MAX_ITEMS);
}

static void many_shape_keys_may_wait(void **state)
{
    struct fixture *f = *state;
    struct batcher_model *model;
    struct batcher_model_config config = defaults;
    config.queue_limit = N_ITEMS;
    assert_int_equal(batcher_model_add(f->batcher, &config, &model, NULL), STATUS_OK);
    for (uint32_t round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < N_ITEMS; i++) {
            f->items[i].shape_key = i * 1000003ULL + round;
            submit_to(f, model, i, 1000 * round + i % 7);
        }
        for (uint32_t i = 0; i < N_ITEMS; i++) {
            batcher_worker_idle(f->batcher, 0);
            step(f, 1000 * round + 500);
            assert_non_null(f->d.batch);
            assert_null(f->d.batch->next);
        }
    }
    struct batcher_model_stats stats;
    batcher_model_stats(model, &stats);
    assert_int_equal(stats.batches, 3 * N_ITEMS);
    assert_int_equal(stats.oldest_arrival_ns, BATCHER_NEVER);
}

static void statistics_count(void **state)
{
    struct fixture *f = *state;
    struct batcher_model_stats stats;
    f->items[1].instances = 3;
    submit(f, 0, 7);
    submit(f, 1, 8);
    batcher_model_stats(f->model, &stats);
    assert_int_equal(stats.queued_items, 2);
    assert_int_equal(stats.queued_instances, 4);
    assert_int_equal(stats.oldest_arrival_ns, 7);
    batcher_worker_idle(f->batcher, 0);
    step(f, 7 + T);
    batcher_model_stats(f->model, &stats);
    assert_int_equal(stats.queued_items, 0);
    assert_int_equal(stats.batches, 1);
    assert_int_equal(stats.instances, 4);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(no_batch_without_an_idle_worker),
        CASE(one_batch_for_each_idle_worker),
        CASE(a_model_runs_no_more_batches_than_it_may),
        CASE(a_worker_that_is_gone_gets_nothing),
        CASE(the_oldest_waits_at_most_t_for_others),
        CASE(the_wait_counts_from_arrival_not_from_idleness),
        CASE(a_full_batch_does_not_wait),
        CASE(t_of_zero_never_waits),
        CASE(requests_are_never_split),
        CASE(what_is_left_over_waits_by_its_own_arrival),
        CASE(priorities_go_first_and_order_is_kept_within),
        CASE(a_low_priority_does_not_displace_a_high_one),
        CASE(a_batch_holds_one_shape_key),
        CASE(a_full_shape_goes_before_one_that_waits),
        CASE(of_shapes_that_may_go_the_best_priority_goes),
        CASE(a_preferred_size_does_not_wait),
        CASE(a_request_larger_than_the_preferred_size_goes_alone),
        CASE(r19_the_expired_never_run),
        CASE(r19_expired_ones_alone_take_no_worker),
        CASE(the_expired_do_not_make_a_batch_full),
        CASE(who_would_expire_waiting_for_others_does_not_wait),
        CASE(r18_the_queue_is_bounded),
        CASE(bad_items_are_refused),
        CASE(bad_limits_are_refused),
        CASE(a_cancelled_item_is_gone_once),
        CASE(cancelling_the_head_leaves_the_next_its_own_wait),
        CASE(among_models_the_longest_wait_against_t_goes_first),
        CASE(a_flooded_model_does_not_starve_another),
        CASE(a_starved_low_priority_lends_its_model_no_right),
        CASE(draining_takes_nothing_and_does_not_wait),
        CASE(the_whole_batcher_drains),
        CASE(configuring_takes_effect_on_what_is_queued),
        CASE(time_that_goes_backwards_stands_still),
        CASE(times_near_the_end_do_not_wrap),
        CASE(a_batch_has_at_most_max_items),
        CASE(many_shape_keys_may_wait),
        CASE(statistics_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
