/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A backend: the table of functions a device implements, and the only place where the builder and
 * the runtime meet a device.
 *
 * Work is asynchronous: launch and copy put work onto a stream and return; the bytes that they read
 * and write must stay until an event recorded behind them has been waited for. The CPU backend does
 * the work inside the call and its events are complete when recorded; callers may not rely on that.
 *
 * Threads: a device may be used by many threads. A stream, with the ops prepared for it, belongs to
 * one thread at a time. Tables are const and live for the whole process. Functions marked [opt] may
 * be NULL.
 *
 * Errors with scope ERROR_DEVICE mean that the device is lost for this process (R28, R29 of
 * docs/operations.md).
 */
#ifndef INFERD_ENGINE_BACKEND_H
#define INFERD_ENGINE_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/log.h"
#include "engine/ir/ir.h"

enum {
    BACKEND_ABI = 11,
    BACKEND_ALIGN = 64, /* alignment of constants, arena offsets and allocations */
    TACTIC_NAME_MAX = 96,
    TACTIC_BLOB_MAX = 512,
    TACTIC_PORTS_MAX = 64, /* of a node with more inputs, the last port stands for the others too */
    FINGERPRINT_MAX = 192,
    BACKEND_HANDLE_BYTES = 64, /* of memory that another process allocated */
};

struct backend;
struct plugin_registry; /* engine/plugin/plugin.h */
struct backend_op;      /* a node made ready to run; defined by each backend, as those below */
struct backend_graph;   /* a captured sequence of launches */
struct backend_stream;
struct backend_event;
struct backend_arena;
struct backend_shared;

enum memory_kind {
    MEMORY_DEVICE = 0, /* memory that ops read and write */
    MEMORY_PINNED = 1, /* host memory that is fastest to copy to and from the device */
};

/* Where memory comes from instead of the backend's own. */
struct memory_allocator {
    void *(*take)(void *user, enum memory_kind kind, size_t size, size_t align, const char *tag);
    void (*give)(void *user, enum memory_kind kind, void *memory);
    void *user;
};

struct device_options {
    uint32_t index;             /* cuda:N */
    uint32_t threads;           /* CPU: threads of one stream; 0: one per physical core */
    bool reference_only;        /* CPU: only our own kernels (the oracle; sanitizers) */
    const char *script;         /* fault backend: its script; NULL: it injects nothing */
    const struct backend *wrap; /* fault backend: the backend it wraps; NULL: the script names it */
    const struct log_sink *log; /* may be NULL; must outlive the device, as these two do: */
    const struct memory_allocator *allocator; /* NULL: the backend's own */
    uint64_t tail_bytes; /* most memory for a request whose sizes only it tells; 0: 1 GiB */
};

/* Every backend's device starts with this. */
struct device {
    const struct backend *backend;
    uint32_t threads;
    bool reference_only;                      /* as in the options; set by engine_device_open */
    struct memory_tracker *tracker;           /* engine/runtime/memory.h; NULL: not asked for */
    const struct memory_allocator *allocator; /* as in the options; set by engine_device_open */
    uint64_t tail_bytes;                      /* the same */
    uint64_t block_bytes; /* shared memory of a block of threads, set by the backend; 0: none */
};

/* How a tactic wants one input or output to be stored. An FP32 tensor may be stored as a shorter
 * float type, and any float tensor with a range (ir.h) in 8 bits by that range; other tensors keep
 * their types. */
struct tactic_port {
    struct ir_format
        format;            /* the scale is the tensor's range, or none; absent input: dtype NONE */
    uint64_t packed_bytes; /* > 0: `pack` makes the constant OPAQUE and of this size */
};

/*
 * One way to run a node. Tactics are stored in the plan. Only the backend knows what `id` and
 * `blob` mean. They are not trusted when they come back from a file: op_prepare checks them.
 */
struct tactic {
    const char *backend;        /* the name of its backend: "cpu", "cuda"; static storage */
    char name[TACTIC_NAME_MAX]; /* for people: "onednn conv jit:avx512_core nChw16c" */
    uint32_t id;
    uint32_t blob_size;
    uint8_t blob[TACTIC_BLOB_MAX];
    /* The tactic's compiled form, as backend->code gave it; NULL: there is none. It is stored in
     * the plan and not trusted either. It lives as long as the plan or table that keeps the
     * tactic. */
    const void *code;
    uint64_t code_size;
    /* For the tuner alone, and not stored. Candidates that take long to compile are of a kin, which
     * is a number above 0 among the node's. Those of wave 0 are tried like all others, and those of
     * a later wave only where their kin's earlier ones have come close to the best. */
    uint8_t kin, wave;
    uint32_t n_in, n_out; /* min(node's, TACTIC_PORTS_MAX) */
    struct tactic_port in[TACTIC_PORTS_MAX];
    struct tactic_port out[IR_MAX_OUTPUTS];
};

