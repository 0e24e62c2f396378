/* SPDX-License-Identifier: Apache-2.0 */
/* Native attention as a node: all arrangements of operands give what the reference gives, on one
 * thread and on several. */
#include <stdlib.h>
#include <string.h>

#include "engine/cpu/eval.h"
#include "engine/cpu/native.h"
#include "engine/ir/op.h"
#include "tests/unit/cpu/views.h"

enum { THREADS = 3, BATCH = 4, INPUTS = 5 };

struct form {
    int heads, kv_heads, queries, keys, dim, out_dim;
    bool q4, k4, v4; /* heads first */
    bool packed, causal, spans;
    enum dtype mask;
    uint32_t mask_rank;
    uint32_t mask_ones; /* bit d: dim d of the mask is 1 */
    bool mask_half;     /* it has half the batches, and repeats */
};

static struct shape operand(int heads, int rows, int dim, bool first)
{
    struct shape rank3 = {.rank = 3, .dim = {BATCH, rows, (int64_t)heads * dim}};
    struct shape rank4 = {.rank = 4, .dim = {BATCH, heads, rows, dim}};
    return first ? rank4 : rank3;
}

static struct shape mask_of(const struct form *f)
{
    const int64_t full[4] = {f->mask_half ? BATCH / 2 : BATCH, f->heads, f->queries, f->keys};
    struct shape s = {.rank = f->mask_rank};
    for (uint32_t d = 0; d < s.rank; d++) {
        uint32_t of = 4 - s.rank + d;
        s.dim[d] = f->mask_ones >> of & 1 ? 1 : full[of];
    }
    return s;
}

static struct ir_graph *graph_of(const struct form *f)
{
    struct ir_graph *g = ir_graph_new();
    int kv = f->kv_heads ? f->kv_heads : f->heads;
    uint32_t in[INPUTS] = {IR_NONE, IR_NONE, IR_NONE, IR_NONE, IR_NONE};
    const struct shape spans = {.rank = 3, .dim = {BATCH, f->queries, 2}};
    struct shape q = operand(f->packed ? f->heads + 2 * kv : f->heads, f->queries, f->dim, f->q4);
    struct shape k = operand(kv, f->keys, f->dim, f->k4);
    struct shape v = operand(kv, f->keys, f->out_dim, f->v4), mask = mask_of(f);
    in[0] = ir_tensor_add(g, "q", DTYPE_F32, &q);
    if (!f->packed) {
        in[1] = ir_tensor_add(g, "k", DTYPE_F32, &k);
        in[2] = ir_tensor_add(g, "v", DTYPE_F32, &v);
    }
    if (f->mask != DTYPE_NONE)
        in[3] = ir_tensor_add(g, "mask", f->mask, &mask);
    if (f->spans)
        in[4] = ir_tensor_add(g, "spans", DTYPE_I32, &spans);
    assert_int_equal(ir_node_add(g, IR_OP_ATTENTION, "node", INPUTS, in), 0);
    assert_true(ir_attr_set_int(g, 0, IR_ATTR_HEADS, f->heads));
    assert_true(ir_attr_set_int(g, 0, IR_ATTR_KV_HEADS, f->kv_heads));
    assert_true(ir_attr_set_int(g, 0, IR_ATTR_PACKED, f->packed));
    assert_true(ir_attr_set_int(g, 0, IR_ATTR_CAUSAL, f->causal));
    assert_true(ir_attr_set_float(g, 0, IR_ATTR_ALPHA, 0.4F));
    return g;
}

/* Spans of sequences of some rows; now and then one is empty, or goes beyond the rows. */
static void fill_spans(int32_t *out, size_t n)
{
    int32_t rows = (int32_t)(n / 2), first = 0;
    for (int32_t i = 0, length = 1; i < rows; i++) {
        if (i == first + length) {
            first = i;
            length = 1 + length * 7 % 40;
        }
        out[2 * i] = i % 11 == 3 ? -5 : first;
        out[2 * i + 1] = i % 13 == 5 ? rows + 9 : i % 17 == 2 ? first : first + length;
    }
}

/* Random numbers, or BOOL of which most are true; NULL if the input is absent. */
static void *make_input(const struct ir_graph *g, uint32_t input)
{
    uint32_t id = ir_node(g, 0)->inputs[input];
    size_t n = 0;
    if (id == IR_NONE)
        return NULL;
    const struct ir_tensor *t = ir_tensor(g, id);
    assert_true(shape_elements(&t->shape, &n));
    float *out = malloc(n * sizeof(*out));
    uint8_t *bools = (uint8_t *)out;
    fill_random(out, n, input + 1);
    for (size_t i = 0; i < n && t->dtype == DTYPE_BOOL; i++)
        bools[i] = out[i] > -0.4F;
    if (t->dtype == DTYPE_I32)
        fill_spans((int32_t *)(void *)out, n);
    return out;
}

struct visits {
    const struct ir_graph *graph;
    void **in;
    float *want, *got;
    size_t elements;
    uint32_t n;
};

