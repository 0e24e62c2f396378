/* SPDX-License-Identifier: Apache-2.0 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/runtime/fault_script.h"
#include "tests/test.h"
#include "tests/unit/runtime/world.h"

enum { INSTANCE = WORLD_IN * sizeof(float) };

static void scripts_are_read(void **state)
{
    struct fault_script s;
    struct error err;
    (void)state;
    const char *text = "on=cpu;launch:delay=50ms;launch#3:fail=unavailable;;memory:oom;"
                       "prepare#2+:fail;launch#5:device;copy:short;wait#7:hang;launch:model";
    assert_int_equal(fault_script_parse(text, &s, &err), STATUS_OK);
    assert_string_equal(s.backend, "cpu");
    assert_int_equal(s.n_rules, 8);
    assert_int_equal(s.rules[0].action, FAULT_DELAY);
    assert_int_equal(s.rules[0].delay_ns, 50 * NS_PER_MS);
    assert_int_equal(s.rules[1].first, 3);
    assert_int_equal(s.rules[1].last, 3);
    assert_int_equal(s.rules[1].status, STATUS_UNAVAILABLE);
    assert_int_equal(s.rules[3].first, 2);
    assert_true(s.rules[3].last == UINT64_MAX);
    assert_int_equal(s.rules[3].status, STATUS_INTERNAL);
    assert_int_equal(fault_script_parse(NULL, &s, &err), STATUS_OK);
    assert_int_equal(s.n_rules, 0);
}

static void bad_scripts_are_refused(void **state)
{
    static const char *const texts[] = {
        "launch",           "launch:",
        "launch:explode",   "start:fail",
        "launch#0:fail",    "launch#:fail",
        "launch#x:fail",    "launch:delay=",
        "launch:delay=5",   "launch:delay=ms",
        "launch:fail=ok",   "launch:fail=maybe",
        "launch:short",     "on=",
        "launch:oom ",      "launch#1++:oom",
        "launch:delay=-1s", "on=fault",
        "on=nothing",
    };
    struct device *device = NULL;
    struct error err;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        struct device_options options = {.threads = 1, .script = texts[i]};
        if (engine_device_open("fault", &options, &device, &err) != STATUS_INVALID_ARGUMENT)
            fail_msg("'%s' was accepted", texts[i]);
    }
    char many[FAULT_RULES_MAX * 16 + 16] = "";
    for (int i = 0; i <= FAULT_RULES_MAX; i++)
        strcat(many, "launch:oom;");
    struct fault_script s;
    assert_int_equal(fault_script_parse(many, &s, &err), STATUS_INVALID_ARGUMENT);
}

/* One context on a fault device. */
struct victim {
    struct device *device;
    struct engine *engine;
    struct lane *lane;
    struct context *ctx;
    void *buffer;
};

static enum status victim_init(struct victim *v, const struct world *w, const char *script,
                               struct error *err)
{
    *v = (struct victim){.device = world_fault(script)};
    enum status status = engine_load(v->device, w->path, &v->engine, err);
    if (!status)
        status = lane_new(v->device, &v->lane, err);
    if (!status)
        status = context_new(v->engine, v->lane, &v->ctx, err);
    if (!status)
        status = engine_buffer_alloc(v->device, engine_describe(v->engine)->out_bytes_max, "output",
                                     &v->buffer, err);
    return status;
}

static void victim_deinit(struct victim *v)
{
    engine_buffer_free(v->device, v->buffer);
    context_free(v->ctx);
    lane_free(v->lane);
    engine_unref(v->engine);
    engine_device_close(v->device);
}

static enum status victim_run(struct victim *v, const struct world *w, struct error *err)
{
    struct engine_span span = {w->in, INSTANCE};
    struct engine_input input = {&span, 1};
    enum status status = context_enqueue(v->ctx, 1, &input, v->buffer, err);
    if (!status)
        status = context_wait(v->ctx, NULL, err);
    if (!status)
        world_check(w, engine_profile_for(v->engine, 0, 1), v->buffer, 0, 1);
    return status;
}

