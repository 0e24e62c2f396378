/* SPDX-License-Identifier: Apache-2.0 */
/* From a model to what a plan says of its exactness, on a simulated device with 16-bit types. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "engine/build/build.h"
#include "engine/cpu/eval.h"
#include "engine/engine.h"
#include "tests/test.h"
#include "tests/unit/import/wire.h"
#include "tests/unit/mock/mock.h"

static struct device *device, *cpu;
static struct onnx_model *digits;
static uint32_t seen_layers, seen_held;

static uint64_t short_is_fast(const struct ir_graph *graph, const struct ir_node *node,
                              const struct tactic *tactic UNUSED)
{
    if (node->op == IR_OP_REFORMAT)
        return 100;
    return 1000 * dtype_size(ir_tensor(graph, node->outputs[0])->dtype);
}

static int set_up(void **state UNUSED)
{
    struct device_options options = {.threads = 1};
    struct error err;
    device = mock_simulate();
    mock_script(device)->cost = short_is_fast;
    if (engine_device_open("cpu", &options, &cpu, &err) ||
        onnx_open(DIGITS, &digits, &err)) /* DIGITS: models/digits.onnx, from meson.build */
        fail_msg("%s", err.text);
    return 0;
}

static int tear_down(void **state UNUSED)
{
    onnx_close(digits);
    engine_device_close(cpu);
    engine_device_close(device);
    return 0;
}

static void count(void *user UNUSED, const struct guard_report *report)
{
    seen_layers = report->n_layers;
    seen_held = report->n_held;
}

static struct plan *build_model(struct onnx_model *model, enum precision precision,
                                enum build_guard how, double max_error)
{
    static const uint32_t batches[] = {1, 6};
    struct build_options options = {
        .device = device,
        .host = cpu,
        .evaluator = {.eval = cpu_eval_node},
        .precision = precision,
        .batches = batches,
        .n_batches = ARRAY_LEN(batches),
        .guard = how,
        .max_error = max_error,
        .sensitivity = count,
    };
    struct plan *plan;
    struct error err;
    if (build_plan(model, &options, &plan, &err))
        fail_msg("%s", err.text);
    return plan;
}

static struct plan *build(enum precision precision, enum build_guard how, double max_error)
{
    return build_model(digits, precision, how, max_error);
}

/* The type of what the first layer whose name contains the text stores, at each batch size. */
static enum dtype type_of(const struct plan *plan, uint32_t profile, const char *name)
{
    const struct ir_graph *g = plan->profiles[profile].graph;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (strstr(ir_node(g, i)->name, name) && ir_node(g, i)->tactic)
            return ir_node(g, i)->tactic->out[0].format.dtype;
    fail_msg("no layer '%s'", name);
    return DTYPE_NONE;
}

static void a_plan_keeps_its_error(void **state UNUSED)
{
    static const struct {
        enum precision precision;
        double most;
        float bound;
    } rows[] = {{PRECISION_F16, 3e-3, 0.02F}, {PRECISION_BF16, 3e-2, 0.1F}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct plan *plan = build(rows[i].precision, BUILD_GUARD_ON, 0);
        const struct plan_exactness *e = &plan->exactness;
        assert_true(e->measured);
        assert_false(e->data);
        assert_int_equal(e->samples, 6);
        assert_true(e->bound == rows[i].bound);
        assert_int_equal(e->n_outputs, 1);
        assert_true(e->outputs[0].error > 0 && (double)e->outputs[0].error < rows[i].most);
        assert_true(e->outputs[0].agreement == 1);
        assert_int_equal(e->n_held, 0);
        assert_true(seen_layers >= 8);
        plan_free(plan);
    }
}

/* The planted layer's name is that of all its parts: "conv2 + bn2 + relu2". */
static void a_held_layer_is_in_the_plan(void **state UNUSED)
{
    char path[] = "/tmp/test_exactness_XXXXXX";
    struct plan *read = NULL;
    struct error err;
    mock_script(device)->wrong_node = "conv2 + bn2 + relu2";
    mock_script(device)->wrong_tactic = "FP16";
    mock_script(device)->factor = NAN;
    struct plan *plan = build(PRECISION_F16, BUILD_GUARD_ON, 0.05);
    close(mkstemp(path));
    if (plan_write(path, plan, &err) || plan_read(path, &read, &err))
        fail_msg("%s", err.text);
    const struct plan_exactness *e = &read->exactness;
    assert_true(e->bound == 0.05F);
    assert_int_equal(e->n_held, 1);
    assert_string_equal(e->held[0].layer, "conv2 + bn2 + relu2");
    assert_int_equal(e->held[0].type, DTYPE_F16);
    assert_true(isinf(e->held[0].error));
    assert_true(e->outputs[0].error < 3e-3F);
    for (uint32_t profile = 0; profile < 2; profile++) {
        assert_int_equal(type_of(read, profile, "conv2"), DTYPE_F32);
        assert_int_equal(type_of(read, profile, "conv1"), DTYPE_F16);
    }
    assert_int_equal(seen_held, 1);
    plan_free(plan);
    plan_free(read);
    unlink(path);
}

