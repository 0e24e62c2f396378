/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Softmax, layer and batch normalisation and reductions by our own kernels. Scale and bias of the
 * normalisations are packed as fp32: broadcast to a row for layer normalisation, folded with mean
 * and variance for batch normalisation, which is then a multiplication and an addition per channel.
 * Layer normalisation may store its output in 8 bits by a scale, and of 16 bits in FP32. Refused:
 * scales that are no constants, tensors without elements.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/own.h"
#include "engine/stored.h"

struct rows {
    enum ir_op op;
    struct kernel_view x, y;
    struct kernel_epilogue epilogue;
    uint32_t first_step; /* of the node's own epilogue */
    int32_t axis, func, n_axes, axes[SHAPE_MAX_RANK];
    int64_t packed; /* floats of scale, and of bias; 0: none */
    float epsilon;
    bool log, rms, biased;
};

struct rows_op {
    struct backend_op base;
    const struct ir_node *node;
    struct rows rows;
};

static const struct ir_tensor *constant_of(const struct ir_graph *graph, const struct ir_node *node,
                                           uint32_t i)
{
    const struct ir_tensor *tensor =
        i < ir_node_own_inputs(node) ? cuda_input(graph, node, i) : NULL;
    return tensor && ir_tensor_is_constant(tensor) ? tensor : NULL;
}

/* --- the node as kernels take it --- */

static bool read_softmax(const struct ir_graph *graph, const struct ir_node *node, struct rows *r)
{
    r->axis = (int32_t)ir_attr_int(node, IR_ATTR_AXIS);
    r->log = ir_attr_int(node, IR_ATTR_LOG) != 0;
    return r->axis >= 0 && r->axis < r->x.rank && cuda_epilogue(graph, node, &r->y, &r->epilogue);
}

static bool read_layer_norm(const struct ir_graph *graph, const struct ir_node *node,
                            struct rows *r)
{
    r->axis = (int32_t)ir_attr_int(node, IR_ATTR_AXIS);
    r->epsilon = ir_attr_float(node, IR_ATTR_EPSILON);
    r->rms = ir_attr_int(node, IR_ATTR_RMS) != 0;
    r->biased = ir_node_own_inputs(node) > 2 && node->inputs[2] != IR_NONE;
    if (r->axis < 0 || r->axis >= r->x.rank || !constant_of(graph, node, 1) ||
        (r->biased && !constant_of(graph, node, 2)))
        return false;
    r->packed = 1;
    for (int32_t d = r->axis; d < r->x.rank; d++)
        r->packed *= r->x.dim[d];
    return cuda_epilogue(graph, node, &r->y, &r->epilogue);
}

static bool read_batch_norm(const struct ir_graph *graph, const struct ir_node *node,
                            struct rows *r)
{
    struct kernel_epilogue own;
    for (uint32_t i = 1; i < 5; i++)
        if (!constant_of(graph, node, i))
            return false;
    if (r->x.rank < 2 || !cuda_epilogue(graph, node, &r->y, &own) || own.n + 2 > KERNEL_STEPS_MAX)
        return false;
    r->packed = r->x.dim[1];
    r->biased = true;
    r->first_step = 2;
    r->epilogue.n = own.n + 2;
    r->epilogue.step[0] = own_channel_step(&r->y, IR_BINARY_MUL);
    r->epilogue.step[1] = own_channel_step(&r->y, IR_BINARY_ADD);
    memcpy(&r->epilogue.step[2], own.step, (size_t)own.n * sizeof(own.step[0]));
    return true;
}

/* Gives a view that lacks the reduced dims these dims back, with one element each. */
static void unsqueeze(struct kernel_view *view, int32_t rank, uint32_t reduced)
{
    struct kernel_view wide = *view;
    wide.rank = rank;
    for (int32_t d = 0, from = 0; d < rank; d++) {
        bool gone = reduced >> d & 1;
        wide.dim[d] = gone ? 1 : view->dim[from];
        wide.stride[d] = gone ? 0 : view->stride[from];
        from += !gone;
    }
    *view = wide;
}

