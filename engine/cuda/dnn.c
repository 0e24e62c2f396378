/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuDNN of a device: handles, errors, and launching a plan.
 *
 * A handle belongs to one thread at a time. A stream has its own handle for launching; a thread
 * that makes plans takes one from a store and gives it back. All handles live as long as the
 * device. The first cudnnCreate loads libraries and must not run beside another one, so handles are
 * made under the lock. Without a device there are no handles: graphs then carry a device-property
 * descriptor, read from its JSON text.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/dnn_graph.h"

enum { HANDLES_MAX = 64 };

struct cuda_dnn {
    int ordinal;
    dnn_desc properties;
    struct dnn_plans *plans;
    pthread_mutex_t lock;
    bool compiler_held; /* under lock, as all below */
    uint32_t n_idle;
    cudnnHandle_t idle[HANDLES_MAX];
};

size_t cuda_dnn_version(void)
{
    return cudnnGetVersion();
}

/* --- errors --- */

static enum status status_of(cudnnStatus_t code)
{
    switch (code) {
    case CUDNN_STATUS_SUCCESS:
        return STATUS_OK;
    case CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED:
    case CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED:
        return STATUS_RESOURCE_EXHAUSTED;
    default:
        return code < CUDNN_STATUS_EXECUTION_FAILED ? STATUS_FAILED_PRECONDITION : STATUS_INTERNAL;
    }
}

/* Copies the first line of cuDNN's last error message. */
static void last_words(char *out, size_t size)
{
    char text[1024] = "";
    cudnnGetLastErrorString(text, sizeof(text));
    text[sizeof(text) - 1] = '\0';
    size_t length = strcspn(text, "\n");
    snprintf(out, size, "%.*s", (int)length, text);
}

enum status dnn_error(struct error *err, cudnnStatus_t code, const char *what)
{
    char words[DNN_WHY_MAX];
    cudaError_t sticky = code >= CUDNN_STATUS_EXECUTION_FAILED ? cudaGetLastError() : cudaSuccess;
    if (sticky != cudaSuccess)
        return cuda_error(err, sticky, what);
    last_words(words, sizeof(words));
    return error_set(err, status_of(code), "cuDNN: %s: %s (%s)", what, cudnnGetErrorString(code),
                     words);
}

/* --- the device --- */

static enum status read_properties(struct cuda_dnn *dnn, const char *json, struct error *err)
{
    cudnnStatus_t code =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &dnn->properties);
    if (!code)
        code = cudnnBackendSetAttribute(dnn->properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION,
                                        CUDNN_TYPE_CHAR, (int64_t)strlen(json), json);
    if (!code)
        code = cudnnBackendFinalize(dnn->properties);
    return code ? dnn_error(err, code, "device properties") : STATUS_OK;
}

static void dnn_cleanup(struct cuda_dnn **at)
{
    cuda_dnn_free(*at);
}

enum status cuda_dnn_new(int ordinal, const char *properties, struct cuda_dnn **out,
                         struct error *err)
{
    if (ordinal < 0 && !properties)
        return error_set(err, STATUS_INVALID_ARGUMENT,
                         "cuDNN: neither a device nor its properties");
    CLEANUP(dnn_cleanup) struct cuda_dnn *dnn = calloc(1, sizeof(*dnn));
    if (!dnn)
        return error_no_memory(err, "cuDNN");
    dnn->ordinal = ordinal;
    pthread_mutex_init(&dnn->lock, NULL);
    dnn->plans = dnn_plans_new();
    if (!dnn->plans)
        return error_no_memory(err, "cuDNN");
    if (ordinal < 0)
        TRY(read_properties(dnn, properties, err));
    *out = STEAL(dnn);
    return STATUS_OK;
}

void cuda_dnn_free(struct cuda_dnn *dnn)
{
    if (!dnn)
        return;
    dnn_plans_free(dnn->plans);
    for (uint32_t i = 0; i < dnn->n_idle; i++)
        cudnnDestroy(dnn->idle[i]);
    if (dnn->properties)
        cudnnBackendDestroyDescriptor(dnn->properties);
    pthread_mutex_destroy(&dnn->lock);
    free(dnn);
}

void cuda_dnn_drop(struct cuda_dnn *dnn)
{
    dnn_plans_drop(dnn->plans);
}

struct dnn_plans *dnn_plans(struct cuda_dnn *dnn)
{
    return dnn->plans;
}

dnn_desc dnn_properties(const struct cuda_dnn *dnn)
{
    return dnn->properties;
}

/* cuDNN opens the run-time compiler for each question to an engine that needs it, and closes it
 * again, which takes several times as long as the answer. So the compiler's library is opened for
 * good before the first compilation. If it is not found here, cuDNN still looks in other places. */
