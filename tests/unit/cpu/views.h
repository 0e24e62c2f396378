/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers that the kernel tests share: views over arrays, poisoned outputs, comparison of
 * numbers. */
#ifndef INFERD_TESTS_UNIT_CPU_VIEWS_H
#define INFERD_TESTS_UNIT_CPU_VIEWS_H

#include "base/compiler.h"
#include "base/shape.h"
#include "tests/test.h"

/* VIEW(DTYPE_F32, data, 2, 3): a tensor of shape [2,3]. */
#define VIEW(type, memory, ...)                                                                    \
    view_of((type), (memory), (uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),      \
            (const int64_t[]){__VA_ARGS__})
struct tensor_view view_of(enum dtype dtype, void *data, uint32_t rank, const int64_t *dims);
struct tensor_view view_scalar(enum dtype dtype, void *data);

/* The same, its memory filled with bytes that no kernel here produces (NaN, -1, 255). */
#define POISONED(type, memory, ...) poisoned(VIEW(type, memory, __VA_ARGS__))
struct tensor_view poisoned(struct tensor_view view);

/* |got - want| <= tolerance * max(1, |want|); NaN and infinities must be the same ones. */
void assert_floats(const float *got, const float *want, size_t n, double tolerance);
void assert_doubles(const double *got, const double *want, size_t n, double tolerance);
/* Elements of any type, as int64. */
void assert_ints(const struct tensor_view *got, const int64_t *want, size_t n);

/* Numbers in [-1, 1), the same on every machine. */
void fill_random(float *out, size_t n, uint32_t seed);

#endif
