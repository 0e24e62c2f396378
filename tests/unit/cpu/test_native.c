/* SPDX-License-Identifier: Apache-2.0 */
/* Every native candidate of a node gives what the reference gives, on one thread and on several. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/eval.h"
#include "engine/cpu/native.h"
#include "tests/unit/cpu/views.h"

enum { THREADS = 3, MOST = 1 << 18, INPUTS_MAX = 12 };

static float *inputs[INPUTS_MAX], *want, *got;

static int setup(void **state UNUSED)
{
    for (uint32_t i = 0; i < INPUTS_MAX; i++) {
        inputs[i] = malloc(MOST * sizeof(float));
        fill_random(inputs[i], MOST, i + 1);
    }
    want = malloc(MOST * sizeof(float));
    got = malloc(MOST * sizeof(float));
    return 0;
}

static int teardown(void **state UNUSED)
{
    for (uint32_t i = 0; i < INPUTS_MAX; i++)
        free(inputs[i]);
    free(want);
    free(got);
    return 0;
}

static struct shape shape_of(uint32_t rank, const int64_t *dims)
{
    struct shape shape = {.rank = rank};
    memcpy(shape.dim, dims, rank * sizeof(*dims));
    return shape;
}

#define SHAPE(...)                                                                                 \
    shape_of((uint32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),                       \
             (const int64_t[]){__VA_ARGS__})

static struct ir_graph *one_node(enum ir_op op, enum dtype dtype, uint32_t n,
                                 const struct shape *shapes)
{
    struct ir_graph *graph = ir_graph_new();
    uint32_t ids[INPUTS_MAX];
    for (uint32_t i = 0; i < n; i++)
        ids[i] = ir_tensor_add(graph, "in", dtype, &shapes[i]);
    assert_int_equal(ir_node_add(graph, op, "node", n, ids), 0);
    return graph;
}

static void add_unary(struct ir_graph *graph, enum ir_unary func, float alpha, float beta)
{
    struct ir_epilogue step = {.func = func, .alpha = alpha, .beta = beta};
    assert_true(ir_epilogue_add(graph, 0, step, IR_NONE));
}

static void add_binary(struct ir_graph *graph, enum ir_binary func, struct shape shape)
{
    struct ir_epilogue step = {.kind = IR_EPILOGUE_BINARY, .func = func};
    uint32_t operand = ir_tensor_add(graph, "operand", DTYPE_F32, &shape);
    assert_true(ir_epilogue_add(graph, 0, step, operand));
}

struct visits {
    const struct ir_graph *graph;
    size_t bytes;
    double tolerance;
    uint32_t n;
};

static enum status run_one(void *user, const struct tactic *tactic, struct error *err)
{
    struct visits *v = user;
    const struct ir_node *node = ir_node(v->graph, 0);
    if (tactic->in[0].format.layout != IR_LAYOUT_PLAIN)
        return STATUS_OK; /* native_case() is for layouts */
    struct native_op *op = NULL;
    if (native_op_prepare(THREADS, v->graph, node, tactic, &op, err) != STATUS_OK)
        fail_msg("%s: %s", tactic->name, err->text);
    void *in[INPUTS_MAX], *out[1] = {got};
    for (uint32_t i = 0; i < node->n_inputs; i++)
        in[i] = inputs[i];
    for (int again = 0; again < 2; again++) { /* an op is launched many times */
        memset(got, 0xff, v->bytes + sizeof(float));
        assert_int_equal(native_op_launch(op, in, out, NULL, err), STATUS_OK);
        if (v->tolerance == 0)
            assert_memory_equal(got, want, v->bytes);
        else
            assert_floats(got, want, v->bytes / sizeof(float), v->tolerance);
        /* nothing is written behind the output */
        assert_true(isnan(got[v->bytes / sizeof(float)]));
    }
    native_op_free(op);
    v->n++;
    return STATUS_OK;
}

/* Infers the node, runs all its candidates and frees the graph. Returns the number of
 * candidates. */
