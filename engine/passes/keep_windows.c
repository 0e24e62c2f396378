/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention in windows (Swin) reorders the places of an image before its products and puts them
 * back behind them, around a sum that goes past both:
 *
 *   y = x + back(f(there(norm(x))))   becomes   y = back(there(x) + f(norm(there(x))))
 *
 * The sum now joins the product before it, and `back` sinks below what computes each place for
 * itself (norms, products by weights, sums of two that were put back alike), until it meets the
 * next block's `there`: one reordering is left of four, or of six where windows are shifted.
 *
 * A reordering is any chain of reshapes, transposes and gathers by constant indices that leaves
 * images and rows (the last dimension) whole. It is read as a list: row i of the result is row
 * map[i] of the source, in every image; a gather of rows takes the place of the chain. The slices
 * of every second row and column that Swin puts side by side between its stages are such a list,
 * too.
 */
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/passes/rewrite.h"

enum {
    ALL_ROWS_MAX = 1 << 27,
    ROWS_MAX = 1 << 18,
    CHAIN_MAX = 16,
    WAY_MAX = 8,
    LENGTH_MIN = 8,
    INPUTS_MAX = 8
};

/* `images` times `each` rows of `length` elements. */
struct rows {
    int64_t images, each, length;
};

/* What the pass remembers: the outputs that it has put back, which may sink; and how many rows its
 * lists may still have, so that no file makes it work without end. */
struct memory {
    bool *back;
    uint32_t n;
    int64_t left;
};

static bool rows_of(const struct shape *shape, struct rows *out)
{
    size_t n;
    if (shape->rank < 2 || !shape_elements(shape, &n) || n == 0)
        return false;
    *out = (struct rows){.images = shape->dim[0], .length = shape->dim[shape->rank - 1]};
    out->each = (int64_t)n / out->images / out->length;
    return out->each <= ROWS_MAX && out->length >= LENGTH_MIN;
}

/* --- chains --- */

/* How many dimensions come before those of an image's rows. False: rows or images are not whole. */
static bool leading(const struct shape *shape, const struct rows *rows, uint32_t *out)
{
    int64_t images = 1;
    uint32_t i = 0;
    if (shape->rank < 2 || shape->dim[shape->rank - 1] != rows->length)
        return false;
    while (images < rows->images && i + 1 < shape->rank)
        images *= shape->dim[i++];
    *out = i;
    return images == rows->images;
}

/* map[i] = the row before the transpose that becomes row map[i]. */
static bool undo_transpose(const struct rewrite *rw, const struct ir_node *n,
                           const struct rows *rows, int64_t *map)
{
    const struct shape *x = &ir_tensor(rw->graph, n->inputs[0])->shape;
    const struct ir_attr *perm = ir_attr(n, IR_ATTR_PERM);
    uint32_t first, last = x->rank - 1;
    int64_t step[SHAPE_MAX_RANK], size = 1;
    if (!leading(x, rows, &first) || perm->i[last] != last)
        return false;
    for (uint32_t i = 0; i < first; i++)
        if (perm->i[i] != i)
            return false;
    for (uint32_t i = last; i-- > first; size *= x->dim[i])
        step[i] = size;
    for (int64_t k = 0; k < rows->each; k++) {
        int64_t left = map[k], to = 0;
        for (uint32_t i = last; i-- > first;) {
            int64_t dim = x->dim[perm->i[i]];
            to += left % dim * step[perm->i[i]];
            left /= dim;
        }
        map[k] = to;
    }
    return true;
}

