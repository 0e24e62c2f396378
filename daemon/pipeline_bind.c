/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binds a pipeline to its steps' models; see pipeline.h. A file is believed nothing: each tensor is
 * made once, by a step that is not behind those that read it, and fits whatever reads it.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/names.h"
#include "daemon/admission.h"
#include "daemon/fits.h"
#include "daemon/pipeline_internal.h"

enum { ARENA_BYTES = 4 << 20 };

enum status pipeline_refuse(const struct binder *b, const struct part *part, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    error_setv(b->err, STATUS_FAILED_PRECONDITION, fmt, args);
    va_end(args);
    if (part)
        error_prefix(b->err, "step %u '%s'", (unsigned)(part - b->parts) + 1, part->said->model);
    return STATUS_FAILED_PRECONDITION;
}

static enum status no_memory(const struct binder *b)
{
    error_no_memory(b->err, "a pipeline");
    return STATUS_RESOURCE_EXHAUSTED;
}

/* --- models --- */

const struct table_entry *pipeline_step_find(const struct table *table,
                                             const struct model_file_step *step)
{
    const struct message_text any = {0};
    return table_find(table, message_text_of(step->model),
                      step->version ? message_text_of(step->version) : any);
}

static enum status part_find(const struct binder *b, struct part *part)
{
    const struct table_entry *entry = pipeline_step_find(b->table, part->said);
    if (!entry)
        return pipeline_refuse(b, part, "there is no such model%s%s",
                               part->said->version ? ", version " : "",
                               part->said->version ? part->said->version : "");
    if (entry->state != MODEL_READY)
        return pipeline_refuse(b, part, "version %s is %s%s%s", entry->version,
                               model_state_name(entry->state), *entry->reason ? ": " : "",
                               entry->reason);
    part->model = entry->model;
    part->info = entry->model->info;
    part->inputs = arena_array(b->arena, part->info->n_inputs, sizeof(*part->inputs));
    part->outputs = arena_array(b->arena, part->info->n_outputs, sizeof(*part->outputs));
    part->own = arena_array(b->arena, (size_t)part->info->n_free + 1, sizeof(*part->own));
    return part->inputs && part->outputs && part->own ? STATUS_OK : no_memory(b);
}

/* Counts what the whole is made of, which is bounded, and makes room for it. */
static enum status parts_find(struct binder *b)
{
    struct pipeline *p = b->pipeline;
    size_t values = b->file->n_inputs, steps = 0, groups = 1;
    b->parts = arena_array(b->arena, b->file->n_steps, sizeof(*b->parts));
    if (!b->parts)
        return no_memory(b);
    p->depth = 1;
    for (uint32_t s = 0; s < b->file->n_steps; s++) {
        struct part *part = &b->parts[s];
        part->said = &b->file->steps[s];
        TRY(part_find(b, part));
        const struct pipeline *inner = part->model->pipeline;
        values += part->info->n_outputs + (inner ? inner->n_values : 0);
        steps += inner ? inner->n_steps : 1;
        groups += inner ? inner->n_groups : 0;
        p->depth = inner ? MAX(p->depth, inner->depth + 1) : p->depth;
        if (steps > PIPELINE_STEPS_MOST)
            return pipeline_refuse(b, part,
                                   "expected at most %d steps, with those of pipelines that are "
                                   "steps",
                                   PIPELINE_STEPS_MOST);
        if (p->depth > PIPELINE_DEPTH_MOST)
            return pipeline_refuse(b, part, "expected at most %d pipelines within each other",
                                   PIPELINE_DEPTH_MOST);
    }
    b->values = p->values = arena_array(b->arena, values, sizeof(*p->values));
    b->known = arena_array(b->arena, values, sizeof(*b->known));
    b->dims = arena_array(b->arena, values, sizeof(*b->dims));
    b->sizes = arena_array(b->arena, 1, sizeof(*b->sizes));
    p->steps = arena_array(b->arena, steps, sizeof(*p->steps));
    p->groups = arena_array(b->arena, groups, sizeof(*p->groups));
    bool made = p->values && b->known && b->dims && b->sizes && p->steps && p->groups;
    return made ? STATUS_OK : no_memory(b);
}

/* --- names --- */

