/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Quantising and dequantising. With one scale, or one for each index of an axis, a node of ours
 * does either. Scales in blocks, or of another shape that broadcasts, become arithmetic on real
 * numbers.
 */
#include "engine/import/ops.h"

#include <math.h>

/* What a scale may be. */
enum signs { ABOVE_0, ANY_SIGN };

static void check_value(struct mapper *m, double value, enum signs signs)
{
    if (!isfinite(value) || (value <= 0 && signs == ABOVE_0))
        map_invalid(m, "its scale is %g, expected a number%s", value,
                    signs == ABOVE_0 ? " above 0" : "");
}

static void check_scale(struct mapper *m, uint32_t scale, uint32_t zero, enum signs signs)
{
    const struct shape *ss = map_shape(m, scale), *zs = map_shape(m, zero);
    size_t n = 0, n_zero = 0;
    char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
    if (map_failed(m))
        return;
    bool alike = zero == IR_NONE || shape_equal(ss, zs) ||
                 (shape_elements(ss, &n) && shape_elements(zs, &n_zero) &&
                  ((n == 1 && n_zero == 1) || (ss->rank <= 1 && (n == 1 || n_zero == 1))));
    if (!dtype_is_float(map_dtype(m, scale)))
        map_invalid(m, "its scale is %s, expected a float", dtype_name(map_dtype(m, scale)));
    else if (!alike)
        map_invalid(m, "its zero point is %s, its scale %s", shape_format(zs, have),
                    shape_format(ss, want));
    const struct ir_tensor *t = ir_tensor(m->graph, scale);
    if (!shape_elements(ss, &n) || !ir_tensor_is_constant(t))
        return;
    for (size_t i = 0; i < n && !map_failed(m); i++)
        check_value(m, map_element(t, i), signs);
}

void map_check_scale(struct mapper *m, uint32_t scale, uint32_t zero)
{
    check_scale(m, scale, zero, ABOVE_0);
}

uint32_t emit_shifted(struct mapper *m, uint32_t x, uint32_t zero, uint32_t axis, enum dtype to)
{
    uint32_t wide = emit_cast(m, x, to), rank = map_shape(m, x)->rank;
    if (zero == IR_NONE)
        return wide;
    return emit_binary(m, IR_BINARY_SUB, wide, emit_along(m, emit_cast(m, zero, to), axis, rank));
}

/* The type to compute in: fp64 stays, anything else becomes fp32, which holds all 16-bit
 * integers. */
static enum dtype real_type(enum dtype dtype)
{
    return dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
}

/* The limits of an 8- or 16-bit type; false for other types. */
static bool quantised_range(struct mapper *m, enum dtype dtype, double *low, double *high)
{
    static const struct {
        enum dtype dtype;
        double low, high;
    } rows[] = {{DTYPE_U8, 0, 255},
                {DTYPE_I8, -128, 127},
                {DTYPE_U16, 0, 65535},
                {DTYPE_I16, -32768, 32767},
                {DTYPE_F8, -DTYPE_F8_MAX, DTYPE_F8_MAX}};
    for (uint32_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (rows[i].dtype == dtype) {
            *low = rows[i].low;
            *high = rows[i].high;
            return true;
        }
    }
    map_refuse(m, "quantised to %s, expected INT8, UINT8, INT16, UINT16 or FP8", dtype_name(dtype));
    return false;
}

/* Rounds x / scale half to even, adds the zero point, saturates. */
static uint32_t quantize_by_parts(struct mapper *m, uint32_t x, uint32_t scale, uint32_t zero,
                                  enum dtype to)
{
    double low, high;
    enum dtype real = real_type(map_dtype(m, scale));
    if (map_failed(m) || !quantised_range(m, to, &low, &high))
        return IR_NONE;
    x = emit_binary(m, IR_BINARY_DIV, emit_cast(m, x, map_dtype(m, scale)), scale);
    if (to == DTYPE_F8)
        return emit_cast(m, x, to);
    uint32_t y = emit_cast(m, emit_unary(m, IR_UNARY_ROUND, x), real);
    if (zero != IR_NONE)
        y = emit_binary(m, IR_BINARY_ADD, y, emit_cast(m, zero, real));
    y = emit_unary_ab(m, IR_UNARY_CLIP, y, (float)low, (float)high);
    return emit_cast(m, y, to);
}

static uint32_t dequantize_by_parts(struct mapper *m, uint32_t x, uint32_t scale, uint32_t zero,
                                    enum dtype to)
{
    enum dtype real = real_type(map_dtype(m, scale));
    /* fp32 does not hold all 32-bit integers */
    uint32_t y = emit_shifted(m, x, zero, 0, map_dtype(m, x) == DTYPE_I32 ? DTYPE_I64 : real);
    y = emit_binary(m, IR_BINARY_MUL, emit_cast(m, y, real), emit_cast(m, scale, real));
    return emit_cast(m, y, to);
}

