/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The native recurrent layer against the reference: every cell and arrangement of operands, sizes
 * around those of panels and tiles, one thread and several, a matrix that is packed when the plan
 * is built and one that is computed; damaged tactics.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/eval.h"
#include "engine/cpu/native.h"
#include "tests/unit/cpu/views.h"

enum { THREADS = 3, INPUTS = 7, ROOM = 1 << 18 };

static float inputs[INPUTS][ROOM], want[3][ROOM], got[3][ROOM];
static _Alignas(64) float packed[ROOM], workspace[4 * ROOM];
static int32_t lengths[64];

struct layer {
    enum ir_recurrent cell;
    int64_t steps, batch, hidden;
    enum ir_way way;
    bool linear, coupled, states, peephole, bias, uneven, computed;
    float clip;
};

static uint32_t add(struct ir_graph *g, bool there, enum dtype dtype, struct shape shape)
{
    return there ? ir_tensor_add(g, "", dtype, &shape) : IR_NONE;
}

static struct ir_graph *graph_of(const struct layer *l)
{
    static const int64_t gates[] = {1, 4, 3},
                         funcs[][6] = {
                             {IR_UNARY_SIGMOID, IR_UNARY_TANH},
                             {IR_UNARY_SIGMOID, IR_UNARY_TANH, IR_UNARY_TANH, IR_UNARY_SIGMOID,
                              IR_UNARY_TANH, IR_UNARY_RELU},
                             {IR_UNARY_SIGMOID, IR_UNARY_TANH, IR_UNARY_SIGMOID, IR_UNARY_RELU}};
    static const float ones[] = {1, 1, 1, 1, 1, 1};
    static const uint32_t n_funcs[] = {1, 3, 2};
    struct ir_graph *g = ir_graph_new();
    int64_t d = ir_way_directions(l->way), n = l->batch, h = l->hidden;
    int64_t width = d * gates[l->cell] * h;
    bool lstm = l->cell == IR_RECURRENT_LSTM;
    assert_non_null(g);
    const struct shape matrix = {2, {width, h}}, state = {2, {d * n, h}};
    const uint32_t in[INPUTS] = {
        add(g, true, DTYPE_F32, (struct shape){3, {l->steps, n, width}}),
        l->computed ? add(g, true, DTYPE_F32, matrix)
                    : ir_constant_add(g, "", DTYPE_F32, &matrix, inputs[1]),
        add(g, l->uneven, DTYPE_I32, (struct shape){1, {n}}),
        add(g, l->states, DTYPE_F32, state),
        add(g, l->states && lstm, DTYPE_F32, state),
        add(g, l->peephole, DTYPE_F32, (struct shape){1, {d * 3 * h}}),
        add(g, l->bias, DTYPE_F32, (struct shape){1, {d * h}}),
    };
    assert_int_equal(ir_node_add(g, IR_OP_RECURRENT, "layer", INPUTS, in), 0);
    uint32_t n_all = (uint32_t)d * n_funcs[l->cell];
    assert_true(ir_attr_set_int(g, 0, IR_ATTR_FUNC, l->cell));
    assert_true(ir_attr_set_ints(g, 0, IR_ATTR_FUNCS, n_all, funcs[l->cell]));
    assert_true(ir_attr_set_floats(g, 0, IR_ATTR_ALPHAS, n_all, ones));
    assert_true(ir_attr_set_floats(g, 0, IR_ATTR_BETAS, n_all, ones));
    assert_true(ir_attr_set_int(g, 0, IR_ATTR_REVERSE, l->way));
    assert_true(ir_attr_set_int(g, 0, IR_ATTR_LINEAR, l->linear));
    assert_true(ir_attr_set_int(g, 0, IR_ATTR_COUPLED, l->coupled));
    assert_true(ir_attr_set_float(g, 0, IR_ATTR_CLIP, l->clip));
    const char *names[] = {"y", "h", "c"};
    assert_int_equal(ir_infer_apply(g, 0, names, lstm ? 3 : 2, NULL), STATUS_OK);
    return g;
}

/* The values given for input i of the node. */
static void *operand(const struct ir_node *node, uint32_t i)
{
    if (node->inputs[i] == IR_NONE)
        return NULL;
    return i == 2 ? (void *)lengths : inputs[i];
}

