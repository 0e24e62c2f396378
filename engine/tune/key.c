/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys: a 128-bit digest over a byte string that spells the node. Names are left out and attributes
 * are taken in the order of their numbers, so that equal nodes of different models have one key.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/tune/internal.h"

/* Version of the spelling: part of each key. */
enum { SPELLING = 4 };

struct spelling {
    XXH3_state_t *state;
    bool ok;
    bool ranges; /* they count */
};

static void put(struct spelling *s, const void *data, size_t size)
{
    s->ok = s->ok && XXH3_128bits_update(s->state, data, size) == XXH_OK;
}

static void put_u64(struct spelling *s, uint64_t value)
{
    uint8_t bytes[8];
    for (int i = 0; i < 8; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
    put(s, bytes, sizeof(bytes));
}

static void put_float(struct spelling *s, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    put_u64(s, bits);
}

/* Whether there is a scale, and of which kind; its numbers do not count, but for a constant's zero
 * points, which decide what a backend can do with it. */
static void put_scale(struct spelling *s, const struct ir_scale *scale, bool constant)
{
    put_u64(s, scale ? 1 + (scale->n > 1) + 2 * (uint64_t)scale->dtype : 0);
    put_u64(s, scale && scale->n > 1 ? scale->axis : 0);
    put_u64(s, scale && scale->zero);
    put_u64(s, scale && constant ? (uint64_t)(int64_t)scale->zero_min : 0);
    put_u64(s, scale && constant ? (uint64_t)(int64_t)scale->zero_max : 0);
}

static void put_tensor(struct spelling *s, const struct ir_graph *graph, uint32_t id)
{
    if (id == IR_NONE) {
        put_u64(s, UINT64_MAX);
        return;
    }
    const struct ir_tensor *t = ir_tensor(graph, id);
    put_u64(s, t->dtype);
    put_u64(s, t->layout);
    put_u64(s, t->real);
    put_scale(s, s->ranges ? ir_scale(graph, t->range) : NULL, ir_tensor_is_constant(t));
    put_u64(s, t->scale != IR_NO_SCALE);
    put_u64(s, ir_tensor_is_constant(t));
    put_u64(s, t->shape.rank);
    for (uint32_t i = 0; i < t->shape.rank; i++)
        put_u64(s, (uint64_t)t->shape.dim[i]);
}

static void put_attr(struct spelling *s, const struct ir_attr *attr)
{
    put_u64(s, attr->key);
    put_u64(s, attr->is_float);
    put_u64(s, attr->count);
    for (uint32_t i = 0; i < attr->count; i++)
        if (attr->is_float)
            put_float(s, attr->f[i]);
        else
            put_u64(s, (uint64_t)attr->i[i]);
}

static void put_step(struct spelling *s, const struct ir_epilogue *step)
{
    put_u64(s, step->kind);
    put_u64(s, step->func);
    put_float(s, step->alpha);
    put_float(s, step->beta);
    put_float(s, step->gamma);
    put_u64(s, step->kind == IR_EPILOGUE_BINARY ? step->input : 0);
}

/* The numbers of ranges count where they decide whether a node only renames. */
static bool has_range(const struct ir_graph *graph, const struct ir_node *node)
{
    return (node->inputs[0] != IR_NONE && ir_tensor(graph, node->inputs[0])->range) ||
           ir_tensor(graph, node->outputs[0])->range;
}

/* Which ranges stand for the same numbers as the first one: a node that only moves elements may
 * move bytes then. */
static void put_ranges(struct spelling *s, const struct ir_graph *graph, const struct ir_node *node)
{
    const struct ir_scale *first = NULL;
    for (uint32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
        uint32_t id = i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
        const struct ir_scale *scale =
            id == IR_NONE ? NULL : ir_scale(graph, ir_tensor(graph, id)->range);
        first = first ? first : scale;
        if (scale)
            put_u64(s, ir_scale_equal(scale, first));
    }
}

/* The first input that is the same tensor: kernels may read it once. */
static uint32_t first_use(const struct ir_node *node, uint32_t i)
{
    uint32_t first = 0;
    while (node->inputs[first] != node->inputs[i])
        first++;
    return first;
}

static void put_node(struct spelling *s, const struct ir_graph *graph, const struct ir_node *node)
{
    put_u64(s, node->op);
    put_u64(s, node->n_inputs);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        put_tensor(s, graph, node->inputs[i]);
        put_u64(s, first_use(node, i));
    }
    put_u64(s, node->n_outputs);
    for (uint32_t i = 0; i < node->n_outputs; i++)
        put_tensor(s, graph, node->outputs[i]);
    for (int key = 0; key < IR_ATTR_COUNT_; key++)
        for (uint32_t i = 0; i < node->n_attrs; i++)
            if (node->attrs[i].key == (enum ir_attr_key)key)
                put_attr(s, &node->attrs[i]);
    put_u64(s, node->n_epilogue);
    for (uint32_t i = 0; i < node->n_epilogue; i++)
        put_step(s, &node->epilogue[i]);
    if (s->ranges)
        put_ranges(s, graph, node);
    if (s->ranges && ir_op_has(node->op, IR_TRAIT_RENAMES) && has_range(graph, node))
        put_u64(s, ir_node_keeps_range(graph, node));
}

