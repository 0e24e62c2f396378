/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes new constants, because the old ones may have other readers, or lie in the model's file.
 *
 * The output channel of a weight follows from its place:
 *   CONV    W[M, C/g, k..]   m
 *   DECONV  W[C, M/g, k..]   (c / (C/g)) * M/g + m
 *   MATMUL  B[.., K, N]      n, or with TRANS_B B[.., N, K]
 */
#include "engine/passes/weights.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/passes/constant.h"

bool weighted_find(struct rewrite *rw, uint32_t tensor, struct weighted *out)
{
    static const enum ir_op ops[] = {IR_OP_CONV, IR_OP_DECONV, IR_OP_MATMUL};
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        uint32_t node = rw_made_by(rw, tensor, ops[i]);
        if (node == IR_NONE)
            continue;
        const struct shape *shape = &ir_tensor(rw->graph, tensor)->shape;
        uint32_t axis = ops[i] == IR_OP_MATMUL ? shape->rank - 1 : 1;
        *out = (struct weighted){node, axis, (size_t)shape->dim[axis]};
        if (rw_uses(rw, tensor) == 1 && rw_is_float(rw, tensor))
            return true;
        rw_near_miss(rw, "%s: its output has %u readers", ir_node(rw->graph, node)->name,
                     rw_uses(rw, tensor));
        return false;
    }
    return false;
}

uint32_t weighted_bias(const struct ir_node *node)
{
    return ir_node_own_inputs(node) > 2 ? node->inputs[2] : IR_NONE;
}

bool weighted_has_plain_bias(const struct rewrite *rw, uint32_t node)
{
    uint32_t bias = weighted_bias(ir_node(rw->graph, node));
    return bias == IR_NONE || constant_is_float(rw, bias);
}

bool weighted_steps_are_unary(const struct ir_node *node)
{
    for (uint32_t i = 0; i < node->n_epilogue; i++)
        if (node->epilogue[i].kind != IR_EPILOGUE_UNARY)
            return false;
    return true;
}

bool weighted_side_by_side(const struct ir_node *node, const struct shape *weights)
{
    uint32_t dims = weights->rank - 2;
    for (uint32_t d = 0; d < dims; d++) {
        int64_t kernel = weights->dim[2 + d];
        if (ir_attr_at(node, IR_ATTR_STRIDES, d) != kernel ||
            (kernel > 1 && ir_attr_at(node, IR_ATTR_DILATIONS, d) != 1) ||
            ir_attr_at(node, IR_ATTR_PADS, d) || ir_attr_at(node, IR_ATTR_PADS, dims + d))
            return false;
    }
    return true;
}

uint32_t weighted_multiply(struct rewrite *rw, const struct ir_node *node, uint32_t a, uint32_t b,
                           uint32_t bias, bool trans_b)
{
    const struct ir_node like = *node; /* adding a node may move it */
    const uint32_t in[] = {a, b, bias};
    uint32_t product = rw_add_node(rw, IR_OP_MATMUL, like.name, bias == IR_NONE ? 2 : 3, in);
    if (trans_b)
        rw_set_int(rw, product, IR_ATTR_TRANS_B, 1);
    uint32_t y = rw_finish(rw, product);
    for (uint32_t i = 0; i < like.n_epilogue && !rw->status; i++)
        rw_add_epilogue(rw, product, like.epilogue[i], IR_NONE);
    return rw->status ? IR_NONE : y;
}

bool weighted_has_constants(const struct rewrite *rw, uint32_t node)
{
    return constant_is_float(rw, rw_input(rw, node, 1)) && weighted_has_plain_bias(rw, node);
}

bool weighted_is_pointwise(const struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op != IR_OP_CONV || !rw_is_float(rw, n->outputs[0]) ||
        !weighted_has_constants(rw, node) || ir_attr_int(n, IR_ATTR_GROUP) != 1)
        return false;
    const struct shape *w = &ir_tensor(rw->graph, n->inputs[1])->shape;
    bool one = w->rank == 4 && w->dim[2] == 1 && w->dim[3] == 1;
    for (uint32_t i = 0; one && i < 4; i++)
        one = ir_attr_at(n, IR_ATTR_PADS, i) == 0;
    return one;
}

bool weighted_has_steps(const struct ir_node *n)
{
    return ir_attr_at(n, IR_ATTR_STRIDES, 0) != 1 || ir_attr_at(n, IR_ATTR_STRIDES, 1) != 1;
}

/* The order of output channels in the array of weights. `inner` weights of one channel follow each
 * other, then come `inner` of the next one. After `span` channels the first one comes again. After
 * `group` weights (the weights of one group of a DECONV) the next `span` channels begin. */
struct order {
    size_t inner, span, group;
};

