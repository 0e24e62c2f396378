/* SPDX-License-Identifier: Apache-2.0 */
/* What ops that move elements do along a marked dimension; see along.h. */
#include <string.h>

#include "engine/build/along_internal.h"

/* --- shapes --- */

/* Finds the dimension in which numbers `stride` elements apart, `size` of them, lie. */
static bool find_stride(const struct shape *shape, int64_t stride, int64_t size, uint32_t *dim,
                        int64_t *inner)
{
    int64_t strides[SHAPE_MAX_RANK];
    shape_strides(shape, strides);
    for (uint32_t d = 0; d < shape->rank; d++)
        if (shape->dim[d] > 1 && strides[d] <= stride && stride % strides[d] == 0 &&
            shape->dim[d] % (stride / strides[d] * size) == 0) {
            *dim = d;
            *inner = stride / strides[d];
            return true;
        }
    return false;
}

bool along_rule_reshape(struct along_node *n)
{
    const struct along_state *x = along_input(n, 0);
    int64_t strides[SHAPE_MAX_RANK];
    shape_strides(along_shape(n, 0), strides);
    n->out[0]->all = x->all;
    for (uint32_t d = 0; d < along_shape(n, 0)->rank; d++) {
        uint32_t to;
        int64_t inner;
        if (!x->mark[d].on)
            continue;
        if (!find_stride(along_out_shape(n, 0), strides[d] * x->mark[d].inner, n->proof->large_size,
                         &to, &inner) ||
            n->out[0]->mark[to].on)
            return false;
        n->out[0]->mark[to] = (struct along_mark){true, inner, x->mark[d].behind};
    }
    return true;
}

bool along_rule_transpose(struct along_node *n)
{
    const struct along_state *x = along_input(n, 0);
    n->out[0]->all = x->all;
    for (uint32_t d = 0; d < along_shape(n, 0)->rank; d++)
        n->out[0]->mark[d] = x->mark[ir_attr_at(n->large, IR_ATTR_PERM, d)];
    return true;
}

/* REFORMAT */
bool along_rule_same(struct along_node *n)
{
    *n->out[0] = *along_input(n, 0);
    return true;
}

/* What had one element has the size now: a mark, if all of the size are alike. */
static bool widen(const struct along_node *n, uint32_t d, struct along_value all)
{
    const struct shape *small = &ir_tensor(n->proof->small, n->small->outputs[0])->shape;
    int64_t size = along_out_shape(n, 0)->dim[d];
    if (size == small->dim[d])
        return true;
    if (size != n->proof->large_size || small->dim[d] != n->proof->small_size)
        return false;
    n->out[0]->mark[d] = (struct along_mark){true, 1, all};
    return true;
}

bool along_rule_expand(struct along_node *n)
{
    const struct along_state *x = along_input(n, 0);
    int shift = (int)along_out_shape(n, 0)->rank - (int)along_shape(n, 0)->rank;
    n->out[0]->all = x->all;
    for (int d = 0; d < (int)along_out_shape(n, 0)->rank; d++) {
        if (d - shift >= 0 && x->mark[d - shift].on)
            n->out[0]->mark[d] = x->mark[d - shift];
        else if (!widen(n, (uint32_t)d, x->all))
            return false;
    }
    return true;
}

bool along_rule_tile(struct along_node *n)
{
    const struct along_state *x = along_input(n, 0);
    n->out[0]->all = x->all;
    for (uint32_t d = 0; d < along_shape(n, 0)->rank; d++) {
        if (x->mark[d].on && ir_attr_at(n->large, IR_ATTR_REPEATS, d) != 1)
            return false;
        if (x->mark[d].on)
            n->out[0]->mark[d] = x->mark[d];
        else if ((along_shape(n, 0)->dim[d] == 1 ||
                  along_out_shape(n, 0)->dim[d] == along_shape(n, 0)->dim[d])
                     ? !widen(n, d, x->all)
                     : ir_attr_at(n->small, IR_ATTR_REPEATS, d) !=
                           ir_attr_at(n->large, IR_ATTR_REPEATS, d))
            return false;
    }
    return true;
}

