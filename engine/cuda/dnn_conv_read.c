/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a convolution node into the form that cuDNN takes: one to three spatial dimensions (one
 * becomes two with a height of 1), any groups, strides and dilations, padding that is not negative;
 * constant bias.
 *
 * The epilogue becomes pointwise steps on fp32 values. Its operands are constants of one element or
 * of one per channel, or tensors that broadcast to the output. A step that is not in the tables
 * here is refused, and the node is left to another family.
 */
#include <math.h>
#include <string.h>

#include "base/checked.h"
#include "base/compiler.h"
#include "engine/cuda/dnn_conv.h"

#define DIM_MAX INT32_MAX

static bool is_weight_type(enum dtype dtype)
{
    return dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

/* --- types --- */

/* F32 is stored as `io`; any other type must be `io` already. */
static bool stored_as(const struct ir_tensor *t, enum dtype io)
{
    return t->dtype == io || t->dtype == DTYPE_F32;
}

enum dtype conv_io(const struct ir_graph *graph, const struct ir_node *node, enum dtype tactic)
{
    const struct ir_tensor *x = cuda_input(graph, node, 0);
    if (!x || node->n_outputs != 1)
        return DTYPE_NONE;
    enum dtype io = tactic == DTYPE_NONE ? x->dtype : tactic;
    bool fits =
        is_weight_type(io) && stored_as(x, io) && stored_as(ir_tensor(graph, node->outputs[0]), io);
    for (uint32_t i = 1; fits && i < node->n_inputs; i++) {
        const struct ir_tensor *t = cuda_input(graph, node, i);
        if (t && !ir_tensor_is_constant(t))
            fits = stored_as(t, io);
    }
    return fits ? io : DTYPE_NONE;
}

/* --- the window --- */

/* Writes three to five dims as five: three get a height of 1, and what is missing then is 1. */
static bool as_five(const struct shape *shape, int64_t out[5])
{
    if (shape->rank < 3 || shape->rank > 5)
        return false;
    out[0] = shape->dim[0];
    out[1] = shape->dim[1];
    out[2] = shape->rank == 3 ? 1 : shape->dim[2];
    out[3] = shape->rank == 3 ? shape->dim[2] : shape->dim[3];
    out[4] = shape->rank == 5 ? shape->dim[4] : 1;
    for (int i = 0; i < 5; i++)
        if (out[i] < 1 || out[i] > DIM_MAX)
            return false;
    return true;
}

static bool read_window(const struct ir_node *node, uint32_t spatial, struct conv_spec *spec)
{
    uint32_t missing = spatial == 1; /* the height */
    spec->spatial = spatial == 3 ? 3 : 2;
    for (uint32_t i = 0; i < 3; i++) {
        spec->stride[i] = spec->dilation[i] = 1;
        spec->pre[i] = spec->post[i] = 0;
        if (i < missing || i - missing >= spatial)
            continue;
        uint32_t k = i - missing;
        spec->stride[i] = ir_attr_at(node, IR_ATTR_STRIDES, k);
        spec->dilation[i] = ir_attr_at(node, IR_ATTR_DILATIONS, k);
        spec->pre[i] = ir_attr_at(node, IR_ATTR_PADS, k);
        spec->post[i] = ir_attr_at(node, IR_ATTR_PADS, k + spatial);
        if (spec->stride[i] < 1 || spec->stride[i] > DIM_MAX || spec->dilation[i] < 1 ||
            spec->dilation[i] > DIM_MAX || spec->pre[i] < 0 || spec->pre[i] > DIM_MAX ||
            spec->post[i] < 0 || spec->post[i] > DIM_MAX)
            return false;
    }
    return true;
}

/* Whether the output has the extent that the window gives; or the input, if transposed. */
static bool extents_fit(const struct conv_spec *s)
{
    const int64_t *x = s->transposed ? s->y : s->x, *y = s->transposed ? s->x : s->y;
    bool fit = true;
    for (int i = 0; i < s->spatial; i++) {
        int64_t window = s->dilation[i] * (s->w[2 + i] - 1) + 1;
        int64_t room = x[2 + i] + s->pre[i] + s->post[i] - window;
        fit = fit && room >= 0 && room / s->stride[i] + 1 == y[2 + i];
    }
    return fit;
}

static bool channels_fit(const struct conv_spec *s, int64_t groups)
{
    const int64_t *x = s->transposed ? s->y : s->x, *y = s->transposed ? s->x : s->y;
    return groups >= 1 && groups <= x[1] && x[1] % groups == 0 && s->w[1] == x[1] / groups &&
           s->w[0] % groups == 0 && y[0] == x[0] && y[1] == s->w[0];
}

static bool pad_channels(struct conv_spec *s, enum ir_layout layout, int64_t groups)
{
    int64_t block = layout == IR_LAYOUT_CHANNELS_LAST_4   ? 4
                    : layout == IR_LAYOUT_CHANNELS_LAST_8 ? 8
                                                          : 1;
    if (layout != IR_LAYOUT_CHANNELS_LAST && block == 1)
        return false;
    if (block > 1 && (groups != 1 || s->x[1] % block == 0 || s->transposed))
        return false;
    s->x[1] = (s->x[1] + block - 1) / block * block;
    if (block > 1)
        s->w[1] = s->x[1];
    return true;
}

static bool read_shapes(const struct ir_graph *graph, const struct ir_node *node,
                        enum ir_layout layout, struct conv *conv)
{
    const struct ir_tensor *x = cuda_input(graph, node, 0), *w = cuda_input(graph, node, 1);
    int64_t groups = ir_attr_int(node, IR_ATTR_GROUP);
    struct conv_spec *spec = &conv->spec;
    spec->transposed = node->op == IR_OP_DECONV;
    if (!x || !w || node->n_outputs != 1 || !is_weight_type(w->dtype) ||
        x->shape.rank != w->shape.rank || !as_five(&x->shape, spec->x) ||
        !as_five(&w->shape, spec->w) ||
        !as_five(&ir_tensor(graph, node->outputs[0])->shape, spec->y) ||
        !read_window(node, x->shape.rank - 2, spec) || !channels_fit(spec, groups) ||
        !extents_fit(spec))
        return false;
    conv->packed = ir_tensor_is_constant(w);
    return (conv->packed || layout == IR_LAYOUT_CHANNELS_LAST) &&
           pad_channels(spec, layout, groups);
}

/* --- points --- */

struct chain {
    struct conv *conv;
    int32_t at; /* the value that the next step takes */
    bool ok;
};

static int32_t point(struct chain *c, struct conv_point p)
{
    struct conv_spec *s = &c->conv->spec;
    if (s->n_points == CONV_POINTS_MAX) {
        c->ok = false;
        return 0;
    }
    s->point[s->n_points++] = p;
    return s->n_points;
}

static int32_t binary(struct chain *c, cudnnPointwiseMode_t mode, int32_t x, int32_t b)
{
    return point(c, (struct conv_point){.mode = (int32_t)mode, .x = x, .b = b});
}

static int32_t unary(struct chain *c, cudnnPointwiseMode_t mode, int32_t x)
{
    return binary(c, mode, x, CONV_NONE);
}

static int32_t unary_alpha(struct chain *c, cudnnPointwiseMode_t mode, int32_t x, float alpha)
{
    return point(
        c,
        (struct conv_point){
            .mode = (int32_t)mode, .x = x, .b = CONV_NONE, .has = CONV_HAS_ALPHA, .alpha = alpha});
}

static int32_t clip(struct chain *c, int32_t x, float lower, float upper)
{
    struct conv_point p = {.mode = CUDNN_POINTWISE_RELU_FWD, .x = x, .b = CONV_NONE};
    if (lower != 0) {
        p.has |= CONV_HAS_LOWER;
        p.lower = lower;
    }
    if (upper < INFINITY) {
        p.has |= CONV_HAS_UPPER;
        p.upper = upper;
    }
    c->ok = c->ok && lower > -INFINITY && lower <= upper;
    return point(c, p);
}

static int32_t leaky(struct chain *c, int32_t x, float slope)
{
    return point(c, (struct conv_point){.mode = CUDNN_POINTWISE_RELU_FWD,
                                        .x = x,
                                        .b = CONV_NONE,
                                        .has = CONV_HAS_SLOPE,
                                        .slope = slope});
}

static int32_t scalar(struct chain *c, float value)
{
    struct conv_spec *s = &c->conv->spec;
    if (s->n_scalars == CONV_SCALARS_MAX) {
        c->ok = false;
        return CONV_NONE;
    }
    c->conv->scalar[s->n_scalars] = value;
    return CONV_SCALAR + s->n_scalars++;
}

static int32_t linear(struct chain *c, int32_t x, float a, float b)
{
    if (a != 1)
        x = binary(c, CUDNN_POINTWISE_MUL, x, scalar(c, a));
    return b == 0 ? x : binary(c, CUDNN_POINTWISE_ADD, x, scalar(c, b));
}

/* --- unary steps --- */

static const struct {
    enum ir_unary func;
    cudnnPointwiseMode_t mode;
} direct[] = {
    {IR_UNARY_SIGMOID, CUDNN_POINTWISE_SIGMOID_FWD},
    {IR_UNARY_TANH, CUDNN_POINTWISE_TANH_FWD},
    {IR_UNARY_GELU, CUDNN_POINTWISE_GELU_FWD},
    {IR_UNARY_GELU_TANH, CUDNN_POINTWISE_GELU_APPROX_TANH_FWD},
    {IR_UNARY_SOFTPLUS, CUDNN_POINTWISE_SOFTPLUS_FWD},
    {IR_UNARY_ABS, CUDNN_POINTWISE_ABS},
    {IR_UNARY_NEG, CUDNN_POINTWISE_NEG},
    {IR_UNARY_EXP, CUDNN_POINTWISE_EXP},
    {IR_UNARY_SQRT, CUDNN_POINTWISE_SQRT},
    {IR_UNARY_RECIPROCAL, CUDNN_POINTWISE_RECIPROCAL},
    {IR_UNARY_ERF, CUDNN_POINTWISE_ERF},
};

static int32_t unary_direct(struct chain *c, enum ir_unary func)
{
    for (uint32_t i = 0; i < ARRAY_LEN(direct); i++)
        if (direct[i].func == func)
            return unary(c, direct[i].mode, c->at);
    c->ok = false;
    return c->at;
}

static int32_t unary_step(struct chain *c, const struct ir_epilogue *e)
{
    int32_t x = c->at;
    switch ((enum ir_unary)e->func) {
    case IR_UNARY_IDENTITY:
        return x;
    case IR_UNARY_RELU:
        return clip(c, x, 0, INFINITY);
    case IR_UNARY_CLIP:
        return clip(c, x, e->alpha, e->beta);
    case IR_UNARY_LEAKY_RELU:
        return leaky(c, x, e->alpha);
    case IR_UNARY_ELU:
        return unary_alpha(c, CUDNN_POINTWISE_ELU_FWD, x, e->alpha);
    case IR_UNARY_SWISH:
        return unary_alpha(c, CUDNN_POINTWISE_SWISH_FWD, x, e->alpha);
    case IR_UNARY_HARD_SIGMOID:
        return clip(c, linear(c, x, e->alpha, e->beta), 0, 1);
    case IR_UNARY_HARD_SWISH:
        return binary(c, CUDNN_POINTWISE_MUL, x, clip(c, linear(c, x, 1.0F / 6, 0.5F), 0, 1));
    case IR_UNARY_MISH:
        return binary(
            c, CUDNN_POINTWISE_MUL, x,
            unary(c, CUDNN_POINTWISE_TANH_FWD, unary(c, CUDNN_POINTWISE_SOFTPLUS_FWD, x)));
    case IR_UNARY_LINEAR:
        return linear(c, x, e->alpha, e->beta);
    default:
        return unary_direct(c, (enum ir_unary)e->func);
    }
}

/* --- binary steps --- */

/* Aligns the operand's dims with the output's; each must equal the output's or be 1. */
static bool operand_dims(const struct ir_tensor *t, const struct ir_tensor *y, int64_t out[5])
{
    struct shape wide = {.rank = y->shape.rank};
    const struct shape *s = &t->shape;
    if (s->rank > wide.rank)
        return false;
    for (uint32_t i = 0; i < wide.rank; i++) {
        uint32_t missing = wide.rank - s->rank;
        wide.dim[i] = i < missing ? 1 : s->dim[i - missing];
        if (wide.dim[i] != 1 && wide.dim[i] != y->shape.dim[i])
            return false;
    }
    return as_five(&wide, out);
}

static bool is_channels(const int64_t dim[5])
{
    return dim[0] == 1 && dim[2] == 1 && dim[3] == 1 && dim[4] == 1;
}

/* Adds the operand. CONV_NONE: cuDNN cannot take it. */
static int32_t operand(struct chain *c, const struct ir_graph *graph, const struct ir_node *node,
                       uint32_t input)
{
    struct conv_spec *s = &c->conv->spec;
    const struct ir_tensor *t = cuda_input(graph, node, input);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    struct conv_operand o = {.input = (int32_t)input, .dtype = s->io};
    if (!t || s->n_operands == CONV_OPERANDS_MAX || !operand_dims(t, y, o.dim))
        return CONV_NONE;
    bool one = is_channels(o.dim) && o.dim[1] == 1;
    if (ir_tensor_is_constant(t)) {
        if (!is_weight_type(t->dtype) || !is_channels(o.dim))
            return CONV_NONE;
        o.dtype = DTYPE_F32;
    } else if (t->shape.rank != y->shape.rank && !one) {
        return CONV_NONE;
    }
    s->operand[s->n_operands] = o;
    return CONV_OPERAND + s->n_operands++;
}

static const struct {
    enum ir_binary func;
    cudnnPointwiseMode_t mode;
} binaries[] = {
    {IR_BINARY_ADD, CUDNN_POINTWISE_ADD}, {IR_BINARY_SUB, CUDNN_POINTWISE_SUB},
    {IR_BINARY_MUL, CUDNN_POINTWISE_MUL}, {IR_BINARY_DIV, CUDNN_POINTWISE_DIV},
    {IR_BINARY_MAX, CUDNN_POINTWISE_MAX}, {IR_BINARY_MIN, CUDNN_POINTWISE_MIN},
};

static int32_t binary_step(struct chain *c, const struct ir_graph *graph,
                           const struct ir_node *node, const struct ir_epilogue *e)
{
    int32_t x = c->at, b = operand(c, graph, node, e->input);
    c->ok = c->ok && b != CONV_NONE;
    if (e->func == IR_BINARY_PRELU) { /* max(x, 0) + b min(x, 0) */
        int32_t above = clip(c, x, 0, INFINITY);
        int32_t below = binary(c, CUDNN_POINTWISE_SUB, x, above);
        return binary(c, CUDNN_POINTWISE_ADD, above, binary(c, CUDNN_POINTWISE_MUL, below, b));
    }
    for (uint32_t i = 0; i < ARRAY_LEN(binaries); i++)
        if (binaries[i].func == (enum ir_binary)e->func)
            return binary(c, binaries[i].mode, x, b);
    c->ok = false;
    return x;
}

static int32_t step(struct chain *c, const struct ir_graph *graph, const struct ir_node *node,
                    const struct ir_epilogue *e)
{
    return e->kind == IR_EPILOGUE_UNARY ? unary_step(c, e) : binary_step(c, graph, node, e);
}

/* --- the precompiled pattern --- */

static bool is_residual(const struct ir_graph *graph, const struct ir_node *node,
                        const struct ir_epilogue *e)
{
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    const struct ir_tensor *t =
        e->kind == IR_EPILOGUE_BINARY ? cuda_input(graph, node, e->input) : NULL;
    return t && e->func == IR_BINARY_ADD && !ir_tensor_is_constant(t) &&
           shape_equal(&t->shape, &y->shape);
}

static bool is_relu(const struct ir_epilogue *e)
{
    if (e->kind != IR_EPILOGUE_UNARY)
        return false;
    return e->func == IR_UNARY_RELU || (e->func == IR_UNARY_CLIP && e->alpha == 0 && e->beta > 0);
}

static bool is_pattern(const struct ir_graph *graph, const struct ir_node *node)
{
    uint32_t i = 0;
    if (i < node->n_epilogue && is_residual(graph, node, &node->epilogue[i]))
        i++;
    if (i < node->n_epilogue && is_relu(&node->epilogue[i]))
        i++;
    return i == node->n_epilogue;
}

static bool read_points(const struct ir_graph *graph, const struct ir_node *node, struct conv *conv)
{
    struct chain c = {.conv = conv, .ok = true};
    uint32_t i = 0;
    if (conv->spec.transposed)
        return true;
    if (conv->pattern && node->n_epilogue > 0 && is_residual(graph, node, &node->epilogue[0]))
        c.at = step(&c, graph, node, &node->epilogue[i++]);
    if (conv->adds)
        c.at = binary(&c, CUDNN_POINTWISE_ADD, c.at, CONV_BIAS);
    for (; c.ok && i < node->n_epilogue; i++)
        c.at = step(&c, graph, node, &node->epilogue[i]);
    return c.ok;
}

/* --- constants --- */

enum dtype conv_bias_type(const struct conv *conv)
{
    bool wide = conv->spec.spelling == CONV_BIAS_FLOAT || conv->spec.transposed;
    return wide ? DTYPE_F32 : (enum dtype)conv->spec.io;
}

static bool read_bias(const struct ir_graph *graph, const struct ir_node *node, struct conv *conv)
{
    const struct ir_tensor *bias = ir_node_own_inputs(node) > 2 ? cuda_input(graph, node, 2) : NULL;
    conv->biased = bias != NULL;
    conv->adds = !conv->spec.transposed && (conv->biased || conv->packed);
    if (!bias)
        return true;
    conv->bias_bytes = (uint64_t)conv->spec.y[1] * dtype_size(conv_bias_type(conv));
    return ir_tensor_is_constant(bias) && is_weight_type(bias->dtype) && bias->shape.rank == 1 &&
           bias->shape.dim[0] == conv->spec.y[1];
}

static bool read_sizes(struct conv *conv)
{
    const struct conv_spec *s = &conv->spec;
    size_t bytes = dtype_size((enum dtype)s->io);
    bool add_zeros = conv->adds && !conv->biased;
    if (!conv->packed)
        return s->n_scalars == 0;
    for (int i = 0; i < 5; i++)
        if (!checked_mul(bytes, (size_t)s->w[i], &bytes))
            return false;
    conv->weights_bytes = bytes;
    if (!add_zeros && s->n_scalars == 0)
        return bytes <= IR_MAX_TENSOR_BYTES;
    size_t zeros = add_zeros ? (size_t)s->y[1] * sizeof(float) : 0;
    if (!checked_round_up(bytes, BACKEND_ALIGN, &bytes) || bytes > IR_MAX_TENSOR_BYTES)
        return false;
    conv->zeros_at = bytes;
    conv->scalars_at = (bytes + zeros + BACKEND_ALIGN - 1) / BACKEND_ALIGN * BACKEND_ALIGN;
    conv->weights_bytes = conv->scalars_at + (uint64_t)s->n_scalars * CONV_SCALAR_STRIDE;
    return true;
}

uint64_t conv_operand_bytes(const struct ir_graph *graph, const struct ir_node *node,
                            const struct conv *conv, uint32_t i)
{
    const struct conv_operand *o = &conv->spec.operand[i];
    const struct ir_tensor *t = cuda_input(graph, node, (uint32_t)o->input);
    return t && ir_tensor_is_constant(t) ? (uint64_t)o->dim[1] * sizeof(float) : 0;
}

bool conv_read(const struct ir_graph *graph, const struct ir_node *node, enum dtype io,
               enum ir_layout layout, enum conv_spelling spelling, struct conv *out)
{
    memset(out, 0, sizeof(*out));
    out->layout = layout;
    out->spec.io = (int32_t)io;
    out->spec.spelling = (int32_t)spelling;
    if (!cuda_family_takes(CUDA_FAMILY_DNN_CONV, node->op) ||
        !read_shapes(graph, node, layout, out))
        return false;
    out->pattern = out->spec.transposed || is_pattern(graph, node);
    if ((spelling == CONV_BIAS_IO && !out->pattern) ||
        (spelling == CONV_BIAS_FLOAT && out->spec.transposed))
        return false;
    return read_bias(graph, node, out) && read_points(graph, node, out) && read_sizes(out);
}
