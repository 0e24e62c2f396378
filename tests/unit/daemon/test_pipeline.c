/* SPDX-License-Identifier: Apache-2.0 */
/* What binds, and what does not and why. */
#include <stdio.h>
#include <string.h>

#include "engine/runtime/internal.h"
#include "tests/test.h"
#include "tests/unit/daemon/bound.h"

static struct model_file *file;

static enum status text_bind(const char *text, struct pipeline **out, struct error *err)
{
    char whole[4096];
    snprintf(whole, sizeof(whole), "platform: 'ensemble' %s", text);
    must(model_file_parse("test", whole, strlen(whole), "m", NULL, &file, err), err);
    enum status status = pipeline_bind(bound_table(), file, out, err);
    model_file_free(file);
    return status;
}

static struct pipeline *bound(const char *text)
{
    struct pipeline *pipeline = NULL;
    struct error err;
    must(text_bind(text, &pipeline, &err), &err);
    bound_check(pipeline);
    return pipeline;
}

static void refused(const char *text, const char *why)
{
    struct pipeline *pipeline = NULL;
    struct error err = {0};
    assert_int_equal(text_bind(text, &pipeline, &err), STATUS_FAILED_PRECONDITION);
    assert_null(pipeline);
    if (!strstr(err.text, why))
        fail_msg("expected \"%s\", got \"%s\"", why, err.text);
}

#define IN(name)          "input { name: '" name "' } "
#define OUT(name)         "output { name: '" name "' } "
#define STEPS(steps)      "ensemble_scheduling { " steps "} "
#define STEP(model, maps) "step { model_name: '" model "' " maps "} "
#define TAKE(key, value)  "input_map { key: '" key "' value: '" value "' } "
#define MAKE(key, value)  "output_map { key: '" key "' value: '" value "' } "
#define A(from, to)       STEP("a", TAKE("x", from) MAKE("y", to))
#define B(one, two, to)   STEP("b", TAKE("l", one) TAKE("r", two) MAKE("sum", to))

static void a_chain_has_what_its_models_have(void **state)
{
    (void)state;
    struct pipeline *p = bound(IN("x") OUT("z") STEPS(A("x", "y") A("y", "z")));
    assert_int_equal(p->max_batch, 8);
    assert_true(p->info.batched);
    assert_string_equal(p->info.outputs[0].name, "z");
    assert_int_equal(p->info.inputs[0].instance_bytes, 16);
    assert_int_equal(p->steps[1].waits, 1);
    pipeline_free(p);
}

static void the_least_batch_of_its_models_counts(void **state)
{
    (void)state;
    struct pipeline *p = bound(IN("x") OUT("z") STEPS(B("y", "x", "z") A("x", "y")));
    assert_int_equal(p->max_batch, 4);
    pipeline_free(p);
    p = bound("max_batch_size: 3 " IN("x") OUT("z") STEPS(B("y", "x", "z") A("x", "y")));
    assert_int_equal(p->max_batch, 3);
    pipeline_free(p);
    refused("max_batch_size: 5 " IN("x") OUT("z") STEPS(B("y", "x", "z") A("x", "y")),
            "step 1 'b': max_batch_size is 5; this model takes at most 4");
}

static void whole_shapes_meet_instances(void **state)
{
    (void)state;
    const char *text = IN("p") OUT("y")
        STEPS(STEP("w", TAKE("p", "p") MAKE("q", "t")) STEP("a", TAKE("x", "t") MAKE("y", "y")));
    struct pipeline *p = bound(text);
    assert_false(p->info.batched);
    assert_int_equal(p->info.outputs[0].shape.dim[0], 1);
    pipeline_free(p);
    p = bound("input { name: 'x' dims: [ 3, 4 ] } " IN("p") OUT("y") OUT("q")
                  STEPS(A("x", "y") STEP("w", TAKE("p", "p") MAKE("q", "q"))));
    assert_int_equal(p->info.inputs[0].shape.dim[0], 3);
    assert_int_equal(p->info.inputs[0].instance_bytes, 48);
    pipeline_free(p);
    refused("input { name: 'x' dims: [ 9, 4 ] } " IN("p") OUT("y") OUT("q")
                STEPS(A("x", "y") STEP("w", TAKE("p", "p") MAKE("q", "q"))),
            "tensor 'x': declared with dims [9,4], but it is [?,4]");
    refused("input { name: 'x' dims: [ 2, 4 ] } input { name: 'z' dims: [ 3, 4 ] } " IN("p")
                OUT("y") OUT("q") STEPS(B("x", "z", "y") STEP("w", TAKE("p", "p") MAKE("q", "q"))),
            "tensor 'z': declared with dims [3,4], but it is [2,4]");
    refused("input { name: 'x' dims: [ 2, 4 ] } " IN("p") OUT("y") OUT("q")
                STEPS(STEP("w", TAKE("p", "t") MAKE("q", "q")) A("x", "t") A("p", "y")),
            "step 1 'w': input 'p': expected FP32 [1,4], but tensor 't' is FP32 [2,4]");
}

