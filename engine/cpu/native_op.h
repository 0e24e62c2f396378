/* SPDX-License-Identifier: Apache-2.0 */
/* What the native files share: a node becomes units of work that threads can take. Private to
 * engine/cpu. */
#ifndef INFERD_ENGINE_CPU_NATIVE_OP_H
#define INFERD_ENGINE_CPU_NATIVE_OP_H

#include "engine/cpu/native.h"
#include "engine/stored.h"
#include "engine/cpu/team.h"
#include "kernels/cpu/boxes.h"
#include "kernels/cpu/bytes.h"
#include "kernels/cpu/fast.h"
#include "kernels/cpu/sweep.h"
#include "kernels/cpu/typed.h"
#include "kernels/cpu/walk.h"

enum {
    NATIVE_CHUNK = 2048, /* elements of a row at a time */
    NATIVE_STEPS_MAX = 1 + IR_MAX_EPILOGUE,
    NATIVE_DEPTH_MAX = 1 << 16,  /* of a product of 8-bit integers */
    NATIVE_PACKED_MAX = 1 << 28, /* floats of its weights */
};

/* One function of a chain; exactly one of `unary` and `binary` is set. */
struct native_step {
    fast_unary unary;
    float alpha, beta;
    fast_binary binary;
    uint32_t operand; /* of `binary`: the number of its tensor in the walk */
};

/* A recurrent layer. */
struct native_recurrent {
    enum ir_recurrent cell;
    struct native_step funcs[2][3]; /* the activation functions of each direction's cell */
    float clip;
    enum ir_way way;
    bool linear, coupled, has_c;
    bool packs;     /* the matrix is no constant: each launch packs it */
    bool by_panels; /* threads share hidden elements, not sequences */
    int64_t directions, steps, sequences, hidden;
    int64_t width, once, packed; /* of one direction: elements of all gates; columns of the first
                                  * product; floats of the packed matrix */
    enum dtype lengths;
    uint32_t n_inputs;
};

/* Where the heads of attention's queries, keys or values lie; steps count elements. */
struct native_heads {
    uint32_t input;
    int64_t first, batch, head, row; /* the first head's place; steps */
    int64_t rows, dim;               /* of one head */
};

struct native_attention {
    struct native_heads q, k, v;
    int64_t kv_heads, group; /* heads of keys; heads of queries that read the same one */
    enum dtype mask;         /* NONE: there is no mask */
    int64_t mask_batches;    /* they repeat */
    int64_t mask_stride[SHAPE_MAX_RANK];
    bool mask_shared; /* by all queries that read one head of keys */
    bool causal;
    bool spans; /* operand 4 says which keys each query sees */
    float scale;
    int64_t blocks;  /* of queries that read one head of keys */
    int64_t scratch; /* floats of one thread */
};

/* How a tensor's dims lie in memory, outermost first. */
struct native_stored {
    struct shape dims;
    uint32_t axis[SHAPE_MAX_RANK]; /* the tensor's dim that stored dim d is (a part) of, */
    int64_t unit[SHAPE_MAX_RANK];  /* and how many steps of it a step of d is */
};

/* INSTANCE_NORM over x[image][slab][place][lane], where channel c is lane c % lanes of slab
 * c / lanes. The places of a slab come in parts. */
struct native_groups {
    int64_t images, slabs, places, lanes, channels, in_group;
    int64_t parts, part; /* of a slab; places of a part */
    float epsilon;
};

/* REDUCE. The walk goes over the kept dims, `inner` over the reduced ones. */
struct native_reduce {
    enum ir_reduce func;
    struct ref_walk inner;
    double count;   /* elements of one output */
    int64_t pieces; /* of one output's row, if there are few outputs and long rows; else 0 */
};

/* ARG_REDUCE, CUMSUM, TOPK: x[outer][dim][inner] along `dim`. */
struct native_scan {
    int64_t dim, inner;
    int64_t k;               /* TOPK */
    bool smallest, last;     /* the least element; the last one of equals */
    bool exclusive, reverse; /* CUMSUM */
    enum dtype dtype;        /* of x */
};

/* PAD: stored dims up to the last padded one, then a run of bytes that stays together. */
struct native_pad {
    enum ir_pad mode;
    uint32_t rank; /* at least 1 */
    int64_t in[SHAPE_MAX_RANK], out[SHAPE_MAX_RANK], begin[SHAPE_MAX_RANK];
    int64_t run, size; /* bytes of a run, of an element */
    char value[8];
};

/* CONCAT: rows of a run from each input. Where they begin stands in `owned`. */
struct native_concat {
    uint32_t inputs;
    bool scaled;         /* all tensors are stored in 8 bits by scales */
    int64_t row, blocks; /* bytes of a row of the output, blocks of them */
};

