/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Puts nodes into an order in which they may run. ONNX demands such an order of files, but some
 * exporters do not keep it.
 *
 * A node needs the nodes that write its inputs, and those that write what graphs within it read
 * from outside. One walk over all graphs finds these needs. Each name that a node reads is looked
 * up in its graph, then in the graphs around it. In the graph where a node writes the name, the
 * need is noted for the reader, or for the node that the reader lies in. The time is linear in the
 * file, times the depth to which graphs are nested.
 */
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/import/model.h"
#include "engine/ir/sort.h"

#define HASH_FUNCTION(key, len, hash) ((hash) = hash_fnv1a((key), (len)))
#include "base/hash.h"

/* A name, and the node that writes it. */
struct writer {
    const char *name;
    uint32_t node; /* SORT_NONE: the name is there before any node */
    UT_hash_handle hh;
};

/* A graph that is being walked. */
struct level {
    struct onnx_model *model;
    struct onnx_graph *graph;
    struct level *outer;
    struct writer *writers, *room; /* the node that reads; SORT_NONE: the graph itself */
    uint32_t n_room;
    uint32_t at; /* the node that reads at the moment; SORT_NONE: the graph itself reads */
    uint32_t *first, *needs; /* node i needs needs[first[i] .. first[i + 1]) */
    uint32_t n_needs, cap;
    uint32_t *order;
};

static void level_deinit(struct level *l)
{
    HASH_CLEAR(hh, l->writers);
    free(l->room);
    free(l->first);
    free(l->needs);
    free(l->order);
}

/* Ignores a name that is written twice: the importer reports it. */
static enum status add_writer(struct level *l, const char *name, uint32_t node, struct error *err)
{
    struct writer *w = NULL;
    if (*name)
        HASH_FIND_STR(l->writers, name, w);
    if (!*name || w)
        return STATUS_OK;
    w = &l->room[l->n_room++];
    *w = (struct writer){.name = name, .node = node};
    HASH_ADD_KEYPTR(hh, l->writers, w->name, strlen(w->name), w);
    return HASH_ADDED(w) ? STATUS_OK : error_no_memory(err, "sorting a model");
}

/* Adds the names that a graph writes. The model's own inputs and initializers are left out, because
 * a name that is not found counts as there before all nodes. Those of an inner graph are added,
 * because they hide names of the graphs around it. */
static enum status add_writers(struct level *l, struct error *err)
{
    const struct onnx_graph *g = l->graph;
    size_t n = (size_t)g->n_inputs + g->n_initializers + 1;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        n += g->nodes[i].n_outputs;
    l->room = calloc(n, sizeof(*l->room));
    if (!l->room)
        return error_no_memory(err, "sorting a model");
    for (uint32_t i = 0; i < g->n_inputs && l->outer; i++)
        TRY(add_writer(l, g->inputs[i].name, SORT_NONE, err));
    for (uint32_t i = 0; i < g->n_initializers && l->outer; i++)
        TRY(add_writer(l, g->initializers[i].name, SORT_NONE, err));
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_outputs; k++)
            TRY(add_writer(l, g->nodes[i].outputs[k], i, err));
    return STATUS_OK;
}

static enum status add_need(struct level *l, const char *name, struct error *err)
{
    struct writer *w = NULL;
    for (; l && *name; l = l->outer) {
        HASH_FIND_STR(l->writers, name, w);
        if (w)
            break;
    }
    if (!w || w->node == SORT_NONE || l->at == SORT_NONE)
        return STATUS_OK;
    if (l->n_needs == l->cap) {
        uint32_t cap = l->cap ? 2 * l->cap : 64;
        uint32_t *more = realloc(l->needs, cap * sizeof(*more));
        if (!more)
            return error_no_memory(err, "sorting a model");
        l->needs = more;
        l->cap = cap;
    }
    l->needs[l->n_needs++] = w->node;
    return STATUS_OK;
}

static uint32_t need_of(const void *user, uint32_t node, uint32_t k)
{
    const struct level *l = user;
    return k < l->first[node + 1] - l->first[node] ? l->needs[l->first[node] + k] : SORT_END;
}

static enum status place(struct level *l, struct error *err)
{
    struct onnx_graph *g = l->graph;
    uint32_t through = SORT_NONE;
    bool moves = false;
    enum status status = sort_by_need(g->n_nodes, need_of, l, l->order, &through, err);
    if (through != SORT_NONE)
        return error_set(err, status, "graph '%s': a cycle through node %u, %s '%s'", g->name,
                         through, g->nodes[through].op, g->nodes[through].name);
    TRY(status);
    for (uint32_t i = 0; i < g->n_nodes; i++)
        moves = moves || l->order[i] != i;
    if (!moves)
        return STATUS_OK;
    struct onnx_node *sorted = arena_array(l->model->arena, g->n_nodes, sizeof(*sorted));
    if (!sorted)
        return error_no_memory(err, "sorting a model");
    for (uint32_t i = 0; i < g->n_nodes; i++)
        sorted[i] = g->nodes[l->order[i]];
    g->nodes = sorted;
    l->model->reordered = true;
    return STATUS_OK;
}

static enum status sort_graph(struct onnx_model *model, struct onnx_graph *graph,
                              struct level *outer, struct error *err);

static enum status add_needs(struct level *l, const struct onnx_node *node, struct error *err)
{
    for (uint32_t k = 0; k < node->n_inputs; k++)
        TRY(add_need(l, node->inputs[k], err));
    for (uint32_t k = 0; k < node->n_attrs; k++)
        if (node->attrs[k].graph)
            TRY(sort_graph(l->model, node->attrs[k].graph, l, err));
    return STATUS_OK;
}

static enum status sort_graph(struct onnx_model *model, struct onnx_graph *graph,
                              struct level *outer, struct error *err)
{
    CLEANUP(level_deinit)
    struct level l = {
        .model = model,
        .graph = graph,
        .outer = outer,
        .at = SORT_NONE,
        .first = calloc((size_t)graph->n_nodes + 1, sizeof(*l.first)),
        .order = calloc((size_t)graph->n_nodes + 1, sizeof(*l.order)),
    };
    if (!l.first || !l.order)
        return error_no_memory(err, "sorting a model");
    TRY(add_writers(&l, err));
    for (uint32_t i = 0; i < graph->n_outputs; i++)
        TRY(add_need(&l, graph->outputs[i].name, err));
    for (l.at = 0; l.at < graph->n_nodes; l.at++) {
        TRY(add_needs(&l, &graph->nodes[l.at], err));
        l.first[l.at + 1] = l.n_needs;
    }
    return place(&l, err);
}

enum status onnx_model_sort(struct onnx_model *model, struct error *err)
{
    return sort_graph(model, &model->graph, NULL, err);
}
