/* SPDX-License-Identifier: Apache-2.0 */
/* What each op does along a marked dimension; see along.h. A rule returns false for what it does
 * not know to be harmless. */
#include <string.h>

#include "engine/build/along_internal.h"

/* After a sum along a marked dimension: what lies behind along the others came of numbers that lie
 * behind along both, of which marks say nothing. */
static void forget_behind(struct along_state *s, bool finite)
{
    for (uint32_t d = 0; d < SHAPE_MAX_RANK; d++)
        if (s->mark[d].on)
            s->mark[d].behind = along_of(finite ? ALONG_FINITE : ALONG_WILD);
}

/* Whether operands other than the first `first` have no marks. */
static bool rest_unmarked(const struct along_node *n, uint32_t first)
{
    for (uint32_t i = first; i < n->n_inputs; i++)
        if (along_has_marks(n, i))
            return false;
    return true;
}

/* --- elementwise --- */

static struct along_value combine_unary(const void *user, const struct along_value *values)
{
    const struct ir_node *node = user;
    float constants[3];
    ir_unary_constants(node, &constants[0], &constants[1], &constants[2]);
    return along_unary((enum ir_unary)ir_attr_int(node, IR_ATTR_FUNC), values[0], constants);
}

static bool rule_unary(struct along_node *n)
{
    const uint32_t x = 0;
    enum ir_unary func = (enum ir_unary)ir_attr_int(n->large, IR_ATTR_FUNC);
    n->out[0]->finite = n->out[0]->finite && !along_unary_grows(func);
    return along_broadcast(n, &x, 1, combine_unary, n->large, n->out[0]);
}

static struct along_value combine_binary(const void *user, const struct along_value *values)
{
    return along_binary((enum ir_binary)ir_attr_int(user, IR_ATTR_FUNC), values[0], values[1]);
}

static const uint32_t operands[] = {0, 1, 2};

static bool rule_binary(struct along_node *n)
{
    enum ir_binary func = (enum ir_binary)ir_attr_int(n->large, IR_ATTR_FUNC);
    const struct along_value by = along_input(n, 1)->all;
    bool number = func == IR_BINARY_DIV && along_input(n, 1)->constant && !along_has_marks(n, 1) &&
                  by.kind == ALONG_CONST && by.c != 0;
    n->out[0]->finite = n->out[0]->finite && (number || !along_binary_grows(func));
    return along_broadcast(n, operands, 2, combine_binary, n->large, n->out[0]);
}

static struct along_value combine_select(const void *user UNUSED, const struct along_value *values)
{
    struct along_value v = along_join(values[1], values[2]);
    if (values[0].kind == ALONG_CONST)
        v = values[values[0].c != 0 ? 1 : 2];
    v.from |= values[0].from;
    return v;
}

static bool rule_select(struct along_node *n)
{
    return along_broadcast(n, operands, 3, combine_select, NULL, n->out[0]);
}

static struct along_value combine_cast(const void *user, const struct along_value *values)
{
    enum dtype to = (enum dtype)ir_attr_int(user, IR_ATTR_TO);
    struct along_value v = values[0];
    bool odd = v.kind == ALONG_CONST && (v.c < -100 || v.c > 100 || v.c != (double)(int)v.c);
    if (v.kind == ALONG_CONST && to == DTYPE_F16 && (v.c > 65504 || v.c < -65504))
        v.kind = v.c < 0 ? ALONG_LOW : ALONG_WILD;
    else if (v.kind == ALONG_CONST && to == DTYPE_BOOL)
        v.c = v.c != 0;
    else if ((odd || v.kind == ALONG_LOW) && !dtype_is_float(to))
        v.kind = ALONG_FINITE;
    return v;
}

static bool rule_cast(struct along_node *n)
{
    return along_broadcast(n, operands, 1, combine_cast, n->large, n->out[0]);
}

static struct along_value combine_made(const void *user UNUSED, const struct along_value *values)
{
    return along_made_of(values[0]);
}

