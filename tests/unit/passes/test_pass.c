/* SPDX-License-Identifier: Apache-2.0 */
/* The table of passes and the loop over it: order, errors, memory, time. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/cpu/eval.h"
#include "engine/passes/pass.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"
#include "tests/unit/passes/random_soup.h"

static void the_table_is_searchable(void **state)
{
    (void)state;
    for (const struct pass *pass = passes; pass->name; pass++) {
        assert_ptr_equal(pass_find(pass->name), pass); /* no name twice */
        assert_non_null(pass->what);
        assert_non_null(pass->run);
    }
    assert_null(pass_find("no-such-pass"));
}

/* A pass that prepares the graph for another stands before it. */
static void the_order_is_kept(void **state)
{
    static const char *const order[] = {"fold_constants",  "fold_scalars",   "fuse_gelu",
                                        "fold_batch_norm", "fold_scale",     "fuse_bias",
                                        "fuse_sum",        "fuse_activation"};
    (void)state;
    for (size_t i = 1; i < ARRAY_LEN(order); i++)
        assert_true(pass_find(order[i - 1]) < pass_find(order[i]));
    assert_true(pass_find("fuse_layer_norm") < pass_find("reduce_to_pool"));
}

static void a_broken_graph_is_an_error_that_names_the_pass(void **state)
{
    (void)state;
    struct ir_graph *g = graph_parse("input x FP32[2]\n"
                                     "a = unary \"a\" (x) func=relu\n"
                                     "y = unary \"b\" (a) func=tanh\n"
                                     "output y\n");
    struct pass_context ctx = {.log = NULL};
    struct error err = {0};
    ir_node(g, 0)->inputs[0] = g->outputs[0]; /* a cycle */
    assert_int_equal(passes_run(g, &ctx, &err), STATUS_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "after pass erase_unused"));
    assert_non_null(strstr(err.text, "cycle"));
    ir_graph_free(g);
}

static void without_an_evaluator_constants_stay(void **state)
{
    (void)state;
    struct ir_graph *g = graph_parse("input x FP32[2]\n"
                                     "a = unary \"a\" (k FP32[2]) func=exp\n"
                                     "y = binary \"b\" (a, x) func=mul\n"
                                     "output y\n");
    struct pass_context ctx = {.log = NULL};
    assert_int_equal(passes_run(g, &ctx, NULL), STATUS_OK);
    assert_int_equal(g->n_nodes, 2);
    ctx.evaluator.eval = cpu_eval_node;
    assert_int_equal(passes_run(g, &ctx, NULL), STATUS_OK);
    assert_int_equal(g->n_nodes, 1);
    ir_graph_free(g);
}

static void count_line(void *user, enum log_level level, const char *line)
{
    uint32_t *counts = user;
    (void)line;
    counts[level]++;
}

static void fusions_are_told_and_near_misses_only_when_asked(void **state)
{
    (void)state;
    const enum log_level levels[] = {LOG_WARNING, LOG_INFO, LOG_VERBOSE};
    for (size_t i = 0; i < ARRAY_LEN(levels); i++) {
        uint32_t counts[4] = {0};
        struct log_sink sink = {.level = levels[i], .write = count_line, .user = counts};
        struct pass_context ctx = {.log = &sink};
        struct ir_graph *g = graph_parse("input x FP32[1,1,2,2]\n"
                                         "c = conv \"c\" (x, w FP32[1,1,1,1])\n"
                                         "r = unary \"r\" (c) func=relu\n"
                                         "y = unary \"s\" (r) func=sin\n"
                                         "output y\n");
        assert_int_equal(passes_run(g, &ctx, NULL), STATUS_OK);
        assert_int_equal(counts[LOG_INFO] > 0, levels[i] >= LOG_INFO);
        assert_int_equal(counts[LOG_VERBOSE] > 0, levels[i] >= LOG_VERBOSE);
        ir_graph_free(g);
    }
}

/* Whichever allocation fails, the answer is RESOURCE_EXHAUSTED and the graph can be freed. */
static void r31_memory_may_end_anywhere(void **state)
{
    (void)state;
    uint32_t failed = 0, done = 0;
    for (uint64_t seed = 1; seed <= 40; seed++) {
        for (size_t limit = 16; limit <= 1 << 16; limit *= 2) {
            struct ir_graph *g = random_soup(seed);
            struct pass_context ctx = {.evaluator = {cpu_eval_node, NULL}};
            struct arena *built = g->arena;
            struct error err = {0};
            g->arena = arena_new(limit);
            assert_non_null(g->arena);
            enum status status = passes_run(g, &ctx, &err);
            if (status != STATUS_OK && status != STATUS_RESOURCE_EXHAUSTED)
                fail_msg("seed %u, %zu bytes: %s", (unsigned)seed, limit, err.text);
            *(status == STATUS_OK ? &done : &failed) += 1;
            ir_graph_free(g);
            arena_free(built);
        }
    }
    assert_true(failed > 100 && done > 100);
}

/* A model may be a chain of any length: the time stays proportional to it. */
static void time_is_linear(void **state)
{
    (void)state;
    enum { LENGTH = 50000 };
    static const enum ir_unary funcs[] = {IR_UNARY_IDENTITY, IR_UNARY_LINEAR, IR_UNARY_TANH};
    for (size_t f = 0; f < ARRAY_LEN(funcs); f++) {
        struct ir_graph *g = graph_parse("input x FP32[2]\n"
                                         "y = unary \"first\" (x) func=abs\n"
                                         "output y\n");
        uint32_t last = g->outputs[0];
        for (uint32_t i = 0; i < LENGTH; i++) {
            uint32_t node = ir_node_add(g, IR_OP_UNARY, "some node", 1, &last);
            assert_true(ir_attr_set_int(g, node, IR_ATTR_FUNC, funcs[f]));
            assert_true(ir_attr_set_float(g, node, IR_ATTR_BETA, 1));
            assert_int_equal(ir_infer_apply(g, node, NULL, 0, NULL), STATUS_OK);
            last = ir_node(g, node)->outputs[0];
        }
        g->outputs[0] = last;
        struct pass_context ctx = {.evaluator = {cpu_eval_node, NULL}};
        uint64_t from = clock_now_ns();
        assert_int_equal(passes_run(g, &ctx, NULL), STATUS_OK);
        uint64_t took = clock_now_ns() - from;
        /* Quadratic time would be hours. */
        if (took > 20 * NS_PER_S)
            fail_msg("%s: %u nodes took %llu ms", ir_unary_name(funcs[f]), LENGTH,
                     (unsigned long long)(took / NS_PER_MS));
        assert_int_equal(g->n_nodes > 10, funcs[f] == IR_UNARY_TANH);
        ir_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_is_searchable),
        cmocka_unit_test(the_order_is_kept),
        cmocka_unit_test(a_broken_graph_is_an_error_that_names_the_pass),
        cmocka_unit_test(without_an_evaluator_constants_stay),
        cmocka_unit_test(fusions_are_told_and_near_misses_only_when_asked),
        cmocka_unit_test(r31_memory_may_end_anywhere),
        cmocka_unit_test(time_is_linear),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
