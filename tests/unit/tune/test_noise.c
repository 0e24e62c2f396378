/* SPDX-License-Identifier: Apache-2.0 */
/* The tuner on a machine where other work disturbs the times: it makes the same plan, or does not
 * believe the times. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/tune/internal.h"
#include "engine/engine.h"
#include "tests/test.h"
#include "tests/unit/tune/net.h"
#include "tests/unit/mock/mock.h"

static struct device *device;

static int set_up(void **state)
{
    (void)state;
    device = mock_simulate();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    engine_device_close(device);
    return 0;
}

/* In every third hundred of launches, other work takes 3 ms each time. */
static uint64_t bursts(uint64_t n, uint64_t ns)
{
    (void)ns;
    return n / 100 % 3 == 2 ? 3000000 : 0;
}

/* A burst is longer than all rounds of one candidate, so a candidate timed late and alone may be
 * within it. */
static uint64_t long_bursts(uint64_t n, uint64_t ns)
{
    (void)ns;
    return n % 2700 < 1000 ? 700000 : 0;
}

/* Other work always takes time: from half as much as the launch to more than four times as much. */
static uint64_t always(uint64_t n, uint64_t ns)
{
    uint64_t state = n;
    return ns / 2 + ns * (net_random(&state) % 256) / 64;
}

static struct tune_report tune(struct ir_graph *g, struct tune_cache *cache)
{
    struct tune_options options = {.device = device, .cache = cache, .seed = 3};
    struct tune_report report;
    struct error err;
    if (tune_graph(g, &options, &report, &err))
        fail_msg("%s", err.text);
    return report;
}

/* Tunes while `disturb` disturbs. */
static struct tune_report tune_beside(uint64_t (*disturb)(uint64_t n, uint64_t ns), bool told,
                                      struct tune_cache *cache, char **tactics)
{
    struct ir_graph *g = net_network(1);
    size_t size = 0;
    mock_script(device)->disturb = disturb;
    mock_script(device)->told = told;
    struct tune_report report = tune(g, cache);
    FILE *to = open_memstream(tactics, &size);
    assert_non_null(to);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        fprintf(to, "%s: %s\n", ir_node(g, i)->name, net_tactic(g, i));
    assert_int_equal(fclose(to), 0);
    ir_graph_free(g);
    return report;
}

static void a_quiet_device_is_believed_at_once(void **state)
{
    (void)state;
    char *tactics;
    struct tune_report report = tune_beside(NULL, true, NULL, &tactics);
    assert_true(report.timed > 20);
    assert_int_equal(report.disturbed, 0);
    /* Candidates close to the best have two rounds, and each round has one upload and three
     * samples. */
    struct mock_counts counts;
    mock_read(device, &counts);
    assert_in_range(counts.graphs, 1, 2 * 4 * report.timed);
    free(tactics);
}

static void bursts_are_seen_and_waited_out(void **state)
{
    (void)state;
    uint64_t (*const rows[])(uint64_t, uint64_t) = {bursts, long_bursts};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct tune_cache *cache;
        char *quiet, *beside, *again;
        assert_int_equal(tune_cache_new(device, &cache, NULL), STATUS_OK);
        struct tune_report want = tune_beside(NULL, true, NULL, &quiet);
        struct tune_report got = tune_beside(rows[i], true, cache, &beside);
        assert_string_equal(quiet, beside);
        assert_in_range(got.time_ns, want.time_ns - want.time_ns / 100,
                        want.time_ns + want.time_ns / 100);
        assert_in_range(got.disturbed, 0, rows[i] == bursts ? 0 : 2);
        struct tune_report known = tune_beside(NULL, true, cache, &again);
        assert_int_equal(known.timed, got.disturbed);
        assert_string_equal(quiet, again);
        tune_cache_free(cache);
        free(quiet);
        free(beside);
        free(again);
    }
}

/* A device that knows nothing of other work can only compare its samples with each other. */
static void without_knowing_samples_must_agree(void **state)
{
    (void)state;
    char *tactics;
    struct tune_report report = tune_beside(always, false, NULL, &tactics);
    assert_true(report.disturbed > 0);
    free(tactics);
}

static void what_is_not_believed_is_not_kept(void **state)
{
    (void)state;
    struct tune_cache *cache;
    char *beside, *quiet, *again;
    assert_int_equal(tune_cache_new(device, &cache, NULL), STATUS_OK);
    struct tune_report report = tune_beside(always, true, cache, &beside);
    assert_int_equal(report.disturbed, report.timed); /* no timing was without a wait */
    struct tune_report want = tune_beside(NULL, true, NULL, &quiet);
    struct tune_report got = tune_beside(NULL, true, cache, &again);
    assert_int_equal(got.from_cache, 0);
    assert_int_equal(got.time_ns, want.time_ns);
    assert_string_equal(again, quiet);
    tune_cache_free(cache);
    free(beside);
    free(quiet);
    free(again);
}

static bool together;
static unsigned gathered;

static bool gather(struct backend_op *op, struct backend_stream *stream)
{
    (void)op, (void)stream;
    gathered++;
    return together;
}

/* Samples are believed only if the op's threads were on processors when they began. */
static void threads_that_are_apart_are_not_believed(void **state)
{
    (void)state;
    const struct backend *was = device->backend;
    struct backend table = *was;
    table.capture_begin = NULL; /* launches by themselves, as on a CPU */
    table.op_gather = gather;
    mock_script(device)->told = true;
    device->backend = &table;
    for (int i = 0; i < 2; i++) {
        struct ir_graph *g = ir_graph_new();
        net_output(g, net_conv(g, net_input(g, (int64_t[]){1, 4, 4, 4, 0}), 4, 1, 1));
        together = i == 1;
        gathered = 0;
        struct tune_report report = tune(g, NULL);
        assert_true(report.timed > 1);
        assert_true(gathered >= 3 * report.timed);
        assert_int_equal(report.disturbed, together ? 0 : report.timed);
        ir_graph_free(g);
    }
    device->backend = was;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_quiet_device_is_believed_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(bursts_are_seen_and_waited_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(without_knowing_samples_must_agree, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_not_believed_is_not_kept, set_up, tear_down),
        cmocka_unit_test_setup_teardown(threads_that_are_apart_are_not_believed, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
