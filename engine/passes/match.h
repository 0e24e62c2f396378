/* SPDX-License-Identifier: Apache-2.0 */
/* What the passes that recognise a function by its parts share. */
#ifndef INFERD_ENGINE_PASSES_MATCH_H
#define INFERD_ENGINE_PASSES_MATCH_H

#include "engine/passes/rewrite.h"

/* The parts found so far, for the name of what they become. */
struct match {
    uint32_t parts[16];
    uint32_t n;
};

/* Notes a part; false if `node` is IR_NONE, so that searches can be chained with &&. */
bool match_part(struct match *m, uint32_t node);

/* Equal but for rounding of an exporter's decimal constants. */
bool match_near(float value, double wanted);

/* y = scale * x for the LINEAR node that makes `tensor` (a part then); scale 1 and the tensor
 * itself if there is none. */
float match_scaled(const struct rewrite *rw, struct match *m, uint32_t tensor, uint32_t *x);

/* The node is called by its parts' names in the order of the graph; logs and counts the fusion. */
void match_done(struct rewrite *rw, const struct match *m, uint32_t node, const char *what);

#endif