/* QUANTIZE, DEQUANTIZE: along a marked dimension there is one scale. */
static bool rule_quantise(struct along_node *n)
{
    return rest_unmarked(n, 1) && along_broadcast(n, operands, 1, combine_made, NULL, n->out[0]);
}

/* --- products --- */

static bool is_hidden(struct along_value zero, struct along_value other)
{
    return along_is_zero(zero) && along_is_tame(other);
}

/* The dimension of an operand's rows or columns. */
static uint32_t matrix_dim(const struct shape *shape, bool last)
{
    return shape->rank - (last ? 1 : 2);
}

/* A sum over a marked dimension adds zeros only. */
static bool contract(const struct along_node *n, const struct along_mark *a,
                     const struct along_mark *b)
{
    if (!a->on && !b->on)
        return true;
    if (!a->on || !b->on || a->inner != b->inner || along_is_apart(n))
        return false;
    if (!is_hidden(a->behind, b->behind) && !is_hidden(b->behind, a->behind))
        return false;
    along_hide(n, along_is_zero(a->behind) ? a->behind : b->behind);
    return true;
}

static struct along_value product_behind(struct along_value a, struct along_value b)
{
    struct along_value v =
        along_of(along_is_tame(a) && along_is_tame(b) ? ALONG_FINITE : ALONG_WILD);
    if (is_hidden(a, b) || is_hidden(b, a))
        v = along_const(0);
    v.from = a.from | b.from;
    return v;
}

/* The dimension of an operand under the output's dimension d, if it is as wide; -1: none. */
static int wide_under(const struct along_node *n, uint32_t i, uint32_t d)
{
    const struct shape *y = along_out_shape(n, 0), *x = along_shape(n, i);
    int at = (int)d - ((int)y->rank - (int)x->rank);
    return at >= 0 && x->dim[at] == y->dim[d] ? at : -1;
}

/* The dimensions in front of the matrices broadcast. */
static bool product_batches(const struct along_node *n)
{
    const struct along_state *a = along_input(n, 0), *b = along_input(n, 1);
    for (uint32_t d = 0; d + 2 < along_out_shape(n, 0)->rank; d++) {
        int in_a = wide_under(n, 0, d), in_b = wide_under(n, 1, d);
        const struct along_mark *ma = in_a < 0 ? NULL : &a->mark[in_a];
        const struct along_mark *mb = in_b < 0 ? NULL : &b->mark[in_b];
        const struct along_mark *mark = ma && ma->on ? ma : mb;
        if (ma && mb && (ma->on != mb->on || (ma->on && ma->inner != mb->inner)))
            return false;
        if (mark && mark->on)
            n->out[0]->mark[d] = (struct along_mark){
                true, mark->inner, product_behind(along_behind(a, in_a), along_behind(b, in_b))};
    }
    return true;
}

static bool rule_matmul(struct along_node *n)
{
    const struct along_state *a = along_input(n, 0), *b = along_input(n, 1);
    bool ta = ir_attr_int(n->large, IR_ATTR_TRANS_A), tb = ir_attr_int(n->large, IR_ATTR_TRANS_B);
    const struct along_mark *m = &a->mark[matrix_dim(along_shape(n, 0), ta)];
    const struct along_mark *ka = &a->mark[matrix_dim(along_shape(n, 0), !ta)];
    const struct along_mark *kb = &b->mark[matrix_dim(along_shape(n, 1), tb)];
    const struct along_mark *c = &b->mark[matrix_dim(along_shape(n, 1), !tb)];
    uint32_t rank = along_out_shape(n, 0)->rank;
    if (along_has_marks(n, 2) || !contract(n, ka, kb) || !product_batches(n))
        return false;
    if (m->on)
        n->out[0]->mark[rank - 2] =
            (struct along_mark){true, m->inner, product_behind(m->behind, b->all)};
    if (c->on)
        n->out[0]->mark[rank - 1] =
            (struct along_mark){true, c->inner, product_behind(c->behind, a->all)};
    for (uint32_t d = 0; along_input(n, 2) && d < rank; d++)
        n->out[0]->mark[d].behind = along_made_of(n->out[0]->mark[d].behind);
    if (ka->on)
        forget_behind(n->out[0], a->finite && b->finite);
    return true;
}

