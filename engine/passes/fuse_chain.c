/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A residual block ends with a convolution by windows of one place, which makes the network's
 * largest tensors, and the next block's first convolution reads that tensor at once, by windows of
 * one place, too. Both become one node with both results:
 *
 *   y = f(conv(x, w, b) + z)
 *   t = g(conv(y, v, a))       become   y, t = conv_chain(x, w, v, -, -, b, z, a)
 *
 * f and g are ReLU or nothing. The first convolution may be the sum of two that fuse_pair has made:
 * it has a second source, and no z. The node stands where the first one stood, since what else it
 * reads are constants; others that read y, such as the next residual, read it as before. Of several
 * convolutions that read y, the first one that fits joins.
 *
 * There are kernels for 8 bits alone, and whether one takes a node depends on scales. So the device
 * is asked by a node whose outputs have the ranges that the two tensors have. The pass runs only
 * for who asks for it
 * (pass_context.chains, engine/build/pairs.c), on a graph that all others are done with.
 */
#include "engine/passes/constant.h"
#include "engine/passes/weights.h"

/* What the new node is made of. */
struct chain {
    struct ir_node first, second;
    uint32_t in[IR_CHAIN_INPUTS], n_in, outputs[2];
    int64_t strides[2], funcs[2];
};

static bool is_relu(const struct ir_epilogue *step)
{
    return step->kind == IR_EPILOGUE_UNARY && step->func == IR_UNARY_RELU;
}

/* The residual that a convolution adds to its result; IR_NONE: there is none. */
static uint32_t residual_of(const struct rewrite *rw, const struct ir_node *n)
{
    const struct ir_epilogue *step = n->epilogue;
    if (n->op != IR_OP_CONV || !n->n_epilogue || step->kind != IR_EPILOGUE_BINARY ||
        step->func != IR_BINARY_ADD)
        return IR_NONE;
    uint32_t z = n->inputs[step->input];
    const struct shape *y = &ir_tensor(rw->graph, n->outputs[0])->shape;
    return shape_equal(&ir_tensor(rw->graph, z)->shape, y) ? z : IR_NONE;
}

/* Whether the node has no steps behind its residual, or ReLU alone. */
static bool ends_with_relu(const struct rewrite *rw, const struct ir_node *n)
{
    uint32_t rest = n->n_epilogue - (residual_of(rw, n) != IR_NONE);
    return rest == 0 || (rest == 1 && is_relu(&n->epilogue[n->n_epilogue - 1]));
}

static bool has_windows_of_one(const struct rewrite *rw, const struct ir_node *n)
{
    const struct shape *w = &ir_tensor(rw->graph, n->inputs[1])->shape;
    return w->rank == 4 && w->dim[2] == 1 && w->dim[3] == 1;
}

/* The node that makes what the convolution reads, if both have windows of one place; or IR_NONE. */
static uint32_t find_first(const struct rewrite *rw, const struct ir_node *n)
{
    if (n->op != IR_OP_CONV || !has_windows_of_one(rw, n))
        return IR_NONE;
    uint32_t first = ir_tensor(rw->graph, n->inputs[0])->producer;
    const struct ir_node *a = first == IR_NONE ? NULL : ir_node(rw->graph, first);
    if (!a || (a->op != IR_OP_CONV_PAIR && (a->op != IR_OP_CONV || !has_windows_of_one(rw, a))))
        return IR_NONE;
    return first;
}

static bool is_plain(const struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op == IR_OP_CONV)
        return weighted_is_pointwise(rw, node);
    return constant_is_float(rw, n->inputs[1]) && constant_is_float(rw, n->inputs[IR_PAIR_W2]);
}

/* Says why the two stay apart. NULL: they need not. */
static const char *check(const struct rewrite *rw, uint32_t first, uint32_t second)
{
    const struct ir_node *a = ir_node(rw->graph, first), *b = ir_node(rw->graph, second);
    if (!is_plain(rw, first) || !is_plain(rw, second))
        return "their images are padded, or their weights are computed or in groups";
    if ((a->op == IR_OP_CONV && weighted_has_steps(a)) || weighted_has_steps(b))
        return "one is read at steps";
    if (!ends_with_relu(rw, a))
        return "the first one does more than to add a residual of its shape, and ReLU";
    if (residual_of(rw, b) != IR_NONE || !ends_with_relu(rw, b))
        return "the second one does more than ReLU";
    return rw->ctx->chains->n == PASS_PAIRS_MAX ? "there are too many" : NULL;
}

static int64_t func_of(const struct ir_node *n)
{
    return n->n_epilogue && is_relu(&n->epilogue[n->n_epilogue - 1]) ? IR_UNARY_RELU
                                                                     : IR_UNARY_IDENTITY;
}

static void chain_init(const struct rewrite *rw, uint32_t first, uint32_t second, struct chain *c)
{
    const struct ir_node *a = ir_node(rw->graph, first), *b = ir_node(rw->graph, second);
    bool two = a->op == IR_OP_CONV_PAIR;
    *c = (struct chain){.first = *a,
                        .second = *b,
                        .n_in = IR_CHAIN_INPUTS,
                        .outputs = {a->outputs[0], b->outputs[0]},
                        .funcs = {func_of(a), func_of(b)}};
    c->in[0] = a->inputs[0];
    c->in[1] = a->inputs[1];
    c->in[IR_CHAIN_NEXT] = b->inputs[1];
    c->in[IR_CHAIN_X2] = two ? a->inputs[IR_PAIR_X2] : IR_NONE;
    c->in[IR_CHAIN_W2] = two ? a->inputs[IR_PAIR_W2] : IR_NONE;
    c->in[IR_CHAIN_BIAS] =
        two ? ir_node_own_inputs(a) > IR_PAIR_BIAS ? a->inputs[IR_PAIR_BIAS] : IR_NONE
            : weighted_bias(a);
    c->in[IR_CHAIN_RESIDUAL] = residual_of(rw, a);
    c->in[IR_CHAIN_NEXT_BIAS] = weighted_bias(b);
    while (c->in[c->n_in - 1] == IR_NONE)
        c->n_in--;
    for (uint32_t i = 0; i < 2; i++)
        c->strides[i] = ir_attr_at(a, IR_ATTR_STRIDES, i);
}

static void set_up(struct rewrite *rw, uint32_t node, const void *user)
{
    const struct chain *c = user;
    if (c->first.op == IR_OP_CONV_PAIR)
        rw_set_ints(rw, node, IR_ATTR_STRIDES, 2, c->strides);
    rw_set_ints(rw, node, IR_ATTR_FUNCS, 2, c->funcs);
}

static void fuse(struct rewrite *rw, uint32_t first, uint32_t second)
{
    struct chain c;
    chain_init(rw, first, second, &c);
    const struct rewrite_fusion fusion = {.op = IR_OP_CONV_CHAIN,
                                          .first = c.first.name,
                                          .second = c.second.name,
                                          .n_inputs = c.n_in,
                                          .inputs = c.in,
                                          .attrs = set_up,
                                          .user = &c,
                                          .n_outputs = 2,
                                          .outputs = c.outputs};
    if (rw_join(rw, first, &fusion, "the second one's input is not read again", rw->ctx->chains))
        rw_adopt(rw, first, second);
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

PASS(fuse_chain)
{
    return ctx->chains ? rewrite_run(graph, ctx, visit, err) : STATUS_OK;
}
