/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds layer normalisation as exporters wrote it before ONNX had an operator for it (opset 17),
 * and RMS normalisation:
 *
 *   d = x - mean(x);  y = d / sqrt(mean(d * d) + epsilon) * scale + bias
 *   y = x / sqrt(mean(x * x) + epsilon) * scale
 *
 * with the means over the last dimensions. There are steps, each of them right by itself: the
 * quotient, in any spelling, becomes a LAYER_NORM with a scale of ones; casts of 16-bit floats
 * around it go, because kernels compute in fp32; a product behind it becomes its scale, and a sum
 * its bias. Ba, Kiros, Hinton, "Layer Normalization", 2016; Zhang, Sennrich, "Root Mean Square
 * Layer Normalization", 2019.
 */
#include "engine/passes/constant.h"
#include "engine/passes/match.h"

/* Says whether the tensor is a mean over dimensions axis..rank-1 that keeps them; gives its
 * input. */
static bool is_mean(const struct rewrite *rw, struct match *m, uint32_t tensor, uint32_t *x,
                    uint32_t *axis)
{
    uint32_t node = rw_made_by(rw, tensor, IR_OP_REDUCE);
    if (!match_part(m, node))
        return false;
    const struct ir_node *n = ir_node(rw->graph, node);
    const struct ir_attr *axes = ir_attr(n, IR_ATTR_AXES);
    uint32_t rank = ir_tensor(rw->graph, n->inputs[0])->shape.rank;
    if (ir_attr_int(n, IR_ATTR_FUNC) != IR_REDUCE_MEAN || !ir_attr_int(n, IR_ATTR_KEEPDIMS) ||
        axes->count == 0)
        return false;
    for (uint32_t i = 0; i < axes->count; i++)
        if (axes->i[i] != rank - axes->count + i)
            return false;
    *x = n->inputs[0];
    *axis = rank - axes->count;
    return true;
}

/* Says whether the tensor is x - mean(x). */
static bool is_centred(const struct rewrite *rw, struct match *m, uint32_t tensor, uint32_t *x,
                       uint32_t *axis)
{
    uint32_t sub = rw_made_by_binary(rw, tensor, IR_BINARY_SUB);
    return match_part(m, sub) && is_mean(rw, m, rw_input(rw, sub, 1), x, axis) &&
           rw_input(rw, sub, 0) == *x;
}

/* Says whether the tensor is a product with, or a quotient by, this constant; `side` is where the
 * constant stands. */
static bool is_with(const struct rewrite *rw, struct match *m, uint32_t tensor, enum ir_binary func,
                    uint32_t side, float wanted)
{
    float number;
    uint32_t node = rw_made_by_binary(rw, tensor, func);
    return node != IR_NONE && constant_uniform(rw, rw_input(rw, node, side), &number) &&
           number == wanted && match_part(m, node);
}

/* Finds v if the tensor is sqrt(v), or with `inverse` 1 / sqrt(v); else IR_NONE. */
static uint32_t under_root(const struct rewrite *rw, struct match *m, uint32_t tensor, bool inverse)
{
    if (is_with(rw, m, tensor, IR_BINARY_POW, 1, inverse ? -0.5F : 0.5F))
        return rw_input(rw, m->parts[m->n - 1], 0);
    if (inverse) {
        uint32_t reciprocal = rw_made_by_unary(rw, tensor, IR_UNARY_RECIPROCAL);
        if (match_part(m, reciprocal))
            tensor = rw_input(rw, reciprocal, 0);
        else if (is_with(rw, m, tensor, IR_BINARY_DIV, 0, 1))
            tensor = rw_input(rw, m->parts[m->n - 1], 1);
        else
            return IR_NONE;
    }
    uint32_t root = rw_made_by_unary(rw, tensor, IR_UNARY_SQRT);
    return match_part(m, root) ? rw_input(rw, root, 0) : IR_NONE;
}

