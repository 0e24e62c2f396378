/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks over the file's graph: inputs with their symbols bound, initializers, nodes (in order.c's
 * order), outputs.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/names.h"
#include "engine/import/blocks.h"
#include "engine/import/dims.h"
#include "engine/import/late.h"
#include "engine/import/map.h"
#include "engine/import/ops.h"
#include "engine/import/survey.h"
#include "engine/import/tensor.h"

static const size_t fold_budget = (size_t)1 << 28; /* bytes of constants computed in one import */
static const uint64_t fold_work = UINT64_C(1) << 31;

enum {
    UNROLLED_MAX = 1 << 16, /* nodes of all branches and iterations together */
    COMPUTED_MAX = 1 << 18, /* the same for a request */
};

/* --- inputs --- */

/* The index of the value that the caller gives to this input, or IR_NONE. */
static uint32_t binding_of(const struct onnx_options *options, const char *name)
{
    for (uint32_t i = 0; i < options->n_values; i++) {
        if (!strcmp(options->values[i].name, name))
            return i;
    }
    return IR_NONE;
}

/* The shape of a bound input: the given value's dimensions stand where the file leaves them
 * open. */
static void bound_shape(struct mapper *m, const struct onnx_value_info *input, uint32_t bound,
                        struct shape *out)
{
    const struct tensor_view *view = &m->options->values[bound].view;
    bool fits = view->dtype == onnx_dtype(input->type) && view->shape.rank == input->rank;
    for (uint32_t d = 0; d < input->rank && fits; d++)
        fits = !onnx_axis_is_fixed(&input->dims[d]) || input->dims[d].value == view->shape.dim[d];
    *out = view->shape;
    if (!fits)
        map_invalid(m, "the value given for input '%s' has another type or shape", input->name);
}

static void value_missing(struct mapper *m, const struct onnx_value_info *input, uint32_t d)
{
    const char *param = input->dims[d].param, *letter = param;
    while (letter && *letter && !isalnum((unsigned char)*letter))
        letter++; /* several dimensions may be called "?" */
    if (letter && *letter)
        map_invalid(m,
                    "input '%s': dimension %u ('%s') needs a value: give --dim %s=N, or several "
                    "by --shape, or N there if it counts instances",
                    input->name, d, param, param);
    else
        map_invalid(m,
                    "input '%s': dimension %u needs a value: give --dim %s:%u=N, or several by "
                    "--shape, or N there if it counts instances",
                    input->name, d, input->name, d);
}

static void input_shape(struct mapper *m, const struct onnx_value_info *input, uint32_t bound,
                        struct shape *out)
{
    out->rank = input->rank;
    if (!input->is_tensor)
        map_refuse(m,
                   "input '%s' is not a tensor: sequences are not supported, give tensors as "
                   "inputs of their own",
                   input->name);
    else if (onnx_dtype(input->type) == DTYPE_NONE)
        map_refuse(m, "input '%s' has element type %s (%d)%s", input->name,
                   onnx_type_name(input->type), input->type,
                   input->type == ONNX_STRING ? ": turn texts into numbers before the model" : "");
    else if (!input->has_shape)
        map_refuse(m, "input '%s' has no shape", input->name);
    else if (bound != IR_NONE && !m->options->values[bound].text)
        bound_shape(m, input, bound, out);
    bool whole = bound != IR_NONE && !m->options->values[bound].text;
    for (uint32_t d = 0; d < input->rank && !whole && !map_failed(m); d++) {
        out->dim[d] = onnx_axis_value(m->model, m->options, input, d);
        if (out->dim[d] < 0)
            value_missing(m, input, d);
    }
}

static void import_input(struct mapper *m, const struct onnx_value_info *input)
{
    struct ir_graph *graph = m->graph;
    struct shape shape = {.rank = 0};
    uint32_t bound = binding_of(m->options, input->name);
    input_shape(m, input, bound, &shape);
    if (!map_failed(m) && graph->n_inputs == IR_MAX_IO)
        map_refuse(m, "more than %d inputs", IR_MAX_IO);
    if (map_failed(m))
        return;
    enum dtype type = onnx_dtype(input->type);
    size_t bytes;
    if (!shape_bytes(&shape, type, &bytes))
        map_invalid(m, "input '%s' is too large", input->name);
    uint32_t tensor = map_failed(m) ? IR_NONE : ir_tensor_add(graph, input->name, type, &shape);
    if (tensor == IR_NONE) {
        map_exhausted(m);
        return;
    }
    m->bound[graph->n_inputs] = bound;
    graph->inputs[graph->n_inputs++] = tensor;
    map_value_add(m, input->name, tensor);
    if (bound != IR_NONE && m->options->values[bound].text)
        map_bind_text(m, tensor, m->options->values[bound].text);
}

