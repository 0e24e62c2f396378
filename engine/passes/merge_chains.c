/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chain of reshapes and transposes becomes one transpose between two reshapes, or a reshape, or
 * nothing. merge_shuffles merges neighbours of one kind; here a reshape may stand between two
 * transposes, as where heads are merged with the batch for a product and come apart behind it.
 *
 * The number of an element is written in digits, one for each dimension. A reshape divides or joins
 * digits, a transpose reorders them. The digits at the end of the chain, with what each counts at
 * its beginning, say what the whole chain does.
 */
#include "engine/passes/rewrite.h"

#include <string.h>

enum { CHAIN_MAX = 16, DIGITS_MAX = 24 };

struct digit {
    int64_t size, step; /* step: in elements of the chain's source */
};

struct digits {
    struct digit at[DIGITS_MAX];
    uint32_t n;
};

/* Divides digit i so that its first part has `size`. */
static bool divide(struct digits *d, uint32_t i, int64_t size)
{
    struct digit whole = d->at[i];
    if (size == whole.size)
        return true;
    if (whole.size % size || d->n == DIGITS_MAX)
        return false;
    int64_t rest = whole.size / size;
    memmove(&d->at[i + 1], &d->at[i], (d->n - i) * sizeof(d->at[0]));
    d->at[i] = (struct digit){size, whole.step * rest};
    d->at[i + 1] = (struct digit){rest, whole.step};
    d->n++;
    return true;
}

/* Divides digits until each belongs to one dimension of the shape; `first` gets the number of the
 * first digit of each dimension, and the number of all behind the last. */
static bool align(struct digits *d, const struct shape *shape, uint32_t first[SHAPE_MAX_RANK + 1])
{
    uint32_t i = 0;
    for (uint32_t k = 0; k < shape->rank; k++) {
        first[k] = i;
        for (int64_t left = shape->dim[k]; left > 1; left /= d->at[i++].size) {
            if (i == d->n || !divide(d, i, MIN(left, d->at[i].size)) || left % d->at[i].size)
                return false;
        }
    }
    first[shape->rank] = i;
    return i == d->n;
}

static void digits_init(struct digits *d, const struct shape *shape)
{
    int64_t strides[SHAPE_MAX_RANK];
    shape_strides(shape, strides);
    d->n = 0;
    for (uint32_t k = 0; k < shape->rank; k++)
        if (shape->dim[k] != 1)
            d->at[d->n++] = (struct digit){shape->dim[k], strides[k]};
}

static bool digits_transpose(struct digits *d, const struct shape *from, const struct ir_attr *perm)
{
    uint32_t first[SHAPE_MAX_RANK + 1];
    struct digits moved = {.n = 0};
    if (!align(d, from, first))
        return false;
    for (uint32_t k = 0; k < perm->count; k++)
        for (uint32_t i = first[perm->i[k]]; i < first[perm->i[k] + 1]; i++)
            moved.at[moved.n++] = d->at[i];
    *d = moved;
    return true;
}

/* Joins neighbours that are one digit of the source. */
static void digits_join(struct digits *d)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n; i++)
        if (n && d->at[n - 1].step == d->at[i].step * d->at[i].size)
            d->at[n - 1] = (struct digit){d->at[n - 1].size * d->at[i].size, d->at[i].step};
        else
            d->at[n++] = d->at[i];
    d->n = n;
}

struct chain {
    uint32_t source;
    uint32_t node[CHAIN_MAX], n; /* the last one first */
    uint32_t transposes;
    bool shared; /* other nodes read a tensor within the chain, behind its last transpose */
};

static void find_chain(const struct rewrite *rw, uint32_t node, struct chain *c)
{
    *c = (struct chain){.n = 0};
    while (c->n < CHAIN_MAX) {
        const struct ir_node *n = ir_node(rw->graph, node);
        c->node[c->n++] = node;
        c->transposes += n->op == IR_OP_TRANSPOSE;
        c->source = n->inputs[0];
        uint32_t next = rw_made_by(rw, c->source, IR_OP_RESHAPE);
        node = next == IR_NONE ? rw_made_by(rw, c->source, IR_OP_TRANSPOSE) : next;
        if (node == IR_NONE)
            break;
        c->shared = c->shared || (!c->transposes && rw_uses(rw, c->source) != 1);
    }
}

