/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cuda/family.h"

#include "base/compiler.h"
#include "engine/cuda/device.h"
#include "engine/cuda/dnn.h"

/* Asked in this order: the best guess first. Ids begin at 1. */
static const struct cuda_family *const families[CUDA_FAMILY_COUNT_] = {
    [0] = NULL,
    [CUDA_FAMILY_DNN_CONV] = &cuda_family_dnn_conv,
    [CUDA_FAMILY_LT_MATMUL] = &cuda_family_lt_matmul,
    [CUDA_FAMILY_LT_CONV] = &cuda_family_lt_conv,
    [CUDA_FAMILY_DNN_ATTENTION] = &cuda_family_dnn_attention,
    [CUDA_FAMILY_OWN_MAP] = &cuda_family_own_map,
    [CUDA_FAMILY_OWN_MOVE] = &cuda_family_own_move,
    [CUDA_FAMILY_OWN_POOL] = &cuda_family_own_pool,
    [CUDA_FAMILY_OWN_CONV] = &cuda_family_own_conv,
    [CUDA_FAMILY_OWN_ROWS] = &cuda_family_own_rows,
    [CUDA_FAMILY_OWN_ATTENTION] = &cuda_family_own_attention,
};

/* Candidates, packing and compilation do not need hardware. */
static enum status enter_if_real(const struct cuda_device *device, struct error *err)
{
    return device->ordinal < 0 ? STATUS_OK : cuda_enter(device, err);
}

const struct cuda_family *cuda_family_of(uint32_t tactic_id, enum ir_op op)
{
    uint32_t id = tactic_id >> 16;
    const struct cuda_family *family = id < CUDA_FAMILY_COUNT_ ? families[id] : NULL;
    return family && cuda_family_takes(id, op) ? family : NULL;
}

enum status cuda_candidates(struct device *device, const struct ir_graph *graph,
                            const struct ir_node *node, enum precision precision,
                            tactic_visit visit, void *user, struct error *err)
{
    enum status status = enter_if_real(cuda_device_of(device), err);
    for (uint32_t i = 1; i < CUDA_FAMILY_COUNT_ && !status; i++)
        if (families[i] && cuda_family_takes(i, node->op))
            status = families[i]->candidates(cuda_device_of(device), graph, node, precision, visit,
                                             user, err);
    return status;
}

/* --- stored tactics --- */

static enum status refuse(const struct ir_node *node, const struct tactic *tactic,
                          struct error *err)
{
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     "%s '%s': tactic %x of the cuda backend is not for this node",
                     ir_op_name(node->op), node->name, tactic->id);
}

/* The tensor is as the port wants it. */
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

static bool ports_fit(const struct ir_graph *graph, const struct ir_node *node,
                      const struct tactic *tactic)
{
    bool fit = ir_node_is_uniform(graph, node);
    for (uint32_t i = 0; fit && i < node->n_inputs; i++)
        fit = port_fits(graph, node->inputs[i], &tactic->in[MIN(i, TACTIC_PORTS_MAX - 1U)]);
    for (uint32_t i = 0; fit && i < node->n_outputs; i++)
        fit = !tactic->out[i].packed_bytes && port_fits(graph, node->outputs[i], &tactic->out[i]);
    return fit;
}

/* The family of a tactic that has the form of one for this node; NULL: it has not. */
static const struct cuda_family *family_for(const struct ir_node *node, const struct tactic *tactic)
{
    bool fits = tactic->n_in == MIN(node->n_inputs, (uint32_t)TACTIC_PORTS_MAX) &&
                tactic->n_out == node->n_outputs && tactic->blob_size <= TACTIC_BLOB_MAX &&
                (tactic->code || !tactic->code_size);
    return fits ? cuda_family_of(tactic->id, node->op) : NULL;
}

enum status cuda_pack(struct device *device, const struct ir_graph *graph,
                      const struct ir_node *node, const struct tactic *tactic, uint32_t input,
                      void *to, struct error *err)
{
    const struct cuda_family *family = family_for(node, tactic);
    if (!family || !family->pack || input >= tactic->n_in || !tactic->in[input].packed_bytes)
        return refuse(node, tactic, err);
    enum status status = enter_if_real(cuda_device_of(device), err);
    return status ? status
                  : family->pack(cuda_device_of(device), graph, node, tactic, input, to, err);
}

enum status cuda_compile(struct device *device, const struct ir_graph *graph,
                         const struct ir_node *node, const struct tactic *tactic, struct error *err)
{
    const struct cuda_family *family = family_for(node, tactic);
    if (!family)
        return refuse(node, tactic, err);
    if (!family->compile)
        return STATUS_OK;
    enum status status = enter_if_real(cuda_device_of(device), err);
    return status ? status : family->compile(cuda_device_of(device), graph, node, tactic, err);
}

void cuda_compile_drop(struct device *device)
{
    cuda_dnn_drop(cuda_device_of(device)->dnn);
}

enum status cuda_code(struct device *device, const struct ir_graph *graph,
                      const struct ir_node *node, const struct tactic *tactic, struct arena *arena,
                      const void **code, uint64_t *size, struct error *err)
{
    const struct cuda_family *family = family_for(node, tactic);
    if (!family)
        return refuse(node, tactic, err);
    if (!family->code) {
        *code = NULL;
        *size = 0;
        return STATUS_OK;
    }
    enum status status = enter_if_real(cuda_device_of(device), err);
    return status
               ? status
               : family->code(cuda_device_of(device), graph, node, tactic, arena, code, size, err);
}

enum status cuda_op_prepare(struct backend_stream *stream, const struct ir_graph *graph,
                            const struct ir_node *node, const struct tactic *tactic,
                            struct backend_op **out, struct error *err)
{
    const struct cuda_family *family = family_for(node, tactic);
    if (!family || !ports_fit(graph, node, tactic))
        return refuse(node, tactic, err);
    enum status status = enter_if_real(stream->device, err);
    return status ? status : family->prepare(stream, graph, node, tactic, out, err);
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
    enum status status = cuda_enter(stream->device, err);
    return status ? status : op->launch(op, stream, inputs, outputs, workspace, err);
}
