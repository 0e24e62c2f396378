/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operators whose operands and result are quantised each become the operator on real numbers,
 * between DEQUANTIZE and QUANTIZE. That is what they mean, and the same as a model with such nodes
 * says. Backends that have kernels for 8 bits find them by the ranges that this gives.
 */
#include "engine/import/ops.h"

/* Reads a scale and a zero point, which lie one behind the other. */
static struct quantisation read_by(struct mapper *m, uint32_t first, uint32_t axis)
{
    return (struct quantisation){map_in(m, first), map_in_opt(m, first + 1), axis};
}

/* The real numbers of the operand `first`, which its scale and its zero point follow. */
static uint32_t read_real(struct mapper *m, uint32_t first, uint32_t axis)
{
    const struct quantisation by = read_by(m, first + 1, axis);
    return emit_dequantize(m, map_in(m, first), &by, map_dtype(m, by.scale));
}

/* Makes y the result, by the scale in operand `first` and the zero point behind it. The result has
 * the zero point's type, or without one the type of the operand `like`. */
static void write_quantised(struct mapper *m, uint32_t y, uint32_t first, uint32_t axis,
                            uint32_t like)
{
    const struct quantisation by = read_by(m, first, axis);
    enum dtype to = map_dtype(m, by.zero != IR_NONE ? by.zero : map_in(m, like));
    map_out(m, 0, emit_quantize(m, y, &by, to));
}

/* The real numbers of an INT32 bias: its scale is the product of those of both operands. */
static uint32_t read_bias(struct mapper *m, uint32_t bias, uint32_t scale_a, uint32_t scale_b,
                          int64_t channels)
{
    const struct shape *shape = map_shape(m, bias);
    char text[SHAPE_TEXT_MAX];
    if (bias == IR_NONE)
        return IR_NONE;
    if (map_dtype(m, bias) != DTYPE_I32 || shape->rank != 1 || shape->dim[0] != channels)
        map_invalid(m, "its bias is %s %s, expected INT32 [%lld]", dtype_name(map_dtype(m, bias)),
                    shape_format(shape, text), (long long)channels);
    const struct quantisation by = {emit_binary(m, IR_BINARY_MUL, scale_a, scale_b), IR_NONE, 0};
    return emit_dequantize(m, bias, &by, map_dtype(m, scale_a));
}

static void refuse_channels_last(struct mapper *m)
{
    if (map_attr_int(m, "channels_last", 0))
        map_refuse(m, "channels last");
}

void map_qlinear_conv(struct mapper *m)
{
    refuse_channels_last(m);
    uint32_t x = read_real(m, 0, 1), weights = read_real(m, 3, 0), bias = map_in_opt(m, 8);
    bias = read_bias(m, bias, map_in(m, 1), map_in(m, 4), map_shape(m, weights)->dim[0]);
    write_quantised(m, emit_conv(m, x, weights, bias), 6, 1, 0);
}

void map_qlinear_matmul(struct mapper *m)
{
    uint32_t rank_a = map_shape(m, map_in(m, 0))->rank, rank_b = map_shape(m, map_in(m, 3))->rank;
    uint32_t a = read_real(m, 0, rank_a >= 2 ? rank_a - 2 : 0);
    uint32_t y = emit_matmul_any(m, a, read_real(m, 3, rank_b ? rank_b - 1 : 0));
    uint32_t rank = map_shape(m, y)->rank;
    write_quantised(m, y, 6, rank >= 2 ? rank - 2 : 0, 0);
}