/* The same for a gather by constant indices that gives as many rows as it has. */
static bool undo_gather(const struct rewrite *rw, const struct ir_node *n, const struct rows *rows,
                        int64_t *map)
{
    const struct shape *x = &ir_tensor(rw->graph, n->inputs[0])->shape;
    const struct ir_tensor *indices = ir_tensor(rw->graph, n->inputs[1]);
    int64_t axis = ir_attr_int(n, IR_ATTR_AXIS), inner = 1;
    uint32_t first;
    size_t count;
    if (!leading(x, rows, &first) || axis < first || axis + 1 >= x->rank || !indices->data ||
        indices->dtype != DTYPE_I64 || !shape_elements(&indices->shape, &count) ||
        (int64_t)count != x->dim[axis])
        return false;
    const int64_t *from = indices->data;
    for (size_t i = 0; i < count; i++)
        if (from[i] < -x->dim[axis] || from[i] >= x->dim[axis])
            return false;
    for (uint32_t i = (uint32_t)axis + 1; i + 1 < x->rank; i++)
        inner *= x->dim[i];
    for (int64_t k = 0; k < rows->each; k++) {
        int64_t block = map[k] / inner, at = from[block % x->dim[axis]];
        at += at < 0 ? x->dim[axis] : 0;
        map[k] = (block / x->dim[axis] * x->dim[axis] + at) * inner + map[k] % inner;
    }
    return true;
}

/* Follows the chain that makes the tensor, and takes each step back in `map`; gives its source.
 * `*moves`: how many steps move rows. */
static uint32_t find_source(const struct rewrite *rw, uint32_t tensor, const struct rows *rows,
                            int64_t *map, uint32_t *moves)
{
    *moves = 0;
    for (uint32_t i = 0; i < CHAIN_MAX; i++) {
        uint32_t node = ir_tensor(rw->graph, tensor)->producer;
        const struct ir_node *n = node == IR_NONE ? NULL : ir_node(rw->graph, node);
        if (!n || n->n_epilogue)
            break;
        bool turns = n->op == IR_OP_TRANSPOSE, gathers = n->op == IR_OP_GATHER;
        if (!(turns && undo_transpose(rw, n, rows, map)) &&
            !(gathers && undo_gather(rw, n, rows, map)) && n->op != IR_OP_RESHAPE)
            break;
        *moves += turns || gathers;
        tensor = n->inputs[0];
    }
    return tensor;
}

/* A list that changes nothing; NULL if there were too many, or, and failed, without memory. */
static int64_t *new_map(struct rewrite *rw, const struct rows *rows)
{
    struct memory *m = rw->state;
    size_t n = (size_t)rows->each;
    if (n > ROWS_MAX || rows->each > m->left)
        return NULL;
    m->left -= rows->each;
    int64_t *map = calloc(n, sizeof(*map));
    if (!map)
        rw_fail(rw);
    for (int64_t i = 0; map && i < rows->each; i++)
        map[i] = i;
    return map;
}

/* inverse[map[i]] = value[i]. False: two rows are the same one. */
static bool undo(const struct rows *rows, const int64_t *map, const int64_t *value,
                 int64_t *inverse)
{
    memset(inverse, 0xff, (size_t)rows->each * sizeof(*inverse));
    for (int64_t i = 0; i < rows->each; i++) {
        if (inverse[map[i]] >= 0)
            return false;
        inverse[map[i]] = value[i];
    }
    return true;
}

/* The tensor with rows in this order, as [images, rows, length]. */
static uint32_t add_gather(struct rewrite *rw, const char *name, uint32_t x,
                           const struct rows *rows, const int64_t *map)
{
    const int64_t dim[] = {rows->images, rows->each, rows->length};
    const struct shape shape = {.rank = 1, .dim = {rows->each}};
    void *to = NULL;
    uint32_t in[2] = {rw_add_reshape(rw, name, x, 3, dim),
                      rw_add_constant(rw, name, DTYPE_I64, &shape, &to)};
    if (in[0] == IR_NONE || in[1] == IR_NONE)
        return IR_NONE;
    memcpy(to, map, (size_t)rows->each * sizeof(*map));
    uint32_t node = rw_add_node(rw, IR_OP_GATHER, name, 2, in);
    rw_set_int(rw, node, IR_ATTR_AXIS, 1);
    return rw_finish(rw, node);
}

