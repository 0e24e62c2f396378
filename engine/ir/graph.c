/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Makes, grows and frees graphs. All of a graph lies in one arena, because a graph is built once,
 * rewritten a few times and freed as a whole. A full array moves to one of twice the size; the old
 * one stays in the arena.
 */
#include "engine/ir/ir.h"

#include <stdlib.h>
#include <string.h>

struct ir_hold {
    struct ir_hold *next;
    void *object;
    void (*release)(void *object);
};

struct ir_graph *ir_graph_new(void)
{
    struct ir_graph *graph = calloc(1, sizeof(*graph));
    if (!graph)
        return NULL;
    graph->name = "";
    graph->arena = arena_new(0);
    if (!graph->arena) {
        free(graph);
        return NULL;
    }
    return graph;
}

void ir_graph_free(struct ir_graph *graph)
{
    if (!graph)
        return;
    for (struct ir_hold *hold = graph->holds; hold; hold = hold->next)
        hold->release(hold->object);
    arena_free(graph->arena);
    free(graph);
}

void ir_graph_cleanup(struct ir_graph **at)
{
    ir_graph_free(*at);
}

bool ir_graph_hold(struct ir_graph *graph, void *object, void (*release)(void *object))
{
    struct ir_hold *hold = arena_alloc(graph->arena, sizeof(*hold));
    if (!hold)
        return false;
    *hold = (struct ir_hold){graph->holds, object, release};
    graph->holds = hold;
    return true;
}

/* Makes room for one element more than `count`. False: `max` is reached, or there is no memory. */
static bool grow(struct arena *arena, void *array, uint32_t count, uint32_t *cap, uint32_t max,
                 size_t size)
{
    void *old, *grown;
    if (count < *cap)
        return true;
    if (count >= max)
        return false;
    uint32_t wanted = MIN(max, MAX(64, *cap * 2));
    grown = arena_array(arena, wanted, size);
    if (!grown)
        return false;
    memcpy(&old, array, sizeof(old)); /* `array` points to a pointer to some struct */
    if (count)
        memcpy(grown, old, count * size);
    memcpy(array, &grown, sizeof(grown));
    *cap = wanted;
    return true;
}

uint32_t ir_tensor_add(struct ir_graph *graph, const char *name, enum dtype dtype,
                       const struct shape *shape)
{
    uint64_t bytes;
    if (!ir_layout_bytes(shape, dtype, IR_LAYOUT_PLAIN, &bytes) ||
        !grow(graph->arena, &graph->tensors, graph->n_tensors, &graph->tensors_cap, IR_MAX_TENSORS,
              sizeof(*graph->tensors)))
        return IR_NONE;
    const char *copy = name ? arena_strndup(graph->arena, name, strlen(name)) : "";
    if (!copy)
        return IR_NONE;
    struct shape clean = {.rank = shape->rank};
    memcpy(clean.dim, shape->dim, shape->rank * sizeof(clean.dim[0]));
    graph->tensors[graph->n_tensors] = (struct ir_tensor){
        .name = copy,
        .dtype = dtype,
        .shape = clean,
        .producer = IR_NONE,
        .alias_of = IR_NONE,
        .bytes = bytes,
    };
    return graph->n_tensors++;
}

uint32_t ir_scale_add(struct ir_graph *graph, const struct ir_scale *scale)
{
    struct ir_scale row = *scale;
    if (scale->n == 0)
        return IR_NO_SCALE;
    float *step = arena_array(graph->arena, scale->n, sizeof(*step));
    int32_t *zero = arena_array(graph->arena, scale->n, sizeof(*zero));
    if (!step || !zero ||
        !grow(graph->arena, &graph->scales, graph->n_scales, &graph->scales_cap, IR_MAX_SCALES,
              sizeof(*graph->scales)))
        return IR_NO_SCALE;
    memcpy(step, scale->step, scale->n * sizeof(*step));
    row.step = step;
    row.zero_min = row.zero_max = scale->zero ? scale->zero[0] : 0;
    if (scale->zero)
        row.zero = memcpy(zero, scale->zero, scale->n * sizeof(*zero));
    for (uint32_t i = 0; row.zero && i < row.n; i++) {
        row.zero_min = MIN(row.zero_min, zero[i]);
        row.zero_max = MAX(row.zero_max, zero[i]);
    }
    graph->scales[graph->n_scales] = row;
    return ++graph->n_scales;
}

