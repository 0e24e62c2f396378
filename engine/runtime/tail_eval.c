/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/runtime/tail_eval.h"

#include "engine/cpu/eval.h"
#include "engine/runtime/tail_kernels.h"

enum {
    SCANT_BYTES = 1 << 11, /* what touches fewer is not even worth looking for a kernel, */
    LIGHT_BYTES = 1 << 15, /* or, up to here, preparing one for once */
};

enum status tail_eval(void *kernels, const struct ir_graph *graph, const struct ir_node *node,
                      const void *const *inputs, void *const *outputs, struct error *err)
{
    uint64_t work = ir_node_work(graph, node);
    bool done = false;
    if (work >= SCANT_BYTES)
        TRY(tail_kernels_run(kernels, graph, node, work >= LIGHT_BYTES, inputs, outputs, &done,
                             err));
    return done ? STATUS_OK : cpu_eval_node(NULL, graph, node, inputs, outputs, err);
}
