/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A plugin with one fault, which FAULT names: what a plugin returns is checked. The op is Copy of
 * the domain test.bad: its output is its input.
 */
#include <stdio.h>
#include <string.h>

#include <inferd_plugin.h>

enum {
    NONE,
    ABI,
    OP_SIZE,
    NAME,
    NO_OPS,
    NO_KERNELS,
    NO_RUN,
    DOMAIN_,
    ON_DEVICE,
    TWICE,
    OUTPUTS,
    RANK,
    NEGATIVE,
    HUGE_,
    TYPE,
    REFUSES,
    CHANGES,
    FAILS,
    WORKSPACE,
    LONG_WHY,
    MIXES,
    FLAGS
};

#ifndef FAULT
#define FAULT NONE
#endif

static int calls;

static int infer(const struct inferd_plugin_node *node, struct inferd_plugin_tensor *outputs,
                 uint32_t *n_outputs, char *why, size_t why_size)
{
    outputs[0] = node->inputs[0];
    *n_outputs = FAULT == OUTPUTS ? 9 : 1;
    if (FAULT == RANK)
        outputs[0].rank = 99;
    if (FAULT == NEGATIVE)
        outputs[0].dim[0] = -5;
    if (FAULT == HUGE_)
        outputs[0].dim[0] = outputs[0].dim[1] = INT64_C(1) << 40;
    if (FAULT == TYPE)
        outputs[0].dtype = (enum inferd_plugin_dtype)77;
    if (FAULT == CHANGES) /* with each call another shape */
        outputs[0].dim[outputs[0].rank - 1] += calls++;
    if (FAULT == REFUSES)
        snprintf(why, why_size, "it does not like\nthis node");
    if (FAULT == LONG_WHY)
        memset(why, 'x', why_size);
    return FAULT == REFUSES || FAULT == LONG_WHY;
}

static int run(const struct inferd_plugin_call *call)
{
    const struct inferd_plugin_tensor *x = &call->node->inputs[0];
    size_t bytes = sizeof(float);
    for (uint32_t i = 0; i < x->rank; i++)
        bytes *= (size_t)x->dim[i];
    if (FAULT == FAILS) {
        snprintf(call->why, call->why_size, "out of luck");
        return 7;
    }
    memcpy(call->outputs[0], call->inputs[0], bytes);
    return 0;
}

static uint64_t too_much(const struct inferd_plugin_node *node)
{
    (void)node;
    return UINT64_MAX;
}

static const struct inferd_plugin_kernel kernels[] = {
    {"reference", FAULT == ON_DEVICE ? INFERD_PLUGIN_CUDA : INFERD_PLUGIN_CPU, NULL,
     FAULT == WORKSPACE ? too_much : NULL, FAULT == NO_RUN ? NULL : run},
};

static const struct inferd_plugin_op ops[] = {
    {FAULT == DOMAIN_ ? "ai.onnx" : "test.bad", "Copy",
     FAULT == MIXES   ? INFERD_PLUGIN_MIXES
     : FAULT == FLAGS ? 1u << 31
                      : 0,
     infer, FAULT == NO_KERNELS ? 0 : 1, kernels},
    {"test.bad", "Copy", 0, infer, 1, kernels},
};

const struct inferd_plugin *inferd_plugin(void)
{
    static const struct inferd_plugin plugin = {
        FAULT == ABI ? INFERD_PLUGIN_ABI + 1 : INFERD_PLUGIN_ABI,
        FAULT == OP_SIZE ? 8 : sizeof(struct inferd_plugin_op),
        FAULT == NAME ? "../bad name" : "bad",
        "1.0",
        FAULT == NO_OPS  ? 0
        : FAULT == TWICE ? 2
                         : 1,
        ops};
    return &plugin;
}
