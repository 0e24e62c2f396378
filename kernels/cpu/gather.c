/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that read where their input says: every index is checked before it is used. */
#include <inttypes.h>
#include <string.h>

#include "kernels/cpu/index.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

enum status ref_index_strays(int64_t index, int64_t dim, struct error *err)
{
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     "index %" PRId64 " is out of range for a dimension of %" PRId64, index, dim);
}

/* Most parts are single numbers. */
static void copy_part(char *to, const char *from, size_t part)
{
    if (part == 4 || part == 8)
        ref_put(to, from, part);
    else if (part)
        memcpy(to, from, part);
}

enum status ref_gather(uint32_t axis, const struct tensor_view *x,
                       const struct tensor_view *indices, const struct tensor_view *y,
                       struct error *err)
{
    int64_t outer = ref_extent(&x->shape, 0, axis), dim = x->shape.dim[axis];
    size_t part = (size_t)ref_extent(&x->shape, axis + 1, x->shape.rank) * dtype_size(x->dtype);
    int64_t n = ref_extent(&indices->shape, 0, indices->shape.rank);
    char *to = y->data;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t i = 0; i < n; i++, to += part) {
            int64_t index = 0;
            TRY(ref_index(indices, i, dim, &index, err));
            copy_part(to, (const char *)x->data + (size_t)(o * dim + index) * part, part);
        }
    return STATUS_OK;
}

enum status ref_gather_elements(uint32_t axis, const struct tensor_view *x,
                                const struct tensor_view *indices, const struct tensor_view *y,
                                struct error *err)
{
    size_t size = dtype_size(x->dtype);
    int64_t strides[2][SHAPE_MAX_RANK];
    shape_strides(&y->shape, strides[0]);
    shape_strides(&x->shape, strides[1]);
    int64_t along = strides[1][axis];
    strides[1][axis] = 0;
    struct ref_walk w;
    for (bool row = ref_walk_init(&w, &y->shape, 2, strides); row; row = ref_walk_next(&w))
        for (int64_t i = 0; i < w.row; i++) {
            int64_t to = w.at[0] + i * w.step[0], index = 0;
            TRY(ref_index(indices, to, x->shape.dim[axis], &index, err));
            int64_t from = w.at[1] + i * w.step[1] + index * along;
            ref_put((char *)y->data + (size_t)to * size,
                    (const char *)x->data + (size_t)from * size, size);
        }
    return STATUS_OK;
}

enum status ref_gather_nd(uint32_t batch_dims, const struct tensor_view *x,
                          const struct tensor_view *indices, const struct tensor_view *y,
                          struct error *err)
{
    uint32_t n = (uint32_t)indices->shape.dim[indices->shape.rank - 1];
    uint32_t first = batch_dims, last = batch_dims + n;
    int64_t strides[SHAPE_MAX_RANK];
    shape_strides(&x->shape, strides);
    int64_t batches = ref_extent(&x->shape, 0, first);
    int64_t batch_size = ref_extent(&x->shape, first, x->shape.rank);
    int64_t rows = ref_extent(&indices->shape, first, indices->shape.rank - 1);
    size_t size = dtype_size(x->dtype);
    size_t part = (size_t)ref_extent(&x->shape, last, x->shape.rank) * size;
    char *to = y->data;
    for (int64_t b = 0; b < batches; b++)
        for (int64_t r = 0; r < rows; r++, to += part) {
            int64_t at = 0;
            TRY(ref_index_tuple(indices, b * rows + r, n, &x->shape.dim[first], &strides[first],
                                &at, err));
            copy_part(to, (const char *)x->data + (size_t)(b * batch_size + at) * size, part);
        }
    return STATUS_OK;
}

void ref_one_hot(uint32_t axis, const struct tensor_view *indices, const struct tensor_view *values,
                 const struct tensor_view *y)
{
    size_t size = dtype_size(y->dtype);
    int64_t depth = y->shape.dim[axis];
    int64_t outer = ref_extent(&y->shape, 0, axis);
    int64_t inner = ref_extent(&y->shape, axis + 1, y->shape.rank);
    const char *off = values->data, *on = off + size;
    char *to = y->data;
    for (int64_t o = 0; o < outer; o++)
        for (int64_t d = 0; d < depth; d++)
            for (int64_t i = 0; i < inner; i++, to += size) {
                int64_t index = ref_get_i64(indices->dtype, indices->data, o * inner + i);
                memcpy(to, index == d || index == d - depth ? on : off, size);
            }
}
