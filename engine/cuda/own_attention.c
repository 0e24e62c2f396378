/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attention by our own kernels. Queries, keys and values, apart or in one tensor, are read where
 * the matrix products before the node left them. The variants of kernel_attention are tactics of
 * their own; which is best depends on batch, heads and length, so they are timed. The output may be
 * stored in 8 bits by a scale.
 */
#include <stdio.h>

#include "base/compiler.h"
#include "engine/cuda/attention.h"
#include "engine/cuda/own.h"
#include "engine/stored.h"

struct attention_op {
    struct backend_op base;
    int32_t variant;
    struct cuda_attention at;
};

static const struct {
    const char *name;
    int32_t variant;
} variants[] = {
    {"128 queries", KERNEL_ATTENTION_128},
    {"64 queries", KERNEL_ATTENTION_64},
    {"32 queries", KERNEL_ATTENTION_32},
    {"128 queries wide", KERNEL_ATTENTION_WIDE_128},
    {"64 queries wide", KERNEL_ATTENTION_WIDE_64},
    {"split keys", KERNEL_ATTENTION_SPLIT},
    {"parts of keys", KERNEL_ATTENTION_PARTS},
    {"pass of pairs", KERNEL_ATTENTION_PASS_PAIR},
    {"pass of 128", KERNEL_ATTENTION_PASS_128},
    {"pass of 208", KERNEL_ATTENTION_PASS_208},
    {"pass of 256", KERNEL_ATTENTION_PASS_256},
    {"pass by blocks", KERNEL_ATTENTION_PASS_BLOCKS},
    {"pass of a stream", KERNEL_ATTENTION_PASS_STREAM},
    {"plain", KERNEL_ATTENTION_PLAIN},
};

/* Without addresses this is for a dry call: views have no data, but the launcher must see that
 * there is a mask. */
static struct kernel_attention arguments(struct cuda_attention *at, bool dry, void *workspace)
{
    if (dry)
        at->mask.data = at->masked ? at : NULL;
    if (dry)
        at->spans = at->spanned ? (const int32_t *)(const void *)at : NULL;
    return (struct kernel_attention){
        .q = &at->q,
        .k = &at->k,
        .v = &at->v,
        .mask = &at->mask,
        .y = &at->y,
        .scale = at->scale,
        .causal = at->causal,
        .workspace = workspace,
        .spans = at->spans,
    };
}

/* Whether the variant takes the node. */
static bool takes(const struct cuda_device *device, int32_t variant, struct cuda_attention *at,
                  uint64_t *workspace)
{
    struct kernel_call call = own_call_dry(device, variant);
    struct kernel_attention a = arguments(at, true, NULL);
    *workspace = kernel_attention_workspace(&call, &a);
    return kernel_attention(&call, &a) == cudaSuccess;
}

struct offer {
    struct cuda_device *device;
    const struct ir_graph *graph;
    const struct ir_node *node;
    enum precision precision;
    enum dtype dtype;
    tactic_visit visit;
    void *user;
    struct cuda_attention at;
    bool any;
};

/* The plain variant is offered only if no other is: it is never faster. */
static enum status offer(struct offer *o, uint32_t i, struct error *err)
{
    uint64_t workspace;
    if ((variants[i].variant == KERNEL_ATTENTION_PLAIN && o->any) ||
        !takes(o->device, variants[i].variant, &o->at, &workspace))
        return STATUS_OK;
    o->any = true;
    char detail[TACTIC_NAME_MAX];
    bool same = o->at.y.dtype == o->at.q.dtype;
    snprintf(detail, sizeof(detail), "%s %s%s%s", dtype_name((enum dtype)o->at.q.dtype),
             variants[i].name, same ? "" : " to ",
             same ? "" : dtype_name((enum dtype)o->at.y.dtype));
    struct tactic tactic;
    cuda_tactic(&tactic, &cuda_family_own_attention, (uint32_t)variants[i].variant, o->graph,
                o->node, o->dtype, IR_LAYOUT_PLAIN, detail);
    stored_set_scales(&tactic, o->graph, o->node);
    return o->visit(o->user, &tactic, err);
}

