/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats with a scale from end to end: 8 bits that only the mock has kernels for (mock.h) go
 * through the tuner's table and assignment, a plan file and the runtime. Nothing of the product
 * quantises.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "base/file_read.h"
#include "engine/build/build.h"
#include "engine/engine.h"
#include "engine/plan/format.h"
#include "engine/tune/internal.h"
#include "tests/test.h"
#include "tests/unit/tune/net.h"
#include "tests/unit/mock/mock.h"

enum { CHANNELS = 16, IMAGE = CHANNELS * 8 * 8 };

static struct device *device;

static int set_up(void **state UNUSED)
{
    device = mock_simulate();
    mock_script(device)->bytes = true;
    return 0;
}

static int tear_down(void **state UNUSED)
{
    engine_device_close(device); /* checks that all of it came back */
    return 0;
}

/* --- a network whose tensors have ranges --- */

/* Gives the tensor one pair for all, or one pair for each index of the first dimension. With a zero
 * point the range is from the least to the largest value, else it is symmetric around 0. */
static void set_range(struct ir_graph *g, uint32_t tensor, const float *values, bool channels,
                      bool zeros)
{
    struct ir_tensor *t = ir_tensor(g, tensor);
    float step[CHANNELS];
    int32_t zero[CHANNELS];
    size_t n, parts = channels ? (size_t)t->shape.dim[0] : 1;
    assert_true(shape_elements(&t->shape, &n) && parts <= CHANNELS);
    for (size_t p = 0; p < parts; p++) {
        float low = 0, high = 0;
        for (size_t i = p * n / parts; i < (p + 1) * n / parts; i++) {
            low = fminf(low, values[i]);
            high = fmaxf(high, values[i]);
        }
        step[p] = zeros ? (high - low) / 255 : fmaxf(-low, high) / 127;
        zero[p] = zeros ? 130 : 0;
        step[p] *= zeros ? 2.2F : 1;
    }
    const struct ir_scale scale = {
        .n = (uint32_t)parts, .axis = 0, .step = step, .zero = zeros ? zero : NULL};
    uint32_t number = ir_scale_add(g, &scale);
    assert_int_not_equal(number, IR_NO_SCALE);
    ir_tensor(g, tensor)->range = number;
}

static uint32_t unary(struct ir_graph *g, const char *name, enum ir_unary func, uint32_t x)
{
    uint32_t node = net_node(g, IR_OP_UNARY, name, 1, &x);
    net_int(g, node, IR_ATTR_FUNC, func);
    return net_infer(g, node);
}

/* x -> abs -> conv -> tanh -> conv -> y. The inputs and weights of both convolutions have ranges,
 * and so has the output of the first one; x and y have none. */
static struct ir_graph *network(void)
{
    struct ir_graph *g = ir_graph_new();
    uint32_t t[5];
    float *values[3];
    t[0] = net_input(g, (int64_t[]){1, CHANNELS, 8, 8, 0});
    t[1] = unary(g, "abs", IR_UNARY_ABS, t[0]);
    t[2] = net_conv(g, t[1], CHANNELS, 3, 1);
    t[3] = unary(g, "tanh", IR_UNARY_TANH, t[2]);
    t[4] = net_conv(g, t[3], CHANNELS, 3, 1);
    for (int i = 1; i <= 3; i++)
        net_output(g, t[i]);
    net_reference(g, values);
    g->n_outputs = 0;
    net_output(g, t[4]);
    for (int i = 1; i <= 3; i++) {
        set_range(g, t[i], values[i - 1], false, i == 3);
        free(values[i - 1]);
    }
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (ir_node(g, i)->op == IR_OP_CONV) {
            uint32_t w = ir_node(g, i)->inputs[1];
            set_range(g, w, ir_tensor(g, w)->data, true, false);
        }
    return g;
}

/* Convolutions are fast if they read 8 bits, and the first one and abs also if they write them;
 * tanh wants floats on both sides. */
