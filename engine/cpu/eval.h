/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes and whole graphs computed with the reference kernels, outside of any device: what the
 * importer and constant folding evaluate with, and the oracle of tests and of `--check`.
 */
#ifndef INFERD_ENGINE_CPU_EVAL_H
#define INFERD_ENGINE_CPU_EVAL_H

#include "base/error.h"
#include "base/shape.h"
#include "engine/ir/ir.h"

/* Fits struct ir_evaluator. Inputs are plain and may be unaligned; outputs are allocated. `user` is
 * not used. Any thread. */
enum status cpu_eval_node(void *user, const struct ir_graph *graph, const struct ir_node *node,
                          const void *const *inputs, void *const *outputs, struct error *err);

/*
 * Runs a graph that was not tuned. `inputs` and `outputs`: as many as the graph has, in its order,
 * with its types and shapes; the outputs' memory is the caller's.
 */
enum status cpu_eval_graph(const struct ir_graph *graph, const struct tensor_view *inputs,
                           const struct tensor_view *outputs, struct error *err);

#endif
