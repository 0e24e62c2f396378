/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nanopb hands every string, nested message and list to a callback with a stream that is limited
 * to it. For a buffer stream `state` is the address of the next byte, so recording address and
 * length costs nothing and copies nothing. A field of the wrong wire type comes as a stream on a
 * temporary, which the range check in span_take refuses.
 */
#include "engine/import/decode.h"

#include <string.h>

#include "base/checked.h"
#include "onnx_subset.pb.h"

enum {
    MAX_LIST = 1 << 24, /* numbers in one attribute */
    MAX_DIMS = 32,      /* of a tensor that is read; one of more than SHAPE_MAX_RANK is refused */
};

/* Spans that a callback collects. */
struct spans {
    struct arena *arena;
    struct span whole; /* what all of them must lie in */
    struct span *items;
    uint32_t n, cap, max;
};

/* Numbers that a callback collects; `cap` counts items of the callback's type. */
struct numbers {
    struct arena *arena;
    void *items;
    uint32_t n, cap;
};

/* A stream's error that has this address means "no memory"; any other means damage. */
static const char exhausted[] = "no memory";

static bool grow(struct arena *arena, void **items, uint32_t n, uint32_t *cap, size_t size)
{
    if (n < *cap)
        return true;
    uint32_t want = *cap ? *cap * 2 : 4;
    void *bigger = arena_array(arena, want, size);
    if (!bigger)
        return false;
    if (n)
        memcpy(bigger, *items, n * size);
    *items = bigger;
    *cap = want;
    return true;
}

static bool span_take(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    struct spans *list = *arg;
    uintptr_t at = (uintptr_t)stream->state, begin = (uintptr_t)list->whole.data;
    if (at < begin || at - begin > list->whole.size ||
        stream->bytes_left > list->whole.size - (at - begin))
        PB_RETURN_ERROR(stream, "wrong wire type");
    if (list->n == list->max)
        PB_RETURN_ERROR(stream, "too many of a field");
    void *items = list->items;
    if (!grow(list->arena, &items, list->n, &list->cap, sizeof(*list->items)))
        PB_RETURN_ERROR(stream, exhausted);
    list->items = items;
    list->items[list->n++] = (struct span){stream->state, stream->bytes_left};
    return pb_read(stream, NULL, stream->bytes_left);
}

static bool ints_take(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    struct numbers *list = *arg;
    while (stream->bytes_left) {
        uint64_t value;
        if (!pb_decode_varint(stream, &value))
            return false;
        if (list->n == MAX_LIST)
            PB_RETURN_ERROR(stream, "too many numbers");
        if (!grow(list->arena, &list->items, list->n, &list->cap, sizeof(int64_t)))
            PB_RETURN_ERROR(stream, exhausted);
        ((int64_t *)list->items)[list->n++] = (int64_t)value;
    }
    return true;
}

static bool floats_take(pb_istream_t *stream, const pb_field_t *field UNUSED, void **arg)
{
    struct numbers *list = *arg;
    while (stream->bytes_left) {
        float value;
        if (!pb_decode_fixed32(stream, &value))
            return false;
        if (list->n == MAX_LIST)
            PB_RETURN_ERROR(stream, "too many numbers");
        if (!grow(list->arena, &list->items, list->n, &list->cap, sizeof(float)))
            PB_RETURN_ERROR(stream, exhausted);
        ((float *)list->items)[list->n++] = value;
    }
    return true;
}

/* Gives the callback of a field that may occur `max` times. */
static pb_callback_t into(struct spans *list, struct arena *arena, struct span whole, uint32_t max)
{
    *list = (struct spans){.arena = arena, .whole = whole, .max = max};
    return (pb_callback_t){.funcs.decode = span_take, .arg = list};
}

enum status decode_message(struct span body, const pb_msgdesc_t *fields, void *message,
                           const char *what, struct error *err)
{
    pb_istream_t stream = pb_istream_from_buffer(body.data, body.size);
    if (pb_decode(&stream, fields, message))
        return STATUS_OK;
    if (stream.errmsg == exhausted)
        return error_no_memory(err, "the model's structure");
    return error_set(err, STATUS_INVALID_ARGUMENT, "damaged ONNX file: %s: %s", what,
                     PB_GET_ERROR(&stream));
}

