/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cpu/eval.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/cpu/reference.h"

static void reference_op_cleanup(struct reference_op **at)
{
    reference_op_free(*at);
}

enum status cpu_eval_node(void *user UNUSED, const struct ir_graph *graph,
                          const struct ir_node *node, const void *const *inputs,
                          void *const *outputs, struct error *err)
{
    CLEANUP(reference_op_cleanup) struct reference_op *op = NULL;
    CLEANUP(cleanup_free) void *workspace = NULL;
    TRY(reference_op_prepare(graph, node, NULL, &op, err));
    uint64_t bytes = reference_op_workspace(op);
    if (bytes && !(workspace = malloc(bytes)))
        return error_no_memory(err, "folding constants");
    void *in[IR_MAX_INPUTS];
    memcpy(in, inputs, node->n_inputs * sizeof(in[0])); /* kernels do not write to inputs */
    return reference_op_launch(op, in, outputs, workspace, err);
}

/* Where each tensor is while a graph runs. */
struct places {
    uint32_t n;
    void **at;      /* indexed by tensor */
    uint32_t *uses; /* readers still to come */
    bool *owned;
};

static void places_cleanup(struct places *p)
{
    for (uint32_t i = 0; p->at && p->owned && i < p->n; i++)
        if (p->owned[i])
            free(p->at[i]);
    free(p->at);
    free(p->uses);
    free(p->owned);
}

static enum status places_init(struct places *p, const struct ir_graph *graph, struct error *err)
{
    p->n = graph->n_tensors;
    p->at = calloc((size_t)p->n + 1, sizeof(*p->at));
    p->uses = calloc((size_t)p->n + 1, sizeof(*p->uses));
    p->owned = calloc((size_t)p->n + 1, sizeof(*p->owned));
    if (!p->at || !p->uses || !p->owned)
        return error_no_memory(err, "folding constants");
    for (uint32_t i = 0; i < p->n; i++) {
        const void *data = ir_tensor(graph, i)->data;
        memcpy(&p->at[i], &data, sizeof(data));
    }
    for (uint32_t i = 0; i < graph->n_nodes; i++)
        for (uint32_t k = 0; k < ir_node(graph, i)->n_inputs; k++)
            if (ir_node(graph, i)->inputs[k] != IR_NONE)
                p->uses[ir_node(graph, i)->inputs[k]]++;
    return STATUS_OK;
}

static enum status bind(struct places *p, const struct ir_graph *graph, uint32_t n,
                        const uint32_t *ids, const struct tensor_view *views, const char *what,
                        struct error *err)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct ir_tensor *t = ir_tensor(graph, ids[i]);
        if (t->dtype != views[i].dtype || !shape_equal(&t->shape, &views[i].shape)) {
            char want[SHAPE_TEXT_MAX], have[SHAPE_TEXT_MAX];
            return error_set(err, STATUS_INVALID_ARGUMENT, "%s '%s' is %s %s, not %s %s", what,
                             t->name, dtype_name(t->dtype), shape_format(&t->shape, want),
                             dtype_name(views[i].dtype), shape_format(&views[i].shape, have));
        }
        p->at[ids[i]] = views[i].data;
        p->uses[ids[i]]++; /* the caller's memory is never released */
    }
    return STATUS_OK;
}

static enum status eval_one(struct places *p, const struct ir_graph *graph,
                            const struct ir_node *node, struct error *err)
{
    const void *inputs[IR_MAX_INPUTS];
    void *outputs[IR_MAX_OUTPUTS];
    for (uint32_t i = 0; i < node->n_outputs; i++) {
        uint32_t id = node->outputs[i];
        if (!p->at[id]) {
            p->at[id] = malloc(MAX(ir_tensor(graph, id)->bytes, 1));
            p->owned[id] = true;
        }
        outputs[i] = p->at[id];
        if (!outputs[i])
            return error_no_memory(err, "folding constants");
    }
    for (uint32_t i = 0; i < node->n_inputs; i++)
        inputs[i] = node->inputs[i] == IR_NONE ? NULL : p->at[node->inputs[i]];
    return cpu_eval_node(NULL, graph, node, inputs, outputs, err);
}

static void release(struct places *p, const struct ir_node *node)
{
    for (uint32_t i = 0; i < node->n_inputs; i++) {
        uint32_t id = node->inputs[i];
        if (id == IR_NONE || --p->uses[id] || !p->owned[id])
            continue;
        free(p->at[id]);
        p->at[id] = NULL;
        p->owned[id] = false;
    }
}

enum status cpu_eval_graph(const struct ir_graph *graph, const struct tensor_view *inputs,
                           const struct tensor_view *outputs, struct error *err)
{
    CLEANUP(places_cleanup) struct places places = {0};
    TRY(places_init(&places, graph, err));
    TRY(bind(&places, graph, graph->n_inputs, graph->inputs, inputs, "input", err));
    TRY(bind(&places, graph, graph->n_outputs, graph->outputs, outputs, "output", err));
    for (uint32_t i = 0; i < graph->n_nodes; i++) {
        const struct ir_node *node = ir_node(graph, i);
        if (node->op == IR_OP_NONE)
            continue;
        TRY(eval_one(&places, graph, node, err));
        release(&places, node);
    }
    return STATUS_OK; /* NOLINT: the analyser knows no cleanup */
}
