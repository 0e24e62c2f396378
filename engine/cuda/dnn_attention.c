/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention through cuDNN's scaled-dot-product operation, which compiles one kernel at run time.
 * Queries, keys and values [N,S,H*D], apart or behind one another in the rows of one tensor, are
 * seen as [N,H,S,D] by their strides; nothing is moved. Half types only, with heads of a multiple
 * of 8 columns up to 128; no epilogue, and no mask: the operation takes none that is added.
 *
 * The scale is passed by value with each launch; captured graphs keep it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/dnn_graph.h"

enum { UID_Q = 1, UID_K = 2, UID_V = 3, UID_Y = 4, UID_SCALE = 5, TENSORS = 4, HEAD_MAX = 128 };
enum { CONFIGS_MAX = 16 };

/* Everything that decides the graph. It is hashed as bytes, so it has no holes and is zeroed
 * first. */
struct attention_spec {
    int64_t dim[TENSORS][4], stride[TENSORS][4]; /* Q, K, V, Y */
    int64_t io;                                  /* enum dtype */
};

struct attention {
    struct attention_spec spec;
    enum dtype io;
    bool packed;
    float scale;
    uint64_t k_offset, v_offset; /* bytes, within the packed tensor */
};

/* --- from the node --- */

static const struct ir_tensor *input_of(const struct ir_graph *graph, const struct ir_node *node,
                                        uint32_t i)
{
    bool there = i < node->n_inputs && node->inputs[i] != IR_NONE;
    return there ? ir_tensor(graph, node->inputs[i]) : NULL;
}

static bool set_tensor(struct attention_spec *s, int i, const struct ir_tensor *t, int64_t heads,
                       int64_t columns)
{
    int64_t row = t->shape.dim[2];
    for (uint32_t k = 0; k < 3; k++)
        if (t->shape.rank != 3 || t->shape.dim[k] < 1 || t->shape.dim[k] > INT32_MAX)
            return false;
    if (columns % heads || (columns / heads) % 8 || columns / heads > HEAD_MAX)
        return false;
    s->dim[i][0] = t->shape.dim[0];
    s->dim[i][1] = heads;
    s->dim[i][2] = t->shape.dim[1];
    s->dim[i][3] = columns / heads;
    s->stride[i][0] = t->shape.dim[1] * row;
    s->stride[i][1] = columns / heads;
    s->stride[i][2] = row;
    s->stride[i][3] = 1;
    return true;
}

/* The half type that the tensor is stored as; NONE: it is stored as another type. */
static enum dtype stored(const struct ir_tensor *t, enum dtype dtype)
{
    enum dtype as = t->dtype == DTYPE_F32 ? dtype : t->dtype;
    return as == DTYPE_F16 || as == DTYPE_BF16 ? as : DTYPE_NONE;
}

static bool attention_read(const struct ir_graph *graph, const struct ir_node *node,
                           enum dtype dtype, struct attention *out)
{
    memset(out, 0, sizeof(*out));
    int64_t heads = ir_attr_int(node, IR_ATTR_HEADS);
    out->packed = ir_attr_int(node, IR_ATTR_PACKED) != 0;
    out->scale = ir_attr_float(node, IR_ATTR_ALPHA);
    const struct ir_tensor *q = input_of(graph, node, 0);
    const struct ir_tensor *k = out->packed ? q : input_of(graph, node, 1);
    const struct ir_tensor *v = out->packed ? q : input_of(graph, node, 2);
    if (node->op != IR_OP_ATTENTION || node->n_outputs != 1 || node->n_epilogue || heads < 1 ||
        !q || !k || !v || input_of(graph, node, 3) || q->shape.rank != 3 || k->shape.rank != 3 ||
        v->shape.rank != 3 || ir_attr_int(node, IR_ATTR_CAUSAL) ||
        (ir_attr_int(node, IR_ATTR_KV_HEADS) && ir_attr_int(node, IR_ATTR_KV_HEADS) != heads))
        return false;
    const struct ir_tensor *y = ir_tensor(graph, node->outputs[0]);
    int64_t parts = out->packed ? 3 : 1, width = q->shape.dim[2] / parts;
    out->io = stored(q, dtype);
    out->spec.io = out->io;
    if (!out->io || stored(k, dtype) != out->io || stored(v, dtype) != out->io ||
        stored(y, dtype) != out->io || q->shape.dim[2] % parts || y->shape.rank != 3)
        return false;
    out->k_offset = (uint64_t)width * dtype_size(out->io);
    out->v_offset = 2 * out->k_offset;
    struct attention_spec *s = &out->spec;
    return set_tensor(s, 0, q, heads, width) &&
           set_tensor(s, 1, k, heads, out->packed ? width : k->shape.dim[2]) &&
           set_tensor(s, 2, v, heads, out->packed ? width : v->shape.dim[2]) &&
           set_tensor(s, 3, y, heads, y->shape.dim[2]) && s->dim[1][0] == s->dim[0][0] &&
           s->dim[2][0] == s->dim[0][0] && s->dim[3][0] == s->dim[0][0] &&
           s->dim[1][3] == s->dim[0][3] && s->dim[2][2] == s->dim[1][2] &&
           s->dim[3][2] == s->dim[0][2] && s->dim[3][3] == s->dim[2][3];
}