struct visits {
    struct ir_graph *graph;
    const struct layer *layer;
    uint32_t n;
};

static void compare_outputs(const struct visits *v, const char *name)
{
    const struct ir_node *node = ir_node(v->graph, 0);
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        size_t n;
        assert_true(shape_elements(&ir_tensor(v->graph, node->outputs[i])->shape, &n));
        for (size_t k = 0; k < n; k++)
            if (!(got[i][k] - want[i][k] < 2e-6F && want[i][k] - got[i][k] < 2e-6F))
                fail_msg("%s: output %u[%zu] is %g, not %g (cell %d, hidden %d)", name, i, k,
                         (double)got[i][k], (double)want[i][k], (int)v->layer->cell,
                         (int)v->layer->hidden);
        assert_true(got[i][n] != got[i][n]); /* nothing is written behind it */
    }
}

/* Packs the constant and marks its tensor as packed, as the builder does. */
static void pack(struct ir_graph *g, const struct tactic *tactic)
{
    struct ir_tensor *r = ir_tensor(g, ir_node(g, 0)->inputs[1]);
    if (!tactic->in[1].packed_bytes)
        return;
    assert_in_range(tactic->in[1].packed_bytes, 1, sizeof(packed));
    assert_int_equal(native_pack(g, ir_node(g, 0), tactic, 1, packed, NULL), STATUS_OK);
    r->layout = IR_LAYOUT_OPAQUE;
    r->bytes = tactic->in[1].packed_bytes;
}

static enum status run_one(void *user, const struct tactic *tactic, struct error *err)
{
    struct visits *v = user;
    const struct ir_node *node = ir_node(v->graph, 0);
    const struct ir_tensor plain = *ir_tensor(v->graph, node->inputs[1]);
    struct native_op *op = NULL;
    void *in[INPUTS], *out[] = {got[0], got[1], got[2]};
    pack(v->graph, tactic);
    assert_int_equal(tactic->in[1].packed_bytes == 0, v->layer->computed);
    if (native_op_prepare(THREADS, v->graph, node, tactic, &op, err) != STATUS_OK)
        fail_msg("%s: %s", tactic->name, err->text);
    assert_in_range(native_op_workspace(op), 1, sizeof(workspace));
    for (uint32_t i = 0; i < INPUTS; i++)
        in[i] = operand(node, i);
    if (!v->layer->computed)
        in[1] = packed;
    for (int again = 0; again < 2; again++) {
        memset(got, 0xff, sizeof(got));
        memset(workspace, 0xff, native_op_workspace(op));
        assert_int_equal(native_op_launch(op, in, out, workspace, err), STATUS_OK);
        compare_outputs(v, tactic->name);
    }
    native_op_free(op);
    *ir_tensor(v->graph, node->inputs[1]) = plain;
    v->n++;
    return STATUS_OK;
}

static void check(struct layer l)
{
    struct error err = {0};
    struct visits v = {graph_of(&l), &l, 0};
    const struct ir_node *node = ir_node(v.graph, 0);
    const void *in[INPUTS];
    void *out[] = {want[0], want[1], want[2]};
    for (int64_t n = 0; n < l.batch; n++)
        lengths[n] = (int32_t)(n * 5 % (l.steps + 1));
    for (uint32_t i = 0; i < INPUTS; i++)
        in[i] = operand(node, i);
    assert_int_equal(cpu_eval_node(NULL, v.graph, node, in, out, &err), STATUS_OK);
    assert_int_equal(native_candidates(THREADS, v.graph, node, run_one, &v, &err), STATUS_OK);
    bool shared = ir_way_directions(l.way) * l.batch > 1 || (l.hidden > 64 && l.hidden % 64 == 0);
    assert_int_equal(v.n, shared ? 2 : 1); /* by several threads, and by one */
    ir_graph_free(v.graph);
}

#define CHECK(kind, n_steps, n_batch, n_hidden, ...)                                               \
    check((struct layer){.cell = (kind),                                                           \
                         .steps = (n_steps),                                                       \
                         .batch = (n_batch),                                                       \
                         .hidden = (n_hidden),                                                     \
                         __VA_ARGS__})

