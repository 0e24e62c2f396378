/* SPDX-License-Identifier: Apache-2.0 */
/* Views, broadcasting, epilogues, constants and tactics as families get them. */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/cuda.h"
#include "tests/test.h"

static struct ir_tensor tensor_of(enum dtype dtype, enum ir_layout layout, struct shape shape)
{
    struct ir_tensor t = {.name = "t", .dtype = dtype, .shape = shape, .layout = layout};
    t.producer = t.alias_of = IR_NONE;
    return t;
}

static void same_numbers(const int64_t *got, const int64_t *want, int32_t n, const char *what)
{
    for (int32_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("%s %d is %lld, expected %lld", what, i, (long long)got[i],
                     (long long)want[i]);
}

static void strides_of_layouts(void **state)
{
    static const struct {
        enum ir_layout layout;
        struct shape shape;
        int64_t stride[5], pad;
    } rows[] = {
        {IR_LAYOUT_PLAIN, {4, {2, 3, 5, 7}}, {105, 35, 7, 1}, 0},
        {IR_LAYOUT_PLAIN, {0, {0}}, {0}, 0},
        {IR_LAYOUT_PLAIN, {1, {6}}, {1}, 0},
        {IR_LAYOUT_CHANNELS_LAST, {4, {2, 3, 5, 7}}, {105, 1, 21, 3}, 0},
        {IR_LAYOUT_CHANNELS_LAST, {2, {2, 3}}, {3, 1}, 0},
        {IR_LAYOUT_CHANNELS_LAST, {5, {2, 3, 5, 7, 11}}, {1155, 1, 231, 33, 3}, 0},
        {IR_LAYOUT_CHANNELS_LAST_4, {4, {2, 3, 5, 7}}, {140, 1, 28, 4}, 4},
        {IR_LAYOUT_CHANNELS_LAST_8, {4, {2, 3, 5, 7}}, {280, 1, 56, 8}, 8},
        {IR_LAYOUT_CHANNELS_LAST_8, {4, {2, 16, 5, 7}}, {560, 1, 112, 16}, 16},
        {IR_LAYOUT_CHANNELS_LAST, {4, {0, 3, 5, 7}}, {0, 0, 0, 0}, 0},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ir_tensor t = tensor_of(DTYPE_F16, rows[i].layout, rows[i].shape);
        struct kernel_view view = {.data = &t};
        int64_t pad = -1;
        assert_true(cuda_view(&t, &view, &pad));
        assert_null(view.data);
        assert_int_equal(view.dtype, DTYPE_F16);
        assert_int_equal(view.rank, rows[i].shape.rank);
        assert_int_equal(pad, rows[i].pad);
        same_numbers(view.dim, rows[i].shape.dim, view.rank, "dim");
        same_numbers(view.stride, rows[i].stride, view.rank, "stride");
        assert_true(cuda_view(&t, &view, NULL));
    }
}

static void tensors_without_strides(void **state)
{
    static const struct {
        enum dtype dtype;
        enum ir_layout layout;
        struct shape shape;
    } rows[] = {
        {DTYPE_F32, IR_LAYOUT_OPAQUE, {4, {2, 3, 5, 7}}},
        {DTYPE_F32, IR_LAYOUT_BLOCKED_8, {4, {2, 3, 5, 7}}},
        {DTYPE_F32, IR_LAYOUT_BLOCKED_16, {4, {2, 3, 5, 7}}},
        {DTYPE_F32, IR_LAYOUT_CHANNELS_LAST, {1, {2}}},
        {DTYPE_F32, (enum ir_layout)99, {2, {2, 3}}},
        {DTYPE_NONE, IR_LAYOUT_PLAIN, {2, {2, 3}}},
        {(enum dtype)77, IR_LAYOUT_PLAIN, {2, {2, 3}}},
        {DTYPE_F32, IR_LAYOUT_PLAIN, {2, {-1, 3}}},
        {DTYPE_F32, IR_LAYOUT_PLAIN, {9, {1}}},
        {DTYPE_F32, IR_LAYOUT_PLAIN, {3, {1 << 30, 1 << 30, 1 << 30}}},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ir_tensor t = tensor_of(rows[i].dtype, rows[i].layout, rows[i].shape);
        struct kernel_view view = {.rank = 42};
        if (cuda_view(&t, &view, NULL) || view.rank != 42)
            fail_msg("row %zu: not refused, or the view was touched (rank %d)", i, view.rank);
    }
}

static struct kernel_view view_of(struct shape shape)
{
    struct ir_tensor t = tensor_of(DTYPE_F32, IR_LAYOUT_PLAIN, shape);
    struct kernel_view view;
    assert_true(cuda_view(&t, &view, NULL));
    return view;
}

static void broadcasting(void **state)
{
    static const struct {
        struct shape from, like;
        bool fits;
        int64_t stride[4];
    } rows[] = {
        {{4, {2, 3, 5, 7}}, {4, {2, 3, 5, 7}}, true, {105, 35, 7, 1}},
        {{1, {7}}, {4, {2, 3, 5, 7}}, true, {0, 0, 0, 1}},
        {{3, {3, 1, 1}}, {4, {2, 3, 5, 7}}, true, {0, 1, 0, 0}},
        {{4, {2, 1, 5, 1}}, {4, {2, 3, 5, 7}}, true, {5, 0, 1, 0}},
        {{0, {0}}, {2, {4, 5}}, true, {0, 0}},
        {{1, {5}}, {2, {4, 5}}, true, {0, 1}},
        {{1, {4}}, {2, {4, 5}}, false, {0}},
        {{2, {4, 5}}, {1, {5}}, false, {0}},
        {{2, {1, 5}}, {1, {5}}, false, {0}},
        {{2, {2, 5}}, {2, {1, 5}}, false, {0}},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct kernel_view from = view_of(rows[i].from), like = view_of(rows[i].like), out = {0};
        from.dtype = DTYPE_BF16;
        from.data = &out;
        if (cuda_view_broadcast(&from, &like, &out) != rows[i].fits)
            fail_msg("row %zu: expected %d", i, rows[i].fits);
        if (!rows[i].fits)
            continue;
        assert_ptr_equal(out.data, from.data);
        assert_int_equal(out.dtype, DTYPE_BF16);
        assert_int_equal(out.rank, like.rank);
        same_numbers(out.dim, like.dim, like.rank, "dim");
        same_numbers(out.stride, rows[i].stride, like.rank, "stride");
    }
}

/* relu(x) + c, x [2,3,4,4] channels-last, c [3,1,1], and further inputs to be spoiled. */
static struct ir_graph *graph_new(void)
{
    const struct shape x = {4, {2, 3, 4, 4}}, c = {3, {3, 1, 1}};
    struct ir_graph *g = ir_graph_new();
    assert_non_null(g);
    uint32_t in = ir_tensor_add(g, "x", DTYPE_F32, &x);
    uint32_t operand = ir_tensor_add(g, "c", DTYPE_F32, &c);
    uint32_t node = ir_node_add(g, IR_OP_UNARY, "relu", 1, &in);
    assert_true(ir_attr_set_int(g, node, IR_ATTR_FUNC, IR_UNARY_RELU));
    uint32_t out = ir_node_output_add(g, node, "y", DTYPE_F32, &x);
    assert_true(ir_tensor_set_layout(g, in, IR_LAYOUT_CHANNELS_LAST));
    assert_true(ir_tensor_set_layout(g, out, IR_LAYOUT_CHANNELS_LAST));
    assert_true(ir_epilogue_add(
        g, node,
        (struct ir_epilogue){
            .kind = IR_EPILOGUE_UNARY, .func = IR_UNARY_CLIP, .alpha = -1, .beta = 6},
        IR_NONE));
    assert_true(ir_epilogue_add(
        g, node, (struct ir_epilogue){.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_ADD}, operand));
    return g;
}

static void epilogues(void **state)
{
    static const int64_t strides[] = {0, 1, 0, 0};
    struct ir_graph *g = graph_new();
    struct ir_node *node = ir_node(g, 0);
    struct kernel_view y;
    struct kernel_epilogue e = {.n = -1};
    int a, b;
    void *inputs[] = {&a, &b};
    (void)state;
    assert_true(cuda_view(ir_tensor(g, node->outputs[0]), &y, NULL));
    assert_true(cuda_epilogue(g, node, &y, &e));
    assert_int_equal(e.n, 2);
    assert_false(e.step[0].binary);
    assert_int_equal(e.step[0].func, IR_UNARY_CLIP);
    assert_true(e.step[0].alpha == -1 && e.step[0].beta == 6);
    assert_true(e.step[1].binary);
    assert_int_equal(e.step[1].func, IR_BINARY_ADD);
    same_numbers(e.step[1].operand.stride, strides, 4, "stride");
    assert_null(e.step[1].operand.data);
    cuda_epilogue_bind(&e, node, inputs);
    assert_ptr_equal(e.step[1].operand.data, &b);
    assert_null(e.step[0].operand.data);
    ir_graph_free(g);
}

static void refused_epilogue(struct ir_graph *g, enum dtype y_type, const char *why)
{
    struct ir_node *node = ir_node(g, 0);
    struct kernel_view y;
    struct kernel_epilogue e = {.n = -1};
    assert_true(cuda_view(ir_tensor(g, node->outputs[0]), &y, NULL));
    y.dtype = (int32_t)y_type;
    if (cuda_epilogue(g, node, &y, &e) || e.n != -1)
        fail_msg("%s: not refused, or touched (n %d)", why, e.n);
    ir_graph_free(g);
}

static void epilogues_that_kernels_cannot(void **state)
{
    static const uint32_t unary[] = {IR_UNARY_NOT,         IR_UNARY_IS_NAN, IR_UNARY_IS_INF,
                                     IR_UNARY_BITWISE_NOT, IR_UNARY_COUNT_, UINT32_MAX};
    static const uint32_t binary[] = {IR_BINARY_MOD, IR_BINARY_EQUAL, IR_BINARY_XOR,
                                      IR_BINARY_COUNT_, UINT32_MAX};
    struct ir_graph *g;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(unary); i++) {
        g = graph_new();
        ir_node(g, 0)->epilogue[0].func = unary[i];
        refused_epilogue(g, DTYPE_F32, "a function that is none of floats");
    }
    for (size_t i = 0; i < ARRAY_LEN(binary); i++) {
        g = graph_new();
        ir_node(g, 0)->epilogue[1].func = binary[i];
        refused_epilogue(g, DTYPE_F32, "a function that is none of floats");
    }
    refused_epilogue(graph_new(), DTYPE_I32, "an integer output");
    g = graph_new();
    ir_node(g, 0)->epilogue[1].input = 2;
    refused_epilogue(g, DTYPE_F32, "an operand that is no input");
    g = graph_new();
    ir_node(g, 0)->inputs[1] = IR_NONE;
    refused_epilogue(g, DTYPE_F32, "an absent operand");
    g = graph_new();
    ir_tensor(g, ir_node(g, 0)->inputs[1])->layout = IR_LAYOUT_OPAQUE;
    refused_epilogue(g, DTYPE_F32, "an operand without strides");
    g = graph_new();
    ir_tensor(g, ir_node(g, 0)->inputs[1])->shape.dim[0] = 4;
    refused_epilogue(g, DTYPE_F32, "an operand that does not broadcast");
    g = graph_new();
    ir_tensor(g, ir_node(g, 0)->inputs[1])->dtype = DTYPE_I64;
    refused_epilogue(g, DTYPE_F32, "an operand of integers");
}

