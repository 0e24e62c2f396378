/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lane: a stream and an arena. The arena is reserved address space, usable as far as the largest
 * engine on the lane needs; it grows in place, so addresses that contexts hold stay good.
 */
#include <stdlib.h>

#include "engine/runtime/internal.h"
#include "engine/runtime/memory.h"

/* Address space costs nothing where it is not limited; where it is, less will do. */
static const size_t reserves[] = {(size_t)64 << 30, (size_t)8 << 30, (size_t)1 << 30,
                                  (size_t)128 << 20};

enum status lane_new(struct device *device, struct lane **out, struct error *err)
{
    const struct backend *backend = device->backend;
    struct lane *lane = calloc(1, sizeof(*lane));
    if (!lane)
        return error_no_memory(err, "a lane");
    lane->device = device;
    enum status status = backend->stream_new(device, &lane->stream, err);
    if (!status) {
        for (size_t i = 0; i < ARRAY_LEN(reserves); i++) {
            status = backend->arena_new(device, reserves[i], &lane->arena, err);
            if (status != STATUS_RESOURCE_EXHAUSTED)
                break;
        }
    }
    if (status) {
        lane_free(lane);
        return status;
    }
    *out = lane;
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
    if (lane->stream)
        backend->stream_free(lane->stream);
    free(lane);
}

enum status lane_grow(struct lane *lane, size_t size, struct error *err)
{
    if (size <= lane->size)
        return STATUS_OK;
    TRY(lane->device->backend->arena_grow(lane->arena, size, err));
    lane->size = size;
    memory_note(lane->device, MEMORY_DEVICE, lane->arena, "arena", size);
    return STATUS_OK;
}