static void pipelines_within_are_flat_in_the_end(void **state)
{
    (void)state;
    struct pipeline *p =
        bound(IN("x") OUT("z") STEPS(STEP("d", TAKE("x", "x") MAKE("y", "s")) B("s", "x", "z")));
    assert_int_equal(p->n_steps, 3);
    assert_int_equal(p->n_groups, 2);
    assert_int_equal(p->depth, 2);
    assert_int_equal(p->groups[0].n_steps, 3);
    assert_int_equal(p->groups[1].n_steps, 2);
    assert_string_equal(p->steps[1].name, "step 1 'd': step 2 'a'");
    pipeline_free(p);
    p = bound("input { name: 'x' dims: [ 2, 4 ] } " IN("p") OUT("z") OUT("q") STEPS(
        STEP("d", TAKE("x", "x") MAKE("y", "z")) STEP("w", TAKE("p", "p") MAKE("q", "q"))));
    assert_int_equal(p->info.outputs[0].shape.dim[0], 2);
    pipeline_free(p);
}

static void what_nobody_reads_takes_no_memory(void **state)
{
    (void)state;
    struct pipeline *p = bound(IN("x") OUT("y") STEPS(A("x", "y") A("x", "lost")));
    struct pipeline *q = bound(IN("x") OUT("y") STEPS(A("x", "y") STEP("a", TAKE("x", "x"))));
    assert_int_equal(p->steps[1].outputs[0], PIPELINE_NONE);
    assert_true(pipeline_run_bytes(p, 8, NULL) > pipeline_run_bytes(p, 1, NULL));
    assert_true(pipeline_run_bytes(p, 1, NULL) - pipeline_run_bytes(q, 1, NULL) < 256);
    pipeline_free(p);
    pipeline_free(q);
}

static void what_does_not_fit_is_refused(void **state)
{
    (void)state;
    refused(IN("x") OUT("y") STEPS(A("t", "y") A("x", "u")), "'t' is made by no step");
    refused(IN("x") OUT("y") STEPS(A("x", "y") A("x", "y")), "'y' is made twice");
    refused(IN("x") OUT("y") STEPS(A("x", "x") A("x", "y")), "'x' is an input, and is made here");
    refused(IN("x") OUT("y") STEPS(B("x", "v", "u") A("u", "v") A("v", "y")), "in a circle");
    refused(IN("x") OUT("t") STEPS(B("x", "t", "t")), "in a circle");
    refused(IN("x") OUT("x") STEPS(A("x", "y")), "output 'x' is an input");
    refused(IN("x") OUT("v") STEPS(STEP("c", TAKE("u", "y") MAKE("v", "v")) A("x", "y")),
            "step 1 'c': input 'u': expected UINT8 [?,3], but tensor 'y' is FP32 [?,4]");
    refused(IN("x") OUT("v") STEPS(STEP("c", TAKE("u", "x") MAKE("v", "v")) A("x", "y")),
            "step 2 'a': input 'x': expected FP32 [?,4], but tensor 'x' is UINT8 [?,3]");
    refused("max_batch_size: 1 " IN("p") OUT("q") STEPS(STEP("w", TAKE("p", "p") MAKE("q", "q"))),
            "does not count instances");
    refused(IN("x") OUT("y") STEPS(STEP("z", TAKE("x", "x") MAKE("y", "y"))),
            "step 1 'z': there is no such model");
    refused(IN("x") "output { name: 'y' dims: [ 1, 1, 1 ] } " STEPS(A("x", "y")),
            "declared with dims [1,1,1]");
}

#define E(from, to) STEP("e", TAKE("x", from) TAKE("m", "m") MAKE("y", to))
#define F(from, to) STEP("f", TAKE("x", from) MAKE("y", to))
#define L(from, to) STEP("l", TAKE("p", from) MAKE("y", to))

