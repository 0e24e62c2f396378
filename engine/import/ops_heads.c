/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention as onnxruntime's optimiser and its model builders write it: Attention (with the product
 * that makes queries, keys and values), MultiHeadAttention, GroupQueryAttention (with a cache and
 * rotary positions).
 */
#include "engine/import/attention.h"

/* Fails if the operand is there: a form that only onnxruntime's own generators use. */
static void refuse_operand(struct mapper *m, uint32_t i, const char *what)
{
    if (map_in_opt(m, i) != IR_NONE)
        map_refuse(m, "%s (input %u)", what, i);
}

static void refuse_attr(struct mapper *m, const char *name)
{
    if (map_attr_int(m, name, 0) != 0)
        map_refuse(m, "attribute '%s' is not 0", name);
}

/* Numbers of which one above 0 shows a key. */
static uint32_t mask_of_numbers(struct mapper *m, uint32_t mask, enum dtype dtype)
{
    float filter = map_attr_float(m, "mask_filter_value", -10000);
    uint32_t seen = mask;
    if (map_dtype(m, mask) != DTYPE_BOOL)
        seen = emit_binary(m, IR_BINARY_GREATER, mask, emit_scalar(m, map_dtype(m, mask), 0));
    return attention_mask_numbers(m, seen, filter, dtype);
}

/* [B]: where each sequence ends; [2*B]: where it ends, then where it begins. */
static uint32_t mask_of_lengths(struct mapper *m, uint32_t mask, int64_t sequences, int64_t keys,
                                enum dtype dtype)
{
    float filter = map_attr_float(m, "mask_filter_value", -10000);
    int64_t given = map_shape(m, mask)->dim[0];
    uint32_t at = attention_keys(m, keys);
    mask = emit_cast(m, mask, DTYPE_I64);
    uint32_t end = attention_column(m, emit_slice(m, mask, 0, 0, MIN(sequences, given)), 0);
    uint32_t seen = emit_binary(m, IR_BINARY_LESS, at, end);
    if (given == 2 * sequences) {
        uint32_t begin = attention_column(m, emit_slice(m, mask, 0, sequences, given), 0);
        seen =
            emit_binary(m, IR_BINARY_AND, seen, emit_binary(m, IR_BINARY_GREATER_EQUAL, at, begin));
    } else if (given != sequences) {
        map_refuse(m, "a mask of %lld lengths for %lld sequences", (long long)given,
                   (long long)sequences);
    }
    return attention_mask_numbers(m, seen, filter, dtype);
}

/* The mask of onnxruntime's ops as one that is added to the scores: by lengths, by keys [B,T], by
 * queries and keys [B,S,T], or of all positions [B,1,M,M]. */
static uint32_t read_mask(struct mapper *m, uint32_t mask, const struct attention *a, int64_t past)
{
    struct shape shape = *map_shape(m, mask), out = {.rank = 4};
    int64_t n_b = map_shape(m, a->q)->dim[0], n_q = attention_rows(m, a->q);
    int64_t n_k = attention_rows(m, a->k);
    enum dtype dtype = map_dtype(m, a->q);
    if (mask == IR_NONE || map_failed(m))
        return IR_NONE;
    if (shape.rank == 1)
        return mask_of_lengths(m, mask, n_b, n_k, dtype);
    if (shape.rank == 2 && shape.dim[1] == 1 && n_k != 1)
        return IR_NONE; /* stands for no mask */
    if (shape.rank == 4 && shape.dim[2] >= n_q + past && shape.dim[3] >= n_k && past + n_q <= n_k) {
        mask = emit_slice(m, emit_slice(m, mask, 2, past, past + n_q), 3, 0, n_k);
        return mask_of_numbers(m, mask, dtype);
    }
    if (shape.rank < 2 || shape.rank > 3) {
        map_refuse(m, "a mask of rank %u", shape.rank);
        return IR_NONE;
    }
    out.dim[0] = shape.dim[0];
    out.dim[1] = 1;
    out.dim[2] = shape.rank == 3 ? shape.dim[1] : 1;
    out.dim[3] = shape.dim[shape.rank - 1];
    return mask_of_numbers(m, emit_reshape(m, mask, &out), dtype);
}

