/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The family of convolutions through cuDNN: candidates, plans, running.
 *
 * A tactic's blob holds the spelling, the input's layout, the engine and its knobs. When a stored
 * tactic comes back, the node is read again as the blob says, and the sizes are compared with the
 * tactic's ports. So a damaged blob is refused here, or cuDNN refuses its engine.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/cuda/dnn_conv.h"
#include "engine/cuda/own.h"

enum { BLOB_HEAD = 2 };

/* --- tactics --- */

static const char *layout_text(enum ir_layout layout)
{
    return layout == IR_LAYOUT_CHANNELS_LAST     ? "nhwc"
           : layout == IR_LAYOUT_CHANNELS_LAST_4 ? "nhwc4"
                                                 : "nhwc8";
}

static const char *type_text(enum dtype io)
{
    return io == DTYPE_F16 ? "f16" : io == DTYPE_BF16 ? "bf16" : "f32";
}

/* Tensors of the output's rank are channels-last; operands of another rank stay plain. */
static void set_ports(const struct ir_graph *graph, const struct ir_node *node,
                      const struct conv *conv, struct tactic *t)
{
    t->in[0].format.layout = conv->layout;
    if (conv->packed)
        tactic_port_pack(&t->in[1], conv->weights_bytes);
    if (conv->biased)
        tactic_port_pack(&t->in[2], conv->bias_bytes);
    for (uint32_t i = ir_node_own_inputs(node); conv->spec.transposed && i < t->n_in; i++)
        if (node->inputs[i] != IR_NONE && ir_tensor(graph, node->inputs[i])->shape.rank !=
                                              ir_tensor(graph, node->outputs[0])->shape.rank)
            t->in[i].format.layout = IR_LAYOUT_PLAIN;
    for (int32_t i = 0; i < conv->spec.n_operands; i++) {
        uint32_t input = (uint32_t)conv->spec.operand[i].input;
        uint64_t bytes = conv_operand_bytes(graph, node, conv, (uint32_t)i);
        bool plain = ir_tensor(graph, node->inputs[input])->shape.rank !=
                     ir_tensor(graph, node->outputs[0])->shape.rank;
        if (bytes > 0)
            tactic_port_pack(&t->in[input], bytes);
        else
            t->in[input].format.layout = plain ? IR_LAYOUT_PLAIN : IR_LAYOUT_CHANNELS_LAST;
    }
}

/* What follows a transposed convolution in a launch of its own: the bias, and the epilogue. `dtype`
 * NONE: with the types that the tensors have. */
struct after {
    struct kernel_view y;
    struct kernel_epilogue steps;
};

static bool read_after(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                       const struct conv *conv, struct after *out)
{
    struct after after = {.steps.n = conv->biased};
    struct kernel_epilogue own;
    struct kernel_call dry = {.dry = true};
    if (!own_view(ir_tensor(graph, node->outputs[0]), dtype, IR_LAYOUT_CHANNELS_LAST, &after.y) ||
        !cuda_epilogue(graph, node, &after.y, &own) || own.n + after.steps.n > KERNEL_STEPS_MAX)
        return false;
    after.steps.step[0] = own_channel_step(&after.y, IR_BINARY_ADD);
    for (int32_t i = 0; i < own.n; i++)
        after.steps.step[after.steps.n++] = own.step[i];
    *out = after;
    return kernel_map(&dry, &after.y, &after.y, 0, &after.steps) == cudaSuccess;
}

static bool make_tactic(const struct ir_graph *graph, const struct ir_node *node, enum dtype dtype,
                        enum dtype io, const struct conv_choice *choice, struct tactic *out)
{
    struct conv conv;
    struct after after;
    char config[TACTIC_NAME_MAX], detail[TACTIC_NAME_MAX];
    if (!conv_read(graph, node, io, choice->layout, choice->spelling, &conv) ||
        (conv.spec.transposed && !read_after(graph, node, dtype, &conv, &after)))
        return false;
    dnn_config_text(&choice->config, config, sizeof(config));
    snprintf(detail, sizeof(detail), "%.60s%s %s %s", config,
             choice->spelling == CONV_BIAS_FLOAT ? " f32bias" : "", layout_text(choice->layout),
             type_text(io));
    cuda_tactic(out, &cuda_family_dnn_conv, 0, graph, node, dtype, IR_LAYOUT_CHANNELS_LAST, detail);
    set_ports(graph, node, &conv, out);
    out->blob[0] = (uint8_t)choice->spelling;
    out->blob[1] = (uint8_t)choice->layout;
    out->kin = choice->kin;
    out->wave = choice->wave;
    out->blob_size = BLOB_HEAD + dnn_config_write(&choice->config, out->blob + BLOB_HEAD);
    return true;
}