static uint64_t floats_are_slow(const struct ir_graph *graph, const struct ir_node *node,
                                const struct tactic *tactic UNUSED)
{
    bool in = ir_tensor(graph, node->inputs[0])->scale,
         out = ir_tensor(graph, node->outputs[0])->scale;
    if (node->op == IR_OP_REFORMAT)
        return 1000;
    if (node->op == IR_OP_CONV)
        return in ? 10000 - 5000 * out : 100000;
    bool tanh = ir_attr_int(node, IR_ATTR_FUNC) == IR_UNARY_TANH;
    return tanh ? (in || out ? 90000 : 3000) : out ? 1000 : 5000;
}

static struct ir_graph *tuned_network(struct tune_report *report)
{
    struct tune_options options = {.device = device, .precision = PRECISION_F32, .seed = 3};
    struct ir_graph *g = network();
    struct error err;
    mock_script(device)->cost = floats_are_slow;
    if (tune_graph(g, &options, report, &err))
        fail_msg("%s", err.text);
    return g;
}

/* A build for 8 bits times what stores floats alone no more if another build has. */
static void floats_are_timed_once_for_all_precisions(void **state UNUSED)
{
    struct tune_cache *cache;
    assert_int_equal(tune_cache_new(device, &cache, NULL), STATUS_OK);
    struct tune_options options = {
        .device = device, .precision = PRECISION_F32, .seed = 3, .cache = cache};
    struct tune_report floats, bytes, alone;
    struct ir_graph *plain = network(), *ranged = network(), *fresh = tuned_network(&alone);
    for (uint32_t i = 0; i < plain->n_tensors; i++)
        ir_tensor(plain, i)->range = IR_NO_SCALE;
    assert_int_equal(tune_graph(plain, &options, &floats, NULL), STATUS_OK);
    assert_int_equal(tune_graph(ranged, &options, &bytes, NULL), STATUS_OK);
    assert_int_equal(bytes.time_ns, alone.time_ns);
    assert_true(bytes.from_cache >= floats.timed - floats.from_cache);
    assert_int_equal(bytes.timed + bytes.from_cache, alone.timed);
    ir_graph_free(plain);
    ir_graph_free(ranged);
    ir_graph_free(fresh);
    tune_cache_free(cache);
}

static const struct ir_tensor *end(const struct ir_graph *g, uint32_t node, bool output)
{
    const struct ir_node *n = ir_node(g, node);
    return ir_tensor(g, output ? n->outputs[0] : n->inputs[0]);
}

/* --- the tuner --- */

static void the_cheapest_way_mixes_bytes_and_floats(void **state UNUSED)
{
    static const struct {
        enum ir_op op;
        enum dtype in, out;
    } rows[] = {
        {IR_OP_UNARY, DTYPE_F32, DTYPE_I8},    {IR_OP_CONV, DTYPE_I8, DTYPE_I8},
        {IR_OP_REFORMAT, DTYPE_I8, DTYPE_F32}, {IR_OP_UNARY, DTYPE_F32, DTYPE_F32},
        {IR_OP_REFORMAT, DTYPE_F32, DTYPE_U8}, {IR_OP_CONV, DTYPE_U8, DTYPE_F32},
    };
    struct tune_report report;
    struct ir_graph *plain = network(), *g = tuned_network(&report);
    float *want, *got;
    assert_int_equal(g->n_nodes, ARRAY_LEN(rows));
    assert_int_equal(report.reformats, 2);
    assert_int_equal(report.time_ns, 1000 + 5000 + 1000 + 3000 + 1000 + 10000);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct ir_tensor *x = end(g, i, false), *y = end(g, i, true);
        assert_int_equal(ir_node(g, i)->op, rows[i].op);
        assert_int_equal(x->dtype, rows[i].in);
        assert_int_equal(y->dtype, rows[i].out);
        assert_int_equal(ir_tensor_type(x), DTYPE_F32);
        assert_int_equal(y->scale, rows[i].out == DTYPE_F32 ? IR_NO_SCALE : y->range);
        assert_true(ir_format_equal(ir_node(g, i)->tactic->out[0].format, y->format));
        if (rows[i].op == IR_OP_CONV) {
            const struct ir_tensor *w = ir_tensor(g, ir_node(g, i)->inputs[1]);
            assert_int_equal(w->format.dtype, DTYPE_I8);
            assert_int_equal(ir_scale(g, w->scale)->n, CHANNELS);
            assert_int_equal(w->bytes, CHANNELS * CHANNELS * 3 * 3);
        }
    }
    net_reference(plain, &want);
    net_run(device, NULL, g, &got);
    double e = net_error(plain, 0, got, want);
    if (!(e > 1e-5 && e < 3e-2)) /* quantised, and right */
        fail_msg("error %g", e);
    free(want);
    free(got);
    ir_graph_free(plain);
    ir_graph_free(g);
}

