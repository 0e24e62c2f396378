/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention as graphs of cuDNN's backend API (dnn_attention_build.c), for the family
 * (dnn_attention.c). There are two spellings: one operation, which knows no mask and no causal
 * form; and, with these, one operation after the other, from the product of queries and keys to
 * that with the values, which cuDNN recognises as attention and compiles into one kernel, too.
 */
#ifndef INFERD_ENGINE_CUDA_DNN_ATTENTION_H
#define INFERD_ENGINE_CUDA_DNN_ATTENTION_H

#include "engine/cuda/dnn_graph.h"

/* The tensors, Q to MASK in the order of their uids; and what the host passes by value. */
enum {
    ATTENTION_Q,
    ATTENTION_K,
    ATTENTION_V,
    ATTENTION_Y,
    ATTENTION_MASK,
    ATTENTION_TENSORS,
    ATTENTION_UID = 1, /* of Q */
    ATTENTION_UID_SCALE = ATTENTION_UID + ATTENTION_TENSORS,
    ATTENTION_UID_HIDDEN, /* the score of a key that is not seen */
    ATTENTION_UID_SHIFT,  /* Sk - Sq */
};

/* Everything that decides the graph. It is hashed as bytes, so it has no holes and is zeroed
 * first. The mask's dims are 1 where it broadcasts. */
struct attention_spec {
    int64_t dim[ATTENTION_TENSORS][4], stride[ATTENTION_TENSORS][4];
    int64_t io; /* enum dtype */
    int64_t masked, causal;
};

/* Builds a recipe of dnn_plan_get; `spec` is a struct attention_spec. */
void attention_build(struct dnn_build *b, const void *spec);

#endif