/* Says whether other nodes read what a node of the chain makes, the last node aside. */
static bool is_read(const struct rewrite *rw, const struct chain *c)
{
    for (uint32_t i = 1; i < c->n; i++)
        if (rw_uses(rw, rw_output(rw, c->node[i])) != 1)
            return true;
    return false;
}

static bool chain_digits(const struct rewrite *rw, const struct chain *c, struct digits *d)
{
    size_t n;
    const struct shape *shape = &ir_tensor(rw->graph, c->source)->shape;
    if (!shape_elements(shape, &n) || n == 0 || shape->rank > SHAPE_MAX_RANK)
        return false;
    digits_init(d, shape);
    for (uint32_t i = c->n; i-- > 0;) {
        const struct ir_node *node = ir_node(rw->graph, c->node[i]);
        if (node->op == IR_OP_TRANSPOSE &&
            !digits_transpose(d, &ir_tensor(rw->graph, node->inputs[0])->shape,
                              ir_attr(node, IR_ATTR_PERM)))
            return false;
    }
    return true;
}

/* One transpose: of the source as `from`. */
struct turn {
    struct shape from, to;
    int64_t perm[SHAPE_MAX_RANK];
};

static bool turn_of(const struct digits *d, struct turn *out)
{
    if (d->n > SHAPE_MAX_RANK)
        return false;
    out->from.rank = out->to.rank = d->n;
    for (uint32_t i = 0; i < d->n; i++) {
        uint32_t place = 0; /* larger steps come first in the source */
        for (uint32_t j = 0; j < d->n; j++)
            place += d->at[j].step > d->at[i].step;
        out->perm[i] = place;
        out->to.dim[i] = out->from.dim[place] = d->at[i].size;
    }
    return true;
}

/* Digits that are whole dimensions at the end of the chain need no reshape there. */
static bool keep_dimensions(struct digits *d, const struct shape *to)
{
    uint32_t first[SHAPE_MAX_RANK + 1];
    if (!align(d, to, first))
        return false;
    for (uint32_t k = 0; k < to->rank; k++)
        if (first[k + 1] - first[k] != 1)
            return false;
    return true;
}

static void visit(struct rewrite *rw, uint32_t node)
{
    enum ir_op op = ir_node(rw->graph, node)->op;
    struct chain c;
    struct digits d, whole;
    struct turn turn;
    if (op != IR_OP_RESHAPE && op != IR_OP_TRANSPOSE)
        return;
    find_chain(rw, node, &c);
    if (c.n < 2 || !c.transposes || !chain_digits(rw, &c, &d))
        return;
    const struct shape to = ir_tensor(rw->graph, rw_output(rw, node))->shape;
    const struct shape from = ir_tensor(rw->graph, c.source)->shape;
    const char *name = ir_node(rw->graph, node)->name;
    digits_join(&d);
    if (d.n <= 1) {
        rw_done(rw, "%s moves nothing", name);
        rw_become_reshape(rw, node, c.source, to.rank, to.dim);
        return;
    }
    whole = d;
    if (keep_dimensions(&whole, &to))
        d = whole;
    if (!turn_of(&d, &turn))
        return;
    bool before = !shape_equal(&turn.from, &from), behind = !shape_equal(&turn.to, &to);
    if (c.transposes == 1 ? is_read(rw, &c) || 1U + before + behind >= c.n : c.shared)
        return;
    rw_done(rw, "%s is one transpose of %u nodes", name, c.n);
    uint32_t x = c.source;
    if (before)
        x = rw_add_reshape(rw, name, x, turn.from.rank, turn.from.dim);
    if (behind)
        x = rw_add_transpose(rw, name, x, turn.to.rank, turn.perm);
    if (x == IR_NONE)
        return;
    if (behind)
        rw_become_reshape(rw, node, x, to.rank, to.dim);
    else
        rw_become_transpose(rw, node, x, turn.to.rank, turn.perm);
}

PASS(merge_chains)
{
    return rewrite_run(graph, ctx, visit, err);
}
