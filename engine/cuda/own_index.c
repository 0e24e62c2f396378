/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes that read or write where an index tensor says, or that go along one axis, by our own
 * kernels: GATHER_ELEMENTS, GATHER_ND, SCATTER_ELEMENTS, SCATTER_ND, ONE_HOT, TRILU, ARG_REDUCE,
 * CUMSUM, TOPK. All tensors are plain. GATHER is own_move.c's; it says too what becomes of an index
 * out of range.
 */
#include <stdio.h>

#include "base/compiler.h"
#include "engine/cuda/device.h"
#include "engine/cuda/own.h"

struct index_call {
    enum ir_op op;
    int32_t dtype, index_type; /* of X or Y, and of the indices */
    struct kernel_index index;
    struct kernel_axis axis;
    int64_t k;
    int32_t func;    /* enum ir_scatter; of ARG_REDUCE 1: the smallest */
    bool flag, back; /* exclusive, the largest, upper; reverse, the last one */
    int32_t *bad;
};

struct index_op {
    struct backend_op base;
    struct index_call call;
};

/* Makes the shape [outer, dim, inner]. False: an axis that there is not, or too many elements. */
static bool read_axis(const struct shape *shape, int64_t axis, struct kernel_axis *out)
{
    size_t all;
    if (axis < 0 || axis >= (int64_t)shape->rank || !shape_elements(shape, &all) || all > INT32_MAX)
        return false;
    *out = (struct kernel_axis){1, shape->dim[axis], 1};
    for (int64_t d = 0; d < (int64_t)shape->rank; d++)
        if (d != axis)
            *(d < axis ? &out->outer : &out->inner) *= shape->dim[d];
    return out->outer <= INT32_MAX && out->inner <= INT32_MAX;
}

static bool read_along(const struct ir_node *node, const struct shape *x, struct index_call *c)
{
    c->k = ir_attr_int(node, IR_ATTR_K);
    return read_axis(x, ir_attr_int(node, IR_ATTR_AXIS), &c->axis);
}

static bool read_arg(const struct ir_node *node, const struct shape *x,
                     const struct shape *indices UNUSED, struct index_call *c)
{
    c->func = (int32_t)ir_attr_int(node, IR_ATTR_FUNC);
    c->back = ir_attr_int(node, IR_ATTR_SELECT_LAST) != 0;
    return read_along(node, x, c);
}

static bool read_cumsum(const struct ir_node *node, const struct shape *x,
                        const struct shape *indices UNUSED, struct index_call *c)
{
    c->flag = ir_attr_int(node, IR_ATTR_EXCLUSIVE) != 0;
    c->back = ir_attr_int(node, IR_ATTR_REVERSE) != 0;
    return read_along(node, x, c);
}

static bool read_topk(const struct ir_node *node, const struct shape *x,
                      const struct shape *indices UNUSED, struct index_call *c)
{
    c->flag = ir_attr_int(node, IR_ATTR_LARGEST) != 0;
    return read_along(node, x, c);
}

static bool read_trilu(const struct ir_node *node, const struct shape *x,
                       const struct shape *indices UNUSED, struct index_call *c)
{
    c->flag = ir_attr_int(node, IR_ATTR_UPPER) != 0;
    c->k = ir_attr_int(node, IR_ATTR_K);
    return x->rank >= 2 && read_axis(x, (int64_t)x->rank - 2, &c->axis);
}

/* Starts an index into x; `strides` gets those of x. */
static bool begin_index(const struct shape *x, int64_t *strides, struct kernel_index *index)
{
    size_t all;
    if (!shape_elements(x, &all) || all > INT32_MAX)
        return false;
    shape_strides(x, strides);
    index->size = (int64_t)all;
    index->part = 1;
    return true;
}

static bool read_elements(const struct ir_node *node, const struct shape *x,
                          const struct shape *indices, struct index_call *c)
{
    int64_t strides[SHAPE_MAX_RANK], axis = ir_attr_int(node, IR_ATTR_AXIS);
    struct kernel_index *index = &c->index;
    c->func = (int32_t)ir_attr_int(node, IR_ATTR_FUNC);
    if (axis < 0 || axis >= (int64_t)x->rank || indices->rank != x->rank ||
        !begin_index(x, strides, index))
        return false;
    index->rank = (int32_t)x->rank;
    for (uint32_t d = 0; d < x->rank; d++) {
        index->dim[d] = indices->dim[d];
        index->base[d] = d == (uint32_t)axis ? 0 : strides[d];
    }
    index->numbers = 1;
    index->extent[0] = x->dim[axis];
    index->stride[0] = strides[axis];
    return true;
}

