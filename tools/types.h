/* SPDX-License-Identifier: Apache-2.0 */
/* Which types a graph's layers really compute on, for summaries. */
#ifndef INFERD_TOOLS_TYPES_H
#define INFERD_TOOLS_TYPES_H

#include <stddef.h>

#include "engine/ir/ir.h"

/* The type that a layer computes in: the 8-bit type if one of its tensors has a scale, otherwise
 * the float type of its tensors, and the type of its output if none of them is a float. */
enum dtype types_of_layer(const struct ir_graph *graph, const struct ir_node *node);

enum { TYPES_TEXT_MAX = 160 };

/* "FP16 52 layers, 96% of the time; FP32 3, 4%": the layers that run and have floats, by falling
 * time. */
const char *types_format(const struct ir_graph *graph, char out[TYPES_TEXT_MAX]);

#endif
