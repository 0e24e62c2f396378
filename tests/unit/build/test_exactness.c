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

static struct plan *build(enum precision precision, enum build_guard how, double max_error)
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
    if (build_plan(digits, &options, &plan, &err))
        fail_msg("%s", err.text);
    return plan;
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
        TEST(a_plan_keeps_its_error),
        TEST(a_held_layer_is_in_the_plan),
        TEST(it_can_be_switched_off),
        TEST(fp32_says_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
