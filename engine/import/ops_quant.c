/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantising and dequantising as arithmetic on real numbers: per tensor, per axis, or in blocks
 * along an axis, for which the scales are repeated.
 */
#include "engine/import/ops.h"

#include <math.h>

static void check_value(struct mapper *m, double value, bool divides)
{
    if (!isfinite(value) || value < 0 || (divides && value == 0))
        map_invalid(m, "its scale is %g, expected a number above 0", value);
}

void map_check_scale(struct mapper *m, uint32_t scale, uint32_t zero, bool divides)
{
    const struct shape *ss = map_shape(m, scale), *zs = map_shape(m, zero);
    size_t n = 0, n_zero = 0;
    char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
    if (map_failed(m))
        return;
    bool alike = zero == IR_NONE || shape_equal(ss, zs) ||
                 (shape_elements(ss, &n) && shape_elements(zs, &n_zero) && n == 1 && n_zero == 1);
    if (!dtype_is_float(map_dtype(m, scale)))
        map_invalid(m, "its scale is %s, expected a float", dtype_name(map_dtype(m, scale)));
    else if (!alike)
        map_invalid(m, "its zero point is %s, its scale %s", shape_format(zs, have),
                    shape_format(ss, want));
    const struct ir_tensor *t = ir_tensor(m->graph, scale);
    if (!shape_elements(ss, &n) || !ir_tensor_is_constant(t))
        return;
    for (size_t i = 0; i < n && !map_failed(m); i++)
        check_value(m, map_element(t, i), divides);
}

uint32_t emit_shifted(struct mapper *m, uint32_t x, uint32_t zero, uint32_t axis, enum dtype to)
{
    uint32_t wide = emit_cast(m, x, to), rank = map_shape(m, x)->rank;
    if (zero == IR_NONE)
        return wide;
    return emit_binary(m, IR_BINARY_SUB, wide, emit_along(m, emit_cast(m, zero, to), axis, rank));
}

/* The range of an 8- or 16-bit type; false for other types. */
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

/* The type to compute in: fp64 stays, anything else becomes fp32, which holds all 16-bit
 * integers. */
static enum dtype real_type(enum dtype dtype)
{
    return dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
}

uint32_t emit_quantised(struct mapper *m, uint32_t scaled, uint32_t zero, enum dtype to)
{
    double low, high;
    if (map_failed(m) || !quantised_range(m, to, &low, &high))
        return IR_NONE;
    enum dtype real = real_type(map_dtype(m, scaled));
    uint32_t y = emit_cast(m, emit_unary(m, IR_UNARY_ROUND, scaled), real);
    if (zero != IR_NONE)
        y = emit_binary(m, IR_BINARY_ADD, y, emit_cast(m, zero, real));
    y = emit_unary_ab(m, IR_UNARY_CLIP, y, (float)low, (float)high);
    return emit_cast(m, y, to);
}

/* How scales and zero points belong to the elements of x. */
struct scaling {
    uint32_t axis;
    int64_t block; /* 0: one value for all, or one for each index of the axis */
};

static void read_scaling(struct mapper *m, uint32_t x, uint32_t scale, struct scaling *out)
{
    const struct shape *xs = map_shape(m, x), *ss = map_shape(m, scale);
    char text[SHAPE_TEXT_MAX];
    *out = (struct scaling){.block = map_attr_int(m, "block_size", 0)};
    if (out->block < 0)
        map_invalid(m, "attribute 'block_size' is %lld", (long long)out->block);
    if (!out->block && (ss->rank == 0 || (ss->rank == 1 && ss->dim[0] == 1)))
        return;
    out->axis = map_axis(m, map_attr_int(m, "axis", 1), xs->rank);
    if (!out->block && !map_failed(m) && (ss->rank != 1 || ss->dim[0] != xs->dim[out->axis]))
        map_invalid(m, "its scale is %s, expected a value for each of %lld along axis %u",
                    shape_format(ss, text), (long long)xs->dim[out->axis], out->axis);
    if (!out->block || map_failed(m))
        return;
    bool fits = ss->rank == xs->rank;
    for (uint32_t d = 0; fits && d < xs->rank; d++) {
        int64_t whole = xs->dim[d] / out->block, rest = xs->dim[d] % out->block != 0;
        fits = ss->dim[d] == (d == out->axis ? whole + rest : xs->dim[d]);
    }
    if (!fits)
        map_invalid(m, "its scale does not have a value for each block of %lld along axis %u",
                    (long long)out->block, out->axis);
}

