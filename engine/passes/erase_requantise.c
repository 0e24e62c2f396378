/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantising numbers that already are multiples of the same step changes nothing: such are the
 * results of a DEQUANTIZE and of what only moves them (a maximum over windows, a reshape, zero
 * padding, a concatenation of equal scales).
 *
 *   dequantise -> max pool -> quantise -> dequantise   becomes   dequantise -> max pool
 *
 * The walk notes the scale of such numbers as their tensors' range, so that kernels may store them
 * in 8 bits. Where the least integer stands for what an activation cuts off (the zero point of a
 * ReLU), saturation does the activation's work, and the activation goes.
 */
#include <float.h>
#include <math.h>

#include "engine/passes/constant.h"

/* The integers of the type. */
static bool limits_of(enum dtype dtype, double *least, double *most)
{
    bool sign = dtype == DTYPE_I8 || dtype == DTYPE_I16;
    double count = dtype_size(dtype) == 1 ? 256 : 65536;
    *least = sign ? -count / 2 : 0;
    *most = *least + count - 1;
    return dtype_size(dtype) <= 2 && !dtype_is_float(dtype) && dtype != DTYPE_F8;
}

/* Whether both nodes have the same scale and zero point, for integers of the same type. */
static bool same_scale(struct rewrite *rw, uint32_t quantize, uint32_t dequantize)
{
    const struct ir_node *q = ir_node(rw->graph, quantize), *d = ir_node(rw->graph, dequantize);
    if (ir_tensor(rw->graph, q->outputs[0])->dtype != ir_tensor(rw->graph, d->inputs[0])->dtype)
        return false;
    if (rw_input(rw, quantize, 1) == rw_input(rw, dequantize, 1) &&
        rw_input(rw, quantize, 2) == rw_input(rw, dequantize, 2))
        return ir_tensor(rw->graph, d->inputs[1])->shape.rank == 0 ||
               ir_attr_int(q, IR_ATTR_AXIS) == ir_attr_int(d, IR_ATTR_AXIS);
    uint32_t scale = ir_quant_scale(rw->graph, ir_node(rw->graph, dequantize));
    return scale != IR_NO_SCALE &&
           ir_quant_is_scale(rw->graph, ir_node(rw->graph, quantize), ir_scale(rw->graph, scale));
}

/* dequantise -> quantise: the integers are what they were. */
static void skip_both(struct rewrite *rw, uint32_t node)
{
    uint32_t before = rw_made_by(rw, rw_input(rw, node, 0), IR_OP_DEQUANTIZE);
    if (before == IR_NONE || !same_scale(rw, node, before) ||
        !rw_replace(rw, rw_output(rw, node), rw_input(rw, before, 0)))
        return;
    rw_done(rw, "%s takes back %s", ir_node(rw->graph, node)->name,
            ir_node(rw->graph, before)->name);
    rw_remove(rw, node);
}

/* quantise -> dequantise of numbers that the scale has. */
static void skip_rounding(struct rewrite *rw, uint32_t node)
{
    uint32_t before = rw_made_by(rw, rw_input(rw, node, 0), IR_OP_QUANTIZE);
    if (before == IR_NONE || !same_scale(rw, before, node))
        return;
    uint32_t x = rw_input(rw, before, 0), range = ir_tensor(rw->graph, x)->range;
    if (range == IR_NO_SCALE ||
        !ir_quant_is_scale(rw->graph, ir_node(rw->graph, node), ir_scale(rw->graph, range)) ||
        !rw_replace(rw, rw_output(rw, node), x))
        return;
    rw_done(rw, "%s and %s round nothing", ir_node(rw->graph, before)->name,
            ir_node(rw->graph, node)->name);
    rw_remove(rw, node);
}

/* The bounds to which an activation cuts its argument. */
static bool cuts(const struct rewrite *rw, uint32_t node, double *low, double *high)
{
    struct unary_args args = rw_unary_args(ir_node(rw->graph, node));
    bool clip = rw_is_unary(rw, node, IR_UNARY_CLIP);
    *low = clip ? (double)args.alpha : 0;
    *high = clip ? (double)args.beta : HUGE_VAL;
    return *low <= *high && (clip || rw_is_unary(rw, node, IR_UNARY_RELU));
}

static bool saturates(const struct ir_scale *scale, double low, double high)
{
    double least, most;
    if (!limits_of(scale->dtype, &least, &most))
        return false;
    for (uint32_t i = 0; i < scale->n; i++) {
        double zero = scale->zero ? scale->zero[i] : 0;
        if (rint(low / (double)scale->step[i]) + zero > least ||
            rint(high / (double)scale->step[i]) + zero < most)
            return false;
    }
    return true;
}

static void skip_activation(struct rewrite *rw, uint32_t node)
{
    uint32_t x = rw_input(rw, node, 0), scale = ir_quant_scale(rw->graph, ir_node(rw->graph, node));
    uint32_t before = rw_made_by(rw, x, IR_OP_UNARY);
    double low, high;
    if (before == IR_NONE || scale == IR_NO_SCALE || rw_uses(rw, x) != 1 ||
        !cuts(rw, before, &low, &high) || !saturates(ir_scale(rw->graph, scale), low, high))
        return;
    rw_done(rw, "%s cuts off what %s does", ir_node(rw->graph, node)->name,
            ir_node(rw->graph, before)->name);
    rw_set_input(rw, node, 0, rw_input(rw, before, 0));
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    struct ir_tensor *y = ir_tensor(rw->graph, n->outputs[0]);
    if (y->range == IR_NO_SCALE)
        y->range = ir_range_follows(rw->graph, n);
    if (n->op == IR_OP_QUANTIZE) {
        skip_activation(rw, node);
        skip_both(rw, node);
    } else if (n->op == IR_OP_DEQUANTIZE) {
        skip_rounding(rw, node);
    }
}

PASS(erase_requantise)
{
    return rewrite_run(graph, ctx, visit, err);
}