/* --- nodes that compute each row for itself --- */

static bool lies_in_row(const struct ir_tensor *t)
{
    for (uint32_t i = 0; i + 1 < t->shape.rank; i++)
        if (t->shape.dim[i] != 1)
            return false;
    return ir_tensor_is_constant(t);
}

static bool is_row_wise(const struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    const struct shape *x = &ir_tensor(rw->graph, n->inputs[0])->shape;
    const struct ir_tensor *y = ir_tensor(rw->graph, n->outputs[0]);
    bool product = n->op == IR_OP_MATMUL;
    if (n->n_outputs != 1 || n->n_inputs > INPUTS_MAX || !rw_is_float(rw, n->outputs[0]) ||
        (!product && n->op != IR_OP_LAYER_NORM && n->op != IR_OP_UNARY && n->op != IR_OP_BINARY) ||
        (n->op == IR_OP_LAYER_NORM && ir_attr_int(n, IR_ATTR_AXIS) + 1 != x->rank) ||
        (product && ir_attr_int(n, IR_ATTR_TRANS_A)))
        return false;
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        const struct ir_tensor *t =
            n->inputs[i] == IR_NONE ? NULL : ir_tensor(rw->graph, n->inputs[i]);
        bool is_weights = product && i == 1;
        if (is_weights ? !ir_tensor_is_constant(t) || t->shape.rank != 2
                       : t && !lies_in_row(t) && !(product && i == 0) &&
                             !shape_equal(&t->shape, &y->shape))
            return false;
    }
    return true;
}

/* The same node on other inputs, the first of which has this rank. */
static uint32_t add_like(struct rewrite *rw, uint32_t node, const uint32_t *in, uint32_t rank)
{
    const struct ir_node n = *ir_node(rw->graph, node);
    uint32_t made = rw_add_node(rw, n.op, n.name, ir_node_own_inputs(&n), in);
    rw_copy_attrs(rw, made, node);
    if (n.op == IR_OP_LAYER_NORM)
        rw_set_int(rw, made, IR_ATTR_AXIS, rank - 1);
    uint32_t y = rw_finish(rw, made);
    for (uint32_t i = 0; i < n.n_epilogue && !rw->status; i++) {
        const struct ir_epilogue *step = &n.epilogue[i];
        rw_add_epilogue(rw, made, *step,
                        step->kind == IR_EPILOGUE_BINARY ? in[step->input] : IR_NONE);
    }
    return y;
}

static void remember(struct rewrite *rw, uint32_t tensor)
{
    struct memory *m = rw->state;
    if (tensor >= m->n) {
        uint32_t n = tensor * 2 + 64;
        bool *more = realloc(m->back, n * sizeof(*more));
        if (!more) {
            rw_fail(rw);
            return;
        }
        memset(more + m->n, 0, (n - m->n) * sizeof(*more));
        m->back = more;
        m->n = n;
    }
    m->back[tensor] = true;
}

static bool is_back(const struct rewrite *rw, uint32_t tensor)
{
    const struct memory *m = rw->state;
    return tensor < m->n && m->back[tensor];
}

/* --- sinking --- */

/* The sources of the node's inputs, if all that are no constants were put back alike. */
static bool find_sources(struct rewrite *rw, uint32_t node, const struct rows *rows, int64_t *map,
                         uint32_t *in)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    CLEANUP(cleanup_free) int64_t *other = NULL;
    uint32_t moves;
    bool any = false;
    for (uint32_t i = 0; i < n->n_inputs; i++) {
        in[i] = n->inputs[i];
        if (in[i] == IR_NONE || ir_tensor_is_constant(ir_tensor(rw->graph, in[i])))
            continue;
        struct rows own;
        free(other);
        other = NULL;
        if (!is_back(rw, in[i]) || !rows_of(&ir_tensor(rw->graph, in[i])->shape, &own) ||
            own.images != rows->images || own.each != rows->each || !(other = new_map(rw, &own)))
            return false;
        in[i] = find_source(rw, in[i], &own, other, &moves);
        if (any && memcmp(map, other, (size_t)rows->each * sizeof(*map)) != 0)
            return false;
        memcpy(map, other, (size_t)rows->each * sizeof(*map));
        any = true;
    }
    return any;
}

