/* SPDX-License-Identifier: Apache-2.0 */
/* See runner.h. */
#include "tests/unit/runtime/runner.h"

#include <stdlib.h>
#include <unistd.h>

#include "tests/test.h"

struct plan *runner_plan(const void *model, size_t size, const struct build_options *options)
{
    struct onnx_model *opened;
    struct plan *plan = NULL;
    struct error err;
    assert_int_equal(onnx_open_memory(model, size, &opened, &err), STATUS_OK);
    if (build_plan(opened, options, &plan, &err))
        fail_msg("%s", err.text);
    onnx_close(opened);
    return plan;
}

void runner_open(struct runner *r, const char *script, struct plan *(*make)(struct device *cpu))
{
    struct device_options options = {.threads = 1, .reference_only = true, .script = script};
    char path[] = "/tmp/inferd-runner-XXXXXX";
    struct device *cpu;
    void *output;
    struct error err;
    assert_int_equal(engine_device_open(script ? "fault" : "cpu", &options, &r->device, &err), 0);
    options.script = NULL;
    assert_int_equal(engine_device_open("cpu", &options, &cpu, &err), 0);
    struct plan *plan = make(cpu);
    engine_device_close(cpu);
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    if (plan_write(path, plan, &err) || engine_load(r->device, path, &r->engine, &err))
        fail_msg("%s", err.text);
    plan_free(plan);
    unlink(path);
    r->info = engine_describe(r->engine);
    assert_int_equal(lane_new(r->device, &r->lane, &err), STATUS_OK);
    if (context_new(r->engine, r->lane, &r->ctx, &err))
        fail_msg("%s", err.text);
    assert_int_equal(engine_buffer_alloc(r->device, r->info->out_bytes_max, "test", &output, &err),
                     STATUS_OK);
    r->output = output;
}

void runner_close(struct runner *r)
{
    engine_buffer_free(r->device, r->output);
    context_free(r->ctx);
    lane_free(r->lane);
    engine_unref(r->engine);
    engine_device_close(r->device);
}
