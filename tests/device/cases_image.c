/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of images: interpolation, sampling, regions, normalisation, transposed and unusual
 * convolutions. */
#include <math.h>

#include "tests/device/make.h"

static bool set_resize(struct ir_graph *g, uint64_t *random, uint32_t node, uint32_t rank,
                       const int64_t *y, const float *scales)
{
    int64_t mode = PICK(random, IR_RESIZE_NEAREST, IR_RESIZE_LINEAR, IR_RESIZE_LINEAR,
                        IR_RESIZE_LINEAR, IR_RESIZE_CUBIC);
    int64_t coord = between(random, IR_COORD_HALF_PIXEL, IR_COORD_TF_HALF_PIXEL_NN);
    float roi[2 * SHAPE_MAX_RANK];
    for (uint32_t d = 0; d < rank; d++) {
        roi[d] = d < 2 ? 0.0F : 0.125F * (float)between(random, -1, 3);
        roi[rank + d] = d < 2 ? 1.0F : 0.125F * (float)between(random, 5, 9);
    }
    return ir_attr_set_ints(g, node, IR_ATTR_SHAPE, rank, y) &&
           ir_attr_set_floats(g, node, IR_ATTR_SCALES, rank, scales) &&
           ir_attr_set_int(g, node, IR_ATTR_MODE, mode) &&
           ir_attr_set_int(g, node, IR_ATTR_COORD, coord) &&
           ir_attr_set_int(g, node, IR_ATTR_NEAREST, between(random, 0, IR_NEAREST_CEIL)) &&
           ir_attr_set_int(g, node, IR_ATTR_EXCLUDE_OUTSIDE, chance(random, 20)) &&
           ir_attr_set_int(g, node, IR_ATTR_ANTIALIAS,
                           mode != IR_RESIZE_NEAREST && chance(random, 20)) &&
           (coord != IR_COORD_TF_CROP || ir_attr_set_floats(g, node, IR_ATTR_ROI, 2 * rank, roi)) &&
           finish(g, node);
}

bool make_resize(struct ir_graph *g, uint64_t *random)
{
    struct shape x = {.rank = (uint32_t)PICK(random, 3, 4, 4, 4, 5),
                      .dim = {between(random, 1, 3), PICK(random, 1, 3, 8, 21, 64)}};
    int64_t y[SHAPE_MAX_RANK] = {x.dim[0], x.dim[1]};
    float scales[SHAPE_MAX_RANK] = {1, 1};
    for (uint32_t d = 2; d < x.rank; d++) {
        x.dim[d] = between(random, 1, x.rank == 5 ? 4 : 12);
        scales[d] = (float)PICK(random, 1, 2, 2, 4, 5, 9, 16) / (float)PICK(random, 1, 1, 2, 3, 4);
        y[d] = (int64_t)floorf((float)x.dim[d] * scales[d]);
        if (y[d] < 1 || y[d] > (x.rank == 5 ? 12 : 64))
            return false;
        if (chance(random, 50))
            scales[d] = (float)y[d] / (float)x.dim[d];
    }
    uint32_t in = add_input(g, DTYPE_F32, x), node = ir_node_add(g, IR_OP_RESIZE, "resize", 1, &in);
    return node != IR_NONE && set_resize(g, random, node, x.rank, y, scales) &&
           (chance(random, 70) || add_epilogue(g, random, 1));
}

bool sized_resize(struct ir_graph *g, uint64_t *random UNUSED, int64_t batch)
{
    uint32_t in = add_input(g, DTYPE_F32, DIMS(batch, 256, 32, 32));
    uint32_t node = ir_node_add(g, IR_OP_RESIZE, "resize", 1, &in);
    int64_t y[4] = {batch, 256, 128, 128};
    float scales[4] = {1, 1, 4, 4};
    return node != IR_NONE && ir_attr_set_ints(g, node, IR_ATTR_SHAPE, 4, y) &&
           ir_attr_set_floats(g, node, IR_ATTR_SCALES, 4, scales) &&
           ir_attr_set_int(g, node, IR_ATTR_MODE, IR_RESIZE_LINEAR) && finish(g, node);
}

