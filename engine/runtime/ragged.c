/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ragged plans, as clients see them (engine/engine.h). The plan itself is one of tokens, whose
 * instances lie one behind the other; context_ragged.c makes a batch of it.
 */
#include "base/checked.h"
#include "engine/runtime/internal.h"

enum { FREE_SEQUENCES = 0, FREE_TOKENS = 1, N_FREE };

static const struct engine_axes sequences_and_tokens = {.free = {1, 2}}, sequences = {.free = {1}};

/* --- what is shown --- */

static void *take(struct engine *engine, size_t count, size_t size)
{
    return arena_array(engine->plan->arena, count ? count : 1, size);
}

/* A row of the plan's tensor as a client's: [T,..] becomes [sequences, tokens, ..]. */
static struct engine_binding binding_of(const struct engine_binding *own, bool of_sequences)
{
    struct engine_binding b = *own;
    for (uint32_t d = own->shape.rank; !of_sequences && d > 0; d--)
        b.shape.dim[d] = own->shape.dim[d - 1];
    b.shape.rank = own->shape.rank + !of_sequences;
    b.shape.dim[0] = -1;
    if (!of_sequences)
        b.shape.dim[1] = -1;
    return b;
}

static uint32_t show_inputs(struct engine *engine, struct engine_ragged *ragged,
                            struct engine_binding *list, struct engine_axes *axes)
{
    const struct plan *plan = engine->plan;
    uint32_t n = 0;
    for (uint32_t i = 0; i <= plan->n_inputs; i++) {
        if (plan->ragged.mask && n == plan->ragged.mask_at && ragged->mask == UINT32_MAX) {
            ragged->mask = n;
            axes[n] = sequences_and_tokens;
            list[n++] =
                (struct engine_binding){.name = plan->ragged.mask,
                                        .dtype = plan->ragged.mask_type,
                                        .shape = {.rank = 2, .dim = {-1, -1}},
                                        .instance_bytes = dtype_size(plan->ragged.mask_type)};
        }
        if (i == plan->n_inputs || plan->input_axes[i].role != PLAN_ROLE_TOKENS)
            continue;
        axes[n] = sequences_and_tokens;
        list[n++] = binding_of(&engine->info.inputs[i], false);
    }
    if (ragged->mask == UINT32_MAX)
        ragged->mask = n;
    return n;
}

/* How many rows of a token output each instance has room for. */
static size_t room_of(const struct engine *engine, uint32_t output)
{
    bool tokens = engine->plan->output_axes[output].role == PLAN_ROLE_TOKENS;
    return tokens && engine->plan->ragged.mask ? ENGINE_RAGGED_PADDING : 1;
}

static bool show_outputs(struct engine *engine, struct engine_ragged *ragged,
                         struct engine_binding *list, struct engine_axes *axes)
{
    for (uint32_t i = 0; i < engine->info.n_outputs; i++) {
        bool of_sequences = engine->plan->output_axes[i].role == PLAN_ROLE_SEQUENCES;
        list[i] = binding_of(&engine->info.outputs[i], of_sequences);
        axes[i] = of_sequences ? sequences : sequences_and_tokens;
        ragged->sequences |= of_sequences ? UINT64_C(1) << i : 0;
        if (!checked_mul(list[i].instance_bytes, room_of(engine, i), &list[i].instance_bytes))
            return false;
    }
    return true;
}

/* Lays out an output buffer whose outputs are padded. */
static bool show_profile(struct engine *engine, const struct engine_binding *outputs,
                         struct engine_profile *to)
{
    uint32_t n = engine->info.n_outputs;
    size_t *offset = take(engine, n, sizeof(*offset)), end = 0, bytes;
    for (uint32_t i = 0; i < n && offset; i++) {
        offset[i] = end;
        if (!checked_mul(outputs[i].instance_bytes, to->batch, &bytes) ||
            !checked_add(end, bytes, &end) || !checked_round_up(end, BACKEND_ALIGN, &end))
            return false;
    }
    to->out_offset = offset;
    to->out_bytes = end;
    return offset != NULL;
}

static bool show_profiles(struct engine *engine, const struct engine_binding *outputs)
{
    struct engine_info *shown = &engine->shown;
    struct engine_profile *list = take(engine, shown->n_profiles, sizeof(*list));
    shown->out_bytes_max = 0;
    for (uint32_t i = 0; i < shown->n_profiles && list; i++) {
        list[i] = engine->profiles[i];
        if (!show_profile(engine, outputs, &list[i]))
            return false;
        shown->out_bytes_max = MAX(shown->out_bytes_max, list[i].out_bytes);
    }
    shown->profiles = list;
    return list != NULL;
}

