/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of convolutions of one tensor. */
#include "base/compiler.h"
#include "tests/test.h"
#include "tests/unit/passes/rewrite_case.h"

static const struct rewrite_case cases[] = {
    {"RepVGG: 3x3, 1x1 and a scale", "merge_branches",
     "input x FP32[1,4,6,7]\n"
     "a = conv \"a\" (x, w FP32[4,4,3,3], b FP32[4]) pads=1,1,1,1\n"
     "c = conv \"c\" (x, v FP32[4,4,1,1])\n"
     "s = binary \"s\" (x, k FP32[4,1,1]) func=mul then add(t FP32[4,1,1])\n"
     "p = binary \"p\" (a, c) func=add\n"
     "y = binary \"y\" (s, p) func=add\n"
     "output y\n",
     "input x FP32[1,4,6,7]\n"
     "y FP32[1,4,6,7] = conv \"a + p + y\" (x, w FP32[4,4,3,3], b FP32[4]) pads=1,1,1,1\n"
     "output y\n",
     "a + c: one convolution"},
    {"depthwise, at steps, the smaller one first and with a bias", "merge_branches",
     "input x FP32[2,4,9,9]\n"
     "a = conv \"a\" (x, w FP32[4,1,3,3], b FP32[4]) group=4 strides=2,2 pads=1,1,1,1\n"
     "c = conv \"c\" (x, v FP32[4,1,7,5]) group=4 strides=2,2 pads=3,2,3,2\n"
     "y = binary \"y\" (a, c) func=add\n"
     "output y\n",
     "input x FP32[2,4,9,9]\n"
     "y FP32[2,4,5,5] = conv \"c + y\" (x, v FP32[4,1,7,5], %3 FP32[4]) group=4 strides=2,2 "
     "pads=3,2,3,2\n"
     "output y\n",
     NULL},
    {"taps with gaps, in groups, and a scale", "merge_branches",
     "input x FP32[1,6,12]\n"
     "a = conv \"a\" (x, w FP32[6,3,5]) group=2 pads=4,4 dilations=2\n"
     "c = conv \"c\" (x, v FP32[6,3,3]) group=2 pads=4,4 dilations=4\n"
     "s = binary \"s\" (x, k FP32[6,1]) func=mul then add(t FP32[])\n"
     "p = binary \"p\" (s, a) func=add\n"
     "y = binary \"y\" (p, c) func=add\n"
     "output y\n",
     "input x FP32[1,6,12]\n"
     "y FP32[1,6,12] = conv \"a + p + y\" (x, w FP32[6,3,5], %3 FP32[6]) group=2 pads=4,4 "
     "dilations=2\n"
     "output y\n",
     NULL},
    {"other tensors, strides, groups, places, readers, an activation: stay", "merge_branches",
     "input x FP32[1,4,8,8]\n"
     "input z FP32[1,4,8,8]\n"
     "a = conv \"a\" (x, w FP32[4,4,3,3]) pads=1,1,1,1\n"
     "b = conv \"b\" (z, v FP32[4,4,1,1])\n"
     "o1 = binary \"o1\" (a, b) func=add\n"
     "c = conv \"c\" (x, w) strides=2,2 pads=1,1,1,1\n"
     "d = conv \"d\" (x, u FP32[4,4,5,5])\n"
     "o2 = binary \"o2\" (c, d) func=add\n"
     "e = conv \"e\" (x, w) pads=1,1,1,1\n"
     "f = conv \"f\" (x, g FP32[4,1,1,1]) group=4\n"
     "o3 = binary \"o3\" (e, f) func=add\n"
     "h = conv \"h\" (x, r FP32[4,4,3,1]) pads=1,0,1,0\n"
     "i = conv \"i\" (x, q FP32[4,4,1,3]) pads=0,1,0,1\n"
     "o4 = binary \"o4\" (h, i) func=add\n"
     "j = conv \"j\" (x, w) pads=1,1,1,1\n"
     "k = conv \"k\" (x, v)\n"
     "o5 = binary \"o5\" (j, k) func=add\n"
     "l = conv \"l\" (x, w) pads=1,1,1,1 then relu\n"
     "m = conv \"m\" (x, v)\n"
     "o6 = binary \"o6\" (l, m) func=add\n"
     "n = conv \"n\" (x, w) pads=2,2,2,2 dilations=2,2\n"
     "p = conv \"p\" (x, w) pads=1,1,1,1\n"
     "o7 = binary \"o7\" (n, p) func=add\n"
     "output o1\noutput o2\noutput o3\noutput o4\noutput o5\noutput k\noutput o6\noutput o7\n",
     NULL, NULL},
};

static void branches(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        rewrite_case_run(&cases[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(branches)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
