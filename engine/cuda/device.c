/* SPDX-License-Identifier: Apache-2.0 */
/* Devices: how many there are, opening one, and the line that names it. */
#include "engine/cuda/device.h"
#include "engine/cuda/dnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cublas_api.h>

enum status cuda_enter(const struct cuda_device *device, struct error *err)
{
    if (device->ordinal < 0)
        return error_set(err, STATUS_FAILED_PRECONDITION, "cuda: there is no hardware behind '%s'",
                         device->properties.name);
    cudaError_t code = cudaSetDevice(device->ordinal);
    return code ? cuda_error(err, code, "cudaSetDevice") : STATUS_OK;
}

/* Without a driver, the runtime itself says only that the driver is too old. */
static enum status no_device(struct error *err, cudaError_t code)
{
    int driver = 0;
    cudaGetLastError();
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver == 0)
        return error_set(err, STATUS_NOT_FOUND, "no CUDA device: no NVIDIA driver is installed");
    return error_set(err, STATUS_NOT_FOUND, "no CUDA device: %s", cudaGetErrorString(code));
}

enum status cuda_device_count(uint32_t *out, struct error *err)
{
    int n = 0;
    cudaError_t code = cudaGetDeviceCount(&n);
    if (code || n <= 0)
        return no_device(err, code ? code : cudaErrorNoDevice);
    *out = (uint32_t)n;
    return STATUS_OK;
}

bool cuda_archs_fit(const char *archs, int major, int minor)
{
    for (const char *at = archs; *at;) {
        char *end;
        long arch = strtol(at, &end, 10);
        bool exact = *end && *end != ' ';
        if (arch / 10 == major && (exact ? arch % 10 == minor : arch % 10 <= minor))
            return true;
        at = end + strcspn(end, " ");
        at += strspn(at, " ");
    }
    return false;
}

void cuda_device_describe(struct cuda_device *device, int driver_version)
{
    int runtime_version = 0;
    cudaRuntimeGetVersion(&runtime_version);
    snprintf(device->fingerprint, sizeof(device->fingerprint),
             "cuda; %.64s; %d multiprocessors; driver %d; runtime %d; cudnn %zu; cublasLt %d",
             device->properties.name, device->properties.multiProcessorCount, driver_version,
             runtime_version, cuda_dnn_version(), CUBLAS_VERSION);
}

void cuda_device_fingerprint(struct device *device, char out[FINGERPRINT_MAX])
{
    memcpy(out, cuda_device_of(device)->fingerprint, FINGERPRINT_MAX);
}

uint64_t cuda_memory_total(struct device *device)
{
    return cuda_device_of(device)->properties.totalGlobalMem;
}

static enum status check_device(uint32_t index, struct cudaDeviceProp *properties,
                                struct error *err)
{
    uint32_t n;
    TRY(cuda_device_count(&n, err));
    if (index >= n)
        return error_set(err, STATUS_NOT_FOUND, "there %s %u CUDA device%s, no cuda:%u",
                         n == 1 ? "is" : "are", n, n == 1 ? "" : "s", index);
    cudaError_t code = cudaGetDeviceProperties(properties, (int)index);
    if (code)
        return cuda_error(err, code, "cudaGetDeviceProperties");
    if (!cuda_archs_fit(CUDA_ARCHS, properties->major, properties->minor))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "cuda:%u: %s has compute capability %d.%d, this module's "
                         "kernels are for: " CUDA_ARCHS,
                         index, properties->name, properties->major, properties->minor);
    return STATUS_OK;
}

static enum status fill_device(struct cuda_device *device, struct error *err)
{
    int driver_version = 0;
    TRY(cuda_enter(device, err));
    cudaDriverGetVersion(&driver_version);
    cuda_device_describe(device, driver_version);
    TRY(cuda_dnn_new(device->ordinal, NULL, &device->dnn, err));
    return cuda_lt_new(device->ordinal, &device->lt, err);
}

enum status cuda_device_open(const struct device_options *options, struct device **out,
                             struct error *err)
{
    struct cudaDeviceProp properties;
    TRY(check_device(options->index, &properties, err));
    CLEANUP(cuda_device_cleanup) struct cuda_device *device = calloc(1, sizeof(*device));
    if (!device)
        return error_no_memory(err, "a device");
    pthread_mutex_init(&device->turn_lock, NULL);
    device->base.backend = &backend_cuda;
    device->base.threads = 1;
    device->base.block_bytes = properties.sharedMemPerBlockOptin;
    device->ordinal = (int)options->index;
    device->properties = properties;
    device->log = options->log;
    TRY(fill_device(device, err));
    log_write(options->log, LOG_VERBOSE, "cuda:%u: %s", options->index, device->fingerprint);
    *out = &STEAL(device)->base;
    return STATUS_OK;
}

void cuda_device_close(struct device *device)
{
    if (!device)
        return;
    struct cuda_device *cuda = cuda_device_of(device);
    cuda_dnn_free(cuda->dnn);
    cuda_lt_free(cuda->lt);
    pthread_mutex_destroy(&cuda->turn_lock);
    free(cuda);
}
