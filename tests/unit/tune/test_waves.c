/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Candidates that take long to compile: what is compiled and what is not, and that the winner is
 * found all the same. On a simulated device (mock.h), whose tactics of one layout and type are a
 * kin, whose variants are of several waves.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "engine/engine.h"
#include "engine/tune/internal.h"
#include "tests/test.h"
#include "tests/unit/mock/mock.h"
#include "tests/unit/tune/net.h"

static struct device *device;

static int set_up(void **state)
{
    (void)state;
    device = mock_simulate();
    mock_script(device)->waves = true;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    engine_device_close(device);
    return 0;
}

static unsigned compiled(void)
{
    struct mock_counts c;
    mock_read(device, &c);
    return (unsigned)c.compiled;
}

/* A chain of 1x1 convolutions over some images, which are small: the mock computes them, but says
 * itself how long that took. */
static struct ir_graph *chain(int64_t batch, uint32_t layers)
{
    struct ir_graph *g = ir_graph_new();
    uint32_t x = net_input(g, (int64_t[]){batch, 16, 4, 4, 0});
    for (uint32_t i = 0; i < layers; i++)
        x = net_conv(g, x, 16 + 8 * (int64_t)i, 1, 1);
    net_output(g, x);
    return g;
}

struct outcome {
    struct tune_report report;
    unsigned compiled;
    char tactic[TACTIC_NAME_MAX]; /* of the last convolution */
};

static struct outcome tune_with(struct ir_graph *g, struct tune_options options)
{
    struct outcome o = {.compiled = 0};
    struct error err;
    unsigned before = compiled();
    options.device = device;
    options.precision = PRECISION_F16;
    options.seed = 3;
    if (tune_graph(g, &options, &o.report, &err))
        fail_msg("%s", err.text);
    o.compiled = compiled() - before;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (ir_node(g, i)->op == IR_OP_CONV)
            snprintf(o.tactic, sizeof(o.tactic), "%s", net_tactic(g, i));
    ir_graph_free(g);
    return o;
}

/* --- what the device is like --- */

static bool is_kin(const struct tactic *t, enum ir_layout layout)
{
    return t->in[0].format.layout == layout && tactic_float(t) == DTYPE_F16;
}

static uint64_t large(const struct ir_graph *graph, const struct ir_node *node)
{
    return 20000 + ir_tensor(graph, node->outputs[0])->bytes / 4;
}

/* By variant, in percent of the first one's time; kins of other layouts take 5 times as long. */
static uint32_t shape_of[MOCK_VARIANTS];

static uint64_t by_variant(const struct ir_graph *graph, const struct ir_node *node,
                           const struct tactic *t)
{
    uint64_t ns = large(graph, node);
    if (node->op == IR_OP_REFORMAT)
        return 1000;
    if (!is_kin(t, IR_LAYOUT_CHANNELS_LAST))
        return 5 * ns;
    return ns * shape_of[mock_variant(t)] / 100;
}

static void set_variants(uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    const uint32_t shape[MOCK_VARIANTS] = {a, b, c, d};
    memcpy(shape_of, shape, sizeof(shape));
    mock_script(device)->cost = by_variant;
}

/* --- one graph --- */

static void the_winner_of_the_last_wave_is_found_with_less(void **state UNUSED)
{
    set_variants(100, 90, 85, 70);
    struct outcome all = tune_with(chain(2, 3), (struct tune_options){.thorough = true});
    struct outcome some = tune_with(chain(2, 3), (struct tune_options){0});
    assert_non_null(strstr(all.tactic, "nhwc v3"));
    assert_string_equal(some.tactic, all.tactic);
    assert_int_equal(some.report.time_ns, all.report.time_ns);
    assert_int_equal(some.report.effort.listed, all.report.effort.listed);
    assert_int_equal(all.report.given_up, 0);
    assert_true(some.compiled * 2 < all.compiled);
    assert_int_equal(some.report.effort.compiled, some.compiled);
    assert_int_equal(some.report.effort.compiled + some.report.given_up,
                     all.report.effort.compiled);
    assert_int_equal(some.report.timed, some.compiled + all.report.timed - all.compiled);
}

/* Relaxed is enough: nothing else is read because of them. */
static struct {
    atomic_bool ran; /* something, on the device */
    atomic_uint met, missed;
} meeting;

