/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A chain of fully connected layers becomes one node, so that one kernel runs it: products by
 * constant weights of rank 2, each with a bias and an activation or without, where nothing else
 * reads what lies between.
 *
 * Small networks (recommendation, policies) are such chains, and a GPU spends most of their time on
 * launches, not on products. The kernel keeps all weights in the shared memory of each block, and
 * what lies between layers never leaves it. That bounds what is joined:
 *
 *   room    weights, biases and a tile of rows must fit (base/mlp.h; pass_context.chain_room). Of
 *           a chain that does not fit, each part that does becomes a node, from the first layer on.
 *   work    the kernel multiplies with a fraction of what libraries' kernels for large products
 *           reach, because it reads both operands from shared memory for each small tile: about
 *           200 TFLOP/s in 16 bits where they reach 600, and about 15 in FP32 where they reach 50.
 *           A launch that is saved is worth about 2 us. So a chain of two layers breaks even at
 *           3e8 multiplications in 16 bits and 2e7 in FP32; longer chains save more launches.
 *           These are estimates from the hardware's rates.
 *   layer   each block reads all weights by itself, some 28 KiB a microsecond on an H200, where a
 *           layer takes 1.8 us by itself and 0.8 us within a chain (ten layers of 64: 11.1 us
 *           instead of 18; four layers with 196 KiB: 9.4 us instead of 8). So a chain has no more
 *           than LAYER_BYTES of weights for each of its layers.
 *
 * The pass acts only when a round has changed nothing before it: other passes know products, not
 * chains, and may still find something to fold into one.
 */
#include <stdlib.h>

#include "base/cleanup.h"
#include "base/mlp.h"
#include "engine/ir/ops.h"
#include "engine/passes/constant.h"
#include "engine/passes/weights.h"

static const uint64_t LAYER_BYTES = UINT64_C(24) << 10;
static const uint64_t WORK_SHORT = UINT64_C(1) << 28, WORK_WIDE = UINT64_C(1) << 24;

struct chain {
    uint32_t node[MLP_LAYERS_MAX];
    int32_t widths[MLP_LAYERS_MAX + 1];
    uint32_t layers;
    uint64_t rows, work; /* work: multiplications of a row */
    uint32_t size;       /* bytes of a number as the kernel has it */
};

/* --- what may be a layer --- */

static bool is_product(const struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = node == IR_NONE ? NULL : ir_node(rw->graph, node);
    return n && n->op == IR_OP_MATMUL && rw_is_float(rw, n->outputs[0]);
}

/* Says why the product is no layer; NULL: it is one. */
static const char *check_layer(const struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    const struct ir_epilogue *step = n->epilogue;
    if (!weighted_has_constants(rw, node) || ir_tensor(rw->graph, n->inputs[1])->shape.rank != 2)
        return "its weights are computed";
    if (ir_attr_int(n, IR_ATTR_TRANS_A))
        return "its input is transposed";
    if (n->n_epilogue > 1 || (n->n_epilogue && step->kind != IR_EPILOGUE_UNARY))
        return "more than an activation follows it";
    if (n->n_epilogue && ir_unary_row((enum ir_unary)step->func)->flags & IR_FUNC_GAMMA &&
        step->gamma != ir_unary_row((enum ir_unary)step->func)->gamma)
        return "its activation has three constants";
    return NULL;
}

static int64_t last_dim(const struct rewrite *rw, uint32_t tensor)
{
    const struct shape *s = &ir_tensor(rw->graph, tensor)->shape;
    return s->dim[s->rank - 1];
}

/* --- what fits --- */

/* Says why the chain cannot have the product as its next layer; NULL: it now has. */
static const char *extend(const struct rewrite *rw, struct chain *c, uint32_t node)
{
    int64_t width = last_dim(rw, rw_output(rw, node));
    uint64_t work = c->work + (uint64_t)c->widths[c->layers] * (uint64_t)width;
    struct mlp_room room;
    if (c->layers == MLP_LAYERS_MAX)
        return "there are 31 layers before it";
    if (width < 1 || width > MLP_WIDTH_MAX)
        return "it is wider than 1,024";
    c->widths[c->layers + 1] = (int32_t)width;
    if (!mlp_room(c->widths, c->layers + 1, c->size, &room) ||
        mlp_room_bytes(&room, MLP_ROWS_LEAST) > rw->ctx->chain_room)
        return "the weights do not fit a block's shared memory";
    if (c->layers > 0 && room.weights > LAYER_BYTES * (c->layers + 1))
        return "its weights take longer to read than a launch";
    if (work > (c->size == 2 ? WORK_SHORT : WORK_WIDE) / c->rows)
        return "larger products are faster apart";
    c->node[c->layers++] = node;
    c->work = work;
    return NULL;
}

