/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QUANTIZE and DEQUANTIZE by our own kernels, in plain and channels-last layout. Constant scales
 * and zero points are packed as fp32, so that they stay what they are where floats have 16 bits.
 */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/own.h"

enum { SCALE = 1, ZERO = 2 }; /* inputs */

struct quant {
    bool back; /* DEQUANTIZE */
    struct kernel_view x, y, scale, zero;
    bool has_zero;
};

struct quant_op {
    struct backend_op base;
    struct quant quant;
};

static const enum ir_layout layouts[] = {IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_PLAIN};

static uint64_t packed_bytes(const struct ir_graph *graph, const struct ir_node *node, uint32_t i)
{
    const struct ir_tensor *t =
        i < SCALE || node->inputs[i] == IR_NONE ? NULL : ir_tensor(graph, node->inputs[i]);
    size_t n;
    return t && ir_tensor_is_constant(t) && shape_elements(&t->shape, &n) ? n * sizeof(float) : 0;
}

/* A scale or zero point as a view of y's dims: packed as fp32, or as it is. */
static bool read_operand(const struct ir_graph *graph, const struct ir_node *node, uint32_t i,
                         const struct quant *q, struct kernel_view *out)
{
    const struct ir_tensor *t = ir_tensor(graph, node->inputs[i]);
    int64_t axis = ir_attr_int(node, IR_ATTR_AXIS);
    bool constant = ir_tensor_is_constant(t);
    if (!constant && t->layout != IR_LAYOUT_PLAIN)
        return false;
    *out = q->y;
    out->dtype = constant ? (int32_t)DTYPE_F32 : (int32_t)t->dtype;
    for (int32_t d = 0; d < out->rank; d++)
        out->stride[d] = d == axis && t->shape.rank == 1 && t->shape.dim[0] > 1;
    return true;
}

/* `dtype` NONE: with the types that the tensors have. */
static bool quant_read(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                       enum ir_layout layout, struct quant *out)
{
    struct quant q = {.back = node->op == IR_OP_DEQUANTIZE,
                      .has_zero = node->n_inputs > ZERO && node->inputs[ZERO] != IR_NONE};
    const struct ir_tensor *scale = ir_tensor(graph, node->inputs[SCALE]);
    bool shorter = dtype == DTYPE_F16 || dtype == DTYPE_BF16;
    if (ir_tensor_type(scale) != DTYPE_F32 || (shorter && !ir_tensor_is_constant(scale)) ||
        !own_view(ir_tensor(graph, node->inputs[0]), dtype, layout, &q.x) ||
        !own_view(ir_tensor(graph, node->outputs[0]), dtype, layout, &q.y) ||
        !read_operand(graph, node, SCALE, &q, &q.scale) ||
        (q.has_zero && !read_operand(graph, node, ZERO, &q, &q.zero)))
        return false;
    *out = q;
    return true;
}

static cudaError_t quant_call(const struct kernel_call *call, const struct quant *q)
{
    const struct kernel_view *zero = q->has_zero ? &q->zero : NULL;
    return q->back ? kernel_dequantise(call, &q->x, &q->scale, zero, &q->y)
                   : kernel_quantise(call, &q->x, &q->scale, zero, &q->y);
}

/* --- candidates --- */

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    bool channels = ir_tensor(graph, node->inputs[0])->shape.rank >= 3;
    for (uint32_t at = 0; at < n * ARRAY_LEN(layouts); at++) {
        enum dtype dtype = dtypes[at / ARRAY_LEN(layouts)];
        enum ir_layout layout = layouts[at % ARRAY_LEN(layouts)];
        struct kernel_call call = own_call_dry(device, 0);
        struct quant quant;
        struct tactic tactic;
        char detail[TACTIC_NAME_MAX];
        if ((!channels && layout != IR_LAYOUT_PLAIN) ||
            !quant_read(graph, node, dtype, layout, &quant) ||
            quant_call(&call, &quant) != cudaSuccess)
            continue;
        snprintf(detail, sizeof(detail), "%s to %s %s", dtype_name((enum dtype)quant.x.dtype),
                 dtype_name((enum dtype)quant.y.dtype), ir_layout_name(layout));
        own_tactic(&tactic, &cuda_family_own_quant, 0, graph, node, dtype, layout, layout, detail);
        for (uint32_t i = SCALE; i < node->n_inputs; i++)
            if (packed_bytes(graph, node, i))
                tactic_port_pack(&tactic.in[i], packed_bytes(graph, node, i));
        TRY(visit(user, &tactic, err));
    }
    return STATUS_OK;
}

static float number_at(const struct ir_tensor *t, size_t i)
{
    const char *at = (const char *)t->data + i * dtype_size(t->dtype);
    int32_t wide;
    int16_t half;
    switch (t->dtype) {
    case DTYPE_U8:
        return (float)*(const uint8_t *)at;
    case DTYPE_I8:
        return (float)*(const int8_t *)at;
    case DTYPE_U16:
        memcpy(&half, at, sizeof(half));
        return (float)(uint16_t)half;
    case DTYPE_I16:
        memcpy(&half, at, sizeof(half));
        return (float)half;
    default:
        memcpy(&wide, at, sizeof(wide));
        return (float)wide;
    }
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    uint64_t bytes = packed_bytes(graph, node, input);
    const struct ir_tensor *t = ir_tensor(graph, node->inputs[input]);
    if (bytes == 0 || tactic->in[input].packed_bytes != bytes)
        return cuda_refuse(node, tactic, err);
    if (dtype_is_float(t->dtype))
        return cuda_constant_f32(t, to, bytes / sizeof(float)) ? STATUS_OK
                                                               : cuda_refuse(node, tactic, err);
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        ((float *)to)[i] = number_at(t, i);
    return STATUS_OK;
}

/* --- running --- */

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct quant_op *op = CONTAINER_OF(base, struct quant_op, base);
    struct kernel_call call = own_call(stream, 0);
    op->quant.x.data = inputs[0];
    op->quant.scale.data = inputs[SCALE];
    if (op->quant.has_zero)
        op->quant.zero.data = inputs[ZERO];
    op->quant.y.data = outputs[0];
    cudaError_t code = quant_call(&call, &op->quant);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "quantisation kernel");
}

static bool packed_fit(const struct ir_graph *graph, const struct ir_node *node,
                       const struct tactic *tactic)
{
    bool fit = true;
    for (uint32_t i = 0; i < tactic->n_in; i++)
        fit = fit && tactic->in[i].packed_bytes == packed_bytes(graph, node, i);
    return fit;
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct quant_op made = {.base.launch = launch};
    struct kernel_call call = own_call_dry(stream->device, 0);
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    if ((tactic->id & 0xffff) != 0 || !packed_fit(graph, node, tactic) ||
        x->layout != ir_tensor(graph, node->outputs[0])->layout ||
        !quant_read(graph, node, DTYPE_NONE, x->layout, &made.quant) ||
        quant_call(&call, &made.quant) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_quant = {
    .id = CUDA_FAMILY_OWN_QUANT,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
};