static uint64_t tell_that_it_runs(const struct ir_graph *graph, const struct ir_node *node,
                                  const struct tactic *t)
{
    atomic_store_explicit(&meeting.ran, true, memory_order_relaxed);
    return by_variant(graph, node, t);
}

/* Waits until the device runs something, for five seconds at most. */
static void meet(struct device *of UNUSED, const struct tactic *tactic)
{
    bool ran = false;
    for (int i = 0; tactic->kin && i < 5000 && !ran; i++) {
        ran = atomic_load_explicit(&meeting.ran, memory_order_relaxed);
        if (!ran)
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    }
    if (tactic->kin)
        atomic_fetch_add_explicit(ran ? &meeting.met : &meeting.missed, 1, memory_order_relaxed);
}

static void the_device_runs_while_a_kin_is_compiled(void **state UNUSED)
{
    if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
        skip(); /* the one thread compiles when it has nothing else to do */
    set_variants(100, 90, 85, 70);
    mock_script(device)->cost = tell_that_it_runs;
    mock_script(device)->quick = "nchw";
    mock_script(device)->compiling = meet;
    struct outcome o = tune_with(chain(2, 3), (struct tune_options){0});
    assert_non_null(strstr(o.tactic, "nhwc v3"));
    assert_true(meeting.met > 0);
    assert_int_equal(meeting.missed, 0);
}

/* A kin that loses ground in a wave has no further one. */
static void a_kin_that_falls_back_is_left(void **state UNUSED)
{
    static const char *const best[] = {"nhwc v0", "nhwc v1"};
    for (int i = 0; i < 2; i++) {
        set_variants(100, i ? 60 : 200, 300, 300);
        struct outcome some = tune_with(chain(2, 1), (struct tune_options){0});
        struct outcome all = tune_with(chain(2, 1), (struct tune_options){.thorough = true});
        assert_non_null(strstr(some.tactic, best[i]));
        assert_int_equal(some.report.time_ns, all.report.time_ns);
        assert_true(some.compiled < all.compiled);
    }
}

/* Where the first form does not work, the others have their chance. */
static void a_form_that_does_not_compile_speaks_for_itself(void **state UNUSED)
{
    set_variants(100, 80, 300, 300);
    mock_script(device)->no_compile = "nhwc v0";
    struct outcome some = tune_with(chain(2, 1), (struct tune_options){0});
    assert_non_null(strstr(some.tactic, "nhwc v1"));
}

/* Others compile what the last wave holds only where the kin has shown nothing and failed. */
static void the_last_wave_is_for_thorough_builds(void **state UNUSED)
{
    mock_script(device)->last_wave = "nhwc v3";
    for (int i = 0; i < 2; i++) {
        set_variants(100, 100, 100, 50);
        mock_script(device)->no_compile = i ? "nhwc v0" : NULL;
        struct outcome some = tune_with(chain(2, 2), (struct tune_options){0});
        struct outcome all = tune_with(chain(2, 2), (struct tune_options){.thorough = true});
        assert_null(strstr(some.tactic, "nhwc v3"));
        assert_non_null(strstr(all.tactic, "nhwc v3"));
    }
    mock_script(device)->last_wave = "nhwc v";
    mock_script(device)->no_compile = NULL;
    struct outcome alone = tune_with(chain(2, 2), (struct tune_options){0});
    assert_null(strstr(alone.tactic, "nhwc v"));
}

static uint64_t one_is_long(const struct ir_graph *graph, const struct ir_node *node,
                            const struct tactic *t)
{
    bool is_long = ir_tensor(graph, node->outputs[0])->shape.dim[1] == 24;
    return by_variant(graph, node, t) * (node->op == IR_OP_CONV && is_long ? 2000 : 1);
}

static void short_layers_have_few_forms_compiled(void **state UNUSED)
{
    set_variants(100, 95, 90, 85);
    struct outcome even = tune_with(chain(2, 3), (struct tune_options){0});
    mock_script(device)->cost = one_is_long;
    struct outcome uneven = tune_with(chain(2, 3), (struct tune_options){0});
    struct outcome all = tune_with(chain(2, 3), (struct tune_options){.thorough = true});
    assert_true(uneven.compiled < even.compiled);
    assert_in_range(uneven.report.time_ns, all.report.time_ns,
                    all.report.time_ns + all.report.time_ns / 100);
}

/* --- again --- */

