/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs and outputs of a batch. A device that reads host memory reads a lone, aligned span that
 * fills the profile in place; other spans are gathered in the arena. For a device with memory of
 * its own all copies of a batch go in one call. Large spans are copied straight from where they
 * are. Small spans are packed into the context's staging memory first and copied in runs, because
 * one more copy by the device takes longer than a small copy by the processor. Spans on a shelf are
 * copied on the device whatever their size; those that lie there as they will lie in the input, as
 * a batch that goes on as it is does, are one copy.
 */
#include <assert.h>
#include <string.h>

#include "base/checked.h"
#include "engine/runtime/context.h"
#include "engine/runtime/memory.h"

enum status context_staging_new(struct context *ctx, struct error *err)
{
    const struct engine_info *info = &ctx->engine->info;
    size_t total = 0, size;
    ctx->staging_offset = context_take(ctx, info->n_inputs, sizeof(*ctx->staging_offset));
    if (!ctx->staging_offset)
        return error_no_memory(err, "a context");
    for (uint32_t i = 0; i < info->n_inputs; i++) {
        ctx->staging_offset[i] = SIZE_MAX;
        if (ctx->backend->host_memory || info->inputs[i].instance_bytes > ENGINE_PACK_MAX ||
            ctx->in_box[i] != SIZE_MAX)
            continue;
        ctx->staging_offset[i] = total;
        if (!checked_mul(info->inputs[i].instance_bytes, info->max_batch, &size) ||
            !checked_add(total, size, &total) || !checked_round_up(total, BACKEND_ALIGN, &total))
            return error_set(err, STATUS_RESOURCE_EXHAUSTED, "context: inputs are too large");
    }
    if (total == 0)
        return STATUS_OK;
    void *staging;
    TRY(memory_alloc(ctx->lane->device, MEMORY_PINNED, total, "staging", &staging, err));
    ctx->staging = staging;
    return STATUS_OK;
}

/* --- inputs --- */

/* The copies of a batch: copies from or to the host fill ctx->copies from its front, copies on the
 * device, and of zeros, from its end. */
struct copies {
    struct context *ctx;
    uint32_t n, n_near;
};

/* Adds a copy. Bytes that were packed right behind those of the last copy join that copy. Spans of
 * the caller that happen to lie behind one another do not: a copy may not read from two
 * allocations. */
static void add_copy(struct copies *c, void *to, const void *from, size_t size, bool packed)
{
    struct backend_copy *last = packed && c->n ? &c->ctx->copies[c->n - 1] : NULL;
    const char *end = last ? (const char *)last->from + last->size : NULL;
    if (last && end == from && (const char *)last->from >= c->ctx->staging &&
        (char *)last->to + last->size == (char *)to)
        last->size += size;
    else
        c->ctx->copies[c->n++] = (struct backend_copy){to, from, size};
}

static struct backend_copy *add_near(struct copies *c, void *to, const void *from, size_t size)
{
    struct backend_copy *copy = &c->ctx->copies[c->ctx->n_copies - ++c->n_near];
    *copy = (struct backend_copy){to, from, size};
    return copy;
}

static void add_zeros(struct copies *c, void *to, size_t size)
{
    add_near(c, to, c->ctx->engine->zeros, size);
}

/* Adds the copy of a span that lies on a shelf. It joins the last one of the input's if it follows
 * that on both sides: a shelf never ends where another one begins. */
static struct backend_copy *add_shelved(struct copies *c, struct backend_copy *last, void *to,
                                        const void *from, size_t size)
{
    if (!last || (const char *)last->from + last->size != (const char *)from ||
        (char *)last->to + last->size != (char *)to)
        return add_near(c, to, from, size);
    last->size += size;
    return last;
}

/* Where a span lies on a shelf; NULL: on none. */
static const void *shelved_at(const struct context *ctx, uint32_t index, uint32_t span)
{
    const struct engine_batch *batch = &ctx->batch;
    if (span >= batch->n_requests || !batch->requests[span].shelved)
        return NULL;
    return batch->requests[span].shelved[index];
}

/* How many instances' bytes a batch has of an input. */
static uint32_t count_of(const struct context *ctx, uint32_t index, uint32_t batch)
{
    const struct engine_info *info = &ctx->engine->info;
    return engine_count_of(info, engine_input_axes(info, index), batch);
}

