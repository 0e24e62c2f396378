/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/runtime/tail_kernels.h"

#include <stdlib.h>

#include "base/compiler.h"
#include "engine/runtime/internal.h"
#include "tests/test.h"

/* y = a + 2 over n floats, or, if the second operand is no scalar, a + b. */
static struct ir_graph *sum_of(int64_t n, bool scalar)
{
    struct ir_graph *graph = ir_graph_new();
    struct shape shape = {.rank = 1, .dim = {n}}, one = {.rank = 0};
    struct error err;
    assert_non_null(graph);
    uint32_t in[] = {ir_tensor_add(graph, "a", DTYPE_F32, &shape),
                     ir_tensor_add(graph, "b", DTYPE_F32, scalar ? &one : &shape)};
    uint32_t node = ir_node_add(graph, IR_OP_BINARY, "add", 2, in);
    assert_true(ir_attr_set_int(graph, node, IR_ATTR_FUNC, IR_BINARY_ADD));
    assert_int_equal(ir_infer_apply(graph, node, (const char *const[IR_MAX_OUTPUTS]){"y"}, 1, &err),
                     STATUS_OK);
    return graph;
}

static bool run(struct tail_kernels *kernels, int64_t n, bool scalar, bool eager)
{
    struct ir_graph *graph = sum_of(n, scalar);
    float *a = malloc((size_t)n * sizeof(*a)), *b = malloc((size_t)n * sizeof(*b)),
          *y = malloc((size_t)n * sizeof(*y));
    bool done;
    struct error err;
    assert_true(a && b && y);
    for (int64_t i = 0; i < n; i++) {
        a[i] = (float)i;
        b[i] = 2;
    }
    const void *in[] = {a, b};
    void *out[] = {y};
    assert_int_equal(
        tail_kernels_run(kernels, graph, ir_node(graph, 0), eager, in, out, &done, &err),
        STATUS_OK);
    for (int64_t i = 0; i < n && done; i++)
        assert_float_equal(y[i], (float)i + 2, 0);
    ir_graph_free(graph);
    free(a);
    free(b);
    free(y);
    return done;
}

static void with_cpu(void (*test)(struct tail_kernels *kernels))
{
    struct device *device;
    struct backend_stream *stream;
    struct error err;
    assert_int_equal(
        engine_device_open("cpu", &(struct device_options){.threads = 1}, &device, &err),
        STATUS_OK);
    assert_int_equal(device->backend->stream_new(device, &stream, &err), STATUS_OK);
    struct tail_kernels *kernels = tail_kernels_new(device, stream);
    assert_non_null(kernels);
    test(kernels);
    tail_kernels_free(kernels);
    device->backend->stream_free(stream);
    engine_device_close(device);
}

static void check_seen(struct tail_kernels *kernels)
{
    assert_true(run(kernels, 500, false, true));
    assert_true(run(kernels, 500, false, true));
    assert_true(run(kernels, 500, true, true)); /* another node of the same size */
    assert_false(run(kernels, 501, false, false));
    assert_true(run(kernels, 501, false, false)); /* the second time */
    struct tail_kernels_figures f = tail_kernels_look(kernels);
    assert_int_equal(f.n, 3);
    assert_int_equal(f.hits, 1);
    assert_int_equal(f.misses, 4);
}

static void kernels_are_found_again(void **state UNUSED)
{
    with_cpu(check_seen);
}

static void check_bound(struct tail_kernels *kernels)
{
    for (int64_t n = 1; n <= 2 * TAIL_KERNELS_MAX; n++) {
        run(kernels, n, false, true);
        run(kernels, 7, true, true); /* used all the time, it stays */
    }
    struct tail_kernels_figures f = tail_kernels_look(kernels);
    assert_int_equal(f.n, TAIL_KERNELS_MAX);
    assert_int_equal(f.misses, 2 * TAIL_KERNELS_MAX + 1);
    assert_int_equal(f.hits, 2 * TAIL_KERNELS_MAX - 1);
}

static void the_least_used_make_room(void **state UNUSED)
{
    with_cpu(check_bound);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kernels_are_found_again),
        cmocka_unit_test(the_least_used_make_room),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
