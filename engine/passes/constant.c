/* SPDX-License-Identifier: Apache-2.0 */
/* Constants come from files: their bytes may be unaligned, so elements are copied out. */
#include "engine/passes/constant.h"

#include <math.h>
#include <stdlib.h>

bool constant_is_float(const struct rewrite *rw, uint32_t tensor)
{
    if (tensor == IR_NONE)
        return false;
    const struct ir_tensor *t = ir_tensor(rw->graph, tensor);
    return t->data && t->layout == IR_LAYOUT_PLAIN && rw_is_float(rw, tensor);
}

float constant_at(const struct rewrite *rw, uint32_t tensor, size_t i)
{
    const struct ir_tensor *t = ir_tensor(rw->graph, tensor);
    return float_get(t->data, t->dtype, i);
}

bool constant_number(const struct rewrite *rw, uint32_t tensor, float *out)
{
    size_t n;
    if (!constant_is_float(rw, tensor) ||
        !shape_elements(&ir_tensor(rw->graph, tensor)->shape, &n) || n == 0)
        return false;
    const struct ir_tensor *t = ir_tensor(rw->graph, tensor);
    float first = float_get(t->data, t->dtype, 0);
    for (size_t i = 1; i < n; i++)
        if (float_get(t->data, t->dtype, i) != first)
            return false;
    *out = first;
    return !isnan(first);
}

bool constant_uniform(const struct rewrite *rw, uint32_t tensor, float *out)
{
    float value;
    if (!constant_number(rw, tensor, &value) || !isfinite(value))
        return false;
    *out = value;
    return true;
}

bool constant_per_channel(struct rewrite *rw, uint32_t tensor, const struct shape *to,
                          uint32_t axis, float **values)
{
    if (!constant_is_float(rw, tensor))
        return false;
    const struct shape *from = &ir_tensor(rw->graph, tensor)->shape;
    struct shape r;
    if (!shape_broadcast(from, to, &r) || !shape_equal(&r, to))
        return false;
    size_t channels = (size_t)to->dim[axis], step = 0;
    for (uint32_t i = 0; i < from->rank; i++) {
        if (from->dim[i] == 1)
            continue;
        if (i + to->rank - from->rank != axis)
            return false;
        step = 1;
    }
    float *out = calloc(MAX(channels, 1), sizeof(*out));
    if (!out)
        rw_fail(rw);
    for (size_t i = 0; out && i < channels; i++)
        out[i] = constant_at(rw, tensor, i * step);
    *values = out;
    return out != NULL;
}

uint32_t constant_make(struct rewrite *rw, const char *name, enum dtype dtype,
                       const struct shape *shape, const float *values)
{
    void *data;
    size_t n;
    uint32_t id = rw_add_constant(rw, name, dtype, shape, &data);
    if (id == IR_NONE || !shape_elements(shape, &n))
        return IR_NONE;
    for (size_t i = 0; i < n; i++)
        float_put(data, dtype, i, values[i]);
    return id;
}
