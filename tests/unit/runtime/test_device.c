/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts on a device with memory of its own that can capture graphs (mock.h). */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "engine/plan/plan.h"
#include "engine/runtime/fault.h"
#include "engine/runtime/memory.h"
#include "engine/runtime/layer_times.h"
#include "tests/test.h"
#include "tests/unit/mock/mock.h"
#include "tests/unit/runtime/rig.h"

/* --- tests --- */

static void captured_graphs_serve_and_nothing_is_allocated(void **state)
{
    struct rig r;
    struct mock_counts before, after;
    rig_make(&r, *state, 0, &(struct context_options){0});
    mock_read(r.mock, &before);
    /* each node is launched once plainly and once captured */
    assert_int_equal(before.launches, 2 * 3 * RIG_NODES);
    assert_int_equal(before.graphs, 3);
    assert_int_equal(before.compiled, 3 * RIG_NODES);
    for (int i = 0; i < 3; i++)
        rig_run_all(&r);
    mock_read(r.mock, &after);
    assert_int_equal(after.launches, before.launches);
    assert_int_equal(after.graphs, before.graphs + 3 * WORLD_MAX_BATCH);
    assert_int_equal(after.allocations, before.allocations);
    /* One call for the inputs of a batch, one for its outputs. */
    assert_int_equal(after.copy_calls[COPY_TO_DEVICE],
                     before.copy_calls[COPY_TO_DEVICE] + 3 * WORLD_MAX_BATCH);
    assert_int_equal(after.copy_calls[COPY_TO_HOST],
                     before.copy_calls[COPY_TO_HOST] + 3 * WORLD_MAX_BATCH);
    rig_deinit(&r);
}

static void without_capture_layers_are_launched(void **state)
{
    struct rig r;
    struct mock_counts before, after;
    struct error err;
    struct engine_span span = {((struct world *)*state)->in, 3 * RIG_INSTANCE};
    rig_make(&r, *state, 0, &(struct context_options){.no_capture = true});
    mock_read(r.mock, &before);
    rig_must(rig_run(&r, &span, 1, 0, 3, &err), &err);
    mock_read(r.mock, &after);
    assert_int_equal(after.graphs, 0);
    assert_int_equal(after.launches, before.launches + RIG_NODES);
    rig_deinit(&r);
}

static void a_context_for_one_batch_size(void **state)
{
    struct rig r;
    struct mock_counts counts;
    struct error err;
    struct world *world = *state;
    struct engine_span spans[] = {{world->in, 3 * RIG_INSTANCE}, {world->in, RIG_INSTANCE}};
    rig_make(&r, world, 0, &(struct context_options){.batch = 3});
    mock_read(r.mock, &counts);
    assert_int_equal(counts.launches, 2 * RIG_NODES);
    rig_must(rig_run(&r, &spans[0], 1, 0, 3, &err), &err);
    struct engine_input input = {&spans[1], 1};
    assert_int_equal(context_enqueue(r.ctx, 1, &input, r.buffer, &err), STATUS_INVALID_ARGUMENT);
    rig_must(rig_run(&r, &spans[0], 1, 0, 3, &err), &err);
    struct context *ctx = NULL;
    assert_int_equal(
        context_new_with(r.engine, r.lane, &(struct context_options){.batch = 9}, &ctx, &err),
        STATUS_INVALID_ARGUMENT);
    assert_null(ctx);
    rig_deinit(&r);
}

/* Nothing of an earlier batch may show: the outputs of padding are the outputs of zeros. */
static void padding_is_zero(void **state)
{
    struct rig r;
    struct error err;
    struct world *world = *state;
    rig_make(&r, world, 0, &(struct context_options){0});
    struct engine_span one = {world->in, RIG_INSTANCE}, eight = {world->in, 8 * RIG_INSTANCE};
    struct engine_span five = {world->in, 5 * RIG_INSTANCE};
    rig_must(rig_run(&r, &eight, 1, 0, 8, &err), &err);
    rig_must(rig_run(&r, &five, 1, 0, 5, &err), &err);
    rig_must(rig_run(&r, &one, 1, 0, 1, &err), &err);
    /* "same" is the input. A batch without inputs runs on what is on the device, and so shows the
     * device's copy. */
    rig_must(context_enqueue(r.ctx, 8, NULL, r.buffer, &err), &err);
    rig_must(context_wait(r.ctx, NULL, &err), &err);
    const struct engine_profile *p = engine_profile_for(r.engine, 0, 8);
    const float *same = (const float *)(void *)(r.buffer + p->out_offset[2]);
    assert_memory_equal(same, world->in, 5 * RIG_INSTANCE);
    for (int i = 5 * WORLD_IN; i < 8 * WORLD_IN; i++)
        if (same[i] != 0)
            fail_msg("element %d is %g", i, (double)same[i]);
    rig_deinit(&r);
}