/* Copies the span as a terminated string. */
static enum status text_of(struct arena *arena, struct span span, const char *what,
                           const char **out, struct error *err)
{
    if (span.size >= ONNX_MAX_NAME)
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: %zu bytes long, the limit is %d", what,
                         span.size, ONNX_MAX_NAME - 1);
    if (span.size && memchr(span.data, 0, span.size))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: contains a zero byte", what);
    char *copy = arena_strndup(arena, span.size ? (const char *)span.data : "", span.size);
    if (!copy)
        return error_no_memory(err, "the model's structure");
    *out = copy;
    return STATUS_OK;
}

static struct span only(const struct spans *list)
{
    return list->n ? list->items[0] : (struct span){0};
}

static enum status texts_of(struct arena *arena, const struct spans *list, const char *what,
                            const char ***out, struct error *err)
{
    const char **texts = arena_array(arena, list->n, sizeof(*texts));
    if (!texts)
        return error_no_memory(err, "the model's structure");
    for (uint32_t i = 0; i < list->n; i++)
        TRY(text_of(arena, list->items[i], what, &texts[i], err));
    *out = texts;
    return STATUS_OK;
}

/* Reads digits only; false for anything else, or if the number does not fit. */
static bool number_of(struct span span, uint64_t *out)
{
    uint64_t value = 0;
    if (!span.size || span.size > 20)
        return false;
    for (size_t i = 0; i < span.size; i++) {
        if (span.data[i] < '0' || span.data[i] > '9' ||
            __builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(span.data[i] - '0'), &value))
            return false;
    }
    *out = value;
    return true;
}

static bool span_is(struct span span, const char *text)
{
    return span.size == strlen(text) && !memcmp(span.data, text, span.size);
}

static enum status decode_entry(struct arena *arena, struct span body, struct onnx_tensor *tensor,
                                struct error *err)
{
    struct spans key, value;
    onnxpb_Entry message = {.key = into(&key, arena, body, 1),
                            .value = into(&value, arena, body, 1)};
    TRY(decode_message(body, onnxpb_Entry_fields, &message, "external data", err));
    if (span_is(only(&key), "location"))
        return text_of(arena, only(&value), "external data location", &tensor->location, err);
    uint64_t *number = span_is(only(&key), "offset")   ? &tensor->offset
                       : span_is(only(&key), "length") ? &tensor->length
                                                       : NULL;
    if (number && !number_of(only(&value), number))
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "external data: offset or length is not a number");
    return STATUS_OK;
}

static enum status tensor_dims(const onnxpb_Tensor *message, struct onnx_tensor *tensor,
                               struct error *err)
{
    if (message->dims_count > SHAPE_MAX_RANK)
        return error_set(err, STATUS_UNIMPLEMENTED, "tensor '%s': rank %u, the limit is %d",
                         tensor->name, (unsigned)message->dims_count, SHAPE_MAX_RANK);
    tensor->shape.rank = message->dims_count;
    for (uint32_t d = 0; d < tensor->shape.rank; d++) {
        if (message->dims[d] < 0)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "tensor '%s': dimension %u is %lld, expected >= 0", tensor->name, d,
                             (long long)message->dims[d]);
        tensor->shape.dim[d] = message->dims[d];
    }
    return STATUS_OK;
}

