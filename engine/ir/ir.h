/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The intermediate representation: a graph of typed tensors and nodes with static shapes.
 *
 * One graph is one profile: a model that is bound to one tuple of input shapes. The importer makes
 * the graph, passes rewrite it, and the builder gives every node a tactic and every tensor a layout
 * and a place. The plan file stores the graph, and the runtime reads the same structure back.
 *
 * Indices (`uint32_t`) name tensors and nodes, never pointers, because arrays grow. Pointers from
 * ir_tensor() and ir_node() are good until the next ir_*_add. All strings and arrays live in the
 * graph's arena. A graph belongs to one thread at a time; a finished graph may be read by many.
 */
#ifndef INFERD_ENGINE_IR_IR_H
#define INFERD_ENGINE_IR_IR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/shape.h"
#include "engine/ir/format.h"
#include "engine/ir/ops.h"

#define IR_NONE UINT32_MAX /* an absent optional input; no producer */

/* Bounds that keep arithmetic on shapes, and sums over all tensors of a graph, within 64 bits. */
#define IR_MAX_DIM          (INT64_C(1) << 40)
#define IR_MAX_TENSOR_BYTES (UINT64_C(1) << 40)

enum {
    IR_MAX_TENSORS = 1 << 20,
    IR_MAX_NODES = 1 << 18,
    IR_MAX_INPUTS = 256, /* of one node */
    IR_MAX_OUTPUTS = 4,  /* of one node */
    IR_MAX_EPILOGUE = 8,
    IR_MAX_IO = 64, /* inputs, and outputs, of a graph */
    IR_MAX_SCALES = 1 << 16,
};

/* Where a tensor's bytes are when the graph runs; set by the builder. Stored in plan files. */
enum ir_place {
    IR_PLACE_NONE = 0,
    IR_PLACE_CONSTANT = 1, /* `offset` into the plan's weight section */
    IR_PLACE_INPUT = 2,    /* graph input `offset` */
    IR_PLACE_OUTPUT = 3,   /* graph output `offset` */
    IR_PLACE_ARENA = 4,    /* `offset` into the arena; see struct ir_segment */
};

struct ir_tensor {
    const char *name; /* never NULL; may be "" if a pass made the tensor */
    union {
        struct ir_format format;
        struct { /* the same under the names of its parts */
            enum ir_layout layout;
            enum dtype dtype;
            uint32_t scale;
        };
    };
    enum dtype real; /* the float type that the graph's rules see, if another type is stored in its
                        place; NONE: they see `dtype`. See ir_tensor_type */
    uint32_t range;  /* row of the scales by which 8 bits could hold it, or IR_NO_SCALE */
    struct shape shape;
    enum ir_place place;
    uint32_t producer; /* node, or IR_NONE: an input or a constant */
    uint32_t alias_of; /* tensor whose bytes it shares or lies in, or IR_NONE */
    uint64_t part;     /* where it begins in that tensor; bytes */
    uint64_t offset;   /* see enum ir_place */
    uint64_t bytes;    /* size in its layout; set by ir_tensor_add and ir_tensor_set_layout */
    const void
        *data; /* a constant's bytes; NULL for anything else. May be unaligned after import */
};

struct ir_attr {
    enum ir_attr_key key;
    bool is_float;
    uint32_t count;
    union {
        const int64_t *i;
        const float *f;
    };
};

/* What a node does to its (first) output before it stores it, step by step, in fp32. */
enum ir_epilogue_kind {
    IR_EPILOGUE_UNARY = 0, /* y = func(y; alpha, beta) */
    IR_EPILOGUE_BINARY =
        1, /* y = func(y, inputs[input]); that tensor has y's shape or broadcasts to it */
};

struct ir_epilogue {
    enum ir_epilogue_kind kind;
    uint32_t func; /* enum ir_unary or enum ir_binary */
    float alpha, beta, gamma;
    uint32_t input; /* index into the node's inputs, for BINARY */
};

struct tactic; /* engine/backend.h */

