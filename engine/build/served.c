/* SPDX-License-Identifier: Apache-2.0 */
/* See served.h. */
#include "engine/build/served.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "base/names.h"

static const struct {
    const char *name;
    enum dtype dtype;
} types[] = {{"uint8", DTYPE_U8}, {"fp16", DTYPE_F16}, {"int8", DTYPE_I8}};

enum dtype build_served_output_type(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].dtype;
    return DTYPE_NONE;
}

enum dtype build_served_type(const char *name)
{
    enum dtype dtype = build_served_output_type(name);
    return dtype == DTYPE_I8 ? DTYPE_NONE : dtype;
}

/* `what`: "input", "output". */
static enum status find(const struct ir_graph *graph, const char *what, const uint32_t *list,
                        uint32_t n, const char *name, uint32_t *out, struct error *err)
{
    struct names names;
    names_init(&names, name, strlen(name));
    for (uint32_t i = 0; i < n; i++) {
        const char *have = ir_tensor(graph, list[i])->name;
        names_add(&names, have);
        if (strcmp(have, name) == 0) {
            *out = i;
            return STATUS_OK;
        }
    }
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     "served %s '%s': the model has no such %s; it has %s", what, name, what,
                     names_text(&names));
}

/* There may be one number, or one for each index of dimension 1; all are finite. */
static enum status check_numbers(const struct ir_tensor *t, const char *what, const float *values,
                                 uint32_t n, struct error *err)
{
    int64_t channels = t->shape.rank > 1 ? t->shape.dim[1] : 1;
    if (n > 1 && (int64_t)n != channels)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "served input '%s': %u numbers as %s; it takes one, or one for each of "
                         "the %lld channels of dimension 1",
                         t->name, n, what, (long long)channels);
    for (uint32_t i = 0; i < n; i++)
        if (!isfinite(values[i]))
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "served input '%s': %s number %u is not finite", t->name, what, i);
    return STATUS_OK;
}

static enum status check_input(const struct ir_tensor *t, const struct build_input *input,
                               struct error *err)
{
    if (t->dtype != DTYPE_F32 && t->dtype != DTYPE_F16 && t->dtype != DTYPE_BF16)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "served input '%s' is %s: only FP32, FP16 and BF16 inputs can be served "
                         "as another type",
                         t->name, dtype_name(t->dtype));
    TRY(check_numbers(t, "scale", input->scale, input->n_scale, err));
    return check_numbers(t, "bias", input->bias, input->n_bias, err);
}

static void put(void *data, enum dtype dtype, uint32_t i, float value)
{
    uint16_t half = dtype == DTYPE_F16 ? f32_to_f16(value) : f32_to_bf16(value);
    if (dtype == DTYPE_F32)
        memcpy((char *)data + 4 * (size_t)i, &value, 4);
    else
        memcpy((char *)data + 2 * (size_t)i, &half, 2);
}

/* A constant of shape [] for one number, [C,1,..] for a number a channel; IR_NONE: no memory. */
static uint32_t make_numbers(struct ir_graph *graph, const struct ir_tensor *like,
                             const float *values, uint32_t n)
{
    struct shape shape = {.rank = 0};
    if (n > 1) {
        shape.rank = like->shape.rank - 1;
        shape.dim[0] = n;
        for (uint32_t i = 1; i < shape.rank; i++)
            shape.dim[i] = 1;
    }
    void *data = arena_alloc(graph->arena, n * dtype_size(like->dtype));
    if (!data)
        return IR_NONE;
    for (uint32_t i = 0; i < n; i++)
        put(data, like->dtype, i, values[i]);
    return ir_constant_add(graph, "", like->dtype, &shape, data);
}

/* The nodes from the served tensor to the model's own; `at` is the output of the last node. */
struct chain {
    struct ir_graph *graph;
    const char *name; /* of the input or output; the nodes' names begin with it */
    uint32_t at, last;
    struct error *err;
};

static enum status add_node(struct chain *c, enum ir_op op, const char *what, uint32_t operand,
                            enum ir_attr_key key, int64_t value)
{
    char name[160];
    const uint32_t inputs[2] = {c->at, operand};
    snprintf(name, sizeof(name), "%.100s/%s", c->name, what);
    uint32_t node = ir_node_add(c->graph, op, name, operand == IR_NONE ? 1 : 2, inputs);
    if (node == IR_NONE || !ir_attr_set_int(c->graph, node, key, value))
        return error_no_memory(c->err, "served types");
    TRY(ir_infer_apply(c->graph, node, NULL, 0, c->err));
    c->last = node;
    c->at = ir_node(c->graph, node)->outputs[0];
    return STATUS_OK;
}

