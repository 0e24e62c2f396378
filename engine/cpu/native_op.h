/* SPDX-License-Identifier: Apache-2.0 */
/* What the native files share: a node becomes units of work that threads can take. Private to
 * engine/cpu. */
#ifndef INFERD_ENGINE_CPU_NATIVE_OP_H
#define INFERD_ENGINE_CPU_NATIVE_OP_H

#include "engine/cpu/native.h"
#include "engine/cpu/team.h"
#include "kernels/cpu/fast.h"
#include "kernels/cpu/walk.h"

enum {
    NATIVE_CHUNK = 2048, /* elements of a row at a time */
    NATIVE_STEPS_MAX = 1 + IR_MAX_EPILOGUE,
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
    struct native_step funcs[3]; /* the cell's activation functions */
    float clip;
    bool reverse, linear, coupled, has_c;
    bool packs;                              /* the matrix is no constant: each launch packs it */
    int64_t steps, sequences, hidden, width; /* width: elements of all gates */
    int64_t once, packed; /* columns of the first product; floats of the packed matrix */
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
    int64_t mask_stride[SHAPE_MAX_RANK];
    bool mask_shared; /* by all queries that read one head of keys */
    bool causal;
    float scale;
    int64_t blocks;  /* of queries that read one head of keys */
    int64_t scratch; /* floats of one thread */
};

struct native_op {
    const struct fast_kernels *fast;
    uint32_t threads;
    int64_t units;
    team_work work; /* its user pointer is the struct native_op */
    /* Does what may fail, before the threads start; NULL: nothing can fail. */
    enum status (*check)(const struct native_op *op, struct error *err);

    struct ref_walk walk;         /* tensor 0 is the output, tensor 1 the first input */
    uint32_t input[REF_WALK_MAX]; /* node input of tensor k (k >= 1) */

    /* Rows: elementwise chains, softmax, layer norm. */
    int64_t row;                 /* elements of one call */
    int64_t inner[REF_WALK_MAX]; /* each tensor's step within such a row */
    fast_from from;              /* CAST: converts the first input, of from_size bytes an element */
    int64_t from_size;
    uint32_t n_steps;
    struct native_step steps[NATIVE_STEPS_MAX];
    bool log_of, is_norm;
    float epsilon;
    uint32_t scale, bias; /* node inputs; bias may be IR_NONE */

    /* Moves. */
    int64_t size;                     /* bytes of an element */
    int64_t rows, cols, x_row, y_row; /* of one matrix; cols are split in blocks */
    int64_t blocks;
    int64_t picks, table; /* GATHER: indices, and entries that they choose from */
    enum dtype index_dtype;
    const char *name; /* the node's, for errors */

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
bool native_gather_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node);

#endif