static void build(struct dnn_build *b, const void *spec)
{
    static const cudnnBackendAttributeName_t names[TENSORS] = {
        CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC,
        CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC};
    const struct attention_spec *s = spec;
    cudnnDataType_t type;
    if (!dnn_type((enum dtype)s->io, &type))
        return;
    dnn_desc op = dnn_make(b, CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR, "attention");
    for (int i = 0; i < TENSORS; i++) {
        struct dnn_tensor t = {.uid = UID_Q + i, .type = type};
        memcpy(t.dim, s->dim[i], sizeof(t.dim));
        memcpy(t.stride, s->stride[i], sizeof(t.stride));
        dnn_set_desc(b, op, names[i], dnn_tensor(b, &t));
    }
    struct dnn_tensor scale = {.uid = UID_SCALE,
                               .type = CUDNN_DATA_FLOAT,
                               .dim = {1, 1, 1, 1},
                               .stride = {1, 1, 1, 1},
                               .by_value = true};
    dnn_set_desc(b, op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, dnn_tensor(b, &scale));
    dnn_finish(b, op, "attention");
    dnn_op_add(b, op);
}

/* --- candidates --- */

static bool listed(const struct dnn_config *configs, uint32_t n, int32_t engine)
{
    for (uint32_t i = 0; i < n; i++)
        if (configs[i].engine == engine)
            return true;
    return false;
}

/* Lists what the heuristics propose, and every other engine with its default knobs. */
static enum status list(struct cuda_dnn *dnn, const struct attention *at,
                        struct dnn_config out[CONFIGS_MAX], uint32_t *n, struct error *err)
{
    struct dnn_build *b;
    struct dnn_engine engine;
    TRY(dnn_build_new(dnn, &b, err));
    build(b, &at->spec);
    dnn_graph_finish(b);
    uint32_t found = dnn_heuristic(b, CONFIGS_MAX / 2, out), engines = dnn_engine_count(b);
    for (uint32_t i = 0; i < engines && found < CONFIGS_MAX; i++)
        if (!listed(out, found, (int32_t)i) && dnn_engine_read(b, (int32_t)i, &engine))
            out[found++] = (struct dnn_config){.engine = (int32_t)i};
    dnn_build_free(b);
    *n = found;
    return STATUS_OK;
}

static enum status visit_all(const struct ir_graph *graph, const struct ir_node *node,
                             const struct attention *at, enum dtype dtype,
                             const struct dnn_config *configs, uint32_t n, tactic_visit visit,
                             void *user, struct error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        struct tactic t;
        char text[TACTIC_NAME_MAX], detail[TACTIC_NAME_MAX];
        dnn_config_text(&configs[i], text, sizeof(text));
        snprintf(detail, sizeof(detail), "%.60s %s", text, at->io == DTYPE_F16 ? "f16" : "bf16");
        cuda_tactic(&t, &cuda_family_dnn_attention, 0, graph, node, dtype, IR_LAYOUT_PLAIN, detail);
        t.blob_size = dnn_config_write(&configs[i], t.blob);
        TRY(visit(user, &t, err));
    }
    return STATUS_OK;
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    enum dtype dtypes[3];
    uint32_t n_types = cuda_dtypes(graph, node, precision, dtypes);
    for (uint32_t i = 0; i < n_types; i++) {
        struct attention at;
        struct dnn_config configs[CONFIGS_MAX];
        uint32_t n = 0;
        if (!attention_read(graph, node, dtypes[i], &at))
            continue;
        TRY(list(device->dnn, &at, configs, &n, err));
        TRY(visit_all(graph, node, &at, dtypes[i], configs, n, visit, user, err));
    }
    return STATUS_OK;
}

