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
 * Threads: devices and engines may be used by any number of threads at once; an engine is immutable
 * and reference-counted, and all contexts share its weights. A lane is a stream and an arena with
 * the contexts that share them. A lane and its contexts belong to one thread, and only one of the
 * contexts runs at a time.
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
    struct shape shape;    /* -1: it counts instances, or requests choose it (engine_axes) */
    size_t instance_bytes; /* bytes of one instance at most; of the whole tensor if not batched; 0
                              of an output whose size only a request tells */
};

/* A dimension whose size each request chooses: the model was built to take these. */
struct engine_free {
    const char *name;
    int64_t low, high;
    bool pads; /* a point with a larger value may run the request, and nobody sees it */
};

/* A size of 1 is not padded: broadcasts make other layers of it in many models. */
enum { ENGINE_PADS_FROM = 2 };

/* Whether an input's zeros hide what requests are padded with. A request whose numbers they do not
 * hide runs unpadded only. */
enum engine_mask {
    ENGINE_MASK_NONE,  /* the input is no mask */
    ENGINE_MASK_ROWS,  /* they do, unless a row of the request has zeros alone */
    ENGINE_MASK_FIRST, /* they do, unless a row begins with a zero: causal models hide later keys */
    ENGINE_MASK_WHOLE, /* they do, unless the request has a zero, which hides a row as well */
    ENGINE_MASKS
};

/* What the dimensions of an input or an output are. */
struct engine_axes {
    bool shared;   /* of a batched model: all instances of a batch have this input together */
    uint8_t batch; /* the axis that counts instances, of a batched model, unless it is shared */
    uint8_t free[SHAPE_MAX_RANK]; /* which free dimension it is, from 1 on; 0: none */
    enum engine_mask mask;
};

/*
 * A ragged model: its requests are sequences of any lengths, and an instance is a token. Inputs are
 * [sequences, tokens, ..]; of each sequence the tokens that the mask shows are computed, which are
 * the first ones, and nothing is done for the others. Outputs are [sequences, tokens, ..], with
 * zeros where there is no token, or [sequences, ..].
 *
 * The first free dimension is the number of sequences, the second one that of tokens in each. A
 * request counts as many instances as engine_ragged_instances says: its tokens, or a quarter of
 * what they are padded to, if that is more, since outputs are as large as inputs.
 */
struct engine_ragged {
    int64_t max_length; /* of a sequence */
    uint32_t mask;      /* the number of that input; n_inputs: there is none */
    uint64_t sequences; /* by bits: the outputs that have a row for each sequence */
};
enum { ENGINE_RAGGED_PADDING = 4 };

/* One value of each free dimension, and what the engine has for them. A model without free
 * dimensions has one point. */
enum { ENGINE_MAX_FREE = 8 };
struct engine_point {
    int64_t values[ENGINE_MAX_FREE];
    /* As in engine_info, but only the instances are -1, and instance_bytes are the point's own. */
    const struct engine_binding *inputs, *outputs;
    uint32_t first, n; /* profiles, by rising batch */
};

/* What was tuned for one batch size at one point. If a request tells the sizes of the outputs
 * (engine_info.late), what is said of outputs here concerns what the layers hand on. */
struct engine_profile {
    uint32_t batch;           /* the batch size in instances; 1 for a model that is not batched */
    uint32_t point;           /* its number */
    const struct shape *in;   /* shapes of the n_inputs inputs */
    const struct shape *out;  /* shapes of the n_outputs outputs */
    const size_t *out_offset; /* where output i starts in an output buffer; multiples of 64 */
    size_t out_bytes;         /* size of an output buffer */
    size_t arena_bytes;       /* intermediate tensors and workspaces, which share bytes in turn */
    size_t tensor_bytes;      /* sum of all intermediate tensors */
    uint64_t time_ns;         /* of a batch when the plan was built; 0: not timed */
};

