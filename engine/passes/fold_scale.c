/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scale, uniform or per output channel, moves into the weights and the bias of the convolution or
 * matrix product before it. A uniform one moves into the ALPHA of a product of two computed
 * operands (the 1/sqrt(d) of attention).
 *
 * A scale before such a node, uniform or per input channel, moves into it too. So does a shift that
 * comes with the scale, unless the node pads: padding is zero after the shift, not before it. In
 * this way an image's mean and deviation disappear.
 */
#include "engine/passes/constant.h"
#include "engine/passes/weights.h"

#include <math.h>
#include <stdlib.h>

static void scale_alpha(struct rewrite *rw, uint32_t matmul, float scale)
{
    float alpha = ir_attr_float(ir_node(rw->graph, matmul), IR_ATTR_ALPHA);
    rw_set_float(rw, matmul, IR_ATTR_ALPHA, alpha * scale);
}

static float *fill(struct rewrite *rw, size_t n, float value)
{
    float *values = calloc(MAX(n, 1), sizeof(*values));
    if (!values)
        rw_fail(rw);
    for (size_t i = 0; values && i < n; i++)
        values[i] = value;
    return values;
}

static void absorb_scaled(struct rewrite *rw, const struct weighted *w, uint32_t node,
                          const float *scale, const float *shift)
{
    rw_done(rw, "%s + %s", ir_node(rw->graph, w->node)->name, ir_node(rw->graph, node)->name);
    weighted_scale(rw, w, scale);
    weighted_shift(rw, w, scale, shift);
    rw_absorb(rw, w->node, node);
}

/* Takes scale * y + shift into the CONV, DECONV or MATMUL that makes y. */
static void linear_behind(struct rewrite *rw, uint32_t node, float scale, float shift)
{
    struct weighted w;
    if (!weighted_find(rw, rw_input(rw, node, 0), &w) || rw_shift_rounds(shift))
        return;
    if (weighted_has_constants(rw, w.node)) {
        float *s = fill(rw, w.channels, scale), *t = fill(rw, w.channels, shift);
        if (s && t)
            absorb_scaled(rw, &w, node, s, shift != 0 ? t : NULL);
        free(s);
        free(t);
        return;
    }
    if (ir_node(rw->graph, w.node)->op != IR_OP_MATMUL || shift != 0 ||
        rw_input(rw, w.node, 2) != IR_NONE) {
        rw_near_miss(rw, "%s: %s has no constants to take the scale",
                     ir_node(rw->graph, node)->name, ir_node(rw->graph, w.node)->name);
        return;
    }
    rw_done(rw, "%s + %s", ir_node(rw->graph, w.node)->name, ir_node(rw->graph, node)->name);
    scale_alpha(rw, w.node, scale);
    rw_absorb(rw, w.node, node);
}

/* Takes y * c or y / c, c constant per channel, into the CONV, DECONV or MATMUL that makes y. */
static void channels_behind(struct rewrite *rw, uint32_t node, bool divide)
{
    for (uint32_t i = 0; i < (divide ? 1 : 2); i++) {
        uint32_t y = rw_input(rw, node, i), c = rw_input(rw, node, 1 - i);
        struct weighted w;
        float *scale = NULL;
        if (!constant_is_float(rw, c) || !weighted_find(rw, y, &w) ||
            !weighted_has_constants(rw, w.node))
            continue;
        if (!constant_per_channel(rw, c, &ir_tensor(rw->graph, y)->shape, w.axis, &scale)) {
            rw_near_miss(rw, "%s: its constant is not per channel of %s",
                         ir_node(rw->graph, node)->name, ir_node(rw->graph, w.node)->name);
            continue;
        }
        bool finite = true;
        for (size_t k = 0; k < w.channels; k++) {
            scale[k] = divide ? 1 / scale[k] : scale[k];
            finite = finite && isfinite(scale[k]);
        }
        if (finite)
            absorb_scaled(rw, &w, node, scale, NULL);
        free(scale);
        return;
    }
}

/* A node that scales operand i of `node` and has no other reader. */
static uint32_t scale_before(const struct rewrite *rw, uint32_t node, uint32_t i, float *scale)
{
    float shift;
    uint32_t x = rw_input(rw, node, i), linear = rw_made_by_unary(rw, x, IR_UNARY_LINEAR);
    if (!rw_linear(rw, linear, scale, &shift) || shift != 0 || rw_uses(rw, x) != 1 ||
        !rw_is_float(rw, x))
        return IR_NONE;
    return linear;
}

static void take_operand(struct rewrite *rw, uint32_t node, uint32_t i, uint32_t linear)
{
    rw_done(rw, "%s + %s", ir_node(rw->graph, linear)->name, ir_node(rw->graph, node)->name);
    rw_set_name(rw, node, ir_node(rw->graph, linear)->name, ir_node(rw->graph, node)->name);
    rw_set_input(rw, node, i, rw_input(rw, linear, 0));
}

static void visit_matmul(struct rewrite *rw, uint32_t node)
{
    for (uint32_t i = 0; i < 2 && !rw->status; i++) {
        float scale;
        uint32_t linear = scale_before(rw, node, i, &scale);
        if (linear == IR_NONE)
            continue;
        scale_alpha(rw, node, scale);
        take_operand(rw, node, i, linear);
    }
}

