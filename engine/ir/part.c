/* SPDX-License-Identifier: Apache-2.0 */
/* Where a part of a tensor lies in its bytes. */
#include <string.h>

#include "base/compiler.h"
#include "engine/ir/ir.h"
#include "engine/ir/ops.h"

/* The dims of a tensor in the order in which its layout stores them, the slowest first. Channels
 * in blocks are counted in blocks; the elements of a block come last and are no dim. */
struct stored_dims {
    uint32_t n;
    uint32_t axis[SHAPE_MAX_RANK];
    int64_t unit[SHAPE_MAX_RANK]; /* elements of the axis that a step along it passes */
    int64_t inner;                /* elements behind the last dim */
};

static bool stored_dims_make(uint32_t rank, enum ir_layout layout, struct stored_dims *out)
{
    int64_t block = ir_layout_block(layout), multiple = ir_layout_multiple(layout);
    *out = (struct stored_dims){.inner = MAX(block, (int64_t)1)};
    if (!multiple || (layout != IR_LAYOUT_PLAIN && rank < 2))
        return false;
    bool last = layout != IR_LAYOUT_PLAIN && !block;
    for (uint32_t d = 0; d < rank; d++)
        if (!last || d != 1)
            out->axis[out->n++] = d;
    if (last)
        out->axis[out->n++] = 1;
    for (uint32_t i = 0; i < out->n; i++)
        out->unit[i] = out->axis[i] == 1 ? MAX(block, (int64_t)1) : 1;
    return true;
}

/* How many steps along stored dim `i` a tensor of this extent has. */
static int64_t steps_of(const struct stored_dims *dims, uint32_t i, int64_t extent,
                        int64_t multiple)
{
    int64_t padded = (extent + multiple - 1) / multiple * multiple;
    return (dims->axis[i] == 1 ? padded : extent) / dims->unit[i];
}

bool ir_part_offset(const struct shape *whole, const struct shape *part, const int64_t *start,
                    enum dtype dtype, enum ir_layout layout, uint64_t *offset)
{
    struct stored_dims dims;
    uint64_t bytes, of_part;
    if (whole->rank != part->rank || !stored_dims_make(whole->rank, layout, &dims) ||
        !ir_layout_bytes(whole, dtype, layout, &bytes) ||
        !ir_layout_bytes(part, dtype, layout, &of_part) || bytes == 0 || of_part == 0)
        return false;
    int64_t multiple = ir_layout_multiple(layout), at = 0, stride = dims.inner;
    bool cut = false; /* a dim behind the current one is not whole */
    for (uint32_t i = dims.n; i-- > 0;) {
        uint32_t d = dims.axis[i];
        int64_t m = d == 1 ? multiple : 1, end = start[d] + part->dim[d];
        int64_t steps = steps_of(&dims, i, part->dim[d], m);
        if (start[d] < 0 || end > whole->dim[d] || start[d] % m ||
            (end % m && end != whole->dim[d]) || (cut && steps != 1))
            return false;
        at += start[d] / dims.unit[i] * stride;
        cut = cut || part->dim[d] != whole->dim[d];
        stride *= steps_of(&dims, i, whole->dim[d], m);
    }
    *offset = (uint64_t)at * dtype_size(dtype);
    return true;
}

/* Whether both are stored alike, by no scale or by equal ones of the whole tensor. */
static bool alike(const struct ir_graph *graph, const struct ir_tensor *a,
                  const struct ir_tensor *b)
{
    const struct ir_scale *x = ir_scale(graph, a->scale), *y = ir_scale(graph, b->scale);
    return a->layout == b->layout && a->dtype == b->dtype && ir_scale_equal(x, y) &&
           (!x || x->n == 1);
}

/* Where the slice begins; false: it leaves elements out between others. */
static bool slice_starts(const struct ir_node *node, const struct shape *part, int64_t *start)
{
    for (uint32_t d = 0; d < part->rank; d++) {
        start[d] = ir_attr_at(node, IR_ATTR_STARTS, d);
        if (ir_attr_at(node, IR_ATTR_STEPS, d) != 1 && part->dim[d] != 1)
            return false;
    }
    return true;
}

bool ir_node_part(const struct ir_graph *graph, const struct ir_node *node, uint32_t input,
                  uint64_t *offset)
{
    bool joins = ir_op_has(node->op, IR_TRAIT_JOINS);
    if ((!joins && !ir_op_has(node->op, IR_TRAIT_CUTS)) || node->n_epilogue ||
        node->n_outputs != 1 || input >= node->n_inputs || node->inputs[input] == IR_NONE)
        return false;
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[input]);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    const struct ir_tensor *whole = joins ? y : x, *part = joins ? x : y;
    int64_t start[SHAPE_MAX_RANK] = {0};
    if (!alike(graph, x, y) || (!joins && !slice_starts(node, &part->shape, start)))
        return false;
    for (uint32_t i = 0; joins && i < input; i++) {
        uint32_t axis = (uint32_t)ir_attr_int(node, IR_ATTR_AXIS);
        start[axis] += ir_tensor(graph, node->inputs[i])->shape.dim[axis];
    }
    return ir_part_offset(&whole->shape, &part->shape, start, whole->dtype, whole->layout, offset);
}