struct engine_info {
    const char *name;   /* the model graph's */
    const char *device; /* fingerprint the plan was built for */
    char digest[33];    /* of the source model, hex */
    bool batched;
    bool late;          /* only a request tells the sizes of its outputs; see context_results */
    uint32_t max_batch; /* of every point */
    uint32_t n_inputs, n_outputs, n_profiles, n_free;
    uint32_t n_points; /* by rising size. 0: one, of which nothing is said but what is here */
    const struct engine_binding *inputs, *outputs;
    const struct engine_axes *input_axes, *output_axes; /* NULL: all zeros */
    const struct engine_free *free;
    const struct engine_ragged *ragged; /* NULL: it is not ragged */
    const struct engine_point *points;
    const struct engine_profile *profiles;
    size_t weight_bytes;
    size_t common_bytes;  /* of these, the ones that the engine it was loaded like has in memory */
    size_t out_bytes_max; /* the largest out_bytes: a buffer of this size serves every profile */
};

/* Opens a plugin's file (engine/plugin/inferd_plugin.h), whose ops models and plans may then have.
 * To be called before devices are opened; the plugin stays until the process ends. A file that was
 * loaded already is taken as done. */
enum status engine_plugin_load(const char *path, struct error *err);

/* spec: "cpu", "cuda", "cuda:N", "fault". Options may be NULL. */
enum status engine_device_open(const char *spec, const struct device_options *options,
                               struct device **out, struct error *err);
void engine_device_close(struct device *device);
/* Whether the device has memory of its own. Then inputs beyond ENGINE_PACK_MAX should be pinned,
 * and their bytes are free after context_wait_inputs, before the batch has run. */
bool engine_device_apart(const struct device *device);
/* Buffers for inputs and outputs: pinned if the device has memory of its own, aligned to 64. Both
 * calls are slow, and engine_buffer_free may wait until the device has done all its work. */
enum status engine_buffer_alloc(struct device *device, size_t size, const char *tag, void **out,
                                struct error *err);
void engine_buffer_free(struct device *device, void *buffer);

/* Memory of the device that another process allocated, as engine/backend.h has it. UNIMPLEMENTED:
 * the device shares none (engine_shares). Reading and writing copy from and to the host's memory,
 * and wait for it. Any thread. */
struct backend_shared;
enum { ENGINE_HANDLE_BYTES = 64 };
bool engine_shares(const struct device *device);
enum status engine_shared_open(struct device *device, const void *handle, size_t least,
                               struct backend_shared **out, struct error *err);
void engine_shared_close(struct device *device, struct backend_shared *shared); /* NULL is fine */
enum status engine_shared_read(struct device *device, struct backend_shared *shared, size_t at,
                               void *to, size_t size, struct error *err);
enum status engine_shared_write(struct device *device, struct backend_shared *shared, size_t at,
                                const void *from, size_t size, struct error *err);

/* *threads: the number of threads in a plan's header, which device_options.threads must be for the
 * plan to fit; 0 for a device without threads. The rest of the plan is not checked: engine_load
 * does that. DATA_LOSS: not a plan. */
enum status engine_plan_threads(const char *path, uint32_t *threads, struct error *err);

/* Reads and checks a plan as engine_load_fd does, but without a device: only the kind of device is
 * compared with `spec`. */
enum status engine_plan_check_fd(int fd, const char *name, const char *spec, struct error *err);

/* Reads and checks a plan, and uploads its weights. What becomes of the file later does not matter:
 * the bytes are in memory of our own. Errors say why a plan was refused: DATA_LOSS damaged,
 * FAILED_PRECONDITION made for another device, library or format version, UNAVAILABLE changed while
 * it was read. */
enum status engine_load(struct device *device, const char *path, struct engine **out,
                        struct error *err);
/* The same of an open file, which stays the caller's; `name` stands for it in errors. `guard` may
 * be NULL. `like`: an engine of the same model at other sizes, on the same device, with which this
 * one has its large weights in common as far as they are equal; NULL: there is none. */
enum status engine_load_fd(struct device *device, int fd, const char *name,
                           const struct file_guard *guard, const struct engine *like,
                           struct engine **out, struct error *err);
/* Says that no more contexts will be made: context_new fails from then on. Gives back memory that
 * only context_new needs, which is the host's copy of weights that were uploaded to a device. */