/* Makes the node read what the node before it reads; nothing else reads that one, so it goes. */
static void skip_before(struct rewrite *rw, uint32_t node, uint32_t before, uint32_t x)
{
    rw_done(rw, "%s + %s", ir_node(rw->graph, before)->name, ir_node(rw->graph, node)->name);
    rw_set_name(rw, node, ir_node(rw->graph, before)->name, ir_node(rw->graph, node)->name);
    rw_set_input(rw, node, 0, x);
}

/* Takes scale * x + shift into the CONV or MATMUL that reads it. */
static bool linear_before(struct rewrite *rw, const struct weighted *w, uint32_t before)
{
    float scale, shift;
    bool product = ir_node(rw->graph, w->node)->op == IR_OP_MATMUL; /* has an ALPHA for scales */
    if (!rw_linear(rw, before, &scale, &shift) || !isfinite(scale) || !isfinite(shift) ||
        rw_shift_rounds(shift))
        return false;
    if (shift != 0 && !weighted_can_shift_input(rw, w)) {
        rw_near_miss(rw, "%s + %s: what is padded would not be shifted",
                     ir_node(rw->graph, before)->name, ir_node(rw->graph, w->node)->name);
        return false;
    }
    float *s = fill(rw, w->channels, scale), *t = fill(rw, w->channels, shift);
    if (s && t) {
        if (shift != 0) /* computed from the weights before they are scaled */
            weighted_shift_input(rw, w, t);
        if (product)
            scale_alpha(rw, w->node, scale);
        else if (scale != 1)
            weighted_scale_input(rw, w, s);
        skip_before(rw, w->node, before, rw_input(rw, before, 0));
    }
    free(s);
    free(t);
    return s && t;
}

/* Takes x * c, x / c, x + c or x - c, c constant per channel, into the node that reads it; false if
 * `before` is none of these. */
static bool per_channel_before(struct rewrite *rw, const struct weighted *w, uint32_t before)
{
    int64_t func = ir_attr_int(ir_node(rw->graph, before), IR_ATTR_FUNC);
    bool scales = func == IR_BINARY_MUL || func == IR_BINARY_DIV;
    bool commutes = func == IR_BINARY_MUL || func == IR_BINARY_ADD, done = false;
    const struct shape *shape = &ir_tensor(rw->graph, rw_output(rw, before))->shape;
    if ((!scales && func != IR_BINARY_ADD && func != IR_BINARY_SUB) ||
        (!scales && !weighted_can_shift_input(rw, w)))
        return false;
    for (uint32_t i = 0; i < (commutes ? 2 : 1) && !done; i++) {
        uint32_t x = rw_input(rw, before, i), c = rw_input(rw, before, 1 - i);
        float *values = NULL;
        if (!shape_equal(&ir_tensor(rw->graph, x)->shape, shape) ||
            !constant_per_channel(rw, c, shape, w->axis, &values))
            continue;
        done = true;
        for (size_t k = 0; k < w->channels; k++) {
            if (func == IR_BINARY_DIV)
                values[k] = 1 / values[k];
            if (func == IR_BINARY_SUB)
                values[k] = -values[k];
            done = done && isfinite(values[k]);
        }
        if (done && scales)
            weighted_scale_input(rw, w, values);
        else if (done)
            weighted_shift_input(rw, w, values);
        if (done)
            skip_before(rw, w->node, before, x);
        free(values);
    }
    return done;
}

/* Takes the node before into `node`. True if it did: there may be more to take. */
static bool visit_input(struct rewrite *rw, uint32_t node)
{
    struct weighted w;
    uint32_t x = rw_input(rw, node, 0);
    uint32_t before = ir_tensor(rw->graph, x)->producer;
    if (before == IR_NONE || ir_node(rw->graph, before)->n_epilogue || rw_uses(rw, x) != 1 ||
        !weighted_find_input(rw, node, &w))
        return false;
    if (ir_node(rw->graph, before)->op == IR_OP_BINARY)
        return per_channel_before(rw, &w, before);
    return ir_node(rw->graph, before)->op == IR_OP_UNARY && linear_before(rw, &w, before);
}

static void visit_deconv(struct rewrite *rw, uint32_t node)
{
    float scale;
    uint32_t linear = scale_before(rw, node, 0, &scale);
    if (linear == IR_NONE || !constant_is_float(rw, rw_input(rw, node, 1)))
        return;
    uint32_t y = rw_output(rw, node);
    struct weighted w = {node, 1, (size_t)ir_tensor(rw->graph, y)->shape.dim[1]};
    float *values = fill(rw, w.channels, scale);
    if (values) {
        weighted_scale(rw, &w, values);
        take_operand(rw, node, 0, linear);
    }
    free(values);
}

static void visit_operands(struct rewrite *rw, uint32_t node)
{
    while (!rw->status && visit_input(rw, node))
        ;
    if (!rw->status && ir_node(rw->graph, node)->op == IR_OP_MATMUL)
        visit_matmul(rw, node);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    float scale, shift;
    const struct ir_node *n = ir_node(rw->graph, node);
    if (rw_linear(rw, node, &scale, &shift) && scale != 1)
        linear_behind(rw, node, scale, shift);
    else if (rw_is_binary(rw, node, IR_BINARY_MUL) || rw_is_binary(rw, node, IR_BINARY_DIV))
        channels_behind(rw, node, rw_is_binary(rw, node, IR_BINARY_DIV));
    else if (n->op == IR_OP_DECONV)
        visit_deconv(rw, node);
    else if (n->op == IR_OP_CONV || n->op == IR_OP_MATMUL)
        visit_operands(rw, node);
}

PASS(fold_scale)
{
    return rewrite_run(graph, ctx, visit, err);
}