/* Reformats cost more than they save, so all formats stay as the graph has them. */
static uint64_t little_to_gain(const struct ir_graph *graph, const struct ir_node *node,
                               const struct tactic *tactic UNUSED)
{
    bool in = ir_tensor(graph, node->inputs[0])->scale;
    bool out = ir_tensor(graph, node->outputs[0])->scale;
    if (node->op == IR_OP_REFORMAT)
        return in || out ? 3000 : 1000;
    return 5000 - 900 * (node->op == IR_OP_CONV && in) + 3000 * out;
}

static void bytes_are_not_forced(void **state UNUSED)
{
    struct tune_options options = {.device = device, .precision = PRECISION_F32, .seed = 3};
    struct ir_graph *g = network();
    mock_script(device)->cost = little_to_gain;
    assert_int_equal(tune_graph(g, &options, NULL, NULL), STATUS_OK);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        assert_int_equal(end(g, i, false)->scale, IR_NO_SCALE);
    ir_graph_free(g);
}

/* The same costs; but who wishes for 8 bits gets them, and hears what that takes. */
static void bytes_are_taken_where_they_are_wished(void **state UNUSED)
{
    static const struct tune_pins pins = {1,
                                          {{.layer = "*",
                                            .kind = TUNE_PIN_PRECISION,
                                            .what = "int8",
                                            .said = "pin *=~int8",
                                            .precision = PRECISION_I8,
                                            .wishes = true}}};
    struct tune_options options = {
        .device = device, .precision = PRECISION_I8, .seed = 3, .pins = &pins};
    struct tune_report report = {0};
    struct ir_graph *g = network();
    struct error err;
    uint32_t convs = 0;
    mock_script(device)->cost = little_to_gain;
    must(tune_graph(g, &options, &report, &err), &err);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        bool conv = ir_node(g, i)->op == IR_OP_CONV;
        assert_true(!conv || dtype_size(end(g, i, false)->dtype) == 1);
        convs += conv;
    }
    assert_int_equal(convs, 2);
    assert_true(report.time_ns >= 4 * 5000 - 2 * 900 && report.time_ns < 100000);
    ir_graph_free(g);
}

/* Without ranges, int8 on a device is fp16: the same candidates, with times from the same cache. */
static void what_has_no_range_is_in_16_bits(void **state UNUSED)
{
    static const enum precision precisions[] = {PRECISION_F16, PRECISION_I8, PRECISION_F8};
    struct tune_options options = {.device = device, .seed = 3};
    struct ir_graph *g[ARRAY_LEN(precisions)];
    struct error err;
    must(tune_cache_new(device, &options.cache, &err), &err);
    mock_script(device)->cost = mock_cost;
    for (size_t k = 0; k < ARRAY_LEN(precisions); k++) {
        struct tune_report report = {0};
        g[k] = network();
        for (uint32_t i = 0; i < g[k]->n_tensors; i++)
            ir_tensor(g[k], i)->range = IR_NO_SCALE;
        options.precision = precisions[k];
        must(tune_graph(g[k], &options, &report, &err), &err);
        assert_int_equal(report.timed == 0, k > 0);
        assert_int_equal(g[k]->n_nodes, g[0]->n_nodes);
        for (uint32_t i = 0; i < g[0]->n_nodes; i++)
            assert_int_equal(end(g[k], i, true)->dtype, end(g[0], i, true)->dtype);
    }
    assert_int_equal(end(g[0], 1, true)->dtype, DTYPE_F16);
    for (size_t k = 0; k < ARRAY_LEN(precisions); k++)
        ir_graph_free(g[k]);
    tune_cache_free(options.cache);
}

