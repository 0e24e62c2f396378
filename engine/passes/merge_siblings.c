/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The products that make queries, keys and values from one tensor become one product. Attention
 * reads its output as it is (the packed form).
 *
 * This is done only where the result need not be cut apart, because a slice is one more pass over
 * memory, which costs more than two small products. Convolutions with the same input (Inception's
 * 1x1 ones) stay apart for that reason: their outputs go to different places. It is also done only
 * for backends whose kernels run faster on one larger product.
 */
#include "engine/passes/constant.h"
#include "engine/passes/weights.h"

enum { Q, K, V, SIBLINGS };

struct siblings {
    uint32_t node[SIBLINGS];
    uint32_t x;                 /* what all products read */
    int64_t depth;              /* of the weights */
    int64_t channels[SIBLINGS]; /* of each product's weights: queries may have more heads */
    int64_t first[SIBLINGS];    /* each product's first channel in the merged one */
    int64_t all;                /* its channels */
    bool reshaped;              /* the products are of rank 2, and each has a reshape behind it */
};

/* The product that makes an operand of the attention and has no other reader. */
static uint32_t find_product(const struct rewrite *rw, uint32_t tensor, bool *reshaped)
{
    uint32_t reshape = tensor == IR_NONE ? IR_NONE : rw_made_by(rw, tensor, IR_OP_RESHAPE);
    if (tensor == IR_NONE || rw_uses(rw, tensor) != 1)
        return IR_NONE;
    *reshaped = reshape != IR_NONE;
    if (*reshaped)
        tensor = rw_input(rw, reshape, 0);
    uint32_t node = rw_made_by(rw, tensor, IR_OP_MATMUL);
    return node != IR_NONE && rw_uses(rw, tensor) == 1 ? node : IR_NONE;
}

/* Says why the product cannot be merged; NULL: it can. */
static const char *check_product(const struct rewrite *rw, uint32_t node, bool reshaped)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    const struct shape *y = &ir_tensor(rw->graph, rw_output(rw, node))->shape;
    const struct shape *x = &ir_tensor(rw->graph, n->inputs[0])->shape;
    if (!weighted_has_constants(rw, node) || ir_tensor(rw->graph, n->inputs[1])->shape.rank != 2)
        return "its weights are computed";
    if (ir_attr_int(n, IR_ATTR_TRANS_A) || y->rank != x->rank || (reshaped && y->rank != 2))
        return "its input is transposed or broadcast";
    return NULL;
}

static bool find_siblings(struct rewrite *rw, uint32_t attention, struct siblings *out)
{
    struct siblings s = {.x = IR_NONE};
    for (uint32_t i = 0; i < SIBLINGS; i++) {
        bool reshaped;
        s.node[i] = find_product(rw, rw_input(rw, attention, i), &reshaped);
        if (s.node[i] == IR_NONE)
            return false;
        uint32_t x = rw_input(rw, s.node[i], 0), y = rw_output(rw, s.node[i]);
        const struct shape *shape = &ir_tensor(rw->graph, y)->shape;
        const char *why = check_product(rw, s.node[i], reshaped);
        if (!why && i && (x != s.x || reshaped != s.reshaped))
            why = "it reads another tensor than its siblings";
        if (!why && i == V && shape->dim[shape->rank - 1] != s.channels[K])
            why = "it has another number of channels than the keys";
        if (why) {
            rw_near_miss(rw, "%s: %s", ir_node(rw->graph, s.node[i])->name, why);
            return false;
        }
        const struct shape *from = &ir_tensor(rw->graph, x)->shape;
        s.x = x;
        s.reshaped = reshaped;
        s.channels[i] = shape->dim[shape->rank - 1];
        s.first[i] = s.all;
        s.all += s.channels[i];
        s.depth = from->dim[from->rank - 1];
    }
    *out = s;
    return true;
}

/* Copies the weights of product i into its columns of `to` [depth, all]. */
static void copy_weights(const struct rewrite *rw, const struct siblings *s, uint32_t i, void *to)
{
    const struct ir_node *n = ir_node(rw->graph, s->node[i]);
    const struct ir_tensor *w = ir_tensor(rw->graph, n->inputs[1]);
    bool transposed = ir_attr_int(n, IR_ATTR_TRANS_B);
    float alpha = ir_attr_float(n, IR_ATTR_ALPHA);
    size_t depth = (size_t)s->depth, channels = (size_t)s->channels[i], size = dtype_size(w->dtype);
    for (size_t k = 0; k < depth; k++) {
        size_t at = k * (size_t)s->all + (size_t)s->first[i];
        if (!transposed && alpha == 1) {
            memcpy((char *)to + at * size, (const char *)w->data + k * channels * size,
                   channels * size);
            continue;
        }
        for (size_t c = 0; c < channels; c++)
            float_put(to, w->dtype, at + c,
                      alpha * float_get(w->data, w->dtype,
                                        transposed ? c * depth + k : k * channels + c));
    }
}