bool along_rule_concat(struct along_node *n)
{
    uint32_t axis = (uint32_t)ir_attr_int(n->large, IR_ATTR_AXIS);
    *n->out[0] = *along_input(n, 0);
    n->out[0]->constant = false;
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        const struct along_state *x = along_input(n, i);
        n->out[0]->finite = n->out[0]->finite && x->finite;
        n->out[0]->all = along_join(n->out[0]->all, x->all);
        for (uint32_t d = 0; d < along_shape(n, 0)->rank; d++) {
            struct along_mark *mark = &n->out[0]->mark[d];
            if (x->mark[d].on != mark->on || x->mark[d].inner != mark->inner ||
                (d == axis && mark->on))
                return false;
            mark->behind = along_join(mark->behind, x->mark[d].behind);
        }
    }
    return true;
}

struct range {
    int64_t start, end, step;
};

static struct range range_of(const struct ir_node *node, uint32_t d)
{
    return (struct range){ir_attr_at(node, IR_ATTR_STARTS, d), ir_attr_at(node, IR_ATTR_ENDS, d),
                          ir_attr_at(node, IR_ATTR_STEPS, d)};
}

/* A slice along a marked dimension takes all of it, or a piece within the request. */
static bool slice_marked(const struct along_node *n, uint32_t d, const struct along_mark *mark)
{
    struct range small = range_of(n->small, d), large = range_of(n->large, d);
    if (large.start == 0 && large.step == 1 && large.end == along_shape(n, 0)->dim[d]) {
        n->out[0]->mark[d] = *mark;
        return true;
    }
    return !along_is_apart(n) && along_is_plain(n, along_shape(n, 0), mark, d) && large.step > 0 &&
           memcmp(&small, &large, sizeof(small)) == 0 && large.end <= n->proof->small_size;
}

/* One along another takes the same of both, or from the front as much as the size says. */
static bool slice_other(const struct along_node *n, uint32_t d, struct along_value all)
{
    struct range small = range_of(n->small, d), large = range_of(n->large, d);
    if (memcmp(&small, &large, sizeof(small)) == 0)
        return true;
    return !along_is_apart(n) && small.start == large.start && small.step == 1 && large.step == 1 &&
           widen(n, d, all);
}

bool along_rule_slice(struct along_node *n)
{
    const struct along_state *x = along_input(n, 0);
    n->out[0]->all = x->all;
    for (uint32_t d = 0; d < along_shape(n, 0)->rank; d++)
        if (!(x->mark[d].on ? slice_marked(n, d, &x->mark[d]) : slice_other(n, d, x->all)))
            return false;
    return true;
}

bool along_rule_pad(struct along_node *n)
{
    const struct along_state *x = along_input(n, 0);
    uint32_t rank = along_shape(n, 0)->rank;
    for (uint32_t d = 0; d < rank; d++)
        if (x->mark[d].on &&
            (ir_attr_at(n->large, IR_ATTR_PADS, d) || ir_attr_at(n->large, IR_ATTR_PADS, d + rank)))
            return false;
    along_keep_marks(n, 0, 0);
    return true;
}

/* What stays of a matrix depends on places alone; the rest is 0. */
bool along_rule_trilu(struct along_node *n)
{
    along_keep_marks(n, 0, 0);
    return !along_is_apart(n) || !(along_input(n, 0)->mark[along_shape(n, 0)->rank - 1].on ||
                                   along_input(n, 0)->mark[along_shape(n, 0)->rank - 2].on);
}

/* RESIZE: instances and channels that stay as they are. */
bool along_rule_resize(struct along_node *n)
{
    const struct along_state *x = along_input(n, 0);
    const struct ir_attr *scales = ir_attr(n->large, IR_ATTR_SCALES);
    for (uint32_t d = 0; d < along_shape(n, 0)->rank; d++)
        if (x->mark[d].on && (d > 1 || !scales || d >= scales->count || scales->f[d] != 1.0F))
            return false;
    along_keep_marks(n, 0, 0);
    return true;
}

/* --- indices --- */

/* Whether indices behind the request cannot make the node fail. */
static bool index_is_safe(const struct along_node *n, uint32_t input, const struct along_mark *mark,
                          int64_t dim)
{
    const struct along_value v = mark->behind;
    return along_input(n, input)->constant || along_is_apart(n) ||
           (v.kind == ALONG_CONST && v.c >= -(double)dim && v.c < (double)dim);
}

