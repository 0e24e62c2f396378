/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes of which some tensors are stored in 8 bits by scales, by our own kernels: elementwise
 * functions, sums with their activation, casts of bytes, pooling, and reformats from, to and
 * between 8 bits. Tensors that only move are own_move.c's.
 *
 * A quantisation whose real tensor is stored in 8 bits is such a chain, too. Its scale and zero
 * point are constants of one element, which the tactic's blob keeps.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/own.h"
#include "engine/stored.h"

enum { SCALE = 1, ZERO = 2 }; /* inputs of QUANTIZE and DEQUANTIZE */

/* The integers of QUANTIZE and DEQUANTIZE. */
struct pair {
    float step, zero;
};

struct bytes {
    enum ir_op op;
    struct kernel_view x, y;
    struct kernel_epilogue steps; /* the node's own function first, if it has one */
    bool moves;                   /* the bytes stay what they are */
    bool average, count_pad;      /* of POOL, with the window: */
    struct kernel_window window;
};

struct bytes_op {
    struct backend_op base;
    const struct ir_node *node;
    struct bytes bytes;
};

/* --- from a node to views --- */

static bool side_view(const struct ir_graph *graph, uint32_t id, enum dtype dtype,
                      enum ir_layout layout, struct kernel_view *out)
{
    struct stored stored;
    if (!stored_read(graph, id, &stored) || !own_view(ir_tensor(graph, id), dtype, layout, out))
        return false;
    out->step = stored.step;
    out->zero = (float)stored.zero;
    return true;
}

static bool read_unary(const struct ir_node *node, struct bytes *b)
{
    struct kernel_step *step = &b->steps.step[0];
    int64_t func = ir_attr_int(node, IR_ATTR_FUNC);
    if (func < 0 || func >= IR_UNARY_COUNT_ || func == IR_UNARY_NOT || func == IR_UNARY_IS_NAN ||
        func == IR_UNARY_IS_INF || func == IR_UNARY_BITWISE_NOT)
        return false;
    step->func = (int32_t)func;
    ir_unary_constants(node, &step->alpha, &step->beta, &step->gamma);
    b->steps.n = func != IR_UNARY_IDENTITY;
    return true;
}

static bool read_binary(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                        enum ir_layout layout, struct bytes *b)
{
    struct kernel_view other;
    int64_t func = ir_attr_int(node, IR_ATTR_FUNC);
    if (func < 0 || func > IR_BINARY_PRELU ||
        !side_view(graph, node->inputs[1], dtype, layout, &other))
        return false;
    b->steps.n = 1;
    b->steps.step[0] = (struct kernel_step){.binary = 1, .func = (int32_t)func};
    return cuda_view_broadcast(&other, &b->y, &b->steps.step[0].operand);
}

static bool read_pool(const struct ir_node *node, struct bytes *b)
{
    int64_t func = ir_attr_int(node, IR_ATTR_FUNC);
    b->average = func == IR_POOL_AVERAGE;
    b->count_pad = ir_attr_int(node, IR_ATTR_COUNT_INCLUDE_PAD) != 0;
    return (b->average || func == IR_POOL_MAX) && !node->n_epilogue && b->x.rank >= 3 &&
           b->x.rank <= 5 && own_window_read(node, (uint32_t)b->x.rank - 2, &b->window);
}

static bool read_quant(const struct ir_node *node, const struct pair *pair, struct bytes *b)
{
    struct kernel_view *integers = node->op == IR_OP_QUANTIZE ? &b->y : &b->x;
    integers->step = pair->step;
    integers->zero = pair->zero;
    return pair->step > 0 && isfinite(pair->step) && rintf(pair->zero) == pair->zero &&
           pair->zero >= INT8_MIN && pair->zero <= UINT8_MAX &&
           (integers->dtype == DTYPE_I8 || integers->dtype == DTYPE_U8);
}

