/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that onnxruntime's optimiser makes of several: products and convolutions with what follows
 * them, and the GELU family. Each becomes its parts again; our passes fuse what pays here.
 */
#include "engine/import/ops.h"

#include <string.h>

/* --- activations --- */

/* The values of the attribute `activation`, and how many parameters each has; `first` and `second`
 * stand for parameters that the file leaves out. */
static const struct activation {
    const char *name;
    enum ir_unary func;
    uint32_t n_parameters;
    float first, second;
} activations[] = {
    {"Relu", IR_UNARY_RELU, 0, 0, 0},
    {"Tanh", IR_UNARY_TANH, 0, 0, 0},
    {"Sigmoid", IR_UNARY_SIGMOID, 0, 0, 0},
    {"LeakyRelu", IR_UNARY_LEAKY_RELU, 1, 0.01F, 0},
    {"Clip", IR_UNARY_CLIP, 2, -3.402823466e38F, 3.402823466e38F},
    {"HardSigmoid", IR_UNARY_HARD_SIGMOID, 2, 0.2F, 0.5F},
    {"HardSwish", IR_UNARY_HARD_SWISH, 0, 0, 0},
    {"Elu", IR_UNARY_ELU, 1, 1, 0},
    {"Celu", IR_UNARY_CELU, 1, 1, 0},
    {"ThresholdedRelu", IR_UNARY_THRESHOLDED_RELU, 1, 1, 0},
    {"Softplus", IR_UNARY_SOFTPLUS, 0, 0, 0},
    {"Softsign", IR_UNARY_SOFTSIGN, 0, 0, 0},
};

/* Applies the function that the attribute `activation` names, with these parameters. */
static uint32_t emit_activation(struct mapper *m, uint32_t x, uint32_t n_given, const float *given)
{
    const char *names[ARRAY_LEN(activations)];
    for (uint32_t i = 0; i < ARRAY_LEN(activations); i++)
        names[i] = activations[i].name;
    if (map_failed(m) || !map_attr(m, "activation") || map_attr_is(m, "activation", "", ""))
        return x;
    const struct activation *a =
        &activations[map_attr_named(m, "activation", names, ARRAY_LEN(names), "")];
    if (!a->n_parameters)
        return emit_unary(m, a->func, x);
    float first = n_given ? given[0] : a->first, second = n_given > 1 ? given[1] : a->second;
    uint32_t node = emit_begin(m, IR_OP_UNARY, 1, &x);
    emit_int(m, node, IR_ATTR_FUNC, a->func);
    emit_float(m, node, IR_ATTR_ALPHA, first);
    if (a->n_parameters > 1)
        emit_float(m, node, IR_ATTR_BETA, second);
    return emit_end(m, node);
}

/* Y = activation(Conv(X, W, B) + Z) */
void map_fused_conv(struct mapper *m)
{
    uint32_t x = map_in(m, 0), weights = map_in(m, 1), bias = map_in_opt(m, 2);
    uint32_t z = map_in_opt(m, 3), y = emit_conv(m, x, weights, bias);
    const struct onnx_attr *given = map_failed(m) ? NULL : map_attr(m, "activation_params");
    if (z != IR_NONE && !map_failed(m) && !shape_equal(map_shape(m, z), map_shape(m, y)))
        map_invalid(m, "Z has another shape than the result");
    if (z != IR_NONE)
        y = emit_binary(m, IR_BINARY_ADD, y, z);
    map_out(m, 0, emit_activation(m, y, given ? given->n_floats : 0, given ? given->floats : NULL));
}

void map_fused_gemm(struct mapper *m)
{
    uint32_t y = emit_gemm(m);
    bool both = !map_failed(m) && map_attr(m, "activation_beta");
    const float given[] = {map_attr_float(m, "activation_alpha", 0),
                           map_attr_float(m, "activation_beta", 0)};
    uint32_t n = both ? 2 : !map_failed(m) && map_attr(m, "activation_alpha");
    map_out(m, 0, emit_activation(m, y, n, given));
}

/* Moves the first dimension behind the other ones of the batch: [M,b..,K] is [b..,M,K]. */
static uint32_t batch_first(struct mapper *m, uint32_t x)
{
    int64_t perm[SHAPE_MAX_RANK];
    uint32_t rank = map_shape(m, x)->rank;
    for (uint32_t d = 0; d < rank; d++)
        perm[d] = d + 1 == rank ? d : d + 2 == rank ? 0 : d + 1;
    return rank > 2 ? emit_transpose(m, x, rank, perm) : x;
}

void map_fused_matmul(struct mapper *m)
{
    uint32_t a = map_in(m, 0), b = map_in(m, 1), y;
    float alpha = map_attr_float(m, "alpha", 1);
    if (map_attr_int(m, "transBatchA", 0))
        a = batch_first(m, a);
    if (map_attr_int(m, "transBatchB", 0))
        b = batch_first(m, b);
    int64_t trans_a = map_attr_int(m, "transA", 0) != 0,
            trans_b = map_attr_int(m, "transB", 0) != 0;
    if (map_shape(m, a)->rank < 2 || map_shape(m, b)->rank < 2) {
        y = emit_matmul_any(m, a, b); /* nothing of a vector is transposed */
    } else {
        uint32_t node = emit_begin(m, IR_OP_MATMUL, 2, (const uint32_t[]){a, b});
        emit_int(m, node, IR_ATTR_TRANS_A, trans_a);
        emit_int(m, node, IR_ATTR_TRANS_B, trans_b);
        y = emit_end(m, node);
    }
    map_out(m, 0, emit_scaled(m, y, alpha));
}

/* --- GELU --- */

/* Applies the row's function to A + B, where B may be absent. */
void map_biased(struct mapper *m)
{
    uint32_t x = map_in(m, 0), bias = map_in_opt(m, 1);
    if (bias != IR_NONE)
        x = emit_binary(m, IR_BINARY_ADD, x, bias);
    map_out(m, 0, emit_unary(m, (enum ir_unary)m->row->func, x));
}

void map_quick_gelu(struct mapper *m)
{
    uint32_t x = map_in(m, 0), node = emit_begin(m, IR_OP_UNARY, 1, &x);
    emit_int(m, node, IR_ATTR_FUNC, IR_UNARY_SWISH);
    emit_float(m, node, IR_ATTR_ALPHA, map_attr_float(m, "alpha", 1.702F));
    map_out(m, 0, emit_end(m, node));
}

void map_bias_add(struct mapper *m)
{
    uint32_t x = map_in(m, 0), bias = map_in(m, 1), skip = map_in(m, 2);
    x = emit_binary(m, IR_BINARY_ADD, x, bias);
    map_out(m, 0, emit_binary(m, IR_BINARY_ADD, x, skip));
}

/* The first half of X + bias, times the GELU of the second half. */
void map_bias_split_gelu(struct mapper *m)
{
    uint32_t x = map_in(m, 0), bias = map_in(m, 1), rank = map_shape(m, x)->rank;
    x = emit_binary(m, IR_BINARY_ADD, x, bias);
    int64_t width = !map_failed(m) && rank ? map_shape(m, x)->dim[rank - 1] : 0;
    if (!map_failed(m) && (!rank || width % 2))
        map_invalid(m, "its last dimension, %lld, has no two halves", (long long)width);
    if (map_failed(m))
        return;
    uint32_t left = emit_slice(m, x, rank - 1, 0, width / 2);
    uint32_t right = emit_slice(m, x, rank - 1, width / 2, width);
    map_out(m, 0, emit_binary(m, IR_BINARY_MUL, left, emit_unary(m, IR_UNARY_GELU, right)));
}
