/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libinferd-engine: runs plans, which `inferctl build` makes of ONNX models, in your process.
 *
 * This header is the manual. Compile with `pkg-config --cflags --libs inferd-engine`; include as
 * <inferd_engine.h>, from C99 or C++. It needs no other header of ours.
 *
 * -- In short ------------------------------------------------------------------------------------
 *
 *     struct inferd_engine_error err;
 *     struct inferd_engine_device *device;
 *     struct inferd_engine_plan *plan;
 *     struct inferd_engine_context *ctx;
 *     struct inferd_engine_view y = inferd_engine_view_init();
 *
 *     inferd_engine_device_open("cpu", NULL, &device, &err);
 *     inferd_engine_plan_load(device, "digits.plan", &plan, &err);
 *     inferd_engine_context_new(plan, NULL, &ctx, &err);
 *     inferd_engine_bind_input(ctx, 0, pixels, sizeof(pixels), 0, NULL, &err);
 *     inferd_engine_enqueue(ctx, &err);
 *     inferd_engine_wait(ctx, NULL, &err);
 *     inferd_engine_output(ctx, 0, &y, &err);            // y.data, y.bytes, y.rank, y.dim
 *
 * Every call but those that free and describe returns a status, which is not 0 if it has failed;
 * then out-parameters are untouched and `err` (which may be NULL) has the reason as one line.
 *
 * -- What there is -------------------------------------------------------------------------------
 *
 *   device    A processor, or a GPU ("cpu", "cuda", "cuda:1"). One is enough for a process.
 *   plan      A plan file that was read, checked and, on a GPU, uploaded. It does not change; its
 *             weights are there once, however many contexts it has.
 *   context   What one thread needs to run a plan: memory for intermediate tensors, a stream, and
 *             a captured graph where the device has those. A context runs one batch at a time.
 *
 * A plan holds a reference to its device, and a context one to its plan: they may be freed in any
 * order, and what is still needed stays.
 *
 * -- Threads -------------------------------------------------------------------------------------
 *
 *   Devices and plans may be used by any number of threads at once, and freed by any of them.
 *   A context is made, used and freed by one thread. For work in parallel, each thread makes a
 *   context of its own; on a GPU two contexts overlap one's copies with the other's work.
 *   Buffers belong to nobody: any thread may take, fill and give them back.
 *   The CPU runs a batch within inferd_engine_enqueue, on the calling thread and on the device's
 *   other `threads`, which are OpenMP's. These spin while they wait, unless OMP_WAIT_POLICY=passive
 *   stands in the environment when the process starts; with several contexts it should.
 *   A process that has opened a device may fork only to exec.
 *   The library writes to no file and no terminal, installs no signal handler, never exits, and
 *   cannot be unloaded.
 *
 * -- Callbacks -----------------------------------------------------------------------------------
 *
 *   log        on any thread, several at once; the line is gone when the callback returns
 *   allocator  on the thread that makes or frees something, and on threads that compile for it
 *   profiler   within inferd_engine_wait, on the context's thread
 *
 * A callback may not call the library, and must return (no longjmp, no C++ exception).
 *
 * -- Versions ------------------------------------------------------------------------------------
 *
 * Structs that may grow begin with `size`, which their init functions set: the library touches no
 * more than that of your struct. It refuses a member that it does not know, if it is set. Structs
 * without `size`, and enums' numbers, stay as they are. What would break a program changes the
 * library's soname (libinferd-engine.so.0).
 *
 * A plan fits the library that has the version, the device and the libraries it was built with;
 * inferd_engine_plan_load says what differs (INFERD_ENGINE_FAILED_PRECONDITION).
 */
#ifndef INFERD_ENGINE_LIBRARY_INFERD_ENGINE_H
#define INFERD_ENGINE_LIBRARY_INFERD_ENGINE_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define INFERD_ENGINE_CALL __attribute__((visibility("default")))

/* What this header knows; inferd_engine_api() says what the library knows. Grows with each
 * addition. */
#define INFERD_ENGINE_API 1

INFERD_ENGINE_CALL uint32_t inferd_engine_api(void);
INFERD_ENGINE_CALL const char *inferd_engine_version(void); /* "0.1.0" */

/* --- errors and types --- */

