/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Types, shapes and instances of a pipeline's tensors, found from its inputs on; see pipeline.h.
 *
 * Instances: if all models count instances, so does the pipeline, and a request's number goes
 * through all steps. Else shapes are whole, and a model that counts instances takes the dimension
 * in which it counts them for their number.
 *
 * Sizes that requests choose are found by what steps have in common (pipeline_sizes.h). What only
 * a run tells is left to the run, in which each step is checked like a request.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/checked.h"
#include "daemon/pipeline_internal.h"

/* What the dimension is to the part: NULL and `*said` if it is the same whatever comes, else the
 * size that all of the part's tensors have in common, and within which range. */
static struct size *own_size(const struct binder *b, const struct part *part,
                             const struct shape *shape, const struct engine_axes *axes, uint32_t d,
                             struct size_range *range, struct size *said)
{
    const struct engine_info *info = part->info;
    bool counts = info->batched && !(axes && axes->shared) && d == (axes ? axes->batch : 0u);
    if (counts && b->counted) {
        *said = (struct size){SIZE_COUNT, 0};
        return NULL;
    }
    if (counts) {
        *range = (struct size_range){"instances", 1, part->model->max_instances, true};
        return &part->own[info->n_free];
    }
    if (info->n_free && axes && axes->free[d]) {
        const struct engine_free *f = &info->free[axes->free[d] - 1];
        *range = (struct size_range){f->name, f->low, f->high, false};
        return &part->own[axes->free[d] - 1];
    }
    *said =
        shape->dim[d] < 0 ? (struct size){SIZE_OPEN, 0} : (struct size){SIZE_NUMBER, shape->dim[d]};
    return NULL;
}

/* What people see: -1 for all that is no number. */
static struct shape shape_now(const struct binder *b, const struct pipeline_value *value)
{
    struct shape shape = value->shape;
    for (uint32_t d = 0; d < shape.rank; d++) {
        struct size size = sizes_now(b->sizes, b->dims[value - b->values][d]);
        shape.dim[d] = size.kind == SIZE_NUMBER ? size.n : -1;
    }
    return shape;
}

static enum status misfit(const struct binder *b, const struct part *part,
                          const struct pipeline_value *value, const struct engine_binding *binding)
{
    char want[SHAPE_TEXT_MAX], have[SHAPE_TEXT_MAX];
    struct shape shape = shape_now(b, value);
    return pipeline_refuse(b, part, "input '%s': expected %s %s, but tensor '%s' is %s %s",
                           binding->name, dtype_name(binding->dtype),
                           shape_format(&binding->shape, want), value->name,
                           dtype_name(value->dtype), shape_format(&shape, have));
}

static enum status size_misfit(const struct binder *b, const struct part *part, uint32_t value,
                               uint32_t input, uint32_t d, const struct size_range *range,
                               struct size own)
{
    char want[SIZE_TEXT_MAX], have[SIZE_TEXT_MAX];
    if (own.kind == SIZE_UNSAID || own.kind == SIZE_OPEN)
        snprintf(want, sizeof(want), "%" PRId64 " to %" PRId64, range->low, range->high);
    else
        sizes_text(b->sizes, own, want);
    return pipeline_refuse(b, part,
                           "input '%s', dimension %u ('%s'): expected %s, but tensor '%s' has %s",
                           part->info->inputs[input].name, d, range->name, want,
                           b->values[value].name, sizes_text(b->sizes, b->dims[value][d], have));
}

/* Lets a tensor be an input of a step: whatever is known of one is known of the other. */
static enum status tensor_meet(struct binder *b, struct part *part, uint32_t input)
{
    uint32_t v = part->inputs[input];
    const struct engine_binding *binding = &part->info->inputs[input];
    const struct engine_axes *axes = engine_input_axes(part->info, input);
    if (b->values[v].dtype != binding->dtype || b->values[v].shape.rank != binding->shape.rank)
        return misfit(b, part, &b->values[v], binding);
    for (uint32_t d = 0; d < binding->shape.rank; d++) {
        struct size_range range = {0};
        struct size said = {0};
        struct size *own = own_size(b, part, &binding->shape, axes, d, &range, &said);
        if (!own && !sizes_be(b->sizes, &b->dims[v][d], said))
            return misfit(b, part, &b->values[v], binding);
        if (own && !sizes_meet(b->sizes, &b->dims[v][d], own, &range))
            return size_misfit(b, part, v, input, d, &range, *own);
    }
    return STATUS_OK;
}

