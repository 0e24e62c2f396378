/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tuner on a simulated device with several float types, compiled tactics, captures and missing
 * ops, whose clock the tests set (mock.h).
 */
#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "engine/tune/internal.h"
#include "tests/test.h"
#include "tests/unit/tune/net.h"
#include "tests/unit/mock/mock.h"
#include "tests/unit/plugin/sample.h"

static struct device *device, *host;

static int set_up(void **state)
{
    (void)state;
    struct device_options options = {.threads = 1, .reference_only = true};
    device = mock_simulate();
    return (int)engine_device_open("cpu", &options, &host, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    engine_device_close(device); /* checks that all of it came back */
    engine_device_close(host);
    return 0;
}

static struct mock_counts counts(void)
{
    struct mock_counts c;
    mock_read(device, &c);
    return c;
}

static struct tune_options options_of(enum precision precision)
{
    return (struct tune_options){.device = device, .precision = precision, .seed = 3};
}

static void tune(struct ir_graph *g, const struct tune_options *options, struct tune_report *report)
{
    struct error err;
    if (tune_graph(g, options, report, &err))
        fail_msg("%s", err.text);
}

static void check_answers(const struct ir_graph *plain, const struct ir_graph *tuned, double most)
{
    float *want[IR_MAX_IO], *got[IR_MAX_IO];
    struct error err;
    if (ir_verify(tuned, &err))
        fail_msg("%s", err.text);
    net_reference(plain, want);
    net_run(device, host, tuned, got);
    for (uint32_t i = 0; i < plain->n_outputs; i++) {
        double e = net_error(plain, i, got[i], want[i]);
        if (!(e < most))
            fail_msg("output %u: error %g", i, e);
        free(want[i]);
        free(got[i]);
    }
}

static uint32_t count_type(const struct ir_graph *g, enum ir_op op, enum dtype dtype)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        n += (op == IR_OP_NONE || ir_node(g, i)->op == op) &&
             ir_tensor(g, ir_node(g, i)->outputs[0])->dtype == dtype;
    return n;
}

static const struct ir_node *find(const struct ir_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (!strcmp(ir_node(g, i)->name, name))
            return ir_node(g, i);
    fail_msg("no node '%s'", name);
    return NULL;
}

/* --- types and layouts --- */

static void answers_are_right_in_every_type(void **state)
{
    static const struct {
        enum precision precision;
        double most;
        enum dtype type;
    } rows[] = {{PRECISION_F32, 1e-5, DTYPE_F32},
                {PRECISION_TF32, 1e-5, DTYPE_F32},
                {PRECISION_F16, 2e-3, DTYPE_F16},
                {PRECISION_BF16, 2e-2, DTYPE_BF16}};
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (int no_timing = 0; no_timing < 2; no_timing++) {
            struct ir_graph *plain = net_network(2), *tuned = net_copy(plain);
            struct tune_options options = options_of(rows[i].precision);
            struct tune_report report;
            options.no_timing = no_timing;
            tune(tuned, &options, &report);
            assert_int_equal(report.nodes, net_layers(tuned));
            assert_int_equal(count_type(tuned, IR_OP_CONV, rows[i].type), 7);
            for (uint32_t k = 0; k < tuned->n_outputs; k++)
                assert_int_equal(ir_tensor(tuned, tuned->outputs[k])->dtype, DTYPE_F32);
            assert_int_equal(ir_tensor(tuned, tuned->inputs[0])->dtype, DTYPE_F32);
            check_answers(plain, tuned, rows[i].most);
            ir_graph_free(tuned);
            ir_graph_free(plain);
        }
    assert_int_equal(counts().zeros, 0);
}

/* In another type everything takes ten times as long. */
static uint64_t half_is_slow(const struct ir_graph *graph, const struct ir_node *node,
                             const struct tactic *tactic)
{
    bool half = tactic_float(tactic) == DTYPE_F16;
    return (half ? 50000 : 5000) + 10 * mock_variant(tactic) + (graph == NULL) + (node == NULL);
}

static void nothing_is_forced(void **state)
{
    (void)state;
    struct ir_graph *g = net_network(1);
    struct tune_options options = options_of(PRECISION_F16);
    mock_script(device)->cost = half_is_slow;
    tune(g, &options, NULL);
    assert_int_equal(count_type(g, IR_OP_NONE, DTYPE_F16), 0);
    ir_graph_free(g);
}

/* One node is faster in half precision, by more than two reformats cost, or less. */
static uint64_t middle_in_half, reformat_ns;

