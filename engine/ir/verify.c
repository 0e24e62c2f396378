/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks the rules that a graph keeps, after the importer, after every pass, and for every plan
 * that is read. A plan is not trusted: no number is used before it is found to be in range, and the
 * time is linear in nodes, edges and tensors.
 *
 * Three things are checked elsewhere: where tensors lie (the plan reader knows the sections'
 * sizes), tactics (the backend knows them), and the values of constants (kernels check their
 * indices).
 */
#include "engine/ir/infer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

static enum status bad(struct error *err, const char *fmt, ...) PRINTF(2, 3);

static enum status bad(struct error *err, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    error_setv(err, STATUS_INVALID_ARGUMENT, fmt, args);
    va_end(args);
    return STATUS_INVALID_ARGUMENT;
}

static enum status check_counts(const struct ir_graph *g, struct error *err)
{
    if (!g->name || g->n_tensors > IR_MAX_TENSORS || g->n_nodes > IR_MAX_NODES ||
        g->n_inputs > IR_MAX_IO || g->n_outputs > IR_MAX_IO || g->n_segments > g->n_nodes)
        return bad(err, "graph has %u tensors, %u nodes, %u inputs, %u outputs, %u segments",
                   g->n_tensors, g->n_nodes, g->n_inputs, g->n_outputs, g->n_segments);
    if (g->n_outputs == 0)
        return bad(err, "graph has no outputs");
    return STATUS_OK;
}

/* Checks that `real` is set exactly if another type is stored in place of the graph's own. */
static enum status check_format(const struct ir_graph *g, uint32_t id, struct error *err)
{
    const struct ir_tensor *t = ir_tensor(g, id);
    char text[IR_FORMAT_TEXT_MAX];
    if (t->range > g->n_scales || t->scale > g->n_scales)
        return bad(err, "tensor %u (%s) names scale %u of %u", id, t->name, MAX(t->range, t->scale),
                   g->n_scales);
    if (t->real == DTYPE_NONE && t->scale == IR_NO_SCALE)
        return STATUS_OK;
    if (t->real != t->dtype && dtype_is_float(t->real) && ir_format_fits(g, t, t->format))
        return STATUS_OK;
    return bad(err, "tensor %u (%s) of %s cannot be stored as %s", id, t->name,
               dtype_name(ir_tensor_type(t)), ir_format_text(g, t->format, text));
}

static enum status check_scales(const struct ir_graph *g, struct error *err)
{
    for (uint32_t i = 0; i < g->n_scales; i++) {
        const struct ir_scale *s = &g->scales[i];
        for (uint32_t k = 0; k < s->n; k++)
            if (!isfinite(s->step[k]) || s->step[k] <= 0)
                return bad(err, "scale %u has the step %g, which is not finite and above 0", i + 1,
                           (double)s->step[k]);
    }
    return STATUS_OK;
}

static enum status check_tensor(const struct ir_graph *g, uint32_t id, struct error *err)
{
    const struct ir_tensor *t = ir_tensor(g, id);
    uint64_t bytes;
    if (!t->name)
        return bad(err, "tensor %u has no name", id);
    if (!ir_layout_bytes(&t->shape, t->dtype, IR_LAYOUT_PLAIN, &bytes))
        return bad(err, "tensor %u (%s) has no valid type and shape", id, t->name);
    if (t->layout == IR_LAYOUT_OPAQUE) {
        if (!ir_tensor_is_constant(t) || t->bytes > IR_MAX_TENSOR_BYTES)
            return bad(err, "tensor %u (%s) is opaque, but no constant of %llu bytes", id, t->name,
                       (unsigned long long)t->bytes);
    } else if (!ir_layout_bytes(&t->shape, t->dtype, t->layout, &bytes) || bytes != t->bytes) {
        return bad(err, "tensor %u (%s) has %llu bytes, not what its layout %s takes", id, t->name,
                   (unsigned long long)t->bytes, ir_layout_name(t->layout));
    }
    TRY(check_format(g, id, err));
    if (t->producer != IR_NONE && (t->producer >= g->n_nodes || ir_tensor_is_constant(t)))
        return bad(err, "tensor %u (%s) says it was made by node %u", id, t->name, t->producer);
    if (t->alias_of != IR_NONE && t->alias_of >= g->n_tensors)
        return bad(err, "tensor %u (%s) lies in tensor %u of %u", id, t->name, t->alias_of,
                   g->n_tensors);
    return STATUS_OK;
}

/* Checks that chains of aliases end, and that a tensor is no larger than the one whose bytes it
 * shares. `state`: 0 unseen, 1 on the chain that is being followed, 2 known to end. */
