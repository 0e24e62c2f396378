/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the products' dimensions are batches and heads, and where queries, keys and values lie.
 *
 * The search follows no pattern in how queries, keys and values become [N,H,S,D]. Instead it
 * follows them back as views (view.h), until head h of row s of batch n lies at (n S + s) W + h D:
 * in rows. All ways of splitting come from there: from three products, or from slices or gathers of
 * one. Keys and values that are repeated for several heads of queries are found in the same way,
 * because then the view does not move from one of these heads to the next. Scales on the way, such
 * as the square root of the scale on queries and on keys, join the attention's scale. An operand
 * that does not come from rows (rotated by position, say, or joined with a cache) is read with its
 * heads first.
 *
 * Products of rank 3, [G,S,D], do not say which part of G is heads. Every way to divide G is tried,
 * and the one in which most operands lie in rows is taken, and of several the one whose rows lie
 * furthest back: one head lies in rows everywhere. One batch of G heads is among them: rows
 * of [S,N,H*D], as sequences come that do not have the batch first, are rows of N*H heads.
 */
#include "engine/passes/attention.h"

#include <string.h>

/* The dimensions of a view. R: heads of queries that share a head of keys and values. */
enum { N, H, R, S, D };

/* How many nodes a search follows back. Nodes that move elements have been merged before as far as
 * they can be, and a longer row of them is not worth the time. */
enum { STEPS_MAX = 16 };

/* What the best form of an operand is worth. */
enum { WORTH_MAX = 6 };

/* Up to this many batches and heads together are divided in other ways than the graph's. */
enum { BATCHES_MAX = 1 << 16 };

/* The product of the dimensions before the last two. */
static int64_t batches_of(const struct shape *shape)
{
    int64_t n = 1;
    for (uint32_t i = 0; i + 2 < shape->rank; i++)
        n *= shape->dim[i];
    return n;
}

/* Says whether the elements of a view lie in rows as expected, or `crossed`: batches in sequences.
 * Gives the rows' width. */
static bool is_in_rows(const struct rewrite *rw, const struct view *view, bool crossed,
                       int64_t *row)
{
    size_t total;
    int64_t rows = view->dim[N] * view->dim[S], heads = view->dim[H] * view->dim[D];
    if (!shape_elements(&ir_tensor(rw->graph, view->tensor)->shape, &total) ||
        (int64_t)total % rows)
        return false;
    int64_t width = (int64_t)total / rows;
    const int64_t strides[VIEW_RANK] = {[N] = crossed ? width : width * view->dim[S],
                                        [H] = view->dim[D],
                                        [R] = 0,
                                        [S] = crossed ? width * view->dim[N] : width,
                                        [D] = 1};
    *row = width;
    return view->offset + heads <= width && view_has_strides(view, strides);
}

/* Says whether a product made the tensor from one whose first two dimensions had been swapped just
 * for that. */
static bool is_crossed_product(const struct rewrite *rw, uint32_t tensor, int64_t sequence,
                               int64_t batches)
{
    for (int step = 0; step < 5; step++) {
        uint32_t node = ir_tensor(rw->graph, tensor)->producer;
        const struct ir_node *n = node == IR_NONE ? NULL : ir_node(rw->graph, node);
        if (!n || n->n_epilogue)
            return false;
        if (rw_is_binary(rw, node, IR_BINARY_ADD)) { /* of what becomes the product's bias */
            bool swapped = ir_tensor(rw->graph, n->inputs[0])->shape.rank == 1;
            if (ir_tensor(rw->graph, n->inputs[!swapped])->shape.rank != 1)
                return false;
            tensor = n->inputs[swapped];
            continue;
        }
        const struct shape *to = &ir_tensor(rw->graph, tensor)->shape;
        const struct ir_attr *perm = ir_attr(n, IR_ATTR_PERM);
        if (n->op == IR_OP_TRANSPOSE)
            return to->rank == 3 && perm->i[0] == 1 && perm->i[1] == 0 && to->dim[0] == sequence &&
                   to->dim[1] == batches;
        if (n->op != IR_OP_RESHAPE && n->op != IR_OP_MATMUL)
            return false;
        tensor = n->inputs[0];
    }
    return false;
}

/* Says whether the view is its whole tensor, as [N,H,S,D]. */
static bool is_heads_first(const struct rewrite *rw, const struct view *view)
{
    size_t total;
    int64_t size = view->dim[S] * view->dim[D], all = view->dim[N] * view->dim[H] * size;
    const int64_t strides[VIEW_RANK] = {
        [N] = view->dim[H] * size, [H] = size, [R] = 0, [S] = view->dim[D], [D] = 1};
    return shape_elements(&ir_tensor(rw->graph, view->tensor)->shape, &total) &&
           (int64_t)total == all && view->offset == 0 && view_has_strides(view, strides);
}

