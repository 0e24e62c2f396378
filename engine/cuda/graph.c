/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Captured graphs, and named ranges for profilers. Capture concerns the calling thread alone:
 * other threads go on allocating, compiling and capturing meanwhile.
 */
#include <stdlib.h>

#include <nvtx3/nvToolsExt.h>

#include "engine/cuda/device.h"

struct backend_graph {
    struct cuda_device *device;
    cudaGraphExec_t exec;
};

enum status cuda_capture_begin(struct backend_stream *stream, struct error *err)
{
    enum status status = cuda_enter(stream->device, err);
    if (status)
        return status;
    cudaError_t code = cudaStreamBeginCapture(stream->stream, cudaStreamCaptureModeThreadLocal);
    stream->capturing = code == cudaSuccess;
    return code ? cuda_error(err, code, "cudaStreamBeginCapture") : STATUS_OK;
}

/* Uploaded at once, so that the first launch costs no more than the others. */
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
    stream->capturing = false;
    const char *what = "cudaStreamEndCapture";
    enum status status = cuda_enter(stream->device, err);
    if (status)
        return status;
    struct backend_graph *graph = calloc(1, sizeof(*graph));
    cudaError_t code = cudaStreamEndCapture(stream->stream, &captured); /* whatever happened */
    if (!code && graph)
        code = instantiate(captured, stream->stream, &graph->exec, &what);
    if (captured)
        cudaGraphDestroy(captured);
    if (!graph)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "no memory for a graph");
    graph->device = stream->device;
    if (code) {
        cuda_graph_free(graph);
        return cuda_error(err, code, what);
    }
    *out = graph;
    return STATUS_OK;
}

enum status cuda_graph_launch(struct backend_graph *graph, struct backend_stream *stream,
                              struct error *err)
{
    enum status status = cuda_enter(stream->device, err);
    if (status)
        return status;
    cudaError_t code = cudaGraphLaunch(graph->exec, stream->stream);
    return code ? cuda_error(err, code, "cudaGraphLaunch") : STATUS_OK;
}

void cuda_graph_free(struct backend_graph *graph)
{
    if (!graph)
        return;
    cuda_enter(graph->device, NULL);
    if (graph->exec)
        cudaGraphExecDestroy(graph->exec);
    cudaGetLastError();
    free(graph);
}

void cuda_range_begin(const char *name)
{
    nvtxRangePushA(name);
}

void cuda_range_end(void)
{
    nvtxRangePop();
}