/* A dimension that the file fixes takes no other value. */
static enum status axis_check(const struct onnx_value_info *input, uint32_t d, const char *wanted,
                              int64_t value, struct error *err)
{
    const struct onnx_axis *axis = &input->dims[d];
    if (!onnx_axis_is_fixed(axis) || axis->value == value)
        return STATUS_OK;
    return error_set(err, STATUS_INVALID_ARGUMENT, "--dim %.64s=%lld: the model fixes it at %lld",
                     wanted, (long long)value, (long long)axis->value);
}

/* A value for a dimension that no input has means that the name was mistyped. */
static enum status dim_check(const struct onnx_model *model, const char *wanted, int64_t value,
                             struct error *err)
{
    struct names names;
    names_init(&names, wanted, strlen(wanted));
    for (uint32_t i = 0; i < model->graph.n_inputs; i++) {
        const struct onnx_value_info *input = &model->graph.inputs[i];
        for (uint32_t d = 0; d < input->rank; d++) {
            const char *param = input->dims[d].param;
            if (onnx_is_initializer(model, input->name))
                continue;
            if (onnx_names_axis(wanted, input->name, d))
                return axis_check(input, d, wanted, value, err);
            if (!param)
                continue;
            if (!strcmp(param, wanted))
                return STATUS_OK;
            if (!names_has(&names, param))
                names_add(&names, param);
        }
    }
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     "--dim %.64s: no input has such a dimension; those with names: %s; others are "
                     "reached as INPUT:AXIS",
                     wanted, names_text(&names));
}

/* The same of the value of an input. */
static enum status value_check(const struct onnx_model *model, const struct onnx_value *value,
                               struct error *err)
{
    struct names names;
    names_init(&names, value->name, strlen(value->name));
    for (uint32_t i = 0; value->text && i < onnx_n_inputs(model); i++) {
        uint32_t rank;
        const char *name = onnx_input(model, i, &rank);
        if (!strcmp(name, value->name))
            return STATUS_OK;
        names_add(&names, name);
    }
    return value->text ? error_set(err, STATUS_INVALID_ARGUMENT,
                                   "--value %.64s: the model has no such input; it has %s",
                                   value->name, names_text(&names))
                       : STATUS_OK;
}

enum status map_dims_check(const struct onnx_model *model, const struct onnx_options *options,
                           struct error *err)
{
    for (uint32_t i = 0; i < options->n_dims; i++)
        TRY(dim_check(model, options->dims[i].name, options->dims[i].value, err));
    for (uint32_t i = 0; i < options->n_values; i++)
        TRY(value_check(model, &options->values[i], err));
    return STATUS_OK;
}

/* If something other than a node has just failed, a survey takes the failure, and the import goes
 * on. */
static void surveyed(struct mapper *m)
{
    if (map_failed(m) && m->survey)
        survey_take(m, NULL, true);
}

/* Old files list every initializer as an input, too. */
static void import_inputs(struct mapper *m)
{
    for (uint32_t i = 0; i < m->model->graph.n_inputs && !map_failed(m); i++) {
        if (!onnx_is_initializer(m->model, m->model->graph.inputs[i].name))
            import_input(m, &m->model->graph.inputs[i]);
        surveyed(m);
    }
}

static void import_initializers(struct mapper *m, const struct onnx_graph *graph)
{
    if (graph->n_sparse)
        map_refuse(m, "sparse initializers");
    for (uint32_t i = 0; i < graph->n_initializers && !map_failed(m); i++) {
        const struct onnx_tensor *tensor = &graph->initializers[i];
        uint32_t id = emit_tensor(m, tensor, true);
        surveyed(m);
        if (map_failed(m) || id == IR_NONE)
            continue;
        if (!ir_tensor(m->graph, id)->name[0]) {
            char *name = arena_strndup(m->graph->arena, tensor->name, ONNX_MAX_NAME);
            if (!name)
                map_exhausted(m);
            else
                ir_tensor(m->graph, id)->name = name;
        }
        map_value_add(m, tensor->name, id);
        if (tensor_is_narrow(tensor->type))
            map_value_narrow(m, tensor->name, tensor->type);
    }
}

