/* SPDX-License-Identifier: Apache-2.0 */
/* Resize and Upsample. */
#include "engine/import/ops.h"

#include <math.h>

/* The output shape, and the scale of every dimension. */
struct target {
    uint32_t rank;
    struct shape shape;
    float scales[SHAPE_MAX_RANK];
};

/* The dimensions that scales and sizes are given for. */
static void resize_axes(struct mapper *m, uint32_t rank, struct ints *axes)
{
    if (m->opset >= 18 && map_attr_ints(m, "axes", axes)) {
        for (uint32_t i = 0; i < axes->n; i++)
            axes->v[i] = map_axis(m, axes->v[i], rank);
        return;
    }
    axes->n = rank;
    for (uint32_t d = 0; d < rank; d++)
        axes->v[d] = d;
}

/* Computes in fp32, as the scale is: 30 * 0.7 must be 21. */
static void scale_axis(struct mapper *m, struct target *t, uint32_t axis, int64_t in, float scale)
{
    float out = floorf((float)in * scale);
    if (!(scale > 0) || !(out >= 0 && out < (float)INT32_MAX))
        map_invalid(m, "dimension %u of %lld with a scale of %g", axis, (long long)in,
                    (double)scale);
    if (map_failed(m))
        return;
    t->shape.dim[axis] = (int64_t)out;
    t->scales[axis] = scale;
}

/* Gives one scale for all axes: the smallest or the largest that the sizes ask for. 0: the axes
 * have scales of their own. */
static double kept_ratio(struct mapper *m, const struct shape *in, const struct ints *axes,
                         const struct ints *sizes)
{
    bool larger = map_attr_is(m, "keep_aspect_ratio_policy", "not_smaller", "stretch");
    double scale = 0;
    if (map_attr_is(m, "keep_aspect_ratio_policy", "stretch", "stretch"))
        return 0;
    for (uint32_t i = 0; i < axes->n; i++) {
        double one = (double)sizes->v[i] / (double)in->dim[axes->v[i]];
        scale = !i || (larger ? one > scale : one < scale) ? one : scale;
    }
    return scale;
}

static void target_from_sizes(struct mapper *m, const struct shape *in, const struct ints *axes,
                              uint32_t tensor, struct target *t)
{
    struct ints sizes;
    if (!map_known_ints(m, tensor, &sizes))
        return;
    if (sizes.n != axes->n)
        map_invalid(m, "%u sizes for %u dimensions", sizes.n, axes->n);
    for (uint32_t i = 0; i < sizes.n && !map_failed(m); i++) {
        if (sizes.v[i] < 1 || sizes.v[i] > INT32_MAX || in->dim[axes->v[i]] < 1)
            map_invalid(m, "to a size of %lld", (long long)sizes.v[i]);
    }
    if (map_failed(m))
        return;
    double ratio = kept_ratio(m, in, axes, &sizes);
    for (uint32_t i = 0; i < sizes.n; i++) {
        uint32_t axis = (uint32_t)axes->v[i];
        double dim = (double)in->dim[axis];
        t->shape.dim[axis] = ratio > 0 ? (int64_t)floor(ratio * dim + 0.5) : sizes.v[i];
        t->scales[axis] = (float)(ratio > 0 ? ratio : (double)sizes.v[i] / dim);
    }
}

static void target_from_scales(struct mapper *m, const struct shape *in, const struct ints *axes,
                               uint32_t tensor, struct target *t)
{
    const struct ir_tensor *scales = map_known(m, tensor);
    if (!scales)
        return;
    if (scales->shape.rank != 1 || scales->shape.dim[0] != axes->n)
        map_invalid(m, "scales for another number of dimensions than %u", axes->n);
    for (uint32_t i = 0; i < axes->n && !map_failed(m); i++) {
        uint32_t axis = (uint32_t)axes->v[i];
        scale_axis(m, t, axis, in->dim[axis], (float)map_element(scales, i));
    }
}

static const char *const modes[] = {
    [IR_RESIZE_NEAREST] = "nearest", [IR_RESIZE_LINEAR] = "linear", [IR_RESIZE_CUBIC] = "cubic"};
