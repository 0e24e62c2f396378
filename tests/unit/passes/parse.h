/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs for tests, from the text that ir_graph_text writes. Shorter forms are fine:
 *
 *   input x FP32[1,3,8,8]
 *   c = conv "conv1" (x, w FP32[4,3,3,3]) pads=1,1,1,1 then relu
 *   y = binary "half" (c, k FP32[]=0.5) func=mul
 *   output y
 *
 * Types of results are inferred. A constant is written with its type where it is first read; its
 * values follow from its name, or are all the number behind "=", or positive ones behind "=+", or
 * count on from the one behind "=from ".
 */
#ifndef INFERD_TESTS_UNIT_PASSES_PARSE_H
#define INFERD_TESTS_UNIT_PASSES_PARSE_H

#include "engine/ir/ir.h"

/* Fails the test if the text cannot be read. */
struct ir_graph *graph_parse(const char *text);

/* Numbers in -1..1, the same for the same seed. */
void fill_random(enum dtype dtype, void *data, size_t n, uint64_t seed);

#endif