/* gRPC's codes. */
enum inferd_engine_status {
    INFERD_ENGINE_OK = 0,
    INFERD_ENGINE_UNKNOWN = 2,             /* the system has failed: a file, a thread */
    INFERD_ENGINE_INVALID_ARGUMENT = 3,    /* the caller is wrong, or a tensor's contents */
    INFERD_ENGINE_NOT_FOUND = 5,           /* there is no such file, input, layer */
    INFERD_ENGINE_PERMISSION_DENIED = 7,   /* the file may not be read */
    INFERD_ENGINE_RESOURCE_EXHAUSTED = 8,  /* no memory, here or on the device */
    INFERD_ENGINE_FAILED_PRECONDITION = 9, /* the plan does not fit; calls in a wrong order */
    INFERD_ENGINE_UNIMPLEMENTED = 12,      /* this build, or machine, has no such device */
    INFERD_ENGINE_INTERNAL = 13,           /* the device has failed */
    INFERD_ENGINE_UNAVAILABLE = 14,        /* the device is lost; the file is being written */
    INFERD_ENGINE_DATA_LOSS = 15           /* the plan is damaged */
};

/* How far a failure reaches. */
enum inferd_engine_scope {
    INFERD_ENGINE_OF_REQUEST = 0, /* the context may be used again */
    INFERD_ENGINE_OF_MODEL = 1,   /* another batch may work; the plan is to blame */
    INFERD_ENGINE_OF_DEVICE = 2   /* the device is lost for this process: end it */
};

enum { INFERD_ENGINE_MAX_RANK = 8, INFERD_ENGINE_ERROR_TEXT = 512 };

struct inferd_engine_error {
    enum inferd_engine_status status;
    enum inferd_engine_scope scope;
    char text[INFERD_ENGINE_ERROR_TEXT]; /* one line of UTF-8, terminated */
};

enum inferd_engine_dtype {
    INFERD_ENGINE_NONE = 0,
    INFERD_ENGINE_BOOL = 1, /* one byte, 0 or 1 */
    INFERD_ENGINE_UINT8 = 2,
    INFERD_ENGINE_UINT16 = 3,
    INFERD_ENGINE_UINT32 = 4,
    INFERD_ENGINE_UINT64 = 5,
    INFERD_ENGINE_INT8 = 6,
    INFERD_ENGINE_INT16 = 7,
    INFERD_ENGINE_INT32 = 8,
    INFERD_ENGINE_INT64 = 9,
    INFERD_ENGINE_FP16 = 10,
    INFERD_ENGINE_BF16 = 11,
    INFERD_ENGINE_FP32 = 12,
    INFERD_ENGINE_FP64 = 13
};

/* "INVALID_ARGUMENT"; "FP32" and 4 for INFERD_ENGINE_FP32. Static storage. */
INFERD_ENGINE_CALL const char *inferd_engine_status_name(enum inferd_engine_status status);
INFERD_ENGINE_CALL const char *inferd_engine_dtype_name(enum inferd_engine_dtype dtype);
INFERD_ENGINE_CALL size_t inferd_engine_dtype_size(enum inferd_engine_dtype dtype);

/* Makes inferd_engine_NAME_init(), which gives the struct with its size and all else zero. */
#define INFERD_ENGINE_STRUCT(NAME)                                                                 \
    static inline struct inferd_engine_##NAME inferd_engine_##NAME##_init(void)                    \
    {                                                                                              \
        struct inferd_engine_##NAME made;                                                          \
        memset(&made, 0, sizeof(made));                                                            \
        made.size = sizeof(made);                                                                  \
        return made;                                                                               \
    }

/* --- callbacks --- */

enum inferd_engine_log_level {
    INFERD_ENGINE_LOG_ERROR = 0,
    INFERD_ENGINE_LOG_WARNING = 1,
    INFERD_ENGINE_LOG_INFO = 2,
    INFERD_ENGINE_LOG_VERBOSE = 3
};

typedef void (*inferd_engine_log)(void *user, enum inferd_engine_log_level level, const char *line);

enum inferd_engine_memory {
    INFERD_ENGINE_MEMORY_DEVICE = 0, /* the device's own: on the CPU any memory */
    INFERD_ENGINE_MEMORY_PINNED = 1  /* the host's, that the device copies from and to */
};

/*
 * Where memory comes from that grows with the plan: weights that are uploaded, intermediate tensors
 * and workspaces, inputs' padding and staging, outputs and buffers. Bytes of the plan file and what
 * the library notes of it are the C library's; code, captured graphs and handles the driver's.
 *
 * take   returns `bytes` (never 0) at a multiple of `align` (a power of two, 64 or more), with any
 *        contents, or NULL: then the call fails with INFERD_ENGINE_RESOURCE_EXHAUSTED. `tag` says
 *        what the memory is for ("weights", "arena"); it is gone when the callback returns.
 * give   takes back what `take` gave.
 *
 * Memory of the kind DEVICE must be the opened device's (cudaMalloc, or a pool of it), of the kind
 * PINNED page-locked (cudaHostAlloc). Nothing is taken between enqueue and wait.
 */
