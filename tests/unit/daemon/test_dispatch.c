/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dispatcher between made-up loops (threads of this test) and a made-up engine. Each request
 * must come back exactly once, with its own result, whatever happens around it.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "config/config.h"
#include "daemon/dispatch.h"
#include "tests/test.h"
#include "tests/unit/daemon/toy_engine.h"

enum { LOOPS = 3, REQUESTS = 64 };

struct loop {
    uint32_t index;
    _Atomic(struct inflight *) arrived;
    struct inflight items[REQUESTS];
    uint64_t values[REQUESTS];
    uint8_t out[REQUESTS];           /* 1: the dispatcher has the request */
    _Atomic uint8_t spent[REQUESTS]; /* 1: its payload has been read */
    uint64_t counts[CAUSE_COUNT_], cancelled;
    uint64_t pushed_out; /* requests in `counts` that were pushed out */
};

static struct dispatch *dispatch;
static struct counters counters;
static struct loop loops[LOOPS];
static struct config *config;
static struct config_model model_config;
static struct model *model;
static bool shared_fate; /* The whole batch failed: all its requests have the same text. */
static _Atomic int lost, delivering, linger_us;
static _Atomic(struct model *) retired;

static void deliver(void *user, uint32_t loop, struct inflight *first, struct inflight *last)
{
    (void)user;
    atomic_fetch_add(&delivering, 1);
    last->next = atomic_load(&loops[loop].arrived);
    while (!atomic_compare_exchange_weak(&loops[loop].arrived, &last->next, first))
        ;
    usleep((useconds_t)atomic_load(&linger_us));
    atomic_fetch_sub(&delivering, 1);
}

static void spent(void *user, uint32_t loop, struct inflight *first, struct inflight *last)
{
    (void)user;
    assert_true(atomic_load(&toy.apart));
    for (struct inflight *i = first;; i = i->next_spent) {
        assert_int_equal(i->loop, loop);
        atomic_fetch_add(&loops[loop].spent[i->id], 1);
        if (i == last)
            return;
    }
}

static void on_lost(void *user, const struct error *err)
{
    (void)user;
    (void)err;
    atomic_fetch_add(&lost, 1);
}

static void on_retire(void *user, struct model *gone)
{
    (void)user;
    atomic_store(&retired, gone);
}

static struct model *model_new(size_t out_bytes)
{
    struct model *out;
    struct error err;
    if (dispatch_model_load(dispatch, config, &model_config, "1", toy_engine_new(out_bytes), &out,
                            &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return out;
}

static void model_drop(struct model *gone)
{
    atomic_store(&retired, NULL);
    model_unref(gone);
    assert_ptr_equal(atomic_load(&retired), gone);
    dispatch_model_unload(dispatch, gone);
}

static int setup_workers(uint32_t workers)
{
    toy_reset();
    memset(loops, 0, sizeof(loops));
    memset(&counters, 0, sizeof(counters));
    atomic_store(&lost, 0);
    for (uint32_t i = 0; i < LOOPS; i++)
        loops[i].index = i;
    static char name[] = "toy";
    config = config_new();
    config->max_delay_us = 0;
    model_config = (struct config_model){.name = name, .max_delay_us = -1};
    const struct dispatch_config c = {.device = toy_device(),
                                      .workers = workers,
                                      .counters = &counters,
                                      .deliver = deliver,
                                      .spent = spent,
                                      .lost = on_lost,
                                      .retire = on_retire};
    struct error err;
    return dispatch_new(&c, &dispatch, &err) == STATUS_OK ? 0 : -1;
}

static int setup(void **state)
{
    (void)state;
    int r = setup_workers(2);
    if (r == 0)
        model = model_new(8 * 16);
    return r;
}

static int teardown(void **state)
{
    (void)state;
    if (model)
        model_drop(model);
    model = NULL;
    dispatch_free(dispatch);
    config_free(config);
    return atomic_load(&toy.buffers) || atomic_load(&toy.contexts) || atomic_load(&toy.lanes) ||
           atomic_load(&toy.engines);
}

/* --- a loop's side --- */

static struct inflight *fill(struct loop *loop, uint32_t k, uint64_t value, uint64_t deadline_ns)
{
    struct inflight *i = &loop->items[k];
    *i = (struct inflight){.loop = loop->index, .serial = k, .id = k, .model = model};
    i->item.instances = 1;
    i->item.deadline_ns = deadline_ns;
    i->item.flow = loop->index;
    loop->values[k] = value;
    i->spans[0] = (struct engine_span){&loop->values[k], 8};
    loop->out[k] = 1;
    return i;
}

static void returned(struct loop *loop, struct inflight *i)
{
    assert_int_equal(loop->out[i->id], 1); /* exactly once */
    loop->out[i->id] = 0;
    loop->counts[i->cause]++;
    uint8_t told = atomic_exchange(&loop->spent[i->id], 0);
    assert_int_equal(told, atomic_load(&toy.apart) && !i->cause);
    if (!i->cause) {
        const uint64_t *y = i->batch->output;
        assert_int_equal(y[i->first], loop->values[i->id] + 1);
        assert_true(i->batch->instances >= 1 && i->batch->instances <= 16);
        assert_false(toy_is_poison(loop->values[i->id]));
    } else if (i->cause == CAUSE_INVALID_ARGUMENT &&
               !shared_fate) { /* Only the guilty request fails, with a text of its own. */
        char text[64];
        snprintf(text, sizeof(text), "the toy spits out %llu",
                 (unsigned long long)loop->values[i->id]);
        assert_string_equal(i->why, text);
    }
}

static uint32_t collect(struct loop *loop, struct batch **done)
{
    uint32_t n = 0;
    for (struct inflight *i = atomic_exchange(&loop->arrived, NULL), *next; i; i = next, n++) {
        next = i->next;
        returned(loop, i);
        if (i->cause == CAUSE_QUEUE_FULL) {
            assert_null(i->batch);
            loop->pushed_out++;
        }
        dispatch_release(i, done);
    }
    return n;
}

static uint32_t outstanding(const struct loop *loop)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < REQUESTS; k++)
        n += loop->out[k];
    return n;
}