_Static_assert((int)BLOB_HEAD + (int)DNN_CONFIG_BYTES_MAX <= (int)TACTIC_BLOB_MAX, "a blob fits");

static enum status list_type(struct cuda_device *device, const struct ir_graph *graph,
                             const struct ir_node *node, enum dtype io, bool strict,
                             struct conv_choice *out, uint32_t *n, struct error *err)
{
    const struct shape *x = &ir_tensor(graph, node->inputs[0])->shape;
    bool stem = node->op == IR_OP_CONV && x->rank > 1 && x->dim[1] % 8 != 0 &&
                ir_attr_int(node, IR_ATTR_GROUP) == 1;
    static const enum ir_layout layouts[] = {IR_LAYOUT_CHANNELS_LAST_4, IR_LAYOUT_CHANNELS_LAST,
                                             IR_LAYOUT_CHANNELS_LAST_8};
    for (uint32_t i = 0; i < ARRAY_LEN(layouts); i++)
        if (stem || layouts[i] == IR_LAYOUT_CHANNELS_LAST)
            TRY(conv_list(device->dnn, graph, node, io, layouts[i], strict, stem, out, n, err));
    return STATUS_OK;
}

static enum status visit_all(const struct ir_graph *graph, const struct ir_node *node,
                             enum dtype dtype, enum dtype io, const struct conv_choice *choices,
                             uint32_t n, tactic_visit visit, void *user, struct error *err)
{
    CLEANUP(cleanup_free) struct tactic *t = malloc(sizeof(*t));
    if (!t)
        return error_no_memory(err, "cuDNN");
    for (uint32_t i = 0; i < n; i++)
        if (make_tactic(graph, node, dtype, io, &choices[i], t))
            TRY(visit(user, t, err));
    return STATUS_OK;
}

/* Offers the first of the allowed types for which cuDNN has any candidate: the types after it are
 * slower. */
static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    enum dtype dtypes[3];
    uint32_t n_types = cuda_dtypes(graph, node, precision, dtypes), n = 0;
    CLEANUP(cleanup_free) struct conv_choice *choices = malloc(CONV_CHOICES_MAX * sizeof(*choices));
    if (!choices)
        return error_no_memory(err, "cuDNN");
    for (uint32_t i = 0; i < n_types && n == 0; i++) {
        enum dtype io = conv_io(graph, node, dtypes[i]);
        if (io == DTYPE_NONE)
            continue;
        bool strict = io == DTYPE_F32 && precision == PRECISION_F32;
        TRY(list_type(device, graph, node, io, strict, choices, &n, err));
        TRY(visit_all(graph, node, dtypes[i], io, choices, n, visit, user, err));
    }
    return STATUS_OK;
}

/* --- back from a tactic --- */

static enum status refuse(const struct ir_node *node, struct error *err, const char *why)
{
    return error_set(err, STATUS_FAILED_PRECONDITION, "cuDNN: '%s' cannot run as planned: %s",
                     node->name, why);
}

static bool ports_match(const struct ir_graph *graph, const struct ir_node *node,
                        const struct conv *conv, const struct tactic *t)
{
    struct tactic *want = malloc(sizeof(*want));
    if (!want)
        return false;
    cuda_tactic(want, &cuda_family_dnn_conv, 0, graph, node, tactic_float(t),
                IR_LAYOUT_CHANNELS_LAST, "");
    bool match = t->n_in == want->n_in && t->n_out == 1 &&
                 t->out[0].format.layout == IR_LAYOUT_CHANNELS_LAST && t->out[0].packed_bytes == 0;
    if (match)
        set_ports(graph, node, conv, want);
    for (uint32_t i = 0; match && i < t->n_in; i++)
        match =
            node->inputs[i] == IR_NONE ||
            (t->in[i].packed_bytes == want->in[i].packed_bytes &&
             (t->in[i].packed_bytes > 0 || t->in[i].format.layout == want->in[i].format.layout));
    free(want);
    return match;
}

