/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pipelines: a model that is a chain of models, Triton's ensemble. Clients see one model. Its steps
 * are requests of their own, to the models that they name, so that each waits in its model's queue
 * and shares batches with whatever else is asked there.
 *
 *   pipeline_bind.c  finds the steps' models, and checks that everything fits (the loader's thread)
 *   pipeline_sizes.h what is known of sizes meanwhile
 *   pipeline_order.c which pipeline of a table is bound when
 *   pipeline_run.c   a request's way through the steps (its loop's thread)
 *
 * A pipeline is bound to versions of models, of which it holds references: a request that has begun
 * ends with the versions that it began with, whatever is loaded and unloaded meanwhile. When one of
 * them is exchanged, the pipeline is bound anew, and is a new struct model. A step that is a
 * pipeline itself is resolved when it is bound, so that what runs is a flat list of steps.
 *
 * What a step makes stays in the output buffer of the worker that made it, and the next step reads
 * it there. Only half of a worker's buffers may be kept so (dispatch_keep), else workers could wait
 * for each other; what finds no place is copied to the request's own memory. That memory is taken
 * as a whole when the request comes, is charged like its payload, and holds all that its steps can
 * make: a request that has begun never fails for want of memory for tensors. Only tensors whose
 * sizes a run tells (`open`) have no place there: if one has to be copied, its memory is taken
 * then.
 *
 * On a device with memory of its own a step leaves what others take on a shelf (engine.h), too, and
 * they take it from there. What is on the shelf has no copy on the host, if nobody there reads one:
 * the client, or the processor on behalf of the step that takes it (engine_input_apart), or another
 * request of the same batch. Either way the kept output buffer keeps the shelf.
 *
 * Each step is checked like a request, by the shapes that its inputs have by then: it may be
 * padded, wait for an engine of its sizes (shapes.h), or be refused.
 */
#ifndef INFERD_DAEMON_PIPELINE_H
#define INFERD_DAEMON_PIPELINE_H

#include "base/arena.h"
#include "config/model_file.h"
#include "daemon/dispatch.h"
#include "proto/response.h"

enum {
    PIPELINE_STEPS_MOST = 64, /* with those of the pipelines in it */
    PIPELINE_DEPTH_MOST = 4,  /* of pipelines in pipelines */
};

struct connection;
struct loop;

/* A tensor. The first n_inputs are the request's, in their order; steps make the others. */
struct pipeline_value {
    const char *name;
    enum dtype dtype;
    struct shape shape;      /* -1: a size that is known when there is a request, */
    struct engine_axes axes; /* which of them it is, of the pipeline's; */
    bool open;               /* or when a step has run */
    size_t bytes;            /* of one instance, or of all of it; the most, as far as it is known */
    uint32_t maker;          /* the step */
    uint32_t users;          /* steps that read it; an output of the pipeline is one more */
    bool taken;              /* a step reads it */
    bool watched;            /* and somebody reads it on the host, even if it is on the device */
};

struct pipeline_step {
    const char *name; /* for people: "step 2 'classify'" */
    struct model *model;
    uint32_t group;    /* the pipeline that it was written in */
    uint32_t waits;    /* inputs that steps make */
    uint32_t *inputs;  /* the value of each input of the model */
    uint32_t *outputs; /* of each output, PIPELINE_NONE: nobody wants it */
    uint64_t shelve;   /* outputs that steps take, by bits, */
    uint64_t unread;   /* and those that nobody reads on the host if they are on the device */
};

#define PIPELINE_NONE UINT32_MAX

/* The pipeline itself, the first one, and those that are steps of it. */
struct pipeline_group {
    struct model *model; /* NULL: the first one */
    uint32_t parent, n_steps;
};

struct pipeline {
    struct arena *arena;
    struct model_file *file; /* a reference: names lie in it */
    struct engine_info info; /* what the daemon asks of a model */
    uint32_t max_batch;
    uint32_t depth; /* 1: no pipeline in it */
    uint32_t n_values, n_steps, n_groups;
    struct pipeline_value *values;
    struct pipeline_step *steps;
    struct pipeline_group *groups;
    uint32_t *outputs; /* values, in the order of info.outputs */
};

/* --- pipeline_bind.c --- */

/* Binds to the models that are ready in the table. */
enum status pipeline_bind(const struct table *table, struct model_file *file, struct pipeline **out,
                          struct error *err);
/* The most instances of one request, for whose tensors there has to be memory, and whose reply has
 * to fit a frame. FAILED_PRECONDITION: not even one fits. */
enum status pipeline_fits(const struct pipeline *pipeline, const struct config_limits *limits,
                          uint32_t *max_instances, struct error *err);
/* Whether there can be memory for a request of such sizes; else it would never be served. */
enum status pipeline_takes(const struct pipeline *pipeline, const struct config_limits *limits,
                           uint32_t instances, const int64_t *values, struct error *err);
/* Releases the steps' models. NULL is fine. */
void pipeline_free(struct pipeline *pipeline);
void pipeline_cleanup(struct pipeline **at);
/* Whether both are the same steps of the same versions. */
bool pipeline_equal(const struct pipeline *a, const struct pipeline *b);
/* The entry of a step's model in the table; NULL: there is none. */
const struct table_entry *pipeline_step_find(const struct table *table,
                                             const struct model_file_step *step);

/* --- pipeline_order.c --- */

/* Sorts the table, and calls `decide` for each pipeline in it, those first that others are made of.
 * The entry's state is MODEL_LOADING, and is to be READY (then with a model) or UNAVAILABLE
 * afterwards. If the state is UNAVAILABLE already, the pipeline is made of itself. */
void pipelines_decide(struct table *table,
                      void (*decide)(void *user, const struct table *table,
                                     struct table_entry *entry),
                      void *user);

/* --- pipeline_run.c --- */

/* The memory of a request of so many instances and such sizes, as far as it is known before steps
 * have run. SIZE_MAX: too much to say. */
size_t pipeline_run_bytes(const struct pipeline *pipeline, uint32_t instances,
                          const int64_t *values);

/* Takes the memory of a request whose model is a pipeline. */
enum status pipeline_run_new(struct connection *c, struct inflight *request, struct error *err);
/* Begins a request. It is answered once it has an end (exchange_result). */
void pipeline_run_begin(struct loop *loop, struct inflight *request);
/* Takes a step that came back from the dispatcher, or never got there, and goes on. */
void pipeline_run_step_end(struct loop *loop, struct inflight *step);
/* Ends it early: nothing more begins, and what waits is taken back. True: no step is on its way,
 * and the request is the caller's again; false: it ends later, and comes back to nobody. */
bool pipeline_run_stop(struct loop *loop, struct inflight *request);
/* Has the loop hold the request, which was answered, and the steps whose outputs the reply points
 * to. */
void pipeline_run_release(struct loop *loop, struct inflight *request);
/* Whether any of its steps was run; and whether the request failed in the run of one. */
bool pipeline_run_ran(const struct inflight *request);
bool pipeline_run_failed(const struct inflight *request);
/* The bytes and the shape of an output of a request that succeeded. */
const void *pipeline_run_output(const struct inflight *request, uint32_t output);
struct shape pipeline_run_shape(const struct inflight *request, uint32_t output);
/* The sums over its steps, and the largest batch that one of them was in. */
void pipeline_run_timing(const struct inflight *request, struct response_timing *out);

#endif
