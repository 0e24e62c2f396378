/* SPDX-License-Identifier: Apache-2.0 */
/* Indices that come from tensors, and so from peers: checked before they are used. */
#ifndef INFERD_KERNELS_CPU_INDEX_H
#define INFERD_KERNELS_CPU_INDEX_H

#include <stdint.h>

#include "base/error.h"
#include "base/shape.h"

/* Reads element `at` of `indices` as an index of a dimension of size `dim`; negative indices count
 * from its end. */
enum status ref_index(const struct tensor_view *indices, int64_t at, int64_t dim, int64_t *out,
                      struct error *err);

/* Reads row `row` of `indices`, whose rows are tuples of n indices, and gives the offset that it
 * means. */
enum status ref_index_tuple(const struct tensor_view *indices, int64_t row, uint32_t n,
                            const int64_t *dims, const int64_t *strides, int64_t *out,
                            struct error *err);

#endif