/* How an operand is to be looked for. */
struct search {
    uint32_t tensor;
    bool turned;  /* its last two dimensions are swapped */
    bool scaled;  /* the search may go past a scale */
    bool no_rows; /* the operand must have its heads first */
};

static bool start(const struct rewrite *rw, const struct search *how, const int64_t dim[VIEW_RANK],
                  struct view *view)
{
    int64_t as[VIEW_RANK] = {dim[N], dim[H], dim[R], dim[S], dim[D]};
    if (how->turned) {
        as[S] = dim[D];
        as[D] = dim[S];
    }
    if (!view_init(rw, how->tensor, as, view))
        return false;
    if (how->turned) {
        int64_t s = view->stride[S];
        view->dim[S] = dim[S];
        view->dim[D] = dim[D];
        view->stride[S] = view->stride[D];
        view->stride[D] = s;
    }
    return true;
}

/* Follows the operand back to the last place where it lies in rows; or if there is none, with its
 * heads first. */
static bool find_operand(const struct rewrite *rw, const struct search *how,
                         const int64_t dim[VIEW_RANK], struct attention_operand *out)
{
    struct view view;
    if (!start(rw, how, dim, &view))
        return false;
    bool past = false;
    *out = (struct attention_operand){.form = ATTENTION_TURNED, .view = view};
    for (int step = 0; step < STEPS_MAX && (how->scaled || view.scale == 1); step++) {
        int64_t row;
        if (!how->no_rows && is_in_rows(rw, &view, false, &row))
            *out = (struct attention_operand){ATTENTION_ROWS, view, row, past};
        else if (!how->no_rows && dim[N] > 1 && is_in_rows(rw, &view, true, &row) &&
                 is_crossed_product(rw, view.tensor, dim[S], dim[N]))
            *out = (struct attention_operand){ATTENTION_CROSSED, view, row, past};
        else if (out->form < ATTENTION_ROWS && is_heads_first(rw, &view))
            *out = (struct attention_operand){ATTENTION_HEADS, view, 0, past};
        past = past || rw_made_by(rw, view.tensor, IR_OP_TRANSPOSE) != IR_NONE;
        if (!view_back(rw, &view))
            break;
    }
    return out->form != ATTENTION_TURNED || dim[R] == 1;
}

/* How often a node on the way back to where the tensor comes from repeats it. */
static int64_t repeats_of(const struct rewrite *rw, uint32_t tensor)
{
    size_t n, from;
    if (!shape_elements(&ir_tensor(rw->graph, tensor)->shape, &n))
        return 1;
    for (int step = 0; step < STEPS_MAX; step++) {
        uint32_t node = ir_tensor(rw->graph, tensor)->producer;
        if (node == IR_NONE)
            return 1;
        const struct ir_node *made = ir_node(rw->graph, node);
        if (made->op == IR_OP_EXPAND || made->op == IR_OP_TILE)
            return shape_elements(&ir_tensor(rw->graph, made->inputs[0])->shape, &from) && from
                       ? (int64_t)(n / from)
                       : 1;
        if (made->op != IR_OP_RESHAPE && made->op != IR_OP_TRANSPOSE)
            return 1;
        tensor = made->inputs[0];
    }
    return 1;
}

/* What all ways to divide the heads have in common. */
struct searches {
    struct search q, k, v;
    int64_t k_batches, v_batches; /* as the products have them */
    int64_t last;                 /* the dimension that counts heads, where there is one */
    bool one_head;                /* keys and values have one head, and are the same for all */
    int64_t repeats;              /* found before keys and before values */
};

/* Finds keys or values of H / repeats heads. */
static bool find_shared(const struct rewrite *rw, const struct attention *a,
                        const struct search *how, int64_t repeats, int64_t dim,
                        struct attention_operand *out)
{
    const int64_t dims[VIEW_RANK] = {a->batches, a->heads / repeats, repeats, a->keys, dim};
    return find_operand(rw, how, dims, out);
}

/* How good it is to read an operand so. */
static int worth(const struct attention_operand *operand)
{
    static const int worths[] = {[ATTENTION_ROWS] = 4, [ATTENTION_CROSSED] = WORTH_MAX};
    if (operand->form < ATTENTION_ROWS)
        return 0;
    return worths[operand->form] + (operand->form == ATTENTION_ROWS && operand->spares);
}