static uint64_t middle_is_faster(const struct ir_graph *graph, const struct ir_node *node,
                                 const struct tactic *tactic)
{
    if (node->op == IR_OP_REFORMAT)
        return reformat_ns;
    bool middle = ir_tensor(graph, node->outputs[0])->shape.dim[1] == 24;
    if (tactic_float(tactic) != DTYPE_F16)
        return 100000;
    return middle ? middle_in_half : 1000000;
}

static void a_type_is_chosen_if_it_pays_for_its_reformats(void **state)
{
    (void)state;
    for (int pays = 0; pays < 2; pays++) {
        struct ir_graph *g = ir_graph_new();
        struct tune_options options = options_of(PRECISION_F16);
        struct tune_report report;
        uint32_t x = net_input(g, (int64_t[]){1, 16, 8, 8, 0});
        x = net_conv(g, x, 16, 1, 1);
        x = net_conv(g, x, 24, 1, 1);
        net_output(g, net_conv(g, x, 16, 1, 1));
        mock_script(device)->cost = middle_is_faster;
        reformat_ns = 20000;
        middle_in_half = pays ? 59000 : 61000;
        tune(g, &options, &report);
        assert_int_equal(count_type(g, IR_OP_CONV, DTYPE_F16), pays);
        assert_int_equal(report.time_ns, pays ? 299000 : 300000);
        ir_graph_free(g);
    }
}

static uint64_t plain_is_slow(const struct ir_graph *graph, const struct ir_node *node,
                              const struct tactic *tactic)
{
    bool slow = node->op == IR_OP_CONV && tactic->in[0].format.layout == IR_LAYOUT_PLAIN;
    return mock_cost(graph, node, tactic) * (slow ? 5 : 1);
}

/* [N,C,1,1] is the same bytes in both layouts, so a reformat between them is a renaming. */
static void layouts_that_agree_cost_nothing(void **state)
{
    (void)state;
    struct ir_graph *plain = ir_graph_new(), *g;
    uint32_t x = net_conv(plain, net_input(plain, (int64_t[]){2, 16, 8, 8, 0}), 32, 3, 1);
    uint32_t mean = net_node(plain, IR_OP_REDUCE, "mean", 1, &x);
    net_int(plain, mean, IR_ATTR_FUNC, IR_REDUCE_MEAN);
    net_ints(plain, mean, IR_ATTR_AXES, 2, (int64_t[]){2, 3});
    net_int(plain, mean, IR_ATTR_KEEPDIMS, 1);
    x = net_infer(plain, mean);
    net_output(plain, x);
    uint32_t flat = net_node(plain, IR_OP_RESHAPE, "flat", 1, &x);
    net_ints(plain, flat, IR_ATTR_SHAPE, 2, (int64_t[]){2, 32});
    uint32_t in[2] = {net_infer(plain, flat), net_constant(plain, (int64_t[]){32, 10, 0})};
    net_output(plain, net_infer(plain, net_node(plain, IR_OP_MATMUL, "fc", 2, in)));
    g = net_copy(plain);
    struct tune_options options = options_of(PRECISION_F32);
    struct tune_report report;
    mock_script(device)->cost = plain_is_slow;
    tune(g, &options, &report);
    assert_string_equal(ir_layout_name(ir_tensor(g, find(g, "conv")->outputs[0])->layout), "nhwc");
    assert_string_equal(ir_layout_name(ir_tensor(g, find(g, "mean")->outputs[0])->layout), "nhwc");
    assert_int_equal(ir_tensor(g, find(g, "flat")->inputs[0])->layout, IR_LAYOUT_PLAIN);
    assert_int_equal(report.reformats, 1); /* that of the graph's input */
    check_answers(plain, g, 1e-5);
    ir_graph_free(g);
    ir_graph_free(plain);
}

/* A cast follows the type of its result. Integers stay exact, also those that become integers, and
 * numbers beyond half precision do not become infinite. */
