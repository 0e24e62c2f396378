/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Graphs that take turns, and waits for events, over a made-up CUDA runtime, which only counts,
 * remembers what waits for what, and fails when it is told to. Its objects are allocated, so that a
 * sanitizer sees the use of an object that is gone.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"
#include "engine/cuda/device.h"
#include "engine/cuda/dnn.h"
#include "tests/test.h"

/* --- the runtime --- */

struct CUstream_st {
    atomic_uint launches, waits; /* relaxed: read after the threads have ended */
};
struct CUevent_st {
    _Atomic uint64_t ready_ns; /* relaxed */
};
struct CUgraphExec_st {
    atomic_uint launches; /* relaxed */
};

/* Relaxed is enough for all of them: they are only counted. */
static struct {
    atomic_int streams, events, graphs; /* alive */
    atomic_uint calls, fail_at;         /* the call of this number fails; 0: none does */
    atomic_uint queries;
    _Atomic cudaError_t last;   /* the error that cudaGetLastError returns next */
    _Atomic(cudaEvent_t) event; /* the last one made */
} fake;

static cudaError_t say(cudaError_t code)
{
    if (code)
        atomic_store_explicit(&fake.last, code, memory_order_relaxed);
    return code;
}

static cudaError_t called(void)
{
    unsigned n = 1 + atomic_fetch_add_explicit(&fake.calls, 1, memory_order_relaxed);
    bool fails = n == atomic_load_explicit(&fake.fail_at, memory_order_relaxed);
    return say(fails ? cudaErrorInvalidValue : cudaSuccess);
}

static cudaError_t make(void **out, size_t size, atomic_int *alive)
{
    cudaError_t code = called();
    if (code)
        return code;
    *out = calloc(1, size);
    atomic_fetch_add_explicit(alive, 1, memory_order_relaxed);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

static cudaError_t unmake(void *object, atomic_int *alive)
{
    free(object);
    atomic_fetch_sub_explicit(alive, 1, memory_order_relaxed);
    return cudaSuccess;
}

enum status cuda_enter(const struct cuda_device *device, struct error *err)
{
    cudaError_t code = called();
    (void)device;
    return code ? cuda_error(err, code, "cudaSetDevice") : STATUS_OK;
}

void cuda_dnn_stream_deinit(struct backend_stream *stream)
{
    (void)stream;
}

cudaError_t cuda_counters_settle(const struct backend_stream *stream, cudaGraph_t graph)
{
    (void)stream;
    (void)graph;
    return cudaSuccess;
}

void cuda_counters_free(struct backend_stream *stream)
{
    assert_null(stream->counters);
}

cudaError_t cudaGetLastError(void)
{
    return atomic_exchange_explicit(&fake.last, cudaSuccess, memory_order_relaxed);
}

const char *cudaGetErrorString(cudaError_t code)
{
    return code ? "made up" : "none";
}

const char *cudaGetErrorName(cudaError_t code)
{
    return cudaGetErrorString(code);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    (void)flags;
    return make((void **)out, sizeof(**out), &fake.streams);
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    return unmake(stream, &fake.streams);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    (void)flags;
    cudaError_t code = make((void **)out, sizeof(**out), &fake.events);
    if (!code)
        atomic_store_explicit(&fake.event, *out, memory_order_relaxed);
    return code;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    return unmake(event, &fake.events);
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags)
{
    (void)flags;
    atomic_fetch_add_explicit(&stream->launches, 0, memory_order_relaxed); /* both exist */
    atomic_fetch_add_explicit(&event->ready_ns, 0, memory_order_relaxed);
    return called();
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t code = called();
    atomic_fetch_add_explicit(&fake.queries, 1, memory_order_relaxed);
    if (!code && clock_now_ns() < atomic_load_explicit(&event->ready_ns, memory_order_relaxed))
        code = say(cudaErrorNotReady);
    return code;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    (void)from;
    (void)to;
    *ms = 0;
    return called();
}

cudaError_t cudaHostAlloc(void **out, size_t size, unsigned flags)
{
    (void)flags;
    *out = calloc(1, size);
    return called();
}

cudaError_t cudaFreeHost(void *memory)
{
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    (void)kind;
    (void)stream;
    memcpy(to, from, size);
    return called();
}

#if CUDART_VERSION >= 13000
cudaError_t cudaMemcpyBatchAsync(void *const *to, const void *const *from, const size_t *sizes,
                                 size_t n, struct cudaMemcpyAttributes *attributes, size_t *first,
                                 size_t n_attributes, cudaStream_t stream)
{
    (void)attributes;
    (void)first;
    (void)n_attributes;
    (void)stream;
    for (size_t i = 0; i < n; i++)
        memcpy(to[i], from[i], sizes[i]);
    return called();
}
#endif

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    (void)stream;
    (void)mode;
    return called();
}

