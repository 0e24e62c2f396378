/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of ops. A new op is a row here and a mapping function in the file of its family. What a
 * row says about operands, types and attributes is checked before the function is called.
 * docs/describe_ops.c makes docs/operators.md from the rows.
 *
 * `first` is the oldest opset for which the mapping is right. It is often older than the opset that
 * the importer promises (7), because exporters write the opset in which an op last changed.
 */
#include "engine/import/ops.h"

#include <string.h>

enum { LAST = MAP_OPSET_LAST, MANY = MAP_MANY };

#define MS "com.microsoft"

/* element types */
#define T(type)   (1u << DTYPE_##type)
#define FLOATS    (T(F16) | T(BF16) | T(F32) | T(F64))
#define UNSIGNED  (T(U8) | T(U16) | T(U32) | T(U64))
#define INTEGERS  (UNSIGNED | T(I8) | T(I16) | T(I32) | T(I64))
#define NUMBERS   (INTEGERS | FLOATS)
#define ANY       (NUMBERS | T(BOOL))
#define STORED    (ANY | T(F8))
#define SIGNED    (T(I8) | T(I16) | T(I32) | T(I64) | FLOATS)
#define INDICES   (T(I32) | T(I64))
#define WIDE      (INDICES | T(U32) | T(U64) | FLOATS)
#define BYTES     (T(U8) | T(I8))
#define QUANTISED (BYTES | T(U16) | T(I16))

/* at least, at most so many inputs; at most so many outputs; the first input has the row's type */
#define IO(min_in, max_in, max_out)                                                                \
    {                                                                                              \
        min_in, max_in, max_out, 0                                                                 \
    }

/* an op that the mapping makes */
#define OP(op) (UINT64_C(1) << IR_OP_##op)

/* attributes that many ops have */
#define WINDOW    "auto_pad:s dilations:I kernel_shape:I pads:I strides:I"
#define BROADCAST "axis:i broadcast:b"
#define REDUCED   "axes:I keepdims:b noop_with_empty_axes:b"
#define RECURRENT                                                                                  \
    "activation_alpha:F activation_beta:F activations:S clip:f direction:s hidden_size:i "         \
    "layout:b output_sequence:b"

