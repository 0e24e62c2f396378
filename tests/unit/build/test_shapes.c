/* SPDX-License-Identifier: Apache-2.0 */
/* What users say of sizes, and the points that follow. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/build/build.h"
#include "engine/cpu/eval.h"
#include "engine/engine.h"
#include "tests/test.h"
#include "tests/unit/import/wire.h"

/* A model of a graph whose output is y; its bytes have to stay. */
static struct onnx_model *graph_open(struct wire *graph, struct wire *bytes)
{
    struct onnx_model *model;
    struct error err;
    wire_output(graph, "y");
    wire_model(bytes, graph, 13);
    if (onnx_open_memory(bytes->data, bytes->n, &model, &err))
        fail_msg("%s", err.text);
    return model;
}

/* Two inputs [n, ?, 4], whose middles are two dimensions, and their sum's Relu. */
static struct onnx_model *model_open(struct wire *bytes)
{
    struct wire graph = {.n = 0};
    static const int64_t any[] = {-1, -3, 4};
    wire_input(&graph, "x", 1, 3, any);
    wire_input(&graph, "z", 1, 3, any);
    wire_node(&graph, "Add", "x z", "sum", NULL);
    wire_node(&graph, "Relu", "sum", "y", NULL);
    return graph_open(&graph, bytes);
}

static void ranges_are_read(void **state UNUSED)
{
    struct build_range r;
    struct error err;
    assert_int_equal(build_range_parse("a=b=1..8x*x3x4", &r, &err), STATUS_OK);
    assert_string_equal(r.input, "a=b");
    assert_int_equal(r.rank, 4);
    assert_int_equal(r.low[0], 1);
    assert_int_equal(r.high[0], 8);
    assert_int_equal(r.low[1], 0);
    assert_int_equal(r.high[2], 3);
    assert_int_equal(build_range_parse("h=2xNx*", &r, &err), STATUS_OK);
    assert_int_equal(r.low[1], BUILD_INSTANCES);
    assert_int_equal(r.high[1], BUILD_INSTANCES);
    static const char *const wrong[] = {"",
                                        "x=N..3",
                                        "x=1..N",
                                        "x=NN",
                                        "x",
                                        "x=",
                                        "=1",
                                        "x=0",
                                        "x=8..1",
                                        "x=1x",
                                        "x=1..",
                                        "x=x1",
                                        "x=1,2",
                                        "x=-1",
                                        "x=1..2..3",
                                        "x=99999999999999",
                                        "x=1 x2",
                                        "x=1x**",
                                        "x=0..4",
                                        "x=1x2y",
                                        "x=1x1x1x1x1x1x1x1x1",
                                        "x=99999999999999999999999"};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        if (build_range_parse(wrong[i], &r, &err) != STATUS_INVALID_ARGUMENT)
            fail_msg("'%s' was taken", wrong[i]);
}

static void sizes_are_read(void **state UNUSED)
{
    struct build_sizes s;
    struct error err;
    assert_int_equal(build_sizes_parse("x:1=32,64", &s, &err), STATUS_OK);
    assert_string_equal(s.name, "x:1");
    assert_int_equal(s.n, 2);
    assert_int_equal(s.values[1], 64);
    static const char *const wrong[] = {"", "x", "x=", "x=1,", "x=,1", "x=0", "x=1..2", "x=1,2 "};
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        if (build_sizes_parse(wrong[i], &s, &err) != STATUS_INVALID_ARGUMENT)
            fail_msg("'%s' was taken", wrong[i]);
}

struct said {
    const char *ranges[3], *sizes[3], *error; /* NULL: it is well */
};

static enum status space_of(const struct onnx_model *model, const struct said *said,
                            struct arena *arena, struct build_space *space, struct error *err)
{
    static struct build_range ranges[3];
    static struct build_sizes sizes[3];
    struct build_wishes wishes = {.ranges = ranges, .sizes = sizes};
    for (; said->ranges[wishes.n_ranges]; wishes.n_ranges++)
        assert_int_equal(
            build_range_parse(said->ranges[wishes.n_ranges], &ranges[wishes.n_ranges], err), 0);
    for (; said->sizes[wishes.n_sizes]; wishes.n_sizes++)
        assert_int_equal(
            build_sizes_parse(said->sizes[wishes.n_sizes], &sizes[wishes.n_sizes], err), 0);
    return build_space_find(model, &wishes, arena, space, err);
}

