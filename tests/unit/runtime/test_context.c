/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "engine/runtime/layer_times.h"
#include "tests/test.h"
#include "tests/unit/runtime/world.h"

enum { INSTANCE = WORLD_IN * sizeof(float) };

struct fixture {
    struct world world;
    struct device *fault; /* gives the same answers through copies */
    struct engine *engine_fault;
    struct lane *lane, *lane_fault;
    struct context *ctx, *ctx_fault;
    char *buffer;
    size_t buffer_size;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct error err;
    void *buffer;
    assert_non_null(f);
    world_init(&f->world);
    f->fault = world_fault("apart");
    must(engine_load(f->fault, f->world.path, &f->engine_fault, &err), &err);
    must(lane_new(f->world.cpu, &f->lane, &err), &err);
    must(lane_new(f->fault, &f->lane_fault, &err), &err);
    must(context_new(f->world.engine, f->lane, &f->ctx, &err), &err);
    must(context_new(f->engine_fault, f->lane_fault, &f->ctx_fault, &err), &err);
    f->buffer_size = engine_describe(f->world.engine)->out_bytes_max;
    must(engine_buffer_alloc(f->world.cpu, f->buffer_size, "output", &buffer, &err), &err);
    f->buffer = buffer;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    engine_buffer_free(f->world.cpu, f->buffer);
    context_free(f->ctx);
    context_free(f->ctx_fault);
    lane_free(f->lane);
    lane_free(f->lane_fault);
    engine_unref(f->engine_fault);
    engine_device_close(f->fault);
    world_deinit(&f->world);
    free(f);
    return 0;
}

/* Runs `n_spans` spans as one batch and checks it. The spans hold instances first, first + 1, .. */
static void run(struct fixture *f, struct context *ctx, const struct engine_span *spans,
                uint32_t n_spans, uint32_t first, uint32_t batch)
{
    struct engine_input input = {spans, n_spans};
    struct error err;
    struct engine_times times = {0};
    memset(f->buffer, 0xee, f->buffer_size);
    must(context_enqueue(ctx, batch, &input, f->buffer, &err), &err);
    must(context_wait(ctx, &times, &err), &err);
    assert_true(times.compute_ns > 0);
    world_check(&f->world, engine_profile_for(f->world.engine, 0, batch), f->buffer, first, batch);
}

static void every_batch_on_the_smallest_profile(void **state)
{
    struct fixture *f = *state;
    static const uint32_t profiles[] = {1, 4, 4, 4, 8, 8, 8, 8};
    for (uint32_t batch = 1; batch <= WORLD_MAX_BATCH; batch++) {
        struct engine_span span = {f->world.in, batch * INSTANCE};
        assert_int_equal(engine_profile_for(f->world.engine, 0, batch)->batch, profiles[batch - 1]);
        run(f, f->ctx, &span, 1, 0, batch);
        run(f, f->ctx_fault, &span, 1, 0, batch);
    }
    assert_null(engine_profile_for(f->world.engine, 0, 0));
    assert_null(engine_profile_for(f->world.engine, 0, 9));
}

static void spans_of_any_number_and_alignment(void **state)
{
    struct fixture *f = *state;
    char *odd = malloc(WORLD_MAX_BATCH * INSTANCE + 3);
    assert_non_null(odd);
    memcpy(odd + 3, f->world.in, WORLD_MAX_BATCH * INSTANCE);
    struct engine_span spans[] = {
        {odd + 3, 2 * INSTANCE},
        {NULL, 0},
        {f->world.in + 2 * WORLD_IN, INSTANCE},
        {odd + 3 + 3 * INSTANCE, 5 * INSTANCE},
    };
    struct context *const both[] = {f->ctx, f->ctx_fault};
    for (int i = 0; i < 2; i++) {
        run(f, both[i], spans, 4, 0, 8);
        run(f, both[i], spans, 3, 0, 3);
        run(f, both[i], &spans[0], 1, 0, 2);
        run(f, both[i], &spans[3], 1, 3, 5);
    }
    free(odd);
}

/* Nothing that an earlier batch left in the arena may show in a smaller one, and the padded
 * instances are zeros: the same batch fills the whole buffer in the same way, whatever ran
 * before. */
static void padding_is_always_the_same(void **state)
{
    struct fixture *f = *state;
    struct engine_span two = {f->world.in, 2 * INSTANCE};
    struct engine_span four = {f->world.in + 3 * WORLD_IN, 4 * INSTANCE};
    const struct engine_profile *p = engine_profile_for(f->world.engine, 0, 2);
    char *first = malloc(p->out_bytes);
    assert_non_null(first);
    run(f, f->ctx, &two, 1, 0, 2);
    memcpy(first, f->buffer, p->out_bytes);
    run(f, f->ctx, &four, 1, 3, 4);
    struct engine_span odd = {f->world.in + 1, 2 * INSTANCE};
    struct engine_input input = {&odd, 1};
    struct error err;
    must(context_enqueue(f->ctx, 2, &input, f->buffer, &err), &err);
    must(context_wait(f->ctx, NULL, &err), &err);
    run(f, f->ctx, &two, 1, 0, 2);
    size_t end = p->out_offset[WORLD_OUTPUTS - 1];
    assert_memory_equal(first, f->buffer, MIN(end, p->out_offset[1]));
    free(first);
}