enum status decode_tensor(struct arena *arena, struct span body, struct onnx_tensor *out,
                          struct error *err)
{
    struct spans name, raw, external;
    onnxpb_Tensor message = {.name = into(&name, arena, body, 1),
                             .raw_data = into(&raw, arena, body, 1),
                             .external_data = into(&external, arena, body, ONNX_MAX_ATTRS)};
    struct onnx_tensor tensor = {.body = body, .length = UINT64_MAX};
    TRY(decode_message(body, onnxpb_Tensor_fields, &message, "tensor", err));
    TRY(text_of(arena, only(&name), "tensor name", &tensor.name, err));
    TRY(tensor_dims(&message, &tensor, err));
    for (uint32_t i = 0; i < external.n; i++)
        TRY(decode_entry(arena, external.items[i], &tensor, err));
    tensor.type = message.data_type;
    tensor.raw = only(&raw);
    tensor.external = message.data_location != 0;
    *out = tensor;
    return STATUS_OK;
}

/* Files older than the field `type` tell the type by which of the other fields is present. */
static enum onnx_attr_type attr_type(const onnxpb_Attribute *message, const struct spans *s,
                                     const struct spans *t, const struct spans *g,
                                     const struct onnx_attr *attr)
{
    if (message->type > 0)
        return (enum onnx_attr_type)message->type;
    return message->has_f   ? ONNX_ATTR_FLOAT
           : message->has_i ? ONNX_ATTR_INT
           : s->n           ? ONNX_ATTR_STRING
           : t->n           ? ONNX_ATTR_TENSOR
           : g->n           ? ONNX_ATTR_GRAPH
           : attr->n_floats ? ONNX_ATTR_FLOATS
                            : ONNX_ATTR_INTS;
}

static enum status attr_tensor(struct arena *arena, const struct spans *t, struct onnx_attr *attr,
                               struct error *err)
{
    if (attr->type != ONNX_ATTR_TENSOR)
        return STATUS_OK;
    attr->tensor = arena_alloc(arena, sizeof(*attr->tensor));
    if (!attr->tensor)
        return error_no_memory(err, "the model's structure");
    return decode_tensor(arena, only(t), attr->tensor, err);
}

/* Puts a graph within a graph at the end of the model's list, to be decoded in its turn: so the
 * file's nesting costs no stack. A graph that lies too deep is not decoded; whoever needs it says
 * so. */
static enum status attr_graph(struct onnx_model *model, uint32_t depth, const struct spans *g,
                              struct onnx_attr *attr, struct error *err)
{
    if (attr->type != ONNX_ATTR_GRAPH || depth == ONNX_MAX_DEPTH)
        return STATUS_OK;
    struct onnx_graph *graph = arena_alloc(model->arena, sizeof(*graph));
    if (!graph)
        return error_no_memory(err, "the model's structure");
    *graph = (struct onnx_graph){.body = only(g), .depth = depth + 1, .name = ""};
    model->last->next = graph;
    model->last = graph;
    attr->graph = graph;
    return STATUS_OK;
}

static enum status decode_attr(struct onnx_model *model, uint32_t depth, struct span body,
                               struct onnx_attr *out, struct error *err)
{
    struct arena *arena = model->arena;
    struct spans name, s, t, g, graphs, strings;
    struct numbers ints = {.arena = arena}, floats = {.arena = arena};
    onnxpb_Attribute message = {
        .name = into(&name, arena, body, 1),
        .s = into(&s, arena, body, 1),
        .t = into(&t, arena, body, 1),
        .g = into(&g, arena, body, 1),
        .graphs = into(&graphs, arena, body, ONNX_MAX_ATTRS),
        .strings = into(&strings, arena, body, MAX_LIST),
        .ints = {.funcs.decode = ints_take, .arg = &ints},
        .floats = {.funcs.decode = floats_take, .arg = &floats},
    };
    TRY(decode_message(body, onnxpb_Attribute_fields, &message, "attribute", err));
    struct onnx_attr attr = {.f = message.f, .i = message.i, .s = only(&s)};
    TRY(text_of(arena, only(&name), "attribute name", &attr.name, err));
    attr.ints = ints.items;
    attr.n_ints = ints.n;
    attr.floats = floats.items;
    attr.n_floats = floats.n;
    attr.strings = strings.items;
    attr.n_strings = strings.n;
    attr.type = attr_type(&message, &s, &t, graphs.n ? &graphs : &g, &attr);
    TRY(attr_tensor(arena, &t, &attr, err));
    TRY(attr_graph(model, depth, &g, &attr, err));
    *out = attr;
    return STATUS_OK;
}