/* RESIZE: stored dims up to the last one that changes, then `inner` elements that stay together. */
struct native_resize {
    uint32_t rank;
    uint32_t axis[SHAPE_MAX_RANK];
    bool changes[SHAPE_MAX_RANK];
    int64_t in[SHAPE_MAX_RANK], out[SHAPE_MAX_RANK], most[SHAPE_MAX_RANK], inner;
    struct sweep_table table[SHAPE_MAX_RANK]; /* they lie in `owned` */
};

/* SAMPLE. The positions of an image come in blocks. */
struct native_sample {
    struct ref_sample how;
    struct shape x, grid;
    uint32_t rank; /* spatial dims */
    bool bilinear;
    int64_t taps, places, block, blocks;
};

/* ROI_POOL: averages of fp32. */
struct native_roi {
    struct ref_roi_pool how;
    int64_t images, channels, rows, columns; /* of x */
    int64_t bins[2];
    enum dtype batch;
};

/* NMS: a unit is a class of an image. */
struct native_nms {
    struct ref_nms how;
    int64_t classes, boxes, most; /* most: selected in one class */
    int64_t cells;                /* of one unit */
};

/* REFORMAT from or to 8 bits: images of channels and places. */
struct native_reformat {
    int64_t channels, places;
    int64_t lanes;          /* of a block of the floats; 0: they are not in blocks */
    int64_t step;           /* with blocks: from one lane's byte to the next */
    int64_t x_size, y_size; /* bytes of an element */
    bool from_last;         /* the input has its channels last */
};

/* An average over windows of 8-bit numbers, channels last. */
struct native_average {
    struct stored x;
    uint32_t rank; /* spatial dims */
    int64_t channels, blocks;
    int64_t in[SHAPE_MAX_RANK], out[SHAPE_MAX_RANK], kernel[SHAPE_MAX_RANK];
    int64_t stride[SHAPE_MAX_RANK], dilation[SHAPE_MAX_RANK], begin[SHAPE_MAX_RANK];
    int64_t end[SHAPE_MAX_RANK]; /* padding that counts */
    bool counts_padding;
};

/* Products of 8-bit integers with constant weights, as floats: rows[depth] times [depth, cols], for
 * each group of each image. Steps count elements. */
struct native_product {
    int64_t images, groups, rows, depth, cols;
    int64_t by_depth, by_col; /* steps in the weights */
    int64_t y_row, y_col;     /* ... in the output */
    int64_t x_part, y_part;   /* ... from group to group */
    enum byte_type type;      /* of the rows */
    bool biased;
    uint32_t rank; /* spatial dims of a convolution; 0: a product */
    int64_t taps, plane;
    int64_t in[SHAPE_MAX_RANK], out[SHAPE_MAX_RANK], kernel[SHAPE_MAX_RANK];
    int64_t stride[SHAPE_MAX_RANK], dilation[SHAPE_MAX_RANK], begin[SHAPE_MAX_RANK];
};

/* EMBED. Tensor 1 + k of the walk over rows are the ids of table k, or its own rows. */
struct native_embed {
    uint32_t n;
    int64_t rows[IR_EMBED_TABLES], count[IR_EMBED_TABLES]; /* of a table; of what is walked */
    enum dtype ids[IR_EMBED_TABLES];                       /* NONE: the table has none */
    typed_row widen, narrow;                               /* NULL: all is fp32 */
};

struct native_op {
    const struct fast_kernels *fast;
    uint32_t threads;
    enum ir_layout layout; /* of the first input, the first output, and of what must match it */
    bool inputs_follow;    /* all inputs have this layout */
    int64_t units;
    team_work work; /* its user pointer is the struct native_op */
    /* After `work`, `middle` runs on the calling thread, then `rest` on all with the same units.
     * NULL: there is no more. */
    void (*middle)(const struct native_op *op);
    team_work rest;
    /* Makes what the op keeps until it is freed (`owned`); NULL: nothing. */
    enum status (*keep)(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node, struct error *err);
    void *owned;
    /* Reads, before the threads start, what later depends on inputs; NULL: nothing does. */
    void (*begin)(struct native_op *op);
    /* Does what may fail, before the threads start; NULL: nothing can fail. */
    enum status (*check)(const struct native_op *op, struct error *err);

    struct ref_walk walk;               /* tensor 0 is the output, tensor 1 the first input */
    uint32_t input[REF_WALK_MAX];       /* node input of tensor k (k >= 1) */
    struct stored stored[REF_WALK_MAX]; /* how tensor k is stored; native_walk_make sets it */

    /* Rows: elementwise chains, softmax, layer norm. */
    int64_t row;                           /* elements of one call */
    int64_t inner[REF_WALK_MAX];           /* each tensor's step within such a row */
    typed_row head;                        /* a chain's first function; NULL: steps[0] is */
    uint32_t n_head;                       /* operands of `head`: tensors 1.. of the walk */
    int64_t head_size[1 + TYPED_OPERANDS]; /* bytes of an element of these, and of the output */
    uint32_t n_steps;
    struct native_step steps[NATIVE_STEPS_MAX];
    bool log_of, is_norm, rms;
    float epsilon;
    uint32_t scale, bias; /* node inputs; bias may be IR_NONE */