static bool read_reduce(const struct ir_graph *graph, const struct ir_node *node, struct rows *r)
{
    const struct ir_attr *axes = ir_attr(node, IR_ATTR_AXES);
    uint32_t reduced = 0;
    r->func = (int32_t)ir_attr_int(node, IR_ATTR_FUNC);
    if (!axes || axes->count > SHAPE_MAX_RANK)
        return false;
    for (uint32_t i = 0; i < axes->count; i++) {
        if (axes->i[i] < 0 || axes->i[i] >= r->x.rank || reduced >> axes->i[i] & 1)
            return false;
        reduced |= 1U << axes->i[i];
        r->axes[r->n_axes++] = (int32_t)axes->i[i];
    }
    if (!cuda_epilogue(graph, node, &r->y, &r->epilogue))
        return false;
    if (ir_attr_int(node, IR_ATTR_KEEPDIMS))
        return true;
    if (r->y.rank + r->n_axes != r->x.rank)
        return false;
    unsqueeze(&r->y, r->x.rank, reduced);
    for (int32_t i = 0; i < r->epilogue.n; i++)
        if (r->epilogue.step[i].binary)
            unsqueeze(&r->epilogue.step[i].operand, r->x.rank, reduced);
    return true;
}

/* `dtype` NONE: with the types that the tensors have. */
static bool rows_read(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                      enum ir_layout in, enum ir_layout out, struct rows *to)
{
    struct rows r = {.op = node->op};
    if (!own_view(ir_tensor(graph, node->inputs[0]), dtype, in, &r.x) ||
        !own_view(ir_tensor(graph, node->outputs[0]), dtype, out, &r.y) ||
        !own_stored_output(graph, node, &r.y) || (r.y.step != 0 && node->op != IR_OP_LAYER_NORM))
        return false;
    for (int32_t d = 0; d < r.x.rank; d++)
        if (r.x.dim[d] == 0)
            return false;
    bool known = node->op == IR_OP_SOFTMAX      ? read_softmax(graph, node, &r)
                 : node->op == IR_OP_LAYER_NORM ? read_layer_norm(graph, node, &r)
                 : node->op == IR_OP_BATCH_NORM ? read_batch_norm(graph, node, &r)
                                                : read_reduce(graph, node, &r);
    if (known)
        *to = r;
    return known;
}

static cudaError_t rows_call(const struct kernel_call *call, const struct rows *r,
                             const float *scale, const float *bias)
{
    switch (r->op) {
    case IR_OP_SOFTMAX:
        return kernel_softmax(call, r->axis, r->log, &r->x, &r->y, &r->epilogue);
    case IR_OP_LAYER_NORM:
        return kernel_layer_norm(call, r->axis, r->rms, r->epsilon, &r->x, scale, bias, &r->y,
                                 &r->epilogue);
    case IR_OP_BATCH_NORM:
        return kernel_map(call, &r->x, &r->y, 0, &r->epilogue);
    default:
        return kernel_reduce(call, r->func, r->axes, r->n_axes, &r->x, &r->y, &r->epilogue);
    }
}

/* --- candidates --- */

static const struct {
    enum ir_layout x, y;
    const char *name;
} layouts[] = {
    {IR_LAYOUT_PLAIN, IR_LAYOUT_PLAIN, "plain"},
    {IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_CHANNELS_LAST, "nhwc"},
    {IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_PLAIN, "nhwc to plain"},
};

/* Layer normalisation is only over neighbours in memory. Only a reduction may write another layout
 * than it reads, and only if its output has no more than one pixel. */
static bool layouts_fit(const struct ir_graph *graph, const struct ir_node *node, uint32_t layout)
{
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    bool same = layouts[layout].x == layouts[layout].y, pixels = false;
    if (layouts[layout].x == IR_LAYOUT_PLAIN)
        return true;
    if (node->op == IR_OP_LAYER_NORM || x->rank < 3 || (same && y->rank != x->rank))
        return false;
    for (uint32_t d = 2; d < y->rank; d++)
        pixels = pixels || y->dim[d] > 1;
    return same || (node->op == IR_OP_REDUCE && !pixels);
}

struct offer {
    struct cuda_device *device;
    const struct ir_node *node;
    enum precision precision;
    tactic_visit visit;
    void *user;
};