/* --- Attention --- */

/* One of the two halves of [2,B,H,P,D]; IR_NONE of IR_NONE. */
static uint32_t half_of(struct mapper *m, uint32_t past, int64_t half)
{
    struct shape shape = *map_shape(m, past);
    if (past == IR_NONE || map_failed(m))
        return IR_NONE;
    if (shape.rank != 5 || shape.dim[0] != 2) {
        map_invalid(m, "a past of rank %u, expected [2,B,H,P,D]", shape.rank);
        return IR_NONE;
    }
    struct shape one = {.rank = 4, .dim = {shape.dim[1], shape.dim[2], shape.dim[3], shape.dim[4]}};
    return emit_reshape(m, emit_slice(m, past, 0, half, half + 1), &one);
}

static uint32_t both_halves(struct mapper *m, const struct attention *a)
{
    uint32_t halves[2] = {a->k, a->v};
    for (uint32_t i = 0; i < 2; i++) {
        halves[i] = attention_heads_first(m, halves[i], a->heads);
        struct shape shape = *map_shape(m, halves[i]), wide = {.rank = 5, .dim = {1}};
        for (uint32_t d = 0; d < shape.rank; d++)
            wide.dim[d + 1] = shape.dim[d];
        halves[i] = emit_reshape(m, halves[i], &wide);
    }
    return emit_concat(m, 2, halves, 0);
}

/* Reads how many columns queries, keys and values have in `rows`, which holds all three. */
static bool read_widths(struct mapper *m, uint32_t rows, int64_t widths[3])
{
    struct ints sizes;
    bool given = map_attr_ints(m, "qkv_hidden_sizes", &sizes);
    int64_t total = map_shape(m, rows)->dim[2];
    for (uint32_t i = 0; i < 3; i++)
        widths[i] = given && sizes.n == 3 ? sizes.v[i] : total / 3;
    bool fit = map_shape(m, rows)->rank == 3 && (!given || sizes.n == 3) && widths[0] >= 1 &&
               widths[0] <= total && widths[2] >= 1 && widths[2] <= total &&
               widths[0] == widths[1] && 2 * widths[0] + widths[2] == total;
    if (!map_failed(m) && !fit)
        map_invalid(m, "%lld columns are not those of queries, keys and values", (long long)total);
    return !map_failed(m);
}

/* Takes the three parts out of the rows of a->q. */
static void split_rows(struct mapper *m, struct attention *a, const int64_t widths[3])
{
    uint32_t rows = a->q;
    a->q = emit_slice(m, rows, 2, 0, widths[0]);
    a->k = emit_slice(m, rows, 2, widths[0], widths[0] + widths[1]);
    a->v = emit_slice(m, rows, 2, widths[0] + widths[1], widths[0] + widths[1] + widths[2]);
}

/* Attention of rows that hold queries, keys and values. `extra` is added to the scores. */
static void attend_rows(struct mapper *m, uint32_t rows, uint32_t mask, uint32_t past,
                        uint32_t extra)
{
    int64_t heads = attention_heads(m, "num_heads"), widths[3];
    struct attention a = {.q = rows, .heads = heads, .kv_heads = heads};
    refuse_attr(m, "past_present_share_buffer");
    refuse_attr(m, "do_rotary");
    a.causal = map_attr_int(m, "unidirectional", 0) != 0;
    if (!read_widths(m, a.q, widths))
        return;
    struct attention packed = a;
    packed.k = packed.v = IR_NONE;
    bool whole = past == IR_NONE && widths[0] == widths[2] && !map_out_used(m, 1);
    split_rows(m, &a, widths);
    uint32_t past_key = half_of(m, past, 0), past_value = half_of(m, past, 1);
    int64_t n_past = attention_extend(m, &a, past_key, past_value);
    a.mask = attention_mask_add(m, read_mask(m, mask, &a, n_past), extra, map_dtype(m, a.q));
    packed.mask = a.mask;
    map_out(m, 0, emit_attention(m, whole ? &packed : &a));
    if (map_out_used(m, 1))
        map_out(m, 1, both_halves(m, &a));
}