static enum status node_attrs(struct onnx_model *model, uint32_t depth, const struct spans *list,
                              struct onnx_node *node, struct error *err)
{
    node->n_attrs = list->n;
    node->attrs = arena_array(model->arena, list->n, sizeof(*node->attrs));
    if (!node->attrs)
        return error_no_memory(err, "the model's structure");
    for (uint32_t i = 0; i < list->n; i++)
        TRY(decode_attr(model, depth, list->items[i], &node->attrs[i], err));
    return STATUS_OK;
}

/* IR_MAX_INPUTS bounds the operands of a node of ours; Concat and Sum rarely have more than 64. */
enum { MAX_NODE_INPUTS = 256, MAX_NODE_OUTPUTS = 256 };

static enum status read_node(struct onnx_model *model, uint32_t depth, struct span body,
                             struct onnx_node *node, struct error *err)
{
    struct arena *arena = model->arena;
    struct spans name, op, domain, inputs, outputs, attrs;
    onnxpb_Node message = {
        .name = into(&name, arena, body, 1),
        .op_type = into(&op, arena, body, 1),
        .domain = into(&domain, arena, body, 1),
        .input = into(&inputs, arena, body, MAX_NODE_INPUTS),
        .output = into(&outputs, arena, body, MAX_NODE_OUTPUTS),
        .attribute = into(&attrs, arena, body, ONNX_MAX_ATTRS),
    };
    TRY(decode_message(body, onnxpb_Node_fields, &message, "node", err));
    TRY(text_of(arena, only(&name), "node name", &node->name, err));
    TRY(text_of(arena, only(&op), "op type", &node->op, err));
    TRY(text_of(arena, only(&domain), "domain", &node->domain, err));
    TRY(texts_of(arena, &inputs, "input name", &node->inputs, err));
    TRY(texts_of(arena, &outputs, "output name", &node->outputs, err));
    TRY(node_attrs(model, depth, &attrs, node, err));
    if (!strcmp(node->domain, "ai.onnx"))
        node->domain = "";
    node->n_inputs = inputs.n;
    node->n_outputs = outputs.n;
    return STATUS_OK;
}

static enum status decode_node(struct onnx_model *model, uint32_t depth, struct span body,
                               struct onnx_node *out, struct error *err)
{
    struct onnx_node node = {.body = body, .name = ""};
    enum status status = read_node(model, depth, body, &node, err);
    if (status)
        error_prefix(err, "node '%s'", node.name);
    else
        *out = node;
    return status;
}

static enum status decode_dim(struct arena *arena, struct span body, struct onnx_axis *out,
                              struct error *err)
{
    struct spans param;
    onnxpb_Dim message = {.dim_param = into(&param, arena, body, 1)};
    struct onnx_axis axis = {.value = -1};
    TRY(decode_message(body, onnxpb_Dim_fields, &message, "dimension", err));
    if (param.n)
        TRY(text_of(arena, only(&param), "dimension name", &axis.param, err));
    if (message.has_dim_value)
        axis.value = message.dim_value;
    *out = axis;
    return STATUS_OK;
}

static enum status decode_shape(struct arena *arena, struct span body, struct onnx_value_info *out,
                                struct error *err)
{
    struct spans dims;
    onnxpb_Shape message = {.dim = into(&dims, arena, body, MAX_DIMS)};
    TRY(decode_message(body, onnxpb_Shape_fields, &message, "shape", err));
    if (dims.n > SHAPE_MAX_RANK)
        return error_set(err, STATUS_UNIMPLEMENTED, "rank %u, the limit is %d", dims.n,
                         SHAPE_MAX_RANK);
    for (uint32_t i = 0; i < dims.n; i++)
        TRY(decode_dim(arena, dims.items[i], &out->dims[i], err));
    out->has_shape = true;
    out->rank = dims.n;
    return STATUS_OK;
}

