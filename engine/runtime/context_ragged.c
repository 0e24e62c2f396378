/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Batches of a ragged plan. The tokens of all sequences are put one behind the other, without what
 * they are padded with, and so are the numbers that say where sequences lie; then the layers run as
 * for any other batch. What they make of tokens and of sequences is put where the requests' outputs
 * are, with zeros for tokens that are not there.
 */
#include <string.h>

#include "base/checked.h"
#include "engine/runtime/context.h"
#include "engine/runtime/memory.h"

struct context_ragged {
    char *in, *out;    /* MEMORY_PINNED: the layers' inputs and outputs, of the largest batch */
    size_t *in_offset; /* by the layers' inputs */
    struct engine_span *spans; /* the same */
    struct engine_input *inputs;
    uint32_t *lengths; /* of the batch's sequences, one request's after the other's */
    uint32_t n, tokens;
    struct engine_batch batch; /* the caller's */
    char *output;              /* the caller's */
};

static bool lay_out_inputs(struct context *ctx, size_t *total)
{
    const struct engine_info *info = &ctx->engine->info;
    *total = 0;
    for (uint32_t i = 0; i < info->n_inputs; i++) {
        size_t bytes;
        ctx->ragged->in_offset[i] = *total;
        if (!checked_mul(info->inputs[i].instance_bytes, info->max_batch, &bytes) ||
            !checked_add(*total, bytes, total) || !checked_round_up(*total, BACKEND_ALIGN, total))
            return false;
    }
    return true;
}

enum status context_ragged_new(struct context *ctx, struct error *err)
{
    const struct engine_info *info = &ctx->engine->info;
    size_t in = 0;
    void *memory;
    if (!ctx->engine->shown.ragged)
        return STATUS_OK;
    struct context_ragged *r = ctx->ragged = context_take(ctx, 1, sizeof(*r));
    if (!r)
        return error_no_memory(err, "a context");
    *r = (struct context_ragged){.in_offset =
                                     context_take(ctx, info->n_inputs, sizeof(*r->in_offset))};
    r->spans = context_take(ctx, info->n_inputs, sizeof(*r->spans));
    r->inputs = context_take(ctx, info->n_inputs, sizeof(*r->inputs));
    r->lengths = context_take(ctx, info->max_batch, sizeof(*r->lengths));
    if (!r->in_offset || !r->spans || !r->inputs || !r->lengths)
        return error_no_memory(err, "a context");
    if (!lay_out_inputs(ctx, &in))
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "context: inputs are too large");
    TRY(memory_alloc(ctx->lane->device, MEMORY_PINNED, MAX(in, 1), "tokens", &memory, err));
    r->in = memory;
    TRY(memory_alloc(ctx->lane->device, MEMORY_PINNED, MAX(info->out_bytes_max, 1), "tokens",
                     &memory, err));
    r->out = memory;
    return STATUS_OK;
}

void context_ragged_free(struct context *ctx)
{
    if (!ctx->ragged)
        return;
    memory_free(ctx->lane->device, MEMORY_PINNED, ctx->ragged->in);
    memory_free(ctx->lane->device, MEMORY_PINNED, ctx->ragged->out);
}

/* --- lengths --- */

/* The spans of request r, one an input. */
static enum status spans_of(const struct engine_info *shown, const struct engine_batch *batch,
                            const struct engine_input *inputs, uint32_t r,
                            struct engine_span spans[IR_MAX_IO], struct error *err)
{
    const struct engine_request *request = &batch->requests[r];
    for (uint32_t i = 0; i < shown->n_inputs; i++) {
        struct shape shape = engine_shape_of(shown, &shown->input_axes[i], &shown->inputs[i].shape,
                                             request->instances, request->values);
        size_t bytes;
        if (r >= inputs[i].n_spans || !shape_bytes(&shape, shown->inputs[i].dtype, &bytes) ||
            inputs[i].spans[r].size != bytes)
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "input '%s': request %u does not have what its shape says",
                             shown->inputs[i].name, r);
        spans[i] = inputs[i].spans[r];
    }
    return STATUS_OK;
}

