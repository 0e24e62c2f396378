/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ScatterND by constant indices that name a whole box of x puts a tensor into it, as exporters
 * write x[:, a:b] = u: slices of x around u are concatenated instead. The indices may also be rows
 * that are expanded over a grid and concatenated, if they were too many to be folded. Where x is
 * such a concatenation itself, its operands are taken over, so that a loop which fills a tensor
 * step by step is one concatenation of all steps.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/passes/rewrite.h"

enum { PARTIAL_MAX = 3 }; /* dimensions of which the box is a part */

/* Places begin[d] .. begin[d] + size[d] - 1 of each dimension that indices count in. */
struct box {
    uint32_t rank;
    int64_t begin[SHAPE_MAX_RANK], size[SHAPE_MAX_RANK];
};

/* --- reading the indices --- */

static int64_t index_at(const struct shape *x, const int64_t *indices, int64_t row, uint32_t rank,
                        uint32_t d)
{
    int64_t index = indices[row * rank + d];
    return index < 0 ? index + x->dim[d] : index;
}

static void bound(const struct shape *x, const int64_t *indices, int64_t rows, struct box *b)
{
    for (uint32_t d = 0; d < b->rank; d++) {
        int64_t least = INT64_MAX, most = INT64_MIN;
        for (int64_t row = 0; row < rows; row++) {
            int64_t index = index_at(x, indices, row, b->rank, d);
            least = MIN(least, index);
            most = MAX(most, index);
        }
        b->begin[d] = least;
        b->size[d] = most - least + 1;
    }
}

/* Whether rows of indices go through the box in its order, each place once. */
static bool is_box(const struct shape *x, const int64_t *indices, int64_t rows, const struct box *b)
{
    int64_t places = 1;
    for (uint32_t d = 0; d < b->rank; d++) {
        if (b->begin[d] < 0 || b->begin[d] + b->size[d] > x->dim[d] || b->size[d] > rows / places)
            return false;
        places *= b->size[d];
    }
    if (places != rows)
        return false;
    for (int64_t row = 0; row < rows; row++)
        for (int64_t d = b->rank, left = row; d-- > 0; left /= b->size[d])
            if (index_at(x, indices, row, b->rank, (uint32_t)d) != b->begin[d] + left % b->size[d])
                return false;
    return true;
}

/* False: the indices are no such constant. */
static bool read_constant(const struct rewrite *rw, const struct ir_node *n, struct box *b)
{
    const struct shape *x = &ir_tensor(rw->graph, n->inputs[0])->shape;
    const struct ir_tensor *t = ir_tensor(rw->graph, n->inputs[1]);
    size_t count;
    if (!t->data || t->dtype != DTYPE_I64 || t->shape.rank == 0 ||
        !shape_elements(&t->shape, &count) || count == 0)
        return false;
    b->rank = (uint32_t)t->shape.dim[t->shape.rank - 1];
    if (b->rank > x->rank)
        return false;
    int64_t rows = (int64_t)(count / b->rank);
    bound(x, t->data, rows, b);
    return is_box(x, t->data, rows, b);
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

/* Whether c, which is expanded to the grid, counts on along axis d alone. Gives the first
 * number. */
static bool counts_along(const struct ir_tensor *c, const struct shape *grid, uint32_t d,
                         int64_t *first)
{
    const int64_t *data = c->data;
    size_t n;
    if (c->shape.rank > grid->rank || !shape_elements(&c->shape, &n) ||
        (int64_t)n != grid->dim[d] || n == 0)
        return false;
    for (uint32_t k = 0; k < c->shape.rank; k++)
        if (c->shape.dim[k] != 1 && k + grid->rank - c->shape.rank != d)
            return false;
    for (size_t i = 0; i < n; i++)
        if (data[i] != data[0] + (int64_t)i)
            return false;
    *first = data[0];
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
        if (c == IR_NONE || !counts_along(ir_tensor(rw->graph, c), &grid, d, &b->begin[d]))
            return false;
        b->begin[d] += b->begin[d] < 0 ? x->dim[d] : 0;
        b->size[d] = grid.dim[d];
        if (b->begin[d] < 0 || b->size[d] > x->dim[d] || b->begin[d] > x->dim[d] - b->size[d])
            return false;
    }
    return true;
}

/* --- slices and their concatenation --- */

struct parts {
    const char *name;
    uint32_t list[IR_MAX_INPUTS], n;
};

