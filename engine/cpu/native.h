/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native part of the CPU backend: it runs nodes on the fast kernels of kernels/cpu (fast.h,
 * sweep.h, typed.h, attend.h). native.c has the table of ops that it takes, and says which of them
 * run in several layouts; the tensors of all others are plain, except RECURRENT's matrix, which is
 * repacked.
 *
 * Each node has a candidate on one thread and, if the device has more threads, a candidate on all
 * of them. Which of the two is faster depends on the size; the tuner finds out.
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

/* The instruction set that the fast rows use on this machine, like "avx512". */
const char *native_isa(void);

/* Whether any node of this op may have a candidate. */
bool native_takes(enum ir_op op);

enum status native_candidates(uint32_t threads, const struct ir_graph *graph,
                              const struct ir_node *node, tactic_visit visit, void *user,
                              struct error *err);

/* The floats of a vector register that the kernels use. */
uint32_t native_lanes(void);
/* The number of threads that a tactic of this part runs on. */
uint32_t native_tactic_threads(const struct tactic *tactic);

/* As backend.h's pack and op_*. */
enum status native_pack(const struct ir_graph *graph, const struct ir_node *node,
                        const struct tactic *tactic, uint32_t input, void *to, struct error *err);
enum status native_op_prepare(uint32_t threads, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct native_op **out, struct error *err);
void native_op_free(struct native_op *op);
uint64_t native_op_workspace(const struct native_op *op);
uint32_t native_op_threads(const struct native_op *op); /* that a launch runs on */
enum status native_op_launch(struct native_op *op, void *const *inputs, void *const *outputs,
                             void *workspace, struct error *err);

#endif
