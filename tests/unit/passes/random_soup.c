/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes are drawn at random (op, inputs and attributes), and kept if type inference accepts them.
 * Functions that jump are left out: a sum in another order may land on the other side of the jump.
 */
#include <stdio.h>
#include <string.h>

#include "tests/test.h"
#include "tests/unit/passes/parse.h"
#include "tests/unit/passes/random_soup.h"

enum { TENSORS_MAX = 128, TRIES = 400, NODES = 12 };

struct soup {
    struct ir_graph *g;
    uint64_t state;
    uint32_t tensors[TENSORS_MAX];
    uint32_t n;
};

static uint32_t roll(struct soup *s, uint32_t n)
{
    s->state = s->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(s->state >> 33) % n;
}

static void add_leaf(struct soup *s, bool constant)
{
    static const enum dtype dtypes[] = {DTYPE_F32, DTYPE_F32, DTYPE_F32, DTYPE_F64, DTYPE_I64};
    enum dtype dtype = dtypes[roll(s, 5)];
    struct shape shape = {.rank = roll(s, 5)};
    char name[16];
    uint64_t bytes;
    for (uint32_t i = 0; i < shape.rank; i++)
        shape.dim[i] = roll(s, 24) ? 1 + (int64_t)roll(s, 3) : 0;
    assert_true(ir_layout_bytes(&shape, dtype, IR_LAYOUT_PLAIN, &bytes));
    snprintf(name, sizeof(name), "%c%u", constant ? 'k' : 'x', s->n);
    uint32_t id;
    if (constant) {
        void *data = arena_alloc(s->g->arena, bytes);
        assert_non_null(data);
        fill_random(dtype, data, bytes / dtype_size(dtype), s->state);
        if (roll(s, 3) == 0) /* one number for all: zero, or the first one */
            for (uint64_t i = dtype_size(dtype); i + dtype_size(dtype) <= bytes;
                 i += dtype_size(dtype))
                memcpy((char *)data + i, data, dtype_size(dtype));
        id = ir_constant_add(s->g, name, dtype, &shape, data);
    } else {
        id = ir_tensor_add(s->g, name, dtype, &shape);
        s->g->inputs[s->g->n_inputs++] = id;
    }
    assert_int_not_equal(id, IR_NONE);
    s->tensors[s->n++] = id;
}

static uint32_t pick(struct soup *s)
{
    return roll(s, 2) ? s->tensors[s->n - 1 - roll(s, MIN(s->n, 3))] : s->tensors[roll(s, s->n)];
}

static void set(struct soup *s, uint32_t node, enum ir_attr_key key, uint32_t n, const int64_t *v)
{
    assert_true(ir_attr_set_ints(s->g, node, key, n, v));
}

static void set_one(struct soup *s, uint32_t node, enum ir_attr_key key, int64_t v)
{
    set(s, node, key, 1, &v);
}

static void set_float(struct soup *s, uint32_t node, enum ir_attr_key key, float v)
{
    assert_true(ir_attr_set_float(s->g, node, key, v));
}

/* --- the attributes of each op, for an input of this shape --- */

static void unary(struct soup *s, uint32_t node, const struct shape *x)
{
    static const enum ir_unary funcs[] = {
        IR_UNARY_IDENTITY, IR_UNARY_RELU, IR_UNARY_LEAKY_RELU, IR_UNARY_SIGMOID,
        IR_UNARY_TANH,     IR_UNARY_CLIP, IR_UNARY_ABS,        IR_UNARY_NEG,
        IR_UNARY_LINEAR,   IR_UNARY_ERF,  IR_UNARY_GELU,       IR_UNARY_SIN,
    };
    (void)x;
    enum ir_unary func = funcs[roll(s, ARRAY_LEN(funcs))];
    set_one(s, node, IR_ATTR_FUNC, func);
    if (func == IR_UNARY_LINEAR || func == IR_UNARY_CLIP) {
        set_float(s, node, IR_ATTR_ALPHA, roll(s, 2) ? 0 : -0.5f);
        set_float(s, node, IR_ATTR_BETA, roll(s, 2) ? 1 : 0.25f);
    }
}

static void binary(struct soup *s, uint32_t node, const struct shape *x)
{
    (void)x;
    set_one(s, node, IR_ATTR_FUNC, roll(s, IR_BINARY_MIN + 1));
    if (ir_attr_int(ir_node(s->g, node), IR_ATTR_FUNC) == IR_BINARY_DIV)
        set_one(s, node, IR_ATTR_FUNC, IR_BINARY_PRELU);
}

