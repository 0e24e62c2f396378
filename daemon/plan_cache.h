/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans built from ONNX files, kept in a folder under a name made of what they depend on: the
 * model's bytes, the device's fingerprint, the profiles and input types asked for, and this version
 * of inferd.
 *
 * One process builds a plan, others wait for it and then find it (R35). If the folder cannot be
 * used, or its disk is full, the plan is built in a temporary place and served from there. What a
 * killed build left behind is swept at the start (R36).
 */
#ifndef INFERD_DAEMON_PLAN_CACHE_H
#define INFERD_DAEMON_PLAN_CACHE_H

#include <stdatomic.h>

#include "base/log.h"
#include "daemon/repository.h"
#include "engine/engine.h"

struct plan_cache;

struct plan_cache_config {
    const char *folder; /* NULL: $CACHE_DIRECTORY, else ~/.cache/inferd */
    struct device *device;
    const char *device_spec;
    bool reference;              /* the device has plain kernels only */
    uint64_t build_memory_bytes; /* 0: three quarters of the machine's */
    const struct log_sink *log;
    struct counters *counters;
    const _Atomic bool *stop; /* ends a build early */
};

/* A folder that cannot be made or written is no failure: nothing is kept then. */
enum status plan_cache_new(const struct plan_cache_config *config, struct plan_cache **out,
                           struct error *err);
void plan_cache_free(struct plan_cache *cache); /* NULL is fine */

/* The engine of an ONNX file: from a kept plan, or from one that is built now. */
enum status plan_cache_load(struct plan_cache *cache, const struct wanted *wanted,
                            uint32_t timeout_s, struct engine **out, struct error *err);

#endif