static void collect_all(struct loop *loop)
{
    uint64_t end_ns = clock_now_ns() + 20 * NS_PER_S;
    while (outstanding(loop)) {
        struct batch *done = NULL;
        collect(loop, &done);
        dispatch_recycle(dispatch, done);
        assert_true(clock_now_ns() < end_ns);
        usleep(200);
    }
}

static void submit(struct loop *loop, struct inflight *first)
{
    for (struct inflight *i = dispatch_submit(dispatch, first), *next; i; i = next) {
        next = i->next;
        assert_true(i->cause != CAUSE_OK);
        returned(loop, i);
    }
}

/* The number of all measurements in a stage's histogram. */
static uint64_t stage_count(enum body_stage_name stage)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < HISTOGRAM_SHARED_BUCKETS; i++)
        n += atomic_load(&model->stats.stage_times[stage].bucket[i]);
    return n;
}

/* --- tests --- */

static void a_request_and_its_result(void **state)
{
    (void)state;
    submit(&loops[0], fill(&loops[0], 0, 41, BATCHER_NEVER));
    collect_all(&loops[0]);
    assert_int_equal(loops[0].counts[CAUSE_OK], 1);
    assert_int_equal(atomic_load(&model->stats.ok), 1);
    assert_int_equal(atomic_load(&model->stats.stage_ns[BODY_COMPUTE]), 2);
    assert_int_equal(stage_count(BODY_COMPUTE), 1);
    assert_int_equal(stage_count(BODY_QUEUE), 1);
    uint64_t total_ns = atomic_load(&model->stats.stage_ns[BODY_TOTAL]);
    uint32_t bucket = histogram_shared_bucket(total_ns);
    assert_true(total_ns >= atomic_load(&model->stats.stage_ns[BODY_QUEUE]));
    assert_int_equal(atomic_load(&model->stats.stage_times[BODY_TOTAL].bucket[bucket]), 1);
    assert_int_equal(atomic_load(&model->stats.by_batch[1].count), 1);
}

/* A loop may have its requests back while the worker that returned them is still busy with the
 * loop. */
static void workers_are_done_with_loops(void **state)
{
    (void)state;
    atomic_store(&linger_us, 50000);
    submit(&loops[0], fill(&loops[0], 0, 41, BATCHER_NEVER));
    collect_all(&loops[0]);
    assert_int_equal(atomic_load(&delivering), 1);
    dispatch_settle(dispatch);
    assert_int_equal(atomic_load(&delivering), 0);
    atomic_store(&linger_us, 0);
}

