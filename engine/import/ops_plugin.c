/* SPDX-License-Identifier: Apache-2.0 */
/* Ops of plugins: their attributes become words, and the plugin infers the outputs. */
#include <string.h>

#include "engine/import/ops.h"
#include "engine/plugin/plugin.h"

const struct map_op *map_plugin_row(const char *domain, const char *op)
{
    static const struct map_op row = {.op = "plugin",
                                      .domain = "plugin",
                                      .map = map_plugin,
                                      .arity = {.min_in = 1,
                                                .max_in = INFERD_PLUGIN_MAX_INPUTS,
                                                .max_out = INFERD_PLUGIN_MAX_OUTPUTS},
                                      .types = ~(1u << DTYPE_F8)};
    const struct plugin *of;
    return plugin_find(domain, op, &of) ? &row : NULL;
}

/* Makes a plugin's attribute of ONNX's. Texts lie in the graph's arena. */
static void convert(struct mapper *m, const struct onnx_attr *from, struct inferd_plugin_attr *out)
{
    *out = (struct inferd_plugin_attr){.name = from->name, .count = 1};
    switch (from->type) {
    case ONNX_ATTR_INT:
        out->kind = INFERD_PLUGIN_INTS;
        out->ints = &from->i;
        return;
    case ONNX_ATTR_INTS:
        out->kind = INFERD_PLUGIN_INTS;
        out->count = from->n_ints;
        out->ints = from->ints;
        return;
    case ONNX_ATTR_FLOAT:
        out->kind = INFERD_PLUGIN_FLOATS;
        out->floats = &from->f;
        return;
    case ONNX_ATTR_FLOATS:
        out->kind = INFERD_PLUGIN_FLOATS;
        out->count = from->n_floats;
        out->floats = from->floats;
        return;
    case ONNX_ATTR_STRING:
        out->kind = INFERD_PLUGIN_TEXT;
        out->count = (uint32_t)from->s.size;
        out->text = (const char *)from->s.data;
        return;
    default:
        map_refuse(m, "attribute '%s': plugins get numbers and texts alone", from->name);
    }
}

void map_plugin(struct mapper *m)
{
    struct inferd_plugin_attr attrs[PLUGIN_ATTRS_MAX];
    uint32_t inputs[INFERD_PLUGIN_MAX_INPUTS], outputs[IR_MAX_OUTPUTS];
    int64_t words[PLUGIN_WORDS_MAX];
    uint32_t n = map_in_count(m), n_words = 0;
    const struct plugin *plugin = NULL;
    const struct inferd_plugin_op *op = plugin_find(m->node->domain, m->node->op, &plugin);
    if (m->node->n_attrs > PLUGIN_ATTRS_MAX)
        map_refuse(m, "%u attributes, at most %d", m->node->n_attrs, PLUGIN_ATTRS_MAX);
    for (uint32_t i = 0; i < m->node->n_attrs && !map_failed(m); i++)
        convert(m, &m->node->attrs[i], &attrs[i]);
    for (uint32_t i = 0; i < n && !map_failed(m); i++)
        inputs[i] = map_in(m, i);
    if (!map_failed(m) && !plugin_node_write(plugin, op, attrs, m->node->n_attrs, words, &n_words))
        map_refuse(m, "its attributes are larger than %d bytes", PLUGIN_WORDS_MAX * 8);
    uint32_t node = emit_begin(m, IR_OP_PLUGIN, n, inputs);
    emit_ints(m, node, IR_ATTR_WORDS, n_words, words);
    emit_end_all(m, node, m->node->n_outputs, outputs);
    for (uint32_t i = 0; i < m->node->n_outputs && !map_failed(m); i++)
        map_out(m, i, outputs[i]);
}