struct inferd_engine_allocator {
    size_t size;
    void *user;
    void *(*take)(void *user, enum inferd_engine_memory kind, size_t bytes, size_t align,
                  const char *tag);
    void (*give)(void *user, enum inferd_engine_memory kind, void *memory);
};
INFERD_ENGINE_STRUCT(allocator)

/* A layer of a plan. Texts live as long as the plan. */
struct inferd_engine_layer {
    size_t size;
    const char *name, *op, *tactic;
    uint64_t time_ns; /* when the plan was built; for the profiler, of this batch. 0: not timed */
};
INFERD_ENGINE_STRUCT(layer)

/* Called for each layer of a batch in the order in which they ran; index counts from 0. */
typedef void (*inferd_engine_profiler)(void *user, uint32_t index,
                                       const struct inferd_engine_layer *layer);

/* --- devices --- */

struct inferd_engine_device;

struct inferd_engine_device_options {
    size_t size;
    uint32_t threads;      /* CPU: of one context; 0: as `plan` wants, else one a core */
    const char *plan;      /* a plan file whose number of threads is taken; NULL: none */
    inferd_engine_log log; /* NULL: silent */
    void *log_user;
    enum inferd_engine_log_level log_level;          /* lines above it are not made */
    const struct inferd_engine_allocator *allocator; /* read at once; NULL: the library's own */
    /* Files of ops that plans need (inferd_plugin.h). They are opened before the device, with all
     * the rights of the process, and stay until it ends. */
    const char *const *plugins;
    uint32_t n_plugins;
};
INFERD_ENGINE_STRUCT(device_options)

/* spec: "cpu", "cuda", "cuda:N". Options may be NULL. */
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_device_open(
    const char *spec, const struct inferd_engine_device_options *options,
    struct inferd_engine_device **out, struct inferd_engine_error *err);
INFERD_ENGINE_CALL void inferd_engine_device_close(struct inferd_engine_device *device);
/* Whether the device has memory of its own: then it copies inputs, best from its buffers. */
INFERD_ENGINE_CALL int inferd_engine_device_apart(const struct inferd_engine_device *device);

/* Memory for inputs and outputs, aligned to 64: page-locked if the device has memory of its own.
 * Both calls are slow; freeing may wait until the device has done all its work. The device must
 * still be open. */
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_buffer_take(
    struct inferd_engine_device *device, size_t bytes, void **out, struct inferd_engine_error *err);
INFERD_ENGINE_CALL void inferd_engine_buffer_give(struct inferd_engine_device *device,
                                                  void *buffer);

/* --- plans --- */

struct inferd_engine_plan;

struct inferd_engine_plan_info {
    size_t size;
    const char *name;   /* the model graph's */
    const char *device; /* what the plan was built for */
    const char *digest; /* of the model file, in hex */
    int batched;        /* whether a dimension counts instances, mostly the first of all tensors */
    uint32_t max_batch; /* the most instances; 1 if not batched */
    uint32_t n_inputs, n_outputs, n_profiles;
    uint64_t weight_bytes;
};
INFERD_ENGINE_STRUCT(plan_info)

struct inferd_engine_tensor {
    size_t size;
    const char *name;
    enum inferd_engine_dtype dtype;
    uint32_t rank;
    int64_t dim[INFERD_ENGINE_MAX_RANK]; /* -1: it counts instances, or is chosen by bind_input */
    uint64_t instance_bytes; /* of one instance at most; of the whole tensor if not batched */
};
INFERD_ENGINE_STRUCT(tensor)

/* What was tuned for one number of instances; a batch runs on the smallest that holds it. */
struct inferd_engine_profile {
    size_t size;
    uint32_t batch;
    uint64_t arena_bytes;  /* intermediate tensors and workspaces of a context */
    uint64_t output_bytes; /* of all outputs */
    uint64_t time_ns;      /* of a batch, when the plan was built; 0: not timed */
};
INFERD_ENGINE_STRUCT(profile)

/* The file's bytes are read: what becomes of it later does not matter. */
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_plan_load(
    struct inferd_engine_device *device, const char *path, struct inferd_engine_plan **out,
    struct inferd_engine_error *err);
/* The same of an open regular file or memfd, which stays yours; `name` stands for it in errors. */
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_plan_load_fd(
    struct inferd_engine_device *device, int fd, const char *name, struct inferd_engine_plan **out,
    struct inferd_engine_error *err);
INFERD_ENGINE_CALL void inferd_engine_plan_free(struct inferd_engine_plan *plan);
/* Says that no more contexts will be made. On a GPU this gives back the host's copy of the
 * weights. */
INFERD_ENGINE_CALL void inferd_engine_plan_settle(struct inferd_engine_plan *plan);