static void *hammer(void *arg)
{
    struct loop *loop = arg;
    uint64_t seed = loop->index + 1;
    for (int turn = 0; turn < 2000; turn++) {
        struct inflight *first = NULL;
        struct batch *done = NULL;
        for (uint32_t k = 0; k < REQUESTS; k++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            uint64_t dice = seed >> 40;
            if (!loop->out[k] && dice % 8 == 0) {
                uint64_t deadline = dice % 64 == 8 ? clock_now_ns() + dice % 5000 : BATCHER_NEVER;
                struct inflight *i = fill(loop, k, seed, deadline);
                /* two flows a loop, of which one asks more */
                i->item.flow += k % 8 < 2 ? LOOPS : 0;
                i->next = first;
                first = i;
            } else if (loop->out[k] && dice % 64 == 1 &&
                       dispatch_cancel(dispatch, &loop->items[k])) {
                loop->out[k] = 0;
                loop->cancelled++;
            }
        }
        if (first)
            submit(loop, first);
        collect(loop, &done);
        if (seed % 3 == 0)
            usleep(seed % 200); /* a slow loop keeps its batches for a while */
        dispatch_recycle(dispatch, done);
    }
    collect_all(loop);
    return NULL;
}

static void *tick(void *arg)
{
    _Atomic bool *stop = arg;
    while (!atomic_load(stop)) {
        dispatch_timer(dispatch);
        usleep(100);
    }
    return NULL;
}

/* Loops, workers, the timer and reloads all run at once. */
static void hammer_all(void)
{
    pthread_t threads[LOOPS], timer;
    _Atomic bool stop = false;
    struct error err;
    config->max_delay_us = 100;
    model_config.queue_limit = 24;
    assert_int_equal(dispatch_model_configure(dispatch, model, config, &model_config, &err),
                     STATUS_OK);
    atomic_store(&toy.fail_every, 17);
    atomic_store(&toy.poison, 50);
    assert_int_equal(pthread_create(&timer, NULL, tick, &stop), 0);
    for (uint32_t i = 0; i < LOOPS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, &loops[i]), 0);
    for (int i = 0; i < 20; i++) {
        struct model *other = model_new(8 * 16 + (size_t)i * 4096); /* larger and larger outputs */
        usleep(2000);
        model_drop(other);
    }
    uint64_t counts[CAUSE_COUNT_] = {0}, cancelled = 0, pushed_out = 0;
    for (uint32_t i = 0; i < LOOPS; i++) {
        pthread_join(threads[i], NULL);
        for (int k = 0; k < CAUSE_COUNT_; k++)
            counts[k] += loops[i].counts[k];
        cancelled += loops[i].cancelled;
        pushed_out += loops[i].pushed_out;
    }
    atomic_store(&stop, true);
    pthread_join(timer, NULL);
    assert_true(counts[CAUSE_OK] > 1000);
    assert_true(counts[CAUSE_INTERNAL] > 10);
    assert_true(counts[CAUSE_INVALID_ARGUMENT] > 10);
    assert_true(counter_get(&counters, COUNTER_BATCHES_SPLIT) > 10);
    assert_true(counts[CAUSE_EXPIRED] > 0);
    assert_true(cancelled > 0);
    assert_true(pushed_out > 10);
    struct batcher_model_stats stats;
    dispatch_model_stats(dispatch, model, &stats);
    assert_int_equal(stats.refused, counts[CAUSE_QUEUE_FULL] + counts[CAUSE_DEADLINE_HOPELESS]);
    for (int k = 0; k < BODY_STAGES; k++)
        assert_int_equal(stage_count(k), counts[CAUSE_OK]);
    assert_int_equal(atomic_load(&model->stats.ok), counts[CAUSE_OK]);
    assert_int_equal(atomic_load(&model->stats.failed),
                     counts[CAUSE_INTERNAL] + counts[CAUSE_INVALID_ARGUMENT]);
}

static void r12_each_request_comes_back_once(void **state)
{
    (void)state;
    hammer_all();
}

