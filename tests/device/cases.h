/* SPDX-License-Identifier: Apache-2.0 */
/* Random graphs of one node each, by kind and seed: what devices are tried with. */
#ifndef INFERD_TESTS_DEVICE_CASES_H
#define INFERD_TESTS_DEVICE_CASES_H

#include "engine/ir/ir.h"

struct case_kind {
    const char *name;
    /* Makes node 0 of the graph; false: the shapes drawn do not fit together, draw again. */
    bool (*make)(struct ir_graph *graph, uint64_t *random);
};

extern const struct case_kind case_kinds[]; /* ends with a row whose name is NULL */

/* NULL: no memory, or nothing that fits was drawn in many attempts. */
struct ir_graph *case_new(const struct case_kind *kind, uint64_t seed);

/* Larger ones with fixed shapes, from networks that are served; for timing. */
struct case_sized {
    const char *name;
    bool (*make)(struct ir_graph *graph, uint64_t *random, int64_t batch);
};
extern const struct case_sized case_sizes[];

#endif