static void it_can_be_switched_off(void **state UNUSED)
{
    mock_script(device)->wrong_node = "conv2 + bn2 + relu2";
    mock_script(device)->wrong_tactic = "FP16";
    mock_script(device)->factor = 2;
    struct plan *plan = build(PRECISION_F16, BUILD_GUARD_OFF, 0);
    assert_false(plan->exactness.measured);
    assert_int_equal(type_of(plan, 0, "conv2"), DTYPE_F16);
    assert_int_equal(seen_layers, 0);
    plan_free(plan);
    plan = build(PRECISION_F16, BUILD_GUARD_MEASURE, 0);
    assert_true(isinf(plan->exactness.bound));
    assert_true(plan->exactness.outputs[0].error > 0.02F);
    assert_int_equal(plan->exactness.n_held, 0);
    assert_int_equal(type_of(plan, 0, "conv2"), DTYPE_F16);
    plan_free(plan);
}

/* An image's first convolution, its pool, and what reads it. */
static struct onnx_model *stem(void)
{
    static float w[4 * 9];
    static const int64_t image[] = {-1, 1, 8, 8}, kernel[] = {4, 1, 3, 3}, ones[] = {1, 1, 1, 1},
                         window[] = {3, 3}, twos[] = {2, 2};
    struct wire graph = {.n = 0}, conv = {.n = 0}, pool = {.n = 0};
    static struct wire bytes; /* the model reads them later */
    struct onnx_model *model;
    struct error err;
    for (uint32_t i = 0; i < ARRAY_LEN(w); i++)
        w[i] = (float)(i % 7) / 8 - 0.3F;
    wire_input(&graph, "x", 1, 4, image);
    wire_constant(&graph, "w", 1, 4, kernel, w, sizeof(w));
    wire_attr_ints(&conv, "pads", 4, ones);
    wire_node(&graph, "Conv", "x w", "a", &conv);
    wire_node(&graph, "Relu", "a", "b", NULL);
    wire_attr_ints(&pool, "kernel_shape", 2, window);
    wire_attr_ints(&pool, "strides", 2, twos);
    wire_attr_ints(&pool, "pads", 4, ones);
    wire_node(&graph, "MaxPool", "b", "c", &pool);
    wire_node(&graph, "Sigmoid", "c", "y", NULL);
    wire_output(&graph, "y");
    wire_model(&bytes, &graph, 13);
    if (onnx_open_memory(bytes.data, bytes.n, &model, &err))
        fail_msg("%s", err.text);
    return model;
}

static uint32_t count_op(const struct plan *plan, enum ir_op op)
{
    uint32_t n = 0;
    for (uint32_t p = 0; p < plan->n_profiles; p++)
        for (uint32_t i = 0; i < plan->profiles[p].graph->n_nodes; i++)
            n += ir_node(plan->profiles[p].graph, i)->op == op;
    return n;
}

static uint64_t stems_are_fast(const struct ir_graph *graph, const struct ir_node *node,
                               const struct tactic *tactic)
{
    uint64_t ns = short_is_fast(graph, node, tactic);
    return node->op == IR_OP_CONV_POOL ? ns / 4 : ns;
}

/* No kernel has it wider, so its parts are judged, and run, instead: in all profiles. */
static void a_stem_that_is_held_is_two_layers(void **state UNUSED)
{
    struct onnx_model *model = stem();
    mock_add_features(device, BACKEND_STEMS);
    mock_script(device)->cost = stems_are_fast;
    struct plan *plan = build_model(model, PRECISION_F16, BUILD_GUARD_ON, 0);
    assert_int_equal(count_op(plan, IR_OP_CONV_POOL), 2);
    assert_int_equal(count_op(plan, IR_OP_POOL), 0);
    const char *name = plan->profiles[0].graph->nodes[0].name;
    for (uint32_t i = 0; i < plan->profiles[0].graph->n_nodes; i++)
        if (ir_node(plan->profiles[0].graph, i)->op == IR_OP_CONV_POOL)
            name = ir_node(plan->profiles[0].graph, i)->name;
    mock_script(device)->wrong_node = name;
    mock_script(device)->wrong_tactic = "FP16";
    mock_script(device)->factor = 1.5F;
    struct plan *apart = build_model(model, PRECISION_F16, BUILD_GUARD_ON, 0);
    assert_int_equal(count_op(apart, IR_OP_CONV_POOL), 0);
    assert_int_equal(count_op(apart, IR_OP_CONV), 2);
    assert_int_equal(count_op(apart, IR_OP_POOL), 2);
    assert_int_equal(apart->exactness.n_held, 1);
    assert_true(apart->exactness.outputs[0].error < 3e-3F);
    for (uint32_t profile = 0; profile < 2; profile++)
        for (uint32_t i = 0; i < apart->profiles[profile].graph->n_nodes; i++)
            if (ir_node(apart->profiles[profile].graph, i)->op == IR_OP_CONV)
                assert_int_equal(
                    ir_node(apart->profiles[profile].graph, i)->tactic->out[0].format.dtype,
                    DTYPE_F16);
    plan_free(apart);
    plan_free(plan);
    onnx_close(model);
}

static void fp32_says_nothing(void **state UNUSED)
{
    struct plan *plan = build(PRECISION_F32, BUILD_GUARD_ON, 0);
    assert_false(plan->exactness.measured);
    plan_free(plan);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(a_plan_keeps_its_error), TEST(a_held_layer_is_in_the_plan),
        TEST(it_can_be_switched_off), TEST(a_stem_that_is_held_is_two_layers),
        TEST(fp32_says_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