/* The spans that are read: of an input that all requests share, one. */
static uint32_t spans_of(const struct context *ctx, uint32_t index,
                         const struct engine_input *input)
{
    const struct engine_axes *axes = engine_input_axes(&ctx->engine->info, index);
    return axes && axes->shared ? MIN(input->n_spans, 1u) : input->n_spans;
}

/* Adds the copies that put the input into the device's arena; instances of the profile that the
 * batch leaves empty become zeros. There is at most one copy for each instance of the profile. */
static void gather(struct copies *c, const struct profile *p, uint32_t index,
                   const struct engine_input *input)
{
    const struct context *ctx = c->ctx;
    size_t instance = p->in[index].instance_bytes, at = 0;
    char *to = ctx->base[SIDE_DEVICE] + p->inputs[index].offset;
    char *packed =
        ctx->staging_offset[index] == SIZE_MAX ? NULL : ctx->staging + ctx->staging_offset[index];
    struct backend_copy *last = NULL;
    for (uint32_t i = 0; i < spans_of(ctx, index, input); at += input->spans[i++].size) {
        const struct engine_span *span = &input->spans[i];
        const void *shelved = shelved_at(ctx, index, i);
        bool small = packed && span->size <= ENGINE_PACK_MAX;
        if (!span->size)
            continue;
        if (shelved) {
            last = add_shelved(c, last, to + at, shelved, span->size);
            continue;
        }
        assert(span->data);
        add_copy(c, to + at, small ? memcpy(packed + at, span->data, span->size) : span->data,
                 span->size, small);
    }
    size_t rest = count_of(ctx, index, p->info->batch) * instance - at;
    if (packed && rest)
        add_copy(c, to + at, memset(packed + at, 0, rest), rest, true);
    for (; !packed && rest; rest -= instance, at += instance)
        add_zeros(c, to + at, instance);
}

static void gather_on_host(const struct context *ctx, const struct profile *p, uint32_t index,
                           const struct engine_input *input)
{
    char *to = ctx->base[SIDE_HOST] + p->inputs[index].offset;
    size_t rest = count_of(ctx, index, p->info->batch) * p->in[index].instance_bytes;
    for (uint32_t i = 0; i < spans_of(ctx, index, input); i++) {
        const struct engine_span *span = &input->spans[i];
        assert(span->data || !span->size);
        if (span->size)
            memcpy(to, span->data, span->size);
        to += span->size;
        rest -= span->size;
    }
    memset(to, 0, rest);
}

static enum status start_copies(const struct copies *c, enum copy_direction direction,
                                struct error *err)
{
    struct context *ctx = c->ctx;
    const struct backend *backend = ctx->backend;
    if (c->n)
        TRY(backend->copy(ctx->lane->stream, direction, ctx->copies, c->n, err));
    if (c->n_near)
        TRY(backend->copy(ctx->lane->stream, backend->host_memory ? COPY_TO_DEVICE : COPY_ON_DEVICE,
                          ctx->copies + (ctx->n_copies - c->n_near), c->n_near, err));
    return STATUS_OK;
}

/* The bytes of a span that is the whole input and that the device may read in place; or NULL. */
static const void *whole_span(const struct context *ctx, const struct profile *p, uint32_t index,
                              const struct engine_input *input)
{
    if (!context_in_place(ctx) || spans_of(ctx, index, input) != 1 ||
        !context_fills(ctx, p, true, index) || (uintptr_t)input->spans[0].data % BACKEND_ALIGN)
        return NULL;
    return input->spans[0].data;
}

static size_t input_bytes(const struct context *ctx, const struct profile *p, uint32_t index)
{
    return count_of(ctx, index, p->info->batch) * p->in[index].instance_bytes;
}

/* Binds an input that is made of boxes. */
static void bind_boxes(struct copies *c, struct profile *p, uint32_t index, bool named,
                       const struct engine_input *from)
{
    struct context *ctx = c->ctx;
    struct profile_input *input = &p->inputs[index];
    const void *made = context_box_input(ctx, p, index, named, from);
    size_t bytes = input_bytes(ctx, p, index);
    if (context_in_place(ctx))
        input->now = (void *)(uintptr_t)made;
    else if (input->used[SIDE_DEVICE] && bytes)
        add_copy(c, ctx->base[SIDE_DEVICE] + input->offset, made, bytes, false);
    if (input->used[SIDE_HOST] && bytes)
        memcpy(ctx->base[SIDE_HOST] + input->offset, made, bytes);
}