/* Gives all ports the types that the tensors have in the graph, but `real` instead of FP32 if it is
 * not NONE. */
static inline void tactic_set_types(struct tactic *tactic, const struct ir_graph *graph,
                                    const struct ir_node *node, enum dtype real)
{
    for (uint32_t i = 0; i < tactic->n_in + tactic->n_out; i++) {
        bool in = i < tactic->n_in;
        struct tactic_port *port = in ? &tactic->in[i] : &tactic->out[i - tactic->n_in];
        uint32_t id = in ? node->inputs[i] : node->outputs[i - tactic->n_in];
        enum dtype dtype = id == IR_NONE ? DTYPE_NONE : ir_tensor(graph, id)->dtype;
        port->format.dtype = dtype == DTYPE_F32 && real != DTYPE_NONE ? real : dtype;
    }
}

static inline void tactic_port_pack(struct tactic_port *port, uint64_t bytes)
{
    port->format.layout = IR_LAYOUT_OPAQUE;
    port->packed_bytes = bytes;
}

/* The type of the first port that has a float type; NONE: no port has one. */
static inline enum dtype tactic_float(const struct tactic *tactic)
{
    for (uint32_t i = 0; i < tactic->n_in + tactic->n_out; i++) {
        const struct tactic_port *port =
            i < tactic->n_in ? &tactic->in[i] : &tactic->out[i - tactic->n_in];
        if (dtype_is_float(port->format.dtype))
            return port->format.dtype;
    }
    return DTYPE_NONE;
}

/* The shortest type that tactics may use in place of FP32; the numbers are no order. INT8 and FP8
 * stand for 8 bits where tensors have ranges, and elsewhere for the floats of precision_floats. */
enum precision {
    PRECISION_F32 = 0,
    PRECISION_TF32 = 1,
    PRECISION_F16 = 2,
    PRECISION_BF16 = 3,
    PRECISION_I8 = 4,
    PRECISION_F8 = 5, /* E4M3 */
};

static inline bool precision_is_8bit(enum precision precision)
{
    return precision == PRECISION_I8 || precision == PRECISION_F8;
}

/* Called once for each candidate. A visitor that wants to keep the tactic copies it. */
typedef enum status (*tactic_visit)(void *user, const struct tactic *tactic, struct error *err);

struct backend_copy {
    void *to;
    const void *from;
    size_t size;
};

enum copy_direction { COPY_TO_DEVICE, COPY_TO_HOST, COPY_ON_DEVICE };

/* Features that passes (engine/passes/pass.h) and the tuner ask for. */
enum backend_feature {
    BACKEND_ATTENTION = 1, /* the backend has kernels for IR_OP_ATTENTION */
    BACKEND_MERGE = 2,     /* nodes of one kind that read the same input are worth merging */
    BACKEND_SCALES = 4,    /* the backend has kernels for formats with a scale */
    BACKEND_WIDENS = 8,   /* 16-bit floats of a model are computed in FP32 (engine/build/widen.h) */
    BACKEND_F8 = 32,      /* the backend has kernels for floats of 8 bits */
    BACKEND_SIGNED = 64,  /* of 8-bit integers, products read those with a sign alone */
    BACKEND_TABLES = 128, /* chains of functions of one tensor of bytes are looked up */
    BACKEND_PICKS = 256,  /* gathers of channels read and write channels last */
    BACKEND_JOINS = 512,  /* concatenations have epilogues */
    BACKEND_PATCHES = 1024, /* products over patches of images are faster than convolutions */
    BACKEND_CHAINS = 2048,  /* chains of fully connected layers are one kernel, in block_bytes */
    BACKEND_STEMS = 4096,   /* devices may have kernels for IR_OP_CONV_POOL: they are asked */
    BACKEND_PAIRS = 8192,   /* the same for IR_OP_CONV_PAIR, which is timed beside its parts */
    BACKEND_LAYS = 16384,   /* transposed convolutions that lay patches are faster as products */
    BACKEND_BOXES = 32768,  /* concatenations of slices are faster than to scatter over a box */
    BACKEND_CONV_CHAINS = 65536, /* as PAIRS, for IR_OP_CONV_CHAIN in 8 bits */
};

