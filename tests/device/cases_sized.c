/* SPDX-License-Identifier: Apache-2.0 */
/* Layers of networks that are served, at their sizes, for timing. */
#include "tests/device/cases.h"

#include <math.h>

#include "tests/device/make.h"

/* A convolution of images of this side, or its form with the pool inside. */
static uint32_t add_conv(struct ir_graph *g, uint64_t *random, enum ir_op op, enum dtype image,
                         struct shape x, int64_t m, int64_t k, int64_t stride, int64_t group)
{
    double scale = 1.7 / sqrt((double)(x.dim[1] / group * k * k));
    int64_t pads[4] = {k / 2, k / 2, k / 2, k / 2}, strides[2] = {stride, stride};
    uint32_t in[3] = {add_input(g, image, x),
                      add_constant(g, random, DIMS(m, x.dim[1] / group, k, k), scale),
                      add_constant(g, random, DIMS(m), 0.5)};
    uint32_t node = ir_node_add(g, op, "conv", 3, in);
    bool made = node != IR_NONE && ir_attr_set_ints(g, node, IR_ATTR_STRIDES, 2, strides) &&
                ir_attr_set_ints(g, node, IR_ATTR_PADS, 4, pads);
    return made ? node : IR_NONE;
}

static bool sized_conv(struct ir_graph *g, uint64_t *random, int64_t batch, int64_t c, int64_t m,
                       int64_t image, int64_t k, int64_t stride, int64_t group)
{
    uint32_t node = add_conv(g, random, IR_OP_CONV, DTYPE_F32, DIMS(batch, c, image, image), m, k,
                             stride, group);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_GROUP, group) && finish(g, node);
}

static bool sized_stem(struct ir_graph *g, uint64_t *random, enum dtype image, int64_t batch)
{
    uint32_t node =
        add_conv(g, random, IR_OP_CONV_POOL, image, DIMS(batch, 3, 224, 224), 64, 7, 2, 1);
    return node != IR_NONE && finish(g, node) && add_unary(g, IR_UNARY_RELU, 0, 0);
}

static bool sized_stem_floats(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return sized_stem(g, random, DTYPE_F32, batch);
}

static bool sized_stem_bytes(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return sized_stem(g, random, DTYPE_U8, batch);
}

static bool sized_stem_alone(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return sized_conv(g, random, batch, 3, 32, 224, 3, 2, 1) && add_unary(g, IR_UNARY_RELU, 0, 0);
}

/* A filter for each channel of x. */
static bool sized_each(struct ir_graph *g, uint64_t *random, struct shape x, int64_t k,
                       int64_t stride)
{
    int64_t c = x.dim[1];
    return sized_conv(g, random, x.dim[0], c, c, x.dim[2], k, stride, c);
}

static bool sized_depthwise(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return sized_each(g, random, DIMS(batch, 144, 56, 56), 3, 1) &&
           add_unary(g, IR_UNARY_CLIP, 0, 6);
}

static bool sized_depthwise_2(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return sized_each(g, random, DIMS(batch, 144, 56, 56), 3, 2) &&
           add_unary(g, IR_UNARY_CLIP, 0, 6);
}

static bool sized_depthwise_wide(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return sized_each(g, random, DIMS(batch, 32, 112, 112), 3, 1) &&
           add_unary(g, IR_UNARY_CLIP, 0, 6);
}

static bool sized_depthwise_small(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return sized_each(g, random, DIMS(batch, 960, 7, 7), 3, 1) && add_unary(g, IR_UNARY_CLIP, 0, 6);
}

static bool sized_depthwise_5(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return sized_each(g, random, DIMS(batch, 240, 28, 28), 5, 1) &&
           add_unary(g, IR_UNARY_SWISH, 1, 0);
}

static bool sized_depthwise_5_2(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return sized_each(g, random, DIMS(batch, 144, 56, 56), 5, 2) &&
           add_unary(g, IR_UNARY_SWISH, 1, 0);
}