struct ir_node {
    enum ir_op op;    /* IR_OP_NONE: the node has been removed; everything skips it */
    const char *name; /* a fused node has its parts' names: "conv1 + relu1" */
    uint32_t n_inputs, n_outputs, n_attrs, n_epilogue;
    uint32_t *inputs; /* the op's own inputs first (absent ones IR_NONE), then epilogue operands */
    uint32_t outputs[IR_MAX_OUTPUTS];
    struct ir_attr *attrs;
    struct ir_epilogue epilogue[IR_MAX_EPILOGUE];
    uint32_t segment;            /* set by the builder */
    const struct tactic *tactic; /* the winner; set by the builder */
    uint64_t workspace_offset;   /* in the arena */
    uint64_t workspace_bytes;
    uint64_t time_ns; /* of the winner when it was tuned; 0: not timed */
};

/*
 * A maximal run of consecutive nodes on one backend.
 *
 * If a graph has segments of several backends, each backend has an arena of its own, of the same
 * size and layout. A tensor or a workspace has ONE offset in all arenas, and its lifetime counts
 * over all segments. So a tensor that is made on one backend and read on another lies at its offset
 * in both arenas. Whoever runs the graph copies the tensor once, before the first segment of the
 * other backend that reads it, and its bytes there stay untouched until the last node that reads
 * it. The copy is of the root (the end of the chain of aliases): `bytes` bytes, whatever they mean.
 * Graph inputs and outputs are copied in the same way. Constants are wherever they are needed:
 * mapped for the CPU, uploaded for a device. Aliases run nowhere; they belong to the segment that
 * they stand in, and copy nothing.
 */
struct ir_segment {
    const char *backend;
    uint32_t first, count; /* nodes */
    uint64_t arena_bytes;  /* the same in all segments of a graph */
};

struct ir_graph {
    struct arena *arena;
    const char *name;
    struct ir_tensor *tensors;
    struct ir_node *nodes; /* in an order in which they may run */
    struct ir_segment *segments;
    struct ir_scale *scales; /* rows are numbered from 1 */
    uint32_t n_tensors, n_nodes, n_segments, n_scales, n_inputs, n_outputs;
    uint32_t tensors_cap, nodes_cap, scales_cap;
    uint32_t inputs[IR_MAX_IO];
    uint32_t outputs[IR_MAX_IO]; /* distinct; a node makes each, if need be an identity */
    struct ir_hold *holds;       /* objects that the graph's constants point into */
};

struct ir_graph *ir_graph_new(void);
void ir_graph_free(struct ir_graph *graph);
void ir_graph_cleanup(struct ir_graph **at); /* for CLEANUP (base/compiler.h) */

/* A copy whose tensors, nodes and scales have the same numbers. Constants and tactics stay where
 * they are: the original must outlive the copy. */
enum status ir_graph_copy(const struct ir_graph *graph, struct ir_graph **out, struct error *err);

/* The parts of such a copy: a tensor or a node, whose number is returned (IR_NONE: no memory), and
 * all segments. */
uint32_t ir_tensor_copy(struct ir_graph *to, const struct ir_tensor *tensor);
uint32_t ir_node_copy(struct ir_graph *to, const struct ir_node *node);
bool ir_segments_copy(struct ir_graph *to, const struct ir_graph *from) MUST_USE;

/* Keeps `object` until the graph is freed, then calls release(object). False: no memory. */
bool ir_graph_hold(struct ir_graph *graph, void *object, void (*release)(void *object)) MUST_USE;

static inline struct ir_tensor *ir_tensor(const struct ir_graph *graph, uint32_t id)
{
    return &graph->tensors[id];
}

static inline struct ir_node *ir_node(const struct ir_graph *graph, uint32_t id)
{
    return &graph->nodes[id];
}

/* All ir_*_add functions copy their arguments into the graph's arena (but not a constant's data).
 * They return IR_NONE if there is no memory or a limit is reached. */
uint32_t ir_tensor_add(struct ir_graph *graph, const char *name, enum dtype dtype,
                       const struct shape *shape);

/* The type that the tensor has for type and shape rules, and for readers of the graph. */
static inline enum dtype ir_tensor_type(const struct ir_tensor *tensor)
{
    return tensor->real != DTYPE_NONE ? tensor->real : tensor->dtype;
}

/* `data` must outlive the graph (ir_graph_hold) or lie in graph->arena. */
uint32_t ir_constant_add(struct ir_graph *graph, const char *name, enum dtype dtype,
                         const struct shape *shape, const void *data);

