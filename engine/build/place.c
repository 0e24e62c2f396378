/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory planning. A tensor needs its bytes from the node that writes it to the last node that
 * reads it, and a workspace during its node; pack.c finds room for them.
 */
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/cleanup.h"
#include "engine/build/build.h"
#include "engine/build/pack.h"
#include "engine/build/parts.h"
#include "engine/ir/runs.h"

struct planner {
    struct ir_graph *graph;
    uint32_t *first_use, *last_use; /* by root: the first node that writes there, the last reader */
    struct pack_block *blocks;
    uint32_t n_blocks;
    uint64_t sum;
};

static bool renames(const struct ir_graph *graph, const struct ir_node *node,
                    const struct ir_tensor *in, const struct ir_tensor *out)
{
    return !ir_tensor_is_constant(in) && in->bytes == out->bytes &&
           ir_node_renames(graph, node, in->format, out->format);
}

/* Turns nodes that only rename into aliases, which need no tactic. */
static void make_aliases(struct ir_graph *graph)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        struct ir_node *node = ir_node(graph, i);
        if (node->n_inputs == 0 || node->inputs[0] == IR_NONE || node->n_outputs != 1)
            continue;
        struct ir_tensor *out = ir_tensor(graph, node->outputs[0]);
        const struct ir_tensor *in = ir_tensor(graph, node->inputs[0]);
        if (!renames(graph, node, in, out))
            continue;
        out->alias_of = node->inputs[0];
        node->tactic = NULL;
        node->workspace_bytes = 0;
        node->time_ns = 0;
    }
}

/* The first backend that runs a node; NULL: all nodes only rename. */
static const char *first_backend(const struct ir_graph *graph)
{
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        if (ir_node(graph, i)->tactic)
            return ir_node(graph, i)->tactic->backend;
    return NULL;
}

/* Fills the sides of the nodes, and returns how often they change. */
static uint32_t find_sides(const struct ir_graph *graph, uint8_t *side)
{
    const char *first = first_backend(graph);
    uint32_t changes = 0;
    uint8_t now = IR_SIDE_ANY;
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct tactic *tactic = ir_node(graph, i)->tactic;
        side[i] = !tactic || !first                ? IR_SIDE_ANY
                  : strcmp(tactic->backend, first) ? IR_SIDE_HOST
                                                   : IR_SIDE_DEVICE;
        if (side[i] == IR_SIDE_ANY || side[i] == now)
            continue;
        changes += now != IR_SIDE_ANY;
        now = side[i];
    }
    return changes;
}

/* Puts the nodes into an order in which they change backends as seldom as possible, if that is less
 * often than they do now. */
static enum status gather_sides(struct ir_graph *graph, struct error *err)
{
    size_t n = (size_t)graph->n_nodes + 1;
    CLEANUP(cleanup_free) uint8_t *side = calloc(n, sizeof(*side));
    if (!side)
        return error_no_memory(err, "the builder");
    uint32_t changes = find_sides(graph, side);
    if (changes < 2)
        return STATUS_OK;
    CLEANUP(cleanup_free) uint32_t *order = calloc(2 * n, sizeof(*order)); /* and the runs */
    if (!order)
        return error_no_memory(err, "the builder");
    uint32_t runs = ir_runs(graph, side, order, order + n);
    if (runs == UINT32_MAX)
        return error_no_memory(err, "the builder");
    return runs <= changes ? ir_graph_reorder(graph, order, err) : STATUS_OK;
}

static enum status make_segments(struct ir_graph *graph, struct error *err)
{
    graph->n_segments = 0;
    graph->segments = arena_array(graph->arena, PLAN_MAX_SEGMENTS, sizeof(*graph->segments));
    if (!graph->segments)
        return error_no_memory(err, "the builder");
    /* Aliases run nowhere; they join the segment of the node before them, or the first segment. */
    const char *backend = first_backend(graph);
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        struct ir_node *node = ir_node(graph, i);
        const char *next = node->tactic ? node->tactic->backend : backend;
        if (i == 0 || (backend && strcmp(next, backend) != 0)) {
            if (graph->n_segments == PLAN_MAX_SEGMENTS)
                return error_set(err, STATUS_UNIMPLEMENTED,
                                 "the layers change %d times between device and CPU; a plan holds "
                                 "no more (--min-segment keeps small parts off the device)",
                                 PLAN_MAX_SEGMENTS);
            graph->segments[graph->n_segments++] =
                (struct ir_segment){.backend = next ? next : "cpu", .first = i};
            backend = next;
        }
        node->segment = graph->n_segments - 1;
        graph->segments[node->segment].count++;
    }
    return STATUS_OK;
}

static void place_outside_arena(struct ir_graph *graph)
{
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        struct ir_tensor *t = ir_tensor(graph, i);
        t->place = ir_tensor_is_constant(t) ? IR_PLACE_CONSTANT : IR_PLACE_NONE;
        t->offset = 0;
    }
    for (uint32_t i = 0; i < graph->n_inputs; i++) {
        ir_tensor(graph, graph->inputs[i])->place = IR_PLACE_INPUT;
        ir_tensor(graph, graph->inputs[i])->offset = i;
    }
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        struct ir_tensor *t = ir_tensor(graph, plan_tensor_root(graph, graph->outputs[i]));
        if (t->place == IR_PLACE_NONE) {
            t->place = IR_PLACE_OUTPUT;
            t->offset = i;
        }
    }
}

