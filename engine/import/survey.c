/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Answers questions about a model without building it. A survey goes over all nodes twice. First it
 * looks each node up in the table of ops, which needs no shapes and so covers every graph of the
 * file. Then it imports the model, notes each refusal, and leaves out the nodes that depend on the
 * refused one.
 */
#include "engine/import/survey.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/import/dims.h"

const char *onnx_input_dim(const struct onnx_model *model, const char *input, uint32_t axis)
{
    for (uint32_t i = 0; i < model->graph.n_inputs; i++) {
        const struct onnx_value_info *info = &model->graph.inputs[i];
        if (!strcmp(info->name, input))
            return info->has_shape && axis < info->rank ? info->dims[axis].param : NULL;
    }
    return NULL;
}

/* --- findings --- */

static void count(struct onnx_finding *list, uint32_t *n, const struct onnx_finding *one)
{
    for (uint32_t i = 0; i < *n; i++) {
        bool same = !one->op || !list[i].op ? one->op == list[i].op : !strcmp(list[i].op, one->op);
        if (!same || (one->why && strcmp(list[i].why, one->why) != 0))
            continue;
        list[i].n++;
        return;
    }
    if (*n < ONNX_FINDINGS_MAX)
        list[(*n)++] = *one;
}

/* Notes a refusal, with the mapper's error as the reason. */
static void refuse(struct onnx_survey *s, const struct onnx_node *node, const char *label,
                   const char *text)
{
    struct onnx_finding one = {.n = 1,
                               .op = node ? node->op : NULL,
                               .first = arena_strndup(s->arena, label, ONNX_MAX_NAME),
                               .why = arena_strndup(s->arena, text, ERROR_TEXT_MAX)};
    if (one.first && one.why)
        count(s->refused, &s->n_refused, &one);
    else
        s->exhausted = true;
}

static bool about_the_model(enum status status)
{
    return status == STATUS_UNIMPLEMENTED || status == STATUS_INVALID_ARGUMENT;
}

void survey_take(struct mapper *m, const struct onnx_node *node, bool formed)
{
    if (!about_the_model(m->status))
        return; /* the import is not worth going on with */
    if (formed && !m->survey->silent)
        refuse(m->survey, node, node ? m->label : "", m->err->text);
    m->survey->silent = m->scope->outer != NULL; /* the node around this graph reports it again */
    if (!m->survey->silent)
        m->status = STATUS_OK;
}

bool survey_lacks(struct mapper *m, const struct onnx_node *node)
{
    bool found = true;
    for (uint32_t i = 0; i < node->n_inputs && found && m->survey->n_refused; i++)
        if (node->inputs[i][0])
            map_value_find(m, node->inputs[i], &found);
    return !found;
}

/* --- the table of ops --- */

/* Looks up every node of a graph. Each has a mapper of its own, because a mapper fails only
 * once. */
static void look(struct onnx_survey *s, struct onnx_model *model, const struct onnx_graph *graph)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct onnx_node *node = &graph->nodes[i];
        struct error why;
        struct ir_graph names = {.arena = s->arena};
        struct scope scope = {.prefix = ""};
        struct mapper m = {
            .model = model, .graph = &names, .scope = &scope, .err = &why, .survey = s};
        const struct onnx_finding op = {.op = node->op, .n = 1};
        map_node_begin(&m, node, i);
        if (about_the_model(m.status))
            refuse(s, node, m.label, why.text);
        else
            s->exhausted |= map_failed(&m);
        count(s->ops, &s->n_ops, &op);
        s->n_nodes++;
    }
}

static int by_number(const void *a, const void *b)
{
    const struct onnx_finding *x = a, *y = b;
    return x->n != y->n ? (x->n < y->n ? 1 : -1) : strcmp(x->op, y->op);
}

/* --- what the file says --- */

static const char *opsets_text(const struct onnx_model *model, struct arena *arena)
{
    const char *text = "";
    for (uint32_t i = 0; i < model->n_opsets && text; i++) {
        const struct onnx_opset *set = &model->opsets[i];
        text = arena_printf(arena, "%s%s%.64s%s%lld", text, i ? ", " : "", set->domain,
                            *set->domain ? " " : "", (long long)set->version);
    }
    return text ? text : "";
}

/* A 0 behind an input's first dimension is a size, if it has no name (onnx_axis_value). */
static bool is_number(const struct onnx_axis *axis, uint32_t place, bool input)
{
    return onnx_axis_is_fixed(axis) || (input && place && !axis->param && axis->value == 0);
}

