/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a node's attributes into the parameters of its reference kernel: one short function for
 * each op, and a table of these functions. Attributes are read on every call, which costs next to
 * nothing beside the kernels.
 */
#include "engine/cpu/call.h"

#include <math.h>

#include "base/compiler.h"
#include "base/mlp.h"
#include "engine/ir/ops.h"
#include "engine/ir/plugin_node.h"
#include "kernels/cpu/ref.h"

typedef enum status (*run)(const struct call *c);

/* int_of and float_of give an attribute's value, or the fallback of the op's row if the node has
 * none. */
static int64_t int_of(const struct call *c, enum ir_attr_key key)
{
    return ir_attr_int(c->node, key);
}

static double float_of(const struct call *c, enum ir_attr_key key)
{
    return (double)ir_attr_float(c->node, key);
}

static uint32_t axis_of(const struct call *c)
{
    return (uint32_t)int_of(c, IR_ATTR_AXIS);
}

static const int64_t *ints_of(const struct call *c, enum ir_attr_key key)
{
    const struct ir_attr *attr = ir_attr(c->node, key);
    return attr ? attr->i : NULL;
}

/* The node's own input i, or NULL if it is absent. */
static const struct tensor_view *optional(const struct call *c, uint32_t i)
{
    if (i >= ir_node_own_inputs(c->node) || c->node->inputs[i] == IR_NONE)
        return NULL;
    return &c->in[i];
}

static void read_window(const struct call *c, const int64_t *kernel, struct ref_window *win)
{
    *win = (struct ref_window){.rank = c->in[0].shape.rank - 2};
    for (uint32_t d = 0; d < win->rank; d++) {
        win->kernel[d] = kernel[d];
        win->strides[d] = ir_attr_at(c->node, IR_ATTR_STRIDES, d);
        win->dilations[d] = ir_attr_at(c->node, IR_ATTR_DILATIONS, d);
        win->pads[d] = ir_attr_at(c->node, IR_ATTR_PADS, d);
    }
}

static enum status run_conv(const struct call *c)
{
    struct ref_window win;
    read_window(c, &c->in[1].shape.dim[2], &win);
    ref_conv(&win, int_of(c, IR_ATTR_GROUP), &c->in[0], &c->in[1], optional(c, 2), &c->out[0]);
    return STATUS_OK;
}

/* The sides of what CONV_POOL's convolution makes of images x by weights w. */
static void conv_pool_sides(const struct ir_node *node, const struct shape *x,
                            const struct shape *w, int64_t out[2])
{
    for (uint32_t d = 0; d < 2; d++) {
        int64_t reach = ir_attr_at(node, IR_ATTR_DILATIONS, d) * (w->dim[2 + d] - 1) + 1;
        int64_t room = x->dim[2 + d] + ir_attr_at(node, IR_ATTR_PADS, d) +
                       ir_attr_at(node, IR_ATTR_PADS, 2 + d) - reach;
        out[d] = room / ir_attr_at(node, IR_ATTR_STRIDES, d) + 1;
    }
}

static enum status run_conv_pool(const struct call *c)
{
    struct ref_window win;
    int64_t out[2];
    read_window(c, &c->in[1].shape.dim[2], &win);
    conv_pool_sides(c->node, &c->in[0].shape, &c->in[1].shape, out);
    ref_conv_pool(&win, out, c->scratch, &c->in[0], &c->in[1], optional(c, 2), &c->out[0]);
    return STATUS_OK;
}

static size_t scratch_of_conv_pool(const struct ir_graph *graph, const struct ir_node *node)
{
    const struct shape *w = &ir_tensor(graph, node->inputs[1])->shape;
    int64_t out[2];
    conv_pool_sides(node, &ir_tensor(graph, node->inputs[0])->shape, w, out);
    return ref_conv_pool_scratch(w->dim[0], out);
}

static enum status run_conv_pair(const struct call *c)
{
    const int64_t strides[2] = {ir_attr_at(c->node, IR_ATTR_STRIDES, 0),
                                ir_attr_at(c->node, IR_ATTR_STRIDES, 1)};
    ref_conv_pair(strides, &c->in[0], &c->in[1], &c->in[2], &c->in[3], optional(c, 4), &c->out[0]);
    return STATUS_OK;
}

