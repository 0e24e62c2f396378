/* SPDX-License-Identifier: Apache-2.0 */
/* Loading: which plans fit, which do not, and what of a damaged plan reaches a device. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "engine/plan/format.h"
#include "engine/runtime/memory.h"
#include "tests/test.h"
#include "tests/unit/runtime/world.h"

static void devices_by_name(void **state)
{
    const struct backend *backend = NULL;
    uint32_t index = 9;
    struct error err;
    (void)state;
    assert_int_equal(backend_find("cpu", &backend, &index, &err), STATUS_OK);
    assert_ptr_equal(backend, &backend_cpu);
    assert_int_equal(index, 0);
    assert_int_equal(backend_find("fault:3", &backend, &index, &err), STATUS_OK);
    assert_ptr_equal(backend, &backend_fault);
    assert_int_equal(index, 3);
    static const char *const bad[] = {"", "CPU", "cpu:", "cpu:x", "cpu:1x", "cpu:123456", "tpu"};
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_int_equal(backend_find(bad[i], &backend, &index, &err), STATUS_INVALID_ARGUMENT);
}

static void another_device_is_refused_with_the_reason(void **state)
{
    struct world *w = *state;
    struct device_options options = {.threads = 2, .reference_only = true};
    struct device *device;
    struct engine *engine = NULL;
    struct error err;
    assert_int_equal(engine_device_open("cpu", &options, &device, &err), STATUS_OK);
    assert_int_equal(engine_load(device, w->path, &engine, &err), STATUS_FAILED_PRECONDITION);
    assert_null(engine);
    if (!strstr(err.text, "built for") || !strstr(err.text, "': build it again"))
        fail_msg("'%s' does not say that the plan has to be built again", err.text);
    engine_device_close(device);
}

static void files_that_are_no_plans(void **state)
{
    struct world *w = *state;
    struct engine *engine = NULL;
    struct error err;
    assert_int_equal(engine_load(w->cpu, "/nowhere/x.plan", &engine, &err), STATUS_NOT_FOUND);
    assert_int_equal(engine_load(w->cpu, "/dev/null", &engine, &err), STATUS_INVALID_ARGUMENT);
    assert_int_equal(engine_load(w->cpu, "/proc/self/exe", &engine, &err), STATUS_DATA_LOSS);
    assert_null(engine);
}

static void memory_is_accounted_for(void **state)
{
    struct world *w = *state;
    struct engine *engine;
    struct lane *lane;
    struct context *ctx;
    struct error err;
    struct memory_tag tags[8];
    struct memory_record records[8];
    assert_int_equal(memory_track_tags(w->cpu, tags, 8), 0);
    assert_int_equal(memory_track_start(w->cpu, &err), STATUS_OK);
    assert_int_equal(engine_load(w->cpu, w->path, &engine, &err), STATUS_OK);
    assert_int_equal(lane_new(w->cpu, &lane, &err), STATUS_OK);
    assert_int_equal(context_new(engine, lane, &ctx, &err), STATUS_OK);
    size_t n = memory_track_tags(w->cpu, tags, 8);
    assert_int_equal(n, 3);
    static const char *const names[] = {"weights", "padding", "arena"};
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(tags[i].tag, names[i]);
        assert_true(tags[i].held > 0);
        assert_int_equal(tags[i].held, tags[i].peak);
        assert_int_equal(tags[i].count, 1);
    }
    assert_int_equal(tags[0].held, engine_describe(engine)->weight_bytes);
    context_free(ctx);
    lane_free(lane);
    engine_unref(engine);
    assert_int_equal(memory_track_tags(w->cpu, tags, 8), 3);
    assert_int_equal(tags[0].held + tags[1].held + tags[2].held, 0);
    assert_true(tags[2].peak > 0);
    assert_int_equal(memory_track_records(w->cpu, records, 8), 3);
    for (int i = 0; i < 3; i++)
        assert_true(records[i].released_ns >= records[i].taken_ns);
    memory_track_stop(w->cpu);
}

/* Loads the plan and runs a batch of each size. It may fail in any way but must not crash. */
static void try_plan(struct world *w, const char *path, unsigned *loaded)
{
    struct engine *engine = NULL;
    struct lane *lane = NULL;
    struct context *ctx = NULL;
    void *buffer = NULL;
    struct error err;
    if (engine_load(w->cpu, path, &engine, &err))
        return;
    const struct engine_info *info = engine_describe(engine);
    size_t size = MAX(info->out_bytes_max, (size_t)64);
    if (!lane_new(w->cpu, &lane, &err) && !context_new(engine, lane, &ctx, &err) &&
        !engine_buffer_alloc(w->cpu, size, "output", &buffer, &err) && info->n_inputs == 1) {
        ++*loaded;
        for (uint32_t batch = 1; batch <= 8; batch += 7) {
            size_t bytes = batch * info->inputs[0].instance_bytes;
            struct engine_span span = {w->in, bytes};
            struct engine_input input = {&span, 1};
            if (bytes <= WORLD_MAX_BATCH * WORLD_IN * sizeof(float) &&
                !context_enqueue(ctx, batch, &input, buffer, &err))
                context_wait(ctx, NULL, &err);
        }
    }
    engine_buffer_free(w->cpu, buffer);
    context_free(ctx);
    lane_free(lane);
    engine_unref(engine);
}

static void r34_altered_plans_run_or_are_refused(void **state)
{
    struct world *w = *state;
    struct file_map map;
    struct error err;
    unsigned loaded = 0;
    char path[80];
    assert_int_equal(file_map_path(w->path, 0, &map, &err), STATUS_OK);
    unsigned char *data = malloc(map.size);
    assert_non_null(data);
    snprintf(path, sizeof(path), "%s.altered", w->path);
    const struct plan_header *was = map.data;
    size_t begin = was->structure_offset, end = begin + was->structure_size;
    for (size_t i = begin; i < end; i += 1) {
        struct plan_header h = *was;
        memcpy(data, map.data, map.size);
        data[i] ^= (unsigned char)(1 << (i * 5 % 8));
        plan_digest(&h, XXH3_128bits(data + sizeof(h), map.size - sizeof(h)), h.digest);
        memcpy(data, &h, sizeof(h));
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(data, 1, map.size, f), map.size);
        fclose(f);
        try_plan(w, path, &loaded);
    }
    assert_true(loaded > 0); /* damage to names and times must have been harmless */
    unlink(path);
    free(data);
    file_unmap(&map);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(devices_by_name),
        cmocka_unit_test(another_device_is_refused_with_the_reason),
        cmocka_unit_test(files_that_are_no_plans),
        cmocka_unit_test(memory_is_accounted_for),
        cmocka_unit_test(r34_altered_plans_run_or_are_refused),
    };
    return cmocka_run_group_tests(tests, world_setup, world_teardown);
}
