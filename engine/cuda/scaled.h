/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constant weights that are packed in 8 bits by scales, behind them a scale and a bias for each
 * channel of the output: what the families for tensors of 8 bits share.
 */
#ifndef INFERD_ENGINE_CUDA_SCALED_H
#define INFERD_ENGINE_CUDA_SCALED_H

#include "engine/cuda/cuda.h"
#include "engine/stored.h"

/* The node's inputs that are meant. Bias: IR_NONE: there is none. */
struct scaled_inputs {
    uint32_t weights, bias;
};

/* Those of a convolution or a product. */
static inline struct scaled_inputs scaled_inputs(bool biased)
{
    return (struct scaled_inputs){1, biased ? 2 : IR_NONE};
}

static inline bool scaled_is_byte(int32_t dtype)
{
    return dtype == DTYPE_I8 || dtype == DTYPE_U8;
}

/* A real number in steps of `to`, as kernel_tile counts them. */
float scaled_in_steps(const struct stored *to, float v);
/* The limits that an activation is in these steps; false: it is none. */
bool scaled_limits(const struct stored *to, uint32_t func, float alpha, float beta, float *low,
                   float *high);

/* Whether weights may be stored as `bytes` without zero points, by one scale or one for each of the
 * n channels along their dimension `axis`; and whether the bias is as packing wants it. Asked only
 * before they are packed. */
bool scaled_constants_fit(const struct ir_graph *graph, const struct ir_node *node,
                          struct scaled_inputs inputs, uint32_t axis, int64_t n, enum dtype bytes);

/* Gives the tactic's ports the scales of the node's tensors; the weights are packed as `bytes`, and
 * so is the bias with them, which keeps its form. */
void scaled_ports(const struct ir_graph *graph, const struct ir_node *node, bool biased,
                  enum dtype bytes, uint64_t packed, struct tactic *tactic);

/* What packing reads: the weights, n_weights in all, and the bias, n numbers (zeros without). */
struct scaled_constants {
    const struct ir_scale *scale;
    float *weights, *bias;
};

/* False in *fit: they are no such constants. */
enum status scaled_constants_read(const struct ir_graph *graph, const struct ir_node *node,
                                  struct scaled_inputs inputs, uint64_t n_weights, uint64_t n,
                                  struct scaled_constants *out, bool *fit, struct error *err);
void scaled_constants_cleanup(struct scaled_constants *constants);

/* The step of channel c, and a weight as INT8. */
float scaled_step(const struct ir_scale *scale, int64_t c);
int8_t scaled_byte(float weight, float step);

#endif
