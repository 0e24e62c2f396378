/* SPDX-License-Identifier: Apache-2.0 */
/* What an observer shows of a graph, on the CPU and on a device with a memory of its own, and
 * calibrations of a model on both. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "engine/build/calibrate.h"
#include "engine/build/observe.h"
#include "engine/cpu/eval.h"
#include "engine/engine.h"
#include "tests/test.h"
#include "tests/unit/mock/mock.h"
#include "tests/unit/passes/parse.h"

enum { PIXELS = 64, SAMPLES = 12 };

static struct device *open_cpu(bool reference)
{
    const struct device_options options = {.threads = 1, .reference_only = reference};
    struct device *device = NULL;
    struct error err;
    must(engine_device_open("cpu", &options, &device, &err), &err);
    return device;
}

/* A graph with layouts, aliases of an input and of an inner tensor, and integers in it. */
#define GRAPH                                                                                      \
    "input x FP32[2,16,6,6]\n"                                                                     \
    "input i INT64[3]\n"                                                                           \
    "f = reshape \"f\" (x) shape=2,576\n"                                                          \
    "a = conv \"a\" (x, w FP32[32,16,3,3]) pads=1,1,1,1 then relu\n"                               \
    "b = conv \"b\" (a, v FP32[16,32,1,1])\n"                                                      \
    "r = reshape \"r\" (b) shape=2,576\n"                                                          \
    "s = binary \"s\" (r, f) func=add\n"                                                           \
    "g = gather \"g\" (s, i) axis=1\n"                                                             \
    "c = cast \"c\" (g) to=9\n"                                                                    \
    "y = softmax \"y\" (s) axis=1\n"                                                               \
    "output y\noutput c\n"

struct shown {
    const struct ir_graph *graph;
    float **values; /* by tensor */
    uint32_t n;
    bool fail;
};

static enum status note(void *user, const struct observed *value, struct error *err)
{
    struct shown *s = user;
    size_t n = 0;
    assert_null(s->values[value->tensor]); /* once */
    assert_true(shape_elements(&ir_tensor(s->graph, value->tensor)->shape, &n));
    assert_int_equal(value->n, n);
    s->values[value->tensor] = malloc((n + 1) * sizeof(float));
    memcpy(s->values[value->tensor], value->values, n * sizeof(float));
    s->n++;
    return s->fail && s->n == 3 ? error_set(err, STATUS_CANCELLED, "enough") : STATUS_OK;
}

static void forget(struct shown *s)
{
    for (uint32_t i = 0; i < s->graph->n_tensors; i++) {
        free(s->values[i]);
        s->values[i] = NULL;
    }
    s->n = 0;
}

static struct shown observe(const struct ir_graph *g, struct device *device,
                            const void *const *inputs)
{
    struct observer *observer = NULL;
    struct shown s = {.graph = g, .values = calloc(g->n_tensors, sizeof(float *))};
    struct error err;
    must(observer_new(g, device, NULL, NULL, &observer, &err), &err);
    must(observer_run(observer, inputs, note, &s, &err), &err);
    forget(&s);
    s.fail = true; /* a look that fails ends the run, and the next run is a whole one again */
    assert_int_equal(observer_run(observer, inputs, note, &s, &err), STATUS_CANCELLED);
    assert_int_equal(s.n, 3);
    forget(&s);
    s.fail = false;
    must(observer_run(observer, inputs, note, &s, &err), &err);
    observer_free(observer);
    return s;
}

static void compare(const struct shown *a, const struct shown *b)
{
    for (uint32_t i = 0; i < a->graph->n_tensors; i++) {
        const struct ir_tensor *t = ir_tensor(a->graph, i);
        size_t n = 0;
        bool wanted = dtype_is_float(t->dtype) && !ir_tensor_is_constant(t);
        if (wanted != !!a->values[i] || wanted != !!b->values[i])
            fail_msg("'%s' was %s", t->name, wanted ? "not shown" : "shown");
        assert_true(shape_elements(&t->shape, &n));
        for (size_t k = 0; wanted && k < n; k++)
            if (fabsf(a->values[i][k] - b->values[i][k]) > 1e-4F)
                fail_msg("'%s' [%zu]: %g and %g", t->name, k, (double)a->values[i][k],
                         (double)b->values[i][k]);
    }
}

static void every_float_is_shown_once_on_every_device(void **state UNUSED)
{
    struct ir_graph *g = graph_parse(GRAPH);
    const struct ir_scale scale = {.n = 1, .dtype = DTYPE_I8, .step = (const float[]){0.125F}};
    for (uint32_t k = 0; k < g->n_tensors; k++) /* 8 bits would be allowed */
        if (dtype_is_float(ir_tensor(g, k)->dtype))
            ir_tensor(g, k)->range = ir_scale_add(g, &scale);
    struct device *devices[] = {open_cpu(true), open_cpu(false), mock_simulate()};
    float x[2 * 16 * 36];
    const int64_t i[3] = {5, 0, 575};
    const void *inputs[] = {x, i};
    struct shown shown[3];
    fill_random(DTYPE_F32, x, ARRAY_LEN(x), 3);
    for (int k = 0; k < 3; k++)
        shown[k] = observe(g, devices[k], inputs);
    assert_memory_equal(shown[0].values[g->inputs[0]], x, sizeof(x));
    compare(&shown[0], &shown[1]);
    compare(&shown[0], &shown[2]);
    for (int k = 0; k < 3; k++) {
        forget(&shown[k]);
        free(shown[k].values);
        engine_device_close(devices[k]);
    }
    for (uint32_t k = 0; k < g->n_nodes; k++)
        assert_null(ir_node(g, k)->tactic); /* the graph is as it was */
    ir_graph_free(g);
}

