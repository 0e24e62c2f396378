/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds activations that exporters write as a gate, x times a function of x, in the forms that
 * fold_scalars leaves:
 *
 *   x sigmoid(a x)                        SWISH(a)      x tanh(softplus(x))   MISH
 *   clip(a x + b, 0, c) / c               HARD_SIGMOID(a/c, b/c)
 *   x clip(x + 3, 0, 6) / 6, x hard_sigmoid(x; 1/6, 1/2)     HARD_SWISH
 */
#include "engine/passes/match.h"

static void become(struct rewrite *rw, struct match *m, uint32_t node, uint32_t x,
                   enum ir_unary func, struct unary_args args)
{
    match_part(m, node);
    match_done(rw, m, node, ir_unary_name(func));
    rw_become_unary(rw, node, x, func, args);
}

/* Reads scale * clip(a x + b, 0, c), where scale * c = 1, as HARD_SIGMOID of `x`. */
static bool hard_sigmoid(const struct rewrite *rw, struct match *m, uint32_t clip, float scale,
                         uint32_t *x, struct unary_args *args)
{
    float a, b;
    if (clip == IR_NONE)
        return false;
    struct unary_args bounds = rw_unary_args(ir_node(rw->graph, clip));
    uint32_t linear = rw_made_by_unary(rw, rw_input(rw, clip, 0), IR_UNARY_LINEAR);
    if (bounds.alpha != 0 || !match_near(scale * bounds.beta, 1) || !rw_linear(rw, linear, &a, &b))
        return false;
    match_part(m, clip);
    match_part(m, linear);
    *x = rw_input(rw, linear, 0);
    *args = (struct unary_args){a * scale, b * scale, 0};
    return true;
}

static bool is_swish_gate(struct unary_args args)
{
    return match_near(args.alpha, 1.0 / 6) && match_near(args.beta, 0.5);
}

static void visit_clip(struct rewrite *rw, uint32_t node)
{
    struct match m = {.n = 0};
    struct unary_args args;
    uint32_t x;
    if (hard_sigmoid(rw, &m, node, 1, &x, &args) && rw_uses(rw, rw_input(rw, node, 0)) == 1)
        become(rw, &m, node, x, IR_UNARY_HARD_SIGMOID, args);
}

/* Looks for scale * clip(..) and scale * x * clip(..). */
static void visit_linear(struct rewrite *rw, uint32_t node)
{
    struct match m = {.n = 0};
    struct unary_args args;
    float scale, shift;
    uint32_t y = rw_input(rw, node, 0), x;
    if (!rw_linear(rw, node, &scale, &shift) || shift != 0 || rw_uses(rw, y) != 1)
        return;
    if (hard_sigmoid(rw, &m, rw_made_by_unary(rw, y, IR_UNARY_CLIP), scale, &x, &args)) {
        become(rw, &m, node, x, IR_UNARY_HARD_SIGMOID, args);
        return;
    }
    uint32_t mul = rw_made_by_binary(rw, y, IR_BINARY_MUL);
    for (uint32_t i = 0; mul != IR_NONE && i < 2; i++) {
        m.n = 0;
        match_part(&m, mul);
        uint32_t clip = rw_made_by_unary(rw, rw_input(rw, mul, i), IR_UNARY_CLIP);
        if (hard_sigmoid(rw, &m, clip, scale, &x, &args) && x == rw_input(rw, mul, 1 - i) &&
            is_swish_gate(args)) {
            become(rw, &m, node, x, IR_UNARY_HARD_SWISH, args);
            return;
        }
    }
}

/* Looks for x * f(x), where `gate` makes f. */
static bool gated(struct rewrite *rw, uint32_t node, uint32_t x, uint32_t gate)
{
    struct match m = {.n = 0};
    uint32_t base, sigmoid = rw_made_by_unary(rw, gate, IR_UNARY_SIGMOID);
    if (match_part(&m, sigmoid)) {
        /* x may itself be some a z; then the function is x sigmoid(x) of this x. */
        float a = 1;
        if (rw_input(rw, sigmoid, 0) != x) {
            a = match_scaled(rw, &m, rw_input(rw, sigmoid, 0), &base);
            if (base != x)
                return false;
        }
        become(rw, &m, node, x, IR_UNARY_SWISH, (struct unary_args){a, 0, 0});
        return true;
    }
    uint32_t hard = rw_made_by_unary(rw, gate, IR_UNARY_HARD_SIGMOID);
    if (match_part(&m, hard)) {
        if (rw_input(rw, hard, 0) != x || !is_swish_gate(rw_unary_args(ir_node(rw->graph, hard))))
            return false;
        become(rw, &m, node, x, IR_UNARY_HARD_SWISH, (struct unary_args){0});
        return true;
    }
    uint32_t tanh = rw_made_by_unary(rw, gate, IR_UNARY_TANH);
    uint32_t softplus =
        tanh == IR_NONE ? IR_NONE : rw_made_by_unary(rw, rw_input(rw, tanh, 0), IR_UNARY_SOFTPLUS);
    if (!match_part(&m, tanh) || !match_part(&m, softplus) || rw_input(rw, softplus, 0) != x)
        return false;
    become(rw, &m, node, x, IR_UNARY_MISH, (struct unary_args){0});
    return true;
}

static void visit(struct rewrite *rw, uint32_t node)
{
    if (!rw_is_float(rw, rw_output(rw, node)))
        return;
    if (rw_is_unary(rw, node, IR_UNARY_CLIP))
        visit_clip(rw, node);
    else if (rw_is_unary(rw, node, IR_UNARY_LINEAR))
        visit_linear(rw, node);
    else if (rw_is_binary(rw, node, IR_BINARY_MUL) &&
             !gated(rw, node, rw_input(rw, node, 0), rw_input(rw, node, 1)))
        gated(rw, node, rw_input(rw, node, 1), rw_input(rw, node, 0));
}

PASS(fuse_gates)
{
    return rewrite_run(graph, ctx, visit, err);
}
