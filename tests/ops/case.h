/* SPDX-License-Identifier: Apache-2.0 */
/* One published ONNX test case: a folder with model.onnx and test_data_set_N/{input,output}_N.pb.
 */
#ifndef INFERD_TESTS_OPS_CASE_H
#define INFERD_TESTS_OPS_CASE_H

#include "engine/import/onnx.h"

enum verdict { VERDICT_PASSED, VERDICT_WRONG, VERDICT_UNSUPPORTED, VERDICT_CRASHED, VERDICT_COUNT };

enum { CASE_TEXT_MAX = 256 };

struct outcome {
    enum verdict verdict;
    char text[CASE_TEXT_MAX]; /* why it did not pass */
};

/* The source of a case; `values` are those of its inputs, for shapes that depend on them. */
struct case_source {
    struct onnx_model *model;
    const struct onnx_value *values;
    uint32_t n_values;
    const struct ir_graph *graph; /* imported with them */
};

/* Computes the graph's outputs, which are allocated, from its inputs; both in its order. */
struct case_runner {
    enum status (*run)(void *user, const struct case_source *source, const void *const *inputs,
                       void *const *outputs, struct error *err);
    void *user;
    struct ir_evaluator evaluator; /* for nodes that depend on shapes and constants only */
};

void case_run(const char *folder, const struct case_runner *runner, struct outcome *out);

#endif
