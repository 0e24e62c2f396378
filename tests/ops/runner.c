/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/ops/runner.h"

#include "engine/cpu/eval.h"

/* Node by node with the reference kernels. */
static enum status run_reference(void *user, const struct ir_graph *graph,
                                 const void *const *inputs, void *const *outputs, struct error *err)
{
    struct tensor_view in[IR_MAX_IO], out[IR_MAX_IO];
    (void)user;
    for (uint32_t i = 0; i < graph->n_inputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->inputs[i]);
        in[i] = (struct tensor_view){t->dtype, t->shape, (void *)(uintptr_t)inputs[i]};
    }
    for (uint32_t i = 0; i < graph->n_outputs; i++) {
        const struct ir_tensor *t = ir_tensor(graph, graph->outputs[i]);
        out[i] = (struct tensor_view){t->dtype, t->shape, outputs[i]};
    }
    return cpu_eval_graph(graph, in, out, err);
}

bool runner_init(struct case_runner *runner, bool engine)
{
    if (engine)
        return false;
    *runner = (struct case_runner){.run = run_reference, .evaluator = {.eval = cpu_eval_node}};
    return true;
}

void runner_deinit(struct case_runner *runner)
{
    (void)runner;
}