static enum status reread(const struct ir_graph *graph, const struct ir_node *node,
                          const struct tactic *tactic, struct conv *conv, struct dnn_recipe *recipe,
                          struct error *err)
{
    enum dtype io = conv_io(graph, node, tactic_float(tactic));
    if (io == DTYPE_NONE || tactic->id != cuda_tactic_id(CUDA_FAMILY_DNN_CONV, 0))
        return refuse(node, err, "not a tactic for this node");
    *recipe = (struct dnn_recipe){
        .spec = &conv->spec, .spec_size = sizeof(conv->spec), .build = conv_build};
    if (tactic->blob_size <= BLOB_HEAD || tactic->blob_size > TACTIC_BLOB_MAX ||
        tactic->blob[0] >= CONV_SPELLINGS ||
        !dnn_config_read(tactic->blob + BLOB_HEAD, tactic->blob_size - BLOB_HEAD, &recipe->config))
        return refuse(node, err, "the tactic is damaged");
    if (!conv_read(graph, node, io, (enum ir_layout)tactic->blob[1],
                   (enum conv_spelling)tactic->blob[0], conv) ||
        !ports_match(graph, node, conv, tactic))
        return refuse(node, err, "the tactic is not for this node");
    return STATUS_OK;
}

static enum status pack(struct cuda_device *device UNUSED, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                        void *to, struct error *err)
{
    struct conv conv;
    struct dnn_recipe recipe;
    TRY(reread(graph, node, tactic, &conv, &recipe, err));
    return conv_pack(graph, node, &conv, input, to, err);
}

static enum status get_plan(struct cuda_device *device, const struct ir_graph *graph,
                            const struct ir_node *node, const struct tactic *tactic,
                            struct conv *conv, struct dnn_plan **out, struct error *err)
{
    struct dnn_recipe recipe;
    TRY(reread(graph, node, tactic, conv, &recipe, err)); /* its errors name the node */
    return dnn_plan_of(device, node, tactic, &recipe, out, err);
}

static enum status plan(struct cuda_device *device, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic,
                        struct dnn_plan **out, struct error *err)
{
    struct conv conv;
    return get_plan(device, graph, node, tactic, &conv, out, err);
}

/* --- running --- */

struct binding {
    uint32_t input; /* of the node; IR_NONE: the output */
    uint64_t offset;
};

struct conv_op {
    struct backend_op base;
    struct cuda_dnn *dnn;
    struct dnn_plan *plan;
    const struct ir_node *node;
    struct after after; /* of a transposed convolution */
    struct dnn_pack pack;
    struct binding binding[DNN_BINDINGS_MAX];
};

static void bind(struct conv_op *op, int64_t uid, uint32_t input, uint64_t offset)
{
    op->pack.uid[op->pack.n] = uid;
    op->binding[op->pack.n++] = (struct binding){input, offset};
}

_Static_assert(4 + (int)CONV_OPERANDS_MAX <= (int)DNN_BINDINGS_MAX, "all operands are bound");

static bool bind_all(struct conv_op *op, const struct conv *conv)
{
    const struct conv_spec *s = &conv->spec;
    if (4 + s->n_operands + s->n_scalars > DNN_BINDINGS_MAX)
        return false;
    bind(op, CONV_UID_X, 0, 0);
    bind(op, CONV_UID_W, 1, 0);
    bind(op, CONV_UID_Y, IR_NONE, 0);
    if (conv->adds)
        bind(op, CONV_UID_BIAS, conv->biased ? 2 : 1, conv->biased ? 0 : conv->zeros_at);
    for (int32_t i = 0; i < s->n_operands; i++)
        bind(op, CONV_UID_OPERAND + i, (uint32_t)s->operand[i].input, 0);
    for (int32_t i = 0; i < s->n_scalars; i++)
        bind(op, CONV_UID_SCALAR + i, 1, conv->scalars_at + (uint64_t)i * CONV_SCALAR_STRIDE);
    return true;
}

