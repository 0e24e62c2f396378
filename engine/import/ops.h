/* SPDX-License-Identifier: Apache-2.0 */
/* The mapping functions by family, and what the families share. */
#ifndef INFERD_ENGINE_IMPORT_OPS_H
#define INFERD_ENGINE_IMPORT_OPS_H

#include "engine/import/map.h"

/* map_op.func of map_softmax and map_window */
enum { MAP_SOFTMAX, MAP_LOG_SOFTMAX, MAP_HARDMAX };
enum { MAP_WINDOW_HANN, MAP_WINDOW_HAMMING, MAP_WINDOW_BLACKMAN };

/* ops_conv.c */
void map_conv(struct mapper *m);
void map_conv_transpose(struct mapper *m);

/* ops_matmul.c */
void map_matmul(struct mapper *m);
void map_gemm(struct mapper *m);
void map_det(struct mapper *m);

/* ops_fused.c */
void map_fused_conv(struct mapper *m);
void map_fused_gemm(struct mapper *m);
void map_fused_matmul(struct mapper *m);
void map_biased(struct mapper *m);
void map_quick_gelu(struct mapper *m);
void map_bias_add(struct mapper *m);
void map_bias_split_gelu(struct mapper *m);

/* ops_attention.c */
void map_attention(struct mapper *m);

/* ops_heads.c */
void map_ms_attention(struct mapper *m);
void map_qattention(struct mapper *m);
void map_multi_head_attention(struct mapper *m);
void map_group_query_attention(struct mapper *m);

/* ops_rotary.c */
void map_rotary(struct mapper *m);

/* ops_skip.c */
void map_skip_layer_norm(struct mapper *m);
void map_embed_layer_norm(struct mapper *m);
void map_group_norm_silu(struct mapper *m);

/* ops_einsum.c */
void map_einsum(struct mapper *m);

/* ops_quant.c */
void map_dequantize(struct mapper *m);
void map_quantize(struct mapper *m);
void map_dynamic_quantize(struct mapper *m);

/* ops_qproduct.c */
void map_conv_integer(struct mapper *m);
void map_matmul_integer(struct mapper *m);
void map_matmul_integer_to_float(struct mapper *m);
void map_dynamic_quantize_matmul(struct mapper *m);

/* ops_nbits.c */
void map_matmul_nbits(struct mapper *m);

/* ops_qlinear.c */
void map_qlinear_binary(struct mapper *m);
void map_qlinear_concat(struct mapper *m);
void map_qlinear_conv(struct mapper *m);
void map_qlinear_global_pool(struct mapper *m);
void map_qlinear_matmul(struct mapper *m);
void map_qlinear_pool(struct mapper *m);
void map_qlinear_softmax(struct mapper *m);
void map_qlinear_unary(struct mapper *m);
void map_qlinear_where(struct mapper *m);
void map_qgemm(struct mapper *m);

/* ops_plugin.c */
void map_plugin(struct mapper *m);

/* ops_loss.c */
void map_likelihood_loss(struct mapper *m);
void map_cross_entropy_loss(struct mapper *m);

/* ops_pool.c */
void map_pool(struct mapper *m);
void map_global_pool(struct mapper *m);
void map_max_unpool(struct mapper *m);

/* ops_norm.c */
void map_batch_norm(struct mapper *m);
void map_instance_norm(struct mapper *m);
void map_group_norm(struct mapper *m);
void map_layer_norm(struct mapper *m);
void map_rms_norm(struct mapper *m);
void map_lrn(struct mapper *m);
void map_lp_norm(struct mapper *m);
void map_mean_variance_norm(struct mapper *m);

/* ops_unary.c */
void map_unary(struct mapper *m);
void map_unary_parameters(struct mapper *m);
void map_is_inf(struct mapper *m);
void map_gelu(struct mapper *m);
void map_clip(struct mapper *m);
void map_cast(struct mapper *m);
void map_cast_like(struct mapper *m);
void map_identity(struct mapper *m);
void map_dropout(struct mapper *m);
void map_optional_has(struct mapper *m);
void map_optional_get(struct mapper *m);

/* ops_binary.c */
void map_binary(struct mapper *m);
void map_pow(struct mapper *m);
void map_prelu(struct mapper *m);
void map_bit_shift(struct mapper *m);
void map_mod(struct mapper *m);
void map_variadic(struct mapper *m);
void map_mean(struct mapper *m);
void map_where(struct mapper *m);

/* ops_reduce.c */
void map_reduce(struct mapper *m);
void map_arg_reduce(struct mapper *m);
void map_softmax(struct mapper *m);
void map_cumsum(struct mapper *m);
void map_topk(struct mapper *m);

/* ops_control.c */
void map_if(struct mapper *m);
void map_loop(struct mapper *m);
void map_scan(struct mapper *m);

/* ops_recurrent.c */
void map_recurrent(struct mapper *m);
void map_dynamic_quantize_lstm(struct mapper *m);

/* ops_shape.c */
void map_reshape(struct mapper *m);
void map_flatten(struct mapper *m);
void map_squeeze(struct mapper *m);
void map_unsqueeze(struct mapper *m);
void map_expand(struct mapper *m);
void map_transpose(struct mapper *m);
void map_depth_to_space(struct mapper *m);
void map_space_to_depth(struct mapper *m);

/* ops_slice.c */
void map_concat(struct mapper *m);
void map_split(struct mapper *m);
void map_slice(struct mapper *m);
void map_pad(struct mapper *m);
void map_tile(struct mapper *m);
void map_trilu(struct mapper *m);

/* ops_resize.c */
void map_resize(struct mapper *m);
void map_upsample(struct mapper *m);

