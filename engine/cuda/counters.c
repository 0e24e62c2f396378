/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Counters of cuBLASLt's products within a captured graph.
 *
 * Many of its kernels for Hopper share their tiles out by a counter, which is all of their
 * workspace: four bytes, which cuBLASLt clears by a node of its own in front of each kernel. Such a
 * node costs a graph 2 us (H200, cuBLASLt 13.1). So within a capture each launch gets a counter
 * that no other launch of the graph has. The first one clears them all, and the nodes that clear
 * single ones are taken out when the capture ends.
 *
 * Counters belong to the stream: graphs that were captured on it use the same ones, and run one
 * behind the other.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "engine/cuda/device.h"

enum {
    COUNTERS = 1024, /* launches of one graph; others have theirs cleared as before */
    COUNTERS_BYTES = COUNTERS * CUDA_COUNTER_BYTES,
};

void cuda_counters_reserve(struct backend_stream *stream, uint64_t bytes)
{
    void *memory = NULL;
    if (bytes == 0 || bytes > CUDA_COUNTER_BYTES || stream->counters)
        return;
    if (!cuda_memory_alloc(&stream->device->base, MEMORY_DEVICE, COUNTERS_BYTES, "counters",
                           &memory, NULL))
        stream->counters = memory;
}

void *cuda_counter(struct backend_stream *stream, uint64_t bytes, void *workspace)
{
    if (!stream->capturing || !stream->counters || bytes == 0 || bytes > CUDA_COUNTER_BYTES ||
        stream->counters_used == COUNTERS)
        return workspace;
    if (stream->counters_used == 0 &&
        cudaMemsetAsync(stream->counters, 0, COUNTERS_BYTES, stream->stream))
        return workspace; /* the capture has failed, which its end tells */
    return stream->counters + CUDA_COUNTER_BYTES * stream->counters_used++;
}

#if CUDART_VERSION >= 13000 /* before, these functions had other parameters */

/* A node that clears counters. */
struct clearing {
    cudaGraphNode_t node;
    struct cudaMemsetParams memset;
};

/* Whether the node clears memory among the counters. */
static bool is_clearing(const struct backend_stream *stream, cudaGraphNode_t node,
                        struct clearing *out)
{
    enum cudaGraphNodeType type;
    out->node = node;
    if (cudaGraphNodeGetType(node, &type) || type != cudaGraphNodeTypeMemset ||
        cudaGraphMemsetNodeGetParams(node, &out->memset))
        return false;
    uintptr_t first = (uintptr_t)stream->counters, at = (uintptr_t)out->memset.dst;
    return at >= first && at < first + COUNTERS_BYTES;
}

static bool clears_all(const struct clearing *c)
{
    return c->memset.elementSize * c->memset.width * c->memset.height == COUNTERS_BYTES;
}

/* The counter that the cleared memory begins with. */
static size_t number_of(const struct backend_stream *stream, const struct clearing *c)
{
    return (size_t)((char *)c->memset.dst - stream->counters) / CUDA_COUNTER_BYTES;
}

/* The node in front of it leads to the one behind it, and the node itself is no more. One that is
 * not between two nodes stays. */
static cudaError_t take_out(cudaGraph_t graph, cudaGraphNode_t node)
{
    cudaGraphNode_t from, to;
    cudaGraphEdgeData in, out, plain = {0};
    size_t n_from = 0, n_to = 0;
    cudaError_t code = cudaGraphNodeGetDependencies(node, NULL, NULL, &n_from);
    if (!code)
        code = cudaGraphNodeGetDependentNodes(node, NULL, NULL, &n_to);
    if (code || n_from != 1 || n_to != 1)
        return code;
    code = cudaGraphNodeGetDependencies(node, &from, &in, &n_from);
    if (!code)
        code = cudaGraphNodeGetDependentNodes(node, &to, &out, &n_to);
    if (!code)
        code = cudaGraphAddDependencies(graph, &from, &to, &plain, 1);
    return code ? code : cudaGraphDestroyNode(node);
}

/* Leaves the node that clears all counters, of those that are used, and takes out the others. A
 * counter that is cleared more than once is used more than once, and stays as it is. */
static cudaError_t settle(const struct backend_stream *stream, cudaGraph_t graph,
                          const struct clearing *list, size_t n)
{
    uint32_t times[COUNTERS] = {0};
    cudaError_t code = cudaSuccess;
    const struct cudaMemsetParams used = {.dst = stream->counters,
                                          .elementSize = 1,
                                          .width =
                                              (size_t)stream->counters_used * CUDA_COUNTER_BYTES,
                                          .height = 1};
    for (size_t i = 0; i < n; i++)
        times[number_of(stream, &list[i])] += !clears_all(&list[i]);
    for (size_t i = 0; i < n && !code; i++)
        if (clears_all(&list[i]))
            code = cudaGraphMemsetNodeSetParams(list[i].node, &used);
        else if (times[number_of(stream, &list[i])] == 1 && list[i].memset.value == 0)
            code = take_out(graph, list[i].node);
    return code;
}

cudaError_t cuda_counters_settle(const struct backend_stream *stream, cudaGraph_t graph)
{
    size_t n = 0, found = 0;
    if (stream->counters_used == 0)
        return cudaSuccess;
    cudaError_t code = cudaGraphGetNodes(graph, NULL, &n);
    CLEANUP(cleanup_free) cudaGraphNode_t *nodes = calloc(n + 1, sizeof(*nodes));
    CLEANUP(cleanup_free) struct clearing *list = calloc(n + 1, sizeof(*list));
    if (!code && (!nodes || !list))
        code = cudaErrorMemoryAllocation;
    if (!code)
        code = cudaGraphGetNodes(graph, nodes, &n);
    for (size_t i = 0; i < n && !code; i++)
        found += is_clearing(stream, nodes[i], &list[found]);
    return code ? code : settle(stream, graph, list, found);
}

#else

cudaError_t cuda_counters_settle(const struct backend_stream *stream UNUSED,
                                 cudaGraph_t graph UNUSED)
{
    return cudaSuccess;
}

#endif

void cuda_counters_free(struct backend_stream *stream)
{
    cuda_memory_free(&stream->device->base, MEMORY_DEVICE, stream->counters);
    stream->counters = NULL;
}
