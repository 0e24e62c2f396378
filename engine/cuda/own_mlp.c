/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Chains of fully connected layers (MLP) by our own kernel, one launch for all of them. Weights and
 * biases are packed as the kernel has them in shared memory. Refused: chains whose weights are
 * computed, and in 16 bits those that do not fit a block's shared memory, which no pass makes.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/compiler.h"
#include "engine/cuda/own.h"
#include "engine/ir/ops.h"

struct mlp_op {
    struct backend_op base;
    int32_t variant;
    struct kernel_mlp mlp;
};

enum { X, WEIGHTS, BIAS };

/* The verifier has checked that each layer has its attributes. */
static bool read_layers(const struct ir_node *node, const struct shape *x, struct kernel_mlp *m)
{
    const struct ir_attr *widths = ir_attr(node, IR_ATTR_WIDTHS);
    const struct ir_attr *funcs = ir_attr(node, IR_ATTR_FUNCS);
    const struct ir_attr *alphas = ir_attr(node, IR_ATTR_ALPHAS);
    const struct ir_attr *betas = ir_attr(node, IR_ATTR_BETAS);
    if (x->dim[x->rank - 1] > MLP_WIDTH_MAX)
        return false;
    m->layers = (int32_t)widths->count;
    m->widths[0] = (int32_t)x->dim[x->rank - 1];
    for (uint32_t i = 0; i < widths->count; i++) {
        if (widths->i[i] > MLP_WIDTH_MAX)
            return false;
        m->widths[i + 1] = (int32_t)widths->i[i];
        m->funcs[i] = (int32_t)funcs->i[i];
        m->alphas[i] = alphas->f[i];
        m->betas[i] = betas->f[i];
        m->gammas[i] = ir_unary_row((enum ir_unary)funcs->i[i])->gamma;
    }
    return true;
}

/* In the type that a tactic of `dtype` gives the tensors. */
static bool read_mlp(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                     struct kernel_mlp *m)
{
    const struct ir_tensor *x = cuda_input(graph, node, X);
    size_t n, width;
    if (!x || node->n_inputs != 3 || node->n_outputs != 1 || node->n_epilogue ||
        !cuda_input(graph, node, WEIGHTS) || !cuda_input(graph, node, BIAS) ||
        !ir_tensor_is_constant(cuda_input(graph, node, WEIGHTS)) ||
        !ir_tensor_is_constant(cuda_input(graph, node, BIAS)) || !shape_elements(&x->shape, &n) ||
        n == 0)
        return false;
    *m = (struct kernel_mlp){.dtype = (int32_t)own_type(x->dtype, dtype)};
    if (!read_layers(node, &x->shape, m))
        return false;
    width = (size_t)m->widths[0];
    m->rows = (int64_t)(n / width);
    return true;
}

static uint32_t size_of(const struct kernel_mlp *m)
{
    return m->dtype == DTYPE_F32 ? 4 : 2;
}

/* --- tactics --- */

static bool fill(const struct ir_graph *graph, const struct ir_node *node,
                 const struct kernel_mlp *m, enum dtype dtype, int32_t variant,
                 struct tactic *tactic)
{
    char detail[TACTIC_NAME_MAX];
    struct mlp_room room;
    if (!mlp_room(m->widths, (uint32_t)m->layers, size_of(m), &room))
        return false;
    snprintf(detail, sizeof(detail), "%s rows %d", dtype_name((enum dtype)m->dtype),
             (int)kernel_mlp_rows(m->dtype, variant));
    cuda_tactic(tactic, &cuda_family_own_mlp, (uint32_t)variant, graph, node, dtype,
                IR_LAYOUT_PLAIN, detail);
    tactic_port_pack(&tactic->in[WEIGHTS], room.weights);
    tactic_port_pack(&tactic->in[BIAS], room.bias);
    return true;
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    for (uint32_t i = 0; i < n; i++) {
        struct kernel_mlp m;
        if (!read_mlp(graph, node, dtypes[i], &m))
            continue;
        for (int32_t v = 1; v <= KERNEL_MLP_VARIANTS; v++) {
            struct kernel_call call = own_call_dry(device, v);
            struct tactic tactic;
            if (kernel_mlp(&call, &m) == cudaSuccess &&
                fill(graph, node, &m, dtypes[i], v, &tactic))
                TRY(visit(user, &tactic, err));
        }
    }
    return STATUS_OK;
}

