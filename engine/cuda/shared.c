/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of this device that another process allocated, by the handle that it got for it
 * (cudaIpcGetMemHandle). The driver keeps the memory for as long as it is open here, also when its
 * owner ends. Each opening has a stream of its own: copies neither wait for the workers' streams
 * nor hold them up, and a capture on one of these does not see them.
 */
#include <stdlib.h>
#include <string.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#include "base/cleanup.h"
#include "engine/cuda/device.h"

struct backend_shared {
    struct cuda_device *device;
    char *base;
    cudaStream_t stream; /* NULL: not made yet */
};

_Static_assert(sizeof(cudaIpcMemHandle_t) == BACKEND_HANDLE_BYTES, "what clients send");

enum { RANGE_VERSION = 3020 }; /* the driver version of the function below */

/* How many bytes there are from `at` on, which only the driver knows. */
static enum status left_find(const void *at, size_t *out, struct error *err)
{
    PFN_cuMemGetAddressRange_v3020 range = NULL;
    void *slot = NULL;
    enum cudaDriverEntryPointQueryResult found;
    cudaError_t code = cudaGetDriverEntryPointByVersion("cuMemGetAddressRange", &slot,
                                                        RANGE_VERSION, cudaEnableDefault, &found);
    if (!code && found != cudaDriverEntryPointSuccess)
        code = cudaErrorSymbolNotFound;
    if (code)
        return cuda_error(err, code, "cuMemGetAddressRange");
    memcpy(&range, &slot, sizeof(range));
    CUdeviceptr begin = 0, address = (CUdeviceptr)(uintptr_t)at;
    size_t size = 0;
    CUresult result = range(&begin, &size, address);
    if (result)
        return cuda_error(err, (cudaError_t)result, "cuMemGetAddressRange");
    *out = size - (size_t)(address - begin);
    return STATUS_OK;
}

/* What the peer sent may be anything, and is not the device's failure. */
static enum status handle_open(const void *handle, char **out, struct error *err)
{
    cudaIpcMemHandle_t copy;
    void *at = NULL;
    memcpy(&copy, handle, sizeof(copy));
    cudaError_t code = cudaIpcOpenMemHandle(&at, copy, cudaIpcMemLazyEnablePeerAccess);
    if (code) {
        cudaGetLastError();
        return error_set(err, STATUS_INVALID_ARGUMENT, "the handle cannot be opened: %s",
                         cudaGetErrorString(code));
    }
    *out = at;
    return STATUS_OK;
}

static void shared_cleanup(struct backend_shared **shared)
{
    cuda_shared_close(*shared);
}

enum status cuda_shared_open(struct device *device, const void *handle, size_t least,
                             struct backend_shared **out, struct error *err)
{
    TRY(cuda_enter(cuda_device_of(device), err));
    CLEANUP(shared_cleanup) struct backend_shared *shared = calloc(1, sizeof(*shared));
    size_t left = 0;
    if (!shared)
        return error_no_memory(err, "shared memory");
    shared->device = cuda_device_of(device);
    TRY(handle_open(handle, &shared->base, err));
    TRY(left_find(shared->base, &left, err));
    if (left < least)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "the handle stands for %zu bytes, %zu are wanted", left, least);
    cudaError_t code = cudaStreamCreateWithFlags(&shared->stream, cudaStreamNonBlocking);
    if (code)
        return cuda_error(err, code, "cudaStreamCreateWithFlags");
    *out = STEAL(shared);
    return STATUS_OK;
}

void cuda_shared_close(struct backend_shared *shared)
{
    if (!shared)
        return;
    if (!cuda_enter(shared->device, NULL)) {
        if (shared->stream)
            cudaStreamDestroy(shared->stream);
        if (shared->base)
            cudaIpcCloseMemHandle(shared->base);
        cudaGetLastError();
    }
    free(shared);
}

static enum status copy(const struct backend_shared *shared, void *to, const void *from,
                        size_t size, enum cudaMemcpyKind kind, struct error *err)
{
    TRY(cuda_enter(shared->device, err));
    cudaError_t code = cudaMemcpyAsync(to, from, size, kind, shared->stream);
    if (!code)
        code = cudaStreamSynchronize(shared->stream);
    return code ? cuda_error(err, code, "a copy of shared memory") : STATUS_OK;
}

enum status cuda_shared_read(struct backend_shared *shared, size_t at, void *to, size_t size,
                             struct error *err)
{
    return copy(shared, to, shared->base + at, size, cudaMemcpyDeviceToHost, err);
}

enum status cuda_shared_write(struct backend_shared *shared, size_t at, const void *from,
                              size_t size, struct error *err)
{
    return copy(shared, shared->base + at, from, size, cudaMemcpyHostToDevice, err);
}