static void sizes_that_requests_choose_go_through_all_steps(void **state)
{
    (void)state;
    struct pipeline *p = bound(IN("x") IN("m") OUT("z") STEPS(E("x", "y") E("y", "z")));
    assert_int_equal(p->info.n_free, 1);
    assert_string_equal(p->info.free[0].name, "seq");
    assert_int_equal(p->info.free[0].high, 64);
    assert_int_equal(p->info.input_axes[0].free[1], 1);
    assert_int_equal(p->info.input_axes[1].free[1], 1);
    assert_int_equal(p->info.output_axes[0].free[1], 1);
    assert_int_equal(p->info.outputs[0].shape.dim[1], -1);
    assert_int_equal(p->info.outputs[0].instance_bytes, 256);
    const int64_t small[] = {4}, large[] = {64};
    assert_int_equal(pipeline_run_bytes(p, 8, large) - pipeline_run_bytes(p, 8, small),
                     2 * 8 * 60 * sizeof(float));
    pipeline_free(p);
    p = bound(IN("x") IN("m") OUT("z")
                  STEPS(STEP("g", TAKE("x", "x") TAKE("m", "m") MAKE("y", "t")) E("t", "z")));
    assert_int_equal(p->n_steps, 3);
    assert_int_equal(p->info.n_free, 1);
    pipeline_free(p);
}

static void ranges_narrow_each_other(void **state)
{
    (void)state;
    /* 16 to 64 is what both take */
    struct pipeline *p = bound(IN("x") IN("m") OUT("z") OUT("u") STEPS(E("x", "z") F("x", "u")));
    assert_int_equal(p->info.n_free, 1);
    assert_int_equal(p->info.free[0].low, 16);
    assert_int_equal(p->info.free[0].high, 64);
    pipeline_free(p);
    /* a step's number is the request's size */
    p = bound(IN("x") IN("m") OUT("z") OUT("u")
                  STEPS(E("x", "t") STEP("a", TAKE("x", "t") MAKE("y", "z"))
                            STEP("e", TAKE("x", "x") TAKE("m", "m") MAKE("y", "u"))));
    assert_int_equal(p->info.input_axes[0].free[1], 0);
    assert_int_equal(p->info.inputs[0].shape.dim[1], 4);
    pipeline_free(p);
}

static void sizes_that_contradict_are_refused(void **state)
{
    (void)state;
    refused(IN("x") IN("m") OUT("z") OUT("u")
                STEPS(E("x", "t") STEP("a", TAKE("x", "t") MAKE("y", "z")) F("t", "u")),
            "input 'x', dimension 1 ('len'): expected 16 to 200, but tensor 't' has 4");
    refused("input { name: 'x' dims: [ -1, 65 ] } " IN("m") OUT("z") STEPS(E("x", "z")),
            "tensor 'x': declared with dims [?,65], but it is [?,?]");
    refused("input { name: 'x' dims: [ -1, 5 ] } input { name: 'm' dims: [ -1, 6 ] }" OUT("z")
                STEPS(E("x", "z")),
            "tensor 'm': declared with dims [?,6], but it is [?,5]");
    refused(IN("x") IN("s") OUT("z")
                STEPS(STEP("t", TAKE("x", "x") TAKE("s", "s") MAKE("y", "t")) A("t", "z")),
            "expected FP32 [?,4], but tensor 't' is FP32 [3,?,2]");
    refused("max_batch_size: 2 " IN("x") IN("s") OUT("y")
                STEPS(STEP("t", TAKE("x", "x") TAKE("s", "s") MAKE("y", "y"))),
            "counts instances elsewhere than in the first dimension");
}

