/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binds a pipeline to its steps' models; see pipeline.h. A file is believed nothing: each tensor is
 * made once, by a step that is not behind those that read it, and fits whatever reads it.
 *
 * Instances: if all models count instances, so does the pipeline, and a request's number goes
 * through all steps. Else shapes are whole, and a model that counts instances takes the first
 * dimension of what it is given for their number.
 */
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "base/names.h"
#include "daemon/admission.h"
#include "daemon/fits.h"
#include "daemon/pipeline.h"

enum { ARENA_BYTES = 4 << 20 };

/* A step as the file has it, while it is bound. Values are those of the file's own names. */
struct part {
    const struct model_file_step *said;
    struct model *model;
    const struct engine_info *info;
    uint32_t *inputs, *outputs;
    uint32_t instances; /* 0: the request's */
    bool done;
};

struct binder {
    const struct table *table;
    const struct model_file *file;
    struct arena *arena;
    struct pipeline *pipeline;
    struct part *parts; /* n_steps of the file */
    struct pipeline_value *values;
    uint32_t n_values, n_named; /* with those within inner pipelines, which come last */
    bool *known;                /* a value's shape is final */
    bool counted;               /* the pipeline counts instances */
    struct error *err;
};

PRINTF(3, 4)
static enum status refuse(const struct binder *b, const struct part *part, const char *fmt, ...)
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

/* A size that is not known beforehand has no room that can be set aside. */
static enum status sizes_check(const struct binder *b, const struct part *part,
                               const struct engine_binding *bindings, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = part->info->batched ? 1 : 0; k < bindings[i].shape.rank; k++)
            if (bindings[i].shape.dim[k] < 0)
                return refuse(b, part, "tensor '%s' has free dimensions, which no pipeline takes",
                              bindings[i].name);
    return STATUS_OK;
}