bool make_instance_norm(struct ir_graph *g, uint64_t *random)
{
    struct shape x = {.rank = (uint32_t)between(random, 3, 5)};
    int64_t groups = PICK(random, 0, 0, 1, 2, 8);
    x.dim[0] = between(random, 1, 3);
    x.dim[1] = (groups ? groups : 1) * PICK(random, 1, 3, 4, 8, 16);
    for (uint32_t d = 2; d < x.rank; d++)
        x.dim[d] = between(random, 2, 12);
    bool constant = chance(random, 70);
    uint32_t in[3] = {add_input(g, DTYPE_F32, x)};
    for (int i = 1; i < 3; i++)
        in[i] = constant ? add_constant(g, random, DIMS(x.dim[1]), 1)
                         : add_input(g, DTYPE_F32, DIMS(x.dim[1]));
    uint32_t node = ir_node_add(g, IR_OP_INSTANCE_NORM, "norm", 3, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_GROUP, groups) &&
           ir_attr_set_float(g, node, IR_ATTR_EPSILON, 1e-5F) && finish(g, node) &&
           (chance(random, 60) || add_epilogue(g, random, 1));
}

bool make_lrn(struct ir_graph *g, uint64_t *random)
{
    struct shape x = DIMS(between(random, 1, 3), PICK(random, 1, 3, 8, 24, 96),
                          between(random, 1, 12), between(random, 1, 12));
    uint32_t in = add_input(g, DTYPE_F32, x), node = ir_node_add(g, IR_OP_LRN, "lrn", 1, &in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_SIZE, PICK(random, 1, 3, 4, 5)) &&
           ir_attr_set_float(g, node, IR_ATTR_ALPHA, 0.5F) &&
           ir_attr_set_float(g, node, IR_ATTR_BETA, 0.75F) &&
           ir_attr_set_float(g, node, IR_ATTR_BIAS, 1) && finish(g, node) &&
           (chance(random, 60) || add_epilogue(g, random, 1));
}

/* A window of 1 to 3 dims, whose padding need not be the same on both sides. */
static bool set_uneven(struct ir_graph *g, uint64_t *random, uint32_t node, uint32_t spatial,
                       const int64_t *kernel)
{
    int64_t strides[3], dilations[3], pads[6];
    for (uint32_t i = 0; i < spatial; i++) {
        strides[i] = PICK(random, 1, 1, 2);
        dilations[i] = PICK(random, 1, 1, 1, 2);
        pads[i] = between(random, 0, kernel[i] / 2);
        pads[spatial + i] = between(random, 0, kernel[i] / 2);
    }
    return ir_attr_set_ints(g, node, IR_ATTR_STRIDES, spatial, strides) &&
           ir_attr_set_ints(g, node, IR_ATTR_DILATIONS, spatial, dilations) &&
           ir_attr_set_ints(g, node, IR_ATTR_PADS, 2 * spatial, pads);
}

static uint32_t add_window(struct ir_graph *g, uint64_t *random, enum ir_op op, uint32_t spatial,
                           int64_t *kernel)
{
    int64_t group = PICK(random, 1, 1, 1, 2, 4), c = PICK(random, 3, 8, 16) * group;
    int64_t m = PICK(random, 4, 8, 24) * group;
    bool transposed = op == IR_OP_DECONV, computed = chance(random, 15);
    struct shape x = {.rank = spatial + 2, .dim = {between(random, 1, 3), c}}, w = x;
    w.dim[0] = transposed ? c : m;
    w.dim[1] = (transposed ? m : c) / group;
    int64_t taps = 1;
    for (uint32_t i = 0; i < spatial; i++) {
        x.dim[2 + i] = between(random, 3, spatial == 3 ? 7 : 16);
        w.dim[2 + i] = kernel[i] = PICK(random, 1, 2, 3, 3, spatial == 1 ? 9 : 4);
        taps *= kernel[i];
    }
    double scale = 1.7 / sqrt((double)(c / group * taps));
    uint32_t in[3] = {add_input(g, DTYPE_F32, x),
                      computed ? add_input(g, DTYPE_F32, w) : add_constant(g, random, w, scale),
                      chance(random, 60) ? add_constant(g, random, DIMS(m), 0.5) : IR_NONE};
    uint32_t node = ir_node_add(g, op, "conv", in[2] == IR_NONE ? 2 : 3, in);
    if (node != IR_NONE && !ir_attr_set_int(g, node, IR_ATTR_GROUP, group))
        return IR_NONE;
    return node;
}

