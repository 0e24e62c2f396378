/* SPDX-License-Identifier: Apache-2.0 */
/* Normalisations. */
#include "engine/import/ops.h"

static void refuse_outputs_from(struct mapper *m, uint32_t first)
{
    for (uint32_t i = first; i < m->node->n_outputs; i++) {
        if (map_out_used(m, i))
            map_refuse(m, "output %u, which only training needs", i);
    }
}

/* The mean of each channel, [1,C,1,...]. */
static uint32_t channel_mean(struct mapper *m, uint32_t x)
{
    struct ints axes = {.n = 1};
    uint32_t rank = map_shape(m, x)->rank;
    for (uint32_t d = 2; d < rank; d++)
        axes.v[axes.n++] = d;
    return emit_reduce(m, IR_REDUCE_MEAN, x, &axes, true);
}

/* What becomes of a statistic that was `before`: output `i`, if anybody reads it. */
static void running(struct mapper *m, uint32_t i, uint32_t before, uint32_t now, enum dtype dtype)
{
    float momentum = map_attr_float(m, "momentum", 0.9f);
    if (!map_out_used(m, i))
        return;
    before = emit_unary_ab(m, IR_UNARY_LINEAR, before, momentum, 0);
    now = emit_unary_ab(m, IR_UNARY_LINEAR, emit_flat(m, now), 1 - momentum, 0);
    map_out(m, i, emit_cast(m, emit_binary(m, IR_BINARY_ADD, before, now), dtype));
}

/* With the statistics of its own input, over all instances: exporters leave layers so whose inputs
 * are weights. */
static void batch_norm_by_itself(struct mapper *m, const uint32_t inputs[5], enum dtype dtype)
{
    uint32_t rank = map_shape(m, inputs[0])->rank;
    float epsilon = map_attr_float(m, "epsilon", 1e-5f);
    enum dtype of_statistics = map_dtype(m, map_in(m, 3));
    if (!map_failed(m) && rank < 2)
        map_invalid(m, "its input has rank %u, expected 2 at least", rank);
    if (map_failed(m))
        return;
    uint32_t mean = channel_mean(m, inputs[0]);
    uint32_t x = emit_binary(m, IR_BINARY_SUB, inputs[0], mean);
    uint32_t variance = channel_mean(m, emit_binary(m, IR_BINARY_MUL, x, x));
    uint32_t scale = emit_along(m, inputs[1], 1, rank), bias = emit_along(m, inputs[2], 1, rank);
    uint32_t wide = emit_unary_ab(m, IR_UNARY_LINEAR, variance, 1, epsilon);
    scale = emit_binary(m, IR_BINARY_DIV, scale, emit_unary(m, IR_UNARY_SQRT, wide));
    x = emit_binary(m, IR_BINARY_ADD, emit_binary(m, IR_BINARY_MUL, x, scale), bias);
    map_out(m, 0, emit_cast(m, x, dtype));
    running(m, 1, inputs[3], mean, of_statistics);
    running(m, 2, inputs[4], variance, of_statistics);
}