/* Whether constant indices take from within the request, wherever it ends. */
static bool takes_front(const struct along_node *n, uint32_t axis)
{
    const struct along_state *i = along_input(n, 1);
    return !along_is_apart(n) &&
           along_is_plain(n, along_shape(n, 0), &along_input(n, 0)->mark[axis], axis) &&
           i->constant && !i->broken && i->all.kind == ALONG_CONST && i->all.c >= 0 &&
           i->all.c < (double)n->proof->small_size && !along_has_marks(n, 1);
}

/* Indices into a dimension that is merged with others: the same place of the same request has
 * another number at each size. */
struct places {
    const struct along_node *n;
    const struct ir_tensor *small, *large; /* the constants */
    const struct along_mark *mark;         /* of the dimension that they are indices of */
    struct along_state *out;               /* marks of the indices' own dimensions */
    bool first[SHAPE_MAX_RANK];
};

static int64_t place_at(const struct ir_tensor *t, size_t i)
{
    int64_t wide;
    int32_t narrow;
    if (t->dtype == DTYPE_I64) {
        memcpy(&wide, (const char *)t->data + i * sizeof(wide), sizeof(wide));
        return wide;
    }
    memcpy(&narrow, (const char *)t->data + i * sizeof(narrow), sizeof(narrow));
    return narrow;
}

/* Whether both numbers mean one place within the request. */
static bool is_one_place(const struct places *p, int64_t in_small, int64_t in_large)
{
    int64_t inner = p->mark->inner, small = p->n->proof->small_size,
            large = p->n->proof->large_size;
    int64_t at = in_small / inner % small, outer = in_small / inner / small;
    return in_small >= 0 && in_large == (outer * large + at) * inner + in_small % inner;
}

/* Looks at the element of these indices. */
static bool place_note(struct places *p, const int64_t *index, size_t at,
                       const struct along_state *x, uint32_t axis)
{
    int64_t in_large = place_at(p->large, at);
    uint32_t behind = 0, along = 0;
    size_t in_small = 0;
    for (uint32_t d = 0; d < p->small->shape.rank; d++) {
        in_small = in_small * (size_t)p->small->shape.dim[d] + (size_t)index[d];
        behind += index[d] >= p->small->shape.dim[d];
        along = index[d] >= p->small->shape.dim[d] ? d : along;
    }
    if (in_large < 0)
        return false;
    if (!behind)
        return is_one_place(p, place_at(p->small, in_small), in_large);
    if (behind > 1)
        return true;
    bool beyond = in_large / p->mark->inner % p->n->proof->large_size >= p->n->proof->small_size;
    struct along_value v = beyond ? x->mark[axis].behind : x->all;
    p->out->mark[along].behind = p->first[along] ? v : along_join(p->out->mark[along].behind, v);
    p->first[along] = false;
    return true;
}

/* Marks the indices' dimensions in `out`. False: the places are others. */
static bool places_compare(const struct along_node *n, uint32_t axis, struct along_state *out)
{
    const struct along_state *x = along_input(n, 0);
    struct places p = {.n = n,
                       .small = ir_tensor(n->proof->small, n->small->inputs[1]),
                       .large = ir_tensor(n->proof->large, n->large->inputs[1]),
                       .mark = &x->mark[axis],
                       .out = out};
    int64_t index[SHAPE_MAX_RANK] = {0};
    size_t count;
    memset(p.first, true, sizeof(p.first));
    if (along_is_apart(n) || p.small->shape.rank != p.large->shape.rank ||
        p.small->dtype != p.large->dtype || !shape_elements(&p.large->shape, &count))
        return false;
    for (uint32_t d = 0; d < p.large->shape.rank; d++) {
        out->mark[d] =
            (struct along_mark){.on = p.small->shape.dim[d] != p.large->shape.dim[d], .inner = 1};
        if (out->mark[d].on && (p.small->shape.dim[d] != n->proof->small_size ||
                                p.large->shape.dim[d] != n->proof->large_size))
            return false;
    }
    for (size_t at = 0; at < count; at++) {
        if (!place_note(&p, index, at, x, axis))
            return false;
        for (uint32_t d = p.large->shape.rank; d-- > 0 && ++index[d] == p.large->shape.dim[d];)
            index[d] = 0;
    }
    return true;
}

