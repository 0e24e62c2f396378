/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share: the insides of engine and lane. */
#ifndef INFERD_ENGINE_RUNTIME_INTERNAL_H
#define INFERD_ENGINE_RUNTIME_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/plan/plan.h"

/* Where a profile's parts lie in a lane's arena, and at the same offsets in a context's arena for
 * CPU segments: first what the builder placed, then the inputs as
 * they are gathered, then the outputs where they cannot be written to the caller's buffer. */
struct profile_layout {
    size_t *in_offset; /* n_inputs */
    size_t out_base;   /* output i is at out_base + info.profiles[].out_offset[i] */
    size_t total;
};

/* Immutable once loaded, but for `refs`, `settled` and `compiled`. */
struct engine {
    atomic_uint refs;    /* relaxed to take one; release to drop, acquire before the end */
    atomic_bool settled; /* relaxed: whoever settles has had all its contexts made */
    struct device *device;
    struct device *host; /* for CPU segments of a device with memory of its own; NULL: none */
    struct plan *plan;
    const void *weights; /* device address: the plan's bytes, or `uploaded` */
    void *uploaded;      /* MEMORY_DEVICE, or NULL */
    void *zeros;         /* device address: an instance of the largest input, to pad batches with */
    enum memory_kind zeros_kind;
    pthread_mutex_t lock; /* guards `compiled`, the making of `zeros`, and is held while one thread
                             compiles for all */
    bool *compiled;       /* one a profile */
    struct engine_info info;
    struct engine_profile *profiles;
    struct profile_layout *layouts;
};

/* In host memory zeros are made with the first context: until then it may turn out that the plan is
 * too large to be served, and nothing has been taken for it. */
enum status engine_padding(struct engine *engine, struct error *err);

/* One thread's. */
struct lane {
    struct device *device;
    struct backend_stream *stream;
    struct backend_arena *arena;
    size_t size; /* usable so far */
};

/* The segment is for the CPU beside the engine's device. */
bool engine_segment_on_host(const struct engine *engine, const struct ir_segment *segment);

/* Has the backend compile, or load, what the nodes of the profile need, with several threads.
 * Failures are not told: op_prepare meets them again. */
void engine_compile(struct engine *engine, uint32_t profile);

/* Makes at least `size` bytes of the arena usable; its base does not move. */
enum status lane_grow(struct lane *lane, size_t size, struct error *err);

#endif
