/* SPDX-License-Identifier: Apache-2.0 */
/* A fusion for which the host has only the reference's kernel runs as the nodes that it was made
 * of: sums of two convolutions of many images would take minutes. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "engine/guard/internal.h"
#include "engine/tune/internal.h"

enum { PARTS_MAX = 3 };

/* A graph of the fused node, behind it its parts in their order, and where tensors are. */
struct parts {
    struct ir_graph *graph;
    uint32_t n, node[PARTS_MAX];
    void **at;                /* by tensor */
    void *between[PARTS_MAX]; /* what all parts but the last one make */
};

static void parts_cleanup(struct parts *p)
{
    for (uint32_t i = 0; i < PARTS_MAX; i++)
        free(p->between[i]);
    free(p->at);
    ir_graph_free(p->graph);
}

/* --- splitting --- */

static uint32_t add_part(struct parts *p, enum ir_op op, uint32_t n, const uint32_t *inputs)
{
    uint32_t node = ir_node_add(p->graph, op, "", n, inputs);
    if (node != IR_NONE)
        p->node[p->n++] = node;
    return node;
}

static uint32_t result_of(struct parts *p, uint32_t node)
{
    return ir_infer_apply(p->graph, node, (const char *const[]){""}, 1, NULL)
               ? IR_NONE
               : ir_node(p->graph, node)->outputs[0];
}

/* Adds to the last part what the fused node does with its sums. */
static bool add_epilogue(struct parts *p, uint32_t node, const struct ir_node *fused)
{
    bool ok = true;
    for (uint32_t i = 0; i < fused->n_epilogue && ok; i++) {
        const struct ir_epilogue *step = &fused->epilogue[i];
        bool binary = step->kind == IR_EPILOGUE_BINARY;
        ok = ir_epilogue_add(p->graph, node, *step, binary ? fused->inputs[step->input] : IR_NONE);
    }
    return ok;
}

/* The second convolution adds what the first one has made. */
static bool split_pair(struct parts *p, const struct ir_node *fused)
{
    const struct ir_epilogue sum = {.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_ADD};
    const int64_t strides[2] = {ir_attr_at(fused, IR_ATTR_STRIDES, 0),
                                ir_attr_at(fused, IR_ATTR_STRIDES, 1)};
    uint32_t first = add_part(p, IR_OP_CONV, 2, fused->inputs), between, second;
    if (first == IR_NONE || (between = result_of(p, first)) == IR_NONE)
        return false;
    second =
        add_part(p, IR_OP_CONV, ir_node_own_inputs(fused) - IR_PAIR_X2, fused->inputs + IR_PAIR_X2);
    return second != IR_NONE && ir_attr_set_ints(p->graph, second, IR_ATTR_STRIDES, 2, strides) &&
           result_of(p, second) != IR_NONE && ir_epilogue_add(p->graph, second, sum, between) &&
           add_epilogue(p, second, fused);
}

/* The images as numbers of the weights' type. */
static uint32_t cast_images(struct parts *p, const struct ir_node *fused)
{
    const struct ir_tensor *x = ir_tensor(p->graph, fused->inputs[0]);
    enum dtype type = ir_tensor_type(ir_tensor(p->graph, fused->inputs[1]));
    if (ir_tensor_type(x) == type)
        return fused->inputs[0];
    uint32_t node = add_part(p, IR_OP_CAST, 1, fused->inputs);
    if (node == IR_NONE || !ir_attr_set_int(p->graph, node, IR_ATTR_TO, (int64_t)type))
        return IR_NONE;
    return result_of(p, node);
}

static bool split_pool(struct parts *p, const struct ir_node *fused)
{
    static const int64_t kernel[] = {3, 3}, strides[] = {2, 2}, pads[] = {1, 1, 1, 1};
    struct ir_graph *g = p->graph;
    uint32_t in[3] = {cast_images(p, fused), fused->inputs[1], fused->inputs[2]};
    uint32_t conv =
        in[0] == IR_NONE ? IR_NONE : add_part(p, IR_OP_CONV, ir_node_own_inputs(fused), in);
    if (conv == IR_NONE || !ir_attrs_copy(g, conv, fused))
        return false;
    uint32_t large = result_of(p, conv);
    uint32_t pool = large == IR_NONE ? IR_NONE : add_part(p, IR_OP_POOL, 1, &large);
    return pool != IR_NONE && ir_attr_set_int(g, pool, IR_ATTR_FUNC, IR_POOL_MAX) &&
           ir_attr_set_ints(g, pool, IR_ATTR_KERNEL, 2, kernel) &&
           ir_attr_set_ints(g, pool, IR_ATTR_STRIDES, 2, strides) &&
           ir_attr_set_ints(g, pool, IR_ATTR_PADS, 4, pads) && result_of(p, pool) != IR_NONE &&
           add_epilogue(p, pool, fused);
}

static bool split(struct parts *p)
{
    const struct ir_node fused = *ir_node(p->graph, 0); /* adding nodes moves them */
    return fused.op == IR_OP_CONV_PAIR ? split_pair(p, &fused) : split_pool(p, &fused);
}

bool parts_has(const struct ir_node *node)
{
    return node->op == IR_OP_CONV_PAIR || node->op == IR_OP_CONV_POOL;
}

/* --- running --- */

static uint32_t made_by(const struct parts *p, uint32_t part)
{
    return ir_node(p->graph, p->node[part])->outputs[0];
}

static bool make_room(struct parts *p)
{
    bool ok = (p->at = calloc(p->graph->n_tensors, sizeof(*p->at))) != NULL;
    for (uint32_t i = 0; i + 1 < p->n && ok; i++) {
        p->between[i] = value_new(ir_tensor(p->graph, made_by(p, i)));
        p->at[made_by(p, i)] = p->between[i];
        ok = p->between[i];
    }
    return ok;
}

static enum status run_once(struct layer_machine *machine, const struct parts *p,
                            const struct ir_node *node, const struct layer_run *run,
                            struct error *err)
{
    const struct ir_node *fused = ir_node(p->graph, 0);
    for (uint32_t i = 0; i < fused->n_inputs; i++)
        if (fused->inputs[i] != IR_NONE)
            p->at[fused->inputs[i]] = run->from[node->inputs[i]];
    for (uint32_t i = 0; i < p->n; i++) {
        bool last = i + 1 == p->n;
        struct layer_run part = {.from = p->at, .to = {last ? run->to[0] : p->between[i]}};
        TRY(layer_run_wide(machine, p->graph, ir_node(p->graph, p->node[i]), &part, 1, err));
    }
    return STATUS_OK;
}

enum status parts_run_wide(struct layer_machine *machine, const struct ir_graph *graph,
                           const struct ir_node *node, struct layer_run *runs, uint32_t n,
                           struct error *err)
{
    CLEANUP(parts_cleanup) struct parts p = {0};
    TRY(tune_sample_new(graph, node, &p.graph, err));
    if (!split(&p) || !make_room(&p))
        return error_no_memory(err, "the comparison with fp32");
    for (uint32_t i = 0; i < n; i++)
        TRY(run_once(machine, &p, node, &runs[i], err));
    return STATUS_OK;
}
