/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns ONNX into our graph. The file is mapped and decoded in place with nanopb against our own
 * subset of the schema (onnx.proto3, opset 7 and later); one row of a table maps each node.
 *
 * Shapes are static: the caller binds symbolic dimensions. The evaluator that the caller passes
 * computes on the way whatever depends on shapes and constants alone (the importer itself knows no
 * backend). A node that is not supported is refused with op, node name, opset and reason
 * (UNIMPLEMENTED).
 */
#ifndef INFERD_ENGINE_IMPORT_ONNX_H
#define INFERD_ENGINE_IMPORT_ONNX_H

#include "base/error.h"
#include "base/log.h"
#include "engine/ir/ir.h"

/* Computes a node whose inputs are all constants. Outputs are dense, row-major, already
 * allocated. */
struct ir_evaluator {
    enum status (*eval)(void *user, const struct ir_graph *graph, const struct ir_node *node,
                        const void *const *inputs, void *const *outputs, struct error *err);
    void *user;
};

#define ONNX_INSTANCES INT64_MIN /* a dimension that has as many as `batch` says */

struct onnx_dim {
    const char *name; /* the dim_param in the file, or INPUT:AXIS, which goes before */
    int64_t value;    /* or ONNX_INSTANCES */
};

/*
 * The value of a graph input, for models whose shapes depend on one (the second operand of a
 * Reshape, say). The value is used only where the graph cannot be built without it; the result then
 * does not have this input. Its shape also fills in the dimensions that the file leaves open.
 * `view.data` may go away after the import.
 *
 * With `text`, which is numbers with commas between (or true, false), there is no view: the input
 * is a constant of the model, in any case. Its shape is the input's; one number fills it.
 */
struct onnx_value {
    const char *name;
    struct tensor_view view;
    const char *text;
};

/*
 * What an import leaves to be computed when a request has come: the nodes whose shapes depend on
 * values that only a request tells, and those behind them. They stay ONNX nodes, in a model of
 * their own, the tail. Its inputs are the outputs of the graph, in their order; its outputs are the
 * model's. onnx_compute runs it.
 */
struct onnx_tail_output {
    const char *name; /* the file's */
    enum dtype dtype;
    struct shape shape; /* -1: a request tells */
    bool unranked;      /* the file does not tell its rank, and `shape` means nothing */
};

enum { ONNX_MAX_BODIES = 16 };

struct onnx_tail {
    /* Keeps the bytes of a constant that the tail reads; *offset tells where, from the beginning of
     * what onnx_tail_open is given as `store`. NULL: the tail is not to be opened. */
    enum status (*keep)(void *user, const void *data, size_t size, uint64_t *offset,
                        struct error *err);
    void *user;
    uint32_t n_nodes; /* 0: nothing is left, and the rest means nothing */
    uint32_t n_outputs;
    struct onnx_tail_output outputs[IR_MAX_IO];
    void *model; /* malloc-ed */
    size_t size;
    /* Graphs of loops' bodies, for the caller to free: one iteration each, to be run by
     * onnx_computing. They read constants of the graph that was imported. */
    struct ir_graph *bodies[ONNX_MAX_BODIES];
    uint32_t n_bodies;
};

struct onnx_options {
    /* Bound to the first dimension of every graph input where it is symbolic (or 0 or -1). Callers
     * pass at least 1: with 0 such a dimension stays open, which is an error. */
    int64_t batch;
    const struct onnx_dim *dims; /* values for the other symbolic dimensions */
    uint32_t n_dims;
    /* `dims` say which dimensions count instances: beside those, only the ones that are called a
     * batch do. */
    bool said;
    const struct onnx_value *values;
    uint32_t n_values;
    struct ir_evaluator evaluator;
    const struct log_sink *log;
    struct onnx_tail *tail; /* NULL: what would be left to a tail is refused */
    /* If not NULL: becomes the number of steps that recurrent layers and loops of the model take.
     * If it changes with `batch`, the first dimension of the inputs is time and does not count
     * instances. */
    uint64_t *steps;
};