static bool sized_pooling(struct ir_graph *g, enum ir_pool func, struct shape x, int64_t k,
                          int64_t stride, int64_t pad)
{
    uint32_t in = add_input(g, DTYPE_F32, x), node = ir_node_add(g, IR_OP_POOL, "pool", 1, &in);
    int64_t kernel[2] = {k, k}, strides[2] = {stride, stride}, pads[4] = {pad, pad, pad, pad};
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_FUNC, func) &&
           ir_attr_set_ints(g, node, IR_ATTR_KERNEL, 2, kernel) &&
           ir_attr_set_ints(g, node, IR_ATTR_STRIDES, 2, strides) &&
           ir_attr_set_ints(g, node, IR_ATTR_PADS, 4, pads) && finish(g, node);
}

static bool sized_pool(struct ir_graph *g, uint64_t *random UNUSED, int64_t batch)
{
    return sized_pooling(g, IR_POOL_MAX, DIMS(batch, 64, 112, 112), 3, 2, 1);
}

static bool sized_pool_global(struct ir_graph *g, uint64_t *random UNUSED, int64_t batch)
{
    return sized_pooling(g, IR_POOL_AVERAGE, DIMS(batch, 2048, 7, 7), 7, 1, 0);
}

static bool sized_mean(struct ir_graph *g, uint64_t *random UNUSED, int64_t batch)
{
    uint32_t in = add_input(g, DTYPE_F32, DIMS(batch, 2048, 7, 7));
    uint32_t node = ir_node_add(g, IR_OP_REDUCE, "mean", 1, &in);
    int64_t axes[2] = {2, 3};
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_FUNC, IR_REDUCE_MEAN) &&
           ir_attr_set_ints(g, node, IR_ATTR_AXES, 2, axes) && finish(g, node);
}

static bool sized_softmax(struct ir_graph *g, uint64_t *random UNUSED, int64_t batch)
{
    uint32_t in = add_input(g, DTYPE_F32, DIMS(batch, 12, 128, 128));
    uint32_t node = ir_node_add(g, IR_OP_SOFTMAX, "softmax", 1, &in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_AXIS, 3) && finish(g, node);
}

static bool sized_layer_norm(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    uint32_t in[3] = {add_input(g, DTYPE_F32, DIMS(batch, 128, 768)),
                      add_constant(g, random, DIMS(768), 1), add_constant(g, random, DIMS(768), 1)};
    uint32_t node = ir_node_add(g, IR_OP_LAYER_NORM, "layer norm", 3, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_AXIS, 2) &&
           ir_attr_set_float(g, node, IR_ATTR_EPSILON, 1e-5F) && finish(g, node);
}

static bool sized_gelu(struct ir_graph *g, uint64_t *random UNUSED, int64_t batch)
{
    uint32_t in = add_input(g, DTYPE_F32, DIMS(batch, 128, 3072));
    uint32_t node = ir_node_add(g, IR_OP_UNARY, "gelu", 1, &in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_FUNC, IR_UNARY_GELU) &&
           finish(g, node);
}

static bool sized_add(struct ir_graph *g, uint64_t *random UNUSED, int64_t batch)
{
    uint32_t in[2] = {add_input(g, DTYPE_F32, DIMS(batch, 256, 56, 56)),
                      add_input(g, DTYPE_F32, DIMS(batch, 256, 56, 56))};
    uint32_t node = ir_node_add(g, IR_OP_BINARY, "add", 2, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_FUNC, IR_BINARY_ADD) &&
           finish(g, node) && add_unary(g, IR_UNARY_RELU, 0, 0);
}

static bool sized_transpose(struct ir_graph *g, uint64_t *random UNUSED, int64_t batch)
{
    uint32_t in = add_input(g, DTYPE_F32, DIMS(batch, 128, 12, 64));
    uint32_t node = ir_node_add(g, IR_OP_TRANSPOSE, "transpose", 1, &in);
    int64_t perm[4] = {0, 2, 1, 3};
    return node != IR_NONE && ir_attr_set_ints(g, node, IR_ATTR_PERM, 4, perm) && finish(g, node);
}

