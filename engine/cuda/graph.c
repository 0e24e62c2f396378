/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured graphs, and named ranges for profilers. Capture concerns the calling thread alone:
 * other threads go on allocating, compiling and capturing meanwhile.
 *
 * Marked graphs take turns: device->turn is the graph that was launched last, and the next one
 * waits for its half. A launch waits only for earlier launches, because the wait and the launch are
 * one step under turn_lock, and no work on the device waits for a thread. So waits never form a
 * circle. cudaStreamWaitEvent settles what the stream waits for: afterwards the event may be
 * recorded anew, or destroyed.
 */
#include <stdlib.h>

#include <nvtx3/nvToolsExt.h>

#include "engine/cuda/device.h"

struct backend_graph {
    struct cuda_device *device;
    cudaGraphExec_t exec;
    cudaEvent_t half; /* or NULL */
    /* The stream of the last launch; under turn_lock, and valid only while the graph is
     * device->turn. */
    struct backend_stream *stream;
};

enum status cuda_capture_begin(struct backend_stream *stream, struct error *err)
{
    TRY(cuda_enter(stream->device, err));
    cudaError_t code = cudaStreamBeginCapture(stream->stream, cudaStreamCaptureModeThreadLocal);
    stream->capturing = code == cudaSuccess;
    stream->counters_used = 0;
    return code ? cuda_error(err, code, "cudaStreamBeginCapture") : STATUS_OK;
}

enum status cuda_capture_half(struct backend_stream *stream, struct error *err)
{
    cudaEvent_t half;
    if (!stream->capturing || stream->half)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "cuda: the half of a capture is marked once, while it runs");
    cudaError_t code = cudaEventCreateWithFlags(&half, cudaEventDisableTiming);
    if (code)
        return cuda_error(err, code, "an event for half of a graph");
    stream->half = half;
    code = cudaEventRecordWithFlags(half, stream->stream, cudaEventRecordExternal);
    return code ? cuda_error(err, code, "half of a graph") : STATUS_OK;
}

/* The graph is uploaded at once, so that the first launch costs no more than the others. */
static cudaError_t instantiate(cudaGraph_t graph, cudaStream_t stream, cudaGraphExec_t *out,
                               const char **what)
{
    *what = "cudaGraphInstantiate";
    cudaError_t code = cudaGraphInstantiate(out, graph, 0);
    if (code) {
        *out = NULL;
        return code;
    }
    *what = "cudaGraphUpload";
    return cudaGraphUpload(*out, stream);
}

enum status cuda_capture_end(struct backend_stream *stream, struct backend_graph **out,
                             struct error *err)
{
    cudaGraph_t captured = NULL;
    const char *what = "cudaStreamEndCapture";
    TRY(cuda_enter(stream->device, err));
    cudaEvent_t half = stream->half;
    stream->capturing = false;
    stream->half = NULL;
    struct backend_graph *graph = calloc(1, sizeof(*graph));
    /* This ends the capture, whatever failed before. */
    cudaError_t code = cudaStreamEndCapture(stream->stream, &captured);
    if (!code && graph) {
        what = "clearing a graph's counters";
        code = cuda_counters_settle(stream, captured);
    }
    if (!code && graph)
        code = instantiate(captured, stream->stream, &graph->exec, &what);
    if (captured)
        cudaGraphDestroy(captured);
    if (!graph) {
        if (half)
            cudaEventDestroy(half);
        return error_no_memory(err, "a graph");
    }
    graph->device = stream->device;
    graph->half = half;
    if (code) {
        cuda_graph_free(graph);
        return cuda_error(err, code, what);
    }
    *out = graph;
    return STATUS_OK;
}

/* Launches the graph behind the first half of the graph that was launched before. A wait for an
 * event that is over costs nothing. */
static cudaError_t launch_in_turn(struct backend_graph *graph, struct backend_stream *stream)
{
    struct cuda_device *device = graph->device;
    cudaError_t code = cudaSuccess;
    pthread_mutex_lock(&device->turn_lock);
    if (device->turn && device->turn->stream != stream)
        code = cudaStreamWaitEvent(stream->stream, device->turn->half, cudaEventWaitDefault);
    if (!code)
        code = cudaGraphLaunch(graph->exec, stream->stream);
    if (!code) {
        graph->stream = stream;
        device->turn = graph;
    }
    pthread_mutex_unlock(&device->turn_lock);
    return code;
}

enum status cuda_graph_launch(struct backend_graph *graph, struct backend_stream *stream,
                              struct error *err)
{
    TRY(cuda_enter(stream->device, err));
    cudaError_t code =
        graph->half ? launch_in_turn(graph, stream) : cudaGraphLaunch(graph->exec, stream->stream);
    return code ? cuda_error(err, code, "cudaGraphLaunch") : STATUS_OK;
}

void cuda_graph_free(struct backend_graph *graph)
{
    if (!graph)
        return;
    cuda_enter(graph->device, NULL);
    pthread_mutex_lock(&graph->device->turn_lock);
    if (graph->device->turn == graph)
        graph->device->turn = NULL;
    pthread_mutex_unlock(&graph->device->turn_lock);
    if (graph->exec)
        cudaGraphExecDestroy(graph->exec);
    if (graph->half)
        cudaEventDestroy(graph->half);
    cudaGetLastError();
    free(graph);
}

void cuda_turn_leave(struct backend_stream *stream)
{
    struct cuda_device *device = stream->device;
    pthread_mutex_lock(&device->turn_lock);
    if (device->turn && device->turn->stream == stream)
        device->turn = NULL;
    pthread_mutex_unlock(&device->turn_lock);
}

void cuda_range_begin(const char *name)
{
    nvtxRangePushA(name);
}

void cuda_range_end(void)
{
    nvtxRangePop();
}
