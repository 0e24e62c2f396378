/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fixed pool of worker threads. Each runs its owner's callbacks: `start` once on the new thread
 * (makes its lane), `work` for every job handed to it, `stop` at the end. The pool knows nothing of
 * batches or engines: a job is a pointer.
 *
 * A worker has one slot and holds at most one job: pool_give is called only for a worker that is
 * idle, by the owner, who hears of idleness through `idle`. Each worker shows since when it has
 * been busy, so that a watchdog can tell a busy worker from a stuck one (R30 and R39 of
 * docs/operations.md).
 */
#ifndef INFERD_POOL_POOL_H
#define INFERD_POOL_POOL_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum { POOL_MAX_WORKERS = 256 };

struct pool;

struct pool_ops {
    /* On the worker's thread, before anything else. A failure ends pool_new with this error. */
    enum status (*start)(void *user, uint32_t worker, void **state, struct error *err);
    /* On the worker's thread: runs one job. */
    void (*work)(void *user, uint32_t worker, void *state, void *job);
    /* On the worker's thread: it can take a job from now on (after start, after each job). */
    void (*idle)(void *user, uint32_t worker);
    /* On the worker's thread, last. */
    void (*stop)(void *user, uint32_t worker, void *state);
    /* How long a worker looks for its next job before it sleeps: a sleeper takes tens of
     * microseconds to wake. 0: it sleeps at once. */
    uint64_t spin_ns;
};

/* Starts `n` threads and waits until all have started. `idle` is called only after that, and only
 * if all did; `*out` is set before the first `idle`, which may already give jobs. The threads block
 * all signals. 1 <= n <= POOL_MAX_WORKERS, else INVALID_ARGUMENT. */
enum status pool_new(uint32_t n, const struct pool_ops *ops, void *user, struct pool **out,
                     struct error *err);

/* Hands a job to an idle worker. Producer: any thread, under the owner's lock or not; consumer:
 * that worker. One atomic store and one wake. Also from within `idle`. */
void pool_give(struct pool *pool, uint32_t worker, void *job);

/* Runs `call` once on every worker's thread, between jobs, and waits for all (loading a model makes
 * a context on each). Jobs may be in flight; not from a worker's own thread. The first failure
 * wins. */
enum status pool_call_each(struct pool *pool,
                           enum status (*call)(void *arg, uint32_t worker, void *state,
                                               struct error *err),
                           void *arg, struct error *err);

/* The same on one worker's thread. */
enum status pool_call_one(struct pool *pool, uint32_t worker,
                          enum status (*call)(void *arg, uint32_t worker, void *state,
                                              struct error *err),
                          void *arg, struct error *err);

uint32_t pool_size(const struct pool *pool);

/* When the worker began its present job (clock_now_ns); 0 if it has none. Any thread. */
uint64_t pool_busy_since(const struct pool *pool, uint32_t worker);
/* How many jobs the worker has finished; tests wait by it for a worker that is done. Any thread. */
uint64_t pool_jobs_done(const struct pool *pool, uint32_t worker);

/* Lets running jobs end (and runs those that were given but not begun), stops and joins all
 * threads. No job may be given any more. NULL is fine. */
void pool_free(struct pool *pool);

#endif