static void test_cells(void **state UNUSED)
{
    CHECK(IR_RECURRENT_RNN, 5, 3, 9, .states = true);
    CHECK(IR_RECURRENT_RNN, 5, 3, 9, .way = IR_WAY_BACK, .clip = 0.25F);
    CHECK(IR_RECURRENT_LSTM, 5, 3, 9, .states = true, .peephole = true);
    CHECK(IR_RECURRENT_LSTM, 5, 3, 9, .coupled = true, .peephole = true, .clip = 0.5F);
    CHECK(IR_RECURRENT_LSTM, 5, 3, 9, .way = IR_WAY_BACK);
    CHECK(IR_RECURRENT_GRU, 5, 3, 9, .states = true);
    CHECK(IR_RECURRENT_GRU, 5, 3, 9, .linear = true);
    CHECK(IR_RECURRENT_GRU, 5, 3, 9, .linear = true, .bias = true, .way = IR_WAY_BACK,
          .clip = 0.5F);
}

static void test_lengths(void **state UNUSED)
{
    CHECK(IR_RECURRENT_RNN, 4, 6, 5, .uneven = true, .states = true);
    CHECK(IR_RECURRENT_LSTM, 4, 6, 5, .uneven = true, .way = IR_WAY_BACK, .states = true);
    CHECK(IR_RECURRENT_GRU, 4, 6, 5, .uneven = true, .linear = true, .bias = true);
    CHECK(IR_RECURRENT_GRU, 4, 6, 5, .uneven = true, .way = IR_WAY_BACK, .states = true);
}

static void test_both_ways(void **state UNUSED)
{
    CHECK(IR_RECURRENT_RNN, 5, 3, 9, .way = IR_WAY_BOTH, .states = true, .clip = 0.25F);
    CHECK(IR_RECURRENT_LSTM, 5, 3, 9, .way = IR_WAY_BOTH, .states = true, .peephole = true);
    CHECK(IR_RECURRENT_LSTM, 5, 1, 20, .way = IR_WAY_BOTH, .computed = true);
    CHECK(IR_RECURRENT_LSTM, 4, 6, 5, .way = IR_WAY_BOTH, .uneven = true, .states = true);
    CHECK(IR_RECURRENT_LSTM, 4, 1, 128, .way = IR_WAY_BOTH, .peephole = true, .states = true);
    CHECK(IR_RECURRENT_GRU, 5, 2, 9, .way = IR_WAY_BOTH, .states = true);
    CHECK(IR_RECURRENT_GRU, 4, 6, 5, .way = IR_WAY_BOTH, .uneven = true, .linear = true,
          .bias = true);
    CHECK(IR_RECURRENT_GRU, 4, 1, 128, .way = IR_WAY_BOTH, .linear = true, .bias = true,
          .computed = true);
}

/* Hidden sizes around panels, numbers of sequences around tiles and threads. */
static void test_sizes(void **state UNUSED)
{
    static const int64_t hidden[] = {1, 15, 16, 17, 32, 63, 64, 65, 100};
    static const int64_t batch[] = {1, 2, 3, 4, 5, 7, 8, 9, 13};
    for (size_t i = 0; i < ARRAY_LEN(hidden); i++) {
        CHECK(IR_RECURRENT_LSTM, 2, batch[i], hidden[i], .states = true);
        CHECK(IR_RECURRENT_GRU, 2, batch[ARRAY_LEN(batch) - 1 - i], hidden[i], .states = true);
        CHECK(IR_RECURRENT_RNN, 2, 4, hidden[i], .states = true, .computed = true);
        CHECK(IR_RECURRENT_GRU, 2, 2, hidden[i], .linear = true, .computed = true);
    }
}

