/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Interpolation, and reading of images at places that tensors name, by our own kernels, in
 * channels-last and plain layout. From channels-last they may write plain as well: the last layer
 * of a network that labels pixels makes a large image of few channels, which its caller wants
 * plain.
 *
 * Places that are FP32 stay so in every precision: 11 bits are too few for a coordinate. All
 * tensors of a node are stored as one type, so SAMPLE and ROI_POOL run in FP32 then.
 */
#include <stdio.h>

#include "base/compiler.h"
#include "engine/cuda/device.h"
#include "engine/cuda/own.h"

struct image {
    enum ir_op op;
    uint32_t n_in;
    struct kernel_resize resize;
    struct kernel_roi_pool roi;
    enum ir_resize mode; /* of SAMPLE, as the next two */
    enum ir_border border;
    enum ir_sample coord;
    struct kernel_view in[3], y;
    struct kernel_epilogue epilogue;
    int32_t *bad; /* ROI_POOL's flag for an image that is not there */
};

struct image_op {
    struct backend_op base;
    const struct ir_node *node;
    struct image image;
};

/* --- from a node to a kernel's arguments; the node was checked by ir_infer_node --- */

static void read_resize(const struct ir_node *node, struct image *image)
{
    const struct ir_attr *scales = ir_attr(node, IR_ATTR_SCALES), *roi = ir_attr(node, IR_ATTR_ROI);
    struct kernel_resize *how = &image->resize;
    *how = (struct kernel_resize){
        .mode = (enum ir_resize)ir_attr_int(node, IR_ATTR_MODE),
        .coord = (enum ir_coord)ir_attr_int(node, IR_ATTR_COORD),
        .nearest = (enum ir_nearest)ir_attr_int(node, IR_ATTR_NEAREST),
        .exclude_outside = ir_attr_int(node, IR_ATTR_EXCLUDE_OUTSIDE) != 0,
        .antialias = ir_attr_int(node, IR_ATTR_ANTIALIAS) != 0,
        .cubic_a = ir_attr_float(node, IR_ATTR_CUBIC_A),
        .value = ir_attr_float(node, IR_ATTR_VALUE),
    };
    for (int32_t d = 0; d < image->y.rank; d++) {
        how->scales[d] = (double)scales->f[d];
        how->roi_start[d] = roi ? (double)roi->f[d] : 0;
        how->roi_end[d] = roi ? (double)roi->f[image->y.rank + d] : 1;
    }
}

static void read_sample(const struct ir_node *node, struct image *image)
{
    image->mode = (enum ir_resize)ir_attr_int(node, IR_ATTR_MODE);
    image->border = (enum ir_border)ir_attr_int(node, IR_ATTR_BORDER);
    image->coord = (enum ir_sample)ir_attr_int(node, IR_ATTR_COORD);
}

static void read_roi_pool(const struct ir_node *node, struct image *image)
{
    image->roi = (struct kernel_roi_pool){
        .func = (enum ir_roi)ir_attr_int(node, IR_ATTR_FUNC),
        .half_pixel = ir_attr_int(node, IR_ATTR_COORD) != 0,
        .samples = (int32_t)ir_attr_int(node, IR_ATTR_SIZE),
        .scale = ir_attr_float(node, IR_ATTR_ALPHA),
    };
}

static const struct {
    void (*read)(const struct ir_node *node, struct image *image);
    uint32_t inputs;
} rows[IR_OP_COUNT_] = {
    [IR_OP_RESIZE] = {read_resize, 1},
    [IR_OP_SAMPLE] = {read_sample, 2},
    [IR_OP_ROI_POOL] = {read_roi_pool, 3},
};

/* `dtype` NONE: with the types that the tensors have. Inputs other than the first are plain. */
static bool image_read(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                       enum ir_layout in, enum ir_layout out, struct image *image)
{
    struct image i = {.op = node->op, .n_in = rows[node->op].inputs};
    if (ir_node_own_inputs(node) != i.n_in ||
        !own_view(ir_tensor(graph, node->outputs[0]), dtype, out, &i.y) ||
        !cuda_epilogue(graph, node, &i.y, &i.epilogue))
        return false;
    for (uint32_t k = 0; k < i.n_in; k++)
        if (!own_view(ir_tensor(graph, node->inputs[k]), dtype, k == 0 ? in : IR_LAYOUT_PLAIN,
                      &i.in[k]))
            return false;
    rows[node->op].read(node, &i);
    *image = i;
    return true;
}

