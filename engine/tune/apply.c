/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The answer put into the graph: layouts, reformats, packed constants, tactics and times. In the
 * end every node is prepared once as it stands, which gives its workspace and proves that what goes
 * into the plan can be made ready.
 */
#include <string.h>

#include "base/compiler.h"
#include "engine/tune/internal.h"

struct apply {
    struct ir_graph *graph;
    const struct tune_options *options;
    struct tune_table *table;
    struct tune_report *report;
};

static enum status no_memory(struct error *err)
{
    return error_set(err, STATUS_RESOURCE_EXHAUSTED, "tuner: out of memory");
}

static enum status set_tactic(struct apply *a, uint32_t node, const struct tune_option *option,
                              struct error *err)
{
    struct tactic *copy = arena_alloc(a->graph->arena, sizeof(*copy));
    if (!copy)
        return no_memory(err);
    *copy = *option->tactic;
    ir_node(a->graph, node)->tactic = copy;
    ir_node(a->graph, node)->time_ns = option->timed ? option->ns : 0;
    return STATUS_OK;
}

/* A node that brings `from` into `to`; both tensors have their layouts. */
static enum status add_reformat(struct apply *a, uint32_t from, uint32_t to, struct error *err)
{
    struct tune_entry *e;
    const struct ir_tensor *x = ir_tensor(a->graph, from);
    enum status st =
        tune_table_reformat(a->table, x, x->layout, ir_tensor(a->graph, to)->layout, &e, err);
    if (st)
        return st;
    if (e->n == 0)
        return error_set(err, STATUS_INTERNAL, "tuner: no reformat where one was planned");
    uint32_t node = ir_node_add(a->graph, IR_OP_REFORMAT, "reformat", 1, &from);
    struct ir_tensor t = *ir_tensor(a->graph, to);
    if (node == IR_NONE || ir_node_output_add(a->graph, node, "", t.dtype, &t.shape) == IR_NONE)
        return no_memory(err);
    ir_node_set_output(a->graph, node, 0, to); /* the one just added drops out */
    a->report->reformats++;
    return set_tactic(a, node, &e->options[0], err);
}

static uint32_t like(struct apply *a, uint32_t tensor, enum ir_layout layout)
{
    struct ir_tensor t = *ir_tensor(a->graph, tensor);
    uint32_t id = ir_tensor_add(a->graph, t.name, t.dtype, &t.shape);
    return id != IR_NONE && ir_tensor_set_layout(a->graph, id, layout) ? id : IR_NONE;
}

/* The tensor in this layout: itself, an earlier reformat of it, or a new one. */
static enum status in_layout(struct apply *a, uint32_t tensor, enum ir_layout layout, uint32_t *out,
                             struct error *err)
{
    *out = tensor;
    if (ir_tensor(a->graph, tensor)->layout == layout)
        return STATUS_OK;
    for (uint32_t i = 0; i < a->graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(a->graph, i);
        if (node->op == IR_OP_REFORMAT && node->inputs[0] == tensor &&
            ir_tensor(a->graph, node->outputs[0])->layout == layout) {
            *out = node->outputs[0];
            return STATUS_OK;
        }
    }
    uint32_t made = like(a, tensor, layout);
    if (made == IR_NONE)
        return no_memory(err);
    enum status st = add_reformat(a, tensor, made, err);
    if (st == STATUS_OK)
        *out = made;
    return st;
}

/* --- outputs: layouts of what nodes write --- */

static enum status set_output(struct apply *a, uint32_t node, uint32_t index, struct error *err)
{
    enum ir_layout layout = ir_node(a->graph, node)->tactic->out[index].layout;
    uint32_t tensor = ir_node(a->graph, node)->outputs[index];
    if (layout == IR_LAYOUT_PLAIN)
        return STATUS_OK;
    if (!ir_tensor_is_output(a->graph, tensor))
        return ir_tensor_set_layout(a->graph, tensor, layout) ? STATUS_OK : no_memory(err);
    /* The graph's output stays plain and keeps its name: everybody else reads the new tensor. */
    uint32_t made = like(a, tensor, layout);
    if (made == IR_NONE)
        return no_memory(err);
    for (uint32_t i = 0; i < a->graph->n_nodes; i++)
        for (uint32_t k = 0; k < ir_node(a->graph, i)->n_inputs; k++)
            if (ir_node(a->graph, i)->inputs[k] == tensor)
                ir_node(a->graph, i)->inputs[k] = made;
    ir_node_set_output(a->graph, node, index, made);
    return add_reformat(a, made, tensor, err);
}

/* --- constants --- */

static enum status add_constant(struct apply *a, uint32_t like_tensor, enum ir_layout layout,
                                uint64_t bytes, const void *data, uint32_t *out, struct error *err)
{
    struct ir_tensor t = *ir_tensor(a->graph, like_tensor);
    uint32_t id = ir_constant_add(a->graph, t.name, t.dtype, &t.shape, data);
    if (id == IR_NONE)
        return no_memory(err);
    ir_tensor(a->graph, id)->layout = layout;
    ir_tensor(a->graph, id)->bytes = bytes;
    *out = id;
    return STATUS_OK;
}

