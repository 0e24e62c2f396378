/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cuda/dry.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/cuda/device.h"
#include "engine/cuda/dnn.h"

enum { JSON_MAX = 1 << 16 };

/* What follows `"key":` in a flat object; NULL: there is no such key. */
static const char *value_of(const char *json, const char *key)
{
    size_t len = strlen(key);
    for (const char *at = json; (at = strchr(at, '"')); at++)
        if (!strncmp(at + 1, key, len) && at[1 + len] == '"' && at[2 + len] == ':')
            return at + 3 + len;
    return NULL;
}

static bool read_number(const char *json, const char *key, long long *out)
{
    const char *value = value_of(json, key);
    char *end;
    if (!value)
        return false;
    long long number = strtoll(value, &end, 10);
    if (end == value || number < 0)
        return false;
    *out = number;
    return true;
}

static bool read_name(const char *json, struct cudaDeviceProp *out)
{
    const char *value = value_of(json, "deviceName");
    size_t len = value && *value == '"' ? strcspn(value + 1, "\"") : 0;
    if (len == 0 || len >= sizeof(out->name))
        return false;
    memcpy(out->name, value + 1, len);
    return true;
}

static bool read_properties(const char *json, struct cudaDeviceProp *out, int *driver)
{
    long long capability, version, n[8];
    if (!read_name(json, out) || !read_number(json, "deviceVer", &capability) ||
        !read_number(json, "driverVer", &version) ||
        !read_number(json, "multiProcessorCount", &n[0]) ||
        !read_number(json, "l2CacheSize", &n[1]) || !read_number(json, "totalGlobalMem", &n[2]) ||
        !read_number(json, "maxSharedMemoryPerBlock", &n[3]) ||
        !read_number(json, "maxSharedMemoryPerBlockOptin", &n[4]) ||
        !read_number(json, "maxThreadsPerSM", &n[5]) ||
        !read_number(json, "maxThreadsPerBlock", &n[6]) || !read_number(json, "warpSize", &n[7]))
        return false;
    out->major = (int)(capability / 100);
    out->minor = (int)(capability % 100 / 10);
    out->multiProcessorCount = (int)n[0];
    out->l2CacheSize = (int)n[1];
    out->totalGlobalMem = (size_t)n[2];
    out->sharedMemPerBlock = (size_t)n[3];
    out->sharedMemPerBlockOptin = (size_t)n[4];
    out->maxThreadsPerMultiProcessor = (int)n[5];
    out->maxThreadsPerBlock = (int)n[6];
    out->warpSize = (int)n[7];
    *driver = (int)version;
    return true;
}

static enum status read_json(const char *path, char **out, struct error *err)
{
    FILE *file = fopen(path, "re");
    char *json = calloc(1, JSON_MAX);
    size_t n = file && json ? fread(json, 1, JSON_MAX - 1, file) : 0;
    if (file)
        fclose(file);
    if (n == 0) {
        free(json);
        return error_set(err, STATUS_NOT_FOUND, "%s: not readable, or empty", path);
    }
    *out = json;
    return STATUS_OK;
}

enum status cuda_device_open_dry(const char *path, const struct log_sink *log, struct device **out,
                                 struct error *err)
{
    CLEANUP(cleanup_free) char *json = NULL;
    int driver = 0;
    TRY(read_json(path, &json, err));
    CLEANUP(cuda_device_cleanup) struct cuda_device *device = calloc(1, sizeof(*device));
    if (!device)
        return error_no_memory(err, "a device");
    pthread_mutex_init(&device->turn_lock, NULL);
    if (!read_properties(json, &device->properties, &driver))
        return error_set(err, STATUS_INVALID_ARGUMENT, "%s: no device properties", path);
    device->base.backend = &backend_cuda;
    device->base.threads = 1;
    device->base.block_bytes = device->properties.sharedMemPerBlockOptin;
    device->ordinal = -1;
    device->log = log;
    cuda_device_describe(device, driver);
    TRY(cuda_dnn_new(-1, json, &device->dnn, err));
    TRY(cuda_lt_new(-1, &device->lt, err));
    *out = &STEAL(device)->base;
    return STATUS_OK;
}

enum status cuda_stream_new_dry(struct device *device, struct backend_stream **out,
                                struct error *err)
{
    struct backend_stream *stream = calloc(1, sizeof(*stream));
    if (!stream)
        return error_no_memory(err, "a stream");
    stream->device = cuda_device_of(device);
    *out = stream;
    return STATUS_OK;
}

void cuda_stream_free_dry(struct backend_stream *stream)
{
    free(stream);
}
