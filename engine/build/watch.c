/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/build/watch.h"

/* The types without which no kernel runs the fusion, as a judge holds them: those of 16 bits.
 * CONV_CHAIN has kernels for 8 bits alone, so whatever holds it back does. */
static uint32_t types_of(enum ir_op op)
{
    return op == IR_OP_CONV_CHAIN ? UINT32_MAX : 1U << DTYPE_F16 | 1U << DTYPE_BF16;
}

/* The tuner would look for other tactics of a node that is held back: these are not wanted. */
static void find_held(struct build_watch *w, const struct ir_graph *graph, uint32_t *held)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        if (!(w->ops & WATCH_OP(node->op)) || !(held[i] & types_of(node->op)))
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

void build_watch_init(struct build_watch *w, const struct tune_judge *watched, uint64_t ops,
                      void (*held)(void *user, const struct ir_node *node), void *user)
{
    *w = (struct build_watch){{begin, look, w}, watched, ops, held, user, false};
}
