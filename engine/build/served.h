/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Served types: a float input of a model that clients send as bytes or fp16.
 *
 *   value = scale * served + bias
 *
 * The graph's input takes the served type and keeps its name. A cast, a multiplication and an
 * addition stand between the input and its former readers; passes then move these nodes into the
 * first layer where they can.
 *
 * A float output that clients get as fp16 is rounded to it, and infinite beyond 65,504. One that
 * the model dequantises from 8 bits may be served as these are, by the model's own scale.
 */
#ifndef INFERD_ENGINE_BUILD_SERVED_H
#define INFERD_ENGINE_BUILD_SERVED_H

#include <stdint.h>

#include "base/error.h"
#include "engine/ir/ir.h"

struct build_input {
    const char *name; /* as in the model */
    enum dtype dtype; /* NONE: the model's own */
    /* One number for all, or one for each index of dimension 1. None: scale 1, bias 0. */
    const float *scale, *bias;
    uint32_t n_scale, n_bias;
};

struct build_output {
    const char *name; /* as in the model */
    enum dtype dtype;
};

/* "uint8", "fp16"; NONE for anything else. */
enum dtype build_served_type(const char *name);
/* "uint8", "int8", "fp16"; NONE for anything else. */
enum dtype build_served_output_type(const char *name);

/* Changes the graph's inputs, which must be as the importer made them. INVALID_ARGUMENT: there is
 * no such input, or it has no float type, or the numbers do not fit it. */
enum status build_serve(struct ir_graph *graph, const struct build_input *inputs, uint32_t n,
                        struct error *err);
/* The same for its outputs. */
enum status build_serve_outputs(struct ir_graph *graph, const struct build_output *outputs,
                                uint32_t n, struct error *err);

#endif