bool make_conv_odd(struct ir_graph *g, uint64_t *random)
{
    uint32_t spatial = (uint32_t)between(random, 1, 3);
    int64_t kernel[3];
    uint32_t node = add_window(g, random, IR_OP_CONV, spatial, kernel);
    return node != IR_NONE && set_uneven(g, random, node, spatial, kernel) && finish(g, node) &&
           add_epilogue(g, random, 1);
}

bool make_deconv(struct ir_graph *g, uint64_t *random)
{
    uint32_t spatial = (uint32_t)between(random, 1, 3);
    int64_t kernel[3], strides[3] = {2, 2, 2}, extra[3];
    uint32_t node = add_window(g, random, IR_OP_DECONV, spatial, kernel);
    for (uint32_t i = 0; i < spatial; i++)
        extra[i] = chance(random, 30);
    return node != IR_NONE && set_uneven(g, random, node, spatial, kernel) &&
           ir_attr_set_ints(g, node, IR_ATTR_STRIDES, spatial, strides) &&
           ir_attr_set_ints(g, node, IR_ATTR_OUTPUT_PADDING, spatial, extra) && finish(g, node) &&
           add_epilogue(g, random, 1);
}

bool sized_group_norm(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    uint32_t in[3] = {add_input(g, DTYPE_F32, DIMS(batch, 320, 64, 64)),
                      add_constant(g, random, DIMS(320), 1), add_constant(g, random, DIMS(320), 1)};
    uint32_t node = ir_node_add(g, IR_OP_INSTANCE_NORM, "norm", 3, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_GROUP, 32) &&
           ir_attr_set_float(g, node, IR_ATTR_EPSILON, 1e-5F) && finish(g, node);
}

bool sized_deconv(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    int64_t strides[2] = {2, 2};
    uint32_t in[3] = {add_input(g, DTYPE_F32, DIMS(batch, 128, 56, 56)),
                      add_constant(g, random, DIMS(128, 64, 2, 2), 0.1),
                      add_constant(g, random, DIMS(64), 0.5)};
    uint32_t node = ir_node_add(g, IR_OP_DECONV, "deconv", 3, in);
    return node != IR_NONE && ir_attr_set_ints(g, node, IR_ATTR_STRIDES, 2, strides) &&
           finish(g, node);
}

bool make_sample(struct ir_graph *g, uint64_t *random)
{
    struct shape x = {.rank = (uint32_t)PICK(random, 3, 4, 4, 4, 5),
                      .dim = {between(random, 1, 3), PICK(random, 1, 3, 8, 21, 64)}};
    struct shape grid = {.rank = x.rank, .dim = {x.dim[0]}};
    for (uint32_t d = 2; d < x.rank; d++) {
        x.dim[d] = between(random, 1, 9);
        grid.dim[d - 1] = between(random, 1, 9);
    }
    grid.dim[x.rank - 1] = x.rank - 2;
    uint32_t in[2] = {add_input(g, DTYPE_F32, x), add_input(g, DTYPE_F32, grid)};
    uint32_t node = ir_node_add(g, IR_OP_SAMPLE, "sample", 2, in);
    return node != IR_NONE &&
           ir_attr_set_int(g, node, IR_ATTR_MODE,
                           PICK(random, IR_RESIZE_LINEAR, IR_RESIZE_LINEAR, IR_RESIZE_NEAREST,
                                IR_RESIZE_CUBIC)) &&
           ir_attr_set_int(g, node, IR_ATTR_BORDER, between(random, 0, IR_BORDER_REFLECT)) &&
           ir_attr_set_int(g, node, IR_ATTR_COORD, between(random, 0, IR_SAMPLE_PIXELS)) &&
           finish(g, node);
}

