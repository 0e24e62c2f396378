/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a mapping function works with: the ONNX node at hand, and the graph that is being built.
 *
 * A mapping function turns one ONNX node into nodes of ours. It returns nothing: the first failure
 * sticks in the mapper, and every later call gives IR_NONE, an empty shape or the default, so that
 * a mapping reads like a formula. A loop over a shape's dimensions is therefore safe after a
 * failure, and only map_failed() tells that there was one.
 *
 * The emit_* functions make nodes. A node whose operands are all constants is evaluated at once if
 * that is cheap, so the tensor that they return may be a constant.
 */
#ifndef INFERD_ENGINE_IMPORT_MAP_H
#define INFERD_ENGINE_IMPORT_MAP_H

#include "engine/import/model.h"
#include "engine/import/onnx.h"
#include "engine/ir/ir.h"

enum {
    MAP_MAX_INTS = 256,  /* in a list of axes, sizes, pads */
    MAP_OPSET_LAST = 26, /* the newest opset that any row claims to know */
    MAP_MANY = UINT16_MAX,
    MAP_NAME_PART = 128, /* how much of a name goes into one of an inner graph */
};

struct mapper;

/* How many operands and outputs a node may have, and which operand (`typed`) has the row's element
 * type. Trailing operands that are left out do not count. */
struct map_arity {
    uint16_t min_in, max_in, max_out, typed;
};

/* One row of the table of ops (ops.c). `func` tells apart the rows that share a mapping function.
 * Operands and attributes are those of all opsets from `first` to `last`. */
struct map_op {
    const char *op;
    const char *domain; /* "" is ONNX's own */
    int first, last;    /* opsets for which the mapping is right */
    void (*map)(struct mapper *m);
    int64_t func;
    struct map_arity arity;
    uint32_t types; /* bit (1 << enum dtype): what the typed operand may be */
    uint64_t parts; /* bit (1 << enum ir_op): what the node becomes; 0: known at build time */
    /* "axis:i axes:I": names and types (i f s t g; I F S: lists; b: i of 0 or 1), or NULL */
    const char *attrs;
    const char *refuses; /* what is refused, in words, or NULL */
};

const struct map_op *map_op_at(uint32_t i); /* NULL behind the last row */

/* The row of all ops of plugins; NULL: no plugin has this op. */
const struct map_op *map_plugin_row(const char *domain, const char *op);
bool map_domain_known(const char *domain); /* some row is of this domain */
const struct map_op *map_op_find(const char *domain, const char *op, int64_t opset,
                                 const struct map_op **other_opset);

struct blocks; /* blocks.h */
struct late;   /* late.h */
struct value;  /* a name of the file and its tensor; map.c */
struct bytes;  /* a tensor of the file and the constant it has become; map.c */

/* The names of a graph. Names of the graphs around it can be seen too, unless the graph hides
 * them. */
struct scope {
    struct value *values; /* hash table */
    struct scope *outer;  /* NULL: the model's graph */
    const char *prefix;   /* what the names of its nodes begin with: "loop/3/" */
};

struct mapper {
    struct onnx_model *model;
    const struct onnx_options *options;
    struct ir_graph *graph;
    struct scope *scope;
    struct value *used;        /* names that some node or a graph reads; hash table */
    struct bytes *shared;      /* constants of graphs that are imported many times; hash table */
    uint32_t bound[IR_MAX_IO]; /* of graph input i: index into options->values, or IR_NONE */
    bool taken[IR_MAX_IO];     /* the value of input i has been used */
    size_t fold_budget;        /* bytes of constants that may still be computed */
    uint64_t fold_work;        /* bytes that these computations may still touch */
    uint32_t unrolled;         /* nodes imported so far from graphs within nodes */
    const struct onnx_node *node;
    const struct map_op *row;
    int64_t opset;
    const char *label; /* the node's name, or one made for it */
    uint32_t n_emitted;
    struct late *late;       /* nodes may be left to a tail (late.h); NULL: they may not */
    bool unknown;            /* the failure at hand is that only a request knows some value */
    bool computes;           /* all operands are known, and every node is evaluated */
    struct blocks *blocks;   /* where larger results of that go (blocks.h); NULL: into the graph */
    struct settled *settled; /* of the loop whose body is imported; NULL: there is none */
    bool settles;            /* values that are added now are settled */
    uint64_t steps;          /* the sum of the steps that map_sequence was told */
    const struct onnx_body *bodies; /* of loops of the model's graph */
    uint32_t n_bodies;
    bool notes;                 /* all names are noted, for another import of the same graph: */
    struct value *noted;        /* hash table */
    const struct mapper *trial; /* that has noted names; or NULL (assume.h) */
    bool assumes;               /* that import: there is */
    uint32_t assumed;           /* a flag whether all that was assumed is so */
    struct onnx_survey *survey; /* NULL: the first failure ends the import */
    enum status status;
    struct error *err;
};