/* Whether a window covers one position of spatial dimension d and steps by one. */
static bool window_is_point(const struct along_node *n, uint32_t d, int64_t size)
{
    uint32_t rank = along_shape(n, 0)->rank;
    return size == 1 && ir_attr_at(n->large, IR_ATTR_STRIDES, d - 2) == 1 &&
           ir_attr_at(n->large, IR_ATTR_PADS, d - 2) == 0 &&
           ir_attr_at(n->large, IR_ATTR_PADS, d - 2 + rank - 2) == 0;
}

/* Instances pass, and spatial dimensions in which the window is a point. */
static bool rule_conv(struct along_node *n)
{
    const struct along_state *x = along_input(n, 0);
    for (uint32_t d = 1; d < along_shape(n, 0)->rank; d++)
        if (x->mark[d].on && (d == 1 || !window_is_point(n, d, along_shape(n, 1)->dim[d])))
            return false;
    along_keep_marks(n, 0, 0);
    return rest_unmarked(n, 1);
}

static bool rule_pool(struct along_node *n)
{
    const struct along_state *x = along_input(n, 0);
    for (uint32_t d = 2; d < along_shape(n, 0)->rank; d++)
        if (x->mark[d].on && !window_is_point(n, d, ir_attr_at(n->large, IR_ATTR_KERNEL, d - 2)))
            return false;
    along_keep_marks(n, 0, 0);
    return n->large->n_outputs == 1; /* positions depend on sizes */
}

/* Ops that keep instances apart: only the first dimension may be marked, of operands that have
 * it. */
static bool rule_instances(struct along_node *n)
{
    const struct along_state *x = along_input(n, 0);
    for (uint32_t d = 1; d < along_shape(n, 0)->rank; d++)
        if (x->mark[d].on)
            return false;
    along_keep_marks(n, 0, 0);
    return rest_unmarked(n, 1);
}

/* SAMPLE: the grid has the instances, too. */
static bool rule_sample(struct along_node *n)
{
    for (uint32_t i = 0; i < 2; i++)
        for (uint32_t d = 1; d < along_shape(n, i)->rank; d++)
            if (along_input(n, i)->mark[d].on)
                return false;
    if (along_input(n, 0)->mark[0].on != along_input(n, 1)->mark[0].on)
        return false;
    along_keep_marks(n, 0, 0);
    return true;
}

/* All but channels. */
static bool rule_batch_norm(struct along_node *n)
{
    along_keep_marks(n, 0, 0);
    return !along_input(n, 0)->mark[1].on && rest_unmarked(n, 1);
}

/* --- reductions --- */

/* What lies behind along dimension d of the first operand: `low`: it may be seen where all of the
 * rest is low as well. */
static bool axis_is_hidden(const struct along_node *n, uint32_t d, bool hides, bool low)
{
    const struct along_state *x = along_input(n, 0);
    if (!hides || along_is_apart(n))
        return false;
    if (low)
        along_hide_keys(n, x, d, true);
    else
        along_hide(n, x->mark[d].behind);
    return true;
}

static bool rule_softmax(struct along_node *n)
{
    const struct along_state *x = along_input(n, 0);
    uint32_t axis = (uint32_t)ir_attr_int(n->large, IR_ATTR_AXIS);
    const struct along_mark *mark = &x->mark[axis];
    if (mark->on && (!along_is_plain(n, along_shape(n, 0), mark, axis) ||
                     !axis_is_hidden(n, axis, along_is_low(mark->behind), true)))
        return false;
    along_keep_marks(n, 0, 0);
    n->out[0]->finite = x->finite && !ir_attr_int(n->large, IR_ATTR_LOG);
    if (mark->on) {
        forget_behind(n->out[0], n->out[0]->finite);
        n->out[0]->mark[axis].behind =
            ir_attr_int(n->large, IR_ATTR_LOG) ? along_of(ALONG_LOW) : along_const(0);
        n->out[0]->mark[axis].behind.from = mark->behind.from;
    }
    return true;
}

