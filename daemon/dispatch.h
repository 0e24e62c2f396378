/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a request meets a batch, a batch meets a worker, and a result goes back to its loop.
 *
 *   loops     make `struct inflight`s, submit them, and get each one back exactly once: as refused
 *             by dispatch_submit, through dispatch_cancel, or through `deliver` with its result
 *             or why there is none: it expired, or others had a better right to its place;
 *   batcher   decides, under the one lock there is on the way of a request;
 *   workers   (threads of the pool) run batches, each with a stream (lane) and a context a model.
 *
 * A worker has several output buffers. A batch's results stay in its buffer until each of its
 * requests has been released; a worker whose buffers are all taken is not idle, so a slow loop
 * costs the others nothing.
 */
#ifndef INFERD_DAEMON_DISPATCH_H
#define INFERD_DAEMON_DISPATCH_H

#include "batching/batcher.h"
#include "daemon/counters.h"
#include "daemon/model.h"
#include "daemon/slab.h"
#include "engine/engine.h"
#include "proto/message.h"

enum {
    DISPATCH_MAX_LOOPS = 64,
    DISPATCH_OUTPUTS = 4, /* buffers a worker */
    DISPATCH_WHY = 256,   /* bytes of a failure's text */
};

struct dispatch;
struct batch;

/* A request on its way. Between submission and return only the dispatcher touches `item` and the
 * result; the rest is the loop's, on its thread, all the time. */
struct inflight {
    struct batcher_item item;
    struct inflight *next;       /* of whoever has it: free list, submission, completions */
    struct inflight *next_spent; /* of the loop it is told to, and then of the loop */

    struct inflight *prev_of_connection, *next_of_connection;
    struct inflight **at_of_id, *next_of_id; /* of its bucket, see struct loop */
    uint64_t connection;                     /* whose; 0: nobody waits any more */
    uint64_t id;                             /* the peer's number for it */
    uint64_t serial;                         /* the loop's number for it */
    uint32_t loop;
    bool submitted;
    struct slab *slab; /* the payloads; NULL: already given back */
    struct model *model;
    struct identity_use *use; /* of who asked, with `use_bytes`; NULL: it has no limits */
    uint64_t use_bytes;
    uint32_t infer_id_len, n_outputs;
    char infer_id[MESSAGE_MAX_ID];
    uint8_t output[MESSAGE_MAX_TENSORS];           /* the model's outputs that were asked for */
    struct engine_span spans[MESSAGE_MAX_TENSORS]; /* one an input of the model */

    /* The result. */
    enum cause cause;
    bool cancelled, expired;
    struct batch *batch; /* it ran, or was to run, in; must be released */
    uint32_t first;      /* its first instance in the batch */
    uint64_t queue_ns;
    char why[DISPATCH_WHY]; /* it ran in `batch` and failed: the reason, maybe cut */
};

/* What ran; constant while anybody holds it. */
struct batch {
    struct batch *next;
    uint32_t worker;
    struct model *model;
    const struct engine_profile *profile;
    uint32_t instances; /* those that ran, once it has */
    uint64_t formed_ns;
    struct batcher_item *items; /* unchanged from its forming to its delivery */
    void *output;
    size_t output_size;
    /* Requests not yet released. Release order, so that the last one sees all reads done. */
    _Atomic uint32_t refs;
    struct engine_times times; /* of a batch that ran in parts: their sums */
    uint64_t run_ns;           /* of one that ran as a whole; else 0 */
    uint64_t limit_ns;         /* under the lock: longer is a hang, whatever is configured */
    /* When what is running now of it began; 0: nothing. Relaxed: a number for the watchdog. */
    _Atomic uint64_t since_ns;
    struct error err; /* the worker's */
};

struct dispatch_config {
    struct device *device;
    uint32_t workers;
    const struct log_sink *log;
    struct counters *counters;
    /* Any thread: a chain linked by ->next, ending at `last`, goes to that loop. */
    void (*deliver)(void *user, uint32_t loop, struct inflight *first, struct inflight *last);
    /* A worker's thread, before `deliver`: the payloads of a chain linked by ->next_spent, ending
     * at `last`, have been read. Not if the device reads them in place. */
    void (*spent)(void *user, uint32_t loop, struct inflight *first, struct inflight *last);
    /* A worker's thread: the device is lost (R28 of docs/operations.md). Called once. */
    void (*lost)(void *user, const struct error *err);
    /* Any thread: a model has no user left; dispatch_model_unload it, on a thread that may wait. */
    void (*retire)(void *user, struct model *model);
    void *user;
};