static void cast(struct soup *s, uint32_t node, const struct shape *x)
{
    static const enum dtype to[] = {DTYPE_F32, DTYPE_F64};
    (void)x;
    set_one(s, node, IR_ATTR_TO, to[roll(s, 2)]);
}

static void reduce(struct soup *s, uint32_t node, const struct shape *x)
{
    static const enum ir_reduce funcs[] = {IR_REDUCE_SUM, IR_REDUCE_MEAN, IR_REDUCE_MAX,
                                           IR_REDUCE_L1, IR_REDUCE_SUM_SQUARE};
    int64_t axes[SHAPE_MAX_RANK];
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->rank; i++)
        if (roll(s, 2))
            axes[n++] = i;
    set_one(s, node, IR_ATTR_FUNC, funcs[roll(s, ARRAY_LEN(funcs))]);
    set(s, node, IR_ATTR_AXES, n, axes);
    set_one(s, node, IR_ATTR_KEEPDIMS, roll(s, 2));
}

static void axis(struct soup *s, uint32_t node, const struct shape *x)
{
    set_one(s, node, IR_ATTR_AXIS, roll(s, MAX(x->rank, 1)));
}

static void reshape(struct soup *s, uint32_t node, const struct shape *x)
{
    int64_t dims[SHAPE_MAX_RANK];
    uint32_t n = 0;
    for (uint32_t i = 0; i < x->rank; i++) {
        if (n && roll(s, 2))
            dims[n - 1] *= x->dim[i]; /* merged with the one before */
        else
            dims[n++] = x->dim[i];
    }
    if (roll(s, 3) == 0)
        dims[n++] = 1;
    set(s, node, IR_ATTR_SHAPE, n, dims);
}

static void transpose(struct soup *s, uint32_t node, const struct shape *x)
{
    int64_t perm[SHAPE_MAX_RANK];
    for (uint32_t i = 0; i < x->rank; i++)
        perm[i] = i;
    for (uint32_t i = 1; i < x->rank; i++) {
        uint32_t j = roll(s, i + 1);
        int64_t t = perm[i];
        perm[i] = perm[j];
        perm[j] = t;
    }
    set(s, node, IR_ATTR_PERM, x->rank, perm);
}

static void slice(struct soup *s, uint32_t node, const struct shape *x)
{
    int64_t starts[SHAPE_MAX_RANK], ends[SHAPE_MAX_RANK], steps[SHAPE_MAX_RANK];
    for (uint32_t i = 0; i < x->rank; i++) {
        bool back = roll(s, 5) == 0;
        steps[i] = back ? -1 : 1 + (int64_t)roll(s, 2);
        starts[i] = back ? x->dim[i] - 1 : (int64_t)roll(s, (uint32_t)x->dim[i] + 1);
        ends[i] = back ? -1 : starts[i] + (int64_t)roll(s, (uint32_t)(x->dim[i] - starts[i]) + 1);
        if (roll(s, 3) == 0 && !back)
            starts[i] = 0, ends[i] = x->dim[i];
    }
    set(s, node, IR_ATTR_STARTS, x->rank, starts);
    set(s, node, IR_ATTR_ENDS, x->rank, ends);
    set(s, node, IR_ATTR_STEPS, x->rank, steps);
}

static void pad(struct soup *s, uint32_t node, const struct shape *x)
{
    int64_t pads[2 * SHAPE_MAX_RANK];
    for (uint32_t i = 0; i < 2 * x->rank; i++)
        pads[i] = i % x->rank < 2 || roll(s, 3) == 0 ? 0 : (int64_t)roll(s, 3) - 1;
    set(s, node, IR_ATTR_PADS, 2 * x->rank, pads);
    set_one(s, node, IR_ATTR_MODE, roll(s, 2) ? 0 : roll(s, 3));
}

static void expand(struct soup *s, uint32_t node, const struct shape *x)
{
    int64_t dims[SHAPE_MAX_RANK];
    for (uint32_t i = 0; i < x->rank; i++)
        dims[i] = x->dim[i] == 1 ? (int64_t)roll(s, 3) : x->dim[i];
    set(s, node, IR_ATTR_SHAPE, x->rank, dims);
}

static void tile(struct soup *s, uint32_t node, const struct shape *x)
{
    int64_t repeats[SHAPE_MAX_RANK];
    for (uint32_t i = 0; i < x->rank; i++)
        repeats[i] = roll(s, 3) ? 1 : (int64_t)roll(s, 3);
    set(s, node, IR_ATTR_REPEATS, x->rank, repeats);
}

