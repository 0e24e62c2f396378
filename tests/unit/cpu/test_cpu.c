/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU backend's table: device, arena, streams, events, and an op from candidate to result. */
#include <string.h>

#include "base/compiler.h"
#include "engine/backend.h"
#include "tests/test.h"

static struct device *open_device(uint32_t threads)
{
    struct device_options options = {.threads = threads, .reference_only = true};
    struct device *device = NULL;
    struct error err = {0};
    if (backend_cpu.device_open(&options, &device, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return device;
}

static void test_device(void **state UNUSED)
{
    struct device *device = open_device(3);
    char line[FINGERPRINT_MAX];
    backend_cpu.device_fingerprint(device, line);
    assert_string_equal(line, "cpu; reference kernels; threads 3");
    assert_ptr_equal(device->backend, &backend_cpu);
    backend_cpu.device_close(device);

    device = open_device(0);
    assert_in_range(device->threads, 1, 1024);
    backend_cpu.device_close(device);
    backend_cpu.device_close(NULL);

    struct device_options bad = {.index = 1};
    struct error err = {0};
    device = NULL;
    assert_int_equal(backend_cpu.device_open(&bad, &device, &err), STATUS_NOT_FOUND);
    bad = (struct device_options){.threads = 100000};
    assert_int_equal(backend_cpu.device_open(&bad, &device, &err), STATUS_INVALID_ARGUMENT);
    assert_null(device);
}

static void test_arena_grows_in_place(void **state UNUSED)
{
    struct device *device = open_device(1);
    struct backend_arena *arena = NULL;
    struct error err = {0};
    assert_int_equal(backend_cpu.arena_new(device, (size_t)1 << 36, &arena, &err), STATUS_OK);
    char *base = backend_cpu.arena_base(arena);
    assert_int_equal((uintptr_t)base % BACKEND_ALIGN, 0);
    assert_int_equal(backend_cpu.arena_grow(arena, 100, &err), STATUS_OK);
    memset(base, 7, 100);
    assert_int_equal(backend_cpu.arena_grow(arena, 1 << 20, &err), STATUS_OK);
    memset(base + 100, 8, (1 << 20) - 100);
    assert_int_equal(backend_cpu.arena_grow(arena, 10, &err), STATUS_OK); /* never shrinks */
    base[(1 << 20) - 1] = 9;
    assert_ptr_equal(backend_cpu.arena_base(arena), base);
    assert_int_equal(base[99], 7);
    assert_int_equal(base[100], 8);
    assert_int_equal(backend_cpu.arena_grow(arena, ((size_t)1 << 36) + 1, &err),
                     STATUS_RESOURCE_EXHAUSTED);
    assert_int_equal(backend_cpu.arena_grow(arena, SIZE_MAX, &err), STATUS_RESOURCE_EXHAUSTED);
    base[0] = 1; /* a refused growth leaves it usable */
    backend_cpu.arena_free(arena);
    backend_cpu.arena_free(NULL);
    backend_cpu.device_close(device);
}

static void test_memory_is_aligned_and_exhaustible(void **state UNUSED)
{
    struct device *device = open_device(1);
    struct error err = {0};
    for (size_t size = 0; size < 300; size += 37) {
        void *memory = NULL;
        assert_int_equal(
            backend_cpu.memory_alloc(device, MEMORY_DEVICE, size, "test", &memory, &err),
            STATUS_OK);
        assert_int_equal((uintptr_t)memory % BACKEND_ALIGN, 0);
        memset(memory, 1, size);
        backend_cpu.memory_free(device, MEMORY_DEVICE, memory);
    }
    void *untouched = &err;
    assert_int_equal(
        backend_cpu.memory_alloc(device, MEMORY_DEVICE, SIZE_MAX - 5, "test", &untouched, &err),
        STATUS_RESOURCE_EXHAUSTED);
    assert_ptr_equal(untouched, &err);
    backend_cpu.device_close(device);
}

static void test_events_and_copies(void **state UNUSED)
{
    struct device *device = open_device(1);
    struct error err = {0};
    struct backend_stream *stream = NULL;
    struct backend_event *from = NULL, *to = NULL;
    assert_int_equal(backend_cpu.stream_new(device, &stream, &err), STATUS_OK);
    assert_int_equal(backend_cpu.event_new(device, true, &from, &err), STATUS_OK);
    assert_int_equal(backend_cpu.event_new(device, true, &to, &err), STATUS_OK);
    char a[8] = "abcdefg", b[8] = "", c[4] = "";
    struct backend_copy copies[] = {{b, a, 8}, {c, a + 2, 3}, {NULL, NULL, 0}};
    assert_int_equal(backend_cpu.event_record(from, stream, &err), STATUS_OK);
    assert_int_equal(backend_cpu.copy(stream, COPY_TO_DEVICE, copies, 3, &err), STATUS_OK);
    assert_int_equal(backend_cpu.event_record(to, stream, &err), STATUS_OK);
    assert_int_equal(backend_cpu.event_wait(to, &err), STATUS_OK);
    uint64_t ns = UINT64_MAX;
    assert_int_equal(backend_cpu.event_elapsed(from, to, &ns, &err), STATUS_OK);
    assert_true(ns < 1000000000);
    assert_string_equal(b, "abcdefg");
    assert_string_equal(c, "cde");
    backend_cpu.event_free(from);
    backend_cpu.event_free(to);
    backend_cpu.stream_free(stream);
    backend_cpu.device_close(device);
}

static enum status keep(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    *(struct tactic *)user = *tactic;
    return STATUS_OK;
}

/* relu(x) + b as one node: y[2,3] = max(x, 0) + b[3]. */
static struct ir_graph *relu_add(uint32_t *node)
{
    struct ir_graph *graph = ir_graph_new();
    struct shape xs = {.rank = 2, .dim = {2, 3}}, bs = {.rank = 1, .dim = {3}};
    uint32_t x = ir_tensor_add(graph, "x", DTYPE_F32, &xs);
    uint32_t b = ir_tensor_add(graph, "b", DTYPE_F32, &bs);
    *node = ir_node_add(graph, IR_OP_UNARY, "relu + add", 1, &x);
    assert_true(ir_attr_set_int(graph, *node, IR_ATTR_FUNC, IR_UNARY_RELU));
    struct ir_epilogue step = {.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_ADD};
    assert_true(ir_epilogue_add(graph, *node, step, b));
    const char *name = "y";
    struct error err = {0};
    if (ir_infer_apply(graph, *node, &name, 1, &err) != STATUS_OK)
        fail_msg("%s", err.text);
    return graph;
}

static void test_op_from_candidate_to_result(void **state UNUSED)
{
    uint32_t n;
    struct ir_graph *graph = relu_add(&n);
    const struct ir_node *node = ir_node(graph, n);
    struct device *device = open_device(1);
    struct backend_stream *stream = NULL;
    struct backend_op *op = NULL;
    struct tactic tactic = {0};
    struct error err = {0};
    assert_int_equal(backend_cpu.stream_new(device, &stream, &err), STATUS_OK);
    assert_int_equal(
        backend_cpu.candidates(device, graph, node, PRECISION_F32, keep, &tactic, &err), STATUS_OK);
    assert_string_equal(tactic.name, "reference");
    assert_string_equal(tactic.backend, "cpu");
    assert_int_equal(tactic.n_in, 2);
    assert_int_equal(backend_cpu.op_prepare(stream, graph, node, &tactic, &op, &err), STATUS_OK);
    assert_int_equal(backend_cpu.op_workspace(op), 0);

    float x[6] = {-1, 2, -3, 4, -5, 6}, b[3] = {10, 20, 30}, y[6];
    const float want[6] = {10, 22, 30, 14, 20, 36};
    memset(y, 0xff, sizeof(y));
    void *in[2] = {x, b}, *out[1] = {y};
    assert_int_equal(backend_cpu.op_launch(op, stream, in, out, NULL, &err), STATUS_OK);
    assert_memory_equal(y, want, sizeof(want));
    backend_cpu.op_free(op);
    backend_cpu.op_free(NULL);
    backend_cpu.stream_free(stream);
    backend_cpu.device_close(device);
    ir_graph_free(graph);
}

static void test_r34_tactic_that_does_not_fit_is_refused(void **state UNUSED)
{
    uint32_t n;
    struct ir_graph *graph = relu_add(&n);
    const struct ir_node *node = ir_node(graph, n);
    struct device *device = open_device(1);
    struct backend_stream *stream = NULL;
    struct tactic good = {0};
    struct error err = {0};
    assert_int_equal(backend_cpu.stream_new(device, &stream, &err), STATUS_OK);
    assert_int_equal(backend_cpu.candidates(device, graph, node, PRECISION_F32, keep, &good, &err),
                     STATUS_OK);
    struct tactic bad[6];
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        bad[i] = good;
    bad[0].id = 0xffff;
    bad[1].n_in = 1;
    bad[2].n_out = 3;
    bad[3].in[1].format.layout = IR_LAYOUT_BLOCKED_8;
    bad[4].out[0].format.layout = IR_LAYOUT_CHANNELS_LAST;
    bad[5].in[0].packed_bytes = 64;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct backend_op *op = NULL;
        enum status status = backend_cpu.op_prepare(stream, graph, node, &bad[i], &op, &err);
        if (status != STATUS_INVALID_ARGUMENT || op)
            fail_msg("tactic %zu: %s", i, status_name(status));
    }
    backend_cpu.stream_free(stream);
    backend_cpu.device_close(device);
    ir_graph_free(graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_device),
        cmocka_unit_test(test_arena_grows_in_place),
        cmocka_unit_test(test_memory_is_aligned_and_exhaustible),
        cmocka_unit_test(test_events_and_copies),
        cmocka_unit_test(test_op_from_candidate_to_result),
        cmocka_unit_test(test_r34_tactic_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