static void spans_of_any_number_and_alignment(void **state)
{
    struct rig r;
    struct error err;
    struct world *world = *state;
    char *odd = malloc(WORLD_MAX_BATCH * RIG_INSTANCE + 3);
    assert_non_null(odd);
    memcpy(odd + 3, world->in, WORLD_MAX_BATCH * RIG_INSTANCE);
    struct engine_span spans[] = {
        {odd + 3, 2 * RIG_INSTANCE},
        {NULL, 0},
        {world->in + 2 * WORLD_IN, RIG_INSTANCE},
        {odd + 3 + 3 * RIG_INSTANCE, 5 * RIG_INSTANCE},
    };
    rig_make(&r, world, 0, &(struct context_options){0});
    rig_must(rig_run(&r, spans, 4, 0, 8, &err), &err);
    rig_must(rig_run(&r, spans, 3, 0, 3, &err), &err);
    rig_must(rig_run(&r, &spans[3], 1, 3, 5, &err), &err);
    struct mock_counts before, after;
    mock_read(r.mock, &before);
    rig_must(rig_run(&r, spans, 4, 0, 8, &err), &err);
    mock_read(r.mock, &after); /* small spans are packed: one copy, not three */
    assert_int_equal(after.copies[COPY_TO_DEVICE], before.copies[COPY_TO_DEVICE] + 1);
    rig_deinit(&r);
    free(odd);
}

/* Runs of nodes on the device in one profile; the builder puts nodes into an order with few. */
static uint64_t count_runs(const char *path)
{
    struct plan *plan;
    struct error err;
    uint64_t n = 0;
    rig_must(plan_read(path, &plan, &err), &err);
    const struct ir_graph *graph = plan->profiles[0].graph;
    for (uint32_t i = 0; i < graph->n_segments; i++)
        n += strcmp(graph->segments[i].backend, "cpu") != 0;
    plan_free(plan);
    return n;
}

/* Every way to share the nodes out between device and CPU gives the same answers. */
static void layers_on_the_cpu_beside_the_device(void **state)
{
    for (unsigned host = 1; host < 1U << RIG_NODES; host++) {
        struct rig r;
        struct mock_counts before, after;
        rig_make(&r, *state, host, &(struct context_options){0});
        uint64_t graphs = count_runs(r.path); /* each is a graph */
        assert_true(graphs <= 2 && (graphs > 0 || host == (1U << RIG_NODES) - 1));
        mock_read(r.mock, &before);
        rig_run_all(&r);
        rig_run_all(&r);
        mock_read(r.mock, &after);
        if (after.graphs != before.graphs + 2 * WORLD_MAX_BATCH * graphs)
            fail_msg("host %x: %llu graphs, %llu expected in %d batches", host,
                     (unsigned long long)(after.graphs - before.graphs), (unsigned long long)graphs,
                     2 * WORLD_MAX_BATCH);
        assert_int_equal(after.allocations, before.allocations);
        rig_deinit(&r);
    }
}

static void layers_are_timed_wherever_they_run(void **state)
{
    static const unsigned hosts[] = {0, 2, 15};
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
        struct rig r;
        struct error err;
        uint32_t n = 0;
        rig_make(&r, *state, hosts[i], &(struct context_options){0});
        rig_must(context_layer_times_start(r.ctx, &err), &err);
        rig_run_all(&r);
        const struct layer_time *layers = context_layer_times(r.ctx, 0, 8, &n);
        assert_int_equal(n, RIG_NODES);
        for (uint32_t k = 0; k < n; k++) {
            assert_int_equal(layers[k].runs, 4); /* 5 to 8 */
            assert_true(layers[k].total_ns >= 4 * layers[k].min_ns);
            assert_true(layers[k].total_ns > 0);
        }
        rig_deinit(&r);
    }
}

/* The base lies between base_ns and trace_base_clock, the batch between begun_ns and now; a thread
 * may lose its core anywhere, so nothing is said of how near two of these moments are. */
static void check_trace(struct rig *r, const struct trace_base *base, uint64_t base_ns,
                        uint64_t begun_ns, uint64_t *last)
{
    struct trace_span spans[3 + RIG_NODES];
    struct error err;
    uint32_t n = 0;
    rig_must(context_trace(r->ctx, base, spans, ARRAY_LEN(spans), &n, &err), &err);
    assert_int_equal(n, ARRAY_LEN(spans));
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(spans[i].kind, (int)(TRACE_INPUT + (int)i));
        assert_true(spans[i].begin_ns >= *last && spans[i].end_ns >= spans[i].begin_ns);
        *last = spans[i].end_ns;
    }
    uint64_t before = spans[1].begin_ns;
    for (uint32_t i = 3; i < n; i++) {
        assert_int_equal(spans[i].kind, TRACE_LAYER);
        assert_non_null(spans[i].node);
        assert_true(spans[i].begin_ns >= before && spans[i].end_ns >= spans[i].begin_ns);
        before = spans[i].end_ns;
    }
    assert_true(before <= spans[1].end_ns);
    assert_true(*last <= clock_now_ns() - base_ns);
    assert_true(spans[0].begin_ns >= begun_ns - trace_base_clock(base));
}

