/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs of one node: what a backend is asked about, and what is timed. */
#include <string.h>

#include "engine/tune/internal.h"

/* Copies the tensor in `format`; a format with a scale means the copy's range. Every tensor of a
 * sample has a range of its own. */
static uint32_t copy_tensor(struct ir_graph *to, const struct ir_graph *graph,
                            const struct ir_tensor *t, struct ir_format format)
{
    enum dtype type = ir_tensor_type(t);
    uint32_t id = ir_tensor_is_constant(t) ? ir_constant_add(to, "", type, &t->shape, t->data)
                                           : ir_tensor_add(to, "", type, &t->shape);
    uint32_t range = IR_NO_SCALE;
    if (id == IR_NONE ||
        (t->range != IR_NO_SCALE && !(range = ir_scale_add(to, ir_scale(graph, t->range)))))
        return IR_NONE;
    ir_tensor(to, id)->range = range;
    format.scale = format.scale == IR_NO_SCALE ? IR_NO_SCALE : range;
    return format.layout == IR_LAYOUT_OPAQUE || ir_tensor_set_format(to, id, format) ? id : IR_NONE;
}

static bool same_port(const struct tactic_port *a, const struct tactic_port *b)
{
    return a->format.layout == b->format.layout && a->format.dtype == b->format.dtype &&
           a->format.scale == b->format.scale && a->packed_bytes == b->packed_bytes;
}

static bool add_output(struct ir_graph *to, uint32_t node, uint32_t tensor)
{
    struct ir_node *n = ir_node(to, node);
    if (n->n_outputs == IR_MAX_OUTPUTS)
        return false;
    n->outputs[n->n_outputs++] = tensor;
    ir_tensor(to, tensor)->producer = node;
    return true;
}

/* The first input that is the same tensor; a tactic may want a tensor in two forms, which are two
 * tensors then. */
static uint32_t first_use(const struct ir_node *node, uint32_t i, const struct tactic *tactic)
{
    uint32_t k = 0;
    while (k < i && (node->inputs[k] != node->inputs[i] ||
                     (tactic && !same_port(tune_port_in(tactic, k), tune_port_in(tactic, i)))))
        k++;
    return k;
}

/* `tactic` NULL: no form is known yet. */
static bool copy_node(struct ir_graph *to, const struct ir_graph *graph, const struct ir_node *node,
                      const struct tactic *tactic)
{
    uint32_t inputs[IR_MAX_INPUTS];
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        inputs[i] = IR_NONE;
        if (node->inputs[i] == IR_NONE)
            continue;
        uint32_t first = first_use(node, i, tactic);
        if (first < i) {
            inputs[i] = inputs[first];
            continue;
        }
        const struct ir_tensor *t = ir_tensor(graph, node->inputs[i]);
        inputs[i] = copy_tensor(to, graph, t, t->format);
        if (inputs[i] == IR_NONE)
            return false;
    }
    uint32_t id = ir_node_add(to, node->op, node->name, node->n_inputs, inputs);
    if (id == IR_NONE || !ir_attrs_copy(to, id, node))
        return false;
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, node->outputs[i]);
        uint32_t out = copy_tensor(to, graph, t, t->format);
        if (out == IR_NONE || !add_output(to, id, out))
            return false;
    }
    struct ir_node *copy = ir_node(to, id);
    copy->n_epilogue = node->n_epilogue;
    memcpy(copy->epilogue, node->epilogue, sizeof(copy->epilogue));
    return true;
}

static enum status sample_new(const struct ir_graph *graph, const struct ir_node *node,
                              const struct tactic *tactic, struct ir_graph **out, struct error *err)
{
    struct ir_graph *sample = ir_graph_new();
    if (!sample || !copy_node(sample, graph, node, tactic)) {
        ir_graph_free(sample);
        return error_no_memory(err, "the tuner");
    }
    *out = sample;
    return STATUS_OK;
}

enum status tune_sample_new(const struct ir_graph *graph, const struct ir_node *node,
                            struct ir_graph **out, struct error *err)
{
    return sample_new(graph, node, NULL, out, err);
}

enum status tune_sample_reformat(const struct ir_graph *graph, uint32_t tensor,
                                 struct ir_format from, struct ir_format to, struct ir_graph **out,
                                 struct error *err)
{
    struct ir_graph *sample = ir_graph_new();
    const struct ir_tensor *t = ir_tensor(graph, tensor);
    if (!sample)
        return error_no_memory(err, "the tuner");
    uint32_t in = copy_tensor(sample, graph, t, from), made = copy_tensor(sample, graph, t, to);
    uint32_t node = in == IR_NONE || made == IR_NONE
                        ? IR_NONE
                        : ir_node_add(sample, IR_OP_REFORMAT, "reformat", 1, &in);
    if (node == IR_NONE || !add_output(sample, node, made)) {
        ir_graph_free(sample);
        return error_no_memory(err, "the tuner");
    }
    *out = sample;
    return STATUS_OK;
}

static bool shape_port(struct ir_graph *sample, uint32_t tensor, const struct tactic_port *port)
{
    struct ir_tensor *t = ir_tensor(sample, tensor);
    if (!ir_tensor_set_format(sample, tensor, tune_port_format(t, port)))
        return false;
    if (port->packed_bytes)
        t->bytes = port->packed_bytes;
    return true;
}

static bool shape_ports(struct ir_graph *sample, const struct tactic *tactic)
{
    const struct ir_node *node = ir_node(sample, 0);
    bool ok = tactic->n_in > 0 || node->n_inputs == 0;
    for (uint32_t i = 0; i < node->n_inputs && ok; i++)
        if (node->inputs[i] != IR_NONE)
            ok = shape_port(sample, node->inputs[i], tune_port_in(tactic, i));
    for (uint32_t i = 0; i < node->n_outputs && ok; i++)
        ok = shape_port(sample, node->outputs[i], &tactic->out[i]);
    return ok;
}

enum status tune_sample_shaped(const struct ir_graph *sample, const struct tactic *tactic,
                               struct ir_graph **out, struct error *err)
{
    struct ir_graph *copy = NULL;
    TRY(sample_new(sample, ir_node(sample, 0), tactic, &copy, err));
    if (!shape_ports(copy, tactic)) {
        ir_graph_free(copy);
        return error_set(err, STATUS_INTERNAL,
                         "tuner: '%s' asks for a layout that '%s' cannot have", tactic->name,
                         ir_node(sample, 0)->name);
    }
    *out = copy;
    return STATUS_OK;
}
