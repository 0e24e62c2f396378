/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an ONNX model. The model is opened and imported twice, the second time with values
 * for its inputs on offer, so that operands on which shapes depend are computed. An imported graph
 * must pass ir_verify(), and a survey must find something to refuse if, and only if, the import
 * refused the model. What an import leaves to a tail is opened, and computed on small inputs: node
 * by node, and with the graphs that were made of its loops' bodies, which must give the same.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/eval.h"
#include "engine/import/model.h"
#include "engine/import/onnx.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_VALUES = 8, VALUE_BYTES = 1024 };

/* Small whole numbers for inputs of whole numbers, something for others. */
static void fill(enum dtype dtype, size_t bytes, uint8_t *to)
{
    size_t size = dtype_size(dtype);
    for (size_t i = 0; i < bytes / size; i++) {
        int64_t value = (int64_t)(i * 7 % 5) - 1;
        if (dtype == DTYPE_BOOL)
            value = i & 1;
        memcpy(to + i * size, &value, size);
    }
}

static uint32_t values_for(const struct onnx_model *model, struct onnx_value *values,
                           uint8_t (*room)[VALUE_BYTES])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < model->graph.n_inputs && n < MAX_VALUES; i++) {
        const struct onnx_value_info *input = &model->graph.inputs[i];
        struct tensor_view view = {onnx_dtype(input->type), {.rank = input->rank}, room[n]};
        size_t bytes;
        for (uint32_t d = 0; d < input->rank; d++)
            view.shape.dim[d] = onnx_axis_is_fixed(&input->dims[d]) ? input->dims[d].value : 2;
        if (!input->is_tensor || !input->has_shape ||
            !shape_bytes(&view.shape, view.dtype, &bytes) || bytes > VALUE_BYTES)
            continue;
        fill(view.dtype, bytes, room[n]);
        values[n++] = (struct onnx_value){.name = input->name, .view = view};
    }
    return n;
}

/* If a value were given for a dimension that no input has, the import would end before it
 * begins. */
static bool has_dimension(const struct onnx_model *model, const char *name)
{
    for (uint32_t i = 0; i < model->graph.n_inputs; i++) {
        const struct onnx_value_info *input = &model->graph.inputs[i];
        for (uint32_t d = 0; d < input->rank; d++)
            if (input->dims[d].param && !strcmp(input->dims[d].param, name))
                return true;
    }
    return false;
}

/* --- tails --- */

enum { STORE_BYTES = 1 << 16, TAIL_BYTES = 1 << 22 };

struct store {
    uint8_t *data; /* STORE_BYTES of them */
    size_t size;
};

static enum status keep(void *user, const void *data, size_t size, uint64_t *offset,
                        struct error *err)
{
    struct store *store = user;
    if (size > STORE_BYTES - store->size)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "no room");
    *offset = store->size;
    if (size)
        memcpy(store->data + store->size, data, size);
    store->size += (size + 63) / 64 * 64;
    store->size = store->size < STORE_BYTES ? store->size : STORE_BYTES;
    return STATUS_OK;
}

/* --- bodies of loops --- */

/* A body's graph, computed node by node. */
struct body {
    const struct ir_graph *graph;
    struct onnx_port inputs[IR_MAX_IO], outputs[IR_MAX_IO];
};

struct values {
    void **at;   /* by tensor */
    bool *owned; /* beside it */
};

static enum status run_nodes(const struct ir_graph *graph, struct values *v, struct error *err)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        const void *in[IR_MAX_INPUTS];
        void *out[IR_MAX_OUTPUTS];
        for (uint32_t k = 0; k < node->n_inputs; k++)
            in[k] = node->inputs[k] == IR_NONE ? NULL : v->at[node->inputs[k]];
        for (uint32_t k = 0; k < node->n_outputs; k++) {
            uint32_t y = node->outputs[k];
            if (!v->at[y]) {
                v->at[y] = calloc(1, ir_tensor(graph, y)->bytes + 1);
                v->owned[y] = true;
            }
            out[k] = v->at[y];
            if (!out[k])
                return error_set(err, STATUS_RESOURCE_EXHAUSTED, "no memory");
        }
        TRY(cpu_eval_node(NULL, graph, node, in, out, err));
    }
    return STATUS_OK;
}

