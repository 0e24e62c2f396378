/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of batcher.h about flows: turns, ageing and places. Each is tested by itself, in
 * virtual time. */
#include <stdlib.h>

#include "base/compiler.h"
#include "batching/batcher.h"
#include "tests/test.h"

enum { N_ITEMS = 4096, MAX_BATCH = 8, LIMIT = 64 };

struct fixture {
    struct batcher *batcher;
    struct batcher_model *model; /* max_batch 8, never waits for other requests, queue 64 */
    struct batcher_item items[N_ITEMS];
    uint32_t used;
    struct batcher_item *evicted; /* by the last one */
    struct batcher_decision d;
};

static const struct batcher_model_config defaults = {.max_batch = MAX_BATCH, .queue_limit = LIMIT};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    assert_non_null(f);
    f->batcher = batcher_new();
    assert_non_null(f->batcher);
    assert_int_equal(batcher_model_add(f->batcher, &defaults, &f->model, NULL), STATUS_OK);
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

static void limits(struct fixture *f, uint32_t max_batch, uint32_t queue_limit)
{
    struct batcher_model_config config = defaults;
    config.max_batch = max_batch;
    config.queue_limit = queue_limit;
    assert_int_equal(batcher_model_configure(f->model, &config, NULL), STATUS_OK);
}

static struct batcher_item *item_new(struct fixture *f, uint64_t flow, uint32_t instances)
{
    assert_in_range(f->used, 0, N_ITEMS - 1);
    struct batcher_item *item = &f->items[f->used++];
    *item =
        (struct batcher_item){.instances = instances, .flow = flow, .deadline_ns = BATCHER_NEVER};
    return item;
}

static enum cause try(struct fixture *f, struct batcher_item *item)
{
    f->evicted = NULL;
    return batcher_submit(f->model, item, 0, &f->evicted);
}

static struct batcher_item *ask(struct fixture *f, uint64_t flow, uint32_t instances)
{
    struct batcher_item *item = item_new(f, flow, instances);
    assert_int_equal(try(f, item), CAUSE_OK);
    return item;
}

static struct batcher_item *ask_at(struct fixture *f, uint64_t flow, uint32_t priority)
{
    struct batcher_item *item = item_new(f, flow, 1);
    item->priority = priority;
    assert_int_equal(try(f, item), CAUSE_OK);
    return item;
}

static void ask_many(struct fixture *f, uint64_t flow, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        ask(f, flow, 1);
}

static struct batcher_item *batch(struct fixture *f)
{
    batcher_worker_idle(f->batcher, 0);
    batcher_step(f->batcher, 0, &f->d);
    return f->d.batch;
}

/* The next items to run belong to these flows, one character an item, in one batch or several. */
static void expect_flows(struct fixture *f, const char *flows)
{
    const struct batcher_item *item = NULL;
    for (; *flows; flows++) {
        item = item ? item->next : NULL;
        item = item ? item : batch(f);
        if (!item || item->flow != (uint64_t)*flows)
            fail_msg("flow '%c' where '%s' should be", item ? (int)item->flow : '-', flows);
    }
}

/* --- turns --- */

static void flows_take_turns(void **state)
{
    struct fixture *f = *state;
    ask_many(f, 'a', 6);
    ask_many(f, 'b', 3);
    ask_many(f, 'c', 2);
    expect_flows(f, "abcabcabaaa");
}

static void a_turn_is_so_many_instances(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 3; i++)
        ask(f, 'a', 4);
    ask_many(f, 'b', 12);
    expect_flows(f, "abbbbabbbbabbbb");
}

static void each_flow_keeps_its_order(void **state)
{
    struct fixture *f = *state;
    struct batcher_item *last[4] = {NULL};
    for (uint32_t i = 0; i < 40; i++)
        ask(f, i * 7 % 4, 1 + i % 3);
    for (const struct batcher_item *item; (item = batch(f)) != NULL;)
        for (; item; item = item->next) {
            assert_true(!last[item->flow] || last[item->flow] < item);
            last[item->flow] = &f->items[item - f->items];
        }
}

static void one_request_a_flow_is_the_order_of_arrival(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 40; i++)
        ask(f, 1000 - i, 1 + i * 5 % 8);
    uint32_t next = 0;
    for (const struct batcher_item *item; (item = batch(f)) != NULL;)
        for (; item; item = item->next, next++)
            assert_ptr_equal(item, &f->items[next]);
    assert_int_equal(next, 40);
}

static void a_new_flow_is_not_behind_a_backlog(void **state)
{
    struct fixture *f = *state;
    ask_many(f, 'a', 20);
    expect_flows(f, "aaaaaaaa");
    ask(f, 'b', 1);
    ask(f, 'c', 1);
    expect_flows(f, "abcaaaaa"); /* each other flow has one request at most */
}

