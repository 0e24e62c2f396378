/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes one node of attention's parts, for backends that have kernels for it:
 *
 *   softmax(a Q K' + mask) V
 *
 * The search starts from the second product, whose one operand must come from softmax, and goes
 * back (attention.h). The node's output is rows, [N,Sq,H*E]. What the second product gave is made
 * from it by a reshape and a transpose, which merge_shuffles takes away again where the graph
 * merges the heads behind it, in whatever way.
 *
 * Left alone are scores or probabilities that other nodes read, softmax over another axis, and
 * masks that would say something else: each is a near miss with its reason.
 * Vaswani et al., "Attention Is All You Need", 2017.
 */
#include "engine/passes/attention.h"

static const char *check_values(const struct rewrite *rw, const struct attention *a)
{
    const struct ir_node *n = ir_node(rw->graph, a->values_node);
    uint32_t p = n->inputs[a->mirrored];
    bool turned = ir_attr_int(n, a->mirrored ? IR_ATTR_TRANS_B : IR_ATTR_TRANS_A);
    if (a->shared || rw_uses(rw, p) != 1)
        return "the probabilities have other readers";
    if (turned != a->mirrored)
        return "its softmax is not over the keys";
    if (n->n_epilogue || ir_attr_float(n, IR_ATTR_ALPHA) != 1 ||
        rw_input(rw, a->values_node, 2) != IR_NONE)
        return "the product with the values is scaled or has a bias";
    return NULL;
}

/* Checks softmax's readers, which may be the guard against NaN and the product. */
static const char *find(const struct rewrite *rw, struct attention *a)
{
    const char *why = check_values(rw, a);
    if (!why)
        why = attention_find_scores(rw, a);
    if (!why)
        why = attention_find_operands(rw, a);
    return why ? why : attention_read_mask(rw, a);
}

/* Finds out whether the node is a product with probabilities, on either side. */
static bool find_probabilities(const struct rewrite *rw, uint32_t node, struct attention *a)
{
    for (uint32_t i = 0; i < 2; i++) {
        *a = (struct attention){.values_node = node, .mirrored = i == 1};
        match_part(&a->parts, node);
        if (attention_find_softmax(rw, a, rw_input(rw, node, i)))
            return true;
    }
    return false;
}

/* Makes the attention with its output, [N,Sq,H*E]. */
static uint32_t make_attention(struct rewrite *rw, struct attention *a, const char *name)
{
    bool packed = attention_is_packed(a);
    uint32_t inputs[4] = {IR_NONE, IR_NONE, IR_NONE, attention_make_mask(rw, a, name)};
    if (packed) {
        inputs[0] = attention_make_rows(rw, &a->q, name);
    } else {
        const struct attention_operand *operands[3] = {&a->q, &a->k, &a->v};
        for (uint32_t i = 0; i < 3 && !rw->status; i++)
            inputs[i] = attention_make_operand(rw, a, operands[i], name);
    }
    if (rw->status)
        return IR_NONE;
    uint32_t n = inputs[3] != IR_NONE ? 4 : packed ? 1 : 3;
    uint32_t node = rw_add_node(rw, IR_OP_ATTENTION, name, n, inputs);
    rw_set_int(rw, node, IR_ATTR_HEADS, a->heads);
    rw_set_float(rw, node, IR_ATTR_ALPHA, a->scale);
    rw_set_int(rw, node, IR_ATTR_PACKED, packed);
    if (a->repeats != 1)
        rw_set_int(rw, node, IR_ATTR_KV_HEADS, a->heads / a->repeats);
    if (a->causal)
        rw_set_int(rw, node, IR_ATTR_CAUSAL, 1);
    uint32_t y = rw_finish(rw, node);
    if (y != IR_NONE)
        match_done(rw, &a->parts, node,
                   packed      ? "attention, packed"
                   : a->causal ? "causal attention"
                               : "attention");
    return y;
}

/* [N,Sq,H*E] as the second product had it: [..,Sq,E], or [..,E,Sq]. */
static void replace(struct rewrite *rw, const struct attention *a, uint32_t y, const char *name)
{
    static const int64_t plain[4] = {0, 2, 1, 3}, mirrored[4] = {0, 2, 3, 1};
    const int64_t split[4] = {a->batches, a->queries, a->heads, a->out_dim};
    struct shape shape = ir_tensor(rw->graph, rw_output(rw, a->values_node))->shape;
    uint32_t apart = rw_add_reshape(rw, name, y, 4, split);
    uint32_t heads = rw_add_transpose(rw, name, apart, 4, a->mirrored ? mirrored : plain);
    if (heads != IR_NONE)
        rw_become_reshape(rw, a->values_node, heads, shape.rank, shape.dim);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    struct attention a;
    if (n->op != IR_OP_MATMUL || !rw_is_float(rw, n->inputs[0]) || !rw_is_float(rw, n->inputs[1]) ||
        !find_probabilities(rw, node, &a))
        return;
    const char *name = n->name, *why = find(rw, &a);
    if (why) {
        rw_near_miss(rw, "%s: %s", name, why);
        return;
    }
    uint32_t y = make_attention(rw, &a, name);
    if (y != IR_NONE)
        replace(rw, &a, y, name);
}

PASS(fuse_attention)
{
    if (!ctx->attention)
        return STATUS_OK;
    return rewrite_run(graph, ctx, visit, err);
}
