/* SPDX-License-Identifier: Apache-2.0 */
/* A model of what nodes cost on the CPU, for plans that are made without timing. */
#ifndef INFERD_ENGINE_CPU_COST_H
#define INFERD_ENGINE_CPU_COST_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/backend.h"
#include "engine/ir/ir.h"

/* Which kernel a tactic is, as far as its speed goes. */
struct cost_kernel {
    const char *impl; /* oneDNN's name of it; "native" and "reference" for the others */
    uint32_t threads; /* that it runs on */
};

/* About how many nanoseconds a launch takes. `lanes`: floats of a vector register; 0: not known. */
uint64_t cost_estimate(const struct ir_graph *graph, const struct ir_node *node,
                       const struct tactic *tactic, const struct cost_kernel *kernel,
                       uint32_t lanes);

#endif
