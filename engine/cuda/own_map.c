/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elementwise nodes and reformats by our own kernels: UNARY, CAST, BINARY, SELECT, REFORMAT.
 *
 * A unary function is the first step of the epilogue of a copy. In channels-last, operands of y's
 * rank lie like y; those with one number per channel, and those of a smaller rank, stay plain:
 * their strides say everything. Inputs of few channels (images) may be read plain and written as
 * pixels, padded or not, so that a network's first cast or scale is its reformat too.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/compiler.h"
#include "engine/cuda/own.h"

enum { IMAGE_CHANNELS = 8 };

struct map {
    enum ir_op op;
    uint32_t n_in;
    struct kernel_view in[3], y;
    int64_t padded; /* channels that y's pixels hold; 0: no padding */
    int32_t func;   /* of BINARY */
    bool fmod;
    bool first;                  /* there is a step before the node's epilogue: */
    struct kernel_step own;      /* the unary function, or BINARY where kernel_binary cannot */
    struct kernel_epilogue tail; /* the node's epilogue */
};

struct map_op {
    struct backend_op base;
    const struct ir_node *node;
    struct map map;
};

static uint32_t own_inputs(enum ir_op op)
{
    return op == IR_OP_BINARY ? 2 : op == IR_OP_SELECT ? 3 : 1;
}

static int64_t padded_channels(const struct ir_tensor *y, enum ir_layout layout)
{
    int64_t multiple = layout == IR_LAYOUT_CHANNELS_LAST_4   ? 4
                       : layout == IR_LAYOUT_CHANNELS_LAST_8 ? 8
                                                             : 0;
    if (!multiple || y->shape.dim[1] % multiple == 0)
        return 0;
    return (y->shape.dim[1] + multiple - 1) / multiple * multiple;
}

/* --- from a node to views --- */

static bool read_unary(const struct ir_node *node, struct map *m)
{
    int64_t func = ir_attr_int(node, IR_ATTR_FUNC);
    if (func < 0 || func >= IR_UNARY_COUNT_)
        return false;
    m->first = func != IR_UNARY_IDENTITY;
    m->own.func = (int32_t)func;
    ir_unary_constants(node, &m->own.alpha, &m->own.beta, &m->own.gamma);
    return true;
}

static bool read_binary(const struct ir_node *node, struct map *m)
{
    int64_t func = ir_attr_int(node, IR_ATTR_FUNC);
    if (func < 0 || func >= IR_BINARY_COUNT_)
        return false;
    m->func = (int32_t)func;
    m->fmod = ir_attr_float(node, IR_ATTR_ALPHA) != 0;
    if (m->padded == 0)
        return true;
    /* kernel_binary knows no padding, so the node becomes a copy with a step. */
    m->op = IR_OP_UNARY;
    m->n_in = 1;
    m->first = true;
    m->own = (struct kernel_step){.binary = 1, .func = m->func, .operand = m->in[1]};
    return func <= IR_BINARY_PRELU && dtype_is_float((enum dtype)m->y.dtype);
}

/* `dtype` NONE: with the types that the tensors have. */
static bool map_read(const struct ir_graph *graph, const struct ir_node *node,
                     const struct tactic *tactic, enum dtype dtype, struct map *out)
{
    struct map m = {.op = node->op, .n_in = own_inputs(node->op)};
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    if (node->n_outputs != 1 || ir_node_own_inputs(node) != m.n_in ||
        !own_view(y, dtype, tactic->out[0].format.layout, &m.y))
        return false;
    for (uint32_t i = 0; i < m.n_in; i++) {
        struct kernel_view x;
        if (node->inputs[i] == IR_NONE ||
            !own_view(ir_tensor(graph, node->inputs[i]), dtype, tactic->in[i].format.layout, &x) ||
            !cuda_view_broadcast(&x, &m.y, &m.in[i]))
            return false;
    }
    m.padded = padded_channels(y, tactic->out[0].format.layout);
    if (m.padded && node->op == IR_OP_SELECT)
        return false;
    if ((node->op == IR_OP_UNARY && !read_unary(node, &m)) ||
        (node->op == IR_OP_BINARY && !read_binary(node, &m)) ||
        !cuda_epilogue(graph, node, &m.y, &m.tail) || m.tail.n + m.first > KERNEL_STEPS_MAX)
        return false;
    *out = m;
    return true;
}

/* --- the call --- */

static void bind(struct map *m, const struct ir_node *node, void *const *inputs,
                 void *const *outputs)
{
    for (uint32_t i = 0; i < m->n_in; i++)
        m->in[i].data = inputs[i];
    if (m->own.binary)
        m->own.operand.data = inputs[1];
    m->y.data = outputs[0];
    cuda_epilogue_bind(&m->tail, node, inputs);
}