/* Statistics may have a wider type than x; then everything is computed in that type. */
void map_batch_norm(struct mapper *m)
{
    uint32_t inputs[5];
    bool trains = m->opset >= 14 && map_attr_int(m, "training_mode", 0) != 0;
    for (uint32_t i = 0; i < ARRAY_LEN(inputs); i++)
        inputs[i] = map_in(m, i);
    enum dtype dtype = map_dtype(m, inputs[0]), inner = dtype;
    for (uint32_t i = 1; i < ARRAY_LEN(inputs) && inner != DTYPE_F64; i++) {
        if (map_dtype(m, inputs[i]) != inner)
            inner = map_dtype(m, inputs[i]) == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
    }
    if (m->opset < 7 && !map_attr_int(m, "is_test", 0))
        map_refuse(m, "in training mode");
    if (m->opset < 9 && !map_attr_int(m, "spatial", 1))
        map_refuse(m, "with statistics for each place (spatial = 0)");
    refuse_outputs_from(m, trains ? 3 : 1);
    for (uint32_t i = 0; i < ARRAY_LEN(inputs); i++)
        inputs[i] = emit_cast(m, inputs[i], inner);
    if (trains) {
        batch_norm_by_itself(m, inputs, dtype);
        return;
    }
    /* A vector is one channel, of as many instances. */
    const struct shape shape = *map_shape(m, inputs[0]);
    const struct shape column = {.rank = 2, .dim = {shape.dim[0], 1}};
    if (shape.rank == 1)
        inputs[0] = emit_reshape(m, inputs[0], &column);
    uint32_t node = emit_begin(m, IR_OP_BATCH_NORM, ARRAY_LEN(inputs), inputs);
    emit_float(m, node, IR_ATTR_EPSILON, map_attr_float(m, "epsilon", 1e-5f));
    uint32_t y = emit_cast(m, emit_end(m, node), dtype);
    map_out(m, 0, shape.rank == 1 ? emit_reshape(m, y, &shape) : y);
}

uint32_t emit_instance_norm(struct mapper *m, uint32_t x, uint32_t scale, uint32_t bias,
                            int64_t groups)
{
    uint32_t node = emit_begin(m, IR_OP_INSTANCE_NORM, 3, (const uint32_t[]){x, scale, bias});
    emit_float(m, node, IR_ATTR_EPSILON, map_attr_float(m, "epsilon", 1e-5f));
    emit_int(m, node, IR_ATTR_GROUP, groups);
    return emit_end(m, node);
}

void map_instance_norm(struct mapper *m)
{
    uint32_t x = map_in(m, 0), scale = map_in(m, 1), bias = map_in(m, 2);
    map_out(m, 0, emit_instance_norm(m, x, scale, bias, 0));
}

/* Repeats a value for each group as one for each channel, because opset 18 gives values by
 * group. */
static uint32_t per_channel(struct mapper *m, uint32_t x, int64_t groups, int64_t channels)
{
    const struct shape *shape = map_shape(m, x);
    if (map_failed(m) || groups < 1 || channels % groups || shape->rank != 1 ||
        shape->dim[0] != groups)
        return x;
    uint32_t column = emit_reshape(m, x, &(struct shape){.rank = 2, .dim = {groups, 1}});
    column = emit_expand(m, column, &(struct shape){.rank = 2, .dim = {groups, channels / groups}});
    return emit_reshape(m, column, &(struct shape){.rank = 1, .dim = {channels}});
}

void map_group_norm(struct mapper *m)
{
    uint32_t x = map_in(m, 0), scale = map_in(m, 1), bias = map_in(m, 2);
    int64_t groups = map_attr_int(m, "num_groups", 0), channels = map_shape(m, x)->dim[1];
    if (groups < 1)
        map_invalid(m, "attribute 'num_groups' is %lld", (long long)groups);
    if (m->opset < 21) {
        scale = per_channel(m, scale, groups, channels);
        bias = per_channel(m, bias, groups, channels);
    }
    map_out(m, 0, emit_instance_norm(m, x, scale, bias, groups));
}

/* Makes the statistics that LayerNormalization gives on demand. */
static void layer_statistics(struct mapper *m, uint32_t x, const struct ints *axes)
{
    if (!map_out_used(m, 1) && !map_out_used(m, 2))
        return;
    float epsilon = map_attr_float(m, "epsilon", 1e-5f);
    enum dtype to = onnx_dtype(map_attr_int(m, "stash_type", ONNX_FLOAT));
    if (!dtype_is_float(to))
        map_invalid(m, "attribute 'stash_type' is no float type");
    if (map_dtype(m, x) != DTYPE_F64)
        x = emit_cast(m, x, DTYPE_F32);
    uint32_t mean = emit_reduce(m, IR_REDUCE_MEAN, x, axes, true);
    uint32_t centred = emit_binary(m, IR_BINARY_SUB, x, mean);
    uint32_t squares = emit_binary(m, IR_BINARY_MUL, centred, centred);
    uint32_t variance = emit_reduce(m, IR_REDUCE_MEAN, squares, axes, true);
    uint32_t safe = emit_unary_ab(m, IR_UNARY_LINEAR, variance, 1, epsilon);
    uint32_t deviation = emit_unary(m, IR_UNARY_SQRT, safe);
    map_out(m, 1, emit_cast(m, mean, to));
    map_out(m, 2, emit_cast(m, emit_unary(m, IR_UNARY_RECIPROCAL, deviation), to));
}

