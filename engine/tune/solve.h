/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The assignment problem on its own. Nodes have options, and tensors lie between the nodes. The
 * answer is an option for each node that makes the sum of the nodes' times and of the reformats
 * between differing formats least. A format is a small number here (tune.c gives it its meaning). A
 * reformat of one tensor to one format is paid for once, however many nodes read its result.
 *
 * The solver knows nothing of graphs, backends or clocks, so tests can compare it with trying all
 * assignments.
 */
#ifndef INFERD_ENGINE_TUNE_SOLVE_H
#define INFERD_ENGINE_TUNE_SOLVE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "engine/ir/ir.h"

enum { SOLVE_FORMATS = 32 };         /* at most, in one problem */
#define SOLVE_NEVER (UINT64_MAX / 4) /* a cost: impossible */

struct solve_node {
    uint32_t n; /* options, >= 1 */
    const uint64_t *cost;
};

/* One end of a tensor: the format that each option of the node has there. */
struct solve_end {
    uint32_t node; /* IR_NONE: fixed to format[0] */
    const uint8_t *format;
};

struct solve_tensor {
    struct solve_end from;
    uint32_t n_uses;
    const struct solve_end *uses;
    const uint64_t (*reformat)[SOLVE_FORMATS]; /* [from][to] */
};

struct solve_problem {
    uint32_t n_nodes, n_tensors;
    const struct solve_node *nodes;
    const struct solve_tensor *tensors;
};

/* The sum for these options; SOLVE_NEVER or more: they are impossible. */
uint64_t solve_cost(const struct solve_problem *p, const uint32_t *choice);

/* Fills choice[n_nodes]. The answer is exact, found by eliminating one node after the other, if all
 * tables stay below `table_limit` entries (0: a default); else it comes from local improvement from
 * several starts. `exact` (may be NULL) says which of the two. The same problem always gets the
 * same answer. */
enum status solve(const struct solve_problem *p, uint32_t table_limit, uint32_t *choice,
                  bool *exact, struct error *err);

#endif