static void sink(struct rewrite *rw, uint32_t node)
{
    struct rows rows;
    uint32_t in[INPUTS_MAX];
    const struct ir_node *n = ir_node(rw->graph, node);
    const struct shape shape = ir_tensor(rw->graph, n->outputs[0])->shape;
    if (!rows_of(&shape, &rows))
        return;
    CLEANUP(cleanup_free) int64_t *map = new_map(rw, &rows);
    if (!map || !find_sources(rw, node, &rows, map, in))
        return;
    n = ir_node(rw->graph, node);
    uint32_t n_inputs = n->n_inputs;
    for (uint32_t i = 0; i < n_inputs; i++) {
        uint32_t was = ir_node(rw->graph, node)->inputs[i];
        if (in[i] == was || in[i] == IR_NONE)
            continue;
        const struct shape like = ir_tensor(rw->graph, was)->shape;
        in[i] = rw_add_reshape(rw, ir_node(rw->graph, node)->name, in[i], like.rank, like.dim);
    }
    if (rw->status)
        return;
    const char *name = ir_node(rw->graph, node)->name;
    uint32_t y = add_gather(rw, name, add_like(rw, node, in, shape.rank), &rows, map);
    if (y == IR_NONE)
        return;
    rw_done(rw, "%s in the order of windows", name);
    rw_become_reshape(rw, node, y, shape.rank, shape.dim);
    remember(rw, rw_output(rw, node));
}

/* --- a block --- */

struct block {
    struct rows rows;
    uint32_t x, a;       /* before the block; what is put back */
    uint32_t norm;       /* the node that reads x, and whose result is reordered: */
    uint32_t there;      /* that result */
    int64_t *back, *map; /* rows of the sum in a; rows of x in the order of a */
};

static void block_cleanup(struct block *b)
{
    free(b->back);
    free(b->map);
}

/* Looks on the way from `a` back to x for a norm of x whose rows are then reordered as a's are. */
static bool find_there(struct rewrite *rw, struct block *b)
{
    uint32_t t = b->a;
    for (uint32_t i = 0; i < WAY_MAX; i++) {
        const struct shape *shape = &ir_tensor(rw->graph, t)->shape;
        uint32_t moves = 0, unused;
        CLEANUP(cleanup_free) int64_t *map = new_map(rw, &b->rows);
        if (!map)
            return false;
        bool whole = shape->rank >= 2 && shape->dim[shape->rank - 1] == b->rows.length;
        uint32_t source = whole ? find_source(rw, t, &b->rows, map, &moves) : t;
        uint32_t node = ir_tensor(rw->graph, source)->producer;
        if (node == IR_NONE || !ir_node(rw->graph, node)->n_inputs)
            return false;
        uint32_t z = rw_input(rw, node, 0);
        if (whole && moves && is_row_wise(rw, node)) {
            b->there = t;
            b->norm = node;
            return !ir_node(rw->graph, node)->n_epilogue &&
                   ir_node(rw->graph, node)->op != IR_OP_BINARY &&
                   shape_equal(&ir_tensor(rw->graph, z)->shape,
                               &ir_tensor(rw->graph, source)->shape) &&
                   find_source(rw, z, &b->rows, map, &unused) == b->x &&
                   memcmp(map, b->map, (size_t)b->rows.each * sizeof(*map)) == 0;
        }
        t = z;
    }
    return false;
}

