/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The time of each layer of a context, and of each part of a batch on a common time base. Layers
 * are not timed until context_layer_times_start. From then on an event is recorded behind every
 * launch (within the captured graph, if there is one), and context_wait adds the times up. All of
 * this belongs to the context's thread.
 */
#ifndef INFERD_ENGINE_RUNTIME_LAYER_TIMES_H
#define INFERD_ENGINE_RUNTIME_LAYER_TIMES_H

#include <stdint.h>

#include "engine/backend.h"
#include "engine/engine.h"

struct layer_time {
    const struct ir_node *node;
    uint64_t runs;
    uint64_t total_ns, min_ns, last_ns; /* last: of the batch that ended last */
};

enum status context_layer_times_start(struct context *ctx, struct error *err);

/* The layers of the profile that batches of this size run on at a point, in the order in which they
 * run; aliases are not among them. NULL: never started, or no such profile. */
const struct layer_time *context_layer_times(const struct context *ctx, uint32_t point,
                                             uint32_t batch, uint32_t *n);

/* The graph of the profile that batches of this size run on; for tools. NULL: none. */
const struct ir_graph *engine_graph_for(const struct engine *engine, uint32_t point,
                                        uint32_t batch);

/* The times of the tails that have run since the start: runs, and their sum. No layers are among
 * them but those of loops (below). 0: the model has no tail. */
uint64_t context_tail_runs(const struct context *ctx, uint64_t *total_ns);

/* Loop number `index` of the profile's tail whose iterations run as a whole, and the engine that
 * they run on: a run is an iteration, at point 0, batch 1. NULL: there is no such loop. */
const struct context *context_loop(const struct context *ctx, uint32_t point, uint32_t batch,
                                   uint32_t index, const struct engine **engine);

/* --- traces --- */

/* A moment of a device, which all its contexts measure from. */
struct trace_base;
enum status trace_base_new(struct device *device, struct trace_base **out, struct error *err);
void trace_base_free(struct trace_base *base); /* before its device is closed; NULL is fine */
uint64_t trace_base_clock(const struct trace_base *base); /* the moment as clock_now_ns */

enum trace_kind { TRACE_INPUT, TRACE_COMPUTE, TRACE_OUTPUT, TRACE_LAYER };

struct trace_span {
    enum trace_kind kind;
    const struct ir_node *node; /* the layer; NULL for other kinds */
    uint64_t begin_ns, end_ns;  /* since the base */
};

/* What happened to the batch that context_wait has just returned, in this order: input copy,
 * compute, output copy, and the layers if they are timed. Writes at most `max` spans. */
enum status context_trace(struct context *ctx, const struct trace_base *base,
                          struct trace_span *spans, uint32_t max, uint32_t *n, struct error *err);

#endif
