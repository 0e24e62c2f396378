/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the passes share: a walk over the nodes in their order, and edits that keep count of
 * readers.
 *
 * A visitor is anchored at the last node of what it looks for and searches backwards; when it is
 * called, the node's inputs are up to date. It changes nodes in place or lets one take over the
 * output of another; whatever loses its last reader disappears with everything only it needed.
 * Node pointers are good until the next node is added, tensor pointers until the next tensor.
 *
 * A failed allocation is remembered, and ends the pass: editing functions then do nothing.
 * The cost of a pass is linear in the graph, and in what it changes.
 */
#ifndef INFERD_ENGINE_PASSES_REWRITE_H
#define INFERD_ENGINE_PASSES_REWRITE_H

#include "engine/passes/pass.h"

struct rewrite {
    struct ir_graph *graph;
    struct pass_context *ctx;
    struct error *err;
    enum status status;
    /* For each tensor: */
    uint32_t *uses;    /* node inputs and graph outputs that read it */
    uint32_t *forward; /* the tensor to be read instead; itself if none */
    bool *stepped;     /* a step function reads it; see rw_is_stepped */
    uint32_t cap;
    uint32_t *stack; /* nodes about to be removed */
    uint32_t stack_cap;
    uint64_t room; /* bytes of constants that folding may still make in this pass */
};

typedef void (*rewrite_visit)(struct rewrite *rw, uint32_t node);

/* Calls `visit` for every node that is there when the walk comes to it; not for nodes it adds. */
enum status rewrite_run(struct ir_graph *graph, struct pass_context *ctx, rewrite_visit visit,
                        struct error *err);

/* --- questions --- */

/* Number of readers; a graph output counts as one. */
uint32_t rw_uses(const struct rewrite *rw, uint32_t tensor);

/* The node that makes the tensor, if it is of that op (and has no epilogue); else IR_NONE. */
uint32_t rw_made_by(const struct rewrite *rw, uint32_t tensor, enum ir_op op);
/* The same for UNARY and BINARY nodes with that function. */
uint32_t rw_made_by_unary(const struct rewrite *rw, uint32_t tensor, enum ir_unary func);
uint32_t rw_made_by_binary(const struct rewrite *rw, uint32_t tensor, enum ir_binary func);

uint32_t rw_input(const struct rewrite *rw, uint32_t node, uint32_t i); /* tensor or IR_NONE */
uint32_t rw_output(const struct rewrite *rw, uint32_t node);            /* the first one */
bool rw_is_unary(const struct rewrite *rw, uint32_t node, enum ir_unary func);
bool rw_is_binary(const struct rewrite *rw, uint32_t node, enum ir_binary func);

/* The parameters of a UNARY node, with its function's defaults. */
struct unary_args {
    float alpha, beta, gamma;
};
struct unary_args rw_unary_args(const struct ir_node *node);

/* UNARY LINEAR without epilogue: y = scale * x + shift. */
bool rw_linear(const struct rewrite *rw, uint32_t node, float *scale, float *shift);

/* A function that jumps (floor, a comparison, a cast to integers) reads the tensor: a rounding more
 * or less may matter there, as in floor(index / width). Known for tensors that are not new. */
bool rw_is_stepped(const struct rewrite *rw, uint32_t tensor);

/* fp32, fp16 or bf16: types for which arithmetic may be rearranged in fp32. */
bool rw_is_float(const struct rewrite *rw, uint32_t tensor);

/* --- edits --- */

/* Makes every reader of `from` read `to`, which has the same type. False, with nothing changed, if
 * `from` is a graph output and `to` cannot take its place. */
bool rw_replace(struct rewrite *rw, uint32_t from, uint32_t to);

/* Removes a node whose outputs nobody reads any more, and what only it needed. */
void rw_remove(struct rewrite *rw, uint32_t node);

/* Turns `node` into another op with other inputs; its output stays, attributes and epilogue go. */
void rw_become(struct rewrite *rw, uint32_t node, enum ir_op op, uint32_t n_inputs,
               const uint32_t *inputs);

/* `host` makes the first output of `node`, its only reader, in place of its own; `node` goes, and
 * the name of `host` becomes "host + node". */
void rw_absorb(struct rewrite *rw, uint32_t host, uint32_t node);

void rw_set_input(struct rewrite *rw, uint32_t node, uint32_t i, uint32_t tensor);
void rw_add_input(struct rewrite *rw, uint32_t node, uint32_t tensor);
void rw_add_epilogue(struct rewrite *rw, uint32_t node, struct ir_epilogue step, uint32_t tensor);

/* Adds a node; attributes are set by the caller, then rw_finish infers and makes its output. */
uint32_t rw_add_node(struct rewrite *rw, enum ir_op op, const char *name, uint32_t n_inputs,
                     const uint32_t *inputs);
uint32_t rw_finish(struct rewrite *rw, uint32_t node);

void rw_set_int(struct rewrite *rw, uint32_t node, enum ir_attr_key key, int64_t value);
void rw_set_ints(struct rewrite *rw, uint32_t node, enum ir_attr_key key, uint32_t n,
                 const int64_t *values);
void rw_set_float(struct rewrite *rw, uint32_t node, enum ir_attr_key key, float value);
/* UNARY `func`; the parameters that the function has are written out. */
void rw_become_unary(struct rewrite *rw, uint32_t node, uint32_t input, enum ir_unary func,
                     struct unary_args args);

/* The node's name becomes "a + b", cut if it grows too long. */
void rw_set_name(struct rewrite *rw, uint32_t node, const char *a, const char *b);

/* A constant that shares the bytes of another one. */
uint32_t rw_share_constant(struct rewrite *rw, uint32_t constant, const struct shape *shape);

/* A constant of the graph's arena, filled by the caller; IR_NONE and failed without memory. */
uint32_t rw_add_constant(struct rewrite *rw, const char *name, enum dtype dtype,
                         const struct shape *shape, void **data);

/* Out of memory (or of tensor numbers). */
void rw_fail(struct rewrite *rw);

/* --- log --- */

void rw_done(struct rewrite *rw, const char *fmt, ...) PRINTF(2, 3); /* info; counts a rewrite */
void rw_near_miss(struct rewrite *rw, const char *fmt, ...) PRINTF(2, 3); /* verbose */

#endif
