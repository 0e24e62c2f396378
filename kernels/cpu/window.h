/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sliding windows of any spatial rank: the last spatial dim is a loop of its kernel's own, those
 * before it are counted here.
 */
#ifndef INFERD_KERNELS_CPU_WINDOW_H
#define INFERD_KERNELS_CPU_WINDOW_H

#include "kernels/cpu/ref.h"

/* Counts `index` through the first `n` of `dims`, last one fastest; false once it is back at 0. */
bool ref_window_next(uint32_t n, const int64_t *dims, int64_t *index);

/* The offset of the row of x (spatial dims `in`, in elements) that kernel position `k` touches for
 * output position `o`, both without the last dim; false if it lies in the padding. */
bool ref_window_row(const struct ref_window *win, const int64_t *in, const int64_t *o,
                    const int64_t *k, int64_t *out);

/* Output positions from..to-1 of a row of `n` that kernel position k of the last dim reaches
 * inside of an input row of `in` elements. */
void ref_window_span(const struct ref_window *win, int64_t k, int64_t in, int64_t n, int64_t *from,
                     int64_t *to);

#endif
