/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Served types: a float input of a model that clients send as bytes or halves.
 *
 *   value = scale * served + bias
 *
 * The graph's input takes the served type and keeps its name; a cast, a scale and a shift stand
 * between it and what read it before. Passes then move those into the first layer where they can.
 */
#ifndef INFERD_ENGINE_BUILD_SERVED_H
#define INFERD_ENGINE_BUILD_SERVED_H

#include <stdint.h>

#include "base/error.h"
#include "engine/ir/ir.h"

struct build_input {
    const char *name; /* as in the model */
    enum dtype dtype; /* NONE: the model's own */
    /* One for all, or one for each place along dimension 1; none: 1 and 0. */
    const float *scale, *bias;
    uint32_t n_scale, n_bias;
};

/* "uint8", "fp16"; NONE for anything else. */
enum dtype build_served_type(const char *name);

/* The graph as the importer made it. INVALID_ARGUMENT: no such input, or not a float one, or the
 * numbers do not fit it. */
enum status build_serve(struct ir_graph *graph, const struct build_input *inputs, uint32_t n,
                        struct error *err);

#endif
