/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Follows probabilities back to softmax, and scores back to the product of queries and keys. What
 * the scores meet on the way is a number that scales them, a tensor that is added, or a choice
 * (Where) that hides some of them. Casts between floats and reshapes that keep the last two
 * dimensions are passed.
 */
#include "engine/passes/attention.h"

#include <math.h>

#include "engine/passes/constant.h"

enum { STEPS_MAX = 12 };

/* Says whether a node only hands on scores or probabilities in another shape or float type. */
static bool hands_on(const struct rewrite *rw, const struct ir_node *n)
{
    if (n->n_epilogue)
        return false;
    if (n->op == IR_OP_CAST)
        return rw_is_float(rw, n->inputs[0]) && rw_is_float(rw, n->outputs[0]);
    if (n->op != IR_OP_RESHAPE)
        return false;
    const struct shape *from = &ir_tensor(rw->graph, n->inputs[0])->shape;
    const struct shape *to = &ir_tensor(rw->graph, n->outputs[0])->shape;
    return from->rank >= 2 && to->rank >= 2 && from->dim[from->rank - 1] == to->dim[to->rank - 1] &&
           from->dim[from->rank - 2] == to->dim[to->rank - 2];
}

/* --- probabilities --- */

/* Where(IsNaN(p), 0, p): a row without any key becomes zero. Where(hidden, 0, p) does the same if
 * the scores were hidden by the same condition. Gives p, or IR_NONE. */
static uint32_t unguard(const struct rewrite *rw, struct attention *a, const struct ir_node *n)
{
    float zero;
    for (uint32_t i = 1; i <= 2; i++) {
        uint32_t p = n->inputs[3 - i], cond = n->inputs[0];
        if (!constant_number(rw, n->inputs[i], &zero) || zero != 0)
            continue;
        uint32_t nan = rw_made_by_unary(rw, cond, IR_UNARY_IS_NAN);
        if (nan != IR_NONE) {
            bool same = i == 1 && rw_input(rw, nan, 0) == p && rw_uses(rw, p) == 2 &&
                        rw_uses(rw, cond) == 1;
            match_part(&a->parts, nan);
            return same ? p : IR_NONE;
        }
        if (a->zeroed != IR_NONE || rw_uses(rw, p) != 1 ||
            !shape_equal(&ir_tensor(rw->graph, p)->shape,
                         &ir_tensor(rw->graph, n->outputs[0])->shape))
            return IR_NONE;
        a->zeroed = cond;
        a->zeroed_inverted = i == 1;
        return p;
    }
    return IR_NONE;
}

bool attention_find_softmax(const struct rewrite *rw, struct attention *a, uint32_t probabilities)
{
    uint32_t at = probabilities;
    a->zeroed = IR_NONE;
    for (int step = 0; step < STEPS_MAX; step++) {
        uint32_t node = ir_tensor(rw->graph, at)->producer;
        const struct ir_node *n = node == IR_NONE ? NULL : ir_node(rw->graph, node);
        if (!n || n->n_epilogue)
            return false;
        match_part(&a->parts, node);
        if (n->op == IR_OP_SOFTMAX) {
            a->softmax_node = node;
            return true;
        }
        if (n->op == IR_OP_SELECT) {
            at = unguard(rw, a, n);
        } else {
            at = hands_on(rw, n) ? n->inputs[0] : IR_NONE;
            a->shared = a->shared || (at != IR_NONE && rw_uses(rw, at) != 1);
        }
        if (at == IR_NONE)
            return false;
    }
    return false;
}

/* --- scores --- */

static const char OTHERS[] = "its scores have other readers";
static const char NO_PRODUCT[] =
    "its scores are no product of two tensors with sums, scales and choices behind it";

static const char *follow(const struct rewrite *rw, struct attention *a, uint32_t tensor,
                          float scale, int steps);

