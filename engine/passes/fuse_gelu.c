/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds GELU as exporters write it, starting from its last node. fold_scalars has turned every
 * operation with one number into a x + b, so there are two forms:
 *
 *   exact    x/2 (1 + erf(x / sqrt 2))
 *   by tanh  x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
 *
 * The factor 1/2 may stand before, within or behind the product; x + c x^3 may be written as
 * x (1 + c x^2). Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016.
 */
#include "engine/passes/constant.h"
#include "engine/passes/match.h"

#define SQRT_HALF    0.70710678118654752
#define SQRT_2_BY_PI 0.79788456080286536
#define CUBIC        0.044715

static bool is_product(const struct rewrite *rw, uint32_t node, uint32_t a, uint32_t b)
{
    uint32_t p = rw_input(rw, node, 0), q = rw_input(rw, node, 1);
    return (p == a && q == b) || (p == b && q == a);
}

/* Says whether the tensor is x * x, as a product. */
static bool is_square(const struct rewrite *rw, struct match *m, uint32_t tensor, uint32_t x)
{
    uint32_t mul = rw_made_by_binary(rw, tensor, IR_BINARY_MUL);
    return match_part(m, mul) && is_product(rw, mul, x, x);
}

/* Says whether the tensor is x^3, as a power or as (x * x) * x. */
static bool is_cube(const struct rewrite *rw, struct match *m, uint32_t tensor, uint32_t x)
{
    float exponent;
    uint32_t power = rw_made_by_binary(rw, tensor, IR_BINARY_POW);
    if (match_part(m, power))
        return rw_input(rw, power, 0) == x &&
               constant_uniform(rw, rw_input(rw, power, 1), &exponent) && exponent == 3;
    uint32_t mul = rw_made_by_binary(rw, tensor, IR_BINARY_MUL);
    if (!match_part(m, mul))
        return false;
    for (uint32_t i = 0; i < 2; i++)
        if (rw_input(rw, mul, i) == x && is_square(rw, m, rw_input(rw, mul, 1 - i), x))
            return true;
    return false;
}

/* Says whether the tensor is k (x + c x^3). */
static bool is_sum_form(const struct rewrite *rw, struct match *m, uint32_t tensor, uint32_t x)
{
    uint32_t inner, cube;
    if (!match_near(match_scaled(rw, m, tensor, &inner), SQRT_2_BY_PI))
        return false;
    uint32_t add = rw_made_by_binary(rw, inner, IR_BINARY_ADD);
    if (!match_part(m, add))
        return false;
    for (uint32_t i = 0; i < 2; i++)
        if (rw_input(rw, add, i) == x &&
            match_near(match_scaled(rw, m, rw_input(rw, add, 1 - i), &cube), CUBIC) &&
            is_cube(rw, m, cube, x))
            return true;
    return false;
}

/* Says whether the tensor is k x (1 + c x^2), where k scales the whole or x. */
static bool is_product_form(const struct rewrite *rw, struct match *m, uint32_t tensor, uint32_t x)
{
    uint32_t inner, base;
    float outer_scale = match_scaled(rw, m, tensor, &inner), scale, shift;
    uint32_t mul = rw_made_by_binary(rw, inner, IR_BINARY_MUL);
    if (!match_part(m, mul))
        return false;
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t linear = rw_made_by_unary(rw, rw_input(rw, mul, 1 - i), IR_UNARY_LINEAR);
        if (!rw_linear(rw, linear, &scale, &shift) || !match_near(scale, CUBIC) || shift != 1)
            continue;
        float inner_scale = match_scaled(rw, m, rw_input(rw, mul, i), &base);
        if (base == x && match_near(outer_scale * inner_scale, SQRT_2_BY_PI) &&
            match_part(m, linear) && is_square(rw, m, rw_input(rw, linear, 0), x))
            return true;
    }
    return false;
}

/* Finds p (1 + erf(x / sqrt 2)) or p (1 + tanh(...)) and returns p; 0 if the tensor is neither. */
static float gate(const struct rewrite *rw, struct match *m, uint32_t tensor, uint32_t x,
                  enum ir_unary *func)
{
    float scale, shift;
    uint32_t base, linear = rw_made_by_unary(rw, tensor, IR_UNARY_LINEAR);
    if (!rw_linear(rw, linear, &scale, &shift) || scale != shift)
        return 0;
    match_part(m, linear);
    uint32_t erf = rw_made_by_unary(rw, rw_input(rw, linear, 0), IR_UNARY_ERF);
    uint32_t tanh = rw_made_by_unary(rw, rw_input(rw, linear, 0), IR_UNARY_TANH);
    if (match_part(m, erf)) {
        *func = IR_UNARY_GELU;
        float s = match_scaled(rw, m, rw_input(rw, erf, 0), &base);
        return base == x && match_near(s, SQRT_HALF) ? scale : 0;
    }
    if (!match_part(m, tanh))
        return 0;
    *func = IR_UNARY_GELU_TANH;
    uint32_t n = m->n;
    if (is_sum_form(rw, m, rw_input(rw, tanh, 0), x))
        return scale;
    m->n = n; /* forgets the parts that the failed search noted */
    return is_product_form(rw, m, rw_input(rw, tanh, 0), x) ? scale : 0;
}

/* Looks for f * GELU in a product and returns f; 0 if there is none. */
static float product(const struct rewrite *rw, struct match *m, uint32_t mul, uint32_t *x,
                     enum ir_unary *func)
{
    for (uint32_t i = 0; i < 2; i++) {
        m->n = 0;
        match_part(m, mul);
        /* The value may be x, or x / 2. If x itself is some c z, the gate reads x, not z. */
        uint32_t value = rw_input(rw, mul, i), other = rw_input(rw, mul, 1 - i);
        *x = value;
        float p = gate(rw, m, other, value, func);
        if (p != 0)
            return p;
        m->n = 0;
        match_part(m, mul);
        float v = match_scaled(rw, m, value, x);
        p = *x == value ? 0 : gate(rw, m, other, *x, func);
        if (p != 0)
            return p * v;
    }
    return 0;
}

static void visit(struct rewrite *rw, uint32_t node)
{
    struct match m = {.n = 0};
    enum ir_unary func = IR_UNARY_GELU;
    float scale = 1, shift = 0;
    uint32_t x, mul = node;
    if (rw_linear(rw, node, &scale, &shift)) {
        mul = rw_made_by_binary(rw, rw_input(rw, node, 0), IR_BINARY_MUL);
        if (mul == IR_NONE || shift != 0 || rw_uses(rw, rw_input(rw, node, 0)) != 1)
            return;
    } else if (!rw_is_binary(rw, node, IR_BINARY_MUL)) {
        return;
    }
    if (!rw_is_float(rw, rw_output(rw, node)))
        return;
    float factor = product(rw, &m, mul, &x, &func);
    if (factor == 0)
        return;
    if (!match_near(scale * factor, 0.5)) {
        rw_near_miss(rw, "%s is %g GELU", ir_node(rw->graph, node)->name,
                     2.0 * (double)(scale * factor));
        return;
    }
    if (!rw_same_shape(rw, x, rw_output(rw, node))) {
        rw_near_miss(rw, "%s broadcasts its input", ir_node(rw->graph, node)->name);
        return;
    }
    match_part(&m, node);
    match_done(rw, &m, node, ir_unary_name(func));
    rw_become_unary(rw, node, x, func, (struct unary_args){0});
}

PASS(fuse_gelu)
{
    return rewrite_run(graph, ctx, visit, err);
}
