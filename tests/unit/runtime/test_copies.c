/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which copies of a batch become one copy. The plan has two inputs: instances of one are too large
 * to be packed; those of the other are packed into the context's staging.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/build/build.h"
#include "engine/engine.h"
#include "engine/plan/plan.h"
#include "tests/test.h"
#include "tests/unit/mock/mock.h"

enum {
    BATCH = 2,
    LARGE = 2 * ENGINE_PACK_MAX / (int)sizeof(float), /* elements in an instance */
    SMALL = 16,
    LARGE_BYTES = LARGE * sizeof(float),
    SMALL_BYTES = SMALL * sizeof(float),
};

/* --- a plan --- */

static uint32_t add_relu(struct ir_graph *g, const char *in, const char *out, int64_t n)
{
    struct error err;
    struct shape shape = {.rank = 2, .dim = {BATCH, n}};
    uint32_t x = ir_tensor_add(g, in, DTYPE_F32, &shape);
    uint32_t node = ir_node_add(g, IR_OP_UNARY, out, 1, &x);
    assert_true(node != IR_NONE && ir_attr_set_int(g, node, IR_ATTR_FUNC, IR_UNARY_RELU));
    must(ir_infer_apply(g, node, &out, 1, &err), &err);
    g->inputs[g->n_inputs++] = x;
    return g->outputs[g->n_outputs++] = ir_node(g, node)->outputs[0];
}

static struct ir_graph *make_graph(struct device *cpu)
{
    struct error err;
    struct tune_report report;
    struct tune_options options = {.device = cpu, .no_timing = true};
    struct ir_graph *g = ir_graph_new();
    assert_non_null(g);
    g->name = "copies";
    add_relu(g, "large", "large out", LARGE);
    add_relu(g, "small", "small out", SMALL);
    must(tune_graph(g, &options, &report, &err), &err);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        struct tactic *tactic = arena_alloc(g->arena, sizeof(*tactic));
        assert_non_null(tactic);
        *tactic = *ir_node(g, i)->tactic;
        tactic->backend = "mock";
        ir_node(g, i)->tactic = tactic;
    }
    return g;
}

static void write_plan(char *path)
{
    static const struct device_options options = {.threads = 1, .reference_only = true};
    struct error err;
    struct device *cpu;
    struct plan *plan = plan_new();
    assert_non_null(plan);
    must(engine_device_open("cpu", &options, &cpu, &err), &err);
    plan->name = "copies";
    strcpy(plan->digest, "00112233445566778899aabbccddeeff");
    plan->batched = true;
    plan->n_inputs = plan->n_outputs = 2;
    plan->inputs[0] = (struct plan_binding){"large", DTYPE_F32, {2, {-1, LARGE}}};
    plan->inputs[1] = (struct plan_binding){"small", DTYPE_F32, {2, {-1, SMALL}}};
    plan->outputs[0] = (struct plan_binding){"large_out", DTYPE_F32, {2, {-1, LARGE}}};
    plan->outputs[1] = (struct plan_binding){"small_out", DTYPE_F32, {2, {-1, SMALL}}};
    struct plan_profile *p = &plan->profiles[plan->n_profiles++];
    p->batch = BATCH;
    p->graph = make_graph(cpu);
    must(build_place(p->graph, &p->tensor_bytes, &err), &err);
    plan_device_line(plan->device, "mock", NULL);
    int fd = mkstemp(strcpy(path, "/tmp/inferd-copies-XXXXXX"));
    assert_true(fd >= 0);
    close(fd);
    must(plan_write(path, plan, &err), &err);
    plan_free(plan);
    engine_device_close(cpu);
}

/* --- a context --- */

struct bench {
    struct device *device;
    struct engine *engine;
    struct lane *lane;
    struct context *ctx;
    float *large[BATCH]; /* pinned; each is an allocation, right behind the one before */
    float *small[BATCH];
    float *output;
};

static void *pinned(struct bench *b, size_t size)
{
    struct error err;
    void *buffer;
    must(engine_buffer_alloc(b->device, size, "test", &buffer, &err), &err);
    return buffer;
}

static void fill(float *to, int n, int seed)
{
    for (int i = 0; i < n; i++)
        to[i] = (float)((i * 37 + seed) % 101) - 50;
}

/* The staging lies right behind the last allocation of `large`. */
static void bench_init(struct bench *b)
{
    struct error err;
    char path[64];
    write_plan(path);
    *b = (struct bench){.device = mock_open()};
    must(engine_load(b->device, path, &b->engine, &err), &err);
    unlink(path);
    must(lane_new(b->device, &b->lane, &err), &err);
    for (int i = 0; i < BATCH; i++)
        fill(b->large[i] = pinned(b, LARGE_BYTES), LARGE, i);
    assert_ptr_equal(b->large[1], b->large[0] + LARGE);
    must(context_new(b->engine, b->lane, &b->ctx, &err), &err);
    for (int i = 0; i < BATCH; i++)
        fill(b->small[i] = pinned(b, SMALL_BYTES), SMALL, 10 + i);
    /* the staging lies between */
    assert_ptr_equal(b->small[0], b->large[1] + LARGE + BATCH * SMALL);
    assert_ptr_equal(b->small[1], b->small[0] + SMALL);
    b->output = pinned(b, engine_describe(b->engine)->out_bytes_max);
}

