/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the bytes of a TensorProto: raw, in typed fields, or in a file of their own. */
#ifndef INFERD_ENGINE_IMPORT_TENSOR_H
#define INFERD_ENGINE_IMPORT_TENSOR_H

#include "engine/import/model.h"

/*
 * Returns dense, row-major bytes. They lie in the file if the file has them in this form (and may
 * then be unaligned), otherwise in `arena`. The pointer is never NULL, not even for no elements.
 * The size that dimensions and type demand is checked before anything is allocated, and must be
 * there exactly (R14 of docs/operations.md). `model` NULL: no external data.
 */
enum status tensor_bytes(struct onnx_model *model, struct arena *arena,
                         const struct onnx_tensor *tensor, enum dtype *dtype, const void **data,
                         struct error *err);

/* Says whether the type is one of the 4-bit integers or 8-bit floats. */
bool tensor_is_narrow(int32_t type);

/* Like tensor_bytes, but unpacks narrow types: INT4 becomes INT8, UINT4 UINT8, a float FP32. */
enum status tensor_unpack(struct onnx_model *model, struct arena *arena,
                          const struct onnx_tensor *tensor, enum dtype *dtype, const void **data,
                          struct error *err);

#endif
