/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of loops in tails (onnx.h). If a body reads nothing that is late, and hands on states of
 * the types and shapes that it was given, one iteration is a graph like any other. The importer
 * makes that graph, the builder builds it with the plan, and a request runs it for each iteration.
 * Types and shapes of states are those behind the first iteration, which runs node by node if it
 * begins with others.
 *
 * Its inputs, where something reads them:
 *
 *   i           the number of the iteration, INT64
 *   s0, s1, ..  the states
 *   o0, o1, ..  values from outside, by the order in which the body's nodes first name them
 *
 * and its outputs:
 *
 *   c           whether to go on
 *   k           whether what the body assumes is so (assume.h); if not, the other outputs are void
 *   s0, s1, ..  the states, but for those that the body hands on as they are
 *   y0, y1, ..  what is kept of each iteration
 *
 * The graph's name is that of the loop's first output that has one.
 */
#ifndef INFERD_ENGINE_IMPORT_BODY_H
#define INFERD_ENGINE_IMPORT_BODY_H

#include "engine/import/map.h"

/* The graph of a late node's body. NULL: it is no loop, or its body cannot be such a graph. */
struct ir_graph *body_graph(struct mapper *m, const struct onnx_node *loop);

/* A loop whose iterations are imported, or run. */
struct unroll {
    const struct onnx_graph *body;
    uint32_t n_state;             /* states, which each iteration hands to the next one */
    uint32_t n_scan;              /* values of which every iteration's is kept */
    uint32_t first_in, first_out; /* the body's inputs and outputs before these are the loop's */
    uint32_t n, max;              /* iterations done, and at most to do */
    uint32_t *inputs, *outputs;   /* of the body; the states among the inputs are the next ones */
    uint32_t *kept;               /* [n_scan][max] */
    struct settled *settled;      /* what is the same in every iteration, or NULL */
    bool apart;                   /* no body fits, also behind the first iteration */
};

/*
 * Runs iterations of the loop that is the node at hand by a body of the mapper's, up to u->max, to
 * the end, or to one that differs from what the body assumes or has no room for what it keeps.
 * *go_on becomes the condition. False: no iteration has been run, as there is no body that fits, no
 * room, or the next one differs.
 */
bool body_run(struct mapper *m, struct unroll *u, bool *go_on);

#endif
