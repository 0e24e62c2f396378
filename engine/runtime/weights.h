/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The weights of engines that are one model at several sizes. Each of them has a plan of its own,
 * and most constants of these plans have the same bytes: the large ones are in memory once, on the
 * device or, where that reads host memory, on the host. They stay as long as one of the engines
 * does, whichever came first.
 *
 * On the host equal bytes are compared. A device's bytes are known by their hash (XXH3, 128 bits):
 * it finds accidents alone, which is enough among plans that were built of one model.
 *
 * Any thread may make and free them. Addresses do not change.
 */
#ifndef INFERD_ENGINE_RUNTIME_WEIGHTS_H
#define INFERD_ENGINE_RUNTIME_WEIGHTS_H

#include "engine/backend.h"
#include "engine/plan/plan.h"

enum { WEIGHTS_LARGE = 1 << 16 }; /* bytes of a constant that is worth sharing */

struct weights;

/* Puts the plan's weights where the device reads them. Those that `like` or its like have are not
 * taken again; NULL: there are none so far. On the host the constants of the plan point to where
 * they are from then on, and the plan's memory is taken over. */
enum status weights_new(struct device *device, struct plan *plan, struct weights *like,
                        struct weights **out, struct error *err);
void weights_free(struct weights *weights); /* after the plan was used last; NULL is fine */
/* The device's address of a byte of the plan's weight section, which a constant begins at. */
const void *weights_at(const struct weights *weights, uint64_t offset);
/* How many bytes of the plan's constants are those of the engine that was the first. */
uint64_t weights_common(const struct weights *weights);

#endif
