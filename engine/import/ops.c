/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of ops. A new op is a row here and a mapping function in the file of its family.
 *
 * `first` is the oldest opset for which the mapping is right: often older than what the importer
 * promises (7), because files are written with the opset in which their op last changed.
 */
#include "engine/import/ops.h"

#include <string.h>

enum { LAST = MAP_OPSET_LAST };

static const struct map_op ops[] = {
    /* convolution, product, pooling */
    {"Conv", "", 1, LAST, map_conv, 0},
    {"ConvTranspose", "", 1, LAST, map_conv_transpose, 0},
    {"Einsum", "", 12, LAST, map_einsum, 0},
    {"Gemm", "", 6, LAST, map_gemm, 0},
    {"MatMul", "", 1, LAST, map_matmul, 0},
    {"AveragePool", "", 1, LAST, map_pool, IR_POOL_AVERAGE},
    {"LpPool", "", 2, LAST, map_pool, IR_POOL_LP},
    {"MaxPool", "", 1, LAST, map_pool, IR_POOL_MAX},
    {"GlobalAveragePool", "", 1, LAST, map_global_pool, IR_POOL_AVERAGE},
    {"GlobalLpPool", "", 2, LAST, map_global_pool, IR_POOL_LP},
    {"GlobalMaxPool", "", 1, LAST, map_global_pool, IR_POOL_MAX},
    {"MaxUnpool", "", 9, LAST, map_max_unpool, 0},

    /* quantised */
    {"ConvInteger", "", 10, LAST, map_conv_integer, 0},
    {"DequantizeLinear", "", 10, LAST, map_dequantize, 0},
    {"DynamicQuantizeLinear", "", 11, LAST, map_dynamic_quantize, 0},
    {"MatMulInteger", "", 10, LAST, map_matmul_integer, 0},
    {"QLinearConv", "", 10, LAST, map_qlinear_conv, 0},
    {"QLinearMatMul", "", 10, LAST, map_qlinear_matmul, 0},
    {"QuantizeLinear", "", 10, LAST, map_quantize, 0},

    /* losses */
    {"NegativeLogLikelihoodLoss", "", 12, LAST, map_likelihood_loss, 0},
    {"SoftmaxCrossEntropyLoss", "", 12, LAST, map_cross_entropy_loss, 0},

    /* normalisation */
    {"BatchNormalization", "", 6, LAST, map_batch_norm, 0},
    {"GroupNormalization", "", 18, LAST, map_group_norm, 0},
    {"InstanceNormalization", "", 6, LAST, map_instance_norm, 0},
    {"LRN", "", 1, LAST, map_lrn, 0},
    {"LayerNormalization", "", 17, LAST, map_layer_norm, 0},
    {"LpNormalization", "", 1, LAST, map_lp_norm, 0},
    {"MeanVarianceNormalization", "", 9, LAST, map_mean_variance_norm, 0},
    {"RMSNormalization", "", 23, LAST, map_rms_norm, 0},

    /* one operand */
    {"Abs", "", 6, LAST, map_unary, IR_UNARY_ABS},
    {"Acos", "", 7, LAST, map_unary, IR_UNARY_ACOS},
    {"Acosh", "", 9, LAST, map_unary, IR_UNARY_ACOSH},
    {"Asin", "", 7, LAST, map_unary, IR_UNARY_ASIN},
    {"Asinh", "", 9, LAST, map_unary, IR_UNARY_ASINH},
    {"Atan", "", 7, LAST, map_unary, IR_UNARY_ATAN},
    {"Atanh", "", 9, LAST, map_unary, IR_UNARY_ATANH},
    {"BitwiseNot", "", 18, LAST, map_unary, IR_UNARY_BITWISE_NOT},
    {"Cast", "", 6, LAST, map_cast, 0},
    {"CastLike", "", 15, LAST, map_cast_like, 0},
    {"Ceil", "", 6, LAST, map_unary, IR_UNARY_CEIL},
    {"Celu", "", 12, LAST, map_unary_parameters, IR_UNARY_CELU},
    {"Clip", "", 6, LAST, map_clip, 0},
    {"Cos", "", 7, LAST, map_unary, IR_UNARY_COS},
    {"Cosh", "", 9, LAST, map_unary, IR_UNARY_COSH},
    {"Dropout", "", 1, LAST, map_dropout, 0},
    {"Elu", "", 6, LAST, map_unary_parameters, IR_UNARY_ELU},
    {"Erf", "", 9, LAST, map_unary, IR_UNARY_ERF},
    {"Exp", "", 6, LAST, map_unary, IR_UNARY_EXP},
    {"Floor", "", 6, LAST, map_unary, IR_UNARY_FLOOR},
    {"Gelu", "", 20, LAST, map_gelu, 0},
    {"HardSigmoid", "", 6, LAST, map_unary_parameters, IR_UNARY_HARD_SIGMOID},
    {"HardSwish", "", 14, LAST, map_unary, IR_UNARY_HARD_SWISH},
    {"Identity", "", 1, LAST, map_identity, 0},
    {"IsInf", "", 10, LAST, map_is_inf, 0},
    {"IsNaN", "", 9, LAST, map_unary, IR_UNARY_IS_NAN},
    {"LeakyRelu", "", 6, LAST, map_unary_parameters, IR_UNARY_LEAKY_RELU},
    {"Log", "", 6, LAST, map_unary, IR_UNARY_LOG},
    {"Mish", "", 18, LAST, map_unary, IR_UNARY_MISH},
    {"Neg", "", 6, LAST, map_unary, IR_UNARY_NEG},
    {"Not", "", 1, LAST, map_unary, IR_UNARY_NOT},
    {"Reciprocal", "", 6, LAST, map_unary, IR_UNARY_RECIPROCAL},
    {"Relu", "", 6, LAST, map_unary, IR_UNARY_RELU},
    {"Round", "", 11, LAST, map_unary, IR_UNARY_ROUND},
    {"Selu", "", 6, LAST, map_unary_parameters, IR_UNARY_SELU},
    {"Shrink", "", 9, LAST, map_unary_parameters, IR_UNARY_SHRINK},
    {"Sigmoid", "", 6, LAST, map_unary, IR_UNARY_SIGMOID},
    {"Sign", "", 9, LAST, map_unary, IR_UNARY_SIGN},
    {"Sin", "", 7, LAST, map_unary, IR_UNARY_SIN},
    {"Sinh", "", 9, LAST, map_unary, IR_UNARY_SINH},
    {"Softplus", "", 1, LAST, map_unary, IR_UNARY_SOFTPLUS},
    {"Softsign", "", 1, LAST, map_unary, IR_UNARY_SOFTSIGN},
    {"Sqrt", "", 6, LAST, map_unary, IR_UNARY_SQRT},
    {"Swish", "", 24, LAST, map_unary_parameters, IR_UNARY_SWISH},
    {"Tan", "", 7, LAST, map_unary, IR_UNARY_TAN},
    {"Tanh", "", 6, LAST, map_unary, IR_UNARY_TANH},
    {"ThresholdedRelu", "", 10, LAST, map_unary_parameters, IR_UNARY_THRESHOLDED_RELU},

    /* several operands */
    {"Add", "", 6, LAST, map_binary, IR_BINARY_ADD},
    {"And", "", 1, LAST, map_binary, IR_BINARY_AND},
    {"BitShift", "", 11, LAST, map_bit_shift, 0},
    {"BitwiseAnd", "", 18, LAST, map_binary, IR_BINARY_BITWISE_AND},
    {"BitwiseOr", "", 18, LAST, map_binary, IR_BINARY_BITWISE_OR},
    {"BitwiseXor", "", 18, LAST, map_binary, IR_BINARY_BITWISE_XOR},
    {"Div", "", 6, LAST, map_binary, IR_BINARY_DIV},
    {"Equal", "", 1, LAST, map_binary, IR_BINARY_EQUAL},
    {"Greater", "", 1, LAST, map_binary, IR_BINARY_GREATER},
    {"GreaterOrEqual", "", 12, LAST, map_binary, IR_BINARY_GREATER_EQUAL},
    {"Less", "", 1, LAST, map_binary, IR_BINARY_LESS},
    {"LessOrEqual", "", 12, LAST, map_binary, IR_BINARY_LESS_EQUAL},
    {"Max", "", 6, LAST, map_variadic, IR_BINARY_MAX},
    {"Mean", "", 6, LAST, map_mean, 0},
    {"Min", "", 6, LAST, map_variadic, IR_BINARY_MIN},
    {"Mod", "", 10, LAST, map_mod, 0},
    {"Mul", "", 6, LAST, map_binary, IR_BINARY_MUL},
    {"Or", "", 1, LAST, map_binary, IR_BINARY_OR},
    {"PRelu", "", 6, LAST, map_prelu, 0},
    {"Pow", "", 1, LAST, map_pow, 0},
    {"Sub", "", 6, LAST, map_binary, IR_BINARY_SUB},
    {"Sum", "", 6, LAST, map_variadic, IR_BINARY_ADD},
    {"Where", "", 9, LAST, map_where, 0},
    {"Xor", "", 1, LAST, map_binary, IR_BINARY_XOR},

    /* over axes */
    {"ArgMax", "", 1, LAST, map_arg_reduce, 0},
    {"ArgMin", "", 1, LAST, map_arg_reduce, 1},
    {"CumSum", "", 11, LAST, map_cumsum, 0},
    {"Hardmax", "", 1, LAST, map_softmax, MAP_HARDMAX},
    {"LogSoftmax", "", 1, LAST, map_softmax, MAP_LOG_SOFTMAX},
    {"ReduceL1", "", 1, LAST, map_reduce, IR_REDUCE_L1},
    {"ReduceL2", "", 1, LAST, map_reduce, IR_REDUCE_L2},
    {"ReduceLogSum", "", 1, LAST, map_reduce, IR_REDUCE_LOG_SUM},
    {"ReduceLogSumExp", "", 1, LAST, map_reduce, IR_REDUCE_LOG_SUM_EXP},
    {"ReduceMax", "", 1, LAST, map_reduce, IR_REDUCE_MAX},
    {"ReduceMean", "", 1, LAST, map_reduce, IR_REDUCE_MEAN},
    {"ReduceMin", "", 1, LAST, map_reduce, IR_REDUCE_MIN},
    {"ReduceProd", "", 1, LAST, map_reduce, IR_REDUCE_PROD},
    {"ReduceSum", "", 1, LAST, map_reduce, IR_REDUCE_SUM},
    {"ReduceSumSquare", "", 1, LAST, map_reduce, IR_REDUCE_SUM_SQUARE},
    {"Softmax", "", 1, LAST, map_softmax, MAP_SOFTMAX},
    {"TopK", "", 1, LAST, map_topk, 0},

    /* shape */
    {"DepthToSpace", "", 1, LAST, map_depth_to_space, 0},
    {"Expand", "", 8, LAST, map_expand, 0},
    {"Flatten", "", 1, LAST, map_flatten, 0},
    {"Reshape", "", 1, LAST, map_reshape, 0},
    {"SpaceToDepth", "", 1, LAST, map_space_to_depth, 0},
    {"Squeeze", "", 1, LAST, map_squeeze, 0},
    {"Transpose", "", 1, LAST, map_transpose, 0},
    {"Unsqueeze", "", 1, LAST, map_unsqueeze, 0},

    /* parts */
    {"Concat", "", 1, LAST, map_concat, 0},
    {"Pad", "", 1, LAST, map_pad, 0},
    {"Resize", "", 10, 10, map_upsample, 0},
    {"Resize", "", 11, LAST, map_resize, 0},
    {"Slice", "", 1, LAST, map_slice, 0},
    {"Split", "", 1, LAST, map_split, 0},
    {"Tile", "", 6, LAST, map_tile, 0},
    {"Trilu", "", 14, LAST, map_trilu, 0},
    {"Upsample", "", 7, 9, map_upsample, 0},

    /* by index */
    {"Compress", "", 9, LAST, map_compress, 0},
    {"Gather", "", 1, LAST, map_gather, 0},
    {"GatherElements", "", 11, LAST, map_gather_elements, 0},
    {"GatherND", "", 11, LAST, map_gather_nd, 0},
    {"NonZero", "", 9, LAST, map_non_zero, 0},
    {"OneHot", "", 9, LAST, map_one_hot, 0},
    {"ReverseSequence", "", 10, LAST, map_reverse_sequence, 0},
    {"Scatter", "", 9, 10, map_scatter_elements, 0},
    {"ScatterElements", "", 11, LAST, map_scatter_elements, 0},
    {"ScatterND", "", 11, LAST, map_scatter_nd, 0},

    /* known when the plan is built */
    {"BlackmanWindow", "", 17, LAST, map_window, MAP_WINDOW_BLACKMAN},
    {"Constant", "", 1, LAST, map_constant, 0},
    {"ConstantOfShape", "", 9, LAST, map_constant_of_shape, 0},
    {"EyeLike", "", 9, LAST, map_eye_like, 0},
    {"HammingWindow", "", 17, LAST, map_window, MAP_WINDOW_HAMMING},
    {"HannWindow", "", 17, LAST, map_window, MAP_WINDOW_HANN},
    {"Range", "", 11, LAST, map_range, 0},
    {"Shape", "", 1, LAST, map_shape_of, 0},
    {"Size", "", 1, LAST, map_size_of, 0},
};

const struct map_op *map_op_find(const char *domain, const char *op, int64_t opset,
                                 const struct map_op **other_opset)
{
    *other_opset = NULL;
    for (uint32_t i = 0; i < ARRAY_LEN(ops); i++) {
        if (strcmp(ops[i].op, op) || strcmp(ops[i].domain, domain))
            continue;
        if (opset >= ops[i].first && opset <= ops[i].last)
            return &ops[i];
        *other_opset = &ops[i];
    }
    return NULL;
}
