/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the oneDNN files share. A `choice` says in four bytes in which way a node shall run; a
 * `recipe` is what oneDNN makes of it. Each op has a row: `list` names the choices worth trying,
 * `make` turns a choice into a recipe. Candidates, packing and preparing all go through `make`, so
 * that the kernel that runs is the one that was timed, and a choice from a file can do no more than
 * fail.
 *
 * `make` returns UNIMPLEMENTED if oneDNN has nothing for the choice. Private to engine/cpu.
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
    IMPL_NAME_MAX = ONEDNN_IMPL_MAX,
    CONCAT_MAX = 63,      /* inputs of a concat: one port each */
    RECIPE_ARGS_MAX = 80, /* >= CONCAT_MAX + output + epilogue operands */
};

struct onednn {
    dnnl_engine_t engine;
    uint32_t threads;
    bool avx, avx512;
    bool vnni; /* without it, sums of 8-bit products saturate at 16 bits */
    bool bf16; /* there are instructions for products of BF16 */
};

/* Stored in a tactic's blob. */
struct choice {
    uint8_t way;      /* the op's own numbering */
    uint8_t src, dst; /* enum ir_layout */
    uint8_t serial;   /* 1: on the calling thread alone */
    uint8_t zero;     /* enum zero_point */
};

/* Who subtracts the zero point of an input that is stored in 8 bits. */
enum zero_point { ZERO_OF_ONEDNN, ZERO_IN_BIAS };

struct subject {
    const struct onednn *dnn;
    const struct ir_graph *graph;
    const struct ir_node *node;
};

struct recipe_arg {
    int arg; /* DNNL_ARG_.. */
    bool output;
    uint32_t index;  /* of the node's inputs or outputs */
    uint64_t offset; /* bytes from where the tensor begins */
    dnnl_memory_desc_t md;
};

struct recipe {
    /* The implementation to take. NULL: take the first one, and list the names of all in
     * `impls`. */
    const char *want;
    char impls[IMPL_MAX][IMPL_NAME_MAX];
    uint32_t n_impls;
    dnnl_primitive_desc_t pd;
    uint32_t n_args;
    struct recipe_arg args[RECIPE_ARGS_MAX];
    struct tactic_port in[TACTIC_PORTS_MAX];
    struct tactic_port out[IR_MAX_OUTPUTS];
    /* The constant that is repacked: packed_arg is its index in args (UINT32_MAX: none), `plain` is
     * its descriptor in the graph. */
    uint32_t packed_arg;
    dnnl_memory_desc_t plain;
};

struct onednn_row {
    enum ir_op op;
    /* Fills `out` with the choices worth trying, the best guess first; returns their number. */
    uint32_t (*list)(const struct subject *s, struct choice out[CHOICES_MAX]);
    enum status (*make)(const struct subject *s, struct choice c, struct recipe *r);
    uint32_t impls; /* implementations to offer for each choice */
};

extern const struct onednn_row onednn_conv, onednn_deconv, onednn_matmul, onednn_pool,
    onednn_softmax, onednn_layer_norm, onednn_batch_norm, onednn_unary, onednn_binary,
    onednn_reduce, onednn_resize, onednn_concat, onednn_reformat, onednn_transpose, onednn_slice;

/* --- subjects --- */
/* The number of threads that a choice runs on. */
uint32_t choice_threads(const struct onednn *dnn, struct choice c);
/* About how many multiplications and additions the node takes. */
double subject_work(const struct subject *s);
const struct ir_tensor *subject_in(const struct subject *s, uint32_t i); /* NULL: absent */
const struct ir_tensor *subject_out(const struct subject *s, uint32_t i);
bool subject_all_f32(const struct subject *s); /* inputs, epilogue operands and outputs */
/* Whether the node is a product or convolution of 8-bit integers that this machine's instructions
 * get right, a change of layout of such a node's inputs or outputs, or a node that only moves 8-bit
 * integers that are stored by scales. */
bool subject_is_bytes(const struct subject *s);

/* Whether the primitive has a bias. */
bool subject_biased(const struct subject *s);
/* Whether the node is a product or convolution of an input that is stored in 8 bits by a scale and
 * of weights that can be (onednn_scaled.c), on a machine that gets it right. */