static void instances_are_counted_wherever_they_are(void **state)
{
    (void)state;
    struct pipeline *p = bound(IN("x") IN("s") OUT("z") STEPS(
        STEP("t", TAKE("x", "x") TAKE("s", "s") MAKE("y", "y"))
            STEP("t", TAKE("x", "y") TAKE("s", "s") MAKE("y", "z"))));
    assert_true(p->info.batched);
    assert_int_equal(p->info.input_axes[0].batch, 1);
    assert_true(p->info.input_axes[1].shared);
    assert_int_equal(p->info.output_axes[0].batch, 1);
    assert_int_equal(p->max_batch, 8);
    pipeline_free(p);
    /* of a run's making: as many as there are then */
    p = bound(IN("p") OUT("z") STEPS(L("p", "y") A("y", "z")));
    assert_false(p->info.batched);
    assert_int_equal(p->info.outputs[0].shape.dim[0], -1);
    assert_int_equal(p->info.outputs[0].instance_bytes, 0);
    pipeline_free(p);
    /* and of the request's choice, if that is said */
    p = bound("input { name: 'x' dims: [ -1, 4 ] } " IN("p") OUT("y") OUT("q")
                  STEPS(A("x", "y") STEP("w", TAKE("p", "p") MAKE("q", "q"))));
    assert_int_equal(p->info.n_free, 1);
    assert_int_equal(p->info.free[0].high, 8);
    assert_int_equal(p->info.inputs[0].instance_bytes, 128);
    pipeline_free(p);
}

static struct model *model_of(const char *name)
{
    struct table *table = bound_table();
    for (uint32_t i = 0; i < table->n; i++)
        if (strcmp(table->entries[i].name, name) == 0)
            return table->entries[i].model;
    fail_msg("no model %s", name);
    return NULL;
}

/* The output of the first step, in what it leaves on the device and what it need not copy. */
static void first_step(const char *text, uint64_t shelve, uint64_t unread)
{
    struct pipeline *p = bound(text);
    assert_int_equal(p->steps[0].shelve, shelve);
    assert_int_equal(p->steps[0].unread, unread);
    for (uint32_t s = 1; s < p->n_steps; s++)
        assert_int_equal(p->steps[s].shelve, 0);
    pipeline_free(p);
}

static void tensors_between_steps_stay_on_the_device(void **state)
{
    (void)state;
    struct model *a = model_of("a"), *f = model_of("f"), *t = model_of("t");
    struct engine engine = {.info = *a->info}, chosen = {.info = *f->info},
                  third = {.info = *t->info};
    struct device host;
    const char *chain = IN("x") OUT("z") STEPS(A("x", "y") A("y", "z"));
    first_step(chain, 1, 0); /* nothing is known of who reads it */
    first_step(IN("p") OUT("z") STEPS(L("p", "y") A("y", "z")), 0, 0);
    a->engine = &engine;
    first_step(chain, 1, 1);
    first_step(IN("x") OUT("z") OUT("y") STEPS(A("x", "y") A("y", "z")), 1, 0); /* the client */
    first_step(IN("x") OUT("y") STEPS(A("x", "y")), 0, 0);
    engine.host = &host; /* layers on the CPU */
    first_step(chain, 1, 0);
    engine.host = NULL;
    f->engine = &chosen;
    assert_false(engine_input_apart(&chosen, 0)); /* it may be padded */
    assert_false(engine_input_apart(&third, 0));  /* it counts instances in between, */
    assert_false(engine_input_apart(&third, 1));  /* or shares them */
    f->engine = a->engine = NULL;
}

static void steps_and_levels_are_bounded(void **state)
{
    (void)state;
    char text[8192] = IN("x") OUT("y") "ensemble_scheduling { " A("x", "y");
    for (uint32_t i = 0; i < 31; i++)
        strcat(text, STEP("d", TAKE("x", "x")));
    strcat(text, "}");
    char whole[9000];
    struct pipeline *p = NULL;
    struct error err = {0};
    snprintf(whole, sizeof(whole), "platform: 'ensemble' %s", text);
    must(model_file_parse("test", whole, strlen(whole), "m", NULL, &file, &err), &err);
    must(pipeline_bind(bound_table(), file, &p, &err), &err); /* 63 steps */
    bound_check(p);
    pipeline_free(p);
    model_file_free(file);
}

static int end(void **state)
{
    (void)state;
    bound_end();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_chain_has_what_its_models_have),
        cmocka_unit_test(the_least_batch_of_its_models_counts),
        cmocka_unit_test(whole_shapes_meet_instances),
        cmocka_unit_test(pipelines_within_are_flat_in_the_end),
        cmocka_unit_test(what_nobody_reads_takes_no_memory),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(sizes_that_requests_choose_go_through_all_steps),
        cmocka_unit_test(ranges_narrow_each_other),
        cmocka_unit_test(sizes_that_contradict_are_refused),
        cmocka_unit_test(instances_are_counted_wherever_they_are),
        cmocka_unit_test(tensors_between_steps_stay_on_the_device),
        cmocka_unit_test(steps_and_levels_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, end);
}