/* The loop is told once, before the request ends, that its payload is free. */
static void r12_on_a_device_that_copies_inputs(void **state)
{
    (void)state;
    atomic_store(&toy.apart, true);
    hammer_all();
}

static void a_worker_without_a_free_buffer_is_not_idle(void **state)
{
    (void)state;
    /* Two workers of four buffers each: the ninth batch has to wait until one is released. */
    struct batch *done = NULL;
    uint32_t arrived = 0;
    for (uint32_t k = 0; k < 20; k++) {
        submit(&loops[0], fill(&loops[0], k, k, BATCHER_NEVER));
        usleep(3000);
    }
    arrived = collect(&loops[0], &done);
    assert_int_equal(arrived, 8);
    usleep(20000);
    assert_null(atomic_load(&loops[0].arrived));
    dispatch_recycle(dispatch, done);
    collect_all(&loops[0]);
    assert_int_equal(loops[0].counts[CAUSE_OK], 20);
}

static struct inflight *result_of(uint32_t k)
{
    uint64_t end_ns = clock_now_ns() + 20 * NS_PER_S;
    struct inflight *got;
    submit(&loops[0], fill(&loops[0], k, k, BATCHER_NEVER));
    while (!(got = atomic_exchange(&loops[0].arrived, NULL))) {
        assert_true(clock_now_ns() < end_ns);
        usleep(200);
    }
    returned(&loops[0], got);
    return got;
}

/* What is kept for long leaves every worker buffers to work with. */
static void half_of_a_workers_buffers_may_be_kept(void **state)
{
    (void)state;
    struct inflight *kept[REQUESTS];
    struct batch *done = NULL;
    uint32_t n = 0;
    for (uint32_t k = 0; k < 40; k++) {
        struct inflight *got = result_of(k);
        if (dispatch_keep(got))
            kept[n++] = got;
        else
            dispatch_release(got, &done);
        dispatch_recycle(dispatch, done);
        done = NULL;
    }
    assert_in_range(n, DISPATCH_KEPT, 2 * DISPATCH_KEPT); /* two workers, of which one may do all */
    for (uint32_t i = 0; i < n; i++)                      /* nobody has written over them */
        assert_int_equal(*(const uint64_t *)inflight_output(kept[i], 0),
                         loops[0].values[kept[i]->id] + 1);
    for (uint32_t i = 0; i < n; i++)
        dispatch_release(kept[i], &done);
    dispatch_recycle(dispatch, done);
    done = NULL;
    struct inflight *again = result_of(50);
    assert_true(dispatch_keep(again));
    dispatch_release(again, &done);
    dispatch_recycle(dispatch, done);
}

/* Two calls: nobody came by since the first one, so the second one looks itself. */
static uint64_t waiting_now(void)
{
    dispatch_look(dispatch);
    dispatch_look(dispatch);
    assert_int_equal(atomic_load(&model->waiting.instances), atomic_load(&model->waiting.requests));
    return atomic_load(&model->waiting.requests);
}

static void a_look_from_outside(void **state)
{
    (void)state;
    assert_int_equal(waiting_now(), 0);
    assert_int_equal(atomic_load(&model->waiting.age_ns), 0);
    assert_int_equal(dispatch_output_bytes_seen(dispatch), dispatch_output_bytes(dispatch));
    atomic_store(&toy.delay_ns, 200 * NS_PER_MS);
    for (uint32_t k = 0; k < 2; k++) { /* one for each worker */
        submit(&loops[0], fill(&loops[0], k, k, BATCHER_NEVER));
        usleep(5000);
    }
    assert_int_equal(waiting_now(), 0);
    uint64_t begin_ns = clock_now_ns();
    dispatch_look(dispatch);
    submit(&loops[0], fill(&loops[0], 2, 2, BATCHER_NEVER)); /* which tells what it sees */
    assert_int_equal(atomic_load(&model->waiting.requests), 1);
    usleep(10000);
    for (uint32_t k = 3; k < 6; k++)
        submit(&loops[0], fill(&loops[0], k, k, BATCHER_NEVER));
    assert_int_equal(atomic_load(&model->waiting.requests), 1); /* nobody asked */
    assert_int_equal(waiting_now(), 4);
    assert_in_range(atomic_load(&model->waiting.age_ns), 10 * NS_PER_MS, clock_now_ns() - begin_ns);
    collect_all(&loops[0]);
    assert_int_equal(waiting_now(), 0);
}