/* Appends a node without outputs or attributes. */
uint32_t ir_node_add(struct ir_graph *graph, enum ir_op op, const char *name, uint32_t n_inputs,
                     const uint32_t *inputs);

/* Adds an output of a type and shape that the caller knows, and returns its tensor. Readers and
 * tests use this; ir_infer_apply is the usual way. */
uint32_t ir_node_output_add(struct ir_graph *graph, uint32_t node, const char *name,
                            enum dtype dtype, const struct shape *shape);

/* Gives the node all attributes of another one, of this graph or another. False: no memory. */
bool ir_attrs_copy(struct ir_graph *graph, uint32_t node, const struct ir_node *from) MUST_USE;
/* Replace or add an attribute. False: no memory. */
bool ir_attr_set_ints(struct ir_graph *graph, uint32_t node, enum ir_attr_key key, uint32_t count,
                      const int64_t *values) MUST_USE;
bool ir_attr_set_floats(struct ir_graph *graph, uint32_t node, enum ir_attr_key key, uint32_t count,
                        const float *values) MUST_USE;
bool ir_attr_set_int(struct ir_graph *graph, uint32_t node, enum ir_attr_key key,
                     int64_t value) MUST_USE;
bool ir_attr_set_float(struct ir_graph *graph, uint32_t node, enum ir_attr_key key,
                       float value) MUST_USE;

const struct ir_attr *ir_attr(const struct ir_node *node, enum ir_attr_key key); /* or NULL */
/* The (first) value of an attribute that the op's row has, or value i of its list. If the attribute
 * is absent or the list is shorter, the row's default stands for the value; 0 without a row. */
int64_t ir_attr_int(const struct ir_node *node, enum ir_attr_key key);
float ir_attr_float(const struct ir_node *node, enum ir_attr_key key);
int64_t ir_attr_at(const struct ir_node *node, enum ir_attr_key key, uint32_t i);

/* The constants of a UNARY node that has been checked; absent ones are the function's defaults. */
void ir_unary_constants(const struct ir_node *node, float *alpha, float *beta, float *gamma);

/* Adds an input to a node's list and returns its index there, or IR_NONE. */
uint32_t ir_node_input_add(struct ir_graph *graph, uint32_t node, uint32_t tensor);

/* Inputs of a CONV_PAIR, behind the first source and its weights. */
enum { IR_PAIR_X2 = 2, IR_PAIR_W2 = 3, IR_PAIR_BIAS = 4 };

/* Those of a CONV_CHAIN: the next convolution's weights and bias are NEXT and NEXT_BIAS. */
enum {
    IR_CHAIN_NEXT = 2,
    IR_CHAIN_X2 = 3,
    IR_CHAIN_W2 = 4,
    IR_CHAIN_BIAS = 5,
    IR_CHAIN_RESIDUAL = 6,
    IR_CHAIN_NEXT_BIAS = 7,
    IR_CHAIN_INPUTS = 8
};

/* The tables of an EMBED: number k is input 2 k, and input 2 k + 1 its indices. IR_NONE: the node
 * has no such table, or the table has no indices. */
enum { IR_EMBED_TABLES = 3 };
static inline uint32_t ir_embed_table(const struct ir_node *node, uint32_t k)
{
    return 2 * k < node->n_inputs ? node->inputs[2 * k] : IR_NONE;
}
static inline uint32_t ir_embed_ids(const struct ir_node *node, uint32_t k)
{
    return 2 * k + 1 < node->n_inputs ? node->inputs[2 * k + 1] : IR_NONE;
}
/* How many there are. */
static inline uint32_t ir_embed_count(const struct ir_node *node)
{
    uint32_t n = 0;
    while (n < IR_EMBED_TABLES && ir_embed_table(node, n) != IR_NONE)
        n++;
    return n;
}

/* Number `at` of `n` that stand for an operand of spans (IR_OPERAND_SPANS) where none is known:
 * rows of sequences of about IR_SPAN_SAMPLE rows, one behind the other. Their lengths differ, as
 * those of texts do: kernels take some time for where sequences end. */
