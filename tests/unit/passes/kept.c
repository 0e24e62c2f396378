/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/unit/passes/kept.h"

#include <string.h>

struct ways {
    uint32_t n[KEPT_BY_ANY + 1];
};

static enum status count_ways(void *user, const struct tactic *tactic, struct error *err)
{
    struct ways *ways = user;
    (void)err;
    ways->n[KEPT_BY_ONEDNN] += strncmp(tactic->name, "onednn", 6) == 0;
    ways->n[KEPT_BY_ANY] += strncmp(tactic->name, "reference", 9) != 0;
    return STATUS_OK;
}

static enum status list_ways(struct device *device, const struct ir_graph *graph,
                             const struct ir_node *node, struct ways *ways, struct error *err)
{
    return backend_cpu.candidates(device, graph, node, PRECISION_F32, count_ways, ways, err);
}

enum status kept_check(struct device *device, const struct ir_graph *graph, enum kept_by by,
                       uint32_t *fused, struct error *err)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        struct ways bare_ways = {{0}}, ways = {{0}};
        struct ir_node bare = *node;
        if (!node->n_epilogue)
            continue;
        bare.n_inputs = ir_node_own_inputs(node);
        bare.n_epilogue = 0;
        TRY(list_ways(device, graph, &bare, &bare_ways, err));
        TRY(list_ways(device, graph, node, &ways, err));
        if (bare_ways.n[by] && !ways.n[by])
            return error_set(err, STATUS_INTERNAL, "'%s' has lost its kernel", node->name);
        *fused += 1;
    }
    return STATUS_OK;
}
