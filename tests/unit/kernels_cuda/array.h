/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as kernels see them (any type and layout) beside the dense floats that they hold. */
#ifndef INFERD_TESTS_UNIT_KERNELS_CUDA_ARRAY_H
#define INFERD_TESTS_UNIT_KERNELS_CUDA_ARRAY_H

#include "kernels/cuda/kernels.h"
#include "tests/unit/cpu/views.h"

struct array {
    struct kernel_view view;  /* 16-byte aligned; no byte more than its elements take */
    struct tensor_view dense; /* F32, row-major: exactly what the view's memory holds */
};

/* Random numbers in [-scale, scale). `order`: dims from outermost to innermost in memory; NULL: as
 * they are. */
struct array array_new(enum dtype dtype, int rank, const int64_t *dims, const int *order,
                       float scale);
/* ARRAY(dtype, order, 2, 3): of shape [2,3], in [-1, 1). */
#define ARRAY(dtype, order, ...)                                                                   \
    array_new((dtype), (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                  \
              (const int64_t[]){__VA_ARGS__}, (order), 1)
void array_free(struct array *array);

/* The order of channels-last for this rank. */
const int *array_channels_last(int rank);

void array_store(struct array *array); /* dense to memory; dense is rounded as well */
void array_poison(struct array *array);
/* Memory holds what dense does: within `tolerance`, relative to numbers beyond 1, and a rounding of
 * a 16-bit type. */
void array_check(const struct array *array, double tolerance, const char *what);

float *array_values(const struct array *array); /* dense */
size_t array_count(const struct array *array);

uint32_t array_draw(uint32_t below); /* the same sequence on every machine */

#endif
