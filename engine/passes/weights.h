/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that multiply by constant weights (CONV, DECONV, MATMUL), and the folding of a scale and a
 * shift into their weights and bias: of each output channel, or of each input channel.
 */
#ifndef INFERD_ENGINE_PASSES_WEIGHTS_H
#define INFERD_ENGINE_PASSES_WEIGHTS_H

#include "engine/passes/rewrite.h"

struct weighted {
    uint32_t node;
    uint32_t axis; /* of the output's channels */
    size_t channels;
};

/* The CONV, DECONV or MATMUL without epilogue that makes the tensor for one reader only. */
bool weighted_find(struct rewrite *rw, uint32_t tensor, struct weighted *out);

/* Its weights are a constant of a float type, and so is its bias, if there is one. */
bool weighted_has_constants(const struct rewrite *rw, const struct weighted *w);
bool weighted_has_plain_bias(const struct rewrite *rw, const struct weighted *w);

/* Weights times scale[channel]. */
void weighted_scale(struct rewrite *rw, const struct weighted *w, const float *scale);

/* bias = bias * scale[channel] + shift[channel]; scale or shift may be NULL: 1, 0. */
void weighted_shift(struct rewrite *rw, const struct weighted *w, const float *scale,
                    const float *shift);

/*
 * The same from the other side: CONV with its input's dim 1 as channels, or MATMUL by weights of
 * rank 2 with A's last dim; weights and bias as weighted_has_constants says.
 */
bool weighted_find_input(struct rewrite *rw, uint32_t node, struct weighted *out);

/* What the node makes of scale[channel] x: weights times that. */
void weighted_scale_input(struct rewrite *rw, const struct weighted *w, const float *scale);

/* What it makes of x + shift[channel]: a bias. Not for a CONV that pads, whose padding stays zero,
 * nor for a node with an epilogue, whose bias has its place taken: false. */
bool weighted_can_shift_input(const struct rewrite *rw, const struct weighted *w);
void weighted_shift_input(struct rewrite *rw, const struct weighted *w, const float *shift);

#endif
