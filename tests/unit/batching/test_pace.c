/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pace of batches, as measured (pace.h), and the requests that are refused because at that pace
 * they would miss their deadlines (batcher.h). In virtual time.
 */
#include <stdlib.h>

#include "base/compiler.h"
#include "batching/batcher.h"
#include "batching/pace.h"
#include "tests/test.h"

enum { MAX_BATCH = 8, TOOK = 100, N_ITEMS = 128 };

/* --- the pace --- */

static struct pace fresh(void)
{
    struct pace pace = {0};
    pace_limit(&pace, MAX_BATCH);
    return pace;
}

static void nothing_seen_takes_no_time(void **state)
{
    (void)state;
    struct pace pace = fresh();
    assert_int_equal(pace_batch(&pace, 5).mean_ns, 0);
    assert_int_equal(pace_queue_ns(&pace, 1000, NULL), 0);
}

static void a_size_never_seen_is_like_the_nearest_smaller(void **state)
{
    (void)state;
    struct pace pace = fresh();
    pace_ran(&pace, 3, 300); /* the class of sizes 3 and 4 */
    pace_ran(&pace, 16, 900);
    assert_int_equal(pace_batch(&pace, 4).mean_ns, 300);
    assert_int_equal(pace_batch(&pace, 8).mean_ns, 300);
    assert_int_equal(pace_batch(&pace, 15).mean_ns, 900);
    assert_int_equal(pace_batch(&pace, UINT32_MAX).mean_ns, 900);
    assert_int_equal(pace_batch(&pace, 1).mean_ns, 300); /* there is no smaller class */
}

static void times_are_followed(void **state)
{
    (void)state;
    struct pace pace = fresh();
    pace_ran(&pace, 1, 1000);
    for (int i = 0; i < 100; i++)
        pace_ran(&pace, 1, 50000);
    assert_in_range(pace_batch(&pace, 1).mean_ns, 49900, 50000);
    assert_in_range(pace_batch(&pace, 1).deviation_ns, 0, 500);
    for (int i = 0; i < 100; i++)
        pace_ran(&pace, 1, i % 2 ? 800 : 1200);
    assert_in_range(pace_batch(&pace, 1).mean_ns, 900, 1100);
    assert_in_range(pace_batch(&pace, 1).deviation_ns, 150, 250);
    pace_ran(&pace, 1, UINT64_MAX); /* times that a broken clock gives do no harm */
    pace_ran(&pace, 1, 0);
}

static void a_queue_is_batches_as_full_as_they_get(void **state)
{
    (void)state;
    struct pace pace = fresh();
    uint32_t rest;
    pace_ran(&pace, 1, 10);
    pace_ran(&pace, 8, 50);
    assert_int_equal(pace_queue_ns(&pace, 17, NULL), 2 * 50 + 10);
    assert_int_equal(pace_queue_ns(&pace, 17, &rest), 2 * 50);
    assert_int_equal(rest, 1);
    for (int i = 0; i < 100; i++)
        pace_formed(&pace, 5); /* requests of five do not fill a batch of eight */
    assert_in_range(pace_queue_ns(&pace, 100, NULL), 19 * 50, 21 * 50);
    assert_int_equal(pace_queue_ns(&pace, UINT64_MAX / 256, NULL) > 0, 1);
}

/* --- the refusals --- */

struct fixture {
    struct batcher *batcher;
    struct batcher_model *model;
    struct batcher_item items[N_ITEMS];
    uint32_t used;
    uint64_t flow;      /* of the next items, unless `each_its_flow` */
    bool each_its_flow; /* each item has a flow of its own */
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->batcher = batcher_new();
    assert_non_null(f->batcher);
    const struct batcher_model_config config = {.max_batch = MAX_BATCH, .queue_limit = N_ITEMS};
    assert_int_equal(batcher_model_add(f->batcher, &config, &f->model, NULL), STATUS_OK);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < f->used; i++)
        batcher_cancel(&f->items[i]);
    batcher_free(f->batcher);
    free(f);
    return 0;
}