enum { IR_SPAN_SAMPLE = 128 };
static inline int64_t ir_span_sample(size_t at, size_t n)
{
    static const uint16_t ends[] = {131, 185, 388, 480, 640, 6 * IR_SPAN_SAMPLE}; /* a period's */
    size_t period = 6 * IR_SPAN_SAMPLE, base = at / 2 / period * period, row = at / 2 - base, i = 0;
    while (row >= ends[i])
        i++;
    if (at % 2 == 0)
        return (int64_t)(base + (i ? ends[i - 1] : 0));
    return (int64_t)(base + ends[i] < n / 2 ? base + ends[i] : n / 2);
}

/* Roughly the bytes that computing the node touches, by its op's row (enum ir_work). UINT64_MAX:
 * too many to count, or not known. The node must have its outputs. */
uint64_t ir_node_work(const struct ir_graph *graph, const struct ir_node *node);

/* How many of the inputs are the op's own: those before the first epilogue operand. */
uint32_t ir_node_own_inputs(const struct ir_node *node);

/* Appends an epilogue step; for BINARY `tensor` becomes an input. False: full or no memory. */
bool ir_epilogue_add(struct ir_graph *graph, uint32_t node, struct ir_epilogue step,
                     uint32_t tensor) MUST_USE;

bool ir_tensor_is_constant(const struct ir_tensor *tensor);
bool ir_tensor_is_output(const struct ir_graph *graph, uint32_t tensor);

/* How many node inputs and graph outputs read the tensor. O(nodes). */
uint32_t ir_tensor_uses(const struct ir_graph *graph, uint32_t tensor);

/* The only node that reads the tensor; IR_NONE if there are several, none, or it is an output. */
uint32_t ir_tensor_sole_reader(const struct ir_graph *graph, uint32_t tensor);

/* Says whether the node's function jumps (floor, a comparison, a cast to integers): then a slight
 * rounding of its operands may matter much. */
bool ir_node_jumps(const struct ir_node *node);

/* Lets every reader of `from`, graph outputs included, read `to` instead. */
void ir_replace_uses(struct ir_graph *graph, uint32_t from, uint32_t to);

/* Turns the node into IR_OP_NONE; its outputs lose their producer. */
void ir_node_remove(struct ir_graph *graph, uint32_t node);

/* Makes `tensor` an output of `node` in the place of its current output `index`. */
void ir_node_set_output(struct ir_graph *graph, uint32_t node, uint32_t index, uint32_t tensor);

/* Drops removed nodes and unused tensors, restores topological order (stable), renumbers. */
enum status ir_graph_compact(struct ir_graph *graph, struct error *err);
/* Puts node order[i] at place i. It must be an order in which the nodes may run. */
enum status ir_graph_reorder(struct ir_graph *graph, const uint32_t *order, struct error *err);

/* Bytes of a tensor of this type and shape in a layout; false on overflow, or if the layout needs a
 * channel dimension that is not there. Not for OPAQUE. */
bool ir_layout_bytes(const struct shape *shape, enum dtype dtype, enum ir_layout layout,
                     uint64_t *out) MUST_USE;
bool ir_tensor_set_layout(struct ir_graph *graph, uint32_t tensor, enum ir_layout layout) MUST_USE;
/* Sets how the tensor is stored; it keeps its type for the graph's rules. For OPAQUE, `bytes` stays
 * as it is. */
bool ir_tensor_set_format(struct ir_graph *graph, uint32_t tensor,
                          struct ir_format format) MUST_USE;
/* Says whether the tensor may be stored in this format instead of its own: a float as a float that
 * is not longer, or in 8 bits with a scale that fits its shape. */
bool ir_format_fits(const struct ir_graph *graph, const struct ir_tensor *tensor,
                    struct ir_format format);
/* Says whether all FP32 tensors of the node are stored as one type and have no scale, as kernels
 * need that know one float type at a time. The tensors of a REFORMAT and OPAQUE ones do not
 * count. */
bool ir_node_is_uniform(const struct ir_graph *graph, const struct ir_node *node);
/* Appends a row to the table of scales and returns its number; IR_NO_SCALE: full, or no memory. */
uint32_t ir_scale_add(struct ir_graph *graph, const struct ir_scale *scale);
/* NULL: there is no such row. */
const struct ir_scale *ir_scale(const struct ir_graph *graph, uint32_t number);
/* The tensor of floats that a QUANTIZE reads or a DEQUANTIZE makes; IR_NONE: it is neither. */
uint32_t ir_quant_real(const struct ir_node *node);
/* The row that says what the node's scale and zero point say, added if need be. IR_NO_SCALE: they
 * are not known, or not above 0, the integers have more than 8 bits, or there is no room. */
