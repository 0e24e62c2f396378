/* SPDX-License-Identifier: Apache-2.0 */
/* Reads and makes constants of the float types that passes compute with (rw_is_float). */
#ifndef INFERD_ENGINE_PASSES_CONSTANT_H
#define INFERD_ENGINE_PASSES_CONSTANT_H

#include <string.h>

#include "engine/passes/rewrite.h"

/* Element i of an array of such a type, at any alignment. */
static inline float float_get(const void *data, enum dtype dtype, size_t i)
{
    if (dtype == DTYPE_F32) {
        float f;
        memcpy(&f, (const char *)data + 4 * i, 4);
        return f;
    }
    uint16_t bits;
    memcpy(&bits, (const char *)data + 2 * i, 2);
    return dtype == DTYPE_F16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

static inline void float_put(void *data, enum dtype dtype, size_t i, float value)
{
    if (dtype == DTYPE_F32) {
        memcpy((char *)data + 4 * i, &value, 4);
        return;
    }
    uint16_t bits = dtype == DTYPE_F16 ? f32_to_f16(value) : f32_to_bf16(value);
    memcpy((char *)data + 2 * i, &bits, 2);
}

/* True if the tensor is a constant in memory, of such a type. */
bool constant_is_float(const struct rewrite *rw, uint32_t tensor);

/* Element `i` of such a constant. */
float constant_at(const struct rewrite *rw, uint32_t tensor, size_t i);

/* True if all elements (at least one) are the same number, which may be infinite. */
bool constant_number(const struct rewrite *rw, uint32_t tensor, float *out);

/* True if that number is finite. */
bool constant_uniform(const struct rewrite *rw, uint32_t tensor, float *out);

/*
 * True if the constant, broadcast to `to`, differs along dimension `axis` only: it has a number for
 * each channel, or one for all. `*values` then is a malloc-ed array of to->dim[axis] numbers; NULL,
 * with the pass failed, if there is no memory.
 */
bool constant_per_channel(struct rewrite *rw, uint32_t tensor, const struct shape *to,
                          uint32_t axis, float **values);

/* A new constant from floats, rounded to `dtype`; IR_NONE without memory. */
uint32_t constant_make(struct rewrite *rw, const char *name, enum dtype dtype,
                       const struct shape *shape, const float *values);

#endif
