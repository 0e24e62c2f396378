/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recurrent layers by our own kernel, which takes all steps in one launch. Its variants are the
 * numbers of hidden units that a block has; which one is fastest depends on the sizes, so the tuner
 * gets the launcher's own choice first and then all that fit.
 *
 * A sequence's length out of range cannot be returned from a captured graph: the kernel raises the
 * stream's flag (own_move.c says more). Refused: FP64, and layers of more hidden units than the
 * device's multiprocessors hold (4,224 on 132 of them).
 */
#include <stdio.h>

#include "base/compiler.h"
#include "engine/cuda/device.h"
#include "engine/cuda/own.h"

struct recurrent_op {
    struct backend_op base;
    struct kernel_recurrent how;
    uint32_t n_in, n_out;
    int32_t variant;
    int32_t *bad; /* the stream's flag for a length out of range */
};

enum { LENGTHS = 2 }; /* the operand that is no float */

/* `dtype` NONE: the type that X has. */
static bool recurrent_read(const struct ir_graph *graph, const struct ir_node *node,
                           enum dtype dtype, struct kernel_recurrent *out)
{
    const struct ir_tensor *x = ir_tensor(graph, node->inputs[0]);
    const struct shape *r = &ir_tensor(graph, node->inputs[1])->shape;
    const struct ir_attr *funcs = ir_attr(node, IR_ATTR_FUNCS);
    const struct ir_attr *alphas = ir_attr(node, IR_ATTR_ALPHAS);
    const struct ir_attr *betas = ir_attr(node, IR_ATTR_BETAS);
    enum ir_way way = (enum ir_way)ir_attr_int(node, IR_ATTR_REVERSE);
    uint32_t ways = (uint32_t)ir_way_directions(way), each = funcs ? funcs->count / ways : 0;
    if (node->n_epilogue || x->shape.rank != 3 || r->rank != 2 || each == 0 ||
        each > KERNEL_CELL_FUNCTIONS || each * ways != funcs->count || !alphas ||
        alphas->count != funcs->count || !betas || betas->count != funcs->count ||
        x->shape.dim[0] > INT32_MAX || x->shape.dim[1] > INT32_MAX || r->dim[1] > INT32_MAX)
        return false;
    struct kernel_recurrent how = {
        .cell = (int32_t)ir_attr_int(node, IR_ATTR_FUNC),
        .dtype = (int32_t)own_type(x->dtype, dtype),
        .clip = ir_attr_float(node, IR_ATTR_CLIP),
        .way = way,
        .linear = ir_attr_int(node, IR_ATTR_LINEAR) != 0,
        .coupled = ir_attr_int(node, IR_ATTR_COUPLED) != 0,
        .steps = (int32_t)x->shape.dim[0],
        .sequences = (int32_t)x->shape.dim[1],
        .hidden = (int32_t)r->dim[1],
    };
    for (uint32_t i = 0; i < funcs->count; i++) {
        uint32_t at = i / each * KERNEL_CELL_FUNCTIONS + i % each;
        how.func[at] = (int32_t)funcs->i[i];
        how.alpha[at] = alphas->f[i];
        how.beta[at] = betas->f[i];
    }
    if (node->n_inputs > LENGTHS && node->inputs[LENGTHS] != IR_NONE)
        how.lengths = (int32_t)ir_tensor(graph, node->inputs[LENGTHS])->dtype;
    *out = how;
    return true;
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    static const int32_t variants[] = {0, 8, 16, 32};
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, node, precision, dtypes);
    for (uint32_t i = 0; i < n * ARRAY_LEN(variants); i++) {
        struct kernel_recurrent how;
        int32_t variant = variants[i % ARRAY_LEN(variants)];
        struct kernel_call call = own_call_dry(device, variant);
        if (!recurrent_read(graph, node, dtypes[i / ARRAY_LEN(variants)], &how) ||
            kernel_recurrent(&call, &how, NULL) != cudaSuccess)
            continue;
        struct tactic tactic;
        char detail[TACTIC_NAME_MAX];
        snprintf(detail, sizeof(detail), variant ? "%s, blocks of %d units" : "%s",
                 dtype_name((enum dtype)how.dtype), variant);
        cuda_tactic(&tactic, &cuda_family_own_recurrent, (uint32_t)variant, graph, node,
                    dtypes[i / ARRAY_LEN(variants)], IR_LAYOUT_PLAIN, detail);
        TRY(visit(user, &tactic, err));
    }
    return STATUS_OK;
}

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace,
                          struct error *err)
{
    const struct recurrent_op *op = CONTAINER_OF(base, struct recurrent_op, base);
    const void *in[7] = {NULL};
    for (uint32_t i = 0; i < op->n_in; i++)
        in[i] = inputs[i];
    struct kernel_recurrent_data data = {
        .x = in[0],
        .r = in[1],
        .lengths = op->how.lengths ? in[LENGTHS] : NULL,
        .h0 = in[3],
        .c0 = in[4],
        .peephole = in[5],
        .bias = in[6],
        .y = outputs[0],
        .h = outputs[1],
        .c = op->n_out > 2 ? outputs[2] : NULL,
        .workspace = workspace,
        .bad = op->bad,
    };
    struct kernel_call call = own_call(stream, op->variant);
    cudaError_t code = kernel_recurrent(&call, &op->how, &data);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "recurrent kernel");
}

/* Whether all floats have the type of X. */
static bool types_fit(const struct tactic *tactic)
{
    enum dtype dtype = tactic->in[0].format.dtype;
    for (uint32_t i = 1; i < tactic->n_in; i++)
        if (i != LENGTHS && tactic->in[i].format.dtype && tactic->in[i].format.dtype != dtype)
            return false;
    for (uint32_t i = 0; i < tactic->n_out; i++)
        if (tactic->out[i].format.dtype != dtype)
            return false;
    return true;
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct recurrent_op made = {.base.launch = launch,
                                .n_in = node->n_inputs,
                                .n_out = node->n_outputs,
                                .variant = (int32_t)cuda_tactic_variant(tactic)};
    struct kernel_call call = own_call_dry(stream->device, made.variant);
    if (node->n_inputs > 7 || node->n_outputs < 2 || !own_plain(tactic) || !types_fit(tactic) ||
        !recurrent_read(graph, node, DTYPE_NONE, &made.how) ||
        kernel_recurrent(&call, &made.how, NULL) != cudaSuccess)
        return cuda_refuse(node, tactic, err);
    made.base.workspace = (uint64_t)kernel_recurrent_workspace(&call, &made.how);
    if (made.how.lengths)
        TRY(cuda_stream_flag(stream, &made.bad, err));
    return own_op_new(&made.base, sizeof(made), out, err);
}

const struct cuda_family cuda_family_own_recurrent = {
    .id = CUDA_FAMILY_OWN_RECURRENT,
    .candidates = candidates,
    .prepare = prepare,
};
