/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of a context share:
 *
 *   context.c        life, enqueue and wait
 *   context_ready.c  makes profiles ready: addresses, ops, warm-up, capture
 *   context_io.c     inputs to where the first layers read them, outputs to the caller
 *   context_run.c    the launches in between
 *   layer_times.c    the time of each layer, and of each part of a batch
 *
 * A profile runs in parts: maximal runs of layers on the device, or on the CPU beside it. A tensor
 * has the same offset in the device's arena and in the context's arena for the CPU; where a part
 * reads what the other side made, it is copied from the one to the other before that part.
 */
#ifndef INFERD_ENGINE_RUNTIME_CONTEXT_H
#define INFERD_ENGINE_RUNTIME_CONTEXT_H

#include "engine/runtime/internal.h"
#include "engine/runtime/layer_times.h"

/* A launch. */
struct step {
    const struct ir_node *node;
    const struct backend *backend; /* the part's */
    struct backend_op *op;
    void **inputs, **outputs;
    void *workspace;
};

enum { SIDE_DEVICE = 0, SIDE_HOST = 1, N_SIDES };

struct part {
    int side;
    uint32_t first, count; /* steps */
    uint32_t n_copies;
    struct backend_copy *copies; /* from the other side, before the part */
    /* Captured: as it serves, and with an event behind each step. NULL: launched step by step. */
    struct backend_graph *graph, *timed_graph;
};

/* A pointer that follows the address of a graph input or output. */
struct patch {
    void **slot;
    uint32_t index;
    bool output;
};

struct profile {
    const struct engine_profile *info;
    const char *range; /* of a batch, for device profilers */
    bool ready;
    uint32_t n_steps, n_parts, n_patches;
    struct step *steps;
    struct part *parts;
    struct patch *patches;
    bool *in_used[N_SIDES];    /* input i is read on that side */
    size_t *in_offset;         /* in both arenas */
    void **out_arena;          /* where outputs are made if not in place; device */
    void **in_now, **out_now;  /* what the patched slots hold */
    void **out_from;           /* output i's bytes after the launches, */
    bool *out_host;            /* and whether that is host memory of ours */
    struct layer_time *layers; /* one a step; NULL: layers are not timed */
};

enum { EVENT_BEGIN, EVENT_INPUT, EVENT_COMPUTE, EVENT_OUTPUT, EVENT_BORDER, N_EVENTS };

struct context {
    struct engine *engine;
    struct lane *lane;
    const struct backend *backend;
    struct context_options options;
    struct arena *memory; /* everything below that is not a backend's */
    struct profile *profiles;
    struct backend_copy *copies; /* enough for one span an instance of each input */
    size_t n_copies;
    char *base[N_SIDES];                /* of the arenas; no host side: NULL */
    struct backend_stream *host_stream; /* of the CPU beside the device, or NULL */
    char *staging;                      /* MEMORY_PINNED: small spans on their way; or NULL */
    size_t *staging_offset;             /* of input i; SIZE_MAX: its instances are too large */
    struct backend_event *events[N_EVENTS];
    /* Marks between which layers are timed: events on the device, times on the CPU. There are
     * enough for the longest profile: one mark before each part and one behind each step, so the
     * mark before step s of part k is number s + k. */
    struct backend_event **layer_events;
    uint64_t *layer_clock;
    uint32_t n_layer_events;
    uint32_t half_step; /* while a whole profile is captured: the step in the middle of its time */
    struct profile *running;    /* between enqueue and wait */
    const struct profile *last; /* whose events are those of the batch that ended last; or NULL */
};

static inline void *context_take(struct context *ctx, size_t count, size_t size)
{
    return arena_array(ctx->memory, count ? count : 1, size);
}

/* The device reads and writes the caller's bytes. */
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

/* --- context_ready.c --- */

#define CONTEXT_NO_STEP UINT32_MAX

enum status context_make_ready(struct context *ctx, struct error *err);
/* Captures the profile's device parts, with events if its layers are timed. */
enum status context_capture(struct context *ctx, struct profile *p, struct error *err);

/* --- context_io.c --- */

/* Room to pack small spans in. */
enum status context_staging_new(struct context *ctx, struct error *err);
/* Starts the copies of the inputs, or lets the layers read them where they are. */
enum status context_bind_inputs(struct context *ctx, struct profile *p, uint32_t batch,
                                const struct engine_input *inputs, struct error *err);
enum status context_zero_inputs(struct context *ctx, struct profile *p, struct error *err);
/* Starts the copies of what the layers did not make where the caller wants it. */
enum status context_collect(struct context *ctx, struct profile *p, uint32_t batch, char *output,
                            struct error *err);

/* --- context_run.c --- */

/* All parts; waits where a CPU part reads what the device makes. `plain`: step by step. */
enum status context_run(struct context *ctx, struct profile *p, bool plain, struct error *err);
/* The steps of one part, each with an event behind it if `stamp`. */
enum status context_launch(struct context *ctx, struct profile *p, uint32_t part, bool stamp,
                           struct error *err);

/* --- layer_times.c --- */

/* Sums up the layers of a batch that has ended. */
enum status context_layer_times_add(struct context *ctx, struct profile *p, struct error *err);

#endif
