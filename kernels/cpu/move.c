/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ops that move elements without looking at them. Each is a walk over one index space with two
 * sets of strides: one for where elements come from, one for where they go.
 */
#include <string.h>

#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

void ref_copy(const struct tensor_view *x, const struct tensor_view *y)
{
    size_t bytes;
    if (shape_bytes(&x->shape, x->dtype, &bytes) && bytes && x->data != y->data)
        memcpy(y->data, x->data, bytes);
}

void ref_transpose(const int64_t *perm, const struct tensor_view *x, const struct tensor_view *y)
{
    int64_t from[SHAPE_MAX_RANK], strides[2][SHAPE_MAX_RANK];
    shape_strides(&y->shape, strides[0]);
    shape_strides(&x->shape, from);
    for (uint32_t d = 0; d < x->shape.rank; d++)
        strides[1][d] = from[perm[d]];
    struct ref_walk walk;
    ref_walk_copy(&walk, &y->shape, strides, dtype_size(x->dtype), y->data, x->data);
}

void ref_concat(uint32_t axis, uint32_t n, const struct tensor_view *x, const struct tensor_view *y)
{
    /* The tensors are seen as matrices with one row for each index before the axis. */
    size_t size = dtype_size(y->dtype);
    int64_t rows = ref_extent(&y->shape, 0, axis);
    int64_t inner = ref_extent(&y->shape, axis + 1, y->shape.rank);
    size_t pitch = (size_t)(y->shape.dim[axis] * inner) * size;
    char *to = y->data;
    for (uint32_t k = 0; k < n; k++) {
        size_t part = (size_t)(x[k].shape.dim[axis] * inner) * size;
        const char *from = x[k].data;
        for (int64_t r = 0; part && r < rows; r++)
            memcpy(to + (size_t)r * pitch, from + (size_t)r * part, part);
        to += part;
    }
}

void ref_slice(const int64_t *starts, const int64_t *steps, const struct tensor_view *x,
               const struct tensor_view *y)
{
    size_t size = dtype_size(x->dtype), elements;
    int64_t from[SHAPE_MAX_RANK], strides[2][SHAPE_MAX_RANK], first = 0;
    if (!shape_elements(&y->shape, &elements) || elements == 0)
        return; /* a start may then lie outside of x */
    shape_strides(&y->shape, strides[0]);
    shape_strides(&x->shape, from);
    for (uint32_t d = 0; d < x->shape.rank; d++) {
        first += starts[d] * from[d];
        strides[1][d] = y->shape.dim[d] > 1 ? from[d] * steps[d] : 0; /* a lone step may be huge */
    }
    struct ref_walk walk;
    ref_walk_copy(&walk, &y->shape, strides, size, y->data,
                  (const char *)x->data + first * (int64_t)size);
}

void ref_expand(const struct tensor_view *x, const struct tensor_view *y)
{
    int64_t strides[2][SHAPE_MAX_RANK];
    shape_strides(&y->shape, strides[0]);
    ref_broadcast_strides(&x->shape, &y->shape, strides[1]);
    struct ref_walk walk;
    ref_walk_copy(&walk, &y->shape, strides, dtype_size(x->dtype), y->data, x->data);
}

/* Copies the whole of x into y at every position of the grid of repeats. */
void ref_tile(const struct tensor_view *x, const struct tensor_view *y)
{
    size_t size = dtype_size(x->dtype), elements;
    if (!shape_elements(&y->shape, &elements) || elements == 0)
        return;
    struct shape grid = {.rank = x->shape.rank};
    int64_t strides[2][SHAPE_MAX_RANK], grid_strides[1][SHAPE_MAX_RANK];
    shape_strides(&y->shape, strides[0]);
    shape_strides(&x->shape, strides[1]);
    for (uint32_t d = 0; d < grid.rank; d++) {
        grid.dim[d] = y->shape.dim[d] / x->shape.dim[d];
        grid_strides[0][d] = x->shape.dim[d] * strides[0][d];
    }
    struct ref_walk tiles, walk;
    for (bool row = ref_walk_init(&tiles, &grid, 1, grid_strides); row; row = ref_walk_next(&tiles))
        for (int64_t i = 0; i < tiles.row; i++)
            ref_walk_copy(&walk, &x->shape, strides, size,
                          (char *)y->data + (tiles.at[0] + i * tiles.step[0]) * (int64_t)size,
                          x->data);
}

void ref_trilu(bool upper, int64_t k, const struct tensor_view *x, const struct tensor_view *y)
{
    size_t size = dtype_size(x->dtype);
    uint32_t rank = x->shape.rank;
    int64_t rows = x->shape.dim[rank - 2], cols = x->shape.dim[rank - 1];
    int64_t all_rows = ref_extent(&x->shape, 0, rank - 1);
    for (int64_t r = 0; r < all_rows; r++) {
        const char *from = (const char *)x->data + (size_t)(r * cols) * size;
        char *to = (char *)y->data + (size_t)(r * cols) * size;
        for (int64_t c = 0; c < cols; c++) {
            bool keep = upper ? c - r % rows >= k : c - r % rows <= k;
            if (keep)
                memcpy(to + (size_t)c * size, from + (size_t)c * size, size);
            else
                memset(to + (size_t)c * size, 0, size);
        }
    }
}
