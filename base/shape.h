/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tensor shapes: up to eight dimensions, outermost first. A rank of 0 is a scalar: one element.
 * -1 stands for "any" where a comment says so; everywhere else dimensions are >= 0.
 */
#ifndef INFERD_BASE_SHAPE_H
#define INFERD_BASE_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"
#include "base/dtype.h"

enum { SHAPE_MAX_RANK = 8, SHAPE_TEXT_MAX = 8 * 21 + 3 };

struct shape {
    uint32_t rank;
    int64_t dim[SHAPE_MAX_RANK]; /* those at rank and beyond are 0 */
};

/* A tensor in memory, dense and row-major. Owns nothing. */
struct tensor_view {
    enum dtype dtype;
    struct shape shape;
    void *data;
};

/* Number of elements; false if a dimension is negative or the product overflows. */
bool MUST_USE shape_elements(const struct shape *shape, size_t *out);

/* Bytes of a dense tensor; false as above, or for DTYPE_NONE. */
bool MUST_USE shape_bytes(const struct shape *shape, enum dtype dtype, size_t *out);

bool shape_equal(const struct shape *a, const struct shape *b);

/* "[1,3,224,224]", "?" for -1; returns `out`. */
const char *shape_format(const struct shape *shape, char out[SHAPE_TEXT_MAX]);

/* Row-major strides in elements. For a shape whose element count is known not to overflow. */
void shape_strides(const struct shape *shape, int64_t strides[SHAPE_MAX_RANK]);

/* The numpy/ONNX multidirectional broadcast of a and b; false if they do not fit together. */
bool MUST_USE shape_broadcast(const struct shape *a, const struct shape *b, struct shape *out);

#endif
