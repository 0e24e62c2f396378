/* SPDX-License-Identifier: Apache-2.0 */
#include "base/shape.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"

bool shape_elements(const struct shape *shape, size_t *out)
{
    size_t n = 1;
    bool empty = false;
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (shape->dim[i] < 0)
            return false;
        if (shape->dim[i] == 0)
            empty = true; /* the other dimensions must still multiply without overflow */
        else if (!checked_mul(n, (size_t)shape->dim[i], &n))
            return false;
    }
    *out = empty ? 0 : n;
    return true;
}

bool shape_bytes(const struct shape *shape, enum dtype dtype, size_t *out)
{
    size_t n;
    return dtype_size(dtype) && shape_elements(shape, &n) && checked_mul(n, dtype_size(dtype), out);
}

bool shape_equal(const struct shape *a, const struct shape *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, a->rank * sizeof(a->dim[0])) == 0;
}

const char *shape_format(const struct shape *shape, char out[SHAPE_TEXT_MAX])
{
    size_t n = 0;
    out[n++] = '[';
    for (uint32_t i = 0; i < shape->rank; i++) {
        if (i)
            out[n++] = ',';
        if (shape->dim[i] == -1)
            out[n++] = '?';
        else
            n += (size_t)snprintf(out + n, SHAPE_TEXT_MAX - n, "%" PRId64, shape->dim[i]);
    }
    out[n++] = ']';
    out[n] = '\0';
    return out;
}

void shape_strides(const struct shape *shape, int64_t strides[SHAPE_MAX_RANK])
{
    int64_t stride = 1;
    for (uint32_t i = shape->rank; i-- > 0;) {
        strides[i] = stride;
        stride *= shape->dim[i];
    }
}

bool shape_broadcast(const struct shape *a, const struct shape *b, struct shape *out)
{
    struct shape r = {.rank = MAX(a->rank, b->rank)};
    for (uint32_t i = 0; i < r.rank; i++) {
        int64_t x = i < r.rank - a->rank ? 1 : a->dim[i - (r.rank - a->rank)];
        int64_t y = i < r.rank - b->rank ? 1 : b->dim[i - (r.rank - b->rank)];
        if (x != y && x != 1 && y != 1)
            return false;
        r.dim[i] = x == 1 ? y : x;
    }
    *out = r;
    return true;
}
