/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs and outputs whose requests are boxes in the profile's tensor (box.h). The processor puts
 * such an input together in pinned memory, from where it is copied in one piece, and cuts such an
 * output out of its copy, or out of where it was made if the device writes the host's memory. A
 * tensor that one request fills is no worse off than any other.
 */
#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "engine/runtime/box.h"
#include "engine/runtime/context.h"
#include "engine/runtime/memory.h"

static const struct engine_axes *axes_of(const struct context *ctx, bool input, uint32_t index)
{
    const struct engine_info *info = &ctx->engine->info;
    return input ? engine_input_axes(info, index) : engine_output_axes(info, index);
}

static const struct shape *shape_of(const struct profile *p, bool input, uint32_t index)
{
    return input ? &p->info->in[index] : &p->info->out[index];
}

/* --- memory --- */

/* Whether instances, or what is in them, may lie apart in some profile's tensor. */
static bool is_boxed(const struct context *ctx, bool input, uint32_t index)
{
    const struct engine_info *info = &ctx->engine->info;
    const struct engine_axes *axes = axes_of(ctx, input, index);
    const struct engine_binding *b = input ? &info->inputs[index] : &info->outputs[index];
    for (uint32_t d = 0; axes && d < b->shape.rank; d++)
        if (axes->free[d] && info->free[axes->free[d] - 1].pads)
            return true;
    if (!axes || !info->batched || axes->shared)
        return false;
    for (uint32_t p = 0; p < info->n_profiles; p++) {
        const struct engine_profile *profile = &info->profiles[p];
        const struct shape *shape = input ? &profile->in[index] : &profile->out[index];
        for (uint32_t d = 0; d < axes->batch; d++)
            if (shape->dim[d] != 1)
                return true;
    }
    return false;
}

/* The largest size of the tensor in any profile. */
static bool bytes_of(const struct context *ctx, bool input, uint32_t index, size_t *out)
{
    const struct engine_info *info = &ctx->engine->info;
    *out = 0;
    for (uint32_t p = 0; p < info->n_profiles; p++) {
        const struct engine_profile *profile = &info->profiles[p];
        const struct engine_binding *b = input ? &info->inputs[index] : &info->outputs[index];
        size_t bytes;
        if (!shape_bytes(input ? &profile->in[index] : &profile->out[index], b->dtype, &bytes))
            return false;
        *out = MAX(*out, bytes);
    }
    return checked_round_up(*out, BACKEND_ALIGN, out);
}

static bool place(const struct context *ctx, bool input, uint32_t n, size_t *offsets, size_t *total)
{
    bool room = input || !ctx->backend->host_memory; /* else outputs are cut where they are made */
    for (uint32_t i = 0; i < n; i++) {
        size_t bytes;
        offsets[i] = SIZE_MAX;
        if (!is_boxed(ctx, input, i))
            continue;
        offsets[i] = *total;
        if (room && (!bytes_of(ctx, input, i, &bytes) || !checked_add(*total, bytes, total)))
            return false;
    }
    return true;
}

enum status context_boxes_new(struct context *ctx, struct error *err)
{
    const struct engine_info *info = &ctx->engine->info;
    size_t total = 0;
    void *boxes;
    ctx->in_box = context_take(ctx, info->n_inputs, sizeof(*ctx->in_box));
    ctx->out_box = context_take(ctx, info->n_outputs, sizeof(*ctx->out_box));
    if (!ctx->in_box || !ctx->out_box)
        return error_no_memory(err, "a context");
    if (!place(ctx, true, info->n_inputs, ctx->in_box, &total) ||
        !place(ctx, false, info->n_outputs, ctx->out_box, &total))
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "context: tensors are too large");
    if (!total)
        return STATUS_OK;
    TRY(memory_alloc(ctx->lane->device, MEMORY_PINNED, total, "boxes", &boxes, err));
    ctx->boxes = boxes;
    return STATUS_OK;
}

/* --- a batch --- */

static struct shape own_shape(const struct context *ctx, const struct profile *p, bool input,
                              uint32_t index, const struct engine_request *request)
{
    return engine_shape_of(&ctx->engine->info, axes_of(ctx, input, index),
                           shape_of(p, input, index), request->instances, request->values);
}

bool context_fills(const struct context *ctx, const struct profile *p, bool input, uint32_t index)
{
    struct shape own = own_shape(ctx, p, input, index, &ctx->batch.requests[0]);
    return ctx->batch.n_requests == 1 && shape_equal(&own, shape_of(p, input, index));
}

/* The axis along which requests lie side by side, or, if there is none, any: nothing comes before
 * the first one. */
static uint32_t axis_of(const struct context *ctx, bool input, uint32_t index)
{
    const struct engine_axes *axes = axes_of(ctx, input, index);
    return axes && !axes->shared ? axes->batch : 0;
}

/* The request that a span is of; a span of a batch without requests is some instances. */
static struct engine_request request_of(const struct context *ctx, const struct profile *p,
                                        uint32_t index, bool named, uint32_t span, size_t size)
{
    size_t instance = p->in[index].instance_bytes;
    struct engine_request request = ctx->batch.requests[named ? span : 0];
    if (!named && engine_count_of(&ctx->engine->info, axes_of(ctx, true, index), 2) == 2)
        request.instances = instance ? (uint32_t)(size / instance) : 0;
    return request;
}

const void *context_box_input(struct context *ctx, const struct profile *p, uint32_t index,
                              bool named, const struct engine_input *input)
{
    const struct engine_axes *axes = axes_of(ctx, true, index);
    const struct shape *whole = shape_of(p, true, index);
    char *to = ctx->boxes + ctx->in_box[index];
    struct box box = {.whole = whole,
                      .axis = axis_of(ctx, true, index),
                      .element = dtype_size(p->in[index].dtype)};
    uint32_t n = axes && axes->shared ? MIN(input->n_spans, 1u) : input->n_spans;
    memset(to, 0,
           engine_count_of(&ctx->engine->info, axes, p->info->batch) * p->in[index].instance_bytes);
    for (uint32_t i = 0; i < n; i++) {
        struct engine_request request = request_of(ctx, p, index, named, i, input->spans[i].size);
        struct shape part = own_shape(ctx, p, true, index, &request);
        box.part = &part;
        if (input->spans[i].size)
            box_put(&box, to, input->spans[i].data);
        box.first += request.instances;
    }
    return to;
}

/* Cuts one output for all requests. */
static void cut_output(const struct context *ctx, const struct profile *p, uint32_t index)
{
    const struct profile_output *from = &p->outputs[index];
    const char *whole =
        from->on_host || ctx->backend->host_memory ? from->made : ctx->boxes + ctx->out_box[index];
    struct box box = {.whole = shape_of(p, false, index),
                      .axis = axis_of(ctx, false, index),
                      .element = dtype_size(p->out[index].dtype)};
    char *to = ctx->output + p->info->out_offset[index];
    for (uint32_t r = 0; r < ctx->batch.n_requests; r++) {
        const struct engine_request *request = &ctx->batch.requests[r];
        struct shape part = own_shape(ctx, p, false, index, request);
        box.part = &part;
        box_take(&box, whole, to + (size_t)box.first * p->out[index].instance_bytes);
        box.first += request->instances;
    }
}

void context_box_outputs(struct context *ctx, const struct profile *p)
{
    for (uint32_t i = 0; i < ctx->engine->info.n_outputs; i++)
        if (ctx->out_box[i] != SIZE_MAX && !context_fills(ctx, p, false, i))
            cut_output(ctx, p, i);
}
