/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ops that slide or stretch over spatial dimensions: convolution, its transpose, pooling, resize.
 *
 * With every dimension at most IR_MAX_DIM (2^40) and every window attribute at most 2^20, the
 * products and sums below stay under 2^62.
 */
#include "engine/ir/infer.h"

#include <inttypes.h>
#include <math.h>

enum { SPATIAL_MAX = SHAPE_MAX_RANK - 2 };

struct window {
    uint32_t n; /* spatial dimensions */
    int64_t kernel[SPATIAL_MAX];
    int64_t strides[SPATIAL_MAX];
    int64_t dilations[SPATIAL_MAX];
    int64_t pads[2 * SPATIAL_MAX];
};

/* Reads everything of a window except its kernel. */
static enum status read_window(const struct infer *in, uint32_t rank, struct window *w)
{
    if (rank < 3)
        return infer_fail(in, "input has rank %u, but needs 3 at least", rank);
    w->n = rank - 2;
    TRY(infer_ints(in, IR_ATTR_STRIDES, w->n, w->strides));
    TRY(infer_ints(in, IR_ATTR_DILATIONS, w->n, w->dilations));
    return infer_ints(in, IR_ATTR_PADS, 2 * w->n, w->pads);
}

static enum status kernel_of_weights(const struct infer *in, const struct ir_tensor *x,
                                     const struct ir_tensor *weights, struct window *w)
{
    char xs[SHAPE_TEXT_MAX], ws[SHAPE_TEXT_MAX];
    if (weights->shape.rank != x->shape.rank)
        return infer_fail(in, "weights %s do not fit input %s", shape_format(&weights->shape, ws),
                          shape_format(&x->shape, xs));
    for (uint32_t i = 0; i < w->n; i++) {
        w->kernel[i] = weights->shape.dim[i + 2];
        if (w->kernel[i] < 1 || w->kernel[i] > INFER_WINDOW_MAX)
            return infer_fail(in, "kernel dimension %u is %" PRId64, i, w->kernel[i]);
    }
    return STATUS_OK;
}

static int64_t extent(const struct window *w, uint32_t i)
{
    return w->dilations[i] * (w->kernel[i] - 1) + 1;
}

/* The output size of dimension i of a window over `size`. With `ceil`, a last window that would
 * start behind the input and its leading padding is not counted: it would see padding only. */
static enum status slide(const struct infer *in, const struct window *w, uint32_t i, int64_t size,
                         bool ceil, int64_t *out)
{
    int64_t room = size + w->pads[i] + w->pads[w->n + i] - extent(w, i);
    if (room < 0)
        return infer_fail(
            in, "window of %" PRId64 " is larger than dimension %u (%" PRId64 " with padding)",
            extent(w, i), i, room + extent(w, i));
    int64_t n = room / w->strides[i] + 1;
    if (ceil && room % w->strides[i] && n * w->strides[i] < size + w->pads[i])
        n++;
    *out = n;
    return STATUS_OK;
}

static enum status check_groups(const struct infer *in, int64_t group, int64_t channels,
                                int64_t of_weights, int64_t outputs)
{
    if (channels % group || outputs % group || channels / group != of_weights)
        return infer_fail(in,
                          "%" PRId64 " channels, %" PRId64 " outputs and %" PRId64
                          " groups do not fit weights for %" PRId64 " channels",
                          channels, outputs, group, of_weights);
    return STATUS_OK;
}

enum status infer_conv(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *x = infer_input(in, 0), *weights = infer_input(in, 1);
    struct window w = {0};
    TRY(read_window(in, x->shape.rank, &w));
    TRY(kernel_of_weights(in, x, weights, &w));
    int64_t group = infer_int(in, IR_ATTR_GROUP), m = weights->shape.dim[0];
    TRY(check_groups(in, group, x->shape.dim[1], weights->shape.dim[1], m));
    TRY(infer_vector(in, 2, m));

    infer_like_first(in, out, n_out);
    out->dtype = infer_sums(in);
    out->shape.dim[1] = m;
    for (uint32_t i = 0; i < w.n; i++)
        TRY(slide(in, &w, i, x->shape.dim[i + 2], false, &out->shape.dim[i + 2]));
    return STATUS_OK;
}

/* What the pool of CONV_POOL makes of a size. */
static int64_t pooled(int64_t size)
{
    return (size - 1) / 2 + 1;
}