/* Reads operand i of a sum as what a block puts back. */
static bool find_block(struct rewrite *rw, uint32_t node, uint32_t i, struct block *b)
{
    uint32_t put = rw_input(rw, node, i), past = rw_input(rw, node, 1 - i);
    const struct shape *y = &ir_tensor(rw->graph, rw_output(rw, node))->shape;
    uint32_t moves = 0, unused;
    if (rw_uses(rw, put) != 1 || y->rank < 3 || !rows_of(y, &b->rows) ||
        !shape_equal(y, &ir_tensor(rw->graph, put)->shape) ||
        !shape_equal(y, &ir_tensor(rw->graph, past)->shape))
        return false;
    CLEANUP(cleanup_free) int64_t *map = new_map(rw, &b->rows);
    b->back = new_map(rw, &b->rows);
    b->map = new_map(rw, &b->rows);
    if (!map || !b->back || !b->map)
        return false;
    b->a = find_source(rw, put, &b->rows, b->back, &moves);
    b->x = find_source(rw, past, &b->rows, map, &unused);
    return moves && undo(&b->rows, b->back, map, b->map) && find_there(rw, b);
}

static void rebuild(struct rewrite *rw, uint32_t node, const struct block *b)
{
    const struct shape y = ir_tensor(rw->graph, rw_output(rw, node))->shape;
    const struct shape there = ir_tensor(rw->graph, b->there)->shape;
    const struct shape a = ir_tensor(rw->graph, b->a)->shape;
    const char *name = ir_node(rw->graph, node)->name;
    uint32_t in[INPUTS_MAX], n_inputs = ir_node(rw->graph, b->norm)->n_inputs;
    memcpy(in, ir_node(rw->graph, b->norm)->inputs, n_inputs * sizeof(in[0]));
    uint32_t x = add_gather(rw, name, b->x, &b->rows, b->map);
    if (x == IR_NONE)
        return;
    in[0] = rw_add_reshape(rw, name, x, there.rank, there.dim);
    uint32_t normed = add_like(rw, b->norm, in, there.rank);
    uint32_t terms[2] = {b->a, rw_add_reshape(rw, name, x, a.rank, a.dim)};
    if (normed == IR_NONE || terms[1] == IR_NONE || !rw_replace(rw, b->there, normed))
        return;
    rw_remove(rw, ir_tensor(rw->graph, b->there)->producer);
    uint32_t sum = rw_add_node(rw, IR_OP_BINARY, name, 2, terms);
    rw_copy_attrs(rw, sum, node);
    uint32_t back = add_gather(rw, name, rw_finish(rw, sum), &b->rows, b->back);
    if (back == IR_NONE)
        return;
    rw_done(rw, "%s within windows", name);
    rw_become_reshape(rw, node, back, y.rank, y.dim);
    remember(rw, rw_output(rw, node));
}

/* --- every second row and column side by side --- */

/* Reads slice i of so many that are joined along their last dimension: its part of the list. */
static bool read_part(const struct rewrite *rw, uint32_t tensor, const struct rows *rows,
                      uint32_t i, uint32_t n, uint32_t *x, int64_t *map)
{
    uint32_t slice = rw_made_by(rw, tensor, IR_OP_SLICE);
    if (slice == IR_NONE || rw_uses(rw, tensor) != 1)
        return false;
    const struct ir_node *node = ir_node(rw->graph, slice);
    const struct shape *from = &ir_tensor(rw->graph, node->inputs[0])->shape;
    const struct shape *to = &ir_tensor(rw->graph, tensor)->shape;
    int64_t part = rows->each / n;
    if ((i && *x != node->inputs[0]) || from->dim[0] != to->dim[0] ||
        from->dim[from->rank - 1] != rows->length || to->dim[to->rank - 1] != rows->length)
        return false;
    *x = node->inputs[0];
    for (int64_t k = 0; k < part; k++) {
        int64_t left = k, at = 0, step = 1;
        for (uint32_t d = from->rank - 1; d-- > 1;) {
            at += (ir_attr_at(node, IR_ATTR_STARTS, d) +
                   left % to->dim[d] * ir_attr_at(node, IR_ATTR_STEPS, d)) *
                  step;
            left /= to->dim[d];
            step *= from->dim[d];
        }
        map[k * n + i] = at;
    }
    return true;
}

