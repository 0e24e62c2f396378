/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes one node of attention's parts, for backends that have kernels for it:
 *
 *   softmax(a Q K' + mask) V, with the heads split before it and merged behind it
 *
 * The search starts from the node that merges the heads behind the second product. It looks for no
 * pattern in how queries, keys and values become [N,H,S,D]. Instead it follows them back as views
 * (view.h), until head h of row s of batch n lies at (n S + s) W + h D. All ways of splitting come
 * from there: from three products, or from slices or gathers of one. Scales on the way, such as the
 * square root of the scale on queries and on keys, become part of a.
 *
 * Left alone are scores or probabilities that other nodes read, or whose operands broadcast over
 * batch or heads, and heads whose dimensions come in another order (rotated by position, say).
 * Vaswani et al., "Attention Is All You Need", 2017.
 */
#include "engine/passes/match.h"
#include "engine/passes/view.h"

/* The dimensions of a view. */
enum { N, H, S, D };

/* How many nodes a search follows back. Nodes that move elements have been merged before as far as
 * they can be, and a longer row of them is not worth the time. */
enum { STEPS_MAX = 16 };

struct attention {
    struct match parts;
    uint32_t scores_node;        /* the product of queries and keys */
    uint32_t values_node;        /* the product with the values */
    uint32_t mask;               /* or IR_NONE */
    struct view q, k, v;         /* each [N,H,S,D] in a tensor of rows */
    int64_t q_row, k_row, v_row; /* the rows' widths */
    float scale;
};

/* Says whether the elements of a view lie in rows as expected; gives the rows' width. */
static bool is_in_rows(const struct rewrite *rw, const struct view *view, int64_t *row)
{
    size_t total;
    int64_t rows = view->dim[N] * view->dim[S], heads = view->dim[H] * view->dim[D];
    if (!shape_elements(&ir_tensor(rw->graph, view->tensor)->shape, &total) ||
        (int64_t)total % rows)
        return false;
    int64_t width = (int64_t)total / rows;
    const int64_t strides[VIEW_RANK] = {
        [N] = width * view->dim[S], [H] = view->dim[D], [S] = width, [D] = 1};
    *row = width;
    return view->offset + heads <= width && view_has_strides(view, strides);
}

/* Follows [N,H,S,D] (or, if `turned`, [N,H,D,S]) back as far as it lies in rows. Unless `scaled`,
 * it does not go past a scale. */
static bool find_rows(const struct rewrite *rw, uint32_t tensor, bool turned, bool scaled,
                      struct view *out, int64_t *row)
{
    const struct shape *shape = &ir_tensor(rw->graph, tensor)->shape;
    struct view view;
    bool found = false;
    if (shape->rank != VIEW_RANK || !view_init(rw, tensor, shape->dim, &view))
        return false;
    if (turned) {
        struct view same = view;
        view.dim[S] = same.dim[D];
        view.dim[D] = same.dim[S];
        view.stride[S] = same.stride[D];
        view.stride[D] = same.stride[S];
    }
    for (int step = 0; step < STEPS_MAX && (scaled || view.scale == 1); step++) {
        int64_t width;
        if (is_in_rows(rw, &view, &width)) {
            *out = view;
            *row = width;
            found = true;
        }
        if (!view_back(rw, &view))
            break;
    }
    return found;
}

/* The product without a bias that makes the scores [N,H,Sq,Sk]. If a single sum follows, `mask`
 * becomes the tensor that it adds. */
static uint32_t find_product(const struct rewrite *rw, uint32_t tensor, uint32_t *mask)
{
    uint32_t node = ir_tensor(rw->graph, tensor)->producer;
    if (node == IR_NONE || rw_uses(rw, tensor) != 1)
        return IR_NONE;
    const struct ir_node *n = ir_node(rw->graph, node);
    const struct ir_epilogue *step = &n->epilogue[0];
    if (n->op != IR_OP_MATMUL || n->n_epilogue > (*mask == IR_NONE ? 1 : 0) ||
        (ir_node_own_inputs(n) > 2 && n->inputs[2] != IR_NONE))
        return IR_NONE;
    if (n->n_epilogue) {
        if (step->kind != IR_EPILOGUE_BINARY || step->func != IR_BINARY_ADD)
            return IR_NONE;
        *mask = n->inputs[step->input];
    }
    return node;
}

/* Finds a Q K' + mask; the sum is a node, or a step of the product's epilogue. */
static bool find_scores(const struct rewrite *rw, struct attention *a, uint32_t tensor)
{
    const struct shape *shape = &ir_tensor(rw->graph, tensor)->shape;
    uint32_t add = rw_made_by_binary(rw, tensor, IR_BINARY_ADD);
    a->mask = IR_NONE;
    if (add == IR_NONE) {
        a->scores_node = find_product(rw, tensor, &a->mask);
        return match_part(&a->parts, a->scores_node);
    }
    match_part(&a->parts, add);
    for (uint32_t i = 0; i < 2 && rw_uses(rw, tensor) == 1; i++) {
        uint32_t scores = rw_input(rw, add, i);
        a->mask = rw_input(rw, add, 1 - i);
        a->scores_node = find_product(rw, scores, &a->mask);
        if (a->scores_node != IR_NONE && shape_equal(&ir_tensor(rw->graph, scores)->shape, shape))
            return match_part(&a->parts, a->scores_node);
    }
    return false;
}

/* Finds softmax(scores) V with the heads apart. */
static bool find_values(const struct rewrite *rw, struct attention *a, uint32_t tensor)
{
    uint32_t node = rw_made_by(rw, tensor, IR_OP_MATMUL);
    if (node == IR_NONE || ir_tensor(rw->graph, tensor)->shape.rank != VIEW_RANK ||
        rw_made_by(rw, rw_input(rw, node, 0), IR_OP_SOFTMAX) == IR_NONE)
        return false;
    a->values_node = node;
    return true;
}

/* Says whether the tensor, read as [N,Sq,H,E], is the product's [N,H,Sq,E] transposed. */
static bool find_merged(const struct rewrite *rw, struct attention *a, uint32_t tensor)
{
    struct view view;
    uint32_t at = tensor;
    for (int step = 0; step < STEPS_MAX; step++) { /* until the product's dimensions are known */
        uint32_t node = rw_made_by(rw, at, IR_OP_RESHAPE);
        if (node == IR_NONE)
            node = rw_made_by(rw, at, IR_OP_TRANSPOSE);
        if (node == IR_NONE)
            break;
        at = rw_input(rw, node, 0);
        if (rw_uses(rw, at) != 1)
            return false;
    }
    if (!rw_is_float(rw, at) || !find_values(rw, a, at))
        return false;
    const int64_t *dim = ir_tensor(rw->graph, at)->shape.dim;
    const int64_t merged[VIEW_RANK] = {dim[N], dim[S], dim[H], dim[D]};
    if (!view_init(rw, tensor, merged, &view))
        return false;
    while (view.tensor != at)
        if (!view_back(rw, &view))
            return false;
    const int64_t strides[VIEW_RANK] = {dim[H] * dim[S] * dim[D], dim[D], dim[S] * dim[D], 1};
    return view.offset == 0 && view_has_strides(&view, strides);
}

static const char *check_softmax(const struct rewrite *rw, const struct attention *a)
{
    const struct ir_node *product = ir_node(rw->graph, a->values_node);
    uint32_t p = product->inputs[0], softmax = rw_made_by(rw, p, IR_OP_SOFTMAX);
    if (rw_uses(rw, p) != 1)
        return "the probabilities have other readers";
    if (ir_attr_int(ir_node(rw->graph, softmax), IR_ATTR_AXIS) != VIEW_RANK - 1 ||
        ir_attr_int(ir_node(rw->graph, softmax), IR_ATTR_LOG))
        return "its softmax is not over the keys";
    if (ir_attr_int(product, IR_ATTR_TRANS_A) || ir_attr_float(product, IR_ATTR_ALPHA) != 1 ||
        rw_input(rw, a->values_node, 2) != IR_NONE)
        return "the product with the values is scaled, transposed or has a bias";
    return NULL;
}

/* Finds all three operands in rows, with dimensions that fit one attention. */
static const char *find_operands(const struct rewrite *rw, struct attention *a)
{
    const struct ir_node *scores = ir_node(rw->graph, a->scores_node);
    const struct ir_node *values = ir_node(rw->graph, a->values_node);
    bool q_turned = ir_attr_int(scores, IR_ATTR_TRANS_A);
    bool k_turned = !ir_attr_int(scores, IR_ATTR_TRANS_B);
    bool v_turned = ir_attr_int(values, IR_ATTR_TRANS_B);
    if (!find_rows(rw, scores->inputs[0], q_turned, true, &a->q, &a->q_row))
        return "the queries are not split from rows";
    if (!find_rows(rw, scores->inputs[1], k_turned, true, &a->k, &a->k_row))
        return "the keys are not split from rows";
    if (!find_rows(rw, values->inputs[1], v_turned, false, &a->v, &a->v_row))
        return "the values are not split from rows";
    for (int i = N; i <= H; i++)
        if (a->k.dim[i] != a->q.dim[i] || a->v.dim[i] != a->q.dim[i])
            return "an operand broadcasts";
    a->scale = ir_attr_float(scores, IR_ATTR_ALPHA) * a->q.scale * a->k.scale;
    return NULL;
}

/* Says whether each row of one tensor holds query, key and value behind one another. */
static bool is_packed(const struct attention *a)
{
    int64_t size = a->q.dim[H] * a->q.dim[D];
    return a->k.tensor == a->q.tensor && a->v.tensor == a->q.tensor && a->q_row == 3 * size &&
           a->v.dim[D] == a->q.dim[D] && a->k.dim[S] == a->q.dim[S] && a->q.offset == 0 &&
           a->k.offset == size && a->v.offset == 2 * size;
}

/* Reshapes the view's tensor to rank 3: its rows. */
static uint32_t make_rows(struct rewrite *rw, const struct view *view, int64_t row,
                          const char *name)
{
    const int64_t shape[3] = {view->dim[N], view->dim[S], row};
    const struct shape *have = &ir_tensor(rw->graph, view->tensor)->shape;
    if (have->rank == 3 && have->dim[0] == shape[0] && have->dim[1] == shape[1])
        return view->tensor;
    uint32_t node = rw_add_node(rw, IR_OP_RESHAPE, name, 1, &view->tensor);
    rw_set_ints(rw, node, IR_ATTR_SHAPE, 3, shape);
    return rw_finish(rw, node);
}

/* Does the same, and cuts off what does not belong to the heads. */
static uint32_t make_operand(struct rewrite *rw, const struct view *view, int64_t row,
                             const char *name)
{
    int64_t size = view->dim[H] * view->dim[D];
    uint32_t rows = make_rows(rw, view, row, name);
    if (rows == IR_NONE || row == size)
        return rows;
    const int64_t starts[3] = {0, 0, view->offset}, steps[3] = {1, 1, 1};
    const int64_t ends[3] = {view->dim[N], view->dim[S], view->offset + size};
    uint32_t node = rw_add_node(rw, IR_OP_SLICE, name, 1, &rows);
    rw_set_ints(rw, node, IR_ATTR_STARTS, 3, starts);
    rw_set_ints(rw, node, IR_ATTR_ENDS, 3, ends);
    rw_set_ints(rw, node, IR_ATTR_STEPS, 3, steps);
    return rw_finish(rw, node);
}

/* Makes the attention with its output, [N,Sq,H*E]. */
static uint32_t make_attention(struct rewrite *rw, struct attention *a, bool packed)
{
    const char *name = ir_node(rw->graph, a->values_node)->name;
    uint32_t inputs[4] = {IR_NONE, IR_NONE, IR_NONE, a->mask};
    if (packed) {
        inputs[0] = make_rows(rw, &a->q, a->q_row, name);
    } else {
        inputs[0] = make_operand(rw, &a->q, a->q_row, name);
        inputs[1] = make_operand(rw, &a->k, a->k_row, name);
        inputs[2] = make_operand(rw, &a->v, a->v_row, name);
    }
    if (rw->status)
        return IR_NONE;
    uint32_t n = a->mask != IR_NONE ? 4 : packed ? 1 : 3;
    uint32_t node = rw_add_node(rw, IR_OP_ATTENTION, name, n, inputs);
    rw_set_int(rw, node, IR_ATTR_HEADS, a->q.dim[H]);
    rw_set_float(rw, node, IR_ATTR_ALPHA, a->scale);
    rw_set_int(rw, node, IR_ATTR_PACKED, packed);
    uint32_t y = rw_finish(rw, node);
    if (y != IR_NONE)
        match_done(rw, &a->parts, node, packed ? "attention, packed" : "attention");
    return y;
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    struct attention a = {.scale = 1};
    if ((n->op != IR_OP_RESHAPE && n->op != IR_OP_TRANSPOSE) || !find_merged(rw, &a, n->outputs[0]))
        return;
    const char *why = check_softmax(rw, &a);
    uint32_t softmax = rw_made_by(rw, rw_input(rw, a.values_node, 0), IR_OP_SOFTMAX);
    if (!why && !find_scores(rw, &a, rw_input(rw, softmax, 0)))
        why = "its scores are no product, with at most one sum, for it alone";
    if (!why)
        why = find_operands(rw, &a);
    if (why) {
        rw_near_miss(rw, "%s: %s", ir_node(rw->graph, a.values_node)->name, why);
        return;
    }
    match_part(&a.parts, softmax);
    match_part(&a.parts, a.values_node);
    uint32_t y = make_attention(rw, &a, is_packed(&a));
    if (y == IR_NONE)
        return;
    struct shape shape = ir_tensor(rw->graph, rw_output(rw, node))->shape;
    rw_become(rw, node, IR_OP_RESHAPE, 1, &y);
    rw_set_ints(rw, node, IR_ATTR_SHAPE, shape.rank, shape.dim);
}

PASS(fuse_attention)
{
    if (!ctx->attention)
        return STATUS_OK;
    return rewrite_run(graph, ctx, visit, err);
}
