/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CPU device that offers one candidate for each node, so that the builder has no choice: the
 * candidate at `turn` modulo the number of candidates. The device fills arenas and buffers with
 * NaNs when it allocates them. There can be one such device at a time, because its table has no
 * place for a pointer.
 */
#ifndef INFERD_TESTS_RANDOM_FORCE_H
#define INFERD_TESTS_RANDOM_FORCE_H

#include <stdio.h>

#include "engine/backend.h"

enum { FORCE_NONE = -1 };

/* Replaces the device's table by the one that poisons and forces. */
void force_device(struct device *device);
/* Sets the turn and starts counting anew. With FORCE_NONE, all candidates are offered. `names` gets
 * the name of each candidate that is offered, a line each; it may be NULL. */
void force_turn(int turn, FILE *names);
/* The largest number of candidates that a node has had since then: the turns below it cover them
 * all. */
uint32_t force_most(void);

#endif
