/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Shared by the passes: a walk over the nodes in their order, and edits that keep count of readers.
 *
 * The walk calls a visitor with each node, whose inputs are then up to date. The visitor takes the
 * node for the last one of what it looks for, and searches backwards. It changes nodes in place, or
 * lets one take over the output of another. A node that loses its last reader disappears, with
 * everything that only it needed. Node pointers are good until the next node is added, tensor
 * pointers until the next tensor.
 *
 * A failed allocation is remembered and ends the pass: editing functions then do nothing. The time
 * of a pass is linear in the graph and in what the pass changes.
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
    uint32_t *forward; /* the tensor to read instead; the tensor itself if there is none */
    bool *stepped;     /* a step function reads it; see rw_is_stepped */
    uint32_t cap;
    uint32_t *stack; /* nodes about to be removed */
    uint32_t stack_cap;
    uint64_t room; /* bytes of constants that folding may still make in this pass */
    void *state;   /* the pass's own */
};

typedef void (*rewrite_visit)(struct rewrite *rw, uint32_t node);

/* Calls `visit` for each node that exists when the walk comes to it; not for nodes that a visitor
 * adds. */
enum status rewrite_run(struct ir_graph *graph, struct pass_context *ctx, rewrite_visit visit,
                        struct error *err);
/* Does the same, with what the pass remembers from node to node in rw->state. */
enum status rewrite_run_with(struct ir_graph *graph, struct pass_context *ctx, rewrite_visit visit,
                             void *state, struct error *err);

/* --- questions --- */

/* Number of readers; a graph output counts as one. */
uint32_t rw_uses(const struct rewrite *rw, uint32_t tensor);

/* The node that makes the tensor, if it is of that op and has no epilogue; otherwise IR_NONE. */
uint32_t rw_made_by(const struct rewrite *rw, uint32_t tensor, enum ir_op op);
/* Do the same for UNARY and BINARY nodes with that function. */
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

/* True if the node is a UNARY LINEAR without epilogue: y = scale * x + shift. */
bool rw_linear(const struct rewrite *rw, uint32_t node, float *scale, float *shift);

/* Says whether a shift is so large that adding it may be meant to round, as x + 1.5 * 2^23 does:
 * then it must be added to the result of what is before it, as a step of its own. */
bool rw_shift_rounds(float shift);

/* Says whether a function that jumps (floor, a comparison, a cast to integers) reads the tensor:
 * then a different rounding may matter, as in floor(index / width). False for new tensors. */
bool rw_is_stepped(const struct rewrite *rw, uint32_t tensor);

/* Says whether the type is fp32, fp16 or bf16, for which arithmetic may be rearranged in fp32. */
bool rw_is_float(const struct rewrite *rw, uint32_t tensor);

/* Says whether both tensors have the same shape. A constant with more dimensions than the other
 * operand of a BINARY gives the result more, too: a node that takes over such a result must ask. */
bool rw_same_shape(const struct rewrite *rw, uint32_t a, uint32_t b);

/* --- edits --- */

/* Makes every reader of `from` read `to`, which has the same type. False, with nothing changed, if
 * `from` is a graph output and `to` cannot take its place. */
bool rw_replace(struct rewrite *rw, uint32_t from, uint32_t to);

/* Removes a node whose outputs nothing reads any more, and the nodes that only it needed. */
void rw_remove(struct rewrite *rw, uint32_t node);

/* Turns `node` into another op with other inputs. Its output stays; its attributes and its epilogue
 * go. */
void rw_become(struct rewrite *rw, uint32_t node, enum ir_op op, uint32_t n_inputs,
               const uint32_t *inputs);

/* Lets `host` make the first output of `node`, its only reader, in place of its own output. `node`
 * goes, and the name of `host` becomes "host + node". */
void rw_absorb(struct rewrite *rw, uint32_t host, uint32_t node);

/* Lets `host` make the first output of `node` beside its own outputs. `node` goes. */
void rw_adopt(struct rewrite *rw, uint32_t host, uint32_t node);

void rw_set_input(struct rewrite *rw, uint32_t node, uint32_t i, uint32_t tensor);
void rw_add_input(struct rewrite *rw, uint32_t node, uint32_t tensor);
void rw_add_epilogue(struct rewrite *rw, uint32_t node, struct ir_epilogue step, uint32_t tensor);