/* --- back from a tactic --- */

static enum status get_plan(struct cuda_device *device, const struct ir_graph *graph,
                            const struct ir_node *node, const struct tactic *tactic,
                            struct attention *at, struct dnn_plan **out, struct error *err)
{
    struct dnn_recipe recipe = {.spec = &at->spec, .spec_size = sizeof(at->spec), .build = build};
    if (tactic->id != cuda_tactic_id(CUDA_FAMILY_DNN_ATTENTION, 0) ||
        tactic->blob_size > TACTIC_BLOB_MAX ||
        !dnn_config_read(tactic->blob, tactic->blob_size, &recipe.config) ||
        !attention_read(graph, node, tactic_float(tactic), at))
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "cuDNN: '%s' cannot run as planned: the tactic is not for this node",
                         node->name);
    enum status status =
        dnn_plan_get(device->dnn, &recipe, tactic->code, tactic->code_size, out, err);
    if (status)
        error_prefix(err, "'%s'", node->name);
    return status;
}

static enum status plan(struct cuda_device *device, const struct ir_graph *graph,
                        const struct ir_node *node, const struct tactic *tactic,
                        struct dnn_plan **out, struct error *err)
{
    struct attention at;
    return get_plan(device, graph, node, tactic, &at, out, err);
}

/* --- running --- */

struct attention_op {
    struct backend_op base;
    struct cuda_dnn *dnn;
    struct dnn_plan *plan;
    const char *name; /* the node's */
    struct attention at;
    struct dnn_pack pack;
};

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace,
                          struct error *err)
{
    struct attention_op *op = CONTAINER_OF(base, struct attention_op, base);
    const struct attention *at = &op->at;
    void *address[] = {
        inputs[0],
        at->packed ? (char *)inputs[0] + at->k_offset : inputs[1],
        at->packed ? (char *)inputs[0] + at->v_offset : inputs[2],
        outputs[0],
        &op->at.scale,
    };
    return dnn_pack_run(&op->pack, stream, op->plan, address, workspace, op->name, err);
}

static void op_free(struct backend_op *base)
{
    struct attention_op *op = CONTAINER_OF(base, struct attention_op, base);
    dnn_pack_deinit(&op->pack);
    dnn_plan_put(op->dnn, op->plan);
    free(op);
}

static bool is_large_enough(const struct ir_tensor *t, enum dtype io)
{
    uint64_t bytes;
    return !t || (t->layout == IR_LAYOUT_PLAIN &&
                  ir_layout_bytes(&t->shape, io, t->layout, &bytes) && t->bytes >= bytes);
}

static bool tensors_fit(const struct ir_graph *graph, const struct ir_node *node, enum dtype io)
{
    bool fit = is_large_enough(ir_tensor(graph, node->outputs[0]), io);
    for (uint32_t i = 0; i < node->n_inputs; i++)
        fit = fit && is_large_enough(input_of(graph, node, i), io);
    return fit;
}

/* The op owns `plan` if this succeeds. */
static enum status make_op(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct attention *at,
                           struct dnn_plan *plan, struct backend_op **out, struct error *err)
{
    cudnnHandle_t handle;
    if (!tensors_fit(graph, node, at->io))
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "cuDNN: '%s': a tensor has another size than it needs", node->name);
    if (stream->device->ordinal >= 0)
        TRY(dnn_stream_handle(stream, &handle, err));
    struct attention_op *op = calloc(1, sizeof(*op));
    if (!op)
        return error_no_memory(err, "cuDNN");
    op->base = (struct backend_op){
        .workspace = dnn_plan_workspace(plan), .launch = launch, .free = op_free};
    op->dnn = stream->device->dnn;
    op->plan = plan;
    op->name = node->name;
    op->at = *at;
    op->pack.n = UID_SCALE;
    for (uint32_t i = 0; i < op->pack.n; i++)
        op->pack.uid[i] = UID_Q + i;
    *out = &op->base;
    return STATUS_OK;
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct attention at;
    struct dnn_plan *plan;
    struct cuda_device *device = stream->device;
    TRY(get_plan(device, graph, node, tactic, &at, &plan, err));
    enum status status = make_op(stream, graph, node, &at, plan, out, err);
    if (status)
        dnn_plan_put(device->dnn, plan);
    return status;
}

const struct cuda_family cuda_family_dnn_attention = {
    .id = CUDA_FAMILY_DNN_ATTENTION,
    .candidates = candidates,
    .plan = plan,
    .prepare = prepare,
};
