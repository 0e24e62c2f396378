/* SPDX-License-Identifier: Apache-2.0 */
/* Chains of fully connected layers that become one node. */
#include "base/compiler.h"
#include "engine/passes/pass.h"
#include "tests/test.h"
#include "tests/unit/passes/parse.h"
#include "tests/unit/passes/rewrite_case.h"

static const struct rewrite_case cases[] = {
    {"three layers: weights in both orders, a scale, one without a bias", "fuse_mlp",
     "input x FP32[2,3,5]\n"
     "a = matmul \"a\" (x, w FP32[5,8], b FP32[8]) then relu\n"
     "c = matmul \"c\" (a, v FP32[4,8]) trans_b=1 alpha=0.5 then clip(-0.5,1,0)\n"
     "y = matmul \"y\" (c, u FP32[4,2], t FP32[2])\n"
     "output y\n",
     "input x FP32[2,3,5]\n"
     "y FP32[2,3,2] = mlp \"a + c + y\" (x, %2 FP32[80], %3 FP32[14]) widths=8,4,2 "
     "funcs=1,17,0 alphas=0,-0.5,0 betas=0,1,0\n"
     "output y\n",
     "a + c + y: 3 layers are one node"},
    {"layers as they are exported", "**",
     "input x FP32[6,16]\n"
     "a = matmul \"a\" (x, w FP32[16,8])\n"
     "p = binary \"p\" (b FP32[8], a) func=add\n"
     "r = unary \"r\" (p) func=sigmoid\n"
     "m = binary \"m\" (p, r) func=mul\n"
     "c = matmul \"c\" (m, v FP32[8,4], d FP32[4])\n"
     "y = unary \"y\" (c) func=tanh\n"
     "output y\n",
     "input x FP32[6,16]\n"
     "y FP32[6,4] = mlp \"a + p + r + m + c + y\" (x, %2 FP32[160], %3 FP32[12]) "
     "widths=8,4 funcs=9,10 alphas=1,0 betas=0,0\n"
     "output y\n",
     "2 layers are one node"},
    {"chains that are too much as a whole: each part that is not", "fuse_mlp",
     "input x FP32[3,32]\n"
     "a = matmul \"a\" (x, w FP32[32,64]) then relu\n"
     "c = matmul \"c\" (a, v FP32[64,64]) then relu\n"
     "d = matmul \"d\" (c, u FP32[64,200]) then relu\n"
     "y = matmul \"y\" (d, t FP32[200,8]) then relu\n"
     "z = matmul \"z\" (y, s FP32[8,8])\n"
     "output z\n",
     "input x FP32[3,32]\n"
     "c FP32[3,64] = mlp \"a + c\" (x, %5 FP32[6144], %6 FP32[128]) widths=64,64 funcs=1,1 "
     "alphas=0,0 betas=0,0\n"
     "d FP32[3,200] = matmul \"d\" (c, u FP32[64,200]) then relu\n"
     "z FP32[3,8] = mlp \"y + z\" (d, %7 FP32[1664], %8 FP32[16]) widths=8,8 funcs=1,0 "
     "alphas=0,0 betas=0,0\n"
     "output z\n",
     "d begins another chain: its weights take longer to read than a launch"},
    {"as many layers as a node has, and one more", "fuse_mlp",
     "input x FP32[3,2]\n"
     "l1 = matmul \"l1\" (x, l1w FP32[2,2]) then relu\n"
     "l2 = matmul \"l2\" (l1, l2w FP32[2,2]) then relu\n"
     "l3 = matmul \"l3\" (l2, l3w FP32[2,2]) then relu\n"
     "l4 = matmul \"l4\" (l3, l4w FP32[2,2]) then relu\n"
     "l5 = matmul \"l5\" (l4, l5w FP32[2,2]) then relu\n"
     "l6 = matmul \"l6\" (l5, l6w FP32[2,2]) then relu\n"
     "l7 = matmul \"l7\" (l6, l7w FP32[2,2]) then relu\n"
     "l8 = matmul \"l8\" (l7, l8w FP32[2,2]) then relu\n"
     "l9 = matmul \"l9\" (l8, l9w FP32[2,2]) then relu\n"
     "l10 = matmul \"l10\" (l9, l10w FP32[2,2]) then relu\n"
     "l11 = matmul \"l11\" (l10, l11w FP32[2,2]) then relu\n"
     "l12 = matmul \"l12\" (l11, l12w FP32[2,2]) then relu\n"
     "l13 = matmul \"l13\" (l12, l13w FP32[2,2]) then relu\n"
     "l14 = matmul \"l14\" (l13, l14w FP32[2,2]) then relu\n"
     "l15 = matmul \"l15\" (l14, l15w FP32[2,2]) then relu\n"
     "l16 = matmul \"l16\" (l15, l16w FP32[2,2]) then relu\n"
     "l17 = matmul \"l17\" (l16, l17w FP32[2,2]) then relu\n"
     "l18 = matmul \"l18\" (l17, l18w FP32[2,2]) then relu\n"
     "l19 = matmul \"l19\" (l18, l19w FP32[2,2]) then relu\n"
     "l20 = matmul \"l20\" (l19, l20w FP32[2,2]) then relu\n"
     "l21 = matmul \"l21\" (l20, l21w FP32[2,2]) then relu\n"
     "l22 = matmul \"l22\" (l21, l22w FP32[2,2]) then relu\n"
     "l23 = matmul \"l23\" (l22, l23w FP32[2,2]) then relu\n"
     "l24 = matmul \"l24\" (l23, l24w FP32[2,2]) then relu\n"
     "l25 = matmul \"l25\" (l24, l25w FP32[2,2]) then relu\n"
     "l26 = matmul \"l26\" (l25, l26w FP32[2,2]) then relu\n"
     "l27 = matmul \"l27\" (l26, l27w FP32[2,2]) then relu\n"
     "l28 = matmul \"l28\" (l27, l28w FP32[2,2]) then relu\n"
     "l29 = matmul \"l29\" (l28, l29w FP32[2,2]) then relu\n"
     "l30 = matmul \"l30\" (l29, l30w FP32[2,2]) then relu\n"
     "l31 = matmul \"l31\" (l30, l31w FP32[2,2]) then relu\n"
     "l32 = matmul \"l32\" (l31, l32w FP32[2,2]) then relu\n"
     "output l32\n",
     "input x FP32[3,2]\n"
     "l31 FP32[3,2] = mlp \"l1 + l2 + l3 + l4 + l5 + l6 + l7 + l8 + l9 + l10 + l11 + "
     "l12 + l13 + l14 + l15 + l16 + l17 + l18 + l19 + l20 + l21 + l22 + l23 + l24 + "
     "l25 + l26 + l27 + l28 + l29 + l30 + l31\" (x, %4 FP32[124], %5 FP32[62]) "
     "widths=2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2,2 "
     "funcs=1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1 "
     "alphas=0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0 "
     "betas=0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0\n"
     "l32 FP32[3,2] = matmul \"l32\" (l31, l32w FP32[2,2]) then relu\n"
     "output l32\n",
     "l32 begins another chain: there are 31 layers before it"},
    {"what others read as well: stays", "fuse_mlp",
     "input x FP32[3,4]\n"
     "a = matmul \"a\" (x, w FP32[4,4]) then relu\n"
     "y = matmul \"y\" (a, v FP32[4,4])\n"
     "z = unary \"z\" (a) func=exp\n"
     "output y\noutput z\n",
     NULL, NULL},
    {"what two layers read: stays", "fuse_mlp",
     "input x FP32[3,4]\n"
     "a = matmul \"a\" (x, w FP32[4,4]) then relu\n"
     "z = matmul \"z\" (a, u FP32[4,4])\n"
     "y = matmul \"y\" (a, v FP32[4,4])\n"
     "output y\noutput z\n",
     NULL, "y stays a layer of its own: others read its input too"},
    {"an output of the model between layers: stays", "fuse_mlp",
     "input x FP32[3,4]\n"
     "a = matmul \"a\" (x, w FP32[4,4]) then relu\n"
     "y = matmul \"y\" (a, v FP32[4,4])\n"
     "output y\noutput a\n",
     NULL, "y stays a layer of its own: others read its input too"},
    {"a sum behind a layer: stays", "fuse_mlp",
     "input x FP32[3,4]\n"
     "input z FP32[3,4]\n"
     "a = matmul \"a\" (x, w FP32[4,4]) then relu\n"
     "y = matmul \"y\" (a, v FP32[4,4]) then add(z)\n"
     "output y\n",
     NULL, "y stays a layer of its own: more than an activation follows it"},
    {"two activations behind a layer: stays", "fuse_mlp",
     "input x FP32[3,4]\n"
     "a = matmul \"a\" (x, w FP32[4,4]) then relu\n"
     "y = matmul \"y\" (a, v FP32[4,4]) then tanh, relu\n"
     "output y\n",
     NULL, "more than an activation follows it"},
    {"weights that are computed: stay", "fuse_mlp",
     "input x FP32[3,4]\n"
     "input v FP32[4,4]\n"
     "a = matmul \"a\" (x, w FP32[4,4]) then relu\n"
     "y = matmul \"y\" (a, v)\n"
     "output y\n",
     NULL, "y stays a layer of its own: its weights are computed"},
    {"what is transposed: stays", "fuse_mlp",
     "input x FP32[3,4]\n"
     "a = matmul \"a\" (x, w FP32[4,4]) then relu\n"
     "y = matmul \"y\" (a, v FP32[3,4]) trans_a=1\n"
     "output y\n",
     NULL, "y stays a layer of its own: its input is transposed"},
    {"a layer of more columns than the kernel has: stays", "fuse_mlp",
     "input x FP32[3,4]\n"
     "a = matmul \"a\" (x, w FP32[4,8]) then relu\n"
     "y = matmul \"y\" (a, v FP32[8,1025])\n"
     "output y\n",
     NULL, "y begins another chain: it is wider than 1,024"},
    {"many rows, for which libraries have faster products: stay", "fuse_mlp",
     "input x FP32[2100,64]\n"
     "a = matmul \"a\" (x, w FP32[64,64]) then relu\n"
     "y = matmul \"y\" (a, v FP32[64,64])\n"
     "output y\n",
     NULL, "y begins another chain: larger products are faster apart"},
    {"no rows, a layer as weights: stay", "fuse_mlp",
     "input x FP32[0,4]\n"
     "input z FP32[3,4]\n"
     "a = matmul \"a\" (x, w FP32[4,4]) then relu\n"
     "b = matmul \"b\" (a, v FP32[4,4])\n"
     "e = matmul \"e\" (z, w)\n"
     "f = matmul \"f\" (t FP32[2,3], e)\n"
     "output b\noutput f\n",
     NULL, NULL},
};

