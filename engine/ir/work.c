/* SPDX-License-Identifier: Apache-2.0 */
/* What computing a node costs, for those who may decide not to. */
#include "engine/ir/ir.h"

uint64_t ir_node_work(const struct ir_graph *graph, const struct ir_node *node)
{
    uint64_t in = 0, out = 0, sum;
    for (uint32_t i = 0; i < node->n_inputs; i++)
        in += node->inputs[i] == IR_NONE ? 0 : ir_tensor(graph, node->inputs[i])->bytes;
    for (uint32_t i = 0; i < node->n_outputs; i++)
        out += ir_tensor(graph, node->outputs[i])->bytes;
    if (node->op == IR_OP_MATMUL) { /* each element of the output reads a row and a column */
        const struct shape *a = &ir_tensor(graph, node->inputs[0])->shape;
        bool swapped = ir_attr_int(node, IR_ATTR_TRANS_A, 0) != 0;
        if (__builtin_mul_overflow(out, (uint64_t)a->dim[a->rank - (swapped ? 2 : 1)], &out))
            return UINT64_MAX;
    }
    return __builtin_add_overflow(in, out, &sum) ? UINT64_MAX : sum;
}
