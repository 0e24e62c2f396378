/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What language models begin with: the rows of words, of types and of positions, summed up, become
 * one node:
 *
 *   y = words[ids] + types[which] + positions
 *
 * The tables are constants, and each gather has no other reader. Any other operand that has y's
 * rows, once or for all of the batch, is summed up as it is; positions that no request changes are
 * constants by now. The sum keeps its order: only the first two operands may change places. Of more
 * than three operands, each node takes what the node before it has made.
 */
#include "engine/passes/constant.h"
#include "engine/passes/host.h"

enum { TABLES = IR_EMBED_TABLES };

/* What the new node is made of. */
struct parts {
    uint32_t n;
    uint32_t in[2 * TABLES]; /* as the node has them */
};

static const struct shape *shape_of(const struct rewrite *rw, uint32_t tensor)
{
    return &ir_tensor(rw->graph, tensor)->shape;
}

static int64_t width_of(const struct shape *shape)
{
    return shape->rank ? shape->dim[shape->rank - 1] : 0;
}

/* The gather of rows of a constant table that makes the tensor for one reader, or IR_NONE. */
static uint32_t find_gather(const struct rewrite *rw, uint32_t tensor)
{
    uint32_t node = rw_made_by(rw, tensor, IR_OP_GATHER);
    if (node == IR_NONE || rw_uses(rw, tensor) != 1 ||
        ir_attr_int(ir_node(rw->graph, node), IR_ATTR_AXIS) != 0)
        return IR_NONE;
    uint32_t table = rw_input(rw, node, 0);
    return constant_is_float(rw, table) && shape_of(rw, table)->rank == 2 ? node : IR_NONE;
}

static bool add_table(struct parts *p, uint32_t table, uint32_t ids)
{
    if (p->n == TABLES)
        return false;
    p->in[2 * p->n] = table;
    p->in[2 * p->n + 1] = ids;
    p->n++;
    return true;
}

static bool add_gather(const struct rewrite *rw, uint32_t tensor, struct parts *p)
{
    uint32_t node = find_gather(rw, tensor);
    return node != IR_NONE && add_table(p, rw_input(rw, node, 0), rw_input(rw, node, 1));
}

/* Takes what such a node sums up for one reader. */
static bool add_sum(const struct rewrite *rw, uint32_t tensor, struct parts *p)
{
    uint32_t sum = rw_made_by(rw, tensor, IR_OP_EMBED);
    if (sum == IR_NONE || rw_uses(rw, tensor) != 1)
        return false;
    const struct ir_node *n = ir_node(rw->graph, sum);
    for (uint32_t k = 0; k < ir_embed_count(n); k++)
        if (!add_table(p, ir_embed_table(n, k), ir_embed_ids(n, k)))
            return false;
    return true;
}

/* Whether a product makes the tensor, which takes the sum itself. */
static bool is_of_product(const struct rewrite *rw, uint32_t tensor)
{
    uint32_t node = ir_tensor(rw->graph, tensor)->producer;
    return node != IR_NONE && host_is_heavy(rw, node) && rw_uses(rw, tensor) == 1;
}

static bool add_other(const struct rewrite *rw, uint32_t tensor, const struct shape *y,
                      struct parts *p)
{
    if (width_of(shape_of(rw, tensor)) != width_of(y) || is_of_product(rw, tensor))
        return false;
    return find_gather(rw, tensor) == IR_NONE ? add_table(p, tensor, IR_NONE)
                                              : add_gather(rw, tensor, p);
}

/* The operands of a sum of two, or of more that have joined it, in their order. 0: it is none. */
static uint32_t operands_of(const struct ir_node *n, uint32_t *out)
{
    if (n->op != IR_OP_BINARY || ir_attr_int(n, IR_ATTR_FUNC) != IR_BINARY_ADD ||
        n->n_inputs > TABLES)
        return 0;
    for (uint32_t i = 0; i < n->n_epilogue; i++)
        if (n->epilogue[i].kind != IR_EPILOGUE_BINARY || n->epilogue[i].func != IR_BINARY_ADD)
            return 0;
    memcpy(out, n->inputs, n->n_inputs * sizeof(*out));
    return n->n_inputs;
}

/* Operand `first` says how many rows there are: a sum of this kind, or a gather. */
static bool collect(const struct rewrite *rw, const struct ir_node *n, uint32_t first, bool is_sum,
                    struct parts *p)
{
    uint32_t operands[TABLES], count = operands_of(n, operands);
    const struct shape *y = shape_of(rw, n->outputs[0]);
    p->n = 0;
    if (!count || !shape_equal(shape_of(rw, operands[first]), y) ||
        !(is_sum ? add_sum(rw, operands[first], p) : add_gather(rw, operands[first], p)))
        return false;
    for (uint32_t i = 0; i < count; i++)
        if (i != first && !add_other(rw, operands[i], y, p))
            return false;
    return true;
}

static void fuse(struct rewrite *rw, uint32_t node, uint32_t first, const struct parts *p)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    const char *name = n->name,
               *from = ir_node(rw->graph, ir_tensor(rw->graph, n->inputs[first])->producer)->name;
    uint32_t n_in = p->in[2 * p->n - 1] == IR_NONE ? 2 * p->n - 1 : 2 * p->n;
    const struct rewrite_fusion fusion = {
        .op = IR_OP_EMBED, .first = from, .second = name, .n_inputs = n_in, .inputs = p->in};
    if (!rw_is_taken(rw, &fusion)) {
        rw_near_miss(rw, "%s + %s: the device has no kernel for both", from, name);
        return;
    }
    rw_done(rw, "%s + %s: a sum of rows of tables", from, name);
    rw_become_fusion(rw, node, &fusion);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    struct parts p;
    if (n->op != IR_OP_BINARY || !rw_is_float(rw, n->outputs[0]))
        return;
    for (uint32_t i = 0; i < 4; i++)
        if (collect(rw, n, i % 2, i < 2, &p)) {
            fuse(rw, node, i % 2, &p);
            return;
        }
}

PASS(fuse_embed)
{
    return rewrite_run(graph, ctx, visit, err);
}
