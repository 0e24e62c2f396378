/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention as graphs of cuDNN's backend API. Scores and statistics are virtual and fp32; the
 * weights of the values have the type of the operands, as the second product requires.
 */
#include <string.h>

#include "engine/cuda/dnn_attention.h"

struct canvas {
    struct dnn_build *b;
    const struct attention_spec *spec;
    cudnnDataType_t io;
};

static dnn_desc operand(const struct canvas *c, int i)
{
    struct dnn_tensor t = {.uid = ATTENTION_UID + i, .type = c->io};
    memcpy(t.dim, c->spec->dim[i], sizeof(t.dim));
    memcpy(t.stride, c->spec->stride[i], sizeof(t.stride));
    return dnn_tensor(c->b, &t);
}

/* Keys as the first product wants them: [N,H,D,Sk]. */
static dnn_desc keys_across(const struct canvas *c)
{
    const int64_t *dim = c->spec->dim[ATTENTION_K], *stride = c->spec->stride[ATTENTION_K];
    struct dnn_tensor t = {.uid = ATTENTION_UID + ATTENTION_K,
                           .type = c->io,
                           .dim = {dim[0], dim[1], dim[3], dim[2]},
                           .stride = {stride[0], stride[1], stride[3], stride[2]}};
    return dnn_tensor(c->b, &t);
}

static dnn_desc scalar(const struct canvas *c, int64_t uid, cudnnDataType_t type)
{
    struct dnn_tensor t = {
        .uid = uid, .type = type, .dim = {1, 1, 1, 1}, .stride = {1, 1, 1, 1}, .by_value = true};
    return dnn_tensor(c->b, &t);
}

/* A virtual tensor of the scores' form, [N,H,Sq,columns]. */
static dnn_desc sheet(const struct canvas *c, cudnnDataType_t type, int64_t columns)
{
    const int64_t *q = c->spec->dim[ATTENTION_Q];
    struct dnn_tensor t = {.type = type,
                           .dim = {q[0], q[1], q[2], columns},
                           .stride = {q[1] * q[2] * columns, q[2] * columns, columns, 1}};
    return dnn_tensor(c->b, &t);
}

static int64_t keys_of(const struct canvas *c)
{
    return c->spec->dim[ATTENTION_K][2];
}

/* --- one operation --- */

static void build_whole(const struct canvas *c)
{
    static const struct {
        cudnnBackendAttributeName_t name;
        int tensor;
    } ports[] = {
        {CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, ATTENTION_Q},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, ATTENTION_K},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, ATTENTION_V},
        {CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, ATTENTION_Y},
    };
    dnn_desc op = dnn_make(c->b, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, "attention");
    for (uint32_t i = 0; i < sizeof(ports) / sizeof(*ports); i++)
        dnn_set_desc(c->b, op, ports[i].name, operand(c, ports[i].tensor));
    dnn_set_desc(c->b, op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC,
                 scalar(c, ATTENTION_UID_SCALE, CUDNN_DATA_FLOAT));
    dnn_op_add(c->b, op, "attention");
}

/* --- step by step --- */

