/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One random graph as tests/random/random_graphs leaves it: a folder with
 *
 *   model.onnx
 *   case.txt      lines "profile BATCH" (none: the model is not batched) and "set BATCH"
 *   set_K/        input_I.pb, output_I.pb and, for floats, tolerance_I.pb (FP64): of each element,
 *                 by how much an answer may differ from the expected one
 */
#ifndef INFERD_TESTS_RANDOM_GRAPH_CASE_H
#define INFERD_TESTS_RANDOM_GRAPH_CASE_H

#include "engine/import/onnx.h"

enum { CASE_SETS_MAX = 8, CASE_PATH_MAX = 512 };

struct case_value {
    char *name;
    struct tensor_view view;
};

struct case_set {
    uint32_t batch; /* instances in it; 1 for a model that is not batched */
    uint32_t n_inputs, n_outputs;
    struct case_value inputs[IR_MAX_IO], outputs[IR_MAX_IO], tolerances[IR_MAX_IO];
};

struct graph_case {
    char folder[CASE_PATH_MAX];
    struct onnx_model *model;
    uint32_t n_profiles, n_sets;
    uint32_t profiles[CASE_SETS_MAX];
    struct case_set sets[CASE_SETS_MAX];
};

/* The caller deinitialises the case also on failure. */
enum status graph_case_init(struct graph_case *c, const char *folder, struct error *err);
void graph_case_deinit(struct graph_case *c);

/* The input of that name; NULL if the set has none of this type and shape. */
const void *case_set_input(const struct case_set *set, const char *name, enum dtype dtype,
                           const struct shape *shape);

/* Returns INTERNAL if the output of that name has another type or shape, or is off by more than its
 * tolerance; the text says where it is worst. `data` is dense and row-major. */
enum status case_set_check(const struct case_set *set, const char *name, enum dtype dtype,
                           const struct shape *shape, const void *data, struct error *err);

/* The largest error that was accepted, as a share of its tolerance; it shows whether the tolerances
 * fit. */
double case_worst_share(void);

#endif