/* Y = alpha A' B' + C, where C is INT32. Without a scale of the result, Y is real. */
void map_qgemm(struct mapper *m)
{
    uint32_t scale_b = map_in(m, 4), bias = map_in_opt(m, 6),
             rank = map_shape(m, map_in(m, 3))->rank;
    int64_t trans_a = map_attr_int(m, "transA", 0) != 0;
    int64_t trans_b = map_attr_int(m, "transB", 0) != 0;
    float alpha = map_attr_float(m, "alpha", 1);
    uint32_t a = read_real(m, 0, 0), b = read_real(m, 3, trans_b ? 0 : 1);
    if (map_failed(m))
        return;
    if (rank != 2)
        map_invalid(m, "its operand B has rank %u, expected 2", rank);
    const struct shape *shape = map_shape(m, bias);
    int64_t columns = map_shape(m, b)->dim[trans_b ? 0 : 1];
    if (bias != IR_NONE && !map_failed(m) && shape->rank == 2 && shape->dim[0] == 1)
        bias = emit_reshape(m, bias, &(struct shape){.rank = 1, .dim = {shape->dim[1]}});
    bias = read_bias(m, bias, map_in(m, 1), scale_b, columns);
    uint32_t node = emit_begin(m, IR_OP_MATMUL, 2, (const uint32_t[]){a, b});
    emit_int(m, node, IR_ATTR_TRANS_A, trans_a);
    emit_int(m, node, IR_ATTR_TRANS_B, trans_b);
    uint32_t y = emit_end(m, node);
    if (bias != IR_NONE)
        y = emit_binary(m, IR_BINARY_ADD, y, bias);
    y = emit_scaled(m, y, alpha);
    if (map_in_opt(m, 7) == IR_NONE)
        map_out(m, 0, y);
    else
        write_quantised(m, y, 7, 1, 0);
}

void map_qlinear_binary(struct mapper *m)
{
    uint32_t a = read_real(m, 0, 0), b = read_real(m, 3, 0);
    write_quantised(m, emit_binary(m, (enum ir_binary)m->row->func, a, b), 6, 0, 0);
}

void map_qlinear_unary(struct mapper *m)
{
    uint32_t x = read_real(m, 0, 0), node = emit_begin(m, IR_OP_UNARY, 1, &x);
    emit_int(m, node, IR_ATTR_FUNC, m->row->func);
    if (m->row->func == IR_UNARY_LEAKY_RELU)
        emit_float(m, node, IR_ATTR_ALPHA, map_attr_float(m, "alpha", 0.01F));
    write_quantised(m, emit_end(m, node), 3, 0, 0);
}

void map_qlinear_pool(struct mapper *m)
{
    refuse_channels_last(m);
    write_quantised(m, emit_pool(m, read_real(m, 0, 1)), 3, 1, 0);
}

void map_qlinear_global_pool(struct mapper *m)
{
    refuse_channels_last(m);
    write_quantised(m, emit_global_pool(m, read_real(m, 0, 1)), 3, 1, 0);
}

/* Operands: scale and zero point of the result, then tensor, scale and zero point of each part. */
void map_qlinear_concat(struct mapper *m)
{
    uint32_t parts[IR_MAX_INPUTS] = {0}, n = map_in_count(m) / 3;
    if (map_in_count(m) % 3 != 2 || n == 0 || n > IR_MAX_INPUTS)
        map_invalid(m, "%u inputs, expected two and three for each part", map_in_count(m));
    for (uint32_t i = 0; i < n && !map_failed(m); i++)
        parts[i] = read_real(m, 2 + 3 * i, 0);
    if (map_failed(m))
        return;
    uint32_t axis = map_axis(m, map_attr_int(m, "axis", 0), map_shape(m, parts[0])->rank);
    write_quantised(m, emit_concat(m, n, parts, axis), 0, 0, 2);
}

void map_qlinear_softmax(struct mapper *m)
{
    uint32_t x = read_real(m, 0, 0), rank = map_shape(m, x)->rank;
    int64_t opset = map_attr_int(m, "opset", 13);
    uint32_t axis = map_axis(m, map_attr_int(m, "axis", opset < 13 ? 1 : -1), rank);
    if (opset < 13 && axis + 1 != rank)
        map_refuse(m, "over several axes (attribute 'opset' is %lld)", (long long)opset);
    write_quantised(m, emit_softmax(m, x, axis, false), 3, 0, 0);
}

/* condition; X, its scale and zero point; Y and its; those of the result. */
void map_qlinear_where(struct mapper *m)
{
    uint32_t x = read_real(m, 1, 0), y = read_real(m, 4, 0);
    write_quantised(m, emit_select(m, map_in(m, 0), x, y), 7, 0, 1);
}
