/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The scales of QUANTIZE and DEQUANTIZE nodes as rows of the graph's table, and how a tensor's
 * range goes on to tensors that hold the same numbers. Operands may be unaligned: they come from
 * files.
 */
#include <math.h>
#include <string.h>

#include "engine/ir/ir.h"

/* How many of the last rows are searched for an equal one before a new row is made. */
enum { ROWS_SEARCHED = 32 };

static float real_at(const struct ir_tensor *t, uint32_t i)
{
    uint16_t bits;
    float value;
    if (t->dtype == DTYPE_F32) {
        memcpy(&value, (const char *)t->data + 4 * (size_t)i, sizeof(value));
        return value;
    }
    memcpy(&bits, (const char *)t->data + 2 * (size_t)i, sizeof(bits));
    return t->dtype == DTYPE_F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

static int32_t whole_at(const struct ir_tensor *t, uint32_t i)
{
    uint8_t byte;
    memcpy(&byte, (const char *)t->data + i, sizeof(byte));
    return t->dtype == DTYPE_I8 ? (int8_t)byte : byte;
}

static bool is_known(const struct ir_tensor *t)
{
    return t->data && t->layout == IR_LAYOUT_PLAIN && t->real == DTYPE_NONE;
}

/* A node's operands: what a row of scales would say. */
struct operands {
    const struct ir_tensor *scale, *zero; /* zero may be NULL */
    enum dtype dtype;
    uint32_t n, axis;
};

uint32_t ir_quant_real(const struct ir_node *node)
{
    if (node->op == IR_OP_QUANTIZE)
        return node->inputs[0];
    return node->op == IR_OP_DEQUANTIZE ? node->outputs[0] : IR_NONE;
}

/* False: no row can say it, because a number is not known or not of a type that rows have. */
static bool read_operands(const struct ir_graph *graph, const struct ir_node *node,
                          struct operands *out)
{
    if (ir_quant_real(node) == IR_NONE || node->n_inputs < 2)
        return false;
    bool to = node->op == IR_OP_QUANTIZE;
    const struct ir_tensor *bytes = ir_tensor(graph, to ? node->outputs[0] : node->inputs[0]);
    const struct ir_tensor *scale = ir_tensor(graph, node->inputs[1]), *zero = NULL;
    size_t n;
    if (node->n_inputs > 2 && node->inputs[2] != IR_NONE)
        zero = ir_tensor(graph, node->inputs[2]);
    if (dtype_size(bytes->dtype) != 1 || bytes->dtype == DTYPE_BOOL || !is_known(scale) ||
        scale->dtype == DTYPE_F64 || (zero && !is_known(zero)) ||
        !shape_elements(&scale->shape, &n) || n == 0 || n > UINT32_MAX)
        return false;
    uint32_t axis = n > 1 ? (uint32_t)ir_attr_int(node, IR_ATTR_AXIS) : 0;
    *out = (struct operands){scale, zero, bytes->dtype, (uint32_t)n, axis};
    return true;
}

static bool says(const struct ir_scale *row, const struct operands *o)
{
    if (!row || row->n != o->n || row->dtype != o->dtype || row->axis != o->axis)
        return false;
    for (uint32_t i = 0; i < o->n; i++)
        if (row->step[i] != real_at(o->scale, i) ||
            (row->zero ? row->zero[i] : 0) != (o->zero ? whole_at(o->zero, i) : 0))
            return false;
    return true;
}

bool ir_quant_is_scale(const struct ir_graph *graph, const struct ir_node *node,
                       const struct ir_scale *scale)
{
    struct operands o;
    return read_operands(graph, node, &o) && says(scale, &o);
}

static uint32_t find_row(const struct ir_graph *graph, const struct operands *o)
{
    for (uint32_t i = 0; i < MIN(graph->n_scales, ROWS_SEARCHED); i++)
        if (says(ir_scale(graph, graph->n_scales - i), o))
            return graph->n_scales - i;
    return IR_NO_SCALE;
}

uint32_t ir_quant_scale(struct ir_graph *graph, const struct ir_node *node)
{
    struct operands o;
    if (!read_operands(graph, node, &o))
        return IR_NO_SCALE;
    uint32_t row = find_row(graph, &o);
    if (row != IR_NO_SCALE)
        return row;
    float *step = arena_array(graph->arena, o.n, sizeof(*step));
    int32_t *zero = arena_array(graph->arena, o.n, sizeof(*zero));
    if (!step || !zero)
        return IR_NO_SCALE;
    bool all_zero = true;
    for (uint32_t i = 0; i < o.n; i++) {
        step[i] = real_at(o.scale, i);
        zero[i] = o.zero ? whole_at(o.zero, i) : 0;
        all_zero = all_zero && zero[i] == 0;
        if (!isfinite(step[i]) || step[i] <= 0)
            return IR_NO_SCALE;
    }
    const struct ir_scale scale = {
        .n = o.n, .axis = o.axis, .dtype = o.dtype, .step = step, .zero = all_zero ? NULL : zero};
    return ir_scale_add(graph, &scale);
}

/* --- ranges of what only moves --- */

static uint32_t range_of(const struct ir_graph *graph, const struct ir_node *node, uint32_t input)
{
    if (input >= node->n_inputs || node->inputs[input] == IR_NONE)
        return IR_NO_SCALE;
    return ir_tensor(graph, node->inputs[input])->range;
}

/* The one range that inputs first..end-1 have; IR_NO_SCALE: they differ. */
static uint32_t common_range(const struct ir_graph *graph, const struct ir_node *node,
                             uint32_t first, uint32_t end)
{
    uint32_t range = range_of(graph, node, first);
    for (uint32_t i = first + 1; i < end; i++)
        if (!ir_scale_equal(ir_scale(graph, range), ir_scale(graph, range_of(graph, node, i))))
            return IR_NO_SCALE;
    return range;
}

/* Whether the constant that the node pads with is a number that the scale has. */
static bool has_padding(const struct ir_node *node, const struct ir_scale *scale)
{
    double value = (double)ir_attr_float(node, IR_ATTR_VALUE) / (double)scale->step[0];
    double stored = value + (scale->zero ? scale->zero[0] : 0);
    double least = scale->dtype == DTYPE_I8 ? INT8_MIN : 0;
    if (scale->dtype == DTYPE_F8)
        return ir_attr_int(node, IR_ATTR_MODE) != IR_PAD_CONSTANT ||
               f8_to_f32(f32_to_f8((float)value)) == (float)value;
    return ir_attr_int(node, IR_ATTR_MODE) != IR_PAD_CONSTANT || value == 0 ||
           (rint(stored) == stored && stored >= least && stored <= least + UINT8_MAX);
}

/* Whether each window of a maximum holds an element: padding counts as no number there. */
static bool has_no_empty_window(const struct ir_node *node)
{
    const struct ir_attr *kernel = ir_attr(node, IR_ATTR_KERNEL);
    for (uint32_t i = 0; i < 2 * kernel->count; i++)
        if (ir_attr_at(node, IR_ATTR_PADS, i) >= kernel->i[i % kernel->count])
            return false;
    return ir_attr_int(node, IR_ATTR_FUNC) == IR_POOL_MAX;
}

bool ir_range_passes(const struct ir_node *node, const struct ir_scale *scale)
{
    if (node->n_epilogue || node->n_inputs == 0)
        return false;
    switch (node->op) {
    case IR_OP_PAD:
        return has_padding(node, scale);
    case IR_OP_POOL:
        return has_no_empty_window(node);
    case IR_OP_UNARY:
        return ir_attr_int(node, IR_ATTR_FUNC) == IR_UNARY_RELU ||
               ir_attr_int(node, IR_ATTR_FUNC) == IR_UNARY_IDENTITY;
    case IR_OP_RESIZE:
        return ir_attr_int(node, IR_ATTR_MODE) == IR_RESIZE_NEAREST &&
               ir_attr_int(node, IR_ATTR_COORD) != IR_COORD_TF_CROP;
    case IR_OP_TRILU:
        return true;
    default:
        return ir_op_has(node->op, IR_TRAIT_MOVES);
    }
}

/* A transpose moves the dimension along which a constant's scales lie. */
static uint32_t turned_range(struct ir_graph *graph, const struct ir_node *node, uint32_t range)
{
    struct ir_scale scale = *ir_scale(graph, range);
    uint32_t axis = 0;
    while (ir_attr_at(node, IR_ATTR_PERM, axis) != scale.axis)
        axis++;
    scale.axis = axis;
    return ir_scale_add(graph, &scale);
}

/* The scale of constants becomes one of INT8: kernels want weights with a sign. */
static uint32_t dequantised_range(struct ir_graph *graph, const struct ir_node *node)
{
    uint32_t range = ir_quant_scale(graph, node);
    const struct ir_scale *row = ir_scale(graph, range);
    if (!row || row->dtype != DTYPE_U8 || !ir_tensor(graph, node->inputs[0])->data)
        return range;
    struct ir_scale scale = *row;
    int32_t *zero = arena_array(graph->arena, scale.n, sizeof(*zero));
    bool all_zero = true;
    for (uint32_t i = 0; zero && i < scale.n; i++) {
        zero[i] = (scale.zero ? scale.zero[i] : 0) + INT8_MIN;
        all_zero = all_zero && zero[i] == 0;
    }
    scale.dtype = DTYPE_I8;
    scale.zero = all_zero ? NULL : zero;
    return zero ? ir_scale_add(graph, &scale) : IR_NO_SCALE;
}

uint32_t ir_range_follows(struct ir_graph *graph, const struct ir_node *node)
{
    if (node->op == IR_OP_DEQUANTIZE)
        return dequantised_range(graph, node);
    uint32_t range = range_of(graph, node, 0);
    if (node->op == IR_OP_CONCAT)
        range = common_range(graph, node, 0, node->n_inputs);
    else if (node->op == IR_OP_SELECT)
        range = common_range(graph, node, 1, 3);
    const struct ir_scale *scale = ir_scale(graph, range);
    if (scale && scale->n > 1)
        return node->op == IR_OP_TRANSPOSE ? turned_range(graph, node, range) : IR_NO_SCALE;
    return scale && ir_range_passes(node, scale) ? range : IR_NO_SCALE;
}
