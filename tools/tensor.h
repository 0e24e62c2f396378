/* SPDX-License-Identifier: Apache-2.0 */
/* Tensors of the command line: from files, from a random generator, compared and shown. */
#ifndef INFERD_TOOLS_TENSOR_H
#define INFERD_TOOLS_TENSOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"
#include "base/shape.h"

/* Reads a .npy file, or under any other name an ONNX TensorProto. `data` is malloc-ed. */
enum status tensor_read(const char *path, struct tensor_view *out, struct error *err);

/* Fills `data` with `n` elements that depend on `seed` alone: floats in [-1, 1), any UINT8, and for
 * other whole numbers 0 or 1, which are valid as indices and as truth values. */
void tensor_random(void *data, size_t n, enum dtype dtype, uint64_t *seed);

/* Element `i` as a double; 64-bit integers lose what a double cannot hold. */
double tensor_at(const struct tensor_view *tensor, size_t i);

struct tensor_difference {
    size_t elements, different; /* beyond the tolerance */
    size_t first;               /* index of the first that differs */
    double max_abs, max_rel;    /* over all elements; a NaN against a number counts as infinite */
};

/* |a - b| <= atol + rtol |b|; NaN equals NaN; whole numbers are compared exactly unless a tolerance
 * is given. False if type or shape differ. */
bool tensor_compare(const struct tensor_view *a, const struct tensor_view *b, double rtol,
                    double atol, struct tensor_difference *out);

/* "name FP32 [1,10] 0.1 0.2 ..." on one line, at most `max` elements. */
void tensor_print(FILE *to, const char *name, const struct tensor_view *tensor, size_t max);

#endif
