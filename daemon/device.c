/* SPDX-License-Identifier: Apache-2.0 */
/* The configured device, see device.h. */
#include "daemon/device.h"

#include <stdlib.h>

#include "engine/backend.h"

/* The configured number of threads, or that of the first configured plan with one; 0: all cores. */
static uint32_t thread_count(const struct config *config)
{
    uint32_t threads = config->threads;
    for (uint32_t i = 0; i < config->models_count && threads == 0; i++)
        engine_plan_threads(config->models[i].path, &threads, NULL); /* loading it reports errors */
    return threads;
}

enum status device_configured_open(const struct config *config, const struct log_sink *log,
                                   struct device **out, struct error *err)
{
    for (uint32_t i = 0; i < config->plugins_count; i++)
        TRY(engine_plugin_load(config->plugins[i], err));
    const struct device_options options = {
        .threads = thread_count(config),
        .reference_only = getenv("INFERD_REFERENCE_KERNELS") != NULL,
        .script = getenv("INFERD_FAULT_SCRIPT"), /* only the device "fault" reads it */
        .log = log,
        .tail_bytes = config->limits.tail_bytes,
    };
    return engine_device_open(config->device, &options, out, err);
}
