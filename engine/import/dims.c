/* SPDX-License-Identifier: Apache-2.0 */
/* See dims.h. */
#include "engine/import/dims.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

/* --- names --- */

bool onnx_names_axis(const char *text, const char *input, uint32_t axis)
{
    size_t len = strlen(input);
    char *end;
    if (strncmp(text, input, len) != 0 || text[len] != ':' ||
        !isdigit((unsigned char)text[len + 1]))
        return false;
    return strtoul(text + len + 1, &end, 10) == axis && !*end;
}

/* "batch", "batch_size", "N_BATCH"; but no formula of it such as "2*batch". */
static bool says_batch(const char *name)
{
    static const char word[] = "batch";
    if (!name || strpbrk(name, "*+-/ ()"))
        return false;
    for (; *name; name++) {
        size_t i = 0;
        while (word[i] && tolower((unsigned char)name[i]) == word[i])
            i++;
        if (!word[i])
            return true;
    }
    return false;
}

static bool is_input(const struct onnx_model *model, uint32_t index)
{
    return !onnx_is_initializer(model, model->graph.inputs[index].name);
}

static const char *param_of(const struct onnx_value_info *input, uint32_t axis)
{
    return axis < input->rank ? input->dims[axis].param : NULL;
}

/* Whether an axis of the input is called a batch. */
static bool input_says_batch(const struct onnx_value_info *input)
{
    for (uint32_t d = 0; d < input->rank; d++)
        if (says_batch(input->dims[d].param))
            return true;
    return false;
}

/* Whether the name is that of an input's dimension behind its first. */
static bool is_elsewhere(const struct onnx_model *model, const char *name)
{
    for (uint32_t i = 0; i < model->graph.n_inputs; i++)
        for (uint32_t d = 1; d < model->graph.inputs[i].rank && is_input(model, i); d++) {
            const char *param = model->graph.inputs[i].dims[d].param;
            if (param && !strcmp(param, name))
                return true;
        }
    return false;
}

static bool any_says_batch(const struct onnx_model *model)
{
    for (uint32_t i = 0; i < model->graph.n_inputs; i++)
        if (is_input(model, i) && input_says_batch(&model->graph.inputs[i]))
            return true;
    return false;
}

bool onnx_is_batch_dim(const struct onnx_model *model, const char *name)
{
    if (!name || says_batch(name))
        return name != NULL;
    bool other = any_says_batch(model);
    for (uint32_t i = 0; i < model->graph.n_inputs; i++) {
        const struct onnx_value_info *input = &model->graph.inputs[i];
        const char *param = param_of(input, 0);
        if (!is_input(model, i) || !param || strcmp(param, name) != 0)
            continue;
        if (!other || (!input_says_batch(input) && !is_elsewhere(model, name)))
            return true;
    }
    return false;
}

static bool counts_instances(const struct onnx_model *model, const struct onnx_value_info *input,
                             uint32_t axis)
{
    const struct onnx_axis *a = &input->dims[axis];
    if (onnx_axis_is_fixed(a))
        return false;
    return a->param ? onnx_is_batch_dim(model, a->param) : axis == 0 && !input_says_batch(input);
}

bool onnx_is_batched(const struct onnx_model *model)
{
    for (uint32_t i = 0; i < model->graph.n_inputs; i++)
        for (uint32_t d = 0; d < model->graph.inputs[i].rank && is_input(model, i); d++)
            if (counts_instances(model, &model->graph.inputs[i], d))
                return true;
    return false;
}

/* --- values --- */

static int64_t value_of(const struct onnx_options *options, const struct onnx_dim *dim)
{
    return dim->value == ONNX_INSTANCES ? options->batch : dim->value;
}

/* The value that the caller gives; -1: none. */
static int64_t value_given(const struct onnx_options *options, const struct onnx_value_info *input,
                           uint32_t axis)
{
    const char *param = input->dims[axis].param;
    for (uint32_t i = 0; i < options->n_dims; i++)
        if (onnx_names_axis(options->dims[i].name, input->name, axis))
            return value_of(options, &options->dims[i]);
    for (uint32_t i = 0; param && i < options->n_dims; i++)
        if (!strcmp(options->dims[i].name, param))
            return value_of(options, &options->dims[i]);
    return -1;
}

int64_t onnx_axis_value(const struct onnx_model *model, const struct onnx_options *options,
                        const struct onnx_value_info *input, uint32_t axis)
{
    const struct onnx_axis *a = &input->dims[axis];
    if (onnx_axis_is_fixed(a))
        return a->value;
    int64_t value = value_given(options, input, axis);
    if (value < 0 && options->batch > 0 && counts_instances(model, input, axis))
        value = options->batch;
    /* A 0 without a name is a tensor without elements, which is a legal input; with a name it is
     * "any". */
    return value < 0 && axis && !a->param && a->value == 0 ? 0 : value;
}

/* --- for the builder --- */

static const struct onnx_value_info *nth_input(const struct onnx_model *model, uint32_t index)
{
    for (uint32_t i = 0; i < model->graph.n_inputs; i++)
        if (is_input(model, i) && index-- == 0)
            return &model->graph.inputs[i];
    return NULL;
}

uint32_t onnx_n_inputs(const struct onnx_model *model)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < model->graph.n_inputs; i++)
        n += is_input(model, i);
    return n;
}

const char *onnx_input(const struct onnx_model *model, uint32_t index, uint32_t *rank)
{
    const struct onnx_value_info *input = nth_input(model, index);
    *rank = input && input->has_shape ? input->rank : UINT32_MAX;
    return input ? input->name : "";
}

struct onnx_axis_info onnx_input_axis(const struct onnx_model *model, uint32_t index, uint32_t axis)
{
    const struct onnx_value_info *input = nth_input(model, index);
    struct onnx_axis_info info = {.fixed = -1};
    if (!input || axis >= input->rank)
        return info;
    info.name = input->dims[axis].param;
    info.fixed = onnx_axis_is_fixed(&input->dims[axis]) ? input->dims[axis].value : -1;
    info.batch = counts_instances(model, input, axis);
    return info;
}