static enum status counted_decide(struct binder *b)
{
    bool all = true;
    for (uint32_t s = 0; s < b->file->n_steps; s++) {
        const struct part *part = &b->parts[s];
        all &= part->info->batched;
        if (part->info->ragged)
            return pipeline_refuse(b, part, "ragged models are no steps of pipelines");
        if (b->file->batched && !part->info->batched)
            return pipeline_refuse(b, part,
                                   "max_batch_size is %u, but this model does not count instances",
                                   b->file->config.max_batch);
        if (b->file->batched && !engine_counts_first(part->info))
            return pipeline_refuse(
                b, part,
                "max_batch_size is %u, but this model counts instances elsewhere than "
                "in the first dimension of each input and output",
                b->file->config.max_batch);
    }
    b->counted = all;
    return STATUS_OK;
}

/* What the pipeline's declaration leaves of the shape of a tensor. */
static enum status tensor_declared(const struct binder *b, const struct model_file_tensor *said,
                                   uint32_t v)
{
    const struct pipeline_value *value = &b->values[v];
    bool leaves_out = b->file->batched; /* the dimension that counts instances */
    char want[SHAPE_TEXT_MAX], have[SHAPE_TEXT_MAX];
    bool fits = !said->dims_given || said->shape.rank + leaves_out == value->shape.rank;
    for (uint32_t i = 0; fits && said->dims_given && i < said->shape.rank; i++) {
        struct size *size = &b->dims[v][i + leaves_out];
        const struct size number = {SIZE_NUMBER, said->shape.dim[i]};
        fits = number.n < 0 || size->kind == SIZE_COUNT || sizes_be(b->sizes, size, number);
    }
    if (said->dtype && said->dtype != value->dtype)
        return pipeline_refuse(b, NULL, "tensor '%s': declared as TYPE_%s, but it is %s",
                               said->name, dtype_name(said->dtype), dtype_name(value->dtype));
    struct shape shape = shape_now(b, value);
    if (!fits)
        return pipeline_refuse(b, NULL, "tensor '%s': declared with dims %s%s, but it is %s",
                               said->name, shape_format(&said->shape, want),
                               leaves_out ? " beside the batch" : "", shape_format(&shape, have));
    return STATUS_OK;
}

/* Where nothing is declared, whole shapes have one instance. */
static void instances_default(const struct binder *b, const struct model_file_tensor *said,
                              uint32_t v)
{
    for (uint32_t d = 0; !said->dims_given && d < b->values[v].shape.rank; d++) {
        struct size size = sizes_now(b->sizes, b->dims[v][d]);
        if (size.kind == SIZE_FREE && sizes_free(b->sizes, size)->range.instances)
            sizes_be(b->sizes, &b->dims[v][d], (struct size){SIZE_NUMBER, 1});
    }
}

/* An input of the pipeline is what the steps that read it take. */
static enum status input_bind(struct binder *b, uint32_t input)
{
    struct pipeline_value *value = &b->values[input];
    for (uint32_t s = 0; s < b->file->n_steps; s++) {
        struct part *part = &b->parts[s];
        for (uint32_t k = 0; k < part->info->n_inputs; k++) {
            const struct engine_binding *binding = &part->info->inputs[k];
            if (part->inputs[k] != input)
                continue;
            if (!value->dtype) {
                value->dtype = binding->dtype;
                value->shape.rank = binding->shape.rank;
            }
            value->bytes = MAX(value->bytes, binding->instance_bytes);
            TRY(tensor_meet(b, part, k));
        }
    }
    if (!value->dtype)
        return pipeline_refuse(b, NULL, "input '%s' is read by no step", value->name);
    TRY(tensor_declared(b, &b->file->inputs[input], input));
    instances_default(b, &b->file->inputs[input], input);
    b->known[input] = true;
    return STATUS_OK;
}

static bool part_is_due(const struct binder *b, const struct part *part)
{
    for (uint32_t k = 0; k < part->info->n_inputs; k++)
        if (!b->known[part->inputs[k]])
            return false;
    return !part->done;
}

void pipeline_tensor_make(const struct binder *b, const struct part *part, uint32_t v,
                          const struct shape *shape, const struct engine_axes *axes)
{
    b->values[v].shape.rank = shape->rank;
    for (uint32_t d = 0; d < shape->rank; d++) {
        struct size_range range;
        struct size said;
        const struct size *own = own_size(b, part, shape, axes, d, &range, &said);
        b->dims[v][d] = own ? *own : said;
        if (own && own->kind == SIZE_UNSAID)
            b->dims[v][d] = (struct size){SIZE_OPEN, 0};
    }
}