enum status infer_conv_pool(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *x = infer_input(in, 0), *weights = infer_input(in, 1);
    const struct ir_tensor *bias = infer_input(in, 2);
    enum dtype type = ir_tensor_type(weights);
    struct window w = {0};
    int64_t m = weights->shape.rank ? weights->shape.dim[0] : 0;
    if (x->shape.rank != 4)
        return infer_fail(in, "input has rank %u, not 4", x->shape.rank);
    if ((ir_tensor_type(x) != type && ir_tensor_type(x) != DTYPE_U8) ||
        (bias && ir_tensor_type(bias) != type))
        return infer_fail(in, "input is %s, weights are %s", dtype_name(ir_tensor_type(x)),
                          dtype_name(type));
    TRY(read_window(in, x->shape.rank, &w));
    TRY(kernel_of_weights(in, x, weights, &w));
    TRY(check_groups(in, 1, x->shape.dim[1], weights->shape.dim[1], m));
    TRY(infer_vector(in, 2, m));

    infer_like_first(in, out, n_out);
    out->dtype = type;
    out->shape.dim[1] = m;
    for (uint32_t i = 0; i < w.n; i++) {
        TRY(slide(in, &w, i, x->shape.dim[i + 2], false, &out->shape.dim[i + 2]));
        out->shape.dim[i + 2] = pooled(out->shape.dim[i + 2]);
    }
    return STATUS_OK;
}

/* A convolution of x by weights of one place each. */
static enum status check_pointwise(const struct infer *in, uint32_t x_input)
{
    const struct ir_tensor *x = infer_input(in, x_input), *w = infer_input(in, x_input + 1);
    char xs[SHAPE_TEXT_MAX], ws[SHAPE_TEXT_MAX];
    if (x->shape.rank != 4 || w->shape.rank != 4 || w->shape.dim[1] != x->shape.dim[1] ||
        w->shape.dim[2] != 1 || w->shape.dim[3] != 1)
        return infer_fail(in, "weights %s do not fit input %s", shape_format(&w->shape, ws),
                          shape_format(&x->shape, xs));
    return STATUS_OK;
}

/* The second source, read at steps, adds to the first one's outputs: m channels of x's images. */
static enum status check_second(const struct infer *in, uint32_t x2_input, int64_t m)
{
    int64_t strides[2];
    TRY(check_pointwise(in, x2_input));
    TRY(infer_ints(in, IR_ATTR_STRIDES, 2, strides));
    const struct shape *x = &infer_input(in, 0)->shape, *x2 = &infer_input(in, x2_input)->shape;
    bool fit = x->dim[0] == x2->dim[0] && infer_input(in, x2_input + 1)->shape.dim[0] == m;
    for (uint32_t d = 0; d < 2; d++)
        fit = fit && x2->dim[2 + d] > 0 && (x2->dim[2 + d] - 1) / strides[d] + 1 == x->dim[2 + d];
    char xs[SHAPE_TEXT_MAX], ys[SHAPE_TEXT_MAX];
    if (!fit)
        return infer_fail(in, "sources %s and %s, or their outputs, do not fit each other",
                          shape_format(x, xs), shape_format(x2, ys));
    return STATUS_OK;
}

enum status infer_conv_pair(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    TRY(check_pointwise(in, 0));
    int64_t m = infer_input(in, 1)->shape.dim[0];
    TRY(check_second(in, IR_PAIR_X2, m));
    TRY(infer_vector(in, IR_PAIR_BIAS, m));
    infer_like_first(in, out, n_out);
    out->shape.dim[1] = m;
    return STATUS_OK;
}

enum status infer_conv_chain(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    int64_t funcs[2];
    TRY(infer_ints(in, IR_ATTR_FUNCS, 2, funcs));
    TRY(check_pointwise(in, 0));
    int64_t m = infer_input(in, 1)->shape.dim[0];
    const struct shape *v = &infer_input(in, IR_CHAIN_NEXT)->shape;
    const struct ir_tensor *z = infer_input(in, IR_CHAIN_RESIDUAL);
    if (!infer_input(in, IR_CHAIN_X2) != !infer_input(in, IR_CHAIN_W2))
        return infer_fail(in, "has a second source without weights, or weights without it");
    if (infer_input(in, IR_CHAIN_X2))
        TRY(check_second(in, IR_CHAIN_X2, m));
    TRY(infer_vector(in, IR_CHAIN_BIAS, m));
    infer_like_first(in, out, n_out);
    out[0].shape.dim[1] = m;
    char ys[SHAPE_TEXT_MAX], zs[SHAPE_TEXT_MAX];
    if (z && !shape_equal(&z->shape, &out[0].shape))
        return infer_fail(in, "residual is %s, not %s", shape_format(&z->shape, zs),
                          shape_format(&out[0].shape, ys));
    if (v->rank != 4 || v->dim[1] != m || v->dim[2] != 1 || v->dim[3] != 1)
        return infer_fail(in, "weights %s do not fit input %s", shape_format(v, zs),
                          shape_format(&out[0].shape, ys));
    TRY(infer_vector(in, IR_CHAIN_NEXT_BIAS, v->dim[0]));
    out[1] = out[0];
    out[1].shape.dim[1] = v->dim[0];
    *n_out = 2;
    return STATUS_OK;
}

