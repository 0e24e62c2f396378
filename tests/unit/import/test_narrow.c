/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Constants of 4-bit integers and 8-bit floats in a model: which nodes may read them, and what they
 * become. test_tensor.c tests the unpacking itself.
 */
#include <math.h>
#include <stdlib.h>

#include "engine/cpu/eval.h"
#include "tests/test.h"
#include "tests/unit/import/wire.h"

enum { FLOAT = 1, BOOL = 9, FLOAT8 = 17, UINT4 = 21, INT4 = 22, OPSET = 21 };

static const int64_t four[] = {4};
/* 1, 2, 3, -1, low nibbles first; 1, 2, -1, 0.5 */
static const uint8_t nibbles[] = {0x21, 0xf3}, bytes[] = {0x38, 0x40, 0xb8, 0x30};
static const float two = 2;

static enum status import(const struct wire *graph, struct ir_graph **out, struct error *err)
{
    static struct wire model;
    struct onnx_model *opened = NULL;
    const struct onnx_options options = {.batch = 1, .evaluator = {.eval = cpu_eval_node}};
    wire_model(&model, graph, OPSET);
    *out = NULL;
    assert_int_equal(onnx_open_memory(model.data, model.n, &opened, err), STATUS_OK);
    enum status status = onnx_import(opened, &options, out, err);
    onnx_close(opened);
    return status;
}

/* The only node left is the identity of a constant. */
static void assert_gives(const struct wire *graph, const float want[4])
{
    struct ir_graph *made;
    struct error err;
    if (import(graph, &made, &err))
        fail_msg("%s", err.text);
    assert_int_equal(made->n_nodes, 1);
    const struct ir_tensor *t = ir_tensor(made, ir_node(made, 0)->inputs[0]);
    assert_true(ir_tensor_is_constant(t));
    assert_int_equal(t->dtype, DTYPE_F32);
    assert_int_equal(t->shape.dim[0], 4);
    for (int i = 0; i < 4; i++)
        if (((const float *)t->data)[i] != want[i])
            fail_msg("%d: %g, not %g", i, (double)((const float *)t->data)[i], (double)want[i]);
    ir_graph_free(made);
}

static void assert_refused(const struct wire *graph, enum status want, const char *part)
{
    struct ir_graph *made;
    struct error err = {.text = ""};
    enum status status = import(graph, &made, &err);
    ir_graph_free(made);
    if (status != want || !strstr(err.text, part))
        fail_msg("status %d '%s' does not say '%s'", (int)status, err.text, part);
}

/* y = op (w, s, z): w of that type, s = 2, z = 1 of the same type as w. */
static struct wire reads(const char *op, const char *inputs, int type, const void *raw, size_t n)
{
    static const uint8_t one = 1;
    struct wire g = {.n = 0}, attrs = {.n = 0};
    wire_constant(&g, "w", type, 1, four, raw, n);
    wire_constant(&g, "s", FLOAT, 0, NULL, &two, sizeof(two));
    wire_constant(&g, "z", type, 0, NULL, &one, 1);
    wire_attr_int(&attrs, "to", FLOAT);
    wire_node(&g, op, inputs, "y", strcmp(op, "Cast") ? NULL : &attrs);
    wire_output(&g, "y");
    return g;
}

static void dequantize_linear_reads_four_bits(void **state)
{
    (void)state;
    static const float plain[] = {2, 4, 6, -2}, shifted[] = {0, 2, 4, -4},
                       without[] = {2, 4, 6, 30};
    struct wire g = reads("DequantizeLinear", "w s", INT4, nibbles, sizeof(nibbles));
    assert_gives(&g, plain);
    g = reads("DequantizeLinear", "w s z", INT4, nibbles, sizeof(nibbles));
    assert_gives(&g, shifted);
    g = reads("DequantizeLinear", "w s", UINT4, nibbles, sizeof(nibbles));
    assert_gives(&g, without);
}

static void four_bits_in_blocks_have_scales_of_any_sign(void **state)
{
    (void)state;
    static const float scales[][2] = {{-0.5f, 0}, {-0.5f, INFINITY}}, want[] = {-0.5f, -1, 0, 0};
    const int64_t two_blocks[] = {2};
    for (int i = 0; i < 2; i++) {
        struct wire g = {.n = 0}, attrs = {.n = 0};
        wire_constant(&g, "w", INT4, 1, four, nibbles, sizeof(nibbles));
        wire_constant(&g, "s", FLOAT, 1, two_blocks, scales[i], sizeof(scales[i]));
        wire_attr_int(&attrs, "axis", 0);
        wire_attr_int(&attrs, "block_size", 2);
        wire_node(&g, "DequantizeLinear", "w s", "y", &attrs);
        wire_output(&g, "y");
        if (i)
            assert_refused(&g, STATUS_INVALID_ARGUMENT, "its scale is inf, expected a number");
        else
            assert_gives(&g, want);
    }
}

