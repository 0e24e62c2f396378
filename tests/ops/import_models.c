/* SPDX-License-Identifier: Apache-2.0 */
/* import_models FILE...: prints the importer's verdict on each file in a line: "OK", or the status
 * and the error. For tests that make models in Python. */
#include <stdio.h>

#include "engine/cpu/eval.h"
#include "engine/import/onnx.h"

static enum status import(const char *path, struct error *err)
{
    const struct onnx_options options = {.batch = 1, .evaluator = {.eval = cpu_eval_node}};
    struct onnx_model *model = NULL;
    struct ir_graph *graph = NULL;
    enum status status = onnx_open(path, &model, err);
    if (!status)
        status = onnx_import(model, &options, &graph, err);
    ir_graph_free(graph);
    onnx_close(model);
    return status;
}

int main(int argc, char **argv)
{
    struct error err;
    for (int i = 1; i < argc; i++) {
        enum status status = import(argv[i], &err);
        printf("%s%s%s\n", status ? status_name(status) : "OK", status ? ": " : "",
               status ? err.text : "");
    }
    return 0;
}