static enum status check_aliases(const struct ir_graph *g, uint8_t *state, struct error *err)
{
    for (uint32_t i = 0; i < g->n_tensors; i++) {
        uint32_t at = i;
        for (; at != IR_NONE && state[at] == 0; at = ir_tensor(g, at)->alias_of) {
            uint32_t in = ir_tensor(g, at)->alias_of;
            if (in != IR_NONE &&
                (ir_tensor(g, at)->bytes > ir_tensor(g, in)->bytes ||
                 ir_tensor(g, at)->part > ir_tensor(g, in)->bytes - ir_tensor(g, at)->bytes))
                return bad(err, "tensor %u reaches beyond tensor %u, which it lies in", at, in);
            state[at] = 1;
        }
        if (at != IR_NONE && state[at] == 1)
            return bad(err, "tensor %u lies in itself", at);
        for (at = i; at != IR_NONE && state[at] == 1; at = ir_tensor(g, at)->alias_of)
            state[at] = 2;
    }
    return STATUS_OK;
}

/* `state` becomes 1 for each graph input, 2 for each graph output. */
static enum status check_ends(const struct ir_graph *g, uint8_t *state, struct error *err)
{
    for (uint32_t i = 0; i < g->n_inputs; i++) {
        uint32_t id = g->inputs[i];
        if (id >= g->n_tensors || state[id])
            return bad(err, "graph input %u is tensor %u, which is not there or an input already",
                       i, id);
        const struct ir_tensor *t = ir_tensor(g, id);
        if (t->producer != IR_NONE || ir_tensor_is_constant(t))
            return bad(err, "graph input %u (%s) is a constant or has a producer", i, t->name);
        state[id] = 1;
    }
    for (uint32_t i = 0; i < g->n_outputs; i++) {
        uint32_t id = g->outputs[i];
        if (id >= g->n_tensors || state[id])
            return bad(err, "graph output %u is tensor %u, which is not there or used already", i,
                       id);
        if (ir_tensor(g, id)->producer == IR_NONE)
            return bad(err, "graph output %u (%s) is made by no node", i, ir_tensor(g, id)->name);
        state[id] = 2;
    }
    return STATUS_OK;
}

static enum status check_reads(const struct ir_graph *g, uint32_t at, const uint8_t *ends,
                               struct error *err)
{
    const struct ir_node *node = ir_node(g, at);
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        uint32_t id = node->inputs[i];
        if (id == IR_NONE)
            continue; /* ir_infer_node knows whether the input may be absent */
        if (id >= g->n_tensors)
            return bad(err, "node %u (%s) reads tensor %u of %u", at, node->name, id, g->n_tensors);
        const struct ir_tensor *t = ir_tensor(g, id);
        if (t->producer == IR_NONE && !ir_tensor_is_constant(t) && ends[id] != 1)
            return bad(err, "node %u (%s) reads tensor %u (%s), which nobody makes", at, node->name,
                       id, t->name);
        if (t->producer != IR_NONE && t->producer >= at)
            return bad(err, "node %u (%s) runs before node %u, which makes its input %s", at,
                       node->name, t->producer, t->name);
    }
    return STATUS_OK;
}

static enum status check_epilogue(const struct ir_graph *g, uint32_t at, const struct ir_type *type,
                                  struct error *err)
{
    const struct ir_node *node = ir_node(g, at);
    uint32_t next = ir_node_own_inputs(node);
    if (node->n_epilogue &&
        (!ir_op_has(node->op, IR_TRAIT_EPILOGUE) || !dtype_is_float(type->dtype)))
        return bad(err, "node %u (%s) has an epilogue, but is %s of %s", at, node->name,
                   ir_op_name(node->op), dtype_name(type->dtype));
    for (uint32_t i = 0; i < node->n_epilogue; i++) {
        const struct ir_epilogue *step = &node->epilogue[i];
        if (step->kind == IR_EPILOGUE_UNARY) {
            if (step->func >= IR_UNARY_COUNT_ || step->func == IR_UNARY_NOT ||
                step->func == IR_UNARY_IS_NAN || step->func == IR_UNARY_IS_INF ||
                step->func == IR_UNARY_BITWISE_NOT)
                return bad(err, "node %u (%s): epilogue step %u has function %u", at, node->name, i,
                           step->func);
            continue;
        }
        /* The operands are the last inputs, in the order of the steps. */
        if (step->kind != IR_EPILOGUE_BINARY || step->func > IR_BINARY_PRELU ||
            step->input != next || next >= node->n_inputs)
            return bad(err, "node %u (%s): epilogue step %u is not valid", at, node->name, i);
        const struct ir_tensor *t = ir_tensor(g, node->inputs[next++]);
        struct shape r;
        char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
        if (ir_tensor_type(t) != type->dtype || !shape_broadcast(&t->shape, &type->shape, &r) ||
            !shape_equal(&r, &type->shape))
            return bad(err, "node %u (%s): epilogue operand %s %s does not fit %s %s", at,
                       node->name, dtype_name(ir_tensor_type(t)), shape_format(&t->shape, have),
                       dtype_name(type->dtype), shape_format(&type->shape, want));
    }
    return STATUS_OK;
}

