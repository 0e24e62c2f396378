/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as an ONNX model: opened, imported, and verified once more when that worked. */
#include <stdint.h>
#include <stdlib.h>

#include "engine/import/onnx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct onnx_model *model;
    struct ir_graph *graph;
    struct error err;
    const struct onnx_dim dims[] = {{"sequence", 3}};
    const struct onnx_options options = {.batch = 2, .dims = dims, .n_dims = 1};
    if (onnx_open_memory(data, size, &model, &err))
        return 0;
    (void)onnx_is_batched(model);
    enum status status = onnx_import(model, &options, &graph, &err);
    onnx_close(model);
    if (status)
        return 0;
    if (ir_verify(graph, &err))
        abort();
    ir_graph_free(graph);
    return 0;
}
