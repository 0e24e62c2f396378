/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of one element, casts, and ops that copy their operand. */
#include "engine/import/ops.h"

#include <math.h>

void map_unary(struct mapper *m)
{
    map_out(m, 0, emit_unary(m, (enum ir_unary)m->row->func, map_in(m, 0)));
}

/* The ONNX attributes that become alpha, beta and gamma of our functions. */
static const struct {
    enum ir_unary func;
    struct {
        enum ir_attr_key key;
        const char *name;
        float fallback;
    } attrs[2];
} parameters[] = {
    {IR_UNARY_LEAKY_RELU, {{IR_ATTR_ALPHA, "alpha", 0.01f}}},
    {IR_UNARY_ELU, {{IR_ATTR_ALPHA, "alpha", 1}}},
    {IR_UNARY_CELU, {{IR_ATTR_ALPHA, "alpha", 1}}},
    {IR_UNARY_SELU,
     {{IR_ATTR_ALPHA, "alpha", 1.67326319217681884765625f},
      {IR_ATTR_GAMMA, "gamma", 1.05070102214813232421875f}}},
    {IR_UNARY_HARD_SIGMOID, {{IR_ATTR_ALPHA, "alpha", 0.2f}, {IR_ATTR_BETA, "beta", 0.5f}}},
    {IR_UNARY_THRESHOLDED_RELU, {{IR_ATTR_ALPHA, "alpha", 1}}},
    {IR_UNARY_SHRINK, {{IR_ATTR_ALPHA, "bias", 0}, {IR_ATTR_BETA, "lambd", 0.5f}}},
    {IR_UNARY_SWISH, {{IR_ATTR_ALPHA, "alpha", 1}}},
};

void map_unary_parameters(struct mapper *m)
{
    uint32_t x = map_in(m, 0), row = 0;
    while (row < ARRAY_LEN(parameters) - 1 && parameters[row].func != m->row->func)
        row++;
    uint32_t node = emit_begin(m, IR_OP_UNARY, 1, &x);
    emit_int(m, node, IR_ATTR_FUNC, m->row->func);
    for (uint32_t i = 0; i < ARRAY_LEN(parameters[row].attrs); i++) {
        const char *name = parameters[row].attrs[i].name;
        if (name)
            emit_float(m, node, parameters[row].attrs[i].key,
                       map_attr_float(m, name, parameters[row].attrs[i].fallback));
    }
    map_out(m, 0, emit_end(m, node));
}

void map_is_inf(struct mapper *m)
{
    uint32_t x = map_in(m, 0);
    float negative = map_attr_int(m, "detect_negative", 1) ? 1 : 0;
    float positive = map_attr_int(m, "detect_positive", 1) ? 1 : 0;
    map_out(m, 0, emit_unary_ab(m, IR_UNARY_IS_INF, x, negative, positive));
}

void map_gelu(struct mapper *m)
{
    uint32_t x = map_in(m, 0);
    bool tanh_form = map_attr_is(m, "approximate", "tanh", "none");
    if (!tanh_form && !map_attr_is(m, "approximate", "none", "none"))
        map_refuse(m, "attribute 'approximate' is neither none nor tanh");
    map_out(m, 0, emit_unary(m, tanh_form ? IR_UNARY_GELU_TANH : IR_UNARY_GELU, x));
}

/* Says whether a bound is absent or known now, so that the Clip becomes a single function. */
static bool is_plain_bound(struct mapper *m, uint32_t bound)
{
    return bound == IR_NONE || ir_tensor_is_constant(ir_tensor(m->graph, bound));
}

static void clip_known(struct mapper *m, uint32_t x, const float *low, const float *high)
{
    uint32_t node = emit_begin(m, IR_OP_UNARY, 1, &x);
    emit_int(m, node, IR_ATTR_FUNC, IR_UNARY_CLIP);
    if (low)
        emit_float(m, node, IR_ATTR_ALPHA, *low);
    if (high)
        emit_float(m, node, IR_ATTR_BETA, *high);
    map_out(m, 0, emit_end(m, node));
}

static void clip_attrs(struct mapper *m, uint32_t x)
{
    float low = map_attr_float(m, "min", 0), high = map_attr_float(m, "max", 0);
    clip_known(m, x, map_attr(m, "min") ? &low : NULL, map_attr(m, "max") ? &high : NULL);
}

void map_clip(struct mapper *m)
{
    uint32_t x = map_in(m, 0), low = map_in_opt(m, 1), high = map_in_opt(m, 2);
    enum dtype dtype = map_dtype(m, x);
    if (m->opset < 11) {
        clip_attrs(m, x);
        return;
    }
    bool narrow = dtype == DTYPE_F32 || dtype == DTYPE_F16 || dtype == DTYPE_BF16;
    if (!map_failed(m) && narrow && is_plain_bound(m, low) && is_plain_bound(m, high)) {
        float min = low == IR_NONE ? 0 : (float)map_known_number(m, low);
        float max = high == IR_NONE ? 0 : (float)map_known_number(m, high);
        clip_known(m, x, low == IR_NONE ? NULL : &min, high == IR_NONE ? NULL : &max);
        return;
    }
    uint32_t y = x;
    if (low != IR_NONE)
        y = emit_binary(m, IR_BINARY_MAX, y, low);
    if (high != IR_NONE)
        y = emit_binary(m, IR_BINARY_MIN, y, high);
    map_out(m, 0, y);
}

static void cast_to(struct mapper *m, uint32_t x, int64_t type)
{
    enum dtype to = onnx_dtype_inside(type);
    if (to == DTYPE_NONE)
        map_refuse(m, "to element type %s (%lld)", onnx_type_name(type), (long long)type);
    map_out(m, 0, emit_cast(m, x, to));
}

void map_cast(struct mapper *m)
{
    uint32_t x = map_in(m, 0);
    if (!map_attr_int(m, "saturate", 1) && map_attr_int(m, "to", 0) == ONNX_FLOAT8E4M3FN)
        map_refuse(m, "to %s without saturation", onnx_type_name(ONNX_FLOAT8E4M3FN));
    cast_to(m, x, map_attr_int(m, "to", 0));
}

void map_cast_like(struct mapper *m)
{
    uint32_t x = map_in(m, 0), like = map_in(m, 1);
    map_out(m, 0, emit_cast(m, x, map_dtype(m, like)));
}

void map_identity(struct mapper *m)
{
    map_out(m, 0, map_in(m, 0));
}

/* A Dropout drops nothing, because models are served; a file that asks for training is refused. */
void map_dropout(struct mapper *m)
{
    uint32_t x = map_in(m, 0), ratio = map_in_opt(m, 1), training = map_in_opt(m, 2);
    if (training != IR_NONE && map_known_number(m, training) != 0 &&
        (ratio == IR_NONE || map_known_number(m, ratio) != 0))
        map_refuse(m, "in training mode: its output is random");
    map_out(m, 0, x);
    if (map_out_used(m, 1)) {
        uint32_t one = emit_scalar(m, DTYPE_BOOL, 1);
        if (m->opset < 12)
            map_refuse(m, "its mask: what it holds outside of training was not said yet");
        struct shape shape = *map_shape(m, x);
        map_out(m, 1, emit_expand(m, one, &shape));
    }
}

/* Our graphs have no optional values: an operand is there or it is not. */
void map_optional_has(struct mapper *m)
{
    map_out(m, 0, emit_scalar(m, DTYPE_BOOL, map_in_opt(m, 0) != IR_NONE));
}

void map_optional_get(struct mapper *m)
{
    map_out(m, 0, map_in(m, 0));
}