static enum status run_conv_chain(const struct call *c)
{
    const int64_t strides[2] = {ir_attr_at(c->node, IR_ATTR_STRIDES, 0),
                                ir_attr_at(c->node, IR_ATTR_STRIDES, 1)};
    ref_conv_chain(&(struct ref_chain){
        .strides = strides,
        .x = &c->in[0],
        .w = &c->in[1],
        .x2 = optional(c, IR_CHAIN_X2),
        .w2 = optional(c, IR_CHAIN_W2),
        .b = optional(c, IR_CHAIN_BIAS),
        .z = optional(c, IR_CHAIN_RESIDUAL),
        .v = &c->in[IR_CHAIN_NEXT],
        .a = optional(c, IR_CHAIN_NEXT_BIAS),
        .y = &c->out[0],
        .t = &c->out[1],
        .relu = {ir_attr_at(c->node, IR_ATTR_FUNCS, 0) == IR_UNARY_RELU,
                 ir_attr_at(c->node, IR_ATTR_FUNCS, 1) == IR_UNARY_RELU},
    });
    return STATUS_OK;
}

static enum status run_deconv(const struct call *c)
{
    struct ref_window win;
    read_window(c, &c->in[1].shape.dim[2], &win);
    ref_deconv(&win, int_of(c, IR_ATTR_GROUP), &c->in[0], &c->in[1], optional(c, 2), &c->out[0]);
    return STATUS_OK;
}

static enum status run_matmul(const struct call *c)
{
    ref_matmul(int_of(c, IR_ATTR_TRANS_A), int_of(c, IR_ATTR_TRANS_B), float_of(c, IR_ATTR_ALPHA),
               &c->in[0], &c->in[1], optional(c, 2), &c->out[0]);
    return STATUS_OK;
}

static enum status run_mlp(const struct call *c)
{
    const struct ir_attr *widths = ir_attr(c->node, IR_ATTR_WIDTHS);
    const int64_t *funcs = ints_of(c, IR_ATTR_FUNCS);
    float gammas[MLP_LAYERS_MAX];
    for (uint32_t i = 0; i < widths->count; i++)
        gammas[i] = ir_unary_row((enum ir_unary)funcs[i])->gamma;
    const struct ref_mlp how = {
        .layers = widths->count,
        .widths = widths->i,
        .funcs = funcs,
        .alphas = ir_attr(c->node, IR_ATTR_ALPHAS)->f,
        .betas = ir_attr(c->node, IR_ATTR_BETAS)->f,
        .gammas = gammas,
        .x = &c->in[0],
        .weights = &c->in[1],
        .bias = &c->in[2],
        .y = &c->out[0],
    };
    ref_mlp(&how, c->scratch);
    return STATUS_OK;
}

static enum status run_pool(const struct call *c)
{
    struct ref_pooling pool = {
        .func = (enum ir_pool)int_of(c, IR_ATTR_FUNC),
        .count_include_pad = int_of(c, IR_ATTR_COUNT_INCLUDE_PAD),
        .p = float_of(c, IR_ATTR_ALPHA),
    };
    read_window(c, ints_of(c, IR_ATTR_KERNEL), &pool.win);
    for (uint32_t d = 0; d < pool.win.rank; d++)
        pool.ends[d] = ir_attr_at(c->node, IR_ATTR_PADS, pool.win.rank + d);
    ref_pool(&pool, &c->in[0], &c->out[0], c->node->n_outputs > 1 ? &c->out[1] : NULL);
    return STATUS_OK;
}

static enum status run_reduce(const struct call *c)
{
    const struct ir_attr *axes = ir_attr(c->node, IR_ATTR_AXES);
    ref_reduce((enum ir_reduce)int_of(c, IR_ATTR_FUNC), axes->i, axes->count, &c->in[0],
               &c->out[0]);
    return STATUS_OK;
}