static bool begin(struct spelling *s)
{
    s->state = XXH3_createState();
    s->ok = s->state && XXH3_128bits_reset(s->state) == XXH_OK;
    return s->ok;
}

static struct tune_key finish(struct spelling *s)
{
    XXH128_hash_t hash = s->ok ? XXH3_128bits_digest(s->state) : (XXH128_hash_t){0};
    XXH3_freeState(s->state);
    return (struct tune_key){hash.high64, hash.low64};
}

bool tune_key_of(const struct ir_graph *graph, const struct ir_node *node, enum precision precision,
                 uint64_t pool_bytes, bool ranges, struct tune_key *out)
{
    struct spelling s = {.ranges = ranges};
    if (begin(&s)) {
        put_u64(&s, SPELLING);
        put_u64(&s, precision);
        put_u64(&s, pool_bytes);
        put_node(&s, graph, node);
    }
    struct tune_key key = finish(&s);
    if (s.ok)
        *out = key;
    return s.ok;
}

struct tune_key tune_key_tactic(const struct tune_key *node, const struct tactic *tactic,
                                const char *device)
{
    XXH128_hash_t blob = XXH3_128bits_withSeed(tactic->blob, tactic->blob_size, tactic->id);
    XXH128_hash_t name = XXH3_128bits(tactic->name, strlen(tactic->name));
    uint64_t words[7 + 2 * (TACTIC_PORTS_MAX + IR_MAX_OUTPUTS)] = {
        node->high,
        node->low,
        blob.high64,
        blob.low64,
        name.high64,
        name.low64,
        XXH3_64bits(device, strlen(device))};
    uint32_t n = 7; /* one name may stand for several formats */
    for (uint32_t i = 0; i < tactic->n_in && i < TACTIC_PORTS_MAX; i++) {
        words[n++] = tune_format_word(tactic->in[i].format);
        words[n++] = tactic->in[i].packed_bytes;
    }
    for (uint32_t i = 0; i < tactic->n_out && i < IR_MAX_OUTPUTS; i++)
        words[n++] = tune_format_word(tactic->out[i].format);
    XXH128_hash_t hash = XXH3_128bits(words, n * sizeof(*words));
    return (struct tune_key){hash.high64, hash.low64};
}

int tune_key_compare(const struct tune_key *a, const struct tune_key *b)
{
    if (a->high != b->high)
        return a->high < b->high ? -1 : 1;
    return a->low == b->low ? 0 : a->low < b->low ? -1 : 1;
}