    struct byte_sum sum; /* native_bytes_make's */
    struct byte_product product;
    bool quantizes, has_zero; /* QUANTIZE, not DEQUANTIZE; a zero point is there */

    /* Moves. */
    int64_t size;                     /* bytes of an element */
    int64_t rows, cols, x_row, y_row; /* of one matrix; cols are split in blocks */
    int64_t blocks;
    int64_t picks, table; /* GATHER and GATHER_ELEMENTS: indices, and what they choose from */
    int64_t start;        /* of x, in elements: where a strided copy begins */
    int64_t along;        /* GATHER_ELEMENTS: from one such element to the next; else 0 */
    enum dtype index_dtype;
    const char *name; /* the node's, for errors */

    struct ref_walk after; /* native_after's: tensor 0 is the output, others are operands */
    struct native_groups groups;
    struct native_reduce reduce;
    struct native_scan scan;
    struct native_pad pad;
    struct native_concat concat;
    struct native_reformat reformat;
    struct native_average average;
    struct native_product matrix;
    struct native_resize resize;
    struct native_sample sample;
    struct native_roi roi;
    struct native_nms nms;
    struct native_embed embed;
    struct native_recurrent cell;
    struct native_attention attention;

    uint64_t workspace_bytes;
    uint64_t thread_bytes; /* of the workspace that each thread has in addition */
    uint64_t packed_bytes; /* of input 1, if it is a constant that is packed */

    /* Of the launch that runs now. */
    void *const *inputs;
    void *const *outputs;
    void *output; /* the first one */
    void *workspace;
};

/* --- shared by the makers --- */
static inline enum byte_type native_byte(const struct stored *stored)
{
    return stored->dtype == DTYPE_I8 ? BYTE_I8 : BYTE_U8;
}

/* Makes a chain of the walk's n tensors, whose steps are set. */
bool native_chunks_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node, uint32_t n);
/* Takes a table for a chain of functions of one tensor of bytes; false: the chain is none. */
bool native_table_make(struct native_op *op, const struct ir_graph *graph,
                       const struct ir_node *node, uint32_t n);
/* Computes n elements of a chain's output, from element `at` of the walk's row on. */
void native_chunk_run(const struct native_op *op, const struct ref_walk *w, int64_t at, size_t n);
/* Takes a kernel of its own for a chain that adds or multiplies two tensors of bytes. */
void native_bytes_make(struct native_op *op, uint32_t n);
/* The same over a space with strides of its own. */
bool native_row_make(struct native_op *op, const struct shape *space, uint32_t n,
                     int64_t (*strides)[SHAPE_MAX_RANK]);
/* Whether the shape has the layout, without padding, as another one than plain. */
bool native_has_layout(const struct shape *shape, enum ir_layout layout);
/* Whether the inputs from `first` on and the output are fp32. */
bool native_all_f32(const struct ir_graph *graph, const struct ir_node *node, uint32_t first);
/* Computes n elements of the output, from element `at` of the walk's row on. */
typedef void (*native_chunk)(const struct native_op *op, const struct ref_walk *w, int64_t at,
                             size_t n);
/* Does units first..end-1, which are the chunks of the walk's rows. */
void native_each_chunk(const struct native_op *op, int64_t first, int64_t end, native_chunk run);
/* Adds the steps of the node's epilogue. *n is the number of the next tensor in the walk. */
bool native_steps_add(struct native_op *op, const struct ir_node *node, uint32_t *n);
/* Sets op->head to the row of another type than fp32 that computes the node, and adds its operands
 * to the walk; false: there is none. */
bool native_head_make(struct native_op *op, const struct ir_graph *graph,
                      const struct ir_node *node, uint32_t *n);
/* Computes n elements of the output by it, from element `at` of the walk's row on. */
void native_head_run(const struct native_op *op, const struct ref_walk *w, int64_t at, size_t n);
/* n elements of an operand in a row: `data` itself, or `buffer` filled from it. */
const float *native_operand(const float *data, int64_t step, size_t n, float *buffer);
/* Runs the steps over n <= NATIVE_CHUNK elements of y, from element `at` of a row on: the first
 * step reads x, each other one what the step before it wrote. Element i of the row of tensor k is
 * its element base[k] + i * step[k]. */
void native_steps_run(const struct native_op *op, const int64_t *base, const int64_t *step,
                      int64_t at, const float *x, float *y, size_t n);
/* Elements of input tensor k from element `at` on, `step` apart, as n <= NATIVE_CHUNK floats in a
 * row: the tensor's own memory, or `buffer`. */
