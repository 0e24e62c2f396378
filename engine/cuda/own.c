/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "engine/cuda/own.h"
#include "engine/stored.h"

const struct own_image_layout own_image_layouts[OWN_IMAGE_LAYOUTS] = {
    {IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_CHANNELS_LAST, "nhwc"},
    {IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_PLAIN, "nhwc to nchw"},
    {IR_LAYOUT_PLAIN, IR_LAYOUT_PLAIN, "nchw"},
};

bool own_view(const struct ir_tensor *tensor, enum dtype dtype, enum ir_layout layout,
              struct kernel_view *out)
{
    struct ir_tensor as = *tensor;
    as.layout = layout;
    as.dtype = own_type(as.dtype, dtype);
    return cuda_view(&as, out, NULL);
}

bool own_stored_output(const struct ir_graph *graph, const struct ir_node *node,
                       struct kernel_view *y)
{
    struct stored stored;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (cuda_input(graph, node, i) && cuda_input(graph, node, i)->scale != IR_NO_SCALE)
            return false;
    if (!stored_read(graph, node->outputs[0], &stored))
        return false;
    y->step = stored.step;
    y->zero = (float)stored.zero;
    return true;
}

void own_tactic(struct tactic *tactic, const struct cuda_family *family, uint32_t variant,
                const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                enum ir_layout in, enum ir_layout out, const char *detail)
{
    uint32_t rank = ir_tensor(graph, node->outputs[0])->shape.rank;
    cuda_tactic(tactic, family, variant, graph, node, dtype, IR_LAYOUT_PLAIN, detail);
    for (uint32_t i = ir_node_own_inputs(node); i < tactic->n_in; i++)
        if (node->inputs[i] != IR_NONE && ir_tensor(graph, node->inputs[i])->shape.rank == rank)
            tactic->in[i].format.layout = out;
    tactic->in[0].format.layout = in;
    tactic->out[0].format.layout = out;
}

struct kernel_step own_channel_step(const struct kernel_view *y, enum ir_binary func)
{
    struct kernel_step step = {.binary = 1, .func = (int32_t)func, .operand = *y};
    memset(step.operand.stride, 0, sizeof(step.operand.stride));
    step.operand.stride[1] = 1;
    step.operand.dtype = DTYPE_F32;
    step.operand.data = NULL;
    return step;
}

void own_view_add_height(struct kernel_view *view)
{
    view->dim[3] = view->dim[2];
    view->stride[3] = view->stride[2];
    view->dim[2] = 1;
    view->stride[2] = view->stride[3] * view->dim[3];
    view->rank = 4;
}

void own_window_add_height(struct kernel_window *w)
{
    w->spatial = 2;
    w->kernel[1] = w->kernel[0];
    w->stride[1] = w->stride[0];
    w->dilation[1] = w->dilation[0];
    w->pad[1] = w->pad[0];
    w->kernel[0] = w->stride[0] = w->dilation[0] = 1;
    w->pad[0] = 0;
}

void own_pair_images(const struct ir_node *node, const int64_t *x2, const int64_t *y,
                     struct kernel_images *out)
{
    int64_t strides[2] = {ir_attr_at(node, IR_ATTR_STRIDES, 0),
                          ir_attr_at(node, IR_ATTR_STRIDES, 1)};
    *out = (struct kernel_images){0};
    if (strides[0] == 1 && strides[1] == 1)
        return;
    *out = (struct kernel_images){
        .images = x2[0],
        .channels = x2[1],
        .in = {x2[2], x2[3]},
        .out = {y[2], y[3]},
        .kernel = {1, 1},
        .stride = {(int32_t)strides[0], (int32_t)strides[1]},
        .dilation = {1, 1},
    };
}

bool own_window_images(const struct kernel_window *window, const int64_t *x, const int64_t *y,
                       struct kernel_images *out)
{
    struct kernel_window w = *window;
    if (window->spatial > 2)
        return false;
    if (window->spatial == 1)
        own_window_add_height(&w);
    *out = (struct kernel_images){.images = x[0], .channels = x[1]};
    for (int32_t d = 0; d < 2; d++) {
        int32_t at = d + window->spatial; /* of x's dims; 1: it has no height */
        out->in[d] = at >= 2 ? x[at] : 1;
        out->out[d] = at >= 2 ? y[at] : 1;
        out->kernel[d] = w.kernel[d];
        out->stride[d] = w.stride[d];
        out->dilation[d] = w.dilation[d];
        out->pad[d] = w.pad[d];
    }
    return true;
}

bool own_is_deep(int64_t rows, int64_t cols, int64_t depth)
{
    enum { ROWS = 256, DEPTH = 1024 };
    return rows <= ROWS && depth >= DEPTH && depth >= 2 * cols;
}

static void op_free(struct backend_op *op)
{
    free(op);
}

bool own_packed(const struct tactic *tactic)
{
    for (uint32_t i = 0; i < tactic->n_in; i++)
        if (tactic->in[i].packed_bytes)
            return true;
    return false;
}

bool own_plain(const struct tactic *tactic)
{
    for (uint32_t i = 0; i < tactic->n_in; i++)
        if (tactic->in[i].format.layout != IR_LAYOUT_PLAIN)
            return false;
    for (uint32_t i = 0; i < tactic->n_out; i++)
        if (tactic->out[i].format.layout != IR_LAYOUT_PLAIN)
            return false;
    return !own_packed(tactic);
}

static int32_t capability_of(const struct cuda_device *device)
{
    return device->properties.major * 10 + device->properties.minor;
}

struct kernel_call own_call_dry(const struct cuda_device *device, int32_t variant)
{
    return (struct kernel_call){
        .dry = true,
        .variant = variant,
        .multiprocessors = device->properties.multiProcessorCount,
        .capability = capability_of(device),
        .shared = (int32_t)device->properties.sharedMemPerBlockOptin,
    };
}

struct kernel_call own_call(const struct backend_stream *stream, int32_t variant)
{
    struct kernel_call call = own_call_dry(stream->device, variant);
    call.dry = false;
    call.stream = stream->stream;
    return call;
}

enum status own_op_new(const struct backend_op *made, size_t size, struct backend_op **out,
                       struct error *err)
{
    struct backend_op *op = malloc(size);
    if (!op)
        return error_no_memory(err, "a kernel");
    memcpy(op, made, size);
    op->free = op_free;
    *out = op;
    return STATUS_OK;
}
