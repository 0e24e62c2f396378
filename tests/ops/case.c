/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model is imported with the first data set's inputs on offer, so that operands on which shapes
 * depend become constants; all others stay inputs. Results are compared with the tolerances that
 * the ONNX project publishes for these files: floats within 1e-3 relative plus 1e-7 absolute, NaN
 * equal to NaN, everything else exactly (the project's own runner allows 1e-3 there, too).
 */
#include "tests/ops/case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/import/model.h"

enum { MAX_VALUES = IR_MAX_IO, PATH_SIZE = 1200 };

static const double relative = 1e-3, absolute = 1e-7;

struct data_set {
    uint32_t n_inputs, n_outputs;
    struct tensor_view inputs[MAX_VALUES], outputs[MAX_VALUES];
    char *input_names[MAX_VALUES], *output_names[MAX_VALUES];
};

static void data_set_deinit(struct data_set *set)
{
    for (uint32_t i = 0; i < set->n_inputs; i++) {
        free(set->inputs[i].data);
        free(set->input_names[i]);
    }
    for (uint32_t i = 0; i < set->n_outputs; i++) {
        free(set->outputs[i].data);
        free(set->output_names[i]);
    }
}

static void conclude(struct outcome *out, enum verdict verdict, const char *fmt, ...) PRINTF(3, 4);
static void conclude(struct outcome *out, enum verdict verdict, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(out->text, sizeof(out->text), fmt, args);
    va_end(args);
    out->verdict = verdict;
}

/* Reads input_0.pb, input_1.pb, ... until one is not there. */
static bool read_tensors(const char *folder, const char *kind, struct tensor_view *views,
                         char **names, uint32_t *n, struct error *err)
{
    char path[PATH_SIZE + 32];
    for (*n = 0; *n < MAX_VALUES; ++*n) {
        snprintf(path, sizeof(path), "%s/%s_%u.pb", folder, kind, *n);
        if (access(path, R_OK))
            return true;
        if (onnx_tensor_read(path, &views[*n], &names[*n], err))
            return false;
    }
    return true;
}

static bool read_data_set(const char *folder, uint32_t index, struct data_set *set, bool *there,
                          struct error *err)
{
    char path[PATH_SIZE];
    *set = (struct data_set){.n_inputs = 0};
    snprintf(path, sizeof(path), "%s/test_data_set_%u", folder, index);
    *there = !access(path, R_OK);
    return !*there ||
           (read_tensors(path, "input", set->inputs, set->input_names, &set->n_inputs, err) &&
            read_tensors(path, "output", set->outputs, set->output_names, &set->n_outputs, err));
}

static double number(const struct tensor_view *view, size_t i)
{
    const uint8_t *at = (const uint8_t *)view->data + i * dtype_size(view->dtype);
    uint16_t half;
    float single;
    double wide;
    memcpy(&half, at, sizeof(half));
    if (view->dtype == DTYPE_F16)
        return f16_to_f32(half);
    if (view->dtype == DTYPE_BF16)
        return bf16_to_f32(half);
    memcpy(&single, at, sizeof(single));
    if (view->dtype == DTYPE_F32)
        return single;
    memcpy(&wide, at, sizeof(wide));
    return wide;
}

static bool close_enough(double have, double want)
{
    if (isnan(have) || isnan(want))
        return isnan(have) && isnan(want);
    return have == want || fabs(have - want) <= absolute + relative * fabs(want);
}

/* A cast rounds to nearest, but the published bfloat16 values were cut off, so one bit may
 * differ. */
static bool same_but_cut(const struct tensor_view *have, const struct tensor_view *want, size_t i)
{
    const uint16_t *x = have->data, *y = want->data;
    return want->dtype == DTYPE_BF16 && abs((int)x[i] - (int)y[i]) <= 1;
}

static bool compare(const char *name, const struct tensor_view *have,
                    const struct tensor_view *want, struct outcome *out)
{
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    size_t n, size = dtype_size(want->dtype);
    if (have->dtype != want->dtype || !shape_equal(&have->shape, &want->shape)) {
        conclude(out, VERDICT_WRONG, "%s is %s %s, expected %s %s", name, dtype_name(have->dtype),
                 shape_format(&have->shape, a), dtype_name(want->dtype),
                 shape_format(&want->shape, b));
        return false;
    }
    if (!shape_elements(&want->shape, &n))
        n = 0;
    for (size_t i = 0; i < n; i++) {
        if (dtype_is_float(want->dtype)) {
            double x = number(have, i), y = number(want, i);
            if (close_enough(x, y) || same_but_cut(have, want, i))
                continue;
            conclude(out, VERDICT_WRONG, "%s[%zu] is %.9g, expected %.9g", name, i, x, y);
            return false;
        }
        const uint8_t *x = (const uint8_t *)have->data + i * size;
        const uint8_t *y = (const uint8_t *)want->data + i * size;
        if (memcmp(x, y, size)) {
            conclude(out, VERDICT_WRONG, "%s[%zu] starts with byte %u, expected %u", name, i, x[0],
                     y[0]);
            return false;
        }
    }
    return true;
}

/* numpy has no bfloat16: the published files have its bits as UINT16. */
static void mend_type(struct tensor_view *view, const struct onnx_value_info *declared)
{
    if (view->dtype == DTYPE_U16 && declared->type == ONNX_BFLOAT16)
        view->dtype = DTYPE_BF16;
}

/* In a few files the shape of an input differs from the declared one; only the type of it
 * counts. */
static bool fits_declaration(const struct tensor_view *view, const struct onnx_value_info *declared)
{
    bool fits = !declared->has_shape || declared->rank == view->shape.rank;
    for (uint32_t d = 0; fits && declared->has_shape && d < declared->rank; d++)
        fits = !onnx_axis_is_fixed(&declared->dims[d]) ||
               declared->dims[d].value == view->shape.dim[d];
    return fits;
}

static bool is_plain(const struct onnx_value_info *values, uint32_t n, struct outcome *out)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!values[i].is_tensor)
            conclude(out, VERDICT_UNSUPPORTED, "inputs or outputs that are not tensors");
        else if (onnx_dtype(values[i].type) == DTYPE_NONE)
            conclude(out, VERDICT_UNSUPPORTED, "inputs or outputs of type %s",
                     onnx_type_name(values[i].type));
        else
            continue;
        return false;
    }
    return true;
}