/* --- plan and runtime --- */

/* A plan of a tuned graph with one input and one output, both of IMAGE floats. */
static struct plan *plan_of(struct ir_graph *g)
{
    struct plan *plan = plan_new();
    struct error err;
    struct shape shape = {.rank = 4, .dim = {1, CHANNELS, 8, 8}};
    plan->profiles[0].graph = g;
    plan->n_profiles = plan->n_inputs = plan->n_outputs = 1;
    plan->profiles[0].batch = 1;
    plan->name = g->name = "bytes";
    plan->inputs[0] = (struct plan_binding){"x", DTYPE_F32, shape};
    plan->outputs[0] = (struct plan_binding){"y", DTYPE_F32, shape};
    plan_device_line(plan->device, "mock", NULL);
    if (build_place(g, &plan->profiles[0].tensor_bytes, &err) || plan_check(plan, &err))
        fail_msg("%s", err.text);
    return plan;
}

static struct plan *make_plan(struct tune_report *report)
{
    return plan_of(tuned_network(report));
}

static void write_plan(const struct plan *plan, char path[64])
{
    struct error err;
    snprintf(path, 64, "/tmp/inferd-scales-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    if (plan_write(path, plan, &err))
        fail_msg("%s", err.text);
}

static void same_scales(const struct ir_graph *a, const struct ir_graph *b)
{
    assert_int_equal(a->n_scales, b->n_scales);
    for (uint32_t i = 1; i <= a->n_scales; i++) {
        const struct ir_scale *x = ir_scale(a, i), *y = ir_scale(b, i);
        assert_int_equal(x->n, y->n);
        assert_int_equal(x->axis, y->axis);
        assert_memory_equal(x->step, y->step, x->n * sizeof(*x->step));
        assert_int_equal(x->zero != NULL, y->zero != NULL);
        if (x->zero)
            assert_memory_equal(x->zero, y->zero, x->n * sizeof(*x->zero));
    }
    for (uint32_t i = 0; i < a->n_tensors; i++)
        assert_true(ir_format_equal(ir_tensor(a, i)->format, ir_tensor(b, i)->format));
}

static enum status run(const char *path, const float *in, float *out, struct error *err)
{
    struct engine *engine = NULL;
    struct lane *lane = NULL;
    struct context *ctx = NULL;
    const struct context_options options = {.no_capture = true};
    struct engine_span span = {in, IMAGE * sizeof(*in)};
    struct engine_input input = {&span, 1};
    enum status status = engine_load(device, path, &engine, err);
    if (!status)
        status = lane_new(device, &lane, err);
    if (!status)
        status = context_new_with(engine, lane, &options, &ctx, err);
    if (!status)
        status = context_enqueue(ctx, 1, &input, out, err);
    if (!status)
        status = context_wait(ctx, NULL, err);
    context_free(ctx);
    lane_free(lane);
    engine_unref(engine);
    return status;
}

static void a_plan_keeps_scales_and_runs(void **state UNUSED)
{
    struct tune_report report;
    struct plan *plan = make_plan(&report), *read;
    struct ir_graph *plain = network();
    struct error err;
    char path[64];
    float *want, in[IMAGE], *out = calloc(IMAGE, sizeof(*out));
    write_plan(plan, path);
    if (plan_read(path, &read, &err))
        fail_msg("%s", err.text);
    same_scales(plan->profiles[0].graph, read->profiles[0].graph);
    plan_free(read);
    net_input_fill(ir_tensor(plain, plain->inputs[0]), 0, in);
    if (run(path, in, out, &err))
        fail_msg("%s", err.text);
    net_reference(plain, &want);
    double e = net_error(plain, 0, out, want);
    if (!(e > 1e-5 && e < 3e-2))
        fail_msg("error %g", e);
    /* A backend that has no kernels for scales says so. */
    ((struct backend *)(uintptr_t)device->backend)->features = 0;
    assert_int_equal(run(path, in, out, &err), STATUS_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "no kernels for 8 bits with a scale"));
    unlink(path);
    free(out);
    free(want);
    ir_graph_free(plain);
    plan_free(plan);
}