/* The dimensions from the axis on are normalised. */
static bool rule_layer_norm(struct along_node *n)
{
    for (uint32_t d = (uint32_t)ir_attr_int(n->large, IR_ATTR_AXIS); d < along_shape(n, 0)->rank;
         d++)
        if (along_input(n, 0)->mark[d].on)
            return false;
    along_keep_marks(n, 0, 0);
    return rest_unmarked(n, 1);
}

/* Whether the function of many numbers is the same without those behind. */
static bool reduces_past(enum ir_reduce func, struct along_value behind)
{
    switch (func) {
    case IR_REDUCE_SUM:
    case IR_REDUCE_L1:
    case IR_REDUCE_L2:
    case IR_REDUCE_SUM_SQUARE:
        return along_is_zero(behind);
    case IR_REDUCE_MAX:
    case IR_REDUCE_LOG_SUM_EXP:
        return along_is_low(behind);
    default:
        return false;
    }
}

static bool is_reduced(const struct along_node *n, uint32_t d)
{
    const struct ir_attr *axes = ir_attr(n->large, IR_ATTR_AXES);
    for (uint32_t i = 0; axes && i < axes->count; i++)
        if (axes->i[i] == d)
            return true;
    return false;
}

static bool rule_reduce(struct along_node *n)
{
    const struct along_state *x = along_input(n, 0);
    enum ir_reduce func = (enum ir_reduce)ir_attr_int(n->large, IR_ATTR_FUNC);
    bool keeps = ir_attr_int(n->large, IR_ATTR_KEEPDIMS), past = false;
    uint32_t to = 0;
    for (uint32_t d = 0; d < along_shape(n, 0)->rank; d++) {
        const struct along_mark *mark = &x->mark[d];
        bool reduced = is_reduced(n, d);
        if (reduced && mark->on &&
            !axis_is_hidden(n, d, reduces_past(func, mark->behind), !along_is_zero(mark->behind)))
            return false;
        if (!reduced && mark->on) {
            n->out[0]->mark[to] = *mark;
            if (!along_is_zero(mark->behind) || func == IR_REDUCE_LOG_SUM ||
                func == IR_REDUCE_LOG_SUM_EXP)
                n->out[0]->mark[to].behind = along_made_of(mark->behind);
        }
        past = past || (reduced && mark->on);
        to += !reduced || keeps;
    }
    n->out[0]->finite = x->finite && func != IR_REDUCE_LOG_SUM && func != IR_REDUCE_LOG_SUM_EXP;
    if (past)
        forget_behind(n->out[0], n->out[0]->finite);
    return true;
}

static bool rule_arg_reduce(struct along_node *n)
{
    const struct along_state *x = along_input(n, 0);
    uint32_t axis = (uint32_t)ir_attr_int(n->large, IR_ATTR_AXIS), to = 0;
    bool keeps = ir_attr_int(n->large, IR_ATTR_KEEPDIMS);
    for (uint32_t d = 0; d < along_shape(n, 0)->rank; d++) {
        if (d == axis && x->mark[d].on)
            return false;
        if (x->mark[d].on)
            n->out[0]->mark[to] =
                (struct along_mark){true, x->mark[d].inner, along_of(ALONG_FINITE)};
        to += d != axis || keeps;
    }
    return true;
}

/* A sum from the front does not see what comes behind. */
static bool rule_cumsum(struct along_node *n)
{
    uint32_t axis = (uint32_t)ir_attr_int(n->large, IR_ATTR_AXIS);
    const struct along_mark *mark = &along_input(n, 0)->mark[axis];
    if (mark->on && (along_is_apart(n) || ir_attr_int(n->large, IR_ATTR_REVERSE) ||
                     !along_is_plain(n, along_shape(n, 0), mark, axis)))
        return false;
    along_keep_marks(n, 0, 0);
    return true;
}

/* TOPK: both outputs. */
static bool rule_topk(struct along_node *n)
{
    if (along_input(n, 0)->mark[ir_attr_int(n->large, IR_ATTR_AXIS)].on)
        return false;
    along_keep_marks(n, 0, 0);
    along_keep_marks(n, 0, 1);
    return true;
}