/* A model file that is held open: mapped once, imported once for each profile. */
struct onnx_model;

enum status onnx_open(const char *path, struct onnx_model **out, struct error *err);
/* Opens a model from an open file. Its external data lies below `folder`; -1: it may have none. The
 * caller keeps the descriptors; `name` is for error texts. */
enum status onnx_open_fd(int fd, int folder, const char *name, struct onnx_model **out,
                         struct error *err);
enum status onnx_open_memory(
    const void *data, size_t size, struct onnx_model **out,
    struct error *err); /* no external data; bytes must outlive the model */
void onnx_close(
    struct onnx_model *model); /* graphs imported from it stay good: they hold a reference */

/* Whether some dimension of the inputs seems to count instances with these options: one that has no
 * value by `dims`, or that is said to count them there. *named: it is called a batch, or is said to
 * count them; otherwise it is merely the first dimension of an input. */
bool onnx_is_batched(const struct onnx_model *model, const struct onnx_options *options,
                     bool *named);

/* Says whether the name seems to count instances: it has "batch" in it, or is that of an input's
 * first dimension, unless another one has "batch" in it and this one is also elsewhere. Any
 * dimension of that name counts instances, and so does a first one without a name. */
bool onnx_is_batch_dim(const struct onnx_model *model, const char *name);

/* The name of a symbolic dimension of an input, which an onnx_dim could bind. NULL: there is no
 * such input or dimension, or it is fixed or has no name. */
const char *onnx_input_dim(const struct onnx_model *model, const char *input, uint32_t axis);

/* The inputs that are no initializers, and their dimensions. */
struct onnx_axis_info {
    const char *name; /* NULL: it has none */
    int64_t fixed;    /* -1: it is symbolic */
    bool batch;       /* it seems to count instances, */
    bool named;       /* because it is called a batch */
};
uint32_t onnx_n_inputs(const struct onnx_model *model);
/* The input's name; *rank: UINT32_MAX if it has no shape. */
const char *onnx_input(const struct onnx_model *model, uint32_t index, uint32_t *rank);
struct onnx_axis_info onnx_input_axis(const struct onnx_model *model, uint32_t index,
                                      uint32_t axis);

/* The model's bytes, for a digest. */
const void *onnx_bytes(const struct onnx_model *model, size_t *size);

enum status onnx_import(struct onnx_model *model, const struct onnx_options *options,
                        struct ir_graph **out, struct error *err);

/* --- tails --- */

/* Opens a tail that an import has made; all bytes must outlive the model. Nothing in them is
 * trusted. */
enum status onnx_tail_open(const void *data, size_t size, const void *store, size_t store_size,
                           struct onnx_model **out, struct error *err);
uint32_t onnx_tail_inputs(const struct onnx_model *tail);
/* The name and the declared type of an output; NULL: there is no output of this number. */
const char *onnx_tail_output_name(const struct onnx_model *tail, uint32_t index, enum dtype *dtype);

/*
 * Computes all nodes of a model, one after the other, each by the evaluator as soon as its
 * operands' shapes and values are there. Any number of threads may do so at once.
 *
 * `inputs` has a view for each input of the model. `outputs` gets a view for each of its outputs;
 * their bytes are good until *graph, which the caller frees, the inputs', or those of `memory` are
 * gone.
 * RESOURCE_EXHAUSTED: more than `memory_max` bytes are needed, or too many steps. OUT_OF_RANGE,
 * INVALID_ARGUMENT and others: a node fails for these values.
 *
 * A loop for which there is a body that fits is run by it, an iteration at a time; others are run
 * node by node.
 */
struct onnx_port {
    const char *name;
    enum dtype dtype;
    struct shape shape;
    size_t offset; /* of an output, in the memory of all outputs; a multiple of 64 */
};

