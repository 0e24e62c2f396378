/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds group normalisation as exporters write it below opset 18,
 *
 *   reshape to [N,G,..], instance normalisation, reshape back, * scale per channel, + bias
 *
 * in two steps, each of them right by itself: the reshapes become a group number, and what is
 * computed per channel behind any INSTANCE_NORM goes into its scale and bias. Wu, He, "Group
 * Normalization", 2018.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "engine/passes/constant.h"
#include "engine/passes/rewrite.h"

static bool has_constants(const struct rewrite *rw, uint32_t norm)
{
    return constant_is_float(rw, rw_input(rw, norm, 1)) &&
           constant_is_float(rw, rw_input(rw, norm, 2));
}

static uint32_t channel_constant(struct rewrite *rw, uint32_t norm, const float *values, size_t n)
{
    struct shape shape = {.rank = 1, .dim = {(int64_t)n}};
    return constant_make(rw, "", ir_tensor(rw->graph, rw_input(rw, norm, 0))->dtype, &shape,
                         values);
}

/* --- the reshapes --- */

/* Repeats each of n numbers of a constant `times` times. */
static uint32_t repeated(struct rewrite *rw, uint32_t norm, uint32_t constant, size_t n,
                         size_t times)
{
    if (times == 1)
        return constant;
    CLEANUP(cleanup_free) float *values = calloc(MAX(n * times, 1), sizeof(*values));
    if (!values) {
        rw_fail(rw);
        return IR_NONE;
    }
    for (size_t i = 0; i < n * times; i++)
        values[i] = constant_at(rw, constant, i / times);
    return channel_constant(rw, norm, values, n * times);
}

/* Says whether each channel of the norm's input is normalised alone. */
static bool is_by_channel(const struct rewrite *rw, uint32_t norm)
{
    int64_t group = ir_attr_int(ir_node(rw->graph, norm), IR_ATTR_GROUP);
    return group == 0 || group == ir_tensor(rw->graph, rw_input(rw, norm, 0))->shape.dim[1];
}

/* The tensor that the norm's input is a reshape of, if channels of the one are groups of whole
 * channels of the other; otherwise IR_NONE. */
static uint32_t grouped(struct rewrite *rw, uint32_t norm)
{
    uint32_t in = rw_input(rw, norm, 0), reshape = rw_made_by(rw, in, IR_OP_RESHAPE);
    if (reshape == IR_NONE || !is_by_channel(rw, norm))
        return IR_NONE;
    const struct shape *to = &ir_tensor(rw->graph, in)->shape;
    const struct shape *from = &ir_tensor(rw->graph, rw_input(rw, reshape, 0))->shape;
    bool fits = from->rank >= 3 && from->dim[0] == to->dim[0] && to->dim[1] > 0 &&
                from->dim[1] % to->dim[1] == 0;
    if (!fits)
        rw_near_miss(rw, "%s: its channels are no groups of channels before %s",
                     ir_node(rw->graph, norm)->name, ir_node(rw->graph, reshape)->name);
    return fits ? rw_input(rw, reshape, 0) : IR_NONE;
}

/* Normalises what stands before the reshape; the node becomes a reshape of that. */
static void visit_norm(struct rewrite *rw, uint32_t node)
{
    uint32_t x = grouped(rw, node);
    struct shape to = ir_tensor(rw->graph, rw_output(rw, node))->shape;
    if (x == IR_NONE)
        return;
    size_t groups = (size_t)to.dim[1];
    size_t times = (size_t)ir_tensor(rw->graph, x)->shape.dim[1] / groups;
    if (times > 1 && !has_constants(rw, node))
        return;
    uint32_t inputs[3] = {x, repeated(rw, node, rw_input(rw, node, 1), groups, times),
                          repeated(rw, node, rw_input(rw, node, 2), groups, times)};
    if (inputs[1] == IR_NONE || inputs[2] == IR_NONE)
        return;
    float epsilon = ir_attr_float(ir_node(rw->graph, node), IR_ATTR_EPSILON);
    uint32_t norm = rw_add_node(rw, IR_OP_INSTANCE_NORM, ir_node(rw->graph, node)->name, 3, inputs);
    if (norm == IR_NONE)
        return;
    rw_set_float(rw, norm, IR_ATTR_EPSILON, epsilon);
    rw_set_int(rw, norm, IR_ATTR_GROUP, (int64_t)groups);
    uint32_t y = rw_finish(rw, norm);
    if (y == IR_NONE)
        return;
    rw_done(rw, "%s is group_norm", ir_node(rw->graph, node)->name);
    rw_become_reshape(rw, node, y, to.rank, to.dim);
}

/* --- what follows per channel --- */

/* y = factor y + shift for each channel, where one of the two may be NULL. */
static void fold_affine(struct rewrite *rw, uint32_t norm, uint32_t node, const float *factor,
                        const float *shift)
{
    size_t n = (size_t)ir_tensor(rw->graph, rw_input(rw, norm, 0))->shape.dim[1];
    CLEANUP(cleanup_free) float *values = calloc(MAX(2 * n, 1), sizeof(*values));
    if (!values) {
        rw_fail(rw);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float by = factor ? factor[i] : 1;
        values[i] = constant_at(rw, rw_input(rw, norm, 1), i) * by;
        values[n + i] = constant_at(rw, rw_input(rw, norm, 2), i) * by + (shift ? shift[i] : 0);
    }
    uint32_t scale = channel_constant(rw, norm, values, n);
    uint32_t bias = channel_constant(rw, norm, values + n, n);
    if (scale == IR_NONE || bias == IR_NONE)
        return;
    rw_done(rw, "%s + %s", ir_node(rw->graph, norm)->name, ir_node(rw->graph, node)->name);
    rw_set_input(rw, norm, 1, scale);
    rw_set_input(rw, norm, 2, bias);
    rw_absorb(rw, norm, node);
}

static void visit_binary(struct rewrite *rw, uint32_t node, bool is_product)
{
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t y = rw_input(rw, node, i), operand = rw_input(rw, node, 1 - i);
        uint32_t norm = rw_made_by(rw, y, IR_OP_INSTANCE_NORM);
        float *values = NULL;
        if (norm == IR_NONE || rw_uses(rw, y) != 1 || !has_constants(rw, norm) ||
            !constant_is_float(rw, operand))
            continue;
        if (!constant_per_channel(rw, operand, &ir_tensor(rw->graph, y)->shape, 1, &values)) {
            rw_near_miss(rw, "%s: its constant is not per channel of %s",
                         ir_node(rw->graph, node)->name, ir_node(rw->graph, norm)->name);
            continue;
        }
        fold_affine(rw, norm, node, is_product ? values : NULL, is_product ? NULL : values);
        free(values);
        return;
    }
}

static void visit(struct rewrite *rw, uint32_t node)
{
    if (!rw_is_float(rw, rw_output(rw, node)))
        return;
    if (ir_node(rw->graph, node)->op == IR_OP_INSTANCE_NORM &&
        !ir_node(rw->graph, node)->n_epilogue)
        visit_norm(rw, node);
    else if (rw_is_binary(rw, node, IR_BINARY_MUL))
        visit_binary(rw, node, true);
    else if (rw_is_binary(rw, node, IR_BINARY_ADD))
        visit_binary(rw, node, false);
}

PASS(fuse_group_norm)
{
    return rewrite_run(graph, ctx, visit, err);
}