static void r18_a_full_queue(void **state)
{
    (void)state;
    struct error err;
    model_config.queue_limit = 3;
    assert_int_equal(dispatch_model_configure(dispatch, model, config, &model_config, &err),
                     STATUS_OK);
    atomic_store(&toy.delay_ns, 50 * NS_PER_MS);
    for (uint32_t k = 0; k < 2; k++) {
        submit(&loops[0], fill(&loops[0], k, k, BATCHER_NEVER));
        usleep(5000);
    }
    struct inflight *first = NULL;
    for (uint32_t k = 2; k < 12; k++) {
        struct inflight *i = fill(&loops[0], k, k, BATCHER_NEVER);
        i->next = first;
        first = i;
    }
    submit(&loops[0], first);
    assert_int_equal(loops[0].counts[CAUSE_QUEUE_FULL], 7);
    collect_all(&loops[0]);
    assert_int_equal(loops[0].counts[CAUSE_OK], 5);
}

/* Two loops: the requests of one push the other's queued requests out. */
static void r12_what_is_pushed_out_comes_back_to_its_own_loop(void **state)
{
    (void)state;
    struct error err;
    model_config.queue_limit = 4;
    assert_int_equal(dispatch_model_configure(dispatch, model, config, &model_config, &err),
                     STATUS_OK);
    atomic_store(&toy.delay_ns, 200 * NS_PER_MS);
    for (uint32_t k = 0; k < 6; k++) { /* two run, four wait */
        submit(&loops[0], fill(&loops[0], k, k, BATCHER_NEVER));
        usleep(k < 2 ? 5000 : 0);
    }
    struct inflight *first = NULL;
    /* two find a place; the third has no better right than the rest */
    for (uint32_t k = 0; k < 3; k++) {
        struct inflight *i = fill(&loops[1], k, k, BATCHER_NEVER);
        i->next = first;
        first = i;
    }
    submit(&loops[1], first);
    assert_int_equal(loops[1].counts[CAUSE_QUEUE_FULL], 1);
    assert_int_equal(loops[1].pushed_out, 0);
    struct batch *done = NULL;
    assert_int_equal(collect(&loops[0], &done), 2); /* at once */
    assert_null(done);
    assert_int_equal(loops[0].pushed_out, 2);
    assert_int_equal(loops[0].out[4] + loops[0].out[5], 0); /* the newest */
    assert_false(dispatch_cancel(dispatch, &loops[0].items[5]));
    collect_all(&loops[0]);
    collect_all(&loops[1]);
    assert_int_equal(loops[0].counts[CAUSE_OK], 4);
    assert_int_equal(loops[1].counts[CAUSE_OK], 2);
}

/* Both requests are in one chain, which two connections of a loop may make. */
static void what_is_pushed_out_by_its_own_chain(void **state)
{
    (void)state;
    struct error err;
    struct inflight *all[8];
    model_config.queue_limit = 4;
    assert_int_equal(dispatch_model_configure(dispatch, model, config, &model_config, &err),
                     STATUS_OK);
    for (uint32_t k = 0; k < 8; k++) { /* four of each flow */
        all[k] = fill(&loops[0], k, k, BATCHER_NEVER);
        all[k]->item.flow = k / 4;
        if (k > 0)
            all[k - 1]->next = all[k];
    }
    submit(&loops[0], all[0]);
    assert_int_equal(loops[0].counts[CAUSE_QUEUE_FULL], 2); /* requests 6 and 7 */
    collect_all(&loops[0]);
    assert_int_equal(loops[0].pushed_out, 2); /* requests 2 and 3 */
    assert_int_equal(all[2]->cause, CAUSE_QUEUE_FULL);
    assert_int_equal(all[3]->cause, CAUSE_QUEUE_FULL);
    assert_int_equal(loops[0].counts[CAUSE_OK], 4);
}

