/* SPDX-License-Identifier: Apache-2.0 */
/* What is held back for the error of the whole model, and what that may cost. */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/engine.h"
#include "tests/unit/guard/guarded.h"

/* Adds layers that lose about the same, behind x; gives what the last one makes. */
static uint32_t add_alike(struct ir_graph *g, uint32_t x, int n)
{
    for (int i = 0; i < n; i++) {
        char name[24];
        snprintf(name, sizeof(name), "layer %d", i);
        x = binary(g, name, IR_BINARY_MUL, x, scalar(g, 1.1F + (float)(i % 10) / 97));
    }
    return x;
}

static struct ir_graph *alike(int n)
{
    struct ir_graph *g = ir_graph_new();
    net_output(g, add_alike(g, net_input(g, (int64_t[]){4, 32, 0}), n));
    return g;
}

/* Each layer alone is well within the bound, and all of them together are not. */
static void the_whole_is_held_within_the_bound(void **state UNUSED)
{
    struct ir_graph *g = alike(10);
    open_guard(NULL, 4e-4, NULL);
    tune_beside(g, PRECISION_F16, NULL);
    assert_true(report.n_held > 0);
    assert_true(report.outputs[0].error <= 4e-4);
    assert_false(report.beyond);
    ir_graph_free(g);
}

static uint64_t fp32_is_slow(const struct ir_graph *graph, const struct ir_node *node,
                             const struct tactic *tactic)
{
    return short_is_fast(graph, node, tactic) * (tactic->out[0].format.dtype == DTYPE_F32 ? 10 : 1);
}

/* What a bound takes is most of the layers, or a part of them; and their time, which may be much
 * more than the others'. */
static void no_more_is_lost_than_the_bound_is_worth(void **state UNUSED)
{
    static const struct {
        double bound, most_loss;
        uint32_t least, most; /* held */
        uint64_t (*cost)(const struct ir_graph *, const struct ir_node *, const struct tactic *);
    } rows[] = {{7e-4, 1, 4, 30, short_is_fast},
                {7e-4, 0.3, 0, 0, short_is_fast},
                {1e-3, 0.5, 1, 15, short_is_fast},
                {1e-3, 0.01, 0, 0, short_is_fast},
                {1e-3, 0.5, 0, 0, fp32_is_slow}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ir_graph *g = alike(30);
        heard[0] = '\0';
        mock_script(device)->cost = rows[i].cost;
        open_sparing(rows[i].bound, rows[i].most_loss);
        tune_beside(g, PRECISION_F16, NULL);
        assert_in_range(report.n_held, rows[i].least, rows[i].most);
        assert_int_equal(report.beyond, rows[i].most == 0);
        assert_int_equal(report.outputs[0].error > rows[i].bound, rows[i].most == 0);
        assert_int_equal(strstr(heard, "comes from so many layers") != NULL, rows[i].most == 0);
        ir_graph_free(g);
        guard_free(guard);
        guard = NULL;
    }
}

static uint64_t unary_is_slow(const struct ir_graph *graph, const struct ir_node *node,
                              const struct tactic *tactic)
{
    return node->op == IR_OP_UNARY ? 100000 : mock_cost(graph, node, tactic);
}

static uint64_t unary_is_dear(const struct ir_graph *graph, const struct ir_node *node,
                              const struct tactic *tactic)
{
    bool dear = node->op == IR_OP_UNARY && tactic->out[0].format.dtype == DTYPE_F32;
    return dear ? 100000 : short_is_fast(graph, node, tactic);
}

/* What only a host would run wider was not timed so: that is no reason to give it up first. */
static void what_was_not_timed_is_not_cheap(void **state UNUSED)
{
    struct ir_graph *g = ir_graph_new();
    struct device *cpu = net_device(); /* fp32's values need a kernel */
    uint32_t x = unary(g, "short", IR_UNARY_TANH, net_input(g, (int64_t[]){4, 32, 0}));
    net_output(g, add_alike(g, x, 10));
    mock_script(device)->no_wide_op = IR_OP_UNARY;
    mock_script(device)->cost = unary_is_slow;
    open_guard(cpu, 5.5e-4, NULL);
    tune_beside(g, PRECISION_F16, cpu);
    assert_true(report.n_held > 0);
    assert_null(held("short"));
    assert_false(report.beyond);
    ir_graph_free(g);
    engine_device_close(cpu);
}

static void dear_in_two_profiles(struct device *cpu)
{
    for (uint32_t batch = 4; batch <= 8; batch += 4) {
        struct ir_graph *g = ir_graph_new();
        uint32_t x = net_input(g, (int64_t[]){batch, 32, 0});
        net_output(g, add_alike(g, unary(g, "dear", IR_UNARY_TANH, x), 10));
        guard_set_batch(guard, batch);
        tune_beside(g, PRECISION_F16, cpu);
        assert_int_equal(report.n_held, 0);
        assert_int_equal(type_of(g, "dear"), DTYPE_F16);
        assert_true(report.beyond);
        ir_graph_free(g);
    }
}

/* Nor is it kept where it turns out to be dear: not in the next profile either. */
static void what_turns_out_dear_is_let_go(void **state UNUSED)
{
    struct device *cpu = net_device();
    mock_script(device)->no_wide_op = IR_OP_UNARY;
    mock_script(device)->wide_apart = true;
    mock_script(device)->cost = unary_is_dear;
    ear.level = LOG_INFO;
    for (int enough = 0; enough < 2; enough++) { /* or not: of the layers that are held */
        heard[0] = '\0';
        open_sparing(enough ? 6.7e-4 : 5.5e-4, 0.5);
        dear_in_two_profiles(cpu);
        char *first = strstr(heard, "let go");
        assert_non_null(first);
        assert_null(strstr(first + 1, "let go"));
        guard_free(guard);
        guard = NULL;
    }
    engine_device_close(cpu);
}

/* So it is where the bound is kept by it. */
static void what_is_enough_and_dear_is_let_go(void **state UNUSED)
{
    struct device *cpu = net_device();
    struct ir_graph *g = ir_graph_new();
    uint32_t x = net_input(g, (int64_t[]){4, 32, 0});
    net_output(g, add_alike(g, unary(g, "dear", IR_UNARY_TANH, x), 1));
    mock_script(device)->no_wide_op = IR_OP_UNARY;
    mock_script(device)->wide_apart = true;
    mock_script(device)->cost = unary_is_dear;
    mock_script(device)->wrong_node = "dear";
    mock_script(device)->wrong_tactic = "FP16";
    mock_script(device)->factor = 0.999F;
    ear.level = LOG_INFO;
    open_sparing(1.1e-3, 0.5);
    tune_beside(g, PRECISION_F16, cpu);
    assert_non_null(strstr(heard, "let go"));
    assert_int_equal(report.n_held, 0);
    assert_true(report.beyond);
    ir_graph_free(g);
    engine_device_close(cpu);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(the_whole_is_held_within_the_bound), TEST(no_more_is_lost_than_the_bound_is_worth),
        TEST(what_was_not_timed_is_not_cheap),    TEST(what_turns_out_dear_is_let_go),
        TEST(what_is_enough_and_dear_is_let_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