static struct batcher_item *submit_to(struct fixture *f, struct batcher_model *model, uint64_t now,
                                      uint64_t deadline, uint32_t priority)
{
    assert_in_range(f->used, 0, N_ITEMS - 1);
    struct batcher_item *item = &f->items[f->used++];
    *item = (struct batcher_item){.instances = 1, .deadline_ns = deadline, .priority = priority};
    item->flow = f->each_its_flow ? f->used : f->flow;
    struct batcher_item *evicted;
    enum cause cause = batcher_submit(model, item, now, &evicted);
    assert_int_equal(cause, item->late_ns ? CAUSE_DEADLINE_HOPELESS : CAUSE_OK);
    assert_int_equal(item->model == NULL, item->late_ns > 0);
    return item;
}

/* By how much a request that arrives now would miss its deadline; 0: it is taken. */
static uint64_t late(struct fixture *f, uint64_t now, uint64_t deadline, uint32_t priority)
{
    return submit_to(f, f->model, now, deadline, priority)->late_ns;
}

/* Worker 0 runs a batch that was formed now, and `n` items wait. The pace is known: a batch takes
 * TOOK. */
static void load(struct fixture *f, struct batcher_model *model, uint64_t now, uint32_t n)
{
    struct batcher_decision d;
    for (int i = 0; i < 40; i++) {
        submit_to(f, model, now, BATCHER_NEVER, 1);
        batcher_worker_idle(f->batcher, 0);
        batcher_step(f->batcher, now, &d);
        assert_ptr_equal(d.model, model);
        if (i < 39)
            batcher_worker_ran(f->batcher, 0, MAX_BATCH, TOOK);
        f->used--;
    }
    for (uint32_t i = 0; i < n; i++)
        submit_to(f, model, now, BATCHER_NEVER, 1);
}

static uint64_t hopeless(const struct fixture *f)
{
    struct batcher_model_stats stats;
    batcher_model_stats(f->model, &stats);
    assert_int_equal(stats.refused, stats.hopeless);
    return stats.hopeless;
}

static void r18_what_cannot_make_its_deadline_is_refused_at_once(void **state)
{
    struct fixture *f = *state;
    load(f, f->model, 0, 2 * MAX_BATCH); /* a batch runs, two wait, then its own: 300 + 100 */
    assert_int_equal(late(f, 0, 200, 1), 300 + 300 / 4 + 100 - 200);
    assert_int_equal(late(f, 0, 474, 1), 1);
    assert_int_equal(hopeless(f), 2);
    assert_int_equal(late(f, 0, 475, 1), 0);
    assert_int_equal(late(f, 0, BATCHER_NEVER, 1), 0);
    assert_int_equal(hopeless(f), 2);
}

static void the_time_a_batch_has_run_counts(void **state)
{
    struct fixture *f = *state;
    load(f, f->model, 0, 0);
    assert_int_equal(late(f, 0, 150, 1), 100 + 100 / 4 + 100 - 150);
    assert_int_equal(late(f, 60, 210, 1), 0);    /* 40 to go */
    assert_int_equal(late(f, 5000, 5110, 1), 0); /* overdue: as good as over */
}

static void r19_an_idle_worker_gives_every_request_its_chance(void **state)
{
    struct fixture *f = *state;
    load(f, f->model, 0, 0);
    batcher_worker_idle(f->batcher, 1);
    assert_int_equal(late(f, 0, 1, 1), 0);
}

static void a_burst_meets_the_queue_that_it_makes(void **state)
{
    struct fixture *f = *state;
    load(f, f->model, 0, 0);
    batcher_worker_idle(f->batcher, 0); /* No step between them, as if all came in one read. */
    uint32_t taken = 0;
    while (taken < 100 && late(f, 0, 450, 1) == 0)
        taken++;
    assert_int_equal(taken, 3 * MAX_BATCH); /* two batches, their margin of a quarter, its own */
}

/* A batch took longer than expected. Of the requests whose deadlines are near now, only some can
 * make them. */
