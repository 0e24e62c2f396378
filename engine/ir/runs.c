/* SPDX-License-Identifier: Apache-2.0 */
/* Orders nodes by sides; see runs.h. */
#include "engine/ir/runs.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"

struct walk {
    const struct ir_graph *graph;
    const uint8_t *side;
    uint8_t *done;
    uint32_t *order, *run;
    uint32_t n, runs;
};

static bool is_ready(const struct walk *w, const struct ir_node *node)
{
    for (uint32_t k = 0; k < node->n_inputs; k++) {
        uint32_t tensor = node->inputs[k];
        uint32_t from = tensor == IR_NONE ? IR_NONE : ir_tensor(w->graph, tensor)->producer;
        if (from != IR_NONE && !w->done[from])
            return false;
    }
    return true;
}

/* Takes what may run on this side. The nodes stand in order, so one look at each is enough. */
static void take(struct walk *w, enum ir_side side)
{
    uint32_t first = w->n;
    bool any = false;
    for (uint32_t i = 0; i < w->graph->n_nodes; i++) {
        if (w->done[i] || (w->side[i] != side && w->side[i] != IR_SIDE_ANY) ||
            !is_ready(w, ir_node(w->graph, i)))
            continue;
        w->done[i] = 1;
        w->order[w->n++] = i;
        any = any || w->side[i] == side;
    }
    for (uint32_t i = first; i < w->n; i++)
        w->run[w->order[i]] = any || !w->runs ? w->runs : w->runs - 1;
    w->runs += any;
}

static void order_from(struct walk *w, enum ir_side side)
{
    memset(w->done, 0, w->graph->n_nodes);
    w->n = w->runs = 0;
    for (bool other = false; w->n < w->graph->n_nodes; other = !other)
        take(w, other ? (enum ir_side)(IR_SIDE_DEVICE + IR_SIDE_HOST - side) : side);
}

uint32_t ir_runs(const struct ir_graph *graph, const uint8_t *side, uint32_t *order, uint32_t *run)
{
    CLEANUP(cleanup_free) uint8_t *done = calloc((size_t)graph->n_nodes + 1, 1);
    struct walk w = {.graph = graph, .side = side, .done = done, .order = order, .run = run};
    if (!done)
        return UINT32_MAX;
    order_from(&w, IR_SIDE_HOST);
    uint32_t host_first = w.runs;
    order_from(&w, IR_SIDE_DEVICE);
    if (host_first < w.runs)
        order_from(&w, IR_SIDE_HOST);
    return w.runs;
}