static void casts_and_large_numbers(void **state)
{
    (void)state;
    static const float lowest[1] = {-FLT_MAX};
    struct ir_graph *g = ir_graph_new();
    struct shape one = {.rank = 1, .dim = {1}}, bytes = {.rank = 2, .dim = {4, 64}};
    uint32_t pixels = ir_tensor_add(g, "pixels", DTYPE_U8, &bytes);
    uint32_t ids = ir_tensor_add(g, "ids", DTYPE_I64, &bytes);
    g->inputs[g->n_inputs++] = pixels;
    g->inputs[g->n_inputs++] = ids;
    uint32_t a = net_node(g, IR_OP_CAST, "small", 1, &pixels);
    net_int(g, a, IR_ATTR_TO, DTYPE_F32);
    uint32_t fc[2] = {net_infer(g, a), net_constant(g, (int64_t[]){64, 64, 0})};
    uint32_t y = net_infer(g, net_node(g, IR_OP_MATMUL, "fc", 2, fc));
    uint32_t b = net_node(g, IR_OP_CAST, "exact", 1, &ids);
    net_int(g, b, IR_ATTR_TO, DTYPE_F32);
    uint32_t mul[2] = {net_infer(g, b), ir_constant_add(g, "lowest", DTYPE_F32, &one, lowest)};
    uint32_t mask = net_node(g, IR_OP_BINARY, "mask", 2, mul);
    net_int(g, mask, IR_ATTR_FUNC, IR_BINARY_MUL);
    uint32_t sum[2] = {y, net_infer(g, mask)};
    uint32_t add = net_node(g, IR_OP_BINARY, "add", 2, sum);
    net_int(g, add, IR_ATTR_FUNC, IR_BINARY_ADD);
    net_output(g, net_infer(g, add));
    struct tune_options options = options_of(PRECISION_F16);
    tune(g, &options, NULL);
    const struct ir_node *small = find(g, "small");
    assert_int_equal(ir_tensor(g, small->outputs[0])->dtype, DTYPE_F16);
    assert_int_equal(ir_tensor_type(ir_tensor(g, small->outputs[0])), DTYPE_F32);
    assert_int_equal(ir_attr_int(small, IR_ATTR_TO), DTYPE_F32);
    assert_int_equal(ir_tensor(g, find(g, "fc")->outputs[0])->dtype, DTYPE_F16);
    assert_int_equal(ir_tensor(g, find(g, "exact")->outputs[0])->dtype, DTYPE_F32);
    assert_int_equal(ir_tensor(g, find(g, "mask")->outputs[0])->dtype, DTYPE_F32);
    ir_graph_free(g);
}

/* --- timing --- */

/* Times do not include the host's part of a launch, but only the device's. */
static void times_are_the_devices(void **state)
{
    (void)state;
    struct ir_graph *g = ir_graph_new();
    struct tune_options options = options_of(PRECISION_F32);
    uint32_t in[2] = {net_input(g, (int64_t[]){8, 64, 0}), net_constant(g, (int64_t[]){64, 8, 0})};
    net_output(g, net_infer(g, net_node(g, IR_OP_MATMUL, "fc", 2, in)));
    tune(g, &options, NULL);
    const struct ir_node *fc = find(g, "fc");
    assert_int_equal(fc->time_ns, mock_cost(g, fc, fc->tactic));
    assert_true(fc->time_ns < 10 * (uint64_t)MOCK_LAUNCH_NS);
    const struct mock_counts c = counts();
    assert_true(c.captured > 0 && c.graphs > 3 * c.captured);
    assert_int_equal(c.direct, 2 * c.captured);
    assert_int_equal(c.same_constants, 0);
    ir_graph_free(g);
}

static uint32_t count_named(const struct ir_graph *g, const char *text)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        n += strstr(net_tactic(g, i), text) != NULL;
    return n;
}

static void what_fails_is_dropped(void **state)
{
    (void)state;
    static const char *const fast = "FP16 nhwc8 v0";
    for (int way = 0; way < 4; way++) {
        struct mock_script *script = mock_script(device);
        /* of a lone image the plain layouts join for nothing */
        struct ir_graph *plain = net_network(2), *g = net_copy(plain);
        struct tune_options options = options_of(PRECISION_F16);
        struct tune_report report;
        script->no_compile = way == 0 ? fast : NULL;
        script->no_launch = way == 1 ? fast : NULL;
        script->no_capture = way == 2 ? fast : NULL;
        tune(g, &options, &report);
        assert_int_equal(count_named(g, fast) > 0, way == 3); /* would be the best if it worked */
        check_answers(plain, g, 2e-3);
        ir_graph_free(g);
        ir_graph_free(plain);
        *script = (struct mock_script){0};
    }
}

static void a_lost_device_ends_it(void **state)
{
    (void)state;
    struct ir_graph *g = net_network(1);
    struct tune_options options = options_of(PRECISION_F16);
    struct error err;
    mock_script(device)->lost = "FP16 nhwc v2";
    assert_int_not_equal(tune_graph(g, &options, NULL, &err), STATUS_OK);
    assert_int_equal(err.scope, ERROR_DEVICE);
    assert_non_null(strstr(err.text, "lost"));
    ir_graph_free(g);
}