/* --- nodes --- */

static int64_t opset_of(const struct onnx_model *model, const char *domain)
{
    for (uint32_t i = 0; i < model->n_opsets; i++) {
        const char *known = model->opsets[i].domain;
        if (!strcmp(known, domain) || (!domain[0] && !strcmp(known, "ai.onnx")))
            return model->opsets[i].version;
    }
    return domain[0] ? 0 : 1;
}

/* Says whether the node calls a function that the file itself defines. */
static bool is_function(const struct onnx_model *model, const struct onnx_node *node)
{
    for (uint32_t i = 0; i < model->n_functions; i++)
        if (!strcmp(model->functions[i].name, node->op) &&
            !strcmp(model->functions[i].domain, node->domain))
            return true;
    return false;
}

static const char *label_of(struct mapper *m, const struct onnx_node *node, uint32_t index)
{
    struct arena *arena = m->graph->arena;
    const char *label = node->name;
    if (!label[0])
        label = arena_printf(arena, "%s_%u", node->op, index);
    if (label && m->scope->outer)
        label = arena_printf(arena, "%s%.*s", m->scope->prefix, MAP_NAME_PART, label);
    if (!label)
        map_exhausted(m);
    return label ? label : "";
}

/* What to do about ops that are not tensors' alone. */
static const struct {
    const char *begins, *instead;
} advice[] = {
    {"Sequence", "there are no sequences: let the model keep tensors, and join them by Concat"},
    {"SplitToSequence", "there are no sequences: Split gives tensors"},
    {"ConcatFromSequence", "there are no sequences: Concat joins tensors"},
    {"Optional", "there are no optional values: export the model for the inputs that are there"},
    {"String", "there are no strings: let the program that asks turn texts into numbers"},
    {"Regex", "there are no strings: let the program that asks turn texts into numbers"},
    {"TfIdf", "there are no strings: let the program that asks turn texts into numbers"},
    {"LabelEncoder", "there are no strings: let the program that asks turn texts into numbers"},
    {"ImageDecoder", "there are no files: let the program that asks send the pixels"},
};

static void refuse_op(struct mapper *m, const char *op)
{
    for (size_t i = 0; i < ARRAY_LEN(advice); i++)
        if (!strncmp(op, advice[i].begins, strlen(advice[i].begins))) {
            map_refuse(m, "this op is not supported: %s", advice[i].instead);
            return;
        }
    map_refuse(m, "this op is not supported");
}

void map_node_begin(struct mapper *m, const struct onnx_node *node, uint32_t index)
{
    const struct map_op *other;
    m->node = node;
    m->opset = opset_of(m->model, node->domain);
    m->n_emitted = 0;
    m->label = label_of(m, node, index);
    m->row = map_op_find(node->domain, node->op, m->opset, &other);
    if (!m->row && !other)
        m->row = map_plugin_row(node->domain, node->op);
    if (m->row)
        map_check_form(m);
    else if (other)
        map_refuse(m, "this op is supported from opset %d to %d", other->first, other->last);
    else if (is_function(m->model, node))
        map_refuse(m,
                   "'%s' of domain '%s' is a function of the model; inline it, e.g. by "
                   "onnx.inliner.inline_local_functions",
                   node->op, node->domain);
    else if (node->domain[0] && map_domain_known(node->domain))
        map_refuse(m, "this op of domain '%s' is not supported", node->domain);
    else if (node->domain[0])
        map_refuse(m, "the op's domain '%s' is not supported, and no plugin has it", node->domain);
    else
        refuse_op(m, node->op);
}

static void import_node(struct mapper *m, const struct onnx_node *node, uint32_t index)
{
    uint32_t first = m->graph->n_nodes;
    if (settled_take(m, node, index))
        return;
    settled_begin(m, node);
    map_node_begin(m, node, index);
    bool formed = !map_failed(m), late = formed && late_reads(m, node);
    if (formed && !late)
        map_check_operands(m);
    if (!map_failed(m) && !late)
        m->row->map(m);
    if (late || late_takes(m, first))
        late_add(m, node, index);
    if (map_failed(m) && m->survey && !(m->late && m->unknown))
        survey_take(m, node, formed);
    settled_end(m, node, index);
}

