/* SPDX-License-Identifier: Apache-2.0 */
/* Scattering over boxes of a tensor. */
#include "base/compiler.h"
#include "engine/passes/pass.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"
#include "tests/unit/passes/rewrite_case.h"

static const struct rewrite_case cases[] = {
    {"a box by constant indices: x[:, 1:4] = u", "fold_constants scatter_boxes erase_unused",
     "input x FP32[2,5,4]\n"
     "input u FP32[2,3,4]\n"
     "ea = expand \"ea\" (a INT64[2,1,1]=from 0) shape=2,3,1\n"
     "eb = expand \"eb\" (b INT64[1,3,1]=from 1) shape=2,3,1\n"
     "i = concat \"i\" (ea, eb) axis=2\n"
     "y = scatter_nd \"y\" (x, i, u)\n"
     "output y\n",
     "input x FP32[2,5,4]\n"
     "input u FP32[2,3,4]\n"
     "%3 FP32[2,1,4] = slice \"y\" (x) starts=0,0,0 ends=2,1,4 steps=1,1,1\n"
     "%4 FP32[2,1,4] = slice \"y\" (x) starts=0,4,0 ends=2,5,4 steps=1,1,1\n"
     "y FP32[2,5,4] = concat \"y\" (%3, u, %4) axis=1\n"
     "output y\n",
     "y: slices around what is put there"},
    {"the same by rows that are expanded", "scatter_boxes erase_unused",
     "input x FP32[2,5,4]\n"
     "input u FP32[2,3,4]\n"
     "ea = expand \"ea\" (a INT64[2,1]=from 0) shape=2,3\n"
     "eb = expand \"eb\" (b INT64[3]=from -4) shape=2,3\n"
     "ua = reshape \"ua\" (ea) shape=2,3,1\n"
     "ub = reshape \"ub\" (eb) shape=2,3,1\n"
     "i = concat \"i\" (ua, ub) axis=2\n"
     "y = scatter_nd \"y\" (x, i, u)\n"
     "output y\n",
     "input x FP32[2,5,4]\n"
     "input u FP32[2,3,4]\n"
     "%3 FP32[2,1,4] = slice \"y\" (x) starts=0,0,0 ends=2,1,4 steps=1,1,1\n"
     "%4 FP32[2,1,4] = slice \"y\" (x) starts=0,4,0 ends=2,5,4 steps=1,1,1\n"
     "y FP32[2,5,4] = concat \"y\" (%3, u, %4) axis=1\n"
     "output y\n",
     NULL},
    {"a box that is a part of three dimensions", "fold_constants scatter_boxes erase_unused",
     "input x FP32[4,5,6]\n"
     "input u FP32[1,2,3]\n"
     "ea = expand \"ea\" (a INT64[1,1,1,1]=from -1) shape=1,2,3,1\n"
     "eb = expand \"eb\" (b INT64[1,2,1,1]=from 2) shape=1,2,3,1\n"
     "ec = expand \"ec\" (c INT64[1,1,3,1]=from 0) shape=1,2,3,1\n"
     "i = concat \"i\" (ea, eb, ec) axis=3\n"
     "y = scatter_nd \"y\" (x, i, u)\n"
     "output y\n",
     "input x FP32[4,5,6]\n"
     "input u FP32[1,2,3]\n"
     "%10 FP32[3,5,6] = slice \"y\" (x) starts=0,0,0 ends=3,5,6 steps=1,1,1\n"
     "%3 FP32[1,5,6] = slice \"y\" (x) starts=3,0,0 ends=4,5,6 steps=1,1,1\n"
     "%7 FP32[1,2,6] = slice \"y\" (%3) starts=0,0,0 ends=1,2,6 steps=1,1,1\n"
     "%4 FP32[1,2,6] = slice \"y\" (%3) starts=0,2,0 ends=1,4,6 steps=1,1,1\n"
     "%5 FP32[1,2,3] = slice \"y\" (%4) starts=0,0,3 ends=1,2,6 steps=1,1,1\n"
     "%6 FP32[1,2,6] = concat \"y\" (u, %5) axis=2\n"
     "%8 FP32[1,1,6] = slice \"y\" (%3) starts=0,4,0 ends=1,5,6 steps=1,1,1\n"
     "%9 FP32[1,5,6] = concat \"y\" (%7, %6, %8) axis=1\n"
     "y FP32[4,5,6] = concat \"y\" (%10, %9) axis=0\n"
     "output y\n",
     NULL},
    {"a tensor that is filled step by step", "scatter_boxes scatter_boxes erase_unused",
     "input x FP32[3,4]\n"
     "input u FP32[1,4]\n"
     "input v FP32[1,4]\n"
     "input w FP32[4]\n"
     "p = scatter_nd \"p\" (x, i INT64[1,1]=0, u)\n"
     "q = scatter_nd \"q\" (p, j INT64[1,1]=1, v)\n"
     "y = scatter_nd \"y\" (q, k INT64[1]=-1, w)\n"
     "output y\n",
     "input x FP32[3,4]\n"
     "input u FP32[1,4]\n"
     "input v FP32[1,4]\n"
     "input w FP32[4]\n"
     "%5 FP32[1,4] = reshape \"y\" (w) shape=1,4\n"
     "y FP32[3,4] = concat \"y\" (u, v, %5) axis=0\n"
     "output y\n",
     NULL},
    {"all of it", "scatter_boxes erase_unused",
     "input x FP32[3,4]\n"
     "input u FP32[3,4]\n"
     "y = scatter_nd \"y\" (x, i INT64[3,1]=from 0, u)\n"
     "output y\n",
     "input x FP32[3,4]\n"
     "input u FP32[3,4]\n"
     "y FP32[3,4] = reshape \"y\" (u) shape=3,4\n"
     "output y\n",
     "y: what is put there is all"},
    {"sums, no whole box, another order, indices of a client: stay", "scatter_boxes",
     "input x FP32[3,4]\n"
     "input u FP32[2,4]\n"
     "input k INT64[2,1]\n"
     "a = scatter_nd \"a\" (x, i INT64[2,1]=from 0, u) func=1\n"
     "b = scatter_nd \"b\" (x, j INT64[2,1]=1, u)\n"
     "c = scatter_nd \"c\" (x, l INT64[2,1]=from -1, u)\n"
     "d = scatter_nd \"d\" (x, k, u)\n"
     "output a\noutput b\noutput c\noutput d\n",
     NULL, NULL},
};

static void scattering(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        rewrite_case_run(&cases[i]);
}

/* Such nodes are refused when they run. Here the least and the greatest index must not overflow. */
static void indices_far_out_of_range(void **state)
{
    (void)state;
    static int64_t rows[][2] = {{INT64_MIN, INT64_MAX}, {INT64_MAX, INT64_MIN}, {2, 3}, {-4, -3}};
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct ir_graph *g = graph_parse("input x FP32[3,4]\n"
                                         "input u FP32[2,4]\n"
                                         "y = scatter_nd \"y\" (x, i INT64[2,1]=from 0, u)\n"
                                         "output y\n");
        struct pass_context ctx = {.boxes = true};
        struct error err;
        ir_tensor(g, ir_node(g, 0)->inputs[1])->data = rows[i];
        assert_int_equal(pass_run(pass_find("scatter_boxes"), g, &ctx, &err), STATUS_OK);
        assert_int_equal(ctx.rewrites, 0);
        ir_graph_free(g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scattering),
        cmocka_unit_test(indices_far_out_of_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
