/* SPDX-License-Identifier: Apache-2.0 */
/* Cases of attention: every form of its operands and masks, and sizes of networks. */
#include <math.h>

#include "tests/device/make.h"

/* A mask that hides some keys with -inf, and from one query all keys. */
static uint32_t add_hiding(struct ir_graph *g, uint64_t *random, struct shape shape)
{
    size_t n, keys = (size_t)shape.dim[shape.rank - 1];
    if (!shape_elements(&shape, &n))
        return IR_NONE;
    float *data = arena_array(g->arena, n + 1, sizeof(*data));
    size_t dead = n ? draw(random) % (n / keys) : 0;
    for (size_t i = 0; data && i < n; i++)
        data[i] = i / keys == dead || chance(random, 20) ? -INFINITY : 0.5F;
    return data ? ir_constant_add(g, "mask", DTYPE_F32, &shape, data) : IR_NONE;
}

static uint32_t attention_mask(struct ir_graph *g, uint64_t *random, int64_t n, int64_t h,
                               int64_t sq, int64_t sk)
{
    const struct shape shapes[] = {DIMS(n, 1, 1, sk),  DIMS(1, h, sq, sk), DIMS(n, h, sq, sk),
                                   DIMS(n, 1, sq, sk), DIMS(sq, sk),       DIMS(h, 1, sk),
                                   DIMS(n, 1, sq, 1)};
    struct shape shape = shapes[draw(random) % ARRAY_LEN(shapes)];
    switch (draw(random) % 6) {
    case 0:
    case 1:
        return add_input(g, DTYPE_F32, shape);
    case 2:
        return add_input(g, DTYPE_BOOL, shape);
    case 3:
        return add_hiding(g, random, shape);
    default:
        return IR_NONE;
    }
}

/* Sequences of up to 100 rows, one behind the other; some rows see nothing. */
static uint32_t attention_spans(struct ir_graph *g, uint64_t *random, int64_t n, int64_t s)
{
    const struct shape shape = DIMS(n, s, 2);
    int32_t rows = (int32_t)(n * s), first = 0, end;
    int32_t *data = arena_array(g->arena, (size_t)rows * 2, sizeof(*data));
    for (; data && first < rows; first = end) {
        end = MIN(first + (int32_t)between(random, 1, 100), rows);
        for (int32_t i = first; i < end; i++) {
            data[2 * i] = first;
            data[2 * i + 1] = chance(random, 3) ? first : end;
        }
    }
    return data ? ir_constant_add(g, "spans", DTYPE_I32, &shape, data) : IR_NONE;
}

/* [n,s,h*d], or with the heads first. */
static uint32_t attention_operand(struct ir_graph *g, uint64_t *random, int64_t n, int64_t s,
                                  int64_t h, int64_t d)
{
    return add_input(g, DTYPE_F32, chance(random, 40) ? DIMS(n, h, s, d) : DIMS(n, s, h * d));
}

static bool attention(struct ir_graph *g, uint64_t *random, int64_t sq, int64_t sk, int64_t d,
                      int64_t e)
{
    int64_t n = between(random, 1, 3), kv = PICK(random, 1, 2, 3),
            h = kv * PICK(random, 1, 1, 2, 4);
    bool packed = sq == sk && d == e && chance(random, 40);
    bool spans = sq == sk && chance(random, 25);
    uint32_t in[5] = {IR_NONE, IR_NONE, IR_NONE, IR_NONE, IR_NONE};
    if (packed) {
        in[0] = add_input(g, DTYPE_F32, DIMS(n, sq, (h + 2 * kv) * d));
    } else if (spans) {
        in[0] = add_input(g, DTYPE_F32, DIMS(n, sq, h * d));
        in[1] = add_input(g, DTYPE_F32, DIMS(n, sq, kv * d));
        in[2] = add_input(g, DTYPE_F32, DIMS(n, sq, kv * e));
    } else {
        in[0] = attention_operand(g, random, n, sq, h, d);
        in[1] = attention_operand(g, random, n, sk, kv, d);
        in[2] = attention_operand(g, random, n, sk, kv, e);
    }
    if (spans)
        in[4] = attention_spans(g, random, n, sq);
    else
        in[3] = attention_mask(g, random, n, h, sq, sk);
    uint32_t node = ir_node_add(g, IR_OP_ATTENTION, "attention", 5, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_HEADS, h) &&
           ir_attr_set_int(g, node, IR_ATTR_KV_HEADS, kv) &&
           ir_attr_set_int(g, node, IR_ATTR_CAUSAL, chance(random, 30)) &&
           ir_attr_set_int(g, node, IR_ATTR_PACKED, packed) &&
           ir_attr_set_float(g, node, IR_ATTR_ALPHA, 1 / sqrtf((float)d)) && finish(g, node);
}

bool make_attention(struct ir_graph *g, uint64_t *random)
{
    int64_t sq = PICK(random, 1, 17, 49, 64, 100, 128, 197),
            d = PICK(random, 8, 32, 64, 64, 80, 128);
    return attention(g, random, sq, chance(random, 60) ? sq : 77, d, d);
}

/* Head sizes that are no multiple of 8, large, or others for values than for keys; one query with
 * many keys. */
