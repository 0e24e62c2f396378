/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A residual block that changes its channels ends with the sum of two convolutions by windows of
 * one place: the block's last one, and the one that brings the block's input to the same shape.
 * Both become one node:
 *
 *   y = f(conv(x2, w2, b2) + conv(x, w, b))   becomes   y = f(conv_pair(x, w, x2, w2, b + b2))
 *
 * The result of the first convolution, which is as large as y, is then never stored. One source, x,
 * is read pixel by pixel; the other one may be read at steps. Either convolution may be the node
 * that fuse_sum has given the sum to. A backend must have a kernel of its own for the node, and
 * whether that kernel is faster than two depends on sizes. So the pass runs only for who asks for
 * it (pass_context.pairs, engine/build/pairs.c), on a graph that all others are done with.
 */
#include <stdlib.h>

#include "engine/passes/constant.h"
#include "engine/passes/weights.h"

enum { OWN_MAX = 5 };

/* What the new node is made of. */
struct pair {
    struct ir_node first, second; /* in the order in which they run; the second one has the sum */
    uint32_t in[OWN_MAX], n_in;
    int64_t strides[2];
};

static const struct shape *shape_of(const struct rewrite *rw, uint32_t tensor)
{
    return &ir_tensor(rw->graph, tensor)->shape;
}

/* The convolution whose result the node adds first; IR_NONE: there is none. */
static uint32_t find_first(const struct rewrite *rw, const struct ir_node *n)
{
    const struct ir_epilogue *step = n->epilogue;
    if (n->op != IR_OP_CONV || n->n_epilogue == 0 || step->kind != IR_EPILOGUE_BINARY ||
        step->func != IR_BINARY_ADD)
        return IR_NONE;
    return rw_made_by(rw, n->inputs[step->input], IR_OP_CONV);
}

/* Says why the two stay apart. NULL: they need not. */
static const char *check(const struct rewrite *rw, uint32_t first, uint32_t second)
{
    const struct ir_node *a = ir_node(rw->graph, first), *b = ir_node(rw->graph, second);
    if (!weighted_is_pointwise(rw, first) || !weighted_is_pointwise(rw, second))
        return "their windows are not of one place, or their weights are computed or in groups";
    if (rw_uses(rw, a->outputs[0]) != 1)
        return "others read the first one's result";
    if (!shape_equal(shape_of(rw, a->outputs[0]), shape_of(rw, b->outputs[0])))
        return "the first one's result is smaller";
    if (weighted_has_steps(a) && weighted_has_steps(b))
        return "both are read at steps";
    return rw->ctx->pairs->n == PASS_PAIRS_MAX ? "there are too many" : NULL;
}

/* The sum of both biases; IR_NONE: there is none, or no memory. */
static uint32_t sum_biases(struct rewrite *rw, const struct pair *p)
{
    uint32_t a = weighted_bias(&p->first), b = weighted_bias(&p->second);
    if (a == IR_NONE || b == IR_NONE)
        return a == IR_NONE ? b : a;
    const struct ir_tensor t = *ir_tensor(rw->graph, a);
    size_t n = (size_t)t.shape.dim[0];
    float *sums = calloc(MAX(n, 1), sizeof(*sums));
    if (!sums) {
        rw_fail(rw);
        return IR_NONE;
    }
    for (size_t i = 0; i < n; i++)
        sums[i] = constant_at(rw, a, i) + constant_at(rw, b, i);
    uint32_t made = constant_make(rw, t.name, t.dtype, &t.shape, sums);
    free(sums);
    return made;
}

static void pair_init(struct rewrite *rw, uint32_t first, uint32_t second, struct pair *p)
{
    *p = (struct pair){.first = *ir_node(rw->graph, first), .second = *ir_node(rw->graph, second)};
    const struct ir_node *near = weighted_has_steps(&p->first) ? &p->second : &p->first;
    const struct ir_node *far = weighted_has_steps(&p->first) ? &p->first : &p->second;
    uint32_t bias = sum_biases(rw, p);
    const uint32_t in[OWN_MAX] = {near->inputs[0], near->inputs[1], far->inputs[0], far->inputs[1],
                                  bias};
    memcpy(p->in, in, sizeof(in));
    p->n_in = bias == IR_NONE ? OWN_MAX - 1 : OWN_MAX;
    for (uint32_t i = 0; i < 2; i++)
        p->strides[i] = ir_attr_at(far, IR_ATTR_STRIDES, i);
}

static void set_strides(struct rewrite *rw, uint32_t node, const void *user)
{
    const struct pair *p = user;
    rw_set_ints(rw, node, IR_ATTR_STRIDES, 2, p->strides);
}

static void add_steps(struct rewrite *rw, uint32_t node, const void *user)
{
    const struct pair *p = user;
    for (uint32_t i = 1; i < p->second.n_epilogue && !rw->status; i++) {
        const struct ir_epilogue *step = &p->second.epilogue[i];
        bool binary = step->kind == IR_EPILOGUE_BINARY;
        rw_add_epilogue(rw, node, *step, binary ? p->second.inputs[step->input] : IR_NONE);
    }
}

static void fuse(struct rewrite *rw, uint32_t first, uint32_t second)
{
    struct pair p;
    pair_init(rw, first, second, &p);
    const struct rewrite_fusion fusion = {.op = IR_OP_CONV_PAIR,
                                          .first = p.first.name,
                                          .second = p.second.name,
                                          .n_inputs = p.n_in,
                                          .inputs = p.in,
                                          .attrs = set_strides,
                                          .steps = add_steps,
                                          .user = &p};
    rw_join(rw, second, &fusion, "one product over two sources", rw->ctx->pairs);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    uint32_t first = find_first(rw, n);
    if (first == IR_NONE)
        return;
    const char *why = check(rw, first, node);
    if (why)
        rw_near_miss(rw, "%s + %s: %s", ir_node(rw->graph, first)->name, n->name, why);
    else
        fuse(rw, first, node);
}

PASS(fuse_pair)
{
    return ctx->pairs ? rewrite_run(graph, ctx, visit, err) : STATUS_OK;
}