static enum status run_values(const struct body *b, struct values *v, const void *const *inputs,
                              void *outputs, struct error *err)
{
    const struct ir_graph *graph = b->graph;
    if (!v->at || !v->owned)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "no memory");
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        v->at[i] = (void *)(uintptr_t)ir_tensor(graph, i)->data;
    for (uint32_t i = 0; i < graph->n_inputs; i++)
        v->at[graph->inputs[i]] = (void *)(uintptr_t)inputs[i];
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        v->at[graph->outputs[i]] = (char *)outputs + b->outputs[i].offset;
    enum status status = run_nodes(graph, v, err);
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        if (v->owned[i])
            free(v->at[i]);
    return status;
}

static enum status run_body(void *user, const void *const *inputs, void *outputs, struct error *err)
{
    const struct body *b = user;
    uint32_t n = b->graph->n_tensors;
    struct values v = {calloc(n, sizeof(void *)), calloc(n, sizeof(bool))};
    enum status status = run_values(b, &v, inputs, outputs, err);
    free(v.at);
    free(v.owned);
    return status;
}

static struct onnx_body show_body(struct body *b, const struct ir_graph *graph)
{
    size_t at = 0;
    b->graph = graph;
    for (uint32_t i = 0; i < graph->n_inputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->inputs[i]);
        b->inputs[i] = (struct onnx_port){t->name, t->dtype, t->shape, 0};
    }
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->outputs[i]);
        b->outputs[i] = (struct onnx_port){t->name, t->dtype, t->shape, at};
        at += (t->bytes + 63) / 64 * 64;
    }
    return (struct onnx_body){.name = graph->name,
                              .inputs = b->inputs,
                              .outputs = b->outputs,
                              .n_inputs = graph->n_inputs,
                              .n_outputs = graph->n_outputs,
                              .out_bytes = at,
                              .run = run_body,
                              .user = b};
}

/* --- computing --- */

static void compute(struct onnx_model *tail, const struct ir_graph *graph,
                    const struct onnx_tail *from, uint8_t *zeros)
{
    static struct body bodies[ONNX_MAX_BODIES];
    struct onnx_body shown[ONNX_MAX_BODIES];
    struct tensor_view inputs[IR_MAX_IO], outputs[IR_MAX_IO];
    struct ir_graph *memory = NULL;
    struct error err;
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->outputs[i]);
        inputs[i] = (struct tensor_view){t->dtype, t->shape, zeros};
        if (t->bytes > STORE_BYTES)
            return;
        fill(t->dtype, t->bytes, zeros);
    }
    struct onnx_computing how = {
        .inputs = inputs, .evaluator = {.eval = cpu_eval_node}, .memory_max = TAIL_BYTES};
    struct tensor_view again[IR_MAX_IO];
    struct ir_graph *other = NULL;
    if (onnx_compute(tail, &how, outputs, &memory, &err))
        return;
    /* With memory that is used again for other values, and bodies, all are the same. No such memory
     * where there was none for its head: then each value has its own. */
    static struct onnx_memory *kept;
    if (!kept)
        kept = onnx_memory_new();
    how.memory = kept;
    for (uint32_t i = 0; i < from->n_bodies; i++)
        shown[i] = show_body(&bodies[i], from->bodies[i]);
    how.bodies = shown;
    how.n_bodies = from->n_bodies;
    bool computed = !onnx_compute(tail, &how, again, &other, &err);
    if (!computed && err.status != STATUS_RESOURCE_EXHAUSTED)
        abort();
    for (uint32_t i = 0; i < tail->graph.n_outputs; i++) {
        size_t bytes;
        if (!shape_bytes(&outputs[i].shape, outputs[i].dtype, &bytes) || !outputs[i].data)
            abort();
        if (computed && (!shape_equal(&outputs[i].shape, &again[i].shape) ||
                         (bytes && memcmp(outputs[i].data, again[i].data, bytes) != 0)))
            abort();
    }
    if (kept)
        onnx_memory_rest(kept);
    ir_graph_free(memory);
    ir_graph_free(other);
}

