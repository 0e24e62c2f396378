/* SPDX-License-Identifier: Apache-2.0 */
/* What dispatch.c and dispatch_model.c share. */
#ifndef INFERD_DAEMON_DISPATCH_INTERNAL_H
#define INFERD_DAEMON_DISPATCH_INTERNAL_H

#include <pthread.h>

#include "base/log.h"
#include "daemon/dispatch.h"
#include "pool/pool.h"

struct dispatch_worker {
    struct batch batches[DISPATCH_OUTPUTS];
    struct batch *finished; /* the worker's thread: between the end of a job and `idle` */

    /* Under the lock. */
    struct batch *free;    /* batches whose output buffer nobody reads */
    struct batch *running; /* NULL: none */
    bool starved;          /* it would be idle if it had a free batch */
    size_t output_size;    /* what every buffer must hold; those that hold less are swapped for */
    void *spare[DISPATCH_OUTPUTS]; /* these, when they come back */
    uint32_t n_spare;
};

struct dispatch {
    struct dispatch_config config;
    pthread_mutex_t lock; /* guards the batcher, and what says so above */
    struct batcher *batcher;
    uint64_t armed_ns; /* under the lock: when the timer will go off */
    int timer_fd;
    struct pool *pool;
    /* Set once, then only read. Relaxed: a batch or two more may still try to run. */
    _Atomic bool failed;
    struct dispatch_worker workers[];
};

#endif