enum status context_bind_inputs(struct context *ctx, struct profile *p, bool named,
                                const struct engine_input *inputs, struct error *err)
{
    struct copies copies = {.ctx = ctx};
    for (uint32_t i = 0; i < ctx->engine->info.n_inputs; i++) {
        const void *whole = whole_span(ctx, p, i, &inputs[i]);
        struct profile_input *input = &p->inputs[i];
        input->now = whole ? (void *)(uintptr_t)whole : ctx->base[SIDE_DEVICE] + input->offset;
        if (!whole && ctx->in_box[i] != SIZE_MAX) {
            bind_boxes(&copies, p, i, named, &inputs[i]);
            continue;
        }
        if (!whole && input->used[SIDE_DEVICE])
            gather(&copies, p, i, &inputs[i]);
        if (input->used[SIDE_HOST])
            gather_on_host(ctx, p, i, &inputs[i]);
    }
    return start_copies(&copies, COPY_TO_DEVICE, err);
}

enum status context_zero_inputs(struct context *ctx, struct profile *p, struct error *err)
{
    struct copies copies = {.ctx = ctx};
    for (uint32_t i = 0; i < ctx->engine->info.n_inputs; i++) {
        size_t instance = p->in[i].instance_bytes;
        for (uint32_t k = 0; k < count_of(ctx, i, p->info->batch) && instance; k++)
            add_zeros(&copies, ctx->base[SIDE_DEVICE] + p->inputs[i].offset + k * instance,
                      instance);
        if (p->inputs[i].used[SIDE_HOST])
            memset(ctx->base[SIDE_HOST] + p->inputs[i].offset, 0, input_bytes(ctx, p, i));
    }
    return start_copies(&copies, COPY_TO_DEVICE, err);
}

/* --- outputs --- */

/* Whether requests have boxes of the output, which are cut out once the batch has run. */
static bool is_cut(const struct context *ctx, const struct profile *p, uint32_t index)
{
    return ctx->out_box[index] != SIZE_MAX && !context_fills(ctx, p, false, index);
}

void context_bind_outputs(struct context *ctx, struct profile *p)
{
    for (uint32_t i = 0; context_in_place(ctx) && i < ctx->engine->info.n_outputs; i++)
        p->outputs[i].now = ctx->output && !is_cut(ctx, p, i) ? ctx->output + p->info->out_offset[i]
                                                              : p->outputs[i].arena;
}

/* Starts the copy of a whole output to the host, where it will be cut. */
static void land(struct copies *c, const struct profile *p, uint32_t index)
{
    struct context *ctx = c->ctx;
    const struct profile_output *from = &p->outputs[index];
    size_t size = p->info->batch * p->out[index].instance_bytes;
    if (!size || from->on_host || ctx->backend->host_memory)
        return;
    add_copy(c, ctx->boxes + ctx->out_box[index], from->made, size, false);
}

/* Starts the copy of an output that is what its requests get, one behind the other. */
static void collect(struct copies *c, const struct profile *p, uint32_t index, size_t size)
{
    struct context *ctx = c->ctx;
    const struct profile_output *from = &p->outputs[index];
    size_t offset = p->info->out_offset[index];
    uint64_t bit = index < 64 && !ctx->tail_input ? UINT64_C(1) << index : 0;
    bool shelved = ctx->batch.shelf && ctx->batch.shelve & bit;
    if (from->on_host) {
        memcpy(ctx->output + offset, from->made, size);
        return;
    }
    if (shelved) {
        add_near(c, (void *)(uintptr_t)shelf_at(ctx->batch.shelf, offset), from->made, size);
        ctx->shelved |= bit;
    }
    if (!shelved || !(ctx->batch.unread & bit))
        add_copy(c, ctx->output + offset, from->made, size, false);
}

enum status context_collect(struct context *ctx, struct profile *p, struct error *err)
{
    struct copies copies = {.ctx = ctx};
    for (uint32_t i = 0; i < ctx->engine->info.n_outputs; i++) {
        size_t size = ctx->batch.instances * p->out[i].instance_bytes;
        if (is_cut(ctx, p, i))
            land(&copies, p, i);
        else if (size && p->outputs[i].made != ctx->output + p->info->out_offset[i])
            collect(&copies, p, i, size);
    }
    return start_copies(&copies, COPY_TO_HOST, err);
}