static enum status run_arg_reduce(const struct call *c)
{
    ref_arg_reduce(int_of(c, IR_ATTR_FUNC), int_of(c, IR_ATTR_SELECT_LAST), axis_of(c), &c->in[0],
                   &c->out[0]);
    return STATUS_OK;
}

static enum status run_softmax(const struct call *c)
{
    ref_softmax(axis_of(c), int_of(c, IR_ATTR_LOG), &c->in[0], &c->out[0]);
    return STATUS_OK;
}

static enum status run_batch_norm(const struct call *c)
{
    ref_batch_norm(float_of(c, IR_ATTR_EPSILON), &c->in[0], &c->in[1], &c->in[2], &c->in[3],
                   &c->in[4], &c->out[0]);
    return STATUS_OK;
}

static enum status run_layer_norm(const struct call *c)
{
    ref_layer_norm(axis_of(c), int_of(c, IR_ATTR_RMS), float_of(c, IR_ATTR_EPSILON), &c->in[0],
                   &c->in[1], optional(c, 2), &c->out[0]);
    return STATUS_OK;
}

static enum status run_instance_norm(const struct call *c)
{
    ref_instance_norm(int_of(c, IR_ATTR_GROUP), float_of(c, IR_ATTR_EPSILON), &c->in[0], &c->in[1],
                      &c->in[2], &c->out[0]);
    return STATUS_OK;
}

static enum status run_lrn(const struct call *c)
{
    ref_lrn(int_of(c, IR_ATTR_SIZE), float_of(c, IR_ATTR_ALPHA), float_of(c, IR_ATTR_BETA),
            float_of(c, IR_ATTR_BIAS), &c->in[0], &c->out[0]);
    return STATUS_OK;
}

static enum status run_unary(const struct call *c)
{
    float alpha, beta, gamma;
    ir_unary_constants(c->node, &alpha, &beta, &gamma);
    ref_unary((enum ir_unary)int_of(c, IR_ATTR_FUNC), (double)alpha, (double)beta, (double)gamma,
              &c->in[0], &c->out[0]);
    return STATUS_OK;
}

static enum status run_binary(const struct call *c)
{
    ref_binary((enum ir_binary)int_of(c, IR_ATTR_FUNC), float_of(c, IR_ATTR_ALPHA) != 0, &c->in[0],
               &c->in[1], &c->out[0]);
    return STATUS_OK;
}

static enum status run_select(const struct call *c)
{
    ref_select(&c->in[0], &c->in[1], &c->in[2], &c->out[0]);
    return STATUS_OK;
}

static enum status run_cast(const struct call *c)
{
    ref_cast(&c->in[0], &c->out[0]);
    return STATUS_OK;
}

static enum status run_reshape(const struct call *c)
{
    ref_copy(&c->in[0], &c->out[0]);
    return STATUS_OK;
}

static enum status run_transpose(const struct call *c)
{
    ref_transpose(ints_of(c, IR_ATTR_PERM), &c->in[0], &c->out[0]);
    return STATUS_OK;
}

static enum status run_concat(const struct call *c)
{
    ref_concat(axis_of(c), ir_node_own_inputs(c->node), c->in, &c->out[0]);
    return STATUS_OK;
}

static enum status run_slice(const struct call *c)
{
    ref_slice(ints_of(c, IR_ATTR_STARTS), ints_of(c, IR_ATTR_STEPS), &c->in[0], &c->out[0]);
    return STATUS_OK;
}

static enum status run_pad(const struct call *c)
{
    ref_pad((enum ir_pad)int_of(c, IR_ATTR_MODE), ints_of(c, IR_ATTR_PADS),
            float_of(c, IR_ATTR_VALUE), &c->in[0], &c->out[0]);
    return STATUS_OK;
}

static enum status run_expand(const struct call *c)
{
    ref_expand(&c->in[0], &c->out[0]);
    return STATUS_OK;
}

static enum status run_tile(const struct call *c)
{
    ref_tile(&c->in[0], &c->out[0]);
    return STATUS_OK;
}

static enum status run_trilu(const struct call *c)
{
    ref_trilu(int_of(c, IR_ATTR_UPPER), int_of(c, IR_ATTR_K), &c->in[0], &c->out[0]);
    return STATUS_OK;
}

