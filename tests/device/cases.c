/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/device/cases.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "tests/device/make.h"

enum { ATTEMPTS = 50 };

static struct shape out_shape(const struct ir_graph *g)
{
    return ir_tensor(g, ir_node(g, 0)->outputs[0])->shape;
}

bool add_unary(struct ir_graph *g, enum ir_unary func, float alpha, float beta)
{
    struct ir_epilogue step = {
        .kind = IR_EPILOGUE_UNARY, .func = func, .alpha = alpha, .beta = beta, .gamma = 1};
    return ir_epilogue_add(g, 0, step, IR_NONE);
}

bool add_operand(struct ir_graph *g, enum ir_binary func, uint32_t tensor)
{
    struct ir_epilogue step = {.kind = IR_EPILOGUE_BINARY, .func = func};
    return tensor != IR_NONE && ir_epilogue_add(g, 0, step, tensor);
}

/* Epilogues as fusions append them to a node. `channel`: the dim that per-channel operands
 * follow. */
bool add_epilogue(struct ir_graph *g, uint64_t *random, uint32_t channel)
{
    struct shape y = out_shape(g), narrow = y;
    for (uint32_t i = 0; i < narrow.rank; i++)
        narrow.dim[i] = i == channel ? y.dim[i] : 1;
    switch (draw(random) % 12) {
    case 0:
    case 1:
        return add_unary(g, IR_UNARY_RELU, 0, 0);
    case 2:
        return add_operand(g, IR_BINARY_ADD, add_input(g, DTYPE_F32, y)) &&
               add_unary(g, IR_UNARY_RELU, 0, 0);
    case 3:
        return add_operand(g, IR_BINARY_ADD, add_input(g, DTYPE_F32, y));
    case 4:
        return add_unary(g, IR_UNARY_CLIP, 0, 6);
    case 5:
        return add_unary(g, IR_UNARY_GELU, 0, 0);
    case 6:
        return add_unary(g, IR_UNARY_SWISH, 1, 0);
    case 7:
        return add_operand(g, IR_BINARY_MUL, add_constant(g, random, narrow, 1)) &&
               add_unary(g, IR_UNARY_TANH, 0, 0);
    case 8:
        return add_unary(g, IR_UNARY_SIGMOID, 0, 0) &&
               add_operand(g, IR_BINARY_MUL, add_input(g, DTYPE_F32, y));
    default:
        return true;
    }
}

/* --- windows --- */

static bool set_window(struct ir_graph *g, uint64_t *random, uint32_t node, const int64_t *kernel,
                       int64_t stride, int64_t dilation)
{
    int64_t strides[2] = {stride, stride}, dilations[2] = {dilation, dilation}, pads[4];
    for (int i = 0; i < 2; i++) {
        pads[i] = kernel[i] / 2 * dilation;
        pads[i + 2] = chance(random, 15) ? kernel[i] / 2 : pads[i];
    }
    if (chance(random, 15))
        memset(pads, 0, sizeof(pads));
    return ir_attr_set_ints(g, node, IR_ATTR_STRIDES, 2, strides) &&
           ir_attr_set_ints(g, node, IR_ATTR_DILATIONS, 2, dilations) &&
           ir_attr_set_ints(g, node, IR_ATTR_PADS, 4, pads);
}

static bool conv(struct ir_graph *g, uint64_t *random, int64_t n, int64_t c, int64_t m,
                 int64_t group, const int64_t *image, const int64_t *kernel, int64_t stride,
                 int64_t dilation)
{
    double scale = 1 / sqrt((double)(c / group * kernel[0] * kernel[1]));
    uint32_t in[3] = {
        add_input(g, DTYPE_F32, DIMS(n, c, image[0], image[1])),
        add_constant(g, random, DIMS(m, c / group, kernel[0], kernel[1]), 1.7 * scale),
        chance(random, 80) ? add_constant(g, random, DIMS(m), 0.5) : IR_NONE,
    };
    uint32_t node = ir_node_add(g, IR_OP_CONV, "conv", in[2] == IR_NONE ? 2 : 3, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_GROUP, group) &&
           set_window(g, random, node, kernel, stride, dilation) && finish(g, node);
}