/* A gather along a marked dimension. Other dimensions of the operand have no marks. */
static bool gather_places(const struct along_node *n, uint32_t axis)
{
    static const struct along_state none;
    const struct along_state *x = along_input(n, 0);
    struct along_state found = none;
    if (!along_input(n, 1)->constant || !places_compare(n, axis, &found))
        return false;
    for (uint32_t d = 0; d < along_shape(n, 0)->rank; d++)
        if (d != axis && x->mark[d].on)
            return false;
    for (uint32_t d = 0; d < along_shape(n, 1)->rank; d++)
        n->out[0]->mark[axis + d] = found.mark[d];
    n->out[0]->all = x->all;
    return true;
}

bool along_takes_places(const struct along_node *n, uint32_t input)
{
    return n->large->op == IR_OP_GATHER && input == 1 && along_input(n, 1)->constant &&
           along_input(n, 0)->mark[ir_attr_int(n->large, IR_ATTR_AXIS)].on;
}

bool along_rule_gather(struct along_node *n)
{
    const struct along_state *x = along_input(n, 0), *i = along_input(n, 1);
    uint32_t axis = (uint32_t)ir_attr_int(n->large, IR_ATTR_AXIS), to = 0;
    if (x->mark[axis].on && !takes_front(n, axis))
        return gather_places(n, axis);
    for (uint32_t d = 0; d < along_shape(n, 0)->rank; d++) {
        if (d != axis) {
            n->out[0]->mark[to++] = x->mark[d];
            continue;
        }
        for (uint32_t k = 0; k < along_shape(n, 1)->rank; k++, to++) {
            if (!i->mark[k].on)
                continue;
            if (!index_is_safe(n, 1, &i->mark[k], along_shape(n, 0)->dim[axis]))
                return false;
            n->out[0]->mark[to] =
                (struct along_mark){true, i->mark[k].inner, along_made_of(x->all)};
        }
    }
    n->out[0]->all = along_made_of(x->all);
    return true;
}

/* --- sums of rows of tables --- */

/* What a table of an EMBED, or its indices if it has any, has under dimension d of the output. */
struct under {
    const struct along_mark *mark; /* NULL: it repeats along the dimension, or has none there */
    uint32_t input;
};

static struct under embed_under(const struct along_node *n, uint32_t k, uint32_t d)
{
    const struct shape *y = along_out_shape(n, 0);
    bool indexed = ir_embed_ids(n->large, k) != IR_NONE;
    struct under u = {.input = indexed ? 2 * k + 1 : 2 * k};
    uint32_t rank = along_shape(n, u.input)->rank, shift = y->rank - rank - (indexed ? 1 : 0);
    if (d >= shift && d - shift < rank && along_shape(n, u.input)->dim[d - shift] == y->dim[d])
        u.mark = &along_input(n, u.input)->mark[d - shift];
    return u;
}

/* Whether all that has dimension d of the output has one mark there, or none; *out is the mark. */
static bool embed_mark(const struct along_node *n, uint32_t tables, uint32_t d,
                       struct along_mark *out)
{
    *out = (struct along_mark){.on = false};
    for (uint32_t k = 0; k < tables; k++) {
        struct under u = embed_under(n, k, d);
        if (u.mark && u.mark->on)
            *out = (struct along_mark){true, u.mark->inner, n->out[0]->all};
    }
    for (uint32_t k = 0; k < tables && out->on; k++) {
        struct under u = embed_under(n, k, d);
        if (!u.mark)
            continue;
        if (!u.mark->on || u.mark->inner != out->inner)
            return false;
        if (u.input % 2 == 0)
            out->behind = along_join(out->behind, along_made_of(u.mark->behind));
        else if (!index_is_safe(n, u.input, u.mark, along_shape(n, u.input - 1)->dim[0]))
            return false;
    }
    return true;
}

/* Tables with indices are weights, without marks. Rows are whole: nothing is known of columns. */
bool along_rule_embed(struct along_node *n)
{
    uint32_t tables = ir_embed_count(n->large), last = along_out_shape(n, 0)->rank - 1;
    struct along_value all = along_made_of(along_input(n, 0)->all);
    for (uint32_t k = 0; k < tables; k++) {
        all = along_join(all, along_made_of(along_input(n, 2 * k)->all));
        if (ir_embed_ids(n->large, k) != IR_NONE && along_has_marks(n, 2 * k))
            return false;
    }
    n->out[0]->all = all;
    for (uint32_t d = 0; d <= last; d++)
        if (!embed_mark(n, tables, d, &n->out[0]->mark[d]) || (d == last && n->out[0]->mark[d].on))
            return false;
    return true;
}