static bool read_nd(const struct ir_node *node, const struct shape *x, const struct shape *indices,
                    struct index_call *c)
{
    int64_t strides[SHAPE_MAX_RANK], batch = 0;
    struct kernel_index *index = &c->index;
    if (node->op == IR_OP_GATHER_ND)
        batch = ir_attr_int(node, IR_ATTR_BATCH_DIMS);
    else
        c->func = (int32_t)ir_attr_int(node, IR_ATTR_FUNC);
    int64_t numbers = indices->rank ? indices->dim[indices->rank - 1] : 0;
    if (batch < 0 || batch >= (int64_t)indices->rank || numbers < 1 ||
        numbers > (int64_t)x->rank - batch || !begin_index(x, strides, index))
        return false;
    index->rank = 2; /* batches, and the rows of each */
    index->dim[0] = index->dim[1] = 1;
    for (int64_t d = 0; d < (int64_t)indices->rank - 1; d++)
        index->dim[d >= batch] *= indices->dim[d];
    index->base[0] = batch > 0 ? strides[batch - 1] : 0;
    index->numbers = (int32_t)numbers;
    for (int64_t k = 0; k < numbers; k++) {
        index->extent[k] = x->dim[batch + k];
        index->stride[k] = strides[batch + k];
    }
    for (int64_t d = batch + numbers; d < (int64_t)x->rank; d++)
        index->part *= x->dim[d];
    return true;
}

static const struct {
    bool (*read)(const struct ir_node *node, const struct shape *x, const struct shape *indices,
                 struct index_call *c);
    uint32_t inputs;
    bool indexed; /* input 1 holds indices, which may be out of range */
} rows[IR_OP_COUNT_] = {
    [IR_OP_ARG_REDUCE] = {read_arg, 1, false},
    [IR_OP_CUMSUM] = {read_cumsum, 1, false},
    [IR_OP_TOPK] = {read_topk, 1, false},
    [IR_OP_TRILU] = {read_trilu, 1, false},
    [IR_OP_ONE_HOT] = {NULL, 2, false}, /* its axis is Y's */
    [IR_OP_GATHER_ELEMENTS] = {read_elements, 2, true},
    [IR_OP_GATHER_ND] = {read_nd, 2, true},
    [IR_OP_SCATTER_ELEMENTS] = {read_elements, 3, true},
    [IR_OP_SCATTER_ND] = {read_nd, 3, true},
};

/* `dtype` stands in for F32; NONE: the types that the tensors have. */
static bool index_read(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                       struct index_call *out)
{
    struct index_call c = {.op = node->op};
    if (node->n_epilogue || node->n_inputs != rows[node->op].inputs)
        return false;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        if (node->inputs[i] == IR_NONE)
            return false;
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    const struct ir_tensor *second = node->n_inputs > 1 ? ir_tensor(graph, node->inputs[1]) : x;
    bool one_hot = node->op == IR_OP_ONE_HOT;
    enum dtype data = one_hot ? y->dtype : x->dtype;
    c.dtype = (int32_t)own_type(data, dtype);
    c.index_type = (int32_t)(one_hot ? x->dtype : second->dtype);
    c.index.dtype = c.index_type;
    /* A shorter float does not hold every index. */
    if (one_hot && x->dtype == DTYPE_F32 && dtype && dtype != DTYPE_F32)
        return false;
    bool known = one_hot ? read_axis(&y->shape, ir_attr_int(node, IR_ATTR_AXIS), &c.axis)
                         : rows[node->op].read(node, &x->shape, &second->shape, &c);
    if (known)
        *out = c;
    return known;
}

/* --- the call --- */

static bool scatters(enum ir_op op)
{
    return op == IR_OP_SCATTER_ELEMENTS || op == IR_OP_SCATTER_ND;
}