static void cast_reads_eight_bit_floats(void **state)
{
    (void)state;
    static const float want[] = {1, 2, -1, 0.5f};
    struct wire g = reads("Cast", "w", FLOAT8, bytes, sizeof(bytes));
    assert_gives(&g, want);
}

/* y = op (c, s), c from a Constant. */
static struct wire constant_node(const char *op, const char *inputs)
{
    struct wire g = {.n = 0}, tensor = {.n = 0}, attr = {.n = 0}, attrs = {.n = 0};
    wire_tensor(&tensor, "", INT4, 1, four, nibbles, sizeof(nibbles));
    wire_text(&attr, 1, "value");
    wire_message(&attr, 5, &tensor);
    wire_int(&attr, 20, 4);
    wire_message(&attrs, 5, &attr);
    wire_constant(&g, "s", FLOAT, 0, NULL, &two, sizeof(two));
    wire_node(&g, "Constant", "", "c", &attrs);
    wire_node(&g, op, inputs, "y", NULL);
    wire_output(&g, "y");
    return g;
}

static void constants_may_be_nodes(void **state)
{
    (void)state;
    static const float want[] = {2, 4, 6, -2};
    struct wire g = constant_node("DequantizeLinear", "c s");
    assert_gives(&g, want);
    g = constant_node("Neg", "c");
    assert_refused(&g, STATUS_UNIMPLEMENTED,
                   "input 0 is INT4, which only DequantizeLinear and Cast read");
}

/* The importer holds such constants in other types; a node that cannot read the packed type must
 * not read those either. */
static void nobody_else_reads_them(void **state)
{
    (void)state;
    struct wire g = reads("Add", "w w", INT4, nibbles, sizeof(nibbles));
    assert_refused(&g, STATUS_UNIMPLEMENTED, "input 0 is INT4");
    g = reads("Identity", "w", UINT4, nibbles, sizeof(nibbles));
    assert_refused(&g, STATUS_UNIMPLEMENTED, "input 0 is UINT4");
    g = reads("Relu", "w", FLOAT8, bytes, sizeof(bytes));
    assert_refused(&g, STATUS_UNIMPLEMENTED, "input 0 is FLOAT8E4M3FN");
    g = reads("Mul", "s w", FLOAT8, bytes, sizeof(bytes));
    assert_refused(&g, STATUS_UNIMPLEMENTED, "input 1 is FLOAT8E4M3FN");
}

static void inputs_and_branches_have_none(void **state)
{
    (void)state;
    static const uint8_t yes = 1;
    struct wire g = {.n = 0}, branch = {.n = 0}, attrs = {.n = 0};
    wire_input(&g, "x", INT4, 1, four);
    wire_node(&g, "Cast", "x", "y", NULL);
    wire_output(&g, "y");
    assert_refused(&g, STATUS_UNIMPLEMENTED, "input 'x' has element type INT4 (22)");
    wire_constant(&branch, "w", INT4, 1, four, nibbles, sizeof(nibbles));
    wire_node(&branch, "DequantizeLinear", "w s", "o", NULL);
    wire_output(&branch, "o");
    for (int i = 0; i < 2; i++) {
        struct wire attr = {.n = 0};
        wire_text(&attr, 1, i ? "else_branch" : "then_branch");
        wire_message(&attr, 6, &branch);
        wire_int(&attr, 20, 5);
        wire_message(&attrs, 5, &attr);
    }
    g.n = 0;
    wire_constant(&g, "t", BOOL, 0, NULL, &yes, 1);
    wire_constant(&g, "s", FLOAT, 0, NULL, &two, sizeof(two));
    wire_node(&g, "If", "t", "y", &attrs);
    wire_output(&g, "y");
    assert_refused(&g, STATUS_UNIMPLEMENTED, "element type INT4 (22)");
}

static void their_size_must_be_that_of_the_shape(void **state)
{
    (void)state;
    struct wire g = reads("DequantizeLinear", "w s", INT4, nibbles, 1);
    assert_refused(&g, STATUS_INVALID_ARGUMENT, "'w'");
    g = reads("Cast", "w", FLOAT8, bytes, 3);
    assert_refused(&g, STATUS_INVALID_ARGUMENT, "'w'");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dequantize_linear_reads_four_bits),
        cmocka_unit_test(four_bits_in_blocks_have_scales_of_any_sign),
        cmocka_unit_test(cast_reads_eight_bit_floats),
        cmocka_unit_test(constants_may_be_nodes),
        cmocka_unit_test(nobody_else_reads_them),
        cmocka_unit_test(inputs_and_branches_have_none),
        cmocka_unit_test(their_size_must_be_that_of_the_shape),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
