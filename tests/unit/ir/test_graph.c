/* SPDX-License-Identifier: Apache-2.0 */
/* Building, editing and compacting graphs, and their text form. */
#include <stdlib.h>
#include <string.h>

#include "engine/ir/ir.h"
#include "kernels/cpu/ref.h"
#include "tests/test.h"

static const float zeros[1024];

static struct shape shape_of(uint32_t rank, const int64_t *dims)
{
    struct shape s = {.rank = rank};
    memcpy(s.dim, dims, rank * sizeof(*dims));
    return s;
}

#define SHAPE(...)                                                                                 \
    shape_of(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), (int64_t[]){__VA_ARGS__})

static uint32_t input(struct ir_graph *g, const char *name, struct shape shape)
{
    uint32_t id = ir_tensor_add(g, name, DTYPE_F32, &shape);
    assert_int_not_equal(id, IR_NONE);
    g->inputs[g->n_inputs++] = id;
    return id;
}

static uint32_t constant(struct ir_graph *g, const char *name, struct shape shape)
{
    uint32_t id = ir_constant_add(g, name, DTYPE_F32, &shape, zeros);
    assert_int_not_equal(id, IR_NONE);
    return id;
}

static uint32_t apply(struct ir_graph *g, uint32_t node, const char *name)
{
    struct error err = {0};
    enum status status = ir_infer_apply(g, node, &name, 1, &err);
    if (status != STATUS_OK)
        fail_msg("%s", err.text);
    return ir_node(g, node)->outputs[0];
}

static uint32_t unary(struct ir_graph *g, enum ir_unary func, const char *name, uint32_t x)
{
    uint32_t node = ir_node_add(g, IR_OP_UNARY, name, 1, &x);
    assert_true(ir_attr_set_int(g, node, IR_ATTR_FUNC, func));
    return apply(g, node, name);
}

/* x -> conv -> relu -> y */
static struct ir_graph *sample(void)
{
    struct ir_graph *g = ir_graph_new();
    uint32_t x = input(g, "x", SHAPE(1, 3, 8, 8));
    uint32_t in[] = {x, constant(g, "w", SHAPE(4, 3, 3, 3)), IR_NONE};
    uint32_t conv = ir_node_add(g, IR_OP_CONV, "conv1", 3, in);
    assert_true(ir_attr_set_ints(g, conv, IR_ATTR_PADS, 4, (int64_t[]){1, 1, 1, 1}));
    uint32_t c = apply(g, conv, "c");
    g->outputs[g->n_outputs++] = unary(g, IR_UNARY_RELU, "y", c);
    return g;
}

static void verify_ok(const struct ir_graph *g)
{
    struct error err = {0};
    if (ir_verify(g, &err) != STATUS_OK)
        fail_msg("%s", err.text);
}

static void check_text(const struct ir_graph *g, const char *want)
{
    char *text = ir_graph_text(g);
    assert_non_null(text);
    assert_string_equal(text, want);
    free(text);
}

static void graph_is_built_and_printed(void **state)
{
    (void)state;
    struct ir_graph *g = sample();
    verify_ok(g);
    check_text(g, "input x FP32[1,3,8,8]\n"
                  "c FP32[1,4,8,8] = conv \"conv1\" (x, w FP32[4,3,3,3], -) pads=1,1,1,1\n"
                  "y FP32[1,4,8,8] = unary \"y\" (c) func=relu\n"
                  "output y\n");
    ir_graph_free(g);
}

