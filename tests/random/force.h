/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A CPU device that offers one candidate for each node, so that the builder has no choice: the
 * one at `turn` modulo how many there are. What it gives out is poisoned with NaNs: arenas and
 * buffers. One such device at a time: its table has no place for a pointer.
 */
#ifndef INFERD_TESTS_RANDOM_FORCE_H
#define INFERD_TESTS_RANDOM_FORCE_H

#include <stdio.h>

#include "engine/backend.h"

enum { FORCE_NONE = -1 };

/* Puts the poisoning, forcing table in the place of the device's own. */
void force_device(struct device *device);
/* FORCE_NONE: all candidates are offered. Starts counting anew. `names`: where the name of each
 * candidate that is offered goes, a line each; or NULL. */
void force_turn(int turn, FILE *names);
/* The most candidates that a node had since then: turns below cover them all. */
uint32_t force_most(void);

#endif
