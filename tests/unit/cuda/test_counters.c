/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of products in captured graphs, over a made-up CUDA runtime whose graphs can be run: its
 * products check that their counter is 0, and leave another number there.
 */
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/device.h"
#include "tests/test.h"

enum { NODES_MAX = 3000 };

/* --- the runtime --- */

struct CUgraphNode_st {
    bool gone;
    struct cudaMemsetParams memset; /* of a node that clears */
    uint32_t *counter;              /* of a product */
    struct CUgraphNode_st *from, *to;
};

static struct {
    struct CUgraphNode_st nodes[NODES_MAX];
    size_t n;
    int calls, fail_at; /* the call of this number fails; 0: none does */
} fake;

static cudaError_t called(void)
{
    return ++fake.calls == fake.fail_at ? cudaErrorInvalidValue : cudaSuccess;
}

static struct CUgraphNode_st *append(void)
{
    assert_true(fake.n < NODES_MAX);
    struct CUgraphNode_st *node = &fake.nodes[fake.n], *last = fake.n ? node - 1 : NULL;
    *node = (struct CUgraphNode_st){.from = last};
    if (last)
        last->to = node;
    fake.n++;
    return node;
}

cudaError_t cudaMemsetAsync(void *at, int value, size_t size, cudaStream_t stream)
{
    (void)stream;
    if (called())
        return cudaErrorInvalidValue;
    append()->memset = (struct cudaMemsetParams){
        .dst = at, .value = (unsigned)value, .elementSize = 1, .width = size, .height = 1};
    return cudaSuccess;
}

enum status cuda_memory_alloc(struct device *device, enum memory_kind kind, size_t size,
                              const char *tag, void **out, struct error *err)
{
    (void)device;
    (void)tag;
    assert_int_equal(kind, MEMORY_DEVICE);
    if (called())
        return error_no_memory(err, "a test");
    *out = malloc(size);
    assert_non_null(*out);
    memset(*out, 0xff, size);
    return STATUS_OK;
}

void cuda_memory_free(struct device *device, enum memory_kind kind, void *memory)
{
    (void)device;
    (void)kind;
    free(memory);
}

#if CUDART_VERSION >= 13000

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *n)
{
    (void)graph;
    for (size_t i = 0; nodes && i < *n; i++)
        nodes[i] = &fake.nodes[i];
    *n = fake.n;
    return called();
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, enum cudaGraphNodeType *type)
{
    *type = node->memset.dst ? cudaGraphNodeTypeMemset : cudaGraphNodeTypeKernel;
    return called();
}

cudaError_t cudaGraphMemsetNodeGetParams(cudaGraphNode_t node, struct cudaMemsetParams *out)
{
    *out = node->memset;
    return called();
}

cudaError_t cudaGraphMemsetNodeSetParams(cudaGraphNode_t node,
                                         const struct cudaMemsetParams *params)
{
    node->memset = *params;
    return called();
}

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t *out,
                                         cudaGraphEdgeData *edge, size_t *n)
{
    if (out)
        out[0] = node->from;
    if (edge)
        *edge = (cudaGraphEdgeData){0};
    *n = node->from != NULL;
    return called();
}

cudaError_t cudaGraphNodeGetDependentNodes(cudaGraphNode_t node, cudaGraphNode_t *out,
                                           cudaGraphEdgeData *edge, size_t *n)
{
    if (out)
        out[0] = node->to;
    if (edge)
        *edge = (cudaGraphEdgeData){0};
    *n = node->to != NULL;
    return called();
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t *from,
                                     const cudaGraphNode_t *to, const cudaGraphEdgeData *edge,
                                     size_t n)
{
    (void)graph;
    (void)edge;
    assert_int_equal(n, 1);
    from[0]->to = to[0];
    to[0]->from = from[0];
    return called();
}

cudaError_t cudaGraphDestroyNode(cudaGraphNode_t node)
{
    assert_false(node->gone);
    node->gone = true;
    return called();
}

#endif

/* --- helpers --- */

static struct cuda_device device;
static uint32_t others[4]; /* a workspace that is no counter */

static int setup(void **state)
{
    struct backend_stream *stream = calloc(1, sizeof(*stream));
    assert_non_null(stream);
    memset(&fake, 0, sizeof(fake));
    stream->device = &device;
    *state = stream;
    return 0;
}

static int teardown(void **state)
{
    cuda_counters_free(*state);
    free(*state);
    return 0;
}

static void begin(struct backend_stream *stream)
{
    stream->capturing = true;
    stream->counters_used = 0;
    append(); /* what is in front of all products */
}

/* What cuBLASLt captures: a node that clears the counter, `times` over, and the product. */
static uint32_t *multiply(struct backend_stream *stream, uint64_t bytes, int times)
{
    uint32_t *counter = cuda_counter(stream, bytes, others);
    for (int i = 0; i < times; i++) {
        assert_int_equal(cudaMemsetAsync(counter, 0, sizeof(*counter), NULL), cudaSuccess);
        append()->counter = counter;
    }
    return counter;
}