/* --- calibration --- */

static struct quant_table *calibrate(struct device *device, float scale, enum quant_method method)
{
    const struct build_options options = {.device = device, .evaluator = {.eval = cpu_eval_node}};
    struct calibration *c = NULL;
    struct onnx_model *model = NULL;
    struct quant_table *table = NULL;
    struct calibration_report report;
    struct error err;
    float image[PIXELS];
    const void *inputs[] = {image};
    must(onnx_open(DIGITS, &model, &err), &err);
    must(calibration_new(model, &options, &c, &err), &err);
    assert_int_equal(calibration_graph(c)->n_inputs, 1);
    assert_int_equal(calibration_table(c, method, 99, &table, &report, &err),
                     STATUS_FAILED_PRECONDITION);
    for (uint64_t i = 0; i < SAMPLES; i++) {
        fill_random(DTYPE_F32, image, PIXELS, i);
        for (int k = 0; k < PIXELS; k++)
            image[k] = scale * fabsf(image[k]);
        must(calibration_add(c, inputs, &err), &err);
    }
    must(calibration_table(c, method, 99, &table, &report, &err), &err);
    assert_int_equal(report.samples, SAMPLES);
    assert_int_equal(report.tensors, quant_table_size(table));
    calibration_free(c);
    onnx_close(model);
    return table;
}

/* The CPU's table and that of a device far away say the same. */
static void devices_agree_on_ranges(void **state UNUSED)
{
    for (int method = 0; method <= QUANT_ENTROPY; method++) {
        struct device *cpu = open_cpu(false), *far = mock_simulate();
        struct quant_table *a = calibrate(cpu, 1, (enum quant_method)method);
        struct quant_table *b = calibrate(far, 1, (enum quant_method)method);
        assert_true(quant_table_size(a) >= 8);
        for (uint32_t i = 0; i < quant_table_size(a); i++) {
            const struct quant_row *row = quant_table_at(a, i);
            const struct quant_row *other = quant_table_find(b, row->name, NULL);
            if (!other)
                continue; /* the passes differ */
            assert_int_equal(row->dtype, other->dtype);
            assert_true(fabsf(row->step - other->step) <= 1e-3F * row->step);
        }
        assert_non_null(quant_table_find(b, "image", NULL));
        quant_table_free(a);
        quant_table_free(b);
        engine_device_close(cpu);
        engine_device_close(far);
    }
}

static void what_is_always_zero_or_infinite_is_told(void **state UNUSED)
{
    struct device *cpu = open_cpu(true);
    struct quant_table *zeros = calibrate(cpu, 0, QUANT_ENTROPY);
    struct quant_table *huge = calibrate(cpu, 3e38F, QUANT_MINMAX);
    const struct quant_row *image = quant_table_find(zeros, "image", NULL);
    assert_true(image->dtype == DTYPE_U8 && image->high == 1);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < quant_table_size(huge); i++)
        kept += quant_table_at(huge, i)->dtype == DTYPE_NONE;
    assert_in_range(kept, 1, quant_table_size(huge) - 1);
    assert_true(quant_table_find(huge, "image", NULL)->high > 2e38F);
    quant_table_free(zeros);
    quant_table_free(huge);
    engine_device_close(cpu);
}

/* --- builds --- */

static void a_build_wants_ranges_of_its_model(void **state UNUSED)
{
    static const uint32_t one[] = {1};
    struct device *cpu = open_cpu(false);
    struct quant_table *good = calibrate(cpu, 1, QUANT_ENTROPY);
    struct quant_table *other = quant_table_new("00000000000000000000000000000000");
    struct build_report report;
    struct build_options options = {.device = cpu,
                                    .evaluator = {.eval = cpu_eval_node},
                                    .no_timing = true,
                                    .batches = one,
                                    .n_batches = 1,
                                    .report = &report};
    struct onnx_model *model = NULL;
    struct plan *plan = NULL;
    struct error err;
    must(onnx_open(DIGITS, &model, &err), &err);
    options.ranges = good;
    assert_int_equal(build_plan(model, &options, &plan, &err), STATUS_INVALID_ARGUMENT);
    options.precision = PRECISION_I8;
    must(build_plan(model, &options, &plan, &err), &err);
    plan_free(plan);
    assert_true(report.ranges.used >= 5 && report.ranges.weights >= 5);
    assert_int_equal(report.ranges.missing, 0);
    options.ranges = other;
    assert_int_equal(build_plan(model, &options, &plan, &err), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "another model"));
    options.ranges = NULL;
    assert_int_equal(build_plan(model, &options, &plan, &err), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "no range is known for tensor 'image'"));
    options.keep_missing = true;
    must(build_plan(model, &options, &plan, &err), &err);
    assert_int_equal(report.ranges.missing, 5);
    plan_free(plan);
    options.precision = PRECISION_F8; /* emulated on the CPU */
    options.ranges = good;
    must(build_plan(model, &options, &plan, &err), &err);
    plan_free(plan);
    assert_true(report.ranges.used >= 5 && report.ranges.weights >= 5);
    onnx_close(model);
    quant_table_free(good);
    quant_table_free(other);
    engine_device_close(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_float_is_shown_once_on_every_device),
        cmocka_unit_test(devices_agree_on_ranges),
        cmocka_unit_test(what_is_always_zero_or_infinite_is_told),
        cmocka_unit_test(a_build_wants_ranges_of_its_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
