/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arithmetic with a single number gets one spelling: y = a x + b (UNARY LINEAR). Later passes look
 * for this spelling only, and a backend computes it without reading a second operand.
 *
 *   x + c, x - c, c - x, x * c, x / c, -x   LINEAR           a (c x + d) + b  one LINEAR
 *   x ^ 2   x * x      x ^ 0.5  SQRT        x ^ -1  RECIPROCAL
 *   min(max(x, b), c), clips in a row  CLIP     max(x, 0), clip to [0, inf)  RELU
 *   prelu(x, c)  LEAKY_RELU
 *
 * A maximum or a minimum alone stays what it is, unless it is RELU: the other bound of a CLIP would
 * be finite, and an infinite x would become that bound.
 *
 * The pass takes only fp32, fp16 and bf16, because a parameter is an fp32 number. Where a step
 * function reads the result, it does nothing that changes a rounding.
 */
#include "engine/passes/constant.h"

#include <float.h>
#include <math.h>

static void become_linear(struct rewrite *rw, uint32_t node, uint32_t x, float scale, float shift)
{
    rw_become_unary(rw, node, x, IR_UNARY_LINEAR, (struct unary_args){scale, shift, 0});
    rw_done(rw, "%s is %g x + %g", ir_node(rw->graph, node)->name, (double)scale, (double)shift);
}

static void become_plain(struct rewrite *rw, uint32_t node, uint32_t x, enum ir_unary func,
                         struct unary_args args)
{
    rw_become_unary(rw, node, x, func, args);
    rw_done(rw, "%s is %s", ir_node(rw->graph, node)->name, ir_unary_name(func));
}