/* --- compiling --- */

static void all_is_compiled_ahead(void **state)
{
    (void)state;
    struct ir_graph *g = net_network(1);
    struct tune_options options = options_of(PRECISION_F16);
    tune(g, &options, NULL);
    const struct mock_counts c = counts();
    assert_true(c.compiled > 30);
    assert_int_equal(c.uncompiled, 0);
    assert_int_equal(c.drops, 1);
    uint32_t with_code = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const struct tactic *t = ir_node(g, i)->tactic;
        bool heavy = ir_node(g, i)->op == IR_OP_CONV || ir_node(g, i)->op == IR_OP_MATMUL;
        if (!t)
            continue;
        assert_int_equal(t->code_size > 0, heavy);
        with_code += heavy;
        if (heavy)
            assert_non_null(strstr(t->code, t->name));
    }
    assert_int_equal(with_code, 8);
    ir_graph_free(g);
}

static void a_rebuild_compiles_nothing(void **state)
{
    (void)state;
    struct tune_cache *cache;
    struct tune_report first, again;
    struct ir_graph *a = net_network(1), *b = net_copy(a);
    struct tune_options options = options_of(PRECISION_F16);
    assert_int_equal(tune_cache_new(device, &cache, NULL), STATUS_OK);
    options.cache = cache;
    mock_script(device)->no_compile = "nhwc8 v3";
    tune(a, &options, &first);
    struct mock_counts before = counts();
    tune(b, &options, &again);
    const struct mock_counts c = counts();
    assert_int_equal(again.timed, 0);
    assert_int_equal(again.time_ns, first.time_ns);
    assert_true(c.compiled - before.compiled <= net_layers(b)); /* only those without code */
    assert_true(c.loaded > before.loaded);
    char *x = ir_graph_text(a), *y = ir_graph_text(b);
    assert_string_equal(x, y);
    for (uint32_t i = 0; i < a->n_nodes; i++) {
        assert_string_equal(net_tactic(a, i), net_tactic(b, i));
        if (ir_node(a, i)->tactic)
            assert_int_equal(ir_node(a, i)->tactic->code_size, ir_node(b, i)->tactic->code_size);
    }
    free(x);
    free(y);
    tune_cache_free(cache);
    ir_graph_free(a);
    ir_graph_free(b);
}

/* Code in the cache that no longer works is compiled anew. */
static void bad_code_is_compiled_again(void **state)
{
    (void)state;
    struct tune_cache *cache;
    struct ir_graph *a = net_network(1), *b = net_copy(a);
    struct tune_options options = options_of(PRECISION_F16);
    assert_int_equal(tune_cache_new(device, &cache, NULL), STATUS_OK);
    options.cache = cache;
    tune(a, &options, NULL);
    struct mock_counts before = counts();
    mock_script(device)->refuse_code = true;
    tune(b, &options, NULL);
    assert_true(counts().compiled > before.compiled);
    for (uint32_t i = 0; i < a->n_nodes; i++)
        assert_string_equal(net_tactic(a, i), net_tactic(b, i));
    tune_cache_free(cache);
    ir_graph_free(a);
    ir_graph_free(b);
}

/* A guess that does not compile is replaced by the next best, until nothing is left. */
static void guesses_that_do_not_compile(void **state)
{
    (void)state;
    struct ir_graph *plain = net_network(1), *g = net_copy(plain);
    struct tune_options options = options_of(PRECISION_F16);
    struct error err;
    options.no_timing = true;
    mock_script(device)->no_compile = "v0";
    /* A node that is not heavy has one variant only, so none of its candidates is left. */
    assert_int_equal(tune_graph(g, &options, NULL, &err), STATUS_UNIMPLEMENTED);
    assert_non_null(strstr(err.text, "no kernel works for"));
    ir_graph_free(g);
    g = net_copy(plain);
    mock_script(device)->no_compile = "nhwc v";
    tune(g, &options, NULL);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        assert_null(strstr(net_tactic(g, i), "nhwc v"));
    check_answers(plain, g, 2e-3);
    ir_graph_free(g);
    ir_graph_free(plain);
}

static uint64_t variants_differ(const struct ir_graph *graph, const struct ir_node *node,
                                const struct tactic *tactic)
{
    return mock_cost(graph, node, tactic) * (1 + mock_variant(tactic));
}

