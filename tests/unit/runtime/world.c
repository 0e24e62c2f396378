/* SPDX-License-Identifier: Apache-2.0 */
/* See world.h. */
#include "tests/unit/runtime/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/build/build.h"
#include "engine/cpu/eval.h"
#include "tests/test.h"
#include "tests/unit/plan/sample.h"

static void add_profile(struct world *world, struct plan *plan, uint32_t batch)
{
    struct error err;
    struct tune_report report;
    struct tune_options options = {.device = world->cpu, .no_timing = true};
    struct plan_profile *p = &plan->profiles[plan->n_profiles++];
    p->batch = batch;
    p->graph = sample_graph(batch);
    assert_non_null(p->graph);
    if (tune_graph(p->graph, &options, &report, &err) ||
        build_place(p->graph, &p->tensor_bytes, &err))
        fail_msg("%s", err.text);
}

static void write_plan(struct world *world)
{
    struct error err;
    struct plan *plan = sample_plan_empty();
    assert_non_null(plan);
    world->cpu->backend->device_fingerprint(world->cpu, plan->device);
    add_profile(world, plan, 1);
    add_profile(world, plan, 4);
    add_profile(world, plan, 8);
    strcpy(world->path, "/tmp/inferd-world-XXXXXX");
    int fd = mkstemp(world->path);
    assert_true(fd >= 0);
    close(fd);
    if (plan_write(world->path, plan, &err))
        fail_msg("%s", err.text);
    plan_free(plan);
}

static void ask_oracle(struct world *world)
{
    struct error err;
    struct ir_graph *graph = sample_graph(WORLD_MAX_BATCH);
    struct tensor_view in, out[WORLD_OUTPUTS];
    assert_non_null(graph);
    const struct ir_tensor *x = ir_tensor(graph, graph->inputs[0]);
    in = (struct tensor_view){x->dtype, x->shape, world->in};
    for (uint32_t i = 0; i < WORLD_OUTPUTS; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->outputs[i]);
        world->out[i] = calloc(1, t->bytes);
        assert_non_null(world->out[i]);
        out[i] = (struct tensor_view){t->dtype, t->shape, world->out[i]};
    }
    if (cpu_eval_graph(graph, &in, out, &err))
        fail_msg("%s", err.text);
    ir_graph_free(graph);
}

void world_init(struct world *world)
{
    struct error err;
    struct device_options options = {.threads = 1, .reference_only = true};
    memset(world, 0, sizeof(*world));
    if (engine_device_open("cpu", &options, &world->cpu, &err))
        fail_msg("%s", err.text);
    write_plan(world);
    world->in = aligned_alloc(64, (size_t)WORLD_MAX_BATCH * WORLD_IN * sizeof(float));
    assert_non_null(world->in);
    for (int i = 0; i < WORLD_MAX_BATCH * WORLD_IN; i++)
        world->in[i] = (float)((i * 37) % 101) / 50.0f - 1.0f;
    ask_oracle(world);
    if (engine_load(world->cpu, world->path, &world->engine, &err))
        fail_msg("%s", err.text);
}

void world_deinit(struct world *world)
{
    engine_unref(world->engine);
    engine_device_close(world->cpu);
    unlink(world->path);
    free(world->in);
    for (int i = 0; i < WORLD_OUTPUTS; i++)
        free(world->out[i]);
}

struct device *world_fault(const char *script)
{
    struct error err;
    struct device *device;
    struct device_options options = {.threads = 1, .reference_only = true, .script = script};
    if (engine_device_open("fault", &options, &device, &err))
        fail_msg("%s", err.text);
    return device;
}

void world_check(const struct world *world, const struct engine_profile *profile,
                 const char *buffer, uint32_t first, uint32_t n)
{
    const struct engine_info *info = engine_describe(world->engine);
    for (uint32_t i = 0; i < WORLD_OUTPUTS; i++) {
        size_t size = info->outputs[i].instance_bytes;
        const char *want = (const char *)world->out[i] + first * size;
        const char *have = buffer + profile->out_offset[i];
        for (uint32_t k = 0; k < n; k++)
            if (memcmp(want + k * size, have + k * size, size) != 0)
                fail_msg("output '%s', instance %u of %u in profile %u is wrong",
                         info->outputs[i].name, k, n, profile->batch);
    }
}

int world_setup(void **state)
{
    struct world *world = calloc(1, sizeof(*world));
    assert_non_null(world);
    world_init(world);
    *state = world;
    return 0;
}

int world_teardown(void **state)
{
    world_deinit(*state);
    free(*state);
    return 0;
}