static bool is_single(const struct mapper *m, uint32_t tensor)
{
    size_t n;
    return tensor != IR_NONE && shape_elements(map_shape(m, tensor), &n) && n == 1;
}

/* Gives scale and zero point one shape: a scalar, or a vector along the axis. False, with what can
 * be done done: they have another shape. */
static bool align(struct mapper *m, uint32_t x, uint32_t axis, uint32_t *scale, uint32_t *zero)
{
    const struct shape scalar = {.rank = 0}, *xs = map_shape(m, x);
    bool none = *zero == IR_NONE, one = is_single(m, *scale);
    if (one && (none || is_single(m, *zero))) {
        *scale = emit_reshape(m, *scale, &scalar);
        *zero = none ? IR_NONE : emit_reshape(m, *zero, &scalar);
        return true;
    }
    const struct shape each = *map_shape(m, one ? *zero : *scale);
    if (each.rank != 1 || axis >= xs->rank || each.dim[0] != xs->dim[axis])
        return false;
    *scale = emit_expand(m, *scale, &each);
    *zero = none ? IR_NONE : emit_expand(m, *zero, &each);
    return true;
}

/* Makes a node of ours; its range is set when it is folded, or by a pass. */
static uint32_t emit_scaling(struct mapper *m, enum ir_op op, const uint32_t *inputs, uint32_t axis,
                             enum dtype to)
{
    uint32_t node = emit_begin(m, op, inputs[2] == IR_NONE ? 2 : 3, inputs);
    emit_int(m, node, IR_ATTR_TO, to);
    if (map_shape(m, inputs[1])->rank)
        emit_int(m, node, IR_ATTR_AXIS, axis);
    return emit_end(m, node);
}

/* A node of ours has scales above 0 only. */
static uint32_t dequantize(struct mapper *m, uint32_t x, const struct quantisation *by,
                           enum dtype to, enum signs signs)
{
    uint32_t scale = by->scale, zero = by->zero;
    enum dtype dtype = map_dtype(m, x);
    check_scale(m, scale, zero, signs);
    if (zero != IR_NONE && map_dtype(m, zero) != dtype)
        map_invalid(m, "its zero point is %s, its input %s", dtype_name(map_dtype(m, zero)),
                    dtype_name(dtype));
    if (map_failed(m))
        return IR_NONE;
    if (signs == ABOVE_0 && !dtype_is_float(dtype) && align(m, x, by->axis, &scale, &zero))
        return emit_scaling(m, IR_OP_DEQUANTIZE, (const uint32_t[]){x, scale, zero}, by->axis, to);
    uint32_t rank = map_shape(m, x)->rank;
    scale = emit_along(m, scale, by->axis, rank);
    return dequantize_by_parts(m, x, scale, emit_along(m, zero, by->axis, rank), to);
}

uint32_t emit_dequantize(struct mapper *m, uint32_t x, const struct quantisation *by, enum dtype to)
{
    return dequantize(m, x, by, to, ABOVE_0);
}

uint32_t emit_quantize(struct mapper *m, uint32_t x, const struct quantisation *by, enum dtype to)
{
    uint32_t scale = by->scale, zero = by->zero;
    double low, high;
    map_check_scale(m, scale, zero);
    if (zero != IR_NONE && map_dtype(m, zero) != to)
        map_invalid(m, "its zero point is %s, its output %s", dtype_name(map_dtype(m, zero)),
                    dtype_name(to));
    if (map_failed(m) || !quantised_range(m, to, &low, &high))
        return IR_NONE;
    if (!dtype_is_float(map_dtype(m, x)) ||
        dtype_size(map_dtype(m, x)) > dtype_size(map_dtype(m, scale)))
        x = emit_cast(m, x, map_dtype(m, scale));
    if (align(m, x, by->axis, &scale, &zero))
        return emit_scaling(m, IR_OP_QUANTIZE, (const uint32_t[]){x, scale, zero}, by->axis, to);
    uint32_t rank = map_shape(m, x)->rank;
    scale = emit_along(m, scale, by->axis, rank);
    return quantize_by_parts(m, x, scale, emit_along(m, zero, by->axis, rank), to);
}

/* --- operators --- */

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
        return value;
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
    if (type && onnx_dtype_inside(type) == DTYPE_NONE)
        map_refuse(m, "attribute '%s' is %s (%lld)", name, onnx_type_name(type), (long long)type);
    return type ? onnx_dtype_inside(type) : fallback;
}

