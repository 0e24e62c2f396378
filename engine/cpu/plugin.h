/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plugins' kernels for the CPU. The first of an op is its reference, which engine/cpu/call.c calls
 * as any op's; each of the others that takes the node is a candidate.
 */
#ifndef INFERD_ENGINE_CPU_PLUGIN_H
#define INFERD_ENGINE_CPU_PLUGIN_H

#include "engine/backend.h"

enum { PLUGIN_TACTIC = 2 };

struct plugin_op;

enum status plugin_candidates(const struct ir_graph *graph, const struct ir_node *node,
                              tactic_visit visit, void *user, struct error *err);

/* As backend.h's op_*. */
enum status plugin_op_prepare(uint32_t threads, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct plugin_op **out, struct error *err);
uint64_t plugin_op_workspace(const struct plugin_op *op);
uint32_t plugin_op_threads(const struct plugin_op *op); /* that a launch runs on */
void plugin_op_free(struct plugin_op *op);
enum status plugin_op_launch(struct plugin_op *op, void *const *inputs, void *const *outputs,
                             void *workspace, struct error *err);

#endif
