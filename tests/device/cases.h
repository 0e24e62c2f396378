/* SPDX-License-Identifier: Apache-2.0 */
/* Random graphs of one node each, by kind and seed, with which devices are tested. */
#ifndef INFERD_TESTS_DEVICE_CASES_H
#define INFERD_TESTS_DEVICE_CASES_H

#include "engine/ir/ir.h"

struct case_kind {
    const char *name;
    /* Makes node 0 of the graph. Returns false if the shapes drawn do not fit together; then the
     * caller draws again. */
    bool (*make)(struct ir_graph *graph, uint64_t *random);
};

extern const struct case_kind case_kinds[]; /* ends with a row whose name is NULL */

/* Makes all outputs of node 0 outputs of the graph. */
void case_outputs(struct ir_graph *graph);

/* Returns NULL if memory is short, or if many attempts drew nothing that fits. */
struct ir_graph *case_new(const struct case_kind *kind, uint64_t seed);

/* Larger cases with fixed shapes, from networks that are served, for timing. */
struct case_sized {
    const char *name;
    bool (*make)(struct ir_graph *graph, uint64_t *random, int64_t batch);
    double flop; /* of one image or sequence; 0: bytes alone decide */
};
extern const struct case_sized case_sizes[];

#endif