/* Finds d if the tensor is mean(d * d) + epsilon; else IR_NONE. */
static uint32_t squared(const struct rewrite *rw, struct match *m, uint32_t tensor, uint32_t *axis,
                        float *epsilon)
{
    uint32_t squares;
    float scale;
    uint32_t linear = rw_made_by_unary(rw, tensor, IR_UNARY_LINEAR);
    if (!match_part(m, linear) || !rw_linear(rw, linear, &scale, epsilon) || scale != 1 ||
        !is_mean(rw, m, rw_input(rw, linear, 0), &squares, axis))
        return IR_NONE;
    uint32_t mul = rw_made_by_binary(rw, squares, IR_BINARY_MUL);
    bool square = match_part(m, mul) && rw_input(rw, mul, 0) == rw_input(rw, mul, 1);
    return square ? rw_input(rw, mul, 0) : IR_NONE;
}

static struct shape normalised_shape(const struct rewrite *rw, uint32_t x, uint32_t axis)
{
    const struct shape *shape = &ir_tensor(rw->graph, x)->shape;
    struct shape inner = {.rank = shape->rank - axis};
    for (uint32_t i = 0; i < inner.rank; i++)
        inner.dim[i] = shape->dim[axis + i];
    return inner;
}

static void become_norm(struct rewrite *rw, struct match *m, uint32_t node, uint32_t x,
                        uint32_t axis, bool rms, float epsilon)
{
    if (!rw_same_shape(rw, x, rw_output(rw, node))) {
        rw_near_miss(rw, "%s broadcasts its input", ir_node(rw->graph, node)->name);
        return;
    }
    struct shape inner = normalised_shape(rw, x, axis);
    enum dtype dtype = ir_tensor(rw->graph, x)->dtype;
    void *data;
    uint64_t bytes;
    uint32_t ones = rw_add_constant(rw, "", dtype, &inner, &data);
    if (ones == IR_NONE || !ir_layout_bytes(&inner, dtype, IR_LAYOUT_PLAIN, &bytes))
        return;
    for (size_t i = 0; i < bytes / dtype_size(dtype); i++)
        float_put(data, dtype, i, 1);
    match_part(m, node);
    match_done(rw, m, node, rms ? "rms norm" : "layer_norm");
    rw_become(rw, node, IR_OP_LAYER_NORM, 2, (const uint32_t[]){x, ones});
    rw_set_int(rw, node, IR_ATTR_AXIS, axis);
    rw_set_float(rw, node, IR_ATTR_EPSILON, epsilon);
    if (rms)
        rw_set_int(rw, node, IR_ATTR_RMS, 1);
}

/* Looks for d / deviation and d * (1 / deviation), where d is the tensor whose squares make the
 * deviation, or is centred as that one is. */
static bool visit_quotient(struct rewrite *rw, uint32_t node)
{
    bool is_product = rw_is_binary(rw, node, IR_BINARY_MUL);
    if (!is_product && !rw_is_binary(rw, node, IR_BINARY_DIV))
        return false;
    for (uint32_t i = 0; i < (is_product ? 2 : 1); i++) {
        struct match m = {.n = 0}, centred;
        uint32_t x, base, axis, x_axis, d_axis, top = rw_input(rw, node, i);
        float epsilon;
        uint32_t v = under_root(rw, &m, rw_input(rw, node, 1 - i), is_product);
        uint32_t d = v == IR_NONE ? IR_NONE : squared(rw, &m, v, &axis, &epsilon);
        if (d == IR_NONE)
            continue;
        centred = m;
        if (is_centred(rw, &centred, top, &x, &x_axis) && x_axis == axis &&
            (d == top ||
             (is_centred(rw, &centred, d, &base, &d_axis) && base == x && d_axis == axis))) {
            become_norm(rw, &centred, node, x, axis, false, epsilon);
            return true;
        }
        if (d == top) {
            become_norm(rw, &m, node, d, axis, true, epsilon);
            return true;
        }
        if (!ir_tensor(rw->graph, top)->data)
            rw_near_miss(rw, "%s: the mean is of squares of another tensor",
                         ir_node(rw->graph, node)->name);
    }
    return false;
}