static enum status part_find(const struct binder *b, struct part *part)
{
    const struct table_entry *entry = pipeline_step_find(b->table, part->said);
    if (!entry)
        return refuse(b, part, "there is no such model%s%s",
                      part->said->version ? ", version " : "",
                      part->said->version ? part->said->version : "");
    if (entry->state != MODEL_READY)
        return refuse(b, part, "version %s is %s%s%s", entry->version,
                      model_state_name(entry->state), *entry->reason ? ": " : "", entry->reason);
    part->model = entry->model;
    part->info = entry->model->info;
    part->inputs = arena_array(b->arena, part->info->n_inputs, sizeof(*part->inputs));
    part->outputs = arena_array(b->arena, part->info->n_outputs, sizeof(*part->outputs));
    if (!part->inputs || !part->outputs)
        return no_memory(b);
    if (!engine_counts_first(part->info))
        return refuse(b, part,
                      "the model counts instances elsewhere than in the first dimension of each "
                      "input and output, which no pipeline takes");
    TRY(sizes_check(b, part, part->info->inputs, part->info->n_inputs));
    return sizes_check(b, part, part->info->outputs, part->info->n_outputs);
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
            return refuse(b, part,
                          "expected at most %d steps, with those of pipelines that are "
                          "steps",
                          PIPELINE_STEPS_MOST);
        if (p->depth > PIPELINE_DEPTH_MOST)
            return refuse(b, part, "expected at most %d pipelines within each other",
                          PIPELINE_DEPTH_MOST);
    }
    b->values = p->values = arena_array(b->arena, values, sizeof(*p->values));
    b->known = arena_array(b->arena, values, sizeof(*b->known));
    p->steps = arena_array(b->arena, steps, sizeof(*p->steps));
    p->groups = arena_array(b->arena, groups, sizeof(*p->groups));
    return p->values && b->known && p->steps && p->groups ? STATUS_OK : no_memory(b);
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
    return refuse(b, part, "the model has no %s '%s'; it has %s", what, name, names_text(&names));
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
            return refuse(b, part, "tensor '%s' is an input, and is made here", link->outer);
        if (v != PIPELINE_NONE)
            return refuse(b, part, "tensor '%s' is made twice", link->outer);
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
            return refuse(b, part, "tensor '%s' is made by no step, and is no input", link->outer);
        part->inputs[k] = v;
    }
    for (uint32_t k = 0; k < part->info->n_inputs; k++)
        if (part->inputs[k] == PIPELINE_NONE)
            return refuse(b, part, "the model's input '%s' gets no tensor",
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

/* --- types and shapes --- */

/* Whether a tensor can be what the binding takes; dim[0] of -1 counts instances. */
static bool value_fits(const struct pipeline_value *value, const struct engine_binding *binding)
{
    bool fits = value->dtype == binding->dtype && value->shape.rank == binding->shape.rank;
    for (uint32_t i = 0; fits && i < value->shape.rank; i++)
        fits = value->shape.dim[i] == binding->shape.dim[i] ||
               (i == 0 && (value->shape.dim[0] < 0 || binding->shape.dim[0] < 0));
    return fits;
}

static enum status misfit(const struct binder *b, const struct part *part,
                          const struct pipeline_value *value, const struct engine_binding *binding)
{
    char want[SHAPE_TEXT_MAX], have[SHAPE_TEXT_MAX];
    return refuse(b, part, "input '%s': expected %s %s, but tensor '%s' is %s %s", binding->name,
                  dtype_name(binding->dtype), shape_format(&binding->shape, want), value->name,
                  dtype_name(value->dtype), shape_format(&value->shape, have));
}

static enum status counted_decide(struct binder *b)
{
    bool all = true;
    for (uint32_t s = 0; s < b->file->n_steps; s++) {
        all &= b->parts[s].info->batched;
        if (b->file->batched && !b->parts[s].info->batched)
            return refuse(b, &b->parts[s],
                          "max_batch_size is %u, but this model does not count instances",
                          b->file->config.max_batch);
    }
    b->counted = all;
    return STATUS_OK;
}

/* What the pipeline's declaration leaves of the shape of an input. */
static enum status input_declared(const struct binder *b, const struct model_file_tensor *said,
                                  struct pipeline_value *value)
{
    bool leaves_out = b->file->batched; /* the dimension that counts instances */
    char want[SHAPE_TEXT_MAX], have[SHAPE_TEXT_MAX];
    bool fits = !said->dims_given || said->shape.rank + leaves_out == value->shape.rank;
    for (uint32_t i = 0; fits && said->dims_given && i < said->shape.rank; i++) {
        int64_t dim = value->shape.dim[i + leaves_out];
        fits = said->shape.dim[i] < 0 || dim < 0 || dim == said->shape.dim[i];
    }
    if (said->dtype && said->dtype != value->dtype)
        return refuse(b, NULL, "tensor '%s': declared as TYPE_%s, but it is %s", said->name,
                      dtype_name(said->dtype), dtype_name(value->dtype));
    if (!fits)
        return refuse(b, NULL, "tensor '%s': declared with dims %s%s, but it is %s", said->name,
                      shape_format(&said->shape, want), leaves_out ? " beside the batch" : "",
                      shape_format(&value->shape, have));
    if (!b->counted && value->shape.rank && value->shape.dim[0] < 0)
        value->shape.dim[0] = said->dims_given && said->shape.dim[0] > 0 ? said->shape.dim[0] : 1;
    return STATUS_OK;
}

static enum status value_size(const struct binder *b, struct pipeline_value *value)
{
    struct shape one = value->shape;
    value->counted = one.rank && one.dim[0] < 0;
    if (value->counted)
        one.dim[0] = 1;
    return shape_bytes(&one, value->dtype, &value->bytes)
               ? STATUS_OK
               : refuse(b, NULL, "tensor '%s' is too large", value->name);
}

/* An input of the pipeline is what the steps that read it take. */
static enum status input_bind(struct binder *b, uint32_t input)
{
    struct pipeline_value *value = &b->values[input];
    for (uint32_t s = 0; s < b->file->n_steps; s++) {
        const struct part *part = &b->parts[s];
        for (uint32_t k = 0; k < part->info->n_inputs; k++) {
            const struct engine_binding *binding = &part->info->inputs[k];
            if (part->inputs[k] != input)
                continue;
            if (!value->dtype) {
                value->dtype = binding->dtype;
                value->shape = binding->shape;
            }
            if (!value_fits(value, binding))
                return misfit(b, part, value, binding);
            if (value->shape.rank && value->shape.dim[0] < 0)
                value->shape.dim[0] = binding->shape.dim[0];
        }
    }
    if (!value->dtype)
        return refuse(b, NULL, "input '%s' is read by no step", value->name);
    TRY(input_declared(b, &b->file->inputs[input], value));
    b->known[input] = true;
    return value_size(b, value);
}

static bool part_is_due(const struct binder *b, const struct part *part)
{
    for (uint32_t k = 0; k < part->info->n_inputs; k++)
        if (!b->known[part->inputs[k]])
            return false;
    return !part->done;
}

/* All inputs of a model that counts instances have as many. */
static enum status instances_bind(const struct binder *b, struct part *part)
{
    int64_t n = b->counted ? 0 : 1;
    part->instances = (uint32_t)n;
    for (uint32_t k = 0; part->info->batched && !b->counted && k < part->info->n_inputs; k++) {
        const struct pipeline_value *value = &b->values[part->inputs[k]];
        if (k > 0 && value->shape.dim[0] != n)
            return refuse(b, part, "tensor '%s' has %" PRId64 " instances, but '%s' has %" PRId64,
                          value->name, value->shape.dim[0], b->values[part->inputs[0]].name, n);
        n = value->shape.dim[0];
        if (n < 1 || n > part->model->max_instances)
            return refuse(b, part,
                          "tensor '%s' has %" PRId64 " instances; this model takes 1 to %u",
                          value->name, n, part->model->max_instances);
        part->instances = (uint32_t)n;
    }
    return STATUS_OK;
}

static enum status part_bind(struct binder *b, struct part *part)
{
    for (uint32_t k = 0; k < part->info->n_inputs; k++)
        if (!value_fits(&b->values[part->inputs[k]], &part->info->inputs[k]))
            return misfit(b, part, &b->values[part->inputs[k]], &part->info->inputs[k]);
    TRY(instances_bind(b, part));
    for (uint32_t k = 0; k < part->info->n_outputs; k++) {
        const struct engine_binding *binding = &part->info->outputs[k];
        if (part->outputs[k] == PIPELINE_NONE)
            continue;
        struct pipeline_value *value = &b->values[part->outputs[k]];
        value->dtype = binding->dtype;
        value->shape = binding->shape;
        if (part->info->batched && part->instances && value->shape.rank)
            value->shape.dim[0] = part->instances;
        b->known[part->outputs[k]] = true;
        TRY(value_size(b, value));
    }
    part->done = true;
    return STATUS_OK;
}

static enum status in_circles(const struct binder *b)
{
    const struct part *part = b->parts;
    uint32_t k = 0;
    while (part->done)
        part++;
    while (b->known[part->inputs[k]])
        k++;
    return refuse(b, part, "tensor '%s' takes what is made of it: the steps go in a circle",
                  b->values[part->inputs[k]].name);
}

/* Makes the shapes known, from the inputs on. */
static enum status shapes_bind(struct binder *b)
{
    TRY(counted_decide(b));
    for (uint32_t i = 0; i < b->file->n_inputs; i++)
        TRY(input_bind(b, i));
    for (uint32_t done = 0, before; done < b->file->n_steps;) {
        before = done;
        for (uint32_t s = 0; s < b->file->n_steps; s++)
            if (part_is_due(b, &b->parts[s])) {
                TRY(part_bind(b, &b->parts[s]));
                done++;
            }
        if (done == before)
            return in_circles(b);
    }
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
    step->instances = part->instances;
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
        value->shape = inner->values[v].shape;
        if (inner->values[v].counted && part->instances)
            value->shape.dim[0] = part->instances;
        TRY(value_size(b, value));
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
            .model = model_ref(model),
            .parent = g ? first_group + inner->groups[g].parent : 0,
            .instances =
                g && inner->groups[g].instances ? inner->groups[g].instances : part->instances};
    }
    for (uint32_t s = 0; s < inner->n_steps; s++) {
        const struct pipeline_step *from = &inner->steps[s];
        struct pipeline_step *step;
        uint32_t at = p->n_steps;
        TRY(step_make(b, part_name(b, part, from->name), from->model, first_group + from->group,
                      &step));
        step->instances = from->instances ? from->instances : part->instances;
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

/* --- what clients see --- */

static struct engine_binding binding_of(const struct pipeline_value *value)
{
    return (struct engine_binding){value->name, value->dtype, value->shape, value->bytes};
}

static enum status outputs_bind(struct binder *b, struct engine_binding *outputs)
{
    struct pipeline *p = b->pipeline;
    for (uint32_t i = 0; i < b->file->n_outputs; i++) {
        const struct model_file_tensor *said = &b->file->outputs[i];
        uint32_t v = PIPELINE_NONE;
        for (uint32_t k = 0; k < b->n_named && v == PIPELINE_NONE; k++)
            v = strcmp(b->values[k].name, said->name) == 0 ? k : PIPELINE_NONE;
        if (v == PIPELINE_NONE)
            return refuse(b, NULL, "output '%s' is made by no step", said->name);
        if (v < b->file->n_inputs)
            return refuse(b, NULL, "output '%s' is an input", said->name);
        TRY(input_declared(b, said, &b->values[v]));
        p->outputs[i] = v;
        outputs[i] = binding_of(&b->values[v]);
    }
    return STATUS_OK;
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
            return refuse(b, part, "max_batch_size is %u; this model takes at most %u", wanted,
                          part->model->max_instances);
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
    p->outputs = arena_array(b->arena, n_outputs, sizeof(*p->outputs));
    if (!inputs || !outputs || !p->outputs)
        return no_memory(b);
    for (uint32_t i = 0; i < n_inputs; i++)
        inputs[i] = binding_of(&b->values[i]);
    TRY(outputs_bind(b, outputs));
    TRY(batch_bind(b));
    p->info = (struct engine_info){.name = "",
                                   .device = "",
                                   .batched = b->counted,
                                   .max_batch = p->max_batch,
                                   .n_inputs = n_inputs,
                                   .n_outputs = n_outputs,
                                   .inputs = inputs,
                                   .outputs = outputs};
    return admission_model_check(&p->info, b->err);
}

/* --- the whole --- */

static enum status pipeline_make(struct binder *b)
{
    struct pipeline *p = b->pipeline;
    TRY(parts_find(b));
    assert(b->parts && b->values && b->known);
    TRY(names_bind(b));
    TRY(shapes_bind(b));
    p->groups[p->n_groups++] = (struct pipeline_group){.parent = PIPELINE_NONE};
    for (uint32_t s = 0; s < b->file->n_steps; s++)
        TRY(b->parts[s].model->pipeline ? inner_make(b, &b->parts[s]) : leaf_make(b, &b->parts[s]));
    TRY(info_make(b));
    p->n_values = b->n_values;
    uses_count(p);
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

enum status pipeline_fits(const struct pipeline *p, const struct config_limits *limits,
                          uint32_t *max_instances, struct error *err)
{
    uint64_t budget = budget_limit(limits), most = budget - budget / SLAB_SMALL_SHARE;
    uint32_t fits = 0;
    TRY(fits_check(&p->info, limits, 1, p->max_batch, &fits, err));
    while (fits && slab_charge(pipeline_run_bytes(p, fits)) > most)
        fits = fits > 1 ? fits / 2 : 0;
    if (!fits)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "the tensors between the steps take %zu bytes for one instance; "
                         "limits.inflight_bytes leaves %llu to a request",
                         pipeline_run_bytes(p, 1), (unsigned long long)most);
    *max_instances = fits;
    return STATUS_OK;
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
