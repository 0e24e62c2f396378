/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cuda/lt_sums.h"

#include "base/compiler.h"

enum { POINTER_ALIGN = 16 };

static bool read_conv(const struct ir_graph *graph, const struct ir_node *node, struct lt_sums *s)
{
    const struct shape *x = &cuda_input(graph, node, 0)->shape;
    const struct shape *w = &cuda_input(graph, node, 1)->shape;
    size_t n;
    if (x->rank < 3 || w->rank != x->rank || !lt_is_pointwise(node, x, w) ||
        !shape_elements(x, &n) || n == 0)
        return false;
    s->k = x->dim[1];
    s->n = w->dim[0];
    s->m = (int64_t)n / s->k;
    s->layout = IR_LAYOUT_CHANNELS_LAST;
    s->axis = 1;
    s->alpha = 1;
    return w->dim[1] == s->k;
}

static bool read_matmul(const struct ir_graph *graph, const struct ir_node *node, struct lt_sums *s)
{
    const struct shape *a = &cuda_input(graph, node, 0)->shape;
    const struct shape *b = &cuda_input(graph, node, 1)->shape;
    bool trans = ir_attr_int(node, IR_ATTR_TRANS_B) != 0;
    size_t n;
    if (b->rank != 2 || a->rank < 2 || ir_attr_int(node, IR_ATTR_TRANS_A) ||
        !shape_elements(a, &n) || n == 0)
        return false;
    s->k = a->dim[a->rank - 1];
    s->n = b->dim[trans ? 0 : 1];
    s->m = (int64_t)n / s->k;
    s->layout = IR_LAYOUT_PLAIN;
    s->axis = a->rank - 1;
    s->alpha = ir_attr_float(node, IR_ATTR_ALPHA);
    return b->dim[trans ? 1 : 0] == s->k && s->alpha > 0;
}

static bool is_float_like(const struct ir_graph *graph, uint32_t id)
{
    struct stored stored;
    const struct ir_tensor *t = ir_tensor(graph, id);
    return stored_read(graph, id, &stored) &&
           (stored.dtype != DTYPE_NONE || t->dtype == DTYPE_F32 || t->dtype == DTYPE_F16 ||
            t->dtype == DTYPE_BF16);
}

bool lt_sums_read(const struct ir_graph *graph, const struct ir_node *node, enum dtype bytes,
                  struct lt_sums *out)
{
    const struct ir_tensor *x = cuda_input(graph, node, 0), *w = cuda_input(graph, node, 1);
    struct lt_sums s = {0};
    if (!x || !w || node->n_outputs != 1 || !ir_tensor_is_constant(w) ||
        !stored_read(graph, node->inputs[0], &s.x) || s.x.dtype != bytes ||
        !is_float_like(graph, node->outputs[0]) || !stored_read(graph, node->outputs[0], &s.y) ||
        !(node->op == IR_OP_CONV ? read_conv : read_matmul)(graph, node, &s))
        return false;
    for (uint32_t i = ir_node_own_inputs(node); i < node->n_inputs; i++)
        if (node->inputs[i] == IR_NONE || !is_float_like(graph, node->inputs[i]))
            return false;
    s.biased = ir_node_own_inputs(node) > 2 && cuda_input(graph, node, 2);
    *out = s;
    return s.m <= INT32_MAX && s.n <= INT32_MAX && s.k <= INT32_MAX;
}

uint32_t lt_sums_channels(const struct ir_node *node)
{
    return node->op == IR_OP_MATMUL && ir_attr_int(node, IR_ATTR_TRANS_B) == 0;
}

bool lt_sums_constants_fit(const struct ir_graph *graph, const struct ir_node *node,
                           const struct lt_sums *s, enum dtype bytes)
{
    const struct ir_tensor *w = cuda_input(graph, node, 1);
    const struct ir_tensor *bias = s->biased ? cuda_input(graph, node, 2) : NULL;
    const struct ir_scale *scale = ir_scale(graph, w->range);
    return scale && stored_type(scale) == bytes && !scale->zero_min && !scale->zero_max &&
           (scale->n == 1 || (scale->axis == lt_sums_channels(node) && scale->n == s->n)) &&
           dtype_is_float(w->dtype) && w->layout == IR_LAYOUT_PLAIN && w->data &&
           (!bias || (ir_tensor_is_constant(bias) && dtype_is_float(bias->dtype) &&
                      bias->shape.rank == 1 && bias->shape.dim[0] == s->n));
}

void lt_sums_ports(const struct ir_graph *graph, const struct ir_node *node,
                   const struct lt_sums *s, enum dtype bytes, uint64_t packed, struct tactic *t)
{
    const struct ir_tensor *w = cuda_input(graph, node, 1);
    const struct shape *y = &ir_tensor(graph, node->outputs[0])->shape;
    for (uint32_t i = 1; i < t->n_in; i++) {
        const struct ir_tensor *tensor = cuda_input(graph, node, i);
        if (!tensor || !shape_equal(&tensor->shape, y))
            t->in[i].format.layout = IR_LAYOUT_PLAIN;
    }
    stored_set_scales(t, graph, node);
    if (s->biased) /* packing reads it as it is */
        t->in[2].format = (struct ir_format){.dtype = cuda_input(graph, node, 2)->dtype};
    t->in[1].format = (struct ir_format){.dtype = bytes, .scale = w->range};
    tactic_port_pack(&t->in[1], packed);
}

int lt_sums_ask(const struct lt_api *api, const struct lt_desc *d,
                cublasLtMatmulHeuristicResult_t *results)
{
    cublasLtMatmulPreference_t preference = NULL;
    uint64_t workspace = LT_WORKSPACE_MAX;
    uint32_t align = POINTER_ALIGN;
    const struct lt_preference wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof(align)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align, sizeof(align)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align, sizeof(align)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align, sizeof(align)},
    };
    int n = 0;
    if (lt_preference_new(api, wishes, ARRAY_LEN(wishes), &preference) != CUBLAS_STATUS_SUCCESS ||
        api->cublasLtMatmulAlgoGetHeuristic(api->handle, d->op, d->a, d->b, d->c ? d->c : d->y,
                                            d->y, preference, LT_SUMS_ALGOS, results,
                                            &n) != CUBLAS_STATUS_SUCCESS)
        n = 0;
    if (preference)
        api->cublasLtMatmulPreferenceDestroy(preference);
    return n;
}