/* Looks for cast(norm(cast(x))) of a 16-bit x, with no scale and no bias yet. */
static void visit_cast(struct rewrite *rw, uint32_t node)
{
    uint32_t y = rw_input(rw, node, 0), norm = rw_made_by(rw, y, IR_OP_LAYER_NORM);
    float one;
    if (norm == IR_NONE || rw_uses(rw, y) != 1 || rw_input(rw, norm, 2) != IR_NONE ||
        !constant_uniform(rw, rw_input(rw, norm, 1), &one) || one != 1)
        return;
    uint32_t cast = rw_made_by(rw, rw_input(rw, norm, 0), IR_OP_CAST);
    if (cast == IR_NONE || ir_tensor(rw->graph, rw_input(rw, cast, 0))->dtype !=
                               ir_tensor(rw->graph, rw_output(rw, node))->dtype)
        return;
    const struct ir_node *n = ir_node(rw->graph, norm);
    struct match m = {.n = 0};
    match_part(&m, cast);
    match_part(&m, norm);
    become_norm(rw, &m, node, rw_input(rw, cast, 0), (uint32_t)ir_attr_int(n, IR_ATTR_AXIS),
                ir_attr_int(n, IR_ATTR_RMS), ir_attr_float(n, IR_ATTR_EPSILON));
}

/* The operand as a scale or a bias of the norm, or IR_NONE: it must broadcast to the normalised
 * dimensions alone. A constant may have leading dimensions of 1. */
static uint32_t fitting(struct rewrite *rw, uint32_t operand, const struct shape *inner)
{
    struct shape shape = ir_tensor(rw->graph, operand)->shape, r;
    while (shape.rank > inner->rank && shape.dim[0] == 1) {
        for (uint32_t i = 1; i < shape.rank; i++)
            shape.dim[i - 1] = shape.dim[i];
        shape.dim[--shape.rank] = 0;
    }
    if (!shape_broadcast(&shape, inner, &r) || !shape_equal(&r, inner))
        return IR_NONE;
    if (shape.rank == ir_tensor(rw->graph, operand)->shape.rank)
        return operand;
    return ir_tensor(rw->graph, operand)->data ? rw_share_constant(rw, operand, &shape) : IR_NONE;
}

/* Looks for norm * scale and norm + bias. */
static void visit_affine(struct rewrite *rw, uint32_t node, bool is_scale)
{
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t y = rw_input(rw, node, i);
        uint32_t norm = rw_made_by(rw, y, IR_OP_LAYER_NORM);
        float one;
        if (norm == IR_NONE || rw_uses(rw, y) != 1 || rw_input(rw, norm, 2) != IR_NONE ||
            (is_scale && (!constant_uniform(rw, rw_input(rw, norm, 1), &one) || one != 1)))
            continue;
        uint32_t axis = (uint32_t)ir_attr_int(ir_node(rw->graph, norm), IR_ATTR_AXIS);
        struct shape inner = normalised_shape(rw, y, axis);
        bool whole = rw_same_shape(rw, y, rw_output(rw, node));
        uint32_t operand = whole ? fitting(rw, rw_input(rw, node, 1 - i), &inner) : IR_NONE;
        if (operand == IR_NONE) {
            rw_near_miss(rw, "%s: the operand is no %s of %s", ir_node(rw->graph, node)->name,
                         is_scale ? "scale" : "bias", ir_node(rw->graph, norm)->name);
            continue;
        }
        rw_done(rw, "%s + %s", ir_node(rw->graph, norm)->name, ir_node(rw->graph, node)->name);
        if (is_scale)
            rw_set_input(rw, norm, 1, operand);
        else if (ir_node(rw->graph, norm)->n_inputs > 2)
            rw_set_input(rw, norm, 2, operand);
        else
            rw_add_input(rw, norm, operand);
        rw_absorb(rw, norm, node);
        return;
    }
}

static void visit(struct rewrite *rw, uint32_t node)
{
    if (!rw_is_float(rw, rw_output(rw, node)))
        return;
    if (ir_node(rw->graph, node)->op == IR_OP_CAST)
        visit_cast(rw, node);
    if (ir_node(rw->graph, node)->op != IR_OP_BINARY || visit_quotient(rw, node))
        return;
    if (rw_is_binary(rw, node, IR_BINARY_MUL))
        visit_affine(rw, node, true);
    else if (rw_is_binary(rw, node, IR_BINARY_ADD))
        visit_affine(rw, node, false);
}

PASS(fuse_layer_norm)
{
    return rewrite_run(graph, ctx, visit, err);
}