static bool make_conv(struct ir_graph *g, uint64_t *random)
{
    int64_t k = PICK(random, 1, 3, 3, 5, 7);
    int64_t kernel[2] = {k, chance(random, 15) ? 1 : k};
    int64_t image[2] = {between(random, 5, 20), between(random, 5, 20)};
    if (chance(random, 20)) /* a sequence as an image of width 1 */
        image[1] = kernel[1] = 1;
    return conv(g, random, between(random, 1, 5), PICK(random, 8, 16, 24, 32, 64, 72),
                PICK(random, 8, 16, 32, 40, 64, 128), 1, image, kernel, PICK(random, 1, 1, 2),
                PICK(random, 1, 1, 1, 1, 2)) &&
           add_epilogue(g, random, 1);
}

static bool make_conv_bytes(struct ir_graph *g, uint64_t *random)
{
    int64_t k = PICK(random, 1, 1, 3, 5), group = PICK(random, 1, 1, 1, 4);
    int64_t c = PICK(random, 1, 3, 8, 16, 40) * group, m = PICK(random, 1, 8, 24, 64) * group;
    int64_t kernel[2] = {k, k};
    struct shape x = DIMS(between(random, 1, 3), c, between(random, 5, 18), between(random, 5, 18));
    uint32_t in[3] = {add_input(g, PICK(random, DTYPE_U8, DTYPE_I8), x),
                      add_integers(g, random, DIMS(m, c / group, k, k), DTYPE_I8),
                      chance(random, 60) ? add_integers(g, random, DIMS(m), DTYPE_I32) : IR_NONE};
    uint32_t node = ir_node_add(g, IR_OP_CONV, "conv", in[2] == IR_NONE ? 2 : 3, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_GROUP, group) &&
           set_window(g, random, node, kernel, PICK(random, 1, 1, 2), PICK(random, 1, 1, 1, 2)) &&
           finish(g, node);
}

static bool make_pointwise(struct ir_graph *g, uint64_t *random)
{
    int64_t kernel[2] = {1, 1}, image[2] = {between(random, 1, 20), between(random, 1, 20)};
    return conv(g, random, between(random, 1, 5), PICK(random, 16, 64, 120, 256),
                PICK(random, 16, 64, 136, 256), 1, image, kernel, PICK(random, 1, 1, 1, 2), 1) &&
           add_epilogue(g, random, 1);
}

static bool make_stem(struct ir_graph *g, uint64_t *random)
{
    int64_t k = PICK(random, 3, 7);
    int64_t kernel[2] = {k, k}, image[2] = {between(random, 20, 64), between(random, 20, 64)};
    return conv(g, random, between(random, 1, 4), PICK(random, 1, 3, 3, 4, 6),
                PICK(random, 16, 32, 64), 1, image, kernel, 2, 1) &&
           (chance(random, 40)   ? add_unary(g, IR_UNARY_RELU, 0, 0)
            : chance(random, 50) ? add_unary(g, IR_UNARY_CLIP, 0, 6)
                                 : add_epilogue(g, random, 1));
}

static bool make_depthwise(struct ir_graph *g, uint64_t *random)
{
    int64_t k = PICK(random, 3, 3, 5, 7), c = PICK(random, 3, 8, 20, 32, 96, 144);
    int64_t kernel[2] = {k, k}, image[2] = {between(random, 4, 30), between(random, 4, 30)};
    return conv(g, random, between(random, 1, 4), c, c, c, image, kernel, PICK(random, 1, 2),
                PICK(random, 1, 1, 1, 2)) &&
           add_epilogue(g, random, 1);
}

static bool make_grouped(struct ir_graph *g, uint64_t *random)
{
    int64_t kernel[2] = {3, 3}, image[2] = {between(random, 4, 14), between(random, 4, 14)};
    int64_t group = PICK(random, 2, 4, 8);
    return conv(g, random, between(random, 1, 3), 8 * group, PICK(random, 4, 8, 16) * group, group,
                image, kernel, PICK(random, 1, 2), 1) &&
           add_epilogue(g, random, 1);
}

