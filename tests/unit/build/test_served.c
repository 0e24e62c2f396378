/* SPDX-License-Identifier: Apache-2.0 */
/* Inputs served as bytes and as halves give the same answers as the float input, or a clear
 * refusal. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/build/served.h"
#include "engine/cpu/eval.h"
#include "engine/passes/pass.h"
#include "tests/test.h"

enum { N = 2, C = 3, SIDE = 9, INPUTS = N * C * SIDE * SIDE, OUTPUTS_MAX = N * 4 * SIDE * SIDE };

static const float scales[C] = {0.0171F, 0.0175F, 0.0174F}, biases[C] = {-2.1F, -2.0F, -1.8F};

static uint32_t random_constant(struct ir_graph *g, const struct shape *shape, uint64_t seed)
{
    size_t n;
    assert_true(shape_elements(shape, &n));
    float *data = arena_alloc(g->arena, n * sizeof(*data));
    assert_non_null(data);
    for (size_t i = 0; i < n; i++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        data[i] = (float)(seed >> 40) / (float)(1 << 23) - 1;
    }
    return ir_constant_add(g, "w", DTYPE_F32, shape, data);
}

/* input -> conv 3x3 (with or without padding) + bias -> relu -> output */
static struct ir_graph *network(bool padded)
{
    struct ir_graph *g = ir_graph_new();
    struct shape xs = {.rank = 4, .dim = {N, C, SIDE, SIDE}}, ws = {.rank = 4, .dim = {4, C, 3, 3}};
    struct shape bs = {.rank = 1, .dim = {4}};
    const int64_t pads[4] = {padded, padded, padded, padded};
    struct error err;
    uint32_t x = ir_tensor_add(g, "image", DTYPE_F32, &xs);
    uint32_t in[3] = {x, random_constant(g, &ws, 1), random_constant(g, &bs, 2)};
    g->inputs[g->n_inputs++] = x;
    uint32_t conv = ir_node_add(g, IR_OP_CONV, "conv", 3, in);
    assert_true(ir_attr_set_ints(g, conv, IR_ATTR_PADS, 4, pads));
    assert_int_equal(ir_infer_apply(g, conv, NULL, 0, &err), STATUS_OK);
    uint32_t relu = ir_node_add(g, IR_OP_UNARY, "relu", 1, ir_node(g, conv)->outputs);
    assert_true(ir_attr_set_int(g, relu, IR_ATTR_FUNC, IR_UNARY_RELU));
    assert_int_equal(ir_infer_apply(g, relu, NULL, 0, &err), STATUS_OK);
    g->outputs[g->n_outputs++] = ir_node(g, relu)->outputs[0];
    return g;
}

static void evaluate(const struct ir_graph *g, void *input, float *output)
{
    const struct ir_tensor *x = ir_tensor(g, g->inputs[0]), *y = ir_tensor(g, g->outputs[0]);
    struct tensor_view in = {x->dtype, x->shape, input}, out = {y->dtype, y->shape, output};
    struct error err;
    assert_true(y->bytes <= OUTPUTS_MAX * sizeof(float));
    if (cpu_eval_graph(g, &in, &out, &err))
        fail_msg("%s", err.text);
}

static size_t size_of_output(const struct ir_graph *g)
{
    return ir_tensor(g, g->outputs[0])->bytes / sizeof(float);
}

/* Fills `served` with pixels of the type, and `value` with the numbers that they mean. */
static void fill(enum dtype dtype, uint32_t n_scale, uint32_t n_bias, void *served, float *value)
{
    for (int i = 0; i < INPUTS; i++) {
        int channel = i / (SIDE * SIDE) % C, pixel = i * 37 % 256;
        float scale = n_scale ? scales[n_scale > 1 ? channel : 0] : 1;
        float bias = n_bias ? biases[n_bias > 1 ? channel : 0] : 0;
        if (dtype == DTYPE_U8)
            ((uint8_t *)served)[i] = (uint8_t)pixel;
        else
            ((uint16_t *)served)[i] = f32_to_f16((float)pixel);
        value[i] = scale * (float)pixel + bias;
    }
}

