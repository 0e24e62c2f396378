/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention through cuDNN, which compiles one kernel at run time: half types only, heads of a
 * multiple of 8 columns, no epilogue. dnn_attention.h says how it is spelled.
 *
 * Not taken: BOOL masks, masks that do not go along the keys, and forms in which a query may see no
 * key by its place alone (causal with more queries than keys).
 *
 * The scale is passed by value with each launch; captured graphs keep it.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/cuda/attention.h"
#include "engine/cuda/dnn_attention.h"

enum { CONFIGS_MAX = 16, HEAD_MAX = 256, BINDINGS = 3 /* scalars */ + ATTENTION_TENSORS };

struct attention {
    struct cuda_attention views;
    struct attention_spec spec;
    float hidden;
    int32_t shift;
};

/* --- from the node --- */

static bool set_tensor(struct attention_spec *s, int i, const struct kernel_view *view)
{
    for (int d = 0; d < 4; d++) {
        if (view->dim[d] < 1 || view->dim[d] > INT32_MAX)
            return false;
        s->dim[i][d] = view->dim[d];
        s->stride[i][d] = view->stride[d];
    }
    return view->dtype == s->io && view->dim[3] % 8 == 0 && view->dim[3] <= HEAD_MAX;
}

/* A mask lies plainly, so its strides follow from its own dims. */
static bool set_mask(struct attention_spec *s, const struct kernel_view *view)
{
    int64_t *dim = s->dim[ATTENTION_MASK], *stride = s->stride[ATTENTION_MASK], step = 1;
    for (int d = 3; d >= 0; d--) {
        dim[d] = view->stride[d] ? view->dim[d] : 1;
        stride[d] = step;
        step *= dim[d];
    }
    return view->dtype == s->io && dim[3] == view->dim[3] &&
           (dim[0] == 1 || dim[0] == s->dim[ATTENTION_Q][0]);
}

static bool attention_read(const struct ir_graph *graph, const struct ir_node *node,
                           enum dtype dtype, struct attention *out)
{
    memset(out, 0, sizeof(*out));
    struct cuda_attention *at = &out->views;
    struct attention_spec *s = &out->spec;
    if (!cuda_attention_read(graph, node, dtype, at) || at->spanned)
        return false;
    int64_t queries = at->q.dim[2], keys = at->k.dim[2];
    s->io = at->q.dtype;
    s->masked = at->masked;
    s->causal = at->causal && queries > 1;
    out->hidden = -INFINITY;
    out->shift = (int32_t)(keys - queries);
    if ((s->io != DTYPE_F16 && s->io != DTYPE_BF16) || (s->causal && queries > keys) ||
        (s->causal && s->masked && queries != keys))
        return false;
    return set_tensor(s, ATTENTION_Q, &at->q) && set_tensor(s, ATTENTION_K, &at->k) &&
           set_tensor(s, ATTENTION_V, &at->v) && set_tensor(s, ATTENTION_Y, &at->y) &&
           (!at->masked || set_mask(s, &at->mask));
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
    attention_build(b, &at->spec);
    dnn_graph_finish(b);
    uint32_t engines = dnn_engine_count(b);
    if (engines)
        dnn_compiler_hold(dnn);
    uint32_t found = dnn_heuristic(b, CONFIGS_MAX / 2, out);
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
        snprintf(detail, sizeof(detail), "%.60s %s", text,
                 at->spec.io == DTYPE_F16 ? "f16" : "bf16");
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
    struct dnn_recipe recipe = {
        .spec = &at->spec, .spec_size = sizeof(at->spec), .build = attention_build};
    if (tactic->id != cuda_tactic_id(CUDA_FAMILY_DNN_ATTENTION, 0) ||
        tactic->blob_size > TACTIC_BLOB_MAX ||
        !dnn_config_read(tactic->blob, tactic->blob_size, &recipe.config) ||
        !attention_read(graph, node, tactic_float(tactic), at))
        return error_set(err, STATUS_FAILED_PRECONDITION,
                         "cuDNN: '%s' cannot run as planned: the tactic is not for this node",
                         node->name);
    return dnn_plan_of(device, node, tactic, &recipe, out, err);
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
    struct cuda_attention *at = &op->at.views;
    cuda_attention_bind(at, inputs, outputs);
    void *const all[BINDINGS] = {at->q.data,    at->k.data, at->v.data,     at->y.data,
                                 at->mask.data, &at->scale, &op->at.hidden, &op->at.shift};
    void *address[BINDINGS];
    for (uint32_t i = 0; i < op->pack.n; i++)
        address[i] = all[op->pack.uid[i] - ATTENTION_UID];
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
    return t->layout == IR_LAYOUT_PLAIN && ir_layout_bytes(&t->shape, io, t->layout, &bytes) &&
           t->bytes >= bytes;
}

static bool tensors_fit(const struct ir_graph *graph, const struct ir_node *node, enum dtype io)
{
    bool fit = is_large_enough(ir_tensor(graph, node->outputs[0]), io);
    for (uint32_t i = 0; i < node->n_inputs; i++)
        fit = fit && (node->inputs[i] == IR_NONE ||
                      is_large_enough(ir_tensor(graph, node->inputs[i]), io));
    return fit;
}

/* Lists the tensors that the graph of this spec has, as attention_build makes it. */
static void list_tensors(const struct attention *at, struct dnn_pack *pack)
{
    const struct attention_spec *s = &at->spec;
    const struct {
        int64_t uid;
        bool there;
    } rows[] = {
        {ATTENTION_UID + ATTENTION_Q, true},
        {ATTENTION_UID + ATTENTION_K, true},
        {ATTENTION_UID + ATTENTION_V, true},
        {ATTENTION_UID + ATTENTION_Y, true},
        {ATTENTION_UID + ATTENTION_MASK, s->masked != 0},
        {ATTENTION_UID_SCALE, true},
        {ATTENTION_UID_HIDDEN, s->causal != 0},
        {ATTENTION_UID_SHIFT, s->causal && at->shift != 0},
    };
    pack->n = 0;
    for (uint32_t i = 0; i < ARRAY_LEN(rows); i++)
        if (rows[i].there)
            pack->uid[pack->n++] = rows[i].uid;
}

/* The op owns `plan` if this succeeds. */
static enum status make_op(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct attention *at,
                           struct dnn_plan *plan, struct backend_op **out, struct error *err)
{
    cudnnHandle_t handle;
    if (!tensors_fit(graph, node, (enum dtype)at->spec.io))
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
    list_tensors(at, &op->pack);
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