static bool chain_begin(const struct rewrite *rw, uint32_t node, struct chain *c)
{
    uint32_t x = rw_input(rw, node, 0);
    size_t elements;
    int64_t width = last_dim(rw, x);
    if (!shape_elements(&ir_tensor(rw->graph, x)->shape, &elements) || elements == 0 ||
        width > MLP_WIDTH_MAX)
        return false;
    bool is_short = rw->ctx->chain_short || ir_tensor(rw->graph, x)->dtype != DTYPE_F32;
    *c = (struct chain){.rows = elements / (uint64_t)width, .size = is_short ? 2 : 4};
    c->widths[0] = (int32_t)width;
    return true;
}

/* The layer that alone reads what the node makes; IR_NONE: there is none. rw->state has the last
 * reader of each tensor. */
static uint32_t next_layer(struct rewrite *rw, uint32_t node)
{
    const uint32_t *readers = rw->state;
    uint32_t y = rw_output(rw, node), next = readers[y];
    if (!is_product(rw, next) || rw_input(rw, next, 0) != y)
        return IR_NONE;
    const char *why = rw_uses(rw, y) > 1 ? "others read its input too" : check_layer(rw, next);
    if (why)
        rw_near_miss(rw, "%s stays a layer of its own: %s", ir_node(rw->graph, next)->name, why);
    return why ? IR_NONE : next;
}

/* --- joining --- */

/* Writes the weights of a layer as [depth, width]. */
static void copy_weights(const struct rewrite *rw, uint32_t node, size_t depth, size_t width,
                         void *to, size_t at)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    const struct ir_tensor *w = ir_tensor(rw->graph, n->inputs[1]);
    bool transposed = ir_attr_int(n, IR_ATTR_TRANS_B);
    float alpha = ir_attr_float(n, IR_ATTR_ALPHA);
    for (size_t k = 0; k < depth; k++)
        for (size_t c = 0; c < width; c++)
            float_put(to, w->dtype, at++,
                      alpha *
                          float_get(w->data, w->dtype, transposed ? c * depth + k : k * width + c));
}

static void copy_bias(const struct rewrite *rw, uint32_t node, enum dtype dtype, size_t width,
                      void *to, size_t at)
{
    uint32_t bias = weighted_bias(ir_node(rw->graph, node));
    for (size_t c = 0; c < width; c++)
        float_put(to, dtype, at + c,
                  bias == IR_NONE ? 0 : float_get(ir_tensor(rw->graph, bias)->data, dtype, c));
}

/* The weights of all layers one behind the other, and their biases. */
static bool add_constants(struct rewrite *rw, const struct chain *c, uint32_t in[3])
{
    enum dtype dtype = ir_tensor(rw->graph, in[0])->dtype;
    struct shape weights = {.rank = 1, .dim = {(int64_t)c->work}}, bias = {.rank = 1};
    void *w, *b;
    for (uint32_t i = 1; i <= c->layers; i++)
        bias.dim[0] += c->widths[i];
    in[1] = rw_add_constant(rw, "", dtype, &weights, &w);
    in[2] = in[1] == IR_NONE ? IR_NONE : rw_add_constant(rw, "", dtype, &bias, &b);
    if (in[2] == IR_NONE)
        return false;
    size_t at = 0, column = 0;
    for (uint32_t i = 0; i < c->layers; i++) {
        size_t depth = (size_t)c->widths[i], width = (size_t)c->widths[i + 1];
        copy_weights(rw, c->node[i], depth, width, w, at);
        copy_bias(rw, c->node[i], dtype, width, b, column);
        at += depth * width;
        column += width;
    }
    return true;
}

