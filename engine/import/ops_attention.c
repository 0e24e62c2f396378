/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the attention ops of all domains share (attention.h), and ONNX's own.
 *
 * Everything that one ATTENTION node can say becomes one. Scores that are capped, or are an output,
 * are computed by products instead.
 */
#include "engine/import/attention.h"

#include <math.h>

enum { HEADS_MAX = 1 << 20 };

/* --- masks --- */

uint32_t emit_count(struct mapper *m, int64_t n)
{
    const struct shape shape = {.rank = 1, .dim = {n}};
    int64_t *room = emit_room(m, &shape, DTYPE_I64);
    if (!room)
        return IR_NONE;
    for (int64_t i = 0; i < n; i++)
        room[i] = i;
    return emit_constant(m, DTYPE_I64, &shape, room);
}

uint32_t attention_column(struct mapper *m, uint32_t x, uint32_t axis)
{
    struct shape shape = {.rank = 4, .dim = {1, 1, 1, 1}};
    if (map_failed(m))
        return IR_NONE;
    shape.dim[axis] = map_shape(m, x)->rank ? map_shape(m, x)->dim[0] : 1;
    return emit_reshape(m, x, &shape);
}

uint32_t attention_keys(struct mapper *m, int64_t keys)
{
    return attention_column(m, emit_count(m, keys), 3);
}

uint32_t attention_places(struct mapper *m, int64_t queries, uint32_t first)
{
    uint32_t places = attention_column(m, emit_count(m, queries), 2);
    return emit_binary(m, IR_BINARY_ADD, places, first);
}

uint32_t attention_mask_add(struct mapper *m, uint32_t a, uint32_t b, enum dtype dtype)
{
    uint32_t both[2] = {a, b};
    if (a == IR_NONE || b == IR_NONE)
        return a == IR_NONE ? b : a;
    if (map_dtype(m, a) == DTYPE_BOOL && map_dtype(m, b) == DTYPE_BOOL)
        return emit_binary(m, IR_BINARY_AND, a, b);
    for (uint32_t i = 0; i < 2; i++)
        if (map_dtype(m, both[i]) == DTYPE_BOOL)
            both[i] = attention_mask_numbers(m, both[i], -INFINITY, dtype);
    return emit_binary(m, IR_BINARY_ADD, both[0], both[1]);
}

uint32_t attention_mask_numbers(struct mapper *m, uint32_t seen, float unseen, enum dtype dtype)
{
    return emit_select(m, seen, emit_scalar(m, dtype, 0), emit_scalar(m, dtype, (double)unseen));
}

uint32_t attention_window(struct mapper *m, uint32_t places, int64_t keys, int64_t left,
                          int64_t right)
{
    uint32_t at = attention_keys(m, keys), seen = IR_NONE;
    left = MIN(left, IR_MAX_DIM);
    right = MIN(right, IR_MAX_DIM);
    if (right >= 0) {
        uint32_t last =
            emit_binary(m, IR_BINARY_ADD, places, emit_scalar(m, DTYPE_I64, (double)right));
        seen = emit_binary(m, IR_BINARY_LESS_EQUAL, at, last);
    }
    if (left >= 0) {
        uint32_t first =
            emit_binary(m, IR_BINARY_SUB, places, emit_scalar(m, DTYPE_I64, (double)left));
        uint32_t later = emit_binary(m, IR_BINARY_GREATER_EQUAL, at, first);
        seen = attention_mask_add(m, seen, later, DTYPE_BOOL);
    }
    return seen;
}

/* --- heads --- */

int64_t attention_heads(struct mapper *m, const char *name)
{
    int64_t heads = map_attr_int(m, name, 0);
    if (heads >= 1 && heads <= HEADS_MAX)
        return heads;
    map_invalid(m, "attribute '%s' is %lld, expected 1 to %d", name, (long long)heads, HEADS_MAX);
    return 1;
}

