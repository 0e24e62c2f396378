/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inputs and outputs of a batch. A device that reads host memory gets a lone, aligned, full span in
 * place and the rest gathered. For a device with memory of its own all copies of a batch go in one
 * call: large spans straight from where they are, runs of small ones from the context's staging,
 * where they are packed first, because a copy of its own costs more than the processor's.
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

/* The copies of a batch: those from the host from the front of ctx->copies, those of zeros from its
 * end. */
struct copies {
    struct context *ctx;
    uint32_t n, n_zeros;
};

/* What was packed behind what was packed before is one copy with it; spans that happen to lie
 * behind one another are not: a copy may not read from two allocations. */
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

/* The copies that put the input into the device's arena; what the batch leaves empty becomes zero.
 * No more than one copy an instance of the profile. */
static void gather(struct copies *c, const struct profile *p, uint32_t index, uint32_t batch,
                   const struct engine_input *input)
{
    const struct context *ctx = c->ctx;
    size_t instance = ctx->engine->info.inputs[index].instance_bytes, at = 0;
    char *to = ctx->base[SIDE_DEVICE] + p->in_offset[index];
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
    char *to = ctx->base[SIDE_HOST] + p->in_offset[index];
    for (uint32_t i = 0; i < input->n_spans; i++) {
        const struct engine_span *span = &input->spans[i];
        assert(span->data || !span->size);
        if (span->size)
            memcpy(to, span->data, span->size);
        to += span->size;
    }
    memset(to, 0, (p->info->batch - batch) * ctx->engine->info.inputs[index].instance_bytes);
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

/* The span that is the whole input, where the device may read it; or NULL. */
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
        p->in_now[i] = whole ? (void *)(uintptr_t)whole : ctx->base[SIDE_DEVICE] + p->in_offset[i];
        if (!whole && p->in_used[SIDE_DEVICE][i])
            gather(&copies, p, i, batch, &inputs[i]);
        if (p->in_used[SIDE_HOST][i])
            gather_on_host(ctx, p, i, batch, &inputs[i]);
    }
    return start_copies(&copies, err);
}

enum status context_zero_inputs(struct context *ctx, struct profile *p, struct error *err)
{
    struct copies copies = {.ctx = ctx};
    for (uint32_t i = 0; i < ctx->engine->info.n_inputs; i++) {
        size_t instance = ctx->engine->info.inputs[i].instance_bytes;
        for (uint32_t k = 0; k < p->info->batch && instance; k++)
            add_zeros(&copies, ctx->base[SIDE_DEVICE] + p->in_offset[i] + k * instance, instance);
        if (p->in_used[SIDE_HOST][i])
            memset(ctx->base[SIDE_HOST] + p->in_offset[i], 0, p->info->batch * instance);
    }
    return start_copies(&copies, err);
}

/* --- outputs --- */

enum status context_collect(struct context *ctx, struct profile *p, uint32_t batch, char *output,
                            struct error *err)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ctx->engine->info.n_outputs; i++) {
        size_t size = batch * ctx->engine->info.outputs[i].instance_bytes;
        char *to = output + p->info->out_offset[i];
        if (!size || p->out_from[i] == to)
            continue;
        if (p->out_host[i])
            memcpy(to, p->out_from[i], size);
        else
            ctx->copies[n++] = (struct backend_copy){to, p->out_from[i], size};
    }
    return n ? ctx->backend->copy(ctx->lane->stream, COPY_TO_HOST, ctx->copies, n, err) : STATUS_OK;
}
