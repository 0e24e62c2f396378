/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A 1x1 convolution as a product: with channels last, the pixels of all images are the rows of A,
 * the weights [M, C, 1, 1] are B as [N, K], and each row of Y is a pixel. Refused: strides,
 * padding, groups; a convolution over padded channels (CHANNELS_LAST_8). Our own kernels for Hopper
 * read windows, too, and so any convolution of one group as a product.
 */
#include "base/compiler.h"
#include "engine/cuda/lt.h"

bool lt_is_pointwise(const struct ir_node *node, const struct shape *x, const struct shape *w)
{
    uint32_t spatial = x->rank - 2;
    if (ir_attr_int(node, IR_ATTR_GROUP) != 1)
        return false;
    for (uint32_t i = 0; i < spatial; i++)
        if (w->dim[2 + i] != 1 || ir_attr_at(node, IR_ATTR_STRIDES, i) != 1 ||
            ir_attr_at(node, IR_ATTR_PADS, i) != 0 ||
            ir_attr_at(node, IR_ATTR_PADS, spatial + i) != 0)
            return false;
    return true;
}

static bool read_types(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                       bool exact, enum lt_order order, struct lt_product *p)
{
    const struct ir_tensor *x = cuda_input(graph, node, 0), *w = cuda_input(graph, node, 1);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    p->dtype = dtype == DTYPE_NONE ? y->dtype : dtype;
    return x && w && x->shape.rank >= 3 && w->shape.rank == x->shape.rank &&
           y->shape.rank == x->shape.rank && order != LT_AS_IS && ir_tensor_is_constant(w) &&
           dtype_is_float(w->dtype) &&
           (p->dtype == DTYPE_F16 || p->dtype == DTYPE_BF16 || p->dtype == DTYPE_F32) &&
           lt_type(y, dtype, exact) == p->dtype && lt_type(x, dtype, exact) == p->dtype;
}

bool lt_conv_read_windows(const struct ir_graph *graph, const struct ir_node *node,
                          enum dtype dtype, bool exact, enum lt_order order, struct lt_product *out)
{
    struct lt_product p = {.alpha = 1, .batch = {.n = 1}, .launches = 1};
    if (node->op != IR_OP_CONV || ir_attr_int(node, IR_ATTR_GROUP) != 1 ||
        !read_types(graph, node, dtype, exact, order, &p))
        return false;
    const struct shape *w = &cuda_input(graph, node, 1)->shape;
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    size_t x_n, w_n, y_n;
    if (!shape_elements(&cuda_input(graph, node, 0)->shape, &x_n) || !shape_elements(w, &w_n) ||
        !shape_elements(y, &y_n) || x_n == 0 || w_n == 0 || y_n == 0)
        return false;
    p.n = y->dim[1];
    p.k = (int64_t)w_n / p.n;
    p.m = (int64_t)y_n / p.n;
    p.b_elements = w_n;
    p.trans_b = order == LT_PACKED_NK;
    p.axis = 1;
    if (!lt_steps_read(graph, node, 2, dtype, exact, &p))
        return false;
    *out = p;
    return true;
}

static bool read_product(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                         bool exact, enum lt_order order, struct lt_product *out)
{
    const struct ir_tensor *x = cuda_input(graph, node, 0), *w = cuda_input(graph, node, 1);
    return node->op == IR_OP_CONV && x && w && w->shape.rank == x->shape.rank &&
           lt_is_pointwise(node, &x->shape, &w->shape) &&
           lt_conv_read_windows(graph, node, dtype, exact, order, out);
}

const struct lt_kind lt_kind_conv = {
    .family = &cuda_family_lt_conv, .layout = IR_LAYOUT_CHANNELS_LAST, .read = read_product};

/* --- the family --- */

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    return lt_gemm_candidates(&lt_kind_conv, device, graph, node, precision, visit, user, err);
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    return lt_gemm_pack(&lt_kind_conv, graph, node, tactic, input, to, err);
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    return lt_gemm_prepare(&lt_kind_conv, stream, graph, node, tactic, out, err);
}

/* Few pixels, as in gates of squeeze-excite: with other activations than ReLU cuDNN's kernel is one
 * for all shapes, which takes 14 us of one image on an H200, twice of what products take. And
 * channels that are no whole vectors of 16 bytes: cuDNN took 37 us for each 1x1 convolution of
 * ShuffleNet's 116 channels, and half of the time of 32 images. */
static bool leads(const struct cuda_device *device UNUSED, const struct ir_graph *graph,
                  const struct ir_node *node)
{
    enum { PIXELS = 64, VECTOR = 8 };
    const struct ir_tensor *x = cuda_input(graph, node, 0), *w = cuda_input(graph, node, 1);
    if (!x || !w || !lt_is_pointwise(node, &x->shape, &w->shape))
        return false;
    if (w->shape.dim[0] % VECTOR || w->shape.dim[1] % VECTOR)
        return w->shape.dim[1] > VECTOR; /* fewer belong to images */
    int64_t pixels = x->shape.dim[0];
    for (uint32_t d = 2; d < x->shape.rank && pixels <= PIXELS; d++)
        pixels *= x->shape.dim[d];
    return cuda_has_curve(node) && pixels <= PIXELS;
}

const struct cuda_family cuda_family_lt_conv = {
    .id = CUDA_FAMILY_LT_CONV,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
    .leads = leads,
};