static void power(struct rewrite *rw, uint32_t node, uint32_t x, float c)
{
    static const struct {
        float exponent;
        enum ir_unary func;
    } rows[] = {{0.5f, IR_UNARY_SQRT}, {-1, IR_UNARY_RECIPROCAL}};
    if (c == 2) {
        rw_become(rw, node, IR_OP_BINARY, 2, (const uint32_t[]){x, x});
        rw_set_int(rw, node, IR_ATTR_FUNC, IR_BINARY_MUL);
        rw_done(rw, "%s is x * x", ir_node(rw->graph, node)->name);
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (c == rows[i].exponent)
            become_plain(rw, node, x, rows[i].func, (struct unary_args){0});
}

/* For such a number, 1 / c is exact. */
static bool is_power_of_two(float c)
{
    int exponent;
    return fabsf(frexpf(c, &exponent)) == 0.5f;
}

/* The node that makes `y` as the maximum or the minimum (`func`) of x, of the shape of y, and the
 * finite number `c`, if no other node reads y; else IR_NONE. */
static uint32_t bounded(const struct rewrite *rw, uint32_t y, enum ir_binary func, uint32_t *x,
                        float *c)
{
    uint32_t node = rw_made_by_binary(rw, y, func);
    if (node == IR_NONE || rw_uses(rw, y) != 1)
        return IR_NONE;
    for (uint32_t i = 0; i < 2; i++) {
        *x = rw_input(rw, node, 1 - i);
        if (constant_uniform(rw, rw_input(rw, node, i), c) && isfinite(*c) &&
            rw_same_shape(rw, *x, y))
            return node;
    }
    return IR_NONE;
}

static void merge_bounds(struct rewrite *rw, uint32_t first, uint32_t node, uint32_t x,
                         struct unary_args bounds)
{
    rw_set_name(rw, node, ir_node(rw->graph, first)->name, ir_node(rw->graph, node)->name);
    become_plain(rw, node, x, IR_UNARY_CLIP, bounds);
}

/* Rewrites the maximum or the minimum of y and the number `c`. */
static void bound(struct rewrite *rw, uint32_t node, uint32_t y, float c, bool is_max)
{
    uint32_t x, clip = rw_made_by_unary(rw, y, IR_UNARY_CLIP);
    uint32_t relu = rw_made_by_unary(rw, y, IR_UNARY_RELU);
    float other;
    if (!isfinite(c))
        return;
    uint32_t first = bounded(rw, y, is_max ? IR_BINARY_MIN : IR_BINARY_MAX, &x, &other);
    if (first != IR_NONE && (is_max ? c <= other : other <= c)) {
        merge_bounds(rw, first, node, x, (struct unary_args){fminf(c, other), fmaxf(c, other), 0});
    } else if (clip != IR_NONE && rw_uses(rw, y) == 1) {
        struct unary_args in = rw_unary_args(ir_node(rw->graph, clip));
        struct unary_args max = {fmaxf(in.alpha, c), fmaxf(in.beta, c), 0};
        struct unary_args min = {fminf(in.alpha, c), fminf(in.beta, c), 0};
        if (in.alpha <= in.beta)
            merge_bounds(rw, clip, node, rw_input(rw, clip, 0), is_max ? max : min);
    } else if (relu != IR_NONE && rw_uses(rw, y) == 1 && !is_max && c >= 0) {
        merge_bounds(rw, relu, node, rw_input(rw, relu, 0), (struct unary_args){0, c, 0});
    } else if (is_max && c == 0) {
        become_plain(rw, node, y, IR_UNARY_RELU, (struct unary_args){0});
    }
}

/* Rewrites a function of x and the number `c`; with `swapped`, of `c` and x. */
static void with_number(struct rewrite *rw, uint32_t node, uint32_t x, float c, bool swapped)
{
    switch (ir_attr_int(ir_node(rw->graph, node), IR_ATTR_FUNC)) {
    case IR_BINARY_ADD:
        become_linear(rw, node, x, 1, c);
        break;
    case IR_BINARY_SUB:
        become_linear(rw, node, x, swapped ? -1 : 1, swapped ? c : -c);
        break;
    case IR_BINARY_MUL:
        become_linear(rw, node, x, c, 0);
        break;
    case IR_BINARY_DIV:
        if (swapped || !isnormal(1 / c))
            break;
        if (rw_is_stepped(rw, rw_output(rw, node)) && !is_power_of_two(c))
            rw_near_miss(rw, "%s: its quotient is rounded", ir_node(rw->graph, node)->name);
        else
            become_linear(rw, node, x, 1 / c, 0);
        break;
    case IR_BINARY_MAX:
        bound(rw, node, x, c, true);
        break;
    case IR_BINARY_MIN:
        bound(rw, node, x, c, false);
        break;
    case IR_BINARY_POW:
        if (!swapped)
            power(rw, node, x, c);
        break;
    case IR_BINARY_PRELU:
        if (!swapped)
            become_plain(rw, node, x, IR_UNARY_LEAKY_RELU, (struct unary_args){c, 0, 0});
        break;
    default:
        break;
    }
}

static void visit_binary(struct rewrite *rw, uint32_t node)
{
    uint32_t y = rw_output(rw, node);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t x = rw_input(rw, node, 1 - i);
        float c;
        if (!constant_uniform(rw, rw_input(rw, node, i), &c) ||
            ir_tensor_is_constant(ir_tensor(rw->graph, x)))
            continue;
        if (!rw_same_shape(rw, x, y))
            rw_near_miss(rw, "%s broadcasts its input", ir_node(rw->graph, node)->name);
        else
            with_number(rw, node, x, c, i == 0);
        return;
    }
}

/* The UNARY node before `node`, if no other node reads it. */
static uint32_t before(const struct rewrite *rw, uint32_t node, enum ir_unary func)
{
    uint32_t x = rw_input(rw, node, 0), first = rw_made_by_unary(rw, x, func);
    return first != IR_NONE && rw_uses(rw, x) == 1 ? first : IR_NONE;
}

/* Says whether a number is added only to be taken away again, which rounds what is between: with
 * 1.5 * 2^23 to whole numbers. `moved` is the first shift in units of the result, which is
 * scale * x + shift. A shift that is only a little larger than the result rounds for nobody. */
static bool is_to_round(float moved, float scale, float shift)
{
    return fabsf(moved) > 4096 * fmaxf(fabsf(scale), fabsf(shift));
}