/* Starts the workers. */
enum status dispatch_new(const struct dispatch_config *config, struct dispatch **out,
                         struct error *err);
/* All models must have been unloaded, all requests returned and released. */
void dispatch_free(struct dispatch *dispatch);

/* A timerfd that becomes readable when dispatch_timer is to be called. */
int dispatch_timer_fd(const struct dispatch *dispatch);
void dispatch_timer(struct dispatch *dispatch);

/* Submits a chain in its order. Those refused come back as a chain, with the batcher's cause. Those
 * that were queued before, and are pushed out by these, are delivered with QUEUE_FULL and without a
 * batch, to whatever loop they are of; one of this very chain too. */
struct inflight *dispatch_submit(struct dispatch *dispatch, struct inflight *first);

/* Takes a request back. True: it was still queued and is the caller's again; false: it will be
 * delivered. */
bool dispatch_cancel(struct dispatch *dispatch, struct inflight *inflight);
/* The same for a chain linked by `next_of_connection`; sets `cancelled` in each. Those that were
 * not submitted are passed over. */
void dispatch_cancel_all(struct dispatch *dispatch, struct inflight *first);

/* The request's outputs are no longer needed. Batches nobody holds any more are collected in
 * `*done` and go back together. */
void dispatch_release(struct inflight *inflight, struct batch **done);
void dispatch_recycle(struct dispatch *dispatch, struct batch *done); /* NULL is fine */

/* Nothing new is taken; what is queued runs without waiting for company. */
void dispatch_drain(struct dispatch *dispatch);

/* When all requests are back: returns once no worker has yet to wake a loop that it gave them to,
 * so that loops can be freed. */
void dispatch_settle(struct dispatch *dispatch); /* NULL is fine */

/* From now on nothing runs any more: batches fail with DEVICE_LOST. */
void dispatch_fail(struct dispatch *dispatch);

/* The cause's sentence, and whether the request may have been executed all the same. */
enum status dispatch_undone(struct error *err, enum cause cause, bool may_have_run);

/* --- models: on a thread that may wait, one at a time --- */

/* Makes a context on every worker and a queue. Takes over `engine`, and the strings in `config` are
 * copied. R31: a failure leaves no trace. */
enum status dispatch_model_load(struct dispatch *dispatch, const struct config *server,
                                const struct config_model *config, const char *version,
                                struct engine *engine, struct model **out, struct error *err);
/* Changes the limits of a model that serves. */
enum status dispatch_model_configure(struct dispatch *dispatch, struct model *model,
                                     const struct config *server, const struct config_model *config,
                                     struct error *err);
void dispatch_model_retire(struct dispatch *dispatch, struct model *model);
void dispatch_model_unload(struct dispatch *dispatch, struct model *model);

/* --- looking at it: any thread --- */

void dispatch_model_stats(struct dispatch *dispatch, const struct model *model,
                          struct batcher_model_stats *out);
uint32_t dispatch_workers(const struct dispatch *dispatch);
uint32_t dispatch_workers_busy(const struct dispatch *dispatch);

/* Bytes of all workers' output buffers. */
uint64_t dispatch_output_bytes(struct dispatch *dispatch);

/*
 * R30: a batch hangs that has run longer than `floor_ns` and longer than ten times the p99 of its
 * profile, once that has run a hundred times. In parts, each part counts for itself.
 *
 * The time that was exceeded, the least if several hang; 0: none hangs.
 */
uint64_t dispatch_hung(struct dispatch *dispatch, uint64_t now_ns, uint64_t floor_ns);

/* The requests of batches that hang: the loops' numbers for them. Writes at most `max`; returns how
 * many were written. */
struct dispatch_stuck {
    uint32_t loop;
    uint64_t serial;
};
size_t dispatch_stuck(struct dispatch *dispatch, uint64_t now_ns, uint64_t floor_ns,
                      struct dispatch_stuck *out, size_t max);

#endif