static void epilogue_operands_follow_own_inputs(void **state)
{
    (void)state;
    struct ir_graph *g = sample();
    uint32_t r = input(g, "r", SHAPE(1, 4, 8, 8));
    assert_int_equal(ir_node_own_inputs(ir_node(g, 0)), 3);
    assert_true(ir_epilogue_add(
        g, 0, (struct ir_epilogue){.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_ADD}, r));
    assert_true(ir_epilogue_add(
        g, 0, (struct ir_epilogue){.func = IR_UNARY_CLIP, .alpha = 0, .beta = 6}, IR_NONE));
    assert_int_equal(ir_node_own_inputs(ir_node(g, 0)), 3);
    assert_int_equal(ir_node(g, 0)->n_inputs, 4);
    verify_ok(g);
    check_text(g, "input x FP32[1,3,8,8]\n"
                  "input r FP32[1,4,8,8]\n"
                  "c FP32[1,4,8,8] = conv \"conv1\" (x, w FP32[4,3,3,3], -) pads=1,1,1,1 then "
                  "add(r), clip(0,6,0)\n"
                  "y FP32[1,4,8,8] = unary \"y\" (c) func=relu\n"
                  "output y\n");
    for (int i = 2; i < IR_MAX_EPILOGUE; i++)
        assert_true(ir_epilogue_add(g, 0, (struct ir_epilogue){.func = IR_UNARY_RELU}, IR_NONE));
    assert_false(ir_epilogue_add(g, 0, (struct ir_epilogue){.func = IR_UNARY_RELU}, IR_NONE));
    ir_graph_free(g);
}

static void uses_and_sole_reader(void **state)
{
    (void)state;
    struct ir_graph *g = sample();
    uint32_t x = g->inputs[0], c = ir_node(g, 0)->outputs[0], y = g->outputs[0];
    assert_int_equal(ir_tensor_uses(g, x), 1);
    assert_int_equal(ir_tensor_uses(g, y), 1);
    assert_int_equal(ir_tensor_sole_reader(g, c), 1);
    assert_int_equal(ir_tensor_sole_reader(g, y), IR_NONE);
    uint32_t t = unary(g, IR_UNARY_TANH, "t", c);
    assert_int_equal(ir_tensor_uses(g, t), 0);
    assert_int_equal(ir_tensor_sole_reader(g, c), IR_NONE);
    ir_replace_uses(g, c, x);
    assert_int_equal(ir_tensor_uses(g, c), 0);
    assert_int_equal(ir_tensor_uses(g, x), 3);
    ir_replace_uses(g, y, t);
    assert_true(ir_tensor_is_output(g, t));
    assert_false(ir_tensor_is_output(g, y));
    ir_graph_free(g);
}

static void compact_drops_what_is_removed(void **state)
{
    (void)state;
    struct ir_graph *g = sample();
    uint32_t c = ir_node(g, 0)->outputs[0], y = g->outputs[0];
    ir_node_remove(g, 1);
    assert_int_equal(ir_tensor(g, y)->producer, IR_NONE);
    ir_node_set_output(g, 0, 0, y);
    assert_int_equal(ir_tensor(g, c)->producer, IR_NONE);
    assert_int_equal(ir_graph_compact(g, NULL), STATUS_OK);
    verify_ok(g);
    assert_int_equal(g->n_nodes, 1);
    assert_int_equal(g->n_tensors, 3);
    check_text(g, "input x FP32[1,3,8,8]\n"
                  "y FP32[1,4,8,8] = conv \"conv1\" (x, w FP32[4,3,3,3], -) pads=1,1,1,1\n"
                  "output y\n");
    ir_graph_free(g);
}

static void compact_restores_the_order(void **state)
{
    (void)state;
    struct ir_graph *g = ir_graph_new();
    uint32_t x = input(g, "x", SHAPE(2));
    uint32_t a = unary(g, IR_UNARY_RELU, "a", x);
    uint32_t b = unary(g, IR_UNARY_TANH, "b", a);
    uint32_t late = unary(g, IR_UNARY_ABS, "late", x);
    ir_node(g, 0)->inputs[0] = late; /* now x -> late -> a -> b, in the wrong order */
    g->outputs[g->n_outputs++] = b;
    assert_int_not_equal(ir_verify(g, NULL), STATUS_OK);
    assert_int_equal(ir_graph_compact(g, NULL), STATUS_OK);
    verify_ok(g);
    check_text(g, "input x FP32[2]\n"
                  "late FP32[2] = unary \"late\" (x) func=abs\n"
                  "a FP32[2] = unary \"a\" (late) func=relu\n"
                  "b FP32[2] = unary \"b\" (a) func=tanh\n"
                  "output b\n");
    ir_graph_free(g);
}

