/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the oneDNN files share the work: a `choice` says in four bytes which way a node is to run, a
 * `recipe` is what oneDNN makes of it. Each op has a row: `list` names the ways worth trying,
 * `make` turns a choice into a recipe. Candidates, packing and preparing all go through `make`, so
 * that what was timed is what runs, and a choice from a file can do no more than fail.
 *
 * `make` gives UNIMPLEMENTED where oneDNN has nothing for the choice. Private to engine/cpu.
 */
#ifndef INFERD_ENGINE_CPU_ONEDNN_RECIPE_H
#define INFERD_ENGINE_CPU_ONEDNN_RECIPE_H

#include <oneapi/dnnl/dnnl.h>

#include "engine/backend.h"
#include "engine/cpu/onednn.h"
#include "engine/ir/ir.h"

enum {
    CHOICES_MAX = 16, /* of one node */
    IMPL_MAX = 16,    /* implementations looked at for one choice */
    IMPL_NAME_MAX = 60,
    CONCAT_MAX = 63,      /* inputs of a concat: one port each */
    RECIPE_ARGS_MAX = 80, /* >= CONCAT_MAX + output + epilogue operands */
};

struct onednn {
    dnnl_engine_t engine;
    uint32_t threads;
    bool avx, avx512;
    bool vnni; /* older instructions saturate sums of 8-bit products at 16 bits */
};

/* Stored in a tactic's blob. */
struct choice {
    uint8_t way;      /* the op's own numbering */
    uint8_t src, dst; /* enum ir_layout */
    uint8_t serial;   /* 1: on the calling thread alone */
};

struct subject {
    const struct onednn *dnn;
    const struct ir_graph *graph;
    const struct ir_node *node;
};

struct recipe_arg {
    int arg; /* DNNL_ARG_.. */
    bool output;
    uint32_t index; /* of the node's inputs or outputs */
    dnnl_memory_desc_t md;
};

struct recipe {
    /* Which implementation to take; NULL: the first, and to list them all in `impls`. */
    const char *want;
    char impls[IMPL_MAX][IMPL_NAME_MAX];
    uint32_t n_impls;
    dnnl_primitive_desc_t pd;
    uint32_t n_args;
    struct recipe_arg args[RECIPE_ARGS_MAX];
    struct tactic_port in[TACTIC_PORTS_MAX];
    struct tactic_port out[IR_MAX_OUTPUTS];
    /* The constant that is repacked: its md as the graph has it. packed_arg is an index into args;
     * UINT32_MAX: none. */
    uint32_t packed_arg;
    dnnl_memory_desc_t plain;
};

struct onednn_row {
    enum ir_op op;
    /* Fills `out` with the ways worth trying, best guess first; returns how many. */
    uint32_t (*list)(const struct subject *s, struct choice out[CHOICES_MAX]);
    enum status (*make)(const struct subject *s, struct choice c, struct recipe *r);
    uint32_t impls; /* implementations to offer for each choice */
};

extern const struct onednn_row onednn_conv, onednn_deconv, onednn_matmul, onednn_pool,
    onednn_softmax, onednn_layer_norm, onednn_batch_norm, onednn_unary, onednn_binary,
    onednn_reduce, onednn_resize, onednn_concat, onednn_reformat, onednn_transpose, onednn_slice;

/* --- subjects --- */
/* The threads that a choice is made for and runs on. */
uint32_t choice_threads(const struct onednn *dnn, struct choice c);
/* Multiplications and additions that the node takes, about. */
double subject_work(const struct subject *s);
const struct ir_tensor *subject_in(const struct subject *s, uint32_t i); /* NULL: absent */
const struct ir_tensor *subject_out(const struct subject *s, uint32_t i);
bool subject_all_f32(const struct subject *s); /* inputs, epilogue operands and outputs */
/* A product or convolution of 8-bit integers that this machine's instructions get right, or a
 * change of layout of what goes in and comes out there. */
bool subject_is_bytes(const struct subject *s);

/* --- descriptors --- */
/* A dense md of these dims in a layout, of fp32 as all that follow. False: no such layout for this
 * rank. */
bool desc_layout(dnnl_memory_desc_t *md, uint32_t rank, const int64_t *dims, enum ir_layout layout);
/* The same as the tensor's type. */
bool desc_tensor(dnnl_memory_desc_t *md, const struct ir_tensor *tensor, enum ir_layout layout);
bool desc_strides(dnnl_memory_desc_t *md, uint32_t rank, const int64_t *dims,
                  const int64_t *strides);