static void traces_are_in_order(void **state)
{
    struct world *world = *state;
    struct rig r;
    struct error err;
    struct trace_base *base;
    struct engine_span span = {world->in, 4 * RIG_INSTANCE};
    uint64_t last = 0;
    uint32_t n;
    rig_make(&r, world, 0, &(struct context_options){0});
    uint64_t base_ns = clock_now_ns();
    rig_must(trace_base_new(r.device, &base, &err), &err);
    assert_int_equal(context_trace(r.ctx, base, NULL, 0, &n, &err), STATUS_FAILED_PRECONDITION);
    rig_must(context_layer_times_start(r.ctx, &err), &err);
    for (int i = 0; i < 5; i++) {
        uint64_t begun_ns = clock_now_ns();
        rig_must(rig_run(&r, &span, 1, 0, 4, &err), &err);
        check_trace(&r, base, base_ns, begun_ns, &last);
    }
    trace_base_free(base);
    rig_deinit(&r);
}

/* the fault backend over it */

static enum status faulty(struct rig *r, struct world *world, const char *script, unsigned host,
                          struct error *err)
{
    struct device *device;
    const struct device_options options = {
        .reference_only = true, .script = script, .wrap = &backend_mock};
    rig_must(engine_device_open("fault", &options, &device, err), err);
    assert_false(device->backend->host_memory);
    assert_true(device->backend->stable_addresses);
    assert_non_null(device->backend->capture_begin);
    assert_string_equal(fault_wrapped(device), "mock");
    return rig_init(r, world, device, device, &(struct rig_plan){.host = host},
                    &(struct context_options){0}, err);
}

/* A failure while a context is made, also during a capture, fails that context alone, and all
 * memory comes back (the mock checks this when it is closed). */
static void failures_while_it_is_made_ready(void **state)
{
    static const char *const points[] = {"memory", "prepare", "launch", "copy", "wait"};
    for (size_t k = 0; k < ARRAY_LEN(points); k++) {
        bool ready = false;
        for (int call = 1; call < 80 && !ready; call++) {
            struct rig r;
            struct error err;
            char script[48];
            snprintf(script, sizeof(script), "%s#%d:oom", points[k], call);
            enum status status = faulty(&r, *state, script, call % 2 ? 2 : 0, &err);
            if (status && status != STATUS_RESOURCE_EXHAUSTED)
                fail_msg("%s: %s: %s", script, status_name(status), err.text);
            ready = !status;
            rig_deinit(&r);
        }
        assert_true(ready);
    }
}

static void a_failed_batch_is_the_only_one(void **state)
{
    /* To make the context ready takes 3 profiles x (4 launches, 4 captured, 1 graph), copies: 2,
     * and 3 x 1 of zeros, and waits: 1 + 3 x 2. */
    static const char *const scripts[] = {"launch#29:fail", "copy#8:fail", "copy#9:fail",
                                          "wait#10:fail"};
    struct world *world = *state;
    struct engine_span span = {world->in, 2 * RIG_INSTANCE};
    for (size_t i = 0; i < ARRAY_LEN(scripts); i++) {
        struct rig r;
        struct error err;
        rig_must(faulty(&r, world, scripts[i], 0, &err), &err);
        unsigned failed = 0;
        for (int k = 0; k < 6; k++) {
            enum status status = rig_run(&r, &span, 1, 0, 2, &err);
            assert_true(status == STATUS_OK || status == STATUS_INTERNAL);
            failed += status != STATUS_OK;
            if (status) /* the failure may have come while waiting for the inputs */
                (void)context_wait(r.ctx, NULL, &err);
        }
        if (failed != 1)
            fail_msg("%s: %u failures", scripts[i], failed);
        rig_deinit(&r);
    }
}

static void a_lost_device_stays_lost(void **state)
{
    struct world *world = *state;
    struct engine_span span = {world->in, 2 * RIG_INSTANCE};
    struct rig r;
    struct error err;
    rig_must(faulty(&r, world, "launch#29:device", 0, &err), &err);
    rig_must(rig_run(&r, &span, 1, 0, 2, &err), &err);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(rig_run(&r, &span, 1, 0, 2, &err), STATUS_UNAVAILABLE);
        assert_int_equal(err.scope, ERROR_DEVICE);
    }
    rig_deinit(&r);
}