/* Threads that share the elements of a sequence: two to four panels for three threads. */
static void test_panels(void **state UNUSED)
{
    for (int64_t hidden = 128; hidden <= 256; hidden += 64) {
        CHECK(IR_RECURRENT_RNN, 7, 1, hidden, .states = true, .clip = 0.5F);
        CHECK(IR_RECURRENT_LSTM, 7, 1, hidden, .states = true, .peephole = true,
              .way = IR_WAY_BACK);
        CHECK(IR_RECURRENT_LSTM, 3, 1, hidden, .coupled = true, .peephole = true);
        CHECK(IR_RECURRENT_GRU, 7, 1, hidden, .states = true);
        CHECK(IR_RECURRENT_GRU, 7, 1, hidden, .linear = true);
        CHECK(IR_RECURRENT_GRU, 7, 1, hidden, .linear = true, .bias = true, .way = IR_WAY_BACK);
    }
    CHECK(IR_RECURRENT_LSTM, 5, 5, 256, .states = true, .peephole = true); /* a large matrix */
    CHECK(IR_RECURRENT_LSTM, 5, 6, 256, .uneven = true, .way = IR_WAY_BACK, .states = true);
    CHECK(IR_RECURRENT_LSTM, 5, 4, 256, .computed = true);
}

static enum status keep(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    *(struct tactic *)user = *tactic;
    return STATUS_OK;
}

static void test_wrong_lengths_are_refused(void **state UNUSED)
{
    const struct layer l = {.cell = IR_RECURRENT_RNN, 3, 2, 4, .uneven = true, .computed = true};
    struct ir_graph *g = graph_of(&l);
    struct tactic tactic;
    struct native_op *op = NULL;
    struct error err = {0};
    void *in[INPUTS] = {inputs[0], inputs[1], lengths}, *out[] = {got[0], got[1], got[2]};
    assert_int_equal(native_candidates(1, g, ir_node(g, 0), keep, &tactic, &err), STATUS_OK);
    assert_int_equal(native_op_prepare(1, g, ir_node(g, 0), &tactic, &op, &err), STATUS_OK);
    lengths[0] = 3;
    lengths[1] = 4;
    assert_int_equal(native_op_launch(op, in, out, workspace, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "'layer': sequence 1 has 4 steps"));
    native_op_free(op);
    ir_graph_free(g);
}

/* Tactics come from files: a matrix of another size would be read beyond its end. */
static void damaged_tactics_are_refused(void **state UNUSED)
{
    const struct layer l = {.cell = IR_RECURRENT_LSTM, 3, 2, 4};
    struct ir_graph *g = graph_of(&l);
    const struct ir_node *node = ir_node(g, 0);
    struct ir_tensor *matrix = ir_tensor(g, node->inputs[1]);
    struct tactic good, bad[4];
    struct native_op *op = NULL;
    struct error err = {0};
    assert_int_equal(native_candidates(1, g, node, keep, &good, &err), STATUS_OK);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        bad[i] = good;
    bad[0].in[1].packed_bytes -= 64;
    bad[1].in[1] = (struct tactic_port){.packed_bytes = 0};
    tactic_port_pack(&bad[2].in[0], 64);
    bad[3].n_out = 2;
    assert_int_equal(native_op_prepare(1, g, node, &good, &op, &err), STATUS_INVALID_ARGUMENT);
    assert_int_equal(native_pack(g, node, &bad[0], 1, packed, &err), STATUS_INVALID_ARGUMENT);
    assert_int_equal(native_pack(g, node, &good, 0, packed, &err), STATUS_INVALID_ARGUMENT);
    pack(g, &good);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(native_op_prepare(1, g, node, &bad[i], &op, &err),
                         STATUS_INVALID_ARGUMENT);
    matrix->bytes -= 64;
    assert_int_equal(native_op_prepare(1, g, node, &good, &op, &err), STATUS_INVALID_ARGUMENT);
    matrix->bytes += 64;
    assert_int_equal(native_op_prepare(1, g, node, &good, &op, &err), STATUS_OK);
    native_op_free(op);
    ir_graph_free(g);
}

static int setup(void **state UNUSED)
{
    for (uint32_t i = 0; i < INPUTS; i++)
        fill_random(inputs[i], ROOM, i + 1);
    for (size_t k = 0; k < ROOM; k++)
        inputs[1][k] *= 0.3F;
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cells),
        cmocka_unit_test(test_lengths),
        cmocka_unit_test(test_both_ways),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_panels),
        cmocka_unit_test(test_wrong_lengths_are_refused),
        cmocka_unit_test(damaged_tactics_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
