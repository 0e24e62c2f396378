/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of ragged.h share:
 *
 *   ragged.c          imports, proofs, and what the plan says
 *   ragged_rewrite.c  the rewriting of a graph
 *   ragged_places.c   the part of it that constants by places need
 */
#ifndef INFERD_ENGINE_BUILD_RAGGED_INTERNAL_H
#define INFERD_ENGINE_BUILD_RAGGED_INTERNAL_H

#include "engine/ir/ir.h"

/* Inputs that the runtime makes of the lengths of a batch's sequences. */
#define RAGGED_SPANS     "ragged.spans"
#define RAGGED_POSITIONS "ragged.positions"
#define RAGGED_STARTS    "ragged.starts"

/* What a layer makes of a sequence's tokens, where it may join them. */
enum ragged_kind {
    RAGGED_FIRST, /* the first one */
    RAGGED_MEAN,  /* the mean of all */
    RAGGED_SUM,   /* of integers, for each token their sum up to it */
};

struct ragged_pick {
    enum ragged_kind kind;
    uint32_t from, to;
    const char *name;
};

enum { RAGGED_PICKS_MAX = IR_MAX_IO };

/* The same model, as fused for several sizes: their nodes and tensors have the same numbers. */
struct ragged_forms {
    struct ir_graph *graph;  /* of `n` sequences of `s` tokens */
    struct ir_graph *longer; /* of as many, of `other` tokens: more or fewer */
    struct ir_graph *more;   /* of one more, of `s` */
    struct ir_graph *most;   /* of two, of as many as may be, `length`; NULL: `s` are */
    int64_t n, s, other, length;
    bool *tokens; /* by the model's tensors: it has a row for each token */
    uint32_t n_picks;
    struct ragged_pick picks[RAGGED_PICKS_MAX];
};

/* Takes masks that hide nothing from attention, in all of them. */
enum status ragged_drop_masks(struct ragged_forms *f, struct error *err);

/* Gives `graph` and `longer` the inputs that the runtime makes. What comes of first tokens is cut
 * off: it is an input of these graphs. */
enum status ragged_rewrite(struct ragged_forms *f, struct error *err);

/* Puts tables that positions are looked up in where constants have a row for each place. */
enum status ragged_gather_constants(struct ragged_forms *f, struct error *err);

/* Joins what was cut off, and makes inputs and outputs of `graph` flat. */
enum status ragged_finish(struct ragged_forms *f, struct error *err);

/* --- helpers of the rewriting --- */

/* Refuses the model for what the layer does. */
PRINTF(3, 4)
enum status ragged_refuse(struct error *err, const char *layer, const char *fmt, ...);
enum status ragged_no_memory(struct error *err);

/* Whether the tensor has another shape in the other form. */
bool ragged_differs(const struct ir_graph *a, const struct ir_graph *b, uint32_t tensor);

/* The input of that name; it is made if need be. IR_NONE: no memory, or too many inputs. */
uint32_t ragged_input_of(struct ir_graph *graph, const char *name, const struct shape *shape);

/* Add a node, and give its output; IR_NONE, and the error, if that fails. */
uint32_t ragged_add_reshape(struct ir_graph *graph, const char *name, uint32_t input,
                            const struct shape *shape, struct error *err);
uint32_t ragged_add_gather(struct ir_graph *graph, const char *name, uint32_t from, uint32_t by,
                           struct error *err);

#endif
