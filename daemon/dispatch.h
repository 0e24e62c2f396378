/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a request meets a batch, a batch meets a worker, and a result goes back to its loop.
 *
 *   loops     make requests (struct inflight), submit them, and get each one back exactly once:
 *             refused by dispatch_submit, taken back by dispatch_cancel, or through `deliver`, with
 *             its result or the cause why there is none (it expired, or was pushed out);
 *   batcher   decides, under the only lock on a request's way;
 *   workers   (threads of the pool) run batches. Each worker has a lane, which is a stream and an
 *             arena, and on it a context for each model.
 *
 * A worker has several output buffers. The results of a batch stay in its buffer until each of its
 * requests has been released. A worker whose buffers are all taken does not count as idle, so a
 * slow loop costs the other loops nothing.
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
    DISPATCH_OUTPUTS = 4, /* buffers of each worker, */
    DISPATCH_KEPT = 2,    /* and how many of them may be kept (dispatch_keep); as many shelves */
    DISPATCH_WHY = 256,   /* bytes of a failure's text */
};

struct dispatch;
struct batch;
struct exchange_classes;
struct region;
struct trace;

/* Where an output goes that its client wants in a region of shared memory. */
struct inflight_region {
    struct region *region; /* a reference; NULL: it goes into the reply */
    uint64_t offset, room; /* in bytes */
};

/* A request on its way. Between submission and return only the dispatcher touches `item` and the
 * result. The rest belongs to the loop's thread all the time. */
struct inflight {
    struct batcher_item item;
    struct inflight *next;       /* in the list of whoever has it: free, to submit, completed */
    struct inflight *next_spent; /* in the list of payloads that have been read */

    struct inflight *prev_of_connection, *next_of_connection;
    struct inflight **at_of_id, *next_of_id; /* of its bucket, see struct loop */
    uint64_t connection;                     /* that it came from; 0: nobody waits any more */
    uint64_t id;                             /* the peer's number for it */
    uint64_t serial;                         /* the loop's number for it */
    uint32_t loop;
    bool submitted;
    struct slab *slab; /* the payloads; NULL: already given back */
    struct model *model;
    struct model *base;       /* of a model that is an engine for other sizes; else NULL */
    struct identity_use *use; /* of its identity, with `use_bytes`; NULL: no limits */
    uint64_t use_bytes;
    struct trace *trace; /* NULL: it is not traced */
    /* Of a pipeline (pipeline.h). */
    struct slab *run;       /* the state of a request whose model is one */
    struct slab *rooms;     /* and, by ->next, memory for what has turned out meanwhile */
    struct inflight *whole; /* the request that this is a step of; NULL: it is none */
    uint32_t step;
    uint32_t point; /* of the engine's, by its number */
    /* Outputs that others take from a shelf, if they are there, and of these the ones that nobody
     * reads on the host then: a bit for each. */
    uint64_t shelve, unread;
    int64_t values[ENGINE_MAX_FREE]; /* of the free dimensions; the point may have larger ones */
    bool parked;                     /* it waits for an engine for its sizes (exchange_shape.c) */
    bool told;      /* it failed without a batch, and `why` says more than its cause */
    uint32_t asked; /* how often its engine was begun anew */
    uint64_t asker; /* who pays for the engine */
    uint32_t infer_id_len, n_outputs;
    char infer_id[MESSAGE_MAX_ID];
    uint8_t output[MESSAGE_MAX_TENSORS];   /* the model's outputs that were asked for, */
    uint16_t classes[MESSAGE_MAX_TENSORS]; /* as so many classes; 0: as they are */
    struct slab *texts;                    /* these classes */
    struct exchange_classes *found;  /* as far as they have been found, in `texts`; NULL: not yet */
    struct inflight_region *regions; /* one for each output; NULL: none has any */
    struct engine_span spans[MESSAGE_MAX_TENSORS]; /* one for each input */
    const void *shelved[MESSAGE_MAX_TENSORS];      /* where these lie on shelves, of a step */

    /* The result. */
    enum cause cause;
    bool cancelled, expired;
    bool kept;           /* see dispatch_keep */
    struct batch *batch; /* in which it ran, or was to run; must be released */
    uint32_t first;      /* its first instance in the batch */
    uint64_t queue_ns;
    char why[DISPATCH_WHY]; /* if it ran in `batch` and failed: the reason, maybe cut */
};