/* x -> abs -> conv_chain -> y + t; the chain adds its input to y. All between have ranges. */
static struct ir_graph *chain_network(void)
{
    static const int64_t relu[] = {IR_UNARY_RELU, IR_UNARY_RELU};
    const int64_t square[] = {CHANNELS, CHANNELS, 1, 1, 0}, each[] = {CHANNELS, 0};
    struct ir_graph *g = ir_graph_new();
    float *values[3];
    uint32_t t[3], x = net_input(g, (int64_t[]){1, CHANNELS, 8, 8, 0});
    t[0] = unary(g, "abs", IR_UNARY_ABS, x);
    uint32_t in[IR_CHAIN_INPUTS] = {t[0],
                                    net_constant(g, square),
                                    net_constant(g, square),
                                    IR_NONE,
                                    IR_NONE,
                                    net_constant(g, each),
                                    t[0],
                                    net_constant(g, each)};
    uint32_t node = net_node(g, IR_OP_CONV_CHAIN, "chain", IR_CHAIN_INPUTS, in);
    net_ints(g, node, IR_ATTR_FUNCS, 2, relu);
    t[1] = net_infer(g, node);
    t[2] = ir_node(g, node)->outputs[1];
    uint32_t sum = net_node(g, IR_OP_BINARY, "sum", 2, &t[1]);
    net_int(g, sum, IR_ATTR_FUNC, IR_BINARY_ADD);
    uint32_t y = net_infer(g, sum);
    for (int i = 0; i < 3; i++)
        net_output(g, t[i]);
    net_reference(g, values);
    g->n_outputs = 0;
    net_output(g, y);
    for (int i = 0; i < 3; i++) {
        set_range(g, t[i], values[i], false, i == 1);
        free(values[i]);
    }
    for (uint32_t i = 1; i <= IR_CHAIN_NEXT; i++)
        set_range(g, in[i], ir_tensor(g, in[i])->data, true, false);
    return g;
}

static uint64_t chains_of_bytes(const struct ir_graph *graph, const struct ir_node *node,
                                const struct tactic *tactic UNUSED)
{
    bool bytes = ir_tensor(graph, node->inputs[0])->scale != IR_NO_SCALE;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        bytes = bytes && ir_tensor(graph, node->outputs[i])->scale != IR_NO_SCALE;
    return node->op == IR_OP_CONV_CHAIN && !bytes ? 100000 : 1000;
}

/* Each result has its own scale, in the tuner, the plan and the runtime. */
static void a_node_stores_two_results_in_bytes(void **state UNUSED)
{
    struct tune_options options = {.device = device, .precision = PRECISION_I8, .seed = 3};
    struct ir_graph *g = chain_network(), *plain = chain_network();
    struct tune_report report;
    struct error err;
    char path[64];
    float *want, in[IMAGE], out[IMAGE] = {0};
    mock_script(device)->cost = chains_of_bytes;
    if (tune_graph(g, &options, &report, &err))
        fail_msg("%s", err.text);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; ir_node(g, i)->op == IR_OP_CONV_CHAIN && k < 2; k++) {
            const struct ir_tensor *y = ir_tensor(g, ir_node(g, i)->outputs[k]);
            assert_int_equal(y->dtype, k ? DTYPE_I8 : DTYPE_U8);
            assert_true(y->scale != IR_NO_SCALE && y->scale == y->range);
        }
    struct plan *plan = plan_of(g), *read;
    write_plan(plan, path);
    if (plan_read(path, &read, &err))
        fail_msg("%s", err.text);
    same_scales(g, read->profiles[0].graph);
    plan_free(read);
    net_input_fill(ir_tensor(plain, plain->inputs[0]), 0, in);
    if (run(path, in, out, &err))
        fail_msg("%s", err.text);
    net_reference(plain, &want);
    double e = net_error(plain, 0, out, want);
    if (!(e > 1e-5 && e < 3e-2))
        fail_msg("error %g", e);
    unlink(path);
    free(want);
    ir_graph_free(plain);
    plan_free(plan);
}

