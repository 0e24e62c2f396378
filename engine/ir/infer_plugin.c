/* SPDX-License-Identifier: Apache-2.0 */
/* The rule of PLUGIN: the plugin infers, after its node has been found in the registry. */
#include <string.h>

#include "engine/ir/infer.h"
#include "engine/ir/plugin_node.h"

static enum dtype type_of(const struct ir_tensor *t, enum dtype real)
{
    enum dtype dtype = ir_tensor_type(t);
    return dtype == DTYPE_F32 && real != DTYPE_NONE ? real : dtype;
}

enum status ir_plugin_read(const struct ir_graph *graph, const struct ir_node *node,
                           enum dtype real, struct plugin_node *out, struct error *err)
{
    const struct ir_attr *words = ir_attr(node, IR_ATTR_WORDS);
    bool fits = true;
    if (!words || words->is_float)
        return error_set(err, STATUS_INVALID_ARGUMENT, "a plugin's node without words");
    TRY(plugin_node_read(words->i, words->count, out, err));
    for (uint32_t i = 0; i < node->n_inputs && fits; i++) {
        const struct ir_tensor *t = ir_tensor(graph, node->inputs[i]);
        fits = plugin_node_input(out, type_of(t, real), &t->shape);
    }
    for (uint32_t i = 0; i < node->n_outputs && fits; i++) {
        const struct ir_tensor *t = ir_tensor(graph, node->outputs[i]);
        fits = plugin_node_output(out, type_of(t, real), &t->shape);
    }
    return fits ? STATUS_OK
                : error_set(err, STATUS_INVALID_ARGUMENT, "more than %d inputs or %d outputs",
                            INFERD_PLUGIN_MAX_INPUTS, INFERD_PLUGIN_MAX_OUTPUTS);
}

bool ir_plugin_mixes(const struct ir_graph *graph, const struct ir_node *node)
{
    struct plugin_node read;
    return node->op == IR_OP_PLUGIN && !ir_plugin_read(graph, node, DTYPE_NONE, &read, NULL) &&
           read.op->flags & INFERD_PLUGIN_MIXES;
}

/* Outputs are inferred from what goes in alone. */
static enum status infer(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    struct inferd_plugin_tensor types[INFERD_PLUGIN_MAX_OUTPUTS];
    struct plugin_node read;
    struct ir_node node = *in->node;
    node.n_outputs = 0;
    TRY(ir_plugin_read(in->graph, &node, DTYPE_NONE, &read, in->err));
    TRY(plugin_node_infer(&read, types, n_out, in->err));
    for (uint32_t i = 0; i < *n_out; i++) {
        out[i] = (struct ir_type){(enum dtype)types[i].dtype, {.rank = types[i].rank}};
        memcpy(out[i].shape.dim, types[i].dim, sizeof(types[i].dim));
    }
    return STATUS_OK;
}

enum status infer_plugin(const struct infer *in, struct ir_type *out, uint32_t *n_out)
{
    enum status status = infer(in, out, n_out);
    if (status && in->err)
        error_prefix(in->err, "layer \"%s\"", in->node->name);
    return status;
}
