/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blocks of transformers normalise their rows before they multiply them by weights. Both become one
 * node:
 *
 *   h = layer_norm(x, scale, shift);  y = f(h w + bias)
 *
 * becomes y = f(norm_matmul(x, w, scale, shift, bias)). The normalised rows are then neither stored
 * nor read, and a launch falls away. If others read them too, as the residual sum behind a norm
 * does (Vaswani and others, "Attention Is All You Need", 2017), or the graph gives them away, they
 * are the node's second output; one product alone takes the norm. That node stands where the norm
 * stood. So nothing that its epilogue reads may be made behind the norm: it might depend on h.
 *
 * As with fuse_pair, a backend must have a kernel of its own for the node, which may not be faster
 * than two. So the pass runs only for who asks for it (pass_context.pairs, engine/build/pairs.c),
 * on a graph that all others are done with.
 */
#include <string.h>

#include "engine/passes/weights.h"

enum { OWN_MAX = IR_NORMED_BIAS + 1 };

/* What the new node is made of. */
struct normed {
    struct ir_node norm, product;
    uint32_t in[OWN_MAX], n_in;
};

static const struct shape *shape_of(const struct rewrite *rw, uint32_t tensor)
{
    return &ir_tensor(rw->graph, tensor)->shape;
}

/* The node's own input i; IR_NONE: it has none. */
static uint32_t own_input(const struct ir_node *n, uint32_t i)
{
    return i < ir_node_own_inputs(n) ? n->inputs[i] : IR_NONE;
}

/* A scale or a shift is a constant for each column, or absent. */
static bool is_row(const struct rewrite *rw, uint32_t tensor, int64_t columns)
{
    if (tensor == IR_NONE)
        return true;
    const struct shape *s = shape_of(rw, tensor);
    return ir_tensor(rw->graph, tensor)->data && s->rank == 1 && s->dim[0] == columns;
}

/* Says whether all that the epilogue reads is there before `norm` runs. */
static bool is_ready(const struct rewrite *rw, const struct ir_node *product, uint32_t norm)
{
    for (uint32_t i = ir_node_own_inputs(product); i < product->n_inputs; i++) {
        uint32_t producer = ir_tensor(rw->graph, product->inputs[i])->producer;
        if (producer != IR_NONE && producer >= norm)
            return false;
    }
    return true;
}

static bool has_others(const struct rewrite *rw, uint32_t norm)
{
    return rw_uses(rw, rw_output(rw, norm)) > 1;
}

/* Says why the two stay apart. NULL: they need not. */
static const char *check(const struct rewrite *rw, uint32_t norm, uint32_t product)
{
    const struct ir_node *a = ir_node(rw->graph, norm), *b = ir_node(rw->graph, product);
    const struct shape *rows = shape_of(rw, a->outputs[0]);
    if (!weighted_has_constants(rw, product) || shape_of(rw, b->inputs[1])->rank != 2)
        return "its weights are computed, or not one matrix";
    if (ir_attr_int(b, IR_ATTR_TRANS_A) || ir_attr_float(b, IR_ATTR_ALPHA) != 1)
        return "the product is transposed or scaled";
    if (rows->rank < 2 || ir_attr_int(a, IR_ATTR_AXIS) != rows->rank - 1)
        return "several dimensions are normalised";
    if (!is_row(rw, a->inputs[1], rows->dim[rows->rank - 1]) ||
        !is_row(rw, own_input(a, 2), rows->dim[rows->rank - 1]))
        return "its scale or shift is no constant for each column";
    if (has_others(rw, norm) && !is_ready(rw, b, norm))
        return "others read the norm, and the product may need what they make of it";
    return rw->ctx->pairs->n == PASS_PAIRS_MAX ? "there are too many" : NULL;
}