/* Leaves is_tensor false for a sequence, a map or an optional. */
static enum status decode_type(struct arena *arena, struct span body, struct onnx_value_info *out,
                               struct error *err)
{
    struct spans tensor, shape = {0};
    onnxpb_Type message = {.tensor_type = into(&tensor, arena, body, 1)};
    TRY(decode_message(body, onnxpb_Type_fields, &message, "type", err));
    if (!tensor.n)
        return STATUS_OK;
    struct span inner = only(&tensor);
    onnxpb_TensorType type = {.shape = into(&shape, arena, inner, 1)};
    TRY(decode_message(inner, onnxpb_TensorType_fields, &type, "tensor type", err));
    out->is_tensor = true;
    out->type = type.elem_type;
    return shape.n ? decode_shape(arena, only(&shape), out, err) : STATUS_OK;
}

static enum status read_value(struct onnx_model *model, struct span body,
                              struct onnx_value_info *value, struct error *err)
{
    struct spans name, type;
    onnxpb_ValueInfo message = {.name = into(&name, model->arena, body, 1),
                                .type = into(&type, model->arena, body, 1)};
    TRY(decode_message(body, onnxpb_ValueInfo_fields, &message, "value", err));
    TRY(text_of(model->arena, only(&name), "value name", &value->name, err));
    return type.n ? decode_type(model->arena, only(&type), value, err) : STATUS_OK;
}

static enum status decode_value(struct onnx_model *model, struct span body,
                                struct onnx_value_info *out, struct error *err)
{
    struct onnx_value_info value = {.name = ""};
    enum status status = read_value(model, body, &value, err);
    if (status)
        error_prefix(err, "graph input or output '%s'", value.name);
    else
        *out = value;
    return status;
}

static enum status decode_values(struct onnx_model *model, const struct spans *list,
                                 struct onnx_value_info **out, struct error *err)
{
    struct onnx_value_info *values = arena_array(model->arena, list->n, sizeof(*values));
    if (!values)
        return error_no_memory(err, "the model's structure");
    for (uint32_t i = 0; i < list->n; i++)
        TRY(decode_value(model, list->items[i], &values[i], err));
    *out = values;
    return STATUS_OK;
}

static enum status decode_nodes(struct onnx_model *model, const struct spans *list,
                                struct onnx_graph *graph, struct error *err)
{
    graph->nodes = arena_array(model->arena, list->n, sizeof(*graph->nodes));
    if (!graph->nodes)
        return error_no_memory(err, "the model's structure");
    for (uint32_t i = 0; i < list->n; i++)
        TRY(decode_node(model, graph->depth, list->items[i], &graph->nodes[i], err));
    graph->n_nodes = list->n;
    return STATUS_OK;
}

static enum status decode_initializers(struct onnx_model *model, const struct spans *list,
                                       struct onnx_graph *graph, struct error *err)
{
    graph->initializers = arena_array(model->arena, list->n, sizeof(*graph->initializers));
    if (!graph->initializers)
        return error_no_memory(err, "the model's structure");
    for (uint32_t i = 0; i < list->n; i++)
        TRY(decode_tensor(model->arena, list->items[i], &graph->initializers[i], err));
    graph->n_initializers = list->n;
    return STATUS_OK;
}

enum { MAX_NODES = 1 << 18 };

static enum status decode_graph(struct onnx_model *model, struct onnx_graph *graph,
                                struct error *err)
{
    struct arena *arena = model->arena;
    struct span body = graph->body;
    struct spans nodes, name, initializers, inputs, outputs, sparse;
    onnxpb_Graph message = {
        .node = into(&nodes, arena, body, MAX_NODES),
        .name = into(&name, arena, body, 1),
        .initializer = into(&initializers, arena, body, ONNX_MAX_VALUES),
        .input = into(&inputs, arena, body, ONNX_MAX_VALUES),
        .output = into(&outputs, arena, body, ONNX_MAX_VALUES),
        .sparse_initializer = into(&sparse, arena, body, ONNX_MAX_VALUES),
    };
    TRY(decode_message(body, onnxpb_Graph_fields, &message, "graph", err));
    TRY(text_of(arena, only(&name), "graph name", &graph->name, err));
    TRY(decode_nodes(model, &nodes, graph, err));
    TRY(decode_initializers(model, &initializers, graph, err));
    TRY(decode_values(model, &inputs, &graph->inputs, err));
    TRY(decode_values(model, &outputs, &graph->outputs, err));
    graph->n_inputs = inputs.n;
    graph->n_outputs = outputs.n;
    graph->n_sparse = sparse.n;
    return STATUS_OK;
}