void map_ms_attention(struct mapper *m)
{
    uint32_t input = map_in(m, 0), weights = map_in(m, 1), bias = map_in_opt(m, 2);
    refuse_operand(m, 6, "a cache that is shared");
    attend_rows(m, emit_matmul(m, input, weights, bias), map_in_opt(m, 3), map_in_opt(m, 4),
                map_in_opt(m, 5));
}

/* The same with a product of 8-bit integers. */
void map_qattention(struct mapper *m)
{
    struct quantisation input = {.scale = map_in(m, 3), .zero = map_in_opt(m, 6)};
    struct quantisation weights = {.scale = map_in(m, 4), .zero = map_in_opt(m, 7)};
    uint32_t rows =
        emit_real_product(m, map_in(m, 0), &input, map_in(m, 1), &weights, map_in(m, 2));
    attend_rows(m, rows, map_in_opt(m, 5), map_in_opt(m, 8), IR_NONE);
}

/* --- MultiHeadAttention --- */

/* Takes part `i` of [B,S,H,parts,D], as rows. */
static uint32_t part_of(struct mapper *m, uint32_t x, int64_t i, int64_t parts)
{
    struct shape shape = *map_shape(m, x);
    if (map_failed(m) || shape.rank != 5 || shape.dim[3] != parts) {
        map_invalid(m, "an operand of rank %u, expected 5 with %lld parts", shape.rank,
                    (long long)parts);
        return IR_NONE;
    }
    struct shape rows = {.rank = 3, .dim = {shape.dim[0], shape.dim[1]}};
    rows.dim[2] =
        map_product(m, &(struct shape){.rank = 2, .dim = {shape.dim[2], shape.dim[4]}}, 0, 2);
    return emit_reshape(m, emit_slice(m, x, 3, i, i + 1), &rows);
}

/* Adds the part of the bias from `*at` on to an operand in rows. */
static uint32_t add_bias(struct mapper *m, uint32_t x, uint32_t bias, int64_t *at)
{
    const struct shape *shape = map_shape(m, x), *all = map_shape(m, bias);
    int64_t width = shape->rank == 4 ? shape->dim[1] * shape->dim[3] : shape->dim[2];
    if (bias == IR_NONE || map_failed(m))
        return x;
    if (all->rank != 1 || width > all->dim[0] - *at || shape->rank != 3) {
        map_invalid(m, "its bias does not fit queries, keys and values");
        return IR_NONE;
    }
    *at += width;
    return emit_binary(m, IR_BINARY_ADD, x, emit_slice(m, bias, 0, *at - width, *at));
}

static void read_operands(struct mapper *m, struct attention *a)
{
    uint32_t query = map_in(m, 0), key = map_in_opt(m, 1), value = map_in_opt(m, 2);
    uint32_t bias = map_in_opt(m, 3);
    bool all = key == IR_NONE, pair = !all && value == IR_NONE;
    int64_t at = 0;
    a->q = all ? part_of(m, query, 0, 3) : query;
    a->k = all ? part_of(m, query, 1, 3) : pair ? part_of(m, key, 0, 2) : key;
    a->v = all ? part_of(m, query, 2, 3) : pair ? part_of(m, key, 1, 2) : value;
    bool apart = !map_failed(m) && map_shape(m, a->k)->rank == 4; /* keys that were made before */
    a->q = add_bias(m, a->q, bias, &at);
    a->k = apart ? a->k : add_bias(m, a->k, bias, &at);
    a->v = apart ? a->v : add_bias(m, a->v, bias, &at);
}