static void constants_are_cast(void **state)
{
    const float values[] = {1.0F, -2.5F, 65504.0F, 1.0F + 0x1p-12F, 0.0F, 0x1p-24F};
    struct ir_tensor t = tensor_of(DTYPE_F32, IR_LAYOUT_PLAIN, (struct shape){2, {2, 3}});
    uint16_t half[6], brain[6];
    float back[6];
    double wide[6];
    (void)state;
    t.data = values;
    assert_true(cuda_constant_cast(&t, DTYPE_F16, half, 6));
    assert_true(cuda_constant_cast(&t, DTYPE_BF16, brain, 6));
    assert_true(cuda_constant_cast(&t, DTYPE_F64, wide, 6));
    assert_true(cuda_constant_f32(&t, back, 6));
    for (int i = 0; i < 6; i++) {
        assert_int_equal(half[i], f32_to_f16(values[i]));
        assert_int_equal(brain[i], f32_to_bf16(values[i]));
        assert_true(wide[i] == (double)values[i] && back[i] == values[i]);
    }
    t.dtype = DTYPE_F16;
    t.data = half;
    assert_true(cuda_constant_f32(&t, back, 6));
    for (int i = 0; i < 6; i++)
        assert_true(back[i] == f16_to_f32(half[i]));
    assert_true(back[3] == 1.0F); /* rounded once, to nearest even */
}

