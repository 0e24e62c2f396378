/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Private to engine/build: watches a judge for fusions that only a device's kernel of 16 bits runs.
 *
 * If the judge holds such a node back from 16 bits, nothing on the device runs it any more, and the
 * host has the reference's kernel alone. Such a node is to be taken apart instead, into nodes that
 * are judged for themselves. So the tuning ends there, without another comparison; what has become
 * of the graph is not to be used.
 */
#ifndef INFERD_ENGINE_BUILD_WATCH_H
#define INFERD_ENGINE_BUILD_WATCH_H

#include "engine/tune/tune.h"

struct build_watch {
    struct tune_judge judge; /* for the tuner, in place of the other */
    const struct tune_judge *watched;
    enum ir_op op; /* of the fusions */
    /* Called for each that is held back, perhaps more than once; may be NULL. */
    void (*held)(void *user, const struct ir_node *node);
    void *user;
    bool ended; /* some are held back */
};

/* Sets judge, which is of the same lifetime. */
void build_watch_init(struct build_watch *watch, const struct tune_judge *watched, enum ir_op op,
                      void (*held)(void *user, const struct ir_node *node), void *user);

#endif