static void inputs_that_do_not_fit_are_refused(void **state)
{
    struct fixture *f = *state;
    static const struct {
        uint32_t batch;
        size_t a, b;
    } cases[] = {
        {0, 0, 0},
        {9, 8 * INSTANCE, INSTANCE},
        {UINT32_MAX, INSTANCE, 0},
        {2, INSTANCE, 0},
        {2, INSTANCE, 2 * INSTANCE},
        {2, INSTANCE + 4, INSTANCE - 4},
        {1, SIZE_MAX - INSTANCE + 1, 2 * INSTANCE},
        {1, SIZE_MAX / INSTANCE * INSTANCE, SIZE_MAX / INSTANCE * INSTANCE},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct engine_span spans[] = {{f->world.in, cases[i].a}, {f->world.in, cases[i].b}};
        struct engine_input input = {spans, 2};
        struct error err;
        enum status status = context_enqueue(f->ctx, cases[i].batch, &input, f->buffer, &err);
        if (status != STATUS_INVALID_ARGUMENT)
            fail_msg("case %zu: %s", i, status_name(status));
        assert_int_equal(err.scope, ERROR_REQUEST);
    }
    struct engine_span good = {f->world.in, INSTANCE};
    run(f, f->ctx, &good, 1, 0, 1);
}

static void one_batch_at_a_time(void **state)
{
    struct fixture *f = *state;
    struct engine_span span = {f->world.in, INSTANCE};
    struct engine_input input = {&span, 1};
    struct error err;
    assert_int_equal(context_wait(f->ctx, NULL, &err), STATUS_FAILED_PRECONDITION);
    must(context_enqueue(f->ctx, 1, &input, f->buffer, &err), &err);
    assert_int_equal(context_enqueue(f->ctx, 1, &input, f->buffer, &err),
                     STATUS_FAILED_PRECONDITION);
    must(context_wait(f->ctx, NULL, &err), &err);
    assert_int_equal(context_wait(f->ctx, NULL, &err), STATUS_FAILED_PRECONDITION);
}

static void two_contexts_share_a_lane(void **state)
{
    struct fixture *f = *state;
    struct context *second;
    struct error err;
    struct engine_span span = {f->world.in, 8 * INSTANCE};
    must(context_new(f->world.engine, f->lane, &second, &err), &err);
    for (int i = 0; i < 3; i++) {
        run(f, f->ctx, &span, 1, 0, 8);
        run(f, second, &span, 1, 0, 8);
    }
    context_free(second);
    run(f, f->ctx, &span, 1, 0, 8);
}

/* An engine lives as long as its last context. */
static void contexts_hold_their_engine(void **state)
{
    struct fixture *f = *state;
    struct engine *engine;
    struct context *ctx;
    struct error err;
    struct engine_span span = {f->world.in, INSTANCE};
    must(engine_load(f->world.cpu, f->world.path, &engine, &err), &err);
    must(context_new(engine, f->lane, &ctx, &err), &err);
    engine_unref(engine);
    run(f, ctx, &span, 1, 0, 1);
    context_free(ctx);
}

static void another_devices_lane_is_refused(void **state)
{
    struct fixture *f = *state;
    struct context *ctx = NULL;
    struct error err;
    assert_int_equal(context_new(f->world.engine, f->lane_fault, &ctx, &err),
                     STATUS_INVALID_ARGUMENT);
    assert_null(ctx);
}

static void each_layer_is_timed(void **state)
{
    struct fixture *f = *state;
    struct engine_span span = {f->world.in, 4 * INSTANCE};
    uint32_t n = 0;
    struct error err;
    assert_null(context_layer_times(f->ctx, 0, 4, &n));
    run(f, f->ctx, &span, 1, 0, 4);
    must(context_layer_times_start(f->ctx, &err), &err);
    for (int i = 0; i < 5; i++)
        run(f, f->ctx, &span, 1, 0, 4);
    const struct layer_time *layers = context_layer_times(f->ctx, 0, 4, &n);
    assert_non_null(layers);
    assert_int_equal(n, 4); /* the reshape is an alias */
    assert_string_equal(layers[0].node->name, "conv + relu");
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(layers[i].runs, 5);
        assert_true(layers[i].total_ns >= 5 * layers[i].min_ns);
    }
    layers = context_layer_times(f->ctx, 0, 8, &n);
    assert_int_equal(layers[0].runs, 0);
    assert_null(context_layer_times(f->ctx, 0, 9, &n));
}

static void an_engine_describes_itself(void **state)
{
    struct fixture *f = *state;
    const struct engine_info *info = engine_describe(f->world.engine);
    assert_string_equal(info->name, "sample");
    assert_string_equal(info->digest, "00112233445566778899aabbccddeeff");
    assert_true(info->batched);
    assert_int_equal(info->max_batch, 8);
    assert_int_equal(info->n_inputs, 1);
    assert_int_equal(info->n_outputs, WORLD_OUTPUTS);
    assert_int_equal(info->n_profiles, 3);
    assert_int_equal(info->inputs[0].shape.dim[0], -1);
    assert_int_equal(info->inputs[0].instance_bytes, INSTANCE);
    for (uint32_t p = 0; p < 3; p++) {
        const struct engine_profile *profile = &info->profiles[p];
        assert_int_equal(profile->in[0].dim[0], profile->batch);
        assert_true(profile->arena_bytes <= profile->tensor_bytes);
        assert_true(profile->out_bytes <= info->out_bytes_max);
        for (uint32_t i = 0; i < WORLD_OUTPUTS; i++)
            assert_int_equal(profile->out_offset[i] % 64, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_batch_on_the_smallest_profile),
        cmocka_unit_test(spans_of_any_number_and_alignment),
        cmocka_unit_test(padding_is_always_the_same),
        cmocka_unit_test(inputs_that_do_not_fit_are_refused),
        cmocka_unit_test(one_batch_at_a_time),
        cmocka_unit_test(two_contexts_share_a_lane),
        cmocka_unit_test(contexts_hold_their_engine),
        cmocka_unit_test(another_devices_lane_is_refused),
        cmocka_unit_test(each_layer_is_timed),
        cmocka_unit_test(an_engine_describes_itself),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