/* In place. */
static enum status run_after(struct conv_op *op, struct backend_stream *stream, void *const *inputs,
                             void *const *outputs, struct error *err)
{
    struct kernel_call call = own_call(stream, 0);
    struct after *a = &op->after;
    a->y.data = outputs[0];
    if (a->steps.n > (int32_t)op->node->n_epilogue) /* the bias */
        a->steps.step[0].operand.data = inputs[2];
    cuda_epilogue_bind(&a->steps, op->node, inputs);
    cudaError_t code = kernel_map(&call, &a->y, &a->y, 0, &a->steps);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "convolution's epilogue");
}

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace,
                          struct error *err)
{
    struct conv_op *op = CONTAINER_OF(base, struct conv_op, base);
    void *address[DNN_BINDINGS_MAX];
    for (uint32_t i = 0; i < op->pack.n; i++) {
        const struct binding *b = &op->binding[i];
        address[i] = (char *)(b->input == IR_NONE ? outputs[0] : inputs[b->input]) + b->offset;
    }
    TRY(dnn_pack_run(&op->pack, stream, op->plan, address, workspace, op->node->name, err));
    return op->after.steps.n == 0 ? STATUS_OK : run_after(op, stream, inputs, outputs, err);
}

static void op_free(struct backend_op *base)
{
    struct conv_op *op = CONTAINER_OF(base, struct conv_op, base);
    dnn_pack_deinit(&op->pack);
    dnn_plan_put(op->dnn, op->plan);
    free(op);
}

/* Whether the tensor is as large as the plan takes it to be. */
static bool is_large_enough(const struct ir_tensor *t, enum dtype io)
{
    uint64_t bytes;
    return t->layout == IR_LAYOUT_OPAQUE ||
           (ir_layout_bytes(&t->shape, io, t->layout, &bytes) && t->bytes >= bytes);
}

static bool tensors_fit(const struct ir_graph *graph, const struct ir_node *node, enum dtype io)
{
    bool fit = is_large_enough(ir_tensor(graph, node->outputs[0]), io);
    for (uint32_t i = 0; fit && i < node->n_inputs; i++)
        fit = node->inputs[i] == IR_NONE || is_large_enough(ir_tensor(graph, node->inputs[i]), io);
    return fit;
}

/* The op owns `plan` if this succeeds. */
static enum status make_op(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct conv *conv,
                           struct dnn_plan *plan, struct backend_op **out, struct error *err)
{
    cudnnHandle_t handle;
    CLEANUP(cleanup_free) struct conv_op *op = calloc(1, sizeof(*op));
    if (!op)
        return error_no_memory(err, "cuDNN");
    if (!bind_all(op, conv) || !tensors_fit(graph, node, (enum dtype)conv->spec.io))
        return refuse(node, err, "a tensor has another size than it needs");
    if (conv->spec.transposed && !read_after(graph, node, DTYPE_NONE, conv, &op->after))
        return refuse(node, err, "its epilogue is not as planned");
    if (stream->device->ordinal >= 0)
        TRY(dnn_stream_handle(stream, &handle, err));
    op->base = (struct backend_op){
        .workspace = dnn_plan_workspace(plan), .launch = launch, .free = op_free};
    op->dnn = stream->device->dnn;
    op->plan = plan;
    op->node = node;
    *out = &STEAL(op)->base;
    return STATUS_OK;
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct conv conv;
    struct dnn_plan *plan;
    struct cuda_device *device = stream->device;
    TRY(get_plan(device, graph, node, tactic, &conv, &plan, err));
    enum status status = make_op(stream, graph, node, &conv, plan, out, err);
    if (status)
        dnn_plan_put(device->dnn, plan);
    return status;
}

const struct cuda_family cuda_family_dnn_conv = {
    .id = CUDA_FAMILY_DNN_CONV,
    .candidates = candidates,
    .pack = pack,
    .plan = plan,
    .prepare = prepare,
};