static void contradictions_are_refused(void **state UNUSED)
{
    static const struct said cases[] = {
        {{"q=1x2x4"}, {NULL}, "no such input; it has 'x', 'z'"},
        {{"x=1x2"}, {NULL}, "2 dimensions are given, and the input has 3"},
        {{"x=1x2x5"}, {NULL}, "the model fixes dimension 2 at 4"},
        {{"x=1..4x2x4", "z=1..8x2x4"}, {NULL}, "elsewhere"},
        {{"x=*x1..8x4", "x=*x1..9x4"}, {NULL}, "1..8 elsewhere"},
        {{"x=*x1..8x4"}, {"x:1=9"}, "9 is not within 1..8"},
        {{"x=*x1..8x4"}, {"z:1=4"}, "no such dimension has a range"},
        {{"x=*x1..8x4"}, {"x:1=4", "x:1=5"}, "given twice"},
    };
    struct wire bytes;
    struct onnx_model *model = model_open(&bytes);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        CLEANUP(arena_cleanup) struct arena *arena = arena_new(0);
        struct build_space space;
        struct error err = {.text = ""};
        assert_int_equal(space_of(model, &cases[i], arena, &space, &err), STATUS_INVALID_ARGUMENT);
        if (!strstr(err.text, cases[i].error))
            fail_msg("expected '%s', got '%s'", cases[i].error, err.text);
    }
    onnx_close(model);
}

static void sizes_are_powers_of_two_up_to_the_most(void **state UNUSED)
{
    static const struct said said = {{"x=1..4x3..384x4", "z=*x7x4"}, {NULL}, NULL};
    static const int64_t expected[] = {16, 32, 64, 128, 256, 384};
    struct wire bytes;
    struct onnx_model *model = model_open(&bytes);
    CLEANUP(arena_cleanup) struct arena *arena = arena_new(0);
    struct build_space space;
    struct error err;
    assert_int_equal(space_of(model, &said, arena, &space, &err), STATUS_OK);
    assert_int_equal(space.n_free, 1);
    assert_string_equal(space.free[0].name, "x:1");
    assert_int_equal(space.batch_high, 4);
    assert_int_equal(space.n_points, ARRAY_LEN(expected));
    for (size_t i = 0; i < ARRAY_LEN(expected); i++)
        assert_int_equal(space.points[i][0], expected[i]);
    assert_int_equal(build_space_free(&space, "x", 1), 1);
    assert_int_equal(build_space_free(&space, "z", 1), 0);
    onnx_close(model);
}

/* For the reference on a CPU, whose device the caller closes. `ranges` must outlive the options. */
static void options_open(struct build_options *options, const struct build_range *ranges,
                         uint32_t n)
{
    struct device_options cpu = {.threads = 1, .reference_only = true};
    struct error err;
    *options = (struct build_options){.evaluator = {.eval = cpu_eval_node}, .no_timing = true};
    assert_int_equal(engine_device_open("cpu", &cpu, &options->device, &err), STATUS_OK);
    options->shapes = ranges;
    options->n_shapes = n;
}

/* Both batch sizes for both points, and weights (here none) once. */
static void points_become_profiles(void **state UNUSED)
{
    struct build_range ranges[2];
    struct build_sizes sizes[2];
    struct build_options options;
    struct wire bytes;
    struct onnx_model *model = model_open(&bytes);
    struct plan *plan;
    struct error err;
    assert_int_equal(build_range_parse("x=1..2x1..8x4", &ranges[0], &err), STATUS_OK);
    assert_int_equal(build_range_parse("z=1..2x1..8x4", &ranges[1], &err), STATUS_OK);
    assert_int_equal(build_sizes_parse("x:1=8,4", &sizes[0], &err), STATUS_OK);
    assert_int_equal(build_sizes_parse("z:1=8", &sizes[1], &err), STATUS_OK);
    options_open(&options, ranges, 2);
    options.sizes = sizes;
    options.n_sizes = 2;
    /* 4 and 8 cannot be added, so that point is left out; 1 and 8 could be. */
    if (build_plan(model, &options, &plan, &err))
        fail_msg("%s", err.text);
    assert_int_equal(plan->n_free, 2);
    assert_int_equal(plan->n_profiles, 2);
    assert_int_equal(plan->profiles[1].values[0], 8);
    assert_int_equal(plan->inputs[1].shape.dim[1], -1);
    assert_int_equal(plan->input_axes[1].free[1], 2);
    assert_int_equal(plan_check(plan, &err), STATUS_OK);
    plan_free(plan);
    /* If all points are wrong, that is an error of the model's. */
    assert_int_equal(build_sizes_parse("x:1=4", &sizes[0], &err), STATUS_OK);
    assert_int_equal(build_plan(model, &options, &plan, &err), STATUS_INVALID_ARGUMENT);
    onnx_close(model);
    engine_device_close(options.device);
}

