/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ScatterND by constant indices that name a whole box of x puts a tensor into it, as exporters
 * write x[:, a:b] = u: slices of x around u are concatenated instead. The indices may also be rows
 * that are expanded over a grid and concatenated, if they were too many to be folded. Where x is
 * such a concatenation itself, its operands are taken over, so that a loop which fills a tensor
 * step by step is one concatenation of all steps.
 */
#include <assert.h>
#include <string.h>

#include "engine/passes/rewrite.h"

enum { PARTIAL_MAX = 3 }; /* dimensions of which the box is a part */

/* Places begin[d] .. begin[d] + size[d] - 1 of each dimension that indices count in. */
struct box {
    uint32_t rank;
    int64_t begin[SHAPE_MAX_RANK], size[SHAPE_MAX_RANK];
};

/* --- reading the indices --- */

/* Element i of a constant, which lies anywhere, as an index of a dimension of so many places; -1:
 * the dimension has no such place. */
static int64_t place_at(const struct ir_tensor *t, int64_t i, int64_t dim)
{
    int64_t index;
    memcpy(&index, (const char *)t->data + i * (int64_t)sizeof(index), sizeof(index));
    if (index < -dim || index >= dim)
        return -1;
    return index < 0 ? index + dim : index;
}

/* Sets the box from the first row of indices to the last one. */
static bool bound(const struct shape *x, const struct ir_tensor *t, int64_t rows, struct box *b)
{
    int64_t places = 1;
    for (uint32_t d = 0; d < b->rank; d++) {
        int64_t last = place_at(t, (rows - 1) * b->rank + d, x->dim[d]);
        b->begin[d] = place_at(t, d, x->dim[d]);
        b->size[d] = last - b->begin[d] + 1;
        if (b->begin[d] < 0 || b->size[d] < 1 || b->size[d] > rows / places)
            return false;
        places *= b->size[d];
    }
    return places == rows;
}

/* Indices that go through a box in its order, each place once. False: they are no such constant. */
static bool read_constant(const struct rewrite *rw, const struct ir_node *n, struct box *b)
{
    const struct shape *x = &ir_tensor(rw->graph, n->inputs[0])->shape;
    const struct ir_tensor *t = ir_tensor(rw->graph, n->inputs[1]);
    size_t count;
    if (!t->data || t->dtype != DTYPE_I64 || t->shape.rank == 0 ||
        !shape_elements(&t->shape, &count) || count == 0)
        return false;
    b->rank = (uint32_t)t->shape.dim[t->shape.rank - 1];
    int64_t rows = (int64_t)(count / b->rank);
    if (b->rank > x->rank || !bound(x, t, rows, b))
        return false;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t d = b->rank, left = row; d-- > 0; left /= b->size[d])
            if (place_at(t, row * b->rank + d, x->dim[d]) != b->begin[d] + left % b->size[d])
                return false;
    return true;
}

/* The constant that a tensor, but for an axis of 1 behind it, is expanded from; or IR_NONE. */
static uint32_t expanded_from(const struct rewrite *rw, uint32_t tensor)
{
    uint32_t reshape = rw_made_by(rw, tensor, IR_OP_RESHAPE);
    uint32_t grid = reshape == IR_NONE ? tensor : rw_input(rw, reshape, 0);
    uint32_t expand = rw_made_by(rw, grid, IR_OP_EXPAND);
    if (expand == IR_NONE)
        return IR_NONE;
    struct shape shape = ir_tensor(rw->graph, grid)->shape;
    if (shape.rank == SHAPE_MAX_RANK)
        return IR_NONE;
    shape.dim[shape.rank++] = 1;
    uint32_t from = rw_input(rw, expand, 0);
    return reshape != IR_NONE && shape_equal(&shape, &ir_tensor(rw->graph, tensor)->shape) &&
                   ir_tensor(rw->graph, from)->data &&
                   ir_tensor(rw->graph, from)->dtype == DTYPE_I64
               ? from
               : IR_NONE;
}