/* Makes a md of fp32 one of the tensor's type; both have no padding. */
void desc_type(dnnl_memory_desc_t *md, const struct ir_tensor *tensor);
/* Any format: oneDNN chooses. */
bool desc_any(dnnl_memory_desc_t *md, uint32_t rank, const int64_t *dims);
/* The part of `whole` that starts at `starts` and has this shape. */
bool desc_part(dnnl_memory_desc_t *md, const dnnl_memory_desc_t *whole, const struct shape *shape,
               const int64_t *starts);
/* So many bytes, whatever they mean. */
bool desc_bytes(dnnl_memory_desc_t *md, size_t size);
/* The layout's other name where its bytes are the same as those of the plain one. */
enum ir_layout layout_canonical(const struct shape *shape, enum ir_layout layout);
/* Shape with ones put before it up to `rank` dimensions. False: it has more. */
bool dims_padded(const struct shape *shape, uint32_t rank, int64_t *dims);

/* --- recipes --- */
void recipe_init(struct recipe *r, const char *want);
void recipe_deinit(struct recipe *r);
/* Adds an argument. `layout` is what the tensor's port says (canonicalised here). */
void recipe_in(const struct subject *s, struct recipe *r, int arg, uint32_t input,
               const dnnl_memory_desc_t *md, enum ir_layout layout);
void recipe_out(const struct subject *s, struct recipe *r, int arg, uint32_t output,
                const dnnl_memory_desc_t *md, enum ir_layout layout);
/* A constant input in the form that the primitive wants; `plain` is how the graph has it. If the
 * two are equal it stays as it is. */
void recipe_packed(const struct subject *s, struct recipe *r, int arg, uint32_t input,
                   const dnnl_memory_desc_t *want, const dnnl_memory_desc_t *plain);
/* Lists src = dst in each layout of the tensor's rank: for ops that do not care. */
uint32_t list_layouts(const struct subject *s, struct choice out[CHOICES_MAX]);
/* The wanted implementation of an operation. Destroys `attr`. */
enum status recipe_pick(const struct subject *s, struct recipe *r, const_dnnl_op_desc_t desc,
                        dnnl_primitive_attr_t attr);
/* The same for what oneDNN offers one implementation of: takes the descriptor over. */
enum status recipe_take(struct recipe *r, dnnl_primitive_desc_t pd);
const dnnl_memory_desc_t *recipe_md(const struct recipe *r, dnnl_query_t what, int index);

/* --- epilogues --- */
enum view_kind {
    VIEW_SAME,   /* the tensor's dims, perhaps with ones before them */
    VIEW_ROWS,   /* rank 2: all dims but the last one merged */
    VIEW_PIXELS, /* rank 2: all dims but the channels (dim 1) merged; channels last */
};

/* How a primitive sees the node's output. `layout` is the tensor's. */
struct output_view {
    enum view_kind kind;
    uint32_t rank;
    int64_t dims[SHAPE_MAX_RANK];
    enum ir_layout layout;
};

/* Attributes with user scratchpad and the node's epilogue as post-ops, its operands as arguments.
 * UNIMPLEMENTED: a step that oneDNN does not know, or an operand that does not fit the view. */
enum status epilogue_attr(const struct subject *s, const struct output_view *view, struct recipe *r,
                          dnnl_primitive_attr_t *out);
/* The eltwise algorithm of a unary function; false if there is none. alpha and beta are oneDNN's.
 */
bool eltwise_of(uint32_t func, float alpha, float beta, dnnl_alg_kind_t *kind, float *out_alpha,
                float *out_beta);
bool binary_of(uint32_t func, dnnl_alg_kind_t *kind);

/* The row of an op, or NULL. */
const struct onednn_row *onednn_row_find(enum ir_op op);
/* "jit:avx512_core" */
const char *recipe_impl(const struct recipe *r);
enum status status_of_dnnl(dnnl_status_t st);

/* libgomp's. Declared here: clang brings no omp.h without an OpenMP runtime of its own. It sets the
 * number of the calling thread only. */
void omp_set_num_threads(int threads);

/* What a tactic's blob holds. */
struct choice_blob {
    struct choice choice;
    char impl[IMPL_NAME_MAX];
};

#endif