uint32_t attention_heads_first(struct mapper *m, uint32_t x, int64_t heads)
{
    const struct shape *shape = map_shape(m, x);
    if (map_failed(m) || shape->rank == 4)
        return x;
    if (shape->rank != 3 || heads < 1 || shape->dim[2] % heads) {
        map_invalid(m, "%lld heads in an operand of rank %u", (long long)heads, shape->rank);
        return IR_NONE;
    }
    struct shape split = {.rank = 4,
                          .dim = {shape->dim[0], shape->dim[1], heads, shape->dim[2] / heads}};
    return emit_transpose(m, emit_reshape(m, x, &split), 4, (const int64_t[]){0, 2, 1, 3});
}

int64_t attention_rows(struct mapper *m, uint32_t x)
{
    const struct shape *shape = map_shape(m, x);
    return shape->rank == 4 ? shape->dim[2] : shape->dim[1];
}

/* Past keys or values and new ones, in one operand. */
static uint32_t extend(struct mapper *m, uint32_t past, uint32_t x, int64_t heads)
{
    const struct shape *shape = map_shape(m, past);
    if (past == IR_NONE)
        return x;
    if (!map_failed(m) && shape->rank != 4)
        map_invalid(m, "past keys or values of rank %u, expected 4", shape->rank);
    x = attention_heads_first(m, x, heads);
    return map_failed(m) ? IR_NONE : emit_concat(m, 2, (const uint32_t[]){past, x}, 2);
}

int64_t attention_extend(struct mapper *m, struct attention *a, uint32_t keys, uint32_t values)
{
    if ((keys == IR_NONE) != (values == IR_NONE))
        map_invalid(m, "past keys and past values come together");
    int64_t past = keys == IR_NONE || map_failed(m) ? 0 : attention_rows(m, keys);
    a->k = extend(m, keys, a->k, a->kv_heads);
    a->v = extend(m, values, a->v, a->kv_heads);
    return past;
}

void attention_out(struct mapper *m, uint32_t i, uint32_t x, int64_t heads)
{
    if (map_out_used(m, i))
        map_out(m, i, attention_heads_first(m, x, heads));
}

float attention_scale(struct mapper *m, const char *name, int64_t columns)
{
    float given = map_attr_float(m, name, 0);
    return given != 0 || columns < 1 ? given : 1 / sqrtf((float)columns);
}

static int64_t columns_of(struct mapper *m, const struct attention *a)
{
    const struct shape *shape = map_shape(m, a->q);
    int64_t heads = a->k == IR_NONE ? a->heads + 2 * a->kv_heads : a->heads;
    return shape->rank == 4 ? shape->dim[3] : heads > 0 ? shape->dim[2] / heads : 0;
}

/* --- the node --- */

uint32_t emit_attention(struct mapper *m, const struct attention *a)
{
    const uint32_t inputs[] = {a->q, a->k, a->v, a->mask};
    uint32_t n = a->mask != IR_NONE ? 4 : a->k != IR_NONE ? 3 : 1;
    uint32_t node = emit_begin(m, IR_OP_ATTENTION, n, inputs);
    emit_int(m, node, IR_ATTR_HEADS, a->heads);
    emit_int(m, node, IR_ATTR_KV_HEADS, a->kv_heads == a->heads ? 0 : a->kv_heads);
    emit_float(m, node, IR_ATTR_ALPHA, attention_scale(m, "scale", columns_of(m, a)));
    emit_int(m, node, IR_ATTR_PACKED, a->k == IR_NONE);
    emit_int(m, node, IR_ATTR_CAUSAL, a->causal);
    return emit_end(m, node);
}

/* Gives each head of the queries keys or values of its own. */
static uint32_t repeat_heads(struct mapper *m, uint32_t x, int64_t heads)
{
    struct shape shape = *map_shape(m, x), apart = shape;
    if (map_failed(m) || shape.rank != 4 || shape.dim[1] == heads)
        return x;
    if (shape.dim[1] < 1 || heads % shape.dim[1]) {
        map_invalid(m, "%lld heads do not divide by %lld of the keys", (long long)heads,
                    (long long)shape.dim[1]);
        return IR_NONE;
    }
    apart = (struct shape){.rank = 5,
                           .dim = {shape.dim[0], shape.dim[1], 1, shape.dim[2], shape.dim[3]}};
    x = emit_reshape(m, x, &apart);
    apart.dim[2] = heads / shape.dim[1];
    shape.dim[1] = heads;
    return emit_reshape(m, emit_expand(m, x, &apart), &shape);
}

