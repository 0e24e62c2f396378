/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sizes of tensors in their layouts. No tensor may be larger than IR_MAX_TENSOR_BYTES: sums over
 * all tensors of a graph then fit 64 bits, so that nobody behind has to check them again.
 */
#include "engine/ir/ir.h"

#include "base/checked.h"

/* Channels in one innermost block; 1: not blocked. */
static int64_t block_of(enum ir_layout layout)
{
    switch (layout) {
    case IR_LAYOUT_BLOCKED_8:
        return 8;
    case IR_LAYOUT_BLOCKED_16:
        return 16;
    default:
        return 1;
    }
}

bool ir_layout_bytes(const struct shape *shape, enum dtype dtype, enum ir_layout layout,
                     uint64_t *out)
{
    if (shape->rank > SHAPE_MAX_RANK || (uint32_t)layout >= IR_LAYOUT_OPAQUE ||
        (layout != IR_LAYOUT_PLAIN && shape->rank < 2))
        return false;
    for (uint32_t i = 0; i < shape->rank; i++)
        if (shape->dim[i] < 0 || shape->dim[i] > IR_MAX_DIM)
            return false;

    struct shape padded = *shape;
    int64_t block = block_of(layout);
    if (block > 1)
        padded.dim[1] = (padded.dim[1] + block - 1) / block * block;
    size_t bytes;
    if (!shape_bytes(&padded, dtype, &bytes) || bytes > IR_MAX_TENSOR_BYTES)
        return false;
    *out = bytes;
    return true;
}

bool ir_tensor_set_layout(struct ir_graph *graph, uint32_t tensor, enum ir_layout layout)
{
    struct ir_tensor *t = ir_tensor(graph, tensor);
    uint64_t bytes;
    if (!ir_layout_bytes(&t->shape, t->dtype, layout, &bytes))
        return false;
    t->layout = layout;
    t->bytes = bytes;
    return true;
}