/* Copies X, and then writes into the copy. */
static cudaError_t run_scatter(const struct kernel_call *call, const struct index_call *c,
                               void *const *in, void *const *out, void *workspace)
{
    struct kernel_view x = {
        .data = in[0], .dtype = c->dtype, .rank = 1, .dim = {c->index.size}, .stride = {1}};
    struct kernel_view y = x;
    y.data = out[0];
    cudaError_t code = kernel_copy(call, &x, &y);
    if (code != cudaSuccess)
        return code;
    return kernel_scatter_slots(call, &c->index, (enum ir_scatter)c->func, c->dtype, in[1], in[2],
                                out[0], workspace, c->bad);
}

static cudaError_t run(const struct kernel_call *call, const struct index_call *c, void *const *in,
                       void *const *out, void *workspace)
{
    switch (c->op) {
    case IR_OP_ARG_REDUCE:
        return kernel_arg_reduce(call, &c->axis, c->func == 1, c->back, c->dtype, in[0], out[0]);
    case IR_OP_CUMSUM:
        return kernel_cumsum(call, &c->axis, c->flag, c->back, c->dtype, in[0], out[0]);
    case IR_OP_TOPK:
        return kernel_topk(call, &c->axis, c->k, c->flag, c->dtype, in[0], out[0], out[1]);
    case IR_OP_TRILU:
        return kernel_trilu(call, &c->axis, c->flag, c->k, c->dtype, in[0], out[0]);
    case IR_OP_ONE_HOT:
        return kernel_one_hot(call, &c->axis, c->index_type, in[0], c->dtype, in[1], out[0]);
    case IR_OP_GATHER_ELEMENTS:
    case IR_OP_GATHER_ND:
        return kernel_gather_slots(call, &c->index, c->dtype, in[0], in[1], out[0], c->bad);
    default:
        return run_scatter(call, c, in, out, workspace);
    }
}

static cudaError_t run_dry(const struct cuda_device *device, const struct index_call *c)
{
    struct kernel_call call = own_call_dry(device, 0);
    void *none[3] = {NULL};
    return run(&call, c, none, none, NULL);
}

/* --- the family --- */

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    for (uint32_t d = 0; d < n; d++) {
        struct index_call c;
        if (!index_read(graph, node, dtypes[d], &c) || run_dry(device, &c) != cudaSuccess)
            continue;
        struct tactic tactic;
        cuda_tactic(&tactic, &cuda_family_own_index, 0, graph, node, dtypes[d], IR_LAYOUT_PLAIN,
                    dtype_name((enum dtype)c.dtype));
        TRY(visit(user, &tactic, err));
    }
    return STATUS_OK;
}

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace,
                          struct error *err)
{
    const struct index_op *op = CONTAINER_OF(base, struct index_op, base);
    struct kernel_call call = own_call(stream, 0);
    cudaError_t code = run(&call, &op->call, inputs, outputs, workspace);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "index kernel");
}

/* Whether what the kernels take as one type has one type. */
static bool types_fit(const struct ir_node *node, const struct tactic *tactic)
{
    enum dtype y = tactic->out[0].format.dtype;
    if (node->op == IR_OP_ARG_REDUCE)
        return y == DTYPE_I64;
    if (node->op == IR_OP_ONE_HOT)
        return tactic->in[1].format.dtype == y;
    return tactic->in[0].format.dtype == y &&
           (!scatters(node->op) || tactic->in[2].format.dtype == y) &&
           (node->op != IR_OP_TOPK || tactic->out[1].format.dtype == DTYPE_I64);
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct index_op made = {.base.launch = launch};
    struct index_call *c = &made.call;
    if (cuda_tactic_variant(tactic) != 0 || !own_plain(tactic) || !types_fit(node, tactic) ||
        !index_read(graph, node, DTYPE_NONE, c) || run_dry(stream->device, c) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    if (scatters(node->op))
        made.base.workspace =
            (uint64_t)kernel_scatter_workspace(&c->index, (enum ir_scatter)c->func);
    if (rows[node->op].indexed)
        TRY(cuda_stream_flag(stream, &c->bad, err));
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_index = {
    .id = CUDA_FAMILY_OWN_INDEX,
    .candidates = candidates,
    .prepare = prepare,
};