static void merge_linear(struct rewrite *rw, uint32_t node)
{
    float scale, shift, first_scale, first_shift;
    uint32_t first = before(rw, node, IR_UNARY_LINEAR);
    if (!rw_linear(rw, first, &first_scale, &first_shift) || !rw_linear(rw, node, &scale, &shift))
        return;
    float both = scale * first_scale, sum = scale * first_shift + shift;
    if (!isfinite(both) || !isfinite(sum) || rw_is_stepped(rw, rw_output(rw, node)))
        return;
    if (is_to_round(scale * first_shift, both, sum)) {
        rw_near_miss(rw, "%s + %s: they round", ir_node(rw->graph, first)->name,
                     ir_node(rw->graph, node)->name);
        return;
    }
    uint32_t x = rw_input(rw, first, 0);
    rw_set_name(rw, node, ir_node(rw->graph, first)->name, ir_node(rw->graph, node)->name);
    become_linear(rw, node, x, both, sum);
}

/* Does a maximum or a minimum with a number within the clip that reads it. */
static bool clip_of_bounded(struct rewrite *rw, uint32_t node, struct unary_args args)
{
    uint32_t x, y = rw_input(rw, node, 0);
    float c;
    uint32_t max = bounded(rw, y, IR_BINARY_MAX, &x, &c);
    uint32_t min = max != IR_NONE ? IR_NONE : bounded(rw, y, IR_BINARY_MIN, &x, &c);
    if ((max == IR_NONE && min == IR_NONE) || !(args.alpha <= args.beta))
        return false;
    if (max != IR_NONE)
        args.alpha = fminf(fmaxf(c, args.alpha), args.beta);
    else
        args.beta = fminf(fmaxf(c, args.alpha), args.beta);
    args.alpha = fmaxf(args.alpha, -FLT_MAX);
    args.beta = fminf(args.beta, FLT_MAX);
    merge_bounds(rw, max != IR_NONE ? max : min, node, x, args);
    return true;
}

static void merge_clip(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    struct unary_args args = rw_unary_args(n);
    uint32_t clip = before(rw, node, IR_UNARY_CLIP), relu = before(rw, node, IR_UNARY_RELU);
    if (clip != IR_NONE) {
        /* The outer bounds win: an outer value beyond both inner bounds becomes both. */
        struct unary_args inner = rw_unary_args(ir_node(rw->graph, clip));
        struct unary_args both = {fminf(fmaxf(inner.alpha, args.alpha), args.beta),
                                  fminf(fmaxf(inner.beta, args.alpha), args.beta), 0};
        if (inner.alpha > inner.beta || args.alpha > args.beta)
            return;
        merge_bounds(rw, clip, node, rw_input(rw, clip, 0), both);
    } else if (relu != IR_NONE && args.alpha >= 0 && args.alpha <= args.beta) {
        merge_bounds(rw, relu, node, rw_input(rw, relu, 0), args);
    } else if (clip_of_bounded(rw, node, args)) {
        return;
    } else if (args.alpha == 0 && args.beta >= FLT_MAX) {
        become_plain(rw, node, rw_input(rw, node, 0), IR_UNARY_RELU, args);
    } else if (!ir_attr(n, IR_ATTR_ALPHA) || !ir_attr(n, IR_ATTR_BETA) || !isfinite(args.alpha) ||
               !isfinite(args.beta)) {
        /* Both bounds are written out and made finite. */
        args.alpha = fmaxf(args.alpha, -FLT_MAX);
        args.beta = fminf(args.beta, FLT_MAX);
        become_plain(rw, node, rw_input(rw, node, 0), IR_UNARY_CLIP, args);
    }
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->n_epilogue || n->n_inputs == 0 || n->inputs[0] == IR_NONE ||
        !rw_is_float(rw, n->inputs[0]))
        return;
    if (n->op == IR_OP_BINARY)
        visit_binary(rw, node);
    else if (rw_is_unary(rw, node, IR_UNARY_NEG))
        become_linear(rw, node, rw_input(rw, node, 0), -1, 0);
    if (!rw->status && rw_is_unary(rw, node, IR_UNARY_LINEAR))
        merge_linear(rw, node);
    else if (!rw->status && rw_is_unary(rw, node, IR_UNARY_CLIP))
        merge_clip(rw, node);
}

PASS(fold_scalars)
{
    return rewrite_run(graph, ctx, visit, err);
}
