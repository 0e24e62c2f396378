/* SPDX-License-Identifier: Apache-2.0 */
/* The evaluator: single nodes, epilogues in every precision, whole graphs. */
#include <math.h>
#include <string.h>

#include "engine/cpu/eval.h"
#include "tests/unit/cpu/views.h"

static const struct shape vec4 = {.rank = 1, .dim = {4}};

static uint32_t infer(struct ir_graph *graph, uint32_t node)
{
    struct error err;
    const char *name = "y";
    if (ir_infer_apply(graph, node, &name, 1, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return ir_node(graph, node)->outputs[0];
}

static uint32_t unary(struct ir_graph *graph, enum ir_unary func, uint32_t x)
{
    uint32_t node = ir_node_add(graph, IR_OP_UNARY, "u", 1, &x);
    assert_true(ir_attr_set_int(graph, node, IR_ATTR_FUNC, func));
    infer(graph, node);
    return node;
}

static uint32_t binary(struct ir_graph *graph, enum ir_binary func, uint32_t a, uint32_t b)
{
    const uint32_t inputs[2] = {a, b};
    uint32_t node = ir_node_add(graph, IR_OP_BINARY, "b", 2, inputs);
    assert_true(ir_attr_set_int(graph, node, IR_ATTR_FUNC, func));
    infer(graph, node);
    return node;
}

/* y = ((neg(x) * 0.5 + 0.25) + z) clipped to [-1, 1], of each float type. */
static void test_epilogue_in_every_precision(void **state UNUSED)
{
    static const enum dtype types[] = {DTYPE_F32, DTYPE_F64, DTYPE_F16, DTYPE_BF16};
    const float x[4] = {1, -2, 0.5f, 8}, z[4] = {1, 2, -0.125f, -4};
    const float want[4] = {0.75f, 1, -0.125f, -1};
    for (size_t t = 0; t < ARRAY_LEN(types); t++) {
        struct ir_graph *graph = ir_graph_new();
        uint32_t in = ir_tensor_add(graph, "x", types[t], &vec4);
        uint32_t other = ir_tensor_add(graph, "z", types[t], &vec4);
        uint32_t n = unary(graph, IR_UNARY_NEG, in);
        struct ir_epilogue linear = {.func = IR_UNARY_LINEAR, .alpha = 0.5f, .beta = 0.25f};
        struct ir_epilogue clip = {.func = IR_UNARY_CLIP, .alpha = -1, .beta = 1};
        struct ir_epilogue add = {.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_ADD};
        assert_true(ir_epilogue_add(graph, n, linear, IR_NONE));
        assert_true(ir_epilogue_add(graph, n, add, other));
        assert_true(ir_epilogue_add(graph, n, clip, IR_NONE));

        double memory[3][4];
        struct tensor_view vx = VIEW(types[t], memory[0], 4), vz = VIEW(types[t], memory[1], 4);
        struct tensor_view vy = POISONED(types[t], memory[2], 4);
        for (int i = 0; i < 4; i++)
            switch (types[t]) {
            case DTYPE_F64:
                memory[0][i] = (double)x[i], memory[1][i] = (double)z[i];
                break;
            case DTYPE_F32:
                ((float *)memory[0])[i] = x[i], ((float *)memory[1])[i] = z[i];
                break;
            default:
                ((uint16_t *)memory[0])[i] =
                    types[t] == DTYPE_F16 ? f32_to_f16(x[i]) : f32_to_bf16(x[i]);
                ((uint16_t *)memory[1])[i] =
                    types[t] == DTYPE_F16 ? f32_to_f16(z[i]) : f32_to_bf16(z[i]);
            }
        const void *inputs[2] = {vx.data, vz.data};
        void *outputs[1] = {vy.data};
        struct error err;
        assert_int_equal(cpu_eval_node(NULL, graph, ir_node(graph, n), inputs, outputs, &err),
                         STATUS_OK);
        for (int i = 0; i < 4; i++) {
            const uint16_t *half = vy.data;
            float got = types[t] == DTYPE_F64   ? (float)memory[2][i]
                        : types[t] == DTYPE_F32 ? ((float *)memory[2])[i]
                        : types[t] == DTYPE_F16 ? f16_to_f32(half[i])
                                                : bf16_to_f32(half[i]);
            assert_floats(&got, &want[i], 1, 0);
        }
        ir_graph_free(graph);
    }
}

/* 1 + 2^-11 is no half. Multiplied by 2^11, less 2^11, it is 1 if the sum stayed in fp32, else
 * 0. */
static void test_half_epilogue_stays_in_fp32(void **state UNUSED)
{
    struct ir_graph *graph = ir_graph_new();
    const struct shape one = {.rank = 1, .dim = {1}};
    uint32_t x = ir_tensor_add(graph, "x", DTYPE_F16, &one);
    uint32_t z = ir_tensor_add(graph, "z", DTYPE_F16, &one);
    uint32_t n = binary(graph, IR_BINARY_ADD, x, z);
    struct ir_epilogue linear = {.func = IR_UNARY_LINEAR, .alpha = 2048, .beta = -2048};
    assert_true(ir_epilogue_add(graph, n, linear, IR_NONE));
    uint16_t a = f32_to_f16(1), b = f32_to_f16(0x1p-11f), y = 0xffff;
    const void *inputs[2] = {&a, &b};
    void *outputs[1] = {&y};
    struct error err;
    assert_int_equal(cpu_eval_node(NULL, graph, ir_node(graph, n), inputs, outputs, &err),
                     STATUS_OK);
    assert_int_equal(y, f32_to_f16(1));
    ir_graph_free(graph);
}

/* y = relu(x + c), z = exp(y): a constant, an intermediate that is read twice, two outputs. */
static void test_graph(void **state UNUSED)
{
    static const float constant[4] = {1, -1, 1, -1};
    struct ir_graph *graph = ir_graph_new();
    uint32_t x = ir_tensor_add(graph, "x", DTYPE_F32, &vec4);
    uint32_t c = ir_constant_add(graph, "c", DTYPE_F32, &vec4, constant);
    uint32_t sum = ir_node(graph, binary(graph, IR_BINARY_ADD, x, c))->outputs[0];
    uint32_t y = ir_node(graph, unary(graph, IR_UNARY_RELU, sum))->outputs[0];
    uint32_t e = ir_node(graph, unary(graph, IR_UNARY_EXP, y))->outputs[0];
    uint32_t z = ir_node(graph, binary(graph, IR_BINARY_MUL, e, y))->outputs[0];
    graph->inputs[graph->n_inputs++] = x;
    graph->outputs[graph->n_outputs++] = y;
    graph->outputs[graph->n_outputs++] = z;

    float in[4] = {0, 1, 2, 3}, out[2][4];
    const float want[2][4] = {{1, 0, 3, 2}, {2.7182817f, 0, 60.256611f, 14.778112f}};
    struct tensor_view input = VIEW(DTYPE_F32, in, 4);
    struct tensor_view outputs[2] = {POISONED(DTYPE_F32, out[0], 4),
                                     POISONED(DTYPE_F32, out[1], 4)};
    struct error err;
    assert_int_equal(cpu_eval_graph(graph, &input, outputs, &err), STATUS_OK);
    assert_floats(out[0], want[0], 4, 0);
    assert_floats(out[1], want[1], 4, 1e-6);

    struct tensor_view wrong = VIEW(DTYPE_F32, in, 2, 2);
    assert_int_equal(cpu_eval_graph(graph, &wrong, outputs, &err), STATUS_INVALID_ARGUMENT);
    wrong = VIEW(DTYPE_I32, in, 4);
    assert_int_equal(cpu_eval_graph(graph, &wrong, outputs, &err), STATUS_INVALID_ARGUMENT);
    ir_graph_free(graph);
}

static void test_bad_index_is_an_error_that_names_the_node(void **state UNUSED)
{
    struct ir_graph *graph = ir_graph_new();
    const struct shape one = {.rank = 1, .dim = {1}};
    uint32_t inputs[2] = {ir_tensor_add(graph, "x", DTYPE_F32, &vec4),
                          ir_tensor_add(graph, "i", DTYPE_I64, &one)};
    uint32_t n = ir_node_add(graph, IR_OP_GATHER, "embedding", 2, inputs);
    assert_true(ir_attr_set_int(graph, n, IR_ATTR_AXIS, 0));
    infer(graph, n);
    float x[4] = {1, 2, 3, 4}, y = 0;
    int64_t index = 4;
    const void *in[2] = {x, &index};
    void *out[1] = {&y};
    struct error err;
    assert_int_equal(cpu_eval_node(NULL, graph, ir_node(graph, n), in, out, &err),
                     STATUS_INVALID_ARGUMENT);
    assert_int_equal(err.scope, ERROR_REQUEST);
    assert_string_equal(err.text,
                        "gather 'embedding': index 4 is out of range for a dimension of 4");
    index = 3;
    assert_int_equal(cpu_eval_node(NULL, graph, ir_node(graph, n), in, out, &err), STATUS_OK);
    assert_true(y == 4);
    ir_graph_free(graph);
}

/* TOPK is the one op that asks for scratch memory. */
static void test_node_with_workspace(void **state UNUSED)
{
    struct ir_graph *graph = ir_graph_new();
    uint32_t x = ir_tensor_add(graph, "x", DTYPE_F32, &vec4);
    uint32_t n = ir_node_add(graph, IR_OP_TOPK, "top", 1, &x);
    assert_true(ir_attr_set_int(graph, n, IR_ATTR_AXIS, 0));
    assert_true(ir_attr_set_int(graph, n, IR_ATTR_K, 2));
    infer(graph, n);
    float in[4] = {3, 9, 1, 7}, values[2];
    int64_t at[2];
    const void *inputs[1] = {in};
    void *outputs[2] = {values, at};
    struct error err;
    assert_int_equal(cpu_eval_node(NULL, graph, ir_node(graph, n), inputs, outputs, &err),
                     STATUS_OK);
    assert_floats(values, (const float[]){9, 7}, 2, 0);
    assert_int_equal(at[0], 1);
    assert_int_equal(at[1], 3);
    ir_graph_free(graph);
}

static void test_node_that_was_not_inferred_is_refused(void **state UNUSED)
{
    struct ir_graph *graph = ir_graph_new();
    uint32_t x = ir_tensor_add(graph, "x", DTYPE_F32, &vec4);
    uint32_t n = ir_node_add(graph, IR_OP_UNARY, "u", 1, &x);
    assert_true(ir_attr_set_int(graph, n, IR_ATTR_FUNC, IR_UNARY_RELU));
    float in[4] = {0}, out[4];
    const void *inputs[1] = {in};
    void *outputs[1] = {out};
    struct error err;
    assert_int_equal(cpu_eval_node(NULL, graph, ir_node(graph, n), inputs, outputs, &err),
                     STATUS_INVALID_ARGUMENT); /* no output */
    infer(graph, n);
    ir_tensor(graph, ir_node(graph, n)->outputs[0])->shape.dim[0] = 5;
    assert_int_equal(cpu_eval_node(NULL, graph, ir_node(graph, n), inputs, outputs, &err),
                     STATUS_INVALID_ARGUMENT); /* one element too many */
    ir_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epilogue_in_every_precision),
        cmocka_unit_test(test_half_epilogue_stays_in_fp32),
        cmocka_unit_test(test_graph),
        cmocka_unit_test(test_bad_index_is_an_error_that_names_the_node),
        cmocka_unit_test(test_node_with_workspace),
        cmocka_unit_test(test_node_that_was_not_inferred_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