static enum status take_request(struct context *ctx, const struct engine_batch *batch,
                                const struct engine_input *inputs, uint32_t r, struct error *err)
{
    const struct engine_info *shown = &ctx->engine->shown;
    struct context_ragged *ragged = ctx->ragged;
    const struct engine_request *request = &batch->requests[r];
    struct engine_span spans[IR_MAX_IO];
    uint32_t instances = 0, tokens = 0;
    TRY(spans_of(shown, batch, inputs, r, spans, err));
    if (request->values[0] <= shown->max_batch &&
        request->values[0] > (int64_t)shown->max_batch - ragged->n)
        return error_set(err, STATUS_INVALID_ARGUMENT, "a batch of more than %u sequences",
                         shown->max_batch);
    TRY(engine_ragged_lengths(shown, request->values, spans, ragged->lengths + ragged->n, &tokens,
                              err));
    TRY(engine_ragged_count(shown, request->values, tokens, &instances, err));
    if (request->instances < instances)
        return error_set(err, STATUS_INVALID_ARGUMENT, "request %u counts %u instances, and has %u",
                         r, request->instances, instances);
    ragged->n += (uint32_t)request->values[0];
    ragged->tokens += tokens;
    return STATUS_OK;
}

/* Sequences as long as may be. */
static void take_whole(struct context *ctx, uint32_t tokens)
{
    struct context_ragged *r = ctx->ragged;
    uint32_t most = (uint32_t)ctx->engine->shown.ragged->max_length;
    for (r->tokens = 0; r->tokens < tokens; r->tokens += r->lengths[r->n++])
        r->lengths[r->n] = MIN(tokens - r->tokens, most);
}

static enum status take_lengths(struct context *ctx, const struct engine_batch *batch,
                                const struct engine_input *inputs, struct error *err)
{
    uint64_t sum = 0;
    uint32_t most = ctx->engine->shown.max_batch;
    ctx->ragged->n = ctx->ragged->tokens = 0;
    if (!batch->instances || batch->instances > most)
        return error_set(err, STATUS_INVALID_ARGUMENT, "a batch of %u: the engine takes 1 to %u",
                         batch->instances, most);
    if (!batch->requests) {
        take_whole(ctx, batch->instances);
        return STATUS_OK;
    }
    for (uint32_t r = 0; r < batch->n_requests; r++)
        sum += batch->requests[r].instances;
    if (sum != batch->instances)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "a batch of %u, whose requests have %llu instances", batch->instances,
                         (unsigned long long)sum);
    for (uint32_t r = 0; inputs && r < batch->n_requests; r++)
        TRY(take_request(ctx, batch, inputs, r, err));
    if (!inputs)
        take_whole(ctx, batch->instances);
    return STATUS_OK;
}

/* --- inputs --- */

/* Puts the tokens of all requests one behind the other. */
static void gather_tokens(const struct context *ctx, const struct engine_batch *batch,
                          const struct engine_input *input, size_t token, char *to)
{
    const struct context_ragged *r = ctx->ragged;
    uint32_t at = 0;
    for (uint32_t k = 0; k < batch->n_requests; k++) {
        const struct engine_request *request = &batch->requests[k];
        const char *row = input->spans[k].data;
        for (int64_t i = 0; i < request->values[0]; i++, at++) {
            size_t bytes = r->lengths[at] * token;
            if (bytes)
                memcpy(to, row, bytes);
            to += bytes;
            row += (size_t)request->values[1] * token;
        }
    }
}

/* Those of a batch without requests lie so already, in as many pieces as there are spans. */
static enum status gather_whole(const struct context *ctx, const struct engine_binding *binding,
                                const struct engine_input *input, char *to, struct error *err)
{
    size_t rest = ctx->ragged->tokens * binding->instance_bytes;
    for (uint32_t i = 0; i < input->n_spans; i++) {
        size_t size = input->spans[i].size;
        if (size > rest)
            break;
        if (size)
            memcpy(to, input->spans[i].data, size);
        to += size;
        rest -= size;
    }
    return rest ? error_set(err, STATUS_INVALID_ARGUMENT,
                            "input '%s': a batch of %u tokens needs %zu bytes for each",
                            binding->name, ctx->ragged->tokens, binding->instance_bytes)
                : STATUS_OK;
}

