/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a context share:
 *
 *   context.c        life, enqueue and wait
 *   context_ready.c  makes profiles ready: addresses, ops, warm-up, capture
 *   context_io.c     brings inputs to where the layers read them, and outputs to the caller
 *   context_box.c    the same for tensors in which instances do not lie one behind the other
 *   context_run.c    launches the layers between inputs and outputs
 *   context_tail.c   computes what has sizes that only a request tells
 *   context_bodies.c runs iterations of loops for it
 *   context_ragged.c puts sequences of any lengths together, and their outputs apart
 *   layer_times.c    the time of each layer, and of each part of a batch
 *   layer_values.c   the values that each layer writes
 *
 * A profile runs in parts: a part is a longest run of layers on one side, which is the device or
 * the CPU beside it. A tensor has the same offset in the device's arena and in the context's arena
 * for the CPU. Tensors that a part reads and the other side made are copied before the part runs.
 */
#ifndef INFERD_ENGINE_RUNTIME_CONTEXT_H
#define INFERD_ENGINE_RUNTIME_CONTEXT_H

#include "engine/runtime/internal.h"
#include "engine/runtime/layer_times.h"
#include "engine/runtime/layer_values.h"
#include "engine/runtime/tail_kernels.h"

/* The launch of one layer. */
struct step {
    const struct ir_node *node;
    const struct backend *backend; /* of the part's side */
    struct backend_op *op;
    void **inputs, **outputs;
    void *workspace;
};

enum { SIDE_DEVICE = 0, SIDE_HOST = 1, N_SIDES };

struct part {
    int side;
    uint32_t first, count; /* steps */
    uint32_t n_copies;
    struct backend_copy *copies;       /* from the other side, before the part */
    struct backend_graph *graph;       /* the captured part; NULL: it is launched step by step */
    struct backend_graph *timed_graph; /* the same with an event behind each step */
};

/* A pointer that follows the address of a graph input or output. */
struct patch {
    void **slot;
    uint32_t index;
    bool output;
    size_t at; /* how far into the input or output it points */
};

struct profile_input {
    size_t offset;      /* of the gathered bytes, in both arenas */
    void *now;          /* where the device reads this batch's bytes: patched slots hold it */
    bool used[N_SIDES]; /* a layer on this side reads the input */
};

struct profile_output {
    void *arena;  /* where the device writes the output if it cannot be the caller's buffer */
    void *now;    /* where the device writes this batch's bytes: patched slots hold it */
    void *made;   /* where the output's bytes are after the launches */
    bool on_host; /* `made` is host memory of the context */
};

struct profile {
    const struct engine_profile *info;
    const struct engine_binding *in, *out; /* its point's */
    const char *range;                     /* the name of a batch's range, for device profilers */
    bool ready;
    uint32_t n_steps, n_parts, n_patches;
    struct step *steps;
    struct part *parts;
    struct patch *patches;
    struct profile_input *inputs;
    struct profile_output *outputs;
    struct layer_time *layers; /* one a step; NULL: layers are not timed */
};

/* Whom the layers' outputs are shown to. */
struct layer_values {
    layer_seen seen;
    void *user;
    void *buffer; /* MEMORY_PINNED: outputs come here from the device; NULL: it reads host memory */
};

struct context_bodies;

enum { EVENT_BEGIN, EVENT_INPUT, EVENT_COMPUTE, EVENT_OUTPUT, EVENT_BORDER, N_EVENTS };

struct context {
    struct engine *engine;
    struct lane *lane;
    const struct backend *backend;
    struct context_options options;
    struct arena *memory; /* of all lists below and in the profiles */
    struct profile *profiles;
    struct backend_copy *copies; /* enough for one span an instance of each input, and for two
                                    copies of each output */
    size_t n_copies;
    char *base[N_SIDES];                /* of the arenas; the host's is NULL if there is none */
    struct backend_stream *host_stream; /* of the CPU beside the device, or NULL */
    char *staging;                      /* MEMORY_PINNED: small spans are packed here; or NULL */
    size_t *staging_offset; /* by input; SIZE_MAX: its instances are too large to pack */
    /* MEMORY_PINNED: whole tensors whose requests are boxes in them (box.h); or NULL. By input and
     * by output: the offset there; SIZE_MAX: requests lie one behind the other. */
    char *boxes;
    size_t *in_box, *out_box;
    struct backend_event *events[N_EVENTS];
    /* Marks between which layers are timed: events on the device, times on the CPU. There are
     * enough for the longest profile: one mark before each part and one behind each step, so the
     * mark before step s of part k is number s + k. */
    struct backend_event **layer_events;
    uint64_t *layer_clock;
    uint32_t n_layer_events;
    struct layer_values *values; /* NULL: nobody looks */
    uint32_t half_step; /* while a whole profile is captured: the step in the middle of its time */
    char *tail_input;   /* MEMORY_PINNED: what the layers make for the tail; or NULL */
    struct backend_stream *tail_stream; /* a CPU's; NULL: there is no tail */
    struct tail_kernels *tail_kernels;
    struct onnx_memory *tail_memory; /* of its values; NULL: there is no tail */
    struct context_bodies *bodies;   /* NULL: no tail has loops that run as a whole */
    uint64_t tail_runs, tail_ns;     /* since layers are timed */
    struct context_ragged *ragged;   /* NULL: the plan is not ragged */
    struct engine_results *results;  /* of the tail that ran last; NULL: taken */
    struct profile *running;         /* between enqueue and wait */
    struct engine_batch batch;       /* what runs; never without requests */
    struct engine_request lone;      /* the only one, if the caller named none */
    char *output;                    /* where its outputs go; or NULL */
    uint64_t shelved;                /* those that go to its shelf, by bits */
    const struct profile *last;      /* of the batch that ended last, if it did not fail; or NULL */
};