static void import_nodes(struct mapper *m, const struct onnx_graph *graph)
{
    if (opset_of(m->model, "") > MAP_OPSET_LAST)
        map_refuse(m, "opset %lld, the newest that is known is %d",
                   (long long)opset_of(m->model, ""), MAP_OPSET_LAST);
    for (uint32_t i = 0; i < graph->n_nodes && !map_failed(m); i++) {
        if (!m->survey || !survey_lacks(m, &graph->nodes[i]))
            import_node(m, &graph->nodes[i], i);
        if (graph == &m->model->graph)
            map_node_done(m, &graph->nodes[i]);
    }
    if (!map_failed(m))
        m->node = NULL;
}

/* Collects the names that anything reads, so that unused outputs cost nothing and are no reason to
 * refuse a model. All graphs share one table, because a name that an inner graph reads may be an
 * outer graph's. */
static void collect_uses(struct mapper *m, const struct onnx_graph *graph)
{
    for (uint32_t i = 0; i < graph->n_nodes && !map_failed(m); i++) {
        const struct onnx_node *node = &graph->nodes[i];
        for (uint32_t k = 0; k < node->n_inputs && !map_failed(m); k++)
            map_use_add(m, node->inputs[k]);
    }
    for (uint32_t i = 0; i < graph->n_outputs && !map_failed(m); i++)
        map_use_add(m, graph->outputs[i].name);
}

/* --- graphs within nodes --- */

const struct onnx_graph *map_graph(struct mapper *m, const char *name)
{
    const struct onnx_attr *attr = map_failed(m) ? NULL : map_attr(m, name);
    if (map_failed(m))
        return NULL;
    if (!attr)
        map_invalid(m, "attribute '%s' is missing", name);
    else if (!attr->graph)
        map_refuse(m, "graphs within graphs, more than %d deep", ONNX_MAX_DEPTH);
    return attr ? attr->graph : NULL;
}

static uint32_t unrolled_max(const struct mapper *m)
{
    return m->computes ? COMPUTED_MAX : UNROLLED_MAX;
}

void map_unroll(struct mapper *m, const struct onnx_graph *graph)
{
    if (graph->n_nodes > unrolled_max(m) - m->unrolled)
        map_refuse(m, "more than %u nodes in its branches or iterations", unrolled_max(m));
    else
        m->unrolled += graph->n_nodes;
}

static void import_body(struct mapper *m, const struct onnx_graph *graph, const uint32_t *inputs,
                        uint32_t *outputs)
{
    bool found;
    for (uint32_t i = 0; i < graph->n_inputs; i++) {
        m->settles = settled_input(m, i);
        map_value_add(m, graph->inputs[i].name, inputs[i]);
    }
    map_unroll(m, graph);
    if (map_failed(m))
        return;
    m->settles = m->settled;
    import_initializers(m, graph);
    m->settles = false;
    import_nodes(m, graph);
    for (uint32_t i = 0; i < graph->n_outputs && !map_failed(m); i++) {
        outputs[i] = map_value_find(m, graph->outputs[i].name, &found);
        if (!found)
            map_invalid(m, "output '%s' of graph '%s' is written by no node",
                        graph->outputs[i].name, graph->name);
    }
}

void map_body(struct mapper *m, const struct onnx_graph *graph, const char *tag,
              struct settled *settled, const uint32_t *inputs, uint32_t *outputs)
{
    struct settled *outside = m->settled;
    struct scope scope = {.outer = m->scope};
    const struct onnx_node *node = m->node;
    const struct map_op *row = m->row;
    const char *label = m->label;
    int64_t opset = m->opset;
    uint32_t n_emitted = m->n_emitted;
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        outputs[i] = IR_NONE;
    if (map_failed(m))
        return;
    scope.prefix = arena_printf(m->graph->arena, "%s/%s/", label, tag);
    if (!scope.prefix) {
        map_exhausted(m);
        return;
    }
    m->scope = &scope;
    m->settled = settled;
    import_body(m, graph, inputs, outputs);
    map_scope_free(m, &scope);
    m->settled = outside;
    m->scope = scope.outer;
    m->node = node;
    m->row = row;
    m->label = label;
    m->opset = opset;
    m->n_emitted = n_emitted;
}

/* --- outputs --- */

