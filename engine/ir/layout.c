/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Computes sizes of tensors in their layouts. No tensor may be larger than IR_MAX_TENSOR_BYTES, so
 * sums over all tensors of a graph fit 64 bits, and later code need not check them.
 */
#include "engine/ir/ir.h"

#include "base/checked.h"
#include "engine/ir/ops.h"

enum order {
    CHANNELS_FIRST, /* N, C, S, where S is all spatial dimensions as one */
    CHANNELS_LAST,  /* N, S, C */
    BLOCKS,         /* N, C/b, S, b */
};

/* `multiple`: the number of channels is rounded up to a multiple of it; 0: the layout has no known
 * size. */
static const struct {
    int64_t multiple;
    enum order order;
} rows[IR_LAYOUT_COUNT_] = {
    [IR_LAYOUT_PLAIN] = {1, CHANNELS_FIRST},
    [IR_LAYOUT_CHANNELS_LAST] = {1, CHANNELS_LAST},
    [IR_LAYOUT_BLOCKED_8] = {8, BLOCKS},
    [IR_LAYOUT_BLOCKED_16] = {16, BLOCKS},
    [IR_LAYOUT_CHANNELS_LAST_4] = {4, CHANNELS_LAST},
    [IR_LAYOUT_CHANNELS_LAST_8] = {8, CHANNELS_LAST},
};

static bool known(enum ir_layout layout)
{
    return (uint32_t)layout < IR_LAYOUT_COUNT_ && rows[layout].multiple > 0;
}

int64_t ir_layout_block(enum ir_layout layout)
{
    return known(layout) && rows[layout].order == BLOCKS ? rows[layout].multiple : 0;
}

int64_t ir_layout_multiple(enum ir_layout layout)
{
    return known(layout) ? rows[layout].multiple : 0;
}

static int64_t padded_channels(int64_t channels, enum ir_layout layout)
{
    int64_t multiple = rows[layout].multiple;
    return (channels + multiple - 1) / multiple * multiple;
}

bool ir_layout_bytes(const struct shape *shape, enum dtype dtype, enum ir_layout layout,
                     uint64_t *out)
{
    if (shape->rank > SHAPE_MAX_RANK || !known(layout) ||
        (layout != IR_LAYOUT_PLAIN && shape->rank < 2))
        return false;
    for (uint32_t i = 0; i < shape->rank; i++)
        if (shape->dim[i] < 0 || shape->dim[i] > IR_MAX_DIM)
            return false;

    struct shape padded = *shape;
    if (rows[layout].multiple > 1)
        padded.dim[1] = padded_channels(shape->dim[1], layout);
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

bool ir_layouts_agree(const struct shape *shape, enum ir_layout a, enum ir_layout b)
{
    if (a == b || !known(a) || !known(b) || shape->rank < 2)
        return a == b;
    int64_t spatial = 1, channels = padded_channels(shape->dim[1], a);
    for (uint32_t i = 2; i < shape->rank; i++)
        if (!__builtin_mul_overflow(spatial, shape->dim[i], &spatial) && spatial < 0)
            return false;
    if (channels != padded_channels(shape->dim[1], b))
        return false;
    if (spatial == 1 || channels == 1)
        return true;
    /* A layout with all channels in one block is channels-last. */
    enum order x = rows[a].multiple == channels ? CHANNELS_LAST : rows[a].order;
    enum order y = rows[b].multiple == channels ? CHANNELS_LAST : rows[b].order;
    return x == y && (x != BLOCKS || rows[a].multiple == rows[b].multiple);
}

/* The dims of more than one element in the order in which they lie in memory, the slowest first.
 * Returns their number; UINT32_MAX: channels are in blocks or padded. */
static uint32_t memory_order(const struct shape *shape, enum ir_layout layout,
                             uint32_t dims[SHAPE_MAX_RANK])
{
    uint32_t n = 0;
    if (layout != IR_LAYOUT_PLAIN && layout != IR_LAYOUT_CHANNELS_LAST)
        return UINT32_MAX;
    bool last = layout == IR_LAYOUT_CHANNELS_LAST && shape->rank > 2;
    for (uint32_t i = 0; i < shape->rank; i++) {
        uint32_t dim = !last || i == 0 ? i : i + 1 < shape->rank ? i + 1 : 1;
        if (shape->dim[dim] != 1)
            dims[n++] = dim;
    }
    return n;
}

/* Says whether a transpose from one layout into the other leaves all elements where they are. */
static bool stays(const struct ir_graph *graph, const struct ir_node *node, enum ir_layout from,
                  enum ir_layout to)
{
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    uint32_t of_x[SHAPE_MAX_RANK], of_y[SHAPE_MAX_RANK];
    uint32_t n = memory_order(x, from, of_x);
    if (n == UINT32_MAX || memory_order(y, to, of_y) != n)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (ir_attr_at(node, IR_ATTR_PERM, of_y[i]) != of_x[i])
            return false;
    return true;
}

/* Whether stored integers mean the same on both sides. A scale for each index of a dimension would
 * have to follow this dimension, so only a reformat and a quantisation may have one. */
static bool same_meaning(const struct ir_graph *graph, const struct ir_node *node, uint32_t from,
                         uint32_t to)
{
    const struct ir_scale *x = ir_scale(graph, from), *y = ir_scale(graph, to);
    if (node->op == IR_OP_QUANTIZE || node->op == IR_OP_DEQUANTIZE)
        return ir_quant_is_scale(graph, node, node->op == IR_OP_QUANTIZE ? x : y) && (!x || !y);
    return ir_scale_equal(x, y) && (!x || x->n == 1 || node->op == IR_OP_REFORMAT);
}

bool ir_node_keeps_range(const struct ir_graph *graph, const struct ir_node *node)
{
    return ir_op_has(node->op, IR_TRAIT_RENAMES) && node->n_inputs && node->n_outputs &&
           node->inputs[0] != IR_NONE &&
           same_meaning(graph, node, ir_tensor(graph, node->inputs[0])->range,
                        ir_tensor(graph, node->outputs[0])->range);
}

bool ir_node_renames(const struct ir_graph *graph, const struct ir_node *node,
                     struct ir_format from, struct ir_format to)
{
    if (!ir_op_has(node->op, IR_TRAIT_RENAMES) || node->n_inputs == 0 ||
        node->inputs[0] == IR_NONE || node->n_outputs != 1 || from.dtype != to.dtype ||
        node->n_epilogue || !same_meaning(graph, node, from.scale, to.scale))
        return false;
    switch (node->op) {
    case IR_OP_CAST:
    case IR_OP_REFORMAT:
    case IR_OP_QUANTIZE:
    case IR_OP_DEQUANTIZE:
        return ir_layouts_agree(&ir_tensor(graph, node->outputs[0])->shape, from.layout, to.layout);
    case IR_OP_TRANSPOSE:
        return stays(graph, node, from.layout, to.layout);
    default:
        return from.layout == IR_LAYOUT_PLAIN && to.layout == IR_LAYOUT_PLAIN;
    }
}
