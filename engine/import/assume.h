/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes in a loop's body that its counter tells, as in x[:, i:i+1] = y: they are the same in every
 * iteration, which no shape says. The body is imported twice. The first import, the trial, has the
 * values that states begin with. The second one does not have them, and takes each size that it
 * cannot know from the trial. The body also computes whether all these sizes are right, as its
 * output "k". If they are not, the other outputs are void, and the run may fail.
 */
#ifndef INFERD_ENGINE_IMPORT_ASSUME_H
#define INFERD_ENGINE_IMPORT_ASSUME_H

#include "engine/import/map.h"

/* Map the Slice or the Range at hand by assumptions, if its bounds are not known and there is a
 * trial. False: nothing has been done. */
bool assume_slice(struct mapper *m);
bool assume_range(struct mapper *m);
/* Gives the outputs of an If's branch `then` the shapes of the other's, where they differ, and
 * assumes that this one is not taken: exporters write "if done: break" so. False: this is no body,
 * or types or numbers of elements differ, too. */
bool assume_else(struct mapper *m, uint32_t cond, uint32_t *then, const uint32_t *other);

#endif
