/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The assignment problem on its own: nodes with options, tensors between them, and the option of
 * each node such that the sum of the nodes' times and of the reformats between differing formats is
 * least. A format is a small number, whatever it stands for (tune.c). A reformat of one tensor to
 * one format is paid for once, however many nodes read it.
 *
 * Knows nothing of graphs, backends or clocks, so that it can be tested against trying everything.
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

/* Sum for these options; SOLVE_NEVER or more if it cannot be. */
uint64_t solve_cost(const struct solve_problem *p, const uint32_t *choice);

/* Fills choice[n_nodes]. Exact by eliminating one node after the other as long as the tables stay
 * below `table_limit` entries (0: a default), else by local improvement from several starts.
 * `exact` (may be NULL) says which. The same problem always gets the same answer. */
enum status solve(const struct solve_problem *p, uint32_t table_limit, uint32_t *choice,
                  bool *exact, struct error *err);

#endif
