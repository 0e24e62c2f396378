/* SPDX-License-Identifier: Apache-2.0 */
/* Devices, with the callbacks that everything on them uses; buffers. */
#include <stdlib.h>

#include "engine/library/internal.h"

static void write_line(void *user, enum log_level level, const char *line)
{
    const struct inferd_engine_device *device = user;
    device->write(device->write_user, (enum inferd_engine_log_level)level, line);
}

static void *take(void *user, enum memory_kind kind, size_t size, size_t align, const char *tag)
{
    const struct inferd_engine_allocator *own = user;
    return own->take(own->user, (enum inferd_engine_memory)kind, size, align, tag);
}

static void give(void *user, enum memory_kind kind, void *memory)
{
    const struct inferd_engine_allocator *own = user;
    own->give(own->user, (enum inferd_engine_memory)kind, memory);
}

_Static_assert((int)INFERD_ENGINE_MEMORY_PINNED == MEMORY_PINNED, "kinds are numbered alike");

static enum status set_callbacks(struct inferd_engine_device *d,
                                 const struct inferd_engine_device_options *options,
                                 struct error *err)
{
    if (options->log) {
        d->write = options->log;
        d->write_user = options->log_user;
        d->log = (struct log_sink){
            .level = (enum log_level)options->log_level, .write = write_line, .user = d};
    }
    TRY(library_read(&d->allocator, sizeof(d->allocator), options->allocator, err));
    if (options->allocator && (!d->allocator.take || !d->allocator.give))
        return error_set(err, STATUS_INVALID_ARGUMENT, "an allocator needs both `take` and `give`");
    d->memory = (struct memory_allocator){take, give, &d->allocator};
    return STATUS_OK;
}

static enum status open_device(const char *spec, const struct inferd_engine_device_options *theirs,
                               struct inferd_engine_device *d, struct error *err)
{
    struct inferd_engine_device_options options;
    TRY(library_read(&options, sizeof(options), theirs, err));
    TRY(set_callbacks(d, &options, err));
    struct device_options inner = {.threads = options.threads, .log = &d->log};
    for (uint32_t i = 0; i < options.n_plugins; i++)
        TRY(engine_plugin_load(options.plugins[i], err));
    if (!inner.threads && options.plan)
        TRY(engine_plan_threads(options.plan, &inner.threads, err));
    inner.allocator = options.allocator ? &d->memory : NULL;
    return engine_device_open(spec, &inner, &d->device, err);
}

enum inferd_engine_status inferd_engine_device_open(
    const char *spec, const struct inferd_engine_device_options *options,
    struct inferd_engine_device **out, struct inferd_engine_error *err)
{
    struct error why;
    struct inferd_engine_device *d = calloc(1, sizeof(*d));
    if (!d)
        return library_tell(error_no_memory(&why, "a device"), &why, err);
    atomic_init(&d->refs, 1);
    enum status status = open_device(spec, options, d, &why);
    if (status) {
        free(d);
        return library_tell(status, &why, err);
    }
    log_write(&d->log, LOG_INFO, "device %s: opened by version %s", spec, INFERD_VERSION);
    *out = d;
    return INFERD_ENGINE_OK;
}

void library_device_unref(struct inferd_engine_device *d)
{
    if (!d || atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) != 1)
        return;
    engine_device_close(d->device);
    free(d);
}

void inferd_engine_device_close(struct inferd_engine_device *device)
{
    library_device_unref(device);
}

int inferd_engine_device_apart(const struct inferd_engine_device *device)
{
    return engine_device_apart(device->device);
}

enum inferd_engine_status inferd_engine_buffer_take(struct inferd_engine_device *device,
                                                    size_t bytes, void **out,
                                                    struct inferd_engine_error *err)
{
    struct error why;
    return library_tell(engine_buffer_alloc(device->device, bytes ? bytes : 1, "buffer", out, &why),
                        &why, err);
}

void inferd_engine_buffer_give(struct inferd_engine_device *device, void *buffer)
{
    engine_buffer_free(device->device, buffer);
}