static cudaError_t image_call(const struct kernel_call *call, const struct image *i)
{
    switch (i->op) {
    case IR_OP_SAMPLE:
        return kernel_sample(call, i->mode, i->border, i->coord, &i->in[0], &i->in[1], &i->y);
    case IR_OP_ROI_POOL:
        return kernel_roi_pool(call, &i->roi, &i->in[0], &i->in[1], &i->in[2], &i->y, i->bad);
    default:
        return kernel_resize(call, &i->resize, &i->in[0], &i->y, &i->epilogue);
    }
}

/* --- candidates --- */

/* The pair of layouts that is asked for first, which is taken without timing: channels last, unless
 * a pixel's channels are not whole vectors. Those of 21 classes took 114 us an image of 520x520 on
 * an H200 so, and 25 if planes are written. */
static uint32_t first_layout(const struct ir_tensor *y)
{
    uint64_t bytes = y->shape.rank >= 3 ? (uint64_t)y->shape.dim[1] * dtype_size(DTYPE_F16) : 16;
    for (uint32_t l = 0; bytes % 16 && l < OWN_IMAGE_LAYOUTS; l++)
        if (own_image_layouts[l].x == IR_LAYOUT_CHANNELS_LAST &&
            own_image_layouts[l].y == IR_LAYOUT_PLAIN)
            return l;
    return 0;
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    enum dtype dtypes[3];
    if (rows[node->op].inputs > 1)
        precision = PRECISION_F32;
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    bool channels = ir_tensor(graph, node->inputs[0])->shape.rank >= 3;
    uint32_t first = first_layout(ir_tensor(graph, node->outputs[0]));
    for (uint32_t at = 0; at < n * OWN_IMAGE_LAYOUTS; at++) {
        uint32_t d = at / OWN_IMAGE_LAYOUTS, l = (at + first) % OWN_IMAGE_LAYOUTS;
        struct kernel_call call = own_call_dry(device, 0);
        struct image image;
        struct tactic tactic;
        char detail[TACTIC_NAME_MAX];
        if ((!channels && own_image_layouts[l].x != IR_LAYOUT_PLAIN) ||
            !image_read(graph, node, dtypes[d], own_image_layouts[l].x, own_image_layouts[l].y,
                        &image) ||
            image_call(&call, &image) != cudaSuccess)
            continue;
        snprintf(detail, sizeof(detail), "%s %s", dtype_name((enum dtype)image.y.dtype),
                 own_image_layouts[l].name);
        own_tactic(&tactic, &cuda_family_own_image, 0, graph, node, dtypes[d],
                   own_image_layouts[l].x, own_image_layouts[l].y, detail);
        TRY(visit(user, &tactic, err));
    }
    return STATUS_OK;
}

/* --- running --- */

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct image_op *op = CONTAINER_OF(base, struct image_op, base);
    struct kernel_call call = own_call(stream, 0);
    for (uint32_t i = 0; i < op->image.n_in; i++)
        op->image.in[i].data = inputs[i];
    op->image.y.data = outputs[0];
    cuda_epilogue_bind(&op->image.epilogue, op->node, inputs);
    cudaError_t code = image_call(&call, &op->image);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "image kernel");
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct image_op made = {.base.launch = launch, .node = node};
    struct kernel_call call = own_call_dry(stream->device, 0);
    if (cuda_tactic_variant(tactic) != 0 || own_packed(tactic) ||
        !image_read(graph, node, DTYPE_NONE, ir_tensor(graph, node->inputs[0])->layout,
                    ir_tensor(graph, node->outputs[0])->layout, &made.image) ||
        image_call(&call, &made.image) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    if (made.image.op == IR_OP_ROI_POOL)
        TRY(cuda_stream_flag(stream, &made.image.bad, err));
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_image = {
    .id = CUDA_FAMILY_OWN_IMAGE,
    .candidates = candidates,
    .prepare = prepare,
};
