/* SPDX-License-Identifier: Apache-2.0 */
/* Passes: one graph rewrite in each file, and the ordered table of them. */
#ifndef INFERD_ENGINE_PASSES_PASS_H
#define INFERD_ENGINE_PASSES_PASS_H

#include "base/error.h"
#include "base/log.h"
#include "engine/import/onnx.h"
#include "engine/ir/ir.h"
#include "engine/passes/table.h"

#define PASS(name)                                                                                 \
    enum status pass_##name(struct ir_graph *graph, struct pass_context *ctx, struct error *err)

#define PASS_NUMBER(name, what) PASS_NUMBER_##name,
enum { PASSES(PASS_NUMBER) PASS_COUNT };

struct pass_tally {
    uint32_t rewrites;
    int32_t removed; /* number of nodes; below zero: the pass added some */
};

/* The nodes that fuse_pair, or fuse_chain, has made, and the names of what they were; all in the
 * graph's arena. */
enum { PASS_PAIRS_MAX = 128 };
struct pass_pairs {
    uint32_t n;
    struct pass_pair {
        const char *first, *second, *both;
    } row[PASS_PAIRS_MAX];
};

struct pass_context {
    struct ir_evaluator evaluator; /* for constant folding */
    const struct log_sink *log;    /* info: each fusion; verbose: why one was missed */
    bool attention;                /* the backend has kernels for IR_OP_ATTENTION */
    bool merge;                    /* merging products of one input pays for the backend */
    bool tables;                   /* the backend looks up what depends on one byte */
    bool picks;                    /* the backend gathers channels where they lie */
    bool joins;                    /* the backend's concatenations have epilogues */
    bool patches;                  /* products over patches of images pay for the backend */
    bool lays;                     /* products that lay patches side by side do, too */
    bool boxes;                    /* concatenations do in place of scattering over a box */
    uint64_t chain_room;           /* bytes that the weights of a chain of layers and a tile of rows
                                      may take in one kernel; 0: there is none for chains */
    bool chain_short;              /* that kernel stores FP32 in 16 bits */
    bool unsettled;                /* a pass before this one has changed the graph in this round */
    bool stems;                    /* the backend has kernels for IR_OP_CONV_POOL */
    struct pass_pairs *pairs;      /* NULL: sums of two convolutions stay apart */
    struct pass_pairs *chains;     /* NULL: convolutions in a row do */
    /* Says whether the device has a kernel of its own for a node, which may have no other one.
     * NULL: it has one for every node. */
    bool (*takes)(void *user, const struct ir_graph *graph, const struct ir_node *node);
    void *takes_user;
    const struct pass *pass; /* the pass that runs */
    uint32_t rewrites;       /* counted up by every rewrite */
    uint64_t fold_work;      /* bytes touched by constant folding so far */
    uint64_t fold_bytes;     /* what a node makes of constants may have so many bytes; 0: as many as
                                are good for a plan */
    struct pass_tally tally[PASS_COUNT];
};

struct pass {
    const char *name; /* "fold_constants" */
    const char *what; /* one line for people */
    enum status (*run)(struct ir_graph *graph, struct pass_context *ctx, struct error *err);
};

/* In the order in which they run; ends with a row whose name is NULL. */
extern const struct pass passes[];

/* Runs one pass, then ir_graph_compact and ir_verify. */
enum status pass_run(const struct pass *pass, struct ir_graph *graph, struct pass_context *ctx,
                     struct error *err);
/* Runs the whole table until nothing changes (bounded). */
enum status passes_run(struct ir_graph *graph, struct pass_context *ctx, struct error *err);
/* Spreads ranges: those of DEQUANTIZE nodes and those that are there already go along with what
 * only moves, and what only a QUANTIZE reads gets its scale. passes_run ends with it; who gives
 * tensors ranges afterwards calls it again. While passes run, ranges lose nothing: they come from
 * DEQUANTIZE nodes alone. */
enum status passes_ranges(struct ir_graph *graph, struct error *err);
const struct pass *pass_find(const char *name);

#define PASS_DECLARE(name, what) PASS(name);
PASSES(PASS_DECLARE)

#endif