/* A captured graph has nothing in it. It counts as a graph, and so does its executable form. */
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    (void)stream;
    return make((void **)out, 1, &fake.graphs);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    return unmake(graph, &fake.graphs);
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t graph, unsigned long long flags)
{
    (void)graph;
    (void)flags;
    return make((void **)out, sizeof(**out), &fake.graphs);
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream)
{
    (void)exec;
    (void)stream;
    return called();
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    return unmake(exec, &fake.graphs);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    atomic_fetch_add_explicit(&event->ready_ns, 0, memory_order_relaxed); /* it exists */
    cudaError_t code = called();
    if (!code)
        atomic_fetch_add_explicit(&stream->waits, 1, memory_order_relaxed);
    return code;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    cudaError_t code = called();
    if (!code) {
        atomic_fetch_add_explicit(&stream->launches, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&exec->launches, 1, memory_order_relaxed);
    }
    return code;
}

/* --- helpers --- */

static void fail_call(unsigned after)
{
    unsigned at = after ? atomic_load_explicit(&fake.calls, memory_order_relaxed) + after : 0;
    atomic_store_explicit(&fake.fail_at, at, memory_order_relaxed);
}

static int setup(void **state)
{
    struct cuda_device *device = calloc(1, sizeof(*device));
    assert_non_null(device);
    pthread_mutex_init(&device->turn_lock, NULL);
    fail_call(0);
    *state = device;
    return 0;
}

/* Checks that every object that was made is gone. */
static int teardown(void **state)
{
    struct cuda_device *device = *state;
    assert_null(device->turn);
    assert_int_equal(fake.streams, 0);
    assert_int_equal(fake.events, 0);
    assert_int_equal(fake.graphs, 0);
    pthread_mutex_destroy(&device->turn_lock);
    free(device);
    return 0;
}

static struct backend_stream *stream_of(struct cuda_device *device)
{
    struct backend_stream *stream;
    struct error err;
    must(cuda_stream_new(&device->base, &stream, &err), &err);
    return stream;
}

static enum status capture(struct backend_stream *stream, bool marked, struct backend_graph **out,
                           struct error *err)
{
    enum status status = cuda_capture_begin(stream, err);
    if (status)
        return status;
    status = marked ? cuda_capture_half(stream, err) : STATUS_OK;
    enum status ended = cuda_capture_end(stream, out, err);
    if (status && !ended)
        cuda_graph_free(*out);
    return status ? status : ended;
}

static struct backend_graph *graph_of(struct backend_stream *stream, bool marked)
{
    struct backend_graph *graph = NULL;
    struct error err;
    must(capture(stream, marked, &graph, &err), &err);
    return graph;
}

static void launch(struct backend_graph *graph, struct backend_stream *stream, unsigned waits)
{
    struct error err;
    unsigned before = stream->stream->waits;
    must(cuda_graph_launch(graph, stream, &err), &err);
    assert_int_equal(stream->stream->waits - before, waits);
}

/* --- turns --- */