static void find_uses(struct planner *p)
{
    const struct ir_graph *graph = p->graph;
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        p->first_use[i] = p->last_use[i] = ir_tensor(graph, i)->producer;
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        uint32_t root = plan_tensor_root(graph, i);
        p->first_use[root] = MIN(p->first_use[root], ir_tensor(graph, i)->producer);
    }
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        for (uint32_t k = 0; k < ir_node(graph, i)->n_inputs; k++)
            if (ir_node(graph, i)->inputs[k] != IR_NONE)
                p->last_use[plan_tensor_root(graph, ir_node(graph, i)->inputs[k])] = i;
}

static bool add_block(struct planner *p, uint64_t *offset, uint64_t bytes, uint32_t first,
                      uint32_t last)
{
    size_t size, sum;
    if (!checked_round_up(bytes, BACKEND_ALIGN, &size) || !checked_add(p->sum, size, &sum))
        return false;
    p->sum = sum;
    if (size) {
        p->blocks[p->n_blocks] = (struct pack_block){offset, size, first, last, p->n_blocks};
        p->n_blocks++;
    }
    return true;
}

static bool collect_blocks(struct planner *p)
{
    bool ok = true;
    for (uint32_t i = 0; i < p->graph->n_tensors && ok; i++) {
        struct ir_tensor *t = ir_tensor(p->graph, i);
        if (t->place != IR_PLACE_NONE || t->alias_of != IR_NONE)
            continue;
        t->place = IR_PLACE_ARENA;
        ok = add_block(p, &t->offset, t->bytes, p->first_use[i], p->last_use[i]);
    }
    for (uint32_t i = 0; i < p->graph->n_nodes && ok; i++) {
        struct ir_node *node = ir_node(p->graph, i);
        node->workspace_offset = 0;
        ok = add_block(p, &node->workspace_offset, node->workspace_bytes, i, i);
    }
    return ok;
}

/* The check of a plan follows at most PLAN_MAX_LIVE tensors at a time (plan/check.c). */
static enum status too_many(uint32_t alive, struct error *err)
{
    return error_set(err, STATUS_UNIMPLEMENTED,
                     "%u tensors are needed at the same time; a plan holds %d", alive,
                     PLAN_MAX_LIVE);
}

static enum status place_blocks(struct planner *p, struct error *err)
{
    struct pack_load load;
    uint64_t arena = 0;
    bool ok = pack_measure(p->blocks, p->n_blocks, p->graph->n_nodes, &load);
    if (ok && load.alive > PLAN_MAX_LIVE)
        return too_many(load.alive, err);
    if (!ok || !pack_blocks(p->blocks, p->n_blocks, &load, &arena))
        return error_no_memory(err, "the builder");
    for (uint32_t i = 0; i < p->graph->n_segments; i++)
        p->graph->segments[i].arena_bytes = arena;
    return STATUS_OK;
}

/* An alias has the place of the tensor that it lies in. */
static void place_aliases(struct ir_graph *graph)
{
    for (uint32_t i = 0; i < graph->n_tensors; i++) {
        struct ir_tensor *t = ir_tensor(graph, i);
        if (t->alias_of == IR_NONE)
            continue;
        uint64_t at;
        const struct ir_tensor *root = ir_tensor(graph, plan_tensor_at(graph, i, &at));
        t->place = root->place;
        t->offset = root->offset + (root->place == IR_PLACE_ARENA ? at : 0);
    }
}

static void planner_deinit(struct planner *p)
{
    free(p->first_use);
    free(p->blocks);
}

static enum status place(struct ir_graph *graph, uint64_t *tensor_bytes, struct error *err)
{
    CLEANUP(planner_deinit) struct planner p = {.graph = graph};
    size_t n = (size_t)graph->n_tensors + graph->n_nodes + 1;
    TRY(gather_sides(graph, err));
    TRY(make_segments(graph, err));
    place_outside_arena(graph);
    p.first_use = calloc(2 * n, sizeof(*p.first_use));
    p.blocks = calloc(n, sizeof(*p.blocks));
    if (!p.first_use || !p.blocks)
        return error_no_memory(err, "the builder");
    p.last_use = p.first_use + n;
    find_uses(&p);
    if (!collect_blocks(&p))
        return error_set(err, STATUS_RESOURCE_EXHAUSTED, "builder: tensors are too large");
    TRY(place_blocks(&p, err));
    place_aliases(graph);
    *tensor_bytes = p.sum;
    return STATUS_OK;
}

enum status build_place(struct ir_graph *graph, uint64_t *tensor_bytes, struct error *err)
{
    make_aliases(graph);
    TRY(build_parts(graph, err));
    return place(graph, tensor_bytes, err);
}

enum status build_place_apart(struct ir_graph *graph, uint64_t *tensor_bytes, struct error *err)
{
    make_aliases(graph);
    return place(graph, tensor_bytes, err);
}
