/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor of four dimensions as a strided view of another one that lies further back: where the
 * elements of a reshaped, transposed, sliced tensor come from. Spellings of the same movement, such
 * as the many ways to split heads, come to the same view.
 */
#ifndef INFERD_ENGINE_PASSES_VIEW_H
#define INFERD_ENGINE_PASSES_VIEW_H

#include "engine/passes/rewrite.h"

enum { VIEW_RANK = 4 };

/* Element i of the view is element offset + sum of i[k] * stride[k] of the (dense) tensor, times
 * scale. */
struct view {
    uint32_t tensor;
    int64_t dim[VIEW_RANK], stride[VIEW_RANK], offset;
    float scale;
};

/* The tensor itself, in the order of its elements, as if it had the dimensions `dim`; they have as
 * many elements. False if there are none. */
bool view_init(const struct rewrite *rw, uint32_t tensor, const int64_t dim[VIEW_RANK],
               struct view *out);

/* The same elements in what the tensor was made of, if its node is a RESHAPE, TRANSPOSE, SLICE, a
 * GATHER at one constant place or a multiplication with a number; else false. */
bool view_back(const struct rewrite *rw, struct view *view);

/* True if stride[k] is what is wanted; of a dimension with one element it does not matter. */
bool view_has_strides(const struct view *view, const int64_t stride[VIEW_RANK]);

#endif