static const char *const coords[] = {
    [IR_COORD_HALF_PIXEL] = "half_pixel",
    [IR_COORD_PYTORCH_HALF_PIXEL] = "pytorch_half_pixel",
    [IR_COORD_ALIGN_CORNERS] = "align_corners",
    [IR_COORD_ASYMMETRIC] = "asymmetric",
    [IR_COORD_TF_CROP] = "tf_crop_and_resize",
    [IR_COORD_HALF_PIXEL_SYMMETRIC] = "half_pixel_symmetric",
    [IR_COORD_TF_HALF_PIXEL_NN] = "tf_half_pixel_for_nn", /* must be last: opset 13 dropped it */
};
static const char *const roundings[] = {
    [IR_NEAREST_ROUND_PREFER_FLOOR] = "round_prefer_floor",
    [IR_NEAREST_ROUND_PREFER_CEIL] = "round_prefer_ceil",
    [IR_NEAREST_FLOOR] = "floor",
    [IR_NEAREST_CEIL] = "ceil",
};

static int64_t resize_mode(struct mapper *m)
{
    if (map_attr_is(m, "mode", "bilinear", "nearest")) /* Upsample-1 and similar ops */
        return IR_RESIZE_LINEAR;
    return map_attr_named(m, "mode", modes, ARRAY_LEN(modes), "nearest");
}

static uint32_t begin_resize(struct mapper *m, uint32_t x, const struct target *t)
{
    uint32_t node = emit_begin(m, IR_OP_RESIZE, 1, &x);
    emit_ints(m, node, IR_ATTR_SHAPE, t->rank, t->shape.dim);
    if (!map_failed(m) && !ir_attr_set_floats(m->graph, node, IR_ATTR_SCALES, t->rank, t->scales))
        map_exhausted(m);
    emit_int(m, node, IR_ATTR_MODE, resize_mode(m));
    return node;
}

/* Reads the region of interest: starts, then ends, in units of the input. Axes that are not named
 * have the whole input. */
static void resize_roi(struct mapper *m, uint32_t node, uint32_t rank, const struct ints *axes)
{
    float roi[2 * SHAPE_MAX_RANK];
    const struct ir_tensor *tensor = map_known(m, map_in(m, 1));
    if (!tensor)
        return;
    if (tensor->shape.rank != 1 || tensor->shape.dim[0] != 2 * (int64_t)axes->n)
        map_invalid(m, "a region of interest for another number of dimensions than %u", axes->n);
    for (uint32_t d = 0; d < rank; d++) {
        roi[d] = 0;
        roi[rank + d] = 1;
    }
    for (uint32_t i = 0; i < axes->n && !map_failed(m); i++) {
        roi[axes->v[i]] = (float)map_element(tensor, i);
        roi[rank + axes->v[i]] = (float)map_element(tensor, axes->n + i);
    }
    if (!map_failed(m) && !ir_attr_set_floats(m->graph, node, IR_ATTR_ROI, 2 * rank, roi))
        map_exhausted(m);
}

static void target_init(const struct shape *in, struct target *t)
{
    *t = (struct target){.rank = in->rank, .shape = *in};
    for (uint32_t d = 0; d < in->rank; d++)
        t->scales[d] = 1;
}

/* Some exporters leave this operand out, others give it without elements. */
static uint32_t filled(struct mapper *m, uint32_t i)
{
    uint32_t tensor = map_in_opt(m, i);
    size_t n;
    return tensor != IR_NONE && shape_elements(map_shape(m, tensor), &n) && n ? tensor : IR_NONE;
}

