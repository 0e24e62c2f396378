/* SPDX-License-Identifier: Apache-2.0 */
/* Ops that pick or place elements by indices, and those of plugins: what they do along a dimension
 * whose places are others' requests (ALONG_APART; see along.h). Nothing is proved of padding: an
 * index behind the request may be out of range. */
#include "engine/build/along_internal.h"
#include "engine/ir/plugin_node.h"

static struct along_mark made_of(const struct along_mark *mark)
{
    return (struct along_mark){mark->on, mark->inner, along_made_of(mark->behind)};
}

/* Whether both operands have the same mark, or none, in these dimensions. */
static bool same_mark(const struct along_node *n, uint32_t a, uint32_t b, uint32_t d)
{
    const struct along_mark *x = &along_input(n, a)->mark[d], *y = &along_input(n, b)->mark[d];
    return x->on == y->on && (!x->on || x->inner == y->inner);
}

/* An index is a place along the axis alone, so all else stays where it is. */
bool along_rule_gather_elements(struct along_node *n)
{
    uint32_t axis = (uint32_t)ir_attr_int(n->large, IR_ATTR_AXIS);
    if (!along_is_apart(n) || along_input(n, 0)->mark[axis].on)
        return false;
    for (uint32_t d = 0; d < along_shape(n, 0)->rank; d++) {
        if (d != axis && !same_mark(n, 0, 1, d))
            return false;
        n->out[0]->mark[d] = made_of(&along_input(n, 1)->mark[d]);
    }
    return true;
}

bool along_rule_scatter_elements(struct along_node *n)
{
    uint32_t axis = (uint32_t)ir_attr_int(n->large, IR_ATTR_AXIS);
    if (!along_is_apart(n))
        return false;
    for (uint32_t d = 0; d < along_shape(n, 0)->rank; d++)
        if (!same_mark(n, 0, 1, d) || !same_mark(n, 0, 2, d) ||
            (d == axis && along_input(n, 0)->mark[d].on))
            return false;
    along_keep_marks(n, 0, 0);
    return true;
}

/* The first dimensions, as many as the attribute says, are those of both; what the indices are
 * places in has no marks. */
bool along_rule_gather_nd(struct along_node *n)
{
    const struct along_state *x = along_input(n, 0), *i = along_input(n, 1);
    uint32_t rank = along_shape(n, 0)->rank, last = along_shape(n, 1)->rank - 1;
    uint32_t both = (uint32_t)ir_attr_int(n->large, IR_ATTR_BATCH_DIMS);
    uint32_t behind = both + (uint32_t)along_shape(n, 1)->dim[last];
    if (!along_is_apart(n) || i->mark[last].on)
        return false;
    for (uint32_t d = 0; d < behind; d++)
        if (d < both ? !same_mark(n, 0, 1, d) : x->mark[d].on)
            return false;
    for (uint32_t d = 0; d < last; d++)
        n->out[0]->mark[d] = made_of(&i->mark[d]);
    for (uint32_t d = behind; d < rank; d++)
        n->out[0]->mark[last + d - behind] = made_of(&x->mark[d]);
    return true;
}

bool along_rule_one_hot(struct along_node *n)
{
    uint32_t axis = (uint32_t)ir_attr_int(n->large, IR_ATTR_AXIS);
    if (along_has_marks(n, 1))
        return false;
    for (uint32_t d = 0; d < along_shape(n, 0)->rank; d++)
        n->out[0]->mark[d < axis ? d : d + 1] = made_of(&along_input(n, 0)->mark[d]);
    return true;
}

/* PLUGIN: the op says whether rows, which are those of the first dimension, are an instance's own.
 * Operands that have no marks are shared. */
bool along_rule_plugin(struct along_node *n)
{
    if (!along_is_apart(n) || ir_plugin_mixes(n->proof->large, n->large))
        return false;
    for (uint32_t i = 0; i < n->n_inputs; i++)
        for (uint32_t d = 0; along_input(n, i) && d < along_shape(n, i)->rank; d++) {
            const struct along_mark *mark = &along_input(n, i)->mark[d];
            if (mark->on && (d > 0 || !along_is_plain(n, along_shape(n, i), mark, 0)))
                return false;
        }
    for (uint32_t o = 0; o < n->large->n_outputs; o++)
        n->out[o]->mark[0] = (struct along_mark){true, 1, along_of(ALONG_WILD)};
    return true;
}