/* ops_gather.c */
void map_gather(struct mapper *m);
void map_gather_elements(struct mapper *m);
void map_gather_nd(struct mapper *m);
void map_scatter_elements(struct mapper *m);
void map_scatter_nd(struct mapper *m);
void map_one_hot(struct mapper *m);
void map_compress(struct mapper *m);
void map_non_zero(struct mapper *m);
void map_reverse_sequence(struct mapper *m);

/* ops_vision.c */
void map_grid_sample(struct mapper *m);
void map_affine_grid(struct mapper *m);
void map_deform_conv(struct mapper *m);
void map_col2im(struct mapper *m);
void map_center_crop_pad(struct mapper *m);

/* ops_boxes.c */
void map_roi_align(struct mapper *m);
void map_max_roi_pool(struct mapper *m);
void map_nms(struct mapper *m);

/* ops_signal.c */
void map_dft(struct mapper *m);
void map_stft(struct mapper *m);
void map_mel_weight_matrix(struct mapper *m);

/* ops_unique.c */
void map_unique(struct mapper *m);

/* ops_const.c */
void map_constant(struct mapper *m);
void map_constant_of_shape(struct mapper *m);
void map_shape_of(struct mapper *m);
void map_size_of(struct mapper *m);
void map_range(struct mapper *m);
void map_eye_like(struct mapper *m);
void map_window(struct mapper *m);

/* Reshapes a vector so that it lies along dimension `axis` of a tensor of `rank`; anything else
 * stays as it is. */
uint32_t emit_along(struct mapper *m, uint32_t x, uint32_t axis, uint32_t rank);
/* Makes a convolution with the window that the node's attributes give; bias may be IR_NONE. */
uint32_t emit_conv(struct mapper *m, uint32_t x, uint32_t weights, uint32_t bias);
/* Fails if a scale is no float, does not fit its zero point (IR_NONE: none), or has a known value
 * that is not a number above 0. */
void map_check_scale(struct mapper *m, uint32_t scale, uint32_t zero);
/* Makes x - zero as type `to`. `zero` is one value, or one for each index of `axis`, or IR_NONE. */
uint32_t emit_shifted(struct mapper *m, uint32_t x, uint32_t zero, uint32_t axis, enum dtype to);
/* A scale and a zero point (IR_NONE: 0): one number each, or a vector along dimension `axis`, or of
 * any other shape that broadcasts. */
struct quantisation {
    uint32_t scale, zero, axis;
};
/* Makes (x - zero) * scale as floats of type `to`, and round(x / scale) + zero, saturated, as
 * integers of type `to`. */
uint32_t emit_dequantize(struct mapper *m, uint32_t x, const struct quantisation *by,
                         enum dtype to);
uint32_t emit_quantize(struct mapper *m, uint32_t x, const struct quantisation *by, enum dtype to);
/* Quantises to UINT8 by a scale and a zero point that follow from the values of x. As in
 * onnxruntime, the scale of nothing but zeros is 1. */
uint32_t emit_dynamic_quantize(struct mapper *m, uint32_t x, struct quantisation *out);
/* Makes the product of two operands of integers as real numbers, plus `bias` unless it is IR_NONE.
 * `by_b` may have a scale for each column. */
uint32_t emit_real_product(struct mapper *m, uint32_t a, const struct quantisation *by_a,
                           uint32_t b, const struct quantisation *by_b, uint32_t bias);
uint32_t emit_flat(struct mapper *m, uint32_t x);                   /* all elements as a vector */
uint32_t emit_matmul_any(struct mapper *m, uint32_t a, uint32_t b); /* takes vectors too */
uint32_t emit_gemm(struct mapper *m);                               /* of the node at hand */
uint32_t emit_scaled(struct mapper *m, uint32_t x, float factor);   /* refuses integers */
uint32_t emit_layer_norm(struct mapper *m, uint32_t x, uint32_t scale, uint32_t bias, uint32_t axis,
                         float epsilon);
uint32_t emit_rms_norm(struct mapper *m, uint32_t x, uint32_t scale, uint32_t axis, float epsilon);
/* Takes epsilon from the node at hand; 0 groups: each channel alone. */
uint32_t emit_instance_norm(struct mapper *m, uint32_t x, uint32_t scale, uint32_t bias,
                            int64_t groups);
uint32_t emit_count(struct mapper *m, int64_t n); /* INT64 [n]: 0, 1, ... */
/* The first `n` axes, which are meant where a node has no list of them. */
void map_default_axes(struct ints *axes, uint32_t n);
/* The angles of rotary positions, [rows, D/2] of a table or [B,S,D/2] without positions, for an
 * operand of rank 4 with its heads in dimension `heads_axis`, 1 or 2. */
uint32_t emit_angles(struct mapper *m, uint32_t table, uint32_t positions, uint32_t heads_axis);
/* Turns pairs of columns by these angles; `neighbours`: columns 2i and 2i + 1 are a pair. */
uint32_t emit_rotary(struct mapper *m, uint32_t x, uint32_t cosine, uint32_t sine, bool neighbours);
/* The first output of the pooling that the node at hand says. */
uint32_t emit_pool(struct mapper *m, uint32_t x);
uint32_t emit_global_pool(struct mapper *m, uint32_t x);
uint32_t emit_softmax(struct mapper *m, uint32_t x, uint32_t axis, bool log_form);
uint32_t emit_gather_nd(struct mapper *m, uint32_t x, uint32_t indices, int64_t batch_dims);
/* Makes a constant of the graph. If `narrow`, and outside of branches and loops, 4-bit integers and
 * 8-bit floats may be held in wider types (tensor.h). */
uint32_t emit_tensor(struct mapper *m, const struct onnx_tensor *tensor, bool narrow);

#endif
