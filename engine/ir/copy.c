/* SPDX-License-Identifier: Apache-2.0 */
/* Copies a whole graph, number by number; see ir.h. */
#include <string.h>

#include "engine/ir/ir.h"

uint32_t ir_tensor_copy(struct ir_graph *to, const struct ir_tensor *t)
{
    uint32_t id = ir_tensor_add(to, t->name, ir_tensor_type(t), &t->shape);
    if (id == IR_NONE)
        return IR_NONE;
    const char *name = ir_tensor(to, id)->name;
    *ir_tensor(to, id) = *t;
    ir_tensor(to, id)->name = name;
    return id;
}

uint32_t ir_node_copy(struct ir_graph *to, const struct ir_node *n)
{
    uint32_t id = ir_node_add(to, n->op, n->name, n->n_inputs, n->inputs);
    if (id == IR_NONE || !ir_attrs_copy(to, id, n))
        return IR_NONE;
    struct ir_node *copy = ir_node(to, id), own = *copy;
    *copy = *n;
    copy->name = own.name;
    copy->inputs = own.inputs;
    copy->attrs = own.attrs;
    return id;
}

bool ir_segments_copy(struct ir_graph *to, const struct ir_graph *from)
{
    to->segments = arena_array(to->arena, from->n_segments + 1, sizeof(*to->segments));
    if (!to->segments)
        return false;
    for (uint32_t i = 0; i < from->n_segments; i++)
        to->segments[i] = from->segments[i];
    to->n_segments = from->n_segments;
    return true;
}

enum status ir_graph_copy(const struct ir_graph *from, struct ir_graph **out, struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *to = ir_graph_new();
    bool ok = to && ir_segments_copy(to, from);
    for (uint32_t i = 0; ok && i < from->n_scales; i++)
        ok = ir_scale_add(to, &from->scales[i]) != IR_NO_SCALE;
    for (uint32_t i = 0; ok && i < from->n_tensors; i++)
        ok = ir_tensor_copy(to, ir_tensor(from, i)) != IR_NONE;
    for (uint32_t i = 0; ok && i < from->n_nodes; i++)
        ok = ir_node_copy(to, ir_node(from, i)) != IR_NONE;
    if (ok)
        to->name = arena_strndup(to->arena, from->name, strlen(from->name));
    if (!ok || !to->name)
        return error_no_memory(err, "a copy of a graph");
    to->n_inputs = from->n_inputs;
    to->n_outputs = from->n_outputs;
    memcpy(to->inputs, from->inputs, sizeof(to->inputs));
    memcpy(to->outputs, from->outputs, sizeof(to->outputs));
    *out = STEAL(to);
    return STATUS_OK;
}