struct backend {
    uint32_t abi; /* BACKEND_ABI */
    uint32_t features;
    const char *name;
    bool host_memory; /* device memory is host memory: ops may read a caller's bytes in place */
    bool stable_addresses; /* launches must see the same addresses every time (graph capture) */

    /* A backend in a module has a copy of the plugins' registry: this makes it use the program's.
     * [opt] */
    void (*plugins)(struct plugin_registry *registry);

    /* --- device --- */
    enum status (*device_count)(uint32_t *out, struct error *err);
    enum status (*device_open)(const struct device_options *options, struct device **out,
                               struct error *err);
    void (*device_close)(struct device *device); /* NULL is fine */
    /* One line that names device kind, library versions, instruction set and thread number: a plan
     * fits a device exactly if the lines are equal. */
    void (*device_fingerprint)(struct device *device, char out[FINGERPRINT_MAX]);

    /* --- memory --- */
    uint64_t (*memory_total)(struct device *device); /* bytes; NULL: the machine's [opt] */
    enum status (*memory_alloc)(struct device *device, enum memory_kind kind, size_t size,
                                const char *tag, void **out, struct error *err);
    void (*memory_free)(struct device *device, enum memory_kind kind, void *memory);
    /* Reserves address space; grow makes the first `size` bytes usable, in place. */
    enum status (*arena_new)(struct device *device, size_t reserve, struct backend_arena **out,
                             struct error *err);
    enum status (*arena_grow)(struct backend_arena *arena, size_t size, struct error *err);
    void *(*arena_base)(struct backend_arena *arena);
    void (*arena_free)(struct backend_arena *arena);

    /* --- memory of this device that another process allocated [opt, all or none] --- */
    /* Opens it by the BACKEND_HANDLE_BYTES of its handle. INVALID_ARGUMENT: it cannot be opened, or
     * there are fewer than `least` bytes. Copies are waited for. Any thread. */
    enum status (*shared_open)(struct device *device, const void *handle, size_t least,
                               struct backend_shared **out, struct error *err);
    void (*shared_close)(struct backend_shared *shared);
    enum status (*shared_read)(struct backend_shared *shared, size_t at, void *to, size_t size,
                               struct error *err);
    enum status (*shared_write)(struct backend_shared *shared, size_t at, const void *from,
                                size_t size, struct error *err);

    /* --- streams and events --- */
    enum status (*stream_new)(struct device *device, struct backend_stream **out,
                              struct error *err);
    void (*stream_free)(struct backend_stream *stream);
    enum status (*event_new)(struct device *device, bool timing, struct backend_event **out,
                             struct error *err);
    void (*event_free)(struct backend_event *event);
    /* Within a capture the event becomes part of the graph: each launch of the graph records it
     * anew. */
    enum status (*event_record)(struct backend_event *event, struct backend_stream *stream,
                                struct error *err);
    /* Blocks the caller. INVALID_ARGUMENT: an op before the event found an index out of range. Not
     * to be called after the event's stream was freed. */
    enum status (*event_wait)(struct backend_event *event, struct error *err);
    /* Nanoseconds between two waited-for timing events. */
    enum status (*event_elapsed)(struct backend_event *from, struct backend_event *to, uint64_t *ns,
                                 struct error *err);
    /* Nanoseconds that the unluckiest of the stream's threads has waited for a processor since the
     * last call (0 at the first call), because other work had it. NULL: that cannot be known.
     * [opt] */
    uint64_t (*longest_wait)(struct backend_stream *stream);
    /* Called right before a launch of the op that is timed: brings the threads that run it onto
     * processors, where they may stay bound until the stream is freed. False: other work did not
     * let them. [opt] */
    bool (*op_gather)(struct backend_op *op, struct backend_stream *stream);
    enum status (*copy)(struct backend_stream *stream, enum copy_direction direction,
                        const struct backend_copy *copies, uint32_t n, struct error *err);