/* Tries one way to divide the heads. Gives what its operands are worth; -1: it does not fit. */
static int try_split(const struct rewrite *rw, struct attention *a, const struct searches *s,
                     int64_t batches, int64_t heads)
{
    const int64_t q_dims[VIEW_RANK] = {batches, heads, 1, a->queries, a->dim};
    a->batches = batches;
    a->heads = heads;
    a->repeats = s->repeats;
    if (!find_operand(rw, &s->q, q_dims, &a->q))
        return -1;
    if (s->one_head && heads == s->last) {
        const int64_t k[VIEW_RANK] = {batches, 1, 1, a->keys, a->dim};
        const int64_t v[VIEW_RANK] = {batches, 1, 1, a->keys, a->out_dim};
        a->repeats = heads;
        if (!find_operand(rw, &s->k, k, &a->k) || !find_operand(rw, &s->v, v, &a->v))
            return -1;
    } else if (s->k_batches != batches * heads || s->v_batches != batches * heads) {
        return -1;
    } else if (heads % a->repeats || !find_shared(rw, a, &s->k, a->repeats, a->dim, &a->k) ||
               !find_shared(rw, a, &s->v, a->repeats, a->out_dim, &a->v)) {
        a->repeats = 1;
        if (!find_shared(rw, a, &s->k, 1, a->dim, &a->k) ||
            !find_shared(rw, a, &s->v, 1, a->out_dim, &a->v))
            return -1;
    }
    for (uint32_t i = 0; i < a->n_terms; i++)
        if (!attention_fits_heads(rw, a, a->terms[i].tensor, &a->terms[i].scores))
            return -1;
    if (a->factor != IR_NONE && !attention_fits_heads(rw, a, a->factor, &a->factor_scores))
        return -1;
    return worth(&a->q) + worth(&a->k) + worth(&a->v);
}

/* The first way is as the products have it; a product of rank 3 does not say. */
static const char *split_heads(const struct rewrite *rw, struct attention *a,
                               const struct searches *s)
{
    const struct ir_node *product = ir_node(rw->graph, a->scores_node);
    const struct shape *shape = &ir_tensor(rw->graph, product->outputs[0])->shape;
    int64_t all = batches_of(shape);
    struct attention best = *a, one;
    int most = -1;
    for (int64_t i = 0, heads = s->last; i <= MIN(all, BATCHES_MAX) && most < 3 * WORTH_MAX;
         heads = ++i) {
        if (all % heads || (i > 0 && i < all && shape->rank != 3))
            continue;
        one = *a;
        int worth_now = try_split(rw, &one, s, all / heads, heads);
        if (worth_now > most) {
            most = worth_now;
            best = one;
        }
    }
    *a = best;
    return most >= 0 ? NULL : "an operand broadcasts, or its mask does in another way than heads";
}

/* Says whether an operand has one head where the scores have several, and the same batches. */
static bool has_one_head(const struct shape *operand, const struct shape *scores)
{
    uint32_t rank = scores->rank;
    return rank > 2 && operand->rank == rank && operand->dim[rank - 3] == 1 &&
           scores->dim[rank - 3] > 1 &&
           batches_of(operand) == batches_of(scores) / scores->dim[rank - 3];
}

/* Reads the sizes of both products. */
static const char *read_products(const struct rewrite *rw, struct attention *a, struct searches *s)
{
    const struct ir_node *scores = ir_node(rw->graph, a->scores_node);
    const struct ir_node *values = ir_node(rw->graph, a->values_node);
    bool v_trans = ir_attr_int(values, a->mirrored ? IR_ATTR_TRANS_A : IR_ATTR_TRANS_B);
    const struct shape *out = &ir_tensor(rw->graph, values->outputs[0])->shape;
    const struct shape *to = &ir_tensor(rw->graph, scores->outputs[0])->shape;
    const struct shape *q = &ir_tensor(rw->graph, scores->inputs[0])->shape;
    s->q = (struct search){scores->inputs[0], ir_attr_int(scores, IR_ATTR_TRANS_A), true,
                           a->factor != IR_NONE};
    s->k = (struct search){scores->inputs[1], !ir_attr_int(scores, IR_ATTR_TRANS_B), true, false};
    s->v = (struct search){values->inputs[!a->mirrored], a->mirrored ? !v_trans : v_trans, false,
                           false};
    const struct shape *k = &ir_tensor(rw->graph, s->k.tensor)->shape;
    const struct shape *v = &ir_tensor(rw->graph, s->v.tensor)->shape;
    if (q->rank < 2 || k->rank < 2 || v->rank < 2 || to->rank < 2 || out->rank < 2)
        return "an operand is a vector";
    a->queries = to->dim[to->rank - 2];
    a->keys = to->dim[to->rank - 1];
    a->dim = q->dim[q->rank - (s->q.turned ? 2 : 1)];
    a->out_dim = out->dim[out->rank - (a->mirrored ? 2 : 1)];
    if (a->dim > ATTENTION_COLUMNS_MAX || a->out_dim > ATTENTION_COLUMNS_MAX)
        return "a head has more columns than kernels take";
    s->k_batches = batches_of(k);
    s->v_batches = batches_of(v);
    if (batches_of(q) != batches_of(to) || batches_of(out) != batches_of(to))
        return "an operand broadcasts";
    s->last = to->rank > 2 ? to->dim[to->rank - 3] : 1;
    s->one_head = has_one_head(k, to) && has_one_head(v, out);
    s->repeats = repeats_of(rw, s->k.tensor);
    if (s->repeats != repeats_of(rw, s->v.tensor) || s->repeats < 1)
        s->repeats = 1;
    return NULL;
}