static enum status run_one(void *user, const struct tactic *tactic, struct error *err)
{
    struct visits *v = user;
    struct native_op *op = NULL;
    if (native_op_prepare(THREADS, v->graph, ir_node(v->graph, 0), tactic, &op, err))
        fail_msg("%s: %s", tactic->name, err->text);
    size_t bytes = (native_op_workspace(op) + 63) / 64 * 64;
    void *workspace = aligned_alloc(64, bytes), *out[1] = {v->got};
    memset(workspace, 0xff, bytes);
    for (int again = 0; again < 2; again++) {
        memset(v->got, 0xff, v->elements * sizeof(float));
        assert_int_equal(native_op_launch(op, v->in, out, workspace, err), STATUS_OK);
        assert_floats(v->got, v->want, v->elements, 2e-6);
    }
    free(workspace);
    native_op_free(op);
    v->n++;
    return STATUS_OK;
}

/* Returns the number of native candidates. */
static uint32_t check(const struct form *f)
{
    struct error err = {0};
    const char *name = "y";
    struct ir_graph *g = graph_of(f);
    if (ir_infer_apply(g, 0, &name, 1, &err))
        fail_msg("%s", err.text);
    const struct ir_node *node = ir_node(g, 0);
    void *in[INPUTS];
    for (uint32_t i = 0; i < INPUTS; i++)
        in[i] = make_input(g, i);
    struct visits v = {.graph = g, .in = in};
    assert_true(shape_elements(&ir_tensor(g, node->outputs[0])->shape, &v.elements));
    v.want = malloc(v.elements * sizeof(float));
    v.got = malloc(v.elements * sizeof(float));
    void *out[1] = {v.want};
    assert_int_equal(cpu_eval_node(NULL, g, node, (const void *const *)in, out, &err), STATUS_OK);
    assert_int_equal(native_candidates(THREADS, g, node, run_one, &v, &err), STATUS_OK);
    for (uint32_t i = 0; i < INPUTS; i++)
        free(in[i]);
    free(v.want);
    free(v.got);
    ir_graph_free(g);
    return v.n;
}

static void test_arrangements(void **state UNUSED)
{
    for (unsigned ranks = 0; ranks < 8; ranks++) {
        struct form f = {.heads = 4, .queries = 70, .keys = 30, .dim = 8, .out_dim = 12};
        f.q4 = ranks & 1;
        f.k4 = ranks & 2;
        f.v4 = ranks & 4;
        assert_int_equal(check(&f), 2);
        f.kv_heads = 2; /* grouped */
        f.causal = true;
        assert_int_equal(check(&f), 2);
        f.kv_heads = 1;
        f.queries = 1; /* one step of a decoder */
        assert_int_equal(check(&f), 2);
    }
    struct form packed = {.heads = 6, .queries = 20, .keys = 20, .dim = 5, .out_dim = 5};
    packed.packed = true;
    assert_int_equal(check(&packed), 2);
    packed.kv_heads = 2;
    assert_int_equal(check(&packed), 2);
}

static void test_masks_broadcast(void **state UNUSED)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_BOOL};
    for (uint32_t type = 0; type < 2; type++)
        for (uint32_t ones = 0; ones < 16; ones++)
            for (uint32_t rank = 0; rank <= 4; rank += 2) {
                struct form f = {.heads = 4, .queries = 21, .keys = 70, .dim = 8, .out_dim = 8};
                f.mask = types[type];
                f.mask_rank = rank;
                f.mask_ones = ones;
                f.causal = ones & 1;
                assert_int_equal(check(&f), 2);
                f.mask_half = true;
                assert_int_equal(check(&f), 2);
                f.kv_heads = 2;
                f.queries = 1;
                assert_int_equal(check(&f), 2);
            }
}

static void test_spans(void **state UNUSED)
{
    static const int rows[] = {1, 3, 40, 70};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (int causal = 0; causal < 2; causal++) {
            struct form f = {.heads = 4, .queries = rows[i], .dim = 8, .out_dim = 8, .spans = true};
            f.keys = f.queries;
            f.causal = causal;
            assert_int_equal(check(&f), 2);
            f.packed = true;
            assert_int_equal(check(&f), 2);
            f.kv_heads = 2;
            assert_int_equal(check(&f), 2);
            f.packed = false;
            f.out_dim = 12;
            assert_int_equal(check(&f), 2);
        }
}

static void test_sizes_that_it_takes(void **state UNUSED)
{
    struct form f = {.heads = 2, .kv_heads = 1, .queries = 4, .keys = 9, .dim = 8, .out_dim = 8};
    assert_int_equal(check(&f), 2); /* a unit for each batch */
    f.dim = 1 << 15;                /* too long for the scratch */
    assert_int_equal(check(&f), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arrangements),
        cmocka_unit_test(test_masks_broadcast),
        cmocka_unit_test(test_spans),
        cmocka_unit_test(test_sizes_that_it_takes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
