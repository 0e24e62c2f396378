/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An attention node as views of its operands' heads, which every family of attention starts from.
 *
 * Whether an operand has its heads first ([N,H,S,D]) or in its rows ([N,S,H*D]), and whether it is
 * part of a packed tensor, only its strides tell; nothing is moved.
 */
#ifndef INFERD_ENGINE_CUDA_ATTENTION_H
#define INFERD_ENGINE_CUDA_ATTENTION_H

#include "engine/cuda/cuda.h"

struct cuda_attention {
    /* q [N,H,Sq,D], k [N,Hk,Sk,D], v [N,Hk,Sk,E], y [N,H,Sq,E]; mask [N,H,Sq,Sk] with stride 0
     * where it broadcasts, of q's type or BOOL. All without data. */
    struct kernel_view q, k, v, mask, y;
    bool packed, masked, causal;
    bool spanned; /* spans say which keys are seen; N is 1, with the rows of all instances */
    const int32_t *spans;
    float scale;
    uint64_t k_offset, v_offset; /* bytes, within the packed tensor */
};

/* Reads the node as a tactic of `dtype` would see it; NONE: with the types that its tensors have.
 * Y may be stored in 8 bits by a scale; its view has the step then. False: the node has an
 * epilogue, a tensor without strides, or another one with a scale. */
bool cuda_attention_read(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                         struct cuda_attention *out);

/* Binds the addresses of a launch. */
void cuda_attention_bind(struct cuda_attention *at, void *const *inputs, void *const *outputs);

#endif