void map_multi_head_attention(struct mapper *m)
{
    uint32_t past_key = map_in_opt(m, 6), past_value = map_in_opt(m, 7);
    int64_t heads = attention_heads(m, "num_heads");
    struct attention a = {.heads = heads, .kv_heads = heads};
    a.causal = map_attr_int(m, "unidirectional", 0) != 0;
    refuse_operand(m, 8, "a cache that is shared");
    refuse_operand(m, 9, "a cache of several beams");
    if (map_out_used(m, 3))
        map_refuse(m, "its scores as an output");
    read_operands(m, &a);
    if (map_failed(m))
        return;
    int64_t past = attention_extend(m, &a, past_key, past_value);
    uint32_t mask = read_mask(m, map_in_opt(m, 4), &a, past);
    a.mask = attention_mask_add(m, mask, map_in_opt(m, 5), map_dtype(m, a.q));
    map_out(m, 0, emit_attention(m, &a));
    attention_out(m, 1, a.k, heads);
    attention_out(m, 2, a.v, heads);
}

/* --- GroupQueryAttention --- */

struct group {
    struct attention a;
    int64_t total, queries, columns, sequences;
    uint32_t lengths; /* INT64 [B]: the last valid key of each sequence */
    uint32_t first;   /* INT64 [B,1,1,1] or []: the place of the first query */
};

/* Gives keys or values heads first, with the new ones behind the valid ones of the past: in a cache
 * of as many rows as it had, or as many as there are keys. */
static uint32_t with_cache(struct mapper *m, const struct group *g, uint32_t past, uint32_t x)
{
    x = attention_heads_first(m, x, g->a.kv_heads);
    int64_t had = past == IR_NONE ? 0 : attention_rows(m, past), rows = MAX(had, g->total);
    struct shape room = *map_shape(m, x);
    if (map_failed(m) || room.rank != 4 || (had == 0 && rows == g->queries))
        return x;
    room.dim[2] = rows - had;
    uint32_t zeros = emit_expand(m, emit_scalar(m, map_dtype(m, x), 0), &room);
    if (had)
        zeros = rows == had ? past : emit_concat(m, 2, (const uint32_t[]){past, zeros}, 2);
    /* [B,H,S,D] places along the rows: those of the queries */
    uint32_t places = attention_places(m, g->queries, g->first);
    const uint32_t inputs[] = {zeros, emit_expand(m, places, map_shape(m, x)), x};
    uint32_t node = emit_begin(m, IR_OP_SCATTER_ELEMENTS, 3, inputs);
    emit_int(m, node, IR_ATTR_AXIS, 2);
    return emit_end(m, node);
}

static uint32_t turned(struct mapper *m, const struct group *g, uint32_t x, int64_t heads)
{
    uint32_t cosine = map_in(m, 7), sine = map_in(m, 8), places = map_in_opt(m, 9);
    if (places == IR_NONE) {
        places = attention_places(m, g->queries, g->first);
        struct shape rows = {.rank = 2, .dim = {map_shape(m, places)->dim[0], g->queries}};
        places = emit_reshape(m, places, &rows);
    }
    cosine = emit_angles(m, cosine, places, 1);
    sine = emit_angles(m, sine, places, 1);
    return emit_rotary(m, attention_heads_first(m, x, heads), cosine, sine,
                       map_attr_int(m, "rotary_interleaved", 0) != 0);
}

static void read_group_operands(struct mapper *m, struct group *g)
{
    uint32_t key = map_in_opt(m, 1);
    g->a.q = map_in(m, 0);
    const struct shape *shape = map_shape(m, g->a.q);
    int64_t heads = g->a.heads, all = key == IR_NONE ? heads + 2 * g->a.kv_heads : heads;
    if (!map_failed(m) && (shape->rank != 3 || g->a.kv_heads < 1 || heads < 1 ||
                           all > shape->dim[2] || shape->dim[2] % all))
        map_invalid(m, "queries of rank %u for %lld heads and %lld of the keys", shape->rank,
                    (long long)heads, (long long)g->a.kv_heads);
    if (map_failed(m))
        return;
    g->sequences = shape->dim[0];
    g->queries = shape->dim[1];
    g->columns = shape->dim[2] / all;
    if (key == IR_NONE) {
        const int64_t widths[] = {heads * g->columns, g->a.kv_heads * g->columns,
                                  g->a.kv_heads * g->columns};
        split_rows(m, &g->a, widths);
    } else {
        g->a.k = key;
        g->a.v = map_in(m, 2);
    }
}