void dnn_compiler_hold(struct cuda_dnn *dnn)
{
    char name[32];
    pthread_mutex_lock(&dnn->lock);
    if (!dnn->compiler_held) {
        snprintf(name, sizeof(name), "libnvrtc.so.%d", CUDART_VERSION / 1000);
        dlopen(name, RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE);
        dnn->compiler_held = true;
    }
    pthread_mutex_unlock(&dnn->lock);
}

/* --- handles --- */

enum status dnn_handle_take(struct cuda_dnn *dnn, cudnnHandle_t *out, struct error *err)
{
    *out = NULL;
    if (dnn->ordinal < 0)
        return STATUS_OK;
    cudaError_t set = cudaSetDevice(dnn->ordinal);
    if (set != cudaSuccess)
        return cuda_error(err, set, "cudaSetDevice");
    cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
    pthread_mutex_lock(&dnn->lock);
    if (dnn->n_idle > 0)
        *out = dnn->idle[--dnn->n_idle];
    else
        code = cudnnCreate(out);
    pthread_mutex_unlock(&dnn->lock);
    return code ? dnn_error(err, code, "cudnnCreate") : STATUS_OK;
}

void dnn_handle_give(struct cuda_dnn *dnn, cudnnHandle_t handle)
{
    if (!handle)
        return;
    pthread_mutex_lock(&dnn->lock);
    bool keep = dnn->n_idle < HANDLES_MAX;
    if (keep)
        dnn->idle[dnn->n_idle++] = handle;
    pthread_mutex_unlock(&dnn->lock);
    if (!keep)
        cudnnDestroy(handle);
}

enum status dnn_stream_handle(struct backend_stream *stream, cudnnHandle_t *out, struct error *err)
{
    if (!stream->dnn_handle) {
        cudnnHandle_t handle;
        TRY(dnn_handle_take(stream->device->dnn, &handle, err));
        if (!handle)
            return error_set(err, STATUS_FAILED_PRECONDITION, "cuDNN: no device to run on");
        cudnnStatus_t code = cudnnSetStream(handle, stream->stream);
        if (code) {
            enum status status = dnn_error(err, code, "cudnnSetStream");
            dnn_handle_give(stream->device->dnn, handle);
            return status;
        }
        stream->dnn_handle = handle;
    }
    *out = stream->dnn_handle;
    return STATUS_OK;
}

/* The handle is given back, not destroyed: other streams may still run plans that were made with
 * it. */
void cuda_dnn_stream_deinit(struct backend_stream *stream)
{
    if (stream->dnn_handle) {
        cudnnSetStream(stream->dnn_handle, NULL);
        dnn_handle_give(stream->device->dnn, stream->dnn_handle);
    }
    stream->dnn_handle = NULL;
}

/* --- launching --- */

void dnn_pack_deinit(struct dnn_pack *pack)
{
    if (pack->desc)
        cudnnBackendDestroyDescriptor(pack->desc);
    pack->desc = NULL;
}

static bool pack_fits(const struct dnn_pack *pack, void *const *addresses, const void *workspace)
{
    return pack->desc && pack->workspace == workspace &&
           memcmp(pack->address, addresses, pack->n * sizeof(*addresses)) == 0;
}

static cudnnStatus_t pack_make(struct dnn_pack *pack, void *const *addresses, void *workspace)
{
    dnn_pack_deinit(pack);
    memcpy(pack->address, addresses, pack->n * sizeof(*addresses));
    pack->workspace = workspace;
    cudnnStatus_t code =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack->desc);
    if (!code)
        code = cudnnBackendSetAttribute(pack->desc, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
                                        CUDNN_TYPE_INT64, pack->n, pack->uid);
    if (!code)
        code = cudnnBackendSetAttribute(pack->desc, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
                                        CUDNN_TYPE_VOID_PTR, pack->n, pack->address);
    if (!code)
        code = cudnnBackendSetAttribute(pack->desc, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
                                        CUDNN_TYPE_VOID_PTR, 1, &pack->workspace);
    if (!code)
        code = cudnnBackendFinalize(pack->desc);
    return code;
}

enum status dnn_pack_run(struct dnn_pack *pack, struct backend_stream *stream,
                         const struct dnn_plan *plan, void *const *addresses, void *workspace,
                         const char *name, struct error *err)
{
    cudnnStatus_t code = CUDNN_STATUS_SUCCESS;
    if (!pack_fits(pack, addresses, workspace))
        code = pack_make(pack, addresses, workspace);
    if (!code)
        code = cudnnBackendExecute(stream->dnn_handle, dnn_plan_desc(plan), pack->desc);
    if (!code)
        return STATUS_OK;
    dnn_pack_deinit(pack);
    return dnn_error(err, code, name);
}