static void each_case(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        rewrite_case_run(&cases[i]);
}

static uint32_t nodes_of(const char *text, uint64_t room, bool is_short, bool unsettled)
{
    struct ir_graph *g = graph_parse(text);
    struct pass_context ctx = {.chain_room = room, .chain_short = is_short, .unsettled = unsettled};
    assert_int_equal(pass_run(pass_find("fuse_mlp"), g, &ctx, NULL), STATUS_OK);
    uint32_t n = g->n_nodes;
    ir_graph_free(g);
    return n;
}

/* Layers of 9,216 weights are short enough in 16 bits alone: of a model of 16 bits, or where FP32
 * is stored as such. */
static void sizes_follow_the_type(void **state)
{
    static const char *const wide = "input x FP32[3,96]\n"
                                    "a = matmul \"a\" (x, w FP32[96,96]) then relu\n"
                                    "y = matmul \"y\" (a, v FP32[96,96])\noutput y\n";
    static const char *const half = "input x FP16[3,96]\n"
                                    "a = matmul \"a\" (x, w FP16[96,96]) then relu\n"
                                    "y = matmul \"y\" (a, v FP16[96,96])\noutput y\n";
    static const char *const integers = "input x INT32[3,4]\n"
                                        "a = matmul \"a\" (x, w INT32[4,4])\n"
                                        "y = matmul \"y\" (a, v INT32[4,4])\noutput y\n";
    const uint64_t room = 227 << 10;
    (void)state;
    assert_int_equal(nodes_of(integers, room, true, false), 2);
    assert_int_equal(nodes_of(wide, room, false, false), 2);
    assert_int_equal(nodes_of(wide, room, true, false), 1);
    assert_int_equal(nodes_of(half, room, false, false), 1);
    assert_int_equal(nodes_of(half, 40 << 10, false, false), 2); /* a smaller device */
    assert_int_equal(nodes_of(half, 0, false, false), 2);        /* a backend without a kernel */
}

/* What other passes may still find would be lost in a chain. */
static void waits_for_the_other_passes(void **state)
{
    static const char *const text = "input x FP32[3,4]\n"
                                    "a = matmul \"a\" (x, w FP32[4,4]) then relu\n"
                                    "y = matmul \"y\" (a, v FP32[4,4])\noutput y\n";
    (void)state;
    assert_int_equal(nodes_of(text, 227 << 10, false, true), 2);
    assert_int_equal(nodes_of(text, 227 << 10, false, false), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_case),
                                       cmocka_unit_test(sizes_follow_the_type),
                                       cmocka_unit_test(waits_for_the_other_passes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