/* A candidate that was slow at two batch sizes is not compiled for a third. */
static void hopeless_candidates_are_not_compiled(void **state)
{
    (void)state;
    static const int64_t batches[3] = {1, 8, 4};
    struct tune_history *history = tune_history_new();
    unsigned compiled[3], before = 0;
    assert_non_null(history);
    mock_script(device)->cost = variants_differ;
    for (int i = 0; i < 3; i++) {
        struct ir_graph *g = net_network(batches[i]);
        struct tune_options options = options_of(PRECISION_F16);
        struct tune_report report;
        options.history = history;
        tune(g, &options, &report);
        compiled[i] = counts().compiled - before;
        before = counts().compiled;
        assert_int_equal(report.given_up > 0, i == 2);
        assert_int_equal(count_type(g, IR_OP_CONV, DTYPE_F16), 7);
        ir_graph_free(g);
    }
    assert_true(compiled[2] < compiled[0] && compiled[2] < compiled[1]);
    tune_history_free(history);
}

/* --- the host --- */

static char told[512];

static void tell(void *user, enum log_level level, const char *line)
{
    (void)user;
    if (level == LOG_INFO && strstr(line, "on the CPU"))
        snprintf(told, sizeof(told), "%s", line);
}

static void what_the_device_does_not_do_is_the_hosts(void **state)
{
    (void)state;
    static const struct log_sink sink = {.level = LOG_INFO, .write = tell, .user = NULL};
    for (int way = 0; way < 2; way++) {
        /* of a lone image the plain layouts join for nothing */
        struct ir_graph *plain = net_network(2), *g = net_copy(plain);
        struct tune_options options = options_of(PRECISION_F16);
        struct tune_report report;
        struct mock_script *script = mock_script(device);
        script->missing = way == 0 ? IR_OP_POOL : IR_OP_NONE;
        script->no_launch = way == 1 ? "mock pool" : NULL;
        options.log = &sink;
        told[0] = '\0';
        assert_int_equal(tune_graph(g, &options, NULL, NULL), STATUS_UNIMPLEMENTED);
        ir_graph_free(g);
        g = net_copy(plain);
        options.host = host;
        tune(g, &options, &report);
        assert_int_equal(report.on_host, 1);
        assert_string_equal(told, "1 layer on the CPU, which mock has no kernel for: pool (pool)");
        const struct ir_node *pool = find(g, "pool");
        assert_string_equal(pool->tactic->backend, "cpu");
        assert_int_equal(ir_tensor(g, pool->inputs[0])->dtype, DTYPE_F32);
        assert_int_equal(ir_tensor(g, pool->inputs[0])->layout, IR_LAYOUT_PLAIN);
        assert_int_equal(ir_tensor(g, pool->outputs[0])->dtype, DTYPE_F32);
        assert_int_equal(count_type(g, IR_OP_CONV, DTYPE_F16), 7);
        check_answers(plain, g, 2e-3);
        ir_graph_free(g);
        ir_graph_free(plain);
        *script = (struct mock_script){0};
    }
}

/* A chain with two convolutions at both ends; the device has no pools. */
static struct ir_graph *make_islands(void)
{
    struct ir_graph *g = ir_graph_new();
    uint32_t x = net_conv(g, net_input(g, (int64_t[]){1, 4, 4, 4, 0}), 4, 3, 1);
    x = net_conv(g, x, 4, 1, 1);
    for (int i = 0; i < 3; i++) {
        uint32_t pool = net_node(g, IR_OP_POOL,
                                 i == 0   ? "first"
                                 : i == 1 ? "second"
                                          : "third",
                                 1, &x);
        net_int(g, pool, IR_ATTR_FUNC, IR_POOL_MAX);
        net_ints(g, pool, IR_ATTR_KERNEL, 2, (int64_t[]){1, 1});
        x = net_infer(g, pool);
        if (i == 0) {
            uint32_t node = net_node(g, IR_OP_UNARY, "light", 1, &x);
            net_int(g, node, IR_ATTR_FUNC, IR_UNARY_NEG);
            x = net_infer(g, node);
        } else if (i == 1) {
            x = net_conv(g, x, 4, 1, 1);
        }
    }
    net_output(g, net_conv(g, net_conv(g, x, 4, 3, 1), 4, 1, 1));
    return g;
}

