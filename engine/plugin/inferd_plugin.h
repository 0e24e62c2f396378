/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Plugins of inferd: ops of one's own, from a shared object.
 *
 * This header is the manual; it is all that a plugin needs to be compiled. A plugin is a shared
 * object with one function, inferd_plugin, that returns a table of ops:
 *
 *     const struct inferd_plugin *inferd_plugin(void)
 *     {
 *         static const struct inferd_plugin plugin = {
 *             INFERD_PLUGIN_ABI, sizeof(struct inferd_plugin_op), "mine", "1.0", 1, ops};
 *         return &plugin;
 *     }
 *
 * A node of an ONNX model whose domain and op are those of a row becomes a node of the plan, which
 * notes the plugin's name, version and digest: a plan runs with the very file that it was built
 * with, and no other. Files are named by the operator alone (`plugins:` in inferd.yaml, --plugin,
 * inferd_engine_device_options), never by a model, a plan or a request. The code runs with all the
 * rights of the process: what it writes beyond its tensors, or a crash of it, is the crash of the
 * process. What it returns is checked.
 *
 * -- Rules ---------------------------------------------------------------------------------------
 *
 *   Functions are called on any thread, several at once, and keep nothing between calls that is not
 *   guarded. They are pure: equal nodes and inputs give equal outputs. If dimension 0 counts
 *   instances, instance k of an output depends on instance k of the inputs alone; otherwise say
 *   INFERD_PLUGIN_MIXES.
 *   Tensors are dense and row-major. They are aligned to 64, and do not overlap. Constants of the
 *   model come as inputs.
 *   A function that fails returns a number other than 0, and writes one line into `why`.
 *   The plugin stays loaded until the process ends.
 */
#ifndef INFERD_ENGINE_PLUGIN_INFERD_PLUGIN_H
#define INFERD_ENGINE_PLUGIN_INFERD_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes when a plugin has to be compiled again. A plugin of another number is refused. */
#define INFERD_PLUGIN_ABI 1

enum { INFERD_PLUGIN_MAX_RANK = 8, INFERD_PLUGIN_MAX_INPUTS = 64, INFERD_PLUGIN_MAX_OUTPUTS = 4 };

enum inferd_plugin_dtype {
    INFERD_PLUGIN_NONE = 0,
    INFERD_PLUGIN_BOOL = 1, /* one byte, 0 or 1 */
    INFERD_PLUGIN_UINT8 = 2,
    INFERD_PLUGIN_UINT16 = 3,
    INFERD_PLUGIN_UINT32 = 4,
    INFERD_PLUGIN_UINT64 = 5,
    INFERD_PLUGIN_INT8 = 6,
    INFERD_PLUGIN_INT16 = 7,
    INFERD_PLUGIN_INT32 = 8,
    INFERD_PLUGIN_INT64 = 9,
    INFERD_PLUGIN_FP16 = 10,
    INFERD_PLUGIN_BF16 = 11,
    INFERD_PLUGIN_FP32 = 12,
    INFERD_PLUGIN_FP64 = 13
};

struct inferd_plugin_tensor {
    enum inferd_plugin_dtype dtype;
    uint32_t rank;
    int64_t dim[INFERD_PLUGIN_MAX_RANK];
};

enum inferd_plugin_kind {
    INFERD_PLUGIN_INTS = 1,   /* ONNX's INT is one of them */
    INFERD_PLUGIN_FLOATS = 2, /* and FLOAT */
    INFERD_PLUGIN_TEXT = 3    /* STRING: `count` bytes and a 0 */
};

struct inferd_plugin_attr {
    const char *name;
    enum inferd_plugin_kind kind;
    uint32_t count;
    const int64_t *ints; /* NULL if it is of another kind; so are the others */
    const float *floats;
    const char *text;
};