static void r19_who_would_be_late_gives_his_place_to_one_who_would_not(void **state)
{
    struct fixture *f = *state;
    struct batcher_decision d;
    struct batcher_item *items[2 * MAX_BATCH];
    load(f, f->model, 0, 0);
    for (uint32_t i = 0; i < 2 * MAX_BATCH; i++)
        items[i] = submit_to(f, f->model, 0, 600 + i / 5 * 100, 1); /* 5 each for 600, 700, .. */
    batcher_worker_ran(f->batcher, 0, MAX_BATCH, TOOK);
    batcher_worker_idle(f->batcher, 0);
    batcher_step(f->batcher, 550, &d); /* a batch formed now ends at 650 */
    assert_int_equal(d.instances, MAX_BATCH);
    for (uint32_t i = 0; i < MAX_BATCH; i++, d.batch = d.batch->next)
        assert_ptr_equal(d.batch, items[5 + i]);
    for (uint32_t i = 0; i < 5; i++, d.expired = d.expired->next)
        assert_ptr_equal(d.expired, items[i]);
    assert_null(d.expired);
    struct batcher_model_stats stats;
    batcher_model_stats(f->model, &stats);
    assert_int_equal(stats.expired, 5);
    assert_int_equal(stats.queued_items, 3);
}

/* The pace may be wrong, so a late request stays while nobody else wants its place. */
static void r19_a_place_that_is_free_is_not_given_away(void **state)
{
    struct fixture *f = *state;
    struct batcher_decision d;
    load(f, f->model, 0, 0);
    for (uint32_t i = 0; i < MAX_BATCH + 2; i++)
        submit_to(f, f->model, 0, i < 5 ? 600 : 900, 1);
    batcher_worker_ran(f->batcher, 0, MAX_BATCH, TOOK);
    batcher_worker_idle(f->batcher, 0);
    batcher_step(f->batcher, 550, &d);
    assert_int_equal(d.instances, MAX_BATCH); /* three of the five late ones, and five others */
    uint32_t late = 0;
    for (; d.batch; d.batch = d.batch->next)
        late += d.batch->deadline_ns == 600;
    assert_int_equal(late, 3);
}

static void an_unknown_pace_refuses_nobody(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 64; i++)
        assert_int_equal(late(f, 10, 10 + i, 1), 0);
}

static void better_priorities_do_not_wait_for_worse(void **state)
{
    struct fixture *f = *state;
    load(f, f->model, 0, 4 * MAX_BATCH);
    assert_int_equal(late(f, 0, 230, 0), 0);
    assert_true(late(f, 0, 230, 1) > 0);
    assert_true(late(f, 0, 230, 3) > 0);
}

static void several_workers_share_the_queue(void **state)
{
    struct fixture *f = *state;
    struct batcher_decision d;
    load(f, f->model, 0, 5 * MAX_BATCH);
    batcher_worker_idle(f->batcher, 1);
    batcher_step(f->batcher, 0, &d);
    assert_int_equal(d.worker, 1); /* 2 batches run, 4 wait: 600 for two workers */
    assert_int_equal(late(f, 0, 300, 1), 300 + 300 / 4 + 100 - 300);
    batcher_worker_gone(f->batcher, 1); /* one batch counts as running, 4 wait */
    assert_int_equal(late(f, 0, 500, 1), 500 + 500 / 4 + 100 - 500);
}

static void a_backlog_of_another_flow_is_not_waited_for(void **state)
{
    struct fixture *f = *state;
    load(f, f->model, 0, 4 * MAX_BATCH);
    assert_int_equal(late(f, 0, 500, 1), 500 + 500 / 4 + 100 - 500);
    f->flow = 1; /* only the running batch and its own count */
    assert_int_equal(late(f, 0, 200, 1), 100 + 100 / 4 + 100 - 200);
    assert_int_equal(late(f, 0, 225, 1), 0);
    for (uint32_t i = 0; i < MAX_BATCH; i++) /* 9 requests of its own flow, and as many of flow 0 */
        submit_to(f, f->model, 0, BATCHER_NEVER, 1);
    assert_int_equal(late(f, 0, 400, 1), 300 + 300 / 4 + 100 - 400);
    f->flow = 2;
    assert_int_equal(late(f, 0, 225, 1), 0);
    f->flow = 0; /* all 32 requests of its own flow, and the 9 of flow 1 */
    assert_int_equal(late(f, 0, 600, 1), 600 + 600 / 4 + 100 - 600);
}