static uint32_t check(struct ir_graph *graph, double tolerance)
{
    struct error err = {0};
    const char *name = "y";
    struct visits v = {.graph = graph, .tolerance = tolerance};
    if (ir_infer_apply(graph, 0, &name, 1, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    const struct ir_node *node = ir_node(graph, 0);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    assert_true(shape_bytes(&y->shape, y->dtype, &v.bytes));
    assert_in_range(v.bytes, 0, (MOST - 1) * sizeof(float));
    const void *in[INPUTS_MAX];
    void *out[1] = {want};
    for (uint32_t i = 0; i < node->n_inputs; i++)
        in[i] = inputs[i];
    assert_int_equal(cpu_eval_node(NULL, graph, node, in, out, &err), STATUS_OK);
    assert_int_equal(native_candidates(THREADS, graph, node, run_one, &v, &err), STATUS_OK);
    ir_graph_free(graph);
    return v.n;
}

static void set(struct ir_graph *graph, enum ir_attr_key key, int64_t value)
{
    assert_true(ir_attr_set_int(graph, 0, key, value));
}

static void test_unary_chain(void **state UNUSED)
{
    struct shape shapes[] = {SHAPE(3, 5000), SHAPE(7), SHAPE(1, 1, 1)};
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        struct ir_graph *graph = one_node(IR_OP_UNARY, DTYPE_F32, 1, &shapes[i]);
        set(graph, IR_ATTR_FUNC, IR_UNARY_GELU);
        add_unary(graph, IR_UNARY_LINEAR, 3, -0.5F);
        add_binary(graph, IR_BINARY_ADD, shapes[i]);
        add_binary(graph, IR_BINARY_MUL, SHAPE(1));
        add_unary(graph, IR_UNARY_CLIP, -1, 2);
        assert_int_equal(check(graph, 2e-6), i == 0 ? 2 : 1);
    }
}

static void test_defaults_of_functions(void **state UNUSED)
{
    static const enum ir_unary funcs[] = {IR_UNARY_LEAKY_RELU, IR_UNARY_HARD_SIGMOID,
                                          IR_UNARY_SWISH, IR_UNARY_CLIP, IR_UNARY_LINEAR};
    for (size_t i = 0; i < ARRAY_LEN(funcs); i++) {
        struct shape shape = SHAPE(100);
        struct ir_graph *graph = one_node(IR_OP_UNARY, DTYPE_F32, 1, &shape);
        set(graph, IR_ATTR_FUNC, funcs[i]);
        assert_int_equal(check(graph, 1e-6), 1);
    }
}

/* Every way in which two shapes of rank 3 may broadcast to each other. */
static void test_binary_broadcasts(void **state UNUSED)
{
    static const enum ir_binary funcs[] = {IR_BINARY_ADD, IR_BINARY_SUB, IR_BINARY_MUL,
                                           IR_BINARY_MAX, IR_BINARY_MIN, IR_BINARY_PRELU};
    const int64_t dims[3] = {3, 17, 2100};
    for (unsigned mask = 0; mask < 64; mask++) {
        int64_t a[3], b[3];
        for (unsigned d = 0; d < 3; d++) {
            a[d] = mask >> d & 1 ? 1 : dims[d];
            b[d] = mask >> (d + 3) & 1 ? 1 : dims[d];
        }
        struct shape shapes[2] = {shape_of(3, a), shape_of(3, b)};
        struct ir_graph *graph = one_node(IR_OP_BINARY, DTYPE_F32, 2, shapes);
        set(graph, IR_ATTR_FUNC, funcs[mask % ARRAY_LEN(funcs)]);
        assert_in_range(check(graph, 1e-7), 1, 2);
    }
    struct shape shapes[2] = {SHAPE(5, 1), SHAPE(300)}; /* different ranks */
    struct ir_graph *graph = one_node(IR_OP_BINARY, DTYPE_F32, 2, shapes);
    set(graph, IR_ATTR_FUNC, IR_BINARY_DIV);
    add_binary(graph, IR_BINARY_SUB, SHAPE(5, 300));
    add_binary(graph, IR_BINARY_ADD, SHAPE(5, 1));
    assert_int_equal(check(graph, 1e-6), 2);
}

static void test_softmax(void **state UNUSED)
{
    for (int log_of = 0; log_of < 2; log_of++) {
        struct shape shape = SHAPE(2, 3, 5, 128);
        struct ir_graph *graph = one_node(IR_OP_SOFTMAX, DTYPE_F32, 1, &shape);
        set(graph, IR_ATTR_AXIS, 3);
        set(graph, IR_ATTR_LOG, log_of);
        add_binary(graph, IR_BINARY_ADD, SHAPE(2, 1, 1, 128));
        add_binary(graph, IR_BINARY_MUL, SHAPE(3, 5, 1));
        assert_int_equal(check(graph, 2e-6), 2);
    }
    struct shape shape = SHAPE(4, 10, 1, 1); /* the axis is the last dimension larger than 1 */
    struct ir_graph *graph = one_node(IR_OP_SOFTMAX, DTYPE_F32, 1, &shape);
    set(graph, IR_ATTR_AXIS, 1);
    assert_int_equal(check(graph, 2e-6), 2);
}

static void test_layer_norm(void **state UNUSED)
{
    for (uint32_t form = 0; form < 4; form++) {
        uint32_t with_bias = form & 1;
        struct shape shapes[3] = {SHAPE(2, 9, 4, 700), SHAPE(4, 700), SHAPE(4, 700)};
        struct ir_graph *graph = one_node(IR_OP_LAYER_NORM, DTYPE_F32, 2 + with_bias, shapes);
        set(graph, IR_ATTR_AXIS, 2);
        set(graph, IR_ATTR_RMS, form >> 1);
        assert_true(ir_attr_set_float(graph, 0, IR_ATTR_EPSILON, 1e-6F));
        add_binary(graph, IR_BINARY_ADD, SHAPE(9, 4, 700));
        add_unary(graph, IR_UNARY_RELU, 0, 0);
        assert_int_equal(check(graph, 3e-6), 2);
    }
    struct shape shapes[3] = {SHAPE(6, 8), SHAPE(1), SHAPE(8)}; /* a scale that broadcasts */
    struct ir_graph *graph = one_node(IR_OP_LAYER_NORM, DTYPE_F32, 3, shapes);
    set(graph, IR_ATTR_AXIS, 1);
    assert_int_equal(check(graph, 3e-6), 0);
}

static void transpose_all(enum dtype dtype, struct shape shape)
{
    for (int64_t p = 0; p < 256; p++) {
        const int64_t perm[4] = {p & 3, p >> 2 & 3, p >> 4 & 3, p >> 6};
        unsigned seen = 0;
        for (int d = 0; d < 4; d++)
            seen |= 1U << perm[d];
        if (seen != 15)
            continue;
        struct ir_graph *graph = one_node(IR_OP_TRANSPOSE, dtype, 1, &shape);
        assert_true(ir_attr_set_ints(graph, 0, IR_ATTR_PERM, 4, perm));
        assert_in_range(check(graph, 0), 1, 2);
    }
}

static void test_transpose_every_way(void **state UNUSED)
{
    transpose_all(DTYPE_F32, SHAPE(2, 5, 70, 33));
    transpose_all(DTYPE_I32, SHAPE(1, 12, 1, 130));
    transpose_all(DTYPE_U8, SHAPE(3, 4, 5, 6));
    transpose_all(DTYPE_I64, SHAPE(3, 4, 5, 6));
}

static struct ir_graph *pick_node(enum ir_op op, struct shape x, struct shape picks,
                                  enum dtype dtype, enum dtype index, int64_t axis)
{
    struct ir_graph *graph = ir_graph_new();
    const uint32_t ids[2] = {ir_tensor_add(graph, "x", dtype, &x),
                             ir_tensor_add(graph, "picks", index, &picks)};
    assert_int_equal(ir_node_add(graph, op, "rows", 2, ids), 0);
    set(graph, IR_ATTR_AXIS, axis);
    return graph;
}

static struct ir_graph *gather_node(struct shape x, struct shape picks, enum dtype dtype,
                                    int64_t axis)
{
    return pick_node(IR_OP_GATHER, x, picks, dtype, DTYPE_I64, axis);
}

static void test_gather(void **state UNUSED)
{
    int64_t picks[6] = {4, 0, -1, 2, -5, 1};
    float *random = inputs[1];
    inputs[1] = (float *)picks;
    assert_int_equal(check(gather_node(SHAPE(5, 700), SHAPE(2, 3), DTYPE_F32, 0), 0), 2);
    assert_int_equal(check(gather_node(SHAPE(3, 5, 7), SHAPE(6), DTYPE_F16, 1), 0), 2);
    assert_int_equal(check(gather_node(SHAPE(2, 5), SHAPE(6), DTYPE_U8, 1), 0), 2);
    struct shape one = {0}; /* a scalar takes one long run, which threads share */
    assert_int_equal(check(gather_node(SHAPE(5, 30001), one, DTYPE_F32, 0), 0), 2);
    inputs[1] = random;
}

/* The output is as large as the indices, which may be fewer than x is long along other axes. */
static void test_gather_elements(void **state UNUSED)
{
    static int64_t picks[3 * 5 * 64];
    static int32_t small[ARRAY_LEN(picks)];
    float *random = inputs[1];
    for (size_t i = 0; i < ARRAY_LEN(picks); i++)
        picks[i] = small[i] = (int32_t)(i * 7 % 10) - 5;
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_U8, DTYPE_I64};
    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        for (int wide = 0; wide < 2; wide++) {
            enum dtype index = wide ? DTYPE_I64 : DTYPE_I32;
            inputs[1] = wide ? (float *)picks : (float *)small;
            struct shape last = SHAPE(4, 5, 6), first = SHAPE(5, 5, 70), all = SHAPE(3, 5, 64);
            struct shape middle = SHAPE(3, 9, 64);
            assert_int_equal(
                check(pick_node(IR_OP_GATHER_ELEMENTS, last, SHAPE(3, 5, 64), types[t], index, 2),
                      0),
                2);
            assert_int_equal(
                check(pick_node(IR_OP_GATHER_ELEMENTS, first, all, types[t], index, 0), 0), 2);
            assert_int_equal(
                check(pick_node(IR_OP_GATHER_ELEMENTS, middle, all, types[t], index, 1), 0), 2);
        }
    inputs[1] = random;
}