/* Whether c, which is expanded to the grid, counts on along axis d alone, in places of a dimension
 * of x. Gives the first one. */
static bool counts_along(const struct ir_tensor *c, const struct shape *grid, uint32_t d,
                         int64_t dim, int64_t *first)
{
    size_t n;
    if (c->shape.rank > grid->rank || !shape_elements(&c->shape, &n) ||
        (int64_t)n != grid->dim[d] || n == 0)
        return false;
    for (uint32_t k = 0; k < c->shape.rank; k++)
        if (c->shape.dim[k] != 1 && k + grid->rank - c->shape.rank != d)
            return false;
    *first = place_at(c, 0, dim);
    for (int64_t i = 0; i < (int64_t)n; i++)
        if (*first < 0 || place_at(c, i, dim) != *first + i)
            return false;
    return true;
}

/* Indices that are too many to be a constant: for each dimension, a row that is expanded over a
 * grid of the box's places. */
static bool read_grid(const struct rewrite *rw, const struct ir_node *n, struct box *b)
{
    const struct shape *x = &ir_tensor(rw->graph, n->inputs[0])->shape;
    struct shape grid = ir_tensor(rw->graph, n->inputs[1])->shape;
    uint32_t made = rw_made_by(rw, n->inputs[1], IR_OP_CONCAT);
    const struct ir_node *concat = made == IR_NONE ? NULL : ir_node(rw->graph, made);
    b->rank = concat ? concat->n_inputs : 0;
    if (b->rank == 0 || grid.rank != b->rank + 1 || b->rank > x->rank ||
        ir_attr_int(concat, IR_ATTR_AXIS) != (int64_t)b->rank || grid.dim[b->rank] != b->rank)
        return false;
    grid.rank--;
    for (uint32_t d = 0; d < b->rank; d++) {
        uint32_t c = expanded_from(rw, concat->inputs[d]);
        b->size[d] = grid.dim[d];
        if (c == IR_NONE ||
            !counts_along(ir_tensor(rw->graph, c), &grid, d, x->dim[d], &b->begin[d]))
            return false;
    }
    return true;
}

/* --- slices and their concatenation --- */

struct parts {
    const char *name;
    uint32_t list[IR_MAX_INPUTS], n;
};

static void add_part(struct parts *p, uint32_t part)
{
    assert(p->n < IR_MAX_INPUTS);
    p->list[p->n++] = part;
}

/* Adds places from..to-1 of x along the axis: operands of x if it is a concatenation along the axis
 * that has few of them. Two more have room then. */
static void add_range(struct rewrite *rw, struct parts *p, uint32_t x, uint32_t axis, int64_t from,
                      int64_t to)
{
    uint32_t made = rw_made_by(rw, x, IR_OP_CONCAT);
    if (from >= to)
        return;
    if (made == IR_NONE || ir_attr_int(ir_node(rw->graph, made), IR_ATTR_AXIS) != (int64_t)axis ||
        ir_node(rw->graph, made)->n_inputs + p->n > IR_MAX_INPUTS - 2) {
        add_part(p, rw_add_slice(rw, p->name, x, axis, from, to));
        return;
    }
    int64_t at = 0;
    for (uint32_t i = 0; i < ir_node(rw->graph, made)->n_inputs && !rw->status; i++) {
        uint32_t part = rw_input(rw, made, i);
        int64_t size = ir_tensor(rw->graph, part)->shape.dim[axis];
        int64_t begin = MAX(from - at, 0), end = MIN(to - at, size);
        if (begin < end)
            add_part(p, rw_add_slice(rw, p->name, part, axis, begin, end));
        at += size;
    }
}