static enum status check_outputs(const struct ir_graph *g, uint32_t at, const struct ir_type *types,
                                 uint32_t n_types, uint32_t *made, struct error *err)
{
    const struct ir_node *node = ir_node(g, at);
    if (node->n_outputs < ir_op_row(node->op)->min_out || node->n_outputs > n_types)
        return bad(err, "node %u (%s) has %u outputs", at, node->name, node->n_outputs);
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        uint32_t id = node->outputs[i];
        if (id >= g->n_tensors || ir_tensor(g, id)->producer != at || made[id] != IR_NONE)
            return bad(err, "node %u (%s): output %u is tensor %u, which is not its own", at,
                       node->name, i, id);
        made[id] = at;
        const struct ir_tensor *t = ir_tensor(g, id);
        if (ir_tensor_type(t) != types[i].dtype || !shape_equal(&t->shape, &types[i].shape)) {
            char have[SHAPE_TEXT_MAX], want[SHAPE_TEXT_MAX];
            return bad(err, "node %u (%s): output %u is %s %s, not %s %s", at, node->name, i,
                       dtype_name(ir_tensor_type(t)), shape_format(&t->shape, have),
                       dtype_name(types[i].dtype), shape_format(&types[i].shape, want));
        }
    }
    return STATUS_OK;
}

static enum status check_node(const struct ir_graph *g, uint32_t at, const uint8_t *ends,
                              uint32_t *made, struct error *err)
{
    const struct ir_node *node = ir_node(g, at);
    struct ir_type types[IR_MAX_OUTPUTS];
    uint32_t n_types = 0;
    if (node->op == IR_OP_NONE)
        return STATUS_OK;
    if (!node->name || node->n_inputs > IR_MAX_INPUTS || node->n_outputs > IR_MAX_OUTPUTS ||
        node->n_epilogue > IR_MAX_EPILOGUE || node->n_attrs > IR_ATTR_COUNT_ ||
        (node->n_inputs && !node->inputs) || (node->n_attrs && !node->attrs))
        return bad(err, "node %u has %u inputs, %u outputs, %u attributes, %u epilogue steps", at,
                   node->n_inputs, node->n_outputs, node->n_attrs, node->n_epilogue);
    TRY(check_reads(g, at, ends, err));
    TRY(ir_infer_node(g, node, types, &n_types, err));
    TRY(check_epilogue(g, at, &types[0], err));
    return check_outputs(g, at, types, n_types, made, err);
}

static enum status check_segments(const struct ir_graph *g, struct error *err)
{
    uint32_t next = 0;
    for (uint32_t s = 0; s < g->n_segments; s++) {
        const struct ir_segment *segment = &g->segments[s];
        if (!segment->backend || segment->first != next || segment->count == 0 ||
            segment->count > g->n_nodes - next)
            return bad(err, "segment %u of nodes %u + %u does not follow node %u", s,
                       segment->first, segment->count, next);
        for (uint32_t i = 0; i < segment->count; i++)
            if (ir_node(g, next + i)->segment != s)
                return bad(err, "node %u is in segment %u, not %u", next + i,
                           ir_node(g, next + i)->segment, s);
        next += segment->count;
    }
    if (g->n_segments && next != g->n_nodes)
        return bad(err, "segments end at node %u of %u", next, g->n_nodes);
    return STATUS_OK;
}

/* `made` gets, for each tensor, the node that has it as an output. */
static enum status check_nodes(const struct ir_graph *graph, const uint8_t *ends, uint32_t *made,
                               struct error *err)
{
    memset(made, 0xff, graph->n_tensors * sizeof(*made)); /* IR_NONE */
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        TRY(check_node(graph, i, ends, made, err));
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        if (ir_tensor(graph, i)->producer != made[i])
            return bad(err, "tensor %u (%s) is no output of node %u", i, ir_tensor(graph, i)->name,
                       ir_tensor(graph, i)->producer);
    return STATUS_OK;
}

enum status ir_verify(const struct ir_graph *graph, struct error *err)
{
    TRY(check_counts(graph, err));
    TRY(check_scales(graph, err));
    size_t n = MAX(graph->n_tensors, 1);
    CLEANUP(cleanup_free) uint8_t *aliases = calloc(n, 1);
    CLEANUP(cleanup_free) uint8_t *ends = calloc(n, 1);
    CLEANUP(cleanup_free) uint32_t *made = calloc(n, sizeof(*made));
    if (!aliases || !ends || !made)
        return error_no_memory(err, "checking %u tensors", graph->n_tensors);
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        TRY(check_tensor(graph, i, err));
    TRY(check_aliases(graph, aliases, err));
    TRY(check_ends(graph, ends, err));
    TRY(check_nodes(graph, ends, made, err));
    return check_segments(graph, err);
}
