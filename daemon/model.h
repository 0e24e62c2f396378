/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A loaded version of a model, and the table of all of them.
 *
 * A table is an immutable snapshot. Each loop holds one and looks models up in it without a lock; a
 * reload builds the next table and hands it to every loop. Each user of a model (a table, a
 * request) holds a reference; the last one to let go passes the model to the thread that loads and
 * unloads.
 */
#ifndef INFERD_DAEMON_MODEL_H
#define INFERD_DAEMON_MODEL_H

#include <stdatomic.h>

#include "base/cause.h"
#include "base/histogram.h"
#include "batching/batcher.h"
#include "config/config.h"
#include "engine/engine.h"
#include "proto/body.h"

struct dispatch;
struct identities;
struct model_file;
struct model_shapes;
struct pipeline;
struct tls;

/* Sums since the version was loaded. Relaxed: numbers for people. */
struct model_batch_stats {
    _Atomic uint64_t count, input_ns, compute_ns, output_ns;
};

struct model_stats {
    _Atomic uint64_t ok, failed, instances, batches;
    _Atomic uint64_t failed_ns; /* over requests */
    /* Requests for it that did not run, and those that were cut off in a run: by their cause. */
    _Atomic uint64_t unrun[CAUSE_COUNT_];
    _Atomic uint64_t last_ms; /* since 1970 */
    uint64_t since_ms;        /* since 1970: when all these counts were zero */
    /* Times of the requests that were answered; for input, compute and output each request counts
     * the time of its batch. The sums are apart from the histograms, so that they share a cache
     * line. */
    _Atomic uint64_t stage_ns[BODY_STAGES];
    struct histogram_shared stage_times[BODY_STAGES];
    struct model_batch_stats *by_batch; /* max_batch + 1 */
};

/* What waits for it, as dispatch_look last saw it. Relaxed. */
struct model_queue {
    _Atomic uint64_t requests, instances;
    _Atomic uint64_t age_ns; /* of the oldest */
    _Atomic uint64_t limit;  /* of requests */
};

/* What a worker has of a model on its lane (a stream and an arena, with the execution contexts that
 * share them); used on its thread only. */
struct model_lane {
    struct context *context;
    struct engine_input *inputs;     /* n_inputs */
    struct engine_span *spans;       /* n_inputs x max_items */
    struct engine_request *requests; /* max_items */
};

/* How long batches of a profile take. Under the dispatcher's lock. */
struct model_pace {
    uint64_t limit_ns; /* a batch that takes longer hangs; 0: too few have run to say */
    struct histogram run_ns;
};

/* Where a version came from; equal sources need no new load. */
struct model_source {
    char *path;
    uint64_t device, inode, size, mtime_ns, ctime_ns;
    uint64_t profiles; /* a digest of the batch sizes that are asked for */
};

struct model {
    _Atomic uint32_t refs; /* released on the way down: the last user sees all that was done */
    char *name, *version;
    struct model_source source;
    struct engine *engine;       /* NULL: it is a pipeline, and has no queue and no lanes */
    struct pipeline *pipeline;   /* daemon/pipeline.h; NULL: it is none */
    struct model_shapes *shapes; /* its engines for other sizes (daemon/shapes.h); NULL: none */
    struct model *base; /* of such an engine: whose it is; each of its requests has a reference */
    const struct engine_info *info;
    uint32_t max_batch;            /* of the plan, or less as configured */
    uint32_t max_items;            /* requests in one batch, at most */
    uint32_t max_instances;        /* of one request: what limits leave of max_batch (fits.h) */
    uint64_t max_output_bytes;     /* of a reply (fits.h) */
    _Atomic uint64_t max_delay_ns; /* for the status only; the batcher has its own */
    /* By its configuration; relaxed, a reload may change them. */
    _Atomic uint64_t timeout_ns; /* the deadline of requests that bring none; 0: the table's */
    _Atomic uint32_t priority_levels, default_priority; /* 1 is the first; 0: there are none */
    /* To be told alone; the batcher has its own. */
    _Atomic uint32_t n_preferred, preferred[BATCHER_MAX_PREFERRED];
    _Atomic uint32_t instances; /* batches of it at a time; 0: as many as there are workers */
    struct dispatch *dispatch;
    struct batcher_model *queue; /* under the dispatcher's lock */
    struct model_queue waiting;
    struct model_lane *lanes; /* one a worker */
    struct model_pace *paces; /* one a profile */
    struct model *next;       /* of the retired */
    uint64_t load_ns;         /* how long its load took, builds included; set before it serves */
    struct model_stats stats;
};

enum model_state { MODEL_LOADING, MODEL_READY, MODEL_UNAVAILABLE };
const char *model_state_name(enum model_state state);

struct table_entry {
    char *name, *version;
    enum model_state state;
    char reason[96];     /* if it is not ready; no paths (R10 of docs/operations.md) */
    bool of_repository;  /* else it is named in the configuration */
    bool unloaded;       /* because nobody has ordered to load it */
    struct model *model; /* if it is ready; a reference */
    /* What makes it a pipeline, ready or not, and where that is from; a reference. */
    struct model_file *pipeline;
    struct model_source source;
};

struct table {
    _Atomic uint32_t refs; /* as in struct model */
    struct config_limits limits;
    uint64_t default_timeout_ns;   /* 0: none */
    struct identities *identities; /* a reference; set before the table is used */
    struct tls *tls;               /* likewise; NULL: there is none */
    uint32_t n;
    struct table_entry *entries; /* by name, then by rising version */
};

/* NULL: no memory. Has one reference. */
struct table *table_new(const struct config *config, uint32_t capacity);
struct table *table_ref(struct table *table);
void table_unref(struct table *table); /* NULL is fine */
/* Takes over a reference to `model` (or NULL). Names are copied. False: no memory. */
bool table_add(struct table *table, const char *name, const char *version, enum model_state state,
               const char *reason, struct model *model) MUST_USE;
/* Makes the entry a pipeline, from this file; NULL: none. The source is copied. False: no
 * memory. */
bool table_entry_pipeline(struct table_entry *entry, struct model_file *file,
                          const struct model_source *source);
void table_sort(struct table *table); /* after the last table_add */

/* The entry of a name and a version. An empty version means the highest one that is ready, or else
 * the highest. NULL: there is none. */
const struct table_entry *table_find(const struct table *table, struct message_text name,
                                     struct message_text version);

/* Where its requests are counted; while there is one. */
static inline struct model_stats *model_stats(struct model *model)
{
    return model->base ? &model->base->stats : &model->stats;
}

/* Counts a request that ended for this cause without a result of a run. */
static inline void model_unrun(struct model *model, enum cause cause)
{
    atomic_fetch_add_explicit(&model_stats(model)->unrun[cause], 1, memory_order_relaxed);
}

/* The batcher's priority of a request by the model's own levels, 1 being the first; 0: the request
 * names none. A model without levels has one priority. */
uint32_t model_priority(const struct model *model, uint64_t level);

struct model *model_ref(struct model *model);
void model_unref(struct model *model); /* the last one retires it: dispatch_model_retire */

#endif