/* Two tables of five rows, with rows without ids between, of 16 bits only the first one: the sum of
 * two such numbers is the same whether it is rounded to FP32 before or not. */
static struct ir_graph *embed_node(struct shape ids, struct shape rows, enum dtype dtype,
                                   int64_t width)
{
    struct ir_graph *graph = ir_graph_new();
    struct shape table = SHAPE(5, width);
    const uint32_t in[5] = {ir_tensor_add(graph, "t", dtype, &table),
                            ir_tensor_add(graph, "ids", DTYPE_I64, &ids),
                            ir_tensor_add(graph, "rows", dtype, &rows), IR_NONE,
                            ir_tensor_add(graph, "u", dtype, &table)};
    uint32_t node = ir_node_add(graph, IR_OP_EMBED, "sum", dtype == DTYPE_F32 ? 5 : 3, in);
    if (dtype == DTYPE_F32)
        assert_int_equal(ir_node_input_add(graph, node, in[1]), 5);
    return graph;
}

/* Clears a bit of the exponent of both halves of each float: no number of 16 bits is infinite. */
static void make_finite(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof(bits));
        bits &= 0xbfffbfff;
        memcpy(&x[i], &bits, sizeof(bits));
    }
}

static void test_embed(void **state UNUSED)
{
    int64_t ids[6] = {4, 0, -1, 2, -5, 1};
    static float table[5 * 5001], rows[5 * 5001];
    float *random[INPUTS_MAX];
    memcpy(random, inputs, sizeof(random));
    memcpy(table, inputs[0], sizeof(table));
    memcpy(rows, inputs[2], sizeof(rows));
    make_finite(table, ARRAY_LEN(table));
    make_finite(rows, ARRAY_LEN(rows));
    inputs[0] = inputs[4] = table;
    inputs[1] = inputs[5] = (float *)ids;
    inputs[2] = rows;
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F16, DTYPE_BF16};
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        double tolerance = types[i] == DTYPE_F32 ? 1e-6 : 0;
        struct shape two = SHAPE(2, 3), places = SHAPE(1, 3, 700), each = SHAPE(2, 1, 5001);
        assert_int_equal(check(embed_node(two, places, types[i], 700), tolerance), 2);
        assert_int_equal(check(embed_node(two, each, types[i], 5001), tolerance), 2);
        assert_int_equal(check(embed_node(SHAPE(6), SHAPE(1), types[i], 1), tolerance), 2);
    }
    memcpy(inputs, random, sizeof(random));
}