/* From 2 on they are one: there is a point for each size of the first, and it is padded. */
static void dimensions_that_cannot_differ_are_one(void **state UNUSED)
{
    struct build_range ranges[2];
    struct build_sizes sizes;
    struct build_options options;
    struct wire bytes;
    struct onnx_model *model = model_open(&bytes);
    struct plan *plan;
    struct error err;
    assert_int_equal(build_range_parse("x=1..2x2..8x4", &ranges[0], &err), STATUS_OK);
    assert_int_equal(build_range_parse("z=1..2x2..8x4", &ranges[1], &err), STATUS_OK);
    assert_int_equal(build_sizes_parse("x:1=8,3", &sizes, &err), STATUS_OK);
    options_open(&options, ranges, 2);
    options.sizes = &sizes;
    options.n_sizes = 1;
    if (build_plan(model, &options, &plan, &err))
        fail_msg("%s", err.text);
    assert_int_equal(plan->n_free, 1);
    assert_string_equal(plan->free[0].name, "x:1");
    assert_true(plan->free[0].pads);
    assert_int_equal(plan->n_profiles, 4);
    assert_int_equal(plan->profiles[0].values[0], 3);
    assert_int_equal(plan->profiles[3].values[0], 8);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(plan->input_axes[i].free[1], 1);
    assert_int_equal(plan->output_axes[0].free[1], 1);
    plan_free(plan);
    onnx_close(model);
    engine_device_close(options.device);
}

/* A table and rows of it: two inputs [n, 4] and [k, 4]. */
static struct onnx_model *table_open(struct wire *bytes)
{
    struct wire graph = {.n = 0};
    static const int64_t rows[] = {-1, 4}, table[] = {-2, 4};
    wire_input(&graph, "x", 1, 2, rows);
    wire_input(&graph, "w", 1, 2, table);
    wire_node(&graph, "Transpose", "w", "wt", NULL);
    wire_node(&graph, "MatMul", "x wt", "s", NULL);
    wire_node(&graph, "Softmax", "s", "p", NULL);
    wire_node(&graph, "MatMul", "p w", "y", NULL);
    return graph_open(&graph, bytes);
}

/* A first dimension that counts no instances is as any other one, also if --batch is said. */
static void first_dimensions_have_ranges_of_their_own(void **state UNUSED)
{
    static const uint32_t one[] = {1};
    static const char *const said[][2] = {{"x=7x4", "w=4..32x4"}, {"x=2..16x4", "w=4..32x4"}};
    for (size_t i = 0; i < ARRAY_LEN(said) * 2; i++) {
        struct build_range ranges[2];
        struct build_options options;
        struct wire bytes;
        struct onnx_model *model = table_open(&bytes);
        struct plan *plan;
        struct error err;
        for (int k = 0; k < 2; k++)
            assert_int_equal(build_range_parse(said[i / 2][k], &ranges[k], &err), STATUS_OK);
        options_open(&options, ranges, 2);
        if (i % 2) {
            options.batches = one;
            options.n_batches = 1;
        }
        if (build_plan(model, &options, &plan, &err))
            fail_msg("%zu: %s", i, err.text);
        assert_false(plan->batched);
        assert_int_equal(plan->n_free, i / 2 + 1);
        assert_int_equal(plan->free[i / 2].low, 4);
        assert_int_equal(plan->free[i / 2].high, 32);
        assert_int_equal(plan->n_profiles, i / 2 ? 16 : 4);
        plan_free(plan);
        onnx_close(model);
        engine_device_close(options.device);
    }
}

/* --- plans of several points --- */

