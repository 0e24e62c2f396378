/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by our own kernels. Queries, keys and values, apart or in one tensor, are read where
 * the matrix products before the node left them. The variants of kernel_attention are tactics of
 * their own; which is best depends on batch, heads and length, so they are timed.
 */
#include <stdio.h>

#include "base/compiler.h"
#include "engine/cuda/own.h"

struct attention {
    struct kernel_view q, k, v, mask, y;
    bool packed, masked;
    float scale;
    uint64_t k_offset, v_offset; /* bytes, within the packed tensor */
};

struct attention_op {
    struct backend_op base;
    int32_t variant;
    struct attention at;
};

static const struct {
    const char *name;
    int32_t variant;
} variants[] = {
    {"128 queries", KERNEL_ATTENTION_128}, {"64 queries", KERNEL_ATTENTION_64},
    {"32 queries", KERNEL_ATTENTION_32},   {"split keys", KERNEL_ATTENTION_SPLIT},
    {"plain", KERNEL_ATTENTION_PLAIN},
};

static const struct ir_tensor *input_of(const struct ir_graph *graph, const struct ir_node *node,
                                        uint32_t i)
{
    bool there = i < node->n_inputs && node->inputs[i] != IR_NONE;
    return there ? ir_tensor(graph, node->inputs[i]) : NULL;
}

/* Views [N,S,H*D] (rows may have more columns) as [N,H,S,D]. */
static bool heads_view(const struct ir_tensor *tensor, enum dtype dtype, int64_t heads,
                       int64_t columns, struct kernel_view *out)
{
    struct kernel_view rows;
    if (!tensor || tensor->shape.rank != 3 || heads < 1 || columns % heads ||
        !own_view(tensor, dtype, IR_LAYOUT_PLAIN, &rows))
        return false;
    *out = (struct kernel_view){
        .dtype = rows.dtype,
        .rank = 4,
        .dim = {rows.dim[0], heads, rows.dim[1], columns / heads},
        .stride = {rows.stride[0], columns / heads, rows.stride[1], 1},
    };
    return true;
}

static bool mask_view(const struct ir_tensor *tensor, enum dtype dtype, struct attention *at)
{
    struct kernel_view scores = at->q, mask;
    scores.dim[3] = at->k.dim[2];
    return own_view(tensor, dtype, IR_LAYOUT_PLAIN, &mask) &&
           cuda_view_broadcast(&mask, &scores, &at->mask);
}

/* The node's views; `dtype` NONE: with the types that its tensors have. */
static bool attention_read(const struct ir_graph *graph, const struct ir_node *node,
                           enum dtype dtype, struct attention *out)
{
    struct attention at = {.packed = ir_attr_int(node, IR_ATTR_PACKED) != 0,
                           .scale = ir_attr_float(node, IR_ATTR_ALPHA)};
    int64_t heads = ir_attr_int(node, IR_ATTR_HEADS);
    const struct ir_tensor *q = input_of(graph, node, 0), *mask = input_of(graph, node, 3);
    const struct ir_tensor *k = at.packed ? q : input_of(graph, node, 1);
    const struct ir_tensor *v = at.packed ? q : input_of(graph, node, 2);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    int64_t kv_heads = ir_attr_int(node, IR_ATTR_KV_HEADS);
    if (node->n_epilogue || !q || !k || !v || q->shape.rank != 3 || v->shape.rank != 3 ||
        (kv_heads && kv_heads != heads) || ir_attr_int(node, IR_ATTR_CAUSAL) ||
        (mask && ir_tensor_type(mask) == DTYPE_BOOL))
        return false;
    int64_t parts = at.packed ? 3 : 1, width = q->shape.dim[2] / parts;
    if (q->shape.dim[2] % parts || !heads_view(q, dtype, heads, width, &at.q) ||
        !heads_view(k, dtype, heads, width, &at.k) ||
        !heads_view(v, dtype, heads, at.packed ? width : v->shape.dim[2], &at.v) ||
        !heads_view(y, dtype, heads, y->shape.dim[2], &at.y))
        return false;
    uint64_t bytes = (uint64_t)width * dtype_size((enum dtype)at.q.dtype);
    at.k_offset = bytes;
    at.v_offset = 2 * bytes;
    at.masked = mask != NULL;
    if (mask && !mask_view(mask, dtype, &at))
        return false;
    *out = at;
    return true;
}

/* Without `inputs` this is a dry call: views have no data, but the launcher must see that there is
 * a mask. */
static cudaError_t attention_call(const struct kernel_call *call, struct attention *at,
                                  void *const *inputs, void *const *outputs)
{
    if (inputs) {
        at->q.data = inputs[0];
        at->k.data = at->packed ? (char *)inputs[0] + at->k_offset : inputs[1];
        at->v.data = at->packed ? (char *)inputs[0] + at->v_offset : inputs[2];
        at->y.data = outputs[0];
    }
    at->mask.data = !at->masked ? NULL : inputs ? inputs[3] : at;
    return kernel_attention(call, at->scale, &at->q, &at->k, &at->v, &at->mask, &at->y);
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    for (uint32_t d = 0; d < n; d++) {
        struct attention at;
        bool any = false;
        if (!attention_read(graph, node, dtypes[d], &at))
            continue;
        for (uint32_t i = 0; i < ARRAY_LEN(variants); i++) {
            struct kernel_call call = own_call_dry(device, variants[i].variant);
            bool plain = variants[i].variant == KERNEL_ATTENTION_PLAIN;
            /* The plain variant is offered only if no other is: it is never faster. */
            if ((plain && any) || attention_call(&call, &at, NULL, NULL) != cudaSuccess)
                continue;
            any = true;
            char detail[TACTIC_NAME_MAX];
            snprintf(detail, sizeof(detail), "%s %s", dtype_name((enum dtype)at.q.dtype),
                     variants[i].name);
            struct tactic tactic;
            cuda_tactic(&tactic, &cuda_family_own_attention, (uint32_t)variants[i].variant, graph,
                        node, dtypes[d], IR_LAYOUT_PLAIN, detail);
            TRY(visit(user, &tactic, err));
        }
    }
    return STATUS_OK;
}

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace UNUSED,
                          struct error *err)
{
    struct attention_op *op = CONTAINER_OF(base, struct attention_op, base);
    struct kernel_call call = own_call(stream, op->variant);
    cudaError_t code = attention_call(&call, &op->at, inputs, outputs);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "attention kernel");
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct attention_op made = {.base.launch = launch, .variant = (int32_t)(tactic->id & 0xffff)};
    struct kernel_call call = own_call_dry(stream->device, made.variant);
    for (uint32_t i = 0; i < tactic->n_in; i++)
        if (tactic->in[i].format.layout != IR_LAYOUT_PLAIN || tactic->in[i].packed_bytes)
            return cuda_refuse(node, tactic, err);
    if (made.variant == 0 || tactic->out[0].format.layout != IR_LAYOUT_PLAIN ||
        !attention_read(graph, node, DTYPE_NONE, &made.at) ||
        attention_call(&call, &made.at, NULL, NULL) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_attention = {
    .id = CUDA_FAMILY_OWN_ATTENTION,
    .candidates = candidates,
    .prepare = prepare,
};
