/* SPDX-License-Identifier: Apache-2.0 */
/* Whole graphs through the tuner: answers, determinism, what comes from the cache, what is refused.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "engine/engine.h"
#include "tests/unit/tune/net.h"

static struct device *device;

static int open_device(void **state)
{
    (void)state;
    device = net_device();
    return 0;
}

static int close_device(void **state)
{
    (void)state;
    engine_device_close(device);
    return 0;
}

static uint32_t conv(struct ir_graph *g, uint32_t x, int64_t m, int64_t k, int64_t stride)
{
    int64_t c = ir_tensor(g, x)->shape.dim[1], p = k / 2;
    uint32_t in[3] = {x, net_constant(g, (int64_t[]){m, c, k, k, 0}),
                      net_constant(g, (int64_t[]){m, 0})};
    uint32_t node = net_node(g, IR_OP_CONV, "conv", 3, in);
    net_ints(g, node, IR_ATTR_STRIDES, 2, (int64_t[]){stride, stride});
    net_ints(g, node, IR_ATTR_PADS, 4, (int64_t[]){p, p, p, p});
    uint32_t y = net_infer(g, node);
    net_unary(g, node, IR_UNARY_RELU, 0, 0);
    return y;
}

/* Stem, pool, two residual blocks, a concat, the mean, a product; an inner tensor is an output too,
 * and so is one that nothing but the graph reads. */
static struct ir_graph *network(int64_t batch)
{
    struct ir_graph *g = ir_graph_new();
    uint32_t x = conv(g, net_input(g, (int64_t[]){batch, 3, 32, 32, 0}), 16, 7, 2);
    uint32_t pool = net_node(g, IR_OP_POOL, "pool", 1, &x);
    net_int(g, pool, IR_ATTR_FUNC, IR_POOL_MAX);
    net_ints(g, pool, IR_ATTR_KERNEL, 2, (int64_t[]){3, 3});
    net_ints(g, pool, IR_ATTR_STRIDES, 2, (int64_t[]){2, 2});
    net_ints(g, pool, IR_ATTR_PADS, 4, (int64_t[]){1, 1, 1, 1});
    x = net_infer(g, pool);
    for (int i = 0; i < 2; i++) {
        uint32_t y = conv(g, conv(g, x, 16, 3, 1), 16, 3, 1);
        net_binary(g, ir_tensor(g, y)->producer, IR_BINARY_ADD, x);
        x = y;
    }
    net_output(g, x);
    uint32_t forks[2] = {conv(g, x, 32, 1, 1), conv(g, x, 16, 3, 1)};
    uint32_t join = net_node(g, IR_OP_CONCAT, "join", 2, forks);
    net_int(g, join, IR_ATTR_AXIS, 1);
    x = net_infer(g, join);
    uint32_t mean = net_node(g, IR_OP_REDUCE, "mean", 1, &x);
    net_int(g, mean, IR_ATTR_FUNC, IR_REDUCE_MEAN);
    net_ints(g, mean, IR_ATTR_AXES, 2, (int64_t[]){2, 3});
    net_int(g, mean, IR_ATTR_KEEPDIMS, 1);
    x = net_infer(g, mean);
    uint32_t flat = net_node(g, IR_OP_RESHAPE, "flat", 1, &x);
    net_ints(g, flat, IR_ATTR_SHAPE, 2, (int64_t[]){batch, 48});
    uint32_t in[3] = {net_infer(g, flat), net_constant(g, (int64_t[]){48, 10, 0}),
                      net_constant(g, (int64_t[]){10, 0})};
    net_output(g, net_infer(g, net_node(g, IR_OP_MATMUL, "fc", 3, in)));
    return g;
}

static void check_answers(const struct ir_graph *plain, const struct ir_graph *tuned)
{
    float *want[IR_MAX_IO], *got[IR_MAX_IO];
    struct error err;
    if (ir_verify(tuned, &err))
        fail_msg("%s", err.text);
    net_reference(plain, want);
    net_run(device, tuned, got);
    for (uint32_t i = 0; i < plain->n_outputs; i++) {
        double e = net_error(plain, i, got[i], want[i]);
        if (!(e < 1e-5))
            fail_msg("output %u: error %g", i, e);
        free(want[i]);
        free(got[i]);
    }
}

static void tune(struct ir_graph *g, struct tune_cache *cache, bool no_timing,
                 struct tune_report *report)
{
    struct tune_options options = {
        .device = device, .cache = cache, .no_timing = no_timing, .seed = 5};
    struct error err;
    if (tune_graph(g, &options, report, &err))
        fail_msg("%s", err.text);
}

