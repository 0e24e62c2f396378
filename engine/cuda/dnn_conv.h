/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Convolutions through cuDNN: what its files share.
 *
 *   dnn_conv_read.c   node -> struct conv            dnn_conv_build.c  struct conv_spec -> graph
 *   dnn_conv_list.c   candidates                     dnn_conv_pack.c   constants in cuDNN's form
 *   dnn_conv.c        the family: blobs, plans, running
 *
 * How a graph is spelled decides which kernels may run it. If the bias has the tensors' own type
 * and the graph is convolution -> [ADD residual] -> ADD bias -> [RELU], the precompiled kernels
 * take it, and some that compile at run time. With a bias in fp32, or with any other chain of
 * steps, only kernels that compile at run time do. Each spelling is the best on some layers.
 *
 * A transposed convolution is the gradient of a convolution with respect to its input. Precompiled
 * kernels do it bare, with neither bias nor steps; both follow in a launch of our elementwise
 * kernel.
 */
#ifndef INFERD_ENGINE_CUDA_DNN_CONV_H
#define INFERD_ENGINE_CUDA_DNN_CONV_H

#include "engine/cuda/dnn_graph.h"

enum {
    CONV_POINTS_MAX = 32,
    CONV_OPERANDS_MAX = IR_MAX_EPILOGUE,
    CONV_SCALARS_MAX = 16,
    CONV_SCALAR_STRIDE = 16, /* bytes from one to the next */
};

enum conv_spelling { CONV_BIAS_IO = 0, CONV_BIAS_FLOAT = 1, CONV_SPELLINGS = 2 };

/* What a pointwise step reads. 0 is the convolution's result, i the result of point i - 1. */
enum { CONV_NONE = -1, CONV_BIAS = 100, CONV_OPERAND = 200, CONV_SCALAR = 300 };

enum { CONV_HAS_LOWER = 1, CONV_HAS_UPPER = 2, CONV_HAS_SLOPE = 4, CONV_HAS_ALPHA = 8 };

/* Tensors that are bound at a launch. */
enum {
    CONV_UID_X = 1,
    CONV_UID_W = 2,
    CONV_UID_Y = 3,
    CONV_UID_BIAS = 4,
    CONV_UID_OPERAND = 16,
    CONV_UID_SCALAR = 32,
};

struct conv_point {
    int32_t mode; /* cudnnPointwiseMode_t */
    int32_t x, b;
    uint32_t has; /* which of the following are set */
    float lower, upper, slope, alpha;
};

struct conv_operand {
    int32_t input; /* of the node */
    int32_t dtype; /* enum dtype; F32 for constants, which are packed */
    int64_t dim[5];
};

/* Everything that decides the graph. It is hashed as bytes, so it has no holes and is zeroed
 * first. */
struct conv_spec {
    /* NC and spatial dims, KC and the window; channels as the layout pads them. A dim that is
     * missing at the end is 1. */
    int64_t x[5], w[5], y[5];
    int64_t pre[3], post[3], stride[3], dilation[3];
    int32_t io; /* enum dtype */
    int32_t spelling;
    int32_t n_points, n_operands, n_scalars;
    int32_t spatial;    /* 2 or 3 */
    int32_t transposed; /* y is what the convolution of y with w would have read to make x */
    int32_t zero;
    struct conv_point point[CONV_POINTS_MAX];
    struct conv_operand operand[CONV_OPERANDS_MAX];
};

/* A convolution node in the form that cuDNN takes. Its packed weights are KRSC; behind them lie,
 * each aligned to BACKEND_ALIGN, zeros in the place of the bias if the node has none, and the
 * scalars that steps need. Weights that are no constant lie KRSC, too, which is channels-last. */
struct conv {
    struct conv_spec spec;
    enum ir_layout layout; /* of the input */
    bool pattern;          /* the steps are the precompiled kernels' pattern */
    bool biased;
    bool packed; /* the weights are a constant */
    bool adds;   /* the graph adds a bias */
    float scalar[CONV_SCALARS_MAX];
    uint64_t zeros_at, scalars_at; /* in the packed weights */
    uint64_t weights_bytes, bias_bytes;
};

/* False: cuDNN does not do the node. `io`: F16, BF16 or F32. `spelling` CONV_BIAS_IO needs the
 * pattern. */
bool conv_read(const struct ir_graph *graph, const struct ir_node *node, enum dtype io,
               enum ir_layout layout, enum conv_spelling spelling, struct conv *out);
/* The type that a bias is packed as. */
enum dtype conv_bias_type(const struct conv *conv);
/* The type that the node's floats are stored as under a tactic's dtype; NONE: they are mixed or
 * unfit. */
enum dtype conv_io(const struct ir_graph *graph, const struct ir_node *node, enum dtype tactic);
/* Bytes of operand `i` as it is packed; 0: the operand is no constant. */
uint64_t conv_operand_bytes(const struct ir_graph *graph, const struct ir_node *node,
                            const struct conv *conv, uint32_t i);

/* dnn_recipe.build */
void conv_build(struct dnn_build *b, const void *spec);

/* A tactic's blob. */
struct conv_choice {
    enum conv_spelling spelling;
    enum ir_layout layout;
    struct dnn_config config;
    uint8_t kin, wave; /* as in struct tactic */
};
enum { CONV_CHOICES_MAX = 160 };

/* Adds the candidates of one layout in all spellings, best guess first. `strict`: fp32 must not be
 * computed on fewer bits. `few`: several layouts are asked, so that each adds only a few. */
enum status conv_list(struct cuda_dnn *dnn, const struct ir_graph *graph,
                      const struct ir_node *node, enum dtype io, enum ir_layout layout, bool strict,
                      bool few, struct conv_choice *out, uint32_t *n, struct error *err);

enum status conv_pack(const struct ir_graph *graph, const struct ir_node *node,
                      const struct conv *conv, uint32_t input, void *to, struct error *err);

#endif