bool make_roi_pool(struct ir_graph *g, uint64_t *random)
{
    int64_t regions = between(random, 1, 7), images = between(random, 1, 3);
    int64_t bins[2] = {between(random, 1, 7), between(random, 1, 7)};
    struct shape x =
        DIMS(images, PICK(random, 1, 3, 8, 21, 64), between(random, 2, 14), between(random, 2, 14));
    float *rois = arena_array(g->arena, (size_t)regions * 4, sizeof(*rois));
    int64_t *batch = arena_array(g->arena, (size_t)regions, sizeof(*batch));
    for (int64_t r = 0; rois && batch && r < regions; r++) {
        for (int i = 0; i < 4; i++)
            rois[r * 4 + i] = (float)between(random, i < 2 ? -40 : 0, i < 2 ? 160 : 250) / 8;
        batch[r] = between(random, 0, images - 1);
    }
    if (!rois || !batch)
        return false;
    struct shape four = DIMS(regions, 4), one = DIMS(regions);
    uint32_t in[3] = {add_input(g, DTYPE_F32, x),
                      ir_constant_add(g, "rois", DTYPE_F32, &four, rois),
                      ir_constant_add(g, "batch", DTYPE_I64, &one, batch)};
    uint32_t node = ir_node_add(g, IR_OP_ROI_POOL, "roi", 3, in);
    return node != IR_NONE && ir_attr_set_ints(g, node, IR_ATTR_SHAPE, 2, bins) &&
           ir_attr_set_int(g, node, IR_ATTR_FUNC, between(random, 0, IR_ROI_MAX_QUANTISED)) &&
           ir_attr_set_float(g, node, IR_ATTR_ALPHA, chance(random, 50) ? 1 : 0.5F) &&
           ir_attr_set_int(g, node, IR_ATTR_SIZE, PICK(random, 0, 2, 3)) &&
           ir_attr_set_int(g, node, IR_ATTR_COORD, chance(random, 50)) && finish(g, node);
}

/* First layers with their pool, of images that may be bytes, and windows that reach further on one
 * side. */
bool make_stem_pool(struct ir_graph *g, uint64_t *random)
{
    int64_t k = PICK(random, 3, 7, 7), c = PICK(random, 1, 3, 3, 4), m = PICK(random, 16, 40, 64);
    int64_t pads[4] = {k / 2, k / 2, k / 2, chance(random, 15) ? 0 : k / 2}, strides[2] = {2, 2};
    struct shape x = DIMS(between(random, 1, 3), c, between(random, 8, 24), between(random, 8, 24));
    uint32_t in[3] = {
        add_input(g, chance(random, 50) ? DTYPE_U8 : DTYPE_F32, x),
        add_constant(g, random, DIMS(m, c, k, k), 1.7 / sqrt((double)(c * k * k))),
        chance(random, 80) ? add_constant(g, random, DIMS(m), 0.5) : IR_NONE,
    };
    uint32_t node = ir_node_add(g, IR_OP_CONV_POOL, "stem", in[2] == IR_NONE ? 2 : 3, in);
    return node != IR_NONE && ir_attr_set_ints(g, node, IR_ATTR_STRIDES, 2, strides) &&
           ir_attr_set_ints(g, node, IR_ATTR_PADS, 4, pads) && finish(g, node) &&
           (chance(random, 30) || add_unary(g, IR_UNARY_RELU, 0, 0));
}

/* Ends of residual blocks: two sources of their own depths, the second one larger or not. */
bool make_conv_pair(struct ir_graph *g, uint64_t *random)
{
    int64_t n = between(random, 1, 3), h = between(random, 1, 9), w = between(random, 1, 9);
    int64_t c = PICK(random, 16, 64, 72, 128, 208), d = PICK(random, 16, 64, 144, 136, 80);
    int64_t m = PICK(random, 16, 48, 64, 257, 272);
    int64_t strides[2] = {between(random, 1, 2), between(random, 1, 3)};
    int64_t rest[2] = {between(random, 0, strides[0] - 1), between(random, 0, strides[1] - 1)};
    uint32_t in[5] = {
        add_input(g, DTYPE_F32, DIMS(n, c, h, w)),
        add_constant(g, random, DIMS(m, c, 1, 1), 1.2 / sqrt((double)c)),
        add_input(
            g, DTYPE_F32,
            DIMS(n, d, (h - 1) * strides[0] + 1 + rest[0], (w - 1) * strides[1] + 1 + rest[1])),
        add_constant(g, random, DIMS(m, d, 1, 1), 1.2 / sqrt((double)d)),
        chance(random, 80) ? add_constant(g, random, DIMS(m), 0.5) : IR_NONE,
    };
    uint32_t node = ir_node_add(g, IR_OP_CONV_PAIR, "pair", in[4] == IR_NONE ? 4 : 5, in);
    return node != IR_NONE && ir_attr_set_ints(g, node, IR_ATTR_STRIDES, 2, strides) &&
           finish(g, node) && (chance(random, 30) || add_unary(g, IR_UNARY_RELU, 0, 0));
}