static void marked_graphs_wait_for_other_streams(void **state)
{
    struct backend_stream *one = stream_of(*state), *two = stream_of(*state);
    struct backend_graph *a = graph_of(one, true), *b = graph_of(one, true);
    struct backend_graph *c = graph_of(two, true), *plain = graph_of(two, false);
    launch(a, one, 0); /* no launch before it */
    launch(b, one, 0); /* the same stream keeps the order anyway */
    launch(plain, two, 0);
    launch(c, two, 1);
    launch(plain, two, 0);
    launch(a, one, 1);
    launch(c, two, 1);
    launch(c, two, 0);
    cuda_graph_free(c);
    launch(a, one, 0); /* the graph launched before is gone */
    cuda_graph_free(b);
    launch(plain, two, 0);
    cuda_graph_free(a);
    cuda_graph_free(plain);
    cuda_stream_free(one);
    cuda_stream_free(two);
}

static void a_failed_launch_takes_no_turn(void **state)
{
    struct backend_stream *one = stream_of(*state), *two = stream_of(*state);
    struct backend_graph *a = graph_of(one, true), *b = graph_of(two, true);
    struct error err;
    launch(a, one, 0);
    for (unsigned call = 1; call <= 3; call++) { /* cuda_enter, the wait, the launch */
        fail_call(call);
        assert_int_equal(cuda_graph_launch(b, two, &err), STATUS_INTERNAL);
        assert_ptr_equal(((struct cuda_device *)*state)->turn, a);
        assert_int_equal(two->stream->launches, 0);
    }
    launch(a, one, 0);
    launch(b, two, 1);
    cuda_graph_free(b);
    cuda_graph_free(a);
    cuda_stream_free(two);
    cuda_stream_free(one);
}

/* If a freed stream kept its turn, a new stream at the same address would be taken for it. */
static void a_stream_leaves_its_turn(void **state)
{
    struct cuda_device *device = *state;
    struct backend_stream *one = stream_of(device), *two = stream_of(device);
    struct backend_graph *a = graph_of(one, true), *b = graph_of(two, true);
    launch(a, one, 0);
    cuda_stream_free(two); /* the turn is not its own */
    assert_ptr_equal(device->turn, a);
    cuda_stream_free(one);
    assert_null(device->turn);
    two = stream_of(device);
    launch(b, two, 0);
    launch(a, two, 0); /* on another stream now */
    cuda_graph_free(a);
    cuda_graph_free(b);
    cuda_stream_free(two);
}

static void marks_belong_into_captures(void **state)
{
    struct backend_stream *stream = stream_of(*state);
    struct backend_graph *graph;
    struct error err;
    assert_int_equal(cuda_capture_half(stream, &err), STATUS_FAILED_PRECONDITION);
    must(cuda_capture_begin(stream, &err), &err);
    must(cuda_capture_half(stream, &err), &err);
    assert_int_equal(cuda_capture_half(stream, &err), STATUS_FAILED_PRECONDITION);
    must(cuda_capture_end(stream, &graph, &err), &err);
    assert_int_equal(cuda_capture_half(stream, &err), STATUS_FAILED_PRECONDITION);
    cuda_graph_free(graph);
    cuda_stream_free(stream);
}

/* Whichever call of a capture fails, nothing is left behind: the teardown counts the objects. */
static void failed_captures_leave_nothing(void **state)
{
    bool done = false;
    unsigned failed = 0;
    for (unsigned call = 1; call < 20 && !done; call++) {
        struct backend_stream *stream = stream_of(*state);
        struct backend_graph *graph = NULL;
        struct error err;
        fail_call(call);
        done = capture(stream, true, &graph, &err) == STATUS_OK;
        failed += !done;
        fail_call(0);
        if (done)
            cuda_graph_free(graph);
        cuda_stream_free(stream);
    }
    assert_true(done);
    assert_int_equal(failed, 8); /* enter, begin, create, record, enter, end, instantiate, upload */
}

/* --- threads --- */

enum { LIVES = 300, LAUNCHES = 5 };

