/* SPDX-License-Identifier: Apache-2.0 */
/* Indices that come from tensors, and so from peers: checked before they are used. */
#ifndef INFERD_KERNELS_CPU_INDEX_H
#define INFERD_KERNELS_CPU_INDEX_H

#include <stdint.h>
#include <string.h>

#include "base/error.h"
#include "base/shape.h"
#include "kernels/cpu/number.h"

/* An index that its dimension does not have. */
enum status ref_index_strays(int64_t index, int64_t dim, struct error *err);

/* Reads element `at` of `indices` as an index of a dimension of size `dim`; negative indices count
 * from its end. */
static inline enum status ref_index(const struct tensor_view *indices, int64_t at, int64_t dim,
                                    int64_t *out, struct error *err)
{
    int64_t index;
    if (indices->dtype == DTYPE_I64)
        memcpy(&index, (const char *)indices->data + at * (int64_t)sizeof(index), sizeof(index));
    else
        index = ref_get_i64(indices->dtype, indices->data, at);
    if (index < -dim || index >= dim)
        return ref_index_strays(index, dim, err);
    *out = index < 0 ? index + dim : index;
    return STATUS_OK;
}

/* Copies one element. A constant size makes a load and a store of it. */
static inline void ref_put(void *to, const void *from, size_t size)
{
    switch (size) {
    case 1:
        memcpy(to, from, 1);
        break;
    case 2:
        memcpy(to, from, 2);
        break;
    case 4:
        memcpy(to, from, 4);
        break;
    default:
        memcpy(to, from, 8);
        break;
    }
}

/* Reads row `row` of `indices`, whose rows are tuples of n indices, and gives the offset that it
 * means. */
static inline enum status ref_index_tuple(const struct tensor_view *indices, int64_t row,
                                          uint32_t n, const int64_t *dims, const int64_t *strides,
                                          int64_t *out, struct error *err)
{
    int64_t offset = 0;
    for (uint32_t d = 0; d < n; d++) {
        int64_t index = 0;
        enum status status = ref_index(indices, row * n + d, dims[d], &index, err);
        if (status)
            return status;
        offset += index * strides[d];
    }
    *out = offset;
    return STATUS_OK;
}

#endif