bool make_attention_odd(struct ir_graph *g, uint64_t *random)
{
    int64_t d = PICK(random, 5, 16, 33, 40, 72, 96, 160, 256);
    return attention(g, random, PICK(random, 1, 1, 4, 50), PICK(random, 3, 50, 256, 500, 1030), d,
                     chance(random, 80) ? d : PICK(random, 8, 20, 64, 192));
}

/* Rows of an attention as networks have it, for timing. */
struct sized_attention {
    int64_t windows, sq, sk, heads, kv_heads, d; /* windows: of an image */
    bool packed, causal;
    struct shape mask; /* rank 0: none; its first dim of 0 is the batch */
};

/* Tokens of sequences of 64 to 384, 180 in the mean, as questions and their texts are. */
bool sized_ragged(struct ir_graph *g, uint64_t *random, int64_t batch)
{
    enum { HEADS = 16, COLUMNS = 64, TOKENS = 512, LEAST = 64, MOST = 384 };
    const struct shape pairs = DIMS(batch, TOKENS, 2);
    int32_t rows = (int32_t)(batch * TOKENS), first = 0, end;
    int32_t *data = arena_array(g->arena, (size_t)rows * 2, sizeof(*data));
    for (; data && first < rows; first = end) {
        int64_t length = LEAST + between(random, 0, MOST - LEAST) * between(random, 45, 100) / 100;
        end = MIN(first + (int32_t)length, rows);
        for (int32_t i = first; i < end; i++) {
            data[2 * i] = first;
            data[2 * i + 1] = end;
        }
    }
    uint32_t in[5] = {add_input(g, DTYPE_F32, DIMS(batch, TOKENS, 3 * HEADS * COLUMNS)), IR_NONE,
                      IR_NONE, IR_NONE,
                      data ? ir_constant_add(g, "spans", DTYPE_I32, &pairs, data) : IR_NONE};
    uint32_t node = ir_node_add(g, IR_OP_ATTENTION, "attention", 5, in);
    return data && node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_HEADS, HEADS) &&
           ir_attr_set_int(g, node, IR_ATTR_KV_HEADS, HEADS) &&
           ir_attr_set_int(g, node, IR_ATTR_PACKED, true) &&
           ir_attr_set_float(g, node, IR_ATTR_ALPHA, 0.125F) && finish(g, node);
}

static bool sized_attention_of(struct ir_graph *g, const struct sized_attention *s, int64_t batch)
{
    int64_t n = batch * s->windows;
    struct shape mask = s->mask;
    uint32_t in[4] = {IR_NONE, IR_NONE, IR_NONE, IR_NONE};
    if (s->packed) {
        in[0] = add_input(g, DTYPE_F32, DIMS(n, s->sq, 3 * s->heads * s->d));
    } else {
        in[0] = add_input(g, DTYPE_F32, DIMS(n, s->sq, s->heads * s->d));
        in[1] = add_input(g, DTYPE_F32, DIMS(n, s->kv_heads, s->sk, s->d));
        in[2] = add_input(g, DTYPE_F32, DIMS(n, s->kv_heads, s->sk, s->d));
    }
    mask.dim[0] = mask.rank && !mask.dim[0] ? n : mask.dim[0];
    if (mask.rank)
        in[3] = add_input(g, DTYPE_F32, mask);
    uint32_t node = ir_node_add(g, IR_OP_ATTENTION, "attention", 4, in);
    return node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_HEADS, s->heads) &&
           ir_attr_set_int(g, node, IR_ATTR_KV_HEADS, s->kv_heads) &&
           ir_attr_set_int(g, node, IR_ATTR_PACKED, s->packed) &&
           ir_attr_set_int(g, node, IR_ATTR_CAUSAL, s->causal) &&
           ir_attr_set_float(g, node, IR_ATTR_ALPHA, 0.125F) && finish(g, node);
}

#define SIZED_ATTENTION(name, ...)                                                                 \
    bool name(struct ir_graph *g, uint64_t *random UNUSED, int64_t batch)                          \
    {                                                                                              \
        return sized_attention_of(g, &(struct sized_attention){__VA_ARGS__}, batch);               \
    }
SIZED_ATTENTION(sized_bert, 1, 128, 128, 12, 12, 64, true, false, {4, {0, 1, 1, 128}})
SIZED_ATTENTION(sized_gpt2, 1, 128, 128, 12, 12, 64, true, true, {0})
SIZED_ATTENTION(sized_vit, 1, 197, 197, 12, 12, 64, true, false, {0})
SIZED_ATTENTION(sized_swin, 64, 49, 49, 3, 3, 32, true, false, {4, {1, 3, 49, 49}})
SIZED_ATTENTION(sized_swin_shifted, 64, 49, 49, 3, 3, 32, true, false, {4, {0, 3, 49, 49}})
SIZED_ATTENTION(sized_clip, 1, 50, 50, 12, 12, 64, true, false, {0})
SIZED_ATTENTION(sized_whisper, 1, 1500, 1500, 8, 8, 64, true, false, {0})
SIZED_ATTENTION(sized_t5, 1, 128, 128, 8, 8, 64, true, false, {4, {1, 8, 128, 128}})
SIZED_ATTENTION(sized_long, 1, 1024, 1024, 16, 16, 128, true, true, {0})
SIZED_ATTENTION(sized_decode, 1, 1, 1024, 32, 8, 128, false, false, {4, {0, 1, 1, 1024}})
#undef SIZED_ATTENTION
