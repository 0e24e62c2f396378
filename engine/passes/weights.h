/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds nodes that multiply by constant weights (CONV, DECONV, MATMUL), and folds a scale and a
 * shift of each output channel or of each input channel into their weights and bias.
 */
#ifndef INFERD_ENGINE_PASSES_WEIGHTS_H
#define INFERD_ENGINE_PASSES_WEIGHTS_H

#include "engine/passes/rewrite.h"

struct weighted {
    uint32_t node;
    uint32_t axis; /* the output's dimension of channels; for an input, the input's */
    size_t channels;
};

/* Finds the CONV, DECONV or MATMUL without epilogue that makes the tensor, if the tensor has one
 * reader. */
bool weighted_find(struct rewrite *rw, uint32_t tensor, struct weighted *out);

/* Says whether the node's weights are a constant of a float type, and so is its bias, if there is
 * one; or whether the bias is. The node may have an epilogue. */
bool weighted_has_constants(const struct rewrite *rw, uint32_t node);
bool weighted_has_plain_bias(const struct rewrite *rw, uint32_t node);

/* The node's bias; IR_NONE: it has none. */
uint32_t weighted_bias(const struct ir_node *node);

/* Says whether no step of the node's epilogue reads a tensor. */
bool weighted_steps_are_unary(const struct ir_node *node);

/* Says whether the windows of a CONV or DECONV by weights of that shape lie side by side: its
 * strides are its kernel, nothing is padded, and no window has gaps. */
bool weighted_side_by_side(const struct ir_node *node, const struct shape *weights);

/* Says whether the node is a CONV of one group by constant weights of one place, [M,C,1,1], without
 * padding; and whether such a node reads its images at steps. */
bool weighted_is_pointwise(const struct rewrite *rw, uint32_t node);
bool weighted_has_steps(const struct ir_node *node);

/* Adds a MATMUL of a and b with the name, the bias `bias` (IR_NONE: without one) and the steps of
 * `node`, which are unary; gives its output, or IR_NONE after a failure. */
uint32_t weighted_multiply(struct rewrite *rw, const struct ir_node *node, uint32_t a, uint32_t b,
                           uint32_t bias, bool trans_b);

/* Multiplies the weights by scale[channel]. */
void weighted_scale(struct rewrite *rw, const struct weighted *w, const float *scale);

/* Computes bias = bias * scale[channel] + shift[channel]. `scale` NULL stands for 1, `shift` for
 * 0. */
void weighted_shift(struct rewrite *rw, const struct weighted *w, const float *scale,
                    const float *shift);

/*
 * Finds the node in terms of its input's channels: a CONV, with the input's dimension 1 as
 * channels, or a MATMUL by weights of rank 2, with A's last dimension. Weights and bias must be
 * constants as in weighted_has_constants.
 */
bool weighted_find_input(struct rewrite *rw, uint32_t node, struct weighted *out);

/* Folds a scale of the input, scale[channel] x, into the weights. */
void weighted_scale_input(struct rewrite *rw, const struct weighted *w, const float *scale);

/* Says whether a shift of the input, x + shift[channel], can become a bias. Not of a CONV that
 * pads, because its padding would stay zero, nor of a node with an epilogue, because a bias comes
 * before it. */
bool weighted_can_shift_input(const struct rewrite *rw, const struct weighted *w);
void weighted_shift_input(struct rewrite *rw, const struct weighted *w, const float *shift);

#endif
