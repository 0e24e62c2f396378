/* SPDX-License-Identifier: Apache-2.0 */
/* The pool with real threads; also run under ThreadSanitizer. Waits are on conditions, not times.
 */
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "pool/pool.h"
#include "tests/test.h"

enum { WORKERS = 4 };

/* An owner as the daemon is one: idle workers and pending jobs under one lock. */
struct owner {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct pool *pool;
    bool idle[WORKERS];
    uint32_t n_idle, jobs_left, jobs_run[WORKERS];
    uint32_t started, stopped;
    uint32_t fail_start; /* the worker whose start fails, plus 1; 0: none */
    pthread_t thread[WORKERS];
    sem_t hold; /* a job of kind "hold" waits for it */
    int states[WORKERS];
};

static char plain_job, hold_job;

static enum status owner_start(void *user, uint32_t worker, void **state, struct error *err)
{
    struct owner *o = user;
    if (o->fail_start == worker + 1)
        return error_set(err, STATUS_UNAVAILABLE, "no lane for worker %u", worker);
    pthread_mutex_lock(&o->lock);
    o->started++;
    o->thread[worker] = pthread_self();
    pthread_mutex_unlock(&o->lock);
    *state = &o->states[worker];
    return STATUS_OK;
}

static void owner_work(void *user, uint32_t worker, void *state, void *job)
{
    struct owner *o = user;
    assert_ptr_equal(state, &o->states[worker]);
    assert_true(pthread_equal(pthread_self(), o->thread[worker]));
    assert_true(pool_busy_since(o->pool, worker) != 0);
    if (job == &hold_job) {
        while (sem_wait(&o->hold) != 0)
            continue;
    }
    o->jobs_run[worker]++; /* the worker's own until the thread has been joined */
}

static void owner_idle(void *user, uint32_t worker)
{
    struct owner *o = user;
    assert_int_equal(pool_busy_since(o->pool, worker), 0);
    pthread_mutex_lock(&o->lock);
    assert_int_equal(o->started, WORKERS);
    assert_false(o->idle[worker]);
    if (o->jobs_left > 0) {
        o->jobs_left--;
        pool_give(o->pool, worker, &plain_job);
    } else {
        o->idle[worker] = true;
        o->n_idle++;
    }
    pthread_cond_broadcast(&o->changed);
    pthread_mutex_unlock(&o->lock);
}

static void owner_stop(void *user, uint32_t worker, void *state)
{
    struct owner *o = user;
    assert_ptr_equal(state, &o->states[worker]);
    pthread_mutex_lock(&o->lock);
    o->stopped++;
    pthread_mutex_unlock(&o->lock);
}

static const struct pool_ops ops = {
    .start = owner_start, .work = owner_work, .idle = owner_idle, .stop = owner_stop};

static void owner_init(struct owner *o)
{
    memset(o, 0, sizeof(*o));
    pthread_mutex_init(&o->lock, NULL);
    pthread_cond_init(&o->changed, NULL);
    sem_init(&o->hold, 0, 0);
}

static void owner_deinit(struct owner *o)
{
    sem_destroy(&o->hold);
    pthread_cond_destroy(&o->changed);
    pthread_mutex_destroy(&o->lock);
}

static uint64_t spin_ns; /* all tests run with spinning and without */

static void owner_open(struct owner *o)
{
    struct error err = {0};
    struct pool_ops own = ops;
    own.spin_ns = spin_ns;
    owner_init(o);
    if (pool_new(WORKERS, &own, o, &o->pool, &err))
        fail_msg("%s", err.text);
}

static void wait_idle(struct owner *o, uint32_t n)
{
    pthread_mutex_lock(&o->lock);
    while (o->n_idle < n)
        pthread_cond_wait(&o->changed, &o->lock);
    pthread_mutex_unlock(&o->lock);
}

/* Gives `job` to some idle worker. Returns the worker. */
static uint32_t give(struct owner *o, void *job)
{
    uint32_t worker = 0;
    pthread_mutex_lock(&o->lock);
    while (o->n_idle == 0)
        pthread_cond_wait(&o->changed, &o->lock);
    while (!o->idle[worker])
        worker++;
    o->idle[worker] = false;
    o->n_idle--;
    pool_give(o->pool, worker, job);
    pthread_mutex_unlock(&o->lock);
    return worker;
}

