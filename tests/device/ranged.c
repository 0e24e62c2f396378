/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/device/ranged.h"

#include <math.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/quant/weights.h"
#include "engine/stored.h"
#include "kernels/cpu/ref.h"
#include "tests/device/make.h"

static size_t elements(const struct shape *shape)
{
    size_t n;
    return shape_elements(shape, &n) ? n : 0;
}

static float rounded(const struct ir_scale *scale, float value, float step, float zero)
{
    float least = (float)stored_least(stored_type(scale));
    if (scale->dtype == DTYPE_F8)
        return f8_to_f32(f32_to_f8(value / step)) * step;
    return (fminf(fmaxf(rintf(value / step) + zero, least), least + 255) - zero) * step;
}

static enum status give(struct ir_graph *g, uint32_t tensor, enum dtype dtype, float step,
                        int32_t zero, struct error *err)
{
    const struct ir_scale scale = {
        .n = 1, .dtype = dtype, .step = &step, .zero = zero ? &zero : NULL};
    uint32_t row = ir_scale_add(g, &scale);
    if (row == IR_NO_SCALE)
        return error_no_memory(err, "a test");
    ir_tensor(g, tensor)->range = row;
    return STATUS_OK;
}

void ranged_round(const struct ir_scale *scale, const struct shape *shape, float *values)
{
    size_t n = elements(shape), inner = 1;
    for (uint32_t d = scale->axis + 1; scale->n > 1 && d < shape->rank; d++)
        inner *= (size_t)shape->dim[d];
    for (size_t i = 0; i < n; i++) {
        size_t k = scale->n > 1 ? i / inner % scale->n : 0;
        float zero = scale->zero ? (float)scale->zero[k] : 0;
        values[i] = rounded(scale, values[i], scale->step[k], zero);
    }
}

/* The distance of FP8's numbers around the value, in its steps; at least about what sums lose,
 * which have larger numbers in them. */
static double spacing(double value)
{
    int exponent = 0;
    frexp(fmin(fabs(value), (double)DTYPE_F8_MAX), &exponent);
    return fmax(ldexp(1, exponent - 4), 0.25);
}

double ranged_error(const struct ir_scale *scale, enum dtype dtype, const float *have,
                    const float *want, size_t n)
{
    double worst = 0, step = (double)scale->step[0], zero = scale->zero ? scale->zero[0] : 0;
    double low = (stored_least(dtype) - zero) * step, high = low + 255 * step;
    if (dtype == DTYPE_F8) {
        high = step * (double)DTYPE_F8_MAX;
        low = -high;
    }
    for (size_t i = 0; i < n; i++) {
        double wanted = fmin(fmax((double)want[i], low), high);
        double unit = dtype == DTYPE_F8 ? step * spacing(wanted / step) : step;
        double off = fabs((double)have[i] - wanted) / unit - 0.5;
        worst = isnan(off) ? INFINITY : fmax(worst, off);
    }
    return worst;
}

/* What two nodes were before has one type, as kernels for both want it. */
static bool has_one_type(const struct ir_node *node)
{
    return node->op == IR_OP_CONV_PAIR || node->op == IR_OP_CONV_CHAIN;
}

/* `seed` of the case, and `number` of the tensor. Half of the cases are symmetric and signed, as
 * all kernels take them. What has one type begins at 0 half of the time, as behind a ReLU: there
 * are kernels for nothing else. */
static enum status give_any(struct ir_graph *g, uint32_t tensor, float step, uint64_t seed,
                            uint64_t number, enum dtype bytes, struct error *err)
{
    if (bytes == DTYPE_F8)
        return give(g, tensor, DTYPE_F8, step, 0, err);
    uint64_t random = seed + (has_one_type(ir_node(g, 0)) ? 0 : number);
    bool plain = chance(&random, 50) || seed == 0, sign = chance(&random, 50);
    int32_t zero = (int32_t)between(&random, -20, 20);
    if (has_one_type(ir_node(g, 0)) && chance(&random, 50))
        zero = -128;
    if (plain)
        return give(g, tensor, DTYPE_I8, step, 0, err);
    return give(g, tensor, sign ? DTYPE_I8 : DTYPE_U8, step, sign ? zero : zero + 128, err);
}

/* Rounds the case's own numbers, in its arena. */
static void round_constant(struct ir_graph *g, uint32_t constant, bool made)
{
    struct ir_tensor *w = ir_tensor(g, constant);
    if (made && w->dtype == DTYPE_F32)
        ranged_round(ir_scale(g, w->range), &w->shape, (float *)(uintptr_t)w->data);
}

/* As the convolutions had it before they became one node. */
static enum status round_all(struct ir_graph *g, enum dtype bytes, uint32_t n, const uint32_t *at,
                             struct error *err)
{
    const struct ir_node *node = ir_node(g, 0);
    for (uint32_t i = 0; i < n; i++) {
        bool made = false;
        if (at[i] >= node->n_inputs || node->inputs[at[i]] == IR_NONE)
            continue;
        TRY(quant_constant_range(g, node->inputs[at[i]], 0, bytes, &made, err));
        round_constant(g, node->inputs[at[i]], made);
    }
    return STATUS_OK;
}