uint32_t ir_constant_add(struct ir_graph *graph, const char *name, enum dtype dtype,
                         const struct shape *shape, const void *data)
{
    uint32_t id = ir_tensor_add(graph, name, dtype, shape);
    if (id == IR_NONE)
        return IR_NONE;
    /* A constant without elements needs an address too: the address makes it a constant. */
    ir_tensor(graph, id)->data = data ? data : "";
    return id;
}

uint32_t ir_node_add(struct ir_graph *graph, enum ir_op op, const char *name, uint32_t n_inputs,
                     const uint32_t *inputs)
{
    if (n_inputs > IR_MAX_INPUTS || !grow(graph->arena, &graph->nodes, graph->n_nodes,
                                          &graph->nodes_cap, IR_MAX_NODES, sizeof(*graph->nodes)))
        return IR_NONE;
    const char *copy = name ? arena_strndup(graph->arena, name, strlen(name)) : "";
    uint32_t *list = arena_array(graph->arena, n_inputs, sizeof(*list));
    if (!copy || !list)
        return IR_NONE;
    if (n_inputs)
        memcpy(list, inputs, n_inputs * sizeof(*list));
    graph->nodes[graph->n_nodes] =
        (struct ir_node){.op = op, .name = copy, .n_inputs = n_inputs, .inputs = list};
    return graph->n_nodes++;
}

uint32_t ir_node_output_add(struct ir_graph *graph, uint32_t node, const char *name,
                            enum dtype dtype, const struct shape *shape)
{
    if (ir_node(graph, node)->n_outputs >= IR_MAX_OUTPUTS)
        return IR_NONE;
    uint32_t id = ir_tensor_add(graph, name, dtype, shape);
    if (id == IR_NONE)
        return IR_NONE;
    struct ir_node *n = ir_node(graph, node);
    n->outputs[n->n_outputs++] = id;
    ir_tensor(graph, id)->producer = node;
    return id;
}

uint32_t ir_node_input_add(struct ir_graph *graph, uint32_t node, uint32_t tensor)
{
    struct ir_node *n = ir_node(graph, node);
    if (n->n_inputs >= IR_MAX_INPUTS)
        return IR_NONE;
    uint32_t *grown = arena_array(graph->arena, n->n_inputs + 1, sizeof(*grown));
    if (!grown)
        return IR_NONE;
    if (n->n_inputs)
        memcpy(grown, n->inputs, n->n_inputs * sizeof(*grown));
    grown[n->n_inputs] = tensor;
    n->inputs = grown;
    return n->n_inputs++;
}

uint32_t ir_node_own_inputs(const struct ir_node *node)
{
    uint32_t own = node->n_inputs;
    for (uint32_t i = 0; i < node->n_epilogue; i++)
        if (node->epilogue[i].kind == IR_EPILOGUE_BINARY)
            own = MIN(own, node->epilogue[i].input);
    return own;
}

bool ir_epilogue_add(struct ir_graph *graph, uint32_t node, struct ir_epilogue step,
                     uint32_t tensor)
{
    if (ir_node(graph, node)->n_epilogue >= IR_MAX_EPILOGUE)
        return false;
    step.input = 0;
    if (step.kind == IR_EPILOGUE_BINARY) {
        step.input = ir_node_input_add(graph, node, tensor);
        if (step.input == IR_NONE)
            return false;
    }
    struct ir_node *n = ir_node(graph, node);
    n->epilogue[n->n_epilogue++] = step;
    return true;
}