static void check(enum dtype dtype, uint32_t n_scale, uint32_t n_bias, bool padded)
{
    static float value[INPUTS], want[OUTPUTS_MAX], plain[OUTPUTS_MAX], fused[OUTPUTS_MAX];
    static uint16_t served[INPUTS];
    struct build_input input = {"image", dtype, scales, biases, n_scale, n_bias};
    struct pass_context context = {.evaluator = {cpu_eval_node, NULL}};
    struct ir_graph *g = network(padded);
    struct error err;
    fill(dtype, n_scale, n_bias, served, value);
    evaluate(g, value, want);
    if (build_serve(g, &input, 1, &err) || ir_verify(g, &err))
        fail_msg("%s", err.text);
    assert_int_equal(g->n_inputs, 1);
    assert_string_equal(ir_tensor(g, g->inputs[0])->name, "image");
    assert_int_equal(ir_tensor(g, g->inputs[0])->dtype, dtype);
    evaluate(g, served, plain);
    if (passes_run(g, &context, &err))
        fail_msg("%s", err.text);
    evaluate(g, served, fused);
    /* Only a cast and the convolution are left. If padding keeps the bias out of the weights, the
     * cast has it in its epilogue. */
    assert_int_equal(g->n_nodes, 2);
    assert_int_equal(ir_node(g, 0)->op, IR_OP_CAST);
    assert_int_equal(ir_node(g, 0)->n_epilogue != 0, padded && n_bias);
    for (size_t i = 0; i < size_of_output(g); i++) {
        double bound = 1e-5 * fmax(1, fabs((double)want[i])) * (n_scale ? 1 : 256);
        if (fabs((double)plain[i] - (double)want[i]) > bound ||
            fabs((double)fused[i] - (double)want[i]) > bound)
            fail_msg("%s, %u scales, %u biases, %s: [%zu] is %.9g, fused %.9g, not %.9g",
                     dtype_name(dtype), n_scale, n_bias, padded ? "padded" : "not padded", i,
                     (double)plain[i], (double)fused[i], (double)want[i]);
    }
    ir_graph_free(g);
}

static void served_answers_are_the_floats_answers(void **state)
{
    static const uint32_t counts[] = {0, 1, C};
    (void)state;
    for (int padded = 0; padded < 2; padded++)
        for (size_t s = 0; s < ARRAY_LEN(counts); s++)
            for (size_t b = 0; b < ARRAY_LEN(counts); b++) {
                check(DTYPE_U8, counts[s], counts[b], padded);
                check(DTYPE_F16, counts[s], counts[b], padded);
            }
}

/* The model's own type with a scale: no cast. */
static void a_type_may_stay(void **state)
{
    (void)state;
    struct build_input input = {"image", DTYPE_NONE, scales, NULL, 1, 0};
    struct ir_graph *g = network(true);
    struct error err;
    assert_int_equal(build_serve(g, &input, 1, &err), STATUS_OK);
    assert_int_equal(ir_tensor(g, g->inputs[0])->dtype, DTYPE_F32);
    assert_int_equal(g->n_nodes, 3);
    assert_int_equal(ir_node(g, 0)->op, IR_OP_BINARY);
    assert_int_equal(ir_verify(g, &err), STATUS_OK);
    ir_graph_free(g);
    g = network(true);
    input.n_scale = 0;
    assert_int_equal(build_serve(g, &input, 1, &err), STATUS_OK);
    assert_int_equal(g->n_nodes, 2);
    ir_graph_free(g);
}

static void refuse(struct build_input input, enum dtype model, const char *why)
{
    struct ir_graph *g = network(true);
    struct error err;
    ir_tensor(g, g->inputs[0])->dtype = model;
    assert_int_equal(build_serve(g, &input, 1, &err), STATUS_INVALID_ARGUMENT);
    if (!strstr(err.text, why))
        fail_msg("\"%s\" is not in \"%s\"", why, err.text);
    ir_graph_free(g);
}

static void a_float_output_may_be_fp16(void **state)
{
    (void)state;
    const struct build_output output = {"y", DTYPE_F16};
    struct ir_graph *g = network(true);
    struct error err;
    float input[INPUTS], want[OUTPUTS_MAX], halves[OUTPUTS_MAX];
    for (int i = 0; i < INPUTS; i++)
        input[i] = (float)(i * 37 % 256) / 256;
    evaluate(g, input, want);
    size_t n = size_of_output(g);
    ir_tensor(g, g->outputs[0])->name = "y";
    assert_int_equal(build_serve_outputs(g, &output, 1, &err), STATUS_OK);
    assert_int_equal(ir_verify(g, &err), STATUS_OK);
    assert_int_equal(ir_tensor(g, g->outputs[0])->dtype, DTYPE_F16);
    assert_string_equal(ir_tensor(g, g->outputs[0])->name, "y");
    evaluate(g, input, halves);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(((uint16_t *)halves)[i], f32_to_f16(want[i]));
    uint32_t nodes = g->n_nodes; /* once is enough */
    assert_int_equal(build_serve_outputs(g, &output, 1, &err), STATUS_OK);
    assert_int_equal(g->n_nodes, nodes);
    ir_graph_free(g);
}