static uint32_t capped(struct mapper *m, uint32_t x, float cap)
{
    if (cap <= 0)
        return x;
    x = emit_unary(m, IR_UNARY_TANH, emit_scaled(m, x, 1 / cap));
    return emit_scaled(m, x, cap);
}

/* Attention by its products. `mode` says which scores *scores becomes: 0: the product, 1: it is
 * capped, 2: with the mask, 3: behind the softmax. */
uint32_t emit_attention_parts(struct mapper *m, const struct attention *a, float cap, int64_t mode,
                              uint32_t *scores)
{
    uint32_t q = attention_heads_first(m, a->q, a->heads), mask = a->mask;
    uint32_t k = repeat_heads(m, attention_heads_first(m, a->k, a->kv_heads), a->heads);
    uint32_t v = repeat_heads(m, attention_heads_first(m, a->v, a->kv_heads), a->heads), steps[4];
    int64_t n_q = attention_rows(m, q), n_k = attention_rows(m, k);
    uint32_t node = emit_begin(m, IR_OP_MATMUL, 2, (const uint32_t[]){q, k});
    emit_int(m, node, IR_ATTR_TRANS_B, 1);
    steps[0] = emit_scaled(m, emit_end(m, node), attention_scale(m, "scale", columns_of(m, a)));
    steps[1] = steps[2] = capped(m, steps[0], cap);
    if (a->causal) {
        uint32_t places = attention_places(m, n_q, emit_scalar(m, DTYPE_I64, (double)(n_k - n_q)));
        mask =
            attention_mask_add(m, mask, attention_window(m, places, n_k, -1, 0), map_dtype(m, q));
    }
    if (mask != IR_NONE && map_dtype(m, mask) == DTYPE_BOOL)
        mask = attention_mask_numbers(m, mask, -INFINITY, map_dtype(m, q));
    if (mask != IR_NONE)
        steps[2] = emit_binary(m, IR_BINARY_ADD, steps[1], mask);
    steps[3] = emit_softmax(m, steps[2], 3, false);
    if (mask != IR_NONE) /* a query that sees no key gives zeros */
        steps[3] = emit_select(m, emit_unary(m, IR_UNARY_IS_NAN, steps[3]),
                               emit_scalar(m, map_dtype(m, q), 0), steps[3]);
    *scores = steps[mode];
    uint32_t y = emit_matmul(m, steps[3], v, IR_NONE);
    return attention_heads_last(m, y);
}

uint32_t attention_heads_last(struct mapper *m, uint32_t x)
{
    struct shape shape = *map_shape(m, x), rows = shape;
    if (map_failed(m) || shape.rank != 4)
        return x;
    rows = (struct shape){.rank = 3, .dim = {shape.dim[0], shape.dim[2]}};
    rows.dim[2] =
        map_product(m, &(struct shape){.rank = 2, .dim = {shape.dim[1], shape.dim[3]}}, 0, 2);
    return emit_reshape(m, emit_transpose(m, x, 4, (const int64_t[]){0, 2, 1, 3}), &rows);
}

/* --- ai.onnx --- */

/* A mask for fewer keys than there are shows none of the others. */
static uint32_t mask_for(struct mapper *m, uint32_t mask, int64_t keys)
{
    const struct shape *shape = map_shape(m, mask);
    int64_t pads[2 * SHAPE_MAX_RANK] = {0};
    uint32_t rank = shape->rank;
    if (mask == IR_NONE || map_failed(m) || !rank || shape->dim[rank - 1] >= keys)
        return mask;
    bool flags = map_dtype(m, mask) == DTYPE_BOOL;
    pads[2 * rank - 1] = keys - shape->dim[rank - 1];
    uint32_t node = emit_begin(m, IR_OP_PAD, 1, &mask);
    emit_ints(m, node, IR_ATTR_PADS, 2 * rank, pads);
    emit_float(m, node, IR_ATTR_VALUE, flags ? 0 : -INFINITY);
    return emit_end(m, node);
}