static enum status offer_one(const struct offer *o, const struct ir_graph *graph, enum dtype dtype,
                             uint32_t layout, const struct rows *rows, struct error *err)
{
    struct kernel_call call = own_call_dry(o->device, 0);
    if (rows_call(&call, rows, NULL, NULL) != cudaSuccess)
        return STATUS_OK;
    char detail[TACTIC_NAME_MAX];
    bool same = rows->y.dtype == rows->x.dtype;
    snprintf(detail, sizeof(detail), "%s %s%s%s", dtype_name((enum dtype)rows->x.dtype),
             layouts[layout].name, same ? "" : " to ",
             same ? "" : dtype_name((enum dtype)rows->y.dtype));
    struct tactic tactic;
    own_tactic(&tactic, &cuda_family_own_rows, 1, graph, o->node, dtype, layouts[layout].x,
               layouts[layout].y, detail);
    stored_set_scales(&tactic, graph, o->node);
    if (rows->y.dtype == DTYPE_F32)
        tactic.out[0].format.dtype = DTYPE_F32;
    for (uint32_t i = 1; rows->packed && i <= 1U + rows->biased; i++)
        tactic_port_pack(&tactic.in[i], (uint64_t)rows->packed * sizeof(float));
    return o->visit(o->user, &tactic, err);
}

/* What a model gives is often such a node's, and FP32: then no conversion is needed behind it. */
static bool may_be_wide(const struct ir_graph *graph, const struct rows *rows,
                        const struct ir_node *node)
{
    return rows->op == IR_OP_LAYER_NORM && rows->y.step == 0 &&
           dtype_size((enum dtype)rows->y.dtype) == 2 &&
           ir_tensor(graph, node->outputs[0])->dtype == DTYPE_F32;
}

static enum status offer(void *user, const struct ir_graph *graph, struct error *err)
{
    const struct offer *o = user;
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, o->node, o->precision, dtypes);
    for (uint32_t at = 0; at < n * ARRAY_LEN(layouts); at++) {
        uint32_t d = at / ARRAY_LEN(layouts), l = at % ARRAY_LEN(layouts);
        struct rows rows;
        if (!layouts_fit(graph, o->node, l) ||
            !rows_read(graph, o->node, dtypes[d], layouts[l].x, layouts[l].y, &rows))
            continue;
        TRY(offer_one(o, graph, dtypes[d], l, &rows, err));
        if (!may_be_wide(graph, &rows, o->node))
            continue;
        rows.y.dtype = DTYPE_F32;
        TRY(offer_one(o, graph, dtypes[d], l, &rows, err));
    }
    return STATUS_OK;
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    struct offer o = {device, node, precision, visit, user};
    TRY(offer(&o, graph, err));
    return stored_each(graph, node, offer, &o, err);
}

/* --- packing --- */

/* Broadcasts the constant to dims axis..rank-1 of x, row-major. */
static enum status pack_row(const struct ir_tensor *constant, const struct shape *x, uint32_t axis,
                            float *to, struct error *err)
{
    size_t elements, row = 1;
    struct shape inner = {.rank = x->rank - axis};
    for (uint32_t d = axis; d < x->rank; d++)
        row *= (size_t)(inner.dim[d - axis] = x->dim[d]);
    if (!shape_elements(&constant->shape, &elements) || constant->shape.rank > inner.rank)
        return error_set(err, STATUS_INVALID_ARGUMENT, "a scale that does not broadcast");
    float *values = malloc(elements * sizeof(float) + 1);
    if (!values)
        return error_no_memory(err, "a kernel");
    bool known = cuda_constant_f32(constant, values, elements);
    uint32_t lead = inner.rank - constant->shape.rank;
    for (size_t i = 0; known && i < row; i++) {
        size_t rest = i, at = 0, step = 1;
        for (uint32_t d = inner.rank; d-- > lead;) {
            size_t index = rest % (size_t)inner.dim[d], dim = (size_t)constant->shape.dim[d - lead];
            rest /= (size_t)inner.dim[d];
            at += dim == 1 ? 0 : index * step;
            step *= dim;
        }
        known = at < elements;
        if (known)
            to[i] = values[at];
    }
    free(values);
    return known ? STATUS_OK
                 : error_set(err, STATUS_INVALID_ARGUMENT, "a scale that is no float constant");
}

