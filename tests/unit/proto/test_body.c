/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "proto/body.h"
#include "tests/test.h"

static struct arena *arena;
static struct message_text wire;
static struct error err;

static int setup(void **state)
{
    (void)state;
    arena = arena_new(1 << 20);
    return arena ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    arena_free(arena);
    return 0;
}

static void ok(enum status s)
{
    if (s != STATUS_OK)
        fail_msg("%s: %s", status_name(s), err.text);
}

static void server_metadata(void **state)
{
    (void)state;
    /* The first text ends within a character, which is left out. */
    const char *const extensions[] = {"statistics\xe2\x82", "model_repository"};
    struct body_server_metadata in = {"inferd", "1.2", 2, extensions}, out;
    ok(body_server_metadata_encode(&in, arena, &wire, &err));
    ok(body_server_metadata_decode(wire, arena, &out, &err));
    assert_string_equal(out.name, "inferd");
    assert_string_equal(out.version, "1.2");
    assert_int_equal(out.n_extensions, 2);
    assert_string_equal(out.extensions[0], "statistics");
    assert_string_equal(out.extensions[1], "model_repository");
}

static void model_metadata(void **state)
{
    (void)state;
    const char *const versions[] = {"1", "2"};
    const struct body_tensor inputs[] = {{"x", "FP32", {3, {-1, 8, 8}}}, {"s", "INT64", {0, {0}}}};
    const struct body_tensor outputs[] = {{"y", "FP32", {2, {-1, 10}}}};
    struct body_model_metadata in = {.name = "digits",
                                     .platform = "inferd_plan",
                                     .n_versions = 2,
                                     .n_inputs = 2,
                                     .n_outputs = 1,
                                     .versions = versions,
                                     .inputs = inputs,
                                     .outputs = outputs},
                               out;
    ok(body_model_metadata_encode(&in, arena, &wire, &err));
    ok(body_model_metadata_decode(wire, arena, &out, &err));
    assert_string_equal(out.platform, "inferd_plan");
    assert_int_equal(out.n_versions, 2);
    assert_string_equal(out.versions[0], "1");
    assert_int_equal(out.n_inputs, 2);
    assert_string_equal(out.inputs[0].name, "x");
    assert_string_equal(out.inputs[0].datatype, "FP32");
    assert_true(shape_equal(&out.inputs[0].shape, &inputs[0].shape));
    assert_int_equal(out.inputs[1].shape.rank, 0);
    assert_int_equal(out.n_outputs, 1);
    assert_true(shape_equal(&out.outputs[0].shape, &outputs[0].shape));
}

static void statistics(void **state)
{
    (void)state;
    const struct body_batch_statistics batches[] = {{1, {2, 3}, {4, 5}, {6, 7}},
                                                    {8, {9, 10}, {11, 12}, {13, 14}}};
    const struct body_model_statistics models[] = {
        {.name = "m",
         .version = "1",
         .last_inference = 15,
         .inference_count = 16,
         .execution_count = 17,
         .success = {18, 19},
         .fail = {20, 21},
         .queue = {22, 23},
         .compute_input = {24, 25},
         .compute_infer = {26, 27},
         .compute_output = {28, 29},
         .n_batches = 2,
         .batches = batches},
        {.name = "n"},
    };
    struct body_statistics in = {2, models}, out;
    ok(body_statistics_encode(&in, arena, &wire, &err));
    ok(body_statistics_decode(wire, arena, &out, &err));
    assert_int_equal(out.n_models, 2);
    const struct body_model_statistics *m = &out.models[0];
    assert_string_equal(m->name, "m");
    assert_int_equal(m->execution_count, 17);
    assert_int_equal(m->success.count, 18);
    assert_int_equal(m->fail.ns, 21);
    assert_int_equal(m->compute_output.ns, 29);
    assert_int_equal(m->n_batches, 2);
    assert_memory_equal(m->batches, batches, sizeof(batches));
    assert_string_equal(out.models[1].version, "");
    assert_int_equal(out.models[1].n_batches, 0);
}

static void index_of_the_repository(void **state)
{
    (void)state;
    const struct body_index_entry models[] = {{"a", "1", "READY", ""},
                                              {"b", "2", "UNAVAILABLE", "no such file"}};
    struct body_index in = {2, models}, out;
    ok(body_index_encode(&in, arena, &wire, &err));
    ok(body_index_decode(wire, arena, &out, &err));
    assert_int_equal(out.n_models, 2);
    assert_string_equal(out.models[1].reason, "no such file");
    assert_string_equal(out.models[0].state, "READY");
}

