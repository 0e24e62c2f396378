/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A model's whole way, from the ONNX file to a context, with one failing allocation: each
 * allocation of each stage fails in turn. The stage then succeeds all the same, or says that there
 * is no memory; nothing leaks.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "engine/build/build.h"
#include "engine/cpu/eval.h"
#include "engine/engine.h"
#include "engine/plan/plan.h"
#include "tests/inject/alloc.h"
#include "tests/test.h"

struct way {
    struct device *device;
    struct onnx_model *model;
    struct plan *plan;
    char path[64];
};

static enum status model_open(struct way *w, struct error *err)
{
    struct onnx_model *model;
    (void)w;
    enum status s = onnx_open(DIGITS, &model, err); /* models/digits.onnx, from meson.build */
    if (!s)
        onnx_close(model);
    return s;
}

static enum status plan_build(struct way *w, struct plan **out, struct error *err)
{
    static const uint32_t batches[] = {1, 2};
    const struct build_options options = {.device = w->device,
                                          .evaluator = {.eval = cpu_eval_node},
                                          .batches = batches,
                                          .n_batches = ARRAY_LEN(batches),
                                          .no_timing = true};
    return build_plan(w->model, &options, out, err);
}

static enum status build(struct way *w, struct error *err)
{
    struct plan *plan;
    enum status s = plan_build(w, &plan, err);
    if (!s)
        plan_free(plan);
    return s;
}

static enum status write_out(struct way *w, struct error *err)
{
    return plan_write(w->path, w->plan, err);
}

static enum status load(struct way *w, struct error *err)
{
    struct engine *engine = NULL;
    struct lane *lane = NULL;
    struct context *context = NULL;
    enum status s = engine_load(w->device, w->path, &engine, err);
    if (!s)
        s = lane_new(w->device, &lane, err);
    if (!s)
        s = context_new(engine, lane, &context, err);
    context_free(context);
    lane_free(lane);
    if (engine)
        engine_unref(engine);
    return s;
}

static enum status device_open(struct way *w, struct error *err)
{
    const struct device_options options = {.threads = 1, .reference_only = true};
    struct device *device;
    (void)w;
    enum status s = engine_device_open("cpu", &options, &device, err);
    if (!s)
        engine_device_close(device);
    return s;
}

static void sweep(const char *name, enum status (*stage)(struct way *, struct error *),
                  struct way *w)
{
    uint64_t failures = 0;
    for (uint64_t n = 1;; n++) {
        struct error err = {0};
        inject_arm(n);
        enum status s = stage(w, &err);
        bool failed = inject_disarm();
        if (!failed && s)
            fail_msg("%s: %s", name, err.text);
        if (s && s != STATUS_RESOURCE_EXHAUSTED)
            fail_msg("%s: allocation %llu failed: %s: %s", name, (unsigned long long)n,
                     status_name(s), err.text);
        if (s && !err.text[0])
            fail_msg("%s: allocation %llu failed, and nothing is said", name,
                     (unsigned long long)n);
        failures += s != STATUS_OK;
        if (!failed) {
            print_message("%s: %llu allocations, %llu of them are missed\n", name,
                          (unsigned long long)n - 1, (unsigned long long)failures);
            assert_true(failures > 0);
            return;
        }
    }
}

static void each_allocation_of_each_stage(void **state)
{
    static const struct {
        const char *name;
        enum status (*stage)(struct way *, struct error *);
    } stages[] = {{"device", device_open},
                  {"model", model_open},
                  {"build", build},
                  {"write", write_out},
                  {"load", load}};
    struct way w = {.path = "/tmp/inferd-no-memory-XXXXXX"};
    struct error err;
    (void)state;
    const struct device_options options = {.threads = 1, .reference_only = true};
    int fd = mkstemp(w.path);
    assert_true(fd >= 0);
    close(fd);
    if (engine_device_open("cpu", &options, &w.device, &err) || onnx_open(DIGITS, &w.model, &err) ||
        plan_build(&w, &w.plan, &err) || plan_write(w.path, w.plan, &err))
        fail_msg("%s", err.text);
    for (size_t i = 0; i < ARRAY_LEN(stages); i++) {
        assert_int_equal(stages[i].stage(&w, &err), STATUS_OK);
        sweep(stages[i].name, stages[i].stage, &w);
    }
    plan_free(w.plan);
    onnx_close(w.model);
    engine_device_close(w.device);
    unlink(w.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_of_each_stage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