/* --- packing --- */

static void pack_weights(const struct kernel_mlp *m, const char *from, char *to)
{
    const uint32_t size = size_of(m);
    for (int32_t i = 0; i < m->layers; i++) {
        const int64_t depth = m->widths[i], width = m->widths[i + 1];
        for (int64_t k = 0; k < depth; k++)
            for (int64_t n = 0; n < width; n++)
                memcpy(to + kernel_mlp_at(size, depth, width, k, n) * size,
                       from + (k * width + n) * size, size);
        from += depth * width * size;
        to += mlp_padded(depth, size) * mlp_padded(width, size) * size;
    }
}

static void pack_bias(const struct kernel_mlp *m, const float *from, float *to)
{
    for (int32_t i = 0; i < m->layers; i++) {
        memcpy(to, from, (size_t)m->widths[i + 1] * sizeof(*to));
        from += m->widths[i + 1];
        to += mlp_padded(m->widths[i + 1], size_of(m));
    }
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    const struct ir_tensor *x = cuda_input(graph, node, X), *from = cuda_input(graph, node, input);
    const enum dtype dtype = tactic->in[X].format.dtype;
    const enum dtype stored = input == BIAS ? DTYPE_F32 : dtype;
    struct kernel_mlp m = {.dtype = (int32_t)dtype};
    struct mlp_room room;
    size_t n;
    if (!x || !from || (input != WEIGHTS && input != BIAS) ||
        (dtype != DTYPE_F16 && dtype != DTYPE_BF16 && dtype != DTYPE_F32) ||
        !read_layers(node, &x->shape, &m) ||
        !mlp_room(m.widths, (uint32_t)m.layers, size_of(&m), &room) ||
        tactic->in[input].packed_bytes != (input == BIAS ? room.bias : room.weights) ||
        !shape_elements(&from->shape, &n))
        return cuda_refuse(node, tactic, err);
    CLEANUP(cleanup_free) void *same = malloc(n * dtype_size(stored));
    if (!same)
        return error_no_memory(err, "CUDA");
    if (!cuda_constant_cast(from, stored, same, n))
        return cuda_refuse(node, tactic, err);
    memset(to, 0, tactic->in[input].packed_bytes);
    if (input == BIAS)
        pack_bias(&m, same, to);
    else
        pack_weights(&m, same, to);
    return STATUS_OK;
}

/* --- running --- */

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct mlp_op *op = CONTAINER_OF(base, struct mlp_op, base);
    struct kernel_call call = own_call(stream, op->variant);
    op->mlp.x = inputs[X];
    op->mlp.weights = inputs[WEIGHTS];
    op->mlp.bias = inputs[BIAS];
    op->mlp.y = outputs[0];
    cudaError_t code = kernel_mlp(&call, &op->mlp);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "kernel_mlp");
}

/* Whether the stored tactic is the one that would be offered. */
static bool is_offered(const struct tactic *tactic, const struct tactic *want)
{
    bool same = tactic->n_in == want->n_in && tactic->n_out == want->n_out;
    for (uint32_t i = 0; same && i < want->n_in; i++)
        same = tactic->in[i].packed_bytes == want->in[i].packed_bytes &&
               tactic->in[i].format.layout == want->in[i].format.layout;
    return same && tactic->out[0].format.layout == IR_LAYOUT_PLAIN &&
           tactic->in[X].format.dtype == tactic->out[0].format.dtype;
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct mlp_op made = {.base.launch = launch, .variant = (int32_t)cuda_tactic_variant(tactic)};
    struct kernel_call call = own_call_dry(stream->device, made.variant);
    struct tactic want;
    if (!read_mlp(graph, node, DTYPE_NONE, &made.mlp) ||
        kernel_mlp(&call, &made.mlp) != cudaSuccess ||
        !fill(graph, node, &made.mlp, DTYPE_NONE, made.variant, &want) ||
        !is_offered(tactic, &want))
        return cuda_refuse(node, tactic, err);
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_mlp = {
    .id = CUDA_FAMILY_OWN_MLP,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
};
