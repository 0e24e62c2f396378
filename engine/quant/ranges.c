/* SPDX-License-Identifier: Apache-2.0 */
/* Puts ranges onto a graph; see ranges.h. */
#include "engine/quant/ranges.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/names.h"
#include "engine/quant/weights.h"

struct ranging {
    struct ir_graph *graph;
    const struct quant_table *table;
    struct quant_report *report;
    bool *useful, *own, *keep; /* by tensor; own: the model or a person gives the range */
    enum dtype bytes;          /* what the device's products read: INT8, FP8; NONE: any integers */
    struct error *err;
};

static bool is_float_data(const struct ir_tensor *t)
{
    return dtype_is_float(ir_tensor_type(t)) && !ir_tensor_is_constant(t);
}

/* --- where ranges are of use --- */

/* Whether the node passes on in 8 bits what it gets in 8 bits: neither it nor its epilogue needs
 * floats. */
static bool is_light(const struct ir_node *node)
{
    switch (ir_op_row(node->op)->group) {
    case IR_GROUP_ELEMENTWISE:
    case IR_GROUP_SHAPE:
    case IR_GROUP_REDUCTION:
    case IR_GROUP_INDEX:
    case IR_GROUP_IMAGE:
    case IR_GROUP_LAYOUT:
        return true;
    default:
        return false;
    }
}

/* What the node makes of each of its inputs: whether 8 bits are of use there, or in the way. */
static void look_at_inputs(const struct ir_graph *g, const struct ir_node *node, bool *useful,
                           bool *never)
{
    uint32_t data = quant_product_data(g, node), own = ir_node_own_inputs(node);
    bool passes = false;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        passes = passes || useful[node->outputs[i]];
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        uint32_t t = node->inputs[i];
        if (t == IR_NONE)
            continue;
        if (i == data && !dtype_is_float(ir_tensor_type(ir_tensor(g, t))))
            continue; /* CONV_POOL's bytes */
        if (i == data || (passes && (i >= own || is_light(node))))
            useful[t] = true;
        else if (i < own && !is_light(node) && data == IR_NONE)
            never[t] = true;
    }
}

/* Whether a node makes counts or indices into floats: these must stay exact. */
static bool counts(const struct ir_graph *g, const struct ir_node *node)
{
    const struct ir_tensor *x =
        node->n_inputs && node->inputs[0] != IR_NONE ? ir_tensor(g, node->inputs[0]) : NULL;
    return node->op == IR_OP_CAST && x && !dtype_is_float(ir_tensor_type(x)) &&
           dtype_size(ir_tensor_type(x)) > 1;
}

bool quant_find_useful(const struct ir_graph *g, bool *useful)
{
    CLEANUP(cleanup_free) bool *never = calloc((size_t)g->n_tensors + 1, sizeof(*never));
    if (!never)
        return false;
    memset(useful, 0, g->n_tensors * sizeof(*useful));
    for (uint32_t i = g->n_nodes; i-- > 0;) {
        const struct ir_node *node = ir_node(g, i);
        for (uint32_t k = 0; k < node->n_outputs; k++)
            if (never[node->outputs[k]] || counts(g, node))
                useful[node->outputs[k]] = false;
        look_at_inputs(g, node, useful, never);
    }
    for (uint32_t i = 0; i < g->n_tensors; i++)
        useful[i] = useful[i] && !never[i] && is_float_data(ir_tensor(g, i));
    return true;
}

/* --- ranges of a table --- */

static enum status set_range(struct ranging *r, uint32_t tensor, enum dtype dtype, float step,
                             int32_t zero)
{
    const struct ir_scale scale = {
        .n = 1, .dtype = dtype, .step = &step, .zero = zero ? &zero : NULL};
    uint32_t number = ir_scale_add(r->graph, &scale);
    if (number == IR_NO_SCALE)
        return error_no_memory(r->err, "ranges");
    ir_tensor(r->graph, tensor)->range = number;
    return STATUS_OK;
}

/* The largest magnitude that the row's numbers have. */
static float most_of(const struct quant_row *row)
{
    int32_t least = row->dtype == DTYPE_I8 ? INT8_MIN : 0, most = least + UINT8_MAX;
    if (row->is_range)
        return fmaxf(fabsf(row->low), fabsf(row->high));
    return row->step * (float)MAX(row->zero - least, most - row->zero);
}

/* What a person has written stands, also where a calibrated range would follow another one. */
static bool is_by_hand(const struct quant_row *row)
{
    return !row->source[0] || strcmp(row->source, "user") == 0;
}

/* Whether a third of the steps of symmetric integers, or more, would stand for nothing. */
static bool is_skewed(const struct quant_row *row)
{
    return row->is_range && row->low < 0 &&
           (double)fmaxf(row->high, 0) - (double)row->low <=
               4.0 / 3 * (double)fmaxf(row->high, -row->low);
}

/* The range as the device's products want it. What is skewed (a GELU's output) has finer steps with
 * a zero point, where products take one. */