/* A batch that ran. It does not change while anybody holds it. */
struct batch {
    struct batch *next;
    uint32_t worker;
    struct model *model;
    const struct engine_profile *profile;
    uint32_t point;     /* of the engine's, by its number */
    uint32_t instances; /* once it has run: those that ran */
    uint64_t formed_ns;
    struct batcher_item *items; /* unchanged from its forming to its delivery */
    void *output;
    size_t output_size;
    struct engine_results *results; /* of a model that is engine_info.late; else NULL */
    /* Of a batch in which somebody asks for it: where outputs are left on the device; NULL:
     * nowhere. By bits, which were asked for, are there, and are then not in `output`. */
    struct shelf *shelf;
    uint64_t shelve, shelved, unread;
    /* Requests not yet released. Release order, so that the last to release sees all reads done. */
    _Atomic uint32_t refs;
    uint32_t keepers;          /* under the lock: requests that keep it (dispatch_keep) */
    struct engine_times times; /* of a batch that ran in parts: their sums */
    uint64_t run_ns;           /* of a batch that ran as a whole; else 0 */
    uint64_t limit_ns;         /* under the lock: no shorter time is a hang */
    /* When what runs of it now began; 0: nothing runs. Relaxed: a number for the watchdog. */
    _Atomic uint64_t since_ns;
    struct error err; /* of the run */
};

struct dispatch_config {
    struct device *device;
    uint32_t workers;
    const struct log_sink *log;
    struct counters *counters;
    /* Any thread: hands a chain linked by ->next, ending at `last`, to that loop. */
    void (*deliver)(void *user, uint32_t loop, struct inflight *first, struct inflight *last);
    /* A worker's thread, before `deliver`: the payloads of a chain linked by ->next_spent, ending
     * at `last`, have been read. Not called if the device reads them in place. */
    void (*spent)(void *user, uint32_t loop, struct inflight *first, struct inflight *last);
    /* A worker's thread: the device is lost (R28 of docs/operations.md). Called once. */
    void (*lost)(void *user, const struct error *err);
    /* Any thread: a model has no user left. To be followed by dispatch_model_unload on a thread
     * that may wait. */
    void (*retire)(void *user, struct model *model);
    void *user;
};

/* Starts the workers. */
enum status dispatch_new(const struct dispatch_config *config, struct dispatch **out,
                         struct error *err);
/* All models must have been unloaded, all requests returned and released. */
void dispatch_free(struct dispatch *dispatch);

/* A timerfd. When it becomes readable, dispatch_timer must be called. */
int dispatch_timer_fd(const struct dispatch *dispatch);
void dispatch_timer(struct dispatch *dispatch);

/* Submits a chain in its order. Refused requests come back as a chain, with the batcher's cause.
 * Requests that were queued before and are now pushed out (requests of this very chain may be) are
 * delivered to their loops with QUEUE_FULL and without a batch. */
struct inflight *dispatch_submit(struct dispatch *dispatch, struct inflight *first);

/* Takes a request back. True: it was still queued and is the caller's again; false: it will be
 * delivered. */
bool dispatch_cancel(struct dispatch *dispatch, struct inflight *inflight);
/* Does the same for a chain linked by `next_of_connection`, and sets `cancelled` in each request.
 * Requests that were not submitted are passed over. */
void dispatch_cancel_all(struct dispatch *dispatch, struct inflight *first);

_Static_assert(MESSAGE_MAX_TENSORS <= 64, "outputs are bits");

/* Where output k of a request begins in the output buffer of its batch. */
static inline size_t inflight_output_offset(const struct inflight *inflight, uint32_t k)
{
    const struct engine_binding *outputs =
        engine_point_outputs(inflight->model->info, inflight->point);
    return inflight->batch->profile->out_offset[k] + inflight->first * outputs[k].instance_bytes;
}

/* Where output k of a request that ran lies. NULL: on the shelf alone, because all requests of its
 * batch said that nobody reads it here. */
static inline const void *inflight_output(const struct inflight *inflight, uint32_t k)
{
    const struct batch *batch = inflight->batch;
    if (batch->results)
        return batch->results->outputs[k].data;
    if (batch->shelved & batch->unread & UINT64_C(1) << k)
        return NULL;
    return (const uint8_t *)batch->output + inflight_output_offset(inflight, k);
}

/* Where it lies on the device; NULL: it does not. */
static inline const void *inflight_output_shelved(const struct inflight *inflight, uint32_t k)
{
    const struct batch *batch = inflight->batch;
    if (!(batch->shelved & UINT64_C(1) << k))
        return NULL;
    return shelf_at(batch->shelf, inflight_output_offset(inflight, k));
}

/* The shape of output k of a request, whose sizes are its own. */
static inline struct shape inflight_output_shape(const struct inflight *inflight, uint32_t k)
{
    const struct engine_info *info = inflight->model->info;
    if (inflight->batch && inflight->batch->results)
        return inflight->batch->results->outputs[k].shape;
    return engine_shape_of(info, engine_output_axes(info, k),
                           &engine_point_outputs(info, inflight->point)[k].shape,
                           inflight->item.instances, inflight->values);
}

/* Sets the key of the batcher: requests with equal ones may share a batch. Those are of one point,
 * and have the same bytes in the inputs that all instances of a batch share. To be called once the
 * payloads are there. */
void inflight_key(struct inflight *inflight);

