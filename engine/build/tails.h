/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Gathers the tails of a plan's profiles (engine/import/onnx.h) in one piece of memory, which
 * becomes the plan's tail section: the constants that they read, equal ones once, their models, and
 * plans of the bodies of their loops.
 */
#ifndef INFERD_ENGINE_BUILD_TAILS_H
#define INFERD_ENGINE_BUILD_TAILS_H

#include "engine/build/build.h"

struct build_tails;

/* The options outlive it. NULL: no memory. */
struct build_tails *build_tails_new(struct plan *plan, const struct build_options *options);
void build_tails_free(struct build_tails *tails);

/* The function that keeps constants, for struct onnx_tail; `tails` is its user. */
enum status build_tails_keep(void *tails, const void *data, size_t size, uint64_t *offset,
                             struct error *err);
/* Adds the tail that the import of a profile's graph left, if any. UNIMPLEMENTED: another profile's
 * has other outputs, or an output's rank is not known. */
enum status build_tails_add(struct build_tails *tails, struct onnx_tail *tail,
                            const struct ir_graph *graph, struct plan_profile *profile,
                            struct error *err);
/* Hands the memory over to the plan, behind the last profile. */
void build_tails_give(struct build_tails *tails);

/* *out: `from` as a name that clients can write, in the plan's arena: other characters become '_'.
 * INVALID_ARGUMENT: one of the `n` earlier bindings has it. */
enum status build_binding_name(struct plan *plan, const struct plan_binding *earlier, uint32_t n,
                               const char *from, const struct log_sink *log, const char **out,
                               struct error *err);

#endif
