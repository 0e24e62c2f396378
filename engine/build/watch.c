/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/build/watch.h"

/* Types of 16 bits, as a judge holds them. */
enum { HALVES = 1 << DTYPE_F16 | 1 << DTYPE_BF16 };

/* The tuner would look for other tactics of a node that is held back: these are not wanted. */
static void find_held(struct build_watch *w, const struct ir_graph *graph, uint32_t *held)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        if (node->op != w->op || !(held[i] & HALVES))
            continue;
        held[i] = 0;
        w->ended = true;
        if (w->held)
            w->held(w->user, node);
    }
}

static enum status begin(void *user, const struct ir_graph *graph, uint32_t *held,
                         struct error *err)
{
    struct build_watch *w = user;
    TRY(w->watched->begin(w->watched->user, graph, held, err));
    find_held(w, graph, held);
    return STATUS_OK;
}

static enum status look(void *user, const struct ir_graph *graph, const struct tune_layer *layers,
                        uint32_t *held, bool *again, struct error *err)
{
    struct build_watch *w = user;
    if (w->ended)
        return STATUS_OK;
    TRY(w->watched->look(w->watched->user, graph, layers, held, again, err));
    find_held(w, graph, held);
    *again = *again && !w->ended;
    return STATUS_OK;
}

void build_watch_init(struct build_watch *w, const struct tune_judge *watched, enum ir_op op,
                      void (*held)(void *user, const struct ir_node *node), void *user)
{
    *w = (struct build_watch){{begin, look, w}, watched, op, held, user, false};
}
