/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the CUDA backend share. Only this folder and kernels/cuda see CUDA headers; the
 * folder is one loadable module, "inferd-cuda.so", that exports inferd_backend() and nothing else.
 *
 *   backend.c  the table                       device.c  devices       memory.c  memory, arenas
 *   stream.c   streams, events, copies         graph.c   capture, ranges
 *   counters.c what products count by in captured graphs
 *   shared.c   memory of other processes
 *   family.c   the table of families, and its dispatch        view.c    helpers for families
 *   dry.c      a device without hardware       module.c  the module's one symbol
 *   dnn_*.c    convolutions and attention through cuDNN's backend graph API
 *   lt*.c      matrix products and 1x1 convolutions through cuBLASLt, opened when first needed
 *   own_*.c    nodes -> our kernels (kernels/cuda)
 *   plugin.c   nodes of plugins
 *
 * A family is a way of running some ops. Its candidates, preparation and packing stand in one file.
 */
#ifndef INFERD_ENGINE_CUDA_CUDA_H
#define INFERD_ENGINE_CUDA_CUDA_H

#include <stdbool.h>
#include <stdint.h>

#include <pthread.h>

#include <cuda_runtime_api.h>

#include "engine/backend.h"
#include "engine/cuda/takes.h"
#include "kernels/cuda/kernels.h"

struct cuda_dnn; /* of a device: loaded cuDNN, device properties, cache of execution plans */
struct cuda_lt;  /* of a device: cuBLASLt, opened on first use */
struct dnn_plan;

struct cuda_device {
    struct device base;
    int ordinal; /* -1: no hardware; lowering and candidates work from a property file */
    struct cudaDeviceProp properties;
    const struct log_sink *log;
    struct cuda_dnn *dnn;
    struct cuda_lt *lt;
    char fingerprint[FINGERPRINT_MAX];
    pthread_mutex_t turn_lock;
    struct backend_graph *turn; /* the marked graph launched last; NULL: none, or it is freed */
};

struct backend_stream {
    struct cuda_device *device;
    cudaStream_t stream;
    void *dnn_handle;       /* cudnnHandle_t of this stream, made on first use; see dnn.h */
    bool capturing;         /* between capture_begin and capture_end */
    cudaEvent_t half;       /* recorded half-way through what is being captured; NULL: not marked */
    int32_t *bad_index;     /* pinned; NULL until cuda_stream_flag is asked for it */
    char *counters;         /* NULL until cuda_counters_reserve is asked for them */
    uint32_t counters_used; /* in what is being captured */
};

/* --- counters.c --- */

enum { CUDA_COUNTER_BYTES = 256 };

/* Makes counters for the stream, if `bytes` of workspace are so few that they are one. Called as an
 * op is prepared, because nothing can be allocated within a capture. Without memory for them
 * cuda_counter gives none. */
void cuda_counters_reserve(struct backend_stream *stream, uint64_t bytes);
/* The workspace of one product that asks for `bytes`: a counter of its own within a capture if it
 * is so small, else `workspace`. */
void *cuda_counter(struct backend_stream *stream, uint64_t bytes, void *workspace);

/* Every prepared op starts with this. */
struct backend_op {
    uint64_t workspace;
    enum status (*launch)(struct backend_op *op, struct backend_stream *stream, void *const *inputs,
                          void *const *outputs, void *workspace, struct error *err);
    void (*free)(struct backend_op *op);
};

/* Each function does what its namesake in struct backend does. `candidates` visits only tactics
 * that can really be prepared. */
struct cuda_family {
    enum cuda_family_id id;
    bool scales; /* takes tensors that are stored in 8 bits by scales; others refuse them */
    bool casts;  /* floats of a node may differ in type; `prepare` looks at that */
    /* Whether the family's candidates for the node go before those of all other families: without
     * timing, the first one is taken. NULL: they never do. */
    bool (*leads)(const struct cuda_device *device, const struct ir_graph *graph,
                  const struct ir_node *node);
    /* Asked only for ops that are the family's by takes.h. */
    enum status (*candidates)(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err);
    /* `pack` may read the data of its own input only. Other constant tensors may already be packed
     * for other nodes, so of those only shape and type hold. NULL: the family packs nothing. */
    enum status (*pack)(struct cuda_device *device, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err);
    /* Gives cuDNN's execution plan, which takes time to make and which plan files keep as code. The
     * caller puts it back (dnn_plan_put). NULL: the family has no such plans. */
    enum status (*plan)(struct cuda_device *device, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic,
                        struct dnn_plan **out, struct error *err);
    enum status (*prepare)(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err);
};

