/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolution and transposed convolution with one to three spatial dimensions, groups, dilation and
 * padding; negative padding (a crop) is refused. A convolution runs directly or by Winograd's
 * algorithm, in several layouts, and a 1x1 convolution also as a matrix product over channels-last
 * pixels.
 */
#include <string.h>

#include "engine/cpu/onednn_recipe.h"

enum way { WAY_DIRECT, WAY_WINOGRAD, WAY_MATMUL };

enum { SPATIAL_MAX = 3 };

struct window {
    uint32_t n; /* spatial dimensions, as oneDNN sees them */
    enum seen seen;
    int64_t group;
    dnnl_dims_t kernel, strides, dilates, begins, ends;
    bool pointwise; /* 1x1, stride 1, no padding, one group */
    bool three;     /* 3x3, stride 1, no dilation, one group */
};

static void swap(dnnl_dim_t dims[2])
{
    dnnl_dim_t first = dims[0];
    dims[0] = dims[1];
    dims[1] = first;
}

/* The kernels that run along rows are oneDNN's best. Images of width 1, which some exporters
 * make of sequences, are turned, so that their columns become rows: the bytes are the same in
 * every layout. Depthwise kernels exist for two spatial dimensions only, so that sequences
 * become images of one row. */
static void see(const struct subject *s, struct window *w)
{
    const struct shape *x = &subject_in(s, 0)->shape, *y = &subject_out(s, 0)->shape;
    dnnl_dim_t *const all[] = {w->kernel, w->strides, w->dilates, w->begins, w->ends};
    if (w->n == 2 && x->dim[3] == 1 && y->dim[3] == 1 && w->kernel[1] == 1 && w->begins[1] == 0 &&
        w->ends[1] == 0 && x->dim[2] > 1) {
        for (size_t i = 0; i < ARRAY_LEN(all); i++)
            swap(all[i]);
        w->seen = SEEN_TURNED;
    } else if (w->n == 1 && w->group > 1) {
        static const dnnl_dim_t one[] = {1, 1, 0, 0, 0};
        for (size_t i = 0; i < ARRAY_LEN(all); i++) {
            all[i][1] = all[i][0];
            all[i][0] = one[i];
        }
        w->n = 2;
        w->seen = SEEN_LIFTED;
    }
}

static bool read_window(const struct subject *s, struct window *w)
{
    const struct ir_tensor *x = subject_in(s, 0), *weights = subject_in(s, 1);
    if (x->shape.rank < 3 || x->shape.rank > 2 + SPATIAL_MAX)
        return false;
    memset(w, 0, sizeof(*w));
    w->n = x->shape.rank - 2;
    w->group = ir_attr_int(s->node, IR_ATTR_GROUP);
    w->pointwise = w->group == 1;
    w->three = w->group == 1 && w->n == 2;
    for (uint32_t i = 0; i < w->n; i++) {
        w->kernel[i] = weights->shape.dim[2 + i];
        w->strides[i] = ir_attr_at(s->node, IR_ATTR_STRIDES, i);
        w->dilates[i] = ir_attr_at(s->node, IR_ATTR_DILATIONS, i) - 1;
        w->begins[i] = ir_attr_at(s->node, IR_ATTR_PADS, i);
        w->ends[i] = ir_attr_at(s->node, IR_ATTR_PADS, w->n + i);
        if (w->begins[i] < 0 || w->ends[i] < 0)
            return false;
        w->pointwise = w->pointwise && w->kernel[i] == 1 && w->strides[i] == 1 &&
                       w->begins[i] == 0 && w->ends[i] == 0;
        w->three = w->three && w->kernel[i] == 3 && w->strides[i] == 1 && w->dilates[i] == 0;
    }
    see(s, w);
    return true;
}

/* Describes the weights in oneDNN's order of dims, [g,] out, in, kernel.., over ONNX's dense array.
 * The array of a transposed convolution has in before out. */
static bool weights_desc(const struct subject *s, const struct window *w, bool transposed,
                         dnnl_memory_desc_t *plain, uint32_t *rank, int64_t *dims)
{
    const struct shape *shape = &subject_in(s, 1)->shape;
    int64_t inner = 1, strides[SHAPE_MAX_RANK];
    uint32_t n = w->group > 1 ? 3 : 2;
    for (uint32_t i = w->n; i-- > 0;) {
        dims[n + i] = w->kernel[i];
        strides[n + i] = inner;
        inner *= w->kernel[i];
    }
    int64_t first = shape->dim[0] / w->group, second = shape->dim[1];
    dims[n - 2] = transposed ? second : first;
    dims[n - 1] = transposed ? first : second;
    strides[n - 2] = transposed ? inner : inner * second;
    strides[n - 1] = transposed ? inner * second : inner;
    if (n == 3) {
        dims[0] = w->group;
        strides[0] = inner * first * second;
    }
    *rank = n + w->n;
    return desc_strides(plain, *rank, dims, strides);
}