/* What the launcher would choose comes first: it is taken where nothing is timed. */
static enum status offer_all(struct offer *o, struct error *err)
{
    struct kernel_call call = own_call_dry(o->device, 0);
    struct kernel_attention a = arguments(&o->at, true, NULL);
    int32_t choice = kernel_attention_choice(&call, &a);
    for (uint32_t i = 0; i < ARRAY_LEN(variants); i++)
        if (variants[i].variant == choice)
            TRY(offer(o, i, err));
    for (uint32_t i = 0; i < ARRAY_LEN(variants); i++)
        if (variants[i].variant != choice)
            TRY(offer(o, i, err));
    return STATUS_OK;
}

static enum status offer_types(void *user, const struct ir_graph *graph, struct error *err)
{
    struct offer *o = user;
    enum dtype dtypes[3];
    uint32_t n = cuda_dtypes(graph, o->node, o->precision, dtypes);
    o->graph = graph;
    for (uint32_t d = 0; d < n; d++) {
        o->dtype = dtypes[d];
        o->any = false;
        if (cuda_attention_read(graph, o->node, dtypes[d], &o->at))
            TRY(offer_all(o, err));
    }
    return STATUS_OK;
}

static enum status candidates(struct cuda_device *device, const struct ir_graph *graph,
                              const struct ir_node *node, enum precision precision,
                              tactic_visit visit, void *user, struct error *err)
{
    struct offer o = {
        .device = device, .node = node, .precision = precision, .visit = visit, .user = user};
    TRY(offer_types(&o, graph, err));
    return stored_each(graph, node, offer_types, &o, err);
}

static enum status launch(struct backend_op *base, struct backend_stream *stream,
                          void *const *inputs, void *const *outputs, void *workspace,
                          struct error *err)
{
    struct attention_op *op = CONTAINER_OF(base, struct attention_op, base);
    struct kernel_call call = own_call(stream, op->variant);
    cuda_attention_bind(&op->at, inputs, outputs);
    struct kernel_attention a = arguments(&op->at, false, workspace);
    cudaError_t code = kernel_attention(&call, &a);
    return code == cudaSuccess ? STATUS_OK : cuda_error(err, code, "attention kernel");
}

static enum status prepare(struct backend_stream *stream, const struct ir_graph *graph,
                           const struct ir_node *node, const struct tactic *tactic,
                           struct backend_op **out, struct error *err)
{
    struct attention_op made = {.base.launch = launch,
                                .variant = (int32_t)cuda_tactic_variant(tactic)};
    if (made.variant == 0 || !own_plain(tactic) ||
        !cuda_attention_read(graph, node, DTYPE_NONE, &made.at) ||
        !takes(stream->device, made.variant, &made.at, &made.base.workspace))
        return cuda_refuse(node, tactic, err);
    return own_op_new(&made.base, sizeof(made), out, err);
}

/* One pass over few keys. On an H200 it took 106 us of 2,048 windows of 49 keys with a bias, where
 * cuDNN's first engine takes 320; with the 1,500 keys of Whisper the two take the same time. */
static bool leads(const struct cuda_device *device, const struct ir_graph *graph,
                  const struct ir_node *node)
{
    enum { KEYS = 256 };
    struct cuda_attention at;
    if (!cuda_attention_read(graph, node, DTYPE_F16, &at) || at.k.dim[2] > KEYS)
        return false;
    struct kernel_call call = own_call_dry(device, 0);
    struct kernel_attention a = arguments(&at, true, NULL);
    int32_t choice = kernel_attention_choice(&call, &a);
    return choice && choice != KERNEL_ATTENTION_PLAIN && choice != KERNEL_ATTENTION_SPLIT;
}

const struct cuda_family cuda_family_own_attention = {
    .id = CUDA_FAMILY_OWN_ATTENTION,
    .scales = true,
    .leads = leads,
    .candidates = candidates,
    .prepare = prepare,
};
