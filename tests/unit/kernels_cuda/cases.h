/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel tests share: random numbers, comparison, and tensors of any layout in memory of
 * their own, with a dense copy. The memory has exactly the bytes that the view spans, so that the
 * address sanitizer sees every access beyond it.
 */
#ifndef INFERD_TESTS_UNIT_KERNELS_CUDA_CASES_H
#define INFERD_TESTS_UNIT_KERNELS_CUDA_CASES_H

#include "base/shape.h"
#include "kernels/cuda/kernels.h"
#include "tests/unit/cpu/views.h"

uint32_t case_draw(uint32_t below);
void case_seed(uint32_t seed);

enum case_layout { CASE_PLAIN, CASE_LAST, CASE_LAST_4, CASE_LAST_8, CASE_ANY_ORDER, CASE_GAPS };

struct case_tensor {
    struct kernel_view view;
    struct tensor_view dense; /* the same elements, row-major */
    int64_t padded;           /* channels of a padded layout; 0: none */
    size_t bytes;             /* of the view's memory */
};

/* A new tensor whose bytes are all 0xff. In the last two layouts dims lie in a random order,
 * without and with gaps. */
struct case_tensor case_new(enum dtype dtype, int32_t rank, const int64_t *dims,
                            enum case_layout layout);
/* An operand that broadcasts to `like`: stride 0 where bit d of `once` is set. */
struct case_tensor case_operand(enum dtype dtype, const struct kernel_view *like, unsigned once,
                                enum case_layout layout);
void case_free(struct case_tensor *tensor);

/* Random numbers of the type (small integers; floats in [-4, 4)), put into the view too. */
void case_fill(struct case_tensor *tensor);
void case_scatter(struct case_tensor *tensor); /* dense -> view */

/* Compares the view's elements with `want`, a dense tensor of the same type: exactly if `tolerance`
 * is 0, else within tolerance * max(1, |want|). Padding must be zero, and gaps unchanged. */
void case_check(const struct case_tensor *got, const struct tensor_view *want, double tolerance);

/* Relative precision of a float type; 0 for others. */
double case_precision(enum dtype dtype);

/* A dense tensor of its own; the caller frees its data. */
struct tensor_view case_dense(enum dtype dtype, const struct shape *shape);

extern const struct kernel_call case_call;

#endif