static void refuse(const struct plan *plan, const char *text)
{
    struct error err;
    assert_int_not_equal(plan_check(plan, &err), STATUS_OK);
    if (!strstr(err.text, text))
        fail_msg("'%s' does not say '%s'", err.text, text);
}

static void damaged_scales_are_refused(void **state UNUSED)
{
    static const float bad[] = {NAN, 0, -1, INFINITY};
    struct tune_report report;
    struct plan *plan = make_plan(&report);
    struct ir_graph *g = plan->profiles[0].graph;
    float *step = (float *)(uintptr_t)g->scales[1].step, was = *step;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        *step = bad[i];
        refuse(plan, "scale 2 has the step");
    }
    *step = was;
    struct ir_tensor *t = ir_tensor(g, ir_node(g, 1)->outputs[0]);
    struct ir_format good = t->format;
    t->scale = g->n_scales + 1;
    refuse(plan, "names scale 6 of 5");
    t->scale = IR_NO_SCALE; /* 8 bits without a meaning */
    refuse(plan, "cannot be stored as INT8");
    t->scale = 4; /* the weights' scale has a pair for each channel of the first dimension */
    refuse(plan, "cannot be stored as INT8");
    t->scale = 3; /* this scale's zero point does not fit INT8 */
    refuse(plan, "cannot be stored as INT8");
    t->scale = 1; /* not the scale by which the tensor's maker quantises */
    refuse(plan, "another format than its node's tactic wants");
    t->format = good;
    t->real = DTYPE_I32;
    refuse(plan, "cannot be stored as INT8");
    t->real = DTYPE_F32;
    assert_int_equal(plan_check(plan, NULL), STATUS_OK);
    plan_free(plan);
}

/* The same checks on the bytes of a file whose digest is right. */
static void damaged_files_are_refused(void **state UNUSED)
{
    static const float bad[] = {NAN, 0, -1};
    struct tune_report report;
    struct plan *plan = make_plan(&report), *read = NULL;
    const float *step = ir_scale(plan->profiles[0].graph, 2)->step;
    char path[64];
    struct error err;
    write_plan(plan, path);
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        FILE *file = fopen(path, "re");
        size_t room = 1 << 20;
        uint8_t *data = aligned_alloc(64, room);
        assert_true(file && data);
        size_t size = fread(data, 1, room, file);
        fclose(file);
        assert_true(size < room);
        struct plan_header *h = (struct plan_header *)(void *)data;
        uint8_t *at = memmem(data + sizeof(*h), h->structure_size, step, sizeof(*step));
        assert_non_null(at);
        memcpy(at, &bad[i], sizeof(bad[i]));
        plan_digest(h, XXH3_128bits(data + sizeof(*h), size - sizeof(*h)), h->digest);
        assert_int_not_equal(plan_read_memory(data, size, &read, &err), STATUS_OK);
        assert_non_null(strstr(err.text, "scale 2 has the step"));
        free(data);
    }
    unlink(path);
    plan_free(plan);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(the_cheapest_way_mixes_bytes_and_floats),
        TEST(bytes_are_not_forced),
        TEST(floats_are_timed_once_for_all_precisions),
        TEST(bytes_are_taken_where_they_are_wished),
        TEST(what_has_no_range_is_in_16_bits),
        TEST(a_plan_keeps_scales_and_runs),
        TEST(a_node_stores_two_results_in_bytes),
        TEST(damaged_scales_are_refused),
        TEST(damaged_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