static void compact_refuses_a_cycle(void **state)
{
    (void)state;
    struct ir_graph *g = ir_graph_new();
    struct error err = {0};
    uint32_t x = input(g, "x", SHAPE(2));
    uint32_t a = unary(g, IR_UNARY_RELU, "a", x);
    uint32_t b = unary(g, IR_UNARY_TANH, "b", a);
    g->outputs[g->n_outputs++] = b;
    ir_node(g, 0)->inputs[0] = b;
    assert_int_equal(ir_graph_compact(g, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "cycle"));
    ir_graph_free(g);
}

/* A chain as long as the limit, written backwards, costs linear time and no stack. */
static void compact_is_linear(void **state)
{
    (void)state;
    struct ir_graph *g = ir_graph_new();
    struct shape one = SHAPE(1);
    uint32_t x = input(g, "x", one), first = x;
    for (uint32_t i = 0; i < IR_MAX_NODES; i++) {
        uint32_t node = ir_node_add(g, IR_OP_UNARY, "", 1, &x);
        assert_int_not_equal(node, IR_NONE);
        assert_true(ir_attr_set_int(g, node, IR_ATTR_FUNC, IR_UNARY_RELU));
        assert_int_not_equal(ir_node_output_add(g, node, "", DTYPE_F32, &one), IR_NONE);
    }
    assert_int_equal(ir_node_add(g, IR_OP_UNARY, "", 1, &x), IR_NONE);
    for (uint32_t i = 0; i + 1 < g->n_nodes; i++)
        ir_node(g, i)->inputs[0] = ir_node(g, i + 1)->outputs[0];
    ir_node(g, g->n_nodes - 1)->inputs[0] = first;
    g->outputs[g->n_outputs++] = ir_node(g, 0)->outputs[0];
    assert_int_equal(ir_graph_compact(g, NULL), STATUS_OK);
    verify_ok(g);
    ir_graph_free(g);
}

static void attributes_are_replaced_not_repeated(void **state)
{
    (void)state;
    struct ir_graph *g = sample();
    assert_true(ir_attr_set_float(g, 1, IR_ATTR_ALPHA, 2.5f));
    assert_true(ir_attr_set_float(g, 1, IR_ATTR_ALPHA, 3.5f));
    assert_int_equal(ir_node(g, 1)->n_attrs, 2);
    assert_float_equal(ir_attr_float(ir_node(g, 1), IR_ATTR_ALPHA), 3.5f, 0);
    assert_float_equal(ir_attr_float(ir_node(g, 1), IR_ATTR_BETA), 0, 0);
    assert_int_equal(ir_attr_at(ir_node(g, 0), IR_ATTR_PADS, 3), 1);
    assert_int_equal(ir_attr_at(ir_node(g, 0), IR_ATTR_PADS, 4), 0);
    assert_int_equal(ir_attr_at(ir_node(g, 0), IR_ATTR_STRIDES, 4), 1); /* as the op's row says */
    assert_int_equal(ir_attr_int(ir_node(g, 1), IR_ATTR_ALPHA), 0);     /* ALPHA is a float */
    ir_graph_free(g);
}