static enum status part_bind(struct binder *b, struct part *part)
{
    for (uint32_t k = 0; k < part->info->n_inputs; k++)
        TRY(tensor_meet(b, part, k));
    for (uint32_t k = 0; k < part->info->n_outputs; k++) {
        const struct engine_binding *binding = &part->info->outputs[k];
        uint32_t v = part->outputs[k];
        if (v == PIPELINE_NONE)
            continue;
        b->values[v].dtype = binding->dtype;
        b->values[v].bytes = binding->instance_bytes;
        pipeline_tensor_make(b, part, v, &binding->shape, engine_output_axes(part->info, k));
        b->known[v] = true;
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
    return pipeline_refuse(b, part,
                           "tensor '%s' takes what is made of it: the steps go in a circle",
                           b->values[part->inputs[k]].name);
}

uint32_t pipeline_named_find(const struct binder *b, const char *name)
{
    for (uint32_t v = 0; v < b->n_named; v++)
        if (strcmp(b->values[v].name, name) == 0)
            return v;
    return PIPELINE_NONE;
}

enum status pipeline_tensors_bind(struct binder *b)
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
    for (uint32_t i = 0; i < b->file->n_outputs; i++) {
        uint32_t v = pipeline_named_find(b, b->file->outputs[i].name);
        if (v == PIPELINE_NONE)
            return pipeline_refuse(b, NULL, "output '%s' is made by no step",
                                   b->file->outputs[i].name);
        if (v < b->file->n_inputs)
            return pipeline_refuse(b, NULL, "output '%s' is an input", b->file->outputs[i].name);
        TRY(tensor_declared(b, &b->file->outputs[i], v));
    }
    return STATUS_OK;
}

/* The sizes that requests choose. */
static enum status free_make(const struct binder *b, struct engine_info *info)
{
    uint32_t n = sizes_number(b->sizes);
    struct engine_free *list = arena_array(b->arena, n, sizeof(*list));
    if (n > ENGINE_MAX_FREE)
        return pipeline_refuse(
            b, NULL, "%u sizes are the requests' choice; expected at most %d: let dims say some", n,
            ENGINE_MAX_FREE);
    if (!list) {
        error_no_memory(b->err, "a pipeline");
        return STATUS_RESOURCE_EXHAUSTED;
    }
    for (uint32_t i = 0; i < b->sizes->n; i++) {
        const struct size_free *free = &b->sizes->free[i];
        if (free->number)
            list[free->number - 1] = (struct engine_free){
                .name = free->range.name, .low = free->range.low, .high = free->range.high};
    }
    info->n_free = n;
    info->free = list;
    return STATUS_OK;
}

/* The most bytes that a tensor has whose sizes are partly the requests' choice, as far as that is
 * known: no more than its model was built for. 0: only a run tells. */
static size_t bytes_most(const struct binder *b, const struct pipeline_value *value)
{
    struct shape most = value->shape;
    size_t bytes, instances = 1;
    for (uint32_t d = 0; d < most.rank; d++) {
        struct size size = sizes_now(b->sizes, b->dims[value - b->values][d]);
        if (size.kind == SIZE_OPEN)
            return 0;
        if (size.kind == SIZE_FREE) {
            const struct size_range *range = &sizes_free(b->sizes, size)->range;
            most.dim[d] = range->high;
            instances = range->instances ? (size_t)range->high : instances;
        }
        most.dim[d] = size.kind == SIZE_COUNT ? 1 : most.dim[d];
    }
    if (!shape_bytes(&most, value->dtype, &bytes))
        bytes = SIZE_MAX;
    return checked_mul(instances, value->bytes, &instances) ? MIN(bytes, instances) : bytes;
}

/* What was found of a value's sizes, for requests. */
static enum status value_settle(const struct binder *b, struct pipeline_value *value)
{
    bool counts = false, chosen = false;
    size_t bytes;
    value->shape = shape_now(b, value);
    struct shape one = value->shape;
    for (uint32_t d = 0; d < value->shape.rank; d++) {
        struct size size = sizes_now(b->sizes, b->dims[value - b->values][d]);
        if (size.kind == SIZE_COUNT) {
            counts = true;
            one.dim[d] = 1;
            value->axes.batch = (uint8_t)d;
        } else if (size.kind == SIZE_FREE) {
            chosen = true;
            value->axes.free[d] = (uint8_t)sizes_free(b->sizes, size)->number;
        } else if (size.kind == SIZE_OPEN) {
            value->open = true;
        }
    }
    value->axes.shared = b->counted && !counts;
    if (!chosen && !value->open) {
        if (!shape_bytes(&one, value->dtype, &bytes))
            return pipeline_refuse(b, NULL, "tensor '%s' is too large", value->name);
        value->bytes = bytes;
    } else {
        value->bytes = bytes_most(b, value);
    }
    return STATUS_OK;
}

enum status pipeline_tensors_settle(const struct binder *b, struct engine_info *info)
{
    TRY(free_make(b, info));
    for (uint32_t v = 0; v < b->n_values; v++)
        TRY(value_settle(b, &b->values[v]));
    return STATUS_OK;
}