static enum status decode_opsets(struct onnx_model *model, const struct spans *list,
                                 struct error *err)
{
    model->opsets = arena_array(model->arena, list->n, sizeof(*model->opsets));
    if (!model->opsets)
        return error_no_memory(err, "the model's structure");
    for (uint32_t i = 0; i < list->n; i++) {
        struct spans domain;
        onnxpb_OperatorSet message = {.domain = into(&domain, model->arena, list->items[i], 1)};
        TRY(decode_message(list->items[i], onnxpb_OperatorSet_fields, &message, "opset", err));
        TRY(text_of(model->arena, only(&domain), "opset domain", &model->opsets[i].domain, err));
        model->opsets[i].version = message.version;
    }
    model->n_opsets = list->n;
    return STATUS_OK;
}

/* Functions of the model are known by name alone, for refusals. */
static enum status decode_functions(struct onnx_model *model, const struct spans *list,
                                    struct error *err)
{
    model->functions = arena_array(model->arena, list->n, sizeof(*model->functions));
    if (!model->functions)
        return error_no_memory(err, "the model's structure");
    for (uint32_t i = 0; i < list->n; i++) {
        struct spans name, domain;
        struct onnx_function *function = &model->functions[i];
        onnxpb_Function message = {.name = into(&name, model->arena, list->items[i], 1),
                                   .domain = into(&domain, model->arena, list->items[i], 1)};
        TRY(decode_message(list->items[i], onnxpb_Function_fields, &message, "function", err));
        TRY(text_of(model->arena, only(&name), "function name", &function->name, err));
        TRY(text_of(model->arena, only(&domain), "function domain", &function->domain, err));
    }
    model->n_functions = list->n;
    return STATUS_OK;
}

/* Every exporter begins a file with the version of the format, which is field 1. A file that begins
 * with anything else and does not decode either is not a damaged model but another kind of file. */
static enum status not_onnx(struct span bytes, struct error *err)
{
    static const char plan[] = "INFERDPL";
    bool is_plan = bytes.size >= strlen(plan) && !memcmp(bytes.data, plan, strlen(plan));
    return error_set(err, STATUS_INVALID_ARGUMENT, "not an ONNX file%s",
                     is_plan ? ": it is a plan already" : "");
}

enum status decode_model(struct onnx_model *model, struct error *err)
{
    struct spans graph, opsets, functions;
    onnxpb_Model message = {
        .graph = into(&graph, model->arena, model->bytes, 1),
        .opset_import = into(&opsets, model->arena, model->bytes, ONNX_MAX_OPSETS),
        .functions = into(&functions, model->arena, model->bytes, ONNX_MAX_FUNCTIONS),
    };
    enum status status = decode_message(model->bytes, onnxpb_Model_fields, &message, "model", err);
    if (status == STATUS_INVALID_ARGUMENT && model->bytes.data[0] != (1 << 3 | PB_WT_VARINT))
        return not_onnx(model->bytes, err);
    TRY(status);
    if (!graph.n)
        return error_set(err, STATUS_INVALID_ARGUMENT, "not an ONNX file: it has no graph");
    TRY(decode_opsets(model, &opsets, err));
    TRY(decode_functions(model, &functions, err));
    model->graph.body = only(&graph);
    for (struct onnx_graph *g = &model->graph; g; g = g->next)
        TRY(decode_graph(model, g, err));
    model->ir_version = message.ir_version;
    return STATUS_OK;
}