static void what_is_no_float_constant(void **state)
{
    const float values[6] = {0};
    float out[6] = {7};
    const struct ir_tensor right = {.dtype = DTYPE_F32,
                                    .shape = {2, {2, 3}},
                                    .producer = IR_NONE,
                                    .alias_of = IR_NONE,
                                    .data = values};
    struct ir_tensor t = right;
    (void)state;
    assert_false(cuda_constant_f32(&t, out, 5));
    assert_false(cuda_constant_f32(&t, out, 7));
    assert_false(cuda_constant_cast(&t, DTYPE_I32, out, 6));
    t.dtype = DTYPE_I32;
    assert_false(cuda_constant_f32(&t, out, 6));
    t = right;
    t.data = NULL;
    assert_false(cuda_constant_f32(&t, out, 6));
    t = right;
    t.layout = IR_LAYOUT_OPAQUE;
    assert_false(cuda_constant_f32(&t, out, 6));
    assert_true(out[0] == 7);
    assert_true(cuda_constant_f32(&right, out, 6));
    assert_true(out[0] == 0);
}

static void types_within_a_precision(void **state)
{
    static const struct {
        enum precision precision;
        uint32_t n;
        enum dtype dtype[2];
    } rows[] = {
        {PRECISION_F32, 1, {DTYPE_F32}},
        {PRECISION_TF32, 1, {DTYPE_F32}},
        {PRECISION_F16, 2, {DTYPE_F16, DTYPE_F32}},
        {PRECISION_BF16, 2, {DTYPE_BF16, DTYPE_F32}},
    };
    struct ir_graph *g = graph_new();
    enum dtype out[3];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        uint32_t n = cuda_dtypes(g, ir_node(g, 0), rows[i].precision, out);
        assert_int_equal(n, rows[i].n);
        for (uint32_t k = 0; k < n; k++)
            assert_int_equal(out[k], rows[i].dtype[k]);
    }
    for (uint32_t i = 0; i < g->n_tensors; i++)
        ir_tensor(g, i)->dtype = DTYPE_I64;
    assert_int_equal(cuda_dtypes(g, ir_node(g, 0), PRECISION_F16, out), 1);
    assert_int_equal(out[0], DTYPE_NONE);
    ir_graph_free(g);
}