void engine_settle(struct engine *engine);
struct engine *engine_ref(struct engine *engine);
void engine_unref(struct engine *engine);
const struct engine_info *engine_describe(const struct engine *engine);

enum status lane_new(struct device *device, struct lane **out, struct error *err);
void lane_free(struct lane *lane);   /* its contexts must be freed before */
void lane_cleanup(struct lane **at); /* for CLEANUP (base/compiler.h) */

/*
 * A shelf is memory of a device that has memory of its own, where a batch leaves outputs: a batch
 * that ended has them there, in the places that they have in an output buffer, for inputs of others
 * on any lane, until the shelf's user lets another batch write there. So they do not cross to the
 * host and back. A shelf may grow while it is in use; what lies there stays.
 */
struct shelf;
enum status shelf_new(struct device *device, struct shelf **out, struct error *err);
/* For batches of profiles with up to `size` out_bytes. Slow. */
enum status shelf_grow(struct shelf *shelf, size_t size, struct error *err);
const void *shelf_at(const struct shelf *shelf, size_t offset); /* once it has grown */
/* Nothing that runs may read or write it any more. NULL is fine. */
void shelf_free(struct shelf *shelf);

/* Whether the device alone reads the input in any batch, so that spans on a shelf suffice. Else the
 * processor looks at it as well: layers run there, or requests do not lie one behind the other. */
bool engine_input_apart(const struct engine *engine, uint32_t index);

/* Makes every profile ready to run. The lane's arena grows in place if this engine needs more. The
 * context holds a reference to the engine. */
enum status context_new(struct engine *engine, struct lane *lane, struct context **out,
                        struct error *err);
/* The same with options. A device that captures runs each profile on zeros while it is made ready,
 * so nothing is compiled, loaded or allocated for the profile later. */
struct context_options {
    uint32_t batch;  /* make only the profile ready that batches of this size run on; 0: all */
    bool no_capture; /* launch the layers one by one, not as a captured graph */
};
enum status context_new_with(struct engine *engine, struct lane *lane,
                             const struct context_options *options, struct context **out,
                             struct error *err);
void context_free(struct context *ctx);

/* The bytes that one request has for one input: one or several instances. */
struct engine_span {
    const void *data; /* any alignment */
    size_t size;      /* a multiple of the input's instance_bytes */
};

/* The engine packs spans of up to this size into pinned memory of its own, so they may lie in any
 * memory. Larger spans should be pinned (engine_buffer_alloc) if the device has memory of its own.
 * Copying 16 KiB within the host takes about as long as putting one more copy onto a stream. */
enum { ENGINE_PACK_MAX = 16 * 1024 };

/* The spans of one input, in the order of the instances; each is a dense tensor. A device that
 * reads host memory reads a lone span in place if it is aligned to 64 and fills a profile; other
 * spans are gathered. Of an input that all instances share (engine_axes) the first span is read. */
struct engine_input {
    const struct engine_span *spans;
    uint32_t n_spans;
};

struct engine_times {
    uint64_t input_ns, compute_ns, output_ns;
};

/*
 * Starts a batch of `batch` instances (1..max_batch) on the smallest profile that holds it.
 * `inputs` has n_inputs entries; the array may go away at return, but the bytes must stay until
 * context_wait (or context_wait_inputs). `output` comes from engine_buffer_alloc with at least
 * out_bytes of that profile; instance k of output i will lie at
 *
 *   output + profile->out_offset[i] + k * outputs[i].instance_bytes
 *
 * A context runs one batch at a time. If some layers run on the CPU beside a device, the call
 * returns once the last of these layers has run.
 *
 * A ragged model takes `batch` tokens here, of sequences as long as may be, and no mask; with
 * requests (engine_batch) it takes what they have.
 *
 * For measuring without copies: with `inputs` NULL the batch runs on the inputs of the last batch
 * of this profile, with `output` NULL the outputs stay where they were made.
 */
enum status context_enqueue(struct context *ctx, uint32_t batch, const struct engine_input *inputs,
                            void *output, struct error *err);

/* The same at a point, by its number; context_enqueue takes the first. The batch is one tensor of
 * each output. */
