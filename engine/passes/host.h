/* SPDX-License-Identifier: Apache-2.0 */
/* Nodes that an elementwise operation behind them may join as a step of their epilogue. */
#ifndef INFERD_ENGINE_PASSES_HOST_H
#define INFERD_ENGINE_PASSES_HOST_H

#include "engine/passes/rewrite.h"

/* The node that makes the tensor, if it takes one more step and `tensor` has no other reader;
 * IR_NONE, having said why if it was near, otherwise. */
uint32_t host_find(struct rewrite *rw, uint32_t tensor, uint32_t last);

/* A convolution or product: to be preferred over an elementwise node. */
bool host_is_heavy(const struct rewrite *rw, uint32_t node);

#endif
