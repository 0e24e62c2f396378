/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the library share. Each of its objects wraps one of the engine's and holds a
 * reference to the object it needs, so that users may free them in any order.
 */
#ifndef INFERD_ENGINE_LIBRARY_INTERNAL_H
#define INFERD_ENGINE_LIBRARY_INTERNAL_H

#include <stdatomic.h>

#include "base/log.h"
#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/library/inferd_engine.h"

struct inferd_engine_device {
    atomic_uint refs; /* relaxed to take one; acq_rel to drop one; so in plans */
    struct device *device;
    struct log_sink log;
    struct memory_allocator memory; /* what the runtime asks; it asks `allocator` */
    struct inferd_engine_allocator allocator;
    inferd_engine_log write;
    void *write_user;
};

struct inferd_engine_plan {
    atomic_uint refs;
    struct inferd_engine_device *device;
    struct engine *engine;
};

void library_device_unref(struct inferd_engine_device *device);
struct inferd_engine_plan *library_plan_ref(struct inferd_engine_plan *plan);

/* Gives the caller the reason of a failure; returns `status`. */
enum inferd_engine_status library_tell(enum status status, const struct error *why,
                                       struct inferd_engine_error *err);

/* Structs that begin with their size, as their owner compiled them. library_read makes `own`, which
 * has the size `own_size`, of theirs: what theirs lacks is zero. INVALID_ARGUMENT: `theirs` has no
 * size, or has members set that are not known here. library_write fills theirs as far as both
 * know it. */
enum status library_read(void *own, size_t own_size, const void *theirs, struct error *err);
enum status library_write(void *theirs, const void *own, size_t own_size, struct error *err);

void library_shape(const struct shape *shape, uint32_t *rank, int64_t *dim);

#endif