static uint64_t jobs_done(struct owner *o)
{
    uint64_t done = 0;
    for (uint32_t i = 0; i < WORKERS; i++)
        done += pool_jobs_done(o->pool, i);
    return done;
}

static void starts_and_stops(void **state)
{
    (void)state;
    struct owner o;
    owner_open(&o);
    assert_int_equal(pool_size(o.pool), WORKERS);
    wait_idle(&o, WORKERS);
    assert_int_equal(jobs_done(&o), 0);
    pool_free(o.pool);
    assert_int_equal(o.started, WORKERS);
    assert_int_equal(o.stopped, WORKERS);
    owner_deinit(&o);
}

static void stops_at_once_after_the_start(void **state)
{
    (void)state;
    for (int i = 0; i < 50; i++) {
        struct owner o;
        owner_open(&o);
        pool_free(o.pool);
        assert_int_equal(o.stopped, WORKERS);
        owner_deinit(&o);
    }
}

static void a_failed_start_fails_the_pool(void **state)
{
    (void)state;
    struct owner o;
    struct error err;
    owner_init(&o);
    o.fail_start = 3;
    assert_int_equal(pool_new(WORKERS, &ops, &o, &o.pool, &err), STATUS_UNAVAILABLE);
    assert_string_equal(err.text, "no lane for worker 2");
    assert_null(o.pool);
    assert_int_equal(o.started, WORKERS - 1);
    assert_int_equal(o.stopped, WORKERS - 1); /* the workers that had started were stopped, */
    assert_int_equal(o.n_idle, 0);            /* and no worker was ever offered */
    owner_deinit(&o);
}

static void odd_sizes_are_refused(void **state)
{
    (void)state;
    struct pool *pool = NULL;
    assert_int_equal(pool_new(0, &ops, NULL, &pool, NULL), STATUS_INVALID_ARGUMENT);
    assert_int_equal(pool_new(POOL_MAX_WORKERS + 1, &ops, NULL, &pool, NULL),
                     STATUS_INVALID_ARGUMENT);
    assert_null(pool);
    pool_free(NULL);
}

static void every_job_runs_once(void **state)
{
    (void)state;
    enum { JOBS = 20000 };
    struct owner o;
    owner_open(&o);
    for (uint32_t i = 0; i < JOBS / 2; i++)
        give(&o, &plain_job);
    pthread_mutex_lock(&o.lock); /* `idle` gives the rest of the jobs */
    o.jobs_left = JOBS / 2;
    pthread_mutex_unlock(&o.lock);
    give(&o, &plain_job);
    pthread_mutex_lock(&o.lock);
    while (o.jobs_left > 0)
        pthread_cond_wait(&o.changed, &o.lock);
    pthread_mutex_unlock(&o.lock);
    wait_idle(&o, WORKERS);
    assert_int_equal(jobs_done(&o), JOBS + 1);
    pool_free(o.pool);
    uint32_t run = 0;
    for (uint32_t i = 0; i < WORKERS; i++)
        run += o.jobs_run[i];
    assert_int_equal(run, JOBS + 1);
    owner_deinit(&o);
}

static void what_was_given_runs_before_the_stop(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct owner o;
        owner_open(&o);
        wait_idle(&o, WORKERS);
        for (uint32_t w = 0; w < WORKERS; w++) {
            pthread_mutex_lock(&o.lock);
            o.idle[w] = false;
            pthread_mutex_unlock(&o.lock);
            pool_give(o.pool, w, &plain_job);
        }
        pool_free(o.pool);
        for (uint32_t w = 0; w < WORKERS; w++)
            assert_int_equal(o.jobs_run[w], 1);
        owner_deinit(&o);
    }
}

