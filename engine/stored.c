/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/stored.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"

enum dtype stored_type(const struct ir_scale *scale)
{
    if (scale->dtype != DTYPE_NONE)
        return scale->dtype;
    return scale->zero_max > INT8_MAX ? DTYPE_U8 : DTYPE_I8;
}

int32_t stored_least(enum dtype dtype)
{
    return dtype == DTYPE_I8 ? INT8_MIN : 0;
}

bool stored_read(const struct ir_graph *graph, uint32_t tensor, struct stored *out)
{
    if (tensor == IR_NONE)
        return false;
    const struct ir_tensor *t = ir_tensor(graph, tensor);
    const struct ir_scale *scale = ir_scale(graph, t->scale);
    *out = (struct stored){.dtype = DTYPE_NONE};
    if (scale && scale->n == 1)
        *out = (struct stored){t->dtype, scale->step[0], scale->zero ? scale->zero[0] : 0};
    return !scale || scale->n == 1;
}

/* --- a node's tensors: its inputs, then its outputs --- */

static uint32_t count(const struct ir_node *node)
{
    return node->n_inputs + node->n_outputs;
}

static uint32_t tensor_at(const struct ir_node *node, uint32_t i)
{
    return i < node->n_inputs ? node->inputs[i] : node->outputs[i - node->n_inputs];
}

bool stored_any(const struct ir_graph *graph, const struct ir_node *node)
{
    for (uint32_t i = 0; i < count(node); i++)
        if (tensor_at(node, i) != IR_NONE &&
            ir_tensor(graph, tensor_at(node, i))->scale != IR_NO_SCALE)
            return true;
    return false;
}

bool stored_f8(const struct ir_graph *graph, const struct ir_node *node)
{
    for (uint32_t i = 0; i < count(node); i++) {
        const struct ir_tensor *t =
            tensor_at(node, i) == IR_NONE ? NULL : ir_tensor(graph, tensor_at(node, i));
        if (t && t->scale != IR_NO_SCALE && t->dtype == DTYPE_F8)
            return true;
    }
    return false;
}

/* Whether the op writes numbers that it reads, and nothing else, whatever their type is. */
static bool picks(const struct ir_node *node)
{
    if (node->n_epilogue)
        return false;
    switch (node->op) {
    case IR_OP_REFORMAT:
        return true;
    case IR_OP_POOL:
        return ir_attr_int(node, IR_ATTR_FUNC) == IR_POOL_MAX && node->n_outputs == 1;
    case IR_OP_RESIZE:
        return ir_attr_int(node, IR_ATTR_MODE) == IR_RESIZE_NEAREST &&
               ir_attr_int(node, IR_ATTR_COORD) != IR_COORD_TF_CROP;
    default:
        return ir_op_has(node->op, IR_TRAIT_MOVES);
    }
}

bool stored_moves(const struct ir_graph *graph, const struct ir_node *node)
{
    const struct ir_tensor *first = NULL;
    if (!picks(node))
        return false;
    for (uint32_t i = 0; i < count(node); i++) {
        if (tensor_at(node, i) == IR_NONE)
            continue;
        const struct ir_tensor *t = ir_tensor(graph, tensor_at(node, i));
        if (!dtype_is_float(ir_tensor_type(t)))
            continue;
        first = first ? first : t;
        const struct ir_scale *scale = ir_scale(graph, t->scale);
        if (!scale || scale->n != 1 || t->dtype != first->dtype ||
            !ir_scale_equal(scale, ir_scale(graph, first->scale)))
            return false;
    }
    return first != NULL;
}

/* --- ports --- */

static struct tactic_port *port_at(struct tactic *tactic, const struct ir_node *node, uint32_t i)
{
    if (i < node->n_inputs)
        return i < tactic->n_in ? &tactic->in[i] : NULL;
    return &tactic->out[i - node->n_inputs];
}