/* The numbers of each sequence's tokens, or of the sequences. */
static void number(const struct context_ragged *r, enum plan_role role, int32_t *to)
{
    int32_t first = 0;
    if (role == PLAN_ROLE_STARTS)
        memset(to, 0, r->tokens * sizeof(*to));
    for (uint32_t i = 0; i < r->n; i++) {
        int32_t length = (int32_t)r->lengths[i];
        for (int32_t k = 0; k < length && role == PLAN_ROLE_POSITIONS; k++)
            to[first + k] = k;
        for (int32_t k = 0; k < length && role == PLAN_ROLE_SPANS; k++) {
            to[2 * (first + k)] = first;
            to[2 * (first + k) + 1] = first + length;
        }
        if (role == PLAN_ROLE_STARTS)
            to[i] = first;
        first += length;
    }
}

static enum status make_inputs(struct context *ctx, const struct engine_batch *batch,
                               const struct engine_input *inputs, struct error *err)
{
    const struct engine_info *info = &ctx->engine->info, *shown = &ctx->engine->shown;
    const struct plan *plan = ctx->engine->plan;
    struct context_ragged *r = ctx->ragged;
    for (uint32_t i = 0, from = 0; i < info->n_inputs; i++) {
        enum plan_role role = (enum plan_role)plan->input_axes[i].role;
        const struct engine_binding *binding = &info->inputs[i];
        char *to = r->in + r->in_offset[i];
        if (role != PLAN_ROLE_TOKENS) {
            number(r, role, (int32_t *)(void *)to);
        } else {
            from += from == shown->ragged->mask;
            const struct engine_input *input = &inputs[from++];
            if (batch->requests)
                gather_tokens(ctx, batch, input, binding->instance_bytes, to);
            else
                TRY(gather_whole(ctx, binding, input, to, err));
        }
        r->spans[i] = (struct engine_span){to, r->tokens * binding->instance_bytes};
        r->inputs[i] = (struct engine_input){&r->spans[i], 1};
    }
    return STATUS_OK;
}

enum status context_ragged_enqueue(struct context *ctx, const struct engine_batch *batch,
                                   const struct engine_input *inputs, void *output,
                                   struct error *err)
{
    struct context_ragged *r = ctx->ragged;
    if (ctx->running)
        return error_set(err, STATUS_FAILED_PRECONDITION, "the context is running a batch");
    if (batch->point)
        return error_set(err, STATUS_INVALID_ARGUMENT, "there is no point %u", batch->point);
    TRY(take_lengths(ctx, batch, inputs, err));
    if (inputs)
        TRY(make_inputs(ctx, batch, inputs, err));
    r->batch = *batch;
    r->output = output;
    const struct engine_batch flat = {.instances = r->tokens};
    return context_enqueue_layers(ctx, &flat, inputs ? r->inputs : NULL, output ? r->out : NULL,
                                  err);
}

/* --- outputs --- */

/* One request's rows of tokens, from the sequence numbered `at` on. */
static const char *pad_rows(const struct context_ragged *r, const struct engine_request *request,
                            uint32_t at, size_t row, const char *from, char *to)
{
    for (int64_t i = 0; i < request->values[0]; i++) {
        size_t bytes = r->lengths[at + i] * row, all = (size_t)request->values[1] * row;
        if (all) {
            memcpy(to, from, bytes);
            memset(to + bytes, 0, all - bytes);
        }
        from += bytes;
        to += all;
    }
    return from;
}

static void put_output(const struct context *ctx, const struct profile *p, uint32_t index)
{
    const struct engine_info *shown = &ctx->engine->shown;
    const struct context_ragged *r = ctx->ragged;
    const struct engine_batch *batch = &r->batch;
    size_t row = p->out[index].instance_bytes, room = shown->outputs[index].instance_bytes;
    bool sequences = shown->ragged->sequences >> index & 1;
    const char *from = r->out + p->info->out_offset[index];
    char *to = r->output + engine_profile_for(ctx->engine, 0, batch->instances)->out_offset[index];
    if (!batch->requests) {
        memcpy(to, from, (sequences ? r->n : r->tokens) * row);
        return;
    }
    for (uint32_t k = 0, at = 0; k < batch->n_requests; k++) {
        const struct engine_request *request = &batch->requests[k];
        if (sequences) {
            memcpy(to, from, (size_t)request->values[0] * row);
            from += (size_t)request->values[0] * row;
        } else {
            from = pad_rows(r, request, at, row, from, to);
        }
        at += (uint32_t)request->values[0];
        to += request->instances * room;
    }
}

void context_ragged_outputs(struct context *ctx, const struct profile *p)
{
    for (uint32_t i = 0; ctx->ragged->output && i < ctx->engine->info.n_outputs; i++)
        put_output(ctx, p, i);
}
