/* SPDX-License-Identifier: Apache-2.0 */
/* Formats of tensors, and the scales they name; see format.h. */
#include <stdio.h>

#include "engine/ir/ir.h"

const struct ir_scale *ir_scale(const struct ir_graph *graph, uint32_t number)
{
    return number == IR_NO_SCALE || number > graph->n_scales ? NULL : &graph->scales[number - 1];
}

static int32_t zero_at(const struct ir_scale *scale, uint32_t i)
{
    return scale->zero ? scale->zero[i] : 0;
}

bool ir_scale_equal(const struct ir_scale *a, const struct ir_scale *b)
{
    if (!a || !b)
        return a == b;
    if (a->n != b->n || a->dtype != b->dtype || (a->n > 1 && a->axis != b->axis))
        return false;
    for (uint32_t i = 0; i < a->n; i++)
        if (a->step[i] != b->step[i] || zero_at(a, i) != zero_at(b, i))
            return false;
    return true;
}

/* Whether the scale is one for the type: only types of 8 bits have scales, and of floats, it says
 * so. */
static bool scale_is_for(const struct ir_scale *scale, enum dtype dtype)
{
    bool integers = dtype == DTYPE_I8 || dtype == DTYPE_U8;
    return scale->dtype == dtype ? integers || dtype == DTYPE_F8
                                 : integers && scale->dtype == DTYPE_NONE;
}

/* Zero points are stored values; floats have none. */
static bool scale_fits(const struct ir_scale *scale, const struct shape *shape, enum dtype dtype)
{
    int32_t least = dtype == DTYPE_I8 ? INT8_MIN : 0;
    if (!scale || !scale_is_for(scale, dtype))
        return false;
    if (dtype == DTYPE_F8 && (scale->zero_min || scale->zero_max))
        return false;
    if (scale->n != 1 && (scale->axis >= shape->rank || shape->dim[scale->axis] != scale->n))
        return false;
    return scale->zero_min >= least && scale->zero_max <= least + UINT8_MAX;
}

bool ir_format_fits(const struct ir_graph *graph, const struct ir_tensor *tensor,
                    struct ir_format format)
{
    enum dtype type = ir_tensor_type(tensor);
    if (format.scale != IR_NO_SCALE)
        return dtype_is_float(type) &&
               scale_fits(ir_scale(graph, format.scale), &tensor->shape, format.dtype);
    return format.dtype == type ||
           (type == DTYPE_F32 && (format.dtype == DTYPE_F16 || format.dtype == DTYPE_BF16));
}

bool ir_tensor_set_format(struct ir_graph *graph, uint32_t tensor, struct ir_format format)
{
    struct ir_tensor *t = ir_tensor(graph, tensor);
    enum dtype type = ir_tensor_type(t);
    uint64_t bytes = t->bytes;
    if (format.layout != IR_LAYOUT_OPAQUE &&
        !ir_layout_bytes(&t->shape, format.dtype, format.layout, &bytes))
        return false;
    t->format = format;
    t->bytes = bytes;
    t->real = format.dtype == type ? DTYPE_NONE : type;
    return true;
}

bool ir_node_is_uniform(const struct ir_graph *graph, const struct ir_node *node)
{
    enum dtype stored = DTYPE_NONE;
    for (uint32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
        uint32_t id = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
        const struct ir_tensor *t = id == IR_NONE ? NULL : ir_tensor(graph, id);
        if (!t || (t->scale == IR_NO_SCALE &&
                   (ir_tensor_type(t) != DTYPE_F32 || node->op == IR_OP_REFORMAT ||
                    t->layout == IR_LAYOUT_OPAQUE)))
            continue;
        if (t->scale != IR_NO_SCALE || (stored != DTYPE_NONE && t->dtype != stored))
            return false;
        stored = t->dtype;
    }
    return true;
}

const char *ir_format_text(const struct ir_graph *graph, struct ir_format format,
                           char text[IR_FORMAT_TEXT_MAX])
{
    const struct ir_scale *scale = ir_scale(graph, format.scale);
    int n = snprintf(text, IR_FORMAT_TEXT_MAX, "%s %s", dtype_name(format.dtype),
                     ir_layout_name(format.layout));
    if (scale && scale->n > 1)
        snprintf(text + n, IR_FORMAT_TEXT_MAX - (size_t)n, " step %g.. of %u",
                 (double)scale->step[0], scale->n);
    else if (scale && scale->zero)
        snprintf(text + n, IR_FORMAT_TEXT_MAX - (size_t)n, " step %g zero %d",
                 (double)scale->step[0], scale->zero[0]);
    else if (scale)
        snprintf(text + n, IR_FORMAT_TEXT_MAX - (size_t)n, " step %g", (double)scale->step[0]);
    return text;
}