static uint32_t value_find(const struct binder *b, const char *name)
{
    for (uint32_t v = 0; v < b->n_values; v++)
        if (strcmp(b->values[v].name, name) == 0)
            return v;
    return PIPELINE_NONE;
}

static uint32_t binding_find(const struct engine_binding *bindings, uint32_t n, const char *name)
{
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(bindings[i].name, name) == 0)
            return i;
    return PIPELINE_NONE;
}

static enum status no_binding(const struct binder *b, const struct part *part, const char *what,
                              const struct engine_binding *bindings, uint32_t n, const char *name)
{
    struct names names;
    names_init(&names, name, strlen(name));
    for (uint32_t i = 0; i < n; i++)
        names_add(&names, bindings[i].name);
    return pipeline_refuse(b, part, "the model has no %s '%s'; it has %s", what, name,
                           names_text(&names));
}

static uint32_t value_add(struct binder *b, const char *name, uint32_t maker)
{
    b->values[b->n_values] = (struct pipeline_value){.name = name, .maker = maker};
    return b->n_values++;
}

static enum status outputs_name(struct binder *b, struct part *part)
{
    const struct model_file_step *said = part->said;
    for (uint32_t k = 0; k < part->info->n_outputs; k++)
        part->outputs[k] = PIPELINE_NONE;
    for (uint32_t i = 0; i < said->n_outputs; i++) {
        const struct model_file_link *link = &said->outputs[i];
        uint32_t k = binding_find(part->info->outputs, part->info->n_outputs, link->inner);
        uint32_t v = value_find(b, link->outer);
        if (k == PIPELINE_NONE)
            return no_binding(b, part, "output", part->info->outputs, part->info->n_outputs,
                              link->inner);
        if (v != PIPELINE_NONE && v < b->file->n_inputs)
            return pipeline_refuse(b, part, "tensor '%s' is an input, and is made here",
                                   link->outer);
        if (v != PIPELINE_NONE)
            return pipeline_refuse(b, part, "tensor '%s' is made twice", link->outer);
        part->outputs[k] = value_add(b, link->outer, PIPELINE_NONE);
    }
    return STATUS_OK;
}

static enum status inputs_name(const struct binder *b, struct part *part)
{
    const struct model_file_step *said = part->said;
    for (uint32_t k = 0; k < part->info->n_inputs; k++)
        part->inputs[k] = PIPELINE_NONE;
    for (uint32_t i = 0; i < said->n_inputs; i++) {
        const struct model_file_link *link = &said->inputs[i];
        uint32_t k = binding_find(part->info->inputs, part->info->n_inputs, link->inner);
        uint32_t v = value_find(b, link->outer);
        if (k == PIPELINE_NONE)
            return no_binding(b, part, "input", part->info->inputs, part->info->n_inputs,
                              link->inner);
        if (v == PIPELINE_NONE)
            return pipeline_refuse(b, part, "tensor '%s' is made by no step, and is no input",
                                   link->outer);
        part->inputs[k] = v;
    }
    for (uint32_t k = 0; k < part->info->n_inputs; k++)
        if (part->inputs[k] == PIPELINE_NONE)
            return pipeline_refuse(b, part, "the model's input '%s' gets no tensor",
                                   part->info->inputs[k].name);
    return STATUS_OK;
}

static enum status names_bind(struct binder *b)
{
    for (uint32_t i = 0; i < b->file->n_inputs; i++)
        value_add(b, b->file->inputs[i].name, PIPELINE_NONE);
    for (uint32_t s = 0; s < b->file->n_steps; s++)
        TRY(outputs_name(b, &b->parts[s]));
    b->n_named = b->n_values;
    for (uint32_t s = 0; s < b->file->n_steps; s++)
        TRY(inputs_name(b, &b->parts[s]));
    return STATUS_OK;
}

/* --- what runs --- */

static enum status step_make(struct binder *b, const char *name, struct model *model,
                             uint32_t group, struct pipeline_step **out)
{
    struct pipeline *p = b->pipeline;
    struct pipeline_step *step = &p->steps[p->n_steps];
    *step = (struct pipeline_step){
        .name = name,
        .group = group,
        .inputs = arena_array(b->arena, model->info->n_inputs, sizeof(*step->inputs)),
        .outputs = arena_array(b->arena, model->info->n_outputs, sizeof(*step->outputs))};
    if (!name || !step->inputs || !step->outputs)
        return no_memory(b);
    step->model = model_ref(model);
    p->n_steps++;
    for (uint32_t g = group; g != PIPELINE_NONE; g = p->groups[g].parent)
        p->groups[g].n_steps++;
    *out = step;
    return STATUS_OK;
}

