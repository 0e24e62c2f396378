/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The list of families, and which ops they take. This header needs none of CUDA's: the same list
 * decides which families are asked, and says in docs/operators.md what a device runs, in a build
 * without CUDA too.
 */
#ifndef INFERD_ENGINE_CUDA_TAKES_H
#define INFERD_ENGINE_CUDA_TAKES_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/ir/op.h"

/* Every family, once: F(id, NAME, name, title, library, ops, what).
 *
 *   id       the upper half of tactic.id; stored in plans: append, never renumber. Families are
 *            asked for candidates in this order (but see cuda_family.leads)
 *   NAME     CUDA_FAMILY_NAME is the id
 *   name     cuda_family_name is the family's table of functions (cuda.h)
 *   title    what the names of its tactics begin with
 *   library  what runs it
 *   ops      what it takes: OP(CONV) | OP(POOL)
 *   what     which nodes of these ops, for people. Floats are FP32, FP16 and BF16
 */
/* clang-format off */
#define CUDA_FAMILIES(F)                                                                           \
    F(1, DNN_CONV, dnn_conv, "cudnn conv", "cuDNN",                                                \
      OP(CONV) | OP(DECONV),                                                                       \
      "floats; one to three spatial dimensions, groups, constant bias; with bias, sum and "        \
      "activation inside, or in one kernel behind a transposed convolution")                       \
    F(2, LT_MATMUL, lt_matmul, "cublaslt matmul", "cuBLASLt",                                      \
      OP(MATMUL),                                                                                  \
      "floats; bias, residual, Relu, tanh Gelu (in 16 bit also for the exact one) inside, other "  \
      "activations in one kernel behind it")                                                       \
    F(3, LT_CONV, lt_conv, "cublaslt conv", "cuBLASLt",                                            \
      OP(CONV),                                                                                    \
      "floats; 1x1, stride 1, no padding, one group, constant weights")                            \
    F(4, DNN_ATTENTION, dnn_attention, "cudnn attention", "cuDNN",                                 \
      OP(ATTENTION),                                                                               \
      "16 bit, heads of 8, 16, ... 256 columns; mask (not BOOL) along the keys; causal with as "   \
      "many keys as queries, or more and no mask")                                                 \
    F(5, OWN_MAP, own_map, "own map", "own",                                                       \
      OP(UNARY) | OP(CAST) | OP(BINARY) | OP(SELECT) | OP(REFORMAT),                               \
      "all element types")                                                                         \
    F(6, OWN_MOVE, own_move, "own move", "own",                                                    \
      OP(RESHAPE) | OP(TRANSPOSE) | OP(CONCAT) | OP(SLICE) | OP(PAD) | OP(GATHER) | OP(EXPAND) |   \
          OP(TILE),                                                                                \
      "all element types")                                                                         \
    F(7, OWN_POOL, own_pool, "own pool", "own",                                                    \
      OP(POOL),                                                                                    \
      "floats, one to three spatial dimensions; no indices")                                       \
    F(8, OWN_CONV, own_conv, "own conv", "own",                                                    \
      OP(CONV) | OP(DECONV),                                                                       \
      "floats; depthwise with constant weights; a direct kernel, slow, for all that no library "   \
      "does")                                                                                      \
    F(9, OWN_ROWS, own_rows, "own rows", "own",                                                    \
      OP(SOFTMAX) | OP(LAYER_NORM) | OP(BATCH_NORM) | OP(REDUCE),                                  \
      "floats, Reduce all element types; scales, biases and statistics are constants; a layer's "  \
      "normalisation also to 8 bits")                                                              \
    F(10, OWN_ATTENTION, own_attention, "own attention", "own",                                    \
      OP(ATTENTION),                                                                               \
      "floats, every form, heads to 256 columns; also to 8 bits")                                  \
    F(11, OWN_RECURRENT, own_recurrent, "own recurrent", "own",                                    \
      OP(RECURRENT),                                                                               \
      "floats; to 4,224 hidden units; all steps in one launch")                                    \
    F(12, OWN_IMAGE, own_image, "own image", "own",                                                \
      OP(RESIZE) | OP(SAMPLE) | OP(ROI_POOL),                                                      \
      "floats, all modes; NEAREST all element types; at most three dimensions change; SAMPLE and " \
      "ROI_POOL stay in FP32")                                                                     \
    F(13, OWN_NORM, own_norm, "own norm", "own",                                                   \
      OP(INSTANCE_NORM) | OP(LRN),                                                                 \
      "floats")                                                                                    \
    F(14, OWN_INDEX, own_index, "own index", "own",                                                \
      OP(GATHER_ELEMENTS) | OP(GATHER_ND) | OP(SCATTER_ELEMENTS) | OP(SCATTER_ND) | OP(ONE_HOT) |  \
          OP(TRILU) | OP(ARG_REDUCE) | OP(CUMSUM) | OP(TOPK),                                      \
      "all element types; TopK to 16,384 of any number")                                           \
    F(15, DNN_MATMUL, dnn_matmul, "cudnn matmul", "cuDNN",                                         \
      OP(MATMUL),                                                                                  \
      "16 bit, constant weights of rank 2 with multiples of 8; the exact Gelu, swish and other "   \
      "activations inside")                                                                        \
    F(16, DNN_STEM, dnn_stem, "cudnn stem", "cuDNN",                                               \
      OP(CONV),                                                                                    \
      "fewer than 8 channels, two spatial dimensions; an activation other than Relu in one "       \
      "kernel behind it")                                                                          \
    F(17, OWN_QUANT, own_quant, "own quant", "own",                                                \
      OP(QUANTIZE) | OP(DEQUANTIZE),                                                               \
      "floats, scales in FP32")                                                                    \
    F(18, OWN_BYTES, own_bytes, "own bytes", "own",                                                \
      OP(UNARY) | OP(CAST) | OP(BINARY) | OP(REFORMAT) | OP(QUANTIZE) | OP(DEQUANTIZE) | OP(POOL), \
      "some tensors stored in 8 bits by one scale, the others floats; no LP pooling")              \
    F(19, LT_BYTES, lt_bytes, "cublaslt bytes", "cuBLASLt",                                        \
      OP(MATMUL) | OP(CONV),                                                                       \
      "INT8 by a scale without zero points in the weights, which are constant; 1x1, stride 1, "    \
      "no padding, one group; multiples of 4; any epilogue")                                       \
    F(20, DNN_BYTES, dnn_bytes, "cudnn bytes", "cuDNN",                                            \
      OP(CONV),                                                                                    \
      "INT8 by a scale, constant weights, two spatial dimensions, one group, multiples of 16; "    \
      "without zero points where there is padding; sum and Relu or clip from 0 inside")            \
    F(21, PLUGIN, plugin, "plugin", "plugin",                                                      \
      OP(PLUGIN),                                                                                  \
      "what the plugin's kernels for CUDA take")                                                   \
    F(22, LT_F8, lt_f8, "cublaslt fp8", "cuBLASLt",                                                \
      OP(MATMUL) | OP(CONV),                                                                       \
      "FP8 (E4M3) by a scale and constant weights; 1x1, stride 1, no padding, one group; "         \
      "multiples of 16; any epilogue: 16-bit bias and sum, Relu and tanh Gelu inside")             \
    F(23, OWN_PRODUCT, own_product, "own product", "own",                                          \
      OP(MATMUL) | OP(CONV),                                                                       \
      "integers: UINT8 and INT8 by constant INT8 weights into INT32 sums, exactly; groups, one "   \
      "to three spatial dimensions; depth to 65,536")                                              \
    F(24, LT_HEAD, lt_head, "cublaslt head", "cuBLASLt",                                           \
      OP(MATMUL),                                                                                  \
      "floats; constant weights of rank 2, 1,024 columns and more that are no multiple of 8: in "  \
      "parts whose rows are aligned, or with columns of zeros; FP32 at once")                      \
    F(25, OWN_MATMUL, own_matmul, "own matmul", "own",                                             \
      OP(MATMUL) | OP(CONV) | OP(CONV_PAIR),                                                       \
      "16 bit on Hopper, constant weights of rank 2, rows of multiples of 8; convolutions of one " \
      "group, one or two spatial dimensions; bias, residual, Relu, both Gelus, swish inside; few " \
      "rows, of MATMUL to FP32 as well; CONV_PAIR, or all if the environment has "                 \
      "INFERD_OWN_MATMUL, of any rows")                                                            \
    F(26, OWN_SCALED, own_scaled, "own scaled", "own",                                             \
      OP(MATMUL) | OP(CONV),                                                                       \
      "INT8 and UINT8 by a scale, with zero points, and constant INT8 weights; groups, depthwise, "\
      "any number of channels, one to three spatial dimensions; depth to 65,536; operands of the " \
      "output's shape, of its channels or of one number inside; on Hopper also by tensor copies: " \
      "one group, channels of multiples of 16, FP8 (E4M3), results of 16 bits; a sum, Relu, both " \
      "Gelus, swish and limits inside")                                                            \
    F(27, OWN_MLP, own_mlp, "own mlp", "own",                                                      \
      OP(MLP),                                                                                     \
      "floats; to 31 layers of at most 1,024 columns, constant weights that fit a block's shared " \
      "memory, in FP32 also others")\
    F(28, OWN_STEM, own_stem, "own stem", "own",                                                   \
      OP(CONV) | OP(CONV_POOL),                                                                    \
      "16 bit, or 8 bits by scales, on Hopper; one to four channels, windows up to 8x8 at steps "  \
      "of 2, constant weights and bias, one group; Relu inside; images may be FP32, or UINT8 for " \
      "CONV_POOL")                                                                                 \
    F(29, OWN_PAIR, own_pair, "own pair", "own",                                                   \
      OP(CONV_PAIR),                                                                               \
      "INT8, UINT8 or FP8 by scales on Hopper, the same for both sources, results of 8 bits; "     \
      "constant weights, channels of multiples of 16; Relu and limits inside")                     \
    F(30, OWN_EMBED, own_embed, "own embed", "own",                                                \
      OP(EMBED),                                                                                   \
      "floats; rows of any width; ids and rows repeat along dimensions before or behind their own")\
    F(31, OWN_CHAIN, own_chain, "own chain", "own",                                                \
      OP(CONV_CHAIN),                                                                              \
      "INT8, UINT8 or FP8 by scales on Hopper, the same for sources and the first result; "        \
      "constant weights, channels of multiples of 16: 128 of one source or 64 of each of two, to " \
      "256 and from there to 128; a residual, Relu")
/* clang-format on */

enum cuda_family_id {
#define F(id, NAME, ...) CUDA_FAMILY_##NAME = (id),
    CUDA_FAMILIES(F) CUDA_FAMILY_COUNT_
#undef F
};

/* A family in words, and its ops. */
struct cuda_taking {
    const char *title, *library, *what;
    uint64_t ops; /* bit (1 << enum ir_op) */
};

/* No family has row 0. */
extern const struct cuda_taking cuda_takings[CUDA_FAMILY_COUNT_];

static inline bool cuda_family_takes(enum cuda_family_id id, enum ir_op op)
{
    return (uint32_t)op < IR_OP_COUNT_ && cuda_takings[id].ops >> op & 1;
}

#endif