/* Sequences, with groups and without. */
static bool make_line(struct ir_graph *g, uint64_t *random)
{
    int64_t c = PICK(random, 3, 16, 40, 64), group = PICK(random, 1, 1, c);
    int64_t k = PICK(random, 1, 3, 5, 9), stride = PICK(random, 1, 1, 2);
    int64_t dilation = PICK(random, 1, 1, 3), pads[2] = {k / 2 * dilation, k / 2};
    int64_t m = group > 1 ? c : PICK(random, 8, 32, 50);
    uint32_t in[3] = {
        add_input(g, DTYPE_F32, DIMS(between(random, 1, 4), c, between(random, 20, 90))),
        add_constant(g, random, DIMS(m, c / group, k), 0.3), add_constant(g, random, DIMS(m), 0.5)};
    uint32_t node = ir_node_add(g, IR_OP_CONV, "line", 3, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_GROUP, group) &&
           ir_attr_set_ints(g, node, IR_ATTR_STRIDES, 1, &stride) &&
           ir_attr_set_ints(g, node, IR_ATTR_DILATIONS, 1, &dilation) &&
           ir_attr_set_ints(g, node, IR_ATTR_PADS, 2, pads) && finish(g, node) &&
           add_epilogue(g, random, 1);
}

static bool make_pool(struct ir_graph *g, uint64_t *random)
{
    struct shape x = DIMS(between(random, 1, 4), PICK(random, 1, 3, 8, 20, 64),
                          between(random, 3, 30), between(random, 3, 30));
    uint32_t in = add_input(g, DTYPE_F32, x), node = ir_node_add(g, IR_OP_POOL, "pool", 1, &in);
    int64_t k = PICK(random, 2, 3, 3, 5);
    int64_t kernel[2] = {MIN(k, x.dim[2]), MIN(k, x.dim[3])};
    if (chance(random, 20)) {
        kernel[0] = x.dim[2]; /* global */
        kernel[1] = x.dim[3];
    }
    int64_t strides[2] = {PICK(random, 1, 2), PICK(random, 1, 2)};
    int64_t pads[4] = {between(random, 0, kernel[0] / 2), between(random, 0, kernel[1] / 2),
                       between(random, 0, kernel[0] / 2), between(random, 0, kernel[1] / 2)};
    return node != IR_NONE &&
           ir_attr_set_int(g, node, IR_ATTR_FUNC,
                           PICK(random, IR_POOL_MAX, IR_POOL_AVERAGE, IR_POOL_LP)) &&
           ir_attr_set_ints(g, node, IR_ATTR_KERNEL, 2, kernel) &&
           ir_attr_set_ints(g, node, IR_ATTR_STRIDES, 2, strides) &&
           ir_attr_set_ints(g, node, IR_ATTR_PADS, 4, pads) &&
           ir_attr_set_int(g, node, IR_ATTR_COUNT_INCLUDE_PAD, chance(random, 50)) &&
           ir_attr_set_int(g, node, IR_ATTR_CEIL_MODE, chance(random, 30)) && finish(g, node) &&
           (chance(random, 70) || add_epilogue(g, random, 1));
}

/* --- matrices --- */

static bool make_matmul(struct ir_graph *g, uint64_t *random)
{
    bool weights = chance(random, 60), trans_a = chance(random, 15), trans_b = chance(random, 30);
    int64_t m = PICK(random, 1, 2, 5, 16, 33, 64, 128), n = PICK(random, 1, 8, 10, 64, 96, 136);
    int64_t k = PICK(random, 8, 16, 31, 64, 200), lead = PICK(random, 0, 0, 1, 2, 6);
    struct shape a = trans_a ? DIMS(k, m) : DIMS(m, k), b = trans_b ? DIMS(n, k) : DIMS(k, n);
    if (lead)
        a = DIMS(lead, a.dim[0], a.dim[1]);
    if (lead && !weights)
        b = DIMS(chance(random, 25) ? 1 : lead, b.dim[0], b.dim[1]);
    uint32_t in[3] = {add_input(g, DTYPE_F32, a), IR_NONE, IR_NONE};
    in[1] =
        weights ? add_constant(g, random, b, 1.7 / sqrt((double)k)) : add_input(g, DTYPE_F32, b);
    if (chance(random, 60))
        in[2] = add_constant(g, random, DIMS(n), 0.5);
    uint32_t node = ir_node_add(g, IR_OP_MATMUL, "matmul", in[2] == IR_NONE ? 2 : 3, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_TRANS_A, trans_a) &&
           ir_attr_set_int(g, node, IR_ATTR_TRANS_B, trans_b) &&
           ir_attr_set_float(g, node, IR_ATTR_ALPHA, chance(random, 20) ? 0.125F : 1.0F) &&
           finish(g, node) && add_epilogue(g, random, out_shape(g).rank - 1);
}