static const char *part_name(const struct binder *b, const struct part *part, const char *within)
{
    return arena_printf(b->arena, "step %u '%s'%s%s", (unsigned)(part - b->parts) + 1,
                        part->said->model, within ? ": " : "", within ? within : "");
}

static enum status leaf_make(struct binder *b, const struct part *part)
{
    struct pipeline_step *step;
    uint32_t at = b->pipeline->n_steps;
    TRY(step_make(b, part_name(b, part, NULL), part->model, 0, &step));
    memcpy(step->inputs, part->inputs, part->info->n_inputs * sizeof(*step->inputs));
    memcpy(step->outputs, part->outputs, part->info->n_outputs * sizeof(*step->outputs));
    for (uint32_t k = 0; k < part->info->n_outputs; k++)
        if (part->outputs[k] != PIPELINE_NONE)
            b->values[part->outputs[k]].maker = at;
    return STATUS_OK;
}

/* The value that stands for each of an inner pipeline's. */
static enum status inner_values(struct binder *b, const struct part *part, uint32_t **out)
{
    const struct pipeline *inner = part->model->pipeline;
    uint32_t *map = arena_array(b->arena, inner->n_values, sizeof(*map));
    if (!map)
        return no_memory(b);
    for (uint32_t v = 0; v < inner->n_values; v++)
        map[v] = v < inner->info.n_inputs ? part->inputs[v] : PIPELINE_NONE;
    for (uint32_t k = 0; k < inner->info.n_outputs; k++)
        if (part->outputs[k] != PIPELINE_NONE)
            map[inner->outputs[k]] = part->outputs[k];
    for (uint32_t v = 0; v < inner->n_values; v++) {
        if (map[v] != PIPELINE_NONE)
            continue;
        map[v] = value_add(b, inner->values[v].name, PIPELINE_NONE);
        struct pipeline_value *value = &b->values[map[v]];
        value->dtype = inner->values[v].dtype;
        value->bytes = inner->values[v].bytes;
        pipeline_tensor_make(b, part, map[v], &inner->values[v].shape, &inner->values[v].axes);
    }
    *out = map;
    return STATUS_OK;
}

static enum status inner_make(struct binder *b, const struct part *part)
{
    const struct pipeline *inner = part->model->pipeline;
    struct pipeline *p = b->pipeline;
    uint32_t first_group = p->n_groups, *map = NULL;
    TRY(inner_values(b, part, &map));
    for (uint32_t g = 0; g < inner->n_groups; g++) {
        struct model *model = g ? inner->groups[g].model : part->model;
        p->groups[p->n_groups++] = (struct pipeline_group){
            .model = model_ref(model), .parent = g ? first_group + inner->groups[g].parent : 0};
    }
    for (uint32_t s = 0; s < inner->n_steps; s++) {
        const struct pipeline_step *from = &inner->steps[s];
        struct pipeline_step *step;
        uint32_t at = p->n_steps;
        TRY(step_make(b, part_name(b, part, from->name), from->model, first_group + from->group,
                      &step));
        for (uint32_t k = 0; k < from->model->info->n_inputs; k++)
            step->inputs[k] = map[from->inputs[k]];
        for (uint32_t k = 0; k < from->model->info->n_outputs; k++) {
            step->outputs[k] =
                from->outputs[k] == PIPELINE_NONE ? PIPELINE_NONE : map[from->outputs[k]];
            if (step->outputs[k] != PIPELINE_NONE)
                b->values[step->outputs[k]].maker = at;
        }
    }
    return STATUS_OK;
}

/* Counts who reads what. What nobody reads is dropped. */
static void uses_count(struct pipeline *p)
{
    for (uint32_t k = 0; k < p->info.n_outputs; k++)
        p->values[p->outputs[k]].users++;
    for (uint32_t s = 0; s < p->n_steps; s++)
        for (uint32_t k = 0; k < p->steps[s].model->info->n_inputs; k++) {
            p->values[p->steps[s].inputs[k]].users++;
            p->steps[s].waits += p->values[p->steps[s].inputs[k]].maker != PIPELINE_NONE;
        }
    for (uint32_t s = 0; s < p->n_steps; s++)
        for (uint32_t k = 0; k < p->steps[s].model->info->n_outputs; k++)
            if (p->steps[s].outputs[k] != PIPELINE_NONE && !p->values[p->steps[s].outputs[k]].users)
                p->steps[s].outputs[k] = PIPELINE_NONE;
}