static void many_flows_are_waited_for_one_by_one(void **state)
{
    struct fixture *f = *state;
    load(f, f->model, 0, 0);
    f->each_its_flow = true;
    for (uint32_t i = 0; i < 2 * MAX_BATCH; i++)
        submit_to(f, f->model, 0, BATCHER_NEVER, 1);
    assert_int_equal(late(f, 0, 200, 1), 300 + 300 / 4 + 100 - 200); /* as if they were one flow */
}

static void a_backlog_of_another_model_is_not_waited_for(void **state)
{
    struct fixture *f = *state;
    struct batcher_model *other;
    const struct batcher_model_config config = {.max_batch = MAX_BATCH, .queue_limit = N_ITEMS};
    assert_int_equal(batcher_model_add(f->batcher, &config, &other, NULL), STATUS_OK);
    load(f, other, 0, 8 * MAX_BATCH);
    f->flow = 1; /* one batch runs, and one may go before it */
    assert_int_equal(late(f, 0, 200, 0), 200 + 200 / 4 - 200);
    assert_int_equal(late(f, 0, 250, 0), 0);
    assert_int_equal(late(f, 0, 350, 0), 300 + 300 / 4 - 350); /* behind a batch of its own model */
    while (f->used)
        batcher_cancel(&f->items[--f->used]);
    batcher_model_remove(other);
}

static void other_models_queues_are_waited_for(void **state)
{
    struct fixture *f = *state;
    struct batcher_model *other;
    f->each_its_flow = true;
    const struct batcher_model_config config = {.max_batch = MAX_BATCH, .queue_limit = N_ITEMS};
    assert_int_equal(batcher_model_add(f->batcher, &config, &other, NULL), STATUS_OK);
    load(f, other, 0, 2 * MAX_BATCH);
    /* the time of its own batch is not known */
    assert_int_equal(late(f, 0, 300, 0), 300 + 300 / 4 - 300);
    assert_int_equal(late(f, 0, 400, 0), 0);
    while (f->used)
        batcher_cancel(&f->items[--f->used]); /* the sums of waiting work go down */
    assert_int_equal(late(f, 0, 125, 0), 0);
    batcher_cancel(&f->items[0]);
    batcher_model_remove(other);
}

/* One slow batch must not keep a model from ever running again. */
static void a_wrong_pace_is_measured_again(void **state)
{
    struct fixture *f = *state;
    struct batcher_decision d;
    submit_to(f, f->model, 0, BATCHER_NEVER, 1);
    batcher_worker_idle(f->batcher, 0);
    batcher_step(f->batcher, 0, &d);
    batcher_worker_ran(f->batcher, 0, 1, UINT64_C(1000000));
    uint32_t batches = 0;
    for (uint64_t now = 0; batches < 200; now += TOOK) {
        /* the first request may always run */
        assert_int_equal(late(f, now, now + 10 * TOOK, 1), 0);
        uint64_t second = late(f, now, now + 10 * TOOK, 1);
        batcher_worker_idle(f->batcher, 0);
        batcher_step(f->batcher, now, &d);
        assert_ptr_equal(d.model, f->model);
        batcher_worker_ran(f->batcher, 0, d.instances, TOOK);
        f->used = 0;
        batches++;
        if (batches > 100)
            assert_int_equal(second, 0);
    }
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_seen_takes_no_time),
        cmocka_unit_test(a_size_never_seen_is_like_the_nearest_smaller),
        cmocka_unit_test(times_are_followed),
        cmocka_unit_test(a_queue_is_batches_as_full_as_they_get),
        CASE(r18_what_cannot_make_its_deadline_is_refused_at_once),
        CASE(the_time_a_batch_has_run_counts),
        CASE(r19_an_idle_worker_gives_every_request_its_chance),
        CASE(a_burst_meets_the_queue_that_it_makes),
        CASE(r19_who_would_be_late_gives_his_place_to_one_who_would_not),
        CASE(r19_a_place_that_is_free_is_not_given_away),
        CASE(an_unknown_pace_refuses_nobody),
        CASE(better_priorities_do_not_wait_for_worse),
        CASE(several_workers_share_the_queue),
        CASE(a_backlog_of_another_flow_is_not_waited_for),
        CASE(many_flows_are_waited_for_one_by_one),
        CASE(a_backlog_of_another_model_is_not_waited_for),
        CASE(other_models_queues_are_waited_for),
        CASE(a_wrong_pace_is_measured_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