static void set_layers(struct rewrite *rw, uint32_t node, const struct chain *c,
                       const struct ir_epilogue *steps)
{
    int64_t widths[MLP_LAYERS_MAX], funcs[MLP_LAYERS_MAX];
    float alphas[MLP_LAYERS_MAX], betas[MLP_LAYERS_MAX];
    for (uint32_t i = 0; i < c->layers; i++) {
        widths[i] = c->widths[i + 1];
        funcs[i] = (int64_t)steps[i].func;
        alphas[i] = steps[i].alpha;
        betas[i] = steps[i].beta;
    }
    rw_set_ints(rw, node, IR_ATTR_WIDTHS, c->layers, widths);
    rw_set_ints(rw, node, IR_ATTR_FUNCS, c->layers, funcs);
    rw_set_floats(rw, node, IR_ATTR_ALPHAS, c->layers, alphas);
    rw_set_floats(rw, node, IR_ATTR_BETAS, c->layers, betas);
}

/* A model may have many chains of the same constants, which then have bytes of their own. */
static bool has_room(struct rewrite *rw, const struct chain *c)
{
    uint64_t bytes = 4 * c->work;
    if (bytes > rw->room) {
        rw_near_miss(rw, "%s: its constants would take too much memory",
                     ir_node(rw->graph, c->node[0])->name);
        return false;
    }
    rw->room -= bytes;
    return true;
}

/* Gives the last layer the names of all. */
static void set_name(struct rewrite *rw, const struct chain *c)
{
    uint32_t last = c->node[c->layers - 1];
    const char *own = ir_node(rw->graph, last)->name, *name = ir_node(rw->graph, c->node[0])->name;
    for (uint32_t i = 1; i < c->layers; i++) {
        rw_set_name(rw, last, name,
                    i + 1 == c->layers ? own : ir_node(rw->graph, c->node[i])->name);
        name = ir_node(rw->graph, last)->name;
    }
}

/* The last layer becomes the node; the others disappear with what only they needed. */
static void join(struct rewrite *rw, const struct chain *c)
{
    static const struct ir_epilogue none = {.func = IR_UNARY_IDENTITY};
    struct ir_epilogue steps[MLP_LAYERS_MAX];
    uint32_t in[3] = {rw_input(rw, c->node[0], 0), IR_NONE, IR_NONE};
    uint32_t last = c->node[c->layers - 1];
    for (uint32_t i = 0; i < c->layers; i++) {
        const struct ir_node *n = ir_node(rw->graph, c->node[i]);
        steps[i] = n->n_epilogue ? n->epilogue[0] : none;
    }
    if (!add_constants(rw, c, in))
        return;
    set_name(rw, c);
    rw_become(rw, last, IR_OP_MLP, 3, in);
    set_layers(rw, last, c, steps);
    rw_done(rw, "%s: %u layers are one node", ir_node(rw->graph, last)->name, c->layers);
}

/* Joins the layers from `node` on, as far as they fit; the walk comes to what is left. */
static void visit(struct rewrite *rw, uint32_t node)
{
    struct chain c;
    if (!is_product(rw, node) || check_layer(rw, node) || !chain_begin(rw, node, &c) ||
        extend(rw, &c, node))
        return;
    for (uint32_t next = next_layer(rw, node); next != IR_NONE; next = next_layer(rw, next)) {
        const char *why = extend(rw, &c, next);
        if (!why)
            continue;
        rw_near_miss(rw, "%s begins another chain: %s", ir_node(rw->graph, next)->name, why);
        break;
    }
    if (c.layers > 1 && has_room(rw, &c))
        join(rw, &c);
}

PASS(fuse_mlp)
{
    if (!ctx->chain_room || ctx->unsettled)
        return STATUS_OK;
    CLEANUP(cleanup_free) uint32_t *readers = malloc((graph->n_tensors + 1) * sizeof(*readers));
    if (!readers)
        return error_no_memory(err, "a pass");
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        readers[i] = IR_NONE;
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        for (uint32_t k = 0; k < ir_node(graph, i)->n_inputs; k++)
            if (ir_node(graph, i)->inputs[k] != IR_NONE)
                readers[ir_node(graph, i)->inputs[k]] = i;
    return rewrite_run_with(graph, ctx, visit, readers, err);
}