    /* --- build time --- */
    /* Visits every way to run the node within `precision`, best guess first. If none is visited,
     * the backend cannot run this node. A tactic of REFORMAT keeps the formats of the node's
     * tensors, because they say what to do. An error comes from the visitor or from the device.
     * Many threads call this at once if the backend compiles. */
    enum status (*candidates)(struct device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err);
    /* About how many nanoseconds the node takes with the tactic, the candidate numbered `rank`: for
     * plans that are made without timing, where ratios between candidates are what counts. 0,
     * or NULL: the tuner guesses from sizes and ranks. [opt] */
    uint64_t (*cost)(struct device *device, const struct ir_graph *graph,
                     const struct ir_node *node, const struct tactic *tactic, uint32_t rank);
    /* Repacks constant input `input` of the node for the tactic. `to` has packed_bytes bytes. The
     * node's constants are still as the graph had them, its other tensors as the tactic wants them.
     * When the node runs, the packed constant is OPAQUE and has the type of the tactic's port,
     * whatever its bytes are. [opt] */
    enum status (*pack)(struct device *device, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err);
    /* Does the slow part of op_prepare ahead of it: compiles, or loads tactic->code if there is
     * any. Called by many threads at once, when tuning and before a context is made ready. The
     * device keeps the results for all streams until compile_drop, which forgets the results that
     * no op uses. Checks tactic and node as op_prepare does. FAILED_PRECONDITION: this tactic does
     * not work here after all. [opt] */
    enum status (*compile)(struct device *device, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct error *err);
    void (*compile_drop)(struct device *device);
    /* The compiled form, for tactic->code; *size is 0 if there is none. [opt] */
    enum status (*code)(struct device *device, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic,
                        struct arena *arena, const void **code, uint64_t *size, struct error *err);

    /* --- runtime --- */
    /* Makes a node ready for one stream. The graph must outlive the op. Checks tactic, layouts and
     * sizes against the node: they may come from a damaged file. */
    enum status (*op_prepare)(struct backend_stream *stream, const struct ir_graph *graph,
                              const struct ir_node *node, const struct tactic *tactic,
                              struct backend_op **out, struct error *err);
    uint64_t (*op_workspace)(const struct backend_op *op); /* bytes of scratch the launch needs */
    void (*op_free)(struct backend_op *op);
    /* `inputs` and `outputs` are device addresses in the node's order (NULL for an absent input);
     * `workspace` has op_workspace bytes, aligned to BACKEND_ALIGN. */
    enum status (*op_launch)(struct backend_op *op, struct backend_stream *stream,
                             void *const *inputs, void *const *outputs, void *workspace,
                             struct error *err);

    /* --- capture [opt, all or none] --- */
    /* Captures the work that this thread puts onto the stream; other threads may go on with their
     * streams. Every capture_begin that succeeds is followed by a capture_end, also after a failed
     * launch: then capture_end fails, or its graph is freed. Ops and streams must outlive the
     * graph, which is not freed while it runs. The graph is launched on the stream on which it
     * was captured, because it may use memory that belongs to that stream. */
    enum status (*capture_begin)(struct backend_stream *stream, struct error *err);
    enum status (*capture_end)(struct backend_stream *stream, struct backend_graph **out,
                               struct error *err);
    enum status (*graph_launch)(struct backend_graph *graph, struct backend_stream *stream,
                                struct error *err);
    void (*graph_free)(struct backend_graph *graph);
    /* Called once within a capture, when about half of the graph's work is on the stream. Graphs
     * with this mark take turns: a launch on another stream begins no sooner than the graph
     * launched before it has reached its mark. Otherwise two workers fall into step: both copy at
     * the same time and both compute at the same time, instead of one copying while the other
     * computes. [opt] */
    enum status (*capture_half)(struct backend_stream *stream, struct error *err);

    /* --- profilers [opt] --- */
    /* Named ranges on the calling thread, as device profilers show them (NVTX). */
    void (*range_begin)(const char *name);
    void (*range_end)(void);
};

/* The precision of what stays a float on this backend: FP16 beside 8 bits on a device, FP32 on a
 * CPU. */
static inline enum precision precision_floats(enum precision precision,
                                              const struct backend *backend)
{
    if (!precision_is_8bit(precision))
        return precision;
    return backend->host_memory ? PRECISION_F32 : PRECISION_F16;
}

/* The built-in tables. The CPU one also offers every op's reference kernel as a candidate. */
extern const struct backend backend_cpu;
/* Wraps the backend that its script names (`on=cpu`); engine/runtime/fault.h describes scripts. */
extern const struct backend backend_fault;

/* The only symbol of a backend's module ("inferd-cuda.so"): a function that returns its table. */
#define BACKEND_MODULE_SYMBOL "inferd_backend"
typedef const struct backend *(*backend_module)(void);

/* *out, *index: the table and the device's index for "cpu", "cuda", "cuda:1" or "fault". Opens the
 * CUDA module if `spec` asks for it. */
enum status backend_find(const char *spec, const struct backend **out, uint32_t *index,
                         struct error *err);

/* Opens the CPU device that runs the "cpu" segments of plans for `device`, which has memory of its
 * own. Tuner and runtime both open it here, so that segments run on the kind of device that they
 * were tuned for. */
enum status backend_host_open(const struct device *device, struct device **out, struct error *err);

#endif
