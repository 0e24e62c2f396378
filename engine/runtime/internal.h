/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of this folder share: the insides of engine and lane. */
#ifndef INFERD_ENGINE_RUNTIME_INTERNAL_H
#define INFERD_ENGINE_RUNTIME_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine/backend.h"
#include "engine/engine.h"
#include "engine/plan/plan.h"
#include "engine/runtime/weights.h"

/* Where a profile's tensors lie in a lane's arena, and at the same offsets in a context's arena for
 * CPU segments: first the tensors that the builder placed, then the gathered inputs, then the
 * outputs, for batches whose outputs cannot be written to the caller's buffer. */
struct onnx_model;

struct profile_layout {
    size_t *in_offset; /* n_inputs */
    size_t out_base;   /* output i is at out_base + info.profiles[].out_offset[i] */
    size_t total;
};

/* What runs iterations of the loops of a profile's tail. */
struct engine_bodies {
    uint32_t n;
    struct engine **list; /* on the engine's tail_device */
};

/* Immutable once loaded, but for `refs`, `settled` and `compiled`. */
struct engine {
    atomic_uint refs;    /* relaxed to take one; acq_rel to drop one */
    atomic_bool settled; /* relaxed: the caller that settles makes no contexts any more */
    struct device *device;
    struct device *host; /* for CPU segments of a device with memory of its own; NULL: none */
    struct plan *plan;
    const void *weights;   /* device address: the plan's bytes, or `uploaded`; not with `parts` */
    void *uploaded;        /* MEMORY_DEVICE, or NULL */
    struct weights *parts; /* which other engines have, too; NULL: it is the only one */
    void *zeros; /* device address: as large as the largest input's instance, for padding */
    enum memory_kind zeros_kind;
    /* Guards `compiled` and the making of `zeros`. It is held while a profile is compiled, so that
     * one context compiles for all. */
    pthread_mutex_t lock;
    bool *compiled;               /* by profile */
    struct device *tail_device;   /* the CPU that runs tails: `device`, if it is one */
    struct onnx_model **tails;    /* by profile: engine/import/onnx.h; NULL: there are none */
    struct engine_bodies *bodies; /* by profile; NULL: there are none */
    struct engine_info info; /* of the layers: if there are tails, its outputs are what they read */
    struct engine_info shown; /* of the model, as others see it */
    struct engine_profile *profiles;
    struct profile_layout *layouts;
};

/* The number of the profile that engine_profile_for gives; n_profiles: none. */
uint32_t engine_profile_index(const struct engine *engine, uint32_t point, uint32_t batch);

/* Shows a ragged plan as clients see it. False: no memory, or its tensors are too large. */
bool engine_show_ragged(struct engine *engine);

/* The lengths of a request's sequences, into `lengths` unless that is NULL, and their sum. */
enum status engine_ragged_lengths(const struct engine_info *info, const int64_t *values,
                                  const struct engine_span *spans, uint32_t *lengths,
                                  uint32_t *tokens, struct error *err);
/* How many instances a request of so many tokens counts: see engine_ragged_instances. */
enum status engine_ragged_count(const struct engine_info *info, const int64_t *values,
                                uint32_t tokens, uint32_t *instances, struct error *err);

/* Makes the zeros of a device that reads host memory, once. The first context asks for them, not
 * the load, because a plan that has been loaded may still turn out to be too large to be served. */
enum status engine_padding(struct engine *engine, struct error *err);

/* A stream and an arena, shared by the contexts of one thread. */
struct lane {
    struct device *device;
    struct backend_stream *stream;
    struct backend_arena *arena; /* NULL: `taken` */
    void *taken;                 /* the arena of a device that has an allocator */
    size_t size;                 /* bytes of the arena that are usable so far */
};

/* Where batches leave outputs on the device. */
struct shelf {
    struct device *device;
    struct backend_arena *arena;
};

/* Whether the segment is for the CPU beside the engine's device. */
bool engine_segment_on_host(const struct engine *engine, const struct ir_segment *segment);

/* Has the backend compile, or load, the tactics of the profile's nodes, on several threads.
 * Failures are not told: op_prepare meets them again. */
void engine_compile(struct engine *engine, uint32_t profile);

/* Makes at least `size` bytes of the arena usable; its base does not move. */
enum status lane_grow(struct lane *lane, size_t size, struct error *err);
void *lane_base(const struct lane *lane); /* once it has grown */

#endif
