/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuBLASLt as a library that is opened when a plan first needs it, with a handle for each device.
 *
 * The soname carries the major version we were compiled with; no other one is tried, for its types
 * may differ. Without a device there is no handle: descriptors can be made, but heuristics cannot
 * be asked.
 */
#include "engine/cuda/lt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)
#define SONAME   "libcublasLt.so." TEXT(CUBLAS_VER_MAJOR)

struct cuda_lt {
    pthread_mutex_t lock; /* of all that follows */
    int ordinal;
    void *library;
    bool opened, told;
    enum status load_status; /* of the first attempt: there is no second one */
    struct error reason;
    struct lt_api api; /* constant once `opened` */
};

static const char *const places[] = {SONAME, "/usr/local/cuda/lib64/" SONAME};

static const struct {
    const char *name;
    size_t offset;
} functions[] = {
#define LT_ROW(name) {#name, offsetof(struct lt_api, name)},
    LT_FUNCTIONS(LT_ROW)
#undef LT_ROW
};

enum status cuda_lt_new(int ordinal, struct cuda_lt **out, struct error *err)
{
    struct cuda_lt *lt = calloc(1, sizeof(*lt));
    if (!lt || pthread_mutex_init(&lt->lock, NULL)) {
        free(lt);
        return error_no_memory(err, "CUDA");
    }
    lt->ordinal = ordinal;
    *out = lt;
    return STATUS_OK;
}

void cuda_lt_free(struct cuda_lt *lt)
{
    if (!lt)
        return;
    if (lt->api.handle)
        lt->api.cublasLtDestroy(lt->api.handle);
    /* The library stays: unloading one that owns device state is not safe. */
    pthread_mutex_destroy(&lt->lock);
    free(lt);
}

enum status lt_error(const struct lt_api *api, cublasStatus_t code, const char *what,
                     struct error *err)
{
    enum status status = code == CUBLAS_STATUS_ALLOC_FAILED    ? STATUS_RESOURCE_EXHAUSTED
                         : code == CUBLAS_STATUS_NOT_SUPPORTED ? STATUS_UNIMPLEMENTED
                                                               : STATUS_INTERNAL;
    error_set(err, status, "cuBLASLt: %s: %s", what, api->cublasLtGetStatusName(code));
    if (err && code == CUBLAS_STATUS_EXECUTION_FAILED)
        err->scope = ERROR_DEVICE;
    return status;
}

static enum status load(struct cuda_lt *lt, struct error *err)
{
    for (size_t i = 0; i < ARRAY_LEN(places) && !lt->library; i++)
        lt->library = dlopen(places[i], RTLD_NOW | RTLD_LOCAL);
    if (!lt->library)
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "cuda: %s cannot be opened: install cuBLAS %d, or add its folder to "
                         "LD_LIBRARY_PATH",
                         SONAME, CUBLAS_VER_MAJOR);
    for (size_t i = 0; i < ARRAY_LEN(functions); i++) {
        void *symbol = dlsym(lt->library, functions[i].name);
        if (!symbol)
            return error_set(err, STATUS_UNIMPLEMENTED, "cuda: %s has no %s: it is too old", SONAME,
                             functions[i].name);
        memcpy((char *)&lt->api + functions[i].offset, &symbol, sizeof(symbol));
    }
    lt->api.version = (uint32_t)lt->api.cublasLtGetVersion();
    if (lt->ordinal < 0)
        return STATUS_OK;
    cublasStatus_t made = lt->api.cublasLtCreate(&lt->api.handle);
    return made == CUBLAS_STATUS_SUCCESS ? STATUS_OK
                                         : lt_error(&lt->api, made, "cublasLtCreate", err);
}

enum status lt_open(struct cuda_lt *lt, const struct lt_api **out, struct error *err)
{
    /* The library uses the calling thread's current device. */
    cudaError_t code = lt->ordinal < 0 ? cudaSuccess : cudaSetDevice(lt->ordinal);
    if (code != cudaSuccess)
        return cuda_error(err, code, "cudaSetDevice");
    pthread_mutex_lock(&lt->lock);
    if (!lt->opened && !lt->load_status) {
        lt->load_status = load(lt, &lt->reason);
        lt->opened = !lt->load_status;
    }
    enum status status = lt->load_status;
    if (status && err)
        *err = lt->reason;
    pthread_mutex_unlock(&lt->lock);
    if (!status)
        *out = &lt->api;
    return status;
}

void lt_adopt(struct cuda_lt *lt, const struct lt_api *api)
{
    pthread_mutex_lock(&lt->lock);
    lt->api = *api;
    lt->opened = true;
    pthread_mutex_unlock(&lt->lock);
}

bool lt_first_failure(struct cuda_lt *lt)
{
    pthread_mutex_lock(&lt->lock);
    bool first = !lt->told;
    lt->told = true;
    pthread_mutex_unlock(&lt->lock);
    return first;
}