/* --- attention and recurrence --- */

/* The dimension of the rows of queries, keys or values. */
static uint32_t rows_dim(const struct shape *shape)
{
    return shape->rank - 2;
}

/* Whether the operand has marks elsewhere than in its instances and its rows. */
static bool marks_elsewhere(const struct along_node *n, uint32_t i)
{
    for (uint32_t d = 1; d < along_shape(n, i)->rank; d++)
        if (along_input(n, i)->mark[d].on && d != rows_dim(along_shape(n, i)))
            return true;
    return false;
}

/* Whether a mask, or that queries see nothing behind themselves, hides the keys behind. */
static bool keys_are_hidden(const struct along_node *n, bool queries_marked)
{
    const struct along_state *mask = along_input(n, 3);
    const struct along_mark *m = mask ? &mask->mark[along_shape(n, 3)->rank - 1] : NULL;
    bool truth =
        mask && ir_tensor_type(ir_tensor(n->proof->large, n->large->inputs[3])) == DTYPE_BOOL;
    bool causal = ir_attr_int(n->large, IR_ATTR_CAUSAL);
    bool by_mask = m && m->on && (truth ? along_is_zero(m->behind) : along_is_low(m->behind));
    if (along_is_apart(n) || (!by_mask && !(causal && queries_marked)))
        return false;
    if (by_mask)
        along_hide_keys(n, mask, along_shape(n, 3)->rank - 1, false);
    if (mask) { /* of the inputs that hide keys, those beside which something else does */
        uint64_t hiding = truth ? mask->reads : mask->lows;
        n->proof->first |= causal ? hiding : hiding & ~m->behind.from;
    }
    return true;
}

/* Whether the mask has marks that neither keys nor queries nor instances explain. */
static bool mask_fits(const struct along_node *n, const struct along_mark *instances,
                      const struct along_mark *queries, const struct along_mark *keys)
{
    const struct along_state *mask = along_input(n, 3);
    uint32_t rank = mask ? along_shape(n, 3)->rank : 0;
    for (uint32_t d = 0; d < rank; d++) {
        const struct along_mark *m = &mask->mark[d];
        uint32_t from_end = rank - d;
        const struct along_mark *of = from_end == 1   ? keys
                                      : from_end == 2 ? queries
                                      : from_end == 4 ? instances
                                                      : NULL;
        bool wide = along_shape(n, 3)->dim[d] > 1;
        if (m->on && (!of || !of->on || m->inner != of->inner))
            return false;
        if (wide && of && of->on && !m->on)
            return false;
    }
    return true;
}

/* Spans say which rows belong together: a query sees its own request's rows alone, wherever these
 * lie. Rows are counted by the first two dimensions. */
static bool attention_spans(struct along_node *n)
{
    const struct along_state *q = along_input(n, 0);
    if (!along_is_apart(n))
        return false;
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        const struct along_state *s = along_input(n, i);
        for (uint32_t d = 0; s && d < SHAPE_MAX_RANK; d++)
            if (s->mark[d].on != q->mark[d].on || (s->mark[d].on && d > 1) ||
                (s->mark[d].on && s->mark[d].inner != q->mark[d].inner))
                return false;
    }
    n->out[0]->finite = q->finite;
    along_keep_marks(n, 0, 0);
    return true;
}

