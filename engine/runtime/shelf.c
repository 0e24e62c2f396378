/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shelf: where a batch leaves outputs on the device. It is an arena of the backend's, because an
 * arena grows in place: a shelf that a larger model needs larger may hold a batch's outputs
 * meanwhile.
 */
#include <stdlib.h>

#include "base/checked.h"
#include "engine/runtime/internal.h"
#include "engine/runtime/memory.h"

static const size_t reserves[] = {(size_t)16 << 30, (size_t)1 << 30, (size_t)128 << 20};

enum status shelf_new(struct device *device, struct shelf **out, struct error *err)
{
    enum status status = STATUS_RESOURCE_EXHAUSTED;
    if (device->backend->host_memory || device->allocator)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "a shelf needs a device with memory of its own, and its arenas");
    struct shelf *shelf = calloc(1, sizeof(*shelf));
    if (!shelf)
        return error_no_memory(err, "a shelf");
    shelf->device = device;
    for (size_t i = 0; i < ARRAY_LEN(reserves) && status == STATUS_RESOURCE_EXHAUSTED; i++)
        status = device->backend->arena_new(device, reserves[i], &shelf->arena, err);
    if (status) {
        free(shelf);
        return status;
    }
    *out = shelf;
    return STATUS_OK;
}

/* A few bytes at the end are nobody's: so no copy of what lies on a shelf ends where other memory
 * begins, and copies that follow each other can be one (context_io.c). */
enum status shelf_grow(struct shelf *shelf, size_t size, struct error *err)
{
    size_t all;
    if (!checked_add(size, BACKEND_ALIGN, &all))
        return error_no_memory(err, "a shelf");
    TRY(shelf->device->backend->arena_grow(shelf->arena, all, err));
    memory_note(shelf->device, MEMORY_DEVICE, shelf->arena, "shelf", all);
    return STATUS_OK;
}

const void *shelf_at(const struct shelf *shelf, size_t offset)
{
    return (const char *)shelf->device->backend->arena_base(shelf->arena) + offset;
}

void shelf_free(struct shelf *shelf)
{
    if (!shelf)
        return;
    memory_note(shelf->device, MEMORY_DEVICE, shelf->arena, "shelf", 0);
    shelf->device->backend->arena_free(shelf->arena);
    free(shelf);
}
