/* SPDX-License-Identifier: Apache-2.0 */
/* SCATTER ops: they copy x, then write or combine updates where the indices say, in the order of
 * the updates. */
#include <string.h>

#include "kernels/cpu/index.h"
#include "kernels/cpu/number.h"
#include "kernels/cpu/ref.h"
#include "kernels/cpu/walk.h"

static const enum ir_binary combine_with[] = {
    [IR_SCATTER_ADD] = IR_BINARY_ADD,
    [IR_SCATTER_MUL] = IR_BINARY_MUL,
    [IR_SCATTER_MAX] = IR_BINARY_MAX,
    [IR_SCATTER_MIN] = IR_BINARY_MIN,
};

/* Writes `n` elements of the updates, from `from` on, to y at `to`, or combines them with those of
 * y. */
static void put(enum ir_scatter func, const struct tensor_view *y, int64_t to,
                const struct tensor_view *updates, int64_t from, int64_t n)
{
    int64_t size = (int64_t)dtype_size(y->dtype);
    struct shape run = {.rank = 1, .dim = {n}};
    struct tensor_view target = {y->dtype, run, (char *)y->data + to * size};
    struct tensor_view update = {y->dtype, run, (char *)updates->data + from * size};
    if (func == IR_SCATTER_SET)
        ref_copy(&update, &target);
    else
        ref_binary(combine_with[func], false, &target, &update, &target);
}

enum status ref_scatter_elements(uint32_t axis, enum ir_scatter func, const struct tensor_view *x,
                                 const struct tensor_view *indices,
                                 const struct tensor_view *updates, const struct tensor_view *y,
                                 struct error *err)
{
    ref_copy(x, y);
    size_t size = dtype_size(y->dtype);
    const char *from_data = updates->data;
    char *to_data = y->data;
    int64_t strides[2][SHAPE_MAX_RANK];
    shape_strides(&indices->shape, strides[0]);
    shape_strides(&y->shape, strides[1]);
    int64_t along = strides[1][axis];
    strides[1][axis] = 0;
    struct ref_walk w;
    for (bool row = ref_walk_init(&w, &indices->shape, 2, strides); row; row = ref_walk_next(&w))
        for (int64_t i = 0; i < w.row; i++) {
            int64_t from = w.at[0] + i * w.step[0], index = 0;
            TRY(ref_index(indices, from, y->shape.dim[axis], &index, err));
            int64_t to = w.at[1] + i * w.step[1] + index * along;
            if (func == IR_SCATTER_SET)
                ref_put(to_data + (size_t)to * size, from_data + (size_t)from * size, size);
            else
                put(func, y, to, updates, from, 1);
        }
    return STATUS_OK;
}

enum status ref_scatter_nd(enum ir_scatter func, const struct tensor_view *x,
                           const struct tensor_view *indices, const struct tensor_view *updates,
                           const struct tensor_view *y, struct error *err)
{
    ref_copy(x, y);
    uint32_t n = (uint32_t)indices->shape.dim[indices->shape.rank - 1];
    int64_t strides[SHAPE_MAX_RANK];
    shape_strides(&y->shape, strides);
    int64_t rows = ref_extent(&indices->shape, 0, indices->shape.rank - 1);
    int64_t part = ref_extent(&y->shape, n, y->shape.rank);
    for (int64_t r = 0; r < rows; r++) {
        int64_t at = 0;
        TRY(ref_index_tuple(indices, r, n, y->shape.dim, strides, &at, err));
        put(func, y, at, updates, r * part, part);
    }
    return STATUS_OK;
}