static void limits_are_kept(void **state)
{
    (void)state;
    struct ir_graph *g = ir_graph_new();
    struct shape huge = SHAPE(1 << 20, 1 << 20, 1 << 20), negative = SHAPE(2, -1);
    assert_int_equal(ir_tensor_add(g, "huge", DTYPE_F32, &huge), IR_NONE);
    assert_int_equal(ir_tensor_add(g, "negative", DTYPE_F32, &negative), IR_NONE);
    assert_int_equal(ir_tensor_add(g, "none", DTYPE_NONE, &(struct shape){0}), IR_NONE);
    struct shape empty = SHAPE(0);
    uint32_t id = ir_constant_add(g, "empty", DTYPE_F32, &empty, NULL);
    assert_int_not_equal(id, IR_NONE);
    assert_true(ir_tensor_is_constant(ir_tensor(g, id)));
    uint32_t many[IR_MAX_INPUTS + 1] = {0};
    assert_int_equal(ir_node_add(g, IR_OP_CONCAT, "c", IR_MAX_INPUTS + 1, many), IR_NONE);
    ir_graph_free(g);
}

static void count_release(void *object)
{
    ++*(int *)object;
}

static void held_objects_are_released_once(void **state)
{
    (void)state;
    int released = 0;
    struct ir_graph *g = ir_graph_new();
    assert_true(ir_graph_hold(g, &released, count_release));
    assert_int_equal(released, 0);
    ir_graph_free(g);
    assert_int_equal(released, 1);
    ir_graph_free(NULL);
}

static void layouts_have_sizes(void **state)
{
    (void)state;
    struct shape s = SHAPE(2, 3, 5, 5), vector = SHAPE(7);
    uint64_t bytes = 0;
    assert_true(ir_layout_bytes(&s, DTYPE_F32, IR_LAYOUT_PLAIN, &bytes));
    assert_int_equal(bytes, 2 * 3 * 25 * 4);
    assert_true(ir_layout_bytes(&s, DTYPE_F32, IR_LAYOUT_CHANNELS_LAST, &bytes));
    assert_int_equal(bytes, 2 * 3 * 25 * 4);
    assert_true(ir_layout_bytes(&s, DTYPE_F16, IR_LAYOUT_BLOCKED_8, &bytes));
    assert_int_equal(bytes, 2 * 8 * 25 * 2);
    assert_true(ir_layout_bytes(&s, DTYPE_F32, IR_LAYOUT_BLOCKED_16, &bytes));
    assert_int_equal(bytes, 2 * 16 * 25 * 4);
    assert_false(ir_layout_bytes(&vector, DTYPE_F32, IR_LAYOUT_BLOCKED_8, &bytes));
    assert_false(ir_layout_bytes(&s, DTYPE_F32, IR_LAYOUT_OPAQUE, &bytes));
    assert_false(ir_layout_bytes(&s, DTYPE_F32, (enum ir_layout)77, &bytes));
    assert_true(ir_layout_bytes(&s, DTYPE_F16, IR_LAYOUT_CHANNELS_LAST_4, &bytes));
    assert_int_equal(bytes, 2 * 4 * 25 * 2);
    assert_true(ir_layout_bytes(&s, DTYPE_F32, IR_LAYOUT_CHANNELS_LAST_8, &bytes));
    assert_int_equal(bytes, 2 * 8 * 25 * 4);
    assert_false(ir_layout_bytes(&vector, DTYPE_F32, IR_LAYOUT_CHANNELS_LAST_8, &bytes));
    assert_false(ir_layout_bytes(&s, DTYPE_F32, IR_LAYOUT_COUNT_, &bytes));
    assert_string_equal(ir_layout_name(IR_LAYOUT_BLOCKED_16), "nChw16c");
    assert_string_equal(ir_layout_name(IR_LAYOUT_CHANNELS_LAST_4), "nhwc4");
    assert_string_equal(ir_layout_name(IR_LAYOUT_CHANNELS_LAST_8), "nhwc8");
    assert_string_equal(ir_op_name((enum ir_op)999), "?");
}

/* Where two layouts are said to agree, the reference's conversion changes no byte. Where they are
 * said to differ, it does (the numbers are all different). */