enum status infer_deconv(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *x = infer_input(in, 0), *weights = infer_input(in, 1);
    struct window w = {0};
    int64_t group = infer_int(in, IR_ATTR_GROUP), extra[SPATIAL_MAX];
    TRY(read_window(in, x->shape.rank, &w));
    TRY(kernel_of_weights(in, x, weights, &w));
    TRY(infer_ints(in, IR_ATTR_OUTPUT_PADDING, w.n, extra));
    if (x->shape.dim[1] % group || weights->shape.dim[0] != x->shape.dim[1])
        return infer_fail(in,
                          "%" PRId64 " channels in %" PRId64
                          " groups do not fit weights for %" PRId64 " channels",
                          x->shape.dim[1], group, weights->shape.dim[0]);
    int64_t m;
    if (__builtin_mul_overflow(weights->shape.dim[1], group, &m))
        return infer_fail(in, "has too many groups: %" PRId64, group);
    TRY(infer_vector(in, 2, m));

    infer_like_first(in, out, n_out);
    out->shape.dim[1] = m;
    for (uint32_t i = 0; i < w.n; i++) {
        int64_t size = x->shape.dim[i + 2];
        int64_t n =
            w.strides[i] * (size - 1) + extra[i] + extent(&w, i) - w.pads[i] - w.pads[w.n + i];
        if (size < 1 || n < 1)
            return infer_fail(in, "dimension %u of the output would be %" PRId64, i, n);
        out->shape.dim[i + 2] = n;
    }
    return STATUS_OK;
}

enum status infer_pool(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *x = infer_input(in, 0);
    struct window w = {0};
    int64_t func = infer_int(in, IR_ATTR_FUNC), ceil = infer_int(in, IR_ATTR_CEIL_MODE);
    TRY(infer_class(in, 0, func == IR_POOL_MAX ? IR_CLASS_NUMBER : IR_CLASS_FLOAT));
    TRY(read_window(in, x->shape.rank, &w));
    TRY(infer_ints(in, IR_ATTR_KERNEL, w.n, w.kernel));
    if (func == IR_POOL_LP && !(ir_attr_float(in->node, IR_ATTR_ALPHA) > 0))
        return infer_fail(in, "attribute alpha (p) is not positive");

    infer_like_first(in, out, n_out);
    for (uint32_t i = 0; i < w.n; i++)
        TRY(slide(in, &w, i, x->shape.dim[i + 2], ceil, &out->shape.dim[i + 2]));
    if (func == IR_POOL_MAX) {
        out[1] = (struct ir_type){DTYPE_I64, out->shape};
        *n_out = 2;
    }
    return STATUS_OK;
}

static enum status check_floats(const struct infer *in, enum ir_attr_key key, uint32_t count,
                                bool positive)
{
    const struct ir_attr *attr = ir_attr(in->node, key);
    if (!attr || attr->count != count)
        return infer_fail(in, "attribute %s has not %u values", ir_attr_name(key), count);
    for (uint32_t i = 0; i < count; i++)
        if (!isfinite(attr->f[i]) || (positive && attr->f[i] <= 0))
            return infer_fail(in, "attribute %s[%u] is %g", ir_attr_name(key), i,
                              (double)attr->f[i]);
    return STATUS_OK;
}

enum status infer_resize(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    const struct ir_tensor *x = infer_input(in, 0);
    uint32_t rank = x->shape.rank;
    bool antialias = infer_int(in, IR_ATTR_ANTIALIAS) != 0;
    infer_like_first(in, out, n_out);
    TRY(infer_ints(in, IR_ATTR_SHAPE, rank, out->shape.dim));
    TRY(check_floats(in, IR_ATTR_SCALES, rank, true));
    if (antialias && infer_int(in, IR_ATTR_MODE) == IR_RESIZE_NEAREST)
        return infer_fail(in, "attribute antialias is not for the nearest mode");
    for (uint32_t i = 0; i < rank && antialias; i++)
        if (ir_attr(in->node, IR_ATTR_SCALES)->f[i] < 1.0F / INFER_WINDOW_MAX)
            return infer_fail(in, "attribute scales[%u] is too small for antialias", i);
    if (infer_int(in, IR_ATTR_COORD) == IR_COORD_TF_CROP || ir_attr(in->node, IR_ATTR_ROI))
        TRY(check_floats(in, IR_ATTR_ROI, 2 * rank, false));
    for (uint32_t i = 0; i < rank; i++)
        if (x->shape.dim[i] == 0 && out->shape.dim[i] != 0)
            return infer_fail(in, "dimension %u is empty and cannot be stretched", i);
    return STATUS_OK;
}