struct ints {
    uint32_t n;
    int64_t v[MAP_MAX_INTS];
};

/* --- failing: the node's op, name and opset are put before the text --- */
void map_refuse(struct mapper *m, const char *fmt, ...) PRINTF(2, 3);  /* UNIMPLEMENTED */
void map_invalid(struct mapper *m, const char *fmt, ...) PRINTF(2, 3); /* INVALID_ARGUMENT */
/* UNIMPLEMENTED: only a request knows a value that the graph depends on. The node may be left to a
 * tail. */
void map_unknown(struct mapper *m, const char *fmt, ...) PRINTF(2, 3);
void map_exhausted(struct mapper *m); /* there is no memory, or a limit of the graph is reached */
void map_spent(struct mapper *m);     /* a request takes more memory than it may */
/* Fails with the error of a function that was called. "Not supported" and "out of memory" stay what
 * they are; any other status becomes INVALID_ARGUMENT, because the model is at fault. */
void map_failed_with(struct mapper *m, enum status status, const struct error *err);
static inline bool map_failed(const struct mapper *m)
{
    return m->status;
}

/* --- operands --- */
uint32_t map_in(struct mapper *m, uint32_t i);     /* it must be there */
uint32_t map_in_opt(struct mapper *m, uint32_t i); /* IR_NONE: left out */
uint32_t map_in_count(const struct mapper *m);     /* trailing absent ones not counted */
const struct shape *map_shape(const struct mapper *m, uint32_t tensor);
enum dtype map_dtype(const struct mapper *m, uint32_t tensor);
/* The product of dimensions first..last-1; fails on overflow. */
int64_t map_product(struct mapper *m, const struct shape *shape, uint32_t first, uint32_t last);
/* Notes that an axis of `steps` is walked step by step, so it holds no instances that could be
 * batched. */
void map_sequence(struct mapper *m, int64_t steps);
bool map_out_used(const struct mapper *m, uint32_t i);
void map_out(struct mapper *m, uint32_t i, uint32_t tensor);

/* --- attributes --- */
const struct onnx_attr *map_attr(const struct mapper *m, const char *name); /* or NULL */
int64_t map_attr_int(struct mapper *m, const char *name, int64_t fallback);
float map_attr_float(struct mapper *m, const char *name, float fallback);
bool map_attr_ints(struct mapper *m, const char *name, struct ints *out); /* false: not there */
bool map_attr_is(struct mapper *m, const char *name, const char *value, const char *fallback);
/* The index in `names` (NULL: no name has this index) of the attribute's value; refuses any other
 * value. */
int64_t map_attr_named(struct mapper *m, const char *name, const char *const *names, uint32_t n,
                       const char *fallback);

/* --- values known at build time --- */
/* Makes the tensor a constant, if that is possible: the inputs that it depends on must have values
 * (struct onnx_value), which then become part of the graph. False, without failing: it is not. */
bool map_make_known(struct mapper *m, uint32_t tensor);
/* Says whether map_make_known would succeed. Changes nothing in the graph. */
bool map_can_make_known(const struct mapper *m, uint32_t tensor);
/* These make the tensor known in the same way, but fail if that is not possible. */
const struct ir_tensor *map_known(struct mapper *m, uint32_t tensor); /* NULL: failed */
bool map_known_ints(struct mapper *m, uint32_t tensor, struct ints *out);
double map_known_number(struct mapper *m, uint32_t tensor); /* one element of any type */
int64_t map_known_int(struct mapper *m, uint32_t tensor);   /* one element, a whole number */
/* Element i of a constant as a double or an integer; the caller checks i. */
double map_element(const struct ir_tensor *tensor, size_t i);
int64_t map_element_int(const struct ir_tensor *tensor, size_t i);

/* Reads input i, or the attribute `name` if there is no such input; false: neither is there. */
bool map_ints(struct mapper *m, uint32_t i, const char *name, struct ints *out);