void stored_set_scales(struct tactic *tactic, const struct ir_graph *graph,
                       const struct ir_node *node)
{
    for (uint32_t i = 0; i < count(node); i++) {
        struct tactic_port *port = port_at(tactic, node, i);
        if (port && tensor_at(node, i) != IR_NONE)
            port->format.scale = ir_tensor(graph, tensor_at(node, i))->scale;
    }
}

bool stored_fits(const struct tactic *tactic, const struct ir_graph *graph,
                 const struct ir_node *node)
{
    for (uint32_t i = 0; i < count(node); i++) {
        bool in = i < node->n_inputs;
        if ((in && i >= tactic->n_in) || tensor_at(node, i) == IR_NONE)
            continue;
        const struct ir_tensor *t = ir_tensor(graph, tensor_at(node, i));
        const struct tactic_port *port = in ? &tactic->in[i] : &tactic->out[i - node->n_inputs];
        if (t->dtype != port->format.dtype || t->scale != port->format.scale)
            return false;
    }
    return true;
}

/* --- other formats --- */

/* Which of a node's tensors are stored in 8 bits. */
enum { FIRST = 1, OTHERS = 2, OUTPUTS = 4, ALL = 7 };

static unsigned group_of(const struct ir_node *node, uint32_t i)
{
    return i >= node->n_inputs ? OUTPUTS : i ? OTHERS : FIRST;
}

/* Whether the tensor may be stored in 8 bits for kernels: constants are not, unless packed. */
static bool may_shrink(const struct ir_graph *graph, uint32_t tensor)
{
    if (tensor == IR_NONE)
        return false;
    const struct ir_tensor *t = ir_tensor(graph, tensor);
    const struct ir_scale *scale = ir_scale(graph, t->range);
    return scale && scale->n == 1 && t->scale == IR_NO_SCALE && t->dtype == DTYPE_F32 &&
           t->layout == IR_LAYOUT_PLAIN && !ir_tensor_is_constant(t);
}

/* Copies the graph, with the node's tensors of these groups in 8 bits, into `to`, which has room
 * for the tensors. */
static bool shrink(const struct ir_graph *graph, const struct ir_node *node, unsigned groups,
                   struct ir_graph *to)
{
    memcpy(to->tensors, graph->tensors, graph->n_tensors * sizeof(*to->tensors));
    for (uint32_t i = 0; i < count(node); i++) {
        uint32_t id = tensor_at(node, i);
        if (!(groups & group_of(node, i)) || !may_shrink(graph, id))
            continue;
        uint32_t range = ir_tensor(graph, id)->range;
        const struct ir_format format = {.layout = IR_LAYOUT_PLAIN,
                                         .dtype = stored_type(ir_scale(graph, range)),
                                         .scale = range};
        if (!ir_tensor_set_format(to, id, format))
            return false;
    }
    return true;
}

enum status stored_each(const struct ir_graph *graph, const struct ir_node *node,
                        stored_offer offer, void *user, struct error *err)
{
    static const unsigned ways[] = {ALL, FIRST | OUTPUTS, FIRST | OTHERS, FIRST, OUTPUTS};
    unsigned there = 0, done = 1; /* sets of groups, as bits of `done` */
    for (uint32_t i = 0; i < count(node) && node->op != IR_OP_REFORMAT; i++)
        if (may_shrink(graph, tensor_at(node, i)))
            there |= group_of(node, i);
    if (!there)
        return STATUS_OK;
    CLEANUP(cleanup_free) struct ir_tensor *tensors = calloc(graph->n_tensors, sizeof(*tensors));
    if (!tensors)
        return error_no_memory(err, "formats of '%s'", node->name);
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        struct ir_graph copy = *graph;
        unsigned groups = ways[i] & there;
        copy.tensors = tensors;
        if (done & 1U << groups || !shrink(graph, node, groups, &copy))
            continue;
        done |= 1U << groups;
        TRY(offer(user, &copy, err));
    }
    return STATUS_OK;
}