static bool rule_attention(struct along_node *n)
{
    if (along_input(n, 4))
        return attention_spans(n);
    bool packed = ir_attr_int(n->large, IR_ATTR_PACKED);
    const struct along_state *q = along_input(n, 0), *k = packed ? q : along_input(n, 1),
                             *v = packed ? q : along_input(n, 2);
    if (!k || !v)
        return false;
    uint32_t k_at = packed ? 0 : 1, v_at = packed ? 0 : 2;
    const struct along_mark *queries = &q->mark[rows_dim(along_shape(n, 0))];
    const struct along_mark *keys = &k->mark[rows_dim(along_shape(n, k_at))];
    const struct along_mark *values = &v->mark[rows_dim(along_shape(n, v_at))];
    if (marks_elsewhere(n, 0) || marks_elsewhere(n, k_at) || marks_elsewhere(n, v_at) ||
        keys->on != values->on || q->mark[0].on != k->mark[0].on ||
        q->mark[0].on != v->mark[0].on || !mask_fits(n, &q->mark[0], queries, keys))
        return false;
    if (q->mark[0].on &&
        (q->mark[0].inner != k->mark[0].inner || q->mark[0].inner != v->mark[0].inner))
        return false;
    if (keys->on &&
        (keys->inner != 1 ||
         !along_is_plain(n, along_shape(n, k_at), keys, rows_dim(along_shape(n, k_at))) ||
         !along_is_tame(keys->behind) || !along_is_tame(values->behind) ||
         !keys_are_hidden(n, queries->on)))
        return false;
    n->out[0]->finite = q->finite && k->finite && v->finite; /* a row without keys gives zeros */
    if (q->mark[0].on)
        n->out[0]->mark[0] =
            (struct along_mark){true, q->mark[0].inner, along_made_of(q->mark[0].behind)};
    if (queries->on)
        n->out[0]->mark[1] =
            (struct along_mark){true, queries->inner, along_made_of(queries->behind)};
    if (keys->on)
        forget_behind(n->out[0], n->out[0]->finite);
    return true;
}

/* Sequences are apart; steps are not, except that a forward layer sees only what came before. */
static bool rule_recurrent(struct along_node *n)
{
    static const uint32_t at[] = {1, 0, 0, 0, 0}; /* the sequences' dimension of each operand */
    const struct along_mark *steps = &along_input(n, 0)->mark[0];
    const struct along_mark *rows = &along_input(n, 0)->mark[1];
    if (along_input(n, 0)->mark[2].on || !rest_unmarked(n, 5) || along_has_marks(n, 1))
        return false;
    for (uint32_t i = 2; i < 5; i++) {
        const struct along_state *x = along_input(n, i);
        if (x &&
            (x->mark[at[i]].on != rows->on || (rows->on && x->mark[at[i]].inner != rows->inner)))
            return false;
        if (x && i > 2 && x->mark[1].on)
            return false;
    }
    bool ends = along_input(n, 2); /* each sequence, within the request */
    if (steps->on && (along_is_apart(n) || (ir_attr_int(n->large, IR_ATTR_REVERSE) && !ends) ||
                      !along_is_plain(n, along_shape(n, 0), steps, 0)))
        return false;
    for (uint32_t o = 0; o < n->large->n_outputs; o++) {
        n->out[o]->broken =
            o > 0 && steps->on && !ends; /* the last state is that behind the request */
        if (rows->on)
            n->out[o]->mark[o ? 0 : 1] =
                (struct along_mark){true, rows->inner, along_made_of(rows->behind)};
    }
    if (steps->on)
        n->out[0]->mark[0] = (struct along_mark){true, 1, along_made_of(steps->behind)};
    return true;
}

/* DET: all but the matrices. */
static bool rule_det(struct along_node *n)
{
    uint32_t rank = along_shape(n, 0)->rank;
    for (uint32_t d = 0; d + 2 < rank; d++)
        n->out[0]->mark[d] = along_input(n, 0)->mark[d];
    return !along_input(n, 0)->mark[rank - 1].on && !along_input(n, 0)->mark[rank - 2].on;
}

/* --- what joins --- */

/* Whether the dimension `d` of the operand has a mark. */
static bool is_marked(const struct along_node *n, uint32_t input, uint32_t d)
{
    const struct along_state *x = along_input(n, input);
    return x && !x->broken && d < along_shape(n, input)->rank && x->mark[d].on;
}

