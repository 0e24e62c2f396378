/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/cuda/own.h"

bool own_view(const struct ir_tensor *tensor, enum dtype dtype, enum ir_layout layout,
              struct kernel_view *out)
{
    struct ir_tensor as = *tensor;
    as.layout = layout;
    if (as.dtype == DTYPE_F32 && dtype != DTYPE_NONE)
        as.dtype = dtype;
    return cuda_view(&as, out, NULL);
}

struct kernel_call own_call_dry(const struct cuda_device *device, int32_t variant)
{
    return (struct kernel_call){
        .dry = true, .variant = variant, .multiprocessors = device->properties.multiProcessorCount};
}

struct kernel_call own_call(const struct backend_stream *stream, int32_t variant)
{
    return (struct kernel_call){.stream = stream->stream,
                                .variant = variant,
                                .multiprocessors = stream->device->properties.multiProcessorCount};
}

enum status own_refuse(const struct ir_node *node, const struct tactic *tactic, struct error *err)
{
    return error_set(err, STATUS_INVALID_ARGUMENT,
                     "%s '%s': tactic %x of the cuda backend is not for this node",
                     ir_op_name(node->op), node->name, tactic->id);
}