/* Counts a negative axis from the end; fails outside -rank..rank-1. */
uint32_t map_axis(struct mapper *m, int64_t axis, uint32_t rank);
/* Does the same for a list, which becomes sorted; fails if an axis is given twice. */
void map_axes(struct mapper *m, struct ints *axes, uint32_t rank);

/* --- nodes --- */
uint32_t emit_begin(struct mapper *m, enum ir_op op, uint32_t n_inputs, const uint32_t *inputs);
void emit_int(struct mapper *m, uint32_t node, enum ir_attr_key key, int64_t value);
void emit_float(struct mapper *m, uint32_t node, enum ir_attr_key key, float value);
void emit_ints(struct mapper *m, uint32_t node, enum ir_attr_key key, uint32_t n,
               const int64_t *values);
uint32_t emit_end(struct mapper *m, uint32_t node); /* infers; returns the first output */
void emit_end_all(struct mapper *m, uint32_t node, uint32_t n, uint32_t *outputs);

uint32_t emit_unary(struct mapper *m, enum ir_unary func, uint32_t x);
uint32_t emit_unary_ab(struct mapper *m, enum ir_unary func, uint32_t x, float alpha, float beta);
uint32_t emit_binary(struct mapper *m, enum ir_binary func, uint32_t a, uint32_t b);
uint32_t emit_select(struct mapper *m, uint32_t cond, uint32_t x, uint32_t y);
uint32_t emit_cast(struct mapper *m, uint32_t x, enum dtype to);
uint32_t emit_reshape(struct mapper *m, uint32_t x, const struct shape *shape);
uint32_t emit_transpose(struct mapper *m, uint32_t x, uint32_t n, const int64_t *perm);
uint32_t emit_expand(struct mapper *m, uint32_t x, const struct shape *shape);
uint32_t emit_reduce(struct mapper *m, enum ir_reduce func, uint32_t x, const struct ints *axes,
                     bool keepdims);
uint32_t emit_matmul(struct mapper *m, uint32_t a, uint32_t b, uint32_t bias);
uint32_t emit_concat(struct mapper *m, uint32_t n, const uint32_t *inputs, uint32_t axis);
/* One axis of x, from `start` up to, not including, `end`. */
uint32_t emit_slice(struct mapper *m, uint32_t x, uint32_t axis, int64_t start, int64_t end);
uint32_t emit_gather(struct mapper *m, uint32_t x, uint32_t indices, uint32_t axis);
/* Every `step`-th element of one axis; a step of -1 reverses it. */
uint32_t emit_strided(struct mapper *m, uint32_t x, uint32_t axis, int64_t step);

/* --- constants; their data lies in the graph's arena --- */
void *emit_room(struct mapper *m, const struct shape *shape, enum dtype dtype); /* or NULL */
/* The same for what a node gives under its names alone; its bytes mean nothing yet. */
void *emit_brief_room(struct mapper *m, const struct shape *shape, enum dtype dtype);
uint32_t emit_constant(struct mapper *m, enum dtype dtype, const struct shape *shape,
                       const void *data);
uint32_t emit_scalar(struct mapper *m, enum dtype dtype, double value);      /* rank 0 */
uint32_t emit_int_list(struct mapper *m, uint32_t n, const int64_t *values); /* INT64 [n] */
/* Writes element i; integers truncate and wrap. */
void emit_number(void *room, enum dtype dtype, size_t i, double value);

/* --- graphs within the node --- */

/* The graph of an attribute; NULL, and failed, if it is missing or lies too deep. */
const struct onnx_graph *map_graph(struct mapper *m, const char *name);
/* Imports a graph. `inputs` become its inputs, and `outputs` gets its outputs. The names of its
 * nodes begin with this node's name and `tag`: "loop/3/Conv_1". `settled` is NULL unless
 * the graph is a loop's body. */
void map_body(struct mapper *m, const struct onnx_graph *graph, const char *tag,
              struct settled *settled, const uint32_t *inputs, uint32_t *outputs);
/* Counts the nodes of such a graph; fails if there are too many in all. */
void map_unroll(struct mapper *m, const struct onnx_graph *graph);
/* Whether the body gives the value `from` as its output `to`, as it is. */
bool map_hands_on(const struct onnx_graph *body, const char *from, const char *to);

