/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the dispatcher's files share:
 *
 *   dispatch.c         under the lock: what arrives, what is decided, what comes back
 *   dispatch_worker.c  the workers' callbacks
 *   dispatch_run.c     how a batch runs, and what is done about one that fails
 *   dispatch_model.c   models come and go
 *   dispatch_shelf.c   shelves for outputs that stay on the device
 *   dispatch_hang.c    how long batches take, and which take too long
 *   dispatch_key.c     which requests may share a batch
 */
#ifndef INFERD_DAEMON_DISPATCH_INTERNAL_H
#define INFERD_DAEMON_DISPATCH_INTERNAL_H

#include <pthread.h>

#include "base/log.h"
#include "daemon/dispatch.h"
#include "pool/pool.h"

struct dispatch_worker {
    struct batch batches[DISPATCH_OUTPUTS];

    /* The worker's thread. */
    struct batch *finished; /* from the end of a job until dispatch_worker_idle */
    void *scratch;          /* where parts of a batch run to; NULL: never needed so far */
    size_t scratch_size;

    /* Under the lock. */
    struct batch *free;    /* batches whose output buffer nobody reads */
    struct batch *running; /* NULL: none */
    bool starved;          /* it has nothing to do, and no free batch */
    uint32_t kept;         /* batches that somebody keeps */
    uint32_t ran;          /* instances of its last batch */
    uint64_t formed_ns;    /* when that batch was formed */
    /* The least size of a buffer. Smaller ones are swapped for spare ones as they come back. */
    size_t output_size;
    void *spare[DISPATCH_OUTPUTS];
    uint32_t n_spare;
    /* Those that no batch has, and the bytes for which each of the worker's has room. */
    struct shelf *shelves[DISPATCH_KEPT];
    uint32_t n_shelves;
    size_t shelf_size;

    /* All of them; NULL: not made yet. The thread that loads. */
    struct shelf *all_shelves[DISPATCH_KEPT];
};

struct dispatch {
    struct dispatch_config config;
    pthread_mutex_t lock; /* guards the batcher, and the fields that say so */
    struct batcher *batcher;
    uint64_t armed_ns; /* under the lock: when the timer will go off */
    int timer_fd;
    struct pool *pool;
    pthread_mutex_t loading; /* held while a model is loaded, tried or unloaded; taken first */
    /* Set once, then only read. Relaxed: it does no harm if a batch or two more try to run. */
    _Atomic bool failed;
    _Atomic uint64_t output_bytes; /* relaxed: as of the last look */
    _Atomic bool looked_for;       /* relaxed: dispatch_look asked, and nobody has written yet */
    struct dispatch_worker workers[];
};

static inline struct inflight *dispatch_inflight_of(struct batcher_item *item)
{
    return CONTAINER_OF(item, struct inflight, item);
}

/* Requests on their way back, sorted by loop. */
struct dispatch_chains {
    uint64_t used; /* a bit for each loop; there are at most 64 */
    struct inflight *first[DISPATCH_MAX_LOOPS], *last[DISPATCH_MAX_LOOPS];
};
void dispatch_chains_add(struct dispatch_chains *chains, struct inflight *inflight);
void dispatch_chains_deliver(struct dispatch *dispatch, const struct dispatch_chains *chains);

/* What was decided under the lock, to be done after it. */
struct dispatch_decided {
    uint32_t n_jobs;
    struct batch *jobs[BATCHER_MAX_WORKERS];
    struct batcher_item *expired;
};
/* Under the lock. */
void dispatch_decide(struct dispatch *dispatch, uint64_t now_ns, struct dispatch_decided *out);
/* Without it. */
void dispatch_carry_out(struct dispatch *dispatch, const struct dispatch_decided *decided);
/* Under the lock: the batch can be used again. Returns a buffer that is now too small, or NULL. */
void *dispatch_batch_recycle(struct dispatch_worker *worker, struct batch *batch);

/* Gives the batch a shelf, if there is one that is large enough for its profile. A batch with a
 * shelf is kept from then on, so that what is on it can be. The worker's thread. */
void dispatch_shelf_take(struct dispatch *dispatch, struct batch *batch);
/* Under the lock: takes it back. */
void dispatch_shelf_give(struct dispatch_worker *worker, struct batch *batch);
void dispatch_shelves_free(struct dispatch_worker *worker);

/* Runs `instances` instances, which were gathered. Then each request that was gathered has its
 * cause; one that expired meanwhile no longer belongs to the batch. The worker's thread. */
void dispatch_batch_run(struct dispatch *dispatch, struct batch *batch, struct model_lane *lane,
                        uint32_t instances);

/* Under the lock: takes note that a batch of this profile took so long. */
void dispatch_pace_note(struct model *model, const struct engine_profile *profile, uint64_t run_ns);
/* Under the lock: how long a batch of so many instances may take at a point, unless the
 * configured time is longer (R30 of docs/operations.md). */
uint64_t dispatch_pace_limit(const struct model *model, uint32_t point, uint32_t instances);

/* Under the lock: the worker has a free batch, and nothing to do. */
void dispatch_worker_idle(struct dispatch *dispatch, uint32_t worker, uint64_t now_ns);

extern const struct pool_ops dispatch_pool_ops;

#endif