struct ref_resize call_resize(const struct ir_node *node, uint32_t rank)
{
    struct ref_resize how = {
        .mode = (enum ir_resize)ir_attr_int(node, IR_ATTR_MODE),
        .coord = (enum ir_coord)ir_attr_int(node, IR_ATTR_COORD),
        .nearest = (enum ir_nearest)ir_attr_int(node, IR_ATTR_NEAREST),
        .exclude_outside = ir_attr_int(node, IR_ATTR_EXCLUDE_OUTSIDE),
        .antialias = ir_attr_int(node, IR_ATTR_ANTIALIAS),
        .cubic_a = (double)ir_attr_float(node, IR_ATTR_CUBIC_A),
        .value = (double)ir_attr_float(node, IR_ATTR_VALUE),
    };
    const struct ir_attr *scales = ir_attr(node, IR_ATTR_SCALES), *roi = ir_attr(node, IR_ATTR_ROI);
    for (uint32_t d = 0; d < rank; d++) {
        how.scales[d] = (double)scales->f[d];
        how.roi_start[d] = roi ? (double)roi->f[d] : 0;
        how.roi_end[d] = roi ? (double)roi->f[rank + d] : 1;
    }
    return how;
}

static enum status run_resize(const struct call *c)
{
    const struct ref_resize how = call_resize(c->node, c->in[0].shape.rank);
    ref_resize(&how, &c->in[0], &c->out[0], c->scratch);
    return STATUS_OK;
}

static enum status run_cumsum(const struct call *c)
{
    ref_cumsum(axis_of(c), int_of(c, IR_ATTR_EXCLUSIVE), int_of(c, IR_ATTR_REVERSE), &c->in[0],
               &c->out[0]);
    return STATUS_OK;
}

static enum status run_topk(const struct call *c)
{
    ref_topk(axis_of(c), int_of(c, IR_ATTR_LARGEST), &c->in[0], &c->out[0], &c->out[1], c->scratch);
    return STATUS_OK;
}

static enum status run_gather(const struct call *c)
{
    return ref_gather(axis_of(c), &c->in[0], &c->in[1], &c->out[0], c->err);
}

static enum status run_embed(const struct call *c)
{
    const struct tensor_view *tables[IR_EMBED_TABLES], *ids[IR_EMBED_TABLES];
    uint32_t n = ir_embed_count(c->node);
    for (uint32_t k = 0; k < n; k++) {
        tables[k] = &c->in[2 * k];
        ids[k] = optional(c, 2 * k + 1);
    }
    return ref_embed(n, tables, ids, &c->out[0], c->err);
}

static enum status run_gather_elements(const struct call *c)
{
    return ref_gather_elements(axis_of(c), &c->in[0], &c->in[1], &c->out[0], c->err);
}

static enum status run_gather_nd(const struct call *c)
{
    return ref_gather_nd((uint32_t)int_of(c, IR_ATTR_BATCH_DIMS), &c->in[0], &c->in[1], &c->out[0],
                         c->err);
}

static enum status run_scatter_elements(const struct call *c)
{
    return ref_scatter_elements(axis_of(c), (enum ir_scatter)int_of(c, IR_ATTR_FUNC), &c->in[0],
                                &c->in[1], &c->in[2], &c->out[0], c->err);
}

static enum status run_scatter_nd(const struct call *c)
{
    return ref_scatter_nd((enum ir_scatter)int_of(c, IR_ATTR_FUNC), &c->in[0], &c->in[1], &c->in[2],
                          &c->out[0], c->err);
}

static enum status run_one_hot(const struct call *c)
{
    ref_one_hot(axis_of(c), &c->in[0], &c->in[1], &c->out[0]);
    return STATUS_OK;
}

static enum status run_reformat(const struct call *c)
{
    ref_reformat((enum ir_layout)ir_tensor(c->graph, c->node->inputs[0])->layout,
                 (enum ir_layout)ir_tensor(c->graph, c->node->outputs[0])->layout, &c->in[0],
                 &c->out[0]);
    return STATUS_OK;
}

