/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The values that a context's layers write, for tools that look into a model: calibration, and
 * comparisons layer by layer. From context_values_start on the layers run one by one; after each,
 * its outputs are brought to the host and shown. All of this belongs to the context's thread.
 */
#ifndef INFERD_ENGINE_RUNTIME_LAYER_VALUES_H
#define INFERD_ENGINE_RUNTIME_LAYER_VALUES_H

#include <stdint.h>

#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/plan/plan.h"

/* One output of a layer that has just run. */
struct layer_value {
    const struct ir_graph *graph; /* the profile's */
    const struct ir_node *node;
    uint32_t tensor;  /* of the graph; aliases of this tensor are not shown */
    const void *data; /* its bytes, in the tensor's format, until the call returns */
};

/* A failure ends the batch: context_enqueue returns it. */
typedef enum status (*layer_seen)(void *user, const struct layer_value *value, struct error *err);

/* FAILED_PRECONDITION: the context runs captured graphs (context_options.no_capture). */
enum status context_values_start(struct context *ctx, layer_seen seen, void *user,
                                 struct error *err);

/* Takes over a plan that was not read from a file: its constants have offsets into plan->weights,
 * which stay the caller's and must outlive the engine. The plan is freed also on failure. */
enum status engine_from_plan(struct device *device, struct plan *plan, const char *name,
                             struct engine **out, struct error *err);

#endif