/* An input, a constant, or a tensor that is already an output under another name is copied. */
uint32_t map_own_output(struct mapper *m, uint32_t tensor, const char *name)
{
    struct ir_tensor *t = ir_tensor(m->graph, tensor);
    if (t->producer == IR_NONE || ir_tensor_is_output(m->graph, tensor)) {
        m->label = name;
        m->n_emitted = 0;
        tensor = emit_begin(m, IR_OP_UNARY, 1, &tensor);
        emit_int(m, tensor, IR_ATTR_FUNC, IR_UNARY_IDENTITY);
        const char *names[] = {name};
        if (!map_failed(m) && ir_infer_apply(m->graph, tensor, names, 1, NULL))
            map_exhausted(m); /* any tensor can be copied */
        return map_failed(m) ? IR_NONE : ir_node(m->graph, tensor)->outputs[0];
    }
    if (strcmp(t->name, name)) {
        t->name = arena_strndup(m->graph->arena, name, ONNX_MAX_NAME);
        if (!t->name) {
            t->name = "";
            map_exhausted(m);
        }
    }
    return tensor;
}

static void import_output(struct mapper *m, const struct onnx_value_info *output)
{
    bool found;
    uint32_t tensor = map_value_find(m, output->name, &found);
    if (!found && m->survey && (m->survey->n_refused || m->late->n))
        return; /* a refused node may have been its writer, or a late one is */
    if (!found)
        map_invalid(m, "output '%s' is written by no node", output->name);
    else if (m->graph->n_outputs == IR_MAX_IO)
        map_refuse(m, "more than %d outputs", IR_MAX_IO);
    else if (map_dtype(m, tensor) == DTYPE_F8)
        map_refuse(m, "output '%s' has element type %s", output->name,
                   onnx_type_name(ONNX_FLOAT8E4M3FN));
    else if (output->is_tensor && output->type && onnx_dtype(output->type) != map_dtype(m, tensor))
        map_invalid(m, "output '%s' is declared as %s, and is %s", output->name,
                    onnx_type_name(output->type), dtype_name(map_dtype(m, tensor)));
    if (map_failed(m))
        return;
    tensor = map_own_output(m, tensor, output->name);
    if (!map_failed(m))
        m->graph->outputs[m->graph->n_outputs++] = tensor;
}

/* An input whose value went into the graph is no input of the result. */
static void drop_taken_inputs(struct mapper *m)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < m->graph->n_inputs; i++) {
        if (!m->taken[i])
            m->graph->inputs[kept++] = m->graph->inputs[i];
    }
    m->graph->n_inputs = kept;
}

/* Whether the outputs are the tail's. */
static bool tailed(const struct mapper *m)
{
    return m->late && m->late->n && !m->survey;
}

static void import_graph(struct mapper *m)
{
    const struct onnx_graph *graph = &m->model->graph;
    for (const struct onnx_graph *g = graph; g && !map_failed(m); g = g->next)
        collect_uses(m, g);
    import_initializers(m, graph);
    if (!map_failed(m))
        m->status = map_dims_check(m->model, m->options, m->err);
    import_inputs(m);
    import_nodes(m, graph);
    if (!map_failed(m) && !graph->n_outputs)
        map_invalid(m, "the graph has no outputs");
    if (tailed(m) && !map_failed(m))
        late_finish(m, m->options->tail);
    for (uint32_t i = 0; i < graph->n_outputs && !map_failed(m) && !tailed(m); i++)
        import_output(m, &graph->outputs[i]);
    surveyed(m);
    drop_taken_inputs(m);
}

struct ir_graph *map_graph_new(struct onnx_model *model)
{
    struct ir_graph *graph = ir_graph_new();
    if (!graph)
        return NULL;
    if (!ir_graph_hold(graph, onnx_model_ref(model), onnx_model_unref)) {
        onnx_model_unref(model);
        ir_graph_free(graph);
        return NULL;
    }
    graph->name = arena_strndup(graph->arena, model->graph.name, ONNX_MAX_NAME);
    if (!graph->name) {
        ir_graph_free(graph);
        return NULL;
    }
    return graph;
}