static bool value_fill(const struct onnx_value_info *from, bool input, struct arena *arena,
                       struct onnx_survey_value *out)
{
    enum dtype dtype = onnx_dtype(from->type);
    *out = (struct onnx_survey_value){
        .name = from->name, .has_shape = from->has_shape, .rank = from->rank};
    out->type = !from->is_tensor      ? "not a tensor"
                : dtype == DTYPE_NONE ? onnx_type_name(from->type)
                                      : dtype_name(dtype);
    bool ok = true;
    for (uint32_t d = 0; d < from->rank && ok; d++) {
        const struct onnx_axis *axis = &from->dims[d];
        out->sizes[d] = is_number(axis, d, input) ? axis->value : -1;
        out->dims[d] = axis->param ? axis->param : "?";
        if (out->sizes[d] >= 0)
            ok = (out->dims[d] = arena_printf(arena, "%lld", (long long)axis->value)) != NULL;
    }
    return ok;
}

static bool values_fill(const struct onnx_model *model, const struct onnx_value_info *from,
                        uint32_t n, bool inputs, struct arena *arena,
                        struct onnx_survey_value **out, uint32_t *n_out)
{
    bool ok = (*out = arena_array(arena, n + 1, sizeof(**out))) != NULL;
    for (uint32_t i = 0; i < n && ok; i++)
        if (!inputs || !onnx_is_initializer(model, from[i].name))
            ok = value_fill(&from[i], inputs, arena, &(*out)[(*n_out)++]);
    return ok;
}

static void axes_fill(const struct onnx_model *model, const struct onnx_options *options,
                      struct onnx_survey_value *inputs)
{
    for (uint32_t i = 0, n = 0; i < model->graph.n_inputs; i++) {
        const struct onnx_value_info *input = &model->graph.inputs[i];
        if (onnx_is_initializer(model, input->name))
            continue;
        for (uint32_t d = 0; d < input->rank; d++)
            inputs[n].axes[d] = onnx_axis_state(model, options, input, d);
        n++;
    }
}

static uint64_t weights_of(const struct onnx_graph *graph)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < graph->n_initializers; i++) {
        const struct onnx_tensor *t = &graph->initializers[i];
        size_t bytes = 0;
        if (onnx_dtype(t->type) == DTYPE_NONE ||
            !shape_bytes(&t->shape, onnx_dtype(t->type), &bytes))
            bytes = t->raw.size;
        sum += bytes;
    }
    return sum;
}

/* Finds a dimension to which neither the batch nor the caller gives a value. */
static const char *unbound_dim(const struct onnx_model *model, const struct onnx_options *options)
{
    for (uint32_t i = 0; i < model->graph.n_inputs; i++) {
        const struct onnx_value_info *input = &model->graph.inputs[i];
        for (uint32_t d = 0; d < input->rank && !onnx_is_initializer(model, input->name); d++)
            if (input->dims[d].param && onnx_axis_value(model, options, input, d) < 0)
                return input->dims[d].param;
    }
    return NULL;
}

/* --- all of it --- */

static enum status survey(struct onnx_survey *s, struct onnx_model *model,
                          const struct onnx_options *options, struct error *err)
{
    const struct onnx_graph *graph = &model->graph;
    if (!values_fill(model, graph->inputs, graph->n_inputs, true, s->arena, &s->inputs,
                     &s->n_inputs) ||
        !values_fill(model, graph->outputs, graph->n_outputs, false, s->arena, &s->outputs,
                     &s->n_outputs))
        return error_no_memory(err, "a survey");
    axes_fill(model, options, s->inputs);
    s->opsets = opsets_text(model, s->arena);
    s->unbound = unbound_dim(model, options);
    for (const struct onnx_graph *g = graph; g; g = g->next) {
        look(s, model, g);
        s->weight_bytes += weights_of(g);
    }
    qsort(s->ops, s->n_ops, sizeof(s->ops[0]), by_number);
    TRY(map_dims_check(model, options, err));
    if (!s->unbound)
        TRY(map_import(model, options, s, NULL, err));
    return s->exhausted ? error_no_memory(err, "a survey") : STATUS_OK;
}

static void survey_cleanup(struct onnx_survey **survey)
{
    onnx_survey_free(*survey);
}

enum status onnx_survey(struct onnx_model *model, const struct onnx_options *options,
                        struct onnx_survey **out, struct error *err)
{
    CLEANUP(survey_cleanup) struct onnx_survey *s = calloc(1, sizeof(*s));
    if (s)
        s->arena = arena_new(0);
    if (!s || !s->arena)
        return error_no_memory(err, "a survey");
    s->model = onnx_model_ref(model);
    struct error why; /* takes each refusal on its way into the list */
    enum status status = survey(s, model, options, &why);
    if (status)
        return error_copy(err, &why);
    *out = STEAL(s);
    return STATUS_OK;
}

void onnx_survey_free(struct onnx_survey *survey)
{
    if (!survey)
        return;
    if (survey->model)
        onnx_model_unref(survey->model);
    arena_free(survey->arena);
    free(survey);
}
