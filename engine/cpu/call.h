/* SPDX-License-Identifier: Apache-2.0 */
/* One call of a reference kernel, and what kernels read of a node; private to engine/cpu. */
#ifndef INFERD_ENGINE_CPU_CALL_H
#define INFERD_ENGINE_CPU_CALL_H

#include "engine/backend.h"
#include "engine/ir/ir.h"
#include "kernels/cpu/ref.h"

struct call {
    const struct ir_graph *graph;
    const struct ir_node *node;
    const struct tensor_view *in; /* n_inputs of them; an input whose data is NULL is absent */
    const struct tensor_view *out;
    void *scratch; /* call_scratch bytes */
    struct error *err;
};

/* Bytes of scratch memory that the node's kernel needs. */
size_t call_scratch(const struct ir_graph *graph, const struct ir_node *node);

/* Runs the kernel. The caller has checked the node with ir_infer_node, and the tensors fit it. */
enum status call_run(const struct call *call);

/* Computes y = step(y, operand) in place; `operand` is NULL for UNARY. */
void call_epilogue(const struct ir_epilogue *step, const struct tensor_view *operand,
                   const struct tensor_view *y);

/* The attributes of a RESIZE of that rank, and of a SAMPLE, a ROI_POOL and an NMS. */
struct ref_resize call_resize(const struct ir_node *node, uint32_t rank);
struct ref_sample call_sample(const struct ir_node *node);
struct ref_roi_pool call_roi_pool(const struct ir_node *node);
struct ref_nms call_nms(const struct ir_node *node);

#endif