static enum status run_bad(void *user, const struct tactic *tactic, struct error *err)
{
    const struct ir_graph *graph = user;
    struct native_op *op = NULL;
    float x[12] = {0}, y[8];
    int64_t picks[2] = {1, 3};
    void *in[2] = {x, picks}, *out[1] = {y};
    assert_int_equal(native_op_prepare(THREADS, graph, ir_node(graph, 0), tactic, &op, err),
                     STATUS_OK);
    assert_int_equal(native_op_launch(op, in, out, NULL, err), STATUS_INVALID_ARGUMENT);
    assert_string_equal(err->text, "gather 'rows': index 3 is out of range for a dimension of 3");
    native_op_free(op);
    return STATUS_OK;
}

/* Indices that are constant are checked before, and again if one is out of range. */
static void test_gather_refuses_indices(void **state UNUSED)
{
    static int64_t picks[2] = {1, 3};
    for (int constant = 0; constant < 2; constant++) {
        struct ir_graph *graph = gather_node(SHAPE(3, 4), SHAPE(2), DTYPE_F32, 0);
        struct error err = {0};
        const char *name = "y";
        if (constant)
            ir_tensor(graph, ir_node(graph, 0)->inputs[1])->data = picks;
        assert_int_equal(ir_infer_apply(graph, 0, &name, 1, &err), STATUS_OK);
        assert_int_equal(native_candidates(THREADS, graph, ir_node(graph, 0), run_bad, graph, &err),
                         STATUS_OK);
        ir_graph_free(graph);
    }
}