/* Gives a scale or zero point a shape that broadcasts to x. */
static uint32_t emit_spread(struct mapper *m, uint32_t value, uint32_t x, const struct scaling *by)
{
    struct shape xs = *map_shape(m, x), shape = *map_shape(m, value), apart = shape;
    uint32_t axis = by->axis;
    if (value == IR_NONE || !by->block)
        return emit_along(m, value, axis, xs.rank);
    if (shape.rank != xs.rank)
        map_invalid(m, "its zero point has rank %u, expected %u", shape.rank, xs.rank);
    else if (shape.rank == SHAPE_MAX_RANK)
        map_refuse(m, "in blocks of a tensor of rank %u", shape.rank);
    if (map_failed(m))
        return IR_NONE;
    apart.rank++;
    for (uint32_t d = shape.rank; d > axis + 1; d--)
        apart.dim[d] = shape.dim[d - 1];
    apart.dim[axis + 1] = 1;
    value = emit_reshape(m, value, &apart);
    apart.dim[axis + 1] = MIN(by->block, MAX(xs.dim[axis], 1));
    value = emit_expand(m, value, &apart);
    if (__builtin_mul_overflow(shape.dim[axis], apart.dim[axis + 1], &shape.dim[axis]))
        map_invalid(m, "its blocks overflow");
    value = emit_reshape(m, value, &shape);
    return emit_slice(m, value, axis, 0, xs.dim[axis]);
}

/* The type that an attribute names; `fallback` if the attribute is absent or 0. */
static enum dtype attr_dtype(struct mapper *m, const char *name, enum dtype fallback)
{
    int64_t type = map_attr_int(m, name, 0);
    if (type && onnx_dtype(type) == DTYPE_NONE)
        map_refuse(m, "attribute '%s' is %s (%lld)", name, onnx_type_name(type), (long long)type);
    return type ? onnx_dtype(type) : fallback;
}

void map_dequantize(struct mapper *m)
{
    uint32_t x = map_in(m, 0), scale = map_in(m, 1), zero = map_in_opt(m, 2);
    enum dtype real = real_type(map_dtype(m, scale));
    enum dtype to = attr_dtype(m, "output_dtype", map_dtype(m, scale));
    struct scaling by;
    map_check_scale(m, scale, zero, false);
    read_scaling(m, x, scale, &by);
    if (zero != IR_NONE && map_dtype(m, zero) != map_dtype(m, x))
        map_invalid(m, "its zero point is %s, its input %s", dtype_name(map_dtype(m, zero)),
                    dtype_name(map_dtype(m, x)));
    zero = emit_spread(m, zero, x, &by);
    scale = emit_spread(m, scale, x, &by);
    /* fp32 does not hold all 32-bit integers */
    uint32_t y = emit_shifted(m, x, zero, 0, map_dtype(m, x) == DTYPE_I32 ? DTYPE_I64 : real);
    y = emit_binary(m, IR_BINARY_MUL, emit_cast(m, y, real), emit_cast(m, scale, real));
    map_out(m, 0, emit_cast(m, y, to));
}

void map_quantize(struct mapper *m)
{
    uint32_t x = map_in(m, 0), scale = map_in(m, 1), zero = map_in_opt(m, 2);
    enum dtype precise = attr_dtype(m, "precision", map_dtype(m, scale));
    enum dtype of_zero = zero != IR_NONE ? map_dtype(m, zero) : DTYPE_U8;
    enum dtype to = attr_dtype(m, "output_dtype", of_zero);
    struct scaling by;
    map_check_scale(m, scale, zero, true);
    read_scaling(m, x, scale, &by);
    if (zero != IR_NONE && to != of_zero)
        map_invalid(m, "its zero point is %s, its output %s", dtype_name(of_zero), dtype_name(to));
    x = emit_cast(m, x, precise);
    zero = emit_spread(m, zero, x, &by);
    scale = emit_cast(m, emit_spread(m, scale, x, &by), precise);
    map_out(m, 0, emit_quantised(m, emit_binary(m, IR_BINARY_DIV, x, scale), zero, to));
}

/* Quantises to UINT8 by a scale and a zero point that follow from the operand's own range. */
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
