/* SPDX-License-Identifier: Apache-2.0 */
/* Marks which tensors keep their type, changes the others in place, then adds the casts. */
#include "engine/build/widen.h"

#include <stdio.h>
#include <stdlib.h>

#include "engine/passes/constant.h"

struct widening {
    struct ir_graph *graph;
    uint32_t n_tensors, n_nodes; /* before anything was added */
    struct mark {
        enum dtype was; /* F16 or BF16; NONE: any other type, which is left alone */
        bool keeps;     /* it stays as it is */
        bool whole;     /* something reads all of it, not a part */
        uint32_t wide;  /* a kept tensor as FP32; IR_NONE: not made yet */
        uint32_t round; /* a widened tensor, rounded to what it was, as FP32; IR_NONE: not made */
    } * marks;
    struct error *err;
};

static bool is_short(enum dtype dtype)
{
    return dtype == DTYPE_F16 || dtype == DTYPE_BF16;
}

static size_t elements(const struct ir_tensor *t)
{
    return (size_t)t->bytes / dtype_size(t->dtype);
}

/* --- which tensors keep their type --- */

/* The constant of 16-bit floats of which the node only moves a part, or IR_NONE. */
static uint32_t table_of(const struct widening *w, const struct ir_node *node)
{
    uint32_t table = IR_NONE, n = 0;
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        if (node->inputs[i] == IR_NONE || w->marks[node->inputs[i]].was == DTYPE_NONE)
            continue;
        table = node->inputs[i];
        n++;
    }
    if (n != 1 || !ir_op_has(node->op, IR_TRAIT_MOVES))
        return IR_NONE;
    const struct ir_tensor *t = ir_tensor(w->graph, table);
    bool part = t->data && elements(ir_tensor(w->graph, node->outputs[0])) < elements(t);
    return part ? table : IR_NONE;
}

static void mark_readers(struct widening *w, const struct ir_node *node)
{
    uint32_t table = table_of(w, node);
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] != IR_NONE && node->inputs[i] != table)
            w->marks[node->inputs[i]].whole = true;
}

static void mark_tables(struct widening *w)
{
    for (uint32_t i = 0; i < w->n_nodes; i++)
        mark_readers(w, ir_node(w->graph, i));
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        const struct ir_node *node = ir_node(w->graph, i);
        uint32_t table = table_of(w, node);
        if (table == IR_NONE || w->marks[table].whole)
            continue;
        w->marks[table].keeps = true;
        w->marks[node->outputs[0]].keeps = true;
    }
}

/* How many tensors are to be widened. */
static uint32_t mark_all(struct widening *w)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < w->n_tensors; i++) {
        enum dtype dtype = ir_tensor(w->graph, i)->dtype;
        w->marks[i] = (struct mark){
            .was = is_short(dtype) ? dtype : DTYPE_NONE, .wide = IR_NONE, .round = IR_NONE};
    }
    for (uint32_t i = 0; i < w->graph->n_inputs; i++)
        w->marks[w->graph->inputs[i]].keeps = true;
    mark_tables(w);
    for (uint32_t i = 0; i < w->n_tensors; i++)
        n += w->marks[i].was != DTYPE_NONE && !w->marks[i].keeps;
    return n;
}

/* --- the others become FP32 --- */

static enum status widen_tensor(struct widening *w, uint32_t id)
{
    struct ir_tensor *t = ir_tensor(w->graph, id);
    size_t n = elements(t);
    const void *from = t->data;
    float *to = NULL;
    if (from && !(to = arena_alloc(w->graph->arena, MAX(n, 1) * sizeof(*to))))
        return error_no_memory(w->err, "weights in FP32");
    for (size_t i = 0; from && i < n; i++)
        to[i] = float_get(from, t->dtype, i);
    t->data = to;
    t->dtype = DTYPE_F32;
    t->bytes = n * sizeof(*to);
    return STATUS_OK;
}

static enum status widen_tensors(struct widening *w)
{
    for (uint32_t i = 0; i < w->n_tensors; i++)
        if (w->marks[i].was != DTYPE_NONE && !w->marks[i].keeps)
            TRY(widen_tensor(w, i));
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        struct ir_node *node = ir_node(w->graph, i);
        if (ir_attr(node, IR_ATTR_TO) && is_short((enum dtype)ir_attr_int(node, IR_ATTR_TO)) &&
            !ir_attr_set_int(w->graph, i, IR_ATTR_TO, DTYPE_F32))
            return error_no_memory(w->err, "casts to FP32");
    }
    return STATUS_OK;
}