static void pool(struct soup *s, uint32_t node, const struct shape *x)
{
    int64_t kernel[SHAPE_MAX_RANK];
    for (uint32_t i = 0; i < x->rank; i++)
        kernel[i] = 1 + roll(s, 2);
    set_one(s, node, IR_ATTR_FUNC, roll(s, 2));
    set(s, node, IR_ATTR_KERNEL, x->rank < 2 ? 0 : x->rank - 2, kernel);
}

static void matmul(struct soup *s, uint32_t node, const struct shape *x)
{
    (void)x;
    set_one(s, node, IR_ATTR_TRANS_A, roll(s, 2));
    set_one(s, node, IR_ATTR_TRANS_B, roll(s, 2));
    set_float(s, node, IR_ATTR_ALPHA, roll(s, 2) ? 1 : 0.5f);
}

static void nothing(struct soup *s, uint32_t node, const struct shape *x)
{
    (void)s;
    (void)node;
    (void)x;
}

static const struct {
    enum ir_op op;
    uint32_t min_in, max_in;
    void (*attributes)(struct soup *s, uint32_t node, const struct shape *x);
} ops[] = {
    {IR_OP_UNARY, 1, 1, unary},     {IR_OP_BINARY, 2, 2, binary},
    {IR_OP_CAST, 1, 1, cast},       {IR_OP_REDUCE, 1, 1, reduce},
    {IR_OP_SOFTMAX, 1, 1, axis},    {IR_OP_CUMSUM, 1, 1, axis},
    {IR_OP_RESHAPE, 1, 1, reshape}, {IR_OP_TRANSPOSE, 1, 1, transpose},
    {IR_OP_SLICE, 1, 1, slice},     {IR_OP_PAD, 1, 1, pad},
    {IR_OP_EXPAND, 1, 1, expand},   {IR_OP_TILE, 1, 1, tile},
    {IR_OP_TRILU, 1, 1, nothing},   {IR_OP_POOL, 1, 1, pool},
    {IR_OP_MATMUL, 2, 3, matmul},   {IR_OP_MATMUL, 2, 3, matmul},
    {IR_OP_CONV, 2, 3, nothing},    {IR_OP_CONV, 2, 3, nothing},
    {IR_OP_DECONV, 2, 3, nothing},  {IR_OP_BATCH_NORM, 5, 5, nothing},
    {IR_OP_LAYER_NORM, 2, 3, axis}, {IR_OP_INSTANCE_NORM, 3, 3, nothing},
};

static bool try_node(struct soup *s)
{
    size_t row = roll(s, ARRAY_LEN(ops));
    uint32_t inputs[8], n = ops[row].min_in + roll(s, ops[row].max_in - ops[row].min_in + 1);
    char name[16];
    for (uint32_t i = 0; i < n; i++)
        inputs[i] = pick(s);
    snprintf(name, sizeof(name), "%s%u", ir_op_name(ops[row].op), s->n);
    uint32_t node = ir_node_add(s->g, ops[row].op, name, n, inputs);
    assert_int_not_equal(node, IR_NONE);
    struct shape x = ir_tensor(s->g, inputs[0])->shape;
    if (x.rank > 5 || (x.rank == 0 && ops[row].op == IR_OP_PAD))
        x.rank = 1;
    ops[row].attributes(s, node, &x);
    snprintf(name, sizeof(name), "t%u", s->n);
    if (ir_infer_apply(s->g, node, (const char *[]){name}, 1, NULL) != STATUS_OK) {
        s->g->n_nodes--;
        return false;
    }
    s->tensors[s->n++] = ir_node(s->g, node)->outputs[0];
    return true;
}

struct ir_graph *random_soup(uint64_t seed)
{
    struct soup s = {.g = ir_graph_new(), .state = seed * 0x9e3779b97f4a7c15u + 3};
    assert_non_null(s.g);
    roll(&s, 2);
    for (uint32_t i = 0; i < 6; i++)
        add_leaf(&s, i % 2);
    uint32_t made = 0;
    for (uint32_t i = 0; i < TRIES && made < NODES; i++) {
        if (roll(&s, 8) == 0 && s.n < TENSORS_MAX - NODES)
            add_leaf(&s, roll(&s, 3));
        made += try_node(&s);
    }
    /* Every tensor that no node reads becomes an output, so that nothing is dead, and so do a few
     * others. */
    for (uint32_t i = 0; i < s.g->n_nodes && s.g->n_outputs < IR_MAX_IO; i++) {
        uint32_t y = ir_node(s.g, i)->outputs[0];
        if (ir_tensor_uses(s.g, y) == 0 || roll(&s, 16) == 0)
            s.g->outputs[s.g->n_outputs++] = y;
    }
    struct error err = {0};
    if (s.g->n_outputs == 0 || ir_verify(s.g, &err) != STATUS_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, err.text);
    return s.g;
}
