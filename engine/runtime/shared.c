/* SPDX-License-Identifier: Apache-2.0 */
/* A device's memory that another process allocated; see engine.h. */
#include "engine/backend.h"
#include "engine/engine.h"

_Static_assert((int)ENGINE_HANDLE_BYTES == (int)BACKEND_HANDLE_BYTES, "the same handles");

bool engine_shares(const struct device *device)
{
    return device->backend->shared_open != NULL;
}

enum status engine_shared_open(struct device *device, const void *handle, size_t least,
                               struct backend_shared **out, struct error *err)
{
    if (!engine_shares(device))
        return error_set(err, STATUS_UNIMPLEMENTED,
                         "the device '%s' has no memory that processes share",
                         device->backend->name);
    return device->backend->shared_open(device, handle, least, out, err);
}

void engine_shared_close(struct device *device, struct backend_shared *shared)
{
    if (shared)
        device->backend->shared_close(shared);
}

enum status engine_shared_read(struct device *device, struct backend_shared *shared, size_t at,
                               void *to, size_t size, struct error *err)
{
    return size ? device->backend->shared_read(shared, at, to, size, err) : STATUS_OK;
}

enum status engine_shared_write(struct device *device, struct backend_shared *shared, size_t at,
                                const void *from, size_t size, struct error *err)
{
    return size ? device->backend->shared_write(shared, at, from, size, err) : STATUS_OK;
}
