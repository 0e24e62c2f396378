/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the dnn_*.c files share: building graphs of cuDNN's backend API, execution plans, handles.
 *
 * A `build` owns every descriptor that is made through it, until it is freed. The first call that
 * fails sticks, and all later ones do nothing, so that code reads straight on and checks once, at
 * the end. A finalised execution plan keeps its descriptors: cuDNN does not document which of them
 * it still refers to.
 */
#ifndef INFERD_ENGINE_CUDA_DNN_GRAPH_H
#define INFERD_ENGINE_CUDA_DNN_GRAPH_H

#include <stdbool.h>
#include <stdint.h>

#include <cudnn_graph.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "base/error.h"
#include "engine/cuda/cuda.h"
#include "engine/cuda/dnn.h"

enum {
    DNN_OPS_MAX = 40,
    DNN_OWNED_MAX = 192,
    DNN_KNOBS_MAX = 12,
    DNN_VIRTUAL_UID = 1000, /* virtual tensors count from here, others stay below */
    DNN_ENGINES_MAX = 256,
    DNN_WHY_MAX = 160,
};

/* Workspaces beyond this are not worth their time. */
#define DNN_WORKSPACE_MAX (INT64_C(1) << 30)

typedef cudnnBackendDescriptor_t dnn_desc;

struct dnn_build {
    struct cuda_dnn *dnn;
    cudnnHandle_t handle; /* NULL without a device: the device's properties are used then */
    cudnnStatus_t status;
    char why[DNN_WHY_MAX]; /* "attribute or descriptor: cuDNN's own words" */
    uint32_t n_owned, n_ops;
    dnn_desc owned[DNN_OWNED_MAX], ops[DNN_OPS_MAX];
    int64_t next_virtual;
    dnn_desc graph;
};

struct dnn_knob {
    int32_t type; /* cudnnBackendKnobType_t */
    int32_t value;
};

/* An engine of a graph, and the knobs that are set. */
struct dnn_config {
    int32_t engine;
    uint32_t n_knobs;
    struct dnn_knob knob[DNN_KNOBS_MAX];
};

/* --- building (dnn_graph.c) --- */

/* Takes a handle from the device's store; dnn_build_free gives it back. */
enum status dnn_build_new(struct cuda_dnn *dnn, struct dnn_build **out, struct error *err);
void dnn_build_free(struct dnn_build *b);
/* Gives the handle back before the build is freed. */
void dnn_build_settle(struct dnn_build *b);
enum status dnn_build_error(const struct dnn_build *b, struct error *err, const char *what);

dnn_desc dnn_make(struct dnn_build *b, cudnnBackendDescriptorType_t type, const char *what);
void dnn_set(struct dnn_build *b, dnn_desc d, cudnnBackendAttributeName_t name,
             cudnnBackendAttributeType_t type, int64_t count, const void *values);
void dnn_set_desc(struct dnn_build *b, dnn_desc d, cudnnBackendAttributeName_t name,
                  dnn_desc value);
void dnn_finish(struct dnn_build *b, dnn_desc d, const char *what);

struct dnn_tensor {
    int64_t uid; /* 0: virtual */
    cudnnDataType_t type;
    int32_t rank; /* 4 or 5; 0: 4 */
    int64_t dim[5], stride[5];
    bool by_value; /* a scalar that the host passes along */
};
dnn_desc dnn_tensor(struct dnn_build *b, const struct dnn_tensor *t);
/* Dims NCHW or NCDHW, bytes NHWC or NDHWC. */
dnn_desc dnn_tensor_nhwc(struct dnn_build *b, int64_t uid, cudnnDataType_t type, int32_t rank,
                         const int64_t *dim);
/* A convolution's descriptor; each array has `spatial` numbers. */
struct dnn_window {
    int64_t spatial;
    const int64_t *pre, *post, *stride, *dilation;
};
dnn_desc dnn_convolution(struct dnn_build *b, cudnnDataType_t compute,
                         const struct dnn_window *window);
/* Finishes an operation, and adds it to the graph that dnn_graph_finish will make. */
void dnn_op_add(struct dnn_build *b, dnn_desc op, const char *what);

/* These add a pointwise operation, y = mode(x, b, t): dnn_pointwise makes the mode's descriptor,
 * which may get more attributes, and dnn_pointwise_add the operation. `b` and `t` are NULL if the
 * mode has none. */
dnn_desc dnn_pointwise(struct dnn_build *build, cudnnPointwiseMode_t mode, cudnnDataType_t compute);
void dnn_pointwise_add(struct dnn_build *build, dnn_desc pointwise, dnn_desc x, dnn_desc b,
                       dnn_desc t, dnn_desc y);
/* Makes b->graph of the operations. */
void dnn_graph_finish(struct dnn_build *b);

