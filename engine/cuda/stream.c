/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Streams, events and copies.
 *
 * A waiting thread first asks the device without pause, which notices the end soonest. Then it naps
 * between its questions; a nap grows with the time waited so far, so the thread is late by a small
 * part of that time at most. The driver's own blocking wait costs a wake-up of 200 to 500 us on a
 * virtual machine (H200, measured).
 */
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "base/clock.h"
#include "engine/cuda/device.h"
#include "engine/cuda/dnn.h"

enum {
    SPIN_NS = 400000,   /* asking without pause: the shortest batches end within it */
    NAP_PART = 32,      /* a nap is this part of what was waited so far, */
    NAP_MAX_NS = 50000, /* but no longer than this */
    SLACK_NS = 1000,    /* how late the kernel may end a nap; its own default is 50 us */
    BATCH_MAX = 64,     /* copies of one call; more take several */
};

struct backend_event {
    struct cuda_device *device;
    cudaEvent_t event;
    struct backend_stream *stream; /* the last to record it; outlives every wait for the event */
};

/* --- streams --- */

enum status cuda_stream_new(struct device *device, struct backend_stream **out, struct error *err)
{
    TRY(cuda_enter(cuda_device_of(device), err));
    struct backend_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return error_no_memory(err, "a stream");
    stream->device = cuda_device_of(device);
    cudaError_t code = cudaStreamCreateWithFlags(&stream->stream, cudaStreamNonBlocking);
    if (code) {
        free(stream);
        return cuda_error(err, code, "cudaStreamCreateWithFlags");
    }
    *out = stream;
    return STATUS_OK;
}

void cuda_stream_free(struct backend_stream *stream)
{
    if (!stream)
        return;
    cuda_enter(stream->device, NULL);
    cuda_turn_leave(stream);
    cuda_dnn_stream_deinit(stream);
    cudaStreamDestroy(stream->stream);
    if (stream->half) /* of a capture that could not be ended */
        cudaEventDestroy(stream->half);
    cudaFreeHost(stream->bad_index);
    cuda_counters_free(stream);
    cudaGetLastError();
    free(stream);
}

enum status cuda_stream_flag(struct backend_stream *stream, int32_t **out, struct error *err)
{
    void *flag = stream->bad_index;
    if (!flag && stream->device->ordinal >= 0) {
        cudaError_t code = cudaHostAlloc(&flag, sizeof(int32_t), cudaHostAllocMapped);
        if (code)
            return cuda_error(err, code, "cudaHostAlloc of a stream's flag");
        stream->bad_index = flag;
        *stream->bad_index = 0;
    }
    *out = flag;
    return STATUS_OK;
}

/* Reads and clears the flag that a kernel may have set. The caller has waited for an event behind
 * the kernels: their writes have arrived, and this thread's stream runs no other. */
static enum status take_flag(struct backend_stream *stream, struct error *err)
{
    volatile int32_t *flag = stream ? stream->bad_index : NULL;
    int32_t what = flag ? *flag : 0;
    if (!what)
        return STATUS_OK;
    *flag = 0;
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     what == KERNEL_BAD_LENGTH
                         ? "recurrent: a sequence has less than 0 steps, or more than there are"
                         : "gather or scatter: an index is out of range");
}

/* --- events --- */

enum status cuda_event_new(struct device *device, bool timing, struct backend_event **out,
                           struct error *err)
{
    TRY(cuda_enter(cuda_device_of(device), err));
    struct backend_event *event = calloc(1, sizeof(*event));
    if (!event)
        return error_no_memory(err, "an event");
    event->device = cuda_device_of(device);
    cudaError_t code =
        cudaEventCreateWithFlags(&event->event, timing ? cudaEventDefault : cudaEventDisableTiming);
    if (code) {
        free(event);
        return cuda_error(err, code, "cudaEventCreateWithFlags");
    }
    *out = event;
    return STATUS_OK;
}

void cuda_event_free(struct backend_event *event)
{
    if (!event)
        return;
    cuda_enter(event->device, NULL);
    cudaEventDestroy(event->event);
    cudaGetLastError();
    free(event);
}

enum status cuda_event_record(struct backend_event *event, struct backend_stream *stream,
                              struct error *err)
{
    TRY(cuda_enter(stream->device, err));
    unsigned flags = stream->capturing ? cudaEventRecordExternal : cudaEventRecordDefault;
    cudaError_t code = cudaEventRecordWithFlags(event->event, stream->stream, flags);
    event->stream = stream;
    return code ? cuda_error(err, code, "cudaEventRecordWithFlags") : STATUS_OK;
}

