/* SPDX-License-Identifier: Apache-2.0 */
/* A convolution and its pointwise steps as a graph of cuDNN's backend API. Intermediate values are
 * virtual and fp32, which both spellings need. */
#include "base/compiler.h"
#include "engine/cuda/dnn_conv.h"

struct canvas {
    struct dnn_build *b;
    const struct conv_spec *spec;
    cudnnDataType_t io;
    dnn_desc value[CONV_POINTS_MAX + 1];
    dnn_desc bias, operand[CONV_OPERANDS_MAX], scalar[CONV_SCALARS_MAX];
};

static dnn_desc tensor(struct canvas *c, int64_t uid, cudnnDataType_t type, const int64_t dim[5])
{
    return dnn_tensor_nhwc(c->b, uid, type, c->spec->spatial + 2, dim);
}

/* What differs between a convolution and its transpose. */
static const struct direction {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
} directions[2] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
};

static void add_operation(struct canvas *c, dnn_desc conv)
{
    struct dnn_build *b = c->b;
    const struct conv_spec *s = c->spec;
    const struct direction *way = &directions[s->transposed != 0];
    float one = 1, zero = 0;
    dnn_desc x = tensor(c, CONV_UID_X, c->io, s->x), w = tensor(c, CONV_UID_W, c->io, s->w);
    dnn_desc op = dnn_make(b, way->type, "convolution");
    dnn_set_desc(b, op, way->conv, conv);
    dnn_set_desc(b, op, way->x, x);
    dnn_set_desc(b, op, way->w, w);
    dnn_set_desc(b, op, way->y, c->value[0]);
    dnn_set(b, op, way->alpha, CUDNN_TYPE_FLOAT, 1, &one);
    dnn_set(b, op, way->beta, CUDNN_TYPE_FLOAT, 1, &zero);
    dnn_op_add(b, op, "convolution");
}

static void add_convolution(struct canvas *c)
{
    const struct conv_spec *s = c->spec;
    const struct dnn_window window = {s->spatial, s->pre, s->post, s->stride, s->dilation};
    add_operation(c, dnn_convolution(c->b, CUDNN_DATA_FLOAT, &window));
}

static void set_parameters(struct dnn_build *b, dnn_desc pointwise, const struct conv_point *p)
{
    cudnnBackendAttributeName_t alpha = p->mode == CUDNN_POINTWISE_SWISH_FWD
                                            ? CUDNN_ATTR_POINTWISE_SWISH_BETA
                                            : CUDNN_ATTR_POINTWISE_ELU_ALPHA;
    const struct {
        uint32_t has;
        cudnnBackendAttributeName_t name;
        double value;
    } rows[] = {
        {CONV_HAS_LOWER, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, (double)p->lower},
        {CONV_HAS_UPPER, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, (double)p->upper},
        {CONV_HAS_SLOPE, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, (double)p->slope},
        {CONV_HAS_ALPHA, alpha, (double)p->alpha},
    };
    for (uint32_t i = 0; i < ARRAY_LEN(rows); i++)
        if (p->has & rows[i].has)
            dnn_set(b, pointwise, rows[i].name, CUDNN_TYPE_DOUBLE, 1, &rows[i].value);
}

static dnn_desc resolve(const struct canvas *c, int32_t ref)
{
    if (ref >= CONV_SCALAR)
        return c->scalar[ref - CONV_SCALAR];
    if (ref >= CONV_OPERAND)
        return c->operand[ref - CONV_OPERAND];
    return ref == CONV_BIAS ? c->bias : c->value[ref];
}

static void add_point(struct canvas *c, const struct conv_point *p, dnn_desc y)
{
    dnn_desc how = dnn_pointwise(c->b, (cudnnPointwiseMode_t)p->mode, CUDNN_DATA_FLOAT);
    set_parameters(c->b, how, p);
    dnn_pointwise_add(c->b, how, resolve(c, p->x), p->b == CONV_NONE ? NULL : resolve(c, p->b),
                      NULL, y);
}

static void make_operands(struct canvas *c)
{
    const struct conv_spec *s = c->spec;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    int64_t channels[5] = {1, s->y[1], 1, 1, 1}, one[5] = {1, 1, 1, 1, 1};
    if (s->n_points > 0)
        c->bias = tensor(c, CONV_UID_BIAS,
                         s->spelling == CONV_BIAS_FLOAT ? CUDNN_DATA_FLOAT : c->io, channels);
    for (int32_t i = 0; i < s->n_operands; i++) {
        dnn_type((enum dtype)s->operand[i].dtype, &type);
        c->operand[i] = tensor(c, CONV_UID_OPERAND + i, type, s->operand[i].dim);
    }
    for (int32_t i = 0; i < s->n_scalars; i++)
        c->scalar[i] = tensor(c, CONV_UID_SCALAR + i, CUDNN_DATA_FLOAT, one);
}

/* The value that point `i` makes (0: the convolution): the last one is the output. */
static dnn_desc make_value(struct canvas *c, int32_t i)
{
    return i == c->spec->n_points ? tensor(c, CONV_UID_Y, c->io, c->spec->y)
                                  : tensor(c, 0, CUDNN_DATA_FLOAT, c->spec->y);
}

void conv_build(struct dnn_build *b, const void *spec)
{
    struct canvas c = {.b = b, .spec = spec};
    if (!dnn_type((enum dtype)c.spec->io, &c.io))
        return;
    make_operands(&c);
    c.value[0] = make_value(&c, 0);
    add_convolution(&c);
    for (int32_t i = 0; i < c.spec->n_points; i++) {
        c.value[i + 1] = make_value(&c, i + 1);
        add_point(&c, &c.spec->point[i], c.value[i + 1]);
    }
}
