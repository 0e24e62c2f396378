/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random graphs of what models seldom have: any op on tensors of any rank and a few types, with
 * dimensions from 0 to 3; constants, too. The same for the same seed. Graphs as models have them
 * are made in tests/random.
 */
#ifndef INFERD_TESTS_UNIT_PASSES_RANDOM_SOUP_H
#define INFERD_TESTS_UNIT_PASSES_RANDOM_SOUP_H

#include "engine/ir/ir.h"

struct ir_graph *random_soup(uint64_t seed);

#endif
