/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Concatenations and slices that need not run, because their tensors lie where they must: the
 * producers of what is joined write straight into the whole, and the readers of a slice read it
 * from the whole. This takes the axis to be the outermost one in memory that has more than one
 * index, so that a part is one run of bytes, which any kernel can write and read.
 *
 * plan.h has the kinds of aliases. First tensors get their places in outputs of nodes that join,
 * the last node first: of rows that grow, each of which is the beginning of the next one, the
 * longest has all the places, and the others are rows in it. Then slices become aliases, and then
 * rows of slices.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/build/build.h"
#include "engine/build/parts.h"
#include "engine/ir/ops.h"

struct parts {
    struct ir_graph *graph;
    unsigned char *is_output; /* by tensor: a root of a graph's output */
    unsigned char *is_input;  /* by tensor: an input of the node at hand, or a name of one */
    bool several;             /* backends */
    struct ir_node *nodes;    /* as they were before */
    struct ir_tensor *tensors;
};

static void set_alias(struct parts *p, uint32_t tensor, uint32_t of, uint64_t part)
{
    ir_tensor(p->graph, tensor)->alias_of = of;
    ir_tensor(p->graph, tensor)->part = part;
}

static void drop_tactic(struct ir_node *node)
{
    node->tactic = NULL;
    node->workspace_bytes = 0;
    node->time_ns = 0;
}

/* Whether the input's bytes may be written into the output of the node: whoever makes them writes
 * a tensor of its own. */
static bool is_free(const struct parts *p, uint32_t carrier)
{
    const struct ir_tensor *t = ir_tensor(p->graph, carrier);
    return t->alias_of == IR_NONE && t->producer != IR_NONE && !p->is_output[carrier] &&
           !p->is_input[carrier];
}

/* Whether all inputs are cut from one tensor: they may lie in it as neighbours, and nothing need be
 * copied. */
static bool all_cut(const struct ir_graph *graph, const struct ir_node *node)
{
    uint32_t of = IR_NONE;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        uint32_t made = ir_tensor(graph, node->inputs[i])->producer;
        const struct ir_node *from = made == IR_NONE ? NULL : ir_node(graph, made);
        if (!from || !ir_op_has(from->op, IR_TRAIT_CUTS) || (i && from->inputs[0] != of))
            return false;
        of = from->inputs[0];
    }
    return true;
}

static bool may_join(struct parts *p, const struct ir_node *node)
{
    uint32_t y = node->outputs[0], i = 0;
    uint64_t offset;
    bool ok = node->n_inputs > 0 && node->n_outputs == 1 && !(p->several && p->is_output[y]) &&
              !all_cut(p->graph, node);
    for (; i < node->n_inputs && ok; i++) {
        uint32_t carrier = plan_tensor_carrier(p->graph, node->inputs[i]);
        ok = is_free(p, carrier) && ir_node_part(p->graph, node, i, &offset) &&
             offset % BACKEND_ALIGN == 0;
        if (ok)
            p->is_input[carrier] = 1;
    }
    for (uint32_t k = 0; k < i; k++)
        p->is_input[plan_tensor_carrier(p->graph, node->inputs[k])] = 0;
    return ok;
}

static void join(struct parts *p, struct ir_node *node)
{
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        uint64_t offset = 0;
        (void)ir_node_part(p->graph, node, i, &offset);
        set_alias(p, plan_tensor_carrier(p->graph, node->inputs[i]), node->outputs[0], offset);
    }
    drop_tactic(node);
}

/* Makes the node's output a row, if its inputs are neighbours in some tensor already. */
static bool make_row(struct parts *p, struct ir_node *node)
{
    uint32_t y = node->outputs[0];
    uint64_t at, offset;
    if (!node->n_inputs || node->n_outputs != 1 || node->inputs[0] == IR_NONE ||
        ir_tensor(p->graph, y)->alias_of != IR_NONE || p->is_output[y] ||
        !ir_node_part(p->graph, node, 0, &offset))
        return false;
    uint32_t root = plan_tensor_at(p->graph, node->inputs[0], &at);
    if (root == node->inputs[0] || ir_tensor_is_constant(ir_tensor(p->graph, root)) ||
        at + ir_tensor(p->graph, y)->bytes > ir_tensor(p->graph, root)->bytes ||
        !plan_node_joins_at(p->graph, node, root, at))
        return false;
    set_alias(p, y, root, at);
    drop_tactic(node);
    return true;
}

static void make_rows(struct parts *p)
{
    for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
        struct ir_node *node = ir_node(p->graph, i);
        if (ir_op_has(node->op, IR_TRAIT_JOINS) && !plan_node_is_alias(p->graph, node))
            make_row(p, node);
    }
}

static void make_places(struct parts *p)
{
    for (uint32_t i = p->graph->n_nodes; i-- > 0;) {
        struct ir_node *node = ir_node(p->graph, i);
        if (ir_op_has(node->op, IR_TRAIT_JOINS) && !make_row(p, node) && may_join(p, node))
            join(p, node);
    }
}

static void make_slices(struct parts *p)
{
    for (uint32_t i = 0; i < p->graph->n_nodes; i++) {
        struct ir_node *node = ir_node(p->graph, i);
        uint64_t offset;
        if (!ir_op_has(node->op, IR_TRAIT_CUTS) || node->n_outputs != 1 ||
            ir_tensor(p->graph, node->outputs[0])->alias_of != IR_NONE ||
            p->is_output[node->outputs[0]] || !ir_node_part(p->graph, node, 0, &offset) ||
            offset % BACKEND_ALIGN || ir_tensor_is_constant(ir_tensor(p->graph, node->inputs[0])))
            continue;
        set_alias(p, node->outputs[0], node->inputs[0], offset);
        drop_tactic(node);
    }
}

static bool has_several_backends(const struct ir_graph *graph)
{
    const char *first = NULL;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct tactic *tactic = ir_node(graph, i)->tactic;
        if (tactic && first && strcmp(tactic->backend, first) != 0)
            return true;
        first = tactic && !first ? tactic->backend : first;
    }
    return false;
}

static void parts_deinit(struct parts *p)
{
    free(p->is_output);
    free(p->nodes);
    free(p->tensors);
}

static bool parts_init(struct parts *p)
{
    const struct ir_graph *graph = p->graph;
    size_t n = (size_t)graph->n_tensors + 1, n_nodes = (size_t)graph->n_nodes + 1;
    p->is_output = calloc(2 * n, 1);
    p->tensors = calloc(n, sizeof(*p->tensors));
    p->nodes = calloc(n_nodes, sizeof(*p->nodes));
    if (!p->is_output || !p->tensors || !p->nodes)
        return false;
    p->is_input = p->is_output + n;
    memcpy(p->tensors, graph->tensors, (n - 1) * sizeof(*p->tensors));
    memcpy(p->nodes, graph->nodes, (n_nodes - 1) * sizeof(*p->nodes));
    return true;
}

enum status build_parts(struct ir_graph *graph, struct error *err)
{
    CLEANUP(parts_deinit) struct parts p = {.graph = graph};
    if (!parts_init(&p))
        return error_no_memory(err, "the builder");
    p.several = has_several_backends(graph);
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        p.is_output[plan_tensor_root(graph, graph->outputs[i])] = 1;
    make_places(&p);
    make_slices(&p);
    make_rows(&p);
    if (plan_check_chains(graph, NULL)) { /* no plan may have them */
        memcpy(graph->tensors, p.tensors, graph->n_tensors * sizeof(*p.tensors));
        memcpy(graph->nodes, p.nodes, graph->n_nodes * sizeof(*p.nodes));
    }
    return STATUS_OK;
}
