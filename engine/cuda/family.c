/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cuda/family.h"

#include "base/compiler.h"
#include "engine/cuda/device.h"
#include "engine/cuda/dnn.h"
#include "engine/cuda/dnn_graph.h"
#include "engine/stored.h"

/* Families are asked in this order, those that lead first. Row 0 belongs to none. */
#define F(id, NAME, name, ...) [id] = &cuda_family_##name,
static const struct cuda_family *const families[CUDA_FAMILY_COUNT_] = {CUDA_FAMILIES(F)};
#undef F

/* Candidates, packing and compilation do not need hardware. */
static enum status enter_if_real(const struct cuda_device *device, struct error *err)
{
    return device->ordinal < 0 ? STATUS_OK : cuda_enter(device, err);
}

static bool leads(const struct cuda_family *family, const struct cuda_device *device,
                  const struct ir_graph *graph, const struct ir_node *node)
{
    return family->leads && family->leads(device, graph, node);
}

enum status cuda_candidates(struct device *device, const struct ir_graph *graph,
                            const struct ir_node *node, enum precision precision,
                            tactic_visit visit, void *user, struct error *err)
{
    struct cuda_device *d = cuda_device_of(device);
    TRY(enter_if_real(d, err));
    for (uint32_t i = 0; i < 2 * CUDA_FAMILY_COUNT_; i++) {
        uint32_t id = i % CUDA_FAMILY_COUNT_;
        bool early = i < CUDA_FAMILY_COUNT_;
        if (cuda_family_takes(id, node->op) && leads(families[id], d, graph, node) == early)
            TRY(families[id]->candidates(d, graph, node, precision, visit, user, err));
    }
    return STATUS_OK;
}

/* --- stored tactics --- */

/* Whether the tensor has the form that the port wants. */
static bool port_fits(const struct ir_graph *graph, uint32_t id, const struct tactic_port *port)
{
    if (id == IR_NONE)
        return true;
    const struct ir_tensor *tensor = ir_tensor(graph, id);
    if (port->packed_bytes)
        return tensor->layout == IR_LAYOUT_OPAQUE && ir_tensor_is_constant(tensor) &&
               tensor->bytes == port->packed_bytes;
    return ir_format_equal(tensor->format, port->format) && tensor->layout != IR_LAYOUT_OPAQUE;
}

static bool ports_fit(const struct cuda_family *family, const struct ir_graph *graph,
                      const struct ir_node *node, const struct tactic *tactic)
{
    bool fit = (family->scales && stored_any(graph, node)) || family->casts ||
               ir_node_is_uniform(graph, node);
    for (uint32_t i = 0; fit && i < node->n_inputs; i++)
        fit = port_fits(graph, node->inputs[i], &tactic->in[MIN(i, TACTIC_PORTS_MAX - 1U)]);
    for (uint32_t i = 0; fit && i < node->n_outputs; i++)
        fit = !tactic->out[i].packed_bytes && port_fits(graph, node->outputs[i], &tactic->out[i]);
    return fit;
}

const struct cuda_family *cuda_family_of(const struct ir_node *node, const struct tactic *tactic)
{
    uint32_t id = tactic->id >> 16;
    bool fits = tactic->n_in == MIN(node->n_inputs, (uint32_t)TACTIC_PORTS_MAX) &&
                tactic->n_out == node->n_outputs && tactic->blob_size <= TACTIC_BLOB_MAX &&
                (tactic->code || !tactic->code_size) && id < CUDA_FAMILY_COUNT_ &&
                cuda_family_takes(id, node->op);
    return fits ? families[id] : NULL;
}

enum status cuda_pack(struct device *device, const struct ir_graph *graph,
                      const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                      void *to, struct error *err)
{
    const struct cuda_family *family = cuda_family_of(node, tactic);
    if (!family || !family->pack || input >= tactic->n_in || !tactic->in[input].packed_bytes)
        return cuda_refuse(node, tactic, err);
    TRY(enter_if_real(cuda_device_of(device), err));
    return family->pack(cuda_device_of(device), graph, node, tactic, input, to, err);
}

/* *out is NULL if the family makes no plans; else the caller puts the plan back. */
static enum status get_plan(struct cuda_device *device, const struct ir_graph *graph,
                            const struct ir_node *node, const struct tactic *tactic,
                            struct dnn_plan **out, struct error *err)
{
    const struct cuda_family *family = cuda_family_of(node, tactic);
    if (!family)
        return cuda_refuse(node, tactic, err);
    *out = NULL;
    if (!family->plan)
        return STATUS_OK;
    TRY(enter_if_real(device, err));
    return family->plan(device, graph, node, tactic, out, err);
}

enum status cuda_compile(struct device *device, const struct ir_graph *graph,
                         const struct ir_node *node, const struct tactic *tactic, struct error *err)
{
    struct dnn_plan *plan;
    TRY(get_plan(cuda_device_of(device), graph, node, tactic, &plan, err));
    dnn_plan_put(cuda_device_of(device)->dnn, plan);
    return STATUS_OK;
}

void cuda_compile_drop(struct device *device)
{
    cuda_dnn_drop(cuda_device_of(device)->dnn);
}

enum status cuda_code(struct device *device, const struct ir_graph *graph,
                      const struct ir_node *node, const struct tactic *tactic, struct arena *arena,
                      const void **code, uint64_t *size, struct error *err)
{
    struct dnn_plan *plan;
    TRY(get_plan(cuda_device_of(device), graph, node, tactic, &plan, err));
    if (!plan) {
        *code = NULL;
        *size = 0;
        return STATUS_OK;
    }
    enum status status = dnn_plan_code(plan, arena, code, size, err);
    dnn_plan_put(cuda_device_of(device)->dnn, plan);
    return status;
}

enum status cuda_op_prepare(struct backend_stream *stream, const struct ir_graph *graph,
                            const struct ir_node *node, const struct tactic *tactic,
                            struct backend_op **out, struct error *err)
{
    const struct cuda_family *family = cuda_family_of(node, tactic);
    if (!family || !ports_fit(family, graph, node, tactic))
        return cuda_refuse(node, tactic, err);
    TRY(enter_if_real(stream->device, err));
    return family->prepare(stream, graph, node, tactic, out, err);
}

/* --- ops --- */

uint64_t cuda_op_workspace(const struct backend_op *op)
{
    return op->workspace;
}

void cuda_op_free(struct backend_op *op)
{
    if (op)
        op->free(op);
}

enum status cuda_op_launch(struct backend_op *op, struct backend_stream *stream,
                           void *const *inputs, void *const *outputs, void *workspace,
                           struct error *err)
{
    TRY(cuda_enter(stream->device, err));
    return op->launch(op, stream, inputs, outputs, workspace, err);
}