static uint32_t merge_weights(struct rewrite *rw, const struct siblings *s)
{
    const struct shape shape = {.rank = 2, .dim = {s->depth, s->all}};
    enum dtype dtype = ir_tensor(rw->graph, s->x)->dtype;
    void *data;
    uint32_t id = rw_add_constant(rw, "", dtype, &shape, &data);
    for (uint32_t i = 0; id != IR_NONE && i < SIBLINGS; i++)
        copy_weights(rw, s, i, data);
    return id;
}

/* Makes the biases of all products behind one another, with zeros for a product without one;
 * IR_NONE if none has one. */
static uint32_t merge_bias(struct rewrite *rw, const struct siblings *s)
{
    const struct shape shape = {.rank = 1, .dim = {s->all}};
    enum dtype dtype = ir_tensor(rw->graph, s->x)->dtype;
    void *data;
    bool any = false;
    for (uint32_t i = 0; i < SIBLINGS; i++)
        any = any || rw_input(rw, s->node[i], 2) != IR_NONE;
    uint32_t id = any ? rw_add_constant(rw, "", dtype, &shape, &data) : IR_NONE;
    for (uint32_t i = 0; id != IR_NONE && i < SIBLINGS; i++) {
        uint32_t bias = rw_input(rw, s->node[i], 2);
        for (size_t c = 0; c < (size_t)s->channels[i]; c++)
            float_put(data, dtype, (size_t)s->first[i] + c,
                      bias == IR_NONE ? 0 : constant_at(rw, bias, c));
    }
    return id;
}

/* The old weights stay in memory until the model's file is closed, so merging has a bound, as
 * folding has. */
static bool has_room(struct rewrite *rw, const struct siblings *s)
{
    uint64_t bytes =
        (uint64_t)s->depth * (uint64_t)s->all * dtype_size(ir_tensor(rw->graph, s->x)->dtype);
    if (bytes > rw->room)
        return false;
    rw->room -= bytes;
    return true;
}

static uint32_t merge(struct rewrite *rw, const struct siblings *s, const struct shape *rows)
{
    uint32_t weights = merge_weights(rw, s), bias = merge_bias(rw, s);
    const uint32_t inputs[3] = {s->x, weights, bias};
    if (rw->status)
        return IR_NONE;
    uint32_t node = rw_add_node(rw, IR_OP_MATMUL, ir_node(rw->graph, s->node[Q])->name,
                                bias == IR_NONE ? 2 : 3, inputs);
    uint32_t y = rw_finish(rw, node);
    for (uint32_t i = K; y != IR_NONE && i < SIBLINGS; i++)
        rw_set_name(rw, node, ir_node(rw->graph, node)->name, ir_node(rw->graph, s->node[i])->name);
    if (y == IR_NONE)
        return IR_NONE;
    rw_done(rw, "%s read the same input", ir_node(rw->graph, node)->name);
    if (!s->reshaped)
        return y;
    const int64_t dims[3] = {rows->dim[0], rows->dim[1], s->all};
    return rw_add_reshape(rw, "", y, 3, dims);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    struct siblings s;
    if (n->op != IR_OP_ATTENTION || ir_attr_int(n, IR_ATTR_PACKED))
        return;
    for (uint32_t i = 0; i < SIBLINGS; i++)
        if (ir_tensor(rw->graph, n->inputs[i])->shape.rank != 3)
            return; /* its heads come first */
    if (!find_siblings(rw, node, &s) || !has_room(rw, &s))
        return;
    struct shape rows = ir_tensor(rw->graph, n->inputs[0])->shape;
    bool causal = ir_attr_int(n, IR_ATTR_CAUSAL);
    uint32_t mask = rw_input(rw, node, 3);
    int64_t heads = ir_attr_int(n, IR_ATTR_HEADS), kv_heads = ir_attr_int(n, IR_ATTR_KV_HEADS);
    float scale = ir_attr_float(n, IR_ATTR_ALPHA);
    uint32_t packed = merge(rw, &s, &rows);
    if (packed == IR_NONE)
        return;
    const uint32_t inputs[4] = {packed, IR_NONE, IR_NONE, mask};
    rw_become(rw, node, IR_OP_ATTENTION, mask == IR_NONE ? 1 : 4, inputs);
    rw_set_int(rw, node, IR_ATTR_HEADS, heads);
    rw_set_float(rw, node, IR_ATTR_ALPHA, scale);
    rw_set_int(rw, node, IR_ATTR_PACKED, 1);
    if (kv_heads)
        rw_set_int(rw, node, IR_ATTR_KV_HEADS, kv_heads);
    if (causal)
        rw_set_int(rw, node, IR_ATTR_CAUSAL, 1);
}

PASS(merge_siblings)
{
    if (!ctx->merge)
        return STATUS_OK;
    return rewrite_run(graph, ctx, visit, err);
}
