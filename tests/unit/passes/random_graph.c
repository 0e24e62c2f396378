/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A graph grows from its input by blocks, each of which reads one or two of the tensors made so
 * far: mostly the last one, so that chains arise, sometimes an older one, so that values have
 * several readers. Some blocks are what a pass looks for, others nearly so.
 */
#include "tests/unit/passes/random_graph.h"

#include <stdio.h>
#include <string.h>

#include "tests/test.h"
#include "tests/unit/passes/parse.h"

enum { POOL_MAX = 64 };

struct maker {
    struct ir_graph *g;
    uint64_t state;
    uint32_t made[POOL_MAX]; /* tensors that blocks may read */
    uint32_t n_made;
    uint32_t n_names;
};

static uint32_t roll(struct maker *m, uint32_t n)
{
    m->state = m->state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(m->state >> 33) % n;
}

static const char *label(struct maker *m, const char *what)
{
    static char text[64];
    snprintf(text, sizeof(text), "%s%u", what, m->n_names++);
    return text;
}

static const struct shape *shape(const struct maker *m, uint32_t tensor)
{
    return &ir_tensor(m->g, tensor)->shape;
}

/* Values around `centre`, at most `spread` away. */
static uint32_t constant(struct maker *m, uint32_t rank, const int64_t *dims, float centre,
                         float spread)
{
    struct shape s = {.rank = rank};
    size_t n = 1;
    for (uint32_t i = 0; i < rank; i++) {
        s.dim[i] = dims[i];
        n *= (size_t)dims[i];
    }
    float *data = arena_array(m->g->arena, n, sizeof(*data));
    assert_non_null(data);
    fill_random(DTYPE_F32, data, n, m->state);
    for (size_t i = 0; i < n; i++)
        data[i] = centre + spread * data[i];
    roll(m, 2);
    return ir_constant_add(m->g, label(m, "k"), DTYPE_F32, &s, data);
}

static uint32_t number(struct maker *m, float value)
{
    return constant(m, 0, NULL, value, 0);
}

static uint32_t node(struct maker *m, enum ir_op op, const char *what, uint32_t n,
                     const uint32_t *inputs)
{
    uint32_t id = ir_node_add(m->g, op, label(m, what), n, inputs);
    assert_int_not_equal(id, IR_NONE);
    return id;
}

