/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Worker threads, see pool.h. A worker sleeps on a semaphore of its own, which is an atomic counter
 * and, if the worker sleeps, one futex wake: nobody takes a lock on the way of a job. It spins
 * before the sleep only where it is told to, and for a bounded time: an idle pool costs nothing.
 */
#include "pool/pool.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"

/* One pool_call_each: lives on its caller's stack until every worker has posted `done`. */
struct call {
    enum status (*run)(void *arg, uint32_t worker, void *state, struct error *err);
    void *arg;
    sem_t done;
    pthread_mutex_t lock;
    enum status status; /* under `lock`: the first failure */
    struct error err;   /* under `lock` */
};

struct worker {
    struct pool *pool;
    uint32_t index;
    pthread_t thread;
    void *state;              /* the worker's thread */
    enum status start_status; /* written before `pool->started` is posted, read after */
    struct error err;         /* likewise */
    sem_t wake;               /* one for every job, call, release or stop */
    /* The giver stores with release and the worker loads with acquire, so that the worker sees what
     * they point to. The semaphore alone would order a first wake, but one wake may find more than
     * what it was posted for. */
    _Atomic(void *) job;
    _Atomic(struct call *) call;
    /* Relaxed: numbers for a watchdog; nothing else is read through them. */
    _Atomic uint64_t busy_since, jobs_done;
};

struct pool {
    struct pool_ops ops;
    void *user;
    uint32_t n;
    uint32_t threads;           /* created so far; n once pool_new succeeded */
    sem_t started;              /* one for every worker that has run `start` */
    pthread_mutex_t call_lock;  /* one pool_call_each at a time */
    _Atomic bool open, stopped; /* release by the owner, acquire by workers: as for `job` */
    struct worker workers[];
};

/* Only a signal handler interrupts sem_wait(3). The pool's threads block all signals; a caller's
 * thread may not. */
static void sem_wait_all(sem_t *sem)
{
    while (sem_wait(sem) != 0)
        assert(errno == EINTR);
}

static void wait_for_work(struct worker *worker)
{
    uint64_t spin = worker->pool->ops.spin_ns, begun = spin ? clock_now_ns() : 0;
    while (spin && clock_now_ns() - begun < spin)
        if (sem_trywait(&worker->wake) == 0)
            return;
    sem_wait_all(&worker->wake);
}

static void run_call(struct worker *worker, struct call *call)
{
    struct error err = {0};
    enum status status = call->run(call->arg, worker->index, worker->state, &err);
    if (status) {
        pthread_mutex_lock(&call->lock);
        if (!call->status) {
            call->status = status;
            call->err = err;
        }
        pthread_mutex_unlock(&call->lock);
    }
    sem_post(&call->done); /* the last touch: the caller may return */
}

static void run_job(struct worker *worker, void *job)
{
    struct pool *pool = worker->pool;
    atomic_store_explicit(&worker->busy_since, clock_now_ns(), memory_order_relaxed);
    pool->ops.work(pool->user, worker->index, worker->state, job);
    atomic_store_explicit(&worker->busy_since, 0, memory_order_relaxed);
    atomic_fetch_add_explicit(&worker->jobs_done, 1, memory_order_relaxed);
    pool->ops.idle(pool->user, worker->index);
}

static void serve(struct worker *worker)
{
    struct pool *pool = worker->pool;
    bool idle = false;
    for (;;) {
        wait_for_work(worker);
        /* Read before the job: one that was given before the stop is then seen below. */
        bool stopped = atomic_load_explicit(&pool->stopped, memory_order_acquire);
        if (!idle && atomic_load_explicit(&pool->open, memory_order_acquire)) {
            idle = true;
            pool->ops.idle(pool->user, worker->index);
        }
        struct call *call = atomic_exchange_explicit(&worker->call, NULL, memory_order_acquire);
        if (call)
            run_call(worker, call);
        void *job = atomic_exchange_explicit(&worker->job, NULL, memory_order_acquire);
        if (job)
            run_job(worker, job);
        else if (stopped)
            return;
        if (stopped)
            sem_post(&worker->wake); /* `idle` may have given another job: look once more */
    }
}

static void *worker_main(void *arg)
{
    struct worker *worker = arg;
    struct pool *pool = worker->pool;
    worker->start_status = pool->ops.start(pool->user, worker->index, &worker->state, &worker->err);
    bool started = !worker->start_status;
    sem_post(&pool->started);
    if (started) {
        serve(worker);
        pool->ops.stop(pool->user, worker->index, worker->state);
    }
    return NULL;
}

static enum status thread_start(struct worker *worker, struct error *err)
{
    sigset_t all, before;
    char name[16];
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* inherited by the new thread */
    int errnum = pthread_create(&worker->thread, NULL, worker_main, worker);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (errnum)
        return error_errno(err, errnum, "cannot start worker thread %u", worker->index);
    snprintf(name, sizeof(name), "worker %u", worker->index);
    pthread_setname_np(worker->thread, name);
    return STATUS_OK;
}