static void to_be_away_gains_nothing(void **state)
{
    struct fixture *f = *state;
    ask_many(f, 'b', 1);
    expect_flows(f, "b");
    ask_many(f, 'a', 24);
    expect_flows(f, "aaaaaaaaaaaaaaaa");
    ask_many(f, 'b', 8); /* no twelve in a row to make up for the time before */
    expect_flows(f, "abababab");
}

static void an_empty_queue_opens_no_new_turn(void **state)
{
    struct fixture *f = *state;
    uint32_t served = 0;
    limits(f, 8, 2048);
    for (uint32_t i = 0; i < 200; i++)
        ask(f, 'a', 1);
    limits(f, 4, 2048);
    for (uint32_t i = 0; i < 20; i++) { /* a request of four, and the next one when it has gone */
        struct batcher_item *heavy = ask(f, 'b', 4);
        while (heavy->model) {
            for (const struct batcher_item *item = batch(f); item; item = item->next)
                served += item->flow == 'a';
        }
    }
    assert_in_range(served, 19 * 4, 22 * 4); /* as much as flow 'b' */
}

static void new_flows_do_not_starve_who_was_there(void **state)
{
    struct fixture *f = *state;
    limits(f, 1, 1024);
    for (uint32_t i = 0; i < 20; i++)
        ask(f, 1000 + i, 1);
    ask(f, 'a', 1);
    struct batcher_item *second = ask(f, 'a', 1);
    for (uint32_t i = 0; second->model; i++) {
        assert_in_range(i, 0, 70);
        ask(f, 2000 + i, 1);
        assert_non_null(batch(f));
    }
}

static void turns_are_across_shape_keys(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 30; i++) {
        struct batcher_item *item = item_new(f, 'a', 1);
        item->shape_key = 1 + i;
        assert_int_equal(try(f, item), CAUSE_OK);
    }
    ask(f, 'b', 1); /* a key of its own makes a batch of its own, behind one batch of flow 'a' */
    expect_flows(f, "ab");
}

static void what_did_not_run_costs_nothing(void **state)
{
    struct fixture *f = *state;
    struct batcher_item *gone[20];
    for (uint32_t i = 0; i < 20; i++)
        gone[i] = ask(f, 'a', 8);
    ask_many(f, 'b', 8);
    for (uint32_t i = 0; i < 20; i++)
        assert_true(batcher_cancel(gone[i]));
    ask_many(f, 'a', 8);
    expect_flows(f, "babababa");
}

static void a_backlog_does_not_go_before_other_models(void **state)
{
    struct fixture *f = *state;
    struct batcher_model *other;
    assert_int_equal(batcher_model_add(f->batcher, &defaults, &other, NULL), STATUS_OK);
    for (uint32_t i = 0; i < 40; i++)
        assert_int_equal(batcher_submit(other, item_new(f, 'a', 1), i, &f->evicted), CAUSE_OK);
    batcher_worker_idle(f->batcher, 0);
    batcher_step(f->batcher, 100, &f->d);
    assert_ptr_equal(f->d.model, other);
    assert_int_equal(batcher_submit(f->model, item_new(f, 'b', 1), 101, &f->evicted), CAUSE_OK);
    batcher_worker_idle(f->batcher, 0);
    batcher_step(f->batcher, 102, &f->d); /* the next of 'a' is the first since 100 */
    assert_ptr_equal(f->d.model, other);
    batcher_worker_idle(f->batcher, 0);
    batcher_step(f->batcher, 103, &f->d);
    assert_ptr_equal(f->d.model, f->model);
}

/* --- ageing --- */

/* Keeps 16 requests of priority 0 queued and counts batches until the item has gone. */
static uint32_t batches_until_gone(struct fixture *f, const struct batcher_item *item)
{
    uint32_t n = 0;
    for (; item->model; n++) {
        assert_in_range(n, 0, 100);
        while (f->used < N_ITEMS && n < 100) {
            struct batcher_model_stats stats;
            batcher_model_stats(f->model, &stats);
            if (stats.queued_items >= 4 * MAX_BATCH)
                break;
            ask(f, 'a', 1);
        }
        assert_non_null(batch(f));
    }
    return n;
}

static void one_batch_of_sixteen_is_led_by_a_lower_priority(void **state)
{
    struct fixture *f = *state;
    struct batcher_item *first = ask_at(f, 'b', 1);
    struct batcher_item *second = ask_at(f, 'b', 1);
    assert_int_equal(batches_until_gone(f, first), BATCHER_SHARE);
    assert_ptr_equal(f->d.batch, first); /* the item leads, and the best ones fill the batch */
    for (const struct batcher_item *item = first->next; item; item = item->next)
        assert_int_equal(item->priority, 0);
    assert_int_equal(f->d.instances, MAX_BATCH);
    assert_int_equal(batches_until_gone(f, second), BATCHER_SHARE);
}