/* Input 1 becomes scale / sqrt(var + epsilon), and input 2 bias - mean * scale / sqrt(var +
 * epsilon). */
static enum status pack_channels(const struct ir_graph *graph, const struct ir_node *node,
                                 uint32_t input, float *to, struct error *err)
{
    size_t n = (size_t)ir_tensor(graph, node->inputs[0])->shape.dim[1];
    double epsilon = (double)ir_attr_float(node, IR_ATTR_EPSILON);
    float *values = malloc(4 * n * sizeof(float) + 1);
    if (!values)
        return error_no_memory(err, "a kernel");
    bool known = true;
    for (uint32_t i = 0; i < 4; i++)
        known =
            known && cuda_constant_f32(ir_tensor(graph, node->inputs[i + 1]), values + i * n, n);
    for (size_t c = 0; known && c < n; c++) {
        double factor = (double)values[c] / sqrt((double)values[3 * n + c] + epsilon);
        to[c] = (float)(input == 1 ? factor
                                   : (double)values[n + c] - (double)values[2 * n + c] * factor);
    }
    free(values);
    return known
               ? STATUS_OK
               : error_set(err, STATUS_INVALID_ARGUMENT, "statistics that are no float constants");
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    const struct ir_tensor *constant = constant_of(graph, node, input);
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    bool channels = node->op == IR_OP_BATCH_NORM;
    int64_t axis = channels ? 1 : ir_attr_int(node, IR_ATTR_AXIS);
    uint64_t n = 1;
    for (int64_t d = axis; d >= 0 && d < (channels ? 2 : (int64_t)x->rank); d++)
        n *= (uint64_t)x->dim[d];
    if (!constant || input < 1 || input > 2 || axis < 0 || axis >= (int64_t)x->rank ||
        (!channels && node->op != IR_OP_LAYER_NORM) ||
        tactic->in[input].packed_bytes != n * sizeof(float))
        return cuda_refuse(node, tactic, err);
    if (channels)
        return pack_channels(graph, node, input, to, err);
    return pack_row(constant, x, (uint32_t)axis, to, err);
}

/* --- running --- */

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct rows_op *op = CONTAINER_OF(base, struct rows_op, base);
    struct rows *r = &op->rows;
    r->x.data = inputs[0];
    r->y.data = outputs[0];
    cuda_epilogue_bind(&r->epilogue, op->node, inputs);
    for (uint32_t i = 0; i < r->first_step; i++)
        r->epilogue.step[i].operand.data = inputs[i + 1];
    struct kernel_call call = own_call(stream, 0);
    cudaError_t code =
        rows_call(&call, r, r->packed ? inputs[1] : NULL, r->biased ? inputs[2] : NULL);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "row kernel");
}

/* Whether exactly those inputs are packed that have to be. */
static bool packed_fit(const struct tactic *tactic, const struct rows *r)
{
    for (uint32_t i = 0; i < tactic->n_in; i++) {
        bool wanted = r->packed && (i == 1 || (i == 2 && r->biased));
        if (tactic->in[i].packed_bytes != (wanted ? (uint64_t)r->packed * sizeof(float) : 0))
            return false;
    }
    return true;
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct rows_op made = {
        .base.launch = launch,
        .node = node,
    };
    struct kernel_call call = own_call_dry(stream->device, 0);
    bool same = ir_node_is_uniform(graph, node) || stored_any(graph, node);
    if ((!same && node->op != IR_OP_LAYER_NORM) ||
        !rows_read(graph, node, DTYPE_NONE, ir_tensor(graph, node->inputs[0])->layout,
                   ir_tensor(graph, node->outputs[0])->layout, &made.rows) ||
        !packed_fit(tactic, &made.rows) || rows_call(&call, &made.rows, NULL, NULL) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_rows = {
    .id = CUDA_FAMILY_OWN_ROWS,
    .scales = true,
    .casts = true,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
};