/* What every library's kernels for 8 bits take. */
static bool add_usual(struct ir_graph *g, uint64_t *random, uint32_t axis)
{
    switch (between(random, 0, 5)) {
    case 0:
        return true;
    case 1:
        return add_unary(g, IR_UNARY_RELU, 0, 0);
    case 2:
        return add_unary(g, IR_UNARY_GELU, 0, 0);
    case 3:
        return add_unary(g, IR_UNARY_GELU_TANH, 0, 0);
    default:
        return add_epilogue(g, random, axis);
    }
}

static bool make_matmul_wide(struct ir_graph *g, uint64_t *random)
{
    int64_t m = PICK(random, 1, 5, 16, 64), n = PICK(random, 16, 64, 96, 144);
    int64_t k = PICK(random, 16, 64, 208, 1040), lead = PICK(random, 0, 0, 3);
    bool trans = chance(random, 50);
    uint32_t in[3] = {
        add_input(g, DTYPE_F32, lead ? DIMS(lead, m, k) : DIMS(m, k)),
        add_constant(g, random, trans ? DIMS(n, k) : DIMS(k, n), 1.7 / sqrt((double)k)),
        chance(random, 80) ? add_constant(g, random, DIMS(n), 0.5) : IR_NONE};
    uint32_t node = ir_node_add(g, IR_OP_MATMUL, "matmul", in[2] == IR_NONE ? 2 : 3, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_TRANS_B, trans) && finish(g, node) &&
           add_usual(g, random, out_shape(g).rank - 1);
}

static bool make_conv_wide(struct ir_graph *g, uint64_t *random)
{
    int64_t k = PICK(random, 1, 3), image[2] = {between(random, 4, 16), between(random, 4, 16)};
    int64_t kernel[2] = {k, k};
    return conv(g, random, between(random, 1, 4), PICK(random, 16, 64, 96),
                PICK(random, 16, 64, 144), 1, image, kernel, PICK(random, 1, 1, 2), 1) &&
           add_usual(g, random, 1);
}

/* --- rows --- */

static bool make_softmax(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 1);
    uint32_t in = add_input(g, DTYPE_F32, x), node = ir_node_add(g, IR_OP_SOFTMAX, "sm", 1, &in);
    int64_t axis = chance(random, 60) ? x.rank - 1 : between(random, 0, x.rank - 1);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_AXIS, axis) &&
           ir_attr_set_int(g, node, IR_ATTR_LOG, chance(random, 25)) && finish(g, node) &&
           (chance(random, 70) || add_epilogue(g, random, x.rank - 1));
}

static bool make_layer_norm(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 2), row = {.rank = 1, .dim = {x.dim[x.rank - 1]}};
    uint32_t in[3] = {add_input(g, DTYPE_F32, x), add_constant(g, random, row, 1),
                      chance(random, 80) ? add_constant(g, random, row, 1) : IR_NONE};
    uint32_t node = ir_node_add(g, IR_OP_LAYER_NORM, "ln", in[2] == IR_NONE ? 2 : 3, in);
    return node != IR_NONE && row.dim[0] > 1 &&
           ir_attr_set_int(g, node, IR_ATTR_AXIS, x.rank - 1) &&
           ir_attr_set_int(g, node, IR_ATTR_RMS, chance(random, 30)) &&
           ir_attr_set_float(g, node, IR_ATTR_EPSILON, 1e-5F) && finish(g, node) &&
           (chance(random, 70) || add_epilogue(g, random, x.rank - 1));
}

static bool make_batch_norm(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 2), channels = DIMS(x.dim[1]);
    uint32_t in[5] = {add_input(g, DTYPE_F32, x)};
    for (int i = 1; i < 5; i++)
        if ((in[i] = add_constant(g, random, channels, 1)) == IR_NONE)
            return false;
    float *variance = (float *)(uintptr_t)ir_tensor(g, in[4])->data; /* just drawn */
    for (int64_t c = 0; c < x.dim[1]; c++)
        variance[c] = 0.1F + variance[c] * variance[c];
    uint32_t node = ir_node_add(g, IR_OP_BATCH_NORM, "bn", 5, in);
    return node != IR_NONE && ir_attr_set_float(g, node, IR_ATTR_EPSILON, 1e-5F) &&
           finish(g, node) && (chance(random, 60) || add_epilogue(g, random, 1));
}

