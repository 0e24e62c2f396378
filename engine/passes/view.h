/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A tensor of five dimensions as a strided view of a tensor further back: it says where the
 * elements of a reshaped, transposed, sliced or repeated tensor come from. Different spellings of
 * one movement, such as the many ways to split heads, give the same view.
 */
#ifndef INFERD_ENGINE_PASSES_VIEW_H
#define INFERD_ENGINE_PASSES_VIEW_H

#include "engine/passes/rewrite.h"

enum { VIEW_RANK = 5 };

/* Element i of the view is element offset + sum of i[k] * stride[k] of the (dense) tensor, times
 * scale. A stride of 0 repeats. */
struct view {
    uint32_t tensor;
    int64_t dim[VIEW_RANK], stride[VIEW_RANK], offset;
    float scale;
};

/* Makes a view of the tensor itself, in the order of its elements, as if its dimensions were `dim`.
 * False if there are no elements, or another number of them. */
bool view_init(const struct rewrite *rw, uint32_t tensor, const int64_t dim[VIEW_RANK],
               struct view *out);

/* Moves the view back to the input of the tensor's node, if that is a RESHAPE, TRANSPOSE, SLICE,
 * EXPAND, a TILE of dimensions of one element, a GATHER of one constant index or a multiplication
 * with a number; otherwise false. */
bool view_back(const struct rewrite *rw, struct view *view);

/* True if the strides are these; for a dimension of one element any stride is right. */
bool view_has_strides(const struct view *view, const int64_t stride[VIEW_RANK]);

#endif