static cudaError_t run(const struct kernel_call *call, const struct map *m)
{
    if (m->op == IR_OP_BINARY)
        return kernel_binary(call, m->func, m->fmod, &m->in[0], &m->in[1], &m->y, &m->tail);
    if (m->op == IR_OP_SELECT)
        return kernel_select(call, &m->in[0], &m->in[1], &m->in[2], &m->y, &m->tail);
    if (!m->first)
        return kernel_map(call, &m->in[0], &m->y, m->padded, &m->tail);
    struct kernel_epilogue all = {.n = m->tail.n + 1, .step[0] = m->own};
    for (int32_t i = 0; i < m->tail.n; i++)
        all.step[i + 1] = m->tail.step[i];
    return kernel_map(call, &m->in[0], &m->y, m->padded, &all);
}

/* --- candidates --- */

static bool lies_like(const struct ir_tensor *tensor, const struct ir_tensor *y)
{
    size_t elements;
    return tensor->shape.rank == y->shape.rank && shape_elements(&tensor->shape, &elements) &&
           elements != (size_t)tensor->shape.dim[1];
}

static void make_tactic(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                        enum ir_layout from, enum ir_layout to, struct tactic *tactic)
{
    char detail[TACTIC_NAME_MAX];
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    enum ir_layout like = to == IR_LAYOUT_PLAIN ? IR_LAYOUT_PLAIN : IR_LAYOUT_CHANNELS_LAST;
    snprintf(detail, sizeof(detail), "%s %s%s%s", dtype_name(dtype ? dtype : y->dtype),
             from == to ? "" : ir_layout_name(from), from == to ? "" : " to ", ir_layout_name(to));
    cuda_tactic(tactic, &cuda_family_own_map, 0, graph, node, dtype, IR_LAYOUT_PLAIN, detail);
    tactic->out[0].format.layout = to;
    for (uint32_t i = 0; i < tactic->n_in; i++) {
        const struct ir_tensor *x = cuda_input(graph, node, i);
        if (i == 0)
            tactic->in[i].format.layout = from;
        else if (x && lies_like(x, y))
            tactic->in[i].format.layout = like;
    }
    /* A first operand that broadcasts stays plain. */
    if (node->op != IR_OP_REFORMAT && node->inputs[0] != IR_NONE && from != IR_LAYOUT_PLAIN &&
        !lies_like(ir_tensor(graph, node->inputs[0]), y))
        tactic->in[0].format.layout = IR_LAYOUT_PLAIN;
}

struct offer {
    struct cuda_device *device;
    const struct ir_graph *graph;
    const struct ir_node *node;
    tactic_visit visit;
    void *user;
};

static enum status offer(const struct offer *o, enum dtype dtype, enum ir_layout from,
                         enum ir_layout to, struct error *err)
{
    struct tactic tactic;
    struct map m;
    struct kernel_call call = own_call_dry(o->device, 0);
    make_tactic(o->graph, o->node, dtype, from, to, &tactic);
    if (!map_read(o->graph, o->node, &tactic, dtype, &m) || run(&call, &m) != cudaSuccess)
        return STATUS_OK;
    return o->visit(o->user, &tactic, err);
}

static enum status offer_layouts(const struct offer *o, enum dtype dtype, struct error *err)
{
    static const enum ir_layout image[] = {IR_LAYOUT_CHANNELS_LAST_4, IR_LAYOUT_CHANNELS_LAST_8,
                                           IR_LAYOUT_CHANNELS_LAST};
    const struct shape *shape = &ir_tensor(o->graph, o->node->outputs[0])->shape;
    TRY(offer(o, dtype, IR_LAYOUT_PLAIN, IR_LAYOUT_PLAIN, err));
    if (shape->rank >= 3)
        TRY(offer(o, dtype, IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_CHANNELS_LAST, err));
    bool is_image =
        shape->rank == 4 && shape->dim[1] <= IMAGE_CHANNELS && o->node->op != IR_OP_SELECT;
    for (uint32_t i = 0; i < ARRAY_LEN(image) && is_image; i++)
        if (image[i] != IR_LAYOUT_CHANNELS_LAST_4 || shape->dim[1] <= 4)
            TRY(offer(o, dtype, IR_LAYOUT_PLAIN, image[i], err));
    return STATUS_OK;
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    struct offer o = {device, graph, node, visit, user};
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    /* A reformat's types and layouts are those that its tensors have. */
    if (node->op == IR_OP_REFORMAT)
        return offer(&o, DTYPE_NONE, ir_tensor(graph, node->inputs[0])->layout,
                     ir_tensor(graph, node->outputs[0])->layout, err);
    for (uint32_t i = 0; i < n; i++)
        TRY(offer_layouts(&o, dtypes[i], err));
    return STATUS_OK;
}

/* --- ops --- */

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct map_op *op = CONTAINER_OF(base, struct map_op, base);
    struct kernel_call call = own_call(stream, 0);
    bind(&op->map, op->node, inputs, outputs);
    cudaError_t code = run(&call, &op->map);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "elementwise kernel");
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct map_op made = {.base.launch = launch, .node = node};
    struct kernel_call call = own_call_dry(stream->device, 0);
    if (cuda_tactic_variant(tactic) != 0 || tactic->n_in < own_inputs(node->op) ||
        !map_read(graph, node, tactic, DTYPE_NONE, &made.map) ||
        run(&call, &made.map) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_map = {
    .id = CUDA_FAMILY_OWN_MAP,
    .candidates = candidates,
    .prepare = prepare,
};