/* u as large as the box. */
static uint32_t shaped(struct rewrite *rw, const char *name, const struct shape *x, uint32_t u,
                       const struct box *b)
{
    struct shape shape = *x;
    memcpy(shape.dim, b->size, b->rank * sizeof(*b->size));
    return shape_equal(&ir_tensor(rw->graph, u)->shape, &shape)
               ? u
               : rw_add_reshape(rw, name, u, shape.rank, shape.dim);
}

/* Sets the operands of the concatenation along axes[0] that is x with u put into the box. The other
 * axes of which the box is a part, up to axes[n - 1], have concatenations inside. */
static void put_around(struct rewrite *rw, struct parts *p, uint32_t x, const uint32_t *axes,
                       uint32_t n, const struct box *b, uint32_t u);

/* The same within the box's part of x along axes[0], as a node of its own. */
static uint32_t put_inside(struct rewrite *rw, const char *name, uint32_t x, const uint32_t *axes,
                           uint32_t n, const struct box *b, uint32_t u)
{
    struct parts p = {.name = name};
    int64_t begin = b->begin[axes[0]], end = begin + b->size[axes[0]];
    put_around(rw, &p, rw_add_slice(rw, name, x, axes[0], begin, end), axes + 1, n - 1, b, u);
    uint32_t node = rw_add_node(rw, IR_OP_CONCAT, name, p.n, p.list);
    rw_set_int(rw, node, IR_ATTR_AXIS, axes[1]);
    return rw_finish(rw, node);
}

static void put_around(struct rewrite *rw, struct parts *p, uint32_t x, const uint32_t *axes,
                       uint32_t n, const struct box *b, uint32_t u)
{
    int64_t begin = b->begin[axes[0]], end = begin + b->size[axes[0]];
    uint32_t middle = rw->status ? IR_NONE : n > 1 ? put_inside(rw, p->name, x, axes, n, b, u) : u;
    if (middle == IR_NONE)
        return;
    add_range(rw, p, x, axes[0], 0, begin);
    add_part(p, middle);
    add_range(rw, p, x, axes[0], end, ir_tensor(rw->graph, x)->shape.dim[axes[0]]);
}

static void put_into(struct rewrite *rw, uint32_t node, const struct box *b, const uint32_t *axes,
                     uint32_t n_axes)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    const struct shape shape = ir_tensor(rw->graph, n->inputs[0])->shape;
    struct parts p = {.name = n->name};
    uint32_t x = n->inputs[0], u = shaped(rw, n->name, &shape, n->inputs[2], b);
    put_around(rw, &p, x, axes, n_axes, b, u);
    if (rw->status)
        return;
    rw_done(rw, "%s: slices around what is put there", p.name);
    rw_become(rw, node, IR_OP_CONCAT, p.n, p.list);
    rw_set_int(rw, node, IR_ATTR_AXIS, axes[0]);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    uint32_t axes[PARTIAL_MAX], partial = 0;
    struct box b;
    if (n->op != IR_OP_SCATTER_ND || n->n_epilogue ||
        ir_attr_int(n, IR_ATTR_FUNC) != IR_SCATTER_SET ||
        !(read_constant(rw, n, &b) || read_grid(rw, n, &b)))
        return;
    const struct shape *x = &ir_tensor(rw->graph, n->inputs[0])->shape;
    for (uint32_t d = 0; d < b.rank; d++)
        if (b.size[d] < x->dim[d]) {
            if (partial == PARTIAL_MAX) {
                rw_near_miss(rw, "%s: a box that is a part of more than three dimensions", n->name);
                return;
            }
            axes[partial++] = d;
        }
    if (partial == 0) {
        rw_done(rw, "%s: what is put there is all", n->name);
        rw_become_reshape(rw, node, n->inputs[2], x->rank, x->dim);
        return;
    }
    put_into(rw, node, &b, axes, partial);
}

PASS(scatter_boxes)
{
    return ctx->boxes ? rewrite_run(graph, ctx, visit, err) : STATUS_OK;
}
