/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the proof share:
 *
 *   along.c         both graphs, constants, epilogues, and what holds of all nodes
 *   along_rules.c   one rule an op
 *   along_moves.c   those of ops that move elements
 *   along_index.c   those of ops that pick elements by indices, and of plugins
 *   along_value.c   what is known of numbers behind the request
 */
#ifndef INFERD_ENGINE_BUILD_ALONG_INTERNAL_H
#define INFERD_ENGINE_BUILD_ALONG_INTERNAL_H

#include "engine/build/along.h"

/* --- values --- */

enum along_kind {
    ALONG_WILD,   /* it may be infinite, or no number */
    ALONG_FINITE, /* as any number of the model */
    ALONG_LOW,    /* a softmax makes 0 of it; may be -inf */
    ALONG_CONST,  /* `c`, which is finite */
};

struct along_value {
    enum along_kind kind;
    double c;
    uint64_t from; /* inputs, by bits, whose zeros it follows from */
    bool rows;     /* what follows from them differs along another dimension of the size as well */
};

struct along_value along_const(double c);
struct along_value along_of(enum along_kind kind);
struct along_value along_join(struct along_value a, struct along_value b);
/* Whether a softmax makes 0 of it. */
bool along_is_low(struct along_value v);
/* Whether the function may make something else of a finite number than another one. */
bool along_unary_grows(enum ir_unary func);
bool along_binary_grows(enum ir_binary func);
/* Whether its product with 0 is 0. */
bool along_is_tame(struct along_value v);
bool along_is_zero(struct along_value v);
struct along_value along_unary(enum ir_unary func, struct along_value x, const float constants[3]);
struct along_value along_binary(enum ir_binary func, struct along_value a, struct along_value b);

/* --- tensors --- */

/* A dimension of outer x size x inner indices, in this order. */
struct along_mark {
    bool on;
    int64_t inner;
    struct along_value behind; /* where all other marks of the tensor are within the request */
};

struct along_state {
    bool broken;            /* nothing is known of the tensor */
    bool constant;          /* no request changes it */
    bool finite;            /* all of it is, wherever it lies */
    uint64_t reads;         /* inputs, by bits, that it follows from */
    uint64_t lows;          /* inputs, by bits, that make some of its numbers low */
    struct along_value all; /* its numbers within the request */
    struct along_mark mark[SHAPE_MAX_RANK];
};

struct along_proof {
    const struct ir_graph *small, *large;
    int64_t small_size, large_size;
    enum along_mode mode;
    struct along_state *states;   /* by tensor */
    uint64_t masks, first, whole; /* as in along_result */
};

/* One node. Of the outputs nothing is marked yet. */
struct along_node {
    struct along_proof *proof;
    const struct ir_node *small, *large;
    uint32_t n_inputs; /* the op's own */
    struct along_state *out[IR_MAX_OUTPUTS];
};

/* One of the op's own operands; NULL: it is absent. */
const struct along_state *along_input(const struct along_node *n, uint32_t i);
const struct shape *along_shape(const struct along_node *n, uint32_t i);
const struct shape *along_out_shape(const struct along_node *n, uint32_t i);
bool along_has_marks(const struct along_node *n, uint32_t i);
/* What the operand's numbers are behind the request along dimension d; all of them if it is not
 * marked there. d < 0: it has no such dimension. */
struct along_value along_behind(const struct along_state *s, int d);
/* Notes that a mask hides what is behind the request. */
void along_hide(const struct along_node *n, struct along_value mask);
/* The same of a mask that hides keys, along dimension d, from queries: what is asked of it. The
 * tensor is the mask, or the scores to which it was added. */
void along_hide_keys(const struct along_node *n, const struct along_state *tensor, uint32_t d,
                     bool scores);
/* Whether a dimension other than d is marked. */
bool along_has_others(const struct along_state *s, int d);

/* Marks of operands that broadcast to output 0, and its values. False: they do not go together. */
typedef struct along_value (*along_combine)(const void *user, const struct along_value *values);
bool along_broadcast(const struct along_node *n, const uint32_t *inputs, uint32_t n_inputs,
                     along_combine combine, const void *user, struct along_state *out);

/* --- for the rules --- */

static inline bool along_is_apart(const struct along_node *n)
{
    return n->proof->mode == ALONG_APART;
}

/* Whether the dimension is the marked one and nothing else. */
static inline bool along_is_plain(const struct along_node *n, const struct shape *shape,
                                  const struct along_mark *mark, uint32_t d)
{
    return mark->inner == 1 && shape->dim[d] == n->proof->large_size;
}

/* Any result of something of that value. */
static inline struct along_value along_made_of(struct along_value v)
{
    struct along_value made = along_of(along_is_tame(v) ? ALONG_FINITE : ALONG_WILD);
    made.from = v.from;
    return made;
}

/* Output `o` has the marks of operand `i` in the same dimensions. */
static inline void along_keep_marks(const struct along_node *n, uint32_t i, uint32_t o)
{
    const struct along_state *x = along_input(n, i);
    for (uint32_t d = 0; d < along_shape(n, i)->rank; d++)
        if (x->mark[d].on)
            n->out[o]->mark[d] =
                (struct along_mark){true, x->mark[d].inner, along_made_of(x->mark[d].behind)};
}

/* --- the rules --- */

bool along_rule_reshape(struct along_node *n);
bool along_rule_transpose(struct along_node *n);
bool along_rule_same(struct along_node *n);
bool along_rule_expand(struct along_node *n);
bool along_rule_tile(struct along_node *n);
bool along_rule_concat(struct along_node *n);
bool along_rule_slice(struct along_node *n);
bool along_rule_pad(struct along_node *n);
bool along_rule_trilu(struct along_node *n);
bool along_rule_resize(struct along_node *n);
bool along_rule_gather(struct along_node *n);
bool along_rule_embed(struct along_node *n);
bool along_rule_gather_elements(struct along_node *n);
bool along_rule_gather_nd(struct along_node *n);
bool along_rule_scatter_elements(struct along_node *n);
bool along_rule_one_hot(struct along_node *n);
bool along_rule_plugin(struct along_node *n);

/* The rule of an op; NULL: there is none. */
typedef bool (*along_rule)(struct along_node *n);
along_rule along_rule_of(enum ir_op op);
/* Whether the node sums, sorts or compares along a marked dimension, without any doubt. */
bool along_joins(const struct along_node *n);
/* Whether the op compares this constant itself, because its numbers are places that depend on
 * sizes. */
bool along_takes_places(const struct along_node *n, uint32_t input);
/* Whether the op's shape-like attributes may differ between the sizes. */
bool along_may_differ(enum ir_op op, enum ir_attr_key key);

#endif
