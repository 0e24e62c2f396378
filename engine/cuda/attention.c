/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cuda/attention.h"

#include "engine/cuda/own.h"

/* Views an operand as [N,heads,S,D]. A row of a packed operand has `all` heads, of which the view
 * takes the first. */
static bool heads_view(const struct ir_tensor *tensor, enum dtype dtype, int64_t heads, int64_t all,
                       struct kernel_view *out)
{
    struct kernel_view t;
    if (!tensor || heads < 1 || !own_view(tensor, dtype, IR_LAYOUT_PLAIN, &t))
        return false;
    if (t.rank == 4 && all == heads) {
        *out = t;
        return t.dim[1] == heads;
    }
    if (t.rank != 3 || t.dim[2] % all)
        return false;
    int64_t size = t.dim[2] / all;
    *out = (struct kernel_view){
        .dtype = t.dtype,
        .rank = 4,
        .dim = {t.dim[0], heads, t.dim[1], size},
        .stride = {t.stride[0], size, t.stride[1], 1},
    };
    return true;
}

static bool mask_view(const struct ir_tensor *tensor, enum dtype dtype, struct cuda_attention *at)
{
    struct kernel_view scores = at->q, mask;
    scores.dim[3] = at->k.dim[2];
    if (tensor && tensor->shape.rank == 4 && tensor->shape.dim[0] > 1)
        scores.dim[0] = tensor->shape.dim[0]; /* fewer batches repeat */
    at->masked = tensor != NULL;
    return !tensor || (own_view(tensor, dtype, IR_LAYOUT_PLAIN, &mask) &&
                       cuda_view_broadcast(&mask, &scores, &at->mask));
}

/* The rows of all instances, which lie one behind the other, as those of one. */
static bool flat_view(struct kernel_view *v)
{
    if (v->stride[0] != v->dim[2] * v->stride[2] && v->dim[0] > 1)
        return false;
    v->dim[2] *= v->dim[0];
    v->dim[0] = 1;
    v->stride[0] = v->dim[2] * v->stride[2];
    return true;
}

static bool flatten(const struct ir_tensor *spans, struct cuda_attention *at)
{
    at->spanned = spans != NULL;
    return !spans ||
           (flat_view(&at->q) && flat_view(&at->k) && flat_view(&at->v) && flat_view(&at->y));
}

bool cuda_attention_read(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                         struct cuda_attention *out)
{
    struct cuda_attention at = {.packed = ir_attr_int(node, IR_ATTR_PACKED) != 0,
                                .causal = ir_attr_int(node, IR_ATTR_CAUSAL) != 0,
                                .scale = ir_attr_float(node, IR_ATTR_ALPHA)};
    int64_t heads = ir_attr_int(node, IR_ATTR_HEADS), kv = ir_attr_int(node, IR_ATTR_KV_HEADS);
    kv = kv ? kv : heads;
    int64_t all = at.packed ? heads + 2 * kv : heads;
    const struct ir_tensor *q = cuda_input(graph, node, 0);
    const struct ir_tensor *k = at.packed ? q : cuda_input(graph, node, 1);
    const struct ir_tensor *v = at.packed ? q : cuda_input(graph, node, 2);
    if (node->op != IR_OP_ATTENTION || node->n_outputs != 1 || node->n_epilogue || heads < 1 ||
        kv < 1 || heads % kv || !heads_view(q, dtype, heads, all, &at.q) ||
        !heads_view(k, dtype, kv, at.packed ? all : kv, &at.k) ||
        !heads_view(v, dtype, kv, at.packed ? all : kv, &at.v) ||
        !heads_view(ir_tensor(graph, node->outputs[0]), dtype, heads, heads, &at.y) ||
        !mask_view(cuda_input(graph, node, 3), dtype, &at) ||
        !flatten(cuda_input(graph, node, 4), &at) || !own_stored_output(graph, node, &at.y))
        return false;
    uint64_t head = (uint64_t)at.q.dim[3] * dtype_size((enum dtype)at.q.dtype);
    at.k_offset = (uint64_t)heads * head;
    at.v_offset = at.k_offset + (uint64_t)kv * head;
    *out = at;
    return true;
}

void cuda_attention_bind(struct cuda_attention *at, void *const *inputs, void *const *outputs)
{
    at->q.data = inputs[0];
    at->k.data = at->packed ? (char *)inputs[0] + at->k_offset : inputs[1];
    at->v.data = at->packed ? (char *)inputs[0] + at->v_offset : inputs[2];
    at->mask.data = at->masked ? inputs[3] : NULL;
    at->spans = at->spanned ? inputs[4] : NULL;
    at->y.data = outputs[0];
}
