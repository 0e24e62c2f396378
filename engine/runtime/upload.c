/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/runtime/upload.h"

#include "base/cleanup.h"

struct way {
    const struct backend *backend;
    struct backend_stream *stream;
    struct backend_event *event;
};

static void way_deinit(struct way *way)
{
    if (way->event)
        way->backend->event_free(way->event);
    if (way->stream)
        way->backend->stream_free(way->stream);
}

/* Each copy is a call of its own: the source is not pinned, and a device may not take such copies
 * together. */
enum status upload(struct device *device, const struct backend_copy *copies, uint32_t n,
                   struct error *err)
{
    const struct backend *backend = device->backend;
    CLEANUP(way_deinit) struct way way = {.backend = backend};
    TRY(backend->stream_new(device, &way.stream, err));
    TRY(backend->event_new(device, false, &way.event, err));
    for (uint32_t i = 0; i < n; i++)
        TRY(backend->copy(way.stream, COPY_TO_DEVICE, &copies[i], 1, err));
    TRY(backend->event_record(way.event, way.stream, err));
    return backend->event_wait(way.event, err);
}
