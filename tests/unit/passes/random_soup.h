/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random graphs of nodes that models seldom have: any op on tensors of any rank and a few types,
 * with dimensions from 0 to 3, and constants. The same seed gives the same graph. tests/random
 * makes graphs as models have them.
 */
#ifndef INFERD_TESTS_UNIT_PASSES_RANDOM_SOUP_H
#define INFERD_TESTS_UNIT_PASSES_RANDOM_SOUP_H

#include "engine/ir/ir.h"

struct ir_graph *random_soup(uint64_t seed);

#endif