/* Whether the step's model takes the input from the device alone. */
static bool takes_apart(const struct pipeline_step *step, uint32_t input)
{
    const struct engine *engine = step->model->engine;
    return engine && engine_input_apart(engine, input);
}

/* Finds the tensors that may stay on the device between steps. Late results never do. */
static void shelves_bind(struct pipeline *p)
{
    for (uint32_t k = 0; k < p->info.n_outputs; k++)
        p->values[p->outputs[k]].watched = true;
    for (uint32_t s = 0; s < p->n_steps; s++)
        for (uint32_t k = 0; k < p->steps[s].model->info->n_inputs; k++) {
            struct pipeline_value *value = &p->values[p->steps[s].inputs[k]];
            value->taken = true;
            value->watched |= !takes_apart(&p->steps[s], k);
        }
    for (uint32_t s = 0; s < p->n_steps; s++)
        for (uint32_t k = 0; k < p->steps[s].model->info->n_outputs; k++) {
            uint32_t v = p->steps[s].outputs[k];
            if (v == PIPELINE_NONE || !p->values[v].taken || p->steps[s].model->info->late)
                continue;
            p->steps[s].shelve |= UINT64_C(1) << k;
            p->steps[s].unread |= (uint64_t)!p->values[v].watched << k;
        }
}

/* --- what clients see --- */

static struct engine_binding binding_of(const struct pipeline_value *value)
{
    return (struct engine_binding){value->name, value->dtype, value->shape, value->bytes};
}

static void outputs_bind(struct binder *b, struct engine_binding *outputs, struct engine_axes *axes)
{
    struct pipeline *p = b->pipeline;
    for (uint32_t i = 0; i < b->file->n_outputs; i++) {
        p->outputs[i] = pipeline_named_find(b, b->file->outputs[i].name);
        outputs[i] = binding_of(&b->values[p->outputs[i]]);
        axes[i] = b->values[p->outputs[i]].axes;
    }
}

static enum status batch_bind(struct binder *b)
{
    struct pipeline *p = b->pipeline;
    uint32_t wanted = b->file->config.max_batch;
    p->max_batch = 1;
    if (!b->counted)
        return STATUS_OK;
    p->max_batch = wanted ? wanted : UINT32_MAX;
    for (uint32_t s = 0; s < b->file->n_steps; s++) {
        const struct part *part = &b->parts[s];
        if (wanted && part->model->max_instances < wanted)
            return pipeline_refuse(b, part, "max_batch_size is %u; this model takes at most %u",
                                   wanted, part->model->max_instances);
        p->max_batch = MIN(p->max_batch, part->model->max_instances);
    }
    return STATUS_OK;
}

static enum status info_make(struct binder *b)
{
    struct pipeline *p = b->pipeline;
    uint32_t n_inputs = b->file->n_inputs, n_outputs = b->file->n_outputs;
    struct engine_binding *inputs = arena_array(b->arena, n_inputs, sizeof(*inputs));
    struct engine_binding *outputs = arena_array(b->arena, n_outputs, sizeof(*outputs));
    struct engine_axes *axes = arena_array(b->arena, (size_t)n_inputs + n_outputs, sizeof(*axes));
    p->outputs = arena_array(b->arena, n_outputs, sizeof(*p->outputs));
    if (!inputs || !outputs || !axes || !p->outputs)
        return no_memory(b);
    TRY(pipeline_tensors_settle(b, &p->info));
    for (uint32_t i = 0; i < n_inputs; i++) {
        inputs[i] = binding_of(&b->values[i]);
        axes[i] = b->values[i].axes;
    }
    outputs_bind(b, outputs, axes + n_inputs);
    TRY(batch_bind(b));
    p->info.name = p->info.device = "";
    p->info.batched = b->counted;
    p->info.max_batch = p->max_batch;
    p->info.n_inputs = n_inputs;
    p->info.n_outputs = n_outputs;
    p->info.inputs = inputs;
    p->info.outputs = outputs;
    p->info.input_axes = axes;
    p->info.output_axes = axes + n_inputs;
    return admission_model_check(&p->info, b->err);
}

