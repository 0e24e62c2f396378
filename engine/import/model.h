/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ONNX model as it lies in its file: records in an arena that point into the mapped bytes.
 * decode.c makes the records, and everything else in this folder reads them. Only lengths have been
 * checked: names are terminated copies, but numbers are as the file gives them.
 */
#ifndef INFERD_ENGINE_IMPORT_MODEL_H
#define INFERD_ENGINE_IMPORT_MODEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/error.h"
#include "base/shape.h"
#include "engine/import/file.h"

enum {
    ONNX_MAX_NAME = 4096,
    ONNX_MAX_ATTRS = 128,         /* of one node */
    ONNX_MAX_OPSETS = 64,         /* of one model */
    ONNX_MAX_FUNCTIONS = 1 << 16, /* of one model */
    ONNX_MAX_VALUES = 1 << 20,    /* initializers, and inputs or outputs of a graph */
    ONNX_MAX_EXTERNAL_FILES = 64, /* of one model */
    ONNX_MAX_DEPTH = 8,           /* of graphs within graphs */
};

/* A stretch of the file. */
struct span {
    const uint8_t *data;
    size_t size;
};

/* TensorProto.DataType; the numbers are the schema's. */
enum onnx_type {
    ONNX_FLOAT = 1,
    ONNX_UINT8 = 2,
    ONNX_INT8 = 3,
    ONNX_UINT16 = 4,
    ONNX_INT16 = 5,
    ONNX_INT32 = 6,
    ONNX_INT64 = 7,
    ONNX_STRING = 8,
    ONNX_BOOL = 9,
    ONNX_FLOAT16 = 10,
    ONNX_DOUBLE = 11,
    ONNX_UINT32 = 12,
    ONNX_UINT64 = 13,
    ONNX_BFLOAT16 = 16,
    ONNX_FLOAT8E4M3FN = 17,
    ONNX_FLOAT8E4M3FNUZ = 18,
    ONNX_FLOAT8E5M2 = 19,
    ONNX_FLOAT8E5M2FNUZ = 20,
    ONNX_UINT4 = 21,
    ONNX_INT4 = 22,
};

/* DTYPE_NONE for types that the engine does not have (strings, complex, 8-bit floats, 4-bit
 * integers). */
enum dtype onnx_dtype(int64_t type);
/* Knows FLOAT8E4M3FN, too, which constants and what lies between scales may have. */
enum dtype onnx_dtype_inside(int64_t type);

/* "FLOAT"; "unknown" outside the table. Static storage. */
const char *onnx_type_name(int64_t type);

struct onnx_tensor {
    const char *name; /* "" if it has none */
    int32_t type;     /* enum onnx_type, or any other number */
    struct shape shape;
    struct span body; /* the whole message: typed fields are decoded when the bytes are wanted */
    struct span raw;  /* data NULL: there is no raw_data */
    bool external;    /* data_location says that the bytes are in another file */
    const char *location;    /* of external data; NULL: none given */
    uint64_t offset, length; /* of external data; length UINT64_MAX: to the end of the file */
};

/* AttributeProto.AttributeType; the numbers are the schema's. */
enum onnx_attr_type {
    ONNX_ATTR_NONE = 0,
    ONNX_ATTR_FLOAT = 1,
    ONNX_ATTR_INT = 2,
    ONNX_ATTR_STRING = 3,
    ONNX_ATTR_TENSOR = 4,
    ONNX_ATTR_GRAPH = 5,
    ONNX_ATTR_FLOATS = 6,
    ONNX_ATTR_INTS = 7,
    ONNX_ATTR_STRINGS = 8,
    ONNX_ATTR_TENSORS = 9,
    ONNX_ATTR_GRAPHS = 10,
    ONNX_ATTR_SPARSE_TENSOR = 11,
    ONNX_ATTR_SPARSE_TENSORS = 12,
};

struct onnx_attr {
    const char *name;
    enum onnx_attr_type type;
    float f;
    int64_t i;
    struct span s;
    struct onnx_tensor *tensor; /* of ONNX_ATTR_TENSOR */
    struct onnx_graph *graph;   /* of ONNX_ATTR_GRAPH; NULL: too deep */
    uint32_t n_ints, n_floats, n_strings;
    int64_t *ints;
    float *floats;
    struct span *strings;
};

struct onnx_node {
    struct span body;               /* the whole message */
    const char *name, *op, *domain; /* "" if absent; domain "ai.onnx" is stored as "" */
    uint32_t n_inputs, n_outputs, n_attrs;
    const char **inputs, **outputs; /* "" for one left out */
    struct onnx_attr *attrs;
};

struct onnx_axis {
    int64_t value;     /* -1: not given */
    const char *param; /* name of the dimension, or NULL */
};

/* Some exporters write 0 or -1 for "any". */
static inline bool onnx_axis_is_fixed(const struct onnx_axis *axis)
{
    return !axis->param && axis->value > 0;
}

/* A graph input or output. */
struct onnx_value_info {
    const char *name;
    bool is_tensor;
    int32_t type;
    bool has_shape;
    uint32_t rank;
    struct onnx_axis dims[SHAPE_MAX_RANK];
};

/* The model's graph, or one in an attribute of a node: a branch, or the body of a loop. */
struct onnx_graph {
    struct span body;
    uint32_t depth; /* 0: the model's */
    const char *name;
    uint32_t n_nodes, n_initializers, n_inputs, n_outputs, n_sparse;
    struct onnx_node *nodes;
    struct onnx_tensor *initializers;
    struct onnx_value_info *inputs, *outputs;
    struct onnx_graph *next; /* in the model's list of all graphs */
};

struct onnx_opset {
    const char *domain;
    int64_t version;
};

/* A function of the model, which nodes call as an op; only its name is read. */
struct onnx_function {
    const char *name, *domain;
};

struct onnx_external {
    const char *location;
    struct file_map map;
};

struct onnx_model {
    atomic_uint refs; /* rises relaxed, falls acquire-release: any thread may free the last graph */
    struct arena *arena;
    struct file_map file; /* data NULL: opened from memory */
    int folder;           /* descriptor of the model's folder, or -1: no external data */
    struct span bytes;
    struct span store; /* of a tail: what its tensors' external data points into */
    int64_t ir_version;
    uint32_t n_opsets, n_external, n_functions;
    struct onnx_opset *opsets;
    struct onnx_function *functions;
    struct onnx_graph graph;
    struct onnx_graph *last;        /* the end of the list that begins with `graph` */
    const char **initializer_names; /* the names of `graph`'s initializers, sorted */
    bool reordered;                 /* the nodes of a graph were not in order */
    /* Each file is mapped when it is first asked for; one import runs at a time. */
    struct onnx_external external[ONNX_MAX_EXTERNAL_FILES];
};

struct onnx_model *onnx_model_ref(struct onnx_model *model);
void onnx_model_unref(void *model); /* as ir_graph_hold wants it */
/* Puts the nodes of all graphs into an order in which they may run (order.c). */
enum status onnx_model_sort(struct onnx_model *model, struct error *err);
bool onnx_is_initializer(const struct onnx_model *model, const char *name);

#endif