static inline void *context_take(struct context *ctx, size_t count, size_t size)
{
    return arena_array(ctx->memory, count ? count : 1, size);
}

/* Whether the device may read and write the caller's bytes where they are. */
static inline bool context_in_place(const struct context *ctx)
{
    return ctx->backend->host_memory && !ctx->backend->stable_addresses;
}

static inline bool context_captures(const struct context *ctx)
{
    return ctx->backend->capture_begin && ctx->backend->stable_addresses &&
           !ctx->options.no_capture;
}

static inline enum status context_record(struct context *ctx, int event, struct error *err)
{
    return ctx->backend->event_record(ctx->events[event], ctx->lane->stream, err);
}

/* Waits for everything on the lane's stream. */
static inline enum status context_settle(struct context *ctx, struct error *err)
{
    TRY(context_record(ctx, EVENT_OUTPUT, err));
    return ctx->backend->event_wait(ctx->events[EVENT_OUTPUT], err);
}

/* --- context_ready.c --- */

#define CONTEXT_NO_STEP UINT32_MAX

enum status context_make_ready(struct context *ctx, struct error *err);
/* Captures the profile's device parts, with events if its layers are timed. */
enum status context_capture(struct context *ctx, struct profile *p, struct error *err);

/* --- context_io.c --- */

/* Takes memory to pack small spans in. */
enum status context_staging_new(struct context *ctx, struct error *err);
/* Starts the copies of the inputs, or lets the layers read them where they are. `named`: spans are
 * those of the batch's requests, one each. */
enum status context_bind_inputs(struct context *ctx, struct profile *p, bool named,
                                const struct engine_input *inputs, struct error *err);
enum status context_zero_inputs(struct context *ctx, struct profile *p, struct error *err);
/* Lets the layers write outputs to the caller's buffer where they can. */
void context_bind_outputs(struct context *ctx, struct profile *p);
/* Starts the copies of the outputs that the layers did not write to the caller's buffer. */
enum status context_collect(struct context *ctx, struct profile *p, struct error *err);

/* --- context_box.c --- */

/* Finds the tensors whose requests are boxes in them, and takes memory for these. */
enum status context_boxes_new(struct context *ctx, struct error *err);
/* Whether the batch is one request that fills the profile's tensor. */
bool context_fills(const struct context *ctx, const struct profile *p, bool input, uint32_t index);
/* Puts together an input that is made of boxes; returns where it lies. */
const void *context_box_input(struct context *ctx, const struct profile *p, uint32_t index,
                              bool named, const struct engine_input *input);
/* Puts the outputs that are made of boxes into the caller's buffer. The batch has run. */
void context_box_outputs(struct context *ctx, const struct profile *p);

/* --- context_run.c --- */

/* Runs all parts. The call waits for the device before it runs a CPU part. `plain`: the device's
 * parts are launched step by step, not as graphs. */
enum status context_run(struct context *ctx, struct profile *p, bool plain, struct error *err);
/* Launches the steps of one part, with a mark before the first and behind each if `stamp`. */
enum status context_launch(struct context *ctx, struct profile *p, uint32_t part, bool stamp,
                           struct error *err);

/* --- context_tail.c --- */

/* Takes memory for what a tail reads, if there are tails. */
enum status context_tail_new(struct context *ctx, struct error *err);
void context_tail_free(struct context *ctx);
/* Runs the tail of a profile whose outputs are there. */
enum status context_tail_run(struct context *ctx, const struct profile *p, struct error *err);

/* --- context_bodies.c --- */

struct onnx_body;

/* Makes the bodies of all tails' loops ready, if there are any. */
enum status context_bodies_new(struct context *ctx, struct error *err);
void context_bodies_free(struct context_bodies *bodies); /* NULL is fine */
/* Those of a profile, *n of them. */
const struct onnx_body *context_bodies_of(const struct context *ctx, uint32_t profile, uint32_t *n);
const struct context *context_body(const struct context *ctx, uint32_t profile, uint32_t index);
/* Times the layers of all. */
enum status context_bodies_time(struct context *ctx, struct error *err);

/* --- context.c --- */

/* The same as context_enqueue_batch for inputs and outputs as the layers have them. */
enum status context_enqueue_layers(struct context *ctx, const struct engine_batch *batch,
                                   const struct engine_input *inputs, void *output,
                                   struct error *err);

/* --- context_ragged.c --- */

/* Takes memory for a batch's tokens, if the plan is ragged. */
enum status context_ragged_new(struct context *ctx, struct error *err);
void context_ragged_free(struct context *ctx);
/* context_enqueue_batch of a ragged plan. */
enum status context_ragged_enqueue(struct context *ctx, const struct engine_batch *batch,
                                   const struct engine_input *inputs, void *output,
                                   struct error *err);
/* Gives the requests of the batch that has run on this profile their rows. */
void context_ragged_outputs(struct context *ctx, const struct profile *p);

/* --- layer_times.c --- */

/* Sums up the layers of a batch that has ended. */
enum status context_layer_times_add(struct context *ctx, struct profile *p, struct error *err);

/* --- layer_values.c --- */

/* Shows the outputs of a step that was just launched. */
enum status context_show_values(struct context *ctx, const struct profile *p,
                                const struct part *part, const struct step *step,
                                struct error *err);

#endif