static bool make_reduce(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 2);
    uint32_t in = add_input(g, DTYPE_F32, x), node = ir_node_add(g, IR_OP_REDUCE, "red", 1, &in);
    int64_t axes[SHAPE_MAX_RANK];
    uint32_t n = 0;
    for (uint32_t i = 0; i < x.rank; i++)
        if (chance(random, 50))
            axes[n++] = i;
    if (x.rank == 4 && chance(random, 40)) {
        axes[0] = 2;
        axes[1] = 3;
        n = 2;
    }
    /* Reductions by product or by the logarithm of a sum that may be negative are compared
     * elsewhere. */
    return n && node != IR_NONE &&
           ir_attr_set_int(g, node, IR_ATTR_FUNC,
                           PICK(random, IR_REDUCE_SUM, IR_REDUCE_MEAN, IR_REDUCE_MEAN,
                                IR_REDUCE_MAX, IR_REDUCE_MIN, IR_REDUCE_L1, IR_REDUCE_L2,
                                IR_REDUCE_SUM_SQUARE, IR_REDUCE_LOG_SUM_EXP)) &&
           ir_attr_set_ints(g, node, IR_ATTR_AXES, n, axes) &&
           ir_attr_set_int(g, node, IR_ATTR_KEEPDIMS, chance(random, 70)) && finish(g, node) &&
           (chance(random, 70) || add_epilogue(g, random, 1));
}

/* --- elementwise --- */

static bool make_unary(struct ir_graph *g, uint64_t *random)
{
    static const struct {
        enum ir_unary func;
        float a, b, g;
    } rows[] = {
        {IR_UNARY_IDENTITY, 0, 0, 0},
        {IR_UNARY_RELU, 0, 0, 0},
        {IR_UNARY_LEAKY_RELU, .01F, 0, 0},
        {IR_UNARY_ELU, 1, 0, 0},
        {IR_UNARY_SELU, 1.67326319F, 0, 1.05070102F},
        {IR_UNARY_CELU, 1, 0, 0},
        {IR_UNARY_SIGMOID, 0, 0, 0},
        {IR_UNARY_HARD_SIGMOID, .2F, .5F, 0},
        {IR_UNARY_HARD_SWISH, 0, 0, 0},
        {IR_UNARY_SWISH, 1, 0, 0},
        {IR_UNARY_TANH, 0, 0, 0},
        {IR_UNARY_SOFTPLUS, 0, 0, 0},
        {IR_UNARY_SOFTSIGN, 0, 0, 0},
        {IR_UNARY_THRESHOLDED_RELU, .5F, 0, 0},
        {IR_UNARY_GELU, 0, 0, 0},
        {IR_UNARY_GELU_TANH, 0, 0, 0},
        {IR_UNARY_MISH, 0, 0, 0},
        {IR_UNARY_CLIP, -.5F, .5F, 0},
        {IR_UNARY_LINEAR, 2, .25F, 0},
        {IR_UNARY_ABS, 0, 0, 0},
        {IR_UNARY_NEG, 0, 0, 0},
        {IR_UNARY_EXP, 0, 0, 0},
        {IR_UNARY_ERF, 0, 0, 0},
        {IR_UNARY_FLOOR, 0, 0, 0},
        {IR_UNARY_CEIL, 0, 0, 0},
        {IR_UNARY_ROUND, 0, 0, 0},
        {IR_UNARY_SIGN, 0, 0, 0},
        {IR_UNARY_SIN, 0, 0, 0},
        {IR_UNARY_COS, 0, 0, 0},
        {IR_UNARY_ATAN, 0, 0, 0},
        {IR_UNARY_SINH, 0, 0, 0},
        {IR_UNARY_ASINH, 0, 0, 0},
        {IR_UNARY_SHRINK, 0, .5F, 0},
    };
    uint32_t in = add_input(g, DTYPE_F32, any_shape(random, 0));
    uint32_t node = ir_node_add(g, IR_OP_UNARY, "unary", 1, &in), r = draw(random) % 33;
    if (node == IR_NONE || !ir_attr_set_int(g, node, IR_ATTR_FUNC, rows[r].func) ||
        !ir_attr_set_float(g, node, IR_ATTR_ALPHA, rows[r].a) ||
        !ir_attr_set_float(g, node, IR_ATTR_BETA, rows[r].b) ||
        !ir_attr_set_float(g, node, IR_ATTR_GAMMA, rows[r].g) || !finish(g, node))
        return false;
    uint32_t rank = out_shape(g).rank;
    return rank < 2 || add_epilogue(g, random, chance(random, 50) ? 1 : rank - 1);
}