static enum status run_attention(const struct call *c)
{
    struct ref_attention how = {
        .heads = int_of(c, IR_ATTR_HEADS),
        .kv_heads = int_of(c, IR_ATTR_KV_HEADS),
        .scale = float_of(c, IR_ATTR_ALPHA),
        .packed = int_of(c, IR_ATTR_PACKED),
        .causal = int_of(c, IR_ATTR_CAUSAL),
        .spans = optional(c, 4),
    };
    ref_attention(&how, &c->in[0], optional(c, 1), optional(c, 2), optional(c, 3), &c->out[0],
                  c->scratch);
    return STATUS_OK;
}

static enum status run_recurrent(const struct call *c)
{
    const struct ir_attr *funcs = ir_attr(c->node, IR_ATTR_FUNCS);
    const float *alphas = ir_attr(c->node, IR_ATTR_ALPHAS)->f;
    const float *betas = ir_attr(c->node, IR_ATTR_BETAS)->f;
    struct ref_recurrent how = {
        .cell = (enum ir_recurrent)int_of(c, IR_ATTR_FUNC),
        .clip = float_of(c, IR_ATTR_CLIP),
        .way = (enum ir_way)int_of(c, IR_ATTR_REVERSE),
        .linear = int_of(c, IR_ATTR_LINEAR),
        .coupled = int_of(c, IR_ATTR_COUPLED),
        .x = &c->in[0],
        .r = &c->in[1],
        .lengths = optional(c, 2),
        .h0 = optional(c, 3),
        .c0 = optional(c, 4),
        .peephole = optional(c, 5),
        .bias = optional(c, 6),
        .y = &c->out[0],
        .h_last = &c->out[1],
        .c_last = c->node->n_outputs > 2 ? &c->out[2] : NULL,
    };
    for (uint32_t i = 0; i < funcs->count; i++) {
        how.funcs[i] = (enum ir_unary)funcs->i[i];
        how.alphas[i] = (double)alphas[i];
        how.betas[i] = (double)betas[i];
    }
    return ref_recurrent(&how, c->scratch, c->err);
}

struct ref_sample call_sample(const struct ir_node *node)
{
    return (struct ref_sample){
        .mode = (enum ir_resize)ir_attr_int(node, IR_ATTR_MODE),
        .border = (enum ir_border)ir_attr_int(node, IR_ATTR_BORDER),
        .coord = (enum ir_sample)ir_attr_int(node, IR_ATTR_COORD),
    };
}

static enum status run_sample(const struct call *c)
{
    const struct ref_sample how = call_sample(c->node);
    ref_sample(&how, &c->in[0], &c->in[1], &c->out[0]);
    return STATUS_OK;
}

struct ref_roi_pool call_roi_pool(const struct ir_node *node)
{
    return (struct ref_roi_pool){
        .func = (enum ir_roi)ir_attr_int(node, IR_ATTR_FUNC),
        .half_pixel = ir_attr_int(node, IR_ATTR_COORD),
        .samples = ir_attr_int(node, IR_ATTR_SIZE),
        .scale = ir_attr_float(node, IR_ATTR_ALPHA),
    };
}

static enum status run_roi_pool(const struct call *c)
{
    const struct ref_roi_pool how = call_roi_pool(c->node);
    return ref_roi_pool(&how, &c->in[0], &c->in[1], &c->in[2], &c->out[0], c->err);
}

struct ref_nms call_nms(const struct ir_node *node)
{
    return (struct ref_nms){
        .most = ir_attr_int(node, IR_ATTR_K),
        .overlap = ir_attr_float(node, IR_ATTR_ALPHA),
        .least = ir_attr_float(node, IR_ATTR_BETA),
        .has_least = ir_attr(node, IR_ATTR_BETA) != NULL,
        .centre = ir_attr_int(node, IR_ATTR_MODE),
    };
}

static enum status run_nms(const struct call *c)
{
    const struct ref_nms how = call_nms(c->node);
    ref_nms(&how, &c->in[0], &c->in[1], &c->out[0], c->scratch);
    return STATUS_OK;
}

