/* SPDX-License-Identifier: Apache-2.0 */
/* A plugin "t" of version 1 in the test itself: op "o" of domain "d" copies what it gets. */
#ifndef INFERD_TESTS_UNIT_PLUGIN_SAMPLE_H
#define INFERD_TESTS_UNIT_PLUGIN_SAMPLE_H

#include <string.h>

#include "engine/plugin/plugin.h"

#define SAMPLE_DIGEST "0"
/* The words of such a node without attributes. */
#define SAMPLE_WORDS   "0,1,116,1,49,1,48,1,100,1,111"
#define SAMPLE_NUMBERS 0, 1, 116, 1, 49, 1, 48, 1, 100, 1, 111

static inline int sample_infer(const struct inferd_plugin_node *node,
                               struct inferd_plugin_tensor *outputs, uint32_t *n_outputs, char *why,
                               size_t why_size)
{
    (void)why;
    (void)why_size;
    outputs[0] = node->inputs[0];
    *n_outputs = 1;
    return 0;
}

static inline int sample_run(const struct inferd_plugin_call *call)
{
    const struct inferd_plugin_tensor *x = &call->node->inputs[0];
    size_t bytes = dtype_size((enum dtype)x->dtype);
    for (uint32_t i = 0; i < x->rank; i++)
        bytes *= (size_t)x->dim[i];
    memcpy(call->outputs[0], call->inputs[0], bytes);
    return 0;
}

static inline enum status sample_load(struct error *err)
{
    static const struct inferd_plugin_kernel kernel = {"copy", INFERD_PLUGIN_CPU, NULL, NULL,
                                                       sample_run};
    static const struct inferd_plugin_op op = {"d", "o", 0, sample_infer, 1, &kernel};
    static const struct inferd_plugin table = {
        INFERD_PLUGIN_ABI, sizeof(struct inferd_plugin_op), "t", "1", 1, &op};
    return plugin_add(&table, SAMPLE_DIGEST, err);
}

#endif