static bool sized_image(struct ir_graph *g, uint64_t *random UNUSED, int64_t batch)
{
    uint32_t in = add_input(g, DTYPE_U8, DIMS(batch, 3, 224, 224));
    uint32_t node = ir_node_add(g, IR_OP_CAST, "cast uint8", 1, &in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_TO, DTYPE_F32) && finish(g, node);
}

static bool sized_concat(struct ir_graph *g, uint64_t *random UNUSED, int64_t batch)
{
    uint32_t in[4];
    static const int64_t parts[4] = {64, 64, 96, 32};
    for (int i = 0; i < 4; i++)
        in[i] = add_input(g, DTYPE_F32, DIMS(batch, parts[i], 35, 35));
    uint32_t node = ir_node_add(g, IR_OP_CONCAT, "concat", 4, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_AXIS, 1) && finish(g, node);
}

static bool sized_conv_3x3(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return sized_conv(g, random, batch, 128, 128, 28, 3, 1, 1) && add_unary(g, IR_UNARY_RELU, 0, 0);
}

static bool sized_conv_sum(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return sized_conv(g, random, batch, 64, 256, 56, 1, 1, 1) &&
           add_operand(g, IR_BINARY_ADD, add_input(g, DTYPE_F32, DIMS(batch, 256, 56, 56))) &&
           add_unary(g, IR_UNARY_RELU, 0, 0);
}

/* Layers of ResNet-50: C channels of SIDE x SIDE images to M, windows of K x K. */
#define RELU_LAYER(C, M, SIDE, K, STRIDE)                                                          \
    static bool sized_conv_##C##_##M##_##K(struct ir_graph *g, uint64_t *random, int64_t batch)    \
    {                                                                                              \
        return sized_conv(g, random, batch, C, M, SIDE, K, STRIDE, 1) &&                           \
               add_unary(g, IR_UNARY_RELU, 0, 0);                                                  \
    }
#define SUM_LAYER(C, M, SIDE)                                                                      \
    static bool sized_conv_sum_##C(struct ir_graph *g, uint64_t *random, int64_t batch)            \
    {                                                                                              \
        return sized_conv(g, random, batch, C, M, SIDE, 1, 1, 1) &&                                \
               add_operand(g, IR_BINARY_ADD,                                                       \
                           add_input(g, DTYPE_F32, DIMS(batch, M, SIDE, SIDE))) &&                 \
               add_unary(g, IR_UNARY_RELU, 0, 0);                                                  \
    }
RELU_LAYER(64, 64, 56, 1, 1)
RELU_LAYER(64, 64, 56, 3, 1)
RELU_LAYER(256, 256, 14, 3, 1)
RELU_LAYER(512, 512, 7, 3, 1)
RELU_LAYER(256, 64, 56, 1, 1)
RELU_LAYER(512, 128, 28, 1, 1)
RELU_LAYER(1024, 256, 14, 1, 1)
RELU_LAYER(2048, 512, 7, 1, 1)
SUM_LAYER(128, 512, 28)
SUM_LAYER(256, 1024, 14)
SUM_LAYER(512, 2048, 7)

