/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Models with 16-bit floats on a backend that computes in FP32 (BACKEND_WIDENS).
 *
 * FP16 and BF16 tensors become FP32 inside the graph, and weights are widened when the plan is
 * built. Graph inputs and outputs keep the types that the model declares, with a cast each. So does
 * a constant table of which every reader takes a part only (an embedding): the part is widened.
 *
 * Results are rounded less often than the model says, hence are at least as accurate. The model's
 * rounding is kept where a decision is made of it: what a comparison, a cast to integers, floor or
 * another function that jumps reads (ir_node_jumps), and what ArgMax, TopK and their like read, is
 * first rounded to the type that the model declares.
 */
#ifndef INFERD_ENGINE_BUILD_WIDEN_H
#define INFERD_ENGINE_BUILD_WIDEN_H

#include "base/error.h"
#include "engine/ir/ir.h"

/* Changes a graph that has no formats, tactics or epilogues yet. *widened: the number of tensors
 * that have become FP32; if it is 0, nothing was changed. */
enum status build_widen(struct ir_graph *graph, uint32_t *widened, struct error *err);

#endif