static enum status pack_constant(struct apply *a, uint32_t node, uint32_t input, uint64_t bytes,
                                 uint32_t *out, struct error *err)
{
    struct device *device = a->options->device;
    const struct ir_node *n = ir_node(a->graph, node);
    void *packed = arena_alloc(a->graph->arena, bytes);
    if (!packed)
        return no_memory(err);
    if (!device->backend->pack)
        return error_set(err, STATUS_INTERNAL, "tuner: the backend cannot pack constants");
    enum status st = device->backend->pack(device, a->graph, n, n->tactic, input, packed, err);
    return st ? st : add_constant(a, n->inputs[input], IR_LAYOUT_OPAQUE, bytes, packed, out, err);
}

static enum status reformat_constant(struct apply *a, uint32_t tensor, enum ir_layout layout,
                                     uint32_t *out, struct error *err)
{
    struct tune_entry *e;
    const struct ir_tensor *t = ir_tensor(a->graph, tensor);
    enum status st = tune_table_reformat(a->table, t, t->layout, layout, &e, err);
    if (st)
        return st;
    uint64_t bytes;
    if (e->n == 0 || !ir_layout_bytes(&t->shape, t->dtype, layout, &bytes))
        return error_set(err, STATUS_INTERNAL, "tuner: no reformat where one was planned");
    void *data = arena_alloc(a->graph->arena, bytes);
    if (!data)
        return no_memory(err);
    st = tune_bench_reformat(tune_table_bench(a->table), e->sample, e->options[0].tactic, t->data,
                             data, err);
    return st ? st : add_constant(a, tensor, layout, bytes, data, out, err);
}

/* --- inputs --- */

static enum status set_input(struct apply *a, uint32_t node, uint32_t index, uint32_t *out,
                             struct error *err)
{
    const struct ir_node *n = ir_node(a->graph, node);
    const struct tactic_port *port = tune_port_in(n->tactic, index);
    uint32_t tensor = n->inputs[index];
    if (!ir_tensor_is_constant(ir_tensor(a->graph, tensor)))
        return in_layout(a, tensor, port->layout, out, err);
    if (port->packed_bytes > 0)
        return pack_constant(a, node, index, port->packed_bytes, out, err);
    if (port->layout != ir_tensor(a->graph, tensor)->layout)
        return reformat_constant(a, tensor, port->layout, out, err);
    *out = tensor;
    return STATUS_OK;
}

static enum status set_inputs(struct apply *a, uint32_t node, struct error *err)
{
    /* Packing looks at the node as it was: new inputs only when all are there. */
    uint32_t inputs[IR_MAX_INPUTS];
    uint32_t n = ir_node(a->graph, node)->n_inputs;
    for (uint32_t i = 0; i < n; i++) {
        inputs[i] = ir_node(a->graph, node)->inputs[i];
        if (inputs[i] == IR_NONE)
            continue;
        enum status st = set_input(a, node, i, &inputs[i], err);
        if (st)
            return st;
    }
    memcpy(ir_node(a->graph, node)->inputs, inputs, n * sizeof(*inputs));
    return STATUS_OK;
}

/* A reshape between plain tensors only renames bytes: it needs no workspace, and never runs. */
static enum status set_workspaces(struct apply *a, struct error *err)
{
    for (uint32_t i = 0; i < a->graph->n_nodes; i++) {
        struct ir_node *node = ir_node(a->graph, i);
        a->report->nodes++;
        enum status st = tune_bench_workspace(tune_table_bench(a->table), a->graph, node,
                                              &node->workspace_bytes, err);
        if (st) {
            error_prefix(err, "layer '%s'", node->name);
            return st;
        }
    }
    return STATUS_OK;
}

enum status tune_apply(struct ir_graph *graph, const struct tune_options *options,
                       struct tune_table *table, struct tune_entry *const *entries,
                       const uint32_t *choice, struct tune_report *report, struct error *err)
{
    struct apply a = {graph, options, table, report};
    uint32_t n_nodes = graph->n_nodes; /* those that were tuned; reformats come behind */
    enum status st = STATUS_OK;
    for (uint32_t i = 0; i < n_nodes && !st; i++)
        if (entries[i])
            st = set_tactic(&a, i, &entries[i]->options[choice[i]], err);
    for (uint32_t i = 0; i < n_nodes && !st; i++)
        for (uint32_t k = 0; entries[i] && k < ir_node(graph, i)->n_outputs && !st; k++)
            st = set_output(&a, i, k, err);
    for (uint32_t i = 0; i < n_nodes && !st; i++)
        if (entries[i])
            st = set_inputs(&a, i, err);
    if (!st)
        st = ir_graph_compact(graph, err);
    return st ? st : set_workspaces(&a, err);
}