uint32_t emit_layer_norm(struct mapper *m, uint32_t x, uint32_t scale, uint32_t bias, uint32_t axis,
                         float epsilon)
{
    uint32_t node = emit_begin(m, IR_OP_LAYER_NORM, bias == IR_NONE ? 2 : 3,
                               (const uint32_t[]){x, scale, bias});
    emit_int(m, node, IR_ATTR_AXIS, axis);
    emit_float(m, node, IR_ATTR_EPSILON, epsilon);
    return emit_end(m, node);
}

static bool broadcasts_to(const struct mapper *m, uint32_t tensor, const struct shape *to)
{
    struct shape r;
    return shape_broadcast(map_shape(m, tensor), to, &r) && shape_equal(&r, to);
}

/* The dimensions of x from `axis` on. */
static struct shape inner_of(const struct mapper *m, uint32_t x, uint32_t axis)
{
    const struct shape *shape = map_shape(m, x);
    struct shape inner = {.rank = shape->rank - MIN(axis, shape->rank)};
    for (uint32_t d = 0; d < inner.rank; d++)
        inner.dim[d] = shape->dim[axis + d];
    return inner;
}

/* Says whether the scale or the bias varies along dimensions before `axis`, where a LAYER_NORM has
 * one for all. It broadcasts to x; what does not is left to the node that refuses it. */
static bool is_wide(const struct mapper *m, uint32_t tensor, uint32_t x, uint32_t axis)
{
    struct shape inner = inner_of(m, x, axis);
    return tensor != IR_NONE && !broadcasts_to(m, tensor, &inner) &&
           broadcasts_to(m, tensor, map_shape(m, x));
}

/* The norm with such a scale or bias behind it. */
static uint32_t wide_layer_norm(struct mapper *m, uint32_t x, uint32_t scale, uint32_t bias,
                                uint32_t axis, float epsilon)
{
    struct shape inner = inner_of(m, x, axis);
    bool wide_scale = is_wide(m, scale, x, axis), wide_bias = is_wide(m, bias, x, axis);
    if (!wide_scale && !wide_bias)
        return emit_layer_norm(m, x, scale, bias, axis, epsilon);
    uint32_t own =
        wide_scale ? emit_expand(m, emit_scalar(m, map_dtype(m, scale), 1), &inner) : scale;
    uint32_t y = emit_layer_norm(m, x, own, IR_NONE, axis, epsilon);
    y = wide_scale ? emit_binary(m, IR_BINARY_MUL, y, scale) : y;
    return bias == IR_NONE ? y : emit_binary(m, IR_BINARY_ADD, y, bias);
}

void map_layer_norm(struct mapper *m)
{
    uint32_t x = map_in(m, 0), scale = map_in(m, 1), bias = map_in_opt(m, 2);
    uint32_t rank = map_shape(m, x)->rank;
    uint32_t axis = map_axis(m, map_attr_int(m, "axis", -1), rank);
    struct ints axes = {.n = 0};
    for (uint32_t d = axis; d < rank; d++)
        axes.v[axes.n++] = d;
    map_out(m, 0, wide_layer_norm(m, x, scale, bias, axis, map_attr_float(m, "epsilon", 1e-5f)));
    layer_statistics(m, x, &axes);
}