static void r19_deadlines_right_before_the_launch(void **state)
{
    (void)state;
    atomic_store(&toy.delay_ns, 30 * NS_PER_MS);
    uint64_t soon_ns = clock_now_ns() + 10 * NS_PER_MS;
    for (uint32_t k = 0; k < 6; k++)
        submit(&loops[0], fill(&loops[0], k, k, k < 2 ? BATCHER_NEVER : soon_ns));
    collect_all(&loops[0]);
    assert_true(loops[0].counts[CAUSE_EXPIRED] >= 2);
    assert_int_equal(loops[0].counts[CAUSE_EXPIRED] + loops[0].counts[CAUSE_OK], 6);
    submit(&loops[0], fill(&loops[0], 0, 0, 1));
    collect_all(&loops[0]);
    assert_int_equal(loops[0].counts[CAUSE_EXPIRED] + loops[0].counts[CAUSE_OK], 7);
}

static void r29_after_the_loss_nothing_runs(void **state)
{
    (void)state;
    atomic_store(&toy.lose_at, 3);
    atomic_store(&toy.delay_ns, NS_PER_MS);
    for (uint32_t k = 0; k < 30; k++) {
        submit(&loops[0], fill(&loops[0], k, k, BATCHER_NEVER));
        usleep(2000);
    }
    collect_all(&loops[0]);
    assert_int_equal(atomic_load(&lost), 1);
    assert_int_equal(loops[0].counts[CAUSE_OK], 2);
    assert_int_equal(loops[0].counts[CAUSE_DEVICE_LOST], 28);
    assert_int_equal(atomic_load(&toy.batches), 3);
    dispatch_fail(dispatch);
    submit(&loops[0], fill(&loops[0], 0, 0, BATCHER_NEVER));
    assert_int_equal(loops[0].counts[CAUSE_DRAINING], 1);
}

static void r31_a_load_that_fails_leaves_no_trace(void **state)
{
    (void)state;
    struct error err;
    struct model *out;
    int buffers = atomic_load(&toy.buffers), contexts = atomic_load(&toy.contexts);
    for (int allowed = 0; allowed < 2; allowed++) {
        atomic_store(&toy.contexts_allowed, allowed);
        assert_int_equal(dispatch_model_load(dispatch, config, &model_config, "2",
                                             toy_engine_new(128), &out, &err),
                         STATUS_RESOURCE_EXHAUSTED);
    }
    atomic_store(&toy.contexts_allowed, -1);
    for (int allowed = 0; allowed < 4; allowed++) {
        atomic_store(&toy.buffers_allowed, allowed);
        assert_int_equal(dispatch_model_load(dispatch, config, &model_config, "2",
                                             toy_engine_new(65536), &out, &err),
                         STATUS_RESOURCE_EXHAUSTED);
    }
    atomic_store(&toy.buffers_allowed, -1);
    assert_int_equal(atomic_load(&toy.buffers), buffers);
    assert_int_equal(atomic_load(&toy.contexts), contexts);
    assert_int_equal(atomic_load(&toy.engines), 1);
    submit(&loops[0], fill(&loops[0], 0, 41, BATCHER_NEVER));
    collect_all(&loops[0]);
    assert_int_equal(loops[0].counts[CAUSE_OK], 1);
}

static void stuck_requests_are_named(void **state)
{
    (void)state;
    struct dispatch_stuck stuck[8];
    atomic_store(&toy.delay_ns, 100 * NS_PER_MS);
    submit(&loops[1], fill(&loops[1], 7, 1, BATCHER_NEVER));
    usleep(30000);
    uint64_t now_ns = clock_now_ns();
    assert_int_equal(dispatch_hung(dispatch, now_ns, NS_PER_S), 0);
    assert_int_equal(dispatch_hung(dispatch, now_ns, 10 * NS_PER_MS), 10 * NS_PER_MS);
    assert_int_equal(dispatch_stuck(dispatch, now_ns, NS_PER_S, stuck, 8), 0);
    assert_int_equal(dispatch_stuck(dispatch, now_ns, 10 * NS_PER_MS, stuck, 8), 1);
    assert_int_equal(stuck[0].loop, 1);
    assert_int_equal(stuck[0].serial, 7);
    assert_int_equal(dispatch_workers_busy(dispatch), 1);
    collect_all(&loops[1]);
    assert_int_equal(dispatch_hung(dispatch, clock_now_ns() + NS_PER_S, 1), 0);
}

