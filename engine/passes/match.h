/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that the passes share which recognise a function by its parts. */
#ifndef INFERD_ENGINE_PASSES_MATCH_H
#define INFERD_ENGINE_PASSES_MATCH_H

#include "engine/passes/rewrite.h"

/* The parts found so far, for the name of what they become. */
struct match {
    uint32_t parts[16];
    uint32_t n;
};

/* Notes a part. False if `node` is IR_NONE, so that searches can be chained with &&. */
bool match_part(struct match *m, uint32_t node);

/* True if the two differ only by the rounding of an exporter's decimal constants, or to 16 bits. */
bool match_near(float value, double wanted);

/* If a LINEAR node makes `tensor` as y = scale * x, notes it as a part and returns scale. Otherwise
 * returns 1, and x is the tensor itself. */
float match_scaled(const struct rewrite *rw, struct match *m, uint32_t tensor, uint32_t *x);

/* Names the node after its parts, in the order of the graph; logs and counts the fusion. */
void match_done(struct rewrite *rw, const struct match *m, uint32_t node, const char *what);

#endif
