/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs and outputs of a batch. A device that reads host memory reads a lone, aligned span that
 * fills the profile in place; other spans are gathered in the arena. For a device with memory of
 * its own all copies of a batch go in one call. Large spans are copied straight from where they
 * are. Small spans are packed into the context's staging memory first and copied in runs, because
 * one more copy by the device takes longer than a small copy by the processor.
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
        if (ctx->backend->host_memory || info->inputs[i].instance_bytes > ENGINE_PACK_MAX)
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

/* The copies of a batch: copies from the host fill ctx->copies from its front, copies of zeros from
 * its end. */
struct copies {
    struct context *ctx;
    uint32_t n, n_zeros;
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

static void add_zeros(struct copies *c, void *to, size_t size)
{
    c->ctx->copies[c->ctx->n_copies - ++c->n_zeros] =
        (struct backend_copy){to, c->ctx->engine->zeros, size};
}

/* Adds the copies that put the input into the device's arena; instances of the profile that the
 * batch leaves empty become zeros. There is at most one copy for each instance of the profile. */
static void gather(struct copies *c, const struct profile *p, uint32_t index, uint32_t batch,
                   const struct engine_input *input)
{
    const struct context *ctx = c->ctx;
    size_t instance = p->in[index].instance_bytes, at = 0;
    char *to = ctx->base[SIDE_DEVICE] + p->inputs[index].offset;
    char *packed =
        ctx->staging_offset[index] == SIZE_MAX ? NULL : ctx->staging + ctx->staging_offset[index];
    for (uint32_t i = 0; i < input->n_spans; i++) {
        const struct engine_span *span = &input->spans[i];
        bool small = packed && span->size <= ENGINE_PACK_MAX;
        if (!span->size)
            continue;
        assert(span->data);
        add_copy(c, to + at, small ? memcpy(packed + at, span->data, span->size) : span->data,
                 span->size, small);
        at += span->size;
    }
    size_t rest = (p->info->batch - batch) * instance;
    if (packed && rest)
        add_copy(c, to + at, memset(packed + at, 0, rest), rest, true);
    for (; !packed && rest; rest -= instance, at += instance)
        add_zeros(c, to + at, instance);
}

static void gather_on_host(const struct context *ctx, const struct profile *p, uint32_t index,
                           uint32_t batch, const struct engine_input *input)
{
    char *to = ctx->base[SIDE_HOST] + p->inputs[index].offset;
    for (uint32_t i = 0; i < input->n_spans; i++) {
        const struct engine_span *span = &input->spans[i];
        assert(span->data || !span->size);
        if (span->size)
            memcpy(to, span->data, span->size);
        to += span->size;
    }
    memset(to, 0, (p->info->batch - batch) * p->in[index].instance_bytes);
}

static enum status start_copies(const struct copies *c, struct error *err)
{
    struct context *ctx = c->ctx;
    const struct backend *backend = ctx->backend;
    if (c->n)
        TRY(backend->copy(ctx->lane->stream, COPY_TO_DEVICE, ctx->copies, c->n, err));
    if (c->n_zeros)
        TRY(backend->copy(ctx->lane->stream, backend->host_memory ? COPY_TO_DEVICE : COPY_ON_DEVICE,
                          ctx->copies + (ctx->n_copies - c->n_zeros), c->n_zeros, err));
    return STATUS_OK;
}

/* The bytes of a span that is the whole input and that the device may read in place; or NULL. */
static const void *whole_span(const struct context *ctx, const struct profile *p, uint32_t batch,
                              const struct engine_input *input)
{
    if (!context_in_place(ctx) || input->n_spans != 1 || batch != p->info->batch ||
        (uintptr_t)input->spans[0].data % BACKEND_ALIGN)
        return NULL;
    return input->spans[0].data;
}

enum status context_bind_inputs(struct context *ctx, struct profile *p, uint32_t batch,
                                const struct engine_input *inputs, struct error *err)
{
    struct copies copies = {.ctx = ctx};
    for (uint32_t i = 0; i < ctx->engine->info.n_inputs; i++) {
        const void *whole = whole_span(ctx, p, batch, &inputs[i]);
        struct profile_input *input = &p->inputs[i];
        input->now = whole ? (void *)(uintptr_t)whole : ctx->base[SIDE_DEVICE] + input->offset;
        if (!whole && input->used[SIDE_DEVICE])
            gather(&copies, p, i, batch, &inputs[i]);
        if (input->used[SIDE_HOST])
            gather_on_host(ctx, p, i, batch, &inputs[i]);
    }
    return start_copies(&copies, err);
}

enum status context_zero_inputs(struct context *ctx, struct profile *p, struct error *err)
{
    struct copies copies = {.ctx = ctx};
    for (uint32_t i = 0; i < ctx->engine->info.n_inputs; i++) {
        size_t instance = p->in[i].instance_bytes;
        for (uint32_t k = 0; k < p->info->batch && instance; k++)
            add_zeros(&copies, ctx->base[SIDE_DEVICE] + p->inputs[i].offset + k * instance,
                      instance);
        if (p->inputs[i].used[SIDE_HOST])
            memset(ctx->base[SIDE_HOST] + p->inputs[i].offset, 0, p->info->batch * instance);
    }
    return start_copies(&copies, err);
}

/* --- outputs --- */

enum status context_collect(struct context *ctx, struct profile *p, uint32_t batch, char *output,
                            struct error *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ctx->engine->info.n_outputs; i++) {
        size_t size = batch * p->out[i].instance_bytes;
        char *to = output + p->info->out_offset[i];
        const struct profile_output *from = &p->outputs[i];
        if (!size || from->made == to)
            continue;
        if (from->on_host)
            memcpy(to, from->made, size);
        else
            ctx->copies[n++] = (struct backend_copy){to, from->made, size};
    }
    return n ? ctx->backend->copy(ctx->lane->stream, COPY_TO_HOST, ctx->copies, n, err) : STATUS_OK;
}
