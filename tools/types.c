/* SPDX-License-Identifier: Apache-2.0 */
#include "tools/types.h"

#include <stdio.h>

#include "base/compiler.h"

/* The tensor whose type counts: one with a scale, or the first of floats; outputs before inputs. */
static const struct ir_tensor *leader(const struct ir_graph *graph, const struct ir_node *node)
{
    const struct ir_tensor *best = NULL;
    for (uint32_t i = 0; i < node->n_outputs + node->n_inputs; i++) {
        uint32_t id = i < node->n_outputs ? node->outputs[i] : node->inputs[i - node->n_outputs];
        const struct ir_tensor *t = id == IR_NONE ? NULL : ir_tensor(graph, id);
        if (t && t->scale != IR_NO_SCALE)
            return t;
        if (t && !best && dtype_is_float(t->dtype))
            best = t;
    }
    return best ? best : ir_tensor(graph, node->outputs[0]);
}

enum dtype types_of_layer(const struct ir_graph *graph, const struct ir_node *node)
{
    return leader(graph, node)->dtype;
}

struct share {
    uint32_t layers;
    uint64_t ns;
};

/* The type with the most time (or layers) among those left; NONE: there is none left. */
static enum dtype largest(const struct share *shares)
{
    enum dtype best = DTYPE_NONE;
    for (int i = 1; i < DTYPE_COUNT_; i++) {
        const struct share *s = &shares[i], *b = &shares[best];
        if (s->layers &&
            (best == DTYPE_NONE || s->ns > b->ns || (s->ns == b->ns && s->layers > b->layers)))
            best = (enum dtype)i;
    }
    return best;
}

const char *types_format(const struct ir_graph *graph, char out[TYPES_TEXT_MAX])
{
    struct share shares[DTYPE_COUNT_] = {0};
    uint64_t sum = 0;
    size_t len = 0;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        const struct ir_tensor *t = leader(graph, node);
        enum dtype type = t->dtype;
        if (!node->tactic || (!dtype_is_float(type) && t->scale == IR_NO_SCALE))
            continue;
        shares[type].layers++;
        shares[type].ns += node->time_ns;
        sum += node->time_ns;
    }
    snprintf(out, TYPES_TEXT_MAX, "no floats");
    for (enum dtype type; (type = largest(shares)) != DTYPE_NONE && len < TYPES_TEXT_MAX;) {
        const struct share s = shares[type];
        char part[32] = "";
        if (sum)
            snprintf(part, sizeof(part), ", %.0f%%%s", 100 * (double)s.ns / (double)sum,
                     len ? "" : " of the time");
        int n = snprintf(out + len, TYPES_TEXT_MAX - len, "%s%s %u%s%s", len ? "; " : "",
                         dtype_name(type), s.layers,
                         len             ? ""
                         : s.layers == 1 ? " layer"
                                         : " layers",
                         part);
        len += n > 0 ? (size_t)n : 0;
        shares[type].layers = 0;
    }
    return out;
}