/* Says which keys a query sees by its place: a causal mask, a window, and keys beyond the length of
 * a cache. A plain causal mask is left to the node. */
static void see_by_place(struct mapper *m, struct attention *a, int64_t past, uint32_t lengths)
{
    int64_t left = map_attr_int(m, "left_window_size", -1);
    int64_t right = map_attr_int(m, "right_window_size", -1);
    int64_t n_q = attention_rows(m, a->q), n_k = attention_rows(m, a->k);
    bool causal = map_attr_int(m, "is_causal", 0) != 0;
    enum dtype dtype = map_dtype(m, a->q);
    if (left < -1 || right < -1)
        map_invalid(m, "a window from %lld before a query to %lld behind it", (long long)left,
                    (long long)right);
    uint32_t first = emit_scalar(m, DTYPE_I64, (double)past);
    if (lengths != IR_NONE) {
        lengths = attention_column(m, emit_cast(m, lengths, DTYPE_I64), 0);
        first = emit_binary(m, IR_BINARY_SUB, lengths, emit_scalar(m, DTYPE_I64, (double)n_q));
        a->mask = attention_mask_add(
            m, a->mask, emit_binary(m, IR_BINARY_LESS, attention_keys(m, n_k), lengths), dtype);
    }
    a->causal = causal && lengths == IR_NONE && n_k - n_q == past;
    if (causal && !a->causal)
        right = right < 0 ? 0 : MIN(right, 0);
    if (left >= 0 || right >= 0) {
        uint32_t places = attention_places(m, n_q, first);
        a->mask =
            attention_mask_add(m, a->mask, attention_window(m, places, n_k, left, right), dtype);
    }
}

/* The output has the rank of the queries. */
static uint32_t like_queries(struct mapper *m, uint32_t y, const struct attention *a)
{
    bool first = map_shape(m, a->q)->rank == 4 && map_shape(m, y)->rank == 3;
    return first ? attention_heads_first(m, y, a->heads) : y;
}

static int64_t heads_of(struct mapper *m, uint32_t x, const char *name)
{
    return map_shape(m, x)->rank == 4 ? map_shape(m, x)->dim[1] : attention_heads(m, name);
}

void map_attention(struct mapper *m)
{
    struct attention a = {
        .q = map_in(m, 0), .k = map_in(m, 1), .v = map_in(m, 2), .mask = map_in_opt(m, 3)};
    uint32_t past_key = map_in_opt(m, 4), past_value = map_in_opt(m, 5), lengths = map_in_opt(m, 6);
    uint32_t scores = IR_NONE, y;
    float cap = map_attr_float(m, "softcap", 0);
    int64_t mode = map_attr_int(m, "qk_matmul_output_mode", 0);
    a.heads = heads_of(m, a.q, "q_num_heads");
    a.kv_heads = heads_of(m, a.k, "kv_num_heads");
    if (mode < 0 || mode > 3)
        map_invalid(m, "attribute 'qk_matmul_output_mode' is %lld", (long long)mode);
    int64_t past = attention_extend(m, &a, past_key, past_value);
    if (map_failed(m))
        return;
    a.mask = mask_for(m, a.mask, attention_rows(m, a.k));
    see_by_place(m, &a, past, lengths);
    if (cap > 0 || map_out_used(m, 3))
        y = emit_attention_parts(m, &a, cap, mode, &scores);
    else
        y = emit_attention(m, &a);
    map_out(m, 0, like_queries(m, y, &a));
    attention_out(m, 1, a.k, a.kv_heads);
    attention_out(m, 2, a.v, a.kv_heads);
    if (map_out_used(m, 3))
        map_out(m, 3, scores);
}