static enum status round_weights(struct ir_graph *g, enum dtype bytes, struct error *err)
{
    static const uint32_t of_pair[] = {1, IR_PAIR_W2}, of_chain[] = {1, IR_CHAIN_NEXT, IR_CHAIN_W2};
    const struct ir_node *node = ir_node(g, 0);
    uint32_t data = quant_product_data(g, node);
    bool made = false;
    if (node->op == IR_OP_CONV_PAIR)
        return round_all(g, bytes, ARRAY_LEN(of_pair), of_pair, err);
    if (node->op == IR_OP_CONV_CHAIN)
        return round_all(g, bytes, ARRAY_LEN(of_chain), of_chain, err);
    if (data == IR_NONE)
        return STATUS_OK;
    TRY(quant_weights_range(g, 0, bytes, &made, err));
    round_constant(g, node->inputs[1 - data], made);
    return STATUS_OK;
}

enum status ranged_inputs(struct ir_graph *g, uint64_t seed, enum dtype bytes, struct error *err)
{
    const struct ir_node *node = ir_node(g, 0);
    bool same = ir_op_has(node->op, IR_TRAIT_MOVES); /* what moves has one range */
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        if (ir_tensor(g, g->inputs[i])->dtype != DTYPE_F32)
            continue;
        uint32_t own = node->op == IR_OP_QUANTIZE ? ir_quant_scale(g, node) : IR_NO_SCALE;
        const struct ir_scale *scale = ir_scale(g, own);
        if (scale && scale->n == 1)
            ir_tensor(g, g->inputs[i])->range = own;
        else
            TRY(give_any(g, g->inputs[i], 1.0F / 64, seed, seed && !same ? i : 0, bytes, err));
    }
    return round_weights(g, bytes, err);
}

enum status ranged_output(struct ir_graph *g, uint32_t output, const float *values, uint64_t seed,
                          enum dtype bytes, struct error *err)
{
    struct ir_tensor *y = ir_tensor(g, output);
    float most = 0;
    if (y->dtype != DTYPE_F32)
        return STATUS_OK;
    y->range = ir_range_follows(g, ir_node(g, 0));
    const struct ir_scale *scale = ir_scale(g, y->range);
    if (scale && scale->n == 1)
        return STATUS_OK;
    for (size_t i = 0; i < elements(&y->shape); i++)
        most = isfinite(values[i]) ? fmaxf(most, fabsf(values[i])) : most;
    return give_any(g, output, exp2f(floorf(log2f(fmaxf(most, 1e-3F) / 100))), seed, seed ? 77 : 0,
                    bytes, err);
}

bool ranged_follows(const struct ir_graph *g, uint32_t output)
{
    return ir_node(g, 0)->op == IR_OP_CONV_CHAIN && output == 1;
}

static struct tensor_view view_of(const struct ir_graph *g, uint32_t tensor, const void *data)
{
    const struct ir_tensor *t = ir_tensor(g, tensor);
    return (struct tensor_view){t->dtype, t->shape, (void *)(uintptr_t)(data ? data : t->data)};
}

void ranged_follow(const struct ir_graph *g, const float *first, float *values)
{
    const struct ir_node *node = ir_node(g, 0);
    const struct ref_window one = {
        .rank = 2, .kernel = {1, 1}, .strides = {1, 1}, .dilations = {1, 1}};
    bool biased = node->n_inputs > IR_CHAIN_NEXT_BIAS;
    const struct tensor_view y = view_of(g, node->outputs[0], first),
                             t = view_of(g, node->outputs[1], values),
                             v = view_of(g, node->inputs[IR_CHAIN_NEXT], NULL),
                             a = biased ? view_of(g, node->inputs[IR_CHAIN_NEXT_BIAS], NULL) : v;
    ref_conv(&one, 1, &y, &v, biased ? &a : NULL, &t);
    for (size_t i = 0; i < elements(&t.shape); i++)
        if (ir_attr_at(node, IR_ATTR_FUNCS, 1) == IR_UNARY_RELU)
            values[i] = fmaxf(values[i], 0);
}

enum status ranged_copy(const struct ir_graph *from, struct ir_graph *to, struct error *err)
{
    for (uint32_t i = 0; i < from->n_tensors; i++) {
        const struct ir_scale *scale = ir_scale(from, ir_tensor(from, i)->range);
        struct ir_tensor *t = ir_tensor(to, i);
        if (!scale)
            continue;
        t->range = ir_scale_add(to, scale);
        if (t->range == IR_NO_SCALE)
            return error_no_memory(err, "a test");
        if (t->data)
            memcpy((void *)(uintptr_t)t->data, ir_tensor(from, i)->data, t->bytes);
    }
    return STATUS_OK;
}
