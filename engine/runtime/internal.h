/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share: the insides of engine and lane. */
#ifndef INFERD_ENGINE_RUNTIME_INTERNAL_H
#define INFERD_ENGINE_RUNTIME_INTERNAL_H

#include <stdatomic.h>

#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/plan/plan.h"

/* Where a profile's parts lie in a lane's arena: first what the builder placed, then the inputs as
 * they are gathered, then the outputs where they cannot be written to the caller's buffer. */
struct profile_layout {
    size_t *in_offset; /* n_inputs */
    size_t out_base;   /* output i is at out_base + info.profiles[].out_offset[i] */
    size_t total;
};

/* Immutable once loaded, but for `refs`. */
struct engine {
    atomic_uint refs; /* relaxed to take one; release to drop, acquire before the end */
    struct device *device;
    struct plan *plan;
    const void *weights; /* device address: the plan's mapping, or `uploaded` */
    void *uploaded;      /* MEMORY_DEVICE, or NULL */
    void *zeros;         /* MEMORY_PINNED: an instance of the largest input, to pad batches with */
    struct engine_info info;
    struct engine_profile *profiles;
    struct profile_layout *layouts;
};

/* One thread's. */
struct lane {
    struct device *device;
    struct backend_stream *stream;
    struct backend_arena *arena;
    size_t size; /* usable so far */
};

/* Makes at least `size` bytes of the arena usable; its base does not move. */
enum status lane_grow(struct lane *lane, size_t size, struct error *err);

#endif
