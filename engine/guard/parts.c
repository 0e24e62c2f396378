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
    uint32_t output[PARTS_MAX]; /* of the fused node, that the part makes */
    void **at;                  /* by tensor */
    void *between[PARTS_MAX];   /* what others make */
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
    if (node == IR_NONE)
        return IR_NONE;
    p->output[p->n] = IR_NONE;
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

/* The input i, if the fused node has it. */
static uint32_t own_input(const struct ir_node *fused, uint32_t i)
{
    return i < ir_node_own_inputs(fused) ? fused->inputs[i] : IR_NONE;
}

/* The normalised rows, which may be an output, too. */
static uint32_t split_norm(struct parts *p, const struct ir_node *fused)
{
    struct ir_graph *g = p->graph;
    uint32_t x = fused->inputs[IR_NORMED_X], shift = own_input(fused, IR_NORMED_SHIFT);
    uint32_t in[3] = {x, fused->inputs[IR_NORMED_SCALE], shift};
    uint32_t norm = add_part(p, IR_OP_LAYER_NORM, shift == IR_NONE ? 2 : 3, in);
    if (norm == IR_NONE ||
        !ir_attr_set_int(g, norm, IR_ATTR_AXIS, ir_tensor(g, x)->shape.rank - 1) ||
        !ir_attr_set_float(g, norm, IR_ATTR_EPSILON, ir_attr_float(fused, IR_ATTR_EPSILON)) ||
        !ir_attr_set_int(g, norm, IR_ATTR_RMS, ir_attr_int(fused, IR_ATTR_RMS)))
        return IR_NONE;
    if (fused->n_outputs > 1)
        p->output[p->n - 1] = 1;
    return result_of(p, norm);
}

static bool split_normed(struct parts *p, const struct ir_node *fused)
{
    uint32_t bias = own_input(fused, IR_NORMED_BIAS);
    uint32_t in[3] = {split_norm(p, fused), fused->inputs[IR_NORMED_W], bias};
    uint32_t product =
        in[0] == IR_NONE ? IR_NONE : add_part(p, IR_OP_MATMUL, bias == IR_NONE ? 2 : 3, in);
    return product != IR_NONE &&
           ir_attr_set_int(p->graph, product, IR_ATTR_TRANS_B,
                           ir_attr_int(fused, IR_ATTR_TRANS_B)) &&
           result_of(p, product) != IR_NONE && add_epilogue(p, product, fused);
}

static bool (*splitter(enum ir_op op))(struct parts *p, const struct ir_node *fused)
{
    switch (op) {
    case IR_OP_CONV_PAIR:
        return split_pair;
    case IR_OP_CONV_POOL:
        return split_pool;
    case IR_OP_NORM_MATMUL:
        return split_normed;
    default:
        return NULL;
    }
}

/* The last part makes the first output. */
static bool split(struct parts *p)
{
    const struct ir_node fused = *ir_node(p->graph, 0); /* adding nodes moves them */
    if (!splitter(fused.op)(p, &fused))
        return false;
    p->output[p->n - 1] = 0;
    return true;
}

bool parts_has(const struct ir_node *node)
{
    return splitter(node->op) != NULL;
}

/* --- running --- */

static uint32_t made_by(const struct parts *p, uint32_t part)
{
    return ir_node(p->graph, p->node[part])->outputs[0];
}

static bool make_room(struct parts *p)
{
    bool ok = (p->at = calloc(p->graph->n_tensors, sizeof(*p->at))) != NULL;
    for (uint32_t i = 0; i < p->n && ok; i++) {
        if (p->output[i] != IR_NONE)
            continue;
        p->between[i] = value_new(ir_tensor(p->graph, made_by(p, i)));
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
        uint32_t output = p->output[i];
        void *to = output == IR_NONE ? p->between[i] : run->to[output];
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