static struct order channel_order(const struct rewrite *rw, const struct weighted *w, size_t total)
{
    const struct ir_node *n = ir_node(rw->graph, w->node);
    const struct shape *shape = &ir_tensor(rw->graph, n->inputs[1])->shape;
    if (n->op == IR_OP_MATMUL) {
        bool transposed = ir_attr_int(n, IR_ATTR_TRANS_B);
        size_t k = (size_t)shape->dim[shape->rank - (transposed ? 1 : 2)];
        return (struct order){transposed ? k : 1, w->channels, total};
    }
    if (n->op == IR_OP_CONV)
        return (struct order){total / w->channels, w->channels, total};
    size_t groups = (size_t)ir_attr_int(n, IR_ATTR_GROUP), span = w->channels / groups;
    return (struct order){total / ((size_t)shape->dim[0] * span), span, total / groups};
}

/* Elements that one number scales. FP32, which nearly all weights are, goes a shorter way, since
 * models have a hundred megabytes of them. `from` may be unaligned. */
static void scale_run(void *to, const void *from, enum dtype dtype, size_t first, size_t n,
                      float scale)
{
    float *floats = (float *)to + first;
    if (dtype == DTYPE_F32)
        memcpy(floats, (const char *)from + first * sizeof(*floats), n * sizeof(*floats));
    for (size_t i = 0; i < n; i++)
        if (dtype == DTYPE_F32)
            floats[i] *= scale;
        else
            float_put(to, dtype, first + i, float_get(from, dtype, first + i) * scale);
}

static void scale_group(void *to, const void *from, enum dtype dtype, size_t first, size_t count,
                        const struct order *order, const float *scale)
{
    for (size_t i = first; i < first + count;)
        for (size_t c = 0; c < order->span; c++, i += order->inner)
            scale_run(to, from, dtype, i, order->inner, scale[c]);
}

/* The dimension of the weights that has one index for each output channel; UINT32_MAX: none has. */
static uint32_t channel_axis(const struct rewrite *rw, const struct weighted *w)
{
    const struct ir_node *n = ir_node(rw->graph, w->node);
    if (n->op == IR_OP_MATMUL)
        return ir_tensor(rw->graph, n->inputs[1])->shape.rank -
               (ir_attr_int(n, IR_ATTR_TRANS_B) ? 2 : 1);
    if (n->op == IR_OP_CONV)
        return 0;
    return ir_attr_int(n, IR_ATTR_GROUP) == 1 ? 1 : UINT32_MAX;
}

/* Weights that are integers times a step stay that if each channel is multiplied by a number above
 * 0: their range follows. */
static uint32_t scaled_range(struct rewrite *rw, const struct weighted *w, uint32_t range,
                             const float *by)
{
    const struct ir_scale *old = ir_scale(rw->graph, range);
    uint32_t axis = channel_axis(rw, w), n = (uint32_t)w->channels;
    if (!old || n == 0 || axis == UINT32_MAX || (old->n > 1 && (old->n != n || old->axis != axis)))
        return IR_NO_SCALE;
    struct ir_scale row = *old;
    float *step = arena_array(rw->graph->arena, n, sizeof(*step));
    int32_t *zero = arena_array(rw->graph->arena, n, sizeof(*zero));
    for (uint32_t i = 0; step && zero && i < n; i++) {
        step[i] = old->step[old->n > 1 ? i : 0] * by[i];
        zero[i] = old->zero ? old->zero[old->n > 1 ? i : 0] : 0;
        if (!(by[i] > 0) || !isfinite(step[i]) || step[i] <= 0)
            return IR_NO_SCALE;
    }
    row.n = n;
    row.axis = axis;
    row.step = step;
    row.zero = old->zero ? zero : NULL;
    return step && zero ? ir_scale_add(rw->graph, &row) : IR_NO_SCALE;
}

void weighted_scale(struct rewrite *rw, const struct weighted *w, const float *scale)
{
    struct ir_tensor t = *ir_tensor(rw->graph, rw_input(rw, w->node, 1));
    size_t n;
    void *data;
    if (!shape_elements(&t.shape, &n) || n == 0)
        return;
    uint32_t made = rw_add_constant(rw, t.name, t.dtype, &t.shape, &data);
    if (made == IR_NONE)
        return;
    ir_tensor(rw->graph, made)->range = scaled_range(rw, w, t.range, scale);
    struct order order = channel_order(rw, w, n);
    for (size_t first = 0; first < n; first += order.group, scale += order.span)
        scale_group(data, t.data, t.dtype, first, order.group, &order, scale);
    rw_set_input(rw, w->node, 1, made);
}

void weighted_shift(struct rewrite *rw, const struct weighted *w, const float *scale,
                    const float *shift)
{
    uint32_t old = rw_input(rw, w->node, 2);
    enum dtype dtype = ir_tensor(rw->graph, rw_output(rw, w->node))->dtype;
    struct shape shape = {.rank = 1, .dim = {(int64_t)w->channels}};
    if (old == IR_NONE && !shift)
        return;
    float *values = calloc(MAX(w->channels, 1), sizeof(*values));
    if (!values) {
        rw_fail(rw);
        return;
    }
    for (size_t i = 0; i < w->channels; i++) {
        float bias = old == IR_NONE ? 0 : constant_at(rw, old, i);
        values[i] = bias * (scale ? scale[i] : 1) + (shift ? shift[i] : 0);
    }
    const char *name = old == IR_NONE ? "" : ir_tensor(rw->graph, old)->name;
    uint32_t made = constant_make(rw, name, dtype, &shape, values);
    free(values);
    if (made == IR_NONE)
        return;
    if (ir_node(rw->graph, w->node)->n_inputs > 2)
        rw_set_input(rw, w->node, 2, made);
    else
        rw_add_input(rw, w->node, made);
}