static void bench_deinit(struct bench *b)
{
    for (int i = 0; i < BATCH; i++) {
        engine_buffer_free(b->device, b->large[i]);
        engine_buffer_free(b->device, b->small[i]);
    }
    engine_buffer_free(b->device, b->output);
    context_free(b->ctx);
    lane_free(b->lane);
    engine_unref(b->engine);
    engine_device_close(b->device);
}

static void check(const struct bench *b, int output, const float *in, int at, int n)
{
    const struct engine_profile *p = engine_profile_for(b->engine, 0, BATCH);
    const float *out = (const float *)(void *)((char *)b->output + p->out_offset[output]) + at;
    for (int i = 0; i < n; i++) {
        float want = in[i] > 0 ? in[i] : 0;
        if (out[i] != want)
            fail_msg("output %d, element %d: %g, expected %g", output, at + i, (double)out[i],
                     (double)want);
    }
}

/* Runs one batch. Returns the counts of its copies. */
static struct mock_counts run(struct bench *b, const struct engine_input inputs[2], uint32_t batch)
{
    struct error err;
    struct mock_counts before, after;
    mock_read(b->device, &before);
    memset(b->output, 0xee, engine_describe(b->engine)->out_bytes_max);
    must(context_enqueue(b->ctx, batch, inputs, b->output, &err), &err);
    must(context_wait(b->ctx, NULL, &err), &err);
    mock_read(b->device, &after);
    for (uint32_t i = 0; i < batch; i++) {
        check(b, 0, b->large[i], (int)i * LARGE, LARGE);
        check(b, 1, b->small[i], (int)i * SMALL, SMALL);
    }
    for (int k = 0; k < 3; k++) {
        after.copies[k] -= before.copies[k];
        after.copy_calls[k] -= before.copy_calls[k];
    }
    return after;
}

/* --- tests --- */

/* If the mock took such copies, no test below could fail. */
static void the_mock_refuses_copies_across_allocations(void **state)
{
    struct bench b;
    struct backend_stream *stream;
    struct error err;
    void *device;
    (void)state;
    bench_init(&b);
    const struct backend *mock = b.device->backend;
    must(mock->stream_new(b.device, &stream, &err), &err);
    must(mock->memory_alloc(b.device, MEMORY_DEVICE, 2 * LARGE_BYTES, "test", &device, &err), &err);
    struct backend_copy both = {device, b.large[0], 2 * LARGE_BYTES};
    struct backend_copy one = {device, b.large[0], LARGE_BYTES};
    assert_int_equal(mock->copy(stream, COPY_TO_DEVICE, &both, 1, &err), STATUS_INTERNAL);
    must(mock->copy(stream, COPY_TO_DEVICE, &one, 1, &err), &err);
    both = (struct backend_copy){b.large[0], device, 2 * LARGE_BYTES};
    assert_int_equal(mock->copy(stream, COPY_TO_HOST, &both, 1, &err), STATUS_INTERNAL);
    mock->stream_free(stream);
    mock->memory_free(b.device, MEMORY_DEVICE, device);
    bench_deinit(&b);
}

/* Large spans that lie behind one another are two allocations. So are the last span and the staging
 * behind it. None of them may be copied together, although their destinations lie behind one
 * another too. */
static void spans_of_two_allocations_stay_two_copies(void **state)
{
    struct bench b;
    (void)state;
    bench_init(&b);
    struct engine_span large[] = {{b.large[0], LARGE_BYTES}, {b.large[1], LARGE_BYTES}};
    struct engine_span small[] = {{b.small[0], SMALL_BYTES}, {b.small[1], SMALL_BYTES}};
    struct engine_input inputs[] = {{large, 2}, {small, 2}};
    for (int i = 0; i < 3; i++) {
        struct mock_counts counts = run(&b, inputs, BATCH);
        assert_int_equal(counts.copy_calls[COPY_TO_DEVICE], 1);
        /* two of large instances, one of packed ones */
        assert_int_equal(counts.copies[COPY_TO_DEVICE], 3);
    }
    bench_deinit(&b);
}

static void padding_is_packed_with_what_is_packed(void **state)
{
    struct bench b;
    (void)state;
    bench_init(&b);
    struct engine_span large = {b.large[0], LARGE_BYTES}, small = {b.small[0], SMALL_BYTES};
    struct engine_input inputs[] = {{&large, 1}, {&small, 1}};
    struct mock_counts counts = run(&b, inputs, 1);
    assert_int_equal(counts.copies[COPY_TO_DEVICE], 2);
    assert_int_equal(counts.copies[COPY_ON_DEVICE], 1); /* zeros for the missing large instance */
    bench_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mock_refuses_copies_across_allocations),
        cmocka_unit_test(spans_of_two_allocations_stay_two_copies),
        cmocka_unit_test(padding_is_packed_with_what_is_packed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