static void product(const struct canvas *c, dnn_desc x, dnn_desc w, dnn_desc y)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    dnn_desc how = dnn_make(c->b, CUDNN_BACKEND_MATMUL_DESCRIPTOR, "product");
    dnn_set(c->b, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    dnn_finish(c->b, how, "product");
    dnn_desc op = dnn_make(c->b, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, "product");
    dnn_set_desc(c->b, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, x);
    dnn_set_desc(c->b, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, w);
    dnn_set_desc(c->b, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y);
    dnn_set_desc(c->b, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    dnn_op_add(c->b, op, "product");
}

struct point {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t compute;
    dnn_desc x, b, t; /* b, t: NULL if the mode has none */
    int64_t axis;     /* of GEN_INDEX */
};

static dnn_desc point(const struct canvas *c, const struct point *p, dnn_desc y)
{
    dnn_desc how = dnn_pointwise(c->b, p->mode, p->compute);
    if (p->mode == CUDNN_POINTWISE_GEN_INDEX)
        dnn_set(c->b, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &p->axis);
    dnn_pointwise_add(c->b, how, p->x, p->b, p->t, y);
    return y;
}

/* y = mode(x, b) on the scores, in fp32. */
static dnn_desc score_point(const struct canvas *c, cudnnPointwiseMode_t mode, dnn_desc x,
                            dnn_desc b)
{
    const struct point p = {.mode = mode, .compute = CUDNN_DATA_FLOAT, .x = x, .b = b};
    return point(c, &p, sheet(c, CUDNN_DATA_FLOAT, keys_of(c)));
}

static dnn_desc reduce(const struct canvas *c, cudnnReduceTensorOp_t op_type, dnn_desc x)
{
    cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    dnn_desc y = sheet(c, CUDNN_DATA_FLOAT, 1);
    dnn_desc how = dnn_make(c->b, CUDNN_BACKEND_REDUCTION_DESCRIPTOR, "reduction");
    dnn_set(c->b, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
            &op_type);
    dnn_set(c->b, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute);
    dnn_finish(c->b, how, "reduction");
    dnn_desc op = dnn_make(c->b, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, "reduction");
    dnn_set_desc(c->b, op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    dnn_set_desc(c->b, op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    dnn_set_desc(c->b, op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    dnn_op_add(c->b, op, "reduction");
    return y;
}

/* Selects the score where row + Sk - Sq >= column, and -inf elsewhere. */
static dnn_desc hide_later(const struct canvas *c, dnn_desc scores)
{
    int64_t keys = keys_of(c);
    struct point row = {
        .mode = CUDNN_POINTWISE_GEN_INDEX, .compute = CUDNN_DATA_FLOAT, .x = scores, .axis = 2};
    struct point column = row;
    column.axis = 3;
    dnn_desc i = point(c, &row, sheet(c, CUDNN_DATA_INT32, keys));
    dnn_desc j = point(c, &column, sheet(c, CUDNN_DATA_INT32, keys));
    if (keys != c->spec->dim[ATTENTION_Q][2]) {
        const struct point shift = {.mode = CUDNN_POINTWISE_ADD,
                                    .compute = CUDNN_DATA_INT32,
                                    .x = i,
                                    .b = scalar(c, ATTENTION_UID_SHIFT, CUDNN_DATA_INT32)};
        i = point(c, &shift, sheet(c, CUDNN_DATA_INT32, keys));
    }
    const struct point compare = {
        .mode = CUDNN_POINTWISE_CMP_GE, .compute = CUDNN_DATA_BOOLEAN, .x = i, .b = j};
    const struct point select = {.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                 .compute = CUDNN_DATA_FLOAT,
                                 .x = scores,
                                 .b = scalar(c, ATTENTION_UID_HIDDEN, CUDNN_DATA_FLOAT),
                                 .t = point(c, &compare, sheet(c, CUDNN_DATA_BOOLEAN, keys))};
    return point(c, &select, sheet(c, CUDNN_DATA_FLOAT, keys));
}

/* Without the logarithm of the sum, which nothing reads, cuDNN does not recognise the graph. */
static dnn_desc softmax(const struct canvas *c, dnn_desc scores)
{
    dnn_desc highest = reduce(c, CUDNN_REDUCE_TENSOR_MAX, scores);
    dnn_desc above = score_point(c, CUDNN_POINTWISE_SUB, scores, highest);
    dnn_desc power = score_point(c, CUDNN_POINTWISE_EXP, above, NULL);
    dnn_desc sum = reduce(c, CUDNN_REDUCE_TENSOR_ADD, power);
    const struct point log = {.mode = CUDNN_POINTWISE_LOG, .compute = CUDNN_DATA_FLOAT, .x = sum};
    const struct point add = {.mode = CUDNN_POINTWISE_ADD,
                              .compute = CUDNN_DATA_FLOAT,
                              .x = highest,
                              .b = point(c, &log, sheet(c, CUDNN_DATA_FLOAT, 1))};
    point(c, &add, sheet(c, CUDNN_DATA_FLOAT, 1));
    const struct point divide = {
        .mode = CUDNN_POINTWISE_DIV, .compute = CUDNN_DATA_FLOAT, .x = power, .b = sum};
    return point(c, &divide, sheet(c, c->io, keys_of(c)));
}

static void build_parts(const struct canvas *c)
{
    dnn_desc scores = sheet(c, CUDNN_DATA_FLOAT, keys_of(c));
    product(c, operand(c, ATTENTION_Q), keys_across(c), scores);
    scores = score_point(c, CUDNN_POINTWISE_MUL, scores,
                         scalar(c, ATTENTION_UID_SCALE, CUDNN_DATA_FLOAT));
    if (c->spec->masked)
        scores = score_point(c, CUDNN_POINTWISE_ADD, scores, operand(c, ATTENTION_MASK));
    if (c->spec->causal)
        scores = hide_later(c, scores);
    product(c, softmax(c, scores), operand(c, ATTENTION_V), operand(c, ATTENTION_Y));
}

void attention_build(struct dnn_build *b, const void *spec)
{
    struct canvas c = {.b = b, .spec = spec};
    if (!dnn_type((enum dtype)c.spec->io, &c.io))
        return;
    if (c.spec->masked || c.spec->causal)
        build_parts(&c);
    else
        build_whole(&c);
}