/* x -> quantise -> q -> dequantise -> y */
static struct ir_graph *rounding(void)
{
    struct ir_graph *g = ir_graph_new();
    struct shape one = {.rank = 1, .dim = {1}}, xs = {.rank = 2, .dim = {1, 4}};
    static float step = 0.5F;
    static uint8_t zero = 3;
    struct error err;
    uint32_t in[3] = {ir_tensor_add(g, "x", DTYPE_F32, &xs),
                      ir_constant_add(g, "step", DTYPE_F32, &one, &step),
                      ir_constant_add(g, "zero", DTYPE_U8, &one, &zero)};
    g->inputs[g->n_inputs++] = in[0];
    for (int i = 0; i < 2; i++) {
        uint32_t node = ir_node_add(g, i ? IR_OP_DEQUANTIZE : IR_OP_QUANTIZE, "r", 3, in);
        assert_true(ir_attr_set_int(g, node, IR_ATTR_TO, i ? DTYPE_F32 : DTYPE_U8));
        assert_int_equal(ir_infer_apply(g, node, NULL, 0, &err), STATUS_OK);
        in[0] = ir_node(g, node)->outputs[0];
    }
    ir_tensor(g, in[0])->name = "y";
    g->outputs[g->n_outputs++] = in[0];
    return g;
}

static void a_dequantised_output_may_stay_as_it_is(void **state)
{
    (void)state;
    struct build_output output = {"y", DTYPE_I8};
    struct ir_graph *g = rounding();
    struct error err;
    float input[4] = {-2, 0, 1, 200}, result[OUTPUTS_MAX];
    assert_int_equal(build_serve_outputs(g, &output, 1, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "cannot be served as INT8"));
    output.dtype = DTYPE_U8;
    assert_int_equal(build_serve_outputs(g, &output, 1, &err), STATUS_OK);
    assert_int_equal(ir_tensor(g, g->outputs[0])->dtype, DTYPE_U8);
    assert_string_equal(ir_tensor(g, g->outputs[0])->name, "y");
    evaluate(g, input, result);
    assert_memory_equal(result, ((uint8_t[]){0, 3, 5, 255}), 4);
    ir_graph_free(g);
    g = network(true);
    ir_tensor(g, g->outputs[0])->name = "y";
    assert_int_equal(build_serve_outputs(g, &output, 1, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "it may be fp16"));
    output.name = "z";
    assert_int_equal(build_serve_outputs(g, &output, 1, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "the model has no such output; it has 'y'"));
    ir_graph_free(g);
}

static void what_does_not_fit_is_refused(void **state)
{
    static const float bad[1] = {NAN};
    (void)state;
    refuse((struct build_input){"picture", DTYPE_U8, NULL, NULL, 0, 0}, DTYPE_F32,
           "'picture': the model has no such input; it has 'image'");
    refuse((struct build_input){"image", DTYPE_U8, NULL, NULL, 0, 0}, DTYPE_I64, "is INT64");
    refuse((struct build_input){"image", DTYPE_U8, scales, NULL, 2, 0}, DTYPE_F32,
           "2 numbers as scale");
    refuse((struct build_input){"image", DTYPE_U8, scales, biases, 3, 2}, DTYPE_F32,
           "2 numbers as bias");
    refuse((struct build_input){"image", DTYPE_U8, bad, NULL, 1, 0}, DTYPE_F32, "not finite");
    assert_int_equal(build_served_type("uint8"), DTYPE_U8);
    assert_int_equal(build_served_type("fp16"), DTYPE_F16);
    assert_int_equal(build_served_type("UINT8"), DTYPE_NONE);
    assert_int_equal(build_served_type("int8"), DTYPE_NONE);
    assert_int_equal(build_served_output_type("int8"), DTYPE_I8);
    assert_int_equal(build_served_type(""), DTYPE_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(served_answers_are_the_floats_answers),
        cmocka_unit_test(a_type_may_stay),
        cmocka_unit_test(a_float_output_may_be_fp16),
        cmocka_unit_test(a_dequantised_output_may_stay_as_it_is),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
