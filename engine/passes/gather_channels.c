/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A shuffle of channels, which exporters write as reshape, transpose, reshape, is a gather by
 * constant indices: its kernel takes channels where they lie, also behind all places, while a
 * transpose of five dimensions needs them in plain order. A slice of the shuffled channels is a
 * gather of fewer.
 */
#include "engine/passes/rewrite.h"

enum { CHANNELS_MAX = 1 << 16 };

static uint32_t add_indices(struct rewrite *rw, uint32_t node, int64_t n, int64_t **out)
{
    const struct shape shape = {.rank = 1, .dim = {n}};
    void *data = NULL;
    uint32_t made = rw_add_constant(rw, ir_node(rw->graph, node)->name, DTYPE_I64, &shape, &data);
    *out = data;
    return made;
}

static void become_gather(struct rewrite *rw, uint32_t node, uint32_t x, uint32_t indices)
{
    rw_become(rw, node, IR_OP_GATHER, 2, (const uint32_t[]){x, indices});
    rw_set_int(rw, node, IR_ATTR_AXIS, 1);
}

/* Whether `split` is `x` with its channels in `n` parts, and the permutation keeps all else. */
static bool shuffles(const struct shape *x, const struct shape *split, const struct ir_node *turn,
                     uint32_t *n)
{
    if (split->rank <= x->rank || x->rank < 3 || x->dim[1] < 2 || x->dim[1] > CHANNELS_MAX)
        return false;
    *n = split->rank - x->rank + 1;
    int64_t channels = 1;
    for (uint32_t d = 0; d < split->rank; d++) {
        bool inside = d >= 1 && d <= *n;
        int64_t from = ir_attr_at(turn, IR_ATTR_PERM, d);
        channels *= inside ? split->dim[d] : 1;
        if (inside ? from < 1 || from > *n
                   : from != d || split->dim[d] != x->dim[d ? d - *n + 1 : 0])
            return false;
    }
    return channels == x->dim[1];
}

/* Writes which channel of x each channel of the result is. */
static void list_channels(const struct shape *split, const struct ir_node *turn, uint32_t n,
                          int64_t channels, int64_t *to)
{
    int64_t stride[SHAPE_MAX_RANK] = {0};
    int64_t step = 1;
    for (uint32_t d = n; d >= 1; d--) {
        stride[d] = step;
        step *= split->dim[d];
    }
    for (int64_t c = 0; c < channels; c++) {
        int64_t rest = c;
        to[c] = 0;
        for (uint32_t d = n; d >= 1; d--) {
            int64_t from = ir_attr_at(turn, IR_ATTR_PERM, d);
            to[c] += rest % split->dim[from] * stride[from];
            rest /= split->dim[from];
        }
    }
}

static void visit_reshape(struct rewrite *rw, uint32_t node)
{
    uint32_t turn = rw_made_by(rw, rw_input(rw, node, 0), IR_OP_TRANSPOSE), n = 0;
    if (turn == IR_NONE || rw_uses(rw, rw_output(rw, turn)) != 1)
        return;
    uint32_t first = rw_made_by(rw, rw_input(rw, turn, 0), IR_OP_RESHAPE);
    if (first == IR_NONE || rw_uses(rw, rw_output(rw, first)) != 1)
        return;
    uint32_t x = rw_input(rw, first, 0);
    const struct shape from = ir_tensor(rw->graph, x)->shape;
    const struct shape split = ir_tensor(rw->graph, rw_output(rw, first))->shape;
    if (!shape_equal(&from, &ir_tensor(rw->graph, rw_output(rw, node))->shape) ||
        !shuffles(&from, &split, ir_node(rw->graph, turn), &n))
        return;
    int64_t *to;
    uint32_t indices = add_indices(rw, node, from.dim[1], &to);
    if (indices == IR_NONE)
        return;
    list_channels(&split, ir_node(rw->graph, turn), n, from.dim[1], to);
    rw_done(rw, "%s is a gather of channels", ir_node(rw->graph, turn)->name);
    become_gather(rw, node, x, indices);
}

/* The indices of a gather of channels that are all constant and in range; NULL: it is none. */
static const int64_t *indices_of(const struct rewrite *rw, uint32_t gather)
{
    const struct ir_node *n = ir_node(rw->graph, gather);
    const struct ir_tensor *t = ir_tensor(rw->graph, n->inputs[1]);
    if (ir_attr_int(n, IR_ATTR_AXIS) != 1 || !t->data || t->dtype != DTYPE_I64 ||
        t->shape.rank != 1 || ir_tensor(rw->graph, n->inputs[0])->shape.rank < 3)
        return NULL;
    return t->data;
}

static void visit_slice(struct rewrite *rw, uint32_t node)
{
    uint32_t gather = rw_made_by(rw, rw_input(rw, node, 0), IR_OP_GATHER);
    const int64_t *all = gather == IR_NONE ? NULL : indices_of(rw, gather);
    const struct ir_node *n = ir_node(rw->graph, node);
    const struct shape *from = &ir_tensor(rw->graph, n->inputs[0])->shape;
    const struct shape *to = &ir_tensor(rw->graph, n->outputs[0])->shape;
    if (!all || to->dim[1] == 0)
        return;
    for (uint32_t d = 0; d < from->rank; d++)
        if (d != 1 && (ir_attr_at(n, IR_ATTR_STEPS, d) != 1 || from->dim[d] != to->dim[d]))
            return;
    int64_t start = ir_attr_at(n, IR_ATTR_STARTS, 1), step = ir_attr_at(n, IR_ATTR_STEPS, 1);
    int64_t count = to->dim[1], *some;
    uint32_t indices = add_indices(rw, node, count, &some);
    if (indices == IR_NONE)
        return;
    for (int64_t i = 0; i < count; i++)
        some[i] = all[start + i * step];
    rw_done(rw, "%s gathers some channels of %s", ir_node(rw->graph, node)->name,
            ir_node(rw->graph, gather)->name);
    become_gather(rw, node, rw_input(rw, gather, 0), indices);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    if (ir_node(rw->graph, node)->op == IR_OP_RESHAPE)
        visit_reshape(rw, node);
    else if (ir_node(rw->graph, node)->op == IR_OP_SLICE)
        visit_slice(rw, node);
}

PASS(gather_channels)
{
    return ctx->picks ? rewrite_run(graph, ctx, visit, err) : STATUS_OK;
}