/* Sums of two: C channels of SIDE x SIDE images, and D of images STRIDE times as wide, to M. */
#define PAIR_LAYER(C, D, M, SIDE, STRIDE)                                                          \
    static bool sized_pair_##C(struct ir_graph *g, uint64_t *random, int64_t batch)                \
    {                                                                                              \
        const int64_t wide = (SIDE) * (STRIDE), strides[2] = {STRIDE, STRIDE};                     \
        uint32_t in[5] = {add_input(g, DTYPE_F32, DIMS(batch, C, SIDE, SIDE)),                     \
                          add_constant(g, random, DIMS(M, C, 1, 1), 1.2 / sqrt(C)),                \
                          add_input(g, DTYPE_F32, DIMS(batch, D, wide, wide)),                     \
                          add_constant(g, random, DIMS(M, D, 1, 1), 1.2 / sqrt(D)),                \
                          add_constant(g, random, DIMS(M), 0.5)};                                  \
        uint32_t node = ir_node_add(g, IR_OP_CONV_PAIR, "pair", 5, in);                            \
        return node != IR_NONE && ir_attr_set_ints(g, node, IR_ATTR_STRIDES, 2, strides) &&        \
               finish(g, node) && add_unary(g, IR_UNARY_RELU, 0, 0);                               \
    }
PAIR_LAYER(64, 64, 256, 56, 1)
PAIR_LAYER(128, 256, 512, 28, 2)
PAIR_LAYER(256, 512, 1024, 14, 2)
PAIR_LAYER(512, 1024, 2048, 7, 2)

/* Ends of blocks, C channels of SIDE x SIDE images to M, with a residual, or with a second source
 * of D channels, and the next block's first layer to K. */
static bool sized_chain(struct ir_graph *g, uint64_t *random, int64_t n, int64_t side, int64_t c,
                        int64_t d, int64_t m, int64_t k)
{
    static const int64_t funcs[2] = {IR_UNARY_RELU, IR_UNARY_RELU};
    uint32_t in[IR_CHAIN_INPUTS] = {
        add_input(g, DTYPE_F32, DIMS(n, c, side, side)),
        add_constant(g, random, DIMS(m, c, 1, 1), 1.2 / sqrt((double)c)),
        add_constant(g, random, DIMS(k, m, 1, 1), 1.2 / sqrt((double)m)),
        d ? add_input(g, DTYPE_F32, DIMS(n, d, side, side)) : IR_NONE,
        d ? add_constant(g, random, DIMS(m, d, 1, 1), 1.2 / sqrt((double)d)) : IR_NONE,
        add_constant(g, random, DIMS(m), 0.5),
        d ? IR_NONE : add_input(g, DTYPE_F32, DIMS(n, m, side, side)),
        add_constant(g, random, DIMS(k), 0.5),
    };
    uint32_t node = ir_node_add(g, IR_OP_CONV_CHAIN, "chain", IR_CHAIN_INPUTS, in);
    return node != IR_NONE && ir_attr_set_ints(g, node, IR_ATTR_FUNCS, 2, funcs) && finish(g, node);
}

#define CHAIN_LAYER(C, D, M, K, SIDE)                                                              \
    static bool sized_chain_##C##_##D##_##K(struct ir_graph *g, uint64_t *random, int64_t batch)   \
    {                                                                                              \
        return sized_chain(g, random, batch, SIDE, C, D, M, K);                                    \
    }
CHAIN_LAYER(64, 0, 256, 64, 56)
CHAIN_LAYER(64, 0, 256, 128, 56)
CHAIN_LAYER(128, 0, 512, 128, 28)
CHAIN_LAYER(64, 64, 256, 64, 56)

static bool sized_conv_strided(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return sized_conv(g, random, batch, 256, 512, 56, 1, 2, 1);
}

static bool sized_product(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    uint32_t in[3] = {add_input(g, DTYPE_F32, DIMS(batch, 128, 768)),
                      add_constant(g, random, DIMS(768, 3072), 0.05),
                      add_constant(g, random, DIMS(3072), 0.5)};
    uint32_t node = ir_node_add(g, IR_OP_MATMUL, "product", 3, in);
    return node != IR_NONE && finish(g, node);
}

static bool sized_product_gelu(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    return sized_product(g, random, batch) && add_unary(g, IR_UNARY_GELU, 0, 0);
}

