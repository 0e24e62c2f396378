/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Rows of numbers of any type, read into and written from double or int64.
 *
 * Every arithmetic kernel works on short rows of one of these two types, so that it is written once
 * and the fourteen types are dealt with here. `index` and `stride` count elements; data may be
 * unaligned. uint64 travels in int64 bit for bit, so code that compares or divides must ask for the
 * type.
 */
#ifndef INFERD_KERNELS_CPU_NUMBER_H
#define INFERD_KERNELS_CPU_NUMBER_H

#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"

enum { REF_ROW = 256 }; /* elements that kernels work on at a time */

void ref_read_f64(enum dtype dtype, const void *base, int64_t index, int64_t stride, size_t n,
                  double *out);
/* Floats become integers as ref_cast says. */
void ref_write_f64(enum dtype dtype, void *base, int64_t index, int64_t stride, size_t n,
                   const double *in);

/* Floats become int64 as ref_cast says. */
void ref_read_i64(enum dtype dtype, const void *base, int64_t index, int64_t stride, size_t n,
                  int64_t *out);
void ref_write_i64(enum dtype dtype, void *base, int64_t index, int64_t stride, size_t n,
                   const int64_t *in);

/* One number. */
double ref_get_f64(enum dtype dtype, const void *base, int64_t index);
int64_t ref_get_i64(enum dtype dtype, const void *base, int64_t index);

#endif