static cudaError_t wait_napping(cudaEvent_t event, uint64_t begun)
{
    cudaError_t code;
    /* The caller may be any thread, so the timer slack is set at each wait; the call costs next to
     * nothing beside SPIN_NS. If a system call filter forbids it, naps only end later. */
    prctl(PR_SET_TIMERSLACK, (unsigned long)SLACK_NS, 0UL, 0UL, 0UL);
    while ((code = cudaEventQuery(event)) == cudaErrorNotReady) {
        uint64_t ns = (clock_now_ns() - begun) / NAP_PART;
        nanosleep(&(struct timespec){.tv_nsec = (long)MIN(ns, (uint64_t)NAP_MAX_NS)}, NULL);
    }
    return code;
}

enum status cuda_event_wait(struct backend_event *event, struct error *err)
{
    TRY(cuda_enter(event->device, err));
    cudaError_t code = cudaEventQuery(event->event);
    if (code == cudaErrorNotReady) {
        uint64_t begun = clock_now_ns();
        while (code == cudaErrorNotReady && clock_now_ns() - begun <= SPIN_NS)
            code = cudaEventQuery(event->event);
        if (code == cudaErrorNotReady)
            code = wait_napping(event->event, begun);
        cudaGetLastError(); /* a launch that looks for its own error must not find "not ready" */
    }
    return code ? cuda_error(err, code, "waiting for the device") : take_flag(event->stream, err);
}

enum status cuda_event_elapsed(struct backend_event *from, struct backend_event *to, uint64_t *ns,
                               struct error *err)
{
    float ms;
    TRY(cuda_enter(from->device, err));
    cudaError_t code = cudaEventElapsedTime(&ms, from->event, to->event);
    if (code)
        return cuda_error(err, code, "cudaEventElapsedTime");
    *ns = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    return STATUS_OK;
}

/* --- copies --- */

static const enum cudaMemcpyKind kinds[] = {
    [COPY_TO_DEVICE] = cudaMemcpyHostToDevice,
    [COPY_TO_HOST] = cudaMemcpyDeviceToHost,
    [COPY_ON_DEVICE] = cudaMemcpyDeviceToDevice,
};

struct batch {
    void *to[BATCH_MAX];
    const void *from[BATCH_MAX];
    size_t size[BATCH_MAX];
    size_t n;
};

static cudaError_t copy_one(const struct backend_stream *stream, enum copy_direction direction,
                            const struct batch *batch, size_t i)
{
    return cudaMemcpyAsync(batch->to[i], batch->from[i], batch->size[i], kinds[direction],
                           stream->stream);
}

static cudaError_t copy_each(const struct backend_stream *stream, enum copy_direction direction,
                             const struct batch *batch)
{
    cudaError_t code = cudaSuccess;
    for (size_t i = 0; i < batch->n && !code; i++)
        code = copy_one(stream, direction, batch, i);
    return code;
}

#if CUDART_VERSION >= 13000 /* before, this function had other parameters, or was not there */
/* The copies of a batch have no order among themselves; backend.h asks for none. */
static cudaError_t copy_batch(const struct backend_stream *stream, enum copy_direction direction,
                              struct batch *batch)
{
    struct cudaMemLocation host = {.type = cudaMemLocationTypeHost};
    struct cudaMemLocation device = {.type = cudaMemLocationTypeDevice,
                                     .id = stream->device->ordinal};
    struct cudaMemcpyAttributes attributes = {
        .srcAccessOrder = cudaMemcpySrcAccessOrderStream,
        .srcLocHint = direction == COPY_TO_DEVICE ? host : device,
        .dstLocHint = direction == COPY_TO_HOST ? host : device,
        .flags = cudaMemcpyFlagPreferOverlapWithCompute,
    };
    size_t first = 0;
    return cudaMemcpyBatchAsync(batch->to, batch->from, batch->size, batch->n, &attributes, &first,
                                1, stream->stream);
}
#else
#define copy_batch copy_each
#endif

static cudaError_t copy_all(const struct backend_stream *stream, enum copy_direction direction,
                            struct batch *batch)
{
    if (batch->n == 0)
        return cudaSuccess;
    if (batch->n == 1 || stream->capturing) /* batches cannot be captured */
        return copy_each(stream, direction, batch);
    cudaError_t code = copy_batch(stream, direction, batch);
    if (code != cudaErrorInvalidValue)
        return code;
    cudaGetLastError(); /* some memory is not pinned, which no batch may have */
    return copy_each(stream, direction, batch);
}

enum status cuda_copy(struct backend_stream *stream, enum copy_direction direction,
                      const struct backend_copy *copies, uint32_t n, struct error *err)
{
    TRY(cuda_enter(stream->device, err));
    for (uint32_t i = 0; i < n;) {
        struct batch batch;
        for (batch.n = 0; i < n && batch.n < BATCH_MAX; i++) {
            if (!copies[i].size || copies[i].to == copies[i].from)
                continue;
            batch.to[batch.n] = copies[i].to;
            batch.from[batch.n] = copies[i].from;
            batch.size[batch.n++] = copies[i].size;
        }
        cudaError_t code = copy_all(stream, direction, &batch);
        if (code)
            return cuda_error(err, code, batch.n > 1 ? "copies" : "a copy");
    }
    return STATUS_OK;
}