bool engine_show_ragged(struct engine *engine)
{
    const struct plan *plan = engine->plan;
    struct engine_info *shown = &engine->shown;
    uint32_t n = plan->n_inputs + 1;
    struct engine_ragged *ragged = take(engine, 1, sizeof(*ragged));
    struct engine_binding *inputs = take(engine, n, sizeof(*inputs));
    struct engine_binding *outputs = take(engine, plan->n_outputs, sizeof(*outputs));
    struct engine_axes *input_axes = take(engine, n, sizeof(*input_axes));
    struct engine_axes *output_axes = take(engine, plan->n_outputs, sizeof(*output_axes));
    struct engine_free *free = take(engine, N_FREE, sizeof(*free));
    struct engine_point *point = take(engine, 1, sizeof(*point));
    if (!ragged || !inputs || !outputs || !input_axes || !output_axes || !free || !point)
        return false;
    *ragged = (struct engine_ragged){.max_length = plan->ragged.max_length, .mask = UINT32_MAX};
    shown->n_inputs = show_inputs(engine, ragged, inputs, input_axes);
    if (!show_outputs(engine, ragged, outputs, output_axes) || !show_profiles(engine, outputs))
        return false;
    free[FREE_SEQUENCES] = (struct engine_free){"sequences", 1, shown->max_batch, true};
    free[FREE_TOKENS] = (struct engine_free){"tokens", 1, ragged->max_length, true};
    *point = (struct engine_point){.values = {shown->max_batch, ragged->max_length},
                                   .inputs = inputs,
                                   .outputs = outputs,
                                   .n = shown->n_profiles};
    shown->ragged = ragged;
    shown->inputs = inputs;
    shown->outputs = outputs;
    shown->input_axes = input_axes;
    shown->output_axes = output_axes;
    shown->free = free;
    shown->n_free = N_FREE;
    shown->points = point;
    shown->n_points = 1;
    return true;
}

/* --- requests --- */

static bool is_zero(const char *data, size_t size)
{
    size_t i = 0;
    while (i < size && !data[i])
        i++;
    return i == size;
}

/* How many elements in front of a row are not zeros. */
static int64_t count_front(const char *row, int64_t n, size_t size)
{
    int64_t i = 0;
    while (i < n && !is_zero(row + (size_t)i * size, size))
        i++;
    return i;
}

static enum status row_length(const struct engine_binding *mask, const char *row, int64_t number,
                              int64_t n, int64_t *out, struct error *err)
{
    size_t size = dtype_size(mask->dtype);
    int64_t length = count_front(row, n, size);
    for (int64_t i = length; i < n; i++)
        if (!is_zero(row + (size_t)i * size, size))
            return error_set(err, STATUS_INVALID_ARGUMENT,
                             "input '%s': row %lld hides token %lld and shows token %lld; this "
                             "model takes rows that begin with all tokens that there are",
                             mask->name, (long long)number, (long long)length, (long long)i);
    if (!length)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "input '%s': row %lld shows no token; each sequence has one at least",
                         mask->name, (long long)number);
    *out = length;
    return STATUS_OK;
}

enum status engine_ragged_lengths(const struct engine_info *info, const int64_t *values,
                                  const struct engine_span *spans, uint32_t *lengths,
                                  uint32_t *tokens, struct error *err)
{
    const struct engine_ragged *ragged = info->ragged;
    int64_t n = values[FREE_SEQUENCES], s = values[FREE_TOKENS], sum = 0;
    bool masked = ragged->mask < info->n_inputs;
    const struct engine_binding *mask = masked ? &info->inputs[ragged->mask] : NULL;
    if (n < 1 || n > info->max_batch || s < 1 || s > ragged->max_length)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%lld sequences of %lld tokens; this model takes 1 to %u, of 1 to %lld",
                         (long long)n, (long long)s, info->max_batch,
                         (long long)ragged->max_length);
    for (int64_t i = 0; i < n; i++) {
        int64_t length = s;
        if (mask)
            TRY(row_length(mask,
                           (const char *)spans[ragged->mask].data +
                               (size_t)(i * s) * dtype_size(mask->dtype),
                           i, s, &length, err));
        if (lengths)
            lengths[i] = (uint32_t)length;
        sum += length;
    }
    if (sum > info->max_batch)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%lld tokens in one request; this model takes at most %u", (long long)sum,
                         info->max_batch);
    *tokens = (uint32_t)sum;
    return STATUS_OK;
}

/* Whether some output has a row for each token, padded as the inputs are. */
static bool has_padding(const struct engine_info *info)
{
    for (uint32_t i = 0; i < info->n_outputs; i++)
        if (!(info->ragged->sequences >> i & 1))
            return info->ragged->mask < info->n_inputs;
    return false;
}

enum status engine_ragged_count(const struct engine_info *info, const int64_t *values,
                                uint32_t tokens, uint32_t *instances, struct error *err)
{
    int64_t all = values[FREE_SEQUENCES] * values[FREE_TOKENS];
    int64_t least = (all + ENGINE_RAGGED_PADDING - 1) / ENGINE_RAGGED_PADDING;
    if (has_padding(info) && least > info->max_batch)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "%lld sequences padded to %lld tokens; outputs as large take a batch of "
                         "%lld tokens, and this model takes %u: send fewer sequences at a time, or "
                         "pad them less",
                         (long long)values[FREE_SEQUENCES], (long long)values[FREE_TOKENS],
                         (long long)least, info->max_batch);
    *instances = has_padding(info) ? (uint32_t)MAX((int64_t)tokens, least) : tokens;
    return STATUS_OK;
}

enum status engine_ragged_instances(const struct engine_info *info, const int64_t *values,
                                    const struct engine_span *spans, uint32_t *instances,
                                    struct error *err)
{
    uint32_t tokens = 0;
    TRY(engine_ragged_lengths(info, values, spans, NULL, &tokens, err));
    return engine_ragged_count(info, values, tokens, instances, err);
}
