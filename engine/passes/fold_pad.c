/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Zero padding before a convolution becomes the convolution's own. The same holds before an average
 * pooling that counts its padding, or that has none: it then counts padding from now on.
 */
#include "engine/passes/rewrite.h"

enum { PAD_LIMIT = 1 << 20 }; /* what type inference accepts */

/* Adds the padding node's pads of spatial dimensions to `pads`; false if it does not qualify. */
static bool add_pads(const struct ir_node *pad, const struct ir_node *window, uint32_t rank,
                     int64_t *pads)
{
    uint32_t n = rank - 2;
    if (ir_attr_int(pad, IR_ATTR_MODE) != IR_PAD_CONSTANT || ir_attr_float(pad, IR_ATTR_VALUE) != 0)
        return false;
    for (uint32_t i = 0; i < rank; i++) {
        int64_t before = ir_attr_at(pad, IR_ATTR_PADS, i);
        int64_t after = ir_attr_at(pad, IR_ATTR_PADS, rank + i);
        if (i < 2 ? before || after : before < 0 || after < 0)
            return false;
        if (i < 2)
            continue;
        pads[i - 2] = ir_attr_at(window, IR_ATTR_PADS, i - 2) + before;
        pads[n + i - 2] = ir_attr_at(window, IR_ATTR_PADS, n + i - 2) + after;
        if (pads[i - 2] > PAD_LIMIT || pads[n + i - 2] > PAD_LIMIT)
            return false;
    }
    return true;
}

static bool counts_padding(const struct ir_node *pool)
{
    const struct ir_attr *pads = ir_attr(pool, IR_ATTR_PADS);
    bool none = true;
    for (uint32_t i = 0; pads && i < pads->count; i++)
        none = none && pads->i[i] == 0;
    return ir_attr_int(pool, IR_ATTR_FUNC) == IR_POOL_AVERAGE &&
           !ir_attr_int(pool, IR_ATTR_CEIL_MODE) &&
           (none || ir_attr_int(pool, IR_ATTR_COUNT_INCLUDE_PAD));
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    if (n->op != IR_OP_CONV && n->op != IR_OP_POOL)
        return;
    uint32_t pad = rw_made_by(rw, n->inputs[0], IR_OP_PAD);
    if (pad == IR_NONE)
        return;
    const struct ir_node *p = ir_node(rw->graph, pad);
    uint32_t rank = ir_tensor(rw->graph, n->inputs[0])->shape.rank;
    int64_t pads[2 * SHAPE_MAX_RANK];
    if ((n->op == IR_OP_POOL && !counts_padding(n)) || !add_pads(p, n, rank, pads)) {
        rw_near_miss(rw, "%s: the padding of %s cannot be its own", n->name, p->name);
        return;
    }
    if (n->op == IR_OP_POOL)
        rw_set_int(rw, node, IR_ATTR_COUNT_INCLUDE_PAD, 1);
    rw_set_ints(rw, node, IR_ATTR_PADS, 2 * (rank - 2), pads);
    rw_done(rw, "%s + %s", p->name, n->name);
    rw_set_name(rw, node, p->name, n->name);
    rw_set_input(rw, node, 0, rw_input(rw, pad, 0));
}

PASS(fold_pad)
{
    return rewrite_run(graph, ctx, visit, err);
}
