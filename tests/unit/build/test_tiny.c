/* SPDX-License-Identifier: Apache-2.0 */
/* Weights that are nothing beside others of their tensor become 0, and nothing else does. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "engine/build/tiny.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"

enum { WEIGHTS = 6 };

static const struct row {
    const char *what, *graph; /* `w` is a constant of six */
    float before[WEIGHTS], after[WEIGHTS];
} rows[] = {
    {"subnormal numbers and a tiny one, of either sign",
     "input x FP32[1,3]\ny = matmul \"y\" (x, w FP32[3,2])\noutput y\n",
     {0.5F, 1e-40F, -1e-42F, -3e-33F, 1e-20F, 0},
     {0.5F, 0, 0, 0, 1e-20F, 0}},
    {"the limit is 2^-100 of the largest",
     "input x FP32[1,3,1]\ny = conv \"y\" (x, w FP32[2,3,1])\noutput y\n",
     {-1, 0x1p-100F, 0x1.fffffep-101F, -0x1p-100F, -0x1p-101F, 1},
     {-1, 0x1p-100F, 0, -0x1p-100F, 0, 1}},
    {"small numbers beside none that is large",
     "input x FP32[1,3]\ny = matmul \"y\" (x, w FP32[3,2])\noutput y\n",
     {1e-34F, 1e-40F, 1e-42F, 0, -1e-45F, 1e-36F},
     {1e-34F, 1e-40F, 1e-42F, 0, -1e-45F, 1e-36F}},
    {"what is no number says nothing of the others",
     "input x FP32[1,3]\ny = matmul \"y\" (x, w FP32[3,2])\noutput y\n",
     {INFINITY, 1e-40F, 1, 1, 1, 1},
     {INFINITY, 1e-40F, 1, 1, 1, 1}},
    {"another reader sees the numbers themselves",
     "input x FP32[1,3]\ny = matmul \"y\" (x, w FP32[3,2])\n"
     "z = binary \"z\" (y, w) func=mul\noutput z\n",
     {1, 1e-40F, 1, 1, 1, 1},
     {1, 1e-40F, 1, 1, 1, 1}},
    {"operand 0 is no weight",
     "input x FP32[2,1]\ny = matmul \"y\" (w FP32[3,2], x)\noutput y\n",
     {1, 1e-40F, 1, 1, 1, 1},
     {1, 1e-40F, 1, 1, 1, 1}},
};

static struct ir_tensor *weights_of(struct ir_graph *graph)
{
    for (uint32_t i = 0; i < graph->n_tensors; i++)
        if (ir_tensor_is_constant(ir_tensor(graph, i)))
            return ir_tensor(graph, i);
    fail();
    return NULL;
}

static void weights_are_dropped(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct row *row = &rows[i];
        struct ir_graph *graph = graph_parse(row->graph);
        struct ir_tensor *w = weights_of(graph);
        struct error err;
        uint64_t dropped = 99, want = 0;
        assert_int_equal(w->bytes, sizeof(row->before));
        w->data = row->before;
        assert_int_equal(build_drop_tiny(graph, &dropped, &err), STATUS_OK);
        for (uint32_t k = 0; k < WEIGHTS; k++)
            want += row->before[k] != row->after[k];
        if (memcmp(w->data, row->after, sizeof(row->after)) != 0 || dropped != want)
            fail_msg("%s: %u dropped", row->what, (unsigned)dropped);
        assert_true(want || w->data == (const void *)row->before);
        ir_graph_free(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(weights_are_dropped)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