static bool make_binary(struct ir_graph *g, uint64_t *random)
{
    struct shape a = any_shape(random, 1), b = a;
    if (chance(random, 50))
        for (uint32_t i = 0; i < b.rank; i++)
            b.dim[i] = chance(random, 50) ? 1 : b.dim[i];
    if (chance(random, 20))
        b = DIMS(a.dim[a.rank - 1]);
    uint32_t in[2] = {add_input(g, DTYPE_F32, a), add_input(g, DTYPE_F32, b)};
    if (chance(random, 30)) {
        uint32_t swap = in[0];
        in[0] = in[1];
        in[1] = swap;
    }
    uint32_t node = ir_node_add(g, IR_OP_BINARY, "binary", 2, in);
    int64_t func = PICK(random, IR_BINARY_ADD, IR_BINARY_SUB, IR_BINARY_MUL, IR_BINARY_MAX,
                        IR_BINARY_MIN, IR_BINARY_PRELU, IR_BINARY_LESS, IR_BINARY_GREATER_EQUAL);
    if (node == IR_NONE || !ir_attr_set_int(g, node, IR_ATTR_FUNC, func) || !finish(g, node))
        return false;
    uint32_t rank = out_shape(g).rank;
    return func >= IR_BINARY_EQUAL || rank < 2 || add_epilogue(g, random, rank - 1);
}

static bool make_select(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 1), cond = x;
    for (uint32_t i = 0; i < cond.rank; i++)
        cond.dim[i] = chance(random, 30) ? 1 : cond.dim[i];
    uint32_t in[3] = {add_input(g, DTYPE_BOOL, cond), add_input(g, DTYPE_F32, x),
                      add_input(g, DTYPE_F32, x)};
    return finish(g, ir_node_add(g, IR_OP_SELECT, "select", 3, in));
}

static bool make_cast(struct ir_graph *g, uint64_t *random)
{
    static const int64_t types[] = {DTYPE_BOOL, DTYPE_U8,  DTYPE_I8, DTYPE_I32,
                                    DTYPE_I64,  DTYPE_F16, DTYPE_F32};
    int64_t from = pick(random, types, ARRAY_LEN(types)),
            to = pick(random, types, ARRAY_LEN(types));
    uint32_t in = add_input(g, (enum dtype)from, any_shape(random, 1));
    uint32_t node = ir_node_add(g, IR_OP_CAST, "cast", 1, &in);
    return from != to && node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_TO, to) &&
           finish(g, node);
}

/* --- movement --- */

static bool make_reshape(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 2);
    uint32_t in = add_input(g, DTYPE_F32, x), node = ir_node_add(g, IR_OP_RESHAPE, "rs", 1, &in);
    int64_t to[SHAPE_MAX_RANK];
    to[0] = x.dim[0] * x.dim[1];
    for (uint32_t i = 2; i < x.rank; i++)
        to[i - 1] = x.dim[i];
    return node != IR_NONE && ir_attr_set_ints(g, node, IR_ATTR_SHAPE, x.rank - 1, to) &&
           finish(g, node);
}

static bool make_transpose(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 2);
    uint32_t in = add_input(g, DTYPE_F32, x), node = ir_node_add(g, IR_OP_TRANSPOSE, "tr", 1, &in);
    int64_t perm[SHAPE_MAX_RANK];
    for (uint32_t i = 0; i < x.rank; i++)
        perm[i] = i;
    for (uint32_t i = x.rank - 1; i > 0; i--) {
        uint32_t k = draw(random) % (i + 1);
        int64_t swap = perm[i];
        perm[i] = perm[k];
        perm[k] = swap;
    }
    return node != IR_NONE && ir_attr_set_ints(g, node, IR_ATTR_PERM, x.rank, perm) &&
           finish(g, node);
}