static void server_status(void **state)
{
    (void)state;
    struct body_status_model models[20];
    struct body_counter counters[100];
    for (uint32_t i = 0; i < 20; i++)
        models[i] = (struct body_status_model){.name = "m", .version = "1", .requests = i};
    for (uint32_t i = 0; i < 100; i++)
        counters[i] = (struct body_counter){"c", i * i};
    const struct body_bucket few[] = {{7, 1}, {0, 1ull << 40}}, one[] = {{1000, 3}};
    models[3].since_ms = 99;
    models[3].stages[BODY_QUEUE] = (struct body_stage){11, 2, few};
    models[3].stages[BODY_TOTAL] = (struct body_stage){12, 1, one};
    const struct body_memory memory[] = {{"host", 1ull << 33, 1ull << 40}, {"pinned", 7, 0}};
    struct body_server_status in = {.version = "0.1",
                                    .device = "cpu",
                                    .uptime_s = 5,
                                    .uptime_ns = 5000000001,
                                    .started_ms = 77,
                                    .ready = true,
                                    .workers = 2,
                                    .workers_busy = 1,
                                    .connections = 3,
                                    .inflight_bytes = 1ull << 40,
                                    .inflight_requests = 4,
                                    .n_models = 20,
                                    .n_counters = 100,
                                    .models = models,
                                    .counters = counters,
                                    .n_memory = 2,
                                    .memory = memory},
                              out;
    ok(body_server_status_encode(&in, arena, &wire, &err));
    ok(body_server_status_decode(wire, arena, &out, &err));
    assert_true(out.ready);
    assert_int_equal(out.inflight_bytes, 1ull << 40);
    assert_int_equal(out.n_models, 20);
    assert_int_equal(out.n_counters, 100);
    for (uint32_t i = 0; i < 20; i++)
        assert_int_equal(out.models[i].requests, i);
    for (uint32_t i = 0; i < 100; i++)
        assert_int_equal(out.counters[i].value, i * i);

    assert_int_equal(out.uptime_ns, 5000000001);
    assert_int_equal(out.started_ms, 77);
    assert_int_equal(out.models[3].since_ms, 99);
    const struct body_stage *stages = out.models[3].stages;
    assert_int_equal(stages[BODY_QUEUE].ns, 11);
    assert_int_equal(stages[BODY_QUEUE].n_buckets, 2);
    assert_memory_equal(stages[BODY_QUEUE].buckets, few, sizeof(few));
    assert_int_equal(stages[BODY_INPUT].n_buckets, 0);
    assert_int_equal(stages[BODY_TOTAL].ns, 12);
    assert_memory_equal(stages[BODY_TOTAL].buckets, one, sizeof(one));

    assert_int_equal(out.n_memory, 2);
    assert_string_equal(out.memory[0].name, "host");
    assert_int_equal(out.memory[0].bytes, 1ull << 33);
    assert_int_equal(out.memory[0].limit, 1ull << 40);
    assert_string_equal(out.memory[1].name, "pinned");
    assert_int_equal(out.memory[1].limit, 0);

    struct arena *small = arena_new(256);
    assert_int_equal(body_server_status_decode(wire, small, &out, &err), STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(body_server_status_encode(&in, small, &wire, &err), STATUS_RESOURCE_EXHAUSTED);
    arena_free(small);
}

/* The largest bodies that a server sends: 1,024 models, each with batches of many sizes. */
static void r4_the_largest_bodies_are_taken(void **state)
{
    (void)state;
    enum { MODELS = 1024, SIZES = 128 };
    struct arena *large = arena_new(256u << 20);
    struct body_batch_statistics *batches = arena_array(large, SIZES, sizeof(*batches));
    struct body_model_statistics *models = arena_array(large, MODELS, sizeof(*models));
    const struct body_duration d = {1ull << 60, UINT64_MAX};
    for (uint32_t i = 0; i < SIZES; i++)
        batches[i] = (struct body_batch_statistics){i + 1, d, d, d};
    for (uint32_t i = 0; i < MODELS; i++)
        models[i] = (struct body_model_statistics){.name = "m",
                                                   .version = "1",
                                                   .last_inference = 1,
                                                   .inference_count = 1,
                                                   .execution_count = 1,
                                                   .success = {1, 1},
                                                   .n_batches = SIZES,
                                                   .batches = batches};
    struct body_statistics in = {MODELS, models}, out;
    ok(body_statistics_encode(&in, large, &wire, &err));
    /* large enough for its fields to be counted */
    assert_in_range(wire.len, 2 * BODY_MAX_FIELDS + 1, SIZE_MAX);
    ok(body_statistics_decode(wire, large, &out, &err));
    assert_int_equal(out.n_models, MODELS);
    assert_int_equal(out.models[MODELS - 1].n_batches, SIZES);

    struct body_status_model *status = arena_array(large, MODELS, sizeof(*status));
    for (uint32_t i = 0; i < MODELS; i++)
        status[i] = (struct body_status_model){"m", "1", "READY", "", 8, 1, 1,
                                               1,   1,   1,       1,  1, 1, {{1, 0, NULL}}};
    struct body_server_status page = {.n_models = MODELS, .models = status}, read;
    ok(body_server_status_encode(&page, large, &wire, &err));
    ok(body_server_status_decode(wire, large, &read, &err));
    assert_int_equal(read.n_models, MODELS);
    arena_free(large);
}

/* Larger bodies are refused: even fields that are skipped are bounded in number. */
static void r4_fields_are_counted(void **state)
{
    (void)state;
    const size_t size = 2 * (BODY_MAX_FIELDS + 1);
    char *bytes = malloc(size);
    for (size_t i = 0; i < size; i += 2)
        memcpy(bytes + i, "\x78\x00", 2);
    struct body_server_metadata server;
    struct body_model_metadata model;
    struct body_statistics statistics;
    struct body_index index;
    struct body_server_status status;
    for (size_t more = 0; more < 2; more++) {
        const struct message_text text = {bytes, size - 2 + 2 * more};
        const enum status s = more ? STATUS_INVALID_ARGUMENT : STATUS_OK;
        assert_int_equal(body_server_metadata_decode(text, arena, &server, &err), s);
        assert_int_equal(body_model_metadata_decode(text, arena, &model, &err), s);
        assert_int_equal(body_statistics_decode(text, arena, &statistics, &err), s);
        assert_int_equal(body_index_decode(text, arena, &index, &err), s);
        assert_int_equal(body_server_status_decode(text, arena, &status, &err), s);
    }
    assert_non_null(strstr(err.text, "more than 4194304 fields in a description"));
    free(bytes);
}

static void damage_is_refused(void **state)
{
    (void)state;
    const struct body_index_entry models[] = {{"a", "1", "READY", ""}};
    struct body_index in = {1, models}, out = {0};
    ok(body_index_encode(&in, arena, &wire, &err));
    for (size_t len = 1; len < wire.len; len++) {
        struct message_text cut = {wire.data, len};
        assert_int_equal(body_index_decode(cut, arena, &out, &err), STATUS_INVALID_ARGUMENT);
    }
    assert_int_equal(out.n_models, 0);
}

/* With every smaller amount of memory, encoder and decoder say RESOURCE_EXHAUSTED and nothing
 * else. */
static void no_memory_is_said_on_both_sides(void **state)
{
    (void)state;
    const char *const versions[] = {"1"};
    const struct body_tensor tensors[] = {{"x", "FP32", {2, {-1, 8}}}, {"s", "INT64", {0, {0}}}};
    struct body_model_metadata in = {.name = "m",
                                     .platform = "p",
                                     .n_versions = 1,
                                     .n_inputs = 2,
                                     .n_outputs = 1,
                                     .versions = versions,
                                     .inputs = tensors,
                                     .outputs = tensors},
                               out;
    ok(body_model_metadata_encode(&in, arena, &wire, &err));
    uint32_t refused = 0, taken = 0;
    for (size_t limit = 16; limit < 4096; limit += 16) {
        struct arena *small = arena_new(limit);
        struct message_text text;
        enum status s = body_model_metadata_encode(&in, small, &text, &err);
        if (s == STATUS_OK)
            s = body_model_metadata_decode(text, small, &out, &err);
        if (s != STATUS_OK && s != STATUS_RESOURCE_EXHAUSTED)
            fail_msg("%zu bytes: %s", limit, err.text);
        refused += s != STATUS_OK;
        taken += s == STATUS_OK;
        arena_free(small);
    }
    assert_int_not_equal(refused, 0);
    assert_int_not_equal(taken, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(server_metadata, setup, teardown),
        cmocka_unit_test_setup_teardown(model_metadata, setup, teardown),
        cmocka_unit_test_setup_teardown(statistics, setup, teardown),
        cmocka_unit_test_setup_teardown(index_of_the_repository, setup, teardown),
        cmocka_unit_test_setup_teardown(server_status, setup, teardown),
        cmocka_unit_test_setup_teardown(r4_the_largest_bodies_are_taken, setup, teardown),
        cmocka_unit_test_setup_teardown(r4_fields_are_counted, setup, teardown),
        cmocka_unit_test_setup_teardown(damage_is_refused, setup, teardown),
        cmocka_unit_test_setup_teardown(no_memory_is_said_on_both_sides, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
