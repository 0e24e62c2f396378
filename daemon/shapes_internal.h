/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of engines for new sizes share:
 *
 *   shapes.c        what models and requests ask of them
 *   shapes_build.c  the thread: builds, evictions, the end
 *
 * The lock is held for the table only: plans are built, engines loaded and models let go without
 * it, because the last reference to a model comes back to shapes_retire.
 */
#ifndef INFERD_DAEMON_SHAPES_INTERNAL_H
#define INFERD_DAEMON_SHAPES_INTERNAL_H

#include <pthread.h>

#include "config/schema.h"
#include "daemon/shape_source.h"
#include "daemon/shapes.h"

struct shapes {
    struct shared *shared;
    struct plan_cache *plans; /* the thread's; also at the end */
    pthread_t thread;
    bool started;
    _Atomic bool stop; /* relaxed: the lock guards all else */

    pthread_mutex_t lock; /* guards what follows, and the settings of models */
    pthread_cond_t wake;
    struct shape_cache *cache;
    struct shape_limits limits;
    uint32_t build_timeout_s;
    struct model *retired; /* by ->next */

    uint64_t said_ns; /* the thread's: when the log was last told of a failure */
    /* Relaxed: numbers, for limits and for people. */
    _Atomic uint64_t engines, bytes, waiting, waiting_bytes;
};

/* What the configuration says of how a model is served. */
struct shapes_settings {
    struct config server;
    struct config_model model;
    uint32_t preferred[CONFIG_PREFERRED_MAX];
};

struct model_shapes {
    struct shapes *shapes;
    struct shape_source *source;
    struct shapes_settings settings; /* under the lock */
    _Atomic unsigned policy;         /* enum shapes_policy; relaxed */
};

/* Under the lock: after a change of the table. */
void shapes_figures_note(struct shapes *shapes);
/* Lets go of what entries held, and of them. Without the lock. */
void shapes_chain_free(struct shape_entry *chain);
/* Has loops look at their parked requests. */
void shapes_wake(const struct shapes *shapes);

#endif