/* Words, types and positions, as BERT sums them up. */
static bool sized_embed(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    struct shape tokens = DIMS(batch, 128);
    uint32_t in[5] = {add_constant(g, random, DIMS(30522, 768), 1),
                      add_indices(g, random, tokens, 30522),
                      add_constant(g, random, DIMS(2, 768), 1), add_indices(g, random, tokens, 2),
                      add_constant(g, random, DIMS(1, 128, 768), 1)};
    return finish(g, ir_node_add(g, IR_OP_EMBED, "embed", 5, in));
}

const struct case_sized case_sizes[] = {
    {"stem 7x7/2 3>64 @224 + pool", sized_stem_floats, 2 * 147 * 64.0 * 112 * 112},
    {"stem 7x7/2 3>64 @224 + pool, UINT8", sized_stem_bytes, 2 * 147 * 64.0 * 112 * 112},
    {"stem 3x3/2 3>32 @224 + relu", sized_stem_alone, 2 * 27 * 32.0 * 112 * 112},
    {"conv 3x3 128 @28 + relu", sized_conv_3x3, 2 * 9 * 128.0 * 128 * 28 * 28},
    {"conv 1x1 64>256 @56 + sum", sized_conv_sum, 2 * 64.0 * 256 * 56 * 56},
    {"conv 3x3 64 @56 + relu", sized_conv_64_64_3, 2 * 9 * 64.0 * 64 * 56 * 56},
    {"conv 3x3 256 @14 + relu", sized_conv_256_256_3, 2 * 9 * 256.0 * 256 * 14 * 14},
    {"conv 3x3 512 @7 + relu", sized_conv_512_512_3, 2 * 9 * 512.0 * 512 * 7 * 7},
    {"conv 1x1 128>512 @28 + sum", sized_conv_sum_128, 2 * 128.0 * 512 * 28 * 28},
    {"conv 1x1 256>1024 @14 + sum", sized_conv_sum_256, 2 * 256.0 * 1024 * 14 * 14},
    {"conv 1x1 512>2048 @7 + sum", sized_conv_sum_512, 2 * 512.0 * 2048 * 7 * 7},
    {"conv 1x1 256>64 @56 + relu", sized_conv_256_64_1, 2 * 256.0 * 64 * 56 * 56},
    {"conv 1x1 512>128 @28 + relu", sized_conv_512_128_1, 2 * 512.0 * 128 * 28 * 28},
    {"conv 1x1 1024>256 @14 + relu", sized_conv_1024_256_1, 2 * 1024.0 * 256 * 14 * 14},
    {"conv 1x1 2048>512 @7 + relu", sized_conv_2048_512_1, 2 * 2048.0 * 512 * 7 * 7},
    {"conv 1x1/2 256>512 @56", sized_conv_strided, 2 * 256.0 * 512 * 28 * 28},
    {"conv 1x1 64>64 @56 + relu", sized_conv_64_64_1, 2 * 64.0 * 64 * 56 * 56},
    {"pair 64, 64>256 @56 + relu", sized_pair_64, 2 * 128.0 * 256 * 56 * 56},
    {"pair 128, 256/2>512 @28 + relu", sized_pair_128, 2 * 384.0 * 512 * 28 * 28},
    {"pair 256, 512/2>1024 @14 + relu", sized_pair_256, 2 * 768.0 * 1024 * 14 * 14},
    {"pair 512, 1024/2>2048 @7 + relu", sized_pair_512, 2 * 1536.0 * 2048 * 7 * 7},
    {"chain 64>256>64 @56", sized_chain_64_0_64, 2 * 128.0 * 256 * 56 * 56},
    {"chain 64>256>128 @56", sized_chain_64_0_128, 2 * 192.0 * 256 * 56 * 56},
    {"chain 128>512>128 @28", sized_chain_128_0_128, 2 * 256.0 * 512 * 28 * 28},
    {"chain pair 64+64>256>64 @56", sized_chain_64_64_64, 2 * 192.0 * 256 * 56 * 56},
    {"product 128x768x3072", sized_product, 2 * 128.0 * 768 * 3072},
    {"product 128x768x3072 + gelu", sized_product_gelu, 2 * 128.0 * 768 * 3072},
    {"product 128x3072x768 + sum", sized_product_sum, 2 * 128.0 * 768 * 3072},
    {"row 768x3072 + gelu", sized_row_gelu, 2 * 768.0 * 3072},
    {"row 3072x768 + sum", sized_row_sum, 2 * 768.0 * 3072},
    {"row 4096x4096", sized_row_wide, 2 * 4096.0 * 4096},
    {"head 128x768x50257", sized_head, 2 * 128.0 * 768 * 50257},
    {"integers 128x768x3072", sized_product_bytes, 2 * 128.0 * 768 * 3072},
    {"mlp of ten layers of 64", sized_mlp_ten, 2 * 10 * 64.0 * 64},
    {"mlp 64-256-256-64-1", sized_mlp_ranking, 2 * (2 * 64.0 * 256 + 256 * 256 + 64)},
    {"layer 64x64 + relu", sized_layer, 2 * 64.0 * 64},
    {"depthwise 3x3 144 @56 + clip", sized_depthwise, 0},
    {"depthwise 3x3/2 144 @56 + clip", sized_depthwise_2, 0},
    {"depthwise 3x3 32 @112 + clip", sized_depthwise_wide, 0},
    {"depthwise 3x3 960 @7 + clip", sized_depthwise_small, 0},
    {"depthwise 5x5 240 @28 + swish", sized_depthwise_5, 0},
    {"depthwise 5x5/2 144 @56 + swish", sized_depthwise_5_2, 0},
    {"max pool 3x3/2 64 @112", sized_pool, 0},
    {"bilinear resize 256 @32 x4", sized_resize, 0},
    {"group norm 32 of 320 @64", sized_group_norm, 0},
    {"deconv 2x2/2 128>64 @56", sized_deconv, 0},
    {"global mean 2048 @7", sized_mean, 0},
    {"average pool 2048 @7", sized_pool_global, 0},
    {"softmax 12x128x128", sized_softmax, 0},
    {"layer norm 128x768", sized_layer_norm, 0},
    {"embed BERT 128x768", sized_embed, 0},
    {"gelu 128x3072", sized_gelu, 0},
    {"add + relu 256 @56", sized_add, 0},
    {"transpose 128x12x64", sized_transpose, 0},
    {"cast uint8 3 @224", sized_image, 0},
    {"concat 4 of 256 @35", sized_concat, 0},
    {"attention BERT 12x128x64 mask", sized_bert, 4 * 12.0 * 128 * 128 * 64},
    {"attention GPT-2 12x128x64", sized_gpt2, 4 * 12.0 * 128 * 128 * 64},
    {"attention ViT 12x197x64", sized_vit, 4 * 12.0 * 197 * 197 * 64},
    {"attention Swin 64x3x49x32 bias", sized_swin, 4 * 64 * 3 * 49 * 49 * 32},
    {"attention Swin shifted", sized_swin_shifted, 4 * 64 * 3 * 49 * 49 * 32},
    {"attention CLIP 12x50x64", sized_clip, 4 * 12.0 * 50 * 50 * 64},
    {"attention Whisper 8x1500x64", sized_whisper, 4 * 8.0 * 1500 * 1500 * 64},
    {"attention T5 8x128x64 bias", sized_t5, 4 * 8 * 128 * 128 * 64},
    {"attention causal 16x1024x128", sized_long, 4 * 16.0 * 1024 * 1024 * 128},
    {"attention decode 32/8x1024x128", sized_decode, 4 * 32 * 1024 * 128},
    {"attention ragged 16x64", sized_ragged, 4 * 16.0 * 512 * 215 * 64},
    {"lstm 64 steps 256", sized_lstm_256, 0},
    {"lstm 64 steps 512", sized_lstm_512, 0},
    {"lstm 64 steps 512, both ways", sized_lstm_512_both, 0},
    {0},
};