static bool read_own(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                     enum ir_layout other, const struct pair *pair, struct bytes *b)
{
    switch (node->op) {
    case IR_OP_UNARY:
        return read_unary(node, b);
    case IR_OP_BINARY:
        return read_binary(graph, node, dtype, other, b);
    case IR_OP_POOL:
        return read_pool(node, b);
    case IR_OP_QUANTIZE:
    case IR_OP_DEQUANTIZE:
        return read_quant(node, pair, b);
    default:
        return node->op == IR_OP_CAST || node->op == IR_OP_REFORMAT;
    }
}

/* `dtype` NONE: with the types that the tensors have. Inputs lie as the tactic says. */
static bool bytes_read(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                       const struct tactic *tactic, const struct pair *pair, struct bytes *out)
{
    struct bytes b = {.op = node->op};
    struct kernel_epilogue tail;
    enum ir_layout to = tactic->out[0].format.layout;
    bool padded = to == IR_LAYOUT_CHANNELS_LAST_4 || to == IR_LAYOUT_CHANNELS_LAST_8;
    if (node->n_outputs != 1 || tactic->n_in == 0 || node->inputs[0] == IR_NONE || padded ||
        !side_view(graph, node->outputs[0], dtype, to, &b.y) ||
        !side_view(graph, node->inputs[0], dtype, tactic->in[0].format.layout, &b.x) ||
        !read_own(graph, node, dtype, tactic->in[MIN(1U, tactic->n_in - 1)].format.layout, pair,
                  &b) ||
        !cuda_epilogue(graph, node, &b.y, &tail) || b.steps.n + tail.n > KERNEL_STEPS_MAX)
        return false;
    for (int32_t i = 0; i < tail.n; i++)
        b.steps.step[b.steps.n++] = tail.step[i];
    b.moves = node->op == IR_OP_REFORMAT && stored_moves(graph, node);
    if (node->op != IR_OP_POOL && !cuda_view_broadcast(&b.x, &b.y, &b.x))
        return false;
    *out = b;
    return true;
}

static cudaError_t bytes_call(const struct kernel_call *call, const struct bytes *b)
{
    if (b->op == IR_OP_POOL)
        return kernel_bytes_pool(call, b->average, b->count_pad, &b->window, &b->x, &b->y);
    return b->moves ? kernel_map(call, &b->x, &b->y, 0, &b->steps)
                    : kernel_bytes(call, &b->x, &b->y, &b->steps);
}

/* --- candidates --- */

struct offer {
    struct cuda_device *device;
    const struct ir_node *node;
    enum precision precision;
    tactic_visit visit;
    void *user;
};

/* Reads the one scale and zero point of QUANTIZE and DEQUANTIZE. */
static bool read_pair(const struct ir_graph *graph, const struct ir_node *node, struct pair *out)
{
    const struct ir_tensor *scale = cuda_input(graph, node, SCALE);
    const struct ir_tensor *zero = cuda_input(graph, node, ZERO);
    size_t n = 0, n_zero = 1;
    *out = (struct pair){1, 0};
    if (node->op != IR_OP_QUANTIZE && node->op != IR_OP_DEQUANTIZE)
        return true;
    if (!scale || !shape_elements(&scale->shape, &n) || n != 1 ||
        !cuda_constant_f32(scale, &out->step, 1))
        return false;
    if (!zero)
        return true;
    if (!ir_tensor_is_constant(zero) || !shape_elements(&zero->shape, &n_zero) || n_zero != 1 ||
        (zero->dtype != DTYPE_I8 && zero->dtype != DTYPE_U8))
        return false;
    out->zero = zero->dtype == DTYPE_I8 ? (float)*(const int8_t *)zero->data
                                        : (float)*(const uint8_t *)zero->data;
    return true;
}

