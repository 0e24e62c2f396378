/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the daemon sees of the engine: open a device, load a plan, make a context, run a batch.
 *
 *   struct device *device;
 *   struct engine *engine;
 *   struct lane *lane;
 *   struct context *ctx;
 *
 *   engine_device_open("cpu", &options, &device, &err);
 *   engine_load(device, "model.plan", &engine, &err);
 *   lane_new(device, &lane, &err);                              // on the worker's thread
 *   context_new(engine, lane, &ctx, &err);
 *   context_enqueue(ctx, batch, inputs, outputs, &err);
 *   context_wait(ctx, &times, &err);
 *
 * Threads: devices and engines may be used by any thread at once; an engine is immutable and
 * reference-counted, its weights are shared by all contexts. A lane (a stream and an arena) and its
 * contexts belong to one thread; contexts of one lane share its arena, so one runs at a time.
 */
#ifndef INFERD_ENGINE_ENGINE_H
#define INFERD_ENGINE_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/error.h"
#include "base/shape.h"

struct device;
struct device_options; /* engine/backend.h */
struct file_guard;     /* base/file_read.h */
struct engine;
struct lane;
struct context;

/* One input or output of a model. */
struct engine_binding {
    const char *name;
    enum dtype dtype;
    struct shape shape;    /* of a batched model dim[0] is -1: it counts instances */
    size_t instance_bytes; /* bytes of one instance; of the whole tensor if not batched */
};

/* One tuned profile. */
struct engine_profile {
    uint32_t batch;           /* instances it holds; 1 for a model that is not batched */
    const struct shape *in;   /* its tuple of input shapes, n_inputs of them */
    const struct shape *out;  /* n_outputs */
    const size_t *out_offset; /* where output i starts in an output buffer; multiples of 64 */
    size_t out_bytes;         /* size of that buffer */
    size_t arena_bytes;       /* activations and workspace, after liveness */
    size_t tensor_bytes;      /* sum of all intermediate tensors: what it would be without */
    uint64_t time_ns;         /* of the whole profile when it was built; 0: not timed */
};

struct engine_info {
    const char *name;   /* the model graph's */
    const char *device; /* fingerprint the plan was built for */
    char digest[33];    /* of the source model, hex */
    bool batched;
    uint32_t max_batch;
    uint32_t n_inputs, n_outputs, n_profiles;
    const struct engine_binding *inputs, *outputs;
    const struct engine_profile *profiles; /* by rising batch */
    size_t weight_bytes;
    size_t out_bytes_max; /* the largest out_bytes: a buffer of this size serves every profile */
};

/* spec: "cpu", "cuda", "cuda:N", "fault". Options may be NULL. */
enum status engine_device_open(const char *spec, const struct device_options *options,
                               struct device **out, struct error *err);
void engine_device_close(struct device *device);
/* It has memory of its own: inputs beyond ENGINE_PACK_MAX should be pinned, and their bytes are
 * free after context_wait_inputs, before the batch has run. */
bool engine_device_apart(const struct device *device);
/* Buffers for inputs and outputs: pinned where that matters, aligned to 64. Slow, and to free one
 * may wait for all that the device is doing. */
enum status engine_buffer_alloc(struct device *device, size_t size, const char *tag, void **out,
                                struct error *err);
void engine_buffer_free(struct device *device, void *buffer);

/* The thread number in a plan's header: what device_options.threads must be for the plan to fit a
 * device opened for it; 0 for a device that has none. A wish, not checked further: engine_load
 * checks. DATA_LOSS: not a plan. */
enum status engine_plan_threads(const char *path, uint32_t *threads, struct error *err);

/* Reads and checks a plan as engine_load_fd does, without a device. Of that only the kind is
 * compared: whether the plan is one for `spec` at all. */
enum status engine_plan_check_fd(int fd, const char *name, const char *spec, struct error *err);