bool subject_is_scaled(const struct subject *s);

/* Whether the node is a product or convolution of an input that is stored as BF16 by constant
 * weights, or a change of format to or from that, on a machine that has instructions for it
 * (onednn_half.c). */
bool subject_is_half(const struct subject *s);
/* Whether the types of its tensors are among those that oneDNN is used for. */
bool subject_fits(const struct subject *s);

/* --- descriptors --- */
/* desc_layout describes dense memory of these dims in a layout; false: the layout does not exist
 * for this rank. The descriptors (md) of this section are of fp32 unless a comment says
 * otherwise. */
bool desc_layout(dnnl_memory_desc_t *md, uint32_t rank, const int64_t *dims, enum ir_layout layout);
/* The same, with the tensor's dims and type. */
bool desc_tensor(dnnl_memory_desc_t *md, const struct ir_tensor *tensor, enum ir_layout layout);
bool desc_strides(dnnl_memory_desc_t *md, uint32_t rank, const int64_t *dims,
                  const int64_t *strides);
/* Gives an md of fp32 the tensor's type; nothing else in it depends on the type. */
void desc_type(dnnl_memory_desc_t *md, const struct ir_tensor *tensor);
/* Give an md the type that the node's weights have for the primitive, and as packing reads them;
 * and that its bias has. */
void desc_weights(const struct subject *s, dnnl_memory_desc_t *md);
void desc_plain(const struct subject *s, dnnl_memory_desc_t *md);
void desc_bias(const struct subject *s, dnnl_memory_desc_t *md);
/* Leaves the form of the memory to oneDNN. */
bool desc_any(dnnl_memory_desc_t *md, uint32_t rank, const int64_t *dims);
/* The part of `whole` that starts at `starts` and has this shape. */
bool desc_part(dnnl_memory_desc_t *md, const dnnl_memory_desc_t *whole, const struct shape *shape,
               const int64_t *starts);
/* Describes `size` bytes, whatever they mean. */
bool desc_bytes(dnnl_memory_desc_t *md, size_t size);
/* IR_LAYOUT_PLAIN if the layout's bytes are the same as those of the plain one, otherwise the
 * layout. */
enum ir_layout layout_canonical(const struct shape *shape, enum ir_layout layout);
/* The dims of a shape with ones put before them, `rank` in all. False: the shape has more. */
bool dims_padded(const struct shape *shape, uint32_t rank, int64_t *dims);

/* How a primitive sees a node's tensors. The bytes are the same in every layout. */
enum seen {
    SEEN_AS_IS,
    SEEN_TURNED, /* rank 4: the last two dims have changed places, because one of them is 1 */
    SEEN_LIFTED, /* rank 3: with a dim of 1 before the last one */
};
/* Writes the dims as they are seen; returns their number. */
uint32_t dims_seen(enum seen seen, uint32_t rank, const int64_t *dims, int64_t *out);

struct output_view;

/* --- recipes --- */
void recipe_init(struct recipe *r, const char *want);
void recipe_deinit(struct recipe *r);
struct recipe *recipe_new(void); /* initialised, on the heap; NULL: no memory */
void recipe_cleanup(struct recipe **at);
void attr_cleanup(dnnl_primitive_attr_t *at);
/* Add an argument. `layout` is what the tensor's port says, in its canonical form. */
void recipe_in(const struct subject *s, struct recipe *r, int arg, uint32_t input,
               const dnnl_memory_desc_t *md, enum ir_layout layout);
void recipe_out(const struct subject *s, struct recipe *r, int arg, uint32_t output,
                const dnnl_memory_desc_t *md, enum ir_layout layout);
/* Adds an input in the form that the primitive wants; `plain` is its form in the graph. If the two
 * differ, the input is a constant, and its port asks for packing. */
void recipe_packed(const struct subject *s, struct recipe *r, int arg, uint32_t input,
                   const dnnl_memory_desc_t *want, const dnnl_memory_desc_t *plain);
/* Takes the wanted implementation of a convolution or product with the node's epilogue, and adds
 * its weights, which are `plain` in the graph, and its bias. */
enum status recipe_finish(const struct subject *s, struct choice c, const struct output_view *view,
                          const_dnnl_op_desc_t desc, const dnnl_memory_desc_t *plain,
                          const dnnl_memory_desc_t *bias, struct recipe *r);