/* A node as the model has it. The arrays are gone when the function returns. */
struct inferd_plugin_node {
    uint32_t n_inputs, n_outputs, n_attrs;
    const struct inferd_plugin_tensor *inputs;
    const struct inferd_plugin_tensor *outputs; /* NULL while they are inferred */
    const struct inferd_plugin_attr *attrs;
};

/* Where a kernel runs. */
enum inferd_plugin_where { INFERD_PLUGIN_CPU = 0, INFERD_PLUGIN_CUDA = 1 };

struct inferd_plugin_call {
    size_t size; /* of this struct: members may be added at its end */
    const struct inferd_plugin_node *node;
    const void *const *inputs; /* n_inputs addresses; on CUDA of the device's memory */
    void *const *outputs;
    void *workspace;  /* as many bytes as the kernel asked for, aligned to 64 */
    void *stream;     /* CUDA: the cudaStream_t on which to launch; NULL on the CPU */
    uint32_t threads; /* CPU: as many threads as the kernel may use; 1 on CUDA */
    char *why;        /* for the reason of a failure */
    size_t why_size;
};

/*
 * One way to run an op. There may be several; each that takes the node is timed when a plan is
 * built, on a GPU those for CUDA and those for the CPU with the way there and back, and the fastest
 * is noted in the plan by its name.
 *
 * takes      says whether the kernel runs this node; NULL: it runs every node of the op
 * workspace  bytes of scratch memory that a run needs; NULL: none
 * run        computes the outputs. On CUDA it puts launches onto the stream and returns what
 *            cudaGetLastError says of them: it may not wait, allocate device memory or use another
 *            stream, because launches are captured, and the capture is replayed. The device is the
 *            calling thread's current one. The stream is any CUDA runtime's, so the plugin may be
 *            linked to its own (nvcc's default) or to a shared one
 */
struct inferd_plugin_kernel {
    const char *name; /* of [A-Za-z0-9._-], 1 to 32 */
    enum inferd_plugin_where where;
    int (*takes)(const struct inferd_plugin_node *node);
    uint64_t (*workspace)(const struct inferd_plugin_node *node);
    int (*run)(const struct inferd_plugin_call *call);
};

/*
 * INFERD_PLUGIN_MIXES  rows do not belong to one instance each
 * INFERD_PLUGIN_TYPES  kernels for CUDA that have `takes` are also offered nodes with FP16 or BF16
 *                      in place of FP32, in all tensors at once, where the plan may have such
 *                      types; `takes` looks at types. `infer` and the reference see the node as
 *                      the model has it
 */
enum { INFERD_PLUGIN_MIXES = 1, INFERD_PLUGIN_TYPES = 2 };

/*
 * An op. `infer` checks the inputs' types and shapes and the attributes, and sets outputs[i] for
 * i < *n_outputs <= INFERD_PLUGIN_MAX_OUTPUTS. It is asked when a model is imported, and again when
 * a plan is read. kernels[0] is the reference: a CPU kernel that takes every node that `infer`
 * accepts, and that the others are compared with.
 */
struct inferd_plugin_op {
    const char *domain, *name; /* as in the model; the domain is not ONNX's own */
    uint32_t flags;            /* of INFERD_PLUGIN_MIXES and _TYPES, or 0 */
    int (*infer)(const struct inferd_plugin_node *node, struct inferd_plugin_tensor *outputs,
                 uint32_t *n_outputs, char *why, size_t why_size);
    uint32_t n_kernels;
    const struct inferd_plugin_kernel *kernels;
};

struct inferd_plugin {
    uint32_t abi;        /* INFERD_PLUGIN_ABI */
    uint32_t op_size;    /* sizeof(struct inferd_plugin_op) */
    const char *name;    /* of [A-Za-z0-9._-], 1 to 64, as the version */
    const char *version; /* "1.0" */
    uint32_t n_ops;      /* 1 to 64 */
    const struct inferd_plugin_op *ops;
};

/* The plugin's only symbol. */
__attribute__((visibility("default"))) const struct inferd_plugin *inferd_plugin(void);

#ifdef __cplusplus
}
#endif

#endif