/* --- two at once --- */

struct second {
    struct rig *first;
    struct rig rig;
    unsigned rounds;
};

static void *run_beside(void *arg)
{
    struct second *s = arg;
    struct error err;
    void *buffer;
    s->rig = *s->first;
    rig_must(lane_new(s->rig.device, &s->rig.lane, &err), &err);
    rig_must(context_new(s->rig.engine, s->rig.lane, &s->rig.ctx, &err), &err);
    rig_must(engine_buffer_alloc(s->rig.device, engine_describe(s->rig.engine)->out_bytes_max,
                                 "output", &buffer, &err),
             &err);
    s->rig.buffer = buffer;
    for (unsigned i = 0; i < s->rounds; i++)
        rig_run_all(&s->rig);
    engine_buffer_free(s->rig.device, buffer);
    context_free(s->rig.ctx);
    lane_free(s->rig.lane);
    return NULL;
}

static void two_contexts_at_once(void **state)
{
    static const unsigned hosts[] = {0, 5};
    for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
        struct rig r;
        struct mock_counts counts;
        pthread_t thread;
        rig_make(&r, *state, hosts[i], &(struct context_options){0});
        mock_read(r.mock, &counts);
        uint64_t compiled = counts.compiled;
        struct second second = {.first = &r, .rounds = 4};
        assert_int_equal(pthread_create(&thread, NULL, run_beside, &second), 0);
        for (int k = 0; k < 4; k++)
            rig_run_all(&r);
        pthread_join(thread, NULL);
        mock_read(r.mock, &counts);
        assert_int_equal(counts.compiled, compiled); /* compiled once for all contexts */
        rig_deinit(&r);
    }
}

/* --- accounts and refusals --- */

static void memory_is_counted_by_tag(void **state)
{
    struct world *world = *state;
    struct device *mock = mock_open();
    struct rig r;
    struct error err;
    struct memory_tag tags[16];
    size_t device = 0;
    struct mock_counts counts;
    rig_must(memory_track_start(mock, &err), &err);
    rig_must(rig_init(&r, world, mock, mock, &(struct rig_plan){.host = 2},
                      &(struct context_options){0}, &err),
             &err);
    size_t n = memory_track_tags(mock, tags, ARRAY_LEN(tags));
    unsigned seen = 0;
    for (size_t i = 0; i < n; i++) {
        bool on_device = !strcmp(tags[i].tag, "weights") || !strcmp(tags[i].tag, "padding") ||
                         !strcmp(tags[i].tag, "arena");
        assert_int_equal(tags[i].kind, on_device ? MEMORY_DEVICE : MEMORY_PINNED);
        device += on_device ? tags[i].held : 0;
        seen += on_device || !strcmp(tags[i].tag, "staging") || !strcmp(tags[i].tag, "host arena");
    }
    assert_int_equal(seen, 5);
    mock_read(mock, &counts);
    assert_int_equal(device, counts.device_bytes);
    rig_deinit(&r);
}

static void plans_for_others_are_refused(void **state)
{
    struct world *world = *state;
    struct device *mock = mock_open();
    struct engine *engine = NULL;
    struct error err;
    char path[64];
    rig_plan_write(world, mock, &(struct rig_plan){.host = 2}, path);
    assert_int_equal(engine_load(world->cpu, path, &engine, &err), STATUS_FAILED_PRECONDITION);
    if (!strstr(err.text, "name the one it is for, or build it again"))
        fail_msg("'%s' does not say that another device would do", err.text);
    assert_int_equal(engine_load(mock, world->path, &engine, &err), STATUS_FAILED_PRECONDITION);
    assert_null(engine);
    unlink(path);
    engine_device_close(mock);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captured_graphs_serve_and_nothing_is_allocated),
        cmocka_unit_test(without_capture_layers_are_launched),
        cmocka_unit_test(a_context_for_one_batch_size),
        cmocka_unit_test(padding_is_zero),
        cmocka_unit_test(spans_of_any_number_and_alignment),
        cmocka_unit_test(layers_on_the_cpu_beside_the_device),
        cmocka_unit_test(layers_are_timed_wherever_they_run),
        cmocka_unit_test(traces_are_in_order),
        cmocka_unit_test(failures_while_it_is_made_ready),
        cmocka_unit_test(a_failed_batch_is_the_only_one),
        cmocka_unit_test(a_lost_device_stays_lost),
        cmocka_unit_test(two_contexts_at_once),
        cmocka_unit_test(memory_is_counted_by_tag),
        cmocka_unit_test(plans_for_others_are_refused),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