static struct plan *points_plan(void)
{
    struct build_range ranges[2];
    struct build_options options;
    struct wire graph = {.n = 0}, bytes;
    static const int64_t any[] = {-1, -2, 4};
    struct plan *plan = NULL;
    struct error err;
    wire_input(&graph, "x", 1, 3, any);
    wire_node(&graph, "Relu", "x", "y", NULL);
    struct onnx_model *model = graph_open(&graph, &bytes);
    assert_int_equal(build_range_parse("x=1..2x4..8x4", &ranges[0], &err), STATUS_OK);
    options_open(&options, ranges, 1);
    if (build_plan(model, &options, &plan, &err))
        fail_msg("%s", err.text);
    onnx_close(model);
    engine_device_close(options.device);
    return plan;
}

static void a_plan_file_keeps_its_points(void **state UNUSED)
{
    char path[] = "/tmp/test_shapes.XXXXXX";
    struct plan *plan = points_plan(), *again = NULL;
    struct error err;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    enum status status = plan_write(path, plan, &err);
    status = status ? status : plan_read(path, &again, &err);
    unlink(path);
    if (status)
        fail_msg("%s", err.text);
    assert_int_equal(again->n_free, 1);
    assert_string_equal(again->free[0].name, "m");
    assert_int_equal(again->free[0].low, 4);
    assert_int_equal(again->free[0].high, 8);
    assert_int_equal(again->n_profiles, 4); /* 4 and 8, each for 1 and 2 instances */
    assert_int_equal(again->profiles[3].values[0], 8);
    assert_int_equal(again->input_axes[0].free[1], 1);
    assert_true(again->free[0].pads); /* a Relu looks at one place at a time */
    assert_int_equal(again->output_axes[0].free[1], 1);
    assert_int_equal(again->outputs[0].shape.dim[1], -1);
    plan_free(again);
    plan_free(plan);
}

static void bend(struct plan *p, int how)
{
    switch (how) {
    case 0:
        p->free[0].low = 0;
        break;
    case 1:
        p->free[0].high = 3;
        break;
    case 2:
        p->free[0].high = INT64_MAX;
        break;
    case 3:
        p->free[0].high = 7;
        break; /* a point lies beyond */
    case 4:
        p->profiles[1].values[0] = 8;
        break; /* a point twice */
    case 5:
        p->profiles[3].values[0] = 4;
        break;
    case 6:
        p->profiles[0].values[0] = p->profiles[1].values[0] = 5;
        break;
    case 7:
        p->input_axes[0].free[1] = 2;
        break; /* there is no such */
    case 8:
        p->input_axes[0].free[1] = 0;
        break;
    case 9:
        p->input_axes[0].free[0] = 1;
        break; /* the batch */
    case 10:
        p->input_axes[0].free[2] = 1;
        break;
    case 11:
        p->input_axes[0].batch = 1;
        break;
    case 12:
        p->input_axes[0].batch = 3;
        break;
    case 13:
        p->input_axes[0].shared = true;
        break;
    case 14:
        p->output_axes[0].shared = true;
        break;
    case 15:
        p->inputs[0].shape.dim[1] = 4;
        break;
    case 16:
        p->outputs[0].shape.dim[1] = 8;
        break;
    case 17:
        p->outputs[0].shape.dim[2] = -1;
        p->outputs[0].shape.dim[1] = 3;
        break;
    case 18:
        p->n_free = 0;
        break;
    case 19:
        p->n_free = PLAN_MAX_FREE + 1;
        break;
    case 20:
        p->profiles[3].batch = 3;
        break;
    case 21:
        p->batched = false;
        break;
    case 22:
        p->output_axes[0].free[2] = 1;
        break;
    default:
        fail_msg("how?");
    }
}

static void bent_points_are_refused(void **state UNUSED)
{
    for (int how = 0; how <= 22; how++) {
        struct plan *plan = points_plan();
        struct error err;
        uint32_t n_profiles = plan->n_profiles;
        assert_int_equal(plan_check(plan, &err), STATUS_OK);
        bend(plan, how);
        if (plan_check(plan, &err) != STATUS_DATA_LOSS)
            fail_msg("bend %d was taken", how);
        plan->n_profiles = n_profiles;
        plan_free(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_are_read),
        cmocka_unit_test(sizes_are_read),
        cmocka_unit_test(contradictions_are_refused),
        cmocka_unit_test(sizes_are_powers_of_two_up_to_the_most),
        cmocka_unit_test(points_become_profiles),
        cmocka_unit_test(dimensions_that_cannot_differ_are_one),
        cmocka_unit_test(first_dimensions_have_ranges_of_their_own),
        cmocka_unit_test(a_plan_file_keeps_its_points),
        cmocka_unit_test(bent_points_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
