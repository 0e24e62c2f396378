/* SPDX-License-Identifier: Apache-2.0 */
/* The table of backends, and devices by name. */
#include <stdlib.h>
#include <string.h>

#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/plugin/plugin.h"
#include "engine/runtime/memory.h"
#include "engine/runtime/module.h"

static const struct {
    const char *name;
    const struct backend *backend; /* NULL: it comes from a module */
    const char *title;             /* what texts call the module */
} table[] = {
    {"cpu", &backend_cpu, NULL},
    {"fault", &backend_fault, NULL},
    {"cuda", NULL, "CUDA"},
};

/* "name" or "name:N". */
static bool parse_spec(const char *spec, size_t *name_len, uint32_t *index)
{
    const char *colon = strchr(spec, ':');
    *name_len = colon ? (size_t)(colon - spec) : strlen(spec);
    *index = 0;
    if (!colon)
        return true;
    if (colon[1] < '0' || colon[1] > '9' || strlen(colon + 1) > 4)
        return false;
    char *end;
    *index = (uint32_t)strtoul(colon + 1, &end, 10);
    return !*end;
}

enum status backend_find(const char *spec, const struct backend **out, uint32_t *index,
                         struct error *err)
{
    size_t len;
    uint32_t n;
    if (!parse_spec(spec, &len, &n))
        return error_set(err, STATUS_INVALID_ARGUMENT, "device '%s': the form is NAME or NAME:N",
                         spec);
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        if (strlen(table[i].name) != len || memcmp(table[i].name, spec, len) != 0)
            continue;
        const struct backend *found = table[i].backend;
        enum status status =
            found ? STATUS_OK : module_open(table[i].name, table[i].title, &found, err);
        if (status) {
            error_prefix(err, "device '%s'", spec);
            return status;
        }
        *out = found;
        *index = n;
        return STATUS_OK;
    }
    return error_set(err, STATUS_INVALID_ARGUMENT, "device '%s': known are cpu, cuda and cuda:N",
                     spec);
}

enum status engine_plugin_load(const char *path, struct error *err)
{
    return plugin_load(path, err);
}

enum status engine_device_open(const char *spec, const struct device_options *options,
                               struct device **out, struct error *err)
{
    const struct backend *backend;
    struct device_options own = options ? *options : (struct device_options){0};
    TRY(backend_find(spec, &backend, &own.index, err));
    TRY(backend->device_open(&own, out, err));
    (*out)->reference_only = own.reference_only;
    (*out)->allocator = own.allocator;
    (*out)->tail_bytes = own.tail_bytes;
    return STATUS_OK;
}

/* Few threads are enough: the CPU runs the small ops that no device kernel does, and several
 * workers do so at once. */
enum { HOST_THREADS = 4 };

enum status backend_host_open(const struct device *device, struct device **out, struct error *err)
{
    const struct device_options options = {.threads = HOST_THREADS,
                                           .reference_only = device->reference_only};
    return engine_device_open("cpu", &options, out, err);
}

void engine_device_close(struct device *device)
{
    if (!device)
        return;
    memory_track_stop(device);
    device->backend->device_close(device);
}

bool engine_device_apart(const struct device *device)
{
    return !device->backend->host_memory;
}

enum status engine_buffer_alloc(struct device *device, size_t size, const char *tag, void **out,
                                struct error *err)
{
    return memory_alloc(device, MEMORY_PINNED, size, tag, out, err);
}

void engine_buffer_free(struct device *device, void *buffer)
{
    memory_free(device, MEMORY_PINNED, buffer);
}