static enum status run_det(const struct call *c)
{
    ref_det(&c->in[0], &c->out[0], c->scratch);
    return STATUS_OK;
}

static enum status run_quantise(const struct call *c)
{
    ref_quantize(axis_of(c), &c->in[0], &c->in[1], optional(c, 2), &c->out[0]);
    return STATUS_OK;
}

static enum status run_dequantise(const struct call *c)
{
    ref_dequantize(axis_of(c), &c->in[0], &c->in[1], optional(c, 2), &c->out[0]);
    return STATUS_OK;
}

/* The first kernel of a plugin's op is the reference. */
static enum status run_plugin(const struct call *c)
{
    struct plugin_node node;
    const void *inputs[INFERD_PLUGIN_MAX_INPUTS];
    void *outputs[INFERD_PLUGIN_MAX_OUTPUTS];
    TRY(ir_plugin_read(c->graph, c->node, DTYPE_NONE, &node, c->err));
    for (uint32_t i = 0; i < node.node.n_inputs; i++)
        inputs[i] = c->in[i].data;
    for (uint32_t i = 0; i < node.node.n_outputs; i++)
        outputs[i] = c->out[i].data;
    const struct plugin_run how = {
        .inputs = inputs, .outputs = outputs, .workspace = c->scratch, .threads = 1};
    return plugin_kernel_run(&node.op->kernels[0], &node, &how, c->err);
}

static size_t scratch_of_plugin(const struct ir_graph *graph, const struct ir_node *node)
{
    struct plugin_node read;
    if (ir_plugin_read(graph, node, DTYPE_NONE, &read, NULL))
        return 0; /* the run says why */
    return plugin_kernel_workspace(&read.op->kernels[0], &read);
}

static const run runs[IR_OP_COUNT_] = {
#define OP(NAME, number, name, ...) [IR_OP_##NAME] = run_##name,
#include "engine/ir/ops.def"
};

size_t call_scratch(const struct ir_graph *graph, const struct ir_node *node)
{
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    switch (node->op) {
    case IR_OP_TOPK:
        return ref_topk_scratch(x->dim[ir_attr_int(node, IR_ATTR_AXIS)]);
    case IR_OP_ATTENTION: {
        uint32_t keys = node->inputs[ir_attr_int(node, IR_ATTR_PACKED) ? 0 : 1];
        const struct shape *k = &ir_tensor(graph, keys)->shape;
        bool spans = node->n_inputs > 4 && node->inputs[4] != IR_NONE;
        return ref_attention_scratch(k->dim[k->rank - 2] * (spans ? k->dim[0] : 1));
    }
    case IR_OP_RESIZE: {
        const struct ref_resize how = call_resize(node, x->rank);
        return ref_resize_scratch(&how, x->rank);
    }
    case IR_OP_NMS:
        return ref_nms_scratch(x->dim[1]);
    case IR_OP_RECURRENT:
        return ref_recurrent_scratch(x, (enum ir_recurrent)ir_attr_int(node, IR_ATTR_FUNC),
                                     (enum ir_way)ir_attr_int(node, IR_ATTR_REVERSE));
    case IR_OP_MLP: {
        const struct ir_attr *widths = ir_attr(node, IR_ATTR_WIDTHS);
        return ref_mlp_scratch(x->dim[x->rank - 1], widths->count, widths->i);
    }
    case IR_OP_PLUGIN:
        return scratch_of_plugin(graph, node);
    case IR_OP_CONV_POOL:
        return scratch_of_conv_pool(graph, node);
    case IR_OP_DET:
        return ref_det_scratch(x->dim[x->rank - 1]);
    default:
        return 0;
    }
}

enum status call_run(const struct call *call)
{
    return runs[call->node->op](call);
}

void call_epilogue(const struct ir_epilogue *step, const struct tensor_view *operand,
                   const struct tensor_view *y)
{
    if (step->kind == IR_EPILOGUE_UNARY)
        ref_unary((enum ir_unary)step->func, (double)step->alpha, (double)step->beta,
                  (double)step->gamma, y, y);
    else
        ref_binary((enum ir_binary)step->func, false, y, operand, y);
}