/* x / sqrt(mean(x^2) + epsilon) * scale */
uint32_t emit_rms_norm(struct mapper *m, uint32_t x, uint32_t scale, uint32_t axis, float epsilon)
{
    enum dtype dtype = map_dtype(m, x);
    enum dtype inner = dtype == DTYPE_F64 ? DTYPE_F64 : DTYPE_F32;
    struct ints axes = {.n = 0};
    for (uint32_t d = axis; d < map_shape(m, x)->rank; d++)
        axes.v[axes.n++] = d;
    x = emit_cast(m, x, inner);
    uint32_t squares = emit_binary(m, IR_BINARY_MUL, x, x);
    uint32_t mean = emit_reduce(m, IR_REDUCE_MEAN, squares, &axes, true);
    uint32_t root =
        emit_unary(m, IR_UNARY_SQRT, emit_unary_ab(m, IR_UNARY_LINEAR, mean, 1, epsilon));
    uint32_t y = emit_cast(m, emit_binary(m, IR_BINARY_DIV, x, root), map_dtype(m, scale));
    return emit_binary(m, IR_BINARY_MUL, y, scale);
}

/* onnxruntime's own form has the inverse deviation as a second output. */
void map_rms_norm(struct mapper *m)
{
    uint32_t x = map_in(m, 0), scale = map_in(m, 1);
    uint32_t axis = map_axis(m, map_attr_int(m, "axis", -1), map_shape(m, x)->rank);
    refuse_outputs_from(m, 1);
    map_out(m, 0, emit_rms_norm(m, x, scale, axis, map_attr_float(m, "epsilon", 1e-5f)));
}

void map_lrn(struct mapper *m)
{
    uint32_t x = map_in(m, 0), node = emit_begin(m, IR_OP_LRN, 1, &x);
    emit_int(m, node, IR_ATTR_SIZE, map_attr_int(m, "size", 0));
    emit_float(m, node, IR_ATTR_ALPHA, map_attr_float(m, "alpha", 1e-4f));
    emit_float(m, node, IR_ATTR_BETA, map_attr_float(m, "beta", 0.75f));
    emit_float(m, node, IR_ATTR_BIAS, map_attr_float(m, "bias", 1));
    map_out(m, 0, emit_end(m, node));
}

/* x / norm(x), where 0 / 0 is 0. */
void map_lp_norm(struct mapper *m)
{
    uint32_t x = map_in(m, 0);
    struct ints axes = {.n = 1};
    axes.v[0] = map_axis(m, map_attr_int(m, "axis", -1), map_shape(m, x)->rank);
    int64_t p = map_attr_int(m, "p", 2);
    if (p != 1 && p != 2)
        map_refuse(m, "p = %lld", (long long)p);
    uint32_t norm = emit_reduce(m, p == 1 ? IR_REDUCE_L1 : IR_REDUCE_L2, x, &axes, true);
    uint32_t zero = emit_scalar(m, map_dtype(m, x), 0), one = emit_scalar(m, map_dtype(m, x), 1);
    uint32_t safe = emit_select(m, emit_binary(m, IR_BINARY_EQUAL, norm, zero), one, norm);
    map_out(m, 0, emit_binary(m, IR_BINARY_DIV, x, safe));
}

/* (x - mean) / (deviation + 1e-9) */
void map_mean_variance_norm(struct mapper *m)
{
    uint32_t x = map_in(m, 0);
    struct ints axes;
    if (!map_attr_ints(m, "axes", &axes))
        axes = (struct ints){.n = 3, .v = {0, 2, 3}};
    map_axes(m, &axes, map_shape(m, x)->rank);
    uint32_t mean = emit_reduce(m, IR_REDUCE_MEAN, x, &axes, true);
    uint32_t centred = emit_binary(m, IR_BINARY_SUB, x, mean);
    uint32_t squares = emit_binary(m, IR_BINARY_MUL, centred, centred);
    uint32_t variance = emit_reduce(m, IR_REDUCE_MEAN, squares, &axes, true);
    uint32_t deviation = emit_unary(m, IR_UNARY_SQRT, variance);
    deviation = emit_unary_ab(m, IR_UNARY_LINEAR, deviation, 1, 1e-9f);
    map_out(m, 0, emit_binary(m, IR_BINARY_DIV, centred, deviation));
}