enum status context_enqueue_at(struct context *ctx, uint32_t point, uint32_t batch,
                               const struct engine_input *inputs, void *output, struct error *err);

/* One request of a batch. */
struct engine_request {
    uint32_t instances;
    int64_t values[ENGINE_MAX_FREE]; /* at most the point's; less only where dimensions pad */
    /* By input, where the bytes of its span lie on a shelf, from where the device takes them; NULL:
     * on none. A span on a shelf may have no data if engine_input_apart says so. NULL: the request
     * has nothing on shelves. */
    const void *const *shelved;
};

/* The same for several requests: span r of each input is the tensor of request r, and output i of a
 * request whose first instance is k is a dense tensor of its own sizes at
 *
 *   output + profile->out_offset[i] + k * outputs[i].instance_bytes
 *
 * `requests` has to stay until context_wait. */
struct engine_batch {
    uint32_t point, instances; /* the sum of those of the requests */
    const struct engine_request *requests;
    uint32_t n_requests;
    /* Where outputs are left, too; NULL: nowhere. By bits, those that are, if they can be, and of
     * these the ones that go there alone then. */
    struct shelf *shelf;
    uint64_t shelve, unread;
};
enum status context_enqueue_batch(struct context *ctx, const struct engine_batch *batch,
                                  const struct engine_input *inputs, void *output,
                                  struct error *err);

/* Blocks until the bytes of the inputs are no longer read, which is until the batch has run if the
 * device reads them in place. May be called between context_enqueue and context_wait. */
enum status context_wait_inputs(struct context *ctx, struct error *err);

/* Blocks until the batch is done. `times` may be NULL. After an error of scope ERROR_REQUEST or
 * ERROR_MODEL the context may be used again. */
enum status context_wait(struct context *ctx, struct engine_times *times, struct error *err);

/* The outputs that the batch that ended last has left on its shelf: a bit for each of the first 64.
 * Not there are those that were made by the CPU or have to be cut for the requests, and those of
 * engine_info.late. */
uint64_t context_shelved(const struct context *ctx);

/*
 * The outputs of the batch that ended last, of a model whose outputs have sizes that only a request
 * tells (engine_info.late): such a model writes nothing to `output`, which may be NULL. They are
 * one block, the caller's from here on: free() frees it. NULL: they have been taken.
 */
struct engine_results {
    uint32_t n;
    struct tensor_view outputs[]; /* their bytes are in the block, too */
};
struct engine_results *context_results(struct context *ctx);

/* A layer of a profile as it was tuned, for people. */
struct engine_layer {
    const char *name, *op, *tactic; /* the engine's */
    uint64_t time_ns;               /* 0: not timed */
};
/* Writes at most `max` layers, from the one numbered `first` on, of the profile that batches of
 * this size run on at a point, in the order in which they run; returns how many there are. */
uint32_t engine_layers(const struct engine *engine, uint32_t point, uint32_t batch, uint32_t first,
                       struct engine_layer *out, uint32_t max);

/* The profile that a batch of this size runs on at a point; NULL: there is no such point, or the
 * size is 0 or too large. */
const struct engine_profile *engine_profile_for(const struct engine *engine, uint32_t point,
                                                uint32_t batch);

/* Whether a point runs requests of these values: they are its own, or smaller and padded. */
static inline bool engine_point_holds(const struct engine_info *info, uint32_t point,
                                      const int64_t *values)
{
    if (info->ragged) /* its only point runs all sizes in the ranges */
        return true;
    for (uint32_t i = 0; i < info->n_free; i++) {
        int64_t own = info->points[point].values[i];
        bool pads = info->free[i].pads && values[i] >= ENGINE_PADS_FROM;
        if (values[i] > own || (values[i] < own && !pads))
            return false;
    }
    return true;
}

/* Whether a point that holds these values runs them padded: they are not its own. */
static inline bool engine_point_pads(const struct engine_info *info, uint32_t point,
                                     const int64_t *values)
{
    for (uint32_t i = 0; i < info->n_free && !info->ragged; i++)
        if (values[i] != info->points[point].values[i])
            return true;
    return false;
}