static void refuse_group_forms(struct mapper *m)
{
    refuse_operand(m, 11, "a sink of attention");
    for (uint32_t i = 12; i < 14; i++)
        refuse_operand(m, i, "quantised keys or values");
    for (uint32_t i = 14; i < 16; i++)
        refuse_operand(m, i, "queries or keys that are normalised");
    static const char *const attrs[] = {"kv_cache_bit_width", "qk_output", "smooth_softmax",
                                        "sliding_window_cache"};
    for (uint32_t i = 0; i < ARRAY_LEN(attrs); i++)
        refuse_attr(m, attrs[i]);
    if (map_attr_int(m, "causal", 1) != 1)
        map_refuse(m, "attention that is not causal");
}

/* Where the queries stand among the keys. The first tokens of a sequence are all there are; later
 * ones stand at the end of their sequence, which may be shorter than others. */
static void read_places(struct mapper *m, struct group *g)
{
    uint32_t lengths = emit_cast(m, map_in(m, 5), DTYPE_I64);
    g->total = map_known_int(m, map_in(m, 6));
    if (!map_failed(m) && (g->total < g->queries || g->total > INT32_MAX))
        map_invalid(m, "%lld keys for %lld queries", (long long)g->total, (long long)g->queries);
    if (map_failed(m))
        return;
    g->first = emit_scalar(m, DTYPE_I64, 0);
    if (g->total == g->queries)
        return;
    lengths = attention_column(m, emit_flat(m, lengths), 0);
    uint32_t back = emit_scalar(m, DTYPE_I64, (double)(g->queries - 1));
    g->first = emit_binary(m, IR_BINARY_SUB, lengths, back);
}

void map_group_query_attention(struct mapper *m)
{
    struct group g = {.a = {.mask = IR_NONE}};
    float cap = map_attr_float(m, "softcap", 0);
    uint32_t past_key = map_in_opt(m, 3), past_value = map_in_opt(m, 4), extra = map_in_opt(m, 10);
    int64_t window = map_attr_int(m, "local_window_size", -1);
    g.a.heads = attention_heads(m, "num_heads");
    g.a.kv_heads = attention_heads(m, "kv_num_heads");
    refuse_group_forms(m);
    read_group_operands(m, &g);
    read_places(m, &g);
    if (map_failed(m))
        return;
    if (map_attr_int(m, "do_rotary", 0)) {
        g.a.q = turned(m, &g, g.a.q, g.a.heads);
        g.a.k = turned(m, &g, g.a.k, g.a.kv_heads);
    }
    g.a.k = with_cache(m, &g, past_key, g.a.k);
    g.a.v = with_cache(m, &g, past_value, g.a.v);
    int64_t keys = attention_rows(m, g.a.k);
    g.a.causal = g.total == g.queries && keys == g.queries;
    if (!g.a.causal || window > 0)
        g.a.mask = attention_window(m, attention_places(m, g.queries, g.first), keys,
                                    window > 0 ? window - 1 : -1, 0);
    g.a.mask = attention_mask_add(m, g.a.mask, extra, map_dtype(m, g.a.q));
    uint32_t scores;
    map_out(m, 0,
            cap > 0 ? emit_attention_parts(m, &g.a, cap, 0, &scores) : emit_attention(m, &g.a));
    attention_out(m, 1, g.a.k, g.a.kv_heads);
    attention_out(m, 2, g.a.v, g.a.kv_heads);
}