static void normed_init(const struct rewrite *rw, uint32_t norm, uint32_t product, struct normed *p)
{
    *p =
        (struct normed){.norm = *ir_node(rw->graph, norm), .product = *ir_node(rw->graph, product)};
    p->in[IR_NORMED_X] = p->norm.inputs[0];
    p->in[IR_NORMED_W] = p->product.inputs[1];
    p->in[IR_NORMED_SCALE] = p->norm.inputs[1];
    p->in[IR_NORMED_SHIFT] = own_input(&p->norm, 2);
    p->in[IR_NORMED_BIAS] = own_input(&p->product, 2);
    for (p->n_in = OWN_MAX; p->in[p->n_in - 1] == IR_NONE;)
        p->n_in--;
}

static void set_attrs(struct rewrite *rw, uint32_t node, const void *user)
{
    const struct normed *p = user;
    if (ir_attr_int(&p->product, IR_ATTR_TRANS_B))
        rw_set_int(rw, node, IR_ATTR_TRANS_B, 1);
    rw_set_float(rw, node, IR_ATTR_EPSILON, ir_attr_float(&p->norm, IR_ATTR_EPSILON));
    if (ir_attr_int(&p->norm, IR_ATTR_RMS))
        rw_set_int(rw, node, IR_ATTR_RMS, 1);
}

static void add_steps(struct rewrite *rw, uint32_t node, const void *user)
{
    const struct normed *p = user;
    for (uint32_t i = 0; i < p->product.n_epilogue && !rw->status; i++) {
        const struct ir_epilogue *step = &p->product.epilogue[i];
        bool binary = step->kind == IR_EPILOGUE_BINARY;
        rw_add_epilogue(rw, node, *step, binary ? p->product.inputs[step->input] : IR_NONE);
    }
}

static void fuse(struct rewrite *rw, uint32_t norm, uint32_t product)
{
    struct pass_pairs *pairs = rw->ctx->pairs;
    bool others = has_others(rw, norm);
    uint32_t host = others ? norm : product;
    struct normed p;
    normed_init(rw, norm, product, &p);
    const struct rewrite_fusion fusion = {
        IR_OP_NORM_MATMUL, p.norm.name, p.product.name, p.n_in, p.in,
        others ? 2 : 1,    set_attrs,   add_steps,      &p};
    if (!rw_is_taken(rw, &fusion) || rw->status) {
        rw_near_miss(rw, "%s + %s: no kernel for both, or it is slower", p.norm.name,
                     p.product.name);
        return;
    }
    rw_done(rw, "%s + %s: one product of normalised rows%s", p.norm.name, p.product.name,
            others ? ", which others read" : "");
    rw_become_fusion(rw, host, &fusion);
    if (others)
        rw_take_over(rw, host, product);
    pairs->row[pairs->n++] =
        (struct pass_pair){p.norm.name, p.product.name, ir_node(rw->graph, host)->name};
}

/* Notes a product of rows that another one's node normalises. */
static void note_second(struct rewrite *rw, const struct ir_node *n)
{
    uint32_t producer = ir_tensor(rw->graph, n->inputs[0])->producer;
    const struct ir_node *made = producer == IR_NONE ? NULL : ir_node(rw->graph, producer);
    if (made && made->op == IR_OP_NORM_MATMUL && made->outputs[0] != n->inputs[0])
        rw_near_miss(rw, "%s: %s has the norm", n->name, made->name);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op != IR_OP_MATMUL || !rw_is_float(rw, n->outputs[0]))
        return;
    uint32_t norm = rw_made_by(rw, n->inputs[0], IR_OP_LAYER_NORM);
    if (norm == IR_NONE) {
        note_second(rw, n);
        return;
    }
    const char *why = check(rw, norm, node);
    if (why)
        rw_near_miss(rw, "%s + %s: %s", ir_node(rw->graph, norm)->name, n->name, why);
    else
        fuse(rw, norm, node);
}

PASS(fuse_norm)
{
    return ctx->pairs ? rewrite_run(graph, ctx, visit, err) : STATUS_OK;
}