uint32_t ir_quant_scale(struct ir_graph *graph, const struct ir_node *node);
/* Says whether the row and the node's operands say the same. */
bool ir_quant_is_scale(const struct ir_graph *graph, const struct ir_node *node,
                       const struct ir_scale *scale);
/* The range that the node's first output has because of the node: the scale of a DEQUANTIZE, or the
 * range of what the node only moves; IR_NO_SCALE: none. Stored by it the output loses nothing, if
 * that is so for the inputs. May add a row. */
uint32_t ir_range_follows(struct ir_graph *graph, const struct ir_node *node);
/* Says whether the node, which has no epilogue, only moves numbers of this scale, one for the whole
 * tensor: it makes the same of them before and after they are quantised. */
bool ir_range_passes(const struct ir_node *node, const struct ir_scale *scale);
/* "nchw", "nhwc", "nhwc4", "nhwc8", "nChw8c", "nChw16c", "opaque" */
const char *ir_layout_name(enum ir_layout layout);
/* The channels of one block; 0: the layout has no blocks. */
int64_t ir_layout_block(enum ir_layout layout);
/* What the number of channels is rounded up to a multiple of; 0: the layout has no known size. */
int64_t ir_layout_multiple(enum ir_layout layout);
/* Says whether a tensor of this shape has the same bytes in both layouts: all spatial dimensions
 * are 1, or there is one channel, and the padding is the same. A reformat between them then only
 * renames. */
bool ir_layouts_agree(const struct shape *shape, enum ir_layout a, enum ir_layout b);
/* Says whether a node with the trait RENAMES writes the bytes that it reads, if its first input and
 * its output have these formats: a reshape between plain tensors, a reformat between layouts that
 * agree, a transpose that moves channels to where the other layout has them, a cast of what is
 * stored in the other type already, a quantisation of what is stored in 8 bits by the same
 * scale. */
bool ir_node_renames(const struct ir_graph *graph, const struct ir_node *node,
                     struct ir_format from, struct ir_format to);
/* Says whether a part of a tensor, stored by itself in the same layout, is one run of the bytes of
 * the whole, and where: `start` has an index for each dimension. */
bool ir_part_offset(const struct shape *whole, const struct shape *part, const int64_t *start,
                    enum dtype dtype, enum ir_layout layout, uint64_t *offset);
/* The same of a node as its tensors are stored: the input in the output of a node with the trait
 * JOINS, the output in the input of one that CUTS. False for all other nodes. */
bool ir_node_part(const struct ir_graph *graph, const struct ir_node *node, uint32_t input,
                  uint64_t *offset);
/* Says whether the ranges of the node's first input and its output stand for the same bytes, so
 * that ir_node_renames may be true of formats with a scale. */
bool ir_node_keeps_range(const struct ir_graph *graph, const struct ir_node *node);

/*
 * Type and shape inference. ir_infer_node checks the node's inputs and attributes against ops.h and
 * computes the types and shapes of all outputs it may have into `out` without changing the graph.
 * ir_infer_apply then adds the outputs, or checks those that are there: as many as there are names,
 * but at least those that are not optional (ops.h). A name may be NULL. Errors name op, node and
 * shapes.
 */
struct ir_type {
    enum dtype dtype;
    struct shape shape;
};
enum status ir_infer_node(const struct ir_graph *graph, const struct ir_node *node,
                          struct ir_type out[IR_MAX_OUTPUTS], uint32_t *n_out, struct error *err);
enum status ir_infer_apply(struct ir_graph *graph, uint32_t node, const char *const *names,
                           uint32_t n_names, struct error *err);

/* Checks every rule of this header: indices in range, order, single producers, types and shapes as
 * inferred, epilogue operands that broadcast, attributes of the right kind and count. It is called
 * after the importer, after every pass, and for every plan that is read. */
enum status ir_verify(const struct ir_graph *graph, struct error *err);

/* The graph as text, for tests and --verbose: a line for each node. The caller frees it. NULL: no
 * memory. */
char *ir_graph_text(const struct ir_graph *graph);

#endif