/* The limit is ten times the p99 of a hundred batches, but never less than what is configured. */
static void r30_a_hang_is_measured_by_the_profile(void **state)
{
    (void)state;
    atomic_store(&toy.delay_ns, NS_PER_MS);
    for (uint32_t k = 0; k < 99; k++) {
        submit(&loops[0], fill(&loops[0], 0, 1, BATCHER_NEVER));
        collect_all(&loops[0]);
    }
    usleep(5000); /* the worker tells of its batch after it has told of its requests' end */
    assert_int_equal(model->paces[0].limit_ns, 0);
    submit(&loops[0], fill(&loops[0], 0, 1, BATCHER_NEVER));
    collect_all(&loops[0]);
    usleep(5000);
    uint64_t limit_ns = model->paces[0].limit_ns;
    assert_true(limit_ns >= 10 * NS_PER_MS);
    atomic_store(&toy.delay_ns, 300 * NS_PER_MS);
    uint64_t before_ns = clock_now_ns();
    submit(&loops[0], fill(&loops[0], 0, 1, BATCHER_NEVER));
    usleep(30000);
    uint64_t now_ns = clock_now_ns();
    assert_int_equal(dispatch_hung(dispatch, before_ns + limit_ns, 1), 0);
    assert_int_equal(dispatch_hung(dispatch, now_ns + limit_ns, 1), limit_ns);
    assert_int_equal(dispatch_hung(dispatch, now_ns + limit_ns, 100 * limit_ns), 0);
    collect_all(&loops[0]);
}

/* batches that fail because of one request */

/* Submits `n` requests at once, which makes them one batch; value 1 is poison. */
static void submit_values(const uint64_t *values, uint32_t n)
{
    struct inflight *first = NULL;
    atomic_store(&toy.poison, 1000);
    for (uint32_t k = n; k-- > 0;) {
        struct inflight *i = fill(&loops[0], k, values[k], BATCHER_NEVER);
        i->next = first;
        first = i;
    }
    submit(&loops[0], first);
}

static void r28_the_guilty_alone(void **state)
{
    static const struct {
        uint64_t values[16];
        uint32_t n;
        int runs; /* each part that fails is halved: two more runs */
    } cases[] = {
        {{1}, 1, 1},
        {{1, 2}, 2, 3},
        {{2, 3, 1}, 3, 5},
        {{2, 3, 4, 5, 6, 7, 8, 1}, 8, 7},
        {{1, 3, 4, 5, 6, 7, 8, 1}, 8, 11},
        {{2, 3, 4, 5, 1, 7, 8, 9, 2, 3, 4, 5, 6, 7, 8, 9}, 16, 9},
        {{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 16, 31},
    };
    (void)state;
    for (uint32_t apart = 0; apart < 2; apart++)
        for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
            uint64_t bad = 0, runs = (uint64_t)atomic_load(&toy.batches);
            uint64_t ok_before = loops[0].counts[CAUSE_OK];
            uint64_t bad_before = loops[0].counts[CAUSE_INVALID_ARGUMENT];
            for (uint32_t k = 0; k < cases[c].n; k++)
                bad += cases[c].values[k] == 1;
            atomic_store(&toy.apart, apart);
            submit_values(cases[c].values, cases[c].n);
            collect_all(&loops[0]);
            assert_int_equal(loops[0].counts[CAUSE_OK] - ok_before, cases[c].n - bad);
            assert_int_equal(loops[0].counts[CAUSE_INVALID_ARGUMENT] - bad_before, bad);
            assert_int_equal((uint64_t)atomic_load(&toy.batches) - runs, cases[c].runs);
        }
    assert_int_equal(counter_get(&counters, COUNTER_BATCHES_SPLIT), 12);
}

static void r28_what_is_not_a_requests_is_not_tried_again(void **state)
{
    (void)state;
    atomic_store(&toy.model_scope, true);
    submit_values((uint64_t[]){2, 3, 1, 4}, 4);
    shared_fate = true;
    collect_all(&loops[0]);
    shared_fate = false;
    assert_int_equal(loops[0].counts[CAUSE_INVALID_ARGUMENT], 4);
    assert_int_equal(atomic_load(&toy.batches), 1);
    assert_int_equal(counter_get(&counters, COUNTER_BATCHES_SPLIT), 0);
    for (uint32_t k = 0; k < 4; k++)
        assert_string_equal(loops[0].items[k].why, "the toy spits out 1");
}

