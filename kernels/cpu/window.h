/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sliding windows of any spatial rank. The kernels loop over the last spatial dim themselves; the
 * dims before it are counted here.
 */
#ifndef INFERD_KERNELS_CPU_WINDOW_H
#define INFERD_KERNELS_CPU_WINDOW_H

#include "kernels/cpu/ref.h"

/* Counts `index` through the first `n` of `dims`, the last dim fastest; returns false once `index`
 * is back at 0. */
bool ref_window_next(uint32_t n, const int64_t *dims, int64_t *index);

/* Gives the offset of the row of x (spatial dims `in`, in elements) that kernel position `k`
 * touches for output position `o`, both without the last dim; returns false if the row lies in the
 * padding. */
bool ref_window_row(const struct ref_window *win, const int64_t *in, const int64_t *o,
                    const int64_t *k, int64_t *out);

/* Gives the output positions from..to-1 of a row of `n` for which kernel position k of the last dim
 * lies inside of an input row of `in` elements. */
void ref_window_span(const struct ref_window *win, int64_t k, int64_t in, int64_t n, int64_t *from,
                     int64_t *to);

#endif
