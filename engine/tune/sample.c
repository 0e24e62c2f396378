/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs of one node: what a backend is asked about, and what is timed. */
#include <string.h>

#include "engine/tune/internal.h"

static uint32_t copy_tensor(struct ir_graph *to, const struct ir_tensor *t)
{
    uint32_t id = ir_tensor_is_constant(t) ? ir_constant_add(to, "", t->dtype, &t->shape, t->data)
                                           : ir_tensor_add(to, "", t->dtype, &t->shape);
    if (id != IR_NONE && t->layout != IR_LAYOUT_OPAQUE && !ir_tensor_set_layout(to, id, t->layout))
        return IR_NONE;
    return id;
}

static bool copy_attrs(struct ir_graph *to, uint32_t node, const struct ir_node *from)
{
    for (uint32_t i = 0; i < from->n_attrs; i++) {
        const struct ir_attr *a = &from->attrs[i];
        if (!(a->is_float ? ir_attr_set_floats(to, node, a->key, a->count, a->f)
                          : ir_attr_set_ints(to, node, a->key, a->count, a->i)))
            return false;
    }
    return true;
}

static bool copy_node(struct ir_graph *to, const struct ir_graph *graph, const struct ir_node *node)
{
    uint32_t inputs[IR_MAX_INPUTS];
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        inputs[i] = IR_NONE;
        if (node->inputs[i] == IR_NONE)
            continue;
        inputs[i] = copy_tensor(to, ir_tensor(graph, node->inputs[i]));
        if (inputs[i] == IR_NONE)
            return false;
    }
    uint32_t id = ir_node_add(to, node->op, node->name, node->n_inputs, inputs);
    if (id == IR_NONE || !copy_attrs(to, id, node))
        return false;
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, node->outputs[i]);
        uint32_t out = ir_node_output_add(to, id, "", t->dtype, &t->shape);
        if (out == IR_NONE || !ir_tensor_set_layout(to, out, t->layout))
            return false;
    }
    struct ir_node *copy = ir_node(to, id);
    copy->n_epilogue = node->n_epilogue;
    memcpy(copy->epilogue, node->epilogue, sizeof(copy->epilogue));
    return true;
}

enum status tune_sample_new(const struct ir_graph *graph, const struct ir_node *node,
                            struct ir_graph **out, struct error *err)
{
    struct ir_graph *sample = ir_graph_new();
    if (!sample || !copy_node(sample, graph, node)) {
        ir_graph_free(sample);
        return error_no_memory(err, "the tuner");
    }
    *out = sample;
    return STATUS_OK;
}

enum status tune_sample_reformat(const struct ir_tensor *tensor, struct tune_format from,
                                 struct tune_format to, struct ir_graph **out, struct error *err)
{
    struct ir_graph *sample = ir_graph_new();
    if (!sample)
        return error_no_memory(err, "the tuner");
    enum dtype x = tune_stored(tensor->dtype, from.dtype), y = tune_stored(tensor->dtype, to.dtype);
    uint32_t in = ir_tensor_add(sample, "", x, &tensor->shape), made = IR_NONE;
    uint32_t node =
        in == IR_NONE ? IR_NONE : ir_node_add(sample, IR_OP_REFORMAT, "reformat", 1, &in);
    if (node != IR_NONE && (x == y || ir_attr_set_int(sample, node, IR_ATTR_TO, y)))
        made = ir_node_output_add(sample, node, "", y, &tensor->shape);
    if (made == IR_NONE || !ir_tensor_set_layout(sample, in, from.layout) ||
        !ir_tensor_set_layout(sample, made, to.layout)) {
        ir_graph_free(sample);
        return error_no_memory(err, "the tuner");
    }
    *out = sample;
    return STATUS_OK;
}

const struct tactic_port *tune_port_in(const struct tactic *tactic, uint32_t input)
{
    return &tactic->in[input < tactic->n_in ? input : tactic->n_in - 1];
}

bool tune_cast_follow(struct ir_graph *graph, uint32_t node)
{
    const struct ir_node *n = ir_node(graph, node);
    return n->op != IR_OP_CAST ||
           ir_attr_set_int(graph, node, IR_ATTR_TO, ir_tensor(graph, n->outputs[0])->dtype);
}

static bool shape_port(struct ir_graph *sample, uint32_t tensor, enum dtype dtype,
                       const struct tactic_port *port)
{
    struct ir_tensor *t = ir_tensor(sample, tensor);
    t->dtype = tune_stored(t->dtype, dtype);
    if (port->packed_bytes == 0)
        return ir_tensor_set_layout(sample, tensor, port->layout);
    t->layout = IR_LAYOUT_OPAQUE;
    t->bytes = port->packed_bytes;
    return true;
}

static bool shape_ports(struct ir_graph *sample, const struct tactic *tactic)
{
    const struct ir_node *node = ir_node(sample, 0);
    bool ok = tactic->n_in > 0 || node->n_inputs == 0;
    for (uint32_t i = 0; i < node->n_inputs && ok; i++)
        if (node->inputs[i] != IR_NONE)
            ok = shape_port(sample, node->inputs[i], tactic->dtype, tune_port_in(tactic, i));
    for (uint32_t i = 0; i < node->n_outputs && ok; i++)
        ok = shape_port(sample, node->outputs[i], tactic->dtype, &tactic->out[i]);
    return ok && tune_cast_follow(sample, 0);
}

enum status tune_sample_shaped(const struct ir_graph *sample, const struct tactic *tactic,
                               struct ir_graph **out, struct error *err)
{
    struct ir_graph *copy;
    enum status st = tune_sample_new(sample, ir_node(sample, 0), &copy, err);
    if (st)
        return st;
    if (!shape_ports(copy, tactic)) {
        st = error_set(err, STATUS_INTERNAL, "tuner: '%s' asks for a layout that '%s' cannot have",
                       tactic->name, ir_node(sample, 0)->name);
        ir_graph_free(copy);
        return st;
    }
    *out = copy;
    return STATUS_OK;
}
