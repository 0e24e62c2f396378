/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products and convolutions of 8-bit integers by constant INT8 weights, into INT32 sums, by our own
 * kernel: what MatMulInteger and ConvInteger become (engine/import/ops_qproduct.c). cuBLASLt has no
 * kernels for UINT8, which such models mostly have, and adds no bias to INT32 sums.
 *
 * The weights are packed as [groups, columns, depth], the depth filled up with zeros.
 */
#include <stdio.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/own.h"

struct product_op {
    struct backend_op base;
    struct kernel_product product;
    int32_t variant;
    bool biased;
};

static const struct ir_tensor *weights_of(const struct ir_graph *graph, const struct ir_node *node)
{
    const struct ir_tensor *w = cuda_input(graph, node, 1);
    return w && ir_tensor_is_constant(w) && w->dtype == DTYPE_I8 ? w : NULL;
}

static bool read_matmul(const struct ir_node *node, const struct shape *x, const struct shape *w,
                        struct kernel_product *p)
{
    bool swapped = ir_attr_int(node, IR_ATTR_TRANS_B) != 0;
    if (x->rank < 2 || w->rank != 2 || ir_attr_int(node, IR_ATTR_TRANS_A) ||
        ir_attr_float(node, IR_ATTR_ALPHA) != 1)
        return false;
    p->images = p->groups = p->rows = 1;
    for (uint32_t d = 0; d + 1 < x->rank; d++)
        p->rows *= x->dim[d];
    p->depth = x->dim[x->rank - 1];
    p->cols = w->dim[swapped ? 0 : 1];
    return true;
}

static bool read_conv(const struct ir_node *node, const struct shape *x, const struct shape *w,
                      const struct shape *y, struct kernel_product *p)
{
    bool even;
    if (x->rank < 3 || x->rank > 5 || w->rank != x->rank ||
        !own_conv_window_read(node, w, &p->window, &even))
        return false;
    p->images = x->dim[0];
    p->groups = ir_attr_int(node, IR_ATTR_GROUP);
    p->cols = w->dim[0] / p->groups;
    p->depth = w->dim[1];
    p->rows = 1;
    for (uint32_t d = 0; d + 2 < x->rank; d++) {
        p->in[d] = x->dim[2 + d];
        p->out[d] = y->dim[2 + d];
        p->rows *= y->dim[2 + d];
        p->depth *= w->dim[2 + d];
    }
    return true;
}

/* The depth of all products together is that of the weights, so nothing here overflows. */
static bool read_product(const struct ir_graph *graph, const struct ir_node *node,
                         struct product_op *op)
{
    const struct ir_tensor *x = cuda_input(graph, node, 0), *w = weights_of(graph, node);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    const struct ir_tensor *bias = cuda_input(graph, node, 2);
    size_t n;
    if (!x || !w || node->n_epilogue || node->n_outputs != 1 || y->dtype != DTYPE_I32 ||
        (x->dtype != DTYPE_I8 && x->dtype != DTYPE_U8) || (bias && bias->dtype != DTYPE_I32) ||
        x->format.scale != IR_NO_SCALE || !shape_elements(&y->shape, &n) || n == 0)
        return false;
    op->product = (struct kernel_product){.is_signed = x->dtype == DTYPE_I8};
    op->biased = bias != NULL;
    return node->op == IR_OP_CONV ? read_conv(node, &x->shape, &w->shape, &y->shape, &op->product)
                                  : read_matmul(node, &x->shape, &w->shape, &op->product);
}

static uint64_t packed_bytes(const struct kernel_product *p)
{
    return (uint64_t)(p->groups * p->cols) * (uint64_t)kernel_product_depth(p->depth);
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision UNUSED,
                              tactic_visit visit, void *user, struct error *err)
{
    static const int32_t sides[] = {0, 128, 64, 32};
    struct product_op op;
    if (!read_product(graph, node, &op))
        return STATUS_OK;
    for (int32_t v = 0; v <= KERNEL_PRODUCT_VARIANTS; v++) { /* 0: what the kernel chooses */
        struct kernel_call call = own_call_dry(device, v);
        struct tactic tactic;
        char detail[TACTIC_NAME_MAX];
        const char *type = dtype_name(op.product.is_signed ? DTYPE_I8 : DTYPE_U8);
        if (kernel_product_bytes(&call, &op.product, NULL, NULL, NULL, NULL) != cudaSuccess)
            continue;
        if (v)
            snprintf(detail, sizeof(detail), "%dx%d %s", (int)sides[v], (int)sides[v], type);
        else
            snprintf(detail, sizeof(detail), "%s", type);
        cuda_tactic(&tactic, &cuda_family_own_product, (uint32_t)v, graph, node, DTYPE_NONE,
                    IR_LAYOUT_PLAIN, detail);
        tactic_port_pack(&tactic.in[1], packed_bytes(&op.product));
        TRY(visit(user, &tactic, err));
    }
    return STATUS_OK;
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    const struct ir_tensor *w = weights_of(graph, node);
    struct product_op op;
    if (input != 1 || !w || !read_product(graph, node, &op) ||
        tactic->in[1].packed_bytes != packed_bytes(&op.product))
        return cuda_refuse(node, tactic, err);
    const struct kernel_product *p = &op.product;
    bool columns = node->op == IR_OP_MATMUL && !ir_attr_int(node, IR_ATTR_TRANS_B);
    int64_t all = p->groups * p->cols, packed = kernel_product_depth(p->depth);
    const int8_t *from = w->data;
    memset(to, 0, packed_bytes(p));
    for (int64_t c = 0; c < all; c++)
        for (int64_t k = 0; k < p->depth; k++)
            ((int8_t *)to)[c * packed + k] = from[columns ? k * all + c : c * p->depth + k];
    return STATUS_OK;
}

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    const struct product_op *op = CONTAINER_OF(base, struct product_op, base);
    struct kernel_call call = own_call(stream, op->variant);
    cudaError_t code = kernel_product_bytes(&call, &op->product, inputs[0], inputs[1],
                                            op->biased ? inputs[2] : NULL, outputs[0]);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "product of bytes");
}

static bool ports_fit(const struct tactic *tactic, const struct kernel_product *p)
{
    bool fit = tactic->n_in >= 2 && tactic->n_out == 1 && !tactic->out[0].packed_bytes &&
               tactic->out[0].format.layout == IR_LAYOUT_PLAIN &&
               tactic->in[1].packed_bytes == packed_bytes(p);
    for (uint32_t i = 0; fit && i < tactic->n_in; i++)
        fit = i == 1 ||
              (tactic->in[i].format.layout == IR_LAYOUT_PLAIN && !tactic->in[i].packed_bytes);
    return fit;
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct product_op made = {.base.launch = launch,
                              .variant = (int32_t)cuda_tactic_variant(tactic)};
    struct kernel_call call = own_call_dry(stream->device, made.variant);
    if (!read_product(graph, node, &made) || !ports_fit(tactic, &made.product) ||
        kernel_product_bytes(&call, &made.product, NULL, NULL, NULL, NULL) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_product = {
    .id = CUDA_FAMILY_OWN_PRODUCT,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
};