/* --- for import.c --- */
/* Check the node against its row: first the number of operands, and the attributes; then, when the
 * operands have been imported, their types. */
void map_check_form(struct mapper *m);
void map_check_operands(struct mapper *m);
/* Finds the node's row and checks its form; fails if there is no row, or the form does not fit. */
void map_node_begin(struct mapper *m, const struct onnx_node *node, uint32_t index);
/* Makes an input a constant of these numbers. */
void map_bind_text(struct mapper *m, uint32_t tensor, const char *text);
/* INVALID_ARGUMENT: a value is given to a dimension or an input that is not there. */
enum status map_dims_check(const struct onnx_model *model, const struct onnx_options *options,
                           struct error *err);
/* Does what onnx_import promises. If `survey` is not NULL, it takes each refusal, the import goes
 * on, and no graph is returned. */
enum status map_import(struct onnx_model *model, const struct onnx_options *options,
                       struct onnx_survey *survey, struct ir_graph **out, struct error *err);
uint32_t map_noted(const struct mapper *m, const char *name); /* IR_NONE: it was not noted */
/* A graph without nodes that holds the model; NULL: no memory. */
struct ir_graph *map_graph_new(struct onnx_model *model);
/* Makes an output of the graph the output of a node of its own, which has this name. */
uint32_t map_own_output(struct mapper *m, uint32_t tensor, const char *name);
uint32_t map_value_find(const struct mapper *m, const char *name, bool *found);
bool map_value_add(struct mapper *m, const char *name, uint32_t tensor); /* false: failed */
/* Notes that the value has this narrow type (tensor.h) and is held in a wider one. */
void map_value_narrow(struct mapper *m, const char *name, int32_t type);
int32_t map_in_narrow(const struct mapper *m, uint32_t i); /* the narrow type of input i, or 0 */
int32_t map_narrow_of(const struct mapper *m, const char *name); /* the same of a value */
bool map_use_add(struct mapper *m, const char *name);            /* one more reader */
/* A set of names, which must outlive it; NULL is the empty one. False: failed. */
bool map_set_add(struct mapper *m, struct value **set, const char *name);
bool map_set_has(struct value *set, const char *name);
void map_set_free(struct value **set);
void map_scope_free(struct mapper *m, struct scope *scope);
/* What comes behind a node of the model's graph: values that nothing reads any more may go. */
void map_node_done(struct mapper *m, const struct onnx_node *node);
/* Values that no name has go, except for those that are held. */
void map_sweep(struct mapper *m);
void map_hold(struct mapper *m, uint32_t tensor);
void map_let_go(struct mapper *m, uint32_t tensor); /* undoes one map_hold */

/*
 * The settled values of a loop's body are the same in every iteration. They are its constants,
 * names from outside, states that the body hands on as they are (some exporters hand on all that a
 * body reads), and the outputs of nodes that read such values alone. The first iteration computes
 * them, and later ones take them.
 *
 * The states are the body's inputs from `first_in` and its outputs from `first_out` on. NULL: there
 * is no memory, or nothing is computed.
 */
struct settled *settled_new(const struct mapper *m, const struct onnx_graph *body,
                            uint32_t first_in, uint32_t first_out, uint32_t n_state);
void settled_free(struct mapper *m, struct settled *settled); /* NULL is fine */
/* Says whether input `i` of the body that is imported is settled. */
bool settled_input(const struct mapper *m, uint32_t i);
/* Sets m->settles if the node's operands are settled; settled_end resets it. */
void settled_begin(struct mapper *m, const struct onnx_node *node);
/* Keeps the outputs of a node that has been mapped, if they are settled. */
void settled_end(struct mapper *m, const struct onnx_node *node, uint32_t index);
/* Adds the node's outputs if an earlier iteration has kept them. False: it has not. */
bool settled_take(struct mapper *m, const struct onnx_node *node, uint32_t index);
void map_tables_free(struct mapper *m);
/* The constant that a tensor of an inner graph has already become; IR_NONE: none yet. */
uint32_t map_shared_find(const struct mapper *m, const struct onnx_tensor *tensor);
void map_shared_add(struct mapper *m, const struct onnx_tensor *tensor, uint32_t constant);
/* Evaluates a node whose inputs are all constants, and takes it out of the graph, if the evaluator
 * can do it and the node is cheap or was asked for (`wanted`). */
void emit_fold(struct mapper *m, uint32_t node, bool wanted);

#endif