static void layouts_agree_as_bytes_do(void **state)
{
    (void)state;
    const struct shape shapes[] = {
        SHAPE(2, 3, 5, 5), SHAPE(2, 8, 1, 1),  SHAPE(2, 3, 1, 1), SHAPE(2, 1, 4, 3),
        SHAPE(3, 16, 2),   SHAPE(1, 16, 1, 1), SHAPE(4, 24),      SHAPE(1, 8, 3, 1),
        SHAPE(7, 4),       SHAPE(2, 4, 2, 2),  SHAPE(1, 16, 3),   SHAPE(2, 5, 1, 1, 1),
    };
    uint16_t plain[512], a[2048], b[2048];
    for (int i = 0; i < 512; i++)
        plain[i] = (uint16_t)(i + 1);
    for (size_t k = 0; k < ARRAY_LEN(shapes); k++)
        for (int x = 0; x < IR_LAYOUT_COUNT_; x++)
            for (int y = 0; y < IR_LAYOUT_COUNT_; y++) {
                uint64_t size_a, size_b;
                if (!ir_layout_bytes(&shapes[k], DTYPE_U16, (enum ir_layout)x, &size_a) ||
                    !ir_layout_bytes(&shapes[k], DTYPE_U16, (enum ir_layout)y, &size_b))
                    continue;
                struct tensor_view p = {DTYPE_U16, shapes[k], plain}, to = p;
                to.data = a;
                ref_reformat(IR_LAYOUT_PLAIN, (enum ir_layout)x, &p, &to);
                to.data = b;
                ref_reformat(IR_LAYOUT_PLAIN, (enum ir_layout)y, &p, &to);
                bool same = size_a == size_b && !memcmp(a, b, size_a);
                if (same != ir_layouts_agree(&shapes[k], (enum ir_layout)x, (enum ir_layout)y))
                    fail_msg("shape %zu: %s and %s are %s", k, ir_layout_name((enum ir_layout)x),
                             ir_layout_name((enum ir_layout)y), same ? "the same" : "different");
            }
    struct shape vector = SHAPE(7);
    assert_true(ir_layouts_agree(&vector, IR_LAYOUT_PLAIN, IR_LAYOUT_PLAIN));
    assert_false(ir_layouts_agree(&vector, IR_LAYOUT_PLAIN, IR_LAYOUT_CHANNELS_LAST));
    assert_false(ir_layouts_agree(&shapes[1], IR_LAYOUT_PLAIN, IR_LAYOUT_OPAQUE));
}

/* A number appended to an enum without a name would be printed as "?". */
static void every_number_has_a_name(void **state)
{
    (void)state;
    for (int i = 0; i < IR_OP_COUNT_; i++)
        assert_string_not_equal(ir_op_name((enum ir_op)i), "?");
    for (int i = 1; i < IR_ATTR_COUNT_; i++)
        assert_string_not_equal(ir_attr_name((enum ir_attr_key)i), "?");
    for (int i = 0; i < IR_UNARY_COUNT_; i++)
        assert_string_not_equal(ir_unary_name((enum ir_unary)i), "?");
    for (int i = 0; i < IR_BINARY_COUNT_; i++)
        assert_string_not_equal(ir_binary_name((enum ir_binary)i), "?");
}

static void check_operands(const struct ir_op_row *row)
{
    const struct ir_operand *o = row->operands;
    assert_non_null(o->name);
    assert_false(o->flags & IR_OPERAND_OPTIONAL);
    for (; o[1].name; o++) {
        assert_false(o->flags & IR_OPERAND_MANY);
        if (o->flags & IR_OPERAND_OPTIONAL && !(o[1].flags & IR_OPERAND_OPTIONAL))
            fail_msg("%s: %s may be absent, but not %s behind it", row->name, o->name, o[1].name);
    }
}