const float *native_load(const struct native_op *op, uint32_t k, int64_t at, int64_t step, size_t n,
                         float *buffer);
/* Stores n floats, in 8 bits, as elements of the output from `at` on. */
void native_store(const struct native_op *op, int64_t at, const float *x, size_t n);
/* Reads how the n tensors of the walk are stored. False: one is neither fp32, nor in 8 bits by one
 * scale, nor an input of 8-bit integers, which stand for themselves. */
bool native_stored_read(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node, uint32_t n);
/* Sets the walk over the output, in the order in which its layout stores it, and how its n tensors
 * are stored. Operands may broadcast. */
bool native_walk_make(struct native_op *op, const struct ir_graph *graph,
                      const struct ir_node *node, uint32_t n, struct ref_walk *walk);
/* Returns false if a tensor of the shape cannot have the layout, would have padding, or is the same
 * as in the plain layout, which then counts as its only one. */
bool native_stored_make(const struct shape *shape, enum ir_layout layout,
                        struct native_stored *out);
/* Makes the steps of the node's epilogue for native_after, which applies them to n elements of the
 * output from element `at` of its memory on. Any operand that broadcasts will do. */
bool native_after_make(struct native_op *op, const struct ir_graph *graph,
                       const struct ir_node *node);
void native_after(const struct native_op *op, int64_t at, int64_t n);
/* The same for n elements that lie at `y`. */
void native_after_on(const struct native_op *op, int64_t at, float *y, int64_t n);
/* Whether the tensor has to have the op's layout; all others are plain. */
bool native_follows(const struct ir_graph *graph, const struct ir_node *node,
                    const struct native_op *op, uint32_t tensor);

/* Each fills `op` (all but `threads`) for the node and returns true, or returns false if it does
 * not take such nodes. */
bool native_chain_make(struct native_op *op, const struct ir_graph *graph,
                       const struct ir_node *node);
bool native_softmax_make(struct native_op *op, const struct ir_graph *graph,
                         const struct ir_node *node);
bool native_norm_make(struct native_op *op, const struct ir_graph *graph,
                      const struct ir_node *node);
bool native_transpose_make(struct native_op *op, const struct ir_graph *graph,
                           const struct ir_node *node);
bool native_recurrent_make(struct native_op *op, const struct ir_graph *graph,
                           const struct ir_node *node);
/* Packs the plain bytes of a recurrent layer's input 1 into the form that the product reads. */
void native_recurrent_pack(const struct native_op *op, const void *from, float *to);
bool native_attention_make(struct native_op *op, const struct ir_graph *graph,
                           const struct ir_node *node);
bool native_expand_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node);
bool native_steps_make(struct native_op *op, const struct ir_graph *graph,
                       const struct ir_node *node);
/* Copies elements of x from `start` on into y, strides[1] apart; strides[0] are y's. */
bool native_strided_make(struct native_op *op, const struct ir_tensor *x, const struct shape *y,
                         int64_t (*strides)[SHAPE_MAX_RANK], int64_t start);
bool native_gather_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node);
bool native_gather_elements_make(struct native_op *op, const struct ir_graph *graph,
                                 const struct ir_node *node);
bool native_embed_make(struct native_op *op, const struct ir_graph *graph,
                       const struct ir_node *node);
bool native_groups_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node);

bool native_quantize_make(struct native_op *op, const struct ir_graph *graph,
                          const struct ir_node *node);
bool native_convert_make(struct native_op *op, const struct ir_graph *graph,
                         const struct ir_node *node);
bool native_reformat_make(struct native_op *op, const struct ir_graph *graph,
                          const struct ir_node *node);
bool native_product_make(struct native_op *op, const struct ir_graph *graph,
                         const struct ir_node *node);
/* Packs the plain INT8 weights of a product into the form that it reads. */
void native_product_pack(const struct native_op *op, const void *from, float *to);
bool native_average_make(struct native_op *op, const struct ir_graph *graph,
                         const struct ir_node *node);

bool native_reduce_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node);
bool native_arg_make(struct native_op *op, const struct ir_graph *graph,
                     const struct ir_node *node);
bool native_cumsum_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node);
bool native_topk_make(struct native_op *op, const struct ir_graph *graph,
                      const struct ir_node *node);

bool native_concat_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node);
bool native_pad_make(struct native_op *op, const struct ir_graph *graph,
                     const struct ir_node *node);
bool native_slice_make(struct native_op *op, const struct ir_graph *graph,
                       const struct ir_node *node);
bool native_resize_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node);
bool native_sample_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node);
bool native_roi_make(struct native_op *op, const struct ir_graph *graph,
                     const struct ir_node *node);
bool native_nms_make(struct native_op *op, const struct ir_graph *graph,
                     const struct ir_node *node);

#endif
