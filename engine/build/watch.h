/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to engine/build: watches a judge for fusions that only a device's kernels of 16 bits run,
 * or those of 8 bits (CONV_CHAIN).
 *
 * If the judge holds such a node back from these types, nothing on the device runs it any more, and
 * the host has the reference's kernel alone. Such a node is to be taken apart instead, into nodes
 * that are judged for themselves. So the tuning ends there, without another comparison; what has
 * become of the graph is not to be used.
 */
#ifndef INFERD_ENGINE_BUILD_WATCH_H
#define INFERD_ENGINE_BUILD_WATCH_H

#include "engine/tune/tune.h"

#define WATCH_OP(op) (UINT64_C(1) << (op))
_Static_assert(IR_OP_COUNT_ <= 64, "a set of ops has a bit for each");

struct build_watch {
    struct tune_judge judge; /* for the tuner, in place of the other */
    const struct tune_judge *watched;
    uint64_t ops; /* of the fusions: a set of WATCH_OP */
    /* Called for each that is held back, perhaps more than once; may be NULL. */
    void (*held)(void *user, const struct ir_node *node);
    void *user;
    bool ended; /* some are held back */
};

/* Sets judge, which is of the same lifetime. */
void build_watch_init(struct build_watch *watch, const struct tune_judge *watched, uint64_t ops,
                      void (*held)(void *user, const struct ir_node *node), void *user);

#endif
