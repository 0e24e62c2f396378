/* SPDX-License-Identifier: Apache-2.0 */
/* Whether the masks of a request hide what the request is padded with: the numbers of the masks
 * decide that. */
#include "base/dtype.h"
#include "engine/engine.h"

/* The dimension of the mask's rows: the last one that requests choose. -1: none. */
static int rows_dim(const struct engine_axes *axes, uint32_t rank)
{
    int d = (int)rank - 1;
    while (d >= 0 && !axes->free[d])
        d--;
    return d;
}

static bool is_zero(const char *data, size_t size)
{
    size_t i = 0;
    while (i < size && !data[i])
        i++;
    return i == size;
}

/* How many zeros a row has: all of them, or those in front of its first other number. The row
 * begins at `first` and has `n` elements, `step` bytes apart. */
static size_t count_zeros(const char *first, size_t n, size_t step, size_t element, bool in_front)
{
    size_t zeros = 0;
    for (size_t k = 0; k < n; k++) {
        bool zero = is_zero(first + k * step, element);
        if (!zero && in_front)
            return zeros;
        zeros += zero;
    }
    return zeros;
}

/* Whether the mask, whose rows lie along dimension d, hides what it is padded with. */
static bool hides(enum engine_mask mask, const struct shape *shape, uint32_t d, size_t element,
                  const char *data)
{
    size_t inner = element, outer = 1, row = (size_t)shape->dim[d];
    for (uint32_t i = 0; i < d; i++)
        outer *= (size_t)shape->dim[i];
    for (uint32_t i = d + 1; i < shape->rank; i++)
        inner *= (size_t)shape->dim[i];
    for (size_t at = 0; at < outer * inner; at += element) {
        const char *first = data + at / inner * inner * row + at % inner;
        size_t zeros = count_zeros(first, row, inner, element, mask != ENGINE_MASK_WHOLE);
        if (mask == ENGINE_MASK_ROWS ? zeros == row : zeros > 0)
            return false;
    }
    return true;
}

enum status engine_masks_check(const struct engine_info *info, uint32_t point,
                               const int64_t *values, uint32_t instances,
                               const struct engine_span *spans, struct error *err)
{
    static const char *const what[ENGINE_MASKS] = {
        [ENGINE_MASK_ROWS] = "has a row of zeros alone",
        [ENGINE_MASK_FIRST] = "has a row that begins with a zero",
        [ENGINE_MASK_WHOLE] = "has a zero",
    };
    if (!info->n_free || !info->n_points || !engine_point_pads(info, point, values))
        return STATUS_OK;
    const struct engine_binding *inputs = engine_point_inputs(info, point);
    for (uint32_t i = 0; i < info->n_inputs; i++) {
        const struct engine_axes *axes = engine_input_axes(info, i);
        int d = axes && axes->mask ? rows_dim(axes, inputs[i].shape.rank) : -1;
        struct shape own = engine_shape_of(info, axes, &inputs[i].shape, instances, values);
        if (d >= 0 &&
            !hides(axes->mask, &own, (uint32_t)d, dtype_size(inputs[i].dtype), spans[i].data))
            return error_set(err, STATUS_FAILED_PRECONDITION,
                             "input '%s' %s: a request of such a mask runs unpadded only, and no "
                             "profile has its size",
                             inputs[i].name, what[axes->mask]);
    }
    return STATUS_OK;
}