static void put(struct choice *out, uint32_t *n, enum way way, enum ir_layout src,
                enum ir_layout dst)
{
    out[(*n)++] = (struct choice){.way = (uint8_t)way, .src = (uint8_t)src, .dst = (uint8_t)dst};
}

static bool is_padded(const struct window *w)
{
    bool padded = false;
    for (uint32_t i = 0; i < w->n; i++)
        padded = padded || w->begins[i] || w->ends[i];
    return padded;
}

static uint32_t list_conv(const struct subject *s, struct choice out[CHOICES_MAX])
{
    struct window w;
    uint32_t n = 0;
    if (!read_window(s, &w))
        return 0;
    if (subject_is_bytes(s) || subject_is_scaled(s)) {
        put(out, &n, WAY_DIRECT, IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_CHANNELS_LAST);
        if (w.pointwise)
            put(out, &n, WAY_MATMUL, IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_CHANNELS_LAST);
        return subject_is_scaled(s) && !is_padded(&w) ? list_zeros(s, out, n, ZERO_OF_ONEDNN) : n;
    }
    enum ir_layout blocked = s->dnn->avx512 ? IR_LAYOUT_BLOCKED_16 : IR_LAYOUT_BLOCKED_8;
    if (w.group == 1 && subject_in(s, 0)->shape.dim[1] < 8) { /* a first layer */
        put(out, &n, WAY_DIRECT, IR_LAYOUT_PLAIN, blocked);
        put(out, &n, WAY_DIRECT, IR_LAYOUT_PLAIN, IR_LAYOUT_CHANNELS_LAST);
    }
    put(out, &n, WAY_DIRECT, blocked, blocked);
    if (w.three)
        put(out, &n, WAY_WINOGRAD, blocked, blocked);
    put(out, &n, WAY_DIRECT, IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_CHANNELS_LAST);
    if (w.pointwise)
        put(out, &n, WAY_MATMUL, IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_CHANNELS_LAST);
    put(out, &n, WAY_DIRECT, IR_LAYOUT_PLAIN, IR_LAYOUT_PLAIN);
    return n;
}

/* Lets the primitive choose the form of constant weights. Other weights stay as they lie. */
static bool wanted_weights(const struct subject *s, const dnnl_memory_desc_t *plain, uint32_t rank,
                           const int64_t *dims, dnnl_memory_desc_t *out)
{
    if (ir_tensor_is_constant(subject_in(s, 1)))
        return desc_any(out, rank, dims);
    *out = *plain;
    return true;
}

static enum status make_matmul(const struct subject *s, const struct window *w, struct choice c,
                               struct recipe *r)
{
    const struct ir_tensor *x = subject_in(s, 0), *y = subject_out(s, 0);
    int64_t channels = x->shape.dim[1], features = y->shape.dim[1], pixels = x->shape.dim[0];
    for (uint32_t i = 0; i < w->n; i++)
        pixels *= x->shape.dim[2 + i];
    int64_t a_dims[2] = {pixels, channels}, b_dims[2] = {channels, features},
            b_strides[2] = {1, channels}, bias_dims[2] = {1, features};
    struct output_view view = {.kind = VIEW_PIXELS,
                               .rank = 2,
                               .dims = {pixels, features},
                               .layout = IR_LAYOUT_CHANNELS_LAST};
    dnnl_memory_desc_t a, b, plain, bias, d;
    if (!desc_layout(&a, 2, a_dims, IR_LAYOUT_PLAIN) ||
        !desc_strides(&plain, 2, b_dims, b_strides) || !wanted_weights(s, &plain, 2, b_dims, &b) ||
        !desc_layout(&bias, 2, bias_dims, IR_LAYOUT_PLAIN) ||
        !desc_layout(&d, 2, view.dims, IR_LAYOUT_PLAIN))
        return STATUS_UNIMPLEMENTED;
    desc_type(&a, x);
    desc_weights(s, &b);
    desc_plain(s, &plain);
    desc_bias(s, &bias);
    desc_type(&d, y);
    dnnl_matmul_desc_t desc;
    if (dnnl_matmul_desc_init(&desc, &a, &b, subject_biased(s) ? &bias : NULL, &d) != dnnl_success)
        return STATUS_UNIMPLEMENTED;
    recipe_in(s, r, DNNL_ARG_SRC, 0, &a, IR_LAYOUT_CHANNELS_LAST);
    recipe_out(s, r, DNNL_ARG_DST, 0, &d, IR_LAYOUT_CHANNELS_LAST);
    return recipe_finish(s, c, &view, &desc, &plain, &bias, r);
}

union conv_desc {
    dnnl_convolution_desc_t conv;
    dnnl_deconvolution_desc_t deconv;
};