/* A batch has 4 launches. Two copies upload the weights and zeros, and each batch has two more. */
static void one_failed_call_fails_one_batch(void **state)
{
    static const struct {
        const char *script;
        enum status status;
        enum error_scope scope;
    } cases[] = {
        {"launch#6:fail", STATUS_INTERNAL, ERROR_REQUEST},
        {"launch#6:fail=unavailable", STATUS_UNAVAILABLE, ERROR_REQUEST},
        {"launch#5:model", STATUS_INTERNAL, ERROR_MODEL},
        {"apart;copy#5:fail", STATUS_INTERNAL, ERROR_REQUEST},
        {"apart;copy#6:short", STATUS_DATA_LOSS, ERROR_REQUEST},
        {"apart;wait#3:oom", STATUS_RESOURCE_EXHAUSTED, ERROR_REQUEST},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct victim v;
        struct error err;
        assert_int_equal(victim_init(&v, *state, cases[i].script, &err), STATUS_OK);
        assert_int_equal(victim_run(&v, *state, &err), STATUS_OK);
        enum status status = victim_run(&v, *state, &err);
        if (status != cases[i].status || err.scope != cases[i].scope)
            fail_msg("%s: %s, scope %d", cases[i].script, status_name(status), err.scope);
        assert_int_equal(victim_run(&v, *state, &err), STATUS_OK);
        victim_deinit(&v);
    }
}

static void r28_a_lost_device_stays_lost(void **state)
{
    struct victim v;
    struct error err;
    assert_int_equal(victim_init(&v, *state, "launch#5:device", &err), STATUS_OK);
    assert_int_equal(victim_run(&v, *state, &err), STATUS_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(victim_run(&v, *state, &err), STATUS_UNAVAILABLE);
        assert_int_equal(err.scope, ERROR_DEVICE);
    }
    struct context *ctx;
    assert_int_equal(context_new(v.engine, v.lane, &ctx, &err), STATUS_UNAVAILABLE);
    assert_int_equal(err.scope, ERROR_DEVICE);
    victim_deinit(&v);
}

/* R31 of docs/operations.md: whichever allocation or preparation fails while loading, only that
 * load fails. */
static void r31_out_of_memory_fails_only_that_load(void **state)
{
    bool loaded = false;
    for (int call = 1; call < 40 && !loaded; call++) {
        unsigned ok = 0;
        for (int i = 0; i < 2; i++) {
            char script[32];
            struct victim v;
            struct error err;
            snprintf(script, sizeof(script), i ? "prepare#%d:oom" : "apart;memory#%d:oom", call);
            enum status status = victim_init(&v, *state, script, &err);
            if (status && status != STATUS_RESOURCE_EXHAUSTED)
                fail_msg("%s: %s", script, status_name(status));
            ok += !status && !victim_run(&v, *state, &err);
            victim_deinit(&v);
        }
        loaded = ok == 2;
    }
    assert_true(loaded);
}

static void delays_delay(void **state)
{
    struct victim v;
    struct error err;
    assert_int_equal(victim_init(&v, *state, "apart;wait#2:delay=30ms", &err), STATUS_OK);
    uint64_t begin = clock_now_ns();
    assert_int_equal(victim_run(&v, *state, &err), STATUS_OK);
    uint64_t took = clock_now_ns() - begin;
    if (took < 30 * NS_PER_MS)
        fail_msg("%llu ns", (unsigned long long)took);
    victim_deinit(&v);
}

/* On a device with memory of its own, and on one without. */
static void a_settled_engine_runs_but_makes_no_contexts(void **state)
{
    const struct world *w = *state;
    static const char *const scripts[] = {"apart", "launch#99:oom"};
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        struct victim v;
        struct context *more = NULL;
        struct error err;
        assert_int_equal(victim_init(&v, w, scripts[i], &err), STATUS_OK);
        engine_settle(v.engine);
        engine_settle(v.engine);
        assert_int_equal(victim_run(&v, w, &err), STATUS_OK);
        assert_int_equal(context_new(v.engine, v.lane, &more, &err), STATUS_FAILED_PRECONDITION);
        assert_null(more);
        victim_deinit(&v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scripts_are_read),
        cmocka_unit_test(bad_scripts_are_refused),
        cmocka_unit_test(one_failed_call_fails_one_batch),
        cmocka_unit_test(r28_a_lost_device_stays_lost),
        cmocka_unit_test(r31_out_of_memory_fails_only_that_load),
        cmocka_unit_test(delays_delay),
        cmocka_unit_test(a_settled_engine_runs_but_makes_no_contexts),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
