/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane: a stream and an arena. The arena is reserved address space, usable as far as the largest
 * engine on the lane needs; it grows in place, so addresses that contexts hold stay good. Memory of
 * an allocator cannot grow: there the first context's need is the arena.
 */
#include <stdlib.h>

#include "engine/runtime/internal.h"
#include "engine/runtime/memory.h"

/* Address space costs nothing unless it is limited; if it is, a smaller reserve has to do. */
static const size_t reserves[] = {(size_t)64 << 30, (size_t)8 << 30, (size_t)1 << 30,
                                  (size_t)128 << 20};

static enum status reserve_arena(struct lane *lane, struct error *err)
{
    enum status status = STATUS_RESOURCE_EXHAUSTED;
    for (size_t i = 0; i < ARRAY_LEN(reserves) && status == STATUS_RESOURCE_EXHAUSTED; i++)
        status = lane->device->backend->arena_new(lane->device, reserves[i], &lane->arena, err);
    return status;
}

enum status lane_new(struct device *device, struct lane **out, struct error *err)
{
    CLEANUP(lane_cleanup) struct lane *lane = calloc(1, sizeof(*lane));
    if (!lane)
        return error_no_memory(err, "a lane");
    lane->device = device;
    TRY(device->backend->stream_new(device, &lane->stream, err));
    if (!device->allocator)
        TRY(reserve_arena(lane, err));
    *out = STEAL(lane);
    return STATUS_OK;
}

void lane_free(struct lane *lane)
{
    if (!lane)
        return;
    const struct backend *backend = lane->device->backend;
    if (lane->arena) {
        memory_note(lane->device, MEMORY_DEVICE, lane->arena, "arena", 0);
        backend->arena_free(lane->arena);
    }
    memory_free(lane->device, MEMORY_DEVICE, lane->taken);
    if (lane->stream)
        backend->stream_free(lane->stream);
    free(lane);
}

void lane_cleanup(struct lane **at)
{
    lane_free(*at);
}

static enum status take_once(struct lane *lane, size_t size, struct error *err)
{
    if (lane->taken)
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "the lane has %zu bytes of an allocator, %zu are needed", lane->size,
                         size);
    TRY(memory_alloc(lane->device, MEMORY_DEVICE, size, "arena", &lane->taken, err));
    lane->size = size;
    return STATUS_OK;
}

void *lane_base(const struct lane *lane)
{
    return lane->taken ? lane->taken : lane->device->backend->arena_base(lane->arena);
}

enum status lane_grow(struct lane *lane, size_t size, struct error *err)
{
    if (size <= lane->size)
        return STATUS_OK;
    if (lane->device->allocator)
        return take_once(lane, size, err);
    TRY(lane->device->backend->arena_grow(lane->arena, size, err));
    lane->size = size;
    memory_note(lane->device, MEMORY_DEVICE, lane->arena, "arena", size);
    return STATUS_OK;
}
