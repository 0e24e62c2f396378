/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What fuse_attention knows of one attention while it looks for its parts:
 *
 *   attention_scores.c   from softmax back to the product of queries and keys, and what is added
 *                        to the scores or hides them on the way
 *   attention_split.c    how the products' dimensions are batches and heads, and where queries,
 *                        keys and values come from
 *   attention_mask.c     all that is added or hides scores becomes one mask, or the causal flag
 *
 * Functions that return a text say why there is no attention; NULL: all is well.
 */
#ifndef INFERD_ENGINE_PASSES_ATTENTION_H
#define INFERD_ENGINE_PASSES_ATTENTION_H

#include "engine/passes/match.h"
#include "engine/passes/view.h"

/* A score that is replaced by a number up to this one, or to which such a number is added, is
 * hidden: beside any other score its probability is zero. */
#define ATTENTION_FLOOR_MAX (-9999.0F)

/* Where an operand is read. */
enum attention_form {
    ATTENTION_TURNED,  /* [N,H,D,S]: a transpose must come first */
    ATTENTION_HEADS,   /* [N,H,S,D] */
    ATTENTION_ROWS,    /* [N,S,row], of which H*D columns belong to the heads */
    ATTENTION_CROSSED, /* [S,N,row]: a transpose must come first, which then goes away together with
                          one before the product (cancel_transposes.c) */
};

struct attention_operand {
    enum attention_form form;
    struct view view;
    int64_t row; /* the width of a row, of ROWS and CROSSED */
    bool spares; /* the rows lie before a transpose, which then goes away */
};

/* Something that the scores meet on their way to softmax. */
struct attention_term {
    bool hides;          /* the tensor says which scores are hidden; otherwise it is added */
    bool inverted;       /* hides: hidden are those where the tensor is true, not false */
    float floor;         /* hides: what a hidden score becomes. Added: -inf if it is a constant of
                            zeros and -inf */
    float scale;         /* added: after a multiplication with it */
    uint32_t tensor;     /* broadcasts to the scores; hides: BOOL, or a constant of 0 and others */
    struct shape scores; /* the scores' shape there */
};

enum {
    ATTENTION_TERMS_MAX = 6,
    ATTENTION_COLUMNS_MAX = 256, /* of a head: beyond that two products are as good */
};

struct attention {
    struct match parts;
    uint32_t softmax_node, scores_node, values_node;
    bool shared;          /* other nodes read the probabilities */
    bool mirrored;        /* the second product is V' P' */
    uint32_t zeroed;      /* a condition by which probabilities become zero; or IR_NONE */
    bool zeroed_inverted; /* where it is true, not false */
    uint32_t factor;      /* multiplies the scores, the same for all keys; or IR_NONE */
    struct shape factor_scores;
    float scale;
    struct attention_term terms[ATTENTION_TERMS_MAX];
    uint32_t n_terms;
    int64_t batches, heads, repeats; /* repeats: query heads of a head of keys and values */
    int64_t queries, keys, dim, out_dim;
    struct attention_operand q, k, v;
    bool causal;
};

/* --- attention_scores.c --- */

/* Follows the second product's probabilities back to softmax. */
bool attention_find_softmax(const struct rewrite *rw, struct attention *a, uint32_t probabilities);
const char *attention_find_scores(const struct rewrite *rw, struct attention *a);

/* --- attention_split.c --- */

/* Finds batches, heads and the operands. */
const char *attention_find_operands(const struct rewrite *rw, struct attention *a);
/* Makes the tensor that the attention reads. */
uint32_t attention_make_operand(struct rewrite *rw, const struct attention *a,
                                const struct attention_operand *operand, const char *name);
/* Says whether the rows of one tensor hold queries, keys and values behind one another. */
bool attention_is_packed(const struct attention *a);
/* Reads the operand's tensor as its rows, [N,S,row]. */
uint32_t attention_make_rows(struct rewrite *rw, const struct attention_operand *operand,
                             const char *name);

/* --- attention_mask.c --- */

/* Decides what becomes of the terms. The graph stays as it is. */
const char *attention_read_mask(const struct rewrite *rw, struct attention *a);
/* Makes the mask: IR_NONE if there is none (or the pass has failed). */
uint32_t attention_make_mask(struct rewrite *rw, const struct attention *a, const char *name);
/* Says whether a tensor, which broadcasts to scores of this shape, can be read as one that
 * broadcasts to [N,H,Sq,Sk]. */
bool attention_fits_heads(const struct rewrite *rw, const struct attention *a, uint32_t tensor,
                          const struct shape *scores);
/* Makes the tensor read so. */
uint32_t attention_to_heads(struct rewrite *rw, const struct attention *a, uint32_t tensor,
                            const struct shape *scores, const char *name);

#endif
