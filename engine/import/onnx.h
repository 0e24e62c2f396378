/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ONNX -> ir. The file is mapped, decoded in place with nanopb against our own subset of the
 * schema (onnx.proto3, opset 7 and later), and every node is mapped by one row of a table.
 *
 * Shapes are static: the caller binds symbolic dimensions. Whatever depends on shapes and constants
 * alone is evaluated on the way, by the evaluator that the caller passes (import knows no backend).
 * What is not supported is refused with op, node name, opset and reason (UNIMPLEMENTED).
 */
#ifndef INFERD_ENGINE_IMPORT_ONNX_H
#define INFERD_ENGINE_IMPORT_ONNX_H

#include "base/error.h"
#include "base/log.h"
#include "engine/ir/ir.h"

/* Computes a node whose inputs are all constants; outputs are dense, row-major, already allocated.
 */
struct ir_evaluator {
    enum status (*eval)(void *user, const struct ir_graph *graph, const struct ir_node *node,
                        const void *const *inputs, void *const *outputs, struct error *err);
    void *user;
};

struct onnx_dim {
    const char *name; /* the dim_param in the file */
    int64_t value;
};

/*
 * The value of a graph input, for models whose shapes depend on one (the second operand of a
 * Reshape, say). It is used only where the graph cannot be built without it; the input is then none
 * of the result's. Its shape is taken for what the file leaves open. `view.data` may go away after
 * the import.
 */
struct onnx_value {
    const char *name;
    struct tensor_view view;
};

struct onnx_options {
    /* Bound to the first dimension of every graph input whose first dimension is symbolic (or
     * 0/-1); 0: leave as -1 is an error, so callers pass 1 at least. */
    int64_t batch;
    const struct onnx_dim *dims; /* values for the other symbolic dimensions */
    uint32_t n_dims;
    const struct onnx_value *values;
    uint32_t n_values;
    struct ir_evaluator evaluator;
    const struct log_sink *log;
    /* If not NULL: becomes the number of steps that recurrent layers and loops of the model take.
     * If it changes with `batch`, the first dimension of the inputs is time, not instances. */
    uint64_t *steps;
};

/* A model file held open: mapped once, imported once per profile. */
struct onnx_model;

enum status onnx_open(const char *path, struct onnx_model **out, struct error *err);
/* The same of an open file; its external data lie below `folder`, -1: it may have none. Takes no
 * ownership of the descriptors; `name` is for error texts. */
enum status onnx_open_fd(int fd, int folder, const char *name, struct onnx_model **out,
                         struct error *err);
enum status onnx_open_memory(
    const void *data, size_t size, struct onnx_model **out,
    struct error *err); /* no external data; bytes must outlive the model */
void onnx_close(
    struct onnx_model *model); /* graphs imported from it stay good: they hold a reference */

/* True if the first dimension of every graph input (initializers aside) is symbolic. */
bool onnx_is_batched(const struct onnx_model *model);

/* An input's first dimension has this name: it counts instances, and may turn up elsewhere. */
bool onnx_is_batch_dim(const struct onnx_model *model, const char *name);

/* The name of a symbolic dimension of an input: what an onnx_dim would bind. NULL if there is no
 * such input or dimension, or if it is fixed or has no name. */
const char *onnx_input_dim(const struct onnx_model *model, const char *input, uint32_t axis);

/* The model's bytes, for a digest. */
const void *onnx_bytes(const struct onnx_model *model, size_t *size);

enum status onnx_import(struct onnx_model *model, const struct onnx_options *options,
                        struct ir_graph **out, struct error *err);

/* --- what a model is and takes, without building it --- */

struct onnx_survey_value {
    const char *name, *type; /* "FP32"; the file's name of a type that is not supported */
    bool has_shape;
    uint32_t rank;
    const char *dims[SHAPE_MAX_RANK]; /* "224", "N", or "?" for one that is open and has no name */
};

/* `n` nodes of an op; `why`: they are refused, `first` being one of them. op NULL: the model is. */
struct onnx_finding {
    const char *op, *first, *why;
    uint32_t n;
};

enum { ONNX_FINDINGS_MAX = 256 };

struct onnx_survey {
    struct arena *arena;
    struct onnx_model *model; /* a reference: texts are the file's */
    const char *opsets;       /* "17, com.example 1" */
    const char *unbound;   /* a dimension without a value: shapes were not looked at; NULL: none */
    uint64_t weight_bytes; /* of initializers */
    uint32_t n_nodes;      /* with those of branches and loops */
    uint32_t n_inputs, n_outputs, n_ops, n_refused;
    struct onnx_survey_value *inputs, *outputs;
    struct onnx_finding ops[ONNX_FINDINGS_MAX], refused[ONNX_FINDINGS_MAX];
    bool silent;    /* while it is made: what failed has been taken */
    bool exhausted; /* the same: there was no memory for a finding */
};

/* Everything that an import with these options would refuse: each op by the table, and unless a
 * dimension is unbound what is found by importing, but for nodes behind one that was refused. More
 * than ONNX_FINDINGS_MAX are cut. Fails for what says nothing about the model alone. */
enum status onnx_survey(struct onnx_model *model, const struct onnx_options *options,
                        struct onnx_survey **out, struct error *err);
void onnx_survey_free(struct onnx_survey *survey); /* NULL is fine */

/* A TensorProto file (.pb), as in the published test data. `*data` is malloc-ed, dense, row-major.
 */
enum status onnx_tensor_read(const char *path, struct tensor_view *out, char **name,
                             struct error *err);

#endif