static void each_lower_priority_gets_its_share(void **state)
{
    struct fixture *f = *state;
    struct batcher_item *low[BATCHER_PRIORITIES];
    for (uint32_t p = BATCHER_PRIORITIES - 1; p > 0; p--)
        low[p] = ask_at(f, 'b', p);
    assert_int_equal(batches_until_gone(f, low[1]), BATCHER_SHARE);
    assert_int_equal(batches_until_gone(f, low[2]), 1);
    assert_int_equal(batches_until_gone(f, low[3]), 1);
}

static void who_rides_along_does_not_take_the_place_of_who_was_first(void **state)
{
    struct fixture *f = *state;
    uint32_t n = 0;
    struct batcher_item *first = item_new(f, 'b', 1);
    first->priority = 1;
    first->shape_key = 7;
    assert_int_equal(try(f, first), CAUSE_OK);
    for (; first->model; n++) { /* The other key always has one item of priority 0 and one of 1. */
        assert_in_range(n, 0, 100);
        ask_at(f, 'a', 0);
        ask_at(f, 'c', 1);
        assert_non_null(batch(f));
    }
    assert_int_equal(n, BATCHER_SHARE);
}

static void who_waits_for_others_of_its_own_priority_is_not_passed_over(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < 40; i++)
        ask_at(f, 'b', 3);
    for (uint32_t i = 0; i < 5; i++) {
        const struct batcher_item *item = batch(f);
        for (; item; item = item->next)
            assert_int_equal(item->flow, 'b');
    }
    struct batcher_item *low = ask_at(f, 'b', 3);
    /* earlier batches earned it nothing */
    assert_int_equal(batches_until_gone(f, low), BATCHER_SHARE);
}

/* --- places --- */

static struct batcher_model_stats stats_of(const struct fixture *f)
{
    struct batcher_model_stats stats;
    batcher_model_stats(f->model, &stats);
    return stats;
}

static uint32_t places(const struct fixture *f, uint64_t flow)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->used; i++)
        n += f->items[i].model && f->items[i].flow == flow;
    return n;
}

static void r18_a_full_queue_makes_room_for_who_has_less(void **state)
{
    struct fixture *f = *state;
    ask_many(f, 'a', LIMIT);
    struct batcher_item *newest = &f->items[f->used - 1];
    assert_int_equal(try(f, item_new(f, 'a', 1)), CAUSE_QUEUE_FULL);
    assert_null(f->evicted);
    struct batcher_item *item = ask(f, 'b', 1);
    assert_ptr_equal(f->evicted, newest);
    assert_null(newest->model);
    assert_int_equal(newest->late_ns, 0);
    assert_false(batcher_cancel(newest));
    assert_non_null(item->model);
    assert_int_equal(stats_of(f).queued_items, LIMIT);
    assert_int_equal(stats_of(f).refused, 2);
    expect_flows(f, "aba");
}

static void r18_each_of_n_flows_keeps_its_share_of_places(void **state)
{
    struct fixture *f = *state;
    enum { FLOWS = 5 };
    ask_many(f, 0, LIMIT);
    for (uint32_t i = 0; i < 30 * FLOWS; i++)
        for (uint64_t flow = 0; flow < FLOWS; flow++)
            try(f, item_new(f, flow, 1));
    for (uint64_t flow = 0; flow < FLOWS; flow++)
        assert_in_range(places(f, flow), LIMIT / FLOWS, LIMIT / FLOWS + 1);
    assert_int_equal(stats_of(f).queued_items, LIMIT);
    /* once shares are equal, no flow pushes out another */
    for (uint64_t flow = 0; flow < FLOWS; flow++) {
        assert_int_equal(try(f, item_new(f, flow, 1)), CAUSE_QUEUE_FULL);
        assert_null(f->evicted);
    }
}

static void more_flows_than_places(void **state)
{
    struct fixture *f = *state;
    for (uint64_t flow = 0; flow < LIMIT; flow++)
        ask(f, flow, 1);
    assert_int_equal(try(f, item_new(f, 1000, 1)), CAUSE_QUEUE_FULL);
    assert_null(f->evicted);
}

static void the_worst_priority_of_the_longest_is_pushed_out(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < LIMIT; i++)
        ask_at(f, 'a', i % 3 == 0 ? 2 : 0);
    ask(f, 'b', 1);
    assert_ptr_equal(f->evicted, &f->items[LIMIT - 1]); /* item 63, of the worst priority, 2 */
    ask(f, 'b', 1);
    assert_ptr_equal(f->evicted, &f->items[LIMIT - 4]);
}