static void answers_are_right(void **state)
{
    (void)state;
    for (int64_t batch = 1; batch <= 3; batch += 2)
        for (int no_timing = 0; no_timing < 2; no_timing++) {
            struct ir_graph *plain = network(batch), *tuned = net_copy(plain);
            struct tune_report report;
            tune(tuned, NULL, no_timing, &report);
            assert_int_equal(report.nodes, net_layers(tuned));
            assert_int_equal(report.timed > 0, !no_timing);
            assert_int_equal(report.time_ns > 0, !no_timing);
            check_answers(plain, tuned);
            ir_graph_free(tuned);
            ir_graph_free(plain);
        }
}

static void a_rebuild_times_nothing_and_is_the_same(void **state)
{
    (void)state;
    struct tune_cache *cache;
    struct tune_report first, again;
    struct ir_graph *a = network(1), *b = net_copy(a), *c = net_copy(a);
    assert_int_equal(tune_cache_new(device, &cache, NULL), STATUS_OK);
    tune(a, cache, false, &first);
    assert_true(first.timed > 0);
    tune(b, cache, false, &again);
    assert_int_equal(again.timed, 0);
    assert_int_equal(again.from_cache, first.timed);
    assert_int_equal(again.time_ns, first.time_ns);
    tune(c, cache, true, &again); /* forbidding to time is no loss then */
    assert_int_equal(again.time_ns, first.time_ns);
    char *x = ir_graph_text(a), *y = ir_graph_text(b), *z = ir_graph_text(c);
    assert_string_equal(x, y);
    assert_string_equal(x, z);
    for (uint32_t i = 0; i < a->n_nodes; i++) {
        assert_string_equal(net_tactic(a, i), net_tactic(b, i));
        assert_string_equal(net_tactic(a, i), net_tactic(c, i));
    }
    free(x);
    free(y);
    free(z);
    tune_cache_free(cache);
    ir_graph_free(a);
    ir_graph_free(b);
    ir_graph_free(c);
}

/* The heuristic keeps one layout through a convolutional network. */
static void guesses_do_not_reformat_back_and_forth(void **state)
{
    (void)state;
    struct ir_graph *g = network(2);
    struct tune_report report;
    tune(g, NULL, true, &report);
    if (report.reformats > 3)
        fail_msg("%u reformats", report.reformats);
    ir_graph_free(g);
}

static void equal_nodes_are_timed_once(void **state)
{
    (void)state;
    struct tune_report one, two;
    struct ir_graph *g = ir_graph_new();
    net_output(g, conv(g, net_input(g, (int64_t[]){1, 16, 8, 8, 0}), 16, 3, 1));
    tune(g, NULL, false, &one);
    ir_graph_free(g);
    g = ir_graph_new();
    net_output(g, conv(g, conv(g, net_input(g, (int64_t[]){1, 16, 8, 8, 0}), 16, 3, 1), 16, 3, 1));
    tune(g, NULL, false, &two);
    ir_graph_free(g);
    /* The second graph may want a reformat more, in both directions and between all layouts. */
    assert_in_range(two.timed, one.timed, one.timed + 24);
}

static enum status nothing_visited(struct device *d, const struct ir_graph *graph,
                                   const struct ir_node *node, enum precision precision,
                                   tactic_visit visit, void *user, struct error *err)
{
    (void)d, (void)graph, (void)node, (void)precision, (void)visit, (void)user, (void)err;
    return STATUS_OK;
}

static void an_op_without_candidates_is_named(void **state)
{
    (void)state;
    struct backend none = backend_cpu;
    const struct backend *was = device->backend;
    struct ir_graph *g = network(1);
    struct tune_options options = {.device = device};
    struct error err;
    none.candidates = nothing_visited;
    device->backend = &none;
    assert_int_equal(tune_graph(g, &options, NULL, &err), STATUS_UNIMPLEMENTED);
    device->backend = was;
    assert_non_null(strstr(err.text, "unsupported"));
    assert_non_null(strstr(err.text, "'conv' (conv)"));
    ir_graph_free(g);
}

static unsigned steps, last_total;

static void count_steps(void *user, uint32_t done, uint32_t total, const char *what)
{
    (void)user;
    assert_true(done <= total);
    assert_non_null(what);
    last_total = total;
    steps++;
}

static void progress_is_told(void **state)
{
    (void)state;
    struct ir_graph *g = network(1);
    struct tune_options options = {.device = device, .no_timing = true, .progress = count_steps};
    steps = 0;
    assert_int_equal(tune_graph(g, &options, NULL, NULL), STATUS_OK);
    assert_true(steps > 10);
    assert_true(steps <= last_total);
    ir_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_right),
        cmocka_unit_test(a_rebuild_times_nothing_and_is_the_same),
        cmocka_unit_test(guesses_do_not_reformat_back_and_forth),
        cmocka_unit_test(equal_nodes_are_timed_once),
        cmocka_unit_test(an_op_without_candidates_is_named),
        cmocka_unit_test(progress_is_told),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