void map_resize(struct mapper *m)
{
    struct target t;
    struct ints axes;
    uint32_t x = map_in(m, 0), scales = filled(m, 2), sizes = filled(m, 3);
    struct shape in = *map_shape(m, x);
    target_init(&in, &t);
    resize_axes(m, in.rank, &axes);
    if (!map_failed(m) && (scales == IR_NONE) == (sizes == IR_NONE))
        map_invalid(m, "it needs scales or sizes, and not both");
    if (scales != IR_NONE)
        target_from_scales(m, &in, &axes, scales, &t);
    else
        target_from_sizes(m, &in, &axes, sizes, &t);
    uint32_t known = ARRAY_LEN(coords) - (m->opset >= 13);
    int64_t coord =
        map_attr_named(m, "coordinate_transformation_mode", coords, known, "half_pixel");
    int64_t nearest =
        map_attr_named(m, "nearest_mode", roundings, ARRAY_LEN(roundings), "round_prefer_floor");
    uint32_t node = begin_resize(m, x, &t);
    emit_int(m, node, IR_ATTR_COORD, coord);
    emit_int(m, node, IR_ATTR_NEAREST, nearest);
    emit_float(m, node, IR_ATTR_CUBIC_A, map_attr_float(m, "cubic_coeff_a", -0.75f));
    emit_int(m, node, IR_ATTR_EXCLUDE_OUTSIDE, map_attr_int(m, "exclude_outside", 0) != 0);
    emit_int(m, node, IR_ATTR_ANTIALIAS, map_attr_int(m, "antialias", 0) != 0);
    emit_float(m, node, IR_ATTR_VALUE, map_attr_float(m, "extrapolation_value", 0));
    if (coord == IR_COORD_TF_CROP)
        resize_roi(m, node, in.rank, &axes);
    map_out(m, 0, emit_end(m, node));
}

static uint32_t emit_upsample(struct mapper *m, uint32_t x, const struct target *t, int64_t nearest)
{
    uint32_t node = begin_resize(m, x, t);
    emit_int(m, node, IR_ATTR_COORD, IR_COORD_ASYMMETRIC);
    emit_int(m, node, IR_ATTR_NEAREST, nearest);
    return emit_end(m, node);
}

/* Picks the elements of axes that become smaller. x_in is rounded up along them, and down along the
 * others, so each sort has a node of its own; `*rest` is what is left to do. */
static uint32_t emit_smaller(struct mapper *m, uint32_t x, const struct target *t,
                             struct target *rest)
{
    struct target smaller;
    bool any = false;
    target_init(map_shape(m, x), &smaller);
    for (uint32_t d = 0; d < t->rank && !map_failed(m); d++) {
        if (!(t->scales[d] < 1))
            continue;
        smaller.scales[d] = t->scales[d];
        smaller.shape.dim[d] = t->shape.dim[d];
        rest->scales[d] = 1;
        any = true;
    }
    return any ? emit_upsample(m, x, &smaller, IR_NEAREST_CEIL) : x;
}

static bool enlarges(const struct target *t)
{
    for (uint32_t d = 0; d < t->rank; d++)
        if (t->scales[d] > 1)
            return true;
    return false;
}

/* Upsample, and Resize of opset 10, have scales only: x_in = x_out / scale. The nearest element is
 * that below, but in Resize along axes that become smaller that above, as in ONNX's own case and in
 * onnxruntime. */
void map_upsample(struct mapper *m)
{
    struct target t;
    struct ints axes;
    uint32_t x = map_in(m, 0);
    struct shape in = *map_shape(m, x);
    const struct onnx_attr *scales = m->opset < 9 ? map_attr(m, "scales") : NULL;
    target_init(&in, &t);
    resize_axes(m, in.rank, &axes);
    if (m->opset >= 9)
        target_from_scales(m, &in, &axes, map_in(m, 1), &t);
    else if (!scales || scales->type != ONNX_ATTR_FLOATS || scales->n_floats != in.rank)
        map_invalid(m, "attribute 'scales' is missing or has another length than %u", in.rank);
    for (uint32_t d = 0; scales && d < in.rank && !map_failed(m); d++)
        scale_axis(m, &t, d, in.dim[d], scales->floats[d]);
    struct target rest = t;
    uint32_t y = x;
    if (m->opset >= 10 && resize_mode(m) == IR_RESIZE_NEAREST)
        y = emit_smaller(m, x, &t, &rest);
    map_out(m, 0, y == x || enlarges(&rest) ? emit_upsample(m, y, &rest, IR_NEAREST_FLOOR) : y);
}