/* Lists each of the first n choices of a scaled subject with all that may subtract a zero point,
 * beginning with `first`; returns their number. */
uint32_t list_zeros(const struct subject *s, struct choice out[CHOICES_MAX], uint32_t n,
                    enum zero_point first);
/* Lists choices with src = dst in each layout of the output's rank, for ops that run in any
 * layout. */
uint32_t list_layouts(const struct subject *s, struct choice out[CHOICES_MAX]);
/* Takes the wanted implementation of an operation. Destroys `attr`. */
enum status recipe_pick(const struct subject *s, struct recipe *r, const_dnnl_op_desc_t desc,
                        dnnl_primitive_attr_t attr);
/* The same for an operation of which oneDNN has one implementation. Takes `pd` over. */
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
    enum seen seen; /* of VIEW_SAME */
    uint32_t rank;
    int64_t dims[SHAPE_MAX_RANK];
    enum ir_layout layout;
};

/* Makes attributes with a scratchpad of ours and the node's epilogue as post-ops, whose operands
 * become arguments of the recipe. UNIMPLEMENTED: oneDNN does not know a step, or an operand does
 * not fit the view. */
enum status epilogue_attr(const struct subject *s, const struct output_view *view, struct recipe *r,
                          dnnl_primitive_attr_t *out);
/* Gives oneDNN's algorithm and parameters for a unary function; false if oneDNN has none. */
bool eltwise_of(uint32_t func, float alpha, float beta, dnnl_alg_kind_t *kind, float *out_alpha,
                float *out_beta);
bool binary_of(uint32_t func, dnnl_alg_kind_t *kind);
/* The same for numbers of which 1 stands for `unit`, before the epilogue. The output may be stored
 * in 8 bits by a scale, and so may be the operand of a first sum, if `unit` is the operand's step;
 * its zero point is left to the caller. */
enum status epilogue_attr_in(const struct subject *s, const struct output_view *view, float unit,
                             struct recipe *r, dnnl_primitive_attr_t *out);
/* A unit that suits the epilogue. */
float epilogue_unit(const struct subject *s);

/* --- scaled subjects (onednn_scaled.c) --- */
bool scaled_has_zero(const struct subject *s);
/* Makes attributes with scales, zero points and the epilogue. */
enum status scaled_attr(const struct subject *s, const struct output_view *view, struct choice c,
                        struct recipe *r, dnnl_primitive_attr_t *out);
/* Adds weights and bias. Input 1 is packed as `want` and, behind that, as `bias`; `plain` describes
 * the weights as INT8 in the graph's order. */
void scaled_packed(const struct subject *s, struct recipe *r, const dnnl_memory_desc_t *want,
                   const dnnl_memory_desc_t *plain, const dnnl_memory_desc_t *bias);
/* Sets type and scale of the weights' port. */
void scaled_port(const struct subject *s, struct tactic_port *weights);
/* The integers of the constant weights, in the graph's order; and the bias that goes with them.
 * False: a number of the bias is too large. */
void scaled_weights(const struct subject *s, int8_t *to);
bool scaled_bias(const struct subject *s, struct choice c, const int8_t *weights, float *to);

/* --- BF16 (onednn_half.c) --- */
/* Calls `offer` with copies of the graph in which the input of a product, and then its output as
 * well, are stored as BF16, if the machine has instructions for that. */
typedef enum status (*half_offer)(void *user, const struct ir_graph *graph, struct error *err);
enum status half_each(const struct subject *s, half_offer offer, void *user, struct error *err);

/* The row of an op, or NULL. */
const struct onednn_row *onednn_row_find(enum ir_op op);
/* The implementation's name, like "jit:avx512_core". */
const char *recipe_impl(const struct recipe *r);
enum status status_of_dnnl(dnnl_status_t dnnl);

/* A function of libgomp, declared here because clang brings no omp.h without an OpenMP runtime of
 * its own. It sets the number of threads for the calling thread only. */
void omp_set_num_threads(int threads);

/* What a tactic's blob holds. */
struct choice_blob {
    struct choice choice;
    char impl[IMPL_NAME_MAX];
};

#endif
