/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many contexts over one engine, each on a thread and lane of its own, give bit-equal results while
 * engines are loaded and dropped beside them. The test uses the reference kernels, so that it says
 * something under ThreadSanitizer too.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "engine/runtime/memory.h"
#include "tests/test.h"
#include "tests/unit/runtime/world.h"

enum { THREADS = 8, BATCHES = 60, INSTANCE = WORLD_IN * sizeof(float) };

struct thread {
    struct world *world;
    uint32_t index;
    pthread_t id;
    const char *failed; /* NULL: no error */
};

static const char *run_batch(struct world *w, struct context *ctx, char *buffer, uint32_t n)
{
    struct error err;
    uint32_t batch = 1 + n % WORLD_MAX_BATCH, first = n % (WORLD_MAX_BATCH - batch + 1);
    struct engine_span span = {w->in + first * WORLD_IN, batch * INSTANCE};
    struct engine_input input = {&span, 1};
    const struct engine_profile *p = engine_profile_for(w->engine, 0, batch);
    if (context_enqueue(ctx, batch, &input, buffer, &err) || context_wait(ctx, NULL, &err))
        return "a batch failed";
    for (uint32_t i = 0; i < WORLD_OUTPUTS; i++) {
        size_t size = engine_describe(w->engine)->outputs[i].instance_bytes;
        if (memcmp(buffer + p->out_offset[i], (const char *)w->out[i] + first * size, batch * size))
            return "a batch gave other bits";
    }
    return NULL;
}

static void *thread_main(void *arg)
{
    struct thread *t = arg;
    struct world *w = t->world;
    struct lane *lane = NULL;
    struct context *ctx = NULL;
    struct engine *engine = NULL;
    void *buffer = NULL;
    struct error err;
    size_t size = engine_describe(w->engine)->out_bytes_max;
    if (lane_new(w->cpu, &lane, &err) || context_new(w->engine, lane, &ctx, &err) ||
        engine_buffer_alloc(w->cpu, size, "output", &buffer, &err))
        t->failed = "no context";
    for (uint32_t i = 0; i < BATCHES && !t->failed; i++) {
        t->failed = run_batch(w, ctx, buffer, t->index + i);
        if (i % 20 == t->index) {
            engine_unref(engine);
            engine = NULL;
            if (!t->failed && engine_load(w->cpu, w->path, &engine, &err))
                t->failed = "loading beside it failed";
        }
    }
    engine_unref(engine);
    engine_buffer_free(w->cpu, buffer);
    context_free(ctx);
    lane_free(lane);
    return NULL;
}

/* The engine's padding is allocated with its first context and stays as long as the engine. */
static void first_context(struct world *w)
{
    struct lane *lane;
    struct context *ctx;
    struct error err;
    assert_int_equal(lane_new(w->cpu, &lane, &err), STATUS_OK);
    assert_int_equal(context_new(w->engine, lane, &ctx, &err), STATUS_OK);
    context_free(ctx);
    lane_free(lane);
}

static void contexts_on_many_threads_agree_bit_for_bit(void **state)
{
    struct world world;
    struct thread threads[THREADS];
    struct error err;
    (void)state;
    world_init(&world);
    first_context(&world);
    assert_int_equal(memory_track_start(world.cpu, &err), STATUS_OK);
    for (uint32_t i = 0; i < THREADS; i++) {
        threads[i] = (struct thread){.world = &world, .index = i};
        assert_int_equal(pthread_create(&threads[i].id, NULL, thread_main, &threads[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++)
        pthread_join(threads[i].id, NULL);
    for (uint32_t i = 0; i < THREADS; i++)
        if (threads[i].failed)
            fail_msg("thread %u: %s", i, threads[i].failed);
    struct memory_tag tags[16];
    size_t n = memory_track_tags(world.cpu, tags, ARRAY_LEN(tags));
    for (size_t i = 0; i < n; i++)
        if (tags[i].held)
            fail_msg("'%s': %zu bytes are still held", tags[i].tag, tags[i].held);
    world_deinit(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contexts_on_many_threads_agree_bit_for_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
