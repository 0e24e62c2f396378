/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Formats: how one tensor may be stored. A tactic's ports speak of the sample, whose scales have
 * numbers of their own; in the graph, a port with a scale means the tensor's own range.
 */
#include "base/compiler.h"
#include "engine/tune/internal.h"

enum ir_layout tune_layout_least(const struct shape *shape, enum ir_layout layout)
{
    for (int i = 0; i < (int)layout; i++)
        if (ir_layouts_agree(shape, (enum ir_layout)i, layout))
            return (enum ir_layout)i;
    return layout;
}

const struct tactic_port *tune_port_in(const struct tactic *tactic, uint32_t input)
{
    return &tactic->in[input < tactic->n_in ? input : tactic->n_in - 1];
}

struct ir_format tune_port_format(const struct ir_tensor *tensor, const struct tactic_port *port)
{
    struct ir_format format = port->format;
    format.scale = format.scale == IR_NO_SCALE ? IR_NO_SCALE : tensor->range;
    return format;
}

const struct ir_tensor *tune_port_at(const struct ir_graph *sample, const struct tactic *tactic,
                                     uint32_t at, const struct tactic_port **port)
{
    const struct ir_node *node = ir_node(sample, 0);
    bool in = at < node->n_inputs;
    uint32_t id = in ? node->inputs[at] : node->outputs[at - node->n_inputs];
    *port = in ? tune_port_in(tactic, at) : &tactic->out[at - node->n_inputs];
    return id == IR_NONE ? NULL : ir_tensor(sample, id);
}

uint32_t tune_types(const struct ir_graph *sample, const struct tactic *tactic)
{
    const struct ir_node *node = ir_node(sample, 0);
    const struct tactic_port *port;
    uint32_t types = 0;
    for (uint32_t i = 0; i < node->n_inputs + node->n_outputs; i++) {
        const struct ir_tensor *t = tune_port_at(sample, tactic, i, &port);
        if (t && port->format.dtype != t->dtype)
            types |= 1U << port->format.dtype;
    }
    return types;
}

enum dtype tune_type(const struct ir_graph *sample, const struct tactic *tactic)
{
    uint32_t types = tune_types(sample, tactic);
    enum dtype least = DTYPE_NONE;
    for (int i = 0; i < DTYPE_COUNT_; i++)
        if (types >> i & 1 && (!least || dtype_size((enum dtype)i) < dtype_size(least)))
            least = (enum dtype)i;
    return least;
}
