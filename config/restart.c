/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names the settings that a reload cannot change, because devices, threads, sockets and folders
 * were made from them at the start. An operator who changes one is told, instead of waiting for an
 * effect that will not come.
 */
#include <stdio.h>
#include <string.h>

#include "config/config.h"

static bool same_text(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool same_addresses(const struct config_addresses *a, const struct config_addresses *b)
{
    if (a->count != b->count)
        return false;
    for (uint32_t i = 0; i < a->count; i++)
        if (!same_text(a->items[i], b->items[i]))
            return false;
    return true;
}

static bool same_doors(const struct config_listen *a, const struct config_listen *b)
{
    bool same = true;
    for (uint32_t door = 0; door < CONFIG_DOOR_COUNT_; door++)
        same &= same_addresses(&a->doors[door], &b->doors[door]);
    return same;
}

void config_restart_names(const struct config *running, const struct config *wanted, char *out,
                          size_t size)
{
    const struct {
        const char *name;
        bool same;
    } settings[] = {
        {"listen", same_doors(&running->listen, &wanted->listen)},
        {"device", same_text(running->device, wanted->device)},
        {"workers", running->workers == wanted->workers},
        {"threads", running->threads == wanted->threads},
        {"io_threads", running->io_threads == wanted->io_threads},
        {"build_memory_bytes", running->build_memory_bytes == wanted->build_memory_bytes},
        {"cache", same_text(running->cache, wanted->cache)},
        {"cache_insecure", running->cache_insecure == wanted->cache_insecure},
        {"cache_bytes", running->cache_bytes == wanted->cache_bytes},
        {"shape_cache_bytes", running->shape_cache_bytes == wanted->shape_cache_bytes},
        {"plan_keys", same_text(running->plan_keys, wanted->plan_keys)},
        {"shared_memory", same_text(running->shared_memory, wanted->shared_memory)},
        {"cuda_shared_memory", running->cuda_shared_memory == wanted->cuda_shared_memory},
        {"trace_file", same_text(running->trace_file, wanted->trace_file)},
        {"trace_collector", same_text(running->trace_collector, wanted->trace_collector)},
        {"limits.regions", running->limits.regions == wanted->limits.regions},
        {"limits.region_bytes", running->limits.region_bytes == wanted->limits.region_bytes},
        /* fewer is fine: there are descriptors for as many as at the start */
        {"limits.connections", wanted->limits.connections <= running->limits.connections},
    };
    size_t used = 0;
    *out = '\0';
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        if (!settings[i].same && used < size)
            used += (size_t)snprintf(out + used, size - used, "%s%s", used ? ", " : "",
                                     settings[i].name);
}
