/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges of tensors that come from QUANTIZE and DEQUANTIZE: where they go, and where not. */
#include <string.h>

#include "base/compiler.h"
#include "engine/cpu/eval.h"
#include "engine/passes/pass.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"

static uint32_t tensor(const struct ir_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_tensors; i++)
        if (strcmp(ir_tensor(g, i)->name, name) == 0)
            return i;
    fail_msg("no tensor %s", name);
    return IR_NONE;
}

static const struct ir_scale *range(const struct ir_graph *g, const char *name)
{
    return ir_scale(g, ir_tensor(g, tensor(g, name))->range);
}

static void has_range(const struct ir_graph *g, const char *name, float step, enum dtype dtype)
{
    const struct ir_scale *r = range(g, name);
    if (!r || r->n != 1 || r->step[0] != step || r->dtype != dtype)
        fail_msg("%s does not have the range %g of %s", name, (double)step, dtype_name(dtype));
}

static void has_none(const struct ir_graph *g, const char *name)
{
    if (range(g, name))
        fail_msg("%s has the range %g", name, (double)range(g, name)->step[0]);
}

static struct ir_graph *ranged(const char *text)
{
    struct ir_graph *g = graph_parse(text);
    assert_int_equal(passes_ranges(g, NULL), STATUS_OK);
    assert_int_equal(ir_verify(g, NULL), STATUS_OK);
    return g;
}

static struct ir_graph *optimised(const char *text)
{
    struct ir_graph *g = graph_parse(text);
    struct pass_context ctx = {.evaluator = {cpu_eval_node, NULL}};
    struct error err;
    if (passes_run(g, &ctx, &err))
        fail_msg("%s", err.text);
    return g;
}

static void ranges_lead_to_what_a_quantise_alone_reads(void **state UNUSED)
{
    struct ir_graph *g = ranged("input x FP32[1,2,4,4]\n"
                                "a = unary \"a\" (x) func=tanh\n"
                                "m = pool \"m\" (a) func=0 kernel=2,2 strides=2,2\n"
                                "r = reshape \"r\" (m) shape=1,8\n"
                                "y = quantise \"y\" (r, s FP32[]=0.5, z UINT8[]=9) to=2\n"
                                "output y\n");
    has_range(g, "r", 0.5F, DTYPE_U8);
    has_range(g, "m", 0.5F, DTYPE_U8);
    has_range(g, "a", 0.5F, DTYPE_U8);
    assert_int_equal(range(g, "a")->zero[0], 9);
    has_none(g, "x");
    has_none(g, "y");
    ir_graph_free(g);
}

static void other_readers_keep_floats(void **state UNUSED)
{
    struct ir_graph *g = ranged("input x FP32[2,4]\n"
                                "a = unary \"a\" (x) func=tanh\n"
                                "b = unary \"b\" (x) func=exp\n"
                                "y = quantise \"y\" (a, s FP32[]=0.5) to=2\n"
                                "z = quantise \"z\" (b, s) to=2\n"
                                "v = unary \"v\" (a) func=exp\n"
                                "output y\noutput z\noutput v\noutput b\n");
    has_none(g, "a"); /* two readers */
    has_none(g, "b"); /* an output of the graph */
    ir_graph_free(g);
}

static void ranges_follow_what_is_moved(void **state UNUSED)
{
    struct ir_graph *g = ranged("input q INT8[1,2,4,4]\n"
                                "x = dequantise \"x\" (q, s FP32[]=0.25, z INT8[]=3) to=12\n"
                                "r = unary \"r\" (x) func=relu\n"
                                "p = pad \"p\" (r) pads=0,0,1,1,0,0,1,1 mode=0\n"
                                "o = pad \"o\" (r) pads=0,0,1,1,0,0,1,1 mode=0 value=0.3\n"
                                "m = pool \"m\" (p) func=0 kernel=3,3 pads=1,1,1,1\n"
                                "e = pool \"e\" (p) func=0 kernel=2,2 pads=2,2,2,2\n"
                                "t = transpose \"t\" (m) perm=0,2,3,1\n"
                                "a = pool \"a\" (x) func=1 kernel=2,2\n"
                                "c = concat \"c\" (x, r) axis=1\n"
                                "u = unary \"u\" (t) func=tanh\n"
                                "output u\noutput e\noutput o\noutput a\noutput c\n");
    static const char *const with[] = {"x", "r", "p", "m", "t", "c"};
    static const char *const without[] = {"o", "e", "a", "u"};
    for (size_t i = 0; i < ARRAY_LEN(with); i++)
        has_range(g, with[i], 0.25F, DTYPE_I8);
    for (size_t i = 0; i < ARRAY_LEN(without); i++)
        has_none(g, without[i]);
    ir_graph_free(g);
}

static void parts_of_several_scales_have_none(void **state UNUSED)
{
    struct ir_graph *g = ranged("input p UINT8[2,3]\n"
                                "input q INT8[2,3]\n"
                                "a = dequantise \"a\" (p, s FP32[]=0.5) to=12\n"
                                "b = dequantise \"b\" (p, t FP32[]=0.25) to=12\n"
                                "d = dequantise \"d\" (q, s) to=12\n"
                                "c = concat \"c\" (a, b) axis=0\n"
                                "e = concat \"e\" (a, d) axis=0\n"
                                "f = concat \"f\" (a, a) axis=0\n"
                                "output c\noutput e\noutput f\n");
    has_none(g, "c");
    has_none(g, "e"); /* another type */
    has_range(g, "f", 0.5F, DTYPE_U8);
    ir_graph_free(g);
}