/* FLOAT, HALF or BFLOAT16. False: cuDNN has no such type here. */
bool dnn_type(enum dtype dtype, cudnnDataType_t *out);

/* --- engines and configurations (dnn_engine.c); b->graph is finished --- */

struct dnn_engine {
    bool runtime;       /* compiles when a plan is made */
    bool down_converts; /* computes fp32 on fewer bits */
    bool tensor_core;
    bool half_sums;        /* sums partly on fewer bits than it is told to */
    bool coarse;           /* uses a transform that costs digits */
    int32_t kernel_config; /* highest value of its KERNEL_CFG knob; -1: it has none */
};

/* Number of engines of the graph's pool, usable or not; at most DNN_ENGINES_MAX. */
uint32_t dnn_engine_count(struct dnn_build *b);
/* Whether engine `index` takes the graph here. False is an answer and does not stick to the
 * build. */
bool dnn_engine_read(struct dnn_build *b, int32_t index, struct dnn_engine *out);
/* Gives the configurations that cuDNN would choose, best first. Returns their number; 0 also if
 * cuDNN cannot say. */
uint32_t dnn_heuristic(struct dnn_build *b, uint32_t max, struct dnn_config *out);

/* Writes "e41 cfg6 splitk2", for example. */
void dnn_config_text(const struct dnn_config *config, char *out, size_t size);
/* Convert to and from a tactic's blob: 2 + 2 n numbers of 4 bytes. dnn_config_read checks
 * everything. */
enum { DNN_CONFIG_BYTES_MAX = 4 * (2 + 2 * DNN_KNOBS_MAX) };
uint32_t dnn_config_write(const struct dnn_config *config, uint8_t *out);
bool dnn_config_read(const uint8_t *blob, uint32_t size, struct dnn_config *out);

/* --- execution plans (dnn_plan.c) --- */

struct dnn_plan;

/* What a plan is made of. `spec` is hashed, so its padding bytes must be zero. */
struct dnn_recipe {
    const void *spec;
    size_t spec_size;
    void (*build)(struct dnn_build *b, const void *spec); /* adds operations */
    struct dnn_config config;
};

/* Gives the plan from the device's table, or loads it from `code` (NULL: there is none), or makes
 * it; the caller gets a reference. FAILED_PRECONDITION: this device cannot have it. Any thread may
 * call this. */
enum status dnn_plan_get(struct cuda_dnn *dnn, const struct dnn_recipe *recipe, const void *code,
                         uint64_t code_size, struct dnn_plan **out, struct error *err);
/* The same for a tactic, which may have code; an error names its node. */
enum status dnn_plan_of(struct cuda_device *device, const struct ir_node *node,
                        const struct tactic *tactic, const struct dnn_recipe *recipe,
                        struct dnn_plan **out, struct error *err);
void dnn_plan_put(struct cuda_dnn *dnn, struct dnn_plan *plan); /* NULL is fine */
dnn_desc dnn_plan_desc(const struct dnn_plan *plan);
uint64_t dnn_plan_workspace(const struct dnn_plan *plan);
/* The plan as bytes that dnn_plan_get takes back for the same recipe. */
enum status dnn_plan_code(const struct dnn_plan *plan, struct arena *arena, const void **code,
                          uint64_t *size, struct error *err);

/* --- running (dnn.c) --- */

/* The stream's handle, made if it has none. */
enum status dnn_stream_handle(struct backend_stream *stream, cudnnHandle_t *out, struct error *err);
enum status dnn_error(struct error *err, cudnnStatus_t code, const char *what);

enum { DNN_BINDINGS_MAX = 24 };

/* The addresses of a launch, by tensor. The descriptor is made again only when one of them has
 * changed. */
struct dnn_pack {
    dnn_desc desc;
    uint32_t n;
    int64_t uid[DNN_BINDINGS_MAX];
    void *address[DNN_BINDINGS_MAX];
    void *workspace;
};
enum status dnn_pack_run(struct dnn_pack *pack, struct backend_stream *stream,
                         const struct dnn_plan *plan, void *const *addresses, void *workspace,
                         const char *name, struct error *err);
void dnn_pack_deinit(struct dnn_pack *pack);

/* What dnn_graph.c and dnn_plan.c need of struct cuda_dnn. */
enum status dnn_handle_take(struct cuda_dnn *dnn, cudnnHandle_t *out, struct error *err);
void dnn_handle_give(struct cuda_dnn *dnn, cudnnHandle_t handle);
dnn_desc dnn_properties(const struct cuda_dnn *dnn); /* NULL with a device */
void dnn_compiler_hold(struct cuda_dnn *dnn);
struct dnn_plans *dnn_plans(struct cuda_dnn *dnn);
struct dnn_plans *dnn_plans_new(void);
void dnn_plans_free(struct dnn_plans *plans);
void dnn_plans_drop(struct dnn_plans *plans);

#endif
