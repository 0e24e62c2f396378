/* SPDX-License-Identifier: Apache-2.0 */
/* Padding and cropping: every output element looks up the input element it repeats, if any. */
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

#include <string.h>

/* The input index for position i (which may lie outside of 0..n-1); -1: padding. n > 0. */
static int64_t source(enum ref_pad mode, int64_t i, int64_t n)
{
    if (i >= 0 && i < n)
        return i;
    switch (mode) {
    case REF_PAD_EDGE:
        return i < 0 ? 0 : n - 1;
    case REF_PAD_WRAP:
        return ((i % n) + n) % n;
    case REF_PAD_REFLECT: { /* there and back without repeating the ends */
        int64_t period = n > 1 ? 2 * (n - 1) : 1;
        int64_t r = ((i % period) + period) % period;
        return r < n ? r : period - r;
    }
    case REF_PAD_CONSTANT:
        break;
    }
    return -1;
}

void ref_pad(enum ref_pad mode, const int64_t *pads, double value, const struct tensor_view *x,
             const struct tensor_view *y)
{
    uint32_t rank = y->shape.rank;
    size_t size = dtype_size(y->dtype), elements;
    if (!shape_elements(&y->shape, &elements) || elements == 0)
        return;
    char fill[8];
    ref_write_f64(y->dtype, fill, 0, 1, 1, &value);
    int64_t strides[SHAPE_MAX_RANK], index[SHAPE_MAX_RANK] = {0};
    shape_strides(&x->shape, strides);
    char *to = y->data;
    for (size_t e = 0; e < elements; e++, to += size) {
        int64_t from = 0;
        for (uint32_t d = 0; d < rank && from >= 0; d++) {
            int64_t n = x->shape.dim[d];
            int64_t at = n ? source(mode, index[d] - pads[d], n) : -1;
            from = at < 0 ? -1 : from + at * strides[d];
        }
        memcpy(to, from < 0 ? fill : (const char *)x->data + (size_t)from * size, size);
        for (uint32_t d = rank; d-- > 0;) {
            if (++index[d] < y->shape.dim[d])
                break;
            index[d] = 0;
        }
    }
}