static void scales_that_are_computed_give_none(void **state UNUSED)
{
    struct ir_graph *g = ranged("input x FP32[2,3]\n"
                                "input s FP32[]\n"
                                "a = unary \"a\" (x) func=tanh\n"
                                "q = quantise \"q\" (a, s) to=2\n"
                                "y = dequantise \"y\" (q, s) to=12\n"
                                "w = unary \"w\" (x) func=exp\n"
                                "v = quantise \"v\" (w, k FP32[]=0.5) to=7\n"
                                "output y\noutput v\n");
    has_none(g, "a");
    has_none(g, "y");
    has_none(g, "w"); /* 16 bits */
    ir_graph_free(g);
}

/* 360,000 weights, which take four times the bytes; UINT8 becomes INT8. */
static void weights_of_any_size_are_dequantised(void **state UNUSED)
{
    struct ir_graph *g =
        optimised("input x FP32[2,600]\n"
                  "v = dequantise \"v\" (w UINT8[600,600], s FP32[]=0.5, z UINT8[]=120) to=12\n"
                  "y = matmul \"y\" (x, v)\n"
                  "output y\n");
    assert_int_equal(g->n_nodes, 1);
    uint32_t w = ir_node(g, 0)->inputs[1];
    assert_true(ir_tensor_is_constant(ir_tensor(g, w)));
    const struct ir_scale *r = ir_scale(g, ir_tensor(g, w)->range);
    assert_non_null(r);
    assert_int_equal(r->dtype, DTYPE_I8);
    assert_int_equal(r->zero[0], -8);
    assert_true(r->step[0] == 0.5F);
    ir_graph_free(g);
}

/* The scale of each column becomes that of each row, and a factor goes into it. */
static void scales_of_weights_follow_them(void **state UNUSED)
{
    struct ir_graph *g =
        optimised("input x FP32[2,4]\n"
                  "v = dequantise \"v\" (w INT8[4,8], s FP32[8]=0.5) to=12 axis=1\n"
                  "t = transpose \"t\" (v) perm=1,0\n"
                  "m = matmul \"m\" (x, t) trans_b=1\n"
                  "y = unary \"y\" (m) func=linear alpha=3.0 beta=1.0\n"
                  "output y\n");
    const struct ir_node *n = ir_node(g, 0);
    assert_int_equal(n->op, IR_OP_MATMUL);
    const struct ir_tensor *w = ir_tensor(g, n->inputs[1]);
    const struct ir_scale *r = ir_scale(g, w->range);
    assert_non_null(r);
    assert_int_equal(r->n, 8);
    assert_int_equal(w->shape.dim[r->axis], 8);
    assert_true(r->step[5] == 1.5F);
    assert_true(ir_format_fits(g, w, (struct ir_format){IR_LAYOUT_PLAIN, DTYPE_I8, w->range}));
    assert_false(ir_format_fits(g, w, (struct ir_format){IR_LAYOUT_PLAIN, DTYPE_U8, w->range}));
    ir_graph_free(g);
}

/* What is stored by the scale by which it is quantised is its integers already. */
static void quantising_stored_bytes_renames_them(void **state UNUSED)
{
    struct ir_graph *g = ranged("input x FP32[1,2,4,4]\n"
                                "a = unary \"a\" (x) func=tanh\n"
                                "q = quantise \"q\" (a, s FP32[]=0.5, z INT8[]=3) to=6\n"
                                "b = dequantise \"b\" (q, s, z) to=12\n"
                                "c = dequantise \"c\" (q, t FP32[]=0.25, z) to=12\n"
                                "y = binary \"y\" (b, c) func=add\n"
                                "output y\n");
    const struct ir_node *q = ir_node(g, 1), *b = ir_node(g, 2);
    uint32_t own = ir_tensor(g, tensor(g, "a"))->range, other = ir_tensor(g, tensor(g, "c"))->range;
    struct ir_format bytes = {IR_LAYOUT_PLAIN, DTYPE_I8, IR_NO_SCALE}, stored = bytes,
                     wrong = bytes;
    stored.scale = own;
    wrong.scale = other;
    assert_true(ir_node_renames(g, q, stored, bytes));
    assert_true(ir_node_renames(g, b, bytes, stored));
    assert_false(ir_node_renames(g, q, wrong, bytes));
    assert_false(ir_node_renames(g, b, bytes, wrong));
    assert_false(ir_node_renames(g, q, bytes, bytes));
    assert_true(ir_node_keeps_range(g, q) && ir_node_keeps_range(g, b));
    stored.layout = IR_LAYOUT_CHANNELS_LAST;
    assert_false(ir_node_renames(g, q, stored, bytes));
    bytes.layout = IR_LAYOUT_CHANNELS_LAST;
    assert_true(ir_node_renames(g, q, stored, bytes));
    ir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_lead_to_what_a_quantise_alone_reads),
        cmocka_unit_test(other_readers_keep_floats),
        cmocka_unit_test(ranges_follow_what_is_moved),
        cmocka_unit_test(parts_of_several_scales_have_none),
        cmocka_unit_test(scales_that_are_computed_give_none),
        cmocka_unit_test(weights_of_any_size_are_dequantised),
        cmocka_unit_test(scales_of_weights_follow_them),
        cmocka_unit_test(quantising_stored_bytes_renames_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