/* --- the whole --- */

static enum status pipeline_make(struct binder *b)
{
    struct pipeline *p = b->pipeline;
    TRY(parts_find(b));
    assert(b->parts && b->values && b->known);
    TRY(names_bind(b));
    TRY(pipeline_tensors_bind(b));
    p->groups[p->n_groups++] = (struct pipeline_group){.parent = PIPELINE_NONE};
    for (uint32_t s = 0; s < b->file->n_steps; s++)
        TRY(b->parts[s].model->pipeline ? inner_make(b, &b->parts[s]) : leaf_make(b, &b->parts[s]));
    TRY(info_make(b));
    p->n_values = b->n_values;
    uses_count(p);
    shelves_bind(p);
    return STATUS_OK;
}

enum status pipeline_bind(const struct table *table, struct model_file *file, struct pipeline **out,
                          struct error *err)
{
    CLEANUP(arena_cleanup) struct arena *arena = arena_new(ARENA_BYTES);
    struct pipeline *p = arena ? arena_alloc(arena, sizeof(*p)) : NULL;
    if (!p)
        return error_no_memory(err, "a pipeline");
    *p = (struct pipeline){.arena = arena, .file = model_file_ref(file)};
    struct binder b = {
        .table = table, .file = file, .arena = STEAL(arena), .pipeline = p, .err = err};
    enum status status = pipeline_make(&b);
    if (status)
        pipeline_free(p);
    else
        *out = p;
    return status;
}

void pipeline_free(struct pipeline *p)
{
    if (!p)
        return;
    for (uint32_t s = 0; s < p->n_steps; s++)
        model_unref(p->steps[s].model);
    for (uint32_t g = 0; g < p->n_groups; g++)
        model_unref(p->groups[g].model);
    model_file_free(p->file);
    arena_free(p->arena);
}

/* What the limits leave to a request's tensors between the steps. */
static uint64_t room_most(const struct config_limits *limits)
{
    uint64_t budget = budget_limit(limits);
    return budget - budget / SLAB_SMALL_SHARE;
}

enum status pipeline_fits(const struct pipeline *p, const struct config_limits *limits,
                          uint32_t *max_instances, struct error *err)
{
    int64_t least[ENGINE_MAX_FREE] = {0};
    uint64_t most = room_most(limits);
    uint32_t fits = 0;
    for (uint32_t i = 0; i < p->info.n_free; i++)
        least[i] = p->info.free[i].low;
    TRY(fits_check(&p->info, limits, 1, p->max_batch, &fits, err));
    while (fits && slab_charge(pipeline_run_bytes(p, fits, least)) > most)
        fits = fits > 1 ? fits / 2 : 0;
    if (!fits)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "the tensors between the steps take %zu bytes for one instance; "
                         "limits.inflight_bytes leaves %llu to a request",
                         pipeline_run_bytes(p, 1, least), (unsigned long long)most);
    *max_instances = fits;
    return STATUS_OK;
}

enum status pipeline_takes(const struct pipeline *p, const struct config_limits *limits,
                           uint32_t instances, const int64_t *values, struct error *err)
{
    size_t bytes = pipeline_run_bytes(p, instances, values);
    if (slab_charge(bytes) <= room_most(limits))
        return STATUS_OK;
    return error_cause(err, CAUSE_TAIL_OVER_LIMIT,
                       "the tensors between the steps take %zu bytes for these sizes; "
                       "limits.inflight_bytes leaves %llu to a request",
                       bytes, (unsigned long long)room_most(limits));
}

void pipeline_cleanup(struct pipeline **at)
{
    pipeline_free(*at);
}

bool pipeline_equal(const struct pipeline *a, const struct pipeline *b)
{
    bool equal =
        a->n_steps == b->n_steps && a->n_groups == b->n_groups && a->max_batch == b->max_batch;
    for (uint32_t s = 0; equal && s < a->n_steps; s++)
        equal = a->steps[s].model == b->steps[s].model;
    for (uint32_t g = 1; equal && g < a->n_groups; g++)
        equal = a->groups[g].model == b->groups[g].model;
    return equal;
}