static void a_rebuild_times_nothing(void **state UNUSED)
{
    struct tune_cache *cache;
    assert_int_equal(tune_cache_new(device, &cache, NULL), STATUS_OK);
    set_variants(100, 90, 85, 70);
    struct tune_options options = {.cache = cache};
    struct outcome first = tune_with(chain(2, 3), options);
    struct outcome again = tune_with(chain(2, 3), options);
    assert_int_equal(again.report.timed, 0);
    assert_true(again.compiled <= again.report.reformats); /* all others' code is in the cache */
    assert_int_equal(again.report.time_ns, first.report.time_ns);
    assert_string_equal(again.tactic, first.tactic);
    tune_cache_free(cache);
}

/* --- several sizes --- */

/* The larger the batch, the better the later variants are. */
static uint64_t by_size(const struct ir_graph *graph, const struct ir_node *node,
                        const struct tactic *t)
{
    int64_t batch = ir_tensor(graph, node->outputs[0])->shape.dim[0];
    int64_t best = batch <= 1 ? 0 : batch <= 4 ? 1 : 2;
    int64_t off = (int64_t)mock_variant(t) - best;
    if (node->op == IR_OP_REFORMAT)
        return 1000;
    if (!is_kin(t, IR_LAYOUT_CHANNELS_LAST))
        return 5 * large(graph, node);
    return large(graph, node) * (uint64_t)(100 + 10 * (off < 0 ? -off : off)) / 100;
}

static void other_sizes_say_what_is_worth_trying(void **state UNUSED)
{
    static const int64_t batches[] = {1, 32, 4, 16};
    struct tune_history *history = tune_history_new();
    unsigned first = 0;
    assert_non_null(history);
    mock_script(device)->cost = by_size;
    for (size_t i = 0; i < ARRAY_LEN(batches); i++) {
        struct outcome some =
            tune_with(chain(batches[i], 2), (struct tune_options){.history = history});
        struct outcome all =
            tune_with(chain(batches[i], 2), (struct tune_options){.thorough = true});
        assert_string_equal(some.tactic, all.tactic);
        assert_int_equal(some.report.time_ns, all.report.time_ns);
        if (i == 0)
            first = some.compiled;
        if (i > 1)
            assert_true(some.compiled < first && some.compiled * 2 < all.compiled);
    }
    tune_history_free(history);
}

/* A size whose graph is tuned more than once, as for trials of fusions, is one size. */
static void trials_are_no_sizes(void **state UNUSED)
{
    struct tune_history *history = tune_history_new();
    assert_non_null(history);
    mock_script(device)->cost = by_size;
    for (int trial = 0; trial < 3; trial++)
        tune_with(chain(1, 2), (struct tune_options){.history = history});
    struct outcome large = tune_with(chain(32, 2), (struct tune_options){.history = history});
    struct outcome alone = tune_with(chain(32, 2), (struct tune_options){0});
    assert_int_equal(large.compiled, alone.compiled);
    assert_string_equal(large.tactic, alone.tactic);
    tune_history_free(history);
}

/* Of many forms that are all good at the sizes beside it, a size tries a few. */
static void a_size_between_tries_few(void **state UNUSED)
{
    struct tune_history *history = tune_history_new();
    assert_non_null(history);
    set_variants(100, 101, 102, 103);
    tune_with(chain(1, 1), (struct tune_options){.history = history});
    tune_with(chain(32, 1), (struct tune_options){.history = history});
    struct outcome between = tune_with(chain(4, 1), (struct tune_options){.history = history});
    /* three of the kin, the first form of each of two in fp32, and reformats */
    assert_in_range(between.compiled, 4, 5 + between.report.reformats);
    assert_non_null(strstr(between.tactic, "nhwc v0"));
    tune_history_free(history);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
        TEST(the_winner_of_the_last_wave_is_found_with_less),
        TEST(the_device_runs_while_a_kin_is_compiled),
        TEST(a_kin_that_falls_back_is_left),
        TEST(a_form_that_does_not_compile_speaks_for_itself),
        TEST(the_last_wave_is_for_thorough_builds),
        TEST(short_layers_have_few_forms_compiled),
        TEST(a_rebuild_times_nothing),
        TEST(other_sizes_say_what_is_worth_trying),
        TEST(trials_are_no_sizes),
        TEST(a_size_between_tries_few),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
