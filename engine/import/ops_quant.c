/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantised ops, as arithmetic on real numbers. Integer products and sums are taken in fp64, which
 * holds them exactly, so that the only rounding is the one that the op is about.
 */
#include "engine/import/ops.h"

uint32_t emit_shifted(struct mapper *m, uint32_t x, uint32_t zero, uint32_t axis, enum dtype to)
{
    uint32_t wide = emit_cast(m, x, to), rank = map_shape(m, x)->rank;
    if (zero == IR_NONE)
        return wide;
    return emit_binary(m, IR_BINARY_SUB, wide, emit_along(m, emit_cast(m, zero, to), axis, rank));
}

/* The numbers that an 8- or 16-bit type holds; false for others. */
static bool quantised_range(struct mapper *m, enum dtype dtype, double *low, double *high)
{
    static const struct {
        enum dtype dtype;
        double low, high;
    } rows[] = {{DTYPE_U8, 0, 255},
                {DTYPE_I8, -128, 127},
                {DTYPE_U16, 0, 65535},
                {DTYPE_I16, -32768, 32767}};
    for (uint32_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].dtype == dtype) {
            *low = rows[i].low;
            *high = rows[i].high;
            return true;
        }
    }
    map_refuse(m, "quantised to %s", dtype_name(dtype));
    return false;
}

/* Rounds half to even, adds the zero point, saturates. */
static uint32_t emit_quantised(struct mapper *m, uint32_t scaled, uint32_t zero, enum dtype to)
{
    double low, high;
    if (map_failed(m) || !quantised_range(m, to, &low, &high))
        return IR_NONE;
    enum dtype dtype = map_dtype(m, scaled);
    uint32_t y = emit_unary(m, IR_UNARY_ROUND, scaled);
    if (zero != IR_NONE)
        y = emit_binary(m, IR_BINARY_ADD, y, emit_cast(m, zero, dtype));
    y = emit_unary_ab(m, IR_UNARY_CLIP, y, (float)low, (float)high);
    return emit_cast(m, y, to);
}

/* Where a scale of more than one value lies. */
static uint32_t quantised_axis(struct mapper *m, uint32_t x, uint32_t scale)
{
    uint32_t rank = map_shape(m, x)->rank;
    if (map_attr_int(m, "block_size", 0))
        map_refuse(m, "in blocks");
    if (map_shape(m, scale)->rank != 1 || map_shape(m, scale)->dim[0] == 1)
        return 0;
    return map_axis(m, map_attr_int(m, "axis", 1), rank);
}

void map_dequantize(struct mapper *m)
{
    uint32_t x = map_in(m, 0), scale = map_in(m, 1), zero = map_in_opt(m, 2);
    uint32_t axis = quantised_axis(m, x, scale);
    uint32_t centred = emit_shifted(m, x, zero, axis, map_dtype(m, scale));
    scale = emit_along(m, scale, axis, map_shape(m, x)->rank);
    map_out(m, 0, emit_binary(m, IR_BINARY_MUL, centred, scale));
}

void map_quantize(struct mapper *m)
{
    uint32_t x = map_in(m, 0), scale = map_in(m, 1), zero = map_in_opt(m, 2);
    uint32_t axis = quantised_axis(m, x, scale), rank = map_shape(m, x)->rank;
    enum dtype to = zero != IR_NONE ? map_dtype(m, zero)
                                    : onnx_dtype(map_attr_int(m, "output_dtype", ONNX_UINT8));
    if (!map_failed(m) && !dtype_is_float(map_dtype(m, x)))
        x = emit_cast(m, x, map_dtype(m, scale));
    uint32_t scaled = emit_binary(m, IR_BINARY_DIV, x, emit_along(m, scale, axis, rank));
    if (zero != IR_NONE)
        zero = emit_along(m, zero, axis, rank);
    map_out(m, 0, emit_quantised(m, scaled, zero, to));
}

