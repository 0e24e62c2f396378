/* SPDX-License-Identifier: Apache-2.0 */
/* How the native files share the work: a node becomes units that threads can take. Private. */
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

/* One function of a chain; either of the two is set. */
struct native_step {
    fast_unary unary;
    float alpha, beta;
    fast_binary binary;
    uint32_t operand; /* of BINARY: index of the walk's tensor */
};

/* A recurrent layer; steps count elements. */
struct native_recurrent {
    enum ir_recurrent cell;
    struct native_step funcs[3]; /* of the cell */
    float clip;
    bool reverse, linear, coupled, has_c;
    bool packs; /* the matrix is computed, and packed for each launch */
    int64_t steps, sequences, hidden, width; /* width: of all gates */
    int64_t once, packed; /* columns of the first product; floats of the packed matrix */
    enum dtype lengths;
    uint32_t n_inputs;
};

struct native_op {
    const struct fast_kernels *fast;
    uint32_t threads;
    int64_t units;
    team_work work; /* on a struct native_op */
    /* What may fail, before the threads start; NULL: nothing does. */
    enum status (*check)(const struct native_op *op, struct error *err);

    struct ref_walk walk;         /* tensor 0 is the output, tensor 1 the first input */
    uint32_t input[REF_WALK_MAX]; /* node input of tensor k (k >= 1) */

    /* Rows: elementwise chains, softmax, layer norm. */
    int64_t row;                 /* elements of one call */
    int64_t inner[REF_WALK_MAX]; /* steps within such a row */
    fast_from from; /* CAST: what the first input is converted by, and its bytes an element */
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

    uint64_t workspace_bytes;
    uint64_t packed_bytes; /* of input 1, if that is a constant in a form of its own */

    /* Of the launch that runs now. */
    void *const *inputs;
    void *const *outputs;
    void *output; /* the first one */
    void *workspace;
};

/* Each fills what it needs (all but `threads`) and returns true if it does such nodes. */
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
/* The form that input 1 of a recurrent layer has, of its plain bytes. */
void native_recurrent_pack(const struct native_op *op, const void *from, float *to);
bool native_gather_make(struct native_op *op, const struct ir_graph *graph,
                        const struct ir_node *node);

#endif
