/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a case through builder, plan file and runtime. */
#ifndef INFERD_TESTS_RANDOM_ENGINE_RUN_H
#define INFERD_TESTS_RANDOM_ENGINE_RUN_H

#include <stdio.h>

#include "tests/random/graph_case.h"

enum { ENGINE_ANY = -1 };

struct engine_choice {
    int turn; /* the candidate that is forced on each node; ENGINE_ANY: the tuner chooses */
    uint32_t threads;
    bool timed;
    FILE *names; /* of forced candidates; may be NULL */
};

/* `*most` becomes the largest number of candidates that a node has, also if the function fails. */
enum status engine_run_case(const struct graph_case *c, const struct engine_choice *choice,
                            uint32_t *most, struct error *err);

#endif