enum status map_import(struct onnx_model *model, const struct onnx_options *options,
                       struct onnx_survey *survey, struct ir_graph **out, struct error *err)
{
    struct scope names = {.prefix = ""};
    struct late late = {.n = 0};
    struct mapper m = {.model = model,
                       .late = options->tail || survey ? &late : NULL,
                       .scope = &names,
                       .options = options,
                       .graph = map_graph_new(model),
                       .fold_budget = fold_budget,
                       .fold_work = fold_work,
                       .survey = survey,
                       .err = err};
    if (!m.graph)
        return error_no_memory(err, "a graph");
    CLEANUP(ir_graph_cleanup) struct ir_graph *graph = m.graph;
    import_graph(&m);
    if (survey)
        survey->n_late = late.n;
    map_scope_free(&m, &names);
    map_set_free(&late.names);
    free(late.nodes);
    map_tables_free(&m);
    TRY(m.status);
    if (survey)
        return STATUS_OK;
    TRY(ir_graph_compact(graph, err));
    TRY(ir_verify(graph, err));
    log_write(options->log, LOG_VERBOSE, "imported '%s': %u nodes%s became %u", graph->name,
              model->graph.n_nodes, model->reordered ? ", put in order," : "", graph->n_nodes);
    if (options->steps)
        *options->steps = m.steps;
    *out = STEAL(graph);
    return STATUS_OK;
}

/* --- computing --- */

struct onnx_memory *onnx_memory_new(void)
{
    return (struct onnx_memory *)blocks_new();
}

void onnx_memory_free(struct onnx_memory *memory)
{
    blocks_free((struct blocks *)memory);
}

void onnx_memory_rest(struct onnx_memory *memory)
{
    blocks_rest((struct blocks *)memory);
}

static const void *const no_bytes = "";

static void bind_known(struct mapper *m, const struct tensor_view *inputs)
{
    for (uint32_t i = 0; i < m->model->graph.n_inputs && !map_failed(m); i++) {
        const struct tensor_view *v = &inputs[i];
        const char *name = m->model->graph.inputs[i].name;
        uint32_t tensor = emit_constant(m, v->dtype, &v->shape, v->data ? v->data : no_bytes);
        if (!map_failed(m))
            map_value_add(m, name, tensor);
    }
}

static void take_known(struct mapper *m, struct tensor_view *outputs)
{
    const struct onnx_graph *graph = &m->model->graph;
    m->node = NULL;
    for (uint32_t i = 0; i < graph->n_outputs && !map_failed(m); i++) {
        bool found;
        const struct onnx_value_info *info = &graph->outputs[i];
        uint32_t tensor = map_value_find(m, info->name, &found);
        const struct ir_tensor *t = found ? ir_tensor(m->graph, tensor) : NULL;
        if (!t || !ir_tensor_is_constant(t) || t->dtype != onnx_dtype(info->type))
            map_invalid(m, "output '%s' is %s, and not the %s that it should be", info->name,
                        t ? dtype_name(t->dtype) : "not made", onnx_type_name(info->type));
        else
            outputs[i] = (struct tensor_view){t->dtype, t->shape, (void *)(uintptr_t)t->data};
    }
}

enum status onnx_compute(struct onnx_model *model, const struct onnx_computing *how,
                         struct tensor_view *outputs, struct ir_graph **memory, struct error *err)
{
    const struct onnx_options options = {.batch = 1, .evaluator = how->evaluator};
    struct scope names = {.prefix = ""};
    struct error why;
    struct mapper m = {.model = model,
                       .scope = &names,
                       .options = &options,
                       .graph = map_graph_new(model),
                       .fold_budget = how->memory_max,
                       .fold_work = UINT64_MAX,
                       .computes = true,
                       .blocks = (struct blocks *)how->memory,
                       .bodies = how->bodies,
                       .n_bodies = how->n_bodies,
                       .err = &why};
    if (!m.graph)
        return error_no_memory(err, "a graph");
    CLEANUP(ir_graph_cleanup) struct ir_graph *graph = m.graph;
    for (const struct onnx_graph *g = &model->graph; g && !map_failed(&m); g = g->next)
        collect_uses(&m, g);
    import_initializers(&m, &model->graph);
    bind_known(&m, how->inputs);
    import_nodes(&m, &model->graph);
    take_known(&m, outputs);
    map_scope_free(&m, &names);
    map_tables_free(&m);
    if (m.status == STATUS_UNIMPLEMENTED) /* the same model was fine with other values */
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s", why.text);
    if (m.status)
        return error_copy(err, &why);
    *memory = STEAL(graph);
    return STATUS_OK;
}

enum status onnx_import(struct onnx_model *model, const struct onnx_options *options,
                        struct ir_graph **out, struct error *err)
{
    return map_import(model, options, NULL, out, err);
}
