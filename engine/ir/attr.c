/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes of a node: a short list that is searched linearly. To set an attribute the list is
 * copied, because another list (a reader's, with exactly n_attrs entries) may have no room for it.
 */
#include "engine/ir/ir.h"

#include <math.h>
#include <string.h>

enum { ATTR_COUNT_MAX = 512 }; /* values: a plugin's words; others have 2 * SHAPE_MAX_RANK */

const struct ir_attr *ir_attr(const struct ir_node *node, enum ir_attr_key key)
{
    for (uint32_t i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].key == key)
            return &node->attrs[i];
    return NULL;
}

/* The default in the op's row; 0 if the op does not have the key (a damaged plan may ask). */
static double absent(const struct ir_node *node, enum ir_attr_key key)
{
    const struct ir_op_attr *row = ir_op_attr(node->op, key);
    return row ? row->fallback : 0;
}

int64_t ir_attr_at(const struct ir_node *node, enum ir_attr_key key, uint32_t i)
{
    const struct ir_attr *attr = ir_attr(node, key);
    return attr && !attr->is_float && i < attr->count ? attr->i[i] : (int64_t)absent(node, key);
}

int64_t ir_attr_int(const struct ir_node *node, enum ir_attr_key key)
{
    return ir_attr_at(node, key, 0);
}

float ir_attr_float(const struct ir_node *node, enum ir_attr_key key)
{
    const struct ir_attr *attr = ir_attr(node, key);
    return attr && attr->is_float && attr->count ? attr->f[0] : (float)absent(node, key);
}

static bool attr_put(struct ir_graph *graph, uint32_t node, const struct ir_attr *attr)
{
    struct ir_node *n = ir_node(graph, node);
    for (uint32_t i = 0; i < n->n_attrs; i++) {
        if (n->attrs[i].key == attr->key) {
            n->attrs[i] = *attr;
            return true;
        }
    }
    if (n->n_attrs >= IR_ATTR_COUNT_)
        return false;
    struct ir_attr *grown = arena_array(graph->arena, n->n_attrs + 1, sizeof(*grown));
    if (!grown)
        return false;
    if (n->n_attrs)
        memcpy(grown, n->attrs, n->n_attrs * sizeof(*grown));
    grown[n->n_attrs++] = *attr;
    n->attrs = grown;
    return true;
}

bool ir_attr_set_ints(struct ir_graph *graph, uint32_t node, enum ir_attr_key key, uint32_t count,
                      const int64_t *values)
{
    int64_t *copy =
        count <= ATTR_COUNT_MAX ? arena_array(graph->arena, count, sizeof(*copy)) : NULL;
    if (!copy)
        return false;
    if (count)
        memcpy(copy, values, count * sizeof(*copy));
    return attr_put(graph, node, &(struct ir_attr){.key = key, .count = count, .i = copy});
}

bool ir_attr_set_floats(struct ir_graph *graph, uint32_t node, enum ir_attr_key key, uint32_t count,
                        const float *values)
{
    float *copy = count <= ATTR_COUNT_MAX ? arena_array(graph->arena, count, sizeof(*copy)) : NULL;
    if (!copy)
        return false;
    if (count)
        memcpy(copy, values, count * sizeof(*copy));
    return attr_put(graph, node,
                    &(struct ir_attr){.key = key, .is_float = true, .count = count, .f = copy});
}

bool ir_attrs_copy(struct ir_graph *graph, uint32_t node, const struct ir_node *from)
{
    for (uint32_t i = 0; i < from->n_attrs; i++) {
        const struct ir_attr *a = &from->attrs[i];
        if (!(a->is_float ? ir_attr_set_floats(graph, node, a->key, a->count, a->f)
                          : ir_attr_set_ints(graph, node, a->key, a->count, a->i)))
            return false;
    }
    return true;
}

bool ir_attr_set_int(struct ir_graph *graph, uint32_t node, enum ir_attr_key key, int64_t value)
{
    return ir_attr_set_ints(graph, node, key, 1, &value);
}

bool ir_attr_set_float(struct ir_graph *graph, uint32_t node, enum ir_attr_key key, float value)
{
    return ir_attr_set_floats(graph, node, key, 1, &value);
}

void ir_unary_constants(const struct ir_node *node, float *alpha, float *beta, float *gamma)
{
    const struct ir_func_row *row = ir_unary_row((enum ir_unary)ir_attr_int(node, IR_ATTR_FUNC));
    *alpha = ir_attr(node, IR_ATTR_ALPHA) ? ir_attr_float(node, IR_ATTR_ALPHA) : row->alpha;
    *beta = ir_attr(node, IR_ATTR_BETA) ? ir_attr_float(node, IR_ATTR_BETA) : row->beta;
    *gamma = ir_attr(node, IR_ATTR_GAMMA) ? ir_attr_float(node, IR_ATTR_GAMMA) : row->gamma;
}
