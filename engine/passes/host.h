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

/* Says whether the operands of this enum ir_binary may change places. */
bool host_commutes(int64_t func);

/*
 * The routines of a kernel library that make up an activation; none for a function that is no step
 * of an epilogue. oneDNN 2.6 generates a routine once, so a second step cannot have the same
 * routine with other parameters.
 */
enum { HOST_RECTIFIER = 1, HOST_AFFINE = 2, HOST_CLAMP = 4, HOST_OTHER = 8 };
extern const uint8_t host_routines[IR_UNARY_COUNT_];

#endif
