/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Group, instance and local response normalisation by our own kernels, in channels-last and plain
 * layout. Scale and bias are packed as fp32 if they are constants, and otherwise read as they are.
 */
#include <stdio.h>

#include "base/compiler.h"
#include "engine/cuda/own.h"

enum { SCALE = 1, BIAS = 2 }; /* inputs */

struct norm {
    bool local; /* LRN, which has neither scale nor bias */
    int64_t size;
    float alpha, beta, shift;
    struct kernel_view x, y, scale, bias;
    struct kernel_epilogue epilogue;
    int64_t groups;
    float epsilon;
};

struct norm_op {
    struct backend_op base;
    const struct ir_node *node;
    struct norm norm;
};

static const enum ir_layout layouts[] = {IR_LAYOUT_CHANNELS_LAST, IR_LAYOUT_PLAIN};

/* --- from a node to a kernel's arguments; the node was checked by ir_infer_node --- */

/* Reads scale or bias. False: the tensor is a constant of no float type, or else it is not plain or
 * has not the type of X. */
static bool read_channels(const struct ir_graph *graph, const struct ir_node *node, uint32_t input,
                          const struct norm *norm, struct kernel_view *out)
{
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    const struct ir_tensor *t = ir_tensor(graph, node->inputs[input]);
    bool constant = ir_tensor_is_constant(t);
    if (constant ? !dtype_is_float(t->dtype) : t->dtype != x->dtype || t->layout != IR_LAYOUT_PLAIN)
        return false;
    *out = (struct kernel_view){.dtype = constant ? (int32_t)DTYPE_F32 : norm->x.dtype,
                                .rank = 1,
                                .dim = {norm->x.dim[1]},
                                .stride = {1}};
    return true;
}

static void read_grouped(const struct ir_node *node, struct norm *n)
{
    n->groups = ir_attr_int(node, IR_ATTR_GROUP);
    n->epsilon = ir_attr_float(node, IR_ATTR_EPSILON);
}

static void read_local(const struct ir_node *node, struct norm *n)
{
    n->size = ir_attr_int(node, IR_ATTR_SIZE);
    n->alpha = ir_attr_float(node, IR_ATTR_ALPHA);
    n->beta = ir_attr_float(node, IR_ATTR_BETA);
    n->shift = ir_attr_float(node, IR_ATTR_BIAS);
}

/* `dtype` NONE: with the types that the tensors have. */
static bool norm_read(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                      enum ir_layout layout, struct norm *out)
{
    struct norm n = {.local = node->op == IR_OP_LRN};
    if (!own_view(ir_tensor(graph, node->inputs[0]), dtype, layout, &n.x) ||
        !own_view(ir_tensor(graph, node->outputs[0]), dtype, layout, &n.y) ||
        !cuda_epilogue(graph, node, &n.y, &n.epilogue))
        return false;
    if (n.local)
        read_local(node, &n);
    else
        read_grouped(node, &n);
    if (!n.local && (!read_channels(graph, node, SCALE, &n, &n.scale) ||
                     !read_channels(graph, node, BIAS, &n, &n.bias)))
        return false;
    *out = n;
    return true;
}

static cudaError_t norm_call(const struct kernel_call *call, const struct norm *n, void *workspace)
{
    if (n->local)
        return kernel_lrn(call, n->size, n->alpha, n->beta, n->shift, &n->x, &n->y, &n->epilogue);
    return kernel_group_norm(call, n->groups, n->epsilon, &n->x, &n->scale, &n->bias, &n->y,
                             &n->epilogue, workspace);
}

static uint64_t packed_bytes(const struct ir_graph *graph, const struct ir_node *node, uint32_t i)
{
    bool packed = i >= SCALE && i < ir_node_own_inputs(node) &&
                  ir_tensor_is_constant(ir_tensor(graph, node->inputs[i]));
    return packed ? (uint64_t)ir_tensor(graph, node->inputs[0])->shape.dim[1] * sizeof(float) : 0;
}

/* --- candidates --- */

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    bool channels = ir_tensor(graph, node->inputs[0])->shape.rank >= 3;
    for (uint32_t at = 0; at < n * ARRAY_LEN(layouts); at++) {
        enum dtype dtype = dtypes[at / ARRAY_LEN(layouts)];
        enum ir_layout layout = layouts[at % ARRAY_LEN(layouts)];
        struct kernel_call call = own_call_dry(device, 0);
        struct norm norm;
        struct tactic tactic;
        char detail[TACTIC_NAME_MAX];
        if ((!channels && layout != IR_LAYOUT_PLAIN) ||
            !norm_read(graph, node, dtype, layout, &norm) ||
            norm_call(&call, &norm, NULL) != cudaSuccess)
            continue;
        snprintf(detail, sizeof(detail), "%s %s", dtype_name((enum dtype)norm.x.dtype),
                 ir_layout_name(layout));
        own_tactic(&tactic, &cuda_family_own_norm, 0, graph, node, dtype, layout, layout, detail);
        for (uint32_t i = SCALE; i < ir_node_own_inputs(node); i++)
            if (packed_bytes(graph, node, i))
                tactic_port_pack(&tactic.in[i], packed_bytes(graph, node, i));
        TRY(visit(user, &tactic, err));
    }
    return STATUS_OK;
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    uint64_t bytes = packed_bytes(graph, node, input);
    if (bytes == 0 || tactic->in[input].packed_bytes != bytes ||
        !cuda_constant_f32(ir_tensor(graph, node->inputs[input]), to, bytes / sizeof(float)))
        return cuda_refuse(node, tactic, err);
    return STATUS_OK;
}

/* --- running --- */

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace,
                          struct error *err)
{
    struct norm_op *op = CONTAINER_OF(base, struct norm_op, base);
    struct kernel_call call = own_call(stream, 0);
    op->norm.x.data = inputs[0];
    if (!op->norm.local) {
        op->norm.scale.data = inputs[SCALE];
        op->norm.bias.data = inputs[BIAS];
    }
    op->norm.y.data = outputs[0];
    cuda_epilogue_bind(&op->norm.epilogue, op->node, inputs);
    cudaError_t code = norm_call(&call, &op->norm, workspace);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "normalisation kernel");
}

static bool packed_fit(const struct ir_graph *graph, const struct ir_node *node,
                       const struct tactic *tactic)
{
    bool fit = true;
    for (uint32_t i = 0; i < tactic->n_in; i++)
        fit = fit && tactic->in[i].packed_bytes == packed_bytes(graph, node, i);
    return fit;
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct norm_op made = {.base.launch = launch, .node = node};
    struct kernel_call call = own_call_dry(stream->device, 0);
    if (cuda_tactic_variant(tactic) != 0 || !packed_fit(graph, node, tactic) ||
        ir_tensor(graph, node->inputs[0])->layout != ir_tensor(graph, node->outputs[0])->layout ||
        !norm_read(graph, node, DTYPE_NONE, ir_tensor(graph, node->inputs[0])->layout,
                   &made.norm) ||
        norm_call(&call, &made.norm, NULL) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    if (!made.norm.local)
        made.base.workspace = kernel_group_norm_workspace(&call, &made.norm.x);
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_norm = {
    .id = CUDA_FAMILY_OWN_NORM,
    .candidates = candidates,
    .pack = pack,
    .prepare = prepare,
};