static enum status set_row(struct ranging *r, uint32_t tensor, const struct quant_row *row)
{
    if (r->bytes == DTYPE_F8)
        return set_range(r, tensor, DTYPE_F8, fmaxf(most_of(row) / DTYPE_F8_MAX, FLT_MIN), 0);
    if (r->bytes == DTYPE_I8 && row->is_range && row->dtype == DTYPE_U8)
        return set_range(r, tensor, DTYPE_I8, row->high / INT8_MAX, 0);
    if (r->bytes == DTYPE_I8 || !is_skewed(row))
        return set_range(r, tensor, row->dtype, row->step, row->zero);
    double step = ((double)fmaxf(row->high, 0) - (double)row->low) / UINT8_MAX;
    return set_range(r, tensor, DTYPE_U8, (float)step, (int32_t)rint((double)-row->low / step));
}

static enum status from_table(struct ranging *r, bool *there)
{
    for (uint32_t i = 0; i < r->graph->n_tensors; i++) {
        const struct ir_tensor *t = ir_tensor(r->graph, i);
        uint32_t index = 0;
        const struct quant_row *row = quant_table_find(r->table, t->name, &index);
        if (!row || ir_tensor_is_constant(t))
            continue;
        there[index] = true;
        r->keep[i] = row->dtype == DTYPE_NONE;
        r->report->kept += r->keep[i];
        if (r->keep[i])
            continue;
        if (r->own[i] || !r->useful[i]) {
            r->report->idle++;
            continue;
        }
        r->report->used++;
        r->own[i] = is_by_hand(row);
        TRY(set_row(r, i, row));
    }
    return STATUS_OK;
}

/* A name that was made up of a node's may be one of another device's passes. */
static bool is_made_up(const char *name)
{
    return name[0] == '@' || strchr(name, '~');
}

static enum status unknown(const struct ranging *r, const struct quant_row *row)
{
    struct names names;
    char where[32] = "";
    names_init(&names, row->name, strlen(row->name));
    for (uint32_t i = 0; i < r->graph->n_tensors; i++)
        if (is_float_data(ir_tensor(r->graph, i)))
            names_add(&names, ir_tensor(r->graph, i)->name);
    if (row->line)
        snprintf(where, sizeof(where), "line %u: ", row->line);
    return error_set(r->err, STATUS_INVALID_ARGUMENT, "ranges: %sthe model has no tensor '%.80s'%s",
                     where, row->name, names_hint(&names));
}

static enum status check_names(const struct ranging *r, const bool *known, const bool *there)
{
    for (uint32_t i = 0; i < quant_table_size(r->table); i++) {
        const struct quant_row *row = quant_table_at(r->table, i);
        if (there[i])
            continue;
        if (!(known && known[i]) && !is_made_up(row->name))
            return unknown(r, row);
        r->report->gone++;
    }
    return STATUS_OK;
}

static enum status use_table(struct ranging *r, const bool *known)
{
    uint32_t n = quant_table_size(r->table);
    CLEANUP(cleanup_free) bool *there = calloc((size_t)n + 1, sizeof(*there));
    if (!there)
        return error_no_memory(r->err, "ranges");
    r->report->given = n;
    TRY(from_table(r, there));
    return check_names(r, known, there);
}

/* --- ranges that follow --- */

static bool has_own(const struct ranging *r, uint32_t tensor)
{
    return r->own[tensor] || r->keep[tensor];
}

/* What a node moves has one range on both sides. A ReLU's output has a better one than its input,
 * if the table has it. */
static void follow_moves(struct ranging *r)
{
    for (uint32_t i = 0; i < r->graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(r->graph, i);
        struct ir_tensor *y = ir_tensor(r->graph, node->outputs[0]);
        if (!r->useful[node->outputs[0]] || has_own(r, node->outputs[0]) ||
            (node->op == IR_OP_UNARY && y->range != IR_NO_SCALE))
            continue;
        uint32_t range = ir_range_follows(r->graph, node);
        if (range != IR_NO_SCALE)
            y->range = range;
    }
}

/* What was known of a tensor under another name: at another batch size, passes may have kept the
 * tensor before a reshape or a transpose instead of the one behind it. */
static void lead_moves(struct ranging *r)
{
    for (uint32_t i = r->graph->n_nodes; i-- > 0;) {
        const struct ir_node *node = ir_node(r->graph, i);
        if (!ir_op_has(node->op, IR_TRAIT_MOVES) || !ir_op_has(node->op, IR_TRAIT_RENAMES) ||
            !r->useful[node->inputs[0]] || has_own(r, node->inputs[0]))
            continue;
        struct ir_tensor *x = ir_tensor(r->graph, node->inputs[0]);
        const struct ir_tensor *y = ir_tensor(r->graph, node->outputs[0]);
        const struct ir_scale *scale = ir_scale(r->graph, y->range);
        if (x->range == IR_NO_SCALE && scale && scale->n == 1)
            x->range = y->range;
    }
}

/* Parts that only a concatenation reads are made with its range: else they would be rounded a
 * second time there. */