static void r19_deadlines_hold_between_parts(void **state)
{
    (void)state;
    struct inflight *all[4];
    uint64_t soon_ns = clock_now_ns() + NS_PER_S;
    atomic_store(&toy.delay_ns, 1200 * NS_PER_MS);
    atomic_store(&toy.poison, 1000);
    for (uint32_t k = 0; k < 4; k++)
        all[k] = fill(&loops[0], k, k == 1 ? 1 : k + 2, k == 3 ? soon_ns : BATCHER_NEVER);
    for (uint32_t k = 0; k < 3; k++)
        all[k]->next = all[k + 1];
    submit(&loops[0], all[0]);
    collect_all(&loops[0]); /* request 0 runs first, until after the deadline of request 3 */
    assert_int_equal(all[0]->cause, CAUSE_OK);
    assert_int_equal(all[1]->cause, CAUSE_INVALID_ARGUMENT);
    assert_int_equal(all[2]->cause, CAUSE_OK);
    assert_int_equal(all[3]->cause, CAUSE_EXPIRED);
    assert_int_equal(atomic_load(&toy.batches), 5);
}

static void r29_a_loss_between_parts(void **state)
{
    (void)state;
    atomic_store(&toy.lose_at, 4);
    /* 4 fail, 2 fail, one succeeds, then the device is lost */
    submit_values((uint64_t[]){2, 1, 3, 4}, 4);
    collect_all(&loops[0]);
    assert_int_equal(atomic_load(&toy.batches), 4);
    assert_int_equal(atomic_load(&lost), 1);
    assert_int_equal(loops[0].counts[CAUSE_OK], 1);
    assert_int_equal(loops[0].counts[CAUSE_DEVICE_LOST], 3);
}

/* Without memory to run parts of the batch, all its requests get the error of the whole batch. */
static void without_memory_for_parts(void **state)
{
    (void)state;
    int buffers = atomic_load(&toy.buffers);
    atomic_store(&toy.buffers_allowed, 0);
    submit_values((uint64_t[]){2, 1, 3, 4}, 4);
    shared_fate = true;
    collect_all(&loops[0]);
    shared_fate = false;
    assert_int_equal(loops[0].counts[CAUSE_INVALID_ARGUMENT], 4);
    atomic_store(&toy.buffers_allowed, -1);
    submit_values((uint64_t[]){2, 1, 3, 4}, 4);
    collect_all(&loops[0]);
    assert_int_equal(loops[0].counts[CAUSE_OK], 3);
    assert_true(atomic_load(&toy.buffers) <= buffers + 2); /* each worker keeps one buffer */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_request_and_its_result, setup, teardown),
        cmocka_unit_test_setup_teardown(workers_are_done_with_loops, setup, teardown),
        cmocka_unit_test_setup_teardown(r12_each_request_comes_back_once, setup, teardown),
        cmocka_unit_test_setup_teardown(r12_on_a_device_that_copies_inputs, setup, teardown),
        cmocka_unit_test_setup_teardown(a_worker_without_a_free_buffer_is_not_idle, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(half_of_a_workers_buffers_may_be_kept, setup, teardown),
        cmocka_unit_test_setup_teardown(a_look_from_outside, setup, teardown),
        cmocka_unit_test_setup_teardown(r18_a_full_queue, setup, teardown),
        cmocka_unit_test_setup_teardown(r12_what_is_pushed_out_comes_back_to_its_own_loop, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_is_pushed_out_by_its_own_chain, setup, teardown),
        cmocka_unit_test_setup_teardown(r19_deadlines_right_before_the_launch, setup, teardown),
        cmocka_unit_test_setup_teardown(r29_after_the_loss_nothing_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(r28_the_guilty_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(r28_what_is_not_a_requests_is_not_tried_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(r19_deadlines_hold_between_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(r29_a_loss_between_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(without_memory_for_parts, setup, teardown),
        cmocka_unit_test_setup_teardown(r30_a_hang_is_measured_by_the_profile, setup, teardown),
        cmocka_unit_test_setup_teardown(r31_a_load_that_fails_leaves_no_trace, setup, teardown),
        cmocka_unit_test_setup_teardown(stuck_requests_are_named, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