static void *live(void *arg)
{
    for (int i = 0; i < LIVES; i++) {
        struct backend_stream *stream = stream_of(arg);
        struct backend_graph *both[] = {graph_of(stream, true), graph_of(stream, true)};
        struct error err;
        for (int k = 0; k < LAUNCHES; k++)
            if (cuda_graph_launch(both[k % 2], stream, &err))
                abort();
        cuda_graph_free(both[i % 2]);
        if (cuda_graph_launch(both[!(i % 2)], stream, &err))
            abort();
        cuda_graph_free(both[!(i % 2)]);
        cuda_stream_free(stream);
    }
    return NULL;
}

static void threads_come_and_go(void **state)
{
    pthread_t threads[4];
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, live, *state), 0);
    for (size_t i = 0; i < ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
}

/* --- waits --- */

static uint64_t thread_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * NS_PER_S + (uint64_t)t.tv_nsec;
}

static struct backend_event *event_on(struct backend_stream *stream)
{
    struct backend_event *event;
    struct error err;
    must(cuda_event_new(&stream->device->base, false, &event, &err), &err);
    must(cuda_event_record(event, stream, &err), &err);
    return event;
}

static void set_ready(uint64_t ns)
{
    cudaEvent_t event = atomic_load_explicit(&fake.event, memory_order_relaxed);
    atomic_store_explicit(&event->ready_ns, ns, memory_order_relaxed);
}

static void *wait_in_a_thread(void *arg)
{
    struct backend_event *event = arg;
    struct error err;
    int slack = prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL);
    must(cuda_event_wait(event, &err), &err); /* over at once */
    assert_int_equal(prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL), slack);

    unsigned queries = fake.queries;
    uint64_t begun = clock_now_ns(), spent = thread_ns();
    set_ready(begun + 100 * NS_PER_MS);
    must(cuda_event_wait(event, &err), &err);
    assert_true(clock_now_ns() - begun >= 100 * NS_PER_MS);
    spent = thread_ns() - spent;
    if (spent > 60 * NS_PER_MS)
        fail_msg("%llu ns of the processor in 100 ms", (unsigned long long)spent);
    assert_true(fake.queries - queries > 10);
    assert_int_equal(fake.last, cudaSuccess); /* the error "not ready" has been cleared */
    assert_int_equal(prctl(PR_GET_TIMERSLACK, 0UL, 0UL, 0UL, 0UL), 1000);
    return NULL;
}

static void long_waits_nap(void **state)
{
    struct backend_stream *stream = stream_of(*state);
    struct backend_event *event = event_on(stream);
    pthread_t thread; /* a thread of its own has a timer slack of its own */
    assert_int_equal(pthread_create(&thread, NULL, wait_in_a_thread, event), 0);
    pthread_join(thread, NULL);
    cuda_event_free(event);
    cuda_stream_free(stream);
}

/* The wait fails at the first query, or at a later one. */
static void waits_that_fail_end(void **state)
{
    static const unsigned calls[] = {2, 20};
    struct backend_stream *stream = stream_of(*state);
    struct backend_event *event = event_on(stream);
    for (size_t i = 0; i < ARRAY_LEN(calls); i++) {
        struct error err;
        set_ready(UINT64_MAX);
        fail_call(calls[i]);
        assert_int_equal(cuda_event_wait(event, &err), STATUS_INTERNAL);
        assert_int_equal(fake.last, cudaSuccess);
    }
    cuda_event_free(event);
    cuda_stream_free(stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(marked_graphs_wait_for_other_streams, setup, teardown),
        cmocka_unit_test_setup_teardown(a_failed_launch_takes_no_turn, setup, teardown),
        cmocka_unit_test_setup_teardown(a_stream_leaves_its_turn, setup, teardown),
        cmocka_unit_test_setup_teardown(marks_belong_into_captures, setup, teardown),
        cmocka_unit_test_setup_teardown(failed_captures_leave_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(threads_come_and_go, setup, teardown),
        cmocka_unit_test_setup_teardown(long_waits_nap, setup, teardown),
        cmocka_unit_test_setup_teardown(waits_that_fail_end, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
