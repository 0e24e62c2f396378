/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time of each layer of a context. Off until context_profile_start; then an event is recorded
 * behind every launch, and context_wait sums up. Belongs to the context's thread.
 */
#ifndef INFERD_ENGINE_RUNTIME_PROFILER_H
#define INFERD_ENGINE_RUNTIME_PROFILER_H

#include <stdint.h>

#include "engine/backend.h"
#include "engine/engine.h"

struct layer_time {
    const struct ir_node *node;
    uint64_t runs;
    uint64_t total_ns, min_ns;
};

enum status context_profile_start(struct context *ctx, struct error *err);

/* The layers of the profile that batches of this size run on, in the order in which they run;
 * aliases are not among them. NULL: never started, or no such profile. */
const struct layer_time *context_profile_layers(const struct context *ctx, uint32_t batch,
                                                uint32_t *n);

/* The graph of the profile that batches of this size run on; for tools. NULL: none. */
const struct ir_graph *engine_graph_for(const struct engine *engine, uint32_t batch);

#endif