/* Texts live as long as the plan. INFERD_ENGINE_NOT_FOUND: there is no such number. */
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_plan_describe(
    const struct inferd_engine_plan *plan, struct inferd_engine_plan_info *out,
    struct inferd_engine_error *err);
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_plan_input(
    const struct inferd_engine_plan *plan, uint32_t index, struct inferd_engine_tensor *out,
    struct inferd_engine_error *err);
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_plan_output(
    const struct inferd_engine_plan *plan, uint32_t index, struct inferd_engine_tensor *out,
    struct inferd_engine_error *err);
/* By rising batch. */
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_plan_profile(
    const struct inferd_engine_plan *plan, uint32_t index, struct inferd_engine_profile *out,
    struct inferd_engine_error *err);
/* A layer of the profile that batches of this size run on, in the order in which they run. */
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_plan_layer(
    const struct inferd_engine_plan *plan, uint32_t batch, uint32_t index,
    struct inferd_engine_layer *out, struct inferd_engine_error *err);

/* --- contexts --- */

struct inferd_engine_context;

struct inferd_engine_context_options {
    size_t size;
    uint32_t batch; /* make ready for batches that run on this size's profile alone; 0: for all */
    int no_capture; /* a GPU: launch layer by layer instead of one captured graph */
};
INFERD_ENGINE_STRUCT(context_options)

/* Takes all memory that batches need, loads code, and captures. Options may be NULL. */
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_context_new(
    struct inferd_engine_plan *plan, const struct inferd_engine_context_options *options,
    struct inferd_engine_context **out, struct inferd_engine_error *err);
/* Waits for a batch that runs. */
INFERD_ENGINE_CALL void inferd_engine_context_free(struct inferd_engine_context *ctx);

/*
 * Says where input `index` is: dense and row-major, `bytes` long, in the shape dim[0..rank-1]. With
 * rank 0 and `dim` NULL it has the plan's shape, and as many instances as there are bytes for; not
 * if it has dimensions with ranges, whose sizes decide which profile runs, or is padded for. The
 * binding stays until the next one. Bytes are read by each batch from enqueue to wait (or
 * wait_inputs), and must stay as they are meanwhile. Any alignment will do; the CPU reads an input
 * in place if its address is a multiple of 64 and the batch fills a profile, else it copies.
 */
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_bind_input(
    struct inferd_engine_context *ctx, uint32_t index, const void *data, size_t bytes,
    uint32_t rank, const int64_t *dim, struct inferd_engine_error *err);
/* Has wait copy output `index` to `data`, which has room for `bytes`. NULL: the output stays in the
 * context's memory alone, where inferd_engine_output finds it. */
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_bind_output(
    struct inferd_engine_context *ctx, uint32_t index, void *data, size_t bytes,
    struct inferd_engine_error *err);

/* Starts a batch. All inputs must be bound, and those of a batched plan to the same number of
 * instances. Those of a ragged plan (inferctl build --ragged) are bound with the shapes of their
 * sequences; its instances are tokens, which are counted here by the mask. */
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_enqueue(
    struct inferd_engine_context *ctx, struct inferd_engine_error *err);

/* Blocks until the inputs' bytes are no longer read, which may be before the batch has run. */
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_wait_inputs(
    struct inferd_engine_context *ctx, struct inferd_engine_error *err);

struct inferd_engine_times {
    size_t size;
    uint64_t input_ns, compute_ns, output_ns;
};
INFERD_ENGINE_STRUCT(times)

/* Blocks until the batch has run and outputs are where they were bound to. `times` may be NULL. */
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_wait(struct inferd_engine_context *ctx,
                                                                struct inferd_engine_times *times,
                                                                struct inferd_engine_error *err);

struct inferd_engine_view {
    size_t size;
    const void *data; /* in the context, aligned to 64; good until the next enqueue */
    size_t bytes;
    enum inferd_engine_dtype dtype;
    uint32_t rank;
    int64_t dim[INFERD_ENGINE_MAX_RANK];
};
INFERD_ENGINE_STRUCT(view)

/* Output `index` of the batch that was waited for last. */
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_output(
    const struct inferd_engine_context *ctx, uint32_t index, struct inferd_engine_view *out,
    struct inferd_engine_error *err);

/* Has every batch's layers timed from now on; with `profiler` NULL they are still timed, but nobody
 * is told. Timing costs an event a layer. Not between enqueue and wait. */
INFERD_ENGINE_CALL enum inferd_engine_status inferd_engine_profile_layers(
    struct inferd_engine_context *ctx, inferd_engine_profiler profiler, void *user,
    struct inferd_engine_error *err);

#ifdef __cplusplus
}
#endif

#endif
