/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the device, pinned memory of the host, and arenas. An arena is reserved address space
 * whose front is backed by memory; it grows without moving its contents (CUDA C Programming Guide,
 * "Virtual Memory Management"). Only the driver offers that; its functions are looked up through
 * the runtime, so that the module links no driver library.
 */
#include <stdio.h>
#include <stdlib.h>

#include <cuda.h>
#include <cudaTypedefs.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/cuda/device.h"

/* --- plain allocations --- */

enum status cuda_memory_alloc(struct device *device, enum memory_kind kind, size_t size,
                              const char *tag, void **out, struct error *err)
{
    void *memory = NULL;
    TRY(cuda_enter(cuda_device_of(device), err));
    cudaError_t code = kind == MEMORY_PINNED
                           ? cudaHostAlloc(&memory, MAX(size, 1), cudaHostAllocPortable)
                           : cudaMalloc(&memory, MAX(size, 1));
    if (code) {
        enum status status =
            cuda_error(err, code, kind == MEMORY_PINNED ? "cudaHostAlloc" : "cudaMalloc");
        error_prefix(err, "%zu bytes for %s", size, tag);
        return status;
    }
    *out = memory;
    return STATUS_OK;
}

/* An error that a free reports is an earlier failure, which the failing call has told its own
 * caller. */
void cuda_memory_free(struct device *device, enum memory_kind kind, void *memory)
{
    if (!memory || cuda_enter(cuda_device_of(device), NULL))
        return;
    if (kind == MEMORY_PINNED)
        cudaFreeHost(memory);
    else
        cudaFree(memory);
    cudaGetLastError();
}

/* --- arenas --- */

struct driver {
    PFN_cuMemGetAllocationGranularity_v10020 granularity;
    PFN_cuMemAddressReserve_v10020 reserve;
    PFN_cuMemAddressFree_v10020 unreserve;
    PFN_cuMemCreate_v10020 create;
    PFN_cuMemRelease_v10020 release;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemSetAccess_v10020 set_access;
};

struct backend_arena {
    struct cuda_device *device;
    struct driver driver;
    CUdeviceptr base;
    size_t granularity, reserved, usable; /* bytes */
};

enum { VMM_VERSION = 10020 }; /* the driver version that brought these functions */

static enum status find_driver(struct driver *driver, struct error *err)
{
    const struct {
        const char *name;
        void *slot;
    } wanted[] = {
        {"cuMemGetAllocationGranularity", &driver->granularity},
        {"cuMemAddressReserve", &driver->reserve},
        {"cuMemAddressFree", &driver->unreserve},
        {"cuMemCreate", &driver->create},
        {"cuMemRelease", &driver->release},
        {"cuMemMap", &driver->map},
        {"cuMemUnmap", &driver->unmap},
        {"cuMemSetAccess", &driver->set_access},
    };
    for (size_t i = 0; i < ARRAY_LEN(wanted); i++) {
        enum cudaDriverEntryPointQueryResult found;
        cudaError_t code = cudaGetDriverEntryPointByVersion(wanted[i].name, wanted[i].slot,
                                                            VMM_VERSION, cudaEnableDefault, &found);
        if (!code && found != cudaDriverEntryPointSuccess)
            code = cudaErrorSymbolNotFound;
        if (code)
            return cuda_error(err, code, wanted[i].name);
    }
    return STATUS_OK;
}

/* The runtime numbers the driver's errors as the driver does. */
static enum status driver_error(struct error *err, CUresult result, const char *what)
{
    return cuda_error(err, (cudaError_t)result, what);
}

static CUmemAllocationProp memory_of(const struct cuda_device *device)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
    };
}

static enum status reserve_arena(struct backend_arena *arena, size_t reserve, struct error *err)
{
    CUmemAllocationProp memory = memory_of(arena->device);
    CUresult result = arena->driver.granularity(&arena->granularity, &memory,
                                                CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    if (result)
        return driver_error(err, result, "cuMemGetAllocationGranularity");
    if (!checked_round_up(MAX(reserve, 1), arena->granularity, &arena->reserved))
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "an arena of %zu bytes", reserve);
    result = arena->driver.reserve(&arena->base, arena->reserved, 0, 0, 0);
    if (result) {
        arena->base = 0;
        return driver_error(err, result, "cuMemAddressReserve");
    }
    return STATUS_OK;
}

enum status cuda_arena_new(struct device *device, size_t reserve, struct backend_arena **out,
                           struct error *err)
{
    TRY(cuda_enter(cuda_device_of(device), err));
    CLEANUP(cleanup_free) struct backend_arena *arena = calloc(1, sizeof(*arena));
    if (!arena)
        return error_no_memory(err, "an arena");
    arena->device = cuda_device_of(device);
    TRY(find_driver(&arena->driver, err));
    TRY(reserve_arena(arena, reserve, err));
    *out = STEAL(arena);
    return STATUS_OK;
}

/* Backs the `size` bytes behind the usable ones. The mapping keeps the memory alive, so its handle
 * is released. */
static CUresult map_more(struct backend_arena *arena, size_t size, const char **what)
{
    const struct driver *driver = &arena->driver;
    CUmemAllocationProp memory = memory_of(arena->device);
    CUmemAccessDesc access = {memory.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr at = arena->base + arena->usable;
    CUmemGenericAllocationHandle handle;
    *what = "cuMemCreate";
    CUresult result = driver->create(&handle, size, &memory, 0);
    if (result)
        return result;
    *what = "cuMemMap";
    result = driver->map(at, size, 0, handle, 0);
    driver->release(handle);
    if (result)
        return result;
    *what = "cuMemSetAccess";
    result = driver->set_access(at, size, &access, 1);
    if (result)
        driver->unmap(at, size);
    return result;
}

enum status cuda_arena_grow(struct backend_arena *arena, size_t size, struct error *err)
{
    size_t rounded;
    const char *what;
    if (size <= arena->usable)
        return STATUS_OK;
    if (!checked_round_up(size, arena->granularity, &rounded) || rounded > arena->reserved)
        return error_set(err, STATUS_RESOURCE_EXHAUSTED,
                         "an arena of %zu bytes is needed, %zu are reserved", size,
                         arena->reserved);
    TRY(cuda_enter(arena->device, err));
    CUresult result = map_more(arena, rounded - arena->usable, &what);
    if (result) {
        enum status status = driver_error(err, result, what);
        error_prefix(err, "an arena of %zu bytes", size);
        return status;
    }
    arena->usable = rounded;
    return STATUS_OK;
}

void *cuda_arena_base(struct backend_arena *arena)
{
    return (void *)(uintptr_t)arena->base;
}

void cuda_arena_free(struct backend_arena *arena)
{
    if (!arena)
        return;
    if (!cuda_enter(arena->device, NULL)) {
        if (arena->usable)
            arena->driver.unmap(arena->base, arena->usable);
        arena->driver.unreserve(arena->base, arena->reserved);
    }
    free(arena);
}
