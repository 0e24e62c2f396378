/* SPDX-License-Identifier: Apache-2.0 */
/* The dimensions of a model's inputs: which of them count instances, and who gives the others their
 * values. The importer, the survey and the builder ask here. */
#ifndef INFERD_ENGINE_IMPORT_DIMS_H
#define INFERD_ENGINE_IMPORT_DIMS_H

#include "engine/import/model.h"
#include "engine/import/onnx.h"

/* Says whether `text` is INPUT:AXIS of that dimension. */
bool onnx_names_axis(const char *text, const char *input, uint32_t axis);

/* The dimension's value: the file's, the caller's, or the batch; -1: nobody gives one. */
int64_t onnx_axis_value(const struct onnx_model *model, const struct onnx_options *options,
                        const struct onnx_value_info *input, uint32_t axis);

/* Who gives the dimension its value with these options. */
enum onnx_axis_state onnx_axis_state(const struct onnx_model *model,
                                     const struct onnx_options *options,
                                     const struct onnx_value_info *input, uint32_t axis);

#endif