static dnnl_status_t init_desc(union conv_desc *out, bool transposed, enum way way,
                               const struct window *w, const dnnl_memory_desc_t *src,
                               const dnnl_memory_desc_t *weights, const dnnl_memory_desc_t *bias,
                               const dnnl_memory_desc_t *dst)
{
    if (transposed)
        return dnnl_dilated_deconvolution_forward_desc_init(
            &out->deconv, dnnl_forward_inference, dnnl_deconvolution_direct, src, weights, bias,
            dst, w->strides, w->dilates, w->begins, w->ends);
    return dnnl_dilated_convolution_forward_desc_init(
        &out->conv, dnnl_forward_inference,
        way == WAY_WINOGRAD ? dnnl_convolution_winograd : dnnl_convolution_direct, src, weights,
        bias, dst, w->strides, w->dilates, w->begins, w->ends);
}

/* oneDNN 2.6's convolution by im2col and gemm applies binary post-ops to the wrong elements. */
static bool miscomputes(const struct subject *s, const struct recipe *r)
{
    bool binary = false;
    for (uint32_t i = 0; i < s->node->n_epilogue; i++)
        binary = binary || s->node->epilogue[i].kind == IR_EPILOGUE_BINARY;
    return binary && strstr(recipe_impl(r), "gemm") != NULL;
}

static enum status make_window(const struct subject *s, const struct window *w, bool transposed,
                               struct choice c, struct recipe *r)
{
    const struct ir_tensor *x = subject_in(s, 0), *y = subject_out(s, 0);
    dnnl_memory_desc_t src, dst, bias, plain, weights;
    int64_t dims[SHAPE_MAX_RANK];
    uint32_t rank;
    int64_t features = y->shape.dim[1];
    struct output_view view = {.kind = VIEW_SAME, .layout = c.dst, .seen = w->seen};
    int64_t in[SHAPE_MAX_RANK];
    view.rank = dims_seen(w->seen, y->shape.rank, y->shape.dim, view.dims);
    dims_seen(w->seen, x->shape.rank, x->shape.dim, in);
    if (!desc_layout(&src, view.rank, in, c.src) ||
        !desc_layout(&dst, view.rank, view.dims, c.dst) ||
        !weights_desc(s, w, transposed, &plain, &rank, dims) ||
        !wanted_weights(s, &plain, rank, dims, &weights) ||
        !desc_layout(&bias, 1, &features, IR_LAYOUT_PLAIN) || (c.zero && is_padded(w)))
        return STATUS_UNIMPLEMENTED;
    desc_type(&src, x);
    desc_type(&dst, y);
    desc_plain(s, &plain);
    desc_weights(s, &weights);
    desc_bias(s, &bias);
    union conv_desc desc;
    if (init_desc(&desc, transposed, c.way, w, &src, &weights, subject_biased(s) ? &bias : NULL,
                  &dst) != dnnl_success)
        return STATUS_UNIMPLEMENTED;
    recipe_in(s, r, DNNL_ARG_SRC, 0, &src, c.src);
    recipe_out(s, r, DNNL_ARG_DST, 0, &dst, c.dst);
    TRY(recipe_finish(s, c, &view, &desc, &plain, &bias, r));
    return r->want && miscomputes(s, r) ? STATUS_UNIMPLEMENTED : STATUS_OK;
}

static enum status make_conv(const struct subject *s, struct choice c, struct recipe *r)
{
    struct window w;
    if (!read_window(s, &w))
        return STATUS_UNIMPLEMENTED;
    if (c.way == WAY_MATMUL)
        return w.pointwise ? make_matmul(s, &w, c, r) : STATUS_UNIMPLEMENTED;
    return make_window(s, &w, false, c, r);
}

static uint32_t list_deconv(const struct subject *s, struct choice out[CHOICES_MAX])
{
    struct window w;
    uint32_t n = 0;
    if (!read_window(s, &w))
        return 0;
    enum ir_layout blocked = s->dnn->avx512 ? IR_LAYOUT_BLOCKED_16 : IR_LAYOUT_BLOCKED_8;
    put(out, &n, WAY_DIRECT, blocked, blocked);
    put(out, &n, WAY_DIRECT, IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_CHANNELS_LAST);
    put(out, &n, WAY_DIRECT, IR_LAYOUT_PLAIN, IR_LAYOUT_PLAIN);
    return n;
}

static enum status make_deconv(const struct subject *s, struct choice c, struct recipe *r)
{
    struct window w;
    if (!read_window(s, &w) || c.way != WAY_DIRECT)
        return STATUS_UNIMPLEMENTED;
    return make_window(s, &w, true, c, r);
}

const struct onednn_row onednn_conv = {
    .op = IR_OP_CONV, .list = list_conv, .make = make_conv, .impls = 3};
const struct onednn_row onednn_deconv = {
    .op = IR_OP_DECONV, .list = list_deconv, .make = make_deconv, .impls = 1};
