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

/* --- values --- */

/* What the caller gives; NULL: nothing. */
static const struct onnx_dim *dim_given(const struct onnx_options *options,
                                        const struct onnx_value_info *input, uint32_t axis)
{
    const char *param = input->dims[axis].param;
    for (uint32_t i = 0; i < options->n_dims; i++)
        if (onnx_names_axis(options->dims[i].name, input->name, axis))
            return &options->dims[i];
    for (uint32_t i = 0; param && i < options->n_dims; i++)
        if (!strcmp(options->dims[i].name, param))
            return &options->dims[i];
    return NULL;
}

enum counting { COUNTS_NOT, COUNTS_BY_PLACE, COUNTS_BY_NAME };

/* Whether the dimension counts instances with these options, and why. */
static enum counting counting_of(const struct onnx_model *model, const struct onnx_options *options,
                                 const struct onnx_value_info *input, uint32_t axis)
{
    const struct onnx_dim *given = dim_given(options, input, axis);
    if (onnx_axis_is_fixed(&input->dims[axis]))
        return COUNTS_NOT;
    if (given)
        return given->value == ONNX_INSTANCES ? COUNTS_BY_NAME : COUNTS_NOT;
    if (says_batch(input->dims[axis].param))
        return COUNTS_BY_NAME;
    return !options->said && counts_instances(model, input, axis) ? COUNTS_BY_PLACE : COUNTS_NOT;
}

bool onnx_is_batched(const struct onnx_model *model, const struct onnx_options *options,
                     bool *named)
{
    bool any = false;
    *named = false;
    for (uint32_t i = 0; i < model->graph.n_inputs; i++)
        for (uint32_t d = 0; d < model->graph.inputs[i].rank && is_input(model, i); d++) {
            enum counting how = counting_of(model, options, &model->graph.inputs[i], d);
            any = any || how != COUNTS_NOT;
            *named = *named || how == COUNTS_BY_NAME;
        }
    return any;
}

int64_t onnx_axis_value(const struct onnx_model *model, const struct onnx_options *options,
                        const struct onnx_value_info *input, uint32_t axis)
{
    const struct onnx_axis *a = &input->dims[axis];
    const struct onnx_dim *given = dim_given(options, input, axis);
    if (onnx_axis_is_fixed(a))
        return a->value;
    int64_t value = given && given->value != ONNX_INSTANCES ? given->value : -1;
    if (value < 0 && options->batch > 0 && counting_of(model, options, input, axis) != COUNTS_NOT)
        value = options->batch;
    /* A 0 without a name is a tensor without elements, which is a legal input; with a name it is
     * "any". */
    return value < 0 && axis && !a->param && a->value == 0 ? 0 : value;
}

enum onnx_axis_state onnx_axis_state(const struct onnx_model *model,
                                     const struct onnx_options *options,
                                     const struct onnx_value_info *input, uint32_t axis)
{
    if (counting_of(model, options, input, axis) != COUNTS_NOT)
        return ONNX_AXIS_COUNTS;
    return onnx_axis_value(model, options, input, axis) < 0 ? ONNX_AXIS_OPEN : ONNX_AXIS_KNOWN;
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
    info.named = info.batch && says_batch(info.name);
    return info;
}
