/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oneDNN part of the CPU backend, as engine/cpu/cpu.c calls it: the functions of backend.h's
 * table for tactics whose id is at least ONEDNN_TACTIC_FIRST.
 *
 * Threads: many threads may use a `struct onednn` at once; an op belongs to one thread at a time.
 * oneDNN fixes the number of threads of a primitive when it makes the primitive, so both making and
 * launching happen under omp_set_num_threads(threads) of the calling thread.
 *
 * A plan stores nothing of oneDNN: a tactic's blob names an implementation and a few choices, and
 * prepare derives every memory descriptor again from the node and checks sizes against it.
 */
#ifndef INFERD_ENGINE_CPU_ONEDNN_H
#define INFERD_ENGINE_CPU_ONEDNN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "engine/backend.h"
#include "engine/ir/ir.h"

/* Tactic ids from here to ONEDNN_TACTIC_LAST are oneDNN's; smaller ids belong to the reference and
 * native parts. */
enum { ONEDNN_TACTIC_FIRST = 0x1000, ONEDNN_TACTIC_LAST = 0x1fff };

struct onednn;
struct onednn_op;

/* `threads` (at least 1) is the number of threads of every primitive. */
enum status onednn_new(uint32_t threads, struct onednn **out, struct error *err);
void onednn_free(struct onednn *dnn); /* after its ops; NULL is fine */

/* Writes oneDNN's part of a device's fingerprint, like "oneDNN 2.6.3 avx512_core_bf16 omp": the
 * library, the instruction set that oneDNN uses (DNNL_MAX_CPU_ISA may limit it) and the threading
 * runtime. */
void onednn_fingerprint(const struct onednn *dnn, char *out, size_t size);

/* Whether any node of this op may have a candidate. */
bool onednn_takes(enum ir_op op);

/* Visits every way in which oneDNN can run the node, the best guess first; none if oneDNN cannot
 * run it. They compute in fp32, or exactly; where `precision` allows BF16 and the machine has
 * instructions for it, some products read BF16 and sum in fp32. */
enum status onednn_candidates(struct onednn *dnn, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err);

/* What implementation a tactic of this part is (in `impl`), and the number of threads it runs
 * on. */
enum { ONEDNN_IMPL_MAX = 60 };
uint32_t onednn_tactic_impl(const struct onednn *dnn, const struct tactic *tactic,
                            char impl[ONEDNN_IMPL_MAX]);

/* As backend.h's pack. */
enum status onednn_pack(struct onednn *dnn, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err);

/* As backend.h's op_prepare, op_workspace, op_free, op_launch. */
enum status onednn_op_prepare(struct onednn *dnn, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct onednn_op **out, struct error *err);
uint64_t onednn_op_workspace(const struct onednn_op *op);
uint32_t onednn_op_threads(const struct onednn_op *op); /* that a launch runs on */
void onednn_op_free(struct onednn_op *op);
enum status onednn_op_launch(struct onednn_op *op, void *const *inputs, void *const *outputs,
                             void *workspace, struct error *err);

#endif
