/* SPDX-License-Identifier: Apache-2.0 */
/* The normalisations of onnxruntime's own domain: with a sum or an embedding before them, or a
 * function behind them. */
#include "engine/import/ops.h"

/* a + b, where b may be absent. */
static uint32_t sum(struct mapper *m, uint32_t a, uint32_t b)
{
    return b == IR_NONE ? a : emit_binary(m, IR_BINARY_ADD, a, b);
}

static uint32_t last_axis(struct mapper *m, uint32_t x)
{
    return map_axis(m, -1, map_shape(m, x)->rank);
}

static void refuse_statistics(struct mapper *m)
{
    if (map_out_used(m, 1) || map_out_used(m, 2))
        map_refuse(m, "statistics, which only training needs");
}

/* Layer or RMS normalisation of input + skip + bias; the sum is output 3. */
void map_skip_layer_norm(struct mapper *m)
{
    bool simple = m->row->func;
    uint32_t input = map_in(m, 0), skip = map_in(m, 1), gamma = map_in(m, 2);
    uint32_t beta = simple ? IR_NONE : map_in_opt(m, 3), bias = map_in_opt(m, simple ? 3 : 4);
    float epsilon = map_attr_float(m, "epsilon", 1e-12F);
    refuse_statistics(m);
    uint32_t x = sum(m, emit_binary(m, IR_BINARY_ADD, input, skip), bias), axis = last_axis(m, x);
    if (!map_failed(m) && !shape_equal(map_shape(m, x), map_shape(m, input)))
        map_invalid(m, "skip or bias does not broadcast to the input");
    map_out(m, 0,
            simple ? emit_rms_norm(m, x, gamma, axis, epsilon)
                   : emit_layer_norm(m, x, gamma, beta, axis, epsilon));
    map_out(m, 3, x);
}

/* The rows of the table of positions: those that `ids` names, or the first ones. */
static uint32_t positions(struct mapper *m, uint32_t table, uint32_t ids, int64_t n)
{
    if (ids != IR_NONE)
        return emit_gather(m, table, ids, 0);
    if (!map_failed(m) && (map_shape(m, table)->rank != 2 || map_shape(m, table)->dim[0] < n)) {
        map_invalid(m, "%lld positions, and a table that has fewer", (long long)n);
        return IR_NONE;
    }
    return map_failed(m) ? IR_NONE : emit_slice(m, table, 0, 0, n);
}

/* How many tokens of each sequence the mask shows. */
static uint32_t mask_lengths(struct mapper *m, uint32_t mask, int64_t sequences)
{
    const struct shape shape = {.rank = 1, .dim = {sequences}};
    if (mask == IR_NONE)
        return emit_expand(m, emit_scalar(m, DTYPE_I32, 0), &shape);
    uint32_t one = emit_scalar(m, map_dtype(m, mask), 1);
    uint32_t shown = emit_cast(m, emit_binary(m, IR_BINARY_EQUAL, mask, one), DTYPE_I32);
    return emit_reduce(m, IR_REDUCE_SUM, shown, &(struct ints){.n = 1, .v = {1}}, false);
}

void map_embed_layer_norm(struct mapper *m)
{
    uint32_t ids = map_in(m, 0), segments = map_in_opt(m, 1), words = map_in(m, 2);
    uint32_t position = map_in(m, 3), segment = map_in_opt(m, 4), gamma = map_in(m, 5);
    uint32_t beta = map_in(m, 6), mask = map_in_opt(m, 7), places = map_in_opt(m, 8);
    struct shape tokens = *map_shape(m, ids);
    if (!map_failed(m) && (tokens.rank != 2 || (segments == IR_NONE) != (segment == IR_NONE)))
        map_invalid(m, "token ids of rank %u, expected 2; segments and their table come together",
                    tokens.rank);
    if (!map_failed(m) && mask != IR_NONE && !shape_equal(map_shape(m, mask), &tokens))
        map_invalid(m, "its mask has another shape than the token ids");
    uint32_t x = emit_gather(m, words, ids, 0);
    x = emit_binary(m, IR_BINARY_ADD, x, positions(m, position, places, tokens.dim[1]));
    if (segments != IR_NONE)
        x = sum(m, x, emit_gather(m, segment, segments, 0));
    float epsilon = map_attr_float(m, "epsilon", 1e-12F);
    map_out(m, 0, emit_layer_norm(m, x, gamma, beta, last_axis(m, x), epsilon));
    if (map_out_used(m, 1))
        map_out(m, 1, mask_lengths(m, mask, tokens.dim[0]));
    map_out(m, 2, x);
}

/* --- GroupNorm --- */

/* Moves the channels of x to dimension 1, or back to the last one. */
static uint32_t move_channels(struct mapper *m, uint32_t x, bool to_front)
{
    int64_t perm[SHAPE_MAX_RANK];
    uint32_t rank = map_shape(m, x)->rank;
    for (uint32_t d = 0; d < rank; d++)
        if (to_front)
            perm[d] = d < 2 ? d * (rank - 1) : d - 1;
        else
            perm[d] = d == 0 ? 0 : d + 1 == rank ? 1 : d + 1;
    return emit_transpose(m, x, rank, perm);
}

/* Lets a skip of [N,C] broadcast over the places of an image with channels last. */
static uint32_t over_places(struct mapper *m, uint32_t skip, const struct shape *image)
{
    const struct shape *shape = map_shape(m, skip);
    if (shape->rank != 2)
        return skip;
    struct shape out = {.rank = image->rank, .dim = {shape->dim[0], 1, 1, shape->dim[1]}};
    return emit_reshape(m, skip, &out);
}

/* Group normalisation of X, or of X + skip + bias; with `activation` 1 a swish follows. */
void map_group_norm_silu(struct mapper *m)
{
    uint32_t x = map_in(m, 0), scale = map_in(m, 1), shift = map_in(m, 2);
    bool with_skip = m->row->func, last = map_attr_int(m, "channels_last", 1) != 0;
    int64_t groups = map_attr_int(m, "groups", 0), swish = map_attr_int(m, "activation", 0);
    enum dtype dtype = map_dtype(m, x);
    struct shape image = *map_shape(m, x);
    if (!map_failed(m) && (image.rank != 4 || groups < 1))
        map_invalid(m, "an input of rank %u and %lld groups, expected rank 4 and a group",
                    image.rank, (long long)groups);
    if (swish != 0 && swish != 1)
        map_invalid(m, "attribute 'activation' is %lld, expected 0 or 1", (long long)swish);
    if (with_skip && !last)
        map_refuse(m, "a skip with channels first");
    if (with_skip)
        x = sum(m, emit_binary(m, IR_BINARY_ADD, x, over_places(m, map_in(m, 3), &image)),
                map_in_opt(m, 4));
    uint32_t whole = x;
    if (last)
        x = move_channels(m, x, true);
    x = emit_instance_norm(m, x, emit_cast(m, scale, dtype), emit_cast(m, shift, dtype), groups);
    if (swish)
        x = emit_unary(m, IR_UNARY_SWISH, x);
    map_out(m, 0, last ? move_channels(m, x, false) : x);
    if (with_skip)
        map_out(m, 1, whole);
}