static void check_attrs(const struct ir_op_row *row)
{
    for (const struct ir_op_attr *a = row->attrs; a->key; a++) {
        bool whole = !ir_attr_row(a->key)->is_float;
        bool free_range = a->flags & (IR_OP_ATTR_NEEDED | IR_OP_ATTR_OPEN);
        for (const struct ir_op_attr *b = row->attrs; b < a; b++)
            assert_int_not_equal(a->key, b->key);
        if (whole && !(a->flags & IR_OP_ATTR_DIM))
            assert_true(a->lo < a->hi);
        if (whole && !free_range && !(a->flags & IR_OP_ATTR_DIM))
            assert_true(a->fallback >= (double)a->lo && a->fallback <= (double)a->hi);
    }
}

static void rows_of_ops_are_whole(void **state)
{
    (void)state;
    for (int i = 1; i < IR_OP_COUNT_; i++) {
        const struct ir_op_row *row = ir_op_row((enum ir_op)i);
        assert_true(strlen(row->text) > 20);
        assert_in_range(row->group, IR_GROUP_NONE + 1, IR_GROUP_COUNT_ - 1);
        assert_in_range(row->min_out, 1, row->max_out);
        assert_true(row->max_out <= IR_MAX_OUTPUTS);
        check_operands(row);
        check_attrs(row);
        for (int k = 1; k < i; k++)
            assert_string_not_equal(row->name, ir_op_name((enum ir_op)k));
    }
    for (int i = 0; i < IR_UNARY_COUNT_; i++)
        assert_non_null(ir_unary_row((enum ir_unary)i)->formula);
    for (int i = 0; i < IR_BINARY_COUNT_; i++)
        assert_non_null(ir_binary_row((enum ir_binary)i)->formula);
    assert_string_equal(ir_op_row(IR_OP_COUNT_)->name, "?");
    assert_null(ir_op_attr(IR_OP_CONV, IR_ATTR_AXIS));
}

/* A cast to a type in which its input is stored already is no work. */
static void casts_rename_what_is_stored_so(void **state)
{
    (void)state;
    struct ir_graph *g = ir_graph_new();
    uint32_t x = input(g, "x", SHAPE(2, 3, 4, 4));
    uint32_t node = ir_node_add(g, IR_OP_CAST, "cast", 1, &x);
    assert_true(ir_attr_set_int(g, node, IR_ATTR_TO, DTYPE_F16));
    apply(g, node, "y");
    const struct ir_format half = {.dtype = DTYPE_F16}, full = {.dtype = DTYPE_F32};
    struct ir_format last = half;
    last.layout = IR_LAYOUT_CHANNELS_LAST;
    assert_true(ir_node_renames(g, ir_node(g, node), half, half));
    assert_true(ir_node_renames(g, ir_node(g, node), last, last));
    assert_false(ir_node_renames(g, ir_node(g, node), full, half));
    assert_false(ir_node_renames(g, ir_node(g, node), half, last));
    struct ir_epilogue step = {.kind = IR_EPILOGUE_UNARY, .func = IR_UNARY_RELU};
    assert_true(ir_epilogue_add(g, node, step, IR_NONE));
    assert_false(ir_node_renames(g, ir_node(g, node), half, half));
    ir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graph_is_built_and_printed),
        cmocka_unit_test(epilogue_operands_follow_own_inputs),
        cmocka_unit_test(uses_and_sole_reader),
        cmocka_unit_test(compact_drops_what_is_removed),
        cmocka_unit_test(compact_restores_the_order),
        cmocka_unit_test(compact_refuses_a_cycle),
        cmocka_unit_test(compact_is_linear),
        cmocka_unit_test(attributes_are_replaced_not_repeated),
        cmocka_unit_test(limits_are_kept),
        cmocka_unit_test(held_objects_are_released_once),
        cmocka_unit_test(layouts_have_sizes),
        cmocka_unit_test(layouts_agree_as_bytes_do),
        cmocka_unit_test(casts_rename_what_is_stored_so),
        cmocka_unit_test(every_number_has_a_name),
        cmocka_unit_test(rows_of_ops_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