/* How the values of a request are met; what comes first is chosen first. */
enum engine_fit {
    ENGINE_FIT_EXACT,  /* a point has these very values */
    ENGINE_FIT_PADDED, /* the smallest point that runs them padded, which nobody sees */
    ENGINE_FIT_NEW,    /* no point runs them; *point stays as it is */
};

static inline enum engine_fit engine_fit_of(const struct engine_info *info, const int64_t *values,
                                            uint32_t *point)
{
    uint32_t i = 0;
    if (!info->n_points) { /* of which nothing is said */
        *point = 0;
        return ENGINE_FIT_EXACT;
    }
    while (i < info->n_points && !engine_point_holds(info, i, values))
        i++;
    if (i == info->n_points)
        return ENGINE_FIT_NEW;
    *point = i; /* by rising size, so an exact one comes before those that hold it padded */
    return engine_point_pads(info, i, values) ? ENGINE_FIT_PADDED : ENGINE_FIT_EXACT;
}

/* The shape that a request of so many instances and such values has, or gets, there. `shape` is a
 * binding's of the point, or a profile's. `axes` may be NULL, and so may `values`. */
static inline struct shape engine_shape_of(const struct engine_info *info,
                                           const struct engine_axes *axes,
                                           const struct shape *shape, uint32_t instances,
                                           const int64_t *values)
{
    struct shape own = *shape;
    for (uint32_t d = 0; axes && values && info->n_free && d < own.rank; d++)
        if (axes->free[d])
            own.dim[d] = values[axes->free[d] - 1];
    if (info->batched && !info->ragged && !(axes && axes->shared) && own.rank)
        own.dim[axes ? axes->batch : 0] = instances;
    return own;
}

/* Checks what can be seen only in a request's numbers: if it is padded at the point, its masks have
 * to hide that (enum engine_mask). FAILED_PRECONDITION: one of them does not, which is named.
 * `spans` has each input of the request, in the host's memory. */
enum status engine_masks_check(const struct engine_info *info, uint32_t point,
                               const int64_t *values, uint32_t instances,
                               const struct engine_span *spans, struct error *err);

/* How many instances a request to a ragged model counts, whose spans are in the host's memory.
 * INVALID_ARGUMENT: a row of the mask has no token, or a token behind one that is missing; or a
 * sequence is too long. */
enum status engine_ragged_instances(const struct engine_info *info, const int64_t *values,
                                    const struct engine_span *spans, uint32_t *instances,
                                    struct error *err);

/* How many instances' bytes the tensor has in a batch. */
static inline uint32_t engine_count_of(const struct engine_info *info,
                                       const struct engine_axes *axes, uint32_t instances)
{
    return info->batched && !(axes && axes->shared) ? instances : 1;
}

static inline const struct engine_axes *engine_input_axes(const struct engine_info *info,
                                                          uint32_t index)
{
    return info->input_axes ? &info->input_axes[index] : NULL;
}

/* Whether dimension 0 of every input and output counts instances, if any does. */
static inline bool engine_counts_first(const struct engine_info *info)
{
    bool first = !info->ragged;
    for (uint32_t i = 0; info->batched && info->input_axes && i < info->n_inputs; i++)
        first = first && !info->input_axes[i].shared && !info->input_axes[i].batch;
    for (uint32_t i = 0; info->batched && info->output_axes && i < info->n_outputs; i++)
        first = first && !info->output_axes[i].shared && !info->output_axes[i].batch;
    return first;
}

static inline const struct engine_axes *engine_output_axes(const struct engine_info *info,
                                                           uint32_t index)
{
    return info->output_axes ? &info->output_axes[index] : NULL;
}

/* The bindings of a point. */
static inline const struct engine_binding *engine_point_inputs(const struct engine_info *info,
                                                               uint32_t point)
{
    return info->n_points ? info->points[point].inputs : info->inputs;
}

static inline const struct engine_binding *engine_point_outputs(const struct engine_info *info,
                                                                uint32_t point)
{
    return info->n_points ? info->points[point].outputs : info->outputs;
}

#endif
