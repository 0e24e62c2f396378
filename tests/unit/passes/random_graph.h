/* SPDX-License-Identifier: Apache-2.0 */
/* Random graphs of the kinds that models are made of; the same for the same seed. */
#ifndef INFERD_TESTS_UNIT_PASSES_RANDOM_GRAPH_H
#define INFERD_TESTS_UNIT_PASSES_RANDOM_GRAPH_H

#include "engine/ir/ir.h"

/* Convolutions, pools, norms, sums, gates: tensors of rank 4. */
struct ir_graph *random_convnet(uint64_t seed);

/* Products, attention, layer norms, activations by their parts: tensors of rank 3. */
struct ir_graph *random_transformer(uint64_t seed);

/* Any op on tensors of any rank and a few types, with dimensions from 0 to 3; constants, too. */
struct ir_graph *random_soup(uint64_t seed);

#endif