static bool make_concat(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 2);
    uint32_t in[70], n = (uint32_t)between(random, 2, 5), axis = chance(random, 60) ? 1 : 0;
    bool many = chance(random, 10);
    if (many)
        x = DIMS(3, 2, 5);
    for (uint32_t i = 0; i < n; i++) {
        struct shape part = x;
        part.dim[axis] = PICK(random, 1, 3, 8, 16, 32);
        in[i] = add_input(g, DTYPE_F32, part);
    }
    for (uint32_t i = n; many && i < ARRAY_LEN(in); i++)
        in[i] = in[i - n];
    n = many ? (uint32_t)PICK(random, 33, 64, 70) : n;
    uint32_t node = ir_node_add(g, IR_OP_CONCAT, "concat", n, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_AXIS, axis) && finish(g, node) &&
           (many || chance(random, 60) || add_epilogue(g, random, 1));
}

static bool make_slice(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 1);
    uint32_t in = add_input(g, DTYPE_F32, x), node = ir_node_add(g, IR_OP_SLICE, "slice", 1, &in);
    int64_t starts[SHAPE_MAX_RANK], ends[SHAPE_MAX_RANK], steps[SHAPE_MAX_RANK];
    for (uint32_t i = 0; i < x.rank; i++) {
        steps[i] = chance(random, 20) ? 2 : 1;
        starts[i] = between(random, 0, x.dim[i] - 1);
        ends[i] = between(random, starts[i] + 1, x.dim[i]);
        if (chance(random, 15)) {
            steps[i] = -1;
            ends[i] = starts[i] - between(random, 1, starts[i] + 1);
        }
    }
    return node != IR_NONE && ir_attr_set_ints(g, node, IR_ATTR_STARTS, x.rank, starts) &&
           ir_attr_set_ints(g, node, IR_ATTR_ENDS, x.rank, ends) &&
           ir_attr_set_ints(g, node, IR_ATTR_STEPS, x.rank, steps) && finish(g, node);
}

static bool make_pad(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 1);
    uint32_t in = add_input(g, DTYPE_F32, x), node = ir_node_add(g, IR_OP_PAD, "pad", 1, &in);
    int64_t pads[2 * SHAPE_MAX_RANK];
    for (uint32_t i = 0; i < 2 * x.rank; i++)
        pads[i] = chance(random, 20) && x.dim[i % x.rank] > 4 ? between(random, -2, -1)
                                                              : between(random, 0, 3);
    return node != IR_NONE && ir_attr_set_ints(g, node, IR_ATTR_PADS, 2 * x.rank, pads) &&
           ir_attr_set_int(g, node, IR_ATTR_MODE,
                           PICK(random, IR_PAD_CONSTANT, IR_PAD_CONSTANT, IR_PAD_REFLECT,
                                IR_PAD_EDGE, IR_PAD_WRAP)) &&
           ir_attr_set_float(g, node, IR_ATTR_VALUE, chance(random, 50) ? 0.0F : -1.5F) &&
           finish(g, node);
}

static bool make_gather(struct ir_graph *g, uint64_t *random)
{
    struct shape x = any_shape(random, 1);
    int64_t axis = between(random, 0, x.rank - 1);
    struct shape at = chance(random, 50) ? DIMS(between(random, 1, 9), 3) : DIMS(5);
    uint32_t in[2] = {chance(random, 50) ? add_constant(g, random, x, 1)
                                         : add_input(g, DTYPE_F32, x),
                      add_indices(g, random, at, x.dim[axis])};
    uint32_t node = ir_node_add(g, IR_OP_GATHER, "gather", 2, in);
    return x.rank + at.rank <= 5 && node != IR_NONE &&
           ir_attr_set_int(g, node, IR_ATTR_AXIS, axis) && finish(g, node);
}

