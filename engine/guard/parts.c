/* SPDX-License-Identifier: Apache-2.0 */
/* A fusion for which the host has only the reference's kernel runs as the nodes that it was made
 * of: sums of two convolutions of many images would take minutes. */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/guard/internal.h"
#include "engine/tune/internal.h"

enum { PARTS_MAX = 3 };

/* A graph of the fused node, behind it its parts in their order, and where tensors are. */
struct parts {
    struct ir_graph *graph;
    uint32_t n, node[PARTS_MAX];
    uint32_t output[PARTS_MAX]; /* of the fused node, that the part makes; IR_NONE: none */
    void **at;                  /* by tensor */
    void *between[PARTS_MAX];   /* what a part makes that is no such output */
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
    if (node != IR_NONE) {
        p->output[p->n] = IR_NONE;
        p->node[p->n++] = node;
    }
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

static bool add_sum(struct parts *p, uint32_t node, uint32_t tensor)
{
    const struct ir_epilogue sum = {.kind = IR_EPILOGUE_BINARY, .func = IR_BINARY_ADD};
    return ir_epilogue_add(p->graph, node, sum, tensor);
}

/* The sum of two convolutions as the second one, which adds what the first one has made; IR_NONE:
 * no memory. x2 is read at the fused node's strides. */
static uint32_t add_both(struct parts *p, const struct ir_node *fused, const uint32_t x[2],
                         const uint32_t x2[3])
{
    const int64_t strides[2] = {ir_attr_at(fused, IR_ATTR_STRIDES, 0),
                                ir_attr_at(fused, IR_ATTR_STRIDES, 1)};
    uint32_t first = add_part(p, IR_OP_CONV, 2, x);
    uint32_t between = first == IR_NONE ? IR_NONE : result_of(p, first);
    uint32_t second =
        between == IR_NONE ? IR_NONE : add_part(p, IR_OP_CONV, x2[2] == IR_NONE ? 2 : 3, x2);
    bool ok = second != IR_NONE &&
              ir_attr_set_ints(p->graph, second, IR_ATTR_STRIDES, 2, strides) &&
              result_of(p, second) != IR_NONE && add_sum(p, second, between);
    return ok ? second : IR_NONE;
}

/* The fused node's own input, or IR_NONE. */
static uint32_t input_of(const struct ir_node *fused, uint32_t i)
{
    return i < ir_node_own_inputs(fused) ? fused->inputs[i] : IR_NONE;
}

static bool split_pair(struct parts *p, const struct ir_node *fused)
{
    const uint32_t x2[3] = {fused->inputs[IR_PAIR_X2], fused->inputs[IR_PAIR_W2],
                            input_of(fused, IR_PAIR_BIAS)};
    uint32_t sum = add_both(p, fused, fused->inputs, x2);
    return sum != IR_NONE && add_epilogue(p, sum, fused);
}

/* Adds what function `which` of a chain does to the part's result. */
static bool add_func(struct parts *p, uint32_t node, const struct ir_node *fused, uint32_t which)
{
    const struct ir_epilogue step = {
        .kind = IR_EPILOGUE_UNARY,
        .func = (enum ir_unary)ir_attr_at(fused, IR_ATTR_FUNCS, which),
    };
    return step.func == IR_UNARY_IDENTITY || ir_epilogue_add(p->graph, node, step, IR_NONE);
}

/* The last part makes the second output of the first one, which the part before it makes. */
static bool split_chain(struct parts *p, const struct ir_node *fused)
{
    const uint32_t one[3] = {fused->inputs[0], fused->inputs[1], input_of(fused, IR_CHAIN_BIAS)};
    const uint32_t x2[3] = {input_of(fused, IR_CHAIN_X2), input_of(fused, IR_CHAIN_W2), one[2]};
    uint32_t z = input_of(fused, IR_CHAIN_RESIDUAL);
    uint32_t first = x2[0] != IR_NONE ? add_both(p, fused, one, x2)
                                      : add_part(p, IR_OP_CONV, one[2] == IR_NONE ? 2 : 3, one);
    if (first == IR_NONE || (x2[0] == IR_NONE && result_of(p, first) == IR_NONE) ||
        (z != IR_NONE && !add_sum(p, first, z)) || !add_func(p, first, fused, 0))
        return false;
    p->output[p->n - 1] = 0;
    const uint32_t next[3] = {ir_node(p->graph, first)->outputs[0], fused->inputs[IR_CHAIN_NEXT],
                              input_of(fused, IR_CHAIN_NEXT_BIAS)};
    uint32_t second = add_part(p, IR_OP_CONV, next[2] == IR_NONE ? 2 : 3, next);
    return second != IR_NONE && result_of(p, second) != IR_NONE && add_func(p, second, fused, 1);
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

/* How the fusions are split; the last part makes the last output. */
static const struct {
    enum ir_op op;
    bool (*split)(struct parts *p, const struct ir_node *fused);
} splits[] = {
    {IR_OP_CONV_PAIR, split_pair},
    {IR_OP_CONV_CHAIN, split_chain},
    {IR_OP_CONV_POOL, split_pool},
};

static bool split(struct parts *p)
{
    const struct ir_node fused = *ir_node(p->graph, 0); /* adding nodes moves them */
    bool ok = false;
    for (size_t i = 0; i < ARRAY_LEN(splits); i++)
        if (splits[i].op == fused.op)
            ok = splits[i].split(p, &fused);
    if (ok)
        p->output[p->n - 1] = fused.n_outputs - 1;
    return ok;
}

bool parts_has(const struct ir_node *node)
{
    for (size_t i = 0; i < ARRAY_LEN(splits); i++)
        if (splits[i].op == node->op)
            return true;
    return false;
}

/* --- running --- */

static uint32_t made_by(const struct parts *p, uint32_t part)
{
    return ir_node(p->graph, p->node[part])->outputs[0];
}

static bool make_room(struct parts *p)
{
    bool ok = (p->at = calloc(p->graph->n_tensors, sizeof(*p->at))) != NULL;
    for (uint32_t i = 0; i < p->n && ok; i++)
        if (p->output[i] == IR_NONE)
            ok = (p->between[i] = value_new(ir_tensor(p->graph, made_by(p, i)))) != NULL;
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
        void *to = p->output[i] == IR_NONE ? p->between[i] : run->to[p->output[i]];
        struct layer_run part = {.from = p->at, .to = {to}};
        p->at[made_by(p, i)] = to;
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