/* --- casts --- */

static enum status add_cast(struct widening *w, uint32_t x, const char *of, const char *what,
                            const char *output, enum dtype to, uint32_t *out)
{
    char name[160];
    snprintf(name, sizeof(name), "%.100s/%s", of, what);
    uint32_t node = ir_node_add(w->graph, IR_OP_CAST, name, 1, &x);
    if (node == IR_NONE || !ir_attr_set_int(w->graph, node, IR_ATTR_TO, to))
        return error_no_memory(w->err, "casts of 16-bit floats");
    TRY(ir_infer_apply(w->graph, node, &output, 1, w->err));
    *out = ir_node(w->graph, node)->outputs[0];
    return STATUS_OK;
}

/* *slot: what to read instead of a tensor that keeps its type. */
static enum status read_wide(struct widening *w, uint32_t *slot)
{
    struct mark *mark = &w->marks[*slot];
    const char *name = ir_tensor(w->graph, *slot)->name;
    if (mark->wide == IR_NONE)
        TRY(add_cast(w, *slot, name, "widen", NULL, DTYPE_F32, &mark->wide));
    *slot = mark->wide;
    return STATUS_OK;
}

/* *slot: what to read instead of a widened tensor where its rounding decides something. */
static enum status read_rounded(struct widening *w, uint32_t *slot)
{
    struct mark *mark = &w->marks[*slot];
    const char *name = ir_tensor(w->graph, *slot)->name;
    uint32_t rounded;
    if (mark->round == IR_NONE) {
        TRY(add_cast(w, *slot, name, "round", NULL, mark->was, &rounded));
        TRY(add_cast(w, rounded, name, "rounded", NULL, DTYPE_F32, &mark->round));
    }
    *slot = mark->round;
    return STATUS_OK;
}

/* Says whether the node makes a decision of its operands: one of its results is no number with a
 * fraction, or its function jumps. NaN stays NaN in any precision. */
static bool decides(const struct ir_graph *graph, const struct ir_node *node)
{
    bool asks_nan = node->op == IR_OP_UNARY && ir_attr_int(node, IR_ATTR_FUNC) == IR_UNARY_IS_NAN;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        if (!dtype_is_float(ir_tensor(graph, node->outputs[i])->dtype))
            return !asks_nan;
    return ir_node_jumps(node);
}

static enum status read_inputs(struct widening *w, uint32_t id)
{
    bool rounds = decides(w->graph, ir_node(w->graph, id));
    for (uint32_t i = 0; i < ir_node(w->graph, id)->n_inputs; i++) {
        uint32_t x = ir_node(w->graph, id)->inputs[i], before = x;
        if (x == IR_NONE || w->marks[x].was == DTYPE_NONE)
            continue;
        bool constant = ir_tensor_is_constant(ir_tensor(w->graph, x));
        if (w->marks[x].keeps && !constant)
            TRY(read_wide(w, &x));
        else if (rounds && !constant)
            TRY(read_rounded(w, &x));
        if (x != before)
            ir_node(w->graph, id)->inputs[i] = x;
    }
    return STATUS_OK;
}

/* The output gets a new tensor, with its name and its type. */
static enum status narrow_output(struct widening *w, uint32_t *output)
{
    uint32_t old = *output;
    const char *name = ir_tensor(w->graph, old)->name;
    if (w->marks[old].was == DTYPE_NONE || w->marks[old].keeps)
        return STATUS_OK;
    TRY(add_cast(w, old, name, "narrow", name, w->marks[old].was, output));
    ir_tensor(w->graph, old)->name = "";
    return STATUS_OK;
}

static enum status widen(struct widening *w)
{
    struct ir_graph *graph = w->graph;
    TRY(widen_tensors(w));
    for (uint32_t i = 0; i < w->n_nodes; i++)
        TRY(read_inputs(w, i));
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        TRY(narrow_output(w, &graph->outputs[i]));
    TRY(ir_graph_compact(graph, w->err)); /* the new nodes stand behind their readers */
    return ir_verify(graph, w->err);
}

enum status build_widen(struct ir_graph *graph, uint32_t *widened, struct error *err)
{
    struct widening w = {graph, graph->n_tensors, graph->n_nodes, NULL, err};
    w.marks = calloc(MAX(w.n_tensors, 1), sizeof(*w.marks));
    if (!w.marks)
        return error_no_memory(err, "16-bit floats");
    *widened = mark_all(&w);
    enum status status = *widened ? widen(&w) : STATUS_OK;
    free(w.marks);
    return status;
}