/* Ids and rows repeat along dims before or behind their own, or not at all. */
static bool make_embed(struct ir_graph *g, uint64_t *random)
{
    int64_t batch = between(random, 1, 9), length = between(random, 1, 9),
            width = PICK(random, 1, 3, 7, 8, 64, 100, 768);
    struct shape ids[] = {DIMS(batch, length), DIMS(1, length), DIMS(length), DIMS(batch, 1)};
    uint32_t in[2 * IR_EMBED_TABLES], n = 0;
    for (uint32_t k = 0; k < (uint32_t)between(random, 1, IR_EMBED_TABLES); k++) {
        struct shape own = ids[k ? between(random, 0, 3) : 0];
        int64_t rows = between(random, 1, 50);
        if (k && chance(random, 40)) {
            own.dim[own.rank++] = width;
            in[n++] =
                chance(random, 50) ? add_constant(g, random, own, 1) : add_input(g, DTYPE_F32, own);
            in[n++] = IR_NONE;
            continue;
        }
        in[n++] = add_constant(g, random, DIMS(rows, width), 1);
        in[n++] = add_indices(g, random, own, rows);
    }
    return finish(g, ir_node_add(g, IR_OP_EMBED, "embed", n, in));
}

static bool make_expand(struct ir_graph *g, uint64_t *random)
{
    struct shape y = any_shape(random, 1), x = y;
    for (uint32_t i = 0; i < x.rank; i++)
        x.dim[i] = chance(random, 40) ? 1 : x.dim[i];
    uint32_t in = add_input(g, DTYPE_F32, x), node = ir_node_add(g, IR_OP_EXPAND, "expand", 1, &in);
    return node != IR_NONE && ir_attr_set_ints(g, node, IR_ATTR_SHAPE, y.rank, y.dim) &&
           finish(g, node);
}

const struct case_kind case_kinds[] = {
    {"conv", make_conv},
    {"conv-1x1", make_pointwise},
    {"conv-wide", make_conv_wide},
    {"conv-stem", make_stem},
    {"conv-pair", make_conv_pair},
    {"conv-chain", make_conv_chain},
    {"conv-pool", make_stem_pool},
    {"conv-depthwise", make_depthwise},
    {"conv-grouped", make_grouped},
    {"conv-bytes", make_conv_bytes},
    {"conv-line", make_line},
    {"pool", make_pool},
    {"conv-odd", make_conv_odd},
    {"deconv", make_deconv},
    {"resize", make_resize},
    {"instance-norm", make_instance_norm},
    {"lrn", make_lrn},
    {"sample", make_sample},
    {"roi-pool", make_roi_pool},
    {"matmul", make_matmul},
    {"matmul-wide", make_matmul_wide},
    {"matmul-bytes", make_matmul_bytes},
    {"matmul-head", make_head},
    {"matmul-deep", make_matmul_deep},
    {"mlp", make_mlp},
    {"attention", make_attention},
    {"attention-odd", make_attention_odd},
    {"softmax", make_softmax},
    {"layer-norm", make_layer_norm},
    {"batch-norm", make_batch_norm},
    {"reduce", make_reduce},
    {"unary", make_unary},
    {"binary", make_binary},
    {"select", make_select},
    {"cast", make_cast},
    {"quantise", make_quantise},
    {"dequantise", make_dequantise},
    {"reshape", make_reshape},
    {"transpose", make_transpose},
    {"concat", make_concat},
    {"slice", make_slice},
    {"pad", make_pad},
    {"gather", make_gather},
    {"embed", make_embed},
    {"expand", make_expand},
    {"recurrent", make_recurrent},
    {"arg-reduce", make_arg_reduce},
    {"cumsum", make_cumsum},
    {"topk", make_topk},
    {"trilu", make_trilu},
    {"one-hot", make_one_hot},
    {"gather-elements", make_gather_elements},
    {"gather-nd", make_gather_nd},
    {"scatter-elements", make_scatter_elements},
    {"scatter-nd", make_scatter_nd},
    {"reduce-any", make_reduce_any},
    {0},
};

void case_outputs(struct ir_graph *g)
{
    const struct ir_node *node = ir_node(g, 0);
    for (uint32_t i = 0; i < node->n_outputs; i++)
        g->outputs[g->n_outputs++] = node->outputs[i];
}

struct ir_graph *case_new(const struct case_kind *kind, uint64_t seed)
{
    uint64_t random = seed * 0x9e3779b97f4a7c15U + 12345;
    for (int i = 0; i < ATTEMPTS; i++) {
        struct ir_graph *g = ir_graph_new();
        if (g && kind->make(g, &random)) {
            case_outputs(g);
            if (!ir_verify(g, NULL))
                return g;
        }
        ir_graph_free(g);
    }
    return NULL;
}