/* Adds a node. The caller sets the attributes; then rw_finish infers and makes its output. */
uint32_t rw_add_node(struct rewrite *rw, enum ir_op op, const char *name, uint32_t n_inputs,
                     const uint32_t *inputs);
uint32_t rw_finish(struct rewrite *rw, uint32_t node);

/* One node in place of two. `attrs` and `steps` give a node its attributes and its epilogue; NULL:
 * it has none. */
struct rewrite_fusion {
    enum ir_op op;
    const char *first, *second; /* names of the two */
    uint32_t n_inputs;
    const uint32_t *inputs;
    void (*attrs)(struct rewrite *rw, uint32_t node, const void *user);
    void (*steps)(struct rewrite *rw, uint32_t node, const void *user);
    const void *user;
    /* When the device is asked, its outputs have the ranges of these tensors; 0: none. */
    uint32_t n_outputs;
    const uint32_t *outputs;
};
/* Asks the device (pass_context.takes) by a node that is made for that. */
bool rw_is_taken(struct rewrite *rw, const struct rewrite_fusion *fusion);
/* Turns `node`, one of the two, into it. The output stays. */
void rw_become_fusion(struct rewrite *rw, uint32_t node, const struct rewrite_fusion *fusion);
/* Does both, says so (`done`: what the fusion is), and lists the node. False: the device does not
 * take it. */
bool rw_join(struct rewrite *rw, uint32_t node, const struct rewrite_fusion *fusion,
             const char *done, struct pass_pairs *list);

void rw_copy_attrs(struct rewrite *rw, uint32_t node, uint32_t from);
void rw_set_int(struct rewrite *rw, uint32_t node, enum ir_attr_key key, int64_t value);
void rw_set_ints(struct rewrite *rw, uint32_t node, enum ir_attr_key key, uint32_t n,
                 const int64_t *values);
void rw_set_float(struct rewrite *rw, uint32_t node, enum ir_attr_key key, float value);
void rw_set_floats(struct rewrite *rw, uint32_t node, enum ir_attr_key key, uint32_t n,
                   const float *values);
/* Turns `node` into UNARY `func` of `input`, with all parameters that the function has. */
void rw_become_unary(struct rewrite *rw, uint32_t node, uint32_t input, enum ir_unary func,
                     struct unary_args args);

/* Turns `node` into a RESHAPE or a TRANSPOSE of `input`. */
void rw_become_reshape(struct rewrite *rw, uint32_t node, uint32_t input, uint32_t rank,
                       const int64_t *dim);
void rw_become_transpose(struct rewrite *rw, uint32_t node, uint32_t input, uint32_t rank,
                         const int64_t *perm);
/* Add one, and give its output. After a failure they give IR_NONE, and take it as the input. */
uint32_t rw_add_reshape(struct rewrite *rw, const char *name, uint32_t input, uint32_t rank,
                        const int64_t *dim);
uint32_t rw_add_transpose(struct rewrite *rw, const char *name, uint32_t input, uint32_t rank,
                          const int64_t *perm);
/* Gives places from..to-1 of the input along the axis; the input itself if these are all. */
uint32_t rw_add_slice(struct rewrite *rw, const char *name, uint32_t input, uint32_t axis,
                      int64_t from, int64_t to);

/* Names the node "a + b", cut if that is too long. */
void rw_set_name(struct rewrite *rw, uint32_t node, const char *a, const char *b);

/* Makes a constant that shares the bytes of another one. */
uint32_t rw_share_constant(struct rewrite *rw, uint32_t constant, const struct shape *shape);

/* Makes a constant in the graph's arena, which the caller fills; IR_NONE, and failed, without
 * memory. */
uint32_t rw_add_constant(struct rewrite *rw, const char *name, enum dtype dtype,
                         const struct shape *shape, void **data);

/* Fails: there is no memory, or no more tensor numbers. */
void rw_fail(struct rewrite *rw);

/* --- log --- */

void rw_done(struct rewrite *rw, const char *fmt, ...) PRINTF(2, 3); /* info; counts a rewrite */
void rw_near_miss(struct rewrite *rw, const char *fmt, ...) PRINTF(2, 3); /* verbose */

#endif
