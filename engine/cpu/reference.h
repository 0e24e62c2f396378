/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The reference part of the CPU backend: it runs every op of the IR on the kernels of
 * kernels/cpu/ref.h. Tensors are plain; only REFORMAT reads and writes other layouts.
 */
#ifndef INFERD_ENGINE_CPU_REFERENCE_H
#define INFERD_ENGINE_CPU_REFERENCE_H

#include <stdint.h>

#include "base/error.h"
#include "engine/backend.h"
#include "engine/ir/ir.h"

enum { REFERENCE_TACTIC = 0 };

struct reference_op;

/* The node's one candidate. UNIMPLEMENTED if a kernel does not do what the node asks. */
enum status reference_candidate(const struct ir_graph *graph, const struct ir_node *node,
                                struct tactic *out, struct error *err);

/* As backend.h's op_*. `tactic` is NULL for a node of a graph that was not tuned. */
enum status reference_op_prepare(const struct ir_graph *graph, const struct ir_node *node,
                                 const struct tactic *tactic, struct reference_op **out,
                                 struct error *err);
uint64_t reference_op_workspace(const struct reference_op *op);
void reference_op_free(struct reference_op *op);
enum status reference_op_launch(struct reference_op *op, void *const *inputs, void *const *outputs,
                                void *workspace, struct error *err);

#endif