/* Imports with a tail, and runs it. */
static enum status import_late(struct onnx_model *model, struct onnx_options options)
{
    struct store store = {malloc(STORE_BYTES), 0};
    uint8_t *zeros = malloc(STORE_BYTES);
    struct onnx_tail tail = {.keep = keep, .user = &store};
    struct onnx_model *opened;
    struct ir_graph *graph;
    struct error err;
    options.tail = &tail;
    enum status status = store.data && zeros ? onnx_import(model, &options, &graph, &err)
                                             : STATUS_RESOURCE_EXHAUSTED;
    if (!status && tail.n_nodes &&
        !onnx_tail_open(tail.model, tail.size, store.data, store.size, &opened, &err)) {
        if (onnx_tail_inputs(opened) != graph->n_outputs)
            abort();
        compute(opened, graph, &tail, zeros);
        onnx_close(opened);
    }
    for (uint32_t i = 0; i < tail.n_bodies; i++)
        ir_graph_free(tail.bodies[i]);
    if (!status)
        ir_graph_free(graph);
    free(tail.model);
    free(store.data);
    free(zeros);
    return status;
}

/* Checks that an import and a survey of the same model agree. */
static bool agree(struct onnx_model *model, const struct onnx_options *options)
{
    struct onnx_survey *found;
    struct error err;
    enum status imported = import_late(model, *options);
    if (onnx_survey(model, options, &found, &err))
        return true;
    bool wrong = imported == STATUS_INVALID_ARGUMENT || imported == STATUS_UNIMPLEMENTED;
    bool same = imported ? !wrong || found->n_refused || found->unbound : !found->n_refused;
    same = same || found->n_late; /* whether its outputs can be a tail's, no survey asks */
    onnx_survey_free(found);
    return same;
}

static void import(struct onnx_model *model, const struct onnx_value *values, uint32_t n_values,
                   bool surveyed)
{
    const struct onnx_dim dims[] = {{"sequence", 3}};
    const struct onnx_options options = {
        .batch = 2,
        .dims = dims,
        .n_dims = has_dimension(model, dims[0].name),
        .values = values,
        .n_values = n_values,
        .evaluator = {.eval = cpu_eval_node},
    };
    struct ir_graph *graph;
    struct error err;
    /* A second try is needed where an allocation was made to fail: a value that could not be
     * computed then counts as not known. */
    if (surveyed && !agree(model, &options) && !agree(model, &options))
        abort();
    if (n_values)
        (void)import_late(model, options);
    if (onnx_import(model, &options, &graph, &err))
        return;
    if (ir_verify(graph, &err) && err.status != STATUS_RESOURCE_EXHAUSTED)
        abort();
    ir_graph_free(graph);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static uint8_t room[MAX_VALUES][VALUE_BYTES];
    struct onnx_value values[MAX_VALUES];
    struct onnx_model *model;
    struct error err;
    if (onnx_open_memory(data, size, &model, &err))
        return 0;
    bool named;
    (void)onnx_is_batched(model, &(struct onnx_options){.batch = 1}, &named);
    for (uint32_t i = 0; i < model->graph.n_inputs; i++)
        (void)onnx_input_dim(model, model->graph.inputs[i].name, i);
    (void)onnx_input_dim(model, "?", 0);
    import(model, NULL, 0, data[size / 2] % 8 == 0); /* seldom: it takes long */
    import(model, values, values_for(model, values, room), false);
    onnx_close(model);
    return 0;
}