static void tactics(void **state)
{
    static const struct cuda_family family = {.id = CUDA_FAMILY_OWN_MAP};
    struct ir_graph *g = graph_new();
    struct tactic t;
    (void)state;
    memset(&t, 0xff, sizeof(t));
    cuda_tactic(&t, &family, 0x12345, g, ir_node(g, 0), DTYPE_F16, IR_LAYOUT_CHANNELS_LAST, "wide");
    assert_string_equal(t.backend, "cuda");
    assert_string_equal(t.name, "own map wide");
    assert_int_equal(t.id, CUDA_FAMILY_OWN_MAP << 16 | 0x2345);
    assert_int_equal(tactic_float(&t), DTYPE_F16);
    assert_int_equal(t.n_in, 2);
    assert_int_equal(t.n_out, 1);
    assert_int_equal(t.blob_size, 0);
    assert_null(t.code);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(t.in[i].format.layout, IR_LAYOUT_CHANNELS_LAST);
        assert_int_equal(t.in[i].packed_bytes, 0);
    }
    assert_int_equal(t.out[0].format.layout, IR_LAYOUT_CHANNELS_LAST);
    ir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(strides_of_layouts),
        cmocka_unit_test(tensors_without_strides),
        cmocka_unit_test(broadcasting),
        cmocka_unit_test(epilogues),
        cmocka_unit_test(epilogues_that_kernels_cannot),
        cmocka_unit_test(constants_are_cast),
        cmocka_unit_test(what_is_no_float_constant),
        cmocka_unit_test(types_within_a_precision),
        cmocka_unit_test(tactics),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
