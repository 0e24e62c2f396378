/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The evaluator computes a node that reads constants alone.
 *
 * Some nodes are left to be computed when the model runs, because folding them would blow up the
 * plan or the build: a node whose output is much larger than its inputs (a constant that is
 * expanded to a large shape costs less as a node; but weights are dequantised at any size, since
 * kernels want them as constants, which keep the scale as their range), a node that would bring
 * all constants together above a multiple of the present ones, and a node whose work is too large,
 * because a file of a few bytes could ask for work without end. If a folded node made a graph
 * output, an identity of the constant now makes it.
 */

#include "engine/passes/rewrite.h"

/* Bytes that folding may touch for one graph, in all rounds of passes together. */
#define WORK_MAX (UINT64_C(1) << 33)

/* A node's outputs may have this many bytes, or twice as many as its inputs if that is more, or
 * eight times as many if it dequantises. */
enum { SMALL_BYTES = 2 << 20 };

static bool is_constant_node(const struct ir_graph *g, const struct ir_node *node, uint64_t *bytes)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i] == IR_NONE)
            continue;
        const struct ir_tensor *t = ir_tensor(g, node->inputs[i]);
        if (!t->data || t->layout != IR_LAYOUT_PLAIN)
            return false;
        sum += t->bytes;
    }
    *bytes = sum;
    return node->n_inputs > 0;
}

static bool is_output_identity(const struct ir_graph *g, const struct ir_node *node)
{
    return node->op == IR_OP_UNARY && !node->n_epilogue &&
           ir_attr_int(node, IR_ATTR_FUNC) == IR_UNARY_IDENTITY &&
           ir_tensor_is_output(g, node->outputs[0]);
}

/* Makes the outputs as constants. False, with the reason logged, if they cannot be computed. */
static bool compute(struct rewrite *rw, uint32_t node, uint32_t *ids)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    const void *inputs[IR_MAX_INPUTS];
    void *outputs[IR_MAX_OUTPUTS];
    uint32_t range = ir_range_follows(rw->graph, n);
    if (n->op == IR_OP_RESHAPE) { /* the output has the same bytes */
        ids[0] = rw_share_constant(rw, n->inputs[0], &ir_tensor(rw->graph, n->outputs[0])->shape);
        if (ids[0] != IR_NONE)
            ir_tensor(rw->graph, ids[0])->range = range;
        return ids[0] != IR_NONE;
    }
    for (uint32_t i = 0; i < n->n_outputs; i++) {
        struct ir_tensor t = *ir_tensor(rw->graph, n->outputs[i]);
        ids[i] = rw_add_constant(rw, t.name, t.dtype, &t.shape, &outputs[i]);
        if (ids[i] == IR_NONE)
            return false;
    }
    ir_tensor(rw->graph, ids[0])->range = range;
    for (uint32_t i = 0; i < n->n_inputs; i++)
        inputs[i] = n->inputs[i] == IR_NONE ? NULL : ir_tensor(rw->graph, n->inputs[i])->data;
    struct error why = {0};
    const struct ir_evaluator *e = &rw->ctx->evaluator;
    if (!e->eval(e->user, rw->graph, n, inputs, outputs, &why))
        return true;
    rw_near_miss(rw, "%s (%s) cannot be computed: %s", n->name, ir_op_name(n->op), why.text);
    return false;
}

static void use_constant(struct rewrite *rw, uint32_t output, uint32_t constant)
{
    if (!ir_tensor_is_output(rw->graph, output)) {
        rw_replace(rw, output, constant);
        return;
    }
    uint32_t identity =
        rw_add_node(rw, IR_OP_UNARY, ir_tensor(rw->graph, output)->name, 1, &constant);
    rw_set_int(rw, identity, IR_ATTR_FUNC, IR_UNARY_IDENTITY);
    uint32_t made = rw_finish(rw, identity);
    if (made != IR_NONE)
        rw_replace(rw, output, made);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    uint32_t ids[IR_MAX_OUTPUTS] = {0}, outputs[IR_MAX_OUTPUTS], n_outputs = n->n_outputs;
    uint64_t in_bytes, out_bytes = 0;
    if (!is_constant_node(rw->graph, n, &in_bytes) || is_output_identity(rw->graph, n))
        return;
    for (uint32_t i = 0; i < n_outputs; i++) {
        outputs[i] = n->outputs[i];
        out_bytes += ir_tensor(rw->graph, outputs[i])->bytes;
    }
    uint64_t work = n->op == IR_OP_RESHAPE ? 0 : ir_node_work(rw->graph, n);
    uint64_t most = MAX(SMALL_BYTES, (n->op == IR_OP_DEQUANTIZE ? 8 : 2) * in_bytes);
    bool large = out_bytes > most || out_bytes > rw->room;
    if ((large && out_bytes > rw->ctx->fold_bytes) || work > WORK_MAX - rw->ctx->fold_work) {
        rw_near_miss(rw, "%s (%s) is not folded: %llu bytes from %llu", n->name, ir_op_name(n->op),
                     (unsigned long long)out_bytes, (unsigned long long)in_bytes);
        return;
    }
    rw->ctx->fold_work += work;
    if (!compute(rw, node, ids))
        return;
    rw->room -= MIN(out_bytes, rw->room);
    rw_done(rw, "%s (%s)", n->name, ir_op_name(n->op));
    for (uint32_t i = 0; i < n_outputs; i++)
        if (rw_uses(rw, outputs[i]))
            use_constant(rw, outputs[i], ids[i]);
    rw_remove(rw, node);
}

enum status pass_fold_constants(struct ir_graph *graph, struct pass_context *ctx, struct error *err)
{
    if (!ctx->evaluator.eval)
        return STATUS_OK;
    return rewrite_run(graph, ctx, visit, err);
}