/* A graph of onnx_tail.bodies that is ready to run. */
struct onnx_body {
    const char *name; /* the graph's */
    const struct onnx_port *inputs, *outputs;
    uint32_t n_inputs, n_outputs;
    size_t out_bytes;
    /* Runs it once. All addresses are multiples of 64. */
    enum status (*run)(void *user, const void *const *inputs, void *outputs, struct error *err);
    void *user;
};

struct onnx_computing {
    const struct tensor_view *inputs;
    struct ir_evaluator evaluator;
    struct onnx_memory
        *memory;       /* of the caller, who uses it for one computation at a time; or NULL */
    size_t memory_max; /* bytes of all values that are there at a time */
    const struct onnx_body *bodies;
    uint32_t n_bodies;
};
enum status onnx_compute(struct onnx_model *model, const struct onnx_computing *how,
                         struct tensor_view *outputs, struct ir_graph **graph, struct error *err);

/* Memory that one computation leaves to the next. onnx_memory_rest comes behind each, also behind
 * one that failed. */
struct onnx_memory;
struct onnx_memory *onnx_memory_new(void); /* NULL: there is none */
void onnx_memory_free(struct onnx_memory *memory);
void onnx_memory_rest(struct onnx_memory *memory);

/* --- what a model is and takes, without building it --- */

enum onnx_axis_state {
    ONNX_AXIS_KNOWN,  /* the file or the options give its value */
    ONNX_AXIS_COUNTS, /* it seems to count instances */
    ONNX_AXIS_OPEN,   /* it needs a value */
};

struct onnx_survey_value {
    const char *name, *type; /* type: "FP32", or the file's name of a type that is not supported */
    bool has_shape;
    uint32_t rank;
    const char *dims[SHAPE_MAX_RANK]; /* each is "224", "N", or "?" if it is open and has no name */
    int64_t sizes[SHAPE_MAX_RANK];    /* -1: it is open */
    enum onnx_axis_state axes[SHAPE_MAX_RANK]; /* of inputs alone */
};

/* `n` nodes of an op. In the list of refusals `why` is the reason and `first` the name of one of
 * the nodes; op NULL: the model itself is refused. */
struct onnx_finding {
    const char *op, *first, *why;
    uint32_t n;
};

enum { ONNX_FINDINGS_MAX = 256 };

struct onnx_survey {
    struct arena *arena;
    struct onnx_model *model; /* a reference, because texts lie in the file */
    const char *opsets;       /* "17, com.example 1" */
    const char *unbound;   /* a dimension without a value: no shapes were looked at; NULL: none */
    uint64_t weight_bytes; /* the size of all initializers */
    uint32_t n_nodes;      /* with the nodes of branches and loops */
    uint32_t n_late;       /* nodes that a tail would have */
    uint32_t n_inputs, n_outputs, n_ops, n_refused;
    struct onnx_survey_value *inputs, *outputs;
    struct onnx_finding ops[ONNX_FINDINGS_MAX], refused[ONNX_FINDINGS_MAX];
    bool silent;    /* used while the survey is made: the last failure is already in the list */
    bool exhausted; /* used while the survey is made: there was no memory for a finding */
};

/* Finds everything that an import with these options would refuse. Each op is looked up in the
 * table of ops. Unless a dimension is unbound, an import then finds the rest, except in nodes that
 * depend on a refused one. Findings beyond ONNX_FINDINGS_MAX are dropped. A failure says nothing
 * about the model alone (no memory, say). */
enum status onnx_survey(struct onnx_model *model, const struct onnx_options *options,
                        struct onnx_survey **out, struct error *err);
void onnx_survey_free(struct onnx_survey *survey); /* NULL is fine */

/* Reads a TensorProto file (.pb), as in the published test data. `out->data` is malloc-ed, dense,
 * row-major. */
enum status onnx_tensor_read(const char *path, struct tensor_view *out, char **name,
                             struct error *err);

#endif