/* The zero points of 8-bit floats say nothing. */
static uint32_t drop_zero(struct mapper *m, uint32_t zero, enum dtype of)
{
    size_t n = 0;
    if (map_failed(m) || zero == IR_NONE || map_dtype(m, zero) != DTYPE_F8 || of != DTYPE_F8)
        return zero;
    const struct ir_tensor *t = ir_tensor(m->graph, zero);
    if (!ir_tensor_is_constant(t))
        map_refuse(m, "a zero point in FP8 that is computed");
    for (size_t i = 0; !map_failed(m) && shape_elements(&t->shape, &n) && i < n; i++)
        if (map_element(t, i) != 0)
            map_invalid(m, "a zero point of %g, and 8-bit floats have none", map_element(t, i));
    return IR_NONE;
}

/* Scales in blocks become factors, so they may be any numbers. onnxruntime's 4-bit weights without
 * zero points have scales below 0, so that -8 is what is farthest from 0, and 0 for zeros. */
void map_dequantize(struct mapper *m)
{
    uint32_t x = map_in(m, 0), scale = map_in(m, 1), zero = map_in_opt(m, 2);
    enum dtype to = attr_dtype(m, "output_dtype", map_dtype(m, scale));
    struct scaling by;
    enum signs signs = map_attr_int(m, "block_size", 0) ? ANY_SIGN : ABOVE_0;
    check_scale(m, scale, zero, signs);
    read_scaling(m, x, scale, &by);
    zero = emit_spread(m, drop_zero(m, zero, map_dtype(m, x)), x, &by);
    scale = emit_spread(m, scale, x, &by);
    map_out(m, 0, dequantize(m, x, &(struct quantisation){scale, zero, by.axis}, to, signs));
}

void map_quantize(struct mapper *m)
{
    uint32_t x = map_in(m, 0), scale = map_in(m, 1), zero = map_in_opt(m, 2);
    enum dtype precise = attr_dtype(m, "precision", map_dtype(m, scale));
    enum dtype of_zero = zero != IR_NONE ? map_dtype(m, zero) : DTYPE_U8;
    enum dtype to = attr_dtype(m, "output_dtype", of_zero);
    struct scaling by;
    if (zero != IR_NONE && to != of_zero)
        map_invalid(m, "its zero point is %s, its output %s", dtype_name(of_zero), dtype_name(to));
    if (to == DTYPE_F8 && !map_attr_int(m, "saturate", 1))
        map_refuse(m, "to %s without saturation", onnx_type_name(ONNX_FLOAT8E4M3FN));
    map_check_scale(m, scale, zero);
    read_scaling(m, x, scale, &by);
    zero = emit_spread(m, drop_zero(m, zero, to), x, &by);
    scale = emit_cast(m, emit_spread(m, scale, x, &by), precise);
    map_out(m, 0, emit_quantize(m, x, &(struct quantisation){scale, zero, by.axis}, to));
}

uint32_t emit_dynamic_quantize(struct mapper *m, uint32_t x, struct quantisation *out)
{
    struct ints all = {.n = map_shape(m, x)->rank};
    enum dtype dtype = map_dtype(m, x);
    for (uint32_t d = 0; d < all.n; d++)
        all.v[d] = d;
    uint32_t nought = emit_scalar(m, dtype, 0), steps = emit_scalar(m, dtype, 255);
    uint32_t low = emit_reduce(m, IR_REDUCE_MIN, x, &all, false);
    uint32_t high = emit_reduce(m, IR_REDUCE_MAX, x, &all, false);
    low = emit_binary(m, IR_BINARY_MIN, low, nought);
    high = emit_binary(m, IR_BINARY_MAX, high, nought);
    uint32_t width = emit_binary(m, IR_BINARY_SUB, high, low);
    uint32_t flat = emit_binary(m, IR_BINARY_EQUAL, width, nought);
    uint32_t scale = emit_binary(m, IR_BINARY_DIV, width, steps);
    scale = emit_select(m, flat, emit_scalar(m, dtype, 1), scale);
    *out = (struct quantisation){scale, IR_NONE, 0};
    out->zero = emit_quantize(m, emit_unary(m, IR_UNARY_NEG, low), out, DTYPE_U8);
    return emit_quantize(m, x, out, DTYPE_U8);
}

void map_dynamic_quantize(struct mapper *m)
{
    struct quantisation by;
    map_out(m, 0, emit_dynamic_quantize(m, map_in(m, 0), &by));
    map_out(m, 1, by.scale);
    map_out(m, 2, by.zero);
}
