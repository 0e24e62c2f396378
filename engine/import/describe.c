/* SPDX-License-Identifier: Apache-2.0 */
/* Questions about a model that is not imported yet. */
#include <string.h>

#include "engine/import/model.h"
#include "engine/import/onnx.h"

const char *onnx_input_dim(const struct onnx_model *model, const char *input, uint32_t axis)
{
    for (uint32_t i = 0; i < model->graph.n_inputs; i++) {
        const struct onnx_value_info *info = &model->graph.inputs[i];
        if (!strcmp(info->name, input))
            return info->has_shape && axis < info->rank ? info->dims[axis].param : NULL;
    }
    return NULL;
}
