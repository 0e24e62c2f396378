/* SPDX-License-Identifier: Apache-2.0 */
/* Running a batch allocates nothing. The test is linked with --wrap for the allocator's
 * functions. */
#include <stdlib.h>

#include "engine/runtime/layer_times.h"
#include "tests/test.h"
#include "tests/unit/runtime/world.h"

enum { INSTANCE = WORLD_IN * sizeof(float) };

void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);

static unsigned allocations;

void *__wrap_malloc(size_t size)
{
    allocations++;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size)
{
    allocations++;
    return __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t size)
{
    allocations++;
    return __real_realloc(p, size);
}

void *__wrap_aligned_alloc(size_t align, size_t size)
{
    allocations++;
    return __real_aligned_alloc(align, size);
}

static void run_all(struct context *ctx, const struct world *w, char *buffer)
{
    for (uint32_t batch = 1; batch <= WORLD_MAX_BATCH; batch++) {
        struct engine_span spans[] = {{w->in, INSTANCE},
                                      {w->in + WORLD_IN, (batch - 1) * INSTANCE}};
        struct engine_input input = {spans, 2};
        struct error err;
        struct engine_times times;
        if (context_enqueue(ctx, batch, &input, buffer, &err) || context_wait(ctx, &times, &err))
            fail_msg("%s", err.text);
    }
}

static void check(struct world *w, struct device *device)
{
    struct engine *engine;
    struct lane *lane;
    struct context *ctx;
    struct error err;
    void *buffer;
    if (engine_load(device, w->path, &engine, &err) || lane_new(device, &lane, &err) ||
        context_new(engine, lane, &ctx, &err) ||
        engine_buffer_alloc(device, engine_describe(engine)->out_bytes_max, "output", &buffer,
                            &err))
        fail_msg("%s", err.text);
    assert_true(allocations > 0); /* shows that the wrapping works */
    for (int timed = 0; timed < 2; timed++) {
        allocations = 0;
        run_all(ctx, w, buffer);
        assert_int_equal(allocations, 0);
        assert_int_equal(context_layer_times_start(ctx, &err), STATUS_OK);
    }
    engine_buffer_free(device, buffer);
    context_free(ctx);
    lane_free(lane);
    engine_unref(engine);
}

static void a_batch_allocates_nothing(void **state)
{
    struct world w;
    (void)state;
    world_init(&w);
    struct device *fault = world_fault("apart");
    check(&w, w.cpu);
    check(&w, fault);
    engine_device_close(fault);
    world_deinit(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
