/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cuda/takes.h"

#define OP(op) (UINT64_C(1) << IR_OP_##op)

_Static_assert(IR_OP_COUNT_ <= 64, "a set of ops is 64 bits");

/* Floats are FP32, FP16 and BF16. */
const struct cuda_taking cuda_takings[CUDA_FAMILY_COUNT_] = {
    [CUDA_FAMILY_DNN_CONV] = {"cuDNN",
                              "floats; one or two spatial dimensions, constant weights and bias; "
                              "with bias, sum and activation inside",
                              OP(CONV)},
    [CUDA_FAMILY_LT_MATMUL] = {"cuBLASLt",
                               "floats; bias, residual, Relu and tanh Gelu inside, other "
                               "activations in one kernel behind it",
                               OP(MATMUL)},
    [CUDA_FAMILY_LT_CONV] = {"cuBLASLt",
                             "floats; 1x1, stride 1, no padding, one group, constant weights",
                             OP(CONV)},
    [CUDA_FAMILY_DNN_ATTENTION] = {"cuDNN", "16 bit, no mask, heads of 8, 16, ... 128 columns",
                                   OP(ATTENTION)},
    [CUDA_FAMILY_OWN_MAP] = {"own", "all element types",
                             OP(UNARY) | OP(CAST) | OP(BINARY) | OP(SELECT) | OP(REFORMAT)},
    [CUDA_FAMILY_OWN_MOVE] = {"own",
                              "all element types; Concat to 32 tensors; Pad by a constant, not "
                              "negative",
                              OP(RESHAPE) | OP(TRANSPOSE) | OP(CONCAT) | OP(SLICE) | OP(PAD) |
                                  OP(GATHER) | OP(EXPAND) | OP(TILE)},
    [CUDA_FAMILY_OWN_POOL] = {"own",
                              "floats, one to three spatial dimensions; not LP pooling, no indices",
                              OP(POOL)},
    [CUDA_FAMILY_OWN_CONV] = {"own",
                              "floats; depthwise with constant weights; a direct kernel, slow, for "
                              "three spatial dimensions, groups, uneven padding, computed weights",
                              OP(CONV)},
    [CUDA_FAMILY_OWN_ROWS] = {"own", "floats; scales, biases and statistics are constants",
                              OP(SOFTMAX) | OP(LAYER_NORM) | OP(BATCH_NORM) | OP(REDUCE)},
    [CUDA_FAMILY_OWN_ATTENTION] = {"own", "floats, with or without mask, heads to 128 columns",
                                   OP(ATTENTION)},
};