/* --- the input's channels --- */

bool weighted_find_input(struct rewrite *rw, uint32_t node, struct weighted *out)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if ((n->op != IR_OP_CONV && n->op != IR_OP_MATMUL) || !rw_is_float(rw, n->inputs[0]))
        return false;
    const struct shape *x = &ir_tensor(rw->graph, n->inputs[0])->shape;
    bool product = n->op == IR_OP_MATMUL;
    uint32_t axis = product ? x->rank - 1 : 1;
    *out = (struct weighted){node, axis, (size_t)x->dim[axis]};
    if (product &&
        (ir_attr_int(n, IR_ATTR_TRANS_A) || ir_tensor(rw->graph, n->inputs[1])->shape.rank != 2))
        return false;
    return weighted_has_constants(rw, node) &&
           ir_tensor(rw->graph, n->inputs[1])->bytes <= rw->room;
}

/* The weights as [outs, ins, inner], for output channel o and input channel c. */
struct matrix {
    size_t outs, ins, inner;
    size_t o_step, c_step;
    size_t per_group; /* output channels of a group; group g reads input channels g * ins and up */
};

static bool matrix_of(const struct rewrite *rw, const struct weighted *w, struct matrix *out)
{
    const struct ir_node *n = ir_node(rw->graph, w->node);
    const struct shape *s = &ir_tensor(rw->graph, n->inputs[1])->shape;
    size_t total;
    if (!shape_elements(s, &total) || total == 0)
        return false;
    if (n->op == IR_OP_MATMUL) {
        bool transposed = ir_attr_int(n, IR_ATTR_TRANS_B);
        size_t outs = total / w->channels;
        *out = (struct matrix){
            outs, w->channels, 1, transposed ? w->channels : 1, transposed ? 1 : outs, outs};
        return true;
    }
    size_t outs = (size_t)s->dim[0], ins = (size_t)s->dim[1], inner = total / outs / ins;
    *out = (struct matrix){outs, ins, inner, ins * inner, inner, outs / (w->channels / ins)};
    return true;
}

void weighted_scale_input(struct rewrite *rw, const struct weighted *w, const float *scale)
{
    struct ir_tensor t = *ir_tensor(rw->graph, rw_input(rw, w->node, 1));
    struct matrix m;
    void *data;
    if (!matrix_of(rw, w, &m))
        return;
    uint32_t made = rw_add_constant(rw, t.name, t.dtype, &t.shape, &data);
    if (made == IR_NONE)
        return;
    rw->room -= MIN(t.bytes, rw->room);
    for (size_t o = 0; o < m.outs; o++)
        for (size_t c = 0; c < m.ins; c++) {
            size_t at = o * m.o_step + c * m.c_step;
            float factor = scale[o / m.per_group * m.ins + c];
            for (size_t end = at + m.inner; at < end; at++)
                float_put(data, t.dtype, at, float_get(t.data, t.dtype, at) * factor);
        }
    rw_set_input(rw, w->node, 1, made);
}

bool weighted_can_shift_input(const struct rewrite *rw, const struct weighted *w)
{
    const struct ir_node *n = ir_node(rw->graph, w->node);
    const struct ir_attr *pads = ir_attr(n, IR_ATTR_PADS);
    for (uint32_t i = 0; n->op == IR_OP_CONV && pads && i < pads->count; i++)
        if (pads->i[i])
            return false;
    return n->n_epilogue == 0;
}

void weighted_shift_input(struct rewrite *rw, const struct weighted *w, const float *shift)
{
    const struct ir_node *n = ir_node(rw->graph, w->node);
    const struct ir_tensor *t = ir_tensor(rw->graph, n->inputs[1]);
    double alpha = n->op == IR_OP_MATMUL ? (double)ir_attr_float(n, IR_ATTR_ALPHA) : 1;
    struct matrix m;
    if (!matrix_of(rw, w, &m))
        return;
    float *sums = calloc(m.outs, sizeof(*sums));
    if (!sums) {
        rw_fail(rw);
        return;
    }
    for (size_t o = 0; o < m.outs; o++) {
        double sum = 0;
        for (size_t c = 0; c < m.ins; c++) {
            size_t at = o * m.o_step + c * m.c_step;
            double by = (double)shift[o / m.per_group * m.ins + c];
            for (size_t end = at + m.inner; at < end; at++)
                sum += by * (double)float_get(t->data, t->dtype, at);
        }
        sums[o] = (float)(alpha * sum);
    }
    const struct weighted outputs = {w->node, 0, m.outs};
    weighted_shift(rw, &outputs, NULL, sums);
    free(sums);
}