static void test_casts(void **state UNUSED)
{
    static const enum dtype types[] = {DTYPE_U8, DTYPE_I8, DTYPE_I32, DTYPE_I64, DTYPE_F16};
    struct shape shapes[] = {SHAPE(3, 7001), SHAPE(1, 1), SHAPE(2, 3, 50, 60)};
    for (size_t i = 0; i < ARRAY_LEN(types); i++)
        for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
            struct ir_graph *graph = one_node(IR_OP_CAST, types[i], 1, &shapes[s]);
            set(graph, IR_ATTR_TO, DTYPE_F32);
            assert_int_equal(check(graph, 1e-30), s == 1 ? 1 : 2); /* NaN is NaN */
        }
    struct ir_graph *graph = one_node(IR_OP_CAST, DTYPE_F64, 1, shapes);
    set(graph, IR_ATTR_TO, DTYPE_U8);
    assert_int_equal(check(graph, 0), 0);
}

/* The cast of a served input: a scale and a shift, each one number or one number a channel. */
static void test_cast_with_epilogue(void **state UNUSED)
{
    struct shape shapes[] = {SHAPE(2, 3, 50, 60), SHAPE(2, 3, 1, 1)};
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        struct ir_graph *graph = one_node(IR_OP_CAST, DTYPE_U8, 1, &shapes[s]);
        set(graph, IR_ATTR_TO, DTYPE_F32);
        add_unary(graph, IR_UNARY_LINEAR, 0.0171F, -2.1F);
        add_binary(graph, IR_BINARY_MUL, SHAPE(3, 1, 1));
        add_binary(graph, IR_BINARY_ADD, SHAPE(3, 1, 1));
        add_binary(graph, IR_BINARY_ADD, shapes[s]);
        assert_in_range(check(graph, 1e-6), 1, 2);
    }
}

