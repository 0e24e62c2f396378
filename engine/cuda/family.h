/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of families, and the functions of struct backend that it answers: which family a node
 * or a tactic belongs to. What every family would have to check of a stored tactic is checked here:
 * its id, its op, and its ports against the tensors as they stand in the graph.
 */
#ifndef INFERD_ENGINE_CUDA_FAMILY_H
#define INFERD_ENGINE_CUDA_FAMILY_H

#include "engine/cuda/cuda.h"

/* The family of a stored tactic. NULL: the tactic does not have the form of one for this node. */
const struct cuda_family *cuda_family_of(const struct ir_node *node, const struct tactic *tactic);

enum status cuda_candidates(struct device *device, const struct ir_graph *graph,
                            const struct ir_node *node, enum precision precision,
                            tactic_visit visit, void *user, struct error *err);
enum status cuda_pack(struct device *device, const struct ir_graph *graph,
                      const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                      void *to, struct error *err);
enum status cuda_compile(struct device *device, const struct ir_graph *graph,
                         const struct ir_node *node, const struct tactic *tactic,
                         struct error *err);
void cuda_compile_drop(struct device *device);
enum status cuda_code(struct device *device, const struct ir_graph *graph,
                      const struct ir_node *node, const struct tactic *tactic, struct arena *arena,
                      const void **code, uint64_t *size, struct error *err);

enum status cuda_op_prepare(struct backend_stream *stream, const struct ir_graph *graph,
                            const struct ir_node *node, const struct tactic *tactic,
                            struct backend_op **out, struct error *err);
uint64_t cuda_op_workspace(const struct backend_op *op);
void cuda_op_free(struct backend_op *op);
enum status cuda_op_launch(struct backend_op *op, struct backend_stream *stream,
                           void *const *inputs, void *const *outputs, void *workspace,
                           struct error *err);

#endif
