/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The first convolution of an image and the pool behind it (ResNet, DenseNet) become one node:
 *
 *   y = max_pool(relu(conv(x, w, b)))   becomes   y = relu(conv_pool(x, w, b))
 *
 * The largest tensor of such a network lies between the two, and is then never stored. ReLU and
 * maximum may change places: neither changes the order of numbers. If x is a cast from UINT8, the
 * node reads the bytes: a cast of what a client sent is exact, and padding is 0 before and after.
 *
 * No other op has this shape, so a backend must have a kernel of its own for it. Backends that may
 * have one are asked for each node (pass_context.takes), in the form that it would have.
 */
#include "engine/passes/constant.h"
#include "engine/passes/weights.h"

enum { CHANNELS_MAX = 4, RANK = 4, STEPS_MAX = IR_MAX_EPILOGUE };

/* The convolution of an image that makes the tensor, or IR_NONE. */
static uint32_t find_conv(const struct rewrite *rw, uint32_t tensor)
{
    uint32_t node = tensor == IR_NONE ? IR_NONE : ir_tensor(rw->graph, tensor)->producer;
    const struct ir_node *n = node == IR_NONE ? NULL : ir_node(rw->graph, node);
    if (!n || n->op != IR_OP_CONV || !rw_is_float(rw, n->outputs[0]))
        return IR_NONE;
    const struct shape *x = &ir_tensor(rw->graph, n->inputs[0])->shape;
    return x->rank == RANK && x->dim[1] <= CHANNELS_MAX ? node : IR_NONE;
}

static bool is_each(const struct ir_node *n, enum ir_attr_key key, uint32_t count, int64_t value)
{
    for (uint32_t i = 0; i < count; i++)
        if (ir_attr_at(n, key, i) != value)
            return false;
    return true;
}

/* Says whether the node is a maximum over windows as CONV_POOL has it. A last window that only
 * rounding up would add is seen by the shape. */
static bool is_pool(const struct rewrite *rw, const struct ir_node *n)
{
    if (n->op != IR_OP_POOL || ir_attr_int(n, IR_ATTR_FUNC) != IR_POOL_MAX || n->n_outputs != 1)
        return false;
    const struct shape *x = &ir_tensor(rw->graph, n->inputs[0])->shape;
    const struct shape *y = &ir_tensor(rw->graph, n->outputs[0])->shape;
    return x->rank == RANK && is_each(n, IR_ATTR_KERNEL, 2, 3) &&
           is_each(n, IR_ATTR_STRIDES, 2, 2) && is_each(n, IR_ATTR_DILATIONS, 2, 1) &&
           is_each(n, IR_ATTR_PADS, 4, 1) && y->dim[2] == (x->dim[2] + 1) / 2 &&
           y->dim[3] == (x->dim[3] + 1) / 2;
}

/* Says why the two stay apart. NULL: they need not. */
static const char *check(const struct rewrite *rw, uint32_t conv, const struct ir_node *pool)
{
    const struct ir_node *n = ir_node(rw->graph, conv);
    if (!is_pool(rw, pool))
        return "its window is not 3x3 at steps of 2, padded by 1";
    if (rw_uses(rw, n->outputs[0]) != 1)
        return "the convolution has other readers";
    if (!weighted_has_constants(rw, conv) || ir_attr_int(n, IR_ATTR_GROUP) != 1)
        return "its weights are computed or in groups";
    for (uint32_t i = 0; i < n->n_epilogue; i++)
        if (n->epilogue[i].kind != IR_EPILOGUE_UNARY || n->epilogue[i].func != IR_UNARY_RELU)
            return "a step between them is no ReLU";
    if (!weighted_steps_are_unary(pool))
        return "a step behind them reads a tensor";
    return n->n_epilogue + pool->n_epilogue > STEPS_MAX ? "there are too many steps" : NULL;
}

/* The bytes that x is a cast of; or x. */
static uint32_t bytes_of(const struct rewrite *rw, uint32_t x)
{
    uint32_t cast = rw_made_by(rw, x, IR_OP_CAST);
    uint32_t from = cast == IR_NONE ? IR_NONE : rw_input(rw, cast, 0);
    return from != IR_NONE && ir_tensor(rw->graph, from)->dtype == DTYPE_U8 ? from : x;
}

/* What the new node is made of. */
struct parts {
    struct ir_node conv, pool;
    uint32_t in[3], n_in;
};

static void set_up(struct rewrite *rw, uint32_t node, const void *user)
{
    const struct parts *p = user;
    static const struct {
        enum ir_attr_key key;
        uint32_t n;
    } keys[] = {{IR_ATTR_STRIDES, 2}, {IR_ATTR_PADS, 4}, {IR_ATTR_DILATIONS, 2}};
    for (uint32_t k = 0; k < ARRAY_LEN(keys); k++) {
        int64_t values[4];
        for (uint32_t i = 0; i < keys[k].n; i++)
            values[i] = ir_attr_at(&p->conv, keys[k].key, i);
        rw_set_ints(rw, node, keys[k].key, keys[k].n, values);
    }
}

static void add_steps(struct rewrite *rw, uint32_t node, const void *user)
{
    const struct parts *p = user;
    for (uint32_t i = 0; i < p->conv.n_epilogue && !rw->status; i++)
        rw_add_epilogue(rw, node, p->conv.epilogue[i], IR_NONE);
    for (uint32_t i = 0; i < p->pool.n_epilogue && !rw->status; i++)
        rw_add_epilogue(rw, node, p->pool.epilogue[i], IR_NONE);
}

static void fuse(struct rewrite *rw, uint32_t node, uint32_t conv)
{
    struct parts p = {.conv = *ir_node(rw->graph, conv), .pool = *ir_node(rw->graph, node)};
    p.n_in = weighted_bias(&p.conv) == IR_NONE ? 2 : 3;
    memcpy(p.in, p.conv.inputs, p.n_in * sizeof(*p.in));
    p.in[0] = bytes_of(rw, p.conv.inputs[0]);
    const struct rewrite_fusion fusion = {.op = IR_OP_CONV_POOL,
                                          .first = p.conv.name,
                                          .second = p.pool.name,
                                          .n_inputs = p.n_in,
                                          .inputs = p.in,
                                          .attrs = set_up,
                                          .steps = add_steps,
                                          .user = &p};
    bool taken = rw_is_taken(rw, &fusion);
    if (!taken && !rw->status && p.in[0] != p.conv.inputs[0]) {
        p.in[0] = p.conv.inputs[0];
        taken = rw_is_taken(rw, &fusion);
    }
    if (!taken) {
        rw_near_miss(rw, "%s + %s: the device has no kernel for both", p.conv.name, p.pool.name);
        return;
    }
    rw_done(rw, "%s + %s: convolution and pool", p.conv.name, p.pool.name);
    rw_become_fusion(rw, node, &fusion);
}

static void visit(struct rewrite *rw, uint32_t node)
{
    const struct ir_node *n = ir_node(rw->graph, node);
    uint32_t conv = n->op == IR_OP_POOL ? find_conv(rw, n->inputs[0]) : IR_NONE;
    if (conv == IR_NONE || ir_attr_int(n, IR_ATTR_FUNC) != IR_POOL_MAX)
        return;
    const char *why = check(rw, conv, n);
    if (why)
        rw_near_miss(rw, "%s + %s: %s", ir_node(rw->graph, conv)->name, n->name, why);
    else
        fuse(rw, node, conv);
}

PASS(fuse_stem_pool)
{
    return ctx->stems ? rewrite_run(graph, ctx, visit, err) : STATUS_OK;
}