#define F(id, NAME, name, ...) extern const struct cuda_family cuda_family_##name;
CUDA_FAMILIES(F)
#undef F

static inline uint32_t cuda_tactic_id(enum cuda_family_id family, uint32_t variant)
{
    return (uint32_t)family << 16 | (variant & 0xffff);
}

static inline uint32_t cuda_tactic_variant(const struct tactic *tactic)
{
    return tactic->id & 0xffff;
}

/* A CUDA call that failed: STATUS_RESOURCE_EXHAUSTED for memory, else INTERNAL; sticky errors get
 * scope ERROR_DEVICE (R28 of docs/operations.md). `what`: "cudaMalloc of 12 bytes". */
enum status cuda_error(struct error *err, cudaError_t code, const char *what);

/* --- cuBLASLt (lt.c) --- */

/* Made with the device, before other threads use the device, and freed with it; the library itself
 * is opened when a family first needs it. `ordinal` -1: no device, no handle. */
enum status cuda_lt_new(int ordinal, struct cuda_lt **out, struct error *err);
void cuda_lt_free(struct cuda_lt *lt); /* NULL is fine */

/* --- helpers for families (view.c) --- */

/* Refuses a stored tactic. */
enum status cuda_refuse(const struct ir_node *node, const struct tactic *tactic, struct error *err);

/* The float types that a family may offer a node within a precision, best first: F16 before F32 for
 * PRECISION_F16, and so on. Returns their number. If the node has no F32 tensor, the only type is
 * DTYPE_NONE. */
uint32_t cuda_dtypes(const struct ir_graph *graph, const struct ir_node *node,
                     enum precision precision, enum dtype out[3]);

/* NULL: the node has no such input. */
const struct ir_tensor *cuda_input(const struct ir_graph *graph, const struct ir_node *node,
                                   uint32_t input);

/* Makes a tactic named "<family> <detail>" that packs nothing. Every port, those of constants too,
 * gets `layout`, and `dtype` takes the place of F32 (NONE: F32 stays). */
void cuda_tactic(struct tactic *tactic, const struct cuda_family *family, uint32_t variant,
                 const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                 enum ir_layout layout, const char *detail);

/* The strides of a tensor as it stands in its graph (dtype, layout); data stays NULL.
 * `pad_channels` (may be NULL) gets the channels that a padded layout holds, or 0. False: the
 * layout is OPAQUE or blocked, or the rank is too high. */
bool cuda_view(const struct ir_tensor *tensor, struct kernel_view *out, int64_t *pad_channels);

/* The view broadcast to `like`'s dims (numpy's rules). False: it does not broadcast. */
bool cuda_view_broadcast(const struct kernel_view *view, const struct kernel_view *like,
                         struct kernel_view *out);

/* The node's epilogue; operands have no data yet: cuda_epilogue_bind sets it from the op's inputs
 * at launch. Operands may be stored in 8 bits, which the kernels of bytes.cu alone take. False: a
 * step our kernels do not know. */
bool cuda_epilogue(const struct ir_graph *graph, const struct ir_node *node,
                   const struct kernel_view *y, struct kernel_epilogue *out);
/* Whether the node's epilogue has an activation other than ReLU and clip, which libraries' quickest
 * kernels do not have. */
bool cuda_has_curve(const struct ir_node *node);
/* The node's steps are the last ones; a family may have put its own before them. */
void cuda_epilogue_bind(struct kernel_epilogue *epilogue, const struct ir_node *node,
                        void *const *inputs);

/* Converts the `n` elements of a constant of any float type to fp32, or to `dtype`. False: the
 * tensor is no constant of a float type and `n` elements. */
bool cuda_constant_f32(const struct ir_tensor *tensor, float *out, uint64_t n);
bool cuda_constant_cast(const struct ir_tensor *tensor, enum dtype dtype, void *out, uint64_t n);

#endif
