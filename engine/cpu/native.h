/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native half of the CPU backend: nodes run on the fast rows of kernels/cpu/fast.h. Elementwise
 * chains with broadcasting (UNARY, BINARY, CAST to fp32 and any epilogue on them), SOFTMAX and
 * LAYER_NORM over the last dims, TRANSPOSE, GATHER, RECURRENT; all on plain tensors but for the
 * last one's matrix, which is repacked.
 *
 * Each node has a candidate on one thread and, where the device has more, one on all of them: which
 * of the two is faster depends on the size and is for the tuner to find out.
 */
#ifndef INFERD_ENGINE_CPU_NATIVE_H
#define INFERD_ENGINE_CPU_NATIVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "engine/backend.h"
#include "engine/ir/ir.h"

enum { NATIVE_TACTIC = 1 };

struct native_op;

/* "avx512": what the fast rows use here. */
const char *native_isa(void);

/* Whether any node of this op may have a candidate. */
bool native_takes(enum ir_op op);

enum status native_candidates(uint32_t threads, const struct ir_graph *graph,
                              const struct ir_node *node, tactic_visit visit, void *user,
                              struct error *err);

/* As backend.h's pack and op_*. */
enum status native_pack(const struct ir_graph *graph, const struct ir_node *node,
                        const struct tactic *tactic, uint32_t input, void *to, struct error *err);
enum status native_op_prepare(uint32_t threads, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct native_op **out, struct error *err);
void native_op_free(struct native_op *op);
uint64_t native_op_workspace(const struct native_op *op);
enum status native_op_launch(struct native_op *op, void *const *inputs, void *const *outputs,
                             void *workspace, struct error *err);

#endif