const char *attention_find_operands(const struct rewrite *rw, struct attention *a)
{
    struct searches s;
    const char *why = read_products(rw, a, &s);
    if (!why)
        why = split_heads(rw, a, &s);
    if (why)
        return why;
    a->scale *= a->q.view.scale * a->k.view.scale;
    return NULL;
}

bool attention_is_packed(const struct attention *a)
{
    int64_t kv = a->k.view.dim[H], q_size = a->heads * a->dim, kv_size = kv * a->dim;
    return a->q.form >= ATTENTION_ROWS && a->k.form == a->q.form && a->v.form == a->q.form &&
           a->k.view.tensor == a->q.view.tensor && a->v.view.tensor == a->q.view.tensor &&
           a->q.row == q_size + 2 * kv_size && a->out_dim == a->dim && a->keys == a->queries &&
           a->q.view.offset == 0 && a->k.view.offset == q_size &&
           a->v.view.offset == q_size + kv_size;
}

static uint32_t reshape(struct rewrite *rw, uint32_t tensor, uint32_t rank, const int64_t *dim,
                        const char *name)
{
    const struct shape *have = &ir_tensor(rw->graph, tensor)->shape;
    if (have->rank == rank && memcmp(have->dim, dim, rank * sizeof(*dim)) == 0)
        return tensor;
    return rw_add_reshape(rw, name, tensor, rank, dim);
}

uint32_t attention_make_rows(struct rewrite *rw, const struct attention_operand *operand,
                             const char *name)
{
    static const int64_t cross[3] = {1, 0, 2};
    bool crossed = operand->form == ATTENTION_CROSSED;
    const int64_t *dim = operand->view.dim;
    const int64_t shape[3] = {dim[crossed ? S : N], dim[crossed ? N : S], operand->row};
    uint32_t rows = reshape(rw, operand->view.tensor, 3, shape, name);
    return crossed ? rw_add_transpose(rw, name, rows, 3, cross) : rows;
}

/* Makes rows and cuts off what does not belong to the heads. */
static uint32_t cut_rows(struct rewrite *rw, const struct attention_operand *operand,
                         const char *name)
{
    const struct view *view = &operand->view;
    int64_t size = view->dim[H] * view->dim[D];
    uint32_t rows = attention_make_rows(rw, operand, name);
    if (rows == IR_NONE || operand->row == size)
        return rows;
    const int64_t starts[3] = {0, 0, view->offset}, steps[3] = {1, 1, 1};
    const int64_t ends[3] = {view->dim[N], view->dim[S], view->offset + size};
    uint32_t node = rw_add_node(rw, IR_OP_SLICE, name, 1, &rows);
    rw_set_ints(rw, node, IR_ATTR_STARTS, 3, starts);
    rw_set_ints(rw, node, IR_ATTR_ENDS, 3, ends);
    rw_set_ints(rw, node, IR_ATTR_STEPS, 3, steps);
    return rw_finish(rw, node);
}

/* Multiplies the queries, instead of their scores. */
static uint32_t multiply(struct rewrite *rw, const struct attention *a, uint32_t queries,
                         const char *name)
{
    uint32_t factor = attention_to_heads(rw, a, a->factor, &a->factor_scores, name);
    const uint32_t inputs[2] = {queries, factor};
    if (rw->status)
        return IR_NONE;
    uint32_t node = rw_add_node(rw, IR_OP_BINARY, name, 2, inputs);
    rw_set_int(rw, node, IR_ATTR_FUNC, IR_BINARY_MUL);
    return rw_finish(rw, node);
}

uint32_t attention_make_operand(struct rewrite *rw, const struct attention *a,
                                const struct attention_operand *operand, const char *name)
{
    static const int64_t turn[4] = {0, 1, 3, 2};
    const int64_t *dim = operand->view.dim;
    bool turned = operand->form == ATTENTION_TURNED;
    if (operand->form >= ATTENTION_ROWS)
        return cut_rows(rw, operand, name);
    const int64_t shape[4] = {dim[N], dim[H], dim[turned ? D : S], dim[turned ? S : D]};
    uint32_t made = reshape(rw, operand->view.tensor, 4, shape, name);
    if (turned)
        made = rw_add_transpose(rw, name, made, 4, turn);
    if (made != IR_NONE && operand == &a->q && a->factor != IR_NONE)
        made = multiply(rw, a, made, name);
    return made;
}
