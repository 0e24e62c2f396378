/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors as kernels see them (of any type and layout), each with a dense copy of its values as
 * floats. */
#ifndef INFERD_TESTS_UNIT_KERNELS_CUDA_ARRAY_H
#define INFERD_TESTS_UNIT_KERNELS_CUDA_ARRAY_H

#include "kernels/cuda/kernels.h"
#include "tests/unit/cpu/views.h"

/* Of a table's variants, one in so many is run by a case: sanitizers take five times as long. */
#if defined(__SANITIZE_ADDRESS__)
enum { EMULATED_SHARE = 2 };
#else
enum { EMULATED_SHARE = 1 };
#endif

struct array {
    struct kernel_view view;  /* 16-byte aligned; exactly the bytes of its elements */
    struct tensor_view dense; /* F32, row-major: the values in the view's memory */
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

/* copies dense to memory; dense is rounded to the type as well */
void array_store(struct array *array);
void array_poison(const struct array *array);
/* Checks that memory holds the dense values: within `tolerance`, relative for numbers beyond 1,
 * plus a rounding of a 16-bit type. */
void array_check(const struct array *array, double tolerance, const char *what);
/* Whether memory, of F16, holds the dense values within 1 %, of 1 for smaller ones: what is planted
 * to be found is further off. */
bool array_f16_is_near(const struct array *array);

float *array_values(const struct array *array); /* dense */
size_t array_count(const struct array *array);

uint32_t array_draw(uint32_t below); /* the same sequence on every machine */

#endif
