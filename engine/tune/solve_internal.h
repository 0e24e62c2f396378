/* SPDX-License-Identifier: Apache-2.0 */
/* What solve.c, solve_exact.c and solve_local.c share. */
#ifndef INFERD_ENGINE_TUNE_SOLVE_INTERNAL_H
#define INFERD_ENGINE_TUNE_SOLVE_INTERNAL_H

#include "engine/tune/solve.h"

/* The sum of two costs; SOLVE_NEVER and anything is SOLVE_NEVER. */
uint64_t solve_plus(uint64_t a, uint64_t b);
/* The format that the chosen options give this end. */
uint8_t solve_format_at(const struct solve_end *end, const uint32_t *choice);
/* The cost of the reformats of one tensor. */
uint64_t solve_tensor_cost(const struct solve_tensor *tensor, const uint32_t *choice);

/* False: tables would be too large, the work too much, or there is no memory. */
bool solve_exact(const struct solve_problem *p, uint32_t table_limit, uint32_t *choice);
/* False: no memory. */
bool solve_local(const struct solve_problem *p, uint32_t *choice);

#endif