static bool add_term(struct attention *a, struct attention_term term)
{
    if (a->n_terms == ATTENTION_TERMS_MAX || a->factor != IR_NONE)
        return false;
    a->terms[a->n_terms++] = term;
    return true;
}

/* Follows an operand, and puts everything back if that leads nowhere. */
static const char *try_operand(const struct rewrite *rw, struct attention *a, uint32_t tensor,
                               const struct shape *scores, const struct attention_term *term,
                               float scale, int steps)
{
    struct attention before = *a;
    if (!shape_equal(&ir_tensor(rw->graph, tensor)->shape, scores) || !add_term(a, *term)) {
        *a = before;
        return NO_PRODUCT;
    }
    const char *why = follow(rw, a, tensor, scale, steps);
    if (why)
        *a = before;
    return why;
}

/* Follows s + m or s - m, whichever of them is the scores. */
static const char *follow_sum(const struct rewrite *rw, struct attention *a,
                              const struct ir_node *n, float scale, int steps)
{
    const struct shape scores = ir_tensor(rw->graph, n->outputs[0])->shape;
    bool minus = ir_attr_int(n, IR_ATTR_FUNC) == IR_BINARY_SUB;
    const char *why = NO_PRODUCT;
    for (uint32_t i = 0; why && i < (minus ? 1 : 2); i++) {
        const struct attention_term term = {
            .scale = minus ? -scale : scale, .tensor = n->inputs[1 - i], .scores = scores};
        why = try_operand(rw, a, n->inputs[i], &scores, &term, scale, steps);
    }
    return why;
}

/* Follows Where(seen, s, low) or Where(hidden, low, s). */
static const char *follow_choice(const struct rewrite *rw, struct attention *a,
                                 const struct ir_node *n, float scale, int steps)
{
    const struct shape scores = ir_tensor(rw->graph, n->outputs[0])->shape;
    const char *why = NO_PRODUCT;
    for (uint32_t i = 1; why && i <= 2; i++) {
        float floor;
        if (!constant_number(rw, n->inputs[3 - i], &floor))
            continue;
        if (floor > ATTENTION_FLOOR_MAX)
            return "a choice puts a number among its scores that hides nothing";
        const struct attention_term term = {.hides = true,
                                            .inverted = i == 2,
                                            .floor = scale * floor,
                                            .tensor = n->inputs[0],
                                            .scores = scores};
        why = try_operand(rw, a, n->inputs[i], &scores, &term, scale, steps);
    }
    return why;
}

/* Says whether s b + c is Where(b, s, low) for constants b of 0 and 1. Then c becomes a term that
 * hides. `c` is the last term so far. */
static bool is_choice(const struct rewrite *rw, struct attention *a, uint32_t b)
{
    struct attention_term *c = a->n_terms ? &a->terms[a->n_terms - 1] : NULL;
    size_t n;
    if (!c || c->hides || !constant_is_float(rw, b) || !constant_is_float(rw, c->tensor) ||
        !shape_equal(&ir_tensor(rw->graph, b)->shape, &ir_tensor(rw->graph, c->tensor)->shape) ||
        !shape_elements(&ir_tensor(rw->graph, b)->shape, &n))
        return false;
    float floor = -INFINITY;
    for (size_t i = 0; i < n; i++) {
        float keep = constant_at(rw, b, i), add = c->scale * constant_at(rw, c->tensor, i);
        if (!(keep == 1 && add == 0) && !(keep == 0 && add <= ATTENTION_FLOOR_MAX))
            return false;
        floor = keep == 0 ? fmaxf(floor, add) : floor;
    }
    c->hides = true;
    c->tensor = b;
    c->floor = floor;
    return true;
}

/* Follows s * m, where m has one number for all keys of a query, or is a mask of 0 and 1 before a
 * sum that hides where it is 0. */