/* What one crossing costs is more than the time of a few numbers on the CPU. */
static void light_layers_stay_between_those_of_the_host(void **state)
{
    static const struct {
        uint32_t min_segment, on_host;
        bool no_timing;
        const char *told;
    } rows[] = {
        {0, 4, false,
         "1 layer on the CPU, which mock would run no sooner with the way there and back: light "
         "(unary)"},
        {1, 3, true,
         "3 layers on the CPU, which mock has no kernel for: first (pool), second (pool), third "
         "(pool)"},
        {2, 5, true,
         "2 layers on the CPU, of which mock would run too few in a row: light (unary), conv "
         "(conv)"},
        {3, 9, false, ""},
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ir_graph *plain = make_islands(), *g = net_copy(plain);
        struct tune_options options = options_of(PRECISION_F32);
        struct tune_report report;
        bool found = !*rows[i].told;
        mock_script(device)->missing = IR_OP_POOL;
        options.host = host;
        options.min_segment = rows[i].min_segment;
        options.no_timing = rows[i].no_timing;
        tune(g, &options, &report);
        assert_int_equal(report.on_host, rows[i].on_host);
        for (int k = 0; k < TUNE_REASONS; k++)
            found = found || !strcmp(report.host[k], rows[i].told);
        if (!found)
            fail_msg("'%s' '%s' '%s'", report.host[0], report.host[1], report.host[2]);
        check_answers(plain, g, 1e-5);
        ir_graph_free(g);
        ir_graph_free(plain);
    }
    *mock_script(device) = (struct mock_script){0};
}

/* The sample plugin's op between two convolutions. */
static struct ir_graph *make_plugged(void)
{
    static const int64_t words[] = {SAMPLE_NUMBERS};
    struct ir_graph *g = ir_graph_new();
    uint32_t x = net_conv(g, net_input(g, (int64_t[]){1, 4, 8, 8, 0}), 4, 3, 1);
    uint32_t node = net_node(g, IR_OP_PLUGIN, "own", 1, &x);
    net_ints(g, node, IR_ATTR_WORDS, ARRAY_LEN(words), words);
    net_output(g, net_conv(g, net_infer(g, node), 4, 3, 1));
    return g;
}

static uint64_t plugin_ns;

static uint64_t cost_of_plugin(const struct ir_graph *graph, const struct ir_node *node,
                               const struct tactic *tactic)
{
    return node->op == IR_OP_PLUGIN ? plugin_ns : mock_cost(graph, node, tactic);
}

/* Kernels of plugins are weighed on both sides, though nothing else runs on the host. */
static void a_plugin_runs_where_it_is_sooner_done(void **state)
{
    static const struct {
        uint64_t ns;
        bool no_timing;
        const char *backend;
    } rows[] = {{1000, false, "mock"}, {100000000, false, "cpu"}, {100000000, true, "mock"}};
    (void)state;
    if (!plugin_at(0)) /* it stays for the whole process */
        assert_int_equal(sample_load(NULL), STATUS_OK);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ir_graph *plain = make_plugged(), *g = net_copy(plain);
        struct tune_options options = options_of(PRECISION_F32);
        struct tune_report report;
        mock_script(device)->cost = cost_of_plugin;
        plugin_ns = rows[i].ns;
        options.host = host;
        options.no_timing = rows[i].no_timing;
        tune(g, &options, &report);
        assert_string_equal(find(g, "own")->tactic->backend, rows[i].backend);
        assert_int_equal(report.on_host, !strcmp(rows[i].backend, "cpu"));
        if (report.on_host)
            assert_string_equal(
                report.host[2],
                "1 layer on the CPU, which mock would run no sooner with the way there and back: "
                "own (plugin)");
        check_answers(plain, g, 1e-5);
        ir_graph_free(g);
        ir_graph_free(plain);
    }
    *mock_script(device) = (struct mock_script){0};
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(answers_are_right_in_every_type),
        TEST(nothing_is_forced),
        TEST(a_type_is_chosen_if_it_pays_for_its_reformats),
        TEST(layouts_that_agree_cost_nothing),
        TEST(casts_and_large_numbers),
        TEST(times_are_the_devices),
        TEST(what_fails_is_dropped),
        TEST(a_lost_device_ends_it),
        TEST(all_is_compiled_ahead),
        TEST(a_rebuild_compiles_nothing),
        TEST(bad_code_is_compiled_again),
        TEST(guesses_that_do_not_compile),
        TEST(hopeless_candidates_are_not_compiled),
        TEST(what_the_device_does_not_do_is_the_hosts),
        TEST(light_layers_stay_between_those_of_the_host),
        TEST(a_plugin_runs_where_it_is_sooner_done),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