static void r39_a_busy_worker_shows_since_when(void **state)
{
    (void)state;
    struct owner o;
    owner_open(&o);
    wait_idle(&o, WORKERS);
    uint64_t before = clock_now_ns(), since;
    uint32_t worker = give(&o, &hold_job);
    while ((since = pool_busy_since(o.pool, worker)) == 0)
        clock_sleep_until(clock_now_ns() + NS_PER_MS);
    assert_true(since >= before && since <= clock_now_ns());
    assert_int_equal(pool_jobs_done(o.pool, worker), 0);
    sem_post(&o.hold);
    wait_idle(&o, WORKERS);
    assert_int_equal(pool_busy_since(o.pool, worker), 0);
    assert_int_equal(pool_jobs_done(o.pool, worker), 1);
    pool_free(o.pool);
    owner_deinit(&o);
}

struct called {
    struct owner *owner;
    _Atomic uint32_t count;
    uint32_t fail; /* number of a worker plus 1 */
};

static enum status count_call(void *arg, uint32_t worker, void *state, struct error *err)
{
    struct called *called = arg;
    assert_ptr_equal(state, &called->owner->states[worker]);
    assert_true(pthread_equal(pthread_self(), called->owner->thread[worker]));
    atomic_fetch_add(&called->count, 1);
    if (called->fail == worker + 1)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "worker %u has no room", worker);
    return STATUS_OK;
}

static void a_call_runs_on_every_worker(void **state)
{
    (void)state;
    struct owner o;
    struct error err;
    owner_open(&o);
    struct called called = {.owner = &o};
    assert_int_equal(pool_call_each(o.pool, count_call, &called, &err), STATUS_OK);
    assert_int_equal(called.count, WORKERS);
    called.fail = 2;
    assert_int_equal(pool_call_each(o.pool, count_call, &called, &err), STATUS_RESOURCE_EXHAUSTED);
    assert_string_equal(err.text, "worker 1 has no room");
    assert_int_equal(called.count, 2 * WORKERS); /* the other workers run all the same */
    pool_free(o.pool);
    owner_deinit(&o);
}

static void *call_often(void *arg)
{
    struct called *called = arg;
    for (int i = 0; i < 200; i++)
        pool_call_each(called->owner->pool, count_call, called, NULL);
    return NULL;
}

static void calls_go_between_jobs_from_several_threads(void **state)
{
    (void)state;
    struct owner o;
    owner_open(&o);
    struct called called = {.owner = &o};
    pthread_t callers[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&callers[i], NULL, call_often, &called), 0);
    for (uint32_t i = 0; i < 5000; i++)
        give(&o, &plain_job);
    for (int i = 0; i < 2; i++)
        pthread_join(callers[i], NULL);
    wait_idle(&o, WORKERS);
    assert_int_equal(called.count, 2 * 200 * WORKERS);
    assert_int_equal(jobs_done(&o), 5000);
    pool_free(o.pool);
    owner_deinit(&o);
}

static enum status check_mask(void *arg, uint32_t worker, void *state, struct error *err)
{
    (void)arg, (void)worker, (void)state;
    sigset_t set;
    pthread_sigmask(SIG_BLOCK, NULL, &set);
    if (!sigismember(&set, SIGTERM) || !sigismember(&set, SIGHUP))
        return error_set(err, STATUS_INTERNAL, "signals come through");
    return STATUS_OK;
}

static void workers_take_no_signals(void **state)
{
    (void)state;
    struct owner o;
    struct error err = {0};
    owner_open(&o);
    if (pool_call_each(o.pool, check_mask, NULL, &err))
        fail_msg("%s", err.text);
    pool_free(o.pool);
    owner_deinit(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(starts_and_stops),
        cmocka_unit_test(stops_at_once_after_the_start),
        cmocka_unit_test(a_failed_start_fails_the_pool),
        cmocka_unit_test(odd_sizes_are_refused),
        cmocka_unit_test(every_job_runs_once),
        cmocka_unit_test(what_was_given_runs_before_the_stop),
        cmocka_unit_test(r39_a_busy_worker_shows_since_when),
        cmocka_unit_test(a_call_runs_on_every_worker),
        cmocka_unit_test(calls_go_between_jobs_from_several_threads),
        cmocka_unit_test(workers_take_no_signals),
    };
    int failed = cmocka_run_group_tests_name("workers that sleep at once", tests, NULL, NULL);
    spin_ns = 50000;
    return failed + cmocka_run_group_tests_name("workers that look first", tests, NULL, NULL);
}