/* --- running --- */

/* Some folders name the tensors in their files; in the others the position tells which tensor is
 * which. */
static const void *input_data(const struct data_set *set, uint32_t position,
                              const struct ir_tensor *tensor)
{
    for (uint32_t i = 0; i < set->n_inputs; i++) {
        const char *name = set->input_names[i];
        if (name[0] ? strcmp(name, tensor->name) != 0 : i != position)
            continue;
        bool fits = set->inputs[i].dtype == tensor->dtype &&
                    shape_equal(&set->inputs[i].shape, &tensor->shape);
        return fits ? set->inputs[i].data : NULL;
    }
    return NULL;
}

static bool compare_all(const struct ir_graph *graph, const struct data_set *set,
                        void *const *outputs, struct outcome *out)
{
    if (graph->n_outputs != set->n_outputs) {
        conclude(out, VERDICT_WRONG, "%u outputs, expected %u", graph->n_outputs, set->n_outputs);
        return false;
    }
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->outputs[i]);
        struct tensor_view have = {t->dtype, t->shape, outputs[i]};
        if (!compare(t->name, &have, &set->outputs[i], out))
            return false;
    }
    return true;
}

/* The data of an input that no node reads. */
static const uint8_t unread[4096];

static bool run_data_set(const struct case_source *source, const struct data_set *set,
                         const struct case_runner *runner, struct outcome *out)
{
    const struct ir_graph *graph = source->graph;
    const void *inputs[IR_MAX_IO] = {NULL};
    void *outputs[IR_MAX_IO] = {NULL};
    struct error err;
    bool good = false;
    for (uint32_t i = 0; i < graph->n_inputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->inputs[i]);
        inputs[i] = input_data(set, i, t);
        if (!inputs[i] && !ir_tensor_uses(graph, graph->inputs[i]) && t->bytes <= sizeof(unread))
            inputs[i] = unread;
        if (!inputs[i]) {
            conclude(out, VERDICT_WRONG, "no data for input %s", t->name);
            return false;
        }
    }
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        outputs[i] = calloc(1, ir_tensor(graph, graph->outputs[i])->bytes + 8);
    enum status status = runner->run(runner->user, source, inputs, outputs, &err);
    if (status == STATUS_UNIMPLEMENTED)
        conclude(out, VERDICT_UNSUPPORTED, "%s", err.text);
    else if (status)
        conclude(out, VERDICT_WRONG, "%s: %s", status_name(status), err.text);
    else
        good = compare_all(graph, set, outputs, out);
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        free(outputs[i]);
    return good;
}

