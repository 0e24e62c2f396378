/* SPDX-License-Identifier: Apache-2.0 */
/* Which concatenations and slices need not run. Private to the builder. */
#ifndef INFERD_ENGINE_BUILD_PARTS_H
#define INFERD_ENGINE_BUILD_PARTS_H

#include "engine/ir/ir.h"

/* Gives tensors of a tuned graph their places in others (engine/plan/plan.h), and takes the tactic
 * of each node that has nothing to run. Tensors that are mere names of others are aliases already.
 */
enum status build_parts(struct ir_graph *graph, struct error *err);

#endif