/* Reads and checks a plan, and uploads its weights. What becomes of the file later does not matter:
 * the bytes are in memory of our own. Errors say why a plan was refused: DATA_LOSS damaged,
 * FAILED_PRECONDITION made for another device, library or format version, UNAVAILABLE changed while
 * it was read. */
enum status engine_load(struct device *device, const char *path, struct engine **out,
                        struct error *err);
/* The same of an open file, which stays the caller's; `name` stands for it in errors. `guard` may
 * be NULL. */
enum status engine_load_fd(struct device *device, int fd, const char *name,
                           const struct file_guard *guard, struct engine **out, struct error *err);
/* No more contexts will be made: what only their making needs is given back, which is the host's
 * copy of weights that a device has uploaded. context_new fails from then on. */
void engine_settle(struct engine *engine);
struct engine *engine_ref(struct engine *engine);
void engine_unref(struct engine *engine);
const struct engine_info *engine_describe(const struct engine *engine);

enum status lane_new(struct device *device, struct lane **out, struct error *err);
void lane_free(struct lane *lane); /* after its contexts */

/* Prepares every profile. The lane's arena grows in place if this engine needs more. Takes a
 * reference. */
enum status context_new(struct engine *engine, struct lane *lane, struct context **out,
                        struct error *err);
/* The same with a choice. A device that captures runs each profile on zeros while it is made ready,
 * and nothing is compiled, loaded or allocated for it later. */
struct context_options {
    uint32_t batch;  /* only the profile that batches of this size run on; 0: all */
    bool no_capture; /* launch layer by layer what would be launched as one captured graph */
};
enum status context_new_with(struct engine *engine, struct lane *lane,
                             const struct context_options *options, struct context **out,
                             struct error *err);
void context_free(struct context *ctx);

/* Bytes of some instances of one input: those of one request. */
struct engine_span {
    const void *data; /* any alignment */
    size_t size;      /* a multiple of the input's instance_bytes */
};

/* Up to this size the engine packs spans into pinned memory of its own, so that theirs may be any;
 * larger ones should be pinned (engine_buffer_alloc) if the device has memory of its own. Copying
 * 16 KiB within the host takes about as long as putting one more copy onto a stream. */
enum { ENGINE_PACK_MAX = 16 * 1024 };

/* The spans of one input, in the order of the instances. A lone span that is aligned to 64 and
 * fills a profile is read in place where the device can; the rest is gathered. */
struct engine_input {
    const struct engine_span *spans;
    uint32_t n_spans;
};

struct engine_times {
    uint64_t input_ns, compute_ns, output_ns;
};

/*
 * Starts a batch of `batch` instances (1..max_batch) on the smallest profile that holds it.
 * `inputs` has n_inputs entries; the array may go away at return, the bytes must stay until
 * context_wait. `output` comes from engine_buffer_alloc with at least out_bytes of that profile;
 * instance k of output i will lie at output + profile->out_offset[i] + k *
 * outputs[i].instance_bytes. One batch at a time. If some layers run on the CPU beside a device,
 * the call returns once the last of those has run.
 *
 * For measuring without copies: `inputs` NULL runs on what the last batch of this profile left
 * there, `output` NULL leaves the outputs where they are made.
 */
enum status context_enqueue(struct context *ctx, uint32_t batch, const struct engine_input *inputs,
                            void *output, struct error *err);

/* Blocks until the bytes of the inputs are no longer read: of a device that reads them in place, as
 * long as the batch runs. Between context_enqueue and context_wait, if at all. */
enum status context_wait_inputs(struct context *ctx, struct error *err);

/* Blocks until the batch is done. `times` may be NULL. After an error of scope ERROR_REQUEST or
 * ERROR_MODEL the context may be used again. */
enum status context_wait(struct context *ctx, struct engine_times *times, struct error *err);

/* The profile that a batch of this size runs on; NULL if it is 0 or too large. */
const struct engine_profile *engine_profile_for(const struct engine *engine, uint32_t batch);

#endif
