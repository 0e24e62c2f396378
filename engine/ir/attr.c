/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes of a node: a short list, searched linearly. Setting one copies the list, so that a
 * list made by somebody else (a reader, with exactly n_attrs entries) is never written beyond.
 */
#include "engine/ir/ir.h"

#include <math.h>
#include <string.h>

enum { ATTR_COUNT_MAX = 64 }; /* values; the longest one in op.h has 2 * SHAPE_MAX_RANK */

const struct ir_attr *ir_attr(const struct ir_node *node, enum ir_attr_key key)
{
    for (uint32_t i = 0; i < node->n_attrs; i++)
        if (node->attrs[i].key == key)
            return &node->attrs[i];
    return NULL;
}

int64_t ir_attr_at(const struct ir_node *node, enum ir_attr_key key, uint32_t i, int64_t fallback)
{
    const struct ir_attr *attr = ir_attr(node, key);
    return attr && !attr->is_float && i < attr->count ? attr->i[i] : fallback;
}

int64_t ir_attr_int(const struct ir_node *node, enum ir_attr_key key, int64_t fallback)
{
    return ir_attr_at(node, key, 0, fallback);
}

float ir_attr_float(const struct ir_node *node, enum ir_attr_key key, float fallback)
{
    const struct ir_attr *attr = ir_attr(node, key);
    return attr && attr->is_float && attr->count ? attr->f[0] : fallback;
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

bool ir_attr_set_int(struct ir_graph *graph, uint32_t node, enum ir_attr_key key, int64_t value)
{
    return ir_attr_set_ints(graph, node, key, 1, &value);
}

bool ir_attr_set_float(struct ir_graph *graph, uint32_t node, enum ir_attr_key key, float value)
{
    return ir_attr_set_floats(graph, node, key, 1, &value);
}

/* Constants of the functions that have other defaults than zeros (op.h). */
static const struct {
    float alpha, beta, gamma;
} unary_defaults[IR_UNARY_COUNT_] = {
    [IR_UNARY_LEAKY_RELU] = {.alpha = 0.01F},
    [IR_UNARY_ELU] = {.alpha = 1},
    [IR_UNARY_SELU] = {.alpha = 1.67326319F, .gamma = 1.05070102F},
    [IR_UNARY_CELU] = {.alpha = 1},
    [IR_UNARY_HARD_SIGMOID] = {.alpha = 0.2F, .beta = 0.5F},
    [IR_UNARY_SWISH] = {.alpha = 1},
    [IR_UNARY_THRESHOLDED_RELU] = {.alpha = 1},
    [IR_UNARY_CLIP] = {.alpha = -INFINITY, .beta = INFINITY},
    [IR_UNARY_LINEAR] = {.alpha = 1},
    [IR_UNARY_IS_INF] = {.alpha = 1, .beta = 1},
    [IR_UNARY_SHRINK] = {.beta = 0.5F},
};

void ir_unary_constants(const struct ir_node *node, float *alpha, float *beta, float *gamma)
{
    int64_t func = ir_attr_int(node, IR_ATTR_FUNC, 0); /* in range: ir_infer_node */
    *alpha = ir_attr_float(node, IR_ATTR_ALPHA, unary_defaults[func].alpha);
    *beta = ir_attr_float(node, IR_ATTR_BETA, unary_defaults[func].beta);
    *gamma = ir_attr_float(node, IR_ATTR_GAMMA, unary_defaults[func].gamma);
}
