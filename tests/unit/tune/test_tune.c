/* SPDX-License-Identifier: Apache-2.0 */
/* Whole graphs through the tuner: answers, determinism, which times come from the cache, which
 * graphs are refused. */
#include <stdlib.h>
#include <string.h>

#include "engine/engine.h"
#include "tests/calm.h"
#include "tests/test.h"
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

static void check_answers(const struct ir_graph *plain, const struct ir_graph *tuned)
{
    float *want[IR_MAX_IO], *got[IR_MAX_IO];
    struct error err;
    if (ir_verify(tuned, &err))
        fail_msg("%s", err.text);
    net_reference(plain, want);
    net_run(device, NULL, tuned, got);
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
            struct ir_graph *plain = net_network(batch), *tuned = net_copy(plain);
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

/* On a calm clock, because times that are not believed would be measured again. */
static void a_rebuild_times_nothing_and_is_the_same(void **state)
{
    (void)state;
    const struct backend *was = calm_down(device);
    struct tune_cache *cache;
    struct tune_report first, again;
    struct ir_graph *a = net_network(1), *b = net_copy(a), *c = net_copy(a);
    assert_int_equal(tune_cache_new(device, &cache, NULL), STATUS_OK);
    tune(a, cache, false, &first);
    assert_true(first.timed > 0);
    tune(b, cache, false, &again);
    assert_int_equal(again.timed, 0);
    assert_int_equal(again.from_cache, first.timed);
    assert_int_equal(again.time_ns, first.time_ns);
    tune(c, cache, true, &again); /* nothing needs timing, so forbidding it changes nothing */
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
    device->backend = was;
    tune_cache_free(cache);
    ir_graph_free(a);
    ir_graph_free(b);
    ir_graph_free(c);
}

/* Nodes have times, and nothing else is done to the graph. */
static void a_trial_gives_times_alone(void **state)
{
    (void)state;
    struct ir_graph *plain = net_network(1), *tried = net_copy(plain);
    struct tune_options options = {.device = device, .trial = true, .seed = 5};
    uint64_t sum = 0;
    assert_int_equal(tune_graph(tried, &options, NULL, NULL), STATUS_OK);
    assert_int_equal(tried->n_nodes, plain->n_nodes);
    for (uint32_t i = 0; i < tried->n_nodes; i++) {
        assert_null(ir_node(tried, i)->tactic);
        sum += ir_node(tried, i)->time_ns;
        ir_node(tried, i)->time_ns = 0;
    }
    assert_true(sum > 0);
    char *x = ir_graph_text(plain), *y = ir_graph_text(tried);
    assert_string_equal(x, y);
    free(x);
    free(y);
    ir_graph_free(tried);
    ir_graph_free(plain);
}

/* The heuristic keeps one layout through a convolutional network. */
static void guesses_do_not_reformat_back_and_forth(void **state)
{
    (void)state;
    struct ir_graph *g = net_network(2);
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
    net_output(g, net_conv(g, net_input(g, (int64_t[]){1, 16, 8, 8, 0}), 16, 3, 1));
    tune(g, NULL, false, &one);
    ir_graph_free(g);
    g = ir_graph_new();
    net_output(
        g, net_conv(g, net_conv(g, net_input(g, (int64_t[]){1, 16, 8, 8, 0}), 16, 3, 1), 16, 3, 1));
    tune(g, NULL, false, &two);
    ir_graph_free(g);
    /* The second graph may have one reformat more. The reformats are of both directions and between
     * all layouts. */
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
    struct ir_graph *g = net_network(1);
    struct tune_options options = {.device = device};
    struct error err;
    none.candidates = nothing_visited;
    device->backend = &none;
    assert_int_equal(tune_graph(g, &options, NULL, &err), STATUS_UNIMPLEMENTED);
    device->backend = was;
    assert_non_null(strstr(err.text, "no kernel for"));
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
    struct ir_graph *g = net_network(1);
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
        cmocka_unit_test(a_trial_gives_times_alone),
        cmocka_unit_test(guesses_do_not_reformat_back_and_forth),
        cmocka_unit_test(equal_nodes_are_timed_once),
        cmocka_unit_test(an_op_without_candidates_is_named),
        cmocka_unit_test(progress_is_told),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