/* Places from..to-1 of x along the axis, or x itself. */
static uint32_t slice_of(struct rewrite *rw, const char *name, uint32_t x, uint32_t axis,
                         int64_t from, int64_t to)
{
    const struct shape shape = ir_tensor(rw->graph, x)->shape;
    int64_t starts[SHAPE_MAX_RANK] = {0}, ends[SHAPE_MAX_RANK], steps[SHAPE_MAX_RANK];
    if (from == 0 && to == shape.dim[axis])
        return x;
    for (uint32_t d = 0; d < shape.rank; d++) {
        ends[d] = shape.dim[d];
        steps[d] = 1;
    }
    starts[axis] = from;
    ends[axis] = to;
    uint32_t node = rw_add_node(rw, IR_OP_SLICE, name, 1, &x);
    if (node == IR_NONE)
        return IR_NONE;
    rw_set_ints(rw, node, IR_ATTR_STARTS, shape.rank, starts);
    rw_set_ints(rw, node, IR_ATTR_ENDS, shape.rank, ends);
    rw_set_ints(rw, node, IR_ATTR_STEPS, shape.rank, steps);
    return rw_finish(rw, node);
}

static void add_part(struct rewrite *rw, struct parts *p, uint32_t x, uint32_t axis, int64_t from,
                     int64_t to)
{
    if (from < to && p->n < IR_MAX_INPUTS)
        p->list[p->n++] = slice_of(rw, p->name, x, axis, from, to);
}

/* The same, of x's operands if x is a concatenation along the axis that has few of them. */
static void add_range(struct rewrite *rw, struct parts *p, uint32_t x, uint32_t axis, int64_t from,
                      int64_t to)
{
    uint32_t made = rw_made_by(rw, x, IR_OP_CONCAT);
    if (made == IR_NONE || ir_attr_int(ir_node(rw->graph, made), IR_ATTR_AXIS) != (int64_t)axis ||
        ir_node(rw->graph, made)->n_inputs + p->n > IR_MAX_INPUTS - 2) {
        add_part(rw, p, x, axis, from, to);
        return;
    }
    int64_t at = 0;
    for (uint32_t i = 0; i < ir_node(rw->graph, made)->n_inputs && !rw->status; i++) {
        uint32_t part = rw_input(rw, made, i);
        int64_t size = ir_tensor(rw->graph, part)->shape.dim[axis];
        add_part(rw, p, part, axis, MAX(from - at, 0), MIN(to - at, size));
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
    CLEANUP(cleanup_free) struct parts *p = calloc(1, sizeof(*p));
    uint32_t axis = axes[0];
    uint32_t row = slice_of(rw, name, x, axis, b->begin[axis], b->begin[axis] + b->size[axis]);
    if (!p)
        rw_fail(rw);
    if (!p || row == IR_NONE)
        return IR_NONE;
    p->name = name;
    put_around(rw, p, row, axes + 1, n - 1, b, u);
    uint32_t node = rw->status ? IR_NONE : rw_add_node(rw, IR_OP_CONCAT, name, p->n, p->list);
    if (node == IR_NONE)
        return IR_NONE;
    rw_set_int(rw, node, IR_ATTR_AXIS, axes[1]);
    return rw_finish(rw, node);
}

static void put_around(struct rewrite *rw, struct parts *p, uint32_t x, const uint32_t *axes,
                       uint32_t n, const struct box *b, uint32_t u)
{
    int64_t begin = b->begin[axes[0]], end = begin + b->size[axes[0]];
    int64_t dim = ir_tensor(rw->graph, x)->shape.dim[axes[0]];
    uint32_t middle = n > 1 ? put_inside(rw, p->name, x, axes, n, b, u) : u;
    if (middle == IR_NONE)
        return;
    add_range(rw, p, x, axes[0], 0, begin);
    if (p->n < IR_MAX_INPUTS)
        p->list[p->n++] = middle;
    add_range(rw, p, x, axes[0], end, dim);
}

static void put_into(struct rewrite *rw, uint32_t node, const struct box *b, const uint32_t *axes,
                     uint32_t n_axes)
{
    CLEANUP(cleanup_free) struct parts *p = calloc(1, sizeof(*p));
    const struct ir_node *n = ir_node(rw->graph, node);
    const struct shape shape = ir_tensor(rw->graph, n->inputs[0])->shape;
    uint32_t x = n->inputs[0], u = n->inputs[2];
    const char *name = n->name;
    if (!p) {
        rw_fail(rw);
        return;
    }
    p->name = name;
    u = shaped(rw, name, &shape, u, b);
    if (u != IR_NONE)
        put_around(rw, p, x, axes, n_axes, b, u);
    if (rw->status || u == IR_NONE)
        return;
    rw_done(rw, "%s: slices around what is put there", name);
    rw_become(rw, node, IR_OP_CONCAT, p->n, p->list);
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