static enum status add_arithmetic(struct chain *c, enum ir_binary func, const char *what,
                                  const struct ir_tensor *like, const float *values, uint32_t n)
{
    if (n == 0)
        return STATUS_OK;
    uint32_t numbers = make_numbers(c->graph, like, values, n);
    if (numbers == IR_NONE)
        return error_no_memory(c->err, "served types");
    return add_node(c, IR_OP_BINARY, what, numbers, IR_ATTR_FUNC, func);
}

static enum status serve(struct ir_graph *graph, const struct build_input *input, struct error *err)
{
    uint32_t index = 0;
    TRY(find(graph, "input", graph->inputs, graph->n_inputs, input->name, &index, err));
    uint32_t old = graph->inputs[index];
    const struct ir_tensor like =
        *ir_tensor(graph, old); /* the array moves when tensors are added */
    TRY(check_input(&like, input, err));
    enum dtype dtype = input->dtype == DTYPE_NONE ? like.dtype : input->dtype;
    if (dtype == like.dtype && !input->n_scale && !input->n_bias)
        return STATUS_OK;
    uint32_t served = ir_tensor_add(graph, like.name, dtype, &like.shape);
    if (served == IR_NONE)
        return error_no_memory(err, "served types");
    struct chain c = {graph, like.name, served, IR_NONE, err};
    if (dtype != like.dtype)
        TRY(add_node(&c, IR_OP_CAST, "cast", IR_NONE, IR_ATTR_TO, like.dtype));
    TRY(add_arithmetic(&c, IR_BINARY_MUL, "scale", &like, input->scale, input->n_scale));
    TRY(add_arithmetic(&c, IR_BINARY_ADD, "bias", &like, input->bias, input->n_bias));
    ir_node_set_output(graph, c.last, 0, old);
    ir_tensor(graph, old)->name = "";
    graph->inputs[index] = served;
    return STATUS_OK;
}

enum status build_serve(struct ir_graph *graph, const struct build_input *inputs, uint32_t n,
                        struct error *err)
{
    for (uint32_t i = 0; i < n; i++)
        TRY(serve(graph, &inputs[i], err));
    if (n) /* the new nodes stand behind their readers */
        TRY(ir_graph_compact(graph, err));
    return STATUS_OK;
}

/* --- outputs --- */

/* What the output is dequantised from; IR_NONE: from nothing that could be served instead. */
static uint32_t quantised(const struct ir_graph *graph, uint32_t output, enum dtype dtype)
{
    uint32_t producer = ir_tensor(graph, output)->producer;
    if (producer == IR_NONE || ir_node(graph, producer)->op != IR_OP_DEQUANTIZE)
        return IR_NONE;
    uint32_t x = ir_node(graph, producer)->inputs[0];
    const struct ir_tensor *t = ir_tensor(graph, x);
    return t->dtype == dtype && t->producer != IR_NONE && !ir_tensor_is_output(graph, x) ? x
                                                                                         : IR_NONE;
}

static enum status serve_bytes(struct ir_graph *graph, uint32_t index, enum dtype dtype,
                               struct error *err)
{
    struct ir_tensor *old = ir_tensor(graph, graph->outputs[index]);
    uint32_t x = quantised(graph, graph->outputs[index], dtype);
    if (x == IR_NONE)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "served output '%s': it cannot be served as %s, since the model does not "
                         "make it from that by DequantizeLinear; it may be fp16",
                         old->name, dtype_name(dtype));
    ir_tensor(graph, x)->name = old->name;
    old->name = "";
    graph->outputs[index] = x;
    return STATUS_OK;
}

static enum status serve_half(struct ir_graph *graph, uint32_t index, struct error *err)
{
    uint32_t old = graph->outputs[index];
    const struct ir_tensor like = *ir_tensor(graph, old);
    struct chain c = {graph, like.name, old, IR_NONE, err};
    if (like.dtype == DTYPE_F16)
        return STATUS_OK;
    if (!dtype_is_float(like.dtype))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "served output '%s' is %s: only floats can be served as fp16", like.name,
                         dtype_name(like.dtype));
    TRY(add_node(&c, IR_OP_CAST, "cast", IR_NONE, IR_ATTR_TO, DTYPE_F16));
    ir_tensor(graph, c.at)->name = like.name;
    ir_tensor(graph, old)->name = "";
    graph->outputs[index] = c.at;
    return STATUS_OK;
}

enum status build_serve_outputs(struct ir_graph *graph, const struct build_output *outputs,
                                uint32_t n, struct error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        uint32_t index = 0;
        const struct build_output *o = &outputs[i];
        TRY(find(graph, "output", graph->outputs, graph->n_outputs, o->name, &index, err));
        TRY(o->dtype == DTYPE_F16 ? serve_half(graph, index, err)
                                  : serve_bytes(graph, index, o->dtype, err));
    }
    return STATUS_OK;
}
