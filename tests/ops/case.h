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

/* Runs a graph on inputs (in the graph's order) and fills outputs, which are allocated. */
struct case_runner {
    enum status (*run)(void *user, const struct ir_graph *graph, const void *const *inputs,
                       void *const *outputs, struct error *err);
    void *user;
    struct ir_evaluator evaluator; /* for what depends on shapes and constants alone */
};

void case_run(const char *folder, const struct case_runner *runner, struct outcome *out);

#endif
