/* SPDX-License-Identifier: Apache-2.0 */
/* See rig.h. */
#include "tests/unit/runtime/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/build/build.h"
#include "tests/test.h"
#include "tests/unit/plan/sample.h"
#include "tests/unit/mock/mock.h"

void rig_must(enum status status, const struct error *err)
{
    if (status)
        fail_msg("%s: %s", status_name(status), err->text);
}

/* --- plans --- */

static void share_out(struct ir_graph *graph, const struct rig_plan *spec)
{
    unsigned bit = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        struct ir_node *node = ir_node(graph, i);
        struct tactic *tactic = arena_alloc(graph->arena, sizeof(*tactic));
        assert_non_null(tactic);
        *tactic = *node->tactic;
        node->tactic = tactic;
        if (node->op != IR_OP_RESHAPE)
            node->time_ns = spec->times[bit];
        if (node->op == IR_OP_RESHAPE || !(spec->host >> bit++ & 1))
            tactic->backend = "mock";
    }
    assert_int_equal(bit, RIG_NODES);
}

static void add_profile(struct world *world, struct plan *plan, uint32_t batch,
                        const struct rig_plan *spec)
{
    struct error err;
    struct tune_report report;
    struct tune_options options = {.device = world->cpu, .no_timing = true};
    struct plan_profile *p = &plan->profiles[plan->n_profiles++];
    p->batch = batch;
    p->graph = sample_graph(batch);
    assert_non_null(p->graph);
    rig_must(tune_graph(p->graph, &options, &report, &err), &err);
    share_out(p->graph, spec);
    rig_must(build_place(p->graph, &p->tensor_bytes, &err), &err);
}

void rig_plan_write(struct world *world, struct device *mock, const struct rig_plan *spec,
                    char *path)
{
    struct error err;
    char line[FINGERPRINT_MAX];
    struct device *beside;
    struct plan *plan = sample_plan_empty();
    assert_non_null(plan);
    rig_must(backend_host_open(mock, &beside, &err), &err);
    beside->backend->device_fingerprint(beside, line);
    engine_device_close(beside);
    for (uint32_t batch = 1; batch <= 8; batch = batch == 1 ? 4 : 2 * batch)
        add_profile(world, plan, batch, spec);
    plan_device_line(plan->device, "mock", plan_needs_host(plan, "mock") ? line : NULL);
    strcpy(path, "/tmp/inferd-device-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    rig_must(plan_write(path, plan, &err), &err);
    plan_free(plan);
}

/* --- what runs one --- */

enum status rig_init(struct rig *r, struct world *world, struct device *device, struct device *mock,
                     const struct rig_plan *spec, const struct context_options *options,
                     struct error *err)
{
    void *buffer = NULL;
    *r = (struct rig){.world = world, .device = device, .mock = mock};
    rig_plan_write(world, mock, spec, r->path);
    enum status status = engine_load(device, r->path, &r->engine, err);
    if (!status)
        status = lane_new(device, &r->lane, err);
    if (!status)
        status = context_new_with(r->engine, r->lane, options, &r->ctx, err);
    if (!status)
        status = engine_buffer_alloc(device, engine_describe(r->engine)->out_bytes_max, "output",
                                     &buffer, err);
    r->buffer = buffer;
    return status;
}

void rig_deinit(struct rig *r)
{
    engine_buffer_free(r->device, r->buffer);
    context_free(r->ctx);
    lane_free(r->lane);
    engine_unref(r->engine);
    engine_device_close(r->device);
    unlink(r->path);
}

void rig_make_with(struct rig *r, struct world *world, const struct rig_plan *spec,
                   const struct context_options *options)
{
    struct error err;
    struct device *mock = mock_open();
    mock_set_delay(mock, 20 * NS_PER_US);
    rig_must(rig_init(r, world, mock, mock, spec, options, &err), &err);
}

void rig_make(struct rig *r, struct world *world, unsigned host,
              const struct context_options *options)
{
    rig_make_with(r, world, &(struct rig_plan){.host = host}, options);
}

static void check(const struct rig *r, uint32_t first, uint32_t batch)
{
    world_check(r->world, engine_profile_for(r->engine, 0, batch), r->buffer, first, batch);
}

enum status rig_run(struct rig *r, const struct engine_span *spans, uint32_t n, uint32_t first,
                    uint32_t batch, struct error *err)
{
    struct engine_input input = {spans, n};
    struct engine_times times = {0};
    memset(r->buffer, 0xee, engine_describe(r->engine)->out_bytes_max);
    enum status status = context_enqueue(r->ctx, batch, &input, r->buffer, err);
    if (!status)
        status = context_wait_inputs(r->ctx, err);
    if (!status)
        status = context_wait(r->ctx, &times, err);
    if (status)
        return status;
    assert_true(times.compute_ns > 0);
    check(r, first, batch);
    return STATUS_OK;
}

void rig_run_all(struct rig *r)
{
    struct error err;
    for (uint32_t batch = 1; batch <= WORLD_MAX_BATCH; batch++) {
        uint32_t first = WORLD_MAX_BATCH - batch;
        struct engine_span span = {r->world->in + first * WORLD_IN, batch * RIG_INSTANCE};
        rig_must(rig_run(r, &span, 1, first, batch, &err), &err);
    }
}