static bool import_and_run(struct onnx_model *model, struct data_set *set,
                           const struct case_runner *runner, struct outcome *out)
{
    struct onnx_value values[MAX_VALUES];
    struct onnx_options options = {.batch = 1, .evaluator = runner->evaluator, .values = values};
    struct ir_graph *graph = NULL;
    struct error err;
    bool good = false;
    for (uint32_t i = 0; i < set->n_inputs; i++) {
        if (i < model->graph.n_inputs)
            mend_type(&set->inputs[i], &model->graph.inputs[i]);
        if (set->input_names[i][0] && i < model->graph.n_inputs &&
            fits_declaration(&set->inputs[i], &model->graph.inputs[i]))
            values[options.n_values++] =
                (struct onnx_value){.name = set->input_names[i], .view = set->inputs[i]};
    }
    for (uint32_t i = 0; i < set->n_outputs && i < model->graph.n_outputs; i++)
        mend_type(&set->outputs[i], &model->graph.outputs[i]);
    enum status status = onnx_import(model, &options, &graph, &err);
    const struct case_source source = {model, values, options.n_values, graph};
    if (status == STATUS_UNIMPLEMENTED)
        conclude(out, VERDICT_UNSUPPORTED, "%s", err.text);
    else if (status)
        conclude(out, VERDICT_WRONG, "%s: %s", status_name(status), err.text);
    else
        good = run_data_set(&source, set, runner, out);
    ir_graph_free(graph);
    return good;
}

/* True if there was a data set of that number and it passed. */
static bool run_index(const char *folder, struct onnx_model *model, uint32_t index,
                      const struct case_runner *runner, struct outcome *out)
{
    struct data_set set;
    struct error err;
    bool there, good = false;
    if (!read_data_set(folder, index, &set, &there, &err))
        conclude(out, VERDICT_UNSUPPORTED, "%s", err.text);
    else if (!there && !index)
        conclude(out, VERDICT_UNSUPPORTED, "it has no data");
    else if (there)
        good = import_and_run(model, &set, runner, out);
    data_set_deinit(&set);
    return good;
}

void case_run(const char *folder, const struct case_runner *runner, struct outcome *out)
{
    char path[PATH_SIZE];
    struct onnx_model *model = NULL;
    struct error err;
    snprintf(path, sizeof(path), "%s/model.onnx", folder);
    if (onnx_open(path, &model, &err)) {
        conclude(out, VERDICT_WRONG, "%s", err.text);
        return;
    }
    *out = (struct outcome){.verdict = VERDICT_PASSED};
    bool plain = is_plain(model->graph.inputs, model->graph.n_inputs, out) &&
                 is_plain(model->graph.outputs, model->graph.n_outputs, out);
    for (uint32_t index = 0; plain && run_index(folder, model, index, runner, out); index++)
        ;
    onnx_close(model);
}
