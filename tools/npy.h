/* SPDX-License-Identifier: Apache-2.0 */
/* numpy's .npy files (format versions 1 to 3, C order, little endian): one tensor each. */
#ifndef INFERD_TOOLS_NPY_H
#define INFERD_TOOLS_NPY_H

#include "base/error.h"
#include "base/shape.h"

/* out->data is malloc-ed. Unknown types and files whose length does not fit are refused. */
enum status npy_read(const char *path, struct tensor_view *out, struct error *err);
/* The same for bytes in memory; `name` is for the error text. */
enum status npy_parse(const void *data, size_t size, const char *name, struct tensor_view *out,
                      struct error *err);

/* Replaces the file. BF16 is written as raw 16-bit numbers: numpy has no name for it. */
enum status npy_write(const char *path, const struct tensor_view *tensor, struct error *err);

#endif
