/* SPDX-License-Identifier: Apache-2.0 */
/* Private to engine/build: plans of the bodies of loops that tails run (engine/import/onnx.h). */
#ifndef INFERD_ENGINE_BUILD_BODIES_H
#define INFERD_ENGINE_BUILD_BODIES_H

#include "engine/build/build.h"

/* Builds the graph, which becomes the callee's, in FP32 for the CPU that runs tails. `out` is {0},
 * and gets the plan's bytes. False: it cannot be built, which the log tells. */
bool build_body(const struct build_options *options, struct ir_graph *graph,
                struct plan_bytes *out);

#endif
