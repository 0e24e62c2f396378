/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A product between reshapes works on the tensor as it is. Exporters make a matrix of all rows for
 * a product by weights (Hugging Face's Conv1D, torch's addmm), and take it apart behind it:
 *
 *   reshape(product(reshape(x)))  becomes  product(x)
 *
 * if both reshapes keep the rows. What comes behind can then join the product. Other products may
 * stand between the first reshape and the last product: the reshape moves in front of them.
 */
#include "engine/passes/rewrite.h"

enum { PRODUCTS_MAX = 8 };

/* The product by a matrix that makes the tensor for this reader alone, whose rows may be shaped as
 * they like; or IR_NONE. */
static uint32_t find_product(const struct rewrite *rw, uint32_t tensor)
{
    uint32_t node = ir_tensor(rw->graph, tensor)->producer;
    if (node == IR_NONE || rw_uses(rw, tensor) != 1)
        return IR_NONE;
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op != IR_OP_MATMUL || ir_attr_int(n, IR_ATTR_TRANS_A) ||
        ir_tensor(rw->graph, n->inputs[1])->shape.rank != 2)
        return IR_NONE;
    for (uint32_t i = 0; i < n->n_epilogue; i++)
        if (n->epilogue[i].kind == IR_EPILOGUE_BINARY &&
            ir_tensor(rw->graph, n->inputs[n->epilogue[i].input])->shape.rank > 1)
            return IR_NONE;
    return node;
}

/* The shape of a matrix with these columns, if its rows are arranged as those of `rows`. */
static struct shape arranged(const struct shape *rows, int64_t columns)
{
    struct shape shape = *rows;
    shape.dim[shape.rank - 1] = columns;
    return shape;
}

static int64_t columns_of(const struct rewrite *rw, uint32_t tensor)
{
    const struct shape *shape = &ir_tensor(rw->graph, tensor)->shape;
    return shape->dim[shape->rank - 1];
}

/* Says whether the tensor, or the first operand of products that make it, is a reshape of a tensor
 * with these rows; a failed search tells in `*why` what is there instead. */
static bool comes_from(const struct rewrite *rw, uint32_t tensor, const struct shape *rows,
                       uint32_t *why)
{
    for (uint32_t i = 0; i < PRODUCTS_MAX; i++) {
        uint32_t reshape = rw_made_by(rw, tensor, IR_OP_RESHAPE);
        if (reshape != IR_NONE) {
            *why = rw_input(rw, reshape, 0);
            struct shape shape = arranged(rows, columns_of(rw, tensor));
            return shape_equal(&ir_tensor(rw->graph, *why)->shape, &shape);
        }
        uint32_t product = find_product(rw, tensor);
        if (product == IR_NONE)
            return false;
        tensor = rw_input(rw, product, 0);
    }
    return false;
}

static void visit(struct rewrite *rw, uint32_t node)
{
    if (ir_node(rw->graph, node)->op != IR_OP_RESHAPE)
        return;
    uint32_t y = rw_input(rw, node, 0), product = find_product(rw, y), why = IR_NONE;
    const struct shape rows = ir_tensor(rw->graph, rw_output(rw, node))->shape;
    if (product == IR_NONE || rows.rank < 2 || rows.dim[rows.rank - 1] != columns_of(rw, y))
        return;
    uint32_t a = rw_input(rw, product, 0);
    const char *name = ir_node(rw->graph, product)->name;
    if (!comes_from(rw, a, &rows, &why)) {
        if (why != IR_NONE)
            rw_near_miss(rw, "%s: %s has other rows than %s", name, ir_tensor(rw->graph, why)->name,
                         ir_tensor(rw->graph, rw_output(rw, node))->name);
        return;
    }
    struct shape shape = arranged(&rows, columns_of(rw, a));
    uint32_t reshape = rw_made_by(rw, a, IR_OP_RESHAPE);
    uint32_t x = reshape != IR_NONE
                     ? rw_input(rw, reshape, 0)
                     : rw_add_reshape(rw, ir_tensor(rw->graph, a)->name, a, shape.rank, shape.dim);
    if (x == IR_NONE)
        return;
    rw_done(rw, "%s works on rows as %s has them", name, ir_node(rw->graph, node)->name);
    rw_set_input(rw, product, 0, x);
    rw_absorb(rw, product, node);
}

PASS(reshape_matmul)
{
    return rewrite_run(graph, ctx, visit, err);
}