/* Gives the chain's other inputs where it has them, and the number of all. */
static uint32_t chain_inputs(struct ir_graph *g, uint64_t *random, struct shape y, int64_t next,
                             const int64_t *strides, uint32_t in[IR_CHAIN_INPUTS])
{
    bool two = chance(random, 35), residual = !two && chance(random, 70);
    int64_t m = y.dim[1], d = PICK(random, 16, 64, 72, 128);
    int64_t rest[2] = {between(random, 0, strides[0] - 1), between(random, 0, strides[1] - 1)};
    uint32_t n = IR_CHAIN_INPUTS;
    for (uint32_t i = IR_CHAIN_X2; i < IR_CHAIN_INPUTS; i++)
        in[i] = IR_NONE;
    if (two) {
        in[IR_CHAIN_X2] = add_input(g, DTYPE_F32,
                                    DIMS(y.dim[0], d, (y.dim[2] - 1) * strides[0] + 1 + rest[0],
                                         (y.dim[3] - 1) * strides[1] + 1 + rest[1]));
        in[IR_CHAIN_W2] = add_constant(g, random, DIMS(m, d, 1, 1), 1.2 / sqrt((double)d));
    }
    if (chance(random, 80))
        in[IR_CHAIN_BIAS] = add_constant(g, random, DIMS(m), 0.5);
    if (residual)
        in[IR_CHAIN_RESIDUAL] = add_input(g, DTYPE_F32, y);
    if (chance(random, 80))
        in[IR_CHAIN_NEXT_BIAS] = add_constant(g, random, DIMS(next), 0.5);
    while (in[n - 1] == IR_NONE)
        n--;
    return n;
}

/* The end of a residual block, of one source with a residual or without, or of two, and the next
 * block's first convolution. */
bool make_conv_chain(struct ir_graph *g, uint64_t *random)
{
    struct shape x = DIMS(between(random, 1, 3), PICK(random, 16, 64, 64, 72, 128, 128),
                          between(random, 1, 9), between(random, 1, 9));
    struct shape y = x;
    int64_t c = x.dim[1], m = PICK(random, 64, 128, 256, 256, 272);
    int64_t k = PICK(random, 16, 48, 64, 128);
    int64_t strides[2] = {between(random, 1, 2), between(random, 1, 3)};
    int64_t funcs[2] = {chance(random, 70) ? IR_UNARY_RELU : IR_UNARY_IDENTITY,
                        chance(random, 70) ? IR_UNARY_RELU : IR_UNARY_IDENTITY};
    y.dim[1] = m;
    uint32_t in[IR_CHAIN_INPUTS] = {
        add_input(g, DTYPE_F32, x),
        add_constant(g, random, DIMS(m, c, 1, 1), 1.2 / sqrt((double)c)),
        add_constant(g, random, DIMS(k, m, 1, 1), 1.2 / sqrt((double)m)),
    };
    uint32_t n = chain_inputs(g, random, y, k, strides, in);
    uint32_t node = ir_node_add(g, IR_OP_CONV_CHAIN, "chain", n, in);
    return node != IR_NONE &&
           (in[IR_CHAIN_X2] == IR_NONE || ir_attr_set_ints(g, node, IR_ATTR_STRIDES, 2, strides)) &&
           ir_attr_set_ints(g, node, IR_ATTR_FUNCS, 2, funcs) && finish(g, node);
}