bool along_joins(const struct along_node *n)
{
    const struct ir_node *node = n->large;
    bool joins = false;
    switch (node->op) {
    case IR_OP_REDUCE:
        for (uint32_t d = 0; d < along_shape(n, 0)->rank; d++)
            joins = joins || (is_reduced(n, d) && is_marked(n, 0, d));
        return joins;
    case IR_OP_LAYER_NORM:
        for (uint32_t d = (uint32_t)ir_attr_int(node, IR_ATTR_AXIS); d < along_shape(n, 0)->rank;
             d++)
            joins = joins || is_marked(n, 0, d);
        return joins;
    case IR_OP_ARG_REDUCE:
    case IR_OP_SOFTMAX:
    case IR_OP_CUMSUM:
    case IR_OP_TOPK:
        return is_marked(n, 0, (uint32_t)ir_attr_int(node, IR_ATTR_AXIS));
    case IR_OP_MATMUL:
        return is_marked(n, 0,
                         matrix_dim(along_shape(n, 0), !ir_attr_int(node, IR_ATTR_TRANS_A))) ||
               is_marked(n, 1, matrix_dim(along_shape(n, 1), ir_attr_int(node, IR_ATTR_TRANS_B)));
    default:
        return false;
    }
}

/* --- the table --- */

/* An op that is not here is harmless only where none of its operands has a mark. */
static const along_rule rules[IR_OP_COUNT_] = {
    [IR_OP_CONV] = rule_conv,
    [IR_OP_DECONV] = rule_instances,
    [IR_OP_MATMUL] = rule_matmul,
    [IR_OP_POOL] = rule_pool,
    [IR_OP_REDUCE] = rule_reduce,
    [IR_OP_ARG_REDUCE] = rule_arg_reduce,
    [IR_OP_SOFTMAX] = rule_softmax,
    [IR_OP_BATCH_NORM] = rule_batch_norm,
    [IR_OP_LAYER_NORM] = rule_layer_norm,
    [IR_OP_INSTANCE_NORM] = rule_instances,
    [IR_OP_LRN] = rule_batch_norm,
    [IR_OP_UNARY] = rule_unary,
    [IR_OP_BINARY] = rule_binary,
    [IR_OP_SELECT] = rule_select,
    [IR_OP_CAST] = rule_cast,
    [IR_OP_RESHAPE] = along_rule_reshape,
    [IR_OP_TRANSPOSE] = along_rule_transpose,
    [IR_OP_CONCAT] = along_rule_concat,
    [IR_OP_SLICE] = along_rule_slice,
    [IR_OP_PAD] = along_rule_pad,
    [IR_OP_GATHER] = along_rule_gather,
    [IR_OP_EMBED] = along_rule_embed,
    [IR_OP_GATHER_ELEMENTS] = along_rule_gather_elements,
    [IR_OP_GATHER_ND] = along_rule_gather_nd,
    [IR_OP_SCATTER_ELEMENTS] = along_rule_scatter_elements,
    [IR_OP_ONE_HOT] = along_rule_one_hot,
    [IR_OP_PLUGIN] = along_rule_plugin,
    [IR_OP_EXPAND] = along_rule_expand,
    [IR_OP_RESIZE] = along_rule_resize,
    [IR_OP_TILE] = along_rule_tile,
    [IR_OP_CUMSUM] = rule_cumsum,
    [IR_OP_TOPK] = rule_topk,
    [IR_OP_TRILU] = along_rule_trilu,
    [IR_OP_REFORMAT] = along_rule_same,
    [IR_OP_ATTENTION] = rule_attention,
    [IR_OP_RECURRENT] = rule_recurrent,
    [IR_OP_SAMPLE] = rule_sample,
    [IR_OP_DET] = rule_det,
    [IR_OP_CONV_POOL] = rule_instances,
    [IR_OP_QUANTIZE] = rule_quantise,
    [IR_OP_DEQUANTIZE] = rule_quantise,
};

along_rule along_rule_of(enum ir_op op)
{
    return (unsigned)op < IR_OP_COUNT_ ? rules[op] : NULL;
}

/* Sizes and places, which the rule compares. */
bool along_may_differ(enum ir_op op, enum ir_attr_key key)
{
    switch (key) {
    case IR_ATTR_SHAPE:
        return op == IR_OP_RESHAPE || op == IR_OP_EXPAND || op == IR_OP_RESIZE;
    case IR_ATTR_STARTS:
    case IR_ATTR_ENDS:
    case IR_ATTR_STEPS:
    case IR_ATTR_REPEATS:
        return true;
    default:
        return false;
    }
}
