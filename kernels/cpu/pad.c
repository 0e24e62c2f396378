/* SPDX-License-Identifier: Apache-2.0 */
/* Padding and cropping. */
#include <string.h>

#include "base/compiler.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

int64_t ref_pad_source(enum ir_pad mode, int64_t i, int64_t n)
{
    if (mode == IR_PAD_WRAP)
        return ((i % n) + n) % n;
    if (mode == IR_PAD_REFLECT) { /* there and back without repeating the ends */
        int64_t period = n > 1 ? 2 * (n - 1) : 1;
        int64_t r = ((i % period) + period) % period;
        return r < n ? r : period - r;
    }
    return i < 0 ? 0 : MIN(i, n - 1); /* IR_PAD_EDGE */
}

/* The part of y that repeats x is one box: all of y is filled, then the box is copied. */
static void pad_constant(const int64_t *pads, const char *fill, const struct tensor_view *x,
                         const struct tensor_view *y)
{
    size_t size = dtype_size(y->dtype);
    int64_t elements = ref_extent(&y->shape, 0, y->shape.rank), from = 0, to = 0;
    int64_t strides[2][SHAPE_MAX_RANK];
    struct shape box = {.rank = y->shape.rank};
    shape_strides(&y->shape, strides[0]);
    shape_strides(&x->shape, strides[1]);
    for (uint32_t d = 0; d < box.rank; d++) {
        int64_t first = MAX(pads[d], 0), skipped = MAX(-pads[d], 0);
        box.dim[d] = MIN(x->shape.dim[d] - skipped, y->shape.dim[d] - first);
        box.dim[d] = MAX(box.dim[d], 0);
        from += skipped * strides[1][d];
        to += first * strides[0][d];
    }
    for (int64_t e = 0; e < elements; e++)
        memcpy((char *)y->data + (size_t)e * size, fill, size);
    struct ref_walk walk;
    if (ref_extent(&box, 0, box.rank) > 0)
        ref_walk_copy(&walk, &box, strides, size, (char *)y->data + (size_t)to * size,
                      (const char *)x->data + (size_t)from * size);
}

void ref_pad(enum ir_pad mode, const int64_t *pads, double value, const struct tensor_view *x,
             const struct tensor_view *y)
{
    uint32_t rank = y->shape.rank;
    size_t size = dtype_size(y->dtype), elements;
    if (!shape_elements(&y->shape, &elements) || elements == 0)
        return;
    char fill[8];
    ref_write_f64(y->dtype, fill, 0, 1, 1, &value);
    if (mode == IR_PAD_CONSTANT) {
        pad_constant(pads, fill, x, y);
        return;
    }
    int64_t strides[SHAPE_MAX_RANK], index[SHAPE_MAX_RANK] = {0};
    shape_strides(&x->shape, strides);
    char *to = y->data;
    for (size_t e = 0; e < elements; e++, to += size) {
        int64_t from = 0;
        for (uint32_t d = 0; d < rank; d++)
            from += ref_pad_source(mode, index[d] - pads[d], x->shape.dim[d]) * strides[d];
        memcpy(to, (const char *)x->data + (size_t)from * size, size);
        for (uint32_t d = rank; d-- > 0;) {
            if (++index[d] < y->shape.dim[d])
                break;
            index[d] = 0;
        }
    }
}
