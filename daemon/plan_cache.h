/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plans built from ONNX files, kept in a folder (plan_folder.h) under a name made of what they
 * depend on: the model's bytes, the device's fingerprint, the profiles and input types asked for,
 * and this version of inferd. The name is a SHA-256: nobody can make two models with one name.
 *
 * What is kept under a digest was built from bytes of that digest, whatever becomes of the model's
 * file meanwhile: the build child gets a sealed copy of the file in memory, whose digest is the one
 * in the name. External data are not copied. If a file beside the model changes while the plan is
 * built, the plan is thrown away.
 *
 * One process builds a plan, others wait for it and then find it (R35 of docs/operations.md). If
 * the folder cannot be used, or its disk is full, the plan is built in memory and served from
 * there. What a killed build left behind is swept at the start (R36).
 */
#ifndef INFERD_DAEMON_PLAN_CACHE_H
#define INFERD_DAEMON_PLAN_CACHE_H

#include <stdatomic.h>

#include "base/log.h"
#include "daemon/repository.h"
#include "daemon/trust.h"
#include "engine/engine.h"

struct plan_cache;

struct plan_cache_config {
    const char *folder; /* NULL: $CACHE_DIRECTORY, else ~/.cache/inferd */
    const char *below;  /* a folder in that one, which is used instead; NULL: none */
    bool insecure;      /* as in struct plan_folder_config */
    uint64_t limit;     /* bytes of plans in it; 0: any number */
    uint32_t most;      /* plans in it; 0: any number */
    bool keep_none;     /* no folder is used, and the log hears nothing of it */
    bool quiet;         /* the log hears of builds only if it wants to know much */
    struct device *device;
    const char *device_spec;
    bool reference;       /* the device has plain kernels only */
    char *const *plugins; /* files, for builds; may be none */
    uint32_t n_plugins;
    uint64_t build_memory_bytes; /* 0: three quarters of the machine's */
    const struct log_sink *log;
    struct counters *counters;
    const struct trust *trust; /* who may sign models; NULL: they need no signature */
    const _Atomic bool *stop;  /* ends a build early */
};

/* A folder that cannot be made, written or trusted is no failure: nothing is kept then. */
enum status plan_cache_new(const struct plan_cache_config *config, struct plan_cache **out,
                           struct error *err);

/* Whether it has a folder. */
bool plan_cache_keeps(const struct plan_cache *cache);
void plan_cache_free(struct plan_cache *cache); /* NULL is fine */

/* The engine of an ONNX file: from a kept plan, or from one that is built now. Cause FILE_CHANGED:
 * the file changed while it was read or built, at two attempts. `like`: see engine_load_fd. */
enum status plan_cache_load(struct plan_cache *cache, const struct wanted *wanted,
                            uint32_t timeout_s, const struct engine *like, struct engine **out,
                            struct error *err);

/* How many plans it has had built. */
uint64_t plan_cache_builds(const struct plan_cache *cache);

/* The engine is served no longer, or never was: its plan may be removed to make room. Any engine
 * will do, and only its address is looked at. */
void plan_cache_release(struct plan_cache *cache, const struct engine *engine);

#endif
