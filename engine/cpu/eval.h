/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes nodes and whole graphs with the reference kernels, without a device. The importer and
 * constant folding evaluate constants with these functions; tests and `--check` compare other
 * results with theirs.
 */
#ifndef INFERD_ENGINE_CPU_EVAL_H
#define INFERD_ENGINE_CPU_EVAL_H

#include "base/error.h"
#include "base/shape.h"
#include "engine/ir/ir.h"

/* A function for struct ir_evaluator. Inputs are plain and may be unaligned; the caller has
 * allocated the outputs. `user` is not used. Any thread may call it. */
enum status cpu_eval_node(void *user, const struct ir_graph *graph, const struct ir_node *node,
                          const void *const *inputs, void *const *outputs, struct error *err);

/*
 * Runs a graph that was not tuned. `inputs` and `outputs` hold one view for each binding of the
 * graph, in its order and of its type and shape; the outputs' memory is the caller's.
 */
enum status cpu_eval_graph(const struct ir_graph *graph, const struct tensor_view *inputs,
                           const struct tensor_view *outputs, struct error *err);

#endif