static void join(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    const struct shape y = ir_tensor(rw->graph, n->outputs[0])->shape;
    uint32_t parts = n->n_inputs, x = IR_NONE;
    struct rows rows;
    uint32_t unused;
    if (n->n_epilogue || parts < 2 || y.rank < 3 ||
        (uint32_t)ir_attr_int(n, IR_ATTR_AXIS) + 1 != y.rank || !rows_of(&y, &rows) ||
        rows.length % parts || rows.each * parts > ROWS_MAX || rows.length / parts < LENGTH_MIN)
        return;
    rows = (struct rows){rows.images, rows.each * parts, rows.length / parts};
    CLEANUP(cleanup_free) int64_t *map = new_map(rw, &rows);
    CLEANUP(cleanup_free) int64_t *seen = new_map(rw, &rows);
    for (uint32_t i = 0; map && seen && i < parts; i++)
        if (!read_part(rw, ir_node(rw->graph, node)->inputs[i], &rows, i, parts, &x, map))
            return;
    struct rows whole;
    if (!map || !seen || !rows_of(&ir_tensor(rw->graph, x)->shape, &whole) ||
        whole.each != rows.each || !undo(&rows, map, map, seen))
        return;
    x = find_source(rw, x, &rows, map, &unused);
    const char *name = ir_node(rw->graph, node)->name;
    uint32_t gathered = add_gather(rw, name, x, &rows, map);
    if (gathered == IR_NONE)
        return;
    rw_done(rw, "%s is a gather of %u slices", name, parts);
    rw_become_reshape(rw, node, gathered, y.rank, y.dim);
}

/* Makes one gather of two that follow each other. */
static void merge(struct rewrite *rw, uint32_t node)
{
    const struct shape y = ir_tensor(rw->graph, rw_output(rw, node))->shape;
    struct rows rows;
    uint32_t moves, first = rw_made_by(rw, rw_input(rw, node, 0), IR_OP_GATHER);
    if (first == IR_NONE || rw_uses(rw, rw_output(rw, first)) != 1 || !rows_of(&y, &rows))
        return;
    CLEANUP(cleanup_free) int64_t *map = new_map(rw, &rows);
    if (!map)
        return;
    uint32_t x = find_source(rw, rw_output(rw, node), &rows, map, &moves);
    const char *name = ir_node(rw->graph, node)->name;
    uint32_t gathered = moves > 1 ? add_gather(rw, name, x, &rows, map) : IR_NONE;
    if (gathered == IR_NONE)
        return;
    rw_done(rw, "%s is one gather of %u nodes", name, moves);
    rw_become_reshape(rw, node, gathered, y.rank, y.dim);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op == IR_OP_CONCAT || n->op == IR_OP_GATHER) {
        (n->op == IR_OP_CONCAT ? join : merge)(rw, node);
        return;
    }
    if (!n->n_inputs || n->inputs[0] == IR_NONE || !n->n_outputs || !is_row_wise(rw, node))
        return;
    for (uint32_t i = 0; i < 2 && rw_is_binary(rw, node, IR_BINARY_ADD); i++) {
        CLEANUP(block_cleanup) struct block b = {.norm = IR_NONE};
        if (find_block(rw, node, i, &b)) {
            rebuild(rw, node, &b);
            return;
        }
    }
    sink(rw, node);
}

PASS(keep_windows)
{
    struct memory memory = {.left = ALL_ROWS_MAX};
    enum status status = rewrite_run_with(graph, ctx, visit, &memory, err);
    free(memory.back);
    return status;
}
