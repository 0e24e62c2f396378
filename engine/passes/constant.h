/* SPDX-License-Identifier: Apache-2.0 */
/* Reading and making constants of the float types that passes compute with (rw_is_float). */
#ifndef INFERD_ENGINE_PASSES_CONSTANT_H
#define INFERD_ENGINE_PASSES_CONSTANT_H

#include "engine/passes/rewrite.h"

/* True if the tensor is a constant in memory of such a type. */
bool constant_is_float(const struct rewrite *rw, uint32_t tensor);

/* Element `i` of such a constant. */
float constant_at(const struct rewrite *rw, uint32_t tensor, size_t i);

/* True if all its elements (one at least) are the same finite number. */
bool constant_uniform(const struct rewrite *rw, uint32_t tensor, float *out);

/*
 * True if the constant, broadcast to `to`, differs along dimension `axis` only: per channel, or one
 * number for all. `*values` is then a malloc-ed array of to->dim[axis] numbers (NULL, with the pass
 * failed, without memory).
 */
bool constant_per_channel(struct rewrite *rw, uint32_t tensor, const struct shape *to,
                          uint32_t axis, float **values);

/* A new constant from floats, rounded to `dtype`; IR_NONE without memory. */
uint32_t constant_make(struct rewrite *rw, const char *name, enum dtype dtype,
                       const struct shape *shape, const float *values);

#endif