static void test_nodes_for_others(void **state UNUSED)
{
    struct shape shapes[2] = {SHAPE(4), SHAPE(4)};
    struct ir_graph *graph = one_node(IR_OP_UNARY, DTYPE_F64, 1, shapes);
    set(graph, IR_ATTR_FUNC, IR_UNARY_RELU);
    assert_int_equal(check(graph, 0), 0);
    graph = one_node(IR_OP_BINARY, DTYPE_I64, 2, shapes);
    set(graph, IR_ATTR_FUNC, IR_BINARY_MOD);
    assert_true(ir_attr_set_float(graph, 0, IR_ATTR_ALPHA, 1)); /* the dividend's sign */
    assert_int_equal(check(graph, 0), 0);
    graph = one_node(IR_OP_UNARY, DTYPE_F32, 1, shapes);
    set(graph, IR_ATTR_FUNC, IR_UNARY_RELU);
    add_unary(graph, IR_UNARY_ASINH, 0, 0); /* there is no fast row for it */
    assert_int_equal(check(graph, 0), 0);
    struct shape none = SHAPE(0, 4);
    graph = one_node(IR_OP_UNARY, DTYPE_F32, 1, &none);
    set(graph, IR_ATTR_FUNC, IR_UNARY_RELU);
    assert_int_equal(check(graph, 0), 0);
}

static enum status keep(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    *(struct tactic *)user = *tactic;
    return STATUS_OK;
}

static void test_r34_tactic_that_does_not_fit_is_refused(void **state UNUSED)
{
    struct shape shape = SHAPE(2, 2, 4000);
    struct ir_graph *graph = one_node(IR_OP_UNARY, DTYPE_F32, 1, &shape);
    set(graph, IR_ATTR_FUNC, IR_UNARY_RELU);
    struct error err = {0};
    const char *name = "y";
    assert_int_equal(ir_infer_apply(graph, 0, &name, 1, &err), STATUS_OK);
    const struct ir_node *node = ir_node(graph, 0);
    struct tactic good = {0}, bad[7];
    assert_int_equal(native_candidates(THREADS, graph, node, keep, &good, &err), STATUS_OK);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        bad[i] = good;
    const uint32_t many = THREADS + 1, none = 0;
    memcpy(bad[0].blob, &many, sizeof(many));
    memcpy(bad[1].blob, &none, sizeof(none));
    bad[2].blob_size = 3;
    bad[3].id = 2;
    bad[4].in[0].format.layout = IR_LAYOUT_BLOCKED_8;
    bad[5].n_out = 2;
    bad[6].out[0].packed_bytes = 8;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct native_op *op = NULL;
        if (native_op_prepare(THREADS, graph, node, &bad[i], &op, &err) !=
                STATUS_INVALID_ARGUMENT ||
            op)
            fail_msg("tactic %zu was taken", i);
    }
    struct native_op *op = NULL;
    assert_int_equal(native_op_prepare(THREADS, graph, node, &good, &op, &err), STATUS_OK);
    native_op_free(op);
    assert_true(ir_tensor_set_layout(graph, node->inputs[0], IR_LAYOUT_CHANNELS_LAST));
    op = NULL;
    assert_int_equal(native_op_prepare(THREADS, graph, node, &good, &op, &err),
                     STATUS_INVALID_ARGUMENT);
    ir_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unary_chain),
        cmocka_unit_test(test_defaults_of_functions),
        cmocka_unit_test(test_binary_broadcasts),
        cmocka_unit_test(test_softmax),
        cmocka_unit_test(test_layer_norm),
        cmocka_unit_test(test_transpose_every_way),
        cmocka_unit_test(test_gather),
        cmocka_unit_test(test_gather_elements),
        cmocka_unit_test(test_gather_refuses_indices),
        cmocka_unit_test(test_embed),
        cmocka_unit_test(test_casts),
        cmocka_unit_test(test_cast_with_epilogue),
        cmocka_unit_test(test_nodes_for_others),
        cmocka_unit_test(test_r34_tactic_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
