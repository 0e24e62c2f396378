/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/runtime/tail_eval.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "engine/cpu/eval.h"

enum {
    LIGHT_BYTES = 1 << 15, /* what is touched by less than this is not worth preparing a kernel */
};

/* The first candidate that fits. */
struct choice {
    const struct ir_graph *graph;
    const struct ir_node *node;
    bool found;
    struct tactic tactic;
};

static bool port_fits(const struct choice *c, const struct tactic_port *port, uint32_t tensor)
{
    return tensor == IR_NONE || (port->format.layout == IR_LAYOUT_PLAIN && !port->packed_bytes &&
                                 port->format.scale == IR_NO_SCALE &&
                                 port->format.dtype == ir_tensor(c->graph, tensor)->dtype);
}

/* Tensors are plain here, and constants are not worth packing for one request. */
static enum status consider(void *user, const struct tactic *tactic, struct error *err UNUSED)
{
    struct choice *c = user;
    bool fits = !c->found;
    for (uint32_t i = 0; i < tactic->n_in && fits; i++)
        fits = port_fits(c, &tactic->in[i], c->node->inputs[i]);
    for (uint32_t i = 0; i < tactic->n_out && fits; i++)
        fits = port_fits(c, &tactic->out[i], c->node->outputs[i]);
    if (fits) {
        c->tactic = *tactic;
        c->found = true;
    }
    return STATUS_OK;
}

/* *out: a graph of that node alone, whose operands are no constants: kernels would want to pack
 * those, which is not worth it for one request. */
static enum status isolate(const struct ir_graph *graph, const struct ir_node *node,
                           struct ir_graph **out, struct error *err)
{
    CLEANUP(ir_graph_cleanup) struct ir_graph *alone = ir_graph_new();
    if (!alone)
        return error_no_memory(err, "a layer");
    uint32_t made = ir_node_copy(alone, node);
    bool ok = made != IR_NONE;
    for (uint32_t i = 0; i < node->n_inputs && ok; i++) {
        if (node->inputs[i] == IR_NONE)
            continue;
        uint32_t tensor = ir_tensor_copy(alone, ir_tensor(graph, node->inputs[i]));
        ok = tensor != IR_NONE;
        if (ok)
            ir_tensor(alone, tensor)->data = NULL;
        ir_node(alone, made)->inputs[i] = tensor;
    }
    for (uint32_t i = 0; i < node->n_outputs && ok; i++) {
        uint32_t tensor = ir_tensor_copy(alone, ir_tensor(graph, node->outputs[i]));
        ok = tensor != IR_NONE;
        if (ok)
            ir_tensor(alone, tensor)->producer = made;
        ir_node(alone, made)->outputs[i] = tensor;
    }
    if (!ok)
        return error_no_memory(err, "a layer");
    *out = STEAL(alone);
    return STATUS_OK;
}

static enum status launch(const struct tail_evaluator *e, struct backend_op *op, uint32_t n,
                          const void *const *inputs, void *const *outputs, struct error *err)
{
    const struct backend *backend = e->device->backend;
    CLEANUP(cleanup_free) void *workspace = NULL;
    void *in[IR_MAX_INPUTS];
    uint64_t bytes = backend->op_workspace(op);
    if (bytes && !(workspace = aligned_alloc(BACKEND_ALIGN, (bytes + BACKEND_ALIGN - 1) /
                                                                BACKEND_ALIGN * BACKEND_ALIGN)))
        return error_no_memory(err, "a layer's workspace");
    memcpy(in, inputs, n * sizeof(in[0])); /* kernels do not write to inputs */
    return backend->op_launch(op, e->stream, in, outputs, workspace, err);
}

/* Runs the node by the tactic. */
static enum status run(const struct tail_evaluator *e, const struct choice *c,
                       const void *const *inputs, void *const *outputs, struct error *err)
{
    struct backend_op *op = NULL;
    TRY(e->device->backend->op_prepare(e->stream, c->graph, c->node, &c->tactic, &op, err));
    enum status status = launch(e, op, c->node->n_inputs, inputs, outputs, err);
    e->device->backend->op_free(op);
    return status;
}

enum status tail_eval(void *evaluator, const struct ir_graph *graph, const struct ir_node *node,
                      const void *const *inputs, void *const *outputs, struct error *err)
{
    const struct tail_evaluator *e = evaluator;
    CLEANUP(ir_graph_cleanup) struct ir_graph *alone = NULL;
    if (ir_node_work(graph, node) >= LIGHT_BYTES) {
        TRY(isolate(graph, node, &alone, err));
        assert(alone);
        struct choice c = {.graph = alone, .node = ir_node(alone, 0)};
        graph = alone;
        node = c.node;
        TRY(e->device->backend->candidates(e->device, graph, node, PRECISION_F32, consider, &c,
                                           err));
        if (c.found)
            return run(e, &c, inputs, outputs, err);
    }
    return cpu_eval_node(NULL, graph, node, inputs, outputs, err);
}