static void follow_concats(struct ranging *r)
{
    for (uint32_t i = r->graph->n_nodes; i-- > 0;) {
        const struct ir_node *node = ir_node(r->graph, i);
        uint32_t range = node->n_outputs ? ir_tensor(r->graph, node->outputs[0])->range : 0;
        if (node->op != IR_OP_CONCAT || node->n_epilogue || !range ||
            ir_scale(r->graph, range)->n != 1)
            continue;
        for (uint32_t k = 0; k < node->n_inputs; k++) {
            uint32_t x = node->inputs[k];
            if (x != IR_NONE && r->useful[x] && !has_own(r, x) &&
                ir_tensor_sole_reader(r->graph, x) == i)
                ir_tensor(r->graph, x)->range = range;
        }
    }
}

/* A cast from bytes holds these bytes exactly; FP8 holds them to 4 bits. */
static enum status follow_bytes(struct ranging *r)
{
    for (uint32_t i = 0; i < r->graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(r->graph, i);
        if (node->op != IR_OP_CAST || node->n_epilogue || !r->useful[node->outputs[0]] ||
            has_own(r, node->outputs[0]))
            continue;
        enum dtype from = ir_tensor(r->graph, node->inputs[0])->dtype;
        if (from == DTYPE_U8 || from == DTYPE_I8)
            TRY(r->bytes == DTYPE_F8
                    ? set_range(r, node->outputs[0], DTYPE_F8, 256 / DTYPE_F8_MAX, 0)
                    : set_range(r, node->outputs[0], from, 1, 0));
    }
    return STATUS_OK;
}

/* --- what is missing, and weights --- */

static void note_missing(struct ranging *r, const struct ir_node *node, uint32_t tensor)
{
    if (!r->report->missing++)
        snprintf(r->report->first_missing, QUANT_TOLD_MAX, "'%.90s' of layer '%.120s'",
                 ir_tensor(r->graph, tensor)->name, node->name);
}

/* Gives products whose data has a range weights with one, and finds the data that has none. */
static enum status finish_products(struct ranging *r)
{
    for (uint32_t i = 0; i < r->graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(r->graph, i);
        uint32_t at = quant_product_data(r->graph, node);
        if (at == IR_NONE)
            continue;
        uint32_t data = node->inputs[at];
        bool made = false;
        if (!dtype_is_float(ir_tensor_type(ir_tensor(r->graph, data)))) { /* it is bytes already */
            if (r->bytes != DTYPE_F8)
                TRY(quant_weights_range(r->graph, i, DTYPE_I8, &made, r->err));
            r->report->weights += made;
            continue;
        }
        if (ir_tensor(r->graph, data)->range == IR_NO_SCALE) {
            if (ir_op_has(node->op, IR_TRAIT_BYTES) && r->useful[data] && !r->keep[data])
                note_missing(r, node, data);
            continue;
        }
        enum dtype bytes = ir_scale(r->graph, ir_tensor(r->graph, data)->range)->dtype;
        TRY(quant_weights_range(r->graph, i, bytes, &made, r->err));
        r->report->weights += made;
    }
    return STATUS_OK;
}

static enum status refuse_missing(const struct ranging *r)
{
    const struct quant_report *report = r->report;
    char others[48] = "";
    if (report->missing > 1)
        snprintf(others, sizeof(others), " and %u more", report->missing - 1);
    return error_set(r->err, STATUS_FAILED_PRECONDITION,
                     "no range is known for tensor %s%s: calibrate, name %s in a table of ranges "
                     "(or 'keep' there), or build with --missing-ranges keep",
                     report->first_missing, others, report->missing > 1 ? "them" : "it");
}

static enum status apply(struct ranging *r, const bool *known, bool keep_missing)
{
    for (uint32_t i = 0; i < r->graph->n_tensors; i++) {
        const struct ir_tensor *t = ir_tensor(r->graph, i);
        r->own[i] = t->range != IR_NO_SCALE;
        r->report->own += r->own[i] && !ir_tensor_is_constant(t);
    }
    if (!quant_find_useful(r->graph, r->useful))
        return error_no_memory(r->err, "ranges");
    if (r->table)
        TRY(use_table(r, known));
    TRY(follow_bytes(r));
    lead_moves(r);
    follow_concats(r);
    follow_moves(r);
    TRY(finish_products(r));
    for (uint32_t i = 0; i < r->graph->n_tensors; i++)
        r->report->ranged += ir_tensor(r->graph, i)->range != IR_NO_SCALE &&
                             !ir_tensor_is_constant(ir_tensor(r->graph, i));
    return r->report->missing && !keep_missing ? refuse_missing(r) : STATUS_OK;
}

enum status quant_apply(struct ir_graph *graph, const struct quant_table *table, const bool *known,
                        bool keep_missing, enum dtype bytes, struct quant_report *report,
                        struct error *err)
{
    size_t n = (size_t)graph->n_tensors + 1;
    CLEANUP(cleanup_free) bool *flags = calloc(3 * n, sizeof(*flags));
    if (!flags)
        return error_no_memory(err, "ranges");
    *report = (struct quant_report){0};
    struct ranging r = {.graph = graph,
                        .table = table,
                        .report = report,
                        .bytes = bytes,
                        .useful = flags,
                        .own = flags + n,
                        .keep = flags + 2 * n,
                        .err = err};
    return apply(&r, known, keep_missing);
}