/* Says that the outputs of a request that ran stay in use for longer than it takes to write a
 * reply: until other requests have run. False: too many of the worker's buffers are kept already,
 * and the outputs have to be copied; else workers could wait for each other. Never false of a
 * batch with a shelf. Any thread. */
bool dispatch_keep(struct inflight *inflight) MUST_USE;

/* The request's outputs are no longer needed. Batches that nobody holds any more are collected in
 * `*done` and go back together. */
void dispatch_release(struct inflight *inflight, struct batch **done);
void dispatch_recycle(struct dispatch *dispatch, struct batch *done); /* NULL is fine */

/* Takes nothing new; what is queued runs without waiting for other requests to join its batch. */
void dispatch_drain(struct dispatch *dispatch);

/* To be called when all requests are back. Returns once every worker has woken the loops that it
 * gave requests to, so that loops can be freed. */
void dispatch_settle(struct dispatch *dispatch); /* NULL is fine */

/* Stops everything: from now on batches fail with DEVICE_LOST. */
void dispatch_fail(struct dispatch *dispatch);

/* Makes an error of the cause's sentence, and says whether the request may have been executed all
 * the same. */
enum status dispatch_undone(struct error *err, enum cause cause, bool may_have_run);

/* --- models: on threads that may wait; they wait for each other --- */

/* Makes a context on every worker, and a queue. Takes over `engine`; copies the strings in
 * `config`. A failure leaves no trace (R31 of docs/operations.md). */
enum status dispatch_model_load(struct dispatch *dispatch, const struct config *server,
                                const struct config_model *config, const char *version,
                                struct engine *engine, struct model **out, struct error *err);
/* The same of an engine for other sizes of `base`, which has at least as many instances. Workers
 * are asked one after the other, so that the others serve meanwhile. */
enum status dispatch_model_load_beside(struct dispatch *dispatch, const struct config *server,
                                       const struct config_model *config, struct model *base,
                                       struct engine *engine, struct model **out,
                                       struct error *err);
/* The same of a pipeline (pipeline.h), which is taken over; `config` is the server's. */
enum status dispatch_pipeline_load(struct dispatch *dispatch, const struct config *config,
                                   const char *name, const char *version, struct pipeline *pipeline,
                                   struct model **out, struct error *err);
/* Sees to it that every worker has shelves (engine.h) for batches of so many bytes, on a device
 * with memory of its own. Without them steps hand everything over through the host, which is all
 * that an error means. To be called on the thread that loads. */
enum status dispatch_shelves_grow(struct dispatch *dispatch, size_t size, struct error *err);

/* Runs a model that serves nobody yet, `count` times on every worker, and drops its outputs. */
struct dispatch_trial {
    struct model *model;
    const struct engine_input *inputs; /* of the model; the bytes are pinned */
    uint32_t point, batch, count;
};
enum status dispatch_model_try(struct dispatch *dispatch, const struct dispatch_trial *trial,
                               struct error *err);
/* Changes the limits of a model that serves. */
enum status dispatch_model_configure(struct dispatch *dispatch, struct model *model,
                                     const struct config *server, const struct config_model *config,
                                     struct error *err);
void dispatch_model_retire(struct dispatch *dispatch, struct model *model);
void dispatch_model_unload(struct dispatch *dispatch, struct model *model);

/* --- looking at it: any thread --- */

/* A pipeline has no queue, and nothing in it. */
void dispatch_model_stats(struct dispatch *dispatch, const struct model *model,
                          struct batcher_model_stats *out);

/* Asks for fresh numbers of what waits for each model (struct model_queue), and of output bytes.
 * Never waits for the lock: whoever holds it next for a request or a batch writes them. If nobody
 * has since the last call, this call does. To be called regularly: what it leaves is as old as the
 * call before at most. */
void dispatch_look(struct dispatch *dispatch);

uint32_t dispatch_workers(const struct dispatch *dispatch);
uint32_t dispatch_workers_busy(const struct dispatch *dispatch);

/* Bytes of all workers' output buffers; and as dispatch_look last saw them, without the lock. */
uint64_t dispatch_output_bytes(struct dispatch *dispatch);
uint64_t dispatch_output_bytes_seen(const struct dispatch *dispatch);

/*
 * A batch hangs (R30 of docs/operations.md) if it has run longer than `floor_ns` and longer than
 * ten times the p99 of its profile, which counts once the profile has run a hundred times. If a
 * batch runs in parts, each part counts for itself.
 *
 * Returns the limit that was exceeded, or the least of them if several batches hang; 0: none hangs.
 */
uint64_t dispatch_hung(struct dispatch *dispatch, uint64_t now_ns, uint64_t floor_ns);

/* Writes the loops' numbers for requests of batches that hang, at most `max`; returns how many. */
struct dispatch_stuck {
    uint32_t loop;
    uint64_t serial;
};
size_t dispatch_stuck(struct dispatch *dispatch, uint64_t now_ns, uint64_t floor_ns,
                      struct dispatch_stuck *out, size_t max);

#endif