static void a_better_priority_is_not_pushed_out(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < LIMIT - 10; i++)
        ask_at(f, 'a', 0);
    for (uint32_t i = 0; i < 10; i++)
        ask_at(f, 'b', 1);
    struct batcher_item *newest = &f->items[f->used - 1];
    ask_at(f, 'c', 1);
    assert_ptr_equal(f->evicted, newest); /* flow 'b' loses a place, though 'a' has more */
    ask_at(f, 'd', 0);
    assert_int_equal(f->evicted->flow, 'a');
}

static void r18_a_better_priority_does_not_shut_out_the_worse(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < LIMIT; i++)
        ask_at(f, 'a', 0);
    for (uint32_t i = 0; i < LIMIT / BATCHER_SHARE; i++) {
        ask_at(f, 'b', 3);
        assert_int_equal(f->evicted->flow, 'a');
    }
    struct batcher_item *item = item_new(f, 'b', 1);
    item->priority = 3;
    assert_int_equal(try(f, item), CAUSE_QUEUE_FULL);
    ask_at(f, 'c', 3); /* flows share the places of the worse priority */
    assert_int_equal(f->evicted->flow, 'b');
}

/* The flow with the longest queue is found again after queues have become shorter. */
static void the_longest_is_the_longest_now(void **state)
{
    struct fixture *f = *state;
    ask_many(f, 'a', LIMIT - 20);
    ask_many(f, 'b', 20);
    for (uint32_t i = 0; i < LIMIT - 30; i++)
        assert_true(batcher_cancel(&f->items[i])); /* 'a' has 10 left */
    ask_many(f, 'c', LIMIT - 30);
    ask_many(f, 'd', 10);
    assert_int_equal(places(f, 'a'), 10);
    assert_int_equal(places(f, 'b'), 20);
    assert_int_equal(places(f, 'c'), LIMIT - 40);
}

/* A flow that floods the queue and is refused gets neither an earlier nor a later turn. */
static void to_be_pushed_out_costs_nothing(void **state)
{
    struct fixture *f = *state;
    ask_many(f, 'a', LIMIT);
    for (uint32_t i = 0; i < LIMIT / 2; i++) {
        ask(f, 'b', 1);
        assert_int_equal(f->evicted->flow, 'a');
    }
    for (uint32_t i = 0; i < LIMIT / 2; i++)
        assert_true(batcher_cancel(&f->items[LIMIT + i]));
    for (uint32_t i = 0; i < LIMIT / 2; i += MAX_BATCH)
        assert_non_null(batch(f)); /* the rest of 'a' runs */
    ask_many(f, 'a', 8);
    ask_many(f, 'b', 8);
    expect_flows(f, "abababab");
}

/* A flow's record is kept in case that the flow returns. Beyond the limit, records are reused. */
static void many_flows_come_and_go(void **state)
{
    struct fixture *f = *state;
    for (uint32_t i = 0; i < N_ITEMS; i++) {
        ask(f, UINT64_C(0x100000001) * i, 1);
        if (i % 3 == 0)
            batch(f);
    }
    while (batch(f))
        continue;
    assert_int_equal(stats_of(f).queued_items, 0);
    assert_int_equal(stats_of(f).instances, N_ITEMS);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(flows_take_turns),
        CASE(a_turn_is_so_many_instances),
        CASE(each_flow_keeps_its_order),
        CASE(one_request_a_flow_is_the_order_of_arrival),
        CASE(a_new_flow_is_not_behind_a_backlog),
        CASE(to_be_away_gains_nothing),
        CASE(an_empty_queue_opens_no_new_turn),
        CASE(new_flows_do_not_starve_who_was_there),
        CASE(turns_are_across_shape_keys),
        CASE(what_did_not_run_costs_nothing),
        CASE(a_backlog_does_not_go_before_other_models),
        CASE(one_batch_of_sixteen_is_led_by_a_lower_priority),
        CASE(each_lower_priority_gets_its_share),
        CASE(who_rides_along_does_not_take_the_place_of_who_was_first),
        CASE(who_waits_for_others_of_its_own_priority_is_not_passed_over),
        CASE(r18_a_full_queue_makes_room_for_who_has_less),
        CASE(r18_each_of_n_flows_keeps_its_share_of_places),
        CASE(more_flows_than_places),
        CASE(the_worst_priority_of_the_longest_is_pushed_out),
        CASE(a_better_priority_is_not_pushed_out),
        CASE(r18_a_better_priority_does_not_shut_out_the_worse),
        CASE(the_longest_is_the_longest_now),
        CASE(to_be_pushed_out_costs_nothing),
        CASE(many_flows_come_and_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