static struct pool *pool_make(uint32_t n, const struct pool_ops *ops, void *user)
{
    struct pool *pool = calloc(1, sizeof(*pool) + n * sizeof(pool->workers[0]));
    if (!pool)
        return NULL;
    pool->ops = *ops;
    pool->user = user;
    pool->n = n;
    sem_init(&pool->started, 0, 0);
    pthread_mutex_init(&pool->call_lock, NULL);
    for (uint32_t i = 0; i < n; i++) {
        pool->workers[i].pool = pool;
        pool->workers[i].index = i;
        sem_init(&pool->workers[i].wake, 0, 0);
    }
    return pool;
}

/* Starts the threads and waits until all of them have run `start`; the first failure counts. */
static enum status threads_start(struct pool *pool, struct error *err)
{
    enum status status = STATUS_OK;
    for (; !status && pool->threads < pool->n; pool->threads += !status)
        status = thread_start(&pool->workers[pool->threads], err);
    for (uint32_t i = 0; i < pool->threads; i++)
        sem_wait_all(&pool->started);
    TRY(status);
    for (uint32_t i = 0; i < pool->n; i++) {
        if (pool->workers[i].start_status && err)
            *err = pool->workers[i].err;
        TRY(pool->workers[i].start_status);
    }
    return STATUS_OK;
}

static void pool_cleanup(struct pool **pool)
{
    pool_free(*pool);
}

enum status pool_new(uint32_t n, const struct pool_ops *ops, void *user, struct pool **out,
                     struct error *err)
{
    if (n < 1 || n > POOL_MAX_WORKERS)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%u workers; from 1 to %d", n,
                         POOL_MAX_WORKERS);
    CLEANUP(pool_cleanup) struct pool *made = pool_make(n, ops, user);
    if (!made)
        return error_no_memory(err, "%u workers", n);
    TRY(threads_start(made, err));
    struct pool *pool = *out = STEAL(made);
    atomic_store_explicit(&pool->open, true, memory_order_release);
    for (uint32_t i = 0; i < n; i++)
        sem_post(&pool->workers[i].wake);
    return STATUS_OK;
}

void pool_give(struct pool *pool, uint32_t worker, void *job)
{
    assert(worker < pool->n && job);
    void *before = atomic_exchange_explicit(&pool->workers[worker].job, job, memory_order_release);
    assert(!before);
    (void)before;
    sem_post(&pool->workers[worker].wake);
}

/* Calls on the workers [first, end). */
static enum status call_some(struct pool *pool, uint32_t first, uint32_t end, struct call *each,
                             struct error *err)
{
    sem_init(&each->done, 0, 0);
    pthread_mutex_init(&each->lock, NULL);
    pthread_mutex_lock(&pool->call_lock);
    for (uint32_t i = first; i < end; i++) {
        atomic_store_explicit(&pool->workers[i].call, each, memory_order_release);
        sem_post(&pool->workers[i].wake);
    }
    for (uint32_t i = first; i < end; i++)
        sem_wait_all(&each->done);
    pthread_mutex_unlock(&pool->call_lock);
    pthread_mutex_destroy(&each->lock);
    sem_destroy(&each->done);
    if (each->status && err)
        *err = each->err;
    return each->status;
}

enum status pool_call_each(struct pool *pool,
                           enum status (*call)(void *arg, uint32_t worker, void *state,
                                               struct error *err),
                           void *arg, struct error *err)
{
    struct call each = {.run = call, .arg = arg};
    return call_some(pool, 0, pool->n, &each, err);
}

enum status pool_call_one(struct pool *pool, uint32_t worker,
                          enum status (*call)(void *arg, uint32_t worker, void *state,
                                              struct error *err),
                          void *arg, struct error *err)
{
    struct call one = {.run = call, .arg = arg};
    assert(worker < pool->n);
    return call_some(pool, worker, worker + 1, &one, err);
}

uint32_t pool_size(const struct pool *pool)
{
    return pool->n;
}

uint64_t pool_busy_since(const struct pool *pool, uint32_t worker)
{
    assert(worker < pool->n);
    return atomic_load_explicit(&pool->workers[worker].busy_since, memory_order_relaxed);
}

uint64_t pool_jobs_done(const struct pool *pool, uint32_t worker)
{
    assert(worker < pool->n);
    return atomic_load_explicit(&pool->workers[worker].jobs_done, memory_order_relaxed);
}

void pool_free(struct pool *pool)
{
    if (!pool)
        return;
    atomic_store_explicit(&pool->stopped, true, memory_order_release);
    for (uint32_t i = 0; i < pool->threads; i++)
        sem_post(&pool->workers[i].wake);
    for (uint32_t i = 0; i < pool->threads; i++)
        pthread_join(pool->workers[i].thread, NULL);
    for (uint32_t i = 0; i < pool->n; i++)
        sem_destroy(&pool->workers[i].wake);
    pthread_mutex_destroy(&pool->call_lock);
    sem_destroy(&pool->started);
    free(pool);
}
