/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes of a TensorProto, wherever they are: raw, in typed fields, or in a file of their own.
 */
#ifndef INFERD_ENGINE_IMPORT_TENSOR_H
#define INFERD_ENGINE_IMPORT_TENSOR_H

#include "engine/import/model.h"

/*
 * Gives dense, row-major bytes, in place in the file where they lie there as such (then maybe
 * unaligned), else from `arena`. Never NULL, not even for no elements. The size that dimensions and
 * type demand must be there exactly (R14 of docs/operations.md), and is checked before anything is
 * allocated. `model` NULL: no external data.
 */
enum status tensor_bytes(struct onnx_model *model, struct arena *arena,
                         const struct onnx_tensor *tensor, enum dtype *dtype, const void **data,
                         struct error *err);

/* 4-bit integers and 8-bit floats. */
bool tensor_is_narrow(int32_t type);

/* The same, and narrow types are unpacked: INT4 as INT8, UINT4 as UINT8, floats as FP32. */
enum status tensor_unpack(struct onnx_model *model, struct arena *arena,
                          const struct onnx_tensor *tensor, enum dtype *dtype, const void **data,
                          struct error *err);

#endif
