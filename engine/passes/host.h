/* SPDX-License-Identifier: Apache-2.0 */
/* Finds nodes that an elementwise operation behind them may join as a step of their epilogue. */
#ifndef INFERD_ENGINE_PASSES_HOST_H
#define INFERD_ENGINE_PASSES_HOST_H

#include "engine/passes/rewrite.h"

/* The node that makes the tensor, if it can take one more step and `tensor` has no other reader.
 * Otherwise IR_NONE; the log says why if little was missing. */
uint32_t host_find(struct rewrite *rw, uint32_t tensor, uint32_t last);

/* Says whether the node is a convolution or a product, which is a better host than an elementwise
 * one. */
bool host_is_heavy(const struct rewrite *rw, uint32_t node);

#endif
