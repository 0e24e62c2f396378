/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes the nodes of tails (context_tail.c): by the fastest kernel that reads and writes tensors
 * as they lie, or, where preparing one is not worth it, by the reference kernels.
 */
#ifndef INFERD_ENGINE_RUNTIME_TAIL_EVAL_H
#define INFERD_ENGINE_RUNTIME_TAIL_EVAL_H

#include "engine/backend.h"

/* The user of it as an evaluator (struct ir_evaluator) is a struct tail_kernels. */
enum status tail_eval(void *kernels, const struct ir_graph *graph, const struct ir_node *node,
                      const void *const *inputs, void *const *outputs, struct error *err);

#endif