static uint32_t finish(struct maker *m, uint32_t id)
{
    struct error err = {0};
    const char *name = label(m, "t");
    if (ir_infer_apply(m->g, id, &name, 1, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return ir_node(m->g, id)->outputs[0];
}

static void ints(struct maker *m, uint32_t id, enum ir_attr_key key, uint32_t n, const int64_t *v)
{
    assert_true(ir_attr_set_ints(m->g, id, key, n, v));
}

static void integer(struct maker *m, uint32_t id, enum ir_attr_key key, int64_t v)
{
    ints(m, id, key, 1, &v);
}

static uint32_t unary(struct maker *m, enum ir_unary func, uint32_t x)
{
    uint32_t id = node(m, IR_OP_UNARY, ir_unary_name(func), 1, &x);
    integer(m, id, IR_ATTR_FUNC, func);
    return finish(m, id);
}

static uint32_t clip(struct maker *m, uint32_t x, float lo, float hi)
{
    uint32_t id = node(m, IR_OP_UNARY, "clip", 1, &x);
    integer(m, id, IR_ATTR_FUNC, IR_UNARY_CLIP);
    assert_true(ir_attr_set_float(m->g, id, IR_ATTR_ALPHA, lo));
    assert_true(ir_attr_set_float(m->g, id, IR_ATTR_BETA, hi));
    return finish(m, id);
}

static uint32_t binary(struct maker *m, enum ir_binary func, uint32_t a, uint32_t b)
{
    uint32_t in[] = {a, b};
    if (roll(m, 2) && (func == IR_BINARY_ADD || func == IR_BINARY_MUL)) {
        in[0] = b;
        in[1] = a;
    }
    uint32_t id = node(m, IR_OP_BINARY, ir_binary_name(func), 2, in);
    integer(m, id, IR_ATTR_FUNC, func);
    return finish(m, id);
}

static uint32_t with_number(struct maker *m, enum ir_binary func, uint32_t x, float value)
{
    return binary(m, func, x, number(m, value));
}

static uint32_t reshape(struct maker *m, uint32_t x, uint32_t rank, const int64_t *dims)
{
    uint32_t id = node(m, IR_OP_RESHAPE, "reshape", 1, &x);
    ints(m, id, IR_ATTR_SHAPE, rank, dims);
    return finish(m, id);
}

static uint32_t transpose(struct maker *m, uint32_t x, uint32_t rank, const int64_t *perm)
{
    uint32_t id = node(m, IR_OP_TRANSPOSE, "transpose", 1, &x);
    ints(m, id, IR_ATTR_PERM, rank, perm);
    return finish(m, id);
}

/* --- activations, as one node or by their parts --- */

static uint32_t gelu_parts(struct maker *m, uint32_t x)
{
    uint32_t half = roll(m, 3);
    uint32_t value = half == 0 ? with_number(m, IR_BINARY_MUL, x, 0.5f) : x;
    uint32_t e = unary(m, IR_UNARY_ERF, with_number(m, IR_BINARY_DIV, x, 1.41421356f));
    uint32_t gate = with_number(m, IR_BINARY_ADD, e, 1);
    if (half == 1)
        gate = with_number(m, IR_BINARY_MUL, gate, 0.5f);
    uint32_t y = binary(m, IR_BINARY_MUL, value, gate);
    return half == 2 ? with_number(m, IR_BINARY_MUL, y, roll(m, 4) ? 0.5f : 0.4f) : y;
}

static uint32_t gelu_tanh_parts(struct maker *m, uint32_t x)
{
    uint32_t cube = with_number(m, IR_BINARY_POW, x, 3);
    uint32_t inner = binary(m, IR_BINARY_ADD, x, with_number(m, IR_BINARY_MUL, cube, 0.044715f));
    uint32_t t = unary(m, IR_UNARY_TANH, with_number(m, IR_BINARY_MUL, inner, 0.79788456f));
    uint32_t gate = with_number(m, IR_BINARY_ADD, t, 1);
    return binary(m, IR_BINARY_MUL, with_number(m, IR_BINARY_MUL, x, 0.5f), gate);
}

static uint32_t hard_swish_parts(struct maker *m, uint32_t x)
{
    uint32_t c = clip(m, with_number(m, IR_BINARY_ADD, x, 3), 0, 6);
    if (roll(m, 2))
        return binary(m, IR_BINARY_MUL, x, with_number(m, IR_BINARY_DIV, c, 6));
    return with_number(m, IR_BINARY_DIV, binary(m, IR_BINARY_MUL, x, c), 6);
}

static uint32_t activation(struct maker *m, uint32_t x)
{
    static const enum ir_unary plain[] = {
        IR_UNARY_RELU,    IR_UNARY_LEAKY_RELU, IR_UNARY_ELU,  IR_UNARY_SELU,     IR_UNARY_CELU,
        IR_UNARY_SIGMOID, IR_UNARY_HARD_SWISH, IR_UNARY_TANH, IR_UNARY_GELU,     IR_UNARY_SOFTPLUS,
        IR_UNARY_MISH,    IR_UNARY_ABS,        IR_UNARY_NEG,  IR_UNARY_IDENTITY, IR_UNARY_SIN,
    };
    switch (roll(m, 8)) {
    case 0:
        return clip(m, x, 0, 6);
    case 1:
        return gelu_parts(m, x);
    case 2:
        return gelu_tanh_parts(m, x);
    case 3:
        return hard_swish_parts(m, x);
    case 4:
        return binary(m, IR_BINARY_MUL, x, unary(m, IR_UNARY_SIGMOID, x));
    default:
        return unary(m, plain[roll(m, ARRAY_LEN(plain))], x);
    }
}

/* --- blocks of a convolutional network --- */

static uint32_t conv(struct maker *m, uint32_t x)
{
    const struct shape *s = shape(m, x);
    int64_t c = s->dim[1], k = 1 + (int64_t)roll(m, 2) * 2, p = k / 2;
    int64_t g = c % 2 == 0 && roll(m, 3) == 0 ? 2 : 1, out = 2 + 2 * (int64_t)roll(m, 3);
    bool transposed = roll(m, 5) == 0;
    int64_t w[] = {transposed ? c : out, transposed ? out / g : c / g, k, k};
    uint32_t in[] = {x, constant(m, 4, w, 0, 0.5f), IR_NONE};
    if (roll(m, 2))
        in[2] = constant(m, 1, &out, 0, 1);
    uint32_t id = node(m, transposed ? IR_OP_DECONV : IR_OP_CONV, "conv", roll(m, 2) ? 3 : 2, in);
    if (ir_node(m->g, id)->n_inputs == 2)
        in[2] = IR_NONE;
    ints(m, id, IR_ATTR_PADS, 4, (int64_t[]){p, p, p, p});
    integer(m, id, IR_ATTR_GROUP, g);
    return finish(m, id);
}

static uint32_t batch_norm(struct maker *m, uint32_t x)
{
    int64_t c = shape(m, x)->dim[1];
    uint32_t in[] = {x, constant(m, 1, &c, 1, 0.5f), constant(m, 1, &c, 0, 1),
                     constant(m, 1, &c, 0, 1), constant(m, 1, &c, 1, 0.5f)};
    return finish(m, node(m, IR_OP_BATCH_NORM, "bn", 5, in));
}

static uint32_t channel_arithmetic(struct maker *m, uint32_t x)
{
    static const enum ir_binary funcs[] = {IR_BINARY_ADD, IR_BINARY_SUB, IR_BINARY_MUL,
                                           IR_BINARY_DIV, IR_BINARY_MAX, IR_BINARY_PRELU};
    const struct shape *s = shape(m, x);
    int64_t dims[] = {s->dim[1], 1, 1};
    if (roll(m, 5) == 0) /* along another dimension */
        dims[0] = 1, dims[2] = s->dim[3];
    enum ir_binary func = funcs[roll(m, ARRAY_LEN(funcs))];
    uint32_t k = constant(m, 3, dims, 1, 0.5f);
    return roll(m, 6) == 0 ? binary(m, func == IR_BINARY_DIV ? IR_BINARY_SUB : func, k, x)
                           : binary(m, func, x, k);
}

static uint32_t scalar_arithmetic(struct maker *m, uint32_t x)
{
    static const enum ir_binary funcs[] = {IR_BINARY_ADD, IR_BINARY_SUB, IR_BINARY_MUL,
                                           IR_BINARY_DIV, IR_BINARY_MAX, IR_BINARY_MIN};
    static const float values[] = {1, 0.5f, -0.75f, 2, 1.5f};
    return with_number(m, funcs[roll(m, ARRAY_LEN(funcs))], x, values[roll(m, 5)]);
}

static uint32_t squeeze_and_excite(struct maker *m, uint32_t x)
{
    uint32_t mean = node(m, IR_OP_REDUCE, "mean", 1, &x);
    integer(m, mean, IR_ATTR_FUNC, IR_REDUCE_MEAN);
    ints(m, mean, IR_ATTR_AXES, 2, (int64_t[]){2, 3});
    int64_t c = shape(m, x)->dim[1], w[] = {c, c, 1, 1};
    uint32_t in[] = {finish(m, mean), constant(m, 4, w, 0, 1)};
    uint32_t gate = finish(m, node(m, IR_OP_CONV, "gate", 2, in));
    return binary(m, IR_BINARY_MUL, x, unary(m, IR_UNARY_SIGMOID, gate));
}

static uint32_t pool(struct maker *m, uint32_t x)
{
    uint32_t id = node(m, IR_OP_POOL, "pool", 1, &x);
    integer(m, id, IR_ATTR_FUNC, roll(m, 2));
    int64_t k = 1 + (int64_t)roll(m, 3), p = k / 2;
    ints(m, id, IR_ATTR_KERNEL, 2, (int64_t[]){k, k});
    ints(m, id, IR_ATTR_PADS, 4, (int64_t[]){p, p, k - 1 - p, k - 1 - p});
    return finish(m, id);
}

static uint32_t pad(struct maker *m, uint32_t x)
{
    uint32_t id = node(m, IR_OP_PAD, "pad", 1, &x);
    int64_t before = roll(m, 2), after = roll(m, 2);
    ints(m, id, IR_ATTR_PADS, 8, (int64_t[]){0, 0, before, after, 0, 0, after, before});
    assert_true(ir_attr_set_float(m->g, id, IR_ATTR_VALUE, roll(m, 4) ? 0 : 0.5f));
    return finish(m, id);
}

static uint32_t shuffle(struct maker *m, uint32_t x)
{
    struct shape s = *shape(m, x);
    static const int64_t perm[] = {0, 2, 3, 1}, back[] = {0, 3, 1, 2};
    uint32_t y = transpose(m, x, 4, perm);
    if (roll(m, 2))
        y = unary(m, IR_UNARY_TANH, y);
    y = transpose(m, y, 4, back);
    if (roll(m, 2)) {
        y = reshape(m, y, 2, (int64_t[]){s.dim[0], s.dim[1] * s.dim[2] * s.dim[3]});
        y = reshape(m, y, 4, s.dim);
    }
    return y;
}

static uint32_t crop(struct maker *m, uint32_t x)
{
    struct shape s = *shape(m, x);
    uint32_t y = x;
    for (uint32_t n = 1 + roll(m, 2); n; n--) {
        uint32_t id = node(m, IR_OP_SLICE, "slice", 1, &y);
        s = *shape(m, y);
        int64_t starts[] = {0, 0, s.dim[2] > 3 ? roll(m, 2) : 0, 0};
        ints(m, id, IR_ATTR_STARTS, 4, starts);
        ints(m, id, IR_ATTR_ENDS, 4, s.dim);
        ints(m, id, IR_ATTR_STEPS, 4, (int64_t[]){1, 1, 1, 1});
        y = finish(m, id);
    }
    return y;
}

static uint32_t concat(struct maker *m, uint32_t a, uint32_t b)
{
    uint32_t id = node(m, IR_OP_CONCAT, "concat", 2, (uint32_t[]){a, b});
    integer(m, id, IR_ATTR_AXIS, 1);
    return finish(m, id);
}

/* --- blocks of a transformer --- */

static uint32_t matmul(struct maker *m, uint32_t a, uint32_t b, bool trans_b)
{
    uint32_t id = node(m, IR_OP_MATMUL, "matmul", 2, (uint32_t[]){a, b});
    if (trans_b)
        integer(m, id, IR_ATTR_TRANS_B, 1);
    return finish(m, id);
}

static uint32_t dense(struct maker *m, uint32_t x, int64_t out)
{
    int64_t in = shape(m, x)->dim[2];
    bool trans = roll(m, 3) == 0;
    int64_t w[] = {trans ? out : in, trans ? in : out};
    uint32_t weights = constant(m, 2, w, 0, 0.7f);
    if (roll(m, 4) == 0) { /* a transposed constant */
        static const int64_t swap[] = {1, 0};
        weights = transpose(m, weights, 2, swap);
        trans = !trans;
    }
    uint32_t y = matmul(m, x, weights, trans);
    if (roll(m, 4))
        y = binary(m, IR_BINARY_ADD, y, constant(m, 1, &out, 0, 1));
    if (roll(m, 4) == 0)
        y = binary(m, IR_BINARY_MUL, y, constant(m, 1, &out, 1, 0.5f));
    return y;
}

static uint32_t layer_norm_parts(struct maker *m, uint32_t x)
{
    int64_t d = shape(m, x)->dim[2];
    uint32_t mean = node(m, IR_OP_REDUCE, "mean", 1, &x);
    integer(m, mean, IR_ATTR_FUNC, IR_REDUCE_MEAN);
    integer(m, mean, IR_ATTR_AXES, 2);
    uint32_t c = binary(m, IR_BINARY_SUB, x, finish(m, mean));
    uint32_t sq = roll(m, 2) ? with_number(m, IR_BINARY_POW, c, 2) : binary(m, IR_BINARY_MUL, c, c);
    uint32_t var = node(m, IR_OP_REDUCE, "var", 1, &sq);
    integer(m, var, IR_ATTR_FUNC, IR_REDUCE_MEAN);
    integer(m, var, IR_ATTR_AXES, 2);
    uint32_t root = unary(m, IR_UNARY_SQRT, with_number(m, IR_BINARY_ADD, finish(m, var), 0.01f));
    uint32_t y = binary(m, IR_BINARY_DIV, c, root);
    if (roll(m, 4))
        y = binary(m, IR_BINARY_MUL, y, constant(m, 1, &d, 1, 0.5f));
    if (roll(m, 4))
        y = binary(m, IR_BINARY_ADD, y, constant(m, 1, &d, 0, 1));
    return y;
}

/* [B,S,D] -> [B,H,S,D/H] */
static uint32_t heads(struct maker *m, uint32_t x, const int64_t *perm)
{
    struct shape s = *shape(m, x);
    uint32_t split = reshape(m, x, 4, (int64_t[]){s.dim[0], s.dim[1], 2, s.dim[2] / 2});
    return transpose(m, split, 4, perm);
}

static uint32_t attention(struct maker *m, uint32_t x)
{
    static const int64_t rows[] = {0, 2, 1, 3}, keys[] = {0, 2, 3, 1};
    struct shape s = *shape(m, x);
    uint32_t q = heads(m, dense(m, x, s.dim[2]), rows);
    uint32_t k = heads(m, dense(m, x, s.dim[2]), keys);
    uint32_t v = heads(m, dense(m, x, s.dim[2]), rows);
    bool before = roll(m, 2);
    if (before)
        q = with_number(m, IR_BINARY_MUL, q, 0.5f);
    uint32_t scores = matmul(m, q, k, false);
    if (!before)
        scores = with_number(m, IR_BINARY_DIV, scores, 2);
    if (roll(m, 2))
        scores = binary(m, IR_BINARY_ADD, scores,
                        constant(m, 4, (int64_t[]){s.dim[0], 1, 1, s.dim[1]}, 0, 1));
    uint32_t p = node(m, IR_OP_SOFTMAX, "softmax", 1, &scores);
    integer(m, p, IR_ATTR_AXIS, 3);
    uint32_t mix = transpose(m, matmul(m, finish(m, p), v, false), 4, rows);
    return dense(m, reshape(m, mix, 3, s.dim), s.dim[2]);
}

/* --- growing --- */

static uint32_t pick(struct maker *m)
{
    return roll(m, 3) ? m->made[m->n_made - 1] : m->made[roll(m, m->n_made)];
}

/* Another tensor of that shape, or the same one. */
static uint32_t companion(struct maker *m, uint32_t x)
{
    for (uint32_t i = 0, at = roll(m, m->n_made); i < m->n_made; i++) {
        uint32_t other = m->made[(at + i) % m->n_made];
        if (other != x && shape_equal(shape(m, other), shape(m, x)))
            return other;
    }
    return x;
}

static uint32_t conv_block(struct maker *m, uint32_t x)
{
    uint32_t other = companion(m, x);
    switch (roll(m, 14)) {
    case 0:
        return batch_norm(m, x);
    case 1:
        return channel_arithmetic(m, x);
    case 2:
        return scalar_arithmetic(m, x);
    case 3:
        return squeeze_and_excite(m, x);
    case 4:
        return pool(m, x);
    case 5:
        return pad(m, x);
    case 6:
        return shuffle(m, x);
    case 7:
        return crop(m, x);
    case 8:
        return shape(m, x)->dim[1] > 8 ? activation(m, x) : concat(m, x, other);
    case 9:
        return binary(m, roll(m, 3) ? IR_BINARY_ADD : IR_BINARY_SUB, x, other);
    case 10:
    case 11:
        return activation(m, x);
    default:
        return conv(m, x);
    }
}

static uint32_t transformer_block(struct maker *m, uint32_t x)
{
    switch (roll(m, 7)) {
    case 0:
        return attention(m, x);
    case 1:
        return layer_norm_parts(m, x);
    case 2:
        return binary(m, IR_BINARY_ADD, x, companion(m, x));
    case 3:
        return scalar_arithmetic(m, x);
    case 4:
    case 5:
        return activation(m, x);
    default:
        return dense(m, x, 4 + 4 * (int64_t)roll(m, 2));
    }
}

static struct ir_graph *grow(uint64_t seed, const struct shape *input,
                             uint32_t (*block)(struct maker *m, uint32_t x))
{
    struct maker m = {.g = ir_graph_new(), .state = seed * 0x9e3779b97f4a7c15u + 1};
    assert_non_null(m.g);
    roll(&m, 2);
    for (uint32_t i = 0; i < 2; i++) {
        uint32_t x = ir_tensor_add(m.g, i ? "x1" : "x0", DTYPE_F32, input);
        m.g->inputs[m.g->n_inputs++] = x;
        m.made[m.n_made++] = x;
    }
    for (uint32_t i = 0, n = 3 + roll(&m, 12); i < n; i++) {
        uint32_t y = block(&m, pick(&m));
        m.made[m.n_made++] = y;
    }
    /* The last tensor is an output, and sometimes another one. */
    m.g->outputs[m.g->n_outputs++] = m.made[m.n_made - 1];
    uint32_t other = 2 + roll(&m, m.n_made - 2);
    if (other != m.n_made - 1 && roll(&m, 3) == 0)
        m.g->outputs[m.g->n_outputs++] = m.made[other];
    struct error err = {0};
    if (ir_verify(m.g, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return m.g;
}

struct ir_graph *random_convnet(uint64_t seed)
{
    return grow(seed, &(struct shape){.rank = 4, .dim = {2, 4, 6, 5}}, conv_block);
}

struct ir_graph *random_transformer(uint64_t seed)
{
    return grow(seed, &(struct shape){.rank = 3, .dim = {2, 3, 8}}, transformer_block);
}
