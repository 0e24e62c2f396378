/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every pass alone, and the whole table, on random graphs: the graphs' results stay the same.
 * tests/random does this for graphs as models have them. If a seed fails, it is printed with the
 * graph before and after.
 */
#include <stdio.h>
#include <stdlib.h>

#include "engine/cpu/eval.h"
#include "engine/passes/pass.h"
#include "tests/test.h"
#include "tests/unit/passes/random_soup.h"
#include "tests/unit/passes/same.h"

enum { GRAPHS = 200 };

/* Brings the graph's scalars into one spelling, which some passes look for. */
static struct ir_graph *prepared(uint64_t seed, bool fold_scalars)
{
    struct ir_graph *g = random_soup(seed);
    struct pass_context ctx = {.log = NULL};
    if (fold_scalars)
        assert_int_equal(pass_find("fold_scalars")->run(g, &ctx, NULL), STATUS_OK);
    assert_int_equal(ir_graph_compact(g, NULL), STATUS_OK);
    return g;
}

/* A pass alone sees a backend with all features; the whole table sees one with all or with none. */
static bool has_features(uint64_t seed, const struct pass *pass)
{
    return pass || seed % 3;
}

/* The number of rewrites that `pass` has done (NULL: the whole table). */
static uint32_t check(uint64_t seed, const struct pass *pass)
{
    struct ir_graph *g = prepared(seed, pass && seed % 2);
    struct pass_context ctx = {.evaluator = {cpu_eval_node, NULL}};
    ctx.attention = ctx.merge = has_features(seed, pass);
    ctx.chain_room = ctx.merge ? 227 << 10 : 0;
    struct outputs want, got;
    struct error err = {0};
    char what[64], *before = ir_graph_text(g);
    snprintf(what, sizeof(what), "seed %llu, %s", (unsigned long long)seed,
             pass ? pass->name : "all passes");
    outputs_compute(g, seed, &want);

    enum status status = pass ? pass_run(pass, g, &ctx, &err) : passes_run(g, &ctx, &err);
    if (status == STATUS_OK)
        status = ir_graph_compact(g, &err);
    if (status == STATUS_OK)
        status = ir_verify(g, &err);
    char *after = ir_graph_text(g);
    if (status != STATUS_OK)
        fail_msg("%s: %s\n%s\nbecame\n%s", what, err.text, before, after);
    outputs_compute(g, seed, &got);
    outputs_check(&got, &want, 1e-4, what);

    outputs_free(&want);
    outputs_free(&got);
    free(before);
    free(after);
    ir_graph_free(g);
    return ctx.rewrites;
}

static void all_passes_on_anything(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3 * GRAPHS; seed++)
        assert_true(check(seed, NULL) < 1000);
}

/* Passes that find nothing to do on the graphs of tests/random. */
static bool is_found_here_alone(const struct pass *pass)
{
    return pass == pass_find("fold_constants") || pass == pass_find("skip_expand");
}

static void each_pass_on_anything(void **state)
{
    (void)state;
    for (const struct pass *pass = passes; pass->name; pass++) {
        uint32_t rewrites = 0;
        for (uint64_t seed = 1; seed <= GRAPHS / 2; seed++)
            rewrites += check(seed, pass);
        if (!rewrites && is_found_here_alone(pass))
            fail_msg("%s did nothing on any graph", pass->name);
    }
}

/* The table comes to rest: a second run finds nothing. */
static void a_second_run_finds_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= GRAPHS; seed++) {
        struct ir_graph *g = random_soup(seed);
        struct pass_context ctx = {.evaluator = {cpu_eval_node, NULL}};
        ctx.attention = ctx.merge = has_features(seed, NULL);
        ctx.chain_room = ctx.merge ? 227 << 10 : 0;
        assert_int_equal(passes_run(g, &ctx, NULL), STATUS_OK);
        ctx.rewrites = 0;
        assert_int_equal(passes_run(g, &ctx, NULL), STATUS_OK);
        assert_int_equal(ctx.rewrites, 0);
        ir_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_passes_on_anything),
        cmocka_unit_test(each_pass_on_anything),
        cmocka_unit_test(a_second_run_finds_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