/* Each row takes one line, and what does not fit goes on in the next. */
/* clang-format off */
static const struct map_op ops[] = {
    /* convolution, product, pooling */
    {"Col2Im", "", 18, LAST, map_col2im, 0, IO(3, 3, 1), FLOATS, OP(DECONV),
     "dilations:I pads:I strides:I", "an image or block shape that is computed from an input"},
    {"Conv", "", 1, LAST, map_conv, 0, IO(2, 3, 1), FLOATS, OP(CONV), WINDOW " group:i", NULL},
    {"ConvTranspose", "", 1, LAST, map_conv_transpose, 0, IO(2, 3, 1), FLOATS, OP(DECONV),
     WINDOW " group:i output_padding:I output_shape:I", NULL},
    {"DeformConv", "", 19, LAST, map_deform_conv, 0, IO(3, 5, 1),
     FLOATS, OP(SAMPLE) | OP(BINARY) | OP(MATMUL),
     "dilations:I group:i kernel_shape:I offset_group:i pads:I strides:I", NULL},
    {"Det", "", 11, LAST, map_det, 0, IO(1, 1, 1), FLOATS, OP(DET), NULL, NULL},
    {"Einsum", "", 12, LAST, map_einsum, 0, IO(1, MANY, 1),
     NUMBERS, OP(MATMUL) | OP(REDUCE) | OP(TRANSPOSE),
     "equation:s", NULL},
    {"Gemm", "", 6, LAST, map_gemm, 0, IO(2, 3, 1), WIDE, OP(MATMUL),
     "alpha:f beta:f broadcast:b transA:b transB:b", "integers with alpha or beta other than 1"},
    {"MatMul", "", 1, LAST, map_matmul, 0, IO(2, 2, 1), WIDE, OP(MATMUL), NULL, NULL},
    {"AveragePool", "", 1, LAST, map_pool, IR_POOL_AVERAGE, IO(1, 1, 1), FLOATS, OP(POOL),
     WINDOW " ceil_mode:b count_include_pad:b", NULL},
    {"LpPool", "", 2, LAST, map_pool, IR_POOL_LP, IO(1, 1, 1), FLOATS, OP(POOL),
     WINDOW " ceil_mode:b p:i", NULL},
    {"MaxPool", "", 1, LAST, map_pool, IR_POOL_MAX, IO(1, 1, 2), BYTES | FLOATS, OP(POOL),
     WINDOW " ceil_mode:b storage_order:b", NULL},
    {"GlobalAveragePool", "", 1, LAST, map_global_pool, IR_POOL_AVERAGE, IO(1, 1, 1),
     FLOATS, OP(POOL), NULL, NULL},
    {"GlobalLpPool", "", 2, LAST, map_global_pool, IR_POOL_LP, IO(1, 1, 1), FLOATS, OP(POOL),
     "p:i", NULL},
    {"GlobalMaxPool", "", 1, LAST, map_global_pool, IR_POOL_MAX, IO(1, 1, 1), FLOATS, OP(POOL),
     NULL, NULL},
    {"MaxUnpool", "", 9, LAST, map_max_unpool, 0, IO(2, 3, 1), FLOATS, OP(SCATTER_ELEMENTS),
     "kernel_shape:I pads:I strides:I", "an output shape smaller than its window gives"},

    /* recurrent */
    {"GRU", "", 7, LAST, map_recurrent, IR_RECURRENT_GRU, IO(3, 6, 2),
     FLOATS, OP(MATMUL) | OP(RECURRENT), RECURRENT " linear_before_reset:b", NULL},
    {"LSTM", "", 7, LAST, map_recurrent, IR_RECURRENT_LSTM, IO(3, 8, 3),
     FLOATS, OP(MATMUL) | OP(RECURRENT), RECURRENT " input_forget:b", NULL},
    {"RNN", "", 7, LAST, map_recurrent, IR_RECURRENT_RNN, IO(3, 6, 2),
     FLOATS, OP(MATMUL) | OP(RECURRENT), RECURRENT, NULL},

    /* control flow */
    {"If", "", 1, LAST, map_if, 0, IO(1, 1, MANY), T(BOOL), OP(SELECT),
     "then_branch:g else_branch:g", NULL},
    {"Loop", "", 1, LAST, map_loop, 0, IO(0, MANY, MANY), T(I64), OP(CONCAT),
     "body:g", NULL},
    {"Scan", "", 9, LAST, map_scan, 0, IO(1, MANY, MANY), ANY, OP(SLICE) | OP(CONCAT),
     "body:g num_scan_inputs:i scan_input_axes:I scan_input_directions:I scan_output_axes:I "
     "scan_output_directions:I", "more than 1,024 iterations"},

    /* quantised */
    {"ConvInteger", "", 10, LAST, map_conv_integer, 0, IO(2, 4, 1),
     BYTES, OP(CAST) | OP(BINARY) | OP(CONV), WINDOW " group:i", NULL},
    {"DequantizeLinear", "", 10, LAST, map_dequantize, 0, IO(2, 3, 1),
     QUANTISED | T(I32) | T(F8), OP(DEQUANTIZE),
     "axis:i block_size:i output_dtype:i", NULL},
    {"DynamicQuantizeLinear", "", 11, LAST, map_dynamic_quantize, 0, IO(1, 1, 3),
     FLOATS, OP(REDUCE) | OP(BINARY) | OP(QUANTIZE), NULL, NULL},
    {"MatMulInteger", "", 10, LAST, map_matmul_integer, 0, IO(2, 4, 1),
     BYTES, OP(CAST) | OP(BINARY) | OP(MATMUL), NULL, NULL},
    {"QLinearConv", "", 10, LAST, map_qlinear_conv, 0, IO(8, 9, 1),
     BYTES, OP(DEQUANTIZE) | OP(CONV) | OP(QUANTIZE), WINDOW " group:i", NULL},
    {"QLinearMatMul", "", 10, LAST, map_qlinear_matmul, 0, IO(8, 8, 1),
     BYTES, OP(DEQUANTIZE) | OP(MATMUL) | OP(QUANTIZE), NULL, NULL},
    {"QuantizeLinear", "", 10, LAST, map_quantize, 0, IO(2, 3, 1),
     FLOATS | T(I32) | T(F8), OP(QUANTIZE),
     "axis:i block_size:i output_dtype:i precision:i saturate:b", NULL},

    /* losses */
    {"NegativeLogLikelihoodLoss", "", 12, LAST, map_likelihood_loss, 0, IO(2, 3, 1),
     FLOATS, OP(GATHER_ELEMENTS) | OP(BINARY) | OP(REDUCE), "ignore_index:i reduction:s", NULL},
    {"SoftmaxCrossEntropyLoss", "", 12, LAST, map_cross_entropy_loss, 0, IO(2, 3, 2),
     FLOATS, OP(SOFTMAX) | OP(GATHER_ELEMENTS) | OP(BINARY) | OP(REDUCE),
     "ignore_index:i reduction:s", NULL},

    /* normalisation */
    {"BatchNormalization", "", 6, LAST, map_batch_norm, 0, IO(5, 5, 5), FLOATS, OP(BATCH_NORM),
     "epsilon:f is_test:b momentum:f spatial:b training_mode:b",
     "training mode before opset 14; spatial = 0"},
    {"GroupNormalization", "", 18, LAST, map_group_norm, 0, IO(3, 3, 1), FLOATS, OP(INSTANCE_NORM),
     "epsilon:f num_groups:i stash_type:i", NULL},
    {"InstanceNormalization", "", 6, LAST, map_instance_norm, 0, IO(3, 3, 1),
     FLOATS, OP(INSTANCE_NORM), "epsilon:f", NULL},
    {"LRN", "", 1, LAST, map_lrn, 0, IO(1, 1, 1), FLOATS, OP(LRN),
     "alpha:f beta:f bias:f size:i", NULL},
    {"LayerNormalization", "", 1, LAST, map_layer_norm, 0, IO(2, 3, 3), FLOATS, OP(LAYER_NORM),
     "axis:i epsilon:f stash_type:i", NULL},
    {"LpNormalization", "", 1, LAST, map_lp_norm, 0, IO(1, 1, 1), FLOATS, OP(REDUCE) | OP(BINARY),
     "axis:i p:i", "a p other than 1 and 2"},
    {"MeanVarianceNormalization", "", 9, LAST, map_mean_variance_norm, 0, IO(1, 1, 1),
     FLOATS, OP(REDUCE) | OP(BINARY) | OP(UNARY), "axes:I", NULL},
    {"RMSNormalization", "", 23, LAST, map_rms_norm, 0, IO(2, 2, 1),
     FLOATS, OP(REDUCE) | OP(BINARY) | OP(UNARY), "axis:i epsilon:f stash_type:i", NULL},

    {"SimplifiedLayerNormalization", "", 1, LAST, map_rms_norm, 0, IO(2, 2, 2),
     FLOATS, OP(REDUCE) | OP(BINARY) | OP(UNARY), "axis:i epsilon:f stash_type:i", NULL},

    /* attention */
    {"Attention", "", 23, LAST, map_attention, 0, IO(3, 7, 4), FLOATS, OP(ATTENTION),
     "is_causal:b kv_num_heads:i left_window_size:i q_num_heads:i qk_matmul_output_mode:i "
     "right_window_size:i scale:f softcap:f softmax_precision:i", NULL},
    {"RotaryEmbedding", "", 23, LAST, map_rotary, 0, IO(3, 4, 1), FLOATS, OP(BINARY) | OP(CONCAT),
     "interleaved:b num_heads:i rotary_embedding_dim:i", NULL},

    /* what onnxruntime's optimiser writes */
    {"Attention", MS, 1, 1, map_ms_attention, 0, IO(2, 7, 2), FLOATS, OP(MATMUL) | OP(ATTENTION),
     "do_rotary:b mask_filter_value:f num_heads:i past_present_share_buffer:b qkv_hidden_sizes:I "
     "rotary_embedding_dim:i scale:f unidirectional:b", "rotary positions inside; a shared cache"},
    {"BiasAdd", MS, 1, 1, map_bias_add, 0, IO(3, 3, 1), FLOATS, OP(BINARY), NULL, NULL},
    {"BiasGelu", MS, 1, 1, map_biased, IR_UNARY_GELU, IO(2, 2, 1), FLOATS,
     OP(BINARY) | OP(UNARY), NULL, NULL},
    {"BiasSplitGelu", MS, 1, 1, map_bias_split_gelu, 0, IO(2, 2, 1), FLOATS,
     OP(BINARY) | OP(UNARY), NULL, NULL},
    {"DequantizeLinear", MS, 1, 1, map_dequantize, 0, IO(2, 3, 1), QUANTISED | T(I32),
     OP(DEQUANTIZE), "axis:i block_size:i output_dtype:i", NULL},
    {"DynamicQuantizeMatMul", MS, 1, 1, map_dynamic_quantize_matmul, 0, IO(3, 5, 1), FLOATS,
     OP(REDUCE) | OP(QUANTIZE) | OP(MATMUL) | OP(CAST) | OP(BINARY), NULL, NULL},
    {"DynamicQuantizeLSTM", MS, 1, 1, map_dynamic_quantize_lstm, 0, IO(12, 12, 3), FLOATS,
     OP(DEQUANTIZE) | OP(MATMUL) | OP(RECURRENT),
     "activation_alpha:F activation_beta:F activations:S clip:f direction:s hidden_size:i "
     "input_forget:b", NULL},
    {"EmbedLayerNormalization", MS, 1, 1, map_embed_layer_norm, 0, {7, 9, 3, 2},
     FLOATS, OP(GATHER) | OP(BINARY) | OP(LAYER_NORM), "epsilon:f mask_index_type:i", NULL},
    {"FastGelu", MS, 1, 1, map_biased, IR_UNARY_GELU_TANH, IO(1, 2, 1), FLOATS,
     OP(BINARY) | OP(UNARY), NULL, NULL},
    {"FusedConv", MS, 1, 1, map_fused_conv, 0, IO(2, 4, 1), FLOATS, OP(CONV),
     WINDOW " activation:s activation_params:F group:i", "other activations than those of ONNX"},
    {"FusedGemm", MS, 1, 1, map_fused_gemm, 0, IO(2, 3, 1), FLOATS, OP(MATMUL),
     "activation:s activation_alpha:f activation_beta:f activation_gamma:f alpha:f beta:f transA:b "
     "transB:b", "other activations than those of ONNX"},
    {"FusedMatMul", MS, 1, 1, map_fused_matmul, 0, IO(2, 2, 1), FLOATS, OP(MATMUL),
     "alpha:f transA:b transB:b transBatchA:b transBatchB:b", NULL},
    {"Gelu", MS, 1, 1, map_unary, IR_UNARY_GELU, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"GroupNorm", MS, 1, 1, map_group_norm_silu, 0, IO(3, 3, 1), FLOATS, OP(INSTANCE_NORM),
     "activation:i channels_last:b epsilon:f groups:i", NULL},
    {"GroupQueryAttention", MS, 1, 1, map_group_query_attention, 0, IO(7, 16, 3),
     FLOATS, OP(ATTENTION) | OP(SCATTER_ELEMENTS),
     "causal:b do_rotary:b k_quant_type:s kv_cache_bit_width:i kv_num_heads:i local_window_size:i "
     "num_heads:i qk_norm_epsilon:f qk_output:b rotary_interleaved:b scale:f "
     "sliding_window_cache:b smooth_softmax:b softcap:f v_quant_type:s",
     "a total length that is computed from an input; sinks, quantised caches, norms inside"},
    {"MatMulIntegerToFloat", MS, 1, 1, map_matmul_integer_to_float, 0, IO(4, 7, 1), BYTES,
     OP(MATMUL) | OP(CAST) | OP(BINARY), NULL, NULL},
    {"MatMulNBits", MS, 1, 1, map_matmul_nbits, 0, IO(3, 6, 1), FLOATS, OP(MATMUL) | OP(BINARY),
     "K:i N:i accuracy_level:i bits:i block_size:i",
     "weights, scales and zero points that are not constants"},
    {"MultiHeadAttention", MS, 1, 1, map_multi_head_attention, 0, IO(1, 10, 4),
     FLOATS, OP(ATTENTION), "mask_filter_value:f num_heads:i scale:f unidirectional:b",
     "a cache that is shared or of several beams; scores as an output"},
    {"QAttention", MS, 1, 1, map_qattention, 0, IO(5, 9, 2), BYTES,
     OP(MATMUL) | OP(CAST) | OP(BINARY) | OP(ATTENTION),
     "do_rotary:b mask_filter_value:f num_heads:i past_present_share_buffer:b scale:f "
     "unidirectional:b", "rotary positions inside; a shared cache"},
    {"QGemm", MS, 1, 1, map_qgemm, 0, IO(6, 9, 1), BYTES,
     OP(DEQUANTIZE) | OP(MATMUL) | OP(QUANTIZE), "alpha:f transA:b transB:b", NULL},
    {"QLinearAdd", MS, 1, 1, map_qlinear_binary, IR_BINARY_ADD, IO(7, 8, 1), BYTES,
     OP(DEQUANTIZE) | OP(BINARY) | OP(QUANTIZE), NULL, NULL},
    {"QLinearAveragePool", MS, 1, 1, map_qlinear_pool, IR_POOL_AVERAGE, IO(4, 5, 1), BYTES,
     OP(DEQUANTIZE) | OP(POOL) | OP(QUANTIZE),
     WINDOW " ceil_mode:b channels_last:b count_include_pad:b", "channels last"},
    {"QLinearConcat", MS, 1, 1, map_qlinear_concat, 0, {5, MANY, 1, 2}, BYTES,
     OP(DEQUANTIZE) | OP(CONCAT) | OP(QUANTIZE), "axis:i", NULL},
    {"QLinearConv", MS, 1, 1, map_qlinear_conv, 0, IO(8, 9, 1), BYTES,
     OP(DEQUANTIZE) | OP(CONV) | OP(QUANTIZE), WINDOW " channels_last:b group:i", "channels last"},
    {"QLinearGlobalAveragePool", MS, 1, 1, map_qlinear_global_pool, IR_POOL_AVERAGE, IO(5, 5, 1),
     BYTES, OP(DEQUANTIZE) | OP(POOL) | OP(QUANTIZE), "channels_last:b", "channels last"},
    {"QLinearLeakyRelu", MS, 1, 1, map_qlinear_unary, IR_UNARY_LEAKY_RELU, IO(4, 5, 1), BYTES,
     OP(DEQUANTIZE) | OP(UNARY) | OP(QUANTIZE), "alpha:f", NULL},
    {"QLinearMul", MS, 1, 1, map_qlinear_binary, IR_BINARY_MUL, IO(7, 8, 1), BYTES,
     OP(DEQUANTIZE) | OP(BINARY) | OP(QUANTIZE), NULL, NULL},
    {"QLinearSigmoid", MS, 1, 1, map_qlinear_unary, IR_UNARY_SIGMOID, IO(4, 5, 1), BYTES,
     OP(DEQUANTIZE) | OP(UNARY) | OP(QUANTIZE), NULL, NULL},
    {"QLinearSoftmax", MS, 1, 1, map_qlinear_softmax, 0, IO(5, 5, 1), BYTES,
     OP(DEQUANTIZE) | OP(SOFTMAX) | OP(QUANTIZE), "axis:i opset:i",
     "several axes together"},
    {"QLinearWhere", MS, 1, 1, map_qlinear_where, 0, {9, 9, 1, 1}, BYTES,
     OP(DEQUANTIZE) | OP(SELECT) | OP(QUANTIZE), NULL, NULL},
    {"QuantizeLinear", MS, 1, 1, map_quantize, 0, IO(2, 3, 1), FLOATS | T(I32), OP(QUANTIZE),
     "axis:i block_size:i output_dtype:i precision:i saturate:b", NULL},
    {"QuickGelu", MS, 1, 1, map_quick_gelu, 0, IO(1, 1, 1), FLOATS, OP(UNARY), "alpha:f", NULL},
    {"RotaryEmbedding", MS, 1, 1, map_rotary, 1, IO(4, 4, 1), FLOATS, OP(BINARY) | OP(CONCAT),
     "interleaved:b is_packed_batching:b num_heads:i rotary_embedding_dim:i scale:f",
     "packed sequences"},
    {"SkipGroupNorm", MS, 1, 1, map_group_norm_silu, 1, IO(4, 5, 2), FLOATS,
     OP(BINARY) | OP(INSTANCE_NORM), "activation:i channels_last:b epsilon:f groups:i",
     "channels first"},
    {"SkipLayerNormalization", MS, 1, 1, map_skip_layer_norm, 0, IO(3, 5, 4),
     FLOATS, OP(BINARY) | OP(LAYER_NORM), "epsilon:f", "statistics as outputs"},
    {"SkipSimplifiedLayerNormalization", MS, 1, 1, map_skip_layer_norm, 1, IO(3, 4, 4),
     FLOATS, OP(REDUCE) | OP(BINARY) | OP(UNARY), "epsilon:f", "statistics as outputs"},
    {"TransposeMatMul", MS, 1, 1, map_fused_matmul, 0, IO(2, 2, 1), FLOATS, OP(MATMUL),
     "alpha:f transA:b transB:b", NULL},
    {"Trilu", MS, 1, 1, map_trilu, 0, IO(1, 2, 1), ANY, OP(TRILU), "upper:b", NULL},

    /* one operand */
    {"Abs", "", 6, LAST, map_unary, IR_UNARY_ABS, IO(1, 1, 1), NUMBERS, OP(UNARY), NULL, NULL},
    {"Acos", "", 7, LAST, map_unary, IR_UNARY_ACOS, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Acosh", "", 9, LAST, map_unary, IR_UNARY_ACOSH, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Asin", "", 7, LAST, map_unary, IR_UNARY_ASIN, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Asinh", "", 9, LAST, map_unary, IR_UNARY_ASINH, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Atan", "", 7, LAST, map_unary, IR_UNARY_ATAN, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Atanh", "", 9, LAST, map_unary, IR_UNARY_ATANH, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"BitwiseNot", "", 18, LAST, map_unary, IR_UNARY_BITWISE_NOT, IO(1, 1, 1), INTEGERS, OP(UNARY),
     NULL, NULL},
    {"Cast", "", 6, LAST, map_cast, 0, IO(1, 1, 1), STORED, OP(CAST),
     "round_mode:s saturate:b to:i", NULL},
    {"CastLike", "", 15, LAST, map_cast_like, 0, IO(2, 2, 1), ANY, OP(CAST),
     "round_mode:s saturate:b", NULL},
    {"Ceil", "", 6, LAST, map_unary, IR_UNARY_CEIL, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Celu", "", 12, LAST, map_unary_parameters, IR_UNARY_CELU, IO(1, 1, 1), FLOATS, OP(UNARY),
     "alpha:f", NULL},
    {"Clip", "", 6, LAST, map_clip, 0, IO(1, 3, 1), NUMBERS, OP(UNARY) | OP(BINARY),
     "max:f min:f", NULL},
    {"Cos", "", 7, LAST, map_unary, IR_UNARY_COS, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Cosh", "", 9, LAST, map_unary, IR_UNARY_COSH, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Dropout", "", 1, LAST, map_dropout, 0, IO(1, 3, 2), FLOATS, 0,
     "consumed_inputs:I is_test:b ratio:f seed:i", "training mode"},
    {"Elu", "", 6, LAST, map_unary_parameters, IR_UNARY_ELU, IO(1, 1, 1), FLOATS, OP(UNARY),
     "alpha:f", NULL},
    {"Erf", "", 9, LAST, map_unary, IR_UNARY_ERF, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Exp", "", 6, LAST, map_unary, IR_UNARY_EXP, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Floor", "", 6, LAST, map_unary, IR_UNARY_FLOOR, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Gelu", "", 20, LAST, map_gelu, 0, IO(1, 1, 1), FLOATS, OP(UNARY), "approximate:s", NULL},
    {"HardSigmoid", "", 6, LAST, map_unary_parameters, IR_UNARY_HARD_SIGMOID, IO(1, 1, 1),
     FLOATS, OP(UNARY), "alpha:f beta:f", NULL},
    {"HardSwish", "", 14, LAST, map_unary, IR_UNARY_HARD_SWISH, IO(1, 1, 1), FLOATS, OP(UNARY),
     NULL, NULL},
    {"Identity", "", 1, LAST, map_identity, 0, IO(1, 1, 1), STORED, 0, NULL, NULL},
    {"IsInf", "", 10, LAST, map_is_inf, 0, IO(1, 1, 1), FLOATS, OP(UNARY),
     "detect_negative:b detect_positive:b", NULL},
    {"IsNaN", "", 9, LAST, map_unary, IR_UNARY_IS_NAN, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"LeakyRelu", "", 6, LAST, map_unary_parameters, IR_UNARY_LEAKY_RELU, IO(1, 1, 1),
     FLOATS, OP(UNARY), "alpha:f", NULL},
    {"Log", "", 6, LAST, map_unary, IR_UNARY_LOG, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Mish", "", 18, LAST, map_unary, IR_UNARY_MISH, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Neg", "", 6, LAST, map_unary, IR_UNARY_NEG, IO(1, 1, 1), SIGNED, OP(UNARY), NULL, NULL},
    {"Not", "", 1, LAST, map_unary, IR_UNARY_NOT, IO(1, 1, 1), T(BOOL), OP(UNARY), NULL, NULL},
    {"Reciprocal", "", 6, LAST, map_unary, IR_UNARY_RECIPROCAL, IO(1, 1, 1), FLOATS, OP(UNARY),
     NULL, NULL},
    {"Relu", "", 6, LAST, map_unary, IR_UNARY_RELU, IO(1, 1, 1), SIGNED, OP(UNARY), NULL, NULL},
    {"Round", "", 11, LAST, map_unary, IR_UNARY_ROUND, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Selu", "", 6, LAST, map_unary_parameters, IR_UNARY_SELU, IO(1, 1, 1), FLOATS, OP(UNARY),
     "alpha:f gamma:f", NULL},
    {"Shrink", "", 9, LAST, map_unary_parameters, IR_UNARY_SHRINK, IO(1, 1, 1), NUMBERS, OP(UNARY),
     "bias:f lambd:f", NULL},
    {"Sigmoid", "", 6, LAST, map_unary, IR_UNARY_SIGMOID, IO(1, 1, 1), FLOATS,
     OP(UNARY), NULL, NULL},
    {"Sign", "", 9, LAST, map_unary, IR_UNARY_SIGN, IO(1, 1, 1), NUMBERS, OP(UNARY), NULL, NULL},
    {"Sin", "", 7, LAST, map_unary, IR_UNARY_SIN, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Sinh", "", 9, LAST, map_unary, IR_UNARY_SINH, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Softplus", "", 1, LAST, map_unary, IR_UNARY_SOFTPLUS, IO(1, 1, 1), FLOATS, OP(UNARY),
     NULL, NULL},
    {"Softsign", "", 1, LAST, map_unary, IR_UNARY_SOFTSIGN, IO(1, 1, 1), FLOATS, OP(UNARY),
     NULL, NULL},
    {"Sqrt", "", 6, LAST, map_unary, IR_UNARY_SQRT, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Swish", "", 24, LAST, map_unary_parameters, IR_UNARY_SWISH, IO(1, 1, 1), FLOATS, OP(UNARY),
     "alpha:f", NULL},
    {"Tan", "", 7, LAST, map_unary, IR_UNARY_TAN, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"Tanh", "", 6, LAST, map_unary, IR_UNARY_TANH, IO(1, 1, 1), FLOATS, OP(UNARY), NULL, NULL},
    {"ThresholdedRelu", "", 10, LAST, map_unary_parameters, IR_UNARY_THRESHOLDED_RELU, IO(1, 1, 1),
     FLOATS, OP(UNARY), "alpha:f", NULL},

    /* several operands */
    {"Add", "", 6, LAST, map_binary, IR_BINARY_ADD, IO(2, 2, 1), NUMBERS, OP(BINARY),
     BROADCAST, NULL},
    {"And", "", 1, LAST, map_binary, IR_BINARY_AND, IO(2, 2, 1), T(BOOL), OP(BINARY),
     BROADCAST, NULL},
    {"BitShift", "", 11, LAST, map_bit_shift, 0, IO(2, 2, 1), UNSIGNED, OP(BINARY),
     "direction:s", NULL},
    {"BitwiseAnd", "", 18, LAST, map_binary, IR_BINARY_BITWISE_AND, IO(2, 2, 1), INTEGERS,
     OP(BINARY),
     NULL, NULL},
    {"BitwiseOr", "", 18, LAST, map_binary, IR_BINARY_BITWISE_OR, IO(2, 2, 1), INTEGERS, OP(BINARY),
     NULL, NULL},
    {"BitwiseXor", "", 18, LAST, map_binary, IR_BINARY_BITWISE_XOR, IO(2, 2, 1), INTEGERS,
     OP(BINARY),
     NULL, NULL},
    {"Div", "", 6, LAST, map_binary, IR_BINARY_DIV, IO(2, 2, 1), NUMBERS, OP(BINARY),
     BROADCAST, NULL},
    {"Equal", "", 1, LAST, map_binary, IR_BINARY_EQUAL, IO(2, 2, 1), ANY, OP(BINARY),
     BROADCAST, NULL},
    {"Greater", "", 1, LAST, map_binary, IR_BINARY_GREATER, IO(2, 2, 1), NUMBERS, OP(BINARY),
     BROADCAST, NULL},
    {"GreaterOrEqual", "", 12, LAST, map_binary, IR_BINARY_GREATER_EQUAL, IO(2, 2, 1),
     NUMBERS, OP(BINARY), NULL, NULL},
    {"Less", "", 1, LAST, map_binary, IR_BINARY_LESS, IO(2, 2, 1), NUMBERS, OP(BINARY),
     BROADCAST, NULL},
    {"LessOrEqual", "", 12, LAST, map_binary, IR_BINARY_LESS_EQUAL, IO(2, 2, 1), NUMBERS,
     OP(BINARY),
     NULL, NULL},
    {"Max", "", 6, LAST, map_variadic, IR_BINARY_MAX, IO(1, MANY, 1), NUMBERS, OP(BINARY),
     NULL, NULL},
    {"Mean", "", 6, LAST, map_mean, 0, IO(1, MANY, 1), FLOATS, OP(BINARY), NULL, NULL},
    {"Min", "", 6, LAST, map_variadic, IR_BINARY_MIN, IO(1, MANY, 1), NUMBERS, OP(BINARY),
     NULL, NULL},
    {"Mod", "", 10, LAST, map_mod, 0, IO(2, 2, 1), NUMBERS, OP(BINARY), "fmod:b", NULL},
    {"Mul", "", 6, LAST, map_binary, IR_BINARY_MUL, IO(2, 2, 1), NUMBERS, OP(BINARY),
     BROADCAST, NULL},
    {"Or", "", 1, LAST, map_binary, IR_BINARY_OR, IO(2, 2, 1), T(BOOL),
     OP(BINARY), BROADCAST, NULL},
    {"PRelu", "", 6, LAST, map_prelu, 0, IO(2, 2, 1), WIDE, OP(BINARY), NULL, NULL},
    {"Pow", "", 1, LAST, map_pow, 0, IO(2, 2, 1), INDICES | FLOATS, OP(BINARY), BROADCAST, NULL},
    {"Sub", "", 6, LAST, map_binary, IR_BINARY_SUB, IO(2, 2, 1), NUMBERS, OP(BINARY),
     BROADCAST, NULL},
    {"Sum", "", 6, LAST, map_variadic, IR_BINARY_ADD, IO(1, MANY, 1), FLOATS,
     OP(BINARY), NULL, NULL},
    {"Where", "", 9, LAST, map_where, 0, {3, 3, 1, 1}, ANY, OP(SELECT), NULL, NULL},
    {"Xor", "", 1, LAST, map_binary, IR_BINARY_XOR, IO(2, 2, 1), T(BOOL), OP(BINARY),
     BROADCAST, NULL},

    /* over axes */
    {"ArgMax", "", 1, LAST, map_arg_reduce, 0, IO(1, 1, 1), NUMBERS, OP(ARG_REDUCE),
     "axis:i keepdims:b select_last_index:b", NULL},
    {"ArgMin", "", 1, LAST, map_arg_reduce, 1, IO(1, 1, 1), NUMBERS, OP(ARG_REDUCE),
     "axis:i keepdims:b select_last_index:b", NULL},
    {"CumSum", "", 11, LAST, map_cumsum, 0, IO(2, 2, 1), WIDE, OP(CUMSUM),
     "exclusive:b reverse:b", NULL},
    {"Hardmax", "", 1, LAST, map_softmax, MAP_HARDMAX, IO(1, 1, 1), FLOATS, OP(SOFTMAX),
     "axis:i", NULL},
    {"LogSoftmax", "", 1, LAST, map_softmax, MAP_LOG_SOFTMAX, IO(1, 1, 1), FLOATS, OP(SOFTMAX),
     "axis:i", NULL},
    {"ReduceL1", "", 1, LAST, map_reduce, IR_REDUCE_L1, IO(1, 2, 1), WIDE,
     OP(REDUCE), REDUCED, NULL},
    {"ReduceL2", "", 1, LAST, map_reduce, IR_REDUCE_L2, IO(1, 2, 1), WIDE,
     OP(REDUCE), REDUCED, NULL},
    {"ReduceLogSum", "", 1, LAST, map_reduce, IR_REDUCE_LOG_SUM, IO(1, 2, 1), WIDE, OP(REDUCE),
     REDUCED, NULL},
    {"ReduceLogSumExp", "", 1, LAST, map_reduce, IR_REDUCE_LOG_SUM_EXP, IO(1, 2, 1), WIDE,
     OP(REDUCE),
     REDUCED, NULL},
    {"ReduceMax", "", 1, LAST, map_reduce, IR_REDUCE_MAX, IO(1, 2, 1), ANY, OP(REDUCE),
     REDUCED, NULL},
    {"ReduceMean", "", 1, LAST, map_reduce, IR_REDUCE_MEAN, IO(1, 2, 1), WIDE, OP(REDUCE),
     REDUCED, NULL},
    {"ReduceMin", "", 1, LAST, map_reduce, IR_REDUCE_MIN, IO(1, 2, 1), ANY, OP(REDUCE),
     REDUCED, NULL},
    {"ReduceProd", "", 1, LAST, map_reduce, IR_REDUCE_PROD, IO(1, 2, 1), WIDE, OP(REDUCE),
     REDUCED, NULL},
    {"ReduceSum", "", 1, LAST, map_reduce, IR_REDUCE_SUM, IO(1, 2, 1), WIDE, OP(REDUCE),
     REDUCED, NULL},
    {"ReduceSumSquare", "", 1, LAST, map_reduce, IR_REDUCE_SUM_SQUARE, IO(1, 2, 1), WIDE,
     OP(REDUCE),
     REDUCED, NULL},
    {"Softmax", "", 1, LAST, map_softmax, MAP_SOFTMAX, IO(1, 1, 1), FLOATS, OP(SOFTMAX),
     "axis:i", NULL},
    {"TopK", "", 1, LAST, map_topk, 0, IO(1, 2, 2), NUMBERS, OP(TOPK),
     "axis:i k:i largest:b sorted:b", NULL},

    /* images */
    {"AffineGrid", "", 20, LAST, map_affine_grid, 0, IO(2, 2, 1), FLOATS, OP(MATMUL),
     "align_corners:b", "a size that is computed from an input"},
    {"GridSample", "", 16, LAST, map_grid_sample, 0, IO(2, 2, 1), FLOATS, OP(SAMPLE),
     "align_corners:b mode:s padding_mode:s", "cubic in more than three dimensions"},
    {"MaxRoiPool", "", 1, LAST, map_max_roi_pool, 0, IO(2, 2, 1), FLOATS, OP(ROI_POOL),
     "pooled_shape:I spatial_scale:f", NULL},
    {"NonMaxSuppression", "", 10, LAST, map_nms, 0, IO(2, 5, 1), T(F32), OP(NMS),
     "center_point_box:b", NULL},
    {"RoiAlign", "", 10, LAST, map_roi_align, 0, IO(3, 3, 1), FLOATS, OP(ROI_POOL),
     "coordinate_transformation_mode:s mode:s output_height:i output_width:i sampling_ratio:i "
     "spatial_scale:f", "more than 256 samples"},

    /* signals */
    {"DFT", "", 17, LAST, map_dft, 0, IO(1, 3, 1), FLOATS, OP(MATMUL),
     "axis:i inverse:b onesided:b", "a transform whose matrix has more than 2^24 elements"},
    {"STFT", "", 17, LAST, map_stft, 0, IO(2, 4, 1), FLOATS, OP(GATHER) | OP(BINARY) | OP(MATMUL),
     "onesided:b", "a transform whose matrix has more than 2^24 elements"},

    /* shape */
    {"DepthToSpace", "", 1, LAST, map_depth_to_space, 0, IO(1, 1, 1), ANY, OP(TRANSPOSE),
     "blocksize:i mode:s", NULL},
    {"Expand", "", 8, LAST, map_expand, 0, IO(2, 2, 1), ANY, OP(EXPAND), NULL, NULL},
    {"Flatten", "", 1, LAST, map_flatten, 0, IO(1, 1, 1), STORED, OP(RESHAPE), "axis:i", NULL},
    {"Reshape", "", 1, LAST, map_reshape, 0, IO(1, 2, 1), STORED, OP(RESHAPE),
     "allowzero:b consumed_inputs:I shape:I", NULL},
    {"SpaceToDepth", "", 1, LAST, map_space_to_depth, 0, IO(1, 1, 1), ANY, OP(TRANSPOSE),
     "blocksize:i", NULL},
    {"Squeeze", "", 1, LAST, map_squeeze, 0, IO(1, 2, 1), STORED, OP(RESHAPE), "axes:I", NULL},
    {"Transpose", "", 1, LAST, map_transpose, 0, IO(1, 1, 1), STORED, OP(TRANSPOSE), "perm:I",
     NULL},
    {"Unsqueeze", "", 1, LAST, map_unsqueeze, 0, IO(1, 2, 1), STORED, OP(RESHAPE), "axes:I", NULL},

    /* parts */
    {"CenterCropPad", "", 18, LAST, map_center_crop_pad, 0, IO(2, 2, 1), ANY, OP(SLICE) | OP(PAD),
     "axes:I", NULL},
    {"Concat", "", 1, LAST, map_concat, 0, IO(1, MANY, 1), ANY, OP(CONCAT), "axis:i", NULL},
    {"Pad", "", 1, LAST, map_pad, 0, IO(1, 4, 1), ANY, OP(PAD),
     "mode:s paddings:I pads:I value:f", NULL},
    {"Resize", "", 10, 10, map_upsample, 0, IO(2, 2, 1), NUMBERS, OP(RESIZE),
     "mode:s", NULL},
    {"Resize", "", 11, LAST, map_resize, 0, IO(1, 4, 1), NUMBERS, OP(RESIZE),
     "antialias:b axes:I coordinate_transformation_mode:s cubic_coeff_a:f exclude_outside:b "
     "extrapolation_value:f keep_aspect_ratio_policy:s mode:s nearest_mode:s",
     NULL},
    {"Slice", "", 1, LAST, map_slice, 0, IO(1, 5, 1), ANY,
     OP(SLICE), "axes:I ends:I starts:I", NULL},
    {"Split", "", 1, LAST, map_split, 0, IO(1, 2, MANY), ANY, OP(SLICE),
     "axis:i num_outputs:i split:I", NULL},
    {"Tile", "", 6, LAST, map_tile, 0, IO(2, 2, 1), ANY, OP(TILE), NULL, NULL},
    {"Trilu", "", 14, LAST, map_trilu, 0, IO(1, 2, 1), ANY, OP(TRILU), "upper:b", NULL},
    {"Upsample", "", 7, 9, map_upsample, 0, IO(1, 2, 1), NUMBERS, OP(RESIZE),
     "mode:s scales:F", NULL},

    /* by index */
    {"Compress", "", 9, LAST, map_compress, 0, IO(2, 2, 1), ANY, OP(GATHER),
     "axis:i", NULL},
    {"Gather", "", 1, LAST, map_gather, 0, IO(2, 2, 1), ANY, OP(GATHER), "axis:i", NULL},
    {"GatherElements", "", 11, LAST, map_gather_elements, 0, IO(2, 2, 1), ANY, OP(GATHER_ELEMENTS),
     "axis:i", NULL},
    {"GatherND", "", 11, LAST, map_gather_nd, 0, IO(2, 2, 1), ANY, OP(GATHER_ND),
     "batch_dims:i", NULL},
    {"NonZero", "", 9, LAST, map_non_zero, 0, IO(1, 1, 1), ANY, 0,
     NULL, NULL},
    {"OneHot", "", 9, LAST, map_one_hot, 0, {3, 3, 1, 2}, ANY, OP(ONE_HOT), "axis:i", NULL},
    {"ReverseSequence", "", 10, LAST, map_reverse_sequence, 0, IO(2, 2, 1),
     ANY, OP(GATHER_ND) | OP(TRANSPOSE), "batch_axis:i time_axis:i", NULL},
    {"Scatter", "", 9, 10, map_scatter_elements, 0, IO(3, 3, 1), ANY, OP(SCATTER_ELEMENTS),
     "axis:i", NULL},
    {"ScatterElements", "", 11, LAST, map_scatter_elements, 0, IO(3, 3, 1), ANY,
     OP(SCATTER_ELEMENTS),
     "axis:i reduction:s", NULL},
    {"ScatterND", "", 11, LAST, map_scatter_nd, 0, IO(3, 3, 1), ANY, OP(SCATTER_ND),
     "reduction:s", NULL},
    {"Unique", "", 11, LAST, map_unique, 0, IO(1, 1, 4), ANY, 0,
     "axis:i sorted:b", NULL},

    /* known when the plan is built */
    {"BlackmanWindow", "", 17, LAST, map_window, MAP_WINDOW_BLACKMAN, IO(1, 1, 1), INDICES, 0,
     "output_datatype:i periodic:b", NULL},
    {"Constant", "", 1, LAST, map_constant, 0, IO(0, 0, 1), 0,
     0, "sparse_value:p value:t value_float:f value_floats:F "
     "value_int:i value_ints:I value_string:s value_strings:S",
     "sparse tensors and strings"},
    {"ConstantOfShape", "", 9, LAST, map_constant_of_shape, 0, IO(1, 1, 1), T(I64), 0,
     "value:t", NULL},
    {"EyeLike", "", 9, LAST, map_eye_like, 0, IO(1, 1, 1), ANY, 0, "dtype:i k:i", NULL},
    {"HammingWindow", "", 17, LAST, map_window, MAP_WINDOW_HAMMING, IO(1, 1, 1), INDICES, 0,
     "output_datatype:i periodic:b", NULL},
    {"HannWindow", "", 17, LAST, map_window, MAP_WINDOW_HANN, IO(1, 1, 1), INDICES, 0,
     "output_datatype:i periodic:b", NULL},
    {"MelWeightMatrix", "", 17, LAST, map_mel_weight_matrix, 0, IO(5, 5, 1), INDICES, 0,
     "output_datatype:i", NULL},
    {"OptionalGetElement", "", 15, LAST, map_optional_get, 0, IO(1, 1, 1), ANY, 0,
     NULL, "sequences and maps"},
    {"OptionalHasElement", "", 15, LAST, map_optional_has, 0, IO(0, 1, 1), ANY, 0,
     NULL, "sequences and maps"},
    {"Range", "", 11, LAST, map_range, 0, IO(3, 3, 1), T(I16) | INDICES | T(F32) | T(F64), 0,
     NULL, "more than 2^20 values"},
    {"Shape", "", 1, LAST, map_shape_of, 0, IO(1, 1, 1), ANY, 0, "end:i start:i", NULL},
    {"Size", "", 1, LAST, map_size_of, 0, IO(1, 1, 1), ANY, 0, NULL, NULL},
};
/* clang-format on */

const struct map_op *map_op_at(uint32_t i)
{
    return i < ARRAY_LEN(ops) ? &ops[i] : NULL;
}

bool map_domain_known(const char *domain)
{
    for (uint32_t i = 0; i < ARRAY_LEN(ops); i++)
        if (!strcmp(ops[i].domain, domain))
            return true;
    return false;
}

const struct map_op *map_op_find(const char *domain, const char *op, int64_t opset,
                                 const struct map_op **other_opset)
{
    *other_opset = NULL;
    for (uint32_t i = 0; i < ARRAY_LEN(ops); i++) {
        /* a loop's body is looked up once an iteration, and few names begin alike */
        if (ops[i].op[0] != op[0] || strcmp(ops[i].op, op) || strcmp(ops[i].domain, domain))
            continue;
        if (opset >= ops[i].first && opset <= ops[i].last)
            return &ops[i];
        *other_opset = &ops[i];
    }
    return NULL;
}