/* Runs what is left of the graph; returns how many nodes clear something. */
static unsigned run(void)
{
    unsigned clear = 0;
    for (struct CUgraphNode_st *node = &fake.nodes[0]; node; node = node->to) {
        assert_false(node->gone);
        if (node->memset.dst) {
            clear++;
            memset(node->memset.dst, (int)node->memset.value,
                   node->memset.elementSize * node->memset.width * node->memset.height);
        }
        if (node->counter) {
            assert_int_equal(*node->counter, 0);
            *node->counter = 7;
        }
    }
    return clear;
}

/* --- tests --- */

static void counters_are_cleared_at_once(void **state)
{
    struct backend_stream *stream = *state;
    uint32_t *seen[20];
    cuda_counters_reserve(stream, 4);
    for (int graph = 0; graph < 2; graph++) { /* the second one uses the same counters */
        fake.n = 0;
        begin(stream);
        for (size_t i = 0; i < ARRAY_LEN(seen); i++) {
            seen[i] = multiply(stream, 4, 1);
            assert_int_equal((uintptr_t)seen[i] % CUDA_COUNTER_BYTES,
                             (uintptr_t)seen[0] % CUDA_COUNTER_BYTES);
            for (size_t k = 0; k < i; k++)
                assert_ptr_not_equal(seen[k], seen[i]);
        }
        assert_int_equal(cuda_counters_settle(stream, NULL), cudaSuccess);
        unsigned clear = CUDART_VERSION >= 13000 ? 1 : 1 + (unsigned)ARRAY_LEN(seen);
        assert_int_equal(run(), clear);
        assert_int_equal(run(), clear); /* finds what the first run has left */
    }
}

static void a_counter_that_is_cleared_twice_stays_so(void **state)
{
    struct backend_stream *stream = *state;
    cuda_counters_reserve(stream, 4);
    begin(stream);
    multiply(stream, 4, 1);
    multiply(stream, 4, 2);
    multiply(stream, 4, 1);
    assert_int_equal(cuda_counters_settle(stream, NULL), cudaSuccess);
    unsigned clear = CUDART_VERSION >= 13000 ? 3 : 5;
    assert_int_equal(run(), clear);
    assert_int_equal(run(), clear);
}

static void products_beyond_the_counters_keep_theirs(void **state)
{
    struct backend_stream *stream = *state;
    unsigned without = 0;
    cuda_counters_reserve(stream, 4);
    begin(stream);
    for (int i = 0; i < 1100; i++)
        without += multiply(stream, 4, 1) == others;
    assert_in_range(without, 1, 1099);
    assert_int_equal(cuda_counters_settle(stream, NULL), cudaSuccess);
    unsigned clear = CUDART_VERSION >= 13000 ? 1 + without : 1101;
    assert_int_equal(run(), clear);
    assert_int_equal(run(), clear);
}

static void other_workspaces_are_no_counters(void **state)
{
    struct backend_stream *stream = *state;
    assert_ptr_equal(cuda_counter(stream, 4, others), others); /* nothing is reserved */
    cuda_counters_reserve(stream, 0);
    cuda_counters_reserve(stream, CUDA_COUNTER_BYTES + 1);
    assert_null(stream->counters);
    cuda_counters_reserve(stream, CUDA_COUNTER_BYTES);
    assert_non_null(stream->counters);
    assert_ptr_equal(cuda_counter(stream, 4, others), others); /* nothing is captured */
    begin(stream);
    assert_ptr_equal(cuda_counter(stream, 0, NULL), NULL);
    assert_ptr_equal(multiply(stream, CUDA_COUNTER_BYTES + 1, 1), others);
    assert_int_equal(cuda_counters_settle(stream, NULL), cudaSuccess);
    assert_int_equal(run(), 1);
    assert_ptr_not_equal(multiply(stream, CUDA_COUNTER_BYTES, 1), others);
}

/* Whichever call fails: a product has a counter that is cleared, or the capture fails. */
static void failures_are_told(void **state)
{
    struct backend_stream *stream = *state;
    bool done = false;
    int told = 0;
    for (int call = 1; call < 60 && !done; call++) {
        memset(&fake, 0, sizeof(fake));
        fake.fail_at = call;
        cuda_counters_reserve(stream, 4);
        begin(stream);
        uint32_t *counter = cuda_counter(stream, 4, others);
        if (fake.calls < call)
            fake.fail_at = 0;
        assert_int_equal(cudaMemsetAsync(counter, 0, sizeof(*counter), NULL), cudaSuccess);
        append()->counter = counter;
        fake.fail_at = fake.calls < call ? call : 0;
        cudaError_t code = cuda_counters_settle(stream, NULL);
        told += code != cudaSuccess;
        done = fake.fail_at && fake.calls < call;
        if (!code)
            run();
        cuda_counters_free(stream);
    }
    assert_true(done);
    if (CUDART_VERSION >= 13000)
        assert_in_range(told, 5, 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(counters_are_cleared_at_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_counter_that_is_cleared_twice_stays_so, setup, teardown),
        cmocka_unit_test_setup_teardown(products_beyond_the_counters_keep_theirs, setup, teardown),
        cmocka_unit_test_setup_teardown(other_workspaces_are_no_counters, setup, teardown),
        cmocka_unit_test_setup_teardown(failures_are_told, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
