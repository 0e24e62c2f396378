/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes the nodes of tails (context_tail.c): small ones by the reference kernels, which need no
 * preparation, others by the fastest kernel that reads and writes tensors as they lie.
 */
#ifndef INFERD_ENGINE_RUNTIME_TAIL_EVAL_H
#define INFERD_ENGINE_RUNTIME_TAIL_EVAL_H

#include "engine/backend.h"

/* The user of tail_eval as an evaluator (struct ir_evaluator). Of one thread. */
struct tail_evaluator {
    struct device *device; /* a CPU's */
    struct backend_stream *stream;
};

enum status tail_eval(void *evaluator, const struct ir_graph *graph, const struct ir_node *node,
                      const void *const *inputs, void *const *outputs, struct error *err);

#endif