static const char *follow_factor(const struct rewrite *rw, struct attention *a,
                                 const struct ir_node *n, float scale, int steps)
{
    const struct shape scores = ir_tensor(rw->graph, n->outputs[0])->shape;
    const char *why = NO_PRODUCT;
    for (uint32_t i = 0; why && i < 2; i++) {
        struct attention before = *a;
        uint32_t x = n->inputs[i], factor = n->inputs[1 - i];
        const struct shape *f = &ir_tensor(rw->graph, factor)->shape;
        if (!shape_equal(&ir_tensor(rw->graph, x)->shape, &scores))
            continue;
        if (!is_choice(rw, a, factor)) {
            if (a->factor != IR_NONE || (f->rank && f->dim[f->rank - 1] != 1) ||
                !rw_is_float(rw, factor))
                continue;
            a->factor = factor;
            a->factor_scores = scores;
        }
        why = follow(rw, a, x, scale, steps);
        if (why)
            *a = before;
    }
    return why;
}

/* The product itself; sums in its epilogue are terms. */
static const char *follow_product(const struct rewrite *rw, struct attention *a, uint32_t node,
                                  float scale)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (ir_node_own_inputs(n) > 2 && n->inputs[2] != IR_NONE)
        return "the product of queries and keys has a bias";
    for (uint32_t i = 0; i < n->n_epilogue; i++) {
        const struct ir_epilogue *step = &n->epilogue[i];
        const struct attention_term term = {
            .scale = scale,
            .tensor = step->kind == IR_EPILOGUE_BINARY ? n->inputs[step->input] : IR_NONE,
            .scores = ir_tensor(rw->graph, n->outputs[0])->shape};
        if (step->kind != IR_EPILOGUE_BINARY || step->func != IR_BINARY_ADD || !add_term(a, term))
            return "a function is fused to the product of queries and keys";
    }
    a->scores_node = node;
    a->scale = scale * ir_attr_float(n, IR_ATTR_ALPHA);
    return NULL;
}

static const char *follow(const struct rewrite *rw, struct attention *a, uint32_t tensor,
                          float scale, int steps)
{
    uint32_t node = ir_tensor(rw->graph, tensor)->producer;
    float factor, shift;
    if (node == IR_NONE || steps == 0 || !rw_is_float(rw, tensor))
        return NO_PRODUCT;
    if (rw_uses(rw, tensor) != 1)
        return OTHERS;
    const struct ir_node *n = ir_node(rw->graph, node);
    match_part(&a->parts, node);
    if (n->op == IR_OP_MATMUL)
        return follow_product(rw, a, node, scale);
    if (hands_on(rw, n))
        return follow(rw, a, n->inputs[0], scale, steps - 1);
    if (rw_linear(rw, node, &factor, &shift)) /* softmax does not see the shift */
        return factor > 0 && isfinite(shift)
                   ? follow(rw, a, n->inputs[0], scale * factor, steps - 1)
                   : NO_PRODUCT;
    if (n->n_epilogue)
        return NO_PRODUCT;
    if (n->op == IR_OP_SELECT)
        return follow_choice(rw, a, n, scale, steps - 1);
    if (rw_is_binary(rw, node, IR_BINARY_ADD) || rw_is_binary(rw, node, IR_BINARY_SUB))
        return follow_sum(rw, a, n, scale, steps - 1);
    return rw_is_binary(rw, node, IR_BINARY_MUL) ? follow_factor(rw, a, n, scale, steps - 1)
                                                 : NO_PRODUCT;
}

const char *attention_find_scores(const struct rewrite *rw, struct attention *a)
{
    const struct ir_node *softmax = ir_node(rw->graph, a->softmax_node);
    const struct shape *shape = &ir_tensor(rw->graph, softmax->inputs[0])->shape;
    if (ir_attr_int(softmax, IR_ATTR_AXIS) != shape->rank - 1 || shape->rank < 2 ||
        ir_attr_int(softmax, IR_ATTR_LOG))
        return "its softmax is not over the keys";
    a->n_terms = 0;
    a->factor = IR_NONE;
    return follow(rw, a, softmax->inputs[0], 1, STEPS_MAX);
}
