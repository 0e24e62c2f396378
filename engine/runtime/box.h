/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boxes in tensors. In a batch, a request's tensor is a box in the profile's: its instances lie
 * side by side with those of other requests along the axis that counts instances, which need not be
 * the first one, and its other dimensions may be smaller than the profile's (engine_free.pads).
 */
#ifndef INFERD_ENGINE_RUNTIME_BOX_H
#define INFERD_ENGINE_RUNTIME_BOX_H

#include <stddef.h>
#include <stdint.h>

#include "base/shape.h"

struct box {
    const struct shape *whole; /* of the tensor */
    const struct shape *part;  /* of the box; of the same rank, and no larger */
    uint32_t axis;             /* the box begins at `first` along it, and at 0 along the others */
    int64_t first;
    size_t element; /* bytes */
};

/* Copies a dense tensor into its box, or the box out of the tensor. */
void box_put(const struct box *box, void *whole, const void *part);
void box_take(const struct box *box, const void *whole, void *part);

/* Whether the box is all of the tensor, so that both have the same bytes. */
bool box_is_whole(const struct box *box);

#endif