static enum status offer_one(const struct offer *o, const struct ir_graph *graph, enum dtype dtype,
                             enum ir_layout from, enum ir_layout to, struct error *err)
{
    const struct ir_node *node = o->node;
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    struct kernel_call call = own_call_dry(o->device, 0);
    struct tactic tactic;
    struct bytes bytes;
    struct pair pair;
    char detail[TACTIC_NAME_MAX];
    if (!read_pair(graph, node, &pair))
        return STATUS_OK;
    snprintf(detail, sizeof(detail), "%s to %s %s",
             dtype_name(own_type(ir_tensor(graph, node->inputs[0])->dtype, dtype)),
             dtype_name(own_type(y->dtype, dtype)), ir_layout_name(to));
    own_tactic(&tactic, &cuda_family_own_bytes, 0, graph, node, dtype, from, to, detail);
    for (uint32_t i = 1; i < tactic.n_in; i++)
        if (cuda_input(graph, node, i) &&
            shape_equal(&cuda_input(graph, node, i)->shape, &y->shape))
            tactic.in[i].format.layout = to;
    if (node->op == IR_OP_QUANTIZE || node->op == IR_OP_DEQUANTIZE)
        tactic.in[SCALE].format.dtype = cuda_input(graph, node, SCALE)->dtype;
    stored_set_scales(&tactic, graph, node);
    memcpy(tactic.blob, &pair, sizeof(pair));
    tactic.blob_size = sizeof(pair);
    if (!bytes_read(graph, node, dtype, &tactic, &pair, &bytes) ||
        bytes_call(&call, &bytes) != cudaSuccess)
        return STATUS_OK;
    return o->visit(o->user, &tactic, err);
}

/* Offers the layouts for a graph that has some of the node's tensors in 8 bits. */
static enum status offer_stored(void *user, const struct ir_graph *graph, struct error *err)
{
    const struct offer *o = user;
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, o->node, o->precision, dtypes);
    bool channels = ir_tensor(graph, o->node->inputs[0])->shape.rank >= 3 &&
                    ir_tensor(graph, o->node->outputs[0])->shape.rank >= 3;
    for (uint32_t i = 0; i < n; i++) {
        if (channels)
            TRY(offer_one(o, graph, dtypes[i], IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_CHANNELS_LAST,
                          err));
        TRY(offer_one(o, graph, dtypes[i], IR_LAYOUT_PLAIN, IR_LAYOUT_PLAIN, err));
    }
    return STATUS_OK;
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    struct offer o = {device, node, precision, visit, user};
    if (node->n_inputs == 0 || node->inputs[0] == IR_NONE || node->n_outputs != 1)
        return STATUS_OK;
    if (node->op != IR_OP_REFORMAT)
        return stored_each(graph, node, offer_stored, &o, err);
    if (!stored_any(graph, node))
        return STATUS_OK;
    return offer_one(&o, graph, DTYPE_NONE, ir_tensor(graph, node->inputs[0])->layout,
                     ir_tensor(graph, node->outputs[0])->layout, err);
}

/* --- ops --- */

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct bytes_op *op = CONTAINER_OF(base, struct bytes_op, base);
    struct kernel_call call = own_call(stream, 0);
    op->bytes.x.data = inputs[0];
    op->bytes.y.data = outputs[0];
    if (op->node->op == IR_OP_BINARY)
        op->bytes.steps.step[0].operand.data = inputs[1];
    cuda_epilogue_bind(&op->bytes.steps, op->node, inputs);
    cudaError_t code = bytes_call(&call, &op->bytes);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "kernel of bytes");
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct bytes_op made = {.base.launch = launch, .node = node};
    struct kernel_call call = own_call_dry(stream->device, 0);
    struct pair pair;
    if (cuda_tactic_variant(tactic) != 0 || tactic->blob_size != sizeof(pair) ||
        own_packed(tactic) || !stored_any(graph, node))
        return cuda_refuse(node, tactic, err);
    memcpy(&pair, tactic->blob, sizeof(pair));
    if (!bytes_read(graph, node, DTYPE_NONE, tactic, &pair, &made.bytes) ||
        bytes_call(&call, &made.bytes) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_bytes = {
    .id = CUDA_FAMILY_OWN_BYTES,
    .scales = true,
    .candidates = candidates,
    .prepare = prepare,
};