/* UINT8, with the scale and zero point that the operand's own range asks for. */
void map_dynamic_quantize(struct mapper *m)
{
    uint32_t x = map_in(m, 0);
    struct ints all = {.n = map_shape(m, x)->rank};
    enum dtype dtype = map_dtype(m, x);
    for (uint32_t d = 0; d < all.n; d++)
        all.v[d] = d;
    uint32_t nought = emit_scalar(m, dtype, 0), steps = emit_scalar(m, dtype, 255);
    uint32_t low = emit_reduce(m, IR_REDUCE_MIN, x, &all, false);
    uint32_t high = emit_reduce(m, IR_REDUCE_MAX, x, &all, false);
    low = emit_binary(m, IR_BINARY_MIN, low, nought);
    high = emit_binary(m, IR_BINARY_MAX, high, nought);
    uint32_t scale = emit_binary(m, IR_BINARY_DIV, emit_binary(m, IR_BINARY_SUB, high, low), steps);
    uint32_t start = emit_binary(m, IR_BINARY_DIV, emit_unary(m, IR_UNARY_NEG, low), scale);
    uint32_t zero = emit_quantised(m, start, IR_NONE, DTYPE_U8);
    uint32_t scaled = emit_binary(m, IR_BINARY_DIV, x, scale);
    map_out(m, 0, emit_quantised(m, scaled, zero, DTYPE_U8));
    map_out(m, 1, scale);
    map_out(m, 2, zero);
}

/* acc * (a b / y), quantised; b may have a value for each index of `axis`. */
static uint32_t emit_requantised(struct mapper *m, uint32_t acc, const uint32_t *scales,
                                 uint32_t axis, uint32_t zero)
{
    uint32_t rank = map_shape(m, acc)->rank, wide[3];
    for (uint32_t i = 0; i < 3; i++)
        wide[i] = emit_along(m, emit_cast(m, scales[i], DTYPE_F64), axis, rank);
    uint32_t scale = emit_binary(m, IR_BINARY_MUL, wide[0], wide[1]);
    scale = emit_binary(m, IR_BINARY_DIV, scale, wide[2]);
    uint32_t scaled = emit_binary(m, IR_BINARY_MUL, acc, scale);
    return emit_quantised(m, scaled, zero, map_dtype(m, zero));
}

void map_qlinear_matmul(struct mapper *m)
{
    uint32_t in[8];
    for (uint32_t i = 0; i < ARRAY_LEN(in); i++)
        in[i] = map_in(m, i);
    uint32_t rank_a = map_shape(m, in[0])->rank, rank_b = map_shape(m, in[3])->rank;
    for (uint32_t i = 1; i < ARRAY_LEN(in); i++) {
        if (i != 3 && map_shape(m, in[i])->rank == 1 && map_shape(m, in[i])->dim[0] != 1)
            map_refuse(m, "with a scale for each row or column");
    }
    uint32_t a = emit_shifted(m, in[0], in[2], rank_a ? rank_a - 1 : 0, DTYPE_F64);
    uint32_t b = emit_shifted(m, in[3], in[5], rank_b ? rank_b - 1 : 0, DTYPE_F64);
    uint32_t acc = emit_matmul_any(m, a, b);
    map_out(m, 0, emit_requantised(m, acc, (const uint32_t[]){in[1], in[4], in[6]}, 0, in[7]));
}

void map_qlinear_conv(struct mapper *m)
{
    uint32_t in[8], bias = map_in_opt(m, 8);
    for (uint32_t i = 0; i < ARRAY_LEN(in); i++)
        in[i] = map_in(m, i);
    uint32_t x = emit_shifted(m, in[0], in[2], 1, DTYPE_F64);
    uint32_t weights = emit_shifted(m, in[3], in[5], 0, DTYPE_F64);
    if (bias != IR_NONE)
        bias = emit_cast(m, bias, DTYPE_F64);
    uint32_t acc = emit_conv(m, x, weights, bias);
    map_out(m, 0, emit_requantised(m, acc, (const uint32_t[]){in[1], in[4], in[6]}, 1, in[7]));
}

/* Integers in, INT32 out. */
void map_conv_integer(struct mapper *m)
{
    uint32_t x = map_in(m, 0), weights = map_in(m, 1);
    x = emit_shifted(m, x, map_in_opt(m, 2), 1, DTYPE_F64);
    weights = emit_shifted(m, weights, map_in_opt(m, 3), 0, DTYPE_F64);
    map_out(m, 0, emit_cast(m, emit_conv(m, x, weights, IR_NONE), DTYPE_I32));
}

void map_matmul_integer(struct mapper *m)
{
    uint32_t a = map_in(m, 0), b = map_in(m, 1);
    uint32_t rank_a = map_shape(m, a)->rank, rank_b = map_shape(m, b)->rank;
    a = emit_shifted(m, a, map_in_opt(m, 2), rank_a >= 2 ? rank_a - 2 : 0, DTYPE_F64);
    b = emit_shifted(m, b, map_in_opt(m, 3), rank_b >= 1 ? rank_b - 1 : 0, DTYPE_F64);
    map_out(m, 0, emit_cast(m, emit_matmul_any(m, a, b), DTYPE_I32));
}
