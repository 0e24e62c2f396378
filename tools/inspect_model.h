/* SPDX-License-Identifier: Apache-2.0 */
/* What inferctl inspect shows of an ONNX model. */
#ifndef INFERD_TOOLS_INSPECT_MODEL_H
#define INFERD_TOOLS_INSPECT_MODEL_H

#include <stdbool.h>

#include "engine/import/onnx.h"

void inspect_model_print(const char *path, const struct onnx_survey *survey, bool json);

#endif
